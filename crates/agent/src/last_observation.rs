//! Whether the agent has observed an application without a break: it was not down, its machine did not sleep, and the engine
//! answered.

use std::time::Duration;

use driftless_clock::LastReading;
use driftless_model::Timestamp;

/// The last observation of an application.
#[derive(Default)]
pub(crate) struct LastObservation {
    /// The clocks then.
    reading: Option<LastReading>,
    /// The engine has not failed to answer since.
    is_unbroken: bool,
}

/// The time since the last observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The agent has not observed all of it.
    pub(crate) is_break: bool,
    /// The time by which the clock has gone on alone: the machine has slept, or its clock was set forward.
    pub(crate) jump: Option<Duration>,
}

impl LastObservation {
    /// Notes an observation. Returns the time before it.
    pub(crate) fn note(&mut self, now: Timestamp) -> Gap {
        let jump = self.reading.get_or_insert_with(|| LastReading::new(now)).jump(now);
        let was_unbroken = std::mem::replace(&mut self.is_unbroken, true);
        Gap { is_break: !was_unbroken || jump.is_some(), jump }
    }

    /// Notes that the engine did not answer.
    pub(crate) fn note_failure(&mut self) {
        self.is_unbroken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn break_is_a_start_a_failure_or_a_time_that_went_on_alone() {
        let (hour, noon) = (Duration::from_hours(1), Timestamp(1_800_000_000_000));
        let mut last = LastObservation::default();
        let gap = |is_break, jump| Gap { is_break, jump };
        assert_eq!(last.note(noon), gap(true, None), "the agent has just started");
        tokio::time::advance(hour).await;
        assert_eq!(last.note(noon.after(hour)), gap(false, None));
        assert_eq!(last.note(noon.after(hour * 2)), gap(true, Some(hour)), "the machine slept");
        assert_eq!(last.note(noon), gap(false, None), "the clock was set back");
        last.note_failure();
        assert_eq!(last.note(noon.after(hour)), gap(true, Some(hour)), "the clock was set meanwhile");
    }
}
