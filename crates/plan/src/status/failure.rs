//! Whether a commit has failed: its rollout does not get on, or what it started is not healthy.

use std::{cmp::Reverse, collections::BTreeSet};

use driftless_model::{
    FailureAction, Instance, JobRecord, Observed, OnFailure, Outcome, Policy, Record, Revision, Stack,
    StackHashes, State, Subject, Timestamp, Workload, WorkloadName,
};

use crate::{
    action::Action,
    backoff::sync_delay,
    facts::{
        coming_up::coming_up,
        jobs::{self, JobPart},
        pods,
        standing::{failure, is_completed},
        update_failures,
    },
    status::{health::health, inputs::Inputs},
    steps::{Plan, Step},
    wait::{Wait, WaitObject, WaitReason, WaitSeverity},
};

/// The live state of an application in one round, and the plan for it.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    pub stack: &'a Stack,
    /// The hashes of the stack.
    pub hashes: &'a StackHashes,
    pub policy: &'a Policy,
    pub observed: &'a Observed,
    pub record: &'a Record,
    pub plan: &'a Plan,
    pub now: Timestamp,
}

/// The time of a commit, in which what ends is its own.
#[derive(Clone, Copy, Debug)]
pub struct CommitSpan {
    pub started: Timestamp,
    /// When the first of the commits began that it has overtaken before they were reached, or it itself. Their changes are part of it.
    pub open_since: Timestamp,
}

impl CommitSpan {
    /// Of a commit that has overtaken none.
    pub fn of(started: Timestamp) -> Self {
        Self { started, open_since: started }
    }

    /// Whether an end is one of the commit. Of what was there before, and the overtaken commits left as it was, only the end after its
    /// own start is.
    fn has(self, end: Timestamp, began: Timestamp) -> bool {
        end >= self.started || (end >= self.open_since && began >= self.open_since)
    }
}

/// A failure of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFailure {
    /// Why, in one line.
    pub reason: String,
    /// The consequence that the service which failed asks for. `None`: that of the application.
    pub action: Option<FailureAction>,
}

impl CommitFailure {
    fn on_failure(&self, general: OnFailure) -> OnFailure {
        self.action.map_or(general, FailureAction::consequence)
    }
}

impl Round<'_> {
    /// Why the rollout of a commit has failed. `None`: it gets on, or waits for something that is no fault of the commit, such as an
    /// image that cannot be pulled. Of several failures, the one with the strictest consequence.
    pub fn rollout_failure(&self, span: CommitSpan) -> Option<CommitFailure> {
        let of = |reason: WaitReason| self.plan.waits.iter().filter(move |wait| wait.is(reason));
        let mut failures: Vec<CommitFailure> =
            of(WaitReason::UpdateFailed).map(|wait| self.commit_failure(wait)).collect();
        if self.repeated_steps().len() == self.plan.steps.len() {
            // One that ended says more than the lateness of those that wait for it.
            failures.extend(self.ended(span));
            failures.extend(self.rejected(span.started));
            let late = of(WaitReason::ProgressDeadlineExceeded)
                .filter(|wait| self.late_at(wait, span.started).is_none_or(|at| self.has_failed_again(at)));
            failures.extend(late.map(|wait| self.commit_failure(wait)));
        }
        let general = self.policy.on_failure;
        let strictest = failures.iter().map(|failure| failure.on_failure(general)).max()?;
        failures.into_iter().find(|failure| failure.on_failure(general) == strictest)
    }

    /// The steps by which nothing gets on: each is tried again after it failed, as the start of a container that the engine refuses,
    /// or follows such a step.
    fn repeated_steps(&self) -> BTreeSet<usize> {
        let mut repeated = BTreeSet::new();
        for (index, step) in self.plan.steps.iter().enumerate() {
            let follows = step.after.iter().any(|earlier| repeated.contains(earlier));
            if follows || self.last_error(step).is_some() {
                repeated.insert(index);
            }
        }
        repeated
    }

    /// Why a step failed when it was last tried. `None` for one that asks for an image, too: that is no fault of the commit.
    fn last_error(&self, step: &Step) -> Option<&str> {
        let attempt = self.record.failures.get(step.action.object());
        attempt.filter(|_| !step.action.asks_for_image()).map(|attempt| attempt.error.as_str())
    }

    /// Why the engine rejected the definitions of containers in a commit, for which the host is not the cause.
    fn rejected(&self, since: Timestamp) -> Vec<CommitFailure> {
        let is_rejected = |step: &&Step| {
            let object = step.action.object();
            let attempt = self.record.failures.get(object).filter(|_| self.record.rejected.contains(object));
            attempt.is_some_and(|attempt| attempt.next >= since.after(sync_delay(attempt.count)))
        };
        let failure = |step: &Step| {
            let concerned = self.stack.subjects().find(|subject| self.acts_on(step, subject.name));
            let action = concerned.and_then(|subject| subject.workload.failure.action);
            self.last_error(step).map(|error| CommitFailure { reason: error.to_owned(), action })
        };
        self.plan.steps.iter().filter(is_rejected).filter_map(failure).collect()
    }

    /// Whether a step acts on a container of a workload.
    fn acts_on(&self, step: &Step, name: &WorkloadName) -> bool {
        match &step.action {
            Action::CreateInstance(creation) => creation.instance.is_of(name),
            action => self
                .observed
                .containers()
                .any(|container| container.name == action.object() && container.instance.is_of(name)),
        }
    }

    /// Whether a time has passed, and each step that is tried again has failed once more since. The pause before a try may be longer
    /// than what prevented the one before it. A step that follows another one is skipped, and its last try may be old.
    fn has_failed_again(&self, since: Timestamp) -> bool {
        let tried = self.plan.steps.iter().filter(|step| step.after.is_empty());
        let mut attempts = tried.filter_map(|step| self.record.failures.get(step.action.object()));
        since <= self.now && attempts.all(|attempt| attempt.next >= since.after(sync_delay(attempt.count)))
    }

    /// When a workload without progress becomes the fault of a rollout that began at `since`: what was stuck before is not, and gets
    /// the same time as all others.
    fn late_at(&self, wait: &Wait, since: Timestamp) -> Option<Timestamp> {
        let subject = self.stack.subjects().find(|subject| wait.concerns(subject.name))?;
        let progress = self.record.progress.get(subject.name)?;
        let start = self.record.deadline_start(progress.at).max(since);
        Some(start.after(update_failures::progress_deadline(self.policy, subject.workload)))
    }

    /// When a failure of a revision may be found that is not found now, though nothing else happens.
    pub fn failure_may_come(&self, revision: &Revision) -> Option<Timestamp> {
        let is_later = |at: &Timestamp| *at > self.now;
        match revision.outcome {
            Outcome::InProgress => {
                let waits = self.plan.waits.iter();
                let late = waits.filter(|wait| wait.is(WaitReason::ProgressDeadlineExceeded));
                let late = late.filter_map(|wait| self.late_at(wait, revision.started));
                let come_up = coming_up(self.policy, self.observed, self.now).map(|time| time.end);
                late.chain(come_up).filter(is_later).min()
            }
            Outcome::Succeeded => {
                revision.finished.map(|finished| self.monitored_from(finished)).filter(is_later)
            }
            Outcome::Failed { .. } | Outcome::Superseded => None,
        }
    }

    /// When the time begins in which a commit that was reached at `finished` may lose its health. A start of the engine in this time
    /// begins it again, once the host has come up.
    pub fn monitored_from(&self, finished: Timestamp) -> Timestamp {
        let Self { policy, observed, now, .. } = *self;
        let is_in_time = |start: Timestamp| finished < start && start.since(finished) < policy.monitor;
        let restart = coming_up(policy, observed, now).filter(|time| is_in_time(time.start));
        restart.map_or(finished, |time| time.end)
    }

    /// Whether everything of a commit is applied, apart from what had failed for good before and what it left as it was: that is no fault
    /// of the commit, and never ends by itself.
    pub fn is_applied(&self, span: CommitSpan) -> bool {
        let failed = self.failed_before(span);
        self.plan.is_applied_without(|wait| {
            let is_part_of_it = matches!(
                wait.reason,
                WaitReason::Failed
                    | WaitReason::JobFailed
                    | WaitReason::Readiness
                    | WaitReason::ProgressDeadlineExceeded
            );
            let is_of_it = is_part_of_it && failed.iter().any(|name| wait.concerns(name));
            is_of_it || (wait.on.as_ref().is_some_and(|on| failed.contains(on)) && self.is_needless(wait))
        })
    }

    /// Whether a workload waits for its wave without need: all of it is there as Git says.
    fn is_needless(&self, wait: &Wait) -> bool {
        let waiting = self.stack.subjects().find(|subject| wait.concerns(subject.name));
        let Some(Subject { name, workload }) = waiting.filter(|_| wait.is(WaitReason::SyncWave)) else {
            return false;
        };
        let instances = self.observed.by_workload();
        let members = instances.get(name).map_or(&[][..], Vec::as_slice);
        let spec = self.hashes.specs.get(name);
        let is_there = |instance: &Instance| {
            spec.is_some_and(|spec| self.record.is_current(instance, spec))
                && (instance.is_available(workload.min_ready, self.now)
                    || is_completed(self.record, self.observed, workload, instance))
        };
        workload.job_or_template().is_none()
            && members.len() == workload.replicas as usize
            && members.iter().all(|instance| is_there(instance))
    }

    /// The Jobs, and the workloads with the desired specification, that failed for good before a commit and lack nothing else.
    fn failed_before(&self, span: CommitSpan) -> BTreeSet<&WorkloadName> {
        let instances = self.observed.by_workload();
        let has_failed = |instance: &Instance| {
            matches!(instance.state, State::Exited { finished, .. } if !span.has(finished, self.began(instance)))
                && has_ended_for_good(self.record, self.observed, self.stack, instance)
        };
        let lacks_nothing_else = |subject: &Subject<'_>| {
            let Subject { name, workload } = *subject;
            let members = instances.get(name).map_or(&[][..], Vec::as_slice);
            let spec = self.hashes.specs.get(name);
            let is_current =
                |instance: &Instance| spec.is_some_and(|spec| self.record.is_current(instance, spec));
            let is_good = |instance: &Instance| {
                instance.is_available(workload.min_ready, self.now)
                    || is_completed(self.record, self.observed, workload, instance)
            };
            members.len() == workload.replicas as usize
                && members.iter().any(|instance| has_failed(instance))
                && members
                    .iter()
                    .all(|instance| is_current(instance) && (has_failed(instance) || is_good(instance)))
        };
        let has_ended = |(_, parts): &(&WorkloadName, Vec<JobPart<'_>>)| {
            let is_hook = parts.iter().any(|part| part.job.hook.is_some());
            let known = jobs::record_of(self.record, parts).filter(|job| !is_hook && job.has_failed());
            known.and_then(job_end).is_some_and(|(end, began)| !span.has(end, began))
        };
        let workloads = self.stack.subjects().filter(lacks_nothing_else).map(|subject| subject.name);
        let failed_jobs = jobs::all(self.stack).into_iter().filter(has_ended).map(|(of, _)| of);
        workloads.chain(failed_jobs).collect()
    }

    /// When a commit began with an instance: it made the container, or changed a file and so ran it again. Other runs in the same container
    /// are no change of a commit.
    fn began(&self, instance: &Instance) -> Timestamp {
        let workload = self.stack.workloads.get(&instance.instance.workload);
        let has_files = workload.is_some_and(|workload| !workload.in_place.is_empty());
        instance.started.filter(|_| has_files).unwrap_or(instance.created)
    }

    /// A Job or container that failed and will not be tried again. The others get the time to come up, unless they wait for it.
    fn ended(&self, span: CommitSpan) -> Option<CommitFailure> {
        let ended = self.failed_job(span).or_else(|| self.failed_container(span));
        let ended = ended.or_else(|| self.failed_dependency(span))?;
        let stuck = self.plan.stuck();
        let is_starting = self.plan.waits.iter().any(|wait| match (&wait.object, wait.reason) {
            (
                WaitObject::Workload(name),
                WaitReason::Readiness | WaitReason::MinReady | WaitReason::Images,
            ) => !self.is_failing(name) && !self.plan.left_down.contains(name) && !stuck.contains(name),
            _ => false,
        });
        (!is_starting).then_some(ended)
    }

    /// The failure that a wait reports, with the action of its workload.
    fn commit_failure(&self, wait: &Wait) -> CommitFailure {
        let concerned = self.stack.subjects().find(|subject| wait.concerns(subject.name));
        let action = concerned.and_then(|subject| subject.workload.failure.action);
        let is_late = wait.is(WaitReason::ProgressDeadlineExceeded);
        let cause = concerned.filter(|_| is_late).and_then(|subject| self.cause(subject.name));
        CommitFailure { reason: format!("{wait}{}", cause.unwrap_or_default()), action }
    }

    /// Why a late workload makes no progress: of its other waits, the one that says most. The reason of a failure is kept, and the
    /// waits are not. The error of a step on one of its containers says more than all of them.
    fn cause(&self, name: &WorkloadName) -> Option<String> {
        let acts_on_it = |step: &&Step| self.acts_on(step, name);
        if let Some(error) = self.plan.steps.iter().filter(acts_on_it).find_map(|step| self.last_error(step))
        {
            return Some(format!("; {error}"));
        }
        let is_cause = |wait: &&Wait| {
            wait.concerns(name)
                && wait.severity() > WaitSeverity::Note
                && !wait.is(WaitReason::ProgressDeadlineExceeded)
        };
        let causes = self.plan.waits.iter().filter(is_cause);
        let cause = causes.min_by_key(|wait| (Reverse(wait.severity()), wait.reason))?;
        Some(match cause.object {
            WaitObject::Workload(_) => format!("; it {}", cause.without_workload()),
            WaitObject::Application
            | WaitObject::Instance(_)
            | WaitObject::Container { .. }
            | WaitObject::Other { .. } => format!("; {cause}"),
        })
    }

    /// Why a Job of the manifests failed in a commit. A Job that failed before is no fault of a commit that left it as it was.
    pub fn failed_job(&self, span: CommitSpan) -> Option<CommitFailure> {
        let failed = |of: &&WorkloadName| {
            let ended = self.record.jobs.get(*of).filter(|job| job.has_failed());
            ended.and_then(job_end).is_some_and(|(end, began)| span.has(end, began))
        };
        let decides = |parts: &[JobPart<'_>]| {
            let hook = parts.first().and_then(|part| part.job.hook.as_ref());
            hook.is_none_or(|hook| hook.phase.decides())
        };
        let all = jobs::all(self.stack).into_iter().filter(|(_, parts)| decides(parts));
        all.map(|(of, _)| of).filter(failed).find_map(|of| {
            let is_it = |wait: &&Wait| wait.is(WaitReason::JobFailed) && wait.concerns(of);
            self.plan.waits.iter().find(is_it).map(|wait| self.commit_failure(wait))
        })
    }

    fn failed_container(&self, span: CommitSpan) -> Option<CommitFailure> {
        let failed = |instance: &&Instance| {
            matches!(instance.state, State::Exited { finished, .. } if span.has(finished, self.began(instance)))
                && has_ended_for_good(self.record, self.observed, self.stack, instance)
        };
        self.observed.instances.values().filter(failed).find_map(|instance| {
            let object = WaitObject::Instance(instance.instance.clone());
            let is_it = |wait: &&Wait| wait.is(WaitReason::Failed) && wait.object == object;
            self.plan.waits.iter().find(is_it).map(|wait| self.commit_failure(wait))
        })
    }

    /// Why something that failed before a commit keeps it from being applied: a workload of it waits for that.
    fn failed_dependency(&self, span: CommitSpan) -> Option<CommitFailure> {
        let failed = self.failed_before(span);
        let needed = self.plan.waits.iter().filter(|wait| !self.is_needless(wait));
        let awaited = needed.filter_map(|wait| wait.on.as_ref());
        awaited.filter(|on| failed.contains(*on)).find_map(|on| {
            let is_it = |wait: &&Wait| {
                matches!(wait.reason, WaitReason::Failed | WaitReason::JobFailed) && wait.concerns(on)
            };
            self.plan.waits.iter().find(is_it).map(|wait| self.commit_failure(wait))
        })
    }

    fn is_failing(&self, name: &WorkloadName) -> bool {
        let is_failure = |wait: &&Wait| wait.severity() == WaitSeverity::Failure;
        self.plan.waits.iter().filter(is_failure).any(|wait| wait.concerns(name))
    }

    /// Why a canary has failed whose new instances were available before: as [`Round::lost_health`], in its pause.
    pub fn canary_failure(&self) -> Option<CommitFailure> {
        let is_paused = |name: &WorkloadName| {
            self.record.canaries.get(name).is_some_and(|canary| canary.reached.is_some())
        };
        self.lost_health_of(&is_paused, true)
    }

    /// Why the live state is not healthy, if a container keeps ending or its health check or liveness probe fails, and the
    /// manifest does not tolerate it. Differences that a user made are no reason, nor is what failed for good before the commit began
    /// at `since`.
    pub fn lost_health(&self, since: Timestamp) -> Option<CommitFailure> {
        let failed = self.failed_before(CommitSpan::of(since));
        self.lost_health_of(&|name: &WorkloadName| !failed.contains(name), false)
    }

    /// The same for some workloads. With `of_new`, a new instance has to be unwell.
    fn lost_health_of(
        &self,
        is_meant: &dyn Fn(&WorkloadName) -> bool,
        of_new: bool,
    ) -> Option<CommitFailure> {
        const LOST: [&str; 3] =
            [WaitReason::CrashLoopBackOff.as_str(), WaitReason::Failed.as_str(), "Unhealthy"];
        let Self { stack, hashes, policy, record, plan, now, .. } = *self;
        let observed = &*pods::whole(stack, self.observed);
        let inputs = Inputs { stack, hashes, policy, observed, record, plan, now, proxies: None };
        let instances = observed.by_workload();
        let lost = |subject: Subject<'_>| {
            if subject.workload.job_or_template().is_some() || !is_meant(subject.name) {
                return None;
            }
            let counts = inputs.counts(subject, &instances);
            let found = health(inputs, subject, &counts);
            let rule = subject.workload.failure;
            let is_unwell = |instance: &&Instance| {
                update_failures::why(record, observed, policy, subject.workload, instance, now).is_some()
            };
            let unwell = || counts.updated.iter().map(|(it, _)| *it).filter(is_unwell).count();
            let tolerated = rule.tolerated(subject.workload.replicas);
            let is_tolerated = tolerated > 0 && unwell() <= tolerated;
            let is_old = of_new && unwell() == 0;
            (LOST.contains(&found.reason.as_str()) && !is_tolerated && !is_old)
                .then_some(CommitFailure { reason: found.message, action: rule.action })
        };
        let lost: Vec<CommitFailure> = stack.subjects().filter_map(lost).collect();
        let strictest = lost.iter().map(|failure| failure.on_failure(policy.on_failure)).max()?;
        lost.into_iter().find(|failure| failure.on_failure(policy.on_failure) == strictest)
    }
}

/// Whether an instance ended with an error, and its restart policy forbids another start.
pub fn has_ended_for_good(record: &Record, observed: &Observed, stack: &Stack, instance: &Instance) -> bool {
    let workload = running_workload(stack, instance);
    workload.is_some_and(|workload| failure(record, observed, workload, instance).is_some())
}

/// Whether an instance ended with an error, and its restart policy forbids another start, or it has the desired specification
/// and is not well: another try begins without it.
pub fn has_failed(
    record: &Record,
    observed: &Observed,
    stack: &Stack,
    policy: &Policy,
    instance: &Instance,
    now: Timestamp,
) -> bool {
    let Some(workload) = running_workload(stack, instance) else { return false };
    let is_new = instance.spec == workload.spec();
    let in_update = || update_failures::why(record, observed, policy, workload, instance, now).is_some();
    has_ended_for_good(record, observed, stack, instance) || (is_new && in_update())
}

/// The workload of an instance, unless it is a Job.
fn running_workload<'a>(stack: &'a Stack, instance: &Instance) -> Option<&'a Workload> {
    let workload = stack.workloads.get(&instance.instance.workload);
    workload.filter(|workload| workload.job_or_template().is_none())
}

/// When a Job ended and when it began.
fn job_end(job: &JobRecord) -> Option<(Timestamp, Timestamp)> {
    job.ended.as_ref().map(|end| (end.at, job.started.unwrap_or(end.at)))
}
