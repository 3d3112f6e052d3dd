//! The files that a manifest may read: those of one commit, and nothing else.

use std::{collections::BTreeMap, fmt, ops::Bound, sync::Arc};

use super::similar::similar_path;

/// A read-only view of one commit's files. Paths are relative to the repository's root, with `/`, without
/// `.` and `..`; the root itself is the empty path. Symbolic links inside the repository are followed by the
/// implementation; links out of it do not exist.
pub trait Files: Send + Sync + fmt::Debug {
    /// The file or folder at a path, if there is one.
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError>;

    /// The names directly inside a folder, sorted. Empty when there is none.
    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError>;

    /// The symbolic links directly inside a folder, by name, with what they say: also those that lead nowhere.
    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError>;

    /// The bytes of a file. A file larger than `limit` is an error.
    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError>;

    /// An id of a file's content and mode, with links followed. `None`: there is no file, or the id is not known without
    /// reading it.
    fn id(&self, path: &str) -> Result<Option<String>, ReadError>;

    /// The files and folders directly inside a folder that a checkout has and that do not exist here, because Git ignores them; with the
    /// rest of their paths if they are in a folder that has nothing else. Only files on a disk know it, before they are in a commit.
    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError>;

    /// The path that people take for this missing one, or for the folder of it that is missing, because it differs in letter case or
    /// Unicode form only.
    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        let exists = |path: &str| Ok(self.entry(path)?.is_some());
        similar_path(path, exists, |folder| {
            Ok(self.list(folder)?.into_iter().map(|(name, _)| name).collect())
        })
    }

    /// Whether a file that was read before is encrypted in the repository. Its content may not reach a disk in clear,
    /// nor a message.
    fn is_encrypted(&self, path: &str) -> bool;
}

/// The type of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file.
    File {
        /// In bytes.
        size: u64,
        /// Whether its mode has an executable bit.
        executable: bool,
    },
    /// A folder.
    Folder,
    /// The commit of another repository.
    Submodule,
}

/// Why a path cannot be read. Each message names the path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Nothing is at the path.
    #[error("`{0}` does not exist in the repository")]
    Missing(String),
    /// The file exceeds the limit of the caller.
    #[error("`{path}` has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// From the repository's root.
        path: String,
        /// In bytes.
        size: u64,
        /// In bytes.
        limit: u64,
    },
    /// A file was expected.
    #[error("`{0}` is a folder")]
    Folder(String),
    /// The bound on listed files and folders is reached.
    #[error("with `{path}` more than {limit} files and folders are read")]
    TooMany {
        /// From the repository's root.
        path: String,
        /// The entries that one task may list.
        limit: usize,
    },
    /// Git holds only a pointer to the file.
    #[error(
        "`{path}` is a Git LFS pointer, not the file itself; store the file in Git (`git lfs migrate export`)"
    )]
    LfsPointer {
        /// From the repository's root.
        path: String,
    },
    /// The file is encrypted with git-crypt, which needs a checkout to decrypt.
    #[error(
        "`{path}` is encrypted with git-crypt, which the agent cannot decrypt; encrypt it with SOPS or age (docs/secrets.md)"
    )]
    GitCrypt {
        /// From the repository's root.
        path: String,
    },
    /// A symbolic link cannot be followed.
    #[error(
        "`{0}` is or passes a symbolic link that leads out of the repository or to itself, and is not followed"
    )]
    Astray(String),
    /// The path is in a submodule, and submodules are off.
    #[error(
        "`{path}` is in the submodule `{module}`, which is not read; set `submodules: true` for the repository"
    )]
    Submodule {
        /// From the repository's root.
        path: String,
        /// The path of the submodule.
        module: String,
    },
    /// A file of the host cannot be read.
    #[error("`{path}`: {message}")]
    Host {
        /// From the repository's root.
        path: String,
        /// The cause, with the source.
        message: String,
    },
    /// The file is encrypted and cannot be decrypted.
    #[error("`{path}` cannot be decrypted: {message}")]
    Encrypted {
        /// From the repository's root.
        path: String,
        /// The cause, without any value.
        message: String,
    },
    /// The mirror of the repository is damaged. The manifest is not the cause.
    #[error("could not read `{path}` from the repository: {message}")]
    Damaged {
        /// From the repository's root.
        path: String,
        /// The cause.
        message: String,
    },
    /// Nobody waits for the result of the reader any more.
    #[error("the reading of `{0}` was interrupted")]
    Interrupted(String),
}

/// Files in memory, by path.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(pub BTreeMap<String, Arc<[u8]>>);

impl MemoryFiles {
    /// Text files, by path.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(files.into_iter().map(|(path, text)| (path.to_owned(), Arc::from(text.as_bytes()))).collect())
    }

    /// The files whose paths start with `prefix`.
    fn below(&self, prefix: &str) -> impl Iterator<Item = (&String, &Arc<[u8]>)> {
        let from = self.0.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(move |(path, _)| path.starts_with(prefix))
    }
}

impl Files for MemoryFiles {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        if let Some(bytes) = self.0.get(path) {
            return Ok(Some(Entry::File { size: bytes.len() as u64, executable: false }));
        }
        let prefix = format!("{path}/");
        let is_folder = path.is_empty() || self.below(&prefix).next().is_some();
        Ok(is_folder.then_some(Entry::Folder))
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut found = BTreeMap::new();
        for (path, bytes) in self.below(&prefix) {
            let inside = &path[prefix.len()..];
            match inside.split_once('/') {
                Some((name, _)) => found.insert(name.to_owned(), Entry::Folder),
                None => found
                    .insert(inside.to_owned(), Entry::File { size: bytes.len() as u64, executable: false }),
            };
        }
        Ok(found.into_iter().collect())
    }

    fn links(&self, _: &str) -> Result<BTreeMap<String, String>, ReadError> {
        Ok(BTreeMap::new())
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        match self.entry(path)? {
            None | Some(Entry::Submodule) => Err(ReadError::Missing(path.to_owned())),
            Some(Entry::Folder) => Err(ReadError::Folder(path.to_owned())),
            Some(Entry::File { size, .. }) if size > limit => {
                Err(ReadError::TooLarge { path: path.to_owned(), size, limit })
            }
            Some(Entry::File { .. }) => Ok(self.0[path].clone()),
        }
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        Ok(self.0.get(path).map(|it| String::from_utf8_lossy(it).into_owned()))
    }

    fn ignored(&self, _: &str) -> Result<Vec<String>, ReadError> {
        Ok(Vec::new())
    }

    fn is_encrypted(&self, _: &str) -> bool {
        false
    }
}
