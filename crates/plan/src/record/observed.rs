//! After observing and before planning: which containers are the agent's own, crashes, completed work, and progress.
//!
//! Everything is counted from the observed state and never from events, which may be missed.

use std::collections::BTreeSet;

use driftless_model::{
    AppName, Completion, ContainerId, Crash, EngineKind, FollowedImage, Format, Image, Instance, InstanceId,
    Observed, PlatformImage, Preparation, Progress, PullPolicy, Readiness, Record, Role, RolloutCounts,
    SpecHash, Stack, State, Subject, Timestamp, UnknownEnd, Update, Workload, WorkloadName,
    swarm_service_name,
};

use crate::{
    backoff::{CRASH_RESET, LONGEST_PAUSE, crash_delay},
    facts::{
        self, Facts,
        canary::current_step,
        classify,
        heals::{TRIES, WINDOW},
        namespaces::is_gone,
        objects,
        ownership::{find_former_owner, is_prune_protected},
        pods, standing,
        standing::STABLE_AFTER,
    },
    record::{canary, fs_changes, health, hooks, jobs, shared_places},
    swarm::images::awaits_image,
    target::Target,
    text::DEAD,
};

/// Before planning: adds containers that prove genuine to the own containers, counts crashes, notes who is done, and measures
/// progress.
pub fn note_observed(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    health::note(record, observed);
    jobs::note_kept(record, target, observed);
    let observed = &*facts::jobs::as_desired(target.stack, target.hashes, record, observed);
    let observed = &*pods::whole_of(target, observed);
    forget_the_future(record, now);
    end_pauses_of_orphans(record, observed, now);
    let present: BTreeSet<&ContainerId> = observed.containers().map(|it| &it.id).collect();
    record.own_containers.retain(|it| present.contains(it));
    record.completed.retain(|it| present.contains(it));
    record.ends.retain(|it, _| present.contains(it));
    record.replaced.retain(|it, _| present.contains(it));
    let is_down = |id: &ContainerId| observed.container(id).is_some_and(|it| !it.is_running());
    record.stopped.retain(is_down);
    record.leaving.retain(is_down);
    // Volumes that an instance mounts now are inherited from that instance.
    let held: BTreeSet<&String> =
        observed.instances.values().flat_map(|it| it.anonymous_volumes.values()).collect();
    record.volumes_to_inherit.retain(|_, volumes| !volumes.values().all(|it| held.contains(it)));
    record.delivered.retain(|it, _| present.contains(it));
    let slots: BTreeSet<String> = observed.containers().map(|it| it.instance.to_string()).collect();
    record.pending_post_start.retain(|it| slots.contains(it));
    record.adopted.containers.retain(|it, _| present.contains(it));
    record
        .adopted
        .networks
        .retain(|name, it| observed.networks.get(name).is_some_and(|found| found.id == it.id));
    record.adopted.volumes.retain(|name, _| observed.volumes.contains_key(name));
    note_former_owners(record, target, observed);
    note_protected_volumes(record, target, observed);
    // On the way to another stack, what stands of it is no drift, not even when we turn back half way.
    record.settled = record.settled.take().filter(|it| *it == target.hashes.stack);
    record.reopened = record.reopened.take().filter(|it| it.stack == target.hashes.stack);
    canary::note(record, target, observed, now);
    let is_under_way = |name: &WorkloadName, spec: &SpecHash| {
        let workload = target.stack.workloads.get(name);
        workload.is_some_and(|workload| target.spec(Subject { name, workload }) == *spec)
    };
    record.rollouts.retain(|name, sizes| is_under_way(name, &sizes.spec));
    for instance in observed.instances.values().filter(|it| it.agent == *target.agent) {
        let Some(workload) = target.definition(instance) else { continue };
        let is_known = record.own_containers.contains(&instance.id);
        if !is_known && classify::impostor(target, observed, instance).is_none() {
            record.own_containers.insert(instance.id.clone());
        }
        if !record.own_containers.contains(&instance.id) {
            continue;
        }
        if standing::is_completed(record, observed, workload, instance)
            || standing::counts_as_success(record, target.stack, workload, instance)
        {
            record.completed.insert(instance.id.clone());
            record.crashes.remove(&instance.instance);
        } else {
            note_unknown_end(record, observed, workload, instance, now);
            count_crash(record, target.stack.format, observed, instance, now);
        }
    }
    note_parts(record, target, observed, now);
    note_prepared(record, target, observed);
    fs_changes::learn(record, target, observed);
    jobs::note(record, target, observed, now);
    hooks::note(record);
    let wanted: BTreeSet<&WorkloadName> = target.stack.workloads.keys().collect();
    // Containers that Git has dropped may have to stay, and their ends count until they are removed.
    let is_known = |it: &InstanceId| wanted.contains(&it.workload.whole()) || slots.contains(&it.to_string());
    record.crashes.retain(|it, _| is_known(it));
    let is_replaced = |id: &InstanceId, end: &UnknownEnd| {
        observed.containers().any(|it| it.instance == *id && it.spec != end.spec)
    };
    record.unknown_ends.retain(|it, end| is_known(it) && !is_replaced(it, end));
    record.progress.retain(|it, _| wanted.contains(it));
    record.paused.retain(|it| wanted.contains(it));
    record.begun.retain(|it, _| wanted.contains(it));
    record.scales.retain(|it, _| wanted.contains(it));
    record.heals.retain(|_, heal| now.since(heal.ended) < WINDOW || heal.ineffective + 1 >= TRIES);
    note_objects(record, target.stack, now);
    let instances = observed.by_workload();
    let awaiting_images = awaiting_images(record, target, observed, now);
    for subject in target.stack.subjects() {
        let members = instances.get(subject.name).map_or(&[][..], Vec::as_slice);
        measure(record, target, members, subject, awaiting_images.contains(subject.name), now);
    }
}

/// Notes the applications that have left volumes and networks to this one. A later application of such a name takes nothing back.
fn note_former_owners(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let wanted = |name: &String| target.stack.volumes.get(name).is_some_and(|volume| !volume.external);
    let volumes = observed.volumes.iter().filter(|(name, _)| wanted(name));
    let of_volumes = volumes.filter_map(|(_, found)| find_former_owner(target, observed, record, found));
    let wanted = |name: &String| target.stack.networks.get(name).is_some_and(|network| !network.external);
    let networks = observed.networks.iter().filter(|(name, _)| wanted(name));
    let of_networks = networks.filter_map(|(_, found)| find_former_owner(target, observed, record, found));
    let owners: Vec<AppName> = of_volumes.chain(of_networks).cloned().collect();
    record.former_owners.extend(owners);
}

/// Notes the volumes that Git or the target protects from removal. They stay protected when Git does not contain them any more, as
/// when the application is removed. Only Git ends the protection: a rollback goes back to volumes of before it.
fn note_protected_volumes(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let in_git = match &observed.claims.applications {
        Some(all) => all.stacks.get(&target.stack.app).map(|stack| &**stack),
        None => Some(target.stack),
    };
    let is_in_git = |name: &String| in_git.is_some_and(|stack| stack.volumes.contains_key(name));
    record.protected_volumes.retain(|name| observed.volumes.contains_key(name) && !is_in_git(name));
    let volumes = in_git.into_iter().chain([target.stack]).flat_map(|stack| &stack.volumes);
    let protected = volumes.filter(|(_, volume)| is_prune_protected(&volume.labels));
    record.protected_volumes.extend(protected.map(|(name, _)| name.clone()));
}

/// The workloads with an image that is not here or could not be pulled, built or verified, and those that depend on them. In a Swarm,
/// each node has images of its own.
fn awaiting_images<'a>(
    record: &Record,
    target: &Target<'a>,
    observed: &Observed,
    now: Timestamp,
) -> BTreeSet<&'a WorkloadName> {
    let workloads = &target.stack.workloads;
    let mut awaiting: BTreeSet<&WorkloadName> = match observed.swarm.as_deref() {
        Some(swarm) => {
            let project = &target.stack.project;
            let service = |name: &WorkloadName| swarm.services.get(&swarm_service_name(project, name));
            let lacks_image =
                |name: &&WorkloadName| service(name).is_some_and(|found| awaits_image(swarm, found, now));
            workloads.keys().filter(lacks_image).collect()
        }
        None => lacking_images(record, target, observed, now),
    };
    loop {
        let depends = |workload: &Workload| workload.after.iter().any(|it| awaiting.contains(&it.workload));
        let more = workloads.iter().filter(|(name, workload)| !awaiting.contains(name) && depends(workload));
        let more: Vec<&WorkloadName> = more.map(|(name, _)| name).collect();
        if more.is_empty() {
            return awaiting;
        }
        awaiting.extend(more);
    }
}

/// The workloads with an image that this host lacks, or that cannot be used without a pull that has failed.
fn lacking_images<'a>(
    record: &Record,
    target: &Target<'a>,
    observed: &Observed,
    now: Timestamp,
) -> BTreeSet<&'a WorkloadName> {
    // A rollback goes back to digests.
    let names = |image: PlatformImage| {
        let pinned = target.images.get(&image.name);
        let pinned = pinned.map(|name| PlatformImage { name: name.clone(), ..image.clone() });
        [Some(image), pinned].into_iter().flatten()
    };
    let is_here = |PlatformImage { name, platform }: &PlatformImage| {
        let fits = |found: &Image| {
            let platform = platform.as_ref();
            platform.is_none_or(|platform| found.is_for(platform, &observed.engine_traits))
        };
        observed.images.get(name).is_some_and(fits)
    };
    let is_lacking = |image: PlatformImage| !names(image).any(|name| is_here(&name));
    let workloads = &target.stack.workloads;
    let facts = (!record.pulls.is_empty()).then(|| Facts::new(target, observed, record, now));
    let has_failed_pull = |workload: &Workload| {
        let Some(facts) = &facts else { return false };
        let mut parts = workload.parts.iter();
        awaits_pull(facts, workload) || parts.any(|part| awaits_pull(facts, &workload.of_part(part)))
    };
    let lacks_image = |workload: &Workload| {
        let mounted = workload.mounted_images().map(|image| PlatformImage::from(image.clone()));
        workload.own_images().chain(mounted).any(is_lacking) || has_failed_pull(workload)
    };
    let lacking = workloads.iter().filter(|(_, workload)| lacks_image(workload));
    lacking.map(|(name, _)| name).collect()
}

/// Whether an image of a container could not be pulled, built or verified, and no container can be created without that. One that
/// is only too old is used as it is, so its failed pull delays no rollout.
fn awaits_pull(facts: &Facts<'_>, workload: &Workload) -> bool {
    let awaits = |image: &str, pull: PullPolicy| {
        facts.record.pulls.contains_key(&facts.asked_image(workload, image))
            && !facts.needs_no_pull(workload, image, pull)
    };
    let mut mounted = workload.container.mounted_images();
    awaits(&facts.image(workload), workload.pull)
        || mounted.any(|image| awaits(image, workload.mounted_pull(image)))
}

/// Notes which parts of pods are genuine, completed or crashed.
fn note_parts(record: &mut Record, target: &Target<'_>, observed: &Observed, now: Timestamp) {
    for part in observed.parts.values().filter(|it| it.agent == *target.agent) {
        if !record.own_containers.contains(&part.id) && pods::genuine(target, observed, part) {
            record.own_containers.insert(part.id.clone());
        }
        let Some(workload) = pods::definition(target, observed, part) else { continue };
        if !record.own_containers.contains(&part.id) {
            continue;
        }
        let pod = part.part.as_ref().and_then(|it| observed.instances.get(&it.pod));
        if standing::is_completed(record, observed, &workload, part)
            || standing::counts_as_success(record, target.stack, &workload, part)
        {
            record.completed.insert(part.id.clone());
            record.crashes.remove(&part.instance);
        } else if pod.is_some_and(Instance::is_running) {
            note_unknown_end(record, observed, &workload, part, now);
            // A part that ends with its pod has not ended by itself.
            count_crash(record, target.stack.format, observed, part, now);
        }
    }
}

/// Notes for which namespaces of its pod each init container has succeeded. The times are not compared with each other, because the clock
/// may have been set since: an end that is new belongs to the present namespaces.
fn note_prepared(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    record.prepared.retain(|it, _| observed.parts.contains_key(it));
    for part in observed.parts.values().filter(|it| it.agent == *target.agent) {
        let Some(of) = part.part.as_ref().filter(|of| of.role == Role::Init) else { continue };
        let State::Exited { code: 0, finished: ended, .. } = part.state else { continue };
        let pod = observed.instances.get(&of.pod).filter(|it| it.is_running());
        let Some(pod_started) = pod.and_then(|it| it.started) else { continue };
        let is_known = record.prepared.get(&part.id).is_some_and(|it| it.ended == ended);
        if !is_known && !record.is_stopped_by_agent(&part.id) {
            record.prepared.insert(part.id.clone(), Preparation { ended, pod_started });
        }
    }
}

/// Remembers that it is not known how the last run of an instance ended, as long as its specification stays.
fn note_unknown_end(
    record: &mut Record,
    observed: &Observed,
    workload: &Workload,
    instance: &Instance,
    now: Timestamp,
) {
    let Some(why) = standing::unknown_end(record, observed, workload, instance) else { return };
    let (container, spec) = (instance.id.clone(), instance.spec.clone());
    match record.unknown_ends.get_mut(&instance.instance) {
        Some(known) if known.container == container && known.spec == spec => known.why = why,
        Some(_) | None => {
            let end = UnknownEnd { container, spec, at: now, why };
            record.unknown_ends.insert(instance.instance.clone(), end);
        }
    }
}

/// Once the desired stack is reached: from now on, what differs is drift.
pub fn note_settled(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    record.settled = Some(target.hashes.stack.clone());
    record.reopened = None;
    record.sync = None;
    record.prune = None;
    record.heal_once = None;
    record.resumed = None;
    record.canaries.clear();
    record.rollouts.retain(|_, sizes| sizes.paused);
    record.pulls.clear();
    note_held(record, target, observed);
    record.begun.clear();
    if let Some(swarm) = record.swarm.as_mut().filter(|_| !target.stack.workloads.is_empty()) {
        // A run keeps its files as long as it is there, and is part of no revision.
        let is_run = |name: &WorkloadName| target.stack.workloads.get(name).is_some_and(Workload::is_run);
        let services = target.stack.swarm.iter().filter(|(name, _)| !is_run(name));
        let files = services.flat_map(|(_, service)| &service.files);
        swarm.keep_files(files.map(|file| file.name.clone()).collect());
    }
    note_slots(record, target, observed);
    shared_places::note(record, target, observed);
}

/// Remembers the slots in use. What somebody removed, and nobody creates again because self-heal is off, keeps its place.
fn note_slots(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let before = std::mem::take(&mut record.slots);
    for instance in observed.instances.values().filter(|it| record.own_containers.contains(&it.id)) {
        let InstanceId { workload, slot } = &instance.instance;
        record.slots.entry(workload.clone()).or_default().insert(*slot);
    }
    if target.policy.self_heal {
        return;
    }
    for (name, slots) in before {
        let workload = target.stack.workloads.get(&name).filter(|it| it.job_or_template().is_none());
        let wanted = workload.map_or(0, |workload| workload.replicas as usize);
        let missing = wanted.saturating_sub(record.slots.get(&name).map_or(0, BTreeSet::len));
        let mut known = record.slots.remove(&name).unwrap_or_default();
        let kept: Vec<u32> = slots.into_iter().filter(|slot| !known.contains(slot)).take(missing).collect();
        known.extend(kept);
        if !known.is_empty() {
            record.slots.insert(name, known);
        }
    }
}

/// Remembers the definitions of workloads whose rollout is paused, or that the manifest holds at their older version, to
/// recreate them.
fn note_held(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let mut held = std::mem::take(&mut record.held);
    let is_kept = |name: &WorkloadName, workload: &Workload| {
        workload.update == Update::Never || workload.paused || record.paused.contains(name)
    };
    let kept = target.stack.workloads.iter().filter(|(name, workload)| is_kept(name, workload));
    for (name, wanted) in kept {
        let spec = target.spec(Subject { name, workload: wanted });
        let is_old = |it: &&Instance| it.instance.workload == *name && it.spec != spec;
        let Some(old) = observed.instances.values().find(is_old) else {
            let is_missing = !observed.instances.values().any(|it| it.instance.workload == *name);
            // Somebody removed it, and it comes back as it was.
            if is_missing && wanted.replicas > 0 && !target.policy.self_heal {
                record.held.extend(held.remove(name).map(|it| (name.clone(), it)));
            }
            continue;
        };
        let before = target.reached.and_then(|it| it.workloads.get(name)).cloned();
        let known = [held.remove(name), record.begun.remove(name), before].into_iter().flatten();
        let of_it = known.into_iter().find(|it| it.spec() == old.spec);
        record.held.extend(of_it.map(|it| (name.clone(), it)));
    }
}

/// Every end counts once, known by when it was; ends that somebody or the engine's shutdown brought about do not.
fn count_crash(
    record: &mut Record,
    format: Format,
    observed: &Observed,
    instance: &Instance,
    now: Timestamp,
) {
    let before = record.crashes.get(&instance.instance).filter(|it| it.spec == instance.spec);
    let (finished, code, out_of_memory, error) = match &instance.state {
        State::Running { since, .. } => match &instance.readiness {
            // It ends here and now, once: the run that began after the last end is over.
            Readiness::Dead { .. } if before.is_some_and(|it| it.dead_run == Some(*since)) => return,
            Readiness::Dead { reason } => (now, DEAD, false, reason.clone()),
            Readiness::Ready { .. } | Readiness::Starting { .. } | Readiness::NotReady { .. } => {
                if now.since(*since) >= CRASH_RESET {
                    record.crashes.remove(&instance.instance);
                }
                return;
            }
        },
        State::Restarting { code, finished } => (*finished, *code, false, String::new()),
        State::Exited { code, finished, out_of_memory, error } => {
            (*finished, *code, *out_of_memory, error.clone())
        }
        State::Created | State::Paused | State::Removing | State::Dead => return,
    };
    let is_ours_to_count =
        instance.touched_by_hand.is_none() && observed.engine_started.is_none_or(|it| finished >= it);
    let dead_run = match instance.state {
        State::Running { since, .. } => Some(since),
        _ => None,
    };
    let is_new = before.is_none_or(|it| dead_run.is_some() || is_another_end(it, finished, now));
    if !is_ours_to_count || !is_new || record.is_stopped_by_agent(&instance.id) {
        return;
    }
    // The engine starts it again at once after such an end, without a pause that grows, and so does Docker Compose.
    let ran = instance.started.map(|it| finished.since(it)).unwrap_or_default();
    if format == Format::Compose && code == 0 && ran >= STABLE_AFTER {
        record.crashes.remove(&instance.instance);
        return;
    }
    // The rounds may have missed the moment after which the kubelet counts from the beginning.
    let has_run_long = instance.started.is_some_and(|it| finished.since(it) >= CRASH_RESET);
    let before = before.filter(|_| !has_run_long);
    // The engine restarts at once by itself the first time, as we would.
    let count = before
        .map_or(0, |it| it.count)
        .saturating_add(1)
        .saturating_add(u32::from(before.is_none() && instance.restarts > 1));
    let crash = Crash {
        spec: instance.spec.clone(),
        count,
        finished,
        dead_run,
        container: instance.id.clone(),
        code,
        out_of_memory,
        error,
    };
    record.crashes.insert(instance.instance.clone(), crash);
    let ends = record.ends.entry(instance.id.clone()).or_default();
    *ends = ends.saturating_add(1);
}

/// Ends the pause of a container whose start failed because the one that it shares a namespace with did not run, once that one is gone:
/// it gets a successor, and does not need the start.
fn end_pauses_of_orphans(record: &mut Record, observed: &Observed, now: Timestamp) {
    for instance in observed.instances.values() {
        let Some(attempt) = record.failures.get_mut(&instance.name) else { continue };
        let is_named = |id: &&ContainerId| attempt.error.contains(id.as_str());
        if instance.hosts.iter().filter(is_named).any(|id| is_gone(observed, id)) {
            attempt.next = attempt.next.min(now);
        }
    }
}

/// The wall clock may have been set back. What lies further ahead than any pause of ours is not waited for, and
/// nothing happened in the future.
fn forget_the_future(record: &mut Record, now: Timestamp) {
    let horizon = now.after(LONGEST_PAUSE);
    for attempt in record.pulls.values_mut().chain(record.failures.values_mut()).chain(&mut record.sync) {
        if attempt.next > horizon {
            attempt.next = now;
        }
    }
    for heal in record.heals.values_mut() {
        heal.ended = heal.ended.min(now);
        heal.seen = heal.seen.min(now);
        heal.again = heal.again.map(|it| it.min(now));
        heal.recent.retain(|it| *it <= now);
    }
    for progress in record.progress.values_mut() {
        progress.at = progress.at.min(now);
    }
    record.resumed = record.resumed.map(|at| at.min(now));
    for known in record.ready.values_mut() {
        known.since = known.since.min(now);
    }
    for known in record.health.values_mut() {
        known.since = known.since.map(|at| at.min(now));
    }
    for job in record.jobs.values_mut() {
        job.started = job.started.map(|at| at.min(now));
    }
    for known in record.followed_images.values_mut() {
        if known.checked.is_some_and(|checked| checked > now) {
            (known.checked, known.next) = (Some(now), now);
        }
        keep_age(known, now);
    }
}

/// Keeps since when a newer image is known within the time of the clock. One that is behind for a moment, as after a boot without a
/// battery, makes no image older than it is: a minimum age counts.
fn keep_age(known: &mut FollowedImage, now: Timestamp) {
    let floor = known.floor.take();
    let Some(available) = &mut known.available else { return };
    let latest = available.since.max(floor.unwrap_or_default());
    if latest > now {
        available.since = available.since.min(now);
        known.floor = Some(latest);
    } else {
        available.since = latest;
    }
}

/// Whether an end is another one than that of a crash. While a container is held back, the engine's own restarts do not count
/// as further tries of ours.
fn is_another_end(crash: &Crash, finished: Timestamp, now: Timestamp) -> bool {
    // The clock was set back after the crash, and before this end.
    let is_of_new_clock = crash.finished > now && finished <= now;
    let is_held = finished < crash.finished.after(crash_delay(crash.count));
    is_of_new_clock || (finished > crash.finished && !is_held)
}

/// Measures the progress of a workload. `instances` are all of it. While it waits for an image, the clock stands.
fn measure(
    record: &mut Record,
    target: &Target<'_>,
    instances: &[&Instance],
    subject: Subject<'_>,
    awaits_image: bool,
    now: Timestamp,
) {
    let Subject { name, workload } = subject;
    let spec = target.spec(subject);
    let count = |all: &dyn Fn(&Instance) -> bool| {
        u32::try_from(instances.iter().filter(|it| all(it)).count()).unwrap_or(u32::MAX)
    };
    let updated = count(&|it| record.is_current(it, &spec));
    let old = count(&|it| !record.is_current(it, &spec));
    // A run that another workload awaits is no progress until it has completed: it may end with an error again and again.
    let is_awaited_work = workload.completion == Completion::OnSuccess
        && workload.job_or_template().is_none()
        && standing::is_awaited(target.stack, name);
    let is_good = |instance: &Instance| match instance.state {
        State::Exited { code: 0, .. } if is_awaited_work => record.completed.contains(&instance.id),
        _ => !is_awaited_work && instance.is_available(workload.min_ready, now),
    };
    let available = count(&|instance| record.is_current(instance, &spec) && is_good(instance));
    let before = record.progress.get(name).filter(|it| it.spec == spec);
    // Instances that become available and fall again bring a rollout no further, unless the agent did not run
    // meanwhile.
    let counts = RolloutCounts { updated, old, available };
    let is_resumed = |it: &Progress| record.deadline_start(it.at) > it.at;
    let best = before.map(|it| it.best.filter(|_| !is_resumed(it)).unwrap_or_else(|| it.counts()));
    let is_further = best.is_none_or(|best| counts.is_further_than(best));
    // A complete rollout makes no progress. The clock starts when it is incomplete again.
    let step = current_step(record, name, workload, &spec);
    let wanted = step.map_or(workload.replicas, |step| step.instances);
    let was_complete = before.is_some_and(|it| (it.old == 0 || step.is_some()) && it.available >= wanted);
    let is_complete = (old == 0 || step.is_some()) && available >= wanted;
    // A Swarm has the tasks before the images.
    let has_instances = updated >= wanted && target.policy.engine != EngineKind::Swarm;
    let awaits_image = awaits_image && !has_instances;
    let is_paused = workload.paused || record.paused.contains(name);
    let is_excused = before.is_some_and(|it| it.excused);
    let goes_on = !is_paused && !awaits_image && !is_excused && (!was_complete || is_complete);
    let at = before.filter(|_| goes_on && !is_further).map_or(now, |it| it.at);
    let best = best.filter(|_| goes_on && !is_complete).map(|best| best.best(counts));
    // A run that was cut off, by no fault of its own, has all its time again, unless the engine has restarted it by its policy. A Swarm
    // has another task for each try.
    let begins_again = |instance: &&&Instance| {
        is_awaited_work
            && target.policy.engine != EngineKind::Swarm
            && record.is_current(instance, &spec)
            && !record.ends.contains_key(&instance.id)
            && instance.restarts == 0
    };
    let runs = instances.iter().filter(begins_again).filter_map(|instance| match instance.state {
        State::Running { since, .. } => Some(since.min(now)),
        _ => None,
    });
    let at = runs.max().map_or(at, |began| at.max(began));
    let progress = Progress { spec, updated, old, available, best, at, excused: false };
    record.progress.insert(name.clone(), progress);
}

/// Kubernetes tells the age of everything, and Docker that of containers alone.
fn note_objects(record: &mut Record, stack: &Stack, now: Timestamp) {
    let objects: BTreeSet<String> = objects::objects(stack).map(|it| it.to_string()).collect();
    record.since.retain(|it, _| objects.contains(it));
    for object in objects {
        record.since.entry(object).or_insert(now);
    }
}
