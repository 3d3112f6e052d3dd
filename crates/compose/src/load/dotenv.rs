//! Parses `.env` and `env_file` files by the rules of the Compose specification: `KEY=value`, `KEY: value`, `export`,
//! comments, quotes, values over several lines, and variables in them.

use std::collections::BTreeMap;

use driftless_model::{Finding, Location};

use crate::load::{
    interpolate::{Error as InterpolateError, Interpolated, Lookup, interpolate},
    texts::{Texts, TooLarge},
};

/// One assignment. `value` is `None` for a bare name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    /// From 1.
    pub(crate) line: u32,
    pub(crate) value: Option<Interpolated>,
}

impl Assignment {
    /// The name and its value. `None`: it has none.
    pub(crate) fn into_pair(self) -> Option<(String, String)> {
        Some((self.name, self.value?.text))
    }
}

/// A syntax error with its line. It never contains a value, because values may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub(crate) struct Error {
    /// From 1.
    pub(crate) line: u32,
    #[source]
    pub(crate) cause: Cause,
}

impl Error {
    /// The finding about a file.
    pub(crate) fn at(&self, file: &str) -> Finding {
        let location = Location::new(file, self.line, 0);
        match &self.cause {
            Cause::TooLarge(error) => error.at(location, ""),
            cause => Finding::error(location, "", cause.to_string()),
        }
    }
}

/// The kind of a syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cause {
    #[error("unexpected character `{0}` in a variable name")]
    Name(char),
    #[error("a variable name cannot contain a space")]
    Space,
    #[error("the line has no variable name")]
    NoName,
    #[error("a quoted value is not closed")]
    Unterminated,
    #[error("{0}")]
    Interpolate(InterpolateError),
    #[error("the file is not UTF-8 text")]
    NotText,
    #[error(transparent)]
    TooLarge(TooLarge),
}

/// Parses a file with interpolation: `$NAME` in unquoted and double-quoted values is looked up with `lookup`, then in the
/// earlier lines of the file. Names that are not set become empty. The file ends early if `texts` were exceeded before.
pub(crate) fn parse(bytes: &[u8], lookup: Lookup<'_>, texts: &Texts) -> Result<Vec<Assignment>, Error> {
    let text = decode(bytes)?;
    if has_ended(texts.take(bytes.len()), 1)? {
        return Ok(Vec::new());
    }
    let mut parser = Parser { rest: &text, line: 1, known: BTreeMap::new(), lookup };
    let mut found = Vec::new();
    while parser.skip_to_statement() {
        let (line, before) = (parser.line, parser.rest.len());
        let assignment = parser.statement()?;
        let length = assignment.value.as_ref().map_or(0, |value| value.text.len());
        let growth = length.saturating_sub(before - parser.rest.len());
        if has_ended(texts.take_variable(growth), line)? {
            break;
        }
        if let Some(value) = &assignment.value {
            parser.known.insert(assignment.name.clone(), value.text.clone());
        }
        found.push(assignment);
    }
    Ok(found)
}

/// Whether the limit was exceeded before. An error if it is exceeded now.
fn has_ended(taken: Result<(), Option<TooLarge>>, line: u32) -> Result<bool, Error> {
    match taken {
        Ok(()) => Ok(false),
        Err(None) => Ok(true),
        Err(Some(error)) => Err(Error { line, cause: Cause::TooLarge(error) }),
    }
}

/// Parses `format: raw`: the value is the rest of the line.
pub(crate) fn parse_raw(bytes: &[u8], texts: &Texts) -> Result<Vec<Assignment>, Error> {
    let text = decode(bytes)?;
    let mut found = Vec::new();
    if has_ended(texts.take(bytes.len()), 1)? {
        return Ok(found);
    }
    for (line, number) in text.lines().zip(1_u32..) {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(as_written(value.to_owned()))),
            None => (line.trim_end(), None),
        };
        if name.is_empty() {
            return Err(Error { line: number, cause: Cause::NoName });
        }
        if name.contains(char::is_whitespace) {
            return Err(Error { line: number, cause: Cause::Space });
        }
        if has_ended(texts.take_variable(0), number)? {
            break;
        }
        found.push(Assignment { name: name.to_owned(), line: number, value });
    }
    Ok(found)
}

struct Parser<'a> {
    rest: &'a str,
    line: u32,
    known: BTreeMap<String, String>,
    lookup: Lookup<'a>,
}

impl Parser<'_> {
    /// Skips white space and comments. False: the file ends here.
    fn skip_to_statement(&mut self) -> bool {
        loop {
            let trimmed = self.rest.trim_start();
            self.advance(self.rest.len() - trimmed.len());
            if !self.rest.starts_with('#') {
                return !self.rest.is_empty();
            }
            self.advance(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn statement(&mut self) -> Result<Assignment, Error> {
        if let Some(rest) = self.rest.strip_prefix("export") {
            let trimmed = rest.trim_start_matches(is_blank);
            if trimmed.len() < rest.len() {
                self.rest = trimmed;
            }
        }
        let line = self.line;
        let allowed = |it: char| it.is_alphanumeric() || is_blank(it) || "_.-[]".contains(it);
        let end = self.rest.find(|it| !allowed(it)).unwrap_or(self.rest.len());
        let name = self.rest.get(..end).unwrap_or_default().trim_end().to_owned();
        let separator = self.rest.get(end..).and_then(|it| it.chars().next());
        let has_value = match separator {
            Some('=' | ':') => true,
            Some('\n') | None => false,
            Some(other) => return Err(self.error(Cause::Name(other))),
        };
        if name.is_empty() {
            return Err(self.error(Cause::NoName));
        }
        if name.contains(char::is_whitespace) {
            return Err(self.error(Cause::Space));
        }
        self.advance(end);
        if !has_value {
            return Ok(Assignment { name, line, value: None });
        }
        self.advance(1);
        self.rest = self.rest.trim_start_matches(is_blank);
        let value = self.value()?;
        Ok(Assignment { name, line, value: Some(value) })
    }

    fn value(&mut self) -> Result<Interpolated, Error> {
        let Some(quote) = self.rest.chars().next().filter(|it| matches!(it, '"' | '\'')) else {
            let line = self.rest.split('\n').next().unwrap_or_default();
            let value = line.split(" #").next().unwrap_or_default().trim_end();
            let value = self.expand(value)?;
            self.advance(line.len());
            return Ok(value);
        };
        let mut value = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            if letter == quote {
                let value = if quote == '"' { self.expand(&unescape(&value))? } else { as_written(value) };
                self.advance(at + 1);
                return Ok(value);
            }
            if letter != '\\' {
                value.push(letter);
                continue;
            }
            match letters.next() {
                Some((_, escaped)) if escaped == quote => value.push(quote),
                Some((_, other)) => value.extend(['\\', other]),
                None => value.push('\\'),
            }
        }
        Err(self.error(Cause::Unterminated))
    }

    fn expand(&self, value: &str) -> Result<Interpolated, Error> {
        let lookup = |name: &str| (self.lookup)(name).or_else(|| self.known.get(name).cloned());
        interpolate(value, &lookup).map_err(|cause| self.error(Cause::Interpolate(cause)))
    }

    fn advance(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        let lines = passed.bytes().filter(|it| *it == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.rest = rest;
    }

    fn error(&self, cause: Cause) -> Error {
        Error { line: self.line, cause }
    }
}

/// A value without variables.
fn as_written(text: String) -> Interpolated {
    Interpolated { text, ..Interpolated::default() }
}

fn decode(bytes: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error { line: 1, cause: Cause::NotText })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n"))
}

/// White space within a line.
fn is_blank(letter: char) -> bool {
    matches!(letter, '\t' | '\u{b}' | '\u{c}' | '\r' | ' ' | '\u{85}' | '\u{a0}')
}

/// Resolves the escapes of a double-quoted value. `\$` becomes `$$`, which interpolation turns into a dollar sign.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            Some('a') => out.push('\u{7}'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\u{b}'),
            Some('$') => out.push_str("$$"),
            Some('\\') | None => out.push('\\'),
            Some(other) => out.extend(['\\', other]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, Option<String>)> {
        let lookup = |name: &str| (name == "OUTER").then(|| "outer".to_owned());
        parse(text.as_bytes(), &lookup, &Texts::default())
            .unwrap()
            .into_iter()
            .map(|it| (it.name, it.value.map(|value| value.text)))
            .collect()
    }

    #[test]
    fn dotenv_files_are_parsed_as_in_compose() {
        let text = "# a comment\nA=1 # one\nexport B=x#y\nC: yaml\nD='$A # \\'lit\\''\nE=\"$A\\n\\$A ${OUTER}\" # c\n\
                    F=\nG\nH=\"two\nlines\"\r\nI = spaced \nJ=${NONE:-$B}\nexported=1";
        let wanted = [
            ("A", Some("1")),
            ("B", Some("x#y")),
            ("C", Some("yaml")),
            ("D", Some("$A # 'lit'")),
            ("E", Some("1\n$A outer")),
            ("F", Some("")),
            ("G", None),
            ("H", Some("two\nlines")),
            ("I", Some("spaced")),
            ("J", Some("x#y")),
            ("exported", Some("1")),
        ];
        let wanted: Vec<_> =
            wanted.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect();
        assert_eq!(read(text), wanted);
    }

    #[test]
    fn syntax_errors_have_a_line_and_show_no_value() {
        let error = |text: &str| parse(text.as_bytes(), &|_| None, &Texts::default()).unwrap_err();
        assert_eq!(error("A=1\n\nB!=2"), Error { line: 3, cause: Cause::Name('!') });
        assert_eq!(error("A=1\nB='x\ny"), Error { line: 2, cause: Cause::Unterminated });
        assert_eq!(error("A B=1"), Error { line: 1, cause: Cause::Space });
        assert_eq!(error("=1"), Error { line: 1, cause: Cause::NoName });
        assert!(parse(&[0xff], &|_| None, &Texts::default()).is_err());
        let doubling = format!("A={}\n{}", "x".repeat(64), "A=$A$A$A$A\n".repeat(40));
        assert!(matches!(error(&doubling).cause, Cause::Interpolate(InterpolateError::TooLong)));
        let repeated = format!("A={}\n{}", "x".repeat(1 << 20), "B=$A\n".repeat(100));
        let error = error(&repeated);
        assert!(matches!(error, Error { line: 32, cause: Cause::TooLarge(_) }), "{error:?}");
    }

    #[test]
    fn raw_files_keep_values_as_written() {
        let found = parse_raw(b"# c\nA='x' # $B\n\nB\n", &Texts::default()).unwrap();
        let value = Some(as_written("'x' # $B".to_owned()));
        assert_eq!(found[0], Assignment { name: "A".to_owned(), line: 2, value });
        assert_eq!(found[1], Assignment { name: "B".to_owned(), line: 4, value: None });
    }
}
