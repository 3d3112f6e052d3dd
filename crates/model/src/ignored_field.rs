//! `ignoreDifferences`: fields of live containers whose differences from Git are reported and left.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Location, WorkloadName};
use crate::defaults::is_default;

/// Fields whose differences are ignored, of one workload or of all.
///
/// Rules are equal wherever they are written: a moved line is no other rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredDifferences {
    /// `None`: all workloads of the application.
    #[serde(default, skip_serializing_if = "is_default")]
    pub workload: Option<WorkloadName>,
    pub fields: Vec<IgnoredField>,
    /// The place of the rule, if it belongs to one repository.
    #[serde(skip)]
    pub place: Option<Location>,
}

impl PartialEq for IgnoredDifferences {
    fn eq(&self, other: &Self) -> bool {
        let Self { workload, fields, place: _ } = self;
        (workload, fields) == (&other.workload, &other.fields)
    }
}

impl Eq for IgnoredDifferences {}

/// A field of a container that can be changed while it lives, by the path that `driftless diff` prints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IgnoredField(String);

/// A text that names no such field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidField(String);

/// The fields that the engine can change on a live container, besides `networks.NAME`.
const FIELDS: [&str; 10] = [
    "name",
    "state",
    "restart",
    "resources.cpus",
    "resources.memory",
    "resources.memoryReservation",
    "resources.memorySwap",
    "resources.cpuShares",
    "resources.cpuset",
    "resources.pids",
];

impl IgnoredField {
    /// Reads the path of a field.
    pub fn parse(text: &str) -> Result<Self, InvalidField> {
        let is_network = text.strip_prefix("networks.").is_some_and(|name| !name.is_empty());
        if is_network || FIELDS.contains(&text) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidField(text.to_owned()))
    }

    /// Whether a difference at this path is ignored: `networks.shop_default` includes `networks.shop_default.aliases`.
    pub fn covers(&self, path: &str) -> bool {
        // The engine changes the limit of swap with that of memory.
        if self.0 == "resources.memory" && path == "resources.memorySwap" {
            return true;
        }
        path.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl fmt::Display for IgnoredField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<IgnoredField> for String {
    fn from(field: IgnoredField) -> Self {
        field.0
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a field that can be changed on a live container; use {} or networks.NAME",
            self.0,
            FIELDS.join(", ")
        )
    }
}

impl std::error::Error for InvalidField {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_live_containers_are_accepted() {
        for text in FIELDS.into_iter().chain(["networks.shop_default", "networks.a.b.aliases"]) {
            assert_eq!(IgnoredField::parse(text).map(String::from).as_deref(), Ok(text));
        }
        for text in ["image", "env.PORT", "resources", "networks.", "networks", "Restart", ""] {
            let error = IgnoredField::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a field")), "{error}");
        }
    }

    #[test]
    fn field_covers_the_paths_below_it() {
        let covers = |field: &str, path: &str| IgnoredField::parse(field).unwrap().covers(path);
        assert!(covers("restart", "restart"));
        assert!(covers("networks.a", "networks.a.aliases") && covers("networks.a", "networks.a"));
        assert!(!covers("networks.a", "networks.ab") && !covers("networks.a.aliases", "networks.a"));
        assert!(covers("resources.memory", "resources.memorySwap"), "the engine changes both");
        assert!(!covers("resources.memory", "resources.memoryReservation"));
    }
}
