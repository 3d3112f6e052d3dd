//! Faults of the tasks of a Swarm in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Faults of tasks, by image without digest. It holds until it is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwarmFaults {
    /// No registry has these images.
    pub missing: BTreeSet<String>,
    /// Their command does not exist.
    pub broken: BTreeSet<String>,
    /// Their health checks never succeed.
    pub unhealthy: BTreeSet<String>,
    /// They end by themselves: after how long, and with which exit code.
    pub exits: BTreeMap<String, (Duration, i64)>,
    /// The time after which health checks succeed.
    pub warm_up: Duration,
}
