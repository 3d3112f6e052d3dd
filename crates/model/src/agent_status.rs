//! The status of the agent itself, apart from applications and repositories.

use serde::{Deserialize, Serialize};

use super::{AppName, Timestamp};

/// The agent itself: its version, its host, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The version of the program.
    pub version: String,
    /// The name of the host, as in the configuration.
    pub host: String,
    /// The address of the page, as people or programs of this machine open it.
    pub url: String,
    /// When the agent started.
    pub started: Timestamp,
    /// Whether it can do its work, as `/readyz` answers.
    pub ready: bool,
    /// Why not, in one sentence, or empty.
    pub message: String,
    /// The problems that do not keep it from its work.
    pub problems: Vec<AgentProblem>,
    /// The applications that no list has yet, because the agent has not observed them since it started or since Git has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unobserved: Vec<AppName>,
}

/// A problem of the agent itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentProblem {
    /// The part of the configuration, such as `tls`.
    pub subject: String,
    /// One sentence.
    pub message: String,
}
