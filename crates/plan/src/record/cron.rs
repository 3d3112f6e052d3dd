//! Beginning the runs of CronJobs, and forgetting old ones.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{
    Concurrency, Container, Cron, CronRecord, EventKind, FailedRun, JobOutcome, MountSource, ObjectRef,
    PlatformImage, Record, Stack, Subject, Timestamp, Workload, WorkloadName, swarm_service_name,
};

use crate::{
    facts::cron::{CronJob, all, parsed, run_name, run_of},
    names::container_name_of,
};

/// More missed runs than this are reported as a fault.
const TOO_MANY: usize = 100;

/// The time in which the agents on all managers of a Swarm see a run that has ended.
const SEEN: Duration = Duration::from_mins(1);

/// An event about a CronJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronEvent {
    pub kind: EventKind,
    pub reason: &'static str,
    pub object: String,
    pub message: String,
}

/// Begins what is due, and forgets what has been kept for long enough.
pub fn schedule(record: &mut Record, stack: &Stack, now: Timestamp) -> Vec<CronEvent> {
    let mut events = Vec::new();
    let mut crons = std::mem::take(&mut record.crons);
    for cron_job in all(stack) {
        let name = cron_job.subject.name;
        let fresh = || CronRecord { since: now, ..CronRecord::default() };
        let mut known = crons.remove(name).unwrap_or_else(fresh);
        note_schedule(&mut known, cron_job.schedule, now);
        let service = stack.swarm.get(name);
        tidy(&mut known, cron_job.schedule, record, service.map(|_| now));
        let object = stack.inventory.workloads.get(name);
        renew(&mut known, cron_job.subject, stack, record);
        begin(&mut known, cron_job, object, record, now, &mut events);
        if let Some(service) = service {
            known.networks.clear();
            let runs = &known.runs;
            known.services.retain(|run, _| runs.contains_key(run));
            for run in runs.keys() {
                known.services.entry(run.clone()).or_insert_with(|| service.clone());
            }
        } else {
            keep_networks(&mut known, stack, record);
        }
        record.crons.insert(name.clone(), known);
    }
    events
}

/// Notes when the schedule or its time zone is changed. Times of the new one that have passed were never due.
pub(crate) fn note_schedule(known: &mut CronRecord, cron: &Cron, now: Timestamp) {
    follow_clock(known, now);
    let is_same = |before: &String| *before == cron.schedule && known.zone == cron.zone;
    let is_changed = known.schedule.as_ref().is_some_and(|before| !is_same(before));
    if is_changed {
        known.changed = Some(now);
    }
    if is_changed || known.schedule.is_none() {
        known.schedule = Some(cron.schedule.clone());
        known.zone.clone_from(&cron.zone);
    }
}

/// Keeps the times of a CronJob within those of the clock. One that was set back has begun nothing in the future, so runs go on from
/// its time. It may also be behind for a moment only, as after a boot without a battery: once it is past the latest of the times again,
/// nothing before that was missed.
fn follow_clock(known: &mut CronRecord, now: Timestamp) {
    let latest = known.floor.max(known.last).max(known.changed).unwrap_or_default().max(known.since);
    if latest > now {
        known.since = known.since.min(now);
        known.last = known.last.map(|last| last.min(now));
        known.changed = known.changed.map(|changed| changed.min(now));
        known.floor = Some(latest);
    } else if let Some(floor) = known.floor.take() {
        known.since = known.since.max(floor);
        known.last = known.last.map(|last| last.max(floor));
    }
}

/// Keeps the networks of the runs that have not ended: the next try needs them, and Git may then have none of them.
fn keep_networks(known: &mut CronRecord, stack: &Stack, record: &Record) {
    let mut kept = std::mem::take(&mut known.networks);
    for (name, run) in known.runs.iter().filter(|(name, _)| is_active(record, name)) {
        let mut before = kept.remove(name).unwrap_or_default();
        let networks = run.container.networks().keys().filter_map(|network| {
            let found = stack.networks.get(network).cloned().or_else(|| before.remove(network))?;
            Some((network.clone(), found))
        });
        known.networks.insert(name.clone(), networks.collect());
    }
}

/// Whether a run has not ended.
pub(crate) fn is_active(record: &Record, run: &WorkloadName) -> bool {
    record.jobs.get(run).is_none_or(|job| job.ended.is_none())
}

/// Forgets the oldest runs that have ended, beyond those that are kept. In a Swarm, at the time `now`, the agents on the other
/// managers have to see a run first: one of them may be the next to begin runs.
fn tidy(known: &mut CronRecord, cron: &Cron, record: &Record, now: Option<Timestamp>) {
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
        runs.retain(|(end, _)| now.is_none_or(|now| now >= end.after(SEEN)));
        for (_, run) in runs.into_iter().take(surplus) {
            known.runs.remove(&run);
            let end = record.jobs.get(&run).and_then(|job| job.ended.clone());
            if let Some(end) = end.filter(|_| !is_good) {
                let failed = known.last_failure.take().filter(|before| before.end.at > end.at);
                known.last_failure = failed.or(Some(FailedRun { run, end }));
            }
        }
    }
}

/// Renews the template of runs of which no container has run, because their image cannot be pulled, or the engine refuses to
/// create or start one. Git may contain the repair.
fn renew(known: &mut CronRecord, template: Subject<'_>, stack: &Stack, record: &Record) {
    let object = stack.inventory.workloads.get(template.name);
    let is_missing =
        |image: &PlatformImage| record.pulls.contains_key(image) || record.failures.contains_key(&image.name);
    for (name, run) in &mut known.runs {
        let Some(job) = record.jobs.get(name).filter(|job| job.ended.is_none()) else { continue };
        let lacks_image = !job.begun && run.own_images().any(|image| is_missing(&image));
        let has_run = job.begun && !job.unstarted;
        let has_worked = has_run || job.failures > 0 || !job.done.is_empty();
        let is_refused = is_refused(record, stack, Subject { name, workload: run });
        if !lacks_image && has_worked && is_refused {
            take_secrets(run, template.workload);
        }
        if !lacks_image && (has_worked || !is_refused) {
            continue;
        }
        let dotted = object.map(|it| format!(".{}", it.namespace)).unwrap_or_default();
        let plain = name.as_str().strip_suffix(&dotted).unwrap_or(name.as_str());
        if let Some(renewed) = run_of(template, name, plain) {
            *run = renewed;
            known.services.remove(name);
        }
    }
}

/// Gives a run the secrets that its template mounts now. Those of an older value are in memory only and gone after a restart of the host;
/// the kubelet mounts the present value for each try, too.
fn take_secrets(run: &mut Workload, template: &Workload) {
    take_mounted_secrets(&mut run.container, &template.container);
    for part in &mut run.parts {
        if let Some(other) = template.parts.iter().find(|other| other.name == part.name) {
            take_mounted_secrets(&mut part.container, &other.container);
        }
    }
    for (target, file) in run.in_place.iter_mut().filter(|(_, file)| file.secret) {
        if let Some(other) = template.in_place.get(target).filter(|other| other.secret) {
            file.content.clone_from(&other.content);
        }
    }
}

fn take_mounted_secrets(run: &mut Container, template: &Container) {
    for mount in &mut run.mounts {
        let MountSource::Secret(held) = &mut mount.source else { continue };
        let other = template.mounts.iter().find(|other| other.target == mount.target);
        if let Some(MountSource::Secret(id)) = other.map(|other| &other.source) {
            held.clone_from(id);
        }
    }
}

/// Whether the last try to create or start a container of a run has failed, or in a Swarm to create its service.
fn is_refused(record: &Record, stack: &Stack, run: Subject<'_>) -> bool {
    let has_failed = |object: &String| record.failures.contains_key(object);
    let container = container_name_of(stack, run, 1, Workload::spec);
    let mut parts = run.workload.parts.iter().map(|part| format!("{container}-{}", part.name));
    has_failed(&container)
        || parts.any(|part| has_failed(&part))
        || has_failed(&swarm_service_name(&stack.project, run.name))
}

fn begin(
    known: &mut CronRecord,
    cron_job: CronJob<'_>,
    object: Option<&ObjectRef>,
    record: &Record,
    now: Timestamp,
    events: &mut Vec<CronEvent>,
) {
    let CronJob { subject, schedule: cron } = cron_job;
    let name = subject.name;
    let Some(schedule) = parsed(cron).filter(|_| !cron.suspended) else { return };
    // Runs past their starting deadline do not count as missed.
    let earliest = cron.starting_deadline.map(|deadline| {
        let millis = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        Timestamp(now.0.saturating_sub(millis.saturating_add(1)))
    });
    let since = known.last.unwrap_or(known.since).max(known.changed.unwrap_or_default());
    let mut tell = |known: &mut CronRecord, due, kind, reason, message: String| {
        if known.last_reported.replace(due) != Some(due) {
            events.push(CronEvent { kind, reason, object: name.to_string(), message });
        }
    };
    let counted = since.max(earliest.unwrap_or_default());
    let Some((due, count)) = schedule.missed(counted, now, TOO_MANY + 1) else {
        let too_late = earliest.and_then(|earliest| schedule.missed(since, earliest, 1));
        if let Some((due, _)) = too_late {
            let message = format!("not begun for {due}, because startingDeadlineSeconds were over");
            tell(known, due, EventKind::Warning, "MissSchedule", message);
        }
        return;
    };
    if count > TOO_MANY {
        let message = format!(
            "more than {TOO_MANY} times were missed since {counted}: set or shorten startingDeadlineSeconds, or check the clock"
        );
        tell(known, due, EventKind::Warning, "TooManyMissedTimes", message);
    }
    let active: Vec<WorkloadName> = known.runs.keys().filter(|run| is_active(record, run)).cloned().collect();
    match (cron.concurrency, active.first()) {
        (Concurrency::Forbid, Some(active)) => {
            let message = format!("not begun, because {active} has not ended");
            let is_second = known.last_reported.is_some_and(|skipped| skipped > since && skipped < due);
            let kind = if is_second { EventKind::Warning } else { EventKind::Normal };
            tell(known, due, kind, "JobAlreadyActive", message);
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
    let workload = run_of(subject, &run, &job).filter(|_| !known.runs.contains_key(&run));
    if let Some(workload) = workload {
        let message = format!("begun for {due}");
        events.push(CronEvent {
            kind: EventKind::Normal,
            reason: "SuccessfulCreate",
            object: run.to_string(),
            message,
        });
        known.runs.insert(run, workload);
    }
}
