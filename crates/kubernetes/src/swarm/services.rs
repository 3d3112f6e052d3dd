//! Services in a Swarm: names on the overlay network, which lead to the virtual address of a service, and ports of the routing
//! mesh. No proxy translates ports.

use driftless_model::{Finding, Network, SWARM_OWNER, label};

use super::place::{at, refuse};
use crate::{
    kinds::Owned,
    networks::AppNetworks,
    reader::{Kubernetes, Report, Value},
    service::{self, Service},
    sync_annotations::PROXY,
    workload::ReadWorkload,
};
use driftless_yaml::Dialect as _;

/// Fields of a Service that a Swarm does not have.
const REFUSED: &[(&str, &str)] = &[
    ("externalIPs", "remove it: a Swarm publishes a port on all nodes; use `type: LoadBalancer`"),
    (
        "publishNotReadyAddresses",
        "remove it: a Swarm sends traffic to tasks whose health check succeeds, and to all tasks without one",
    ),
    ("sessionAffinityConfig", "remove it, with `sessionAffinity`"),
];

/// Reports the fields of Services that a Swarm does not have.
pub(crate) fn refuse_fields(objects: &[(Owned, Value<'_>)]) {
    let services = || objects.iter().filter(|(kind, _)| *kind == Owned::Service).map(|(_, object)| object);
    for annotations in services().filter_map(|object| at(object, "metadata.annotations")) {
        if let Some(node) = annotations.node.get(PROXY) {
            let message = "has no effect: a Service of a Swarm has an address that stays";
            annotations.key(PROXY, node).warning(message);
        }
    }
    for spec in services().filter_map(|object| at(object, "spec")) {
        let text = |key: &str| at(&spec, key).and_then(|it| it.node.as_scalar());
        for (key, help) in REFUSED {
            if at(&spec, key).is_some_and(|value| !Kubernetes::is_absent(value.node)) {
                refuse(&spec, key, format!("Docker Swarm has no `{key}`"), help);
            }
        }
        if text("sessionAffinity") == Some("ClientIP") {
            refuse(&spec, "sessionAffinity", "Docker Swarm has no `ClientIP`", "remove it");
        }
        if text("type") == Some("ExternalName") {
            refuse(
                &spec,
                "type",
                "Docker Swarm has no `ExternalName`",
                "let the programs use the external name itself",
            );
        }
    }
}

/// Gives the names and ports of a Service to the workloads that it selects.
pub(crate) fn route(
    service: &Service<'_>,
    place: &Value<'_>,
    selected: Vec<&mut ReadWorkload>,
    networks: &AppNetworks,
) {
    let is_published = service.ports.iter().any(|port| !port.published.is_empty());
    if is_published && selected.len() > 1 {
        let names: Vec<String> = selected.iter().map(|found| format!("`{}`", found.name)).collect();
        place.error_help(
            format!(
                "a published port of a Swarm leads to one service, and this selects {}",
                names.join(" and ")
            ),
            "select one workload, or set `type: ClusterIP`",
        );
        return;
    }
    for found in selected {
        networks.name(found, &service.key);
        if service.is_headless() {
            networks.name_host(found, &service.key);
            found.swarm.endpoint_mode = Some("dnsrr".to_owned());
        }
        for port in &service.ports {
            let Some(target) = port.target_in(found) else { continue };
            let key = if port.value.node.get("targetPort").is_some() { "targetPort" } else { "port" };
            match port.published.first() {
                _ if target == port.port || service.is_headless() => {}
                None => refuse(
                    &port.value,
                    key,
                    format!(
                        "a name in a Swarm leads to port {target} of the container only by the number {target}, and not by {}",
                        port.port
                    ),
                    "make `port` and `targetPort` the same number",
                ),
                Some((_, host)) => {
                    if let Some(value) = at(&port.value, key) {
                        value.warning(format!(
                            "port {host} of the nodes leads to it, but inside of the application `{}` has port {target} and not {}",
                            service.key.name, port.port
                        ));
                    }
                }
            }
            for (address, host) in &port.published {
                service::publish(port, target, (*address, *host), found);
            }
        }
    }
}

/// Reports headless Services of workloads with a published port: the routing mesh needs the virtual address that they do not want.
pub(crate) fn check_headless(workloads: &[ReadWorkload], report: &Report) {
    for ReadWorkload { workload, swarm, published, name, .. } in workloads {
        let is_meshed = workload.container.ports.iter().any(|port| !swarm.host_ports.contains(port));
        if let (true, true, Some(port)) = (swarm.endpoint_mode.is_some(), is_meshed, published.last()) {
            let message = format!(
                "`{name}` has a headless Service, and the routing mesh publishes ports only with an address of the service"
            );
            let finding = Finding::error(port.location.clone(), &*port.path, message);
            report.say(
                finding.help(
                    "remove `clusterIP: None` of the other Service, or publish the port with `hostPort`",
                ),
            );
        }
    }
}

/// The overlay network of an application. The agent on another manager removes it, too.
pub(crate) fn network(key: String) -> Network {
    let labels = [(label::AGENT.to_owned(), SWARM_OWNER.to_owned())].into();
    Network { key, driver: Some("overlay".to_owned()), labels, ..Network::default() }
}
