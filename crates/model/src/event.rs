//! Something that happened, in one sentence: for the event log, the API and people.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Actor, AppName, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Counts up over all applications; 0 before the store has numbered it.
    #[serde(default)]
    pub sequence: u64,
    pub at: Timestamp,
    pub app: AppName,
    pub kind: EventKind,
    /// One word in camel case, as Kubernetes' events have: `DriftDetected`, `Pulled`, `BackOff`.
    pub reason: String,
    /// The object: `web.1`, `network shop_default`, `revision 4`.
    pub object: String,
    /// Masked.
    pub message: String,
    /// The actor that asked for it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EventKind {
    Normal,
    Warning,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}: {}", self.at, self.app, self.reason, self.object, self.message)?;
        self.actor.as_ref().map_or(Ok(()), |actor| write!(f, " (by {actor})"))
    }
}
