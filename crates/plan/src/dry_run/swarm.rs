//! The dry run of an application of a Swarm: all rounds that follow if every step succeeds, every task starts, and every
//! Job completes.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    AgentId, Observed, ObservedNetwork, ObservedService, ObservedSwarm, Record, ResolvedImage, SWARM_OWNER,
    SpecHash, SwarmFileKind, SwarmMode, SwarmObject, SwarmTask, Timestamp, written_data,
};
use serde_json::Value;

use crate::{
    action::Action,
    next_round::plan,
    record::{executed::note_executed, observed::note_observed, outcome::StepOutcome, planned::note_planned},
    steps::Plan,
    swarm::{SwarmAction, SwarmResult, with_tasks},
    target::Target,
};

/// More rounds than any real deployment takes.
const ROUNDS: usize = 100;
/// Long enough that a pause is over in the next round.
const ROUND: Duration = Duration::from_hours(1);

/// The plans of the rounds that follow. The first is what the agent would do now, if its node leads.
pub(crate) fn dry_run_in_swarm(
    target: &Target<'_>,
    observed: &Observed,
    record: &Record,
    now: Timestamp,
) -> Vec<Plan> {
    let (mut observed, mut record, mut now) = (observed.clone(), record.clone(), now);
    if let Some(swarm) = observed.swarm.as_deref_mut() {
        // The steps are those of the leader, also if another manager is asked.
        let own = swarm.node.clone();
        for (id, node) in &mut swarm.nodes {
            node.is_leader = *id == own;
        }
    }
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS {
        observed.instances.clear();
        with_tasks(target, &mut observed, &mut record);
        note_observed(&mut record, target, &observed, now);
        let plan = plan(target, &observed, &record, now);
        note_planned(&mut record, &plan, now);
        if plan.is_settled() {
            break;
        }
        let is_last = plan.steps.is_empty();
        let outcomes: Vec<StepOutcome> =
            plan.steps.iter().map(|step| apply(target, &mut observed, &step.action, now)).collect();
        note_executed(&mut record, target, &plan, &outcomes, now);
        if let Some(swarm) = observed.swarm.as_deref_mut() {
            let present = swarm.services.values().chain(swarm.other_services.values());
            let present: BTreeSet<&String> = present.map(|service| &service.id).collect();
            swarm.tasks.retain(|_, task| present.contains(&task.service));
        }
        rounds.push(plan);
        if is_last {
            break;
        }
        now = now.after(ROUND);
    }
    rounds
}

/// Does what a step would do.
fn apply(target: &Target<'_>, observed: &mut Observed, action: &Action, now: Timestamp) -> StepOutcome {
    match action {
        Action::CreateNetwork { name, network, project: _, addresses: _ } => {
            let made = ObservedNetwork {
                id: name.clone(),
                agent: Some(AgentId(SWARM_OWNER.to_owned())),
                app: Some(target.stack.app.clone()),
                spec: Some(SpecHash::of(network)),
                ..ObservedNetwork::default()
            };
            observed.networks.insert(name.clone(), made);
        }
        Action::RemoveNetwork { name, .. } => {
            observed.networks.remove(name);
        }
        Action::Swarm(action) => {
            if let Some(swarm) = observed.swarm.as_deref_mut() {
                return apply_in_swarm(swarm, action, now);
            }
        }
        // The plan for a Swarm has no other steps.
        _ => {}
    }
    StepOutcome::Done
}

fn apply_in_swarm(swarm: &mut ObservedSwarm, action: &SwarmAction, now: Timestamp) -> StepOutcome {
    match action {
        // The registry knows the digest, and nobody asks it here.
        SwarmAction::ResolveImage { image, .. } => {
            let resolved = ResolvedImage { image: image.clone(), ..ResolvedImage::default() };
            return StepOutcome::Swarm(Box::new(SwarmResult::Resolved(resolved)));
        }
        SwarmAction::CreateFile { file, present, .. } => {
            let all = swarm.files_of_mut(file.kind());
            // Nobody can read a secret, so its content is taken to be the same.
            let name = present.as_ref().map_or(&file.name, |present| &present.name).clone();
            all.insert(file.name.clone(), SwarmObject { id: name.clone(), name });
        }
        SwarmAction::RemoveFile { name, secret, .. } => {
            if swarm.shared.take_if(|shared| shared.name == *name).is_none() {
                let all = swarm.files_of_mut(SwarmFileKind::of(*secret));
                all.retain(|_, object| object.name != *name);
            }
        }
        SwarmAction::CreateService { name, spec, .. } | SwarmAction::UpdateService { name, spec, .. } => {
            let former = swarm.services.remove(name);
            let service = ObservedService {
                id: former.as_ref().map_or_else(|| name.clone(), |it| it.id.clone()),
                version: former.as_ref().map_or(0, |it| it.version) + 1,
                spec: spec.clone(),
                update_state: former.as_ref().map(|_| "completed".to_owned()).unwrap_or_default(),
                desired_tasks: former.as_ref().and_then(|it| it.desired_tasks),
                ..ObservedService::default()
            };
            let id = service.id.clone();
            start(swarm, &service, now);
            swarm.services.insert(name.clone(), service);
            return StepOutcome::Swarm(Box::new(SwarmResult::Written { id, spec: spec.clone() }));
        }
        SwarmAction::StopService { name, id, spec, .. } => {
            if let Some(service) = swarm.services.get_mut(name) {
                service.spec = spec.clone();
            }
            swarm.tasks.retain(|_, task| task.service != *id);
        }
        SwarmAction::RemoveService { name, id } => {
            swarm.services.remove(name);
            swarm.tasks.retain(|_, task| task.service != *id);
        }
        SwarmAction::ShareState { .. } => {}
    }
    StepOutcome::Done
}

/// All tasks of a service, in the state that they come to.
fn start(swarm: &mut ObservedSwarm, service: &ObservedService, now: Timestamp) {
    let number = |path: &str| service.spec.pointer(path).and_then(Value::as_u64);
    let count = match service.mode() {
        Some(SwarmMode::Replicated) => number("/Mode/Replicated/Replicas").unwrap_or(1),
        Some(SwarmMode::ReplicatedJob) => number("/Mode/ReplicatedJob/TotalCompletions").unwrap_or(1),
        Some(SwarmMode::Global | SwarmMode::GlobalJob) | None => service.desired_tasks.unwrap_or(1),
    };
    let writes = service.spec.get("TaskTemplate").map(written_data).unwrap_or_default();
    let state = if service.is_job() { "complete" } else { "running" };
    swarm.tasks.retain(|_, task| task.service != service.id);
    let first = u32::from(!service.is_job());
    for slot in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        let id = format!("{}.{slot}", service.id);
        let task = SwarmTask {
            id: id.clone(),
            service: service.id.clone(),
            slot: Some(slot),
            node: Some(swarm.node.clone()),
            state: state.to_owned(),
            desired_state: if service.is_job() { "complete" } else { "running" }.to_owned(),
            since: now,
            created: now,
            is_current: true,
            writes: writes.clone(),
            ..SwarmTask::default()
        };
        swarm.tasks.insert(id, task);
    }
}
