//! Schedules of CronJobs: five fields, as Kubernetes reads them, in a time zone of the IANA database that is part of this
//! program.
//!
//! Times in the gap of a clock that is put forward are left out; times in the hour that comes twice come twice. That is
//! Kubernetes' rule. Only the begin of something that lasts is postponed to the end of the gap. The crate `cronexpr` 1.x was
//! tried and follows the same two rules, but it reads another language: it refuses `?` and `@daily`, which Kubernetes
//! accepts, accepts `7`, `L`, `W` and `5L`, which Kubernetes refuses, and finds no 29 February that is more than four years
//! away (2096 to 2104). All fields would have to be checked here first.

use std::collections::BTreeSet;

use jiff::{
    Timestamp as Moment, ToSpan,
    civil::{Date, DateTime},
    tz::{AmbiguousOffset, Offset, TimeZone},
};

use super::Timestamp;

/// Longest search for the next day, in days: the longest time from one 29 February to the next.
const FURTHEST_DAYS: i64 = 366 * 9;

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    minutes: BTreeSet<i8>,
    hours: BTreeSet<i8>,
    days: BTreeSet<i8>,
    months: BTreeSet<i8>,
    weekdays: BTreeSet<i8>,
    /// Days of the month and of the week must both suit, because one of them is any; otherwise one of them is enough.
    both: bool,
    zone: TimeZone,
}

/// The rule for times in the gap of a clock that is put forward.
#[derive(Clone, Copy)]
enum InGap {
    /// They are left out.
    Skip,
    /// They are the first moment after the gap.
    Postpone,
}

/// One of the five fields.
struct Field {
    name: &'static str,
    first: i8,
    last: i8,
    /// From the first on.
    words: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", first: 0, last: 59, words: &[] },
    Field { name: "hour", first: 0, last: 23, words: &[] },
    Field { name: "day of the month", first: 1, last: 31, words: &[] },
    Field { name: "month", first: 1, last: 12, words: MONTHS },
    Field { name: "day of the week", first: 0, last: 6, words: WEEKDAYS },
];

impl Schedule {
    /// Reads a schedule; without a zone it is in UTC. The error says in a sentence what is wrong.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, String> {
        let zone = match zone {
            None => TimeZone::UTC,
            Some(name) => Self::zone(name)?,
        };
        let text = text.trim();
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            return Err("a zone is not given in the schedule, but in `timeZone`".to_owned());
        }
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if text.starts_with("@every") => {
                return Err(
                    "`@every` is not supported: it has no fixed times; write `*/10 * * * *`".to_owned()
                );
            }
            _ => text,
        };
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts[..] else {
            let message = "five fields are needed (minute, hour, day of the month, month, day of the week)";
            return Err(format!("{message}, and there are {}", parts.len()));
        };
        let [of_minutes, of_hours, of_days, of_months, of_weekdays] = FIELDS;
        let (days, any_day) = of_days.read(days)?;
        let (weekdays, any_weekday) = of_weekdays.read(weekdays)?;
        let schedule = Self {
            minutes: of_minutes.read(minutes)?.0,
            hours: of_hours.read(hours)?.0,
            days,
            months: of_months.read(months)?.0,
            weekdays,
            both: any_day || any_weekday,
            zone,
        };
        let year = Date::constant(2000, 1, 1);
        let mut days = (0..FURTHEST_DAYS).filter_map(|it| year.checked_add(it.days()).ok());
        if !days.any(|it| schedule.suits(it)) {
            return Err("there is no such day in any year".to_owned());
        }
        Ok(schedule)
    }

    fn zone(name: &str) -> Result<TimeZone, String> {
        if name.eq_ignore_ascii_case("local") {
            return Err("`Local` is not a zone: write the name of one, such as `Europe/Berlin`".to_owned());
        }
        TimeZone::get(name).map_err(|_| {
            format!("`{name}` is not a time zone: write one such as `Europe/Berlin` or `Etc/UTC`")
        })
    }

    /// The first time after this one.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.next_with(after, InGap::Skip)
    }

    /// The first begin after this one of something that lasts, such as a sync window. One in the gap of a clock that is put forward
    /// is the first moment after the gap: the rest of what it begins is not left out.
    pub fn next_begin(&self, after: Timestamp) -> Option<Timestamp> {
        self.next_with(after, InGap::Postpone)
    }

    fn next_with(&self, after: Timestamp, in_gap: InGap) -> Option<Timestamp> {
        let day = self.day_of(after)?;
        // A clock that is put back at midnight makes a day reach into the next.
        let days = (-1..FURTHEST_DAYS).filter_map(|it| day.checked_add(it.days()).ok());
        let mut suitable = days.filter(|it| self.suits(*it));
        suitable.find_map(|it| self.times_on(it, in_gap).into_iter().find(|it| *it > after))
    }

    /// The last time up to this one, if it is after `since`, and how many there were in between, counted up to `most`.
    pub fn missed(&self, since: Timestamp, until: Timestamp, most: usize) -> Option<(Timestamp, usize)> {
        let is_within = |it: &Timestamp| *it > since && *it <= until;
        let last_day = self.day_of(until)?;
        let first_day = self.day_of(since)?.checked_add((-1).days()).ok()?;
        let mut last = None;
        let mut count = 0;
        for back in -1..FURTHEST_DAYS {
            let Some(day) = last_day.checked_add((-back).days()).ok().filter(|it| *it >= first_day) else {
                break;
            };
            if !self.suits(day) {
                continue;
            }
            let times = self.times_on(day, InGap::Skip);
            let within: Vec<Timestamp> = times.into_iter().filter(is_within).collect();
            last = last.max(within.last().copied());
            count += within.len();
            if count >= most {
                break;
            }
        }
        last.map(|it| (it, count.min(most)))
    }

    fn day_of(&self, at: Timestamp) -> Option<Date> {
        let moment = Moment::from_millisecond(i64::try_from(at.0).ok()?).ok()?;
        Some(moment.to_zoned(self.zone.clone()).date())
    }

    fn suits(&self, day: Date) -> bool {
        let of_month = self.days.contains(&day.day());
        let of_week = self.weekdays.contains(&day.weekday().to_sunday_zero_offset());
        let is_day = if self.both { of_month && of_week } else { of_month || of_week };
        self.months.contains(&day.month()) && is_day
    }

    /// All times of one day, in order.
    fn times_on(&self, day: Date, in_gap: InGap) -> BTreeSet<Timestamp> {
        let mut all = BTreeSet::new();
        for (hour, minute) in self.hours.iter().flat_map(|it| self.minutes.iter().map(move |min| (*it, *min)))
        {
            all.extend(self.moments(day.at(hour, minute, 0, 0), in_gap));
        }
        all
    }

    /// None or the first one after it where the clock is put forward, two where it is put back.
    fn moments(&self, civil: DateTime, in_gap: InGap) -> impl Iterator<Item = Timestamp> {
        let at = |offset: Offset| offset.to_timestamp(civil).ok();
        let moments = match (self.zone.to_ambiguous_zoned(civil).offset(), in_gap) {
            (AmbiguousOffset::Unambiguous { offset }, _) => [at(offset), None],
            (AmbiguousOffset::Gap { .. }, InGap::Skip) => [None, None],
            (AmbiguousOffset::Gap { after, .. }, InGap::Postpone) => {
                // By the clock of afterwards, a time in the gap is before the change.
                let change = |before| self.zone.following(before).next().map(|change| change.timestamp());
                [at(after).and_then(change), None]
            }
            (AmbiguousOffset::Fold { before, after }, _) => [at(before), at(after)],
        };
        let moments = moments.into_iter().flatten();
        moments.filter_map(|it| u64::try_from(it.as_millisecond()).ok().map(Timestamp))
    }
}

impl Field {
    /// The values, and whether they are any.
    fn read(&self, text: &str) -> Result<(BTreeSet<i8>, bool), String> {
        let mut values = BTreeSet::new();
        let mut is_any = false;
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                None => (part, None),
                Some((range, step)) => (range, Some(self.step(step, part)?)),
            };
            let (first, last) = match range.split_once('-') {
                None if range == "*" || range == "?" => {
                    is_any |= step.is_none_or(|it| it == 1);
                    (self.first, self.last)
                }
                None => {
                    let one = self.value(range)?;
                    (one, if step.is_some() { self.last } else { one })
                }
                Some((first, last)) => (self.value(first)?, self.value(last)?),
            };
            if first > last {
                return Err(format!("`{part}`: the {} {first} is after {last}", self.name));
            }
            values.extend((first..=last).step_by(step.unwrap_or(1)));
        }
        Ok((values, is_any))
    }

    fn step(&self, text: &str, part: &str) -> Result<usize, String> {
        let step = text.parse().ok().filter(|it| *it > 0);
        step.ok_or_else(|| format!("`{part}`: `{text}` is not a step of the {}", self.name))
    }

    fn value(&self, text: &str) -> Result<i8, String> {
        let Self { name, first, last, words } = self;
        let word = words.iter().position(|it| text.eq_ignore_ascii_case(it));
        let number = match word {
            Some(index) => i8::try_from(index).ok().and_then(|it| it.checked_add(*first)),
            None => Some(text)
                .filter(|it| it.bytes().all(|it| it.is_ascii_digit()))
                .and_then(|it| it.parse().ok()),
        };
        let within = number.filter(|it| (*first..=*last).contains(it));
        within.ok_or_else(|| match (*name, text) {
            ("day of the week", "7") => "`7` is not a day of the week: Sunday is 0".to_owned(),
            _ => format!("`{text}` is not a {name}: it is from {first} to {last}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    /// The next times, one after the other.
    fn times(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(text, Some(zone)).unwrap();
        let mut all = Vec::new();
        let mut last = at(after);
        for _ in 0..count {
            last = schedule.next(last).unwrap();
            all.push(last.to_string().replace(":00.000Z", ""));
        }
        all
    }

    #[test]
    fn ranges_steps_lists_and_names_are_read() {
        let utc = |text, after| times(text, "Etc/UTC", after, 3).join(" ");
        let noon = "2026-03-04T12:00:00Z";
        assert_eq!(utc("* * * * *", noon), "2026-03-04T12:01 2026-03-04T12:02 2026-03-04T12:03");
        assert_eq!(utc("*/20 9-10 * * *", noon), "2026-03-05T09:00 2026-03-05T09:20 2026-03-05T09:40");
        assert_eq!(utc("50/5 12,23 * * *", noon), "2026-03-04T12:50 2026-03-04T12:55 2026-03-04T23:50");
        assert_eq!(utc("0 0 * jan-FEB mon", noon), "2027-01-04T00:00 2027-01-11T00:00 2027-01-18T00:00");
        assert_eq!(utc("@monthly", noon), "2026-04-01T00:00 2026-05-01T00:00 2026-06-01T00:00");
        assert_eq!(utc("0 0 29 2 *", noon), "2028-02-29T00:00 2032-02-29T00:00 2036-02-29T00:00");
        assert_eq!(utc("0 0 29 2 ?", "2097-01-01T00:00:00Z").split(' ').next(), Some("2104-02-29T00:00"));
    }

    #[test]
    fn one_of_two_days_is_enough_unless_one_of_them_is_any() {
        let utc = |text| times(text, "Etc/UTC", "2026-03-04T12:00:00Z", 3).join(" ");
        // The 13th, or a Friday.
        assert_eq!(utc("0 0 13 * fri"), "2026-03-06T00:00 2026-03-13T00:00 2026-03-20T00:00");
        assert_eq!(utc("0 0 14 * fri"), "2026-03-06T00:00 2026-03-13T00:00 2026-03-14T00:00");
        assert_eq!(utc("0 0 * * fri"), "2026-03-06T00:00 2026-03-13T00:00 2026-03-20T00:00");
        assert_eq!(utc("0 0 13 * ?"), "2026-03-13T00:00 2026-04-13T00:00 2026-05-13T00:00");
        // A step is not any day.
        assert_eq!(utc("0 0 */15 * fri"), "2026-03-06T00:00 2026-03-13T00:00 2026-03-16T00:00");
    }

    #[test]
    fn clock_changes_skip_or_repeat_runs() {
        let berlin = |text, after, count| times(text, "Europe/Berlin", after, count).join(" ");
        // On 29 March 2026 there is no 02:30; on 25 October it comes twice.
        let before = "2026-03-28T12:00:00Z";
        assert_eq!(berlin("30 2 * * *", before, 2), "2026-03-30T00:30 2026-03-31T00:30");
        assert_eq!(berlin("30 * * * *", "2026-03-29T00:00:00Z", 2), "2026-03-29T00:30 2026-03-29T01:30");
        let back = "2026-10-24T12:00:00Z";
        assert_eq!(berlin("30 2 * * *", back, 3), "2026-10-25T00:30 2026-10-25T01:30 2026-10-26T01:30");
        assert_eq!(
            berlin("*/30 2 * * *", back, 4),
            "2026-10-25T00:00 2026-10-25T00:30 2026-10-25T01:00 2026-10-25T01:30"
        );
        assert_eq!(
            times("0 9 * * *", "America/New_York", "2026-03-07T15:00:00Z", 2),
            ["2026-03-08T13:00", "2026-03-09T13:00"]
        );
    }

    #[test]
    fn begin_in_a_gap_is_the_first_moment_after_it() {
        let begin = |text, zone, after| {
            let begin = Schedule::parse(text, Some(zone)).unwrap().next_begin(at(after));
            begin.unwrap().to_string().replace(":00.000Z", "")
        };
        assert_eq!(begin("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z"), "2026-03-29T01:00");
        assert_eq!(begin("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z"), "2026-03-30T00:30");
        assert_eq!(begin("*/30 2-3 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z"), "2026-03-29T01:30");
        // The clocks of Cairo go from 00:00 to 01:00.
        assert_eq!(begin("0 0 * * 5", "Africa/Cairo", "2026-04-22T12:00:00Z"), "2026-04-23T22:00");
        // Samoa has no 30 December 2011.
        assert_eq!(begin("0 12 30 12 *", "Pacific/Apia", "2011-12-29T12:00:00Z"), "2011-12-30T10:00");
        assert_eq!(begin("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z"), "2026-10-25T00:30");
    }

    #[test]
    fn missed_times_are_counted_and_the_last_is_known() {
        let hourly = Schedule::parse("@hourly", None).unwrap();
        let missed = |since, until| hourly.missed(at(since), at(until), 100);
        assert_eq!(missed("2026-01-01T00:00:00Z", "2026-01-01T00:59:00Z"), None);
        let three = Some((at("2026-01-01T03:00:00Z"), 3));
        assert_eq!(missed("2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z"), three);
        let last = Some((at("2026-03-01T12:00:00Z"), 100));
        assert_eq!(missed("2026-01-01T00:00:00Z", "2026-03-01T12:34:00Z"), last);
        let yearly = Schedule::parse("@yearly", None).unwrap();
        let found = yearly.missed(at("2020-05-01T00:00:00Z"), at("2026-03-01T00:00:00Z"), 100);
        assert_eq!(found, Some((at("2026-01-01T00:00:00Z"), 6)));
    }

    #[test]
    fn invalid_schedule_is_an_error_in_a_sentence() {
        let told = |text| Schedule::parse(text, None).unwrap_err();
        assert!(told("* * * *").ends_with("and there are 4"));
        assert_eq!(told("60 * * * *"), "`60` is not a minute: it is from 0 to 59");
        assert_eq!(told("* * * * 7"), "`7` is not a day of the week: Sunday is 0");
        assert_eq!(told("* 5-3 * * *"), "`5-3`: the hour 5 is after 3");
        assert_eq!(told("*/0 * * * *"), "`*/0`: `0` is not a step of the minute");
        assert_eq!(told("0 0 30 2 *"), "there is no such day in any year");
        assert_eq!(told("TZ=UTC * * * * *"), "a zone is not given in the schedule, but in `timeZone`");
        assert!(told("@every 1h").starts_with("`@every` is not supported"));
        for text in ["", "a b c d e", "-1 * * * *", "1- * * * *", ", * * * *", "+1 * * * *", "* * * * mon-"] {
            assert!(Schedule::parse(text, None).is_err(), "{text}");
        }
        assert!(
            Schedule::parse("* * * * *", Some("Mars/Crater")).unwrap_err().contains("is not a time zone")
        );
        assert!(Schedule::parse("* * * * *", Some("Local")).is_err());
    }
}
