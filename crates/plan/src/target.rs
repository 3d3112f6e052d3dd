//! The target of a plan: the desired stack of one application, and the settings that limit the agent.

use std::collections::BTreeMap;

use driftless_model::{
    AgentId, Instance, Mask, Policy, Record, ReopenedStack, SpecHash, Stack, StackHashes, Subject, Workload,
    WorkloadName,
};

/// The desired state of one application, and what the agent may do to reach it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub stack: &'a Stack,
    /// The hashes of the desired stack.
    pub hashes: &'a StackHashes,
    /// The version that was reached last, while the desired one is another one or is not reached any more. Decisions about data, names,
    /// files and numbers ask what it had, and its workloads are kept while the desired stack has to wait. `None`: the desired stack is
    /// reached, or none was before.
    pub reached: Option<&'a Stack>,
    pub agent: &'a AgentId,
    pub policy: &'a Policy,
    /// Image digests to create from, by the manifest's reference: those of the revision of a rollback.
    pub images: &'a BTreeMap<String, String>,
    pub mask: &'a Mask,
}

impl<'a> Target<'a> {
    /// The definition that an instance was created from: the desired one or the one before it. If neither has its
    /// spec hash, the desired one is the best guess.
    pub(crate) fn definition(&self, instance: &Instance) -> Option<&'a Workload> {
        let name = &instance.instance.workload;
        let desired = self.stack.workloads.get(name);
        let before = self.reached.and_then(|it| it.workloads.get(name));
        // Equal definitions need no hash to tell them apart.
        if before.is_none_or(|before| desired.is_some_and(|it| it.is_like(before))) {
            return desired;
        }
        let is_of = |workload: &&Workload| self.spec(Subject { name, workload }) == instance.spec;
        desired.filter(is_of).or_else(|| before.filter(is_of)).or(desired)
    }

    /// Whether this definition of a workload is the desired one, and not the one of the reached stack.
    pub(crate) fn is_desired(&self, Subject { name, workload }: Subject<'_>) -> bool {
        let desired = self.stack.workloads.get(name);
        desired.is_some_and(|it| std::ptr::eq(it, workload) || it.is_like(workload))
    }

    /// Whether what is missing or too many of a workload is drift: all was as wanted before. Without self-heal, a request about other
    /// workloads makes no difference.
    pub(crate) fn is_at_rest(&self, record: &Record, name: &WorkloadName) -> bool {
        let stack = &self.hashes.stack;
        let is_other =
            |reopened: &ReopenedStack| reopened.stack == *stack && !reopened.workloads.contains(name);
        record.settled.as_ref() == Some(stack)
            || (!self.policy.self_heal && record.reopened.as_ref().is_some_and(is_other))
    }

    /// The spec hash of a workload. It is known for a desired one.
    pub(crate) fn spec(&self, subject: Subject<'_>) -> SpecHash {
        let known = self.hashes.specs.get(subject.name).filter(|_| self.is_desired(subject));
        known.cloned().unwrap_or_else(|| subject.workload.spec())
    }

    /// The image to create a workload's instances from.
    pub(crate) fn image(&self, workload: &Workload) -> String {
        self.pinned_image(workload).unwrap_or(&workload.container.image).clone()
    }

    /// The digest that a rollback goes back to. An image that is built here is named by its content, and no registry
    /// has it.
    pub(crate) fn pinned_image(&self, workload: &Workload) -> Option<&'a String> {
        self.images.get(&workload.container.image).filter(|_| workload.build.is_none())
    }
}
