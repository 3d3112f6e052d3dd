//! Dependencies of services: a Swarm itself starts all at once.

use driftless_model::{Condition, Dependency, ObservedSwarm, Subject, SwarmTask, swarm_service_name};

use super::tasks::{desired, is_running, wants_none};
use crate::{
    draft::Draft,
    facts::jobs::{JobPart, record_of},
    wait::Wait,
};

/// Whether the dependencies of a service are met. Says what it waits for.
pub(super) fn is_ready_for(draft: &mut Draft<'_>, swarm: &ObservedSwarm, subject: Subject<'_>) -> bool {
    let stack = draft.facts.target.stack;
    let mut is_ready = true;
    for dependency in &subject.workload.after {
        let on = &dependency.workload;
        if let Some(is_done) = has_done_its_part(draft, dependency) {
            if !is_done {
                draft.wait(Wait::dependency(subject.name, on, "it has not completed"));
                is_ready = false;
            }
            continue;
        }
        let service = swarm.services.get(&swarm_service_name(&stack.project, on));
        let Some(service) = service else {
            if dependency.required {
                draft.wait(Wait::dependency(subject.name, on, "its service does not exist yet"));
                is_ready = false;
            }
            continue;
        };
        let tasks: Vec<&SwarmTask> = swarm.tasks_of(&service.id).collect();
        let running = tasks.iter().filter(|task| is_running(task)).count() as u64;
        let workload = stack.workloads.get(on);
        let wants_none = wants_none(service, workload, draft.facts.now);
        let (is_met, why) = match dependency.condition {
            Condition::Started => (running > 0 || wants_none, "no task of it runs"),
            Condition::CompletedSuccessfully => (
                tasks.iter().any(|task| task.is_current && task.state == "complete"),
                "no task of it has completed",
            ),
            Condition::Healthy => {
                let has_all = running > 0 && running >= desired(service, workload);
                (has_all || wants_none, "not all of its tasks run")
            }
        };
        if !is_met {
            draft.wait(Wait::dependency(subject.name, on, why));
            is_ready = false;
        }
    }
    is_ready
}

/// Whether a Job that a service depends on is complete. `None`: the tasks of another service, or of a Job that only has to be
/// started, say so.
fn has_done_its_part(draft: &Draft<'_>, dependency: &Dependency) -> Option<bool> {
    let stack = draft.facts.target.stack;
    let (name, workload) = stack.workloads.get_key_value(&dependency.workload)?;
    let part = JobPart { subject: Subject { name, workload }, job: workload.job()? };
    let known = record_of(draft.facts.record, &[part]);
    let is_complete = known.is_some_and(|known| known.ended.is_some() && !known.has_failed());
    let is_awaited = dependency.condition == Condition::CompletedSuccessfully && dependency.required;
    (is_complete || is_awaited).then_some(is_complete)
}
