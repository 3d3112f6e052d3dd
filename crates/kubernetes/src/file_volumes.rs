//! Volumes of files: ConfigMaps, Secrets, metadata of the pod (`downwardAPI`), and several of these (`projected`). In addition, the
//! file with the pod's namespace.
//!
//! The files are written before the pod starts.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    catalogue::{Catalogue, DataKind},
    env::{self, About},
    fields, names,
    object::Key,
    reader::{Object, Value},
};
use driftless_model::{
    Access, Container, Content, ContentTree, Mount, MountSource, NAMESPACE_FILE, downward,
};
use driftless_yaml::Node;

/// [`NAMESPACE_FILE`] in most images, where `/var/run` is a link to `/run`.
const LINKED_NAMESPACE_FILE: &str = "/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The ConfigMap that a cluster makes in each namespace, for programs that talk to its API. Dumps of Pods refer to it.
const CLUSTER_CERTIFICATE: &str = "kube-root-ca.crt";

/// The files of a volume.
pub(super) struct Files {
    pub(super) tree: ContentTree,
    /// Whether any of them is secret.
    pub(super) is_secret: bool,
}

/// A ConfigMap or Secret as a folder.
pub(super) fn data(object: &Object<'_>, kind: DataKind, field: &str, about: &About<'_>) -> Option<Files> {
    let default = access(object, "defaultMode").unwrap_or_default();
    let name = object.require(field)?;
    let key = names::subdomain(&name).map(|it| Key::new(about.namespace, it))?;
    let tree = selected(object, kind, &key, default, about.catalogue);
    Some(Files { tree, is_secret: kind == DataKind::Secret })
}

/// The entries that `items` selects, or all.
fn selected(
    object: &Object<'_>,
    kind: DataKind,
    key: &Key,
    default: Access,
    catalogue: &Catalogue,
) -> ContentTree {
    let mut tree = ContentTree::new();
    let Some(data) = catalogue.data(kind, key) else {
        if kind == DataKind::ConfigMap && key.name == CLUSTER_CERTIFICATE {
            let place = object.get("name").unwrap_or_else(|| object.value.clone());
            place.warning("has no effect: containers have no Kubernetes API to talk to");
        } else {
            env::missing(object, kind, key, catalogue);
        }
        return tree;
    };
    if object.get("items").is_none() {
        return data.entries.iter().map(|(name, it)| (name.clone(), (Arc::clone(it), default))).collect();
    }
    for item in object.items("items") {
        let Some(item) = item.object(fields::KEY_TO_PATH) else { continue };
        let (Some(name), Some(path)) = (item.require("key"), item.require("path")) else { continue };
        let access = access(&item, "mode").unwrap_or(default);
        let Some(path) = inner_path(&path) else { continue };
        let Some(name_text) = name.text() else { continue };
        match data.entries.get(name_text) {
            Some(bytes) => {
                tree.insert(path, (Arc::clone(bytes), access));
            }
            None if env::is_optional(object) => {}
            None => name.error(format!("the {} `{}` has no such key", kind.as_str(), key.name)),
        }
    }
    tree
}

/// Reads a `projected` volume.
pub(super) fn projected(object: &Object<'_>, about: &About<'_>) -> Option<Files> {
    let default = access(object, "defaultMode").unwrap_or_default();
    let mut all = ContentTree::new();
    let mut is_secret = false;
    for item in object.items("sources") {
        let Some(part) = item.object(fields::PROJECTION) else { continue };
        if !part.only_one(|_| true) {
            part.value.error_help("the source is empty", "give it a `configMap`, `secret` or `downwardAPI`");
        }
        for (field, kind) in [("configMap", DataKind::ConfigMap), ("secret", DataKind::Secret)] {
            let Some(reference) = part.object(field, fields::DATA_PROJECTION) else { continue };
            let Some(key) = env::data_key(&reference, about.namespace) else { continue };
            is_secret |= kind == DataKind::Secret;
            merge(&mut all, selected(&reference, kind, &key, default, about.catalogue), &reference);
        }
        if let Some(own) = part.object("downwardAPI", fields::DOWNWARD) {
            merge(&mut all, items_of_pod(&own, default, about)?, &own);
        }
    }
    Some(Files { tree: all, is_secret })
}

/// Adds the files of one source. Two files at one path are an error.
fn merge(all: &mut ContentTree, files: ContentTree, from: &Object<'_>) {
    for (path, file) in files {
        if all.contains_key(&path) {
            let message = format!("another source has a file `{path}` already");
            from.value.error_help(message, "select its files with `items`");
        }
        all.insert(path, file);
    }
}

/// Reads a `downwardAPI` volume.
pub(super) fn pod_metadata(object: &Object<'_>, about: &About<'_>) -> Option<Files> {
    let default = access(object, "defaultMode").unwrap_or_default();
    Some(Files { tree: items_of_pod(object, default, about)?, is_secret: false })
}

/// Mounts the file with the pod's namespace into a container whose manifest names its path. The others get none, because a new
/// mount replaces a container.
pub(super) fn mount_namespace(object: &Object<'_>, about: &About<'_>, container: &mut Container) {
    let is_off = about.pod.get("automountServiceAccountToken").and_then(Node::as_bool) == Some(false);
    if is_off || !has_text(object.value.node, NAMESPACE_FILE) {
        return;
    }
    let is_taken = |mount: &Mount| {
        let is_empty = matches!(mount.source, MountSource::Empty | MountSource::Anonymous);
        let is_taken_at = |file: &str| match file.strip_prefix(mount.target.as_str()) {
            Some("" | "/namespace") => true,
            // The engine would create the file in a volume or in a folder of the host, and cannot if that is read-only.
            Some(inside) => inside.starts_with('/') && (mount.read_only || !is_empty),
            None => false,
        };
        is_taken_at(NAMESPACE_FILE) || is_taken_at(LINKED_NAMESPACE_FILE)
    };
    if container.mounts.iter().any(is_taken) {
        return;
    }
    let content = Content::File { bytes: Arc::from(about.namespace.as_bytes()), executable: false };
    let Some(id) = about.catalogue.keep(content, &object.value) else { return };
    let source = MountSource::Content(id);
    container.mounts.push(Mount { target: NAMESPACE_FILE.to_owned(), source, read_only: true });
    container.mounts.sort();
}

/// Whether any text in a tree contains another.
fn has_text(node: &Node, text: &str) -> bool {
    node.as_scalar().is_some_and(|it| it.contains(text))
        || node.items().iter().any(|it| has_text(it, text))
        || node.entries().iter().any(|entry| has_text(&entry.value, text))
}

/// The files of a `downwardAPI`.
fn items_of_pod(object: &Object<'_>, default: Access, about: &About<'_>) -> Option<ContentTree> {
    let mut tree = ContentTree::new();
    for item in object.items("items") {
        let Some(item) = item.object(fields::DOWNWARD_ITEM) else { continue };
        let Some(path) = item.require("path").and_then(|it| inner_path(&it)) else { continue };
        let access = access(&item, "mode").unwrap_or(default);
        if !item.only_one(|it| matches!(it, "fieldRef" | "resourceFieldRef")) {
            item.value.error("the file has no content: add a `fieldRef` or `resourceFieldRef`");
        }
        if let Some(reference) = item.object("resourceFieldRef", fields::RESOURCE_FIELD_REF) {
            let text = env::resource(&reference, None, about)?;
            tree.insert(path, (Arc::from(text.into_bytes()), access));
            continue;
        }
        let Some(field) = item.object("fieldRef", fields::FIELD_REF).and_then(|it| it.require("fieldPath"))
        else {
            continue;
        };
        let text = match field.text()? {
            "metadata.labels" => lines(about.labels),
            "metadata.annotations" => lines(about.annotations),
            _ => env::field(&field, about)?,
        };
        if downward::is_marked(&text) {
            field.error_help(
                "is not known before the pod runs, and files are written before",
                "use a variable",
            );
            continue;
        }
        tree.insert(path, (Arc::from(text.into_bytes()), access));
    }
    Some(tree)
}

/// `key="value"` lines, as the kubelet writes labels and annotations.
fn lines(pairs: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

/// The mode of the files, if given. The pod's group is added after all volumes are read.
fn access(object: &Object<'_>, field: &str) -> Option<Access> {
    let mode = object.get(field)?.integer(0..=0o777)?;
    Some(Access::asked(u32::try_from(mode).ok()?, None))
}

/// A path inside a volume: relative, without leaving it.
fn inner_path(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if text.starts_with('/') || text.split('/').any(|it| matches!(it, ".." | "." | "")) {
        value.error("must be a relative path without `..`");
        return None;
    }
    Some(text.to_owned())
}

/// The files at and below a path.
pub(super) fn part(tree: &ContentTree, inside: &str) -> Option<Content> {
    if inside.is_empty() {
        return Some(Content::Folder(tree.clone()));
    }
    if let Some((bytes, access)) = tree.get(inside) {
        let bytes = Arc::clone(bytes);
        return Some(match *access {
            Access::Asked { mode, group } => {
                Content::Owned { bytes, mode, uid: 0, gid: group.unwrap_or_default() }
            }
            plain => Content::File { bytes, executable: plain.is_executable() },
        });
    }
    let prefix = format!("{inside}/");
    let below: ContentTree = tree
        .iter()
        .filter_map(|(path, it)| Some((path.strip_prefix(&prefix)?.to_owned(), it.clone())))
        .collect();
    (!below.is_empty()).then_some(Content::Folder(below))
}
