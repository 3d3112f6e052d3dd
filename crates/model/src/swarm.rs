//! Docker Swarm: the settings of services that only a Swarm has, what a manager reports, and what the record keeps.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AgentId, AppName, AvailableImage, CommitId, CompletedJobs, ContentId, Pin, Port, ScaleOverride,
    StackHash, SwarmFileKind, SwarmPort, Timestamp, WorkloadName,
};
use crate::{defaults::is_default, label};

/// The kind of engine that runs an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EngineKind {
    /// Containers on the host of the agent.
    #[default]
    Docker,
    /// Services of the Docker Swarm that the host of the agent manages.
    Swarm,
}

/// The owner in the labels of objects of a Swarm. All agents of its managers are one owner: the one on the leader acts.
pub const SWARM_OWNER: &str = "swarm";

/// The label of the Swarm config in which the agents of all managers share the state of one application.
pub const SHARED_LABEL: &str = "driftless.shared";

/// The label of `docker stack`, by which its commands find services, networks, configs and secrets.
pub const STACK_NAMESPACE: &str = "com.docker.stack.namespace";

/// A placement constraint that no node fulfils.
pub const FITS_NO_NODE: &str = "node.id==none";

/// The largest content of a Swarm config or secret, in bytes.
pub const LARGEST_SWARM_FILE: usize = 500_000;

/// The name of a service in a Swarm, as `docker stack deploy` gives it. A Swarm allows no dot, which names of Kubernetes have
/// between name and namespace.
pub fn swarm_service_name(project: &str, workload: &WorkloadName) -> String {
    format!("{project}_{workload}").replace('.', "_")
}

/// The settings of one service that only a Swarm has. The others are those of its workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwarmService {
    pub mode: SwarmMode,
    /// Labels of the service. Labels of its containers are in the workload.
    #[serde(skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// Such as `node.role == worker`.
    #[serde(skip_serializing_if = "is_default")]
    pub constraints: Vec<String>,
    /// Labels of nodes that tasks are spread over.
    #[serde(skip_serializing_if = "is_default")]
    pub spread: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub max_replicas_per_node: Option<u64>,
    /// `vip` or `dnsrr`.
    #[serde(skip_serializing_if = "is_default")]
    pub endpoint_mode: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub restart: Option<SwarmRestart>,
    #[serde(skip_serializing_if = "is_default")]
    pub update: Option<SwarmUpdate>,
    #[serde(skip_serializing_if = "is_default")]
    pub rollback: Option<SwarmUpdate>,
    /// Billionths of a CPU.
    #[serde(skip_serializing_if = "is_default")]
    pub reserved_nano_cpus: Option<u64>,
    /// Discrete resources by kind.
    #[serde(skip_serializing_if = "is_default")]
    pub generic_resources: BTreeMap<String, i64>,
    /// The published ports in `mode: host`. The others are those of the ingress network.
    #[serde(skip_serializing_if = "is_default")]
    pub host_ports: BTreeSet<Port>,
    /// The files of its configs and secrets, and of the repository.
    #[serde(skip_serializing_if = "is_default")]
    pub files: Vec<SwarmFile>,
}

/// The mode of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SwarmMode {
    #[default]
    Replicated,
    /// One task on each node that fits.
    Global,
    /// Tasks that complete: as many as the Job has completions.
    ReplicatedJob,
    /// A task on each node that fits, which completes.
    GlobalJob,
}

impl SwarmMode {
    pub const ALL: [Self; 4] = [Self::Replicated, Self::Global, Self::ReplicatedJob, Self::GlobalJob];

    /// Whether its tasks are to complete.
    pub fn is_job(self) -> bool {
        matches!(self, Self::ReplicatedJob | Self::GlobalJob)
    }

    /// Its key in the specification of a service.
    pub fn key(self) -> &'static str {
        match self {
            Self::Replicated => "Replicated",
            Self::Global => "Global",
            Self::ReplicatedJob => "ReplicatedJob",
            Self::GlobalJob => "GlobalJob",
        }
    }
}

/// When Swarm starts a new task in the place of one that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwarmRestart {
    /// `none`, `on-failure` or `any`.
    pub condition: String,
    #[serde(skip_serializing_if = "is_default")]
    pub delay: Option<Duration>,
    #[serde(skip_serializing_if = "is_default")]
    pub max_attempts: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub window: Option<Duration>,
}

/// Settings of the replacement of tasks by a Swarm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwarmUpdate {
    /// `None`: one task. 0: all at once.
    #[serde(skip_serializing_if = "is_default")]
    pub parallelism: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub delay: Option<Duration>,
    /// `pause`, `continue` or `rollback`.
    #[serde(skip_serializing_if = "is_default")]
    pub failure_action: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub monitor: Option<Duration>,
    /// Millionths.
    #[serde(skip_serializing_if = "is_default")]
    pub max_failure_ratio: Option<u32>,
    /// `start-first` or `stop-first`.
    #[serde(skip_serializing_if = "is_default")]
    pub order: Option<String>,
}

/// One file that a Swarm config or secret brings into the containers of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwarmFile {
    /// The path in the container.
    pub target: String,
    /// A content of the application. A folder has one file for each path in it.
    pub content: Option<ContentId>,
    /// The path in the folder. Empty for a single file.
    #[serde(skip_serializing_if = "is_default")]
    pub path: String,
    /// The name that the config or secret gets in the Swarm. It contains the digest of the content, unless it is external.
    pub name: String,
    /// A secret, and no config.
    #[serde(skip_serializing_if = "is_default")]
    pub secret: bool,
    /// Somebody else creates it in the Swarm. It has no content here.
    #[serde(skip_serializing_if = "is_default")]
    pub external: bool,
    /// The language in which the content is a template for each task: `golang`.
    #[serde(skip_serializing_if = "is_default")]
    pub template: Option<String>,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl SwarmFile {
    pub fn kind(&self) -> SwarmFileKind {
        SwarmFileKind::of(self.secret)
    }
}

/// A Swarm as one of its managers reports it, as far as one application is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedSwarm {
    /// The id of the node that the agent asks.
    pub node: String,
    /// By id.
    pub nodes: BTreeMap<String, SwarmNode>,
    /// By name: the services with our label for this application, and those of its stack that nobody's agent owns.
    pub services: BTreeMap<String, ObservedService>,
    /// By name: the services of other applications, while a service of this one is to begin to write to data.
    pub other_services: BTreeMap<String, ObservedService>,
    /// By id: the tasks of these services, and those of removed ones that still run.
    pub tasks: BTreeMap<String, SwarmTask>,
    /// By [`SwarmFile::name`]: the configs with our label for this application. An adopted one may have several names.
    pub configs: BTreeMap<String, SwarmObject>,
    /// By [`SwarmFile::name`]: the secrets with our label for this application.
    pub secrets: BTreeMap<String, SwarmObject>,
    /// By the id of a config or secret: a service outside of the application that has it.
    pub file_users: BTreeMap<String, String>,
    /// By port: a service outside of the application that publishes it.
    pub port_users: BTreeMap<SwarmPort, String>,
    /// By name: the external configs that the application wants, if they are there, with the other application that has them.
    pub external_configs: BTreeMap<String, Option<AppName>>,
    /// By name: the external secrets that the application wants, if they are there, with the other application that has them.
    pub external_secrets: BTreeMap<String, Option<AppName>>,
    /// The config in which the agents of all managers share the state of this application.
    pub shared: Option<SharedObject>,
}

impl ObservedSwarm {
    /// By [`SwarmFile::name`]: the configs or secrets with our label for this application.
    pub fn files_of(&self, kind: SwarmFileKind) -> &BTreeMap<String, SwarmObject> {
        match kind {
            SwarmFileKind::Config => &self.configs,
            SwarmFileKind::Secret => &self.secrets,
        }
    }

    /// The same, to change them.
    pub fn files_of_mut(&mut self, kind: SwarmFileKind) -> &mut BTreeMap<String, SwarmObject> {
        match kind {
            SwarmFileKind::Config => &mut self.configs,
            SwarmFileKind::Secret => &mut self.secrets,
        }
    }

    /// By name: the external configs or secrets that the application wants, if they are there, with the other application that has
    /// them.
    pub fn external_files_of(&self, kind: SwarmFileKind) -> &BTreeMap<String, Option<AppName>> {
        match kind {
            SwarmFileKind::Config => &self.external_configs,
            SwarmFileKind::Secret => &self.external_secrets,
        }
    }

    /// Whether other agents may act for this one.
    pub fn has_several_managers(&self) -> bool {
        self.nodes.values().filter(|node| node.is_manager).count() > 1
    }

    /// Whether the agent's node is the leader of the managers.
    pub fn is_leader(&self) -> bool {
        self.nodes.get(&self.node).is_some_and(|node| node.is_leader)
    }

    /// The name of the leader, if there is one.
    pub fn leader(&self) -> Option<&str> {
        self.nodes.values().find(|node| node.is_leader).map(|node| node.name.as_str())
    }

    /// The name of a node, else its id.
    pub fn node_name<'a>(&'a self, id: &'a str) -> &'a str {
        self.nodes.get(id).map_or(id, |node| node.name.as_str())
    }

    /// The tasks of a service, by its id.
    pub fn tasks_of<'a>(&'a self, service: &'a str) -> impl Iterator<Item = &'a SwarmTask> {
        self.tasks.values().filter(move |task| task.service == service)
    }
}

/// A node of a Swarm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwarmNode {
    /// Its host name.
    pub name: String,
    /// `ready`, `down`, `disconnected` or `unknown`.
    pub state: String,
    /// `active`, `pause` or `drain`.
    pub availability: String,
    /// As `linux/x86_64`. Empty: it has not told yet.
    pub platform: String,
    pub is_manager: bool,
    pub is_leader: bool,
}

/// A service of a Swarm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedService {
    pub id: String,
    /// The index of its version. An update of another version than the present one is refused.
    pub version: u64,
    pub created: Timestamp,
    /// Its specification as the engine writes it. May contain secrets in variables.
    pub spec: Value,
    /// The state of its last update: `updating`, `paused`, `completed`, `rollback_started`, `rollback_paused` or
    /// `rollback_completed`. Empty: it was never updated.
    pub update_state: String,
    /// The words of the engine about the last update.
    pub update_message: String,
    /// The number of tasks that the scheduler wants, if the engine tells.
    pub desired_tasks: Option<u64>,
    /// The number of the run of a Job. Each update of the service is another run.
    pub iteration: u64,
    /// The ports that the Swarm has given it. For a moment after an update, they are still those of before.
    pub given_ports: BTreeSet<SwarmPort>,
    /// Whether it is a service of the application that has lost all labels of the agent, as by `docker stack deploy`. The record knows
    /// it by its id; an observation alone never says so.
    pub is_unlabelled: bool,
}

impl ObservedService {
    /// A label of the service.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.spec.get("Labels")?.get(name)?.as_str()
    }

    /// Whether `docker stack deploy` created it for this project, and no agent has it.
    pub fn is_of_stack(&self, project: &str) -> bool {
        self.label(STACK_NAMESPACE) == Some(project)
            && self.label(label::AGENT).is_none()
            && self.label(label::APPLICATION).is_none()
    }

    /// The number of restarts that somebody asked for without another change.
    pub fn forced_updates(&self) -> u64 {
        let number = self.spec.pointer("/TaskTemplate/ForceUpdate").and_then(Value::as_u64);
        number.unwrap_or_default()
    }

    /// The image with its digest.
    pub fn image(&self) -> Option<&str> {
        self.spec.pointer("/TaskTemplate/ContainerSpec/Image")?.as_str()
    }

    /// Its mode. A Swarm allows no change of it.
    pub fn mode(&self) -> Option<SwarmMode> {
        let mode = self.spec.get("Mode")?;
        SwarmMode::ALL.into_iter().find(|known| mode.get(known.key()).is_some())
    }

    /// Whether its tasks are to complete.
    pub fn is_job(&self) -> bool {
        self.mode().is_some_and(SwarmMode::is_job)
    }

    /// Whether its specification has no tasks.
    pub fn is_stopped(&self) -> bool {
        let constraints = self.spec.pointer("/TaskTemplate/Placement/Constraints").and_then(Value::as_array);
        let fits_none =
            constraints.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(FITS_NO_NODE)));
        let count = |path: &str| self.spec.pointer(path).and_then(Value::as_u64);
        fits_none
            || count("/Mode/Replicated/Replicas") == Some(0)
            || count("/Mode/ReplicatedJob/TotalCompletions") == Some(0)
    }

    /// The data that its tasks which are still to start may write to, as [`written_data`].
    pub fn writes(&self) -> BTreeSet<String> {
        let task = self.spec.get("TaskTemplate").filter(|_| !self.is_stopped());
        task.map(written_data).unwrap_or_default()
    }

    /// The ports because of which a Swarm refuses another service.
    pub fn ports(&self) -> BTreeSet<SwarmPort> {
        let mut ports = self.spec.get("EndpointSpec").map(SwarmPort::listed).unwrap_or_default();
        ports.extend(self.given_ports.iter().cloned());
        ports
    }

    /// The names of its configs, or of its secrets.
    pub fn files(&self, kind: SwarmFileKind) -> impl Iterator<Item = &str> {
        self.texts_of_files(kind.list(), kind.name_key())
    }

    /// The ids of its configs and secrets.
    pub fn file_ids(&self) -> impl Iterator<Item = &str> {
        SwarmFileKind::ALL.into_iter().flat_map(move |kind| self.texts_of_files(kind.list(), kind.id_key()))
    }

    fn texts_of_files(&self, list: &'static str, key: &'static str) -> impl Iterator<Item = &str> {
        let container = self.spec.pointer("/TaskTemplate/ContainerSpec");
        let all = container.and_then(|container| container.get(list)?.as_array());
        all.into_iter().flatten().filter_map(move |file| file.get(key)?.as_str())
    }
}

/// A task of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwarmTask {
    pub id: String,
    /// The id of its service.
    pub service: String,
    /// The number among the replicas. `None` in a global service.
    pub slot: Option<u32>,
    /// The id of its node, once it has one.
    pub node: Option<String>,
    /// `new`, `pending`, `assigned`, `preparing`, `starting`, `running`, `complete`, `failed`, `rejected`, …
    pub state: String,
    /// The state that Swarm brings it to.
    pub desired_state: String,
    /// The words of the engine about its state.
    pub message: String,
    /// The error of the engine: why it is pending, or why it has ended.
    pub error: String,
    pub exit_code: Option<i64>,
    /// When it got its state.
    pub since: Timestamp,
    pub created: Timestamp,
    /// Whether it has the present specification of its service, and is of the present run of a Job.
    pub is_current: bool,
    /// As [`written_data`] of its specification.
    pub writes: BTreeSet<String>,
}

/// The data that a task of this specification may write to: the names of volumes, and folders of its node, which begin with `/`.
pub fn written_data(task: &Value) -> BTreeSet<String> {
    let mounts = task.pointer("/ContainerSpec/Mounts").and_then(Value::as_array);
    let text = |mount: &Value, key: &str| mount.get(key).and_then(Value::as_str).map(str::to_owned);
    let is_written = |mount: &&Value| {
        matches!(text(mount, "Type").as_deref(), Some("volume" | "bind"))
            && mount.get("ReadOnly").and_then(Value::as_bool) != Some(true)
    };
    let sources = mounts.into_iter().flatten().filter(is_written).filter_map(|mount| text(mount, "Source"));
    sources.filter(|source| !source.is_empty()).collect()
}

/// A config or secret of a Swarm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwarmObject {
    pub id: String,
    /// Its name in the Swarm. That of `docker stack deploy`, if the agent has adopted it.
    pub name: String,
}

/// The Swarm config in which the agents of all managers share the state of one application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedObject {
    pub name: String,
    pub id: String,
    /// The index of its version. An update of another version than the present one is refused.
    pub version: u64,
    /// `None`: it cannot be read.
    pub state: Option<SharedState>,
}

/// The requests and failures of one application that the agents of all managers of a Swarm have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SharedState {
    /// A user has suspended it.
    #[serde(skip_serializing_if = "is_default")]
    pub suspended: bool,
    /// The revision has the number that the agent gave it that was asked; at the others the commit counts.
    #[serde(skip_serializing_if = "is_default")]
    pub pin: Option<Pin>,
    /// By service: as [`WrittenService::failed`].
    #[serde(skip_serializing_if = "is_default")]
    pub failed: BTreeMap<String, (String, String)>,
    /// The revision that the agent on the leader last applied, if the Swarm has several managers.
    #[serde(skip_serializing_if = "is_default")]
    pub applied: Option<AppliedRevision>,
    /// Numbers of tasks that users set for a time.
    #[serde(skip_serializing_if = "is_default")]
    pub scales: BTreeMap<WorkloadName, ScaleOverride>,
    /// Jobs that have completed. None of them is run again, also if its service and the agents that saw it are gone.
    #[serde(skip_serializing_if = "CompletedJobs::is_empty")]
    pub completed_jobs: CompletedJobs,
    /// The newer images that the agent on the leader has found, by the reference in Git.
    #[serde(skip_serializing_if = "is_default")]
    pub images: BTreeMap<String, AvailableImage>,
    /// The images that the agent on the leader has resolved, by the reference in Git, if the Swarm has several managers.
    #[serde(skip_serializing_if = "is_default")]
    pub digests: BTreeMap<String, ResolvedImage>,
    /// By the id of a manager: the command that removes the objects of `engine: docker` that its agent found there. Each agent sees
    /// its own host alone.
    #[serde(skip_serializing_if = "is_default")]
    pub left: BTreeMap<String, String>,
    /// Fields of newer agents, which this one leaves as they are.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, Value>,
}

/// A revision that an agent of a Swarm applies or has applied, for the agents on the other managers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedRevision {
    pub commit: CommitId,
    /// The hash of its stack as Git has it.
    pub stack: StackHash,
    /// The agent that applied it.
    pub by: AgentId,
}

impl SharedState {
    /// The state after this agent and others have changed `agreed`, the state that they had in common: what this agent has
    /// changed, and all else as in `found`. Completed Jobs are those of all.
    #[must_use]
    pub fn merged(self, agreed: &Self, found: &Self) -> Self {
        fn pick<T: PartialEq + Clone>(own: T, agreed: &T, found: &T) -> T {
            if own == *agreed { found.clone() } else { own }
        }
        // Each agent writes about its own node.
        let nodes: BTreeSet<&String> = self.left.keys().chain(found.left.keys()).collect();
        let left_on = |node: &String| {
            let [own, agreed, found] =
                [&self.left, &agreed.left, &found.left].map(|left| left.get(node).cloned());
            Some((node.clone(), pick(own, &agreed, &found)?))
        };
        let left = nodes.into_iter().filter_map(left_on).collect();
        Self {
            suspended: pick(self.suspended, &agreed.suspended, &found.suspended),
            pin: pick(self.pin, &agreed.pin, &found.pin),
            failed: pick(self.failed, &agreed.failed, &found.failed),
            applied: pick(self.applied, &agreed.applied, &found.applied),
            scales: pick(self.scales, &agreed.scales, &found.scales),
            completed_jobs: self.completed_jobs.merged(&found.completed_jobs),
            images: pick(self.images, &agreed.images, &found.images),
            digests: pick(self.digests, &agreed.digests, &found.digests),
            left,
            unknown: found.unknown.clone(),
        }
    }
}

/// Facts about the services of an application that a Swarm does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SwarmRecord {
    /// By name: what the Swarm returned when the agent had written a service.
    #[serde(skip_serializing_if = "is_default")]
    pub services: BTreeMap<String, WrittenService>,
    /// By name: the ids of the services that had the labels of the application when they were last seen with labels.
    #[serde(skip_serializing_if = "is_default")]
    pub own: BTreeMap<String, String>,
    /// The images with their digests, by the reference in Git.
    #[serde(skip_serializing_if = "is_default")]
    pub images: BTreeMap<String, ResolvedImage>,
    /// The state that the agents of all managers last agreed on.
    #[serde(skip_serializing_if = "is_default")]
    pub shared: SharedState,
    /// The names of the configs and secrets of the last revisions that succeeded, the newest last.
    #[serde(skip_serializing_if = "is_default")]
    pub kept: Vec<BTreeSet<String>>,
    /// The workloads that a user has asked to restart, with the forced updates that their services had then. With another number,
    /// the restart has begun.
    #[serde(skip_serializing_if = "is_default")]
    pub restarts: BTreeMap<WorkloadName, u64>,
    /// The workloads whose services of `docker stack deploy` a user has asked to adopt.
    #[serde(skip_serializing_if = "is_default")]
    pub adopts: BTreeSet<WorkloadName>,
    /// Whether this agent's node led the managers when it was last asked. Not stored: after a start nobody knows.
    #[serde(skip)]
    pub leads: bool,
    /// The commit that another agent has applied, until this one has fetched after it learned of that. It may know only
    /// older commits, so it writes nothing.
    #[serde(skip)]
    pub unfetched: Option<CommitId>,
}

/// Number of revisions whose configs and secrets stay in the Swarm: as many as the history has.
const KEPT_REVISIONS: usize = 10;

impl SwarmRecord {
    /// Keeps the configs and secrets of a revision that succeeded, so that a rollback finds them.
    pub fn keep_files(&mut self, names: BTreeSet<String>) {
        if self.kept.last() == Some(&names) {
            return;
        }
        self.kept.retain(|known| *known != names);
        self.kept.push(names);
        let over = self.kept.len().saturating_sub(KEPT_REVISIONS);
        self.kept.drain(..over);
    }

    /// Forgets the updates that failed, so that they are written again.
    pub fn try_again(&mut self) {
        self.services.retain(|_, written| written.failed.is_none());
    }
}

/// A service as the Swarm returned it when the agent had written it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenService {
    pub id: String,
    /// The digest of the specification that was sent, as in the label of the service.
    pub wanted: String,
    /// The digest of the specification that the Swarm returned. It contains what managers filled in.
    pub returned: String,
    /// The digest of a specification whose update the Swarm has paused or rolled back, with the words of the Swarm.
    #[serde(skip_serializing_if = "is_default")]
    pub failed: Option<(String, String)>,
}

/// An image by its digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResolvedImage {
    /// `name:tag@sha256:…`
    pub image: String,
    /// Operating system and architecture of the platforms that it exists for, in the words of the engine.
    pub platforms: BTreeSet<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(suspended: bool, failed: &[&str]) -> SharedState {
        let failed = failed.iter().map(|name| ((*name).to_owned(), (String::new(), String::new())));
        SharedState { suspended, failed: failed.collect(), ..SharedState::default() }
    }

    #[test]
    fn files_of_the_last_ten_revisions_are_kept() {
        let mut record = SwarmRecord::default();
        let names = |number: u32| BTreeSet::from([format!("motd_{number}")]);
        for number in [1, 2, 2, 1] {
            record.keep_files(names(number));
        }
        assert_eq!(record.kept, [names(2), names(1)]);
        for number in 3..13 {
            record.keep_files(names(number));
        }
        assert_eq!(record.kept, (3..13).map(names).collect::<Vec<_>>());
    }

    #[test]
    fn fields_of_newer_agents_stay_as_they_are() {
        let text = r#"{"failed":{"web":["a","b"]},"quota":{"most":3}}"#;
        let found: SharedState = serde_json::from_str(text).unwrap();
        let merged = state(true, &[]).merged(&state(false, &[]), &found);
        let expected = r#"{"suspended":true,"failed":{"web":["a","b"]},"quota":{"most":3}}"#;
        assert_eq!(serde_json::to_string(&merged).unwrap(), expected);
    }

    #[test]
    fn changes_of_two_agents_are_merged() {
        let agreed = state(false, &[]);
        // One was asked to suspend while the update of the other failed.
        let merged = state(true, &[]).merged(&agreed, &state(false, &["web"]));
        assert_eq!(merged, state(true, &["web"]));
        // Both suspended it, and then one resumes.
        let agreed = state(true, &["web"]);
        assert_eq!(state(false, &["web"]).merged(&agreed, &agreed), state(false, &["web"]));
        // Only others have changed it.
        assert_eq!(agreed.clone().merged(&agreed, &state(false, &[])), state(false, &[]));
    }
}
