//! Replacing outdated instances within the limits of a rollout: how many are created and removed, and in which order.

use std::{cmp::Reverse, collections::BTreeMap, iter};

use driftless_model::{Instance, Subject, Workload};

use crate::{
    cause::Cause,
    decide::{
        create::{cause_of_missing, create},
        group::Instances,
        images, proportion,
    },
    draft::{Draft, instances::NewInstance, slots::Slots},
    facts::{limits::Limits, namespaces::is_needed, standing::is_spent, workers::has_taken_over},
};

/// Creates what is missing and removes what is outdated, as far as the limits allow. Everything waits for the
/// steps `before`. Returns the outdated that stay for now.
pub(crate) fn replace<'a>(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    limits: Limits,
    instances: &Instances<'a>,
    missing: usize,
    mut before: Vec<usize>,
) -> Vec<&'a Instance> {
    let Subject { name, workload } = subject;
    let selection = RolloutSelection::of(draft, workload, limits, instances, missing);
    // Nothing makes way before the image is here.
    let makes_way =
        !(instances.lost.is_empty() && selection.spent.is_empty() && selection.removed_now.is_empty());
    if makes_way && selection.room + selection.in_turn > 0 {
        let leaving = instances.lost.iter().chain(selection.spent.iter().copied());
        let leaving = leaving.chain(selection.removed_now.iter().copied());
        before.extend(images::refresh_for(draft, subject, leaving.map(|(it, _)| it.name.as_str())));
    }
    let mut cleared = instances.cleared.clone();
    let mut freed: Vec<(&Instance, &Cause)> = Vec::new();
    for (instance, cause) in instances.lost.iter().chain(selection.spent.iter().copied()) {
        cleared.push(draft.remove(instance, cause, &before));
        freed.push((instance, cause));
    }
    let mut replaced = Vec::new();
    for (instance, cause) in &selection.removed_now {
        replaced.push((*instance, cause, draft.remove(instance, cause, &before)));
    }
    // If all old instances go first, or there are too many, no slot is free before these are gone.
    let ahead = if limits.recreate { replaced.len() } else { selection.excess };
    cleared.extend(replaced.iter().take(ahead).map(|(_, _, step)| *step));
    let mut after = before;
    after.extend(&cleared);
    if selection.room + selection.in_turn + selection.room_before == 0 {
        return selection.staying;
    }
    let mut slots = Slots::new(draft, name, &instances.current);
    for (instance, _) in freed.iter().take(selection.room) {
        slots.prefer(instance.instance.slot);
    }
    let mut causes = instances.outdated.iter().map(|(_, cause)| cause);
    for _ in 0..selection.room {
        let slot = slots.next();
        let successor_of = freed.iter().find(|(it, _)| it.instance.slot == slot);
        let inherit = successor_of.map(|(it, _)| it.anonymous_volumes.clone()).unwrap_or_default();
        let cause = successor_of.map(|(_, cause)| *cause).or_else(|| causes.next());
        // One that is missing and left needs no image.
        let Some(cause) = cause.cloned().or_else(|| cause_of_missing(draft, subject, slot)) else { continue };
        create_refreshed(draft, NewInstance { subject, slot, cause, after: after.clone(), inherit });
    }
    let mut turns = replaced.iter().skip(if limits.recreate { 0 } else { selection.excess });
    for _ in 0..selection.in_turn {
        let (mut after, mut inherit) = (after.clone(), BTreeMap::new());
        let (slot, cause) = match turns.next() {
            Some((instance, cause, step)) => {
                after.push(*step);
                inherit.clone_from(&instance.anonymous_volumes);
                (slots.take(instance.instance.slot), Some(*cause))
            }
            None => (slots.next(), None),
        };
        let Some(cause) = cause.cloned().or_else(|| cause_of_missing(draft, subject, slot)) else { continue };
        create_refreshed(draft, NewInstance { subject, slot, cause, after, inherit });
    }
    for _ in 0..selection.room_before {
        proportion::create_before(draft, name, slots.next(), cleared.clone());
    }
    selection.staying
}

/// Creates one instance, after a pull or build of its image if the policy asks for one.
fn create_refreshed(draft: &mut Draft<'_>, mut new: NewInstance<'_>) {
    let subject = new.subject;
    let container = draft.facts.container_name(draft.facts.stack_of(subject), subject.name, new.slot);
    new.after.extend(images::refresh_for(draft, subject, iter::once(container.as_str())));
    create(draft, new);
}

/// Removes new instances of a rollout whose sizes are known, if there are more than the limits allow and no old one can go:
/// the workload was scaled down. None of them is available.
pub(super) fn remove_surplus(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    limits: Limits,
    instances: &Instances<'_>,
) {
    if limits.recreate {
        return;
    }
    let Subject { workload, .. } = subject;
    let RolloutSelection { mut unready, beyond, .. } =
        RolloutSelection::of(draft, workload, limits, instances, 0);
    unready.sort_by_key(|it| (it.is_running(), Reverse(it.instance.slot)));
    for instance in unready.into_iter().take(beyond) {
        draft.remove(instance, &Cause::ScaledDown, &[]);
    }
}

/// The outdated instances that are removed in this round, and the numbers of those that are created.
struct RolloutSelection<'a, 'b> {
    /// Outdated, and of no use to anybody: removing them costs nothing.
    spent: Vec<&'b (&'a Instance, Cause)>,
    /// Outdated, to be removed in this round.
    removed_now: Vec<&'b (&'a Instance, Cause)>,
    /// New, and not available.
    unready: Vec<&'a Instance>,
    /// There are so many more than the limits allow once those are gone that are removed now.
    beyond: usize,
    /// Outdated, and staying for now.
    staying: Vec<&'a Instance>,
    /// There is room for so many new ones.
    room: usize,
    /// There is room for so many of the version before.
    room_before: usize,
    /// Number of further instances that can be created, each after one that is removed now.
    in_turn: usize,
    /// Number of instances beyond the limits.
    excess: usize,
}

impl<'a, 'b> RolloutSelection<'a, 'b> {
    fn of(
        draft: &Draft<'_>,
        workload: &Workload,
        limits: Limits,
        instances: &'b Instances<'a>,
        missing: usize,
    ) -> Self {
        let wanted = workload.replicas as usize;
        let is_available = |it: &Instance| it.is_available(workload.min_ready, draft.facts.now);
        let (spent, mut live): (Vec<_>, Vec<_>) =
            instances.outdated.iter().partition(|(it, _)| is_spent(draft.facts, it));
        let available_current = instances.current.iter().filter(|it| is_available(it)).count();
        let available_current = (available_current + instances.passed).min(instances.current.len());
        let available_live = live.iter().filter(|(it, _)| is_available(it)).count();
        let total = instances.current.len() + live.len() + instances.untouched.len();
        let ceiling = wanted + limits.surge;
        let is_blocked = limits.recreate && !live.is_empty();
        // Never fewer available than the floor. Worked example: 10 wanted, 3 surge, 2 unavailable, 5 new of which
        // none is available, 8 old: 13 - 8 - 5 = 0, so a new version that never becomes available removes nothing
        // more, not even what is unwell among the old.
        let floor = wanted.saturating_sub(limits.unavailable);
        let mut down = total.saturating_sub(floor + (instances.current.len() - available_current));
        let mut spare = (available_current + available_live).saturating_sub(floor);
        if limits.recreate {
            (down, spare) = (live.len(), live.len());
        }
        down = down.min(live.len().saturating_sub(instances.kept));
        let is_kept = |it: &Instance| instances.kept_spec.as_ref() == Some(&it.spec);
        // A canary removes those that it keeps only if there are too many of them.
        let mut spare_kept = live.iter().filter(|(it, _)| is_kept(it)).count().saturating_sub(instances.kept);
        let running: Vec<&Instance> =
            instances.current.iter().copied().chain(live.iter().map(|(it, _)| *it)).collect();
        // It has the connections of the others, which would get them back only after their end.
        let carries = |it: &Instance| has_taken_over(it, &running, draft.facts.now);
        live.sort_by_key(|(it, _)| {
            let use_of_it = (is_available(it), it.is_running(), is_needed(draft.facts, it));
            (is_kept(it), carries(it), use_of_it, it.instance.slot)
        });
        let (mut removed_now, mut staying) = (Vec::new(), Vec::new());
        for one in live {
            let serves = is_available(one.0);
            let is_spare = down > 0 && (!serves || spare > 0) && (!is_kept(one.0) || spare_kept > 0);
            if !is_spare || carries(one.0) {
                staying.push(one.0);
                continue;
            }
            down -= 1;
            spare -= usize::from(serves);
            spare_kept = spare_kept.saturating_sub(usize::from(is_kept(one.0)));
            removed_now.push(one);
        }
        let beyond = (total - removed_now.len()).saturating_sub(ceiling);
        let unready = instances.current.iter().copied().filter(|it| !is_available(it)).collect();
        let free = if is_blocked { 0 } else { ceiling.saturating_sub(total) };
        // While old ones can go, none of them is missing.
        let room_before = if removed_now.is_empty() { instances.missing_before.min(free) } else { 0 };
        let room = (free - room_before).min(missing);
        let afterwards = ceiling.saturating_sub(total + room_before - removed_now.len()).min(missing);
        let in_turn = if limits.recreate { missing } else { afterwards }.saturating_sub(room);
        let excess = total.saturating_sub(ceiling).min(removed_now.len());
        Self { spent, removed_now, unready, beyond, staying, room, room_before, in_turn, excess }
    }
}
