//! The place of a secret value.

use std::path::PathBuf;

/// A secret value, or where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The file that contains the value.
    File(PathBuf),
    /// The environment variable that contains the value.
    Environment(String),
    /// The value itself, if it is not secret, such as a user name.
    Plain(String),
}
