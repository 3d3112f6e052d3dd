//! Image updates: which references of a stack are followed, whether the registry's answer is an update, and the stack with
//! the images that were resolved.
//!
//! An update is never concluded from what the engine calls an image now: the digest that a container's image was pulled by
//! is remembered by the id of the image, because a name that moves on takes its digest along.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    Attempt, AvailableImage, CheckFailure, FollowedImage, ImageRef, ImageUpdate, ImageUpdateStatus, Instance,
    Observed, PlatformImage, Policy, Record, Stack, TagRule, Timestamp, UpdateMode, Workload,
};

use crate::swarm::images;

/// The first wait after a registry gave no answer. It doubles up to the interval of the reference.
const FIRST_RETRY: Duration = Duration::from_mins(1);

/// The longest wait that a registry may ask for.
const LONGEST_WAIT: Duration = Duration::from_hours(6);

/// The number of digits of a digest by which the images of hosts are compared.
const DIGEST_DIGITS: usize = 16;

/// The registry's answer about a reference.
#[derive(Clone, Copy, Debug)]
pub struct RegistryAnswer<'a> {
    /// The tag that is followed.
    pub tag: &'a str,
    /// Its digest.
    pub digest: &'a str,
    /// The digests that ran when the registry was asked. It says nothing about others.
    pub compared: &'a BTreeSet<String>,
    /// Whether all digests that were compared are the same image.
    pub is_running: bool,
    /// Whether the newer image that was known when the registry was asked is the same one.
    pub is_available: bool,
}

impl RegistryAnswer<'_> {
    /// The image that the answer to the question about a reference names.
    fn image(&self, reference: &str) -> String {
        format!("{}:{}@{}", ImageRef::split(reference).name, self.tag, self.digest)
    }

    /// Whether it says something about the image of a digest that runs. A container may have appeared since the question.
    fn covers(&self, running: &str) -> bool {
        running == self.digest || self.compared.contains(running)
    }
}

/// The references of a stack whose registries are asked, with their settings: those of a workload, else of the policy. What one
/// workload says of a reference counts for all that have it.
pub fn followed_images(stack: &Stack, policy: &Policy) -> BTreeMap<String, ImageUpdate> {
    let mut followed: BTreeMap<String, (bool, ImageUpdate)> = BTreeMap::new();
    for workload in stack.workloads.values() {
        for image in workload.registry_images() {
            let own = workload.image_update.as_ref();
            let update = || own.unwrap_or(&policy.image_update).clone();
            let entry = followed.entry(image.clone()).or_insert_with(|| (own.is_some(), update()));
            if own.is_some() && !entry.0 {
                *entry = (true, update());
            }
        }
    }
    let is_on = |(image, (_, update)): (String, (bool, ImageUpdate))| {
        (update.mode != UpdateMode::Off).then_some((image, update))
    };
    followed.into_iter().filter_map(is_on).collect()
}

/// Forgets references that the stack does not have any more, and remembers the digests of what runs. `stack` is that of Git.
/// Returns whether a resolved image was found in what runs, as after a loss of the record: then the target is another one.
/// `has_led`: this agent's node has led the Swarm since its last round, so nobody else has resolved an image.
pub fn note_running_images(
    record: &mut Record,
    stack: &Stack,
    followed: &BTreeMap<String, ImageUpdate>,
    observed: &Observed,
    has_led: bool,
) -> bool {
    let named: BTreeSet<&String> = stack.workloads.values().flat_map(Workload::registry_images).collect();
    // A reference that is not followed any more stays at the image that was resolved: its tag may name an older one here.
    let is_kept = |image: &String, known: &FollowedImage| {
        followed.contains_key(image) || (named.contains(image) && known.resolved.is_some())
    };
    record.followed_images.retain(|image, known| is_kept(image, known));
    let written = record.swarm.as_ref().map(|kept| kept.services.clone()).unwrap_or_default();
    let mut by_image: BTreeMap<&str, Vec<&Instance>> = BTreeMap::new();
    for container in observed.containers() {
        if let Some(image) = reference_of(stack, container) {
            by_image.entry(image).or_default().push(container);
        }
    }
    let mut has_found = false;
    for (image, update) in followed {
        let is_new = !record.followed_images.contains_key(image);
        let known = record.followed_images.entry(image.clone()).or_default();
        if let Some(swarm) = observed.swarm.as_deref() {
            let services = images::services_of(stack, swarm, image);
            images::note_digests(known, &services, image);
            if !has_led || !swarm.is_leader() {
                has_found |= images::take_over(known, &services, &written, (image, update));
            }
            continue;
        }
        let running = by_image.remove(image.as_str()).unwrap_or_default();
        if is_new && update.mode == UpdateMode::Apply {
            known.resolved = running.iter().find_map(|container| resolved_before(container, image, update));
            has_found |= known.resolved.is_some();
        }
        // It was found under other settings.
        known.available.take_if(|available| !update.resolves(image, &available.image));
        known.running.retain(|id, _| running.iter().any(|container| container.image_id == *id));
        known.unproven.retain(|id| known.running.contains_key(id));
        for container in running {
            let named = named_digest(container, (image, update), known.resolved.as_deref());
            let id = &container.image_id;
            if named.is_some() {
                known.unproven.remove(id);
            }
            if known.running.contains_key(id) {
                continue;
            }
            // Every digest of the classic image store is that of a registry.
            let is_proven = named.is_some() || observed.engine_traits.keeps_one_platform;
            let Some(digest) = named.or_else(|| local_digest(container, observed, image)) else { continue };
            if !is_proven {
                known.unproven.insert(id.clone());
            }
            known.running.insert(id.clone(), digest);
        }
        // The newer image was deployed in another way, as by a commit that names its tag.
        known.available.take_if(|available| {
            let newest = ImageRef::parse(&available.image);
            let is_newest = |running: &String| newest.digest() == Some(running.as_str());
            !known.running.is_empty() && known.running.values().all(is_newest)
        });
    }
    has_found
}

/// The reference of the manifest that a container was created for.
fn reference_of<'a>(stack: &'a Stack, container: &Instance) -> Option<&'a str> {
    let workload = stack.workloads.get(&container.instance.workload.whole())?;
    let of_workload = match &container.part {
        Some(part) => &workload.part(&part.name)?.container,
        None => &workload.container,
    };
    Some(&of_workload.image)
}

/// The containers that were created for a reference.
fn containers_of<'a>(
    stack: &'a Stack,
    observed: &'a Observed,
    image: &'a str,
) -> impl Iterator<Item = &'a Instance> {
    observed.containers().filter(move |container| reference_of(stack, container) == Some(image))
}

/// The image that a container was created from, if an earlier update resolved it from this reference.
fn resolved_before(container: &Instance, image: &str, update: &ImageUpdate) -> Option<String> {
    let found = &container.config.image;
    update.resolves(image, found).then(|| found.clone())
}

/// The digest by which a container names its image, if it was created for this reference. One of another tag is replaced by a commit.
fn named_digest(
    container: &Instance,
    (image, update): (&str, &ImageUpdate),
    resolved: Option<&str>,
) -> Option<String> {
    let named = &container.config.image;
    let (own, wanted) = (ImageRef::parse(named), ImageRef::parse(image));
    // A rollback names the digest alone.
    let is_of_reference = own.tag().is_none_or(|tag| wanted.effective_tag() == Some(tag))
        || update.resolves(image, named)
        || resolved == Some(named.as_str());
    let digest = own.digest().filter(|_| own.is_same_repository(&wanted) && is_of_reference);
    digest.map(str::to_owned)
}

/// The digest that the engine has for a container's image. `None`: nothing says it for certain.
fn local_digest(container: &Instance, observed: &Observed, image: &str) -> Option<String> {
    let found = observed.images.get(image).filter(|found| found.id == container.image_id)?;
    ImageRef::parse(found.digest_of(image)?).digest().map(str::to_owned)
}

/// The digests of running images of a reference of which only the engine says that they are digests of a registry.
pub fn unproven_digests(record: &Record, image: &str) -> BTreeSet<String> {
    let Some(known) = record.followed_images.get(image) else { return BTreeSet::new() };
    let unproven = known.running.iter().filter(|(id, _)| known.unproven.contains(*id));
    unproven.map(|(_, digest)| digest.clone()).collect()
}

/// Notes the running images of a reference, by id and digest, that a registry has or had. They stay so: it may delete them.
pub fn note_proven_images(record: &mut Record, image: &str, is_proven: impl Fn(&str, &str) -> bool) {
    let Some(known) = record.followed_images.get_mut(image) else { return };
    let running = &known.running;
    known.unproven.retain(|id| running.get(id).is_some_and(|digest| !is_proven(id, digest)));
}

/// Whether a reference stays at an image that a range of versions resolved before it was removed from the settings. The tag in Git
/// is another one, in general an older one, and nobody has asked to go back to it.
fn stays_at_resolved(known: &FollowedImage, (image, update): (&str, &ImageUpdate)) -> bool {
    let tag_of = |image: &str| ImageRef::parse(image).effective_tag().map(str::to_owned);
    let resolved = known.resolved.as_deref();
    update.semver.is_none() && resolved.is_some_and(|resolved| tag_of(resolved) != tag_of(image))
}

/// Whether a reference stays at an image that its settings do not lead to any more, because the range or the pattern was narrowed.
/// An older version is never deployed by an update.
fn is_out_of_range(known: &FollowedImage, (image, update): (&str, &ImageUpdate)) -> bool {
    update.semver.is_some() && known.resolved.as_deref().is_some_and(|found| !update.resolves(image, found))
}

/// Notes that the registry is asked about a reference.
pub fn note_image_check(record: &mut Record, (image, update): (&str, &ImageUpdate), now: Timestamp) {
    if let Some(known) = record.followed_images.get_mut(image) {
        known.next = now.after(update.every);
    }
}

/// Brings the next question about a reference forward if it is later than any pause, as one that was noted by a clock that was ahead.
pub fn limit_image_pause(record: &mut Record, (image, update): (&str, &ImageUpdate), now: Timestamp) {
    if let Some(known) = record.followed_images.get_mut(image) {
        known.next = known.next.min(now.after(update.every.max(LONGEST_WAIT)));
    }
}

/// Goes back to the image that runs if the registry names it again, and not the one that was resolved and does not run: the publisher
/// has taken that one back. True: the target is another one. The digests of [`note_newest_image`] are not noted yet.
pub fn note_returned_image(
    record: &mut Record,
    (image, update): (&str, &ImageUpdate),
    answer: RegistryAnswer<'_>,
    (stack, observed): (&Stack, &Observed),
) -> bool {
    let Some(known) = record.followed_images.get(image) else { return false };
    let resolved = known.resolved.as_deref().map(ImageRef::parse);
    let is_taken_back = resolved.as_ref().and_then(ImageRef::digest).is_some_and(|digest| {
        digest != answer.digest && !known.running.values().any(|running| running == digest)
    });
    let is_proven = |id: &String, running: &str| !known.unproven.contains(id) && answer.covers(running);
    let is_one_proven = known.running.iter().any(|(id, running)| is_proven(id, running));
    if !is_taken_back || !answer.is_running || !is_one_proven || observed.swarm.is_some() {
        return false;
    }
    let newest = answer.image(image);
    let before =
        containers_of(stack, observed, image).find_map(|container| resolved_before(container, image, update));
    // That of the running containers, so that none of them is replaced.
    let candidates = [known.resolved.clone(), None, before, Some(newest.clone())];
    let found = candidates
        .into_iter()
        .find(|candidate| is_created_from(record, candidate.as_deref(), image, (stack, observed)));
    let found = found.unwrap_or(Some(newest));
    let Some(known) = record.followed_images.get_mut(image) else { return false };
    let is_other = known.resolved != found;
    known.resolved = found;
    is_other
}

/// Whether a container has the definition in which a reference is resolved to this image, or is as in the manifest.
fn is_created_from(
    record: &Record,
    resolved: Option<&str>,
    image: &str,
    (stack, observed): (&Stack, &Observed),
) -> bool {
    let mut images = resolved_images(record);
    match resolved {
        Some(resolved) => images.insert(image, resolved),
        None => images.remove(image),
    };
    let with_images = with_resolved_images(stack, &images);
    let workloads = &with_images.as_ref().unwrap_or(stack).workloads;
    containers_of(stack, observed, image).any(|container| {
        let workload = workloads.get(&container.instance.workload.whole());
        workload.is_some_and(|workload| workload.spec() == container.spec)
    })
}

/// Whether the pull of the image that was resolved from a reference has failed, on any platform.
fn has_failed_pull(pulls: &BTreeMap<PlatformImage, Attempt>, known: &FollowedImage) -> bool {
    known.resolved.as_ref().is_some_and(|resolved| pulls.keys().any(|failed| failed.name == *resolved))
}

/// Notes the registry's answer about a reference. Returns an image that is newer than what runs and was not known before.
pub fn note_newest_image(
    record: &mut Record,
    (image, update): (&str, &ImageUpdate),
    answer: RegistryAnswer<'_>,
    (stack, observed): (&Stack, &Observed),
    now: Timestamp,
) -> Option<AvailableImage> {
    let known = record.followed_images.get_mut(image)?;
    (known.checked, known.failure) = (Some(now), None);
    let running: Vec<&Instance> = containers_of(stack, observed, image).collect();
    let newest = answer.image(image);
    let wanted = ImageRef::parse(image);
    // A range follows tags: the same tag is no news, also with another digest. It is if nothing was created from the image that
    // was resolved, because that may never be pulled.
    let current = known.resolved.as_deref().map_or(wanted.clone(), ImageRef::parse);
    let is_unused = known.resolved.as_deref().is_some_and(|resolved| {
        let mut digests = known.running.iter().flat_map(|(id, digest)| [id, digest]);
        running.iter().all(|container| container.config.image != resolved)
            && digests.all(|digest| current.digest() != Some(digest.as_str()))
    });
    let is_same_tag = update.semver.is_some() && current.effective_tag() == Some(answer.tag) && !is_unused;
    // The registry has lost the tag that runs.
    let is_older = update.goes_back(current.effective_tag(), answer.tag);
    let is_of_other = |running: &String| running != answer.digest && answer.compared.contains(running);
    let is_other = !answer.is_running && known.running.values().any(is_of_other);
    // The tag on this host names the newest image, and a container runs another one.
    let is_left_behind = observed.images.get(image).is_some_and(|local| {
        let digest = local.digest_of(image).map(|digest| ImageRef::parse(digest));
        digest.is_some_and(|digest| digest.digest() == Some(answer.digest))
            // A container of another reference is replaced by the commit, and not by an update.
            && running.iter().any(|container| container.image_id != local.id && container.config.image == image)
            && known.running.is_empty()
    });
    // The image that was resolved cannot be pulled, as one that its registry has deleted, and nothing runs that the answer is
    // compared with.
    let cannot_be_pulled = is_unused
        && known.running.is_empty()
        && current.digest() != Some(answer.digest)
        // A sync forgets the failure, and not the image.
        && (known.available.is_some() || has_failed_pull(&record.pulls, known));
    if answer.is_running {
        // The same image under another digest: no need to compare them again.
        let same = known.running.iter_mut().filter(|(id, running)| {
            !known.unproven.contains(*id) && answer.compared.contains(running.as_str())
        });
        same.for_each(|(_, digest)| answer.digest.clone_into(digest));
    }
    // A container has appeared since the question, perhaps of an image that has been on the host for long.
    if known.running.values().any(|running| !answer.covers(running)) {
        known.next = known.next.min(now);
    }
    // The question may be older than the settings.
    let is_followed = update.resolves(image, &newest) && !stays_at_resolved(known, (image, update));
    let is_update = (is_other || is_left_behind || cannot_be_pulled)
        && is_followed
        && !is_same_tag
        && !is_older
        && known.resolved.as_ref() != Some(&newest);
    if !is_update {
        known.available = None;
        return None;
    }
    if let Some(available) = &mut known.available
        && (available.image == newest || answer.is_available)
    {
        // It keeps its age: if its digest is another one, the index has changed for other platforms.
        available.image = newest;
        return None;
    }
    let available = AvailableImage { image: newest, since: now };
    known.available = Some(available.clone());
    Some(available)
}

/// Notes that a registry gave no answer about a reference. True: the reason is another one than before.
pub fn note_failed_check(
    record: &mut Record,
    (image, update): (&str, &ImageUpdate),
    (reason, message): (&str, String),
    retry_after: Option<Duration>,
    now: Timestamp,
) -> bool {
    let Some(known) = record.followed_images.get_mut(image) else { return false };
    let before = known.failure.take();
    let count = before.as_ref().map_or(0, |before| before.count).saturating_add(1);
    let doubled = FIRST_RETRY.saturating_mul(1 << (count - 1).min(10));
    let pause = doubled.min(update.every).max(retry_after.unwrap_or_default());
    // Zero: somebody has asked for another question in the meantime.
    if known.next != Timestamp(0) {
        known.next = now.after(pause);
    }
    let since = before.as_ref().and_then(|before| before.since).filter(|since| *since <= now).unwrap_or(now);
    let is_news = before.is_none_or(|before| before.reason != reason);
    known.failure = Some(CheckFailure { reason: reason.to_owned(), message, count, since: Some(since) });
    is_news
}

/// Resolves the references whose newer image is old enough, if their settings deploy it. Returns them with the image.
pub fn resolve_images(
    record: &mut Record,
    followed: &BTreeMap<String, ImageUpdate>,
    now: Timestamp,
) -> Vec<(String, String)> {
    let mut resolved = Vec::new();
    for (image, update) in followed {
        let Some(known) = record.followed_images.get_mut(image) else { continue };
        let is_due = |available: &AvailableImage| now >= available.since.after(update.min_age);
        let is_applied = update.mode == UpdateMode::Apply;
        if let Some(available) = known.available.take_if(|available| is_applied && is_due(available)) {
            known.resolved = Some(available.image.clone());
            resolved.push((image.clone(), available.image));
        }
    }
    resolved
}

/// Resolves all references with a newer image, without regard to their settings and its age. Returns the images.
pub fn resolve_available_images(record: &mut Record) -> Vec<String> {
    let mut resolved = Vec::new();
    for known in record.followed_images.values_mut() {
        if let Some(available) = known.available.take() {
            known.resolved = Some(available.image.clone());
            resolved.push(available.image);
        }
    }
    resolved
}

/// When an image is next to be asked for or deployed.
pub fn next_image_update(record: &Record, followed: &BTreeMap<String, ImageUpdate>) -> Option<Timestamp> {
    let times = followed.iter().filter_map(|(image, update)| {
        let known = record.followed_images.get(image)?;
        let due = known.available.as_ref().filter(|_| update.mode == UpdateMode::Apply);
        Some(due.map_or(known.next, |available| available.since.after(update.min_age).min(known.next)))
    });
    times.min()
}

/// The images that replace references of a stack.
pub fn resolved_images(record: &Record) -> BTreeMap<&str, &str> {
    let resolved = record.followed_images.iter();
    resolved.filter_map(|(image, known)| Some((image.as_str(), known.resolved.as_deref()?))).collect()
}

/// The first digits of a digest. They are enough to tell images apart, and keep reports short.
fn first_digits(digest: &str) -> String {
    let digits = digest.split_once(':').map_or(digest, |(_, digits)| digits);
    digits.chars().take(DIGEST_DIGITS).collect()
}

fn resolved_digest(image: &str) -> Option<String> {
    ImageRef::parse(image).digest().map(first_digits)
}

/// The images that were resolved and that a stack has, by the first digits of their digests.
pub fn resolved_digests(record: &Record, stack: &Stack) -> BTreeSet<String> {
    let own = stack.workloads.values().map(|workload| &workload.container);
    let parts = stack.workloads.values().flat_map(|workload| &workload.parts).map(|part| &part.container);
    let named: BTreeSet<&String> = own.chain(parts).map(|container| &container.image).collect();
    let resolved = record.followed_images.values().filter_map(|known| known.resolved.as_ref());
    resolved.filter(|image| named.contains(image)).filter_map(|image| resolved_digest(image)).collect()
}

/// The images of an application whose target is this stack: those that were resolved for it, and the one that all containers
/// of a reference run.
pub fn running_digests(record: &Record, stack: &Stack) -> BTreeSet<String> {
    let mut digests = resolved_digests(record, stack);
    for known in record.followed_images.values() {
        let running: BTreeSet<&String> = known.running.values().collect();
        if let (1, Some(digest)) = (running.len(), running.first()) {
            digests.insert(first_digits(digest));
        }
    }
    digests
}

/// The resolved images that do not run here yet.
pub fn new_digests(record: &Record) -> BTreeSet<String> {
    let new = record.followed_images.values().filter_map(|known| {
        let digest = resolved_digest(known.resolved.as_ref()?)?;
        let runs = known.running.values().any(|running| first_digits(running) == digest);
        (!runs).then_some(digest)
    });
    new.collect()
}

/// The stack with resolved images in place of the references of the manifest. `None`: it has none of them.
pub fn with_resolved_images(stack: &Stack, resolved: &BTreeMap<&str, &str>) -> Option<Stack> {
    let is_resolved =
        |workload: &Workload| workload.registry_images().any(|image| resolved.contains_key(image.as_str()));
    if !stack.workloads.values().any(is_resolved) {
        return None;
    }
    let mut stack = stack.clone();
    for workload in stack.workloads.values_mut().filter(|workload| is_resolved(workload)) {
        resolve_references(workload, resolved);
    }
    Some(stack)
}

fn resolve_references(workload: &mut Workload, resolved: &BTreeMap<&str, &str>) {
    let replace = |image: &mut String| {
        if let Some(found) = resolved.get(image.as_str()) {
            (*found).clone_into(image);
        }
    };
    if workload.build.is_none() {
        replace(&mut workload.container.image);
    }
    workload.parts.iter_mut().for_each(|part| replace(&mut part.container.image));
}

/// The images that were resolved for references of a stack, as far as its containers show it. For a reader that has no record.
///
/// A container that was made from the reference itself shows none. Another one shows the same tag with a digest, or a version in a
/// range: the image with which the workload is the one that the container was made from.
pub fn images_in_use<'a>(stack: &'a Stack, observed: &'a Observed) -> BTreeMap<&'a str, &'a str> {
    let mut all = BTreeMap::new();
    for instance in observed.instances.values() {
        let workload = stack.workloads.get(&instance.instance.workload);
        let Some(workload) = workload.filter(|workload| workload.spec() != instance.spec) else { continue };
        let found = digests_in_use(workload, instance, observed);
        let has_its_tag = |(reference, image): (&&str, &&str)| tag_of(reference) == tag_of(image);
        let is_made_of_them = || {
            let mut resolved = workload.clone();
            resolve_references(&mut resolved, &found);
            resolved.spec() == instance.spec
        };
        if found.iter().all(has_its_tag) || is_made_of_them() {
            all.extend(found);
        }
    }
    all
}

/// The images with a digest that an instance runs, by the references of the same repositories in its workload.
fn digests_in_use<'a>(
    workload: &'a Workload,
    instance: &'a Instance,
    observed: &'a Observed,
) -> BTreeMap<&'a str, &'a str> {
    let mut images = vec![(&workload.container.image, instance)];
    let parts = observed.parts_of(&instance.id);
    for part in &workload.parts {
        let is_it = |found: &&&Instance| found.part.as_ref().is_some_and(|of| of.name == part.name);
        images.extend(parts.iter().find(is_it).map(|found| (&part.container.image, *found)));
    }
    let resolved = images.into_iter().filter_map(|(reference, found)| {
        let image = found.config.image.as_str();
        let (wanted, running) = (ImageRef::split(reference), ImageRef::split(image));
        let is_resolved = wanted.digest.is_none() && running.digest.is_some() && wanted.name == running.name;
        is_resolved.then_some((reference.as_str(), image))
    });
    resolved.collect()
}

/// The tag of a reference, which has one without writing it.
fn tag_of(image: &str) -> &str {
    ImageRef::split(image).tag.unwrap_or("latest")
}

/// Whether two stacks are the same but for the versions of images of registries.
pub fn differ_in_images_only(before: &Stack, after: &Stack) -> bool {
    let without_versions = |stack: &Stack| {
        let mut stack = stack.clone();
        for workload in stack.workloads.values_mut() {
            let containers = workload.parts.iter_mut().map(|part| &mut part.container);
            for container in containers.chain([&mut workload.container]) {
                container.image = ImageRef::split(&container.image).name.to_owned();
            }
        }
        stack
    };
    before != after && without_versions(before) == without_versions(after)
}

/// The status of each followed reference.
pub fn image_update_status(
    record: &Record,
    followed: &BTreeMap<String, ImageUpdate>,
    now: Timestamp,
) -> Vec<ImageUpdateStatus> {
    let status = followed.iter().filter_map(|(image, update)| {
        let known = record.followed_images.get(image)?;
        let applied = known.available.as_ref().filter(|_| update.mode == UpdateMode::Apply);
        let note = if stays_at_resolved(known, (image, update)) {
            "it stays at the image that `semver` found before; to follow a tag again, write it in Git"
        } else if is_out_of_range(known, (image, update)) {
            "it stays at a version that `semver` and `tags` no longer allow, because an update never goes back to an older one; \
             to go back, write another tag in Git"
        } else if known.running.is_empty() && known.checked.is_some() {
            "nothing runs that a registry has a digest for, so there is nothing to compare"
        } else {
            ""
        };
        Some(ImageUpdateStatus {
            image: image.clone(),
            mode: update.mode,
            resolved: known.resolved.clone(),
            due: applied.map(|available| available.since.after(update.min_age)).filter(|due| *due > now),
            available: known.available.clone(),
            checked: known.checked,
            failure: known.failure.clone(),
            note: note.to_owned(),
        })
    });
    status.collect()
}

/// The settings of a question to the registry about a reference: the tags, the digests that run, and the platforms of all its
/// containers: those that they ask for, else those of the nodes of a Swarm. `None` is that of the host.
pub fn image_check(
    record: &Record,
    (stack, observed): (&Stack, &Observed),
    (image, update): (&str, &ImageUpdate),
) -> (Option<TagRule>, BTreeSet<String>, BTreeSet<Option<String>>) {
    let running = record.followed_images.get(image).map(|known| known.running.values().cloned().collect());
    let nodes = observed.swarm.iter().flat_map(|swarm| swarm.nodes.values());
    let of_nodes = nodes.map(|node| node.platform.clone()).filter(|platform| !platform.is_empty());
    let mut default: BTreeSet<Option<String>> = of_nodes.map(Some).collect();
    if default.is_empty() {
        default.insert(None);
    }
    let containers = stack.workloads.values().flat_map(Workload::containers);
    let mut platforms = BTreeSet::new();
    for container in containers.filter(|container| container.image == image) {
        match &container.host.platform {
            Some(platform) => platforms.extend([Some(platform.clone())]),
            None => platforms.extend(default.iter().cloned()),
        }
    }
    (update.tag_rule(), running.unwrap_or_default(), if platforms.is_empty() { default } else { platforms })
}
