//! Paths inside a folder that containers write to, and the walk to them that no planted link leads astray.
//!
//! A container may swap a folder for a symbolic link at any moment, even between a check and a use. So every
//! step of a walk holds on to the folder it has opened (by its descriptor, through `/proc/self/fd`), asks the
//! kernel where that folder really is, and goes on only if it is where it should be.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::{fd::AsRawFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

/// A path is refused for this.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the path leads out of its folder")]
    Outside,
    #[error("a symbolic link or a moved folder stands in the way at {0}")]
    Astray(PathBuf),
    #[error("could not {doing} it")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// The parts of a relative path with `/`: no `..`, nothing absolute, nothing empty but the whole. `.` is the
/// folder itself.
pub(super) fn parts(path: &str) -> Result<Vec<&str>, Refusal> {
    if path == "." || path.is_empty() {
        return Ok(Vec::new());
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let is_plain = |it: &&str| !it.is_empty() && *it != "." && *it != ".." && !it.contains('\0');
    if parts.iter().all(is_plain) { Ok(parts) } else { Err(Refusal::Outside) }
}

/// An open folder. Paths made from it reach into this very folder, wherever its name leads by then.
#[derive(Debug)]
pub(super) struct Folder {
    handle: File,
    real: PathBuf,
}

impl Folder {
    /// The folder to walk from, which containers cannot swap.
    pub(super) fn open(path: &Path) -> Result<Self, Refusal> {
        let io = |source| Refusal::Io { doing: "open the folder of", source };
        let real = path.canonicalize().map_err(io)?;
        Ok(Self { handle: File::open(&real).map_err(io)?, real })
    }

    /// A file or folder directly in it, to be used without following a link at its end.
    pub(super) fn entry(&self, name: &str) -> PathBuf {
        self.by_descriptor().join(name)
    }

    /// The folder `name` in it, if there is one.
    pub(super) fn child(&self, name: &str) -> Result<Option<Self>, Refusal> {
        // The `.` makes it fail on anything but a folder; a named pipe would block us.
        let handle = match File::open(self.entry(name).join(".")) {
            Ok(handle) => handle,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A link that leads nowhere is still in the way.
                let dangling = fs::symlink_metadata(self.entry(name)).is_ok();
                return if dangling { Err(Refusal::Astray(self.real.join(name))) } else { Ok(None) };
            }
            Err(source) => return Err(Refusal::Io { doing: "open a folder on the way to", source }),
        };
        let child = Self { handle, real: self.real.join(name) };
        let found = fs::read_link(child.by_descriptor())
            .map_err(|source| Refusal::Io { doing: "ask where the folder is of", source })?;
        if found == child.real { Ok(Some(child)) } else { Err(Refusal::Astray(child.real)) }
    }

    /// The folder at the end of the parts, made where it is missing.
    pub(super) fn descend(self, parts: &[&str]) -> Result<Self, Refusal> {
        parts.iter().try_fold(self, |folder, name| match folder.child(name)? {
            Some(child) => Ok(child),
            None => folder.make(name),
        })
    }

    /// The folder at the end of the parts, if it is there.
    pub(super) fn find(self, parts: &[&str]) -> Result<Option<Self>, Refusal> {
        let mut folder = self;
        for name in parts {
            match folder.child(name)? {
                Some(child) => folder = child,
                None => return Ok(None),
            }
        }
        Ok(Some(folder))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn make(&self, name: &str) -> Result<Self, Refusal> {
        match DirBuilder::new().mode(0o755).create(self.entry(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Refusal::Io { doing: "create a folder on the way to", source: error })
            }
            Ok(()) | Err(_) => self.child(name)?.ok_or_else(|| Refusal::Astray(self.real.join(name))),
        }
    }

    fn by_descriptor(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }
}
