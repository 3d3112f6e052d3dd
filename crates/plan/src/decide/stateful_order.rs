//! The order among the pods of a StatefulSet: created one after the other, removed in reverse, and replaced from the
//! highest ordinal down.
//!
//! There is no state: the available pods decide which pod is next.

use std::time::Duration;

use driftless_model::{Instance, Member, Replacement, Subject, Update, Workload, WorkloadName};

use crate::{
    draft::Draft,
    facts::{
        standing::is_spent,
        stateful::{Sibling, member_of, siblings},
    },
    wait::Wait,
};

/// Why nothing of a workload is made or replaced now, if it is not its turn.
pub(crate) fn reason_to_wait(draft: &Draft<'_>, subject: Subject<'_>) -> Option<Wait> {
    let Subject { name, workload } = subject;
    let serving = outdated(draft, subject);
    match (workload.update, serving) {
        (Update::Never, None) => {
            if let Some(older) = older_sibling(draft, subject) {
                return Some(Wait::below_partition(name, older));
            }
        }
        (Update::Rolling, _) | (Update::OnDelete, None) => {}
        (Update::OnDelete, Some(_)) => return Some(Wait::held(name, "until somebody deletes it")),
        (Update::Never, Some(_)) => return Some(Wait::held(name, PARTITION)),
    }
    let member = workload.member()?;
    let on = match serving {
        Some(serving) => replacement_waits(draft, member, serving)?,
        None => creation_waits(draft, member)?,
    };
    Some(Wait::dependency(name, &on, "it is not available"))
}

const PARTITION: &str = "its ordinal is below the partition";

/// The older definition of a workload that the manifest holds at its older version.
pub(crate) fn former(draft: &Draft<'_>, subject: Subject<'_>) -> Option<(Box<Workload>, Wait)> {
    let Subject { name, workload: wanted } = subject;
    if wanted.update != Update::Never {
        return None;
    }
    let former = older(draft, subject)?;
    let (replicas, kind) = (wanted.replicas, wanted.kind.clone());
    let former = Workload { replicas, kind, update: Update::Rolling, ..former.clone() };
    Some((Box::new(former), Wait::held(name, PARTITION)))
}

/// The definition by which a pod was made before the desired one, if it is another one.
fn older<'a>(draft: &Draft<'a>, Subject { name, workload: wanted }: Subject<'_>) -> Option<&'a Workload> {
    let facts = draft.facts;
    let before = || facts.target.reached.and_then(|it| it.workloads.get(name));
    facts.record.held.get(name).or_else(before).filter(|it| !it.is_like(wanted))
}

/// A pod of the same set that the partition keeps at an older version, if this pod is new. The older definition of a new pod is not known,
/// and next to pods of the older version it must not be of the newer one.
fn older_sibling<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Option<&'a WorkloadName> {
    let Subject { name, workload } = subject;
    let facts = draft.facts;
    let before = facts.target.reached.and_then(|it| it.workloads.get(name));
    if before.is_some_and(|it| it.replicas > 0) || facts.record.begun.contains_key(name) {
        return None;
    }
    let is_older = |sibling: &Sibling<'_>| {
        let Subject { name, workload: wanted } = sibling.subject;
        let spec = facts.spec(sibling.subject);
        let is_renewed = || facts.instances.members_of(name).iter().any(|it| it.spec == spec);
        // Other names in the network are no other version.
        let differs = |it: &Workload| it.work() != wanted.work();
        wanted.update == Update::Never && older(draft, sibling.subject).is_some_and(differs) && !is_renewed()
    };
    siblings(facts, workload.member()?).into_iter().find(is_older).map(|it| it.subject.name)
}

/// Why one that is not wanted any more is not removed yet.
pub(crate) fn stays(draft: &Draft<'_>, instance: &Instance) -> Option<Wait> {
    let member = member_of(draft.facts, instance).filter(|it| it.ordered)?;
    let of_it = |it: &Workload| it.member().is_some_and(|it| it.of == member.of);
    if !draft.facts.target.stack.workloads.values().any(of_it) {
        // The whole of it goes, and that in no order. Scaled down to none, it goes one by one.
        return None;
    }
    let siblings = siblings(draft.facts, member);
    let is_wanted =
        |it: &Instance| siblings.iter().any(|sibling| *sibling.subject.name == it.instance.workload);
    let is_later = |it: &&Instance| {
        let other = member_of(draft.facts, it);
        let is_above = other.is_some_and(|it| it.of == member.of && it.ordinal > member.ordinal);
        it.agent == *draft.facts.target.agent && is_above && !is_wanted(it)
    };
    let later = draft.facts.observed.instances.values().filter(|it| it.id != instance.id).find(is_later);
    let (on, reason) = match later {
        Some(later) => (later.instance.workload.clone(), "it is still there"),
        // One that serves nobody keeps nobody waiting.
        None if !instance.is_available(Duration::ZERO, draft.facts.now) => return None,
        None => (creation_waits(draft, member)?, "it is not available"),
    };
    Some(Wait::dependency(&instance.instance.workload, &on, reason))
}

/// The pod that must be available first. A pod that does not serve is replaced at once: a wait for it to become ready would
/// wait for the very version that Git has just taken back.
fn replacement_waits(draft: &Draft<'_>, member: &Member, serving: &Instance) -> Option<WorkloadName> {
    if !serving.is_available(Duration::ZERO, draft.facts.now) {
        return None;
    }
    let is_first = |sibling: &Sibling<'_>| {
        let is_next = || {
            let rolls = sibling.subject.workload.update == Update::Rolling;
            rolls && sibling.member.ordinal > member.ordinal && outdated(draft, sibling.subject).is_some()
        };
        !is_available(draft, sibling.subject) || is_next()
    };
    let others = siblings(draft.facts, member).into_iter().filter(|it| it.member.ordinal != member.ordinal);
    let mut waiting = others.filter(is_first).map(|it| it.subject.name.clone());
    let most = member.max_unavailable.max(1) as usize;
    waiting.nth(most - 1)
}

/// The first before it that is not available.
fn creation_waits(draft: &Draft<'_>, member: &Member) -> Option<WorkloadName> {
    if !member.ordered {
        return None;
    }
    let before = siblings(draft.facts, member).into_iter().filter(|it| it.member.ordinal < member.ordinal);
    let unavailable = before.filter(|it| !is_available(draft, it.subject));
    unavailable.min_by_key(|it| it.member.ordinal).map(|it| it.subject.name.clone())
}

fn is_available(draft: &Draft<'_>, subject: Subject<'_>) -> bool {
    let Subject { name, workload } = subject;
    draft.facts.instances.members_of(name).iter().any(|member| {
        member.is_available(workload.min_ready, draft.facts.now)
            && draft.facts.record.replaced.get(&member.id) != Some(&Replacement::Delete)
            && !draft.removed.contains_key(&member.id)
    })
}

/// The instance of another spec that still is of use.
fn outdated<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Option<&'a Instance> {
    let name = subject.name;
    let spec = draft.facts.spec(subject);
    draft.facts.instances.members_of(name).iter().copied().find(|member| {
        !draft.facts.record.is_current(member, &spec)
            && draft.facts.record.replaced.get(&member.id) != Some(&Replacement::Delete)
            && !draft.removed.contains_key(&member.id)
            && !is_spent(draft.facts, member)
    })
}
