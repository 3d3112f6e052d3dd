//! Reads typed values out of the YAML tree, and says what is wrong with them where they stand.
//!
//! Every map is opened with the table of its fields, so that no field passes unseen: it is read, or it is a
//! warning because it means nothing on one host, or an error because running without it would be wrong, or
//! unknown to Kubernetes and an error. Not here: which fields there are (see [`super::fields`]).

use std::{cell::RefCell, ops::RangeInclusive};

use super::fields::{Class, Fields};
use driftless_model::Finding;
use driftless_yaml::{Kind, Node, Place, Scalar, join};

/// Collects what there is to say.
#[derive(Debug, Default)]
pub(super) struct Report {
    findings: RefCell<Vec<Finding>>,
}

impl Report {
    pub(super) fn say(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }

    pub(super) fn say_all(&self, findings: Vec<Finding>) {
        self.findings.borrow_mut().extend(findings);
    }

    pub(super) fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// How many there are so far.
    pub(super) fn errors(&self) -> usize {
        self.findings.borrow().iter().filter(|it| it.is_error()).count()
    }

    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.findings.into_inner()
    }
}

/// A value that is there and not null.
#[derive(Clone, Debug)]
pub(super) struct Value<'a> {
    pub(super) node: &'a Node,
    pub(super) path: String,
    report: &'a Report,
}

/// A map whose fields are known.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    pub(super) value: Value<'a>,
}

impl<'a> Value<'a> {
    pub(super) fn new(node: &'a Node, path: impl Into<String>, report: &'a Report) -> Self {
        Self { node, path: path.into(), report }
    }

    pub(super) fn place(&self) -> &'a Place {
        &self.node.place
    }

    pub(super) fn report(&self) -> &'a Report {
        self.report
    }

    pub(super) fn error(&self, message: impl Into<String>) {
        self.report.say(self.node.finding(&*self.path, message));
    }

    pub(super) fn error_help(&self, message: impl Into<String>, help: impl Into<String>) {
        self.report.say(self.node.finding(&*self.path, message).help(help));
    }

    pub(super) fn warning(&self, message: impl Into<String>) {
        self.report.say(self.node.warning(&*self.path, message));
    }

    /// Text as kubectl takes it: what YAML 1.1 reads as a number or boolean is refused, with its quotes missing.
    pub(super) fn string(&self) -> Option<&'a str> {
        match self.node.resolved() {
            Some(Scalar::Text(text)) if !self.is_old_boolean() => return Some(text),
            Some(Scalar::Null) | None => {
                self.error(format!("must be a string, but it is a {}", self.node.kind_name()));
            }
            Some(Scalar::Text(_) | Scalar::Bool(_)) => {
                self.error_help("must be a string, but it is a boolean", "put it in quotes");
            }
            Some(Scalar::Int(_) | Scalar::Float(_)) => {
                self.error_help("must be a string, but it is a number", "put it in quotes");
            }
        }
        None
    }

    /// `yes`, `no`, `on` and `off` are booleans in YAML 1.1, which Kubernetes reads.
    fn is_old_boolean(&self) -> bool {
        let words = ["yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"];
        match &self.node.kind {
            Kind::Scalar { text, plain } => {
                *plain && self.node.tag.is_none() && words.contains(&text.as_str())
            }
            Kind::Sequence(_) | Kind::Mapping(_) => false,
        }
    }

    /// A string that is not empty.
    pub(super) fn text(&self) -> Option<&'a str> {
        let text = self.string()?;
        if text.is_empty() {
            self.error("must not be empty");
            return None;
        }
        Some(text)
    }

    /// One of a few words, as Kubernetes spells them.
    pub(super) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.string()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*meaning);
        }
        let known: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        self.error_help(
            format!("`{text}` is not a value of this field"),
            format!("use {}", known.join(" or ")),
        );
        None
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        if self.is_old_boolean() {
            return Some(matches!(self.node.as_scalar(), Some("yes" | "Yes" | "YES" | "on" | "On" | "ON")));
        }
        let value = self.node.as_bool();
        if value.is_none() {
            let help = "write `true` or `false` without quotes";
            self.error_help(format!("must be true or false, but it is a {}", self.node.kind_name()), help);
        }
        value
    }

    /// A whole number within bounds. A number in quotes is refused, as kubectl refuses it.
    pub(super) fn integer(&self, bounds: RangeInclusive<i64>) -> Option<i64> {
        let Some(value) = self.node.as_i64() else {
            let finding = match self.node.resolved() {
                Some(Scalar::Text(text)) if text.parse::<i64>().is_ok() => self
                    .node
                    .finding(&*self.path, format!("must be a number, but `\"{text}\"` is a string"))
                    .help("remove the quotes"),
                Some(Scalar::Float(_)) => self.node.finding(&*self.path, "must be a whole number"),
                Some(Scalar::Text(_) | Scalar::Null | Scalar::Bool(_) | Scalar::Int(_)) | None => {
                    let message = format!("must be a whole number, but it is a {}", self.node.kind_name());
                    self.node.finding(&*self.path, message)
                }
            };
            self.report.say(finding);
            return None;
        };
        if bounds.contains(&value) {
            return Some(value);
        }
        let (least, most) = (bounds.start(), bounds.end());
        self.error(match (*least, *most) {
            (least, i64::MAX | 0x7FFF_FFFF) => format!("must be {least} or more, but is {value}"),
            (least, most) => format!("must be from {least} to {most}, but is {value}"),
        });
        None
    }

    /// The items of a list; nulls among them are errors.
    pub(super) fn items(&self) -> Vec<Value<'a>> {
        if !matches!(self.node.kind, Kind::Sequence(_)) {
            self.error(format!("must be a list, but it is a {}", self.node.kind_name()));
        }
        let values = self.node.items().iter().enumerate();
        values
            .map(|(index, it)| Self::new(it, join(&self.path, &format!("[{index}]")), self.report))
            .filter(|it| {
                if it.node.is_null() {
                    it.error("a list item must not be empty");
                }
                !it.node.is_null()
            })
            .collect()
    }

    /// A list of strings.
    pub(super) fn strings(&self) -> Vec<String> {
        self.items().iter().filter_map(|it| it.string().map(str::to_owned)).collect()
    }

    /// A map with free keys; nulls are left out.
    pub(super) fn pairs(&self) -> Vec<(&'a str, Value<'a>)> {
        if !matches!(self.node.kind, Kind::Mapping(_)) {
            self.error(format!("must be a map, but it is a {}", self.node.kind_name()));
        }
        let entries = self.node.entries().iter().filter(|it| !it.value.is_null());
        entries
            .map(|it| (it.key.as_str(), Self::new(&it.value, join(&self.path, &it.key), self.report)))
            .collect()
    }

    /// A map with the fields that Kubernetes gives it.
    pub(super) fn object(self, fields: Fields) -> Option<Object<'a>> {
        if !matches!(self.node.kind, Kind::Mapping(_)) {
            self.error(format!("must be a map, but it is a {}", self.node.kind_name()));
            return None;
        }
        let object = Object { value: self };
        object.classify(fields);
        Some(object)
    }
}

impl<'a> Object<'a> {
    /// A field that is there and not null.
    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        let node = self.value.node.get(key).filter(|it| !it.is_null())?;
        Some(Value::new(node, join(&self.value.path, key), self.value.report))
    }

    /// A field that must be there.
    pub(super) fn require(&self, key: &str) -> Option<Value<'a>> {
        let found = self.get(key);
        if found.is_none() {
            let path = join(&self.value.path, key);
            self.value.report.say(self.value.node.finding(path, format!("`{key}` is missing, but required")));
        }
        found
    }

    pub(super) fn string(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.string()
    }

    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        self.get(key)?.boolean()
    }

    pub(super) fn integer(&self, key: &str, bounds: RangeInclusive<i64>) -> Option<i64> {
        self.get(key)?.integer(bounds)
    }

    pub(super) fn object(&self, key: &str, fields: Fields) -> Option<Object<'a>> {
        self.get(key)?.object(fields)
    }

    /// The items of a list that may be absent.
    pub(super) fn items(&self, key: &str) -> Vec<Value<'a>> {
        self.get(key).map(|it| it.items()).unwrap_or_default()
    }

    /// Of fields that exclude each other, an error at each that is given beside the first. Whether any is given.
    pub(super) fn only_one(&self, excludes: impl Fn(&str) -> bool) -> bool {
        let mut given =
            self.value.node.entries().iter().filter(|it| excludes(&it.key) && !it.value.is_null());
        let Some(first) = given.next() else { return false };
        for entry in given {
            let path = join(&self.value.path, &entry.key);
            let message = format!("stands beside `{}`; only one of them can be", first.key);
            let finding = Finding::error(entry.key_place.location(), path, message);
            self.value.report.say(finding.help("remove one of the two"));
        }
        true
    }

    /// Says what is to be said about each field that nobody will read.
    fn classify(&self, fields: Fields) {
        for entry in self.value.node.entries() {
            let path = join(&self.value.path, &entry.key);
            let at = entry.key_place.location();
            let class = fields.iter().find(|(name, _)| *name == entry.key).map(|(_, class)| *class);
            match class {
                Some(Class::Honoured) => {}
                // Empty, false and zero are what is so without the field.
                Some(Class::NoOp(_) | Class::Refused(_)) if is_empty(&entry.value) => {}
                Some(Class::NoOp(why)) => self.value.report.say(Finding::warning(at, path, why)),
                Some(Class::Refused(why)) => self.value.report.say(Finding::error(at, path, why)),
                None => {
                    let finding = Finding::error(at, path, format!("unknown field `{}`", entry.key));
                    let names = fields.iter().map(|(name, _)| *name);
                    self.value.report.say(match closest(&entry.key, names) {
                        Some(name) => finding.help(format!("did you mean `{name}`?")),
                        None => finding,
                    });
                }
            }
        }
    }
}

fn is_empty(node: &Node) -> bool {
    match &node.kind {
        Kind::Sequence(items) => items.is_empty(),
        Kind::Mapping(entries) => entries.is_empty(),
        Kind::Scalar { text, .. } => {
            text.is_empty() || node.is_null() || node.as_bool() == Some(false) || node.as_i64() == Some(0)
        }
    }
}

/// The name that was probably meant, if one is near.
pub(super) fn closest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let most = (word.chars().count() / 3).clamp(1, 3);
    let near = names.map(|name| (distance(word, name), name)).filter(|(distance, _)| *distance <= most);
    near.min().map(|(_, name)| name)
}

/// Levenshtein's distance without regard to case. Words of strangers are cut, since it costs their product.
fn distance(a: &str, b: &str) -> usize {
    let letters = |it: &str| -> Vec<char> { it.chars().take(64).flat_map(char::to_lowercase).collect() };
    let (a, b) = (letters(a), letters(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, above) in b.iter().zip(row.iter().skip(1)) {
            let cost = usize::from(x != y);
            left = (diagonal + cost).min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["image", "imagePullPolicy", "name", "env"];
        let meant = |word| closest(word, names.into_iter());
        assert_eq!(meant("imagePulPolicy"), Some("imagePullPolicy"));
        assert_eq!(meant("imagepullpolicy"), Some("imagePullPolicy"));
        assert_eq!(meant("imge"), Some("image"));
        assert_eq!(meant("envs"), Some("env"));
        assert_eq!(meant("replicas"), None);
    }
}
