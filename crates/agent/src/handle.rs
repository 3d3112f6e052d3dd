//! The cheap, cloneable side of the agent: what the API, the CLI and tests hold. It never exposes a channel.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::{
    logs::Logs,
    told::{Untold, Verdicts},
    wakers::Wakes,
};
use driftless_docker::{LogOptions, LogStream};
use driftless_model::{AppName, Application, Event, Pin, RepositoryStatus, Until, WorkloadName};
use driftless_report as report;

/// Asks the agent for something and reads what it publishes.
#[derive(Clone)]
pub struct Handle {
    requests: mpsc::Sender<Request>,
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

/// A request on its way to its application, and where the answer goes.
pub(super) type Asked = (RequestKind, oneshot::Sender<Result<Answer, RequestError>>);

/// What is accepted whatever the application is busy with is answered at once: a container may take minutes to stop,
/// and nobody waits that long to hear that there will be a look at Git.
pub(super) fn acknowledged((kind, reply): Asked) -> Asked {
    if kind != RequestKind::Sync {
        return (kind, reply);
    }
    // Whoever asked may have gone.
    let _ = reply.send(Ok(Answer::Accepted));
    (kind, oneshot::channel().0)
}

/// Everything the agent manages, as of its last rounds.
pub type Applications = Arc<BTreeMap<AppName, Arc<Application>>>;

/// All repositories under watch, in the order of the configuration.
pub type Repositories = Arc<Vec<RepositoryStatus>>;

/// The agent's side of a [`Handle`].
#[derive(Debug)]
pub struct Inbox {
    pub requests: mpsc::Receiver<Request>,
    pub applications: watch::Sender<Applications>,
    pub repositories: watch::Sender<Repositories>,
    pub readiness: watch::Sender<Readiness>,
    /// Every event, once the store has numbered it.
    pub events: broadcast::Sender<Event>,
    /// What is rung when a webhook says that a repository has news, by the repository's name.
    pub(super) rings: Wakes<String>,
    /// What forges are to be told of commits.
    pub(super) verdicts: watch::Sender<Verdicts>,
    /// Why a forge takes no word, by repository.
    pub(super) untold: watch::Receiver<Untold>,
}

/// Whether the agent can do its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Docker answers.
    pub docker: bool,
    /// Every repository was read at least once, or its last good commit is at hand.
    pub repositories: bool,
    /// What is missing, for people; empty when ready.
    pub message: String,
}

impl Readiness {
    pub fn is_ready(&self) -> bool {
        self.docker && self.repositories
    }
}

/// Something to be done by the agent. Each is answered once it is accepted, not once it is done.
#[derive(Debug)]
pub struct Request {
    pub app: AppName,
    pub kind: RequestKind,
    pub reply: oneshot::Sender<Result<Answer, RequestError>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Fetch now, look now, and forget the pauses of backoff.
    Sync,
    /// The same, and takes up the rewritten history that is refused now.
    AcceptRewrite,
    /// The same, and confirms that what Git does not have any more goes, however much that is.
    Prune,
    Rollback(Rollback),
    /// Ends a pin and a suspension.
    Resume,
    /// Observe and report, never write.
    Suspend,
    /// What would be done, round by round, without doing it.
    Preview,
    /// What differs from Git, field by field.
    Drift(Against),
    /// Take over what Docker Compose started.
    Adopt,
    /// A new rollout of one workload, although Git asks for no other.
    Restart(WorkloadName),
    /// A run of a CronJob at once, under this name.
    CreateJob(WorkloadName, String),
    /// Holds up the rollout of one workload.
    Pause(WorkloadName),
    /// Lets it go on.
    Unpause(WorkloadName),
    /// Another instance in the place of one, by the name of its container.
    DeleteInstance(InstanceName),
}

/// An instance by the name of its container, or of its pod. Pods of several namespaces may have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceName {
    pub name: String,
    pub namespace: Option<String>,
}

impl RequestKind {
    /// It asks, and changes nothing: what is being done need not be broken off for it.
    pub(super) fn is_question(&self) -> bool {
        match self {
            Self::Preview | Self::Drift(_) => true,
            Self::Sync
            | Self::AcceptRewrite
            | Self::Prune
            | Self::Rollback(_)
            | Self::Resume
            | Self::Suspend
            | Self::Adopt
            | Self::Restart(_)
            | Self::CreateJob(..)
            | Self::Pause(_)
            | Self::Unpause(_)
            | Self::DeleteInstance(_) => false,
        }
    }
}

/// What of Git an application is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// What is enforced now: the pinned revision while there is a pin, else the newest commit.
    Pin,
    /// The newest commit, pinned or not.
    Head,
    /// A revision of the history by its number, or a commit by its full id.
    Revision(String),
}

impl Against {
    /// `pin`, `head`, or anything else.
    pub fn parse(text: &str) -> Self {
        match text {
            "pin" => Self::Pin,
            "head" => Self::Head,
            other => Self::Revision(other.to_owned()),
        }
    }
}

/// One application, compared with what runs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    pub app: report::App,
    /// Containers on the host that belong to no application.
    pub unmanaged: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// A revision's number or a commit's id (at least 7 digits). `None`: the newest revision that succeeded
    /// and is not the current one.
    pub to: Option<String>,
    pub reason: String,
    pub until: Until,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    Pinned(Pin),
    /// What was taken over and what becomes of it, for people.
    Adopted(Vec<String>),
    Preview(Preview),
    Drift(Box<Inspection>),
}

/// A dry run: text for people, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// The rounds that would follow, each a list of steps with their causes.
    pub rounds: Vec<Vec<String>>,
    /// What Docker Compose made and would be taken over first, and how it differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adoption: Vec<String>,
    /// Why something would not be done.
    pub waits: Vec<String>,
    /// Unified diff of canonical renderings, masked: what runs against what Git says.
    pub diff: String,
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("there is no application `{0}`")]
    NoSuchApplication(AppName),
    /// The request makes no sense as things stand, and what to do instead.
    #[error("{0}")]
    Refused(String),
    /// The agent is stopping.
    #[error("the agent is shutting down")]
    Stopping,
}

impl Handle {
    /// A pair of connected sides.
    pub fn new() -> (Self, Inbox) {
        let (requests, inbox_requests) = mpsc::channel(64);
        let (applications_tx, applications) = watch::channel(Applications::default());
        let (repositories_tx, repositories) = watch::channel(Repositories::default());
        let (readiness_tx, readiness) = watch::channel(Readiness::default());
        let (events, _) = broadcast::channel(256);
        let (verdicts_tx, verdicts) = watch::channel(Verdicts::default());
        let (untold_tx, untold) = watch::channel(Untold::default());
        let inbox = Inbox {
            requests: inbox_requests,
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

    pub(super) fn verdicts(&self) -> watch::Receiver<Verdicts> {
        self.verdicts.clone()
    }

    pub(super) fn untold(&self) -> Arc<watch::Sender<Untold>> {
        Arc::clone(&self.untold)
    }

    /// Hands a request to the agent and waits until it is accepted or refused.
    pub async fn request(&self, app: AppName, kind: RequestKind) -> Result<Answer, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { app, kind, reply }).await.map_err(|_| RequestError::Stopping)?;
        answer.await.map_err(|_| RequestError::Stopping)?
    }
}
