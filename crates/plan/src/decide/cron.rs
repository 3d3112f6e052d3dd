//! Whether a run of a CronJob is due, and when the next one is, on one host as on a Swarm.

use crate::{
    draft::Draft,
    facts::cron::{all, parsed},
    record::cron::schedule,
};

/// Notes whether a run is due, and looks again when the next one is.
pub(crate) fn look_ahead(draft: &mut Draft<'_>) {
    if draft.facts.target.policy.suspended || all(draft.facts.target.stack).next().is_none() {
        return;
    }
    let now = draft.facts.now;
    // The end of a run may let another one begin.
    let mut then = draft.facts.record.clone();
    schedule(&mut then, draft.facts.target.stack, now);
    if then.crons != draft.facts.record.crons {
        draft.plan.has_due_runs = true;
        draft.look_again(now);
    }
    let next = all(draft.facts.target.stack)
        .filter(|cron_job| !cron_job.schedule.suspended)
        .filter_map(|cron_job| parsed(cron_job.schedule)?.next(now));
    if let Some(next) = next.min() {
        draft.look_again(next);
    }
}
