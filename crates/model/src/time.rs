//! A moment, as it is stored, compared and printed.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most that the clock of an engine on another host may be ahead. A hardware clock in local time is wrong by half an hour at least.
const CLOCKS_DIFFER: Duration = Duration::from_mins(15);

/// Milliseconds since the Unix epoch. Written as RFC 3339 in UTC wherever people or JSON see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The earlier of two times that may be missing.
    pub fn earliest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        Self::earliest_of([one, other])
    }

    /// The earliest of several times that may be missing.
    pub fn earliest_of<const N: usize>(times: [Option<Self>; N]) -> Option<Self> {
        times.into_iter().flatten().min()
    }

    /// Time since `earlier`; zero if the clock went backwards.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Whether this moment lies in the last `span` before `now`. A moment in the future does not: the clock was set back since
    /// it was noted, and nobody waits until the clock has caught up.
    pub fn is_recent(self, span: Duration, now: Self) -> bool {
        self <= now && now.since(self) < span
    }

    /// Whether this moment was noted before the clock was set back: it lies further in the future than the clocks of two hosts differ.
    pub fn is_of_a_clock_ahead(self, now: Self) -> bool {
        self.since(now) > CLOCKS_DIFFER
    }

    /// The order of moments of which some were noted before the clock was set back: those come before all others.
    pub fn in_order(self, now: Self) -> impl Ord {
        (!self.is_of_a_clock_ahead(now), self)
    }

    /// This moment, `delay` later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)))
    }

    /// This moment, `time` earlier.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }

    /// `04:12:30 UTC`: the time of day, for sentences about the next few minutes.
    pub fn time_of_day(self) -> String {
        self.formatted("%H:%M:%S UTC")
    }

    /// `2026-11-30 04:12 UTC`
    pub fn to_the_minute(self) -> String {
        self.formatted("%Y-%m-%d %H:%M UTC")
    }

    /// `2026-11-30 04:12:30 UTC`
    pub fn to_the_second(self) -> String {
        self.formatted("%Y-%m-%d %H:%M:%S UTC")
    }

    fn formatted(self, format: &str) -> String {
        self.moment().map_or_else(|| self.to_string(), |moment| moment.strftime(format).to_string())
    }

    /// `None`: it is later than every date with four digits of the year.
    fn moment(self) -> Option<jiff::Timestamp> {
        i64::try_from(self.0).ok().and_then(|it| jiff::Timestamp::from_millisecond(it).ok())
    }

    /// Reads RFC 3339, as Docker writes it. Docker's zero time (`0001-01-01…`) is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let parsed: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(parsed.as_millisecond()).ok().filter(|it| *it > 0).map(Self)
    }

    /// Reads the date of an HTTP header, such as `Sun, 22 Nov 2026 15:47:50 GMT`.
    pub fn parse_http(text: &str) -> Option<Self> {
        let parsed = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        u64::try_from(parsed.as_millisecond()).ok().map(Self)
    }

    /// The inverse of how it is printed, for every value: what was stored can be read again.
    fn read_back(text: &str) -> Option<Self> {
        if let Some(number) = text.strip_suffix(" ms") {
            return number.parse().ok().map(Self);
        }
        let parsed: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(parsed.as_millisecond()).ok().map(Self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.moment() {
            Some(moment) => write!(f, "{moment:.3}"),
            None => write!(f, "{} ms", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read_back(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not an RFC 3339 time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_of_a_clock_that_was_set_back_is_not_recent() {
        let (minute, noon) = (Duration::from_mins(1), Timestamp(1_800_000_000_000));
        assert!(noon.is_recent(minute, noon) && noon.is_recent(minute, Timestamp(noon.0 + 59_999)));
        assert!(!noon.is_recent(minute, noon.after(minute)));
        assert!(!noon.is_recent(minute, Timestamp(noon.0 - 1)));
    }

    #[test]
    fn missing_times_are_no_earliest_ones() {
        let (early, late) = (Some(Timestamp(1)), Some(Timestamp(2)));
        assert_eq!(Timestamp::earliest_of([late, None, early]), early);
        assert_eq!(Timestamp::earliest_of([None, None, None]), None);
        assert_eq!(Timestamp::earliest(None, late), late);
    }

    #[test]
    fn moments_are_printed_for_people() {
        let moment = Timestamp(1_796_000_000_123);
        assert_eq!(moment.time_of_day(), "00:53:20 UTC");
        assert_eq!(moment.to_the_minute(), "2026-11-30 00:53 UTC");
        assert_eq!(moment.to_the_second(), "2026-11-30 00:53:20 UTC");
        assert_eq!(Timestamp(u64::MAX).time_of_day(), format!("{} ms", u64::MAX));
    }

    #[test]
    fn every_moment_that_is_written_can_be_read_again() {
        for moment in [0, 1, 999, 1_800_000_000_123, 253_402_300_799_000, 253_402_300_800_000, u64::MAX] {
            let text = serde_json::to_string(&Timestamp(moment)).unwrap();
            assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), Timestamp(moment), "{text}");
        }
        assert_eq!(Timestamp::parse("0001-01-01T00:00:00Z"), None);
    }
}
