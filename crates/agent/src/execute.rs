//! Performs the steps of a plan: ready steps at the same time, none before the steps that it depends on. It decides
//! nothing.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures_util::{StreamExt, stream::FuturesUnordered};

use driftless_docker as docker;
use driftless_docker::{Docker, Effect, SignedImage};
use driftless_model::{AppName, ContainerId, Mask};
use driftless_plan::{
    Action, AgentReplacement, ContainerRef, Creation, Drain, Plan, RequiredSignature, StepOutcome,
};
use driftless_store::ContentDir;

use crate::{
    endpoints::{Stopping, drain},
    error::chain,
    images::tasks::{ImageState, ImageTasks, ReadContext},
    interrupt::Interrupt,
    trials::RejectedStops,
    turns::Turn,
};

/// The services and limits of the steps of one application.
pub(crate) struct Executor<'a, D> {
    pub(crate) docker: &'a Arc<D>,
    pub(crate) contents: &'a ContentDir,
    pub(crate) app: &'a AppName,
    /// Errors of the engine may quote a command, and a command may contain a secret.
    pub(crate) mask: &'a Mask,
    pub(crate) images: &'a mut ImageTasks,
    pub(crate) read_context: ReadContext<'a>,
    /// The proxies that lose an endpoint before its container is stopped.
    pub(crate) drains: &'a BTreeMap<ContainerId, Vec<Drain>>,
    /// Gets the containers whose stop begins.
    pub(crate) stopping: &'a Stopping,
    /// The permission to act: how many steps are performed at the same time.
    pub(crate) turn: &'a Turn<'a>,
    /// Objects in a backoff: their steps are skipped.
    pub(crate) held: &'a BTreeSet<String>,
    /// Steps that must not begin.
    pub(crate) rejected: &'a RejectedStops,
    /// Ends the plan early.
    pub(crate) interrupt: &'a Interrupt,
    /// Called with the index of a step and its outcome when the step has ended.
    pub(crate) report: &'a mut (dyn FnMut(usize, &StepOutcome) + Send),
}

/// The outcome of a plan.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// One for each step.
    pub(crate) outcomes: Vec<StepOutcome>,
    /// Steps that the engine refused because the observed state was not true any more: observe again at once.
    pub(crate) refused: BTreeSet<usize>,
    /// Steps that create a container, or make way for one, whose definition the engine rejects.
    pub(crate) rejected: BTreeSet<usize>,
    /// At least one step has changed something.
    pub(crate) has_acted: bool,
    /// The images whose signatures were verified, by the name in the step.
    pub(crate) signed: BTreeMap<String, SignedImage>,
}

/// Performs all steps that are possible now.
pub(crate) async fn execute<D: Docker>(plan: &Plan, executor: Executor<'_, D>) -> Executed {
    let Executor { docker, contents, app, mask, images, read_context, turn, .. } = executor;
    let Executor { drains, stopping, held, rejected, interrupt, report, .. } = executor;
    let mut outcomes: Vec<Option<StepOutcome>> = vec![None; plan.steps.len()];
    let mut begun = BTreeSet::new();
    let mut running = FuturesUnordered::new();
    let mut executed = Executed::default();
    loop {
        let is_interrupted = interrupt.token().is_cancelled();
        let has_begun = |index: usize| begun.contains(&index) && !has_failed(&outcomes, index);
        let replacing = if is_interrupted { plan.begun_replacements(has_begun) } else { BTreeSet::new() };
        // A step comes after the steps it depends on, so one pass finds all that are ready.
        for (index, step) in plan.steps.iter().enumerate() {
            if begun.contains(&index) {
                continue;
            }
            let one_failed = step.after.iter().any(|earlier| has_failed(&outcomes, *earlier));
            let is_ready = step.after.iter().all(|earlier| matches!(outcomes.get(*earlier), Some(Some(_))));
            // As long as it waits for a running step, the end of the work may still come.
            let goes_on = replacing.contains(&index) && (!is_ready || interrupt.ends_work());
            if one_failed || held.contains(step.action.object()) || (is_interrupted && !goes_on) {
                begun.insert(index);
                outcomes[index] = Some(StepOutcome::Skipped);
                continue;
            }
            if let Some(outcome) = rejected.outcome(index) {
                begun.insert(index);
                report(index, outcome);
                outcomes[index] = Some(outcome.clone());
                continue;
            }
            if !is_ready || running.len() >= turn.concurrent_steps() {
                continue;
            }
            begun.insert(index);
            let Some(image) = image_state(&step.action, (docker, app), images, read_context) else {
                let action = with_signature(&step.action, &executed.signed);
                running.push(async move {
                    let action = action.as_ref();
                    let _permit = tokio::select! {
                        permit = turn.step(action) => permit,
                        () = interrupt.forbids(is_interrupted) => return (index, None),
                    };
                    if let Action::StopInstance { container: ContainerRef::Id(id, _), .. } = action {
                        stopping.begin(id).await;
                        if let Some(drains) = drains.get(id) {
                            let failed = Box::pin(drain(docker, app, drains)).await;
                            stopping.note_drained(drains, failed).await;
                        }
                    }
                    let performed = perform(docker, contents, app, action);
                    // It lasts until the helper stops this agent, which ends the plan first.
                    let result = if matches!(action, Action::ReplaceAgent(_)) {
                        tokio::select! {
                            result = performed => result,
                            () = interrupt.token().cancelled() => Ok(Effect::Done),
                        }
                    } else {
                        performed.await
                    };
                    (index, Some(result))
                });
                continue;
            };
            let outcome = image_outcome(image, step.action.object(), mask, &mut executed.signed);
            report(index, &outcome);
            outcomes[index] = Some(outcome);
        }
        let Some((index, result)) = running.next().await else {
            if begun.len() == plan.steps.len() {
                break;
            }
            continue;
        };
        let outcome = match result {
            // The plan ended before the step began. Whether it has to be done all the same is decided above.
            None => {
                begun.remove(&index);
                continue;
            }
            Some(Ok(Effect::Created(id))) => StepOutcome::Created(id),
            Some(Ok(Effect::Swarm(result))) => StepOutcome::Swarm(result),
            Some(Ok(Effect::Done)) => StepOutcome::Done,
            Some(Err(error)) => {
                if matches!(error, docker::Error::Refused { .. }) {
                    executed.refused.insert(index);
                }
                failure(&error, mask)
            }
        };
        executed.has_acted |= !matches!(outcome, StepOutcome::Failed { .. });
        report(index, &outcome);
        outcomes[index] = Some(outcome);
    }
    executed.outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or(StepOutcome::Skipped)).collect();
    executed.rejected = rejected_steps(plan, &executed.outcomes, rejected);
    executed
}

/// The steps that failed because the engine rejects a definition. Other final failures are of the agent itself.
fn rejected_steps(plan: &Plan, outcomes: &[StepOutcome], rejected: &RejectedStops) -> BTreeSet<usize> {
    let is_rejected = |index: &usize| {
        let is_final = matches!(outcomes.get(*index), Some(StepOutcome::Failed { is_final: true, .. }));
        let is_creation = matches!(plan.steps[*index].action, Action::CreateInstance(_));
        is_final && (is_creation || rejected.outcome(*index).is_some())
    };
    (0..plan.steps.len()).filter(is_rejected).collect()
}

/// Whether a step has ended without an effect, so that none after it can begin.
fn has_failed(outcomes: &[Option<StepOutcome>], index: usize) -> bool {
    matches!(outcomes.get(index), Some(Some(StepOutcome::Failed { .. } | StepOutcome::Skipped)))
}

/// The outcome of a step that failed.
fn failure(error: &docker::Error, mask: &Mask) -> StepOutcome {
    let is_final = matches!(error, docker::Error::Rejected { .. });
    StepOutcome::Failed { error: mask.message(&chain(error)), retry_after: None, is_final }
}

/// The state of the image that a step gets. `None`: it gets none.
fn image_state<D: Docker>(
    action: &Action,
    (docker, app): (&Arc<D>, &AppName),
    images: &mut ImageTasks,
    read_context: ReadContext<'_>,
) -> Option<ImageState> {
    let image = action.image()?;
    match action {
        Action::PullImage { .. } => Some(images.pull(docker, app, &image, action)),
        Action::VerifyImage { .. } => Some(images.verify(docker, &image, action)),
        Action::BuildImage { build, .. } => Some(images.build(docker, app, (&image, build), read_context)),
        Action::ImportImage { .. } => Some(images.import(docker, app, &image)),
        _ => None,
    }
}

/// The outcome of a step about an image. A verified image is added to `signed`.
fn image_outcome(
    image: ImageState,
    name: &str,
    mask: &Mask,
    signed: &mut BTreeMap<String, SignedImage>,
) -> StepOutcome {
    match image {
        ImageState::Present(verified) => {
            signed.extend(verified.map(|verified| (name.to_owned(), verified)));
            StepOutcome::Done
        }
        ImageState::InProgress => StepOutcome::Skipped,
        ImageState::Failed { error, retry_after } => {
            StepOutcome::Failed { error: mask.message(&error), retry_after, is_final: false }
        }
    }
}

/// An action that creates a container, with the id of the image that an earlier step of the same plan has verified. Other actions stay
/// as they are.
fn with_signature<'a>(action: &'a Action, signed: &BTreeMap<String, SignedImage>) -> Cow<'a, Action> {
    let verified = match action {
        Action::CreateInstance(creation) => {
            verified(creation, signed).map(|creation| Action::CreateInstance(Box::new(creation)))
        }
        Action::ReplaceAgent(replacement) => verified(&replacement.creation, signed).map(|creation| {
            let (old, deadline) = (replacement.old.clone(), replacement.deadline);
            Action::ReplaceAgent(Box::new(AgentReplacement { old, creation, deadline }))
        }),
        _ => None,
    };
    verified.map_or(Cow::Borrowed(action), Cow::Owned)
}

/// A creation whose image must be signed, with the id of the image that was verified. None if it stays as it is.
fn verified(creation: &Creation, signed: &BTreeMap<String, SignedImage>) -> Option<Creation> {
    if creation.signature.is_none() {
        return None;
    }
    let image = creation.image.as_ref().unwrap_or(&creation.container.image);
    let id = signed.get(image)?.id.clone();
    Some(Creation { signature: RequiredSignature::Verified { id }, ..creation.clone() })
}

/// Performs one step. Mounted files are written here, everything else is a call to the engine.
async fn perform<D: Docker>(
    docker: &Arc<D>,
    contents: &ContentDir,
    app: &AppName,
    action: &Action,
) -> Result<Effect, docker::Error> {
    if let Action::WriteFiles { container: _, instance, files } = action {
        let (contents, app, instance, files) =
            (contents.clone(), app.clone(), instance.clone(), files.clone());
        let written =
            tokio::task::spawn_blocking(move || contents.write_in_place(&app, &instance, &files)).await;
        let failed = |source| docker::Error::Transient { doing: action.to_string(), source };
        written.map_err(|error| failed(Box::new(error)))?.map_err(|error| failed(Box::new(error)))?;
    }
    docker.perform(app, action, &|_| {}).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use driftless_model::{Container, Format, InstanceId, SpecHash};

    use super::*;

    #[test]
    fn only_a_rejected_step_has_failed_for_good() {
        let (doing, message) = (|| "create web".to_owned(), || "no".to_owned());
        let errors = [
            (docker::Error::Rejected { doing: doing(), message: message() }, true),
            (docker::Error::Refused { doing: doing(), message: message() }, false),
            (docker::Error::Transient { doing: doing(), source: message().into() }, false),
        ];
        for (error, expected) in errors {
            let outcome = failure(&error, &Mask::new([7; 32]));
            assert!(
                matches!(outcome, StepOutcome::Failed { is_final, .. } if is_final == expected),
                "{error}"
            );
        }
    }

    #[test]
    fn image_verified_in_the_same_plan_is_passed_to_its_containers() {
        let creation = Creation {
            app: "tools".into(),
            agent: "ours".into(),
            format: Format::Compose,
            project: "tools".to_owned(),
            instance: InstanceId { workload: "agent".into(), slot: 1 },
            name: "tools-agent-1".to_owned(),
            container: Container { image: "agent:2".to_owned(), ..Container::default() },
            image: None,
            made_image: None,
            signature: RequiredSignature::Unverified,
            spec: SpecHash::default(),
            inherit: BTreeMap::new(),
            peers: BTreeMap::new(),
            part: None,
            manifests: Vec::new(),
            depends_on: Vec::new(),
        };
        let created: fn(Creation) -> Action = |creation| Action::CreateInstance(Box::new(creation));
        let replaced: fn(Creation) -> Action = |creation| {
            let old = ContainerRef::Name("tools-agent-1".to_owned());
            Action::ReplaceAgent(Box::new(AgentReplacement { old, creation, deadline: Duration::ZERO }))
        };
        let image =
            SignedImage { id: "sha256:1".to_owned(), digest: "sha256:2".to_owned(), keys: BTreeMap::new() };
        let signed = BTreeMap::from([("agent:2".to_owned(), image)]);
        let signature = RequiredSignature::Verified { id: "sha256:1".to_owned() };
        let verified = Creation { signature, ..creation.clone() };
        let exempt = Creation { signature: RequiredSignature::None, ..creation.clone() };
        for action in [created, replaced] {
            let (before, after) = (action(creation.clone()), action(verified.clone()));
            assert_eq!(with_signature(&before, &signed).as_ref(), &after);
            assert_eq!(with_signature(&before, &BTreeMap::new()).as_ref(), &before);
            let unruled = action(exempt.clone());
            assert_eq!(with_signature(&unruled, &signed).as_ref(), &unruled);
        }
    }
}
