//! Workloads that mount a secret which the host does not have any more.
//!
//! Mounted secrets are kept in memory only, so a restart of the host ends those of an older revision whose source has another value
//! by now. No container with such a secret could start, so none is created, started or replaced, and what runs stays.

use std::time::Duration;

use driftless_model::{ContentId, Instance, MountSource, Subject, Workload};

use crate::{
    decide::rollout::{allow_starts, keep},
    draft::Draft,
    facts::Facts,
    wait::Wait,
};

/// The source of the value is not observed.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Why a workload cannot start, if it lacks a secret.
pub(super) fn reason_to_wait(facts: &Facts<'_>, subject: Subject<'_>) -> Option<Wait> {
    let Subject { name, workload } = subject;
    let id = facts.observed.lacking_secrets.get(name)?;
    Some(Wait::secret_missing(name, &place_of(workload, id), &facts.target.stack.app))
}

/// Holds a workload that lacks a secret. Its containers of another version may have what they need. True: it is held.
pub(super) fn hold(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) -> bool {
    let Some(wait) = reason_to_wait(draft.facts, subject) else { return false };
    let Subject { name: _, workload } = subject;
    let spec = draft.facts.spec(subject);
    let (current, others): (Vec<&Instance>, Vec<&Instance>) =
        members.iter().copied().partition(|member| member.spec == spec);
    allow_starts(draft, subject, members);
    keep(draft, &others);
    let is_done = |member: &&&Instance| member.is_running() || draft.facts.is_completed(workload, member);
    if !others.is_empty() || current.iter().filter(is_done).count() < workload.replicas as usize {
        wait_for_secret(draft, wait);
    }
    true
}

/// Says that something waits for a secret.
pub(super) fn wait_for_secret(draft: &mut Draft<'_>, wait: Wait) {
    draft.wait(wait);
    draft.look_again(draft.facts.now.after(LOOK_AGAIN));
}

/// The use of a secret in words, with its path in the container.
fn place_of(workload: &Workload, id: &ContentId) -> String {
    let mut mounts = workload.containers().flat_map(|container| &container.mounts);
    let mount = mounts.find(|mount| matches!(&mount.source, MountSource::Secret(found) if found == id));
    let rewritten = workload.in_place.iter().find(|(_, file)| file.content == *id);
    let target = mount.map(|mount| &mount.target).or(rewritten.map(|(target, _)| target));
    target.map_or_else(|| "a mounted secret".to_owned(), |target| format!("the secret at {target}"))
}
