//! Files that are rewritten in place when Git changes them: written, then announced to their container.
//!
//! The record has, by container id, which files a container has read. A container that is not in it may have read none,
//! so a round that is cut short between the write and the signal sends the signal again.

use std::collections::BTreeSet;

use driftless_model::{InPlace, Instance, OnChange, Strategy, Workload};

use crate::{
    action::{Action, ContainerRef},
    cause::Cause,
    decide::{group::Instances, namespaces},
    draft::Draft,
};

/// Writes what instances that run do not hold yet, and tells them. Restarts come one after the other, as far as the
/// limits of a rollout allow, and after a rollout that is under way; an instance that only gets a signal goes on serving, so all of
/// them get it at once.
pub(crate) fn deliver(draft: &mut Draft<'_>, workload: &Workload, instances: &Instances<'_>) {
    if workload.in_place.is_empty() {
        return;
    }
    let is_well = |it: &Instance| it.is_available(workload.min_ready, draft.facts.now);
    let mut due: Vec<&Instance> = Vec::new();
    let mut unwell = 0;
    for instance in &instances.current {
        // An instance that this plan stops anyway reads the new files at its start.
        let is_touched = draft.stopped.contains_key(&instance.id) || draft.removed.contains_key(&instance.id);
        if is_touched {
            unwell += 1;
        } else if instance.is_running() && !undelivered(draft, workload, instance).is_empty() {
            due.push(instance);
        } else if !is_well(instance) {
            unwell += 1;
        }
    }
    due.sort_by_key(|it| (is_well(it), it.instance.slot));
    let at_once = match workload.strategy {
        Strategy::Recreate => usize::MAX,
        Strategy::RollingUpdate { max_surge: _, max_unavailable } => (max_unavailable as usize).max(1),
    };
    let is_complete = instances.current.len() >= workload.replicas as usize;
    let is_rolling = !is_complete || !instances.outdated.is_empty() || !instances.lost.is_empty();
    // Images that are refreshed for other workloads in this round come first.
    let pulls: Vec<usize> = draft.pulls.values().copied().collect();
    let mut room = if is_rolling { 0 } else { at_once.saturating_sub(unwell) };
    for instance in due {
        let targets = undelivered(draft, workload, instance);
        let cause = Cause::FilesChanged { files: targets.iter().cloned().collect() };
        let asked: BTreeSet<&OnChange> =
            targets.iter().filter_map(|it| workload.in_place.get(it)).map(|it| &it.on_change).collect();
        if asked.contains(&OnChange::Restart) {
            if room > 0 {
                room -= 1;
                let stopped = draft.stop(instance, &cause, pulls.clone());
                namespaces::start_again(draft, instance, stopped);
            }
            continue;
        }
        let (id, files) = (&instance.instance, &workload.in_place);
        let written = draft.write_files(files, id, instance.into(), &cause, pulls.clone());
        for it in asked {
            if let OnChange::Signal(signal) = it {
                let (container, signal) = (ContainerRef::from(instance), signal.clone());
                let after = written.into_iter().collect();
                draft.push(Action::SignalInstance { container, signal }, cause.clone(), after);
            }
        }
    }
}

/// Why an instance that does not run is to be started at once, pauses or not: it ended with other files than those it
/// would be started with now.
pub(crate) fn ended_with_others(
    draft: &Draft<'_>,
    workload: &Workload,
    instance: &Instance,
    is_over: bool,
) -> Option<Cause> {
    let told = draft.facts.record.delivered.get(&instance.id)?;
    let targets = undelivered(draft, workload, instance);
    let targets = targets.into_iter().filter(|it| told.contains_key(it));
    // A completed instance runs again only if the manifest asks for a restart.
    let is_asked = |it: &String| {
        !is_over || workload.in_place.get(it).is_some_and(|it| it.on_change == OnChange::Restart)
    };
    let files: Vec<String> = targets.filter(is_asked).collect();
    (!files.is_empty()).then_some(Cause::FilesChanged { files })
}

/// Whether a container has read all files of a definition.
pub(crate) fn has_read(draft: &Draft<'_>, workload: &Workload, instance: &Instance) -> bool {
    unread(draft, workload, instance).is_empty()
}

/// The targets that a container is to read now. While its workload waits for its turn or images are missing, it keeps its files.
fn undelivered(draft: &Draft<'_>, workload: &Workload, instance: &Instance) -> BTreeSet<String> {
    if draft.keeps_files(&instance.instance.workload) || workload.spec() != instance.spec {
        return BTreeSet::new();
    }
    unread(draft, workload, instance)
}

/// The targets with content that a container has not read.
fn unread(draft: &Draft<'_>, workload: &Workload, instance: &Instance) -> BTreeSet<String> {
    let told = draft.facts.record.delivered.get(&instance.id);
    let is_told = |target: &str, file: &InPlace| told.and_then(|it| it.get(target)) == Some(&file.content);
    workload.in_place.iter().filter(|(target, file)| !is_told(target, file)).map(|it| it.0.clone()).collect()
}
