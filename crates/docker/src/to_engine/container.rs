//! From our nouns to the engine's: the body of a create call and the like. Pure. It decides nothing: every field
//! of [`Container`] has one place in the engine's dialect, and [`crate::from_engine`] finds it there again.
#![expect(clippy::disallowed_types, reason = "the engine's own types are made of hash maps")]

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    time::Duration,
};

use bollard::models as api;

use super::mounts::{Mounts, mounts_of};
use crate::{from_engine, transport::ApiVersion};
use driftless_model::{
    AgentId, AppName, Asked, Attachment, Container, DownwardValues, Format, Healthcheck, LiveSettings,
    Namespace, Network, NetworkMode, PartOf, Peer, Port, Resources, RestartPolicy, SpecHash, Volume,
    VolumesFrom, downward, label,
};
use driftless_plan::Creation;

/// From this version on a container can join several networks when it is created.
pub(crate) const MANY_NETWORKS: ApiVersion = ApiVersion::new(1, 44);
/// From this version on a health check may have another interval while it starts.
const START_INTERVAL: ApiVersion = ApiVersion::new(1, 44);
/// From this version on the network of the default route can be chosen.
const GATEWAY_PRIORITY: ApiVersion = ApiVersion::new(1, 48);
/// From this version on each end of a network can have a hardware address that was asked for, and before it only the
/// container as a whole.
const MAC_OF_ENDPOINT: ApiVersion = ApiVersion::new(1, 44);

/// Where the host keeps what containers mount from the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountPaths {
    /// `<content>/<id>` is a file or folder by its content.
    pub content: PathBuf,
    /// `<secret>/<id>` likewise, on a memory file system.
    pub secret: PathBuf,
    /// `<app>/<name>` is an application's own writable folder.
    pub app: PathBuf,
}

/// A container about to be created.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub body: api::ContainerCreateBody,
    /// Networks that an old engine only lets it join afterwards.
    pub join_after: Vec<(String, api::EndpointSettings)>,
    /// The hardware address, where an old engine takes it in a field that newer ones do not have.
    pub mac_address: Option<String>,
}

/// With what it is told about itself in its place, and a note of where that is.
pub(crate) fn create_body_telling(
    creation: &Creation,
    values: DownwardValues,
    paths: &MountPaths,
    version: ApiVersion,
) -> Lowered {
    if values.is_empty() {
        return create_body(creation, paths, version);
    }
    let container = downward::fill(&creation.container, &values);
    let mut lowered = create_body(&Creation { container, ..creation.clone() }, paths, version);
    let mut asked = Asked::of(&creation.container).unwrap_or_default();
    asked.told.values = values;
    let labels = lowered.body.labels.get_or_insert_default();
    labels.insert(label::ASKED.to_owned(), asked_text(&asked));
    lowered
}

fn asked_text(asked: &Asked) -> String {
    serde_json::to_string(asked).expect("text and maps of text are JSON")
}

#[expect(clippy::too_many_lines, reason = "one line per field, so that the compiler names a forgotten one")]
pub(crate) fn create_body(creation: &Creation, paths: &MountPaths, version: ApiVersion) -> Lowered {
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
        labels: _,
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
    } = &creation.container;
    let Networking { mode, config, join_after } = networking(network_mode, creation, version);
    let Mounts { binds, long: mounts, tmpfs } = mounts_of(mounts, creation, paths, version);
    let live = live(resources, *restart);
    let mut host = api::HostConfig {
        cpu_shares: live.cpu_shares,
        memory: live.memory,
        memory_reservation: live.memory_reservation,
        memory_swap: live.memory_swap,
        nano_cpus: live.nano_cpus,
        cpu_quota: live.cpu_quota,
        cpu_period: live.cpu_period,
        cpuset_cpus: live.cpuset_cpus,
        pids_limit: live.pids_limit,
        restart_policy: live.restart_policy,
        init: *init,
        binds: some(binds),
        mounts: some(mounts),
        tmpfs: (!tmpfs.is_empty()).then_some(tmpfs),
        network_mode: Some(mode),
        port_bindings: port_bindings(ports),
        privileged: Some(*privileged),
        readonly_rootfs: Some(*read_only),
        cap_add: some(cap_add.clone()),
        cap_drop: some(cap_drop.clone()),
        extra_hosts: some(extra_hosts.clone()),
        dns: some(dns.clone()),
        dns_search: some(dns_search.clone()),
        sysctls: (!sysctls.is_empty()).then(|| hash(sysctls)),
        shm_size: shm_size.map(signed),
        ulimits: some(ulimits.iter().map(ulimit).collect()),
        log_config: logging.as_ref().map(log_config),
        devices: some(devices.iter().map(device).collect()),
        group_add: some(group_add.clone()),
        pid_mode: pid_mode.as_ref().map(|it| namespace(it, creation)),
        ipc_mode: ipc_mode.as_ref().map(|it| namespace(it, creation)),
        volumes_from: some(volumes_from.iter().map(|it| source_of_volumes(it, creation)).collect()),
        ..api::HostConfig::default()
    };
    from_engine::lower_security(security_opt, &mut host);
    from_engine::lower(settings, &mut host);
    let body = api::ContainerCreateBody {
        image: Some(creation.image.as_ref().unwrap_or(image).clone()),
        entrypoint: entrypoint.as_ref().map(|it| entry_point(it)),
        cmd: command.clone(),
        env: some(env.iter().map(|(name, value)| variable(name, value.as_deref())).collect()),
        user: user.clone(),
        working_dir: working_dir.clone(),
        hostname: hostname.clone(),
        domainname: domainname.clone(),
        tty: Some(*tty),
        open_stdin: Some(*stdin_open),
        stop_signal: stop_signal.clone(),
        stop_timeout: stop_grace_period.map(whole_seconds),
        labels: Some(labels(creation)),
        exposed_ports: some(exposed(ports, expose)),
        healthcheck: healthcheck.as_ref().map(|it| health(it, version)),
        host_config: Some(host),
        networking_config: config,
        ..api::ContainerCreateBody::default()
    };
    let mac_addresses = creation.container.networks().values().filter_map(|it| it.mac_address.clone());
    let mac_address = mac_addresses.take(usize::from(version < MAC_OF_ENDPOINT)).next();
    Lowered { body, join_after, mac_address }
}

/// The settings that can be changed on a live container. The engine takes 0 for "as it is", so a limit cannot
/// be taken away by this, except those on processes.
pub(crate) fn update_body(settings: &LiveSettings) -> api::ContainerUpdateBody {
    let mut body = live(&settings.resources, settings.restart);
    body.pids_limit = body.pids_limit.or(Some(-1));
    // Without it the engine refuses a limit of memory above the old one of memory and swap together.
    body.memory_swap = body.memory_swap.or(body.memory.map(|it| it.saturating_mul(2)));
    body
}

pub(crate) fn endpoint(attachment: &Attachment, version: ApiVersion) -> api::EndpointSettings {
    let Attachment {
        aliases,
        ipv4,
        ipv6,
        link_local,
        mac_address,
        // The order in which they are joined.
        priority: _,
        gw_priority,
        driver_opts,
        links,
    } = attachment;
    let fixed = ipv4.is_some() || ipv6.is_some() || !link_local.is_empty();
    api::EndpointSettings {
        links: some(links.clone()),
        mac_address: mac_address.clone().filter(|_| version >= MAC_OF_ENDPOINT),
        driver_opts: (!driver_opts.is_empty()).then(|| hash(driver_opts)),
        aliases: some(aliases.clone()),
        ipam_config: fixed.then(|| api::EndpointIpamConfig {
            ipv4_address: ipv4.clone(),
            ipv6_address: ipv6.clone(),
            link_local_ips: some(link_local.clone()),
        }),
        gw_priority: (version >= GATEWAY_PRIORITY && *gw_priority != 0).then_some(*gw_priority),
        ..api::EndpointSettings::default()
    }
}

pub(crate) fn network_body(
    name: &str,
    network: &Network,
    app: &AppName,
    agent: &AgentId,
) -> api::NetworkCreateRequest {
    let Network {
        key,
        external: _,
        driver,
        options,
        internal,
        attachable,
        enable_ipv6,
        disable_ipv4,
        ipam,
        ipam_driver,
        ipam_options,
        aux_addresses,
        labels,
    } = network;
    let mut all = owner_labels(app, agent, &SpecHash::of(network));
    all.extend(compose_labels(name, key, app, label::compose::NETWORK));
    all.extend(labels.clone());
    let kept = |subnet: &Option<String>| subnet.as_ref().and_then(|it| aux_addresses.get(it)).map(hash);
    let ranges: Vec<api::IpamConfig> = ipam
        .iter()
        .map(|(subnet, gateway, range)| api::IpamConfig {
            subnet: subnet.clone(),
            gateway: gateway.clone(),
            ip_range: range.clone(),
            auxiliary_addresses: kept(subnet),
        })
        .collect();
    let asks_for_addresses = !ranges.is_empty() || ipam_driver.is_some() || !ipam_options.is_empty();
    api::NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some(driver.clone().unwrap_or_else(|| "bridge".to_owned())),
        internal: Some(*internal),
        attachable: Some(*attachable),
        enable_ipv4: disable_ipv4.then_some(false),
        enable_ipv6: Some(*enable_ipv6),
        options: Some(hash(options)),
        ipam: asks_for_addresses.then(|| api::Ipam {
            driver: Some(ipam_driver.clone().unwrap_or_else(|| "default".to_owned())),
            config: Some(ranges),
            options: (!ipam_options.is_empty()).then(|| hash(ipam_options)),
        }),
        labels: Some(all),
        ..api::NetworkCreateRequest::default()
    }
}

pub(crate) fn volume_body(
    name: &str,
    volume: &Volume,
    app: &AppName,
    agent: &AgentId,
) -> api::VolumeCreateRequest {
    let Volume { key, external: _, driver, options, labels } = volume;
    let mut all = owner_labels(app, agent, &SpecHash::of(volume));
    all.extend(compose_labels(name, key, app, label::compose::VOLUME));
    all.extend(labels.clone());
    api::VolumeCreateRequest {
        name: Some(name.to_owned()),
        driver: Some(driver.clone().unwrap_or_else(|| "local".to_owned())),
        driver_opts: Some(hash(options)),
        labels: Some(all),
        cluster_volume_spec: None,
    }
}

/// The engine counts in seconds; we round up, so that nobody gets less time than was asked for.
pub(crate) fn whole_seconds(duration: Duration) -> i64 {
    let rounded = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(rounded).unwrap_or(i64::MAX)
}

/// The order in which networks are joined: the first gives the default route where the engine cannot be told.
pub(crate) fn by_priority(networks: &BTreeMap<String, Attachment>) -> Vec<(&String, &Attachment)> {
    let mut sorted: Vec<_> = networks.iter().collect();
    sorted.sort_by_key(|(_, attachment)| std::cmp::Reverse(attachment.priority));
    sorted
}

struct Networking {
    mode: String,
    config: Option<api::NetworkingConfig>,
    join_after: Vec<(String, api::EndpointSettings)>,
}

fn networking(mode: &NetworkMode, creation: &Creation, version: ApiVersion) -> Networking {
    let plain = |mode: &str| Networking { mode: mode.to_owned(), config: None, join_after: Vec::new() };
    let networks = match mode {
        NetworkMode::Host => return plain("host"),
        NetworkMode::None => return plain("none"),
        NetworkMode::Bridge => return plain("bridge"),
        NetworkMode::Of(peer) => return plain(&shared_with(peer, creation)),
        NetworkMode::Networks(networks) => by_priority(networks),
    };
    let Some((first, _)) = networks.first() else { return plain("none") };
    let mode = (*first).clone();
    let mut endpoints: Vec<(String, api::EndpointSettings)> =
        networks.iter().map(|(name, it)| ((*name).clone(), endpoint(it, version))).collect();
    let join_after = if version < MANY_NETWORKS { endpoints.split_off(1) } else { Vec::new() };
    let config = api::NetworkingConfig { endpoints_config: Some(endpoints.into_iter().collect()) };
    Networking { mode, config: Some(config), join_after }
}

fn namespace(namespace: &Namespace, creation: &Creation) -> String {
    match namespace {
        Namespace::Of(peer) => shared_with(peer, creation),
        Namespace::Mode(mode) => mode.clone(),
    }
}

fn shared_with(peer: &Peer, creation: &Creation) -> String {
    format!("container:{}", container_of(peer, creation))
}

fn source_of_volumes(VolumesFrom { peer, read_only }: &VolumesFrom, creation: &Creation) -> String {
    format!("{}:{}", container_of(peer, creation), if *read_only { "ro" } else { "rw" })
}

/// The very container, by its id: a name may be another's tomorrow. The planner has chosen it.
fn container_of(peer: &Peer, creation: &Creation) -> String {
    match (creation.peers.get(peer), peer) {
        (Some(id), _) => id.to_string(),
        (None, Peer::Container(name)) => name.clone(),
        (None, Peer::Workload(name)) => name.to_string(),
    }
}

fn live(resources: &Resources, restart: RestartPolicy) -> api::ContainerUpdateBody {
    let Resources {
        nano_cpus,
        memory,
        memory_reservation,
        memory_swap,
        cpu_shares,
        pids,
        cpu_quota,
        cpu_period,
        cpuset,
    } = resources;
    let (name, maximum_retry_count) = match restart {
        RestartPolicy::No => (api::RestartPolicyNameEnum::NO, None),
        RestartPolicy::Always => (api::RestartPolicyNameEnum::ALWAYS, None),
        RestartPolicy::UnlessStopped => (api::RestartPolicyNameEnum::UNLESS_STOPPED, None),
        RestartPolicy::OnFailure { max_retries } => {
            (api::RestartPolicyNameEnum::ON_FAILURE, max_retries.map(i64::from))
        }
    };
    api::ContainerUpdateBody {
        cpu_shares: cpu_shares.map(signed),
        memory: memory.map(signed),
        memory_reservation: memory_reservation.map(signed),
        memory_swap: *memory_swap,
        nano_cpus: nano_cpus.map(signed),
        pids_limit: *pids,
        cpu_quota: cpu_quota.map(signed),
        cpu_period: cpu_period.map(signed),
        cpuset_cpus: cpuset.clone(),
        restart_policy: Some(api::RestartPolicy { name: Some(name), maximum_retry_count }),
        ..api::ContainerUpdateBody::default()
    }
}

fn labels(creation: &Creation) -> HashMap<String, String> {
    let Creation {
        app,
        agent,
        format,
        project,
        instance,
        name: _,
        container,
        image: _,
        spec,
        inherit: _,
        peers: _,
        part,
        manifests,
        depends_on,
    } = creation;
    let mut all = hash(&container.labels);
    if *format == Format::Compose {
        let folder = manifests.first().and_then(|it| it.rsplit_once('/')).map_or(".", |(folder, _)| folder);
        all.extend(
            [
                (label::compose::PROJECT, project.clone()),
                (label::compose::SERVICE, instance.workload.to_string()),
                (label::compose::CONTAINER_NUMBER, instance.slot.to_string()),
                (label::compose::ONEOFF, "False".to_owned()),
                (label::compose::CONFIG_HASH, spec.0.clone()),
                (label::compose::CONFIG_FILES, manifests.join(",")),
                (label::compose::WORKING_DIR, folder.to_owned()),
                (label::compose::DEPENDS_ON, depends_on.join(",")),
                (label::compose::VERSION, made_by()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    all.extend(owner_labels(app, agent, spec));
    all.insert(label::WORKLOAD.to_owned(), instance.workload.whole().to_string());
    all.insert(label::SLOT.to_owned(), instance.slot.to_string());
    if let Some(PartOf { pod, name, role, told: _ }) = part {
        all.insert(label::POD.to_owned(), pod.to_string());
        all.insert(label::PART.to_owned(), name.clone());
        all.insert(label::ROLE.to_owned(), role.as_str().to_owned());
    }
    if let Some(asked) = Asked::of(container) {
        all.insert(label::ASKED.to_owned(), asked_text(&asked));
    }
    all
}

fn owner_labels(app: &AppName, agent: &AgentId, spec: &SpecHash) -> HashMap<String, String> {
    [(label::AGENT, agent.as_str()), (label::APPLICATION, app.as_str()), (label::SPEC, spec.0.as_str())]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// Of a network or volume. Compose calls it `<project>_<key>` unless the manifest names it, so the project is
/// what stands before the key; a name of the manifest's own belongs to the application.
fn compose_labels(name: &str, key: &str, app: &AppName, kind: &str) -> HashMap<String, String> {
    let project = name.strip_suffix(key).and_then(|it| it.strip_suffix('_')).filter(|it| !it.is_empty());
    [
        (label::compose::PROJECT, project.unwrap_or(app.as_str()).to_owned()),
        (kind, key.to_owned()),
        (label::compose::VERSION, made_by()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn made_by() -> String {
    concat!("driftless-", env!("CARGO_PKG_VERSION")).to_owned()
}

/// `[""]` is how the engine is told to drop the image's entry point; an empty list would be inherited over.
fn entry_point(words: &[String]) -> Vec<String> {
    if words.is_empty() { vec![String::new()] } else { words.to_vec() }
}

/// A name without `=` takes the image's variable away.
fn variable(name: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("{name}={value}"),
        None => name.to_owned(),
    }
}

fn exposed(ports: &[Port], expose: &[(u16, driftless_model::Protocol)]) -> Vec<String> {
    let published = ports.iter().map(|it| (it.container, it.protocol));
    let all: std::collections::BTreeSet<_> = published.chain(expose.iter().copied()).collect();
    all.into_iter().map(|(port, protocol)| format!("{port}/{}", protocol.as_str())).collect()
}

fn port_bindings(ports: &[Port]) -> Option<api::PortMap> {
    let mut bindings = api::PortMap::new();
    for Port { container, protocol, host_ip, host } in ports {
        let key = format!("{container}/{}", protocol.as_str());
        let binding = api::PortBinding {
            host_ip: host_ip.map(|it| it.to_string()),
            host_port: host.map(|it| {
                if it.first == it.last { it.first.to_string() } else { format!("{}-{}", it.first, it.last) }
            }),
        };
        bindings.entry(key).or_default().get_or_insert_default().push(binding);
    }
    (!bindings.is_empty()).then_some(bindings)
}

fn health(check: &Healthcheck, version: ApiVersion) -> api::HealthConfig {
    let Healthcheck { test, interval, timeout, retries, start_period, start_interval } = check;
    let nanos = |it: &Option<Duration>| it.map(|it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
    api::HealthConfig {
        test: some(test.clone()),
        interval: nanos(interval),
        timeout: nanos(timeout),
        retries: retries.map(i64::from),
        start_period: nanos(start_period),
        start_interval: if version >= START_INTERVAL { nanos(start_interval) } else { None },
    }
}

fn ulimit((name, (soft, hard)): (&String, &(i64, i64))) -> api::ResourcesUlimits {
    api::ResourcesUlimits { name: Some(name.clone()), soft: Some(*soft), hard: Some(*hard) }
}

fn log_config((driver, options): &(String, BTreeMap<String, String>)) -> api::HostConfigLogConfig {
    api::HostConfigLogConfig { typ: Some(driver.clone()), config: Some(hash(options)) }
}

fn device((host, container, permissions): &(String, String, String)) -> api::DeviceMapping {
    api::DeviceMapping {
        path_on_host: Some(host.clone()),
        path_in_container: Some(container.clone()),
        cgroup_permissions: Some(permissions.clone()),
    }
}

pub(crate) fn hash(map: &BTreeMap<String, String>) -> HashMap<String, String> {
    map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
