//! The version of an application that was reached last. The planner keeps its workloads while the target has to wait.

use driftless_model::{Outcome, Record, Revision, Stack, last_reached};
use driftless_plan::with_scales;

use crate::{context::AppContext, target_revision::TargetRevision};

/// The stack that was last reached, unless it is the target, and the target is reached still. The planner keeps its workloads while an
/// image of the target is missing.
pub(crate) fn fallback(context: &AppContext, target: &TargetRevision, record: &Record) -> Option<Stack> {
    let last = reached_last(context, target, record)?;
    if last.stack == target.hash && record.settled.is_some() {
        return None;
    }
    let stack = context.store().stack(context.name(), last.number).ok()??;
    Some(with_scales(&stack, record).into_owned())
}

/// The revision that was reached last, also if it has failed since: its containers may have changed data that an older version would find.
/// A rollback after such a failure, or a commit that reverts it, goes back to the last one that succeeded.
pub(crate) fn reached_last(
    context: &AppContext,
    target: &TargetRevision,
    record: &Record,
) -> Option<Revision> {
    let mut history = context.store().revisions(context.name()).ok()?;
    // An older agent stored it with the failure alone.
    let failed = record.failed.as_ref().filter(|failed| failed.was_reached);
    for revision in &mut history {
        revision.was_reached |= failed.is_some_and(|failed| failed.revision == revision.number);
    }
    let succeeded = history.iter().find(|revision| revision.outcome == Outcome::Succeeded);
    let is_reverted = succeeded.is_some_and(|succeeded| succeeded.stack == target.hash);
    let goes_back = !target.is_newest() || is_reverted;
    let last = if goes_back { succeeded } else { last_reached(&history) };
    last.cloned()
}
