//! Waiting for the folder of another application, with which this one goes on and which is not gone yet.
//!
//! Until then nothing may write to a folder of its own: that would be the application's, and the files of the other one would be missed.

use driftless_model::{AppName, Instance, Subject, WorkloadName};

use crate::{
    decide::{
        other_writers::LOOK_AT_OTHERS,
        rollout::{allow_starts, keep},
    },
    draft::Draft,
    facts::Facts,
    wait::Wait,
};

/// Holds back everything of an application that has no instances. True: nothing is done before.
pub(super) fn hold_new(draft: &mut Draft<'_>) -> bool {
    let facts = draft.facts;
    let is_new = facts.instances.members.is_empty() && facts.instances.orphans.is_empty();
    let Some(owner) = facts.observed.claims.awaited_folder.as_ref().filter(|_| is_new) else { return false };
    for name in facts.target.stack.workloads.keys() {
        draft.wait(wait_for(facts, name, owner));
    }
    draft.look_again(facts.now.after(LOOK_AT_OTHERS));
    true
}

/// Why a workload cannot start, if it mounts a path of the folder.
pub(super) fn reason_to_wait(facts: &Facts<'_>, subject: Subject<'_>) -> Option<Wait> {
    let Subject { name, workload } = subject;
    let owner = facts.observed.claims.awaited_folder.as_ref()?;
    let mounts_folder = workload.containers().any(|container| container.app_folders().next().is_some());
    mounts_folder.then(|| wait_for(facts, name, owner))
}

/// Holds a workload that mounts a path of the folder. Its containers of another version stay. True: it is held.
pub(super) fn hold(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) -> bool {
    let Some(wait) = reason_to_wait(draft.facts, subject) else { return false };
    allow_starts(draft, subject, members);
    keep(draft, members);
    wait_for_folder(draft, wait);
    true
}

/// Says that something waits for the folder.
pub(super) fn wait_for_folder(draft: &mut Draft<'_>, wait: Wait) {
    draft.wait(wait);
    draft.look_again(draft.facts.now.after(LOOK_AT_OTHERS));
}

/// The wait of a workload, by what keeps the other application.
fn wait_for(facts: &Facts<'_>, name: &WorkloadName, owner: &AppName) -> Wait {
    let claims = &facts.observed.claims;
    let Some(managed) = claims.applications.as_deref() else { return Wait::folder_of_leaving(name, owner) };
    if managed.unread.contains(owner) {
        return Wait::folder_of_unread(name, owner);
    }
    if managed.names.contains(owner) {
        return Wait::folder_of_leaving(name, owner);
    }
    if !managed.is_complete {
        return Wait::folder_of_unknown(name, owner, &managed.unread_repositories);
    }
    let left = claims.name_holders().filter(|(_, holder)| holder.app.as_ref() == Some(owner));
    let left: Vec<&str> = left.map(|(container, _)| container).collect();
    Wait::folder_of_forgotten(name, owner, &left)
}
