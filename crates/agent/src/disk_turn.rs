//! Calls of a disk that may not answer, such as a network share. Nothing ends such a call: its thread stays in the kernel until the disk
//! answers.

use std::{future::Future, sync::Arc};

use tokio::sync::Mutex;

/// The turn at a disk, for one work at a time. Work goes on when the wait for it ends, and the next one waits for it: a disk that hangs
/// takes one thread, and not one more at each try until none is left for anything else. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskTurn(Arc<Mutex<()>>);

impl DiskTurn {
    /// Does work after the work before has ended. It goes on when this is dropped.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> Result<T, String> {
        let turn = Arc::clone(&self.0).lock_owned().await;
        let work = tokio::spawn(async move {
            let _turn = turn;
            work.await
        });
        work.await.map_err(|error| error.to_string())?
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::time::timeout;
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
}
