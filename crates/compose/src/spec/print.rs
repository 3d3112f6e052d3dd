//! The canonical form of a loaded project as JSON, equal to the output of the reference parser field by field.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::spec::{
    command_line,
    keys::PROJECT,
    paths,
    scalar::{self, Plain},
    shape::{Object, Shape, Zero},
    short, tree,
};
use driftless_yaml::{Kind, Node};

/// Prints a project.
pub(crate) struct Printer<'a> {
    /// The project's folder, as an absolute path on some machine.
    pub(crate) folder: &'a str,
}

impl Printer<'_> {
    /// A whole project. As in the reference parser, models are left out.
    pub(crate) fn project(&self, root: &Node) -> Value {
        let mut printed = self.object(root, &PROJECT);
        for key in ["include", "models", "version"] {
            printed.remove(key);
        }
        printed.entry("services").or_insert_with(|| Value::Object(Map::new()));
        for entry in root.entries().iter().filter(|it| it.key.starts_with("x-")) {
            printed.insert(entry.key.clone(), raw(&entry.value));
        }
        Value::Object(printed)
    }

    fn object(&self, node: &Node, object: &Object) -> Map<String, Value> {
        let mut printed = Map::new();
        for key in object.fields {
            if let Some(value) = self.value(node.get(key.name), &key.shape) {
                printed.insert(key.name.to_owned(), value);
            }
        }
        printed
    }

    /// A value, or the default of a missing one. `None`: it is left out.
    fn value(&self, node: Option<&Node>, shape: &Shape) -> Option<Value> {
        match (node, shape) {
            (None, Shape::Command) => return Some(Value::Null),
            (None, Shape::Always(object)) => {
                let nothing = Value::Object(self.nothing(object));
                return Some(nothing);
            }
            (None, _) => return None,
            (Some(_), _) => {}
        }
        let node = node?;
        match shape {
            Shape::Any => Some(raw(node)),
            Shape::Text
            | Shape::TextOrNull
            | Shape::Word(_)
            | Shape::Like(_)
            | Shape::TextOrInteger
            | Shape::TextOrBoolean => text(node).filter(|it| !it.is_empty()).map(Value::String),
            Shape::Path => text(node).filter(|it| !it.is_empty()).map(|it| self.path(&it)),
            Shape::Context => text(node).filter(|it| !it.is_empty()).map(|it| self.context(&it)),
            Shape::Boolean(Zero::Kept) => boolean(node).map(Value::Bool),
            Shape::Boolean(Zero::Dropped) | Shape::StrictBoolean | Shape::External => {
                boolean(node).filter(|it| *it || matches!(shape, Shape::StrictBoolean)).map(Value::Bool)
            }
            Shape::UnlessFalse => boolean(node).filter(|it| !it).map(Value::Bool),
            Shape::Integer(zero) => {
                integer(node).filter(|it| *it != 0 || *zero == Zero::Kept).map(Value::from)
            }
            Shape::Between(..) | Shape::StrictInteger | Shape::Number | Shape::RawMode => {
                integer(node).filter(|it| *it != 0).map(Value::from)
            }
            Shape::Count => {
                let is_all = tree::as_text(node).is_some_and(|it| it.eq_ignore_ascii_case("all"));
                if is_all {
                    Some(Value::from(-1))
                } else {
                    integer(node).filter(|it| *it != 0).map(Value::from)
                }
            }
            Shape::Float | Shape::Processors => single(node),
            Shape::Bytes | Shape::TextBytes => {
                bytes(node).filter(|it| *it != 0).map(|it| it.to_string().into())
            }
            Shape::Duration(zero) => {
                let value = text(node).and_then(|it| scalar::duration(&it))?;
                (!value.is_zero() || *zero == Zero::Kept).then(|| duration(value).into())
            }
            Shape::Mode => mode(node).map(|it| format!("0{it:o}").into()),
            Shape::Texts | Shape::Repeated | Shape::TextsOrNumbers | Shape::TextOrTexts => texts(node),
            Shape::Paths => self.paths(node),
            Shape::Command => Some(command(node)),
            Shape::Test => test(node),
            Shape::Environment | Shape::Labels | Shape::Contexts | Shape::Options => self.pairs(node, shape),
            Shape::Multiple => multiple(node),
            Shape::Hosts => hosts(node),
            Shape::Ssh => ssh(node),
            Shape::Map(_, inner) => self.map(node, inner),
            Shape::List(inner) | Shape::Each(inner) => {
                let items: Vec<Value> =
                    node.items().iter().map(|it| self.value(Some(it), inner).unwrap_or_default()).collect();
                (!items.is_empty()).then_some(Value::Array(items))
            }
            Shape::Short(short, long) => match &node.kind {
                Kind::Scalar { .. } => self.value(Some(node), short),
                Kind::Mapping(_) | Kind::Sequence(_) => self.value(Some(node), long),
            },
            Shape::Listed(list, other) => match &node.kind {
                Kind::Sequence(_) => self.value(Some(node), list),
                Kind::Mapping(_) | Kind::Scalar { .. } => self.value(Some(node), other),
            },
            Shape::OrNull(inner) => {
                if node.is_null() {
                    None
                } else {
                    self.value(Some(node), inner)
                }
            }
            Shape::Extension => None,
            Shape::Object(object) | Shape::Always(object) => Some(Value::Object(self.object(node, object))),
            Shape::Capitalised(object) => {
                let capital = |key: String| {
                    let mut letters = key.chars();
                    let first = letters.next().map(|it| it.to_ascii_uppercase());
                    first.into_iter().chain(letters).collect::<String>()
                };
                let printed = self.object(node, object);
                Some(Value::Object(printed.into_iter().map(|(key, value)| (capital(key), value)).collect()))
            }
        }
    }

    /// The defaults of an object that is missing.
    fn nothing(&self, object: &Object) -> Map<String, Value> {
        let keys = object.fields.iter();
        keys.filter_map(|key| Some((key.name.to_owned(), self.value(None, &key.shape)?))).collect()
    }

    fn map(&self, node: &Node, inner: &Shape) -> Option<Value> {
        let entries = node.entries().iter();
        // A key without a value is printed as null.
        let printed: Map<String, Value> = entries
            .map(|it| (it.key.clone(), self.value(Some(&it.value), inner).unwrap_or_default()))
            .collect();
        (!printed.is_empty()).then_some(Value::Object(printed))
    }

    fn pairs(&self, node: &Node, shape: &Shape) -> Option<Value> {
        let mut printed = Map::new();
        for (name, value) in pairs(node) {
            let value = match (value, shape) {
                (None, Shape::Environment) => Value::Null,
                (None, _) => Value::from(""),
                (Some(value), Shape::Contexts) => self.context(&value),
                (Some(value), _) => value.into(),
            };
            printed.insert(name, value);
        }
        (!printed.is_empty()).then_some(Value::Object(printed))
    }

    fn paths(&self, node: &Node) -> Option<Value> {
        let one = || text(node).into_iter().map(|it| self.path(&it)).collect();
        let printed: Vec<Value> = match &node.kind {
            Kind::Sequence(items) => items.iter().filter_map(text).map(|it| self.path(&it)).collect(),
            Kind::Scalar { .. } | Kind::Mapping(_) => one(),
        };
        (!printed.is_empty()).then_some(Value::Array(printed))
    }

    /// An absolute path.
    fn path(&self, path: &str) -> Value {
        absolute(self.folder, path).into()
    }

    fn context(&self, context: &str) -> Value {
        if paths::is_elsewhere(context) { context.into() } else { self.path(context) }
    }
}

/// An absolute path. A path from the root or from a user's home stays as it is.
pub(crate) fn absolute(folder: &str, path: &str) -> String {
    if path.starts_with(['/', '~']) || paths::is_windows(path) {
        return path.to_owned();
    }
    paths::clean(&format!("{folder}/{path}"))
}

/// A value as written.
pub(crate) fn raw(node: &Node) -> Value {
    match &node.kind {
        Kind::Mapping(entries) => {
            Value::Object(entries.iter().map(|it| (it.key.clone(), raw(&it.value))).collect())
        }
        Kind::Sequence(items) => Value::Array(items.iter().map(raw).collect()),
        Kind::Scalar { .. } => match Plain::of(node) {
            Some((_, Plain::Bool(value))) => Value::Bool(value),
            Some((_, Plain::Integer(value))) => Value::from(value),
            Some((_, Plain::Unsigned(value))) => Value::from(value),
            Some((_, Plain::Float(value))) => float(value),
            Some((_, Plain::Time(value))) => value.replacen(' ', "T", 1).replace(" +0000 UTC", "Z").into(),
            Some((text, Plain::Text)) => text.into(),
            Some((_, Plain::Null)) | None => Value::Null,
        },
    }
}

/// A number as Go prints it: without a fraction if it is whole.
fn float(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        #[expect(clippy::cast_possible_truncation, reason = "checked just above")]
        return Value::from(value as i64);
    }
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn text(node: &Node) -> Option<String> {
    let (text, plain) = Plain::of(node)?;
    plain.print(text)
}

fn boolean(node: &Node) -> Option<bool> {
    match Plain::of(node) {
        Some((_, Plain::Bool(value))) => Some(value),
        Some((text, Plain::Text)) => scalar::boolean(text),
        Some((
            _,
            Plain::Null | Plain::Integer(_) | Plain::Unsigned(_) | Plain::Float(_) | Plain::Time(_),
        )) => None,
        // The obsolete `external: {name: …}`.
        None => Some(true),
    }
}

fn integer(node: &Node) -> Option<i64> {
    match Plain::of(node)? {
        (_, Plain::Integer(value)) => Some(value),
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        (_, Plain::Float(value)) => Some(value as i64),
        (text, Plain::Text) => text.parse().ok(),
        (_, Plain::Null | Plain::Bool(_) | Plain::Unsigned(_) | Plain::Time(_)) => None,
    }
}

/// A number in single precision, as in the reference parser; `None` for zero.
fn single(node: &Node) -> Option<Value> {
    let value: f64 = match Plain::of(node)? {
        #[expect(clippy::cast_precision_loss, reason = "no number of processors is beyond 2^52")]
        (_, Plain::Integer(value)) => value as f64,
        #[expect(clippy::cast_precision_loss, reason = "no number of processors is beyond 2^52")]
        (_, Plain::Unsigned(value)) => value as f64,
        (_, Plain::Float(value)) => value,
        (text, Plain::Text) => text.parse().ok()?,
        (_, Plain::Null | Plain::Bool(_) | Plain::Time(_)) => return None,
    };
    #[expect(clippy::cast_possible_truncation, reason = "single precision is wanted")]
    let shortest: f64 = (value as f32).to_string().parse().ok()?;
    (shortest != 0.0).then(|| float(shortest))
}

fn bytes(node: &Node) -> Option<i64> {
    match Plain::of(node)? {
        (_, Plain::Integer(value)) => Some(value),
        (text, Plain::Text) => text.parse().ok().or_else(|| i64::try_from(scalar::bytes(text)?).ok()),
        (_, Plain::Null | Plain::Bool(_) | Plain::Unsigned(_) | Plain::Float(_) | Plain::Time(_)) => None,
    }
}

fn mode(node: &Node) -> Option<i64> {
    match Plain::of(node)? {
        (_, Plain::Integer(value)) => Some(value),
        (text, Plain::Text) => i64::from_str_radix(text, 8).ok(),
        (_, Plain::Null | Plain::Bool(_) | Plain::Unsigned(_) | Plain::Float(_) | Plain::Time(_)) => None,
    }
}

fn texts(node: &Node) -> Option<Value> {
    let printed: Vec<Value> = match &node.kind {
        Kind::Sequence(items) => items.iter().filter_map(text).map(Value::String).collect(),
        Kind::Scalar { .. } | Kind::Mapping(_) => text(node).into_iter().map(Value::String).collect(),
    };
    (!printed.is_empty()).then_some(Value::Array(printed))
}

/// Null means "as in the image"; an empty list means no command.
fn command(node: &Node) -> Value {
    match &node.kind {
        Kind::Sequence(items) => items.iter().filter_map(text).collect(),
        Kind::Scalar { .. } if node.is_null() => Value::Null,
        Kind::Scalar { .. } | Kind::Mapping(_) => {
            let split = text(node).and_then(|it| command_line::split(&it));
            split.map_or(Value::Null, |it| it.words.into())
        }
    }
}

fn test(node: &Node) -> Option<Value> {
    match &node.kind {
        Kind::Sequence(_) => texts(node),
        Kind::Scalar { .. } | Kind::Mapping(_) => {
            text(node).map(|it| Value::from(vec!["CMD-SHELL".to_owned(), it]))
        }
    }
}

/// The pairs of a map, or of a list of `NAME=value`.
pub(crate) fn pairs(node: &Node) -> Vec<(String, Option<String>)> {
    match &node.kind {
        Kind::Mapping(entries) => entries.iter().map(|it| (it.key.clone(), text(&it.value))).collect(),
        Kind::Sequence(items) => {
            let split = |text: String| match text.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (text, None),
            };
            items.iter().filter_map(text).map(split).collect()
        }
        Kind::Scalar { .. } => Vec::new(),
    }
}

fn multiple(node: &Node) -> Option<Value> {
    let entries = node.entries().iter();
    let printed: Map<String, Value> = entries
        .map(|entry| {
            let values = match &entry.value.kind {
                Kind::Sequence(items) => items.iter().filter_map(text).collect(),
                Kind::Scalar { .. } | Kind::Mapping(_) => text(&entry.value).into_iter().collect::<Value>(),
            };
            (entry.key.clone(), values)
        })
        .collect();
    (!printed.is_empty()).then_some(Value::Object(printed))
}

/// `name=address`, sorted.
fn hosts(node: &Node) -> Option<Value> {
    let bare = |it: &str| short::host_address(it);
    let mut printed = Vec::new();
    match &node.kind {
        Kind::Mapping(entries) => {
            for entry in entries {
                let addresses = match &entry.value.kind {
                    Kind::Sequence(items) => items.iter().filter_map(text).collect(),
                    Kind::Scalar { .. } | Kind::Mapping(_) => vec![text(&entry.value).unwrap_or_default()],
                };
                printed.extend(addresses.iter().map(|it| format!("{}={}", entry.key, bare(it))));
            }
        }
        Kind::Sequence(items) => {
            for item in items.iter().filter_map(text) {
                let parts = item.split_once('=').or_else(|| item.split_once(':'));
                if let Some((name, addresses)) = parts {
                    printed.extend(addresses.split(',').map(|it| format!("{name}={}", bare(it))));
                }
            }
        }
        Kind::Scalar { .. } => {}
    }
    printed.sort_unstable();
    (!printed.is_empty()).then(|| printed.into())
}

fn ssh(node: &Node) -> Option<Value> {
    let one = |(id, path): (String, Option<String>)| match path {
        Some(path) => format!("{id}: {path}"),
        None => id,
    };
    let printed: Vec<String> = pairs(node).into_iter().map(one).collect();
    (!printed.is_empty()).then(|| printed.into())
}

/// A duration as Go prints it: `1h30m0s`, `1.5s`, `100ms`. jiff's friendly format omits zeros: `1h30m`.
fn duration(value: Duration) -> String {
    let nanoseconds = value.as_nanos();
    let fraction = |value: u128, unit: u128| {
        let text = format!("{}.{:0width$}", value / unit, value % unit, width = unit.ilog10() as usize);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match nanoseconds {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{}µs", fraction(nanoseconds, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", fraction(nanoseconds, 1_000_000)),
        _ => {
            const MINUTE: u128 = 60_000_000_000;
            let seconds = fraction(nanoseconds % MINUTE, 1_000_000_000);
            match (nanoseconds / MINUTE / 60, nanoseconds / MINUTE % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_in_go() {
        let print = |text: &str| duration(scalar::duration(text).unwrap());
        let cases = [
            ("90s", "1m30s"),
            ("1h", "1h0m0s"),
            ("1.5s", "1.5s"),
            ("100ms", "100ms"),
            ("0", "0s"),
            ("2d", "48h0m0s"),
            ("1500us", "1.5ms"),
        ];
        for (text, wanted) in cases {
            assert_eq!(print(text), wanted, "{text}");
        }
    }

    #[test]
    fn only_relative_paths_are_joined() {
        assert_eq!(absolute("/srv/app", "./a/../b"), "/srv/app/b");
        assert_eq!(absolute("/srv/app", "../b"), "/srv/b");
        assert_eq!(absolute("/srv/app", "/a/"), "/a/");
        assert_eq!(absolute("/srv/app", "~/a"), "~/a");
    }
}
