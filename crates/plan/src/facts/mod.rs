//! The inputs of one round, classified once: the target, the observed state, the record and the time.
//!
//! Functions here answer questions. They do not know the plan that is being written.

use std::{cell::OnceCell, collections::BTreeSet, path::PathBuf};

use driftless_model::{
    ComposeService, FailedCommit, Format, ImageRef, Observed, PullPolicy, Record, SpecHash, Stack, StackHash,
    Subject, Timestamp, Workload, WorkloadName, is_helper_image, is_made_helper, label, signature_keys,
};

use crate::{
    action::RequiredSignature,
    facts::{
        canary::{CurrentStep, current_step},
        classify::Classified,
        cron::without_runs,
        named_platforms::NamedPlatforms,
    },
    names::container_name_at,
    target::Target,
};

pub(crate) mod adoption;
pub(crate) mod canary;
pub(crate) mod classify;
pub(crate) mod coming_up;
pub(crate) mod cron;
pub(crate) mod forgotten_runs;
pub(crate) mod fs_changes;
pub(crate) mod heals;
pub(crate) mod hooks;
pub(crate) mod ignored;
pub(crate) mod in_force;
pub(crate) mod jobs;
pub(crate) mod limits;
mod named_platforms;
pub(crate) mod namespaces;
pub(crate) mod objects;
pub(crate) mod ownership;
pub(crate) mod places;
mod platforms;
pub(crate) mod pods;
pub(crate) mod prune;
pub(crate) mod scales;
pub(crate) mod sharing;
pub(crate) mod standing;
pub(crate) mod stateful;
pub(crate) mod update_failures;
pub(crate) mod waiting;
pub(crate) mod waves;
pub(crate) mod workers;

/// The inputs of one round.
pub(crate) struct Facts<'a> {
    pub(crate) target: &'a Target<'a>,
    pub(crate) observed: &'a Observed,
    pub(crate) record: &'a Record,
    pub(crate) now: Timestamp,
    pub(crate) instances: Classified<'a>,
    /// Nothing of the target is applied before its `PreSync` hooks have succeeded.
    pub(crate) is_held_by_hooks: bool,
    /// The lowest sync wave of the desired workloads.
    pub(crate) lowest_wave: i32,
    named_platforms: NamedPlatforms,
    /// The failed commit with paused rollouts, once it is needed.
    failed: OnceCell<Option<&'a FailedCommit>>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(
        target: &'a Target<'a>,
        observed: &'a Observed,
        record: &'a Record,
        now: Timestamp,
    ) -> Self {
        Self {
            target,
            observed,
            record,
            now,
            instances: Classified::new(target, observed, record),
            is_held_by_hooks: hooks::is_held_by_hooks(target.stack, record),
            lowest_wave: target.stack.workloads.values().map(|it| it.wave).min().unwrap_or_default(),
            named_platforms: NamedPlatforms::new(target),
            failed: OnceCell::new(),
        }
    }

    /// The Compose project of a container that belongs to no application, unless the container is a candidate for the adoption by this one.
    pub(crate) fn other_project(&self, container: &str) -> Option<&'a str> {
        Some(self.other_service(container)?.project.as_str())
    }

    fn other_service(&self, container: &str) -> Option<&'a ComposeService> {
        let stack = self.target.stack;
        let found = self.observed.claims.service_of_unmanaged(container)?;
        let is_own = stack.format == Format::Compose && found.project == stack.project;
        (!is_own).then_some(found)
    }

    /// The same project, if this application seems to be that project under another name and can adopt it: it has the service of the
    /// container, was never reached and has no container of the service. Another project means other volumes, so an application that
    /// runs would begin with empty ones.
    pub(crate) fn adoptable_project(&self, container: &str) -> Option<&'a str> {
        let ComposeService { project, service } = self.other_service(container)?;
        let (stack, record) = (self.target.stack, self.record);
        let is_defined = stack.format == Format::Compose && stack.workloads.contains_key(service);
        let was_reached =
            record.settled.is_some() || !record.slots.is_empty() || !record.adopted.workloads.is_empty();
        let has_container = !self.instances.members_of(service).is_empty();
        let mut stacks = self.observed.claims.applications.iter().flat_map(|all| all.stacks.values());
        let is_taken = stacks.any(|other| other.app != stack.app && other.project == *project);
        (is_defined && !was_reached && !has_container && !is_taken).then_some(project.as_str())
    }

    /// Whether the desired stack was reached before. Everything that is missing now is drift then.
    pub(crate) fn is_settled(&self) -> bool {
        self.record.settled.as_ref().is_some_and(|it| it == self.revision())
    }

    /// Whether an instance of a workload that is missing, or one too many, is drift.
    pub(crate) fn is_at_rest(&self, name: &WorkloadName) -> bool {
        self.target.is_at_rest(self.record, name)
    }

    /// Whether a network that is missing is drift: all that use it are at rest.
    pub(crate) fn is_network_at_rest(&self, network: &str) -> bool {
        let is_member = |subject: &Subject<'_>| subject.workload.container.networks().contains_key(network);
        let mut members = self.target.stack.subjects().filter(is_member).peekable();
        self.is_settled() || (members.peek().is_some() && members.all(|member| self.is_at_rest(member.name)))
    }

    /// Whether the agent has made a network again for a request that is not done yet.
    pub(crate) fn is_made_for_request(&self, network: &str) -> bool {
        self.record.reopened.as_ref().is_some_and(|reopened| reopened.networks.contains(network))
    }

    /// Whether a user asked to repair the live state once.
    pub(crate) fn is_repair_requested(&self) -> bool {
        self.record.heal_once.as_ref().is_some_and(|stack| stack == self.revision())
    }

    /// Whether differences are undone. They are reported and left otherwise.
    pub(crate) fn heals(&self) -> bool {
        let policy = self.target.policy;
        (policy.self_heal || self.is_repair_requested()) && !policy.suspended
    }

    /// The hash of the desired stack.
    pub(crate) fn revision(&self) -> &StackHash {
        &self.target.hashes.stack
    }

    /// Whether the manifest or a user paused the rollouts of a workload.
    pub(crate) fn is_paused(&self, Subject { name, workload }: Subject<'_>) -> bool {
        workload.paused || self.record.paused.contains(name)
    }

    /// The failed commit, if its rollouts are paused and it is still the desired one.
    pub(crate) fn failed_commit(&self) -> Option<&'a FailedCommit> {
        *self.failed.get_or_init(|| {
            let failed = self.record.failed.as_ref()?;
            // The runs of CronJobs belong to no commit.
            failed.pauses(&StackHash::of(&without_runs(self.target.stack))).then_some(failed)
        })
    }

    /// Whether no instance of a workload may be replaced by one of a newer specification.
    pub(crate) fn is_rollout_paused(&self, subject: Subject<'_>) -> bool {
        self.is_paused(subject) || self.failed_commit().is_some()
    }

    /// The step that the canary of a desired workload has reached.
    pub(crate) fn canary<'w>(&self, Subject { name, workload }: Subject<'w>) -> Option<CurrentStep<'w>> {
        if workload.canary.is_empty() || self.is_settled() {
            return None;
        }
        current_step(self.record, name, workload, &self.spec(Subject { name, workload }))
    }

    /// The stack that this definition of a workload comes from: the desired one, or the reached one.
    pub(crate) fn stack_of(&self, subject: Subject<'_>) -> &'a Stack {
        match self.target.reached {
            Some(reached) if !self.is_desired(subject) => reached,
            Some(_) | None => self.target.stack,
        }
    }

    /// The spec hash of a workload.
    pub(crate) fn spec(&self, subject: Subject<'_>) -> SpecHash {
        self.target.spec(subject)
    }

    /// The name of an instance's container in Docker.
    pub(crate) fn container_name(&self, stack: &Stack, name: &WorkloadName, slot: u32) -> String {
        container_name_at(stack, name, slot, |workload| self.spec(Subject { name, workload }))
    }

    /// Whether this definition of a workload is the desired one, and not the one of the reached stack.
    pub(crate) fn is_desired(&self, subject: Subject<'_>) -> bool {
        self.target.is_desired(subject)
    }

    /// The image to create a workload's instances from.
    pub(crate) fn image(&self, workload: &Workload) -> String {
        self.target.image(workload)
    }

    /// Whether the engine has an image, for the platform that the workload needs. Under the name of an image that the agent
    /// makes itself, only the agent's own counts: its label says what it was made from. Under the name of any other one, an image that was
    /// built for another application counts only if that one shares it.
    pub(crate) fn has_image(&self, workload: &Workload, image: &str) -> bool {
        let Some(found) = self.observed.images.get(image) else { return false };
        let label = |name: &str| found.defaults.labels.get(name).map(String::as_str);
        match &workload.build {
            Some(build) if image == workload.container.image => label(label::BUILD) == Some(&build.digest),
            None if is_helper_image(image) => is_made_helper(image, label),
            Some(_) | None => {
                let app = self.target.stack.app.as_str();
                let is_usable = self.is_built(image) || !label::is_built_for_another_alone(app, label);
                is_usable && self.is_for_platform(workload, image, found)
            }
        }
    }

    /// The other application that the image of a name was built for, if that one does not share it.
    pub(crate) fn owner_alone(&self, image: &str) -> Option<&'a str> {
        let labels = &self.observed.images.get(image)?.defaults.labels;
        let label = |name: &str| labels.get(name).map(String::as_str);
        let is_alone = label::is_built_for_another_alone(self.target.stack.app.as_str(), label);
        let owner = labels.get(label::BUILT_BY).filter(|_| is_alone && !self.is_built(image))?;
        Some(owner.as_str())
    }

    /// Whether a workload of the application builds an image.
    fn is_built(&self, image: &str) -> bool {
        let stacks = [Some(self.target.stack), self.target.reached];
        let mut all = stacks.into_iter().flatten().flat_map(|stack| stack.workloads.values());
        all.any(|one| one.build.is_some() && one.container.image == image)
    }

    /// The key files that must have signed an image of a workload. Images that the agent makes itself have no signature.
    pub(crate) fn signature_keys(&self, workload: &Workload, image: &str) -> BTreeSet<PathBuf> {
        let rules = &self.target.policy.verify_images;
        // It may be built by another workload.
        if rules.is_empty() || is_helper_image(image) || self.is_built(image) {
            return BTreeSet::new();
        }
        let mut keys = signature_keys(rules, image);
        if image == self.image(workload) {
            // The reference of the manifest counts also where a rollback goes back to a digest.
            keys.extend(signature_keys(rules, &workload.container.image));
        }
        keys
    }

    /// Whether the image that a name stands for has all the signatures that it must have.
    pub(crate) fn is_verified(&self, workload: &Workload, image: &str) -> bool {
        let keys = self.signature_keys(workload, image);
        if keys.is_empty() {
            return true;
        }
        let is_known = |named: &String| {
            let named = ImageRef::parse(named);
            named.digest().is_some_and(|digest| self.record.verified_images.contains(digest, &keys))
        };
        self.observed.images.get(image).is_some_and(|found| found.digests_of(image).any(is_known))
    }

    /// Whether containers can be created from the image that is here, also when its registry does not answer. An image with an
    /// age is pulled before a creation, and used as it is if that fails.
    pub(crate) fn needs_no_pull(&self, workload: &Workload, image: &str, pull: PullPolicy) -> bool {
        pull != PullPolicy::Always && self.has_image(workload, image) && self.is_verified(workload, image)
    }

    /// The signature that the image of a workload must have before a container is created from it.
    pub(crate) fn required_signature(&self, workload: &Workload) -> RequiredSignature {
        let image = self.image(workload);
        if self.signature_keys(workload, &image).is_empty() {
            return RequiredSignature::None;
        }
        match self.observed.images.get(&image) {
            Some(found) if self.is_verified(workload, &image) => {
                RequiredSignature::Verified { id: found.id.clone() }
            }
            Some(_) | None => RequiredSignature::Unverified,
        }
    }

    /// The id of the image of a workload, if the agent made it.
    pub(crate) fn made_image(&self, workload: &Workload) -> Option<String> {
        let image = &workload.container.image;
        let is_made = workload.build.is_some() || is_helper_image(image);
        let found = self.observed.images.get(image).filter(|_| is_made && self.has_image(workload, image))?;
        Some(found.id.clone())
    }
}
