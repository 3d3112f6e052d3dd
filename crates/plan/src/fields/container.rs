//! A container's configuration as fields with paths: `env.PORT`, `mounts./data`, `ports.80/tcp`. The form is normal:
//! values that mean the same to the engine read the same.
//!
//! Values are not masked here. Code that prints one masks it with [`Value::shown`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use driftless_model::{
    Attachment, Container, DEFAULT_STOP_GRACE, Healthcheck, ImageRef, Mount, MountOptions, MountSource,
    NetworkMode, Port, Protocol, Resources, RestartPolicy, VolumesFrom, digest_hex, downward::shown, label,
};

use crate::{
    fields::{
        host,
        value::{Fields, Out, Value},
    },
    text,
};

/// The fields of an effective configuration (see [`Container::effective`]). What is at the engine's default is absent.
#[expect(clippy::too_many_lines, reason = "one line per field, so that the compiler names a forgotten one")]
pub(crate) fn fields(container: &Container) -> Fields {
    let Container {
        image,
        entrypoint,
        command,
        env,
        user,
        working_dir,
        hostname,
        domainname,
        init,
        tty,
        stdin_open,
        stop_signal,
        stop_grace_period,
        labels,
        ports,
        expose,
        mounts,
        network_mode,
        healthcheck,
        restart,
        resources,
        privileged,
        read_only,
        cap_add,
        cap_drop,
        security_opt,
        extra_hosts,
        dns,
        dns_search,
        sysctls,
        shm_size,
        ulimits,
        logging,
        devices,
        group_add,
        pid_mode,
        ipc_mode,
        host: settings,
        volumes_from,
    } = container;
    let mut out = Out(Fields::new());
    out.text("image", Some(normal_image(image)));
    out.words("entrypoint", entrypoint.as_ref());
    out.words("command", command.as_ref());
    for (name, value) in env {
        if let Some(value) = value {
            out.put(["env", name], Value::Text(shown(value)));
        }
    }
    out.text("user", user.clone());
    out.text("workingDir", working_dir.as_deref().map(|it| it.trim_end_matches('/').to_owned()));
    out.text("hostname", hostname.clone());
    out.text("domainname", domainname.clone());
    out.flag("init", *init == Some(true));
    out.flag("tty", *tty);
    out.flag("stdinOpen", *stdin_open);
    out.text("stopSignal", stop_signal.as_deref().map(normal_signal).filter(|it| it != "SIGTERM"));
    out.text(
        "stopGracePeriod",
        stop_grace_period
            .map(whole_seconds)
            .filter(|it| *it != DEFAULT_STOP_GRACE.as_secs())
            .map(|it| format!("{it}s")),
    );
    for (name, value) in labels.iter().filter(|(name, _)| is_manifests_own(name)) {
        out.put(["labels", name], Value::Text(value.clone()));
    }
    published(&mut out, ports);
    let is_published =
        |it: &&(u16, Protocol)| ports.iter().any(|port| (port.container, port.protocol) == **it);
    let exposed = expose.iter().filter(|it| !is_published(it));
    out.set("expose", exposed.map(|(port, protocol)| format!("{port}/{}", protocol.as_str())));
    for mount in mounts {
        let options = settings.mount_options.get(&mount.target);
        out.put(["mounts", slashless(&mount.target)], mounted(mount, options));
    }
    networks(&mut out, network_mode, hostname.as_ref());
    health(&mut out, healthcheck.as_ref());
    out.text("restart", Some(policy(*restart)).filter(|it| it != "no"));
    limits(&mut out, resources);
    out.flag("privileged", *privileged);
    out.flag("readOnly", *read_only);
    out.set("capAdd", cap_add.iter().map(|it| capability(it)));
    out.set("capDrop", cap_drop.iter().map(|it| capability(it)));
    out.set("securityOpt", security_opt.iter().map(|it| security(it)));
    out.set("extraHosts", extra_hosts.iter().cloned());
    out.list("dns", dns);
    out.list("dnsSearch", dns_search);
    for (name, value) in sysctls {
        out.put(["sysctls", name], Value::Text(value.clone()));
    }
    out.text("shmSize", shm_size.filter(|it| *it > 0 && *it != SHM_SIZE).map(text::bytes));
    for (name, (soft, hard)) in ulimits {
        out.put(["ulimits", name], Value::Text(format!("{soft}:{hard}")));
    }
    if let Some((driver, options)) = logging {
        out.text("logging.driver", Some(driver.clone()));
        for (name, value) in options {
            out.put(["logging", name], Value::Text(value.clone()));
        }
    }
    out.set("devices", devices.iter().map(|(host, inside, rights)| device(host, inside, rights)));
    out.set("groupAdd", group_add.iter().cloned());
    out.text("pidMode", pid_mode.as_ref().map(ToString::to_string));
    // `private` and `shareable` are what the engine takes when nobody says.
    let ipc = ipc_mode.as_ref().map(ToString::to_string);
    out.text("ipcMode", ipc.filter(|it| it != "private" && it != "shareable"));
    let all: Vec<String> = volumes_from.iter().map(shared_volumes).collect();
    out.list("volumesFrom", &all);
    host::write(&mut out, settings);
    out.0
}

/// `docker.io/library/web:latest` and `web` are one image.
pub(crate) fn normal_image(reference: &str) -> String {
    if reference.is_empty() { String::new() } else { ImageRef::parse(reference).familiar() }
}

/// A volume without a name, of Git or of the image.
pub(crate) const ANONYMOUS: &str = "anonymous volume";

/// The engine's `/dev/shm` when nobody says.
const SHM_SIZE: u64 = 64 << 20;

fn is_manifests_own(name: &str) -> bool {
    let others = ["driftless.", label::compose::PREFIX, label::DOCKER_DESKTOP];
    !others.iter().any(|prefix| name.starts_with(prefix))
}

fn published(out: &mut Out, ports: &[Port]) {
    let mut by_port: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Port { container, protocol, host_ip, host } in ports {
        let on = match host.filter(|it| it.first > 0) {
            None => "any".to_owned(),
            Some(range) if range.first >= range.last => range.first.to_string(),
            Some(range) => format!("{}-{}", range.first, range.last),
        };
        // Older versions of Docker Compose write `0.0.0.0` where there is no address.
        let on = match host_ip.filter(|it| *it != IpAddr::V4(Ipv4Addr::UNSPECIFIED)) {
            Some(ip) if ip.is_ipv6() => format!("[{ip}]:{on}"),
            Some(ip) => format!("{ip}:{on}"),
            None => on,
        };
        by_port.entry(format!("{container}/{}", protocol.as_str())).or_default().insert(on);
    }
    for (port, hosts) in by_port {
        let hosts: Vec<String> = hosts.into_iter().collect();
        out.put(["ports", &port], Value::Text(hosts.join(", ")));
    }
}

/// The fields of a mount that the engine reports. Whether a missing folder was made, whether a new volume was filled from the
/// image and how a path was relabelled are of the moment of creation only, and do not count.
fn mounted(mount: &Mount, options: Option<&MountOptions>) -> Value {
    let Mount { target: _, source, read_only } = mount;
    let options = options.map(host::mount).unwrap_or_default();
    let (what, always_read_only) = match source {
        MountSource::Volume { name, no_copy: _ } if is_anonymous(name) => (ANONYMOUS.to_owned(), false),
        MountSource::Volume { name, no_copy: _ } => (format!("volume {name}"), false),
        MountSource::Anonymous => (ANONYMOUS.to_owned(), false),
        MountSource::Image(image) => (format!("image {}", normal_image(image)), false),
        MountSource::Empty => ("empty volume".to_owned(), false),
        MountSource::Bind { path, create: _, propagation, selinux: _ } => {
            let path = slashless(path);
            match propagation.as_deref().filter(|it| *it != "rprivate" && !it.is_empty()) {
                Some(propagation) => (format!("bind {path} ({propagation})"), false),
                None => (format!("bind {path}"), false),
            }
        }
        MountSource::Tmpfs { size, mode } => {
            let size =
                size.filter(|it| *it > 0).map(|it| format!(" of {}", text::bytes(it))).unwrap_or_default();
            let mode = mode.filter(|it| *it != 0o1777).map(|it| format!(" mode {it:o}")).unwrap_or_default();
            (format!("tmpfs{size}{mode}"), false)
        }
        MountSource::Content(id) => (format!("content {}", id.0.get(..8).unwrap_or(&id.0)), true),
        MountSource::Secret(id) => {
            return Value::Secrets { before: "secret ", ids: vec![id.clone()], after: options };
        }
        MountSource::InPlace { secret, folder } => {
            let (what, shape) =
                (if *secret { "secret" } else { "content" }, if *folder { "folder" } else { "file" });
            (format!("{what} {shape}, rewritten in place"), true)
        }
        MountSource::AppFolder(path) => (format!("application folder {}", relative(path)), false),
    };
    let read_only = if *read_only && !always_read_only { ", read only" } else { "" };
    Value::Text(format!("{what}{options}{read_only}"))
}

/// The engine names a volume without a name by 64 digits. Its heirs use that name.
fn is_anonymous(volume: &str) -> bool {
    volume.len() == 64 && volume.bytes().all(|it| it.is_ascii_hexdigit())
}

/// The engine makes the host name an alias by itself, and does not tell whether anybody asked for it as well.
fn networks(out: &mut Out, mode: &NetworkMode, hostname: Option<&String>) {
    match mode {
        NetworkMode::Host => out.text("networkMode", Some("host".to_owned())),
        NetworkMode::Bridge => out.text("networkMode", Some("bridge".to_owned())),
        NetworkMode::Of(peer) => out.text("networkMode", Some(peer.to_string())),
        // A container that joins no network has none.
        NetworkMode::None => out.put(["networks", "none"], Value::Flag),
        NetworkMode::Networks(networks) if networks.is_empty() => out.put(["networks", "none"], Value::Flag),
        NetworkMode::Networks(networks) => {
            for (network, attachment) in networks {
                // The order of joining cannot be read back.
                let Attachment {
                    aliases,
                    ipv4,
                    ipv6,
                    link_local,
                    mac_address,
                    priority: _,
                    gw_priority,
                    driver_opts,
                    links,
                } = attachment.as_ref();
                out.put(["networks", network, "attached"], Value::Flag);
                let sorted: BTreeSet<String> =
                    aliases.iter().filter(|it| Some(*it) != hostname).cloned().collect();
                if !sorted.is_empty() {
                    let sorted = Value::List(sorted.into_iter().collect());
                    out.put(["networks", network, "aliases"], sorted);
                }
                let link_local: Vec<String> =
                    link_local.iter().map(|address| shortest_form(address)).collect();
                for (name, all) in [("linkLocal", link_local), ("links", links.clone())] {
                    if !all.is_empty() {
                        out.put(["networks", network, name], Value::List(all));
                    }
                }
                for (name, value) in driver_opts {
                    let path = ["networks", network, "driverOpts", name];
                    out.put(path, Value::Text(value.clone()));
                }
                if *gw_priority != 0 {
                    let priority = Value::Text(gw_priority.to_string());
                    out.put(["networks", network, "gwPriority"], priority);
                }
                for (name, address) in [("ipv4", ipv4), ("ipv6", ipv6), ("macAddress", mac_address)] {
                    if let Some(address) = address.as_ref().filter(|it| !it.is_empty()) {
                        out.put(["networks", network, name], Value::Text(shortest_form(address)));
                    }
                }
            }
        }
    }
}

/// An address as newer engines write it; any other text as it is. IPv6 has several ways to write one.
fn shortest_form(text: &str) -> String {
    text.parse::<IpAddr>().map_or_else(|_| text.to_owned(), |address| address.to_string())
}

fn shared_volumes(VolumesFrom { peer, read_only }: &VolumesFrom) -> String {
    format!("{peer}{}", if *read_only { ", read only" } else { "" })
}

/// The engine's own defaults, for what is not given: 30 s, 30 s, 3 times, at once.
fn health(out: &mut Out, check: Option<&Healthcheck>) {
    let Some(check) = check.filter(|check| !check.test.is_empty() && !check.is_disabled()) else { return };
    let Healthcheck { test, interval, timeout, retries, start_period, start_interval } = check;
    out.put(["healthcheck", "test"], Value::Words(test.clone()));
    let default = |seconds| Duration::from_secs(seconds);
    for (name, value, default) in [
        ("healthcheck.interval", interval, default(30)),
        ("healthcheck.timeout", timeout, default(30)),
        ("healthcheck.startPeriod", start_period, Duration::ZERO),
        ("healthcheck.startInterval", start_interval, default(5)),
    ] {
        let value = value.filter(|it| !it.is_zero() && *it != default);
        out.text(name, value.map(text::duration));
    }
    out.text("healthcheck.retries", retries.filter(|it| *it != 0 && *it != 3).map(|it| it.to_string()));
}

fn policy(restart: RestartPolicy) -> String {
    match restart {
        RestartPolicy::OnFailure { max_retries: Some(0) } => {
            text::restart(RestartPolicy::OnFailure { max_retries: None })
        }
        RestartPolicy::No
        | RestartPolicy::Always
        | RestartPolicy::UnlessStopped
        | RestartPolicy::OnFailure { .. } => text::restart(restart),
    }
}

/// Zero is no limit. With a limit of memory, the engine allows the same amount of swap by default.
fn limits(out: &mut Out, resources: &Resources) {
    let Resources {
        nano_cpus,
        memory,
        memory_reservation,
        memory_swap,
        cpu_shares,
        pids,
        // A quota is reported as a number of CPUs.
        cpu_quota: _,
        cpu_period,
        cpuset,
    } = &resources.normal();
    let set = |value: &Option<u64>| value.filter(|it| *it > 0);
    out.text("resources.cpus", set(nano_cpus).map(text::cpus));
    out.text("resources.memory", set(memory).map(text::bytes));
    out.text("resources.memoryReservation", set(memory_reservation).map(text::bytes));
    let twice = set(memory).and_then(|it| i64::try_from(it).ok()).and_then(|it| it.checked_mul(2));
    let swap = memory_swap.filter(|it| *it != 0 && Some(*it) != twice);
    out.text(
        "resources.memorySwap",
        swap.map(|it| u64::try_from(it).map_or_else(|_| "unlimited".to_owned(), text::bytes)),
    );
    out.text("resources.cpuShares", set(cpu_shares).map(|it| it.to_string()));
    out.text("resources.pids", pids.filter(|it| *it > 0).map(|it| it.to_string()));
    out.text("resources.cpuPeriod", set(cpu_period).map(|it| it.to_string()));
    out.text("resources.cpuset", cpuset.clone());
}

fn capability(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    name.strip_prefix("CAP_").unwrap_or(&name).to_owned()
}

/// `no-new-privileges:true`, `no-new-privileges=true` and `no-new-privileges` are one.
fn security(option: &str) -> String {
    let option = match option.split_once([':', '=']) {
        Some((name, value)) => format!("{name}={value}"),
        None => option.to_owned(),
    };
    match option.split_once('=') {
        Some(("no-new-privileges", "true")) => "no-new-privileges".to_owned(),
        // A whole profile says nothing to anybody; that it is another one does.
        Some(("seccomp", profile)) if profile.trim_start().starts_with('{') => {
            let digest = digest_hex(profile.as_bytes());
            format!("seccomp=profile {}", digest.get(..8).unwrap_or(&digest))
        }
        Some(_) | None => option,
    }
}

fn device(host: &str, inside: &str, rights: &str) -> String {
    let inside = if inside.is_empty() { host } else { inside };
    let rights = if rights.is_empty() { "rwm" } else { rights };
    format!("{host}:{inside}:{rights}")
}

/// `term`, `15` and `SIGTERM` are one. The numbers are Linux's.
fn normal_signal(signal: &str) -> String {
    const NUMBERS: [(&str, &str); 7] = [
        ("1", "SIGHUP"),
        ("2", "SIGINT"),
        ("3", "SIGQUIT"),
        ("9", "SIGKILL"),
        ("10", "SIGUSR1"),
        ("12", "SIGUSR2"),
        ("15", "SIGTERM"),
    ];
    let signal = signal.to_ascii_uppercase();
    if let Some((_, name)) = NUMBERS.iter().find(|(number, _)| *number == signal) {
        return (*name).to_owned();
    }
    if signal.is_empty() || signal.starts_with("SIG") || signal.starts_with(|it: char| it.is_ascii_digit()) {
        signal
    } else {
        format!("SIG{signal}")
    }
}

/// The engine counts in whole seconds, and to stop too early loses work.
fn whole_seconds(it: Duration) -> u64 {
    it.as_secs().saturating_add(u64::from(it.subsec_nanos() > 0))
}

fn slashless(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => path,
        path => path,
    }
}

fn relative(path: &str) -> &str {
    let path = path.strip_prefix("./").unwrap_or(path).trim_end_matches('/');
    if path.is_empty() { "." } else { path }
}
