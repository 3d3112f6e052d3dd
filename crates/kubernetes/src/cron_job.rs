//! Reads a CronJob into the template of its Jobs.

use std::time::Duration;

use super::{
    catalogue::Catalogue,
    container::Template,
    controller_fields::{MOST, seconds, whole},
    fields, job, names,
    object::{Head, head},
    reader::Value,
    workload::ReadWorkload,
};
use driftless_model::{Concurrency, Cron, Schedule, Workload, WorkloadKind};

/// The longest name of a CronJob: a Job's name has the minute appended and must fit a label.
const LONGEST_NAME: usize = 52;

/// Reads a CronJob.
pub(super) fn read(value: Value<'_>, catalogue: &Catalogue) -> Option<ReadWorkload> {
    let Head { metadata, spec, key, origin } = head(value, fields::CRON_JOB)?;
    if let Some(name) = metadata.get("name").filter(|_| key.name.len() > LONGEST_NAME) {
        name.error(format!("the name of a CronJob has at most {LONGEST_NAME} characters"));
    }
    let zone = spec.get("timeZone").and_then(|it| it.text());
    let schedule = spec.require("schedule").and_then(|value| {
        let text = value.text()?;
        if let Err(error) = Schedule::parse(text, None) {
            value.error_help(error, "such as `*/15 8-18 * * mon-fri`");
        }
        Some(text)
    });
    if let (Some(value), Some(zone)) = (spec.get("timeZone"), zone)
        && let Err(error) = Schedule::parse("@daily", Some(zone))
    {
        value.error(error);
    }
    let words =
        [("Allow", Concurrency::Allow), ("Forbid", Concurrency::Forbid), ("Replace", Concurrency::Replace)];
    let concurrency = spec.filled("concurrencyPolicy").and_then(|it| it.one_of(&words));
    let number = |field| spec.integer(field, 0..=MOST).map(whole);
    let cron = Cron {
        schedule: schedule.unwrap_or_default().to_owned(),
        zone: zone.map(str::to_owned),
        concurrency: concurrency.unwrap_or(Concurrency::Allow),
        starting_deadline: spec
            .integer("startingDeadlineSeconds", 0..=MOST)
            .map(|it| Duration::from_secs(seconds(it))),
        suspended: spec.boolean("suspend").unwrap_or(false),
        keep_successful: number("successfulJobsHistoryLimit").unwrap_or(3),
        keep_failed: number("failedJobsHistoryLimit").unwrap_or(1),
    };
    let template = spec.require("jobTemplate")?.object(fields::JOB_TEMPLATE)?;
    if let Some(metadata) = template.object("metadata", fields::TEMPLATE_METADATA)
        && let Some(labels) = metadata.get("labels")
    {
        names::labels(&labels);
    }
    let of_job = template.require("spec")?.object(fields::JOB)?;
    for field in ["completions", "parallelism"] {
        if let Some(value) = of_job.get(field)
            && value.integer(0..=MOST).is_some_and(|it| it != 1)
        {
            value.error_help("other than 1 is not supported in a CronJob yet", "set it to 1");
            return None;
        }
    }
    if let Some(mode) = of_job.get("completionMode").filter(|it| it.node.as_scalar() == Some("Indexed")) {
        mode.error_help("`Indexed` is not supported in a CronJob yet", "remove it");
        return None;
    }
    let pod = Template::read(&of_job)?;
    let found = job::parts("CronJob", (&key, &origin), &of_job, &pod, catalogue).into_iter().next()?;
    // The CronJob itself has no instances; its Jobs have.
    let template = found.workload.job()?.clone();
    let kind = WorkloadKind::CronJob { schedule: cron, template };
    let workload = Workload { replicas: 0, kind, ..found.workload };
    Some(ReadWorkload { workload, ..found })
}
