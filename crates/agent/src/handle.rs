//! The handle: how the API and the CLI send requests to the agent and read what it publishes. It is cheap to clone.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, broadcast, mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Answer, Request, RequestError, RequestKind,
    commits::status::{CommitStatuses, StatusErrors},
    expiries::Expiries,
    fleet::{
        enrolments::Enrolments,
        peers::Peers,
        services::{FleetServices, OwnReport},
        source::FleetSource,
        targets::FleetTargets,
    },
    images::{kept_images::Images, registry_calls::ImageCalls},
    logs::Logs,
    notifications::Notifications,
    problems::Problems,
    proxy_counters::ProxyCounters,
    ticket::{Ticket, Tickets},
    unpublished::Unpublished,
    wakes::Wakes,
};
use driftless_clock::Clock;
use driftless_config::Fleet;
use driftless_docker::{LogOptions, LogStream};
use driftless_metrics::{Metrics, ProxyCounts};
use driftless_model::{
    Actor, AgentStatus, AppName, Application, Event, ImageRetention, RepositoryStatus, Timestamp,
};

/// Maximum number of requests that wait for the supervisor.
const MAX_REQUESTS: usize = 64;

/// Maximum number of confirmations of a loss that wait for the supervisor.
const MAX_RECOVERIES: usize = 4;

/// Maximum number of unread events of a slow reader.
const MAX_UNREAD_EVENTS: usize = 256;

/// Sends requests to the agent and reads what it publishes.
#[derive(Clone)]
pub struct Handle {
    /// Cancelled when the agent is to stop.
    stop: CancellationToken,
    requests: mpsc::Sender<Request>,
    recoveries: mpsc::Sender<Recovery>,
    applications: watch::Receiver<Applications>,
    unpublished: Unpublished,
    repositories: watch::Receiver<Repositories>,
    readiness: watch::Receiver<Readiness>,
    events: broadcast::Sender<Event>,
    delivered: Wakes<String>,
    fetches: Wakes<String>,
    commit_statuses: watch::Receiver<CommitStatuses>,
    logs: Option<Arc<dyn Logs>>,
    proxy_counters: Option<Arc<dyn ProxyCounters>>,
    status_errors: Arc<watch::Sender<StatusErrors>>,
    tickets: Tickets,
    metrics: Metrics,
    started: Timestamp,
    /// The actor of the requests.
    actor: Actor,
    notifications: Option<Notifications>,
    fleet: FleetServices,
    images: Option<Arc<dyn Images>>,
    image_calls: ImageCalls,
    image_retention: ImageRetention,
    problems: Problems,
    /// Notified when the agent shall start again.
    restart: Arc<Notify>,
    expiries: Expiries,
    /// The name of the host.
    host: String,
    /// The address of the page.
    url: String,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// All applications of the agent, each as of its last round.
pub type Applications = Arc<BTreeMap<AppName, Arc<Application>>>;

/// All repositories, in the order of the configuration.
pub type Repositories = Arc<Vec<RepositoryStatus>>;

/// The agent's side of a [`Handle`].
#[derive(Debug)]
pub struct Inbox {
    /// Requests of all applications.
    pub requests: mpsc::Receiver<Request>,
    /// Requests to confirm a loss of state.
    pub recoveries: mpsc::Receiver<Recovery>,
    /// Publishes the applications.
    pub applications: watch::Sender<Applications>,
    /// Publishes the repositories.
    pub repositories: watch::Sender<Repositories>,
    /// Publishes the readiness.
    pub readiness: watch::Sender<Readiness>,
    /// Every event, after the store has numbered it.
    pub events: broadcast::Sender<Event>,
    /// Woken by webhooks, by the repository's name.
    pub(crate) delivered: Wakes<String>,
    /// Woken by users that ask for a fetch, by the repository's name.
    pub(crate) fetches: Wakes<String>,
    /// The statuses of the newest commits, to be posted to the forges.
    pub(crate) commit_statuses: watch::Sender<CommitStatuses>,
    /// Why a forge refuses commit statuses, by repository.
    pub(crate) status_errors: watch::Receiver<StatusErrors>,
    /// The numbers of requests.
    pub(crate) tickets: Tickets,
    /// Counts what happens.
    pub(crate) metrics: Metrics,
    /// Calls to ask registries now.
    pub(crate) image_calls: ImageCalls,
    /// The reports of the other hosts.
    pub(crate) peers: Peers,
}

/// Sends the answer to [`Handle::recover`].
pub type Recovery = oneshot::Sender<Result<Vec<String>, RequestError>>;

/// Whether the agent can do its work: the answer of `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// The engine answers.
    pub docker: bool,
    /// Every repository was fetched at least once, or its commit of the last run is in the mirror.
    pub repositories: bool,
    /// No state was lost and the engine has the data of before, or a user has confirmed the loss; and the state directory is the one
    /// that the agent opened.
    pub state: bool,
    /// The missing parts, in words. Empty if the agent is ready.
    pub message: String,
}

impl Readiness {
    /// Whether nothing is missing.
    pub fn is_ready(&self) -> bool {
        self.docker && self.repositories && self.state
    }
}

impl Handle {
    /// A handle, and the agent's side of it.
    pub fn new() -> (Self, Inbox) {
        let (requests_tx, requests) = mpsc::channel(MAX_REQUESTS);
        let (recoveries_tx, recoveries) = mpsc::channel(MAX_RECOVERIES);
        let (applications_tx, applications) = watch::channel(Applications::default());
        let (repositories_tx, repositories) = watch::channel(Repositories::default());
        let (readiness_tx, readiness) = watch::channel(Readiness::default());
        let (events, _) = broadcast::channel(MAX_UNREAD_EVENTS);
        let (commit_statuses_tx, commit_statuses) = watch::channel(CommitStatuses::default());
        let (status_errors_tx, status_errors) = watch::channel(StatusErrors::default());
        let (delivered, fetches, tickets) = (Wakes::default(), Wakes::default(), Tickets::starting_now());
        let metrics = Metrics::default();
        let image_calls = ImageCalls::default();
        let peers = Peers::default();
        let inbox = Inbox {
            requests,
            recoveries,
            applications: applications_tx,
            repositories: repositories_tx,
            readiness: readiness_tx,
            events: events.clone(),
            delivered: delivered.clone(),
            fetches: fetches.clone(),
            commit_statuses: commit_statuses_tx,
            status_errors,
            tickets: tickets.clone(),
            metrics: metrics.clone(),
            image_calls: image_calls.clone(),
            peers: peers.clone(),
        };
        let handle = Self {
            stop: CancellationToken::new(),
            requests: requests_tx,
            recoveries: recoveries_tx,
            applications,
            unpublished: Unpublished::default(),
            repositories,
            readiness,
            events,
            delivered,
            fetches,
            commit_statuses,
            logs: None,
            proxy_counters: None,
            status_errors: Arc::new(status_errors_tx),
            tickets,
            metrics,
            started: Clock::System.now(),
            actor: Actor::agent(),
            notifications: None,
            fleet: FleetServices::with_peers(peers),
            images: None,
            image_calls,
            image_retention: ImageRetention::default(),
            problems: Problems::default(),
            restart: Arc::default(),
            expiries: Expiries::default(),
            host: String::new(),
            url: String::new(),
        };
        (handle, inbox)
    }

    /// With the token that is cancelled when the agent is to stop.
    #[must_use]
    pub(crate) fn with_stop(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// With a source of container logs.
    #[must_use]
    pub fn with_logs(self, logs: Arc<dyn Logs>) -> Self {
        Self { logs: Some(logs), ..self }
    }

    /// With a source of the counters of proxies.
    #[must_use]
    pub fn with_proxy_counters(self, proxy_counters: Arc<dyn ProxyCounters>) -> Self {
        Self { proxy_counters: Some(proxy_counters), ..self }
    }

    /// With notifications.
    #[must_use]
    pub fn with_notifications(self, notifications: Notifications) -> Self {
        Self { notifications: Some(notifications), ..self }
    }

    /// With the settings of the fleet that reports to this agent.
    #[must_use]
    pub fn with_fleet(self, settings: Fleet) -> Self {
        Self { fleet: self.fleet.with_settings(settings), ..self }
    }

    /// With the collectors that this agent reports to.
    #[must_use]
    pub(crate) fn with_fleet_targets(self, targets: FleetTargets) -> Self {
        Self { fleet: self.fleet.with_targets(targets), ..self }
    }

    /// With the report of this host, which a collector shows without sending it.
    #[must_use]
    pub fn with_own_report(self, own_report: OwnReport) -> Self {
        Self { fleet: self.fleet.with_own_report(own_report), ..self }
    }

    /// With the place where this agent reads the reports of hosts.
    #[must_use]
    pub fn with_fleet_source(self, source: FleetSource) -> Self {
        Self { fleet: self.fleet.with_source(source), ..self }
    }

    /// With the collectors that this agent has joined.
    #[must_use]
    pub(crate) fn with_enrolments(self, enrolments: Enrolments) -> Self {
        Self { fleet: self.fleet.with_enrolments(enrolments), ..self }
    }

    /// The hosts that report to this agent, and the collectors that it reports to.
    pub fn fleet(&self) -> &FleetServices {
        &self.fleet
    }

    /// With the images of the engine.
    #[must_use]
    pub fn with_images(self, images: Arc<dyn Images>) -> Self {
        Self { images: Some(images), ..self }
    }

    /// With the revisions that keep their images.
    #[must_use]
    pub(crate) fn with_image_retention(self, image_retention: ImageRetention) -> Self {
        Self { image_retention, ..self }
    }

    /// With the name of the host and the address of the page.
    #[must_use]
    pub fn with_place(self, host: String, url: String) -> Self {
        Self { host, url, ..self }
    }

    /// The name of the host: `host.name` of the configuration, which defaults to the hostname.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The problems of the agent itself.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Asks the program to start the agent again, because a release, or the end of one, is stored.
    pub fn restart(&self) {
        self.restart.notify_one();
    }

    /// Waits until a restart was asked for.
    pub async fn restart_requested(&self) {
        self.restart.notified().await;
    }

    /// The ends of certificates, keys and tokens.
    pub fn expiries(&self) -> &Expiries {
        &self.expiries
    }

    /// The status of the agent itself.
    pub fn agent_status(&self) -> AgentStatus {
        let readiness = self.readiness();
        AgentStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.host.clone(),
            url: self.url.clone(),
            started: self.started,
            ready: readiness.is_ready(),
            message: readiness.message,
            problems: self.problems.list(),
            unobserved: self.unpublished.names(),
        }
    }

    /// The images of the engine, if there is one.
    pub fn images(&self) -> Option<&Arc<dyn Images>> {
        self.images.as_ref()
    }

    /// The revisions that keep their images.
    pub fn image_retention(&self) -> &ImageRetention {
        &self.image_retention
    }

    /// The notifications of the agent, if it has any.
    pub fn notifications(&self) -> Option<&Notifications> {
        self.notifications.as_ref()
    }

    /// Asks the registry of an image now, for all applications that follow it.
    pub fn ask_registry(&self, image: &str) {
        self.image_calls.call(image);
    }

    /// All applications, as published last.
    pub fn applications(&self) -> Applications {
        self.applications.borrow().clone()
    }

    /// An application, as published last.
    ///
    /// # Errors
    ///
    /// If there is no such application, or if the agent has just started and has not published it yet.
    pub fn application(&self, name: &AppName) -> Result<Arc<Application>, RequestError> {
        // Read first: an application that is published from here on is found below.
        let is_unpublished = self.unpublished.repository_of(name).is_some();
        match self.applications.borrow().get(name) {
            Some(application) => Ok(Arc::clone(application)),
            None if is_unpublished => Err(RequestError::Starting(name.clone())),
            None => Err(RequestError::NoSuchApplication(name.clone())),
        }
    }

    /// As [`Self::application`], after at most this time if the agent has just started and has not published the application yet.
    ///
    /// # Errors
    ///
    /// If there is no such application, or if it was not published within this time.
    pub async fn started_application(
        &self,
        name: &AppName,
        patience: Duration,
    ) -> Result<Arc<Application>, RequestError> {
        let mut published = self.applications.clone();
        let end = Instant::now() + patience;
        loop {
            let found = self.application(name);
            if !matches!(found, Err(RequestError::Starting(_))) {
                return found;
            }
            match timeout_at(end, published.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return found,
            }
        }
    }

    /// The repository of an application, also of one that is not published yet.
    pub fn repository_of(&self, name: &AppName) -> Option<String> {
        let unpublished = self.unpublished.repository_of(name);
        let applications = self.applications.borrow();
        applications.get(name).map(|application| application.spec.repository.clone()).or(unpublished)
    }

    /// The applications that are not published yet.
    pub fn unpublished(&self) -> &Unpublished {
        &self.unpublished
    }

    /// A handle whose requests are those of this actor.
    #[must_use]
    pub fn acting_for(&self, actor: &Actor) -> Self {
        Self { actor: actor.clone(), ..self.clone() }
    }

    /// Waits for the next publication of an application. False: the agent has stopped.
    pub async fn changed(&mut self) -> bool {
        self.applications.changed().await.is_ok()
    }

    /// Waits for the next publication of applications or repositories. False: the agent has stopped.
    pub async fn published(&mut self) -> bool {
        tokio::select! {
            changed = self.applications.changed() => changed.is_ok(),
            changed = self.repositories.changed() => changed.is_ok(),
        }
    }

    /// All repositories, as published last.
    pub fn repositories(&self) -> Repositories {
        self.repositories.borrow().clone()
    }

    /// The readiness, as published last.
    pub fn readiness(&self) -> Readiness {
        self.readiness.borrow().clone()
    }

    /// The counters of the agent.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The counters of the proxies of the agent's applications: those that answer.
    pub async fn proxy_counters(&self) -> Arc<Vec<ProxyCounts>> {
        match &self.proxy_counters {
            Some(counters) => counters.read().await,
            None => Arc::default(),
        }
    }

    /// When the agent started.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Events from now on. A reader that falls behind by more than 256 events misses some and reads the store instead.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Asks the agent to fetch a repository, because a user wants it. All of its `valuesFrom` is read again. Returns at once.
    pub fn request_fetch(&self, repository: &str) {
        self.fetches.wake(&repository.to_owned());
    }

    /// Asks the agent to fetch a repository, because a webhook was delivered. Returns at once.
    pub fn note_delivery(&self, repository: &str) {
        self.delivered.wake(&repository.to_owned());
    }

    /// The output of a container, by its id. No round waits for it.
    ///
    /// # Errors
    ///
    /// If the engine does not have the container or does not answer.
    pub async fn logs(&self, container: &str, options: &LogOptions) -> Result<LogStream, RequestError> {
        let Some(logs) = &self.logs else { return Err(RequestError::Stopping) };
        logs.open(container, options).await.map_err(RequestError::Engine)
    }

    pub(crate) fn commit_statuses(&self) -> watch::Receiver<CommitStatuses> {
        self.commit_statuses.clone()
    }

    pub(crate) fn status_errors(&self) -> Arc<watch::Sender<StatusErrors>> {
        Arc::clone(&self.status_errors)
    }

    /// Confirms a loss of state, so that new commits are applied again. Returns one sentence for each change.
    ///
    /// # Errors
    ///
    /// If the state directory fails or the agent is stopping.
    pub async fn recover(&self) -> Result<Vec<String>, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.recoveries.send(reply).await.map_err(|_| RequestError::Stopping)?;
        answer.await.map_err(|_| RequestError::Stopping)?
    }

    /// Whether the supervisor of the applications answers. Waits until it does.
    pub async fn is_alive(&self) -> bool {
        // No application has this name, so the supervisor itself answers.
        let answer = self.request(AppName(String::new()), RequestKind::Sync).await;
        answer != Err(RequestError::Stopping)
    }

    pub(crate) fn publish_event(&self, event: Event) {
        // There may be no reader.
        let _ = self.events.send(event);
    }

    /// Sends a request and waits until it is accepted or refused.
    ///
    /// # Errors
    ///
    /// If the request is refused, or the agent cannot do it now.
    pub async fn request(&self, app: AppName, kind: RequestKind) -> Result<Answer, RequestError> {
        self.request_with_ticket(app, kind).await.map(|(answer, _)| answer)
    }

    /// Like [`Self::request`], with the ticket by which a status is known to answer this request.
    ///
    /// # Errors
    ///
    /// If the request is refused, or the agent cannot do it now.
    pub async fn request_with_ticket(
        &self,
        app: AppName,
        kind: RequestKind,
    ) -> Result<(Answer, Ticket), RequestError> {
        let (reply, answer) = oneshot::channel();
        let ticket = self.tickets.next(kind.needs());
        let request = Request { app: app.clone(), kind, actor: self.actor.clone(), ticket, reply };
        self.requests.send(request).await.map_err(|_| RequestError::Stopping)?;
        let is_stopping = || self.stop.is_cancelled() || self.requests.is_closed();
        // The task of the application has ended without an answer.
        let interrupted =
            |_| if is_stopping() { RequestError::Stopping } else { RequestError::Interrupted(app) };
        let answer = answer.await.map_err(interrupted)?;
        answer.map(|answer| (answer, ticket))
    }

    /// Whether this agent, or one before it, may have handed out a ticket.
    pub fn has_issued(&self, ticket: &Ticket) -> bool {
        ticket.number <= self.tickets.newest()
    }
}
