//! The outcome of a step: its log line, its event, and the backoff of the object that it failed for.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    Attempt, EventKind, Mask, Observed, PlatformImage, Record, Timestamp, is_helper_image,
};
use driftless_plan::{Action, Cause, Plan, Step, StepOutcome, SwarmResult, sync_delay};

use crate::{context::AppContext, execute::Executed, images::tasks::EndedTask};

/// Number of consecutive refusals of a step by the engine after which the object is held back.
const REFUSALS_WITHOUT_BACKOFF: u32 = 3;

/// The end of the event about a container that ended well while the engine was down.
const ONE_SHOT_ADVICE: &str =
    "a one-shot is not run again if another service waits for it with `service_completed_successfully`";

/// Whether a step gets an image. Such a step does not block a round and has a backoff of its own.
pub(crate) fn gets_image(action: &Action) -> bool {
    use Action::{BuildImage, ImportImage, PullImage, VerifyImage};
    matches!(action, PullImage { .. } | VerifyImage { .. } | BuildImage { .. } | ImportImage { .. })
}

/// The objects in a backoff at this moment.
pub(crate) fn held_objects(record: &Record, now: Timestamp) -> BTreeSet<String> {
    let held = record.failures.iter().filter(|(_, attempt)| attempt.next > now);
    held.map(|(object, _)| object.clone()).collect()
}

/// Adds to each step why it was not done. A step without a remark was done.
pub(crate) fn with_outcomes(steps: Vec<String>, outcomes: &[StepOutcome], mask: &Mask) -> Vec<String> {
    let one = |(index, step): (usize, String)| match outcomes.get(index) {
        Some(StepOutcome::Done | StepOutcome::Created(_) | StepOutcome::Swarm(_)) => step,
        Some(StepOutcome::Failed { error, .. }) => format!("{step}: failed: {}", mask.message(error)),
        Some(StepOutcome::Skipped) | None => format!("{step}: not done"),
    };
    steps.into_iter().enumerate().map(one).collect()
}

/// Counts the failures of each object in the record. True if an object is held back from now on.
pub(crate) fn count_failures(record: &mut Record, plan: &Plan, executed: &Executed, now: Timestamp) -> bool {
    let mut is_one_held = false;
    let is_failed = |outcome: &StepOutcome| matches!(outcome, StepOutcome::Failed { .. });
    let failed: BTreeSet<&str> = plan
        .steps
        .iter()
        .zip(&executed.outcomes)
        .filter(|(_, outcome)| is_failed(outcome))
        .map(|(step, _)| step.action.object())
        .collect();
    for (index, (step, outcome)) in plan.steps.iter().zip(&executed.outcomes).enumerate() {
        let object = step.action.object().to_owned();
        match outcome {
            // A container that was created again and could not be started either is no success.
            StepOutcome::Done | StepOutcome::Created(_) | StepOutcome::Swarm(_)
                if failed.contains(object.as_str()) => {}
            StepOutcome::Done | StepOutcome::Created(_) | StepOutcome::Swarm(_) => {
                record.failures.remove(&object);
                if let Some(made) = made_available(&step.action) {
                    end_pauses_without(record, made, now);
                }
            }
            // It is remembered by the version that failed, and has no backoff.
            StepOutcome::Failed { is_final: true, .. } if matches!(step.action, Action::ReplaceAgent(_)) => {}
            StepOutcome::Failed { error, .. } if !gets_image(&step.action) => {
                let before = record.failures.get(&object).map_or(0, |attempt| attempt.count);
                let count = before.saturating_add(1);
                // After a refusal the next round observes again at once; the object is held back only if that does
                // not help.
                let is_held = count > REFUSALS_WITHOUT_BACKOFF || !executed.refused.contains(&index);
                let pause = if is_held { sync_delay(count) } else { Duration::ZERO };
                let attempt = Attempt { count, next: now.after(pause), error: error.clone() };
                if is_held {
                    record.sync = Some(attempt.clone());
                    is_one_held = true;
                }
                if executed.rejected.contains(&index) {
                    record.rejected.insert(object.clone());
                } else {
                    record.rejected.remove(&object);
                }
                record.failures.insert(object, attempt);
            }
            StepOutcome::Failed { .. } | StepOutcome::Skipped => {}
        }
    }
    let Record { failures, rejected, .. } = &mut *record;
    rejected.retain(|object| failures.contains_key(object));
    if record.failures.is_empty() {
        record.sync = None;
    }
    is_one_held
}

/// The name or id by which the engine names the object that a step makes available, where another step has failed without it.
fn made_available(action: &Action) -> Option<&str> {
    match action {
        Action::CreateNetwork { name, .. } | Action::CreateVolume { name, .. } => Some(name),
        Action::StartInstance { container } => Some(container.reference()),
        _ => None,
    }
}

/// Ends the pauses after failures that name this object: it is there now.
fn end_pauses_without(record: &mut Record, made: &str, now: Timestamp) {
    let is_part_of_name = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    let names_it = |error: &str| {
        error.split(|letter| !is_part_of_name(letter)).any(|word| word.trim_end_matches('.') == made)
    };
    for attempt in record.failures.values_mut().filter(|attempt| names_it(&attempt.error)) {
        attempt.next = attempt.next.min(now);
    }
}

/// Writes one log line about a step that was performed.
pub(crate) fn log_step(step: &Step, outcome: &StepOutcome) {
    match outcome {
        StepOutcome::Done | StepOutcome::Created(_) | StepOutcome::Swarm(_) => {
            tracing::info!(action = %step.action, cause = %step.cause, "step done");
        }
        StepOutcome::Failed { error, .. } => {
            tracing::error!(action = %step.action, cause = %step.cause, error, "step failed");
        }
        StepOutcome::Skipped => {}
    }
}

/// Writes one event about a step that was performed.
pub(crate) fn report_step(context: &AppContext, step: &Step, outcome: &StepOutcome) {
    if let StepOutcome::Swarm(result) = outcome
        && let SwarmResult::Adopted { name, kind } = result.as_ref()
    {
        let message = format!("adopted {} {name} from `docker stack deploy`", kind.word());
        context.event(EventKind::Normal, "Adopted", name, &message);
        return;
    }
    let (kind, reason, message) = match outcome {
        // It may have been a one-shot that a user must not find run twice unannounced.
        StepOutcome::Done if step.cause == Cause::EndedWithEngine => {
            (EventKind::Warning, "StartedAgain", format!("{step}; {ONE_SHOT_ADVICE}"))
        }
        StepOutcome::Done if matches!(step.cause, Cause::EndUnknown { .. }) && is_start(&step.action) => {
            (EventKind::Warning, "MayHaveRunTwice", step.to_string())
        }
        StepOutcome::Done | StepOutcome::Created(_) | StepOutcome::Swarm(_) => {
            (EventKind::Normal, event_reason(&step.action), step.to_string())
        }
        StepOutcome::Failed { error, .. } => (EventKind::Warning, "Failed", format!("{step}: {error}")),
        StepOutcome::Skipped => return,
    };
    context.event(kind, reason, step.action.object(), &message);
}

fn is_start(action: &Action) -> bool {
    matches!(action, Action::StartInstance { .. })
}

/// Reports the images of ended tasks that are present. The engine has an image a moment before its pull or build
/// ends, so a task may be ended by the round that finds its image.
pub(crate) fn report_images(context: &AppContext, ended: Vec<EndedTask>, observed: &Observed) {
    for EndedTask { image, is_build } in ended {
        let PlatformImage { name, platform } = &image;
        let Some(found) = observed.images.get(name) else { continue };
        if platform.as_ref().is_some_and(|platform| !found.is_for(platform, &observed.engine_traits)) {
            continue;
        }
        let (reason, action) = match name.as_str() {
            _ if is_build => ("Built", "build"),
            image if is_helper_image(image) => ("Imported", "import"),
            _ => ("Pulled", "pull"),
        };
        tracing::info!(%image, action, "image present");
        context.event(EventKind::Normal, reason, name, &format!("{action} {image}"));
    }
}

/// The reason of the event about a successful action.
fn event_reason(action: &Action) -> &'static str {
    match action {
        Action::PullImage { .. } => "Pulled",
        Action::VerifyImage { .. } => "Verified",
        Action::BuildImage { .. } => "Built",
        Action::ImportImage { .. } => "Imported",
        Action::CreateNetwork { .. } | Action::CreateVolume { .. } | Action::CreateInstance(_) => "Created",
        Action::RemoveNetwork { .. } | Action::RemoveVolume { .. } | Action::RemoveInstance { .. } => {
            "Removed"
        }
        Action::WriteFiles { .. } => "Written",
        Action::RunHooks { .. } => "HooksRun",
        Action::SignalInstance { .. } => "Signalled",
        Action::StartInstance { .. } => "Started",
        Action::StopInstance { .. } => "Stopped",
        Action::UnpauseInstance { .. } => "Unpaused",
        Action::RenameInstance { .. } => "Renamed",
        Action::UpdateInstance { .. } => "Updated",
        Action::Connect { .. } => "Connected",
        Action::Disconnect { .. } => "Disconnected",
        Action::ReplaceAgent(_) => "AgentUpdateStarted",
        Action::Swarm(action) => action.event_reason(),
    }
}

#[cfg(test)]
mod tests {
    use driftless_model::Network;
    use driftless_plan::ContainerRef;

    use super::*;

    /// The agent itself may refuse a stop for good, such as that of a container that it may run in.
    #[test]
    fn only_a_rejected_definition_is_noted_as_rejected() {
        let container = ContainerRef::Name("shop-db-1".to_owned());
        let action = Action::StopInstance { container, grace: None };
        let steps = vec![Step { action, cause: Cause::SpecChanged, after: Vec::new() }];
        let plan = Plan { steps, ..Plan::default() };
        let outcome = StepOutcome::Failed { error: "no".to_owned(), retry_after: None, is_final: true };
        for rejected in [BTreeSet::new(), BTreeSet::from([0])] {
            let mut record = Record::default();
            let noted = rejected.len();
            let executed = Executed { outcomes: vec![outcome.clone()], rejected, ..Executed::default() };
            count_failures(&mut record, &plan, &executed, Timestamp(60_000));
            assert_eq!((record.failures.len(), record.rejected.len()), (1, noted));
        }
    }

    #[test]
    fn pause_ends_with_the_step_that_makes_the_missing_network() {
        let now = Timestamp(60_000);
        let later = now.after(Duration::from_secs(40));
        let failed = |error: &str| Attempt { count: 4, next: later, error: error.to_owned() };
        let mut record = Record::default();
        record.failures.insert("vpn-1".to_owned(), failed("could not start: network vpn_default not found"));
        record.failures.insert("web-1".to_owned(), failed("network vpn_default_2 not found."));
        record.failures.insert("db-1".to_owned(), failed("network vpn_default. is not there"));
        let network = "vpn_default".to_owned();
        let action = Action::CreateNetwork {
            name: network,
            network: Network::default(),
            project: String::new(),
            addresses: None,
        };
        let plan = Plan {
            steps: vec![Step { action, cause: Cause::Missing, after: Vec::new() }],
            ..Plan::default()
        };
        let executed = Executed { outcomes: vec![StepOutcome::Done], ..Executed::default() };
        assert!(!count_failures(&mut record, &plan, &executed, now));
        let held: Vec<String> = held_objects(&record, now).into_iter().collect();
        assert_eq!(held, ["web-1"]);
    }
}
