//! The dry run of `driftless plan`: all rounds that follow if every start succeeds and every image can be pulled.

mod swarm;

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{
    Completion, Condition, EngineKind, HookRecord, Instance, Observed, Record, Role, Timestamp, Workload,
};

use crate::{
    facts::hooks::is_held_by_hooks,
    next_round::plan,
    record::{executed::note_executed, observed::note_observed, outcome::StepOutcome, planned::note_planned},
    steps::Plan,
    target::Target,
    world::World,
};

/// More rounds than any real rollout takes. This bound ends the dry run if the planner never settles.
const ROUNDS: usize = 200;
/// Long enough that every pause is over in the next round.
const ROUND: Duration = Duration::from_hours(1);

/// Applies plan after plan to a copy of the observed state until nothing is left to do. The first plan is what the agent
/// would do now. A plan that only waits is the last one.
pub fn dry_run(target: &Target<'_>, observed: &Observed, record: &Record, now: Timestamp) -> Vec<Plan> {
    if target.policy.engine == EngineKind::Swarm {
        return swarm::dry_run_in_swarm(target, observed, record, now);
    }
    let mut world = World::new(observed.clone());
    let mut record = record.clone();
    if is_held_by_hooks(target.stack, &record) {
        // They are supposed to succeed.
        let hash = target.hashes.stack.clone();
        let fresh = || Box::new(HookRecord::new(0, 0, hash.clone(), BTreeMap::new()));
        record.hooks.get_or_insert_with(fresh).exempt = Some(hash.clone());
    }
    let mut now = now;
    let mut rounds = Vec::new();
    let services = |it: &Instance| {
        let workload = target.stack.workloads.get(&it.instance.workload.whole());
        workload.is_none_or(|it| it.completion == Completion::Never)
    };
    let is_before_others = |it: &Workload| target.stack.workloads.values().any(|other| other.wave > it.wave);
    let awaited = |it: &Instance| {
        target.stack.workloads.values().flat_map(|it| &it.after).any(|edge| {
            it.instance.is_of(&edge.workload) && edge.condition == Condition::CompletedSuccessfully
        }) || target.stack.workloads.get(&it.instance.workload).is_some_and(is_before_others)
    };
    let is_pod = |it: &Instance| {
        let workload = target.stack.workloads.get(&it.instance.workload);
        workload.is_some_and(|it| !it.parts.is_empty())
    };
    while rounds.len() < ROUNDS {
        note_observed(&mut record, target, &world.observed, now);
        let plan = plan(target, &world.observed, &record, now);
        note_planned(&mut record, &plan, now);
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
                // The host may hold names and ports that the agent does not see; the dry run then shows the plan as far as it goes.
                Err(refusal) => {
                    StepOutcome::Failed { error: refusal.to_string(), retry_after: None, is_final: false }
                }
            };
            outcomes.push(outcome);
        }
        // The same steps fail for ever.
        let is_vain = outcomes.iter().all(|outcome| matches!(outcome, StepOutcome::Failed { .. }));
        if is_vain && rounds.last().is_some_and(|last| !last.steps.is_empty() && last.steps == plan.steps) {
            break;
        }
        note_executed(&mut record, target, &plan, &outcomes, now);
        now = now.after(ROUND);
        world.finish_starting(now, |it| match it.part.as_ref().map(|it| it.role) {
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
