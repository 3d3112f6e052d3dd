//! Images of a Swarm: the digest that a service is created from, the logins that come with it, and what services say about
//! images whose registry is asked for newer ones.
//!
//! The agent on the leader asks the registries and resolves newer images. The label [`IMAGE`] of a service then has the digest
//! that it was resolved to, and so the agents on other managers know it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    ContentId, FollowedImage, ImageRef, ImageUpdate, Observed, ObservedService, ObservedSwarm, Record,
    ResolvedImage, Stack, Subject, SwarmTask, Timestamp, WorkloadName, label, swarm_service_name,
};

use super::{
    job_tasks::{has_ended, is_over},
    spec::{IMAGE, OWNER},
    tasks::{digest, newest, place_of},
};
use crate::{facts::Facts, target::Target};

/// The image with its digest, as far as that is known.
pub(super) fn known_image(
    target: &Target<'_>,
    record: &Record,
    swarm: &ObservedSwarm,
    Subject { name, workload }: Subject<'_>,
) -> Option<ResolvedImage> {
    let reference = &workload.container.image;
    let service = swarm.services.get(&swarm_service_name(&target.stack.project, name));
    let resolved = |image: &String| record.swarm.as_ref().and_then(|record| record.images.get(image));
    let of_service = |image: &String| {
        let present = service.filter(|service| service.image() == Some(image))?;
        Some(ResolvedImage { image: image.clone(), platforms: platforms(present) })
    };
    if let Some(image) = target.pinned_image(workload) {
        let known = resolved(reference).filter(|known| known.image == *image).or_else(|| resolved(image));
        return known.cloned().or_else(|| of_service(image));
    }
    let is_newer = record.followed_images.values().any(|known| known.resolved.as_ref() == Some(reference));
    if reference.contains('@') && !is_newer {
        return Some(of_service(reference).unwrap_or_else(|| without_platforms(reference)));
    }
    if let Some(known) = resolved(reference) {
        return Some(known.clone());
    }
    // After a change of the leader another agent knows the digest by the service. `docker service update --image` leaves the label as
    // it is.
    let service = service.filter(|service| service.label(IMAGE) == Some(reference))?;
    let is_own = service.label(label::AGENT) == Some(OWNER);
    let image = service
        .image()
        .filter(|image| is_resolved_from(image, reference) && (image.contains('@') || is_own))?;
    Some(ResolvedImage { image: image.to_owned(), platforms: platforms(service) })
}

/// Whether the image of a service is a reference of Git, with or without the digest that this was resolved to.
fn is_resolved_from(image: &str, reference: &str) -> bool {
    let plain = image.split_once('@').filter(|_| !reference.contains('@')).map_or(image, |(plain, _)| plain);
    ImageRef::parse(plain).familiar() == ImageRef::parse(reference).familiar()
}

/// Whether the image of a service is the reference itself: `docker stack deploy` writes it so, with a tag, if no registry answers for it.
fn is_without_digest(image: &str, reference: &str) -> bool {
    !image.contains('@') && is_resolved_from(image, reference)
}

/// The image from which a service can be created or updated now. A rollback needs no registry: its digest is known. Neither does the
/// adoption of a service that runs an image without a digest, which the registry does not have.
pub(super) fn usable_image(
    facts: &Facts<'_>,
    swarm: &ObservedSwarm,
    subject: Subject<'_>,
) -> Option<ResolvedImage> {
    let (target, record) = (facts.target, facts.record);
    let of_rollback = || {
        let pinned = target.pinned_image(subject.workload)?;
        record.failures.contains_key(pinned).then(|| without_platforms(pinned))
    };
    let as_it_runs = || {
        let reference = &subject.workload.container.image;
        let is_refused =
            target.pinned_image(subject.workload).is_none() && record.failures.contains_key(reference);
        let service = swarm.services.get(&swarm_service_name(&target.stack.project, subject.name));
        let service = service.filter(|found| is_refused && found.label(IMAGE) == Some(reference))?;
        let image = service.image().filter(|image| is_without_digest(image, reference))?;
        Some(ResolvedImage { image: image.to_owned(), platforms: platforms(service) })
    };
    known_image(target, record, swarm, subject).or_else(of_rollback).or_else(as_it_runs)
}

/// An image of which it is not known where it runs: the Swarm puts its tasks on any node.
pub(super) fn without_platforms(image: &str) -> ResolvedImage {
    ResolvedImage { image: image.to_owned(), platforms: BTreeSet::new() }
}

/// The time in which a node gets an image, as an engine has on one host.
const LONGEST_PULL: Duration = Duration::from_hours(24);

/// The time in which a node that has the image prepares a task.
pub(super) const PREPARED: Duration = Duration::from_secs(15);

/// Whether a node gets the image of a service now, or is about to try again after it could not get it.
pub(crate) fn awaits_image(swarm: &ObservedSwarm, service: &ObservedService, now: Timestamp) -> bool {
    let tasks = || swarm.tasks_of(&service.id).filter(|task| task.is_current);
    let is_lost = |task: &SwarmTask| {
        let node = task.node.as_ref().and_then(|node| swarm.nodes.get(node));
        node.is_some_and(|node| node.state == "down")
    };
    // A try before shows that its node has the image, or that it is not the image that it fails for.
    let has_image = |task: &SwarmTask| {
        tasks().any(|other| {
            let is_further = matches!(other.state.as_str(), "ready" | "starting" | "running")
                || (has_ended_by_itself(other) && !could_not_pull(other));
            is_further && other.id != task.id && other.node == task.node
        })
    };
    let failed_before = |task: &SwarmTask| {
        let ended = tasks().filter(|other| has_ended(other) && place_of(other) == place_of(task));
        ended.max_by_key(|other| other.created).is_some_and(could_not_pull)
    };
    newest(tasks()).filter(|task| !is_over(task) && !is_lost(task)).any(|task| match task.state.as_str() {
        // Each task is `preparing` for a moment, also with an image that its node has, and the Swarm forgets most of its tries.
        "preparing" => {
            let is_pulling = now.since(task.created) >= PREPARED || failed_before(task);
            is_pulling && !has_image(task) && now.since(task.since) < LONGEST_PULL
        }
        "new" | "allocated" | "pending" | "assigned" | "accepted" => {
            task.error.is_empty() && failed_before(task)
        }
        _ => false,
    })
}

/// Whether a task has ended, and not because the Swarm stopped it, which may be before its node has the image.
fn has_ended_by_itself(task: &SwarmTask) -> bool {
    matches!(task.state.as_str(), "complete" | "failed" | "rejected")
}

/// The words of a node that could not get an image. Docker Engine before 29.7 says `No such image` after most of these errors. Later ones,
/// and 29.6 without a valid login, pass on the error of the pull, in the words of the registry, of Docker's own store of images or of that
/// of containerd.
const PULL_ERRORS: [&str; 28] = [
    "No such image",
    "unauthorized",
    "authentication required",
    "no basic auth credentials",
    "access denied",
    "access to the resource is denied",
    "toomanyrequests",
    "manifest unknown",
    "no matching manifest",
    "unexpected HTTP status",
    "error from registry",
    "error pulling image",
    "download failed after",
    "unsupported media type",
    "GetImageBlob",
    "failed to resolve reference",
    "failed to authorize",
    "failed to do request",
    "failed to copy",
    "failed to extract layer",
    "failed to register layer",
    "Head \"http",
    "Get \"http",
    "dial tcp",
    "read tcp",
    "unexpected EOF",
    "TLS handshake",
    "i/o timeout",
];

/// Whether the node of a task could not get its image. A node also rejects tasks for mounts, networks and ports.
pub(super) fn could_not_pull(task: &SwarmTask) -> bool {
    task.state == "rejected" && PULL_ERRORS.iter().any(|words| task.error.contains(words))
}

fn platforms(service: &ObservedService) -> BTreeSet<(String, String)> {
    let all = service.spec.pointer("/TaskTemplate/Placement/Platforms").and_then(|it| it.as_array());
    let text = |platform: &serde_json::Value, key: &str| {
        platform.get(key).and_then(|it| it.as_str()).unwrap_or_default().to_owned()
    };
    all.into_iter().flatten().map(|platform| (text(platform, "OS"), text(platform, "Architecture"))).collect()
}

/// The contents of the `imagePullSecrets` of all workloads with an image.
pub(super) fn pull_secrets(stack: &Stack, reference: &str) -> Vec<ContentId> {
    let of_image = stack.subjects().filter(|it| it.workload.container.image == reference);
    let all: BTreeSet<&ContentId> = of_image.flat_map(|it| &it.workload.pull_secrets).collect();
    all.into_iter().cloned().collect()
}

/// The digest of each image of the application's services, by its reference: a rollback goes back to them.
pub fn service_digests(stack: &Stack, observed: &Observed) -> BTreeMap<String, String> {
    let services = observed.swarm.iter().flat_map(|swarm| swarm.services.values());
    let of_it = services.filter(|service| service.label(label::APPLICATION) == Some(stack.app.as_str()));
    let digest = |service: &ObservedService| {
        let (reference, image) = (service.label(IMAGE)?, service.image()?);
        let is_digest = image.contains('@') && !reference.contains('@') && is_resolved_from(image, reference);
        is_digest.then(|| (reference.to_owned(), image.to_owned()))
    };
    of_it.filter_map(digest).collect()
}

/// The services that were made for a reference of the manifest. `stack` is that of Git.
pub(crate) fn services_of<'a>(
    stack: &Stack,
    swarm: &'a ObservedSwarm,
    image: &str,
) -> Vec<(&'a String, &'a ObservedService)> {
    let is_of_it = |service: &ObservedService| {
        let workload = service.label(label::WORKLOAD).map(|name| WorkloadName(name.to_owned()));
        let found = workload.and_then(|name| stack.workloads.get(&name));
        service.label(label::APPLICATION) == Some(stack.app.as_str())
            && found.is_some_and(|workload| workload.container.image == image)
    };
    swarm.services.iter().filter(|(_, service)| is_of_it(service)).collect()
}

/// Notes the digests of services as those that run.
pub(crate) fn note_digests(known: &mut FollowedImage, services: &[(&String, &ObservedService)], image: &str) {
    let wanted = ImageRef::parse(image);
    let digest = |service: &ObservedService| {
        let found = ImageRef::parse(service.image()?);
        found.digest().filter(|_| found.is_same_repository(&wanted)).map(str::to_owned)
    };
    let present: BTreeSet<String> = services.iter().filter_map(|(_, service)| digest(service)).collect();
    // A digest that the registry called the same image as another one stays known as that one.
    known.running.retain(|digest, _| present.contains(digest));
    for digest in present {
        known.running.entry(digest.clone()).or_insert(digest);
    }
}

/// Takes over the image that the agent on another manager has resolved, by the labels of the services that it wrote. True: it is
/// another one than before.
pub(crate) fn take_over(
    known: &mut FollowedImage,
    services: &[(&String, &ObservedService)],
    written: &BTreeMap<String, driftless_model::WrittenService>,
    (image, update): (&str, &ImageUpdate),
) -> bool {
    let is_of_other = |(name, service): &&(&String, &ObservedService)| {
        // A specification that the Swarm went back to is nobody's choice.
        !service.update_state.starts_with("rollback")
            && written.get(*name).is_none_or(|written| written.returned != digest(&service.spec))
    };
    let resolved = |service: &ObservedService| match service.label(IMAGE)? {
        label if label == image => Some(None),
        label => update.resolves(image, label).then(|| Some(label.to_owned())),
    };
    let found: Vec<Option<String>> =
        services.iter().filter(is_of_other).filter_map(|(_, service)| resolved(service)).collect();
    // An update that is under way has both.
    if found.is_empty() || found.contains(&known.resolved) {
        return false;
    }
    known.resolved = found.into_iter().next().flatten();
    // The registry may have a newer one by now.
    (known.available, known.next) = (None, Timestamp(0));
    true
}
