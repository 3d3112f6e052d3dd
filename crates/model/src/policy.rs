//! The policy of one application: the settings that limit the agent.

use serde::{Deserialize, Serialize};

/// Per application, from the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Undo what was changed by hand. Off: report it and leave it. Default: on.
    pub self_heal: bool,
    /// Remove what runs when the application disappears from Git or the configuration. Default: off, which
    /// reports and keeps it. Volumes are kept either way.
    pub prune: bool,
    /// The share of an application's workloads, in percent, that is removed at once when Git does not have them any
    /// more. More is kept until somebody confirms it, unless it is three or fewer. Default: 50; with 100 nobody is asked.
    #[serde(default = "half")]
    pub max_prune_percent: u8,
    /// Observe and report, never write. Default: off.
    pub suspended: bool,
    /// Whether containers that Docker Compose started under the application's project name are adopted.
    #[serde(default)]
    pub adopt: Adopt,
    /// Whether files that a user changes inside a running container are reported or reverted.
    #[serde(default)]
    pub filesystem_drift: FilesystemDrift,
}

/// The handling of files that a user changed inside a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FilesystemDrift {
    /// They are shown.
    #[default]
    Report,
    /// The container is replaced.
    Revert,
    /// Nobody looks.
    Off,
}

/// Whether a running Compose project is taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Adopt {
    /// At once.
    Auto,
    /// When somebody says so, with `driftless adopt`.
    #[default]
    Ask,
    Never,
}

const fn half() -> u8 {
    50
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            self_heal: true,
            prune: false,
            max_prune_percent: half(),
            suspended: false,
            adopt: Adopt::Ask,
            filesystem_drift: FilesystemDrift::Report,
        }
    }
}
