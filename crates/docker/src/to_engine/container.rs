//! The bodies of create and update calls for containers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bollard::models as api;
use driftless_model::{
    Attachment, Container, DownwardValues, Healthcheck, LiveSettings, Namespace, NetworkMode, Peer, Port,
    PortRange, Protocol, Resources, RestartPolicy, UnreportedSettings, VolumesFrom, WorkloadName, downward,
    label,
};
use driftless_plan::Creation;

use super::{
    host_settings::{set_host_settings, set_security_options},
    labels::{asked_text, container_labels},
    mounts::{MountFields, mount_fields},
    values::{hash_map, non_empty, signed, whole_seconds},
};
use crate::{mount_paths::MountPaths, transport::ApiVersion};

/// From this version on a container can be created on several networks.
const MANY_NETWORKS: ApiVersion = ApiVersion::new(1, 44);
/// From this version on a health check may have another interval while it starts.
const START_INTERVAL: ApiVersion = ApiVersion::new(1, 44);
/// From this version on the network of the default route can be set.
const GATEWAY_PRIORITY: ApiVersion = ApiVersion::new(1, 48);
/// From this version on each endpoint can have its own MAC address; before, only the container as a whole.
const MAC_OF_ENDPOINT: ApiVersion = ApiVersion::new(1, 44);

/// Why a container cannot be created as it is specified.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidCreation {
    /// A container shares with an instance of a workload, and the plan does not say which one. Its name alone could be that of a
    /// container of somebody else.
    #[error("no container of {0} was chosen to share with")]
    UnknownPeer(WorkloadName),
    /// The engine has networks and modes in one field, so `container:db` would be the network of another container.
    #[error(
        "the engine takes the name `{0}` of a network for a network mode; give the network a name without `:`"
    )]
    NamedLikeMode(String),
}

/// A create call.
#[derive(Debug)]
pub(crate) struct CreateCall {
    pub body: api::ContainerCreateBody,
    /// Networks to connect after the call, on an old engine.
    pub connect_after: Vec<(String, api::EndpointSettings)>,
    /// The MAC address, for an old engine that takes it in a field that newer ones do not have.
    pub mac_address: Option<String>,
}

/// The call that creates a container. Values about the container itself are filled in, and a label records where.
pub(crate) fn create_call(
    creation: &Creation,
    values: DownwardValues,
    paths: &MountPaths,
    version: ApiVersion,
) -> Result<CreateCall, InvalidCreation> {
    if values.is_empty() {
        return plain_create_call(creation, paths, version);
    }
    let container = downward::fill(&creation.container, &values);
    let mut call = plain_create_call(&Creation { container, ..creation.clone() }, paths, version)?;
    let mut asked = UnreportedSettings::of(&creation.container).unwrap_or_default();
    asked.downward.values = values;
    let labels = call.body.labels.get_or_insert_default();
    labels.insert(label::ASKED.to_owned(), asked_text(&asked));
    Ok(call)
}

#[expect(clippy::too_many_lines, reason = "one line per field, so that the compiler names a forgotten one")]
fn plain_create_call(
    creation: &Creation,
    paths: &MountPaths,
    version: ApiVersion,
) -> Result<CreateCall, InvalidCreation> {
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
        // With the format: see `Creation::healthcheck`.
        healthcheck: _,
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
    let NetworkFields { mode, config, connect_after } = networking(network_mode, creation, version)?;
    let MountFields { binds, mounts, tmpfs } = mount_fields(mounts, creation, paths, version);
    let sources: Result<_, _> = volumes_from.iter().map(|it| source_of_volumes(it, creation)).collect();
    let sources: Vec<String> = sources?;
    let live = live_settings(resources, *restart);
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
        binds: non_empty(binds),
        mounts: non_empty(mounts),
        tmpfs: (!tmpfs.is_empty()).then_some(tmpfs),
        network_mode: Some(mode),
        port_bindings: port_bindings(ports),
        privileged: Some(*privileged),
        readonly_rootfs: Some(*read_only),
        cap_add: non_empty(cap_add.clone()),
        cap_drop: non_empty(cap_drop.clone()),
        extra_hosts: non_empty(extra_hosts.clone()),
        dns: non_empty(dns.clone()),
        dns_search: non_empty(dns_search.clone()),
        sysctls: (!sysctls.is_empty()).then(|| hash_map(sysctls)),
        shm_size: shm_size.map(signed),
        ulimits: non_empty(ulimits.iter().map(ulimit).collect()),
        log_config: logging.as_ref().map(log_config),
        devices: non_empty(devices.iter().map(device).collect()),
        group_add: non_empty(group_add.clone()),
        pid_mode: pid_mode.as_ref().map(|it| namespace(it, creation)).transpose()?,
        ipc_mode: ipc_mode.as_ref().map(|it| namespace(it, creation)).transpose()?,
        volumes_from: non_empty(sources),
        ..api::HostConfig::default()
    };
    set_security_options(security_opt, &mut host);
    set_host_settings(settings, &mut host);
    let body = api::ContainerCreateBody {
        image: Some(creation.image.as_ref().unwrap_or(image).clone()),
        // An empty list removes the image's entry point, and keeps its command. The engine takes only `null` for none given.
        entrypoint: entrypoint.clone(),
        cmd: command.clone(),
        env: non_empty(env.iter().map(|(name, value)| variable(name, value.as_deref())).collect()),
        user: user.clone(),
        working_dir: working_dir.clone(),
        hostname: hostname.clone(),
        domainname: domainname.clone().or_else(|| creation.container.cluster_domain().map(str::to_owned)),
        tty: Some(*tty),
        open_stdin: Some(*stdin_open),
        stop_signal: stop_signal.clone(),
        stop_timeout: stop_grace_period.map(whole_seconds),
        labels: Some(container_labels(creation)),
        exposed_ports: non_empty(exposed(ports, expose)),
        healthcheck: creation.healthcheck().map(|it| health(&it, version)),
        host_config: Some(host),
        networking_config: config,
        ..api::ContainerCreateBody::default()
    };
    let mac_addresses = creation.container.networks().values().filter_map(|it| it.mac_address.clone());
    let mac_address = mac_addresses.take(usize::from(version < MAC_OF_ENDPOINT)).next();
    Ok(CreateCall { body, connect_after, mac_address })
}

/// The settings that can be changed on a live container. The engine takes 0 for "unchanged", so no limit can be removed but
/// that on processes.
pub(crate) fn update_body(settings: &LiveSettings) -> api::ContainerUpdateBody {
    let mut body = live_settings(&settings.resources, settings.restart);
    body.pids_limit = body.pids_limit.or(Some(-1));
    // Without it the engine refuses a memory limit above the old limit of memory and swap together.
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
        // Decides the order of the networks: see `by_priority`.
        priority: _,
        gw_priority,
        driver_opts,
        links,
    } = attachment;
    let fixed = ipv4.is_some() || ipv6.is_some() || !link_local.is_empty();
    api::EndpointSettings {
        links: non_empty(links.clone()),
        mac_address: mac_address.clone().filter(|_| version >= MAC_OF_ENDPOINT),
        driver_opts: (!driver_opts.is_empty()).then(|| hash_map(driver_opts)),
        aliases: non_empty(aliases.clone()),
        ipam_config: fixed.then(|| api::EndpointIpamConfig {
            ipv4_address: ipv4.clone(),
            ipv6_address: ipv6.clone(),
            link_local_ips: non_empty(link_local.clone()),
        }),
        gw_priority: (version >= GATEWAY_PRIORITY && *gw_priority != 0).then_some(*gw_priority),
        ..api::EndpointSettings::default()
    }
}

/// Networks in the order in which they are connected: on an old engine the first one gets the default route.
fn by_priority(networks: &BTreeMap<String, Box<Attachment>>) -> Vec<(&String, &Attachment)> {
    let mut sorted: Vec<_> = networks.iter().map(|(name, attachment)| (name, attachment.as_ref())).collect();
    sorted.sort_by_key(|(_, attachment)| std::cmp::Reverse(attachment.priority));
    sorted
}

struct NetworkFields {
    mode: String,
    config: Option<api::NetworkingConfig>,
    connect_after: Vec<(String, api::EndpointSettings)>,
}

fn networking(
    mode: &NetworkMode,
    creation: &Creation,
    version: ApiVersion,
) -> Result<NetworkFields, InvalidCreation> {
    let plain =
        |mode: &str| Ok(NetworkFields { mode: mode.to_owned(), config: None, connect_after: Vec::new() });
    let networks = match mode {
        NetworkMode::Host => return plain("host"),
        NetworkMode::None => return plain("none"),
        NetworkMode::Bridge => return plain("bridge"),
        NetworkMode::Of(peer) => return plain(&shared_with(peer, creation)?),
        NetworkMode::Networks(networks) => by_priority(networks),
    };
    if let Some((name, _)) = networks.iter().find(|(name, _)| name.contains(':')) {
        return Err(InvalidCreation::NamedLikeMode((*name).clone()));
    }
    let Some((first, _)) = networks.first() else { return plain("none") };
    let mode = (*first).clone();
    let mut endpoints: Vec<(String, api::EndpointSettings)> =
        networks.iter().map(|(name, it)| ((*name).clone(), endpoint(it, version))).collect();
    let connect_after = if version < MANY_NETWORKS { endpoints.split_off(1) } else { Vec::new() };
    let config = api::NetworkingConfig { endpoints_config: Some(endpoints.into_iter().collect()) };
    Ok(NetworkFields { mode, config: Some(config), connect_after })
}

fn namespace(namespace: &Namespace, creation: &Creation) -> Result<String, InvalidCreation> {
    match namespace {
        Namespace::Of(peer) => shared_with(peer, creation),
        Namespace::Mode(mode) => Ok(mode.clone()),
    }
}

fn shared_with(peer: &Peer, creation: &Creation) -> Result<String, InvalidCreation> {
    container_of(peer, creation).map(|container| format!("container:{container}"))
}

fn source_of_volumes(source: &VolumesFrom, creation: &Creation) -> Result<String, InvalidCreation> {
    let VolumesFrom { peer, read_only } = source;
    let mode = if *read_only { "ro" } else { "rw" };
    container_of(peer, creation).map(|container| format!("{container}:{mode}"))
}

/// The id of the container that the planner chose: a name may belong to another container later.
fn container_of(peer: &Peer, creation: &Creation) -> Result<String, InvalidCreation> {
    match (creation.peers.get(peer), peer) {
        (Some(id), _) => Ok(id.to_string()),
        (None, Peer::Container(name)) => Ok(name.clone()),
        (None, Peer::Workload(name)) => Err(InvalidCreation::UnknownPeer(name.clone())),
    }
}

fn live_settings(resources: &Resources, restart: RestartPolicy) -> api::ContainerUpdateBody {
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

/// A name without `=` removes the image's variable.
fn variable(name: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("{name}={value}"),
        None => name.to_owned(),
    }
}

fn exposed(ports: &[Port], expose: &[(u16, Protocol)]) -> Vec<String> {
    let published = ports.iter().map(|it| (it.container, it.protocol));
    let all: BTreeSet<_> = published.chain(expose.iter().copied()).collect();
    all.into_iter().map(|(port, protocol)| format!("{port}/{}", protocol.as_str())).collect()
}

fn port_bindings(ports: &[Port]) -> Option<api::PortMap> {
    let mut bindings = api::PortMap::new();
    for Port { container, protocol, host_ip, host } in ports {
        let key = format!("{container}/{}", protocol.as_str());
        let binding =
            api::PortBinding {
                host_ip: host_ip.map(|it| it.to_string()),
                host_port: host.map(|PortRange { first, last }| {
                    if first == last { first.to_string() } else { format!("{first}-{last}") }
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
        test: non_empty(test.clone()),
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
    api::HostConfigLogConfig { typ: Some(driver.clone()), config: Some(hash_map(options)) }
}

fn device((host, container, permissions): &(String, String, String)) -> api::DeviceMapping {
    api::DeviceMapping {
        path_on_host: Some(host.clone()),
        path_in_container: Some(container.clone()),
        cgroup_permissions: Some(permissions.clone()),
    }
}

#[cfg(test)]
mod tests {
    use driftless_model::{
        AgentId, ContainerId, Format, InstanceId, Mount, MountSource, PartOf, Role, SpecHash,
    };
    use driftless_plan::RequiredSignature;

    use super::*;

    fn creation(container: Container, peers: BTreeMap<Peer, ContainerId>) -> Creation {
        Creation {
            app: "shop".into(),
            agent: AgentId("ours".to_owned()),
            format: Format::Kubernetes,
            project: "shop".to_owned(),
            instance: InstanceId { workload: "report-29384756".into(), slot: 1 },
            name: "shop-report-29384756-1-upload".to_owned(),
            container,
            image: None,
            made_image: None,
            signature: RequiredSignature::None,
            spec: SpecHash::default(),
            inherit: BTreeMap::new(),
            peers,
            part: None,
            manifests: Vec::new(),
            depends_on: Vec::new(),
        }
    }

    #[test]
    fn health_check_of_the_image_is_switched_off_in_pods() {
        let paths = MountPaths::default();
        let asked = |format: Format| {
            let creation = Creation { format, ..creation(Container::default(), BTreeMap::new()) };
            let call = create_call(&creation, DownwardValues::new(), &paths, MANY_NETWORKS).unwrap();
            call.body.healthcheck.and_then(|check| check.test)
        };
        assert_eq!(asked(Format::Kubernetes), Some(vec!["NONE".to_owned()]));
        assert_eq!(asked(Format::Compose), None, "Compose keeps that of the image");
    }

    #[test]
    fn files_of_the_image_are_not_copied_into_volumes_of_a_pod() {
        let mount = Mount { target: "/logs".to_owned(), source: MountSource::Anonymous, read_only: false };
        let container = Container { mounts: vec![mount], ..Container::default() };
        let mounted = |part: Option<PartOf>| {
            let inherit = BTreeMap::from([("/logs".to_owned(), "ab12".to_owned())]);
            let creation = Creation { inherit, part, ..creation(container.clone(), BTreeMap::new()) };
            let call = create_call(&creation, DownwardValues::new(), &MountPaths::default(), MANY_NETWORKS);
            let mounts = call.unwrap().body.host_config.and_then(|host| host.mounts).unwrap();
            let copies =
                |mount: api::Mount| mount.volume_options.and_then(|options| options.no_copy) != Some(true);
            mounts.into_iter().map(|mount| (mount.source.clone(), copies(mount))).collect::<Vec<_>>()
        };
        let part = PartOf {
            pod: ContainerId("cd34".to_owned()),
            name: "tail".to_owned(),
            role: Role::App,
            downward: DownwardValues::new(),
        };
        assert_eq!(mounted(Some(part)), [(Some("ab12".to_owned()), false)]);
        assert_eq!(mounted(None), [(Some("ab12".to_owned()), true)]);
    }

    #[test]
    fn network_with_the_name_of_a_mode_is_refused() {
        let call = |names: &[&str]| {
            let networks = names.iter().map(|name| ((*name).to_owned(), Box::default())).collect();
            let container =
                Container { network_mode: NetworkMode::Networks(networks), ..Container::default() };
            let creation = creation(container, BTreeMap::new());
            create_call(&creation, DownwardValues::new(), &MountPaths::default(), MANY_NETWORKS)
        };
        for names in [&["container:agent"][..], &["shop_default", "ns:x"]] {
            assert!(matches!(call(names), Err(InvalidCreation::NamedLikeMode(_))), "{names:?}");
        }
        let host = call(&["shop_default"]).unwrap().body.host_config.unwrap();
        assert_eq!(host.network_mode.as_deref(), Some("shop_default"));
    }

    #[test]
    fn workload_is_never_shared_with_by_its_bare_name() {
        let pod = || Peer::Workload("report".into());
        let volumes = VolumesFrom { peer: pod(), read_only: true };
        let containers = [
            Container { network_mode: NetworkMode::Of(pod()), ..Container::default() },
            Container { pid_mode: Some(Namespace::Of(pod())), ..Container::default() },
            Container { ipc_mode: Some(Namespace::Of(pod())), ..Container::default() },
            Container { volumes_from: vec![volumes], ..Container::default() },
        ];
        let paths = MountPaths::default();
        for container in containers {
            let call = |peers| {
                let creation = creation(container.clone(), peers);
                create_call(&creation, DownwardValues::new(), &paths, MANY_NETWORKS)
            };
            let refused = call(BTreeMap::new()).unwrap_err();
            assert_eq!(refused.to_string(), "no container of report was chosen to share with");
            let host = call([(pod(), ContainerId("ab12".to_owned()))].into()).unwrap().body.host_config;
            let host = format!("{host:?}");
            assert!(host.contains("ab12") && !host.contains("report"), "{host}");
        }
    }
}
