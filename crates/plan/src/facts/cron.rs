//! CronJobs: the stack with their runs, and how runs are named.
//!
//! A run is written into the record when it begins. From then on it is in the stack like any other Job, however often
//! the agent restarts. Its name contains the minute that it is for, so no minute has two runs.

use std::{borrow::Cow, collections::BTreeSet};

use crate::facts::{
    hooks::{self, namespace_of},
    scales,
};

use driftless_model::{
    ContainerId, Cron, GivenStack, Instance, Job, JobOutcome, Kind, ObjectRef, Observed, Record, Schedule,
    Stack, State, Subject, SwarmMode, Workload, WorkloadKind, WorkloadName, downward, label,
};

/// The stack with the runs of CronJobs and hooks that were begun, and with the numbers of instances that users set. Its hash is that of what Git says.
pub fn with_runs<'a>(stack: &'a Stack, record: &Record) -> Cow<'a, Stack> {
    let mut runs = record.crons.iter().filter(|(name, _)| keeps_runs_of(stack, name)).peekable();
    // An application that is taken down has no hooks any more.
    let hooks = record.hooks.as_deref().filter(|hooks| hooks.begun_runs().next().is_some());
    let hooks = hooks.filter(|_| !stack.workloads.is_empty());
    if runs.peek().is_none() && hooks.is_none() && record.scales.is_empty() {
        return Cow::Borrowed(stack);
    }
    let given = GivenStack { added_networks: BTreeSet::new(), ..stack.as_given() };
    let mut whole = Stack { given: Some(given), ..without_runs(stack) };
    if let Some(hooks) = hooks {
        hooks::add_runs(&mut whole, hooks);
    }
    for (cron, known) in runs {
        let object = stack.inventory.workloads.get(cron);
        let namespace = object.map_or_else(|| namespace_of(stack, cron), |object| object.namespace.clone());
        for (name, run) in &known.runs {
            // Git may since have given the name to something of its own.
            if stack.workloads.get(name).is_some_and(|it| !it.is_run()) {
                continue;
            }
            let dotted = format!(".{namespace}");
            let plain = name.as_str().strip_suffix(&dotted).unwrap_or(name.as_str()).to_owned();
            let object = ObjectRef { kind: Kind::Job, namespace: namespace.clone(), name: plain };
            whole.inventory.workloads.insert(name.clone(), object);
            whole.workloads.insert(name.clone(), run.clone());
            if let Some(service) = known.services.get(name) {
                whole.swarm.insert(name.clone(), service.clone());
            }
            if let Some(networks) = known.networks.get(name) {
                whole.add_networks(networks);
            }
        }
    }
    scales::scale(&mut whole, record);
    Cow::Owned(whole)
}

/// Whether the runs of a CronJob of the record belong to a stack. On one host, the plan decides when a CronJob is forgotten that Git
/// drops: as long as its commit is held, it goes on.
pub(crate) fn keeps_runs_of(stack: &Stack, cron: &WorkloadName) -> bool {
    let is_leaving = stack.workloads.is_empty();
    has_cron_job(stack, cron) || (stack.swarm.is_empty() && !is_leaving)
}

/// The stack as Git says it.
pub fn without_runs(stack: &Stack) -> Stack {
    let mut plain = Stack { given: None, ..stack.clone() };
    plain.workloads.retain(|_, it| !it.is_run());
    if let Some(given) = &stack.given {
        plain.networks.retain(|name, _| !given.added_networks.contains(name));
    }
    scales::unscale(&mut plain);
    // The number of tasks of a global service is that of the nodes; Git has none.
    let global = stack.swarm.iter().filter(|(_, service)| service.mode == SwarmMode::Global);
    for (name, _) in global {
        if let Some(workload) = plain.workloads.get_mut(name) {
            workload.replicas = 1;
        }
    }
    let workloads = &plain.workloads;
    plain.inventory.workloads.retain(|name, _| workloads.contains_key(name));
    plain.swarm.retain(|name, _| workloads.contains_key(name));
    plain
}

/// The Job `run` of a CronJob.
pub fn run_of(template: Subject<'_>, run: &WorkloadName, name: &str) -> Option<Workload> {
    let Subject { name: cron, workload: template } = template;
    let job = Job { of: run.clone(), cron: Some(cron.clone()), ..template.job_or_template()?.clone() };
    let replicas = u32::from(!job.suspended);
    let kind = WorkloadKind::Job(job);
    let mut workload = Workload { replicas, kind, ..template.renamed(cron, run) };
    for container in workload.containers_mut() {
        for label in label::JOB_NAMES {
            container.labels.insert(label.to_owned(), name.to_owned());
        }
        container.labels.insert(label::CRON.to_owned(), cron.to_string());
        downward::fill_job_name(container, name);
    }
    Some(workload)
}

/// The workload of a CronJob's Job by the name of the Job: `report-29384756` of `report.shop` is `report-29384756.shop`.
pub fn run_name(cron: &WorkloadName, object: Option<&ObjectRef>, job: &str) -> WorkloadName {
    let plain = object.map_or(cron.as_str(), |it| &it.name);
    let namespace = cron.as_str().strip_prefix(plain).unwrap_or_default();
    WorkloadName(format!("{job}{namespace}"))
}

/// Whether a container was a run of a CronJob that the stack still has.
pub(crate) fn was_run(stack: &Stack, instance: &Instance) -> bool {
    cron_job_of(stack, instance).is_some()
}

/// Leaves out the runs of CronJobs and hooks that have ended. Only the record of the agent says which of them are kept, so in a
/// comparison without it, all of them would be differences.
pub fn leave_out_ended_runs(observed: &mut Observed, stack: &Stack) {
    let has_ended = |run: &Instance| matches!(run.state, State::Exited { .. } | State::Dead);
    let is_ended_run = |instance: &&Instance| {
        (was_run(stack, instance) || hooks::was_hook(instance))
            && has_ended(instance)
            && observed.parts_of(&instance.id).into_iter().all(has_ended)
    };
    let ended = observed.instances.values().filter(is_ended_run);
    let ended: BTreeSet<ContainerId> = ended.map(|run| run.id.clone()).collect();
    observed.instances.retain(|id, _| !ended.contains(id));
    observed.parts.retain(|_, part| part.part.as_ref().is_none_or(|of| !ended.contains(&of.pod)));
}

/// The CronJob that a container was a run of, if the stack still has it.
pub(crate) fn cron_job_of<'a>(stack: &'a Stack, instance: &Instance) -> Option<&'a WorkloadName> {
    let names = || all(stack).map(|cron_job| cron_job.subject.name);
    match instance.config.labels.get(label::CRON) {
        Some(of) => names().find(|cron| cron.as_str() == of),
        None => names().find(|cron| was_run_before_label(stack, cron, instance)),
    }
}

/// The CronJob that a container was a run of, also if only a commit that is held drops it.
pub(crate) fn known_cron_job_of<'a>(
    stack: &'a Stack,
    record: &'a Record,
    instance: &Instance,
) -> Option<&'a WorkloadName> {
    let is_its =
        |cron: &&WorkloadName| instance.config.labels.get(label::CRON).is_some_and(|of| of == cron.as_str());
    cron_job_of(stack, instance).or_else(|| record.crons.keys().find(is_its))
}

/// Whether a container was a run that a release without the label has begun when it was due: its Job has the name of the CronJob
/// and the minute.
fn was_run_before_label(stack: &Stack, cron: &WorkloadName, instance: &Instance) -> bool {
    let mut jobs = label::JOB_NAMES.iter().filter_map(|label| instance.config.labels.get(*label));
    let Some(job) = jobs.next() else { return false };
    let is_minute = |text: &str| !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
    let object = stack.inventory.workloads.get(cron);
    let plain = object.map_or(cron.as_str(), |object| &object.name);
    let minute = job.strip_prefix(plain).and_then(|rest| rest.strip_prefix('-'));
    minute.is_some_and(is_minute) && run_name(cron, object, job) == instance.instance.workload
}

/// Why the last run that has ended is no success, if it is none.
pub(crate) fn failure<'a>(record: &'a Record, name: &WorkloadName) -> Option<(&'a WorkloadName, JobOutcome)> {
    let known = record.crons.get(name)?;
    let ended = known.runs.keys().filter_map(|it| Some((it, record.jobs.get(it)?.ended.as_ref()?)));
    let forgotten = known.last_failure.iter().map(|failed| (&failed.run, &failed.end));
    let (run, end) = ended.chain(forgotten).max_by_key(|(_, it)| it.at)?;
    // The one that succeeded since may not have been kept.
    let is_made_up_for = known.last_success.is_some_and(|it| it > end.at);
    (end.outcome != JobOutcome::Complete && !is_made_up_for).then_some((run, end.outcome))
}

/// A CronJob.
#[derive(Clone, Copy)]
pub(crate) struct CronJob<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) schedule: &'a Cron,
}

/// Whether a stack has a CronJob of this name.
pub fn has_cron_job(stack: &Stack, name: &WorkloadName) -> bool {
    stack.workloads.get(name).is_some_and(|workload| workload.schedule().is_some())
}

/// All CronJobs of a stack.
pub(crate) fn all(stack: &Stack) -> impl Iterator<Item = CronJob<'_>> {
    stack.subjects().filter_map(|subject| Some(CronJob { subject, schedule: subject.workload.schedule()? }))
}

/// It was parsed when it was read; what an older program wrote and this one cannot read is never due.
pub(crate) fn parsed(cron: &Cron) -> Option<Schedule> {
    Schedule::parse(&cron.schedule, cron.zone.as_deref()).ok()
}
