//! A Docker Engine in memory, for tests and simulations of the whole agent.
//!
//! It runs on Tokio's clock, fails on demand and writes a transcript of everything that changes. The effect of each
//! step is defined by [`World`](driftless_plan::World); a refusal that the planner could have foreseen is recorded as
//! a mistake of the planner. Images are only names, ports are not opened and no process runs. A host can be a manager of
//! a Swarm in memory.

mod client;
mod engine;
mod faults;
mod host;
mod manager;
mod membership;
mod proxy;
mod swarm;
mod user_action;

pub use engine::SimulatedEngine;
pub use faults::{ChangedBy, EventDelivery, Faults, IMAGE_BYTES, TranscriptEntry};
pub use swarm::{EndedTask, Outage, SimulatedSwarm, SwarmFaults, SwarmWrite};
pub use user_action::UserAction;
