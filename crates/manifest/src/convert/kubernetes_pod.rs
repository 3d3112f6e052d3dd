//! Converts the container of a workload to a pod with one container.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Map, Value, json};

use super::{
    kubernetes_mounts,
    kubernetes_writer::{KubernetesWriter, label_of},
    output::{flag, object, seconds},
};
use driftless_model::{
    Container, DEFAULT_STOP_GRACE, Healthcheck, Hook, HostSettings, Namespace, NetworkMode, Probe,
    ProbeAction, Protocol, PullPolicy, Resources, Subject, label,
};

/// The pod template of a workload.
pub(super) struct PodTemplate {
    pub(super) spec: Value,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

pub(super) fn convert(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> PodTemplate {
    let it = &at.workload.container;
    report_unsupported(writer, at);
    report_host_settings(writer, at);
    let (labels, annotations) = labels(writer, at);
    let mounts = kubernetes_mounts::convert(writer, at);
    let container = container(writer, at, mounts.mounts);
    let grace = seconds(it.stop_grace_period.unwrap_or(DEFAULT_STOP_GRACE));
    let groups: Vec<u64> = numbers(writer, at, &it.group_add);
    let sysctls = it.sysctls.iter().map(|(name, value)| json!({ "name": name, "value": value }));
    let is_host = |mode: Option<&Namespace>| flag(mode.is_some_and(Namespace::is_host));
    let dns = object([("nameservers", json!(it.dns)), ("searches", json!(it.dns_search))]);
    let spec = object([
        ("terminationGracePeriodSeconds", if grace == 30 { Value::Null } else { json!(grace) }),
        ("hostname", json!(hostname(writer, at))),
        ("hostNetwork", flag(it.network_mode == NetworkMode::Host)),
        ("hostPID", is_host(it.pid_mode.as_ref())),
        ("hostIPC", is_host(it.ipc_mode.as_ref())),
        ("hostAliases", json!(aliases(writer, at))),
        ("dnsConfig", dns),
        (
            "securityContext",
            object([("supplementalGroups", json!(groups)), ("sysctls", json!(sysctls.collect::<Vec<_>>()))]),
        ),
        ("containers", json!([container])),
        ("volumes", json!(mounts.volumes)),
    ]);
    PodTemplate { spec, labels, annotations }
}

fn container(writer: &mut KubernetesWriter<'_>, at: Subject<'_>, mounts: Vec<Value>) -> Value {
    let it = &at.workload.container;
    for (field, words) in [("entrypoint", &it.entrypoint), ("command", &it.command)] {
        if words.as_ref().is_some_and(Vec::is_empty) {
            writer.lost.field(at, field, "an empty list: a pod uses that of the image");
        }
    }
    let words = |list: &Option<Vec<String>>| list.as_ref().map(|words| all_escaped(words));
    let pull = match at.workload.pull {
        PullPolicy::Always | PullPolicy::Every(_) => "Always",
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Never => "Never",
    };
    let probes = &at.workload.probes;
    let readiness = probes.readiness.as_ref().map(probe).or_else(|| healthcheck(writer, at));
    object([
        ("name", json!(writer.name_of(at.name))),
        ("image", json!(it.image)),
        ("imagePullPolicy", json!(pull)),
        ("command", json!(words(&it.entrypoint))),
        ("args", json!(words(&it.command))),
        ("env", json!(env(writer, at))),
        ("workingDir", json!(it.working_dir)),
        ("stdin", flag(it.stdin_open)),
        ("tty", flag(it.tty)),
        ("ports", json!(ports(writer, at))),
        ("lifecycle", lifecycle(writer, at)),
        ("resources", resources(writer, at)),
        ("securityContext", security(writer, at)),
        ("startupProbe", json!(probes.startup.as_ref().map(probe))),
        ("readinessProbe", json!(readiness)),
        ("livenessProbe", json!(probes.liveness.as_ref().map(probe))),
        ("volumeMounts", Value::Array(mounts)),
    ])
}

/// Escapes dollars: Kubernetes replaces `$(NAME)` by the value of a variable, and `$$` by one dollar.
fn escaped(text: &str) -> String {
    if text.contains("$(") || text.contains("$$") { text.replace('$', "$$") } else { text.to_owned() }
}

fn all_escaped(words: &[String]) -> Vec<String> {
    words.iter().map(|word| escaped(word)).collect()
}

fn env(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    let mut secrets = Map::new();
    let secret = format!("{}-env", writer.name_of(at.name));
    for (name, value) in &at.workload.container.env {
        let is_name = !name.is_empty() && name.bytes().all(|it| (0x20..0x7f).contains(&it) && it != b'=');
        let Some(value) = value.as_ref().filter(|_| is_name) else {
            writer.lost.field(at, "env", format!("`{name}`, which removes a variable of the image"));
            continue;
        };
        if at.workload.secret_env.contains(name)
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(&it))
        {
            let value = writer.hidden(at, "env", value);
            secrets.insert(name.clone(), json!(value));
            let reference = json!({ "secretKeyRef": { "name": secret, "key": name } });
            all.push(json!({ "name": name, "valueFrom": reference }));
        } else {
            all.push(json!({ "name": name, "value": escaped(value) }));
        }
    }
    if !secrets.is_empty() {
        writer.keep("Secret", &secret, vec![("stringData", Value::Object(secrets))]);
    }
    all
}

/// Converts container labels to valid labels, or to annotations.
fn labels(
    writer: &mut KubernetesWriter<'_>,
    at: Subject<'_>,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let (mut labels, mut annotations) = (BTreeMap::new(), BTreeMap::new());
    for (key, value) in &at.workload.container.labels {
        if let Some(key) = key.strip_prefix(label::ANNOTATION) {
            annotations.insert(key.to_owned(), value.clone());
        } else if key == "app" {
            writer.lost.field(at, "labels", "the label `app`, which selects the pods of a workload");
        } else if !is_label_key(key) {
            writer.lost.field(
                at,
                "labels",
                format!("the label `{key}`: not a valid label key in Kubernetes"),
            );
        } else if value.is_empty() || is_word(value) {
            labels.insert(key.clone(), value.clone());
        } else {
            writer.lost.field(
                at,
                "labels",
                format!("the label `{key}` becomes an annotation: not a valid label value"),
            );
            annotations.insert(key.clone(), value.clone());
        }
    }
    (labels, annotations)
}

fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_word(name),
        None => is_word(key),
    }
}

fn is_domain(text: &str) -> bool {
    let is_inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let is_part =
        |it: &str| !it.is_empty() && it.bytes().all(is_inner) && !it.starts_with('-') && !it.ends_with('-');
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_word(text: &str) -> bool {
    let is_firm = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    let is_inner = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    text.len() <= 63
        && text.bytes().all(is_inner)
        && is_firm(text.chars().next())
        && is_firm(text.chars().next_back())
}

fn hostname(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Option<String> {
    let name = at.workload.container.hostname.as_ref()?;
    if name.len() <= 63 && *name == label_of(name) {
        return Some(name.clone());
    }
    writer.lost.field(at, "hostname", format!("`{name}`: not a valid host name of a pod"));
    None
}

fn lifecycle(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Value {
    let host = &at.workload.container.host;
    let mut hook = |field: &str, all: &[Hook]| {
        let field = &format!("host.{field}");
        let [Hook { command, sleep, http: _, user, privileged, working_dir, env }] = all else {
            if !all.is_empty() {
                writer.lost.field(at, field, "several commands: a pod has one, so join them in a script");
            }
            return Value::Null;
        };
        if user.is_some() || *privileged || working_dir.is_some() || !env.is_empty() {
            writer.lost.field(
                at,
                field,
                "user, folder and environment of the hook: a pod uses those of the container",
            );
        }
        match sleep {
            Some(sleep) => json!({ "sleep": { "seconds": sleep.as_secs() } }),
            None => json!({ "exec": { "command": command } }),
        }
    };
    let (post_start, pre_stop) = (hook("postStart", &host.post_start), hook("preStop", &host.pre_stop));
    let signal = json!(stop_signal(writer, at));
    object([("postStart", post_start), ("preStop", pre_stop), ("stopSignal", signal)])
}

fn stop_signal(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Option<String> {
    let signal = at.workload.container.stop_signal.as_ref()?;
    let name = if signal.starts_with("SIG") { signal.clone() } else { format!("SIG{signal}") };
    if name.bytes().skip(3).all(|it| it.is_ascii_digit()) {
        writer.lost.field(at, "stopSignal", format!("`{signal}`: give the signal its name"));
        return None;
    }
    if name != *signal {
        writer.lost.field(at, "stopSignal", format!("`{signal}` is written as `{name}`"));
    }
    Some(name)
}

fn aliases(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Vec<Value> {
    let mut by_address: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in &at.workload.container.extra_hosts {
        match entry.split_once(':') {
            Some((name, address)) if address.parse::<std::net::IpAddr>().is_ok() && is_domain(name) => {
                by_address.entry(address).or_default().push(name);
            }
            Some(_) | None => {
                writer.lost.field(at, "extraHosts", format!("`{entry}`: not a valid name and address"));
            }
        }
    }
    by_address.iter().map(|(ip, names)| json!({ "ip": ip, "hostnames": names })).collect()
}

fn numbers(writer: &mut KubernetesWriter<'_>, at: Subject<'_>, groups: &[String]) -> Vec<u64> {
    let mut all = BTreeSet::new();
    for group in groups {
        match group.parse() {
            Ok(number) => {
                all.insert(number);
            }
            Err(_) => writer.lost.field(at, "groupAdd", format!("`{group}`: a group is named by its number")),
        }
    }
    all.into_iter().collect()
}

fn ports(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Vec<Value> {
    let it = &at.workload.container;
    let is_on_host = it.network_mode == NetworkMode::Host;
    let mut all = Vec::new();
    let mut port = |number: u16, protocol: Protocol, host: Option<u16>, host_ip: Option<std::net::IpAddr>| {
        let word = (protocol != Protocol::Tcp).then(|| protocol.as_str().to_uppercase());
        all.push(object([
            ("containerPort", json!(number)),
            ("protocol", json!(word)),
            ("hostPort", json!(host)),
            ("hostIP", json!(host_ip)),
        ]));
    };
    for published in &it.ports {
        let number = published.container;
        let host = published.host.filter(|it| it.len() == 1).map(|it| it.first);
        // One instance can hold a port of the host.
        let is_shared = at.workload.replicas > 1;
        let message = match (host, is_on_host || is_shared) {
            (Some(host), true) if is_shared && !is_on_host => Some(format!(
                "port {number} is not published: several instances share port {host} of the host, which takes a Service of type LoadBalancer"
            )),
            (None, _) | (_, true) => {
                Some(format!("port {number} is not published: give it one port of the host"))
            }
            (Some(_), false) => None,
        };
        if let Some(message) = message {
            writer.lost.field(at, "ports", message);
        }
        let host = host.filter(|_| !is_shared);
        port(
            number,
            published.protocol,
            host.filter(|_| !is_on_host),
            published.host_ip.filter(|_| host.is_some()),
        );
    }
    for (number, protocol) in &it.expose {
        port(*number, *protocol, None, None);
    }
    all
}

/// Converts the health check to a readiness probe.
fn healthcheck(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Option<Value> {
    let Healthcheck { test, interval, timeout, retries, start_period, start_interval } =
        at.workload.container.healthcheck.as_ref()?;
    let (first, words) = test.split_first().map(|(first, rest)| (first.as_str(), rest))?;
    let command = match first {
        "CMD" => words.to_vec(),
        "CMD-SHELL" => {
            ["/bin/sh", "-c"].into_iter().map(str::to_owned).chain(words.iter().cloned()).collect()
        }
        // Kubernetes does not use the health check of the image.
        _ => return None,
    };
    if start_interval.is_some() {
        writer.lost.field(at, "healthcheck", "the interval during the start");
    }
    if start_period.is_some() {
        // A readiness probe ends nothing, so a failure during the start has no consequence either.
        writer.lost.field(
            at,
            "healthcheck",
            "`start_period`, in which failures do not count; a readiness probe restarts nothing",
        );
    }
    let time = |it: &Option<Duration>, default| it.map_or(default, |it| seconds(it).max(1));
    Some(json!({
        "exec": { "command": all_escaped(&command) },
        "periodSeconds": time(interval, 30),
        "timeoutSeconds": time(timeout, 30),
        "failureThreshold": retries.unwrap_or(3).max(1),
    }))
}

fn probe(it: &Probe) -> Value {
    let action = match &it.action {
        ProbeAction::HttpGet { path, port, https, host, headers } => {
            let headers: Vec<Value> =
                headers.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
            let scheme = https.then_some("HTTPS");
            let asked = object([
                ("path", json!(path)),
                ("port", json!(port)),
                ("scheme", json!(scheme)),
                ("host", json!(host)),
                ("httpHeaders", json!(headers)),
            ]);
            ("httpGet", asked)
        }
        ProbeAction::TcpSocket { port, host } => {
            let mut tcp = json!({ "port": port });
            if let Some(host) = host {
                tcp["host"] = host.as_str().into();
            }
            ("tcpSocket", tcp)
        }
        ProbeAction::Grpc { port, service } => ("grpc", json!({ "port": port, "service": service })),
        ProbeAction::Exec { command } => ("exec", json!({ "command": all_escaped(command) })),
    };
    object([
        action,
        ("initialDelaySeconds", json!(seconds(it.initial_delay))),
        ("periodSeconds", json!(seconds(it.period))),
        ("timeoutSeconds", json!(seconds(it.timeout))),
        ("successThreshold", json!(it.success_threshold)),
        ("failureThreshold", json!(it.failure_threshold)),
    ])
}

fn resources(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Value {
    let Resources {
        nano_cpus,
        memory,
        memory_reservation,
        memory_swap,
        cpu_shares,
        pids,
        cpu_quota: _,
        cpu_period,
        cpuset,
    } = at.workload.container.resources.normal();
    for (field, is_given) in [
        ("memory_swap", memory_swap.is_some()),
        ("pids", pids.is_some()),
        ("cpu_period", cpu_period.is_some()),
        ("cpuset", cpuset.is_some()),
    ] {
        if is_given {
            writer.lost.field(at, "resources", format!("`{field}`: pods have no such limit"));
        }
    }
    let cpu = |nanos: u64| {
        if nanos.is_multiple_of(1_000_000) { format!("{}m", nanos / 1_000_000) } else { format!("{nanos}n") }
    };
    let millis = cpu_shares.map(|it| it.saturating_mul(1000).div_ceil(1024));
    let wanted = millis.filter(|it| nano_cpus.is_none_or(|limit| it.saturating_mul(1_000_000) <= limit));
    if millis != wanted {
        writer.lost.field(at, "resources", "`cpu_shares`: a request is not higher than its limit");
    }
    let reserved = memory_reservation.filter(|it| memory.is_none_or(|limit| *it <= limit));
    if reserved != memory_reservation {
        writer.lost.field(at, "resources", "`memory_reservation`: a request is not higher than its limit");
    }
    let gpus = at
        .workload
        .container
        .host
        .device_requests
        .iter()
        .filter(|it| is_gpu(it))
        .map(|it| it.count)
        .sum::<i64>();
    let mut limits = Map::new();
    let mut put = |name: &str, amount: Option<String>| {
        if let Some(amount) = amount {
            limits.insert(name.to_owned(), json!(amount));
        }
    };
    put("cpu", nano_cpus.map(cpu));
    put("memory", memory.map(|it| it.to_string()));
    put("nvidia.com/gpu", (gpus > 0).then(|| gpus.to_string()));
    let requests = object([
        ("cpu", json!(wanted.map(|it| format!("{it}m")))),
        ("memory", json!(reserved.map(|it| it.to_string()))),
    ]);
    object([("limits", Value::Object(limits)), ("requests", requests)])
}

fn is_gpu(it: &driftless_model::DeviceRequest) -> bool {
    it.driver == "nvidia"
        && it.count > 0
        && it.ids.is_empty()
        && it.options.is_empty()
        && it.capabilities == ["gpu"]
}

fn security(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) -> Value {
    let it = &at.workload.container;
    let (mut user, mut group) = (None, None);
    if let Some(text) = &it.user {
        let (name, of_group) =
            text.split_once(':').map_or((text.as_str(), None), |(user, group)| (user, Some(group)));
        user = name.parse::<u32>().ok();
        group = of_group.and_then(|it| it.parse::<u32>().ok());
        if user.is_none() || group.is_some() != of_group.is_some() {
            writer.lost.field(at, "user", format!("`{text}`: users and groups are named by their numbers"));
            group = None;
        }
    }
    let mut escalation = None;
    let (mut seccomp, mut apparmor) = (Value::Null, Value::Null);
    for option in &it.security_opt {
        match option.as_str() {
            "no-new-privileges" | "no-new-privileges:true" | "no-new-privileges=true" if !it.privileged => {
                escalation = Some(false);
                if option != "no-new-privileges" {
                    writer.lost.field(at, "securityOpt", "becomes `no-new-privileges`");
                }
            }
            "seccomp=unconfined" => seccomp = json!({ "type": "Unconfined" }),
            "apparmor=unconfined" => apparmor = json!({ "type": "Unconfined" }),
            other => writer.lost.field(at, "securityOpt", format!("`{other}`")),
        }
    }
    object([
        ("runAsUser", json!(user)),
        ("runAsGroup", json!(group)),
        ("privileged", flag(it.privileged)),
        ("allowPrivilegeEscalation", json!(escalation)),
        ("readOnlyRootFilesystem", flag(it.read_only)),
        ("seccompProfile", seccomp),
        ("appArmorProfile", apparmor),
        ("capabilities", object([("add", json!(it.cap_add)), ("drop", json!(it.cap_drop))])),
    ])
}

/// Reports fields of the container that a pod does not have.
fn report_unsupported(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) {
    let it: &Container = &at.workload.container;
    let mut lose = |is_given: bool, field: &str, why: &str| {
        if is_given {
            writer.lost.field(at, field, why);
        }
    };
    lose(it.domainname.is_some(), "domainname", "pods have the domain of their cluster");
    lose(it.init.is_some(), "init", "there is no init process in a pod: put one into the image");
    lose(!it.ulimits.is_empty(), "ulimits", "the limits of processes are those of the node");
    lose(it.logging.is_some(), "logging", "the cluster configures logging");
    lose(!it.volumes_from.is_empty(), "volumesFrom", "volumes are shared by name: use a claim");
    let others = [("pidMode", &it.pid_mode), ("ipcMode", &it.ipc_mode)];
    for (field, mode) in others {
        lose(mode.as_ref().is_some_and(|it| !it.is_host()), field, "containers share this in one pod only");
    }
    match &it.network_mode {
        NetworkMode::Host => {}
        NetworkMode::None => lose(true, "networkMode", "a pod always has a network; use a NetworkPolicy"),
        NetworkMode::Bridge => lose(true, "networkMode", "the engine's own bridge: pods have one network"),
        NetworkMode::Of(peer) => {
            lose(true, "networkMode", &format!("the network of {peer}: containers share it in one pod only"));
        }
        NetworkMode::Networks(networks) => {
            for attachment in networks.values() {
                let driftless_model::Attachment {
                    aliases: _,
                    ipv4,
                    ipv6,
                    link_local,
                    mac_address,
                    priority: _,
                    gw_priority: _,
                    driver_opts,
                    links,
                } = attachment.as_ref();
                let is_fixed =
                    ipv4.is_some() || ipv6.is_some() || !link_local.is_empty() || mac_address.is_some();
                lose(is_fixed, "networks", "a fixed address: clients use the Service's name");
                lose(!driver_opts.is_empty(), "networks", "options of the network's driver");
                lose(!links.is_empty(), "networks", "names for one container alone: use a Service");
            }
        }
    }
    let NetworkMode::Networks(networks) = &it.network_mode else { return };
    lose(networks.len() > 1, "networks", "several networks: pods have one");
}

/// Reports host settings that a pod does not have.
fn report_host_settings(writer: &mut KubernetesWriter<'_>, at: Subject<'_>) {
    let HostSettings {
        platform,
        runtime,
        uts_mode,
        userns_mode,
        cgroup,
        cgroup_parent,
        dns_opt,
        device_cgroup_rules,
        device_requests,
        block_io,
        memory_swappiness,
        oom_kill_disable,
        oom_score_adj,
        cpu_realtime_period,
        cpu_realtime_runtime,
        storage_opt,
        annotations,
        non_root,
        mount_options,
        post_start: _,
        pre_stop: _,
    } = &*at.workload.container.host;
    let other_options = mount_options.values().any(|options| {
        let driftless_model::MountOptions { subpath: _, labels, recursive, tmpfs, group } = options;
        !labels.is_empty() || recursive.is_some() || !tmpfs.is_empty() || group.is_some()
    });
    for (field, is_given) in [
        ("platform", platform.is_some()),
        ("runtime", runtime.is_some()),
        ("utsMode", uts_mode.is_some()),
        ("usernsMode", userns_mode.is_some()),
        ("cgroup", cgroup.is_some()),
        ("cgroupParent", cgroup_parent.is_some()),
        ("dnsOpt", !dns_opt.is_empty()),
        ("deviceCgroupRules", !device_cgroup_rules.is_empty()),
        ("deviceRequests", device_requests.iter().any(|it| !is_gpu(it))),
        ("blockIo", *block_io != driftless_model::BlockIo::default()),
        ("memorySwappiness", memory_swappiness.is_some()),
        ("oomKillDisable", *oom_kill_disable),
        ("oomScoreAdj", *oom_score_adj != 0),
        ("cpuRealtimePeriod", cpu_realtime_period.is_some()),
        ("cpuRealtimeRuntime", cpu_realtime_runtime.is_some()),
        ("storageOpt", !storage_opt.is_empty()),
        ("annotations", !annotations.is_empty()),
        ("nonRoot", *non_root),
        ("mountOptions", other_options),
    ] {
        if is_given {
            writer.lost.field(
                at,
                &format!("host.{field}"),
                "is not carried over: it is set for a node, not for a pod",
            );
        }
    }
}
