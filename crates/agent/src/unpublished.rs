//! The applications that the agent has known since before its start or has found in Git, and has not published yet.
//!
//! They exist, although nothing is known of them before their first round. Without this list, a client that asks for one just
//! after the start would read that there is no such application, and one that asks for all would take the list of the published
//! ones for complete.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use driftless_model::AppName;

/// The applications that are not published yet, with their repositories. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Unpublished(Arc<Mutex<BTreeMap<AppName, String>>>);

impl Unpublished {
    /// Adds an application of a repository.
    pub fn add(&self, app: AppName, repository: String) {
        self.lock().insert(app, repository);
    }

    /// Notes that an application is published from now on, or does not exist any more.
    pub(crate) fn remove(&self, app: &AppName) {
        self.lock().remove(app);
    }

    /// The repository of an application that is not published yet.
    pub(crate) fn repository_of(&self, app: &AppName) -> Option<String> {
        self.lock().get(app).cloned()
    }

    /// The applications that are not published yet, by name.
    pub(crate) fn names(&self) -> Vec<AppName> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AppName, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
