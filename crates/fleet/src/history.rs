//! The history of a fleet: revisions and failed commits of all hosts, as a collector saw them.

use driftless_model::{AppName, CommitId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::report::{ApplicationReport, HostReport};

/// Another revision of an application on a host, or a commit that failed there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetHistoryEntry {
    /// When the collector heard of it.
    pub at: Timestamp,
    /// The name of the host.
    pub host: String,
    /// The name of the application.
    pub application: AppName,
    /// The name of its repository in the configuration of the host.
    pub repository: String,
    /// The event.
    pub event: FleetHistoryEvent,
    /// The number of the revision on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The commit of the revision, or the one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
}

/// An event of an application on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FleetHistoryEvent {
    /// A revision began, or was there when the host first reported.
    Revision,
    /// A commit failed.
    Failed,
    /// The host does not have the application any more.
    Removed,
}

/// The differences between two reports of a host, the newer one of which arrived at `at`.
pub fn history_of(before: Option<&HostReport>, after: &HostReport, at: Timestamp) -> Vec<FleetHistoryEntry> {
    let entry = |application: &ApplicationReport, event, commit: Option<&CommitId>| FleetHistoryEntry {
        at,
        host: after.host.clone(),
        application: application.name.clone(),
        repository: application.repository.clone(),
        event,
        revision: application.revision,
        commit: commit.cloned(),
    };
    let known = |name: &AppName| {
        before.and_then(|before| before.applications.iter().find(|application| application.name == *name))
    };
    let mut entries = Vec::new();
    for application in &after.applications {
        let last = known(&application.name);
        let is_other = last.is_none_or(|last| last.revision != application.revision);
        if is_other && application.revision.is_some() {
            entries.push(entry(application, FleetHistoryEvent::Revision, application.deployed_commit()));
        }
        let failed = application.failed.as_ref();
        if failed.is_some() && last.is_none_or(|last| last.failed.as_ref() != failed) {
            entries.push(entry(application, FleetHistoryEvent::Failed, failed));
        }
    }
    // Just after a start, an agent has not observed all of its applications.
    let is_whole = !after.repositories.is_empty()
        && after.repositories.iter().all(|repository| after.unobserved(repository).is_none());
    if is_whole {
        let gone = before.iter().flat_map(|before| &before.applications);
        let is_gone = |one: &&ApplicationReport| !after.applications.iter().any(|it| it.name == one.name);
        entries
            .extend(gone.filter(is_gone).map(|it| entry(it, FleetHistoryEvent::Removed, it.commit.as_ref())));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::RepositoryReport;
    use driftless_model::{HealthStatus, SyncStatus};

    fn report(revision: u64, failed: Option<&str>) -> HostReport {
        let application = ApplicationReport {
            name: AppName::from("shop"),
            repository: "infra".to_owned(),
            sync: SyncStatus::Synced,
            health: HealthStatus::Healthy,
            suspended: None,
            pinned: None,
            well: false,
            revision: Some(revision),
            revision_commit: None,
            commit: Some(CommitId::from_stored("a")),
            failed: failed.map(CommitId::from_stored),
            images: None,
            failed_images: None,
            message: String::new(),
            drift: 0,
        };
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            commit: Some(CommitId::from_stored("a".repeat(40))),
            applications: 1,
            ..RepositoryReport::default()
        };
        HostReport {
            host: "nas".to_owned(),
            repositories: vec![repository],
            applications: vec![application],
            ..HostReport::default()
        }
    }

    fn events(before: Option<&HostReport>, after: &HostReport) -> Vec<FleetHistoryEvent> {
        history_of(before, after, Timestamp(1)).into_iter().map(|entry| entry.event).collect()
    }

    #[test]
    fn only_other_revisions_and_failures_are_history() {
        let first = report(1, None);
        assert_eq!(events(None, &first), [FleetHistoryEvent::Revision]);
        assert_eq!(events(Some(&first), &first), []);
        assert_eq!(events(Some(&first), &report(2, None)), [FleetHistoryEvent::Revision]);
        assert_eq!(events(Some(&first), &report(1, Some("b"))), [FleetHistoryEvent::Failed]);
    }

    #[test]
    fn application_that_is_not_observed_yet_is_not_removed() {
        let first = report(1, None);
        let mut next = HostReport { applications: Vec::new(), ..first.clone() };
        assert_eq!(events(Some(&first), &next), []);
        next.repositories[0].applications = 0;
        assert_eq!(events(Some(&first), &next), [FleetHistoryEvent::Removed]);
        // Nor is anything removed by an agent that has not read its repository since it was started.
        next.repositories[0].commit = None;
        assert_eq!(events(Some(&first), &next), []);
    }
}
