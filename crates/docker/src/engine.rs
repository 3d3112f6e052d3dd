//! The real engine behind the seam: it connects, agrees on a version, and hands each question to the file that
//! answers it. It need not be up when we begin: the version is agreed on at the first call, and again whenever
//! the stream of events was lost.

use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::broadcast, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    BuildInputs, Docker, Effect, EngineEvent, Error, FileChanges, LogOptions, LogStream, ObserveScope,
    cache::Cache,
    call_error::CallError,
    container_list::SharedList,
    events,
    from_engine::Defaults,
    registry_logins::RegistryLogins,
    self_container::{self, SelfContainer},
    to_engine::MountPaths,
    transport::{Address, ApiVersion, Transport},
};
use driftless_clock::Clock;
use driftless_model::{AgentId, AppName, Build, ContainerId, Mount, MountSource, Observed, Timestamp};
use driftless_plan::Action;

/// How long an ordinary call may take.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
/// How long a sign of life may take.
pub(crate) const PING: Duration = Duration::from_secs(5);
/// The newest version of the API whose dialect we speak, and the oldest.
const NEWEST: ApiVersion = ApiVersion::new(1, 53);
const OLDEST: ApiVersion = ApiVersion::new(1, 40);
/// How many hints a slow listener may lag behind before it is told to look at everything.
const HINTS: usize = 1024;

/// How to reach the engine, and what it mounts for us.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// `unix:///var/run/docker.sock` or `tcp://host:port`.
    pub host: String,
    /// Who we are: only what carries this id is ever changed or removed.
    pub agent: AgentId,
    /// As this process sees it: `<content_dir>/<id>` is what [`driftless_model::MountSource::Content`] mounts.
    pub content_dir: PathBuf,
    /// As this process sees it: `<secret_dir>/<id>` is what [`driftless_model::MountSource::Secret`] mounts.
    pub secret_dir: PathBuf,
    /// As this process sees it: `<app_dir>/<application>/<relative>` is [`driftless_model::MountSource::AppFolder`].
    pub app_dir: PathBuf,
    /// Who we are for registries.
    pub registries: RegistryLogins,
    pub clock: Clock,
}

/// What the engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Its release, such as `20.10.24`.
    pub version: String,
    /// The version of the API that we agreed on.
    pub api: ApiVersion,
    /// It is Podman, which speaks Docker's API as far as it goes.
    pub is_podman: bool,
}

/// A Docker Engine. Dropping it ends its watch.
pub struct Engine {
    inner: Arc<Inner>,
    _events: AbortOnDropHandle<()>,
}

/// What the files of this module share.
pub(crate) struct Inner {
    pub(crate) transport: Transport,
    pub(crate) docker: bollard::Docker,
    pub(crate) agent: AgentId,
    /// As we see them ourselves.
    pub(crate) paths: MountPaths,
    pub(crate) registries: RegistryLogins,
    /// Containers that we may run in.
    suspects: Vec<String>,
    pub(crate) clock: Clock,
    pub(crate) cache: Cache,
    pub(crate) list: SharedList,
    pub(crate) changes: broadcast::Sender<EngineEvent>,
    known: Mutex<Option<Known>>,
}

/// What the engine said when we last agreed on a version.
#[derive(Clone, Debug)]
struct Known {
    about: EngineInfo,
    defaults: Defaults,
    home: SelfContainer,
}

impl Engine {
    /// Begins to watch the engine, which need not be up yet. Must be called inside a Tokio runtime.
    pub fn connect(options: EngineOptions) -> Result<Self, Error> {
        let EngineOptions { host, agent, content_dir, secret_dir, app_dir, registries, clock } = options;
        let doing = format!("connect to the engine at {host}");
        let address =
            Address::parse(&host).map_err(|message| Error::Rejected { doing: doing.clone(), message })?;
        let transport = Transport::new(address);
        let docker = transport.bollard().map_err(|error| CallError::from(error).rejected(&doing))?;
        let (changes, _) = broadcast::channel(HINTS);
        let inner = Arc::new(Inner {
            transport,
            docker,
            agent,
            paths: MountPaths { content: content_dir, secret: secret_dir, app: app_dir },
            registries,
            suspects: self_container::suspects(),
            clock,
            cache: Cache::default(),
            list: SharedList::default(),
            changes,
            known: Mutex::default(),
        });
        let watch = AbortOnDropHandle::new(tokio::spawn(events::watch(Arc::clone(&inner))));
        Ok(Self { inner, _events: watch })
    }

    /// Whether the engine answers.
    pub async fn ping(&self) -> Result<(), Error> {
        self.inner.ping().await.map_err(|failure| failure.sort("reach the engine"))
    }

    /// What the engine said of itself when we last agreed on a version; `None` while it is away.
    pub fn about(&self) -> Option<EngineInfo> {
        self.inner.transport.version()?;
        self.inner.known().map(|it| it.about)
    }

    /// How many calls were made to the API since we began.
    pub fn calls(&self) -> u64 {
        self.inner.transport.counts().0
    }

    /// How many of them could have changed something: all but `GET` and `HEAD`.
    pub fn writes(&self) -> u64 {
        self.inner.transport.counts().1
    }
}

impl Docker for Engine {
    async fn observe(&self, app: &AppName, scope: &ObserveScope) -> Result<Observed, Error> {
        self.inner.observe(app, scope).await
    }

    async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        self.inner.applications().await
    }

    async fn perform(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Effect, Error> {
        self.inner.perform(app, action, progress).await
    }

    async fn build(
        &self,
        _app: &AppName,
        image: &str,
        build: &Build,
        inputs: &BuildInputs,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        self.inner.build(image, build, inputs, progress).await
    }

    async fn exec(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<(i64, String), Error> {
        self.inner.exec(container, command, timeout).await
    }

    async fn logs(&self, container: &str, options: &LogOptions) -> Result<LogStream, Error> {
        self.inner.logs(container, options).await
    }

    async fn changed_files(&self, container: &ContainerId) -> Result<FileChanges, Error> {
        self.inner.changed_files(container).await
    }

    async fn modified_at(&self, container: &ContainerId, path: &str) -> Result<Option<Timestamp>, Error> {
        self.inner.modified_at(container, path).await
    }

    fn events(&self) -> broadcast::Receiver<EngineEvent> {
        let receiver = self.inner.changes.subscribe();
        // Those who listen already are told once more, which costs them one look that finds nothing.
        if self.inner.cache.is_trusted() {
            let _ = self.inner.changes.send(EngineEvent::Connected);
        }
        receiver
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("transport", &self.inner.transport).finish_non_exhaustive()
    }
}

impl Inner {
    /// One call by bollard, with a deadline, in the agreed dialect.
    pub(crate) async fn call<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T, bollard::errors::Error>> + Send,
    ) -> Result<T, CallError> {
        self.agree().await?;
        within(deadline, async { call.await.map_err(CallError::from) }).await
    }

    /// The version of the API to speak, agreed on first if need be.
    pub(crate) async fn agree(&self) -> Result<ApiVersion, CallError> {
        if let Some(version) = self.transport.version() {
            return Ok(version);
        }
        let found = within(DEADLINE, async { self.docker.version().await.map_err(CallError::from) }).await?;
        let parse = |text: &Option<String>| text.as_deref().and_then(ApiVersion::parse);
        let theirs = parse(&found.api_version).ok_or_else(|| {
            CallError::Unreachable("the engine does not tell the version of its API".into())
        })?;
        let floor = parse(&found.min_api_version).unwrap_or(OLDEST);
        if theirs < OLDEST || floor > NEWEST {
            return Err(CallError::Status {
                code: 400,
                message: format!(
                    "the engine speaks versions {floor} to {theirs} of its API, and we speak {OLDEST} to {NEWEST}"
                ),
            });
        }
        let api = theirs.min(NEWEST);
        let info = within(DEADLINE, async { self.docker.info().await.map_err(CallError::from) }).await?;
        let defaults = Defaults {
            log_driver: info.logging_driver.unwrap_or_else(|| "json-file".to_owned()),
            no_swap_limit: info.swap_limit == Some(false),
            host_name: info.name.unwrap_or_default(),
        };
        let is_podman = found.components.iter().flatten().any(|it| it.name.to_lowercase().contains("podman"));
        if is_podman {
            let version = found.version.as_deref().unwrap_or_default();
            tracing::warn!(
                version,
                "the engine is Podman: docs/container.md says what is known to work on it"
            );
        }
        let about = EngineInfo { version: found.version.unwrap_or_default(), api, is_podman };
        let home = self.find_home().await?;
        let known = Known { about, defaults, home };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        self.transport.agree(Some(api));
        Ok(api)
    }

    pub(crate) async fn ping(&self) -> Result<(), CallError> {
        within(PING, async { self.docker.ping().await.map_err(CallError::from) }).await.map(drop)
    }

    /// What the engine fills in by itself, as of the last agreement.
    pub(crate) fn defaults(&self) -> Defaults {
        self.known().map(|it| it.defaults).unwrap_or_default()
    }

    /// Whether it was Podman when we last agreed.
    pub(crate) fn is_podman(&self) -> bool {
        self.known().is_some_and(|it| it.about.is_podman)
    }

    /// Asks the engine whether one of its containers is the one we run in.
    async fn find_home(&self) -> Result<SelfContainer, CallError> {
        let suspects = self.suspects.clone();
        if suspects.is_empty() {
            return Ok(SelfContainer::default());
        }
        let layer = self_container::layer();
        let has_layer = |it: &_| layer.as_deref().and_then(|layer| self_container::has_layer(it, layer));
        let mut is_guest = false;
        for id in &suspects {
            let Some(found) = self.suspect(id).await? else { continue };
            match has_layer(&found) {
                // Its network is ours, and so are its host name and the files about it.
                Some(false) => is_guest = true,
                Some(true) | None => return Ok(self.at_home(&found)),
            }
        }
        if is_guest {
            for id in self.guests().await? {
                if let Some(found) = self.suspect(&id).await?.filter(|it| has_layer(it) == Some(true)) {
                    return Ok(self.at_home(&found));
                }
            }
        }
        tracing::info!("in a container that the engine does not know: paths are taken as they are");
        Ok(SelfContainer::default())
    }

    async fn suspect(
        &self,
        id: &str,
    ) -> Result<Option<bollard::models::ContainerInspectResponse>, CallError> {
        let options = None::<bollard::query_parameters::InspectContainerOptions>;
        let asked = async { self.docker.inspect_container(id, options).await.map_err(CallError::from) };
        match within(DEADLINE, asked).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.code() == Some(404) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The running containers that share the network of another.
    async fn guests(&self) -> Result<Vec<String>, CallError> {
        let options = None::<bollard::query_parameters::ListContainersOptions>;
        let asked = async { self.docker.list_containers(options).await.map_err(CallError::from) };
        let is_guest = |it: &bollard::models::ContainerSummary| {
            let mode = it.host_config.as_ref().and_then(|it| it.network_mode.as_deref());
            mode.is_some_and(|it| it.starts_with("container:"))
        };
        Ok(within(DEADLINE, asked).await?.into_iter().filter(is_guest).filter_map(|it| it.id).collect())
    }

    fn at_home(&self, found: &bollard::models::ContainerInspectResponse) -> SelfContainer {
        let home = SelfContainer::of(found, &self.paths);
        let name = found.name.as_deref().unwrap_or_default().trim_start_matches('/');
        tracing::info!(container = name, "running in a container");
        for hidden in &home.hidden {
            tracing::warn!(
                path = %hidden.path.display(), advice = hidden.advice,
                "the engine cannot reach this folder of the agent's container"
            );
        }
        home
    }

    /// The container that this agent runs in.
    pub(crate) fn own(&self) -> Option<ContainerId> {
        self.known()?.home.id
    }

    /// Our folders as the engine's host knows them.
    pub(crate) fn paths(&self) -> MountPaths {
        self.known().and_then(|it| it.home.paths).unwrap_or_else(|| self.paths.clone())
    }

    /// Why a container cannot be made that mounts something of ours, if it cannot.
    pub(crate) fn unreachable_mount(&self, mounts: &[Mount]) -> Option<String> {
        let home = self.known()?.home;
        mounts.iter().find_map(|it| match &it.source {
            MountSource::Content(_) | MountSource::InPlace { secret: false, folder: _ } => {
                home.objection(&self.paths.content)
            }
            MountSource::Secret(_) | MountSource::InPlace { secret: true, folder: _ } => {
                home.objection(&self.paths.secret)
            }
            MountSource::AppFolder(_) => home.objection(&self.paths.app),
            MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Image(_)
            | MountSource::Bind { .. }
            | MountSource::Empty
            | MountSource::Tmpfs { .. } => None,
        })
    }

    fn known(&self) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Gives up after the deadline.
pub(crate) async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, CallError>> + Send,
) -> Result<T, CallError> {
    timeout(deadline, work).await.unwrap_or(Err(CallError::Late(deadline)))
}
