//! `deploy` of a service: how many, how much, and how an update goes. What only Swarm's scheduler could honour
//! is ignored with a warning.

use super::{
    host::device_requests,
    reader::{Path, Reader},
    scalar,
    schema::{Deploy, Order, Update},
};
use driftless_model::RestartPolicy;
use driftless_yaml::Node;

pub(super) fn deploy(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Deploy {
    let mut deploy = Deploy::default();
    let mut is_global = false;
    for entry in reader.optional_mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "replicas" => deploy.replicas = reader.integer(node, at).map(|it| Reader::placed(node, at, it)),
            "resources" => resources(reader, &mut deploy, node, at),
            "restart_policy" => deploy.restart = restart_policy(reader, node, at),
            "update_config" => deploy.update = Some(update(reader, node, at)),
            "mode" => match reader.string(node, at).as_deref() {
                Some("replicated" | "") | None => {}
                Some("global") => is_global = true,
                Some(mode) => {
                    let message = format!("`{mode}` has no effect: whether it is a job says `restart`");
                    reader.warning(&node.place, at, message);
                }
            },
            _ => reader.other(entry, path, "services.deploy"),
        }
    }
    // One on each host, and this is one host.
    if is_global && let Some(replicas) = deploy.replicas.take_if(|it| it.value > 1) {
        reader
            .findings
            .push(replicas.warning("has no effect with `mode: global`: there is one on this host"));
    }
    deploy
}

/// Billionths of a processor.
pub(super) fn cpus(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<u64> {
    let value = reader.float(node, path)?;
    let billionths = scalar::billionths(value);
    if billionths.is_none() {
        reader.error(&node.place, path, "not a number of processors");
    }
    billionths
}

fn resources(reader: &mut Reader, deploy: &mut Deploy, node: &Node, path: &Path<'_>) {
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "limits" => limits(reader, deploy, node, at),
            "reservations" => reservations(reader, deploy, node, at),
            _ => reader.other(entry, path, "services.deploy.resources"),
        }
    }
}

fn limits(reader: &mut Reader, deploy: &mut Deploy, node: &Node, path: &Path<'_>) {
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "cpus" => deploy.cpus = cpus(reader, node, at).map(|it| Reader::placed(node, at, it)),
            "memory" => deploy.memory = memory(reader, node, at).map(|it| Reader::placed(node, at, it)),
            "pids" => deploy.pids = reader.integer(node, at).map(|it| Reader::placed(node, at, it)),
            _ => reader.other(entry, path, "services.deploy.resources.limits"),
        }
    }
}

fn reservations(reader: &mut Reader, deploy: &mut Deploy, node: &Node, path: &Path<'_>) {
    const OBJECT: &str = "services.deploy.resources.reservations";
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "memory" => {
                deploy.memory_reservation = memory(reader, node, at).map(|it| Reader::placed(node, at, it));
            }
            "cpus" => {
                cpus(reader, node, at);
                reader.other(entry, path, OBJECT);
            }
            "devices" => deploy.devices = device_requests(reader, node, at, true),
            _ => reader.other(entry, path, OBJECT),
        }
    }
}

/// A size; the schema takes it as text only.
fn memory(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<u64> {
    reader.string(node, path)?;
    reader.bytes(node, path)
}

fn restart_policy(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<RestartPolicy> {
    const OBJECT: &str = "services.deploy.restart_policy";
    let (mut condition, mut max_retries) = (None, None);
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "condition" => condition = reader.string(node, at).map(|it| Reader::placed(node, at, it)),
            "max_attempts" => max_retries = reader.integer::<u32>(node, at).filter(|it| *it > 0),
            "delay" | "window" => {
                reader.duration(node, at);
                reader.other(entry, path, OBJECT);
            }
            _ => reader.other(entry, path, OBJECT),
        }
    }
    // `any` is what the specification gives as the default.
    let word = condition.as_ref().map_or("any", |it| it.value.as_str());
    match word {
        "none" | "no" => Some(RestartPolicy::No),
        "on-failure" => Some(RestartPolicy::OnFailure { max_retries }),
        "any" | "always" => Some(RestartPolicy::Always),
        "unless-stopped" => Some(RestartPolicy::UnlessStopped),
        other => {
            let message = format!("`{other}` is no restart condition; use `none`, `on-failure` or `any`");
            reader.findings.extend(condition.as_ref().map(|it| it.error(message)));
            None
        }
    }
}

fn update(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Update {
    const OBJECT: &str = "services.deploy.update_config";
    let mut update = Update::default();
    if node.is_null() {
        reader.wrong_type(node, path, "a mapping");
        return update;
    }
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        match entry.key.as_str() {
            "parallelism" => update.parallelism = reader.integer(node, at),
            "monitor" => update.monitor = reader.duration(node, at),
            "order" => match reader.string(node, at).as_deref() {
                Some("start-first") => update.order = Some(Order::StartFirst),
                Some("stop-first") => update.order = Some(Order::StopFirst),
                Some(_) => reader.error(&node.place, at, "no such order; use `start-first` or `stop-first`"),
                None => {}
            },
            "delay" => update.delay = reader.duration(node, at),
            "failure_action" => match reader.string(node, at).as_deref() {
                Some("pause") | None => {}
                Some(_) => {
                    reader.ignored(entry, path, "a failed update is paused until there is a newer one");
                }
            },
            "max_failure_ratio" => {
                reader.float(node, at);
                reader.other(entry, path, OBJECT);
            }
            _ => reader.other(entry, path, OBJECT),
        }
    }
    update
}
