//! Durations: `60s`, `5m`, `1h30m`. A number needs a unit, and fractions such as `1.5h` are not allowed.
//!
//! jiff's friendly format does not agree: it accepts fractions, spaces and words such as `1 hour ago`.

use std::time::Duration;

/// Parses `1d`, `2h`, `30m`, `60s`, `500ms` and sums of them, the largest unit first.
///
/// # Errors
/// A message that names the text and valid examples.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let wrong = || format!("`{text}` is not a duration: write it as `60s`, `5m` or `1h30m`");
    let mut rest = text.trim();
    let mut units = UNITS.iter();
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let (_, milliseconds) = units.find(|it| it.0 == unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        sum = number.checked_mul(*milliseconds).and_then(|it| sum.checked_add(it)).ok_or_else(wrong)?;
        rest = after;
    }
    if text.trim().is_empty() { Err(wrong()) } else { Ok(Duration::from_millis(sum)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_required_and_come_largest_first() {
        for (text, seconds) in [("60s", 60), ("5m", 300), ("1h30m", 5400), ("1d", 86_400), ("2h1s", 7201)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("1s500ms"), Ok(Duration::from_millis(1500)));
        for text in [
            "",
            "60",
            "s",
            "1m1h",
            "1s1s",
            "1.5h",
            "-1s",
            "1 h",
            "99999999999999999999s",
            "5µs",
            "9999999999999999d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
