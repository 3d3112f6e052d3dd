//! Revisions: which commit was applied, when and why. A rollback goes back to one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Actor, AppName, CommitId, StackHash, Timestamp};
use crate::defaults::is_default;

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
    pub images: BTreeMap<String, String>,
    /// The revision that this one went back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_of: Option<u64>,
    /// The actor that asked for it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// It had succeeded before it got its present outcome: it has lost its health since, or was tried again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub was_reached: bool,
}

impl Revision {
    /// Ends it, or lets it be in progress again. Empty `images` leave the known ones as they are.
    pub fn finish(&mut self, outcome: &Outcome, images: &BTreeMap<String, String>, now: Timestamp) {
        self.was_reached |= self.outcome == Outcome::Succeeded && *outcome != Outcome::Succeeded;
        self.finished = (*outcome != Outcome::InProgress).then_some(now);
        self.outcome = outcome.clone();
        if !images.is_empty() {
            self.images.clone_from(images);
        }
    }

    /// Whether all of it has run, also if it has failed since.
    pub fn has_been_reached(&self) -> bool {
        self.was_reached || self.outcome == Outcome::Succeeded
    }

    /// Whether it removed the application. Nothing goes back to it.
    pub fn is_removal(&self) -> bool {
        self.cause == Cause::Removal
    }

    /// Whether a rollback may choose it: it has succeeded, and is no removal.
    pub fn is_way_back(&self) -> bool {
        self.outcome == Outcome::Succeeded && !self.is_removal()
    }
}

/// The last revision that succeeded with another version than the newest one, and is no removal. `history` has the newest
/// revision first.
pub fn older_success(history: &[Revision]) -> Option<&Revision> {
    let current = history.first()?;
    history.iter().find(|revision| revision.is_way_back() && !is_same_version(history, revision, current))
}

/// Whether two revisions of an application have the same stack, also if one of them went back to it: a rollback has other settings for
/// its rollouts and no canary, so its hash may be another one.
pub fn is_same_version(history: &[Revision], one: &Revision, other: &Revision) -> bool {
    one.stack == other.stack || origin(history, one).stack == origin(history, other).stack
}

/// Whether a revision has the stack of a commit, also if the revision went back to it.
pub fn is_version_of(history: &[Revision], revision: &Revision, stack: &StackHash) -> bool {
    revision.stack == *stack || origin(history, revision).stack == *stack
}

/// The revision of a commit that a revision went back to, or itself.
fn origin<'a>(history: &'a [Revision], revision: &'a Revision) -> &'a Revision {
    let is_origin =
        |older: &&Revision| revision.rollback_of == Some(older.number) && older.number < revision.number;
    history.iter().find(is_origin).map_or(revision, |older| origin(history, older))
}

/// The revision that was reached last, also if it has failed since, unless a rollback has left it then, or a commit that reverted to the
/// last success. `history` has the newest revision first.
pub fn last_reached(history: &[Revision]) -> Option<&Revision> {
    let succeeded = history.iter().find(|revision| revision.outcome == Outcome::Succeeded);
    // Also one that a newer commit has overtaken: there may be containers of the older version already.
    let reverts =
        |revision: &Revision| succeeded.is_some_and(|older| is_same_version(history, older, revision));
    let mut has_gone_back = false;
    history.iter().find(|revision| {
        let counts = revision.outcome == Outcome::Succeeded || (revision.was_reached && !has_gone_back);
        has_gone_back |=
            matches!(revision.cause, Cause::Rollback | Cause::AutomaticRollback) || reverts(revision);
        counts
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: u64, stack: &str, cause: Cause) -> Revision {
        Revision {
            app: "shop".into(),
            number,
            commit: CommitInfo::default(),
            reference: "main".to_owned(),
            started: Timestamp(number),
            finished: None,
            cause,
            outcome: Outcome::InProgress,
            stack: StackHash(stack.to_owned()),
            changes: Vec::new(),
            images: BTreeMap::new(),
            rollback_of: None,
            actor: None,
            was_reached: false,
        }
    }

    fn finished(outcomes: &[Outcome], mut revision: Revision) -> Revision {
        for outcome in outcomes {
            revision.finish(outcome, &BTreeMap::new(), Timestamp(9));
        }
        revision
    }

    fn failed() -> Outcome {
        Outcome::Failed { reason: "web exited".to_owned() }
    }

    #[test]
    fn reached_revision_counts_after_its_failure() {
        let first = finished(&[Outcome::Succeeded], revision(1, "a", Cause::Start));
        let number = |history: &[Revision]| last_reached(history).map(|revision| revision.number);
        for (outcomes, expected) in [
            (vec![failed()], 1),
            (vec![Outcome::Succeeded], 2),
            (vec![Outcome::Succeeded, failed()], 2),
            (vec![Outcome::Succeeded, failed(), Outcome::InProgress], 2),
            (vec![Outcome::Succeeded, failed(), Outcome::InProgress, Outcome::Superseded], 2),
            (vec![failed(), Outcome::InProgress], 1),
        ] {
            let second = finished(&outcomes, revision(2, "b", Cause::Commit));
            assert_eq!(number(&[second, first.clone()]), Some(expected), "{outcomes:?}");
        }
        let second = finished(&[Outcome::Succeeded, failed()], revision(2, "b", Cause::Commit));
        let back = revision(3, "a", Cause::AutomaticRollback);
        assert_eq!(number(&[back, second, first]), Some(1), "a rollback has left it");
    }

    #[test]
    fn reverted_revision_does_not_count_any_more() {
        let number = |history: &[Revision]| last_reached(history).map(|revision| revision.number);
        let first = finished(&[Outcome::Succeeded], revision(1, "a", Cause::Start));
        let second = finished(&[Outcome::Succeeded, failed()], revision(2, "b", Cause::Commit));
        let revert = |number: u64| finished(&[Outcome::Superseded], revision(number, "a", Cause::Commit));
        let overtaken = [revision(4, "c", Cause::Commit), revert(3), second.clone(), first.clone()];
        assert_eq!(number(&overtaken), Some(1));
        // The success is a rollback, which has another hash.
        let back = Revision { rollback_of: Some(1), ..revision(3, "a without", Cause::AutomaticRollback) };
        let back = finished(&[Outcome::Succeeded], back);
        let third = finished(&[Outcome::Succeeded, failed()], revision(4, "c", Cause::Commit));
        assert_eq!(number(&[revert(5), third.clone(), back.clone(), second.clone(), first.clone()]), Some(3));
        let other = finished(&[failed()], revision(5, "b", Cause::Commit));
        assert_eq!(number(&[other, third, back, second, first]), Some(4), "no revert to a success");
    }

    #[test]
    fn rollback_goes_back_to_another_version() {
        let succeeded = |revision: Revision| finished(&[Outcome::Succeeded], revision);
        let number = |history: &[Revision]| older_success(history).map(|revision| revision.number);
        let first = succeeded(revision(1, "z", Cause::Start));
        let second = succeeded(revision(2, "a", Cause::Commit));
        let third = finished(&[failed()], revision(3, "b", Cause::Commit));
        // It has no canary, and so another hash.
        let back = Revision { rollback_of: Some(2), ..revision(4, "a without", Cause::AutomaticRollback) };
        let back = succeeded(back);
        let mut history = vec![back, third, second, first];
        assert_eq!(number(&history), Some(1));
        // Git goes back as well.
        history.insert(0, succeeded(revision(5, "a", Cause::Commit)));
        assert_eq!(number(&history), Some(1));
        history.insert(0, succeeded(revision(6, "c", Cause::Commit)));
        assert_eq!(number(&history), Some(5));
    }

    #[test]
    fn revision_of_an_older_release_was_not_reached() {
        let mut stored = serde_json::to_value(revision(1, "a", Cause::Start)).unwrap();
        assert_eq!(stored.get("wasReached"), None);
        stored["outcome"] = serde_json::json!("succeeded");
        let mut revision: Revision = serde_json::from_value(stored).unwrap();
        assert!(revision.has_been_reached() && !revision.was_reached);
        revision.finish(&failed(), &BTreeMap::new(), Timestamp(9));
        let stored = serde_json::to_value(&revision).unwrap();
        assert_eq!(serde_json::from_value::<Revision>(stored).unwrap(), revision);
        assert!(revision.was_reached);
    }
}
