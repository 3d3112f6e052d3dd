//! Images: pulled or built before anything is stopped for them.
//!
//! A refresh is the pull of an image that is here, which `pull_policy` asks for before a creation: `always`, or an age. After one that
//! failed, the next comes when its pause is over. Until then an image that is only too old is used as it is, and `always` waits, as it
//! makes `docker compose up` fail.
//!
//! A container whose namespaces are gone with another container is down until it has a successor. That is no new version of it, so
//! nothing is asked of a registry before, and after a failed pull that somebody asked for, the image that is here is used.

use driftless_model::{
    Attempt, Build, Container, Instance, Platform, PullPolicy, State, Subject, Workload, WorkloadName,
    is_helper_image, is_helper_name, label,
};

use crate::{
    action::Action,
    cause::Cause,
    decide::platform,
    draft::Draft,
    facts::{Facts, jobs, namespaces::is_orphaned},
    wait::Wait,
};

/// Plans pulls and builds of missing images before anything is stopped or reads files of the commit, and marks workloads with images
/// that cannot be pulled now.
pub(crate) fn pull_missing(draft: &mut Draft<'_>) {
    for subject in draft.facts.target.stack.subjects() {
        let workload = subject.workload;
        if is_complete(draft.facts, subject)
            || jobs::is_over(draft.facts.record, draft.facts.target.stack, workload)
        {
            continue;
        }
        if platform::objection(draft.facts, subject).is_some() {
            // The wait is planned where instances are created.
            continue;
        }
        obtain_all(draft, subject);
    }
    draft.is_fetching = !draft.pulls.is_empty();
}

/// The instances of a workload, without those that are being removed.
fn present<'a>(facts: &Facts<'a>, name: &WorkloadName) -> impl Iterator<Item = &'a Instance> {
    let members = facts.instances.members_of(name).iter().copied();
    members.filter(|member| !matches!(member.state, State::Removing | State::Dead))
}

/// Whether a workload has all its instances in this version.
fn is_complete(facts: &Facts<'_>, subject: Subject<'_>) -> bool {
    let spec = facts.spec(subject);
    let current = present(facts, subject.name).filter(|member| member.spec == spec);
    current.count() >= subject.workload.replicas as usize
}

/// Whether instances of a workload are down because their namespaces are gone with another container.
fn is_cut_off(facts: &Facts<'_>, name: &WorkloadName) -> bool {
    present(facts, name).any(|member| is_orphaned(facts, member))
}

/// Sees that all images of a workload are or will be here. False if one of them cannot be had for now, which is said.
pub(crate) fn obtain_all(draft: &mut Draft<'_>, subject: Subject<'_>) -> bool {
    let Subject { name, workload } = subject;
    let is_held = draft.missing_images.contains(name);
    let mut can_be_had = obtain(draft, subject);
    for part in &workload.parts {
        can_be_had &= obtain(draft, Subject { name, workload: &workload.of_part(part) });
    }
    // The image of an older version is not of the commit.
    if !is_held && !draft.facts.is_desired(subject) && draft.missing_images.remove(name) {
        draft.kept_without_image.insert(name.clone());
    }
    can_be_had
}

/// Sees that the image of a workload is or will be here. False if it cannot be had for now, which is said.
pub(crate) fn obtain(draft: &mut Draft<'_>, subject: Subject<'_>) -> bool {
    let workload = subject.workload;
    let mut can_be_had = obtain_image(draft, subject, &own_image(draft, workload));
    // A part is obtained by itself.
    for mounted in mounted_by(draft, workload, &workload.container) {
        can_be_had &= obtain_image(draft, subject, &mounted);
    }
    can_be_had
}

/// An image that a workload needs.
struct Needed {
    image: String,
    pull: PullPolicy,
    /// The build, if it is not pulled.
    build: Option<Build>,
}

/// The image of a workload's container.
fn own_image(draft: &Draft<'_>, workload: &Workload) -> Needed {
    Needed { image: draft.facts.image(workload), pull: workload.pull, build: workload.build.clone() }
}

/// The images that a container mounts. One may be built by another workload of the stack.
fn mounted_by(draft: &Draft<'_>, workload: &Workload, container: &Container) -> Vec<Needed> {
    let build_of = |image: &String| {
        let mut all = draft.facts.target.stack.workloads.values();
        all.find(|it| it.build.is_some() && it.container.image == *image).and_then(|it| it.build.clone())
    };
    let needed = |image: &String| Needed {
        image: image.clone(),
        pull: workload.mounted_pull(image),
        build: build_of(image),
    };
    container.mounted_images().map(needed).collect()
}

fn obtain_image(draft: &mut Draft<'_>, subject: Subject<'_>, needed: &Needed) -> bool {
    let Subject { name, workload } = subject;
    let Needed { image, pull, build } = needed;
    if draft.facts.needs_no_pull(workload, image, *pull) {
        return true;
    }
    let is_present = draft.facts.has_image(workload, image);
    let is_here = is_present && draft.facts.is_verified(workload, image);
    if *pull == PullPolicy::Never && !is_present {
        let platform = draft.facts.needed_platform(workload, image);
        draft.wait(Wait::never_pulled(name, image, platform.as_ref()));
        hold_for(draft, subject);
        return false;
    }
    if !is_present && let Some((platform, other)) = needed_for_another_platform(draft, subject, image) {
        draft.wait(Wait::one_platform_per_image(name, image, &platform, &other));
        hold_for(draft, subject);
        return false;
    }
    let needs_bases = build.as_ref().filter(|_| !is_present);
    if let Some((base, attempt)) = needs_bases.and_then(|build| pausing_base(draft, build)) {
        draft.look_again(attempt.next);
        hold_for(draft, subject);
        draft.wait(Wait::build_failed(name, base, &attempt.error, attempt.count, attempt.next));
        return false;
    }
    match pausing_attempt(draft, workload, image) {
        Some(_) if is_here && is_cut_off(draft.facts, name) => {}
        Some(attempt) => {
            let (count, until, error) = (attempt.count, attempt.next, attempt.error.clone());
            let owner = draft.facts.owner_alone(image);
            draft.look_again(until);
            hold_for(draft, subject);
            draft.wait(match build {
                Some(_) => Wait::build_failed(name, image, &error, count, until),
                None if is_present && !is_here => Wait::image_not_verified(name, image, &error, count, until),
                None => {
                    let wait = Wait::image_pull_back_off(name, image, &error, count, until);
                    match owner {
                        Some(owner) => wait.image_not_shared(owner),
                        None => wait,
                    }
                }
            });
            return false;
        }
        // An image that is present and to be refreshed is pulled when an instance is created from it, and not while the
        // rollout waits.
        None if is_here => {}
        None if is_present && !is_refresh_due(draft, needed) => verify(draft, workload, needed),
        None => {
            fetch(draft, workload, needed);
        }
    }
    true
}

/// The last attempt to get an image, if it failed and is not repeated yet.
fn pausing_attempt<'a>(draft: &Draft<'a>, workload: &Workload, image: &str) -> Option<&'a Attempt> {
    let facts = draft.facts;
    facts.record.pulls.get(&facts.asked_image(workload, image)).filter(|attempt| attempt.next > facts.now)
}

/// A base image of a build that is missing and could not be built, with the last attempt, which is not repeated yet.
fn pausing_base<'a>(draft: &Draft<'a>, build: &Build) -> Option<(&'a str, &'a Attempt)> {
    missing_bases(draft.facts, build).into_iter().find_map(|base| {
        let image = base.container.image.as_str();
        let attempt = pausing_attempt(draft, base, image).map(|attempt| (image, attempt));
        attempt.or_else(|| pausing_base(draft, base.build.as_ref()?))
    })
}

/// The workloads that build the base images of a build, of those that are missing. They may want no container of it.
fn missing_bases<'a>(facts: &Facts<'a>, build: &Build) -> Vec<&'a Workload> {
    let stacks = [Some(facts.target.stack), facts.target.reached];
    let all = stacks.into_iter().flatten().flat_map(|stack| stack.workloads.values());
    let found = build.bases.values().filter_map(|image| {
        let mut all = all.clone();
        all.find(|workload| workload.build.is_some() && workload.container.image == *image)
    });
    found.filter(|base| !facts.has_image(base, &base.container.image)).collect()
}

/// The platform that a workload needs an image for, and another workload that has it for another one: the image is here for that
/// one, or is pulled for it, or containers were created from it. An engine that keeps one platform per name would take the image
/// away from it.
fn needed_for_another_platform(
    draft: &Draft<'_>,
    Subject { name, workload }: Subject<'_>,
    image: &str,
) -> Option<(Platform, WorkloadName)> {
    let facts = draft.facts;
    let engine = &facts.observed.engine_traits;
    let needed = facts.needed_platform(workload, image).filter(|_| engine.keeps_one_platform)?;
    let found = facts.observed.images.get(image);
    let other = facts.target.stack.subjects().find(|other| {
        let needs = facts.needed_platform(other.workload, image).filter(|needs| *needs != needed);
        let Some(needs) = needs.filter(|_| other.name != name) else { return false };
        let spec = facts.spec(*other);
        let was_here = || facts.instances.members_of(other.name).iter().any(|member| member.spec == spec);
        found.is_some_and(|found| found.is_for(&needs, engine))
            || draft.pull_of(other.workload, image).is_some()
            || was_here()
    })?;
    Some((needed, other.name.clone()))
}

/// Nothing is stopped for the commit while an image of it cannot be had. The run of a CronJob or hook is not of the commit:
/// its image may be one that Git has taken back since.
fn hold_for(draft: &mut Draft<'_>, subject: Subject<'_>) {
    let Subject { name, workload } = subject;
    if workload.job_or_template().is_none_or(|it| !it.is_run()) {
        draft.missing_images.insert(name.clone());
    }
}

/// The steps that have to come before these containers are made of the image, or make way for such ones. None if all of them are held
/// back after a step that failed: the image would be pulled in each round, for nothing.
pub(crate) fn refresh_for<'c>(
    draft: &mut Draft<'_>,
    subject: Subject<'_>,
    mut containers: impl Iterator<Item = &'c str>,
) -> Vec<usize> {
    let facts = draft.facts;
    let is_held = |container: &str| {
        facts.record.failures.get(container).is_some_and(|attempt| attempt.next > facts.now)
    };
    if containers.all(is_held) {
        return Vec::new();
    }
    refresh(draft, subject)
}

/// The steps that have to come before instances are made of this image, or anything is stopped for them.
pub(crate) fn refresh(draft: &mut Draft<'_>, subject: Subject<'_>) -> Vec<usize> {
    let Subject { name, workload } = subject;
    let is_requested = |member: &Instance| draft.facts.record.replaced.contains_key(&member.id);
    if is_cut_off(draft.facts, name)
        && is_complete(draft.facts, subject)
        && !present(draft.facts, name).any(is_requested)
    {
        return Vec::new();
    }
    let parts: Vec<Workload> = workload.parts.iter().map(|it| workload.of_part(it)).collect();
    let mut steps = Vec::new();
    for one in std::iter::once(workload).chain(&parts) {
        steps.extend(refresh_one(draft, one, &own_image(draft, one)));
        for mounted in mounted_by(draft, one, &one.container) {
            steps.extend(refresh_one(draft, one, &mounted));
        }
    }
    steps
}

fn refresh_one(draft: &mut Draft<'_>, workload: &Workload, needed: &Needed) -> Option<usize> {
    let is_pausing = pausing_attempt(draft, workload, &needed.image).is_some();
    (is_refresh_due(draft, needed) && !is_pausing).then(|| fetch(draft, workload, needed))
}

/// Whether the image is pulled when an instance is made of it, although it is here.
fn is_refresh_due(draft: &Draft<'_>, needed: &Needed) -> bool {
    match needed.pull {
        PullPolicy::Always => true,
        PullPolicy::IfNotPresent | PullPolicy::Never => false,
        // An image that was never tagged on this host counts as too old.
        PullPolicy::Every(age) => {
            let tagged = draft.facts.observed.images.get(&needed.image).and_then(|it| it.tagged);
            tagged.is_none_or(|it| draft.facts.now.since(it) >= age)
        }
    }
}

/// From its registry, from the commit, or from this agent itself. A build comes after those of the base images that are missing.
fn fetch(draft: &mut Draft<'_>, workload: &Workload, needed: &Needed) -> usize {
    let Needed { image, pull: _, build } = needed;
    if let Some(step) = draft.pull_of(workload, image) {
        return step;
    }
    let action = match build {
        None if is_helper_image(image) => Action::ImportImage { image: image.clone() },
        Some(build) => {
            Action::BuildImage { image: image.clone(), build: Box::new(owned_build(draft.facts, build)) }
        }
        None => {
            let platform = draft.facts.named_platform(workload, image).cloned();
            let secrets = workload.pull_secrets.iter().cloned().collect();
            let keys = draft.facts.signature_keys(workload, image);
            Action::PullImage { image: image.clone(), platform, secrets, keys }
        }
    };
    let bases = build.as_ref().map(|build| missing_bases(draft.facts, build)).unwrap_or_default();
    let mut after = Vec::new();
    for base in bases {
        let needed = own_image(draft, base);
        after.push(fetch(draft, base, &needed));
    }
    let step = draft.push(action, Cause::Missing, after);
    draft.note_pull(workload, image, step);
    step
}

/// A build with the labels that say for which application it is, and whether others may use it: an image that is here under a name is
/// used by everybody who asks for that name, and is not pulled. It never gets the name of a helper.
fn owned_build(facts: &Facts<'_>, build: &Build) -> Build {
    let stack = facts.target.stack;
    let mut build = build.clone();
    build.tags.retain(|tag| !is_helper_name(tag));
    build.labels.retain(|name, _| !label::is_reserved(name));
    build.labels.insert(label::BUILT_BY.to_owned(), stack.app.to_string());
    if facts.target.policy.forbids_objects_of_others() {
        build.labels.insert(label::NOT_SHARED.to_owned(), stack.project.clone());
    }
    build
}

/// Sees that the signature of an image that is here is verified.
fn verify(draft: &mut Draft<'_>, workload: &Workload, needed: &Needed) {
    let image = &needed.image;
    if draft.pull_of(workload, image).is_some() {
        return;
    }
    let secrets = workload.pull_secrets.iter().cloned().collect();
    let keys = draft.facts.signature_keys(workload, image);
    let platform = draft.facts.named_platform(workload, image).cloned();
    let action = Action::VerifyImage { image: image.clone(), platform, secrets, keys };
    let step = draft.push(action, Cause::Missing, vec![]);
    draft.note_pull(workload, image, step);
}
