//! The order and the updates of a workload in either format: `x-driftless` of a Compose service, annotations of an object.

use serde_json::{Map, Value, json};

use super::output::{flag, object, seconds};
use driftless_model::{Cron, HookPhase, Workload};

/// `x-driftless` of a service.
pub(super) fn of_service(workload: &Workload) -> Value {
    let fields = texts(&workload.ignore_differences);
    let canary = texts(&workload.canary);
    let deadline = workload.job_or_template().and_then(|job| job.active_deadline);
    let deadline = deadline.map(|time| format!("{}s", seconds(time)));
    object([
        ("hook", workload.hook().map_or(Value::Null, |phase| hook(phase, deadline.as_deref()))),
        ("wave", if workload.wave == 0 { Value::Null } else { json!(workload.wave) }),
        ("schedule", workload.schedule().map_or(Value::Null, |cron| schedule(cron, deadline.as_deref()))),
        ("canary", json!(canary)),
        ("ignore-differences", json!(fields)),
    ])
}

fn hook(phase: HookPhase, deadline: Option<&str>) -> Value {
    match deadline {
        None => json!(phase.to_string()),
        Some(deadline) => json!({ "phase": phase.to_string(), "deadline": deadline }),
    }
}

fn schedule(cron: &Cron, deadline: Option<&str>) -> Value {
    let Cron { schedule, zone, concurrency, starting_deadline, suspended, keep_successful, keep_failed } =
        cron;
    object([
        ("cron", json!(schedule)),
        ("time-zone", json!(zone)),
        ("concurrency", json!(concurrency.as_str())),
        ("starting-deadline", json!(starting_deadline.map(|time| format!("{}s", time.as_secs())))),
        ("deadline", json!(deadline)),
        ("suspend", flag(*suspended)),
        ("successful-history", json!(keep_successful)),
        ("failed-history", json!(keep_failed)),
    ])
}

/// The annotations of an object.
pub(super) fn annotations(workload: &Workload) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add = |name: &str, text: String| {
        if !text.is_empty() {
            all.insert(format!("driftless.{name}"), json!(text));
        }
    };
    add("hook", workload.hook().map(|phase| phase.to_string()).unwrap_or_default());
    add("wave", if workload.wave == 0 { String::new() } else { workload.wave.to_string() });
    add("canary", texts(&workload.canary).join(", "));
    add("ignore-differences", texts(&workload.ignore_differences).join(", "));
    all
}

/// `spec` of a CronJob.
pub(super) fn cron_job(cron: &Cron, job: &Value) -> Value {
    let Cron { schedule, zone, concurrency, starting_deadline, suspended, keep_successful, keep_failed } =
        cron;
    object([
        ("schedule", json!(schedule)),
        ("timeZone", json!(zone)),
        ("concurrencyPolicy", json!(concurrency.as_str())),
        ("startingDeadlineSeconds", json!(starting_deadline.map(|time| time.as_secs()))),
        ("suspend", flag(*suspended)),
        ("successfulJobsHistoryLimit", json!(keep_successful)),
        ("failedJobsHistoryLimit", json!(keep_failed)),
        ("jobTemplate", json!({ "spec": job })),
    ])
}

fn texts<'a, T: ToString + 'a>(all: impl IntoIterator<Item = &'a T>) -> Vec<String> {
    all.into_iter().map(ToString::to_string).collect()
}
