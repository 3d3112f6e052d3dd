//! Counting the ends of Jobs' containers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    Instance, JobEnd, JobOutcome, JobRecord, Observed, Record, Role, SpecHash, Stack, State, Timestamp,
    Workload, WorkloadName,
};

use crate::{
    facts::{
        Facts,
        cron::keeps_runs_of,
        jobs::{JobPart, all, completed_at, is_same, manifest_of, spec_of},
        standing::{self, Ending},
        waves,
    },
    swarm::{count_swarm_job, swarm_hash_of},
    target::Target,
};

/// Finds the containers of Jobs that were created with other networks than Git has now, or with other values if the Job has
/// completed, by the hashes that these Jobs had.
pub(crate) fn note_kept(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    for (of, parts) in all(target.stack) {
        let Some(known) = record.jobs.get_mut(of) else { continue };
        let specs: BTreeMap<&WorkloadName, SpecHash> =
            parts.iter().map(|part| (part.subject.name, target.spec(part.subject))).collect();
        let is_own = |it: &&Instance| it.agent == *target.agent && record.own_containers.contains(&it.id);
        let own: Vec<(&Instance, &SpecHash)> = observed
            .instances
            .values()
            .filter(is_own)
            .filter_map(|it| Some((it, specs.get(&it.instance.workload)?)))
            .collect();
        let present: BTreeSet<&SpecHash> = own.iter().map(|(it, _)| &it.spec).collect();
        known.specs.retain(|spec| present.contains(spec));
        let is_kept =
            |(it, spec): &&(&Instance, &SpecHash)| it.spec != **spec && known.specs.contains(&it.spec);
        known.kept = own.iter().filter(is_kept).map(|(it, _)| it.id.clone()).collect();
        if !known.kept.is_empty() && !is_same(known, &parts) {
            known.kept.clear();
        }
    }
}

/// Counts what has ended since, and says whether the Job has.
pub(crate) fn note(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    let jobs = all(target.stack);
    record.jobs.retain(|name, _| jobs.contains_key(name));
    // In the same step: without its record, a run that has ended would be begun again when the CronJob comes back.
    record.crons.retain(|name, _| keeps_runs_of(target.stack, name));
    let waiting = waiting(record, target, observed, now);
    for (of, parts) in jobs {
        let spec = spec_of(&parts);
        let known = record.jobs.remove(of).filter(|it| it.spec == spec || is_same(it, &parts));
        let known = known.map(|it| JobRecord { spec: spec.clone(), ..it });
        let mut job = known.unwrap_or_else(|| new_job(record, of, spec, &parts));
        // A stack of the database has no manifests.
        job.manifest = manifest_of(&parts).or(job.manifest);
        if let (Some(swarm), Some(part)) = (observed.swarm.as_deref(), parts.first()) {
            let hash = swarm_hash_of(target, part.subject);
            count_swarm_job(&mut job, target, swarm, *part, &hash, now);
            remember(record, of, &job, &parts);
            record.jobs.insert(of.clone(), job);
            continue;
        }
        job.counted.retain(|it, _| observed.container(it).is_some());
        let mut active = 0;
        for part in &parts {
            let spec = target.spec(part.subject);
            if job.ended.is_none() {
                job.specs.insert(spec.clone());
            }
            let mine = observed.instances.values().filter(|instance| {
                instance.instance.workload == *part.subject.name
                    && instance.spec == spec
                    && instance.agent == *target.agent
                    && record.own_containers.contains(&instance.id)
            });
            for instance in mine {
                let was_unstarted = !job.begun || job.unstarted;
                job.unstarted = was_unstarted && !has_run(observed, part.subject.workload, instance);
                job.begun = true;
                job.specs.insert(spec.clone());
                active += usize::from(standing::is_up(instance));
                count(&mut job, record, observed, *part, instance);
            }
        }
        keep_time(&mut job, &parts, !waiting.contains(of), now);
        let was_open = job.ended.is_none();
        conclude(&mut job, &parts, active, now);
        let cron = parts.first().and_then(|part| part.job.cron.as_ref());
        if let Some(cron) = cron.filter(|_| was_open && job.ended.is_some()) {
            end_others_before(record, cron, now);
        }
        remember(record, of, &job, &parts);
        record.jobs.insert(of.clone(), job);
    }
}

/// The Jobs that have not begun because their turn has not come, or nothing begins in a suspended application. In a Swarm the time of a
/// Job begins with its tasks.
fn waiting<'a>(
    record: &Record,
    target: &Target<'a>,
    observed: &Observed,
    now: Timestamp,
) -> BTreeSet<&'a WorkloadName> {
    let stack: &'a Stack = target.stack;
    let has_begun =
        |name: &WorkloadName| record.jobs.get(name).is_some_and(|job| job.begun || job.ended.is_some());
    let mut open = all(stack);
    open.retain(|name, _| !has_begun(name));
    if open.is_empty() || observed.swarm.is_some() {
        return BTreeSet::new();
    }
    if target.policy.suspended {
        return open.into_keys().collect();
    }
    let facts = Facts::new(target, observed, record, now);
    let waits =
        |parts: &Vec<JobPart<'_>>| parts.first().is_some_and(|first| !waves::has_turn(&facts, *first));
    open.into_iter().filter(|(_, parts)| waits(parts)).map(|(name, _)| name).collect()
}

/// The record of a Job that is new in the stack. Where it completed before with the same content, a rollback has brought
/// it back, or another agent of the Swarm has run it, and it is not run again.
fn new_job(record: &Record, of: &WorkloadName, spec: SpecHash, parts: &[JobPart<'_>]) -> JobRecord {
    let before = completed_at(&record.completed_jobs, of, parts);
    let Some(at) = before else { return JobRecord { spec, ..JobRecord::default() } };
    JobRecord {
        spec,
        begun: true,
        done: parts.iter().map(|part| part.job.ordinal).collect(),
        ended: Some(JobEnd { at, outcome: JobOutcome::Complete }),
        ..JobRecord::default()
    }
}

/// Remembers a Job that has completed. Runs of CronJobs and hooks have names of their own.
fn remember(record: &mut Record, of: &WorkloadName, job: &JobRecord, parts: &[JobPart<'_>]) {
    let end = job.ended.as_ref().filter(|end| end.outcome == JobOutcome::Complete);
    let Some(end) = end.filter(|_| !parts.iter().any(|part| part.job.is_run())) else { return };
    for spec in [&job.spec].into_iter().chain(&job.manifest) {
        record.completed_jobs.insert(of, spec, end.at);
    }
}

/// Takes the Jobs of a stack that was applied before the record was lost for complete, because their work would be done twice.
/// A Job of which a container is left is not among them: the container says how it has ended. Returns those that are new.
pub fn suppose_completed(
    record: &mut Record,
    stack: &Stack,
    observed: &Observed,
    at: Timestamp,
) -> BTreeSet<WorkloadName> {
    let mut supposed = BTreeSet::new();
    // The managers of a Swarm share which Jobs have completed.
    if observed.swarm.is_some() {
        return supposed;
    }
    for (of, parts) in all(stack) {
        let mut instances = observed.instances.values();
        let is_left = instances
            .any(|instance| parts.iter().any(|part| *part.subject.name == instance.instance.workload));
        let is_idle = parts.iter().any(|part| part.job.is_run() || part.job.suspended);
        let is_known = record.jobs.get(of).is_some_and(|job| job.begun || job.ended.is_some())
            || completed_at(&record.completed_jobs, of, &parts).is_some();
        if is_left || is_idle || is_known {
            continue;
        }
        record.jobs.remove(of);
        let (spec, manifest) = (spec_of(&parts), manifest_of(&parts));
        for hash in [&spec].into_iter().chain(&manifest) {
            record.completed_jobs.insert(of, hash, at);
        }
        supposed.insert(of.clone());
    }
    supposed
}

/// Whether an instance has run. The first container of a pod of several does no work itself.
fn has_run(observed: &Observed, workload: &Workload, instance: &Instance) -> bool {
    let has_started = |container: &Instance| container.started.is_some() || standing::is_up(container);
    if workload.parts.is_empty() {
        has_started(instance)
    } else {
        observed.parts_of(&instance.id).into_iter().any(has_started)
    }
}

/// Every end counts once, known by when it was; what somebody or the engine's shutdown brought about does not.
fn count(job: &mut JobRecord, record: &Record, observed: &Observed, part: JobPart<'_>, instance: &Instance) {
    if standing::is_completed(record, observed, part.subject.workload, instance) {
        // The end of a Job that was deleted is not one of the Job that takes its place.
        let known = job.counted.get(&instance.id);
        let is_known = matches!(instance.state, State::Exited { finished, .. } if known == Some(&finished));
        if !is_known && job.done.insert(part.job.ordinal) {
            job.streak = 0;
        }
        return;
    }
    // A container that a user has asked to replace counts as no other try: its Job may begin again because of it.
    if record.replaced.contains_key(&instance.id) {
        return;
    }
    // A container that ends with its pod has not ended by itself. A sidecar belongs to no try.
    if part.subject.workload.retries_parts() && instance.is_running() {
        let is_counted = |found: &&&Instance| {
            let is_sidecar = found.part.as_ref().is_some_and(|it| it.role == Role::Sidecar);
            !is_sidecar && record.own_containers.contains(&found.id)
        };
        for found in observed.parts_of(&instance.id).iter().filter(is_counted) {
            count_failure(job, record, observed, found);
        }
    }
    count_failure(job, record, observed, instance);
}

fn count_failure(job: &mut JobRecord, record: &Record, observed: &Observed, instance: &Instance) {
    let Some(Ending::Failed { code, finished }) = standing::ending(record, observed, instance) else {
        return;
    };
    if job.counted.insert(instance.id.clone(), finished) != Some(finished) {
        job.failures = job.failures.saturating_add(1);
        job.streak = job.streak.saturating_add(1);
        (job.last_failure, job.last_code) = (Some(finished), code);
        job.last_error = match &instance.state {
            State::Exited { error, .. } => error.clone(),
            _ => String::new(),
        };
    }
}

/// Notes when the time of a Job began: when its turn came, or when it was taken up again after it had been suspended.
fn keep_time(job: &mut JobRecord, parts: &[JobPart<'_>], has_turn: bool, now: Timestamp) {
    if job.ended.is_some() {
        return;
    }
    let is_suspended = parts.first().is_some_and(|part| part.job.suspended);
    let runs = !is_suspended && (job.begun || has_turn);
    job.started = job.started.or(Some(now)).filter(|_| runs);
}

/// Moves the ends of the other runs of a CronJob before that of one that ends now. A clock that was ahead may have noted a later time,
/// and the newest end decides about the health.
fn end_others_before(record: &mut Record, cron: &WorkloadName, now: Timestamp) {
    let Some(known) = record.crons.get_mut(cron) else { return };
    let before = |at: &mut Timestamp| {
        if *at > now {
            *at = now.before(Duration::from_millis(1));
        }
    };
    known.last_success.iter_mut().for_each(before);
    known.last_failure.iter_mut().for_each(|failed| before(&mut failed.end.at));
    for run in known.runs.keys() {
        if let Some(end) = record.jobs.get_mut(run).and_then(|job| job.ended.as_mut()) {
            before(&mut end.at);
        }
    }
}

fn conclude(job: &mut JobRecord, parts: &[JobPart<'_>], active: usize, now: Timestamp) {
    let Some(JobPart { job: wanted, .. }) = parts.first() else { return };
    if job.ended.is_some() {
        return;
    }
    let is_complete = match wanted.completions {
        // It has one part all the same, which is never begun.
        Some(0) => true,
        Some(_) => job.done.len() >= parts.len(),
        None => !job.done.is_empty() && active == 0,
    };
    let is_late = || {
        let end = job.started.zip(wanted.active_deadline).map(|(since, it)| since.after(it));
        end.is_some_and(|it| now >= it)
    };
    let outcome = if is_complete {
        JobOutcome::Complete
    } else if is_late() {
        JobOutcome::DeadlineExceeded
    } else if job.failures > wanted.backoff_limit {
        JobOutcome::BackoffLimitExceeded
    } else {
        return;
    };
    job.ended = Some(JobEnd { at: now, outcome });
}
