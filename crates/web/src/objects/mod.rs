//! Applications as Kubernetes objects, with `apiVersion`, `kind`, `metadata`, `spec` and `status`, for the
//! kubectl-compatible commands. This is the published status in another form.
//!
//! A Compose service is a Deployment in the namespace of its application, an instance is a Pod, and the instances of
//! one specification are a ReplicaSet. A Secret has its key names and no values.

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{error::Error, parameters::Parameters, shared::Shared};
use driftless_model::{
    Application, ConditionStatus, Facts, Kind, Mask, ObjectRef, ResourceStatus, Selector, StatusCondition,
    Strategy, Timestamp, Update, WorkloadName, WorkloadStatus, label,
};

mod endpoints;
mod jobs;
mod object;
mod pods;
mod wholes;

use object::{Object, annotations, moment, owner, pod_spec};
use pods::{of_specification, pods};

/// The query of `GET /api/v1/objects`. Each parameter narrows the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ObjectQuery {
    /// Kinds by any of their names, separated by commas; `all` is workloads, pods and Services.
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    /// The application.
    app: Option<String>,
    #[serde(rename = "labelSelector")]
    label_selector: Option<String>,
}

pub(super) async fn objects(
    State(shared): State<Shared>,
    Parameters(query): Parameters<ObjectQuery>,
) -> Result<Response, Error> {
    let kinds = kinds(query.kind.as_deref().unwrap_or("all"))?;
    let selector = Selector::parse(query.label_selector.as_deref().unwrap_or_default())
        .map_err(|error| Error::Malformed(error.to_string()))?;
    let applications = shared.handle.applications();
    let is_wanted = |it: &Application| query.app.as_ref().is_none_or(|app| it.name.as_str() == app);
    let wanted = applications.values().map(AsRef::as_ref).filter(|it| is_wanted(it));
    let mut items: Vec<Object> = wanted.flat_map(objects_of).collect();
    items.extend(namespaces(&items));
    items.retain(|object| {
        let Object { of: ObjectRef { kind, namespace, name }, labels, .. } = object;
        // A Namespace is in no namespace.
        let is_there = |wanted: &String| namespace == wanted || *kind == Kind::Namespace;
        kinds.contains(kind)
            && query.namespace.as_ref().is_none_or(is_there)
            && query.name.as_ref().is_none_or(|it| it == name)
            && selector.admits(labels)
    });
    items.sort_by(|a, b| (&a.of, &a.labels).cmp(&(&b.of, &b.labels)));
    let items: Vec<Value> = items.into_iter().map(Object::into_value).collect();
    Ok(Json(json!({ "apiVersion": "v1", "kind": "List", "items": items })).into_response())
}

fn kinds(text: &str) -> Result<BTreeSet<Kind>, Error> {
    let mut kinds = BTreeSet::new();
    for word in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        if word.eq_ignore_ascii_case("all") {
            kinds.extend(Kind::ALL.into_iter().filter(|it| it.is_of_all()));
            continue;
        }
        // The words of the API server, because scripts may match them.
        let unknown = || Error::Malformed(format!("the server doesn't have a resource type \"{word}\""));
        kinds.insert(Kind::parse(word).ok_or_else(unknown)?);
    }
    Ok(kinds)
}

fn objects_of(application: &Application) -> Vec<Object> {
    let mut all = Vec::new();
    // The template of a hook is no Job; its runs are.
    let is_template = |it: &WorkloadStatus| it.hook.is_some() && it.job.is_none();
    let wholes = wholes::of(&application.status.workloads);
    for (name, workload) in wholes.into_iter().filter(|(_, workload)| !is_template(workload)) {
        all.extend(workload_objects(
            application,
            name,
            &workload,
            partition(&application.status.workloads, name),
        ));
    }
    let resources = || application.status.resources.iter();
    all.extend(resources().map(|it| resource(application, it)));
    all.extend(resources().filter_map(|it| endpoints::endpoints(application, it)));
    all.extend(endpoints::of_compose(application));
    all
}

/// The partition of a StatefulSet: so many pods, those with the lowest ordinals, stay at their older version.
fn partition(workloads: &BTreeMap<WorkloadName, WorkloadStatus>, set: &WorkloadName) -> u32 {
    let of_set = |it: &&WorkloadStatus| it.spec.member.as_ref().is_some_and(|member| member.of == *set);
    let held = workloads.values().filter(of_set).filter(|it| it.spec.update == Update::Never);
    u32::try_from(held.count()).unwrap_or(u32::MAX)
}

/// The namespaces of all objects.
fn namespaces(items: &[Object]) -> Vec<Object> {
    let mut since: BTreeMap<&String, Option<Timestamp>> = BTreeMap::new();
    for it in items {
        let known = since.entry(&it.of.namespace).or_insert(it.created);
        *known = [*known, it.created].into_iter().flatten().min();
    }
    let object = |(name, created): (&String, Option<Timestamp>)| Object {
        of: ObjectRef { kind: Kind::Namespace, namespace: String::new(), name: name.clone() },
        labels: BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.clone())]),
        annotations: BTreeMap::new(),
        created,
        metadata: Value::Null,
        rest: json!({ "status": { "phase": "Active" } }),
    };
    since.into_iter().map(object).collect()
}

/// The workload itself, its ReplicaSets if it has any, and its Pods.
fn workload_objects(
    application: &Application,
    name: &WorkloadName,
    it: &WorkloadStatus,
    partition: u32,
) -> Vec<Object> {
    let own = selector(application, name);
    let mut labels = it.spec.labels.clone();
    labels.extend(own.clone());
    let kind = it.spec.object.kind;
    let mut all = pods(application, it, &labels);
    if kind == Kind::Deployment {
        all.extend(replica_sets(application, it, &labels));
    }
    // A Pod without an owner is its own instance, and a Service is listed with its ports, with a proxy or without.
    if kind != Kind::Pod && kind != Kind::Service {
        all.push(Object {
            of: it.spec.object.clone(),
            labels,
            annotations: workload_annotations(application, it),
            created: it.spec.created,
            metadata: json!({ "generation": application.generation }),
            rest: json!({ "spec": spec(it, &own, partition), "status": status(application, it) }),
        });
    }
    all
}

/// The labels that select exactly the instances of one workload.
fn selector(application: &Application, name: &WorkloadName) -> BTreeMap<String, String> {
    let pairs = [(label::APPLICATION, application.name.as_str()), (label::WORKLOAD, name.as_str())];
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Annotations with the hash of the current ReplicaSet.
fn workload_annotations(application: &Application, it: &WorkloadStatus) -> BTreeMap<String, String> {
    let mut all = annotations(application, &it.origin);
    all.insert(label::SPEC.to_owned(), it.spec.hash.clone());
    all
}

fn spec(it: &WorkloadStatus, own: &BTreeMap<String, String>, partition: u32) -> Value {
    let template = template(it);
    let selected = if it.spec.selector.is_empty() { own } else { &it.spec.selector };
    let selector = json!({ "matchLabels": selected });
    match it.spec.object.kind {
        Kind::Job => jobs::spec(it, &selector, &template),
        Kind::CronJob => jobs::cron_spec(it, &template),
        Kind::DaemonSet => json!({
            "minReadySeconds": it.spec.min_ready_seconds, "selector": selector, "template": template,
            "updateStrategy": daemon_strategy(it),
        }),
        Kind::StatefulSet => json!({
            "replicas": it.replicas, "minReadySeconds": it.spec.min_ready_seconds, "selector": selector,
            "template": template, "updateStrategy": set_strategy(it, partition), "podManagementPolicy": management(it),
        }),
        Kind::ReplicaSet => json!({ "replicas": it.replicas, "selector": selector, "template": template }),
        Kind::Deployment
        | Kind::Pod
        | Kind::Service
        | Kind::Endpoints
        | Kind::ConfigMap
        | Kind::Secret
        | Kind::PersistentVolumeClaim
        | Kind::Namespace => json!({
            "replicas": it.replicas,
            "minReadySeconds": it.spec.min_ready_seconds,
            "progressDeadlineSeconds": it.spec.progress_deadline_seconds,
            "paused": it.spec.paused,
            "selector": selector,
            "strategy": strategy(it),
            "template": template,
        }),
    }
}

fn strategy(it: &WorkloadStatus) -> Value {
    match it.spec.strategy {
        Some(Strategy::RollingUpdate { max_surge, max_unavailable }) => json!({
            "type": "RollingUpdate", "rollingUpdate": { "maxSurge": max_surge, "maxUnavailable": max_unavailable },
        }),
        Some(Strategy::Recreate) => json!({ "type": "Recreate" }),
        None => Value::Null,
    }
}

/// The update strategy of a DaemonSet.
fn daemon_strategy(it: &WorkloadStatus) -> Value {
    if it.spec.update == Update::OnDelete { json!({ "type": "OnDelete" }) } else { strategy(it) }
}

/// The update strategy of a StatefulSet.
fn set_strategy(it: &WorkloadStatus, partition: u32) -> Value {
    if it.spec.update == Update::OnDelete {
        return json!({ "type": "OnDelete" });
    }
    let most = it.spec.member.as_ref().map_or(1, |it| it.max_unavailable);
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": most, "partition": partition } })
}

fn management(it: &WorkloadStatus) -> &'static str {
    let is_parallel = it.spec.member.as_ref().is_some_and(|it| !it.ordered);
    if is_parallel { "Parallel" } else { "OrderedReady" }
}

fn template(it: &WorkloadStatus) -> Value {
    json!({ "metadata": { "labels": it.spec.labels }, "spec": pod_spec(it, &it.spec.hash, &it.image) })
}

/// The status with the fields of its kind.
fn status(application: &Application, it: &WorkloadStatus) -> Value {
    let observed = application.status.observed_generation;
    let current = it.updated_replicas.saturating_add(it.old_replicas);
    let conditions: Vec<Value> = it.conditions.iter().map(condition).collect();
    match it.spec.object.kind {
        Kind::Job => jobs::status(it),
        Kind::CronJob => jobs::cron_status(it),
        Kind::DaemonSet => json!({
            "observedGeneration": observed,
            "desiredNumberScheduled": it.replicas,
            "currentNumberScheduled": current.min(it.replicas),
            "updatedNumberScheduled": it.updated_replicas,
            "numberReady": it.ready_replicas,
            "numberAvailable": it.available_replicas,
            "numberUnavailable": it.replicas.saturating_sub(it.available_replicas),
            "numberMisscheduled": 0,
        }),
        Kind::StatefulSet => json!({
            "observedGeneration": observed,
            "replicas": current,
            "currentReplicas": it.old_replicas,
            "updatedReplicas": it.updated_replicas,
            "readyReplicas": it.ready_replicas,
            "availableReplicas": it.available_replicas,
            "updateRevision": revision(it),
            "currentRevision": current_revision(it),
        }),
        Kind::ReplicaSet => json!({
            "observedGeneration": observed,
            "replicas": current,
            "fullyLabeledReplicas": current,
            "readyReplicas": it.ready_replicas,
            "availableReplicas": it.available_replicas,
        }),
        Kind::Deployment
        | Kind::Pod
        | Kind::Service
        | Kind::Endpoints
        | Kind::ConfigMap
        | Kind::Secret
        | Kind::PersistentVolumeClaim
        | Kind::Namespace => json!({
            "observedGeneration": observed,
            "replicas": current,
            "updatedReplicas": it.updated_replicas,
            "readyReplicas": it.ready_replicas,
            "availableReplicas": it.available_replicas,
            "unavailableReplicas": it.replicas.max(current).saturating_sub(it.available_replicas),
            "conditions": conditions,
        }),
    }
}

fn condition(it: &StatusCondition) -> Value {
    let status = match it.status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    json!({
        "type": it.kind, "status": status, "reason": it.reason, "message": it.message,
        "lastTransitionTime": moment(it.last_transition_time),
    })
}

/// The hash of the desired specification, as it ends the name of a ReplicaSet or revision.
fn revision(it: &WorkloadStatus) -> String {
    format!("{}-{}", it.spec.object.name, it.spec.hash)
}

fn current_revision(it: &WorkloadStatus) -> String {
    let old = it.instances.iter().find(|it| !it.updated).map(|it| &it.spec);
    format!("{}-{}", it.spec.object.name, old.unwrap_or(&it.spec.hash))
}

/// A ReplicaSet for each specification that has instances, and for the desired one.
fn replica_sets(
    application: &Application,
    it: &WorkloadStatus,
    labels: &BTreeMap<String, String>,
) -> Vec<Object> {
    let specs = it.instances.iter().map(|it| it.spec.as_str());
    let specs: BTreeSet<&str> = specs.chain([it.spec.hash.as_str()]).filter(|it| !it.is_empty()).collect();
    let ObjectRef { kind: _, namespace, name } = &it.spec.object;
    let one = |hash: &str| {
        let mine = || it.instances.iter().filter(|it| it.spec == hash);
        let current = mine().count();
        let wanted = if hash == it.spec.hash { it.replicas as usize } else { current };
        let image = mine().map(|it| it.image.as_str()).find(|it| !it.is_empty()).unwrap_or(&it.image);
        let mut labels = of_specification(it, hash, labels);
        labels.insert("pod-template-hash".to_owned(), hash.to_owned());
        let oldest = mine().filter_map(|it| it.created).min();
        Object {
            of: ObjectRef {
                kind: Kind::ReplicaSet,
                namespace: namespace.clone(),
                name: format!("{name}-{hash}"),
            },
            annotations: annotations(application, &it.origin),
            created: oldest.or(it.spec.created),
            metadata: json!({ "ownerReferences": owner(Kind::Deployment, name) }),
            rest: json!({
                "spec": {
                    "replicas": wanted, "selector": { "matchLabels": labels },
                    "template": { "metadata": { "labels": labels }, "spec": pod_spec(it, hash, image) },
                },
                "status": {
                    "replicas": current, "fullyLabeledReplicas": current,
                    "readyReplicas": mine().filter(|it| it.ready).count(),
                    "availableReplicas": mine().filter(|it| it.available).count(),
                },
            }),
            labels,
        }
    };
    specs.into_iter().map(one).collect()
}

fn resource(application: &Application, it: &ResourceStatus) -> Object {
    let rest = match &it.resource.facts {
        Facts::Service { r#type, headless, selector, ports, external_addresses } => {
            let address = if *headless { json!("None") } else { json!("") };
            let ports: Vec<Value> = ports.iter().map(service_port).collect();
            let mut spec =
                json!({ "type": r#type, "clusterIP": address, "selector": selector, "ports": ports });
            if !external_addresses.is_empty() {
                spec["externalIPs"] = json!(external_addresses);
            }
            json!({ "spec": spec, "status": {} })
        }
        // Only the key names are listed; the content is in Git.
        Facts::ConfigMap { keys } => {
            json!({ "data": keys.keys().map(|it| hidden(it)).collect::<Map<_, _>>() })
        }
        Facts::Secret { r#type, keys } => {
            json!({ "type": r#type, "data": keys.iter().map(|it| hidden(it)).collect::<Map<_, _>>() })
        }
        Facts::Claim { volume, access_modes } => json!({
            "spec": { "accessModes": access_modes, "volumeName": volume },
            "status": { "phase": "Bound", "accessModes": access_modes },
        }),
    };
    Object {
        of: it.resource.object.clone(),
        labels: BTreeMap::from([(label::APPLICATION.to_owned(), application.name.to_string())]),
        annotations: BTreeMap::from([("driftless.origin".to_owned(), it.resource.origin.to_string())]),
        created: it.created,
        metadata: Value::Null,
        rest,
    }
}

/// A key without its value.
fn hidden(key: &str) -> (String, Value) {
    (key.to_owned(), Mask::HIDDEN.into())
}

fn service_port(it: &driftless_model::ServicePort) -> Value {
    let target: Value =
        it.target_port.parse::<u16>().map_or_else(|_| it.target_port.clone().into(), Into::into);
    let mut port = json!({ "port": it.port, "protocol": it.protocol, "targetPort": target });
    if let Some(name) = &it.name {
        port["name"] = name.as_str().into();
    }
    if let Some(node_port) = it.node_port {
        port["nodePort"] = node_port.into();
    }
    port
}
