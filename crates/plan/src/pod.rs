//! Pods of several containers: what the next step is for the parts of one instance, from what of them is there, and what
//! the parts make of the instance.
//!
//! An instance stays one container to everybody else: the first of its pod, which holds the network and starts before
//! and ends after all others. Whether an initial container is done is read from itself: it stays until the pod goes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use driftless_model::{
    Completion, ContainerId, Downward, DownwardValues, Instance, Observed, Part, PartOf, Peer, Readiness,
    Record, Role, Stack, State, Timestamp, Workload, WorkloadName,
};

use super::{
    Action, Cause, ContainerRef, Creation, Target, Wait, census, gate, inside, repair,
    round::{Difference, Round, reference},
};

/// What was observed, with each instance as its parts make it: ready when all of them are.
pub(super) fn whole_of<'a>(target: &Target<'_>, observed: &'a Observed) -> Cow<'a, Observed> {
    let has_pods = |it: &Stack| it.workloads.values().any(|it| !it.parts.is_empty());
    let is_without = !has_pods(target.stack) && !target.fallback.is_some_and(has_pods);
    conclude(observed, is_without, |it| target.definition(it))
}

/// What was observed, with each instance as its parts make it, for whoever knows the wanted stack alone.
pub fn whole<'a>(stack: &Stack, observed: &'a Observed) -> Cow<'a, Observed> {
    let is_without = stack.workloads.values().all(|it| it.parts.is_empty());
    conclude(observed, is_without, |it| stack.workloads.get(&it.instance.workload))
}

fn conclude<'a, 's>(
    observed: &'a Observed,
    is_without: bool,
    definition: impl Fn(&Instance) -> Option<&'s Workload>,
) -> Cow<'a, Observed> {
    let mut whole = Cow::Borrowed(observed);
    if is_without && observed.parts.is_empty() {
        return whole;
    }
    for pod in observed.instances.values() {
        let found = observed.parts_of(&pod.id);
        let defined = definition(pod).filter(|it| !it.parts.is_empty() && it.spec() == pod.spec);
        if defined.is_none() && found.is_empty() {
            continue;
        }
        let judged = judge(pod, defined, &found);
        if judged != *pod {
            whole.to_mut().instances.insert(pod.id.clone(), judged);
        }
    }
    whole
}

fn judge(pod: &Instance, defined: Option<&Workload>, found: &[&Instance]) -> Instance {
    let mut judged = pod.clone();
    judged.restarts = found.iter().map(|it| it.restarts).sum();
    match &mut judged.state {
        State::Running { .. } if defined.is_some_and(|it| end(it, found).is_some()) => {
            judged.readiness = Readiness::NotReady { reason: "its work is over".to_owned() };
        }
        State::Running { since, .. } => judged.readiness = readiness(*since, defined, found),
        // We end the first container once the others are done, and their end is the pod's.
        State::Exited { code, .. } => {
            if let Some(end) = defined.and_then(|it| end(it, found)) {
                *code = end;
                judged.touched_by_hand = None;
            } else if *code == 0 {
                *code = KILLED;
            }
        }
        State::Created | State::Paused | State::Restarting { .. } | State::Removing | State::Dead => {}
    }
    judged
}

/// The code of a container that was taken away from under the others.
const KILLED: i64 = 137;

/// How a pod's work ended, if all of it did: well, or with the code of the first that failed.
fn end(workload: &Workload, found: &[&Instance]) -> Option<i64> {
    if workload.completion == Completion::Never {
        return None;
    }
    let named = |part: &Part| found.iter().find(|it| name_of(it) == Some(part.name.as_str()));
    let code = |part: &Part| match named(part)?.state {
        State::Exited { code, .. } => Some(code),
        _ => None,
    };
    let initial = workload.parts.iter().filter(|it| it.role == Role::Init).filter_map(code);
    let failed = initial.into_iter().find(|it| *it != 0);
    let apps = || workload.parts.iter().filter(|it| it.role == Role::App);
    let ends: Vec<i64> = apps().filter_map(code).collect();
    let failed = failed.or_else(|| ends.iter().copied().find(|it| *it != 0));
    failed.or_else(|| (ends.len() == apps().count()).then_some(0))
}

/// Ready when all are, since the last of them is.
fn readiness(since: Timestamp, defined: Option<&Workload>, found: &[&Instance]) -> Readiness {
    let of_definition =
        defined.map(|it| it.parts.iter().map(|it| (it.name.as_str(), it.role, it.completion)));
    let of_labels = || {
        let parts = found.iter().filter_map(|it| it.part.as_ref());
        parts.map(|it| (it.name.as_str(), it.role, Completion::Never)).collect()
    };
    let expected: Vec<(&str, Role, Completion)> = of_definition.map_or_else(of_labels, Iterator::collect);
    let named = |name: &str| found.iter().find(|it| name_of(it) == Some(name));
    let has_begun = expected.iter().any(|(name, role, _)| *role == Role::App && named(name).is_some());
    let mut ready = since;
    let mut starting = None;
    for (name, role, completion) in expected {
        if role == Role::Init && has_begun {
            continue;
        }
        let Some(part) = named(name) else {
            starting.get_or_insert_with(|| format!("{name} is not there yet"));
            continue;
        };
        match (&part.state, &part.readiness) {
            (State::Exited { code: 0, .. }, _) if completion == Completion::OnSuccess => {}
            (State::Running { .. }, _) if role == Role::Init => {
                starting.get_or_insert_with(|| format!("{name} has not ended yet"));
            }
            (State::Running { .. }, Readiness::Ready { since }) => ready = ready.max(*since),
            (State::Running { .. }, Readiness::Starting { reason }) => {
                starting.get_or_insert_with(|| format!("{name}: {reason}"));
            }
            (State::Created, _) => {
                starting.get_or_insert_with(|| format!("{name} is not started yet"));
            }
            (
                _,
                Readiness::NotReady { reason } | Readiness::Dead { reason } | Readiness::Starting { reason },
            ) => {
                return Readiness::NotReady { reason: format!("{name}: {reason}") };
            }
            (_, Readiness::Ready { .. }) => {
                return Readiness::NotReady { reason: format!("{name} does not run") };
            }
        }
    }
    starting.map_or(Readiness::Ready { since: ready }, |reason| Readiness::Starting { reason })
}

fn name_of(instance: &Instance) -> Option<&str> {
    instance.part.as_ref().map(|it| it.name.as_str())
}

/// Notes of parts what is noted of instances: who is ours, who is done, who keeps ending.
pub(super) fn genuine(target: &Target<'_>, observed: &Observed, part: &Instance) -> bool {
    let Some(of) = part.part.as_ref() else { return false };
    let pod = observed.instances.get(&of.pod);
    let wanted = pod.and_then(|it| target.definition(it)).filter(|it| it.spec() == part.spec);
    // Of an older pod nobody can check it any more; it goes with that.
    let Some(wanted) = wanted else { return true };
    let Some(defined) = wanted.part(&of.name) else { return false };
    census::compare(target, observed, &wanted.of_part(defined), part).is_none()
}

/// A part as a workload of its own, if its pod is there and defined.
pub(super) fn definition(target: &Target<'_>, observed: &Observed, part: &Instance) -> Option<Workload> {
    let of = part.part.as_ref()?;
    let workload = target.definition(observed.instances.get(&of.pod)?)?;
    workload.part(&of.name).map(|it| workload.of_part(it))
}

/// Removes parts whose pod is gone: what they shared went with it.
pub(super) fn expel(round: &mut Round<'_>) {
    let observed = round.observed;
    for part in observed.parts.values().filter(|it| it.agent == *round.target.agent) {
        let Some(of) = part.part.as_ref().filter(|it| !observed.instances.contains_key(&it.pod)) else {
            continue;
        };
        let whole = part.instance.workload.whole();
        let is_wanted = round.target.stack.workloads.contains_key(&whole);
        let cause = if round.is_settled() {
            round.heal(Difference {
                kind: "container",
                object: &part.name,
                workload: Some(&whole),
                field: "pod".into(),
                want: "in its pod".into(),
                found: format!("{} is gone", of.pod.short()),
                at: None,
            })
        } else if is_wanted {
            Some(Cause::DependencyReplaced { on: whole.to_string() })
        } else {
            Some(Cause::NotInGit)
        };
        if let Some(cause) = cause {
            round.remove(part, &cause, &[]);
        }
    }
}

/// Looks after the parts of one instance that stays for now.
pub(super) fn tend(round: &mut Round<'_>, name: &WorkloadName, workload: &Workload, pod: &Instance) {
    let is_leaving = round.stopped.contains_key(&pod.id) || round.removed.contains_key(&pod.id);
    if workload.parts.is_empty() || !pod.is_running() || is_leaving || round.spec(name, workload) != pod.spec
    {
        return;
    }
    let parts = sort(round, name, workload, pod);
    if is_over(round, workload, &parts) {
        round.stop(pod, &Cause::Over, vec![]);
        return;
    }
    // The pod has its place; that of its parts is in it.
    let room = std::mem::replace(&mut round.may_start, usize::MAX);
    let is_app = |it: &&Part| it.role == Role::App;
    let has_begun = workload.parts.iter().filter(is_app).any(|it| parts.contains_key(it.name.as_str()));
    let mut is_its_turn = true;
    for part in &workload.parts {
        let found = parts.get(part.name.as_str()).copied();
        match (part.role, found) {
            (Role::Init, _) if has_begun => {}
            (Role::Init, Some(found)) if is_done(round.record, round.observed, workload, part, found) => {}
            (role, Some(found)) => {
                look_after(round, (name, workload), pod, part, found);
                is_its_turn &= match role {
                    Role::Init => false,
                    Role::Sidecar => has_begun || has_started(part, found),
                    Role::App => true,
                };
            }
            (role, None) if is_its_turn => {
                make(round, (name, workload), pod, part, Occasion::of(has_begun));
                is_its_turn = role == Role::App || has_begun;
            }
            (_, None) => {}
        }
    }
    round.may_start = room;
}

/// The parts by name, one for each. What else claims to be a part of this pod is removed.
fn sort<'a>(
    round: &mut Round<'a>,
    name: &WorkloadName,
    workload: &Workload,
    pod: &Instance,
) -> BTreeMap<&'a str, &'a Instance> {
    let observed = round.observed;
    let mut claimants = parts_of(observed, &pod.id);
    claimants.retain(|it| it.agent == *round.target.agent && !round.removed.contains_key(&it.id));
    claimants.sort_by_key(|it| (!round.record.ledger.contains(&it.id), it.created, &it.id));
    let mut parts: BTreeMap<&str, &Instance> = BTreeMap::new();
    for claimant in claimants {
        let Some(own) = name_of(claimant) else { continue };
        if claimant.state == State::Dead {
            round.remove(claimant, &Cause::Exited, &[]);
            continue;
        }
        let is_known = round.record.ledger.contains(&claimant.id);
        let (want, found) = match workload.part(own) {
            None => ("no such container in the pod".to_owned(), "present".to_owned()),
            Some(_) if parts.contains_key(own) => {
                (format!("one container `{own}`"), "a second one".to_owned())
            }
            Some(part) if !is_known => {
                let one = workload.of_part(part);
                let different = census::compare(round.target, observed, &one, claimant);
                let Some((field, want, found)) = different else {
                    parts.insert(own, claimant);
                    continue;
                };
                (format!("{field}: {want}"), found)
            }
            Some(_) => {
                parts.insert(own, claimant);
                continue;
            }
        };
        let difference = Difference {
            kind: "container",
            object: &claimant.name,
            workload: Some(name),
            field: "pod".into(),
            want,
            found,
            at: Some(claimant.created),
        };
        if let Some(cause) = round.heal(difference) {
            round.remove(claimant, &cause, &[]);
        }
    }
    parts
}

fn parts_of<'a>(observed: &'a Observed, pod: &ContainerId) -> Vec<&'a Instance> {
    let is_of = |it: &&Instance| it.part.as_ref().is_some_and(|it| it.pod == *pod);
    observed.parts.values().filter(is_of).collect()
}

/// Whether a pod has done its work, or failed for good.
fn is_over(round: &Round<'_>, workload: &Workload, parts: &BTreeMap<&str, &Instance>) -> bool {
    if workload.completion == Completion::Never {
        return false;
    }
    let found = |part: &Part| parts.get(part.name.as_str()).copied();
    let has_failed = |part: &Part| {
        found(part).is_some_and(|it| repair::failure(round, &workload.of_part(part), it).is_some())
    };
    let is_done =
        |part: &Part| found(part).is_some_and(|it| is_done(round.record, round.observed, workload, part, it));
    let of_role = |role: Role| workload.parts.iter().filter(move |it| it.role == role);
    if of_role(Role::Init).any(has_failed) {
        return true;
    }
    let is_tried_again = !matches!(workload.container.restart, driftless_model::RestartPolicy::No);
    let mut apps = of_role(Role::App);
    if is_tried_again {
        of_role(Role::App).any(has_failed) || apps.all(is_done)
    } else {
        apps.all(|it| is_done(it) || has_failed(it))
    }
}

/// Whether it ended well, by itself, and that is what it is for.
fn is_done(record: &Record, observed: &Observed, workload: &Workload, part: &Part, found: &Instance) -> bool {
    repair::is_completed(record, observed.engine_started, &workload.of_part(part), found)
}

/// Whether what comes after a sidecar may start.
fn has_started(part: &Part, found: &Instance) -> bool {
    let is_awaited = part.probes.startup.is_some() && matches!(found.readiness, Readiness::Starting { .. });
    found.is_running() && !is_awaited
}

/// Sees that a part runs, under its name and within its limits.
fn look_after(
    round: &mut Round<'_>,
    (name, workload): (&WorkloadName, &Workload),
    pod: &Instance,
    part: &Part,
    found: &Instance,
) {
    let one = workload.of_part(part);
    let mut spoilt = repair::beyond_repair(round, name, &one, found);
    if was_told_otherwise(pod, found) {
        spoilt = spoilt.or_else(|| Some(Cause::DependencyRestarted { on: pod.name.clone() }));
    }
    if part.role != Role::Init {
        spoilt = spoilt.or_else(|| inside::revert(round, name, found));
    }
    if let Some(cause) = spoilt.filter(|_| round.observed.images.contains_key(&round.image(&one))) {
        let removed = round.remove(found, &cause, &[]);
        make(round, (name, workload), pod, part, Occasion::Instead { cause, removed });
        return;
    }
    inside::remark(round, found);
    let wanted = part_name(round, name, workload, found.instance.slot, part);
    repair::rename(round, name, wanted, found);
    repair::limit(round, name, &one, found);
    repair::revive(round, name, &one, found, vec![]);
}

/// Whether it was told an address that its pod does not have any more, such as after a restart of the engine. What runs
/// with that is replaced, as in Kubernetes where the pod's sandbox changes.
fn was_told_otherwise(pod: &Instance, found: &Instance) -> bool {
    let Some(of) = &found.part else { return false };
    let endpoint = pod.networks.values().find(|it| it.ip.is_some());
    of.told.iter().any(|(told, then)| {
        let now = match told {
            Downward::PodIp => endpoint.and_then(|it| it.ip.as_ref()),
            Downward::HostIp => endpoint.and_then(|it| it.gateway.as_ref()),
            Downward::PodName | Downward::NodeName => None,
        };
        now.is_some_and(|it| it != then)
    })
}

/// Why a part is made.
enum Occasion {
    /// Its pod is still being made.
    Beginning,
    /// It was there.
    Lost,
    /// Another is removed for it.
    Instead { cause: Cause, removed: usize },
}

impl Occasion {
    fn of(has_begun: bool) -> Self {
        if has_begun { Self::Lost } else { Self::Beginning }
    }
}

/// The name of a part's container in Docker.
fn part_name(round: &Round<'_>, name: &WorkloadName, workload: &Workload, slot: u32, part: &Part) -> String {
    format!("{}-{}", round.container_name(round.stack_of(name, workload), name, slot), part.name)
}

/// Creates and starts a part.
fn make(
    round: &mut Round<'_>,
    (name, workload): (&WorkloadName, &Workload),
    pod: &Instance,
    part: &Part,
    occasion: Occasion,
) {
    let slot = pod.instance.slot;
    let object = part_name(round, name, workload, slot, part);
    if round.is_leaving(&object) {
        return;
    }
    let one = workload.of_part(part);
    gate::obtain(round, name, &one);
    let image = round.image(&one);
    let mut after: Vec<usize> = round.pulls.get(&image).copied().into_iter().collect();
    if after.is_empty() && !round.observed.images.contains_key(&image) {
        return;
    }
    let Some(steps) = round.claim_name(&object) else { return };
    after.extend(steps);
    let mut inherit = BTreeMap::new();
    for (target, place) in &part.volumes {
        let Some(volume) = pod.empty_volumes.get(place) else {
            let reason = format!("its volume at {place} is not there");
            round.wait(Wait::Dependency { workload: name.clone(), on: name.clone(), reason });
            return;
        };
        inherit.insert(target.clone(), volume.clone());
    }
    let cause = match occasion {
        Occasion::Instead { cause, removed } => {
            after.push(removed);
            Some(cause)
        }
        Occasion::Lost if round.is_settled() => round.heal(Difference {
            kind: "container",
            object: &object,
            workload: Some(name),
            field: "state".into(),
            want: "running".into(),
            found: "missing".into(),
            at: None,
        }),
        // A pod that is still being made is no drift.
        Occasion::Beginning | Occasion::Lost => Some(Cause::Missing),
    };
    let Some(cause) = cause else { return };
    let stack = round.stack_of(name, workload);
    let mut instance = pod.instance.clone();
    instance.workload = name.part(&part.name);
    let creation = Creation {
        app: stack.app.clone(),
        agent: round.target.agent.clone(),
        format: stack.format,
        project: stack.project.clone(),
        instance: instance.clone(),
        name: object.clone(),
        container: part.container.clone(),
        image: (image != part.container.image).then_some(image),
        spec: pod.spec.clone(),
        inherit,
        peers: BTreeMap::from([(Peer::Workload(name.clone()), pod.id.clone())]),
        part: Some(PartOf {
            pod: pod.id.clone(),
            name: part.name.clone(),
            role: part.role,
            told: DownwardValues::new(),
        }),
        manifests: stack.manifests.clone(),
        depends_on: Vec::new(),
    };
    let container = ContainerRef::Name(object);
    let created = round.push(Action::CreateInstance(Box::new(creation)), cause.clone(), after);
    let start = Action::StartInstance { container: container.clone() };
    let started = round.push(start, cause.clone(), vec![created]);
    if !part.container.host.post_start.is_empty() {
        round.push(Action::RunHooks { container, instance }, cause, vec![started]);
    }
}

/// Stops what of a pod's parts is up: first the others, then the sidecars, the last that came first. Returns the steps.
pub(super) fn stop(round: &mut Round<'_>, pod: &Instance, cause: &Cause, after: &[usize]) -> Vec<usize> {
    let is_up = |it: &&Instance| match it.state {
        State::Running { .. } | State::Paused | State::Restarting { .. } => true,
        State::Created | State::Exited { .. } | State::Removing | State::Dead => false,
    };
    let mut parts = parts_of(round.observed, &pod.id);
    parts.retain(|it| is_up(it) && it.agent == *round.target.agent);
    parts.sort_by_key(|it| std::cmp::Reverse((it.created, it.id.clone())));
    let is_sidecar = |it: &Instance| it.part.as_ref().is_some_and(|it| it.role == Role::Sidecar);
    let (sidecars, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|it| is_sidecar(it));
    let mut steps = Vec::new();
    for part in others {
        steps.push(end_one(round, part, cause, after.to_vec()));
    }
    for part in sidecars {
        let mut after = after.to_vec();
        after.extend(&steps);
        steps.push(end_one(round, part, cause, after));
    }
    steps
}

fn end_one(round: &mut Round<'_>, part: &Instance, cause: &Cause, mut after: Vec<usize>) -> usize {
    if part.state == State::Paused && !round.stopped.contains_key(&part.id) {
        let container = reference(part);
        after = vec![round.push(Action::UnpauseInstance { container }, cause.clone(), after)];
    }
    round.stop(part, cause, after)
}

/// Removes all parts of a pod, in the order in which they stop. Returns the steps.
pub(super) fn remove(round: &mut Round<'_>, pod: &Instance, cause: &Cause, after: &[usize]) -> Vec<usize> {
    let mut parts = parts_of(round.observed, &pod.id);
    parts.retain(|it| it.agent == *round.target.agent);
    if parts.is_empty() {
        return Vec::new();
    }
    stop(round, pod, cause, after);
    let known: BTreeSet<ContainerId> = round.removed.keys().cloned().collect();
    let left = parts.into_iter().filter(|it| !known.contains(&it.id));
    left.map(|it| round.remove(it, cause, after)).collect()
}
