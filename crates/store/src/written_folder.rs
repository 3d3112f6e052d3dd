//! Folders of the state directory that containers write to. Another tool that starts the same services does not use them.

use std::path::PathBuf;

use driftless_model::{AppName, Workload};

use crate::store::Store;

impl Store {
    /// The folder of an application in the state directory, if containers of its newest revision write there. `None` also if that
    /// revision cannot be read. The path of a database in memory begins at the state directory.
    pub fn written_folder(&self, app: &AppName) -> Option<PathBuf> {
        let (_, stack) = self.current_stack(app).ok()??;
        let mut containers = stack.workloads.values().flat_map(Workload::containers);
        let is_written = containers.any(|container| {
            container.mounts.iter().any(|mount| !mount.read_only && mount.app_folder().is_some())
        });
        let state = self.paths.as_ref().map(|paths| paths.directory().to_owned()).unwrap_or_default();
        is_written.then(|| state.join("applications").join(app.as_str()))
    }
}
