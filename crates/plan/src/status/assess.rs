//! The status of a whole application.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    Drift, HealthStatus, InPlace, Instance, Observed, OnChange, Record, Stack, StatusCondition, Subject,
    SyncStatus, Update, WaitStatus, Workload, WorkloadName, WorkloadStatus,
};

use crate::{
    action::{Action, Creation},
    facts::{cron, jobs, ownership::is_prune_protected, pods, standing::Standing},
    status::{
        conditions, counts::Counts, failure::Round, inputs::Inputs, instances::workload_status,
        traffic::Proxies,
    },
    steps::{Plan, is_outage},
    wait::{Wait, WaitReason, WaitSeverity},
};

/// The part of an application's status that follows from one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    pub sync: SyncStatus,
    pub health: HealthStatus,
    /// The most important sentence. Empty if the application is `Synced` and `Healthy`.
    pub message: String,
    pub workloads: BTreeMap<WorkloadName, WorkloadStatus>,
    /// `RepeatedDrift` and `HealIneffective`.
    pub conditions: Vec<StatusCondition>,
    pub waits: Vec<WaitStatus>,
    /// A container that does not run or is not there comes first.
    pub drift: Vec<Drift>,
}

/// The status of an application, given the plan that was made in the same round. `before` and `before_workloads` are of
/// the status before this one.
pub fn assess(
    round: &Round<'_>,
    before: &[StatusCondition],
    before_workloads: &BTreeMap<WorkloadName, WorkloadStatus>,
) -> Assessment {
    let Round { stack, hashes, policy, record, plan, now, .. } = *round;
    let observed = &*jobs::as_desired(stack, hashes, record, round.observed);
    let observed = &*pods::whole(stack, observed);
    let proxies = Proxies::of(stack, observed, plan);
    let inputs = Inputs { stack, hashes, policy, observed, record, plan, now, proxies: Some(&proxies) };
    let instances = observed.by_workload();
    let mut is_complete = true;
    // Collected, because a map that is filled one by one takes twice the memory, and this one is kept.
    let statuses = stack.subjects().map(|subject| {
        let Subject { name, workload } = subject;
        let counts = inputs.counts(subject, &instances);
        is_complete &= if workload.job_or_template().is_some() {
            counts.old.is_empty()
        } else {
            let has_files = plan.is_reached() || !awaits_files(observed, record, workload, &counts);
            (counts.is_rolled_out(workload) && has_files) || is_held(subject, &counts, plan)
        };
        let before = before_workloads.get(name).map_or(&[][..], |it| &it.conditions);
        (name.clone(), workload_status(inputs, subject, &counts, before))
    });
    let workloads: BTreeMap<_, _> = statuses.collect();
    let is_synced = is_complete
        && has_only_steps_of_runs(stack, observed, plan)
        && plan.drifts.is_empty()
        && !plan.waits.iter().any(|it| it.is(WaitReason::Blocked))
        && has_all_and_no_more(stack, observed);
    let sync = if is_synced { SyncStatus::Synced } else { SyncStatus::OutOfSync };
    let worst = workloads.values().map(|it| it.health).max().unwrap_or(HealthStatus::Healthy);
    let at_least = |least, condition| if condition { least } else { HealthStatus::Healthy };
    let health = worst
        .max(at_least(
            HealthStatus::Degraded,
            plan.waits.iter().any(|it| it.severity() == WaitSeverity::Failure),
        ))
        .max(at_least(HealthStatus::Suspended, plan.is_suspended()));
    let mut drift = plan.drifts.clone();
    drift.sort_by_key(|drift| !is_outage(drift));
    Assessment {
        sync,
        health,
        message: message(sync, health, &workloads, plan, &drift),
        workloads,
        conditions: conditions::of_application(record, plan, now, before),
        waits: plan.waits.iter().map(Wait::status).collect(),
        drift,
    }
}

/// Whether the manifest keeps all instances at their older version, so that there is nothing left to do: the pods of a
/// StatefulSet below its partition.
fn is_held(subject: Subject<'_>, counts: &Counts<'_>, plan: &Plan) -> bool {
    let is_about = |wait: &&Wait| wait.is(WaitReason::Held) && wait.concerns(subject.name);
    let is_kept = subject.workload.update == Update::Never && plan.waits.iter().any(|wait| is_about(&wait));
    is_kept && counts.old.len() == subject.workload.replicas as usize && counts.updated() == 0
}

/// Whether an instance has not read a file of the commit yet: it waits for its turn, or for an image. The agent's own container keeps its
/// files.
fn awaits_files(observed: &Observed, record: &Record, workload: &Workload, counts: &Counts<'_>) -> bool {
    counts.updated.iter().any(|(instance, standing)| {
        let Some(read) = record.delivered.get(&instance.id) else { return false };
        // One that has completed runs again only if the manifest asks for a restart.
        let is_due = |file: &InPlace| *standing != Standing::Completed || file.on_change == OnChange::Restart;
        let has_other = |target: &String, file: &InPlace| {
            read.get(target).is_some_and(|content| *content != file.content) && is_due(file)
        };
        observed.own.as_ref() != Some(&instance.id)
            && workload.in_place.iter().any(|(target, file)| has_other(target, file))
    })
}

/// Whether each step is one of a run of a `CronJob`. That it begins and is removed again is as Git says.
fn has_only_steps_of_runs(stack: &Stack, observed: &Observed, plan: &Plan) -> bool {
    if plan.steps.is_empty() || cron::all(stack).next().is_none() {
        return plan.steps.is_empty();
    }
    let runs = || stack.workloads.iter().filter(|(_, workload)| workload.is_run_of_cron());
    let is_run = |creation: &Creation| runs().any(|(name, _)| creation.instance.is_of(name));
    // The container of a later step may be one that this plan creates.
    let created = plan.steps.iter().filter_map(|step| match &step.action {
        Action::CreateInstance(creation) if is_run(creation) => Some(creation.name.as_str()),
        _ => None,
    });
    let found = observed.containers().filter(|found| cron::was_run(stack, found));
    let containers: BTreeSet<&str> = created.chain(found.map(|found| found.name.as_str())).collect();
    let uses = |workload: &Workload, image: &str| workload.containers().any(|found| found.image == image);
    let is_image_of_runs = |image: &str| {
        let is_of_cron = |it: &Workload| it.is_run_of_cron() || it.schedule().is_some();
        runs().any(|(_, run)| uses(run, image))
            && stack.workloads.values().all(|it| is_of_cron(it) || !uses(it, image))
    };
    plan.steps.iter().all(|step| match step.action.image() {
        Some(image) => is_image_of_runs(&image.name),
        None => containers.contains(step.action.object()),
    })
}

/// Whether every network and volume of the stack exists, and no instance of another workload.
fn has_all_and_no_more(stack: &Stack, observed: &Observed) -> bool {
    let has_networks = stack.networks.keys().all(|it| observed.networks.contains_key(it));
    // The volumes of a Swarm are on the nodes of its tasks.
    let has_volumes =
        observed.swarm.is_some() || stack.volumes.keys().all(|it| observed.volumes.contains_key(it));
    // A removed application stays in the status as long as a container of it is kept.
    let is_kept = |it: &Instance| !stack.is_empty() && is_prune_protected(&it.config.labels);
    let is_wanted = |it: &Instance| {
        stack.workloads.contains_key(&it.instance.workload) || is_kept(it) || cron::was_run(stack, it)
    };
    has_networks && has_volumes && observed.instances.values().all(is_wanted)
}

/// The name of a workload, to precede its message. A wait's own sentence begins with it.
fn subject(name: &WorkloadName, workload: &WorkloadStatus) -> String {
    let names_it =
        workload.message.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with([' ', '.']));
    if names_it { String::new() } else { format!("{name}: ") }
}

/// The one sentence that says most: the worst workload and why, or else the first difference from Git.
fn message(
    sync: SyncStatus,
    health: HealthStatus,
    workloads: &BTreeMap<WorkloadName, WorkloadStatus>,
    plan: &Plan,
    drift: &[Drift],
) -> String {
    let worst = workloads.iter().rev().max_by_key(|(_, it)| it.health);
    let worst = worst.filter(|(_, it)| it.health == health && health > HealthStatus::Suspended);
    // Drift says more than its consequences, unless something fails.
    let is_consequence =
        worst.is_some_and(|(_, it)| matches!(it.reason.as_str(), "Missing" | "MinimumReplicasUnavailable"));
    let says_most = |drift: &&Drift| health < HealthStatus::Degraded || (is_consequence && is_outage(drift));
    if let Some(Drift { object, field, want, found, .. }) = drift.first().filter(says_most) {
        let others = match drift.len() {
            0 | 1 => String::new(),
            all => format!(", and {} more", all - 1),
        };
        let suspended = if plan.is_suspended() { "suspended; " } else { "" };
        return format!("{suspended}{object}: {field} is {found}, not {want}{others}");
    }
    if let Some((name, it)) = worst {
        return format!("{}{}: {}", subject(name, it), it.reason, it.message);
    }
    if let Some(wait) = plan.waits.iter().find(|it| it.severity() >= WaitSeverity::Decision) {
        return format!("{}: {wait}", wait.reason.as_str());
    }
    if plan.is_suspended() && health == HealthStatus::Suspended {
        return Wait::suspended().to_string();
    }
    // A paused rollout or a suspended Job.
    if let Some((name, it)) = workloads.iter().find(|(_, it)| it.health == HealthStatus::Suspended)
        && health == HealthStatus::Suspended
    {
        return format!("{}{}", subject(name, it), it.message);
    }
    if sync == SyncStatus::Synced {
        return String::new();
    }
    if let Some(step) = plan.steps.first() {
        return format!("about to {step}");
    }
    plan.waits.first().map_or_else(|| "the live state is not yet equal to Git".to_owned(), Wait::to_string)
}
