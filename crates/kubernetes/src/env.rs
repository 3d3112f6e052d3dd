//! Environment variables: literal, from ConfigMaps and Secrets, or from fields of the pod.
//!
//! `envFrom` comes first and `env` wins; of two with one name the last counts; each may refer to those above it
//! with `$(NAME)`, as the kubelet does it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    catalogue::{Catalogue, DataKind},
    fields, names,
    object::{Key, help_with_namespace},
    quantity::Quantity,
    reader::{Object, Value},
    resources::quantity,
};
use driftless_model::{Downward, downward, label};
use driftless_yaml::Node;

/// The bytes that a variable takes in addition to its name and value.
const ENTRY: usize = 64;

/// The variable with the index of a pod of an Indexed Job.
const JOB_INDEX: &str = "JOB_COMPLETION_INDEX";

/// The fields of a pod that its containers can refer to.
pub(super) struct About<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) namespace: &'a str,
    /// The pod's stable name, if it has one.
    pub(super) pod_name: Option<&'a str>,
    /// The index of a pod of an Indexed Job.
    pub(super) job_index: Option<u32>,
    pub(super) service_account: &'a str,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) annotations: &'a BTreeMap<String, String>,
    /// The `spec` of the pod.
    pub(super) pod: &'a Node,
    /// Whether it uses the host's network.
    pub(super) is_on_host: bool,
    /// Whether it is the template of a CronJob, each run of which has a name of its own.
    pub(super) is_cron_job: bool,
}

impl About<'_> {
    /// The containers of the pod by name.
    fn container(&self, name: &str) -> Option<&Node> {
        let lists = ["initContainers", "containers"].into_iter().filter_map(|it| self.pod.get(it));
        lists.flat_map(Node::items).find(|it| it.get("name").and_then(Node::as_scalar) == Some(name))
    }
}

/// The variables of a container.
#[derive(Default)]
pub(super) struct Variables {
    pub(super) values: BTreeMap<String, String>,
    /// Variables whose values come from a Secret, directly or through another variable.
    pub(super) secret: BTreeSet<String>,
}

impl Variables {
    /// Sets a variable whose value is a copy of a text.
    fn copy(&mut self, name: &str, text: &str, is_secret: bool, place: &Value<'_>, about: &About<'_>) {
        let report = |message, help| place.error_help(message, help);
        if about.catalogue.room.take(name.len() + text.len() + ENTRY, report) {
            self.set(name, text.to_owned(), is_secret);
        }
    }

    fn set(&mut self, name: &str, value: String, is_secret: bool) {
        self.values.insert(name.to_owned(), value);
        if is_secret {
            self.secret.insert(name.to_owned());
        } else {
            self.secret.remove(name);
        }
    }

    /// Expands a value with the variables above it; also returns whether any of them is secret.
    fn expand(&self, value: &Value<'_>, text: &str, about: &About<'_>) -> (String, bool) {
        let is_secret = self.secret.iter().any(|it| text.contains(&format!("$({it})")));
        (about.catalogue.room.expand(value, text, &self.values), is_secret)
    }
}

/// Reads `envFrom` and `env` of a container.
pub(super) fn read(object: &Object<'_>, about: &About<'_>) -> Variables {
    let mut variables = Variables::default();
    for item in object.items("envFrom") {
        let Some(source) = item.object(fields::ENV_FROM) else { continue };
        read_all(&source, about, &mut variables);
    }
    let mut lines: BTreeMap<&str, u32> = BTreeMap::new();
    for item in object.items("env") {
        let Some(variable) = item.object(fields::ENV) else { continue };
        let Some(name) = variable.require("name") else { continue };
        let Some(text) = names::variable(&name) else { continue };
        if let Some(line) = lines.insert(text, name.place().line) {
            name.warning(format!("`{text}` is already defined at line {line}; this one replaces it"));
        }
        let value = match variable.get("valueFrom") {
            None => {
                let value = variable.get("value");
                let text = value.as_ref().map_or(Some(""), Value::string).unwrap_or_default();
                Some(variables.expand(value.as_ref().unwrap_or(&name), text, about))
            }
            Some(from) if variable.get("value").is_some_and(|it| it.node.as_scalar() != Some("")) => {
                from.error_help("is set together with `value`", "remove one of the two");
                None
            }
            Some(from) => {
                if let Some((value, is_secret)) = value_from(from.clone(), object, about) {
                    variables.copy(text, &value, is_secret, &from, about);
                }
                None
            }
        };
        if let Some((value, is_secret)) = value {
            variables.set(text, value, is_secret);
        }
    }
    // The controller appends it to `env`.
    if let Some(index) = about.job_index {
        variables.set(JOB_INDEX, index.to_string(), false);
    }
    variables
}

fn read_all(source: &Object<'_>, about: &About<'_>, variables: &mut Variables) {
    source.only_one(|it| it != "prefix");
    let prefix = source.string("prefix").unwrap_or_default();
    let sources = [("configMapRef", DataKind::ConfigMap), ("secretRef", DataKind::Secret)];
    for (field, kind) in sources {
        let Some(reference) = source.object(field, fields::DATA_REF) else { continue };
        let Some(key) = data_key(&reference, about.namespace) else { continue };
        let Some(data) = about.catalogue.data(kind, &key) else {
            missing(&reference, kind, &key, about.catalogue);
            continue;
        };
        for (name, bytes) in &data.entries {
            let name = format!("{prefix}{name}");
            match std::str::from_utf8(bytes) {
                Ok(text) if names::is_variable(&name) => {
                    variables.copy(&name, text, kind == DataKind::Secret, &reference.value, about);
                }
                // The kubelet skips them as well, with an event.
                Ok(_) => {
                    reference.value.warning(format!("`{name}` is not a valid variable name and is left out"));
                }
                Err(_) => reference.value.warning(format!("`{name}` is not text and is left out")),
            }
        }
    }
    if source.get("configMapRef").is_none() && source.get("secretRef").is_none() {
        source.value.error("names neither a ConfigMap nor a Secret");
    }
}

/// A referenced value, and whether it is secret. `None` if there is none, which is an error unless it is optional.
fn value_from(value: Value<'_>, container: &Object<'_>, about: &About<'_>) -> Option<(String, bool)> {
    let from = value.object(fields::VALUE_FROM)?;
    from.only_one(|_| true);
    for (field, kind) in [("configMapKeyRef", DataKind::ConfigMap), ("secretKeyRef", DataKind::Secret)] {
        if let Some(reference) = from.object(field, fields::DATA_KEY_REF) {
            return data_value(&reference, kind, about).map(|it| (it, kind == DataKind::Secret));
        }
    }
    if let Some(reference) = from.object("fieldRef", fields::FIELD_REF) {
        return field(&reference.require("fieldPath")?, about).map(|it| (it, false));
    }
    if let Some(reference) = from.object("resourceFieldRef", fields::RESOURCE_FIELD_REF) {
        return resource(&reference, Some(container.value.node), about).map(|it| (it, false));
    }
    if from.value.node.entries().is_empty() {
        from.value.error("the value has no source: add a `configMapKeyRef`, `secretKeyRef`, `fieldRef` or `resourceFieldRef`");
    }
    None
}

fn data_value(reference: &Object<'_>, kind: DataKind, about: &About<'_>) -> Option<String> {
    let name = data_key(reference, about.namespace)?;
    let key = reference.require("key")?;
    let Some(data) = about.catalogue.data(kind, &name) else {
        missing(reference, kind, &name, about.catalogue);
        return None;
    };
    let Some(bytes) = data.entries.get(key.text()?) else {
        if !is_optional(reference) {
            let known: Vec<&str> = data.entries.keys().map(String::as_str).collect();
            key.error_help(
                format!("the {} `{}` has no such key", kind.as_str(), name.name),
                format!("it has {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") }),
            );
        }
        return None;
    };
    let text = std::str::from_utf8(bytes).ok().filter(|it| !it.contains('\0'));
    if text.is_none() {
        key.error_help("is not text, which a variable must be", "mount it as a file");
    }
    text.map(str::to_owned)
}

/// The object that a reference names, in the pod's own namespace.
pub(super) fn data_key(reference: &Object<'_>, namespace: &str) -> Option<Key> {
    let name = reference.require("name")?;
    names::subdomain(&name).map(|it| Key::new(namespace, it))
}

pub(super) fn is_optional(reference: &Object<'_>) -> bool {
    reference.boolean("optional").unwrap_or(false)
}

/// Reports a reference to an object that the application does not define.
pub(super) fn missing(reference: &Object<'_>, kind: DataKind, key: &Key, catalogue: &Catalogue) {
    if is_optional(reference) {
        return;
    }
    let elsewhere = help_with_namespace(catalogue.data_named(kind, &key.name), &key.namespace, "pod");
    let kind = kind.as_str();
    let place = reference.get("name").or_else(|| reference.get("secretName"));
    let (message, help) = match elsewhere {
        Some(help) => (format!("there is no {kind} `{}` in the namespace of this pod", key.name), help),
        None => (
            format!("there is no {kind} `{}` in this application", key.dotted()),
            format!("add the {kind} to its manifests, or set `optional: true`"),
        ),
    };
    catalogue.report_missing(place.as_ref().unwrap_or(&reference.value), message, help);
}

/// The `fieldRef` paths that are known only after the pod is created.
const OF_RUNNING: &[(&str, Downward)] = &[
    ("metadata.name", Downward::PodName),
    ("spec.nodeName", Downward::NodeName),
    ("status.podIP", Downward::PodIp),
    ("status.podIPs", Downward::PodIp),
    ("status.hostIP", Downward::HostIp),
    ("status.hostIPs", Downward::HostIp),
];

/// Whether a variable of these containers needs the pod's address. Then the pod gets a pause container, because the
/// address must exist before the container that refers to it.
pub(super) fn wants_address<'a>(mut containers: impl Iterator<Item = &'a Node>) -> bool {
    containers.any(|it| it.get("env").map(Node::items).unwrap_or_default().iter().any(is_address))
}

/// Whether a variable is an address of the pod or its host.
pub(super) fn is_address(variable: &Node) -> bool {
    let path = variable.get("valueFrom").and_then(|it| it.get("fieldRef")?.get("fieldPath")?.as_scalar());
    OF_RUNNING.iter().any(|(name, told)| Some(*name) == path && told.is_address())
}

/// The value of a `fieldRef`; a mark if it is known only after the pod is created.
pub(super) fn field(path: &Value<'_>, about: &About<'_>) -> Option<String> {
    let text = path.text()?;
    if let Some(key) = subscript(text, "metadata.labels") {
        if about.is_cron_job && label::JOB_NAMES.contains(&key) {
            return Some(downward::job_name_mark());
        }
        return Some(about.labels.get(key).cloned().unwrap_or_default());
    }
    if let Some(key) = subscript(text, "metadata.annotations") {
        return Some(about.annotations.get(key).cloned().unwrap_or_default());
    }
    let of_running = OF_RUNNING.iter().find(|(name, _)| *name == text).map(|(_, told)| *told);
    let is_of_host = about.is_on_host && of_running.is_some_and(Downward::is_address);
    match text {
        _ if is_of_host => path.error_help(
            "is not a single address: a pod in the network of the host has all addresses of the host",
            "read the addresses in the program, or remove `hostNetwork`",
        ),
        "metadata.namespace" => return Some(about.namespace.to_owned()),
        "spec.serviceAccountName" => return Some(about.service_account.to_owned()),
        "metadata.name" if about.pod_name.is_some() => return about.pod_name.map(str::to_owned),
        "metadata.uid" => {
            path.error_help("is not supported: pods have no unique id here", "use `metadata.name`");
        }
        _ => match of_running {
            Some(told) => return Some(told.mark()),
            None => path.error(format!("`{text}` is not a pod field that a container can refer to")),
        },
    }
    None
}

/// `key` of `metadata.labels['key']`.
fn subscript<'t>(text: &'t str, of: &str) -> Option<&'t str> {
    text.strip_prefix(of)?.strip_prefix("['")?.strip_suffix("']")
}

/// The value of a `resourceFieldRef`: a limit or request of the named container (default: `own`), divided by the divisor
/// and rounded up.
pub(super) fn resource(reference: &Object<'_>, own: Option<&Node>, about: &About<'_>) -> Option<String> {
    let container = match (reference.filled("containerName"), own) {
        (None, Some(own)) => own,
        (None, None) => {
            if let Some(empty) = reference.require("containerName") {
                empty.error("the pod has no container with this name");
            }
            return None;
        }
        (Some(name), _) => {
            let found = about.container(name.text()?);
            if found.is_none() {
                name.error("the pod has no container with this name");
            }
            found?
        }
    };
    let path = reference.require("resource")?;
    let text = path.text()?;
    let divisor = match reference.get("divisor") {
        None => Quantity::ONE,
        Some(value) => match quantity(&value)? {
            it if it.is_zero() => Quantity::ONE,
            it => it,
        },
    };
    let (group, name) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(group, "limits" | "requests") || !matches!(name, "cpu" | "memory") {
        let message = format!("`{text}` is not a resource that a container can refer to");
        path.error_help(message, "use limits.cpu, limits.memory, requests.cpu or requests.memory");
        return None;
    }
    let amount_of = |group| container.get("resources")?.get(group)?.get(name).filter(|it| !it.is_null());
    // The API server sets a missing request to the limit.
    let limit = || amount_of("limits").filter(|_| group == "requests");
    let given = amount_of(group).or_else(limit);
    // The capacity of the host counts for limits only.
    if given.is_none() && group == "requests" {
        return Some("0".to_owned());
    }
    let Some(amount) = given.and_then(|it| it.as_scalar()).and_then(Quantity::parse) else {
        path.error_help(
            format!("the container sets no {text}, and the capacity of the host is not known when the manifest is read"),
            format!("set `resources.{text}`"),
        );
        return None;
    };
    amount.divided_by(divisor).map(|it| it.to_string())
}
