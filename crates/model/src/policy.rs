//! The policy of one application: the settings that limit the agent.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{After, AppDependency, EngineKind, IgnoredDifferences, ImageUpdate, SignatureRule, SyncWindow};
use crate::defaults::is_default;

/// Per application, from the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The engine that runs the application: containers on this host, or services of a Swarm. Default: this host.
    #[serde(default, skip_serializing_if = "is_default")]
    pub engine: EngineKind,
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
    /// The consequence of a commit that fails. Default: its rollouts pause.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// A revision that loses its health this soon after it has succeeded has failed. Default: 1 minute; 0 is never.
    #[serde(rename = "monitorSeconds", with = "crate::seconds::whole", default = "a_minute")]
    pub monitor: Duration,
    /// Without progress for this long, a rollout has failed, if its manifest names no shorter deadline. A workload that may start for
    /// longer has that time.
    #[serde(
        rename = "progressDeadlineSeconds",
        with = "crate::seconds::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub progress_deadline: Option<Duration>,
    /// When new commits are applied. Default: at any time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sync_windows: Vec<SyncWindow>,
    /// The applications that a new commit waits for. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<AppDependency>,
    /// The hosts that a new commit must work on first. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<After>,
    /// The setting for newer images of a registry. Default: they are reported.
    #[serde(default, skip_serializing_if = "is_default")]
    pub image_update: ImageUpdate,
    /// The images that must be signed. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verify_images: Vec<SignatureRule>,
    /// The networks and volumes of other applications, by the rule `otherApplications`. It is not published.
    #[serde(skip)]
    pub objects_of_others: ObjectsOfOthers,
    /// Fields of live containers whose differences are reported and left. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore_differences: Vec<IgnoredDifferences>,
}

/// Whether an application may use networks and volumes that were created for other applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectsOfOthers {
    #[default]
    Allowed,
    Forbidden,
}

/// The consequence of a commit that fails: its rollout makes no progress, a Job of it fails, or it loses its health soon
/// after it was reached. The strictest is the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// It is reported, and the rollout goes on as soon as it can.
    None,
    /// No further instance is replaced.
    #[default]
    Pause,
    /// The application goes back to the last revision that succeeded.
    Rollback,
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

const fn a_minute() -> Duration {
    Duration::from_mins(1)
}

impl Policy {
    /// Whether the application may not use networks and volumes that were created for other applications.
    pub fn forbids_objects_of_others(&self) -> bool {
        self.objects_of_others == ObjectsOfOthers::Forbidden
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            engine: EngineKind::Docker,
            self_heal: true,
            prune: false,
            max_prune_percent: half(),
            suspended: false,
            adopt: Adopt::Ask,
            filesystem_drift: FilesystemDrift::Report,
            on_failure: OnFailure::Pause,
            monitor: a_minute(),
            progress_deadline: None,
            sync_windows: Vec::new(),
            depends_on: Vec::new(),
            after: None,
            image_update: ImageUpdate::default(),
            verify_images: Vec::new(),
            objects_of_others: ObjectsOfOthers::Allowed,
            ignore_differences: Vec::new(),
        }
    }
}
