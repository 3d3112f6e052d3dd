//! Pods of several containers: the state of an instance as its parts make it, and which containers are its parts.
//!
//! Other modules see a pod as one container: the first one, which holds the network, starts before all parts and ends
//! after them. A completed init container stays until its pod is removed, and runs again when the first one is started again.

use std::borrow::Cow;

use driftless_model::{
    Completion, ContainerId, Downward, Instance, Observed, Part, Readiness, Record, Role, Stack, State,
    Timestamp, Workload,
};

use crate::{facts::classify, target::Target};

/// The observed state with the parts of pods counted in: an instance is ready when all its parts are.
pub(crate) fn whole_of<'a>(target: &Target<'_>, observed: &'a Observed) -> Cow<'a, Observed> {
    let has_pods = |it: &Stack| it.workloads.values().any(|it| !it.parts.is_empty());
    let is_without = !has_pods(target.stack) && !target.reached.is_some_and(has_pods);
    conclude(observed, is_without, |it| target.definition(it))
}

/// The same for callers that only know the desired stack.
pub fn whole<'a>(stack: &Stack, observed: &'a Observed) -> Cow<'a, Observed> {
    let is_without = stack.workloads.values().all(|it| it.parts.is_empty());
    conclude(observed, is_without, |it| stack.workloads.get(&it.instance.workload))
}

fn conclude<'a, 's>(
    observed: &'a Observed,
    is_without: bool,
    definition: impl Fn(&Instance) -> Option<&'s Workload>,
) -> Cow<'a, Observed> {
    let mut whole = Cow::Borrowed(observed);
    if is_without && observed.parts.is_empty() {
        return whole;
    }
    for pod in observed.instances.values() {
        let found = observed.parts_of(&pod.id);
        let defined = definition(pod).filter(|it| !it.parts.is_empty() && it.spec() == pod.spec);
        if defined.is_none() && found.is_empty() {
            continue;
        }
        let judged = judge(pod, defined, &found);
        if judged != *pod {
            whole.to_mut().instances.insert(pod.id.clone(), judged);
        }
    }
    whole
}

fn judge(pod: &Instance, defined: Option<&Workload>, found: &[&Instance]) -> Instance {
    let mut judged = pod.clone();
    judged.restarts = found.iter().map(|it| it.restarts).sum();
    match &mut judged.state {
        State::Running { .. } if defined.is_some_and(|it| end(it, found).is_some()) => {
            judged.readiness = Readiness::NotReady { reason: "its work is over".to_owned() };
        }
        State::Running { since, .. } => judged.readiness = readiness(*since, defined, found),
        // We end the first container once the others are done, and their end is the pod's.
        State::Exited { code, .. } => {
            if let Some(end) = defined.and_then(|it| end(it, found)) {
                *code = end;
                judged.touched_by_hand = None;
            } else if *code == 0 {
                *code = KILLED;
            }
        }
        State::Created | State::Paused | State::Restarting { .. } | State::Removing | State::Dead => {}
    }
    judged
}

/// The code of a container that was taken away from under the others.
const KILLED: i64 = 137;

/// The end of a pod's work: 0 if all containers have ended well, or the exit code of the first that failed, unless it is started
/// again in the pod.
fn end(workload: &Workload, found: &[&Instance]) -> Option<i64> {
    if workload.completion == Completion::Never {
        return None;
    }
    let named = |part: &Part| found.iter().find(|it| name_of(it) == Some(part.name.as_str()));
    let code = |part: &Part| match named(part)?.state {
        State::Exited { code, .. } => Some(code),
        _ => None,
    };
    let initial = workload.parts.iter().filter(|it| it.role == Role::Init).filter_map(code);
    let failed = initial.into_iter().find(|it| *it != 0);
    let apps = || workload.parts.iter().filter(|it| it.role == Role::App);
    let ends: Vec<i64> = apps().filter_map(code).collect();
    let failed = failed.or_else(|| ends.iter().copied().find(|it| *it != 0));
    if workload.retries_parts() && failed.is_some() {
        return None;
    }
    failed.or_else(|| (ends.len() == apps().count()).then_some(0))
}

/// Ready when all are, since the last of them is.
fn readiness(since: Timestamp, defined: Option<&Workload>, found: &[&Instance]) -> Readiness {
    let of_definition =
        defined.map(|it| it.parts.iter().map(|it| (it.name.as_str(), it.role, it.completion)));
    let of_labels = || {
        let parts = found.iter().filter_map(|it| it.part.as_ref());
        parts.map(|it| (it.name.as_str(), it.role, Completion::Never)).collect()
    };
    let expected: Vec<(&str, Role, Completion)> = of_definition.map_or_else(of_labels, Iterator::collect);
    let named = |name: &str| found.iter().find(|it| name_of(it) == Some(name));
    let has_begun = expected.iter().any(|(name, role, _)| *role == Role::App && named(name).is_some());
    let mut ready = since;
    let mut starting = None;
    for (name, role, completion) in expected {
        if role == Role::Init && has_begun {
            continue;
        }
        let Some(part) = named(name) else {
            starting.get_or_insert_with(|| format!("{name} is not there yet"));
            continue;
        };
        match (&part.state, &part.readiness) {
            (State::Exited { code: 0, .. }, _) if completion == Completion::OnSuccess => {}
            (State::Running { .. }, _) if role == Role::Init => {
                starting.get_or_insert_with(|| format!("{name} has not ended yet"));
            }
            (State::Running { .. }, Readiness::Ready { since }) => ready = ready.max(*since),
            (State::Running { .. }, Readiness::Starting { reason }) => {
                starting.get_or_insert_with(|| format!("{name}: {reason}"));
            }
            (State::Created, _) => {
                starting.get_or_insert_with(|| format!("{name} is not started yet"));
            }
            (
                _,
                Readiness::NotReady { reason } | Readiness::Dead { reason } | Readiness::Starting { reason },
            ) => {
                return Readiness::NotReady { reason: format!("{name}: {reason}") };
            }
            (_, Readiness::Ready { .. }) => {
                return Readiness::NotReady { reason: format!("{name} does not run") };
            }
        }
    }
    starting.map_or(Readiness::Ready { since: ready }, |reason| Readiness::Starting { reason })
}

pub(crate) fn name_of(instance: &Instance) -> Option<&str> {
    instance.part.as_ref().map(|it| it.name.as_str())
}

/// Notes of parts what is noted of instances: who is ours, who is done, who keeps ending.
pub(crate) fn genuine(target: &Target<'_>, observed: &Observed, part: &Instance) -> bool {
    let Some(of) = part.part.as_ref() else { return false };
    let pod = observed.instances.get(&of.pod);
    let wanted = pod.and_then(|it| target.definition(it)).filter(|it| it.spec() == part.spec);
    // The definition of an older pod is gone. Its parts are removed with it.
    let Some(wanted) = wanted else { return true };
    let Some(defined) = wanted.part(&of.name) else { return false };
    classify::difference(target, observed, &wanted.of_part(defined), part).is_none()
}

/// A part as a workload of its own, if its pod is there and defined.
pub(crate) fn definition(target: &Target<'_>, observed: &Observed, part: &Instance) -> Option<Workload> {
    let of = part.part.as_ref()?;
    let workload = target.definition(observed.instances.get(&of.pod)?)?;
    workload.part(&of.name).map(|it| workload.of_part(it))
}

pub(crate) fn parts_of<'a>(observed: &'a Observed, pod: &ContainerId) -> Vec<&'a Instance> {
    let is_of = |it: &&Instance| it.part.as_ref().is_some_and(|it| it.pod == *pod);
    observed.parts.values().filter(is_of).collect()
}

/// Whether what comes after a sidecar may start.
pub(crate) fn has_started(part: &Part, found: &Instance) -> bool {
    // A probe that has failed for good has not succeeded either: the sidecar is about to be restarted.
    let has_not_succeeded = matches!(found.readiness, Readiness::Starting { .. } | Readiness::Dead { .. });
    let is_awaited = part.probes.startup.is_some() && has_not_succeeded;
    found.is_running() && !is_awaited
}

/// Whether it was told an address that its pod does not have any more, such as after a restart of the engine. What runs
/// with that is replaced, as in Kubernetes where the pod's sandbox changes.
pub(crate) fn was_told_otherwise(pod: &Instance, found: &Instance) -> bool {
    let Some(of) = &found.part else { return false };
    let endpoint = pod.networks.values().find(|it| it.ip.is_some());
    of.downward.iter().any(|(field, then)| {
        let now = match field {
            Downward::PodIp => endpoint.and_then(|it| it.ip.as_ref()),
            Downward::HostIp => endpoint.and_then(|it| it.gateway.as_ref()),
            Downward::PodName | Downward::NodeName => None,
        };
        now.is_some_and(|it| it != then)
    })
}

/// Whether an init container has succeeded for namespaces that its pod does not have any more: the pod's first container was started
/// since then, such as by a reboot. All that it did to the kernel, the network and volumes in memory is gone, so it has to run again.
pub(crate) fn is_unprepared(record: &Record, pod: &Instance, found: &Instance) -> bool {
    let prepared = record.prepared.get(&found.id);
    prepared.is_some_and(|it| pod.started.is_some_and(|started| started != it.pod_started))
}

/// Whether an init container has not succeeded yet, such as one that was created in place of another.
pub(crate) fn has_not_succeeded(record: &Record, found: &Instance) -> bool {
    let has_ended_well = matches!(found.state, State::Exited { code: 0, .. });
    !record.prepared.contains_key(&found.id) && (!has_ended_well || record.is_stopped_by_agent(&found.id))
}
