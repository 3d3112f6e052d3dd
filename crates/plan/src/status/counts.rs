//! The instances of one workload, counted by how they stand.

use std::time::Duration;

use driftless_model::{
    Health, ImageRef, Instance, Observed, Readiness, Record, SpecHash, State, Subject, Timestamp, Workload,
};

use crate::facts::standing::Standing;

/// The instances of one workload, sorted by slot.
pub(crate) struct Counts<'a> {
    pub(crate) spec: SpecHash,
    /// All of them.
    pub(crate) all: Vec<&'a Instance>,
    /// Instances with the desired spec, without those that the engine is removing.
    pub(crate) updated: Vec<(&'a Instance, Standing)>,
    /// Instances that must be replaced.
    pub(crate) old: Vec<&'a Instance>,
    /// Available instances of any spec.
    pub(crate) available: u32,
    /// Updated instances that have done their work.
    pub(crate) completed: u32,
    /// The manifest or a user paused the rollouts.
    pub(crate) paused: bool,
    min_ready: Duration,
    now: Timestamp,
}

impl<'a> Counts<'a> {
    /// Counts `instances`, which are all of the workload. `spec` is its desired hash.
    pub(crate) fn new(
        Subject { name, workload }: Subject<'_>,
        spec: SpecHash,
        instances: &[&'a Instance],
        observed: &Observed,
        record: &Record,
        now: Timestamp,
    ) -> Self {
        let mut all = instances.to_vec();
        all.sort_by_key(|it| (it.instance.slot, it.created, &it.id));
        let (mut updated, mut old) = (Vec::new(), Vec::new());
        for instance in all.iter().copied() {
            match Standing::of(record, observed, workload, &spec, instance, now) {
                Standing::Leaving | Standing::Dead => {}
                Standing::Outdated(_) => old.push(instance),
                standing @ (Standing::Completed
                | Standing::Failed { .. }
                | Standing::CrashLooping
                | Standing::Current) => updated.push((instance, standing)),
            }
        }
        let mut counts = Self {
            completed: count(updated.iter().filter(|it| it.1 == Standing::Completed)),
            available: 0,
            paused: workload.paused || record.paused.contains(name),
            min_ready: workload.min_ready,
            spec,
            all,
            updated,
            old,
            now,
        };
        counts.available = count(counts.all.iter().filter(|it| counts.is_available(it)));
        counts
    }

    pub(crate) fn updated(&self) -> u32 {
        count(self.updated.iter())
    }

    pub(crate) fn old(&self) -> u32 {
        count(self.old.iter())
    }

    pub(crate) fn ready(&self) -> u32 {
        count(self.all.iter().filter(|it| is_ready(it)))
    }

    /// Updated instances that are available, or have done their work.
    pub(crate) fn good(&self) -> u32 {
        count(self.updated.iter().filter(|it| self.is_available(it.0))).saturating_add(self.completed)
    }

    /// Exactly as many updated instances as desired, and no old one. They need not be ready.
    pub(crate) fn is_rolled_out(&self, workload: &Workload) -> bool {
        self.updated() == workload.replicas && self.old.is_empty()
    }

    pub(crate) fn is_available(&self, instance: &Instance) -> bool {
        instance.is_available(self.min_ready, self.now)
    }

    pub(crate) fn is_updated(&self, instance: &Instance) -> bool {
        self.updated.iter().any(|it| it.0.id == instance.id)
    }

    /// `; version 1.0.0 keeps running`, if old instances still serve.
    pub(crate) fn old_version_keeps_running(&self, workload: &Workload) -> String {
        let Some(old) = self.old.iter().find(|it| self.is_available(it)) else { return String::new() };
        let (image, wanted) = (&old.config.image, &workload.container.image);
        if image == wanted {
            return "; the old instances keep running".to_owned();
        }
        let (old, new) = (ImageRef::parse(image), ImageRef::parse(wanted));
        match (old.tag(), new.tag()) {
            (Some(tag), Some(next)) if tag != next && old.is_same_repository(&new) => {
                format!("; version {tag} keeps running")
            }
            _ => format!("; {image} keeps running"),
        }
    }
}

/// Runs, is healthy, and the agent's own probes succeed.
pub(crate) fn is_ready(instance: &Instance) -> bool {
    matches!(
        (&instance.state, &instance.readiness),
        (State::Running { health: Health::Healthy, .. }, Readiness::Ready { .. })
    )
}

fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}
