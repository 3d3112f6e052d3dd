//! An application of a Docker Swarm in a round: its tasks become instances, and global services have as many as there are
//! nodes for them.

pub(crate) mod agreement;
pub(crate) mod fetch;
pub(crate) mod state;

use std::sync::Arc;

use driftless_model::{AgentId, EngineKind, Mask, Observed, Policy, Record, Stack, Timestamp};
use driftless_plan as plan;

use crate::{
    hooks,
    revisions::target::{TargetRevision, stack_with_runs},
};

/// Completes what was observed of a Swarm, and the target with it. Without a Swarm nothing changes.
pub(crate) fn complete(
    target: &mut TargetRevision,
    observed: &mut Observed,
    record: &mut Record,
    agent: &AgentId,
    now: Timestamp,
) {
    if observed.swarm.is_none() {
        if record.swarm.is_some() && observed.left_in_swarm.is_empty() {
            record.swarm = None;
        }
        return;
    }
    if plan::follow_runs(record, &target.stack, observed, now) {
        target.add_runs(record);
    }
    if let Some(stack) = plan::with_global_tasks(&target.stack, observed) {
        target.stack = Arc::new(stack);
    }
    // Nothing is printed here, so there is nothing to hide.
    let mask = Mask::new([0; 32]);
    plan::with_tasks(&target.for_planner(None, agent, &mask), observed, record);
}

/// Drops what a user asked of this agent alone, if another one leads now and has not heard of it. Done when this node leads again, it
/// would surprise.
pub(crate) fn drop_requests(observed: &Observed, record: &mut Record) {
    let is_led_elsewhere =
        observed.swarm.as_ref().is_some_and(|swarm| swarm.leader().is_some() && !swarm.is_leader());
    if !is_led_elsewhere {
        return;
    }
    (record.prune, record.heal_once) = (None, None);
    if record.removal.take().is_some() {
        hooks::cancel_removal(record);
    }
}

/// Whether a Swarm has services of the application, also those without tasks.
pub(crate) fn has_services(stack: &Stack, observed: &Observed) -> bool {
    let mut services = observed.swarm.iter().flat_map(|swarm| swarm.services.values());
    services.any(|service| plan::is_of_application(stack, service))
}

/// The policy for a stack that no agent's configuration comes with.
pub(crate) fn default_policy(stack: &Stack) -> Policy {
    let engine = if stack.swarm.is_empty() { EngineKind::Docker } else { EngineKind::Swarm };
    Policy { engine, ..Policy::default() }
}

/// A stack as an agent without a record completes it: with the runs that the Swarm has, and with as many tasks of global services
/// as there are nodes for them. `None`: nothing is to add.
pub(crate) fn completed_stack(
    stack: &Stack,
    observed: &Observed,
    record: &mut Record,
    now: Timestamp,
) -> Option<Arc<Stack>> {
    let has_runs = plan::follow_runs(record, stack, observed, now);
    let whole = if has_runs { stack_with_runs(stack, record) } else { None };
    plan::with_global_tasks(whole.as_deref().unwrap_or(stack), observed).map(Arc::new).or(whole)
}

#[cfg(test)]
mod tests {
    use driftless_model::{ObservedSwarm, Removal, SwarmNode};

    use super::*;

    #[test]
    fn removal_asked_of_a_former_leader_is_dropped() {
        for leader in ["n1", "n2"] {
            let node = |id: &str| {
                let node = SwarmNode { is_manager: true, is_leader: id == leader, ..SwarmNode::default() };
                (id.to_owned(), node)
            };
            let swarm = ObservedSwarm {
                node: "n1".to_owned(),
                nodes: [node("n1"), node("n2")].into(),
                ..ObservedSwarm::default()
            };
            let observed = Observed { swarm: Some(Box::new(swarm)), ..Observed::default() };
            let mut record = Record { removal: Some(Removal::KeepVolumes), ..Record::default() };
            drop_requests(&observed, &mut record);
            assert_eq!(record.removal.is_some(), leader == "n1");
        }
    }
}
