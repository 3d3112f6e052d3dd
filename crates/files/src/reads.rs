//! A record of the files that a rendering reads. A commit that changes none of them need not be rendered again.
//!
//! The record holds the answers that the rendering got: ids of files, types of paths, lists of folders. The same answers
//! give the same stack.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Entry, Files, ReadError};

/// The answers that one rendering got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    entries: BTreeMap<String, Option<Entry>>,
    folders: BTreeMap<String, Vec<(String, Entry)>>,
    links: BTreeMap<String, BTreeMap<String, String>>,
    similar: BTreeMap<String, Option<String>>,
    /// The ids of files.
    files: BTreeMap<String, String>,
    /// Some answer has no id, so the next commit always counts as changed.
    is_incomplete: bool,
}

/// Wraps [`Files`] and records what is read from them.
#[derive(Debug)]
pub struct Recorder<'a> {
    files: &'a dyn Files,
    reads: Mutex<Reads>,
}

impl Reads {
    /// Files whose path differs from another one in letter case only, each with that other one.
    pub fn collisions(&self) -> Vec<(&str, &str)> {
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        let mut found = Vec::new();
        for path in self.files.keys() {
            match first.get(&path.to_lowercase()) {
                Some(other) => found.push((path.as_str(), *other)),
                None => drop(first.insert(path.to_lowercase(), path)),
            }
        }
        found
    }

    /// Whether these files would give the same answers.
    pub fn hold_in(&self, files: &dyn Files) -> bool {
        !self.is_incomplete
            && self.files.iter().all(|(path, id)| files.id(path).is_ok_and(|it| it.as_ref() == Some(id)))
            && self.entries.iter().all(|(path, entry)| files.entry(path).as_ref() == Ok(entry))
            && self.folders.iter().all(|(path, list)| files.list(path).as_ref() == Ok(list))
            && self.links.iter().all(|(path, links)| files.links(path).as_ref() == Ok(links))
            && self.similar.iter().all(|(path, similar)| files.similar(path).as_ref() == Ok(similar))
    }
}

impl<'a> Recorder<'a> {
    /// Records reads from `files`.
    pub fn new(files: &'a dyn Files) -> Self {
        Self { files, reads: Mutex::default() }
    }

    /// The record.
    pub fn finish(self) -> Reads {
        self.reads.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut Reads)) {
        note(&mut self.reads.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Files for Recorder<'_> {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        let entry = self.files.entry(path);
        self.note(|it| match &entry {
            Ok(entry) => drop(it.entries.insert(path.to_owned(), *entry)),
            Err(_) => it.is_incomplete = true,
        });
        entry
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        let list = self.files.list(folder);
        self.note(|it| match &list {
            Ok(list) => drop(it.folders.insert(folder.to_owned(), list.clone())),
            Err(_) => it.is_incomplete = true,
        });
        list
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        let links = self.files.links(folder);
        self.note(|it| match &links {
            Ok(links) => drop(it.links.insert(folder.to_owned(), links.clone())),
            Err(_) => it.is_incomplete = true,
        });
        links
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        let id = self.files.id(path);
        self.note(|it| match id {
            Ok(Some(id)) => drop(it.files.insert(path.to_owned(), id)),
            // A missing file is an answer, too; it is recorded as a missing entry.
            Ok(None) if self.files.entry(path) == Ok(None) => drop(it.entries.insert(path.to_owned(), None)),
            Ok(None) | Err(_) => it.is_incomplete = true,
        });
        self.files.read(path, limit)
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files.id(path)
    }

    // Only commits are rendered again from what was read, and those have none.
    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        self.files.ignored(folder)
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        let similar = self.files.similar(path);
        self.note(|it| match &similar {
            Ok(similar) => drop(it.similar.insert(path.to_owned(), similar.clone())),
            Err(_) => it.is_incomplete = true,
        });
        similar
    }

    fn is_encrypted(&self, path: &str) -> bool {
        self.files.is_encrypted(path)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::MemoryFiles, *};

    #[test]
    fn paths_that_differ_in_case_only_are_found() {
        let files = MemoryFiles::new([("a/Dir/x", "1"), ("a/dir/X", "2"), ("a/dir/y", "3"), ("B", "")]);
        let recorder = Recorder::new(&files);
        for path in ["a/dir/X", "a/Dir/x", "a/dir/y", "B", "b"] {
            let _ = recorder.read(path, 9);
        }
        assert_eq!(recorder.finish().collisions(), [("a/dir/X", "a/Dir/x")]);
    }

    #[test]
    fn only_recorded_answers_count() {
        let before = [("a/x", "1"), ("a/y", "1"), ("b", "1")];
        let files = MemoryFiles::new(before);
        let recorder = Recorder::new(&files);
        assert!(recorder.read("a/x", 9).is_ok());
        assert!(recorder.read("none", 9).is_err());
        assert_eq!(recorder.entry("other"), Ok(None));
        assert_eq!(recorder.list("a").map(|it| it.len()), Ok(2));
        assert_eq!(recorder.similar("Other"), Ok(None));
        let reads = recorder.finish();

        assert!(reads.hold_in(&files));
        assert!(reads.hold_in(&MemoryFiles::new([("a/x", "1"), ("a/y", "2"), ("b", "2"), ("c", "1")])));
        for changed in [("a/x", "2"), ("none", ""), ("other", ""), ("a/z", ""), ("OTHER", "")] {
            let after = MemoryFiles::new(before.into_iter().chain([changed]));
            assert!(!reads.hold_in(&after), "{changed:?}");
        }
        assert!(!reads.hold_in(&MemoryFiles::new([("a/x", "1"), ("b", "1")])), "one is gone");
    }
}
