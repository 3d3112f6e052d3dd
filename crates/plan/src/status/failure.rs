//! Whether a commit has failed: its rollout does not get on, or what it started is not healthy.

use driftless_model::{Instance, Observed, Record, Stack, State, Subject, Timestamp, WorkloadName};

use crate::{
    facts::{
        jobs::{self, JobPart},
        pods,
        standing::failure,
    },
    status::{counts::Counts, health::health, inputs::Inputs},
    steps::Plan,
    wait::{Wait, WaitObject, WaitReason, WaitSeverity},
};

/// The live state of an application in one round, and the plan for it.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    pub stack: &'a Stack,
    pub observed: &'a Observed,
    pub record: &'a Record,
    pub plan: &'a Plan,
    pub now: Timestamp,
}

impl Round<'_> {
    /// Why a rollout that began at `since` has failed, in one line. `None`: it gets on, or waits for something that is no
    /// fault of the commit, such as an image that cannot be pulled.
    pub fn rollout_failure(&self, since: Timestamp) -> Option<String> {
        if !self.plan.steps.is_empty() {
            return None;
        }
        let mut waits = self.plan.waits.iter();
        if let Some(wait) = waits.find(|wait| wait.is(WaitReason::ProgressDeadlineExceeded)) {
            return Some(wait.to_string());
        }
        // It will not be tried again. The others get the time to come up.
        let ended = self.failed_job(since).or_else(|| self.failed_container(since))?;
        let is_starting = self.plan.waits.iter().any(|wait| match (&wait.object, wait.reason) {
            (
                WaitObject::Workload(name),
                WaitReason::Readiness | WaitReason::MinReady | WaitReason::Images,
            ) => !self.is_failing(name),
            _ => false,
        });
        (!is_starting).then_some(ended)
    }

    /// Why a Job of the manifests failed at `since` or later. A Job that failed before is no fault of a commit that left
    /// it as it was.
    pub fn failed_job(&self, since: Timestamp) -> Option<String> {
        let failed = |of: &&WorkloadName| {
            let ended = self.record.jobs.get(*of).filter(|job| job.has_failed());
            ended.and_then(|job| job.ended.as_ref()).is_some_and(|end| end.at >= since)
        };
        let decides = |parts: &[JobPart<'_>]| {
            let hook = parts.first().and_then(|part| part.job.hook.as_ref());
            hook.is_none_or(|hook| hook.phase.decides())
        };
        let all = jobs::all(self.stack).into_iter().filter(|(_, parts)| decides(parts));
        all.map(|(of, _)| of).filter(failed).find_map(|of| {
            let is_it = |wait: &&Wait| wait.is(WaitReason::JobFailed) && wait.concerns(of);
            self.plan.waits.iter().find(is_it).map(Wait::to_string)
        })
    }

    fn failed_container(&self, since: Timestamp) -> Option<String> {
        let failed = |instance: &&Instance| {
            matches!(instance.state, State::Exited { finished, .. } if finished >= since)
                && has_failed(self.record, self.observed, self.stack, instance)
        };
        self.observed.instances.values().filter(failed).find_map(|instance| {
            let object = WaitObject::Instance(instance.instance.clone());
            let is_it = |wait: &&Wait| wait.is(WaitReason::Failed) && wait.object == object;
            self.plan.waits.iter().find(is_it).map(Wait::to_string)
        })
    }

    fn is_failing(&self, name: &WorkloadName) -> bool {
        let is_failure = |wait: &&Wait| wait.severity() == WaitSeverity::Failure;
        self.plan.waits.iter().filter(is_failure).any(|wait| wait.concerns(name))
    }

    /// Why the live state is not healthy, in one line, if a container keeps ending or its health check or liveness probe
    /// fails. Differences that a user made are no reason.
    pub fn lost_health(&self) -> Option<String> {
        const LOST: [&str; 3] = ["CrashLoopBackOff", "Failed", "Unhealthy"];
        let Self { stack, record, plan, now, .. } = *self;
        let observed = &*pods::whole(stack, self.observed);
        let inputs = Inputs { stack, observed, record, plan, now };
        let lost = |subject: Subject<'_>| {
            if subject.workload.job_or_template().is_some() {
                return None;
            }
            let found = health(inputs, subject, &Counts::new(subject, observed, record, now));
            LOST.contains(&found.reason.as_str()).then_some(found.message)
        };
        stack.subjects().find_map(lost)
    }
}

/// Whether an instance ended with an error, and its restart policy forbids another start.
pub fn has_failed(record: &Record, observed: &Observed, stack: &Stack, instance: &Instance) -> bool {
    let workload = stack.workloads.get(&instance.instance.workload);
    let workload = workload.filter(|workload| workload.job_or_template().is_none());
    workload.is_some_and(|workload| failure(record, observed, workload, instance).is_some())
}
