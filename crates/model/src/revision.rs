//! Revisions: which commit was applied, when and why. A rollback goes back to one.

use serde::{Deserialize, Serialize};

use super::{Actor, AppName, CommitId, StackHash, Timestamp};

/// A commit, as far as people want to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitInfo {
    pub id: CommitId,
    /// `Name <mail>`.
    pub author: String,
    /// The first line of its message.
    pub subject: String,
    /// The committer's time.
    pub time: Timestamp,
}

impl CommitInfo {
    /// The first twelve digits.
    pub fn short(&self) -> &str {
        self.id.short()
    }

    /// The author without the mail address.
    pub fn author_name(&self) -> &str {
        self.author.split('<').next().unwrap_or_default().trim()
    }
}

/// One sync of an application. Numbers count up and are never used twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    pub app: AppName,
    pub number: u64,
    pub commit: CommitInfo,
    /// The branch, tag or commit that was followed.
    pub reference: String,
    pub started: Timestamp,
    pub finished: Option<Timestamp>,
    pub cause: Cause,
    pub outcome: Outcome,
    pub stack: StackHash,
    /// Changes since the revision before, one sentence each. Masked.
    pub changes: Vec<String>,
    /// `repository@sha256:…` of each image reference when it was reached.
    pub images: std::collections::BTreeMap<String, String>,
    /// The revision that this one went back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_of: Option<u64>,
    /// The actor that asked for it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

impl Revision {
    /// Whether it removed the application. Nothing goes back to it.
    pub fn is_removal(&self) -> bool {
        self.cause == Cause::Removal
    }

    /// Whether a rollback may choose it: it has succeeded, and is no removal.
    pub fn is_way_back(&self) -> bool {
        self.outcome == Outcome::Succeeded && !self.is_removal()
    }
}

/// The last revision that succeeded with another stack than the newest one, and is no removal. `history` has the newest
/// revision first.
pub fn older_success(history: &[Revision]) -> Option<&Revision> {
    let current = history.first()?;
    history.iter().find(|revision| revision.is_way_back() && revision.stack != current.stack)
}

/// Why a revision exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// A poll or webhook found the commit.
    Commit,
    /// `driftless sync`.
    User,
    /// `driftless rollback`.
    Rollback,
    /// The commit failed, and `onFailure` asks for the last revision that succeeded.
    AutomaticRollback,
    /// A pin ended.
    Resume,
    /// The agent's first look at the application.
    Start,
    /// The configuration changed.
    Configuration,
    /// The registry had a newer image.
    Image,
    /// The application has left Git, and is removed. It has the commit that was applied before.
    Removal,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    InProgress,
    Succeeded,
    Failed {
        reason: String,
    },
    /// A newer target came before it was reached.
    Superseded,
}

/// The number in a pin whose revision only the agent on another manager of the Swarm has.
pub const REVISION_ELSEWHERE: u64 = 0;

/// Holds an application at a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// Its number, or [`REVISION_ELSEWHERE`].
    pub revision: u64,
    pub commit: CommitId,
    pub reason: String,
    pub at: Timestamp,
    pub until: Until,
    /// The commit that was rolled back from: reaching it again releases nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<CommitId>,
    /// The stack of that commit: later commits with the same one release nothing, too. `None`: it was not known, or an older
    /// release stored the pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_stack: Option<StackHash>,
    /// The actor that asked for the rollback. `None`: an older release stored the pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// When a pin ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Until {
    /// `driftless resume`.
    Manual,
    /// A commit that changes the application against the one rolled back from.
    NextCommit,
    Time(Timestamp),
}
