//! Recipients that did not get a message that others got.

use crate::error::Error;

/// A recipient of a message that did not get it, while others did.
#[derive(Debug, thiserror::Error)]
#[error("{recipient} did not get the message, others did: {error}")]
pub struct RefusedRecipient {
    pub(crate) recipient: String,
    pub(crate) error: Error,
}
