//! The age of a report, judged by the clock of the collector alone: the clock of the host does not matter.

use std::time::Duration;

use driftless_model::Timestamp;
use serde::{Deserialize, Serialize};

/// A host that has not been heard for this long is lost.
pub const LOST_AFTER: Duration = Duration::from_mins(10);

/// A host is stale after this number of missed heartbeats.
const MISSED: u32 = 3;

/// A report from the future means that the clock of the collector has jumped back by more than this.
const JUMP: Duration = Duration::from_mins(1);

/// The age of the last report of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Freshness {
    /// No more than three heartbeats are missing.
    Fresh,
    /// Three heartbeats are missing, or the clock of the collector has jumped.
    Stale,
    /// Nothing was heard for [`LOST_AFTER`].
    Lost,
}

/// The freshness of a report that arrived at `received` from a host that sends a heartbeat `every` so often.
pub fn freshness(received: Timestamp, every: Duration, now: Timestamp) -> Freshness {
    if received > now.after(JUMP) {
        return Freshness::Stale;
    }
    let age = now.since(received);
    if age >= LOST_AFTER {
        Freshness::Lost
    } else if age > every * MISSED {
        Freshness::Stale
    } else {
        Freshness::Fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_stale_after_three_heartbeats_and_then_lost() {
        let (at, every) = (Timestamp(1_000_000), Duration::from_secs(30));
        let after = |seconds| freshness(at, every, at.after(Duration::from_secs(seconds)));
        assert_eq!([after(0), after(90)], [Freshness::Fresh; 2]);
        assert_eq!([after(91), after(599)], [Freshness::Stale; 2]);
        assert_eq!([after(600), after(3_600_000)], [Freshness::Lost; 2]);
    }

    #[test]
    fn clock_that_jumps_back_makes_nothing_fresh() {
        let (at, every) = (Timestamp(10_000_000), Duration::from_secs(30));
        assert_eq!(freshness(at, every, Timestamp(9_990_000)), Freshness::Fresh);
        assert_eq!(freshness(at, every, Timestamp(5_000_000)), Freshness::Stale);
    }
}
