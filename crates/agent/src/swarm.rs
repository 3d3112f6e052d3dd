//! An application of a Docker Swarm in a round: its tasks become instances, and global services have as many as there are
//! nodes for them.

use std::sync::Arc;

use driftless_model::{AgentId, EngineKind, Mask, Observed, Policy, Record, Stack, Timestamp};
use driftless_plan as plan;

use crate::target_revision::{TargetRevision, stack_with_runs};

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
