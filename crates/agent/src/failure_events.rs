//! Events about containers that fail after their commit was applied. Before that, the outcome of the revision says it.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{EventKind, Record};
use driftless_plan::{Plan, Wait, WaitObject, WaitReason};

use crate::context::{AppContext, RECENT_EVENTS};

/// The reason of a failure and the instance that fails, such as `web.1`.
type Failure = (WaitReason, String);

/// The failures that have an event. A failure has one from its beginning to its end, also over several tries.
#[derive(Default)]
pub(crate) struct FailureEvents {
    /// `None` until the agent has looked for failures since its start.
    reported: Option<BTreeSet<Failure>>,
}

impl FailureEvents {
    /// Writes an event about each container that keeps exiting, or has failed and is not started again.
    pub(crate) fn report(&mut self, context: &AppContext, record: &Record, plan: &Plan) {
        let failing: BTreeMap<Failure, &Wait> = plan.waits.iter().filter_map(failure).collect();
        // An earlier run of the agent may have written the events.
        let mut reported = self.reported.take().unwrap_or_else(|| recent_failures(context));
        reported.retain(|failure| failing.contains_key(failure) || keeps_exiting(record, failure));
        for (failure, wait) in failing {
            if reported.contains(&failure) {
                continue;
            }
            let (reason, object) = &failure;
            let message = context.mask().message(&wait.to_string());
            tracing::warn!(object, reason = message, "a container fails");
            context.event(EventKind::Warning, reason.as_str(), object, &message);
            reported.insert(failure);
        }
        self.reported = Some(reported);
    }
}

fn failure(wait: &Wait) -> Option<(Failure, &Wait)> {
    let is_failure = matches!(wait.reason, WaitReason::CrashLoopBackOff | WaitReason::Failed);
    let WaitObject::Instance(instance) = &wait.object else { return None };
    is_failure.then(|| ((wait.reason, instance.to_string()), wait))
}

/// Whether a crash loop goes on: during a try the plan does not wait.
fn keeps_exiting(record: &Record, (reason, object): &Failure) -> bool {
    let mut crashes = record.crashes.iter().filter(|(_, crash)| crash.count > 0);
    *reason == WaitReason::CrashLoopBackOff && crashes.any(|(instance, _)| instance.to_string() == *object)
}

/// The failures with an event among the newest ones. Only those that go on count.
fn recent_failures(context: &AppContext) -> BTreeSet<Failure> {
    let events = context.store().newest_events(RECENT_EVENTS, Some(context.name())).unwrap_or_default();
    let reasons = [WaitReason::CrashLoopBackOff, WaitReason::Failed];
    let found = events.into_iter().filter_map(|event| {
        let reason = reasons.into_iter().find(|reason| reason.as_str() == event.reason)?;
        Some((reason, event.object))
    });
    found.collect()
}
