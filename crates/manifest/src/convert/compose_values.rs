//! Ports, dependencies and limits in the form of a Compose file.

use serde_json::{Value, json};

use super::output::{flag, object};
use driftless_model::{Condition, Container, Resources, Strategy, Workload};

pub(super) fn ports(workload: &Workload) -> Vec<Value> {
    // Without it a proxy would serve the ports of several instances.
    let starts_first = matches!(workload.strategy, Strategy::RollingUpdate { max_surge: 1.., .. });
    let mode = (workload.replicas > 1 || starts_first).then_some("host");
    let port = |it: &driftless_model::Port| {
        let host = it
            .host
            .map(|it| if it.len() == 1 { it.first.to_string() } else { format!("{}-{}", it.first, it.last) });
        object([
            ("target", json!(it.container)),
            ("published", json!(host)),
            ("protocol", json!(it.protocol.as_str())),
            ("host_ip", json!(it.host_ip)),
            ("mode", json!(mode.filter(|_| it.host.is_some_and(|host| host.len() == 1)))),
        ])
    };
    workload.container.ports.iter().map(port).collect()
}

pub(super) fn expose(it: &Container) -> Vec<String> {
    it.expose.iter().map(|(port, protocol)| format!("{port}/{}", protocol.as_str())).collect()
}

pub(super) fn depends_on(workload: &Workload) -> Value {
    let all = workload.after.iter().map(|dependency| {
        let condition = match dependency.condition {
            Condition::Started => "service_started",
            Condition::Healthy => "service_healthy",
            Condition::CompletedSuccessfully => "service_completed_successfully",
        };
        let required = if dependency.required { Value::Null } else { json!(false) };
        let one = object([
            ("condition", json!(condition)),
            ("required", required),
            ("restart", flag(dependency.restart)),
        ]);
        (dependency.workload.to_string(), one)
    });
    Value::Object(all.collect())
}

pub(super) fn limits_of(resources: &Resources) -> Value {
    let Resources {
        nano_cpus,
        memory,
        memory_reservation,
        memory_swap,
        cpu_shares,
        pids,
        cpu_quota,
        cpu_period,
        cpuset,
    } = resources;
    let cpus = nano_cpus.map(|nanos| {
        let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    });
    object([
        ("cpus", json!(cpus)),
        ("mem_limit", json!(memory)),
        ("mem_reservation", json!(memory_reservation)),
        ("memswap_limit", json!(memory_swap)),
        ("cpu_shares", json!(cpu_shares)),
        ("pids_limit", json!(pids)),
        ("cpu_quota", json!(cpu_quota)),
        ("cpu_period", json!(cpu_period)),
        ("cpuset", json!(cpuset)),
    ])
}

/// Escapes dollars, which begin a variable in Compose.
pub(super) fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}
