//! The other owners of pods: StatefulSet, DaemonSet, Job, and a Pod by itself.
//!
//! On one host a DaemonSet is one instance, and a StatefulSet of one replica is one instance with a name that
//! stays. What only several of them could tell apart (ordinals, a volume for each) is refused, not approximated.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Found,
    catalogue::{Catalogue, Identity, Key, identity},
    container::{self, Owner, Restarts, Template},
    deployment::{MOST, check_own_labels, check_selector, history_limit, seconds, whole},
    fields, names,
    reader::{Object, Value},
    service,
    storage::check_template,
};
use crate::model::{Location, Strategy, Workload};

/// One instance is gone before the next one starts: what holds a name or a volume is there once.
const ONE_BY_ONE: Strategy = Strategy::RollingUpdate { max_surge: 0, max_unavailable: 1 };

/// An object's `metadata` and `spec`, and who it is.
struct Head<'a> {
    metadata: Object<'a>,
    spec: Object<'a>,
    key: Key,
    origin: Location,
}

fn head(value: Value<'_>, table: fields::Fields) -> Option<Head<'_>> {
    let object = value.object(fields::OBJECT)?;
    let metadata = object.require("metadata").and_then(|it| it.object(fields::METADATA));
    let spec = object.require("spec").and_then(|it| it.object(table));
    let metadata = metadata?;
    let Identity { key, origin } = identity(&metadata)?;
    Some(Head { metadata, spec: spec?, key, origin })
}

/// A set of instances with names that stay, as far as one instance can be a set.
pub(super) fn stateful_set(value: Value<'_>, catalogue: &Catalogue) -> Option<Found> {
    let Head { metadata, spec, key, origin } = head(value, fields::STATEFUL_SET)?;
    let replicas = spec.integer("replicas", 0..=MOST).map_or(1, whole);
    if let Some(value) = spec.get("replicas").filter(|_| replicas > 1) {
        let message = "more than one replica of a StatefulSet is not supported yet: each would need a name and \
                       volumes of its own";
        value.error_help(message, "set it to 1, or use a Deployment if the instances are equal");
    }
    let min_ready = spec.integer("minReadySeconds", 0..=MOST).map_or(0, seconds);
    history_limit(&spec);
    update_strategy(&spec);
    let start = spec.object("ordinals", fields::ORDINALS).and_then(|it| it.integer("start", 0..=MOST));
    let pod_name = format!("{}-{}", key.name, start.unwrap_or(0));
    let template = Template::read(&spec);
    check_selector(&spec, template.as_ref().map(|it| &it.labels));
    let template = template?;
    check_own_labels(&metadata, &template.labels, "StatefulSet");
    let owner = Owner {
        kind: "StatefulSet",
        key: &key,
        pod_name: Some(&pod_name),
        restarts: Restarts::Always,
        claims: claim_templates(&spec, &key, &pod_name),
        catalogue,
    };
    let pod = container::read(&template, &owner)?;
    let service = service::service_name(&spec).map(str::to_owned);
    let mut found = Found::new(key.clone(), origin, "StatefulSet", template.labels, pod);
    found.workload = Workload {
        replicas,
        strategy: ONE_BY_ONE,
        min_ready: Duration::from_secs(min_ready),
        ..found.workload
    };
    found.pod_name = Some(pod_name);
    found.service = service;
    Some(found)
}

fn update_strategy(spec: &Object<'_>) {
    let Some(object) = spec.object("updateStrategy", fields::UPDATE_STRATEGY) else { return };
    let words = [("RollingUpdate", true), ("OnDelete", false)];
    if let Some(value) = object.get("type")
        && value.one_of(&words) == Some(false)
    {
        let message =
            "`OnDelete` is not supported: what runs is as Git says, without somebody deleting it first";
        value.error_help(message, "remove it");
    }
    let Some(rolling) = object.object("rollingUpdate", fields::SET_ROLLING_UPDATE) else { return };
    if let Some(value) = rolling.get("partition")
        && value.integer(0..=MOST).is_some_and(|it| it > 0)
    {
        value.error_help("would hold back the update of the only instance for ever", "remove it");
    }
}

/// The volumes that a StatefulSet claims for its instance, by the name of the template.
fn claim_templates<'a>(spec: &Object<'a>, key: &Key, pod_name: &str) -> BTreeMap<&'a str, String> {
    let mut claims = BTreeMap::new();
    for item in spec.items("volumeClaimTemplates") {
        let Some(template) = item.object(fields::CLAIM_TEMPLATE) else { continue };
        let metadata = template.require("metadata").and_then(|it| it.object(fields::METADATA));
        let claim = template.require("spec").and_then(|it| it.object(fields::CLAIM));
        if let Some(claim) = claim {
            check_template(&claim);
        }
        let Some(name) = metadata.and_then(|it| it.require("name")) else { continue };
        let Some(text) = names::label(&name) else { continue };
        let volume = Key::new(&key.namespace, &format!("{text}-{pod_name}")).dotted();
        claims.insert(text, volume);
    }
    claims
}

/// One instance on each host, and there is one host.
pub(super) fn daemon_set(value: Value<'_>, catalogue: &Catalogue) -> Option<Found> {
    let Head { metadata, spec, key, origin } = head(value, fields::DAEMON_SET)?;
    let min_ready = spec.integer("minReadySeconds", 0..=MOST).map_or(0, seconds);
    history_limit(&spec);
    update_strategy(&spec);
    let template = Template::read(&spec);
    check_selector(&spec, template.as_ref().map(|it| &it.labels));
    let template = template?;
    check_own_labels(&metadata, &template.labels, "DaemonSet");
    let owner = Owner {
        kind: "DaemonSet",
        key: &key,
        pod_name: None,
        restarts: Restarts::Always,
        claims: BTreeMap::new(),
        catalogue,
    };
    let pod = container::read(&template, &owner)?;
    let mut found = Found::new(key, origin, "DaemonSet", template.labels, pod);
    found.workload =
        Workload { strategy: ONE_BY_ONE, min_ready: Duration::from_secs(min_ready), ..found.workload };
    Some(found)
}

/// A pod without an owner: one instance, replaced when it changes.
pub(super) fn pod(value: Value<'_>, catalogue: &Catalogue) -> Option<Found> {
    let Head { metadata, spec, key, origin } = head(value, fields::POD)?;
    let text = |field: &str| metadata.get(field);
    let template = Template {
        labels: text("labels").map(|it| names::labels(&it)).unwrap_or_default(),
        annotations: text("annotations").map(|it| names::annotations(&it)).unwrap_or_default(),
        spec,
    };
    let owner = Owner {
        kind: "Pod",
        key: &key,
        pod_name: Some(&key.name),
        restarts: Restarts::Any,
        claims: BTreeMap::new(),
        catalogue,
    };
    let pod = container::read(&template, &owner)?;
    let mut found = Found::new(key.clone(), origin, "Pod", template.labels, pod);
    found.workload = Workload { strategy: Strategy::Recreate, ..found.workload };
    found.pod_name = Some(key.name);
    Some(found)
}

/// Work that ends: one instance that runs until it succeeds, or has failed too often.
pub(super) fn job(value: Value<'_>, catalogue: &Catalogue) -> Option<Found> {
    let Head { metadata, spec, key, origin } = head(value, fields::JOB)?;
    for field in ["completions", "parallelism"] {
        if let Some(value) = spec.get(field)
            && value.integer(0..=MOST).is_some_and(|it| it != 1)
        {
            value.error_help("other than 1 is not supported yet", "set it to 1");
        }
    }
    let retries = spec.integer("backoffLimit", 0..=MOST).map_or(6, whole);
    let suspended = spec.boolean("suspend").unwrap_or(false);
    if let Some(selector) = spec.get("selector") {
        selector.warning("has no effect: a Job knows its instance by its name");
    }
    let template = Template::read(&spec)?;
    check_own_labels(&metadata, &template.labels, "Job");
    let owner = Owner {
        kind: "Job",
        key: &key,
        pod_name: None,
        restarts: Restarts::Ending { retries },
        claims: BTreeMap::new(),
        catalogue,
    };
    let pod = container::read(&template, &owner)?;
    let mut found = Found::new(key, origin, "Job", template.labels, pod);
    let replicas = u32::from(!suspended);
    found.workload = Workload { replicas, strategy: Strategy::Recreate, ..found.workload };
    Some(found)
}
