//! The top level of a Compose file: services, networks, volumes, configs and secrets.

use std::collections::BTreeMap;

use super::{
    fields::{labels, options},
    reader::{Path, Placed, Reader},
    schema::{FileSource, Named, Project, Source},
    service::service,
};
use driftless_model::{Network, Volume};
use driftless_yaml::{Entry, Node};

/// Reads a whole document. `name` is read before, since variables depend on it.
pub(super) fn project(reader: &mut Reader, root: &Node) -> Project {
    let mut project = Project::default();
    let path = Path::Root;
    for entry in reader.mapping(root, &path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "name" => {}
            "services" => {
                for entry in named(reader, node, at) {
                    let service = service(reader, entry, &at.key(&entry.key));
                    project.services.insert(entry.key.clone(), service);
                }
            }
            "networks" => project.networks = each(reader, node, at, network),
            "volumes" => project.volumes = each(reader, node, at, volume),
            "configs" => project.configs = each(reader, node, at, config),
            "secrets" => project.secrets = each(reader, node, at, secret),
            _ => reader.other(entry, &path, ""),
        }
    }
    // What was refused inside of a service stayed with it.
    let refused = std::mem::take(&mut reader.unsupported);
    reader.findings.extend(refused);
    project
}

/// The entries of a map whose keys are names.
fn named<'n>(reader: &mut Reader, node: &'n Node, path: &Path<'_>) -> &'n [Entry] {
    let entries = reader.mapping(node, path);
    for entry in entries {
        let is_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
        if entry.key.is_empty() || !entry.key.chars().all(is_name) {
            let message = format!("`{}` is not a name; use letters, digits, `.`, `_` and `-`", entry.key);
            reader.error(&entry.key_place, &path.key(&entry.key), message);
        }
    }
    entries
}

fn each<T>(
    reader: &mut Reader,
    node: &Node,
    path: &Path<'_>,
    read: fn(&mut Reader, &Entry, &Path<'_>) -> T,
) -> BTreeMap<String, T> {
    let entries = named(reader, node, path).iter();
    entries.map(|entry| (entry.key.clone(), read(reader, entry, &path.key(&entry.key)))).collect()
}

fn network(reader: &mut Reader, entry: &Entry, path: &Path<'_>) -> Named<Network> {
    let mut network = Named { name: None, spec: Network { key: entry.key.clone(), ..Network::default() } };
    let mut others = false;
    for entry in reader.optional_mapping(&entry.value, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        let spec = &mut network.spec;
        match entry.key.as_str() {
            "name" => network.name = reader.string(node, at),
            "external" => spec.external = external(reader, &mut network.name, node, at),
            "driver" => spec.driver = reader.string(node, at).filter(|it| !it.is_empty()),
            "driver_opts" => spec.options = options(reader, node, at),
            "ipam" => ipam(reader, spec, node, at),
            "internal" => spec.internal = reader.boolean(node, at).unwrap_or_default(),
            "attachable" => spec.attachable = reader.boolean(node, at).unwrap_or_default(),
            "enable_ipv6" => spec.enable_ipv6 = reader.boolean(node, at).unwrap_or_default(),
            "enable_ipv4" => spec.disable_ipv4 = reader.boolean(node, at) == Some(false),
            "labels" => spec.labels = labels(reader, node, at),
            _ => reader.other(entry, path, "networks"),
        }
        others |= !matches!(entry.key.as_str(), "name" | "external") && !entry.key.starts_with("x-");
    }
    only_external(reader, entry, path, network.spec.external && others);
    network
}

fn ipam(reader: &mut Reader, network: &mut Network, node: &Node, path: &Path<'_>) {
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "driver" => {
                let driver = reader.string(node, at);
                network.ipam_driver = driver.filter(|it| !matches!(it.as_str(), "" | "default"));
            }
            "options" => network.ipam_options = options(reader, node, at),
            "config" => {
                for (index, item) in reader.sequence(node, at).iter().enumerate() {
                    let at = at.index(index);
                    let (mut pool, mut kept) = ((None, None, None), BTreeMap::new());
                    for entry in reader.mapping(item, &at) {
                        let (inner, node) = (at.key(&entry.key), &entry.value);
                        match entry.key.as_str() {
                            "subnet" => pool.0 = reader.string(node, &inner),
                            "gateway" => pool.1 = reader.string(node, &inner),
                            "ip_range" => pool.2 = reader.string(node, &inner),
                            "aux_addresses" => kept = options(reader, node, &inner),
                            _ => reader.other(entry, &at, "networks.ipam.config"),
                        }
                    }
                    match &pool.0 {
                        Some(subnet) if !kept.is_empty() => {
                            network.aux_addresses.insert(subnet.clone(), kept);
                        }
                        None if !kept.is_empty() => {
                            reader.error(&item.place, &at, "`aux_addresses` need the `subnet` they are in");
                        }
                        Some(_) | None => {}
                    }
                    network.ipam.push(pool);
                }
            }
            _ => reader.other(entry, path, "networks.ipam"),
        }
    }
}

fn volume(reader: &mut Reader, entry: &Entry, path: &Path<'_>) -> Named<Volume> {
    let mut volume = Named { name: None, spec: Volume { key: entry.key.clone(), ..Volume::default() } };
    let mut others = false;
    for entry in reader.optional_mapping(&entry.value, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        let spec = &mut volume.spec;
        match entry.key.as_str() {
            "name" => volume.name = reader.string(node, at),
            "external" => spec.external = external(reader, &mut volume.name, node, at),
            "driver" => spec.driver = reader.string(node, at).filter(|it| !it.is_empty()),
            "driver_opts" => spec.options = options(reader, node, at),
            "labels" => spec.labels = labels(reader, node, at),
            _ => reader.other(entry, path, "volumes"),
        }
        others |= !matches!(entry.key.as_str(), "name" | "external") && !entry.key.starts_with("x-");
    }
    only_external(reader, entry, path, volume.spec.external && others);
    volume
}

fn config(reader: &mut Reader, entry: &Entry, path: &Path<'_>) -> FileSource {
    file_source(reader, entry, path, "a config needs one of `file`, `content` and `environment`")
}

fn secret(reader: &mut Reader, entry: &Entry, path: &Path<'_>) -> FileSource {
    file_source(reader, entry, path, "a secret needs one of `file` and `environment`")
}

/// Configs and secrets differ only in where they are mounted. (`content` of a secret is Compose's own addition.)
fn file_source(reader: &mut Reader, entry: &Entry, path: &Path<'_>, needs: &str) -> FileSource {
    let mut sources = Vec::new();
    for entry in reader.mapping(&entry.value, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "file" => sources.extend(reader.string(node, at).map(Source::File)),
            "content" => sources.extend(reader.string(node, at).map(Source::Content)),
            "environment" => sources.extend(reader.string(node, at).map(Source::Environment)),
            "external" => {
                if external(reader, &mut None, node, at) {
                    sources = vec![Source::External];
                }
            }
            "name" => drop(reader.string(node, at)),
            _ => reader.other(entry, path, "configs"),
        }
    }
    let origin = Placed { value: (), place: entry.key_place.clone(), path: path.to_string() };
    if sources.len() != 1 {
        reader.findings.push(origin.error(needs));
        sources.clear();
    }
    let source = sources.pop().unwrap_or(Source::Missing);
    FileSource { origin, source }
}

/// `true`, or the old `{name: …}`.
fn external(reader: &mut Reader, name: &mut Option<String>, node: &Node, path: &Path<'_>) -> bool {
    if node.entries().is_empty() {
        return reader.boolean(node, path).unwrap_or_default();
    }
    for entry in node.entries() {
        match entry.key.as_str() {
            "name" => *name = reader.string(&entry.value, &path.key("name")),
            _ => reader.unknown(entry, path, "name"),
        }
    }
    reader.warning(
        &node.place,
        path,
        "the form `external: {name: …}` is obsolete; write `external: true` and `name`",
    );
    true
}

fn only_external(reader: &mut Reader, entry: &Entry, path: &Path<'_>, has_more: bool) {
    if has_more {
        reader.error(
            &entry.key_place,
            path,
            "what is external is somebody else's: it can only have a `name`",
        );
    }
}
