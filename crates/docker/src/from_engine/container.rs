//! The configuration of a container, in a normal form: for a container created from a specification, the configuration read
//! back here equals [`Container::effective`] of the specification and the image's defaults.
//!
//! Values that the engine fills in by itself (the size of `/dev/shm`, swap of twice the memory, the log driver) are left
//! out, as if the specification did not contain them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bollard::models as api;
use driftless_model::{
    Attachment, Container, EngineTraits, Healthcheck, IpNetwork, LimitKind, Namespace, NetworkMode, Peer,
    Port, PortRange, Protocol, Resources, RestartPolicy,
};

use super::{
    host_settings::{asked, host_settings, security_options},
    mounts, namespaces,
    values::{filled, map, positive, user_labels},
};
use crate::mount_paths::MountPaths;

/// Values that the engine fills in and a container does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// The log driver of containers without one.
    pub log_driver: String,
    /// The limits that the kernel of the host cannot apply. Without swap, the engine reports -1 for every container.
    pub unsupported_limits: BTreeSet<LimitKind>,
    /// The number of its CPUs, if it refuses a higher limit.
    pub cpus: Option<u64>,
    /// The engine keeps its images in containerd, each for several platforms.
    pub is_containerd_store: bool,
    /// The host's own name.
    pub host_name: String,
    /// The engine managed a Swarm when the connection was opened.
    pub is_swarm_manager: bool,
    /// The engine was a worker of a Swarm when the connection was opened.
    pub is_swarm_worker: bool,
    /// The registries that the engine has settings for, and whether it insists on TLS.
    pub registries: BTreeMap<String, bool>,
    /// The networks whose registries may be without TLS.
    pub insecure_networks: Vec<IpNetwork>,
}

impl Defaults {
    /// The facts about the engine that change what a container looks like.
    pub(crate) fn engine_traits(self) -> EngineTraits {
        EngineTraits {
            log_driver: Some(self.log_driver).filter(|driver| !driver.is_empty()),
            unsupported_limits: self.unsupported_limits,
            cpus: self.cpus,
            keeps_one_platform: !self.is_containerd_store,
            is_swarm_worker: self.is_swarm_worker,
        }
    }
}

/// Bytes of `/dev/shm` by default.
const SHM_SIZE: i64 = 64 << 20;

/// The configuration of a container, including the image's defaults.
pub(crate) fn container(
    found: &api::ContainerInspectResponse,
    paths: &MountPaths,
    defaults: &Defaults,
) -> Container {
    let empty_config = api::ContainerConfig::default();
    let config = found.config.as_ref().unwrap_or(&empty_config);
    let empty_host = api::HostConfig::default();
    let host = found.host_config.as_ref().unwrap_or(&empty_host);
    let ports = ports(host.port_bindings.as_ref());
    let asked = asked(config.labels.as_ref());
    let network_mode = network_mode(found, host, &asked.mac_addresses);
    let check = config.healthcheck.as_ref().and_then(healthcheck);
    let mut container = Container {
        image: config.image.clone().unwrap_or_default(),
        entrypoint: words(config.entrypoint.as_ref()),
        command: words(config.cmd.as_ref()),
        env: env(config.env.as_ref()),
        user: filled(config.user.as_ref()),
        working_dir: filled(config.working_dir.as_ref()),
        hostname: hostname(found, config, &network_mode),
        domainname: filled(config.domainname.as_ref()),
        init: host.init,
        tty: config.tty.unwrap_or_default(),
        stdin_open: config.open_stdin.unwrap_or_default(),
        stop_signal: filled(config.stop_signal.as_ref()),
        stop_grace_period: config.stop_timeout.and_then(|it| u64::try_from(it).ok()).map(Duration::from_secs),
        labels: user_labels(config.labels.iter().flatten()),
        expose: exposed(config.exposed_ports.as_ref(), &ports),
        ports,
        mounts: mounts::mounts(found, host, config, paths),
        network_mode,
        healthcheck: check.map(|it| Healthcheck {
            start_interval: it.start_interval.or(asked.health_start_interval),
            ..it
        }),
        restart: restart(host.restart_policy.as_ref()),
        resources: resources(host, defaults),
        privileged: host.privileged.unwrap_or_default(),
        read_only: host.readonly_rootfs.unwrap_or_default(),
        cap_add: capabilities(host.cap_add.as_ref()),
        cap_drop: capabilities(host.cap_drop.as_ref()),
        security_opt: security_options(host),
        extra_hosts: sorted(host.extra_hosts.as_ref()),
        dns: host.dns.clone().unwrap_or_default(),
        dns_search: host.dns_search.clone().unwrap_or_default(),
        sysctls: map(host.sysctls.as_ref()),
        shm_size: host.shm_size.filter(|it| *it != SHM_SIZE).and_then(positive),
        ulimits: host
            .ulimits
            .iter()
            .flatten()
            .filter_map(|limit| {
                Some((limit.name.clone()?, (limit.soft.unwrap_or_default(), limit.hard.unwrap_or_default())))
            })
            .collect(),
        logging: logging(host.log_config.as_ref(), defaults),
        devices: devices(host.devices.as_ref()),
        group_add: host.group_add.clone().unwrap_or_default(),
        pid_mode: filled(host.pid_mode.as_ref()).map(Namespace::from),
        ipc_mode: filled(host.ipc_mode.as_ref()).filter(|it| it != "private").map(Namespace::from),
        host: host_settings(host, &asked).into(),
        volumes_from: namespaces::volumes_from(host),
    };
    asked.downward.restore(&mut container);
    if container.domainname.as_deref() == container.cluster_domain() {
        container.domainname = None;
    }
    container
}

/// The configuration that an image gives to a container without a specification.
pub(crate) fn image_defaults(image: &api::ImageInspect) -> Container {
    let Some(config) = &image.config else { return Container::default() };
    Container {
        entrypoint: words(config.entrypoint.as_ref()),
        command: words(config.cmd.as_ref()),
        env: env(config.env.as_ref()),
        user: filled(config.user.as_ref()),
        working_dir: filled(config.working_dir.as_ref()),
        stop_signal: filled(config.stop_signal.as_ref()),
        labels: user_labels(config.labels.iter().flatten()),
        expose: exposed(config.exposed_ports.as_ref(), &[]),
        mounts: {
            let volumes: BTreeSet<&String> = config.volumes.iter().flatten().collect();
            volumes.into_iter().map(|target| mounts::anonymous(target)).collect()
        },
        healthcheck: config.healthcheck.as_ref().and_then(healthcheck),
        ..Container::default()
    }
}

/// The names that a container has on every network by itself. The engine adds its id and its host name to the aliases, and
/// resolves its name anyway.
pub(crate) struct OwnNames {
    id: String,
    name: String,
    hostname: Option<String>,
}

impl OwnNames {
    pub(crate) fn of(found: &api::ContainerInspectResponse) -> Self {
        Self {
            id: found.id.clone().unwrap_or_default(),
            name: found.name.as_deref().unwrap_or_default().trim_start_matches('/').to_owned(),
            hostname: found.config.as_ref().and_then(|it| it.hostname.clone()),
        }
    }

    /// The aliases of the specification, sorted.
    pub(crate) fn without(&self, aliases: Option<&Vec<String>>) -> Vec<String> {
        let short = self.id.get(..12).unwrap_or(&self.id);
        let is_own = |it: &str| {
            it == short || it == self.id || it == self.name || self.hostname.as_deref() == Some(it)
        };
        let all: BTreeSet<&String> = aliases.into_iter().flatten().collect();
        all.into_iter().filter(|it| !is_own(it)).cloned().collect()
    }
}

pub(crate) fn restart(policy: Option<&api::RestartPolicy>) -> RestartPolicy {
    let Some(policy) = policy else { return RestartPolicy::No };
    match policy.name {
        Some(api::RestartPolicyNameEnum::ALWAYS) => RestartPolicy::Always,
        Some(api::RestartPolicyNameEnum::UNLESS_STOPPED) => RestartPolicy::UnlessStopped,
        Some(api::RestartPolicyNameEnum::ON_FAILURE) => RestartPolicy::OnFailure {
            max_retries: policy
                .maximum_retry_count
                .filter(|it| *it > 0)
                .and_then(|it| u32::try_from(it).ok()),
        },
        Some(api::RestartPolicyNameEnum::NO | api::RestartPolicyNameEnum::EMPTY) | None => RestartPolicy::No,
    }
}

pub(crate) fn resources(host: &api::HostConfig, defaults: &Defaults) -> Resources {
    let memory = host.memory.and_then(positive);
    let twice = host.memory.map(|it| it.saturating_mul(2));
    Resources {
        memory,
        memory_reservation: host.memory_reservation.and_then(positive),
        memory_swap: host.memory_swap.filter(|swap| {
            let is_limited = !defaults.unsupported_limits.contains(&LimitKind::MemorySwap);
            *swap != 0 && Some(*swap) != twice && is_limited
        }),
        cpu_shares: host.cpu_shares.and_then(positive),
        pids: host.pids_limit.filter(|it| *it > 0),
        nano_cpus: host.nano_cpus.and_then(positive),
        cpu_quota: host.cpu_quota.and_then(positive),
        cpu_period: host.cpu_period.and_then(positive),
        cpuset: filled(host.cpuset_cpus.as_ref()),
    }
    .normal()
}

fn network_mode(
    found: &api::ContainerInspectResponse,
    host: &api::HostConfig,
    mac_addresses: &BTreeMap<String, String>,
) -> NetworkMode {
    let mode = host.network_mode.as_deref().unwrap_or("default");
    match mode {
        "host" => return NetworkMode::Host,
        "none" => return NetworkMode::None,
        _ => {}
    }
    if let Some(peer) = Peer::parse(mode) {
        return NetworkMode::Of(peer);
    }
    let names = OwnNames::of(found);
    let joined = found.network_settings.as_ref().and_then(|it| it.networks.as_ref());
    let networks: BTreeMap<String, Box<Attachment>> = joined
        .into_iter()
        .flatten()
        .map(|(network, it)| {
            let mac_address = mac_addresses.get(network).cloned();
            (network.clone(), Box::new(Attachment { mac_address, ..attachment(it, &names) }))
        })
        .collect();
    let is_default = matches!(mode, "default" | "bridge");
    if is_default && networks.keys().all(|it| it == "bridge") {
        NetworkMode::Bridge
    } else {
        NetworkMode::Networks(networks)
    }
}

fn attachment(endpoint: &api::EndpointSettings, names: &OwnNames) -> Attachment {
    let fixed = endpoint.ipam_config.as_ref();
    Attachment {
        aliases: names.without(endpoint.aliases.as_ref()),
        ipv4: fixed.and_then(|it| filled(it.ipv4_address.as_ref())),
        ipv6: fixed.and_then(|it| filled(it.ipv6_address.as_ref())),
        link_local: fixed
            .and_then(|it| it.link_local_ips.as_ref())
            .into_iter()
            .flatten()
            .filter_map(|it| filled(Some(it)))
            .collect(),
        mac_address: None,
        priority: 0,
        gw_priority: endpoint.gw_priority.unwrap_or_default(),
        driver_opts: endpoint
            .driver_opts
            .iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        links: sorted(endpoint.links.as_ref()),
    }
}

/// The host name of the specification. On the host's or another container's network the engine reports the name of that one.
fn hostname(
    found: &api::ContainerInspectResponse,
    config: &api::ContainerConfig,
    mode: &NetworkMode,
) -> Option<String> {
    let short = found.id.as_deref().and_then(|it| it.get(..12));
    let name = filled(config.hostname.as_ref())?;
    let is_shared = matches!(mode, NetworkMode::Host | NetworkMode::Of(_));
    (!is_shared && Some(name.as_str()) != short).then_some(name)
}

pub(super) fn ports(bindings: Option<&api::PortMap>) -> Vec<Port> {
    let mut ports = Vec::new();
    for (key, bindings) in bindings.into_iter().flatten() {
        let Some((container, protocol)) = port(key) else { continue };
        for binding in bindings.iter().flatten() {
            ports.push(Port {
                container,
                protocol,
                host_ip: binding.host_ip.as_ref().and_then(|it| it.parse().ok()),
                host: binding.host_port.as_deref().and_then(range),
            });
        }
    }
    ports.sort_unstable();
    ports
}

/// Parses `80/tcp` and `80`.
fn port(text: &str) -> Option<(u16, Protocol)> {
    let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return None,
    };
    Some((number.parse().ok()?, protocol))
}

/// Parses `8000` and `8000-8005`; an empty text and `0` leave the choice to the engine.
fn range(text: &str) -> Option<PortRange> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = PortRange { first: first.parse().ok()?, last: last.parse().ok()? };
    (range.first > 0).then_some(range)
}

fn exposed(all: Option<&Vec<String>>, published: &[Port]) -> Vec<(u16, Protocol)> {
    let all: BTreeSet<_> = all.into_iter().flatten().filter_map(|it| port(it)).collect();
    all.into_iter()
        .filter(|it| published.iter().all(|other| (other.container, other.protocol) != *it))
        .collect()
}

fn healthcheck(found: &api::HealthConfig) -> Option<Healthcheck> {
    let duration = |it: Option<i64>| {
        it.filter(|it| *it > 0).and_then(|it| u64::try_from(it).ok()).map(Duration::from_nanos)
    };
    let check = Healthcheck {
        test: found.test.clone().unwrap_or_default(),
        interval: duration(found.interval),
        timeout: duration(found.timeout),
        retries: found.retries.filter(|it| *it > 0).and_then(|it| u32::try_from(it).ok()),
        start_period: duration(found.start_period),
        start_interval: duration(found.start_interval),
    };
    let nothing = Healthcheck {
        test: Vec::new(),
        interval: None,
        timeout: None,
        retries: None,
        start_period: None,
        start_interval: None,
    };
    (check != nothing).then_some(check)
}

/// Entries without `=` only removed a variable of the image.
fn env(list: Option<&Vec<String>>) -> BTreeMap<String, Option<String>> {
    list.into_iter()
        .flatten()
        .filter_map(|it| it.split_once('='))
        .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
        .collect()
}

fn capabilities(list: Option<&Vec<String>>) -> Vec<String> {
    let all: BTreeSet<String> = list
        .into_iter()
        .flatten()
        .map(|it| it.to_ascii_uppercase().trim_start_matches("CAP_").to_owned())
        .collect();
    all.into_iter().collect()
}

fn logging(
    config: Option<&api::HostConfigLogConfig>,
    defaults: &Defaults,
) -> Option<(String, BTreeMap<String, String>)> {
    let config = config?;
    let driver = filled(config.typ.as_ref())?;
    let options = map(config.config.as_ref());
    (driver != defaults.log_driver || !options.is_empty()).then_some((driver, options))
}

fn devices(list: Option<&Vec<api::DeviceMapping>>) -> Vec<(String, String, String)> {
    let all: BTreeSet<_> = list
        .into_iter()
        .flatten()
        .map(|device| {
            let text = |it: &Option<String>| it.clone().unwrap_or_default();
            (text(&device.path_on_host), text(&device.path_in_container), text(&device.cgroup_permissions))
        })
        .collect();
    all.into_iter().collect()
}

fn words(list: Option<&Vec<String>>) -> Option<Vec<String>> {
    list.filter(|it| !it.is_empty()).cloned()
}

fn sorted(list: Option<&Vec<String>>) -> Vec<String> {
    let mut list = list.cloned().unwrap_or_default();
    list.sort_unstable();
    list
}
