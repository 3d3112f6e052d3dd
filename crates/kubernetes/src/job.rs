//! Reads a Job into one workload per completion.
//!
//! The planner decides when a completion starts and is retried. The engine restarts none, because all completions share
//! one count of failures.

use std::time::Duration;

use super::{
    catalogue::Catalogue,
    container::{Owner, Restarts, Template},
    controller_fields::{MOST, check_own_labels, seconds, whole},
    fields,
    object::{Head, Key, head},
    pod,
    reader::{Object, Value},
    workload::ReadWorkload,
};
use driftless_model::{
    Job, Location, RestartPolicy, SpecHash, Strategy, Workload, WorkloadKind, WorkloadName, label,
};
use driftless_yaml::edit;

/// The most completions of one Job; more on one host are taken for a mistake.
const MOST_PARTS: u32 = 500;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Reads a Job.
pub(super) fn read(value: Value<'_>, catalogue: &Catalogue) -> Vec<ReadWorkload> {
    let Some(Head { metadata, spec, key, origin }) = head(value, fields::JOB) else { return Vec::new() };
    let Some(template) = Template::read(&spec) else { return Vec::new() };
    check_own_labels(&metadata, &template.labels, "Job");
    parts("Job", (&key, &origin), &spec, &template, catalogue)
}

/// A Job as it was read.
pub(super) fn parts(
    kind: &'static str,
    (key, origin): (&Key, &Location),
    spec: &Object<'_>,
    template: &Template<'_>,
    catalogue: &Catalogue,
) -> Vec<ReadWorkload> {
    let number = |field| spec.integer(field, 0..=MOST).map(whole);
    let completions = number("completions");
    let parallelism = number("parallelism").unwrap_or(1);
    let words = [("NonIndexed", false), ("Indexed", true)];
    let indexed = spec.get("completionMode").and_then(|it| it.one_of(&words)).unwrap_or(false);
    if let Some(mode) = spec.get("completionMode").filter(|_| indexed && completions.is_none()) {
        mode.error_help("`Indexed` needs `completions`", "say how many there are");
    }
    if let Some(selector) = spec.get("selector") {
        selector.warning("has no effect: Driftless selects the pods of a Job by their names");
    }
    for (field, count) in [("completions", completions), ("parallelism", Some(parallelism))] {
        if let Some(value) = spec.get(field).filter(|_| count.is_some_and(|it| it > MOST_PARTS)) {
            value.error(format!("more than {MOST_PARTS} pods of a Job are not supported on one host"));
            return Vec::new();
        }
    }
    let policy = template.spec.string("restartPolicy");
    let backoff_limit = number("backoffLimit").unwrap_or(6);
    let job = Job {
        of: WorkloadName(key.dotted()),
        cron: None,
        hook: None,
        ordinal: 0,
        // Without both fields, one completion with a parallelism of one.
        completions: if parallelism <= 1 { Some(completions.unwrap_or(1)) } else { completions },
        parallelism,
        indexed,
        backoff_limit,
        active_deadline: duration(spec, "activeDeadlineSeconds"),
        ttl: duration(spec, "ttlSecondsAfterFinished"),
        suspended: spec.boolean("suspend").unwrap_or(false),
        fresh: policy == Some("Never"),
    };
    let count = job.completions.unwrap_or(parallelism);
    let is_one = count <= 1 && !indexed;
    let hash = spec.get("template").map(|it| SpecHash::of(&edit::json(it.node)));
    let maker = Maker { kind, key, origin, template, hash, catalogue, job: &job, is_one };
    (0..count.max(1)).filter_map(|it| maker.part(it, count)).collect()
}

fn duration(spec: &Object<'_>, field: &str) -> Option<Duration> {
    spec.integer(field, 0..=MOST).map(|it| Duration::from_secs(seconds(it)))
}

/// The fields that all completions share.
struct Maker<'a> {
    kind: &'static str,
    key: &'a Key,
    origin: &'a Location,
    template: &'a Template<'a>,
    /// Of the template as it is in the manifest.
    hash: Option<SpecHash>,
    catalogue: &'a Catalogue,
    job: &'a Job,
    /// Named after the Job.
    is_one: bool,
}

impl Maker<'_> {
    fn part(&self, ordinal: u32, count: u32) -> Option<ReadWorkload> {
        let Self { kind, key, origin, template, hash, catalogue, job, is_one } = self;
        let mut labels = template.labels.clone();
        let mut annotations = template.annotations.clone();
        for label in label::JOB_NAMES {
            labels.entry(label.to_owned()).or_insert_with(|| key.name.clone());
        }
        if job.indexed {
            labels.insert(INDEX.to_owned(), ordinal.to_string());
            annotations.insert(INDEX.to_owned(), ordinal.to_string());
        }
        let template = Template { spec: template.spec.clone(), labels, annotations };
        let name = format!("{}-{ordinal}", key.name);
        let owner = Owner {
            kind,
            key,
            pod_name: job.indexed.then_some(name.as_str()),
            job_index: job.indexed.then_some(ordinal),
            restarts: Restarts::Ending { retries: 0 },
            claims: std::collections::BTreeMap::new(),
            catalogue,
        };
        let part_key = if *is_one { (*key).clone() } else { Key::new(&key.namespace, &name) };
        let mut pod = pod::read(&template, &owner, &part_key)?;
        pod.container.restart = RestartPolicy::No;
        let mut found = ReadWorkload::new(part_key, (*origin).clone(), kind, template.labels, pod);
        found.object = (*key).clone();
        found.pod_name = job.indexed.then_some(name);
        found.workload.manifest.job_template.clone_from(hash);
        found.workload = Workload {
            // A Job with 0 completions is done.
            replicas: u32::from(!job.suspended && count > 0),
            strategy: Strategy::Recreate,
            kind: WorkloadKind::Job(Job { ordinal, ..(*job).clone() }),
            ..found.workload
        };
        Some(found)
    }
}
