//! Standing of an instance: the one definition of completed, failed, outdated and so on.

use std::time::Duration;

use driftless_model::{
    Completion, Condition, Crash, Dependency, Endpoint, Format, InPlace, Instance, InstanceId, Observed,
    OnChange, Record, Replacement, RestartPolicy, SpecHash, Stack, State, Timestamp, Workload, WorkloadName,
};

use crate::facts::{Facts, namespaces};

/// An instance that has crashed before counts as recovered after it has run for this long.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The standing of one instance towards its workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The engine is removing it.
    Leaving,
    /// The engine failed to remove it. It has to be removed again.
    Dead,
    /// It must make way for another one.
    Outdated(Outdated),
    /// It ended well, and that is its purpose.
    Completed,
    /// It failed, and its restart policy forbids another start.
    Failed { code: i64 },
    /// It ended twice or more, and has not run for long enough since.
    CrashLooping,
    /// It is as the workload defines it.
    Current,
}

/// Why an instance must make way for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// Its spec hash is not that of the workload.
    Spec,
    /// A user asked for a restart of the workload.
    RestartRequested,
    /// A user deleted it.
    DeletionRequested,
}

impl Standing {
    /// The standing of an instance that belongs to this workload, whose spec hash is `spec`.
    pub(crate) fn of(
        record: &Record,
        observed: &Observed,
        workload: &Workload,
        spec: &SpecHash,
        instance: &Instance,
        now: Timestamp,
    ) -> Self {
        let requested = record.replaced.get(&instance.id);
        match instance.state {
            State::Removing => return Self::Leaving,
            State::Dead => return Self::Dead,
            State::Created
            | State::Running { .. }
            | State::Paused
            | State::Restarting { .. }
            | State::Exited { .. } => {}
        }
        if requested == Some(&Replacement::Delete) {
            return Self::Outdated(Outdated::DeletionRequested);
        }
        if instance.spec != *spec {
            return Self::Outdated(Outdated::Spec);
        }
        if requested == Some(&Replacement::Restart) {
            return Self::Outdated(Outdated::RestartRequested);
        }
        if is_completed(record, observed, workload, instance) {
            return Self::Completed;
        }
        if is_crash_looping(record, instance, now) {
            return Self::CrashLooping;
        }
        failure(record, observed, workload, instance).map_or(Self::Current, |code| Self::Failed { code })
    }
}

impl Facts<'_> {
    /// Whether an instance has done its work: see [`is_completed`].
    pub(crate) fn is_completed(&self, workload: &Workload, instance: &Instance) -> bool {
        is_completed(self.record, self.observed, workload, instance)
    }
}

/// Whether an instance is to run again with a file that has changed since it read it. Until then it is not as the commit wants it.
pub(crate) fn awaits_run_with_files(record: &Record, workload: &Workload, instance: &Instance) -> bool {
    let Some(read) = record.delivered.get(&instance.id) else { return false };
    let has_changed = |(target, file): (&String, &InPlace)| {
        file.on_change == OnChange::Restart
            && read.get(target).is_some_and(|content| *content != file.content)
    };
    workload.in_place.iter().any(has_changed)
}

/// The end of an instance's last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with code 0.
    Succeeded,
    /// By itself, with another code, or its command cannot be executed.
    Failed { code: i64, finished: Timestamp },
    /// A user, the agent or a shutdown of the engine stopped it, or the engine could not start it.
    Interrupted,
}

/// The end of an instance's last run, if it has ended.
pub(crate) fn ending(record: &Record, observed: &Observed, instance: &Instance) -> Option<Ending> {
    let State::Exited { code, finished, ref error, .. } = instance.state else { return None };
    if record.is_stopped_by_agent(&instance.id) {
        return Some(Ending::Interrupted);
    }
    // A run that the agent saw end well counts for ever. Later, a service that ended well in a shutdown of the engine
    // looks the same.
    if code == 0 && record.completed.contains(&instance.id) {
        return Some(Ending::Succeeded);
    }
    // Neither a user nor a shutdown brings this about.
    if cannot_execute(instance) {
        return Some(Ending::Failed { code, finished });
    }
    let was_shut_down = observed.engine_started.is_some_and(|it| finished < it);
    if instance.touched_by_hand.is_some() || was_shut_down {
        return Some(Ending::Interrupted);
    }
    Some(match code {
        0 => Ending::Succeeded,
        _ if !error.is_empty() => Ending::Interrupted,
        code => Ending::Failed { code, finished },
    })
}

/// Whether an exit with code 0 counts as success although the engine went down after it. A service that ends well with
/// the engine looks the same, so this holds only for work whose end the manifest asks for: containers that Kubernetes does
/// not restart, runs of schedules and hooks, and Compose services whose completion another one waits for. A second run could do a
/// migration twice.
pub(crate) fn counts_as_success(
    record: &Record,
    stack: &Stack,
    workload: &Workload,
    instance: &Instance,
) -> bool {
    let has_ended_well = matches!(instance.state, State::Exited { code: 0, .. })
        && workload.completion == Completion::OnSuccess
        && instance.touched_by_hand.is_none()
        && !record.is_stopped_by_agent(&instance.id);
    let is_to_end = stack.format == Format::Kubernetes
        || workload.job().is_some()
        || is_awaited(stack, &instance.instance.workload);
    has_ended_well && is_to_end
}

/// Whether another workload waits until this one has completed.
pub(crate) fn is_awaited(stack: &Stack, name: &WorkloadName) -> bool {
    let is_it = |dependency: &Dependency| {
        dependency.workload == *name && dependency.condition == Condition::CompletedSuccessfully
    };
    stack.workloads.values().any(|other| other.after.iter().any(is_it))
}

/// The exit codes for a command that cannot be executed, and for one that is not found.
const NO_COMMAND: [i64; 2] = [126, 127];

/// Words of runc and crun about the command of a container. The engine gives the codes also for a device or folder that
/// the host lacks, and for a runtime that is not installed.
const ABOUT_COMMAND: [&[&str]; 3] =
    [&["container process", "exec: "], &["executable file `", "not found"], &["open executable"]];

/// Whether the engine could not start a container because its command is not found or not executable. The host cannot
/// heal that, so it is a failure of the container, as in Kubernetes.
pub(crate) fn cannot_execute(instance: &Instance) -> bool {
    let State::Exited { code, ref error, .. } = instance.state else { return false };
    let error = error.to_lowercase();
    NO_COMMAND.contains(&code) && ABOUT_COMMAND.iter().any(|words| words.iter().all(|it| error.contains(it)))
}

/// The code with which containerd reports the end of a process that it lost.
const LOST: i64 = 255;

/// Why it is not known how the last run of an instance that is to end has ended, as a part of a sentence: the engine went down
/// in it. `None`: it is known, or a user or the agent ended it.
pub(crate) fn unknown_end(
    record: &Record,
    observed: &Observed,
    workload: &Workload,
    instance: &Instance,
) -> Option<String> {
    let up_since = observed.engine_started?;
    let is_explained = instance.touched_by_hand.is_some()
        || record.is_stopped_by_agent(&instance.id)
        || is_completed(record, observed, workload, instance);
    if workload.completion != Completion::OnSuccess || is_explained {
        return None;
    }
    match &instance.state {
        State::Created | State::Exited { .. } if has_left_behind(record, instance) => {
            Some("the engine went down while it started and still holds the process of that run".to_owned())
        }
        State::Created if instance.created < up_since => {
            Some("the engine went down before it said whether it had started".to_owned())
        }
        State::Exited { code, finished, .. } if *code != 0 => {
            let is_counted = crash_of(record, instance).is_some_and(|it| it.finished >= *finished);
            let is_old = instance.started.is_some_and(|started| started < up_since);
            let is_lost = is_old && (*finished < up_since || *code == LOST);
            (is_lost && !is_counted).then(|| {
                format!("the engine was down when its run ended, and knows no more than exit code {code}")
            })
        }
        State::Exited { .. }
        | State::Running { .. }
        | State::Paused
        | State::Restarting { .. }
        | State::Created
        | State::Removing
        | State::Dead => None,
    }
}

/// An engine that went down in the middle of a start may leave a process, its folder or its name in containerd behind that
/// it does not know any more, and refuses ever after to start this container, in these words.
const STUCK: [&[&str]; 4] = [
    &["task ", "already exists"],
    &["failed to start shim", "file exists"],
    &["id already in use"],
    &["container with given id already exists"],
];

/// Whether an error of the engine says that it cannot start a container because something of an earlier start is left.
pub fn is_stuck(error: &str) -> bool {
    let error = error.to_lowercase();
    STUCK.iter().any(|words| words.iter().all(|word| error.contains(word)))
}

/// Whether the engine could not start this container although its processes of an earlier start were ended, which is a part
/// of the start: another container in its place starts. Its state alone does not say so, because then such a process may
/// still use its volumes.
pub(crate) fn cannot_start(record: &Record, instance: &Instance) -> bool {
    let is_down = matches!(instance.state, State::Exited { .. } | State::Created);
    is_down && record.failures.get(&instance.name).is_some_and(|attempt| is_stuck(&attempt.error))
}

/// Whether the engine says that something of a start of this container is left that it does not know.
fn has_left_behind(record: &Record, instance: &Instance) -> bool {
    matches!(&instance.state, State::Exited { error, .. } if is_stuck(error))
        || cannot_start(record, instance)
}

/// Whether an instance has done its work: it ended well by itself, and that is its purpose.
pub(crate) fn is_completed(
    record: &Record,
    observed: &Observed,
    workload: &Workload,
    instance: &Instance,
) -> bool {
    workload.completion == Completion::OnSuccess
        && ending(record, observed, instance) == Some(Ending::Succeeded)
}

/// The code with which an instance failed, if its restart policy forbids another start.
pub(crate) fn failure(
    record: &Record,
    observed: &Observed,
    workload: &Workload,
    instance: &Instance,
) -> Option<i64> {
    let State::Exited { code, finished, ref error, .. } = instance.state else { return None };
    let crash = crash_of(record, instance);
    // A counted crash stays a failure after a restart of the engine.
    let is_counted = crash.is_some_and(|it| it.finished >= finished);
    let has_failed = matches!(ending(record, observed, instance), Some(Ending::Failed { .. }));
    // A container that the engine could not start has not run, so it has not failed either. It is tried again after
    // growing pauses. Only a Job has a number of tries, which a wrong command uses up.
    let is_wrong_job = workload.job().is_some() && cannot_execute(instance);
    let is_unstarted = !error.is_empty() && !is_wrong_job;
    let is_interrupted = instance.touched_by_hand.is_some() || code == 0 || is_unstarted;
    if is_interrupted || !(is_counted || has_failed) {
        return None;
    }
    let crashes = crash.map_or(1, |it| it.count);
    let is_final = match workload.container.restart {
        RestartPolicy::No => workload.completion == Completion::OnSuccess,
        RestartPolicy::OnFailure { max_retries: Some(max) } => crashes > max || instance.restarts >= max,
        RestartPolicy::OnFailure { max_retries: None }
        | RestartPolicy::Always
        | RestartPolicy::UnlessStopped => false,
    };
    is_final.then_some(code)
}

/// The crashes that were counted for an instance of this spec.
pub(crate) fn crash_of<'a>(record: &'a Record, instance: &Instance) -> Option<&'a Crash> {
    record.crashes.get(&instance.instance).filter(|it| it.spec == instance.spec)
}

/// Whether an instance has run, and has ended by itself since: its crash was counted. One that the engine could not start has not run.
pub(crate) fn has_run_and_ended(record: &Record, instance: &Instance) -> bool {
    let is_down = match &instance.state {
        State::Restarting { .. } => true,
        State::Exited { error, .. } => error.is_empty(),
        State::Created | State::Running { .. } | State::Paused | State::Removing | State::Dead => false,
    };
    let was_stopped_by_hand = instance.touched_by_hand.is_some() && !record.is_stopped_by_agent(&instance.id);
    let is_of_it = |crash: &Crash| crash.container == instance.id && crash.error.is_empty();
    is_down && !was_stopped_by_hand && crash_of(record, instance).is_some_and(is_of_it)
}

/// Whether an instance ended twice or more, and does not run or has not run for long enough since.
pub(crate) fn is_crash_looping(record: &Record, instance: &Instance, now: Timestamp) -> bool {
    let is_down = match &instance.state {
        State::Running { since, health: _ } => now.since(*since) < STABLE_AFTER,
        // Somebody else paused it.
        State::Paused => false,
        State::Created | State::Restarting { .. } | State::Exited { .. } | State::Removing | State::Dead => {
            true
        }
    };
    is_down && crash_of(record, instance).is_some_and(|it| it.count >= 2)
}

/// Whether an outdated instance will never serve again.
pub(crate) fn is_spent(facts: &Facts<'_>, instance: &Instance) -> bool {
    let is_exited = matches!(instance.state, State::Exited { .. });
    let is_over = |workload: &Workload| {
        facts.is_completed(workload, instance)
            || failure(facts.record, facts.observed, workload, instance).is_some()
    };
    instance.state == State::Created
        || (is_exited && deleted_network(facts.observed, instance).is_some())
        || (is_exited && facts.record.leaving.contains(&instance.id))
        || (!instance.is_running() && namespaces::is_orphaned(facts, instance))
        || facts.target.definition(instance).is_some_and(is_over)
}

/// Whether its processes exist, so that it holds its ports.
pub(crate) fn is_up(instance: &Instance) -> bool {
    match instance.state {
        State::Running { .. } | State::Paused | State::Restarting { .. } => true,
        State::Created | State::Exited { .. } | State::Removing | State::Dead => false,
    }
}

/// Networks that every engine has. They cannot be deleted, and the default bridge has another id after each start of
/// the engine, which harms nothing on it.
const OF_THE_ENGINE: [&str; 3] = ["bridge", "host", "none"];

/// A network that was deleted, and maybe created again, since the instance joined it. A container that does not run
/// cannot be started on it again.
pub(crate) fn deleted_network<'a>(observed: &Observed, instance: &'a Instance) -> Option<&'a str> {
    let is_gone = |(network, endpoint): &(&'a String, &Endpoint)| {
        let present = observed.networks.get(*network).map(|it| &it.id);
        let is_of_engine = OF_THE_ENGINE.contains(&network.as_str());
        !is_of_engine && !endpoint.network_id.is_empty() && present != Some(&endpoint.network_id)
    };
    instance.networks.iter().find(is_gone).map(|(network, _)| network.as_str())
}

/// Whether the `post_start` commands of an instance have run, or there are none.
pub(crate) fn has_run_hooks(record: &Record, instance: &InstanceId) -> bool {
    !record.pending_post_start.contains(&instance.to_string())
}
