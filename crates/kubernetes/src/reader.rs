//! The rules by which Kubernetes reads scalars, for the typed reader of `driftless_yaml`.
//!
//! The fields themselves are in [`super::fields`].

use driftless_yaml::{Dialect, Kind, Node, Scalar};
pub(super) use driftless_yaml::{Report, closest};

pub(super) type Value<'a> = driftless_yaml::Value<'a, Kubernetes>;
pub(super) type Object<'a> = driftless_yaml::Object<'a, Kubernetes>;

/// Scalars as kubectl reads them: by YAML 1.1, and without conversion between types.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kubernetes;

impl Dialect for Kubernetes {
    type Text<'n> = &'n str;

    fn text(node: &Node) -> Option<&str> {
        match node.resolved()? {
            Scalar::Text(text) if old_boolean(node).is_none() => Some(text),
            Scalar::Text(_)
            | Scalar::Null
            | Scalar::Bool(_)
            | Scalar::Int(_)
            | Scalar::Unsigned(_)
            | Scalar::Float(_) => None,
        }
    }

    fn boolean(node: &Node) -> Option<bool> {
        old_boolean(node).or_else(|| node.as_bool())
    }

    fn integer(node: &Node) -> Option<i64> {
        node.as_i64()
    }

    fn type_name(node: &Node) -> &'static str {
        match node.kind_name() {
            "list" => "a list",
            "map" => "a map",
            "null" => "null",
            "number" => "a number",
            "string" if old_boolean(node).is_none() => "a string",
            _ => "a boolean",
        }
    }

    /// Whether the value is the default of a field without effect: empty, false or zero.
    fn is_absent(value: &Node) -> bool {
        match &value.kind {
            Kind::Sequence(items) => items.is_empty(),
            Kind::Mapping(entries) => entries.is_empty(),
            Kind::Scalar { text, .. } => {
                text.is_empty()
                    || value.is_null()
                    || value.as_bool() == Some(false)
                    || value.as_i64() == Some(0)
            }
        }
    }

    fn unknown(key: &str) -> String {
        format!("unknown field `{key}`")
    }

    fn no_effect(_: &str, why: &str) -> String {
        why.to_owned()
    }

    fn refused(_: &str, why: &str) -> String {
        why.to_owned()
    }
}

/// `yes`, `no`, `on` and `off` are booleans in YAML 1.1, which Kubernetes reads.
fn old_boolean(node: &Node) -> Option<bool> {
    match &node.kind {
        Kind::Scalar { text, plain: true } if node.tag.is_none() => match text.as_str() {
            "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
            "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
            _ => None,
        },
        Kind::Scalar { .. } | Kind::Sequence(_) | Kind::Mapping(_) => None,
    }
}
