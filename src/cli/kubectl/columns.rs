//! The columns of `driftless get` for each kind, in kubectl's order and wording, from the objects of the API.

use serde_json::Value;

use super::{
    age,
    objects::{at, count, words},
};
use crate::{cli::screen::Paint, cli::table::Cell};
use driftless_model::{Kind, Timestamp};

/// The extent of a table: `Wide` has further columns (`-o wide`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Normal,
    Wide,
}

/// The headers of the table.
pub(super) fn head(kind: Kind, width: Width) -> Vec<&'static str> {
    let (mut head, wide): (Vec<_>, &[_]) = match kind {
        Kind::Pod => (
            vec!["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
            &["IP", "NODE", "NOMINATED NODE", "READINESS GATES"],
        ),
        Kind::Deployment => (vec!["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"], TEMPLATE),
        Kind::ReplicaSet => (vec!["NAME", "DESIRED", "CURRENT", "READY", "AGE"], TEMPLATE),
        Kind::DaemonSet => (
            vec!["NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "NODE SELECTOR", "AGE"],
            TEMPLATE,
        ),
        Kind::StatefulSet => (vec!["NAME", "READY", "AGE"], &["CONTAINERS", "IMAGES"]),
        Kind::Job => (vec!["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"], TEMPLATE),
        Kind::CronJob => {
            (vec!["NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST SCHEDULE", "AGE"], TEMPLATE)
        }
        Kind::Service => (vec!["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"], &["SELECTOR"]),
        Kind::Endpoints => (vec!["NAME", "ENDPOINTS", "AGE"], &["NOT READY"]),
        Kind::ConfigMap => (vec!["NAME", "DATA", "AGE"], &[]),
        Kind::Secret => (vec!["NAME", "TYPE", "DATA", "AGE"], &[]),
        Kind::PersistentVolumeClaim => (
            vec!["NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS", "AGE"],
            &["VOLUMEMODE"],
        ),
        Kind::Namespace => (vec!["NAME", "STATUS", "AGE"], &[]),
    };
    if width == Width::Wide {
        head.extend(wide);
    }
    head
}

const TEMPLATE: &[&str] = &["CONTAINERS", "IMAGES", "SELECTOR"];

/// One row, without its name.
pub(super) fn row(kind: Kind, it: &Value, width: Width, now: Timestamp) -> Vec<Cell> {
    let age = || age::since(it.pointer("/metadata/creationTimestamp"), now);
    let number = |pointer: &str| count(it, pointer).to_string();
    let (mut row, wide): (Vec<Cell>, Vec<Cell>) = match kind {
        Kind::Pod => return pod(it, width, now),
        Kind::Deployment => (
            vec![
                of(count(it, "/status/readyReplicas"), count(it, "/spec/replicas")).into(),
                number("/status/updatedReplicas").into(),
                number("/status/availableReplicas").into(),
                age().into(),
            ],
            template(it),
        ),
        Kind::ReplicaSet => (
            vec![
                number("/spec/replicas").into(),
                number("/status/replicas").into(),
                number("/status/readyReplicas").into(),
                age().into(),
            ],
            template(it),
        ),
        Kind::DaemonSet => (
            vec![
                number("/status/desiredNumberScheduled").into(),
                number("/status/currentNumberScheduled").into(),
                number("/status/numberReady").into(),
                number("/status/updatedNumberScheduled").into(),
                number("/status/numberAvailable").into(),
                "<none>".into(),
                age().into(),
            ],
            template(it),
        ),
        Kind::StatefulSet => (
            vec![of(count(it, "/status/readyReplicas"), count(it, "/spec/replicas")).into(), age().into()],
            template(it).into_iter().take(2).collect(),
        ),
        Kind::Job => (job(it, now), template(it)),
        Kind::CronJob => (
            vec![
                at(it, "/spec/schedule").into(),
                or_none(at(it, "/spec/timeZone")).into(),
                if at(it, "/spec/suspend") == "true" { "True" } else { "False" }.into(),
                words(it, "/status/active").len().to_string().into(),
                match it.pointer("/status/lastScheduleTime") {
                    None | Some(Value::Null) => "<none>".into(),
                    moment => age::since(moment, now).into(),
                },
                age().into(),
            ],
            template(it),
        ),
        Kind::Service => (
            vec![
                at(it, "/spec/type").into(),
                or_none(at(it, "/spec/clusterIP")).into(),
                or_none(words(it, "/spec/externalIPs").join(",")).into(),
                ports(it).into(),
                age().into(),
            ],
            vec![labels(it.pointer("/spec/selector")).into()],
        ),
        Kind::Endpoints => (
            vec![or_none(first_three(&endpoints(it, "addresses", None))).into(), age().into()],
            vec![or_none(first_three(&endpoints(it, "notReadyAddresses", None))).into()],
        ),
        Kind::ConfigMap => (vec![entries(it).into(), age().into()], vec![]),
        Kind::Secret => (vec![at(it, "/type").into(), entries(it).into(), age().into()], vec![]),
        Kind::PersistentVolumeClaim => (
            vec![
                at(it, "/status/phase").into(),
                at(it, "/spec/volumeName").into(),
                "".into(),
                modes(it).into(),
                "".into(),
                age().into(),
            ],
            vec!["Filesystem".into()],
        ),
        Kind::Namespace => (vec![at(it, "/status/phase").into(), age().into()], vec![]),
    };
    if width == Width::Wide {
        row.extend(wide);
    }
    row
}

/// `ADDRESS:PORT` of all endpoints, ready ones (`addresses`) or others (`notReadyAddresses`), of one port or all.
pub(super) fn endpoints(it: &Value, which: &str, port: Option<&str>) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for subset in list(&it["subsets"]) {
        let ports = list(&subset["ports"]);
        let ports = ports.iter().filter(|found| port.is_none_or(|name| at(found, "/name") == name));
        for found in ports {
            for address in list(&subset[which]) {
                all.push(format!("{}:{}", at(&address, "/ip"), at(found, "/port")));
            }
        }
    }
    all
}

/// As kubectl shortens lists of endpoints.
pub(super) fn first_three(all: &[String]) -> String {
    let shown = all.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(",");
    if all.len() > 3 { format!("{shown} + {} more...", all.len() - 3) } else { shown }
}

fn of(part: u64, whole: u64) -> String {
    format!("{part}/{whole}")
}

fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

fn pod(it: &Value, width: Width, now: Timestamp) -> Vec<Cell> {
    // Sidecars count as app containers.
    let is_sidecar = |it: &&Value| it["restartPolicy"] == "Always";
    let sidecars: Vec<&Value> = list(it, "/spec/initContainers").iter().filter(is_sidecar).collect();
    let initial = list(it, "/status/initContainerStatuses");
    let sidecar_statuses =
        initial.iter().filter(|it| sidecars.iter().any(|sidecar| sidecar["name"] == it["name"]));
    let containers: Vec<&Value> =
        list(it, "/status/containerStatuses").iter().chain(sidecar_statuses).collect();
    let ready = containers.iter().filter(|it| it["ready"] == true).count();
    let restarts: u64 = containers.iter().filter_map(|it| it["restartCount"].as_u64()).sum();
    let ended = containers.iter().filter_map(|it| it.pointer("/lastState/terminated/finishedAt"));
    let restarts = match ended.max_by_key(|it| it.as_str()) {
        Some(last) if restarts > 0 => format!("{restarts} ({} ago)", age::since(Some(last), now)),
        Some(_) | None => restarts.to_string(),
    };
    let status = pod_status(it);
    let status = match status.as_str() {
        "Running" | "Completed" => Cell::from(status),
        "Pending" | "ContainerCreating" | "Terminating" | "Building" => Cell::painted(Paint::Busy, status),
        _ => Cell::painted(Paint::Bad, status),
    };
    let total = list(it, "/spec/containers").len() + sidecars.len();
    let mut row = vec![
        format!("{ready}/{total}").into(),
        status,
        restarts.into(),
        age::since(it.pointer("/metadata/creationTimestamp"), now).into(),
    ];
    if width == Width::Wide {
        row.push(or_none(at(it, "/status/podIP")).into());
        row.push(or_none(at(it, "/spec/nodeName")).into());
        // Nothing is scheduled, and there are no readiness gates.
        row.extend(["<none>".into(), "<none>".into()]);
    }
    row
}

/// The status of a Pod in one word: why it waits, how it ended, or its phase.
pub(super) fn pod_status(it: &Value) -> String {
    if it.pointer("/metadata/deletionTimestamp").is_some() {
        return "Terminating".to_owned();
    }
    // When the Pod has ended, its sidecars have too, however they ended. An init container that failed ended it before.
    let containers = list(it, "/status/containerStatuses");
    let is_over = matches!(at(it, "/status/phase").as_str(), "Succeeded" | "Failed");
    let has_begun = containers.iter().any(|container| container.pointer("/state/waiting").is_none());
    let init = if is_over && has_begun { &[] } else { list(it, "/status/initContainerStatuses") };
    let has_ended = |it: &Value| it.pointer("/state/terminated/exitCode") == Some(&Value::from(0));
    // A sidecar counts as done once it has started.
    let unfinished = init.iter().position(|it| !has_ended(it) && it["started"] != true);
    if let Some(index) = unfinished {
        let word = init.get(index).map(container_status).unwrap_or_default();
        return match word.as_str() {
            "" | "PodInitializing" | "Running" => format!("Init:{index}/{}", init.len()),
            word => format!("Init:{word}"),
        };
    }
    let words: Vec<String> = containers.iter().map(container_status).collect();
    let telling = words.iter().find(|it| !matches!(it.as_str(), "" | "Running" | "Completed"));
    let is_running = words.iter().any(|it| it == "Running");
    match telling.or_else(|| words.first()) {
        Some(word) if word == "Completed" && is_running => "Running".to_owned(),
        Some(word) if !word.is_empty() => word.clone(),
        Some(_) | None => at(it, "/status/phase"),
    }
}

/// `Running`, or the reason why it waits or ended.
fn container_status(it: &Value) -> String {
    if it.pointer("/state/running").is_some() {
        return "Running".to_owned();
    }
    let waiting = at(it, "/state/waiting/reason");
    if waiting.is_empty() { at(it, "/state/terminated/reason") } else { waiting }
}

fn job(it: &Value, now: Timestamp) -> Vec<Cell> {
    let conditions = list(it, "/status/conditions");
    let is = |kind: &str| conditions.iter().any(|it| it["type"] == kind && it["status"] == "True");
    let status = ["Complete", "Failed", "Suspended"].into_iter().find(|it| is(it)).unwrap_or("Running");
    let moment = |pointer: &str| it.pointer(pointer).and_then(Value::as_str).and_then(Timestamp::parse);
    let duration = match (moment("/status/startTime"), moment("/status/completionTime")) {
        (Some(start), end) => age::short(end.unwrap_or(now).since(start)),
        (None, _) => String::new(),
    };
    let paint = if status == "Failed" { Paint::Bad } else { Paint::Good };
    vec![
        Cell::painted(paint, status),
        completions(it).into(),
        duration.into(),
        age::since(it.pointer("/metadata/creationTimestamp"), now).into(),
    ]
}

/// `1/3`, or `1/1 of 2` for a Job without `completions`, which is done with its first success.
fn completions(job: &Value) -> String {
    let succeeded = count(job, "/status/succeeded");
    match (job.pointer("/spec/completions").and_then(Value::as_u64), count(job, "/spec/parallelism")) {
        (Some(wanted), _) => of(succeeded, wanted),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => of(succeeded, 1),
    }
}

fn template(it: &Value) -> Vec<Cell> {
    let spec = if it.pointer("/spec/jobTemplate").is_some() { "/spec/jobTemplate/spec" } else { "/spec" };
    let containers = list(it, &format!("{spec}/template/spec/containers"));
    let all = |key: &str| {
        let texts: Vec<&str> = containers.iter().filter_map(|it| it[key].as_str()).collect();
        texts.join(",")
    };
    let selector = labels(it.pointer("/spec/selector/matchLabels"));
    vec![all("name").into(), all("image").into(), selector.into()]
}

/// `app=web,tier=front`
pub(super) fn labels(map: Option<&Value>) -> String {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or_none(pairs.join(","))
}

/// `80/TCP,443:30443/TCP`
fn ports(it: &Value) -> String {
    let one = |it: &Value| {
        let node = it["nodePort"].as_u64().map_or_else(String::new, |it| format!(":{it}"));
        format!("{}{node}/{}", it["port"], it["protocol"].as_str().unwrap_or("TCP"))
    };
    or_none(list(it, "/spec/ports").iter().map(one).collect::<Vec<_>>().join(","))
}

fn modes(it: &Value) -> String {
    let short = |it: &String| match it.as_str() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    words(it, "/spec/accessModes").iter().map(short).collect::<Vec<_>>().join(",")
}

fn entries(it: &Value) -> String {
    it["data"].as_object().map_or(0, serde_json::Map::len).to_string()
}

fn list<'a>(it: &'a Value, pointer: &str) -> &'a [Value] {
    it.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn without_head(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn completions_are_counted_as_kubectl_does() {
        let job = |spec: Value| completions(&json!({ "spec": spec, "status": { "succeeded": 2 } }));
        assert_eq!(job(json!({ "completions": 3, "parallelism": 2 })), "2/3");
        assert_eq!(job(json!({ "completions": null, "parallelism": 2 })), "2/1 of 2");
        assert_eq!(job(json!({ "parallelism": 1 })), "2/1");
    }

    #[test]
    fn external_addresses_of_a_service_are_listed() {
        let service = json!({ "spec": { "externalIPs": ["192.0.2.1", "192.0.2.2"] } });
        let cells = row(Kind::Service, &service, Width::Normal, Timestamp(0));
        let shown = cells.get(2).map(|cell| format!("{cell:?}")).unwrap_or_default();
        assert!(shown.contains("\"192.0.2.1,192.0.2.2\""), "{shown}");
    }
}
