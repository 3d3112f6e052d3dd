//! Counting the ends of Jobs' containers.

use driftless_model::{
    Instance, JobEnd, JobOutcome, JobRecord, Observed, Record, SpecHash, Timestamp, WorkloadName,
};

use crate::{
    facts::{
        jobs::{JobPart, all, spec_of},
        standing::{self, Ending},
    },
    swarm::{count_swarm_job, swarm_hash_of},
    target::Target,
};

/// Counts what has ended since, and says whether the Job has.
pub(crate) fn note(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    let jobs = all(target.stack);
    record.jobs.retain(|name, _| jobs.contains_key(name));
    for (of, parts) in jobs {
        let spec = spec_of(&parts);
        let known = record.jobs.remove(of).filter(|it| it.spec == spec);
        let mut job = known.unwrap_or_else(|| new_job(record, of, spec, &parts));
        if let (Some(swarm), Some(part)) = (observed.swarm.as_deref(), parts.first()) {
            let hash = swarm_hash_of(target, part.subject);
            count_swarm_job(&mut job, target, swarm, *part, &hash, now);
            remember(record, of, &job, &parts);
            record.jobs.insert(of.clone(), job);
            continue;
        }
        job.counted.retain(|it, _| observed.instances.contains_key(it));
        let mut active = 0;
        for part in &parts {
            let spec = target.spec(part.subject);
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
        remember(record, of, &job, &parts);
        record.jobs.insert(of.clone(), job);
    }
}

/// The record of a Job that is new in the stack. Where it completed before with the same content, a rollback has brought
/// it back, or another agent of the Swarm has run it, and it is not run again.
fn new_job(record: &Record, of: &WorkloadName, spec: SpecHash, parts: &[JobPart<'_>]) -> JobRecord {
    let before = record.completed_jobs.completed_at(of, &spec);
    let Some(at) = before else { return JobRecord { spec, ..JobRecord::default() } };
    JobRecord {
        spec,
        begun: true,
        done: parts.iter().map(|part| part.job.ordinal).collect(),
        ended: Some(JobEnd { at, outcome: JobOutcome::Complete }),
        ..JobRecord::default()
    }
}

/// Remembers a Job that has completed. Runs of CronJobs and hooks have names of their own.
fn remember(record: &mut Record, of: &WorkloadName, job: &JobRecord, parts: &[JobPart<'_>]) {
    let end = job.ended.as_ref().filter(|end| end.outcome == JobOutcome::Complete);
    let Some(end) = end.filter(|_| !parts.iter().any(|part| part.job.is_run())) else { return };
    record.completed_jobs.insert(of, &job.spec, end.at);
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
