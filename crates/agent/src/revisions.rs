//! What an application is to be at this moment: the newest good commit, the pinned revision, or what was last
//! reached. And the revisions and pins that follow from it.

use std::{collections::BTreeMap, sync::Arc};

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::{
    AppName, Cause, CommitInfo, Contents, EventKind, Finding, Image, Mask, Observed, Outcome, Pin, Policy,
    Stack, StackHash, Timestamp, Until,
};
use driftless_plan::{Plan, Target, Wait, is_in_force, note_settled, without_runs};
use driftless_store as store;
use driftless_store::NewRevision;

use crate::{
    app::App,
    desired::{Orders, Presence},
    error::chain,
    repository::Wanted,
    revision_changes,
};

/// The target of a round.
pub(crate) struct Goal {
    pub(crate) stack: Arc<Stack>,
    pub(crate) hash: StackHash,
    pub(crate) commit: CommitInfo,
    pub(crate) contents: Arc<Contents>,
    pub(crate) policy: Policy,
    pub(crate) pin: Option<Pin>,
    /// Digests to create from, while pinned.
    pub(crate) images: BTreeMap<String, String>,
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) cause: Cause,
    /// After a loss of state nobody knows whether this commit was ever to be applied: it is only compared with what
    /// runs. If it is what runs, this policy applies.
    pub(crate) unconfirmed: Option<Policy>,
}

impl<D: Docker, S: Source> App<D, S> {
    /// Chooses the target. `None`: nothing was ever good enough to be applied.
    pub(crate) fn chosen(&mut self) -> Result<Option<Goal>, store::Error> {
        let wanted = Arc::clone(&self.orders.wanted);
        self.forget_fruitless_ask();
        let mut policy = wanted.policy.clone();
        policy.suspended |= self.shared.store.suspended(&self.name)?;
        if let Some(pin) = self.pin()? {
            let revision = self.shared.store.revision(&self.name, pin.revision)?;
            let stack = self.shared.store.stack(&self.name, pin.revision)?;
            if let (Some(revision), Some(stack)) = (revision, stack) {
                return Ok(Some(Goal {
                    hash: StackHash::of(&stack),
                    stack: Arc::new(stack),
                    commit: revision.commit,
                    contents: Arc::clone(&wanted.contents),
                    policy,
                    pin: Some(pin),
                    images: revision.images,
                    wanted,
                    cause: Cause::Rollback,
                    unconfirmed: None,
                }));
            }
        }
        if self.loss.is_some() {
            return self.goal_after_loss(wanted, policy);
        }
        if self.orders.presence == Presence::Gone {
            return self.goal_when_gone(wanted, policy);
        }
        let may_be_applied = !self.orders.objections.iter().any(Finding::is_error);
        if let Some(stack) = wanted.stack.clone().filter(|_| may_be_applied) {
            return Ok(Some(Goal {
                hash: StackHash::of(&stack),
                stack,
                commit: wanted.commit.clone(),
                contents: Arc::clone(&wanted.contents),
                policy,
                pin: None,
                images: BTreeMap::new(),
                cause: self.cause_of_next(),
                wanted,
                unconfirmed: None,
            }));
        }
        self.goal_of_before(wanted, policy)
    }

    /// What is fetched after a fetch that brought nothing is not what somebody asked for.
    pub(crate) fn forget_fruitless_ask(&mut self) {
        let Orders { wanted, fetched_at, .. } = &self.orders;
        let is_fruitless = |(commit, at): &(String, Timestamp)| {
            *commit == wanted.commit.id && fetched_at.is_some_and(|it| it > *at)
        };
        self.asked = self.asked.take().filter(|it| !is_fruitless(it));
    }

    /// What was last asked for and could be applied, while the newest word cannot.
    fn goal_of_before(&self, wanted: Arc<Wanted>, policy: Policy) -> Result<Option<Goal>, store::Error> {
        let Some(revision) = &self.revision else { return Ok(None) };
        let Some(stack) = self.shared.store.stack(&self.name, revision.number)? else { return Ok(None) };
        Ok(Some(Goal {
            hash: StackHash::of(&stack),
            stack: Arc::new(stack),
            commit: revision.commit.clone(),
            contents: Arc::clone(&wanted.contents),
            policy,
            pin: None,
            images: BTreeMap::new(),
            wanted,
            cause: Cause::Commit,
            unconfirmed: None,
        }))
    }

    /// While pins and suspensions may be lost, the last known revision stays the target. Without one, the newest
    /// commit is compared with what runs, and nothing is changed.
    fn goal_after_loss(&self, wanted: Arc<Wanted>, mut policy: Policy) -> Result<Option<Goal>, store::Error> {
        if self.revision.is_some() {
            policy.suspended |= self.orders.presence == Presence::Gone;
            return self.goal_of_before(wanted, policy);
        }
        let Some(stack) = wanted.stack.clone() else { return Ok(None) };
        Ok(Some(Goal {
            hash: StackHash::of(&stack),
            stack,
            commit: wanted.commit.clone(),
            contents: Arc::clone(&wanted.contents),
            policy: Policy { suspended: true, ..policy.clone() },
            pin: None,
            images: BTreeMap::new(),
            wanted,
            cause: Cause::Start,
            unconfirmed: Some(policy),
        }))
    }

    /// Learns whether state was lost. An application whose containers are ours and of which nothing is stored was
    /// managed before. True: the target has to be chosen again.
    pub(crate) fn note_loss(&mut self, observed: &Observed) -> Result<bool, store::Error> {
        if std::mem::replace(&mut self.is_known, true) || self.revision.is_some() || self.loss.is_some() {
            return Ok(false);
        }
        let agent = &self.shared.agent;
        let Some(found) = observed.instances.values().find(|instance| instance.agent == *agent) else {
            return Ok(false);
        };
        let what = format!("the state directory knows nothing of the container {}", found.name);
        self.shared.store.note_loss(&what)?;
        // The other applications and `/readyz` report it too.
        self.shared.wakes.wake_all();
        self.shared.news.notify_one();
        Ok(true)
    }

    /// Reads whether state was lost, and reports it once.
    pub(crate) fn read_loss(&mut self) -> Result<(), store::Error> {
        let loss = self.shared.store.loss()?;
        match (&self.loss, &loss) {
            (None, Some(what)) => {
                let message = format!("{}: {what}", lost_state(&self.name));
                tracing::warn!(app = %self.name, what, "state was lost; no new commit is applied until `driftless recover`");
                self.tell(EventKind::Warning, "StateLost", self.name.as_str(), &message);
            }
            (Some(_), None) => {
                self.tell(
                    EventKind::Normal,
                    "Recovered",
                    self.name.as_str(),
                    "new commits are applied again",
                );
            }
            _ => {}
        }
        self.loss = loss;
        Ok(())
    }

    /// Takes the newest commit for the applied one if it is what runs. True: the target has to be chosen again.
    pub(crate) fn confirm(&mut self, goal: &mut Goal, observed: &Observed) -> bool {
        let Some(policy) = goal.unconfirmed.take() else { return false };
        if policy.suspended || !is_in_force(&goal.stack, observed, &self.shared.agent) {
            return false;
        }
        goal.policy = policy;
        self.begin_revision(goal);
        self.revision.is_some()
    }

    /// With `prune` it is to be nothing at all; without, it is looked at and left alone.
    fn goal_when_gone(&self, wanted: Arc<Wanted>, mut policy: Policy) -> Result<Option<Goal>, store::Error> {
        if !policy.prune {
            policy.suspended = true;
            return self.goal_of_before(wanted, policy);
        }
        let Some(mut goal) = self.goal_of_before(wanted, policy)? else { return Ok(None) };
        let mut stack = Stack::clone(&goal.stack);
        stack.workloads.clear();
        stack.networks.clear();
        stack.volumes.clear();
        stack.app_files.clear();
        (goal.hash, goal.stack) = (StackHash::of(&stack), Arc::new(stack));
        Ok(Some(goal))
    }

    fn cause_of_next(&self) -> Cause {
        match &self.revision {
            None => Cause::Start,
            Some(before) if before.cause == Cause::Rollback => Cause::Resume,
            Some(before) if before.commit.id == self.orders.wanted.commit.id => Cause::Configuration,
            // What the fetch brought that somebody asked for is theirs; what a later one brings is not.
            Some(_) if self.asked.is_some() => Cause::User,
            Some(_) => Cause::Commit,
        }
    }

    /// The pin, if it has not come to its end.
    fn pin(&mut self) -> Result<Option<Pin>, store::Error> {
        let Some(pin) = self.shared.store.pin(&self.name)? else { return Ok(None) };
        let head = &self.orders.wanted.commit.id;
        let is_new = !head.is_empty() && *head != pin.commit && pin.skip.as_ref() != Some(head);
        let has_good_head = self.orders.wanted.stack.is_some();
        let is_over = match pin.until {
            Until::Manual => false,
            Until::NextCommit => is_new && has_good_head,
            // A pin that runs out does not go back to the very commit that was fled from.
            Until::Time(end) => self.shared.clock.now() >= end && is_new,
        };
        if is_over {
            self.shared.store.clear_pin(&self.name)?;
            self.tell(
                EventKind::Normal,
                "PinReleased",
                &format!("revision {}", pin.revision),
                "the pin ended",
            );
            return Ok(None);
        }
        Ok(Some(pin))
    }

    /// The stack that was last reached, to keep it while the new one cannot be had.
    pub(crate) fn fallback(&self, goal: &Goal) -> Option<Stack> {
        let last = self.shared.store.last_succeeded(&self.name).ok()??;
        if last.stack == goal.hash {
            return None;
        }
        self.shared.store.stack(&self.name, last.number).ok()?
    }

    /// Counts a new target: a new generation, and pauses begin anew.
    pub(crate) fn note_target(&mut self, goal: &Goal) {
        let key = (goal.hash.clone(), goal.pin.as_ref().map(|it| it.revision), goal.policy.clone());
        if self.goal_key.as_ref() == Some(&key) {
            return;
        }
        let is_first = self.goal_key.is_none();
        let is_other_stack = self.goal_key.as_ref().is_none_or(|it| it.0 != key.0);
        self.goal_key = Some(key);
        self.generation = self.generation.saturating_add(1);
        if is_other_stack && !is_first {
            self.record.failures.clear();
            self.record.sync = None;
        }
        let spec = serde_json::json!({ "path": goal.wanted.spec.path, "format": goal.stack.format });
        if let Err(error) = self.shared.store.remember_application(&self.name, &spec, &goal.wanted.repository)
        {
            tracing::warn!(app = %self.name, %error, "the application is not remembered");
        }
    }

    /// Writes down that a new stack is being applied, before anything is done about it.
    pub(crate) fn begin_revision(&mut self, goal: &Goal) {
        let is_new = self.revision.as_ref().is_none_or(|it| it.stack != goal.hash);
        if !is_new || goal.policy.suspended {
            return;
        }
        let before = self
            .revision
            .as_ref()
            .and_then(|it| self.shared.store.stack(&self.name, it.number).ok().flatten());
        let new = NewRevision {
            app: self.name.clone(),
            commit: goal.commit.clone(),
            reference: goal.wanted.reference.clone(),
            cause: goal.cause.clone(),
            changes: revision_changes::describe(
                before.as_ref(),
                &without_runs(&goal.stack),
                &self.mask_of(&goal.stack, before.as_ref()),
            ),
            rollback_of: goal.pin.as_ref().map(|it| it.revision),
        };
        match self.shared.store.begin_revision(&new, &without_runs(&goal.stack)) {
            Ok(revision) => {
                self.asked = None;
                let object = format!("revision {}", revision.number);
                let message = format!("applying {} ({})", goal.commit.short(), goal.commit.subject);
                tracing::info!(app = %self.name, revision = revision.number, commit = goal.commit.short(), "applying");
                self.tell(EventKind::Normal, "SyncStarted", &object, &message);
                self.revision = Some(revision);
            }
            Err(error) => {
                tracing::warn!(app = %self.name, error = chain(&error), "the revision is not written down");
            }
        }
    }

    /// Hides what the stacks call secret too, also where it still runs and is not asked for any more.
    pub(crate) fn mask_of(&self, stack: &Stack, before: Option<&Stack>) -> Mask {
        self.shared.mask.with_stacks(std::iter::once(stack).chain(before))
    }

    /// All is as Git says: the revision is reached, and from now on what differs is drift.
    pub(crate) fn arrive(&mut self, goal: &Goal, target: &Target<'_>, observed: &Observed) {
        note_settled(&mut self.record, target, observed);
        let instances = observed.instances.values().map(|it| it.instance.clone()).collect();
        if let Err(error) = self.shared.contents.keep_in_place(&self.name, &instances) {
            tracing::warn!(app = %self.name, error = chain(&error), "files of former containers are not removed");
        }
        self.record.failures.clear();
        if goal.policy.suspended {
            return;
        }
        self.begin_revision(goal);
        self.conclude(Outcome::Succeeded, digests(observed));
        if self.orders.presence == Presence::Gone
            && goal.stack.workloads.is_empty()
            && let Err(error) = self.shared.store.forget_application(&self.name)
        {
            tracing::warn!(app = %self.name, error = chain(&error), "the application is not forgotten");
        }
    }

    /// A rollout that comes no further is a failed revision; it goes on being tried all the same.
    pub(crate) fn check_deadline(&mut self, plan: &Plan) {
        let stuck = plan.waits.iter().find(|it| matches!(it, Wait::ProgressDeadlineExceeded { .. }));
        if let Some(wait) = stuck
            && self.revision.as_ref().is_some_and(|it| it.outcome == Outcome::InProgress)
        {
            self.conclude(Outcome::Failed { reason: wait.to_string() }, BTreeMap::new());
        }
    }

    fn conclude(&mut self, outcome: Outcome, images: BTreeMap<String, String>) {
        let Some(revision) = &mut self.revision else { return };
        if revision.outcome == outcome {
            return;
        }
        let number = revision.number;
        if let Err(error) = self.shared.store.finish_revision(&self.name, number, &outcome, &images) {
            tracing::warn!(app = %self.name, error = chain(&error), "the outcome of the revision is not written down");
            return;
        }
        revision.outcome = outcome.clone();
        revision.finished = Some(self.shared.clock.now());
        revision.images = images;
        let object = format!("revision {number}");
        match outcome {
            Outcome::Succeeded => {
                tracing::info!(app = %self.name, revision = number, "synced");
                self.tell(EventKind::Normal, "SyncSucceeded", &object, "everything is as Git says");
            }
            Outcome::Failed { reason } => self.tell(EventKind::Warning, "SyncFailed", &object, &reason),
            Outcome::InProgress | Outcome::Superseded => {}
        }
    }
}

/// What an application does after a loss of state, and how that ends.
pub(crate) fn lost_state(app: &AppName) -> String {
    format!(
        "pins and suspensions may be lost, so no new commit is applied: set them again with `driftless rollback {app}` or `driftless suspend {app}`, then run `driftless recover`"
    )
}

/// By digest, what each image reference stands for on this host now.
fn digests(observed: &Observed) -> BTreeMap<String, String> {
    let own = |(name, image): (&String, &Image)| Some((name.clone(), image.digest_of(name)?.clone()));
    observed.images.iter().filter_map(own).collect()
}
