//! After performing a plan: created containers, failed pulls, and counted heals.

use driftless_model::{
    Attempt, Crash, Drift, DriftAction, FailedOwnUpdate, Heal, Record, StackHash, Timestamp,
};

use crate::{
    action::{Action, ContainerRef},
    backoff::{heal_delay, image_delay},
    cause::Cause,
    facts::{
        fs_changes,
        heals::{self, heal_key},
    },
    record::{files, outcome::StepOutcome},
    steps::{Plan, Step},
    swarm,
    target::Target,
};

/// After acting: what was created is ours, what was healed is counted, what could not be pulled backs off.
pub fn note_executed(
    record: &mut Record,
    target: &Target<'_>,
    plan: &Plan,
    outcomes: &[StepOutcome],
    now: Timestamp,
) {
    for (step, outcome) in plan.steps.iter().zip(outcomes) {
        if let StepOutcome::Created(id) = outcome {
            record.own_containers.insert(id.clone());
        }
        // An error that passes, such as that of a full disk, says nothing about the new version.
        if let (Action::ReplaceAgent(replacement), StepOutcome::Failed { error, is_final: true, .. }) =
            (&step.action, outcome)
        {
            let spec = replacement.creation.spec.clone();
            record.failed_own_update = Some(FailedOwnUpdate { spec, reason: error.clone(), at: now });
        }
        // Others use it, although no list shows that, as with an old Podman. They may stop for a moment, as in an update.
        if let (Action::RemoveVolume { name }, StepOutcome::Failed { error, .. }) = (&step.action, outcome)
            && says_in_use(error)
        {
            record.spared_volumes.insert(name.clone());
        }
        // A stop that did not begin, as it waits for an image or the engine rejects the successor, is not what ends a container that
        // goes down with the engine.
        let has_not_begun =
            matches!(outcome, StepOutcome::Skipped | StepOutcome::Failed { is_final: true, .. });
        if let Action::StopInstance { container: ContainerRef::Id(id, _), .. } = &step.action
            && has_not_begun
        {
            record.stopped.remove(id);
            record.leaving.remove(id);
        }
        let Some(image) = step.action.image() else { continue };
        if let StepOutcome::Failed { error, retry_after, .. } = outcome {
            let count = record.pulls.get(&image).map_or(0, |it| it.count).saturating_add(1);
            let delay = image_delay(&image.name, count, *retry_after);
            let attempt = Attempt { count, next: now.after(delay), error: error.clone() };
            record.pulls.insert(image, attempt);
        } else if outcome.is_done() {
            record.pulls.remove(&image);
        }
    }
    swarm::note_swarm_executed(record, plan, outcomes, now);
    files::note(record, plan, outcomes);
    let done: Vec<&Step> =
        plan.steps.iter().zip(outcomes).filter(|(_, it)| it.is_done()).map(|(step, _)| step).collect();
    for step in &done {
        if let Action::RunHooks { instance, .. } = &step.action {
            record.pending_post_start.remove(&instance.to_string());
        }
        // It runs again, so the next end is its own, even if nobody sees it run in between.
        if let Action::StartInstance { container: ContainerRef::Id(id, _) } = &step.action {
            record.stopped.remove(id);
            record.leaving.remove(id);
            // With other files it has work to do again. A run for another reason takes nothing from what is done.
            if matches!(step.cause, Cause::FilesChanged { .. }) {
                record.completed.remove(id);
            }
        }
        if let Action::StopInstance { container, .. } = &step.action {
            // The end that we brought about is part of the crash that we have counted. If the container has been started
            // again since, its next end is another one.
            let starts = |step: &&Step| matches!(&step.action, Action::StartInstance { container: it } if it == container);
            let is_started = done.iter().any(starts);
            let is_of = |crash: &&mut Crash| crash.container.as_str() == container.reference();
            for crash in record.crashes.values_mut().filter(|crash| is_of(crash) && !is_started) {
                crash.finished = crash.finished.max(now);
            }
        }
    }
    for drift in plan.drifts.iter().filter(|it| it.action == DriftAction::Heal) {
        if done.iter().any(|it| undoes(it, drift)) {
            let undoing = || plan.steps.iter().zip(outcomes).filter(|(step, _)| undoes(step, drift));
            let is_whole = undoing().all(|(_, outcome)| outcome.is_done());
            // The engine has answered with the id of the new object: if it is missing again, somebody removed it.
            let has_created = undoing().any(|(step, outcome)| creates(step, outcome));
            let effect = if is_whole && !has_created { Effect::Unseen } else { Effect::Assumed };
            count_heal(record, drift, effect, &target.hashes.stack, now);
        }
    }
}

/// Whether the engine has refused the removal of a volume because a container uses it, in the words of Docker or Podman. The code is
/// that of other refusals.
fn says_in_use(error: &str) -> bool {
    error.contains("is in use") || error.contains("being used")
}

/// Whether the next round has to see that a heal had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The next round checks it: the engine may have accepted the step and changed nothing.
    Unseen,
    /// The heal was done in part, or it created an object.
    Assumed,
}

/// Whether a step has created the object that was missing.
fn creates(step: &Step, outcome: &StepOutcome) -> bool {
    matches!(outcome, StepOutcome::Created(_))
        || (matches!(step.action, Action::CreateNetwork { .. }) && outcome.is_done())
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
        | Action::VerifyImage { .. }
        | Action::BuildImage { .. }
        | Action::ImportImage { .. }
        | Action::CreateNetwork { .. }
        | Action::RemoveNetwork { .. }
        | Action::CreateVolume { .. }
        | Action::RemoveVolume { .. }
        | Action::CreateInstance(_)
        | Action::WriteFiles { .. }
        | Action::RunHooks { .. }
        | Action::SignalInstance { .. }
        | Action::StartInstance { .. }
        | Action::StopInstance { .. }
        | Action::RemoveInstance { .. }
        | Action::UnpauseInstance { .. }
        | Action::Connect { .. }
        | Action::Disconnect { .. }
        | Action::ReplaceAgent(_)
        | Action::Swarm(_) => step.action.object(),
    };
    let Cause::Drift { field, found, want } = &step.cause else { return false };
    object == drift.object && (field, found, want) == (&drift.field, &drift.found, &drift.want)
}

/// Counts a heal.
fn count_heal(record: &mut Record, drift: &Drift, effect: Effect, revision: &StackHash, now: Timestamp) {
    let Drift { object, workload, field, want, found, .. } = drift;
    let key = heal_key(object, workload.as_ref(), field);
    let difference = format!("{found} -> {want}");
    let before = record.heals.remove(&key).filter(|it| it.revision == *revision);
    let heal = match before {
        None => Heal {
            count: 1,
            ended: now,
            seen: now,
            again: None,
            recent: vec![now],
            ineffective: 0,
            had_effect: effect == Effect::Assumed,
            difference,
            revision: revision.clone(),
        },
        Some(before) => {
            let mut recent = before.recent;
            recent.retain(|it| now.since(*it) < heals::WINDOW);
            recent.push(now);
            // A while of quiet since the last heal: the sequence of pauses starts again. Who writes into a container
            // may do so every few minutes, and each time a whole container is the price.
            let quiet = match field.as_str() {
                fs_changes::FIELD => heals::WINDOW,
                _ => heal_delay(before.count).saturating_mul(2),
            };
            let is_quiet = now.since(before.ended) > quiet;
            Heal {
                count: if is_quiet { 1 } else { before.count.saturating_add(1) },
                ended: now,
                seen: before.again.unwrap_or(now),
                again: None,
                recent,
                ineffective: if before.had_effect { 0 } else { before.ineffective.saturating_add(1) },
                had_effect: effect == Effect::Assumed,
                difference,
                revision: revision.clone(),
            }
        }
    };
    record.heals.insert(key, heal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_removal_of_a_used_volume_is_known() {
        assert!(says_in_use("remove volume data: remove data: volume is in use - [c1]"));
        assert!(says_in_use(
            "remove volume data: volume data is being used by the following container(s): c1"
        ));
        assert!(!says_in_use(
            "remove volume data: it does not carry the labels of this agent and application"
        ));
    }
}
