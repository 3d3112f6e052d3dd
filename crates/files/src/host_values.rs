//! Variables for Compose files that lie on the host and not in Git.

use std::{fmt, sync::Arc};

/// The variables of one source on the host.
#[derive(Clone, PartialEq, Eq)]
pub struct HostValues {
    /// The source as findings name it, such as the path of a file.
    pub source: String,
    /// The variable that has the whole text as its value. `None`: the text is a dotenv file.
    pub name: Option<String>,
    /// The text of the source.
    pub text: Arc<str>,
    /// Whether other applications have the source, too. Then it cannot name a project.
    pub is_shared: bool,
    /// Whether the values are masked wherever they occur.
    pub is_secret: bool,
}

/// Without the text, which may be secret.
impl fmt::Debug for HostValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostValues").field("source", &self.source).finish_non_exhaustive()
    }
}
