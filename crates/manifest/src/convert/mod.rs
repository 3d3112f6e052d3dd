//! A stack, written in the other format: Compose files as Kubernetes manifests, and manifests as a Compose file.
//!
//! What the other format has no word for is never dropped in silence: each such thing is a finding at the place of its
//! workload, with the field of the model in its path. Equal stacks give equal text. Not here: reading either format
//! (`manifest`), and writing YAML (`cli`).

use serde_json::{Map, Value};

use driftless_model::{Contents, Finding, Stack, Workload, WorkloadName};

mod compose;
mod compose_mounts;
mod kubernetes;
mod mounts;
mod pod;
mod values;

/// Whether the values of secrets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretValues {
    Shown,
    /// A word stands in their place, and that is one of the findings.
    Hidden,
}

/// A stack in another format.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// One for each object in Kubernetes, one in all in Compose.
    pub documents: Vec<Value>,
    /// What is not carried over, by place.
    pub lost: Vec<Finding>,
}

/// What stands for the value of a secret.
const HIDDEN: &str = "CHANGE-ME";

/// As Kubernetes manifests.
pub fn to_kubernetes(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    kubernetes::convert(stack, contents, secrets)
}

/// As one Compose file.
pub fn to_compose(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    compose::convert(stack, contents, secrets)
}

/// Collects what is not carried over.
#[derive(Debug, Default)]
struct Lost(Vec<Finding>);

impl Lost {
    /// A field of a workload, in the words of the model.
    fn field(&mut self, (name, workload): (&WorkloadName, &Workload), field: &str, why: impl Into<String>) {
        self.0.push(Finding::warning(workload.origin.clone(), format!("{name}.{field}"), why.into()));
    }

    fn sorted(mut self) -> Vec<Finding> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}

/// A map of what says something: no nulls, and no empty lists and maps.
fn object(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let says_something = |it: &Value| match it {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let entries = entries.into_iter().filter(|(_, it)| says_something(it));
    Value::Object(entries.map(|(key, it)| (key.to_owned(), it)).collect::<Map<_, _>>())
}

/// True, or nothing.
fn flag(is_set: bool) -> Value {
    if is_set { Value::Bool(true) } else { Value::Null }
}

/// Whole seconds, rounded up.
fn seconds(time: std::time::Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
