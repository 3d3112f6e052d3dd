//! The sizes of a rollout that is under way: how many instances it keeps of the version before and of the new one.

use serde::{Deserialize, Serialize};

use crate::SpecHash;

/// The numbers of instances that a rollout keeps of the version before and of the new one, as Kubernetes keeps them in
/// ReplicaSets. A workload that is scaled meanwhile is scaled in proportion to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSizes {
    /// The new specification. Another one is another rollout.
    pub spec: SpecHash,
    /// The number of replicas that the sizes were computed for, and how many more there could be.
    pub replicas: u32,
    pub surge: u32,
    /// Instances of the version before.
    pub before: u32,
    /// Instances of the new version.
    pub new: u32,
    /// The rollout is paused, so that only scaling changes the sizes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}
