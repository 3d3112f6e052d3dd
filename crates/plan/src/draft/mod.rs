//! The plan that is being written: its steps and waits so far.
//!
//! This module knows how steps are written down. Which steps are due is decided in [`crate::decide`].

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{ContainerId, Peer, PlatformImage, Timestamp, Workload, WorkloadName};

use crate::{
    action::Action,
    cause::Cause,
    facts::Facts,
    steps::{Plan, Step},
    text,
    wait::Wait,
};

mod connections;
pub(crate) mod heal;
pub(crate) mod instances;
pub(crate) mod names;
pub(crate) mod slots;

/// The plan of one round while it is written.
pub(crate) struct Draft<'a> {
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) plan: Plan,

    // Filled by `decide::images`, and read by all that is planned after it.
    /// Steps that pull or build an image, by image and the platform that is asked for.
    pub(crate) pulls: BTreeMap<PlatformImage, usize>,
    /// Workloads with an image that cannot be pulled or built now. While there is one, nothing is stopped for the commit.
    pub(crate) missing_images: BTreeSet<WorkloadName>,
    /// Workloads that are kept at an older version whose image cannot be had now. That holds back nothing of the commit.
    pub(crate) kept_without_image: BTreeSet<WorkloadName>,
    /// Whether images that the commit needs are pulled or built in this round.
    pub(crate) is_fetching: bool,

    // Steps by object, for the steps that have to come after them.
    /// Steps that create a network or volume, by name.
    pub(crate) provided: BTreeMap<String, usize>,
    /// Networks that Git has changed and that stay as they are for now.
    pub(crate) kept_networks: BTreeSet<String>,
    /// Steps that remove an instance.
    pub(crate) removed: BTreeMap<ContainerId, usize>,
    /// Steps that rename an instance.
    pub(crate) renamed: BTreeMap<ContainerId, usize>,
    /// Steps that connect an instance to a network that is replaced.
    pub(crate) reconnected: BTreeMap<ContainerId, Vec<usize>>,
    /// Steps that stop an instance.
    pub(crate) stopped: BTreeMap<ContainerId, usize>,
    /// Steps that start an instance again after it was stopped.
    pub(crate) started: BTreeMap<ContainerId, usize>,

    // Facts about workloads and instances that were found while others were planned.
    /// Workloads with containers that Docker Compose started and nobody adopted.
    pub(crate) not_adopted: BTreeSet<WorkloadName>,
    /// Containers of services that Git does not have any more, which do not run and are started again, because they have to stay for now.
    pub(crate) returning: BTreeSet<ContainerId>,
    /// Workloads that wait for `PreSync` hooks or a lower wave, and do not go back. Their containers keep the files that they have read.
    pub(crate) without_turn: BTreeSet<WorkloadName>,
    /// Instances with anonymous volumes that were given to a successor, by the key in the record.
    pub(crate) inherited: BTreeSet<String>,
    /// Numbers of instances that somebody removed, and that are not created again because self-heal is off.
    pub(crate) absent: BTreeMap<WorkloadName, usize>,
    /// Number of differences that are reported and left.
    pub(crate) reported: usize,

    // About the workload that is planned at the moment.
    /// Number of further containers of the planned workload that may be started.
    pub(crate) starts_left: usize,
    /// The containers that new instances of a workload share namespaces or volumes with.
    pub(crate) peers: BTreeMap<WorkloadName, BTreeMap<Peer, ContainerId>>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(facts: &'a Facts<'a>) -> Self {
        let mask = facts.target.mask;
        let printed = facts.observed.containers().filter(|it| !it.last_output.is_empty());
        let outputs = printed.map(|it| (it.instance.clone(), text::output(&it.last_output, mask))).collect();
        Self {
            facts,
            plan: Plan { outputs, ..Plan::default() },
            pulls: BTreeMap::new(),
            missing_images: BTreeSet::new(),
            kept_without_image: BTreeSet::new(),
            is_fetching: false,
            provided: BTreeMap::new(),
            kept_networks: BTreeSet::new(),
            removed: BTreeMap::new(),
            renamed: BTreeMap::new(),
            reconnected: BTreeMap::new(),
            stopped: BTreeMap::new(),
            started: BTreeMap::new(),
            not_adopted: BTreeSet::new(),
            returning: BTreeSet::new(),
            without_turn: BTreeSet::new(),
            inherited: BTreeSet::new(),
            absent: BTreeMap::new(),
            reported: 0,
            starts_left: 0,
            peers: BTreeMap::new(),
        }
    }

    /// Appends a step. Returns its index.
    pub(crate) fn push(&mut self, action: Action, cause: Cause, mut after: Vec<usize>) -> usize {
        after.sort_unstable();
        after.dedup();
        self.plan.steps.push(Step { action, cause, after });
        self.plan.steps.len() - 1
    }

    /// Adds a wait, once.
    pub(crate) fn wait(&mut self, wait: Wait) {
        if !self.plan.waits.contains(&wait) {
            self.plan.waits.push(wait);
        }
    }

    /// Plans again at this time at the latest.
    pub(crate) fn look_again(&mut self, at: Timestamp) {
        self.plan.look_again = Some(self.plan.look_again.map_or(at, |before| before.min(at)));
    }

    /// Whether this plan stops or removes a container.
    pub(crate) fn ends(&self, id: &ContainerId) -> bool {
        self.removed.contains_key(id) || self.stopped.contains_key(id)
    }

    /// Whether the containers of a workload keep the files that they have read: its turn has not come, or an image of the commit is not
    /// here yet.
    pub(crate) fn keeps_files(&self, name: &WorkloadName) -> bool {
        self.is_fetching || !self.missing_images.is_empty() || self.without_turn.contains(name)
    }

    /// The names of the workloads with missing images, for messages.
    pub(crate) fn missing_image_names(&self) -> Vec<String> {
        self.missing_images.iter().map(ToString::to_string).collect()
    }

    /// The step that pulls or builds an image of a workload.
    pub(crate) fn pull_of(&self, workload: &Workload, image: &str) -> Option<usize> {
        self.pulls.get(&self.facts.asked_image(workload, image)).copied()
    }

    /// Notes the step that pulls or builds an image of a workload.
    pub(crate) fn note_pull(&mut self, workload: &Workload, image: &str, step: usize) {
        self.pulls.insert(self.facts.asked_image(workload, image), step);
    }

    /// The steps that pull or build images.
    pub(crate) fn pull_steps(&self) -> Vec<usize> {
        self.pulls.values().copied().collect()
    }

    /// The finished plan.
    pub(crate) fn finish(mut self) -> Plan {
        let is_suspended = self.facts.target.policy.suspended;
        if self.reported > 0 && !is_suspended {
            self.wait(Wait::self_heal_off(self.reported));
        }
        if is_suspended {
            self.plan.steps.clear();
            self.plan.removed_from.clear();
            self.wait(Wait::suspended());
        }
        self.plan
    }
}
