//! A proxy before the pods of a Service, where name resolution alone would not be right. It is a workload like any
//! other: one container of the helper's image, which answers to the Service's names and holds its ports of the host.
//!
//! It finds the pods by a name that each of them carries, and so has nothing to do with how many there are or which.
//! Not here: how it forwards.

use std::collections::BTreeSet;

use super::{
    Found,
    container::{NamedPorts, Pod},
    reader::Report,
    service::{self, Nets, Service},
};
use driftless_model::{
    Completion, Container, Forward, Forwards, HELPER_IMAGE, NetworkMode, Probes, Protocol, PullPolicy,
    RestartPolicy, WorkloadName,
};

/// By which a container finds the host that it runs on.
const HOST: &str = "_host";

/// Whether the names of the Service cannot just be those of its pods.
pub(super) fn is_needed(service: &Service<'_>, selected: &[&mut Found]) -> bool {
    if service.is_headless() {
        return false;
    }
    let has_several = selected.len() > 1 || selected.iter().any(|it| it.workload.replicas > 1);
    let is_elsewhere =
        |it: &Found| service.ports.iter().any(|port| port.target_in(it).is_some_and(|to| to != port.port));
    let is_published = service.ports.iter().any(|it| !it.published.is_empty());
    selected.iter().any(|it| is_elsewhere(it) || is_on_host(it))
        || (has_several && (is_published || service.affinity.is_some()))
}

/// The proxy, and for its pods the name by which it finds them.
pub(super) fn before(
    service: &Service<'_>,
    selected: &mut [&mut Found],
    nets: &Nets,
    report: &Report,
) -> Option<Found> {
    let ends: Vec<String> = selected
        .iter_mut()
        .map(|it| if is_on_host(it) { HOST.to_owned() } else { nets.name_endpoints(it, &service.key) })
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
        let target =
            |(it, end): (&&mut Found, &String)| Some((end.clone(), service::target(port, it, report)?));
        let targets: BTreeSet<_> = selected.iter().zip(&ends).filter_map(target).collect();
        let targets: Vec<_> = targets.into_iter().collect();
        ports.push(Forward { port: port.port, protocol: port.protocol, targets });
    }
    let forwards = Forwards { ports, affinity: service.affinity };
    let mut found = workload(service, &forwards);
    if ends.iter().any(|it| it == HOST) {
        found.workload.container.extra_hosts.push(format!("{HOST}:host-gateway"));
    }
    nets.name(&mut found, &service.key);
    for port in &service.ports {
        for published in &port.published {
            service::publish(port, port.port, *published, &mut found);
        }
    }
    Some(found)
}

/// The proxy for what has a name of its own outside. Ports without a number there are the Service's own, as for clients
/// that were answered with that name.
pub(super) fn to(service: &Service<'_>, name: &str, nets: &Nets) -> Option<Found> {
    let mut ports = Vec::new();
    for port in &service.ports {
        if port.protocol == Protocol::Sctp {
            port.value.error("SCTP cannot be forwarded");
            return None;
        }
        let targets = vec![(name.to_owned(), port.target_number())];
        ports.push(Forward { port: port.port, protocol: port.protocol, targets });
    }
    let mut found = workload(service, &Forwards { ports, affinity: None });
    nets.name(&mut found, &service.key);
    Some(found)
}

/// One that uses the host's network has no names of its own.
pub(super) fn is_on_host(found: &Found) -> bool {
    found.workload.container.network_mode == NetworkMode::Host
}

fn workload(service: &Service<'_>, forwards: &Forwards) -> Found {
    let command = std::iter::once("proxy".to_owned()).chain(forwards.command());
    let container = Container {
        image: HELPER_IMAGE.to_owned(),
        command: Some(command.collect()),
        restart: RestartPolicy::UnlessStopped,
        expose: forwards
            .ports
            .iter()
            .map(|it| (it.port, it.protocol))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        read_only: true,
        cap_drop: vec!["ALL".to_owned()],
        // Some engines let nobody else listen on ports below 1024.
        cap_add: vec!["NET_BIND_SERVICE".to_owned()],
        security_opt: vec!["no-new-privileges".to_owned()],
        ..Container::default()
    };
    let pod = Pod {
        container,
        parts: Vec::new(),
        probes: Probes::default(),
        pull: PullPolicy::IfNotPresent,
        pull_secrets: BTreeSet::new(),
        completion: Completion::Never,
        named: NamedPorts::new(),
        published: Vec::new(),
        secret_env: BTreeSet::new(),
        subdomain: None,
    };
    let labels = std::collections::BTreeMap::new();
    let mut found = Found::new(service.key.clone(), service.origin.clone(), "Service", labels, pod);
    // Names of Kubernetes have no underscore, so that nothing else is called so.
    found.name = WorkloadName(format!("{}_proxy", service.key.dotted()));
    found
}
