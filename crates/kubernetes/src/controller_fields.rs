//! Fields that several controllers share: labels, selector, history limit, update strategy and counts.

use std::collections::BTreeMap;

use super::{
    fields,
    label_selector::Expression,
    names,
    reader::{Object, Value},
};
use driftless_model::Strategy;
use driftless_yaml::{Scalar, join};

/// The largest `int32`, which Kubernetes uses for counts.
pub(super) const MOST: i64 = 0x7FFF_FFFF;

/// The old instance is removed before the new one starts, so a name or a volume is used once.
pub(super) const ONE_BY_ONE: Strategy = Strategy::RollingUpdate { max_surge: 0, max_unavailable: 1 };

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

/// The `matchLabels` of a selector.
pub(super) fn match_labels(spec: &Object<'_>) -> BTreeMap<String, String> {
    let labels = spec.get("selector").and_then(|selector| selector.node.get("matchLabels"));
    let entries = labels.map(driftless_yaml::Node::entries).unwrap_or_default();
    let text = |entry: &driftless_yaml::Entry| Some((entry.key.clone(), entry.value.as_scalar()?.to_owned()));
    entries.iter().filter_map(text).collect()
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
pub(super) fn check_labels(wanted: &Value<'_>, labels: &BTreeMap<String, String>) {
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

/// Whether the update strategy has the type `OnDelete`; default: `RollingUpdate`.
pub(super) fn is_on_delete(object: &Object<'_>) -> bool {
    let words = [("RollingUpdate", false), ("OnDelete", true)];
    object.filled("type").and_then(|it| it.one_of(&words)).unwrap_or(false)
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

    pub(super) fn is_zero(self) -> bool {
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

/// Seconds that were checked to be from 0 to [`MOST`].
pub(super) fn seconds(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
