//! Why an object could not be read or written. No error contains a key, a password or a signature.

use driftless_trust::CaFileError;
use reqwest::StatusCode;

/// Why an object could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Credentials are missing or cannot be read.
    #[error("{0}")]
    Credentials(String),
    /// The authorities of the configuration cannot be read.
    #[error(transparent)]
    CaFile(#[from] CaFileError),
    /// The URL cannot be used.
    #[error("`{0}` is no URL")]
    Url(String),
    /// The HTTP client cannot be made.
    #[error("could not create a client: {0}")]
    Client(String),
    /// The server does not answer.
    #[error("the server does not answer: {0}")]
    Unreachable(String),
    /// The server answers with an error.
    #[error("the server answered {status}: {message}")]
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// Its words.
        message: String,
    },
    /// The answer is not that of such a server.
    #[error("the server's answer cannot be read: {0}")]
    Foreign(String),
    /// The answer is larger than what is read.
    #[error("the answer has more than {0} KiB")]
    TooLarge(usize),
}

impl Error {
    /// Whether the key or password may not do this. Amazon S3 says so too of an object that is missing, to a key that may not list.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { status: StatusCode::FORBIDDEN, .. })
    }

    /// Whether it stays until somebody does something.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Credentials(_) | Self::CaFile(_) | Self::Url(_) | Self::Foreign(_) | Self::TooLarge(_) => {
                true
            }
            Self::Refused { status, .. } => {
                status.is_client_error() || *status == StatusCode::INSUFFICIENT_STORAGE
            }
            Self::Client(_) | Self::Unreachable(_) => false,
        }
    }
}
