//! Repairing one instance: it exited, or somebody stopped, renamed, disconnected or limited it.
//!
//! The least disruptive step comes first. An instance is replaced only if nothing less helps.

use std::collections::BTreeSet;

use driftless_model::{
    Attachment, Completion, Crash, Endpoint, Format, Instance, LiveSettings, Readiness, Resources, State,
    Subject, Timestamp, Workload, WorkloadName,
};

use crate::{
    action::{Action, ContainerRef},
    backoff,
    cause::Cause,
    decide::{addresses, files, namespaces, other_writers, preconditions, writers},
    draft::{Draft, heal::Difference},
    facts::{
        Facts,
        namespaces::is_orphaned,
        standing::{cannot_start, crash_of, deleted_network, failure, has_run_hooks},
    },
    text,
    wait::{Wait, WaitObject},
};

/// Repairs one instance of the desired spec that need not be replaced: its name, networks and limits, and whether it runs.
pub(crate) fn repair_instance(draft: &mut Draft<'_>, subject: Subject<'_>, instance: &Instance) {
    let name = subject.name;
    let stack = draft.facts.stack_of(subject);
    let named = draft.facts.container_name(stack, name, instance.instance.slot);
    rename(draft, name, named, instance);
    let mut connected = reconnect(draft, subject, instance);
    connected.extend(draft.reconnected.get(&instance.id).into_iter().flatten());
    limit(draft, subject, instance);
    revive(draft, subject, instance, connected);
}

/// Sees that an instance runs, unless it has done its work.
pub(crate) fn revive(draft: &mut Draft<'_>, subject: Subject<'_>, instance: &Instance, after: Vec<usize>) {
    let Subject { name, workload } = subject;
    let container = ContainerRef::from(instance);
    match &instance.state {
        State::Running { .. } => restart(draft, instance, after),
        State::Removing | State::Dead => {}
        State::Created | State::Exited { .. }
            if draft.starts_left == 0 || deleted_network(draft.facts.observed, instance).is_some() => {}
        State::Created => {
            if !may_run(draft, name, instance) {
                return;
            }
            draft.starts_left -= 1;
            let cause = unknown_end(draft, instance).unwrap_or(Cause::NotStarted);
            draft.start(instance, cause, after);
        }
        // It would run cut off: whom it shares with is being stopped in this round. It has its turn in the next.
        State::Paused if instance.hosts.iter().any(|it| draft.stopped.contains_key(it)) => {}
        State::Paused => {
            let difference = not_running(instance, name, "paused");
            if let Some(cause) = draft.heal(difference) {
                let after = [after, draft.copies_removed(instance)].concat();
                draft.push(Action::UnpauseInstance { container }, cause, after);
            }
        }
        State::Restarting { .. } => match files::ended_with_others(draft, workload, instance, false) {
            Some(cause) => {
                let stopped = draft.stop(instance, &cause, after);
                namespaces::start_again(draft, instance, stopped);
            }
            None => hold(draft, instance),
        },
        State::Exited { code, .. } => {
            let is_completed = draft.facts.is_completed(workload, instance);
            let changed = files::ended_with_others(draft, workload, instance, is_completed);
            if is_completed && changed.is_none() {
                return;
            }
            if !may_run(draft, name, instance) {
                return;
            }
            draft.starts_left -= 1;
            if let Some(cause) = changed {
                draft.start(instance, cause, after);
            } else if instance.touched_by_hand.is_some()
                && !draft.facts.record.is_stopped_by_agent(&instance.id)
            {
                let difference = not_running(instance, name, format!("exited ({code})"));
                if let Some(cause) = draft.heal(difference) {
                    draft.start(instance, cause, after);
                }
            } else {
                start_after_crash(draft, workload, instance, after);
            }
        }
    }
}

/// Runs an instance that has done its work once more.
pub(crate) fn run_again(draft: &mut Draft<'_>, name: &WorkloadName, instance: &Instance, cause: Cause) {
    if may_run(draft, name, instance) {
        draft.start(instance, cause, vec![]);
    }
}

/// Why an instance cannot be repaired: its network was deleted and created again while it did not run, the engine cannot
/// start it again, or it has a limit that the engine cannot take away from a live container.
pub(crate) fn beyond_repair(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    instance: &Instance,
) -> Option<Cause> {
    let Subject { name, workload } = subject;
    if !instance.is_running()
        && instance.state != State::Paused
        && let Some(network) = deleted_network(draft.facts.observed, instance)
    {
        return draft.heal(
            Difference::container(
                &instance.name,
                format!("networks.{network}"),
                "the present network",
                "a network that was deleted",
            )
            .of(name),
        );
    }
    // Nobody made this difference, so it is no drift.
    if cannot_start(draft.facts.record, instance) {
        return Some(unknown_end(draft, instance).unwrap_or(Cause::Unstartable));
    }
    // Ignored limits are reported with the others.
    let all = irrevocable(&workload.container.resources, &instance.live.resources);
    let mut counted = all.into_iter().map(|(field, found)| (format!("resources.{field}"), found));
    let (field, found) = counted.find(|(field, _)| draft.is_ignored(name, path_of(field)).is_none())?;
    draft.heal(Difference::container(&instance.name, field, "no limit", found).of(name))
}

/// The limits that stand and are not wanted. The engine reads 0 as "leave it", so they cannot be taken away.
fn irrevocable(want: &Resources, found: &Resources) -> Vec<(&'static str, String)> {
    let want = &want.normal();
    let Resources { nano_cpus, memory, memory_reservation, cpu_shares, cpuset, .. } = want;
    let gained = |want: Option<u64>, found: Option<u64>| want.is_none().then_some(found).flatten();
    let numbers = [
        ("nanoCpus", gained(*nano_cpus, found.nano_cpus)),
        ("memory", gained(*memory, found.memory)),
        ("memoryReservation", gained(*memory_reservation, found.memory_reservation)),
        ("cpuShares", gained(*cpu_shares, found.cpu_shares)),
    ];
    let text = |(field, number): (&'static str, Option<u64>)| {
        Some((field, limit_text(&format!("resources.{field}"), Some(number?.into()))))
    };
    let cpuset = found.cpuset.clone().filter(|_| cpuset.is_none()).map(|found| ("cpuset", found));
    numbers.into_iter().filter_map(text).chain(cpuset).collect()
}

/// The path of a field in a diff, which calls billionths of CPUs a number of CPUs.
fn path_of(field: &str) -> &str {
    if field == "resources.nanoCpus" { "resources.cpus" } else { field }
}

/// Gives it the name that it is to have.
pub(crate) fn rename(draft: &mut Draft<'_>, name: &WorkloadName, wanted: String, instance: &Instance) {
    if instance.name == wanted {
        return;
    }
    let difference = Difference::container(&wanted, "name", wanted.clone(), instance.name.clone());
    let difference = difference.of(name).ignorable("name");
    let is_drift = draft.facts.is_at_rest(name);
    let Some(cause) = apply_or_heal(draft, is_drift, difference) else { return };
    let container = ContainerRef::from(instance);
    let renamed = match draft.free_name(&wanted) {
        Ok(after) => draft.push(Action::RenameInstance { container, to: wanted }, cause, after),
        // Another of ours bears it, and may want this one's: this one steps aside, as `docker compose` does it.
        Err(_) if draft.is_misnamed(&wanted) && !instance.name.starts_with(instance.id.short()) => {
            let to = format!("{}_{wanted}", instance.id.short());
            draft.push(Action::RenameInstance { container, to }, cause, vec![])
        }
        Err(by) => {
            let object = WaitObject::Container { name: instance.name.clone(), workload: Some(name.clone()) };
            let holder = draft.facts.observed.claims.name_holder(&wanted);
            let owner = holder.and_then(|holder| holder.app.clone());
            let (what, project) = (format!("the name `{wanted}`"), draft.facts.adoptable_project(&wanted));
            draft.wait(Wait::blocked(object, &what, &by, owner.as_ref(), project));
            return;
        }
    };
    draft.renamed.insert(instance.id.clone(), renamed);
}

/// Puts it on the networks it belongs to, and off those it does not. Returns the steps a start has to wait for. One that has done its work
/// needs none, and the engine refuses to take it off a network that was deleted.
fn reconnect(draft: &mut Draft<'_>, subject: Subject<'_>, instance: &Instance) -> Vec<usize> {
    let Subject { name, workload } = subject;
    if draft.facts.is_completed(workload, instance)
        && deleted_network(draft.facts.observed, instance).is_some()
    {
        return Vec::new();
    }
    let wanted = workload.container.networks();
    let mut connected = Vec::new();
    let names: BTreeSet<&String> = wanted.keys().chain(instance.networks.keys()).collect();
    for network in names {
        let want = wanted.get(network);
        let found = instance.networks.get(network);
        let present = draft.facts.observed.networks.get(network).map(|it| &it.id);
        let is_stale = |it: &Endpoint| !it.network_id.is_empty() && Some(&it.network_id) != present;
        let (text_want, text_found) = match (want, found) {
            (Some(_), Some(found)) if is_stale(found) => {
                ("the present network".to_owned(), "a network that was deleted".to_owned())
            }
            (Some(want), Some(found))
                if same_aliases(draft, name, &want.aliases, &found.aliases, instance) =>
            {
                continue;
            }
            (Some(want), Some(found)) => (want.aliases.join(", "), found.aliases.join(", ")),
            (Some(_), None) => ("connected".to_owned(), "disconnected".to_owned()),
            (None, Some(_)) => ("disconnected".to_owned(), "connected".to_owned()),
            (None, None) => continue,
        };
        // A network that is being replaced in this round has its own steps for those attached.
        if draft.reconnected.contains_key(&instance.id) && draft.provided.contains_key(network) {
            continue;
        }
        // It cannot be had for now; that is said where networks are planned.
        if want.is_some() && present.is_none() && !draft.provided.contains_key(network) {
            continue;
        }
        // Without networks of its own, the engine's mode says where it is: `host`, `none` or the default bridge.
        if want.is_none() && wanted.is_empty() {
            continue;
        }
        let cause = if found.is_none() && was_start_cut_short(draft, instance) {
            Cause::Interrupted
        } else {
            let field = format!("networks.{network}");
            let part = if want.is_some() && found.is_some() { "aliases" } else { "attached" };
            let path = format!("{field}.{part}");
            let difference = Difference::container(&instance.name, field, text_want, text_found);
            let difference = difference.of(name).ignorable(path);
            // All members of a network that is made again come back.
            let is_made_again = want.is_some()
                && (draft.provided.contains_key(network)
                    || draft.facts.is_made_for_request(network)
                    || found.is_some_and(is_stale));
            let is_drift = draft.facts.is_settled() || (!is_made_again && draft.facts.is_at_rest(name));
            let Some(cause) = apply_or_heal(draft, is_drift, difference) else { continue };
            cause
        };
        if want.is_some()
            && let Some((holder, address)) = addresses::holder_on(draft, subject, network)
        {
            let is_held = preconditions::held(draft, name, holder, &address);
            draft.wait(is_held);
            continue;
        }
        let mut after: Vec<usize> = draft.provided.get(network).copied().into_iter().collect();
        if found.is_some() {
            let action =
                Action::Disconnect { container: ContainerRef::from(instance), network: network.clone() };
            after.push(draft.push(action, cause.clone(), vec![]));
        }
        if let Some(attachment) = want {
            let container = ContainerRef::from(instance);
            let action = Action::Connect {
                container,
                network: network.clone(),
                attachment: Attachment::clone(attachment),
            };
            connected.push(draft.push(action, cause, after));
        }
    }
    connected
}

/// The cause to undo a difference, if it is undone. Without self-heal, one that is found while a newer commit or a request is being
/// applied is the work of that: another name, or a network that the agent has not made again yet.
fn apply_or_heal(draft: &mut Draft<'_>, is_drift: bool, difference: Difference) -> Option<Cause> {
    let (facts, policy) = (draft.facts, &draft.facts.target.policy);
    let was_reached_before = !facts.record.slots.is_empty();
    let is_applied_now = !policy.self_heal && !policy.suspended && !is_drift && was_reached_before;
    if is_applied_now { Some(Cause::SpecChanged) } else { draft.heal(difference) }
}

/// Whether the last step on an instance failed, such as a start in which the engine died: what it lacks since then, nobody
/// took away. The step that makes up for it ends this, so a second difference is drift.
fn was_start_cut_short(draft: &Draft<'_>, instance: &Instance) -> bool {
    let policy = &draft.facts.target.policy;
    policy.self_heal && !policy.suspended && draft.facts.record.failures.contains_key(&instance.name)
}

/// The engine adds aliases of its own: the short id, the host name, and on newer engines the container's name. Whether
/// anybody asked for them as well, it does not tell.
fn same_aliases(
    draft: &Draft<'_>,
    name: &WorkloadName,
    want: &[String],
    found: &[String],
    instance: &Instance,
) -> bool {
    let name = draft.facts.container_name(draft.facts.target.stack, name, instance.instance.slot);
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
pub(crate) fn limit(draft: &mut Draft<'_>, subject: Subject<'_>, instance: &Instance) {
    let Subject { name, workload } = subject;
    let mut want =
        LiveSettings { resources: workload.container.resources.clone(), restart: workload.container.restart };
    let traits = &draft.facts.observed.engine_traits;
    let unsupported = traits.unsupported_limits_of(&want.resources);
    traits.copy_unsupported_limits(&instance.live.resources, &mut want.resources);
    let exceeded = traits.cpus_exceeded_by(&want.resources);
    if !unsupported.is_empty() {
        draft.wait(Wait::limits_unsupported(name, &unsupported));
    }
    let live = instance.live.resources.nano_cpus;
    if let Some(all) = exceeded.filter(|_| live != want.resources.nano_cpus) {
        match draft.facts.target.stack.format {
            Format::Kubernetes => want.resources.nano_cpus = Some(all),
            Format::Compose => {
                // The engine would refuse it.
                draft.wait(Wait::too_few_cpus(name, want.resources.nano_cpus.unwrap_or_default(), all));
                want.resources.nano_cpus = live;
            }
        }
    }
    let mut causes = Vec::new();
    for (field, text_want, text_found) in limits_that_differ(&want, &instance.live) {
        let difference = Difference::container(&instance.name, field, text_want, text_found);
        causes.extend(draft.heal(difference.of(name).ignorable(path_of(field))));
    }
    keep_ignored(draft, name, &mut want, &instance.live);
    // One call sets all of them; it is logged under the first.
    if let Some(cause) = causes.into_iter().next() {
        let action = Action::UpdateInstance { container: ContainerRef::from(instance), settings: want };
        draft.push(action, cause, vec![]);
    }
}

/// One call sets all limits, so those that are ignored keep their live values in it.
fn keep_ignored(draft: &Draft<'_>, name: &WorkloadName, want: &mut LiveSettings, found: &LiveSettings) {
    let is_ignored = |path: &str| draft.is_ignored(name, path).is_some();
    let (limits, live) = (&mut want.resources, &found.resources);
    if is_ignored("resources.cpus") {
        (limits.nano_cpus, limits.cpu_quota, limits.cpu_period) = (live.nano_cpus, None, None);
    }
    if is_ignored("resources.memory") {
        limits.memory = live.memory;
    }
    if is_ignored("resources.memorySwap") {
        limits.memory_swap = live.memory_swap;
    }
    if is_ignored("resources.memoryReservation") {
        limits.memory_reservation = live.memory_reservation;
    }
    if is_ignored("resources.cpuShares") {
        limits.cpu_shares = live.cpu_shares;
    }
    if is_ignored("resources.cpuset") {
        limits.cpuset.clone_from(&live.cpuset);
    }
    if is_ignored("resources.pids") {
        limits.pids = live.pids;
    }
    if is_ignored("restart") {
        want.restart = found.restart;
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
        // A quota is reported as a number of CPUs.
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
    // A change of memory changes swap too: that is one difference, and one call corrects both.
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
    let Some(limit) = limit else { return "no limit".to_owned() };
    match (field, u64::try_from(limit)) {
        ("resources.nanoCpus", Ok(limit)) => text::cpus(limit),
        (field, Ok(limit)) if field.starts_with("resources.memory") => text::bytes(limit),
        (_, Ok(_) | Err(_)) => limit.to_string(),
    }
}

/// An instance that should run and is in another state.
fn not_running(instance: &Instance, name: &WorkloadName, found: impl Into<String>) -> Difference {
    let difference = Difference::container(&instance.name, "state", "running", found);
    difference.of(name).since(instance.touched_by_hand).ignorable("state")
}

/// Starts what ended by itself: at once the first time, then after growing pauses.
fn start_after_crash(draft: &mut Draft<'_>, workload: &Workload, instance: &Instance, after: Vec<usize>) {
    if let Some(code) = failure(draft.facts.record, draft.facts.observed, workload, instance) {
        let why = text::crash_reason("", draft.plan.outputs.get(&instance.instance));
        draft.wait(Wait::failed(&instance.instance, code, &why));
        return;
    }
    let Some(crash) = crash_of(draft.facts.record, instance) else {
        let has_ended_well = matches!(instance.state, State::Exited { code: 0, .. });
        let cause = match workload.completion {
            _ if draft.facts.record.is_stopped_by_agent(&instance.id) => Cause::NotStarted,
            Completion::OnSuccess if has_ended_well => Cause::EndedWithEngine,
            Completion::OnSuccess | Completion::Never => {
                unknown_end(draft, instance).unwrap_or(Cause::Exited)
            }
        };
        draft.start(instance, cause, after);
        return;
    };
    let until = next_try(draft.facts, crash);
    if draft.facts.now >= until {
        let cause = if crash.count > 1 { Cause::CrashLoop { attempt: crash.count } } else { Cause::Exited };
        draft.start(instance, cause, after);
    } else {
        pause(draft, instance, until);
    }
}

/// The cause to run an instance again whose last end is not known.
pub(crate) fn unknown_end(draft: &Draft<'_>, instance: &Instance) -> Option<Cause> {
    let known = draft.facts.record.unknown_ends.get(&instance.instance)?;
    let is_its_last = known.container == instance.id && !instance.is_running();
    is_its_last.then(|| Cause::EndUnknown { why: known.why.clone() })
}

/// When a pause after a crash is over. A crash that lies ahead of us says that the clock was set back: nobody
/// waits for that.
fn next_try(facts: &Facts<'_>, crash: &Crash) -> Timestamp {
    if crash.finished > facts.now {
        facts.now
    } else {
        crash.finished.after(backoff::crash_delay(crash.count))
    }
}

/// The engine restarts it by itself, at its own pace. From the second end on, the pace is ours: it is held.
fn hold(draft: &mut Draft<'_>, instance: &Instance) {
    let Some(crash) = crash_of(draft.facts.record, instance) else { return };
    let until = next_try(draft.facts, crash);
    if crash.count > 1 && draft.facts.now < until {
        let attempt = crash.count;
        draft.stop(instance, &Cause::CrashLoop { attempt }, vec![]);
        pause(draft, instance, until);
    }
}

/// Whether those it shares a namespace with are there to share it; the engine would not start it otherwise. An older instance does not
/// run together with the workload that has its data, ports or addresses by now, of this application or another one.
fn may_run(draft: &mut Draft<'_>, name: &WorkloadName, instance: &Instance) -> bool {
    let is_older = draft.facts.target.hashes.specs.get(name) != Some(&instance.spec);
    if is_older {
        let data = writers::new_owner(draft, name, &writers::written_by(draft, instance), |_| false);
        let data = data.map(|(by, place)| (by, place.to_string()));
        let port_or_address = || {
            let (by, what) = preconditions::place_taken_over(draft, name, &instance.config)?;
            Some((by.clone(), what))
        };
        if let Some((by, what)) = data.or_else(port_or_address) {
            draft.wait(Wait::dependency(name, &by, &format!("Git has given {what} to it")));
            return false;
        }
        if let Some((writer, place)) = writers::newer_writer(draft, instance) {
            let wait = writers::reason_to_wait(draft, name, writer, &place);
            draft.wait(wait);
            return false;
        }
    }
    let held = writers::written_by(draft, instance).into_iter().collect();
    let given_away = || other_writers::reason_to_stay_down(draft, instance).filter(|_| is_older);
    if let Some(wait) = other_writers::reason_not_to_take_back(draft, name, &held).or_else(given_away) {
        draft.look_again(draft.facts.now.after(other_writers::LOOK_AT_OTHERS));
        draft.wait(wait);
        return false;
    }
    let Some(on) = namespaces::cannot_run(draft, instance) else { return true };
    draft.wait(Wait::dependency(name, &on, "it does not run"));
    false
}

/// Restarts what hangs, what was left behind in a namespace that is no more, and what had to stop in this round
/// for another's sake.
fn restart(draft: &mut Draft<'_>, instance: &Instance, after: Vec<usize>) {
    if is_orphaned(draft.facts, instance) {
        // It cannot be started any more, so what is left of it goes on until it is replaced.
    } else if let Some(stopped) = draft.stopped.get(&instance.id).copied() {
        namespaces::start_again(draft, instance, stopped);
    } else if let Some(cause) = namespaces::left_behind(draft, instance) {
        let stopped = draft.stop(instance, &cause, after);
        namespaces::start_again(draft, instance, stopped);
    } else {
        if !has_run_hooks(draft.facts.record, &instance.instance) {
            draft.run_hooks(instance, Cause::Interrupted, vec![]);
        }
        restart_if_dead(draft, instance, after);
    }
}

fn restart_if_dead(draft: &mut Draft<'_>, instance: &Instance, after: Vec<usize>) {
    let Readiness::Dead { reason } = &instance.readiness else { return };
    let cause = Cause::Unhealthy { reason: reason.clone() };
    let stopped = draft.stop(instance, &cause, after);
    let crash = crash_of(draft.facts.record, instance);
    let until = crash.map_or(draft.facts.now, |it| next_try(draft.facts, it));
    if draft.facts.now >= until {
        namespaces::start_again(draft, instance, stopped);
    } else {
        pause(draft, instance, until);
    }
}

fn pause(draft: &mut Draft<'_>, instance: &Instance, until: Timestamp) {
    let Some(crash) = crash_of(draft.facts.record, instance) else { return };
    let why = text::crash_reason(&crash.error, draft.plan.outputs.get(&instance.instance));
    draft.wait(Wait::crash_loop_back_off(&instance.instance, crash.code, &why, crash.count, until));
    draft.look_again(until);
}
