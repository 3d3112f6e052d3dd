//! The revisions of an application in the database, and the requests of users there.

use std::sync::Arc;

use driftless_model::{Cause, Policy};
use driftless_store as store;

use crate::{context::AppContext, desired::Desired, error::chain, revisions::target::TargetRevision};

/// A revision of the database as a target, or nothing if it cannot be read. A removal, which an older release could pin, stays one.
pub(crate) fn read_revision(
    context: &AppContext,
    number: u64,
    policy: Policy,
    cause: Cause,
) -> Result<Option<TargetRevision>, store::Error> {
    let revision = context.store().revision(context.name(), number)?;
    let stack = context.store().stack(context.name(), number)?;
    let (Some(revision), Some(stack)) = (revision, stack) else { return Ok(None) };
    let cause = if revision.is_removal() { Cause::Removal } else { cause };
    let target = TargetRevision::new(Arc::new(stack.for_rollback()), revision.commit, policy, cause);
    Ok(Some(TargetRevision { images: revision.images, ..target }))
}

/// The policy of the configuration, and the suspension that a user asked for.
pub(crate) fn policy_now(context: &AppContext, desired: &Desired) -> Result<Policy, store::Error> {
    let mut policy = desired.rendered().policy.clone();
    policy.suspended |= context.store().suspended(context.name())?;
    Ok(policy)
}

/// Removes an application of which nothing is left from the database.
pub(crate) fn forget(context: &AppContext) {
    match context.store().forget_application(context.name()) {
        // The names and ports of the application are free now.
        Ok(true) => context.wake_supervisor(),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(error = chain(&error), "could not remove the application from the database");
        }
    }
}
