//! Removing impostors, and instances of workloads that the stack does not have.

use driftless_model::{Instance, Subject};

use crate::{
    cause::Cause,
    decide::{preconditions, prune, stateful_order, teardown, writers},
    draft::{Draft, heal::Difference},
    facts::{
        Facts, cron, forgotten_runs::forgotten_run, hooks::was_hook, namespaces,
        ownership::is_prune_protected,
    },
    wait::Wait,
};

/// Removes impostors and runs that are no longer kept at once, and other orphans once all images of the stack are here.
pub(crate) fn remove_orphans(draft: &mut Draft<'_>) {
    for (impostor, difference) in &draft.facts.instances.impostors {
        let difference =
            Difference::container(&impostor.name, &difference.field, &difference.want, &difference.found)
                .of(&impostor.instance.workload)
                .since(impostor.created);
        if let Some(cause) = draft.heal(difference) {
            draft.remove(impostor, &cause, &[]);
        }
    }
    remove_orphaned_parts(draft);
    // The hold by `maxPrunePercent` is reported once all images are here.
    let lacks_images = !draft.missing_images.is_empty();
    let is_held = lacks_images || prune::is_held(draft) || draft.facts.is_held_by_hooks;
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
}

/// Whether a container was a run of a CronJob or hook, which is no part of Git.
fn was_run(facts: &Facts<'_>, instance: &Instance) -> bool {
    was_hook(instance) || cron::was_run(facts.target.stack, instance)
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
