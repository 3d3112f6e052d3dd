//! Proportional scaling: a workload that is scaled while its rollout is under way or paused gets its instances of the
//! version before and of the new one in the proportion in which they are there.
//!
//! This is what Kubernetes' deployment controller does with ReplicaSets. Their sizes are in
//! [`Record::rollouts`](driftless_model::Record::rollouts), so instances of the version before that are lost while the new
//! one is not available are created again, too.

use std::{cmp::Reverse, collections::BTreeMap};

use driftless_model::{
    Instance, RolloutSizes, SpecHash, State, Strategy, Subject, Workload, WorkloadKind, WorkloadName,
};

use crate::{
    action::Action,
    cause::Cause,
    decide::{
        create::{cause_of_missing, create},
        group::Instances,
        preconditions::{self, Preconditions},
    },
    draft::{Draft, instances::NewInstance, slots::Slots},
    facts::{
        Facts,
        limits::{Limits, exclusive},
        standing::is_spent,
    },
};

/// The sizes of a rollout, as they are to be.
pub(super) struct Sizes {
    wanted: RolloutSizes,
    /// The spec of the version before.
    before: SpecHash,
}

impl Sizes {
    /// The number of instances of the version before that are missing.
    pub(super) fn missing_before(&self, facts: &Facts<'_>, instances: &Instances<'_>) -> usize {
        (self.wanted.before as usize).saturating_sub(before(facts, &self.before, instances, false).count())
    }
}

/// The sizes of the rollout of a desired workload. `None`: there is none whose version before is known.
pub(super) fn sizes(
    draft: &Draft<'_>,
    subject: Subject<'_>,
    limits: Limits,
    instances: &Instances<'_>,
    is_paused: bool,
) -> Option<Sizes> {
    let facts = draft.facts;
    let former = former(facts, subject.name)?;
    if limits.recreate || (facts.is_settled() && !is_paused) || !facts.is_desired(subject) {
        return None;
    }
    let (spec, of_former) =
        (facts.spec(subject), facts.spec(Subject { name: subject.name, workload: former }));
    let live = before(facts, &of_former, instances, is_paused).count();
    let (replicas, surge) = (subject.workload.replicas, number(limits.surge));
    let known = facts.record.rollouts.get(subject.name).filter(|known| known.spec == spec);
    // A rollout that was on its way stops where it is.
    let followed = known.filter(|known| known.paused || !is_paused);
    let (mut old, mut new) =
        followed.map_or((live, instances.current.len()), |known| (known.before as usize, known.new as usize));
    if let Some(known) = known.filter(|known| known.replicas != replicas && new > 0) {
        let most = if replicas == 0 { 0 } else { (replicas + surge) as usize };
        (old, new) = spread(old, new, (known.replicas + known.surge) as usize, most);
    }
    // Another of the new version takes the place of one that a user deleted.
    old = old.saturating_sub(instances.lost.iter().filter(|(it, _)| it.spec == of_former).count());
    if !can_be_created(facts, former) {
        old = old.min(live);
    }
    let wanted =
        RolloutSizes { spec, replicas, surge, before: number(old), new: number(new), paused: is_paused };
    (live > 0 || known.is_some()).then_some(Sizes { wanted, before: of_former })
}

/// Notes the sizes that the rollout of a workload has once the steps from `begun` on are done.
pub(super) fn note(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    sizes: Sizes,
    instances: &Instances<'_>,
    begun: usize,
) {
    let Sizes { mut wanted, before } = sizes;
    if !wanted.paused {
        let old = || {
            let outdated = instances.outdated.iter().map(|(it, _)| *it);
            outdated.filter(|it| it.spec == before && it.state != State::Created)
        };
        let kept = || old().filter(|it| !draft.removed.contains_key(&it.id));
        if kept().count() < old().count() {
            wanted.before = wanted.before.min(number(kept().count()));
        }
        // The limits keep instances that the new size has no place for. They count when it changes again.
        let serving = kept().filter(|it| !is_spent(draft.facts, it)).count();
        wanted.before = wanted.before.max(number(serving));
        let is_new = |action: &Action| {
            matches!(action, Action::CreateInstance(it)
                if it.part.is_none() && it.instance.workload == *subject.name && it.spec == wanted.spec)
        };
        let created = draft.plan.steps.iter().skip(begun).filter(|step| is_new(&step.action)).count();
        let current = instances.current.iter().filter(|it| !draft.removed.contains_key(&it.id));
        wanted.new = number(current.count() + created);
    }
    draft.plan.rollouts.insert(subject.name.clone(), wanted);
}

/// Removes the instances that both versions of a paused rollout have too many of: their sizes change if the workload is
/// scaled. Never fewer available than the limits allow.
pub(super) fn shrink_paused(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    limits: Limits,
    instances: &Instances<'_>,
    sizes: &Sizes,
) {
    let workload = subject.workload;
    let facts = draft.facts;
    let old: Vec<&Instance> = before(facts, &sizes.before, instances, true).collect();
    let is_available = |it: &Instance| it.is_available(workload.min_ready, facts.now);
    let all = instances.current.iter().copied().chain(instances.outdated.iter().map(|(it, _)| *it));
    let floor = (workload.replicas as usize).saturating_sub(limits.unavailable);
    let mut spare = all.filter(|it| is_available(it)).count().saturating_sub(floor);
    let (wanted_old, wanted_new) = (sizes.wanted.before as usize, sizes.wanted.new as usize);
    for (mut members, wanted) in [(old, wanted_old), (instances.current.clone(), wanted_new)] {
        members.sort_by_key(|it| (is_available(it), it.is_running(), Reverse(it.instance.slot)));
        let surplus = members.len().saturating_sub(wanted);
        for instance in members.into_iter().take(surplus) {
            if is_available(instance) {
                if spare == 0 {
                    continue;
                }
                spare -= 1;
            }
            draft.remove(instance, &Cause::ScaledDown, &[]);
        }
    }
}

/// Creates the instances that both versions of a paused rollout lack.
pub(super) fn grow_paused(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    limits: Limits,
    instances: &Instances<'_>,
    sizes: &Sizes,
) {
    let Subject { name, workload } = subject;
    let old: Vec<&Instance> = before(draft.facts, &sizes.before, instances, true).collect();
    for instance in old.iter().filter(|it| it.state == State::Created) {
        if !draft.removed.contains_key(&instance.id) {
            draft.start(instance, Cause::NotStarted, vec![]);
        }
    }
    let missing_old = (sizes.wanted.before as usize).saturating_sub(old.len());
    let missing_new = (sizes.wanted.new as usize).saturating_sub(instances.current.len());
    if missing_old + missing_new == 0 {
        return;
    }
    let Preconditions::Met(after) = preconditions::check(draft, subject) else { return };
    let total = instances.current.len() + instances.outdated.len() + instances.untouched.len();
    let room = (workload.replicas as usize + limits.surge).saturating_sub(total);
    let mut slots = Slots::new(draft, name, &instances.current);
    let missing_old = missing_old.min(room);
    for _ in 0..missing_old {
        create_before(draft, name, slots.next(), after.clone());
    }
    for _ in 0..missing_new.min(room - missing_old) {
        create_missing(draft, subject, slots.next(), after.clone());
    }
}

/// Creates an instance of the version before of a workload.
pub(super) fn create_before(draft: &mut Draft<'_>, name: &WorkloadName, slot: u32, after: Vec<usize>) {
    if let Some(workload) = former(draft.facts, name) {
        create_missing(draft, Subject { name, workload }, slot, after);
    }
}

fn create_missing(draft: &mut Draft<'_>, subject: Subject<'_>, slot: u32, after: Vec<usize>) {
    if let Some(cause) = cause_of_missing(draft, subject, slot) {
        create(draft, NewInstance { subject, slot, cause, after, inherit: BTreeMap::new() });
    }
}

/// The definition of a workload in the stack that was reached last, or before its rollout was paused, if it has no other
/// order or end than a Deployment.
fn former<'a>(facts: &Facts<'a>, name: &WorkloadName) -> Option<&'a Workload> {
    let desired = facts.target.stack.workloads.get(name)?;
    let is_rolled = matches!(desired.strategy, Strategy::RollingUpdate { .. });
    let reached = facts.target.reached.and_then(|it| it.workloads.get(name));
    let all = [reached, facts.record.held.get(name)];
    let mut others = all.into_iter().flatten().filter(|before| !before.is_like(desired));
    let are_replicas =
        |before: &&Workload| before.kind == WorkloadKind::Replicas && desired.kind == WorkloadKind::Replicas;
    others.next().filter(are_replicas).filter(|_| is_rolled)
}

/// The instances of the version before that can serve. While the rollout is paused, also those that were not started yet.
fn before<'a>(
    facts: &Facts<'_>,
    spec: &SpecHash,
    instances: &Instances<'a>,
    is_paused: bool,
) -> impl Iterator<Item = &'a Instance> {
    let outdated = instances.outdated.iter().map(|(it, _)| *it).filter(|it| it.spec == *spec);
    outdated.filter(move |it| !is_spent(facts, it) || (is_paused && it.state == State::Created))
}

/// Whether all that an instance of the version before needs is there, and it needs nothing that others can have alone.
fn can_be_created(facts: &Facts<'_>, former: &Workload) -> bool {
    let image = facts.image(former);
    let networks = || former.containers().flat_map(|it| it.networks().keys());
    exclusive(former).is_none()
        && former.containers().all(|it| it.peers().next().is_none())
        && facts.has_image(former, &image)
        && facts.is_verified(former, &image)
        && networks().all(|it| facts.observed.networks.contains_key(it))
}

/// The sizes of both versions after the largest number of instances has changed from `was` to `most`. Each one keeps its
/// share; what rounding leaves goes to the larger one. This is the arithmetic of Kubernetes.
fn spread(old: usize, new: usize, was: usize, most: usize) -> (usize, usize) {
    let share = |size: usize| (2 * size * most + was) / (2 * was).max(1);
    let total = old + new;
    let is_old_first = if most > total { old > new } else { old >= new };
    let (first, second) = if is_old_first { (old, new) } else { (new, old) };
    let (first, second) = if most > total {
        let to_add = most - total;
        let added = share(first).saturating_sub(first).min(to_add);
        let more = share(second).saturating_sub(second).min(to_add - added);
        (first + to_add - more, second + more)
    } else {
        let to_remove = total - most;
        let removed = first.saturating_sub(share(first)).min(to_remove);
        let more = second.saturating_sub(share(second)).min(to_remove - removed);
        (first.saturating_sub(to_remove - more), second - more)
    };
    if is_old_first { (first, second) } else { (second, first) }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spread_as_by_kubernetes() {
        // The example of the documents of Kubernetes: 10 with 3 more and 2 fewer, scaled to 15.
        assert_eq!(spread(8, 5, 13, 18), (11, 7));
        assert_eq!(spread(8, 5, 13, 8), (5, 3));
        // From its own tests of `scale`: without surge, what rounding leaves goes to the larger one.
        assert_eq!(spread(5, 5, 10, 12), (6, 6));
        assert_eq!(spread(5, 5, 10, 8), (4, 4));
        assert_eq!(spread(8, 2, 10, 8), (6, 2));
        assert_eq!(spread(2, 8, 10, 12), (2, 10));
        assert_eq!(spread(10, 3, 13, 8), (6, 2));
        assert_eq!(spread(3, 1, 4, 1), (1, 0));
        assert_eq!(spread(1, 1, 2, 3), (1, 2));
        assert_eq!(spread(3, 2, 5, 0), (0, 0));
    }

    #[test]
    fn spread_sizes_use_the_whole_room() {
        for (old, new, was, most) in (0..8_usize)
            .flat_map(|old| (0..8).map(move |new| (old, new)))
            .flat_map(|(old, new)| {
                (0..4).flat_map(move |more| (0..20).map(move |most| (old, new, old + new + more, most)))
            })
            .filter(|(old, new, ..)| old + new > 0)
        {
            let (to_old, to_new) = spread(old, new, was, most);
            assert!(to_old + to_new >= most || most < old + new, "{old} {new} {was} {most}");
            assert!(to_old + to_new <= most.max(old + new), "{old} {new} {was} {most}: {to_old} {to_new}");
            assert!(most < old + new || (to_old >= old && to_new >= new), "none is removed when it grows");
            assert!(most > old + new || (to_old <= old && to_new <= new), "none is created when it shrinks");
        }
    }
}
