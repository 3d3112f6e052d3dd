//! Values of a manifest by their paths, and errors at their keys.

use driftless_model::Finding;
use driftless_yaml::join;

use crate::reader::Value;

/// Advice for what only a single host has.
pub(super) const ONE_HOST: &str = "remove it, or run the application on a single host (`engine: docker`)";

/// The value at a path of keys, unless it is missing or null.
pub(super) fn at<'a>(value: &Value<'a>, path: &str) -> Option<Value<'a>> {
    path.split('.').try_fold(value.clone(), |value, key| {
        let node = value.node.get(key).filter(|it| !it.is_null())?;
        Some(value.key(key, node))
    })
}

/// Reports a key of a map, at the key.
pub(super) fn refuse(map: &Value<'_>, key: &str, message: impl Into<String>, help: &str) {
    let entry = map.node.entries().iter().find(|entry| entry.key == key);
    let place = entry.map_or(&map.node.place, |entry| &entry.key_place);
    map.report().say(Finding::error(place.location(), join(&map.path, key), message).help(help));
}
