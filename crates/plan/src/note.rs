//! What each round leaves in memory: counted from what is observed, never from which event was seen.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    Attempt, Completion, Condition, ContainerId, Crash, Dependency, Drift, DriftAction, Format, Heal,
    Instance, InstanceId, Observed, Progress, Readiness, Record, Stack, StackHash, State, Timestamp, Update,
    Workload, WorkloadName,
};

use super::{
    Action, CRASH_RESET, Cause, ContainerRef, Plan, Step, Target, account, census, in_place, inside, jobs,
    pod, pull_delay, repair,
    round::{TRIES, heal_key},
};

/// Heals within this span of time count as a fight.
const FIGHT: Duration = Duration::from_mins(10);

/// Longer than any pause of ours. A registry may ask for more; it is then asked again a little early.
const LONGEST_PAUSE: Duration = Duration::from_mins(15);

/// How a step went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    Done,
    Created(ContainerId),
    /// With the error, for people, and how long the other side asks us to wait.
    Failed {
        error: String,
        retry_after: Option<Duration>,
    },
    /// Not begun, because a step before it failed or the round was ended.
    Skipped,
}

/// Before planning: takes into the ledger what proves genuine, counts crashes, notes who is done, and measures
/// progress.
pub fn note_observed(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    let observed = &*pod::whole_of(target, observed);
    forget_the_future(record, now);
    let present: BTreeSet<&ContainerId> = observed.containers().map(|it| &it.id).collect();
    record.ledger.retain(|it| present.contains(it));
    record.completed.retain(|it| present.contains(it));
    record.replaced.retain(|it, _| present.contains(it));
    record.stopped.retain(|it| observed.container(it).is_some_and(|it| !it.is_running()));
    // Whoever holds the volumes now hands them on himself.
    let held: BTreeSet<&String> =
        observed.instances.values().flat_map(|it| it.anonymous_volumes.values()).collect();
    record.bequests.retain(|_, volumes| !volumes.values().all(|it| held.contains(it)));
    record.delivered.retain(|it, _| present.contains(it));
    let slots: BTreeSet<String> = observed.containers().map(|it| it.instance.to_string()).collect();
    record.unhooked.retain(|it| slots.contains(it));
    record.adopted.containers.retain(|it, _| present.contains(it));
    record
        .adopted
        .networks
        .retain(|name, it| observed.networks.get(name).is_some_and(|found| found.id == it.id));
    record.adopted.volumes.retain(|name, _| observed.volumes.contains_key(name));
    // On the way to another stack, what stands of it is no drift, not even when we turn back half way.
    let revision = StackHash::of(target.stack);
    record.settled = record.settled.take().filter(|it| *it == revision);
    for instance in observed.instances.values().filter(|it| it.agent == *target.agent) {
        let Some(workload) = target.definition(instance) else { continue };
        let is_known = record.ledger.contains(&instance.id);
        if !is_known && matches!(census::examine(target, observed, instance), census::Verdict::Genuine) {
            record.ledger.insert(instance.id.clone());
        }
        if !record.ledger.contains(&instance.id) {
            continue;
        }
        if repair::is_completed(record, observed.engine_started, workload, instance)
            || is_believed(record, target.stack, workload, instance)
        {
            record.completed.insert(instance.id.clone());
            record.crashes.remove(&instance.instance);
        } else {
            count_crash(record, observed, instance, now);
        }
    }
    note_parts(record, target, observed, now);
    inside::learn(record, target, observed);
    jobs::note(record, target, observed, now);
    let wanted: BTreeSet<&WorkloadName> = target.stack.workloads.keys().collect();
    record.crashes.retain(|it, _| wanted.contains(&it.workload.whole()));
    record.progress.retain(|it, _| wanted.contains(it));
    record.paused.retain(|it| wanted.contains(it));
    record.heals.retain(|_, heal| now.since(heal.ended) < FIGHT || heal.ineffective + 1 >= TRIES);
    note_objects(record, target.stack, now);
    for (name, workload) in &target.stack.workloads {
        measure(record, observed, name, workload, now);
    }
}

/// Whether an end with code 0 is taken for success although the engine went down after it. A service that ends well
/// with the engine looks the same, so this holds only for work whose end the manifest asks for: what Kubernetes does not
/// restart, and a Compose service whose completion another one waits for. A second run could do a migration twice.
fn is_believed(record: &Record, stack: &Stack, workload: &Workload, instance: &Instance) -> bool {
    let has_ended_well = matches!(instance.state, State::Exited { code: 0, .. })
        && workload.completion == Completion::OnSuccess
        && instance.touched_by_hand.is_none()
        && !record.stopped.contains(&instance.id);
    let waits_for_it = |dependency: &Dependency| {
        dependency.workload == instance.instance.workload
            && dependency.condition == Condition::CompletedSuccessfully
    };
    let is_awaited = || stack.workloads.values().any(|other| other.after.iter().any(waits_for_it));
    has_ended_well && (stack.format == Format::Kubernetes || is_awaited())
}

/// Likewise of the parts of pods.
fn note_parts(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    for part in observed.parts.values().filter(|it| it.agent == *target.agent) {
        if !record.ledger.contains(&part.id) && pod::genuine(target, observed, part) {
            record.ledger.insert(part.id.clone());
        }
        let Some(workload) = pod::definition(target, observed, part) else { continue };
        if !record.ledger.contains(&part.id) {
            continue;
        }
        let pod = part.part.as_ref().and_then(|it| observed.instances.get(&it.pod));
        if repair::is_completed(record, observed.engine_started, &workload, part)
            || is_believed(record, target.stack, &workload, part)
        {
            record.completed.insert(part.id.clone());
            record.crashes.remove(&part.instance);
        } else if pod.is_some_and(Instance::is_running) {
            // Who ends with its pod does not end by itself.
            count_crash(record, observed, part, now);
        }
    }
}

/// After acting: what was created is ours, what was healed is counted, what could not be pulled backs off.
pub fn note_executed(
    record: &mut Record,
    target: &Target<'_>,
    plan: &Plan,
    outcomes: &[StepOutcome],
    now: Timestamp,
) {
    for (step, outcome) in plan.steps.iter().zip(outcomes) {
        match outcome {
            StepOutcome::Created(id) => {
                record.ledger.insert(id.clone());
            }
            StepOutcome::Done | StepOutcome::Failed { .. } | StepOutcome::Skipped => {}
        }
        let (Action::PullImage { image, .. }
        | Action::BuildImage { image, .. }
        | Action::ImportImage { image }) = &step.action
        else {
            continue;
        };
        if let StepOutcome::Failed { error, retry_after } = outcome {
            let count = record.pulls.get(image).map_or(0, |it| it.count).saturating_add(1);
            let delay = pull_delay(image, count).max(retry_after.unwrap_or_default());
            let attempt = Attempt { count, next: now.after(delay), error: error.clone() };
            record.pulls.insert(image.clone(), attempt);
        }
        if matches!(outcome, StepOutcome::Done | StepOutcome::Created(_)) {
            record.pulls.remove(image);
        }
    }
    in_place::note(record, plan, outcomes);
    let done: Vec<&Step> = plan
        .steps
        .iter()
        .zip(outcomes)
        .filter(|(_, it)| matches!(it, StepOutcome::Done | StepOutcome::Created(_)))
        .map(|(step, _)| step)
        .collect();
    for step in &done {
        if let Action::RunHooks { instance, .. } = &step.action {
            record.unhooked.remove(&instance.to_string());
        }
        // It runs again, so the next end is its own, even if nobody sees it run in between.
        if let Action::StartInstance { container: ContainerRef::Id(id, _) } = &step.action {
            record.stopped.remove(id);
        }
        if let Action::StopInstance { container, .. } = &step.action {
            // The end that we brought about is part of the crash that we have counted.
            for crash in
                record.crashes.values_mut().filter(|it| it.container.as_str() == container.reference())
            {
                crash.finished = crash.finished.max(now);
            }
        }
    }
    let revision = StackHash::of(target.stack);
    for drift in plan.drifts.iter().filter(|it| it.action == DriftAction::Heal) {
        if done.iter().any(|it| undoes(it, drift)) {
            let is_done =
                |outcome: &StepOutcome| matches!(outcome, StepOutcome::Done | StepOutcome::Created(_));
            let mut undoing = plan.steps.iter().zip(outcomes).filter(|(step, _)| undoes(step, drift));
            let is_whole = undoing.all(|(_, outcome)| is_done(outcome));
            count_heal(record, drift, is_whole, &revision, now);
        }
    }
}

/// After planning and before acting: a difference that is not there any more was healed with effect; and what can
/// be seen nowhere once a step is done is written down.
pub fn note_planned(record: &mut Record, plan: &Plan) {
    let key = |it: &Drift| heal_key(&it.object, it.workload.as_ref(), &it.field);
    let standing: BTreeSet<String> = plan.drifts.iter().map(key).collect();
    for (key, heal) in &mut record.heals {
        heal.had_effect |= !standing.contains(key);
    }
    for (index, step) in plan.steps.iter().enumerate() {
        match &step.action {
            Action::StopInstance { container: ContainerRef::Id(id, _), .. } => {
                let is_end = plan.steps.iter().skip(index).any(|it| {
                    matches!(&it.action, Action::RemoveInstance { container } if container.reference() == id.as_str())
                });
                // Whose work is done has ended as it should.
                if !is_end && step.cause != Cause::Over {
                    record.stopped.insert(id.clone());
                }
            }
            // What is shared in a pod stays with the pod.
            Action::CreateInstance(creation) if !creation.inherit.is_empty() && creation.part.is_none() => {
                record.bequests.insert(creation.instance.to_string(), creation.inherit.clone());
            }
            Action::RunHooks { instance, .. } => {
                record.unhooked.insert(instance.to_string());
            }
            Action::CreateInstance(_)
            | Action::StopInstance { .. }
            | Action::PullImage { .. }
            | Action::BuildImage { .. }
            | Action::ImportImage { .. }
            | Action::CreateNetwork { .. }
            | Action::RemoveNetwork { .. }
            | Action::CreateVolume { .. }
            | Action::WriteFiles { .. }
            | Action::SignalInstance { .. }
            | Action::StartInstance { .. }
            | Action::RemoveInstance { .. }
            | Action::UnpauseInstance { .. }
            | Action::RenameInstance { .. }
            | Action::UpdateInstance { .. }
            | Action::Connect { .. }
            | Action::Disconnect { .. } => {}
        }
    }
}

/// Once the wanted stack is reached: from now on, what differs is drift.
pub fn note_settled(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    record.settled = Some(StackHash::of(target.stack));
    record.sync = None;
    record.prune = None;
    record.pulls.clear();
    record.slots.clear();
    note_held(record, target, observed);
    for instance in observed.instances.values().filter(|it| record.ledger.contains(&it.id)) {
        let InstanceId { workload, slot } = &instance.instance;
        record.slots.entry(workload.clone()).or_default().insert(*slot);
    }
}

/// What stays as it was is made anew of what it was made of.
fn note_held(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let mut held = std::mem::take(&mut record.held);
    let kept = target.stack.workloads.iter().filter(|(_, it)| it.update == Update::Never);
    for (name, wanted) in kept {
        let spec = wanted.spec();
        let is_old = |it: &&Instance| it.instance.workload == *name && it.spec != spec;
        let Some(old) = observed.instances.values().find(is_old) else { continue };
        let before = target.fallback.and_then(|it| it.workloads.get(name)).cloned();
        let known = [held.remove(name), before].into_iter().flatten();
        let of_it = known.into_iter().find(|it| it.spec() == old.spec);
        record.held.extend(of_it.map(|it| (name.clone(), it)));
    }
}

/// Every end counts once, known by when it was; ends that somebody or the engine's shutdown brought about do not.
fn count_crash(record: &mut Record, observed: &Observed, instance: &Instance, now: Timestamp) {
    let before = record.crashes.get(&instance.instance).filter(|it| it.spec == instance.spec);
    let (finished, code, out_of_memory, error) = match &instance.state {
        State::Running { since, .. } => match &instance.readiness {
            // It ends here and now, once: the run that began after the last end is over.
            Readiness::Dead { .. } if before.is_some_and(|it| it.finished > *since) => return,
            Readiness::Dead { reason } => (now, -1, false, reason.clone()),
            Readiness::Ready { .. } | Readiness::Starting { .. } | Readiness::NotReady { .. } => {
                if now.since(*since) >= CRASH_RESET {
                    record.crashes.remove(&instance.instance);
                }
                return;
            }
        },
        State::Restarting { code, finished } => (*finished, *code, false, String::new()),
        State::Exited { code, finished, out_of_memory, error } => {
            (*finished, *code, *out_of_memory, error.clone())
        }
        State::Created | State::Paused | State::Removing | State::Dead => return,
    };
    let is_ours_to_count =
        instance.touched_by_hand.is_none() && observed.engine_started.is_none_or(|it| finished >= it);
    let is_new = before.is_none_or(|it| finished > it.finished && !is_held(it, finished));
    if !is_ours_to_count || !is_new || record.stopped.contains(&instance.id) {
        return;
    }
    // The engine restarts at once by itself the first time, as we would.
    let count = before
        .map_or(0, |it| it.count)
        .saturating_add(1)
        .saturating_add(u32::from(before.is_none() && instance.restarts > 1));
    let crash = Crash {
        spec: instance.spec.clone(),
        count,
        finished,
        container: instance.id.clone(),
        code,
        out_of_memory,
        error,
    };
    record.crashes.insert(instance.instance.clone(), crash);
}

/// The wall clock may have been set back. What lies further ahead than any pause of ours is not waited for, and
/// nothing happened in the future.
fn forget_the_future(record: &mut Record, now: Timestamp) {
    let horizon = now.after(LONGEST_PAUSE);
    for attempt in record.pulls.values_mut().chain(record.failures.values_mut()).chain(&mut record.sync) {
        if attempt.next > horizon {
            attempt.next = now;
        }
    }
    for heal in record.heals.values_mut() {
        heal.ended = heal.ended.min(now);
        heal.recent.retain(|it| *it <= now);
    }
    for progress in record.progress.values_mut() {
        progress.at = progress.at.min(now);
    }
}

/// While a container is held back, the engine's own restarts do not count as further tries of ours.
fn is_held(crash: &Crash, finished: Timestamp) -> bool {
    finished < crash.finished.after(super::crash_delay(crash.count))
}

fn measure(
    record: &mut Record,
    observed: &Observed,
    name: &WorkloadName,
    workload: &Workload,
    now: Timestamp,
) {
    let spec = workload.spec();
    let mine = || observed.instances.values().filter(|it| it.instance.workload == *name);
    let count =
        |all: &dyn Fn(&&Instance) -> bool| u32::try_from(mine().filter(all).count()).unwrap_or(u32::MAX);
    let updated = count(&|it| record.is_current(it, &spec));
    let old = count(&|it| !record.is_current(it, &spec));
    let available = count(&|it| record.is_current(it, &spec) && it.is_available(workload.min_ready, now));
    let before = record.progress.get(name).filter(|it| it.spec == spec);
    let is_further = before.is_none_or(|it| updated > it.updated || old < it.old || available > it.available);
    // What was complete makes no progress: the clock starts when it is not complete any more.
    let was_complete = before.is_some_and(|it| it.old == 0 && it.available >= workload.replicas);
    let is_complete = old == 0 && available >= workload.replicas;
    // A build has a deadline of its own.
    let is_unbuilt = workload.build.is_some() && !observed.images.contains_key(&workload.container.image);
    let is_paused = workload.paused || record.paused.contains(name);
    let is_standing = !is_further && !is_paused && !is_unbuilt && (!was_complete || is_complete);
    let at = before.filter(|_| is_standing).map_or(now, |it| it.at);
    record.progress.insert(name.clone(), Progress { spec, updated, old, available, at });
}

/// Kubernetes tells the age of everything, and Docker that of containers alone.
fn note_objects(record: &mut Record, stack: &Stack, now: Timestamp) {
    let objects: BTreeSet<String> = account::objects(stack).map(|it| it.to_string()).collect();
    record.since.retain(|it, _| objects.contains(it));
    for object in objects {
        record.since.entry(object).or_insert(now);
    }
}

/// Whether a step is part of setting this difference right. However many such steps there are, it is one heal.
fn undoes(step: &Step, drift: &Drift) -> bool {
    let object = match &step.action {
        // One call sets all limits, and its cause is the first of them.
        Action::UpdateInstance { container, .. } => {
            let is_live = drift.field.starts_with("resources.") || drift.field == "restart";
            return is_live && container.name() == drift.object;
        }
        Action::RenameInstance { .. } => &drift.object,
        Action::PullImage { .. }
        | Action::BuildImage { .. }
        | Action::ImportImage { .. }
        | Action::CreateNetwork { .. }
        | Action::RemoveNetwork { .. }
        | Action::CreateVolume { .. }
        | Action::CreateInstance(_)
        | Action::WriteFiles { .. }
        | Action::RunHooks { .. }
        | Action::SignalInstance { .. }
        | Action::StartInstance { .. }
        | Action::StopInstance { .. }
        | Action::RemoveInstance { .. }
        | Action::UnpauseInstance { .. }
        | Action::Connect { .. }
        | Action::Disconnect { .. } => step.action.object(),
    };
    match &step.cause {
        Cause::Drift { field, found, want } => {
            object == drift.object && (field, found, want) == (&drift.field, &drift.found, &drift.want)
        }
        Cause::Missing
        | Cause::SpecChanged
        | Cause::ScaledDown
        | Cause::NotInGit
        | Cause::NotStarted
        | Cause::Interrupted
        | Cause::Exited
        | Cause::EndedWithEngine
        | Cause::Over
        | Cause::Unhealthy { .. }
        | Cause::CrashLoop { .. }
        | Cause::Restarted
        | Cause::Deleted
        | Cause::Finished { .. }
        | Cause::FilesChanged { .. }
        | Cause::DependencyReplaced { .. }
        | Cause::DependencyRestarted { .. } => false,
    }
}

/// Of what was done in part, because the round was cut short or a step failed, nobody knows yet whether it helps.
fn count_heal(record: &mut Record, drift: &Drift, is_whole: bool, revision: &StackHash, now: Timestamp) {
    let Drift { object, workload, field, want, found, .. } = drift;
    let key = heal_key(object, workload.as_ref(), field);
    let difference = format!("{found} -> {want}");
    let before = record.heals.remove(&key).filter(|it| it.revision == *revision);
    let heal = match before {
        None => Heal {
            count: 1,
            ended: now,
            recent: vec![now],
            ineffective: 0,
            had_effect: !is_whole,
            difference,
            revision: revision.clone(),
        },
        Some(before) => {
            let mut recent = before.recent;
            recent.retain(|it| now.since(*it) < FIGHT);
            recent.push(now);
            // A while of quiet since the last heal: the sequence of pauses begins anew. Who writes into a container
            // may do so every few minutes, and each time a whole container is the price.
            let quiet = match field.as_str() {
                inside::FIELD => FIGHT,
                _ => super::heal_delay(before.count).saturating_mul(2),
            };
            let is_quiet = now.since(before.ended) > quiet;
            Heal {
                count: if is_quiet { 1 } else { before.count.saturating_add(1) },
                ended: now,
                recent,
                ineffective: if before.had_effect { 0 } else { before.ineffective.saturating_add(1) },
                had_effect: !is_whole,
                difference,
                revision: revision.clone(),
            }
        }
    };
    record.heals.insert(key, heal);
}
