//! Instances as Pods: phase, conditions, and the state of each container.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::object::{Object, annotations, container_name, moment, owner, pod_labels, pod_spec};
use driftless_model::{
    Application, AwaitedInstance, InstanceStatus, Kind, ObjectRef, PartStatus, Role, Timestamp,
    WorkloadStatus,
};

/// The Pods of a workload: those with a container, and those not created yet.
pub(super) fn pods(
    application: &Application,
    workload: &WorkloadStatus,
    labels: &BTreeMap<String, String>,
) -> Vec<Object> {
    let here = workload.instances.iter().map(|it| pod(application, workload, labels, it));
    here.chain(workload.awaited.iter().map(|it| awaited(application, workload, labels, it))).collect()
}

fn pod(
    application: &Application,
    workload: &WorkloadStatus,
    labels: &BTreeMap<String, String>,
    it: &InstanceStatus,
) -> Object {
    let life = Life::of(it);
    let image = if it.image.is_empty() { &workload.image } else { &it.image };
    let is_initial = |it: &&PartStatus| it.spec.role != Role::App;
    let (initial, apps): (Vec<_>, Vec<_>) = it.containers.iter().partition(is_initial);
    let apps = match apps.as_slice() {
        [] => vec![container(container_name(workload), image, it)],
        apps => apps.iter().map(|it| part(it)).collect(),
    };
    let is_begun = it.containers.iter().any(|it| !is_initial(&it) && it.instance.is_some());
    let has_failed = life.has_failed(workload);
    let phase =
        if it.containers.is_empty() || is_begun || has_failed { life.phase(workload) } else { "Pending" };
    let mut status = json!({
        "phase": phase,
        "conditions": conditions(Some(it)),
        "containerStatuses": apps,
    });
    if !initial.is_empty() {
        status["initContainerStatuses"] = initial.into_iter().map(part).collect();
    }
    if let Some(started) = it.created {
        status["startTime"] = moment(started);
    }
    if let Some(ip) = &it.ip {
        status["podIP"] = ip.as_str().into();
        status["podIPs"] = json!([{ "ip": ip }]);
    }
    if !it.message.is_empty() {
        status["message"] = it.message.as_str().into();
    }
    let mut metadata = base(workload, &it.spec);
    if matches!(life, Life::Leaving) {
        // The start time is unknown, but the container has started.
        metadata.insert("deletionTimestamp".into(), it.since.or(it.created).map_or(Value::Null, moment));
    }
    let name = it.pod.as_ref().unwrap_or(&it.name);
    let mut labels = of_specification(workload, &it.spec, labels);
    if it.pod.is_some() && workload.spec.object.kind == Kind::StatefulSet {
        labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), name.clone());
    }
    let hash = &it.spec;
    let parts = PodParts { workload, labels, name, image, created: it.created, metadata, status, hash };
    let mut object = object(application, parts);
    if !it.ports.is_empty() {
        object.annotations.insert("driftless.ports".to_owned(), it.ports.join(", "));
    }
    object
}

/// The labels of pods of an older specification in the place of those that the workload asks for now.
pub(super) fn of_specification(
    workload: &WorkloadStatus,
    hash: &str,
    labels: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = labels.clone();
    all.retain(|key, _| !workload.spec.labels.contains_key(key));
    all.extend(pod_labels(workload, hash).clone());
    all
}

/// The status of one container.
fn container(name: &str, image: &str, it: &InstanceStatus) -> Value {
    let life = Life::of(it);
    let mut container = json!({
        "name": name,
        "image": image,
        "ready": it.ready,
        "restartCount": it.restarts,
        "started": matches!(life, Life::Running),
        "containerID": format!("docker://{}", it.container),
        "state": life.state(it),
    });
    if let Some(last) = life.last_state(it) {
        container["lastState"] = last;
    }
    container
}

/// The status of one container of a pod with several.
fn part(PartStatus { spec, instance }: &PartStatus) -> Value {
    let Some(instance) = instance else {
        return json!({
            "name": spec.name, "image": spec.image, "ready": false, "restartCount": 0, "started": false,
            "state": { "waiting": { "reason": "PodInitializing" } },
        });
    };
    let mut status = container(&spec.name, &spec.image, instance);
    if spec.role == Role::Init {
        // An init container does not keep running.
        status["started"] = false.into();
        status["ready"] = (instance.state == "Completed").into();
    }
    status
}

/// A pod that has no container yet.
fn awaited(
    application: &Application,
    workload: &WorkloadStatus,
    labels: &BTreeMap<String, String>,
    it: &AwaitedInstance,
) -> Object {
    let waiting = json!({ "reason": it.reason, "message": it.message });
    let container = |name: &str, image: &str| {
        json!({
            "name": name, "image": image, "ready": false, "restartCount": 0, "started": false,
            "state": { "waiting": waiting },
        })
    };
    let apps = workload.spec.containers.iter().filter(|it| it.role == Role::App);
    let mut containers: Vec<Value> = apps.map(|it| container(&it.name, &it.image)).collect();
    if containers.is_empty() {
        containers.push(container(container_name(workload), &workload.image));
    }
    let status = json!({
        "phase": "Pending", "conditions": conditions(None), "containerStatuses": containers,
        "message": it.message,
    });
    let hash = &workload.spec.hash;
    let metadata = base(workload, hash);
    let (labels, name, image) = (labels.clone(), &it.name, &workload.image);
    object(application, PodParts { workload, labels, name, image, created: None, metadata, status, hash })
}

/// The parts of the object of a pod.
struct PodParts<'a> {
    workload: &'a WorkloadStatus,
    /// Without the hash of the specification.
    labels: BTreeMap<String, String>,
    name: &'a str,
    image: &'a str,
    created: Option<Timestamp>,
    metadata: Map<String, Value>,
    status: Value,
    /// The hash of the specification.
    hash: &'a str,
}

fn object(application: &Application, parts: PodParts<'_>) -> Object {
    let PodParts { workload, mut labels, name, image, created, metadata, status, hash } = parts;
    labels.insert("pod-template-hash".to_owned(), hash.to_owned());
    let namespace = workload.spec.object.namespace.clone();
    Object {
        of: ObjectRef { kind: Kind::Pod, namespace, name: name.to_owned() },
        labels,
        annotations: annotations(application, &workload.origin),
        created,
        metadata: Value::Object(metadata),
        rest: json!({ "spec": on_node(pod_spec(workload, hash, image), application), "status": status }),
    }
}

/// Adds the node of a pod.
fn on_node(mut spec: Value, application: &Application) -> Value {
    if let Some(node) = &application.status.node {
        spec["nodeName"] = node.as_str().into();
    }
    spec
}

/// The owner: the ReplicaSet of its specification, or the workload.
fn base(workload: &WorkloadStatus, hash: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    let ObjectRef { kind, namespace: _, name } = &workload.spec.object;
    if *kind == Kind::Deployment {
        metadata.insert("ownerReferences".into(), owner(Kind::ReplicaSet, &format!("{name}-{hash}")));
    } else if *kind != Kind::Pod {
        metadata.insert("ownerReferences".into(), owner(*kind, name));
    }
    metadata
}

/// The conditions of a pod. `None`: it has no container yet.
fn conditions(instance: Option<&InstanceStatus>) -> Value {
    let word = |it: bool| if it { "True" } else { "False" };
    let ready = instance.is_some_and(|instance| instance.ready);
    let available = instance.is_some_and(|instance| instance.available);
    json!([
        { "type": "Ready", "status": word(ready) },
        { "type": "ContainersReady", "status": word(ready) },
        { "type": "Available", "status": word(available) },
    ])
}

/// Reasons after which the workload is not started again.
const FAILED: [&str; 3] = ["Failed", "BackoffLimitExceeded", "DeadlineExceeded"];

/// The exit code of a task of a Swarm that failed without one, for example because its image does not exist. The kubelet writes it
/// for a container that could not be started.
const NEVER_STARTED: i64 = 128;

/// The state of a container, from its published status.
enum Life {
    Creating,
    Running,
    Paused,
    /// Exited with code 0 and is not restarted.
    Completed,
    /// Exited and will be restarted.
    Ended,
    /// Exits again and again; the next start waits.
    BackOff,
    Leaving,
}

impl Life {
    fn of(it: &InstanceStatus) -> Self {
        match it.state.as_str() {
            "Created" => Self::Creating,
            "Running" => Self::Running,
            it if it.starts_with("Init:") => Self::Running,
            "Paused" => Self::Paused,
            "Completed" => Self::Completed,
            "CrashLoopBackOff" => Self::BackOff,
            // From the second exit on, as in Kubernetes.
            "Restarting" if it.restarts > 1 => Self::BackOff,
            "Removing" | "Dead" => Self::Leaving,
            _ => Self::Ended,
        }
    }

    /// Whether it is not started again.
    fn has_failed(&self, workload: &WorkloadStatus) -> bool {
        matches!(self, Self::Ended) && FAILED.contains(&workload.reason.as_str())
    }

    fn phase(&self, workload: &WorkloadStatus) -> &'static str {
        match self {
            Self::Ended if self.has_failed(workload) => "Failed",
            Self::Creating => "Pending",
            Self::Running | Self::Paused | Self::BackOff | Self::Leaving | Self::Ended => "Running",
            Self::Completed => "Succeeded",
        }
    }

    fn state(&self, it: &InstanceStatus) -> Value {
        match self {
            Self::Creating => json!({ "waiting": { "reason": "ContainerCreating" } }),
            Self::Running | Self::Leaving => {
                let since = it.started.or(it.since).or(it.created);
                json!({ "running": { "startedAt": since.map_or(Value::Null, moment) } })
            }
            Self::Paused => {
                json!({ "waiting": { "reason": "Paused", "message": "somebody paused the container" } })
            }
            Self::BackOff => json!({ "waiting": { "reason": "CrashLoopBackOff", "message": it.message } }),
            Self::Completed | Self::Ended => json!({ "terminated": terminated(it) }),
        }
    }

    fn last_state(&self, it: &InstanceStatus) -> Option<Value> {
        match self {
            Self::BackOff if it.exit.is_some() => Some(json!({ "terminated": terminated(it) })),
            Self::Creating
            | Self::Running
            | Self::Paused
            | Self::BackOff
            | Self::Completed
            | Self::Ended
            | Self::Leaving => None,
        }
    }
}

fn terminated(it: &InstanceStatus) -> Value {
    let (code, finished, out_of_memory) = match &it.exit {
        Some(exit) => (exit.code, Some(exit.finished), exit.out_of_memory),
        None if it.state == "Failed" => (NEVER_STARTED, it.since, false),
        None => (0, None, false),
    };
    let reason = match code {
        _ if out_of_memory => "OOMKilled",
        0 => "Completed",
        _ => "Error",
    };
    let time = |at: Option<Timestamp>| at.map_or(Value::Null, moment);
    json!({
        "exitCode": code, "reason": reason, "message": it.message,
        "startedAt": time(it.started), "finishedAt": time(finished),
    })
}
