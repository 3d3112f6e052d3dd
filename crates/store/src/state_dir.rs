//! The state directory: its creation, its lock, and the paths in it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::error::Error;

/// The file with the second copy of the essential tables.
pub(crate) const BACKUP: &str = "driftless-backup.db";

/// The file that undoes a change of the backup that did not end.
pub(crate) const BACKUP_JOURNAL: &str = "driftless-backup.db-journal";

/// The file with the key of the database, unless another file is configured.
const DATABASE_KEY: &str = "database.key";

/// The file with the private key of the agent, for fleets.
pub const FLEET_KEY: &str = "fleet.key";

/// A state directory that is locked until this is dropped.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// The kernel releases the lock when the process ends.
    lock: File,
}

impl Drop for StateDir {
    /// A program that is being started has a copy of the descriptor until it runs. Without the explicit unlock, that copy
    /// would keep the lock.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

impl StateDir {
    /// Creates the directory (mode 0700) if it is missing, and locks it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] for a second agent, [`Error::NotOurs`] for a directory with other files that is open to other
    /// users.
    pub fn lock(path: &Path) -> Result<Self, Error> {
        let fail = |doing, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| Error::Directory { doing, path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(fail("create the state directory", path))?;
        let is_ours = close_to_others(path).map_err(fail("close to others the state directory", path))?;
        if !is_ours {
            return Err(Error::NotOurs { directory: path.to_owned() });
        }
        let path = path.canonicalize().map_err(fail("find the state directory", path))?;
        let file = path.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&file)
            .map_err(fail("open the lock", &file))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::InUse { directory: path, pid: holder(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(fail("lock", &file)(source)),
        }
        // The number is for people only, so a full disk does not keep the agent from starting.
        if let Err(error) = write_holder(&mut lock) {
            tracing::warn!(file = %file.display(), %error, "could not write the process id into the lock");
        }
        Ok(Self { path, lock })
    }

    /// The directory itself, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bare mirrors of repositories.
    pub fn mirrors(&self) -> PathBuf {
        self.path.join("mirrors")
    }

    /// The mounted files. See [`super::ContentDir`].
    pub fn contents(&self) -> PathBuf {
        self.path.join("contents")
    }

    /// The applications' own writable folders.
    pub fn applications(&self) -> PathBuf {
        self.path.join("applications")
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("driftless.db")
    }

    /// The key that encrypts rows of the database, unless another file is configured.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.path.join(DATABASE_KEY)
    }

    /// The private key of the agent, for fleets.
    pub(crate) fn fleet_key_file(&self) -> PathBuf {
        self.path.join(FLEET_KEY)
    }

    /// The second copy of pins, suspensions, revisions and the agent's id.
    pub fn backup(&self) -> PathBuf {
        self.path.join(BACKUP)
    }
}

/// The files of a directory that was prepared for a restore. A disk of its own has the folder.
const PREPARED: [&str; 3] = ["lost+found", DATABASE_KEY, FLEET_KEY];

/// Closes an empty directory, one that has no other files than [`PREPARED`], or one that an agent has used before, to other users.
/// False: it is another directory, such as `/tmp` by mistake, and stays as it is.
fn close_to_others(path: &Path) -> io::Result<bool> {
    let for_others = fs::metadata(path)?.permissions().mode() & 0o077;
    if for_others == 0 {
        return Ok(true);
    }
    let mut names = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name()));
    let is_new = names.all(|name| name.is_ok_and(|name| PREPARED.iter().any(|known| name == *known)));
    if !is_new && !path.join("agent-id").is_file() {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    Ok(true)
}

fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    let known = lock.take(32).read_to_string(&mut text).is_ok() && !text.trim().is_empty();
    if known { text.trim().to_owned() } else { "unknown".to_owned() }
}

fn write_holder(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}
