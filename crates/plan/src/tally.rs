//! Counts the instances of one workload, by what each is to it.
//!
//! It judges single instances and adds them up; what the sums mean is for [`super::verdict`].

use super::verdict::BELIEVED_AFTER;
use driftless_model::{
    Completion, Crash, Health, Instance, Observed, Readiness, Record, RestartPolicy, SpecHash, State,
    Timestamp, Workload, WorkloadName,
};

/// The instances of one workload, sorted by slot.
pub(super) struct Tally<'a> {
    pub(super) spec: SpecHash,
    pub(super) mine: Vec<&'a Instance>,
    /// As they are wanted, without the dead.
    pub(super) updated: Vec<&'a Instance>,
    pub(super) old: Vec<&'a Instance>,
    /// Of any spec.
    pub(super) available: u32,
    /// Of the wanted spec, and done with their work.
    pub(super) completed: u32,
    /// Nothing is rolled out, by the manifest's word or somebody's.
    pub(super) paused: bool,
    min_ready: std::time::Duration,
    now: Timestamp,
}

impl<'a> Tally<'a> {
    pub(super) fn of(
        name: &WorkloadName,
        workload: &Workload,
        observed: &'a Observed,
        record: &Record,
        now: Timestamp,
    ) -> Self {
        let mut mine: Vec<&Instance> =
            observed.instances.values().filter(|it| it.instance.workload == *name).collect();
        mine.sort_by_key(|it| (it.instance.slot, it.created, &it.id));
        let spec = workload.spec();
        let live = || mine.iter().copied().filter(|it| !matches!(it.state, State::Removing | State::Dead));
        let mut tally = Self {
            updated: live().filter(|it| record.is_current(it, &spec)).collect(),
            old: live().filter(|it| !record.is_current(it, &spec)).collect(),
            available: 0,
            completed: 0,
            paused: workload.paused || record.paused.contains(name),
            min_ready: workload.min_ready,
            spec,
            mine,
            now,
        };
        tally.available = count(tally.mine.iter().filter(|it| tally.is_available(it)));
        tally.completed = count(tally.updated.iter().filter(|it| tally.is_completed(it, workload)));
        tally
    }

    pub(super) fn updated(&self) -> u32 {
        count(self.updated.iter())
    }

    pub(super) fn old(&self) -> u32 {
        count(self.old.iter())
    }

    pub(super) fn ready(&self) -> u32 {
        count(self.mine.iter().filter(|it| is_ready(it)))
    }

    /// Those of the wanted spec that do what they are for, or have done it.
    pub(super) fn good(&self) -> u32 {
        count(self.updated.iter().filter(|it| self.is_available(it))).saturating_add(self.completed)
    }

    /// Exactly as many as wanted, and none of another spec. They need not be well.
    pub(super) fn is_rolled_out(&self, workload: &Workload) -> bool {
        self.updated() == workload.replicas && self.old.is_empty()
    }

    pub(super) fn is_available(&self, instance: &Instance) -> bool {
        instance.is_available(self.min_ready, self.now)
    }

    /// Ended well, and by its manifest done.
    pub(super) fn is_completed(&self, instance: &Instance, workload: &Workload) -> bool {
        let is_good = matches!(instance.state, State::Exited { code: 0, .. });
        is_good && workload.completion == Completion::OnSuccess && instance.spec == self.spec
    }

    /// The exit code of a one-shot that failed and that nobody is to start again.
    pub(super) fn failed_for_good(&self, instance: &Instance, workload: &Workload) -> Option<i64> {
        let is_one_shot = workload.completion == Completion::OnSuccess
            && workload.container.restart == RestartPolicy::No
            && instance.spec == self.spec;
        match instance.state {
            State::Exited { code, .. } if is_one_shot && code != 0 => Some(code),
            State::Exited { .. }
            | State::Created
            | State::Running { .. }
            | State::Paused
            | State::Restarting { .. }
            | State::Removing
            | State::Dead => None,
        }
    }

    /// `; version 1.0.0 keeps running`, where instances of another spec still serve.
    pub(super) fn what_keeps_running(&self, workload: &Workload) -> String {
        let Some(old) = self.old.iter().find(|it| self.is_available(it)) else { return String::new() };
        let (image, wanted) = (&old.config.image, &workload.container.image);
        if image == wanted {
            return "; what ran before keeps running".to_owned();
        }
        match (image.rsplit_once(':'), wanted.rsplit_once(':')) {
            (Some((name, tag)), Some((same, _))) if name == same && !tag.contains('/') => {
                format!("; version {tag} keeps running")
            }
            _ => format!("; {image} keeps running"),
        }
    }
}

/// Runs, is healthy, and the agent's own probes succeed.
pub(super) fn is_ready(instance: &Instance) -> bool {
    matches!(
        (&instance.state, &instance.readiness),
        (State::Running { health: Health::Healthy, .. }, Readiness::Ready { .. })
    )
}

/// It ended twice or more, and does not run, or not yet for long enough to be believed.
pub(super) fn is_crash_looping(crash: &Crash, instance: &Instance, now: Timestamp) -> bool {
    let is_down = match &instance.state {
        State::Running { since, health: _ } => now.since(*since) < BELIEVED_AFTER,
        // Nothing that it did itself.
        State::Paused => false,
        State::Created | State::Restarting { .. } | State::Exited { .. } | State::Removing | State::Dead => {
            true
        }
    };
    crash.count >= 2 && crash.spec == instance.spec && is_down
}

fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).unwrap_or(u32::MAX)
}
