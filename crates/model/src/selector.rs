//! Label selectors as kubectl takes them: `app=web`, `tier!=cache`, `env in (prod, test)`, `!canary`. It selects
//! and knows nothing of objects.

use std::collections::BTreeMap;

/// Requirements that all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    /// Or the label is not there at all.
    NotIn(Vec<String>),
    Exists,
    Absent,
}

/// Why a text is no selector, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the selector `{text}`, column {column}: {message}")]
pub struct InvalidSelector {
    pub text: String,
    /// Counts from 1.
    pub column: usize,
    pub message: &'static str,
}

impl Selector {
    /// Reads a selector. Nothing selects everything.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let mut reader = Reader { text, at: 0 };
        let mut requirements = Vec::new();
        reader.blanks();
        while reader.at < text.len() {
            requirements.push(reader.requirement()?);
            reader.blanks();
            if reader.at < text.len() {
                reader.expect(',', "a comma must follow")?;
                reader.blanks();
                if reader.at == text.len() {
                    return Err(reader.wrong("something must follow the comma"));
                }
            }
        }
        Ok(Self(requirements))
    }

    pub fn admits(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, test }| {
            let value = labels.get(key);
            match test {
                Test::In(values) => value.is_some_and(|it| values.contains(it)),
                Test::NotIn(values) => value.is_none_or(|it| !values.contains(it)),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
            }
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    /// In bytes, always between two characters.
    at: usize,
}

impl<'a> Reader<'a> {
    fn requirement(&mut self) -> Result<Requirement, InvalidSelector> {
        if self.take('!') {
            self.blanks();
            return Ok(Requirement { key: self.word("a label must follow")?.to_owned(), test: Test::Absent });
        }
        let key = self.word("a label is missing")?.to_owned();
        self.blanks();
        let test = if self.take('!') {
            self.expect('=', "`!=` is meant")?;
            Test::NotIn(vec![self.value()])
        } else if self.take('=') {
            // `==` means the same.
            self.take('=');
            Test::In(vec![self.value()])
        } else if self.rest().is_empty() || self.rest().starts_with(',') {
            Test::Exists
        } else {
            let at = self.at;
            match self.word("one of `=`, `!=`, `in` and `notin` must follow")? {
                "in" => Test::In(self.list()?),
                "notin" => Test::NotIn(self.list()?),
                _ => {
                    self.at = at;
                    return Err(self.wrong("one of `=`, `!=`, `in` and `notin` must follow"));
                }
            }
        };
        Ok(Requirement { key, test })
    }

    fn list(&mut self) -> Result<Vec<String>, InvalidSelector> {
        self.blanks();
        self.expect('(', "a list such as `(a, b)` must follow")?;
        let mut values = vec![self.value()];
        loop {
            self.blanks();
            if self.take(')') {
                return Ok(values);
            }
            self.expect(',', "a comma or `)` must follow")?;
            values.push(self.value());
        }
    }

    /// It may be empty.
    fn value(&mut self) -> String {
        self.blanks();
        self.letters().to_owned()
    }

    fn word(&mut self, missing: &'static str) -> Result<&'a str, InvalidSelector> {
        let word = self.letters();
        if word.is_empty() { Err(self.wrong(missing)) } else { Ok(word) }
    }

    fn letters(&mut self) -> &'a str {
        let rest = self.rest();
        let is_inner = |it: char| it.is_ascii_alphanumeric() || "-_./".contains(it);
        let end = rest.find(|it| !is_inner(it)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, letter: char) -> bool {
        let is_next = self.rest().starts_with(letter);
        self.at += if is_next { letter.len_utf8() } else { 0 };
        is_next
    }

    fn expect(&mut self, letter: char, message: &'static str) -> Result<(), InvalidSelector> {
        if self.take(letter) { Ok(()) } else { Err(self.wrong(message)) }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn wrong(&self, message: &'static str) -> InvalidSelector {
        let before = self.text.get(..self.at).unwrap_or_default();
        InvalidSelector { text: self.text.to_owned(), column: before.chars().count() + 1, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str) -> bool {
        let labels = [("app", "web"), ("tier", "front"), ("empty", "")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Selector::parse(selector).unwrap().admits(&labels)
    }

    #[test]
    fn selectors_select_as_kubectl_does() {
        let yes = [
            "",
            " ",
            "app=web",
            "app==web",
            "app = web, tier=front",
            "app",
            "!canary",
            "app!=db",
            "canary!=x",
            "app in (db, web)",
            "app notin (db)",
            "canary notin (a,b)",
            "empty=",
            "empty in ()",
            "tier in(front)",
        ];
        for selector in yes {
            assert!(selects(selector), "{selector}");
        }
        for selector in
            ["app=db", "!app", "canary", "app!=web", "app notin (web)", "app=web,tier=back", "app="]
        {
            assert!(!selects(selector), "{selector}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(in |notin |[a-c=!(), é/.-]){0,20}") {
            if let Ok(selector) = Selector::parse(&text) {
                selector.admits(&BTreeMap::new());
            }
        }
    }

    #[test]
    fn selector_errors_name_the_column() {
        let column = |text: &str| Selector::parse(text).unwrap_err().column;
        for (text, at) in [
            ("=web", 1),
            ("app=web,", 9),
            ("app!web", 5),
            ("app like web", 5),
            ("app in web", 8),
            ("app in (web", 12),
            ("é=1", 1),
            ("app=a b", 7),
            ("!", 2),
            (",", 1),
        ] {
            assert_eq!(column(text), at, "{text}");
        }
        let error = Selector::parse("app like x").unwrap_err().to_string();
        assert_eq!(
            error,
            "the selector `app like x`, column 5: one of `=`, `!=`, `in` and `notin` must follow"
        );
    }
}
