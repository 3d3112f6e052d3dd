//! Jobs as Kubernetes objects.

use serde_json::{Map, Value, json};

use super::moment;
use crate::model::WorkloadStatus;

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
