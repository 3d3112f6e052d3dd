//! The applications of a report: all, or those that options select.

use std::collections::BTreeSet;

use super::error::Error;

/// Selects applications by name and folder.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Selection {
    /// All names if empty.
    pub(in crate::cli) apps: Vec<String>,
    /// Folder of the repository. All folders if `None`.
    pub(in crate::cli) path: Option<String>,
}

impl Selection {
    /// Whether an application is selected by its name.
    pub(in crate::cli) fn names(&self, name: &str) -> bool {
        self.apps.is_empty() || self.apps.iter().any(|app| app == name)
    }

    /// Whether an application is selected, by its name and folder.
    pub(in crate::cli) fn includes(&self, name: &str, folder: &str) -> bool {
        let is_inside = self.path.as_ref().is_none_or(|path| {
            let path = path.trim_matches('/').trim_start_matches("./");
            let below = folder.strip_prefix(path);
            path.is_empty()
                || path == "."
                || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        self.names(name) && is_inside
    }

    /// Checks that every selected name exists.
    pub(in crate::cli) fn check<'n>(&self, names: impl Iterator<Item = &'n str>) -> Result<(), Error> {
        let names: BTreeSet<&str> = names.collect();
        match self.apps.iter().find(|app| !names.contains(app.as_str())) {
            Some(unknown) => Err(Error::NoSuchApplication(unknown.clone())),
            None => Ok(()),
        }
    }
}
