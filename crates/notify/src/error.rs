//! Errors of sending. None contains a URL or a secret.

use driftless_trust::CaFileError;

/// Refusals of the connection and of the login by a mail server (RFC 5321, RFC 4954): they are the same for each message and
/// each recipient.
pub(crate) const REFUSES_ALL: [u16; 7] = [421, 432, 454, 530, 534, 535, 538];

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
        /// The same message may be accepted later.
        is_temporary: bool,
    },
}

impl Error {
    /// Whether the service refused what the message says, so that another text may be accepted.
    pub(crate) fn is_about_content(&self) -> bool {
        matches!(self, Self::Refused { status: 400 | 413 | 422, .. })
    }

    /// Whether the service refused this message, and may accept another one. Of HTTP, all statuses from 500 on are temporary;
    /// a mail server has its refusals of a text and of a recipient there.
    pub fn is_about_message(&self) -> bool {
        let Self::Refused { status, is_temporary: false, .. } = self else { return false };
        self.is_about_content() || (*status >= 500 && !REFUSES_ALL.contains(status))
    }

    /// Whether the same message may be accepted later without a change by a user.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { is_temporary, .. } => *is_temporary,
            Self::Secret(_)
            | Self::Template { .. }
            | Self::Address(_)
            | Self::Certificates { .. }
            | Self::CaFile(_) => false,
        }
    }
}
