//! Rollouts: how instances of a new spec replace the old ones, one safe round at a time.
//!
//! Each round scales the new instances up and the old ones down, as far as the limits allow. A rollout has no state of
//! its own: this is the arithmetic of Kubernetes' deployment controller, computed from the observed state each time.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    Completion, ContainerId, Instance, Observed, Peer, Readiness, State, Subject, Timestamp, Update,
    Workload, WorkloadName,
};

use crate::{
    cause::Cause,
    decide::{
        files, fs_drift,
        group::Instances,
        namespaces, pod_parts,
        preconditions::{self, Preconditions},
        proportion, repair, replace, stateful_order,
    },
    draft::{Draft, heal::Difference},
    facts::{
        Facts,
        limits::{Limits, limits},
        namespaces::{is_needed, is_orphaned},
        standing::{Outdated, STABLE_AFTER, Standing, deleted_network, is_awaited, is_spent, is_up},
        update_failures::{self, UpdateFailures, progress_deadline},
        workers,
    },
    wait::{Wait, WaitReason},
};

/// Reports why the rollout of a workload does not go on.
pub(super) fn wait_paused(draft: &mut Draft<'_>, subject: Subject<'_>) {
    let wait = match draft.facts.failed_commit() {
        Some(failed) => Wait::commit_failed(subject.name, failed),
        None => Wait::paused(subject.name),
    };
    draft.wait(wait);
}

/// The time that the engine may take to remove a container.
const REMOVAL: Duration = Duration::from_secs(1);

/// One round for one workload.
pub(super) fn roll(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) {
    allow_starts(draft, subject, members);
    roll_allowed(draft, subject, members);
}

/// One round for one workload, with no more starts than are allowed.
pub(super) fn roll_allowed(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) {
    let Subject { name, workload } = subject;
    let wanted = workload.replicas as usize;
    // Those that make way for another workload go in this round. Their successors come in the next one, with their volumes.
    let (leaving, members): (Vec<&Instance>, Vec<&Instance>) =
        members.iter().partition(|member| draft.removed.contains_key(&member.id));
    let mut instances = group_instances(draft, subject, &members, 0);
    let failures = update_failures::of(draft.facts, subject, instances.current.iter().copied());
    report_failures(draft, subject, &failures);
    instances.passed = failures.passed;
    let is_paused = draft.facts.is_rollout_paused(subject);
    let live = instances.outdated.iter().map(|(it, _)| *it).filter(|it| !is_spent(draft.facts, it));
    let limits = limits(draft.facts, subject, live);
    let is_stopped = is_paused || failures.stops_update;
    let sizes = proportion::sizes(draft, subject, limits, &instances, is_stopped);
    let begun = draft.plan.steps.len();
    let spec = draft.facts.spec(subject);
    // Of the same specification: it only follows something that was replaced, such as the container whose network it shares.
    let is_update = |(it, cause): &(&Instance, Cause)| it.spec != spec || matches!(cause, Cause::Restarted);
    if is_stopped && instances.outdated.iter().any(is_update) {
        if is_paused {
            wait_paused(draft, subject);
        }
        if let Some(sizes) = &sizes {
            proportion::shrink_paused(draft, subject, limits, &instances, sizes);
        }
        repair_instances(draft, subject, &instances);
        if let Some(sizes) = sizes {
            proportion::grow_paused(draft, subject, limits, &instances, &sizes);
            proportion::note(draft, subject, sizes, &instances, begun);
        }
        let outdated: Vec<&Instance> = instances.outdated.iter().map(|(it, _)| *it).collect();
        let staying: Vec<&Instance> =
            outdated.iter().copied().filter(|it| !draft.removed.contains_key(&it.id)).collect();
        keep(draft, &staying);
        let all = || instances.current.iter().chain(&outdated);
        if all().count() < wanted && draft.plan.steps.len() == begun {
            let available = all().filter(|it| it.is_available(workload.min_ready, draft.facts.now)).count();
            let available = u32::try_from(available).unwrap_or(u32::MAX);
            let why = "missing instances are created when the workload is not paused any more";
            draft.wait(Wait::readiness(name, available, workload.replicas, why));
        }
        return;
    }
    instances.missing_before = sizes.as_ref().map_or(0, |it| it.missing_before(draft.facts, &instances));
    if sizes.is_some() {
        replace::remove_surplus(draft, subject, limits, &instances);
    }
    repair_instances(draft, subject, &instances);
    let missing = wanted.saturating_sub(instances.current.len());
    let kept = replace_within_limits(draft, subject, limits, &instances, missing, leaving.is_empty());
    if let Some(sizes) = sizes {
        proportion::note(draft, subject, sizes, &instances, begun);
    }
    keep(draft, &kept);
    let outdated: Vec<&Instance> = instances.outdated.iter().map(|(it, _)| *it).collect();
    let tolerated = if failures.is_failure { 0 } else { failures.failed.len() };
    remark(draft, subject, &instances.current, &outdated, tolerated);
}

/// Creates what is missing and removes what is outdated, if the preconditions are met. Returns the outdated that stay for now.
fn replace_within_limits<'a>(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    limits: Limits,
    instances: &Instances<'a>,
    missing: usize,
    may_create: bool,
) -> Vec<&'a Instance> {
    let preconditions = if !may_create {
        Preconditions::Unmet
    } else if missing + instances.missing_before > 0 && !is_only_left(draft.facts, subject, instances) {
        preconditions::check(draft, subject)
    } else {
        Preconditions::Met(vec![])
    };
    match preconditions {
        Preconditions::Unmet => instances.outdated.iter().map(|(it, _)| *it).collect(),
        Preconditions::MakeRoom(after) => replace::replace(draft, subject, limits, instances, 0, after),
        Preconditions::Met(after) => replace::replace(draft, subject, limits, instances, missing, after),
    }
}

/// Whether a workload lacks nothing but instances that somebody removed and that are left: they are reported, and nothing has to be
/// ready for them.
fn is_only_left(facts: &Facts<'_>, subject: Subject<'_>, instances: &Instances<'_>) -> bool {
    let is_left = facts.is_at_rest(subject.name) && !facts.heals();
    is_left && instances.outdated.is_empty() && instances.lost.is_empty() && instances.missing_before == 0
}

/// One round for a workload that has to wait, with instances of several versions: each one stays as it is, and only what is missing
/// of their number is created by this definition.
pub(super) fn complete(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) {
    allow_starts(draft, subject, members);
    let workload = subject.workload;
    let spec = draft.facts.spec(subject);
    let (leaving, members): (Vec<&Instance>, Vec<&Instance>) =
        members.iter().partition(|member| draft.removed.contains_key(&member.id));
    let mut instances = group_instances(draft, subject, &members, 0);
    let is_kept = |(it, _): &(&Instance, Cause)| it.spec != spec && !is_spent(draft.facts, it);
    let (others, outdated): (Vec<_>, Vec<_>) = instances.outdated.into_iter().partition(is_kept);
    instances.outdated = outdated;
    instances.untouched.extend(others.into_iter().map(|(it, _)| it));
    let limits = limits(draft.facts, subject, instances.untouched.iter().copied());
    repair_instances(draft, subject, &instances);
    keep(draft, &instances.untouched);
    let present = instances.current.len() + instances.untouched.len();
    let missing = (workload.replicas as usize).saturating_sub(present);
    // Versions that do not run side by side are not mixed any further.
    let is_apart = limits.recreate && instances.untouched.iter().any(|it| is_up(it));
    let kept =
        replace_within_limits(draft, subject, limits, &instances, missing, leaving.is_empty() && !is_apart);
    keep(draft, &kept);
}

/// Reports the instances that failed in the update of a workload: that they are tolerated, or that the update has failed.
pub(super) fn report_failures(draft: &mut Draft<'_>, subject: Subject<'_>, failures: &UpdateFailures<'_>) {
    let Some(first) = failures.failed.first() else { return };
    let Subject { name, workload } = subject;
    let Facts { target, observed, record, now, .. } = *draft.facts;
    let why = update_failures::why(record, observed, target.policy, workload, first, now).unwrap_or_default();
    let example = format!("{}: {why}", first.instance);
    let (failed, rule) = (failures.failed.len(), workload.failure);
    if failures.is_failure {
        draft.wait(Wait::update_failed(name, failed, workload.replicas, &rule, &example));
    } else {
        draft.wait(Wait::failures_tolerated(name, failed, workload.replicas, &rule, &example));
        draft.plan.tolerated.extend(failures.failed.iter().map(|instance| instance.instance.clone()));
    }
    if let Some(at) = failures.look_again {
        draft.look_again(at);
    }
}

/// Sets how many that do not run may be started before there are more than the limits allow: what has ended and
/// what took its place must not run side by side where there is room for one.
pub(super) fn allow_starts(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) {
    let workload = subject.workload;
    let spec = draft.facts.spec(subject);
    let leaving = members.iter().copied().filter(|it| it.spec != spec && !is_spent(draft.facts, it));
    let limits = limits(draft.facts, subject, leaving);
    let has_old = members.iter().filter(|it| is_up(it)).any(|it| it.spec != spec);
    let ceiling = if limits.recreate && has_old { 0 } else { workload.replicas as usize + limits.surge };
    draft.starts_left = ceiling.saturating_sub(members.iter().filter(|it| is_up(it)).count());
}

/// Sorts the members of a workload. Of those that are as wanted it removes as many as are too many, but leaves at least
/// `floor` members available, of any version.
pub(super) fn group_instances<'a>(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    members: &[&'a Instance],
    floor: usize,
) -> Instances<'a> {
    let workload = subject.workload;
    let facts = draft.facts;
    let spec = facts.spec(subject);
    let mut instances = Instances::default();
    let superseded = superseded(draft, workload, members);
    for member in members {
        let standing = Standing::of(facts.record, facts.observed, workload, &spec, member, facts.now);
        match standing {
            // The engine reports the removal. In case that event is lost, look again.
            Standing::Leaving => draft.look_again(facts.now.after(REMOVAL)),
            Standing::Dead => instances.cleared.push(draft.remove(member, &Cause::Exited, &[])),
            Standing::Outdated(Outdated::DeletionRequested) => instances.lost.push((member, Cause::Deleted)),
            Standing::Outdated(Outdated::RestartRequested) => {
                instances.outdated.push((member, Cause::Restarted));
            }
            Standing::Outdated(Outdated::Spec) => match outdated(draft, subject, member) {
                Some(cause) => instances.outdated.push((member, cause)),
                None => instances.untouched.push(member),
            },
            Standing::Completed | Standing::Failed { .. } | Standing::CrashLooping | Standing::Current => {
                // An instance that must be replaced is not current, so it does not count as surplus.
                match replacement_cause(draft, subject, member) {
                    Some(cause) if member.is_running() || !cause.is_final => {
                        instances.outdated.push((member, cause.cause));
                    }
                    Some(cause) => instances.lost.push((member, cause.cause)),
                    None if superseded.contains(&member.id) => {
                        let reason = "a newer worker has taken over its connections".to_owned();
                        instances.outdated.push((member, Cause::Finished { reason }));
                    }
                    None => {
                        // Its health changes then, and no event of the engine says so.
                        if let (Standing::CrashLooping, State::Running { since, .. }) =
                            (standing, &member.state)
                        {
                            draft.look_again(since.after(STABLE_AFTER));
                        }
                        fs_drift::remark(draft, member);
                        instances.current.push(member);
                    }
                }
            }
        }
    }
    let others =
        instances.outdated.iter().map(|(instance, _)| *instance).chain(instances.untouched.iter().copied());
    let available = others.filter(|it| it.is_available(workload.min_ready, facts.now)).count();
    scale_down(draft, subject, &mut instances.current, floor.saturating_sub(available));
    instances
}

/// The workers of a proxy that another one has taken over from. One that is wanted again, because Git went back meanwhile, carries
/// no connection any more: it makes room for a new one, which takes them over.
fn superseded(draft: &mut Draft<'_>, workload: &Workload, members: &[&Instance]) -> BTreeSet<ContainerId> {
    let now = draft.facts.now;
    let mut superseded = BTreeSet::new();
    for member in members {
        match workers::successor(member, members.iter().copied(), now) {
            Some(successor) if successor.is_available(workload.min_ready, now) => {
                superseded.insert(member.id.clone());
            }
            // Until then it is not certain that it can.
            Some(_) => draft.look_again(now.after(workload.min_ready)),
            None => {}
        }
    }
    superseded
}

/// Repairs the members that are as wanted and stay, and brings them changed files.
pub(super) fn repair_instances(draft: &mut Draft<'_>, subject: Subject<'_>, instances: &Instances<'_>) {
    for instance in &instances.current {
        if !draft.removed.contains_key(&instance.id) {
            repair::repair_instance(draft, subject, instance);
            pod_parts::run_parts(draft, subject, instance);
        }
    }
    files::deliver(draft, subject.workload, instances);
}

/// Why an instance of the desired spec must be replaced.
struct ReplacementCause {
    cause: Cause,
    /// A stopped instance with this cause can never serve again.
    is_final: bool,
}

/// Why an instance of the desired spec must be replaced, if it must. One that has done its work needs no network, namespace or limit any
/// more, and a successor would do the work twice. That is asked for only if a file has changed, with which it cannot be started any more.
fn replacement_cause(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    instance: &Instance,
) -> Option<ReplacementCause> {
    let Subject { name, workload } = subject;
    if draft.facts.is_completed(workload, instance) {
        let has_lost_network = deleted_network(draft.facts.observed, instance).is_some();
        if (has_lost_network || is_orphaned(draft.facts, instance))
            && let Some(cause) = files::ended_with_others(draft, workload, instance, true)
        {
            return Some(ReplacementCause { cause, is_final: true });
        }
        fs_drift::report(draft, name, instance);
        return None;
    }
    let with = |is_final| move |cause| ReplacementCause { cause, is_final };
    namespaces::replaced(draft, workload, instance)
        .map(with(true))
        .or_else(|| dependency_replaced(draft, workload, instance).map(with(false)))
        .or_else(|| repair::beyond_repair(draft, subject, instance).map(with(true)))
        .or_else(|| fs_drift::revert(draft, name, instance).map(with(false)))
}

/// Why an instance of another spec must be replaced. `None` leaves it for now.
fn outdated(draft: &mut Draft<'_>, subject: Subject<'_>, instance: &Instance) -> Option<Cause> {
    let Subject { name, workload } = subject;
    // An instance that the manifest holds at its older version is no drift.
    let is_left = workload.update != Update::Rolling;
    if !draft.facts.is_settled() || is_left || draft.facts.is_paused(subject) {
        return Some(Cause::SpecChanged);
    }
    // All was well before: it is not a rollout that brought it here.
    draft.heal(
        Difference::container(
            &instance.name,
            "spec",
            draft.facts.spec(subject).to_string(),
            instance.spec.to_string(),
        )
        .of(name)
        .since(instance.created),
    )
}

/// Whether it asks to follow a dependency that was replaced after it was started.
fn dependency_replaced(draft: &Draft<'_>, workload: &Workload, instance: &Instance) -> Option<Cause> {
    let started = instance.started.filter(|_| instance.is_running())?;
    // Containers that share a namespace or volume follow by their own rule.
    let is_shared =
        |on: &WorkloadName| workload.container.peers().any(|it| *it == Peer::Workload(on.clone()));
    let is_adopted = |it: &Instance| draft.facts.record.adopted.containers.contains_key(&it.id);
    // Docker Compose made both, in an order that is past. Adoption keeps them as they are.
    let was_made_before = |on: &WorkloadName| {
        is_adopted(instance) && draft.facts.instances.members_of(on).iter().any(|it| is_adopted(it))
    };
    let followed = workload.after.iter().filter(|it| it.restart && !is_shared(&it.workload));
    let followed = followed.filter(|it| !was_made_before(&it.workload));
    followed.filter(|it| !preconditions::is_unmet(draft, it)).find_map(|dependency| {
        // An additional instance replaces no other.
        let oldest: Option<Timestamp> =
            draft.facts.instances.members_of(&dependency.workload).iter().map(|it| it.created).min();
        let on = || dependency.workload.to_string();
        let now = draft.facts.now;
        oldest
            .is_some_and(|it| it.in_order(now) > started.in_order(now))
            .then(|| Cause::DependencyReplaced { on: on() })
    })
}

/// Removes the instances that are too many: the least useful first, then the highest slots. An instance that shares
/// something with one that can stay is kept before others. At least `floor` available ones stay, as far as there are so many.
fn scale_down(draft: &mut Draft<'_>, subject: Subject<'_>, current: &mut Vec<&Instance>, floor: usize) {
    let Subject { name, workload } = subject;
    let wanted = workload.replicas as usize;
    let available = current.iter().filter(|it| it.is_available(workload.min_ready, draft.facts.now)).count();
    let kept = wanted.max(floor.min(available));
    current.sort_by_key(|instance| {
        let is_available = instance.is_available(workload.min_ready, draft.facts.now);
        (!is_available, !instance.is_running(), !is_needed(draft.facts, instance), instance.instance.slot)
    });
    let surplus = current.split_off(kept.min(current.len()));
    for instance in surplus.into_iter().rev() {
        if let Some(wait) = stateful_order::stays(draft, instance) {
            draft.wait(wait);
            continue;
        }
        let cause = if draft.facts.is_at_rest(name) {
            draft.heal(
                Difference::container(&instance.name, "replicas", format!("{wanted}"), "one too many")
                    .of(name)
                    .since(instance.created),
            )
        } else {
            Some(Cause::ScaledDown)
        };
        if let Some(cause) = cause {
            draft.remove(instance, &cause, &[]);
        }
    }
    current.sort_by_key(|it| it.instance.slot);
}

/// Leaves what is outdated as it is, and only sees that it does run: it serves until its successors do.
pub(super) fn keep(draft: &mut Draft<'_>, members: &[&Instance]) {
    for member in members {
        if member.state != State::Created
            && !draft.removed.contains_key(&member.id)
            && let Some(workload) = draft.facts.target.definition(member)
        {
            let subject = Subject { name: &member.instance.workload, workload };
            repair::revive(draft, subject, member, vec![]);
            pod_parts::run_parts(draft, subject, member);
        }
    }
}

/// Says what a rollout is waiting for.
pub(super) fn remark(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    current: &[&Instance],
    outdated: &[&Instance],
    tolerated: usize,
) {
    let Subject { name, workload } = subject;
    let (facts, now) = (draft.facts, draft.facts.now);
    let done = |it: &&&Instance| it.is_available(workload.min_ready, now) || facts.is_completed(workload, it);
    let good = u32::try_from(current.iter().filter(done).count()).unwrap_or(u32::MAX);
    if good >= workload.replicas && outdated.is_empty() {
        if current.iter().any(|instance| has_unanswered_probe(draft.facts.observed, instance)) {
            let why = "a changed probe has no result yet";
            draft.wait(Wait::readiness(name, good, workload.replicas, why));
        }
        if is_unfinished(facts, subject, current) {
            draft.wait(Wait::completion(name));
            watch_deadline(draft, subject);
        }
        return;
    }
    let is_held = |it: &Wait| it.is(WaitReason::Held) && it.concerns(name);
    let kept = outdated.iter().filter(|it| it.is_available(workload.min_ready, now)).count();
    if draft.plan.waits.iter().any(is_held) && good as usize + kept >= workload.replicas as usize {
        return;
    }
    let settling = current.iter().filter_map(|it| match (&it.state, &it.readiness) {
        (State::Running { .. }, Readiness::Ready { since }) if !since.is_of_a_clock_ahead(now) => {
            Some(since.after(workload.min_ready))
        }
        _ => None,
    });
    let is_tolerated = outdated.is_empty() && good as usize + tolerated >= workload.replicas as usize;
    if let Some(until) = settling.filter(|it| *it > now).min() {
        if !is_tolerated {
            draft.wait(Wait::min_ready(name, until));
        }
        draft.look_again(until);
    }
    if is_tolerated {
        return;
    }
    let reason = current.iter().find_map(|it| match (&it.state, &it.readiness) {
        (State::Running { .. }, Readiness::Starting { reason } | Readiness::NotReady { reason }) => {
            Some(reason.clone())
        }
        (State::Running { .. }, Readiness::Ready { .. } | Readiness::Dead { .. })
        | (
            State::Created
            | State::Paused
            | State::Restarting { .. }
            | State::Exited { .. }
            | State::Removing
            | State::Dead,
            _,
        ) => None,
    });
    let is_waiting = good < workload.replicas || !outdated.is_empty();
    if is_waiting {
        let why = reason.unwrap_or_default();
        draft.wait(if outdated.is_empty() {
            Wait::readiness(name, good, workload.replicas, &why)
        } else {
            Wait::update(name, good, workload.replicas, outdated.len(), kept, &why)
        });
    }
    let open: Vec<&Instance> = current.iter().filter(|it| !done(it)).copied().collect();
    if outdated.is_empty() && good as usize + left_down(draft, subject, &open) >= workload.replicas as usize {
        draft.plan.left_down.insert(name.clone());
    }
    watch_deadline(draft, subject);
}

/// Whether work that another workload waits for still runs, of a stack that was not reached yet. A later run, as after a restart of the
/// engine, holds up nothing.
fn is_unfinished(facts: &Facts<'_>, subject: Subject<'_>, current: &[&Instance]) -> bool {
    let Subject { name, workload } = subject;
    workload.completion == Completion::OnSuccess
        && workload.job_or_template().is_none()
        && facts.is_desired(subject)
        && !facts.is_at_rest(name)
        && current.iter().any(|instance| instance.is_running())
        && is_awaited(facts.target.stack, name)
}

/// Says that an incomplete rollout is late, or looks again when it will be.
fn watch_deadline(draft: &mut Draft<'_>, subject: Subject<'_>) {
    let Subject { name, workload } = subject;
    let now = draft.facts.now;
    // Nothing gets on where nobody repairs it.
    let is_left = draft.plan.leaves_down(name);
    let progress = draft.facts.record.progress.get(name).filter(|_| !is_left);
    if let Some(progress) = progress.filter(|it| it.spec == draft.facts.spec(subject)) {
        let start = draft.facts.record.deadline_start(progress.at);
        let deadline = start.after(progress_deadline(draft.facts.target.policy, workload));
        if now >= deadline {
            draft.wait(Wait::progress_deadline_exceeded(name, start));
        } else {
            draft.look_again(deadline);
        }
    }
}

/// Whether an instance, or a part of it, counts as ready by its former probes only.
fn has_unanswered_probe(observed: &Observed, instance: &Instance) -> bool {
    let is_open = |id: &ContainerId| observed.unanswered_probes.contains(id);
    // Seldom is there one, and the search for parts takes long.
    !observed.unanswered_probes.is_empty()
        && (is_open(&instance.id) || observed.parts_of(&instance.id).iter().any(|part| is_open(&part.id)))
}

/// The number of instances that are missing, or among these and do not run, and that nobody starts because self-heal is off.
fn left_down(draft: &Draft<'_>, subject: Subject<'_>, instances: &[&Instance]) -> usize {
    let is_left = |container: &str| draft.plan.leaves_container_down(subject.name, container);
    let is_down = |instance: &&&Instance| {
        let parts = pod_parts::part_names(draft, subject, instance.instance.slot);
        is_left(&instance.name) || parts.iter().any(|part| is_left(part))
    };
    instances.iter().filter(is_down).count() + draft.absent.get(subject.name).copied().unwrap_or_default()
}

/// Takes back that rollouts are late which wait for what is no fault of theirs, such as the decision of a person or the end of a
/// suspension.
pub(crate) fn excuse_late_ones(draft: &mut Draft<'_>) {
    let is_suspended = draft.facts.target.policy.suspended;
    let excused: BTreeSet<WorkloadName> = draft.plan.excused().into_iter().cloned().collect();
    let is_excused = |wait: &Wait| {
        let is_of_excused = || wait.workload_name().is_some_and(|name| excused.contains(name));
        wait.is(WaitReason::ProgressDeadlineExceeded) && (is_suspended || is_of_excused())
    };
    draft.plan.waits.retain(|wait| !is_excused(wait));
}
