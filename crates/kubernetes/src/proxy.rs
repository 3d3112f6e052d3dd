//! The proxy of a Service for which name resolution is not enough. It is a container that has the Service's names and host
//! ports and stays, and a worker in its network that forwards, and that a newer worker takes over from.
//!
//! It finds the pods by a network alias that each of them has, so it does not depend on their number. The agent tells it
//! which of them are ready, and takes one out before it is stopped. `crates/proxy` forwards the traffic.

use std::collections::BTreeSet;

use super::{
    container::Pod,
    networks::AppNetworks,
    ports::NamedPorts,
    service::{self, Service},
    workload::ReadWorkload,
};
use driftless_model::{
    Completion, Container, Dependency, Forward, Forwards, HANDOVER_TIME, HOST_ENDPOINT, NetworkMode, Probes,
    Protocol, PullPolicy, Role, Strategy, Workload, WorkloadName, proxy_containers, worker_of,
};

/// Whether the Service needs a proxy.
pub(super) fn is_needed(service: &Service<'_>, selected: &[&mut ReadWorkload]) -> bool {
    if service.is_headless() {
        return false;
    }
    let has_several = has_several(selected);
    let is_elsewhere = |it: &ReadWorkload| {
        service.ports.iter().any(|port| port.target_in(it).is_some_and(|to| to != port.port))
    };
    let is_published = service.ports.iter().any(|it| !it.published.is_empty());
    let has_sctp = service.ports.iter().any(|port| port.protocol == Protocol::Sctp);
    let runs_several = has_several || (!is_published && selected.iter().any(|it| starts_first(it)));
    service.asks_for_proxy
        || selected.iter().any(|it| is_elsewhere(it) || is_on_host(it))
        || (has_several && (is_published || service.affinity.is_some()))
        || (runs_several && !has_sctp && is_ready_only(service, selected))
}

fn has_several(selected: &[&mut ReadWorkload]) -> bool {
    selected.len() > 1 || selected.iter().any(|it| it.workload.replicas > 1)
}

/// Whether a rollout runs the new pod and the old one at the same time. It does not if both would write to one volume or need one port of the
/// host.
fn starts_first(found: &ReadWorkload) -> bool {
    let workload = &found.workload;
    let is_exclusive = |container: &Container| container.ports.iter().any(|port| port.host.is_some());
    matches!(workload.strategy, Strategy::RollingUpdate { max_surge: 1.., .. })
        && !found.has_writable_mount()
        && !workload.containers().any(is_exclusive)
}

/// Whether pods of the Service can run without being ready, and get no traffic then.
fn is_ready_only(service: &Service<'_>, selected: &[&mut ReadWorkload]) -> bool {
    !service.publishes_not_ready && selected.iter().any(|it| is_ready_late(&it.workload))
}

/// Whether a pod that runs may not be ready: it has probes, or init containers.
fn is_ready_late(workload: &Workload) -> bool {
    let is_probed = |probes: &Probes| probes.readiness.is_some() || probes.startup.is_some();
    is_probed(&workload.probes)
        || workload.parts.iter().any(|part| part.role == Role::Init || is_probed(&part.probes))
}

/// The proxy, and the alias by which it finds the pods.
pub(super) fn before(
    service: &Service<'_>,
    selected: &mut [&mut ReadWorkload],
    networks: &AppNetworks,
) -> Option<[ReadWorkload; 2]> {
    let ready_only = !service.publishes_not_ready;
    let ends: Vec<String> = selected
        .iter_mut()
        .map(|found| match is_on_host(found) {
            // The agent reports the readiness of each workload under a name of its own.
            true if ready_only => format!("{HOST_ENDPOINT}.{}", found.name),
            true => HOST_ENDPOINT.to_owned(),
            false => networks.name_endpoints(found, &service.key),
        })
        .collect();
    let mut ports = Vec::new();
    for port in &service.ports {
        if port.protocol == Protocol::Sctp {
            port.value.error_help(
                "SCTP is forwarded to one instance only, and only on the port of the container",
                "set `targetPort` to the same number, and `replicas` to 1",
            );
            return None;
        }
        let target = |(it, end): (&&mut ReadWorkload, &String)| Some((end.clone(), port.target_in(it)?));
        let targets: BTreeSet<_> = selected.iter().zip(&ends).filter_map(target).collect();
        let targets: Vec<_> = targets.into_iter().collect();
        ports.push(Forward { port: port.port, protocol: port.protocol, targets });
    }
    let forwards = Forwards { ports, affinity: service.affinity, ready_only, ..Forwards::default() };
    let [mut found, worker] = workloads(service, forwards);
    let hosts: BTreeSet<&String> = ends.iter().filter(|end| end.starts_with(HOST_ENDPOINT)).collect();
    let extra_hosts = &mut found.workload.container.extra_hosts;
    extra_hosts.extend(hosts.into_iter().map(|name| format!("{name}:host-gateway")));
    networks.name(&mut found, &service.key);
    for port in &service.ports {
        for published in &port.published {
            // The proxy would take the port of the program, and forward to itself.
            let is_its_own = |it: &ReadWorkload| is_on_host(it) && port.target_in(it) == Some(published.1);
            if let Some(pod) = selected.iter().find(|it| is_its_own(it)) {
                let (host, name) = (published.1, &pod.name);
                port.value.warning(format!(
                    "port {host} of the host is that of `{name}` itself, which uses the network of the host: nothing forwards to it"
                ));
                continue;
            }
            service::publish(port, port.port, *published, &mut found);
        }
    }
    Some([found, worker])
}

/// The proxy of an `ExternalName` Service. A port without a target port is forwarded to the same port.
pub(super) fn to(service: &Service<'_>, name: &str, networks: &AppNetworks) -> Option<[ReadWorkload; 2]> {
    let mut ports = Vec::new();
    for port in &service.ports {
        if port.protocol == Protocol::Sctp {
            port.value.error("SCTP cannot be forwarded");
            return None;
        }
        let targets = vec![(name.to_owned(), port.target_number())];
        ports.push(Forward { port: port.port, protocol: port.protocol, targets });
    }
    let [mut found, worker] = workloads(service, Forwards { ports, ..Forwards::default() });
    networks.name(&mut found, &service.key);
    Some([found, worker])
}

/// One that uses the host's network has no names of its own.
pub(super) fn is_on_host(found: &ReadWorkload) -> bool {
    found.workload.container.network_mode == NetworkMode::Host
}

/// The container with the names and ports, and the worker in its network.
fn workloads(service: &Service<'_>, forwards: Forwards) -> [ReadWorkload; 2] {
    let expose: BTreeSet<_> = forwards.ports.iter().map(|it| (it.port, it.protocol)).collect();
    let forwards = Forwards { hand_over: true, ..forwards };
    // Names in Kubernetes have no underscore, so these names are unique.
    let name = format!("{}_proxy", service.key.dotted());
    let [owner, worker] = proxy_containers(&forwards, &WorkloadName(name.clone()));
    let owner = Container { expose: expose.into_iter().collect(), ..owner };
    let mut worker = workload(service, worker, worker_of(&name));
    worker.workload.min_ready = HANDOVER_TIME;
    worker.workload.after = vec![Dependency::of_worker(&name)];
    [workload(service, owner, name), worker]
}

fn workload(service: &Service<'_>, container: Container, name: String) -> ReadWorkload {
    let pod = Pod {
        container,
        parts: Vec::new(),
        probes: Probes::default(),
        pull: PullPolicy::IfNotPresent,
        mounted_pulls: std::collections::BTreeMap::new(),
        pull_secrets: BTreeSet::new(),
        completion: Completion::Never,
        named: NamedPorts::new(),
        published: Vec::new(),
        secret_env: BTreeSet::new(),
        hostname_place: None,
        subdomain: None,
        service_links: false,
        architecture: None,
        container_name: None,
    };
    let labels = std::collections::BTreeMap::new();
    let mut found = ReadWorkload::new(service.key.clone(), service.origin.clone(), "Service", labels, pod);
    found.name = WorkloadName(name);
    found
}
