//! Facts that incidents are judged by: the published state, and the times of notifications.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_model::{AppName, Application, Expiry, Incident, RepositoryStatus, Timestamp};

/// An agent that has just started has not observed all applications yet.
const START_GRACE: Duration = Duration::from_mins(5);

/// The times of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncidentTimes {
    /// An application is degraded for this long before it is reported.
    pub degraded: Duration,
    /// The fetches of a repository fail for this long before it is reported.
    pub git: Duration,
    /// The shortest time between two notifications of one incident.
    pub update: Duration,
}

/// The published state, and the drift that the agent has undone.
#[derive(Clone, Copy, Debug)]
pub struct IncidentFacts<'a> {
    /// All applications.
    pub applications: &'a BTreeMap<AppName, Arc<Application>>,
    /// All repositories.
    pub repositories: &'a [RepositoryStatus],
    /// Why the engine does not answer.
    pub engine_error: Option<&'a str>,
    /// The agent is ready, so that what it does not publish is not there.
    pub is_ready: bool,
    /// Drift of the last minute, in words, by application.
    pub drift: &'a BTreeMap<AppName, String>,
    /// All hosts of the fleet, each with a sentence if it is lost. Empty if the agent is no collector.
    pub hosts: &'a BTreeMap<String, Option<String>>,
    /// All places with reports were read, so that a host that is not listed is not there.
    pub is_fleet_read: bool,
    /// The ends of certificates, keys and tokens.
    pub expiries: &'a [Expiry],
    /// The applications that have an older revision which succeeded.
    pub with_older: &'a BTreeSet<AppName>,
    /// When the agent started, or when its clock last jumped.
    pub started: Timestamp,
    /// By how much the clock has gone on alone since the last decision: the machine has slept, or its clock was set forward.
    pub jump: Duration,
    /// This moment.
    pub now: Timestamp,
}

impl IncidentFacts<'_> {
    pub(crate) fn has_just_started(&self) -> bool {
        self.started.is_recent(START_GRACE, self.now)
    }

    /// An incident without the last jump of the clock. A problem that is not reported yet has not been seen in that time, and one that
    /// seems to be over was not seen to be gone.
    pub(crate) fn without_jump(&self, incident: &Incident) -> Incident {
        let later = |at: Timestamp| at.after(self.jump);
        let since = if incident.opened.is_none() { later(incident.since) } else { incident.since };
        Incident { since, ended: incident.ended.map(later), ..incident.clone() }
    }

    /// Whether the agent still has the application, repository or host of an incident.
    pub(crate) fn has_subject(&self, incident: &Incident) -> bool {
        let Incident { app, repository, host, .. } = incident;
        match (app, repository, host) {
            (Some(app), _, _) => self.applications.contains_key(app),
            (None, Some(name), _) => self.repositories.iter().any(|repository| repository.name == *name),
            (None, None, Some(host)) => self.hosts.contains_key(host),
            (None, None, None) => true,
        }
    }
}
