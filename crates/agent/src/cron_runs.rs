//! The runs of CronJobs: begun when they are due, and part of the target as long as the record has them.

use std::{borrow::Cow, sync::Arc};

use driftless_model::{Policy, Record, Stack};
use driftless_plan::{CronEvent, schedule, with_runs};

use crate::context::AppContext;

/// Adds the runs that are due to the record and to the stack of the target, unless the application is suspended.
pub(crate) fn begin_due(context: &AppContext, record: &mut Record, stack: &mut Arc<Stack>, policy: &Policy) {
    if policy.suspended {
        return;
    }
    for CronEvent { kind, reason, object, message } in schedule(record, stack, context.now()) {
        context.event(kind, reason, &object, &message);
    }
    add_runs(stack, record);
}

/// Adds the runs in the record to a stack.
pub(crate) fn add_runs(stack: &mut Arc<Stack>, record: &Record) {
    let with_runs = match with_runs(stack, record) {
        Cow::Owned(with_runs) => with_runs,
        Cow::Borrowed(_) => return,
    };
    *stack = Arc::new(with_runs);
}
