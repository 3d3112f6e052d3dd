//! Pods of StatefulSets. Each pod is a workload of its own, because each has its own name and volumes. `Member` gives the
//! order in which the pods are created, replaced and removed.

use serde::{Deserialize, Serialize};

use super::WorkloadName;
use crate::defaults::is_default;

/// The place of a pod in its StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The StatefulSet, as a workload name: `db.shop`, of which this is `db-0.shop`.
    pub of: WorkloadName,
    pub ordinal: u32,
    /// Each starts once all before it are available, and ends once all after it are gone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ordered: bool,
    /// Number of pods that may be replaced at the same time, the highest ordinal first.
    pub max_unavailable: u32,
}

/// When an instance of another spec is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Update {
    /// It is replaced, as the strategy says.
    #[default]
    Rolling,
    /// It is replaced when somebody deletes it.
    OnDelete,
    /// It is kept, and comes back as it was when it is lost.
    Never,
}
