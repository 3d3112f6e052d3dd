//! Requests to stop managing an application that has left Git.

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::Record;

use super::handler::RequestHandler;
use crate::{
    release::notes_of,
    request::{Answer, RequestError},
};

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Removes an application that Git does not have any more from the database. Its containers, networks and volumes stay
    /// as they are, with their labels, so that they are managed again if the application returns to Git.
    pub(super) fn forget(&mut self) -> Result<Answer, RequestError> {
        let name = self.context.name();
        self.refuse_unless_gone(&format!(
            "it would be managed again: remove it there first, with `prune: false`, or stop changes with `driftless suspend {name}`"
        ))?;
        // Of several applications, the last one would then be pruned.
        if !self.desired.is_gone() {
            return Err(RequestError::Refused(format!(
                "the removal of {name} waits for you, and `prune` is on: set `prune: false` first, or confirm it with `driftless remove {name}`"
            )));
        }
        let notes: Vec<String> = notes_of(self.context.store(), name).collect();
        self.context.store().forget_application(name)?;
        self.revisions.forget_current();
        *self.record.get_mut() = Record::default();
        self.event(
            "Forgotten",
            name.as_str(),
            "containers, networks and volumes stay and are not managed any more",
        );
        Ok(if notes.is_empty() { Answer::Accepted } else { Answer::Noted(notes.join("\n")) })
    }
}
