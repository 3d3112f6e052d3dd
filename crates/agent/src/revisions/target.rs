//! The target of a round.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_model::{
    AgentId, Cause, CommitInfo, Image, Mask, Observed, Pin, Policy, Record, Stack, StackHash, StackHashes,
    Timestamp,
};
use driftless_plan::{Plan, Round, Target, service_digests, with_runs};

/// The target of a round: a stack, and the commit and policy that it comes with.
pub(crate) struct TargetRevision {
    pub(crate) stack: Arc<Stack>,
    /// The hash of the stack as Git has it, without the runs of CronJobs.
    pub(crate) hash: StackHash,
    /// The hashes of the stack and of its workloads.
    pub(crate) hashes: Arc<StackHashes>,
    pub(crate) commit: CommitInfo,
    pub(crate) policy: Policy,
    /// Why the target is an older revision, if it is.
    pub(crate) pin: Option<Pin>,
    /// The revision that the application went back to because the newest commit failed.
    pub(crate) back_to: Option<u64>,
    /// The application is removed once its `PreDelete` hooks have succeeded. Until then it is kept as it is.
    pub(crate) is_leaving: bool,
    /// Image digests by reference to create containers from, while the target is an older revision.
    pub(crate) images: BTreeMap<String, String>,
    pub(crate) cause: Cause,
    /// After a loss of state, a commit that may never have been applied. It is only compared with the live state. If it
    /// runs, this is its policy.
    pub(crate) unconfirmed: Option<Policy>,
}

impl TargetRevision {
    /// A target without a pin. Its hashes are made here.
    pub(crate) fn new(stack: Arc<Stack>, commit: CommitInfo, policy: Policy, cause: Cause) -> Self {
        let hashes = Arc::new(StackHashes::of(&stack));
        Self::of_hashed(stack, hashes, commit, policy, cause)
    }

    /// As [`TargetRevision::new`], for a stack with known hashes.
    pub(crate) fn of_hashed(
        stack: Arc<Stack>,
        hashes: Arc<StackHashes>,
        commit: CommitInfo,
        policy: Policy,
        cause: Cause,
    ) -> Self {
        let images = BTreeMap::new();
        Self {
            stack,
            hash: hashes.stack.clone(),
            hashes,
            commit,
            policy,
            pin: None,
            back_to: None,
            is_leaving: false,
            images,
            cause,
            unconfirmed: None,
        }
    }

    /// The same target, which is only compared with the live state.
    pub(crate) fn kept_back(&self) -> Self {
        let (stack, hashes) = (Arc::clone(&self.stack), Arc::clone(&self.hashes));
        let policy = Policy { suspended: true, ..self.policy.clone() };
        Self::of_hashed(stack, hashes, self.commit.clone(), policy, self.cause.clone())
    }

    /// Whether the target is the newest commit that may be applied, and nothing older.
    pub(crate) fn is_newest(&self) -> bool {
        self.pin.is_none() && self.back_to.is_none() && self.unconfirmed.is_none()
    }

    /// The round by which the revision of this target is judged.
    pub(crate) fn judged<'a>(
        &'a self,
        observed: &'a Observed,
        record: &'a Record,
        plan: &'a Plan,
        now: Timestamp,
    ) -> Round<'a> {
        let Self { stack, hashes, policy, .. } = self;
        Round { stack, hashes, policy, observed, record, plan, now }
    }

    /// Adds the runs of CronJobs and hooks in the record to the stack. Its hash stays that of Git.
    pub(crate) fn add_runs(&mut self, record: &Record) {
        if let Some(whole) = stack_with_runs(&self.stack, record) {
            self.hashes = Arc::new(StackHashes::of(&whole));
            self.stack = whole;
        }
    }

    /// The target as the planner takes it.
    pub(crate) fn for_planner<'a>(
        &'a self,
        reached: Option<&'a Stack>,
        agent: &'a AgentId,
        mask: &'a Mask,
    ) -> Target<'a> {
        let Self { stack, hashes, policy, images, .. } = self;
        Target { stack, hashes, reached, agent, policy, images, mask }
    }
}

/// The stack with the runs in the record, if there are any.
pub(crate) fn stack_with_runs(stack: &Stack, record: &Record) -> Option<Arc<Stack>> {
    match with_runs(stack, record) {
        Cow::Owned(whole) => Some(Arc::new(whole)),
        Cow::Borrowed(_) => None,
    }
}

/// The digest of each image on this host, or of a Swarm's services, by reference.
pub(crate) fn image_digests(stack: &Stack, observed: &Observed) -> BTreeMap<String, String> {
    if observed.swarm.is_some() {
        return service_digests(stack, observed);
    }
    // The images of older versions are observed, too.
    let named: BTreeSet<&String> = stack.images().collect();
    let own = observed.images.iter().filter(|(name, _)| named.contains(name));
    let digest = |(name, image): (&String, &Image)| Some((name.clone(), image.digest_of(name)?.clone()));
    own.filter_map(digest).collect()
}
