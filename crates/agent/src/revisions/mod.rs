//! The revisions of one application: which one is the target of a round, when a new one begins, and how it ends.
//! A revision is written to the database before its first step is performed.

pub(crate) mod behind;
pub(crate) mod changes;
pub(crate) mod last_version;
pub(crate) mod overtaken;
pub(crate) mod pins;
mod restoration;
pub(crate) mod stored;
pub(crate) mod stored_stack;
pub(crate) mod target;
pub(crate) mod user_requests;

use std::{collections::BTreeMap, sync::Arc};

use driftless_git::CommitSource;
use driftless_model::{
    Actor, AdmissionPolicy, Adopted, Cause, CommitInfo, EngineKind, EventKind, FailedCommit, Mask,
    NewestStack, Observed, OnFailure, Outcome, Pin, PinStatus, Policy, REVISION_ELSEWHERE, Record, Revision,
    Stack, StackHash, Timestamp,
};
use driftless_plan::{CommitSpan, Round, differ_in_images_only, is_in_force, may_be_deleted, without_runs};
use driftless_store as store;
use driftless_store::NewRevision;

use crate::{
    commits::{
        failure::{failed_now, hash_as_target, last_healthy, report_failed_commit},
        held_commit::HeldCommit,
        holds::CommitHolds,
    },
    context::AppContext,
    desired::Desired,
    error::chain,
    hooks,
    images::resolved_stack::ResolvedStack,
    log_span,
    record::StoredRecord,
    revisions::{
        behind::CommitsBehind,
        overtaken::{is_unreached, open_since},
        pins::{current_pin, end_unreadable_pin},
        restoration::Restoration,
        stored::{forget, policy_now, read_revision},
        stored_stack::StoredStack,
        target::{TargetRevision, image_digests},
        user_requests::UserRequests,
    },
    state_loss::{EngineCheck, Loss, StateLoss},
    swarm::{has_services, state::forget_failed_updates},
};

/// The reason of the event of a revision that is synced.
pub(crate) const SYNC_SUCCEEDED: &str = "SyncSucceeded";

/// The revisions of one application.
pub(crate) struct Revisions {
    /// The newest revision.
    current: Option<Revision>,
    /// When the first of those revisions began that were overtaken before they were reached, up to the newest one.
    open_since: Option<Timestamp>,
    last_target: Option<TargetKey>,
    requests: UserRequests,
    behind: CommitsBehind,
    departure: Departure,
    /// Git does not have the application any more, and no container of it is left.
    has_vanished: bool,
    /// The application was removed, and is not in the database any more.
    is_forgotten: bool,
    /// It has come back since, and the commit that brought it back is not noted yet.
    is_back: bool,
    loss: StateLoss,
    restoration: Restoration,
    holds: CommitHolds,
    resolved: ResolvedStack,
    stored: StoredStack,
}

/// The commit that an application has left Git with, as far as this run of the agent has seen it.
#[derive(Default)]
enum Departure {
    /// Git did not have the application since the agent started: it may have left with an earlier commit.
    #[default]
    Unseen,
    /// Git has it, or had it when it was last known.
    InGit,
    /// The first commit that was read without it.
    LeftWith(CommitInfo),
}

/// The properties of a target that make it another one than that of the last round.
#[derive(PartialEq, Eq)]
struct TargetKey {
    stack: StackHash,
    pinned: Option<u64>,
    back_to: Option<u64>,
    policy: Policy,
}

impl Revisions {
    /// Continues with the newest revision in the database.
    pub(crate) fn load(context: &AppContext) -> Self {
        let loss = StateLoss::default();
        let history = context.readable_revisions().unwrap_or_default();
        Self {
            current: history.first().cloned(),
            open_since: open_since(&history),
            last_target: None,
            requests: UserRequests::default(),
            behind: CommitsBehind::default(),
            departure: Departure::default(),
            has_vanished: false,
            is_forgotten: false,
            is_back: false,
            loss,
            restoration: Restoration::load(context),
            holds: CommitHolds::default(),
            resolved: ResolvedStack::default(),
            stored: StoredStack::default(),
        }
    }

    /// Forgets the newest revision. It stays in the database.
    pub(crate) fn forget_current(&mut self) {
        (self.current, self.open_since, self.last_target) = (None, None, None);
    }

    /// The time of the newest revision, with the revisions that it has overtaken.
    pub(crate) fn span(&self, current: &Revision) -> CommitSpan {
        let started = current.started;
        CommitSpan { started, open_since: self.open_since.map_or(started, |at| at.min(started)) }
    }

    /// The newest revision, in progress or ended.
    pub(crate) fn current(&self) -> Option<&Revision> {
        self.current.as_ref()
    }

    /// Chooses the target: the pinned revision, else the newest commit if it may be applied, else the last stack that
    /// was applied. `None`: no commit could ever be applied. The stack includes the runs of CronJobs in the record.
    pub(crate) fn target(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        record: &Record,
    ) -> Result<Option<TargetRevision>, store::Error> {
        self.note_fetch(desired);
        self.note_left(desired);
        let mut target = self.choose(context, desired, record)?;
        if let Some(newest) = &target
            && let Some(older) = self.skip_failed(context, newest, record)?
        {
            target = Some(older);
        }
        if let Some(target) = &mut target {
            target.add_runs(record);
        }
        Ok(target)
    }

    /// The revision that the application went back to, instead of the commit that failed. If its stack is lost, as with the key of the
    /// database, nothing is changed until the next commit, or until a user asks for another try.
    fn skip_failed(
        &mut self,
        context: &AppContext,
        newest: &TargetRevision,
        record: &Record,
    ) -> Result<Option<TargetRevision>, store::Error> {
        let failed = record.failed.as_ref().filter(|failed| failed.stack == newest.hash);
        let number = failed.and_then(|failed| failed.back_to).filter(|_| newest.is_newest());
        let Some((failed, number)) = failed.zip(number) else { return Ok(None) };
        let older = read_revision(context, number, newest.policy.clone(), Cause::AutomaticRollback)?;
        // The agent may have ended between the decision and the outcome.
        self.fail_current(context, failed);
        let older = older.unwrap_or_else(|| newest.kept_back());
        Ok(Some(TargetRevision { back_to: Some(number), ..older }))
    }

    fn choose(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        record: &Record,
    ) -> Result<Option<TargetRevision>, store::Error> {
        let held_before = self.holds.take();
        let (mut policy, pin) = (policy_now(context, desired)?, current_pin(context, desired)?);
        // The managers of a Swarm share what was applied.
        policy.suspended |= pin.is_none() && policy.engine != EngineKind::Swarm && self.awaits_fetch(desired);
        let target = match self.target_after_restore(context, desired, record, &policy, pin.as_ref()) {
            Some(target) => Some(target),
            None => self.choose_with(context, desired, record, policy, pin)?,
        };
        self.holds.report(context, desired, held_before.as_ref());
        Ok(target)
    }

    /// The target once a user has ended the pin and the suspension, and the newest commit if it is held back then. It changes
    /// nothing. The record has no failed commit any more.
    pub(crate) fn target_after_resume(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        record: &Record,
    ) -> Result<(Option<TargetRevision>, Option<HeldCommit>), store::Error> {
        let before = self.holds.clone();
        _ = self.holds.take();
        let policy = desired.rendered().policy.clone();
        let target = self.choose_with(context, desired, record, policy, None);
        let held = std::mem::replace(&mut self.holds, before).take();
        let mut target = target?;
        if let Some(target) = &mut target {
            target.add_runs(record);
        }
        Ok((target, held))
    }

    fn choose_with(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        record: &Record,
        mut policy: Policy,
        pin: Option<Pin>,
    ) -> Result<Option<TargetRevision>, store::Error> {
        self.holds.continue_from(record);
        policy.engine = engine_of(desired, record);
        if record.removal.is_some() && desired.may_be_removed() {
            return self.target_of_removal(context, policy, record);
        }
        // Nothing is known of the revision, so what runs of it stays.
        let is_elsewhere = pin.as_ref().is_some_and(|pin| pin.revision == REVISION_ELSEWHERE);
        policy.suspended |= is_elsewhere;
        if let Some(pin) = pin.filter(|_| !is_elsewhere) {
            let pinned = read_revision(context, pin.revision, policy.clone(), Cause::Rollback)?;
            if let Some(target) = pinned {
                return Ok(Some(TargetRevision { pin: Some(pin), ..target }));
            }
            if self.loss.lost().is_none() {
                end_unreadable_pin(context, &pin)?;
            }
        }
        if self.loss.lost().is_some() {
            return self.target_after_loss(context, desired, policy, record);
        }
        if desired.is_gone() {
            return self.target_when_gone(context, desired, policy, record);
        }
        let newest = desired.applicable_stack().zip(desired.rendered().hashes.as_ref());
        if let Some((stack, hashes)) = newest {
            let ((stack, hashes), commit) =
                (self.resolved.of(stack, hashes, record), desired.commit().clone());
            let cause = self.cause_of_next(desired);
            let newest = TargetRevision::of_hashed(stack, hashes, commit, policy.clone(), cause);
            // The way back after a failure is no new commit, and nothing holds it.
            let older = self.skip_failed(context, &newest, record)?;
            let is_new = older.is_none() && self.is_new(&newest, record);
            if !self.holds.hold(context, desired, &newest, record, is_new) {
                return Ok(Some(older.unwrap_or(newest)));
            }
        }
        if self.follows_removal(desired) {
            return Ok(None);
        }
        self.last_target_stack(context, policy)
    }

    /// Whether Git has the application again after a removal, which is nothing to keep to.
    fn follows_removal(&self, desired: &Desired) -> bool {
        desired.is_in_git() && self.current.as_ref().is_some_and(Revision::is_removal)
    }

    /// Whether neither this agent nor one on another manager of the Swarm has applied it.
    fn is_new(&self, newest: &TargetRevision, record: &Record) -> bool {
        let applied = record.swarm.as_ref().and_then(|kept| kept.shared.applied.as_ref());
        self.current.as_ref().is_none_or(|current| current.stack != newest.hash)
            && applied.is_none_or(|applied| applied.stack != newest.hash)
    }

    /// Writes the wait for the first hosts to the record. True: it is another one than before.
    pub(crate) fn note_after(&self, record: &mut Record) -> bool {
        self.holds.note_after(record)
    }

    /// The newest commit, if it waits for a sync window, another application or the first hosts.
    pub(crate) fn held(&self) -> Option<&HeldCommit> {
        self.holds.held()
    }

    /// The stack of the newest revision, while the newest commit cannot be applied. If that revision went back to an older one, it
    /// is still a way back: with the images of that time, and after a failure without hooks.
    fn last_target_stack(
        &self,
        context: &AppContext,
        policy: Policy,
    ) -> Result<Option<TargetRevision>, store::Error> {
        let Some(revision) = &self.current else { return Ok(None) };
        let Some(stack) = context.store().stack(context.name(), revision.number)? else { return Ok(None) };
        let target = TargetRevision::new(Arc::new(stack), revision.commit.clone(), policy, Cause::Commit);
        let Some(number) = revision.rollback_of else { return Ok(Some(target)) };
        let older = context.store().revision(context.name(), number)?;
        // Its own images are those of the older one and those that it had not.
        let images = older.map_or_else(|| revision.images.clone(), |older| older.images);
        let back_to = Some(number).filter(|_| revision.cause == Cause::AutomaticRollback);
        Ok(Some(TargetRevision { back_to, images, ..target }))
    }

    /// While pins and suspensions may be lost, the newest revision stays the target. Without one, the newest commit is
    /// compared with the live state, and nothing is changed.
    fn target_after_loss(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        mut policy: Policy,
        record: &Record,
    ) -> Result<Option<TargetRevision>, store::Error> {
        if self.current.is_some() && !self.follows_removal(desired) {
            policy.suspended |= desired.is_gone();
            // `None`: the stack was encrypted with a key that is lost.
            if let Some(last) = self.last_target_stack(context, policy.clone())? {
                return Ok(Some(last));
            }
        }
        Ok(self.unconfirmed(desired, policy, record))
    }

    /// The newest commit, which may have been applied, or may not. It is compared with the live state, and nothing is changed.
    fn unconfirmed(&mut self, desired: &Desired, policy: Policy, record: &Record) -> Option<TargetRevision> {
        let rendered = desired.rendered();
        let (stack, hashes) = rendered.stack.as_ref().zip(rendered.hashes.as_ref())?;
        let (stack, hashes) = self.resolved.of(stack, hashes, record);
        let suspended = Policy { suspended: true, ..policy.clone() };
        let commit = rendered.commit.clone();
        let target = TargetRevision::of_hashed(stack, hashes, commit, suspended, Cause::Start);
        Some(TargetRevision { unconfirmed: Some(policy), ..target })
    }

    /// After the restoration of a backup, the newest commit is compared once with the live state, before anything is done: it may have
    /// been applied after the backup. Its hooks and Jobs have run then. `None`: there is nothing to compare, or Git was not read yet.
    fn target_after_restore(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        record: &Record,
        policy: &Policy,
        pin: Option<&Pin>,
    ) -> Option<TargetRevision> {
        let is_comparable = desired.is_in_git() && self.loss.lost().is_none() && !self.awaits_fetch(desired);
        if !self.restoration.is_open() || !is_comparable {
            return None;
        }
        desired.applicable_stack()?;
        let newest = self.unconfirmed(desired, policy.clone(), record)?;
        let is_known = self.current.as_ref().is_some_and(|current| current.stack == newest.hash);
        // The managers of a Swarm share what was applied.
        if is_known || pin.is_some() || policy.suspended || policy.engine == EngineKind::Swarm {
            self.restoration.end(context);
            return None;
        }
        Some(TargetRevision { cause: self.cause_of_next(desired), ..newest })
    }

    /// Whether a backup was restored and Git was not read since. Until then, the commit of the last run is that of the backup, and what
    /// runs may be newer.
    pub(crate) fn awaits_fetch(&self, desired: &Desired) -> bool {
        let repository = desired.repository();
        self.restoration.is_open() && repository.fetched_at.is_none() && repository.is_followed()
    }

    /// Reads whether state was lost, and reports it once.
    pub(crate) fn read_loss(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        record: &Record,
    ) -> Result<(), store::Error> {
        self.loss.read(context, engine_of(desired, record))
    }

    /// Detects a loss of state in the first observation, unless a user has confirmed it before. True: the target must be
    /// chosen again.
    pub(crate) fn detect_loss(
        &mut self,
        context: &AppContext,
        adopted: &Adopted,
        observed: &Observed,
    ) -> Result<bool, store::Error> {
        self.loss.detect(context, self.current.is_some(), adopted, observed)
    }

    /// Compares the engine with the one that the agent has deployed to.
    pub(crate) fn check_engine(
        &mut self,
        context: &AppContext,
        target: &TargetRevision,
        observed: &Observed,
    ) -> Result<EngineCheck, store::Error> {
        self.loss.check_engine(context, target.policy.engine, observed)
    }

    /// Notes whether Git and the engine have nothing of the application any more. True: the target must be chosen again.
    pub(crate) fn note_vanished(&mut self, desired: &Desired, stack: &Stack, observed: &Observed) -> bool {
        let has_vanished =
            desired.is_gone() && observed.containers().next().is_none() && !has_services(stack, observed);
        std::mem::replace(&mut self.has_vanished, has_vanished) != has_vanished
    }

    /// Whether nothing of the application is in Git, on the engine or in the database, so that it can be forgotten.
    pub(crate) fn is_unknown(&self, desired: &Desired) -> bool {
        desired.is_gone() && self.current.is_none() && self.loss.lost().is_none()
    }

    /// The loss of state, until a user has confirmed it.
    pub(crate) fn lost(&self) -> Option<&Loss> {
        self.loss.lost()
    }

    /// Begins a revision of an unconfirmed commit if it is what runs. Its hooks and Jobs have run. True: the target must be chosen
    /// again.
    pub(crate) fn confirm(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        target: &mut TargetRevision,
        observed: &Observed,
        record: &mut StoredRecord,
    ) -> bool {
        let Some(policy) = target.unconfirmed.take() else { return false };
        if policy.suspended || !is_in_force(&target.stack, observed, context.agent()) {
            return self.restoration.end(context);
        }
        target.policy = policy;
        if self.restoration.is_open() {
            // They are those of an older revision, and would begin again for this one.
            record.get_mut().hooks = None;
        }
        record.suppose_completed(context, &target.stack, observed);
        self.begin(context, desired, target);
        let is_begun = |current: &&Revision| current.stack == target.hash;
        let Some(current) = self.current.as_ref().filter(is_begun) else { return false };
        let sync = hooks::Sync { current: Some(current), target };
        hooks::exempt(context, record, &sync, current);
        record.save(context);
        self.restoration.end(context);
        true
    }

    /// With `prune`, the target of an application that has left Git is an empty stack. Without, or while Git cannot be read, the
    /// application is observed and left alone, until its last container is removed.
    fn target_when_gone(
        &self,
        context: &AppContext,
        desired: &Desired,
        mut policy: Policy,
        record: &Record,
    ) -> Result<Option<TargetRevision>, store::Error> {
        let is_pruned = policy.prune && !desired.was_gone();
        if !is_pruned && !self.has_vanished {
            policy.suspended = true;
            return self.last_target_stack(context, policy);
        }
        self.target_of_removal(context, policy, record)
    }

    /// Notes the commit that an application has left Git with. Later ones have nothing to do with that.
    fn note_left(&mut self, desired: &Desired) {
        if !desired.may_be_removed() {
            if desired.is_in_git() || matches!(self.departure, Departure::LeftWith(_)) {
                self.departure = Departure::InGit;
            }
            return;
        }
        let read = if desired.is_gone() { desired.commit() } else { desired.newest_commit() };
        if matches!(self.departure, Departure::InGit) && !read.id.is_empty() {
            self.departure = Departure::LeftWith(read.clone());
        }
    }

    /// Nothing: what still runs is removed, after its hooks. The commit is the one that does not have the application, if it is
    /// known.
    fn target_of_removal(
        &self,
        context: &AppContext,
        policy: Policy,
        record: &Record,
    ) -> Result<Option<TargetRevision>, store::Error> {
        let Some(last) = self.last_target_stack(context, policy)? else { return Ok(None) };
        if !self.has_vanished && !may_be_deleted(record, &last.stack) {
            return Ok(Some(TargetRevision { is_leaving: true, ..last }));
        }
        let stack = Arc::new(last.stack.emptied());
        // A removal that has begun keeps its commit in another life of the agent.
        let has_begun = self.current.as_ref().is_some_and(Revision::is_removal);
        let commit = match &self.departure {
            Departure::LeftWith(commit) if !has_begun => commit.clone(),
            Departure::Unseen | Departure::InGit | Departure::LeftWith(_) => last.commit,
        };
        Ok(Some(TargetRevision::new(stack, commit, last.policy, Cause::Removal)))
    }

    fn cause_of_next(&self, desired: &Desired) -> Cause {
        match &self.current {
            None => Cause::Start,
            Some(before) if before.cause == Cause::Rollback => Cause::Resume,
            Some(before) if before.commit.id == desired.commit().id => Cause::Configuration,
            // Only the fetch of the requested sync counts as the user's; a later one does not.
            Some(_) if self.requests.has_sync() => Cause::User,
            Some(_) => Cause::Commit,
        }
    }

    /// Notes the stack that Git asks for, and the commit that it came with. After Git was read without the application, it asks for none.
    pub(crate) fn note_newest(&mut self, desired: &Desired, record: &mut Record) {
        if desired.is_gone() {
            record.newest = None;
            return;
        }
        let rendered = desired.rendered();
        let Some((stack, hashes)) = rendered.stack.as_ref().zip(rendered.hashes.as_ref()) else { return };
        let stack = self.resolved.of(stack, hashes, record).1.stack.clone();
        if record.newest.as_ref().is_some_and(|newest| newest.stack == stack) {
            return;
        }
        // A record of an older agent, or none: the commit may have changed nothing. One that brings the application back has.
        let may_be_applied = !std::mem::take(&mut self.is_back) && record.newest.is_none();
        let applied = self.current.as_ref().filter(|it| may_be_applied && it.stack == stack);
        let commit = applied.map_or(&rendered.commit, |current| &current.commit).id.clone();
        record.newest = Some(NewestStack { stack, commit });
    }

    /// Compares the target with that of the last round. True if it is another one; then failures of the old stack are
    /// forgotten, and the application is remembered with its repository.
    pub(crate) fn note_target(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        target: &TargetRevision,
        record: &mut Record,
    ) -> bool {
        self.stored.complete(context, self.current.as_ref(), target);
        let key = TargetKey {
            stack: target.hash.clone(),
            pinned: target.pin.as_ref().map(|pin| pin.revision),
            back_to: target.back_to,
            policy: target.policy.clone(),
        };
        if self.last_target.as_ref() == Some(&key) {
            return false;
        }
        let is_other_stack = self.last_target.as_ref().is_some_and(|last| last.stack != key.stack);
        self.last_target = Some(key);
        if is_other_stack {
            record.forget_failures();
            record.sync = None;
        }
        let rendered = desired.rendered();
        if rendered.spec.files.is_empty() {
            // It stands in for an application that Git does not have.
            return true;
        }
        let (path, format) = (&rendered.spec.path, target.stack.format);
        let host = rendered.settings.as_ref().map(|settings| settings.own_host());
        let spec = serde_json::json!({ "path": path, "format": format, "host": host });
        let remembered = context.store().remember_application(context.name(), &spec, &rendered.repository);
        if let Err(error) = remembered {
            tracing::warn!(error = chain(&error), "could not store the application's repository");
        }
        true
    }

    /// Whether this was the target of the last round.
    pub(crate) fn was_target(&self, hash: &StackHash) -> bool {
        self.last_target.as_ref().is_some_and(|last| last.stack == *hash)
    }

    /// Begins a revision if the stack is new, before anything is done about it.
    pub(crate) fn begin(&mut self, context: &AppContext, desired: &Desired, target: &TargetRevision) {
        let is_new = self.current.as_ref().is_none_or(|current| current.stack != target.hash);
        if !is_new || target.policy.suspended {
            return;
        }
        let stack_of = |revision: &Revision| context.store().stack(context.name(), revision.number);
        let before = self.current.as_ref().and_then(|current| stack_of(current).ok().flatten());
        let after = without_runs(&target.stack);
        let mask = context.mask_of([target.stack.as_ref()].into_iter().chain(before.as_ref()));
        let is_image = target.cause == Cause::Configuration
            && before.as_ref().is_some_and(|before| differ_in_images_only(before, &after));
        let cause = if is_image { Cause::Image } else { target.cause.clone() };
        let new = NewRevision {
            app: context.name().clone(),
            commit: target.commit.clone(),
            reference: desired.rendered().reference.clone(),
            cause,
            changes: changes::describe(before.as_ref(), &after, &mask),
            rollback_of: target.pin.as_ref().map(|pin| pin.revision).or(target.back_to),
            actor: self.requests.actor_of(target),
        };
        match context.store().begin_revision(&new, &after) {
            Ok(revision) => {
                if self.current.as_ref().is_some_and(|before| before.outcome == Outcome::InProgress) {
                    context.metrics().synced(context.name(), &Outcome::Superseded);
                }
                self.requests = UserRequests::default();
                let commit = target.commit.short();
                let applied = self.current.as_ref().map(|before| &before.commit);
                let message = changes::begun(&target.stack, &target.commit, applied);
                log_span::note_revision(&revision);
                tracing::info!(commit, "revision begun");
                let object = format!("revision {}", revision.number);
                context.event(EventKind::Normal, "SyncStarted", &object, &message);
                for (name, volume) in before.iter().flat_map(|before| changes::left_volumes(before, &after)) {
                    let message = format!("no longer mounts the volume {volume}, which stays with its data");
                    context.event(EventKind::Warning, "VolumeLeft", name.as_str(), &message);
                }
                let is_open = |before: &&Revision| is_unreached(before, &Outcome::InProgress);
                let open = self.current.as_ref().filter(is_open).map(|before| self.span(before).open_since);
                self.open_since = Some(open.unwrap_or(revision.started));
                self.current = Some(revision);
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "could not store the new revision");
            }
        }
    }

    /// Somebody has ended the pin or suspension.
    pub(crate) fn note_resume(&mut self, actor: &Actor) {
        self.requests.note_resume(actor);
    }

    /// Ends the revision with success: nothing is left to do. True: it has not succeeded before.
    pub(crate) fn reach(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        target: &TargetRevision,
        observed: &Observed,
        record: &mut Record,
    ) -> bool {
        if target.policy.suspended || target.is_leaving {
            return false;
        }
        let outcome = |revisions: &Self| revisions.current.as_ref().map(|current| current.outcome.clone());
        self.begin(context, desired, target);
        let before = outcome(self);
        // A commit that lost its health after it was reached does not succeed again whenever it is well for a moment. A rollback, a
        // removal and another commit have not failed by that.
        let is_this = |failed: &FailedCommit| failed.was_reached && failed.stack == target.hash;
        let has_lost_health = target.is_newest() && record.failed.as_ref().is_some_and(is_this);
        if !has_lost_health {
            // The images that the containers were created from: a tag may name another image by now, such as one that has failed.
            let mut images = image_digests(&target.stack, observed);
            images.extend(target.images.clone());
            self.end(context, Outcome::Succeeded, &images);
        }
        if target.back_to.is_none() && !has_lost_health {
            record.failed = record.failed.take().filter(|failed| failed.stack != target.hash);
        }
        if self.is_of_git(desired, target) {
            forget_failed_updates(observed, record);
        }
        outcome(self) != before && outcome(self) == Some(Outcome::Succeeded)
    }

    /// Forgets an application that Git does not have any more once none of its containers and services is left. Its networks may
    /// be in use for longer, so the rounds go on.
    pub(crate) fn forget_removed(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        target: &TargetRevision,
        observed: &Observed,
    ) {
        let is_left = observed.containers().any(|container| container.agent == *context.agent())
            || has_services(&target.stack, observed);
        let is_removed = desired.may_be_removed() && target.stack.is_empty() && !is_left;
        if target.policy.suspended || !is_removed {
            return;
        }
        forget(context);
        self.is_forgotten = true;
    }

    /// Whether the application was removed, and is not in the database any more.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// Whether an application that was removed and forgotten comes back. It is a new one.
    pub(crate) fn comes_back(&mut self) -> bool {
        let comes_back = std::mem::take(&mut self.is_forgotten);
        self.is_back |= comes_back;
        comes_back
    }

    /// Detects that the commit has failed: its rollout does not get on, or it lost its health soon after it was reached.
    /// The consequence follows the service that failed, else the policy, and is in the record before anything else happens.
    /// True: the target must be chosen again.
    pub(crate) fn detect_failure(
        &mut self,
        context: &AppContext,
        target: &TargetRevision,
        record: &mut StoredRecord,
        round: &Round<'_>,
        mask: &Mask,
        admission: &AdmissionPolicy,
    ) -> bool {
        if let Some(current) = &mut self.current {
            // The clock may have been set back: what ended since then ended in this revision.
            current.started = current.started.min(round.now);
        }
        let Some(current) = self.current.as_ref().filter(|current| current.stack == target.hash) else {
            return false;
        };
        if target.policy.suspended || target.is_leaving {
            return false;
        }
        let known = record.get().failed.clone().filter(|failed| failed.stack == target.hash);
        let is_known = known.is_some();
        let found = || failed_now(current, self.span(current), round, mask);
        let Some(failed) = known.or_else(found) else { return false };
        let on_failure = failed.on_failure(target.policy.on_failure);
        // An older revision that fails too is kept.
        let is_older = matches!(current.cause, Cause::AutomaticRollback | Cause::Rollback);
        if on_failure == OnFailure::None || !target.is_newest() || is_older {
            if !is_known && current.outcome == Outcome::InProgress {
                self.end(context, Outcome::Failed { reason: failed.reason }, &BTreeMap::new());
            }
            return false;
        }
        if is_known && (failed.back_to.is_some() || on_failure == OnFailure::Pause) {
            self.fail_current(context, &failed);
            return false;
        }
        let back = match on_failure {
            OnFailure::Rollback => last_healthy(context, current, admission),
            OnFailure::None | OnFailure::Pause => None,
        };
        if back.is_none() && is_known {
            // Its outcome may not have been stored, as with a full disk.
            self.fail_current(context, &failed);
            return false;
        }
        let failed = FailedCommit { back_to: back.as_ref().map(|back| back.number), ..failed };
        let changed = record.get_mut();
        changed.failed = Some(failed.clone());
        if let Some(back) = &back {
            // Nothing but the failed commit added what the older revision does not have.
            changed.prune = Some(hash_as_target(context, back));
        }
        record.save(context);
        self.fail_current(context, &failed);
        report_failed_commit(context, &target.stack, &failed, on_failure, back.as_ref());
        true
    }

    /// Ends the revision of a failed commit.
    fn fail_current(&mut self, context: &AppContext, failed: &FailedCommit) {
        let is_failed = |revision: &Revision| matches!(revision.outcome, Outcome::Failed { .. });
        let current = self.current.as_ref().filter(|current| current.number == failed.revision);
        if current.is_some_and(|current| !is_failed(current)) {
            let outcome = Outcome::Failed { reason: failed.reason.clone() };
            self.end(context, outcome, &BTreeMap::new());
        }
    }

    /// Forgets a failed commit once Git asks for another stack, or the policy for no consequence.
    pub(crate) fn release_failed(&self, desired: &Desired, target: &TargetRevision, record: &mut Record) {
        let Some(failed) = &record.failed else { return };
        let is_other = self.is_of_git(desired, target) && failed.stack != target.hash;
        if is_other || failed.on_failure(target.policy.on_failure) == OnFailure::None {
            record.failed = None;
        }
    }

    /// Whether Git asks for this target now.
    fn is_of_git(&self, desired: &Desired, target: &TargetRevision) -> bool {
        desired.applicable_stack().is_some()
            && target.is_newest()
            && !desired.may_be_removed()
            && self.loss.lost().is_none()
            && self.holds.held().is_none()
    }

    /// Begins another try of a failed revision with this stack: it is in progress again.
    pub(crate) fn reopen(&mut self, context: &AppContext, stack: &StackHash) {
        let has_failed =
            |current: &Revision| current.stack == *stack && matches!(current.outcome, Outcome::Failed { .. });
        if self.current.as_ref().is_some_and(has_failed) {
            self.end(context, Outcome::InProgress, &BTreeMap::new());
        }
    }

    fn end(&mut self, context: &AppContext, outcome: Outcome, images: &BTreeMap<String, String>) {
        let Some(revision) = &mut self.current else { return };
        if revision.outcome == outcome {
            return;
        }
        let number = revision.number;
        let stored = context.store().finish_revision(context.name(), number, &outcome, images);
        if let Err(error) = stored {
            tracing::warn!(error = chain(&error), "could not store the outcome of the revision");
            return;
        }
        revision.finish(&outcome, images, context.now());
        context.metrics().synced(context.name(), &outcome);
        let object = format!("revision {number}");
        match outcome {
            Outcome::Succeeded => {
                tracing::info!("revision synced");
                context.event(EventKind::Normal, SYNC_SUCCEEDED, &object, changes::done(context, number));
            }
            Outcome::Failed { reason } => {
                let shown = context.mask().message(&reason);
                tracing::error!(reason = shown, "revision failed");
                context.event(EventKind::Warning, "SyncFailed", &object, &reason);
            }
            Outcome::InProgress | Outcome::Superseded => {}
        }
    }

    /// A user has requested a sync: the revision that its fetch begins has the cause "user".
    pub(crate) fn request_sync(&mut self, context: &AppContext, desired: &Desired, actor: &Actor) {
        let at = context.now();
        self.holds.note_sync(at);
        self.requests.note_sync(&desired.commit().id, at, actor);
    }

    /// Notes the commit that a requested sync has fetched. If that is no new one, a later commit is not the user's.
    pub(crate) fn note_fetch(&mut self, desired: &Desired) {
        self.holds.note_fetch(desired);
        self.requests.note_fetch(desired);
    }

    /// Counts how many commits the pinned revision is behind the newest commit, once for each pair of commits.
    pub(crate) async fn count_behind<S: CommitSource>(
        &mut self,
        source: Option<&S>,
        desired: &Desired,
        target: &TargetRevision,
    ) {
        if let (Some(pin), Some(source)) = (&target.pin, source) {
            self.behind.count(source, pin, &desired.commit().id).await;
        }
    }

    /// The pin of the target, for the status.
    pub(crate) fn pin_status(&self, desired: &Desired, target: &TargetRevision) -> Option<PinStatus> {
        Some(self.behind.status(target.pin.as_ref()?, &desired.commit().id))
    }
}

/// The engine that the application is on.
fn engine_of(desired: &Desired, record: &Record) -> EngineKind {
    // The key may have left Git in the same commit.
    let is_left_on_swarm = desired.may_be_removed() && record.swarm.is_some();
    if is_left_on_swarm { EngineKind::Swarm } else { desired.rendered().policy.engine }
}

#[cfg(test)]
mod tests;
