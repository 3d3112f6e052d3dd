//! The runs of CronJobs: begun when they are due, and part of the target as long as the record has them.

use driftless_model::Timestamp;
use driftless_plan::{CronEvent, Plan, schedule};

use crate::{context::AppContext, record::StoredRecord};

/// Begins the runs that a plan finds due, and forgets old ones. They are in the database before their containers are created. True:
/// the target must be chosen again.
pub(crate) fn begin_due(
    context: &AppContext,
    record: &mut StoredRecord,
    plan: &Plan,
    now: Timestamp,
) -> bool {
    let Some(stack) = plan.due_runs.as_deref() else { return false };
    let events = schedule(record.get_mut(), stack, now);
    record.save(context);
    for CronEvent { kind, reason, object, message } in events {
        context.event(kind, reason, &object, &message);
    }
    true
}
