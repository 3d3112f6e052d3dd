//! Services that the agent may change: its own, and those of a stack that it may adopt.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    Adopt, ObservedService, ObservedSwarm, STACK_NAMESPACE, Stack, WorkloadName, label, swarm_service_name,
};

use super::{action::SwarmAction, spec::OWNER};
use crate::{
    action::Action,
    draft::Draft,
    facts::Facts,
    steps::Step,
    wait::{Wait, WaitObject, WaitReason},
};

/// The services that `docker stack deploy` created for the project of a stack, by their workloads. Those of Jobs are not among
/// them: an update would run a Job once more.
pub fn adoptable_services(stack: &Stack, swarm: &ObservedSwarm) -> BTreeMap<WorkloadName, String> {
    let workloads = stack.workloads.iter().filter(|(_, workload)| workload.job_or_template().is_none());
    let named = workloads.map(|(name, _)| (name.clone(), swarm_service_name(&stack.project, name)));
    named
        .filter(|(_, full)| swarm.services.get(full).is_some_and(|found| found.is_of_stack(&stack.project)))
        .collect()
}

/// Whether a service is one of an application, and goes when Git does not have it any more. One of the two labels is enough for a
/// service of its stack: the other was removed by hand. None is needed for one that the record knows by its id.
pub fn is_of_application(stack: &Stack, service: &ObservedService) -> bool {
    if service.is_unlabelled {
        return true;
    }
    let is_own = service.label(label::AGENT).map(|agent| agent == OWNER);
    let is_of_app = service.label(label::APPLICATION).map(|app| app == stack.app.as_str());
    match (is_own, is_of_app) {
        (Some(true), Some(true)) => true,
        (Some(true), None) | (None, Some(true)) => {
            service.label(STACK_NAMESPACE) == Some(stack.project.as_str())
        }
        (_, _) => false,
    }
}

/// The workload of a service that Git does not have. One without the label has the name of its stack before that of its workload.
pub(super) fn workload_of(name: &str, service: &ObservedService) -> WorkloadName {
    let in_stack = || {
        let prefix = service.label(STACK_NAMESPACE)?.replace('.', "_") + "_";
        name.strip_prefix(prefix.as_str())
    };
    WorkloadName(service.label(label::WORKLOAD).or_else(in_stack).unwrap_or(name).to_owned())
}

/// Whether the agent may change a service. Says why not.
pub(super) fn is_own(draft: &mut Draft<'_>, name: &WorkloadName, found: &ObservedService) -> bool {
    let Some(wait) = objection(draft.facts, name, found) else { return true };
    draft.wait(wait);
    false
}

/// Why the agent may not change a service.
pub(super) fn objection(facts: &Facts<'_>, name: &WorkloadName, found: &ObservedService) -> Option<Wait> {
    let target = facts.target;
    // One of the two labels is enough: the other was removed by hand, and is written again.
    let is_labelled = found.label(label::AGENT) == Some(OWNER)
        && found.label(STACK_NAMESPACE) == Some(target.stack.project.as_str());
    match found.label(label::APPLICATION) {
        Some(app) if app == target.stack.app.as_str() => return None,
        None if is_labelled || has_lost_labels(found) => return None,
        Some(app) => {
            let sentence = format!(
                "needs a service that belongs to the application `{app}`: give the project another `name`"
            );
            return Some(Wait::new(WaitObject::Workload(name.clone()), WaitReason::Blocked, sentence));
        }
        None => {}
    }
    let record = facts.record.swarm.as_ref();
    let is_asked_for = record.is_some_and(|record| record.adopts.contains(name));
    let sentence = match (found.is_of_stack(&target.stack.project), target.policy.adopt) {
        (true, Adopt::Auto) => return None,
        (true, Adopt::Ask) if is_asked_for => return None,
        (true, Adopt::Ask) => format!(
            "has a service of `docker stack deploy`: adopt it with `driftless adopt {}`, set `adopt: auto`, or remove it",
            target.stack.app
        ),
        (true, Adopt::Never) => {
            "has a service of `docker stack deploy`, and `adopt` is `never`: set `adopt: ask` to adopt it, or give the project another `name`".to_owned()
        }
        (false, _) => {
            "has a service that somebody else created: remove it, or give the project another `name`".to_owned()
        }
    };
    Some(Wait::new(WaitObject::Workload(name.clone()), WaitReason::NotAdopted, sentence))
}

/// Whether a service of the application has lost all labels, as by `docker stack deploy`: that is drift. A Job is not written again, as
/// that would run it.
pub(super) fn has_lost_labels(found: &ObservedService) -> bool {
    found.is_unlabelled && !found.is_job()
}

/// The services that this round does not remove.
pub(super) fn staying<'a>(
    draft: &Draft<'_>,
    swarm: &'a ObservedSwarm,
) -> impl Iterator<Item = &'a ObservedService> + use<'a> {
    let removed = |step: &Step| match &step.action {
        Action::Swarm(action) => match action.as_ref() {
            SwarmAction::RemoveService { name, .. } => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    let removed: BTreeSet<String> = draft.plan.steps.iter().filter_map(removed).collect();
    swarm.services.iter().filter(move |(name, _)| !removed.contains(*name)).map(|(_, service)| service)
}
