//! Converts a stack to Kubernetes objects: a controller for each workload, Services for its names, and the objects that
//! its pod mounts.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    extension,
    kubernetes_pod::{self, PodTemplate},
    kubernetes_writer::{KubernetesWriter, head, label_of, unique_name},
    output::{Converted, SecretValues, flag, object, seconds},
};
use driftless_model::{
    Condition, Container, Contents, Job, NetworkMode, Protocol, PullPolicy, RestartPolicy, Stack, Strategy,
    Subject, Workload, WorkloadKind,
};

/// The label that selects the pods of a workload.
const APP: &str = "app";

pub(super) fn convert(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    let mut writer = KubernetesWriter::new(contents, secrets);

    let mut taken = BTreeSet::new();
    for subject in stack.subjects() {
        let name = subject.name;
        let plain = unique_name(&mut taken, name.as_str());
        if plain != name.as_str() {
            let message = format!(
                "is renamed to `{plain}`, because the name is not valid in Kubernetes; clients must use the new one"
            );
            writer.lost.field(subject, "name", message);
        }
        writer.names.insert(name, plain);
    }
    let mut taken = BTreeSet::new();
    for (docker, volume) in &stack.volumes {
        writer.claims.insert(docker, unique_name(&mut taken, &volume.key));
    }
    writer.settings_of_all(stack);
    let mut owners = Vec::new();
    for subject in stack.subjects() {
        owners.extend(writer.workload(subject));
    }
    let objects = std::mem::take(&mut writer.objects);
    let documents = objects.into_values().chain(owners).collect();
    Converted { documents, lost: writer.lost.sorted() }
}

/// Adds the annotations that order its sync and its updates to an object.
fn annotated(mut owner: Value, workload: &Workload) -> Value {
    let own = extension::annotations(workload);
    if !own.is_empty() {
        match owner.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            Some(annotations) => annotations.extend(own),
            None => {
                if let Some(metadata) = owner.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                    metadata.insert("annotations".to_owned(), Value::Object(own));
                }
            }
        }
    }
    owner
}

impl<'a> KubernetesWriter<'a> {
    /// Reports settings of networks, which Kubernetes does not have.
    fn settings_of_all(&mut self, stack: &Stack) {
        for subject in stack.subjects() {
            let workload = subject.workload;
            for docker in workload.container.networks().keys() {
                let Some(network) = stack.networks.get(docker) else { continue };
                let plain = driftless_model::Network {
                    key: network.key.clone(),
                    ..driftless_model::Network::default()
                };
                if *network != plain {
                    let message =
                        format!("the settings of the network `{}`: pods have one network", network.key);
                    self.lost.field(subject, "networks", message);
                }
            }
            if stack.networks.len() > 1 && workload.container.networks().len() < stack.networks.len() {
                let message =
                    "networks that keep workloads apart: all pods reach each other; use a NetworkPolicy";
                self.lost.field(subject, "networks", message);
            }
        }
    }

    /// The controller of a workload's pods, and the Services for its names.
    fn workload(&mut self, at: Subject<'a>) -> Vec<Value> {
        let Subject { name, workload } = at;
        let plain = self.names.get(name).cloned().unwrap_or_default();
        self.report_unsupported(at);
        let PodTemplate { mut spec, mut labels, annotations } = kubernetes_pod::convert(self, at);
        labels.insert(APP.to_owned(), plain.clone());
        let template = |spec: Value| json!({ "metadata": object([("labels", json!(labels)), ("annotations", json!(annotations))]), "spec": spec });
        let restart = workload.container.restart;
        let put = |spec: &mut Value, policy: &str| {
            if let Some(spec) = spec.as_object_mut() {
                spec.insert("restartPolicy".to_owned(), json!(policy));
            }
        };
        let template_of = |job: &Job, template: Value| {
            object([
                ("backoffLimit", json!(job.backoff_limit)),
                ("activeDeadlineSeconds", json!(job.active_deadline.map(seconds))),
                ("template", template),
            ])
        };
        if let WorkloadKind::CronJob { template: job, .. } | WorkloadKind::Hook { template: job, .. } =
            &workload.kind
        {
            put(&mut spec, if job.fresh { "Never" } else { "OnFailure" });
            let pods = template(spec);
            let (kind, spec) = match &workload.kind {
                WorkloadKind::CronJob { schedule, .. } => {
                    ("CronJob", extension::cron_job(schedule, &template_of(job, pods)))
                }
                _ => ("Job", template_of(job, pods)),
            };
            let owner = object(head(kind, &plain).into_iter().chain([("spec", spec)]));
            let mut documents = vec![annotated(owner, workload)];
            documents.extend(self.services(at, &plain));
            return documents;
        }
        let owner = match restart {
            RestartPolicy::Always | RestartPolicy::UnlessStopped => {
                let deployment = self.deployment(at, &plain, template(spec));
                object(head("Deployment", &plain).into_iter().chain([("spec", deployment)]))
            }
            RestartPolicy::OnFailure { max_retries: Some(retries) } => {
                self.report_single(at);
                put(&mut spec, "OnFailure");
                let job = object([("backoffLimit", json!(retries)), ("template", template(spec))]);
                object(head("Job", &plain).into_iter().chain([("spec", job)]))
            }
            RestartPolicy::No | RestartPolicy::OnFailure { max_retries: None } => {
                self.report_single(at);
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
        let mut documents = vec![annotated(owner, workload)];
        documents.extend(self.services(at, &plain));
        documents
    }

    fn deployment(&mut self, at: Subject<'_>, plain: &str, template: Value) -> Value {
        let workload = at.workload;
        let (min_ready, deadline) = (seconds(workload.min_ready), seconds(workload.progress_deadline));
        if deadline <= min_ready {
            self.lost.field(
                at,
                "progressDeadline",
                "it is not longer than `minReadySeconds`, which a cluster rejects",
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
            ("paused", flag(workload.paused)),
            ("strategy", strategy),
            ("selector", json!({ "matchLabels": { APP: plain } })),
            ("template", template),
        ])
    }

    /// Reports fields that a Pod or a Job does not have.
    fn report_single(&mut self, at: Subject<'_>) {
        if at.workload.replicas != 1 {
            self.lost.field(at, "replicas", "a workload that completes becomes a single Pod or Job");
        }
        if at.workload.strategy != Strategy::Recreate {
            self.lost.field(at, "strategy", "a Pod or Job is replaced at once");
        }
        if !at.workload.min_ready.is_zero() {
            self.lost.field(at, "minReady", "a Pod or Job has no `minReadySeconds`");
        }
    }

    /// Reports fields of the workload that Kubernetes does not have.
    fn report_unsupported(&mut self, at: Subject<'_>) {
        let Workload {
            origin: _,
            replicas: _,
            container: _,
            // Only Kubernetes has parts.
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
            mounted_pulls: _,
            pull_secrets,
            in_place,
            build,
            secret_env: _,
            completion: _,
            kind: _,
            update: _,
            // Only Kubernetes has an architecture, and its own documents are not converted.
            architecture: _,
            wave: _,
            image_update,
            failure,
            rollback,
            ignore_differences: _,
            canary: _,
            // Nobody scales a manifest that is converted.
            scaled_from: _,
            manifest: _,
        } = at.workload;
        if image_update.is_some() {
            self.lost.field(at, "update", "image updates: give the object the annotation `driftless.update`");
        }
        if failure.is_given() || rollback.is_some() {
            let message = "what follows a failed update: a Deployment stops at `progressDeadlineSeconds`";
            self.lost.field(at, "failure", message);
        }
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

    /// One Service for the workload's name, with its ports, and one for each other alias.
    fn services(&mut self, at: Subject<'_>, plain: &str) -> Vec<Value> {
        let container = &at.workload.container;
        let NetworkMode::Networks(networks) = &container.network_mode else { return Vec::new() };
        let mut names = BTreeSet::from([plain.to_owned()]);
        for alias in networks.values().flat_map(|it| &it.aliases).filter(|it| *it != at.name.as_str()) {
            let is_name = *alias == label_of(alias);
            if !is_name {
                let message = format!("the name `{alias}`: not a valid Service name");
                self.lost.field(at, "networks", message);
            } else if !self.names.values().any(|it| it == alias) {
                names.insert(alias.clone());
            } else if alias != plain {
                let message = format!("the name `{alias}`: another workload has this name");
                self.lost.field(at, "networks", message);
            }
        }
        let ports = service_ports(container);
        // A name in Compose resolves to every container, ready or not.
        let probes = &at.workload.probes;
        let is_probed =
            container.healthcheck.is_some() || probes.readiness.is_some() || probes.startup.is_some();
        let spec = object([
            ("publishNotReadyAddresses", flag(is_probed && !ports.is_empty())),
            ("clusterIP", if ports.is_empty() { json!("None") } else { Value::Null }),
            ("selector", json!({ APP: plain })),
            ("ports", json!(ports)),
        ]);
        let service =
            |name: &String| object(head("Service", name).into_iter().chain([("spec", spec.clone())]));
        names.iter().map(service).collect()
    }
}

/// The container's ports with the same numbers.
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
