//! The version of an application that was reached last. The planner keeps its workloads while the target has to wait.

use driftless_model::{Outcome, Record, Revision, Stack, is_version_of, last_reached};
use driftless_plan::with_scales;
use driftless_store as store;

use crate::{context::AppContext, revisions::target::TargetRevision};

/// The stack that was last reached, unless it is the target, and the target is reached still. The planner asks what it had, and keeps its
/// workloads while the target has to wait. `None` also if another release stored it in a form that this one cannot read: that lasts. An
/// error means that nobody knows, and no decision about data may be made without it.
pub(crate) fn reached_stack(
    context: &AppContext,
    target: &TargetRevision,
    record: &Record,
) -> Result<Option<Stack>, store::Error> {
    let Some(last) = reached_last(context, target, record)? else { return Ok(None) };
    if last.stack == target.hash && record.settled.is_some() {
        return Ok(None);
    }
    let stack = context.store().readable_stack(&last)?;
    Ok(stack.map(|stack| with_scales(&stack, record).into_owned()))
}

/// The revision that was reached last, also if it has failed since: its containers may have changed data that an older version would find.
/// A rollback after such a failure, or a commit that reverts it, goes back to the last one that succeeded.
pub(crate) fn reached_last(
    context: &AppContext,
    target: &TargetRevision,
    record: &Record,
) -> Result<Option<Revision>, store::Error> {
    let mut history = context.store().revisions(context.name())?;
    // An older agent stored it with the failure alone.
    let failed = record.failed.as_ref().filter(|failed| failed.was_reached);
    for revision in &mut history {
        revision.was_reached |= failed.is_some_and(|failed| failed.revision == revision.number);
    }
    let succeeded = history.iter().find(|revision| revision.outcome == Outcome::Succeeded);
    // Also if that went back to the version of the target, without a canary and so with another hash.
    let is_reverted = succeeded.is_some_and(|succeeded| is_version_of(&history, succeeded, &target.hash));
    let goes_back = !target.is_newest() || is_reverted;
    let last = if goes_back { succeeded } else { last_reached(&history) };
    Ok(last.cloned())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use driftless_model::{Cause, CommitInfo, FailedCommit, Policy};
    use driftless_store::NewRevision;

    use super::*;
    use crate::{
        context::tests::{context, new_revision},
        desired::tests::stack,
    };

    fn target(project: &str) -> TargetRevision {
        TargetRevision::new(Arc::new(stack(project)), CommitInfo::default(), Policy::default(), Cause::Commit)
    }

    /// Begins a revision and gives it these outcomes.
    fn run_as(context: &AppContext, new: &NewRevision, project: &str, outcomes: &[&Outcome]) -> Revision {
        let store = context.store();
        let begun = store.begin_revision(new, &stack(project)).unwrap();
        for outcome in outcomes {
            store.finish_revision(context.name(), begun.number, outcome, &BTreeMap::new()).unwrap();
        }
        begun
    }

    #[test]
    fn reached_version_counts_until_the_application_goes_back() {
        let (context, _folder) = context();
        let failed = Outcome::Failed { reason: "web exited".to_owned() };
        let new = new_revision(context.name());
        let run = |project: &str, outcomes: &[&Outcome]| run_as(&context, &new, project, outcomes);
        let last = |target: &TargetRevision, record: &Record| {
            reached_last(&context, target, record).unwrap().map(|revision| revision.number)
        };
        let record = Record::default();
        run("a", &[&Outcome::Succeeded]);
        run("b", &[&Outcome::Succeeded, &failed]);
        assert_eq!(last(&target("b"), &record), Some(2));
        assert_eq!(last(&target("c"), &record), Some(2), "a later commit");
        assert_eq!(last(&target("a"), &record), Some(1), "a commit that reverts it");
        let back = TargetRevision { back_to: Some(1), ..target("a") };
        assert_eq!(last(&back, &record), Some(1));
        let third = run("c", &[&failed]);
        assert_eq!(last(&target("c"), &record), Some(2));
        // An older agent stored only here that it was reached.
        let known = FailedCommit {
            commit: third.commit.id,
            stack: third.stack,
            revision: third.number,
            reason: "web exited".to_owned(),
            at: context.now(),
            back_to: None,
            was_reached: true,
            action: None,
            images: None,
        };
        let record = Record { failed: Some(known), ..Record::default() };
        assert_eq!(last(&target("c"), &record), Some(3));
    }

    #[test]
    fn overtaken_revert_leaves_the_version_that_failed() {
        let (context, _folder) = context();
        let failed = Outcome::Failed { reason: "web exited".to_owned() };
        let new = new_revision(context.name());
        run_as(&context, &new, "a", &[&Outcome::Succeeded]);
        run_as(&context, &new, "b", &[&Outcome::Succeeded, &failed]);
        run_as(&context, &new, "a", &[]);
        let last = reached_last(&context, &target("c"), &Record::default()).unwrap();
        assert_eq!(last.map(|revision| revision.number), Some(1));
    }

    #[test]
    fn revert_to_the_version_of_a_rollback_is_recognised() {
        let (context, _folder) = context();
        let failed = Outcome::Failed { reason: "web exited".to_owned() };
        let new = new_revision(context.name());
        let first = run_as(&context, &new, "a", &[&Outcome::Succeeded]);
        run_as(&context, &new, "b", &[&failed]);
        let (cause, rollback_of) = (Cause::AutomaticRollback, Some(first.number));
        let back = NewRevision { cause, rollback_of, ..new_revision(context.name()) };
        let back = run_as(&context, &back, "a without a canary", &[&Outcome::Succeeded]);
        run_as(&context, &new, "c", &[&Outcome::Succeeded, &failed]);
        let last = |project: &str| {
            let last = reached_last(&context, &target(project), &Record::default()).unwrap();
            last.map(|revision| revision.number)
        };
        assert_eq!(last("a"), Some(back.number));
        assert_eq!(last("d"), Some(4), "no revert");
    }
}
