//! Trying the failed containers of Jobs again, after pauses that grow. The tasks of a Swarm's Jobs have the same pauses.

use driftless_model::{HookPhase, Instance, InstanceId, Job, JobRecord, Subject};

use crate::{
    backoff,
    cause::Cause,
    decide::repair,
    draft::Draft,
    facts::jobs::{parts_of, record_of},
    text,
    wait::Wait,
};

/// The cause to try a failed container of a pod again, in its pod. `None` until the pause of its Job is over.
pub(crate) fn due(draft: &mut Draft<'_>, subject: Subject<'_>, failed: &Instance) -> Option<Cause> {
    let job = subject.workload.job()?;
    let parts = parts_of(draft.facts.target.stack, &job.of);
    let unknown = JobRecord::default();
    let known = record_of(draft.facts.record, &parts).unwrap_or(&unknown);
    let is_due = !is_pausing(draft, known, job, &failed.instance);
    is_due.then(|| cause(draft, known, failed))
}

/// The cause to try a failed container again.
pub(crate) fn cause(draft: &Draft<'_>, known: &JobRecord, failed: &Instance) -> Cause {
    repair::unknown_end(draft, failed).unwrap_or(Cause::CrashLoop { attempt: known.streak })
}

/// Whether somebody waits for a Job. Nobody waits for a run of a CronJob, or of a hook after a failure.
pub(crate) fn is_awaited(job: &Job) -> bool {
    job.cron.is_none() && job.hook.as_ref().is_none_or(|hook| hook.phase != HookPhase::SyncFail)
}

/// Whether the next try has to wait, which is then said.
pub(crate) fn is_pausing(draft: &mut Draft<'_>, known: &JobRecord, job: &Job, instance: &InstanceId) -> bool {
    let Some(last) = known.last_failure.filter(|it| *it <= draft.facts.now) else { return false };
    let until = last.after(backoff::job_delay(known.streak));
    if draft.facts.now >= until {
        return false;
    }
    if is_awaited(job) {
        let error = text::one_line(&known.last_error);
        let why = text::crash_reason(&error, draft.plan.outputs.get(instance));
        draft.wait(Wait::crash_loop_back_off(instance, known.last_code, &why, known.streak, until));
    }
    draft.look_again(until);
    true
}
