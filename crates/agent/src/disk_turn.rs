//! Calls of a disk that may not answer, such as a network share. Nothing ends such a call: its thread stays in the kernel until the disk
//! answers.

use std::{
    future::Future,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Mutex, task::spawn_blocking, time::timeout};

use driftless_store as store;

use crate::error::chain;

/// The time limit of a short call of the store about a folder.
const LONGEST_CALL: Duration = Duration::from_mins(1);

/// The time limit of the wait for files that are written. The copy itself goes on, and a later round finds its files.
const LONGEST_WRITE: Duration = Duration::from_mins(10);

/// The turn at a disk, for one work at a time. Work goes on when the wait for it ends, and the next one waits for it: a disk that hangs
/// takes one thread, and not one more at each try until none is left for anything else. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskTurn {
    turn: Arc<Mutex<()>>,
    /// The work that has the turn writes files.
    is_writing: Arc<AtomicBool>,
}

impl DiskTurn {
    /// Does work after the work before has ended. It goes on when this is dropped.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> Result<T, String> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let work = tokio::spawn(async move {
            let _turn = turn;
            work.await
        });
        work.await.map_err(|error| error.to_string())?
    }

    /// Whether work has the turn now, such as work that goes on after the wait for it has ended.
    pub(crate) fn is_taken(&self) -> bool {
        self.turn.try_lock().is_err()
    }

    /// Makes a short call of the store about a folder, within a minute. An error is in words.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        folder: &Path,
        call: impl FnOnce() -> Result<T, store::Error> + Send + 'static,
    ) -> Result<T, String> {
        let Ok(called) = timeout(LONGEST_CALL, self.block(call)).await else {
            if self.is_writing.load(Ordering::Relaxed) {
                return Err(still_being_written(folder));
            }
            return Err(format!(
                "the disk of {} does not answer: check it, for example with `df`; the agent goes on when it answers",
                folder.display()
            ));
        };
        called
    }

    /// Makes a call of the store that writes: many files take long on a slow disk. An error is in words.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        folder: &Path,
        call: impl FnOnce() -> Result<T, store::Error> + Send + 'static,
    ) -> Result<T, String> {
        let is_writing = Arc::clone(&self.is_writing);
        let write = move || {
            is_writing.store(true, Ordering::Relaxed);
            let _end = EndOfWrite(is_writing);
            call()
        };
        let written = timeout(LONGEST_WRITE, self.block(write)).await;
        written.unwrap_or_else(|_| Err(still_being_written(folder)))
    }

    async fn block<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, store::Error> + Send + 'static,
    ) -> Result<T, String> {
        let called = self.take(async move {
            let called = spawn_blocking(call).await;
            called.map_err(|error| error.to_string())?.map_err(|error| chain(&error))
        });
        called.await
    }
}

/// Notes that a call which writes has ended, also by a panic.
struct EndOfWrite(Arc<AtomicBool>);

impl Drop for EndOfWrite {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn still_being_written(folder: &Path) -> String {
    format!(
        "the files of {} are still being written: check the disk, for example with `df`; the agent goes on \
         when they are there",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::atomic::AtomicUsize};

    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_on_a_disk_that_hangs_is_begun_once() {
        let (turn, answered) = (DiskTurn::default(), CancellationToken::new());
        let begun = Arc::new(AtomicUsize::new(0));
        let read = || {
            let (begun, answered) = (Arc::clone(&begun), answered.clone());
            turn.take(async move {
                begun.fetch_add(1, Ordering::Relaxed);
                answered.cancelled().await;
                Ok("a value")
            })
        };
        for _ in 0..10 {
            timeout(Duration::from_secs(30), read()).await.unwrap_err();
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        answered.cancel();
        assert_eq!(read().await, Ok("a value"));
        assert_eq!(begun.load(Ordering::Relaxed), 2, "the disk may have changed since the first time");
    }

    #[tokio::test(start_paused = true)]
    async fn call_of_a_disk_that_hangs_fails_within_a_minute() {
        let turn = DiskTurn::default();
        let hanging = turn.take(pending::<Result<(), String>>());
        timeout(Duration::from_secs(1), hanging).await.unwrap_err();
        let error = turn.call(Path::new("/srv/shop"), || Ok(())).await.unwrap_err();
        assert!(error.starts_with("the disk of /srv/shop does not answer"), "{error}");
        let other = DiskTurn::default();
        assert_eq!(other.call(Path::new("/srv/blog"), || Ok(1)).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn files_are_written_to_a_slow_disk() {
        let turn = DiskTurn::default();
        let slow = turn.take(async {
            sleep(LONGEST_CALL + Duration::from_secs(30)).await;
            Ok(())
        });
        timeout(Duration::from_secs(1), slow).await.unwrap_err();
        assert_eq!(turn.write(Path::new("/srv/shop"), || Ok(1)).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_files_on_a_disk_that_hangs_ends() {
        let turn = DiskTurn::default();
        let hanging = turn.take(pending::<Result<(), String>>());
        timeout(Duration::from_secs(1), hanging).await.unwrap_err();
        let error = turn.write(Path::new("/srv/shop"), || Ok(())).await.unwrap_err();
        assert!(error.starts_with("the files of /srv/shop are still being written"), "{error}");
        assert!(turn.is_taken(), "a second try would wait as long once more");
    }

    #[tokio::test(start_paused = true)]
    async fn call_during_a_write_says_that_files_are_written() {
        let (turn, folder) = (DiskTurn::default(), Path::new("/srv/shop"));
        let is_writing = Arc::clone(&turn.is_writing);
        let written = turn.write(folder, move || Ok(is_writing.load(Ordering::Relaxed))).await;
        assert_eq!(written, Ok(true));
        assert!(!turn.is_taken() && !turn.is_writing.load(Ordering::Relaxed), "it has ended");
        turn.is_writing.store(true, Ordering::Relaxed);
        let slow = turn.take(pending::<Result<(), String>>());
        timeout(Duration::from_secs(1), slow).await.unwrap_err();
        let error = turn.call(folder, || Ok(())).await.unwrap_err();
        assert!(error.starts_with("the files of /srv/shop are still being written"), "{error}");
    }
}
