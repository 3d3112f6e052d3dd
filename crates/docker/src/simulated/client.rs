//! One client of a simulated host: its calls, their faults, and its crash.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::time::sleep;

use super::host::Host;
use crate::error::Error;

/// A client of a host.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) host: Arc<Host>,
    /// The number of steps that are performed before the client crashes. Later calls never return.
    steps_left: Arc<AtomicU32>,
}

impl Client {
    pub(super) fn new(host: &Arc<Host>) -> Self {
        Self { host: Arc::clone(host), steps_left: Arc::new(AtomicU32::new(u32::MAX)) }
    }

    /// The client crashes after this many more steps.
    pub(super) fn crash_after(&self, steps: u32) {
        self.steps_left.store(steps, Ordering::SeqCst);
    }

    pub(super) fn has_crashed(&self) -> bool {
        self.steps_left.load(Ordering::SeqCst) == 0
    }

    /// A crashed client gets no answer, and neither does the client of an engine that hangs.
    pub(super) async fn hang_if_crashed(&self) {
        let is_hanging = self.host.state().is_hanging;
        if self.has_crashed() || is_hanging {
            pending::<()>().await;
        }
    }

    pub(super) async fn call(&self, doing: &str) -> Result<(), Error> {
        self.hang_if_crashed().await;
        let latency = self.host.state().faults.latency;
        // Even a failing call takes time: a client that retries at once would stop the paused clock otherwise.
        sleep(latency).await;
        self.hang_if_crashed().await;
        self.host.check_reachable(doing)
    }

    /// Whether the answer of a step that was just performed is lost.
    pub(super) fn take_lost_answer(&self) -> bool {
        let faults = &mut self.host.state().faults;
        let is_lost = faults.lost_answers > 0;
        faults.lost_answers = faults.lost_answers.saturating_sub(1);
        is_lost
    }

    /// Counts a step that was just performed. True if the client crashes now and its answer is lost.
    pub(super) fn count_step(&self) -> bool {
        let count_down = |left: u32| if left == u32::MAX { None } else { Some(left.saturating_sub(1)) };
        let before = self.steps_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down);
        before.is_ok_and(|before| before <= 1)
    }
}
