//! A dry run: the rounds that would follow if all went well.

use std::time::Duration;

use driftless_model::{Completion, Observed, Record, Role, Timestamp};

use super::{Plan, StepOutcome, Target, World, note_executed, note_observed, plan};

/// More rounds than any real rollout takes; a bound, so that a fault of ours ends.
const ROUNDS: usize = 200;
/// So long that every pause is over by the next round.
const ROUND: Duration = Duration::from_hours(1);

/// Plays plan after plan through in memory until nothing is left to do, as if every start turned out well and
/// every image could be had. The first plan is what would be done now; a plan that only waits ends the forecast
/// after it.
pub fn forecast(target: &Target<'_>, observed: &Observed, record: &Record, now: Timestamp) -> Vec<Plan> {
    let mut world = World::new(observed.clone());
    let mut record = record.clone();
    let mut now = now;
    let mut rounds = Vec::new();
    let services = |it: &driftless_model::Instance| {
        let workload = target.stack.workloads.get(&it.instance.workload.whole());
        workload.is_none_or(|it| it.completion == Completion::Never)
    };
    let awaited = |it: &driftless_model::Instance| {
        target.stack.workloads.values().flat_map(|it| &it.after).any(|edge| {
            it.instance.is_of(&edge.workload)
                && edge.condition == driftless_model::Condition::CompletedSuccessfully
        })
    };
    let is_pod = |it: &driftless_model::Instance| {
        let workload = target.stack.workloads.get(&it.instance.workload);
        workload.is_some_and(|it| !it.parts.is_empty())
    };
    while rounds.len() < ROUNDS {
        note_observed(&mut record, target, &world.observed, now);
        let plan = plan(target, &world.observed, &record, now);
        if plan.is_settled()
            || (plan.steps.is_empty() && rounds.last().is_some_and(|it: &Plan| it.steps.is_empty()))
        {
            break;
        }
        let mut outcomes = Vec::new();
        for step in &plan.steps {
            let outcome = match world.apply(target.agent, &step.action, now) {
                Ok(Some(id)) => StepOutcome::Created(id),
                Ok(None) => StepOutcome::Done,
                // A host may hold what we do not see; the preview then shows the plan as far as it goes.
                Err(refusal) => StepOutcome::Failed { error: refusal.to_string(), retry_after: None },
            };
            outcomes.push(outcome);
        }
        note_executed(&mut record, target, &plan, &outcomes, now);
        now = now.after(ROUND);
        world.thrive(now, |it| match it.part.as_ref().map(|it| it.role) {
            Some(Role::Init) => true,
            Some(Role::Sidecar) => false,
            // The first container of a pod is ended once the others are.
            None if is_pod(it) => false,
            None | Some(Role::App) => !services(it) && awaited(it),
        });
        rounds.push(plan);
    }
    rounds
}
