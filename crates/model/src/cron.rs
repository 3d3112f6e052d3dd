//! Work that is begun again and again: what a CronJob asks for, and what is remembered of it.
//!
//! Its runs are in no manifest. They are remembered, and stand in the stack beside what Git says for as long as they are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::defaults::is_default;

/// When it is due, and what then. The workload that has it is the template of its runs, and never runs itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cron {
    /// For [`super::Schedule::parse`], which has taken it once.
    pub schedule: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub zone: Option<String>,
    pub concurrency: Concurrency,
    /// So late it is still begun.
    #[serde(default, skip_serializing_if = "is_default")]
    pub starting_deadline: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended: bool,
    /// So many that succeeded are kept, and so many that failed.
    pub keep_successful: u32,
    pub keep_failed: u32,
}

/// What a CronJob does when it is due while a run has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Concurrency {
    /// Both run.
    Allow,
    /// It waits until that has ended.
    Forbid,
    /// That is ended first.
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
