//! What instances share with others: a network, processes, memory or volumes. Which container that is, whether it
//! still is the right one, and in which order all of them stop and start.
//!
//! A container is bound to the very container it was made for. When that one is replaced, it is replaced as well;
//! when that one is started anew, its namespaces are others, so who shares them is started anew after it.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    Container, ContainerId, Instance, Peer, Stack, State, Timestamp, Workload, WorkloadName,
};

use super::{Cause, Wait, census::Census, repair, round::Round};

/// A container to share with.
struct Host<'a> {
    id: &'a ContainerId,
    runs: bool,
}

/// The workloads of a stack by name, but each after those it shares something with.
pub(super) fn in_order(stack: &Stack) -> Vec<(&WorkloadName, &Workload)> {
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
    order: &mut Vec<(&'a WorkloadName, &'a Workload)>,
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
    order.push((name, workload));
}

/// Whether instances can be made now: the containers to share with, or `None` after saying what is missing.
pub(super) fn choose(
    round: &mut Round<'_>,
    name: &WorkloadName,
    container: &Container,
    census: &Census<'_>,
) -> Option<BTreeMap<Peer, ContainerId>> {
    let must_run: BTreeSet<&Peer> = container.hosts().collect();
    let mut chosen = BTreeMap::new();
    for peer in container.peers() {
        let found = host(round, census, peer, None).map(|it| (it.id.clone(), it.runs));
        match found {
            Some((id, runs)) if runs || !must_run.contains(peer) => drop(chosen.insert(peer.clone(), id)),
            Some(_) => {
                wait_for(round, name, peer, "it does not run");
                return None;
            }
            None => {
                match peer {
                    Peer::Workload(_) => wait_for(round, name, peer, "there is none to share with"),
                    Peer::Container(other) => {
                        round.wait(Wait::ExternalMissing { kind: "container".into(), name: other.clone() });
                    }
                }
                return None;
            }
        }
    }
    Some(chosen)
}

fn wait_for(round: &mut Round<'_>, name: &WorkloadName, peer: &Peer, reason: &str) {
    let on = match peer {
        Peer::Workload(on) => on.clone(),
        Peer::Container(other) => WorkloadName(format!("container {other}")),
    };
    round.wait(Wait::Dependency { workload: name.clone(), on, reason: reason.to_owned() });
}

/// Why an instance has to be replaced: what it shares with is not the right one any more.
pub(super) fn replaced(
    round: &Round<'_>,
    workload: &Workload,
    instance: &Instance,
    census: &Census<'_>,
) -> Option<Cause> {
    let is_other = |peer: &Peer, bound: &BTreeSet<ContainerId>| {
        host(round, census, peer, Some(bound)).is_some_and(|it| !bound.contains(it.id))
    };
    let container = &workload.container;
    if is_orphaned(round, instance) {
        return container.hosts().next().map(|it| Cause::DependencyReplaced { on: plainly(it) });
    }
    let hosts = container.hosts().find(|it| is_other(it, &instance.hosts));
    let volumes = || container.volumes_from.iter().map(|it| &it.peer);
    let other = hosts.or_else(|| volumes().find(|it| is_other(it, &instance.volumes_of)))?;
    Some(Cause::DependencyReplaced { on: plainly(other) })
}

/// Who was started after it, and so has left it behind in a namespace that is no more.
pub(super) fn left_behind(round: &Round<'_>, instance: &Instance) -> Option<Cause> {
    let began = instance.started?;
    instance.hosts.iter().find_map(|id| {
        let (on, since) = runs_since(round, id)?;
        (since > began).then_some(Cause::DependencyRestarted { on })
    })
}

/// Why an instance cannot be started now, if it cannot: who it shares a namespace with does not run.
pub(super) fn cannot_run(round: &Round<'_>, instance: &Instance) -> Option<WorkloadName> {
    if is_orphaned(round, instance) {
        return instance.config.hosts().next().map(|it| WorkloadName(plainly(it)));
    }
    let host = instance.hosts.iter().find(|id| !runs(round, id))?;
    round.observed.instances.get(host).map(|it| it.instance.workload.clone())
}

/// Whether a container that it shares a namespace with is gone. It can never be started again.
pub(super) fn is_orphaned(round: &Round<'_>, instance: &Instance) -> bool {
    let observed = round.observed;
    let exists = |id: &ContainerId| {
        observed.instances.contains_key(id) || observed.claims.names.values().any(|it| it == id)
    };
    !instance.hosts.iter().all(exists)
}

/// Whether something that Git wants, and that runs, would go down with it.
pub(super) fn is_needed(round: &Round<'_>, host: &Instance) -> bool {
    let is_wanted = |it: &Instance| round.target.stack.workloads.contains_key(&it.instance.workload);
    guests(round, host).any(|it| it.is_running() && is_wanted(it))
}

/// Those of ours that share a namespace of this one.
pub(super) fn guests<'a>(round: &Round<'a>, host: &Instance) -> impl Iterator<Item = &'a Instance> + use<'a> {
    let (id, agent) = (host.id.clone(), round.target.agent);
    round.observed.instances.values().filter(move |it| it.hosts.contains(&id) && it.agent == *agent)
}

/// Starts what this round has stopped, in the round itself if those it shares with are up again by then.
pub(super) fn start_again(round: &mut Round<'_>, instance: &Instance, stopped: usize) {
    let mut after = vec![stopped];
    for id in &instance.hosts {
        match round.started.get(id) {
            Some(step) => after.push(*step),
            None if !runs(round, id) => return,
            None => {}
        }
    }
    let Some(cause) = round.plan.steps.get(stopped).map(|it| it.cause.clone()) else { return };
    let start = round.start(instance, cause, after);
    round.started.insert(instance.id.clone(), start);
}

/// The container to share with: the one that it is bound to as long as that is as Git says, or else the first that
/// is, once that can be counted on.
fn host<'a>(
    round: &Round<'a>,
    census: &Census<'a>,
    peer: &Peer,
    bound: Option<&BTreeSet<ContainerId>>,
) -> Option<Host<'a>> {
    let name = match peer {
        Peer::Workload(name) => name,
        Peer::Container(name) => return named(round, name),
    };
    let workload = round.target.stack.workloads.get(name)?;
    let spec = round.spec(name, workload);
    let is_there = |it: &&&Instance| {
        !round.removed.contains_key(&it.id) && !matches!(it.state, State::Removing | State::Dead)
    };
    let rank = |it: &&&Instance| {
        let is_wanted = it.spec == spec;
        let is_bound = bound.is_some_and(|all| all.contains(&it.id));
        let is_good = it.is_available(workload.min_ready, round.now)
            || repair::is_completed(round.record, round.observed.engine_started, workload, it);
        let rank = match (is_wanted, is_bound) {
            (true, true) => 0,
            (true, false) if is_good => 1,
            (false, true) => 2,
            (true, false) if it.is_running() => 3,
            (_, false) if it.is_running() => 4,
            (_, false) => 5,
        };
        (rank, it.instance.slot)
    };
    let chosen = census.members_of(name).iter().filter(is_there).min_by_key(rank)?;
    Some(Host { id: &chosen.id, runs: chosen.is_running() && !is_leaving(round, &chosen.id) })
}

/// One that is not of the stack, or is but was named all the same.
fn named<'a>(round: &Round<'a>, name: &str) -> Option<Host<'a>> {
    let is_it = |it: &&Instance| it.name == name || it.id.as_str() == name;
    if let Some(own) = round.observed.instances.values().find(is_it) {
        return Some(Host { id: &own.id, runs: own.is_running() && !is_leaving(round, &own.id) });
    }
    let other = round.observed.others.get(name)?;
    Some(Host { id: &other.id, runs: other.started.is_some() })
}

/// Since when the container of this id runs, undisturbed, and what it is called.
fn runs_since(round: &Round<'_>, id: &ContainerId) -> Option<(String, Timestamp)> {
    if let Some(own) = round.observed.instances.get(id) {
        let runs = own.is_running() && !is_leaving(round, id);
        return own.started.filter(|_| runs).map(|it| (own.instance.workload.to_string(), it));
    }
    let (name, other) = round.observed.others.iter().find(|(_, it)| it.id == *id)?;
    other.started.map(|it| (name.clone(), it))
}

/// Whether it runs and is left alone. Of a container of somebody else the engine will say.
fn runs(round: &Round<'_>, id: &ContainerId) -> bool {
    let is_up = |it: &Instance| it.is_running() || it.state == State::Paused;
    round.observed.instances.get(id).is_none_or(is_up) && !is_leaving(round, id)
}

/// Whether this round stops or removes it.
fn is_leaving(round: &Round<'_>, id: &ContainerId) -> bool {
    round.removed.contains_key(id) || round.stopped.contains_key(id)
}

fn plainly(peer: &Peer) -> String {
    match peer {
        Peer::Workload(name) => name.to_string(),
        Peer::Container(name) => name.clone(),
    }
}
