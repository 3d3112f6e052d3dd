//! What Git does not have any more and is removed without a word, and what waits for one.
//!
//! A folder moved by mistake or a file that was cut short still is a complete render. So where most of an application
//! would go at once, it goes when somebody has said so. Whoever drops the whole application is asked by `prune` of the
//! policy instead, and is not asked here.

use std::collections::BTreeSet;

use driftless_model::{Instance, State, Workload, WorkloadName};

use super::{Wait, census::Census, cron, round::Round};

/// So few are removed without asking, however large a part they are.
const FEW: usize = 3;

/// Whether what the stack does not have has to stay until somebody confirms that it goes.
pub(super) fn is_held(round: &mut Round<'_>, census: &Census<'_>) -> bool {
    let stack = round.target.stack;
    let is_lost = |it: &&&Instance| {
        let name = &it.instance.workload;
        is_loss(round, it) && !cron::was_run(stack, name) && !is_scaled_down(round, name)
    };
    let leaving: BTreeSet<&WorkloadName> =
        census.orphans.iter().filter(is_lost).map(|it| &it.instance.workload).collect();
    // A new name for everything is as much that comes as goes.
    let all = leaving.len() + stack.workloads.len();
    let limit = round.target.policy.max_prune_percent;
    if leaving.len() <= FEW || leaving.len() * 100 <= all * usize::from(limit) || stack.workloads.is_empty() {
        return false;
    }
    // What turned up after the sync is no part of the application: that is drift.
    if round.is_settled() || round.record.prune.as_ref() == Some(round.revision()) {
        return false;
    }
    let workloads = leaving.into_iter().cloned().collect();
    round.wait(Wait::PruneHeld { app: stack.app.clone(), workloads, all, limit });
    true
}

/// What has done its work is no loss. What only went down with the engine, or failed, may be.
fn is_loss(round: &Round<'_>, instance: &Instance) -> bool {
    match instance.state {
        State::Running { .. } | State::Paused | State::Restarting { .. } => true,
        State::Exited { code, finished, .. } => {
            let went_down = round.observed.engine_started.is_some_and(|it| finished < it);
            (code != 0 || went_down) && !round.record.completed.contains(&instance.id)
        }
        State::Created | State::Removing | State::Dead => false,
    }
}

/// Whether Git still has what it was one of, and only wants fewer.
fn is_scaled_down(round: &Round<'_>, name: &WorkloadName) -> bool {
    let of = |it: &Workload| {
        let member = it.member.as_ref().map(|it| it.of.clone());
        member.or_else(|| it.job.as_ref().map(|it| it.of.clone()))
    };
    let before = round.target.fallback.and_then(|it| it.workloads.get(name)).and_then(of);
    before.is_some_and(|before| {
        round.target.stack.workloads.values().any(|it| of(it).as_ref() == Some(&before))
    })
}
