//! The cheap, cloneable side of the agent: what the API, the CLI and tests hold. It never exposes a channel.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::{
    Answer, Request, RequestError, RequestKind,
    commit_status::{Untold, Verdicts},
    logs::Logs,
    wakes::Wakes,
};
use driftless_docker::{LogOptions, LogStream};
use driftless_model::{AppName, Application, Event, RepositoryStatus};

/// Asks the agent for something and reads what it publishes.
#[derive(Clone)]
pub struct Handle {
    requests: mpsc::Sender<Request>,
    recoveries: mpsc::Sender<Recovery>,
    applications: watch::Receiver<Applications>,
    repositories: watch::Receiver<Repositories>,
    readiness: watch::Receiver<Readiness>,
    events: broadcast::Sender<Event>,
    rings: Wakes<String>,
    verdicts: watch::Receiver<Verdicts>,
    logs: Option<Arc<dyn Logs>>,
    untold: Arc<watch::Sender<Untold>>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// Everything the agent manages, as of its last rounds.
pub type Applications = Arc<BTreeMap<AppName, Arc<Application>>>;

/// All repositories under watch, in the order of the configuration.
pub type Repositories = Arc<Vec<RepositoryStatus>>;

/// The agent's side of a [`Handle`].
#[derive(Debug)]
pub struct Inbox {
    pub requests: mpsc::Receiver<Request>,
    pub recoveries: mpsc::Receiver<Recovery>,
    pub applications: watch::Sender<Applications>,
    pub repositories: watch::Sender<Repositories>,
    pub readiness: watch::Sender<Readiness>,
    /// Every event, once the store has numbered it.
    pub events: broadcast::Sender<Event>,
    /// What is rung when a webhook says that a repository has news, by the repository's name.
    pub(crate) rings: Wakes<String>,
    /// What forges are to be told of commits.
    pub(crate) verdicts: watch::Sender<Verdicts>,
    /// Why a forge takes no word, by repository.
    pub(crate) untold: watch::Receiver<Untold>,
}

/// A request for [`Handle::recover`]: where its answer goes.
pub type Recovery = oneshot::Sender<Result<Vec<String>, RequestError>>;

/// Whether the agent can do its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Docker answers.
    pub docker: bool,
    /// Every repository was read at least once, or its last good commit is at hand.
    pub repositories: bool,
    /// No state was lost, or somebody has confirmed the loss.
    pub state: bool,
    /// What is missing, for people; empty when ready.
    pub message: String,
}

impl Readiness {
    pub fn is_ready(&self) -> bool {
        self.docker && self.repositories && self.state
    }
}

impl Handle {
    /// A pair of connected sides.
    pub fn new() -> (Self, Inbox) {
        let (requests, inbox_requests) = mpsc::channel(64);
        let (recoveries, inbox_recoveries) = mpsc::channel(4);
        let (applications_tx, applications) = watch::channel(Applications::default());
        let (repositories_tx, repositories) = watch::channel(Repositories::default());
        let (readiness_tx, readiness) = watch::channel(Readiness::default());
        let (events, _) = broadcast::channel(256);
        let (verdicts_tx, verdicts) = watch::channel(Verdicts::default());
        let (untold_tx, untold) = watch::channel(Untold::default());
        let inbox = Inbox {
            requests: inbox_requests,
            recoveries: inbox_recoveries,
            applications: applications_tx,
            repositories: repositories_tx,
            readiness: readiness_tx,
            events: events.clone(),
            rings: Wakes::default(),
            verdicts: verdicts_tx,
            untold,
        };
        let rings = inbox.rings.clone();
        let untold = Arc::new(untold_tx);
        let handle = Self {
            requests,
            recoveries,
            applications,
            repositories,
            readiness,
            events,
            rings,
            verdicts,
            untold,
            logs: None,
        };
        (handle, inbox)
    }

    /// With somewhere to read the output of containers from.
    #[must_use]
    pub fn with_logs(self, logs: Arc<dyn Logs>) -> Self {
        Self { logs: Some(logs), ..self }
    }

    /// All applications, as last published.
    pub fn applications(&self) -> Applications {
        self.applications.borrow().clone()
    }

    /// Waits for the next publication. False when the agent has stopped.
    pub async fn changed(&mut self) -> bool {
        self.applications.changed().await.is_ok()
    }

    /// All repositories, as last published.
    pub fn repositories(&self) -> Repositories {
        self.repositories.borrow().clone()
    }

    pub fn readiness(&self) -> Readiness {
        self.readiness.borrow().clone()
    }

    /// Events from now on. A reader that falls behind by more than 256 is told so and reads the store instead.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// A webhook says that a repository has news. Waits for nothing.
    pub fn ring(&self, repository: &str) {
        self.rings.wake(&repository.to_owned());
    }

    /// What a container prints, by its id. It goes past the rounds, and holds up none.
    pub async fn logs(&self, container: &str, options: &LogOptions) -> Result<LogStream, RequestError> {
        let Some(logs) = &self.logs else { return Err(RequestError::Stopping) };
        logs.open(container, options).await.map_err(RequestError::Refused)
    }

    pub(crate) fn verdicts(&self) -> watch::Receiver<Verdicts> {
        self.verdicts.clone()
    }

    pub(crate) fn untold(&self) -> Arc<watch::Sender<Untold>> {
        Arc::clone(&self.untold)
    }

    /// Confirms that state was lost, so that new commits are applied again. Returns a line for each change.
    pub async fn recover(&self) -> Result<Vec<String>, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.recoveries.send(reply).await.map_err(|_| RequestError::Stopping)?;
        answer.await.map_err(|_| RequestError::Stopping)?
    }

    /// Hands a request to the agent and waits until it is accepted or refused.
    pub async fn request(&self, app: AppName, kind: RequestKind) -> Result<Answer, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { app, kind, reply }).await.map_err(|_| RequestError::Stopping)?;
        answer.await.map_err(|_| RequestError::Stopping)?
    }
}
