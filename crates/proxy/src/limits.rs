//! The limits of a proxy: connections at the same time, timeouts, and lines in the log.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use driftless_model::ForwardLimits;
use nix::sys::resource::{Resource, getrlimit};
use tokio::time::Instant;

/// The most connections, unless the command names another number.
const MOST: usize = 20_000;
/// The time that an endpoint has to accept a connection, unless the command names another.
const CONNECT: Duration = Duration::from_secs(1);
/// Descriptors that are not for connections: listening sockets, name server, messages of the agent.
const RESERVED: u64 = 64;
/// The pause between two lines in the log about the same.
const QUIET: Duration = Duration::from_mins(1);

/// The limits of all ports of a proxy.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) idle: Option<Duration>,
    pub(crate) connect: Duration,
    most: usize,
    open: AtomicUsize,
    full: Seldom,
}

/// One of the connections that are allowed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Limits>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Limits {
    pub(crate) fn new(limits: &ForwardLimits) -> Self {
        let wanted = limits.connections.map_or(MOST, |it| usize::try_from(it).unwrap_or(MOST)).max(1);
        let possible = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
        let possible = usize::try_from(connections(possible)).unwrap_or(usize::MAX);
        if possible < wanted {
            tracing::warn!(
                limit = possible,
                "the limit of open files allows fewer connections than {wanted}; further ones are refused"
            );
        }
        Self {
            idle: limits.idle.filter(|it| !it.is_zero()),
            connect: limits.connect.unwrap_or(CONNECT),
            most: wanted.min(possible),
            open: AtomicUsize::new(0),
            full: Seldom::default(),
        }
    }

    /// A permit for a connection that was accepted by the proxy before, also beyond the limit.
    pub(crate) fn permit_accepted(self: &Arc<Self>) -> Permit {
        self.open.fetch_add(1, Ordering::Relaxed);
        Permit(Arc::clone(self))
    }

    /// A permit for one more connection, or `None` if there are as many as are allowed.
    pub(crate) fn permit(self: &Arc<Self>) -> Option<Permit> {
        let more = |open: usize| (open < self.most).then_some(open + 1);
        if self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            return Some(Permit(Arc::clone(self)));
        }
        self.full.say(|| {
            tracing::warn!(limit = self.most, "no more connections at once; further ones are refused");
        });
        None
    }
}

/// The number of connections for which the descriptors are enough: each needs two, and two more for the pipe of a large
/// transfer, which few have at the same time.
fn connections(descriptors: u64) -> u64 {
    (descriptors.saturating_sub(RESERVED) * 2 / 5).max(1)
}

/// A line in the log that is written at most once a minute.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    pub(crate) fn say(&self, write: impl FnOnce()) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|it| it.elapsed() >= QUIET) {
            *last = Some(Instant::now());
            write();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_beyond_the_limit_get_no_permit() {
        let limits = ForwardLimits { connections: Some(2), ..ForwardLimits::default() };
        let limits = Arc::new(Limits::new(&limits));
        let permits = [limits.permit(), limits.permit()];
        assert!(permits.iter().all(Option::is_some) && limits.permit().is_none());
        drop(permits);
        assert!(limits.permit().is_some());
        assert_eq!((connections(1024), connections(10)), (384, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn line_in_the_log_is_written_once_a_minute() {
        let (seldom, written) = (Seldom::default(), AtomicUsize::new(0));
        for _ in 0..100 {
            seldom.say(|| {
                written.fetch_add(1, Ordering::Relaxed);
            });
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(written.load(Ordering::Relaxed), 2);
    }
}
