//! The record of hooks: which phases of an attempt have begun, and the runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{HookPhase, Network, StackHash, SwarmService, Volume, Workload, WorkloadName};

/// The hooks of the newest attempt to sync an application, or to remove it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookRecord {
    /// The revision that is applied or removed.
    pub revision: u64,
    /// The number of the attempt at this revision, counting from 1.
    pub attempt: u32,
    /// The stack of the revision.
    pub stack: StackHash,
    /// The phases that have begun.
    pub begun: BTreeSet<HookPhase>,
    /// All `PreSync` hooks have succeeded, or there are none.
    pub passed: bool,
    /// All `PreDelete` hooks have succeeded, or a user removes the application without them.
    pub deletable: bool,
    /// A user asked for another attempt.
    pub again: bool,
    /// A stack that is applied without hooks: that of an automatic rollback, or one that was reached before its hooks were
    /// recorded.
    pub exempt: Option<StackHash>,
    /// By the name of the workload that runs.
    pub runs: BTreeMap<WorkloadName, HookRun>,
}

/// One run of a hook, with the networks and volumes that it uses: the target may be a stack that has none of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookRun {
    pub phase: HookPhase,
    pub workload: Workload,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<String, Network>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, Volume>,
    /// The settings of its service in a Swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<SwarmService>>,
}

impl HookRecord {
    /// An attempt of which nothing has begun.
    pub fn new(revision: u64, attempt: u32, stack: StackHash, runs: BTreeMap<WorkloadName, HookRun>) -> Self {
        let begun = BTreeSet::new();
        Self {
            revision,
            attempt,
            stack,
            begun,
            passed: false,
            deletable: false,
            again: false,
            exempt: None,
            runs,
        }
    }

    /// The runs of the phases that have begun.
    pub fn begun_runs(&self) -> impl Iterator<Item = (&WorkloadName, &HookRun)> {
        self.runs.iter().filter(|(_, run)| self.begun.contains(&run.phase))
    }

    /// The runs of one phase.
    pub fn of_phase(&self, phase: HookPhase) -> impl Iterator<Item = (&WorkloadName, &HookRun)> {
        self.runs.iter().filter(move |(_, run)| run.phase == phase)
    }
}
