//! Whether a commit removes so much of an application that somebody has to confirm it.
//!
//! A folder that was moved by mistake, or a file that was cut short, still renders. So if most of an application would
//! go at once, or all of it because the commit gives it no workload, it goes after `driftless sync APP --prune`. The removal of
//! an application that has left Git is limited by `prune` of the policy instead.

use std::collections::BTreeSet;

use driftless_model::{Instance, State, WorkloadName};

use crate::{
    draft::Draft,
    facts::{
        Facts,
        cron::was_run,
        hooks::was_hook,
        objects::whole,
        ownership::is_prune_protected,
        prune::needs_confirmation,
        standing::{Ending, ending},
    },
    wait::Wait,
};

/// Whether what the stack does not have has to stay until somebody confirms that it goes.
pub(crate) fn is_held(draft: &mut Draft<'_>) -> bool {
    let stack = draft.facts.target.stack;
    let is_lost = |it: &&&Instance| {
        let name = &it.instance.workload;
        is_loss(draft.facts, it)
            && !was_run(stack, it)
            && !was_hook(it)
            && !is_scaled_down(draft.facts, name)
            && !is_prune_protected(&it.config.labels)
    };
    let leaving: BTreeSet<&WorkloadName> =
        draft.facts.instances.orphans.iter().filter(is_lost).map(|it| &it.instance.workload).collect();
    if !needs_confirmation(draft.facts, leaving.len()) {
        return false;
    }
    let all = leaving.len() + stack.workloads.len();
    let limit = draft.facts.target.policy.max_prune_percent;
    let workloads: Vec<&WorkloadName> = leaving.into_iter().collect();
    draft.wait(Wait::prune_held(&stack.app, &workloads, all, limit));
    true
}

/// Whether its removal may be a loss. Work that is done is none.
fn is_loss(facts: &Facts<'_>, instance: &Instance) -> bool {
    match instance.state {
        State::Running { .. } | State::Paused | State::Restarting { .. } => true,
        State::Exited { .. } => ending(facts.record, facts.observed, instance) != Some(Ending::Succeeded),
        State::Created | State::Removing | State::Dead => false,
    }
}

/// Whether Git still has the StatefulSet or Job that it was a part of, with fewer replicas.
fn is_scaled_down(facts: &Facts<'_>, name: &WorkloadName) -> bool {
    let before = facts.target.reached.and_then(|it| it.workloads.get(name)).and_then(whole);
    let is_of =
        |of: &WorkloadName| facts.target.stack.workloads.values().any(|it| whole(it).as_ref() == Some(of));
    before.is_some_and(|of| is_of(&of))
}
