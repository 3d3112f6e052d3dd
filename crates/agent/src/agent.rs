//! Starts everything, tells each application what it is to be, and stops everything in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::{Notify, Semaphore, mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{probe::Changed, probe::Prober};
use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::Settings;
use driftless_docker::{Docker, Engine, EngineOptions};
use driftless_git as source;
use driftless_git::{Lookup, Options, Slots, Source};
use driftless_model::{
    AppName, ApplicationStatus, Event, EventKind, Finding, Mask, Policy, RepositoryStatus,
};
use driftless_store::{ContentDir, KnownApplication, Opened, StateDir, Store, Visibility};

use crate::{
    Answer, Error, Handle, Inbox, Readiness, Recovery, Repositories, Request, RequestError,
    app::{App, Shared},
    claims::{self, Claims},
    commit_status::{Teller, Untold},
    desired::{Orders, Presence},
    fs_scan::{LOOKS_AT_ONCE, Looks},
    image_tasks::{BUILDS_AT_ONCE, Pulls},
    logs::FromEngine,
    probe_targets::ThroughEngine,
    registry_logins,
    repository::{self, Repository, View},
    requests::Asked,
    trust::Consent,
    wakes::{self, Wakes},
};

/// How many applications act at the same time.
const ACTING: usize = 4;
/// Materialised files that nothing needs are kept this long.
const CONTENT_AGE: Duration = Duration::from_hours(24);
/// How often applications that claim what another one has are compared with it again.
const CONFLICTS_EVERY: Duration = Duration::from_secs(10);
const COLLECT_EVERY: Duration = Duration::from_hours(6);

/// The loop as a whole.
pub struct Agent;

/// An agent at work.
pub struct Running {
    pub handle: Handle,
    pub store: Store,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Held until the end: nobody else may use the directory.
    _state: StateDir,
}

impl Agent {
    /// Takes the state directory, begins to watch Docker and every repository, and returns at once: neither
    /// needs to be there yet.
    ///
    /// The future is boxed so that the whole agent is compiled with this crate, and not with the one that polls it.
    pub fn start(
        settings: Settings,
        environment: Lookup,
        clock: Clock,
    ) -> BoxFuture<'static, Result<Running, Error>> {
        Box::pin(Self::open(settings, environment, clock))
    }

    async fn open(settings: Settings, environment: Lookup, clock: Clock) -> Result<Running, Error> {
        let state = StateDir::lock(&settings.state_dir).map_err(Error::State)?;
        let Opened { store, recovered } = Store::open(&state, clock).map_err(Error::State)?;
        if let Some(what) = &recovered {
            tracing::error!(what, "the database was lost or damaged");
        }
        let agent = store.agent_id().map_err(Error::State)?;
        let contents = ContentDir::open(&state, &settings.runtime_dir, clock).map_err(Error::State)?;
        let engine = Engine::connect(EngineOptions {
            host: settings.docker_host.clone(),
            agent: agent.clone(),
            content_dir: state.contents(),
            secret_dir: contents.folder(Visibility::Secret).to_owned(),
            app_dir: state.applications(),
            registries: registry_logins::registries(&settings, &environment),
            clock,
        })
        .map_err(Error::Docker)?;
        let slots = Slots::default();
        let mut sources = Vec::new();
        for it in &settings.repositories {
            let mirror = state.mirrors().join(&it.name);
            let options = Options::new(it, mirror, environment.clone(), slots.clone());
            let opened = tokio::task::spawn_blocking(move || source::Repository::open(options)).await;
            let name = it.name.clone();
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    let message = error.to_string();
                    Err(source::Error::Damaged { doing: "open the mirror".into(), message })
                }
            };
            let source = opened.map_err(|source| Error::Source { name, source })?;
            sources.push((it.clone(), source));
        }
        let build_timeout = settings.build_timeout;
        let parts =
            Parts { docker: engine, sources, store: store.clone(), contents, clock, agent, build_timeout };
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let handle = launch(parts, &stop, &tasks);
        for it in &settings.repositories {
            let ends = (handle.verdicts(), handle.untold());
            if let Some(teller) = Teller::of(it, ends, &store, &environment, clock) {
                tasks.spawn(teller.run(stop.clone()));
            }
        }
        Ok(Running { handle, store, stop, tasks, _state: state })
    }
}

impl Running {
    /// Finishes the steps under way and ends all tasks.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// What an agent is made of. The simulation makes one of other parts.
pub struct Parts<D, S> {
    pub docker: D,
    pub sources: Vec<(config::Repository, S)>,
    pub store: Store,
    pub contents: ContentDir,
    pub clock: Clock,
    pub agent: driftless_model::AgentId,
    /// The longest that the build of an image may take.
    pub build_timeout: Duration,
}

/// Starts all tasks of an agent. They end when `stop` is cancelled.
pub fn launch<D: Docker, S: Source>(
    parts: Parts<D, S>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Handle {
    let Parts { docker, sources, store, contents, clock, agent, build_timeout } = parts;
    let (handle, inbox) = Handle::new();
    let docker = Arc::new(docker);
    let handle = handle.with_logs(Arc::new(FromEngine(Arc::clone(&docker))));
    let wakes: Wakes = Wakes::default();
    let ring = wakes.clone();
    let changed: Changed = Arc::new(move |app| ring.wake(app));
    let prober = Prober::new(clock, Arc::new(ThroughEngine(Arc::clone(&docker))), changed);
    let Inbox {
        requests,
        recoveries,
        applications,
        repositories,
        readiness,
        events,
        rings,
        verdicts,
        untold,
    } = inbox;
    let news = Arc::new(Notify::new());
    let shared = Arc::new(Shared {
        docker: Arc::clone(&docker),
        store: store.clone(),
        contents,
        prober,
        clock,
        agent,
        mask: Mask::new(crate::random_key()),
        permits: Semaphore::new(ACTING),
        builders: Arc::new(Semaphore::new(BUILDS_AT_ONCE)),
        lookers: Arc::new(Semaphore::new(LOOKS_AT_ONCE)),
        build_timeout,
        events,
        applications,
        verdicts,
        wakes: wakes.clone(),
        news: Arc::clone(&news),
    });
    let (engine_tx, engine) = watch::channel(Err("Docker was not reached yet".to_owned()));
    tasks.spawn(wakes::listen(docker, wakes, engine_tx, stop.clone()));
    let mut followed = Vec::new();
    for (settings, source) in sources {
        let (view_tx, view) = watch::channel(View::default());
        let (source, wake, consent) = (Arc::new(source), Arc::new(Notify::new()), Consent::default());
        let repository = Repository {
            settings: settings.clone(),
            source: Arc::clone(&source),
            store: store.clone(),
            clock,
            wake: Arc::clone(&wake),
            consent: consent.clone(),
            rung: rings.bell(&settings.name),
            view: view_tx,
        };
        tasks.spawn(repository.run(stop.clone()));
        tasks.spawn(forward(view.clone(), Arc::clone(&news), stop.clone()));
        followed.push(Followed { settings, source, wake, consent, view });
    }
    let conductor = Conductor {
        shared,
        followed,
        news,
        engine,
        untold,
        repositories,
        readiness,
        apps: BTreeMap::new(),
        claims: Claims::default(),
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    tasks.spawn(conductor.run(requests, recoveries));
    handle
}

/// One bell for the views of all repositories.
async fn forward(mut view: watch::Receiver<View>, news: Arc<Notify>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = view.changed() => if changed.is_err() { return },
        }
        news.notify_one();
    }
}

/// A repository, seen from the applications.
struct Followed<S> {
    settings: config::Repository,
    source: Arc<S>,
    wake: Arc<Notify>,
    consent: Consent,
    view: watch::Receiver<View>,
}

impl<S> Followed<S> {
    fn status(&self) -> RepositoryStatus {
        let view = self.view.borrow();
        let refused = || view.refused.as_ref().map(|it| it.sentence());
        let unread = || view.commit.is_none().then(|| "not read yet".to_owned());
        let message =
            view.trouble.clone().or_else(refused).or_else(|| first_error(&view.findings)).or_else(unread);
        RepositoryStatus {
            name: self.settings.name.clone(),
            url: self.settings.url.clone(),
            reference: repository::reference_text(&self.settings.reference, None),
            commit: view.commit.clone(),
            applications: view.apps.len(),
            message: message.unwrap_or_default(),
            fetched_at: view.fetched_at,
            next_fetch: view.next_try,
        }
    }
}

/// Tells each application what it is to be, and passes requests on.
struct Conductor<D, S> {
    shared: Arc<Shared<D>>,
    followed: Vec<Followed<S>>,
    news: Arc<Notify>,
    engine: watch::Receiver<Result<(), String>>,
    untold: watch::Receiver<Untold>,
    repositories: watch::Sender<Repositories>,
    readiness: watch::Sender<Readiness>,
    apps: BTreeMap<AppName, Seat>,
    claims: Claims,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The task of one application, seen from outside.
struct Seat {
    orders: watch::Sender<Orders>,
    requests: mpsc::Sender<Asked>,
}

impl<D: Docker, S: Source> Conductor<D, S> {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>, mut recoveries: mpsc::Receiver<Recovery>) {
        let mut collect = self.shared.clock.now();
        loop {
            self.conduct();
            self.publish_readiness();
            self.publish_repositories();
            let now = self.shared.clock.now();
            if now >= collect {
                self.collect_contents();
                collect = now.after(COLLECT_EVERY);
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.news.notified() => {}
                Ok(()) = self.engine.changed() => {}
                Ok(()) = self.untold.changed() => {}
                Some(reply) = recoveries.recv() => {
                    // Whoever asked may have gone.
                    let _ = reply.send(self.recover());
                }
                request = requests.recv() => match request {
                    Some(request) => self.pass_on(request),
                    None => return,
                },
                // No bell rings when the holder of a name or port is gone.
                () = sleep(CONFLICTS_EVERY), if self.claims.are_disputed() => {}
                () = sleep_until(Instant::now() + COLLECT_EVERY) => {}
            }
        }
    }

    /// Compares what all repositories want with the applications that have a task, and tells each its part.
    fn conduct(&mut self) {
        let views: Vec<View> = self.followed.iter().map(|it| it.view.borrow().clone()).collect();
        let known = match self.shared.store.known_applications() {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(%error, "the applications that were managed before cannot be read");
                return;
            }
        };
        let repositories: Vec<&str> = self.followed.iter().map(|it| it.settings.name.as_str()).collect();
        let wanted = claims::wanted(&repositories, &views, &known);
        let (store, applications) = (&self.shared.store, self.shared.applications.borrow().clone());
        let conflicts = self.claims.conflicts(store, &applications, &repositories, &views, &known, &wanted);
        let mut seen = BTreeSet::new();
        for (index, wanted) in wanted {
            let name = wanted.spec.name.clone();
            if !seen.insert(name.clone()) {
                // The first repository that has the name keeps it; the finding says so.
                continue;
            }
            let Some(view) = views.get(index) else { continue };
            let orders = Orders {
                presence: Presence::Present,
                objections: conflicts.get(&name).cloned().unwrap_or_default(),
                trouble: view.trouble.clone(),
                next_fetch: view.next_try,
                fetched_at: view.fetched_at,
                rewritten: view.rewritten,
                refused: wanted.refused.clone().or_else(|| view.refused.clone()),
                missed: view.missed.clone(),
                untold: self.untold(index),
                wanted,
            };
            self.seat(name, orders, Some(index));
        }
        self.conduct_the_absent(&views, &seen, known);
    }

    /// What was managed once and is in no view: gone for good where its repository was read, and otherwise kept
    /// as it was last known.
    fn conduct_the_absent(&mut self, views: &[View], seen: &BTreeSet<AppName>, known: Vec<KnownApplication>) {
        for it in known.into_iter().filter(|it| !seen.contains(&it.app)) {
            let index = self.followed.iter().position(|followed| followed.settings.name == it.repository);
            let view = index.and_then(|index| views.get(index));
            let is_configured = index.is_some();
            let is_gone = view.map_or(!is_configured, View::is_complete);
            let untold = index.and_then(|index| self.untold(index));
            if !is_gone && self.apps.contains_key(&it.app) {
                // Nothing new is known: it stays with its last orders, but for the trouble.
                if let (Some(seat), Some(view)) = (self.apps.get(&it.app), view) {
                    seat.orders.send_modify(|orders| {
                        orders.objections = errors(&view.findings);
                        orders.trouble.clone_from(&view.trouble);
                        orders.refused.clone_from(&view.refused);
                        orders.fetched_at = view.fetched_at;
                        orders.missed.clone_from(&view.missed);
                        orders.untold.clone_from(&untold);
                    });
                }
                continue;
            }
            let policy =
                index.map_or_else(Policy::default, |index| self.followed[index].settings.policy.clone());
            let commit = view.and_then(|it| it.commit.clone()).unwrap_or_default();
            let orders = Orders {
                wanted: Arc::new(repository::gone(&it.app, &it.repository, commit, policy)),
                presence: if is_gone { Presence::Gone } else { Presence::Present },
                objections: view.map(|it| errors(&it.findings)).unwrap_or_default(),
                trouble: view.and_then(|it| it.trouble.clone()),
                next_fetch: view.and_then(|it| it.next_try),
                fetched_at: view.and_then(|it| it.fetched_at),
                rewritten: false,
                refused: view.and_then(|it| it.refused.clone()),
                missed: view.and_then(|it| it.missed.clone()),
                untold,
            };
            self.seat(it.app, orders, index);
        }
    }

    /// Why the forge of a repository takes no word about its commits.
    fn untold(&self, index: usize) -> Option<String> {
        self.untold.borrow().get(&self.followed.get(index)?.settings.name).cloned()
    }

    /// Tells an application its orders; gives it a task first, if it has none.
    fn seat(&mut self, name: AppName, orders: Orders, index: Option<usize>) {
        if let Some(seat) = self.apps.get(&name) {
            seat.orders.send_replace(orders);
            return;
        }
        let shared = Arc::clone(&self.shared);
        let record = shared.store.record(&name).unwrap_or_else(|error| {
            tracing::warn!(app = %name, %error, "the record cannot be read; counters begin anew");
            driftless_model::Record::default()
        });
        let revision = shared.store.current(&name).ok().flatten();
        let bell = shared.wakes.bell(&name);
        let followed = index.and_then(|it| self.followed.get(it));
        let app = App {
            name: name.clone(),
            source: followed.map(|it| Arc::clone(&it.source)),
            fetch: followed.map(|it| Arc::clone(&it.wake)),
            consent: followed.map(|it| it.consent.clone()),
            orders: orders.clone(),
            pulls: Pulls::new(
                Arc::clone(&bell),
                Arc::clone(&self.shared.builders),
                self.shared.build_timeout,
            ),
            looks: Looks::new(Arc::clone(&bell), Arc::clone(&self.shared.lookers), self.shared.clock),
            bell,
            record,
            revision,
            generation: 0,
            goal_key: None,
            status: ApplicationStatus::default(),
            behind: None,
            prepared: None,
            told: None,
            asked: None,
            engine_failures: 0,
            mask: self.shared.mask.clone(),
            is_saved: true,
            loss: None,
            is_known: false,
            shared,
        };
        let (orders, orders_rx) = watch::channel(orders);
        let (requests, requests_rx) = mpsc::channel(16);
        self.tasks.spawn(app.run(orders_rx, requests_rx, self.stop.child_token()));
        self.apps.insert(name, Seat { orders, requests });
    }

    fn pass_on(&self, request: Request) {
        let Request { app, kind, reply } = request;
        let refuse = |reply: oneshot::Sender<Result<Answer, RequestError>>, error| {
            // Whoever asked may have gone.
            let _ = reply.send(Err(error));
        };
        let Some(seat) = self.apps.get(&app) else {
            refuse(reply, RequestError::NoSuchApplication(app));
            return;
        };
        if let Err(error) = seat.requests.try_send((kind, reply)) {
            let (mpsc::error::TrySendError::Full((_, reply)) | mpsc::error::TrySendError::Closed((_, reply))) =
                error;
            let text = format!("{app} has many requests to answer already; try again in a moment");
            refuse(reply, RequestError::Refused(text));
        }
    }

    /// Somebody knows that state was lost: new commits are applied again.
    fn recover(&self) -> Result<Vec<String>, RequestError> {
        let refuse = |error: driftless_store::Error| RequestError::Refused(crate::error::chain(&error));
        let loss = self.shared.store.loss().map_err(refuse)?;
        self.shared.store.clear_loss().map_err(refuse)?;
        self.shared.wakes.wake_all();
        Ok(loss.into_iter().map(|what| format!("new commits are applied again (lost: {what})")).collect())
    }

    fn publish_readiness(&self) {
        let engine = self.engine.borrow().clone();
        let unread: Vec<String> = self
            .followed
            .iter()
            .filter(|it| it.view.borrow().commit.is_none())
            .map(|it| format!("{}: {}", it.settings.name, it.status().message))
            .collect();
        let docker = engine.is_ok();
        let lost = self.shared.store.loss().unwrap_or_else(|error| Some(error.to_string())).map(|what| {
            format!("state was lost, and no new commit is applied until `driftless recover`: {what}")
        });
        let state = lost.is_none();
        let messages = engine.err().into_iter().chain(lost).chain(unread.iter().cloned());
        let message = messages.collect::<Vec<_>>().join("; ");
        let readiness = Readiness { docker, repositories: unread.is_empty(), state, message };
        self.readiness.send_if_modified(|it| {
            let is_new = *it != readiness;
            *it = readiness;
            is_new
        });
    }

    fn publish_repositories(&self) {
        let statuses: Vec<_> = self.followed.iter().map(Followed::status).collect();
        self.repositories.send_if_modified(|it| {
            let is_new = **it != statuses;
            *it = Arc::new(statuses);
            is_new
        });
        for followed in &self.followed {
            self.tell_findings(followed);
            self.tell_missed(followed);
        }
    }

    /// What is wrong with a repository as a whole, such as a path that does not exist, belongs to no application.
    fn tell_findings(&self, followed: &Followed<S>) {
        let view = followed.view.borrow();
        let Some(error) = first_error(&view.findings) else { return };
        let Some(commit) = &view.commit else { return };
        self.tell(followed, "InvalidRepository", commit.short(), error);
    }

    /// Somebody should look why a forge does not ring any more.
    fn tell_missed(&self, followed: &Followed<S>) {
        let view = followed.view.borrow();
        let Some(missed) = &view.missed else { return };
        let commit = missed.commit.get(..12).unwrap_or(&missed.commit);
        self.tell(followed, "WebhookMissed", commit, missed.to_string());
    }

    /// Once for each commit.
    fn tell(&self, followed: &Followed<S>, reason: &str, commit: &str, message: String) {
        let event = Event {
            sequence: 0,
            at: self.shared.clock.now(),
            app: AppName::normalise(&followed.settings.name).unwrap_or_else(|| AppName::from("repository")),
            kind: EventKind::Warning,
            reason: reason.to_owned(),
            object: format!("repository {} at {commit}", followed.settings.name),
            message,
        };
        let last = self.shared.store.newest_events(20, Some(&event.app)).unwrap_or_default();
        if last.iter().any(|it| it.object == event.object && it.message == event.message) {
            return;
        }
        if let Ok(event) = self.shared.store.append_event(event) {
            // Nobody may be listening.
            let _ = self.shared.events.send(event);
        }
    }

    /// Removes materialised files that no revision and no container needs.
    fn collect_contents(&self) {
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let mut in_use = match shared.store.contents_in_use() {
                Ok(in_use) => in_use,
                Err(error) => {
                    tracing::warn!(%error, "nothing is collected");
                    return;
                }
            };
            let Ok(apps) = shared.docker.applications().await else { return };
            for app in apps {
                let Ok(observed) =
                    shared.docker.observe(&app, &driftless_docker::ObserveScope::default()).await
                else {
                    return;
                };
                in_use.extend(crate::app::contents_in_use(&observed));
            }
            let collected =
                tokio::task::spawn_blocking(move || shared.contents.collect(&in_use, CONTENT_AGE)).await;
            match collected {
                Ok(Ok(0)) => {}
                Ok(Ok(count)) => tracing::info!(count, "old files removed"),
                Ok(Err(error)) => tracing::warn!(%error, "old files are not removed"),
                Err(error) => tracing::error!(%error, "collecting broke down"),
            }
        });
    }
}

fn errors(findings: &[Finding]) -> Vec<Finding> {
    findings.iter().filter(|it| it.is_error()).cloned().collect()
}

fn first_error(findings: &[Finding]) -> Option<String> {
    findings.iter().find(|it| it.is_error()).map(ToString::to_string)
}
