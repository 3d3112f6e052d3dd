//! The rule of `driftless fleet drift`: where the fleet is not as Git says, and what is not known.

use driftless_model::{AppName, CommitId, SyncStatus};
use serde::Serialize;

use crate::view::{HostState, HostView};

/// The differences from Git on all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetDrift {
    /// Applications that are not as Git says.
    pub applications: Vec<ApplicationDrift>,
    /// Hosts whose state is not known, so that nothing is said about their applications.
    pub unknown: Vec<UnknownHost>,
    /// Hosts on which everything was released: they follow nothing that they could differ from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<String>,
    /// The number of other hosts whose state is known.
    pub hosts: usize,
}

/// An application that is not as Git says on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationDrift {
    /// The name of the host.
    pub host: String,
    /// The name of the application.
    pub application: AppName,
    /// The name of its repository.
    pub repository: String,
    /// Whether it is equal to Git.
    pub sync: SyncStatus,
    /// The number of differences.
    pub drift: usize,
    /// The commit that it is equal to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A host whose state is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownHost {
    /// The name of the host.
    pub host: String,
    /// Its state.
    pub state: HostState,
    /// The reason of the state.
    pub reason: String,
}

/// The differences on these hosts, or on the named ones of them. Empty names: all.
pub fn fleet_drift(hosts: &[HostView], only: &[String]) -> FleetDrift {
    let mut found = FleetDrift::default();
    let mut unknown = |host: &str, state, reason: &str| {
        found.unknown.push(UnknownHost { host: host.to_owned(), state, reason: reason.to_owned() });
    };
    let (mut known, mut released) = (Vec::new(), Vec::new());
    for host in hosts.iter().filter(|host| only.is_empty() || only.contains(&host.name)) {
        let is_fresh = !matches!(host.state, HostState::Lost | HostState::Stale | HostState::NeverReported);
        match &host.report {
            Some(report) if is_fresh && report.released => released.push(host.name.clone()),
            Some(report) if is_fresh => {
                let unobserved = report.repositories.iter().find_map(|it| report.unobserved(it));
                if let Some(reason) = report.unread().or(unobserved) {
                    unknown(&host.name, host.state, &reason);
                }
                known.push((host, report));
            }
            Some(_) | None => unknown(&host.name, host.state, &host.reason),
        }
    }
    for name in only.iter().filter(|name| !hosts.iter().any(|host| host.name == **name)) {
        unknown(name, HostState::NeverReported, "it has never reported");
    }
    (found.released, found.hosts) = (released, known.len());
    for (host, report) in known {
        let differs = report.applications.iter().filter(|it| it.drift > 0 || it.sync != SyncStatus::Synced);
        found.applications.extend(differs.map(|application| ApplicationDrift {
            host: host.name.clone(),
            application: application.name.clone(),
            repository: application.repository.clone(),
            sync: application.sync,
            drift: application.drift,
            commit: application.commit.clone(),
            message: application.message.clone(),
        }));
    }
    found.applications.sort_by(|a, b| (&a.host, &a.application).cmp(&(&b.host, &b.application)));
    found
}

#[cfg(test)]
mod tests {
    use driftless_model::{HealthStatus, Timestamp};

    use super::*;
    use crate::{
        report::{ApplicationReport, HostReport, RepositoryReport},
        view::{LastReport, view},
    };

    const NOW: Timestamp = Timestamp(100_000_000);

    fn host(name: &str, sync: SyncStatus, drift: usize, age: u64) -> LastReport {
        let application = ApplicationReport {
            name: AppName::from("shop"),
            repository: "infra".to_owned(),
            sync,
            health: HealthStatus::Healthy,
            suspended: None,
            pinned: None,
            well: false,
            revision: None,
            revision_commit: None,
            commit: None,
            failed: None,
            images: None,
            failed_images: None,
            message: String::new(),
            drift,
        };
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            commit: Some(CommitId::from_stored("a".repeat(40))),
            applications: 1,
            ..RepositoryReport::default()
        };
        let report = HostReport {
            host: name.to_owned(),
            repositories: vec![repository],
            applications: vec![application],
            ..HostReport::default()
        };
        LastReport {
            report: std::sync::Arc::new(report),
            received: Timestamp(NOW.0 - age * 1000),
            conflict: None,
        }
    }

    #[test]
    fn differences_of_known_hosts_are_listed() {
        let reports = vec![
            host("good", SyncStatus::Synced, 0, 1),
            host("drifted", SyncStatus::Synced, 2, 1),
            host("behind", SyncStatus::OutOfSync, 0, 1),
            host("quiet", SyncStatus::Synced, 0, 100),
        ];
        let hosts = view(reports, &["new".to_owned()], NOW);
        let found = fleet_drift(&hosts, &[]);
        let names: Vec<&str> = found.applications.iter().map(|it| it.host.as_str()).collect();
        assert_eq!((names, found.hosts), (vec!["behind", "drifted"], 3));
        let unknown: Vec<&str> = found.unknown.iter().map(|it| it.host.as_str()).collect();
        assert_eq!(unknown, ["new", "quiet"]);
        let only = fleet_drift(&hosts, &["good".to_owned(), "gone".to_owned()]);
        assert_eq!((only.applications.len(), only.unknown.len(), only.hosts), (0, 1, 1));
    }

    #[test]
    fn host_that_has_not_read_its_repository_is_unknown() {
        let mut last = host("nas", SyncStatus::Synced, 0, 1);
        let report = std::sync::Arc::make_mut(&mut last.report);
        report.applications.clear();
        report.repositories[0] = RepositoryReport { name: "infra".to_owned(), ..RepositoryReport::default() };
        let found = fleet_drift(&view(vec![last], &[], NOW), &[]);
        assert_eq!(found.unknown.len(), 1, "{found:?}");
        assert_eq!(found.unknown[0].reason, "infra has not been read yet");
    }

    #[test]
    fn released_host_is_neither_unknown_nor_without_drift() {
        let mut last = host("nas", SyncStatus::Synced, 0, 1);
        let report = std::sync::Arc::make_mut(&mut last.report);
        (report.repositories, report.applications, report.released) = (Vec::new(), Vec::new(), true);
        let found = fleet_drift(&view(vec![last], &[], NOW), &[]);
        assert_eq!(found, FleetDrift { released: vec!["nas".to_owned()], ..FleetDrift::default() });
    }
}
