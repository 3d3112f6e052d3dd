//! The commit of an application whose rollout failed.

use serde::{Deserialize, Serialize};

use super::{CommitId, FailureAction, OnFailure, StackHash, Timestamp};
use crate::defaults::is_default;

/// A commit that failed, and what followed. It is remembered until the stack of the application changes, or until a user
/// asks for another try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedCommit {
    pub commit: CommitId,
    /// The stack of the commit. Later commits with the same stack are skipped too.
    pub stack: StackHash,
    /// The revision that failed.
    pub revision: u64,
    /// Why, in one line. Masked.
    pub reason: String,
    pub at: Timestamp,
    /// The revision that the application went back to. `None`: its rollouts are paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_to: Option<u64>,
    /// The revision had succeeded, and lost its health within the time of `monitor`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub was_reached: bool,
    /// The consequence that the service which failed asks for. `None`: that of the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<FailureAction>,
    /// The images that were resolved for its stack, by the first digits of their digests. `None` in records of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<String>>,
}

impl FailedCommit {
    /// The consequence. `general` is that of the application.
    pub fn on_failure(&self, general: OnFailure) -> OnFailure {
        self.action.map_or(general, FailureAction::consequence)
    }

    /// Whether this is the stack that failed and its rollouts are paused.
    pub fn pauses(&self, stack: &StackHash) -> bool {
        self.back_to.is_none() && self.stack == *stack
    }
}
