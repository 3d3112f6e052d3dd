//! Reads a Deployment, ReplicaSet or `ReplicationController` into a workload.
//!
//! Rules and defaults are those of `apps/v1` in the API reference, with percentages resolved at once, because
//! the number of replicas is known. The pod's container is read by [`super::container`].

use std::{collections::BTreeMap, time::Duration};

use super::{
    catalogue::Catalogue,
    container::{Owner, Restarts, Template},
    controller_fields::{
        Amount, MOST, check_labels, check_own_labels, check_selector, history_limit, match_labels, seconds,
        whole,
    },
    fields,
    object::{Head, head},
    pod,
    reader::{Object, Value},
    workload::ReadWorkload,
};
use driftless_model::{DEFAULT_PROGRESS_DEADLINE, MOST_REPLICAS, Strategy, Workload};

/// Reads a Deployment, or a ReplicaSet or `ReplicationController`, which have no update strategy. `None` if the name is
/// invalid; any other fault is a finding and a default.
pub(super) fn read(value: Value<'_>, kind: &'static str, catalogue: &Catalogue) -> Option<ReadWorkload> {
    let is_deployment = kind == "Deployment";
    let table = if is_deployment { fields::DEPLOYMENT } else { fields::REPLICA_SET };
    let Head { metadata, spec, key, origin } = head(value, table)?;
    let replicas = spec.integer("replicas", 0..=MOST).map_or(1, whole);
    if let Some(value) = spec.get("replicas").filter(|_| replicas > MOST_REPLICAS) {
        value.error(format!("more than {MOST_REPLICAS} pods of a {kind} are not supported on one host"));
    }
    let min_ready = spec.integer("minReadySeconds", 0..=MOST).map_or(0, seconds);
    let default = DEFAULT_PROGRESS_DEADLINE.as_secs();
    let deadline = spec.integer("progressDeadlineSeconds", 0..=MOST).map_or(default, seconds);
    check_deadline(&spec, deadline, min_ready);
    let history = history_limit(&spec);
    let paused = spec.boolean("paused").unwrap_or(false);
    let strategy = strategy(&spec, replicas);
    let template = Template::read(&spec);
    let labels = template.as_ref().map(|it| &it.labels);
    if kind == "ReplicationController" {
        // A plain map of labels; default: the labels of the template.
        if let (Some(selector), Some(labels)) = (spec.get("selector"), labels) {
            check_labels(&selector, labels);
        }
    } else {
        check_selector(&spec, labels);
    }
    let template = template?;
    check_own_labels(&metadata, &template.labels, kind);
    let owner = Owner {
        kind,
        key: &key,
        pod_name: None,
        job_index: None,
        restarts: Restarts::Always,
        claims: BTreeMap::new(),
        catalogue,
    };
    let read = pod::read(&template, &owner, &key)?;
    if !is_deployment {
        spec.value.warning("instances of an older template are replaced, as in a Deployment");
    }
    let mut found = ReadWorkload::new(key, origin, kind, template.labels, read);
    if kind != "ReplicationController" {
        found.workload.manifest.selector = match_labels(&spec);
    }
    found.workload = Workload {
        replicas,
        strategy,
        min_ready: Duration::from_secs(min_ready),
        progress_deadline: Duration::from_secs(deadline),
        revision_history_limit: history,
        paused,
        ..found.workload
    };
    Some(found)
}

fn check_deadline(spec: &Object<'_>, deadline: u64, min_ready: u64) {
    if deadline > min_ready {
        return;
    }
    let message = format!(
        "progressDeadlineSeconds ({deadline}) must be greater than minReadySeconds ({min_ready}), or no rollout \
         could ever finish in time"
    );
    match spec.get("progressDeadlineSeconds").or_else(|| spec.get("minReadySeconds")) {
        Some(value) => value.error(message),
        None => spec.value.error(message),
    }
}

#[derive(Clone, Copy)]
enum StrategyType {
    RollingUpdate,
    Recreate,
}

fn strategy(spec: &Object<'_>, replicas: u32) -> Strategy {
    let object = spec.object("strategy", fields::STRATEGY);
    let words = [("RollingUpdate", StrategyType::RollingUpdate), ("Recreate", StrategyType::Recreate)];
    let kind = object.as_ref().and_then(|it| it.filled("type")).and_then(|it| it.one_of(&words));
    let rolling = object.as_ref().and_then(|it| it.get("rollingUpdate"));
    match kind.unwrap_or(StrategyType::RollingUpdate) {
        StrategyType::Recreate => {
            if let Some(rolling) = rolling {
                rolling.error_help("is not allowed when the type is `Recreate`", "remove it, or the type");
            }
            Strategy::Recreate
        }
        StrategyType::RollingUpdate => rolling_update(rolling, replicas),
    }
}

/// `maxSurge` is rounded up and `maxUnavailable` down; both 0 by rounding gives one that may be unavailable, as
/// in the Deployment controller; otherwise no rollout could proceed.
fn rolling_update(value: Option<Value<'_>>, replicas: u32) -> Strategy {
    let object = value.and_then(|it| it.object(fields::ROLLING_UPDATE));
    let amount = |key| object.as_ref().and_then(|it| it.get(key)).and_then(|it| Amount::read(&it));
    let surge = amount("maxSurge").unwrap_or(Amount::Percent(25));
    let unavailable = amount("maxUnavailable").unwrap_or(Amount::Percent(25));
    if let (Some(object), true) = (&object, surge.is_zero() && unavailable.is_zero()) {
        object.value.error_help(
            "maxSurge and maxUnavailable are both 0, so that no instance could ever be replaced",
            "set one of them to 1 or more",
        );
    }
    if let (Some(value), Amount::Percent(101..)) =
        (object.and_then(|it| it.get("maxUnavailable")), unavailable)
    {
        value.error("must not be more than 100%");
    }
    let max_surge = surge.of(replicas, u64::div_ceil);
    let max_unavailable = unavailable.of(replicas, |part, whole| part / whole);
    match (max_surge, max_unavailable) {
        (0, 0) => Strategy::RollingUpdate { max_surge: 0, max_unavailable: 1 },
        _ => Strategy::RollingUpdate { max_surge, max_unavailable },
    }
}
