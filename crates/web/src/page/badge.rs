//! Words and colours of states. The word always says what the colour says.

use driftless_model::{HealthStatus, Outcome, SyncStatus};
use maud::{Markup, html};

pub(super) fn sync_word(sync: SyncStatus) -> &'static str {
    match sync {
        SyncStatus::Synced => "Synced",
        SyncStatus::OutOfSync => "OutOfSync",
        SyncStatus::Unknown => "Unknown",
    }
}

pub(super) fn sync_class(sync: SyncStatus) -> &'static str {
    match sync {
        SyncStatus::Synced => "good",
        SyncStatus::OutOfSync => "warn",
        SyncStatus::Unknown => "idle",
    }
}

pub(super) fn health_word(health: HealthStatus) -> &'static str {
    match health {
        HealthStatus::Healthy => "Healthy",
        HealthStatus::Suspended => "Suspended",
        HealthStatus::Progressing => "Progressing",
        HealthStatus::Missing => "Missing",
        HealthStatus::Degraded => "Degraded",
        HealthStatus::Unknown => "Unknown",
    }
}

pub(super) fn health_class(health: HealthStatus) -> &'static str {
    match health {
        HealthStatus::Healthy => "good",
        HealthStatus::Suspended | HealthStatus::Unknown => "idle",
        HealthStatus::Progressing => "busy",
        HealthStatus::Missing => "warn",
        HealthStatus::Degraded => "bad",
    }
}

pub(super) fn sync_badge(sync: SyncStatus) -> Markup {
    html! { span.badge.(sync_class(sync)) { (sync_word(sync)) } }
}

pub(super) fn health_badge(health: HealthStatus) -> Markup {
    html! { span.badge.(health_class(health)) { (health_word(health)) } }
}

pub(super) fn outcome_badge(outcome: &Outcome) -> Markup {
    let (class, word) = match outcome {
        Outcome::InProgress => ("busy", "in progress"),
        Outcome::Succeeded => ("good", "succeeded"),
        Outcome::Failed { .. } => ("bad", "failed"),
        Outcome::Superseded => ("idle", "superseded"),
    };
    html! { span.badge.(class) { (word) } }
}
