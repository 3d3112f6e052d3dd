//! The health of one workload: which of several reasons says most.

use driftless_model::{
    Completion, Health, HealthStatus, Instance, PlatformImage, Readiness, State, Subject, Timestamp,
    Workload, WorkloadName,
};

use crate::{
    action::Action,
    facts::{
        standing::{Standing, crash_of, is_awaited},
        update_failures::progress_deadline,
    },
    status::{
        counts::Counts,
        inputs::Inputs,
        work::{self, WorkloadHealth},
    },
    steps::Step,
    text,
    wait::{Wait, WaitObject, WaitReason, WaitSeverity, image_error},
};

/// The health of one workload.
pub(crate) fn health(inputs: Inputs<'_>, subject: Subject<'_>, counts: &Counts<'_>) -> WorkloadHealth {
    let Subject { name, workload } = subject;
    if let Some(health) = work::health(inputs, workload, counts) {
        return health;
    }
    if let Some(failure) = failure(inputs, subject, counts) {
        return failure;
    }
    if counts.paused {
        return WorkloadHealth::new(HealthStatus::Suspended, "Paused", format!("{name} is paused"));
    }
    let wanted = workload.replicas;
    if counts.is_rolled_out(workload) && counts.good() >= wanted {
        if let Some(wait) = awaited_completion(inputs, subject) {
            return WorkloadHealth::new(HealthStatus::Progressing, wait.reason.as_str(), wait.to_string());
        }
        let is_done = counts.completed > 0 && counts.completed >= wanted;
        return WorkloadHealth::new(HealthStatus::Healthy, if is_done { "Completed" } else { "" }, "");
    }
    if is_being_built(inputs, workload) {
        let message = format!("building {}", workload.container.image);
        return WorkloadHealth::new(HealthStatus::Progressing, "Building", message);
    }
    let waits = waits(inputs, name);
    let with = |health, wait: &Wait| WorkloadHealth::new(health, wait.reason.as_str(), wait.to_string());
    // Only a person can end this wait.
    if let Some(wait) = waits.iter().find(|it| it.is(WaitReason::NotAdopted)) {
        return with(HealthStatus::Suspended, wait);
    }
    // The manifest asks for it.
    let held = waits.iter().find(|it| it.is(WaitReason::Held));
    if let Some(wait) = held.filter(|_| counts.available >= wanted) {
        return with(HealthStatus::Healthy, wait);
    }
    // Nothing is on its way where nobody repairs anything.
    let is_left = inputs.plan.leaves_down(name) && !inputs.plan.is_suspended();
    let says_why =
        |it: &&&Wait| !it.is(WaitReason::OfAnotherAgent) && (!is_left || !it.is(WaitReason::Readiness));
    if let Some(wait) = waits.iter().find(says_why) {
        return with(HealthStatus::Progressing, wait);
    }
    let counted = format!("{} of {wanted} available", counts.good());
    if is_changing(inputs, name, counts) {
        let reason = if counts.old.is_empty() { "Starting" } else { "RollingUpdate" };
        return WorkloadHealth::new(HealthStatus::Progressing, reason, counted);
    }
    if counts.all.iter().any(|it| it.is_running()) {
        // Another agent may want exactly the instances that run.
        if let Some(wait) = inputs.plan.waits.iter().find(|it| it.is(WaitReason::Standby)) {
            return with(HealthStatus::Progressing, wait);
        }
        return WorkloadHealth::new(HealthStatus::Degraded, "MinimumReplicasUnavailable", counted);
    }
    WorkloadHealth::new(HealthStatus::Missing, "Missing", "no instance runs")
}

/// The reason why a workload is `Degraded`: the one that says most.
fn failure(inputs: Inputs<'_>, subject: Subject<'_>, counts: &Counts<'_>) -> Option<WorkloadHealth> {
    let Inputs { policy, observed, record, plan, now, .. } = inputs;
    let Subject { name, workload } = subject;
    let degraded = |reason: &str, message: String| {
        // The reason of a failed commit is such a message already.
        let running = counts.old_version_keeps_running(workload);
        let message = if message.ends_with(&running) { message } else { message + &running };
        Some(WorkloadHealth::new(HealthStatus::Degraded, reason, message))
    };
    let waits = waits(inputs, name);
    // That nothing gets on says less than why.
    let is_late = |it: &&Wait| it.is(WaitReason::ProgressDeadlineExceeded);
    let failures = waits.iter().filter(|it| it.severity() == WaitSeverity::Failure && !is_late(it));
    if let Some(wait) = failures.min_by_key(|it| it.reason) {
        return degraded(wait.reason.as_str(), wait.without_workload());
    }
    // A dependency that failed for good will never be ready.
    let has_failed =
        |on: &WorkloadName| plan.waits.iter().any(|it| it.is(WaitReason::Failed) && it.concerns(on));
    if let Some(wait) = waits.iter().find(|it| it.on.as_ref().is_some_and(has_failed)) {
        return degraded("DependencyFailed", wait.to_string());
    }
    let image = &workload.container.image;
    let pulled = PlatformImage { name: image.clone(), platform: workload.pulled_platform() };
    if let Some(pull) = record.pulls.get(&pulled).filter(|_| !observed.images.contains_key(image)) {
        let (reason, verb) = match workload.build {
            Some(_) => (WaitReason::BuildFailed, "build"),
            None => (WaitReason::ImagePullBackOff, "pull"),
        };
        let error = format!("cannot {verb} {}", image_error(image, &pull.error));
        return degraded(reason.as_str(), retry(&error, pull.count, pull.next));
    }
    for (instance, standing) in &counts.updated {
        let id = &instance.instance;
        if let (Standing::CrashLooping, Some(crash)) = (standing, crash_of(record, instance)) {
            let error = if crash.out_of_memory { "out of memory" } else { &crash.error };
            let why = text::crash_reason(error, plan.outputs.get(id));
            let message = crashed(&id.to_string(), crash.code, &why);
            return degraded("CrashLoopBackOff", format!("{message}, attempt {}", crash.count));
        }
        if let Standing::Failed { code } = standing {
            return degraded("Failed", format!("{id} failed with code {code}"));
        }
        if let Some(reason) = unhealthy(instance) {
            return degraded("Unhealthy", format!("{id} is unhealthy: {reason}"));
        }
    }
    // This agent has done its part, and what is left to do is a person's.
    let is_done =
        waits.iter().all(|it| it.severity() == WaitSeverity::Note) && !is_changing(inputs, name, counts);
    if let Some(wait) = waits.iter().find(|it| is_done && it.is(WaitReason::OfAnotherAgent)) {
        return Some(WorkloadHealth::new(HealthStatus::Degraded, wait.reason.as_str(), wait.to_string()));
    }
    let cause = waits.iter().find(|it| it.severity() == WaitSeverity::Progress).map(|it| match it.object {
        WaitObject::Workload(_) => format!("; it {}", it.without_workload()),
        _ => format!("; {it}"),
    });
    let cause = cause.unwrap_or_default();
    if let Some(wait) = waits.iter().find(|it| is_late(it)) {
        return degraded(wait.reason.as_str(), wait.without_workload() + &cause);
    }
    // A workload that the manifest holds at its older version makes no progress.
    let is_held = waits.iter().any(|it| it.is(WaitReason::Held));
    let is_whole = if is_held {
        counts.available >= workload.replicas
    } else {
        counts.is_rolled_out(workload) && counts.good() >= workload.replicas
    };
    let progress = record.progress.get(name).filter(|it| it.spec == counts.spec)?;
    let start = record.deadline_start(progress.at);
    let is_standing = counts.paused || plan.leaves_down(name) || plan.is_suspended();
    if is_whole || is_standing || now.since(start) <= progress_deadline(policy, workload) {
        return None;
    }
    let since = start.time_of_day();
    degraded(WaitReason::ProgressDeadlineExceeded.as_str(), format!("no progress since {since}{cause}"))
}

/// The wait of a workload for the end of its work, because another one waits for that.
fn awaited_completion<'a>(inputs: Inputs<'a>, Subject { name, workload }: Subject<'_>) -> Option<&'a Wait> {
    let is_once = workload.completion == Completion::OnSuccess && is_awaited(inputs.stack, name);
    let mut waits = inputs.plan.waits.iter();
    waits.find(|wait| is_once && wait.is(WaitReason::Readiness) && wait.concerns(name))
}

fn waits<'a>(inputs: Inputs<'a>, name: &WorkloadName) -> Vec<&'a Wait> {
    inputs.plan.waits.iter().filter(|it| it.concerns(name)).collect()
}

fn is_being_built(inputs: Inputs<'_>, workload: &Workload) -> bool {
    let image = &workload.container.image;
    let builds =
        |step: &Step| matches!(&step.action, Action::BuildImage { image: built, .. } if built == image);
    inputs.plan.steps.iter().any(builds)
}

/// Whether an instance is starting, or the plan is about to change one.
fn is_changing(inputs: Inputs<'_>, name: &WorkloadName, counts: &Counts<'_>) -> bool {
    let is_starting = counts.updated.iter().any(|(it, _)| it.is_running() && !counts.is_available(it));
    is_starting
        || inputs.plan.steps.iter().any(|step| match &step.action {
            Action::CreateInstance(creation) => creation.instance.is_of(name),
            Action::ReplaceAgent(replacement) => replacement.creation.instance.is_of(name),
            Action::WriteFiles { container, .. }
            | Action::RunHooks { container, .. }
            | Action::SignalInstance { container, .. }
            | Action::StartInstance { container }
            | Action::StopInstance { container, .. }
            | Action::RemoveInstance { container, .. }
            | Action::UnpauseInstance { container }
            | Action::RenameInstance { container, .. }
            | Action::UpdateInstance { container, .. }
            | Action::Connect { container, .. }
            | Action::Disconnect { container, .. } => counts.all.iter().any(|it| it.name == container.name()),
            // Everything else waits for these.
            Action::PullImage { .. }
            | Action::VerifyImage { .. }
            | Action::BuildImage { .. }
            | Action::ImportImage { .. }
            | Action::CreateNetwork { .. }
            | Action::CreateVolume { .. }
            | Action::Swarm(_) => true,
            Action::RemoveNetwork { .. } | Action::RemoveVolume { .. } => false,
        })
}

fn retry(what: &str, attempt: u32, next: Timestamp) -> String {
    format!("{what}, attempt {attempt}, next try {}", next.time_of_day())
}

fn crashed(instance: &str, code: i64, error: &str) -> String {
    let (ended, error) = (text::ended(code), text::one_line(error));
    if error.is_empty() { format!("{instance} {ended}") } else { format!("{instance} {ended}: {error}") }
}

/// Why a running instance is unhealthy.
fn unhealthy(instance: &Instance) -> Option<String> {
    match (&instance.state, &instance.readiness) {
        (State::Running { .. }, Readiness::Dead { reason }) => Some(reason.clone()),
        (State::Running { health: Health::Unhealthy, .. }, Readiness::NotReady { reason }) => {
            Some(reason.clone())
        }
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
