//! Counting the ends of Jobs' containers.

use driftless_model::{Instance, JobEnd, JobOutcome, JobRecord, Observed, Record, Timestamp};

use crate::{
    facts::{
        jobs::{JobPart, all, spec_of},
        standing::{self, Ending},
    },
    target::Target,
};

/// Counts what has ended since, and says whether the Job has.
pub(crate) fn note(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    let jobs = all(target.stack);
    record.jobs.retain(|name, _| jobs.contains_key(name));
    for (of, parts) in jobs {
        let spec = spec_of(&parts);
        let known = record.jobs.remove(of).filter(|it| it.spec == spec);
        let mut job = known.unwrap_or_else(|| JobRecord { spec, ..JobRecord::default() });
        job.counted.retain(|it, _| observed.instances.contains_key(it));
        let mut active = 0;
        for part in &parts {
            let spec = part.subject.workload.spec();
            let mine = observed.instances.values().filter(|instance| {
                instance.instance.workload == *part.subject.name
                    && instance.spec == spec
                    && instance.agent == *target.agent
                    && record.own_containers.contains(&instance.id)
            });
            for instance in mine {
                job.begun = true;
                active += usize::from(standing::is_up(instance));
                count(&mut job, record, observed, *part, instance);
            }
        }
        conclude(&mut job, &parts, active, now);
        record.jobs.insert(of.clone(), job);
    }
}

/// Every end counts once, known by when it was; what somebody or the engine's shutdown brought about does not.
fn count(job: &mut JobRecord, record: &Record, observed: &Observed, part: JobPart<'_>, instance: &Instance) {
    if standing::is_completed(record, observed, part.subject.workload, instance) {
        if job.done.insert(part.job.ordinal) {
            job.streak = 0;
        }
        return;
    }
    let Some(Ending::Failed { code, finished }) = standing::ending(record, observed, instance) else {
        return;
    };
    if job.counted.insert(instance.id.clone(), finished) != Some(finished) {
        job.failures = job.failures.saturating_add(1);
        job.streak = job.streak.saturating_add(1);
        (job.last_failure, job.last_code) = (Some(finished), code);
    }
}

fn conclude(job: &mut JobRecord, parts: &[JobPart<'_>], active: usize, now: Timestamp) {
    let Some(JobPart { job: wanted, .. }) = parts.first() else { return };
    if job.ended.is_some() {
        return;
    }
    job.started = if wanted.suspended { None } else { job.started.or(Some(now)) };
    let is_complete = match wanted.completions {
        Some(_) => job.done.len() >= parts.len(),
        None => !job.done.is_empty() && active == 0,
    };
    let is_late = || {
        let end = job.started.zip(wanted.active_deadline).map(|(since, it)| since.after(it));
        end.is_some_and(|it| now >= it)
    };
    let outcome = if is_complete {
        JobOutcome::Complete
    } else if is_late() {
        JobOutcome::DeadlineExceeded
    } else if job.failures > wanted.backoff_limit {
        JobOutcome::BackoffLimitExceeded
    } else {
        return;
    };
    job.ended = Some(JobEnd { at: now, outcome });
}
