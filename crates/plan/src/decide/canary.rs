//! Canaries: as many new instances as the step that is reached allows. The others stay at the version before, and are
//! looked after as if that were desired.

use driftless_model::{Instance, Strategy, Subject, Workload};

use crate::{
    decide::{
        group::Instances,
        preconditions::{self, Preconditions},
        replace,
        rollout::{
            allow_starts, group_instances, keep, remark, repair_instances, report_failures, roll_allowed,
        },
    },
    draft::Draft,
    facts::{canary::CurrentStep, limits::Limits, limits::limits, standing::is_spent, update_failures},
    wait::Wait,
};

/// One round for a workload whose canary is at this step. `before` is its definition before the commit.
pub(crate) fn roll_canary(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    before: Option<&Workload>,
    members: &[&Instance],
    current: CurrentStep<'_>,
) {
    let Subject { name, workload } = subject;
    let facts = draft.facts;
    let spec = facts.spec(subject);
    if members.iter().any(|member| draft.removed.contains_key(&member.id)) {
        // One makes way for another workload. Its successor comes in the next round, with its volumes.
        allow_starts(draft, subject, members);
        keep(draft, members);
        return;
    }
    let (replicas, share) = (workload.replicas as usize, current.instances as usize);
    let canary = Workload { replicas: current.instances, ..workload.clone() };
    let canary = Subject { name, workload: &canary };
    allow_starts(draft, subject, members);
    let floor = replicas.saturating_sub(limits(facts, subject, []).unavailable);
    let mut instances = group_instances(draft, canary, members, floor);
    repair_instances(draft, canary, &instances);
    let is_scaled_down = members.iter().any(|it| it.spec == spec && draft.removed.contains_key(&it.id));
    let failures = update_failures::of(facts, canary, instances.current.iter().copied());
    report_failures(draft, canary, &failures);
    let outdated: Vec<&Instance> = instances.outdated.iter().map(|(it, _)| *it).collect();
    if failures.stops_update {
        keep(draft, &outdated);
        return;
    }
    instances.kept = replicas.saturating_sub(share);
    instances.kept_spec = before.map(Workload::spec);
    let missing = share.saturating_sub(instances.current.len());
    let preconditions =
        if missing > 0 { preconditions::check(draft, subject) } else { Preconditions::Met(vec![]) };
    let limits = limits(facts, subject, outdated.iter().copied().filter(|it| !is_spent(facts, it)));
    let begun = draft.plan.steps.len();
    let staying = match preconditions {
        Preconditions::Unmet => outdated,
        Preconditions::MakeRoom(after) => replace::replace(draft, subject, limits, &instances, 0, after),
        Preconditions::Met(after) => replace::replace(draft, subject, limits, &instances, missing, after),
    };
    let is_available = |it: &&&Instance| it.is_available(workload.min_ready, facts.now);
    let available = instances.current.iter().filter(is_available).count();
    // The old ones take the place of new ones that are too many when these are gone.
    match before.filter(|_| draft.plan.steps.len() == begun && !is_scaled_down) {
        Some(before) => {
            let stable = stable(before, workload, limits, &instances, available);
            let stable = Subject { name, workload: &stable };
            let others: Vec<&Instance> = members.iter().copied().filter(|it| it.spec != spec).collect();
            // The new ones that start in this round count, too.
            let left = draft.starts_left;
            allow_starts(draft, stable, &others);
            draft.starts_left = draft.starts_left.min(left);
            roll_allowed(draft, stable, &others);
        }
        None => keep(draft, &staying),
    }
    remark(draft, canary, &instances.current, &[], 0);
    if current.reached.is_some() && available >= share {
        let app = &facts.target.stack.app;
        let is_only = facts.record.canaries.len() == 1;
        let command = if is_only { app.to_string() } else { format!("{app}/{name}") };
        draft.wait(Wait::canary(name, &current, workload.replicas, &command));
        // In a suspended application no pause ends.
        if let Some(until) = current.until().filter(|_| !facts.target.policy.suspended) {
            draft.look_again(until);
        }
    }
}

/// The definition of the old instances: as many as the new ones do not serve yet, and with what the new ones leave of the limits.
fn stable(
    before: &Workload,
    workload: &Workload,
    limits: Limits,
    instances: &Instances<'_>,
    available: usize,
) -> Workload {
    let replicas = workload.replicas as usize;
    let room = (replicas + limits.surge).saturating_sub(instances.current.len());
    // More may be there if the workload was scaled down. Those that the minimum needs stay, and none is created for it.
    let needed = replicas.saturating_sub(limits.unavailable + available).min(instances.outdated.len());
    let wanted = instances.kept.max(replicas.saturating_sub(available)).min(room).max(needed);
    let surge = room.saturating_sub(wanted);
    let absent = replicas.saturating_sub(available + wanted);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let strategy = Strategy::RollingUpdate {
        max_surge: number(surge),
        max_unavailable: number(limits.unavailable.saturating_sub(absent)),
    };
    Workload { replicas: number(wanted), strategy, ..before.clone() }
}
