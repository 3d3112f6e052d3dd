//! Events about canaries: a step that is reached, and a pause that is over.

use std::collections::BTreeMap;

use driftless_model::{CanaryRecord, EventKind, Stack, Workload, WorkloadName};

use crate::context::AppContext;

/// Reports the steps that canaries have reached since the last round, and those that ended by themselves.
pub(crate) fn report(
    context: &AppContext,
    stack: &Stack,
    before: &BTreeMap<WorkloadName, CanaryRecord>,
    after: &BTreeMap<WorkloadName, CanaryRecord>,
) {
    for (name, canary) in after {
        let Some(workload) = stack.workloads.get(name) else { continue };
        let known = before.get(name).filter(|known| known.spec == canary.spec);
        let steps = workload.canary.len();
        if known.is_some_and(|known| known.passed < canary.passed) {
            let next = match canary.passed as usize {
                passed if passed < steps => format!("step {} of {steps} begins", passed.saturating_add(1)),
                _ => "its steps are over, and all instances are replaced".to_owned(),
            };
            context.event(EventKind::Normal, "CanaryAdvanced", name.as_str(), &next);
        }
        let was_reached = known.is_some_and(|known| known.passed == canary.passed && known.reached.is_some());
        if canary.reached.is_some() && !was_reached {
            report_pause(context, name, workload, canary);
        }
    }
}

fn report_pause(context: &AppContext, name: &WorkloadName, workload: &Workload, canary: &CanaryRecord) {
    let Some(step) = workload.canary.get(canary.passed as usize) else { return };
    let next = match canary.reached.zip(step.pause) {
        Some((reached, pause)) => format!("goes on at {}", reached.after(pause)),
        None => format!("waits for `driftless promote {}`", context.name()),
    };
    let (number, steps) = (canary.passed.saturating_add(1), workload.canary.len());
    let (new, all) = (step.instances(workload.replicas), workload.replicas);
    let message =
        format!("canary: {new} of {all} instances are available (step {number} of {steps}), {next}");
    context.event(EventKind::Normal, "CanaryPaused", name.as_str(), &message);
}
