//! Instances that share a namespace with another container.

use std::collections::BTreeSet;

use driftless_model::{ContainerId, Instance, Observed, Peer, Stack, Subject, WorkloadName};

use crate::facts::Facts;

/// The workloads of a stack by name, but each after those it shares something with.
pub(crate) fn in_order(stack: &Stack) -> Vec<Subject<'_>> {
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for name in stack.workloads.keys() {
        visit(stack, name, &mut seen, &mut order);
    }
    order
}

fn visit<'a>(
    stack: &'a Stack,
    name: &WorkloadName,
    seen: &mut BTreeSet<&'a WorkloadName>,
    order: &mut Vec<Subject<'a>>,
) {
    let Some((name, workload)) = stack.workloads.get_key_value(name) else { return };
    if !seen.insert(name) {
        return;
    }
    for peer in workload.container.peers() {
        if let Peer::Workload(other) = peer {
            visit(stack, other, seen, order);
        }
    }
    order.push(Subject { name, workload });
}

/// Whether a container that it shares a namespace with is gone. It can never be started again.
pub(crate) fn is_orphaned(facts: &Facts<'_>, instance: &Instance) -> bool {
    instance.hosts.iter().any(|id| is_gone(facts.observed, id))
}

/// Whether the host does not have a container any more.
pub(crate) fn is_gone(observed: &Observed, id: &ContainerId) -> bool {
    !observed.instances.contains_key(id)
        && !observed.claims.name_holders().any(|(_, holder)| holder.id == *id)
}

/// Whether something that Git wants, and that runs, would go down with it.
pub(crate) fn is_needed(facts: &Facts<'_>, host: &Instance) -> bool {
    let is_wanted = |it: &Instance| facts.target.stack.workloads.contains_key(&it.instance.workload);
    guests(facts, host).any(|it| it.is_running() && is_wanted(it))
}

/// The agent's instances that share a namespace of this one.
pub(crate) fn guests<'a>(facts: &Facts<'a>, host: &Instance) -> impl Iterator<Item = &'a Instance> + use<'a> {
    let (id, agent) = (host.id.clone(), facts.target.agent);
    facts.observed.instances.values().filter(move |it| it.hosts.contains(&id) && it.agent == *agent)
}

pub(crate) fn plainly(peer: &Peer) -> String {
    match peer {
        Peer::Workload(name) => name.to_string(),
        Peer::Container(name) => name.clone(),
    }
}
