//! The runs of CronJobs: begun when they are due, and part of the target as long as the record has them.

use driftless_model::{EngineKind, Record};
use driftless_plan::{CronEvent, schedule};

use crate::{context::AppContext, target_revision::TargetRevision};

/// Adds the runs that are due to the record and to the stack of the target, unless the application is suspended.
pub(crate) fn begin_due(context: &AppContext, record: &mut Record, target: &mut TargetRevision) {
    if target.policy.suspended {
        return;
    }
    // The agent on the leader of a Swarm begins them; the others take them up from there.
    let leads = record.swarm.as_ref().is_some_and(|swarm| swarm.leads);
    if target.policy.engine == EngineKind::Swarm && !leads {
        target.add_runs(record);
        return;
    }
    for CronEvent { kind, reason, object, message } in schedule(record, &target.stack, context.now()) {
        context.event(kind, reason, &object, &message);
    }
    target.add_runs(record);
}
