//! Performs a plan: ready steps side by side, none before those it depends on. It decides nothing.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use driftless_docker as docker;
use driftless_docker::{Docker, Effect};
use driftless_model::{AppName, Mask};
use driftless_plan::{Action, Plan, StepOutcome};
use driftless_store::ContentDir;

use crate::error::chain;
use crate::image_tasks::{Asked, Fetch, Pulls};

/// How many steps of one application run at the same time.
const AT_ONCE: usize = 8;

/// What is needed to act for one application.
pub(crate) struct Hands<'a, D> {
    pub(crate) docker: &'a std::sync::Arc<D>,
    /// Where the files lie that containers mount.
    pub(crate) contents: &'a ContentDir,
    pub(crate) app: &'a AppName,
    /// The engine's errors may repeat a command, and a command may contain a secret.
    pub(crate) mask: &'a Mask,
    pub(crate) pulls: &'a mut Pulls,
    /// Whatever is built is made from the files of this commit.
    pub(crate) materials: Fetch<'a>,
    /// Objects whose last action failed a short while ago.
    pub(crate) held: &'a BTreeSet<String>,
    /// Ends the round early: what runs is finished, nothing new is begun.
    pub(crate) interrupt: &'a CancellationToken,
    /// Told of each outcome as it comes.
    pub(crate) report: &'a mut (dyn FnMut(usize, &StepOutcome) + Send),
}

/// How a plan went.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// One per step.
    pub(crate) outcomes: Vec<StepOutcome>,
    /// Steps that found something not as the plan supposed: look again at once.
    pub(crate) refused: BTreeSet<usize>,
    /// At least one step changed something.
    pub(crate) acted: bool,
}

pub(crate) async fn execute<D: Docker>(plan: &Plan, hands: Hands<'_, D>) -> Executed {
    let Hands { docker, contents, app, mask, pulls, materials, held, interrupt, report } = hands;
    let mut outcomes: Vec<Option<StepOutcome>> = vec![None; plan.steps.len()];
    let mut begun = BTreeSet::new();
    let mut running = FuturesUnordered::new();
    let mut executed = Executed::default();
    loop {
        // Steps come after those they depend on, so one pass in order finds all that are ready.
        for (index, step) in plan.steps.iter().enumerate() {
            if begun.contains(&index) {
                continue;
            }
            let before = step.after.iter().map(|it| outcomes.get(*it).and_then(Option::as_ref));
            let mut all_done = true;
            let mut one_failed = held.contains(step.action.object());
            for outcome in before {
                match outcome {
                    Some(StepOutcome::Done | StepOutcome::Created(_)) => {}
                    Some(StepOutcome::Failed { .. } | StepOutcome::Skipped) => one_failed = true,
                    None => all_done = false,
                }
            }
            if one_failed || interrupt.is_cancelled() {
                begun.insert(index);
                outcomes[index] = Some(StepOutcome::Skipped);
                continue;
            }
            if !all_done || running.len() >= AT_ONCE {
                continue;
            }
            begun.insert(index);
            let asked = match &step.action {
                Action::PullImage { image, .. } => pulls.pull(docker, app, image, &step.action),
                Action::BuildImage { image, build } => pulls.build(docker, app, (image, build), materials),
                Action::ImportImage { image } => pulls.import(docker, app, image),
                action => {
                    running.push(async move { (index, perform(docker, contents, app, action).await) });
                    continue;
                }
            };
            let outcome = match asked {
                Asked::Here => StepOutcome::Done,
                Asked::Coming => StepOutcome::Skipped,
                Asked::Failed { error, retry_after } => {
                    StepOutcome::Failed { error: mask.message(&error), retry_after }
                }
            };
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
            Ok(Effect::Created(id)) => StepOutcome::Created(id),
            Ok(Effect::Done) => StepOutcome::Done,
            Err(error) => {
                if matches!(error, docker::Error::Refused { .. }) {
                    executed.refused.insert(index);
                }
                StepOutcome::Failed { error: mask.message(&chain(&error)), retry_after: None }
            }
        };
        executed.acted |= !matches!(outcome, StepOutcome::Failed { .. });
        report(index, &outcome);
        outcomes[index] = Some(outcome);
    }
    executed.outcomes = outcomes.into_iter().map(|it| it.unwrap_or(StepOutcome::Skipped)).collect();
    executed
}

/// Files are written here, everything else is the engine's.
async fn perform<D: Docker>(
    docker: &std::sync::Arc<D>,
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
        written.map_err(|it| failed(Box::new(it)))?.map_err(|it| failed(Box::new(it)))?;
    }
    docker.perform(app, action, &|_| {}).await
}

/// The reason of the event that tells of a finished action.
pub(crate) fn done(action: &Action) -> &'static str {
    match action {
        Action::PullImage { .. } => "Pulled",
        Action::BuildImage { .. } => "Built",
        Action::ImportImage { .. } => "Imported",
        Action::CreateNetwork { .. } | Action::CreateVolume { .. } | Action::CreateInstance(_) => "Created",
        Action::RemoveNetwork { .. } | Action::RemoveInstance { .. } => "Removed",
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
    }
}
