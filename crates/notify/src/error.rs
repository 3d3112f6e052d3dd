//! Errors of sending. None contains a URL or a secret.

use driftless_trust::CaFileError;

/// The extent of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// For the moment: the same message may be accepted later.
    TryAgain,
    /// The content of the message: the same message with another text may be accepted.
    Content,
    /// This message: another one may be accepted.
    Message,
    /// All messages, until a user changes something, such as a wrong token.
    All,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A secret could not be read.
    #[error("{0}")]
    Secret(String),
    /// A template is wrong.
    #[error("the template of `{part}` is wrong: {reason}")]
    Template {
        /// `title` or `body`.
        part: &'static str,
        /// The line and what is wrong there.
        reason: String,
    },
    /// The secret URL, token or address cannot be used.
    #[error("{0}")]
    Address(String),
    /// A file of certificates could not be used.
    #[error("could not use the certificate authorities in {path}: {reason}")]
    Certificates {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// A file of certificates could not be read.
    #[error("could not use the certificate authorities: {0}")]
    CaFile(#[from] CaFileError),
    /// The service did not answer.
    #[error("{host} is unreachable: {reason}")]
    Unreachable {
        /// The host.
        host: String,
        /// The innermost cause.
        reason: String,
    },
    /// The service refused the message.
    #[error("{host} answers {status}: {message}")]
    Refused {
        /// The host.
        host: String,
        /// The HTTP or SMTP status.
        status: u16,
        /// The service's own words.
        message: String,
        /// The extent of the refusal.
        refusal: Refusal,
    },
}

impl Error {
    /// Whether the service refused what the message says, so that another text may be accepted.
    pub(crate) fn is_about_content(&self) -> bool {
        matches!(self, Self::Refused { refusal: Refusal::Content, .. })
    }

    /// Whether the service refused this message, and may accept another one.
    pub fn is_about_message(&self) -> bool {
        matches!(self, Self::Refused { refusal: Refusal::Content | Refusal::Message, .. })
    }

    /// Whether the same message may be accepted later without a change by a user.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { refusal, .. } => *refusal == Refusal::TryAgain,
            Self::Secret(_)
            | Self::Template { .. }
            | Self::Address(_)
            | Self::Certificates { .. }
            | Self::CaFile(_) => false,
        }
    }
}
