//! Interpolates variables into strings: `$NAME`, `${NAME}` and the operators `:-` `-` `:?` `?` `:+` `+`, nested; `$$` is a
//! dollar sign. The rules are those of the Compose specification's chapter on interpolation.

/// The deepest nesting of defaults: far more than useful, and safe for the stack.
const DEEPEST: usize = 32;

/// The longest result in bytes. Without a limit a megabyte of `$A` could become a terabyte.
const LONGEST: usize = 4 << 20;

/// Finds the value of a variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The result, and the variables in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interpolated {
    pub(crate) text: String,
    /// Those that were not set and became empty.
    pub(crate) unset: Vec<TemplateVariable>,
    /// Those whose value is in the text.
    pub(crate) set: Vec<TemplateVariable>,
}

/// A variable of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateVariable {
    pub(crate) name: String,
    /// The place of its value in the result, in bytes.
    pub(crate) at: usize,
    /// The value is empty, and another variable has supplied the text in that place.
    pub(crate) is_filled: bool,
}

/// An invalid template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("invalid interpolation; write `$$` for a dollar sign")]
    Invalid,
    #[error("required variable `{name}` is missing a value{}{message}", if message.is_empty() { "" } else { ": " })]
    Required { name: String, message: String },
    #[error("variables are nested deeper than {DEEPEST} levels")]
    TooDeep,
    #[error("the value is longer than {LONGEST} bytes after interpolation")]
    TooLong,
}

/// Interpolates `template`.
pub(crate) fn interpolate(template: &str, lookup: Lookup<'_>) -> Result<Interpolated, Error> {
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
        let before = out.mark();
        let after = after.get(1..).unwrap_or_default();
        let name = leading_name(after);
        if let Some(inside) = after.strip_prefix('{') {
            let end = closing_brace(inside).ok_or(Error::Invalid)?;
            let (body, tail) = inside.split_at(end);
            braced(body, lookup, depth, out)?;
            out.note_filled(before);
            rest = tail.get(1..).unwrap_or_default();
        } else if let Some(tail) = after.strip_prefix('$') {
            out.push("$")?;
            rest = tail;
        } else if name.is_empty() {
            // A single dollar sign, as in a regular expression or a price, stays as it is.
            out.push("$")?;
            rest = after;
        } else {
            plain(name, lookup, out)?;
            out.note_filled(before);
            rest = after.get(name.len()..).unwrap_or_default();
        }
    }
    out.push(rest)
}

/// The inside of `${…}`. The first operator after the name decides; the rest is a template of its own.
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
        (Some('-' | '?'), Some(value)) => out.push_value(name, &value),
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
        return out.push_value(name, &value);
    }
    out.unset.push(TemplateVariable::new(name, out.text.len()));
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

    fn push_value(&mut self, name: &str, value: &str) -> Result<(), Error> {
        self.set.push(TemplateVariable::new(name, self.text.len()));
        self.push(value)
    }

    fn mark(&self) -> Mark {
        Mark { length: self.text.len(), unset: self.unset.len(), set: self.set.len() }
    }

    /// Notes the empty variables directly before a variable whose value, or default, was added since `before`.
    fn note_filled(&mut self, before: Mark) {
        let Mark { length, unset, set } = before;
        if self.text.len() == length {
            return;
        }
        for earlier in [self.unset.get_mut(..unset), self.set.get_mut(..set)].into_iter().flatten() {
            earlier.iter_mut().rev().take_while(|it| it.at == length).for_each(|it| it.is_filled = true);
        }
    }
}

impl TemplateVariable {
    fn new(name: &str, at: usize) -> Self {
        Self { name: name.to_owned(), at, is_filled: false }
    }
}

/// The lengths of a result before a variable.
#[derive(Clone, Copy)]
struct Mark {
    length: usize,
    unset: usize,
    set: usize,
}

/// `[A-Za-z_][A-Za-z0-9_]*` at the start, or the empty string.
fn leading_name(text: &str) -> &str {
    let is_first = |it: char| it.is_ascii_alphabetic() || it == '_';
    if !text.starts_with(is_first) {
        return "";
    }
    let end = text.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_')).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// The index of the brace that closes the one before `text`. A default may have braces of its own, as JSON has. If they are not
/// closed, the last closing brace of the line counts, as in the reference parser.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    text.lines().next()?.rfind('}')
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
    fn operators_distinguish_unset_from_empty() {
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
            (r#"ok ${NONE:-{"json":1}}"#, r#"ok {"json":1}"#),
            (r#"ok ${SET:-{"json":1}}"#, "ok value"),
            (r#"${SET:+{"a":{}}}${NONE:+{"a":{}}}"#, r#"{"a":{}}"#),
            ("${NONE:-{}}|${SET:-{}}|${NONE:-{${SET}}}", "{}|value|{value}"),
            ("${NONE:-{} x", "{ x"),
        ];
        for (template, wanted) in cases {
            assert_eq!(text(template), wanted, "{template}");
        }
    }

    #[test]
    fn invalid_templates_are_refused() {
        for template in ["${", "${}", "${1A}", "${A b}", "${A", "${A:x}", "${A:-${B}", "${A!x}"] {
            assert_eq!(interpolate(template, &lookup), Err(Error::Invalid), "{template}");
        }
    }

    #[test]
    fn unset_variables_are_named_and_length_is_bounded() {
        let done = interpolate("$ONE ${TWO} ${SET}", &lookup).unwrap();
        let unset: Vec<_> = done.unset.iter().map(|it| (it.name.as_str(), it.at)).collect();
        assert_eq!((done.text.as_str(), unset), ("  value", vec![("ONE", 0), ("TWO", 1)]));
        let filled = |template: &str| -> Vec<bool> {
            interpolate(template, &lookup).unwrap().unset.iter().map(|it| it.is_filled).collect()
        };
        assert_eq!(filled("$A${B}${SET}/x$C/$SET"), [true, true, false]);
        assert_eq!(filled("$A${EMPTY}/x ${B:-${C}/x} ${D-$E}$F"), [false, false, false, false]);
        assert_eq!(filled("$A${B:-/x}"), [true]);
        let set = interpolate("a$SET${EMPTY}${SET:-x}${NONE:-$SET}${SET:+x}", &lookup).unwrap().set;
        let set: Vec<_> = set.iter().map(|it| (it.name.as_str(), it.at, it.is_filled)).collect();
        assert_eq!(set, [("SET", 1, false), ("EMPTY", 6, true), ("SET", 6, false), ("SET", 11, false)]);
        assert_eq!(interpolate(&"$LONG".repeat(9), &lookup), Err(Error::TooLong));
        assert_eq!(interpolate(&"${A:-".repeat(99), &lookup), Err(Error::Invalid));
        let deep = "${A:-".repeat(99) + &"}".repeat(99);
        assert_eq!(interpolate(&deep, &lookup), Err(Error::TooDeep));
    }
}
