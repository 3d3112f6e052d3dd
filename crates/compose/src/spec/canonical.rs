//! The canonical form of a tree: short syntaxes become long ones, lists of names become maps, and defaults are written.
//!
//! It works on a tree that the strict check has seen. A value that cannot be read is reported and stays as it is.

use crate::spec::{
    paths,
    scalar::Plain,
    short::{self, ShortVolume},
    tree::{self, as_text, items_mut},
};
use driftless_model::{Finding, Port};
use driftless_yaml::{Entry, Kind, Node, Place};

/// Expands every short syntax of a document. `left` is the number of ports that ranges may still expand to.
pub(crate) fn expand(root: &mut Node, left: &mut usize, findings: &mut Vec<Finding>) {
    for (name, service) in tree::children_mut(root, "services") {
        let path = format!("services.{name}");
        Expand { findings, path: &path, left }.service(service);
    }
    for kind in ["networks", "volumes", "secrets", "configs"] {
        for (name, resource) in tree::children_mut(root, kind) {
            external(resource, &format!("{kind}.{name}"), findings);
        }
    }
}

struct Expand<'a> {
    findings: &'a mut Vec<Finding>,
    path: &'a str,
    left: &'a mut usize,
}

impl Expand<'_> {
    fn service(&mut self, service: &mut Node) {
        for entry in tree::entries_mut(service) {
            let value = &mut entry.value;
            match entry.key.as_str() {
                "build" => build(value),
                "depends_on" => depends_on(value),
                "networks" | "models" => replace(value, names_as_map),
                "env_file" => env_files(value),
                "label_file" => replace(value, into_list),
                "dns" => {
                    replace(value, into_list);
                    if let Kind::Sequence(items) = &mut value.kind {
                        items.retain(|it| it.as_scalar() != Some("") && !it.is_null());
                    }
                }
                "gpus" => gpus(value),
                "configs" | "secrets" => items_mut(value).iter_mut().for_each(file_mount),
                "devices" => self.devices(value),
                "ports" => self.ports(value),
                "volumes" => self.volumes(value),
                "develop" => develop(value),
                _ => {}
            }
        }
    }

    fn error(&mut self, item: &Node, key: &str, index: usize, message: String) {
        self.findings.push(item.finding(format!("{}.{key}[{index}]", self.path), message));
    }

    fn devices(&mut self, devices: &mut Node) {
        for (index, item) in items_mut(devices).iter_mut().enumerate() {
            let Some(text) = as_text(item) else { continue };
            let parts: Vec<&str> = text.split(':').collect();
            let (source, target, permissions) = match parts.as_slice() {
                [source] => (*source, "", "rwm"),
                [source, target] => (*source, *target, "rwm"),
                [source, target, permissions] => (*source, *target, *permissions),
                _ => {
                    let message = format!("`{text}` is not a device; write `HOST:CONTAINER:rwm`");
                    self.error(item, "devices", index, message);
                    continue;
                }
            };
            let target = if target.is_empty() { source } else { target };
            let place = item.place.clone();
            let of = |it: &str| tree::text(&place, it);
            *item = tree::mapping(
                &place,
                [("source", of(source)), ("target", of(target)), ("permissions", of(permissions))],
            );
        }
    }

    fn ports(&mut self, ports: &mut Node) {
        let Kind::Sequence(items) = &mut ports.kind else { return };
        let mut all = Vec::with_capacity(items.len());
        for (index, item) in std::mem::take(items).into_iter().enumerate() {
            let text = match Plain::of(&item) {
                Some((text, plain @ (Plain::Text | Plain::Integer(_)))) => plain.print(text),
                Some(_) | None => None,
            };
            let Some(text) = text else {
                all.push(item);
                continue;
            };
            match short::ports(&text) {
                Ok(found) if found.len() > *self.left => {
                    self.error(
                        &item,
                        "ports",
                        index,
                        "the application has more ports than there are port numbers".to_owned(),
                    );
                }
                Ok(mut found) => {
                    *self.left -= found.len();
                    // The reference parser sorts the numbers as strings.
                    found.sort_by_key(|it| (it.container.to_string(), it.protocol.as_str()));
                    all.extend(found.iter().map(|it| port(&item.place, it)));
                }
                Err(message) => {
                    self.error(&item, "ports", index, message);
                    all.push(item);
                }
            }
        }
        *items = all;
    }

    fn volumes(&mut self, volumes: &mut Node) {
        for (index, item) in items_mut(volumes).iter_mut().enumerate() {
            let Some(text) = as_text(item) else { continue };
            match short::volume(text) {
                Ok(mut volume) => {
                    for mode in std::mem::take(&mut volume.ignored) {
                        let message = format!("`{mode}` is ignored: it has no meaning on Linux");
                        let path = format!("{}.volumes[{index}]", self.path);
                        self.findings.push(item.warning(path, message));
                    }
                    *item = self::volume(&item.place.clone(), volume);
                }
                Err(message) => self.error(item, "volumes", index, message),
            }
        }
    }
}

fn build(build: &mut Node) {
    replace(build, context_as_map);
    for entry in tree::entries_mut(build) {
        match entry.key.as_str() {
            "secrets" => items_mut(&mut entry.value).iter_mut().for_each(file_mount),
            "additional_contexts" | "ssh" => pairs_as_map(&mut entry.value),
            _ => {}
        }
    }
}

/// Writes the defaults of the specification.
pub(crate) fn set_defaults(root: &mut Node) {
    for (_, service) in tree::children_mut(root, "services") {
        for entry in tree::entries_mut(service) {
            let value = &mut entry.value;
            match entry.key.as_str() {
                "build" => tree::set_missing(value, "context", |it| tree::text(it, ".")),
                "secrets" => items_mut(value).iter_mut().for_each(secret_target),
                "ports" => {
                    for port in items_mut(value) {
                        tree::set_missing(port, "protocol", |it| tree::text(it, "tcp"));
                        tree::set_missing(port, "mode", |it| tree::text(it, "ingress"));
                    }
                }
                "gpus" => items_mut(value).iter_mut().for_each(device_count),
                "volumes" => {
                    for bind in items_mut(value).iter_mut().filter_map(|it| tree::get_mut(it, "bind")) {
                        tree::set_missing(bind, "create_host_path", |it| tree::plain(it, "true"));
                    }
                }
                "deploy" => {
                    let reservations = ["resources", "reservations", "devices"];
                    let devices = reservations.iter().try_fold(value, |it, key| tree::get_mut(it, key));
                    devices.map(items_mut).unwrap_or_default().iter_mut().for_each(device_count);
                }
                _ => {}
            }
        }
    }
}

/// Rewrites the paths of a tree that comes from another folder. `prefix` is that folder, relative to the folder of the
/// project.
pub(crate) fn rebase(root: &mut Node, prefix: &str) {
    if prefix.is_empty() {
        return;
    }
    for (_, service) in tree::children_mut(root, "services") {
        for entry in tree::entries_mut(service) {
            let value = &mut entry.value;
            match entry.key.as_str() {
                "build" => {
                    if let Some(context) = tree::get_mut(value, "context") {
                        join_context(context, prefix);
                    }
                    for (_, context) in tree::children_mut(value, "additional_contexts") {
                        join_context(context, prefix);
                    }
                }
                "env_file" => {
                    let paths = items_mut(value).iter_mut().filter_map(|it| tree::get_mut(it, "path"));
                    paths.for_each(|it| join_path(it, prefix));
                }
                "label_file" => items_mut(value).iter_mut().for_each(|it| join_path(it, prefix)),
                "extends" => {
                    if let Some(file) = tree::get_mut(value, "file") {
                        join_path(file, prefix);
                    }
                }
                "develop" => {
                    let watched = tree::get_mut(value, "watch").map(items_mut).unwrap_or_default();
                    let paths = watched.iter_mut().filter_map(|it| tree::get_mut(it, "path"));
                    paths.for_each(|it| join_path(it, prefix));
                }
                "volumes" => {
                    for mount in items_mut(value) {
                        let is_bind = mount.get("type").and_then(as_text) == Some("bind");
                        if let Some(source) = tree::get_mut(mount, "source").filter(|_| is_bind) {
                            join_path(source, prefix);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    for kind in ["configs", "secrets"] {
        for (_, resource) in tree::children_mut(root, kind) {
            if let Some(file) = tree::get_mut(resource, "file") {
                join_path(file, prefix);
            }
        }
    }
    for (_, volume) in tree::children_mut(root, "volumes") {
        if let Some(device) = bound_device(volume) {
            join_path(device, prefix);
        }
    }
}

/// The host folder that a volume of the local driver binds.
pub(crate) fn bound_device(volume: &mut Node) -> Option<&mut Node> {
    let is_local = volume.get("driver").and_then(as_text) == Some("local");
    let options = tree::get_mut(volume, "driver_opts").filter(|_| is_local)?;
    let is_bind = options.get("o").and_then(as_text) == Some("bind");
    tree::get_mut(options, "device").filter(|_| is_bind)
}

fn join_context(node: &mut Node, prefix: &str) {
    if as_text(node).is_some_and(|it| !paths::is_elsewhere(it)) {
        join_path(node, prefix);
    }
}

fn join_path(node: &mut Node, prefix: &str) {
    let Some(path) = as_text(node) else { return };
    if path.is_empty() || path.starts_with(['/', '~']) || paths::is_windows(path) {
        return;
    }
    let joined = paths::clean(&format!("{prefix}/{path}"));
    let dot = if joined.starts_with('.') { "" } else { "./" };
    *node = tree::text(&node.place, format!("{dot}{joined}"));
}

/// A list of strings as a map. A list with anything else stays as it is; the strict check reports it.
fn list_as_map(node: Node, value: fn(&Node) -> Node) -> Node {
    let Kind::Sequence(items) = &node.kind else { return node };
    let mut entries: Vec<Entry> = Vec::with_capacity(items.len());
    for item in items {
        let Some(key) = as_text(item) else { return node };
        if entries.iter().all(|it| it.key != key) {
            entries.push(tree::entry(&item.place, key, value(item)));
        }
    }
    Node { kind: Kind::Mapping(entries), ..node }
}

/// A list of names as a map without values.
pub(crate) fn names_as_map(node: Node) -> Node {
    list_as_map(node, |item| tree::null(&item.place))
}

/// A list of services as a map of dependencies.
pub(crate) fn services_as_map(node: Node) -> Node {
    list_as_map(node, |item| {
        let condition = tree::text(&item.place, "service_started");
        let required = tree::plain(&item.place, "true");
        tree::mapping(&item.place, [("condition", condition), ("required", required)])
    })
}

/// The short form of `build`, a context, as a map.
pub(crate) fn context_as_map(node: Node) -> Node {
    match &node.kind {
        Kind::Scalar { .. } if !node.is_null() => {
            let place = node.place.clone();
            tree::mapping(&place, [("context", node)])
        }
        Kind::Scalar { .. } | Kind::Mapping(_) | Kind::Sequence(_) => node,
    }
}

fn replace(node: &mut Node, change: fn(Node) -> Node) {
    let place = node.place.clone();
    let before = std::mem::replace(node, tree::null(&place));
    *node = change(before);
}

/// A string as a list of one.
fn into_list(node: Node) -> Node {
    if as_text(&node).is_none() {
        return node;
    }
    tree::sequence(&node.place.clone(), vec![node])
}

fn depends_on(node: &mut Node) {
    replace(node, services_as_map);
    for entry in tree::entries_mut(node) {
        tree::set_missing(&mut entry.value, "condition", |it| tree::text(it, "service_started"));
        tree::set_missing(&mut entry.value, "required", |it| tree::plain(it, "true"));
    }
}

fn env_files(node: &mut Node) {
    replace(node, into_list);
    for item in items_mut(node) {
        if as_text(item).is_some() {
            let place = item.place.clone();
            *item = tree::mapping(&place, [("path", item.clone())]);
        }
        tree::set_missing(item, "required", |it| tree::plain(it, "true"));
    }
}

fn gpus(node: &mut Node) {
    if as_text(node).is_some() {
        let all = tree::mapping(&node.place, [("count", tree::text(&node.place, "all"))]);
        *node = tree::sequence(&node.place, vec![all]);
    }
}

fn file_mount(item: &mut Node) {
    if as_text(item).is_some() {
        let place = item.place.clone();
        *item = tree::mapping(&place, [("source", item.clone())]);
    }
}

fn secret_target(mount: &mut Node) {
    if let Some(source) = mount.get("source").and_then(as_text) {
        let target = format!("/run/secrets/{source}");
        tree::set_missing(mount, "target", |it| tree::text(it, target));
    }
}

fn device_count(request: &mut Node) {
    if request.get("device_ids").is_none() {
        tree::set_missing(request, "count", |it| tree::text(it, "all"));
    }
}

fn develop(node: &mut Node) {
    for watch in tree::get_mut(node, "watch").map(items_mut).unwrap_or_default() {
        for key in ["ignore", "include"] {
            if let Some(list) = tree::get_mut(watch, key) {
                replace(list, into_list);
            }
        }
    }
}

/// A list of `name=value` as a map. A list with anything else than strings stays as it is.
fn pairs_as_map(node: &mut Node) {
    let Kind::Sequence(items) = &node.kind else { return };
    let mut map = tree::mapping(&node.place, []);
    for item in items {
        let Some(text) = as_text(item) else { return };
        match text.split_once('=') {
            Some((key, value)) => tree::set(&mut map, key, tree::text(&item.place, value)),
            None => tree::set(&mut map, text, tree::null(&item.place)),
        }
    }
    *node = map;
}

fn port(place: &Place, port: &Port) -> Node {
    let mut node = tree::mapping(place, [("mode", tree::text(place, "ingress"))]);
    if let Some(ip) = port.host_ip {
        tree::set(&mut node, "host_ip", tree::text(place, ip.to_string()));
    }
    tree::set(&mut node, "target", tree::plain(place, port.container.to_string()));
    if let Some(host) = port.host {
        let text =
            if host.len() == 1 { host.first.to_string() } else { format!("{}-{}", host.first, host.last) };
        tree::set(&mut node, "published", tree::text(place, text));
    }
    tree::set(&mut node, "protocol", tree::text(place, port.protocol.as_str()));
    node
}

fn volume(place: &Place, volume: ShortVolume) -> Node {
    let ShortVolume { source, target, read_only, no_copy, propagation, selinux, ignored: _ } = volume;
    let of = |it: &str| tree::text(place, it);
    let is_path = source.as_deref().is_some_and(short::is_path);
    let mut node = tree::mapping(place, [("type", of(if is_path { "bind" } else { "volume" }))]);
    if let Some(source) = &source {
        tree::set(&mut node, "source", of(source));
    }
    tree::set(
        &mut node,
        "target",
        of(&if target.is_empty() { target.clone() } else { paths::clean(&target) }),
    );
    if read_only {
        tree::set(&mut node, "read_only", tree::plain(place, "true"));
    }
    if is_path || propagation.is_some() || selinux.is_some() {
        let mut bind = tree::mapping(place, []);
        for (key, value) in [("propagation", propagation), ("selinux", selinux)] {
            if let Some(value) = value {
                tree::set(&mut bind, key, of(&value));
            }
        }
        if is_path {
            tree::set(&mut bind, "create_host_path", tree::plain(place, "true"));
        }
        tree::set(&mut node, "bind", bind);
    }
    // The reference parser omits it for paths of one or two letters.
    let is_bare = source.is_none() && target.len() <= 2;
    if no_copy || !(is_path || is_bare) {
        let copy = no_copy.then(|| ("nocopy", tree::plain(place, "true")));
        tree::set(&mut node, "volume", tree::mapping(place, copy));
    }
    node
}

/// The obsolete `external: {name: …}` as `external: true` and `name`.
fn external(resource: &mut Node, path: &str, findings: &mut Vec<Finding>) {
    let Some(external) = resource.get("external").filter(|it| tree::is_mapping(it)).cloned() else { return };
    tree::set(resource, "external", tree::plain(&external.place, "true"));
    let Some(name) = external.get("name") else { return };
    let path = format!("{path}.external");
    let message = "the form `external: {name: …}` is obsolete; write `external: true` and `name`";
    findings.push(external.warning(&path, message));
    match resource.get("name") {
        Some(own) if own.as_scalar() != name.as_scalar() => {
            findings.push(name.finding(path, "differs from `name`; remove this one"));
        }
        Some(_) => {}
        None => tree::set(resource, "name", name.clone()),
    }
}
