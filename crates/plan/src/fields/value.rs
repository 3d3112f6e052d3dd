//! One field's value, the map of all fields, and how both are written and masked.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{Mask, downward::shown};

/// All that is set, by path.
pub(crate) type Fields = BTreeMap<Vec<String>, Value>;

/// One field's value, not masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Flag,
    /// In this order.
    List(Vec<String>),
    /// A program and its arguments.
    Words(Vec<String>),
}

impl Value {
    /// On one line, masked as the value of the field at this path.
    pub(crate) fn shown(&self, path: &[String], mask: &Mask) -> String {
        let name = path.last().map_or("", String::as_str);
        match self {
            Self::Text(text) => masked(path, text, mask),
            Self::Flag => "true".to_owned(),
            Self::List(all) => self.parts(all, name, mask).join(", "),
            Self::Words(all) => shell_words::join(self.parts(all, name, mask)),
        }
    }

    /// As YAML, masked as the value of the field at this path.
    pub(crate) fn yaml(&self, path: &[String], mask: &Mask) -> serde_yaml::Value {
        let name = path.last().map_or("", String::as_str);
        match self {
            Self::Text(text) => serde_yaml::Value::String(masked(path, text, mask)),
            Self::Flag => serde_yaml::Value::Bool(true),
            Self::List(all) | Self::Words(all) => {
                let parts = self.parts(all, name, mask).into_iter();
                serde_yaml::Value::Sequence(parts.map(serde_yaml::Value::String).collect())
            }
        }
    }

    fn parts(&self, all: &[String], name: &str, mask: &Mask) -> Vec<String> {
        match self {
            Self::Words(_) => words(all, mask),
            Self::Text(_) | Self::Flag | Self::List(_) => all.iter().map(|it| mask.value(name, it)).collect(),
        }
    }
}

/// The name of an image never contains a secret, but a password may be a word like `nextcloud`.
fn masked(path: &[String], text: &str, mask: &Mask) -> String {
    match path {
        [field] if field == "image" => mask.without_values().value(field, text),
        _ => mask.value(path.last().map_or("", String::as_str), text),
    }
}

pub(crate) struct Out(pub(crate) Fields);

impl Out {
    pub(crate) fn put<const N: usize>(&mut self, path: [&str; N], value: Value) {
        self.0.insert(path.iter().map(|it| (*it).to_owned()).collect(), value);
    }

    /// By a dotted path of known names; absent and empty are the same.
    pub(crate) fn text(&mut self, path: &str, value: Option<String>) {
        if let Some(value) = value.filter(|it| !it.is_empty()) {
            self.0.insert(path.split('.').map(str::to_owned).collect(), Value::Text(value));
        }
    }

    pub(crate) fn flag(&mut self, path: &str, value: bool) {
        if value {
            self.put([path], Value::Flag);
        }
    }

    pub(crate) fn list(&mut self, path: &str, all: &[String]) {
        if !all.is_empty() {
            self.put([path], Value::List(all.to_vec()));
        }
    }

    /// A list whose order does not matter.
    pub(crate) fn set(&mut self, path: &str, all: impl Iterator<Item = String>) {
        let sorted: BTreeSet<String> = all.collect();
        self.list(path, &sorted.into_iter().collect::<Vec<_>>());
    }

    /// `[""]` is how the engine is told to have none.
    pub(crate) fn words(&mut self, path: &str, all: Option<&Vec<String>>) {
        let Some(all) = all else { return };
        if !all.is_empty() && (all.len() > 1 || all.first().is_some_and(|it| !it.is_empty())) {
            self.put([path], Value::Words(all.iter().map(|it| shown(it)).collect()));
        }
    }
}

/// Hides the values of options whose names tell: `--password=…`, `--token …`, `PASSWORD=…`, also inside a line
/// of shell.
fn words(all: &[String], mask: &Mask) -> Vec<String> {
    let mut is_next_secret = false;
    let mut one = |word: &str| {
        let hide = std::mem::take(&mut is_next_secret);
        match word.split_once('=') {
            _ if hide => mask.hide(word),
            Some((name, value)) if Mask::is_telling(name) && !value.is_empty() => {
                format!("{name}={}", mask.hide(value))
            }
            Some(_) => mask.text(word),
            None => {
                is_next_secret = word.starts_with('-') && Mask::is_telling(word);
                mask.text(word)
            }
        }
    };
    all.iter().map(|arg| arg.split(' ').map(&mut one).collect::<Vec<_>>().join(" ")).collect()
}
