//! Limits of one operation: a deadline, the longest silence, the number of bytes, and cancellation.
//!
//! gix's transports block and have none of these. Here every wait is a future on the Tokio runtime that ends when a limit
//! is reached. Must be used on a blocking thread. The first failure is stored here, because an error loses its kind on
//! its way through gix.

use std::{
    future::Future,
    io::{self, Read, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    runtime::Handle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::error::Cause;

/// The limits of one operation. Clones share them.
#[derive(Clone)]
pub(super) struct Limits {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Handle,
    timeout: Duration,
    idle: Duration,
    deadline: Instant,
    most: u64,
    received: AtomicU64,
    cancelled: CancellationToken,
    /// The same for gix, which checks it between chunks of work.
    interrupt: AtomicBool,
    failure: Mutex<Option<NetworkFailure>>,
}

/// Why the network part of an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NetworkFailure {
    #[error("it was cancelled")]
    Cancelled,
    #[error("it took longer than {} s in all", .0.as_secs())]
    Deadline(Duration),
    #[error("the server sent nothing for {} s", .0.as_secs_f32())]
    Silence(Duration),
    #[error("the server sent more than the limit of {0} bytes")]
    TooLarge(u64),
    #[error("the server answered {code}")]
    Status { code: u16, retry_after: Option<Duration> },
    #[error("{0}")]
    Redirect(String),
    #[error("{0}")]
    Certificate(String),
    #[error("the address answers, but not as a Git server (smart HTTP)")]
    NotGit,
    #[error("{message}")]
    Connection { cause: Cause, message: String },
}

/// Cancels the operation when it is dropped: nobody waits for it any more.
pub(super) struct CancelOnDrop(Limits);

/// An asynchronous stream as a blocking one.
pub(super) struct BlockingStream<T> {
    stream: T,
    limits: Limits,
}

impl Limits {
    /// Starts now. `most` is the maximum number of received bytes.
    pub(super) fn start(timeout: Duration, idle: Duration, most: u64) -> Self {
        let inner = Inner {
            runtime: Handle::current(),
            timeout,
            idle,
            deadline: after(timeout),
            most,
            received: AtomicU64::new(0),
            cancelled: CancellationToken::new(),
            interrupt: AtomicBool::new(false),
            failure: Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn stop_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }

    pub(super) fn deadline(&self) -> Instant {
        self.inner.deadline
    }

    pub(super) fn idle(&self) -> Duration {
        self.inner.idle
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    pub(super) fn interrupt(&self) -> &AtomicBool {
        &self.inner.interrupt
    }

    /// Waits for one step of input or output within the limits.
    pub(super) fn run<T>(&self, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let Inner { runtime, timeout, idle, deadline, cancelled, .. } = &*self.inner;
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => Err(self.fail(NetworkFailure::Cancelled)),
                () = tokio::time::sleep_until(*deadline) => Err(self.fail(NetworkFailure::Deadline(*timeout))),
                done = tokio::time::timeout(*idle, step) => {
                    done.unwrap_or_else(|_| Err(self.fail(NetworkFailure::Silence(*idle))))
                }
            }
        })
    }

    /// Waits for something on this machine, no longer than for a silent server. `None`: it did not come in time, or the
    /// operation is over.
    pub(super) fn wait_for<T>(&self, thing: impl Future<Output = T>) -> Option<T> {
        let Inner { runtime, idle, deadline, cancelled, .. } = &*self.inner;
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => None,
                () = tokio::time::sleep_until(*deadline) => None,
                thing = tokio::time::timeout(*idle, thing) => thing.ok(),
            }
        })
    }

    /// Counts bytes from the server.
    pub(super) fn count(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes as u64;
        let before = self.inner.received.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.inner.most {
            return Err(self.fail(NetworkFailure::TooLarge(self.inner.most)));
        }
        Ok(())
    }

    /// The bytes from the server so far.
    pub(super) fn received(&self) -> u64 {
        self.inner.received.load(Ordering::Relaxed)
    }

    /// Stores the first failure and turns it into an error. Never of the kind `Interrupted`: readers would try again.
    pub(super) fn fail(&self, failure: NetworkFailure) -> io::Error {
        let error = io::Error::other(failure.to_string());
        self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        error
    }

    pub(super) fn failure(&self) -> Option<NetworkFailure> {
        self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The time after the timeout, at most a year from now: a configured timeout may be longer than the clock can count.
pub(super) fn after(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_hours(365 * 24);
    Instant::now() + timeout.min(YEAR)
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.inner.interrupt.store(true, Ordering::Relaxed);
        self.0.inner.cancelled.cancel();
    }
}

impl<T> BlockingStream<T> {
    pub(super) fn new(stream: T, limits: Limits) -> Self {
        Self { stream, limits }
    }
}

impl<T: AsyncRead + Unpin> Read for BlockingStream<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.limits.run(self.stream.read(buffer))?;
        self.limits.count(read)?;
        Ok(read)
    }
}

impl<T: AsyncWrite + Unpin> Write for BlockingStream<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limits.run(self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.limits.run(self.stream.flush())
    }
}
