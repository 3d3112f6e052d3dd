//! Whether an open database still lies in its state directory. `SQLite` keeps removed files open: writes to them succeed, and are lost
//! with the process.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::state_dir::StateDir;

/// The state directory and the database of this process, as they were when it opened them.
#[derive(Debug)]
pub(crate) struct OpenPaths {
    directory: (PathBuf, FileId),
    database: (PathBuf, FileId),
}

/// A device and an inode. Another file cannot get them as long as the process has this one, or a file in it, open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl OpenPaths {
    /// The paths of a database that is open.
    pub(crate) fn of(state: &StateDir) -> io::Result<Self> {
        let (directory, database) = (state.path().to_owned(), state.database());
        let ids = (file_id(&directory)?, file_id(&database)?);
        Ok(Self { directory: (directory, ids.0), database: (database, ids.1) })
    }

    /// The state directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory.0
    }

    /// A sentence, if the directory was removed or replaced, or the database replaced. A database that was only removed counts as there:
    /// its backup takes up the next change.
    pub(crate) fn change(&self) -> Option<String> {
        let (directory, noted) = &self.directory;
        let changed = match file_id(directory) {
            Ok(found) if found == *noted => {
                let (database, noted) = &self.database;
                let is_other = file_id(database).is_ok_and(|found| found != *noted);
                is_other.then(|| format!("the database {} was replaced", database.display()))
            }
            Ok(_) => Some(format!("the state directory {} was replaced", directory.display())),
            Err(error) if is_missing(&error) => {
                Some(format!("the state directory {} was removed", directory.display()))
            }
            // A failing disk fails the write itself.
            Err(_) => None,
        };
        changed.map(|changed| {
            format!(
                "{changed} while the agent runs, so nothing can be stored: put it back, or restart the agent and then run `driftless recover`"
            )
        })
    }
}

fn file_id(path: &Path) -> io::Result<FileId> {
    let metadata = fs::metadata(path)?;
    Ok(FileId { device: metadata.dev(), inode: metadata.ino() })
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
