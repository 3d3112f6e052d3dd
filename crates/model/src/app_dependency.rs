//! Dependencies between applications: a new commit waits until others are where they have to be.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::AppName;

/// One entry of `dependsOn` of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppDependency {
    pub app: AppName,
    #[serde(default)]
    pub condition: AppCondition,
}

/// The state that another application must have before a new commit is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AppCondition {
    /// Its newest commit is applied.
    Ready,
    /// Its newest commit is applied, and it is healthy.
    #[default]
    Healthy,
    /// Its newest commit is applied, and all its Jobs have completed.
    Completed,
}

impl fmt::Display for AppCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Healthy => "healthy",
            Self::Completed => "completed",
        })
    }
}
