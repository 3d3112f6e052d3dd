//! Changes to all objects: namespace, prefix and suffix, labels and annotations, replicas, images.
//! A changed value gets the place of the kustomization's key, so that findings point there.

use regex::Regex;

use super::{
    resource::{Gvk, Resource, duplicates},
    settings::{Image, LabelField, Labels, LocatedText, Pairs, Replica},
    walk::{Missing, steps, visit},
};
use driftless_model::{Finding, ImageParts, ImageRef};
use driftless_yaml::{
    Kind, Node, Place, edit::entries_mut, edit::get_mut, edit::items_mut, edit::set, edit::text,
};

/// The path of labels, annotations or replicas in objects of a kind. An empty group, version or kind matches any.
struct FieldPath {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    path: &'static str,
    /// Whether a missing field is created.
    create: bool,
}

const fn field(group: &'static str, kind: &'static str, path: &'static str, create: bool) -> FieldPath {
    FieldPath { group, version: "", kind, path, create }
}

const fn core(kind: &'static str, path: &'static str) -> FieldPath {
    FieldPath { group: "", version: "v1", kind, path, create: true }
}

const TEMPLATES: &[FieldPath] = &[
    core("ReplicationController", "spec/template/metadata"),
    field("", "Deployment", "spec/template/metadata", true),
    field("", "ReplicaSet", "spec/template/metadata", true),
    field("", "DaemonSet", "spec/template/metadata", true),
    field("apps", "StatefulSet", "spec/template/metadata", true),
    field("batch", "Job", "spec/template/metadata", true),
    field("batch", "CronJob", "spec/jobTemplate/metadata", true),
    field("batch", "CronJob", "spec/jobTemplate/spec/template/metadata", true),
];

const CLAIMS: FieldPath = field("apps", "StatefulSet", "spec/volumeClaimTemplates[]/metadata", true);

const SELECTORS: &[FieldPath] = &[
    core("Service", "spec/selector"),
    core("ReplicationController", "spec/selector"),
    field("", "Deployment", "spec/selector/matchLabels", true),
    field("", "ReplicaSet", "spec/selector/matchLabels", true),
    field("", "DaemonSet", "spec/selector/matchLabels", true),
    field("apps", "StatefulSet", "spec/selector/matchLabels", true),
    field("batch", "Job", "spec/selector/matchLabels", false),
    field("batch", "CronJob", "spec/jobTemplate/spec/selector/matchLabels", false),
    field("policy", "PodDisruptionBudget", "spec/selector/matchLabels", false),
    field("networking.k8s.io", "NetworkPolicy", "spec/podSelector/matchLabels", false),
    field("networking.k8s.io", "NetworkPolicy", "spec/ingress/from/podSelector/matchLabels", false),
    field("networking.k8s.io", "NetworkPolicy", "spec/egress/to/podSelector/matchLabels", false),
];

/// Selectors in pod templates.
const POD_SELECTORS: &[&str] = &[
    "spec/template/spec/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "spec/template/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "spec/template/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "spec/template/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "spec/template/spec/topologySpreadConstraints/labelSelector/matchLabels",
];

const SCALED: &[&str] = &["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"];

/// Paths of images other than those of `containers` and `initContainers`.
const VOLUME_IMAGES: &[&str] =
    &["spec/volumes[]/image/reference", "spec/template/spec/volumes[]/image/reference"];

/// Sets the namespace of all objects whose kind has namespaces.
pub(super) fn namespace(resources: &mut [Resource], located: &LocatedText, findings: &mut Vec<Finding>) {
    for resource in resources.iter_mut() {
        resource.remember_id();
        let gvk = resource.id().gvk;
        if gvk.is("", "v1", "Namespace") && gvk.group.is_empty() {
            let place = located.place.clone();
            if let Some(metadata) = get_mut(&mut resource.node, "metadata") {
                set(metadata, "name", text(&place, located.text.clone()));
            }
        }
        let place = &located.place;
        let mut put = |path: &str, missing: Missing| {
            visit(&mut resource.node, &steps(path), missing, place, &mut |node| {
                *node = text(place, located.text.clone());
            });
        };
        if !gvk.is_cluster_scoped() {
            put("metadata/namespace", Missing::Text);
        }
        if gvk.is("apiregistration.k8s.io", "", "APIService") {
            put("spec/service/namespace", Missing::Text);
        }
        if gvk.is("apiextensions.k8s.io", "", "CustomResourceDefinition") {
            put("spec/conversion/webhook/clientConfig/service/namespace", Missing::Nothing);
        }
        if matches!(gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding")
            && let Some(subjects) = get_mut(&mut resource.node, "subjects")
        {
            for subject in items_mut(subjects) {
                if subject.get("name").and_then(Node::as_scalar) == Some("default") {
                    set(subject, "namespace", text(place, located.text.clone()));
                }
            }
        }
    }
    for (first, resource) in duplicates(resources) {
        let message =
            format!("makes two of {}: those at {} and {}", first.id().words(), at(first), at(resource));
        findings.push(located.error(message).help("rename one of the two"));
    }
}

fn at(resource: &Resource) -> String {
    resource.place().location().to_string()
}

/// Whether prefixes and suffixes leave the name unchanged.
fn keeps_its_name(gvk: &Gvk) -> bool {
    gvk.is("", "", "CustomResourceDefinition")
        || gvk.is("", "", "Namespace")
        || gvk.is("apiregistration.k8s.io", "", "APIService")
}

pub(super) fn prefix(resources: &mut [Resource], located: &LocatedText) {
    for resource in resources.iter_mut().filter(|it| !keeps_its_name(&it.first_id().gvk)) {
        resource.remember_id();
        resource.prefixes.push(located.text.clone());
        resource.set_name(format!("{}{}", located.text, resource.name()));
    }
}

pub(super) fn suffix(resources: &mut [Resource], located: &LocatedText) {
    for resource in resources.iter_mut().filter(|it| !keeps_its_name(&it.first_id().gvk)) {
        resource.remember_id();
        resource.suffixes.push(located.text.clone());
        resource.set_name(format!("{}{}", resource.name(), located.text));
    }
}

pub(super) fn labels(resources: &mut [Resource], labels: &Labels) {
    for resource in resources {
        let gvk = resource.id().gvk;
        for LabelField { group, version, kind, path, create } in &labels.fields {
            if gvk.is(group, version, kind) {
                put(&mut resource.node, &steps(path), *create, &labels.pairs);
            }
        }
        put(&mut resource.node, &steps("metadata/labels"), true, &labels.pairs);
        if labels.in_selectors {
            put_all(resource, &gvk, SELECTORS, "", &labels.pairs);
            if gvk.is("apps", "", "Deployment") || gvk.is("apps", "", "StatefulSet") {
                for path in POD_SELECTORS {
                    put(&mut resource.node, &steps(path), false, &labels.pairs);
                }
            }
        }
        if labels.in_templates {
            put_all(resource, &gvk, TEMPLATES, "/labels", &labels.pairs);
        }
        if labels.in_claims {
            put_all(resource, &gvk, &[CLAIMS], "/labels", &labels.pairs);
        }
    }
}

pub(super) fn annotations(resources: &mut [Resource], pairs: &Pairs) {
    for resource in resources {
        let gvk = resource.id().gvk;
        put(&mut resource.node, &steps("metadata/annotations"), true, pairs);
        put_all(resource, &gvk, TEMPLATES, "/annotations", pairs);
    }
}

fn put_all(resource: &mut Resource, gvk: &Gvk, fields: &[FieldPath], below: &str, pairs: &Pairs) {
    for FieldPath { group, version, kind, path, create } in fields {
        if gvk.is(group, version, kind) {
            put(&mut resource.node, &steps(&format!("{path}{below}")), *create, pairs);
        }
    }
}

fn put(node: &mut Node, path: &[String], create: bool, pairs: &Pairs) {
    let Some((_, first)) = pairs.first() else { return };
    let missing = if create { Missing::Map } else { Missing::Nothing };
    visit(node, path, missing, &first.place, &mut |map| {
        for (key, located) in pairs {
            set(map, key, text(&located.place, located.text.clone()));
            // The key gets the new place too.
            if let Some(entry) = entries_mut(map).iter_mut().find(|it| it.key == *key) {
                entry.key_place = located.place.clone();
            }
        }
    });
}

pub(super) fn replicas(resources: &mut [Resource], replica: &Replica, findings: &mut Vec<Finding>) {
    let mut is_found = false;
    for resource in resources {
        let mut ids = resource.earlier_ids();
        ids.push(resource.id());
        if ids.iter().any(|it| it.name == replica.name.text && SCALED.contains(&it.gvk.kind.as_str())) {
            is_found = true;
            let place = &replica.count.place;
            visit(&mut resource.node, &steps("spec/replicas"), Missing::Text, place, &mut |node| {
                *node = replica.count.clone();
            });
        }
    }
    if !is_found {
        let message = format!("no object with replicas is named `{}`", replica.name.text);
        findings.push(replica.name.error(message).help("name a Deployment, StatefulSet or ReplicaSet"));
    }
}

/// Changes images by name, which is a regular expression.
pub(super) fn image(resources: &mut [Resource], image: &Image, findings: &mut Vec<Finding>) {
    let digest = "(@[a-zA-Z0-9]+([.+_-][a-zA-Z0-9]+)*:[a-zA-Z0-9_.{}-]*)?";
    let Ok(pattern) = Regex::new(&format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?{digest}$", image.name.text)) else {
        let message = format!("`{}` is not a regular expression", image.name.text);
        findings.push(image.name.error(message).help("write the name of the image, without its tag"));
        return;
    };
    for resource in resources.iter_mut().filter(|it| it.id().gvk.kind != "CustomResourceDefinition") {
        let mut change = |node: &mut Node| change_image(node, image, &pattern);
        containers(&mut resource.node, &mut change);
        for path in VOLUME_IMAGES {
            let place = image.name.place.clone();
            visit(&mut resource.node, &steps(path), Missing::Nothing, &place, &mut change);
        }
    }
}

/// Calls `change` for every `image` in a list named `containers` or `initContainers`, at any depth.
fn containers(node: &mut Node, change: &mut dyn FnMut(&mut Node)) {
    for item in items_mut(node) {
        containers(item, change);
    }
    for entry in entries_mut(node) {
        containers(&mut entry.value, change);
        if matches!(entry.key.as_str(), "containers" | "initContainers") {
            for container in items_mut(&mut entry.value) {
                if let Some(image) = get_mut(container, "image") {
                    change(image);
                }
            }
        }
    }
}

fn change_image(node: &mut Node, image: &Image, pattern: &Regex) {
    let Kind::Scalar { text: before, .. } = &node.kind else { return };
    if !pattern.is_match(before) {
        return;
    }
    let ImageParts { name, tag, digest } = ImageRef::split(before);
    let (tag, digest) = (tag.unwrap_or_default(), digest.unwrap_or_default());
    let name = image.new_name.as_ref().map_or(name, |it| it.text.as_str());
    let mut after = name.to_owned();
    let new_tag = image.new_tag.as_ref().map(|it| it.text.as_str());
    let new_digest = image.digest.as_ref().map(|it| it.text.as_str());
    let suffix = image.suffix.as_ref().map_or("", |it| it.text.as_str());
    let (tag, digest) = match (new_tag, new_digest) {
        (None, None) if suffix.is_empty() => (tag.to_owned(), digest),
        (None, None) => (format!("{tag}{suffix}"), ""),
        (tag, digest) => (tag.unwrap_or_default().to_owned(), digest.unwrap_or_default()),
    };
    if !tag.is_empty() {
        after = format!("{after}:{tag}");
    }
    if !digest.is_empty() {
        after = format!("{after}@{digest}");
    }
    let located = [&image.new_tag, &image.digest, &image.new_name, &image.suffix];
    let place: Option<&Place> = located.into_iter().flatten().map(|it| &it.place).next();
    if after != *before {
        *node = text(place.unwrap_or(&image.name.place), after);
    }
}
