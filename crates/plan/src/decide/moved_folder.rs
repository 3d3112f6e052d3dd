//! Folders of an application in another state directory than the present one, as after a copy of the directory, or after
//! `driftless restore --state-dir`.
//!
//! A bind mount stays where it was made. A new container would mount the folder of the same name in the present directory, whose files
//! may be older or missing. So a container that writes to the former folder is neither replaced nor started, and no other one begins on
//! the present folder, until a person has decided which files count and has removed that container.

use std::collections::BTreeSet;

use driftless_model::{AppName, Instance, Mount, MountSource, Subject, Workload};

use crate::{
    decide::rollout::keep,
    draft::Draft,
    facts::{Facts, cron::was_run, hooks::was_hook, standing::is_up},
    wait::Wait,
};

/// Why no container of a workload is made, started or replaced, if a container writes to a folder of the workload in another state
/// directory.
pub(super) fn reason_to_wait(facts: &Facts<'_>, subject: Subject<'_>) -> Option<Wait> {
    let written = written_paths(subject.workload);
    if written.is_empty() {
        return None;
    }
    let found = facts.observed.containers().filter(|container| is_bound(facts, container));
    let found: Vec<(&str, &str)> = found
        .filter_map(|container| Some((container.name.as_str(), former_place(facts, container, &written)?)))
        .collect();
    let (_, place) = found.first()?;
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    Some(Wait::folder_moved(subject.name, place, &names))
}

/// Holds a workload of which a folder is written to in another state directory. What runs stays, and what is down stays down: nobody
/// knows which of the two folders has the newer files. True: it is held.
pub(super) fn hold(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) -> bool {
    let Some(wait) = reason_to_wait(draft.facts, subject) else { return false };
    draft.starts_left = 0;
    keep(draft, members);
    draft.wait(wait);
    true
}

/// Whether a container that the stack does not have stays, because it writes to a folder of a workload in another state directory. The
/// workload says so.
pub(super) fn holds_back(facts: &Facts<'_>, container: &Instance) -> bool {
    if !is_bound(facts, container) {
        return false;
    }
    let written: BTreeSet<&str> = facts.target.stack.workloads.values().flat_map(written_paths).collect();
    former_place(facts, container, &written).is_some()
}

/// The paths in the application's folder that a workload writes to.
fn written_paths(workload: &Workload) -> BTreeSet<&str> {
    let mounts = workload.containers().flat_map(|container| &container.mounts);
    mounts.filter(|mount| !mount.read_only).filter_map(Mount::app_folder).collect()
}

/// Whether the folder of a container counts: the agent made it, and its work is not done. The folders of Docker Compose, from which a
/// container was adopted, may have the same names.
fn is_bound(facts: &Facts<'_>, container: &Instance) -> bool {
    let is_done = || {
        let workload = facts.target.definition(container);
        let is_over = |workload: &Workload| {
            workload.job_or_template().is_some() || facts.is_completed(workload, container)
        };
        workload.is_some_and(is_over) || was_hook(container) || was_run(facts.target.stack, container)
    };
    container.agent == *facts.target.agent
        && !facts.record.adopted.containers.contains_key(&container.id)
        && (is_up(container) || !is_done())
}

/// The path of the host that a container writes to, if it ends like one of these paths in a state directory. A path that the manifests
/// name is no such folder.
fn former_place<'c>(facts: &Facts<'_>, container: &'c Instance, written: &BTreeSet<&str>) -> Option<&'c str> {
    let stacks = || [Some(facts.target.stack), facts.target.reached].into_iter().flatten();
    let is_named = |place: &str| {
        let containers = stacks().flat_map(|stack| stack.workloads.values()).flat_map(Workload::containers);
        let mut mounts = containers.flat_map(|container| &container.mounts);
        mounts.any(|mount| matches!(&mount.source, MountSource::Bind { path, .. } if path == place))
    };
    let app = &facts.target.stack.app;
    container.config.mounts.iter().filter(|mount| !mount.read_only).find_map(|mount| {
        let MountSource::Bind { path: place, .. } = &mount.source else { return None };
        let is_former = written.iter().any(|path| place.ends_with(&end_of(app, path)));
        (is_former && !is_named(place)).then_some(place.as_str())
    })
}

/// The end of a path in the folder of an application, in any state directory.
fn end_of(app: &AppName, path: &str) -> String {
    if path == "." { format!("/applications/{app}") } else { format!("/applications/{app}/{path}") }
}
