//! Data that passes from one workload to another, as in a rename: nothing starts on what a container that Git does not have any
//! more, or has otherwise, still writes to.
//!
//! A commit renames the service `a`, which writes to a volume, to `b`. In the first round `b` waits, because the container of `a` is an
//! orphan that writes to the volume ([`orphaned_writers`]); it is stopped and removed. In the next round `b` is created. If the commit
//! gives the volume of `a` to `b` and keeps `a`, the container of `a` has an older version ([`outdated_writers`]) and is removed first,
//! unless it stays for as long as a person wants ([`is_kept`]); the new `a`, which does not write there, starts when its turn comes. Once
//! `b` has a container, it is the [`new_owner`]: nothing starts the older `a` again.

use std::collections::BTreeSet;

use driftless_model::{
    Dependency, Instance, SharedPlace, Stack, State, Subject, Update, Workload, WorkloadName,
};

use crate::{
    draft::Draft,
    facts::{
        cron,
        hooks::was_hook,
        places::{Place, places, writes_nothing, writes_to},
        sharing::Sharing,
        standing::{is_spent, is_up},
        stateful::member_of,
        waiting,
    },
    wait::{Wait, WaitSeverity},
};

/// The containers that Git does not have any more and that still write to what a workload is to write to, or are started again and do so
/// then, each with the place.
///
/// A Job ends by itself, and may share data with what runs. A workload that was there together with one of them, when all was as
/// Git said, shares it with that one if it wrote to it then. Pods of one StatefulSet share what they write to.
pub(crate) fn orphaned_writers<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Vec<(&'a Instance, Place)> {
    let is_writer = |orphan: &&Instance| is_up(orphan) || draft.returning.contains(&orphan.id);
    let orphans = draft.facts.instances.orphans.iter().copied().filter(is_writer);
    contested(draft, subject, orphans, |_, _| true)
}

/// The container of Docker Compose that nobody adopted and that writes to what a workload is to write to, with the place, unless both do
/// so in Git.
pub(crate) fn compose_writer<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Option<(&'a Instance, Place)> {
    let facts = draft.facts;
    if facts.observed.candidates.is_empty() || subject.workload.job_or_template().is_some() {
        return None;
    }
    let wanted = new_places(draft, subject);
    let running = facts.observed.candidates.values().map(|candidate| &candidate.instance);
    running.filter(|it| is_up(it) && facts.observed.own.as_ref() != Some(&it.id)).find_map(|found| {
        let is_contested = |place: &Place| {
            wanted.contains(place) && !writes(facts.target.stack, &found.instance.workload, place)
        };
        Some((found, places(&found.config).into_iter().find(is_contested)?))
    })
}

/// The places that a workload is to write to and did not write to before.
pub(crate) fn new_places(draft: &Draft<'_>, Subject { name, workload }: Subject<'_>) -> BTreeSet<Place> {
    let facts = draft.facts;
    let reached = facts.target.reached.unwrap_or(facts.target.stack);
    let members = facts.instances.members_of(name);
    let had: BTreeSet<Place> = members.iter().flat_map(|member| written_by(draft, member)).collect();
    let was_there = facts.record.slots.contains_key(name) || facts.record.adopted.workloads.contains(name);
    let is_known = |place: &Place| had.contains(place) || (was_there && writes(reached, name, place));
    workload.containers().flat_map(places).filter(|place| !is_known(place)).collect()
}

/// The containers of other workloads that still write to what a workload is to write to, or will be started again and do so then, and
/// whose own workload does not write there any more in Git: their successors do not need it.
pub(crate) fn outdated_writers<'a>(draft: &Draft<'a>, subject: Subject<'_>) -> Vec<(&'a Instance, Place)> {
    let facts = draft.facts;
    // Most workloads write to nothing that is kept, and this is asked of each one that starts.
    if writes_nothing(subject.workload) {
        return Vec::new();
    }
    let stack = facts.target.stack;
    let outdated = facts.observed.instances.values().filter(|holder| {
        let of = &holder.instance.workload;
        let other = stack.workloads.get(of).filter(|_| of != subject.name);
        other.is_some_and(|other| other.job_or_template().is_none())
            && holder.agent == *facts.target.agent
            && facts.target.hashes.specs.get(of) != Some(&holder.spec)
            && (is_up(holder) || (matches!(holder.state, State::Exited { .. }) && !is_spent(facts, holder)))
    });
    let is_given_up = |holder: &Instance, place: &Place| !writes(stack, &holder.instance.workload, place);
    contested(draft, subject, outdated, is_given_up)
}

/// The workload that has the data of an older definition by now, with the place: Git has given them to it, and its containers have been
/// made already. The older definition must not be started together with it.
///
/// Before it creates containers of an older definition, `is_due` says whether those of such a workload are made in this round.
pub(crate) fn new_owner(
    draft: &Draft<'_>,
    name: &WorkloadName,
    held: &[Place],
    is_due: impl Fn(Subject<'_>) -> bool,
) -> Option<(WorkloadName, Place)> {
    let (target, record) = (draft.facts.target, draft.facts.record);
    let is_given_up = |place: &&Place| !writes(target.stack, name, place);
    held.iter().filter(is_given_up).find_map(|place| {
        let takes = |taker: &Subject<'_>| {
            // Without a version before, all is as Git says: those that were there then have always shared it.
            let is_new = || match target.reached {
                Some(before) => !writes(before, taker.name, place),
                None => !record.slots.contains_key(taker.name),
            };
            let is_made = || {
                let mut made = draft.facts.instances.members_of(taker.name).iter();
                made.any(|member| written_by(draft, member).contains(place))
            };
            taker.name != name
                && taker.workload.job_or_template().is_none()
                && writes(target.stack, taker.name, place)
                && is_new()
                && (is_made() || is_due(*taker))
        };
        let mut all = target.stack.workloads.iter().map(|(name, workload)| Subject { name, workload });
        Some((all.find(takes)?.name.clone(), place.clone()))
    })
}

/// The container that writes to the data of an older one by now, with the place, if a commit made it that was never reached and Git does
/// not have it any more. The older one must not be started together with it, unless the other one was created while it ran: they share
/// the data, whereas a successor is created when it is down.
pub(crate) fn newer_writer<'a>(draft: &Draft<'a>, older: &Instance) -> Option<(&'a Instance, Place)> {
    let facts = draft.facts;
    facts.target.reached?;
    let held = written_by(draft, older);
    let has_met =
        |other: &Instance| matches!(older.state, State::Exited { finished, .. } if finished > other.created);
    let is_newer = |other: &&Instance| {
        let was_run = was_hook(other) || cron::was_run(facts.target.stack, other);
        is_up(other) && !was_run && facts.target.definition(other).is_none() && !has_met(other)
    };
    facts.instances.orphans.iter().copied().filter(is_newer).find_map(|other| {
        let place = written_by(draft, other).into_iter().find(|place| held.contains(place))?;
        Some((other, place))
    })
}

/// A workload that the manifest holds at its older version, and that writes there to what this one is to write to, with the place. It
/// may have no container just now.
pub(crate) fn held_back_writer(draft: &Draft<'_>, subject: Subject<'_>) -> Option<(WorkloadName, Place)> {
    let target = draft.facts.target;
    let before = target.reached?;
    let is_begun = !draft.facts.instances.members_of(subject.name).is_empty();
    let is_job = subject.workload.job_or_template().is_some();
    if is_begun || is_job || writes_nothing(subject.workload) || !draft.facts.is_desired(subject) {
        return None;
    }
    subject.workload.containers().flat_map(places).find_map(|place| {
        let keeps = |(name, workload): &(&WorkloadName, &Workload)| {
            workload.update == Update::Never
                && *name != subject.name
                && workload.job_or_template().is_none()
                && draft
                    .facts
                    .record
                    .held
                    .get(*name)
                    .or(before.workloads.get(*name))
                    .is_some_and(|held| writes_to(held, &place))
                && !writes(target.stack, name, &place)
                && !writes(before, subject.name, &place)
        };
        let (name, _) = target.stack.workloads.iter().find(keeps)?;
        Some((name.clone(), place))
    })
}

/// Whether a workload writes to a place, as a stack has it.
fn writes(stack: &Stack, name: &WorkloadName, place: &Place) -> bool {
    stack.workloads.get(name).is_some_and(|workload| writes_to(workload, place))
}

/// Whether a container stays for as long as a person wants, although Git has another version: its rollout is paused, or the manifest
/// holds it.
pub(crate) fn is_kept(draft: &Draft<'_>, holder: &Instance) -> bool {
    let workloads = &draft.facts.target.stack.workloads;
    let workload = workloads.get_key_value(&holder.instance.workload);
    workload.is_some_and(|(name, workload)| is_not_rolled(draft, Subject { name, workload }))
}

/// Whether the older version of a workload stays for as long as a person wants.
pub(crate) fn is_not_rolled(draft: &Draft<'_>, subject: Subject<'_>) -> bool {
    subject.workload.update != Update::Rolling || draft.facts.is_rollout_paused(subject)
}

/// Whether a container of another workload has to be removed for this workload, before its successor can start: its own workload waits
/// for this one, or for data of it, or for ports and names, whose holders `port_and_name_holders` finds.
pub(crate) fn must_stop_for<'a>(
    draft: &Draft<'a>,
    holder: &Instance,
    to: &WorkloadName,
    is_unmet: impl Fn(&Dependency) -> bool,
    port_and_name_holders: impl Fn(Subject<'_>) -> Vec<&'a Instance>,
) -> bool {
    let facts = draft.facts;
    let Some((name, workload)) = facts.target.stack.workloads.get_key_value(&holder.instance.workload) else {
        return false;
    };
    let is_own = facts.observed.own.as_ref() == Some(&holder.id);
    let is_current = holder.spec == facts.spec(Subject { name, workload });
    let is_to_stay = is_own || is_current || is_kept(draft, holder) || holder.agent != *facts.target.agent;
    !is_to_stay && waits_for(draft, name, to, is_unmet, port_and_name_holders)
}

/// Whether a workload waits for another one, itself or through others: see [`must_stop_for`].
pub(crate) fn waits_for<'a>(
    draft: &Draft<'a>,
    name: &'a WorkloadName,
    to: &WorkloadName,
    is_unmet: impl Fn(&Dependency) -> bool,
    port_and_name_holders: impl Fn(Subject<'_>) -> Vec<&'a Instance>,
) -> bool {
    waiting::waits_for(draft.facts.target.stack, name, to, |subject| {
        let unmet = subject.workload.after.iter().filter(|dependency| is_unmet(dependency));
        let givers = outdated_writers(draft, subject).into_iter().map(|(holder, _)| holder);
        let holders = port_and_name_holders(subject).into_iter().filter(|holder| !is_kept(draft, holder));
        let holders = givers.chain(holders).map(|holder| &holder.instance.workload);
        unmet.map(|dependency| &dependency.workload).chain(holders).collect()
    })
}

/// Those of the containers that write to what a workload is to write to, with the place.
fn contested<'a>(
    draft: &Draft<'a>,
    subject: Subject<'_>,
    candidates: impl Iterator<Item = &'a Instance>,
    is_meant: impl Fn(&Instance, &Place) -> bool,
) -> Vec<(&'a Instance, Place)> {
    let Subject { name, workload } = subject;
    let facts = draft.facts;
    let mut candidates = candidates.peekable();
    let members = facts.instances.members_of(name);
    if candidates.peek().is_none() || workload.job_or_template().is_some() {
        return Vec::new();
    }
    let was_there = members.is_empty() && facts.record.slots.contains_key(name);
    let reached = facts.target.reached.unwrap_or(facts.target.stack);
    let shares = |other: &Instance, place: &Place| {
        let of = &other.instance.workload;
        let held = facts.record.held.get(of);
        let had_it = !reached.workloads.contains_key(of)
            || writes(reached, of, place)
            || held.is_some_and(|held| writes_to(held, place));
        was_there && facts.record.slots.contains_key(of) && writes(reached, name, place) && had_it
    };
    let set = workload.member().map(|member| &member.of);
    let is_sibling = |orphan: &Instance| set.is_some() && member_of(facts, orphan).map(|it| &it.of) == set;
    let known: BTreeSet<Place> = members.iter().flat_map(|member| written_by(draft, member)).collect();
    let wanted: BTreeSet<Place> = workload.containers().flat_map(places).collect();
    let wanted: BTreeSet<&Place> = wanted.difference(&known).collect();
    let writes = |candidate: &'a Instance| {
        let is_contested =
            |place: &Place| wanted.contains(place) && !shares(candidate, place) && is_meant(candidate, place);
        let place = written_by(draft, candidate).into_iter().find(is_contested)?;
        Some((candidate, place))
    };
    candidates.filter(|candidate| !is_sibling(candidate)).filter_map(writes).collect()
}

/// Whether a workload of the stack before gives up data that a workload of another application is to write to: that one starts when the
/// container that gives them up has ended. One that has written there together with it, by `shared`, has the data already and waits for
/// nobody.
pub fn hands_over(before: &Stack, now: &Stack, other: &Stack, shared: &BTreeSet<SharedPlace>) -> bool {
    let workloads = before.workloads.iter().filter(|(_, workload)| workload.job_or_template().is_none());
    let mut held = workloads
        .flat_map(|(name, workload)| workload.containers().flat_map(places).map(move |place| (name, place)));
    let is_service = |workload: &Workload| workload.job_or_template().is_none();
    // The service itself, or on a folder of the host under another name. A Job takes nothing, as it ends by itself.
    let goes_on = |name: &WorkloadName, place: &Place| {
        let is_new = |other: &WorkloadName| !place.is_volume() && !before.workloads.contains_key(other);
        let is_it = |other: &WorkloadName| other == name || is_new(other);
        let mut workloads = now.workloads.iter();
        workloads.any(|(other, workload)| is_it(other) && is_service(workload) && writes_to(workload, place))
    };
    let has = |name: &WorkloadName, place: &Place, taker: &WorkloadName| {
        Sharing { known: shared, place, own: name, with: &other.app, other: taker }.is_known()
    };
    let takes = |name: &WorkloadName, place: &Place| {
        let mut takers = other.workloads.iter();
        takers.any(|(taker, workload)| {
            is_service(workload) && writes_to(workload, place) && !has(name, place, taker)
        })
    };
    held.any(|(name, place)| !goes_on(name, &place) && takes(name, &place))
}

/// Why a workload does not start while this container, which stays for now, writes to the place: what keeps the container.
pub(crate) fn reason_to_wait(
    draft: &Draft<'_>,
    name: &WorkloadName,
    writer: &Instance,
    place: &Place,
) -> Wait {
    if !draft.missing_images.is_empty() {
        return Wait::images(name, &draft.missing_image_names());
    }
    let workload = &writer.instance.workload;
    let ends_by_itself = |wait: &Wait| wait.severity() == WaitSeverity::Progress && wait.concerns(workload);
    if draft.plan.waits.iter().any(ends_by_itself) {
        return Wait::dependency(name, workload, &format!("it still writes to {place}"));
    }
    Wait::data_in_use(name, place, &writer.name)
}

/// Whether a workload of Git waits for this container to end, `needs_place` says for its ports or name, or for data.
pub(crate) fn is_in_the_way(
    draft: &Draft<'_>,
    orphan: &Instance,
    needs_place: impl Fn(Subject<'_>) -> bool,
) -> bool {
    let waits = |subject: Subject<'_>| {
        needs_place(subject)
            || orphaned_writers(draft, subject).iter().any(|(other, _)| other.id == orphan.id)
    };
    draft.facts.target.stack.subjects().any(waits)
}

/// The places that a container of ours and the other containers of its pod may write to.
pub(crate) fn written_by(draft: &Draft<'_>, instance: &Instance) -> Vec<Place> {
    let parts = draft.facts.observed.parts_of(&instance.id);
    parts.into_iter().chain([instance]).flat_map(|part| places(&part.config)).collect()
}
