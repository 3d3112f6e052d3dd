//! Requests of a collector to an enrolled host, which come back with the answers to its reports.

use serde::{Deserialize, Serialize};

use super::{Actor, AppName, Timestamp};

/// A request of a collector to an enrolled host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRequest {
    /// Random, so that no other request has it.
    pub id: String,
    /// The kind of the request.
    pub kind: HostRequestKind,
    /// The application.
    pub application: AppName,
    /// The revision or commit of a rollback. `None`: the newest revision that succeeded and is not the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The actor who asked the collector.
    pub actor: Actor,
    /// The collector does not send it from this moment on, by its clock.
    pub expires: Timestamp,
}

/// The requests that a collector can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostRequestKind {
    /// Fetch and observe now.
    Sync,
    /// Observe and report, change nothing.
    Suspend,
    /// End a pin or a suspension.
    Resume,
    /// Go back to a revision and stay there.
    Rollback,
}

impl HostRequestKind {
    /// All of them with their words.
    pub const ALL: [(&'static str, Self); 4] = [
        ("sync", Self::Sync),
        ("suspend", Self::Suspend),
        ("resume", Self::Resume),
        ("rollback", Self::Rollback),
    ];

    /// The word in the configuration and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Rollback => "rollback",
        }
    }
}

/// The result of a request, as the host reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRequestResult {
    /// The id of the request.
    pub id: String,
    /// Whether it was done.
    pub outcome: HostRequestOutcome,
    /// The reason, if it was not done. Empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whether a request of a collector was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostRequestOutcome {
    /// The agent of the host has accepted it.
    Accepted,
    /// The host does not allow it, or it is not possible.
    Refused,
    /// The agent ended while it was accepted, so it may be done or not. It is not done again.
    Unknown,
}
