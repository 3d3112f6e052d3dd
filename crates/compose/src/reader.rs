//! Reads typed values out of the YAML tree, and collects what is wrong with them, each with its place and path.
//!
//! It knows YAML's types and the shapes that the Compose schema repeats (a list or a map, a word or a list), but
//! no field.

use std::{borrow::Cow, fmt, time::Duration};

use super::{
    scalar::{self, Plain},
    support::{self, Support},
};
use driftless_model::{Finding, Location};
use driftless_yaml::{Entry, Kind, Node, Place};

/// Where in the document: a chain on the stack, so that reading what is right allocates nothing for it.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

/// What was found to say so far.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) findings: Vec<Finding>,
    /// Errors that only matter if the service they are in is used: what it asks for cannot be done yet.
    pub(super) unsupported: Vec<Finding>,
}

/// One `NAME=value`, from a list or from a map. A bare name has no value.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) name: String,
    pub(super) value: Option<String>,
}

/// A value and the place where it stands.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: Place,
    pub(super) path: String,
}

impl<T> Placed<T> {
    /// Another value in the same place.
    pub(super) fn with<U>(&self, value: U) -> Placed<U> {
        Placed { value, place: self.place.clone(), path: self.path.clone() }
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Finding {
        Finding::error(self.place.location(), self.path.clone(), message)
    }

    pub(super) fn warning(&self, message: impl Into<String>) -> Finding {
        Finding::warning(self.place.location(), self.path.clone(), message)
    }
}

impl<'a> Path<'a> {
    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl Reader {
    pub(super) fn error(&mut self, place: &Place, path: &Path<'_>, message: impl Into<String>) {
        self.findings.push(Finding::error(place.location(), path.to_string(), message));
    }

    pub(super) fn warning(&mut self, place: &Place, path: &Path<'_>, message: impl Into<String>) {
        self.findings.push(Finding::warning(place.location(), path.to_string(), message));
    }

    /// A valid field that changes nothing here.
    pub(super) fn ignored(&mut self, entry: &Entry, parent: &Path<'_>, why: &str) {
        let message = format!("`{}` is ignored: {why}", entry.key);
        self.warning(&entry.key_place, &parent.key(&entry.key), message);
    }

    /// A valid value that cannot be done, for this reason.
    pub(super) fn refuse(&mut self, node: &Node, path: &Path<'_>, why: &str) {
        self.unsupported.push(Finding::error(Self::location(node), path.to_string(), why));
    }

    /// A key that is not used, as [`support`] has it: of no effect, refused, or unknown.
    pub(super) fn other(&mut self, entry: &Entry, parent: &Path<'_>, object: &str) {
        let key = entry.key.as_str();
        let path = parent.key(key).to_string();
        let refused = |message| Finding::error(entry.key_place.location(), path, message);
        match support::of(object, key) {
            Some(Support::NoEffect(why)) => self.ignored(entry, parent, why),
            Some(Support::Refused(why)) => {
                self.unsupported.push(refused(format!("`{key}` is not supported: {why}")));
            }
            Some(Support::Used(_)) => {
                self.unsupported.push(refused(format!("`{key}` is not supported yet")));
            }
            None => {
                let known: Vec<&str> = support::names(object).collect();
                self.unknown(entry, parent, &known.join(" "));
            }
        }
    }

    /// A key that is none of `known`, which are separated by spaces. Extensions (`x-…`) are allowed wherever this is asked.
    pub(super) fn unknown(&mut self, entry: &Entry, parent: &Path<'_>, known: &str) {
        if entry.key.starts_with("x-") {
            return;
        }
        let path = parent.key(&entry.key).to_string();
        let finding =
            Finding::error(entry.key_place.location(), path, format!("unknown key `{}`", entry.key));
        self.findings.push(match closest(&entry.key, known) {
            Some(meant) => finding.help(format!("did you mean `{meant}`?")),
            None => finding,
        });
    }

    pub(super) fn placed<T>(node: &Node, path: &Path<'_>, value: T) -> Placed<T> {
        Placed { value, place: node.place.clone(), path: path.to_string() }
    }

    /// The entries of a map. Anything else is an error, and has none.
    pub(super) fn mapping<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> &'n [Entry] {
        match &node.kind {
            Kind::Mapping(entries) => entries,
            Kind::Scalar { .. } | Kind::Sequence(_) => {
                self.wrong_type(node, path, "a mapping");
                &[]
            }
        }
    }

    /// As [`Self::mapping`], where the schema also takes nothing at all.
    pub(super) fn optional_mapping<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> &'n [Entry] {
        if node.is_null() { &[] } else { self.mapping(node, path) }
    }

    pub(super) fn sequence<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> &'n [Node] {
        match &node.kind {
            Kind::Sequence(items) => items,
            Kind::Scalar { .. } | Kind::Mapping(_) => {
                self.wrong_type(node, path, "a list");
                &[]
            }
        }
    }

    /// Text, and not a plain number, date or truth value.
    pub(super) fn string(&mut self, node: &Node, path: &Path<'_>) -> Option<String> {
        self.text(node, path).map(Cow::into_owned)
    }

    /// As [`Self::string`], for a look at it.
    pub(super) fn text<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> Option<Cow<'n, str>> {
        match Plain::of(node) {
            Some((text, Plain::Text)) => Some(Cow::Borrowed(text)),
            Some((_, Plain::Bool(_) | Plain::Integer(_) | Plain::Float(_))) => {
                let found = type_of(node);
                let path = path.to_string();
                let finding =
                    Finding::error(node.place.location(), path, format!("expected text, found {found}"));
                self.findings.push(finding.help("put it in quotes"));
                None
            }
            // The reference parser takes dates for text wherever text is asked for.
            Some((_, Plain::Time(text))) => Some(Cow::Owned(text)),
            Some((_, Plain::Null)) | None => {
                self.wrong_type(node, path, "text");
                None
            }
        }
    }

    /// Text or a number, as text.
    pub(super) fn text_or_number(&mut self, node: &Node, path: &Path<'_>) -> Option<String> {
        match Plain::of(node) {
            Some((text, plain @ (Plain::Text | Plain::Integer(_) | Plain::Float(_) | Plain::Time(_)))) => {
                plain.print(text)
            }
            Some((_, Plain::Null | Plain::Bool(_))) | None => {
                self.wrong_type(node, path, "text or a number");
                None
            }
        }
    }

    /// Any scalar as text; null is `Some(None)`, and `None` is an error that was told.
    #[expect(clippy::option_option, reason = "a wrong value and none at all are not the same")]
    pub(super) fn any_scalar(&mut self, node: &Node, path: &Path<'_>) -> Option<Option<String>> {
        let scalar = Plain::of(node);
        if scalar.is_none() {
            self.wrong_type(node, path, "a single value");
        }
        scalar.map(|(text, plain)| plain.print(text))
    }

    pub(super) fn boolean(&mut self, node: &Node, path: &Path<'_>) -> Option<bool> {
        let value = match Plain::of(node) {
            Some((_, Plain::Bool(value))) => Some(value),
            Some((text, Plain::Text)) => scalar::boolean(text),
            Some((_, Plain::Null | Plain::Integer(_) | Plain::Float(_) | Plain::Time(_))) | None => None,
        };
        if value.is_none() {
            self.wrong_type(node, path, "`true` or `false`");
        }
        value
    }

    /// A whole number in the range of `T`, as a number or as text.
    pub(super) fn integer<T: TryFrom<i64>>(&mut self, node: &Node, path: &Path<'_>) -> Option<T> {
        let value = match Plain::of(node) {
            Some((_, Plain::Integer(value))) => Some(value),
            Some((text, Plain::Text)) => text.parse().ok(),
            Some((_, Plain::Float(value))) if value.fract() == 0.0 && value.abs() < 1e15 => {
                #[expect(clippy::cast_possible_truncation, reason = "checked just above")]
                let value = value as i64;
                Some(value)
            }
            Some((_, Plain::Null | Plain::Bool(_) | Plain::Float(_) | Plain::Time(_))) | None => None,
        };
        let value = value.and_then(|it| T::try_from(it).ok());
        if value.is_none() {
            self.wrong_type(node, path, "a whole number in range");
        }
        value
    }

    pub(super) fn float(&mut self, node: &Node, path: &Path<'_>) -> Option<f64> {
        let value = match Plain::of(node) {
            #[expect(clippy::cast_precision_loss, reason = "nobody counts processors beyond 2^52")]
            Some((_, Plain::Integer(value))) => Some(value as f64),
            Some((_, Plain::Float(value))) => Some(value),
            Some((text, Plain::Text)) => text.parse().ok().filter(|it: &f64| it.is_finite()),
            Some((_, Plain::Null | Plain::Bool(_) | Plain::Time(_))) | None => None,
        };
        if value.is_none() {
            self.wrong_type(node, path, "a number");
        }
        value
    }

    pub(super) fn duration(&mut self, node: &Node, path: &Path<'_>) -> Option<Duration> {
        let text = self.text(node, path)?;
        let value = scalar::duration(&text);
        if value.is_none() {
            self.error(&node.place, path, "not a duration; write a number with a unit, such as `1m30s`");
        }
        value
    }

    /// A size in bytes, as a number or with a unit.
    pub(super) fn bytes(&mut self, node: &Node, path: &Path<'_>) -> Option<u64> {
        let value = match Plain::of(node) {
            Some((_, Plain::Integer(value))) => u64::try_from(value).ok(),
            Some((text, Plain::Text | Plain::Float(_))) => scalar::bytes(text),
            Some((_, Plain::Null | Plain::Bool(_) | Plain::Time(_))) | None => None,
        };
        if value.is_none() {
            self.error(
                &node.place,
                path,
                "not a size; write a number of bytes, or one with a unit, such as `512m`",
            );
        }
        value
    }

    pub(super) fn strings(&mut self, node: &Node, path: &Path<'_>) -> Vec<String> {
        let items = self.sequence(node, path).iter().enumerate();
        items.filter_map(|(index, item)| self.string(item, &path.index(index))).collect()
    }

    /// One text, or a list of them.
    pub(super) fn string_or_list(&mut self, node: &Node, path: &Path<'_>) -> Vec<String> {
        match &node.kind {
            Kind::Sequence(_) => self.strings(node, path),
            Kind::Scalar { .. } | Kind::Mapping(_) => self.string(node, path).into_iter().collect(),
        }
    }

    /// A map, or a list of `NAME=value`. In a list only text is allowed, in a map any scalar.
    pub(super) fn pairs(&mut self, node: &Node, path: &Path<'_>) -> Vec<Pair> {
        match &node.kind {
            Kind::Sequence(items) => {
                let mut pairs = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let Some(text) = self.string(item, &path.index(index)) else { continue };
                    pairs.push(match text.split_once('=') {
                        Some((name, value)) => Pair { name: name.to_owned(), value: Some(value.to_owned()) },
                        None => Pair { name: text, value: None },
                    });
                }
                pairs
            }
            Kind::Mapping(entries) => {
                let mut pairs = Vec::with_capacity(entries.len());
                for entry in entries {
                    if let Some(value) = self.any_scalar(&entry.value, &path.key(&entry.key)) {
                        pairs.push(Pair { name: entry.key.clone(), value });
                    }
                }
                pairs
            }
            Kind::Scalar { .. } => {
                self.wrong_type(node, path, "a mapping or a list");
                Vec::new()
            }
        }
    }

    pub(super) fn wrong_type(&mut self, node: &Node, path: &Path<'_>, expected: &str) {
        self.error(&node.place, path, format!("expected {expected}, found {}", type_of(node)));
    }

    pub(super) fn location(node: &Node) -> Location {
        node.place.location()
    }
}

fn type_of(node: &Node) -> &'static str {
    match &node.kind {
        Kind::Mapping(_) => "a mapping",
        Kind::Sequence(_) => "a list",
        Kind::Scalar { .. } => Plain::of(node).map_or("nothing", |(_, plain)| plain.name()),
    }
}

/// The known key that was most likely meant, if any is near.
fn closest<'k>(key: &str, known: &'k str) -> Option<&'k str> {
    let best = known.split_whitespace().map(|it| (distance(key, it), it)).min()?;
    (best.0 <= 1 + key.chars().count() / 4).then_some(best.1)
}

/// How many letters to change, add, drop or swap with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    // Anything this long is nobody's typing mistake, and its table would only cost time.
    let one: Vec<char> = one.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let change = row[j] + usize::from(a != b);
            let mut cost = change.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && one[i - 1] == *b && other[j - 1] == *a {
                cost = cost.min(before[j - 1] + 1);
            }
            next.push(cost);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_finds_the_key_that_was_meant() {
        let known = "image environment env_file ports";
        assert_eq!(closest("imgae", known), Some("image"));
        assert_eq!(closest("enviroment", known), Some("environment"));
        assert_eq!(closest("port", known), Some("ports"));
        assert_eq!(closest("wrongField", known), None);
    }

    #[test]
    fn paths_print_as_people_write_them() {
        let services = Path::Root.key("services");
        let web = services.key("web");
        let ports = web.key("ports");
        assert_eq!(ports.index(0).to_string(), "services.web.ports[0]");
    }
}
