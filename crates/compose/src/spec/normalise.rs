//! Implied values of a project: names in Docker, the default network, dependencies that follow from links and shared
//! namespaces, and variables that are given by name only.

use crate::spec::{
    paths, scalar,
    tree::{self, as_text, items_mut},
};
use driftless_yaml::{Entry, Kind, Node, Place};

/// Finds the value of a variable that is named at a place.
pub(crate) type Values<'a> = &'a mut dyn FnMut(&str, &Place) -> Option<String>;

/// The network of services that name none.
pub(crate) const DEFAULT_NETWORK: &str = "default";

/// Writes all implied values into a whole project.
pub(crate) fn normalise(root: &mut Node, project: &str, variables: Values<'_>) {
    default_network(root);
    for (_, service) in tree::children_mut(root, "services") {
        if !tree::is_mapping(service) {
            continue;
        }
        if let Some(policy) = tree::get_mut(service, "pull_policy")
            && as_text(policy) == Some("if_not_present")
        {
            *policy = tree::text(&policy.place, "missing");
        }
        if let Some(build) = tree::get_mut(service, "build") {
            self::build(build, variables);
        }
        if let Some(environment) = tree::get_mut(service, "environment") {
            resolve(environment, variables, Unset::Kept);
        }
        implied_dependencies(service);
        for target in tree::get_mut(service, "volumes")
            .map(items_mut)
            .unwrap_or_default()
            .iter_mut()
            .filter_map(|it| tree::get_mut(it, "target"))
        {
            if let Some(text) = as_text(target).filter(|it| !it.is_empty()) {
                *target = tree::text(&target.place, paths::clean(text));
            }
        }
        inherit_image(service);
        if let Some(scale) = service.get("scale").cloned()
            && let Some(deploy) = tree::get_mut(service, "deploy")
        {
            tree::set_missing(deploy, "replicas", |_| scale);
        }
    }
    names(root, project);
}

/// Gives bare names in lists the values of variables. Called for each file with its own variables.
pub(crate) fn resolve_environment(root: &mut Node, variables: Values<'_>) {
    for (_, service) in tree::children_mut(root, "services") {
        if let Some(environment) = tree::get_mut(service, "environment")
            && matches!(environment.kind, Kind::Sequence(_))
        {
            resolve(environment, variables, Unset::Kept);
        }
    }
}

fn default_network(root: &mut Node) {
    let mut used: Option<Place> = None;
    for (_, service) in tree::children_mut(root, "services") {
        if !tree::is_mapping(service)
            || service.get("provider").is_some()
            || service.get("network_mode").is_some()
        {
            continue;
        }
        let networks = service.get("networks");
        if networks.is_none_or(|it| it.entries().is_empty() && !is_list(it)) {
            let place = service.place.clone();
            let default = tree::mapping(&place, [(DEFAULT_NETWORK, tree::null(&place))]);
            tree::set(service, "networks", default);
        }
        if service.get("networks").is_some_and(|it| it.get(DEFAULT_NETWORK).is_some()) {
            used.get_or_insert_with(|| service.place.clone());
        }
    }
    let Some(place) = used else { return };
    tree::set_missing(root, "networks", |_| tree::mapping(&place, []));
    if let Some(networks) = tree::get_mut(root, "networks") {
        tree::set_missing(networks, DEFAULT_NETWORK, |_| tree::null(&place));
    }
}

fn is_list(node: &Node) -> bool {
    matches!(&node.kind, Kind::Sequence(items) if !items.is_empty())
}

fn build(build: &mut Node, variables: Values<'_>) {
    tree::set_missing(build, "context", |it| tree::text(it, "."));
    if build.get("dockerfile_inline").is_none() {
        tree::set_missing(build, "dockerfile", |it| tree::text(it, "Dockerfile"));
    }
    if let Some(args) = tree::get_mut(build, "args") {
        resolve(args, variables, Unset::Dropped);
    }
}

/// The result for a bare name without a variable that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unset {
    Kept,
    Dropped,
}

/// Gives bare names the value of their variable, if it is set.
fn resolve(node: &mut Node, variables: Values<'_>, unset: Unset) {
    match &mut node.kind {
        Kind::Mapping(entries) => entries.retain_mut(|Entry { key, value, .. }| {
            if !value.is_null() {
                return true;
            }
            if let Some(found) = variables(key, &value.place) {
                *value = tree::text(&value.place, found);
                return true;
            }
            unset == Unset::Kept
        }),
        Kind::Sequence(items) => items.retain_mut(|item| {
            let Some(name) = as_text(item).filter(|it| !it.contains('=')) else { return true };
            if let Some(found) = variables(name, &item.place) {
                *item = tree::text(&item.place, format!("{name}={found}"));
                return true;
            }
            unset == Unset::Kept
        }),
        Kind::Scalar { .. } => {}
    }
}

/// A service depends on those that it links to or shares a namespace or volumes with. If a linked service restarts, so
/// does this one.
fn implied_dependencies(service: &mut Node) {
    let mut implied: Vec<(String, Place, bool)> = Vec::new();
    let texts = |key: &str| service.get(key).map(Node::items).unwrap_or_default().iter();
    for link in texts("links") {
        let Some(text) = as_text(link) else { continue };
        let name = match text.split_once(':') {
            Some((name, alias)) if !alias.contains(':') => name,
            Some(_) | None => text,
        };
        implied.push((name.to_owned(), link.place.clone(), true));
    }
    for key in ["network_mode", "ipc", "pid", "uts", "cgroup"] {
        let node = service.get(key);
        if let Some((node, name)) = node.and_then(|it| Some((it, as_text(it)?.strip_prefix("service:")?))) {
            implied.push((name.to_owned(), node.place.clone(), true));
        }
    }
    for source in texts("volumes_from") {
        if let Some(text) = as_text(source).filter(|it| !it.starts_with("container:")) {
            let name = text.split(':').next().unwrap_or(text);
            implied.push((name.to_owned(), source.place.clone(), false));
        }
    }
    for (name, place, restart) in implied {
        tree::set_missing(service, "depends_on", |_| tree::mapping(&place, []));
        let Some(Kind::Mapping(entries)) = tree::get_mut(service, "depends_on").map(|it| &mut it.kind) else {
            return;
        };
        if entries.iter().any(|it| it.key == name) {
            continue;
        }
        let dependency = tree::mapping(
            &place,
            [
                ("condition", tree::text(&place, "service_started")),
                ("restart", tree::plain(&place, restart.to_string())),
                ("required", tree::plain(&place, "true")),
            ],
        );
        entries.push(tree::entry(&place, &name, dependency));
    }
}

/// A `pre_start` hook without an image runs in the image of its service.
fn inherit_image(service: &mut Node) {
    let Some(image) = service.get("image").filter(|it| as_text(it).is_some_and(|it| !it.is_empty())).cloned()
    else {
        return;
    };
    for hook in tree::get_mut(service, "pre_start").map(items_mut).unwrap_or_default() {
        tree::set_missing(hook, "image", |_| image.clone());
    }
}

/// The default name in Docker is project and key, or the key alone for external objects.
fn names(root: &mut Node, project: &str) {
    for kind in ["networks", "volumes", "configs", "secrets"] {
        for (key, resource) in tree::children_mut(root, kind) {
            if resource.is_null() {
                *resource = tree::mapping(&resource.place, []);
            }
            let is_external = resource.get("external").is_some_and(is_true);
            let name = if is_external { key.to_owned() } else { format!("{project}_{key}") };
            if resource.get("name").is_none_or(Node::is_null) {
                let place = resource.place.clone();
                tree::set(resource, "name", tree::text(&place, name));
            }
        }
    }
}

/// Whether a value is true. It must be in the canonical form.
pub(crate) fn is_true(node: &Node) -> bool {
    node.as_bool().unwrap_or_else(|| as_text(node).and_then(scalar::boolean) == Some(true))
}
