//! Typed values out of a YAML tree. Each mistake becomes a [`Finding`] with file, line, column and path.
//!
//! Every map is opened with the table of its [`Keys`], so that no key is silently ignored: it is used, or it has no
//! effect (a warning), or it is refused (an error), or it is unknown (an error, with the key that was probably
//! meant).
//!
//! The formats disagree on scalars: `yes` is a boolean in Kubernetes, text in Compose. A [`Dialect`] holds these rules
//! and the words of its format.

use std::{cell::RefCell, marker::PhantomData, ops::RangeInclusive};

use driftless_model::Finding;

use crate::{Entry, Kind, Node, Place, Scalar, closest, join};

/// Collects the findings of one reading.
#[derive(Debug, Default)]
pub struct Report {
    findings: RefCell<Vec<Finding>>,
    refused: RefCell<Vec<Finding>>,
}

impl Report {
    /// Adds a finding.
    pub fn say(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }

    /// Adds several findings.
    pub fn say_all(&self, findings: Vec<Finding>) {
        self.findings.borrow_mut().extend(findings);
    }

    /// Adds an error about a valid key or value that is not supported. [`Self::take_refused`] takes these apart from the
    /// others, for the caller that accepts them in a part that is not used.
    pub fn refuse(&self, finding: Finding) {
        self.refused.borrow_mut().push(finding);
    }

    /// Takes out the errors added by [`Self::refuse`].
    pub fn take_refused(&self) -> Vec<Finding> {
        self.refused.take()
    }

    /// Whether there is an error so far.
    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// The number of errors so far.
    pub fn errors(&self) -> usize {
        self.refused.borrow().len() + self.findings.borrow().iter().filter(|it| it.is_error()).count()
    }

    /// All findings, in the order in which they were found; refused keys and values last.
    pub fn into_findings(self) -> Vec<Finding> {
        let mut findings = self.findings.into_inner();
        findings.append(&mut self.refused.into_inner());
        findings
    }
}

/// The support for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It is read.
    Used,
    /// It makes no difference here, for this reason: a warning.
    NoEffect(&'static str),
    /// Without it the result would be wrong, for this reason: an error.
    Refused(&'static str),
}

/// The keys that a map may have.
pub trait Keys {
    /// The support for a key. `None`: the format does not know it.
    fn support(&self, key: &str) -> Option<Support>;

    /// The names of all keys, for "did you mean".
    fn names(&self) -> Vec<&'static str>;

    /// The key that has a key in its map, if that is one of these keys and only one.
    fn parent_of(&self, _key: &str) -> Option<&'static str> {
        None
    }
}

impl Keys for [(&'static str, Support)] {
    fn support(&self, key: &str) -> Option<Support> {
        self.iter().find(|(name, _)| *name == key).map(|(_, support)| *support)
    }

    fn names(&self) -> Vec<&'static str> {
        self.iter().map(|(name, _)| *name).collect()
    }
}

/// Keys that are all used.
impl Keys for [&'static str] {
    fn support(&self, key: &str) -> Option<Support> {
        self.contains(&key).then_some(Support::Used)
    }

    fn names(&self) -> Vec<&'static str> {
        self.to_vec()
    }
}

/// The rules by which a format reads scalars, and its words in findings.
pub trait Dialect: Clone + std::fmt::Debug {
    /// Text, as [`Value::string`] returns it.
    type Text<'n>: AsRef<str>;

    /// The text of a scalar that is a string in this format.
    fn text(node: &Node) -> Option<Self::Text<'_>>;

    /// The value of a scalar that is a boolean in this format.
    fn boolean(node: &Node) -> Option<bool>;

    /// The value of a scalar that is a whole number in this format.
    fn integer(node: &Node) -> Option<i64>;

    /// The type of a value, for people: `a list`, `a number`.
    fn type_name(node: &Node) -> &'static str {
        match node.kind_name() {
            "list" => "a list",
            "map" => "a map",
            "null" => "null",
            "boolean" => "a boolean",
            "number" => "a number",
            _ => "a string",
        }
    }

    /// Whether a value means the same as a key that is not written. Such a key is neither warned about nor refused.
    fn is_absent(_value: &Node) -> bool {
        false
    }

    /// Whether a map may have this key although its table does not list it.
    fn is_extension(_key: &str) -> bool {
        false
    }

    /// The message about an unknown key.
    fn unknown(key: &str) -> String {
        format!("unknown key `{key}`")
    }

    /// The message about a key without effect.
    fn no_effect(key: &str, why: &str) -> String {
        format!("`{key}` is ignored: {why}")
    }

    /// The message about a refused key.
    fn refused(key: &str, why: &str) -> String {
        format!("`{key}` is not supported: {why}")
    }
}

/// One value of a tree, with its path and the report that takes its findings.
#[derive(Clone, Debug)]
pub struct Value<'a, D> {
    /// The value itself.
    pub node: &'a Node,
    /// The path in the document, such as `services.web.ports[0]`.
    pub path: String,
    report: &'a Report,
    dialect: PhantomData<D>,
}

/// A map whose keys were checked against a table.
#[derive(Clone, Debug)]
pub struct Object<'a, D> {
    /// The map itself.
    pub value: Value<'a, D>,
}

impl<'a, D: Dialect> Value<'a, D> {
    /// A value at `path`.
    pub fn new(node: &'a Node, path: impl Into<String>, report: &'a Report) -> Self {
        Self { node, path: path.into(), report, dialect: PhantomData }
    }

    /// Its place in its file.
    pub fn place(&self) -> &'a Place {
        &self.node.place
    }

    /// The report that takes its findings.
    pub fn report(&self) -> &'a Report {
        self.report
    }

    /// Reports an error at this value.
    pub fn error(&self, message: impl Into<String>) {
        self.report.say(self.node.finding(&*self.path, message));
    }

    /// Reports an error at this value, with what to do about it.
    pub fn error_help(&self, message: impl Into<String>, help: impl Into<String>) {
        self.report.say(self.node.finding(&*self.path, message).help(help));
    }

    /// Reports a warning at this value.
    pub fn warning(&self, message: impl Into<String>) {
        self.report.say(self.node.warning(&*self.path, message));
    }

    /// Reports that this value is valid, but not supported. See [`Report::refuse`].
    pub fn refuse(&self, message: impl Into<String>) {
        self.report.refuse(self.node.finding(&*self.path, message));
    }

    /// Reports that this value has the wrong type. `expected` has its article: `a list`.
    pub fn wrong_type(&self, expected: &str) {
        self.error(format!("must be {expected}, but it is {}", D::type_name(self.node)));
    }

    /// A string. A number or boolean is an error that asks for quotes.
    pub fn string(&self) -> Option<D::Text<'a>> {
        let text = D::text(self.node);
        if text.is_none() {
            let message = format!("must be a string, but it is {}", D::type_name(self.node));
            let finding = self.node.finding(&*self.path, message);
            let needs_quotes = self.node.as_scalar().is_some() && !self.node.is_null();
            self.report.say(if needs_quotes { finding.help("put it in quotes") } else { finding });
        }
        text
    }

    /// A string that is not empty.
    pub fn text(&self) -> Option<D::Text<'a>> {
        let text = self.string()?;
        if text.as_ref().is_empty() {
            self.error("must not be empty");
            return None;
        }
        Some(text)
    }

    /// One of a few words.
    pub fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.string()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text.as_ref()) {
            return Some(*meaning);
        }
        let known: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        self.error_help(
            format!("`{}` is not a value of this field", text.as_ref()),
            format!("use {}", known.join(" or ")),
        );
        None
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        let value = D::boolean(self.node);
        if value.is_none() {
            self.error_help(
                format!("must be true or false, but it is {}", D::type_name(self.node)),
                "write `true` or `false` without quotes",
            );
        }
        value
    }

    /// A whole number within bounds.
    pub fn integer(&self, bounds: RangeInclusive<i64>) -> Option<i64> {
        let Some(value) = D::integer(self.node) else {
            self.not_an_integer();
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

    fn not_an_integer(&self) {
        match self.node.resolved() {
            Some(Scalar::Text(text)) if text.parse::<i64>().is_ok() => {
                self.error_help(
                    format!("must be a number, but `\"{text}\"` is a string"),
                    "remove the quotes",
                );
            }
            Some(Scalar::Float(_)) => self.error("must be a whole number"),
            Some(Scalar::Text(_) | Scalar::Null | Scalar::Bool(_) | Scalar::Int(_) | Scalar::Unsigned(_))
            | None => {
                self.wrong_type("a whole number");
            }
        }
    }

    /// The item at an index of this list.
    #[must_use]
    pub fn item(&self, index: usize, node: &'a Node) -> Self {
        Self::new(node, format!("{}[{index}]", self.path), self.report)
    }

    /// The value of a key of this map.
    #[must_use]
    pub fn key(&self, key: &str, node: &'a Node) -> Self {
        Self::new(node, join(&self.path, key), self.report)
    }

    /// The items of a list. Anything else is an error.
    pub fn sequence(&self) -> Vec<Self> {
        if !matches!(self.node.kind, Kind::Sequence(_)) {
            self.wrong_type("a list");
        }
        self.node.items().iter().enumerate().map(|(index, node)| self.item(index, node)).collect()
    }

    /// The items of a list; a null among them is an error.
    pub fn items(&self) -> Vec<Self> {
        let mut items = self.sequence();
        items.retain(|item| {
            if item.node.is_null() {
                item.error("a list item must not be empty");
            }
            !item.node.is_null()
        });
        items
    }

    /// A list of strings.
    pub fn strings(&self) -> Vec<String> {
        self.items().iter().filter_map(|it| it.string().map(|text| text.as_ref().to_owned())).collect()
    }

    /// The entries of a map. Anything else is an error.
    pub fn mapping(&self) -> &'a [Entry] {
        if !matches!(self.node.kind, Kind::Mapping(_)) {
            self.wrong_type("a map");
        }
        self.node.entries()
    }

    /// A map whose keys the user chooses; entries without a value are left out.
    pub fn pairs(&self) -> Vec<(&'a str, Self)> {
        let entries = self.mapping().iter().filter(|it| !it.value.is_null());
        entries.map(|entry| (entry.key.as_str(), self.key(&entry.key, &entry.value))).collect()
    }

    /// A map with these keys. `None` if it is something else, which is reported.
    pub fn object(self, keys: &(impl Keys + ?Sized)) -> Option<Object<'a, D>> {
        if !matches!(self.node.kind, Kind::Mapping(_)) {
            self.wrong_type("a map");
            return None;
        }
        for entry in self.node.entries() {
            self.is_used(entry, keys);
        }
        Some(Object { value: self })
    }

    /// The entries of a map with these keys: only those that are used, also the ones without a value.
    pub fn fields(&self, keys: &(impl Keys + ?Sized)) -> Vec<(&'a str, Self)> {
        let entries = self.mapping().iter().filter(|entry| self.is_used(entry, keys));
        entries.map(|entry| (entry.key.as_str(), self.key(&entry.key, &entry.value))).collect()
    }

    /// Whether a key is used. If not, the reason is reported.
    fn is_used(&self, entry: &Entry, keys: &(impl Keys + ?Sized)) -> bool {
        let key = entry.key.as_str();
        let place = || (entry.key_place.location(), join(&self.path, key));
        match keys.support(key) {
            Some(Support::Used) => return true,
            Some(Support::NoEffect(_) | Support::Refused(_)) if D::is_absent(&entry.value) => {}
            Some(Support::NoEffect(why)) => {
                let (location, path) = place();
                self.report.say(Finding::warning(location, path, D::no_effect(key, why)));
            }
            Some(Support::Refused(why)) => {
                let (location, path) = place();
                self.report.refuse(Finding::error(location, path, D::refused(key, why)));
            }
            None if D::is_extension(key) => {}
            None => self.report_unknown(entry, &keys.names(), keys.parent_of(key)),
        }
        false
    }

    /// Reports a key that is none of `known`, with the one that was probably meant.
    pub fn unknown(&self, entry: &Entry, known: &[&str]) {
        self.report_unknown(entry, known, None);
    }

    /// The same for a key that the map of `parent` has.
    fn report_unknown(&self, entry: &Entry, known: &[&str], parent: Option<&str>) {
        let key = &entry.key;
        let path = join(&self.path, key);
        let finding = Finding::error(entry.key_place.location(), path, D::unknown(key));
        let similar = closest(key, known.iter().copied()).map(|name| format!("did you mean `{name}`?"));
        let help = similar.or_else(|| parent.map(|parent| format!("`{key}` is a key of `{parent}`")));
        self.report.say(match help {
            Some(help) => finding.help(help),
            None => finding,
        });
    }
}

impl<'a, D: Dialect> Object<'a, D> {
    /// The value of a key, if it is given and not null.
    pub fn get(&self, key: &str) -> Option<Value<'a, D>> {
        let node = self.value.node.get(key).filter(|it| !it.is_null())?;
        Some(self.value.key(key, node))
    }

    /// The value of a key, unless it is an empty text: for fields whose default stands for that, too.
    pub fn filled(&self, key: &str) -> Option<Value<'a, D>> {
        self.get(key).filter(|value| value.node.as_scalar() != Some(""))
    }

    /// The value of a key; if it is missing, that is an error.
    pub fn require(&self, key: &str) -> Option<Value<'a, D>> {
        let found = self.get(key);
        if found.is_none() {
            let path = join(&self.value.path, key);
            let message = format!("`{key}` is missing, but required");
            self.value.report.say(self.value.node.finding(path, message));
        }
        found
    }

    /// The string under a key that may be missing.
    pub fn string(&self, key: &str) -> Option<D::Text<'a>> {
        self.get(key)?.string()
    }

    /// The boolean under a key that may be missing.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        self.get(key)?.boolean()
    }

    /// The whole number under a key that may be missing.
    pub fn integer(&self, key: &str, bounds: RangeInclusive<i64>) -> Option<i64> {
        self.get(key)?.integer(bounds)
    }

    /// The map under a key that may be missing.
    pub fn object(&self, key: &str, keys: &(impl Keys + ?Sized)) -> Option<Self> {
        self.get(key)?.object(keys)
    }

    /// The items of a list under a key that may be missing.
    pub fn items(&self, key: &str) -> Vec<Value<'a, D>> {
        self.get(key).map(|it| it.items()).unwrap_or_default()
    }

    /// Of keys that exclude each other, reports each one given after the first. Returns whether any is given.
    pub fn only_one(&self, excludes: impl Fn(&str) -> bool) -> bool {
        let mut given =
            self.value.node.entries().iter().filter(|it| excludes(&it.key) && !it.value.is_null());
        let Some(first) = given.next() else { return false };
        for entry in given {
            let path = join(&self.value.path, &entry.key);
            let message = format!("cannot be set together with `{}`", first.key);
            let finding = Finding::error(entry.key_place.location(), path, message);
            self.value.report.say(finding.help("remove one of the two"));
        }
        true
    }
}
