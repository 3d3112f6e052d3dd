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
    Failed {
        /// The error for people.
        error: String,
        /// The pause that the registry asked for, if it did.
        retry_after: Option<Duration>,
        /// Whether the same step would fail again, as a request does that the engine never accepts.
        is_final: bool,
    },
    /// Not performed, because a step before it failed or the round was interrupted.
    Skipped,
}

impl StepOutcome {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done | Self::Created(_) | Self::Swarm(_))
    }
}
