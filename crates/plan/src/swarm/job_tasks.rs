//! Tasks of Jobs: which run and which have ended, and what the record counts of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    ContainerId, JobEnd, JobOutcome, JobRecord, ObservedService, ObservedSwarm, SpecHash, SwarmMode,
    SwarmService, SwarmTask, Timestamp, label, swarm_service_name,
};

use crate::{
    facts::jobs::{JobPart, is_of},
    target::Target,
};

/// The pause of a Swarm before another try, by default.
const DELAY: Duration = Duration::from_secs(5);

/// The time in which a Swarm creates the task of another try.
const RETRY: Duration = Duration::from_secs(15);

/// A service of a Job with its tasks.
pub(super) struct JobTasks<'a> {
    pub(super) swarm: &'a ObservedSwarm,
    pub(super) service: &'a ObservedService,
    /// Those of the present run.
    current: Vec<&'a SwarmTask>,
}

impl<'a> JobTasks<'a> {
    pub(super) fn of(swarm: &'a ObservedSwarm, service: &'a ObservedService) -> Self {
        let mut current: Vec<&SwarmTask> =
            swarm.tasks_of(&service.id).filter(|task| task.is_current).collect();
        current.sort_by_key(|task| (task.since, task.created));
        Self { swarm, service, current }
    }

    /// Whether a task, of any run, may still run.
    pub(super) fn has_unended(&self) -> bool {
        self.swarm.tasks_of(&self.service.id).any(|task| !is_over(task))
    }

    /// Whether a task, of any run, may still do something. Those of a node that is down are given up.
    pub(super) fn has_active(&self) -> bool {
        self.swarm.tasks_of(&self.service.id).any(|task| is_active(self.swarm, task))
    }

    /// Whether a task of the present run runs or has run to its end.
    pub(super) fn is_begun(&self) -> bool {
        self.current.iter().any(|task| matches!(task.state.as_str(), "running" | "complete"))
    }

    /// Whether a task of the present run runs.
    pub(super) fn is_running(&self) -> bool {
        self.current.iter().any(|task| task.state == "running" && is_active(self.swarm, task))
    }

    /// The engine's words about the newest task that does not run.
    pub(super) fn last_error(&self) -> Option<&'a SwarmTask> {
        self.current.iter().rev().find(|task| !task.error.is_empty()).copied()
    }

    /// The tasks of the present run by what they have in common with their next try: the slot, or the node of a global Job.
    fn groups(&self) -> BTreeMap<(Option<u32>, Option<&'a str>), Vec<&'a SwarmTask>> {
        let is_global = self.service.mode() == Some(SwarmMode::GlobalJob);
        let mut groups: BTreeMap<_, Vec<&SwarmTask>> = BTreeMap::new();
        for task in self.current.iter().copied() {
            let node = task.node.as_deref().filter(|_| is_global);
            groups.entry((task.slot, node)).or_default().push(task);
        }
        groups
    }
}

/// Whether the state of a task is that of an end.
pub(super) fn has_ended(task: &SwarmTask) -> bool {
    matches!(task.state.as_str(), "complete" | "shutdown" | "failed" | "rejected" | "remove" | "orphaned")
}

/// Whether a task never runs again. A Swarm leaves the state of one as it is that it gives up before a node has it.
pub(super) fn is_over(task: &SwarmTask) -> bool {
    let is_given_up = matches!(task.desired_state.as_str(), "shutdown" | "remove")
        && matches!(task.state.as_str(), "new" | "pending");
    is_given_up || has_ended(task)
}

/// Whether a task may still do something. Those of a node that is down are given up.
pub(super) fn is_active(swarm: &ObservedSwarm, task: &SwarmTask) -> bool {
    let node = task.node.as_ref().and_then(|node| swarm.nodes.get(node));
    !is_over(task) && node.is_none_or(|node| node.state != "down")
}

/// The service of a Job, if it is that of its present content.
pub(super) fn service_of<'a>(
    target: &Target<'_>,
    swarm: &'a ObservedSwarm,
    part: JobPart<'_>,
) -> Option<&'a ObservedService> {
    let found = swarm.services.get(&swarm_service_name(&target.stack.project, part.subject.name))?;
    is_of_job(found, part).then_some(found)
}

/// Whether a service does the work of a Job. A run keeps the service with which it was begun.
pub(super) fn is_of_job(found: &ObservedService, part: JobPart<'_>) -> bool {
    let label = found.label(label::JOB);
    label.is_some_and(|label| part.job.is_run() || is_of(&SpecHash(label.to_owned()), &[part]))
}

/// Whether a service has settings of its Job that are others in Git, such as its placement. Its work stays the same.
pub(super) fn is_outdated(found: &ObservedService, hash: &str, part: JobPart<'_>) -> bool {
    !part.job.is_run() && found.label(label::SPEC) != Some(hash)
}

/// Counts the tasks of a Job, and says whether it has ended. `hash` is that of the service which Git asks for.
pub(crate) fn count(
    job: &mut JobRecord,
    target: &Target<'_>,
    swarm: &ObservedSwarm,
    part: JobPart<'_>,
    hash: &str,
    now: Timestamp,
) {
    if part.job.suspended && job.ended.is_none() {
        // Its service is removed, and the next one begins with all completions.
        *job = fresh(job);
    }
    let Some(found) = service_of(target, swarm, part) else {
        if part.job.completions == Some(0) && job.ended.is_none() {
            job.ended = Some(JobEnd { at: now, outcome: JobOutcome::Complete });
        }
        return;
    };
    let run = format!("{}.{}", found.id, found.iteration);
    if job.run.as_ref() != Some(&run) {
        *job = JobRecord { run: Some(run), ..fresh(job) };
    }
    let tasks = JobTasks::of(swarm, found);
    job.begun = true;
    job.started = job.started.or_else(|| tasks.current.iter().map(|task| task.created).min());
    let ids: BTreeSet<&str> = tasks.current.iter().map(|task| task.id.as_str()).collect();
    job.counted.retain(|id, _| ids.contains(id.0.as_str()));
    count_ends(job, &tasks);
    let default = SwarmService::default();
    let settings = target.stack.swarm.get(part.subject.name).unwrap_or(&default);
    conclude(job, &tasks, part, settings, now);
    let is_complete = job.ended.as_ref().is_some_and(|end| end.outcome == JobOutcome::Complete);
    if is_outdated(found, hash, part) && !is_complete && !tasks.is_running() {
        // It is begun again with its new settings.
        *job = fresh(job);
    }
}

/// A Job of the same content of which nothing was done.
fn fresh(job: &JobRecord) -> JobRecord {
    JobRecord { spec: job.spec.clone(), manifest: job.manifest.clone(), ..JobRecord::default() }
}

fn count_ends(job: &mut JobRecord, tasks: &JobTasks<'_>) {
    let is_global = tasks.service.mode() == Some(SwarmMode::GlobalJob);
    let mut complete = 0;
    for task in &tasks.current {
        match task.state.as_str() {
            "complete" => {
                let ordinal = if is_global { complete } else { task.slot.unwrap_or_default() };
                complete += 1;
                if job.done.insert(ordinal) {
                    job.streak = 0;
                }
            }
            "failed" | "rejected" => {
                let before = job.counted.insert(ContainerId(task.id.clone()), task.since);
                if before.is_none() {
                    job.failures = job.failures.saturating_add(1);
                    job.streak = job.streak.saturating_add(1);
                    (job.last_failure, job.last_code) =
                        (Some(task.since), task.exit_code.unwrap_or_default());
                    job.last_error = failure(task);
                }
            }
            _ => {}
        }
    }
}

/// Why a task does not run, in one sentence.
pub(super) fn failure(task: &SwarmTask) -> String {
    match task.exit_code {
        Some(code) if code != 0 => format!("a task exited with code {code}: {}", task.error),
        _ => task.error.clone(),
    }
}

fn conclude(
    job: &mut JobRecord,
    tasks: &JobTasks<'_>,
    part: JobPart<'_>,
    settings: &SwarmService,
    now: Timestamp,
) {
    if job.ended.is_some() {
        return;
    }
    let groups = tasks.groups();
    let has_completed = |of: &[&SwarmTask]| of.iter().any(|task| task.state == "complete");
    let is_complete = if tasks.service.mode() == Some(SwarmMode::GlobalJob) {
        let mut awaited = groups.values().filter(|of| !is_given_up(tasks.swarm, of)).peekable();
        awaited.peek().is_some() && awaited.all(|of| has_completed(of))
    } else {
        job.done.len() >= part.job.completions.unwrap_or(1) as usize
    };
    let late = job.started.zip(part.job.active_deadline).map(|(since, limit)| since.after(limit));
    let complete = tasks.current.iter().filter(|task| task.state == "complete");
    // The times are those of tasks, so that the agents on all managers find the same.
    let (at, outcome) = if is_complete {
        (complete.map(|task| task.since).max(), JobOutcome::Complete)
    } else if late.is_some_and(|late| now >= late) {
        (late, JobOutcome::DeadlineExceeded)
    } else if job.failures > part.job.backoff_limit
        || groups.values().any(|of| is_exhausted(tasks, of, settings, now))
    {
        (job.last_failure, JobOutcome::BackoffLimitExceeded)
    } else {
        return;
    };
    job.ended = Some(JobEnd { at: at.unwrap_or(now), outcome });
}

/// Whether a node of a global Job is not awaited any more, although no task has failed there: it is drained, down or removed, and the
/// Swarm begins no other task on it.
fn is_given_up(swarm: &ObservedSwarm, of: &[&SwarmTask]) -> bool {
    let Some(newest) = of.iter().max_by_key(|task| task.created) else { return false };
    let is_removed = newest.node.as_ref().is_some_and(|node| !swarm.nodes.contains_key(node));
    let has_failed = matches!(newest.state.as_str(), "failed" | "rejected");
    let is_complete = of.iter().any(|task| task.state == "complete");
    !is_complete && !has_failed && (is_removed || !is_active(swarm, newest))
}

/// Whether the Swarm tries no more: all tries have failed.
fn is_exhausted(tasks: &JobTasks<'_>, of: &[&SwarmTask], settings: &SwarmService, now: Timestamp) -> bool {
    let has_failed = |task: &&&SwarmTask| matches!(task.state.as_str(), "failed" | "rejected");
    let failed = of.iter().filter(has_failed).count() as u64;
    let Some(last) = of.iter().filter(has_failed).map(|task| task.since).max() else { return false };
    if of.iter().any(|task| is_active(tasks.swarm, task) || task.state == "complete") {
        return false;
    }
    let restart = settings.restart.as_ref();
    let tries = match restart {
        Some(restart) if restart.condition == "none" => Some(1),
        Some(restart) => restart.max_attempts.map(|attempts| attempts.saturating_add(1)),
        None => None,
    };
    let delay = restart.and_then(|restart| restart.delay).unwrap_or(DELAY);
    // A Swarm forgets tasks, and this agent may have seen only some of them.
    tries.is_some_and(|tries| failed >= tries) || now >= last.after(delay).after(RETRY)
}
