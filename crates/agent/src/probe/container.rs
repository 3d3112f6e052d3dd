//! The containers that the prober probes, and what it needs from its caller.

use std::{future::Future, net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use driftless_model::{AppName, ContainerId, Healthcheck, Probes, Timestamp};

/// Why a command has no exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecError {
    /// The engine did not answer, which says nothing about the container.
    Unanswered,
    /// The command could not be run: why, in words.
    Failed(String),
}

/// Runs commands inside containers.
pub trait Exec: Send + Sync + 'static {
    /// Runs a command to its end, without a shell, and returns its exit code. It gives up after `timeout`.
    fn exec<'a>(
        &'a self,
        container: &'a ContainerId,
        command: &'a [String],
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<i64, ExecError>> + Send + 'a>>;

    /// Whether the engine answers: asked after a command that took too long.
    fn is_answering(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;

    /// Runs the health check of a container once. Returns whether it succeeded.
    fn check_health<'a>(
        &'a self,
        container: &'a ContainerId,
        check: &'a Healthcheck,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;
}

/// Called with the application when one of its containers becomes ready, unready or dead. It must not block, and it
/// must not call the prober.
pub type Changed = Arc<dyn Fn(&AppName) + Send + Sync>;

/// A running container and its probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedContainer {
    /// The container's id.
    pub container: ContainerId,
    /// Its address on one of its networks, or 127.0.0.1 on the host's network. Without an address, HTTP, TCP and gRPC
    /// probes fail.
    pub address: Option<IpAddr>,
    /// When it was started. Initial delays count from here, also after a restart of the agent.
    pub started: Timestamp,
    /// Its startup, readiness and liveness probe.
    pub probes: Probes,
    /// The engine's health check, which the agent runs until it succeeds once. Only for a container without probes.
    pub health_check: Option<Healthcheck>,
}

impl ProbedContainer {
    pub(super) fn has_checks(&self) -> bool {
        self.probes != Probes::default() || self.health_check.is_some()
    }
}
