//! Errors that keep the agent from starting.

use driftless_git as git;

pub(crate) use driftless_model::error_chain as chain;

/// Why the agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state directory or the database cannot be used.
    #[error("could not open the state directory")]
    State(#[source] driftless_store::Error),
    /// The mirror of a repository cannot be opened.
    #[error("the repository `{name}` cannot be used")]
    Source {
        name: String,
        #[source]
        source: git::Error,
    },
    /// A file with a key for encrypted files cannot be used.
    #[error("could not load the keys of `sops.keyFiles`")]
    Keys(#[source] driftless_sops::KeyError),
    /// The template of a receiver of notifications is wrong.
    #[error("could not use the receiver `{name}` of `notifications`")]
    Receiver {
        name: String,
        #[source]
        source: driftless_notify::Error,
    },
    /// The engine does not answer, or its address is invalid.
    #[error("could not ask Docker")]
    Docker(#[source] driftless_docker::Error),
}
