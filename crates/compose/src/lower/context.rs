//! The state of one lowering, shared by the files of this folder.

use std::collections::{BTreeMap, BTreeSet};

use driftless_files::Files;
use driftless_model::{EngineKind, Finding, Network};

use crate::{
    load::{texts::Texts, variables::Variables},
    lower::{build::Builds, mounts::MountedFiles},
    read::types::{FileSource, Sections, Service, Source},
};

/// The inputs of a lowering, and the results so far.
pub(crate) struct Lowering<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) engine: EngineKind,
    /// The name of the application.
    pub(crate) app: String,
    /// The name of the project.
    pub(crate) name: &'a str,
    /// The folder of relative paths, from the repository's root.
    pub(crate) folder: &'a str,
    pub(crate) variables: &'a Variables,
    pub(crate) texts: &'a Texts,
    pub(crate) project: &'a Sections,
    pub(crate) profiles: Vec<String>,
    pub(crate) files_to_mount: MountedFiles<'a>,
    /// The networks that services use, by name in Docker.
    pub(crate) networks: BTreeMap<String, Network>,
    pub(crate) builds: Builds,
    /// The values that are hidden wherever they occur.
    pub(crate) secret_values: BTreeSet<String>,
    pub(crate) findings: &'a mut Vec<Finding>,
}

impl Lowering<'_> {
    /// Whether the profiles of a service are active.
    pub(crate) fn is_active(&self, service: &Service) -> bool {
        service.profiles.is_empty()
            || self.profiles.iter().any(|it| it == "*" || service.profiles.contains(it))
    }

    /// Whether a config or secret is an external one of a Swarm.
    pub(crate) fn is_of_swarm(&self, source: &FileSource) -> bool {
        self.engine == EngineKind::Swarm && matches!(source.source, Source::External(_))
    }

    /// The name of a network or volume in Docker.
    pub(crate) fn name_in_docker(&self, key: &str, name: Option<&String>, is_external: bool) -> String {
        match name.filter(|it| !it.is_empty()) {
            Some(name) => name.clone(),
            None if is_external => key.to_owned(),
            None => format!("{}_{key}", self.name),
        }
    }
}
