//! Runs of CronJobs that another agent began: the one on another manager, or this one before it lost its record.
//!
//! Only the agent on the leader begins runs. Each is a service that names its CronJob, so the next leader knows them.

use driftless_model::{
    CronRecord, Observed, ObservedService, Record, Stack, Subject, Timestamp, WorkloadName, label,
};

use super::spec::OWNER;
use crate::{
    facts::cron::{all, run_of},
    record::cron::note_schedule,
};

/// Takes up the runs of CronJobs that the Swarm has, and notes changes of their schedules, unless this agent led the managers before and
/// does so where it begins runs. True: the stack has other runs now.
pub fn follow_runs(record: &mut Record, stack: &Stack, observed: &Observed, now: Timestamp) -> bool {
    let Some(swarm) = observed.swarm.as_deref() else { return false };
    let kept = record.swarm.get_or_insert_default();
    let has_led = std::mem::replace(&mut kept.leads, swarm.is_leader());
    if has_led {
        return false;
    }
    let mut has_changed = false;
    for cron_job in all(stack) {
        let name = cron_job.subject.name;
        let is_of_it = |service: &&ObservedService| {
            service.label(label::AGENT) == Some(OWNER)
                && service.label(label::APPLICATION) == Some(stack.app.as_str())
                && service.label(label::CRON) == Some(name.as_str())
        };
        let services = swarm.services.values().filter(is_of_it);
        let found: Vec<(WorkloadName, &ObservedService)> = services
            .filter_map(|service| Some((WorkloadName(service.label(label::WORKLOAD)?.to_owned()), service)))
            .collect();
        let known = record
            .crons
            .entry(name.clone())
            .or_insert_with(|| CronRecord { since: now, ..CronRecord::default() });
        // The next leader has to know when the schedule was changed.
        note_schedule(known, cron_job.schedule, now);
        let before = known.runs.len();
        // The leader has removed those that have run.
        let jobs = &record.jobs;
        known.runs.retain(|run, _| {
            found.iter().any(|(name, _)| name == run) || jobs.get(run).is_none_or(|job| !job.begun)
        });
        has_changed |= known.runs.len() != before;
        for (run, service) in found {
            has_changed |= take_up(known, stack, cron_job.subject, run, service, now);
        }
    }
    has_changed
}

/// Adds a run to the record, and the time for which it was begun.
fn take_up(
    known: &mut CronRecord,
    stack: &Stack,
    template: Subject<'_>,
    run: WorkloadName,
    service: &ObservedService,
    now: Timestamp,
) -> bool {
    let labels = service.spec.pointer("/TaskTemplate/ContainerSpec/Labels");
    let plain = label::JOB_NAMES
        .iter()
        .find_map(|label| labels?.get(*label)?.as_str())
        .unwrap_or(run.as_str())
        .to_owned();
    // The name of a run that a user asked for has no minute.
    let minute = plain.rsplit_once('-').and_then(|(_, minute)| minute.parse::<u64>().ok());
    let due = minute.map(|minute| Timestamp(minute.saturating_mul(60_000))).filter(|due| *due <= now);
    known.last = known.last.max(due);
    if known.runs.contains_key(&run) {
        return false;
    }
    let Some(workload) = run_of(template, &run, &plain) else { return false };
    if let Some(service) = stack.swarm.get(template.name) {
        known.services.insert(run.clone(), service.clone());
    }
    known.runs.insert(run, workload);
    true
}
