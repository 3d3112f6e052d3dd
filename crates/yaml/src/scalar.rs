//! The meaning of a scalar: null, a boolean, a number or text.
//!
//! The rules are those of go-yaml, which Compose and Kubernetes both use, as measured on it: `0123` is octal as in
//! YAML 1.1, and so is `0o123`; `0b11`, `0x1F` and `1_000` are numbers; `yes`, `on` and `22:22` are text. The booleans
//! of YAML 1.1 belong to the Kubernetes dialect.

/// The meaning of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// `null`, `~`, or no value at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that is larger than every `i64`.
    Unsigned(u64),
    /// A fraction, or a whole number beyond 64 bits.
    Float(f64),
    /// Everything else.
    Text(&'a str),
}

/// Resolves a scalar. Quoted text is text, unless a tag says otherwise.
pub(super) fn resolve<'a>(text: &'a str, plain: bool, tag: Option<&str>) -> Scalar<'a> {
    match tag {
        Some("!!str" | "!" | "!!binary") => Scalar::Text(text),
        Some("!!null") => Scalar::Null,
        Some("!!bool") => boolean(text).map_or(Scalar::Text(text), Scalar::Bool),
        Some("!!int") => integer(text).unwrap_or(Scalar::Text(text)),
        Some("!!float") => float(text).map_or(Scalar::Text(text), Scalar::Float),
        Some(_) | None if plain => guess(text),
        Some(_) | None => Scalar::Text(text),
    }
}

fn guess(text: &str) -> Scalar<'_> {
    // Most scalars are words, and each is resolved more than once. The first letter rules the other types out.
    if text.starts_with(|letter: char| {
        !matches!(letter, '0'..='9' | '+' | '-' | '.' | '~' | 'n' | 'N' | 't' | 'T' | 'f' | 'F')
    }) {
        return Scalar::Text(text);
    }
    if matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Scalar::Null;
    }
    if let Some(value) = boolean(text) {
        return Scalar::Bool(value);
    }
    if let Some(value) = integer(text) {
        return value;
    }
    float(text).map_or(Scalar::Text(text), Scalar::Float)
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// As Go's `strconv.ParseInt(text, 0, 64)` after underscores are dropped, or else as `ParseUint`, which takes no sign.
fn integer<'a>(text: &str) -> Option<Scalar<'a>> {
    let (negative, digits) = unsigned(text);
    if !digits.starts_with(|it: char| it.is_ascii_digit()) {
        return None;
    }
    let digits = digits.replace('_', "");
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits.as_str()),
    };
    // `from_str_radix` would take another sign.
    if !digits.starts_with(|it: char| it.is_ascii_alphanumeric()) {
        return None;
    }
    let size = u64::from_str_radix(digits, radix).ok()?;
    let value = i128::from(size);
    match i64::try_from(if negative { -value } else { value }) {
        Ok(value) => Some(Scalar::Int(value)),
        Err(_) if text.starts_with(['-', '+']) => None,
        Err(_) => Some(Scalar::Unsigned(size)),
    }
}

/// As go-yaml's `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`, or an infinity, or not a number.
fn float(text: &str) -> Option<f64> {
    let (negative, digits) = unsigned(text);
    match digits {
        ".inf" | ".Inf" | ".INF" => {
            return Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        ".nan" | ".NaN" | ".NAN" if digits == text => return Some(f64::NAN),
        _ => {}
    }
    if !digits.starts_with(|it: char| it.is_ascii_digit() || it == '.') {
        return None;
    }
    let digits = digits.replace('_', "");
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(unsigned(exponent).1)),
        None => (digits.as_str(), None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |it: &str| it.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = all_digits(whole)
        && all_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|it| !it.is_empty() && all_digits(it));
    if !is_number {
        return None;
    }
    let value: f64 = digits.parse().ok()?;
    Some(if negative { -value } else { value })
}

fn unsigned(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_the_types_of_go_yaml() {
        use Scalar::{Bool, Float, Int, Null, Text, Unsigned};
        let cases = [
            ("", Null),
            ("~", Null),
            ("null", Null),
            ("NULL", Null),
            ("nil", Text("nil")),
            ("true", Bool(true)),
            ("FALSE", Bool(false)),
            ("yes", Text("yes")),
            ("on", Text("on")),
            ("0", Int(0)),
            ("-17", Int(-17)),
            ("+5", Int(5)),
            ("0123", Int(83)),
            ("0o17", Int(15)),
            ("0b11", Int(3)),
            ("0x1F", Int(31)),
            ("1_000", Int(1000)),
            ("089", Float(89.0)),
            ("9223372036854775807", Int(i64::MAX)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("9223372036854775808", Unsigned(9_223_372_036_854_775_808)),
            ("0xFFFF_FFFF_FFFF_FFFF", Unsigned(u64::MAX)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("+9223372036854775808", Float(9_223_372_036_854_775_808.0)),
            ("-9223372036854775809", Float(-9_223_372_036_854_775_808.0)),
            ("0o7777777777777777777777", Text("0o7777777777777777777777")),
            ("1.10", Float(1.1)),
            ("1e3", Float(1000.0)),
            (".5", Float(0.5)),
            ("1.", Float(1.0)),
            ("-.5", Float(-0.5)),
            (".inf", Float(f64::INFINITY)),
            ("-.INF", Float(f64::NEG_INFINITY)),
            ("22:22", Text("22:22")),
            ("1.2.3", Text("1.2.3")),
            ("-", Text("-")),
            ("--1", Text("--1")),
            (".", Text(".")),
            ("0x", Text("0x")),
            ("0x-1", Text("0x-1")),
            ("1e", Text("1e")),
            ("e3", Text("e3")),
            ("_1", Text("_1")),
            ("inf", Text("inf")),
            ("NaN", Text("NaN")),
            ("2026-01-01", Text("2026-01-01")),
        ];
        for (text, meaning) in cases {
            assert_eq!(resolve(text, true, None), meaning, "{text:?}");
        }
        assert!(matches!(resolve(".nan", true, None), Float(it) if it.is_nan()));
    }

    #[test]
    fn quoted_scalars_are_text_unless_tagged() {
        assert_eq!(resolve("80", false, None), Scalar::Text("80"));
        assert_eq!(resolve("80", false, Some("!!int")), Scalar::Int(80));
        assert_eq!(resolve("010", true, Some("!!str")), Scalar::Text("010"));
        assert_eq!(resolve("", true, Some("!reset")), Scalar::Null);
    }
}
