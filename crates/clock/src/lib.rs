//! The only place that reads the time of day.
//!
//! ```
//! use driftless_clock::Clock;
//! use driftless_model::Timestamp;
//!
//! let began = Timestamp::parse("2026-01-31T12:00:00Z").unwrap();
//! let clock = Clock::starting_at(began);
//! assert!(clock.now() >= began);
//! ```

mod last_reading;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

use driftless_model::Timestamp;

pub use last_reading::LastReading;

/// Wall-clock time. In tests it follows Tokio's clock, so that paused tests move it.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The system's clock. It may jump; only durations between nearby timestamps are ever used.
    System,
    /// Begins at a given time and follows Tokio's clock.
    Following { epoch: Timestamp, started: Instant },
    /// Likewise, and jumps when its epoch, in milliseconds, changes.
    Jumping { epoch: &'static AtomicU64, started: Instant },
}

impl Clock {
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self::Following { epoch, started: Instant::now() }
    }

    /// For simulations, which may forget it: it is never freed.
    pub fn jumping(epoch: Timestamp) -> Self {
        Self::Jumping { epoch: Box::leak(Box::new(AtomicU64::new(epoch.0))), started: Instant::now() }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                Timestamp::default().after(since)
            }
            Self::Following { epoch, started } => epoch.after(started.elapsed()),
            Self::Jumping { epoch, started } => {
                Timestamp(epoch.load(Ordering::SeqCst)).after(started.elapsed())
            }
        }
    }
}
