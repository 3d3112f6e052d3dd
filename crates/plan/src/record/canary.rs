//! The record of canaries: begun with a commit, and advanced when a pause is over and the new instances are available.

use driftless_model::{
    CanaryRecord, Instance, Observed, Record, StackHash, Subject, Timestamp, WorkloadKind, WorkloadName,
};

use crate::{
    facts::{canary::current_step, cron::without_runs},
    target::Target,
};

/// Notes the steps that the canaries of the target have reached. A pause ends only while all new instances of its step are
/// available, and neither in a suspended application nor in one whose commit has failed.
pub(crate) fn note(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    let is_tried = |name: &WorkloadName, found: &CanaryRecord| {
        target.stack.workloads.get(name).is_some_and(|workload| {
            !workload.canary.is_empty() && target.spec(Subject { name, workload }) == found.spec
        })
    };
    record.canaries.retain(|name, found| is_tried(name, found));
    if record.settled.is_some() {
        record.canaries.clear();
        return;
    }
    for subject in target.stack.subjects().filter(|subject| !subject.workload.canary.is_empty()) {
        let Subject { name, workload } = subject;
        match is_changed(target, subject) {
            // The commit before it is not known: what is recorded counts.
            None => {}
            Some(false) => {
                record.canaries.remove(name);
            }
            Some(true) => {
                let fresh = || CanaryRecord { spec: target.spec(subject), passed: 0, reached: None };
                record.canaries.entry(name.clone()).or_insert_with(fresh);
            }
        }
        let is_paused = workload.paused || record.paused.contains(name);
        if !target.policy.suspended && !is_paused && !has_failed(record, target) {
            advance(record, target, subject, observed, now);
        }
    }
}

/// Whether a commit changes the instances of a workload that was deployed before. `None`: the commit before is not known.
fn is_changed(target: &Target<'_>, Subject { name, workload }: Subject<'_>) -> Option<bool> {
    let before = target.reached?.workloads.get(name);
    Some(before.is_some_and(|before| before.kind == WorkloadKind::Replicas && !before.is_like(workload)))
}

fn has_failed(record: &Record, target: &Target<'_>) -> bool {
    let failed = record.failed.as_ref();
    failed.is_some_and(|failed| failed.pauses(&StackHash::of(&without_runs(target.stack))))
}

/// Notes that the instances of the current step are available, and goes on to the next one when its pause is over.
fn advance(
    record: &mut Record,
    target: &Target<'_>,
    Subject { name, workload }: Subject<'_>,
    observed: &Observed,
    now: Timestamp,
) {
    let spec = target.spec(Subject { name, workload });
    let is_available = |it: &&Instance| {
        it.instance.workload == *name
            && it.agent == *target.agent
            && record.is_current(it, &spec)
            && it.is_available(workload.min_ready, now)
    };
    let available = observed.instances.values().filter(is_available).count();
    while let Some(current) = current_step(record, name, workload, &spec) {
        if available < current.instances as usize {
            return;
        }
        let until = current.until();
        let Some(found) = record.canaries.get_mut(name) else { return };
        // The wall clock may have been set back.
        found.reached = Some(found.reached.map_or(now, |reached| reached.min(now)));
        if until.is_none_or(|until| now < until) {
            return;
        }
        (found.passed, found.reached) = (found.passed.saturating_add(1), None);
        // The deadline of the next step begins.
        record.progress.remove(name);
    }
}

/// Ends the pause of a canary, or all its steps. False: the canary of this workload is at no step.
pub fn promote(record: &mut Record, Subject { name, workload }: Subject<'_>, is_full: bool) -> bool {
    let steps = u32::try_from(workload.canary.len()).unwrap_or(u32::MAX);
    let Some(found) = record.canaries.get_mut(name).filter(|found| found.passed < steps) else {
        return false;
    };
    found.passed = if is_full { steps } else { found.passed.saturating_add(1) };
    found.reached = None;
    record.progress.remove(name);
    true
}
