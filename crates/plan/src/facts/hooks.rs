//! Hooks: their runs, and whether a sync waits for its `PreSync` hooks.
//!
//! Like the run of a CronJob, the run of a hook is written into the record when it begins. From then on it is in the
//! stack like any other Job, however often the agent restarts.

use driftless_model::{
    Format, HookOrigin, HookPhase, HookRecord, HookRun, Instance, Job, JobEnd, JobOutcome, JobRecord, Kind,
    MountSource, ObjectRef, Record, Stack, StackHash, Subject, Workload, WorkloadKind, WorkloadName, label,
};

/// The templates of the hooks of a stack.
pub(crate) fn templates(stack: &Stack) -> impl Iterator<Item = (Subject<'_>, HookPhase)> {
    stack.subjects().filter_map(|subject| Some((subject, subject.workload.hook()?)))
}

/// Whether a stack has a hook of a phase.
pub fn has_hook(stack: &Stack, phase: HookPhase) -> bool {
    templates(stack).any(|(_, of)| of == phase)
}

/// Whether nothing of a stack is applied yet, because its `PreSync` hooks have not succeeded.
pub fn is_held_by_hooks(stack: &Stack, record: &Record) -> bool {
    if !has_hook(stack, HookPhase::PreSync) {
        return false;
    }
    let hash = StackHash::of(stack);
    let known = record.hooks.as_deref();
    known.is_none_or(|hooks| !(hooks.passed && hooks.stack == hash) && hooks.exempt.as_ref() != Some(&hash))
}

/// Adds the runs that have begun to a stack.
pub(crate) fn add_runs(stack: &mut Stack, hooks: &HookRecord) {
    for (name, run) in hooks.begun_runs() {
        let Some(origin) = run.workload.job().and_then(|job| job.hook.as_ref()) else { continue };
        let namespace = namespace_of(stack, &origin.of);
        let plain = name.as_str().strip_suffix(namespace.as_str()).and_then(|rest| rest.strip_suffix('.'));
        let plain = plain.unwrap_or(name.as_str()).to_owned();
        let object = ObjectRef { kind: Kind::Job, namespace, name: plain };
        stack.inventory.workloads.insert(name.clone(), object);
        stack.workloads.insert(name.clone(), run.workload.clone());
        if let Some(service) = &run.service {
            stack.swarm.insert(name.clone(), (**service).clone());
        }
        stack.add_networks(&run.networks);
        for (name, volume) in &run.volumes {
            stack.volumes.entry(name.clone()).or_insert_with(|| volume.clone());
        }
    }
}

/// The namespace of the runs of a template that the stack may have no more.
pub(crate) fn namespace_of(stack: &Stack, template: &WorkloadName) -> String {
    match stack.format {
        Format::Compose => stack.app.to_string(),
        Format::Kubernetes => {
            template.as_str().split_once('.').map_or("default", |(_, namespace)| namespace).to_owned()
        }
    }
}

/// The run of a hook in one attempt of a revision. Its name has both numbers: `migrate-12-1`, and in a Swarm the start of the
/// hash of the stack in the place of the first.
pub(crate) fn run(
    stack: &Stack,
    template: Subject<'_>,
    revision: u64,
    attempt: u32,
) -> Option<(WorkloadName, HookRun)> {
    let Subject { name: of, workload: template } = template;
    let phase = template.hook()?;
    let (plain, namespace) = match stack.inventory.workloads.get(of) {
        Some(object) => (object.name.as_str(), of.as_str().strip_prefix(&*object.name).unwrap_or_default()),
        None => (of.as_str(), ""),
    };
    // The agents on the managers of a Swarm count their revisions apart, and have to find the same name.
    let hash = StackHash::of(stack).0;
    let number = match hash.get(..8) {
        Some(start) if !stack.swarm.is_empty() => start.to_owned(),
        _ => revision.to_string(),
    };
    let name = WorkloadName(format!("{plain}-{number}-{attempt}{namespace}"));
    let origin = HookOrigin { of: of.clone(), phase };
    let job = Job { of: name.clone(), hook: Some(origin), ..template.job_or_template()?.clone() };
    let kind = WorkloadKind::Job(job);
    let mut workload = Workload { replicas: 1, kind, ..template.renamed(of, &name) };
    workload.container.labels.insert(label::HOOK.to_owned(), phase.to_string());
    let networks = workload.container.networks().keys();
    let networks =
        networks.filter_map(|name| Some((name.clone(), stack.networks.get(name)?.clone()))).collect();
    let mounts = workload.containers().flat_map(|container| &container.mounts);
    let volumes = mounts.filter_map(|mount| match &mount.source {
        MountSource::Volume { name, no_copy: _ } => Some((name.clone(), stack.volumes.get(name)?.clone())),
        _ => None,
    });
    let volumes = volumes.collect();
    let service = stack.swarm.get(of).map(|service| Box::new(service.clone()));
    Some((name, HookRun { phase, workload, networks, volumes, service }))
}

/// Whether a container was a run of a hook.
pub(crate) fn was_hook(instance: &Instance) -> bool {
    instance.config.labels.contains_key(label::HOOK)
}

/// The outcome of a run, if it has ended.
pub(crate) fn outcome(record: &Record, run: &WorkloadName) -> Option<JobOutcome> {
    let JobEnd { outcome, at: _ } = record.jobs.get(run).and_then(|job: &JobRecord| job.ended.as_ref())?;
    Some(*outcome)
}

/// Whether all hooks of a phase have begun and succeeded.
pub(crate) fn has_succeeded(hooks: &HookRecord, record: &Record, phase: HookPhase) -> bool {
    let is_complete =
        |(name, _): (&WorkloadName, &HookRun)| outcome(record, name) == Some(JobOutcome::Complete);
    let has_begun = hooks.begun.contains(&phase) || hooks.of_phase(phase).next().is_none();
    has_begun && hooks.of_phase(phase).all(is_complete)
}

/// A hook of the same phase and a lower wave that has not succeeded.
pub(crate) fn earlier<'a>(record: &'a Record, name: &WorkloadName) -> Option<&'a WorkloadName> {
    let hooks = record.hooks.as_deref()?;
    let run = hooks.runs.get(name)?;
    let is_before = |(other, before): &(&WorkloadName, &HookRun)| {
        before.workload.wave < run.workload.wave && outcome(record, other) != Some(JobOutcome::Complete)
    };
    hooks.of_phase(run.phase).find(is_before).map(|(name, _)| name)
}
