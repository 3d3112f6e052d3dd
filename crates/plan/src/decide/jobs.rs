//! Jobs: which parts are begun, tried again or finished.
//!
//! Other workloads are kept running; a Job is brought to its end. What has ended well is in the record and is not done
//! again, even if its container is gone, until the template changes. A Swarm waits and reports failures in the same way.

use std::{collections::BTreeMap, iter};

use driftless_model::{
    Concurrency, HookOrigin, HookPhase, Instance, InstanceId, Job, JobEnd, JobOutcome, JobRecord, Record,
    Replacement, State, Workload,
};

use crate::{
    cause::Cause,
    decide::{
        create, former_folder, images, job_retry, moved_folder, pod_parts,
        preconditions::{self, Preconditions},
        repair, secrets, waves,
    },
    draft::{Draft, instances::NewInstance},
    facts::{
        cron,
        forgotten_runs::forgotten_run,
        hooks,
        jobs::{JobPart, all, is_begun, is_fed, is_kept, record_of},
        standing::{cannot_execute, deleted_network, is_up},
    },
    text,
    wait::Wait,
};

/// Plans all Jobs.
pub(crate) fn run_all(draft: &mut Draft<'_>) {
    for parts in all(draft.facts.target.stack).into_values() {
        run(draft, &parts);
    }
}

fn run(draft: &mut Draft<'_>, parts: &[JobPart<'_>]) {
    let record: &Record = draft.facts.record;
    let Some(first) = parts.first() else { return };
    if let Some(wait) = reason_to_wait(draft, parts) {
        draft.wait(wait);
        return;
    }
    // A preview knows nothing yet of what it looks ahead to.
    let unknown = JobRecord::default();
    let known = record_of(record, parts).unwrap_or(&unknown);
    let is_at_work = |part: &JobPart<'_>| {
        draft.facts.instances.members_of(part.subject.name).iter().any(|member| is_up(member))
    };
    let may_begin = known.ended.is_none() && !first.job.suspended;
    let lacking = parts.iter().find_map(|part| secrets::reason_to_wait(draft.facts, part.subject));
    if let Some(wait) = lacking.filter(|_| may_begin && !parts.iter().any(is_at_work)) {
        secrets::wait_for_secret(draft, wait);
        return;
    }
    let awaiting = parts.iter().find_map(|part| former_folder::reason_to_wait(draft.facts, part.subject));
    if let Some(wait) = awaiting.filter(|_| may_begin) {
        former_folder::wait_for_folder(draft, wait);
        return;
    }
    let moved = parts.iter().find_map(|part| moved_folder::reason_to_wait(draft.facts, part.subject));
    if let Some(wait) = moved.filter(|_| may_begin && !parts.iter().any(is_at_work)) {
        draft.wait(wait);
        return;
    }
    let Some(cleared) = clear(draft, parts) else { return };
    let job = first.job;
    let current: Vec<(JobPart<'_>, Option<&Instance>)> =
        parts.iter().map(|it| (*it, current(draft, *it))).collect();
    if let Some(end) = &known.ended {
        wind_up(draft, job, known, end, &current);
        return;
    }
    if job.suspended {
        let begun = current.iter().filter_map(|it| it.1).filter(|it| is_begun(it));
        begun.for_each(|it| give_up(draft, it, "it is suspended"));
        return;
    }
    if let (Some(since), Some(deadline)) = (known.started, job.active_deadline) {
        draft.look_again(since.after(deadline));
    }
    let is_open = |part: &JobPart<'_>| !known.done.contains(&part.job.ordinal) && !is_fed(job, known);
    let begun = current.iter().filter(|(part, it)| it.is_some() && is_open(part)).count();
    let mut room = (job.parallelism as usize).saturating_sub(begun);
    let mut surplus = begun.saturating_sub(job.parallelism as usize);
    // The last that were begun have the most left to do.
    for (_, instance) in current.iter().rev().filter(|(part, _)| is_open(part)) {
        if let Some(instance) = instance.filter(|_| surplus > 0) {
            surplus -= 1;
            give_up(draft, instance, "fewer are to run side by side");
        }
    }
    for (part, instance) in current.iter().filter(|(part, _)| is_open(part)) {
        match instance {
            Some(instance) if draft.removed.contains_key(&instance.id) => {}
            Some(instance) => run_part(draft, *part, instance, known, &cleared),
            None if room == 0 => {}
            None => {
                room -= 1;
                begin(draft, *part, known, cleared.clone());
            }
        }
    }
}

/// Removes what is of another template, what somebody asked to be removed, and what is dead. `None` while images are
/// missing: until all that the commit needs is here, what runs is left alone.
fn clear(draft: &mut Draft<'_>, parts: &[JobPart<'_>]) -> Option<Vec<usize>> {
    let pulls: Vec<usize> = draft.pulls.values().copied().collect();
    let mut cleared = Vec::new();
    for part in parts {
        let spec = draft.facts.spec(part.subject);
        for it in draft.facts.instances.members_of(part.subject.name) {
            let is_other = it.spec != spec;
            if is_other && !draft.missing_images.is_empty() {
                draft.wait(Wait::images(part.subject.name, &draft.missing_image_names()));
                return None;
            }
            let cause = match draft.facts.record.replaced.get(&it.id) {
                _ if is_other => Cause::SpecChanged,
                Some(Replacement::Delete | Replacement::Restart) => Cause::Deleted,
                None if it.state == State::Dead => Cause::Exited,
                None => continue,
            };
            if it.state != State::Removing {
                cleared.push(draft.remove(it, &cause, &pulls));
            }
        }
    }
    Some(cleared)
}

fn current<'a>(draft: &Draft<'a>, part: JobPart<'_>) -> Option<&'a Instance> {
    let mut members = draft.facts.instances.members_of(part.subject.name).iter().copied();
    members.find(|it| !draft.removed.contains_key(&it.id))
}

/// Removes the running containers of a Job that has ended, and the ended ones when their time to live is over.
fn wind_up(
    draft: &mut Draft<'_>,
    job: &Job,
    known: &JobRecord,
    end: &JobEnd,
    current: &[(JobPart<'_>, Option<&Instance>)],
) {
    let JobEnd { at, outcome } = end;
    let gone = job.ttl.map(|it| at.after(it));
    for (part, instance) in current.iter().filter_map(|(part, found)| Some((part, (*found)?))) {
        let is_expired = gone.is_some_and(|it| draft.facts.now >= it);
        if !is_expired && instance.is_running() && keeps_output(part.subject.workload, *outcome) {
            draft.stop(instance, &Cause::Finished { reason: outcome.to_string() }, vec![]);
        } else if is_expired || is_begun(instance) {
            give_up(draft, instance, &outcome.to_string());
        } else if let Some(gone) = gone {
            draft.look_again(gone);
        }
    }
    if *outcome != JobOutcome::Complete {
        let output = current.iter().find_map(|(_, it)| draft.plan.outputs.get(&(*it)?.instance));
        let reason = match known.last_error.as_str() {
            "" => outcome.to_string(),
            error => format!("{outcome}: {}", text::one_line(error)),
        };
        let why = text::crash_reason(&reason, output);
        report_failure(draft, job, &why);
    }
}

/// Whether the containers of a pod are stopped and kept, because the log of the one that failed says why the Job has failed.
fn keeps_output(workload: &Workload, outcome: JobOutcome) -> bool {
    workload.retries_parts() && outcome == JobOutcome::BackoffLimitExceeded
}

/// Reports a Job that has failed. The status of the CronJob reports a failed run.
pub(crate) fn report_failure(draft: &mut Draft<'_>, job: &Job, why: &str) {
    if job.cron.is_some() {
        return;
    }
    draft.wait(match &job.hook {
        Some(HookOrigin { phase: HookPhase::PreDelete, .. }) => {
            Wait::pre_delete_failed(&job.of, why, &draft.facts.target.stack.app)
        }
        Some(HookOrigin { phase: HookPhase::SyncFail, .. }) => Wait::hook_failed(&job.of, why),
        Some(_) | None => Wait::job_failed(&job.of, why),
    });
}

/// Why a Job is not begun yet: `PreSync` hooks, a lower wave, or missing images. A Job that was begun goes on.
pub(crate) fn reason_to_wait(draft: &Draft<'_>, parts: &[JobPart<'_>]) -> Option<Wait> {
    let first = parts.first()?;
    let name = first.subject.name;
    match &first.job.hook {
        Some(hook) if draft.facts.instances.members_of(name).is_empty() => {
            if let Some(on) = hooks::earlier(draft.facts.record, name) {
                return Some(Wait::dependency(name, on, "it is of a lower wave"));
            }
            // A removal needs no image of a commit that is not applied any more.
            let is_of_commit = hook.phase != HookPhase::PreDelete;
            let is_early = draft.facts.is_held_by_hooks && !draft.missing_images.is_empty();
            (is_early && is_of_commit).then(|| Wait::images(name, &draft.missing_image_names()))
        }
        Some(_) => None,
        None if first.job.cron.is_some() => None,
        None => {
            let is_begun = record_of(draft.facts.record, parts).is_some_and(|known| known.begun);
            waves::reason_to_wait(draft, first.subject).filter(|_| !is_begun)
        }
    }
}

fn give_up(draft: &mut Draft<'_>, instance: &Instance, reason: &str) {
    if instance.state != State::Removing {
        draft.remove(instance, &Cause::Finished { reason: reason.to_owned() }, &[]);
    }
}

/// Repairs the container of a part that was begun, or lets it try again after a failure.
fn run_part(
    draft: &mut Draft<'_>,
    part: JobPart<'_>,
    instance: &Instance,
    known: &JobRecord,
    cleared: &[usize],
) {
    let JobPart { subject, job } = part;
    draft.starts_left = usize::MAX;
    let failed = known.counted.get(&instance.id).copied();
    let has_failed = matches!(instance.state, State::Exited { finished, .. } if Some(finished) == failed);
    if !has_failed {
        if let Some(cause) = repair::beyond_repair(draft, subject, instance) {
            replace_container(draft, part, instance, &cause, cleared);
            return;
        }
        if is_kept(draft.facts.record, subject.workload, instance) {
            // Another name or network could break what it does.
            repair::revive(draft, subject, instance, Vec::new());
        } else {
            repair::repair_instance(draft, subject, instance);
        }
        pod_parts::run_parts(draft, subject, instance);
        return;
    }
    if job_retry::is_pausing(draft, known, job, &instance.instance) {
        return;
    }
    let cause = job_retry::cause(draft, known, instance);
    // A pod of several containers is not started again as a whole: its completed containers must not run twice.
    let has_lost_network = deleted_network(draft.facts.observed, instance).is_some();
    let is_kept = is_kept(draft.facts.record, subject.workload, instance);
    // The engine notes no time of a start that failed. Another container counts as another try.
    let is_unstarted = cannot_execute(instance);
    if job.fresh || !subject.workload.parts.is_empty() || has_lost_network || is_kept || is_unstarted {
        replace_container(draft, part, instance, &cause, cleared);
    } else {
        draft.start(instance, cause, cleared.to_vec());
    }
}

/// Creates another container in the place of one that is not started again.
fn replace_container(
    draft: &mut Draft<'_>,
    part: JobPart<'_>,
    instance: &Instance,
    cause: &Cause,
    cleared: &[usize],
) {
    let mut after = cleared.to_vec();
    after.push(draft.remove(instance, cause, &[]));
    create(draft, part, cause, after);
}

fn begin(draft: &mut Draft<'_>, part: JobPart<'_>, known: &JobRecord, cleared: Vec<usize>) {
    let instance = InstanceId { workload: part.subject.name.clone(), slot: 1 };
    if known.streak == 0 || !job_retry::is_pausing(draft, known, part.job, &instance) {
        create(draft, part, &Cause::Missing, cleared);
    }
}

fn create(draft: &mut Draft<'_>, part: JobPart<'_>, cause: &Cause, cleared: Vec<usize>) {
    let subject = part.subject;
    let Some(former) = former_runs(draft, part) else { return };
    let Preconditions::Met(mut after) = preconditions::check(draft, subject) else { return };
    let container = draft.facts.container_name(draft.facts.stack_of(subject), subject.name, 1);
    after.extend(images::refresh_for(draft, subject, iter::once(container.as_str())));
    after.extend(cleared);
    after.extend(former);
    let cause = cause.clone();
    create::create(draft, NewInstance { subject, slot: 1, cause, after, inherit: BTreeMap::new() });
}

/// The steps that remove the runs which a run takes the place of: those of its CronJob, or the hooks of a former attempt. They
/// work on the same data. `None` while one of them still works and no step ends it.
fn former_runs(draft: &mut Draft<'_>, part: JobPart<'_>) -> Option<Vec<usize>> {
    let JobPart { subject, job } = part;
    let facts = draft.facts;
    let is_former = |orphan: &&&Instance| match &job.cron {
        Some(cron) => cron::known_cron_job_of(facts.target.stack, facts.record, orphan) == Some(cron),
        None => job.hook.is_some() && hooks::was_hook(orphan),
    };
    let mut steps = Vec::new();
    for orphan in facts.instances.orphans.iter().filter(is_former) {
        let mut containers = facts.observed.parts_of(&orphan.id);
        containers.push(orphan);
        // The engine answers at once if it removes a container already, and the processes may still exist then.
        let is_leaving = containers.iter().any(|container| container.state == State::Removing);
        if !is_leaving && !containers.iter().any(|container| is_up(container)) {
            continue;
        }
        // It goes on, as one that the record knows does.
        let run = forgotten_run(facts, orphan);
        if !is_leaving && run.is_some_and(|run| run.concurrency == Concurrency::Allow) {
            continue;
        }
        if let Some(step) = draft.removed.get(&orphan.id).filter(|_| !is_leaving) {
            steps.push(*step);
            continue;
        }
        if job_retry::is_awaited(job) {
            draft.wait(Wait::dependency(subject.name, &orphan.instance.workload, "it has not ended"));
        }
        return None;
    }
    Some(steps)
}
