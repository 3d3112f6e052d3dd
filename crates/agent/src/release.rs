//! The release of everything: an agent that was asked to stop managing follows no repository and knows no application.

use driftless_model::{AppName, Timestamp};
use driftless_store::Store;

use crate::{error::chain, problems::Problems};

/// The subject of the problem that says why the agent manages nothing.
pub const RELEASED: &str = "released";

/// The subject of the problem that says that a release, or the end of one, waits for the next start of the agent.
pub const PENDING_RELEASE: &str = "release";

/// Whether a user has released everything.
pub(crate) enum Release {
    No,
    /// At this time.
    Released(Timestamp),
    /// The database does not say, for this reason. Nothing is managed, because nothing may be.
    Unknown(String),
}

impl Release {
    pub(crate) fn of(store: &Store) -> Self {
        match store.released() {
            Ok(None) => Self::No,
            Ok(Some(at)) => Self::Released(at),
            Err(error) => Self::Unknown(chain(&error)),
        }
    }

    /// If everything is released: forgets what was managed, says so, and returns true.
    pub(crate) fn begin(self, store: &Store, problems: &Problems) -> bool {
        let why = match self {
            Self::No => return false,
            Self::Released(at) => {
                // It is tried again at the next start. Until then, without a repository, nothing is changed either.
                if let Err(error) = store.forget_everything() {
                    tracing::warn!(error = chain(&error), "could not forget the released applications");
                }
                format!(
                    "everything was released at {at}, so this agent manages nothing; `driftless release --undo` manages \
                     again what Git says"
                )
            }
            Self::Unknown(error) => format!(
                "the database does not say whether everything was released, so this agent manages nothing: {error}; check \
                 the state directory, then restart the agent"
            ),
        };
        tracing::warn!("{why}");
        problems.set(RELEASED, Some(why));
        true
    }
}

/// Sentences about the applications whose containers write to the state directory.
#[must_use]
pub fn written_folders(store: &Store) -> Vec<String> {
    let known = store.known_applications().unwrap_or_else(|error| {
        tracing::warn!(
            error = chain(&error),
            "could not read the applications that write to the state directory"
        );
        Vec::new()
    });
    known.iter().filter_map(|known| written_folder(store, &known.app)).collect()
}

/// The sentence about an application whose containers write to the state directory. Docker Compose would start its services on other
/// folders, which are empty.
pub(crate) fn written_folder(store: &Store, app: &AppName) -> Option<String> {
    let folder = store.written_folder(app)?;
    Some(format!(
        "{app}: its containers write to {}, and `docker compose up` in a clone would not: docs/adoption.md#going-back-to-docker-compose",
        folder.display()
    ))
}

/// Why the agent has to start again: a release, or the end of one, is stored, and the running agent has not begun with it.
pub(crate) fn pending_release(store: &Store, problems: &Problems) -> Option<String> {
    let is_released = problems.list().iter().any(|problem| problem.subject == RELEASED);
    match (Release::of(store), is_released) {
        (Release::Released(at), false) => Some(format!(
            "everything was released at {at}, and the agent manages it until it can start again: correct the configuration, \
             or end the release with `driftless release --undo`"
        )),
        (Release::No, true) => Some(
            "the release was ended, and the agent manages nothing until it can start again: correct the configuration"
                .to_owned(),
        ),
        (Release::No, false) | (Release::Released(_), true) | (Release::Unknown(_), _) => None,
    }
}
