//! Why the agent cannot start, and how an error is written with its causes.

use driftless_git as git;

/// Why the agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state directory or the database cannot be used.
    #[error("could not open the state directory")]
    State(#[source] driftless_store::Error),
    /// The mirror of a repository cannot be opened.
    #[error("could not set up the repository `{name}`")]
    Source {
        name: String,
        #[source]
        source: git::Error,
    },
    /// The engine does not answer, or its address is invalid.
    #[error("could not reach Docker")]
    Docker(#[source] driftless_docker::Error),
}

/// An error with its causes in one line: `could not read a pin from the database: disk I/O error`.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}
