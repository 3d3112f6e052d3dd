//! The endpoints of a Service: the addresses of the pods that its selector finds, ready ones apart from the others.

use std::collections::BTreeMap;

use driftless_model::{
    Application, Facts, Format, InstanceStatus, Kind, ObjectRef, ResourceStatus, ServicePort, WorkloadName,
    WorkloadStatus, label,
};
use serde_json::{Value, json};

use super::object::{Object, pod_labels, pod_spec};

/// The Endpoints of a Service, one subset for each workload. `None` for another object, and for a Service without a
/// selector.
pub(super) fn endpoints(application: &Application, service: &ResourceStatus) -> Option<Object> {
    let Facts::Service { selector, ports, .. } = &service.resource.facts else { return None };
    if selector.is_empty() {
        return None;
    }
    let ObjectRef { kind: _, namespace, name } = &service.resource.object;
    let is_near = |found: &WorkloadStatus| {
        found.spec.object.namespace == *namespace && found.spec.object.kind != Kind::Service
    };
    let workloads = application.status.workloads.iter().filter(|(_, found)| is_near(found));
    let subsets: Vec<Value> = workloads
        .filter_map(|(workload, found)| subset(namespace, workload, found, (selector, ports)))
        .collect();
    Some(Object {
        of: ObjectRef { kind: Kind::Endpoints, namespace: namespace.clone(), name: name.clone() },
        labels: BTreeMap::from([(label::APPLICATION.to_owned(), application.name.to_string())]),
        annotations: BTreeMap::new(),
        created: service.created,
        metadata: Value::Null,
        rest: json!({ "subsets": subsets }),
    })
}

/// The Endpoints of the Compose services whose published ports a proxy serves, by the name of the service.
pub(super) fn of_compose(application: &Application) -> Vec<Object> {
    if application.spec.format != Some(Format::Compose) {
        return Vec::new();
    }
    let workloads = application.status.workloads.iter();
    workloads.filter_map(|(name, found)| of_service(application, name, found)).collect()
}

fn of_service(application: &Application, name: &WorkloadName, found: &WorkloadStatus) -> Option<Object> {
    let with_address = found.instances.iter().filter(|instance| instance.ip.is_some());
    let served: Vec<_> =
        with_address.filter_map(|instance| Some((instance, instance.traffic.as_ref()?))).collect();
    let ports: Vec<Value> = served
        .first()?
        .1
        .ports
        .iter()
        .filter_map(|port| {
            let (number, protocol) = port.split_once('/')?;
            Some(json!({ "port": number.parse::<u16>().ok()?, "protocol": protocol.to_uppercase() }))
        })
        .collect();
    let mut subset = json!({ "ports": ports });
    let namespace = &found.spec.object.namespace;
    for (key, receives) in [("addresses", true), ("notReadyAddresses", false)] {
        let chosen = served.iter().filter(|(_, traffic)| traffic.receives == receives);
        let addresses: Vec<Value> = chosen
            .map(|(instance, traffic)| {
                json!({
                    "ip": instance.ip,
                    "targetRef": { "kind": "Pod", "namespace": namespace, "name": instance.name },
                    "driftless": { "workload": name.as_str(), "message": traffic.reason },
                })
            })
            .collect();
        if !addresses.is_empty() {
            subset[key] = addresses.into();
        }
    }
    Some(Object {
        of: ObjectRef { kind: Kind::Endpoints, namespace: namespace.clone(), name: name.to_string() },
        labels: BTreeMap::from([(label::APPLICATION.to_owned(), application.name.to_string())]),
        annotations: BTreeMap::new(),
        created: found.spec.created,
        metadata: Value::Null,
        rest: json!({ "subsets": [subset] }),
    })
}

/// The pods of one workload. `None` if none of them has an address.
fn subset(
    namespace: &str,
    workload: &WorkloadName,
    found: &WorkloadStatus,
    (selector, ports): (&BTreeMap<String, String>, &[ServicePort]),
) -> Option<Value> {
    // Pods of an older specification may have other labels.
    let is_selected = |instance: &&InstanceStatus| {
        let labels = pod_labels(found, &instance.spec);
        selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let with_address = found.instances.iter().filter(|instance| instance.ip.is_some());
    let selected = with_address.filter(is_selected);
    let (ready, others): (Vec<_>, Vec<_>) = selected.partition(|instance| instance.ready);
    if ready.is_empty() && others.is_empty() {
        return None;
    }
    let template = pod_spec(found, &found.spec.hash, &found.image);
    let ports: Vec<Value> = ports.iter().map(|port| endpoint_port(port, &template)).collect();
    let address = |instance: &&InstanceStatus| {
        let pod = instance.pod.as_ref().unwrap_or(&instance.name);
        json!({
            "ip": instance.ip,
            "targetRef": { "kind": "Pod", "namespace": namespace, "name": pod },
            // Not a field of Kubernetes: the reason for which it takes no traffic.
            "driftless": { "workload": workload.as_str(), "message": instance.message },
        })
    };
    let mut subset = json!({ "ports": ports });
    for (key, instances) in [("addresses", ready), ("notReadyAddresses", others)] {
        if !instances.is_empty() {
            subset[key] = instances.iter().map(address).collect();
        }
    }
    Some(subset)
}

/// The port of the pod. A name that several ports may have stays a name: names of container ports are not kept.
fn endpoint_port(port: &ServicePort, template: &Value) -> Value {
    let number = port.target_port.parse::<u16>().ok().map(Value::from).or_else(|| {
        let containers = template["containers"].as_array().into_iter().flatten();
        let all = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
        let mut of_protocol = all.filter(|found| found["protocol"] == *port.protocol);
        let only = of_protocol.next()?["containerPort"].clone();
        Some(only).filter(|_| of_protocol.next().is_none())
    });
    let number = number.unwrap_or_else(|| port.target_port.as_str().into());
    let mut found = json!({ "port": number, "protocol": port.protocol });
    if let Some(name) = &port.name {
        found["name"] = name.as_str().into();
    }
    found
}
