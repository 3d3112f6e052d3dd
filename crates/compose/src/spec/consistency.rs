//! Rules between the parts of a project: references exist, keys that exclude each other are not combined, dependencies
//! have no cycle. The reference parser refuses a project by the same rules.

use std::collections::{BTreeMap, BTreeSet};

use crate::spec::{
    normalise::is_true,
    print, scalar,
    tree::{self, as_text},
};
use driftless_model::Finding;
use driftless_yaml::{Entry, Node};

/// Checks one model before it becomes part of another.
pub(crate) fn validate(root: &Node, findings: &mut Vec<Finding>) {
    for Entry { key, key_place, value } in tree::children(root, "volumes") {
        let path = format!("volumes.{key}");
        let others = value
            .entries()
            .iter()
            .find(|it| !matches!(it.key.as_str(), "name" | "external") && !it.key.starts_with("x-"));
        if value.get("external").is_some_and(is_true) && others.is_some() {
            let message = "an external object can only have a `name`";
            findings.push(Finding::error(key_place.location(), path, message));
        }
    }
    file_objects(root, "configs", &["file", "environment", "content"], findings);
    file_objects(root, "secrets", &["file", "environment"], findings);
    for Entry { key, key_place: _, value: service } in tree::children(root, "services") {
        let path = format!("services.{key}");
        for (index, port) in items(service, "ports").enumerate() {
            if let Some((ip, text)) = port.get("host_ip").and_then(|it| Some((it, as_text(it)?)))
                && text.parse::<std::net::IpAddr>().is_err()
            {
                let message = format!("`{text}` is not an IP address");
                findings.push(ip.finding(format!("{path}.ports[{index}].host_ip"), message));
            }
        }
        let reserved =
            ["deploy", "resources", "reservations"].iter().try_fold(service, |it, key| it.get(key));
        let requests = reserved.into_iter().flat_map(|it| items(it, "devices")).chain(items(service, "gpus"));
        for request in requests.filter(|it| it.get("count").is_some() && it.get("device_ids").is_some()) {
            findings.push(request.finding(&path, "`count` and `device_ids` exclude each other"));
        }
    }
}

fn file_objects(root: &Node, kind: &str, sources: &[&str], findings: &mut Vec<Finding>) {
    for Entry { key, key_place, value } in tree::children(root, kind) {
        let given = sources.iter().filter(|it| value.get(it).is_some()).count();
        let is_elsewhere = value.get("driver").is_some() || value.get("external").is_some();
        if !tree::is_mapping(value) || given == 1 || (given == 0 && is_elsewhere) {
            continue;
        }
        let quoted: Vec<String> = sources.iter().map(|it| format!("`{it}`")).collect();
        let (last, others) =
            quoted.split_last().map_or(("", String::new()), |(last, others)| (last, others.join(", ")));
        let one = kind.trim_end_matches('s');
        let message = format!("a {one} needs one of {others} and {last}");
        findings.push(Finding::error(key_place.location(), format!("{kind}.{key}"), message));
    }
}

/// Checks a whole project. `is_active` tells which services are used.
pub(crate) fn check(root: &Node, is_active: &dyn Fn(&Node) -> bool, findings: &mut Vec<Finding>) {
    let services: BTreeMap<&str, &Entry> =
        tree::children(root, "services").map(|it| (it.key.as_str(), it)).collect();
    for (name, entry) in services.iter().filter(|(_, it)| is_active(&it.value)) {
        let path = format!("services.{name}");
        let mut check = Check { root, services: &services, is_active, entry, path, findings };
        check.source();
        check.networks();
        check.dependencies();
        check.files();
        check.numbers();
        check.targets();
        check.develop();
    }
    for Entry { key, key_place, value } in tree::children(root, "secrets") {
        let has_source = ["file", "environment"].iter().any(|it| value.get(it).is_some());
        if tree::is_mapping(value) && !has_source && !value.get("external").is_some_and(is_true) {
            let message = "a secret needs one of `file` and `environment`";
            findings.push(Finding::error(key_place.location(), format!("secrets.{key}"), message));
        }
    }
    cycles(&services, is_active, findings);
}

struct Check<'a> {
    root: &'a Node,
    services: &'a BTreeMap<&'a str, &'a Entry>,
    is_active: &'a dyn Fn(&Node) -> bool,
    entry: &'a Entry,
    path: String,
    findings: &'a mut Vec<Finding>,
}

impl<'a> Check<'a> {
    fn get(&self, key: &str) -> Option<&'a Node> {
        self.entry.value.get(key)
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(as_text).filter(|it| !it.is_empty())
    }

    fn error(&mut self, node: &Node, path: &str, message: impl Into<String>) {
        self.findings.push(node.finding(format!("{}.{path}", self.path), message));
    }

    fn service_error(&mut self, message: impl Into<String>) {
        let location = self.entry.key_place.location();
        self.findings.push(Finding::error(location, self.path.clone(), message));
    }

    fn is_defined(&self, kind: &str, key: &str) -> bool {
        self.root.get(kind).is_some_and(|it| it.get(key).is_some())
    }

    /// The image, or how it is built.
    fn source(&mut self) {
        let build = self.get("build");
        // A wrong type of the service or its image was reported before.
        let lacks_image = self.get("image").is_none_or(|it| as_text(it) == Some(""));
        let is_whole = tree::is_mapping(&self.entry.value);
        if is_whole && build.is_none() && lacks_image && self.get("provider").is_none() {
            self.service_error("needs an `image`");
        }
        let Some(build) = build else { return };
        if let Some(inline) = build.get("dockerfile_inline").filter(|_| build.get("dockerfile").is_some()) {
            self.error(
                inline,
                "build.dockerfile_inline",
                "`dockerfile` and `dockerfile_inline` exclude each other",
            );
        }
        for Entry { key, key_place: _, value } in tree::children(build, "additional_contexts") {
            let Some(service) = as_text(value).and_then(|it| it.strip_prefix("service:")) else { continue };
            let message = match self.services.get(service) {
                None => format!("refers to undefined service `{service}`"),
                Some(it) if it.value.get("build").is_none() => {
                    format!("refers to the service `{service}`, which is not built")
                }
                Some(_) => continue,
            };
            self.error(value, &format!("build.additional_contexts.{key}"), message);
        }
        let platforms: Vec<&str> = items(build, "platforms").filter_map(as_text).collect();
        if let (Some(node), Some(platform)) = (self.get("platform"), self.text("platform"))
            && !platforms.is_empty()
            && !platforms.contains(&platform)
        {
            self.error(node, "platform", format!("`{platform}` is not among `build.platforms`"));
        }
        for (index, secret) in items(build, "secrets").enumerate() {
            self.refers(secret, "source", "secrets", &format!("build.secrets[{index}]"), "secret");
        }
    }

    /// Reports a reference to an undefined object.
    fn refers(&mut self, item: &Node, key: &str, kind: &str, path: &str, word: &str) {
        let Some(name) = item.get(key).and_then(as_text) else { return };
        if !self.is_defined(kind, name) {
            self.error(item, path, format!("refers to undefined {word} `{name}`"));
        }
    }

    fn networks(&mut self) {
        let networks = tree::children(&self.entry.value, "networks");
        let mode = self.get("network_mode").filter(|_| self.text("network_mode").is_some());
        if let Some(mode) = mode.filter(|_| tree::children(&self.entry.value, "networks").next().is_some()) {
            self.error(mode, "network_mode", "`network_mode` and `networks` exclude each other");
        }
        for Entry { key, key_place, .. } in networks {
            if !self.is_defined("networks", key) {
                let path = format!("{}.networks.{key}", self.path);
                let message = format!("refers to undefined network `{key}`");
                let finding = Finding::error(key_place.location(), path, message);
                self.findings.push(finding.help("add it under `networks:`"));
            }
        }
        for Entry { key, key_place, .. } in tree::children(&self.entry.value, "models") {
            if !self.is_defined("models", key) {
                let path = format!("{}.models.{key}", self.path);
                let message = format!("refers to undefined model `{key}`");
                self.findings.push(Finding::error(key_place.location(), path, message));
            }
        }
    }

    fn dependencies(&mut self) {
        for Entry { key, key_place, value } in tree::children(&self.entry.value, "depends_on") {
            let is_required = value.get("required").is_none_or(is_true);
            let path = format!("{}.depends_on.{key}", self.path);
            match self.services.get(key.as_str()) {
                Some(found) if (self.is_active)(&found.value) => {}
                Some(_) if !is_required => {}
                Some(found) => {
                    let message = format!("depends on `{key}`, whose profiles are not active");
                    let profiles: Vec<&str> = items(&found.value, "profiles").filter_map(as_text).collect();
                    let help = format!("activate one of: {}; or set `required: false`", profiles.join(", "));
                    self.findings.push(Finding::error(key_place.location(), path, message).help(help));
                }
                None => {
                    let message = format!("depends on undefined service `{key}`");
                    self.findings.push(Finding::error(key_place.location(), path, message));
                }
            }
        }
    }

    /// Mounted volumes, configs and secrets.
    fn files(&mut self) {
        let service = &self.entry.value;
        for (index, mount) in items(service, "volumes").enumerate() {
            let kind = mount.get("type").and_then(as_text);
            let source = mount.get("source").and_then(as_text).filter(|it| !it.is_empty());
            let path = format!("{}.volumes[{index}]", self.path);
            match (kind, source) {
                (Some("volume"), Some(key)) if !self.is_defined("volumes", key) => {
                    let help = format!("add it under `volumes:`, or write `./{key}` if a folder is meant");
                    let finding = mount.finding(path, format!("refers to undefined volume `{key}`"));
                    self.findings.push(finding.help(help));
                }
                (Some("bind"), None) => {
                    self.findings.push(mount.finding(path, "a bind mount needs a `source`"));
                }
                (_, _) => {}
            }
        }
        for (key, kind, word) in [("configs", "configs", "config"), ("secrets", "secrets", "secret")] {
            for (index, mount) in items(service, key).enumerate() {
                self.refers(mount, "source", kind, &format!("{key}[{index}]"), word);
            }
        }
        let test = self.get("healthcheck").and_then(|it| it.get("test")).and_then(|it| it.items().first());
        if let Some(first) = test
            && !matches!(as_text(first), Some("CMD" | "CMD-SHELL" | "NONE"))
        {
            let message = "a test given as a list must start with `CMD`, `CMD-SHELL` or `NONE`";
            self.error(first, "healthcheck.test", message);
        }
    }

    /// Numbers that may be written in two places, but must be equal.
    fn numbers(&mut self) {
        let deploy = self.get("deploy");
        let replicas = deploy.and_then(|it| it.get("replicas"));
        let number = |it: &Node| print::raw(it).as_i64().or_else(|| as_text(it)?.parse().ok());
        let (scale, wanted) = (self.get("scale"), replicas.and_then(number));
        if let (Some(node), Some(wanted)) = (scale, wanted)
            && number(node) != Some(wanted)
        {
            self.error(node, "scale", "differs from `deploy.replicas`");
        }
        for (node, path) in [(scale, "scale"), (replicas, "deploy.replicas")] {
            if let Some(node) = node.filter(|it| number(it).is_some_and(|it| it < 0)) {
                self.error(node, path, "must be 0 or more");
            }
        }
        let count = scale.and_then(number).or(wanted).unwrap_or(1);
        if let Some(name) = self.text("container_name").filter(|_| count > 1) {
            self.service_error(format!("{count} replicas cannot all have the container name `{name}`"));
        }
        let resources = deploy.and_then(|it| it.get("resources"));
        for (own, part, key) in [
            ("cpus", "limits", "cpus"),
            ("mem_limit", "limits", "memory"),
            ("mem_reservation", "reservations", "memory"),
            ("pids_limit", "limits", "pids"),
        ] {
            let limits = resources.and_then(|it| it.get(part));
            let (Some(node), Some(limits)) = (self.get(own), limits) else { continue };
            let value = quantity(own, node);
            let other = limits.get(key).map_or(0.0, |it| quantity(own, it));
            if value != 0.0 && (value - other).abs() > f64::EPSILON * value.abs() {
                let at = limits.get(key).unwrap_or(limits);
                let path = format!("deploy.resources.{part}.{key}");
                self.error(at, &path, format!("differs from the service's own `{own}`"));
            }
        }
    }

    fn targets(&mut self) {
        let service = &self.entry.value;
        let mut seen = BTreeSet::new();
        let tmpfs = items(service, "tmpfs").filter_map(as_text).chain(self.text("tmpfs"));
        for path in tmpfs.map(|it| it.split(':').next().unwrap_or(it)) {
            if !seen.insert(path) {
                let node = self.get("tmpfs").unwrap_or(service);
                self.error(node, "tmpfs", format!("two mounts have the same target `{path}`"));
            }
        }
        for (index, mount) in items(service, "volumes").enumerate() {
            let Some(target) = mount.get("target").and_then(as_text) else { continue };
            if !seen.insert(target) {
                let message = format!("two mounts have the same target `{target}`");
                self.error(mount, &format!("volumes[{index}]"), message);
            }
        }
    }

    fn develop(&mut self) {
        let watched = self.get("develop").into_iter().flat_map(|it| items(it, "watch"));
        for (index, watch) in watched.enumerate() {
            let action = watch.get("action").and_then(as_text);
            let target = watch.get("target").and_then(as_text).filter(|it| !it.is_empty());
            let path = format!("develop.watch[{index}]");
            if target.is_none() && !matches!(action, Some("rebuild" | "restart")) {
                self.error(watch, &path, "needs a `target` for this action");
            }
            if watch.get("path").and_then(as_text) == Some("") {
                self.error(watch, &path, "needs a `path`");
            }
        }
    }
}

/// A limit as a number in its base unit.
#[expect(clippy::cast_precision_loss, reason = "only compared")]
fn quantity(own: &str, node: &Node) -> f64 {
    let text = || scalar::Plain::of(node).and_then(|(text, plain)| plain.print(text)).unwrap_or_default();
    match own {
        "mem_limit" | "mem_reservation" => {
            text().parse().ok().or_else(|| scalar::bytes(&text()).map(|it| it as f64)).unwrap_or_default()
        }
        _ => text().parse().unwrap_or_default(),
    }
}

fn items<'n>(node: &'n Node, key: &str) -> impl Iterator<Item = &'n Node> {
    node.get(key).map(Node::items).unwrap_or_default().iter()
}

/// Reports each cycle of dependencies once, at the first of its services.
fn cycles(services: &BTreeMap<&str, &Entry>, is_active: &dyn Fn(&Node) -> bool, findings: &mut Vec<Finding>) {
    let following = |name: &str| -> Vec<&str> {
        let entry = services.get(name).filter(|it| is_active(&it.value));
        let depends = entry.into_iter().flat_map(|it| tree::children(&it.value, "depends_on"));
        depends.map(|it| it.key.as_str()).filter(|it| services.contains_key(it)).collect()
    };
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in services.keys().copied() {
        // Depth first without recursion: the path to here, and for each service on it those still to be followed.
        let mut trail = vec![(start, following(start))];
        while let Some((name, rest)) = trail.last_mut() {
            let name = *name;
            let next = if done.contains(name) { None } else { rest.pop() };
            let Some(next) = next else {
                done.insert(name);
                trail.pop();
                continue;
            };
            if let Some(at) = trail.iter().position(|(it, _)| *it == next) {
                let mut names: Vec<&str> = trail.iter().skip(at).map(|(it, _)| *it).collect();
                names.push(next);
                if let Some(entry) = services.get(next) {
                    let message = format!("the dependencies form a cycle: {}", names.join(" → "));
                    let location = entry.key_place.location();
                    findings.push(Finding::error(location, format!("services.{next}"), message));
                }
            } else if !done.contains(next) {
                trail.push((next, following(next)));
            }
        }
    }
}
