//! All workloads of an application: which definition of each one is rolled out, and what holds it back.

use driftless_model::{Instance, Subject, Workload, WorkloadName};

use crate::{
    decide::{
        canary::roll_canary,
        own_update,
        rollout::{allow_starts, keep, roll, wait_paused},
        stateful_order, waves,
    },
    draft::Draft,
    facts::namespaces::in_order,
    wait::Wait,
};

/// Plans all workloads. Impostors and orphans are removed first, because they may hold names and ports.
pub(crate) fn roll_all(draft: &mut Draft<'_>) {
    for subject in in_order(draft.facts.target.stack) {
        let Subject { name, workload: wanted } = subject;
        if wanted.job_or_template().is_some() || is_held_back(draft, subject) {
            continue;
        }
        let before = draft.facts.target.fallback.and_then(|it| it.workloads.get(name));
        let members = draft.facts.instances.members_of(name);
        if let Some(wait) = waves::reason_to_wait(draft, subject)
            && !has_begun(draft, subject, before, members)
        {
            if let Some(before) = before {
                roll(draft, Subject { name, workload: before }, members);
            } else {
                allow_starts(draft, subject, members);
                keep(draft, members);
            }
            draft.wait(wait);
            continue;
        }
        let before = before.filter(|it| !it.is_like(wanted));
        let spec = draft.facts.spec(subject);
        let is_change = members.iter().any(|it| it.spec != spec);
        // Until everything that the commit needs is here, what runs is kept as it was.
        let is_affected = is_change || members.is_empty() || draft.missing_images.contains(name);
        let is_held = !draft.missing_images.is_empty() && is_affected;
        let is_unbegun = !members.iter().any(|it| it.spec == spec);
        match before {
            Some(before) if is_held && is_unbegun => {
                roll(draft, Subject { name, workload: before }, members);
                wait_for_images(draft, name);
            }
            Some(_) | None if is_held && is_change => {
                allow_starts(draft, subject, members);
                keep(draft, members);
                wait_for_images(draft, name);
            }
            Some(before) if draft.facts.is_rollout_paused(subject) && is_change && is_unbegun => {
                let scaled = Workload { replicas: wanted.replicas, ..before.clone() };
                roll(draft, Subject { name, workload: &scaled }, members);
                wait_paused(draft, subject);
            }
            Some(_) | None
                if !draft.facts.is_rollout_paused(subject) && draft.facts.canary(subject).is_some() =>
            {
                if let Some(current) = draft.facts.canary(subject) {
                    roll_canary(draft, subject, before, members, current);
                }
            }
            Some(_) | None => match stateful_order::former(draft, subject) {
                Some((former, wait)) => {
                    roll(draft, Subject { name, workload: &former }, members);
                    draft.wait(wait);
                }
                None => roll(draft, subject, members),
            },
        }
    }
}

/// Whether containers of a changed workload have been made already: it does not go back because what its turn waited for is not available
/// for a moment. The new version may have changed data that the older one would find.
fn has_begun(
    draft: &Draft<'_>,
    subject: Subject<'_>,
    before: Option<&Workload>,
    members: &[&Instance],
) -> bool {
    let spec = draft.facts.spec(subject);
    let is_changed = before.is_some_and(|before| before.spec() != spec);
    is_changed && !draft.facts.is_held_by_hooks && members.iter().any(|member| member.spec == spec)
}

/// Whether a workload is not to be touched at all: Docker Compose runs it, or it is what this agent runs in.
fn is_held_back(draft: &mut Draft<'_>, subject: Subject<'_>) -> bool {
    let Subject { name, workload: wanted } = subject;
    let members = draft.facts.instances.members_of(name);
    if draft.not_adopted.contains(name) {
        allow_starts(draft, subject, members);
        keep(draft, members);
        return true;
    }
    let Some(own) = members.iter().find(|it| draft.facts.observed.own.as_ref() == Some(&it.id)) else {
        return false;
    };
    if members.len() == wanted.replicas as usize {
        own_update::tend(draft, subject, own);
    } else {
        draft.wait(Wait::own(&own.name, Some(name), "Git asks for another number of them"));
    }
    true
}

/// Reports that a workload with a present image waits for the images of others.
fn wait_for_images(draft: &mut Draft<'_>, name: &WorkloadName) {
    if !draft.missing_images.contains(name) {
        draft.wait(Wait::images(name, &draft.missing_image_names()));
    }
}
