//! Docker Swarm: reading services, tasks, nodes, configs and secrets from a manager, and writing services.
//!
//! Nothing is cached: a manager answers from memory. Only objects with the labels of the application are returned, and
//! the services that its stack names.

mod actions;
mod manager_api;
mod observe;
pub(crate) mod ranges;

pub(crate) use actions::SwarmActions;
#[cfg(feature = "simulated")]
pub(crate) use manager_api::ManagerApi;
pub(crate) use observe::{objects_of, observe};
