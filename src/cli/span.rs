//! Durations in one unit, for tables and sentences.

use std::time::Duration;

/// `45s`, `12m`, `3h`, `5d`: the largest unit that fits.
pub(super) fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
