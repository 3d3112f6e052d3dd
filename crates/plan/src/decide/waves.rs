//! The order of a sync: what waits for `PreSync` hooks, and what waits for a lower wave.
//!
//! Healing waits for neither: once the stack was reached, everything that is missing comes back at once. The plan of a Swarm has the same
//! order.

use driftless_model::{HookPhase, HookRun, Subject};

use crate::{
    draft::Draft,
    facts::{Facts, hooks::outcome, waves},
    wait::Wait,
};

/// Why a workload is not changed yet, if its turn has not come.
pub(crate) fn reason_to_wait(draft: &Draft<'_>, subject: Subject<'_>) -> Option<Wait> {
    let Subject { name, .. } = subject;
    if draft.facts.is_held_by_hooks {
        return Some(Wait::hook(name, "the PreSync hooks have not succeeded"));
    }
    let before = waves::unfinished_before(draft.facts, subject)?;
    let (wave, on) = (before.workload.wave, before.name);
    Some(Wait::wave(name, on, wave, subject.workload.wave))
}

/// Reports the hooks that a sync waits for.
pub(crate) fn remark(draft: &mut Draft<'_>) {
    let record = draft.facts.record;
    let hooks = record.hooks.as_deref();
    // Before a removal they do not run.
    let is_leaving = hooks.is_some_and(|hooks| hooks.begun.contains(&HookPhase::PreDelete));
    if draft.facts.is_held_by_hooks && !is_leaving && !has_begun(draft.facts) {
        draft.wait(Wait::hooks_first(HookPhase::PreSync));
    }
    let Some(hooks) = hooks else { return };
    for (name, HookRun { phase, .. }) in hooks.begun_runs() {
        let is_awaited = phase.decides() || *phase == HookPhase::PreDelete;
        if is_awaited && outcome(record, name).is_none() {
            draft.wait(Wait::hook(name, &format!("{phase} hook: it has not ended yet")));
        }
    }
}

/// Whether the `PreSync` hooks of the target have begun, and not only those of an older one.
fn has_begun(facts: &Facts<'_>) -> bool {
    let hooks = facts.record.hooks.as_deref().filter(|hooks| hooks.stack == *facts.revision());
    hooks.is_some_and(|hooks| hooks.begun.contains(&HookPhase::PreSync))
}
