//! Jobs: their settings, and the record of their progress.
//!
//! A Job of several completions is several workloads, one for each; they share their parallelism and their failures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{ContainerId, HookOrigin, SpecHash, Timestamp, WorkloadName};
use crate::defaults::is_default;

/// The Job of a workload and the part that it is, and settings of the Job as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The whole, by the name that a workload of it has, or would have.
    pub of: WorkloadName,
    /// The CronJob that began it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cron: Option<WorkloadName>,
    /// The hook that it is a run of.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hook: Option<HookOrigin>,
    /// The index among its completions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ordinal: u32,
    /// `None`: one that succeeds is enough, once all have ended.
    pub completions: Option<u32>,
    pub parallelism: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub indexed: bool,
    /// Number of failures, of all parts together, before the Job has failed.
    pub backoff_limit: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub active_deadline: Option<Duration>,
    /// Time for which its containers are kept after it has ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ttl: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended: bool,
    /// Each try is a container of its own (`restartPolicy: Never`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub fresh: bool,
}

impl Job {
    /// A Job with one completion and no second try.
    pub fn once(of: WorkloadName) -> Self {
        Self {
            of,
            cron: None,
            hook: None,
            ordinal: 0,
            completions: Some(1),
            parallelism: 1,
            indexed: false,
            backoff_limit: 0,
            active_deadline: None,
            ttl: None,
            suspended: false,
            fresh: false,
        }
    }

    /// Whether the agent made it from the template of a CronJob or hook.
    pub fn is_run(&self) -> bool {
        self.cron.is_some() || self.hook.is_some()
    }

    /// Whether it runs once, at once, and is kept: the whole of it is called as the workload. It may have a deadline.
    pub fn is_plain(&self, name: &WorkloadName) -> bool {
        let Self { of, completions, parallelism, indexed, ttl, suspended, .. } = self;
        let is_limited = ttl.is_some() || *suspended;
        of == name && *completions == Some(1) && *parallelism == 1 && !indexed && !is_limited
    }
}

/// Progress of a Job. It outlives the containers, so that completed work is not repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobRecord {
    /// The hash of its template: another template is another Job.
    pub spec: SpecHash,
    /// The hash of its manifest, where it has one: a completed Job with the same one is the same, though the contents of what
    /// it refers to have changed.
    #[serde(skip_serializing_if = "is_default")]
    pub manifest: Option<SpecHash>,
    /// The spec hashes that its containers may have. With other networks they are others, and the Job is the same.
    #[serde(skip_serializing_if = "is_default")]
    pub specs: BTreeSet<SpecHash>,
    /// Its containers that were created with other networks than Git has now.
    #[serde(skip_serializing_if = "is_default")]
    pub kept: BTreeSet<ContainerId>,
    /// When its turn came, or when it was taken up again after it had been suspended.
    pub started: Option<Timestamp>,
    /// Whether there ever was a container of it.
    pub begun: bool,
    /// Whether none of its containers has run: the engine could not start them.
    #[serde(skip_serializing_if = "is_default")]
    pub unstarted: bool,
    /// The parts that succeeded.
    pub done: BTreeSet<u32>,
    pub failures: u32,
    /// Failures since the last success: the next try waits for longer after each.
    pub streak: u32,
    pub last_failure: Option<Timestamp>,
    pub last_code: i64,
    /// The words about the last failure of a Swarm, or of an engine that could not start the container.
    #[serde(skip_serializing_if = "is_default")]
    pub last_error: String,
    /// The ends that were counted, by container.
    pub counted: BTreeMap<ContainerId, Timestamp>,
    pub ended: Option<JobEnd>,
    /// The service of a Swarm and its run that was counted. Another one is another run of the Job.
    #[serde(skip_serializing_if = "is_default")]
    pub run: Option<String>,
}

/// The outcome of a Job, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobEnd {
    pub at: Timestamp,
    pub outcome: JobOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobOutcome {
    Complete,
    BackoffLimitExceeded,
    DeadlineExceeded,
}

impl JobOutcome {
    /// As Kubernetes gives the reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "CompletionsReached",
            Self::BackoffLimitExceeded => "BackoffLimitExceeded",
            Self::DeadlineExceeded => "DeadlineExceeded",
        }
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Complete => "complete",
            Self::BackoffLimitExceeded => "it has failed too often",
            Self::DeadlineExceeded => "it has taken longer than its deadline allows",
        })
    }
}

impl JobRecord {
    /// Whether the Job has failed and is not tried again.
    pub fn has_failed(&self) -> bool {
        self.ended.as_ref().is_some_and(|end| end.outcome != JobOutcome::Complete)
    }
}
