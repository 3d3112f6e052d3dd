//! The release of everything: an agent that was asked to stop managing follows no repository and knows no application.

use driftless_model::{AppName, Timestamp, label};
use driftless_store::Store;

use crate::{error::chain, mounts::mounts_secrets, problems::Problems};

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

/// Sentences about that which the applications need an agent for although nothing manages them.
#[must_use]
pub fn release_notes(store: &Store) -> Vec<String> {
    let known = store.known_applications().unwrap_or_else(|error| {
        tracing::warn!(error = chain(&error), "could not read the applications that need the agent");
        Vec::new()
    });
    known.iter().flat_map(|known| notes_of(store, &known.app)).collect()
}

/// The same about one application.
pub(crate) fn notes_of(store: &Store, app: &AppName) -> impl Iterator<Item = String> {
    let notes = [written_folder(store, app), lost_secrets(store, app), swarm_services(store, app)];
    notes.into_iter().flatten()
}

/// The sentence about an application whose containers write to the state directory. Docker Compose would start its services on other
/// folders, which are empty.
fn written_folder(store: &Store, app: &AppName) -> Option<String> {
    let folder = store.written_folder(app)?;
    Some(format!(
        "{app}: its containers write to {}, and `docker compose up` in a clone would not: docs/adoption.md#going-back-to-docker-compose",
        folder.display()
    ))
}

/// The sentence about services that mount secrets: nobody writes these again into the memory of a host that was restarted.
fn lost_secrets(store: &Store, app: &AppName) -> Option<String> {
    let (_, stack) = store.current_stack(app).ok()??;
    let names = stack
        .workloads
        .iter()
        .filter(|(_, workload)| mounts_secrets(workload))
        .map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    let list = names.join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "{app}: {list}: mounted secrets are in the memory of the host, so after its next restart these services do not start \
             until the agent manages them again"
        )
    })
}

/// The sentence about an application of a Swarm, of which other agents may manage the services.
fn swarm_services(store: &Store, app: &AppName) -> Option<String> {
    store.record(app).ok()?.swarm?;
    Some(format!(
        "{app}: agents on other managers of the Swarm, if there are any, go on managing its services: ask each of them too; \
         `docker service ls --filter label={}` lists the services",
        label::AGENT
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
