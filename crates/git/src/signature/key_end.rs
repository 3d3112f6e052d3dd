//! When keys can sign no more.

use driftless_model::Timestamp;

/// The end of an OpenPGP key that may sign commits or tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEnd {
    /// Of the primary key.
    pub fingerprint: String,
    /// When the key was made.
    pub created: Timestamp,
    /// From this time on neither the key nor a subkey of it can sign.
    pub ends: Timestamp,
}
