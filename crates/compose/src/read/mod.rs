//! Typed readers: from the checked tree of a project to the structs in [`types`], one file for each part.

use std::collections::BTreeMap;

use driftless_model::Finding;
use driftless_yaml::{Entry, edit};

pub(crate) mod build;
pub(crate) mod capabilities;
pub(crate) mod common;
pub(crate) mod deploy;
pub(crate) mod extension;
pub(crate) mod fields;
pub(crate) mod host;
pub(crate) mod image_name;
pub(crate) mod ipam;
pub(crate) mod mounts;
pub(crate) mod on_change;
pub(crate) mod ports;
pub(crate) mod resources;
pub(crate) mod service;
pub(crate) mod types;

use crate::{
    read::{
        ports::check_exposed,
        resources::{config, network, secret, volume},
        service::service,
        types::Sections,
    },
    spec::{keys::PROJECT, strict::is_name, value::Value},
};

/// Reads a whole project. Its name was read before, because variables depend on it.
pub(crate) fn project(root: &Value<'_>) -> Sections {
    let services = root.node.get("services");
    if services.is_none_or(|services| check_exposed(&root.key("services", services))) {
        return sections(root);
    }
    // Ranges are not expanded into more ports than there are.
    let mut bounded = root.node.clone();
    for (_, service) in edit::children_mut(&mut bounded, "services") {
        edit::remove(service, "expose");
    }
    sections(&Value::new(&bounded, &*root.path, root.report()))
}

fn sections(root: &Value<'_>) -> Sections {
    let mut project = Sections::default();
    for (key, value) in root.fields(&PROJECT) {
        match key {
            "name" => {}
            "services" => project.services = each(&value, service),
            "networks" => project.networks = each(&value, network),
            "volumes" => project.volumes = each(&value, volume),
            "configs" => project.configs = each(&value, config),
            "secrets" => project.secrets = each(&value, secret),
            _ => value.refuse("is not supported yet"),
        }
    }
    // Refused keys of a service stayed with it; the others count.
    let report = root.report();
    report.say_all(report.take_refused());
    project
}

fn each<T>(value: &Value<'_>, read: fn(&Entry, &Value<'_>) -> T) -> BTreeMap<String, T> {
    let mut all = BTreeMap::new();
    for entry in value.mapping() {
        let inner = value.key(&entry.key, &entry.value);
        if !is_name(&entry.key) {
            let message = format!("`{}` is not a name; use letters, digits, `.`, `_` and `-`", entry.key);
            value.report().say(Finding::error(entry.key_place.location(), &*inner.path, message));
        }
        all.insert(entry.key.clone(), read(entry, &inner));
    }
    all
}
