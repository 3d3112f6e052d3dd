//! The syncs and resumptions that users have requested, and that have not begun a revision yet.

use driftless_model::{Actor, Cause, CommitId, Timestamp};

use crate::{desired::Desired, revisions::target::TargetRevision};

/// The requests until the next revision begins.
#[derive(Default)]
pub(crate) struct UserRequests {
    sync: Option<RequestedSync>,
    /// The actor that ended the pin or suspension.
    resumed_by: Option<Actor>,
}

struct RequestedSync {
    /// The newest commit at the time of the request.
    commit: CommitId,
    at: Timestamp,
    actor: Actor,
}

impl UserRequests {
    /// Somebody has requested a sync at a time at which this commit was the newest one.
    pub(crate) fn note_sync(&mut self, commit: &CommitId, at: Timestamp, actor: &Actor) {
        self.sync = Some(RequestedSync { commit: commit.clone(), at, actor: actor.clone() });
    }

    /// Somebody has ended the pin or suspension.
    pub(crate) fn note_resume(&mut self, actor: &Actor) {
        self.resumed_by = Some(actor.clone());
    }

    /// Notes the commit that a requested sync has fetched. If that is no new one, a later commit is not the user's.
    pub(crate) fn note_fetch(&mut self, desired: &Desired) {
        let fetched_at = desired.repository().fetched_at;
        let is_fruitless = |request: &RequestedSync| {
            let is_same = request.commit == desired.commit().id;
            (is_same && fetched_at.is_some_and(|at| at > request.at))
                || desired.is_after_fetch_since(request.at)
        };
        self.sync = self.sync.take().filter(|request| !is_fruitless(request));
    }

    /// Whether a requested sync is under way.
    pub(crate) fn has_sync(&self) -> bool {
        self.sync.is_some()
    }

    /// The actor that asked for the revision that begins with this target, if there is one.
    pub(crate) fn actor_of(&self, target: &TargetRevision) -> Option<Actor> {
        match (&target.pin, &target.cause) {
            (Some(pin), _) => pin.actor.clone(),
            (None, Cause::Resume) => self.resumed_by.clone(),
            (None, Cause::User) => self.sync.as_ref().map(|request| request.actor.clone()),
            (
                None,
                Cause::Commit
                | Cause::Rollback
                | Cause::AutomaticRollback
                | Cause::Start
                | Cause::Configuration
                | Cause::Image
                | Cause::Removal,
            ) => None,
        }
    }
}
