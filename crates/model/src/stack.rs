//! The desired state of one application, rendered from its manifests until no reference is left open.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use serde::{Deserialize, Serialize};

use super::{
    AppName, Container, ContentId, EncryptedTexts, Inventory, Location, Network, Protocol, StackHash,
    Subject, SwarmService, Volume, Workload, WorkloadName,
};
use crate::{defaults::is_default, hash::digest_of};

/// One application's desired state, free of its front-end format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stack {
    pub app: AppName,
    pub format: Format,
    /// The Compose project: prefix of all names in Docker. Equals the application's name unless the manifest
    /// says otherwise (`name:` in a Compose file).
    pub project: String,
    pub workloads: BTreeMap<WorkloadName, Workload>,
    /// By the network's name in Docker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub networks: BTreeMap<String, Network>,
    /// By the volume's name in Docker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub volumes: BTreeMap<String, Volume>,
    /// Files of the repository that are mounted read-write, or that lie in a folder which is. They live in the
    /// application's own folder, by path: written when they change in Git; nothing else there is ever removed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub app_files: BTreeMap<String, ContentId>,
    /// The manifest files it came from, as paths in the repository, for `docker compose ls`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub manifests: Vec<String>,
    /// Values from encrypted files that Compose files interpolate. They are masked wherever they occur.
    #[serde(default, skip_serializing_if = "is_default")]
    pub secret_values: BTreeSet<String>,
    /// The texts of encrypted manifests, which are masked too. No part of the hash.
    #[serde(default, skip_serializing_if = "is_default")]
    pub encrypted: EncryptedTexts,
    #[serde(default, skip_serializing_if = "is_default")]
    pub inventory: Inventory,
    /// The services of a Docker Swarm, by workload. Empty on a single host.
    #[serde(default, skip_serializing_if = "is_default")]
    pub swarm: BTreeMap<WorkloadName, SwarmService>,
    /// The stack as Git has it, where the runs of CronJobs have been added to it.
    #[serde(skip)]
    pub given: Option<GivenStack>,
    /// The places of all host ports in the manifests, for findings. They are no part of the desired state, so they are not stored.
    #[serde(skip)]
    pub port_places: BTreeMap<(WorkloadName, u16, Protocol), PortPlace>,
    /// The place of the project's name, if the manifests give it one. Not stored either.
    #[serde(skip)]
    pub project_place: Option<Location>,
}

/// A stack as Git has it, to which runs of CronJobs and hooks were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenStack {
    pub hash: StackHash,
    /// The networks that were added with the runs, by name.
    pub added_networks: BTreeSet<String>,
}

/// The place of a published host port in the manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlace {
    pub location: Location,
    /// In the manifest, such as `services.web.ports[0]`.
    pub path: String,
}

impl Stack {
    /// An application without workloads. `project` is the prefix of its names in Docker.
    pub fn new(app: AppName, format: Format, project: &str) -> Self {
        Self {
            app,
            format,
            project: project.to_owned(),
            workloads: BTreeMap::new(),
            networks: BTreeMap::new(),
            volumes: BTreeMap::new(),
            app_files: BTreeMap::new(),
            manifests: Vec::new(),
            secret_values: BTreeSet::new(),
            encrypted: EncryptedTexts::default(),
            inventory: Inventory::default(),
            swarm: BTreeMap::new(),
            given: None,
            port_places: BTreeMap::new(),
            project_place: None,
        }
    }

    /// All workloads with their names, in the order of their names.
    pub fn subjects(&self) -> impl Iterator<Item = Subject<'_>> {
        self.workloads.iter().map(|(name, workload)| Subject { name, workload })
    }

    /// The stack as Git has it, to remember where it is changed for a host.
    pub fn as_given(&self) -> GivenStack {
        let of_git = || GivenStack { hash: StackHash::of(self), added_networks: BTreeSet::new() };
        self.given.clone().unwrap_or_else(of_git)
    }

    /// Adds the networks of a run, if Git has them no more.
    pub fn add_networks(&mut self, networks: &BTreeMap<String, Network>) {
        for (name, network) in networks {
            if let Entry::Vacant(vacant) = self.networks.entry(name.clone()) {
                vacant.insert(network.clone());
                if let Some(given) = &mut self.given {
                    given.added_networks.insert(name.clone());
                }
            }
        }
    }

    /// The place of the project's name, or the first manifest if it has no place.
    pub fn project_location(&self) -> Location {
        let first = || Location::file(self.manifests.first().map_or("", String::as_str));
        self.project_place.clone().unwrap_or_else(first)
    }

    /// The stack as it is rolled out when the application goes back to it: with the settings of `rollback_config`.
    #[must_use]
    pub fn for_rollback(mut self) -> Self {
        self.workloads.values_mut().for_each(Workload::use_rollback_settings);
        self
    }

    /// The stack of an application that has left Git: everything that still runs is too much.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            app: self.app.clone(),
            format: self.format,
            project: self.project.clone(),
            workloads: BTreeMap::new(),
            networks: BTreeMap::new(),
            volumes: BTreeMap::new(),
            app_files: BTreeMap::new(),
            manifests: self.manifests.clone(),
            secret_values: self.secret_values.clone(),
            encrypted: self.encrypted.clone(),
            inventory: self.inventory.clone(),
            swarm: BTreeMap::new(),
            given: None,
            port_places: BTreeMap::new(),
            project_place: None,
        }
    }

    /// Whether the application has no workload, network or volume.
    pub fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.networks.is_empty() && self.volumes.is_empty()
    }

    /// The names of all variables that hold secrets by the manifest's own word.
    pub fn secret_env(&self) -> impl Iterator<Item = &String> {
        self.workloads.values().flat_map(|it| &it.secret_env)
    }

    /// The paths in the application's own folder that its manifests mount. A run may have those of an older commit.
    pub fn app_folders(&self) -> BTreeSet<&str> {
        let of_manifests = self.workloads.values().filter(|workload| !workload.is_run());
        of_manifests.flat_map(Workload::containers).flat_map(Container::app_folders).collect()
    }

    /// Every image that must be on the host: what is run, and what is mounted. Some may come twice.
    pub fn images(&self) -> impl Iterator<Item = &String> {
        self.workloads.values().flat_map(|it| it.containers().map(|it| &it.image).chain(it.mounted_images()))
    }
}

/// The language of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    Compose,
    Kubernetes,
}

impl StackHash {
    /// The hash of a stack as Git defines it: without the runs of CronJobs, and however its manifests are encrypted.
    pub fn of(stack: &Stack) -> Self {
        match &stack.given {
            Some(given) => given.hash.clone(),
            None if is_default(&stack.encrypted) => Self(digest_of(stack)),
            None => Self(digest_of(&Stack { encrypted: EncryptedTexts::default(), ..stack.clone() })),
        }
    }
}
