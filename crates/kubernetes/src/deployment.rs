//! Reads a Deployment, ReplicaSet or `ReplicationController` into a workload.
//!
//! Rules and defaults are those of `apps/v1` in the API reference, with percentages resolved at once, because
//! the number of replicas is known. The pod's container is read by [`super::container`].

use std::{collections::BTreeMap, time::Duration};

use super::{
    Found,
    catalogue::{Catalogue, Identity, identity},
    container::{Owner, Restarts, Template},
    fields, names, pod,
    reader::{Object, Value},
    selector::Expression,
};
use driftless_model::{MOST_REPLICAS, Strategy, Workload};
use driftless_yaml::{Scalar, join};

/// The largest `int32`, which Kubernetes uses for counts.
pub(super) const MOST: i64 = 0x7FFF_FFFF;

/// Reads a Deployment, or a ReplicaSet or `ReplicationController`, which have no update strategy. `None` if the name is
/// invalid; any other fault is a finding and a default.
pub(super) fn read(value: Value<'_>, kind: &'static str, catalogue: &Catalogue) -> Option<Found> {
    let is_deployment = kind == "Deployment";
    let object = value.object(fields::OBJECT)?;
    let metadata = object.require("metadata").and_then(|it| it.object(fields::METADATA));
    let table = if is_deployment { fields::DEPLOYMENT } else { fields::REPLICA_SET };
    let spec = object.require("spec").and_then(|it| it.object(table));
    let metadata = metadata?;
    let Identity { key, origin } = identity(&metadata)?;
    let spec = spec?;

    let replicas = spec.integer("replicas", 0..=MOST).map_or(1, whole);
    if let Some(value) = spec.get("replicas").filter(|_| replicas > MOST_REPLICAS) {
        value.error(format!("more than {MOST_REPLICAS} pods of a {kind} are not supported on one host"));
    }
    let min_ready = spec.integer("minReadySeconds", 0..=MOST).map_or(0, seconds);
    let deadline = spec.integer("progressDeadlineSeconds", 0..=MOST).map_or(600, seconds);
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
        restarts: Restarts::Always,
        claims: BTreeMap::new(),
        catalogue,
    };
    let read = pod::read(&template, &owner, &key)?;
    if !is_deployment {
        spec.value.warning("instances of an older template are replaced, as in a Deployment");
    }
    let mut found = Found::new(key, origin, kind, template.labels, read);
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

/// Validates `revisionHistoryLimit`, which has no effect here.
pub(super) fn history_limit(spec: &Object<'_>) -> u32 {
    let history = spec.integer("revisionHistoryLimit", 0..=MOST).map_or(10, whole);
    if let Some(given) = spec.get("revisionHistoryLimit").filter(|_| history != 10) {
        given.warning(
            "has no effect: revisions are kept for the application as a whole, ten that succeeded and ten that failed",
        );
    }
    history
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

/// Validates the labels of the object itself; containers get only the labels of the template.
pub(super) fn check_own_labels(metadata: &Object<'_>, template: &BTreeMap<String, String>, kind: &str) {
    let Some(labels) = metadata.get("labels") else { return };
    let own = names::labels(&labels);
    if own.iter().any(|(key, value)| template.get(key) != Some(value)) {
        labels.warning(format!(
            "labels of the {kind} have no effect: containers carry those of the pod template"
        ));
    }
}

/// The selector must match the labels of the template, or the Deployment would not find its own pods.
pub(super) fn check_selector(spec: &Object<'_>, labels: Option<&BTreeMap<String, String>>) {
    let unlabelled = BTreeMap::new();
    let labels = labels.unwrap_or(&unlabelled);
    let Some(selector) = spec.require("selector").and_then(|it| it.object(fields::SELECTOR)) else { return };
    let wanted = selector.get("matchLabels");
    let expressions = selector.items("matchExpressions");
    if wanted.as_ref().is_none_or(|it| it.node.entries().is_empty()) && expressions.is_empty() {
        selector.value.error_help("the selector is empty", "give it the labels of the pod template");
        return;
    }
    if let Some(wanted) = wanted {
        check_labels(&wanted, labels);
    }
    for expression in expressions {
        if Expression::read(&expression).is_some_and(|read| !read.matches(labels)) {
            expression.error("the selector does not match the labels of the pod template");
        }
    }
}

/// Each selected label must be a label of the template.
fn check_labels(wanted: &Value<'_>, labels: &BTreeMap<String, String>) {
    for (key, value) in names::labels(wanted) {
        if labels.get(&key) == Some(&value) {
            continue;
        }
        let node = wanted.node.get(&key).unwrap_or(wanted.node);
        let help = format!("add `{key}: {value}` to spec.template.metadata.labels");
        let message = "the selector does not match the labels of the pod template";
        wanted.report().say(node.finding(join(&wanted.path, &key), message).help(help));
    }
}

#[derive(Clone, Copy)]
enum Type {
    RollingUpdate,
    Recreate,
}

fn strategy(spec: &Object<'_>, replicas: u32) -> Strategy {
    let object = spec.object("strategy", fields::STRATEGY);
    let words = [("RollingUpdate", Type::RollingUpdate), ("Recreate", Type::Recreate)];
    let kind = object.as_ref().and_then(|it| it.get("type")).and_then(|it| it.one_of(&words));
    let rolling = object.as_ref().and_then(|it| it.get("rollingUpdate"));
    match kind.unwrap_or(Type::RollingUpdate) {
        Type::Recreate => {
            if let Some(rolling) = rolling {
                rolling.error_help("is not allowed when the type is `Recreate`", "remove it, or the type");
            }
            Strategy::Recreate
        }
        Type::RollingUpdate => rolling_update(rolling, replicas),
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

/// A number of instances, or a percentage of the replicas.
#[derive(Clone, Copy)]
pub(super) enum Amount {
    Number(u32),
    Percent(u32),
}

impl Amount {
    pub(super) fn read(value: &Value<'_>) -> Option<Self> {
        let Some(Scalar::Text(text)) = value.node.resolved() else {
            return value.integer(0..=MOST).map(|it| Self::Number(whole(it)));
        };
        let digits = text.strip_suffix('%').filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
        if let Some(percent) = digits.and_then(|it| it.parse().ok()) {
            return Some(Self::Percent(percent));
        }
        let help = "write a number without quotes, or a percentage such as `25%`";
        value.error_help(format!("`{text}` is neither a number nor a percentage"), help);
        None
    }

    fn is_zero(self) -> bool {
        matches!(self, Self::Number(0) | Self::Percent(0))
    }

    pub(super) fn of(self, replicas: u32, divide: fn(u64, u64) -> u64) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Percent(percent) => {
                let share = divide(u64::from(replicas) * u64::from(percent), 100);
                u32::try_from(share).unwrap_or(u32::MAX)
            }
        }
    }
}

/// Numbers that were checked to be from 0 to [`MOST`].
pub(super) fn whole(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

pub(super) fn seconds(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
