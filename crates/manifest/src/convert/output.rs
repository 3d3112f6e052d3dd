//! The result of a conversion, and the JSON values that both formats write.

use serde_json::{Map, Value};

use driftless_model::{Finding, Subject};

/// Whether values of secrets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretValues {
    Shown,
    /// A placeholder is written, with a finding.
    Hidden,
}

/// A stack in another format.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// One document for each Kubernetes object, or one Compose file.
    pub documents: Vec<Value>,
    /// The fields that are not converted, by place.
    pub lost: Vec<Finding>,
}

/// The placeholder for the value of a secret.
pub(super) const PLACEHOLDER_OF_SECRET: &str = "CHANGE-ME";

/// Why a value is not converted that the placeholder stands for.
pub(super) const NOT_WRITTEN: &str = "the value of a secret is not written; `--show-secrets` does";

/// Findings about fields that are not converted.
#[derive(Debug, Default)]
pub(super) struct Lost(Vec<Finding>);

impl Lost {
    /// Adds a field of a workload, with its name in the model.
    pub(super) fn field(&mut self, subject: Subject<'_>, field: &str, why: impl Into<String>) {
        let Subject { name, workload } = subject;
        self.0.push(Finding::warning(workload.origin.clone(), format!("{name}.{field}"), why.into()));
    }

    pub(super) fn sorted(mut self) -> Vec<Finding> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}

/// A map without nulls and without empty lists and maps.
pub(super) fn object(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let says_something = |it: &Value| match it {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let entries = entries.into_iter().filter(|(_, it)| says_something(it));
    Value::Object(entries.map(|(key, it)| (key.to_owned(), it)).collect::<Map<_, _>>())
}

/// `true`, or null.
pub(super) fn flag(is_set: bool) -> Value {
    if is_set { Value::Bool(true) } else { Value::Null }
}

/// Whole seconds, rounded up.
pub(super) fn seconds(time: std::time::Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
