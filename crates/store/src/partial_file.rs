//! New files that get their name when they are complete.
//!
//! Each one is written next to its final name, under a name of its own, and locked. So two writers of one name do not
//! destroy each other's files, and a file of a killed writer is known by its lock, which nobody holds.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use aws_lc_rs::rand;

/// It stands between the final name and the digits of the name of its own.
const MARK: &str = ".partial-";

/// The end of the name of a companion.
const COMPANION: &str = "-db";

/// The digits of a name of its own.
const DIGITS: usize = 16;

/// A file without its final name, which only its owner can read. It is removed at the end.
#[derive(Debug)]
pub(crate) struct PartialFile {
    path: PathBuf,
    file: File,
}

impl PartialFile {
    /// Creates a file that is to become `target`. Those that killed writers of this target made are removed.
    pub(crate) fn create(target: &Path) -> io::Result<Self> {
        remove_abandoned(target);
        loop {
            let mut random = [0; DIGITS / 2];
            rand::fill(&mut random).map_err(io::Error::other)?;
            let mut name = target.as_os_str().to_owned();
            name.push(format!("{MARK}{:016x}", u64::from_be_bytes(random)));
            let path = PathBuf::from(name);
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            let partial = Self { path, file };
            // Some network file systems have no locks. There, nothing is removed by another writer.
            let _ = partial.file.lock();
            // Before it was locked, another writer may have removed it as abandoned.
            if partial.path.exists() {
                return Ok(partial);
            }
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Creates an empty file of this one, which goes with it. Nobody holds a lock on it, so that a database can lock it on any file system.
    pub(crate) fn companion(&self) -> io::Result<Companion> {
        let path = companion_of(&self.path);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Companion { path, file })
    }

    /// Puts the file on the disk, and gives it its final name, which nobody else may have taken since.
    pub(crate) fn publish(self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        // A hard link, unlike a rename, does not replace a file that has appeared.
        match fs::hard_link(&self.path, target) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
        // The file system has no hard links, as that of a USB stick. The name is claimed first.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?;
        fs::rename(&self.path, target).inspect_err(|_| drop(fs::remove_file(target)))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A file that is needed while a partial file is written. It is removed at the end.
#[derive(Debug)]
pub(crate) struct Companion {
    path: PathBuf,
    file: File,
}

impl Companion {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn companion_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(COMPANION);
    PathBuf::from(name)
}

/// Removes the partial files of a target that nobody has locked, with their companions. A failure costs only the room on the disk.
fn remove_abandoned(target: &Path) {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = target.file_name().unwrap_or_default().as_bytes();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let own = found.as_bytes().strip_prefix(name).and_then(|rest| rest.strip_prefix(MARK.as_bytes()));
        if !own.is_some_and(|own| own.len() == DIGITS && own.iter().all(u8::is_ascii_hexdigit)) {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).write(true).open(entry.path()) else { continue };
        // The lock is held until the file is removed, so that its writer notices.
        if file.try_lock().is_ok() {
            let _ = fs::remove_file(companion_of(&entry.path()));
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_abandoned_partial_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("backup.tar");
        let kept = [
            "backup.tar.partial-mine",
            "backup.tar.partial-0123456789abcde",
            "other.tar.partial-0123456789abcdef",
        ];
        for name in kept.into_iter().chain(["backup.tar.partial-0123456789abcdef"]) {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::write(folder.path().join("backup.tar.partial-0123456789abcdef-db"), "x").unwrap();
        let first = PartialFile::create(&target).unwrap();
        let companion = first.companion().unwrap();
        let second = PartialFile::create(&target).unwrap();
        assert!(first.path.exists() && second.path.exists() && first.path != second.path);
        assert!(companion.path().exists(), "it goes with a file that is being written");
        drop(companion);
        assert_eq!(names(folder.path()).len(), kept.len() + 2);
        second.publish(&target).unwrap();
        assert_eq!(first.publish(&target).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let mut expected = [&["backup.tar"], &kept[..]].concat();
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected);
    }
}
