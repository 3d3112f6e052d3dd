//! Jobs: each is a service whose tasks complete.
//!
//! A Swarm runs a Job once more with each update of its service, so the service of a Job is never updated. A Job with another
//! content gets another service, once the tasks of the former one have stopped: removing a service alone does not stop those
//! of a Job.

use driftless_model::{
    Job, JobEnd, JobOutcome, JobRecord, ObservedService, ObservedSwarm, Subject, WorkloadName, label,
    swarm_service_name,
};
use serde_json::Value;

use super::{
    action::SwarmAction,
    dependencies::is_ready_for,
    job_tasks::{JobTasks, failure, is_of_job, is_outdated},
    ownership::is_own,
    progress,
    spec::{WantedService, hash_of},
    stopping::stop,
    writers,
};
use crate::{
    action::Action,
    cause::Cause,
    decide::{
        job_retry::is_awaited,
        jobs::{reason_to_wait, report_failure},
    },
    draft::Draft,
    facts::jobs::{JobPart, record_of},
    wait::{Wait, WaitObject, WaitReason},
};

/// The need of a Job.
pub(super) enum Need<'a> {
    Nothing,
    /// A service.
    Service,
    /// Another service than this one.
    Another(&'a ObservedService),
}

/// Plans the service of a Job, and reports its end.
pub(super) fn run_job<'a>(draft: &mut Draft<'_>, swarm: &'a ObservedSwarm, subject: Subject<'_>) -> Need<'a> {
    let facts = draft.facts;
    let Some(job) = subject.workload.job() else { return Need::Nothing };
    let part = JobPart { subject, job };
    let unknown = JobRecord::default();
    let known = record_of(facts.record, &[part]).unwrap_or(&unknown);
    let name = swarm_service_name(&facts.target.stack.project, subject.name);
    let needs_none = known.ended.is_some() || job.suspended;
    let Some(found) = swarm.services.get(&name) else {
        report_end(draft, part, known);
        return if needs_none { Need::Nothing } else { Need::Service };
    };
    if found.label(label::AGENT).is_none() {
        let sentence = format!(
            "has a service `{name}` without the label `driftless.agent`, and to adopt a Job would run it again: remove it with `docker service rm {name}`; the Job then runs once"
        );
        draft.wait(Wait::new(WaitObject::Workload(subject.name.clone()), WaitReason::Blocked, sentence));
        return Need::Nothing;
    }
    if !is_own(draft, subject.name, found) {
        return Need::Nothing;
    }
    if !is_of_job(found, part) {
        if needs_none {
            end(draft, swarm, subject.name, found, &Cause::SpecChanged);
            report_end(draft, part, known);
            return Need::Nothing;
        }
        return Need::Another(found);
    }
    let tasks = JobTasks::of(swarm, found);
    if known.ended.is_some() {
        wind_up(draft, &tasks, part, known);
        return Need::Nothing;
    }
    if job.suspended {
        let cause = Cause::Finished { reason: "it is suspended".to_owned() };
        end(draft, swarm, subject.name, found, &cause);
        return Need::Nothing;
    }
    if is_outdated(found, &hash_of(facts.target, subject), part) && !tasks.is_running() {
        return Need::Another(found);
    }
    if let (Some(since), Some(deadline)) = (known.started, job.active_deadline) {
        draft.look_again(since.after(deadline));
    }
    draft.look_again(facts.now.after(progress::PROGRESS));
    await_start(draft, &tasks, part, known);
    Need::Nothing
}

/// Creates the service of a Job. What is in its place is ended first.
pub(super) fn create(
    draft: &mut Draft<'_>,
    swarm: &ObservedSwarm,
    subject: Subject<'_>,
    found: Option<&ObservedService>,
    wanted: WantedService,
    after: Vec<usize>,
) {
    let Some(job) = subject.workload.job() else { return };
    if let Some(wait) = reason_to_wait(draft, &[JobPart { subject, job }]) {
        draft.wait(wait);
        return;
    }
    if found.is_some()
        && let Some(failed) = draft.facts.failed_commit()
    {
        draft.wait(Wait::commit_failed(subject.name, failed));
        return;
    }
    if !is_ready_for(draft, swarm, subject) {
        return;
    }
    if let Some(found) = found {
        end(draft, swarm, subject.name, found, &Cause::SpecChanged);
        return;
    }
    if has_former_run(draft, swarm, job) {
        draft.look_again(draft.facts.now.after(progress::PROGRESS));
        return;
    }
    let WantedService { name, hash: _, spec } = wanted;
    let image = subject.workload.container.image.clone();
    let secrets = subject.workload.pull_secrets.iter().cloned().collect();
    let action = SwarmAction::CreateService { name, image, secrets, spec };
    draft.push(Action::Swarm(Box::new(action)), Cause::Missing, after);
}

/// Whether a run still works that another one takes the place of: one of the same CronJob (`concurrencyPolicy: Replace`), or a
/// hook of a former attempt.
fn has_former_run(draft: &Draft<'_>, swarm: &ObservedSwarm, job: &Job) -> bool {
    let stack = draft.facts.target.stack;
    let is_of_its_kind = |service: &ObservedService| match &job.cron {
        Some(cron) => service.label(label::CRON) == Some(cron.as_str()),
        None => job.hook.is_some() && service.label(label::HOOK).is_some(),
    };
    let is_former = |service: &&ObservedService| {
        service.label(label::APPLICATION) == Some(stack.app.as_str())
            && is_of_its_kind(service)
            && service.label(label::WORKLOAD).is_none_or(|run| !stack.workloads.contains_key(&run.into()))
    };
    swarm.services.values().filter(is_former).any(|service| JobTasks::of(swarm, service).has_active())
}

/// Removes a service. Those of Jobs, and those that write to data, go once their tasks have stopped: another service may need the data
/// in the next commit, or in an application that cannot see these tasks. One that has lost its labels gets them back with the stop, as
/// no service is removed without them.
pub(super) fn end(
    draft: &mut Draft<'_>,
    swarm: &ObservedSwarm,
    name: &WorkloadName,
    found: &ObservedService,
    cause: &Cause,
) {
    let tasks = JobTasks::of(swarm, found);
    let is_awaited = found.is_job() || writers::has_data(swarm, found);
    let is_to_stop = found.is_unlabelled || (is_awaited && tasks.has_unended());
    let is_stopping = is_to_stop && stop(draft, found, cause);
    if is_stopping || (is_awaited && tasks.has_active()) {
        let sentence = if found.is_job() {
            "waits until the tasks of its former run have stopped"
        } else if is_awaited {
            "waits until its tasks have stopped, because they write to data"
        } else {
            "gets the labels of the agent back before it is removed"
        };
        draft.wait(Wait::new(WaitObject::Workload(name.clone()), WaitReason::Readiness, sentence));
        return;
    }
    let service = found.spec.get("Name").and_then(Value::as_str).unwrap_or_default().to_owned();
    draft.plan.removed_from.insert(name.clone());
    let action = SwarmAction::RemoveService { name: service, id: found.id.clone() };
    draft.push(Action::Swarm(Box::new(action)), cause.clone(), Vec::new());
}

/// Removes the service of a Job that has ended when its time to live is over, or when a task of it still runs although it failed.
fn wind_up(draft: &mut Draft<'_>, tasks: &JobTasks<'_>, part: JobPart<'_>, known: &JobRecord) {
    let Some(JobEnd { at, outcome }) = &known.ended else { return };
    let gone = part.job.ttl.map(|ttl| at.after(ttl));
    let is_late = gone.is_some_and(|gone| draft.facts.now >= gone);
    if is_late || (*outcome != JobOutcome::Complete && tasks.has_active()) {
        let cause = Cause::Finished { reason: outcome.to_string() };
        end(draft, tasks.swarm, part.subject.name, tasks.service, &cause);
    } else if let Some(gone) = gone {
        draft.look_again(gone);
    }
    report_end(draft, part, known);
}

fn report_end(draft: &mut Draft<'_>, part: JobPart<'_>, known: &JobRecord) {
    let Some(JobEnd { outcome, .. }) = &known.ended else { return };
    if *outcome != JobOutcome::Complete {
        let why = match known.last_error.as_str() {
            "" => outcome.to_string(),
            error => format!("{outcome}: {error}"),
        };
        report_failure(draft, part.job, &why);
    }
}

/// Says why no task of a Job runs yet. For a run of a CronJob nobody waits.
fn await_start(draft: &mut Draft<'_>, tasks: &JobTasks<'_>, part: JobPart<'_>, known: &JobRecord) {
    let JobPart { subject, job } = part;
    if tasks.is_begun() || !is_awaited(job) {
        return;
    }
    let why = tasks.last_error().map(failure).unwrap_or_default();
    draft.wait(Wait::readiness(subject.name, 0, wanted_tasks(job), &why));
    if known.failures == 0 {
        progress::watch(draft, subject);
    }
}

fn wanted_tasks(job: &Job) -> u32 {
    job.parallelism.min(job.completions.unwrap_or(job.parallelism)).max(1)
}
