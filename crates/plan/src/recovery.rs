//! When the problem of an incident is over, and not only out of sight.
//!
//! While the next commit is on its way, a container starts or an application is suspended, the status shows no problem, and
//! nothing is well again either.

use driftless_model::{
    Application, ConditionStatus, DriftAction, HealthStatus, Incident, IncidentKind, OperationPhase,
};

/// Whether the problem of an incident, which the status does not show, may come back before anything has been well.
pub(crate) fn is_out_of_sight(incident: &Incident, application: &Application) -> bool {
    let Application { spec, status, .. } = application;
    let is_false = |kind: &str| {
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| condition.kind == kind && condition.status == ConditionStatus::False)
    };
    match incident.kind {
        // The newest commit is not applied yet, or waits for its turn.
        IncidentKind::SyncFailed => {
            let phase = status.operation.as_ref().map(|operation| operation.phase);
            matches!(phase, Some(OperationPhase::Running | OperationPhase::Waiting))
                || is_false("SyncAllowed")
        }
        IncidentKind::Degraded => !matches!(status.health, HealthStatus::Healthy | HealthStatus::Suspended),
        // In a suspended application, differences are no problem and stay.
        IncidentKind::DriftFound => !status.drift.is_empty(),
        IncidentKind::DriftNotHealed => {
            let mut drifts = status.drift.iter();
            drifts.any(|drift| spec.policy.suspended || drift.action != DriftAction::Report)
        }
        // Nobody looks for images of a commit that cannot be applied.
        IncidentKind::ImageAvailable => is_false("Rendered") || is_false("Trusted"),
        IncidentKind::PruneHeld
        | IncidentKind::RolledBack
        | IncidentKind::GitUnreachable
        | IncidentKind::EngineUnreachable
        | IncidentKind::HostLost
        | IncidentKind::CredentialExpiring => false,
    }
}
