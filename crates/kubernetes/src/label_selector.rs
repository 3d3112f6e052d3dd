//! Label selectors: `matchLabels` and `matchExpressions`.

use std::collections::BTreeMap;

use super::{
    fields, names,
    reader::{Object, Value},
};

/// The labels that an object must have. Every label and every expression must match; an empty selector matches all.
#[derive(Default)]
pub(super) struct LabelSelector {
    labels: BTreeMap<String, String>,
    expressions: Vec<Expression>,
}

impl LabelSelector {
    /// Reads the fields of a selector. What is wrong in it is reported and left out.
    pub(super) fn read(selector: &Object<'_>) -> Self {
        Self {
            labels: selector.get("matchLabels").map(|labels| names::labels(&labels)).unwrap_or_default(),
            expressions: selector
                .items("matchExpressions")
                .into_iter()
                .filter_map(|value| Expression::read(&value))
                .collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.expressions.is_empty()
    }

    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(|expression| expression.matches(labels))
    }
}

#[derive(Clone, Copy)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// One entry of `matchExpressions`.
pub(super) struct Expression {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Expression {
    /// Reads an expression. `None`: it is wrong, which is reported.
    pub(super) fn read(value: &Value<'_>) -> Option<Self> {
        let object = value.clone().object(fields::EXPRESSION)?;
        let key = object.require("key").and_then(|key| key.text().map(str::to_owned));
        let words = [
            ("In", Operator::In),
            ("NotIn", Operator::NotIn),
            ("Exists", Operator::Exists),
            ("DoesNotExist", Operator::DoesNotExist),
        ];
        let operator = object.require("operator").and_then(|operator| operator.one_of(&words));
        let values = object.get("values").map(|values| values.strings()).unwrap_or_default();
        let (key, operator) = (key?, operator?);
        let wants_values = matches!(operator, Operator::In | Operator::NotIn);
        if wants_values == values.is_empty() {
            let word = if wants_values { "must" } else { "must not" };
            object.value.error(format!("an expression with this operator {word} have `values`"));
            return None;
        }
        Some(Self { key, operator, values })
    }

    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let found = labels.get(&self.key);
        match self.operator {
            Operator::In => found.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => found.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
        }
    }
}
