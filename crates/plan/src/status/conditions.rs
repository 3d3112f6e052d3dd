//! Conditions as Kubernetes has them: type, status, reason, message and the time of the last transition.
//!
//! They repeat the result of [`super::health`] in Kubernetes' words. The time of the transition changes only when the
//! status does.

use driftless_model::{
    ConditionStatus, ConditionType, Record, StatusCondition, Strategy, Timestamp, Workload,
};

use crate::{
    facts::heals,
    status::counts::Counts,
    steps::Plan,
    text::is_variable,
    wait::{Wait, WaitReason},
};

/// `Available`, `Progressing`, and `ReplicaFailure` where instances cannot be made. `reason` and `message` are
/// those of the workload's health, and `late` is the wait for a rollout that has missed its deadline.
pub(crate) fn of_workload(
    workload: &Workload,
    counts: &Counts<'_>,
    late: Option<&Wait>,
    reason: &str,
    message: &str,
    now: Timestamp,
    before: &[StatusCondition],
) -> Vec<StatusCondition> {
    let mut all = vec![available(workload, counts), progressing(workload, counts, late, reason, message)];
    // In Kubernetes' terms: the replicas cannot be created.
    let failures = [
        (WaitReason::ImagePullBackOff, WaitReason::ImagePullBackOff.as_str()),
        (WaitReason::BuildFailed, WaitReason::BuildFailed.as_str()),
        (WaitReason::Blocked, "FailedCreate"),
    ];
    if let Some((_, failure)) = failures.into_iter().find(|(wait, _)| wait.as_str() == reason) {
        all.push(condition(ConditionType::ReplicaFailure, ConditionStatus::True, failure, message));
    }
    with_transitions(all, now, before)
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
    with_transitions(all.into_iter().flatten().collect(), now, before)
}

/// Kubernetes' `MaxUnavailable` is 0 where nothing rolls, so that all replicas are the minimum.
fn available(workload: &Workload, counts: &Counts<'_>) -> StatusCondition {
    let spare = match workload.strategy {
        Strategy::RollingUpdate { max_surge: _, max_unavailable } => max_unavailable,
        Strategy::Recreate => 0,
    };
    let minimum = workload.replicas.saturating_sub(spare);
    let there = counts.available.saturating_add(counts.completed);
    let message = format!("{there} available, at least {minimum} needed");
    if there >= minimum {
        condition(ConditionType::Available, ConditionStatus::True, "MinimumReplicasAvailable", &message)
    } else {
        condition(ConditionType::Available, ConditionStatus::False, "MinimumReplicasUnavailable", &message)
    }
}

fn progressing(
    workload: &Workload,
    counts: &Counts<'_>,
    late: Option<&Wait>,
    reason: &str,
    message: &str,
) -> StatusCondition {
    let updated = format!("{} of {} updated", counts.updated(), workload.replicas);
    let (exceeded, failed) =
        (WaitReason::ProgressDeadlineExceeded.as_str(), WaitReason::CommitFailed.as_str());
    let of = |status, reason, message: &str| condition(ConditionType::Progressing, status, reason, message);
    if counts.paused {
        of(ConditionStatus::Unknown, "DeploymentPaused", "paused")
    } else if reason == exceeded {
        of(ConditionStatus::False, exceeded, message)
    } else if reason == failed && !counts.is_rolled_out(workload) {
        of(ConditionStatus::False, failed, message)
    } else if let Some(late) = late {
        // Its health has another reason, which says more.
        of(ConditionStatus::False, exceeded, &late.without_workload())
    } else if counts.is_rolled_out(workload) && counts.good() >= workload.replicas {
        of(ConditionStatus::True, "NewReplicaSetAvailable", &updated)
    } else if counts.updated.is_empty() {
        of(ConditionStatus::True, "NewReplicaSetCreated", &updated)
    } else {
        of(ConditionStatus::True, "ReplicaSetUpdated", &updated)
    }
}

/// True with its reasons, False where it was there before, or else not there at all.
fn standing(
    kind: ConditionType,
    reason: &str,
    messages: &[String],
    before: &[StatusCondition],
) -> Option<StatusCondition> {
    if !messages.is_empty() {
        return Some(condition(kind, ConditionStatus::True, reason, &messages.join("; ")));
    }
    let was_there = before.iter().any(|it| it.is_of(kind));
    was_there.then(|| condition(kind, ConditionStatus::False, "Resolved", ""))
}

fn condition(kind: ConditionType, status: ConditionStatus, reason: &str, message: &str) -> StatusCondition {
    StatusCondition {
        kind: kind.as_str().to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Timestamp::default(),
    }
}

fn with_transitions(
    mut all: Vec<StatusCondition>,
    now: Timestamp,
    before: &[StatusCondition],
) -> Vec<StatusCondition> {
    for it in &mut all {
        let same = before.iter().find(|old| old.kind == it.kind && old.status == it.status);
        it.last_transition_time = same.map_or(now, |old| old.last_transition_time);
    }
    all
}
