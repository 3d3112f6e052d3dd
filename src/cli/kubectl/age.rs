//! Ages as kubectl prints them: precise where it matters, and never more than two units.

use std::time::Duration;

use serde_json::Value;

use driftless_model::Timestamp;

/// `45s`, `3m20s`, `47m`, `5h30m`, `26h`, `2d3h`, `91d`, `3y45d`.
pub(super) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |first: u64, unit: char, second: u64, other: char| match second {
        0 => format!("{first}{unit}"),
        second => format!("{first}{unit}{second}{other}"),
    };
    match (seconds, hours, days) {
        (0..120, ..) => format!("{seconds}s"),
        (120..600, ..) => two(minutes, 'm', seconds % 60, 's'),
        (_, 0..3, _) => format!("{minutes}m"),
        (_, 3..8, _) => two(hours, 'h', minutes % 60, 'm'),
        (_, 8..48, _) => format!("{hours}h"),
        (_, 48..192, _) => two(days, 'd', hours % 24, 'h'),
        (_, _, 0..730) => format!("{days}d"),
        (_, _, 730..2920) => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// The age since the time in a field of an object.
pub(super) fn since(moment: Option<&Value>, now: Timestamp) -> String {
    let moment = moment.and_then(Value::as_str).and_then(Timestamp::parse);
    moment.map_or_else(|| "<unknown>".to_owned(), |it| short(now.since(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        const HOUR: u64 = 3600;
        const DAY: u64 = 24 * HOUR;
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (5 * HOUR + 1800, "5h30m"),
            (8 * HOUR, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (1140 * DAY, "3y45d"),
            (3000 * DAY, "8y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(short(Duration::from_secs(seconds)), text, "{seconds}");
        }
    }
}
