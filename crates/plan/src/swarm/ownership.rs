//! Services that the agent may change: its own, and those of a stack that it may adopt.

use driftless_model::{Adopt, ObservedService, STACK_NAMESPACE, WorkloadName, label};

use super::spec::OWNER;
use crate::{
    draft::Draft,
    wait::{Wait, WaitObject, WaitReason},
};

/// Whether the agent may change a service. Says why not.
pub(super) fn is_own(draft: &mut Draft<'_>, name: &WorkloadName, found: &ObservedService) -> bool {
    let target = draft.facts.target;
    let is_ours = found.label(label::AGENT) == Some(OWNER);
    match found.label(label::APPLICATION) {
        Some(app) if is_ours && app == target.stack.app.as_str() => return true,
        Some(app) => {
            let sentence = format!(
                "needs a service that belongs to the application `{app}`: give the project another `name`"
            );
            draft.wait(Wait::swarm(WaitObject::Workload(name.clone()), WaitReason::Blocked, sentence));
            return false;
        }
        None => {}
    }
    let is_of_stack = found.label(STACK_NAMESPACE) == Some(target.stack.project.as_str());
    if is_of_stack && target.policy.adopt == Adopt::Auto {
        return true;
    }
    let by = if is_of_stack { "docker stack" } else { "somebody else" };
    let sentence =
        format!("has a service of {by}: set `adopt: auto` to adopt the services of a stack, or remove it");
    draft.wait(Wait::swarm(WaitObject::Workload(name.clone()), WaitReason::NotAdopted, sentence));
    false
}
