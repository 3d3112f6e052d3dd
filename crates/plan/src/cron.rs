//! When runs of CronJobs are begun, and how long they are kept.
//!
//! To begin one is to write it down: a run that is remembered stands in the stack like any other Job, and is there once,
//! whenever the agent ends in between. Its name says for which minute it is, so that no minute has two.

use std::{borrow::Cow, collections::BTreeMap};

use driftless_model::{
    Concurrency, Cron, CronRecord, EventKind, Job, JobOutcome, Kind, ObjectRef, Record, Schedule, Stack,
    StackHash, Timestamp, Workload, WorkloadName,
};

use super::round::Round;

/// So many times missed are a sign that something is wrong.
const TOO_MANY: usize = 100;

/// Something to be told of a CronJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub kind: EventKind,
    pub reason: &'static str,
    pub object: String,
    pub message: String,
}

/// Begins what is due, and forgets what has been kept for long enough.
pub fn schedule(record: &mut Record, stack: &Stack, now: Timestamp) -> Vec<Told> {
    let mut told = Vec::new();
    let mut crons = std::mem::take(&mut record.crons);
    for (name, template, cron) in all(stack) {
        let fresh = || CronRecord { since: now, ..CronRecord::default() };
        let mut known = crons.remove(name).unwrap_or_else(fresh);
        // A clock that was set back has begun nothing in the future.
        known.since = known.since.min(now);
        known.last = known.last.map(|it| it.min(now));
        tidy(&mut known, cron, record);
        let object = stack.inventory.workloads.get(name);
        renew(&mut known, (name, template), object, record);
        begin(&mut known, (name, template, cron), object, record, now, &mut told);
        record.crons.insert(name.clone(), known);
    }
    told
}

/// The stack with the runs that were begun. Its hash is that of what Git says.
pub fn with_runs<'a>(stack: &'a Stack, record: &Record) -> Cow<'a, Stack> {
    let mut runs = record.crons.iter().filter(|(name, _)| stack.workloads.contains_key(*name)).peekable();
    if runs.peek().is_none() {
        return Cow::Borrowed(stack);
    }
    let mut whole = Stack { given: Some(StackHash::of(stack)), ..without_runs(stack) };
    for (cron, known) in runs {
        let namespace = stack.inventory.workloads.get(cron).map(|it| it.namespace.clone());
        for (name, run) in &known.runs {
            // Git may since have given the name to something of its own.
            if stack.workloads.get(name).is_some_and(|it| !is_run(it)) {
                continue;
            }
            let dotted = namespace.as_ref().map(|it| format!(".{it}")).unwrap_or_default();
            let plain = name.as_str().strip_suffix(&dotted).unwrap_or(name.as_str()).to_owned();
            let namespace = namespace.clone().unwrap_or_default();
            let object = ObjectRef { kind: Kind::Job, namespace, name: plain };
            whole.inventory.workloads.insert(name.clone(), object);
            whole.workloads.insert(name.clone(), run.clone());
        }
    }
    Cow::Owned(whole)
}

/// The stack as Git says it.
pub fn without_runs(stack: &Stack) -> Stack {
    let mut plain = Stack { given: None, ..stack.clone() };
    plain.workloads.retain(|_, it| !is_run(it));
    let workloads = &plain.workloads;
    plain.inventory.workloads.retain(|name, _| workloads.contains_key(name));
    plain
}

fn is_run(workload: &Workload) -> bool {
    workload.job.as_ref().is_some_and(|it| it.cron.is_some())
}

/// A run of this template, at this moment.
pub fn run_of(template: &Workload, cron: &WorkloadName, run: &WorkloadName, name: &str) -> Option<Workload> {
    let job = Job { of: run.clone(), cron: Some(cron.clone()), ..template.job.clone()? };
    let replicas = u32::from(!job.suspended);
    let mut workload = Workload { replicas, job: Some(job), cron: None, ..template.clone() };
    for label in ["batch.kubernetes.io/job-name", "job-name"] {
        workload.container.labels.insert(label.to_owned(), name.to_owned());
    }
    Some(workload)
}

/// The workload of the Job of this name beside a CronJob: `report-29384756` is `report-29384756.shop` beside `report.shop`.
pub fn run_name(cron: &WorkloadName, object: Option<&ObjectRef>, job: &str) -> WorkloadName {
    let plain = object.map_or(cron.as_str(), |it| &it.name);
    let namespace = cron.as_str().strip_prefix(plain).unwrap_or_default();
    WorkloadName(format!("{job}{namespace}"))
}

/// Looks again when the next run is due.
pub(super) fn look_ahead(round: &mut Round<'_>) {
    if round.target.policy.suspended || all(round.target.stack).next().is_none() {
        return;
    }
    let now = round.now;
    // A run that was just seen to have ended may let another begin.
    let mut then = round.record.clone();
    schedule(&mut then, round.target.stack, now);
    if then.crons != round.record.crons {
        round.look_again(now);
    }
    let next = all(round.target.stack)
        .filter(|(_, _, cron)| !cron.suspended)
        .filter_map(|(_, _, cron)| parsed(cron)?.next(now));
    if let Some(next) = next.min() {
        round.look_again(next);
    }
}

/// Whether this is the name of a run that was begun once.
pub(super) fn was_run(stack: &Stack, name: &WorkloadName) -> bool {
    all(stack).any(|(cron, ..)| {
        let plain = stack.inventory.workloads.get(cron).map_or(cron.as_str(), |it| &it.name);
        name.as_str().strip_prefix(plain).is_some_and(|it| it.starts_with('-'))
    })
}

/// Why the last run that has ended is no success, if it is none.
pub(super) fn failure<'a>(record: &'a Record, name: &WorkloadName) -> Option<(&'a WorkloadName, JobOutcome)> {
    let known = record.crons.get(name)?;
    let ended = known.runs.keys().filter_map(|it| Some((it, record.jobs.get(it)?.ended.as_ref()?)));
    let (run, end) = ended.max_by_key(|(_, it)| it.at)?;
    // The one that succeeded since may not have been kept.
    let is_made_up_for = known.last_success.is_some_and(|it| it > end.at);
    (end.outcome != JobOutcome::Complete && !is_made_up_for).then_some((run, end.outcome))
}

fn all(stack: &Stack) -> impl Iterator<Item = (&WorkloadName, &Workload, &Cron)> {
    stack.workloads.iter().filter_map(|(name, it)| Some((name, it, it.cron.as_ref()?)))
}

/// It was parsed when it was read; what an older program wrote and this one cannot read is never due.
fn parsed(cron: &Cron) -> Option<Schedule> {
    Schedule::parse(&cron.schedule, cron.zone.as_deref()).ok()
}

/// Forgets the oldest runs that have ended, beyond those that are kept.
fn tidy(known: &mut CronRecord, cron: &Cron, record: &Record) {
    let mut ended: BTreeMap<bool, Vec<(Timestamp, WorkloadName)>> = BTreeMap::new();
    for name in known.runs.keys() {
        let Some(end) = record.jobs.get(name).and_then(|it| it.ended.as_ref()) else { continue };
        let is_good = end.outcome == JobOutcome::Complete;
        if is_good {
            known.last_success = known.last_success.max(Some(end.at));
        }
        ended.entry(is_good).or_default().push((end.at, name.clone()));
    }
    for (is_good, mut runs) in ended {
        let keep = if is_good { cron.keep_successful } else { cron.keep_failed } as usize;
        runs.sort();
        let surplus = runs.len().saturating_sub(keep);
        for (_, name) in runs.into_iter().take(surplus) {
            known.runs.remove(&name);
        }
    }
}

/// A run whose image cannot be had, so that there never was a container of it, is made of what Git says now: that may
/// be the cure, and nobody can delete it.
fn renew(
    known: &mut CronRecord,
    (cron, template): (&WorkloadName, &Workload),
    object: Option<&ObjectRef>,
    record: &Record,
) {
    for (name, run) in &mut known.runs {
        let has_begun = record.jobs.get(name).is_none_or(|it| it.begun || it.ended.is_some());
        if has_begun || !run.containers().any(|it| record.pulls.contains_key(&it.image)) {
            continue;
        }
        let dotted = object.map(|it| format!(".{}", it.namespace)).unwrap_or_default();
        let plain = name.as_str().strip_suffix(&dotted).unwrap_or(name.as_str());
        if let Some(renewed) = run_of(template, cron, name, plain) {
            *run = renewed;
        }
    }
}

fn begin(
    known: &mut CronRecord,
    (name, template, cron): (&WorkloadName, &Workload, &Cron),
    object: Option<&ObjectRef>,
    record: &Record,
    now: Timestamp,
    told: &mut Vec<Told>,
) {
    let Some(schedule) = parsed(cron).filter(|_| !cron.suspended) else { return };
    // What is too late to be begun was not missed either.
    let earliest = cron.starting_deadline.map(|it| {
        let millis = u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        Timestamp(now.0.saturating_sub(millis.saturating_add(1)))
    });
    let since = known.last.unwrap_or(known.since).max(earliest.unwrap_or_default());
    let Some((due, count)) = schedule.missed(since, now, TOO_MANY + 1) else { return };
    let mut tell = |known: &mut CronRecord, kind, reason, message: String| {
        if known.told.replace(due) != Some(due) {
            told.push(Told { kind, reason, object: name.to_string(), message });
        }
    };
    if count > TOO_MANY {
        let message = format!(
            "more than {TOO_MANY} times were missed since {since}: set or shorten startingDeadlineSeconds, or check the clock"
        );
        tell(known, EventKind::Warning, "TooManyMissedTimes", message);
    }
    let is_active = |it: &WorkloadName| record.jobs.get(it).is_none_or(|it| it.ended.is_none());
    let active: Vec<WorkloadName> = known.runs.keys().filter(|it| is_active(it)).cloned().collect();
    match (cron.concurrency, active.first()) {
        (Concurrency::Forbid, Some(active)) => {
            let message = format!("not begun, because {active} has not ended");
            tell(known, EventKind::Normal, "JobAlreadyActive", message);
            return;
        }
        (Concurrency::Replace, Some(_)) => active.iter().for_each(|it| drop(known.runs.remove(it))),
        (Concurrency::Allow | Concurrency::Forbid | Concurrency::Replace, _) => {}
    }
    let plain = object.map_or(name.as_str(), |it| &it.name);
    let job = format!("{plain}-{}", due.0 / 60_000);
    let run = run_name(name, object, &job);
    known.last = Some(due);
    // A clock that was set back comes to the same minute again.
    let workload = run_of(template, name, &run, &job).filter(|_| !known.runs.contains_key(&run));
    if let Some(workload) = workload {
        let message = format!("begun for {due}");
        told.push(Told {
            kind: EventKind::Normal,
            reason: "SuccessfulCreate",
            object: run.to_string(),
            message,
        });
        known.runs.insert(run, workload);
    }
}
