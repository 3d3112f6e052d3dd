//! Ports, dependencies and limits in the form of a Compose file.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::output::{flag, object};
use driftless_model::{
    BlockIo, Condition, Container, HostSettings, MountSource, Peer, Resources, Strategy, VolumesFrom,
    Workload,
};

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

/// Settings of the host that Compose has a key of their own for.
pub(super) fn host_settings(host: &HostSettings) -> Value {
    let BlockIo { weight, weight_device, read_bps, write_bps, read_iops, write_iops } = &host.block_io;
    let devices = |name: &'static str, limits: Vec<(&String, Value)>| {
        let device = |(path, limit): (&String, Value)| json!({ "path": path, (name): limit });
        Value::Array(limits.into_iter().map(device).collect())
    };
    let rates = |limits: &BTreeMap<String, u64>| {
        devices("rate", limits.iter().map(|(path, rate)| (path, json!(rate))).collect())
    };
    let weights = weight_device.iter().map(|(path, weight)| (path, json!(weight))).collect();
    let block_io = object([
        ("weight", json!(weight)),
        ("weight_device", devices("weight", weights)),
        ("device_read_bps", rates(read_bps)),
        ("device_write_bps", rates(write_bps)),
        ("device_read_iops", rates(read_iops)),
        ("device_write_iops", rates(write_iops)),
    ]);
    let annotations: BTreeMap<_, _> =
        host.annotations.iter().map(|(key, value)| (key, escaped(value))).collect();
    object([
        ("uts", json!(host.uts_mode)),
        ("userns_mode", json!(host.userns_mode)),
        ("cgroup", json!(host.cgroup)),
        ("cgroup_parent", json!(host.cgroup_parent)),
        ("device_cgroup_rules", json!(host.device_cgroup_rules)),
        ("blkio_config", block_io),
        ("mem_swappiness", json!(host.memory_swappiness)),
        ("oom_kill_disable", flag(host.oom_kill_disable)),
        ("oom_score_adj", json!(Some(host.oom_score_adj).filter(|score| *score != 0))),
        ("cpu_rt_period", json!(host.cpu_realtime_period)),
        ("cpu_rt_runtime", json!(host.cpu_realtime_runtime)),
        ("storage_opt", json!(host.storage_opt)),
        ("annotations", json!(annotations)),
    ])
}

/// Memory file systems with options that only the short syntax has.
pub(super) fn tmpfs(container: &Container) -> Vec<String> {
    let with_options = container.mounts.iter().filter_map(|mount| {
        let MountSource::Tmpfs { size, mode } = &mount.source else { return None };
        let options = &container.host.mount_options.get(&mount.target)?.tmpfs;
        let size = size.map(|size| format!("size={size}"));
        let mode = mode.map(|mode| format!("mode={mode:o}"));
        let is_read_only = mount.read_only && !options.iter().any(|option| option == "ro");
        let read_only = is_read_only.then(|| "ro".to_owned());
        let all = [size, mode, read_only].into_iter().flatten().chain(options.iter().cloned());
        let all: Vec<String> = all.collect();
        (!options.is_empty()).then(|| escaped(&format!("{}:{}", mount.target, all.join(","))))
    });
    with_options.collect()
}

/// The services and containers whose volumes a service mounts.
pub(super) fn volumes_from(container: &Container) -> Vec<String> {
    let from = |volumes: &VolumesFrom| {
        let name = match &volumes.peer {
            Peer::Workload(name) => name.to_string(),
            Peer::Container(name) => format!("container:{name}"),
        };
        if volumes.read_only { format!("{name}:ro") } else { name }
    };
    container.volumes_from.iter().map(from).collect()
}

/// Escapes dollars, which begin a variable in Compose.
pub(super) fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}
