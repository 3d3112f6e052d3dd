//! Events about failures when they begin: containers that fail after their commit was applied, health checks, what the agent does not own
//! and is in the way, and workloads that Docker Compose or somebody else has taken from the agent. Before a commit was applied, the outcome
//! of its revision says which containers fail.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{EventKind, HealthStatus, Record, WorkloadName, WorkloadStatus};
use driftless_plan::{Plan, Wait, WaitObject, WaitReason};

use crate::context::{AppContext, RECENT_EVENTS};

/// The reason of a failure and the object that fails, such as `web.1`.
type Failure = (&'static str, String);

const CRASH_LOOP: &str = WaitReason::CrashLoopBackOff.as_str();
const FAILED: &str = WaitReason::Failed.as_str();
const BLOCKED: &str = WaitReason::Blocked.as_str();
const NOT_ADOPTED: &str = WaitReason::NotAdopted.as_str();

/// The reason of a workload whose health check fails.
const UNHEALTHY: &str = "Unhealthy";

/// The failures that have an event. A failure has one from its beginning to its end, also over several tries.
#[derive(Default)]
pub(crate) struct FailureEvents {
    /// `None` until the agent has looked for failures since its start.
    reported: Option<BTreeSet<Failure>>,
}

/// The facts of one round that tell of failures.
#[derive(Clone, Copy)]
pub(crate) struct FailureFacts<'a> {
    pub(crate) record: &'a Record,
    pub(crate) plan: &'a Plan,
    pub(crate) workloads: &'a BTreeMap<WorkloadName, WorkloadStatus>,
    /// The revision of the target has succeeded.
    pub(crate) is_applied: bool,
}

impl FailureEvents {
    /// Writes an event about each failure that begins: a container that keeps exiting or has failed and is not started again, a health
    /// check that fails, a workload that something is in the way of, and one that was managed and is not any more.
    pub(crate) fn report(&mut self, context: &AppContext, facts: FailureFacts<'_>) {
        let failing = facts.failing();
        // An earlier run of the agent may have written the events.
        let mut reported = self.reported.take().unwrap_or_else(|| recent_failures(context));
        reported.retain(|failure| failing.contains_key(failure) || facts.goes_on(failure));
        for (failure, message) in failing {
            if reported.contains(&failure) {
                continue;
            }
            let (reason, object) = &failure;
            let message = context.mask().message(&message);
            tracing::warn!(object, reason = message, "a failure begins");
            context.event(EventKind::Warning, reason, object, &message);
            reported.insert(failure);
        }
        self.reported = Some(reported);
    }
}

impl FailureFacts<'_> {
    /// The failures of this round, with their sentences.
    fn failing(self) -> BTreeMap<Failure, String> {
        let waits = self.plan.waits.iter();
        let waits = waits.filter_map(|wait| Some((self.failure(wait)?, wait.to_string())));
        let unhealthy = self.workloads.iter().filter(|(_, workload)| workload.reason == UNHEALTHY);
        let unhealthy =
            unhealthy.map(|(name, workload)| ((UNHEALTHY, name.to_string()), workload.message.clone()));
        waits.chain(unhealthy).collect()
    }

    fn failure(self, wait: &Wait) -> Option<Failure> {
        match (wait.reason, &wait.object) {
            (WaitReason::CrashLoopBackOff | WaitReason::Failed, WaitObject::Instance(instance)) => {
                self.is_applied.then(|| (wait.reason.as_str(), instance.to_string()))
            }
            (WaitReason::Blocked, object) => Some((BLOCKED, object.to_string())),
            // An application that was never managed waits for its first adoption, which is no incident.
            (WaitReason::NotAdopted, WaitObject::Workload(name)) => {
                self.record.settled.is_some().then(|| (NOT_ADOPTED, name.to_string()))
            }
            _ => None,
        }
    }

    /// Whether a failure that this round does not show goes on.
    fn goes_on(self, (reason, object): &Failure) -> bool {
        match *reason {
            CRASH_LOOP => !self.is_applied || self.keeps_exiting(object),
            FAILED => !self.is_applied,
            NOT_ADOPTED => self.record.settled.is_none(),
            // A container that its probe has found dead is restarted, and seems healthy until the probe fails again.
            UNHEALTHY => {
                let mut workloads = self.workloads.iter();
                let mut crashes = self.record.crashes.iter().filter(|(_, crash)| crash.count > 0);
                workloads
                    .any(|(name, found)| name.as_str() == object && found.health != HealthStatus::Healthy)
                    || crashes.any(|(instance, _)| instance.workload.as_str() == object)
            }
            _ => false,
        }
    }

    /// Whether a crash loop goes on: during a try the plan does not wait.
    fn keeps_exiting(self, object: &str) -> bool {
        let mut crashes = self.record.crashes.iter().filter(|(_, crash)| crash.count > 0);
        crashes.any(|(instance, _)| instance.to_string() == *object)
    }
}

/// The failures with an event among the newest ones. Only those that go on count.
fn recent_failures(context: &AppContext) -> BTreeSet<Failure> {
    let events = context.store().newest_events(RECENT_EVENTS, Some(context.name())).unwrap_or_default();
    let reasons = [CRASH_LOOP, FAILED, BLOCKED, NOT_ADOPTED, UNHEALTHY];
    let found = events.into_iter().filter_map(|event| {
        let reason = reasons.into_iter().find(|reason| *reason == event.reason)?;
        Some((reason, event.object))
    });
    found.collect()
}
