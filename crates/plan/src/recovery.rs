//! When the problem of an incident is over, and not only out of sight.
//!
//! While the next commit is on its way, a container starts or an application is suspended, the status shows no problem, and
//! nothing is well again either.

use driftless_model::{
    Application, ApplicationStatus, ConditionType, DriftAction, HealthStatus, IncidentKind, InstanceStatus,
    OperationPhase, UpdateMode, WorkloadStatus,
};

/// Whether the problem of an incident of this kind, which the status does not show, may come back before anything has been well.
pub(crate) fn is_out_of_sight(kind: IncidentKind, application: &Application) -> bool {
    let Application { spec, status, .. } = application;
    let is_problem = |kind| status.problem(kind).is_some();
    match kind {
        // The newest commit is not applied yet, or waits for its turn.
        IncidentKind::SyncFailed => {
            let phase = status.operation.as_ref().map(|operation| operation.phase);
            matches!(phase, Some(OperationPhase::Running | OperationPhase::Waiting))
                || is_problem(ConditionType::SyncAllowed)
                || (spec.policy.suspended && status.commit != spec.commit)
                // A user went back from it.
                || (status.pin.is_some() && is_problem(ConditionType::CommitFailed))
        }
        // A suspension or a pause stops deadlines, and makes nothing available.
        IncidentKind::Degraded => match status.health {
            HealthStatus::Healthy => false,
            HealthStatus::Suspended => !status.workloads.values().all(WorkloadStatus::is_serving),
            HealthStatus::Progressing
            | HealthStatus::Missing
            | HealthStatus::Degraded
            | HealthStatus::Unknown => true,
        },
        // In a suspended application, differences are no problem and stay.
        IncidentKind::DriftFound => !status.drift.is_empty(),
        IncidentKind::DriftNotHealed => {
            let mut drifts = status.drift.iter();
            drifts.any(|drift| spec.policy.suspended || drift.action != DriftAction::Report)
        }
        // Nobody looks for images of a suspended application, and a limit of questions is no answer.
        IncidentKind::ImageCheckFailed if spec.policy.suspended || fails_to_update(status) => true,
        // Nor for those of a commit that cannot be applied.
        IncidentKind::ImageAvailable | IncidentKind::ImageCheckFailed => {
            is_problem(ConditionType::Rendered) || is_problem(ConditionType::Trusted)
        }
        IncidentKind::PruneHeld
        | IncidentKind::RolledBack
        | IncidentKind::GitUnreachable
        | IncidentKind::EngineUnreachable
        | IncidentKind::HostLost
        | IncidentKind::CredentialExpiring
        | IncidentKind::RecoverRequired => false,
    }
}

/// Whether a registry has given no answer about an image that follows it. An image without the platform is one.
fn fails_to_update(status: &ApplicationStatus) -> bool {
    let mut followed = status.images.iter().filter(|image| image.mode == UpdateMode::Apply);
    followed.any(|image| image.failure.as_ref().is_some_and(|failure| failure.reason != "NoPlatform"))
}

/// Whether a running container of an application has crashed twice or more, and has not run for long enough to forget that. It
/// may be healthy for minutes, and the next crash is no other problem.
pub(crate) fn may_crash_again(status: &ApplicationStatus) -> bool {
    status.workloads.values().flat_map(|workload| &workload.instances).any(has_crashed)
}

fn has_crashed(instance: &InstanceStatus) -> bool {
    let mut parts = instance.containers.iter().filter_map(|part| part.instance.as_deref());
    (instance.crashes >= 2 && instance.exit.is_none()) || parts.any(has_crashed)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use driftless_model::{ApplicationSpec, ApplicationStatus, CommitId, CommitInfo, Policy};

    use super::*;

    /// A suspended application at commit `a`.
    fn suspended() -> Application {
        let commit = Some(CommitInfo { id: CommitId::from_stored("a"), ..CommitInfo::default() });
        Application {
            name: "shop".into(),
            spec: ApplicationSpec {
                repository: "infra".to_owned(),
                url: String::new(),
                reference: String::new(),
                path: String::new(),
                format: None,
                policy: Policy { suspended: true, ..Policy::default() },
                commit: commit.clone(),
            },
            status: ApplicationStatus { health: HealthStatus::Suspended, commit, ..Default::default() },
            generation: 1,
        }
    }

    #[test]
    fn suspension_is_no_recovery_of_unready_workloads() {
        for (health, reason, available_replicas, is_hidden) in [
            (HealthStatus::Suspended, "Readiness", 0, true),
            (HealthStatus::Suspended, "Readiness", 1, false),
            (HealthStatus::Suspended, "Paused", 0, true),
            (HealthStatus::Suspended, "Paused", 1, false),
            (HealthStatus::Suspended, "JobSuspended", 0, false),
            (HealthStatus::Healthy, "", 1, false),
        ] {
            let web = WorkloadStatus {
                health,
                reason: reason.to_owned(),
                replicas: 1,
                available_replicas,
                ..WorkloadStatus::default()
            };
            let mut shop = suspended();
            shop.status.workloads = Arc::new(BTreeMap::from([("web".into(), web)]));
            for is_suspended in [true, false] {
                shop.spec.policy.suspended = is_suspended;
                let found = is_out_of_sight(IncidentKind::Degraded, &shop);
                assert_eq!(found, is_hidden, "{health:?} {reason} {available_replicas}");
            }
        }
    }

    #[test]
    fn suspension_is_no_answer_of_a_registry() {
        let mut shop = suspended();
        assert!(is_out_of_sight(IncidentKind::ImageCheckFailed, &shop));
        shop.spec.policy.suspended = false;
        assert!(!is_out_of_sight(IncidentKind::ImageCheckFailed, &shop));
    }

    #[test]
    fn suspension_is_no_success_of_the_newest_commit() {
        let mut shop = suspended();
        assert!(!is_out_of_sight(IncidentKind::SyncFailed, &shop));
        shop.spec.commit = Some(CommitInfo { id: CommitId::from_stored("b"), ..CommitInfo::default() });
        assert!(is_out_of_sight(IncidentKind::SyncFailed, &shop));
        shop.spec.policy.suspended = false;
        assert!(!is_out_of_sight(IncidentKind::SyncFailed, &shop));
    }
}
