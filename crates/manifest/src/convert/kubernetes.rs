//! The objects: an owner for each workload, a Service for its name, and what its pod refers to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    Converted, HIDDEN, Lost, SecretValues, object,
    pod::{self, Pod},
    seconds,
};
use driftless_model::{
    Condition, Container, Contents, NetworkMode, Protocol, PullPolicy, RestartPolicy, Stack, Strategy,
    Workload, WorkloadName,
};

/// What all workloads of one stack share while they are written.
pub(super) struct Writer<'a> {
    pub(super) contents: &'a Contents,
    pub(super) secrets: SecretValues,
    pub(super) lost: Lost,
    /// ConfigMaps, Secrets and claims, by kind and name.
    pub(super) objects: BTreeMap<(&'static str, String), Value>,
    /// Names in Kubernetes, which are narrower than those of Compose.
    names: BTreeMap<&'a WorkloadName, String>,
    /// Claims, by the name of the volume in Docker.
    pub(super) claims: BTreeMap<&'a str, String>,
}

/// The only label that is ours, to select by.
const APP: &str = "app";

pub(super) fn convert(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    let mut writer = Writer {
        contents,
        secrets,
        lost: Lost::default(),
        objects: BTreeMap::new(),
        names: BTreeMap::new(),
        claims: BTreeMap::new(),
    };
    let mut taken = BTreeSet::new();
    for (name, workload) in &stack.workloads {
        let plain = unlike(&mut taken, name.as_str());
        if plain != name.as_str() {
            let message =
                format!("is called `{plain}`: Kubernetes has no such name; clients must use the new one");
            writer.lost.field((name, workload), "name", message);
        }
        writer.names.insert(name, plain);
    }
    let mut taken = BTreeSet::new();
    for (docker, volume) in &stack.volumes {
        writer.claims.insert(docker, unlike(&mut taken, &volume.key));
    }
    writer.settings_of_all(stack);
    let mut owners = Vec::new();
    for (name, workload) in &stack.workloads {
        owners.extend(writer.workload(name, workload));
    }
    let objects = std::mem::take(&mut writer.objects);
    let documents = objects.into_values().chain(owners).collect();
    Converted { documents, lost: writer.lost.sorted() }
}

/// A name that Kubernetes takes, and nobody else has.
fn unlike(taken: &mut BTreeSet<String>, name: &str) -> String {
    let plain = label_of(name);
    let mut found = plain.clone();
    let mut number = 2;
    while !taken.insert(found.clone()) {
        found = format!("{plain}-{number}");
        number += 1;
    }
    found
}

/// As an RFC 1035 label, which suits every kind.
pub(super) fn label_of(name: &str) -> String {
    let mut plain: String = name
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' })
        .take(50)
        .collect();
    if !plain.starts_with(|it: char| it.is_ascii_lowercase()) {
        plain.insert_str(0, "x-");
    }
    plain.trim_end_matches('-').to_owned()
}

pub(super) fn head(kind: &'static str, name: &str) -> [(&'static str, Value); 3] {
    let version = match kind {
        "Deployment" => "apps/v1",
        "Job" => "batch/v1",
        _ => "v1",
    };
    [("apiVersion", json!(version)), ("kind", json!(kind)), ("metadata", json!({ "name": name }))]
}

impl<'a> Writer<'a> {
    pub(super) fn hidden(&mut self, at: (&WorkloadName, &Workload), field: &str, value: &str) -> String {
        if self.secrets == SecretValues::Shown {
            return value.to_owned();
        }
        self.lost.field(at, field, "the value of a secret is not written; `--show-secrets` does");
        HIDDEN.to_owned()
    }

    /// Networks and volumes that are not the plain ones.
    fn settings_of_all(&mut self, stack: &Stack) {
        for (name, workload) in &stack.workloads {
            for docker in workload.container.networks().keys() {
                let Some(network) = stack.networks.get(docker) else { continue };
                let plain = driftless_model::Network {
                    key: network.key.clone(),
                    ..driftless_model::Network::default()
                };
                if *network != plain {
                    let message =
                        format!("the settings of the network `{}`: pods have one network", network.key);
                    self.lost.field((name, workload), "networks", message);
                }
            }
            if stack.networks.len() > 1 && workload.container.networks().len() < stack.networks.len() {
                let message =
                    "networks that keep workloads apart: all pods reach each other; use a NetworkPolicy";
                self.lost.field((name, workload), "networks", message);
            }
        }
    }

    /// The owner of a workload's pods, and the Services that answer to its names.
    fn workload(&mut self, name: &'a WorkloadName, workload: &'a Workload) -> Vec<Value> {
        let at = (name, workload);
        let plain = self.names.get(name).cloned().unwrap_or_default();
        self.what_has_no_word(at);
        let Pod { mut spec, mut labels, annotations } = pod::convert(self, at);
        labels.insert(APP.to_owned(), plain.clone());
        let template = |spec: Value| json!({ "metadata": object([("labels", json!(labels)), ("annotations", json!(annotations))]), "spec": spec });
        let restart = workload.container.restart;
        let put = |spec: &mut Value, policy: &str| {
            if let Some(spec) = spec.as_object_mut() {
                spec.insert("restartPolicy".to_owned(), json!(policy));
            }
        };
        let owner = match restart {
            RestartPolicy::Always | RestartPolicy::UnlessStopped => {
                let deployment = self.deployment(at, &plain, template(spec));
                object(head("Deployment", &plain).into_iter().chain([("spec", deployment)]))
            }
            RestartPolicy::OnFailure { max_retries: Some(retries) } => {
                self.one_of_it(at);
                put(&mut spec, "OnFailure");
                let job = object([("backoffLimit", json!(retries)), ("template", template(spec))]);
                object(head("Job", &plain).into_iter().chain([("spec", job)]))
            }
            RestartPolicy::No | RestartPolicy::OnFailure { max_retries: None } => {
                self.one_of_it(at);
                if workload.container.hostname.is_none() {
                    self.lost.field(at, "hostname", "a Pod has its own name as host name");
                }
                put(&mut spec, if restart == RestartPolicy::No { "Never" } else { "OnFailure" });
                let metadata = object([
                    ("name", json!(plain)),
                    ("labels", json!(labels)),
                    ("annotations", json!(annotations)),
                ]);
                json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
            }
        };
        let mut documents = vec![owner];
        documents.extend(self.services(at, &plain));
        documents
    }

    fn deployment(&mut self, at: (&WorkloadName, &Workload), plain: &str, template: Value) -> Value {
        let workload = at.1;
        let (min_ready, deadline) = (seconds(workload.min_ready), seconds(workload.progress_deadline));
        if deadline <= min_ready {
            self.lost.field(
                at,
                "progressDeadline",
                "it is not longer than `minReadySeconds`, which no cluster takes",
            );
        }
        let strategy = match workload.strategy {
            Strategy::Recreate => json!({ "type": "Recreate" }),
            Strategy::RollingUpdate { max_surge, max_unavailable } => json!({
                "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": max_surge, "maxUnavailable": max_unavailable },
            }),
        };
        object([
            ("replicas", json!(workload.replicas)),
            ("minReadySeconds", if min_ready > 0 { json!(min_ready) } else { Value::Null }),
            (
                "progressDeadlineSeconds",
                if deadline > min_ready && deadline != 600 { json!(deadline) } else { Value::Null },
            ),
            ("paused", super::flag(workload.paused)),
            ("strategy", strategy),
            ("selector", json!({ "matchLabels": { APP: plain } })),
            ("template", template),
        ])
    }

    /// A Pod and a Job are there once, and one that changes takes the place of the old.
    fn one_of_it(&mut self, at: (&WorkloadName, &Workload)) {
        if at.1.replicas != 1 {
            self.lost.field(
                at,
                "replicas",
                "what ends by itself becomes a Pod or Job, of which there is one",
            );
        }
        if at.1.strategy != Strategy::Recreate {
            self.lost.field(at, "strategy", "a Pod or Job is replaced at once");
        }
        if !at.1.min_ready.is_zero() {
            self.lost.field(at, "minReady", "a Pod or Job has no such time");
        }
    }

    /// Fields of the workload itself that Kubernetes does not know.
    fn what_has_no_word(&mut self, at: (&WorkloadName, &Workload)) {
        let Workload {
            origin: _,
            replicas: _,
            container: _,
            // Nothing but Kubernetes has them.
            parts: _,
            container_name,
            strategy: _,
            min_ready: _,
            progress_deadline: _,
            revision_history_limit: _,
            paused: _,
            after,
            probes: _,
            pull,
            pull_secrets,
            in_place,
            build,
            secret_env: _,
            completion: _,
            member: _,
            update: _,
            job: _,
            cron: _,
        } = at.1;
        if container_name.is_some() {
            self.lost.field(at, "containerName", "pods are named by the cluster");
        }
        for it in after {
            let condition = match it.condition {
                Condition::Started => "has started",
                Condition::Healthy => "is healthy",
                Condition::CompletedSuccessfully => "has completed",
            };
            let message = format!(
                "waits until `{}` {condition}: pods start in no order, so the program must try again",
                it.workload
            );
            self.lost.field(at, "after", message);
        }
        if let PullPolicy::Every(_) = pull {
            self.lost.field(at, "pull", "a pull after some time: the image is pulled each time");
        }
        if !pull_secrets.is_empty() {
            self.lost.field(at, "pullSecrets", "logins for registries are not written");
        }
        if !in_place.is_empty() {
            self.lost.field(at, "inPlace", "files that are rewritten while the container runs");
        }
        if build.is_some() {
            let message = "the build: push the image to a registry, and name it there";
            self.lost.field(at, "build", message);
        }
    }

    /// One Service for the workload's own name, with its ports, and one for each further name.
    fn services(&mut self, at: (&WorkloadName, &Workload), plain: &str) -> Vec<Value> {
        let container = &at.1.container;
        let NetworkMode::Networks(networks) = &container.network_mode else { return Vec::new() };
        let mut names = BTreeSet::from([plain.to_owned()]);
        for alias in networks.values().flat_map(|it| &it.aliases).filter(|it| *it != at.0.as_str()) {
            let is_name = *alias == label_of(alias);
            if !is_name {
                let message = format!("the name `{alias}`: no Service can be called so");
                self.lost.field(at, "networks", message);
            } else if !self.names.values().any(|it| it == alias) {
                names.insert(alias.clone());
            } else if alias != plain {
                let message = format!("the name `{alias}`: another workload is called so");
                self.lost.field(at, "networks", message);
            }
        }
        let ports = service_ports(container);
        let spec = object([
            ("clusterIP", if ports.is_empty() { json!("None") } else { Value::Null }),
            ("selector", json!({ APP: plain })),
            ("ports", json!(ports)),
        ]);
        let service =
            |name: &String| object(head("Service", name).into_iter().chain([("spec", spec.clone())]));
        names.iter().map(service).collect()
    }

    /// Keeps an object that a pod refers to.
    pub(super) fn keep(&mut self, kind: &'static str, name: &str, more: Vec<(&'static str, Value)>) {
        let value = object(head(kind, name).into_iter().chain(more));
        self.objects.insert((kind, name.to_owned()), value);
    }

    pub(super) fn name_of(&self, name: &WorkloadName) -> String {
        self.names.get(name).cloned().unwrap_or_default()
    }
}

/// The container's ports under the same numbers, for inside the cluster.
fn service_ports(container: &Container) -> Vec<Value> {
    let published = container.ports.iter().map(|it| (it.container, it.protocol));
    let all: BTreeSet<(u16, Protocol)> = published.chain(container.expose.iter().copied()).collect();
    let many = all.len() > 1;
    let port = |(number, protocol): (u16, Protocol)| {
        let word = protocol.as_str().to_uppercase();
        let is_tcp = protocol == Protocol::Tcp;
        let mut entry = Map::new();
        if many {
            entry.insert("name".to_owned(), json!(format!("{}-{number}", protocol.as_str())));
        }
        entry.insert("port".to_owned(), json!(number));
        if !is_tcp {
            entry.insert("protocol".to_owned(), json!(word));
        }
        Value::Object(entry)
    };
    all.into_iter().map(port).collect()
}

/// The claims of a stack's volumes that anything mounts.
pub(super) fn claim(writer: &mut Writer<'_>, docker: &str) -> Option<String> {
    let name = writer.claims.get(docker).cloned()?;
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    writer.keep("PersistentVolumeClaim", &name, vec![("spec", spec)]);
    Some(name)
}
