//! Jobs and CronJobs as Kubernetes objects.

use serde_json::{Map, Value, json};

use super::object::moment;
use driftless_model::WorkloadStatus;

pub(super) fn spec(it: &WorkloadStatus, selector: &Value, template: &Value) -> Value {
    let job = it.job.clone().unwrap_or_default();
    let mode = if job.completed_indexes.is_some() { "Indexed" } else { "NonIndexed" };
    json!({
        "completions": job.completions, "parallelism": job.parallelism, "suspend": job.suspended,
        "completionMode": mode, "selector": selector, "template": template,
    })
}

pub(super) fn status(it: &WorkloadStatus) -> Value {
    let job = it.job.clone().unwrap_or_default();
    let mut status = Map::new();
    for (key, count) in [("active", job.active), ("succeeded", job.succeeded), ("failed", job.failed)] {
        if count > 0 {
            status.insert(key.into(), count.into());
        }
    }
    status.insert("ready".into(), it.ready_replicas.into());
    for (key, at) in [("startTime", job.start_time), ("completionTime", job.completion_time)] {
        if let Some(at) = at {
            status.insert(key.into(), moment(at));
        }
    }
    if let Some(indexes) = job.completed_indexes {
        status.insert("completedIndexes".into(), indexes.into());
    }
    let verdict = match (job.completion_time, job.is_over) {
        (Some(_), _) => Some(("Complete", "CompletionsReached".to_owned())),
        (None, true) => Some(("Failed", job.reason.unwrap_or_else(|| "BackoffLimitExceeded".to_owned()))),
        (None, false) if job.suspended => Some(("Suspended", "JobSuspended".to_owned())),
        (None, false) => None,
    };
    if let Some((kind, reason)) = verdict {
        let condition = json!({ "type": kind, "status": "True", "reason": reason, "message": it.message });
        status.insert("conditions".into(), json!([condition]));
    }
    Value::Object(status)
}

pub(super) fn cron_spec(it: &WorkloadStatus, template: &Value) -> Value {
    let cron = it.cron.clone().unwrap_or_default();
    json!({
        "schedule": cron.schedule, "timeZone": cron.time_zone, "suspend": cron.suspend,
        "concurrencyPolicy": cron.concurrency_policy, "jobTemplate": { "spec": { "template": template } },
    })
}

pub(super) fn cron_status(it: &WorkloadStatus) -> Value {
    let cron = it.cron.clone().unwrap_or_default();
    let namespace = &it.spec.object.namespace;
    let job = |name: &String| json!({ "apiVersion": "batch/v1", "kind": "Job", "name": name, "namespace": namespace });
    let mut status = Map::new();
    if !cron.active.is_empty() {
        status.insert("active".into(), cron.active.iter().map(job).collect());
    }
    let times =
        [("lastScheduleTime", cron.last_schedule_time), ("lastSuccessfulTime", cron.last_successful_time)];
    for (key, at) in times {
        if let Some(at) = at {
            status.insert(key.into(), moment(at));
        }
    }
    Value::Object(status)
}
