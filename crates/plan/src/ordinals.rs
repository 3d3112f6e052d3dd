//! The order among workloads that make up one object: a StatefulSet's pods come one after the other, go the other way
//! round, and are replaced from the highest ordinal down.
//!
//! It says why something is not done yet; doing it is for [`super::rollout`]. As everywhere, there is no state: whose turn
//! it is follows from who is available.

use driftless_model::{Instance, Member, Replacement, Update, Workload, WorkloadName};

use super::{Wait, census::Census, replace, round::Round};

/// Why nothing of a workload is made or replaced now, if it is not its turn.
pub(super) fn hindrance(
    round: &Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    census: &Census<'_>,
) -> Option<Wait> {
    let serving = outdated(round, name, workload, census);
    match (workload.update, serving) {
        (Update::Rolling, _) | (_, None) => {}
        (Update::OnDelete, Some(_)) => return Some(held(name, "until somebody deletes it")),
        (Update::Never, Some(_)) => return Some(held(name, PARTITION)),
    }
    let member = workload.member.as_ref()?;
    let on = match serving {
        Some(serving) => replacement_waits(round, member, workload, serving, census)?,
        None => creation_waits(round, member, census)?,
    };
    Some(Wait::Dependency { workload: name.clone(), on, reason: "it is not available".to_owned() })
}

const PARTITION: &str = "its ordinal is below the partition";

fn held(name: &WorkloadName, reason: &str) -> Wait {
    Wait::Held { workload: name.clone(), reason: reason.to_owned() }
}

/// What a workload was before, where its manifest says that it stays so.
pub(super) fn former(
    round: &Round<'_>,
    name: &WorkloadName,
    wanted: &Workload,
) -> Option<(Box<Workload>, Wait)> {
    if wanted.update != Update::Never {
        return None;
    }
    let before = || round.target.fallback.and_then(|it| it.workloads.get(name));
    let former = round.record.held.get(name).or_else(before).filter(|it| !it.is_like(wanted))?;
    let (replicas, member) = (wanted.replicas, wanted.member.clone());
    let former = Workload { replicas, member, update: Update::Rolling, ..former.clone() };
    Some((Box::new(former), held(name, PARTITION)))
}

/// Why one that is not wanted any more is not removed yet.
pub(super) fn stays(round: &Round<'_>, instance: &Instance, census: &Census<'_>) -> Option<Wait> {
    let member = member_of(round, instance).filter(|it| it.ordered)?;
    let of_it = |it: &Workload| it.member.as_ref().is_some_and(|it| it.of == member.of);
    if !round.target.stack.workloads.values().any(of_it) {
        // The whole of it goes, and that in no order. Scaled down to none, it goes one by one.
        return None;
    }
    let siblings = siblings(round, member);
    let is_wanted = |it: &Instance| siblings.iter().any(|(name, ..)| **name == it.instance.workload);
    let is_later = |it: &&Instance| {
        let other = member_of(round, it);
        let is_above = other.is_some_and(|it| it.of == member.of && it.ordinal > member.ordinal);
        it.agent == *round.target.agent && is_above && !is_wanted(it)
    };
    let later = round.observed.instances.values().filter(|it| it.id != instance.id).find(is_later);
    let (on, reason) = match later {
        Some(later) => (later.instance.workload.clone(), "it is still there"),
        // One that serves nobody keeps nobody waiting.
        None if !instance.is_available(std::time::Duration::ZERO, round.now) => return None,
        None => (creation_waits(round, member, census)?, "it is not available"),
    };
    let workload = instance.instance.workload.clone();
    Some(Wait::Dependency { workload, on, reason: reason.to_owned() })
}

/// Who is to be available first. One that does not serve is replaced at once: whoever waited for it to become ready would
/// wait for the very version that Git has just taken back.
fn replacement_waits(
    round: &Round<'_>,
    member: &Member,
    workload: &Workload,
    serving: &Instance,
    census: &Census<'_>,
) -> Option<WorkloadName> {
    if !serving.is_available(workload.min_ready, round.now) {
        return None;
    }
    let is_ahead = |(name, other, place): &(&WorkloadName, &Workload, &Member)| {
        let is_next = || {
            let rolls = other.update == Update::Rolling;
            rolls && place.ordinal > member.ordinal && outdated(round, name, other, census).is_some()
        };
        !is_available(round, name, other, census) || is_next()
    };
    let mut ahead = siblings(round, member).into_iter().filter(|it| it.2.ordinal != member.ordinal);
    let mut waiting = ahead.by_ref().filter(is_ahead).map(|(name, ..)| name.clone());
    let most = member.max_unavailable.max(1) as usize;
    waiting.nth(most - 1)
}

/// The first before it that is not available.
fn creation_waits(round: &Round<'_>, member: &Member, census: &Census<'_>) -> Option<WorkloadName> {
    if !member.ordered {
        return None;
    }
    let before = siblings(round, member).into_iter().filter(|it| it.2.ordinal < member.ordinal);
    before
        .filter(|(name, other, _)| !is_available(round, name, other, census))
        .min_by_key(|it| it.2.ordinal)
        .map(|(name, ..)| name.clone())
}

/// All that are wanted of the same whole, itself among them.
fn siblings<'a>(round: &Round<'a>, member: &Member) -> Vec<(&'a WorkloadName, &'a Workload, &'a Member)> {
    let all = round.target.stack.workloads.iter();
    let of_it = all.filter_map(|(name, it)| Some((name, it, it.member.as_ref()?)));
    of_it.filter(|(_, it, place)| place.of == member.of && it.replicas > 0).collect()
}

/// Which one it is, or was as long as Git asked for it.
fn member_of<'a>(round: &Round<'a>, instance: &Instance) -> Option<&'a Member> {
    let name = &instance.instance.workload;
    let before = || round.target.fallback.and_then(|it| it.workloads.get(name));
    round.target.stack.workloads.get(name).or_else(before)?.member.as_ref()
}

fn is_available(round: &Round<'_>, name: &WorkloadName, workload: &Workload, census: &Census<'_>) -> bool {
    census.members_of(name).iter().any(|it| {
        it.is_available(workload.min_ready, round.now)
            && round.record.replaced.get(&it.id) != Some(&Replacement::Delete)
            && !round.removed.contains_key(&it.id)
    })
}

/// The instance of another spec that still is of use.
fn outdated<'a>(
    round: &Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    census: &Census<'a>,
) -> Option<&'a Instance> {
    let spec = round.spec(name, workload);
    census.members_of(name).iter().copied().find(|it| {
        !round.record.is_current(it, &spec)
            && round.record.replaced.get(&it.id) != Some(&Replacement::Delete)
            && !round.removed.contains_key(&it.id)
            && !replace::is_spent(round, it)
    })
}
