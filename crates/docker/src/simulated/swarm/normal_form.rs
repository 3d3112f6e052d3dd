//! Specifications of services as an engine returns them: without what says nothing, and with its defaults.

use serde_json::{Value, json};

/// Numbers that an engine returns although they are zero, by the last part of their paths.
const KEPT_ZEROS: &[&str] = &[
    "Replicas",
    "MaxConcurrent",
    "TotalCompletions",
    "Parallelism",
    "MaxFailureRatio",
    "ForceUpdate",
    "MaxAttempts",
    "Mode",
];
/// Values that are kept although they say nothing, because no value says something else.
const KEPT: &[&str] = &["Init", "Delay", "StopGracePeriod"];
/// Maps with names and values of users.
const USER_MAPS: &[&str] = &["Labels", "Options", "Sysctls", "DriverOpts"];

/// Brings a specification to the form of an engine. Networks have their ids by then.
pub(super) fn normal_form(spec: &Value) -> Value {
    let mut spec = spec.clone();
    drop_empty("", &mut spec);
    let Some(map) = spec.as_object_mut() else { return spec };
    map.entry("Labels").or_insert_with(|| json!({}));
    let task = map.entry("TaskTemplate").or_insert_with(|| json!({}));
    default(task, "ForceUpdate", json!(0));
    default(task, "Runtime", json!("container"));
    if let Some(container) = task.get_mut("ContainerSpec") {
        default(container, "Isolation", json!("default"));
    }
    if let Some(restart) = task.get_mut("RestartPolicy") {
        default(restart, "Condition", json!("any"));
        default(restart, "MaxAttempts", json!(0));
    }
    for key in ["UpdateConfig", "RollbackConfig"] {
        if let Some(config) = map.get_mut(key) {
            for (key, value) in [
                ("Parallelism", json!(0)),
                ("FailureAction", json!("pause")),
                ("MaxFailureRatio", json!(0)),
                ("Order", json!("stop-first")),
            ] {
                default(config, key, value);
            }
        }
    }
    let mode = map.entry("Mode").or_insert_with(|| json!({"Replicated": {}}));
    if let Some(replicated) = mode.get_mut("Replicated") {
        default(replicated, "Replicas", json!(1));
    }
    if let Some(job) = mode.get_mut("ReplicatedJob") {
        default(job, "MaxConcurrent", json!(1));
        let concurrent = job["MaxConcurrent"].clone();
        default(job, "TotalCompletions", concurrent);
    }
    if let Some(endpoint) = map.get_mut("EndpointSpec") {
        default(endpoint, "Mode", json!("vip"));
        let ports = endpoint.get_mut("Ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            default(port, "Protocol", json!("tcp"));
            default(port, "PublishMode", json!("ingress"));
        }
    }
    spec
}

fn default(value: &mut Value, key: &str, default: Value) {
    if let Some(map) = value.as_object_mut() {
        map.entry(key).or_insert(default);
    }
}

fn drop_empty(name: &str, value: &mut Value) {
    match value {
        Value::Object(map) if USER_MAPS.contains(&name) => map.retain(|_, value| !value.is_null()),
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                drop_empty(name, value);
            }
            map.retain(|name, value| !is_empty(name, value));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_empty("", item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_empty(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(false) => !KEPT.contains(&name),
        Value::Number(number) => {
            number.as_f64() == Some(0.0) && !KEPT_ZEROS.contains(&name) && !KEPT.contains(&name)
        }
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        // A mode is named by a key that may have no value.
        Value::Object(map) => {
            map.is_empty() && !matches!(name, "Global" | "Replicated" | "GlobalJob" | "ReplicatedJob")
        }
        Value::Bool(true) => false,
    }
}
