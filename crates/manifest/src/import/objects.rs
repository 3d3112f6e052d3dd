//! Networks and volumes of an application. Those that its Compose project created belong to it; others are external.

use std::collections::BTreeMap;

use driftless_model::{MountSource, Network, NetworkMode, Stack, Volume};
use serde_json::{Map, Value, json};

use super::found::{FoundHost, FoundObject};

/// The key of the network that every Compose project has.
const DEFAULT: &str = "default";

/// Adds the networks and volumes that the containers of a stack use.
pub(super) fn add(stack: &mut Stack, host: &FoundHost, project: &str) {
    let containers: Vec<_> = stack.workloads.values().map(|workload| &workload.container).collect();
    let mut networks = BTreeMap::new();
    let mut fixed = Vec::new();
    for container in &containers {
        let NetworkMode::Networks(joined) = &container.network_mode else { continue };
        for (name, attachment) in joined {
            networks.insert(name.clone(), network(name, host.networks.get(name), project));
            if attachment.ipv4.is_some() || attachment.ipv6.is_some() {
                fixed.push(name.clone());
            }
        }
    }
    for (name, network) in &mut networks {
        // The engine reports the range that it chose itself with a gateway; only fixed addresses need it.
        let is_chosen =
            |range: &(Option<String>, Option<String>, Option<String>)| range.1.is_some() && range.2.is_none();
        if !fixed.contains(name) && network.ipam.iter().all(is_chosen) {
            network.ipam.clear();
        }
    }
    let mut volumes = BTreeMap::new();
    for mount in containers.iter().flat_map(|container| &container.mounts) {
        let MountSource::Volume { name, .. } = &mount.source else { continue };
        volumes.insert(name.clone(), volume(name, host.volumes.get(name), project));
    }
    (stack.networks, stack.volumes) = (unique(networks, |it| &mut it.key), unique(volumes, |it| &mut it.key));
}

fn network(name: &str, found: Option<&FoundObject<Network>>, project: &str) -> Network {
    match found {
        Some(found) if found.project.as_deref() == Some(project) && !found.object.key.is_empty() => {
            found.object.clone()
        }
        Some(_) | None => Network { key: key_of(name), external: true, ..Network::default() },
    }
}

fn volume(name: &str, found: Option<&FoundObject<Volume>>, project: &str) -> Volume {
    match found {
        Some(found) if found.project.as_deref() == Some(project) && !found.object.key.is_empty() => {
            found.object.clone()
        }
        Some(_) | None => Volume { key: key_of(name), external: true, ..Volume::default() },
    }
}

/// A key that Compose accepts. An external network is not the default one of the project.
fn key_of(name: &str) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' }
    };
    let key: String = name.chars().map(letter).collect();
    if key == DEFAULT { "default_".to_owned() } else { key }
}

/// Makes the keys of all objects different.
fn unique<T>(mut objects: BTreeMap<String, T>, key: impl Fn(&mut T) -> &mut String) -> BTreeMap<String, T> {
    let mut keys = Vec::<String>::new();
    for object in objects.values_mut() {
        let key = key(object);
        while keys.contains(key) {
            key.push('_');
        }
        keys.push(key.clone());
    }
    objects
}

/// Writes the sections `networks` and `volumes`.
pub(super) fn write(document: &mut Value, stack: &Stack, project: &str) {
    let Some(document) = document.as_object_mut() else { return };
    let (mut networks, mut volumes) = (Map::new(), Map::new());
    for (name, network) in &stack.networks {
        let Network {
            key,
            external,
            driver,
            options,
            internal,
            attachable,
            enable_ipv6,
            disable_ipv4,
            ipam,
            ipam_driver,
            ipam_options,
            aux_addresses,
            labels,
        } = network;
        let ranges: Vec<Value> = ipam
            .iter()
            .map(|(subnet, gateway, range)| {
                let addresses = subnet.as_ref().and_then(|subnet| aux_addresses.get(subnet));
                filled([
                    ("subnet", json!(subnet)),
                    ("gateway", json!(gateway)),
                    ("ip_range", json!(range)),
                    ("aux_addresses", json!(addresses.filter(|it| !it.is_empty()))),
                ])
            })
            .collect();
        let ipam = filled([
            ("driver", json!(ipam_driver)),
            ("config", Value::Array(ranges)),
            ("options", json!(escaped(ipam_options))),
        ]);
        let own = filled([
            ("name", name_unless(name, &format!("{project}_{key}"))),
            ("driver", json!(driver.as_ref().filter(|it| *it != "bridge"))),
            ("driver_opts", json!(escaped(options))),
            ("internal", json!(internal.then_some(true))),
            ("attachable", json!(attachable.then_some(true))),
            ("enable_ipv6", json!(enable_ipv6.filter(|is_on| *is_on))),
            ("enable_ipv4", json!(disable_ipv4.then_some(false))),
            ("ipam", ipam),
            ("labels", json!(escaped(labels))),
        ]);
        let section = if *external { json!({ "external": true, "name": name }) } else { own };
        if key != DEFAULT || section != json!({}) {
            networks.insert(key.clone(), section);
        }
    }
    for (name, volume) in &stack.volumes {
        let Volume { key, external, driver, options, labels } = volume;
        let own = filled([
            ("name", name_unless(name, &format!("{project}_{key}"))),
            ("driver", json!(driver.as_ref().filter(|it| *it != "local"))),
            ("driver_opts", json!(escaped(options))),
            ("labels", json!(escaped(labels))),
        ]);
        volumes.insert(key.clone(), if *external { json!({ "external": true, "name": name }) } else { own });
    }
    for (section, entries) in [("networks", networks), ("volumes", volumes)] {
        document.remove(section);
        if !entries.is_empty() {
            document.insert(section.to_owned(), Value::Object(entries));
        }
    }
}

/// The name, unless Compose gives the object this name anyway.
fn name_unless(name: &str, usual: &str) -> Value {
    if name == usual { Value::Null } else { json!(name) }
}

/// Texts in a Compose file, where a dollar begins a variable.
fn escaped(texts: &BTreeMap<String, String>) -> BTreeMap<&String, String> {
    texts.iter().map(|(key, text)| (key, text.replace('$', "$$"))).collect()
}

/// A map without nulls and without empty lists and maps.
fn filled(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let is_filled = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let entries = entries.into_iter().filter(|(_, value)| is_filled(value));
    Value::Object(entries.map(|(key, value)| (key.to_owned(), value)).collect())
}
