//! Namespaces and volumes that instances share with other containers: which container it is, whether it is still the
//! right one, and in which order all of them stop and start.
//!
//! A container is bound to the container that it was created for. When that one is replaced, it is replaced too. When
//! that one restarts, its namespaces are new, so the containers that share them restart after it.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    Container, ContainerId, Instance, Peer, State, Subject, Timestamp, Workload, WorkloadName,
};

use crate::{
    cause::Cause,
    draft::Draft,
    facts::namespaces::{is_orphaned, plainly},
    wait::Wait,
};

/// A container to share with.
struct Host<'a> {
    id: &'a ContainerId,
    runs: bool,
}

/// Whether instances can be made now: the containers to share with, or `None` after saying what is missing.
pub(crate) fn choose(
    draft: &mut Draft<'_>,
    name: &WorkloadName,
    container: &Container,
) -> Option<BTreeMap<Peer, ContainerId>> {
    let must_run: BTreeSet<&Peer> = container.hosts().collect();
    let mut chosen = BTreeMap::new();
    for peer in container.peers() {
        let found = host(draft, peer, None).map(|it| (it.id.clone(), it.runs));
        match found {
            Some((id, runs)) if runs || !must_run.contains(peer) => drop(chosen.insert(peer.clone(), id)),
            Some(_) => {
                wait_for(draft, name, peer, "it does not run");
                return None;
            }
            None => {
                match peer {
                    Peer::Workload(_) => wait_for(draft, name, peer, "there is none to share with"),
                    Peer::Container(other) => {
                        draft.wait(Wait::external_missing("container", other));
                    }
                }
                return None;
            }
        }
    }
    Some(chosen)
}

fn wait_for(draft: &mut Draft<'_>, name: &WorkloadName, peer: &Peer, reason: &str) {
    let on = match peer {
        Peer::Workload(on) => on.clone(),
        Peer::Container(other) => container_of_others(draft, other),
    };
    draft.wait(Wait::dependency(name, &on, reason));
}

/// A container outside the application for people, with the application that it belongs to.
fn container_of_others(draft: &Draft<'_>, name: &str) -> WorkloadName {
    WorkloadName(match draft.facts.observed.claims.application_of(name) {
        Some(app) => format!("container {name} of application {app}"),
        None => format!("container {name}"),
    })
}

/// Why an instance has to be replaced: what it shares with is not the right one any more.
pub(crate) fn replaced(draft: &Draft<'_>, workload: &Workload, instance: &Instance) -> Option<Cause> {
    let is_other = |peer: &Peer, bound: &BTreeSet<ContainerId>| {
        host(draft, peer, Some(bound)).is_some_and(|it| !bound.contains(it.id))
    };
    let container = &workload.container;
    if is_orphaned(draft.facts, instance) {
        return container.hosts().next().map(|it| Cause::DependencyReplaced { on: plainly(it) });
    }
    let hosts = container.hosts().find(|it| is_other(it, &instance.hosts));
    let volumes = || container.volumes_from.iter().map(|it| &it.peer);
    let other = hosts.or_else(|| volumes().find(|it| is_other(it, &instance.volumes_of)))?;
    Some(Cause::DependencyReplaced { on: plainly(other) })
}

/// The container that was started after it, so that their shared namespace does not exist any more.
pub(crate) fn left_behind(draft: &Draft<'_>, instance: &Instance) -> Option<Cause> {
    let (began, now) = (instance.started?, draft.facts.now);
    instance.hosts.iter().find_map(|id| {
        let (on, since) = runs_since(draft, id)?;
        (since.in_order(now) > began.in_order(now)).then_some(Cause::DependencyRestarted { on })
    })
}

/// Why an instance cannot be started now, if it cannot: who it shares a namespace with does not run.
pub(crate) fn cannot_run(draft: &Draft<'_>, instance: &Instance) -> Option<WorkloadName> {
    if is_orphaned(draft.facts, instance) {
        return instance.config.hosts().next().map(|it| WorkloadName(plainly(it)));
    }
    let host = instance.hosts.iter().find(|id| !runs(draft, id))?;
    let observed = draft.facts.observed;
    if let Some(own) = observed.instances.get(host) {
        return Some(own.instance.workload.clone());
    }
    let (name, _) = observed.others.iter().find(|(_, other)| other.id == *host)?;
    Some(container_of_others(draft, name))
}

/// Starts what this draft has stopped, in the draft itself if those it shares with are up again by then.
pub(crate) fn start_again(draft: &mut Draft<'_>, instance: &Instance, stopped: usize) {
    let mut after = vec![stopped];
    for id in &instance.hosts {
        match draft.started.get(id) {
            Some(step) => after.push(*step),
            None if !runs(draft, id) => return,
            None => {}
        }
    }
    let Some(cause) = draft.plan.steps.get(stopped).map(|it| it.cause.clone()) else { return };
    let start = draft.start(instance, cause, after);
    draft.started.insert(instance.id.clone(), start);
}

/// The container to share with: the one that it is bound to as long as that is as Git says, or else the first that
/// is, once that can be counted on.
fn host<'a>(draft: &Draft<'a>, peer: &Peer, bound: Option<&BTreeSet<ContainerId>>) -> Option<Host<'a>> {
    let name = match peer {
        Peer::Workload(name) => name,
        Peer::Container(name) => return named(draft, name),
    };
    let workload = draft.facts.target.stack.workloads.get(name)?;
    let spec = draft.facts.spec(Subject { name, workload });
    let is_there = |it: &&&Instance| {
        !draft.removed.contains_key(&it.id) && !matches!(it.state, State::Removing | State::Dead)
    };
    let rank = |it: &&&Instance| {
        let is_wanted = it.spec == spec;
        let is_bound = bound.is_some_and(|all| all.contains(&it.id));
        let is_good =
            it.is_available(workload.min_ready, draft.facts.now) || draft.facts.is_completed(workload, it);
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
    let chosen = draft.facts.instances.members_of(name).iter().filter(is_there).min_by_key(rank)?;
    Some(Host { id: &chosen.id, runs: chosen.is_running() && !draft.ends(&chosen.id) })
}

/// One that is not of the stack, or is but was named all the same.
fn named<'a>(draft: &Draft<'a>, name: &str) -> Option<Host<'a>> {
    let is_it = |it: &&Instance| it.name == name || it.id.as_str() == name;
    if let Some(own) = draft.facts.observed.instances.values().find(is_it) {
        return Some(Host { id: &own.id, runs: own.is_running() && !draft.ends(&own.id) });
    }
    let other = draft.facts.observed.others.get(name)?;
    Some(Host { id: &other.id, runs: other.started.is_some() })
}

/// Since when the container of this id runs, undisturbed, and what it is called.
fn runs_since(draft: &Draft<'_>, id: &ContainerId) -> Option<(String, Timestamp)> {
    if let Some(own) = draft.facts.observed.instances.get(id) {
        let runs = own.is_running() && !draft.ends(id);
        return own.started.filter(|_| runs).map(|it| (own.instance.workload.to_string(), it));
    }
    let (name, other) = draft.facts.observed.others.iter().find(|(_, it)| it.id == *id)?;
    other.started.map(|it| (name.clone(), it))
}

/// Whether it runs and is left alone. Of a container that was not observed the engine will say.
fn runs(draft: &Draft<'_>, id: &ContainerId) -> bool {
    let observed = draft.facts.observed;
    let is_up = match observed.instances.get(id) {
        Some(own) => own.is_running() || own.state == State::Paused,
        None => observed.others.values().find(|it| it.id == *id).is_none_or(|it| it.started.is_some()),
    };
    is_up && !draft.ends(id)
}
