//! A real engine: connects the parts of this crate and starts to follow the engine's events.

use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc, time::Duration};

use driftless_clock::Clock;
use driftless_config::DockerHost;
use driftless_model::{
    AgentId, AppName, Build, ContainerId, DiskSpace, Healthcheck, ListedImage, Observed, Timestamp,
};
use driftless_plan::{Action, Creation};
use tokio::sync::{Notify, broadcast};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    actions::{ActionOptions, Actions},
    agent_claims::{AgentClaims, OwnAgents},
    attribution::Attribution,
    build_cache,
    cache::Cache,
    connection::{Connection, EngineInfo},
    container_files, disk_space,
    docker::{Claim, CommandResult, Docker, Effect, EngineEvent, FileChanges, ImageParents, ObserveScope},
    error::Error,
    events::EventWatcher,
    exec::Exec,
    image_build::{BuildInputs, Builder},
    image_list,
    inventory::Inventory,
    logs::{self, LogOptions, LogStream},
    mount_paths::MountPaths,
    observe::Observer,
    registry::{
        ImageQuestion, NewestImage, RegistryClient, RegistryError, SignatureError, SignatureQuestion,
        SignedImage,
    },
    registry_logins::RegistryLogins,
    remembered::{KnownContainers, Remembered},
    transport::Address,
};

/// The number of events that a slow receiver may lag behind before it has to observe everything.
const EVENT_QUEUE: usize = 1024;

/// The address of an engine, and the folders that it mounts for the agent.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The address of the engine, and the certificates of TLS.
    pub host: DockerHost,
    /// The agent's id: only objects with this id in their labels are ever changed or removed.
    pub agent: AgentId,
    /// As this process sees it: `<content_dir>/<id>` is mounted for [`driftless_model::MountSource::Content`].
    pub content_dir: PathBuf,
    /// As this process sees it: `<secret_dir>/<id>` is mounted for [`driftless_model::MountSource::Secret`].
    pub secret_dir: PathBuf,
    /// As this process sees it: `<app_dir>/<application>/<relative>` is mounted for
    /// [`driftless_model::MountSource::AppFolder`].
    pub app_dir: PathBuf,
    pub registries: RegistryLogins,
    /// The containers that an earlier process of the agent has inspected. `None`: nothing is known.
    pub remembered: Option<Remembered>,
    pub clock: Clock,
}

/// A Docker Engine. Dropping it ends its event stream.
pub struct Engine {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    observer: Observer,
    actions: Actions,
    builder: Builder,
    registries: RegistryClient,
    agents: Arc<OwnAgents>,
    claims: Arc<AgentClaims>,
    exec: Arc<Exec>,
    /// The watcher holds the sender: with its end, receivers are closed.
    events: broadcast::WeakSender<EngineEvent>,
    _watcher: AbortOnDropHandle<()>,
}

/// The facts that the engine states about itself, for readers that outlive the start of the agent.
#[derive(Debug)]
pub struct EngineFacts(Arc<Connection>);

impl EngineFacts {
    /// The facts; `None` until the engine has answered.
    pub fn get(&self) -> Option<EngineInfo> {
        self.0.info()
    }
}

/// The container that this process runs in.
#[derive(Debug)]
pub struct OwnContainer(Arc<Connection>);

impl OwnContainer {
    /// Its id; `None` outside of containers, and until the engine has answered.
    pub fn id(&self) -> Option<ContainerId> {
        self.0.own_container()
    }
}

impl Engine {
    /// Checks the address of an engine, without connecting to it.
    ///
    /// # Errors
    ///
    /// If it is neither `unix://…` nor `tcp://…`, or a file of TLS cannot be used.
    pub fn check_host(host: &DockerHost) -> Result<(), Error> {
        let doing = format!("connect to the engine at {}", host.address);
        Address::parse(host).map(drop).map_err(|message| Error::Rejected { doing, message })
    }

    /// Begins to follow the engine, which need not run yet. Fails if the address is invalid. Must be called inside a
    /// Tokio runtime.
    pub fn connect(options: EngineOptions) -> Result<Self, Error> {
        let EngineOptions {
            host,
            agent,
            content_dir,
            secret_dir,
            app_dir,
            registries: logins,
            remembered,
            clock,
        } = options;
        let doing = format!("connect to the engine at {}", host.address);
        let address =
            Address::parse(&host).map_err(|message| Error::Rejected { doing: doing.clone(), message })?;
        if host.is_exposed() {
            tracing::warn!(
                address = host.address,
                "the connection to the engine is not encrypted: everybody on the way can act as root on its host; use TLS (`docker.tls`, `DOCKER_TLS_VERIFY`)"
            );
        }
        let local_paths = MountPaths { content: content_dir, secret: secret_dir, app: app_dir };
        let connection = Connection::new(address, local_paths).map_err(|error| error.rejected(&doing))?;
        let (events, _) = broadcast::channel(EVENT_QUEUE);
        let (connection, cache) = (Arc::new(connection), Arc::<Cache>::default());
        let attribution = Arc::<Attribution>::default();
        let missed_event = Arc::<Notify>::default();
        let inventory = Arc::new(Inventory::new(&connection, &cache, &attribution, &missed_event, clock));
        let exec = Arc::new(Exec::new(&connection, &attribution));
        let agents = Arc::new(OwnAgents::new(agent));
        let claims = Arc::new(AgentClaims::new(&connection, &events, agents.own().clone(), clock));
        let weak_events = events.downgrade();
        let watcher = EventWatcher {
            claims: Arc::clone(&claims),
            connection: Arc::clone(&connection),
            cache: Arc::clone(&cache),
            attribution: Arc::clone(&attribution),
            events,
            missed_event,
            remembered,
            clock,
        };
        Ok(Self {
            observer: Observer::new(&connection, &inventory, &attribution, &agents),
            actions: Actions::new(
                &connection,
                &cache,
                &attribution,
                &inventory,
                &exec,
                ActionOptions { agents: Arc::clone(&agents), logins: logins.clone(), clock },
            ),
            registries: RegistryClient::new(&connection, logins.clone()),
            builder: Builder::new(&connection, &cache, logins, clock),
            _watcher: AbortOnDropHandle::new(tokio::spawn(watcher.run())),
            connection,
            agents,
            claims,
            cache,
            exec,
            events: weak_events,
        })
    }

    /// The facts that the engine stated about itself; `None` while it is unreachable.
    pub fn info(&self) -> Option<EngineInfo> {
        self.connection.info()
    }

    /// Tells what the engine states about itself.
    pub fn facts(&self) -> EngineFacts {
        EngineFacts(Arc::clone(&self.connection))
    }

    /// Tells which container this process runs in.
    pub fn own_container(&self) -> OwnContainer {
        OwnContainer(Arc::clone(&self.connection))
    }

    /// Tells what is known of the engine's containers.
    pub fn known_containers(&self) -> KnownContainers {
        let (cache, connection) = (Arc::clone(&self.cache), Arc::clone(&self.connection));
        KnownContainers { cache, connection, taken: None }
    }

    /// The number of calls so far.
    pub fn calls(&self) -> u64 {
        self.connection.transport().calls()
    }

    /// The number of calls so far that could change something: all but `GET` and `HEAD`.
    pub fn writes(&self) -> u64 {
        self.connection.transport().writes()
    }
}

impl Docker for Engine {
    async fn observe(&self, app: &AppName, scope: &ObserveScope) -> Result<Observed, Error> {
        self.observer.observe(app, scope).await
    }

    async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        self.observer.applications().await
    }

    async fn perform(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Effect, Error> {
        self.actions.perform(app, action, progress).await
    }

    async fn try_definition(&self, creation: &Creation) -> Result<(), Error> {
        self.actions.try_definition(creation).await
    }

    async fn build(
        &self,
        _app: &AppName,
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        self.builder.build(image, build, inputs, progress).await
    }

    async fn newest_image(&self, question: &ImageQuestion) -> Result<NewestImage, RegistryError> {
        self.registries.newest(question).await
    }

    async fn verify_image(&self, question: &SignatureQuestion) -> Result<SignedImage, SignatureError> {
        self.registries.verify(question).await
    }

    async fn images(&self) -> Result<Vec<ListedImage>, Error> {
        image_list::images(&self.connection).await
    }

    async fn remove_image(&self, image: &ListedImage, parents: ImageParents) -> Result<(), Error> {
        image_list::remove_image(&self.connection, &self.cache, image, parents).await
    }

    async fn disk_space(&self) -> Result<DiskSpace, Error> {
        disk_space::disk_space(&self.connection).await
    }

    async fn prune_build_cache(&self, keep: u64) -> Result<u64, Error> {
        build_cache::prune(&self.connection, keep).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.connection.ping().await.map_err(|error| error.classify("ping the engine"))
    }

    async fn exec(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandResult, Error> {
        self.exec.run(container, command, timeout).await
    }

    async fn probe(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandResult, Error> {
        self.exec.probe(container, command, timeout).await
    }

    async fn check_health(&self, container: &ContainerId, check: &Healthcheck) -> Result<bool, Error> {
        self.exec.check_health(container, check).await
    }

    async fn logs(&self, container: &str, options: &LogOptions) -> Result<LogStream, Error> {
        logs::open(&self.connection, container, options).await
    }

    async fn changed_files(&self, container: &ContainerId) -> Result<FileChanges, Error> {
        container_files::changed_files(&self.connection, container).await
    }

    async fn modified_at(&self, container: &ContainerId, path: &str) -> Result<Option<Timestamp>, Error> {
        container_files::modified_at(&self.connection, container, path).await
    }

    async fn claim(&self, agent: &AgentId, patience: Duration) -> Result<Claim, Error> {
        let claimed = self.claims.claim(agent, patience).await;
        if matches!(claimed, Ok(Claim::Granted)) {
            self.actions.remove_left(agent).await;
        }
        claimed.map_err(|error| error.classify("find out whether another agent lives on this engine"))
    }

    fn take_over(&self, former: &BTreeSet<AgentId>) {
        self.agents.take_over(former);
    }

    fn events(&self) -> broadcast::Receiver<EngineEvent> {
        let Some(events) = self.events.upgrade() else {
            return broadcast::channel(1).1;
        };
        let receiver = events.subscribe();
        // Earlier receivers get it too, which costs them one observation without changes.
        if self.connection.is_answering() {
            let _ = events.send(EngineEvent::Connected);
        }
        receiver
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("connection", &self.connection).finish_non_exhaustive()
    }
}
