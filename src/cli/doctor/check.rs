//! One line of the report of `driftless doctor`.

use serde::Serialize;

use crate::cli::topic::Topic;

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
    /// The section of the documents about problems of this kind. Empty if there is no problem.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) explained: String,
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
        Self {
            name: name.into(),
            result: CheckResult::Ok,
            message: message.into(),
            help: String::new(),
            explained: String::new(),
        }
    }

    pub(super) fn warn(name: impl Into<String>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            result: CheckResult::Warn,
            message: message.into(),
            help: help.into(),
            explained: String::new(),
        }
    }

    pub(super) fn fail(name: impl Into<String>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            result: CheckResult::Fail,
            message: message.into(),
            help: help.into(),
            explained: String::new(),
        }
    }

    /// Names the section that explains the problem, unless one is named or nothing is wrong.
    pub(super) fn explained(mut self, topic: Topic) -> Self {
        if self.result != CheckResult::Ok && self.explained.is_empty() {
            self.explained = topic.address();
        }
        self
    }
}
