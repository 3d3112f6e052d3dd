//! One field's value, the map of all fields, and how both are written and masked.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{ContentId, Mask, downward::shown};

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
    /// Secrets by the ids of their contents, between two texts. The ids are hidden: a secret that is easy to guess is
    /// found by its digest.
    Secrets {
        before: &'static str,
        ids: Vec<ContentId>,
        after: String,
    },
}

impl Value {
    pub(crate) fn secrets<'a>(ids: impl IntoIterator<Item = &'a ContentId>) -> Self {
        Self::Secrets { before: "", ids: ids.into_iter().cloned().collect(), after: String::new() }
    }

    /// On one line, masked as the value of the field at this path.
    pub(crate) fn shown(&self, path: &[String], mask: &Mask) -> String {
        match self {
            Self::Text(text) => masked(path, text, mask),
            Self::Flag => "true".to_owned(),
            Self::List(all) => self.parts(all, path, mask).join(", "),
            Self::Words(all) => shell_words::join(self.parts(all, path, mask)),
            Self::Secrets { before, ids, after } => {
                let hidden: Vec<String> = ids.iter().map(|id| mask.hide(&id.0)).collect();
                format!("{before}{}{}", hidden.join(", "), mask.name(after))
            }
        }
    }

    /// As YAML, masked as the value of the field at this path.
    pub(crate) fn yaml(&self, path: &[String], mask: &Mask) -> serde_yaml::Value {
        match self {
            Self::Text(_) | Self::Secrets { .. } => serde_yaml::Value::String(self.shown(path, mask)),
            Self::Flag => serde_yaml::Value::Bool(true),
            Self::List(all) | Self::Words(all) => {
                let parts = self.parts(all, path, mask).into_iter();
                serde_yaml::Value::Sequence(parts.map(serde_yaml::Value::String).collect())
            }
        }
    }

    /// The texts of the other side that stand for a hidden one of this side. None if nothing of this side is hidden.
    pub(crate) fn counterparts<'a>(&self, other: &'a Self, path: &[String], mask: &Mask) -> Vec<&'a str> {
        let own = self.texts();
        let is_hidden = self.parts(own, path, mask).iter().zip(own).any(|(shown, text)| shown != text);
        let others = other.texts().iter().filter(|text| is_hidden && !own.contains(text));
        others.map(String::as_str).collect()
    }

    fn texts(&self) -> &[String] {
        match self {
            Self::Text(text) => std::slice::from_ref(text),
            Self::Flag | Self::Secrets { .. } => &[],
            Self::List(all) | Self::Words(all) => all,
        }
    }

    fn parts(&self, all: &[String], path: &[String], mask: &Mask) -> Vec<String> {
        let is_free = is_free_text(path);
        match self {
            Self::Words(_) if is_free => mask.arguments(all),
            Self::Text(_) | Self::Flag | Self::List(_) | Self::Words(_) | Self::Secrets { .. } => {
                all.iter().map(|text| masked(path, text, mask)).collect()
            }
        }
    }
}

/// Fields with text that people write freely. A secret of the application is hidden wherever it occurs in them. All other
/// fields are names, sizes and switches, in which a word like `nextcloud` is no secret only because it is also a password.
const FREE_TEXT: &[&str] = &[
    "env",
    "labels",
    "command",
    "entrypoint",
    "test",
    "exec",
    "headers",
    "httpHeaders",
    "httpGet",
    "args",
    "logging",
    "annotations",
    "storageOpt",
    "driverOpts",
    "options",
];

fn is_free_text(path: &[String]) -> bool {
    path.iter().any(|part| FREE_TEXT.contains(&part.as_str()))
}

fn masked(path: &[String], text: &str, mask: &Mask) -> String {
    let name = path.last().map_or("", String::as_str);
    if is_free_text(path) { mask.value(name, text) } else { mask.name(text) }
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

    /// `[""]` removes the value of the image.
    pub(crate) fn words(&mut self, path: &str, all: Option<&Vec<String>>) {
        let Some(all) = all else { return };
        if !all.is_empty() && (all.len() > 1 || all.first().is_some_and(|it| !it.is_empty())) {
            self.put([path], Value::Words(all.iter().map(|it| shown(it)).collect()));
        }
    }
}
