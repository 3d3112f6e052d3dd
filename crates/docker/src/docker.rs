//! The interface to a Docker host, and the types of its arguments and results.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use driftless_model::{
    AgentId, AppName, Build, Container, ContainerId, DiskSpace, FileChangeKind, Format, Healthcheck,
    InstanceId, IpNetwork, ListedImage, Network, Observed, Peer, Platform, Protocol, Stack, SwarmFileKind,
    Timestamp, Workload, WorkloadName, swarm_service_name, wanted_data,
};
use driftless_plan::{Action, Creation, SwarmResult};
use tokio::sync::broadcast;

use crate::{
    error::Error,
    host_ports,
    image_build::BuildInputs,
    logs::{LogOptions, LogStream},
    registry::{ImageQuestion, NewestImage, RegistryError, SignatureError, SignatureQuestion, SignedImage},
};

/// A Docker host: what the agent needs of it. `Engine` is a real one, `SimulatedEngine` that of the tests, and `MeasuredEngine` of the
/// agent adds metrics to either.
pub trait Docker: Send + Sync + 'static {
    /// Observes everything that belongs to one application, and the objects that `scope` names.
    fn observe(
        &self,
        app: &AppName,
        scope: &ObserveScope,
    ) -> impl Future<Output = Result<Observed, Error>> + Send;

    /// The applications that own at least one container or network of this host, by their labels.
    fn applications(&self) -> impl Future<Output = Result<BTreeSet<AppName>, Error>> + Send;

    /// Performs one step of a plan. A step whose result is already there succeeds. `progress` receives a sentence
    /// now and then while a step takes long.
    fn perform(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> impl Future<Output = Result<Effect, Error>> + Send;

    /// Asks whether the engine accepts a definition, by a container under another name that is never started and is removed at
    /// once. Only [`Error::Rejected`] says that it does not, and [`Error::is_refused_by_host`] that it does not for now.
    fn try_definition(&self, creation: &Creation) -> impl Future<Output = Result<(), Error>> + Send;

    /// Builds an image and tags it with `image` and with the tags of the build. Unchanged steps come from the
    /// engine's cache. `progress` receives each step and the last line of output. Dropping the future ends the build.
    fn build(
        &self,
        app: &AppName,
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// All images of this host, with the containers that use them.
    fn images(&self) -> impl Future<Output = Result<Vec<ListedImage>, Error>> + Send;

    /// Removes an image with all of its names. Fails if a container uses it. An image that is gone is no error.
    fn remove_image(
        &self,
        image: &ListedImage,
        parents: ImageParents,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The free space of the disk that the engine keeps its images on.
    fn disk_space(&self) -> impl Future<Output = Result<DiskSpace, Error>> + Send;

    /// Cuts the engine's build cache to this many bytes: what was not used for the longest time goes first. Returns the bytes that
    /// were freed. The engine does not tell whose builds filled it.
    fn prune_build_cache(&self, keep: u64) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Asks the registry of an image for the newest one.
    fn newest_image(
        &self,
        question: &ImageQuestion,
    ) -> impl Future<Output = Result<NewestImage, RegistryError>> + Send;

    /// Checks that an image of this host has the signatures that it must have.
    fn verify_image(
        &self,
        question: &SignatureQuestion,
    ) -> impl Future<Output = Result<SignedImage, SignatureError>> + Send;

    /// Whether the engine answers, which takes a few seconds at most.
    fn ping(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Runs a command inside a running container until it ends.
    fn exec(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> impl Future<Output = Result<CommandResult, Error>> + Send;

    /// Runs the command of a probe like [`Self::exec`]. It fails while an earlier run of it that took too long has not ended.
    fn probe(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> impl Future<Output = Result<CommandResult, Error>> + Send;

    /// Runs the health check of a running container once, as the engine does: its command, or its script in the shell of
    /// its image. Returns whether it succeeded. A check that takes longer than its time limit has failed and may still run.
    fn check_health(
        &self,
        container: &ContainerId,
        check: &Healthcheck,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Opens the log of a container, by its id or the beginning of it.
    fn logs(
        &self,
        container: &str,
        options: &LogOptions,
    ) -> impl Future<Output = Result<LogStream, Error>> + Send;

    /// The files of a container that differ from its image.
    fn changed_files(
        &self,
        container: &ContainerId,
    ) -> impl Future<Output = Result<FileChanges, Error>> + Send;

    /// When a file in a container was last written; `None` if there is no such file.
    fn modified_at(
        &self,
        container: &ContainerId,
        path: &str,
    ) -> impl Future<Output = Result<Option<Timestamp>, Error>> + Send;

    /// Finds out whether an agent with this id lives on the engine, which takes up to `patience`. If none does, this
    /// process holds the id from then on and refuses the claims of others. If two processes hold it and claim it again, the
    /// one that began first keeps it.
    fn claim(&self, agent: &AgentId, patience: Duration)
    -> impl Future<Output = Result<Claim, Error>> + Send;

    /// From now on, objects that these agents created belong to this agent. Replaces the agents of earlier calls.
    fn take_over(&self, former: &BTreeSet<AgentId>);

    /// The engine's events from now on. If the engine answers, the first event of a new receiver is
    /// [`EngineEvent::Connected`].
    fn events(&self) -> broadcast::Receiver<EngineEvent>;
}

/// The result of a command that ran inside a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The exit code.
    pub code: i64,
    /// The end of the output.
    pub output: String,
}

impl CommandResult {
    /// The output of a command that succeeded, or why it failed.
    ///
    /// # Errors
    ///
    /// If the exit code is not 0.
    pub fn success(self) -> Result<String, String> {
        if self.code == 0 {
            Ok(self.output)
        } else {
            Err(format!("exit code {}: {}", self.code, self.output.trim()))
        }
    }
}

/// Objects to observe for an application besides those that carry its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObserveScope {
    /// The application is one of a Swarm. Its services are observed, and of this host networks, and containers that must
    /// not run at the same time.
    pub is_swarm: bool,
    /// The names of the services in the Swarm that the application wants.
    pub services: BTreeSet<String>,
    /// The ids of services in the Swarm that had the labels of the application: without labels, they are observed, too.
    pub own_services: BTreeSet<String>,
    /// The project of the stack in the Swarm. An agent's service of it that lost the label of the application is observed, too.
    pub namespace: String,
    /// By the names of these services: the data that they are to write to. If one does not have them yet, the services of other
    /// applications that write to data are observed, too.
    pub data: BTreeMap<String, BTreeSet<String>>,
    /// The names of the external configs in the Swarm that the application wants.
    pub external_configs: BTreeSet<String>,
    /// The names of the external secrets in the Swarm that the application wants.
    pub external_secrets: BTreeSet<String>,
    /// The application had services in a Swarm, and is to run on this host now.
    pub had_services: bool,
    pub images: BTreeSet<String>,
    pub networks: BTreeSet<String>,
    /// Subnets that the networks of the application ask for.
    pub subnets: BTreeSet<IpNetwork>,
    pub volumes: BTreeSet<String>,
    /// Ports of the host that containers of the application publish.
    pub host_ports: BTreeSet<(u16, Protocol)>,
    /// Containers outside the application, by name or id.
    pub containers: BTreeSet<String>,
    /// Platforms that containers ask for.
    pub platforms: BTreeSet<Platform>,
    /// The application's Compose project: its containers are candidates for adoption.
    pub project: Option<String>,
    /// The fixed names of the application's containers (`container_name`): a container with such a name that Docker
    /// Compose did not create is a candidate, too.
    pub container_names: BTreeMap<String, InstanceId>,
    /// Adopted containers: they belong to the application although they do not carry its labels.
    pub adopted: BTreeSet<ContainerId>,
    /// Adopted networks, by id.
    pub adopted_networks: BTreeSet<String>,
}

impl ObserveScope {
    /// Everything that a stack of a Swarm names.
    pub fn of_swarm(stack: &Stack) -> Self {
        let name = |workload: &WorkloadName| swarm_service_name(&stack.project, workload);
        let writers = stack.workloads.iter().filter(|(_, workload)| workload.job_or_template().is_none());
        let data = |workload: &Workload| wanted_data(workload).map(str::to_owned).collect();
        let external = |kind: SwarmFileKind| {
            let files = stack.swarm.values().flat_map(|service| &service.files);
            let external = files.filter(|file| file.external && file.kind() == kind);
            external.map(|file| file.name.clone()).collect()
        };
        Self {
            is_swarm: true,
            services: stack.workloads.keys().map(name).collect(),
            namespace: stack.project.clone(),
            data: writers.map(|(workload, writer)| (name(workload), data(writer))).collect(),
            external_configs: external(SwarmFileKind::Config),
            external_secrets: external(SwarmFileKind::Secret),
            networks: stack.networks.keys().cloned().collect(),
            project: project(stack),
            ..Self::default()
        }
    }

    /// Everything that a stack names.
    pub fn of(stack: &Stack) -> Self {
        if !stack.swarm.is_empty() {
            return Self::of_swarm(stack);
        }
        let containers = || stack.workloads.values().flat_map(Workload::containers);
        let outside_container = |peer: &Peer| match peer {
            Peer::Container(name) => Some(name.clone()),
            Peer::Workload(_) => None,
        };
        Self {
            images: stack.images().cloned().collect(),
            networks: stack.networks.keys().cloned().collect(),
            subnets: stack.networks.values().flat_map(Network::bridge_subnets).collect(),
            volumes: stack.volumes.keys().cloned().collect(),
            host_ports: host_ports::wanted(containers().flat_map(|container| &container.ports)),
            containers: containers().flat_map(Container::peers).filter_map(outside_container).collect(),
            platforms: containers().filter_map(Container::platform).collect(),
            project: project(stack),
            container_names: container_names(stack),
            ..Self::default()
        }
    }
}

/// The Compose project of a stack.
fn project(stack: &Stack) -> Option<String> {
    (stack.format == Format::Compose).then(|| stack.project.clone())
}

fn container_names(stack: &Stack) -> BTreeMap<String, InstanceId> {
    let workloads = stack.workloads.iter().filter(|_| stack.format == Format::Compose);
    let named = workloads.filter_map(|(name, workload)| {
        let instance = InstanceId { workload: name.clone(), slot: 1 };
        Some((workload.container_name.clone()?, instance))
    });
    named.collect()
}

/// A hint that something changed on the engine. It says which application to wake; nothing is decided by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// The engine answers or its event stream began, for the first time or again: anything may have changed in between. While it
    /// answers without an event stream, this comes every 30 seconds.
    Connected,
    /// The engine does not answer, or takes no new connection. The end of the event stream alone is not reported.
    Disconnected { error: String },
    /// Another process may hold an id of this one too: claim all of them again.
    ClaimLost,
    /// Something happened to a container, network, volume or image.
    ObjectChanged {
        /// The application that the object belongs to; `None` if that is unknown: wake all applications.
        app: Option<AppName>,
        /// `container`, `network`, `volume`, `image` or `daemon`.
        kind: String,
        name: String,
        /// The engine's name for it: `die`, `rename`, `disconnect`, …
        action: String,
        at: Option<Timestamp>,
    },
}

/// The images without a name that only a removed image was built from. The classic builder leaves one for each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageParents {
    /// They stay.
    Keep,
    /// They are removed too.
    Remove,
}

/// Files of a container that differ from its image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    pub files: Vec<(String, FileChangeKind)>,
    /// The list was too long; `files` is empty then.
    pub is_truncated: bool,
}

/// The answer to the claim of an agent id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No other agent with this id lives on the engine.
    Granted,
    /// One does.
    Refused,
    /// The engine answers, and cannot create volumes, as with a full disk: no agent can claim an id. The engine's error.
    Impossible(String),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This call created the container with this id.
    Created(ContainerId),
    /// A manager of a Swarm has answered.
    Swarm(Box<SwarmResult>),
    Done,
}
