//! Parses a template or a path, letter by letter. Every error has its column, and no text makes it panic.

use serde_json::{Number, Value};

use super::syntax::{Comparison, Filter, JsonPath, Operand, Part, Start, Step, SyntaxError};

/// The deepest nesting of ranges and filters.
const DEEPEST: usize = 32;

pub(super) struct Parser<'a> {
    text: &'a str,
    /// In bytes, always between two characters.
    at: usize,
    depth: usize,
}

/// The end of a list of parts.
enum End {
    Text,
    Range,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    pub(super) fn template(mut self) -> Result<Vec<Part>, SyntaxError> {
        let mut parts = Vec::new();
        match self.parts(&mut parts)? {
            End::Text => Ok(parts),
            End::Range => Err(self.wrong_at(self.at - "end".len(), "there is no `range` to end")),
        }
    }

    pub(super) fn lone_path(mut self) -> Result<JsonPath, SyntaxError> {
        let is_braced = self.take('{');
        let path = if self.peek().is_some_and(|it| it.is_alphanumeric() || it == '_') {
            let first = Step::Field(self.name());
            let JsonPath { from, mut steps } = self.steps(Start::Here)?;
            steps.insert(0, first);
            JsonPath { from, steps }
        } else {
            self.path()?
        };
        if is_braced {
            self.expect('}', "`}` is missing")?;
        }
        if self.peek().is_some() {
            return Err(self.wrong("nothing may follow the path"));
        }
        Ok(path)
    }

    /// Up to the end of the text, or to an `end`, behind which it stops in the midst of its braces.
    fn parts(&mut self, parts: &mut Vec<Part>) -> Result<End, SyntaxError> {
        let mut in_braces = false;
        loop {
            if !in_braces {
                let text = self.take_while(|it| it != '{' && it != '}');
                if !text.is_empty() {
                    parts.push(Part::Text(text.to_owned()));
                }
                match self.peek() {
                    None => return Ok(End::Text),
                    Some('}') => return Err(self.wrong("`}` without `{`")),
                    Some(_) => {
                        self.take('{');
                        in_braces = true;
                    }
                }
            }
            self.blanks();
            match self.peek() {
                None => return Err(self.wrong("`}` is missing")),
                Some('}') => {
                    self.take('}');
                    in_braces = false;
                }
                Some(quote @ ('"' | '\'')) => parts.push(Part::Text(self.quoted(quote)?)),
                Some(_) if self.word("range") => {
                    self.blanks();
                    if matches!(self.peek(), None | Some('}')) {
                        return Err(self.wrong("a path must follow `range`"));
                    }
                    let path = self.path()?;
                    self.blanks();
                    self.expect('}', "`}` is missing")?;
                    parts.push(self.range(path)?);
                    in_braces = true;
                }
                Some(_) if self.word("end") => return Ok(End::Range),
                Some(_) => parts.push(Part::Path(self.path()?)),
            }
        }
    }

    /// The body of a range; the braces of its `end` are still open afterwards.
    fn range(&mut self, path: JsonPath) -> Result<Part, SyntaxError> {
        self.deeper()?;
        let mut body = Vec::new();
        let end = self.parts(&mut body)?;
        self.depth -= 1;
        match end {
            End::Range => Ok(Part::Range(path, body)),
            End::Text => Err(self.wrong("`{end}` is missing")),
        }
    }

    fn path(&mut self) -> Result<JsonPath, SyntaxError> {
        let from = if self.take('$') {
            Start::Root
        } else if self.take('@') || matches!(self.peek(), Some('.' | '[')) {
            Start::Here
        } else {
            return Err(self.wrong("a path begins with `.`, `[`, `$` or `@`"));
        };
        self.steps(from)
    }

    fn steps(&mut self, from: Start) -> Result<JsonPath, SyntaxError> {
        let mut steps = Vec::new();
        loop {
            if self.take('.') {
                let is_deep = self.take('.');
                if is_deep {
                    steps.push(Step::Below);
                }
                if self.take('*') {
                    steps.push(Step::All);
                    continue;
                }
                let name = self.name();
                if !name.is_empty() {
                    steps.push(Step::Field(name));
                } else if is_deep && self.peek() != Some('[') {
                    return Err(self.wrong("a name must follow `..`"));
                }
            } else if self.take('[') {
                steps.push(self.bracket()?);
            } else {
                return Ok(JsonPath { from, steps });
            }
        }
    }

    /// Parses the text between brackets.
    fn bracket(&mut self) -> Result<Step, SyntaxError> {
        self.blanks();
        if self.take('?') {
            return self.filter();
        }
        let mut steps = vec![self.selection()?];
        self.blanks();
        while self.take(',') {
            self.blanks();
            steps.push(self.selection()?);
            self.blanks();
        }
        self.expect(']', "`]` is missing")?;
        Ok(match steps.len() {
            1 => steps.remove(0),
            _ => Step::Union(steps),
        })
    }

    fn selection(&mut self) -> Result<Step, SyntaxError> {
        match self.peek() {
            Some('*') => {
                self.take('*');
                Ok(Step::All)
            }
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(Step::Field),
            Some(it) if it == '-' || it == ':' || it.is_ascii_digit() => {
                let from = self.whole()?;
                if !self.take(':') {
                    return from.map(Step::Index).ok_or_else(|| self.wrong("a number is missing"));
                }
                let to = self.whole()?;
                let place = self.at + usize::from(self.peek() == Some(':'));
                let by = if self.take(':') { self.whole()?.unwrap_or(1) } else { 1 };
                if by < 1 {
                    return Err(self.wrong_at(place, "a step is 1 or more"));
                }
                Ok(Step::Slice { from, to, by })
            }
            None | Some(_) => Err(self.wrong("a number, `*`, a quoted name, `:` or `?(` must follow `[`")),
        }
    }

    fn filter(&mut self) -> Result<Step, SyntaxError> {
        self.deeper()?;
        self.expect('(', "`(` must follow `?`")?;
        self.blanks();
        let left = self.operand()?;
        self.blanks();
        let filter = if self.peek() == Some(')') {
            match left {
                Operand::Path(path) => Filter::Has(path),
                Operand::Literal(_) => return Err(self.wrong("compare with ==, !=, <, <=, > or >=")),
            }
        } else {
            let comparison = self.comparison()?;
            self.blanks();
            Filter::Compare(left, comparison, self.operand()?)
        };
        self.blanks();
        self.expect(')', "`)` is missing")?;
        self.blanks();
        self.expect(']', "`]` is missing")?;
        self.depth -= 1;
        Ok(Step::Filter(Box::new(filter)))
    }

    fn comparison(&mut self) -> Result<Comparison, SyntaxError> {
        // The longer ones first.
        let all = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        if let Some((word, comparison)) = all.into_iter().find(|(word, _)| self.rest().starts_with(word)) {
            self.at += word.len();
            return Ok(comparison);
        }
        if self.rest().is_empty() || self.rest().starts_with(']') {
            return Err(self.wrong("`)` is missing"));
        }
        Err(self.wrong("compare with ==, !=, <, <=, > or >="))
    }

    fn operand(&mut self) -> Result<Operand, SyntaxError> {
        match self.peek() {
            Some('@' | '$' | '.') => self.path().map(Operand::Path),
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(|it| Operand::Literal(Value::String(it))),
            _ if self.word("true") => Ok(Operand::Literal(Value::Bool(true))),
            _ if self.word("false") => Ok(Operand::Literal(Value::Bool(false))),
            _ => {
                let at = self.at;
                let text =
                    self.take_while(|it| it.is_ascii_digit() || matches!(it, '-' | '+' | '.' | 'e' | 'E'));
                let number = text.parse::<i64>().map(Number::from).ok();
                let number = number.or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64));
                number.map(|it| Operand::Literal(Value::Number(it))).ok_or_else(|| {
                    self.wrong_at(at, "a path, a quoted text, a number, true or false must stand here")
                })
            }
        }
    }

    /// A name behind a dot. A backslash takes the next letter as it is: `app\.kubernetes\.io/name`.
    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(letter) = self.peek() {
            if letter == '\\' {
                self.take('\\');
                if let Some(next) = self.peek() {
                    self.take(next);
                    name.push(next);
                }
            } else if letter.is_whitespace() || ".,[]{}()$@=!<>?\"'".contains(letter) {
                break;
            } else {
                self.take(letter);
                name.push(letter);
            }
        }
        name
    }

    fn quoted(&mut self, quote: char) -> Result<String, SyntaxError> {
        let begin = self.at;
        self.take(quote);
        let mut text = String::new();
        loop {
            let Some(letter) = self.peek() else {
                return Err(self.wrong_at(begin, "the quote is not closed"));
            };
            self.take(letter);
            if letter == quote {
                return Ok(text);
            }
            if letter != '\\' {
                text.push(letter);
                continue;
            }
            let Some(next) = self.peek() else { continue };
            self.take(next);
            text.push(match next {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            });
        }
    }

    /// `None` where no number stands.
    fn whole(&mut self) -> Result<Option<i64>, SyntaxError> {
        self.blanks();
        let at = self.at;
        let text = self.take_while(|it| it.is_ascii_digit() || it == '-');
        if text.is_empty() {
            return Ok(None);
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || digits.contains('-') {
            return Err(self.wrong_at(at, "this is no number"));
        }
        text.parse().map(Some).map_err(|_| self.wrong_at(at, "the number is too large"))
    }

    /// A word that no letter follows.
    fn word(&mut self, word: &str) -> bool {
        let Some(after) = self.rest().strip_prefix(word) else { return false };
        let is_whole = !after.starts_with(|it: char| it.is_alphanumeric() || it == '_');
        self.at += if is_whole { word.len() } else { 0 };
        is_whole
    }

    fn deeper(&mut self) -> Result<(), SyntaxError> {
        self.depth += 1;
        if self.depth > DEEPEST { Err(self.wrong("this is nested too deeply")) } else { Ok(()) }
    }

    fn blanks(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|it| !is_wanted(it)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, letter: char) -> bool {
        let is_next = self.peek() == Some(letter);
        self.at += if is_next { letter.len_utf8() } else { 0 };
        is_next
    }

    fn expect(&mut self, letter: char, message: &str) -> Result<(), SyntaxError> {
        if self.take(letter) { Ok(()) } else { Err(self.wrong(message)) }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn wrong(&self, message: &str) -> SyntaxError {
        self.wrong_at(self.at, message)
    }

    fn wrong_at(&self, at: usize, message: &str) -> SyntaxError {
        let before = self.text.get(..at).unwrap_or_default();
        SyntaxError {
            text: self.text.to_owned(),
            column: before.chars().count() + 1,
            message: message.to_owned(),
        }
    }
}
