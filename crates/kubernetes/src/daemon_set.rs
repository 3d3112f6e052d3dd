//! Reads a DaemonSet into a workload with one instance, because there is one host.

use std::{collections::BTreeMap, time::Duration};

use super::{
    catalogue::Catalogue,
    container::{Owner, Restarts, Template},
    controller_fields::{
        MOST, ONE_BY_ONE, check_own_labels, check_selector, history_limit, is_on_delete, match_labels,
        seconds,
    },
    fields,
    object::{Head, head},
    pod,
    reader::Value,
    workload::ReadWorkload,
};
use driftless_model::{Update, Workload};

/// A DaemonSet: one instance per host, and there is one host.
pub(super) fn read(value: Value<'_>, catalogue: &Catalogue) -> Option<ReadWorkload> {
    let Head { metadata, spec, key, origin } = head(value, fields::DAEMON_SET)?;
    let min_ready = spec.integer("minReadySeconds", 0..=MOST).map_or(0, seconds);
    history_limit(&spec);
    let strategy = spec.object("updateStrategy", fields::DAEMON_STRATEGY);
    let is_on_delete = strategy.is_some_and(|strategy| {
        strategy.object("rollingUpdate", fields::DAEMON_ROLLING_UPDATE);
        is_on_delete(&strategy)
    });
    let template = Template::read(&spec);
    check_selector(&spec, template.as_ref().map(|it| &it.labels));
    let template = template?;
    check_own_labels(&metadata, &template.labels, "DaemonSet");
    let owner = Owner {
        kind: "DaemonSet",
        key: &key,
        pod_name: None,
        job_index: None,
        restarts: Restarts::Always,
        claims: BTreeMap::new(),
        catalogue,
    };
    let read = pod::read(&template, &owner, &key)?;
    let mut found = ReadWorkload::new(key, origin, "DaemonSet", template.labels, read);
    let update = if is_on_delete { Update::OnDelete } else { Update::Rolling };
    let min_ready = Duration::from_secs(min_ready);
    found.workload.manifest.selector = match_labels(&spec);
    found.workload = Workload { strategy: ONE_BY_ONE, min_ready, update, ..found.workload };
    Some(found)
}
