//! The places in files at which settings are written.

use std::collections::BTreeMap;

use driftless_model::Location;

use crate::{keys, value::Object};

/// The places of settings, by their keys. Without a place a setting has its default.
///
/// All are equal: where a setting is written does not change what it means, and a moved line is no new configuration.
#[derive(Clone, Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

/// The place of one setting in a file.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) location: Location,
    pub(super) in_git: bool,
}

impl PartialEq for Origins {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origins {}

impl Origins {
    /// The places of the keys of an application, without those of its policy.
    pub(super) fn of_application(object: &Object<'_>) -> Self {
        let mut origins = Self::default();
        for key in keys::names(keys::GIT_SETTINGS).chain(["path", "name", "hosts"]) {
            origins.note(object, key);
        }
        let variables = object.get("variables");
        for entry in variables.iter().flat_map(|map| map.node.entries()) {
            let location = entry.key_place.location();
            origins.0.insert(format!("variables.{}", entry.key), Origin { location, in_git: false });
        }
        origins
    }

    /// Remembers the place of a key, if the map has it.
    pub(super) fn note(&mut self, object: &Object<'_>, key: &str) {
        if let Some(value) = object.get(key) {
            self.0.insert(key.to_owned(), Origin { location: value.place().location(), in_git: false });
        }
    }

    /// The same places, in a file of Git.
    pub(super) fn in_git(mut self) -> Self {
        self.0.values_mut().for_each(|place| place.in_git = true);
        self
    }

    /// These places, and those of an inner level, which win.
    pub(super) fn with(&self, inner: &Self) -> Self {
        let mut all = self.0.clone();
        all.extend(inner.0.iter().map(|(key, place)| (key.clone(), place.clone())));
        Self(all)
    }

    /// The place of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Origin> {
        self.0.get(key)
    }
}
