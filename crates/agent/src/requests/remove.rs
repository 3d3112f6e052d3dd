//! Requests to remove an application that has left Git.

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::Removal;
use driftless_store::Suspension;

use super::handler::RequestHandler;
use crate::request::{Answer, RequestError};

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Removes the containers and networks of an application that Git does not have any more, and on request its
    /// volumes. A pin and a suspension end.
    pub(super) fn remove(&mut self, removal: Removal) -> Result<Answer, RequestError> {
        let name = self.context.name();
        if self.revisions.lost().is_some() {
            return Err(RequestError::Refused(format!(
                "the state directory was lost, so it is not known what belongs to {name}: run `driftless recover` first"
            )));
        }
        if !self.desired.may_be_removed() {
            let rendered = self.desired.rendered();
            return Err(RequestError::Refused(format!(
                "{name} is in Git (folder `{}` of the repository {}), so it would be created again: remove it there first",
                rendered.spec.path, rendered.repository
            )));
        }
        if self.desired.rendered().policy.suspended {
            return Err(RequestError::Refused(format!(
                "{name} is suspended in the agent's configuration: remove `suspend` there first"
            )));
        }
        let mut record = self.record.get().clone();
        record.removal = Some(removal);
        self.context.store().clear_pin(name)?;
        self.context.store().set_suspended(name, Suspension::Active)?;
        self.accept(record)?;
        let message = match removal {
            Removal::KeepVolumes => "containers and networks are removed, volumes are kept",
            Removal::WithVolumes => "containers, networks and volumes are removed",
        };
        self.event("RemovalRequested", name.as_str(), message);
        Ok(Answer::Accepted)
    }
}
