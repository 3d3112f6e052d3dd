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

use super::{
    Change, Changes, Docker, Effect, Error, Interest, LogOptions, LogStream, Materials,
    cache::Cache,
    events,
    failure::Failure,
    listing::Flight,
    login::Registries,
    lower::Paths,
    own::{self, Home},
    raise::Defaults,
    wire::{Address, ApiVersion, Wire},
};
use driftless_clock::Clock;
use driftless_model::{AgentId, AppName, Build, ContainerId, Mount, MountSource, Observed, Timestamp};
use driftless_plan::Action;

/// How long an ordinary call may take.
pub(super) const DEADLINE: Duration = Duration::from_mins(1);
/// How long a sign of life may take.
pub(super) const PING: Duration = Duration::from_secs(5);
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
    pub registries: Registries,
    pub clock: Clock,
}

/// What the engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
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
pub(super) struct Inner {
    pub(super) wire: Wire,
    pub(super) docker: bollard::Docker,
    pub(super) agent: AgentId,
    /// As we see them ourselves.
    pub(super) paths: Paths,
    pub(super) registries: Registries,
    /// Containers that we may run in.
    suspects: Vec<String>,
    pub(super) clock: Clock,
    pub(super) cache: Cache,
    pub(super) flight: Flight,
    pub(super) changes: broadcast::Sender<Change>,
    known: Mutex<Option<Known>>,
}

/// What the engine said when we last agreed on a version.
#[derive(Clone, Debug)]
struct Known {
    about: About,
    defaults: Defaults,
    home: Home,
}

impl Engine {
    /// Begins to watch the engine, which need not be up yet. Must be called inside a Tokio runtime.
    pub fn connect(options: EngineOptions) -> Result<Self, Error> {
        let EngineOptions { host, agent, content_dir, secret_dir, app_dir, registries, clock } = options;
        let doing = format!("connect to the engine at {host}");
        let address =
            Address::parse(&host).map_err(|message| Error::Rejected { doing: doing.clone(), message })?;
        let wire = Wire::new(address);
        let docker = wire.bollard().map_err(|error| Failure::from(error).rejected(&doing))?;
        let (changes, _) = broadcast::channel(HINTS);
        let inner = Arc::new(Inner {
            wire,
            docker,
            agent,
            paths: Paths { content: content_dir, secret: secret_dir, app: app_dir },
            registries,
            suspects: own::suspects(),
            clock,
            cache: Cache::default(),
            flight: Flight::default(),
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
    pub fn about(&self) -> Option<About> {
        self.inner.wire.version()?;
        self.inner.known().map(|it| it.about)
    }

    /// How many calls were made to the API since we began.
    pub fn calls(&self) -> u64 {
        self.inner.wire.counts().0
    }

    /// How many of them could have changed something: all but `GET` and `HEAD`.
    pub fn writes(&self) -> u64 {
        self.inner.wire.counts().1
    }
}

impl Docker for Engine {
    async fn observe(&self, app: &AppName, interest: &Interest) -> Result<Observed, Error> {
        self.inner.observe(app, interest).await
    }

    async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        self.inner.applications().await
    }

    async fn act(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Effect, Error> {
        self.inner.act(app, action, progress).await
    }

    async fn build(
        &self,
        _app: &AppName,
        image: &str,
        build: &Build,
        materials: &Materials,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        self.inner.build(image, build, materials, progress).await
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

    async fn changes(&self, container: &ContainerId) -> Result<Changes, Error> {
        self.inner.changes(container).await
    }

    async fn written(&self, container: &ContainerId, path: &str) -> Result<Option<Timestamp>, Error> {
        self.inner.written(container, path).await
    }

    fn watch(&self) -> broadcast::Receiver<Change> {
        let receiver = self.inner.changes.subscribe();
        // Those who listen already are told once more, which costs them one look that finds nothing.
        if self.inner.cache.is_trusted() {
            let _ = self.inner.changes.send(Change::Reconnected);
        }
        receiver
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("wire", &self.inner.wire).finish_non_exhaustive()
    }
}

impl Inner {
    /// One call by bollard, with a deadline, in the agreed dialect.
    pub(super) async fn call<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T, bollard::errors::Error>> + Send,
    ) -> Result<T, Failure> {
        self.agree().await?;
        within(deadline, async { call.await.map_err(Failure::from) }).await
    }

    /// The version of the API to speak, agreed on first if need be.
    pub(super) async fn agree(&self) -> Result<ApiVersion, Failure> {
        if let Some(version) = self.wire.version() {
            return Ok(version);
        }
        let found = within(DEADLINE, async { self.docker.version().await.map_err(Failure::from) }).await?;
        let parse = |text: &Option<String>| text.as_deref().and_then(ApiVersion::parse);
        let theirs = parse(&found.api_version)
            .ok_or_else(|| Failure::Unreachable("the engine does not tell the version of its API".into()))?;
        let floor = parse(&found.min_api_version).unwrap_or(OLDEST);
        if theirs < OLDEST || floor > NEWEST {
            return Err(Failure::Status {
                code: 400,
                message: format!(
                    "the engine speaks versions {floor} to {theirs} of its API, and we speak {OLDEST} to {NEWEST}"
                ),
            });
        }
        let api = theirs.min(NEWEST);
        let info = within(DEADLINE, async { self.docker.info().await.map_err(Failure::from) }).await?;
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
        let about = About { version: found.version.unwrap_or_default(), api, is_podman };
        let home = self.find_home().await?;
        let known = Known { about, defaults, home };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        self.wire.agree(Some(api));
        Ok(api)
    }

    pub(super) async fn ping(&self) -> Result<(), Failure> {
        within(PING, async { self.docker.ping().await.map_err(Failure::from) }).await.map(drop)
    }

    /// What the engine fills in by itself, as of the last agreement.
    pub(super) fn defaults(&self) -> Defaults {
        self.known().map(|it| it.defaults).unwrap_or_default()
    }

    /// Whether it was Podman when we last agreed.
    pub(super) fn is_podman(&self) -> bool {
        self.known().is_some_and(|it| it.about.is_podman)
    }

    /// Asks the engine whether one of its containers is the one we run in.
    async fn find_home(&self) -> Result<Home, Failure> {
        let suspects = self.suspects.clone();
        if suspects.is_empty() {
            return Ok(Home::default());
        }
        let layer = own::layer();
        let has_layer = |it: &_| layer.as_deref().and_then(|layer| own::has_layer(it, layer));
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
        Ok(Home::default())
    }

    async fn suspect(&self, id: &str) -> Result<Option<bollard::models::ContainerInspectResponse>, Failure> {
        let options = None::<bollard::query_parameters::InspectContainerOptions>;
        let asked = async { self.docker.inspect_container(id, options).await.map_err(Failure::from) };
        match within(DEADLINE, asked).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.code() == Some(404) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The running containers that share the network of another.
    async fn guests(&self) -> Result<Vec<String>, Failure> {
        let options = None::<bollard::query_parameters::ListContainersOptions>;
        let asked = async { self.docker.list_containers(options).await.map_err(Failure::from) };
        let is_guest = |it: &bollard::models::ContainerSummary| {
            let mode = it.host_config.as_ref().and_then(|it| it.network_mode.as_deref());
            mode.is_some_and(|it| it.starts_with("container:"))
        };
        Ok(within(DEADLINE, asked).await?.into_iter().filter(is_guest).filter_map(|it| it.id).collect())
    }

    fn at_home(&self, found: &bollard::models::ContainerInspectResponse) -> Home {
        let home = Home::of(found, &self.paths);
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
    pub(super) fn own(&self) -> Option<ContainerId> {
        self.known()?.home.id
    }

    /// Our folders as the engine's host knows them.
    pub(super) fn paths(&self) -> Paths {
        self.known().and_then(|it| it.home.paths).unwrap_or_else(|| self.paths.clone())
    }

    /// Why a container cannot be made that mounts something of ours, if it cannot.
    pub(super) fn unreachable_mount(&self, mounts: &[Mount]) -> Option<String> {
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
pub(super) async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, Failure>> + Send,
) -> Result<T, Failure> {
    timeout(deadline, work).await.unwrap_or(Err(Failure::Late(deadline)))
}
