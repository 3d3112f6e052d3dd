//! The reasons why nobody could be logged in.

use driftless_trust::CaFileError;

/// The reason why a log-in failed. No text contains a code, a token or a secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not read the client secret of `oidc`: {0}")]
    Secret(String),
    #[error(transparent)]
    CaFile(#[from] CaFileError),
    #[error("could not use the certificates of {path}: {reason}")]
    Certificates { path: String, reason: String },
    #[error("could not set up the connection to the provider")]
    Setup(#[source] reqwest::Error),
    /// The provider cannot be reached now.
    #[error("could not {doing}: {host} is unreachable: {reason}")]
    Unreachable { doing: &'static str, host: String, reason: String },
    /// The provider answered with an error, whose text is its own.
    #[error("could not {doing}: the provider answers {status}: {message}")]
    Refused { doing: &'static str, status: u16, message: String },
    #[error("could not {doing}: the answer of the provider cannot be read: {reason}")]
    Malformed { doing: &'static str, reason: String },
    #[error("the provider at {configured} calls itself {found}: set `oidc.issuer` to that name")]
    OtherIssuer { configured: String, found: String },
    #[error("the provider names the address {0}, which has no TLS")]
    Unsafe(String),
    /// The provider sent the browser back with an error, whose text is its own.
    #[error("the provider says: {0}")]
    Denied(String),
    #[error("the answer does not belong to this log-in: log in again")]
    OtherAttempt,
    #[error("the identity token of the provider is not valid: {0}")]
    Token(String),
    #[error(
        "the identity of the provider has no usable claim `{claim}` (it has {found}): `oidc.userClaim` names another one"
    )]
    NoName { claim: String, found: String },
    #[error("the provider does not say that it has verified the e-mail address (claim `email_verified`)")]
    UnverifiedEmail,
}

impl Error {
    /// Whether the provider or the connection to it is at fault, and not the person.
    pub fn is_of_provider(&self) -> bool {
        !matches!(self, Self::Denied(_) | Self::OtherAttempt | Self::UnverifiedEmail)
    }
}
