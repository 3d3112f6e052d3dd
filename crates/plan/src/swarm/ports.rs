//! Published ports that pass from one service to another: a Swarm refuses a service with a port that another one still has, so it
//! waits until that one has given the port up.

use std::collections::BTreeSet;

use driftless_model::{Stack, Subject, SwarmPort, WorkloadName, swarm_service_name};

use super::{ownership::workload_of, writers::Writers};
use crate::{
    draft::Draft,
    facts::waiting,
    wait::{Wait, WaitReason},
};

/// A service with a port that Git gives to another one.
struct PortHolder<'a> {
    /// Its name.
    service: &'a str,
    /// Its workload, if Git has that.
    giver: Option<Subject<'a>>,
    port: SwarmPort,
}

/// Whether no other service has a port that this one is to publish. Says which one has.
pub(super) fn are_free(draft: &mut Draft<'_>, writers: &Writers<'_>, subject: Subject<'_>) -> bool {
    let holders = holders(draft.facts.target.stack, writers, subject);
    for holder in &holders {
        let wait = wait_for(draft, writers, subject.name, holder);
        draft.wait(wait);
    }
    holders.is_empty()
}

/// Why a service does not get a port yet.
fn wait_for(draft: &Draft<'_>, writers: &Writers<'_>, name: &WorkloadName, holder: &PortHolder<'_>) -> Wait {
    let stack = draft.facts.target.stack;
    let PortHolder { service, giver, port } = holder;
    let still = format!("it still publishes the port {port}");
    let Some(giver) = *giver else {
        return match writers.removed(service) {
            Some(removed) => Wait::dependency(name, &workload_of(service, removed), &still),
            None => Wait::workload(
                name,
                WaitReason::Blocked,
                format!(
                    "needs the port {port}, which the service `{service}` has: remove that service, give it another port, \
                     or change the port in Git"
                ),
            ),
        };
    };
    let other = giver.name;
    let sentence = if wanted_ports(stack, giver).iter().any(|kept| kept.collides(port)) {
        format!("needs the port {port}, which {other} has in Git, too: change one of the two")
    } else if waits_for(draft, writers, other, name) {
        format!(
            "needs the port {port}, and {other}, which has it, waits for {name} itself: move one of the two to a free port in a \
             first commit"
        )
    } else {
        return Wait::dependency(name, other, &still);
    };
    Wait::workload(name, WaitReason::Blocked, sentence)
}

/// Whether a service waits for another one, itself or through others, for ports or for anything else.
fn waits_for(draft: &Draft<'_>, writers: &Writers<'_>, name: &WorkloadName, to: &WorkloadName) -> bool {
    let stack = draft.facts.target.stack;
    waiting::waits_for(stack, name, to, |subject| {
        let mut awaited = writers.awaited(draft, subject);
        let givers = holders(stack, writers, subject).into_iter().filter_map(|holder| holder.giver);
        awaited.extend(givers.map(|giver| giver.name));
        awaited
    })
}

/// The other services with ports that Git gives to this one.
fn holders<'a>(stack: &Stack, writers: &Writers<'a>, subject: Subject<'_>) -> Vec<PortHolder<'a>> {
    let wanted = wanted_ports(stack, subject);
    if wanted.is_empty() {
        return Vec::new();
    }
    let own = swarm_service_name(&stack.project, subject.name);
    let swarm = writers.swarm;
    let of_app = swarm
        .services
        .iter()
        .filter(|(name, _)| **name != own)
        .flat_map(|(name, service)| service.ports().into_iter().map(move |port| (name.as_str(), port)));
    let of_others = swarm.port_users.iter().map(|(port, name)| (name.as_str(), port.clone()));
    let taken = of_app.chain(of_others).filter(|(_, port)| wanted.iter().any(|it| it.collides(port)));
    taken
        .map(|(service, port)| PortHolder { service, giver: writers.workloads.get(service).copied(), port })
        .collect()
}

/// The ports that Git gives to a service.
fn wanted_ports(stack: &Stack, Subject { name, workload }: Subject<'_>) -> BTreeSet<SwarmPort> {
    let service = stack.swarm.get(name);
    let ports = workload.container.ports.iter();
    ports
        .filter_map(|port| {
            Some(SwarmPort {
                number: port.host?.first.into(),
                protocol: port.protocol.as_str().to_owned(),
                is_of_nodes: service.is_some_and(|service| service.host_ports.contains(port)),
            })
        })
        .collect()
}
