//! Errors of `driftless notify`.

use crate::cli::error::CommandError;

/// The name is that of no receiver.
#[derive(Debug, thiserror::Error)]
#[error("there is no receiver `{name}` of notifications{}", .similar.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
pub(super) struct NoSuchReceiver {
    name: String,
    similar: Option<String>,
    known: Vec<String>,
}

impl NoSuchReceiver {
    /// An error about a name, with the names that there are.
    pub(super) fn new(name: &str, known: Vec<String>) -> Self {
        let similar = driftless_yaml::closest(name, known.iter().map(String::as_str)).map(str::to_owned);
        Self { name: name.to_owned(), similar, known }
    }
}

impl CommandError for NoSuchReceiver {
    fn help(&self) -> Option<String> {
        Some(match self.known.as_slice() {
            [] => "no receiver is configured: see `notifications` in docs/notifications.md".to_owned(),
            known => format!("the receivers are {}", known.join(", ")),
        })
    }
}
