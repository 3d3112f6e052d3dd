//! The files of a commit, decrypted as they are read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use driftless_files::{Entry, Files, ReadError};

use super::{Keys, decrypt};

/// Wraps [`Files`] and decrypts encrypted files. Plain files are passed on unchanged.
#[derive(Debug)]
pub struct DecryptedFiles {
    files: Arc<dyn Files>,
    keys: Arc<Keys>,
    /// Paths of the encrypted files that were read.
    encrypted: Mutex<BTreeSet<String>>,
}

impl DecryptedFiles {
    /// Reads from `files` and decrypts with `keys`.
    pub fn new(files: Arc<dyn Files>, keys: Arc<Keys>) -> Self {
        Self { files, keys, encrypted: Mutex::default() }
    }
}

impl Files for DecryptedFiles {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        self.files.entry(path)
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        self.files.list(folder)
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        self.files.links(folder)
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        self.files.ignored(folder)
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        let bytes = self.files.read(path, limit)?;
        let plain = decrypt(path, &bytes, &self.keys)
            .map_err(|error| ReadError::Encrypted { path: path.to_owned(), message: error.to_string() })?;
        let Some(plain) = plain else { return Ok(bytes) };
        if plain.len() as u64 > limit {
            return Err(ReadError::TooLarge { path: path.to_owned(), size: plain.len() as u64, limit });
        }
        self.encrypted.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        Ok(plain.into())
    }

    /// Ids change with the keys: a file that no key opened may be readable with others.
    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        let id = self.files.id(path)?;
        Ok(id.map(|id| if self.keys.is_empty() { id } else { format!("{id}+{}", self.keys.fingerprint()) }))
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files.similar(path)
    }

    fn is_encrypted(&self, path: &str) -> bool {
        self.encrypted.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }
}
