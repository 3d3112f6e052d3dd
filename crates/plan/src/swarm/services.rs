//! Services of a Swarm: created and updated in the order of their dependencies, healed, removed, and waited for.

use std::collections::BTreeMap;

use driftless_model::{
    ContentId, ObservedService, ObservedSwarm, ResolvedImage, Subject, SwarmTask, WorkloadName, label,
};

use super::{
    action::SwarmAction,
    compare::{differences, in_form_of, network_names},
    dependencies::is_ready_for,
    files::{FileSteps, has_external_files, name_as_present},
    images::{could_not_pull, pull_secrets, usable_image},
    job_tasks::failure,
    jobs,
    leaving::Leaving,
    networks::NetworkSteps,
    ownership::{has_lost_labels, is_own},
    ports, progress,
    spec::{WantedService, wanted},
    stopping::stop,
    tasks::{self, TaskCount, digest, is_counted, is_running, paused_nodes, waits_for_lost_nodes},
    volumes,
    writers::Writers,
};
use crate::{
    action::Action,
    cause::Cause,
    decide::waves,
    draft::{Draft, heal::Difference},
    facts::Facts,
    wait::{Wait, WaitObject, WaitReason},
};

/// Creates, updates and removes services.
pub(super) fn provide<'a>(
    draft: &mut Draft<'a>,
    swarm: &'a ObservedSwarm,
    networks: &NetworkSteps,
    files: &FileSteps,
) {
    let stack = draft.facts.target.stack;
    let leaving = Leaving::of(draft.facts, swarm);
    let writers = Writers::of(draft.facts, swarm, networks, leaving.removed());
    let mut resolved = BTreeMap::new();
    for subject in stack.subjects().filter(|it| !it.workload.is_template()) {
        let is_job = subject.workload.job().is_some();
        let former = match jobs::run_job(draft, swarm, subject) {
            jobs::Need::Nothing if is_job => continue,
            jobs::Need::Nothing | jobs::Need::Service => None,
            jobs::Need::Another(found) => Some(found),
        };
        let Some(image) = image(draft, swarm, subject, &mut resolved) else { continue };
        if !has_external_files(draft, swarm, subject.name) {
            continue;
        }
        let Some(mut after) = networks.of(draft, subject.name) else { continue };
        let own_files = stack.swarm.get(subject.name).map_or(&[][..], |service| &service.files);
        if files.adopts_one_of(own_files) {
            continue;
        }
        let mut wanted = wanted(draft.facts.target, subject, &image);
        name_as_present(&mut wanted.spec, swarm);
        after.extend(files.of(own_files));
        if is_job {
            jobs::create(draft, swarm, subject, former, wanted, after);
        } else {
            provide_one(draft, &writers, subject, wanted, after);
        }
    }
    leaving.remove(draft, &writers);
}

/// The image with its digest. `None`: it has to be asked for first.
fn image(
    draft: &mut Draft<'_>,
    swarm: &ObservedSwarm,
    subject: Subject<'_>,
    asked: &mut BTreeMap<String, usize>,
) -> Option<ResolvedImage> {
    let facts = draft.facts;
    if let Some(known) = usable_image(facts, swarm, subject) {
        return Some(known);
    }
    let (name, of_stack) = (subject.name, &subject.workload.container.image);
    let reference = facts.target.pinned_image(subject.workload).unwrap_or(of_stack);
    if let Some(failure) = facts.record.failures.get(reference).filter(|failure| failure.next > facts.now) {
        draft.wait(Wait::image_pull_back_off(name, reference, &failure.error, failure.count, failure.next));
        draft.look_again(failure.next);
        return None;
    }
    if !asked.contains_key(reference) {
        let secrets = pull_secrets(facts.target.stack, of_stack);
        let action = SwarmAction::ResolveImage { image: reference.clone(), secrets };
        let step = draft.push(Action::Swarm(Box::new(action)), Cause::Missing, Vec::new());
        asked.insert(reference.clone(), step);
    }
    None
}

fn provide_one(
    draft: &mut Draft<'_>,
    writers: &Writers<'_>,
    subject: Subject<'_>,
    wanted: WantedService,
    after: Vec<usize>,
) {
    let (facts, swarm) = (draft.facts, writers.swarm);
    let name = subject.name;
    let Some(found) = swarm.services.get(&wanted.name) else {
        create(draft, writers, subject, wanted, after);
        return;
    };
    if !is_own(draft, name, found) {
        return;
    }
    // A Swarm changes the mode of no service. The next round creates it.
    if writers.changes_mode(subject, found) {
        if volumes::are_as_before(draft, swarm, subject) {
            if is_turn(draft, swarm, subject) && is_free(draft, writers, subject) {
                jobs::end(draft, swarm, name, found, &Cause::SpecChanged);
            } else if writers.must_stop_first(draft, subject) {
                stop(draft, found, &Cause::SpecChanged);
            }
        }
        return;
    }
    let written = facts.record.swarm.as_ref().and_then(|record| record.services.get(&wanted.name));
    // A user has asked for another try of the update that the Swarm had paused.
    let is_paused = found.label(label::SPEC) == Some(wanted.hash.as_str())
        && found.update_state == "paused"
        && !facts.is_settled()
        && written.is_none()
        // All that it was about may run: the Swarm also pauses for a task of a node that was lost.
        && !TaskCount::of(swarm, Some(subject.workload), found).is_reached();
    let record = facts.record.swarm.as_ref();
    let is_restarted = record.is_some_and(|record| record.restarts.contains_key(name));
    let update = |draft: &mut Draft<'_>, cause: Cause| {
        let WantedService { name, hash: _, spec } = wanted.clone();
        let mut spec = in_form_of(&found.spec, &spec, &network_names(facts.observed));
        // `docker service update --force` is a restart, and no drift.
        // The Swarm goes on with a paused update if it is another one.
        let forced = found.forced_updates().saturating_add(u64::from(is_paused || is_restarted));
        if let (1.., Some(task)) = (forced, spec.get_mut("TaskTemplate").and_then(|it| it.as_object_mut())) {
            task.insert("ForceUpdate".to_owned(), forced.into());
        }
        let (id, version) = (found.id.clone(), found.version);
        let (image, secrets) = login(subject);
        let action = SwarmAction::UpdateService { name, id, version, image, secrets, spec };
        draft.push(Action::Swarm(Box::new(action)), cause, after.clone());
    };
    if let Some(words) = failed_update(facts, swarm, subject, &wanted, found) {
        draft.wait(Wait::new(
            WaitObject::Workload(name.clone()),
            WaitReason::UpdateFailed,
            format!("was not updated by the Swarm: {words}"),
        ));
        return;
    }
    if is_paused {
        update(draft, Cause::SpecChanged);
        return;
    }
    if !is_changed_by_others(facts, name, found, &wanted) {
        if let Some(failed) = facts.failed_commit() {
            draft.wait(Wait::commit_failed(name, failed));
        } else if volumes::are_as_before(draft, swarm, subject) {
            if is_turn(draft, swarm, subject) && is_free(draft, writers, subject) {
                update(draft, Cause::SpecChanged);
            } else if writers.must_stop_first(draft, subject) {
                stop(draft, found, &Cause::SpecChanged);
            }
        }
        return;
    }
    let is_as_written = written.is_some_and(|it| it.returned == digest(&found.spec));
    if !is_as_written {
        let fields =
            differences(&wanted.spec, &found.spec, &network_names(facts.observed), facts.target.mask);
        let mut cause = None;
        for field in fields {
            let difference = Difference::service(&wanted.name, field.field, field.want, field.found).of(name);
            cause = cause.or(draft.heal(difference));
        }
        if let Some(cause) = cause {
            if is_free(draft, writers, subject) {
                update(draft, cause);
            }
            return;
        }
    }
    if is_restarted {
        update(draft, Cause::Restarted);
        return;
    }
    await_tasks(draft, swarm, subject, found);
}

/// Whether nobody but others can have made a service differ from Git, which is drift.
fn is_changed_by_others(
    facts: &Facts<'_>,
    name: &WorkloadName,
    found: &ObservedService,
    wanted: &WantedService,
) -> bool {
    let written = facts.record.swarm.as_ref().and_then(|record| record.services.get(&wanted.name));
    let is_of_git = found.label(label::SPEC) == Some(wanted.hash.as_str());
    // The agent wrote a specification, and somebody brought it back to an older one, or took all labels away.
    let was_written =
        || written.is_some_and(|written| written.wanted == wanted.hash) || has_lost_labels(found);
    is_of_git || (facts.is_at_rest(name) && was_written())
}

fn create(
    draft: &mut Draft<'_>,
    writers: &Writers<'_>,
    subject: Subject<'_>,
    wanted: WantedService,
    after: Vec<usize>,
) {
    let mut cause = Cause::Missing;
    if draft.facts.is_at_rest(subject.name) {
        let difference = Difference::service(&wanted.name, "exists", "present", "missing");
        match draft.heal(difference.of(subject.name)) {
            Some(healed) => cause = healed,
            None => return,
        }
    }
    let swarm = writers.swarm;
    if volumes::are_as_before(draft, swarm, subject)
        && is_turn(draft, swarm, subject)
        && is_free(draft, writers, subject)
    {
        let (image, secrets) = login(subject);
        let action = SwarmAction::CreateService { name: wanted.name, image, secrets, spec: wanted.spec };
        draft.push(Action::Swarm(Box::new(action)), cause, after);
    }
}

/// The image of a service, and the contents with the login to its registry.
fn login(Subject { name: _, workload }: Subject<'_>) -> (String, Vec<ContentId>) {
    (workload.container.image.clone(), workload.pull_secrets.iter().cloned().collect())
}

/// Whether no other service has data or ports of this one. Says which one has.
fn is_free(draft: &mut Draft<'_>, writers: &Writers<'_>, subject: Subject<'_>) -> bool {
    writers.is_free(draft, subject) && ports::are_free(draft, writers, subject)
}

/// Whether the turn of a service has come in the order of hooks, waves and dependencies. Says what it waits for.
fn is_turn(draft: &mut Draft<'_>, swarm: &ObservedSwarm, subject: Subject<'_>) -> bool {
    if let Some(wait) = waves::reason_to_wait(draft, subject) {
        draft.wait(wait);
        return false;
    }
    is_ready_for(draft, swarm, subject)
}

/// The words of the Swarm about an update to the wanted specification that it paused or rolled back.
fn failed_update(
    facts: &Facts<'_>,
    swarm: &ObservedSwarm,
    subject: Subject<'_>,
    wanted: &WantedService,
    found: &ObservedService,
) -> Option<String> {
    let written = facts.record.swarm.as_ref().and_then(|record| record.services.get(&wanted.name));
    if let Some((hash, words)) = written.and_then(|it| it.failed.as_ref())
        && *hash == wanted.hash
    {
        return Some(words.clone());
    }
    let is_to_wanted = written.is_some_and(|it| it.wanted == wanted.hash);
    // `docker service rollback` is a change by hand.
    let may_have_failed = is_to_wanted && !facts.is_at_rest(subject.name);
    tasks::failed_update(swarm, found, Some(subject.workload)).filter(|_| may_have_failed)
}

/// The advice for a task whose node has not got the image and could not pull it. A service keeps the login that it was written with,
/// which may have been replaced or have expired since.
fn pull_advice(task: &SwarmTask) -> &'static str {
    if could_not_pull(task) {
        "; its node could not pull it: if the login of the registry was replaced or has expired since the service was written, \
         `driftless rollout restart` writes the new one"
    } else {
        ""
    }
}

/// Waits until the Swarm runs what the service says.
fn await_tasks(
    draft: &mut Draft<'_>,
    swarm: &ObservedSwarm,
    Subject { name, workload }: Subject<'_>,
    found: &ObservedService,
) {
    let tasks: Vec<&SwarmTask> = swarm.tasks_of(&found.id).collect();
    let mut count = TaskCount::of(swarm, Some(workload), found);
    if tasks.is_empty() && !is_counted(found, draft.facts.now) {
        // The Swarm creates the tasks of a new service a moment later.
        count.wanted = count.wanted.max(1);
    }
    let is_updating = matches!(found.update_state.as_str(), "updating" | "rollback_started")
        && !waits_for_lost_nodes(swarm, found);
    if count.is_reached() && !is_updating {
        for node in paused_nodes(swarm, found) {
            let sentence = format!(
                "keeps the older version on {node}, which is paused: it is updated there after `docker node update --availability active {node}`"
            );
            draft.wait(Wait::new(WaitObject::Workload(name.clone()), WaitReason::Held, sentence));
        }
        return;
    }
    let waiting = tasks.iter().filter(|task| !is_running(task) && !task.error.is_empty());
    let newest = waiting.max_by_key(|task| task.since);
    let why = newest.map(|task| format!("{}{}", failure(task), pull_advice(task)));
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    draft.wait(Wait::readiness(
        name,
        number(count.available),
        number(count.wanted),
        &why.unwrap_or_default(),
    ));
    // Somebody has scaled it down, and all that it asks for now runs.
    if TaskCount::of(swarm, None, found).is_reached() && !is_updating && draft.plan.leaves_changed(name) {
        draft.plan.left_down.insert(name.clone());
        return;
    }
    progress::watch(draft, Subject { name, workload });
}
