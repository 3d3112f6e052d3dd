//! Parses the end of a rollback: `manual`, `next-commit`, a duration such as `2h`, or an RFC 3339 time; times to come; and
//! lifetimes. A day has 24 hours.

use std::time::Duration;

use driftless_model::parse_duration;
use driftless_model::{Timestamp, Until};

use crate::error::Error;

/// Ten years, of 365 days.
const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

/// A text that is not an end of a rollback.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no time to come: write `manual`, `next-commit`, a span such as `90s`, `2h` or `3d`, or `2026-01-31T12:00:00Z`"
)]
pub struct InvalidUntil(pub String);

/// Reads the end of a rollback; durations count from `now`.
pub fn parse_until(text: &str, now: Timestamp) -> Result<Until, InvalidUntil> {
    match text.trim() {
        "manual" => Ok(Until::Manual),
        "next-commit" => Ok(Until::NextCommit),
        other => time(other, now).map(Until::Time).ok_or_else(|| InvalidUntil(text.to_owned())),
    }
}

/// A text that is not a time to come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no time to come: write a span such as `90s`, `2h` or `3d`, or `2026-01-31T12:00:00Z`")]
pub struct InvalidTime(pub String);

/// Reads a time to come; durations count from `now`. The seconds of a time may be left out.
pub fn parse_time(text: &str, now: Timestamp) -> Result<Timestamp, InvalidTime> {
    time(text.trim(), now).ok_or_else(|| InvalidTime(text.to_owned()))
}

/// Reads the field `expiresIn` of a body: a span of at most `longest`, or `default` if it is missing.
pub(super) fn parse_lifetime(
    text: Option<&str>,
    default: Duration,
    longest: Duration,
) -> Result<Duration, Error> {
    let Some(text) = text else { return Ok(default) };
    let span = parse_duration(text).map_err(|error| Error::Malformed(format!("`expiresIn`: {error}")))?;
    if span.is_zero() || span > longest {
        let days = longest.as_secs() / (24 * 60 * 60);
        return Err(Error::Malformed(format!(
            "the time to expire (`expiresIn`) must be longer than 0s and at most {days} days"
        )));
    }
    Ok(span)
}

fn time(text: &str, now: Timestamp) -> Option<Timestamp> {
    let span = parse_duration(text).ok().filter(|it| !it.is_zero() && *it <= LONGEST);
    // `2026-12-01T10:00Z`
    let with_seconds = || Timestamp::parse(&format!("{}:00Z", text.strip_suffix('Z')?));
    let time = span.map(|it| now.after(it)).or_else(|| Timestamp::parse(text)).or_else(with_seconds);
    time.filter(|it| *it > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_bounded() {
        let day = Duration::from_hours(24);
        let lifetime = |text| parse_lifetime(text, day, 7 * day).map_err(|error| error.to_string());
        assert_eq!(lifetime(None), Ok(day));
        assert_eq!(lifetime(Some("7d")), Ok(7 * day));
        for wrong in ["0s", "8d"] {
            let error = lifetime(Some(wrong)).unwrap_err();
            assert!(error.starts_with("the time to expire") && error.contains("at most 7 days"), "{error}");
        }
        assert!(lifetime(Some("soon")).unwrap_err().contains("`expiresIn`"));
    }

    #[test]
    fn ends_of_a_rollback_are_parsed() {
        let now = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        assert_eq!(parse_until("manual", now), Ok(Until::Manual));
        assert_eq!(parse_until("next-commit", now), Ok(Until::NextCommit));
        assert_eq!(
            parse_until("2h", now),
            Ok(Until::Time(Timestamp::parse("2026-01-01T02:00:00Z").unwrap()))
        );
        let later = "2026-02-01T00:00:00Z";
        assert_eq!(parse_until(later, now), Ok(Until::Time(Timestamp::parse(later).unwrap())));
        assert_eq!(parse_time("2026-02-01T00:00Z", now), Ok(Timestamp::parse(later).unwrap()));
        assert!(parse_time("manual", now).is_err() && parse_time("2025-02-01T00:00Z", now).is_err());
        for wrong in ["", "soon", "-2h", "0s", "2", "900000d", "2025-01-01T00:00:00Z", "99999999999999999h"] {
            assert!(parse_until(wrong, now).is_err(), "{wrong}");
        }
    }
}
