//! Failures of an update: which new instances have failed, and how many of them the manifest tolerates.
//!
//! Nothing of it is stored. The rule is that of Docker Swarm: an update has failed when a larger share of the instances than
//! `max_failure_ratio` has failed.

use std::time::Duration;

use driftless_model::{
    Crash, Health, Instance, Observed, OnFailure, Policy, Readiness, Record, State, Subject, Timestamp,
    Workload,
};

use crate::facts::{
    Facts,
    coming_up::coming_up,
    standing::{crash_of, failure, is_completed},
};

/// The failures of the update of one workload.
#[derive(Debug, Default)]
pub(crate) struct UpdateFailures<'a> {
    /// The new instances that have failed, in the order of their slots.
    pub(crate) failed: Vec<&'a Instance>,
    /// More instances have failed than the manifest tolerates.
    pub(crate) is_failure: bool,
    /// No further instance may be replaced.
    pub(crate) stops_update: bool,
    /// The number of failed instances that the rollout counts as available.
    pub(crate) passed: usize,
    /// When one more of them may be counted so.
    pub(crate) look_again: Option<Timestamp>,
}

/// The failures among the instances of the desired specification, while the commit that changed it is applied.
pub(crate) fn of<'a>(
    facts: &Facts<'_>,
    subject: Subject<'_>,
    current: impl IntoIterator<Item = &'a Instance>,
) -> UpdateFailures<'a> {
    let workload = subject.workload;
    if !is_updating(facts, subject) {
        return UpdateFailures::default();
    }
    let Facts { target, observed, record, now, .. } = *facts;
    let mut failed: Vec<&Instance> = current.into_iter().collect();
    failed.retain(|instance| why(record, observed, target.policy, workload, instance, now).is_some());
    failed.sort_by_key(|instance| instance.instance.slot);
    let rule = workload.failure;
    let tolerated = rule.tolerated(workload.replicas);
    let is_failure = failed.len() > tolerated;
    let on_failure = rule.on_failure(target.policy.on_failure);
    let goes_past = if is_failure { rule.action.is_some() && on_failure == OnFailure::None } else { true };
    // The next batch follows after the same time as after healthy instances.
    let (passed, waiting): (Vec<_>, Vec<_>) =
        failed.iter().map(|it| it.created.after(workload.min_ready)).partition(|due| *due <= now);
    UpdateFailures {
        is_failure,
        stops_update: is_failure && on_failure != OnFailure::None,
        passed: if goes_past { passed.len() } else { 0 },
        look_again: waiting.into_iter().min().filter(|_| goes_past),
        failed,
    }
}

/// Whether a commit that adds or changes this workload is being applied, and the manifest has a rule for its failures.
fn is_updating(facts: &Facts<'_>, subject: Subject<'_>) -> bool {
    let Subject { name, workload } = subject;
    if !workload.failure.is_given() || !facts.is_desired(subject) || facts.is_settled() {
        return false;
    }
    let before = facts.target.reached.and_then(|stack| stack.workloads.get(name));
    let spec = facts.spec(subject);
    let has_older = || facts.instances.members_of(name).iter().any(|instance| instance.spec != spec);
    before.is_none_or(|before| !before.is_like(workload)) || has_older()
}

/// Why an instance has failed in an update, in a few words. `None`: it has not. It fails when it ends with an error, when its
/// health check or liveness probe fails, or when it is not available in time, and until it has been healthy for `monitor`. The time in
/// which it comes up with its host does not count.
pub(crate) fn why(
    record: &Record,
    observed: &Observed,
    policy: &Policy,
    workload: &Workload,
    instance: &Instance,
    now: Timestamp,
) -> Option<String> {
    let coming_up = coming_up(policy, observed, now).filter(|time| instance.created < time.start);
    let is_coming_up = |at: Timestamp| coming_up.as_ref().is_some_and(|time| time.contains(&at));
    let is_well =
        instance.is_available(workload.min_ready, now) || is_completed(record, observed, workload, instance);
    if is_well || is_coming_up(now) {
        return None;
    }
    // A crash of the slot's former container counts for that one, and none counts from before a request that ended its pause.
    let is_counted =
        |crash: &&Crash| crash.container == instance.id && crash.count > 0 && !is_coming_up(crash.finished);
    let crash = crash_of(record, instance).filter(is_counted);
    if let Some(crash) = crash.filter(|crash| crash.code >= 0) {
        return Some(format!("exited with code {}", crash.code));
    }
    if let Some(crash) = crash {
        return Some(crash.error.clone());
    }
    if let Some(code) = failure(record, observed, workload, instance) {
        return Some(format!("exited with code {code}"));
    }
    match (&instance.state, &instance.readiness) {
        (State::Running { .. }, Readiness::Dead { reason }) => return Some(reason.clone()),
        (State::Running { health: Health::Unhealthy, .. }, Readiness::NotReady { reason }) => {
            return Some(reason.clone());
        }
        (State::Running { health: Health::Unhealthy, .. }, _) => {
            return Some("its health check fails".to_owned());
        }
        _ => {}
    }
    let deadline = progress_deadline(policy, workload);
    (now >= record.deadline_start(instance.created).after(deadline))
        .then(|| format!("not available {} s after its creation", deadline.as_secs()))
}

/// Longest time of a rollout without progress: that of the policy, or the default. Only a deadline that the manifest names bounds it.
/// An instance that starts slowly, or counts as available late, must have the time for it.
pub(crate) fn progress_deadline(policy: &Policy, workload: &Workload) -> Duration {
    let min_ready = workload.min_ready;
    let least = min_ready.saturating_mul(2).max(workload.startup_time().saturating_add(min_ready));
    let general = policy.progress_deadline;
    match workload.own_progress_deadline() {
        Some(own) => general.map_or(own, |general| general.max(least).min(own)),
        None => general.unwrap_or(workload.progress_deadline).max(least),
    }
}
