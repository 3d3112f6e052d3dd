//! The CronJobs in force, whether a run of one is due, and when the next one is, on one host as on a Swarm.

use std::borrow::Cow;

use driftless_model::{Concurrency, Record, Stack, Workload, WorkloadName};

use crate::{
    decide::orphans,
    draft::Draft,
    facts::{
        cron::{CronJob, all, has_cron_job, parsed},
        waves,
    },
    record::cron::{is_active, schedule},
    wait::Wait,
};

/// Notes whether a run is due, and looks again when the next one is.
pub(crate) fn look_ahead(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    let has_none = facts.record.crons.is_empty() && all(facts.target.stack).next().is_none();
    if facts.target.policy.suspended || has_none {
        return;
    }
    let stack = in_force(draft);
    let now = facts.now;
    let next = all(&stack)
        .filter(|cron_job| !cron_job.schedule.suspended)
        .filter_map(|cron_job| parsed(cron_job.schedule)?.next(now));
    if let Some(next) = next.min() {
        draft.look_again(next);
    }
    for cron_job in all(&stack) {
        if let Some(wait) = skipped_time(facts.record, cron_job) {
            draft.wait(wait);
        }
    }
    // The end of a run may let another one begin.
    let mut then = facts.record.clone();
    schedule(&mut then, &stack, now);
    if then.crons != facts.record.crons {
        draft.plan.due_runs = Some(Box::new(stack.into_owned()));
        draft.look_again(now);
    }
}

/// The last time that a CronJob has left out, because a run has not ended.
fn skipped_time(record: &Record, CronJob { subject, schedule }: CronJob<'_>) -> Option<Wait> {
    let known = record.crons.get(subject.name).filter(|_| schedule.concurrency == Concurrency::Forbid)?;
    let due = known.last_reported.filter(|due| known.last.is_none_or(|last| *due > last))?;
    let run = known.runs.keys().find(|run| is_active(record, run))?;
    let since = record.jobs.get(run).and_then(|job| job.started);
    Some(Wait::run_skipped(subject.name, due, run, since))
}

/// The stack with the CronJobs in force. As long as the turn of a commit has not come, or an image of it is missing, these are those of the
/// version that was reached last: a run of the new version would meet services and data of the old one.
fn in_force<'a>(draft: &mut Draft<'a>) -> Cow<'a, Stack> {
    let facts = draft.facts;
    let (stack, reached): (&'a Stack, Option<&'a Stack>) = (facts.target.stack, facts.target.reached);
    let awaits_images = awaits_images(draft);
    let mut whole = Cow::Borrowed(stack);
    for CronJob { subject, schedule: _ } in all(stack) {
        let name = subject.name;
        let has_turn = !facts.is_held_by_hooks && waves::unfinished_before(facts, subject).is_none();
        let before = reached.filter(|before| has_cron_job(before, name));
        // The turn of one that is known came before.
        let is_new = before.is_none() && !facts.record.crons.contains_key(name);
        let is_changed = |before: &&Stack| before.workloads.get(name) != Some(subject.workload);
        if let Some(before) = before.filter(|_| !has_turn || awaits_images).filter(is_changed) {
            bring_back(whole.to_mut(), before, name);
        } else if is_new && !has_turn {
            whole.to_mut().workloads.remove(name);
        }
    }
    // In a Swarm, each manager forgets a dropped one by itself.
    if stack.swarm.is_empty()
        && let Some(before) = reached
        && (awaits_images || orphans::are_held(draft))
    {
        let is_dropped = |name: &&WorkloadName| !has_cron_job(stack, name) && has_cron_job(before, name);
        for name in facts.record.crons.keys().filter(is_dropped) {
            bring_back(whole.to_mut(), before, name);
        }
    }
    whole
}

/// Whether an image of the commit is not here yet. Those of runs are not of the commit.
fn awaits_images(draft: &Draft<'_>) -> bool {
    let is_pulled = |workload: &Workload| workload.own_images().any(|image| draft.pulls.contains_key(&image));
    let workloads = draft.facts.target.stack.workloads.values();
    let mut of_commit = workloads.filter(|workload| !workload.is_run() && workload.schedule().is_none());
    !draft.missing_images.is_empty() || of_commit.any(is_pulled)
}

/// Puts a CronJob of another version into a stack.
fn bring_back(stack: &mut Stack, before: &Stack, name: &WorkloadName) {
    let Some(workload) = before.workloads.get(name) else { return };
    stack.workloads.insert(name.clone(), workload.clone());
    if let Some(object) = before.inventory.workloads.get(name) {
        stack.inventory.workloads.insert(name.clone(), object.clone());
    }
    if let Some(service) = before.swarm.get(name) {
        stack.swarm.insert(name.clone(), service.clone());
    }
    stack.add_networks(&before.networks);
}
