//! One YAML tree for both formats, in which everything knows its place in the file.
//!
//! Anchors are expanded and merge keys (`<<`) applied here, so that the front-ends see plain maps, lists and
//! scalars. What came through an alias keeps the place where it was written, not where it was used.
//!
//! Deliberately not here: any knowledge of Compose or Kubernetes. A scalar stays text until somebody asks what
//! it is (see [`Scalar`]), because the formats disagree on that.

use std::sync::Arc;

use driftless_model::{Finding, Location, Mask};

mod build;
pub mod edit;
mod scalar;

pub use build::parse;
pub use scalar::Scalar;

/// A place in a file. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

/// One value, with its place.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub place: Place,
    /// As written, such as `!reset`; those of YAML itself always as `!!str`, `!!int` and so on.
    pub tag: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// `plain`: without quotes, so that it may be a null, a boolean or a number.
    Scalar {
        text: String,
        plain: bool,
    },
    Sequence(Vec<Node>),
    /// Keys are unique.
    Mapping(Vec<Entry>),
}

/// One `key: value` of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub key_place: Place,
    pub value: Node,
}

/// How much a file may ask for. What is beyond is a finding.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the file. The text of all values, aliases expanded, may have eight times as many.
    pub bytes: usize,
    /// Keys and values in the file, aliases expanded.
    pub nodes: usize,
    /// How deep maps and lists may lie in each other.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1024 * 1024, nodes: 100_000, depth: 64 }
    }
}

impl Limits {
    /// How much text all values may be.
    pub fn text(&self) -> usize {
        self.bytes.saturating_mul(8)
    }
}

impl Place {
    pub fn location(&self) -> Location {
        Location::new(&*self.file, self.line, self.column)
    }
}

impl Node {
    /// Null, or nothing at all after the colon.
    pub fn is_null(&self) -> bool {
        matches!(self.resolved(), Some(Scalar::Null))
    }

    /// The text of a scalar as written, whatever it may mean. `None` for a list or a map.
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
            Scalar::Null | Scalar::Int(_) | Scalar::Float(_) | Scalar::Text(_) => None,
        }
    }

    /// A whole number without quotes, in any of Go's notations: `0123` and `0o123` are octal, `0x1F`, `1_000`.
    pub fn as_i64(&self) -> Option<i64> {
        match self.resolved()? {
            Scalar::Int(value) => Some(value),
            Scalar::Null | Scalar::Bool(_) | Scalar::Float(_) | Scalar::Text(_) => None,
        }
    }

    /// A number without quotes.
    #[expect(clippy::cast_precision_loss, reason = "a float is what was asked for")]
    pub fn as_f64(&self) -> Option<f64> {
        match self.resolved()? {
            Scalar::Int(value) => Some(value as f64),
            Scalar::Float(value) => Some(value),
            Scalar::Null | Scalar::Bool(_) | Scalar::Text(_) => None,
        }
    }

    /// What the scalar means. `None` for a list or a map.
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

    /// Of a map; of anything else, none.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Mapping(entries) => entries,
            Kind::Scalar { .. } | Kind::Sequence(_) => &[],
        }
    }

    /// Of a list; of anything else, none.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::Sequence(items) => items,
            Kind::Scalar { .. } | Kind::Mapping(_) => &[],
        }
    }

    /// What it is, for people.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Sequence(_) => "list",
            Kind::Mapping(_) => "map",
            Kind::Scalar { text, plain } => match scalar::resolve(text, *plain, self.tag.as_deref()) {
                Scalar::Null => "null",
                Scalar::Bool(_) => "boolean",
                Scalar::Int(_) | Scalar::Float(_) => "number",
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

/// Adds the source line it points at, unless that line may hold a secret.
#[must_use]
pub fn with_excerpt(mut finding: Finding, source: &[u8]) -> Finding {
    let index = (finding.location.line as usize).checked_sub(1);
    let line = index.and_then(|it| source.split(|byte| *byte == b'\n').nth(it));
    let line = line.and_then(|it| std::str::from_utf8(it).ok()).map(str::trim_end);
    finding.excerpt =
        line.filter(|it| is_harmless(it) && !speaks_of_values(&finding.path)).map(str::to_owned);
    finding
}

/// A line without any sign of a secret, and short enough to print.
fn is_harmless(line: &str) -> bool {
    !line.trim().is_empty()
        && line.len() <= 200
        && !Mask::is_telling(line)
        && !line.contains("://")
        && !line.contains("value:")
        && !line.chars().any(|it| it.is_control() && it != '\t')
}

/// Environments, arguments and contents may hold a secret under any name.
fn speaks_of_values(path: &str) -> bool {
    let telling =
        ["env", "environment", "args", "command", "entrypoint", "content", "data", "stringData", "literals"];
    path.split(['.', '[']).any(|it| telling.contains(&it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_shows_the_line_but_no_secret() {
        let source = b"image: nginx\nDB_PASSWORD: hunter2\n";
        let at = |line| Finding::error(Location::new("a.yaml", line, 1), "", "wrong");
        assert_eq!(with_excerpt(at(1), source).excerpt.as_deref(), Some("image: nginx"));
        assert_eq!(with_excerpt(at(2), source).excerpt, None);
        assert_eq!(with_excerpt(at(0), source).excerpt, None);
        assert_eq!(with_excerpt(at(9), source).excerpt, None);
        let mut in_env = at(1);
        in_env.path = "services.web.environment[0]".to_owned();
        assert_eq!(with_excerpt(in_env, source).excerpt, None);
    }

    #[test]
    fn paths_are_joined_with_dots_and_indices_follow_without() {
        assert_eq!(join("", "services"), "services");
        assert_eq!(join("services.web.ports", "[0]"), "services.web.ports[0]");
    }
}
