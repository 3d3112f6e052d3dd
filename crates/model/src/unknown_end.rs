//! Runs whose end nobody knows, because the engine went down in them.

use serde::{Deserialize, Serialize};

use crate::{ContainerId, SpecHash, Timestamp};

/// A run of a Job, or of a service that is to end, whose end is not known: the engine went down in it, and does not
/// know afterwards how it ended. It is run again, so its work may be done twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownEnd {
    pub container: ContainerId,
    pub spec: SpecHash,
    /// When that was found.
    pub at: Timestamp,
    /// The engine's statement about the run, as a part of a sentence.
    pub why: String,
}
