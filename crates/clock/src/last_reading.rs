//! Noticing that the time of day has gone on alone.

use std::time::Duration;

use tokio::time::Instant;

use driftless_model::Timestamp;

/// The time of day and the time since the start do not run apart this much between two readings. Time servers that correct a clock
/// slowly do so by less.
const JUMP: Duration = Duration::from_secs(5);

/// The last reading of the time of day, and of a clock that stands still while the machine sleeps and that nobody sets.
#[derive(Clone, Copy, Debug)]
pub struct LastReading {
    at: Timestamp,
    read: Instant,
}

impl LastReading {
    /// The first reading, at this time of day.
    pub fn new(now: Timestamp) -> Self {
        Self { at: now, read: Instant::now() }
    }

    /// Reads again, and returns by how much the time of day has gone on alone since the last time: the machine has slept, or its clock
    /// was set forward. A clock that was set back has not.
    pub fn jump(&mut self, now: Timestamp) -> Option<Duration> {
        let before = std::mem::replace(self, Self::new(now));
        let alone = now.since(before.at).saturating_sub(before.read.elapsed());
        (alone > JUMP).then_some(alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn jump_is_the_time_that_went_on_alone() {
        let (hour, noon) = (Duration::from_hours(1), Timestamp(1_800_000_000_000));
        let mut last = LastReading::new(noon);
        tokio::time::advance(hour).await;
        assert_eq!(last.jump(noon.after(hour)), None);
        assert_eq!(last.jump(noon.after(hour + JUMP)), None);
        tokio::time::advance(hour).await;
        assert_eq!(last.jump(noon.after(hour * 4)), (hour * 2).checked_sub(JUMP), "it slept");
        assert_eq!(last.jump(noon.after(hour * 4)), None, "it is reported once");
        assert_eq!(last.jump(noon), None, "the clock was set back");
    }
}
