//! Reads a Pod without a controller into a workload.

use std::collections::BTreeMap;

use super::{
    catalogue::Catalogue,
    container::{Owner, Restarts, Template},
    fields, names,
    object::{Head, head},
    pod,
    reader::Value,
    workload::ReadWorkload,
};
use driftless_model::{Strategy, Workload};

/// A Pod without a controller: one instance, replaced when it changes.
pub(super) fn read(value: Value<'_>, catalogue: &Catalogue) -> Option<ReadWorkload> {
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
        job_index: None,
        restarts: Restarts::Any,
        claims: BTreeMap::new(),
        catalogue,
    };
    let read = pod::read(&template, &owner, &key)?;
    let mut found = ReadWorkload::new(key.clone(), origin, "Pod", template.labels, read);
    found.workload = Workload { strategy: Strategy::Recreate, ..found.workload };
    found.pod_name = Some(key.name);
    Some(found)
}
