//! Requests of users about one application: the types, and the dispatch to what answers them.

mod adopt;
mod drift;
mod plan;
mod rollback;
mod sync;
mod workload;

pub use drift::Inspector;
pub use plan::preview;

use std::collections::BTreeSet;

use tokio::sync::oneshot;

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::{AppName, EventKind, Pin, Until, WorkloadName};
use driftless_report as report;
use driftless_store as store;
use driftless_store::Suspension;

use crate::{app::App, error::chain};

/// A request on its way to its application, and where the answer goes.
pub(crate) type Asked = (RequestKind, oneshot::Sender<Result<Answer, RequestError>>);

/// What is accepted whatever the application is busy with is answered at once: a container may take minutes to stop,
/// and nobody waits that long to hear that there will be a look at Git.
pub(crate) fn acknowledged((kind, reply): Asked) -> Asked {
    if kind != RequestKind::Sync {
        return (kind, reply);
    }
    // Whoever asked may have gone.
    let _ = reply.send(Ok(Answer::Accepted));
    (kind, oneshot::channel().0)
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
    pub(crate) fn is_question(&self) -> bool {
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

impl<D: Docker, S: Source> App<D, S> {
    /// Answers a request. It is done, or will be by the rounds that follow.
    pub(crate) async fn answer(&mut self, kind: &RequestKind) -> Result<Answer, RequestError> {
        match kind {
            RequestKind::AcceptRewrite => self.accept_rewrite(),
            RequestKind::Sync => Ok(self.sync_now()),
            RequestKind::Prune => self.prune(),
            RequestKind::Rollback(rollback) => self.roll_back(rollback).map(Answer::Pinned),
            RequestKind::Resume => {
                let cleared = self.shared.store.clear_pin(&self.name);
                cleared
                    .and_then(|()| self.shared.store.set_suspended(&self.name, Suspension::Active))
                    .map_err(|it| broken(&it))?;
                self.tell(EventKind::Normal, "Resumed", self.name.as_str(), "following Git again");
                Ok(Answer::Accepted)
            }
            RequestKind::Suspend => {
                self.shared
                    .store
                    .set_suspended(&self.name, Suspension::Suspended)
                    .map_err(|it| broken(&it))?;
                self.tell(EventKind::Normal, "Suspended", self.name.as_str(), "watched, and not touched");
                Ok(Answer::Accepted)
            }
            RequestKind::Adopt => self.adopt().await,
            RequestKind::Restart(name) => self.restart(name).await,
            RequestKind::CreateJob(from, name) => self.create_job(from, name),
            RequestKind::Pause(name) => self.hold(name),
            RequestKind::Unpause(name) => self.release(name),
            RequestKind::DeleteInstance(name) => self.delete_instance(name).await,
            RequestKind::Preview => self.preview().await.map(Answer::Preview),
            RequestKind::Drift(against) => self.inspect(against).await.map(|it| Answer::Drift(Box::new(it))),
        }
    }
}

fn broken(error: &store::Error) -> RequestError {
    RequestError::Refused(format!("the state directory cannot be used: {}", chain(error)))
}
