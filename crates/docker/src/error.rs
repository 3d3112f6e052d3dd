//! The error of every call, sorted by what the agent does next.

use std::time::Duration;

/// Why a call to the engine failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine is unreachable, does not answer in time, or has an internal error. The agent tries again later.
    #[error("could not {doing}")]
    Transient {
        doing: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The image could not be pulled. The agent backs off for this image alone.
    #[error("could not pull {image}: {message}")]
    Pull {
        image: String,
        message: String,
        /// The pause that the registry asked for, if it did.
        retry_after: Option<Duration>,
    },
    /// The image could not be built. The agent backs off for this image alone. The message ends with the last
    /// lines of the build's output, without secrets.
    #[error("could not build {image}: {message}")]
    Build { image: String, message: String },
    /// The engine will never accept the request as it is. The agent waits for a new commit.
    #[error("could not {doing}: {message}")]
    Rejected { doing: String, message: String },
    /// The engine's state is not the one that the plan was made for: a conflict, a name in use, an object that is
    /// gone. The agent observes again at once.
    #[error("could not {doing}: {message}")]
    Refused { doing: String, message: String },
}
