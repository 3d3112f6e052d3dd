//! Status in Kubernetes' terms: names, specifications, missing instances, and the progress of Jobs and CronJobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_model::{
    AwaitedInstance, CronStatus, ExitStatus, Instance, JobOutcome, JobStatus, Observed, Part, PartSpec,
    PartStatus, Record, Role, Stack, State, Subject, Workload, WorkloadName, WorkloadSpec,
};

use crate::{
    action::Action,
    facts::{
        jobs,
        objects::{object, pod, whole},
    },
    names::container_name,
    status::counts::Counts,
    steps::Plan,
    text::NO_CODE,
};

/// The specification of a workload. The caller adds the template, masked.
pub(crate) fn spec(
    stack: &Stack,
    subject: Subject<'_>,
    counts: &Counts<'_>,
    record: &Record,
) -> WorkloadSpec {
    let Subject { name, workload } = subject;
    let object = object(stack, name);
    let container = &workload.container;
    let published = container.ports.iter().map(|it| (it.container, it.protocol));
    let ports: BTreeSet<_> = published.chain(container.expose.iter().copied()).collect();
    WorkloadSpec {
        created: record.since.get(&object.to_string()).copied(),
        object,
        hash: counts.spec.short().to_owned(),
        labels: container.labels.clone(),
        strategy: Some(workload.strategy),
        min_ready_seconds: workload.min_ready.as_secs(),
        progress_deadline_seconds: workload.progress_deadline.as_secs(),
        paused: workload.paused || record.paused.contains(name),
        containers: workload.parts.iter().map(part_spec).collect(),
        update: workload.update,
        whole: whole(workload).filter(|it| it != name),
        member: workload.member().cloned(),
        ports: ports.into_iter().collect(),
        template: Arc::default(),
        pod: Arc::default(),
        selector: workload.manifest.selector.clone(),
        container: workload.manifest.container.clone(),
        former: BTreeMap::new(),
    }
}

/// The specification of one container of a pod.
pub(crate) fn part_spec(part: &Part) -> PartSpec {
    PartSpec { name: part.name.clone(), role: part.role, image: part.container.image.clone() }
}

/// The images that an instance runs, without the one that only holds a pod together.
pub(crate) fn images(workload: &Workload) -> String {
    if workload.parts.is_empty() {
        return workload.container.image.clone();
    }
    let apps = workload.parts.iter().filter(|it| it.role == Role::App);
    apps.map(|it| it.container.image.as_str()).collect::<Vec<_>>().join(", ")
}

/// The images that a pod's containers run.
pub(crate) fn images_of(parts: &[PartStatus]) -> String {
    let apps = parts.iter().filter(|it| it.spec.role == Role::App);
    apps.map(|it| it.spec.image.as_str()).collect::<Vec<_>>().join(", ")
}

/// The state of a pod in kubectl's words, if it differs from the state of its first container.
pub(crate) fn pod_state(parts: &[PartStatus]) -> Option<String> {
    let state = |it: &PartStatus| it.instance.as_ref().map(|it| it.state.clone()).unwrap_or_default();
    let initial = || parts.iter().filter(|it| it.spec.role != Role::App);
    let apps = || parts.iter().filter(|it| it.spec.role == Role::App);
    if apps().all(|it| it.instance.is_none()) {
        let is_done = |it: &&PartStatus| match it.spec.role {
            Role::Sidecar => it.instance.as_ref().is_some_and(|it| it.ready),
            Role::Init | Role::App => state(it) == "Completed",
        };
        let done = initial().take_while(is_done).count();
        let at = initial().nth(done)?;
        return Some(match state(at).as_str() {
            "" | "Created" | "Running" | "Completed" => format!("Init:{done}/{}", initial().count()),
            it if it.starts_with("Exited") || it == "Restarting" => "Init:Error".to_owned(),
            it => format!("Init:{it}"),
        });
    }
    let is_telling = |it: &String| it == "CrashLoopBackOff" || it.starts_with("Exited");
    apps().chain(initial()).map(state).find(is_telling)
}

/// Kubernetes shows an instance before it has a container. While old ones serve, the next one stands for all
/// that are to come.
pub(crate) fn awaited(
    stack: &Stack,
    subject: Subject<'_>,
    counts: &Counts<'_>,
    record: &Record,
    plan: &Plan,
) -> Vec<AwaitedInstance> {
    let Subject { name, workload } = subject;
    if workload.job_or_template().is_some() {
        // Nobody knows which of them will be made, nor whether.
        return Vec::new();
    }
    let missing = workload.replicas.saturating_sub(counts.updated());
    let count = if counts.old.is_empty() { missing } else { missing.min(1) };
    let taken: BTreeSet<u32> = counts.all.iter().map(|it| it.instance.slot).collect();
    let free = (1_u32..).filter(|it| !taken.contains(it)).take(count as usize);
    let free: Vec<(u32, String)> = free.map(|slot| (slot, container_name(stack, name, slot))).collect();
    let failed = || free.iter().find_map(|(_, container)| creation_failure(record, container));
    let Some((reason, message)) = pending_reason(subject, plan).or_else(failed) else {
        return Vec::new();
    };
    let pod = pod(stack, subject);
    free.into_iter()
        .map(|(slot, container)| AwaitedInstance {
            name: pod.clone().unwrap_or(container),
            slot,
            reason: reason.to_owned(),
            message: message.clone(),
        })
        .collect()
}

/// Why a container could not be created, in the kubelet's word and a sentence.
fn creation_failure(record: &Record, container: &str) -> Option<(&'static str, String)> {
    let attempt = record.failures.get(container)?;
    let is_rejected = record.rejected.contains(container);
    let reason = if is_rejected { "CreateContainerConfigError" } else { "CreateContainerError" };
    Some((reason, attempt.error.clone()))
}

/// Why there is no container yet, in a word and a sentence.
fn pending_reason(subject: Subject<'_>, plan: &Plan) -> Option<(&'static str, String)> {
    let Subject { name, workload } = subject;
    let is_wanted = |image: &String| workload.containers().any(|it| it.image == *image);
    let is_pull = |it: &Action| matches!(it, Action::PullImage { image, .. } | Action::VerifyImage { image, .. } | Action::ImportImage { image } if is_wanted(image));
    let is_build = |it: &Action| matches!(it, Action::BuildImage { image, .. } if is_wanted(image));
    let mut actions = plan.steps.iter().map(|it| &it.action);
    let brought = actions.find(|it| is_pull(it) || is_build(it));
    let word = |it: &Action| if is_build(it) { "Building" } else { "ContainerCreating" };
    brought.map(|it| (word(it), it.to_string())).or_else(|| {
        let mut of_it = plan.waits.iter().filter(|it| it.concerns(name));
        of_it.find_map(|it| Some((it.pending()?, it.to_string())))
    })
}

/// The end of the last run of a container that does not run.
pub(crate) fn exit(instance: &Instance) -> Option<ExitStatus> {
    match &instance.state {
        State::Exited { code, finished, out_of_memory, error: _ } => (*code != NO_CODE)
            .then_some(ExitStatus { code: *code, finished: *finished, out_of_memory: *out_of_memory }),
        State::Restarting { code, finished } => {
            Some(ExitStatus { code: *code, finished: *finished, out_of_memory: false })
        }
        State::Created | State::Running { .. } | State::Paused | State::Removing | State::Dead => None,
    }
}

/// Progress of a Job.
pub(crate) fn job(
    stack: &Stack,
    workload: &Workload,
    observed: &Observed,
    record: &Record,
) -> Option<JobStatus> {
    let job = workload.job_or_template()?;
    let parts = jobs::parts_of(stack, &job.of);
    let names: BTreeSet<&WorkloadName> = parts.iter().map(|it| it.subject.name).collect();
    if names.is_empty() {
        return None;
    }
    let known = jobs::record_of(record, &parts).cloned().unwrap_or_default();
    let is_part = |it: &&Instance| names.contains(&it.instance.workload);
    let active = observed.instances.values().filter(is_part).filter(|it| jobs::is_begun(it)).count();
    let indexes = known.done.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let end = known.ended.as_ref();
    let completed = end.filter(|it| it.outcome == JobOutcome::Complete);
    Some(JobStatus {
        active: u32::try_from(active).unwrap_or(u32::MAX),
        succeeded: u32::try_from(known.done.len()).unwrap_or(u32::MAX),
        failed: known.failures,
        is_over: end.is_some() && completed.is_none(),
        reason: end.map(|it| it.outcome.as_str().to_owned()),
        suspended: job.suspended,
        completions: job.completions,
        parallelism: job.parallelism,
        completed_indexes: Some(indexes).filter(|it| job.indexed && !it.is_empty()),
        start_time: known.started,
        completion_time: completed.map(|it| it.at),
    })
}

/// The status of a CronJob.
pub(crate) fn cron(subject: Subject<'_>, record: &Record) -> Option<CronStatus> {
    let Subject { name, workload } = subject;
    let cron = workload.schedule()?;
    let known = record.crons.get(name).cloned().unwrap_or_default();
    let is_active = |it: &&WorkloadName| record.jobs.get(*it).is_none_or(|it| it.ended.is_none());
    Some(CronStatus {
        schedule: cron.schedule.clone(),
        time_zone: cron.zone.clone(),
        concurrency_policy: cron.concurrency.as_str().to_owned(),
        suspend: cron.suspended,
        active: known.runs.keys().filter(is_active).map(ToString::to_string).collect(),
        last_schedule_time: known.last,
        last_successful_time: known.last_success,
    })
}
