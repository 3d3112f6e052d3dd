//! The membership of a simulated host in a Swarm.

use std::path::{Path, PathBuf};

use super::swarm::SimulatedSwarm;
use crate::mount_paths::MountPaths;

/// The node of a Swarm that a host is.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub(super) swarm: SimulatedSwarm,
    pub(super) node: String,
    pub(super) paths: MountPaths,
}

impl Membership {
    /// `content` and `secret` are the folders of the agent with the contents of configs and secrets.
    pub(super) fn new(swarm: &SimulatedSwarm, node: &str, content: &Path, secret: &Path) -> Self {
        let paths =
            MountPaths { content: content.to_owned(), secret: secret.to_owned(), app: PathBuf::new() };
        Self { swarm: swarm.clone(), node: node.to_owned(), paths }
    }
}
