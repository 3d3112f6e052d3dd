//! Paths inside a folder that containers write to. No symbolic link made by a container leads out of the folder.
//!
//! A container can replace a folder by a link at any time, even between a check and a use. So each step of a walk keeps
//! the folder open (by its descriptor, through `/proc/self/fd`), asks the kernel for its real path, and goes on only if
//! that is the expected one.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

/// The mode of a folder that containers of any user read.
pub(super) const OPEN_FOLDER: u32 = 0o755;

/// Why a path is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    #[error("the path leads out of its folder")]
    Outside,
    #[error("there is a symbolic link or a moved folder at {0}")]
    Astray(PathBuf),
    #[error("{at} is in the way, {what} that is not in Git or was changed: move it to another place")]
    InTheWay { what: &'static str, at: PathBuf },
    #[error("could not {doing} it")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// The parts of a relative path with `/`. `..`, absolute paths and empty parts are errors. `.` is the folder itself.
pub(super) fn parts(path: &str) -> Result<Vec<&str>, PathError> {
    if path == "." || path.is_empty() {
        return Ok(Vec::new());
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let is_plain = |part: &&str| !part.is_empty() && *part != "." && *part != ".." && !part.contains('\0');
    if parts.iter().all(is_plain) { Ok(parts) } else { Err(PathError::Outside) }
}

/// An open folder. Paths made from it stay in this folder, even if its name is replaced by a link.
#[derive(Debug)]
pub(super) struct Folder {
    handle: File,
    real: PathBuf,
}

impl Folder {
    /// Opens the folder of a walk's start, which containers cannot replace.
    pub(super) fn open(path: &Path) -> Result<Self, PathError> {
        let io = |source| PathError::Io { doing: "open the folder of", source };
        let real = path.canonicalize().map_err(io)?;
        Ok(Self { handle: File::open(&real).map_err(io)?, real })
    }

    /// The path of an entry. Use it without following a link at its end.
    pub(super) fn entry(&self, name: &str) -> PathBuf {
        self.by_descriptor().join(name)
    }

    /// Opens the folder `name`, if there is one.
    pub(super) fn child(&self, name: &str) -> Result<Option<Self>, PathError> {
        // With the `.`, everything but a folder is an error. A named pipe would block.
        let handle = match File::open(self.entry(name).join(".")) {
            Ok(handle) => handle,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A dangling link.
                let dangling = fs::symlink_metadata(self.entry(name)).is_ok();
                return if dangling { Err(PathError::Astray(self.real.join(name))) } else { Ok(None) };
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(PathError::InTheWay { what: "a file", at: self.real.join(name) });
            }
            Err(source) => return Err(PathError::Io { doing: "open a folder on the way to", source }),
        };
        let child = Self { handle, real: self.real.join(name) };
        let found = fs::read_link(child.by_descriptor())
            .map_err(|source| PathError::Io { doing: "find the folder of", source })?;
        if found == child.real { Ok(Some(child)) } else { Err(PathError::Astray(child.real)) }
    }

    /// Opens the folder at the end of a path. Missing folders are created.
    pub(super) fn descend(self, parts: &[&str]) -> Result<Self, PathError> {
        parts.iter().try_fold(self, |folder, name| match folder.child(name)? {
            Some(child) => Ok(child),
            None => folder.make(name),
        })
    }

    /// Opens the folder at the end of a path, if there is one.
    pub(super) fn find(self, parts: &[&str]) -> Result<Option<Self>, PathError> {
        let mut folder = self;
        for name in parts {
            match folder.child(name)? {
                Some(child) => folder = child,
                None => return Ok(None),
            }
        }
        Ok(Some(folder))
    }

    /// Removes the folder `name` if it is empty. It is an error if it is not.
    pub(super) fn remove_empty(&self, name: &str) -> Result<(), PathError> {
        fs::remove_dir(self.entry(name)).map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty => {
                PathError::InTheWay { what: "a folder with something", at: self.real.join(name) }
            }
            _ => PathError::Io { doing: "remove the folder in the place of", source },
        })
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn make(&self, name: &str) -> Result<Self, PathError> {
        let failed = |source| PathError::Io { doing: "create a folder on the way to", source };
        let is_new = match DirBuilder::new().mode(0o700).create(self.entry(name)) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed(error)),
        };
        let child = self.child(name)?.ok_or_else(|| PathError::Astray(self.real.join(name)))?;
        if is_new {
            // Not at creation: the umask of the process would restrict it. By its handle: a container may have put a link there.
            child.handle.set_permissions(Permissions::from_mode(OPEN_FOLDER)).map_err(failed)?;
        }
        Ok(child)
    }

    fn by_descriptor(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }
}
