//! The Docker Engine: the only module that knows bollard.
//!
//! [`Docker`] is the seam: our types only. [`Engine`] is the real one, and tolerant: what is already so is
//! done. [`Simulated`] is the strict one that tests and simulations live in. No decision is taken here.

mod act;
mod build;
mod cache;
mod downward;
mod engine;
mod events;
mod exec;
mod failure;
mod helper;
mod hooks;
mod host;
mod inside;
mod listing;
mod login;
mod logs;
mod lower;
mod mounted;
mod mounts;
mod observe;
mod own;
mod peers;
mod pipe;
mod podman;
mod prepare;
mod pull;
mod raise;
mod requests;
mod simulated;
mod wire;

use std::{collections::BTreeSet, future::Future, time::Duration};

pub use build::{Materials, Secrets};
pub use engine::{About, Engine, EngineOptions};
pub use login::{ReadSecret, Registries};
pub use logs::{LogOptions, LogStream};
pub use simulated::{Doer, Events, Faults, Hand, Happening, Simulated};
pub use wire::ApiVersion;

use driftless_model::{
    AppName, Build, Container, ContainerId, FileChangeKind, Format, Observed, Peer, Stack, Timestamp,
};
use driftless_plan::Action;

/// What we need of a Docker host.
pub trait Docker: Send + Sync + 'static {
    /// Looks at everything of one application. What it names but does not own is looked up by `interest`.
    fn observe(
        &self,
        app: &AppName,
        interest: &Interest,
    ) -> impl Future<Output = Result<Observed, Error>> + Send;

    /// The applications that own at least one container or network here, by our labels.
    fn applications(&self) -> impl Future<Output = Result<BTreeSet<AppName>, Error>> + Send;

    /// Performs one action. What is already so is a success. `progress` is told of long work, in words.
    fn act(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> impl Future<Output = Result<Effect, Error>> + Send;

    /// Builds an image and gives it this name and those of the build. What is the same as before comes from the
    /// engine's cache. `progress` is told of each step and of the last line of output. Dropping it ends the build.
    fn build(
        &self,
        app: &AppName,
        image: &str,
        build: &Build,
        materials: &Materials,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Runs a command inside a running container and returns its exit code and the end of its output.
    fn exec(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> impl Future<Output = Result<(i64, String), Error>> + Send;

    /// Begins to read what a container prints, by its id or the beginning of it.
    fn logs(
        &self,
        container: &str,
        options: &LogOptions,
    ) -> impl Future<Output = Result<LogStream, Error>> + Send;

    /// What of a running container's own files is not as in its image.
    fn changes(&self, container: &ContainerId) -> impl Future<Output = Result<Changes, Error>> + Send;

    /// When a file in a container was last written; `None` where it is not there.
    fn written(
        &self,
        container: &ContainerId,
        path: &str,
    ) -> impl Future<Output = Result<Option<Timestamp>, Error>> + Send;

    /// The engine's events, from now on. A new receiver's first event is `Reconnected` if the engine is there.
    fn watch(&self) -> tokio::sync::broadcast::Receiver<Change>;
}

/// What a stack refers to by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    pub images: BTreeSet<String>,
    pub networks: BTreeSet<String>,
    pub volumes: BTreeSet<String>,
    /// Containers of others, by name or id.
    pub containers: BTreeSet<String>,
    /// The Compose project of this application, to see what Docker Compose has made of it.
    pub project: Option<String>,
    /// What was taken over: ours although it does not carry our labels.
    pub adopted: BTreeSet<ContainerId>,
    /// Likewise networks, by id.
    pub adopted_networks: BTreeSet<String>,
}

impl Interest {
    /// All that a stack names.
    pub fn of(stack: &Stack) -> Self {
        let containers = || stack.workloads.values().flat_map(driftless_model::Workload::containers);
        let other = |it: &Peer| match it {
            Peer::Container(name) => Some(name.clone()),
            Peer::Workload(_) => None,
        };
        Self {
            images: containers().map(|it| it.image.clone()).collect(),
            networks: stack.networks.keys().cloned().collect(),
            volumes: stack.volumes.keys().cloned().collect(),
            containers: containers().flat_map(Container::peers).filter_map(other).collect(),
            project: (stack.format == Format::Compose).then(|| stack.project.clone()),
            ..Self::default()
        }
    }
}

/// A hint that something changed. It names whom to wake and decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The stream of events began (again): anything may have changed meanwhile.
    Reconnected,
    /// The engine does not answer.
    Lost { error: String },
    /// Something happened to a container, network or volume of an application, or to one whose owner is not
    /// known (`None`: wake all).
    Touched {
        app: Option<AppName>,
        /// `container`, `network`, `volume`, `image` or `daemon`.
        kind: String,
        name: String,
        /// The engine's own word: `die`, `rename`, `disconnect`, …
        action: String,
        at: Option<Timestamp>,
    },
}

/// Files of a container that are not as in its image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub files: Vec<(String, FileChangeKind)>,
    /// The list was too long, and is left out.
    pub is_cut: bool,
}

/// What an action brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A container now exists under this id, made by this very call.
    Created(ContainerId),
    Done,
}

/// Sorted by what the loop does next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine is not there, does not answer in time, or has an inner error: try again later.
    #[error("could not {doing}")]
    Transient {
        doing: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The image could not be had: back off for this image alone.
    #[error("could not pull {image}: {message}")]
    Pull { image: String, message: String, retry_after: Option<Duration> },
    /// The image could not be built: back off for this image alone. With the end of the output, without secrets.
    #[error("could not build {image}: {message}")]
    Build { image: String, message: String },
    /// The engine will never accept this as it stands: wait for a new commit.
    #[error("could not {doing}: {message}")]
    Rejected { doing: String, message: String },
    /// The state is not what the plan supposed (a conflict, a name in use, gone): observe again now.
    #[error("could not {doing}: {message}")]
    Refused { doing: String, message: String },
}
