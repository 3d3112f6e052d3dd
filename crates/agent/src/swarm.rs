//! An application of a Docker Swarm in a round: its tasks become instances, and global services have as many as there are
//! nodes for them.

use std::sync::Arc;

use driftless_model::{AgentId, Mask, Observed, Record, Timestamp};
use driftless_plan as plan;

use crate::target_revision::TargetRevision;

/// Completes what was observed of a Swarm, and the target with it. Without a Swarm nothing changes.
pub(crate) fn complete(
    target: &mut TargetRevision,
    observed: &mut Observed,
    record: &mut Record,
    agent: &AgentId,
    now: Timestamp,
) {
    if observed.swarm.is_none() {
        if record.swarm.is_some() && observed.left_services.is_empty() {
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
