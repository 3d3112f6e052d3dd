//! An object during a build: its current content, and its earlier names.
//!
//! References use the names that objects had when they were read, so every earlier name is kept.

use std::collections::{BTreeMap, btree_map::Entry};

use driftless_yaml::{Node, Place, edit::get_mut, edit::mapping, edit::remove, edit::set, edit::text};

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gvk {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) gvk: Gvk,
    pub(super) name: String,
    /// `None` for a kind without namespaces.
    pub(super) namespace: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) node: Node,
    /// Earlier kinds, names and namespaces, the oldest first.
    before: Vec<(String, String, Option<String>)>,
    pub(super) prefixes: Vec<String>,
    pub(super) suffixes: Vec<String>,
    /// Whether the hash of its content is appended to its name.
    pub(super) is_hashed: bool,
}

/// The default namespace.
const DEFAULT: &str = "default";

/// Kinds without namespaces, with their group.
const CLUSTER_SCOPED: &[(&str, &str)] = &[
    ("", "ComponentStatus"),
    ("", "Namespace"),
    ("", "Node"),
    ("", "NodeProxyOptions"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("networking.k8s.io", "IngressClass"),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "PodSecurityPolicy"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
];

impl Gvk {
    fn of(node: &Node) -> Self {
        let word = |key: &str| node.get(key).and_then(Node::as_scalar).unwrap_or_default();
        let version = word("apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: word("kind").to_owned() }
    }

    pub(super) fn is_cluster_scoped(&self) -> bool {
        CLUSTER_SCOPED.contains(&(self.group.as_str(), self.kind.as_str()))
    }

    /// Whether group, version and kind match. An empty text matches any.
    pub(super) fn is(&self, group: &str, version: &str, kind: &str) -> bool {
        let is = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        is(group, &self.group) && is(version, &self.version) && is(kind, &self.kind)
    }
}

impl Id {
    /// Reads kind, name and namespace of an object.
    pub(super) fn of(node: &Node) -> Self {
        let gvk = Gvk::of(node);
        let word =
            |key: &str| node.get("metadata").and_then(|it| it.get(key)?.as_scalar()).unwrap_or_default();
        let namespace = word("namespace");
        let namespace = (!gvk.is_cluster_scoped())
            .then(|| if namespace.is_empty() { DEFAULT } else { namespace }.to_owned());
        Self { name: word("name").to_owned(), namespace, gvk }
    }

    pub(super) fn namespace_text(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// ``the Deployment `web` ``, with its namespace unless it is `default`.
    pub(super) fn words(&self) -> String {
        let Self { gvk, name, namespace } = self;
        match namespace.as_deref() {
            Some(DEFAULT) | None => format!("the {} `{name}`", gvk.kind),
            Some(namespace) => format!("the {} `{name}` of the namespace `{namespace}`", gvk.kind),
        }
    }
}

impl Resource {
    pub(super) fn new(node: Node) -> Self {
        Self { node, before: Vec::new(), prefixes: Vec::new(), suffixes: Vec::new(), is_hashed: false }
    }

    pub(super) fn id(&self) -> Id {
        Id::of(&self.node)
    }

    pub(super) fn first_id(&self) -> Id {
        self.earlier_ids().into_iter().next().unwrap_or_else(|| self.id())
    }

    /// All ids but the current one, the oldest first.
    pub(super) fn earlier_ids(&self) -> Vec<Id> {
        let gvk = Gvk::of(&self.node);
        let id = |(kind, name, namespace): &(String, String, Option<String>)| Id {
            gvk: Gvk { kind: kind.clone(), ..gvk.clone() },
            name: name.clone(),
            namespace: namespace.clone(),
        };
        self.before.iter().map(id).collect()
    }

    /// Whether the object has or had this id.
    pub(super) fn was(&self, id: &Id) -> bool {
        self.id() == *id || self.earlier_ids().contains(id)
    }

    pub(super) fn remember_id(&mut self) {
        let Id { gvk, name, namespace } = self.id();
        self.before.push((gvk.kind, name, namespace));
    }

    /// The place of its name, or of the whole object if it has none.
    pub(super) fn place(&self) -> &Place {
        let name = self.node.get("metadata").and_then(|it| it.get("name"));
        &name.unwrap_or(&self.node).place
    }

    pub(super) fn name(&self) -> &str {
        self.node.get("metadata").and_then(|it| it.get("name")?.as_scalar()).unwrap_or_default()
    }

    /// Sets the name, which keeps the place of the old name.
    pub(super) fn set_name(&mut self, name: String) {
        let place = self.place().clone();
        if let Some(metadata) = get_mut(&mut self.node, "metadata") {
            set(metadata, "name", text(&place, name));
        }
    }

    /// Labels or annotations.
    pub(super) fn texts(&self, key: &str) -> BTreeMap<&str, &str> {
        let entries =
            self.node.get("metadata").and_then(|it| it.get(key)).map(Node::entries).unwrap_or_default();
        entries.iter().filter_map(|it| Some((it.key.as_str(), it.value.as_scalar()?))).collect()
    }

    /// Sets a label or an annotation.
    pub(super) fn set_text(&mut self, kind: &str, key: &str, value: Node) {
        let place = value.place.clone();
        if let Some(metadata) = get_mut(&mut self.node, "metadata") {
            if metadata.get(kind).is_none_or(Node::is_null) {
                set(metadata, kind, mapping(&place, []));
            }
            if let Some(map) = get_mut(metadata, kind) {
                set(map, key, value);
            }
        }
    }

    /// Takes the names of the old object, and the labels and annotations that the new one does not have.
    pub(super) fn take_over(&mut self, old: &Self) {
        for kind in ["labels", "annotations"] {
            let own: Vec<String> = self.texts(kind).into_keys().map(str::to_owned).collect();
            let entries =
                old.node.get("metadata").and_then(|it| it.get(kind)).map(Node::entries).unwrap_or_default();
            for entry in entries.iter().filter(|it| !own.contains(&it.key)) {
                self.set_text(kind, &entry.key, entry.value.clone());
            }
        }
        for key in ["name", "namespace"] {
            let Some(metadata) = get_mut(&mut self.node, "metadata") else { continue };
            match old.node.get("metadata").and_then(|it| it.get(key)) {
                Some(value) => set(metadata, key, value.clone()),
                None => drop(remove(metadata, key)),
            }
        }
        self.before.clone_from(&old.before);
        self.prefixes.clone_from(&old.prefixes);
        self.suffixes.clone_from(&old.suffixes);
    }
}

/// The objects that have the same kind, name and namespace as an earlier one, after that one.
pub(super) fn duplicates(resources: &[Resource]) -> impl Iterator<Item = (&Resource, &Resource)> {
    let mut known: BTreeMap<Id, &Resource> = BTreeMap::new();
    resources.iter().filter_map(move |resource| match known.entry(resource.id()) {
        Entry::Occupied(first) => Some((*first.get(), resource)),
        Entry::Vacant(free) => {
            free.insert(resource);
            None
        }
    })
}
