//! One line of the report of `driftless doctor`.

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// The subject of the check.
    pub(super) name: String,
    pub(super) result: CheckResult,
    /// The finding.
    pub(super) message: String,
    /// The remedy. Empty if none is needed.
    pub(super) help: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckResult {
    Ok,
    Warn,
    Fail,
}

impl Check {
    pub(super) fn ok(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: name.into(), result: CheckResult::Ok, message: message.into(), help: String::new() }
    }

    pub(super) fn warn(name: impl Into<String>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { name: name.into(), result: CheckResult::Warn, message: message.into(), help: help.into() }
    }

    pub(super) fn fail(name: impl Into<String>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { name: name.into(), result: CheckResult::Fail, message: message.into(), help: help.into() }
    }
}
