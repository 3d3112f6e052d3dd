//! The tree: values, their places, and how large a tree may be.

use std::sync::Arc;

use driftless_model::{Finding, Location};

use crate::scalar::{self, Scalar};

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of the file, as [`parse()`](crate::parse()) was given it.
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// One value, with its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// Scalar, list or map.
    pub kind: Kind,
    /// The start of the value in its file.
    pub place: Place,
    /// The tag as written, such as `!reset`; tags of YAML itself as `!!str`, `!!int` and so on.
    pub tag: Option<String>,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A single value.
    Scalar {
        /// The text as written, without quotes.
        text: String,
        /// Written without quotes, so it may be a null, a boolean or a number.
        plain: bool,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// A map. Its keys are unique.
    Mapping(Vec<Entry>),
}

/// One `key: value` of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The text of the key.
    pub key: String,
    /// The start of the key.
    pub key_place: Place,
    /// The value under the key.
    pub value: Node,
}

/// The limits of one file. Beyond them the file is refused with a finding.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the file. The text of all values, aliases expanded, may have eight times as many. Default: 1 MiB.
    pub bytes: usize,
    /// Keys and values in the file, aliases expanded. Default: 100,000.
    pub nodes: usize,
    /// The depth to which maps and lists may be nested. Default: 64.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1024 * 1024, nodes: 100_000, depth: 64 }
    }
}

impl Limits {
    /// Bytes of text that all values may have together.
    pub fn text(&self) -> usize {
        self.bytes.saturating_mul(8)
    }
}

impl Place {
    /// As the location of a finding.
    pub fn location(&self) -> Location {
        Location::new(&*self.file, self.line, self.column)
    }
}

impl Node {
    /// Null, or nothing at all after the colon.
    pub fn is_null(&self) -> bool {
        matches!(self.resolved(), Some(Scalar::Null))
    }

    /// The text of a scalar as written. `None` for a list or a map.
    pub fn as_scalar(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            Kind::Sequence(_) | Kind::Mapping(_) => None,
        }
    }

    /// True or false, without quotes. `yes`, `on` and `y` are text.
    pub fn as_bool(&self) -> Option<bool> {
        match self.resolved()? {
            Scalar::Bool(value) => Some(value),
            Scalar::Null | Scalar::Int(_) | Scalar::Unsigned(_) | Scalar::Float(_) | Scalar::Text(_) => None,
        }
    }

    /// A whole number without quotes, in any of Go's notations: `0123` and `0o123` are octal, `0x1F`, `1_000`.
    pub fn as_i64(&self) -> Option<i64> {
        match self.resolved()? {
            Scalar::Int(value) => Some(value),
            Scalar::Null | Scalar::Bool(_) | Scalar::Unsigned(_) | Scalar::Float(_) | Scalar::Text(_) => None,
        }
    }

    /// A number without quotes.
    #[expect(clippy::cast_precision_loss, reason = "a float is what was asked for")]
    pub fn as_f64(&self) -> Option<f64> {
        match self.resolved()? {
            Scalar::Int(value) => Some(value as f64),
            Scalar::Unsigned(value) => Some(value as f64),
            Scalar::Float(value) => Some(value),
            Scalar::Null | Scalar::Bool(_) | Scalar::Text(_) => None,
        }
    }

    /// The meaning of the scalar. `None` for a list or a map.
    pub fn resolved(&self) -> Option<Scalar<'_>> {
        match &self.kind {
            Kind::Scalar { text, plain } => Some(scalar::resolve(text, *plain, self.tag.as_deref())),
            Kind::Sequence(_) | Kind::Mapping(_) => None,
        }
    }

    /// The value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|it| it.key == key).map(|it| &it.value)
    }

    /// The entries of a map; empty for anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Mapping(entries) => entries,
            Kind::Scalar { .. } | Kind::Sequence(_) => &[],
        }
    }

    /// The items of a list; empty for anything else.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::Sequence(items) => items,
            Kind::Scalar { .. } | Kind::Mapping(_) => &[],
        }
    }

    /// The type of the value, for people: `list`, `map`, `null`, `boolean`, `number` or `string`.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Sequence(_) => "list",
            Kind::Mapping(_) => "map",
            Kind::Scalar { text, plain } => match scalar::resolve(text, *plain, self.tag.as_deref()) {
                Scalar::Null => "null",
                Scalar::Bool(_) => "boolean",
                Scalar::Int(_) | Scalar::Unsigned(_) | Scalar::Float(_) => "number",
                Scalar::Text(_) => "string",
            },
        }
    }

    /// An error at this place.
    pub fn finding(&self, path: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding::error(self.place.location(), path, message)
    }

    /// A warning at this place.
    pub fn warning(&self, path: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding::warning(self.place.location(), path, message)
    }
}

/// A path one step deeper: `services.web` and `ports` make `services.web.ports`; an index is written `[0]` and
/// follows without a dot.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() || key.starts_with('[') { format!("{path}{key}") } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn paths_have_dots_before_keys_and_none_before_indices() {
        assert_eq!(join("", "services"), "services");
        assert_eq!(join("services.web.ports", "[0]"), "services.web.ports[0]");
    }
}
