//! What a Compose service says that follows from single fields of the model. What is not carried over, and what needs the
//! whole of a stack, is for [`super::compose`].

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{compose::escaped, flag, object};
use crate::model::{Condition, Container, Hook, Resources, RestartPolicy, Workload};

pub(super) fn hooks(all: &[Hook]) -> Value {
    let hook = |it: &Hook| {
        let Hook { command, sleep, user, privileged, working_dir, env } = it;
        let command = match sleep {
            Some(sleep) => vec!["sleep".to_owned(), sleep.as_secs().to_string()],
            None => command.iter().map(|it| escaped(it)).collect(),
        };
        let env: BTreeMap<_, _> = env.iter().map(|(name, value)| (name, escaped(value))).collect();
        object([
            ("command", json!(command)),
            ("user", json!(user)),
            ("privileged", json!(privileged.then_some(true))),
            ("working_dir", json!(working_dir)),
            ("environment", json!(env)),
        ])
    };
    json!(all.iter().map(hook).collect::<Vec<_>>())
}

pub(super) fn ports(it: &Container) -> Vec<Value> {
    let port = |it: &crate::model::Port| {
        let host = it
            .host
            .map(|it| if it.len() == 1 { it.first.to_string() } else { format!("{}-{}", it.first, it.last) });
        object([
            ("target", json!(it.container)),
            ("published", json!(host)),
            ("protocol", json!(it.protocol.as_str())),
            ("host_ip", json!(it.host_ip)),
        ])
    };
    it.ports.iter().map(port).collect()
}

pub(super) fn expose(it: &Container) -> Vec<String> {
    it.expose.iter().map(|(port, protocol)| format!("{port}/{}", protocol.as_str())).collect()
}

/// What is tried again by the agent in one format is by the engine in the other.
pub(super) fn restart(workload: &Workload) -> String {
    let retries = workload.job.as_ref().map(|it| it.backoff_limit).filter(|it| *it > 0);
    let policy = match retries {
        Some(retries) => RestartPolicy::OnFailure { max_retries: Some(retries) },
        None => workload.container.restart,
    };
    match policy {
        RestartPolicy::No => "no".to_owned(),
        RestartPolicy::Always => "always".to_owned(),
        RestartPolicy::UnlessStopped => "unless-stopped".to_owned(),
        RestartPolicy::OnFailure { max_retries: None } => "on-failure".to_owned(),
        RestartPolicy::OnFailure { max_retries: Some(retries) } => format!("on-failure:{retries}"),
    }
}

pub(super) fn depends_on(workload: &Workload) -> Value {
    let all = workload.after.iter().map(|it| {
        let condition = match it.condition {
            Condition::Started => "service_started",
            Condition::Healthy => "service_healthy",
            Condition::CompletedSuccessfully => "service_completed_successfully",
        };
        let required = if it.required { Value::Null } else { json!(false) };
        let one =
            object([("condition", json!(condition)), ("required", required), ("restart", flag(it.restart))]);
        (it.workload.to_string(), one)
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
    let cpus = nano_cpus.map(|it| {
        let text = format!("{}.{:09}", it / 1_000_000_000, it % 1_000_000_000);
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
