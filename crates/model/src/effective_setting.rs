//! One setting of an application as it is in force.

use serde::{Deserialize, Serialize};

use crate::Location;

/// One setting of an application as it is in force, and where it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveSetting {
    /// The key, such as `selfHeal` or `variables.TAG`.
    pub key: String,
    /// The value as JSON. Values of variables that may be secret are masked.
    pub value: String,
    /// The file, line and column of the value. `None`: it is a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Location>,
    /// Whether the file is in Git, and not the configuration of the host.
    #[serde(default)]
    pub in_git: bool,
}
