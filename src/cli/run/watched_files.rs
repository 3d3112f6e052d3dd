//! Notices changes of files: the configuration, the token, keys, certificates.
//!
//! It looks at the metadata every two seconds. Notifications of the kernel would be lost for the ways in which these files
//! are replaced: by a rename, through a symbolic link to a folder, in a mount of a single file.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use tokio::time::sleep;

/// The time between two looks. Files that were changed are read when two looks have found the same.
const INTERVAL: Duration = Duration::from_secs(2);

/// Files as they were at first, or when a change was noticed last.
pub(super) struct WatchedFiles {
    paths: Vec<PathBuf>,
    known: Vec<Option<FileVersion>>,
}

/// Tells versions of a file apart: device, inode, size, and time of the last change in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl WatchedFiles {
    /// Notices changes from now on. Without a path there are none.
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut files = Self { paths: paths.into_iter().collect(), known: Vec::new() };
        files.known = files.versions();
        files
    }

    /// Waits until a file is another one than before, and none has changed for two seconds.
    ///
    /// A file that is missing is no change: between the removal of the old file and the rename of the new one there is none.
    pub(super) async fn changed(&mut self) {
        let mut candidate = self.known.clone();
        loop {
            sleep(INTERVAL).await;
            let found = self.versions();
            if found.iter().all(Option::is_some) && found != self.known && found == candidate {
                self.known = found;
                return;
            }
            candidate = found;
        }
    }

    /// Whether the files are those that were noticed last: none is missing, and none is being written.
    pub(super) fn are_settled(&self) -> bool {
        let found = self.versions();
        found.iter().all(Option::is_some) && found == self.known
    }

    fn versions(&self) -> Vec<Option<FileVersion>> {
        self.paths.iter().map(version).collect()
    }
}

fn version(path: &PathBuf) -> Option<FileVersion> {
    let found = fs::metadata(path).ok()?;
    Some(FileVersion {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        changed: (found.ctime(), found.ctime_nsec()),
    })
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
        let mut file = WatchedFiles::new([path.clone()]);
        let unchanged = timeout(Duration::from_mins(1), file.changed()).await;
        assert!(unchanged.is_err(), "nothing has changed");
        let next = folder.path().join("next");
        fs::write(&next, "b").unwrap();
        fs::rename(&next, &path).unwrap();
        let began = Instant::now();
        assert!(!file.are_settled(), "the change is not noticed yet");
        file.changed().await;
        assert!(file.are_settled());
        assert!(began.elapsed() >= 2 * INTERVAL, "it was looked at twice");
        fs::remove_file(&path).unwrap();
        assert!(!file.are_settled(), "it is missing");
        assert!(
            timeout(Duration::from_mins(1), file.changed()).await.is_err(),
            "a missing file is no new one"
        );
        fs::write(&path, "longer").unwrap();
        file.changed().await;
        let none = timeout(Duration::from_mins(1), WatchedFiles::new([]).changed()).await;
        assert!(none.is_err(), "there are no files to change");
    }
}
