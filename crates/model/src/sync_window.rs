//! Sync windows: the times at which new commits may be applied.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::defaults::is_default;

/// A time that comes again, at which new commits are applied or held back. The rules are those of Argo CD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncWindow {
    pub kind: WindowKind,
    /// The text for [`super::Schedule::parse`], which accepted it when the configuration was read: when the window begins.
    pub schedule: String,
    /// The time zone of the schedule. `None`: UTC.
    #[serde(default, skip_serializing_if = "is_default")]
    pub time_zone: Option<String>,
    /// Its length.
    #[serde(rename = "durationSeconds", with = "crate::seconds::whole")]
    pub duration: Duration,
    /// Whether a user may sync although the window forbids it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub manual_sync: bool,
}

/// Whether commits are applied in a window or outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WindowKind {
    /// Commits are applied while one such window is open, and at no other time.
    Allow,
    /// No commit is applied while the window is open.
    Deny,
}

impl fmt::Display for SyncWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            WindowKind::Allow => "allow",
            WindowKind::Deny => "deny",
        };
        write!(f, "{kind} `{}` ({})", self.schedule, self.time_zone.as_deref().unwrap_or("UTC"))
    }
}
