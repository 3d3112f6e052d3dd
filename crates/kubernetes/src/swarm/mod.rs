//! Manifests for Docker Swarm: the settings that only a Swarm has, and an error for all that it cannot do.
//!
//! Objects are read as for a single host. This makes a service of each workload and refuses each field that a Swarm would
//! ignore, at its place. The names and ports of Services are in [`services`].

mod fit;
mod health;
mod place;
mod placement;
mod refused;
pub(super) mod services;

pub(super) use fit::{drop_host_warnings, fit};
