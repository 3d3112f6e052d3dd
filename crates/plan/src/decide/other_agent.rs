//! Workloads that a container of another agent runs.
//!
//! That agent may be gone, as after a loss of state, or live. Until its container is taken over or has ended, nothing of the workload is
//! created, started or updated: a bot or a queue worker without a volume would do its work twice. Nothing is stopped for it either.

use driftless_model::{Instance, State, Subject};

use crate::{
    decide::rollout::{allow_starts, keep},
    draft::Draft,
    facts::{Facts, standing::is_up},
    wait::Wait,
};

/// Why a workload is not touched, if a container of another agent runs it. A suspended application is not changed in any case.
pub(super) fn reason_to_wait(facts: &Facts<'_>, Subject { name, workload: _ }: Subject<'_>) -> Option<Wait> {
    let is_foreign = |instance: &&Instance| {
        instance.instance.workload == *name && instance.agent != *facts.target.agent && is_up(instance)
    };
    let found = facts.observed.instances.values().find(is_foreign)?;
    (!facts.target.policy.suspended).then(|| Wait::of_another_agent(name, &found.name, &found.agent))
}

/// Holds a workload that a container of another agent runs. Its own containers that run stay. True: it is held.
pub(super) fn hold(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) -> bool {
    if subject.workload.replicas == 0 {
        return false;
    }
    let Some(wait) = reason_to_wait(draft.facts, subject) else { return false };
    let is_at_work =
        |member: &&&Instance| matches!(member.state, State::Running { .. } | State::Restarting { .. });
    let working: Vec<&Instance> = members.iter().filter(is_at_work).copied().collect();
    allow_starts(draft, subject, members);
    keep(draft, &working);
    draft.wait(wait);
    true
}
