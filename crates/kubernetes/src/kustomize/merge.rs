//! Strategic merge patches: a part of an object, merged into it. Maps are merged; a list is replaced, or, if Kubernetes
//! defines a merge key for it, merged item by item. Null removes a field; `$patch` is `delete`, `replace` or `merge`.
//!
//! As in kustomize, items that a patch adds to a merged list come first. Unlike in kustomize, `$patch: replace` also
//! works
//! inside such a list, and a port without a protocol is a TCP port, as in the API server.

#![allow(
    clippy::result_large_err,
    reason = "a finding ends the step that it is about, so its size is paid once"
)]

use driftless_model::Finding;
use driftless_yaml::{Entry, Kind, Node, edit::is_mapping, edit::mapping, edit::sequence, join};

/// The key of directives in a patch.
const DIRECTIVE: &str = "$patch";

/// The rules by which the fields of a map are merged. Other fields are replaced.
pub(super) struct MergeSchema(&'static [(&'static str, MergeRule)]);

enum MergeRule {
    Map(&'static MergeSchema),
    /// A list of maps that these keys identify, each key with the default of a missing value.
    List(&'static [(&'static str, &'static str)], Option<&'static MergeSchema>),
    /// A list of distinct texts.
    Set,
}

use MergeRule::{List, Map, Set};

const BY_NAME: &[(&str, &str)] = &[("name", "")];

static METADATA: MergeSchema =
    MergeSchema(&[("finalizers", Set), ("ownerReferences", List(&[("uid", "")], None))]);

static CONTAINER: MergeSchema = MergeSchema(&[
    ("env", List(BY_NAME, None)),
    ("ports", List(&[("containerPort", ""), ("protocol", "TCP")], None)),
    ("volumeDevices", List(&[("devicePath", "")], None)),
    ("volumeMounts", List(&[("mountPath", "")], None)),
]);

static POD: MergeSchema = MergeSchema(&[
    ("containers", List(BY_NAME, Some(&CONTAINER))),
    ("ephemeralContainers", List(BY_NAME, Some(&CONTAINER))),
    ("hostAliases", List(&[("ip", "")], None)),
    ("imagePullSecrets", List(BY_NAME, None)),
    ("initContainers", List(BY_NAME, Some(&CONTAINER))),
    ("topologySpreadConstraints", List(&[("topologyKey", ""), ("whenUnsatisfiable", "DoNotSchedule")], None)),
    ("volumes", List(BY_NAME, None)),
]);

static TEMPLATE: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA)), ("spec", Map(&POD))]);
static CONTROLLER: MergeSchema = MergeSchema(&[("template", Map(&TEMPLATE))]);
static JOB_TEMPLATE: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA)), ("spec", Map(&CONTROLLER))]);
static CRON: MergeSchema = MergeSchema(&[("jobTemplate", Map(&JOB_TEMPLATE))]);
static SERVICE: MergeSchema = MergeSchema(&[("ports", List(&[("port", ""), ("protocol", "TCP")], None))]);

static WITH_POD: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA)), ("spec", Map(&POD))]);
static WITH_TEMPLATE: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA)), ("spec", Map(&CONTROLLER))]);
static CRON_JOB: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA)), ("spec", Map(&CRON))]);
static POD_TEMPLATE: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA)), ("template", Map(&TEMPLATE))]);
static WITH_PORTS: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA)), ("spec", Map(&SERVICE))]);
static ACCOUNT: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA)), ("secrets", List(BY_NAME, None))]);
static WEBHOOKS: MergeSchema =
    MergeSchema(&[("metadata", Map(&METADATA)), ("webhooks", List(BY_NAME, None))]);
static OTHER: MergeSchema = MergeSchema(&[("metadata", Map(&METADATA))]);

/// The schema of a built-in kind. Other kinds have none, so their lists are replaced.
pub(super) fn type_of(group: &str, kind: &str) -> Option<&'static MergeSchema> {
    Some(match (group, kind) {
        ("", "Pod") => &WITH_POD,
        ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job")
        | ("", "ReplicationController") => &WITH_TEMPLATE,
        ("batch", "CronJob") => &CRON_JOB,
        ("", "PodTemplate") => &POD_TEMPLATE,
        ("", "Service") => &WITH_PORTS,
        ("", "ServiceAccount") => &ACCOUNT,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => &WEBHOOKS,
        _ if group.is_empty() || group.ends_with(".k8s.io") || matches!(group, "autoscaling" | "policy") => {
            &OTHER
        }
        _ => return None,
    })
}

impl MergeSchema {
    fn field(&self, key: &str) -> Option<&'static MergeRule> {
        let Self(fields) = self;
        fields.iter().find(|(name, _)| *name == key).map(|(_, field)| field)
    }
}

/// Merges a patch into an object. `None`: the patch removes it.
pub(super) fn merge(
    node: Node,
    over: &Node,
    known: Option<&'static MergeSchema>,
) -> Result<Option<Node>, Finding> {
    let known = known.map(Map);
    lay(Some(node), over, known.as_ref(), "")
}

fn lay(
    node: Option<Node>,
    over: &Node,
    known: Option<&MergeRule>,
    path: &str,
) -> Result<Option<Node>, Finding> {
    if over.is_null() {
        return Ok(None);
    }
    let Some(node) = node.filter(|it| !it.is_null()) else { return fresh(over, known, path) };
    let Node { kind, place, tag } = node;
    match (kind, &over.kind) {
        (Kind::Mapping(own), Kind::Mapping(entries)) => match directive(over, path)? {
            Directive::Delete => Ok(None),
            Directive::Replace => fresh(over, known, path),
            Directive::Merge => {
                let own = lay_map(own, entries, known, path)?;
                Ok(Some(Node { kind: Kind::Mapping(own), place, tag }))
            }
        },
        (Kind::Sequence(own), Kind::Sequence(items)) => match known {
            Some(List(keys, inner)) => {
                let (order, rest) = list_directive(items, path)?;
                match order {
                    Directive::Delete => Ok(None),
                    Directive::Replace => fresh_list(over, &rest, inner.map(Map).as_ref(), path),
                    Directive::Merge => {
                        let items = lay_list(own, &rest, keys, inner.map(Map).as_ref(), path)?;
                        Ok(Some(Node { kind: Kind::Sequence(items), place, tag }))
                    }
                }
            }
            Some(Set) => {
                let mut found = items.clone();
                let is_new = |it: &Node| items.iter().all(|other| other.as_scalar() != it.as_scalar());
                found.extend(own.into_iter().filter(is_new));
                Ok(Some(Node { kind: Kind::Sequence(found), place, tag }))
            }
            Some(Map(_)) | None => Ok(Some(over.clone())),
        },
        // A quoted text stays text, so that `value: 8080` over `value: "80"` gives `"8080"`.
        (Kind::Scalar { plain: false, .. }, Kind::Scalar { text, .. }) => {
            let kind = Kind::Scalar { text: text.clone(), plain: false };
            Ok(Some(Node { kind, place: over.place.clone(), tag: None }))
        }
        (Kind::Scalar { .. }, Kind::Scalar { .. }) => Ok(Some(over.clone())),
        (kind, _) => {
            let was = Node { kind, place: place.clone(), tag }.kind_name();
            let message = format!(
                "is a {}, but the value that it patches at {} is a {was}",
                over.kind_name(),
                place.location()
            );
            Err(over.finding(path, message).help("give it the same form, or delete the field first"))
        }
    }
}

fn lay_map(
    mut own: Vec<Entry>,
    entries: &[Entry],
    known: Option<&MergeRule>,
    path: &str,
) -> Result<Vec<Entry>, Finding> {
    for Entry { key, key_place, value } in entries.iter().filter(|it| it.key != DIRECTIVE) {
        let inner = inner(known, key);
        let at = own.iter().position(|it| it.key == *key);
        let before = at.map(|it| own.remove(it));
        let (before, place) = match before {
            Some(it) => (Some(it.value), it.key_place),
            None => (None, key_place.clone()),
        };
        if let Some(value) = lay(before, value, inner, &join(path, key))? {
            let entry = Entry { key: key.clone(), key_place: place, value };
            own.insert(at.unwrap_or(own.len()), entry);
        }
    }
    Ok(own)
}

fn inner<'f>(known: Option<&'f MergeRule>, key: &str) -> Option<&'f MergeRule> {
    match known? {
        Map(known) => known.field(key),
        List(..) | Set => None,
    }
}

/// Merges items with the same keys. If several keys identify items, existing items keep their positions.
fn lay_list(
    own: Vec<Node>,
    items: &[&Node],
    keys: &[(&str, &str)],
    known: Option<&MergeRule>,
    path: &str,
) -> Result<Vec<Node>, Finding> {
    let has_all = |it: &Node| keys.iter().all(|(key, _)| it.get(key).is_some());
    let keep_places = keys.len() > 1 && own.iter().chain(items.iter().copied()).any(has_all);
    let mut rest: Vec<Option<Node>> = own.into_iter().map(Some).collect();
    let mut first: Vec<(Vec<&str>, Node)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = join(path, &format!("[{index}]"));
        let id = item_id(item, keys).ok_or_else(|| {
            let (key, _) = keys.first().copied().unwrap_or_default();
            item.finding(path.clone(), format!("`{key}` is missing, which identifies the items of this list"))
        })?;
        if let Some(at) = first.iter().position(|(it, _)| *it == id) {
            let (_, before) = first.remove(at);
            if let Some(node) = lay(Some(before), item, known, &path)? {
                first.insert(at, (id, node));
            }
            continue;
        }
        let mut same =
            rest.iter_mut().filter(|it| it.as_ref().and_then(|it| item_id(it, keys)).as_ref() == Some(&id));
        let slot = same.next();
        let before = slot.as_ref().and_then(|it| it.as_ref()).cloned();
        // The reader of the object reports an item that occurs twice.
        let merged = lay(before, item, known, &path)?;
        match slot {
            Some(slot) if keep_places => *slot = merged,
            Some(slot) => {
                *slot = None;
                first.extend(merged.map(|it| (id, it)));
            }
            None => first.extend(merged.map(|it| (id, it))),
        }
    }
    Ok(first.into_iter().map(|(_, it)| it).chain(rest.into_iter().flatten()).collect())
}

/// The values of the keys. `None`: the first key is missing.
fn item_id<'n>(item: &'n Node, keys: &[(&str, &'n str)]) -> Option<Vec<&'n str>> {
    let value = |key: &str| item.get(key).filter(|it| !it.is_null()).and_then(Node::as_scalar);
    let (first, _) = keys.first()?;
    value(first)?;
    Some(keys.iter().map(|(key, otherwise)| value(key).unwrap_or(otherwise)).collect())
}

/// A part of a patch for a field that did not exist. Its nulls and directives are dropped.
fn fresh(over: &Node, known: Option<&MergeRule>, path: &str) -> Result<Option<Node>, Finding> {
    match (&over.kind, known) {
        (Kind::Mapping(entries), _) => {
            if directive(over, path)? == Directive::Delete {
                return Ok(None);
            }
            let mut made = mapping(&over.place, []);
            made.kind = Kind::Mapping(lay_map(Vec::new(), entries, known, path)?);
            made.tag.clone_from(&over.tag);
            Ok(Some(made))
        }
        (Kind::Sequence(items), Some(List(_, inner))) => {
            let (order, rest) = list_directive(items, path)?;
            if order == Directive::Delete {
                return Ok(None);
            }
            fresh_list(over, &rest, inner.map(Map).as_ref(), path)
        }
        (Kind::Sequence(_) | Kind::Scalar { .. }, _) => Ok(Some(over.clone())),
    }
}

fn fresh_list(
    over: &Node,
    items: &[&Node],
    known: Option<&MergeRule>,
    path: &str,
) -> Result<Option<Node>, Finding> {
    let mut found = Vec::new();
    for (index, item) in items.iter().enumerate() {
        found.extend(fresh(item, known, &join(path, &format!("[{index}]")))?);
    }
    Ok(Some(sequence(&over.place, found)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

/// The directive of a map.
fn directive(over: &Node, path: &str) -> Result<Directive, Finding> {
    if let Some(entry) = over.entries().iter().find(|it| it.key.starts_with('$') && it.key != DIRECTIVE) {
        let message = format!("kustomize has no directive `{}`", entry.key);
        let finding = Finding::error(entry.key_place.location(), join(path, &entry.key), message);
        return Err(finding.help("use `$patch`, or a JSON patch"));
    }
    let Some(order) = over.get(DIRECTIVE) else { return Ok(Directive::Merge) };
    match order.as_scalar() {
        Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some(_) | None => Err(order
            .finding(join(path, DIRECTIVE), "is not a directive of a strategic merge patch")
            .help("use `delete`, `replace` or `merge`")),
    }
}

/// The directive for the whole list, which is an item with only that key, and the other items.
fn list_directive<'n>(items: &'n [Node], path: &str) -> Result<(Directive, Vec<&'n Node>), Finding> {
    let is_order = |it: &&Node| is_mapping(it) && it.entries().len() == 1 && it.get(DIRECTIVE).is_some();
    let order = match items.iter().find(is_order) {
        Some(it) => directive(it, path)?,
        None => Directive::Merge,
    };
    Ok((order, items.iter().filter(|it| !is_order(it)).collect()))
}
