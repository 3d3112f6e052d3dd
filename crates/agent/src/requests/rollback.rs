//! Requests to go back to an older revision, which is then pinned.

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::{Pin, Revision, is_same_version, older_success};

use super::handler::{RequestHandler, suspended_by_settings};
use crate::request::{Answer, RequestError, Rollback};

/// A shorter text is a revision's number, not the beginning of a commit's id.
const SHORTEST_COMMIT: usize = 7;

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Pins the application to an older revision.
    pub(super) fn roll_back(&mut self, rollback: &Rollback) -> Result<Answer, RequestError> {
        let Rollback { to, reason, until } = rollback;
        let name = self.context.name();
        let revision = self.rollback_target(to.as_deref())?;
        let note = self.suspension_note()?;
        let newest = self.desired.commit().id.clone();
        let pin = Pin {
            revision: revision.number,
            commit: revision.commit.id.clone(),
            reason: reason.clone(),
            at: self.context.now(),
            until: *until,
            skip: Some(newest).filter(|commit| !commit.is_empty()),
            skip_stack: self.desired.rendered().hashes.as_ref().map(|hashes| hashes.stack.clone()),
            actor: Some(self.actor.clone()),
        };
        self.context.store().set_pin(name, &pin)?;
        self.publisher.publish_request(self.context);
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let message = format!("to revision {} ({}){why}", revision.number, revision.commit.short());
        self.event("RolledBack", name.as_str(), &message);
        Ok(Answer::Pinned { pin, note })
    }

    /// Why a pin changes nothing yet, if the application is suspended. The pin outlasts a suspension by settings only.
    pub(super) fn suspension_note(&self) -> Result<Option<String>, RequestError> {
        let name = self.context.name();
        if self.context.store().suspended(name)? {
            return Ok(Some(format!(
                "{name} is suspended, so nothing is changed; `driftless resume {name}` ends that and the pin, so roll back again right after it"
            )));
        }
        let is_suspended_by_settings = self.desired.rendered().policy.suspended;
        Ok(is_suspended_by_settings.then(|| suspended_by_settings(name)))
    }

    /// The revision that a rollback goes back to.
    pub(super) fn rollback_target(&self, to: Option<&str>) -> Result<Revision, RequestError> {
        self.refuse_during_removal()?;
        let name = self.context.name();
        let history = self.context.store().revisions(name)?;
        let found = match to {
            Some(to) => find_revision(&history, to),
            None => older_success(&history),
        };
        let Some(revision) = found else {
            return Err(RequestError::Refused(match to {
                Some(to) => format!("{name} has no revision `{to}`; `driftless history {name}` lists them"),
                None => format!("{name} has no older revision that succeeded"),
            }));
        };
        if revision.is_removal() {
            return Err(RequestError::Refused(format!(
                "revision {} of {name} removed the application, so nothing goes back to it; `driftless history {name}` lists the others",
                revision.number
            )));
        }
        let is_pinned = self.context.store().pin(name)?.is_some();
        let current = history.first();
        let is_current = current.is_some_and(|current| is_same_version(&history, revision, current));
        // A pin to what a restored backup has ends the wait for Git.
        if is_current && !is_pinned && !self.revisions.awaits_fetch(self.desired) {
            let number = revision.number;
            return Err(RequestError::Refused(format!(
                "{name} is at that state already (revision {number})"
            )));
        }
        let Some(stack) = self.context.store().stack(name, revision.number)? else {
            return Err(RequestError::Refused(format!(
                "revision {} of {name} cannot be read, because it was encrypted with another key; revert the commit in Git instead",
                revision.number
            )));
        };
        let violations = self.desired.rendered().admission.violations(&stack);
        if let Some(violation) = violations.first() {
            let others = match violations.len() {
                1 => String::new(),
                count => format!(" (and {} more)", count - 1),
            };
            return Err(RequestError::Refused(format!(
                "revision {} of {name} violates the policy of today: {} {}{others}; allow it with `policy.{}` in the agent's configuration, or go back to another revision",
                revision.number, violation.object, violation.message, violation.rule
            )));
        }
        Ok(revision.clone())
    }

    /// Refuses a pin that would have no effect: a removal that a user has requested counts more, and takes the pin with it.
    fn refuse_during_removal(&self) -> Result<(), RequestError> {
        if self.record.get().removal.is_none() || !self.desired.may_be_removed() {
            return Ok(());
        }
        let name = self.context.name();
        Err(RequestError::Refused(format!(
            "{name} is being removed, so it cannot be pinned: stop the removal with `driftless suspend {name}`, then restore {name} in Git"
        )))
    }
}

/// Finds a revision by its number or by the beginning of its commit's id. Of several revisions of one commit, the
/// newest that succeeded is found first, and a removal last.
fn find_revision<'a>(history: &'a [Revision], text: &str) -> Option<&'a Revision> {
    if text.len() < SHORTEST_COMMIT {
        let number = text.parse::<u64>().ok()?;
        return history.iter().find(|revision| revision.number == number);
    }
    let of_commit = || history.iter().filter(|revision| revision.commit.id.as_str().starts_with(text));
    let kept = || of_commit().find(|revision| !revision.is_removal());
    of_commit().find(|revision| revision.is_way_back()).or_else(kept).or_else(|| of_commit().next())
}
