//! By how many commits the followed reference is ahead of a pinned revision.

use driftless_git::CommitSource;
use driftless_model::{CommitId, Pin, PinStatus};

/// The number for the last pair of commits that was asked for.
#[derive(Default)]
pub(crate) struct CommitsBehind(Option<Counted>);

struct Counted {
    pinned: CommitId,
    newest: CommitId,
    /// `None`: the repository does not say.
    commits: Option<u64>,
}

impl CommitsBehind {
    /// Counts the commits from the pinned one to the newest, once for each pair of commits.
    pub(crate) async fn count<S: CommitSource>(&mut self, source: &S, pin: &Pin, newest: &CommitId) {
        if newest.is_empty() || self.of(pin, newest).is_some() {
            return;
        }
        let commits = source.ahead(&pin.commit, newest).await;
        self.0 = Some(Counted { pinned: pin.commit.clone(), newest: newest.clone(), commits });
    }

    /// The pin, for the status.
    pub(crate) fn status(&self, pin: &Pin, newest: &CommitId) -> PinStatus {
        PinStatus {
            revision: pin.revision,
            commit: pin.commit.clone(),
            reason: pin.reason.clone(),
            at: pin.at,
            until: pin.until,
            behind: self.of(pin, newest).and_then(|counted| counted.commits),
            actor: pin.actor.clone(),
        }
    }

    fn of(&self, pin: &Pin, newest: &CommitId) -> Option<&Counted> {
        self.0.as_ref().filter(|counted| counted.pinned == pin.commit && counted.newest == *newest)
    }
}
