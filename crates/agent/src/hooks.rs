//! The hooks of an application: begun when their phase comes. A phase that has begun is in the database before its first
//! container is created, so no hook runs twice in one attempt, whenever the agent ends.

use std::collections::BTreeMap;

use driftless_model::{EventKind, HookPhase, HookRecord, Outcome, Record, Revision, Stack};
use driftless_plan::{begin_attempt, begin_removal, has_hook, has_post_synced};

use crate::{context::AppContext, record::StoredRecord, revisions::target::TargetRevision};

/// The revision that is applied, and its target.
pub(crate) struct Sync<'a> {
    pub(crate) current: Option<&'a Revision>,
    pub(crate) target: &'a TargetRevision,
}

impl<'a> Sync<'a> {
    /// The revision, if it is that of the target and the application is not suspended.
    fn revision(&self) -> Option<&'a Revision> {
        let is_of_it = |current: &&Revision| current.stack == self.target.hash;
        self.current.filter(is_of_it).filter(|_| !self.target.policy.suspended && !self.target.is_leaving)
    }
}

/// Whether a settled target has to wait for `PostSync` hooks before its revision has succeeded.
pub(crate) fn awaits_post_sync(record: &Record, sync: &Sync<'_>) -> bool {
    let Sync { current, target } = sync;
    if target.policy.suspended || target.is_leaving || target.back_to.is_some() {
        return false;
    }
    let has_succeeded =
        current.is_some_and(|current| current.stack == target.hash && current.outcome == Outcome::Succeeded);
    !has_succeeded && !has_post_synced(record, &target.stack)
}

/// Begins the attempt of a new revision, or its `PostSync` hooks once everything else is done. True: the target must be
/// chosen again.
pub(crate) fn advance(
    context: &AppContext,
    record: &mut StoredRecord,
    sync: &Sync<'_>,
    is_settled: bool,
) -> bool {
    let Some(revision) = sync.revision() else { return false };
    let stack = &*sync.target.stack;
    let known = record.get().hooks.as_deref();
    if sync.target.back_to.is_some() {
        return exempt(context, record, sync, revision);
    }
    let is_begun = known.is_some_and(|hooks| hooks.revision == revision.number && !hooks.again);
    if !is_begun {
        if known.is_none() && !has_hooks(stack) {
            return false;
        }
        match revision.outcome {
            Outcome::InProgress => {}
            // It waits for a retry, or for the room on the disk to be in progress again.
            Outcome::Failed { .. } if known.is_some_and(|hooks| hooks.again) => return false,
            // Its hooks ran before the record was lost.
            Outcome::Succeeded | Outcome::Failed { .. } | Outcome::Superseded => {
                return exempt(context, record, sync, revision);
            }
        }
        begin_attempt(record.get_mut(), stack, revision.number);
        record.save(context);
        report(context, record.get(), HookPhase::PreSync);
        return true;
    }
    let is_due = is_settled && awaits_post_sync(record.get(), sync);
    is_due && begin_phase(context, record, HookPhase::PostSync)
}

/// Whether another attempt at a failed revision is due that is not in progress yet: the agent ended while it began, or a removal cut
/// the last one off. Not while the failure pauses its rollouts, nor of a revision that the application went back to by itself: it runs
/// without hooks.
pub(crate) fn awaits_another_attempt(record: &Record, sync: &Sync<'_>) -> bool {
    if sync.target.back_to.is_some() {
        return false;
    }
    let Some(revision) = sync.revision() else { return false };
    let has_failed = matches!(revision.outcome, Outcome::Failed { .. });
    let is_paused = record.failed.as_ref().is_some_and(|failed| failed.stack == revision.stack);
    has_failed && !is_paused && record.hooks.as_deref().is_some_and(|hooks| hooks.again)
}

/// Begins the hooks of a revision that has failed. They run while the application goes back to an older revision, too.
pub(crate) fn begin_sync_fail(context: &AppContext, record: &mut StoredRecord, current: Option<&Revision>) {
    let Some(hooks) = record.get().hooks.as_deref().filter(|hooks| !hooks.again) else { return };
    let number = hooks.revision;
    let is_failed =
        |current: &Revision| current.number == number && matches!(current.outcome, Outcome::Failed { .. });
    let has_failed = record.get().failed.as_ref().is_some_and(|failed| failed.revision == number)
        || current.is_some_and(is_failed);
    if has_failed {
        begin_phase(context, record, HookPhase::SyncFail);
    }
}

/// Begins the hooks before the removal of an application. True: the target must be chosen again.
pub(crate) fn begin_pre_delete(context: &AppContext, record: &mut StoredRecord, sync: &Sync<'_>) -> bool {
    let Sync { current: Some(current), target } = sync else { return false };
    if !target.is_leaving || target.policy.suspended {
        return false;
    }
    let is_begun = |hooks: &HookRecord| {
        hooks.begun.contains(&HookPhase::PreDelete) && hooks.stack == target.hash && !hooks.again
    };
    if record.get().hooks.as_deref().is_some_and(is_begun) {
        return false;
    }
    if current.outcome == Outcome::Succeeded {
        // Its hooks ran, although the record may be lost.
        exempt(context, record, sync, current);
    }
    begin_removal(record.get_mut(), &target.stack, current.number);
    record.save(context);
    report(context, record.get(), HookPhase::PreDelete);
    true
}

/// Forgets the hooks of a removal, because Git has the application again. A commit that was not reached before gets another attempt.
pub(crate) fn cancel_removal(record: &mut Record) {
    if let Some(hooks) = record.hooks.as_mut().filter(|hooks| hooks.begun.contains(&HookPhase::PreDelete)) {
        hooks.begun.clear();
        hooks.runs.clear();
        hooks.again = hooks.exempt.as_ref() != Some(&hooks.stack);
        hooks.deletable = false;
    }
}

/// Removes an application without its `PreDelete` hooks.
pub(crate) fn skip_pre_delete(record: &mut Record, stack: &Stack, revision: u64) {
    begin_removal(record, stack, revision);
    if let Some(hooks) = &mut record.hooks {
        hooks.runs.clear();
        hooks.deletable = true;
    }
}

/// Lets the hooks of a failed revision run again.
pub(crate) fn try_again(record: &mut Record) {
    if let Some(hooks) = &mut record.hooks {
        (hooks.again, hooks.passed) = (true, false);
    }
}

/// Lets the hooks of a removal run again that failed. The `PreSync` hooks have passed or not, as before.
pub(crate) fn try_removal_again(record: &mut Record) {
    if let Some(hooks) = &mut record.hooks {
        hooks.again = true;
    }
}

/// The stack is applied without hooks. True: that is new.
pub(crate) fn exempt(
    context: &AppContext,
    record: &mut StoredRecord,
    sync: &Sync<'_>,
    revision: &Revision,
) -> bool {
    let hash = &sync.target.hash;
    let is_known = record.get().hooks.as_deref().is_some_and(|hooks| hooks.exempt.as_ref() == Some(hash));
    if is_known || !has_hooks(&sync.target.stack) {
        return false;
    }
    let fresh = || Box::new(HookRecord::new(revision.number, 0, hash.clone(), BTreeMap::default()));
    record.get_mut().hooks.get_or_insert_with(fresh).exempt = Some(hash.clone());
    record.save(context);
    true
}

fn has_hooks(stack: &Stack) -> bool {
    let phases = [HookPhase::PreSync, HookPhase::PostSync, HookPhase::SyncFail];
    phases.into_iter().any(|phase| has_hook(stack, phase))
}

/// Begins a phase, once. True: it has begun now.
fn begin_phase(context: &AppContext, record: &mut StoredRecord, phase: HookPhase) -> bool {
    let hooks = record.get_mut().hooks.as_deref_mut();
    let hooks = hooks.filter(|hooks| hooks.of_phase(phase).next().is_some());
    if !hooks.is_some_and(|hooks| hooks.begun.insert(phase)) {
        return false;
    }
    record.save(context);
    report(context, record.get(), phase);
    true
}

fn report(context: &AppContext, record: &Record, phase: HookPhase) {
    let Some(hooks) = record.hooks.as_deref() else { return };
    let runs: Vec<&str> = hooks.of_phase(phase).map(|(name, _)| name.as_str()).collect();
    if runs.is_empty() {
        return;
    }
    let object = format!("revision {}", hooks.revision);
    let message = format!("{phase} hooks begun: {}", runs.join(", "));
    context.event(EventKind::Normal, "HooksStarted", &object, &message);
}
