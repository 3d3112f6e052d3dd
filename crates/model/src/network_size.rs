//! The addresses that an application needs on the networks of a Swarm, and those that the networks have.

use std::collections::BTreeMap;

use crate::{Finding, NetworkMode, Stack, Subject, SwarmMode, SwarmService};

/// The addresses of an overlay network without `ipam`, if the Swarm was created without other sizes: those of a /24.
const DEFAULT: u64 = addresses(24);

/// Addresses of a subnet for services and tasks. Its own address, the broadcast and the gateway are none, and the load balancer of one
/// node, which each node has, takes another.
const fn addresses(prefix: u32) -> u64 {
    (1_u64 << (32 - prefix)).saturating_sub(4)
}

/// Warnings about networks of a Swarm that are too small: tasks without an address wait, and the Swarm does not say why.
pub(crate) fn check(stack: &Stack) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed: BTreeMap<&str, u64> = BTreeMap::new();
    for subject in stack.subjects() {
        let NetworkMode::Networks(attached) = &subject.workload.container.network_mode else { continue };
        let Some(service) = stack.swarm.get(subject.name) else { continue };
        let more = addresses_of(subject, service);
        for name in attached.keys() {
            let Some(network) = stack.networks.get(name).filter(|network| !network.external) else {
                continue;
            };
            let subnets = network.ipam.iter().filter_map(|(subnet, ..)| subnet.as_deref());
            let own: Vec<u64> = subnets.filter_map(size).collect();
            let (room, gives) = if own.is_empty() {
                (DEFAULT, "by default a Swarm gives it")
            } else {
                (own.iter().sum(), "its `ipam` gives it")
            };
            let count = needed.entry(name).or_default();
            let before = *count;
            *count += more;
            // One finding for each network, where it ends.
            if before <= room && *count > room {
                let message = format!(
                    "up to this one, services need {count} addresses of the network `{name}`, and {gives} {room}"
                );
                let help = "give the network a larger `ipam` subnet, or create the Swarm with `docker swarm init --default-addr-pool-mask-length 20`";
                let path = format!("workload {}", subject.name);
                findings.push(Finding::warning(subject.workload.origin.clone(), path, message).help(help));
            }
        }
    }
    findings
}

/// The address of the service, and those of its tasks, with the tasks that an update starts before it stops others. How many nodes a
/// global service has is not known here.
fn addresses_of(Subject { workload, .. }: Subject<'_>, service: &SwarmService) -> u64 {
    let tasks = match service.mode {
        SwarmMode::Global | SwarmMode::GlobalJob => 1,
        SwarmMode::Replicated | SwarmMode::ReplicatedJob => u64::from(workload.replicas),
    };
    let is_named_by_tasks = service.endpoint_mode.as_deref() == Some("dnsrr");
    let update = service.update.as_ref().filter(|update| update.order.as_deref() == Some("start-first"));
    let surge = update.map_or(0, |update| match update.parallelism.unwrap_or(1) {
        0 => tasks,
        several => several.min(tasks),
    });
    u64::from(!is_named_by_tasks) + tasks + surge
}

/// The addresses of a subnet. `None`: it is none of IPv4.
fn size(subnet: &str) -> Option<u64> {
    let (address, prefix) = subnet.split_once('/')?;
    address.parse::<std::net::Ipv4Addr>().ok()?;
    prefix.parse().ok().filter(|prefix| *prefix <= 32).map(addresses)
}
