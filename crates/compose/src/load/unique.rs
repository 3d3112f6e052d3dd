//! Removes duplicates from lists, where the later item replaces the earlier one: a variable with another value, a second
//! mount on one path, a port that is published again.

use driftless_yaml::{Entry, Kind, Node};

use crate::spec::{
    print, short,
    tree::{self, as_text},
};

/// Removes duplicates from all lists of services and networks that have an identity.
pub(crate) fn remove_duplicates(root: &mut Node) {
    for (_, network) in tree::children_mut(root, "networks") {
        list(network, "labels", name);
    }
    for (_, service) in tree::children_mut(root, "services") {
        for Entry { key, key_place: _, value } in tree::entries_mut(service) {
            match key.as_str() {
                "annotations" | "cap_add" | "cap_drop" | "dns" | "dns_opt" | "dns_search" | "environment"
                | "labels" | "links" | "profiles" | "sysctls" | "tmpfs" => items(value, name),
                "devices" => items(value, device),
                "configs" => items(value, |it| file_mount(it, "")),
                "secrets" => items(value, |it| file_mount(it, "/run/secrets")),
                "env_file" => items(value, |it| it.get("path").map_or_else(|| scalar(it), scalar)),
                "expose" => items(value, scalar),
                "ports" => items(value, port),
                "volumes" => items(value, volume),
                "build" => {
                    for key in ["args", "additional_contexts", "tags", "labels"] {
                        list(value, key, name);
                    }
                }
                "deploy" => list(value, "labels", name),
                "networks" => {
                    for network in tree::entries_mut(value) {
                        list(&mut network.value, "aliases", name);
                        list(&mut network.value, "link_local_ips", name);
                    }
                }
                _ => {}
            }
        }
    }
}

fn list(parent: &mut Node, key: &str, identity: fn(&Node) -> Option<String>) {
    if let Some(list) = tree::get_mut(parent, key) {
        items(list, identity);
    }
}

/// Keeps the later of two items with the same identity, at the position of the earlier one. An item without an identity
/// stays.
fn items(list: &mut Node, identity: fn(&Node) -> Option<String>) {
    let Kind::Sequence(items) = &mut list.kind else { return };
    if items.len() < 2 {
        return;
    }
    let mut seen: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    let mut kept: Vec<Node> = Vec::with_capacity(items.len());
    for item in std::mem::take(items) {
        let at = identity(&item).map(|it| *seen.entry(it).or_insert(kept.len()));
        match at.and_then(|at| kept.get_mut(at)) {
            Some(slot) => *slot = item,
            None => kept.push(item),
        }
    }
    *items = kept;
}

fn name(item: &Node) -> Option<String> {
    let text = as_text(item)?;
    Some(text.split_once('=').map_or(text, |(name, _)| name).to_owned())
}

fn scalar(item: &Node) -> Option<String> {
    item.as_scalar().map(str::to_owned)
}

fn device(item: &Node) -> Option<String> {
    if let Some(target) = item.get("target") {
        return scalar(target);
    }
    let mut parts = as_text(item)?.split(':');
    let source = parts.next()?;
    Some(parts.next().unwrap_or(source).to_owned())
}

fn file_mount(item: &Node, folder: &str) -> Option<String> {
    if let Some(target) = item.get("target") {
        return scalar(target);
    }
    let source = item.get("source").unwrap_or(item);
    scalar(source).map(|it| format!("{folder}/{it}"))
}

fn volume(item: &Node) -> Option<String> {
    match item.get("target") {
        Some(target) => scalar(target),
        None => short::volume(as_text(item)?).ok().map(|it| it.target),
    }
}

/// In the reference parser a published number and a published string differ.
fn port(item: &Node) -> Option<String> {
    let Kind::Mapping(_) = &item.kind else { return scalar(item) };
    let part = |key: &str, default: &str| {
        item.get(key).map_or_else(|| default.to_owned(), |it| print::raw(it).to_string())
    };
    let host = part("host_ip", "\"0.0.0.0\"");
    Some(format!("{host}:{}:{}/{}", part("published", ""), part("target", ""), part("protocol", "\"tcp\"")))
}
