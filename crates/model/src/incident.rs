//! Incidents: what people are notified of, from its beginning until it is over.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use super::{AppName, Timestamp};

/// The kind of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IncidentKind {
    /// A commit could not be applied, or is refused.
    SyncFailed,
    /// An application does not run as it should, for longer than the grace time.
    Degraded,
    /// Somebody or something has changed what runs.
    DriftFound,
    /// Drift comes back whenever it is undone.
    DriftNotHealed,
    /// A commit removes most of an application, and the removal waits for a confirmation.
    PruneHeld,
    /// An application is pinned to an older revision.
    RolledBack,
    /// A repository could not be fetched for long.
    GitUnreachable,
    /// The engine does not answer.
    EngineUnreachable,
    /// A host of the fleet has not been heard for long.
    HostLost,
    /// A certificate or token of the agent, or a key that signs commits, ends soon or has ended.
    CredentialExpiring,
    /// A registry has a newer image, which the agent does not deploy by itself.
    ImageAvailable,
    /// No new commit is applied before a user confirms it with `driftless recover`.
    RecoverRequired,
    /// A registry has given no answer for long about an image that is followed.
    ImageCheckFailed,
}

/// The urgency of an incident, lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Urgency {
    /// Nothing has to be done.
    #[default]
    Info,
    /// Somebody should look at it in the next days.
    Warning,
    /// Somebody should look at it now.
    Critical,
}

/// The part of an incident that a notification reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IncidentPhase {
    /// It began.
    Opened,
    /// It goes on, and something about it is new.
    Updated,
    /// It is over.
    Recovered,
}

/// One incident. At most one of each kind is open for each application or repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Incident {
    /// Counts up over all incidents of the agent.
    pub number: u64,
    pub kind: IncidentKind,
    pub urgency: Urgency,
    /// The application; `None` if it is about a repository or the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// The repository's name in the configuration; `None` if it is about the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The host of the fleet, on a collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// One sentence: what is wrong. Masked.
    pub message: String,
    /// The message of the last notification, if the present one is newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notified_message: Option<String>,
    /// One sentence: what to do.
    pub advice: String,
    /// The failed revision, the reason or error that keeps a commit back, or the newer images. One that is not among these is
    /// reported, also if the messages differ in numbers only. Empty for other kinds, and where an older agent has stored it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub about: BTreeSet<String>,
    /// When it was first seen.
    pub since: Timestamp,
    /// When it was reported; `None` within the grace time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<Timestamp>,
    /// When the last notification was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notified: Option<Timestamp>,
    /// Since when it is not seen any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// It is over because the agent has the application, repository or host no more: it was removed or forgotten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmanaged: bool,
    /// The receivers that were notified of its beginning.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub receivers: BTreeSet<String>,
}

/// One report about an incident to one receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// Counts up over all notifications of the agent.
    pub number: u64,
    /// The receiver's name in the configuration.
    pub receiver: String,
    pub phase: IncidentPhase,
    /// The incident as it was then.
    pub incident: Incident,
    /// When it was made.
    pub at: Timestamp,
    /// When the receiver accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Timestamp>,
}

/// One receiver of notifications and how it does: an entry of `driftless notify list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverStatus {
    /// As in the configuration.
    pub name: String,
    /// `slack`, `email`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// One sentence for each route that leads to it.
    pub routes: Vec<String>,
    /// The number of notifications that wait.
    pub waiting: u64,
    /// When the last one was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent: Option<Timestamp>,
    /// Why the last try failed, or did not reach all recipients of a mail; empty after a success.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// The notifications of an agent: the answer of `GET /api/v1/notifications`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotificationStatus {
    /// In the order of the configuration.
    pub receivers: Vec<ReceiverStatus>,
    /// The incidents that are open, oldest first. Those within their grace time have no `opened`.
    pub incidents: Vec<Incident>,
}

impl IncidentKind {
    /// All kinds with their names in the configuration.
    pub const ALL: [(&'static str, Self); 13] = [
        ("syncFailed", Self::SyncFailed),
        ("degraded", Self::Degraded),
        ("driftFound", Self::DriftFound),
        ("driftNotHealed", Self::DriftNotHealed),
        ("pruneHeld", Self::PruneHeld),
        ("rolledBack", Self::RolledBack),
        ("gitUnreachable", Self::GitUnreachable),
        ("engineUnreachable", Self::EngineUnreachable),
        ("hostLost", Self::HostLost),
        ("credentialExpiring", Self::CredentialExpiring),
        ("imageAvailable", Self::ImageAvailable),
        ("recoverRequired", Self::RecoverRequired),
        ("imageCheckFailed", Self::ImageCheckFailed),
    ];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("incident", |(name, _)| name)
    }
}

impl Urgency {
    /// All urgencies with their names in the configuration.
    pub const ALL: [(&'static str, Self); 3] =
        [("info", Self::Info), ("warning", Self::Warning), ("critical", Self::Critical)];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, urgency)| *urgency == self).map_or("info", |(name, _)| name)
    }
}

impl fmt::Display for Urgency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Incident {
    /// The application, repository or host that it is about, or `engine` or `agent`.
    pub fn subject(&self) -> &str {
        let app = self.app.as_ref().map(AppName::as_str);
        let rest = if self.kind == IncidentKind::CredentialExpiring { "agent" } else { "engine" };
        app.or(self.repository.as_deref()).or(self.host.as_deref()).unwrap_or(rest)
    }

    /// Identifies it among the open incidents.
    pub fn key(&self) -> String {
        format!("{}/{}", self.kind.name(), self.subject())
    }

    /// The event in a few words: `shop is degraded`.
    pub fn headline(&self, phase: IncidentPhase) -> String {
        let subject = self.subject();
        let is_over = phase == IncidentPhase::Recovered;
        match self.kind {
            IncidentKind::HostLost if is_over && self.unmanaged => {
                format!("host {subject} was removed from the fleet")
            }
            IncidentKind::GitUnreachable if is_over && self.unmanaged => {
                format!("repository {subject} is not followed any more")
            }
            _ if is_over && self.unmanaged => format!("{subject} is not managed any more"),
            IncidentKind::SyncFailed if is_over => format!("{subject} is synced again"),
            IncidentKind::SyncFailed => format!("sync of {subject} failed"),
            IncidentKind::Degraded if is_over => format!("{subject} is healthy again"),
            IncidentKind::Degraded => format!("{subject} is degraded"),
            IncidentKind::DriftFound if is_over => format!("{subject} is as Git says again"),
            IncidentKind::DriftFound => format!("{subject} was changed outside of Git"),
            IncidentKind::DriftNotHealed if is_over => format!("drift of {subject} is gone"),
            IncidentKind::DriftNotHealed => format!("drift of {subject} cannot be healed"),
            IncidentKind::PruneHeld if is_over => format!("the removal in {subject} waits no longer"),
            IncidentKind::PruneHeld => format!("a removal in {subject} waits for a confirmation"),
            IncidentKind::RolledBack if is_over => format!("{subject} follows Git again"),
            IncidentKind::RolledBack => format!("{subject} is rolled back"),
            IncidentKind::GitUnreachable if is_over => format!("repository {subject} is fetched again"),
            IncidentKind::GitUnreachable => format!("repository {subject} cannot be fetched"),
            IncidentKind::EngineUnreachable if is_over => "the engine answers again".to_owned(),
            IncidentKind::EngineUnreachable => "the engine does not answer".to_owned(),
            IncidentKind::HostLost if is_over => format!("host {subject} is back"),
            IncidentKind::HostLost => format!("host {subject} is lost"),
            IncidentKind::CredentialExpiring if is_over => {
                "no certificate, key or token expires soon".to_owned()
            }
            IncidentKind::CredentialExpiring => "a certificate, key or token expires".to_owned(),
            IncidentKind::ImageAvailable if is_over => format!("the images of {subject} are the newest"),
            IncidentKind::ImageAvailable => format!("{subject} has a newer image"),
            IncidentKind::RecoverRequired if is_over => format!("new commits of {subject} are applied again"),
            IncidentKind::RecoverRequired => format!("no new commit of {subject} is applied"),
            IncidentKind::ImageCheckFailed if is_over => format!("{subject} gets newer images again"),
            IncidentKind::ImageCheckFailed => format!("{subject} gets no newer images"),
        }
    }
}
