//! Workloads that make up one object, each a little different from the next: the pods of a StatefulSet.
//!
//! Each is a workload of its own, because each has a container of its own: another name, another volume. What binds
//! them is the order in which they come and go.

use serde::{Deserialize, Serialize};

use super::WorkloadName;
use crate::defaults::is_default;

/// Which of several it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The whole, by the name that a workload of it would have: `db.shop`, of which this is `db-0.shop`.
    pub of: WorkloadName,
    pub ordinal: u32,
    /// Each starts once all before it are available, and ends once all after it are gone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ordered: bool,
    /// So many may be replaced at a time, the highest first.
    pub max_unavailable: u32,
}

/// When an instance of another spec is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Update {
    /// It is replaced, as the strategy says.
    #[default]
    Rolling,
    /// It is replaced once somebody deletes it.
    OnDelete,
    /// It is kept, and comes back as it was when it is lost.
    Never,
}
