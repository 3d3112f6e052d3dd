//! The runs of CronJobs: begun when they are due, and part of the target as long as the record has them.

use driftless_model::Record;
use driftless_plan::{CronEvent, schedule};

use crate::{context::AppContext, target_revision::TargetRevision};

/// Adds the runs that are due to the record and to the stack of the target, unless the application is suspended.
pub(crate) fn begin_due(context: &AppContext, record: &mut Record, target: &mut TargetRevision) {
    if target.policy.suspended {
        return;
    }
    for CronEvent { kind, reason, object, message } in schedule(record, &target.stack, context.now()) {
        context.event(kind, reason, &object, &message);
    }
    target.add_runs(record);
}
