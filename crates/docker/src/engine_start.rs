//! The start of the engine as it counts, where its clock was ahead.

use std::sync::{Mutex, PoisonError};

use driftless_model::Timestamp;

/// The start that the engine reports is never later than the time at which it is first seen.
///
/// A hardware clock in local time is set after the engine has started. Until it comes to that hour again, each end of a container
/// would lie before the start of the engine, as if the engine had ended it: no failure would count.
#[derive(Debug, Default)]
pub(crate) struct EngineStart(Mutex<Option<Seen>>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    reported: Timestamp,
    counted: Timestamp,
}

impl EngineStart {
    /// The start that counts at the time `now`.
    pub(crate) fn counted(&self, reported: Timestamp, now: Timestamp) -> Timestamp {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.filter(|seen| seen.reported == reported).map_or(reported, |seen| seen.counted);
        let counted = before.min(now);
        *seen = Some(Seen { reported, counted });
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_by_a_clock_ahead_counts_from_when_it_is_seen() {
        let start = EngineStart::default();
        let counted = |reported: u64, now: u64| start.counted(Timestamp(reported), Timestamp(now)).0;
        assert_eq!(counted(10, 20), 10);
        assert_eq!(counted(10, 30), 10);
        // Another start, two hours ahead.
        assert_eq!((counted(7_300, 100), counted(7_300, 200), counted(7_300, 9_000)), (100, 100, 100));
        // The clock of a running host is set back.
        assert_eq!((counted(7_300, 50), counted(7_300, 60)), (50, 50));
        assert_eq!(counted(9_500, 9_600), 9_500);
    }
}
