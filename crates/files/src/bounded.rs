//! A bound on how many files and folders one task lists: a few Git objects can describe a tree without end, since a
//! tree may name the same subtree any number of times.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{Entry, Files, ReadError};

/// Files of which at most so many entries are listed, over all folders, each as often as it is listed.
#[derive(Debug)]
pub struct Bounded<'a> {
    files: &'a dyn Files,
    listed: AtomicUsize,
    limit: usize,
}

/// In bytes: a link with a longer target counts as more than one entry.
const BYTES_OF_ENTRY: usize = 64;

impl<'a> Bounded<'a> {
    pub fn new(files: &'a dyn Files, limit: usize) -> Self {
        Self { files, listed: AtomicUsize::new(0), limit }
    }
}

impl Files for Bounded<'_> {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        self.files.entry(path)
    }

    /// An error once the bound is reached, also for the folders that are listed later.
    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        let too_many = || ReadError::TooMany { path: folder.to_owned(), limit: self.limit };
        if self.listed.load(Ordering::Relaxed) > self.limit {
            return Err(too_many());
        }
        let entries = self.files.list(folder)?;
        // An empty folder counts as well.
        let listed = self.listed.fetch_add(entries.len().max(1), Ordering::Relaxed) + entries.len().max(1);
        if listed > self.limit { Err(too_many()) } else { Ok(entries) }
    }

    /// Links that lead nowhere are in no list, and one object can be the target of many: each counts by its length.
    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        let links = self.files.links(folder)?;
        let size: usize = links.values().map(|target| 1 + target.len() / BYTES_OF_ENTRY).sum();
        if self.listed.fetch_add(size, Ordering::Relaxed) + size > self.limit {
            return Err(ReadError::TooMany { path: folder.to_owned(), limit: self.limit });
        }
        Ok(links)
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        self.files.ignored(folder)
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        self.files.read(path, limit)
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files.id(path)
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files.similar(path)
    }

    fn is_encrypted(&self, path: &str) -> bool {
        self.files.is_encrypted(path)
    }
}
