//! Notices changes of the configuration file.
//!
//! It looks at the file's metadata every two seconds. Notifications of the kernel would be lost for the ways in which
//! this file is replaced: by a rename, through a symbolic link to a folder, in a mount of a single file.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use tokio::time::sleep;

/// The time between two looks. A file that was changed is read when two looks have found the same.
const INTERVAL: Duration = Duration::from_secs(2);

/// The configuration file as it was when the agent started or last noticed a change.
pub(super) struct ConfigFile {
    path: Option<PathBuf>,
    known: Option<Version>,
}

/// Tells versions of a file apart: device, inode, size, and time of the last change in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl ConfigFile {
    /// Notices changes from now on. Without a path there are none.
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        let mut file = Self { path, known: None };
        file.known = file.version();
        file
    }

    /// Waits until the file is another one than before and has not changed for two seconds.
    pub(super) async fn changed(&mut self) {
        let mut candidate = self.known;
        loop {
            sleep(INTERVAL).await;
            let found = self.version();
            // Between the removal of the old file and the rename of the new one there is none.
            if found.is_some() && found != self.known && found == candidate {
                self.known = found;
                return;
            }
            candidate = found;
        }
    }

    fn version(&self) -> Option<Version> {
        let found = fs::metadata(self.path.as_ref()?).ok()?;
        Some(Version {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changed_file_is_noticed_once_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("driftless.yaml");
        fs::write(&path, "a").unwrap();
        let mut file = ConfigFile::new(Some(path.clone()));
        let unchanged = timeout(Duration::from_mins(1), file.changed()).await;
        assert!(unchanged.is_err(), "nothing has changed");
        let next = folder.path().join("next");
        fs::write(&next, "b").unwrap();
        fs::rename(&next, &path).unwrap();
        let began = Instant::now();
        file.changed().await;
        assert!(began.elapsed() >= 2 * INTERVAL, "it was looked at twice");
        fs::remove_file(&path).unwrap();
        assert!(
            timeout(Duration::from_mins(1), file.changed()).await.is_err(),
            "a missing file is no new one"
        );
        fs::write(&path, "longer").unwrap();
        file.changed().await;
    }
}
