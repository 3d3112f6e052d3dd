//! Quiet hours: a part of each day in a time zone.

use jiff::{
    Timestamp as Moment, ToSpan,
    civil::Time,
    tz::{AmbiguousOffset, TimeZone},
};

use super::Timestamp;

/// From one time of day to another one, also over midnight.
#[derive(Clone, Debug, PartialEq)]
pub struct QuietHours {
    from: Time,
    to: Time,
    zone: TimeZone,
}

impl Eq for QuietHours {}

impl QuietHours {
    /// Reads `22:00`, `07:00` and the name of a time zone; without one, the times are in UTC. The error says in a sentence
    /// what is wrong.
    pub fn parse(from: &str, to: &str, zone: Option<&str>) -> Result<Self, String> {
        let zone = zone.map_or(Ok(TimeZone::UTC), |name| {
            TimeZone::get(name)
                .map_err(|_| format!("`{name}` is not a time zone: write one such as `Europe/Berlin`"))
        })?;
        let (from, to) = (time(from)?, time(to)?);
        if from == to {
            return Err("quiet hours need a beginning and another end".to_owned());
        }
        Ok(Self { from, to, zone })
    }

    /// The end of the quiet hours if `now` is among them.
    pub fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let moment = Moment::from_millisecond(i64::try_from(now.0).ok()?).ok()?;
        let local = self.zone.to_datetime(moment);
        let time = local.time();
        let is_over_midnight = self.from > self.to;
        let is_quiet = if is_over_midnight {
            time >= self.from || time < self.to
        } else {
            (self.from..self.to).contains(&time)
        };
        if !is_quiet {
            return None;
        }
        let day = if is_over_midnight && time >= self.from {
            local.date().checked_add(1.day()).ok()?
        } else {
            local.date()
        };
        let ambiguous = self.zone.to_ambiguous_timestamp(day.to_datetime(self.to));
        // In the gap of a clock that is put forward, the quiet hours end with the gap.
        let end = match ambiguous.offset() {
            AmbiguousOffset::Gap { .. } => ambiguous.later().ok()?,
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok()?,
        };
        // The hour that comes twice may have ended once already.
        let end = Timestamp(u64::try_from(end.as_millisecond()).ok()?);
        Some(if end > now { end } else { now.after(std::time::Duration::from_mins(1)) })
    }
}

/// `07:30` or `7:30`.
fn time(text: &str) -> Result<Time, String> {
    let wrong = || format!("`{text}` is not a time of day: write it as `22:00`");
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let is_number =
        |text: &str| !text.is_empty() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hour) || !is_number(minute) {
        return Err(wrong());
    }
    let number = |text: &str| text.parse().map_err(|_| wrong());
    Time::new(number(hour)?, number(minute)?, 0, 0).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn quiet_hours_end_in_their_time_zone() {
        let night = QuietHours::parse("22:00", "07:00", Some("Europe/Berlin")).unwrap();
        assert_eq!(night.end(at("2026-01-10T20:59:00Z")), None);
        assert_eq!(night.end(at("2026-01-10T21:00:00Z")), Some(at("2026-01-11T06:00:00Z")));
        assert_eq!(night.end(at("2026-01-11T05:59:59Z")), Some(at("2026-01-11T06:00:00Z")));
        assert_eq!(night.end(at("2026-01-11T06:00:00Z")), None);
        // In summer an hour earlier in UTC.
        assert_eq!(night.end(at("2026-07-10T20:00:00Z")), Some(at("2026-07-11T05:00:00Z")));
        let noon = QuietHours::parse("12:00", "13:30", None).unwrap();
        assert_eq!(noon.end(at("2026-01-10T12:10:00Z")), Some(at("2026-01-10T13:30:00Z")));
        assert_eq!(noon.end(at("2026-01-10T13:30:00Z")), None);
    }

    #[test]
    fn end_in_the_gap_of_a_clock_change_exists() {
        let night = QuietHours::parse("22:00", "02:30", Some("Europe/Berlin")).unwrap();
        let end = night.end(at("2026-03-29T00:00:00Z")).unwrap();
        assert_eq!(end, at("2026-03-29T01:30:00Z"));
    }

    #[test]
    fn wrong_times_and_zones_are_refused() {
        for (from, to, zone) in [
            ("22", "07:00", None),
            ("24:00", "07:00", None),
            ("22:00", "7:60", None),
            ("+1:00", "07:00", None),
            ("07:00", "7:00", None),
            ("22:00", "07:00", Some("Berlin")),
        ] {
            assert!(QuietHours::parse(from, to, zone).is_err(), "{from} {to} {zone:?}");
        }
    }
}
