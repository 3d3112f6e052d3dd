//! Runs of CronJobs that the record has never known, because it was lost after they began.

use driftless_model::{Concurrency, Instance, Timestamp, WorkloadName};

use crate::facts::{Facts, cron, standing::is_up};

/// A run that is left to end by itself.
pub(crate) struct ForgottenRun<'a> {
    pub(crate) of: &'a WorkloadName,
    pub(crate) concurrency: Concurrency,
    /// The end of its `activeDeadlineSeconds`.
    pub(crate) deadline: Option<Timestamp>,
}

/// The run that an orphan is, if it still works, no newer run takes its place, and its time is not over.
pub(crate) fn forgotten_run<'a>(facts: &Facts<'a>, orphan: &Instance) -> Option<ForgottenRun<'a>> {
    let stack = facts.target.stack;
    let of = cron::known_cron_job_of(facts.target.stack, facts.record, orphan)?;
    let before = || facts.target.reached?.workloads.get(of);
    let template = stack.workloads.get(of).or_else(before)?;
    let concurrency = template.schedule()?.concurrency;
    let known = facts.record.crons.get(of);
    let is_open = |run: &WorkloadName| facts.record.jobs.get(run).is_none_or(|job| job.ended.is_none());
    let is_replaced =
        concurrency == Concurrency::Replace && known.is_some_and(|known| known.runs.keys().any(is_open));
    let is_older = known.is_none_or(|known| orphan.created < known.since);
    let works = is_up(orphan) || facts.observed.parts_of(&orphan.id).iter().any(|part| is_up(part));
    let limit = template.job_or_template().and_then(|job| job.active_deadline);
    let deadline = limit.map(|limit| orphan.created.after(limit));
    let is_late = deadline.is_some_and(|deadline| facts.now >= deadline);
    (is_older && works && !is_replaced && !is_late).then_some(ForgottenRun { of, concurrency, deadline })
}
