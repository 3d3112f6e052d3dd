//! The bare mirror on disk: its lock, the cleanup at the start, and the replacement of a damaged mirror by a new clone.
//!
//! The mirror is a cache: only the commits kept for a rollback matter. So nothing is repaired in place.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use driftless_model::Timestamp;
use gix::ObjectId;

use super::error::{Cause, Problem, disk_cause};

/// A folder `<mirror>`, with `<mirror>.lock`, `<mirror>.new` and `<mirror>.old` next to it.
pub(super) struct Mirror {
    path: PathBuf,
    /// Why a reader suspects damage. The next fetch verifies the mirror.
    suspicion: Mutex<Option<String>>,
    /// Commits that are being read, which repacking must keep.
    in_use: Mutex<Vec<(ObjectId, Weak<()>)>>,
    /// A repository of a user, which is only read. It may have any configuration.
    is_foreign: bool,
}

/// The right to change a mirror. The kernel releases it even after `kill -9`. Readers do not need it.
pub(super) struct Lock {
    file: File,
}

/// The mirror is damaged, or its disk is full. The message is one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Damage {
    pub(super) cause: Cause,
    pub(super) message: String,
}

/// The memory limit for one object or the table of all objects: a hostile pack of 2 MB can contain an object of 2 GB.
const ALLOCATION_LIMIT: &str = "gitoxide.objects.allocLimit=268435456";

/// More threads need more buffers, and the containers of the host matter more than the speed of a clone.
const THREADS: &str = "pack.threads=2";

/// The age from which on a lock file is removed. Writes hold one for milliseconds.
const OLD_LOCK: Duration = Duration::from_mins(1);

/// The pause after which a lock that another process has is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Number of such pauses.
const LOCK_TRIES: u32 = 15;

impl Damage {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { cause: Cause::RepositoryDamaged, message: message.into() }
    }

    /// After an error of the file system.
    pub(super) fn of_disk(doing: &str, error: &io::Error) -> Self {
        let cause = disk_cause(error).unwrap_or(Cause::RepositoryDamaged);
        Self { cause, message: format!("could not {doing}: {error}") }
    }
}

/// Locks a file. A process that was killed while it started a program has left a copy of its descriptor, which keeps the lock
/// until that program runs.
#[expect(clippy::disallowed_methods, reason = "a mirror is opened outside of async code")]
fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            result => return result,
        }
    }
    file.try_lock()
}

impl Mirror {
    /// Locks the mirror for this process and removes the leftovers of a killed one.
    pub(super) fn open(path: PathBuf) -> Result<(Self, Lock), Problem> {
        let failed = |error: io::Error| {
            let message = format!("could not prepare the mirror {}: {error}", path.display());
            Problem::new(disk_cause(&error).unwrap_or(Cause::DiskFailed), message)
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let name = with_suffix(&path, ".lock");
        let lock = File::options().create(true).truncate(false).write(true).open(name).map_err(failed)?;
        match try_lock(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("the mirror {} is in use by another process", path.display());
                return Err(Problem::new(Cause::MirrorInUse, message));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        remove(&with_suffix(&path, ".new")).map_err(failed)?;
        let old = with_suffix(&path, ".old");
        if path.exists() {
            remove(&old).map_err(failed)?;
        } else if old.exists() {
            // The process was killed between the two renames of a swap.
            fs::rename(&old, &path).map_err(failed)?;
        }
        if path.is_dir() {
            remove_stale_files(&path).map_err(failed)?;
        } else {
            // A file in its place is damage like any other: the repository is cloned again.
            remove(&path).map_err(failed)?;
        }
        let mirror =
            Self { path, suspicion: Mutex::new(None), in_use: Mutex::new(Vec::new()), is_foreign: false };
        Ok((mirror, Lock { file: lock }))
    }

    /// Removes a mirror with the files next to it. False: another process uses it, or the folder is no bare repository, and it stays.
    pub(super) fn remove(path: &Path) -> io::Result<bool> {
        let name = with_suffix(path, ".lock");
        let file = File::options().write(true).open(&name)?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let _lock = Lock { file };
        if !is_bare_or_missing(path) {
            return Ok(false);
        }
        for end in ["", ".new", ".old", ".ssh-helper", ".ssh-helper.new", ".lock"] {
            remove(&with_suffix(path, end))?;
        }
        Ok(true)
    }

    /// A repository of a user, only for reading: nothing is locked or removed.
    pub(super) fn reading(path: PathBuf) -> Self {
        Self { path, suspicion: Mutex::new(None), in_use: Mutex::new(Vec::new()), is_foreign: true }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new handle, which sees all current packs; `None` before the first clone. Handles must not be kept across fetches:
    /// gix fails once there are 32 more packs than at the beginning.
    pub(super) fn repository(&self) -> Result<Option<gix::Repository>, Damage> {
        if !self.path.exists() {
            return Ok(None);
        }
        if self.is_foreign {
            let opened = open_options().strict_config(false).open(&self.path);
            return opened
                .map(|it| Some(it.to_thread_local()))
                .map_err(|error| damage("open the repository", &error));
        }
        open(&self.path).map(Some)
    }

    /// Removes lock files that a write left behind, such as one that panicked or was stopped by a full disk. The caller
    /// has the right to change the mirror, so none of this process is in use. A young one may belong to a `git` command
    /// of a user.
    pub(super) fn remove_old_locks(&self, now: Timestamp) {
        if let Err(error) = remove_old_locks(&self.path, now) {
            // The write that follows reports the lock.
            tracing::warn!(mirror = %self.path.display(), %error, "could not remove old lock files");
        }
    }

    /// Creates an empty repository next to the mirror.
    pub(super) fn create_replacement(&self, hash: gix::hash::Kind) -> Result<gix::Repository, Damage> {
        let path = with_suffix(&self.path, ".new");
        remove(&path).map_err(|error| Damage::of_disk(&format!("clear {}", path.display()), &error))?;
        let options = gix::create::Options { object_hash: Some(hash), ..gix::create::Options::default() };
        gix::ThreadSafeRepository::init_opts(&path, gix::create::Kind::Bare, options, open_options())
            .map_err(|error| damage("create a repository", &error))?;
        open(&path)
    }

    /// A new handle of the repository from [`Self::create_replacement`].
    pub(super) fn replacement(&self) -> Result<gix::Repository, Damage> {
        open(&with_suffix(&self.path, ".new"))
    }

    pub(super) fn discard_replacement(&self) {
        // The rest is removed at the next start or clone.
        let _ = remove(&with_suffix(&self.path, ".new"));
    }

    /// Replaces the mirror by the repository next to it. Between the two renames there is no mirror for some microseconds;
    /// readers try again.
    pub(super) fn swap(&self) -> io::Result<()> {
        let (new, old) = (with_suffix(&self.path, ".new"), with_suffix(&self.path, ".old"));
        remove(&old)?;
        if self.path.exists() {
            fs::rename(&self.path, &old)?;
        }
        if let Err(error) = fs::rename(&new, &self.path) {
            // The old mirror is better than none. If this fails too, the next start does it.
            let _ = fs::rename(&old, &self.path);
            return Err(error);
        }
        remove(&old)
    }

    /// Records that something could not be read.
    pub(super) fn suspect(&self, what: String) {
        self.suspicion.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }

    pub(super) fn take_suspicion(&self) -> Option<String> {
        self.suspicion.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The commit is in use until the token is dropped.
    pub(super) fn use_commit(&self, commit: ObjectId) -> Arc<()> {
        let token = Arc::new(());
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|(_, token)| token.strong_count() > 0);
        in_use.push((commit, Arc::downgrade(&token)));
        token
    }

    pub(super) fn commits_in_use(&self) -> Vec<ObjectId> {
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.iter().filter(|(_, token)| token.strong_count() > 0).map(|(commit, _)| *commit).collect()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a program that is being started has a copy of it. If this fails, the copy is
        // closed a moment later.
        let _ = self.file.unlock();
    }
}

/// Turns an error of gix into [`Damage`].
pub(super) fn damage(doing: &str, error: &gix::Error) -> Damage {
    let cause = super::remote_client::disk_cause_of(error).unwrap_or(Cause::RepositoryDamaged);
    Damage { cause, message: format!("could not {doing}: {}", super::remote_client::causes(error)) }
}

fn open(path: &Path) -> Result<gix::Repository, Damage> {
    let opened = open_options().open(path).map_err(|error| damage("open the mirror", &error))?;
    // gix only needs it when it writes a pack, which then fails each time.
    if !path.join("objects").join("pack").is_dir() {
        return Err(Damage::new("the folder of the packs is missing"));
    }
    Ok(opened.to_thread_local())
}

/// Isolated: no configuration of the user or the system, no environment variables, no programs.
fn open_options() -> gix::open::Options {
    gix::open::Options::isolated()
        .open_path_as_is(true)
        .strict_config(true)
        .config_overrides([ALLOCATION_LIMIT, THREADS])
}

/// Removes locks and incomplete files. They are stale: only this process writes here, and it holds the lock.
fn remove_stale_files(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_stale = name.ends_with(".lock") || name.ends_with(".keep") || name.starts_with(".tmp");
        if entry.file_type()?.is_dir() {
            remove_stale_files(&entry.path())?;
        } else if is_stale {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_old_locks(folder: &Path, now: Timestamp) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_old_locks(&entry.path(), now)?;
        } else if entry.file_name().to_string_lossy().ends_with(".lock") {
            let modified = entry.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let modified = Timestamp(u64::try_from(modified.as_millis()).unwrap_or_default());
            if now.since(modified) >= OLD_LOCK {
                tracing::warn!(file = %entry.path().display(), "removing an old lock file of the mirror");
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

/// Whether a path has a bare repository, or nothing. A link leads to a place that is not the agent's own.
fn is_bare_or_missing(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(found) => {
            let has_folders = ["objects", "refs"].iter().all(|name| path.join(name).is_dir());
            found.is_dir() && has_folders && path.join("HEAD").is_file()
        }
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// The folder with the mirrors of a repository's submodules.
pub(super) fn modules_folder(mirror: &Path) -> PathBuf {
    with_suffix(mirror, ".modules")
}

/// Removes a folder, or a file in its place.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if !found.is_dir() => fs::remove_file(path),
        Ok(_) => fs::remove_dir_all(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_locked_for_one_process() {
        let dir = tempfile::tempdir().unwrap();
        let (_reader, first) = Mirror::open(dir.path().join("m")).unwrap();
        assert!(Mirror::open(dir.path().join("m")).is_err_and(|it| it.cause == Cause::MirrorInUse));
        drop(first);
        assert!(Mirror::open(dir.path().join("m")).is_ok());
    }

    #[test]
    fn file_in_place_of_the_mirror_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let names = ["m", "m.new", "m.old"];
        for name in names {
            fs::write(dir.path().join(name), "no folder").unwrap();
        }
        let (mirror, _lock) = Mirror::open(path.clone()).unwrap();
        assert!(names.iter().all(|name| !dir.path().join(name).exists()));
        assert!(mirror.repository().is_ok_and(|it| it.is_none()));
        // The same while the agent runs.
        fs::write(&path, "no folder").unwrap();
        mirror.create_replacement(gix::hash::Kind::Sha1).unwrap();
        mirror.swap().unwrap();
        assert!(mirror.repository().is_ok_and(|it| it.is_some()));
    }

    #[test]
    fn interrupted_swap_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        fs::create_dir_all(dir.path().join("m.old")).unwrap();
        fs::write(dir.path().join("m.old/HEAD"), "ref: refs/heads/main").unwrap();
        fs::create_dir_all(dir.path().join("m.new/objects")).unwrap();
        let (mirror, _lock) = Mirror::open(path.clone()).unwrap();
        assert!(path.join("HEAD").exists() && !dir.path().join("m.new").exists());
        assert_eq!(mirror.path(), path);
    }
}
