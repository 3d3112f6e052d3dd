//! Data of a host that several applications may use: the containers that mount it, and the applications that Git gives it to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{AgentId, AppName, ContainerId, Stack, WorkloadName};

/// A container of the host that mounts a volume or a path, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountingContainer {
    pub id: ContainerId,
    pub name: String,
    /// The application in its labels.
    pub app: Option<AppName>,
    /// The agent in its labels.
    pub agent: Option<AgentId>,
    /// The workload in its labels, or its service of Docker Compose.
    pub workload: WorkloadName,
    /// It runs, is paused, or is about to be restarted.
    pub is_up: bool,
    pub mounts: Vec<HostMount>,
}

/// A volume or path of the host that a container mounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostMount {
    pub source: HostSource,
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostSource {
    /// By its name.
    Volume(String),
    Path(String),
}

/// A volume or path of the host that a service of this application and one of another wrote to at the same time, while all was as Git
/// said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedPlace {
    pub source: HostSource,
    /// The other application.
    pub with: AppName,
    /// The two services. Older agents did not record them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<SharingServices>,
}

/// A service of this application and one of another that write to the same place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SharingServices {
    pub own: WorkloadName,
    pub other: WorkloadName,
}

impl MountingContainer {
    /// Whether it mounts a volume, also if it only reads it.
    pub fn mounts_volume(&self, name: &str) -> bool {
        self.mounts.iter().any(|mount| matches!(&mount.source, HostSource::Volume(found) if found == name))
    }
}

/// The applications that this agent manages, as the newest commits have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedApplications {
    /// All repositories were read. Until then, an application that is not among the names may be in one of the others.
    pub is_complete: bool,
    /// The repositories that were not read.
    pub unread_repositories: BTreeSet<String>,
    /// Those in Git, and those that were deployed and are not removed yet.
    pub names: BTreeSet<AppName>,
    /// The stacks of those in Git. An application whose manifests have errors, or whose repository cannot be read, has the one that Git
    /// last asked for, if a revision has it.
    pub stacks: BTreeMap<AppName, Arc<Stack>>,
    /// Those that Git has or may have, and whose newest manifests are not known: they have errors, the application rejects their commit, or
    /// its repository cannot be read.
    pub unread: BTreeSet<AppName>,
    /// The repository of each one, also of those that are gone since the agent started.
    pub repositories: BTreeMap<AppName, String>,
    /// The applications that each one in Git depends on.
    pub depends_on: BTreeMap<AppName, BTreeSet<AppName>>,
    /// The applications that had adopted containers when the agent started. Such a container carries no label, and each application learns
    /// of the others' only when these are observed.
    pub adopters: Arc<BTreeMap<ContainerId, AppName>>,
}

impl ManagedApplications {
    /// Whether the agent certainly does not have an application any more.
    pub fn is_gone(&self, app: &AppName) -> bool {
        self.is_complete && !self.names.contains(app)
    }

    /// Whether two applications are known to be of the same repository.
    pub fn are_of_one_repository(&self, one: &AppName, other: &AppName) -> bool {
        let repository = self.repositories.get(one);
        repository.is_some() && repository == self.repositories.get(other)
    }

    /// Another application that names a volume in Git.
    pub fn user_of_volume(&self, name: &str, except: &AppName) -> Option<&AppName> {
        let names =
            |(app, stack): &(&AppName, &Arc<Stack>)| *app != except && stack.volumes.contains_key(name);
        self.stacks.iter().find(names).map(|(app, _)| app)
    }
}
