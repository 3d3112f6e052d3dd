//! The ready endpoints of the proxies of Services.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use driftless_model::{
    ContainerId, Forwards, HOST_ENDPOINT, Instance, Observed, READY_PROXY_IMAGE, ReadyAddresses,
    ReadyEndpoints, Stack, Timestamp,
};

use crate::{
    action::{Action, ContainerRef},
    facts::pods,
    status::counts::is_ready,
    steps::{Plan, Step},
};

/// A running proxy that forwards to ready pods only, and the endpoints that it may forward to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyEndpoints {
    pub container: ContainerId,
    /// The start of its process, which has lost every earlier report.
    pub started: Timestamp,
    /// The words that start the program in the container.
    pub entrypoint: Vec<String>,
    pub endpoints: ReadyEndpoints,
}

/// The ready endpoints of each proxy of a stack. A pod that the plan stops at once is not ready any more, as in
/// Kubernetes, where a pod loses its traffic when its termination begins.
pub fn proxy_endpoints(stack: &Stack, observed: &Observed, plan: &Plan) -> Vec<ProxyEndpoints> {
    let is_proxy = |instance: &&Instance| instance.is_running() && instance.config.image == READY_PROXY_IMAGE;
    let proxies: Vec<&Instance> = observed.instances.values().filter(is_proxy).collect();
    if proxies.is_empty() {
        return Vec::new();
    }
    let whole = pods::whole(stack, observed);
    let stopped: BTreeSet<&ContainerId> = plan.steps.iter().filter_map(stopped_at_once).collect();
    let ready: Vec<&Instance> = whole
        .instances
        .values()
        .filter(|instance| is_ready(instance) && !stopped.contains(&instance.id))
        .collect();
    proxies.into_iter().filter_map(|proxy| of_proxy(proxy, &ready)).collect()
}

fn of_proxy(proxy: &Instance, ready: &[&Instance]) -> Option<ProxyEndpoints> {
    let command = proxy.config.command.as_ref()?;
    let arguments = command.iter().skip(1).map(String::as_str);
    let forwards = Forwards::parse(arguments).ok().filter(|forwards| forwards.ready_only)?;
    let names = forwards.ports.iter().flat_map(|port| &port.targets).map(|(name, _)| name);
    let endpoints: BTreeMap<String, ReadyAddresses> =
        names.filter_map(|name| Some((name.clone(), ready_addresses(name, ready)?))).collect();
    Some(ProxyEndpoints {
        container: proxy.id.clone(),
        started: proxy.started?,
        entrypoint: proxy.config.entrypoint.clone().unwrap_or_default(),
        endpoints: ReadyEndpoints(endpoints),
    })
}

/// The addresses of the ready pods that have this name. `None`: no pod on the host's network is ready.
fn ready_addresses(name: &str, ready: &[&Instance]) -> Option<ReadyAddresses> {
    if let Some(workload) = name.strip_prefix(HOST_ENDPOINT).and_then(|rest| rest.strip_prefix('.')) {
        let is_of = |instance: &&&Instance| instance.instance.workload.as_str() == workload;
        return ready.iter().find(is_of).map(|_| ReadyAddresses::All);
    }
    let endpoints = ready.iter().flat_map(|instance| instance.networks.values());
    let named = endpoints.filter(|endpoint| endpoint.aliases.iter().any(|alias| alias == name));
    let addresses: BTreeSet<Ipv4Addr> =
        named.filter_map(|endpoint| endpoint.ip.as_ref()?.parse().ok()).collect();
    Some(ReadyAddresses::These(addresses))
}

/// The container that a step stops, if no other step comes before it.
fn stopped_at_once(step: &Step) -> Option<&ContainerId> {
    match &step.action {
        Action::StopInstance { container: ContainerRef::Id(id, _), .. }
        | Action::RemoveInstance { container: ContainerRef::Id(id, _) }
            if step.after.is_empty() =>
        {
            Some(id)
        }
        _ => None,
    }
}
