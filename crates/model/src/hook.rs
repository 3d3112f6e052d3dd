//! Hooks: Jobs that a sync of the application runs before it, after it or when it failed, and before a removal.
//!
//! A hook in the manifest is a template and never runs itself. Each attempt of a revision has runs of its own, which the
//! record keeps, and which are part of the stack until the next attempt.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::WorkloadName;

/// When a hook runs. The names are those of Argo CD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HookPhase {
    /// Before anything of the revision is applied. The sync goes on when it has succeeded.
    PreSync,
    /// After everything of the revision is applied and available. The revision has succeeded when it has.
    PostSync,
    /// After the revision has failed.
    SyncFail,
    /// Before the application is removed. The application is kept until it has succeeded.
    PreDelete,
}

impl HookPhase {
    /// All phases.
    pub const ALL: [Self; 4] = [Self::PreSync, Self::PostSync, Self::SyncFail, Self::PreDelete];

    /// As manifests name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreSync => "PreSync",
            Self::PostSync => "PostSync",
            Self::SyncFail => "SyncFail",
            Self::PreDelete => "PreDelete",
        }
    }

    /// The phase of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }

    /// Whether the revision waits for it, and fails with it.
    pub fn decides(self) -> bool {
        matches!(self, Self::PreSync | Self::PostSync)
    }
}

impl fmt::Display for HookPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The hook that a Job is a run of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookOrigin {
    /// The workload of the template.
    pub of: WorkloadName,
    pub phase: HookPhase,
}
