//! The types of scalars in a Compose file, and the meaning of their texts: numbers, durations, sizes, booleans.
//!
//! As in the reference parser, a plain date is a time, and values that are no strings are printed in Go's way: the
//! environment of a container depends on it.

use std::{borrow::Cow, time::Duration};

use driftless_yaml::{Dialect, Kind, Node, Scalar};

/// The type of a scalar, as the reference parser sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plain {
    Null,
    Bool(bool),
    Integer(i64),
    /// Larger than every `i64`.
    Unsigned(u64),
    Float(f64),
    /// As the reference parser prints it.
    Time(String),
    Text,
}

impl Plain {
    /// The text of a scalar and its type; `None` for maps and lists.
    pub(crate) fn of(node: &Node) -> Option<(&str, Self)> {
        let Kind::Scalar { text, plain } = &node.kind else { return None };
        let found = match node.resolved()? {
            Scalar::Null => Self::Null,
            Scalar::Bool(value) => Self::Bool(value),
            Scalar::Int(value) => Self::Integer(value),
            Scalar::Unsigned(value) => Self::Unsigned(value),
            Scalar::Float(value) => Self::Float(value),
            Scalar::Text(text) if *plain && node.tag.is_none() => time(text).map_or(Self::Text, Self::Time),
            Scalar::Text(_) => Self::Text,
        };
        Some((text, found))
    }

    /// The value as printed into an environment; `None` for null.
    pub(crate) fn print(&self, text: &str) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Bool(value) => Some(value.to_string()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Unsigned(value) => Some(value.to_string()),
            Self::Float(value) => Some(print_float(*value)),
            Self::Time(value) => Some(value.clone()),
            Self::Text => Some(text.to_owned()),
        }
    }

    /// The type, for people.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Unsigned(_) | Self::Float(_) => "a number",
            Self::Time(_) => "a date",
            Self::Text => "a string",
        }
    }
}

/// The rules by which Compose reads scalars, for the typed reader of `driftless_yaml`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compose;

impl Dialect for Compose {
    type Text<'n> = Cow<'n, str>;

    /// The reference parser accepts dates wherever it expects a string.
    fn text(node: &Node) -> Option<Cow<'_, str>> {
        match Plain::of(node)? {
            (text, Plain::Text) => Some(Cow::Borrowed(text)),
            (_, Plain::Time(text)) => Some(Cow::Owned(text)),
            (_, Plain::Null | Plain::Bool(_) | Plain::Integer(_) | Plain::Unsigned(_) | Plain::Float(_)) => {
                None
            }
        }
    }

    fn boolean(node: &Node) -> Option<bool> {
        match Plain::of(node)? {
            (_, Plain::Bool(value)) => Some(value),
            (text, Plain::Text) => boolean(text),
            (_, Plain::Null | Plain::Integer(_) | Plain::Unsigned(_) | Plain::Float(_) | Plain::Time(_)) => {
                None
            }
        }
    }

    fn integer(node: &Node) -> Option<i64> {
        match Plain::of(node)? {
            (_, Plain::Integer(value)) => Some(value),
            (text, Plain::Text) => text.parse().ok(),
            (_, Plain::Float(value)) if value.fract() == 0.0 && value.abs() < 1e15 => {
                #[expect(clippy::cast_possible_truncation, reason = "checked just above")]
                let value = value as i64;
                Some(value)
            }
            (_, Plain::Null | Plain::Bool(_) | Plain::Unsigned(_) | Plain::Float(_) | Plain::Time(_)) => None,
        }
    }

    fn type_name(node: &Node) -> &'static str {
        match &node.kind {
            Kind::Mapping(_) => "a map",
            Kind::Sequence(_) => "a list",
            Kind::Scalar { .. } => Plain::of(node).map_or("null", |(_, plain)| plain.name()),
        }
    }

    fn is_extension(key: &str) -> bool {
        key.starts_with("x-")
    }
}

/// The strings that a boolean field accepts.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "y" | "yes" | "on" => Some(true),
        "false" | "n" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// `1h30m`, `1.5s`, `100ms`, `2d`, `0`. A unit is required; a minus sign is not allowed. jiff's friendly format does not
/// agree: it accepts spaces and words such as `1 hour ago`, and refuses `0` and `1.5h30m`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|it: char| !(it.is_ascii_digit() || it == '.'))?;
        let (number, tail) = rest.split_at(end);
        let end = tail.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            _ => return None,
        };
        let nanoseconds = (number.parse::<f64>().ok()? * seconds * 1e9).round();
        total = total.checked_add(Duration::try_from_secs_f64(nanoseconds / 1e9).ok()?)?;
        rest = tail;
    }
    Some(total)
}

/// Bytes: `512m`, `1.5 GB`, `64KiB`, `100`. All units are powers of 1024, as in Docker.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|it: char| !(it.is_ascii_digit() || it == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let number: f64 = number.parse().ok()?;
    let unit = unit.strip_prefix(' ').unwrap_or(unit).to_ascii_lowercase();
    let power = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        _ => return None,
    };
    let value = number * 1024_f64.powi(power);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked against the range")]
    (value.is_finite() && (0.0..9.2e18).contains(&value)).then_some(value as u64)
}

/// Billionths, from a decimal number such as `0.5`.
pub(crate) fn billionths(value: f64) -> Option<u64> {
    let value = (value * 1e9).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked against the range")]
    (value.is_finite() && (0.0..9.2e18).contains(&value)).then_some(value as u64)
}

/// The shortest text that reads back, as Go's `%v`: with an exponent from a million on, and below a ten-thousandth.
fn print_float(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let size = value.abs();
    if size == 0.0 || value.is_nan() || (1e-4..1e6).contains(&size) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text,
    }
}

/// `2006-1-2`, alone or with a time of day in UTC, as the reference parser prints times.
fn time(text: &str) -> Option<String> {
    let [year @ .., b'-'] = text.as_bytes().get(..5)? else { return None };
    if !year.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (year, rest) = (text.get(..4)?, text.get(5..)?);
    let (date, clock) = match rest.find(['T', 't', ' ']) {
        Some(at) => (rest.get(..at)?, rest.get(at + 1..)?),
        None => (rest, "0:0:0"),
    };
    let (month, day) = date.split_once('-')?;
    let is_zulu = clock.ends_with('Z');
    // With a `T` a zone is needed, with a space none is allowed.
    if rest.contains(['T', 't']) != is_zulu {
        return None;
    }
    let parts: Vec<&str> = clock.trim_end_matches('Z').split(':').collect();
    let [hour, minute, second] = parts.as_slice() else { return None };
    let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
    let number = |text: &str| (text.len() <= 2).then(|| text.parse::<i8>().ok()).flatten();
    let date = jiff::civil::Date::new(year.parse().ok()?, number(month)?, number(day)?).ok()?;
    let clock = jiff::civil::Time::new(number(hour)?, number(minute)?, number(second)?, 0).ok()?;
    if !fraction.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{date} {clock}{dot}{fraction} +0000 UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_yaml::{Limits, parse};

    fn printed(text: &str) -> Option<String> {
        let nodes = parse("a.yaml", format!("[{text}]").as_bytes(), &Limits::default()).unwrap();
        let (text, plain) = Plain::of(&nodes[0].items()[0]).unwrap();
        plain.print(text)
    }

    #[test]
    fn plain_scalars_print_as_the_reference_parser_prints_them() {
        let cases = [
            ("yes", "yes"),
            ("True", "true"),
            ("0123", "83"),
            ("0o17", "15"),
            ("0b11", "3"),
            ("0x1F", "31"),
            ("1_000", "1000"),
            ("1.10", "1.1"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("089", "89"),
            ("1e21", "1e+21"),
            ("100000.0", "100000"),
            ("999999.5", "999999.5"),
            ("1e6", "1e+06"),
            ("1000000.5", "1.0000005e+06"),
            ("-123456789012.5", "-1.234567890125e+11"),
            ("9223372036854775808", "9223372036854775808"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("-9223372036854775809", "-9.223372036854776e+18"),
            ("0.00001", "1e-05"),
            ("22:22", "22:22"),
            ("127.0.0.1", "127.0.0.1"),
            ("2020-01-02", "2020-01-02 00:00:00 +0000 UTC"),
            ("2020-13-02", "2020-13-02"),
            ("2020-01-02T03:04:05.50Z", "2020-01-02 03:04:05.5 +0000 UTC"),
            ("1.2.3", "1.2.3"),
            ("3e", "3e"),
            ("+5", "5"),
            ("-0x10", "-16"),
        ];
        for (text, wanted) in cases {
            assert_eq!(printed(text).as_deref(), Some(wanted), "{text}");
        }
        assert_eq!(printed("~"), None);
        assert_eq!(printed("'0123'").as_deref(), Some("0123"));
        assert_eq!(printed("!!str 010").as_deref(), Some("010"));
    }

    #[test]
    fn durations_and_sizes_have_their_units() {
        assert_eq!(duration("1h30m5s"), Some(Duration::from_secs(5405)));
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(duration("2d"), Some(Duration::from_hours(48)));
        for wrong in ["", "30", "-1s", "1x", "s", "1..5s", "99999999999999999999w"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
        assert_eq!(bytes("512m"), Some(512 << 20));
        assert_eq!(bytes("1.5GB"), Some(3 << 29));
        assert_eq!(bytes("64 KiB"), Some(65_536));
        for wrong in ["", "m", "-1", "1x", "1e9", "99999999999999999999p"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!(billionths(0.1), Some(100_000_000));
    }
}
