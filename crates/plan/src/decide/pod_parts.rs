//! The next steps for the parts of a pod.

use std::collections::BTreeMap;

use driftless_model::{
    Completion, ContainerId, DownwardValues, Instance, Part, PartOf, Peer, RestartPolicy, Role, State,
    Subject, Workload, WorkloadName,
};

use crate::{
    action::{Action, ContainerRef, Creation},
    cause::Cause,
    decide::{fs_drift, images, job_retry, repair},
    draft::{Draft, heal::Difference},
    facts::{
        Facts, classify,
        pods::{self, has_started, name_of, parts_of, was_told_otherwise},
        standing,
    },
    fields::diff::FieldDifference,
    wait::Wait,
};

/// Starts, repairs and replaces the parts of one instance that stays for now.
pub(crate) fn run_parts(draft: &mut Draft<'_>, subject: Subject<'_>, pod: &Instance) {
    let workload = subject.workload;
    let is_leaving = draft.stopped.contains_key(&pod.id) || draft.removed.contains_key(&pod.id);
    if workload.parts.is_empty() || !pod.is_running() || is_leaving || draft.facts.spec(subject) != pod.spec {
        return;
    }
    let parts = sort(draft, subject, pod);
    if is_over(draft, workload, &parts) {
        draft.stop(pod, &Cause::Over, vec![]);
        return;
    }
    // The pod has its place; that of its parts is in it.
    let room = std::mem::replace(&mut draft.starts_left, usize::MAX);
    let is_app = |it: &&Part| it.role == Role::App;
    let has_begun = workload.parts.iter().filter(is_app).any(|it| parts.contains_key(it.name.as_str()));
    let facts = draft.facts;
    // A part that has ended in a Job is not run again.
    let is_unprepared = |found: &Instance| {
        let is_replaced = has_begun && pods::has_not_succeeded(facts.record, found);
        workload.completion == Completion::Never
            && (is_replaced || pods::is_unprepared(facts.record, pod, found))
    };
    let mut initial = workload.parts.iter().filter(|it| it.role == Role::Init);
    let is_renewed = initial.any(|it| parts.get(it.name.as_str()).is_some_and(|found| is_unprepared(found)));
    let (mut is_its_turn, mut is_prepared) = (true, true);
    for (index, part) in workload.parts.iter().enumerate() {
        let found = parts.get(part.name.as_str()).copied();
        match (part.role, found) {
            (Role::Init, Some(found)) if is_unprepared(found) => {
                let mut later = workload.parts.iter().skip(index + 1);
                if !is_its_turn {
                    halt(draft, pod, found);
                } else if !later.any(|it| parts.get(it.name.as_str()).is_some_and(|it| has_process(it))) {
                    prepare_again(draft, subject, pod, part, found);
                }
                (is_its_turn, is_prepared) = (false, false);
            }
            // It waits for an init container that has to run again.
            (_, Some(found)) if !is_prepared => halt(draft, pod, found),
            (Role::Init, _) if has_begun => {}
            (Role::Init, Some(found)) if is_done(draft.facts, workload, part, found) => {}
            (role, Some(found)) => {
                look_after(draft, subject, pod, part, found);
                is_its_turn &= match role {
                    Role::Init => false,
                    Role::Sidecar => (has_begun && !is_renewed) || has_started(part, found),
                    Role::App => true,
                };
            }
            (role, None) if is_its_turn => {
                make(draft, subject, pod, part, Occasion::of(has_begun));
                is_its_turn = role == Role::App || (has_begun && !is_renewed);
            }
            (_, None) => {}
        }
    }
    draft.starts_left = room;
}

/// Stops a part whose pod has new namespaces, for which an init container has not run yet.
fn halt(draft: &mut Draft<'_>, pod: &Instance, found: &Instance) {
    if has_process(found) {
        draft.stop(found, &Cause::DependencyRestarted { on: pod.name.clone() }, vec![]);
    }
}

fn has_process(found: &Instance) -> bool {
    matches!(found.state, State::Running { .. } | State::Restarting { .. })
}

/// Runs an init container for the new namespaces of its pod.
fn prepare_again(draft: &mut Draft<'_>, subject: Subject<'_>, pod: &Instance, part: &Part, found: &Instance) {
    look_after(draft, subject, pod, part, found);
    let is_completed = draft.facts.is_completed(&subject.workload.of_part(part), found);
    if is_completed && !draft.removed.contains_key(&found.id) {
        let cause = Cause::DependencyRestarted { on: pod.name.clone() };
        repair::run_again(draft, subject.name, found, cause);
    }
}

/// The parts by name, one for each. What else claims to be a part of this pod is removed.
fn sort<'a>(draft: &mut Draft<'a>, subject: Subject<'_>, pod: &Instance) -> BTreeMap<&'a str, &'a Instance> {
    let Subject { name, workload } = subject;
    let observed = draft.facts.observed;
    let mut claimants = parts_of(observed, &pod.id);
    claimants.retain(|it| it.agent == *draft.facts.target.agent && !draft.removed.contains_key(&it.id));
    claimants.sort_by_key(|it| (!draft.facts.record.own_containers.contains(&it.id), it.created, &it.id));
    let mut parts: BTreeMap<&str, &Instance> = BTreeMap::new();
    for claimant in claimants {
        let Some(own) = name_of(claimant) else { continue };
        if claimant.state == State::Dead {
            draft.remove(claimant, &Cause::Exited, &[]);
            continue;
        }
        let is_known = draft.facts.record.own_containers.contains(&claimant.id);
        let (want, found) = match workload.part(own) {
            None => ("no such container in the pod".to_owned(), "present".to_owned()),
            Some(_) if parts.contains_key(own) => {
                (format!("one container `{own}`"), "a second one".to_owned())
            }
            Some(part) if !is_known => {
                let one = workload.of_part(part);
                let different = classify::difference(draft.facts.target, observed, &one, claimant);
                let Some(FieldDifference { field, want, found }) = different else {
                    parts.insert(own, claimant);
                    continue;
                };
                (format!("{field}: {want}"), found)
            }
            Some(_) => {
                parts.insert(own, claimant);
                continue;
            }
        };
        let difference =
            Difference::container(&claimant.name, "pod", want, found).of(name).since(claimant.created);
        if let Some(cause) = draft.heal(difference) {
            draft.remove(claimant, &cause, &[]);
        }
    }
    parts
}

/// Whether a pod has done its work, or failed for good.
fn is_over(draft: &Draft<'_>, workload: &Workload, parts: &BTreeMap<&str, &Instance>) -> bool {
    if workload.completion == Completion::Never {
        return false;
    }
    // The record of its Job says when such a pod has failed for good.
    let is_retried = workload.retries_parts();
    let found = |part: &Part| parts.get(part.name.as_str()).copied();
    let has_failed = |part: &Part| {
        !is_retried
            && found(part).is_some_and(|it| has_failed_for_good(draft.facts, &workload.of_part(part), it))
    };
    let is_done = |part: &Part| found(part).is_some_and(|it| is_done(draft.facts, workload, part, it));
    let of_role = |role: Role| workload.parts.iter().filter(move |it| it.role == role);
    if of_role(Role::Init).any(has_failed) {
        return true;
    }
    let is_tried_again = is_retried || !matches!(workload.container.restart, RestartPolicy::No);
    let mut apps = of_role(Role::App);
    if is_tried_again {
        of_role(Role::App).any(has_failed) || apps.all(is_done)
    } else {
        apps.all(|it| is_done(it) || has_failed(it))
    }
}

/// Whether a part, as a workload of its own, has failed and its restart policy forbids another start.
fn has_failed_for_good(facts: &Facts<'_>, part: &Workload, found: &Instance) -> bool {
    standing::failure(facts.record, facts.observed, part, found).is_some()
}

/// Whether it ended well, by itself, and that is what it is for.
fn is_done(facts: &Facts<'_>, workload: &Workload, part: &Part, found: &Instance) -> bool {
    facts.is_completed(&workload.of_part(part), found)
}

/// Sees that a part runs, under its name and within its limits.
fn look_after(draft: &mut Draft<'_>, subject: Subject<'_>, pod: &Instance, part: &Part, found: &Instance) {
    let Subject { name, workload } = subject;
    let one = workload.of_part(part);
    let of_part = Subject { name, workload: &one };
    let mut spoilt = repair::beyond_repair(draft, of_part, found);
    if was_told_otherwise(pod, found) {
        spoilt = spoilt.or_else(|| Some(Cause::DependencyRestarted { on: pod.name.clone() }));
    }
    if part.role != Role::Init {
        spoilt = spoilt.or_else(|| fs_drift::revert(draft, name, found));
    }
    let has_image = draft.facts.has_image(&one, &draft.facts.image(&one));
    if let Some(cause) = spoilt.filter(|_| has_image) {
        let removed = draft.remove(found, &cause, &[]);
        make(draft, subject, pod, part, Occasion::Instead { cause, removed });
        return;
    }
    fs_drift::remark(draft, found);
    let wanted = part_name(draft, subject, found.instance.slot, part);
    repair::rename(draft, name, wanted, found);
    repair::limit(draft, of_part, found);
    if workload.retries_parts() && has_failed_for_good(draft.facts, &one, found) {
        let Some(cause) = job_retry::due(draft, subject, found) else { return };
        // The engine notes no time of a start that failed. Another container counts as another try.
        if standing::cannot_execute(found) && has_image {
            let removed = draft.remove(found, &cause, &[]);
            make(draft, subject, pod, part, Occasion::Instead { cause, removed });
        } else {
            draft.start(found, cause, vec![]);
        }
        return;
    }
    repair::revive(draft, of_part, found, vec![]);
}

/// Why a part is made.
enum Occasion {
    /// Its pod is still being made.
    Beginning,
    /// It was there.
    Lost,
    /// Another is removed for it.
    Instead { cause: Cause, removed: usize },
}

impl Occasion {
    fn of(has_begun: bool) -> Self {
        if has_begun { Self::Lost } else { Self::Beginning }
    }
}

/// The name of a part's container in Docker.
fn part_name(draft: &Draft<'_>, subject: Subject<'_>, slot: u32, part: &Part) -> String {
    let name = subject.name;
    format!("{}-{}", draft.facts.container_name(draft.facts.stack_of(subject), name, slot), part.name)
}

/// The names of the containers of an instance's parts in Docker.
pub(super) fn part_names(draft: &Draft<'_>, subject: Subject<'_>, slot: u32) -> Vec<String> {
    subject.workload.parts.iter().map(|part| part_name(draft, subject, slot, part)).collect()
}

/// Creates and starts a part.
fn make(draft: &mut Draft<'_>, subject: Subject<'_>, pod: &Instance, part: &Part, occasion: Occasion) {
    let Subject { name, workload } = subject;
    let slot = pod.instance.slot;
    let object = part_name(draft, subject, slot, part);
    if draft.is_being_removed(&object) {
        return;
    }
    let one = workload.of_part(part);
    images::obtain(draft, Subject { name, workload: &one });
    let image = draft.facts.image(&one);
    let mut after: Vec<usize> = draft.pull_of(&one, &image).into_iter().collect();
    if after.is_empty() && !draft.facts.has_image(&one, &image) {
        return;
    }
    let Some(steps) = draft.claim_name(name, &object) else { return };
    after.extend(steps);
    let mut inherit = BTreeMap::new();
    for (target, place) in &part.volumes {
        let Some(volume) = pod.empty_volumes.get(place) else {
            draft.wait(Wait::dependency(name, name, &format!("its volume at {place} is missing")));
            return;
        };
        inherit.insert(target.clone(), volume.clone());
    }
    let cause = match occasion {
        Occasion::Instead { cause, removed } => {
            after.push(removed);
            Some(cause)
        }
        Occasion::Lost if draft.facts.is_at_rest(name) => {
            draft.heal(Difference::container(&object, "state", "running", "missing").of(name))
        }
        // A pod that is still being made is no drift.
        Occasion::Beginning | Occasion::Lost => Some(Cause::Missing),
    };
    let Some(cause) = cause else { return };
    let stack = draft.facts.stack_of(subject);
    let mut instance = pod.instance.clone();
    instance.workload = name.part(&part.name);
    let creation = Creation {
        app: stack.app.clone(),
        agent: draft.facts.target.agent.clone(),
        format: stack.format,
        project: stack.project.clone(),
        instance: instance.clone(),
        name: object.clone(),
        container: part.container.clone(),
        image: (image != part.container.image).then_some(image),
        made_image: draft.facts.made_image(&one),
        signature: draft.facts.required_signature(&one),
        spec: pod.spec.clone(),
        inherit,
        peers: peers(subject, pod, part),
        part: Some(PartOf {
            pod: pod.id.clone(),
            name: part.name.clone(),
            role: part.role,
            downward: DownwardValues::new(),
        }),
        manifests: stack.manifests.clone(),
        depends_on: Vec::new(),
    };
    let container = ContainerRef::Name(object);
    let created = draft.push(Action::CreateInstance(Box::new(creation)), cause.clone(), after);
    let start = Action::StartInstance { container: container.clone() };
    let started = draft.push(start, cause.clone(), vec![created]);
    if !part.container.host.post_start.is_empty() {
        draft.push(Action::RunHooks { container, instance }, cause, vec![started]);
    }
}

/// The containers that a part shares with: its pod. Releases that did not rename the parts of a run have recorded them
/// with the name of the CronJob or hook.
fn peers(subject: Subject<'_>, pod: &Instance, part: &Part) -> BTreeMap<Peer, ContainerId> {
    let job = subject.workload.job();
    let template = job.and_then(|job| job.cron.as_ref().or(job.hook.as_ref().map(|hook| &hook.of)));
    let is_pod = |name: &WorkloadName| name == subject.name || Some(name) == template;
    let own = part.container.peers().filter(|peer| matches!(peer, Peer::Workload(name) if is_pod(name)));
    own.map(|peer| (peer.clone(), pod.id.clone())).collect()
}
