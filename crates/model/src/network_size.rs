//! The addresses that an application needs on the networks of a Swarm, and those that the networks have.

use std::collections::BTreeMap;

use crate::{Finding, Network, NetworkMode, Stack, Subject, SwarmMode, SwarmService};

/// Addresses of a subnet for services and tasks. Its own address, the broadcast and the gateway are none, and the load balancer of one
/// node, which each node has, takes another.
const fn addresses(prefix: u32) -> u64 {
    (1_u64 << (32 - prefix)).saturating_sub(4)
}

/// The addresses of a subnet of IPv4 such as `10.0.1.0/24` for services and tasks. `None`: it is none.
pub fn addresses_of_subnet(subnet: &str) -> Option<u64> {
    let (address, prefix) = subnet.split_once('/')?;
    address.parse::<std::net::Ipv4Addr>().ok()?;
    prefix.parse().ok().filter(|prefix| *prefix <= 32).map(addresses)
}

/// Addresses of networks whose ranges the Swarm or the agent chooses, by name: what the services have at least, without Jobs and updates.
pub fn addresses_at_least(stack: &Stack) -> BTreeMap<&str, u64> {
    demand(stack, Spare { nodes: 1, passing: false })
}

/// Addresses of networks whose ranges the Swarm or the agent chooses, by name: what the services may have at the same time, with Jobs,
/// the tasks that updates start before they stop others, a task of each global service on each node, and a load balancer on each node.
pub fn addresses_at_most(stack: &Stack, nodes: u64) -> BTreeMap<&str, u64> {
    demand(stack, Spare { nodes: nodes.max(1), passing: true })
}

/// Warnings about `ipam` ranges that are too small: tasks without an address wait, and the Swarm does not say why.
pub(crate) fn check(stack: &Stack) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed: BTreeMap<&str, u64> = BTreeMap::new();
    for (subject, name, network, more) in uses(stack, Spare { nodes: 1, passing: true }) {
        let subnets = network.ipam.iter().filter_map(|(subnet, ..)| subnet.as_deref());
        let own: Vec<u64> = subnets.filter_map(addresses_of_subnet).collect();
        let room: u64 = own.iter().sum();
        let count = needed.entry(name).or_default();
        let before = *count;
        *count += more;
        // One finding for each network, where it ends.
        if !own.is_empty() && before <= room && *count > room {
            let message = format!(
                "up to this one, services need {count} addresses of the network `{name}`, and its `ipam` gives it {room}"
            );
            let help =
                "give the network a larger `ipam` subnet, or none: then it gets a range that is large enough";
            let path = format!("workload {}", subject.name);
            findings.push(Finding::warning(subject.workload.origin.clone(), path, message).help(help));
        }
    }
    findings
}

/// Addresses that are counted in addition to those of services and their replicas.
#[derive(Clone, Copy)]
struct Spare {
    /// The nodes that have a load balancer and a task of each global service.
    nodes: u64,
    /// Whether tasks count that come and go: those of Jobs, and those that an update starts before it stops others.
    passing: bool,
}

fn demand(stack: &Stack, spare: Spare) -> BTreeMap<&str, u64> {
    let mut needed: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, name, network, more) in uses(stack, spare) {
        let is_free = network.driver.as_deref() == Some("overlay")
            && network.ipam.is_empty()
            && network.ipam_driver.is_none()
            && !network.disable_ipv4;
        if is_free {
            *needed.entry(name).or_insert(spare.nodes - 1) += more;
        }
    }
    needed
}

/// The services on networks that are not external, with the addresses that each takes there.
fn uses(stack: &Stack, spare: Spare) -> impl Iterator<Item = (Subject<'_>, &str, &Network, u64)> {
    stack.subjects().flat_map(move |subject| {
        let attached = match &subject.workload.container.network_mode {
            NetworkMode::Networks(attached) => Some(attached),
            _ => None,
        };
        let more = stack.swarm.get(subject.name).map(|service| addresses_of(subject, service, spare));
        let names = attached.into_iter().flat_map(|attached| attached.keys());
        names.filter_map(move |name| {
            let network = stack.networks.get(name).filter(|network| !network.external)?;
            Some((subject, name.as_str(), network, more?))
        })
    })
}

/// The address of the service, and those of its tasks.
fn addresses_of(Subject { workload, .. }: Subject<'_>, service: &SwarmService, spare: Spare) -> u64 {
    let tasks = match service.mode {
        SwarmMode::ReplicatedJob | SwarmMode::GlobalJob if !spare.passing => 0,
        SwarmMode::Global | SwarmMode::GlobalJob => spare.nodes,
        SwarmMode::Replicated | SwarmMode::ReplicatedJob => u64::from(workload.replicas),
    };
    let is_named_by_tasks = service.endpoint_mode.as_deref() == Some("dnsrr");
    let update = service.update.as_ref().filter(|update| update.order.as_deref() == Some("start-first"));
    let surge = update.filter(|_| spare.passing).map_or(0, |update| match update.parallelism.unwrap_or(1) {
        0 => tasks,
        several => several.min(tasks),
    });
    u64::from(!is_named_by_tasks) + tasks + surge
}
