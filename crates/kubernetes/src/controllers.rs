//! DaemonSets, which are one instance on one host, and Pods without a controller.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Found,
    catalogue::{Catalogue, Identity, Key, identity},
    container::{Owner, Restarts, Template},
    deployment::{MOST, check_own_labels, check_selector, history_limit, seconds},
    fields, names, pod,
    reader::{Object, Value},
    stateful_set,
};
use driftless_model::{Location, Strategy, Update, Workload};

/// The old instance is removed before the new one starts, so a name or a volume is used once.
pub(super) const ONE_BY_ONE: Strategy = Strategy::RollingUpdate { max_surge: 0, max_unavailable: 1 };

/// An object's `metadata`, `spec` and key.
pub(super) struct Head<'a> {
    pub(super) metadata: Object<'a>,
    pub(super) spec: Object<'a>,
    pub(super) key: Key,
    pub(super) origin: Location,
}

pub(super) fn head(value: Value<'_>, table: fields::Fields) -> Option<Head<'_>> {
    let object = value.object(fields::OBJECT)?;
    let metadata = object.require("metadata").and_then(|it| it.object(fields::METADATA));
    let spec = object.require("spec").and_then(|it| it.object(table));
    let metadata = metadata?;
    let Identity { key, origin } = identity(&metadata)?;
    Some(Head { metadata, spec: spec?, key, origin })
}

/// A DaemonSet: one instance per host, and there is one host.
pub(super) fn daemon_set(value: Value<'_>, catalogue: &Catalogue) -> Option<Found> {
    let Head { metadata, spec, key, origin } = head(value, fields::DAEMON_SET)?;
    let min_ready = spec.integer("minReadySeconds", 0..=MOST).map_or(0, seconds);
    history_limit(&spec);
    let strategy = spec.object("updateStrategy", fields::DAEMON_STRATEGY);
    let is_on_delete = strategy.is_some_and(|it| {
        it.object("rollingUpdate", fields::DAEMON_ROLLING_UPDATE);
        stateful_set::on_delete(&it)
    });
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
    let read = pod::read(&template, &owner, &key)?;
    let mut found = Found::new(key, origin, "DaemonSet", template.labels, read);
    let update = if is_on_delete { Update::OnDelete } else { Update::Rolling };
    let min_ready = Duration::from_secs(min_ready);
    found.workload = Workload { strategy: ONE_BY_ONE, min_ready, update, ..found.workload };
    Some(found)
}

/// A Pod without a controller: one instance, replaced when it changes.
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
    let read = pod::read(&template, &owner, &key)?;
    let mut found = Found::new(key.clone(), origin, "Pod", template.labels, read);
    found.workload = Workload { strategy: Strategy::Recreate, ..found.workload };
    found.pod_name = Some(key.name);
    Some(found)
}
