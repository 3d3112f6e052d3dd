//! The progress of an update of a service.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use driftless_model::Timestamp;

use super::task::Place;

/// An update that is under way. It is begun again by another leader.
#[derive(Clone, Debug, Default)]
pub(super) struct Rollout {
    /// The places that are left to do.
    pub(super) waiting: VecDeque<Place>,
    pub(super) workers: Vec<Worker>,
    /// The number of places at the beginning.
    pub(super) size: usize,
    /// The tasks that it made, and since when each of them runs.
    pub(super) made: BTreeMap<String, Option<Timestamp>>,
    pub(super) failed: BTreeSet<String>,
    /// All is replaced, and the last tasks are watched until then.
    pub(super) watched_until: Option<Timestamp>,
}

/// One of the replacements that are done at the same time.
#[derive(Clone, Debug)]
pub(super) enum Worker {
    Free,
    Replacing {
        new: String,
        old: Vec<String>,
    },
    /// The delay after a replacement.
    Resting {
        until: Timestamp,
    },
}

impl Rollout {
    pub(super) fn due(&self) -> impl Iterator<Item = Timestamp> + '_ {
        let resting = self.workers.iter().filter_map(|worker| match worker {
            Worker::Resting { until } => Some(*until),
            Worker::Free | Worker::Replacing { .. } => None,
        });
        resting.chain(self.watched_until)
    }
}
