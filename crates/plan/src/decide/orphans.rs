//! Removing impostors, and instances of workloads that the stack does not have.

use driftless_model::{Instance, State, Subject};

use crate::{
    cause::Cause,
    decide::{
        moved_folder, other_writers, preconditions, prune, rollout, secrets, stateful_order, teardown,
        writers,
    },
    draft::{Draft, heal::Difference},
    facts::{
        Facts, cron,
        forgotten_runs::forgotten_run,
        hooks::was_hook,
        namespaces,
        ownership::is_prune_protected,
        standing::{is_spent, is_up},
    },
    wait::Wait,
};

/// Removes impostors and runs that are no longer kept at once, and other orphans once all images of the stack are here.
pub(crate) fn remove_orphans(draft: &mut Draft<'_>) {
    for (impostor, difference) in &draft.facts.instances.impostors {
        if moved_folder::holds_back(draft.facts, impostor) {
            continue;
        }
        let difference =
            Difference::container(&impostor.name, &difference.field, &difference.want, &difference.found)
                .of(&impostor.instance.workload)
                .since(impostor.created);
        if let Some(cause) = draft.heal(difference) {
            draft.remove(impostor, &cause, &[]);
        }
    }
    remove_orphaned_parts(draft);
    let is_held = are_held(draft);
    let pulls: Vec<usize> = draft.pulls.values().copied().collect();
    for orphan in &draft.facts.instances.orphans {
        let was_run = was_run(draft.facts, orphan);
        if is_held && !was_run {
            continue;
        }
        if let Some(run) = forgotten_run(draft.facts, orphan) {
            draft.wait(Wait::forgotten_run(&orphan.name, run.of));
            if let Some(deadline) = run.deadline {
                draft.look_again(deadline);
            }
            continue;
        }
        if is_prune_protected(&orphan.config.labels) {
            draft.wait(Wait::prune_protected("container", &orphan.name));
            continue;
        }
        if moved_folder::holds_back(draft.facts, orphan) {
            continue;
        }
        // A desired container uses its namespaces. It is removed when that container has another one, unless the one with these
        // namespaces waits for it.
        let needs_place = |subject: Subject<'_>| preconditions::needs_place_of(draft, subject, orphan);
        if namespaces::is_needed(draft.facts, orphan) && !writers::is_in_the_way(draft, orphan, needs_place) {
            continue;
        }
        if let Some(wait) = stateful_order::stays(draft, orphan) {
            draft.wait(wait);
            continue;
        }
        if let Some(wait) = teardown::reason_to_wait(draft, orphan) {
            draft.wait(wait);
            continue;
        }
        if draft.facts.observed.own.as_ref() == Some(&orphan.id) {
            draft.wait(Wait::own(&orphan.name, None, "Git does not have it any more"));
            continue;
        }
        let cause = if was_run {
            Some(Cause::Finished { reason: "no longer kept".to_owned() })
        } else if draft.facts.is_at_rest(&orphan.instance.workload) {
            draft.heal(
                Difference::container(&orphan.name, "state", "no such container", "present")
                    .since(orphan.created),
            )
        } else {
            Some(Cause::NotInGit)
        };
        // The next run may write to the same volumes, so the end of this one waits for no image.
        let after: &[usize] = if was_run { &[] } else { &pulls };
        if let Some(cause) = cause {
            draft.remove(orphan, &cause, after);
        }
    }
    if is_held {
        keep_held(draft);
    }
}

/// Whether the commit is held, and with it everything that the stack does not have any more stays.
pub(crate) fn are_held(draft: &mut Draft<'_>) -> bool {
    // The hold by `maxPrunePercent` is reported once all images are here.
    !draft.missing_images.is_empty() || prune::is_held(draft) || draft.facts.is_held_by_hooks
}

/// Sees that services run which Git does not have any more and which stay until the commit may remove them, by the definition that they
/// had: a restart of the host does not end what the commit has not replaced yet. Jobs end by themselves. One whose data another application
/// has got is left as it is.
fn keep_held(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    let is_service = |orphan: &Instance| {
        facts.target.definition(orphan).is_some_and(|workload| workload.job_or_template().is_none())
    };
    let is_meant = |orphan: &&Instance| {
        facts.observed.own.as_ref() != Some(&orphan.id)
            && !was_run(facts, orphan)
            && is_service(orphan)
            && !is_spent(facts, orphan)
    };
    let mut held: Vec<&Instance> = Vec::new();
    for orphan in facts.instances.orphans.iter().copied().filter(is_meant) {
        match other_writers::reason_to_stay_down(draft, orphan) {
            Some(wait) if matches!(orphan.state, State::Exited { .. }) => draft.wait(wait),
            Some(_) => {}
            None => held.push(orphan),
        }
    }
    // A copy of a container has its labels, and must not run together with it.
    held.sort_by_key(|orphan| (&orphan.instance, !is_up(orphan), orphan.created));
    held.dedup_by(|later, first| later.instance == first.instance);
    for group in held.chunk_by(|one, other| one.instance.workload == other.instance.workload) {
        let first = group.first().and_then(|orphan| Some((orphan, facts.target.definition(orphan)?)));
        let Some((orphan, workload)) = first else { continue };
        let subject = Subject { name: &orphan.instance.workload, workload };
        if let Some(wait) = secrets::reason_to_wait(facts, subject) {
            if !group.iter().all(|orphan| orphan.is_running()) {
                secrets::wait_for_secret(draft, wait);
            }
            continue;
        }
        let down = group.iter().filter(|orphan| matches!(orphan.state, State::Exited { .. }));
        draft.returning.extend(down.map(|orphan| orphan.id.clone()));
        rollout::allow_starts(draft, subject, group);
        rollout::keep(draft, group);
    }
}

/// Whether a container was a run of a CronJob or hook, which is no part of Git.
fn was_run(facts: &Facts<'_>, instance: &Instance) -> bool {
    was_hook(instance) || cron::known_cron_job_of(facts.target.stack, facts.record, instance).is_some()
}

/// Removes parts of a pod that is gone, because the shared namespaces went with it.
fn remove_orphaned_parts(draft: &mut Draft<'_>) {
    let observed = draft.facts.observed;
    for part in observed.parts.values().filter(|it| it.agent == *draft.facts.target.agent) {
        let Some(of) = part.part.as_ref().filter(|it| !observed.instances.contains_key(&it.pod)) else {
            continue;
        };
        let whole = part.instance.workload.whole();
        let is_wanted = draft.facts.target.stack.workloads.contains_key(&whole);
        let cause = if draft.facts.is_at_rest(&whole) {
            draft.heal(
                Difference::container(&part.name, "pod", "in its pod", format!("{} is gone", of.pod.short()))
                    .of(&whole),
            )
        } else if is_wanted {
            Some(Cause::DependencyReplaced { on: whole.to_string() })
        } else {
            Some(Cause::NotInGit)
        };
        if let Some(cause) = cause {
            draft.remove(part, &cause, &[]);
        }
    }
}
