//! Sync waves: which workloads of lower waves a workload waits for.

use driftless_model::{Instance, Subject, Update, Workload};

use crate::facts::{
    Facts, hooks,
    jobs::{self, JobPart},
    standing::awaits_run_with_files,
    update_failures,
};

/// A workload of a lower wave that is not applied and available yet. The lowest wave comes first. One that was as wanted before, and
/// of which something is missing since, holds up no other.
pub(crate) fn unfinished_before<'a>(facts: &'a Facts<'_>, subject: Subject<'_>) -> Option<Subject<'a>> {
    let wave = subject.workload.wave;
    let stack = facts.target.stack;
    if wave <= facts.lowest_wave || facts.is_settled() {
        return None;
    }
    let is_under_way = |other: &Subject<'_>| other.workload.wave < wave && !facts.is_at_rest(other.name);
    let lower = stack.subjects().filter(is_under_way);
    lower.filter(|other| !is_done(facts, *other)).min_by_key(|other| other.workload.wave)
}

/// Whether the turn of a Job has come: it waits neither for `PreSync` hooks nor for a lower wave. Its first part stands for it.
pub(crate) fn has_turn(facts: &Facts<'_>, JobPart { subject, job }: JobPart<'_>) -> bool {
    match &job.hook {
        Some(_) => hooks::earlier(facts.record, subject.name).is_none(),
        None if job.cron.is_some() => true,
        None => !facts.is_held_by_hooks && unfinished_before(facts, subject).is_none(),
    }
}

/// Whether a workload is applied with its files and available, or a Job of it has completed. What the manifest or a user holds at an
/// older version counts with that version.
fn is_done(facts: &Facts<'_>, subject: Subject<'_>) -> bool {
    let Subject { name, workload } = subject;
    if workload.schedule().is_some() || workload.hook().is_some() {
        return true;
    }
    if let Some(job) = workload.job() {
        let known = jobs::record_of(facts.record, &jobs::parts_of(facts.target.stack, &job.of));
        let has_failed = known.is_some_and(driftless_model::JobRecord::has_failed);
        return job.is_run() || (!has_failed && jobs::is_over(facts.record, facts.target.stack, workload));
    }
    let spec = facts.spec(subject);
    let keeps_old = workload.update != Update::Rolling || facts.is_paused(subject);
    let members = facts.instances.members_of(name);
    let is_current = |it: &&&Instance| keeps_old || facts.record.is_current(it, &spec);
    let passed = update_failures::of(facts, subject, members.iter().copied()).passed;
    // These may never be restarted for their files: at an older version, next to failures that are tolerated, without a secret, and the
    // agent itself.
    let observed = facts.observed;
    let may_keep_files = keeps_old || passed > 0 || observed.lacking_secrets.contains_key(name);
    let is_own = |it: &Instance| observed.own.as_ref() == Some(&it.id);
    let awaits_files =
        |it: &Instance| !may_keep_files && !is_own(it) && awaits_run_with_files(facts.record, workload, it);
    let is_ready = |it: &&&Instance| is_good(facts, workload, it) && !awaits_files(it);
    let good = members.iter().filter(is_current).filter(is_ready).count();
    members.iter().all(|it| is_current(&it)) && good + passed >= workload.replicas as usize
}

fn is_good(facts: &Facts<'_>, workload: &Workload, instance: &Instance) -> bool {
    instance.is_available(workload.min_ready, facts.now) || facts.is_completed(workload, instance)
}
