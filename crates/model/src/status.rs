//! `spec` and `status` of an application, as the API, the CLI and the page show them. Derived in every
//! round by `plan::verdict`, and set nowhere else.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Actor, AppName, CanaryStatus, CommitId, CommitInfo, ConditionType, Finding, Format, HookPhase,
    ImageDigests, ImageUpdateStatus, Member, ObjectRef, Outcome, Policy, Protocol, Resource, Role,
    StatusCondition, Strategy, Timestamp, Until, Update, WaitReason, WorkloadName,
};
use crate::defaults::is_default;

/// One application, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Application {
    pub name: AppName,
    pub spec: ApplicationSpec,
    /// Counts the targets (commits, pins, policies) that this application was given.
    pub generation: u64,
    pub status: ApplicationStatus,
}

impl Application {
    /// The application without what grows with it: workloads, other objects, and the steps of the last plan.
    #[must_use]
    pub fn summary(&self) -> Self {
        let Self { name, spec, generation, status } = self;
        // Cloned before, the shared parts cost nothing.
        let mut status = status.clone();
        status.workloads = Arc::default();
        status.resources = Arc::default();
        status.last_plan = Arc::default();
        Self { name: name.clone(), spec: spec.clone(), generation: *generation, status }
    }

    /// Whether Git does not have it any more, by its condition `InGit`.
    pub fn has_left_git(&self) -> bool {
        self.status.problem(ConditionType::InGit).is_some()
    }

    /// Whether it runs as Git and its users ask for: it is healthy, or all that is not healthy are Jobs that are suspended, and
    /// paused rollouts with all of their instances available. A suspended application is not, as it may differ from Git.
    pub fn is_well(&self) -> bool {
        match self.status.health {
            HealthStatus::Healthy => true,
            HealthStatus::Suspended => {
                !self.spec.policy.suspended && self.status.workloads.values().all(WorkloadStatus::is_well)
            }
            HealthStatus::Progressing
            | HealthStatus::Missing
            | HealthStatus::Degraded
            | HealthStatus::Unknown => false,
        }
    }
}

/// One repository under watch: what was last read of it, and why not more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryStatus {
    /// As in the configuration.
    pub name: String,
    /// Without credentials.
    pub url: String,
    /// The branch, tag or commit that is followed.
    pub reference: String,
    /// The newest commit that was read.
    pub commit: Option<CommitInfo>,
    /// The number of commits in its history, with itself. `None`: they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_length: Option<u64>,
    /// Number of applications in that commit.
    pub applications: usize,
    /// One sentence: why the newest commit could not be fetched, is refused, or says nothing; or empty.
    pub message: String,
    /// The reason of the condition `SourceReady`, such as `UnknownHost`, if the last fetch failed; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When Git was last asked with success.
    pub fetched_at: Option<Timestamp>,
    /// When it is asked next.
    pub next_fetch: Option<Timestamp>,
    /// A sentence for each key that the configuration names: which logs in, checks the server or may sign. Never a value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// The names of the hosts that `driftless.yaml` of that commit has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// The specification of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSpec {
    /// The repository's name in the configuration.
    pub repository: String,
    /// Without credentials.
    pub url: String,
    /// The branch, tag or commit that is followed.
    pub reference: String,
    /// The application's folder in the repository.
    pub path: String,
    pub format: Option<Format>,
    pub policy: Policy,
    /// The commit that is the target now (the pinned one while pinned).
    pub commit: Option<CommitInfo>,
}

/// The numbers of the newest requests that a status answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Requests up to this one were accepted before the live state was observed.
    pub by_round: u64,
    /// Requests up to this one were made before the fetch began.
    pub by_fetch: u64,
}

/// The status of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationStatus {
    /// The name of the engine's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The generation that this status speaks of.
    pub observed_generation: u64,
    /// The requests that this status answers. It is no part of the API, which has tickets.
    #[serde(skip)]
    pub answered: Answered,
    pub sync: SyncStatus,
    pub health: HealthStatus,
    /// One sentence: why it is not `Synced` and `Healthy`, or empty.
    pub message: String,
    /// Why the newest commit is not reached until somebody acts: it failed, its manifests have errors or claim what another
    /// application of the same commit has, containers are not adopted, or another agent runs a workload as well. It is no part of the
    /// API, which answers it to a wait.
    #[serde(skip)]
    pub obstacle: Option<String>,
    /// A container or Job that failed for good before the newest commit, which left it as it was: the health stays `Degraded` until
    /// somebody acts. It is no part of the API, which answers it to a wait for `healthy`.
    #[serde(skip)]
    pub lasting_failure: Option<String>,
    pub operation: Option<Operation>,
    /// The number of the current revision.
    pub revision: Option<u64>,
    /// The commit of that revision: the newest one of the repository when it began, or after a rollback that of the older revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_commit: Option<CommitInfo>,
    /// The newest commit that the live state is equal to. It may have changed only other applications.
    pub commit: Option<CommitInfo>,
    /// The newest commit, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_commit: Option<CommitId>,
    /// The number of the revision of that commit which failed. It is no part of the API.
    #[serde(skip)]
    pub failed_revision: Option<u64>,
    pub pin: Option<PinStatus>,
    pub conditions: Vec<StatusCondition>,
    /// Shared, like all that grows with the application, because each round copies the status.
    pub workloads: Arc<BTreeMap<WorkloadName, WorkloadStatus>>,
    /// Services, ConfigMaps and other objects of the manifests that are no workloads.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Arc<Vec<ResourceStatus>>,
    /// The images whose registries are asked for newer ones, by the reference of the manifest.
    #[serde(default, skip_serializing_if = "is_default")]
    pub images: Arc<Vec<ImageUpdateStatus>>,
    /// For the reports to a fleet. It is no part of the API.
    #[serde(skip)]
    pub digests: Arc<ImageDigests>,
    /// Remarks about the manifests of the newest commit.
    pub findings: Vec<Finding>,
    /// Why nothing is being done about what is not yet so.
    pub waits: Vec<WaitStatus>,
    /// The differences from Git at this moment.
    pub drift: Vec<Drift>,
    /// The last plan that had steps: each step with its cause, and with the reason if it was not done.
    pub last_plan: Arc<Vec<String>>,
    pub last_plan_at: Option<Timestamp>,
    /// When Docker was last looked at for this application.
    pub observed_at: Option<Timestamp>,
    /// When Git was last asked with success.
    pub fetched_at: Option<Timestamp>,
}

impl ApplicationStatus {
    /// The condition of this type, if it says that something is wrong.
    pub fn problem(&self, kind: ConditionType) -> Option<&StatusCondition> {
        self.conditions.iter().find(|condition| condition.is_of(kind) && condition.is_problem())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SyncStatus {
    Synced,
    OutOfSync,
    #[default]
    Unknown,
}

/// Best to worst, so that the whole is as healthy as its `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HealthStatus {
    Healthy,
    Suspended,
    Progressing,
    Missing,
    Degraded,
    #[default]
    Unknown,
}

/// The operation that the agent performs, or performed last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    pub phase: OperationPhase,
    pub revision: Option<u64>,
    /// The current step, while it runs: `pulling web:1.2 (34 %)`.
    pub message: String,
    pub started: Timestamp,
    pub finished: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    /// Number of failures in a row, and the time of the next try after a failure.
    pub attempt: u32,
    pub next_retry_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationPhase {
    Running,
    Waiting,
    Succeeded,
    Failed,
}

/// An application held at a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinStatus {
    pub revision: u64,
    pub commit: CommitId,
    pub reason: String,
    pub at: Timestamp,
    pub until: Until,
    /// Number of commits that the followed reference is ahead; `None` if it is unknown.
    pub behind: Option<u64>,
    /// The actor that asked for the rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// Something that runs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// Since when Git asks for it, as far as we know.
    pub created: Option<Timestamp>,
    #[serde(flatten)]
    pub resource: Resource,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    #[serde(default)]
    pub spec: WorkloadSpec,
    pub health: HealthStatus,
    /// `CrashLoopBackOff`, `ImagePullBackOff`, `RollingUpdate`, `Completed`, …; empty when all is well.
    pub reason: String,
    pub message: String,
    pub image: String,
    /// Wanted.
    pub replicas: u32,
    /// Instances of the desired spec.
    pub updated_replicas: u32,
    /// Instances of another spec, or to be replaced.
    #[serde(default)]
    pub old_replicas: u32,
    pub ready_replicas: u32,
    pub available_replicas: u32,
    pub conditions: Vec<StatusCondition>,
    pub instances: Vec<InstanceStatus>,
    /// Instances that cannot be created yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub awaited: Vec<AwaitedInstance>,
    /// Only of a CronJob.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cron: Option<CronStatus>,
    /// Only of a Job.
    #[serde(default, skip_serializing_if = "is_default")]
    pub job: Option<JobStatus>,
    /// The phase, only of a hook, and of the Jobs that are its runs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hook: Option<HookPhase>,
    /// The sync wave.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wave: i32,
    /// Only while an update of it is at a step of its canary.
    #[serde(default, skip_serializing_if = "is_default")]
    pub canary: Option<CanaryStatus>,
    /// `compose.yaml:12`
    pub origin: String,
}

impl WorkloadStatus {
    /// Whether no instance is missing: it is healthy, or it makes no progress and all of its instances are available, also those of
    /// an older version. A suspended Job needs none.
    pub fn is_serving(&self) -> bool {
        let is_complete = || self.reason == JOB_SUSPENDED || self.available_replicas >= self.replicas;
        self.health == HealthStatus::Healthy || (self.health == HealthStatus::Suspended && is_complete())
    }

    fn is_well(&self) -> bool {
        let is_on_purpose = matches!(self.reason.as_str(), "Paused" | JOB_SUSPENDED);
        self.is_serving() && (self.health == HealthStatus::Healthy || is_on_purpose)
    }
}

/// The reason of the health of a Job that is suspended.
const JOB_SUSPENDED: &str = "JobSuspended";

/// The specification of a workload in Kubernetes' words. A service of Compose is a Deployment in the namespace of
/// its application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    #[serde(flatten)]
    pub object: ObjectRef,
    /// Since when Git asks for it, as far as we know.
    pub created: Option<Timestamp>,
    /// The beginning of the desired specification's hash.
    pub hash: String,
    /// The labels of the pod template.
    pub labels: BTreeMap<String, String>,
    pub strategy: Option<Strategy>,
    pub min_ready_seconds: u64,
    pub progress_deadline_seconds: u64,
    pub paused: bool,
    /// The containers of a pod of several.
    #[serde(skip_serializing_if = "is_default")]
    pub containers: Vec<PartSpec>,
    /// The object that it makes up, alone or with others, where that has another name.
    #[serde(skip_serializing_if = "is_default")]
    pub whole: Option<WorkloadName>,
    /// Its place in a StatefulSet.
    #[serde(skip_serializing_if = "is_default")]
    pub member: Option<Member>,
    /// When an instance of an older specification is replaced.
    #[serde(skip_serializing_if = "is_default")]
    pub update: Update,
    /// The ports that the container listens on.
    pub ports: Vec<(u16, Protocol)>,
    /// The container in full, field by field as YAML, masked.
    pub template: Arc<str>,
    /// The pod as the `spec` of a Kubernetes pod, as JSON, masked.
    #[serde(skip_serializing_if = "is_default")]
    pub pod: Arc<str>,
    /// The labels by which the manifest selects its pods.
    #[serde(skip_serializing_if = "is_default")]
    pub selector: BTreeMap<String, String>,
    /// The name of a pod's only container.
    #[serde(skip_serializing_if = "is_default")]
    pub container: Option<String>,
    /// The pod templates of instances that run with an older specification, by the beginning of its hash.
    #[serde(skip_serializing_if = "is_default")]
    pub former: BTreeMap<String, FormerTemplate>,
}

/// The pod template of an older specification, as far as its revision is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FormerTemplate {
    pub labels: BTreeMap<String, String>,
    /// As [`WorkloadSpec::pod`].
    pub pod: Arc<str>,
}

/// An instance that is wanted and has no container yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AwaitedInstance {
    /// The name that its container will have.
    pub name: String,
    pub slot: u32,
    /// `ImagePullBackOff`, `ContainerCreating`, `Pending`, …
    pub reason: String,
    pub message: String,
}

/// The status of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CronStatus {
    pub schedule: String,
    pub time_zone: Option<String>,
    pub concurrency_policy: String,
    pub suspend: bool,
    /// The Jobs that have not ended.
    pub active: Vec<String>,
    pub last_schedule_time: Option<Timestamp>,
    pub last_successful_time: Option<Timestamp>,
}

/// Progress of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    pub active: u32,
    pub succeeded: u32,
    /// Runs that failed.
    pub failed: u32,
    /// It failed, and is not tried again.
    pub is_over: bool,
    /// Why it ended, in Kubernetes' word.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub completions: Option<u32>,
    #[serde(default)]
    pub parallelism: u32,
    /// The indexes that are done, for an indexed Job: `0,2`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub completed_indexes: Option<String>,
    pub start_time: Option<Timestamp>,
    pub completion_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// The container's name.
    pub name: String,
    /// The name of its pod, where that is another.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod: Option<String>,
    pub container: String,
    pub slot: u32,
    /// `Running`, `Created`, `Paused`, `Exited (1)`, `CrashLoopBackOff`, …
    pub state: String,
    pub ready: bool,
    pub available: bool,
    /// Instances of the desired spec.
    pub updated: bool,
    pub restarts: u32,
    /// The number of times that it has ended by itself in a row. It is 0 again once it has run for ten minutes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub crashes: u32,
    pub since: Option<Timestamp>,
    pub message: String,
    pub spec: String,
    pub ports: Vec<String>,
    /// The image that it was created from.
    #[serde(default)]
    pub image: String,
    #[serde(default)]
    pub created: Option<Timestamp>,
    /// When its present or last run began.
    #[serde(default, skip_serializing_if = "is_default")]
    pub started: Option<Timestamp>,
    /// The end of its last run, if it does not run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exit: Option<ExitStatus>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub ip: Option<String>,
    /// Whether proxies forward to it. Only of an instance that a proxy is for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub traffic: Option<TrafficStatus>,
    /// The containers of a pod of several: initial ones and sidecars in the order of their start, then the others. The
    /// rest is then told of the pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub containers: Vec<PartStatus>,
}

/// Whether the proxies of an instance forward to it: those of Kubernetes Services and of published Compose ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficStatus {
    /// The workloads of the proxies.
    pub proxies: Vec<WorkloadName>,
    /// The ports of the instance, such as `8080/tcp`.
    pub ports: Vec<String>,
    pub receives: bool,
    /// Why it receives none. Empty if it receives some.
    pub reason: String,
}

impl TrafficStatus {
    /// For people, in a few words.
    pub fn sentence(&self) -> String {
        if self.receives {
            return "takes traffic".to_owned();
        }
        format!("takes no traffic: {}", self.reason)
    }
}

/// One of several containers of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    #[serde(flatten)]
    pub spec: PartSpec,
    /// The container, if it exists.
    #[serde(default, skip_serializing_if = "is_default")]
    pub instance: Option<Box<InstanceStatus>>,
}

/// One container of a pod: its name, role and image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartSpec {
    pub name: String,
    pub role: Role,
    pub image: String,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitStatus {
    pub code: i64,
    pub finished: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub out_of_memory: bool,
}

/// A reason for not acting, with the time at which it may end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitStatus {
    /// One word in camel case: `ImagePullBackOff`, `Dependency`, `MinReady`, …
    pub reason: String,
    pub object: String,
    pub message: String,
    pub attempt: Option<u32>,
    pub until: Option<Timestamp>,
}

impl WaitStatus {
    /// Whether the planner waits for this reason. The agent has further reasons, for what the planner does not know.
    pub fn is(&self, reason: WaitReason) -> bool {
        self.reason == reason.as_str()
    }
}

/// One field of one object that is not as Git says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// `container` or `network`.
    pub kind: String,
    /// Its name in Docker, or the instance where it is missing.
    pub object: String,
    pub workload: Option<WorkloadName>,
    /// `state`, `name`, `networks.shop_default`, `resources.memory`, `env.PORT`, …
    pub field: String,
    /// Masked.
    pub want: String,
    /// Masked.
    pub found: String,
    /// When it happened, where the engine tells.
    pub at: Option<Timestamp>,
    pub action: DriftAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DriftAction {
    /// Being corrected.
    Heal,
    /// Will be corrected after a pause, because it was corrected just before.
    BackOff,
    /// Left alone: self-heal is off, or the application is suspended.
    Report,
    /// Given up: healing had no effect, until the spec changes.
    Ineffective,
}
