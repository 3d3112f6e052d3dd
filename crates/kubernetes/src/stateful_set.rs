//! Reads a StatefulSet into one workload per pod, each with a stable name, volumes and DNS names.
//!
//! The planner decides the order in which pods are created and removed.

use std::{collections::BTreeMap, time::Duration};

use super::{
    catalogue::Catalogue,
    container::{Owner, Restarts, Template},
    controller_fields::{
        Amount, MOST, ONE_BY_ONE, check_own_labels, check_selector, history_limit, is_on_delete,
        match_labels, seconds, whole,
    },
    fields, names,
    object::{Head, Key, head},
    pod,
    reader::{Object, Value},
    storage::{Claim, VolumeOwner, check_template, protection_in},
    workload::ReadWorkload,
};
use driftless_model::{Member, Update, Volume, Workload, WorkloadKind, WorkloadName};

/// The most replicas of one StatefulSet; more on one host are taken for a mistake.
const MOST_PODS: u32 = 500;

/// The label that the StatefulSet controller adds, so that a Service can select one pod.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The fields that all pods share.
struct Set<'a> {
    key: Key,
    spec: Object<'a>,
    template: Template<'a>,
    catalogue: &'a Catalogue,
    max_unavailable: u32,
    partition: u32,
    on_delete: bool,
    ordered: bool,
}

/// Reads a StatefulSet.
pub(super) fn read(value: Value<'_>, catalogue: &Catalogue) -> Vec<ReadWorkload> {
    let Some(Head { metadata, spec, key, origin }) = head(value, fields::STATEFUL_SET) else {
        return Vec::new();
    };
    let replicas = spec.integer("replicas", 0..=MOST).map_or(1, whole);
    let start = spec.object("ordinals", fields::ORDINALS).and_then(|it| it.integer("start", 0..=MOST));
    let start = start.map_or(0, whole);
    if let Some(value) = spec.get("replicas").filter(|_| replicas > MOST_PODS) {
        value.error(format!("more than {MOST_PODS} pods of a StatefulSet are not supported on one host"));
        return Vec::new();
    }
    let min_ready = spec.integer("minReadySeconds", 0..=MOST).map_or(0, seconds);
    history_limit(&spec);
    let words = [("OrderedReady", true), ("Parallel", false)];
    let ordered = spec.filled("podManagementPolicy").and_then(|it| it.one_of(&words)).unwrap_or(true);
    check_retention(&spec);
    let template = Template::read(&spec);
    check_selector(&spec, template.as_ref().map(|it| &it.labels));
    let (on_delete, partition, max_unavailable) = update_strategy(&spec, replicas);
    let Some(template) = template else { return Vec::new() };
    check_own_labels(&metadata, &template.labels, "StatefulSet");
    // It counts pods, not ordinals.
    let partition = start.saturating_add(partition);
    let set = Set { key, spec, template, catalogue, max_unavailable, partition, on_delete, ordered };
    let service = set.spec.filled("serviceName").and_then(|it| names::label(&it)).map(str::to_owned);
    // A set without replicas is represented by one workload with 0 replicas.
    let ordinals = start..start.saturating_add(replicas.max(1));
    let pods = ordinals.filter_map(|ordinal| {
        let mut found = set.pod(ordinal, &origin)?;
        found.service.clone_from(&service);
        found.workload.manifest.selector = match_labels(&set.spec);
        found.workload = Workload {
            replicas: replicas.min(1),
            strategy: ONE_BY_ONE,
            min_ready: Duration::from_secs(min_ready),
            ..found.workload
        };
        Some(found)
    });
    pods.collect()
}

impl Set<'_> {
    fn pod(&self, ordinal: u32, origin: &driftless_model::Location) -> Option<ReadWorkload> {
        let Self { key, spec, template, catalogue, max_unavailable, partition, on_delete, ordered } = self;
        let pod_name = format!("{}-{ordinal}", key.name);
        let pod_key = Key::new(&key.namespace, &pod_name);
        let mut labels = template.labels.clone();
        labels.insert(POD_NAME.to_owned(), pod_name.clone());
        labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
        let annotations = template.annotations.clone();
        let template = Template { spec: template.spec.clone(), labels, annotations };
        let owner = Owner {
            kind: "StatefulSet",
            key,
            pod_name: Some(&pod_name),
            job_index: None,
            restarts: Restarts::Always,
            claims: claim_templates(spec, key, &pod_name, catalogue),
            catalogue,
        };
        let read = pod::read(&template, &owner, &pod_key)?;
        let mut found = ReadWorkload::new(pod_key, origin.clone(), "StatefulSet", template.labels, read);
        found.workload.kind = WorkloadKind::StatefulSetPod(Member {
            of: WorkloadName(key.dotted()),
            ordinal,
            ordered: *ordered,
            max_unavailable: *max_unavailable,
        });
        found.workload.update = match on_delete {
            true => Update::OnDelete,
            false if ordinal < *partition => Update::Never,
            false => Update::Rolling,
        };
        found.workload.container_name = Some(catalogue.name_in_docker(&found.key));
        found.object = key.clone();
        found.pod_name = Some(pod_name);
        Some(found)
    }
}

/// The update strategy: `OnDelete`, the partition, and `maxUnavailable`.
fn update_strategy(spec: &Object<'_>, replicas: u32) -> (bool, u32, u32) {
    let Some(object) = spec.object("updateStrategy", fields::UPDATE_STRATEGY) else { return (false, 0, 1) };
    let on_delete = is_on_delete(&object);
    let Some(rolling) = object.object("rollingUpdate", fields::SET_ROLLING_UPDATE) else {
        return (on_delete, 0, 1);
    };
    if on_delete {
        rolling.value.error_help("is not allowed when the type is `OnDelete`", "remove it, or the type");
    }
    let partition = rolling.integer("partition", 0..=MOST).map_or(0, whole);
    let Some(value) = rolling.get("maxUnavailable") else { return (on_delete, partition, 1) };
    let amount = Amount::read(&value).unwrap_or(Amount::Number(1));
    if amount.is_zero() && replicas > 0 {
        value.error_help("must be more than 0, or no pod could ever be replaced", "set it to 1 or more");
    }
    // Rounded down, unlike the comment of the field says: `getStatefulSetMaxUnavailable` of the controller.
    (on_delete, partition, amount.of(replicas, |part, whole| part / whole).max(1))
}

/// The retention policy has no effect: volumes are never removed unasked.
fn check_retention(spec: &Object<'_>) {
    let Some(policy) = spec.object("persistentVolumeClaimRetentionPolicy", fields::RETENTION) else { return };
    for field in ["whenDeleted", "whenScaled"] {
        if let Some(value) = policy.filled(field)
            && value.one_of(&[("Retain", false), ("Delete", true)]) == Some(true)
        {
            value.warning("has no effect: volumes are never removed");
        }
    }
}

/// The storage of one pod, by the name of the claim template. A claim with the name that the controller would give it is used, and so
/// is a PersistentVolume that is kept for it.
fn claim_templates<'a>(
    spec: &Object<'a>,
    key: &Key,
    pod_name: &str,
    catalogue: &Catalogue,
) -> BTreeMap<&'a str, Claim> {
    let mut claims = BTreeMap::new();
    for item in spec.items("volumeClaimTemplates") {
        let Some(template) = item.object(fields::CLAIM_TEMPLATE) else { continue };
        let metadata = template.require("metadata").and_then(|it| it.object(fields::METADATA));
        let claim = template.require("spec").and_then(|it| it.object(fields::CLAIM));
        if let Some(claim) = claim {
            check_template(&claim);
        }
        let Some(metadata) = metadata else { continue };
        let Some(name) = metadata.require("name") else { continue };
        let Some(text) = names::label(&name) else { continue };
        let key = Key::new(&key.namespace, &format!("{text}-{pod_name}"));
        let made = || {
            let (name, labels) = (key.dotted(), protection_in(metadata.value.node));
            let volume = Volume { key: name.clone(), labels, ..Volume::default() };
            Claim::Named { name, volume, owner: VolumeOwner::Claim(key.clone()) }
        };
        claims.insert(text, catalogue.claim_of_template(&key).unwrap_or_else(made));
    }
    claims
}
