//! Typed values of the configuration file, on top of the typed reader of `driftless_yaml`. No message repeats a value
//! that may be secret.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use driftless_yaml::{Dialect, Node};

use driftless_model::parse_duration;

pub(super) type Value<'a> = driftless_yaml::Value<'a, Configuration>;
pub(super) type Object<'a> = driftless_yaml::Object<'a, Configuration>;

/// Scalars as they are written: `tag: 1.10` is the string `1.10`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configuration;

impl Dialect for Configuration {
    type Text<'n> = &'n str;

    fn text(node: &Node) -> Option<&str> {
        node.as_scalar().filter(|_| !node.is_null())
    }

    fn boolean(node: &Node) -> Option<bool> {
        node.as_bool()
    }

    fn integer(node: &Node) -> Option<i64> {
        node.as_i64()
    }
}

/// The items of a list, each read by `read`.
pub(super) fn each<T>(object: &Object<'_>, key: &str, read: fn(Value<'_>) -> Option<T>) -> Vec<T> {
    object.items(key).into_iter().filter_map(read).collect()
}

/// Values as they are written, so that `1.10` stays `1.10`. A missing value is the empty string.
pub(super) fn variables(map: &Value<'_>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for entry in map.mapping() {
        match entry.value.as_scalar() {
            Some(text) => drop(variables.insert(entry.key.clone(), text.to_owned())),
            None => map.key(&entry.key, &entry.value).wrong_type("a string"),
        }
    }
    variables
}

/// The values under the keys of a map. A key without a value counts as not given.
pub(super) trait Fields {
    fn owned(&self, key: &str) -> Option<String>;

    fn strings(&self, key: &str) -> Vec<String>;

    /// A string that `parse` accepts. Its error is the message of the finding.
    fn parsed<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T>;

    /// One of a few words.
    fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<T>;

    /// An absolute path.
    fn absolute(&self, key: &str) -> Option<PathBuf>;

    /// A list of absolute paths.
    fn absolutes(&self, key: &str) -> Vec<PathBuf>;

    fn address(&self, key: &str) -> Option<SocketAddr>;

    /// A duration of at least one second.
    fn duration(&self, key: &str) -> Option<Duration>;
}

impl Fields for Object<'_> {
    fn owned(&self, key: &str) -> Option<String> {
        self.string(key).map(str::to_owned)
    }

    fn strings(&self, key: &str) -> Vec<String> {
        self.get(key).map(|list| list.strings()).unwrap_or_default()
    }

    fn parsed<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let value = self.get(key)?;
        match parse(value.string()?) {
            Ok(parsed) => Some(parsed),
            Err(message) => {
                value.error(message);
                None
            }
        }
    }

    fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<T> {
        self.parsed(key, |text| {
            let known = || words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, meaning)| *meaning).ok_or_else(|| format!("must be one of {}", known()))
        })
    }

    fn absolute(&self, key: &str) -> Option<PathBuf> {
        self.parsed(key, |text| {
            if text.starts_with('/') {
                Ok(PathBuf::from(text))
            } else {
                Err("the path must be absolute: it must start with `/`".to_owned())
            }
        })
    }

    fn absolutes(&self, key: &str) -> Vec<PathBuf> {
        let all = self.strings(key);
        for path in all.iter().filter(|path| !path.starts_with('/')) {
            if let Some(list) = self.get(key) {
                list.error(format!("`{path}` must be absolute: it must start with `/`"));
            }
        }
        all.into_iter().map(PathBuf::from).collect()
    }

    fn address(&self, key: &str) -> Option<SocketAddr> {
        self.parsed(key, |text| {
            text.parse().map_err(|_| {
                format!("`{text}` is not an address with a port, such as `127.0.0.1:8484` or `[::1]:8484`")
            })
        })
    }

    fn duration(&self, key: &str) -> Option<Duration> {
        self.parsed(key, |text| match parse_duration(text) {
            Ok(parsed) if parsed < Duration::from_secs(1) => Err("must be at least `1s`".to_owned()),
            other => other,
        })
    }
}
