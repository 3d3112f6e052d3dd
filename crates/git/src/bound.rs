//! Bounds one operation: a deadline, a limit on silence, a limit on bytes, and cancellation.
//!
//! gix's transports are blocking and know none of these. Here every wait of theirs is a future on the Tokio
//! runtime, raced against the bounds. Must be used on a blocking thread. What went wrong is remembered here,
//! because on its way through gix an error loses its kind.

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

/// The bounds of one operation. Clones share them.
#[derive(Clone)]
pub(super) struct Bound {
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
    /// The same for gix, which looks at it between chunks of work.
    interrupt: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

/// Why the network part of an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
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
    #[error("{0}")]
    Connection(String),
}

/// Cancels the operation when it is dropped, that is when nobody waits for it any more.
pub(super) struct Stop(Bound);

/// An asynchronous stream as a blocking one.
pub(super) struct Blocking<T> {
    stream: T,
    bound: Bound,
}

impl Bound {
    /// Begins now. `most` is in bytes received.
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

    pub(super) fn stop_on_drop(&self) -> Stop {
        Stop(self.clone())
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

    /// Waits for one step of input or output within the bounds.
    pub(super) fn run<T>(&self, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let Inner { runtime, timeout, idle, deadline, cancelled, .. } = &*self.inner;
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => Err(self.fail(Failure::Cancelled)),
                () = tokio::time::sleep_until(*deadline) => Err(self.fail(Failure::Deadline(*timeout))),
                done = tokio::time::timeout(*idle, step) => {
                    done.unwrap_or_else(|_| Err(self.fail(Failure::Silence(*idle))))
                }
            }
        })
    }

    /// Counts bytes from the server.
    pub(super) fn count(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes as u64;
        let before = self.inner.received.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.inner.most {
            return Err(self.fail(Failure::TooLarge(self.inner.most)));
        }
        Ok(())
    }

    /// Remembers the first failure and makes an error of it. Never of the kind `Interrupted`, which readers
    /// would take as an invitation to try again.
    pub(super) fn fail(&self, failure: Failure) -> io::Error {
        let error = io::Error::other(failure.to_string());
        self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        error
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// That far from now, or in a year, should somebody have configured more time than there is.
pub(super) fn after(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_hours(365 * 24);
    Instant::now() + timeout.min(YEAR)
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.inner.interrupt.store(true, Ordering::Relaxed);
        self.0.inner.cancelled.cancel();
    }
}

impl<T> Blocking<T> {
    pub(super) fn new(stream: T, bound: Bound) -> Self {
        Self { stream, bound }
    }
}

impl<T: AsyncRead + Unpin> Read for Blocking<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bound.run(self.stream.read(buffer))?;
        self.bound.count(read)?;
        Ok(read)
    }
}

impl<T: AsyncWrite + Unpin> Write for Blocking<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bound.run(self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.bound.run(self.stream.flush())
    }
}
