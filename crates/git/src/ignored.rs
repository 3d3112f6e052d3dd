//! The files of a work tree that Git ignores. They are in no commit, so an agent never sees them.

use std::{
    collections::BTreeSet,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use driftless_model::{Finding, Location};
use gix::{
    bstr::ByteSlice,
    index::entry::Mode,
    worktree::{Index, Stack, stack::state::ignore::Source},
};

/// The folder of Git in a work tree.
pub(super) const GIT: &str = ".git";

/// Decides which paths of one folder Git ignores: `.gitignore`, `.git/info/exclude` and the user's own patterns. A file
/// that is in the index is not ignored.
pub(super) struct Ignored {
    /// The folder, from the root of the work tree.
    prefix: PathBuf,
    state: Mutex<IgnoreLookup>,
}

struct IgnoreLookup {
    repository: gix::Repository,
    index: Index,
    stack: Stack,
    /// The ignored files and folders that exist and were asked for.
    asked: BTreeSet<String>,
}

impl Ignored {
    /// For a folder without links. `None`: it is in no work tree, or Git ignores the folder itself, so it is read as a
    /// folder of its own.
    pub(super) fn open(root: &Path) -> io::Result<Option<Self>> {
        let repository = match gix::ThreadSafeRepository::discover(root) {
            Ok(repository) => repository.to_thread_local(),
            Err(_) if !is_in_work_tree(root) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let Some(work_tree) = repository.workdir() else { return Ok(None) };
        let work_tree = work_tree.canonicalize()?;
        let Ok(prefix) = root.strip_prefix(&work_tree) else { return Ok(None) };
        let prefix = prefix.to_owned();
        let index = repository.index_or_empty().map_err(|error| failed(&error))?;
        let source = Source::WorktreeThenIdMappingIfNotSkipped;
        let stack = repository.excludes(&index, None, source).map_err(|error| failed(&error))?.detach();
        let state = Mutex::new(IgnoreLookup { repository, index, stack, asked: BTreeSet::new() });
        let ignored = Self { prefix, state };
        let whole = ignored.prefix.clone();
        if !whole.as_os_str().is_empty() && ignored.with(|state| state.is_ignored(&whole, true))? {
            return Ok(None);
        }
        Ok(Some(ignored))
    }

    /// Whether Git ignores a path, which is from the folder.
    pub(super) fn contains(&self, path: &Path, is_folder: bool) -> io::Result<bool> {
        if path.as_os_str().is_empty() {
            return Ok(false);
        }
        self.with(|state| state.is_ignored(&self.prefix.join(path), is_folder))
    }

    /// Records that an ignored path was asked for.
    pub(super) fn record(&self, path: &str) {
        self.with(|state| state.asked.insert(path.to_owned()));
    }

    /// A warning for each ignored file or folder that was asked for.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let warning = |path: &String| {
            let message = "is ignored by Git, so it is not read: the agent has only what is in Git";
            let help = "commit it, encrypted if it has secrets, or leave it on the host and give it to the agent by `valuesFrom` \
                        (docs/secrets.md#values-that-lie-on-the-host-valuesfrom); `validate` takes `--host-file`";
            Finding::warning(Location::file(path), "", message).help(help)
        };
        self.with(|state| state.asked.iter().map(warning).collect())
    }

    fn with<T>(&self, run: impl FnOnce(&mut IgnoreLookup) -> T) -> T {
        run(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl IgnoreLookup {
    /// `path` is from the root of the work tree.
    fn is_ignored(&mut self, path: &Path, is_folder: bool) -> io::Result<bool> {
        // A path that is not valid UTF-8 is never read.
        let Some(text) = path.to_str() else { return Ok(false) };
        let name = text.as_bytes().as_bstr();
        let is_tracked =
            self.index.entry_by_path(name).is_some() || is_folder && self.index.path_is_directory(name);
        if is_tracked {
            return Ok(false);
        }
        let mode = if is_folder { Mode::DIR } else { Mode::FILE };
        let at = self.stack.at_path(path, Some(mode), &self.repository.objects)?;
        Ok(at.is_excluded())
    }
}

impl fmt::Debug for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ignored").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Whether Git takes some folder above for a work tree: its `.git` is a file, or has a `HEAD`.
fn is_in_work_tree(root: &Path) -> bool {
    let is_repository = |git: PathBuf| git.is_file() || git.join("HEAD").exists();
    root.ancestors().any(|folder| is_repository(folder.join(GIT)))
}

fn failed(error: &impl fmt::Display) -> io::Error {
    io::Error::other(format!("could not read which files Git ignores: {error}"))
}
