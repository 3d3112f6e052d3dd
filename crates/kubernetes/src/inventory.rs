//! The objects of an application other than workloads, for `driftless get`: names, ports and keys, no values.
//!
//! It reports no findings; the readers of each kind do.

use std::collections::BTreeMap;

use super::{
    catalogue::{Catalogue, DataKind},
    kinds::Owned,
    object::{DEFAULT_NAMESPACE, Key},
    reader::Value,
    service::Service,
    workload::ReadWorkload,
};
use driftless_model::{Facts, Inventory, Kind, ObjectRef, Resource, ServicePort};
use driftless_yaml::Node;

/// All objects of an application, by name.
pub(super) fn take(
    app: &str,
    workloads: &[ReadWorkload],
    objects: &[(Owned, Value<'_>)],
    catalogue: &Catalogue,
    services: &[Service<'_>],
) -> Inventory {
    let named = |it: &ReadWorkload| {
        let Key { namespace, name } = it.object.clone();
        let kind = Kind::parse(it.kind).unwrap_or_default();
        (it.name.clone(), ObjectRef { kind, namespace, name })
    };
    let mut resources: Vec<Resource> =
        objects.iter().filter_map(|(kind, value)| resource(app, *kind, value.node, catalogue)).collect();
    for resource in &mut resources {
        let is_of = |it: &&Service<'_>| resource.origin == it.origin;
        if let Facts::Service { ports, .. } = &mut resource.facts
            && let Some(service) = services.iter().find(is_of)
        {
            for (shown, read) in ports.iter_mut().zip(&service.ports) {
                shown.node_port = read.node.number();
            }
        }
    }
    resources.sort_by(|a, b| a.object.cmp(&b.object));
    Inventory { workloads: workloads.iter().map(named).collect(), resources }
}

fn resource(app: &str, kind: Owned, node: &Node, catalogue: &Catalogue) -> Option<Resource> {
    let metadata = node.get("metadata")?;
    let name = metadata.get("name")?;
    let key = Key::new(filled(metadata, "namespace").unwrap_or(DEFAULT_NAMESPACE), name.as_scalar()?);
    let (kind, facts) = match kind {
        Owned::Service => (Kind::Service, service(node.get("spec")?)),
        Owned::ConfigMap => {
            let data = catalogue.data(DataKind::ConfigMap, &key)?;
            let keys = data.entries.iter().map(|(key, value)| (key.clone(), value.len() as u64)).collect();
            (Kind::ConfigMap, Facts::ConfigMap { keys })
        }
        Owned::Secret => {
            let data = catalogue.data(DataKind::Secret, &key)?;
            let r#type = text(node, "type").unwrap_or("Opaque").to_owned();
            (Kind::Secret, Facts::Secret { r#type, keys: data.entries.keys().cloned().collect() })
        }
        Owned::PersistentVolumeClaim => {
            let spec = node.get("spec")?;
            let bound = filled(spec, "volumeName").map(str::to_owned);
            let volume = bound.unwrap_or_else(|| format!("{app}_{}", key.dotted()));
            (Kind::PersistentVolumeClaim, Facts::Claim { volume, access_modes: texts(spec, "accessModes") })
        }
        Owned::CronJob
        | Owned::DaemonSet
        | Owned::Deployment
        | Owned::Job
        | Owned::PersistentVolume
        | Owned::Pod
        | Owned::ReplicaSet
        | Owned::ReplicationController
        | Owned::StatefulSet => return None,
    };
    let Key { namespace, name: text } = key;
    Some(Resource { object: ObjectRef { kind, namespace, name: text }, origin: name.place.location(), facts })
}

/// The texts of a list.
fn texts(node: &Node, key: &str) -> Vec<String> {
    let items = node.get(key).map(Node::items).unwrap_or_default();
    items.iter().filter_map(Node::as_scalar).map(str::to_owned).collect()
}

fn service(spec: &Node) -> Facts {
    let selector = spec.get("selector").map(Node::entries).unwrap_or_default();
    let pairs = selector.iter().filter_map(|it| Some((it.key.clone(), it.value.as_scalar()?.to_owned())));
    let port = |it: &Node| {
        let port = number(it, "port")?;
        let target = filled(it, "targetPort").filter(|it| *it != "0");
        Some(ServicePort {
            name: filled(it, "name").map(str::to_owned),
            port,
            target_port: target.map_or_else(|| port.to_string(), str::to_owned),
            protocol: filled(it, "protocol").unwrap_or("TCP").to_owned(),
            node_port: number(it, "nodePort").filter(|it| *it != 0),
        })
    };
    let ports = spec.get("ports").map(Node::items).unwrap_or_default();
    Facts::Service {
        r#type: filled(spec, "type").unwrap_or("ClusterIP").to_owned(),
        headless: text(spec, "clusterIP") == Some("None"),
        selector: pairs.collect::<BTreeMap<_, _>>(),
        ports: ports.iter().filter_map(port).collect(),
        external_addresses: texts(spec, "externalIPs"),
    }
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key)?.as_scalar()
}

/// The text under a key, unless it is empty: an empty one stands for the default.
fn filled<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    text(node, key).filter(|text| !text.is_empty())
}

fn number(node: &Node, key: &str) -> Option<u16> {
    u16::try_from(node.get(key)?.as_i64()?).ok()
}
