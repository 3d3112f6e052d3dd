//! Files that are rewritten in place when Git has others: they are written, and then their container is told.
//!
//! What a container was last told of is in the record, by its id. Whoever is not in there may know nothing, so a
//! round that was cut short between the writing and the signal tells it again.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    ContainerId, ContentId, InPlace, Instance, InstanceId, OnChange, Record, State, Strategy, Workload,
};

use super::{
    Action, Cause, ContainerRef, Plan, Step, StepOutcome, Target,
    rollout::Crew,
    round::{Round, reference},
    share,
};

/// Writes what instances that run do not hold yet, and tells them. Restarts come one after the other, as far as the
/// limits of a rollout allow, and after a rollout that is under way; who only gets a signal goes on serving, so all of
/// them are told at once.
pub(super) fn deliver(round: &mut Round<'_>, workload: &Workload, crew: &Crew<'_>) {
    if workload.in_place.is_empty() {
        return;
    }
    let is_well = |it: &Instance| it.is_available(workload.min_ready, round.now);
    let mut due: Vec<&Instance> = Vec::new();
    let mut unwell = 0;
    for instance in &crew.current {
        // Whoever is stopped in this round anyway is started with what it is to hold.
        let is_touched = round.stopped.contains_key(&instance.id) || round.removed.contains_key(&instance.id);
        if is_touched {
            unwell += 1;
        } else if instance.is_running() && !undelivered(round, workload, instance).is_empty() {
            due.push(instance);
        } else if !is_well(instance) {
            unwell += 1;
        }
    }
    due.sort_by_key(|it| (is_well(it), it.instance.slot));
    let at_once = match workload.strategy {
        Strategy::Recreate => usize::MAX,
        Strategy::RollingUpdate { max_surge: _, max_unavailable } => (max_unavailable as usize).max(1),
    };
    let is_complete = crew.current.len() >= workload.replicas as usize;
    let is_rolling = !is_complete || !crew.outdated.is_empty() || !crew.lost.is_empty();
    // What the commit needs comes first: until then, what runs is kept as it was.
    let pulls: Vec<usize> = round.pulls.values().copied().collect();
    let mut room = if is_rolling { 0 } else { at_once.saturating_sub(unwell) };
    for instance in due {
        let targets = undelivered(round, workload, instance);
        let cause = Cause::FilesChanged { files: targets.iter().cloned().collect() };
        let asked: BTreeSet<&OnChange> =
            targets.iter().filter_map(|it| workload.in_place.get(it)).map(|it| &it.on_change).collect();
        if asked.contains(&OnChange::Restart) {
            if room > 0 {
                room -= 1;
                let stopped = round.stop(instance, &cause, pulls.clone());
                share::start_again(round, instance, stopped);
            }
            continue;
        }
        let written = write(round, workload, &instance.instance, reference(instance), &cause, pulls.clone());
        for it in asked {
            if let OnChange::Signal(signal) = it {
                let (container, signal) = (reference(instance), signal.clone());
                let after = written.into_iter().collect();
                round.push(Action::SignalInstance { container, signal }, cause.clone(), after);
            }
        }
    }
}

/// Why an instance that does not run is to be started at once, pauses or not: it ended with other files than those it
/// would be started with now.
pub(super) fn ended_with_others(
    round: &Round<'_>,
    workload: &Workload,
    instance: &Instance,
    is_over: bool,
) -> Option<Cause> {
    let told = round.record.delivered.get(&instance.id)?;
    let targets = undelivered(round, workload, instance);
    let targets = targets.into_iter().filter(|it| told.contains_key(it));
    // Who has done its work is run again only where the manifest wants a restart.
    let is_asked = |it: &String| {
        !is_over || workload.in_place.get(it).is_some_and(|it| it.on_change == OnChange::Restart)
    };
    let files: Vec<String> = targets.filter(is_asked).collect();
    (!files.is_empty()).then_some(Cause::FilesChanged { files })
}

/// Writes all that an instance is to hold, if it is to hold anything: before each start, as somebody may have cleared
/// it away. Returns the step.
pub(super) fn write(
    round: &mut Round<'_>,
    workload: &Workload,
    instance: &InstanceId,
    container: ContainerRef,
    cause: &Cause,
    after: Vec<usize>,
) -> Option<usize> {
    if workload.in_place.is_empty() {
        return None;
    }
    let (instance, files) = (instance.clone(), workload.in_place.clone());
    Some(round.push(Action::WriteFiles { container, instance, files }, cause.clone(), after))
}

/// The targets whose content a container was not told of. While images are missing, what runs is kept as it was.
fn undelivered(round: &Round<'_>, workload: &Workload, instance: &Instance) -> BTreeSet<String> {
    if !round.unpulled.is_empty() || workload.spec() != instance.spec {
        return BTreeSet::new();
    }
    let told = round.record.delivered.get(&instance.id);
    let is_told = |target: &str, file: &InPlace| told.and_then(|it| it.get(target)) == Some(&file.content);
    workload.in_place.iter().filter(|(target, file)| !is_told(target, file)).map(|it| it.0.clone()).collect()
}

/// After acting: whoever was started with its files, or sent all its signals, knows them.
pub(super) fn note(record: &mut Record, plan: &Plan, outcomes: &[StepOutcome]) {
    let all = || plan.steps.iter().zip(outcomes);
    let is_done = |it: &StepOutcome| matches!(it, StepOutcome::Done | StepOutcome::Created(_));
    let made: BTreeMap<&str, &ContainerId> = all()
        .filter_map(|(step, outcome)| match (&step.action, outcome) {
            (Action::CreateInstance(creation), StepOutcome::Created(id)) => {
                Some((creation.name.as_str(), id))
            }
            _ => None,
        })
        .collect();
    for (step, outcome) in all() {
        let Action::WriteFiles { container, instance, files } = &step.action else { continue };
        let tells = |it: &Step| match &it.action {
            Action::StartInstance { container: told } | Action::SignalInstance { container: told, .. } => {
                told == container
            }
            _ => false,
        };
        let told = all().filter(|(it, _)| tells(it)).all(|(_, it)| is_done(it));
        let id = match container {
            ContainerRef::Id(id, _) => Some(id),
            ContainerRef::Name(name) => made.get(name.as_str()).copied(),
        };
        let Some(id) = id.filter(|_| told && is_done(outcome)) else { continue };
        let now: BTreeMap<String, ContentId> =
            files.iter().map(|(target, file)| (target.clone(), file.content.clone())).collect();
        let before = record.delivered.insert(id.clone(), now.clone());
        // Whatever it ended of, it was with other files.
        if before.is_some_and(|it| it != now) {
            record.crashes.remove(instance);
        }
    }
}

/// Takes it that every container that is as wanted knows the files that it is to hold: for who looks on from outside,
/// and cannot know.
pub fn suppose_delivered(
    record: &mut Record,
    target: &Target<'_>,
    instances: &BTreeMap<ContainerId, Instance>,
) {
    for instance in instances.values().filter(|it| it.state != State::Created) {
        let Some(workload) = target.stack.workloads.get(&instance.instance.workload) else { continue };
        if !workload.in_place.is_empty() {
            let files = workload.in_place.iter().map(|(target, file)| (target.clone(), file.content.clone()));
            record.delivered.insert(instance.id.clone(), files.collect());
        }
    }
}
