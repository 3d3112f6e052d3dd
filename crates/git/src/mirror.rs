//! The bare mirror on disk: who may use it, what is swept away at the start, and how a damaged one is replaced
//! by another beside it.
//!
//! The mirror is a cache: nothing in it is precious but the commits kept for a rollback. So nothing is ever
//! repaired in place. Knows no network and no meaning of references.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use gix::ObjectId;

/// A folder `<mirror>`, with `<mirror>.lock`, `<mirror>.new` and `<mirror>.old` beside it.
pub(super) struct Mirror {
    path: PathBuf,
    /// What a reader stumbled over. The next fetch looks into it.
    suspicion: Mutex<Option<String>>,
    /// Commits that somebody reads from now, which a collection must leave alone.
    in_use: Mutex<Vec<(ObjectId, Weak<()>)>>,
    /// Somebody else's, only to be read: it may be configured as they like, and need not be fit to be written.
    is_foreign: bool,
}

/// The right to change a mirror. The kernel takes it back even after `kill -9`. Readers need none.
pub(super) struct Lock {
    file: File,
}

/// The mirror is not as it should be. In one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Damage(pub(super) String);

/// One object, or the table of all objects, may take so many bytes of memory. A hostile pack of 2 MB can
/// hold an object of 2 GB.
const ALLOCATION_LIMIT: &str = "gitoxide.objects.allocLimit=268435456";

/// More threads need more buffers, and the host's work is more important than a clone's speed.
const THREADS: &str = "pack.threads=2";

impl Mirror {
    /// Takes the mirror for this process alone and clears away what a killed one left behind. The error is a
    /// sentence.
    pub(super) fn open(path: PathBuf) -> Result<(Self, Lock), String> {
        let failed = |error: io::Error| format!("could not prepare the mirror {}: {error}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let name = with_suffix(&path, ".lock");
        let lock = File::options().create(true).truncate(false).write(true).open(name).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!("the mirror {} is in use by another process", path.display()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        remove(&with_suffix(&path, ".new")).map_err(failed)?;
        let old = with_suffix(&path, ".old");
        if path.exists() {
            remove(&old).map_err(failed)?;
        } else if old.exists() {
            // We were killed between the two renames of a swap.
            fs::rename(&old, &path).map_err(failed)?;
        }
        if path.exists() {
            sweep(&path).map_err(failed)?;
        }
        let mirror =
            Self { path, suspicion: Mutex::new(None), in_use: Mutex::new(Vec::new()), is_foreign: false };
        Ok((mirror, Lock { file: lock }))
    }

    /// Somebody else's repository, only to be read: nothing is locked or cleared away.
    pub(super) fn reading(path: PathBuf) -> Self {
        Self { path, suspicion: Mutex::new(None), in_use: Mutex::new(Vec::new()), is_foreign: true }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A fresh handle, which sees all packs there are now; `None` before the first clone. Handles must not be
    /// kept across fetches: gix fails once there are 32 more packs than it began with.
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

    /// An empty repository beside the mirror.
    pub(super) fn create_beside(&self, hash: gix::hash::Kind) -> Result<gix::Repository, Damage> {
        let path = with_suffix(&self.path, ".new");
        remove(&path).map_err(|error| Damage(format!("could not clear {}: {error}", path.display())))?;
        let options = gix::create::Options { object_hash: Some(hash), ..gix::create::Options::default() };
        gix::ThreadSafeRepository::init_opts(&path, gix::create::Kind::Bare, options, open_options())
            .map_err(|error| damage("create a repository", &error))?;
        open(&path)
    }

    /// A fresh handle of what [`Self::create_beside`] made.
    pub(super) fn beside(&self) -> Result<gix::Repository, Damage> {
        open(&with_suffix(&self.path, ".new"))
    }

    pub(super) fn discard_beside(&self) {
        // What stays is swept away at the next start or clone.
        let _ = remove(&with_suffix(&self.path, ".new"));
    }

    /// Puts what was made beside in the mirror's place. Between the two renames there is no mirror, for some
    /// microseconds; whoever reads then tries again.
    pub(super) fn swap(&self) -> io::Result<()> {
        let (new, old) = (with_suffix(&self.path, ".new"), with_suffix(&self.path, ".old"));
        remove(&old)?;
        if self.path.exists() {
            fs::rename(&self.path, &old)?;
        }
        if let Err(error) = fs::rename(&new, &self.path) {
            // The old one is better than none. Should this fail too, the next start does it.
            let _ = fs::rename(&old, &self.path);
            return Err(error);
        }
        remove(&old)
    }

    /// Notes that something could not be read.
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
        // To close the file is not enough: a program that is being started right now has a copy of it. When
        // this fails, the copy goes away a moment later.
        let _ = self.file.unlock();
    }
}

/// Makes a [`Damage`] of gix's error.
pub(super) fn damage(doing: &str, error: &gix::Error) -> Damage {
    Damage(format!("could not {doing}: {}", super::wire::causes(error)))
}

fn open(path: &Path) -> Result<gix::Repository, Damage> {
    let opened = open_options().open(path).map_err(|error| damage("open the mirror", &error))?;
    // gix does without it until it writes a pack, which then fails each time.
    if !path.join("objects").join("pack").is_dir() {
        return Err(Damage("the folder of the packs is missing".to_owned()));
    }
    Ok(opened.to_thread_local())
}

/// Isolated: no configuration of the user or the system, no environment, no program is ever consulted.
fn open_options() -> gix::open::Options {
    gix::open::Options::isolated()
        .open_path_as_is(true)
        .strict_config(true)
        .config_overrides([ALLOCATION_LIMIT, THREADS])
}

/// Removes locks and half-written files. Only we write here and we just took the lock, so all are stale.
fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_stale = name.ends_with(".lock") || name.ends_with(".keep") || name.starts_with(".tmp");
        if entry.file_type()?.is_dir() {
            sweep(&entry.path())?;
        } else if is_stale {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
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
    fn only_one_process_has_a_mirror() {
        let dir = tempfile::tempdir().unwrap();
        let (_reader, first) = Mirror::open(dir.path().join("m")).unwrap();
        assert!(Mirror::open(dir.path().join("m")).is_err_and(|it| it.contains("in use")));
        drop(first);
        assert!(Mirror::open(dir.path().join("m")).is_ok());
    }

    #[test]
    fn a_swap_that_was_cut_short_is_undone() {
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
