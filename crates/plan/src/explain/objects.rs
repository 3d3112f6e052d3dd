//! Objects that differ, and any value of the model as fields with paths.

use std::collections::BTreeMap;

use driftless_model::{IgnoredField, Location, SpecHash, Stack};
use serde::Serialize;
use serde_json::Value as Json;

use crate::{
    fields::{
        diff::FieldDifference,
        value::{Fields, Value},
    },
    text,
};

/// One object that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDifference {
    /// `container`, `service`, `config`, `secret`, `workload`, `network`, `volume`, `file` or `application`.
    pub kind: &'static str,
    pub name: String,
    /// The place of its definition in the manifest, or in the last one that had it.
    pub origin: Location,
    /// The manifest's labels, masked.
    pub labels: BTreeMap<String, String>,
    pub change: Change,
    /// Sorted by path. Empty where the whole object is missing or extra.
    pub fields: Vec<FieldDifference>,
    /// The fields that `ignoreDifferences` names, with the path that it names.
    pub ignored: BTreeMap<String, IgnoredField>,
    /// Canonical YAML, masked; empty where there is nothing.
    pub want: String,
    pub found: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Wanted, and not found.
    Missing,
    /// Found, and not wanted.
    Extra,
    Modified,
}

pub(crate) fn sorted(mut all: Vec<ObjectDifference>) -> Vec<ObjectDifference> {
    all.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    all
}

pub(crate) fn object(kind: &'static str, name: String, origin: Location, change: Change) -> ObjectDifference {
    let (want, found) = (String::new(), String::new());
    let (labels, ignored) = (BTreeMap::new(), BTreeMap::new());
    ObjectDifference { kind, name, origin, labels, change, fields: Vec::new(), ignored, want, found }
}

pub(crate) fn manifest(stack: &Stack) -> Location {
    stack.manifests.first().map(Location::file).unwrap_or_default()
}

pub(crate) fn or_else(fields: &mut Fields, name: &str, value: &str) {
    if !fields.contains_key([name.to_owned()].as_slice()) {
        put(fields, name, value);
    }
}

pub(crate) fn put(fields: &mut Fields, name: &str, value: &str) {
    fields.insert(vec![name.to_owned()], Value::Text(value.to_owned()));
}

pub(crate) fn json<T: Serialize>(value: &T) -> Json {
    serde_json::to_value(value).expect("the model's types serialise without fail")
}

pub(crate) fn digest<T: Serialize>(value: &T) -> String {
    SpecHash::of(value).0
}

/// Any value of the model as fields with paths. What is left out on top is not looked at.
pub(crate) fn flatten(out: &mut Fields, path: &mut Vec<String>, value: Json, left_out: &[&str]) {
    let text = match value {
        Json::Null => return,
        Json::Bool(it) => it.to_string(),
        Json::Number(it) => it.to_string(),
        Json::String(it) => it,
        // The headers of a probe: pairs of name and value.
        Json::Array(all) if path.last().is_some_and(|name| name == "headers") => {
            for pair in all {
                if let [Json::String(name), Json::String(value)] =
                    pair.as_array().map_or(&[][..], Vec::as_slice)
                {
                    path.push(name.clone());
                    out.insert(path.clone(), Value::Text(value.clone()));
                    path.pop();
                }
            }
            return;
        }
        Json::Array(all) if all.iter().all(Json::is_string) => {
            let all = all.iter().filter_map(Json::as_str).map(str::to_owned).collect();
            out.insert(path.clone(), Value::Words(all));
            return;
        }
        Json::Array(all) => {
            for (index, one) in all.into_iter().enumerate() {
                path.push(index.to_string());
                flatten(out, path, one, &[]);
                path.pop();
            }
            return;
        }
        Json::Object(map) => {
            if let Some(span) = duration(&map) {
                out.insert(path.clone(), Value::Text(span));
                return;
            }
            for (name, value) in map {
                if !left_out.contains(&name.as_str()) {
                    path.push(name);
                    flatten(out, path, value, &[]);
                    path.pop();
                }
            }
            return;
        }
    };
    if !path.is_empty() {
        out.insert(path.clone(), Value::Text(text));
    }
}

/// As serde writes a `Duration`.
fn duration(map: &serde_json::Map<String, Json>) -> Option<String> {
    let (seconds, nanos) = (map.get("secs")?.as_u64()?, map.get("nanos")?.as_u64()?);
    let nanos = u32::try_from(nanos).ok()?;
    (map.len() == 2).then(|| text::duration(std::time::Duration::new(seconds, nanos)))
}
