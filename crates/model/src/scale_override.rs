//! A number of instances that a user set for a time, instead of that in Git.

use serde::{Deserialize, Serialize};

use super::{Actor, Timestamp};

/// The number of instances of one workload until a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleOverride {
    pub replicas: u32,
    /// When the number in Git counts again.
    pub until: Timestamp,
    /// When it was requested first.
    pub at: Timestamp,
    /// The actor that requested it last.
    pub actor: Actor,
}
