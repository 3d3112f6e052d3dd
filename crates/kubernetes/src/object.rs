//! The name, namespace and `metadata` of an object.

use super::{
    fields, names,
    reader::{Kubernetes, Object, Value},
    sync_annotations,
};
use driftless_model::{Finding, Location};
use driftless_yaml::{Dialect as _, Entry, join};

/// Name and namespace of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The namespace of objects that name none.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

impl Key {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// `web`, or `web.shop` outside of the namespace `default`.
    pub(super) fn dotted(&self) -> String {
        let Self { namespace, name } = self;
        if namespace == DEFAULT_NAMESPACE { name.clone() } else { format!("{name}.{namespace}") }
    }
}

/// Help for `user`, which looks for an object in its own namespace. `found` are the objects that it may mean. `None`: they are in none or
/// in several other namespaces.
pub(super) fn help_with_namespace<'k>(
    found: impl Iterator<Item = &'k Key>,
    own: &str,
    user: &str,
) -> Option<String> {
    let mut others: Vec<&str> = found.map(|key| key.namespace.as_str()).filter(|it| *it != own).collect();
    others.sort_unstable();
    others.dedup();
    let [other] = others[..] else { return None };
    let both = if own == DEFAULT_NAMESPACE { other } else { own };
    Some(format!(
        "there is one in the namespace `{other}`, and this {user} is in `{own}`: write `namespace: {both}` into the `metadata` \
         of both, or list the file as a resource of a kustomization with `namespace: {both}`"
    ))
}

/// The `metadata` of an object that others refer to.
pub(super) struct Identity {
    pub(super) key: Key,
    pub(super) origin: Location,
}

/// An object's `metadata`, `spec` and key.
pub(super) struct Head<'a> {
    pub(super) metadata: Object<'a>,
    pub(super) spec: Object<'a>,
    pub(super) key: Key,
    pub(super) origin: Location,
}

/// Reads `metadata` and `spec` of an object. `None`: one of them cannot be read, which is reported.
pub(super) fn head(value: Value<'_>, table: fields::Fields) -> Option<Head<'_>> {
    let object = value.object(fields::OBJECT)?;
    let metadata = object.require("metadata").and_then(|it| it.object(fields::METADATA));
    let spec = object.require("spec").and_then(|it| it.object(table));
    let metadata = metadata?;
    let Identity { key, origin } = identity(&metadata, &[])?;
    Some(Head { metadata, spec: spec?, key, origin })
}

/// Reads the name and the namespace. `own` are the annotations that only this kind has.
pub(super) fn identity(metadata: &Object<'_>, own: &[&str]) -> Option<Identity> {
    let annotations = metadata.value.node.entries().iter().find(|entry| entry.key == "annotations");
    let is_effective = |entry: &Entry| sync_annotations::is_known(&entry.key) || own.contains(&&*entry.key);
    if let Some(annotations) = annotations.filter(|it| !it.value.entries().iter().all(is_effective)) {
        let message = "has no effect: only annotations of the pod template are kept, as labels";
        let path = join(&metadata.value.path, "annotations");
        metadata.value.report().say(Finding::warning(annotations.key_place.location(), path, message));
    }
    let node = metadata.value.node;
    // A `generateName` was refused already, with the advice to write a name.
    let is_generated = node.get("generateName").is_some_and(|it| !Kubernetes::is_absent(it));
    if is_generated && node.get("name").is_none() {
        return None;
    }
    let name = metadata.require("name")?;
    let origin = name.place().location();
    let name = names::subdomain(&name)?;
    let namespace =
        metadata.filled("namespace").and_then(|it| names::label(&it)).unwrap_or(DEFAULT_NAMESPACE);
    Some(Identity { key: Key::new(namespace, name), origin })
}

/// Labels and annotations of ConfigMaps and Secrets have no effect; they are only validated.
pub(super) fn identify(object: &Object<'_>) -> Option<Identity> {
    let metadata = object.require("metadata").and_then(|it| it.object(fields::METADATA))?;
    if let Some(labels) = metadata.get("labels") {
        names::labels(&labels);
    }
    identity(&metadata, &[])
}

/// Reports a second object of one kind and name.
pub(super) fn report_duplicate(
    object: &Object<'_>,
    kind: &str,
    key: &Key,
    origin: &Location,
    first: &Location,
) {
    let message = format!("the {kind} `{}` is already defined at {first}", key.dotted());
    let finding = Finding::error(origin.clone(), "metadata.name", message);
    object.value.report().say(finding.help("rename one of the two, or remove it"));
}
