//! All workloads of an application: which definition of each one is rolled out, and what holds it back.

use driftless_model::{Instance, Port, SpecHash, State, Subject, Update, Workload, WorkloadName};

use crate::{
    decide::{
        addresses,
        canary::roll_canary,
        files, former_folder, moved_folder, own_update,
        rollout::{allow_starts, complete, keep, roll, wait_paused},
        secrets, stateful_order, waves,
        writers::new_owner,
    },
    draft::Draft,
    facts::{
        Facts,
        namespaces::in_order,
        places::{Place, places},
    },
    wait::Wait,
};

/// Plans all workloads. Impostors and orphans are removed first, because they may hold names and ports.
pub(crate) fn roll_all(draft: &mut Draft<'_>) {
    for subject in in_order(draft.facts.target.stack) {
        let Subject { name, workload: wanted } = subject;
        if wanted.job_or_template().is_some() || is_held_back(draft, subject) {
            continue;
        }
        let reached = draft.facts.target.reached.and_then(|it| it.workloads.get(name));
        let members = draft.facts.instances.members_of(name);
        if let Some(wait) = waves::reason_to_wait(draft, subject)
            && !has_begun(draft, subject, reached, members)
        {
            let back = reached.filter(|reached| goes_back(draft, subject, reached, members));
            if let Some(back) = back {
                // It goes back by the settings of the commit, and another number of instances waits for its turn.
                let back = Workload { replicas: back.replicas, ..wanted.clone() };
                roll(draft, Subject { name, workload: &back }, members);
            } else {
                draft.without_turn.insert(name.clone());
                stay(draft, subject, reached, members);
            }
            let spec = draft.facts.spec(subject);
            if back.is_none() || members.iter().all(|member| member.spec == spec) {
                draft.wait(wait);
            }
            continue;
        }
        let before = reached.filter(|it| !it.is_like(wanted));
        let spec = draft.facts.spec(subject);
        let is_change = members.iter().any(|it| it.spec != spec);
        // Until everything that the commit needs is here, what runs is kept as it was.
        let is_affected = is_change || members.is_empty() || draft.missing_images.contains(name);
        let is_held = !draft.missing_images.is_empty() && is_affected;
        let is_absent = members.is_empty() && wanted.replicas > 0 && stays_older(draft, subject, before);
        let is_unbegun = !members.iter().any(|it| it.spec == spec);
        match before {
            Some(_) | None if is_held && (is_change || (before.is_some() && is_unbegun)) => {
                stay(draft, subject, reached, members);
                wait_for_images(draft, name);
            }
            Some(before)
                if draft.facts.is_rollout_paused(subject)
                    && (is_change || is_absent)
                    && is_unbegun
                    && !has_new(draft.facts, name, &spec) =>
            {
                if let Some(kept) = kept_definition(draft, subject, Some(before), members) {
                    // The number of the commit is for what runs already.
                    let replicas = if is_absent && kept.replicas == 0 { 0 } else { wanted.replicas };
                    let scaled = Workload { replicas, ..kept.clone() };
                    keep_at(draft, Subject { name, workload: &scaled }, members);
                }
                wait_paused(draft, subject);
            }
            Some(_) | None => roll_forward(draft, subject, before, members),
        }
    }
}

/// Whether a workload without instances is kept at its older version. One that has lost all of them may be made in it, unless the commit
/// gives its data, host ports or addresses to others. One that was to have none has lost nothing, and stays without.
fn stays_older(draft: &Draft<'_>, subject: Subject<'_>, before: Option<&Workload>) -> bool {
    let Some(kept) = kept_definition(draft, subject, before, &[]) else { return false };
    if kept.replicas == 0 {
        return true;
    }
    let held: Vec<Place> = kept.containers().flat_map(places).collect();
    let has =
        |workload: &Workload, port: &Port| workload.container.ports.iter().any(|other| other.collides(port));
    let others = draft.facts.target.stack.workloads.iter().filter(|(other, _)| *other != subject.name);
    let gives_away =
        |port: &Port| !has(subject.workload, port) && others.clone().any(|(_, other)| has(other, port));
    // Others may be made in this round.
    new_owner(draft, subject.name, &held, |_| true).is_none()
        && !kept.container.ports.iter().any(gives_away)
        && !addresses::is_given_away(draft, subject, &kept.container)
}

/// Whether a rollout had instances of this specification when it was paused. One that is lost is created again.
fn has_new(facts: &Facts<'_>, name: &WorkloadName, spec: &SpecHash) -> bool {
    facts.record.rollouts.get(name).is_some_and(|sizes| sizes.paused && sizes.spec == *spec && sizes.new > 0)
}

/// One round for a workload that nothing holds back: towards its desired definition, as far as its canary and its StatefulSet allow.
fn roll_forward(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    before: Option<&Workload>,
    members: &[&Instance],
) {
    let Subject { name, workload: wanted } = subject;
    if !draft.facts.is_rollout_paused(subject)
        && let Some(current) = draft.facts.canary(subject)
    {
        roll_canary(draft, subject, before, members, current);
    } else if let Some((former, wait)) = stateful_order::former(draft, subject) {
        if let Some(kept) = kept_definition(draft, subject, Some(&former), members) {
            let (replicas, kind) = (wanted.replicas, wanted.kind.clone());
            let kept = Workload { replicas, kind, update: Update::Rolling, ..kept.clone() };
            keep_at(draft, Subject { name, workload: &kept }, members);
        }
        let spec = draft.facts.spec(subject);
        if members.is_empty() || members.iter().any(|member| member.spec != spec) {
            draft.wait(wait);
        }
        return;
    } else {
        roll(draft, subject, members);
    }
    note_begun(draft, subject, members);
}

/// Remembers the desired definition once a container of it has run with its files, if it is another one than that of the version reached
/// last. A newer commit that has to wait keeps it. A creation that is only planned, or a start that is refused, has changed nothing.
fn note_begun(draft: &mut Draft<'_>, subject: Subject<'_>, members: &[&Instance]) {
    let Subject { name, workload } = subject;
    let facts = draft.facts;
    let known = facts.record.begun.get(name);
    let reached = facts.target.reached.and_then(|reached| reached.workloads.get(name));
    let is_as_reached = reached.is_some_and(|reached| is_same_version(reached, workload));
    if facts.is_settled() || known == Some(workload) || (is_as_reached && known.is_none()) {
        return;
    }
    let spec = facts.spec(subject);
    let is_new = |member: &&Instance| {
        has_run(member) && member.spec == spec && files::has_read(draft, workload, member)
    };
    if members.iter().any(is_new) {
        draft.plan.begun.insert(name.clone(), workload.clone());
    }
}

/// Whether containers of a changed workload have been made already: it does not go back because what its turn waited for is not available
/// for a moment. The new version may have changed data that the older one would find. Nothing goes on while hooks have to come first.
fn has_begun(
    draft: &Draft<'_>,
    subject: Subject<'_>,
    before: Option<&Workload>,
    members: &[&Instance],
) -> bool {
    let spec = draft.facts.spec(subject);
    let workload = subject.workload;
    // A container that is started while it waits reads a changed secret. So where only files differ, the record says whether its turn came.
    let had_turn = || {
        let begun = draft.facts.record.begun.get(subject.name);
        begun.is_some_and(|begun| is_same_version(begun, workload))
    };
    let is_changed = before
        .is_some_and(|before| before.spec() != spec || (!before.has_same_files(workload) && had_turn()));
    let is_new = |member: &&Instance| member.spec == spec && files::has_read(draft, workload, member);
    is_changed && !draft.facts.is_held_by_hooks && members.iter().any(is_new)
}

/// Whether instances of both are the same and read the same files.
fn is_same_version(before: &Workload, workload: &Workload) -> bool {
    before.is_like(workload) && before.has_same_files(workload)
}

/// Whether a workload may return before its turn to the version that was reached last: the commit asks for it too, as a rollback does. A
/// lower wave that is not well does not hinder that. Hooks come before what serves is touched.
fn goes_back(draft: &Draft<'_>, subject: Subject<'_>, before: &Workload, members: &[&Instance]) -> bool {
    let Subject { name: _, workload } = subject;
    let serves = |member: &&Instance| member.is_available(workload.min_ready, draft.facts.now);
    is_same_version(before, workload) && !(draft.facts.is_held_by_hooks && members.iter().any(serves))
}

/// Keeps a workload at the version that runs until the commit may change it, and creates what is missing of it.
fn stay(draft: &mut Draft<'_>, subject: Subject<'_>, before: Option<&Workload>, members: &[&Instance]) {
    if let Some(kept) = kept_definition(draft, subject, before, members) {
        keep_at(draft, Subject { name: subject.name, workload: kept }, members);
    } else {
        allow_starts(draft, subject, members);
        keep(draft, members);
    }
}

/// The definition by which a workload that has to wait is kept. A commit in between, or this one in an earlier attempt, may have changed
/// it already: then it does not go back to the version that was reached last. That one counts where containers of it have run, or where no
/// other definition is known. A container that was only created has changed no data, and may never start.
fn kept_definition<'a: 'w, 'w>(
    draft: &Draft<'a>,
    subject: Subject<'w>,
    before: Option<&'w Workload>,
    members: &[&Instance],
) -> Option<&'w Workload> {
    let Subject { name, workload: wanted } = subject;
    let begun = draft.facts.record.begun.get(name);
    // An older agent took a paused rollout for the version that was reached.
    let held = draft.facts.record.held.get(name).filter(|_| draft.facts.is_rollout_paused(subject));
    let runs = |definition: &&Workload| {
        let spec = draft.facts.spec(Subject { name, workload: definition });
        members.iter().any(|member| has_run(member) && member.spec == spec)
    };
    // Of those that differ in their files alone, the one whose files have been read.
    let reads =
        |definition: &&Workload| members.iter().any(|member| files::has_read(draft, definition, member));
    let known = || [held, before, begun, Some(wanted)].into_iter().flatten();
    let running = known().find(|it| runs(it) && reads(it)).or_else(|| known().find(runs));
    let is_lost = !members.iter().any(|member| has_run(member));
    running.or_else(|| begun.filter(|_| is_lost)).or(held).or(before)
}

fn has_run(member: &Instance) -> bool {
    member.state != State::Created
}

/// One round for a workload that is kept at a definition.
fn keep_at(draft: &mut Draft<'_>, kept: Subject<'_>, members: &[&Instance]) {
    let spec = draft.facts.spec(kept);
    if members.iter().all(|member| member.spec == spec) {
        roll(draft, kept, members);
    } else {
        complete(draft, kept, members);
    }
}

/// Whether a workload is not to be touched at all: Docker Compose runs it, it lacks a secret or the folder of another application, its
/// folder is in another state directory, or it is what this agent runs in.
fn is_held_back(draft: &mut Draft<'_>, subject: Subject<'_>) -> bool {
    let Subject { name, workload: wanted } = subject;
    let members = draft.facts.instances.members_of(name);
    if draft.not_adopted.contains(name) {
        allow_starts(draft, subject, members);
        keep(draft, members);
        return true;
    }
    if secrets::hold(draft, subject, members)
        || former_folder::hold(draft, subject, members)
        || moved_folder::hold(draft, subject, members)
    {
        return true;
    }
    let Some(own) = members.iter().find(|it| draft.facts.observed.own.as_ref() == Some(&it.id)) else {
        return false;
    };
    if members.len() == wanted.replicas as usize {
        own_update::replace_agent(draft, subject, own);
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
