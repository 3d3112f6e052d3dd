//! Beginning the hooks of an attempt and of its phases.

use driftless_model::{HookPhase, HookRecord, Record, Stack, StackHash};

use crate::facts::hooks::{has_hook, has_succeeded, is_held_by_hooks, run, templates};

/// Begins an attempt to sync a revision. Runs of other attempts are forgotten, and their containers are removed.
pub fn begin_attempt(record: &mut Record, stack: &Stack, revision: u64) {
    let before = record.hooks.take().filter(|hooks| hooks.revision == revision);
    let attempt = before.map_or(0, |hooks| hooks.attempt).saturating_add(1);
    let decided = [HookPhase::PreSync, HookPhase::PostSync, HookPhase::SyncFail];
    let hooks = new_record(stack, revision, attempt, &decided);
    if hooks.runs.is_empty() {
        return;
    }
    let passed = !has_hook(stack, HookPhase::PreSync);
    record.hooks = Some(Box::new(HookRecord { passed, begun: [HookPhase::PreSync].into(), ..hooks }));
}

/// Begins an attempt to remove an application: its `PreDelete` hooks. A commit that still waits for its `PreSync` hooks is not applied
/// meanwhile: they do not run any more, and the application is kept as it is.
pub fn begin_removal(record: &mut Record, stack: &Stack, revision: u64) {
    let passed = !is_held_by_hooks(stack, record);
    let before = record.hooks.take();
    let exempt = before.as_ref().and_then(|hooks| hooks.exempt.clone());
    let attempt = before.filter(|hooks| hooks.revision == revision);
    let attempt = attempt.map_or(0, |hooks| hooks.attempt).saturating_add(1);
    let hooks = new_record(stack, revision, attempt, &[HookPhase::PreDelete]);
    let begun = [HookPhase::PreDelete].into();
    record.hooks = Some(Box::new(HookRecord { passed, exempt, begun, ..hooks }));
}

fn new_record(stack: &Stack, revision: u64, attempt: u32, phases: &[HookPhase]) -> HookRecord {
    let wanted = templates(stack).filter(|(_, phase)| phases.contains(phase));
    let runs = wanted.filter_map(|(subject, _)| run(stack, subject, revision, attempt)).collect();
    HookRecord::new(revision, attempt, StackHash::of(stack), runs)
}

/// Notes which phases have succeeded.
pub(crate) fn note(record: &mut Record) {
    let Some(mut hooks) = record.hooks.take() else { return };
    // An attempt at a removal has none of these hooks, and none that has succeeded.
    let has_begun = hooks.begun.contains(&HookPhase::PreSync);
    hooks.passed |= has_begun && has_succeeded(&hooks, record, HookPhase::PreSync);
    let is_removal = hooks.begun.contains(&HookPhase::PreDelete);
    hooks.deletable |= is_removal && has_succeeded(&hooks, record, HookPhase::PreDelete);
    record.hooks = Some(hooks);
}

/// Whether all `PostSync` hooks of the attempt at a stack have succeeded.
pub fn has_post_synced(record: &Record, stack: &Stack) -> bool {
    if !has_hook(stack, HookPhase::PostSync) {
        return true;
    }
    let hash = StackHash::of(stack);
    record.hooks.as_deref().is_some_and(|hooks| {
        let is_its = hooks.stack == hash && !hooks.again;
        let is_done = is_its && has_succeeded(hooks, record, HookPhase::PostSync);
        is_done || hooks.exempt.as_ref() == Some(&hash)
    })
}

/// Whether an application may be taken down: its `PreDelete` hooks have succeeded or are skipped, or there are none.
pub fn may_be_deleted(record: &Record, stack: &Stack) -> bool {
    let has_passed = |hooks: &HookRecord| hooks.begun.contains(&HookPhase::PreDelete) && hooks.deletable;
    !has_hook(stack, HookPhase::PreDelete) || record.hooks.as_deref().is_some_and(has_passed)
}
