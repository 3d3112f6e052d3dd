//! An object, as lists name it.

use driftless_model::Timestamp;

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name without folders.
    pub name: String,
    /// Its version.
    pub tag: Option<String>,
    /// When it was written, by the clock of the server.
    pub modified: Option<Timestamp>,
}
