//! `allow`: the settings that the configuration of a host leaves to `driftless.yaml` in a repository.

use std::collections::BTreeSet;

use driftless_yaml::closest;

use crate::{keys, value::Value};

/// Settings that a repository may have unless the host says otherwise: none of them widens what a commit can do.
const DEFAULT: &[&str] = &[
    "hosts",
    "perHost",
    "suspend",
    "variables",
    "profiles",
    "files",
    "envFiles",
    "selfHeal",
    "prune",
    "filesystemDrift",
    "onFailure",
    "syncWindows",
    "dependsOn",
    "after",
    "ignoreDifferences",
    "monitor",
    "progressDeadline",
    "imageUpdate",
];

/// The settings that `driftless.yaml` in a repository may have. Default: all but `maxPrunePercent`, `adopt` and `engine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow(BTreeSet<String>);

impl Default for Allow {
    fn default() -> Self {
        Self(DEFAULT.iter().map(|key| (*key).to_owned()).collect())
    }
}

impl Allow {
    /// Every setting that can be allowed.
    fn known() -> impl Iterator<Item = &'static str> {
        keys::names(keys::GIT_SETTINGS).chain(keys::names(keys::POLICY)).chain(["hosts", "perHost"])
    }

    /// Reads a list of keys; `default` stands for those that are allowed without a list.
    pub(super) fn read(value: &Value<'_>) -> Self {
        let mut allowed = BTreeSet::new();
        for item in value.items() {
            let Some(text) = item.string() else { continue };
            if text == "default" {
                allowed.extend(Self::default().0);
            } else if Self::known().any(|key| key == text) {
                allowed.insert(text.to_owned());
            } else {
                let message = format!("`{text}` is not a setting that a repository can have");
                match closest(text, Self::known().chain(["default"])) {
                    Some(name) => item.error_help(message, format!("did you mean `{name}`?")),
                    None => item.error(message),
                }
            }
        }
        Self(allowed)
    }

    /// Whether a repository may have a setting.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains(key) || !Self::known().any(|known| known == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_lists_the_settings_that_can_be_allowed() {
        let mut known: Vec<&str> = Allow::known().chain(["default"]).collect();
        let mut listed: Vec<&str> = keys::ALLOWED.trim_matches(['^', '$', '(', ')']).split('|').collect();
        known.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn settings_that_widen_rights_need_permission() {
        let allow = Allow::default();
        assert!(["maxPrunePercent", "adopt", "engine"].iter().all(|key| !allow.has(key)));
        assert!(DEFAULT.iter().all(|key| Allow::known().any(|known| known == *key)), "a typing error");
    }
}
