//! The parts of Jobs, and which of them are done.

use std::collections::BTreeMap;

use driftless_model::{
    Instance, Job, JobRecord, Observed, Record, SpecHash, Stack, State, Subject, Workload, WorkloadName,
};

use crate::facts::standing;

/// One part of a Job.
#[derive(Clone, Copy)]
pub(crate) struct JobPart<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) job: &'a Job,
}

/// All Jobs of a stack, each with its parts in their order.
pub(crate) fn all(stack: &Stack) -> BTreeMap<&WorkloadName, Vec<JobPart<'_>>> {
    let mut all: BTreeMap<&WorkloadName, Vec<JobPart<'_>>> = BTreeMap::new();
    for subject in stack.subjects() {
        if let Some(job) = subject.workload.job() {
            all.entry(&job.of).or_default().push(JobPart { subject, job });
        }
    }
    for parts in all.values_mut() {
        parts.sort_by_key(|it| it.job.ordinal);
    }
    all
}

/// The parts of one Job in their order.
pub(crate) fn parts_of<'a>(stack: &'a Stack, of: &WorkloadName) -> Vec<JobPart<'a>> {
    let part = |subject: Subject<'a>| {
        let job = subject.workload.job().filter(|job| job.of == *of)?;
        Some(JobPart { subject, job })
    };
    let mut parts: Vec<JobPart<'a>> = stack.subjects().filter_map(part).collect();
    parts.sort_by_key(|it| it.job.ordinal);
    parts
}

/// The hash that identifies a Job. Other changes, such as its parallelism, continue the same Job.
pub(crate) fn spec_of(parts: &[JobPart<'_>]) -> SpecHash {
    let first = parts.first().map(|it| (it.subject.workload.spec(), it.job.completions, it.job.indexed));
    SpecHash::of(&first)
}

/// The record of a Job, if its hash is still the same.
pub(crate) fn record_of<'a>(record: &'a Record, parts: &[JobPart<'_>]) -> Option<&'a JobRecord> {
    let of = &parts.first()?.job.of;
    record.jobs.get(of).filter(|it| it.spec == spec_of(parts))
}

/// Whether a part of a Job has nothing left to be done for which a container would be needed.
pub(crate) fn is_over(record: &Record, stack: &Stack, workload: &Workload) -> bool {
    let Some(job) = workload.job_or_template() else { return false };
    if job.suspended {
        return true;
    }
    let known = record_of(record, &parts_of(stack, &job.of));
    if stack.swarm.contains_key(&job.of) {
        // One service of a Swarm does all parts.
        return known.is_some_and(|it| it.ended.is_some());
    }
    known.is_some_and(|it| it.ended.is_some() || it.done.contains(&job.ordinal) || is_fed(job, it))
}

/// Whether there ought to be a container of a part: it is among the first that are begun, and none of the Job is there.
pub(crate) fn is_awaited(record: &Record, stack: &Stack, observed: &Observed, workload: &Workload) -> bool {
    let Some(job) = workload.job_or_template().filter(|it| it.ordinal < it.parallelism) else { return false };
    let is_part = |it: &Workload| it.job_or_template().is_some_and(|it| it.of == job.of);
    let has_any =
        observed.instances.values().any(|it| stack.workloads.get(&it.instance.workload).is_some_and(is_part));
    !has_any && !is_over(record, stack, workload)
}

/// Whether a work queue is empty: the first part that succeeds says so.
pub(crate) fn is_fed(job: &Job, known: &JobRecord) -> bool {
    job.completions.is_none() && !known.done.is_empty()
}

pub(crate) fn is_begun(instance: &Instance) -> bool {
    standing::is_up(instance) || instance.state == State::Created
}
