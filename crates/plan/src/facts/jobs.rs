//! The parts of Jobs, and which of them are done.

use std::{borrow::Cow, collections::BTreeMap};

use driftless_model::{
    CompletedJobs, Instance, Job, JobOutcome, JobRecord, Observed, Record, SpecHash, Stack, StackHashes,
    State, Subject, Timestamp, Workload, WorkloadName, is_helper_image, label,
};

use crate::{facts::standing, target::Target};

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

/// The hash that identifies a Job by its content. Other changes continue the same Job: its parallelism, and networks, names and
/// ports that other objects of the manifests give it.
pub(crate) fn spec_of(parts: &[JobPart<'_>]) -> SpecHash {
    SpecHash::of(&parts.first().map(|part| with_completions(part, part.subject.workload.work())))
}

/// The hash of a Job's manifest and of its images, without the contents of the ConfigMaps and Secrets that it refers to. A newer image of
/// a registry is not in the manifest, and is other work. Runs have names of their own, and need none.
pub(crate) fn manifest_of(parts: &[JobPart<'_>]) -> Option<SpecHash> {
    let part = parts.first().filter(|part| !part.job.is_run())?;
    let workload = part.subject.workload;
    // That of the agent's own helper comes with the agent.
    let images = workload.containers().map(|container| container.image.as_str());
    let images: Vec<&str> = images.filter(|image| !is_helper_image(image)).collect();
    let template = with_completions(part, workload.manifest.job_template.clone()?);
    Some(SpecHash::of(&("manifest", images, template)))
}

/// A queue of work with a parallelism above 1 counts like one completion, because with a lower one it is rendered as one.
fn with_completions(part: &JobPart<'_>, template: SpecHash) -> (SpecHash, Option<u32>, bool) {
    let of_queue = Some(1).filter(|_| part.job.parallelism > 1);
    (template, part.job.completions.or(of_queue), part.job.indexed)
}

/// The hashes by which older agents identified a Job: with the ports that are not published, and with its networks and all ports.
fn former_specs_of(parts: &[JobPart<'_>]) -> [SpecHash; 2] {
    let exposing =
        |part: &JobPart<'_>| with_completions(part, part.subject.workload.work_with_exposed_ports());
    let whole = |part: &JobPart<'_>| (part.subject.workload.spec(), part.job.completions, part.job.indexed);
    [SpecHash::of(&parts.first().map(exposing)), SpecHash::of(&parts.first().map(whole))]
}

/// Whether a hash identifies a Job by its content.
pub(crate) fn is_of(spec: &SpecHash, parts: &[JobPart<'_>]) -> bool {
    *spec == spec_of(parts) || former_specs_of(parts).contains(spec)
}

/// Whether a record is that of a Job. One that has completed is not run again because a value has changed to which its manifest
/// refers; one that has not is begun again with the new value.
pub(crate) fn is_same(known: &JobRecord, parts: &[JobPart<'_>]) -> bool {
    let has_completed = known.ended.as_ref().is_some_and(|end| end.outcome == JobOutcome::Complete);
    let has_same_manifest =
        || known.manifest.as_ref().is_some_and(|manifest| manifest_of(parts).as_ref() == Some(manifest));
    let is_of_older_agent = || known.manifest.is_none() && known.spec == spec_without_namespace_file(parts);
    is_of(&known.spec, parts) || (has_completed && (has_same_manifest() || is_of_older_agent()))
}

/// The hash by which an older agent, which recorded no manifest, identified a Job that names the path of its namespace's file.
fn spec_without_namespace_file(parts: &[JobPart<'_>]) -> SpecHash {
    let without =
        |part: &JobPart<'_>| with_completions(part, part.subject.workload.work_without_namespace_file());
    SpecHash::of(&parts.first().map(without))
}

/// When a Job completed with this manifest or content.
pub(crate) fn completed_at(
    completed: &CompletedJobs,
    of: &WorkloadName,
    parts: &[JobPart<'_>],
) -> Option<Timestamp> {
    let at = |spec: &SpecHash| completed.completed_at(of, spec);
    let mut all = manifest_of(parts).into_iter().chain([spec_of(parts)]).chain(former_specs_of(parts));
    all.find_map(|spec| at(&spec))
}

/// The record of a Job, if it is still the same.
pub(crate) fn record_of<'a>(record: &'a Record, parts: &[JobPart<'_>]) -> Option<&'a JobRecord> {
    let of = &parts.first()?.job.of;
    record.jobs.get(of).filter(|it| is_same(it, parts))
}

/// Whether a container of a workload was created for the same Job with other networks than Git has now, or before a value changed
/// that a completed Job refers to. It is kept as it is: its work would be done twice.
pub(crate) fn is_kept(record: &Record, workload: &Workload, instance: &Instance) -> bool {
    let known = workload.job().and_then(|job| record.jobs.get(&job.of));
    known.is_some_and(|known| known.kept.contains(&instance.id))
}

/// The observed state in which the kept containers of Jobs have the spec hash that Git asks for.
pub(crate) fn as_desired<'a>(
    stack: &Stack,
    hashes: &StackHashes,
    record: &Record,
    observed: &'a Observed,
) -> Cow<'a, Observed> {
    let mut desired = Cow::Borrowed(observed);
    for (of, known) in record.jobs.iter().filter(|(_, known)| !known.kept.is_empty()) {
        if record_of(record, &parts_of(stack, of)).is_none() {
            continue;
        }
        for id in &known.kept {
            let spec = observed.instances.get(id).and_then(|it| hashes.specs.get(&it.instance.workload));
            let Some(spec) = spec else { continue };
            let Observed { instances, parts, .. } = desired.to_mut();
            let parts = parts.values_mut().filter(|it| it.part.as_ref().is_some_and(|of| of.pod == *id));
            for container in instances.get_mut(id).into_iter().chain(parts) {
                container.spec = spec.clone();
            }
        }
    }
    desired
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

/// Whether no other container takes over the anonymous volumes of this one. It, or the pod that it is a part of, was created for a Job, a run
/// of a CronJob or a hook, and each try of these begins with new ones. A Deployment that follows a Job of its name takes them over.
pub(crate) fn has_volumes_of_one_try(target: &Target<'_>, observed: &Observed, container: &Instance) -> bool {
    let desired = target.stack.workloads.get(&container.instance.workload.whole());
    desired.is_none_or(|desired| desired.job_or_template().is_some())
        && was_created_for_job(target, observed, container)
}

/// Whether a container, or the pod that it is a part of, was created for a Job, a run of a CronJob or a hook.
fn was_created_for_job(target: &Target<'_>, observed: &Observed, container: &Instance) -> bool {
    let pod = container.part.as_ref().and_then(|of| observed.instances.get(&of.pod));
    let pod = pod.unwrap_or(container);
    let has = |name: &str| pod.config.labels.contains_key(name);
    // Any pod may have the labels of a Job of Kubernetes.
    let is_job = || target.definition(pod).is_some_and(|workload| workload.job().is_some());
    has(label::CRON) || has(label::HOOK) || (label::JOB_NAMES.into_iter().all(has) && is_job())
}

pub(crate) fn is_begun(instance: &Instance) -> bool {
    standing::is_up(instance) || instance.state == State::Created
}
