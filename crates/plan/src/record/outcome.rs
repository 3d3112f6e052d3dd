//! Outcome of a step.

use std::time::Duration;

use driftless_model::ContainerId;

use crate::swarm::SwarmResult;

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    Done,
    /// The engine created this container.
    Created(ContainerId),
    /// A manager of a Swarm has answered.
    Swarm(Box<SwarmResult>),
    /// With the error for people, and how long the registry asked to wait.
    Failed {
        error: String,
        retry_after: Option<Duration>,
    },
    /// Not performed, because a step before it failed or the round was interrupted.
    Skipped,
}

impl StepOutcome {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done | Self::Created(_) | Self::Swarm(_))
    }
}
