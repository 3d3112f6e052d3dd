//! Work that ends: which parts of a Job are begun, tried again, or done with.
//!
//! A Job is not kept as it is, like everything else; it is brought to its end. So what has ended well is remembered,
//! and is not done again even when its container is gone, until the template is another.

use std::collections::BTreeMap;

use driftless_model::{
    Instance, InstanceId, Job, JobEnd, JobOutcome, JobRecord, Observed, Record, Replacement, SpecHash, Stack,
    State, Timestamp, Workload, WorkloadName,
};

use super::{
    Cause, Target, Wait, backoff,
    census::Census,
    gate::{self, Gate},
    pod, repair, replace as replacement,
    round::Round,
};

/// One part of a Job.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) name: &'a WorkloadName,
    pub(super) workload: &'a Workload,
    pub(super) job: &'a Job,
}

/// All Jobs of a stack, each with its parts in their order.
pub(super) fn all(stack: &Stack) -> BTreeMap<&WorkloadName, Vec<Part<'_>>> {
    let mut all: BTreeMap<&WorkloadName, Vec<Part<'_>>> = BTreeMap::new();
    for (name, workload) in &stack.workloads {
        if let Some(job) = workload.job.as_ref().filter(|_| workload.cron.is_none()) {
            all.entry(&job.of).or_default().push(Part { name, workload, job });
        }
    }
    for parts in all.values_mut() {
        parts.sort_by_key(|it| it.job.ordinal);
    }
    all
}

/// The parts of one Job in their order.
pub(super) fn parts_of<'a>(stack: &'a Stack, of: &WorkloadName) -> Vec<Part<'a>> {
    let part = |(name, workload): (&'a WorkloadName, &'a Workload)| {
        let job = workload.job.as_ref().filter(|it| workload.cron.is_none() && it.of == *of)?;
        Some(Part { name, workload, job })
    };
    let mut parts: Vec<Part<'a>> = stack.workloads.iter().filter_map(part).collect();
    parts.sort_by_key(|it| it.job.ordinal);
    parts
}

/// What a Job is made of. A change of anything else, such as its parallelism, goes on with the same Job.
fn spec_of(parts: &[Part<'_>]) -> SpecHash {
    let first = parts.first().map(|it| (it.workload.spec(), it.job.completions, it.job.indexed));
    SpecHash::of(&first)
}

/// What is remembered of a Job, if it is the same.
pub(super) fn record_of<'a>(record: &'a Record, parts: &[Part<'_>]) -> Option<&'a JobRecord> {
    let of = &parts.first()?.job.of;
    record.jobs.get(of).filter(|it| it.spec == spec_of(parts))
}

/// Counts what has ended since, and says whether the Job has.
pub(super) fn note(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    let jobs = all(target.stack);
    record.jobs.retain(|name, _| jobs.contains_key(name));
    for (of, parts) in jobs {
        let spec = spec_of(&parts);
        let known = record.jobs.remove(of).filter(|it| it.spec == spec);
        let mut job = known.unwrap_or_else(|| JobRecord { spec, ..JobRecord::default() });
        job.counted.retain(|it, _| observed.instances.contains_key(it));
        let mut active = 0;
        for part in &parts {
            let spec = part.workload.spec();
            let mine = observed.instances.values().filter(|it| {
                it.instance.workload == *part.name
                    && it.spec == spec
                    && it.agent == *target.agent
                    && record.ledger.contains(&it.id)
            });
            for instance in mine {
                job.begun = true;
                active += usize::from(is_up(instance));
                count(&mut job, record, observed, *part, instance);
            }
        }
        conclude(&mut job, &parts, active, now);
        record.jobs.insert(of.clone(), job);
    }
}

/// Every end counts once, known by when it was; what somebody or the engine's shutdown brought about does not.
fn count(job: &mut JobRecord, record: &Record, observed: &Observed, part: Part<'_>, instance: &Instance) {
    if repair::is_completed(record, observed.engine_started, part.workload, instance) {
        if job.done.insert(part.job.ordinal) {
            job.streak = 0;
        }
        return;
    }
    let Some((finished, code)) = failure(record, observed, instance) else { return };
    if job.counted.insert(instance.id.clone(), finished) != Some(finished) {
        job.failures = job.failures.saturating_add(1);
        job.streak = job.streak.saturating_add(1);
        (job.last_failure, job.last_code) = (Some(finished), code);
    }
}

/// When and how it failed by itself. What the engine could not start has not run, so it has not failed either.
fn failure(record: &Record, observed: &Observed, instance: &Instance) -> Option<(Timestamp, i64)> {
    let State::Exited { code, finished, ref error, .. } = instance.state else { return None };
    let is_its_own = instance.touched_by_hand.is_none()
        && !record.stopped.contains(&instance.id)
        && observed.engine_started.is_none_or(|it| finished >= it);
    (code != 0 && error.is_empty() && is_its_own).then_some((finished, code))
}

fn conclude(job: &mut JobRecord, parts: &[Part<'_>], active: usize, now: Timestamp) {
    let Some(Part { job: wanted, .. }) = parts.first() else { return };
    if job.ended.is_some() {
        return;
    }
    job.started = if wanted.suspended { None } else { job.started.or(Some(now)) };
    let is_complete = match wanted.completions {
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

/// Whether a part of a Job has nothing left to be done for which a container would be needed.
pub(super) fn is_over(record: &Record, stack: &Stack, workload: &Workload) -> bool {
    let Some(job) = &workload.job else { return false };
    if job.suspended {
        return true;
    }
    let known = record_of(record, &parts_of(stack, &job.of));
    known.is_some_and(|it| it.ended.is_some() || it.done.contains(&job.ordinal) || is_fed(job, it))
}

/// Whether there ought to be a container of a part: it is among the first that are begun, and none of the Job is there.
pub(super) fn is_awaited(record: &Record, stack: &Stack, observed: &Observed, workload: &Workload) -> bool {
    let Some(job) = workload.job.as_ref().filter(|it| it.ordinal < it.parallelism) else { return false };
    let is_part = |it: &Workload| it.job.as_ref().is_some_and(|it| it.of == job.of);
    let has_any =
        observed.instances.values().any(|it| stack.workloads.get(&it.instance.workload).is_some_and(is_part));
    !has_any && !is_over(record, stack, workload)
}

/// Of a queue of work, one that succeeds says that there is no more of it.
fn is_fed(job: &Job, known: &JobRecord) -> bool {
    job.completions.is_none() && !known.done.is_empty()
}

/// Plans all Jobs.
pub(super) fn run_all(round: &mut Round<'_>, census: &Census<'_>) {
    for parts in all(round.target.stack).into_values() {
        run(round, &parts, census);
    }
}

fn run(round: &mut Round<'_>, parts: &[Part<'_>], census: &Census<'_>) {
    let record: &Record = round.record;
    let Some(first) = parts.first() else { return };
    // A preview knows nothing yet of what it looks ahead to.
    let unknown = JobRecord::default();
    let known = record_of(record, parts).unwrap_or(&unknown);
    let Some(cleared) = clear(round, parts, census) else { return };
    let job = first.job;
    let current: Vec<(Part<'_>, Option<&Instance>)> =
        parts.iter().map(|it| (*it, current(round, *it, census))).collect();
    if let Some(end) = &known.ended {
        wind_up(round, job, end, &current);
        return;
    }
    if job.suspended {
        let begun = current.iter().filter_map(|it| it.1).filter(|it| is_begun(it));
        begun.for_each(|it| give_up(round, it, "it is suspended"));
        return;
    }
    if let (Some(since), Some(deadline)) = (known.started, job.active_deadline) {
        round.look_again(since.after(deadline));
    }
    let is_open = |part: &Part<'_>| !known.done.contains(&part.job.ordinal) && !is_fed(job, known);
    let begun = current.iter().filter(|(part, it)| it.is_some() && is_open(part)).count();
    let mut room = (job.parallelism as usize).saturating_sub(begun);
    let mut surplus = begun.saturating_sub(job.parallelism as usize);
    // The last that were begun have the most left to do.
    for (_, instance) in current.iter().rev().filter(|(part, _)| is_open(part)) {
        if let Some(instance) = instance.filter(|_| surplus > 0) {
            surplus -= 1;
            give_up(round, instance, "fewer are to run side by side");
        }
    }
    for (part, instance) in current.iter().filter(|(part, _)| is_open(part)) {
        match instance {
            Some(instance) if round.removed.contains_key(&instance.id) => {}
            Some(instance) => tend(round, *part, instance, known, &cleared, census),
            None if room == 0 => {}
            None => {
                room -= 1;
                begin(round, *part, known, cleared.clone(), census);
            }
        }
    }
}

/// Removes what is of another template, what somebody asked to be removed, and what is dead. `None` while images are
/// missing: until all that the commit needs is at hand, what runs is left alone.
fn clear(round: &mut Round<'_>, parts: &[Part<'_>], census: &Census<'_>) -> Option<Vec<usize>> {
    let pulls: Vec<usize> = round.pulls.values().copied().collect();
    let mut cleared = Vec::new();
    for part in parts {
        let spec = round.spec(part.name, part.workload);
        for it in census.members_of(part.name) {
            let is_other = it.spec != spec;
            if is_other && !round.unpulled.is_empty() {
                let missing = round.unpulled.iter().map(ToString::to_string).collect();
                round.wait(Wait::Images { workload: part.name.clone(), missing });
                return None;
            }
            let cause = match round.record.replaced.get(&it.id) {
                _ if is_other => Cause::SpecChanged,
                Some(Replacement::Delete | Replacement::Restart) => Cause::Deleted,
                None if it.state == State::Dead => Cause::Exited,
                None => continue,
            };
            if it.state != State::Removing {
                cleared.push(round.remove(it, &cause, &pulls));
            }
        }
    }
    Some(cleared)
}

fn current<'a>(round: &Round<'_>, part: Part<'_>, census: &Census<'a>) -> Option<&'a Instance> {
    let mut members = census.members_of(part.name).iter().copied();
    members.find(|it| !round.removed.contains_key(&it.id))
}

/// What still runs of a Job that has ended is ended; what has ended is kept for as long as its manifest says.
fn wind_up(round: &mut Round<'_>, job: &Job, end: &JobEnd, current: &[(Part<'_>, Option<&Instance>)]) {
    let JobEnd { at, outcome } = end;
    let gone = job.ttl.map(|it| at.after(it));
    for instance in current.iter().filter_map(|it| it.1) {
        if gone.is_some_and(|it| round.now >= it) || is_begun(instance) {
            give_up(round, instance, &outcome.to_string());
        } else if let Some(gone) = gone {
            round.look_again(gone);
        }
    }
    // Of a CronJob's run, the CronJob tells it; nobody waits for it.
    if *outcome != JobOutcome::Complete && job.cron.is_none() {
        round.wait(Wait::JobFailed { workload: job.of.clone(), reason: outcome.to_string() });
    }
}

fn give_up(round: &mut Round<'_>, instance: &Instance, reason: &str) {
    if instance.state != State::Removing {
        round.remove(instance, &Cause::Finished { reason: reason.to_owned() }, &[]);
    }
}

pub(super) fn is_begun(instance: &Instance) -> bool {
    is_up(instance) || instance.state == State::Created
}

/// Looks after a part that was begun.
fn tend(
    round: &mut Round<'_>,
    part: Part<'_>,
    instance: &Instance,
    known: &JobRecord,
    cleared: &[usize],
    census: &Census<'_>,
) {
    let Part { name, workload, job } = part;
    round.may_start = usize::MAX;
    let failed = known.counted.get(&instance.id).copied();
    let has_failed = matches!(instance.state, State::Exited { finished, .. } if Some(finished) == failed);
    if !has_failed {
        if let Some(cause) = repair::beyond_repair(round, name, workload, instance) {
            replace(round, part, instance, &cause, cleared, census);
            return;
        }
        repair::tend(round, name, workload, instance);
        pod::tend(round, name, workload, instance);
        return;
    }
    if is_pausing(round, known, job, &instance.instance) {
        return;
    }
    let cause = Cause::CrashLoop { attempt: known.streak };
    // Of a pod of several there is no second run: those that have ended well are not to do it again.
    if job.fresh || !workload.parts.is_empty() || repair::deleted_network(round, instance).is_some() {
        replace(round, part, instance, &cause, cleared, census);
    } else {
        round.start(instance, cause, cleared.to_vec());
    }
}

/// Creates another container in the place of one that is not started again.
fn replace(
    round: &mut Round<'_>,
    part: Part<'_>,
    instance: &Instance,
    cause: &Cause,
    cleared: &[usize],
    census: &Census<'_>,
) {
    let mut after = cleared.to_vec();
    after.push(round.remove(instance, cause, &[]));
    create(round, part, cause, after, census);
}

fn begin(round: &mut Round<'_>, part: Part<'_>, known: &JobRecord, cleared: Vec<usize>, census: &Census<'_>) {
    let instance = InstanceId { workload: part.name.clone(), slot: 1 };
    if known.streak == 0 || !is_pausing(round, known, part.job, &instance) {
        create(round, part, &Cause::Missing, cleared, census);
    }
}

fn create(round: &mut Round<'_>, part: Part<'_>, cause: &Cause, cleared: Vec<usize>, census: &Census<'_>) {
    let Part { name, workload, .. } = part;
    let Gate::Open(mut after) = gate::gate(round, name, workload, census) else { return };
    after.extend(gate::refresh(round, workload));
    after.extend(cleared);
    replacement::create(round, (name, workload), 1, Some(cause), after, BTreeMap::new());
}

/// Whether the next try has to wait, which is then said.
fn is_pausing(round: &mut Round<'_>, known: &JobRecord, job: &Job, instance: &InstanceId) -> bool {
    let Some(last) = known.last_failure.filter(|it| *it <= round.now) else { return false };
    let until = last.after(backoff::job_delay(known.streak));
    if round.now >= until {
        return false;
    }
    // For a CronJob's run nobody waits.
    if job.cron.is_none() {
        round.wait(Wait::CrashLoopBackOff {
            instance: instance.clone(),
            attempt: known.streak,
            until,
            code: known.last_code,
            error: String::new(),
        });
    }
    round.look_again(until);
    true
}

pub(super) fn is_up(instance: &Instance) -> bool {
    match instance.state {
        State::Running { .. } | State::Paused | State::Restarting { .. } => true,
        State::Created | State::Exited { .. } | State::Removing | State::Dead => false,
    }
}
