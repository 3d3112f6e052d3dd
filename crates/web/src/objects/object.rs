//! An object under construction, and the fields that objects of several kinds share.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use driftless_model::{Application, Kind, ObjectRef, PartSpec, Protocol, Role, Timestamp, WorkloadStatus};

/// An object under construction.
pub(super) struct Object {
    pub(super) of: ObjectRef,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) created: Option<Timestamp>,
    /// Further fields of `metadata`.
    pub(super) metadata: Value,
    /// The fields next to `metadata`.
    pub(super) rest: Value,
}

impl Object {
    pub(super) fn into_value(self) -> Value {
        let Self { of: ObjectRef { kind, namespace, name }, labels, annotations, created, metadata, rest } =
            self;
        let mut all = Map::new();
        all.insert("apiVersion".into(), kind.api_version().into());
        all.insert("kind".into(), kind.as_str().into());
        let mut about = Map::new();
        about.insert("name".into(), name.into());
        if kind != Kind::Namespace {
            about.insert("namespace".into(), namespace.into());
        }
        for (key, map) in [("labels", labels), ("annotations", annotations)] {
            if !map.is_empty() {
                about.insert(key.into(), json!(map));
            }
        }
        if let Some(created) = created {
            about.insert("creationTimestamp".into(), moment(created));
        }
        about.extend(metadata.as_object().cloned().unwrap_or_default());
        all.insert("metadata".into(), Value::Object(about));
        all.extend(rest.as_object().cloned().unwrap_or_default());
        Value::Object(all)
    }
}

/// A time as Kubernetes writes it, without fractions of a second.
pub(super) fn moment(at: Timestamp) -> Value {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(whole, _)| format!("{whole}Z")).into()
}

pub(super) fn annotations(application: &Application, origin: &str) -> BTreeMap<String, String> {
    let revision = application.status.revision.map(|it| it.to_string());
    let commit = application.status.commit.as_ref().map(|it| it.id.clone());
    let all = [
        ("deployment.kubernetes.io/revision", revision),
        ("driftless.commit", commit.map(|id| id.to_string())),
        ("driftless.origin", Some(origin.to_owned()).filter(|it| !it.is_empty())),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// The labels of the pods of a specification, by the beginning of its hash. Those of an older one that is not kept are taken to be
/// the present ones.
pub(super) fn pod_labels<'a>(it: &'a WorkloadStatus, hash: &str) -> &'a BTreeMap<String, String> {
    it.spec.former.get(hash).map_or(&it.spec.labels, |former| &former.labels)
}

/// The pod of a specification as it was published, or what is known without it. `hash` is the beginning of its hash, `image` the
/// image of a pod with one container.
pub(super) fn pod_spec(it: &WorkloadStatus, hash: &str, image: &str) -> Value {
    let published = match it.spec.former.get(hash) {
        Some(former) => &*former.pod,
        None if hash == it.spec.hash || hash.is_empty() => &*it.spec.pod,
        None => "",
    };
    if let Ok(mut spec @ Value::Object(_)) = serde_json::from_str::<Value>(published) {
        if it.spec.containers.is_empty()
            && let Some(first) = spec.pointer_mut("/containers/0")
        {
            first["image"] = image.into();
        }
        return spec;
    }
    let port = |(port, protocol): &(u16, Protocol)| json!({ "containerPort": port, "protocol": protocol.as_str().to_uppercase() });
    let ports: Vec<Value> = it.spec.ports.iter().map(port).collect();
    if it.spec.containers.is_empty() {
        return json!({ "containers": [{ "name": container_name(it), "image": image, "ports": ports }] });
    }
    let one = |it: &PartSpec| match it.role {
        Role::Sidecar => json!({ "name": it.name, "image": it.image, "restartPolicy": "Always" }),
        Role::Init | Role::App => json!({ "name": it.name, "image": it.image }),
    };
    let (apps, initial): (Vec<_>, Vec<_>) = it.spec.containers.iter().partition(|it| it.role == Role::App);
    let mut apps: Vec<Value> = apps.into_iter().map(one).collect();
    // Ports belong to the pod, not to the container that listens.
    if let Some(first) = apps.first_mut() {
        first["ports"] = ports.into();
    }
    let mut spec = json!({ "containers": apps });
    if !initial.is_empty() {
        spec["initContainers"] = initial.into_iter().map(one).collect();
    }
    spec
}

/// The name of a pod's only container.
pub(super) fn container_name(it: &WorkloadStatus) -> &str {
    it.spec.container.as_deref().unwrap_or(&it.spec.object.name)
}

pub(super) fn owner(kind: Kind, name: &str) -> Value {
    json!([{ "apiVersion": kind.api_version(), "kind": kind.as_str(), "name": name, "controller": true }])
}
