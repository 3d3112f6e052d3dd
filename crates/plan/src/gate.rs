//! Whether new instances may be made now: images, dependencies, networks, ports and names.
//!
//! It says what stands in the way and which steps clear it; how many instances are made is for
//! [`super::rollout`].

use driftless_model::{
    Condition, Dependency, HELPER_IMAGE, Instance, MountSource, Peer, PullPolicy, State, Workload,
    WorkloadName,
};

use super::{Action, Cause, Wait, census::Census, jobs, ordinals, repair, resources, round::Round, share};

/// Why new instances cannot be created in this round, if they cannot.
pub(super) enum Gate {
    /// They can, after these steps.
    Open(Vec<usize>),
    /// They cannot, and what runs stays as it is.
    Closed,
    /// What is in the way are old instances that are leaving: make room, and create in the next round.
    /// Their removal waits for these steps.
    MakeRoom(Vec<usize>),
}

/// Plans the pulls and builds of images that are not here, before anything is stopped, and notes which cannot be had for now.
pub(super) fn pull_missing(round: &mut Round<'_>, census: &Census<'_>) {
    for (name, workload) in &round.target.stack.workloads {
        let spec = round.spec(name, workload);
        let present = census
            .members_of(name)
            .iter()
            .filter(|it| it.spec == spec && !matches!(it.state, State::Removing | State::Dead))
            .count();
        if present >= workload.replicas as usize || jobs::is_over(round.record, round.target.stack, workload)
        {
            continue;
        }
        obtain_all(round, name, workload);
    }
}

/// Sees that all images of a workload are or will be here.
fn obtain_all(round: &mut Round<'_>, name: &WorkloadName, workload: &Workload) {
    obtain(round, name, workload);
    for part in &workload.parts {
        obtain(round, name, &workload.of_part(part));
    }
}

/// Sees that the image of a workload is or will be here, and says so where it cannot be had for now.
pub(super) fn obtain(round: &mut Round<'_>, name: &WorkloadName, workload: &Workload) {
    let image = round.image(workload);
    obtain_image(round, name, workload, image);
    for mounted in workload.mounted_images() {
        obtain_image(round, name, workload, mounted.clone());
    }
}

fn obtain_image(round: &mut Round<'_>, name: &WorkloadName, workload: &Workload, image: String) {
    let is_here = round.observed.images.contains_key(&image);
    match workload.pull {
        PullPolicy::IfNotPresent | PullPolicy::Never | PullPolicy::Every(_) if is_here => return,
        PullPolicy::Never => {
            let what = format!("the image {image} on this host");
            round.wait(Wait::Blocked {
                object: name.to_string(),
                by: "the pull policy `Never`".into(),
                what,
            });
            hold_for(round, name, workload);
            return;
        }
        PullPolicy::Always | PullPolicy::IfNotPresent | PullPolicy::Every(_) => {}
    }
    match round.record.pulls.get(&image).filter(|it| it.next > round.now) {
        Some(attempt) => {
            let (count, until, error) = (attempt.count, attempt.next, attempt.error.clone());
            round.look_again(until);
            hold_for(round, name, workload);
            let (name, attempt) = (name.clone(), count);
            round.wait(match &workload.build {
                Some(_) => Wait::BuildFailed { workload: name, image, attempt, until, error },
                None => Wait::ImagePullBackOff { workload: name, image, attempt, until, error },
            });
        }
        // What is here and is to be refreshed is pulled when an instance is made of it, and not while the
        // rollout waits.
        None if is_here => {}
        None => {
            fetch(round, workload, image);
        }
    }
}

/// Nothing is stopped for the commit while an image of it cannot be had. What a CronJob has begun is not of the commit:
/// its image may be one that Git has taken back since.
fn hold_for(round: &mut Round<'_>, name: &WorkloadName, workload: &Workload) {
    if workload.job.as_ref().is_none_or(|it| it.cron.is_none()) {
        round.unpulled.insert(name.clone());
    }
}

/// The steps that have to come before instances are made of this image, or anything is stopped for them.
pub(super) fn refresh(round: &mut Round<'_>, workload: &Workload) -> Vec<usize> {
    let parts: Vec<Workload> = workload.parts.iter().map(|it| workload.of_part(it)).collect();
    std::iter::once(workload).chain(&parts).filter_map(|it| refresh_one(round, it)).collect()
}

fn refresh_one(round: &mut Round<'_>, workload: &Workload) -> Option<usize> {
    let image = round.image(workload);
    let is_due = match workload.pull {
        PullPolicy::Always => true,
        PullPolicy::IfNotPresent | PullPolicy::Never => false,
        // What was never given a name here is as old as can be.
        PullPolicy::Every(age) => {
            let tagged = round.observed.images.get(&image).and_then(|it| it.tagged);
            tagged.is_none_or(|it| round.now.since(it) >= age)
        }
    };
    let image = round.image(workload);
    is_due.then(|| fetch(round, workload, image))
}

/// From its registry, from the commit, or from this agent itself.
fn fetch(round: &mut Round<'_>, workload: &Workload, image: String) -> usize {
    if let Some(step) = round.pulls.get(&image) {
        return *step;
    }
    let action = match &workload.build {
        None if image == HELPER_IMAGE => Action::ImportImage { image: image.clone() },
        Some(build) => Action::BuildImage { image: image.clone(), build: Box::new(build.clone()) },
        None => {
            let platform = workload.container.host.platform.clone();
            let secrets = workload.pull_secrets.iter().cloned().collect();
            Action::PullImage { image: image.clone(), platform, secrets }
        }
    };
    let step = round.push(action, Cause::Missing, vec![]);
    round.pulls.insert(image, step);
    step
}

/// Whether new instances of a workload may be created now.
pub(super) fn gate(
    round: &mut Round<'_>,
    name: &WorkloadName,
    workload: &Workload,
    census: &Census<'_>,
) -> Gate {
    if let Some(wait) = ordinals::hindrance(round, name, workload, census) {
        round.wait(wait);
        return Gate::Closed;
    }
    // Of those that it shares something with, one is enough; that is looked at below.
    let is_shared = |it: &&Dependency| {
        let peer = Peer::Workload(it.workload.clone());
        it.condition == Condition::Started && workload.container.peers().any(|it| *it == peer)
    };
    for dependency in workload.after.iter().filter(|it| !is_shared(it)) {
        if let Some(reason) = unmet(round, dependency, census) {
            let (workload, on) = (name.clone(), dependency.workload.clone());
            round.wait(Wait::Dependency { workload, on, reason });
            return Gate::Closed;
        }
    }
    let newest = workload.containers().filter_map(driftless_model::Container::needs).max_by_key(|it| it.api);
    if let (Some(speaks), Some(need)) = (round.observed.engine_api, newest)
        && speaks < need.api
    {
        let (object, field, needs) = (name.to_string(), need.field, need.api);
        round.wait(Wait::EngineTooOld { object, field, needs, speaks });
        return Gate::Closed;
    }
    // What is replaced for another reason than its spec may run an image that has left the host since.
    obtain_all(round, name, workload);
    let parts = workload.parts.iter().map(|it| round.image(&workload.of_part(it)));
    let images: Vec<String> = parts.chain([round.image(workload)]).collect();
    let is_known = |it: &String| round.observed.images.contains_key(it) || round.pulls.contains_key(it);
    let is_to_be_had = images.iter().all(is_known) && workload.mounted_images().all(is_known);
    let is_refused = round.unpulled.contains(name) && round.is_wanted(name, workload);
    if !is_to_be_had || is_refused {
        // The pull is backing off; that is said where pulls are planned.
        return Gate::Closed;
    }
    let Some(peers) = share::choose(round, name, &workload.container, census) else { return Gate::Closed };
    round.peers.insert(name.clone(), peers);
    let Some(provided) = needs(round, workload) else { return Gate::Closed };
    // All images of the commit, not only its own: nothing is stopped for a version that is not complete.
    let mut after: Vec<usize> = round.pulls.values().copied().chain(provided).collect();
    match contest(round, name, workload, census) {
        Contest::Free(steps) => {
            after.extend(steps);
            Gate::Open(after)
        }
        Contest::Leaving => Gate::MakeRoom(after),
        Contest::Taken { by, what } => {
            round.wait(Wait::Blocked { object: name.to_string(), by, what });
            Gate::Closed
        }
    }
}

/// Why a dependency is not met yet, if it is not.
pub(super) fn unmet(round: &Round<'_>, dependency: &Dependency, census: &Census<'_>) -> Option<String> {
    let Dependency { workload: on, condition, required, restart: _ } = dependency;
    let workload = round.target.stack.workloads.get(on)?;
    let spec = round.spec(on, workload);
    let current: Vec<&Instance> =
        census.members_of(on).iter().copied().filter(|it| it.spec == spec).collect();
    let completed =
        |it: &Instance| repair::is_completed(round.record, round.observed.engine_started, workload, it);
    let crash = current
        .iter()
        .find_map(|it| round.record.crashes.get(&it.instance).filter(|crash| crash.spec == it.spec));
    if !required && (crash.is_some() || round.unpulled.contains(on)) {
        return None;
    }
    // Its commands after the start are part of it.
    let is_hooked = |it: &Instance| !round.record.unhooked.contains(&it.instance.to_string());
    let good = |it: &&&Instance| match condition {
        Condition::Started => (it.is_running() && is_hooked(it)) || completed(it),
        Condition::Healthy => it.is_available(std::time::Duration::ZERO, round.now) && is_hooked(it),
        Condition::CompletedSuccessfully => completed(it),
    };
    if current.iter().filter(good).count() >= workload.replicas as usize {
        return None;
    }
    let state = match condition {
        Condition::Started => "started",
        Condition::Healthy => "healthy",
        Condition::CompletedSuccessfully => "completed",
    };
    Some(match crash {
        Some(crash) => format!("it is not {state}: it ended with code {}", crash.code),
        None => format!("it is not {state} yet"),
    })
}

/// The steps that provide its networks and volumes; `None` while one of them cannot be had.
fn needs(round: &Round<'_>, workload: &Workload) -> Option<Vec<usize>> {
    let mut after = Vec::new();
    for network in workload.container.networks().keys() {
        match round.provided.get(network) {
            Some(step) => after.push(*step),
            None if resources::is_usable_network(round, network) => {}
            None => return None,
        }
    }
    for mount in workload.containers().flat_map(|it| &it.mounts) {
        let name = match &mount.source {
            MountSource::Volume { name, no_copy: _ } => name,
            MountSource::Anonymous
            | MountSource::Image(_)
            | MountSource::Empty
            | MountSource::Bind { .. }
            | MountSource::Tmpfs { .. }
            | MountSource::Content(_)
            | MountSource::Secret(_)
            | MountSource::InPlace { .. }
            | MountSource::AppFolder(_) => continue,
        };
        match round.provided.get(name) {
            Some(step) => after.push(*step),
            None if resources::is_usable_volume(round, name) => {}
            None => return None,
        }
    }
    Some(after)
}

enum Contest {
    /// Nobody else holds what we need, once these steps are done.
    Free(Vec<usize>),
    /// One of ours still holds it, and is to leave.
    Leaving,
    Taken {
        by: String,
        what: String,
    },
}

/// Looks for others who hold the fixed name or host ports of a workload. Its own instances are not others: they make way
/// for each other by the limits of its rollout.
fn contest(round: &Round<'_>, name: &WorkloadName, workload: &Workload, census: &Census<'_>) -> Contest {
    if let Some(fixed) = &workload.container_name
        && round.observed.claims.names.contains_key(fixed)
    {
        return Contest::Taken { by: fixed.clone(), what: format!("the name `{fixed}`") };
    }
    let mut steps = Vec::new();
    for port in &workload.container.ports {
        let Some(host) = port.host.filter(|it| it.first == it.last) else { continue };
        let what = || format!("host port {}/{}", host.first, port.protocol.as_str());
        if let Some(by) = round.observed.claims.holder(port) {
            return Contest::Taken { by: by.to_owned(), what: what() };
        }
        let own = census.members_of(name);
        let holds = |it: &&Instance| {
            is_up(it)
                && it.config.ports.iter().any(|held| {
                    let is_same = held.host == port.host && held.protocol == port.protocol;
                    is_same && port.overlaps(held.host_ip)
                })
                && !own.iter().any(|own| own.id == it.id)
        };
        for other in round.observed.instances.values().filter(holds) {
            match round.removed.get(&other.id) {
                Some(step) => steps.push(*step),
                None if other.agent != *round.target.agent => {
                    return Contest::Taken { by: other.name.clone(), what: what() };
                }
                None => return Contest::Leaving,
            }
        }
    }
    Contest::Free(steps)
}

/// Whether it holds its ports.
fn is_up(instance: &Instance) -> bool {
    match instance.state {
        State::Running { .. } | State::Paused | State::Restarting { .. } => true,
        State::Created | State::Exited { .. } | State::Removing | State::Dead => false,
    }
}
