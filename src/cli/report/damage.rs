//! Files of a commit that note which of them the repository does not have.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use driftless_files::{Entry, Files, ReadError};

/// Files that note the first one that cannot be read because objects of the repository are missing or damaged.
///
/// A rendering takes that for an error of a manifest, as it cannot tell the two apart. The commit is not the cause.
#[derive(Debug)]
pub(in crate::cli) struct DamageRecorder<'a> {
    files: &'a dyn Files,
    damage: OnceLock<ReadError>,
}

impl<'a> DamageRecorder<'a> {
    pub(in crate::cli) fn new(files: &'a dyn Files) -> Self {
        Self { files, damage: OnceLock::new() }
    }

    /// The first such error.
    pub(in crate::cli) fn damage(&self) -> Option<&ReadError> {
        self.damage.get()
    }

    fn noted<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        if let Err(error) = &result
            && matches!(error, ReadError::Damaged { .. })
        {
            self.damage.get_or_init(|| error.clone());
        }
        result
    }
}

impl Files for DamageRecorder<'_> {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        self.noted(self.files.entry(path))
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        self.noted(self.files.list(folder))
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        self.noted(self.files.links(folder))
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        self.noted(self.files.read(path, limit))
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.noted(self.files.id(path))
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        self.noted(self.files.ignored(folder))
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.noted(self.files.similar(path))
    }

    fn is_encrypted(&self, path: &str) -> bool {
        self.files.is_encrypted(path)
    }
}
