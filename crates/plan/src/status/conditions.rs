//! Conditions as Kubernetes has them: type, status, reason, message and the time of the last transition.
//!
//! They repeat the result of [`super::health`] in Kubernetes' words. The time of the transition changes only when the
//! status does.

use driftless_model::{
    ConditionStatus, ConditionType, Record, Statement, StatusCondition, Strategy, Timestamp, Workload,
};

use crate::{
    facts::heals,
    status::counts::Counts,
    steps::Plan,
    text::is_variable,
    wait::{Wait, WaitReason},
};

/// The facts that the conditions of a workload follow from.
#[derive(Clone, Copy)]
pub(crate) struct WorkloadFacts<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) counts: &'a Counts<'a>,
    /// The wait for a rollout that has missed its deadline.
    pub(crate) late: Option<&'a Wait>,
    /// The reason of its health.
    pub(crate) reason: &'a str,
    /// The message of its health.
    pub(crate) message: &'a str,
}

/// `Available`, `Progressing`, and `ReplicaFailure` where instances cannot be made.
pub(crate) fn of_workload(
    facts: WorkloadFacts<'_>,
    now: Timestamp,
    before: &[StatusCondition],
) -> Vec<StatusCondition> {
    let WorkloadFacts { workload, counts, reason, message, .. } = facts;
    let mut all = vec![
        (ConditionType::Available, available(workload, counts)),
        (ConditionType::Progressing, progressing(facts)),
    ];
    // In Kubernetes' terms: the replicas cannot be created.
    let failures = [
        (WaitReason::ImagePullBackOff, WaitReason::ImagePullBackOff.as_str()),
        (WaitReason::BuildFailed, WaitReason::BuildFailed.as_str()),
        (WaitReason::Blocked, "FailedCreate"),
    ];
    if let Some((_, failure)) = failures.into_iter().find(|(wait, _)| wait.as_str() == reason) {
        all.push((ConditionType::ReplicaFailure, Statement::new(ConditionStatus::True, failure, message)));
    }
    conditions(all, before, now)
}

/// `RepeatedDrift` and `HealIneffective`, where they are so or were before.
pub(crate) fn of_application(
    record: &Record,
    plan: &Plan,
    now: Timestamp,
    before: &[StatusCondition],
) -> Vec<StatusCondition> {
    let is_recent = |at: &&Timestamp| now.since(**at) < heals::WINDOW;
    let fights: Vec<String> = record
        .heals
        .iter()
        .map(|(field, heal)| (field, heal, heal.recent.iter().filter(is_recent).count()))
        .filter(|(_, _, count)| *count >= heals::REPEATED)
        .map(|(field, heal, count)| {
            // The field follows the object.
            let what = if field.split(' ').any(is_variable) { "changed" } else { &heal.difference };
            let minutes = heals::WINDOW.as_secs() / 60;
            format!("{field} was set right {count} times in {minutes} minutes ({what})")
        })
        .collect();
    let ineffective: Vec<String> =
        plan.waits.iter().filter(|it| it.is(WaitReason::HealIneffective)).map(Wait::to_string).collect();
    let all = [
        standing(ConditionType::RepeatedDrift, "ChangedAgain", &fights, before),
        standing(ConditionType::HealIneffective, "DifferenceStays", &ineffective, before),
    ];
    conditions(all.into_iter().flatten().collect(), before, now)
}

/// Kubernetes' `MaxUnavailable` is 0 where nothing rolls, so that all replicas are the minimum.
fn available(workload: &Workload, counts: &Counts<'_>) -> Statement {
    let spare = match workload.strategy {
        Strategy::RollingUpdate { max_surge: _, max_unavailable } => max_unavailable,
        Strategy::Recreate => 0,
    };
    let minimum = workload.replicas.saturating_sub(spare);
    let there = counts.available.saturating_add(counts.completed);
    let message = format!("{there} available, at least {minimum} needed");
    if there >= minimum {
        Statement::new(ConditionStatus::True, "MinimumReplicasAvailable", message)
    } else {
        Statement::new(ConditionStatus::False, "MinimumReplicasUnavailable", message)
    }
}

fn progressing(facts: WorkloadFacts<'_>) -> Statement {
    let WorkloadFacts { workload, counts, late, reason, message } = facts;
    let updated = format!("{} of {} updated", counts.updated(), workload.replicas);
    let (exceeded, failed) =
        (WaitReason::ProgressDeadlineExceeded.as_str(), WaitReason::CommitFailed.as_str());
    if counts.paused {
        Statement::new(ConditionStatus::Unknown, "DeploymentPaused", "paused")
    } else if reason == exceeded {
        Statement::new(ConditionStatus::False, exceeded, message)
    } else if reason == failed && !counts.is_rolled_out(workload) {
        Statement::new(ConditionStatus::False, failed, message)
    } else if let Some(late) = late {
        // Its health has another reason, which says more.
        Statement::new(ConditionStatus::False, exceeded, late.without_workload())
    } else if counts.is_rolled_out(workload) && counts.good() >= workload.replicas {
        Statement::new(ConditionStatus::True, "NewReplicaSetAvailable", updated)
    } else if counts.updated.is_empty() {
        Statement::new(ConditionStatus::True, "NewReplicaSetCreated", updated)
    } else {
        Statement::new(ConditionStatus::True, "ReplicaSetUpdated", updated)
    }
}

/// True with its reasons, False where it was there before, or else not there at all.
fn standing(
    kind: ConditionType,
    reason: &'static str,
    messages: &[String],
    before: &[StatusCondition],
) -> Option<(ConditionType, Statement)> {
    if !messages.is_empty() {
        return Some((kind, Statement::new(ConditionStatus::True, reason, messages.join("; "))));
    }
    let was_there = before.iter().any(|it| it.is_of(kind));
    was_there.then(|| (kind, Statement::new(ConditionStatus::False, "Resolved", "")))
}

/// The conditions of these types. The time of one stays as long as its status does.
fn conditions(
    all: Vec<(ConditionType, Statement)>,
    before: &[StatusCondition],
    now: Timestamp,
) -> Vec<StatusCondition> {
    all.into_iter().map(|(kind, statement)| statement.condition(kind, before, now)).collect()
}
