//! Dependencies of services: a Swarm itself starts all at once.

use driftless_model::{
    Condition, Dependency, ObservedSwarm, Subject, SwarmTask, WorkloadName, swarm_service_name,
};

use super::tasks::{completed, desired, is_running, wants_none};
use crate::{
    draft::Draft,
    facts::jobs::{JobPart, record_of},
    wait::Wait,
};

/// Whether the dependencies of a service are met. Says what it waits for.
pub(super) fn is_ready_for(draft: &mut Draft<'_>, swarm: &ObservedSwarm, subject: Subject<'_>) -> bool {
    let unmet = unmet_dependencies(draft, swarm, subject);
    for (on, why) in &unmet {
        draft.wait(Wait::dependency(subject.name, on, why));
    }
    unmet.is_empty()
}

/// The dependencies of a service that are not met, each with the reason.
pub(super) fn unmet_dependencies<'s>(
    draft: &Draft<'_>,
    swarm: &ObservedSwarm,
    subject: Subject<'s>,
) -> Vec<(&'s WorkloadName, &'static str)> {
    let all = subject.workload.after.iter();
    all.filter_map(|dependency| Some((&dependency.workload, lacks(draft, swarm, dependency)?))).collect()
}

/// The reason why a dependency is not met.
fn lacks(draft: &Draft<'_>, swarm: &ObservedSwarm, dependency: &Dependency) -> Option<&'static str> {
    let stack = draft.facts.target.stack;
    let on = &dependency.workload;
    if let Some(is_done) = has_done_its_part(draft, dependency) {
        return (!is_done).then_some("it has not completed");
    }
    let Some(service) = swarm.services.get(&swarm_service_name(&stack.project, on)) else {
        return dependency.required.then_some("its service does not exist yet");
    };
    let tasks: Vec<&SwarmTask> = swarm.tasks_of(&service.id).collect();
    let running = tasks.iter().filter(|task| is_running(task)).count();
    // One that has ended as it is meant to has been started.
    let available = (running + completed(swarm, service).len()) as u64;
    let workload = stack.workloads.get(on);
    let wants_none = wants_none(swarm, service, workload, draft.facts.now);
    let (is_met, why) = match dependency.condition {
        Condition::Started => (available > 0 || wants_none, "no task of it runs"),
        Condition::CompletedSuccessfully => (
            tasks.iter().any(|task| task.is_current && task.state == "complete"),
            "no task of it has completed",
        ),
        Condition::Healthy => {
            let has_all = available > 0 && available >= desired(swarm, service, workload);
            (has_all || wants_none, "not all of its tasks run")
        }
    };
    (!is_met).then_some(why)
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
