//! The settings of an application that are in force, and where they are written.

use driftless_docker::Docker;
use driftless_git::CommitSource;

use super::handler::RequestHandler;
use crate::request::Answer;

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// The settings at the newest commit. An application that no commit has any more has none.
    pub(super) fn settings(&self) -> Answer {
        let (name, mask) = (self.context.name(), self.context.mask());
        let settings = self.desired.rendered().settings.as_ref();
        Answer::Settings(settings.map(|settings| settings.effective_settings(name, mask)).unwrap_or_default())
    }
}
