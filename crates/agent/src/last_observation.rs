//! Whether the agent has observed an application without a break: it was not down, its machine did not sleep, and the engine
//! answered.

use std::time::Duration;

use tokio::time::Instant;

use driftless_model::Timestamp;

/// The time of day and the time since the start do not run apart this much between two rounds.
const JUMP: Duration = Duration::from_secs(5);

/// The clocks at the last observation. `None`: there was none, or the engine has failed to answer since.
#[derive(Default)]
pub(crate) struct LastObservation(Option<(Timestamp, Instant)>);

impl LastObservation {
    /// Notes an observation. True: there was a break before it.
    pub(crate) fn note(&mut self, now: Timestamp) -> bool {
        let before = self.0.replace((now, Instant::now()));
        // A machine that sleeps stops this clock, and not the time of day.
        before.is_none_or(|(then, began)| now.since(then) > began.elapsed() + JUMP)
    }

    /// Notes that the engine did not answer.
    pub(crate) fn note_failure(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn break_is_a_start_a_failure_or_a_time_that_went_on_alone() {
        let (hour, noon) = (Duration::from_hours(1), Timestamp(1_800_000_000_000));
        let mut last = LastObservation::default();
        assert!(last.note(noon), "the agent has just started");
        tokio::time::advance(hour).await;
        assert!(!last.note(noon.after(hour)));
        assert!(last.note(noon.after(hour * 2)), "the machine slept");
        assert!(!last.note(noon), "the clock was set back");
        last.note_failure();
        assert!(last.note(noon));
    }
}
