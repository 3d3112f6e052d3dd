//! The types of requests and answers.

use std::collections::BTreeSet;

use tokio::sync::oneshot;

use driftless_docker as docker;
use driftless_model::{Actor, AppName, EffectiveSetting, Pin, Removal, Timestamp, Until, WorkloadName};
use driftless_report as report;
use driftless_store as store;

use crate::{
    error::chain,
    ticket::{Need, Ticket},
};

/// A request about one application. It is answered when it is accepted, not when it is done.
#[derive(Debug)]
pub struct Request {
    /// The application's name.
    pub app: AppName,
    /// The kind of the request.
    pub kind: RequestKind,
    /// The actor that asks.
    pub actor: Actor,
    /// The ticket of the request.
    pub ticket: Ticket,
    /// The receiver of the answer.
    pub reply: oneshot::Sender<Result<Answer, RequestError>>,
}

/// The kind of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Fetch now, make a round now, and forget all backoffs.
    Sync,
    /// Sync, and accept the rewritten history that is rejected now. With the sentence about it that the user has read: only that
    /// one.
    AcceptRewrite(Option<String>),
    /// Sync, and confirm the removal that waits for a confirmation.
    Prune,
    /// Sync, and try the commit again that failed.
    Retry,
    /// Sync, and repair the live state once, although self-heal is off.
    Heal,
    /// Sync, and deploy the newer images that are known and only reported.
    UpdateImages,
    /// Remove an application that has left Git.
    Remove(Removal),
    /// The same without the `PreDelete` hooks.
    ForceRemove(Removal),
    /// Stop to manage an application that has left Git. Its containers stay.
    Forget,
    /// Go back to an older revision and pin the application to it.
    Rollback(Rollback),
    /// End a pin and a suspension.
    Resume,
    /// Observe and report, change nothing.
    Suspend,
    /// The dry run: the steps of the next rounds, without performing them.
    Plan,
    /// The dry run, as if this request had been accepted before.
    PlanAfter(Supposed),
    /// The differences between the target and the live state, field by field.
    Drift(Against),
    /// The settings that are in force, and where they are written.
    Settings,
    /// Take over what Docker Compose created.
    Adopt,
    /// Replace the instances of one workload, although nothing has changed in Git.
    Restart(WorkloadName),
    /// Begin a run of a CronJob now, with this name.
    CreateJob(WorkloadName, String),
    /// Delete a Job with its containers: a run of a CronJob is over then, and a Job of the manifests is run again.
    DeleteJob(WorkloadName),
    /// Pause the rollouts of one Deployment.
    Pause(WorkloadName),
    /// Continue the rollouts of one Deployment.
    Unpause(WorkloadName),
    /// Run another number of instances of one workload than Git says, for a time.
    Scale(Scale),
    /// Run the number of instances that Git says again.
    ResetScale(WorkloadName),
    /// End the pauses of canaries, or all their steps.
    Promote(Promotion),
    /// Go back from a commit whose canary is at a step.
    Abort,
    /// Replace one instance.
    DeleteInstance(InstanceName),
}

/// A request that a dry run supposes to be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Supposed {
    /// The confirmation of a removal that is held.
    Prune,
    /// A rollback to this revision or commit. `None`: the newest revision that succeeded and is not the current one.
    Rollback(Option<String>),
    /// The end of a pin and a suspension.
    Resume,
    /// One repair of the live state.
    Heal,
}

/// The number of instances of one workload until a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The workload.
    pub workload: WorkloadName,
    /// The number of instances.
    pub replicas: u32,
    /// When the number in Git counts again.
    pub until: Timestamp,
}

/// The canaries to promote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promotion {
    /// The workload. `None`: all of the application.
    pub workload: Option<WorkloadName>,
    /// Skip all further steps and pauses.
    pub is_full: bool,
}

/// An instance by the name of its container or of its pod. Pods of several namespaces may have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceName {
    /// The name of the container or pod.
    pub name: String,
    /// The Kubernetes namespace. `None`: any.
    pub namespace: Option<String>,
}

impl RequestKind {
    /// The work that must follow before a status answers the request.
    pub(crate) fn needs(&self) -> Need {
        match self {
            Self::Sync
            | Self::AcceptRewrite(_)
            | Self::Prune
            | Self::Retry
            | Self::Heal
            | Self::UpdateImages => Need::FetchAndRound,
            Self::Remove(_)
            | Self::ForceRemove(_)
            | Self::Forget
            | Self::Rollback(_)
            | Self::Resume
            | Self::Suspend
            | Self::Plan
            | Self::PlanAfter(_)
            | Self::Drift(_)
            | Self::Settings
            | Self::Adopt
            | Self::Restart(_)
            | Self::CreateJob(..)
            | Self::DeleteJob(_)
            | Self::Pause(_)
            | Self::Unpause(_)
            | Self::Scale(_)
            | Self::ResetScale(_)
            | Self::Promote(_)
            | Self::Abort
            | Self::DeleteInstance(_) => Need::Round,
        }
    }

    /// Whether the request changes nothing, so that running steps need not be interrupted for it.
    pub(crate) fn is_question(&self) -> bool {
        match self {
            Self::Plan | Self::PlanAfter(_) | Self::Drift(_) | Self::Settings => true,
            Self::Sync
            | Self::AcceptRewrite(_)
            | Self::Prune
            | Self::Retry
            | Self::Heal
            | Self::UpdateImages
            | Self::Remove(_)
            | Self::ForceRemove(_)
            | Self::Forget
            | Self::Rollback(_)
            | Self::Resume
            | Self::Suspend
            | Self::Adopt
            | Self::Restart(_)
            | Self::CreateJob(..)
            | Self::DeleteJob(_)
            | Self::Pause(_)
            | Self::Unpause(_)
            | Self::Scale(_)
            | Self::ResetScale(_)
            | Self::Promote(_)
            | Self::Abort
            | Self::DeleteInstance(_) => false,
        }
    }
}

/// The state that the live state is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// The target: the pinned revision if there is one, else the newest commit.
    Pin,
    /// The newest commit, also while an older revision is pinned.
    Head,
    /// A revision by its number, or a commit by its full id.
    Revision(String),
}

impl Against {
    /// Parses `pin`, `head`, a revision's number or a commit's id.
    pub fn parse(text: &str) -> Self {
        match text {
            "pin" => Self::Pin,
            "head" => Self::Head,
            other => Self::Revision(other.to_owned()),
        }
    }
}

/// The differences of one application.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The application's part of a report.
    pub app: report::App,
    /// Containers on the host that belong to no application.
    pub unmanaged: BTreeSet<String>,
}

/// A rollback: its target, its reason, and the end of the pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// A revision's number or a commit's id (at least 7 digits). `None`: the newest revision that succeeded and is not
    /// the current one.
    pub to: Option<String>,
    /// Why, in the user's words.
    pub reason: String,
    /// When the pin ends.
    pub until: Until,
}

/// The answer to an accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The rounds that follow do it.
    Accepted,
    /// The same, with a sentence for people.
    Noted(String),
    /// The pin of a rollback.
    Pinned {
        /// The pin.
        pin: Pin,
        /// Why it changes nothing yet, for people.
        note: Option<String>,
    },
    /// The adopted objects and what happens to them, one sentence each.
    Adopted(Vec<String>),
    /// The result of a dry run.
    Plan(DryRun),
    /// The differences of the application.
    Drift(Box<Inspection>),
    /// The settings of the application, sorted by key.
    Settings(Vec<EffectiveSetting>),
}

/// The result of a dry run, in text for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// The application is suspended: the rounds follow once it is not. `driftless resume` ends that, unless there is a `way_out`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// A sentence with the way to these rounds, if `driftless resume` alone does not lead to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
    /// The rounds that would follow, each a list of steps with their causes.
    pub rounds: Vec<Vec<String>>,
    /// The objects of Docker Compose that would be adopted first, and how they differ; or the services of `docker stack deploy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adoption: Vec<String>,
    /// Why these objects would not be adopted. Empty if they would be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adoption_obstacles: Vec<String>,
    /// Why something would not be done, each reason once.
    pub waits: Vec<String>,
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The agent has no application of this name.
    #[error("there is no application `{0}`")]
    NoSuchApplication(AppName),
    /// The agent knows the application, and has made no round of it since its start.
    #[error("the agent has just started or found `{0}` in Git, and has not looked at it yet")]
    Starting(AppName),
    /// The request makes no sense in the present state. The text says what to do instead.
    #[error("{0}")]
    Refused(String),
    /// The application has too many requests to answer.
    #[error("{0} has many requests to answer already; try again in a moment")]
    Busy(AppName),
    /// A defect of the agent has ended the task of the application, which begins again soon.
    #[error(
        "a defect of the agent has interrupted the work on {0}, which begins again within a minute; try again then"
    )]
    Interrupted(AppName),
    /// The engine did not answer, or answered with an error.
    #[error("{0}")]
    Engine(String),
    /// The state directory failed: the disk is full, read-only or broken.
    #[error("the state directory cannot be used: {0}")]
    State(String),
    /// The agent is stopping.
    #[error("the agent is shutting down")]
    Stopping,
}

impl From<store::Error> for RequestError {
    fn from(error: store::Error) -> Self {
        Self::State(chain(&error))
    }
}

impl From<docker::Error> for RequestError {
    fn from(error: docker::Error) -> Self {
        Self::Engine(chain(&error))
    }
}

/// A request that waits for its application, and where the answer goes.
pub(crate) struct Queued {
    pub(crate) kind: RequestKind,
    pub(crate) actor: Actor,
    pub(crate) ticket: Ticket,
    pub(crate) reply: oneshot::Sender<Result<Answer, RequestError>>,
}

/// Answers a sync before it is begun: a container may take minutes to stop, and the client need not wait for that.
pub(crate) fn answer_at_once(queued: Queued) -> Queued {
    let Queued { kind, actor, ticket, reply } = queued;
    if kind != RequestKind::Sync {
        return Queued { kind, actor, ticket, reply };
    }
    // The client may have gone.
    let _ = reply.send(Ok(Answer::Accepted));
    Queued { kind, actor, ticket, reply: oneshot::channel().0 }
}
