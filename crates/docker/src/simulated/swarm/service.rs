//! A service of a Swarm in memory, and the state of its last update.

use driftless_model::Timestamp;
use serde_json::Value;

use super::{rollout::Rollout, task::ClusterTask};

#[derive(Clone, Debug)]
pub(super) struct ClusterService {
    pub(super) id: String,
    pub(super) version: u64,
    pub(super) created: Timestamp,
    pub(super) spec: Value,
    /// Its specification before its last update, unless that was rolled back.
    pub(super) previous: Option<Value>,
    pub(super) update: Option<RolloutStatus>,
    /// The update that is under way.
    pub(super) rollout: Option<Rollout>,
    /// Of a Job: its runs.
    pub(super) runs: JobRuns,
}

/// The work of a service that has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobMode {
    /// So many tasks have to complete, and so many of them run at the same time.
    Replicated { total: u64, concurrent: u64 },
    /// One task on each node has to complete.
    Global,
}

/// The runs of a Job: each write of its service begins another one.
#[derive(Clone, Debug)]
pub(super) struct JobRuns {
    /// The number of the present run, from 0.
    pub(super) iteration: u64,
    pub(super) began: Timestamp,
    /// Something has happened after which managers count its tasks.
    pub(super) is_uncounted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct RolloutStatus {
    pub(super) state: UpdateState,
    pub(super) started: Timestamp,
    pub(super) completed: Option<Timestamp>,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdateState {
    Updating,
    Paused,
    Completed,
    RollbackStarted,
    RollbackPaused,
    RollbackCompleted,
}

impl UpdateState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Updating => "updating",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::RollbackStarted => "rollback_started",
            Self::RollbackPaused => "rollback_paused",
            Self::RollbackCompleted => "rollback_completed",
        }
    }
}

impl JobRuns {
    pub(super) fn beginning(now: Timestamp) -> Self {
        Self { iteration: 0, began: now, is_uncounted: true }
    }
}

impl ClusterService {
    pub(super) fn name(&self) -> &str {
        self.spec.get("Name").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn template(&self) -> Value {
        self.spec.get("TaskTemplate").cloned().unwrap_or_default()
    }

    pub(super) fn endpoint(&self) -> Value {
        self.spec.get("EndpointSpec").cloned().unwrap_or_default()
    }

    /// `None`: it is no Job.
    pub(super) fn job(&self) -> Option<JobMode> {
        let mode = self.spec.get("Mode")?;
        let number = |key: &str| mode.pointer(&format!("/ReplicatedJob/{key}")).and_then(Value::as_u64);
        match mode.get("ReplicatedJob") {
            Some(_) => Some(JobMode::Replicated {
                total: number("TotalCompletions").unwrap_or_default(),
                concurrent: number("MaxConcurrent").unwrap_or_default(),
            }),
            None => mode.get("GlobalJob").map(|_| JobMode::Global),
        }
    }

    /// Begins another run, if it is a Job.
    pub(super) fn run_again(&mut self, now: Timestamp) {
        if self.job().is_some() {
            self.runs = JobRuns { iteration: self.runs.iteration + 1, ..JobRuns::beginning(now) };
        }
    }

    /// `None`: one task on each node.
    pub(super) fn replicas(&self) -> Option<u64> {
        self.spec.pointer("/Mode/Replicated/Replicas")?.as_u64()
    }

    /// Whether a task is of the present run of a Job. Those of others have no runs.
    pub(super) fn is_of_run(&self, task: &ClusterTask) -> bool {
        task.run.is_none_or(|run| run == self.runs.iteration)
    }

    /// Whether it has a reference to a network, a config or a secret, by the id.
    pub(super) fn uses(&self, list: &str, key: &str, id: &str) -> bool {
        let all = self.spec.pointer(list).and_then(Value::as_array);
        all.into_iter().flatten().any(|it| it.get(key).and_then(Value::as_str) == Some(id))
    }
}
