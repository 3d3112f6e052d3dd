//! CronJobs: the schedule, and the rules for overlapping and finished runs.
//!
//! Runs are in no manifest. The record keeps them, and they are part of the stack until they are removed from the record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::defaults::is_default;

/// The settings of a CronJob. Its workload is the template of the runs and never runs itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cron {
    /// The text for [`super::Schedule::parse`], which accepted it when the manifest was read.
    pub schedule: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub zone: Option<String>,
    pub concurrency: Concurrency,
    /// The longest delay after which a run is still started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub starting_deadline: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended: bool,
    /// Number of successful runs that are kept. `keep_failed` is the same for failed runs.
    pub keep_successful: u32,
    pub keep_failed: u32,
}

/// The action when a run is due while an earlier one has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Concurrency {
    /// Both run.
    Allow,
    /// The new run is not started.
    Forbid,
    /// The earlier run is stopped first.
    Replace,
}

impl Concurrency {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "Allow",
            Self::Forbid => "Forbid",
            Self::Replace => "Replace",
        }
    }
}
