//! Why the state directory cannot be used, and what a write survives.

use std::path::PathBuf;

use driftless_model::{AppName, ContentId};

/// Why the state directory cannot be used. Reads go on after a failed write.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has locked the state directory.
    #[error(
        "another agent (process {pid}) uses the state directory {directory}: stop it, or set another `stateDir`"
    )]
    InUse { directory: PathBuf, pid: String },
    /// The directory has other files in it, and other users may enter it.
    #[error(
        "the state directory {directory} contains other files and is open to other users: if they are the agent's, close it with `chmod 700`; if not, set `stateDir` to a directory of its own"
    )]
    NotOurs { directory: PathBuf },
    /// An operation on a file or directory failed.
    #[error("could not {doing} {path}")]
    Directory {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The disk is full, read-only or missing. Nothing was changed.
    #[error("could not write {what} to the database")]
    Write {
        what: &'static str,
        #[source]
        source: BoxError,
    },
    /// A table cannot be read.
    #[error("could not read {what} from the database")]
    Read {
        what: &'static str,
        #[source]
        source: BoxError,
    },
    /// A newer release has written the database.
    #[error(
        "the database in {path} has schema {found}, and this release knows {known}: install the newer release again, or restore a backup that this release wrote"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// The application has no revision of this number.
    #[error("there is no revision {number} of `{app}`")]
    NoSuchRevision { app: AppName, number: u64 },
    /// A mounted file is neither in the rendered contents nor on the disk.
    #[error("the mounted file {} is missing in the state directory; it will be rendered from Git again", id.short())]
    NoSuchContent { id: ContentId },
    /// A mounted secret is neither in the rendered contents nor in memory.
    #[error(
        "the mounted secret {} is not in memory any more, and its source has another value by now: put the former value back",
        id.short()
    )]
    NoSuchSecret { id: ContentId },
    /// The runtime directory is on a disk, and secrets are never written to a disk.
    #[error(
        "secrets are kept in memory only, and {path} is on a file system of type {kind}: set `runtimeDir` to a directory on a tmpfs, such as /run/driftless or /dev/shm/driftless"
    )]
    NotInMemory { path: PathBuf, kind: String },
    /// Another process has locked the runtime directory.
    #[error("another agent keeps its secrets in {directory}: set another `runtimeDir`")]
    RuntimeInUse { directory: PathBuf },
    /// Bind mounts of running containers stay at folders that are moved.
    #[error(
        "running containers use folders in {directory}, and would go on with those that are set aside: {applications}"
    )]
    FoldersInUse { directory: PathBuf, applications: String },
    /// Mounts go along with folders that are moved, and come back to the names of before.
    #[error(
        "file systems are mounted at {folders}, and the next boot would mount them over the restored files"
    )]
    FoldersMounted { folders: String },
    /// A path from the repository, or a link made by a container, leads out of the application's folder, or a file or folder that
    /// is not the agent's is in the way.
    #[error("{path} is not changed: {why}")]
    Unsafe { path: PathBuf, why: String },
}

/// An error of the database or of an encoding.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The failures that a write survives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Durability {
    /// The end of the process, but not a power failure.
    Process,
    /// A power failure: it is on the disk before the call returns.
    Power,
}
