//! Files whose reader can be interrupted: a rendering reads from another thread, which no runtime can cancel.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Entry, Files, ReadError};

/// Files that can be read until it is interrupted. From then on each call is [`ReadError::Interrupted`], so that what
/// reads them ends soon; its result is of no use.
#[derive(Clone, Debug)]
pub struct Interruptible {
    files: Arc<dyn Files>,
    is_interrupted: Arc<AtomicBool>,
}

/// Interrupts the reader of [`Interruptible`] files when it is dropped: nobody waits for the result any more.
#[derive(Debug)]
pub struct InterruptOnDrop(Arc<AtomicBool>);

impl Interruptible {
    /// The same files, and the guard that interrupts their reader.
    pub fn new(files: Arc<dyn Files>) -> (Self, InterruptOnDrop) {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let guard = InterruptOnDrop(Arc::clone(&is_interrupted));
        (Self { files, is_interrupted }, guard)
    }

    fn continued(&self, path: &str) -> Result<&dyn Files, ReadError> {
        if self.is_interrupted.load(Ordering::Relaxed) {
            return Err(ReadError::Interrupted(path.to_owned()));
        }
        Ok(self.files.as_ref())
    }
}

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Files for Interruptible {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        self.continued(path)?.entry(path)
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        self.continued(folder)?.list(folder)
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        self.continued(folder)?.links(folder)
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        self.continued(path)?.read(path, limit)
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.continued(path)?.id(path)
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        self.continued(folder)?.ignored(folder)
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.continued(path)?.similar(path)
    }

    fn is_encrypted(&self, path: &str) -> bool {
        self.files.is_encrypted(path)
    }
}

#[cfg(test)]
mod tests {
    use crate::MemoryFiles;

    use super::*;

    #[test]
    fn nothing_is_read_after_the_interruption() {
        let files: Arc<dyn Files> = Arc::new(MemoryFiles::new([("app/compose.yaml", "services: {}\n")]));
        let (files, guard) = Interruptible::new(files);
        assert_eq!(files.list("app").map(|it| it.len()), Ok(1));
        assert_eq!(files.read("app/compose.yaml", 1024).as_deref(), Ok(b"services: {}\n".as_slice()));
        drop(guard);
        let interrupted = |path: &str| ReadError::Interrupted(path.to_owned());
        assert_eq!(files.entry("app"), Err(interrupted("app")));
        assert_eq!(files.list("app"), Err(interrupted("app")));
        assert_eq!(files.links("app"), Err(interrupted("app")));
        assert_eq!(files.read("app/compose.yaml", 1024), Err(interrupted("app/compose.yaml")));
        assert_eq!(files.id("app/compose.yaml"), Err(interrupted("app/compose.yaml")));
    }
}
