//! Puts variables into text: `$NAME`, `${NAME}` and the operators `:-` `-` `:?` `?` `:+` `+`, nested; `$$` is a
//! dollar. The rules are those of the Compose specification's chapter on interpolation.
//!
//! It does not know where the variables come from, nor which fields are numbers.

/// Far above any sensible nesting of defaults, far below the stack.
const DEEPEST: usize = 32;

/// What one text may grow to. Without a limit a megabyte of `$A` could become a terabyte.
const LONGEST: usize = 4 << 20;

/// Finds a variable's value.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The text, and the variables that were not set and so became empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Interpolated {
    pub(super) text: String,
    pub(super) unset: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("invalid interpolation; write `$$` for a dollar sign that is meant as such")]
    Invalid,
    #[error("required variable `{name}` is missing a value{}{message}", if message.is_empty() { "" } else { ": " })]
    Required { name: String, message: String },
    #[error("variables are nested deeper than {DEEPEST} levels")]
    TooDeep,
    #[error("the text grows beyond {LONGEST} bytes when its variables are put in")]
    TooLong,
}

/// Puts the variables into `template`.
pub(super) fn interpolate(template: &str, lookup: Lookup<'_>) -> Result<Interpolated, Error> {
    let mut out = Interpolated::default();
    substitute(template, lookup, DEEPEST, &mut out)?;
    Ok(out)
}

fn substitute(template: &str, lookup: Lookup<'_>, depth: usize, out: &mut Interpolated) -> Result<(), Error> {
    if depth == 0 {
        return Err(Error::TooDeep);
    }
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        out.push(before)?;
        let after = after.get(1..).unwrap_or_default();
        let name = leading_name(after);
        if let Some(inside) = after.strip_prefix('{') {
            let end = closing_brace(inside).ok_or(Error::Invalid)?;
            let (body, tail) = inside.split_at(end);
            braced(body, lookup, depth, out)?;
            rest = tail.get(1..).unwrap_or_default();
        } else if let Some(tail) = after.strip_prefix('$') {
            out.push("$")?;
            rest = tail;
        } else if name.is_empty() {
            // A lone dollar, as in a regular expression or a price, stands for itself.
            out.push("$")?;
            rest = after;
        } else {
            plain(name, lookup, out)?;
            rest = after.get(name.len()..).unwrap_or_default();
        }
    }
    out.push(rest)
}

/// The inside of `${…}`. The first operator after the name decides; what follows it is text of its own.
fn braced(body: &str, lookup: Lookup<'_>, depth: usize, out: &mut Interpolated) -> Result<(), Error> {
    let name = leading_name(body);
    if name.is_empty() {
        return Err(Error::Invalid);
    }
    let rest = body.get(name.len()..).unwrap_or_default();
    if rest.is_empty() {
        return plain(name, lookup, out);
    }
    let (counts_empty, rest) = match rest.strip_prefix(':') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let mut letters = rest.chars();
    let operator = letters.next();
    let word = letters.as_str();
    let value = lookup(name).filter(|it| !(counts_empty && it.is_empty()));
    match (operator, value) {
        (Some('-' | '?'), Some(value)) => out.push(&value),
        (Some('-'), None) | (Some('+'), Some(_)) => substitute(word, lookup, depth - 1, out),
        (Some('+'), None) => Ok(()),
        (Some('?'), None) => {
            let mut message = Interpolated::default();
            substitute(word, lookup, depth - 1, &mut message)?;
            Err(Error::Required { name: name.to_owned(), message: message.text })
        }
        (Some(_) | None, _) => Err(Error::Invalid),
    }
}

fn plain(name: &str, lookup: Lookup<'_>, out: &mut Interpolated) -> Result<(), Error> {
    if let Some(value) = lookup(name) {
        return out.push(&value);
    }
    out.unset.push(name.to_owned());
    Ok(())
}

impl Interpolated {
    fn push(&mut self, text: &str) -> Result<(), Error> {
        if self.text.len() + text.len() > LONGEST {
            return Err(Error::TooLong);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// `[A-Za-z_][A-Za-z0-9_]*` at the beginning, or nothing.
fn leading_name(text: &str) -> &str {
    let is_first = |it: char| it.is_ascii_alphabetic() || it == '_';
    if !text.starts_with(is_first) {
        return "";
    }
    let end = text.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_')).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Where the brace closes that was open before `text`. Only `${` opens another.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '{' if before == '$' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
        before = letter;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "SET" => Some("value".to_owned()),
            "EMPTY" => Some(String::new()),
            "LONG" => Some("x".repeat(1 << 20)),
            _ => None,
        }
    }

    fn text(template: &str) -> String {
        interpolate(template, &lookup).map_or_else(|error| format!("error: {error}"), |it| it.text)
    }

    #[test]
    fn every_operator_knows_unset_from_empty() {
        let cases = [
            ("$SET-${SET}", "value-value"),
            ("${EMPTY:-word}|${EMPTY-word}|${NONE:-word}|${NONE-word}|${SET:-word}", "word||word|word|value"),
            ("${EMPTY:+word}|${EMPTY+word}|${NONE:+word}|${NONE+word}|${SET:+word}", "|word|||word"),
            ("${SET:?no}|${EMPTY?no}", "value|"),
            ("${EMPTY:?say $SET}", "error: required variable `EMPTY` is missing a value: say value"),
            ("${NONE?}", "error: required variable `NONE` is missing a value"),
            ("$$SET $${SET} 5$ $5 $(x) a$", "$SET ${SET} 5$ $5 $(x) a$"),
            ("${NONE:-${EMPTY:-${SET}}}/x", "value/x"),
            ("${NONE:-a:-b?c}", "a:-b?c"),
            ("${A:-}${B-}", ""),
        ];
        for (template, wanted) in cases {
            assert_eq!(text(template), wanted, "{template}");
        }
    }

    #[test]
    fn what_is_no_variable_is_refused_and_says_how_to_write_a_dollar() {
        for template in ["${", "${}", "${1A}", "${A b}", "${A", "${A:x}", "${A:-${B}", "${A!x}"] {
            assert_eq!(interpolate(template, &lookup), Err(Error::Invalid), "{template}");
        }
    }

    #[test]
    fn unset_variables_are_named_and_growth_is_bounded() {
        let done = interpolate("$ONE ${TWO} ${SET}", &lookup).unwrap();
        assert_eq!((done.text.as_str(), done.unset), ("  value", vec!["ONE".to_owned(), "TWO".to_owned()]));
        assert_eq!(interpolate(&"$LONG".repeat(9), &lookup), Err(Error::TooLong));
        assert_eq!(interpolate(&"${A:-".repeat(99), &lookup), Err(Error::Invalid));
        let deep = "${A:-".repeat(99) + &"}".repeat(99);
        assert_eq!(interpolate(&deep, &lookup), Err(Error::TooDeep));
    }
}
