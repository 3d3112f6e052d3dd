//! Why the containers of one application may belong to another agent.

use std::collections::BTreeSet;

use driftless_model::{EventKind, Observed, Stack};
use driftless_plan::{Plan, WaitReason};

use crate::context::AppContext;

/// Why the containers of one application may belong to another agent.
#[derive(Default)]
pub(crate) struct OtherOwner {
    reason: Option<String>,
    /// The workloads that another agent runs as well and that were reported in this life of the agent. The sentences about them change with
    /// each container of that agent, and the status has the newest one.
    shared: BTreeSet<String>,
}

impl OtherOwner {
    /// Why nothing of the application is changed, if its containers may belong to another agent.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Checks whose containers these are, and reports it once if they may belong to another agent. True: they may.
    pub(crate) fn check(&mut self, context: &AppContext, stack: &Stack, observed: &Observed) -> bool {
        let reason = context.ownership().other_owner(context.agent(), stack, observed);
        if let Some(reason) = reason.as_ref().filter(|_| self.reason.is_none()) {
            let name = context.name();
            tracing::warn!("{reason}");
            context.event(EventKind::Warning, "OwnedByAnotherAgent", name.as_str(), reason);
        }
        self.reason = reason;
        self.reason.is_some()
    }

    /// Reports once each workload that containers of another agent run as well.
    pub(crate) fn remark(&mut self, context: &AppContext, plan: &Plan) {
        let mut found = BTreeSet::new();
        for wait in plan.waits.iter().filter(|wait| wait.is(WaitReason::OfAnotherAgent)) {
            let (name, sentence) = (wait.object.to_string(), wait.to_string());
            if !self.shared.contains(&name) {
                tracing::warn!("{sentence}");
                context.event(EventKind::Warning, "OwnedByAnotherAgent", &name, &sentence);
            }
            found.insert(name);
        }
        self.shared.extend(found);
    }
}
