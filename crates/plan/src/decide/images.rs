//! Images: pulled or built before anything is stopped for them.

use driftless_model::{HELPER_IMAGE, PullPolicy, State, Subject, Workload};

use crate::{action::Action, cause::Cause, draft::Draft, facts::jobs, wait::Wait};

/// Plans the pulls and builds of images that are not here, before anything is stopped, and notes which cannot be had for now.
pub(crate) fn pull_missing(draft: &mut Draft<'_>) {
    for subject in draft.facts.target.stack.subjects() {
        let Subject { name, workload } = subject;
        let spec = draft.facts.spec(subject);
        let present = draft
            .facts
            .instances
            .members_of(name)
            .iter()
            .filter(|it| it.spec == spec && !matches!(it.state, State::Removing | State::Dead))
            .count();
        if present >= workload.replicas as usize
            || jobs::is_over(draft.facts.record, draft.facts.target.stack, workload)
        {
            continue;
        }
        obtain_all(draft, subject);
    }
}

/// Sees that all images of a workload are or will be here.
pub(crate) fn obtain_all(draft: &mut Draft<'_>, subject: Subject<'_>) {
    let Subject { name, workload } = subject;
    obtain(draft, subject);
    for part in &workload.parts {
        obtain(draft, Subject { name, workload: &workload.of_part(part) });
    }
}

/// Sees that the image of a workload is or will be here, and says so where it cannot be had for now.
pub(crate) fn obtain(draft: &mut Draft<'_>, subject: Subject<'_>) {
    let workload = subject.workload;
    let image = draft.facts.image(workload);
    obtain_image(draft, subject, image);
    for mounted in workload.mounted_images() {
        obtain_image(draft, subject, mounted.clone());
    }
}

fn obtain_image(draft: &mut Draft<'_>, subject: Subject<'_>, image: String) {
    let Subject { name, workload } = subject;
    let is_here = draft.facts.observed.images.contains_key(&image);
    match workload.pull {
        PullPolicy::IfNotPresent | PullPolicy::Never | PullPolicy::Every(_) if is_here => return,
        PullPolicy::Never => {
            draft.wait(Wait::never_pulled(name, &image));
            hold_for(draft, subject);
            return;
        }
        PullPolicy::Always | PullPolicy::IfNotPresent | PullPolicy::Every(_) => {}
    }
    match draft.facts.record.pulls.get(&image).filter(|it| it.next > draft.facts.now) {
        Some(attempt) => {
            let (count, until, error) = (attempt.count, attempt.next, attempt.error.clone());
            draft.look_again(until);
            hold_for(draft, subject);
            draft.wait(match &workload.build {
                Some(_) => Wait::build_failed(name, &image, &error, count, until),
                None => Wait::image_pull_back_off(name, &image, &error, count, until),
            });
        }
        // What is here and is to be refreshed is pulled when an instance is made of it, and not while the
        // rollout waits.
        None if is_here => {}
        None => {
            fetch(draft, workload, image);
        }
    }
}

/// Nothing is stopped for the commit while an image of it cannot be had. What a CronJob has begun is not of the commit:
/// its image may be one that Git has taken back since.
fn hold_for(draft: &mut Draft<'_>, subject: Subject<'_>) {
    let Subject { name, workload } = subject;
    if workload.job_or_template().is_none_or(|it| it.cron.is_none()) {
        draft.missing_images.insert(name.clone());
    }
}

/// The steps that have to come before instances are made of this image, or anything is stopped for them.
pub(crate) fn refresh(draft: &mut Draft<'_>, workload: &Workload) -> Vec<usize> {
    let parts: Vec<Workload> = workload.parts.iter().map(|it| workload.of_part(it)).collect();
    std::iter::once(workload).chain(&parts).filter_map(|it| refresh_one(draft, it)).collect()
}

fn refresh_one(draft: &mut Draft<'_>, workload: &Workload) -> Option<usize> {
    let image = draft.facts.image(workload);
    let is_due = match workload.pull {
        PullPolicy::Always => true,
        PullPolicy::IfNotPresent | PullPolicy::Never => false,
        // An image that was never tagged on this host counts as too old.
        PullPolicy::Every(age) => {
            let tagged = draft.facts.observed.images.get(&image).and_then(|it| it.tagged);
            tagged.is_none_or(|it| draft.facts.now.since(it) >= age)
        }
    };
    let image = draft.facts.image(workload);
    is_due.then(|| fetch(draft, workload, image))
}

/// From its registry, from the commit, or from this agent itself.
fn fetch(draft: &mut Draft<'_>, workload: &Workload, image: String) -> usize {
    if let Some(step) = draft.pulls.get(&image) {
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
    let step = draft.push(action, Cause::Missing, vec![]);
    draft.pulls.insert(image, step);
    step
}
