//! The ready endpoints of proxies, and the endpoints that lose their traffic before they are stopped.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

use driftless_model::{
    Container, ContainerId, DEFAULT_STOP_GRACE, Forward, Forwards, HOST_ENDPOINT, Instance, Observed,
    Readiness, ReadyAddresses, ReadyEndpoints, Stack, State, Timestamp, WorkloadName, is_proxy_image,
};

use crate::{
    action::{Action, ContainerRef},
    facts::pods,
    status::counts::is_ready,
    steps::{Plan, Step},
};

/// The longest drain of an endpoint that is not ready: what answers no probe may answer its clients as little.
const NOT_READY: Duration = Duration::from_secs(1);

/// A running proxy that forwards to ready pods only, and the endpoints that it may forward to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyEndpoints {
    pub workload: WorkloadName,
    pub container: ContainerId,
    /// The start of its process, which has lost every earlier report.
    pub started: Timestamp,
    /// The words that start the program in the container.
    pub entrypoint: Vec<String>,
    pub endpoints: ReadyEndpoints,
    /// An instance behind it runs, and no probe has said yet whether it is ready.
    pub is_undecided: bool,
    /// The containers behind it that the plan stops.
    pub loses: BTreeSet<ContainerId>,
}

/// The ready endpoints of each proxy of a stack. A pod that is being stopped is not ready any more, as in Kubernetes, where
/// a pod loses its traffic when its termination begins: `stopping` has its container ([`stopped_at_once`] before a plan is
/// executed).
pub fn proxy_endpoints(
    stack: &Stack,
    observed: &Observed,
    plan: &Plan,
    stopping: &BTreeSet<ContainerId>,
) -> Vec<ProxyEndpoints> {
    let proxies = proxies(observed);
    if proxies.is_empty() {
        return Vec::new();
    }
    let whole = pods::whole(stack, observed);
    let stopping: BTreeSet<ContainerId> = stopping.iter().map(|id| pod_of(observed, id)).collect();
    let ready: Vec<&Instance> = whole
        .instances
        .values()
        .filter(|instance| is_ready(instance) && !stopping.contains(&instance.id))
        .collect();
    let is_starting = |instance: &&Instance| {
        instance.is_running() && matches!(instance.readiness, Readiness::Starting { .. })
    };
    let starting: Vec<&Instance> = whole.instances.values().filter(is_starting).collect();
    let of_proxy = |(proxy, forwards): (&Instance, Forwards)| {
        let mut endpoints = of_proxy(proxy, &forwards, &ready, &starting)?;
        let is_behind = |id: &ContainerId| {
            let pod = whole.instances.get(&pod_of(observed, id));
            pod.is_some_and(|pod| targets(&forwards).any(|name| has_address(name, &[pod])))
        };
        let lost = plan.steps.iter().filter_map(stopped).map(|(id, _)| id);
        endpoints.loses = lost.filter(|id| is_behind(id)).cloned().collect();
        Some(endpoints)
    };
    proxies.into_iter().filter_map(of_proxy).collect()
}

/// The names that a proxy forwards to.
fn targets(forwards: &Forwards) -> impl Iterator<Item = &String> {
    forwards.ports.iter().flat_map(|port| &port.targets).map(|(name, _)| name)
}

fn of_proxy(
    proxy: &Instance,
    forwards: &Forwards,
    ready: &[&Instance],
    starting: &[&Instance],
) -> Option<ProxyEndpoints> {
    let is_undecided = targets(forwards).any(|name| has_address(name, starting));
    let endpoints: BTreeMap<String, ReadyAddresses> =
        targets(forwards).filter_map(|name| Some((name.clone(), ready_addresses(name, ready)?))).collect();
    Some(ProxyEndpoints {
        workload: proxy.instance.workload.clone(),
        container: proxy.id.clone(),
        started: proxy.started?,
        entrypoint: proxy.config.entrypoint.clone().unwrap_or_default(),
        endpoints: ReadyEndpoints(endpoints),
        is_undecided,
        loses: BTreeSet::new(),
    })
}

/// The containers that a plan stops although no probe has said since `began` whether their pods, which were started before,
/// are ready.
pub fn undecided_stops(
    stack: &Stack,
    observed: &Observed,
    plan: &Plan,
    began: Timestamp,
) -> BTreeSet<ContainerId> {
    let mut stops = plan.steps.iter().filter_map(stopped).map(|(id, _)| id).peekable();
    if stops.peek().is_none() {
        return BTreeSet::new();
    }
    let whole = pods::whole(stack, observed);
    let is_undecided = |id: &&ContainerId| {
        whole.instances.get(&pod_of(observed, id)).is_some_and(|pod| match (&pod.state, &pod.readiness) {
            (State::Running { since, .. }, Readiness::Starting { .. }) => *since < began,
            _ => false,
        })
    };
    stops.filter(is_undecided).cloned().collect()
}

/// Whether one of these instances has this name.
fn has_address(name: &str, instances: &[&Instance]) -> bool {
    match ready_addresses(name, instances) {
        Some(ReadyAddresses::These(addresses)) => !addresses.is_empty(),
        Some(ReadyAddresses::All) => true,
        None => false,
    }
}

/// The pod of a container, or the container itself.
pub(crate) fn pod_of(observed: &Observed, id: &ContainerId) -> ContainerId {
    let part = observed.parts.get(id).and_then(|part| part.part.as_ref());
    part.map_or_else(|| id.clone(), |part| part.pod.clone())
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

/// One proxy that takes an endpoint out before its container is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    pub proxy: ContainerId,
    /// The words that start the program in the proxy's container.
    pub entrypoint: Vec<String>,
    /// The addresses of the endpoint.
    pub addresses: BTreeSet<Ipv4Addr>,
    /// Connections have so long to end: the grace period of the container.
    pub grace: Duration,
}

/// The endpoints to take out of their proxies before a plan stops their containers, by the container that is stopped.
///
/// An endpoint that is not ready any more may have kept connections of before, which get a second. An endpoint that no other
/// ready one of its port can replace, also of another workload, is not drained: its clients would be refused for longer than the
/// stop takes.
pub fn drains(stack: &Stack, observed: &Observed, plan: &Plan) -> BTreeMap<ContainerId, Vec<Drain>> {
    let mut drains: BTreeMap<ContainerId, Vec<Drain>> = BTreeMap::new();
    let proxies = proxies(observed);
    if proxies.is_empty() || !plan.steps.iter().any(|step| stopped(step).is_some()) {
        return drains;
    }
    let whole = pods::whole(stack, observed);
    let stopped_pods: BTreeSet<ContainerId> =
        plan.steps.iter().filter_map(stopped).map(|(id, _)| pod_of(observed, id)).collect();
    let ready: Vec<&Instance> = whole.instances.values().filter(|instance| is_ready(instance)).collect();
    for (proxy, forwards) in &proxies {
        for (container, grace) in plan.steps.iter().filter_map(stopped) {
            let pod = pod_of(observed, container);
            let leaving = whole.instances.get(&pod).filter(|instance| instance.is_running());
            let Some(leaving) = leaving else { continue };
            let staying: Vec<&Instance> =
                ready.iter().filter(|instance| !stopped_pods.contains(&instance.id)).copied().collect();
            let is_replaced =
                |port: &&Forward| port.targets.iter().any(|(name, _)| has_address(name, &staying));
            let addresses: BTreeSet<Ipv4Addr> = forwards
                .ports
                .iter()
                .filter(is_replaced)
                .flat_map(|port| &port.targets)
                .filter_map(|(name, _)| match ready_addresses(name, &[leaving])? {
                    ReadyAddresses::These(addresses) => Some(addresses),
                    ReadyAddresses::All => None,
                })
                .flatten()
                .collect();
            if addresses.is_empty() {
                continue;
            }
            let entrypoint = proxy.config.entrypoint.clone().unwrap_or_default();
            let grace = grace.or(leaving.config.stop_grace_period).unwrap_or(DEFAULT_STOP_GRACE);
            let grace = if is_ready(leaving) { grace } else { grace.min(NOT_READY) };
            let drain = Drain { proxy: proxy.id.clone(), entrypoint, addresses, grace };
            drains.entry(container.clone()).or_default().push(drain);
        }
    }
    drains
}

/// Whether a stack has a proxy that forwards to ready endpoints only.
pub fn has_proxies(stack: &Stack) -> bool {
    stack.subjects().any(|subject| forwards_of(&subject.workload.container).is_some())
}

/// The forwards of a container, if it is such a proxy.
pub(crate) fn forwards_of(container: &Container) -> Option<Forwards> {
    let command = container.command.as_ref().filter(|_| is_proxy_image(&container.image))?;
    let forwards = Forwards::parse(command.iter().skip(1).map(String::as_str)).ok()?;
    Some(forwards).filter(|forwards| forwards.ready_only)
}

/// The running proxies that forward to ready endpoints only.
fn proxies(observed: &Observed) -> Vec<(&Instance, Forwards)> {
    let is_proxy = |instance: &&Instance| instance.is_running() && is_proxy_image(&instance.config.image);
    let forwards = |instance: &Instance| {
        let command = instance.config.command.as_ref()?;
        let forwards = Forwards::parse(command.iter().skip(1).map(String::as_str)).ok()?;
        Some(forwards).filter(|forwards| forwards.ready_only)
    };
    let all = observed.instances.values().filter(is_proxy);
    all.filter_map(|instance| Some((instance, forwards(instance)?))).collect()
}

/// The container that a step stops, and its grace period.
fn stopped(step: &Step) -> Option<(&ContainerId, Option<Duration>)> {
    match &step.action {
        Action::StopInstance { container: ContainerRef::Id(id, _), grace } => Some((id, *grace)),
        _ => None,
    }
}

/// The objects of the steps that stop one of these containers.
pub fn stops_of(plan: &Plan, containers: &BTreeSet<ContainerId>) -> BTreeSet<String> {
    let is_one = |step: &&Step| stopped(step).is_some_and(|(id, _)| containers.contains(id));
    plan.steps.iter().filter(is_one).map(|step| step.action.object().to_owned()).collect()
}

/// The containers that a plan stops before anything else.
pub fn stopped_at_once(plan: &Plan) -> BTreeSet<ContainerId> {
    plan.steps.iter().filter_map(stopped_first).cloned().collect()
}

/// The container that a step stops, if no other step comes before it.
fn stopped_first(step: &Step) -> Option<&ContainerId> {
    match &step.action {
        Action::StopInstance { container: ContainerRef::Id(id, _), .. }
        | Action::RemoveInstance { container: ContainerRef::Id(id, _), .. }
            if step.after.is_empty() =>
        {
            Some(id)
        }
        _ => None,
    }
}
