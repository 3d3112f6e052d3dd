//! Running containers as applications: a Compose file for each Compose project and for each container that belongs to none.
//!
//! The files say what the containers have beyond the defaults of their images, so that an agent can adopt the containers as
//! they are. Values that may be secret are variables; their values are returned apart.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    AppName, Completion, Container, Contents, Finding, Format, InstanceId, Location, MountSource, Namespace,
    NetworkMode, Peer, RestartPolicy, Stack, Strategy, Workload, WorkloadName,
};
use serde_json::{Map, Value, json};

use crate::convert::{self, Converted, SecretValues};

mod found;
mod minimal;
mod objects;
mod secrets;

pub use found::{FoundContainer, FoundHost, FoundObject, FoundService};
use minimal::without_defaults;
use secrets::Secrets;
pub use secrets::env_file;

/// The name of the file of an application.
pub const FILE: &str = "compose.yaml";

/// One application made of running containers.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedApp {
    /// The name of the application and of its folder.
    pub name: AppName,
    /// The Compose file.
    pub document: Value,
    /// Values that may be secret, by the variable that the file refers to.
    pub variables: BTreeMap<String, String>,
    /// Warnings: fields that the file lacks, and facts that a user should know.
    pub findings: Vec<Finding>,
    /// The names of its containers.
    pub containers: BTreeSet<String>,
}

/// Makes the applications, sorted by name.
pub fn import(host: &FoundHost) -> Vec<ImportedApp> {
    let mut groups: BTreeMap<(bool, String), Vec<&FoundContainer>> = BTreeMap::new();
    for container in &host.containers {
        let key = match &container.service {
            Some(service) => (false, service.project.clone()),
            None => (true, container.name.clone()),
        };
        groups.entry(key).or_default().push(container);
    }
    let mut names = BTreeSet::new();
    let mut apps: Vec<ImportedApp> = groups
        .into_iter()
        .map(|((_, project), containers)| {
            App::new(host, &project, unique(&project, &mut names)).run(containers)
        })
        .collect();
    apps.sort_by(|one, other| one.name.cmp(&other.name));
    apps
}

/// A name for the folder that no other application has.
fn unique(text: &str, names: &mut BTreeSet<AppName>) -> AppName {
    let base = AppName::normalise(text).unwrap_or_else(|| AppName::from("app"));
    let mut name = base.clone();
    for number in 2.. {
        if names.insert(name.clone()) {
            break;
        }
        name = AppName(format!("{base}-{number}"));
    }
    name
}

/// One application while it is made.
struct App<'a> {
    host: &'a FoundHost,
    project: &'a str,
    name: AppName,
    findings: Vec<Finding>,
}

impl<'a> App<'a> {
    fn new(host: &'a FoundHost, project: &'a str, name: AppName) -> Self {
        Self { host, project, name, findings: Vec::new() }
    }

    fn run(mut self, containers: Vec<&FoundContainer>) -> ImportedApp {
        let names = containers.iter().map(|container| container.name.clone()).collect();
        let mut services: BTreeMap<WorkloadName, Vec<&FoundContainer>> = BTreeMap::new();
        for container in containers {
            services.entry(service_name(container)).or_default().push(container);
        }
        let known: BTreeSet<WorkloadName> = services.keys().cloned().collect();
        let mut workloads = BTreeMap::new();
        for (name, mut containers) in services {
            containers.sort_by_key(|container| container.service.as_ref().map_or(1, |it| it.number));
            if let Some((first, others)) = containers.split_first() {
                workloads.insert(name.clone(), self.workload(&name, first, others, &known));
            }
        }
        let mut stack = Stack { workloads, ..Stack::new(self.name.clone(), Format::Compose, self.project) };
        // Compose gives a project a name of lower case.
        if AppName::normalise(self.project).is_none_or(|name| name.as_str() != self.project) {
            stack.project = self.name.to_string();
        }
        objects::add(&mut stack, self.host, self.project);
        let Converted { documents, lost } =
            convert::to_compose(&stack, &Contents::new(), SecretValues::Shown);
        for finding in lost.into_iter().filter(|finding| !finding.path.ends_with(".strategy")) {
            let path = format!("services.{}", finding.path);
            self.warn(&path, format!("not written: {}", finding.message), None);
        }
        let mut document = documents.into_iter().next().unwrap_or_default();
        objects::write(&mut document, &stack, self.project);
        let mut secrets = Secrets::of(&document);
        if let Some(services) = document.get_mut("services").and_then(Value::as_object_mut) {
            for (name, service) in services.iter_mut() {
                if let Some(service) = service.as_object_mut() {
                    tidy(service);
                    secrets.take(name, service);
                }
            }
        }
        for kind in ["volumes", "networks"] {
            for (name, object) in document.get_mut(kind).and_then(Value::as_object_mut).into_iter().flatten()
            {
                if let Some(object) = object.as_object_mut() {
                    secrets.take_options(name, object);
                }
            }
        }
        let mut findings = self.findings;
        findings.sort();
        findings.dedup();
        ImportedApp { name: self.name, document, variables: secrets.variables, findings, containers: names }
    }

    /// The workload of one service.
    fn workload(
        &mut self,
        name: &WorkloadName,
        first: &FoundContainer,
        others: &[&FoundContainer],
        known: &BTreeSet<WorkloadName>,
    ) -> Workload {
        let path = format!("services.{name}");
        let mut container = without_defaults(&first.config, &first.defaults);
        for other in others {
            if without_defaults(&other.config, &other.defaults) != container {
                let message = format!("{} is not like {}, whose settings were taken", other.name, first.name);
                self.warn(&path, message, Some("the agent replaces it when it adopts the application"));
            }
        }
        self.name_peers(&mut container);
        self.report(&path, first, &container);
        let service = first.service.clone().unwrap_or_default();
        let (after, missing): (Vec<_>, Vec<_>) =
            service.depends_on.into_iter().partition(|dependency| known.contains(&dependency.workload));
        for dependency in missing {
            let message =
                format!("the dependency on {} is left out, because it does not run", dependency.workload);
            self.warn(&format!("{path}.depends_on"), message, None);
        }
        let instance = InstanceId { workload: name.clone(), slot: service.number.max(1) };
        let is_named_by_compose = first.service.is_some()
            && ['-', '_'].iter().any(|separator| {
                let InstanceId { workload, slot } = &instance;
                first.name == format!("{}{separator}{workload}{separator}{slot}", self.project)
            });
        let replicas = u32::try_from(others.len()).unwrap_or_default().saturating_add(1);
        let completion = match container.restart {
            RestartPolicy::Always | RestartPolicy::UnlessStopped => Completion::Never,
            RestartPolicy::No | RestartPolicy::OnFailure { .. } => Completion::OnSuccess,
        };
        Workload {
            replicas,
            container_name: (!is_named_by_compose && replicas == 1).then(|| first.name.clone()),
            strategy: Strategy::RollingUpdate { max_surge: 0, max_unavailable: 1 },
            after,
            completion,
            ..Workload::new(self.location(), container)
        }
    }

    /// Names the containers that it shares namespaces and volumes with, which the engine knows by id.
    fn name_peers(&self, container: &mut Container) {
        let name = |peer: &mut Peer| {
            let Peer::Container(id) = peer else { return };
            let is_it = |found: &&FoundContainer| found.id.as_str() == id || found.name == *id;
            let Some(found) = self.host.containers.iter().find(is_it) else { return };
            *peer = match &found.service {
                Some(service) if service.project == self.project => {
                    Peer::Workload(WorkloadName(service.name.clone()))
                }
                Some(_) | None => Peer::Container(found.name.clone()),
            };
        };
        if let NetworkMode::Of(peer) = &mut container.network_mode {
            name(peer);
        }
        for mode in [&mut container.pid_mode, &mut container.ipc_mode] {
            if let Some(Namespace::Of(peer)) = mode {
                name(peer);
            }
        }
        for volumes in &mut container.volumes_from {
            name(&mut volumes.peer);
        }
    }

    /// Warns of facts that a user should know about a service.
    fn report(&mut self, path: &str, found: &FoundContainer, container: &Container) {
        if found.is_removed_at_exit {
            let message = "was started with `--rm`: the engine removes it when it stops, and the agent starts another one";
            self.warn(path, message.to_owned(), None);
        }
        if container.image.starts_with("sha256:") {
            let help = "write the name of the image; the agent then replaces the container";
            self.warn(
                &format!("{path}.image"),
                "is the id of an image, which no registry has".to_owned(),
                Some(help),
            );
        } else if !found.is_published {
            let message = format!("{} came from no registry: only this host has it", container.image);
            let help = "add the `build` of the image, or push it to a registry";
            self.warn(&format!("{path}.image"), message, Some(help));
        }
        let folder = found.service.as_ref().map(|it| it.folder.as_str()).filter(|it| it.len() > 1);
        for mount in &container.mounts {
            let MountSource::Bind { path: source, .. } = &mount.source else { continue };
            let Some(inside) = folder.and_then(|it| source.strip_prefix(it)?.strip_prefix('/')) else {
                continue;
            };
            if mount.read_only {
                let message = format!("mounts {source} of this host, which Git does not have");
                let help = format!(
                    "to have it in Git: copy it, and write ./{inside}; the agent then replaces the container once"
                );
                self.warn(&format!("{path}.volumes"), message, Some(&help));
            }
        }
    }

    fn location(&self) -> Location {
        Location::file(format!("{}/{FILE}", self.name))
    }

    fn warn(&mut self, path: &str, message: String, help: Option<&str>) {
        let finding = Finding::warning(self.location(), path, message);
        self.findings.push(match help {
            Some(help) => finding.help(help),
            None => finding,
        });
    }
}

/// The name of a container's service. Of a container that belongs to no project it is the name of the container.
fn service_name(container: &FoundContainer) -> WorkloadName {
    let name = match &container.service {
        Some(service) => service.name.clone(),
        None => AppName::normalise(&container.name).map_or_else(|| "app".to_owned(), |name| name.to_string()),
    };
    WorkloadName(name)
}

/// Removes what is the default of a Compose file.
fn tidy(service: &mut Map<String, Value>) {
    service.remove("pull_policy");
    if service.get("restart") == Some(&json!("no")) {
        service.remove("restart");
    }
    if service.get("networks") == Some(&json!({ "default": {} })) {
        service.remove("networks");
    }
    let Some(Value::Object(mut deploy)) = service.remove("deploy") else { return };
    deploy.remove("update_config");
    if deploy.get("replicas") == Some(&json!(1)) {
        deploy.remove("replicas");
    }
    if !deploy.is_empty() {
        service.insert("deploy".to_owned(), Value::Object(deploy));
    }
}
