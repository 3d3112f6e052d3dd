//! The platforms that a stack names for its images.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::Platform;

use crate::target::Target;

/// The platforms that the workloads of a stack name, by the image.
pub(super) struct NamedPlatforms(BTreeMap<String, BTreeSet<Platform>>);

impl NamedPlatforms {
    pub(super) fn new(target: &Target<'_>) -> Self {
        let mut named: BTreeMap<String, BTreeSet<Platform>> = BTreeMap::new();
        for workload in target.stack.workloads.values() {
            if let Some(platform) = workload.pulled_platform() {
                named.entry(target.image(workload)).or_default().insert(platform);
            }
        }
        Self(named)
    }

    /// Those of one image.
    pub(super) fn of(&self, image: &str) -> impl Iterator<Item = &Platform> {
        self.0.get(image).into_iter().flatten()
    }
}
