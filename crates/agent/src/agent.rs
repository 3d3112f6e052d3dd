//! Starts the tasks of an agent, and stops them in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::{Notify, Semaphore, mpsc, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::Settings;
use driftless_docker::{Docker, Engine, EngineOptions};
use driftless_git as git;
use driftless_git::{CommitSource, FetchPermits, Lookup, RepositoryOptions};
use driftless_model::{AgentId, AppName, Event, EventKind, Mask};
use driftless_sops::Keys;
use driftless_store::{ContentDir, Opened, OtherAgent, StateDir, Store, Visibility};

use crate::{
    Error, Handle, Inbox,
    claims::Claims,
    commits::status::StatusReporter,
    container_memory::{self, start_container_memory},
    context::Services,
    decryption::DecryptedSource,
    engine_state::EngineState,
    error::chain,
    expiry_watch::start_expiry_watch,
    failed_reads::FailedReads,
    fleet::{
        enrolments::Enrolments,
        host_requests::RequestSettings,
        peers::{PeerAccess, PeerSources, READ_EVERY, start_peers},
        reports::{ReportSource, start_fleet_reports},
        source::start_fleet_source,
    },
    fs_scan::CONCURRENT_SCANS,
    host_values::ValueReader,
    images::{
        cleanup::start_image_cleanup,
        kept_images::{EngineImages, start_forgetting_images},
        registry_logins,
        tasks::{BuildLimits, CONCURRENT_BUILDS},
    },
    incident_watch::start_notifications,
    lasting_tasks::{self, ends_agent},
    logs::EngineLogs,
    measured_engine::MeasuredEngine,
    notifications::{self, Notifications},
    other_agents::{finder::AgentFinder, ownership::Ownership},
    probe::Prober,
    probe_targets::EngineExec,
    proxy_counters::{EngineProxyCounters, Proxies},
    random::random_key,
    reconcile::EngineServices,
    release::{Release, pending_release},
    reopened::ReopenedSource,
    repository::{RepositoryLink, RepositoryTask},
    repository_events::FetchEvents,
    repository_view::RepositoryView,
    self_update::agent::{remember_failure, start_own_update},
    socket_watch::start_socket_watch,
    stale_queues::end_stale_queues,
    supervisor::{FollowedRepository, Supervisor},
    unpublished::Unpublished,
    wakes::{Wakes, wake_on_clock_jumps, wake_on_engine_events},
};

/// Time limit for running steps after a request to stop. It is shorter than `TimeoutStopSec` of the systemd unit and
/// `stop_grace_period` of `deploy/compose.yaml`.
const LONGEST_STOP: Duration = Duration::from_secs(15);

/// The same while the engine does not answer.
const LONGEST_STOP_WITHOUT_ENGINE: Duration = Duration::from_secs(2);

/// The agent: one process that manages one engine.
pub struct Agent;

/// A running agent.
pub struct Running {
    /// To send requests and read what the agent publishes.
    pub handle: Handle,
    /// The agent's database.
    pub store: Store,
    clock: Clock,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Locked until the end, so that no second agent uses it.
    _state: StateDir,
}

impl Agent {
    /// Locks the state directory, starts to follow the engine and every repository, and returns. Neither needs to
    /// answer yet.
    ///
    /// # Errors
    ///
    /// If the state directory, a mirror or the address of the engine cannot be used.
    pub fn start(
        settings: Settings,
        environment: Lookup,
        clock: Clock,
    ) -> BoxFuture<'static, Result<Running, Error>> {
        // Boxed so that the whole agent is compiled with this crate, and not with the one that polls the future.
        Box::pin(Self::open(settings, environment, clock))
    }

    /// Checks everything that depends on settings and could keep [`Agent::start`] from starting. Locks and changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Agent::start`].
    pub fn check(settings: &Settings, environment: &Lookup) -> Result<(), Error> {
        let own = settings.repositories.iter().filter_map(|repository| repository.sops_key_files.as_deref());
        for files in own.chain([settings.sops_key_files.as_slice()]) {
            Keys::load(files).map_err(Error::Keys)?;
        }
        if let Some(path) = &settings.state_key_file {
            let fail = |source| driftless_store::Error::Directory {
                doing: "read the key",
                path: path.clone(),
                source,
            };
            std::fs::File::open(path).map_err(fail).map_err(Error::State)?;
        }
        Engine::check_host(&settings.docker).map_err(Error::Docker)?;
        notifications::check(&settings.notifications, environment)
            .map_err(|(name, source)| Error::Receiver { name, source })?;
        for repository in &settings.repositories {
            let mirror = settings.state_dir.join("mirrors").join(&repository.name);
            let permits = FetchPermits::default();
            let options = RepositoryOptions::new(repository, mirror, environment.clone(), permits);
            let name = repository.name.clone();
            git::Repository::check(&options).map_err(|source| Error::Source { name, source })?;
        }
        Ok(())
    }

    /// Reads all sources of `valuesFrom` once. Returns their number, and an error for each one that cannot be read.
    pub async fn check_host_values(
        settings: &Settings,
        environment: &Lookup,
        clock: Clock,
    ) -> (usize, Vec<String>) {
        let (mut count, mut errors) = (0, BTreeSet::new());
        for repository in &settings.repositories {
            let mut reader = ValueReader::new(repository, environment.clone(), clock);
            reader.read(true).await;
            let values = reader.values();
            count += values.count();
            errors.extend(values.errors().cloned());
        }
        (count, errors.into_iter().collect())
    }

    /// The Docker client's file, if it has `proxies`, which containers and builds do not get from the agent.
    #[must_use]
    pub fn file_with_proxies(settings: &Settings, environment: &Lookup) -> Option<PathBuf> {
        registry_logins::registries(settings, environment).file_with_proxies().map(Path::to_owned)
    }

    async fn open(settings: Settings, environment: Lookup, clock: Clock) -> Result<Running, Error> {
        let state = StateDir::lock(&settings.state_dir).map_err(Error::State)?;
        let opened = match &settings.state_key_file {
            Some(key_file) => Store::open_with_key(&state, key_file, clock),
            None => Store::open(&state, clock),
        };
        let Opened { store, recovered } = opened.map_err(Error::State)?;
        if let Some(what) = &recovered {
            tracing::error!(what, "a part of the state was lost or damaged");
        }
        let has_new_id = !store.has_agent_id().map_err(Error::State)?;
        let agent = store.agent_id().map_err(Error::State)?;
        let contents = ContentDir::open(&state, &settings.runtime_dir, clock).map_err(Error::State)?;
        registry_logins::warn_of_proxies(&settings, &environment);
        let docker = Engine::connect(EngineOptions {
            host: settings.docker.clone(),
            agent: agent.clone(),
            content_dir: state.contents(),
            secret_dir: contents.folder(Visibility::Secret).to_owned(),
            app_dir: state.applications(),
            registries: registry_logins::registries(&settings, &environment),
            remembered: container_memory::remembered(&store),
            clock,
        })
        .map_err(Error::Docker)?;
        let own_container = docker.own_container();
        let known_containers = docker.known_containers();
        let facts = docker.facts();
        remember_failure(state.path(), &store);
        end_stale_queues(&settings, &store, clock.now());
        let sources = match Release::of(&store) {
            Release::No => {
                remove_former_mirrors(&settings, &state);
                open_repositories(&settings, &environment, &state).await?
            }
            Release::Released(_) | Release::Unknown(_) => Vec::new(),
        };
        let build_timeout = settings.build_timeout;
        let parts = Parts {
            docker,
            sources,
            store: store.clone(),
            contents,
            clock,
            agent: agent.clone(),
            has_new_id,
            build_timeout,
            environment: environment.clone(),
        };
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let notifications = Notifications::new(&settings.notifications, store.clone(), &environment, clock)
            .map_err(|(name, source)| Error::Receiver { name, source })?;
        start_container_memory(known_containers, store.clone(), stop.clone(), &tasks);
        let handle = launch(parts, &stop, &tasks).with_notifications(notifications.clone());
        let handle = handle.with_fleet(settings.fleet.clone());
        let handle = handle.with_place(settings.host.name.clone(), settings.page_url());
        let enrolments =
            Enrolments::load(&store, &settings.report, (&settings.host.name, &agent.0), &environment, clock);
        let handle = handle.with_enrolments(enrolments.clone());
        let source = ReportSource {
            handle: handle.clone(),
            host: settings.host.clone(),
            instance: agent,
            engine_version: Arc::new(move || facts.get().map(|info| info.version)),
            page: settings.notifications.url.clone().unwrap_or_default(),
            environment: environment.clone(),
            enrolments: enrolments.clone(),
            requests: RequestSettings {
                allowed: settings.fleet.allow_requests.clone(),
                audit: settings.audit.clone(),
            },
            is_released: matches!(Release::of(&store), Release::Released(_)),
            clock,
        };
        let handle = handle.with_own_report(source.for_itself(settings.report.every));
        let handle = handle.with_fleet_targets(start_fleet_reports(&settings.report, &source, &stop, &tasks));
        let handle = match &settings.fleet.from {
            Some(place) => {
                let source = start_fleet_source(place, &environment, clock, &stop, &tasks);
                handle.with_fleet_source(source)
            }
            None => handle,
        };
        let peers = PeerSources {
            accepted: settings.fleet.accept.then(|| store.clone()),
            from: settings.fleet.from.clone(),
            access: PeerAccess { environment: environment.clone(), enrolments, every: READ_EVERY, clock },
        };
        start_peers(handle.fleet().peers(), &settings.report, peers, &stop, &tasks);
        let handle = handle.with_image_retention(settings.image_cleanup.unwrap_or_default().retention);
        start_image_cleanup(settings.image_cleanup, &handle, (&store, clock), &stop, &tasks);
        start_expiry_watch(&settings, &handle, (&store, clock), &stop, &tasks);
        start_notifications(&notifications, &handle, &stop, &tasks);
        start_socket_watch(&settings.docker, &stop, &tasks);
        start_own_update(state.path(), own_container, (&handle, &store, clock), &stop, &tasks);
        start_commit_statuses(&settings, &handle, (&store, &environment, clock), &stop, &tasks);
        Ok(Running { handle, store, clock, stop, tasks, _state: state })
    }
}

/// Starts one task for each repository with commit statuses.
fn start_commit_statuses(
    settings: &Settings,
    handle: &Handle,
    (store, environment, clock): (&Store, &Lookup, Clock),
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    for repository in &settings.repositories {
        let ends = (handle.commit_statuses(), handle.status_errors());
        if let Some(reporter) = StatusReporter::new(repository, ends, store, environment, clock) {
            lasting_tasks::start("commit statuses", (stop.clone(), tasks), reporter.run(stop.clone()));
        }
    }
}

/// Removes the mirrors of repositories that the configuration does not have any more, and of submodules that it does not follow.
fn remove_former_mirrors(settings: &Settings, state: &StateDir) {
    let names = settings.repositories.iter().map(|repository| repository.name.as_str()).collect();
    git::remove_unused_mirrors(&state.mirrors(), &names);
    for repository in settings.repositories.iter().filter(|repository| !repository.submodules) {
        git::remove_submodule_mirrors(&state.mirrors().join(&repository.name));
    }
}

/// Sets up the repositories. One that fails is reported and tried again at each poll, while the others are followed; if
/// all fail, that is an error.
async fn open_repositories(
    settings: &Settings,
    environment: &Lookup,
    state: &StateDir,
) -> Result<Vec<(config::Repository, DecryptedSource<ReopenedSource>)>, Error> {
    let load = |files: &[PathBuf]| Keys::load(files).map(Arc::new).map_err(Error::Keys);
    let keys = load(&settings.sops_key_files)?;
    let permits = FetchPermits::default();
    let mut sources = Vec::new();
    let mut failed = Vec::new();
    for repository in &settings.repositories {
        let mirror = state.mirrors().join(&repository.name);
        let options = RepositoryOptions::new(repository, mirror, environment.clone(), permits.clone());
        let source = ReopenedSource::new(options);
        if let Err(error) = source.open().await {
            tracing::error!(
                repository = repository.name,
                error = chain(&error),
                "could not set up a repository"
            );
            failed.push(Error::Source { name: repository.name.clone(), source: error });
        }
        let keys = match &repository.sops_key_files {
            Some(own) => load(own)?,
            None => Arc::clone(&keys),
        };
        sources.push((repository.clone(), DecryptedSource::new(source, keys)));
    }
    let has_none = failed.len() == sources.len();
    match failed.into_iter().next() {
        Some(error) if has_none => Err(error),
        Some(_) | None => Ok(sources),
    }
}

impl Running {
    /// Why the agent has to start again for a release, or for the end of one. `None`: it has begun with what is stored.
    pub fn pending_release(&self) -> Option<String> {
        pending_release(&self.store, self.handle.problems())
    }

    /// Writes an event about the agent itself. It is filed under `agent/configuration`, which is no application's name.
    pub fn record_event(&self, kind: EventKind, reason: &str, message: String) {
        let event = Event {
            sequence: 0,
            at: self.clock.now(),
            app: AppName("agent/configuration".to_owned()),
            kind,
            reason: reason.to_owned(),
            object: "configuration".to_owned(),
            message,
            actor: None,
        };
        match self.store.append_event(event) {
            Ok(event) => self.handle.publish_event(event),
            Err(error) => tracing::warn!(error = chain(&error), "could not store an event"),
        }
    }

    /// Finishes the running steps and ends all tasks. Steps that take too long, or that the engine does not answer, are
    /// left: the next start continues from what it observes.
    pub async fn stop(self) {
        let limit = if self.handle.readiness().docker { LONGEST_STOP } else { LONGEST_STOP_WITHOUT_ENGINE };
        self.stop.cancel();
        self.tasks.close();
        if timeout(limit, self.tasks.wait()).await.is_err() {
            let seconds = limit.as_secs();
            tracing::warn!(
                seconds,
                "ending although steps are under way; the next start continues with them"
            );
        }
    }
}

/// The parts of an agent. Tests use a simulated engine and simulated repositories.
pub struct Parts<D, S> {
    /// The engine.
    pub docker: D,
    /// The repositories with their settings.
    pub sources: Vec<(config::Repository, S)>,
    /// The agent's database.
    pub store: Store,
    /// The mounted files.
    pub contents: ContentDir,
    /// The time of day.
    pub clock: Clock,
    /// The agent's id.
    pub agent: AgentId,
    /// The id was generated at this start, so that no other agent can have it.
    pub has_new_id: bool,
    /// The longest time that the build of one image may take.
    pub build_timeout: Duration,
    /// The environment, for `valuesFrom`.
    pub environment: Lookup,
}

/// A handle that also answers what only the engine knows.
fn with_engine<D: Docker>(
    handle: Handle,
    docker: &Arc<D>,
    store: &Store,
    clock: Clock,
    proxies: &Arc<Proxies>,
) -> Handle {
    let images = EngineImages::new(Arc::clone(docker), store.clone(), clock);
    let counters = EngineProxyCounters::new(Arc::clone(docker), Arc::clone(proxies));
    handle
        .with_logs(Arc::new(EngineLogs(Arc::clone(docker))))
        .with_images(Arc::new(images))
        .with_proxy_counters(Arc::new(counters))
}

/// The other agents that the store knows. An unreadable table counts as none.
fn other_agents(store: &Store, kind: OtherAgent) -> BTreeSet<AgentId> {
    store.other_agents(kind).unwrap_or_else(|error| {
        tracing::warn!(error = chain(&error), "could not read what is known of other agents");
        BTreeSet::new()
    })
}

/// The objects that belong to the agent, by what is known of others: it goes on with those of its former selves.
fn ownership(docker: &impl Docker, store: &Store) -> (Ownership, mpsc::UnboundedReceiver<AgentId>) {
    docker.take_over(&other_agents(store, OtherAgent::Former));
    Ownership::new(other_agents(store, OtherAgent::Living))
}

/// The applications that were deployed before this start. An unreadable table counts as none.
fn known_before(store: &Store, handle: &Handle) -> Unpublished {
    let unpublished = handle.unpublished();
    match store.known_applications() {
        Ok(known) => {
            for application in known {
                unpublished.add(application.app, application.repository);
            }
        }
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "could not read the applications that were deployed before"
            );
        }
    }
    unpublished.clone()
}

/// Starts all tasks of an agent. They end when `stop` is cancelled.
pub fn launch<D: Docker, S: CommitSource>(
    parts: Parts<D, S>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Handle {
    let Parts { docker, sources, store, contents, clock, agent, has_new_id, build_timeout, environment } =
        parts;
    let (handle, inbox) = Handle::new();
    let Inbox {
        requests,
        recoveries,
        applications,
        repositories,
        readiness,
        events,
        delivered,
        fetches,
        commit_statuses,
        status_errors,
        tickets,
        metrics,
        image_calls,
        peers,
    } = inbox;
    let sources = if Release::of(&store).begin(&store, handle.problems()) { Vec::new() } else { sources };
    let docker = Arc::new(MeasuredEngine::new(docker, metrics.clone()));
    let (wakes, (engine_tx, engine)) = (Wakes::default(), EngineState::new());
    let (ownership, questions) = ownership(&*docker, &store);
    let services = Arc::new(Services {
        store: store.clone(),
        contents,
        clock,
        agent,
        mask: Mask::new(random_key()),
        metrics: metrics.clone(),
        proxies: Arc::default(),
        events,
        wakes: wakes.clone(),
        ownership,
        applications: applications.subscribe(),
        managed: watch::channel(Arc::default()).0,
        peers,
        changed: Arc::new(Notify::new()),
    });
    let handle = with_engine(handle, &docker, &store, clock, &services.proxies);
    let shared = Arc::new(EngineServices {
        engine: engine.clone(),
        prober: Arc::new(Prober::new(clock, Arc::new(EngineExec(Arc::clone(&docker))), wakes.waker())),
        docker: Arc::clone(&docker),
        applications,
        unpublished: known_before(&store, &handle),
        commit_statuses,
        tickets: tickets.clone(),
        builds: BuildLimits { slots: Arc::new(Semaphore::new(CONCURRENT_BUILDS)), timeout: build_timeout },
        scans: Arc::new(Semaphore::new(CONCURRENT_SCANS)),
        turns: Arc::default(),
        image_calls: image_calls.clone(),
    });
    let finder = AgentFinder { docker: Arc::clone(&docker), services: Arc::clone(&services), has_new_id };
    let start = |name, task: BoxFuture<'static, ()>| tasks.spawn(ends_agent(name, task, stop.clone()));
    start("finder of agents", Box::pin(finder.clone().run(questions, stop.clone())));
    start("calls of registries", Box::pin(image_calls.wake(wakes, stop.clone())));
    start_forgetting_images(Arc::clone(&docker), store.clone(), stop, tasks);
    start_waking(docker, &services, delivered.clone(), engine_tx, (stop, tasks));
    let (mut followed, mut links) = (Vec::new(), BTreeMap::new());
    for (settings, source) in sources {
        let (view_tx, view) = watch::channel(RepositoryView::default());
        let link = RepositoryLink::new(source, fetches.of(&settings.name), settings.clone());
        let repository = RepositoryTask {
            settings: settings.clone(),
            link: link.clone(),
            store: store.clone(),
            clock,
            tickets: tickets.clone(),
            delivered: delivered.of(&settings.name),
            environment: environment.clone(),
            metrics: metrics.clone(),
            view: view_tx,
            stop: stop.clone(),
        };
        tasks.spawn(repository.run());
        start_news(view.clone(), Arc::clone(&services.changed), stop, tasks);
        links.insert(settings.name.clone(), link);
        followed.push(FollowedRepository { settings, view, fetches: FetchEvents::default() });
    }
    let supervisor = Supervisor {
        services,
        shared,
        followed,
        links: Arc::new(links),
        engine,
        status_errors,
        repositories,
        readiness,
        applications: BTreeMap::new(),
        claims: Claims::default(),
        last_in_git: BTreeMap::new(),
        failed_reads: FailedReads::default(),
        adopters: None,
        finder,
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    start("supervisor", Box::pin(supervisor.run(requests, recoveries)));
    handle.with_stop(stop.clone())
}

/// Starts the tasks that wake the others: when the engine reports something, and when the clock has jumped.
fn start_waking<D: Docker>(
    docker: Arc<D>,
    services: &Services,
    repositories: Wakes<String>,
    engine: watch::Sender<Result<(), String>>,
    (stop, tasks): (&CancellationToken, &TaskTracker),
) {
    let (wakes, changed) = (services.wakes.clone(), Arc::clone(&services.changed));
    let jumps = wake_on_clock_jumps(services.clock, wakes.clone(), repositories, changed, stop.clone());
    tasks.spawn(ends_agent("jumps of the clock", jumps, stop.clone()));
    let events = wake_on_engine_events(docker, wakes, services.managed.subscribe(), engine, stop.clone());
    tasks.spawn(ends_agent("events of the engine", events, stop.clone()));
}

/// Starts the task that notifies the supervisor of each change of a repository.
fn start_news(
    mut view: watch::Receiver<RepositoryView>,
    changed: Arc<Notify>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let stop = stop.clone();
    lasting_tasks::start("news of a repository", (stop.clone(), tasks), async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                received = view.changed() => if received.is_err() { return },
            }
            changed.notify_one();
        }
    });
}
