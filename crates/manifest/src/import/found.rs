//! The containers, networks and volumes of a host, as an import reads them.

use std::collections::BTreeMap;

use driftless_model::{Container, ContainerId, Dependency, Network, Volume};

/// A container that runs on the host.
#[derive(Clone, Debug)]
pub struct FoundContainer {
    pub id: ContainerId,
    pub name: String,
    /// The Compose project and service, from its labels.
    pub service: Option<FoundService>,
    /// Its configuration with the defaults of the image.
    pub config: Container,
    /// The defaults of the image.
    pub defaults: Container,
    /// The engine removes it when it stops (`docker run --rm`).
    pub is_removed_at_exit: bool,
    /// A registry has its image.
    pub is_published: bool,
}

/// The place of a container in a Compose project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundService {
    pub project: String,
    pub name: String,
    /// Counts from 1.
    pub number: u32,
    pub depends_on: Vec<Dependency>,
    /// The folder of the Compose file on the host. Empty if it is not known.
    pub folder: String,
}

/// A network or volume of the host.
#[derive(Clone, Debug, Default)]
pub struct FoundObject<T> {
    /// The Compose project that created it. Its key is in the object.
    pub project: Option<String>,
    pub object: T,
}

/// Everything that runs on a host.
#[derive(Clone, Debug, Default)]
pub struct FoundHost {
    pub containers: Vec<FoundContainer>,
    /// By name.
    pub networks: BTreeMap<String, FoundObject<Network>>,
    /// By name.
    pub volumes: BTreeMap<String, FoundObject<Volume>>,
}
