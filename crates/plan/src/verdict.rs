//! Says how an application is, from what is wanted, what there is and what is about to be done.
//!
//! Derived anew in every round, and set nowhere else. It plans nothing and remembers nothing: only the time of
//! a condition's last transition is taken over from the status before.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Action, Plan, Wait, account, conditions, pod,
    tally::{Tally, is_crash_looping},
    text, work,
};
use driftless_model::{
    Drift, Health, HealthStatus, Instance, InstanceStatus, Observed, Readiness, Record, Stack, State,
    StatusCondition, SyncStatus, Timestamp, WaitStatus, Workload, WorkloadName, WorkloadStatus,
};

/// What the status says of an application besides its revision, pin and findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    pub sync: SyncStatus,
    pub health: HealthStatus,
    /// The one most important sentence; empty when it is `Synced` and `Healthy`.
    pub message: String,
    pub workloads: BTreeMap<WorkloadName, WorkloadStatus>,
    /// `DriftFight` and `HealIneffective`.
    pub conditions: Vec<StatusCondition>,
    pub waits: Vec<WaitStatus>,
    pub drift: Vec<Drift>,
}

/// Judges what was observed, given the plan that was made from it. `before` and `before_workloads` are of the
/// status before this one.
pub fn assess(
    stack: &Stack,
    observed: &Observed,
    record: &Record,
    plan: &Plan,
    now: Timestamp,
    before: &[StatusCondition],
    before_workloads: &BTreeMap<WorkloadName, WorkloadStatus>,
) -> Assessment {
    let observed = &*pod::whole(stack, observed);
    let scene = Scene { stack, observed, record, plan, now };
    let is_suspended = plan.waits.contains(&Wait::Suspended);
    let mut is_complete = true;
    // Collected, because a map that is filled one by one has twice the room that it needs, and this one is kept.
    let judged = stack.workloads.iter().map(|(name, workload)| {
        let tally = Tally::of(name, workload, observed, record, now);
        is_complete &= match &workload.job {
            Some(_) => tally.old.is_empty(),
            None => tally.is_rolled_out(workload),
        };
        let before = before_workloads.get(name).map_or(&[][..], |it| &it.conditions);
        (name.clone(), scene.workload(name, workload, &tally, is_suspended, before))
    });
    let workloads: BTreeMap<_, _> = judged.collect();
    let is_synced = is_complete
        && plan.steps.is_empty()
        && plan.drifts.is_empty()
        && has_all_and_no_more(stack, observed);
    let sync = if is_synced { SyncStatus::Synced } else { SyncStatus::OutOfSync };
    let worst = workloads.values().map(|it| it.health).max().unwrap_or(HealthStatus::Healthy);
    let at_least = |least, condition| if condition { least } else { HealthStatus::Healthy };
    let health = worst
        .max(at_least(HealthStatus::Degraded, plan.waits.iter().any(is_grave)))
        .max(at_least(HealthStatus::Suspended, is_suspended));
    Assessment {
        sync,
        health,
        message: message(sync, health, &workloads, plan),
        workloads,
        conditions: conditions::of_application(record, plan, now, before),
        waits: plan.waits.iter().map(text::wait_status).collect(),
        drift: plan.drifts.clone(),
    }
}

/// What keeps an application from being whole until somebody does something about it.
pub(super) fn is_grave(wait: &Wait) -> bool {
    match wait {
        Wait::ImagePullBackOff { .. }
        | Wait::BuildFailed { .. }
        | Wait::CrashLoopBackOff { .. }
        | Wait::Failed { .. }
        | Wait::JobFailed { .. }
        | Wait::HealIneffective { .. }
        | Wait::Blocked { .. }
        | Wait::ExternalMissing { .. }
        | Wait::OfAnotherApplication { is_external: false, .. }
        | Wait::EngineTooOld { .. }
        | Wait::ProgressDeadlineExceeded { .. } => true,
        Wait::Dependency { .. }
        | Wait::Readiness { .. }
        | Wait::MinReady { .. }
        | Wait::Images { .. }
        | Wait::OfAnotherApplication { .. }
        | Wait::HealBackOff { .. }
        | Wait::VolumeChanged { .. }
        | Wait::Paused { .. }
        | Wait::Held { .. }
        | Wait::NotAdopted { .. }
        | Wait::NotAsInGit { .. }
        | Wait::WritesInside { .. }
        | Wait::PruneHeld { .. }
        | Wait::Own { .. }
        | Wait::Suspended
        | Wait::SelfHealOff { .. } => false,
    }
}

/// Whether a wait is about this workload or one of these instances of it.
pub(super) fn concerns(wait: &Wait, name: &WorkloadName, instances: &[&Instance]) -> bool {
    match wait {
        Wait::Dependency { workload, .. }
        | Wait::Readiness { workload, .. }
        | Wait::MinReady { workload, .. }
        | Wait::ImagePullBackOff { workload, .. }
        | Wait::BuildFailed { workload, .. }
        | Wait::Images { workload, .. }
        | Wait::ProgressDeadlineExceeded { workload, .. }
        | Wait::NotAdopted { workload, .. }
        | Wait::Held { workload, .. }
        | Wait::JobFailed { workload, .. }
        | Wait::Paused { workload } => workload == name,
        Wait::Own { workload, .. } => workload.as_ref() == Some(name),
        Wait::CrashLoopBackOff { instance, .. } | Wait::Failed { instance, .. } => instance.is_of(name),
        Wait::HealBackOff { object, .. }
        | Wait::HealIneffective { object, .. }
        | Wait::Blocked { object, .. } => {
            let slot = object.strip_prefix(name.as_str()).and_then(|it| it.strip_prefix('.'));
            object == name.as_str()
                || slot.is_some_and(|it| it.parse::<u32>().is_ok())
                || instances.iter().any(|it| it.name == *object)
        }
        Wait::ExternalMissing { .. }
        | Wait::OfAnotherApplication { .. }
        | Wait::EngineTooOld { .. }
        | Wait::VolumeChanged { .. }
        | Wait::PruneHeld { .. }
        | Wait::NotAsInGit { .. }
        | Wait::WritesInside { .. }
        | Wait::Suspended
        | Wait::SelfHealOff { .. } => false,
    }
}

/// What all workloads are judged by.
pub(super) struct Scene<'a> {
    stack: &'a Stack,
    pub(super) observed: &'a Observed,
    pub(super) record: &'a Record,
    plan: &'a Plan,
    pub(super) now: Timestamp,
}

/// Health, its reason in one word, and its explanation.
pub(super) struct Finding {
    health: HealthStatus,
    reason: String,
    message: String,
}

impl Finding {
    pub(super) fn new(health: HealthStatus, reason: &str, message: impl Into<String>) -> Self {
        Self { health, reason: reason.to_owned(), message: message.into() }
    }
}

impl Scene<'_> {
    fn workload(
        &self,
        name: &WorkloadName,
        workload: &Workload,
        tally: &Tally<'_>,
        is_suspended: bool,
        before: &[StatusCondition],
    ) -> WorkloadStatus {
        let Finding { mut health, reason, message } = self.judge(name, workload, tally);
        // Nothing moves on by itself while it is suspended.
        if is_suspended && health == HealthStatus::Progressing {
            health = HealthStatus::Suspended;
        }
        WorkloadStatus {
            health,
            conditions: conditions::of_workload(workload, tally, &reason, &message, self.now, before),
            reason,
            message,
            image: account::images(workload),
            replicas: workload.replicas,
            spec: account::spec(self.stack, name, workload, self.record),
            updated_replicas: tally.updated(),
            old_replicas: tally.old(),
            ready_replicas: tally.ready(),
            available_replicas: tally.available,
            instances: tally
                .mine
                .iter()
                .map(|it| InstanceStatus {
                    pod: account::pod(self.stack, name, workload),
                    ..self.instance(it, workload, tally)
                })
                .collect(),
            awaited: account::awaited(self.stack, name, workload, tally, self.plan),
            job: account::job(self.stack, workload, self.observed, self.record),
            cron: account::cron(name, workload, self.record),
            origin: workload.origin.to_string(),
        }
    }

    fn judge(&self, name: &WorkloadName, workload: &Workload, tally: &Tally<'_>) -> Finding {
        if let Some(finding) = work::judge(self.stack, self.observed, self.record, workload, tally) {
            return finding;
        }
        if let Some(failure) = self.failure(name, workload, tally) {
            return failure;
        }
        if tally.paused {
            return Finding::new(HealthStatus::Suspended, "Paused", format!("{name} is paused"));
        }
        let wanted = workload.replicas;
        if tally.is_rolled_out(workload) && tally.good() >= wanted {
            let is_done = tally.completed > 0 && tally.completed >= wanted;
            return Finding::new(HealthStatus::Healthy, if is_done { "Completed" } else { "" }, "");
        }
        if self.is_being_built(workload) {
            let message = format!("building {}", workload.container.image);
            return Finding::new(HealthStatus::Progressing, "Building", message);
        }
        let waits = self.waits(name, tally);
        // Only a person can end it.
        if let Some(wait) = waits.iter().find(|it| matches!(it, Wait::NotAdopted { .. })) {
            return Finding::new(HealthStatus::Suspended, text::reason(wait), wait.to_string());
        }
        // That is as it was asked for.
        let held = waits.iter().find(|it| matches!(it, Wait::Held { .. }));
        if let Some(wait) = held.filter(|_| tally.available >= wanted) {
            return Finding::new(HealthStatus::Healthy, text::reason(wait), wait.to_string());
        }
        if let Some(wait) = waits.first() {
            return Finding::new(HealthStatus::Progressing, text::reason(wait), wait.to_string());
        }
        let counted = format!("{} of {wanted} available", tally.good());
        if self.is_under_way(name, tally) {
            let reason = if tally.old.is_empty() { "Starting" } else { "RollingUpdate" };
            return Finding::new(HealthStatus::Progressing, reason, counted);
        }
        if tally.mine.iter().any(|it| it.is_running()) {
            return Finding::new(HealthStatus::Degraded, "MinimumReplicasUnavailable", counted);
        }
        Finding::new(HealthStatus::Missing, "Missing", "nothing of it runs")
    }

    /// What makes it `Degraded`: the most telling first.
    fn failure(&self, name: &WorkloadName, workload: &Workload, tally: &Tally<'_>) -> Option<Finding> {
        let degraded = |reason: &str, message| Some(Finding::new(HealthStatus::Degraded, reason, message));
        let waits = self.waits(name, tally);
        // Waiting for an image tells more than what it leads to, and so does a crash.
        let rank = |it: &Wait| match it {
            Wait::ImagePullBackOff { .. } | Wait::BuildFailed { .. } => 0,
            Wait::CrashLoopBackOff { .. } => 1,
            Wait::Failed { .. } => 2,
            Wait::Blocked { .. } => 3,
            Wait::Dependency { .. }
            | Wait::Readiness { .. }
            | Wait::MinReady { .. }
            | Wait::Images { .. }
            | Wait::HealBackOff { .. }
            | Wait::HealIneffective { .. }
            | Wait::ExternalMissing { .. }
            | Wait::OfAnotherApplication { .. }
            | Wait::EngineTooOld { .. }
            | Wait::VolumeChanged { .. }
            | Wait::ProgressDeadlineExceeded { .. }
            | Wait::Paused { .. }
            | Wait::Held { .. }
            | Wait::JobFailed { .. }
            | Wait::NotAdopted { .. }
            | Wait::NotAsInGit { .. }
            | Wait::WritesInside { .. }
            | Wait::PruneHeld { .. }
            | Wait::Own { .. }
            | Wait::Suspended
            | Wait::SelfHealOff { .. } => 4,
        };
        if let Some(wait) = waits.iter().filter(|it| is_grave(it)).min_by_key(|it| rank(it)) {
            return degraded(text::reason(wait), explain(wait) + &tally.what_keeps_running(workload));
        }
        // What waits for one that failed for good waits in vain.
        let has_failed = |on: &WorkloadName| {
            let of = |it: &Wait| matches!(it, Wait::Failed { instance, .. } if instance.is_of(on));
            self.plan.waits.iter().any(of)
        };
        let vain = waits.iter().find(|it| matches!(it, Wait::Dependency { on, .. } if has_failed(on)));
        if let Some(wait) = vain {
            return degraded("DependencyFailed", wait.to_string() + &tally.what_keeps_running(workload));
        }
        let is_image_missing = !self.observed.images.contains_key(&workload.container.image);
        if let Some(pull) = self.record.pulls.get(&workload.container.image).filter(|_| is_image_missing) {
            let (reason, error) = match workload.build {
                Some(_) => ("BuildFailed", build_error(&workload.container.image, &pull.error)),
                None => ("ImagePullBackOff", image_error(&workload.container.image, &pull.error)),
            };
            let message = retry(&error, pull.count, pull.next);
            return degraded(reason, message + &tally.what_keeps_running(workload));
        }
        for instance in &tally.updated {
            let crash = self.record.crashes.get(&instance.instance);
            if let Some(crash) = crash.filter(|it| is_crash_looping(it, instance, self.now)) {
                let error = if crash.out_of_memory { "out of memory" } else { &crash.error };
                let message = crashed(&instance.instance.to_string(), crash.code, error);
                return degraded(
                    "CrashLoopBackOff",
                    format!("{message}, attempt {}{}", crash.count, tally.what_keeps_running(workload)),
                );
            }
            if let Some(code) = tally.failed_for_good(instance, workload) {
                return degraded("Failed", format!("{} failed with code {code}", instance.instance));
            }
            if let Some(reason) = unhealthy(instance) {
                return degraded("Unhealthy", format!("{} is unhealthy: {reason}", instance.instance));
            }
        }
        // What is left as it was, because the manifest says so, is on its way to nothing.
        let is_held = waits.iter().any(|it| matches!(it, Wait::Held { .. }));
        let is_whole = if is_held {
            tally.available >= workload.replicas
        } else {
            tally.is_rolled_out(workload) && tally.good() >= workload.replicas
        };
        let progress = self.record.progress.get(name).filter(|it| it.spec == tally.spec);
        match progress.filter(|it| self.now.since(it.at) > workload.progress_deadline) {
            Some(progress) if !is_whole && !tally.paused => {
                let since = text::time_of_day(progress.at);
                let message = format!("no progress since {since}{}", tally.what_keeps_running(workload));
                degraded("ProgressDeadlineExceeded", message)
            }
            Some(_) | None => None,
        }
    }

    fn waits(&self, name: &WorkloadName, tally: &Tally<'_>) -> Vec<&Wait> {
        self.plan.waits.iter().filter(|it| concerns(it, name, &tally.mine)).collect()
    }

    fn is_being_built(&self, workload: &Workload) -> bool {
        let image = &workload.container.image;
        let is_its = |it: &super::Step| matches!(&it.action, Action::BuildImage { image: built, .. } if built == image);
        self.plan.steps.iter().any(is_its)
    }

    /// Whether something of it is starting, or is about to be changed by the plan.
    fn is_under_way(&self, name: &WorkloadName, tally: &Tally<'_>) -> bool {
        let is_starting = tally.updated.iter().any(|it| it.is_running() && !tally.is_available(it));
        is_starting
            || self.plan.steps.iter().any(|step| match &step.action {
                Action::CreateInstance(creation) => creation.instance.is_of(name),
                Action::WriteFiles { container, .. }
                | Action::RunHooks { container, .. }
                | Action::SignalInstance { container, .. }
                | Action::StartInstance { container }
                | Action::StopInstance { container, .. }
                | Action::RemoveInstance { container }
                | Action::UnpauseInstance { container }
                | Action::RenameInstance { container, .. }
                | Action::UpdateInstance { container, .. }
                | Action::Connect { container, .. }
                | Action::Disconnect { container, .. } => {
                    tally.mine.iter().any(|it| it.name == container.to_string())
                }
                // They come before everything else, and everything waits for them.
                Action::PullImage { .. }
                | Action::BuildImage { .. }
                | Action::ImportImage { .. }
                | Action::CreateNetwork { .. }
                | Action::CreateVolume { .. } => true,
                Action::RemoveNetwork { .. } => false,
            })
    }
}

/// Every network and volume that Git names is there, the networks as Git says, and nothing else of ours is.
fn has_all_and_no_more(stack: &Stack, observed: &Observed) -> bool {
    let has_networks = stack.networks.keys().all(|it| observed.networks.contains_key(it));
    let has_volumes = stack.volumes.keys().all(|it| observed.volumes.contains_key(it));
    let is_wanted = |it: &Instance| stack.workloads.contains_key(&it.instance.workload);
    has_networks && has_volumes && observed.instances.values().all(is_wanted)
}

/// For someone at two in the morning: the worst workload and why, or else what is not as in Git.
fn message(
    sync: SyncStatus,
    health: HealthStatus,
    workloads: &BTreeMap<WorkloadName, WorkloadStatus>,
    plan: &Plan,
) -> String {
    let worst = workloads.iter().rev().max_by_key(|(_, it)| it.health);
    let worst = worst.filter(|(_, it)| it.health == health && health > HealthStatus::Suspended);
    // What somebody changed says more than what follows from it, unless it keeps failing.
    if let Some(drift) = plan.drifts.first().filter(|_| health < HealthStatus::Degraded) {
        let Drift { object, field, want, found, .. } = drift;
        let others = match plan.drifts.len() {
            0 | 1 => String::new(),
            all => format!(", and {} more", all - 1),
        };
        let frozen = if plan.waits.contains(&Wait::Suspended) { "suspended; " } else { "" };
        return format!("{frozen}{object}: {field} is {found}, not {want}{others}");
    }
    if let Some((name, it)) = worst {
        // A wait's own sentence begins with its workload.
        let names_it =
            it.message.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with([' ', '.']));
        let whose = if names_it { String::new() } else { format!("{name}: ") };
        return format!("{whose}{}: {}", it.reason, it.message);
    }
    let is_awaited = |it: &&Wait| {
        is_grave(it) || matches!(it, Wait::NotAdopted { .. } | Wait::PruneHeld { .. } | Wait::Own { .. })
    };
    if let Some(wait) = plan.waits.iter().find(is_awaited) {
        return format!("{}: {wait}", text::reason(wait));
    }
    if health == HealthStatus::Suspended {
        let paused = workloads.values().find(|it| it.reason == "Paused").map(|it| it.message.clone());
        let is_suspended = plan.waits.contains(&Wait::Suspended);
        return paused.filter(|_| !is_suspended).unwrap_or_else(|| Wait::Suspended.to_string());
    }
    if sync == SyncStatus::Synced {
        return String::new();
    }
    if let Some(step) = plan.steps.first() {
        return format!("about to {step}");
    }
    plan.waits.first().map_or_else(|| "what runs is not yet what Git says".to_owned(), Wait::to_string)
}

/// A wait without the name of its workload, which stands before it.
fn explain(wait: &Wait) -> String {
    match wait {
        Wait::ImagePullBackOff { image, attempt, until, error, .. } => {
            retry(&image_error(image, error), *attempt, *until)
        }
        Wait::BuildFailed { image, attempt, until, error, .. } => {
            retry(&build_error(image, error), *attempt, *until)
        }
        Wait::CrashLoopBackOff { instance, attempt, until, code, error } => {
            retry(&crashed(&instance.to_string(), *code, error), *attempt, *until)
        }
        Wait::ProgressDeadlineExceeded { since, .. } => {
            format!("no progress since {}", text::time_of_day(*since))
        }
        Wait::Dependency { .. }
        | Wait::Readiness { .. }
        | Wait::MinReady { .. }
        | Wait::Images { .. }
        | Wait::Failed { .. }
        | Wait::HealBackOff { .. }
        | Wait::HealIneffective { .. }
        | Wait::Blocked { .. }
        | Wait::ExternalMissing { .. }
        | Wait::OfAnotherApplication { .. }
        | Wait::EngineTooOld { .. }
        | Wait::VolumeChanged { .. }
        | Wait::Paused { .. }
        | Wait::Held { .. }
        | Wait::JobFailed { .. }
        | Wait::NotAdopted { .. }
        | Wait::NotAsInGit { .. }
        | Wait::WritesInside { .. }
        | Wait::PruneHeld { .. }
        | Wait::Own { .. }
        | Wait::Suspended
        | Wait::SelfHealOff { .. } => wait.to_string(),
    }
}

fn retry(what: &str, attempt: u32, next: Timestamp) -> String {
    format!("{what}, attempt {attempt}, next try {}", text::time_of_day(next))
}

/// The error, with the image if it does not name it.
fn image_error(image: &str, error: &str) -> String {
    let error = text::one_line(error);
    if error.contains(image) { error } else { format!("{image}: {error}") }
}

fn build_error(image: &str, error: &str) -> String {
    format!("{image} cannot be built: {}", text::one_line(error))
}

fn crashed(instance: &str, code: i64, error: &str) -> String {
    let error = text::one_line(error);
    if error.is_empty() {
        format!("{instance} exited with code {code}")
    } else {
        format!("{instance} exited with code {code}: {error}")
    }
}

/// Why it is taken for broken although it runs.
fn unhealthy(instance: &Instance) -> Option<String> {
    match (&instance.state, &instance.readiness) {
        (State::Running { .. }, Readiness::Dead { reason }) => Some(reason.clone()),
        (State::Running { health: Health::Unhealthy, .. }, _) => Some("its health check fails".to_owned()),
        (
            State::Running { health: Health::Healthy | Health::Starting, .. }
            | State::Created
            | State::Paused
            | State::Restarting { .. }
            | State::Exited { .. }
            | State::Removing
            | State::Dead,
            _,
        ) => None,
    }
}

/// How long an instance that has crashed before must run until it is believed again.
pub(super) const BELIEVED_AFTER: Duration = Duration::from_secs(10);
