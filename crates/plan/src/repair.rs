//! Sets single instances right: what ended, what was stopped, renamed, disconnected or limited by hand.
//!
//! The least disruptive means comes first; an instance is replaced only where nothing less will do.

use std::collections::BTreeSet;

use driftless_model::{
    Completion, Crash, Endpoint, Instance, LiveSettings, Record, Resources, RestartPolicy, State, Timestamp,
    Workload, WorkloadName,
};

use super::{
    Action, Cause, Wait, backoff, in_place,
    round::{Difference, Round, reference},
    share, text,
};

/// Looks after one instance of the wanted spec that need not be replaced.
pub(super) fn tend(round: &mut Round<'_>, name: &WorkloadName, workload: &Workload, instance: &Instance) {
    let stack = round.stack_of(name, workload);
    let named = round.container_name(stack, name, instance.instance.slot);
    rename(round, name, named, instance);
    let mut connected = reconnect(round, name, workload, instance);
    connected.extend(round.reconnected.get(&instance.id).into_iter().flatten());
    limit(round, name, workload, instance);
    revive(round, name, workload, instance, connected);
}

/// Sees that an instance runs, unless it has done its work.
pub(super) fn revive(
    round: &mut Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    instance: &Instance,
    after: Vec<usize>,
) {
    let container = reference(instance);
    match &instance.state {
        State::Running { .. } => restart(round, instance, after),
        State::Removing | State::Dead => {}
        State::Created | State::Exited { .. }
            if round.may_start == 0 || deleted_network(round, instance).is_some() => {}
        State::Created => {
            if !may_run(round, name, instance) {
                return;
            }
            round.may_start -= 1;
            round.start(instance, Cause::NotStarted, after);
        }
        // It would run cut off: whom it shares with is being stopped in this round. It has its turn in the next.
        State::Paused if instance.hosts.iter().any(|it| round.stopped.contains_key(it)) => {}
        State::Paused => {
            let difference = state(instance, name, "running", "paused".to_owned());
            if let Some(cause) = round.heal(difference) {
                round.push(Action::UnpauseInstance { container }, cause, after);
            }
        }
        State::Restarting { .. } => match in_place::ended_with_others(round, workload, instance, false) {
            Some(cause) => {
                let stopped = round.stop(instance, &cause, after);
                share::start_again(round, instance, stopped);
            }
            None => hold(round, instance),
        },
        State::Exited { code, .. } => {
            let is_completed = is_completed(round.record, round.observed.engine_started, workload, instance);
            let changed = in_place::ended_with_others(round, workload, instance, is_completed);
            if is_completed && changed.is_none() {
                return;
            }
            if !may_run(round, name, instance) {
                return;
            }
            round.may_start -= 1;
            if let Some(cause) = changed {
                round.start(instance, cause, after);
            } else if instance.touched_by_hand.is_some() {
                let difference = state(instance, name, "running", format!("exited ({code})"));
                if let Some(cause) = round.heal(difference) {
                    round.start(instance, cause, after);
                }
            } else {
                start_after_crash(round, workload, instance, after);
            }
        }
    }
}

/// Whether an ended container has done its work: it ended well, by itself, and that is what it is for.
pub(super) fn is_completed(
    record: &Record,
    engine_started: Option<Timestamp>,
    workload: &Workload,
    instance: &Instance,
) -> bool {
    let State::Exited { code: 0, finished, .. } = instance.state else { return false };
    if workload.completion == Completion::Never || record.stopped.contains(&instance.id) {
        return false;
    }
    // A service that ends well because the engine was shut down looks the same as a job that is done. One that we
    // saw end is done; one that ended before the engine began is not known to be.
    record.completed.contains(&instance.id)
        || (instance.touched_by_hand.is_none() && engine_started.is_none_or(|it| finished >= it))
}

/// What no repair can bring back: a network that was deleted and made anew while the container did not run, or a
/// limit that the engine cannot take away from a live container.
pub(super) fn beyond_repair(
    round: &mut Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    instance: &Instance,
) -> Option<Cause> {
    if !instance.is_running()
        && instance.state != State::Paused
        && let Some(network) = deleted_network(round, instance)
    {
        return round.heal(Difference {
            kind: "container",
            object: &instance.name,
            workload: Some(name),
            field: format!("networks.{network}"),
            want: "the present network".into(),
            found: "a network that was deleted".into(),
            at: None,
        });
    }
    if is_stuck(&instance.state) {
        let found = "exited, and the engine cannot start it again".to_owned();
        return round.heal(state(instance, name, "running", found));
    }
    let (field, found) = irrevocable(&workload.container.resources, &instance.live.resources)?;
    round.heal(Difference {
        kind: "container",
        object: &instance.name,
        workload: Some(name),
        field: format!("resources.{field}"),
        want: "no limit".into(),
        found,
        at: None,
    })
}

/// An engine that went down in the middle of a start may leave a process or its folder behind that it does not know any
/// more, and refuses ever after to start this container, in these words; another container in its place starts.
const STUCK: [(&str, &str); 2] = [("task ", "already exists"), ("failed to start shim", "file exists")];

fn is_stuck(state: &State) -> bool {
    match state {
        State::Exited { error, .. } => {
            STUCK.iter().any(|(what, why)| error.contains(what) && error.contains(why))
        }
        State::Running { .. }
        | State::Created
        | State::Paused
        | State::Restarting { .. }
        | State::Removing
        | State::Dead => false,
    }
}

/// Those that every engine has. Nobody can delete them, nobody asks for them by name, and the default bridge has another
/// id after each start of the engine, without any harm to what is on it.
const OF_THE_ENGINE: [&str; 3] = ["bridge", "host", "none"];

/// A network that was deleted, and maybe made anew, since it was attached. What does not run cannot be started on
/// it again.
pub(super) fn deleted_network<'a>(round: &Round<'_>, instance: &'a Instance) -> Option<&'a str> {
    let is_gone = |(network, endpoint): &(&'a String, &Endpoint)| {
        let present = round.observed.networks.get(*network).map(|it| &it.id);
        let is_of_engine = OF_THE_ENGINE.contains(&network.as_str());
        !is_of_engine && !endpoint.network_id.is_empty() && present != Some(&endpoint.network_id)
    };
    instance.networks.iter().find(is_gone).map(|(network, _)| network.as_str())
}

/// A limit that stands and is not wanted. The engine reads 0 as "leave it", so it cannot be taken away.
fn irrevocable(want: &Resources, found: &Resources) -> Option<(&'static str, String)> {
    let want = &want.normal();
    let Resources { nano_cpus, memory, memory_reservation, cpu_shares, cpuset, .. } = want;
    let gained = |want: Option<u64>, found: Option<u64>| want.is_none().then_some(found).flatten();
    gained(*nano_cpus, found.nano_cpus)
        .map(|it| ("nanoCpus", it))
        .or_else(|| gained(*memory, found.memory).map(|it| ("memory", it)))
        .or_else(|| gained(*memory_reservation, found.memory_reservation).map(|it| ("memoryReservation", it)))
        .or_else(|| gained(*cpu_shares, found.cpu_shares).map(|it| ("cpuShares", it)))
        .map(|(field, it)| (field, limit_text(&format!("resources.{field}"), Some(it.into()))))
        .or_else(|| Some(("cpuset", found.cpuset.clone().filter(|_| cpuset.is_none())?)))
}

/// Gives it the name that it is to have.
pub(super) fn rename(round: &mut Round<'_>, name: &WorkloadName, wanted: String, instance: &Instance) {
    if instance.name == wanted {
        return;
    }
    let difference = Difference {
        kind: "container",
        object: &wanted,
        workload: Some(name),
        field: "name".into(),
        want: wanted.clone(),
        found: instance.name.clone(),
        at: None,
    };
    let Some(cause) = round.heal(difference) else { return };
    let container = reference(instance);
    let renamed = match round.free_name(&wanted) {
        Ok(after) => round.push(Action::RenameInstance { container, to: wanted }, cause, after),
        // Another of ours bears it, and may want this one's: this one steps aside, as `docker compose` does it.
        Err(_) if round.is_misnamed(&wanted) && !instance.name.starts_with(instance.id.short()) => {
            let to = format!("{}_{wanted}", instance.id.short());
            round.push(Action::RenameInstance { container, to }, cause, vec![])
        }
        Err(by) => {
            let what = format!("the name `{wanted}`");
            round.wait(Wait::Blocked { object: instance.name.clone(), by, what });
            return;
        }
    };
    round.renamed.insert(instance.id.clone(), renamed);
}

/// Puts it on the networks it belongs to, and off those it does not. Returns the steps a start has to wait for.
fn reconnect(
    round: &mut Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    instance: &Instance,
) -> Vec<usize> {
    let wanted = workload.container.networks();
    let mut connected = Vec::new();
    let names: BTreeSet<&String> = wanted.keys().chain(instance.networks.keys()).collect();
    for network in names {
        let want = wanted.get(network);
        let found = instance.networks.get(network);
        let present = round.observed.networks.get(network).map(|it| &it.id);
        let is_stale = |it: &Endpoint| !it.network_id.is_empty() && Some(&it.network_id) != present;
        let (text_want, text_found) = match (want, found) {
            (Some(_), Some(found)) if is_stale(found) => {
                ("the present network".to_owned(), "a network that was deleted".to_owned())
            }
            (Some(want), Some(found))
                if same_aliases(round, name, &want.aliases, &found.aliases, instance) =>
            {
                continue;
            }
            (Some(want), Some(found)) => (want.aliases.join(", "), found.aliases.join(", ")),
            (Some(_), None) => ("connected".to_owned(), "disconnected".to_owned()),
            (None, Some(_)) => ("disconnected".to_owned(), "connected".to_owned()),
            (None, None) => continue,
        };
        // A network that is being replaced in this round has its own steps for those attached.
        if round.reconnected.contains_key(&instance.id) && round.provided.contains_key(network) {
            continue;
        }
        // It cannot be had for now; that is said where networks are planned.
        if want.is_some() && present.is_none() && !round.provided.contains_key(network) {
            continue;
        }
        // Without networks of its own, the engine's mode says where it is: `host`, `none` or the default bridge.
        if want.is_none() && wanted.is_empty() {
            continue;
        }
        let difference = Difference {
            kind: "container",
            object: &instance.name,
            workload: Some(name),
            field: format!("networks.{network}"),
            want: text_want,
            found: text_found,
            at: None,
        };
        let Some(cause) = round.heal(difference) else { continue };
        let mut after: Vec<usize> = round.provided.get(network).copied().into_iter().collect();
        if found.is_some() {
            let action = Action::Disconnect { container: reference(instance), network: network.clone() };
            after.push(round.push(action, cause.clone(), vec![]));
        }
        if let Some(attachment) = want {
            let container = reference(instance);
            let action =
                Action::Connect { container, network: network.clone(), attachment: attachment.clone() };
            connected.push(round.push(action, cause, after));
        }
    }
    connected
}

/// The engine adds aliases of its own: the short id, the host name, and on newer engines the container's name. Whether
/// anybody asked for them as well, it does not tell.
fn same_aliases(
    round: &Round<'_>,
    name: &WorkloadName,
    want: &[String],
    found: &[String],
    instance: &Instance,
) -> bool {
    let name = round.container_name(round.target.stack, name, instance.instance.slot);
    let own = |it: &&String| {
        it.as_str() != instance.name
            && it.as_str() != instance.id.short()
            && Some(*it) != instance.config.hostname.as_ref()
            && **it != name
    };
    let want: BTreeSet<&String> = want.iter().filter(own).collect();
    let found: BTreeSet<&String> = found.iter().filter(own).collect();
    want == found
}

/// Sets its limits, and its restart policy.
pub(super) fn limit(round: &mut Round<'_>, name: &WorkloadName, workload: &Workload, instance: &Instance) {
    let want =
        LiveSettings { resources: workload.container.resources.clone(), restart: workload.container.restart };
    let mut causes = Vec::new();
    for (field, want, found) in limits_that_differ(&want, &instance.live) {
        let difference = Difference {
            kind: "container",
            object: &instance.name,
            workload: Some(name),
            field: field.into(),
            want,
            found,
            at: None,
        };
        causes.extend(round.heal(difference));
    }
    // One call sets all of them; it is logged under the first.
    if let Some(cause) = causes.into_iter().next() {
        let action = Action::UpdateInstance { container: reference(instance), settings: want };
        round.push(action, cause, vec![]);
    }
}

fn limits_that_differ(want: &LiveSettings, found: &LiveSettings) -> Vec<(&'static str, String, String)> {
    let LiveSettings { resources, restart } = want;
    let Resources {
        nano_cpus,
        memory,
        memory_reservation,
        memory_swap,
        cpu_shares,
        pids,
        // A quota is told as a number of CPUs.
        cpu_quota: _,
        cpu_period,
        cpuset,
    } = &resources.normal();
    let wide = |it: Option<u64>| it.map(i128::from);
    let mut all = Vec::new();
    let mut compare = |field, want: Option<i128>, found: Option<i128>| {
        if want != found {
            all.push((field, limit_text(field, want), limit_text(field, found)));
        }
        want != found
    };
    let now = &found.resources;
    compare("resources.nanoCpus", wide(*nano_cpus), wide(now.nano_cpus));
    let has_other_memory = compare("resources.memory", wide(*memory), wide(now.memory));
    compare("resources.memoryReservation", wide(*memory_reservation), wide(now.memory_reservation));
    // Without a word about swap, the engine allows as much again as there is memory.
    let swap = memory_swap.map(i128::from).or_else(|| wide(*memory).map(|it| it.saturating_mul(2)));
    // Whoever changes the one changes the other with it: that is one difference, and one call sets both right.
    if memory.is_some() && now.memory_swap.is_some() && !has_other_memory {
        compare("resources.memorySwap", swap, now.memory_swap.map(i128::from));
    }
    compare("resources.cpuShares", wide(*cpu_shares), wide(now.cpu_shares));
    let unlimited = |it: Option<i64>| it.filter(|it| *it > 0).map(i128::from);
    compare("resources.pids", unlimited(*pids), unlimited(now.pids));
    compare("resources.cpuPeriod", wide(*cpu_period), wide(now.cpu_period));
    if *cpuset != now.cpuset {
        let text = |it: &Option<String>| it.clone().unwrap_or_else(|| "none".to_owned());
        all.push(("resources.cpuset", text(cpuset), text(&now.cpuset)));
    }
    if *restart != found.restart {
        all.push(("restart", text::restart(*restart), text::restart(found.restart)));
    }
    all
}

/// `64 MiB`, `1.5`: in the units in which a manifest is written.
fn limit_text(field: &str, limit: Option<i128>) -> String {
    let Some(limit) = limit else { return "none".to_owned() };
    match (field, u64::try_from(limit)) {
        ("resources.nanoCpus", Ok(limit)) => text::cpus(limit),
        (field, Ok(limit)) if field.starts_with("resources.memory") => text::bytes(limit),
        (_, Ok(_) | Err(_)) => limit.to_string(),
    }
}

fn state<'a>(instance: &'a Instance, name: &'a WorkloadName, want: &str, found: String) -> Difference<'a> {
    Difference {
        kind: "container",
        object: &instance.name,
        workload: Some(name),
        field: "state".into(),
        want: want.into(),
        found,
        at: instance.touched_by_hand,
    }
}

/// Whether an instance is done, or failed and is by its manifest not to be started again.
pub(super) fn is_over(round: &Round<'_>, workload: &Workload, instance: &Instance) -> bool {
    is_completed(round.record, round.observed.engine_started, workload, instance)
        || failure(round, workload, instance).is_some()
}

/// The code with which it failed for good. What somebody stopped, or the engine's end brought down, did not fail.
pub(super) fn failure(round: &Round<'_>, workload: &Workload, instance: &Instance) -> Option<i64> {
    let State::Exited { code, finished, ref error, .. } = instance.state else { return None };
    let crash = crash_of(round, instance).filter(|it| it.finished >= finished)?;
    // What the engine could not start has not run, so it has not failed either: it is tried again, ever more slowly.
    if instance.touched_by_hand.is_some() || code == 0 || !error.is_empty() {
        return None;
    }
    let is_final = match workload.container.restart {
        RestartPolicy::No => workload.completion == Completion::OnSuccess,
        RestartPolicy::OnFailure { max_retries: Some(max) } => crash.count > max || instance.restarts >= max,
        RestartPolicy::OnFailure { max_retries: None }
        | RestartPolicy::Always
        | RestartPolicy::UnlessStopped => false,
    };
    is_final.then_some(code)
}

fn crash_of<'a>(round: &Round<'a>, instance: &Instance) -> Option<&'a Crash> {
    round.record.crashes.get(&instance.instance).filter(|it| it.spec == instance.spec)
}

/// Starts what ended by itself: at once the first time, then after growing pauses.
fn start_after_crash(round: &mut Round<'_>, workload: &Workload, instance: &Instance, after: Vec<usize>) {
    if let Some(code) = failure(round, workload, instance) {
        round.wait(Wait::Failed { instance: instance.instance.clone(), code });
        return;
    }
    let Some(crash) = crash_of(round, instance) else {
        let is_ours = round.record.stopped.contains(&instance.id);
        let is_clean = matches!(instance.state, State::Exited { code: 0, .. });
        let cause = match workload.completion {
            _ if is_ours => Cause::NotStarted,
            Completion::OnSuccess if is_clean => Cause::EndedWithEngine,
            Completion::OnSuccess | Completion::Never => Cause::Exited,
        };
        round.start(instance, cause, after);
        return;
    };
    let until = next_try(round, crash);
    if round.now >= until {
        let cause = if crash.count > 1 { Cause::CrashLoop { attempt: crash.count } } else { Cause::Exited };
        round.start(instance, cause, after);
    } else {
        pause(round, instance, until);
    }
}

/// When a pause after a crash is over. A crash that lies ahead of us says that the clock was set back: nobody
/// waits for that.
fn next_try(round: &Round<'_>, crash: &Crash) -> Timestamp {
    if crash.finished > round.now {
        round.now
    } else {
        crash.finished.after(backoff::crash_delay(crash.count))
    }
}

/// The engine restarts it by itself, at its own pace. From the second end on, the pace is ours: it is held.
fn hold(round: &mut Round<'_>, instance: &Instance) {
    let Some(crash) = crash_of(round, instance) else { return };
    let until = next_try(round, crash);
    if crash.count > 1 && round.now < until {
        let attempt = crash.count;
        round.stop(instance, &Cause::CrashLoop { attempt }, vec![]);
        pause(round, instance, until);
    }
}

/// Whether those it shares a namespace with are there to share it; the engine would not start it otherwise.
fn may_run(round: &mut Round<'_>, name: &WorkloadName, instance: &Instance) -> bool {
    let Some(on) = share::cannot_run(round, instance) else { return true };
    let reason = "it does not run".to_owned();
    round.wait(Wait::Dependency { workload: name.clone(), on, reason });
    false
}

/// Starts anew what hangs, what was left behind in a namespace that is no more, and what had to stop in this round
/// for another's sake.
fn restart(round: &mut Round<'_>, instance: &Instance, after: Vec<usize>) {
    if share::is_orphaned(round, instance) {
        // It cannot be started any more, so what is left of it goes on until it is replaced.
    } else if let Some(stopped) = round.stopped.get(&instance.id).copied() {
        share::start_again(round, instance, stopped);
    } else if let Some(cause) = share::left_behind(round, instance) {
        let stopped = round.stop(instance, &cause, after);
        share::start_again(round, instance, stopped);
    } else {
        if round.record.unhooked.contains(&instance.instance.to_string()) {
            round.run_hooks(instance, Cause::Interrupted, vec![]);
        }
        restart_if_dead(round, instance, after);
    }
}

fn restart_if_dead(round: &mut Round<'_>, instance: &Instance, after: Vec<usize>) {
    let driftless_model::Readiness::Dead { reason } = &instance.readiness else { return };
    let cause = Cause::Unhealthy { reason: reason.clone() };
    let stopped = round.stop(instance, &cause, after);
    let crash = crash_of(round, instance);
    let until = crash.map_or(round.now, |it| next_try(round, it));
    if round.now >= until {
        share::start_again(round, instance, stopped);
    } else {
        pause(round, instance, until);
    }
}

fn pause(round: &mut Round<'_>, instance: &Instance, until: Timestamp) {
    let Some(crash) = crash_of(round, instance) else { return };
    round.wait(Wait::CrashLoopBackOff {
        instance: instance.instance.clone(),
        attempt: crash.count,
        until,
        code: crash.code,
        error: crash.error.clone(),
    });
    round.look_again(until);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_cannot_start_again_is_told_by_its_words() {
        let exited = |error: &str| State::Exited {
            code: 137,
            finished: Timestamp(0),
            out_of_memory: false,
            error: error.to_owned(),
        };
        assert!(is_stuck(&exited("task 489c586ddd7d: already exists: unknown")));
        assert!(is_stuck(&exited(
            "failed to start shim: mkdir /run/docker/7bd0930ac2be: file exists: unknown"
        )));
        assert!(!is_stuck(&exited(
            "failed to create shim: exec: \"web\": executable file not found in $PATH"
        )));
        assert!(!is_stuck(&exited("")));
    }
}
