//! The published status of one application: the only place that makes an [`Application`] and hands it to the API.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

use driftless_model::{
    Answered, Application, ApplicationStatus, CommitInfo, Drift, DriftAction, Event, EventKind, HealthStatus,
    Observed, Operation, OperationPhase, Revision, SyncStatus, Timestamp, WaitStatus,
};
use driftless_plan::{Assessment, Plan, Round, WaitReason, assess, resources};

use crate::{
    Applications,
    commits::{
        held_commit::HeldCommit,
        status::{AppCommitStatus, CommitResult, CommitStatuses, StatusFacts, commit_status, end_status},
        trust::RejectedCommit,
    },
    context::{AppContext, RECENT_EVENTS},
    desired::Desired,
    failure_events::{FailureEvents, FailureFacts},
    masked_target::MaskedTarget,
    revisions::target::TargetRevision,
    status::{StatusInputs, hide_secrets},
    ticket::{Ticket, Tickets},
    unpublished::Unpublished,
};

/// The status of one application and where it is published.
pub(crate) struct Publisher {
    status: ApplicationStatus,
    /// Counts the targets and requests. A status answers those up to its `observed_generation`.
    generation: u64,
    /// The number of the newest request that was accepted or refused.
    newest_request: u64,
    /// The newest sync whose fetch, and whose questions to registries, were answered.
    covers: u64,
    /// A registry was asked for a sync and has not answered yet.
    awaits_images: bool,
    /// The rejected commit of the last event about one.
    reported_rejection: Option<Arc<RejectedCommit>>,
    /// The commit with errors in its manifests and the first error, as of the last look at it.
    reported_error: Option<(CommitInfo, String)>,
    failure_events: FailureEvents,
    /// Since when each difference exists, by object and field.
    drift_since: BTreeMap<(String, String), Timestamp>,
    applications: watch::Sender<Applications>,
    /// The known applications that are not published yet.
    unpublished: Unpublished,
    commit_statuses: watch::Sender<CommitStatuses>,
}

impl Publisher {
    pub(crate) fn new(
        applications: watch::Sender<Applications>,
        commit_statuses: watch::Sender<CommitStatuses>,
        tickets: &Tickets,
        unpublished: Unpublished,
    ) -> Self {
        let status = ApplicationStatus::default();
        // Older requests were made to an agent of the past.
        let newest_request = tickets.newest();
        Self {
            status,
            generation: 0,
            newest_request,
            covers: 0,
            awaits_images: false,
            reported_rejection: None,
            reported_error: None,
            failure_events: FailureEvents::default(),
            drift_since: BTreeMap::new(),
            applications,
            unpublished,
            commit_statuses,
        }
    }

    /// Notes that a request was accepted or refused. The rounds from now on answer its ticket.
    pub(crate) fn note_request(&mut self, ticket: Ticket) {
        self.newest_request = self.newest_request.max(ticket.number);
    }

    /// Notes whether a registry was asked for a sync and has not answered yet: it may lead to another target.
    pub(crate) fn set_awaits_images(&mut self, awaits_images: bool) {
        self.awaits_images = awaits_images;
    }

    /// The requests that a round answers.
    fn answered(&mut self, desired: &Desired) -> Answered {
        Answered { by_round: self.newest_request, by_fetch: self.covers(desired) }
    }

    /// The newest sync that is answered as soon as a round was made for it.
    fn covers(&mut self, desired: &Desired) -> u64 {
        if !self.awaits_images {
            self.covers = desired.repository().covers;
        }
        self.covers
    }

    /// The status as it was published last.
    pub(crate) fn status(&self) -> &ApplicationStatus {
        &self.status
    }

    /// Whether the published status knows the newest target and the newest request.
    pub(crate) fn is_current(&self) -> bool {
        self.status.observed_generation >= self.generation
    }

    /// The target is another one: what was published speaks of the one before.
    pub(crate) fn next_generation(&mut self) {
        self.generation = self.generation.saturating_add(1);
    }

    /// A request was accepted: until the next round, the published status does not know of it.
    pub(crate) fn publish_request(&mut self, context: &AppContext) {
        self.next_generation();
        let generation = self.generation;
        self.amend(context, |application| application.generation = generation);
    }

    /// Publishes the result of a round.
    pub(crate) fn publish_round(
        &mut self,
        inputs: &StatusInputs<'_>,
        target: &TargetRevision,
        masked: &mut MaskedTarget,
        observed: &Observed,
        plan: &Plan,
    ) {
        let StatusInputs { context, desired, revisions, record, now, .. } = *inputs;
        let before = std::mem::take(&mut self.status);
        let TargetRevision { stack, hashes, policy, .. } = target;
        let round = Round { stack, hashes, policy, observed, record, plan, now };
        let assessment = assess(&round, &before.conditions, &before.workloads);
        let Assessment { sync, health, message, mut workloads, conditions: planned, waits, drift } =
            assessment;
        let mut conditions = inputs.conditions(&before.conditions);
        conditions.extend(planned);
        conditions.extend(inputs.failure_condition(&before.conditions));
        let mask = context.mask();
        for (name, workload) in &mut workloads {
            masked.complete(name, &mut workload.spec);
            let awaited = workload.awaited.iter_mut().map(|awaited| &mut awaited.message);
            let messages = workload.instances.iter_mut().map(|instance| &mut instance.message);
            let conditions = workload.conditions.iter_mut().map(|condition| &mut condition.message);
            let messages = awaited.chain(messages).chain(conditions).chain([&mut workload.message]);
            messages.for_each(|message| *message = mask.message(message));
        }
        let mut status = ApplicationStatus {
            node: observed.node.clone(),
            observed_generation: self.generation,
            answered: self.answered(desired),
            sync,
            health,
            message,
            obstacle: inputs.obstacle(target, plan),
            lasting_failure: inputs.lasting_failure(target, plan),
            operation: inputs.operation(plan),
            revision: revisions.current().map(|revision| revision.number),
            revision_commit: revisions.current().map(|revision| revision.commit.clone()),
            commit: inputs.running_commit(target, plan, before.commit),
            failed_commit: record.failed.as_ref().map(|failed| failed.commit.clone()),
            failed_revision: record.failed.as_ref().map(|failed| failed.revision),
            pin: revisions.pin_status(desired, target),
            conditions,
            workloads: keep_equal(&before.workloads, workloads),
            resources: keep_equal(&before.resources, resources(&target.stack, record)),
            images: keep_equal(&before.images, inputs.images(target)),
            digests: keep_equal(&before.digests, inputs.digests(target)),
            findings: desired.findings().cloned().collect(),
            waits,
            drift,
            last_plan: before.last_plan,
            last_plan_at: before.last_plan_at,
            observed_at: Some(now),
            fetched_at: desired.repository().fetched_at,
        };
        inputs.overrule(target, plan, &mut status);
        hide_secrets(&mut status, mask);
        report_held_prune(context, &before.waits, &status.waits);
        let (workloads, is_applied) = (&*status.workloads, inputs.has_succeeded(target));
        self.failure_events.report(context, FailureFacts { record, plan, workloads, is_applied });
        self.status = status;
        self.publish(inputs, Some(target));
        self.publish_commit_status(inputs, Some(target));
        if self.has_ended(inputs, Some(target)) {
            // If it comes back, it is a new one, which was in sync with no commit.
            self.status.commit = None;
        }
    }

    /// Publishes why there is no target: no commit could ever be applied.
    pub(crate) fn publish_without_target(&mut self, inputs: &StatusInputs<'_>) {
        let desired = inputs.desired;
        let first_error = desired.findings().find(|finding| finding.is_error()).map(ToString::to_string);
        let rejected = desired.rejected().map(|rejected| rejected.sentence());
        let held = inputs.revisions.held().map(|held| held.sentence(inputs.context.name()));
        // A first commit that waits for its turn is on its way, and nothing is wrong.
        let is_obstructed = first_error.is_some() || rejected.is_some() || inputs.revisions.lost().is_some();
        let (sync, health) = if held.is_some() && !is_obstructed {
            (SyncStatus::OutOfSync, HealthStatus::Progressing)
        } else {
            (SyncStatus::Unknown, HealthStatus::Missing)
        };
        let reason = first_error
            .or(rejected)
            .or(held)
            .or_else(|| inputs.loss_advice())
            .or_else(|| desired.repository().error.as_ref().map(|error| error.message.clone()));
        self.status = ApplicationStatus {
            observed_generation: self.generation,
            answered: self.answered(desired),
            sync,
            health,
            message: reason.unwrap_or_else(|| "nothing to apply yet".into()),
            obstacle: desired.lasting_error().map(ToString::to_string),
            conditions: inputs.conditions(&self.status.conditions),
            waits: inputs
                .revisions
                .held()
                .and_then(|held| held.wait(inputs.context.name()))
                .into_iter()
                .collect(),
            findings: desired.findings().cloned().collect(),
            fetched_at: desired.repository().fetched_at,
            observed_at: Some(inputs.now),
            ..ApplicationStatus::default()
        };
        self.publish(inputs, None);
        self.publish_commit_status(inputs, None);
    }

    /// Publishes that nothing is changed, because the engine does not have the data that the agent has deployed to. The rest of the
    /// status stays.
    pub(crate) fn publish_without_data(&mut self, inputs: &StatusInputs<'_>, target: &TargetRevision) {
        let why = inputs.loss_message().unwrap_or_default();
        self.status.observed_generation = self.generation;
        self.status.answered = self.answered(inputs.desired);
        (self.status.sync, self.status.health) = (SyncStatus::Unknown, HealthStatus::Missing);
        self.status.message.clone_from(&why);
        (self.status.obstacle, self.status.lasting_failure) = (Some(why), None);
        self.status.conditions = inputs.conditions(&self.status.conditions);
        self.status.waits.clear();
        self.status.findings = inputs.desired.findings().cloned().collect();
        self.status.fetched_at = inputs.desired.repository().fetched_at;
        self.status.observed_at = Some(inputs.now);
        self.publish(inputs, Some(target));
    }

    /// Publishes that a round failed: sync and health are unknown, the rest of the status stays. Without a target, the desired
    /// state stays as it was published, too.
    pub(crate) fn publish_failed_round(
        &mut self,
        inputs: &StatusInputs<'_>,
        target: Option<&TargetRevision>,
        error: &str,
        engine_failures: u32,
    ) {
        let error = inputs.context.mask().message(error);
        let is_published = self.applications.borrow().contains_key(inputs.context.name());
        // An application that was removed does not come back with it.
        if inputs.revisions.is_forgotten() && !is_published {
            self.unpublished.remove(inputs.context.name());
            return;
        }
        self.status.sync = SyncStatus::Unknown;
        self.status.health = HealthStatus::Unknown;
        self.status.message.clone_from(&error);
        // It may be that of an older commit.
        (self.status.obstacle, self.status.lasting_failure) = (None, None);
        self.status.fetched_at = inputs.desired.repository().fetched_at;
        self.status.answered.by_fetch = self.covers(inputs.desired);
        self.status.findings = inputs.desired.findings().cloned().collect();
        let attempt = inputs.record.sync.as_ref();
        self.status.operation = Some(Operation {
            phase: OperationPhase::Waiting,
            revision: inputs.revisions.current().map(|revision| revision.number),
            message: error,
            started: inputs.now,
            finished: None,
            outcome: None,
            attempt: attempt.map_or(engine_failures, |attempt| attempt.count),
            next_retry_at: attempt.map(|attempt| attempt.next),
        });
        if target.is_none() && is_published {
            let (generation, status) = (self.generation, self.status.clone());
            self.amend(inputs.context, |application| {
                application.generation = generation;
                application.status = status;
            });
        } else {
            self.publish(inputs, target);
        }
    }

    /// Publishes that the engine does not answer the steps of a round.
    pub(crate) fn publish_unanswered(&mut self, context: &AppContext, error: &str) {
        let error = context.mask().message(error);
        self.status.sync = SyncStatus::Unknown;
        self.status.health = HealthStatus::Unknown;
        self.status.message.clone_from(&error);
        if let Some(operation) = &mut self.status.operation {
            operation.message = error;
        }
        let status = self.status.clone();
        self.amend(context, |application| application.status = status);
    }

    /// Publishes the progress of pulls and builds between two rounds.
    pub(crate) fn publish_progress(&mut self, context: &AppContext, progress: Option<String>) {
        let Some(progress) = progress else { return };
        if let Some(operation) = &mut self.status.operation {
            operation.message = context.mask().message(&progress);
        }
        let status = self.status.clone();
        self.amend(context, |application| application.status = status);
    }

    /// Publishes a commit that changes nothing for this application: it is reached without a round.
    pub(crate) fn publish_same_target(&mut self, context: &AppContext, before: &Desired, desired: &Desired) {
        self.status.fetched_at = desired.repository().fetched_at;
        self.status.answered.by_fetch = self.covers(desired);
        if desired.repository().error.is_some() {
            (self.status.obstacle, self.status.lasting_failure) = (None, None);
        }
        let ran_last = self.status.commit.as_ref().is_some_and(|commit| commit.id == before.commit().id);
        let is_applied = desired.applicable_stack().is_some();
        if ran_last && is_applied {
            self.status.commit = Some(desired.commit().clone());
        }
        let status = self.status.clone();
        self.amend(context, |application| {
            application.status = status;
            if is_applied {
                application.spec.commit = Some(desired.commit().clone());
                application.spec.reference.clone_from(&desired.rendered().reference);
            }
        });
    }

    /// Keeps the steps of the last plan with their outcomes, for the next publication.
    pub(crate) fn set_last_plan(&mut self, steps: Vec<String>, at: Timestamp) {
        self.status.last_plan = Arc::new(steps);
        self.status.last_plan_at = Some(at);
    }

    /// Writes one event for each rejected commit.
    pub(crate) fn report_rejected_commit(&mut self, context: &AppContext, desired: &Desired) {
        let rejected = desired.rejected();
        if let Some(rejected) = rejected.filter(|commit| self.reported_rejection.as_ref() != Some(*commit)) {
            let commit = rejected.commit.short();
            context.event(EventKind::Warning, "CommitRefused", commit, &rejected.sentence());
        }
        self.reported_rejection = rejected.cloned();
    }

    /// Writes an event about a commit that has errors in the manifests or settings of this application, once for each commit and error.
    /// Errors of the repository as a whole have events of their own.
    pub(crate) fn report_invalid_commit(&mut self, context: &AppContext, desired: &Desired) {
        let error = desired.own_error().map(|error| (desired.commit().clone(), error.to_string()));
        if self.reported_error == error {
            return;
        }
        self.reported_error.clone_from(&error);
        let Some((commit, error)) = error else { return };
        // After a restart, the context does not know the secrets of the application yet.
        let message = context.mask_of(&context.kept_stacks()).message(&error);
        let recent = context.store().newest_events(RECENT_EVENTS, Some(context.name())).unwrap_or_default();
        let is_same = |known: &Event| known.object == commit.short() && known.message == message;
        if !recent.iter().any(is_same) {
            context.event(EventKind::Warning, "InvalidManifest", commit.short(), &message);
        }
    }

    /// Writes one event for each difference when it is first observed, and measures how long the undone ones lasted.
    pub(crate) fn report_drift(&mut self, context: &AppContext, plan: &Plan) {
        let is_known = |drift: &Drift| {
            let key = |drift: &Drift| (drift.object.clone(), drift.field.clone(), drift.found.clone());
            self.status.drift.iter().any(|known| key(known) == key(drift))
        };
        for drift in plan.drifts.iter().filter(|drift| !is_known(drift)) {
            let Drift { object, field, found, want, .. } = drift;
            let since = drift.at.map(|at| format!(" since {at}")).unwrap_or_default();
            tracing::warn!(object, field, found, want, "drift detected");
            let message = format!("{field}: found {found}, wants {want}{since}");
            context.event(EventKind::Warning, "DriftDetected", object, &message);
            context.metrics().drifted(context.name(), &drift.kind);
        }
        self.measure_heals(context, plan);
    }

    fn measure_heals(&mut self, context: &AppContext, plan: &Plan) {
        let now = context.now();
        let key = |drift: &Drift| (drift.object.clone(), drift.field.clone());
        let mut since = BTreeMap::new();
        for drift in &plan.drifts {
            let known = self.drift_since.get(&key(drift)).copied();
            since.insert(key(drift), known.or(drift.at).unwrap_or(now));
        }
        let was_healed = |drift: &&Drift| {
            matches!(drift.action, DriftAction::Heal | DriftAction::BackOff)
                && !since.contains_key(&key(drift))
        };
        for drift in self.status.drift.iter().filter(was_healed) {
            if let Some(began) = self.drift_since.get(&key(drift)) {
                context.metrics().healed(&drift.kind, now.since(*began));
            }
        }
        self.drift_since = since;
    }

    fn publish(&self, inputs: &StatusInputs<'_>, target: Option<&TargetRevision>) {
        let context = inputs.context;
        let application = Arc::new(Application {
            name: context.name().clone(),
            spec: inputs.spec(target),
            generation: self.generation,
            status: self.status.clone(),
        });
        let has_ended = self.has_ended(inputs, target);
        self.applications.send_modify(|all| {
            let all = Arc::make_mut(all);
            if has_ended {
                all.remove(context.name());
            } else {
                all.insert(context.name().clone(), application);
            }
        });
        self.unpublished.remove(context.name());
    }

    /// Whether the application was removed.
    fn has_ended(&self, inputs: &StatusInputs<'_>, target: Option<&TargetRevision>) -> bool {
        inputs.desired.may_be_removed()
            && target.is_some_and(|target| target.stack.is_empty())
            && self.status.sync == SyncStatus::Synced
    }

    /// Publishes nothing about the application any more: it is not known to Git, to the engine or to the database.
    pub(crate) fn withdraw(&self, context: &AppContext) {
        self.applications.send_if_modified(|all| {
            let is_published = all.contains_key(context.name());
            if is_published {
                Arc::make_mut(all).remove(context.name());
            }
            is_published
        });
        self.unpublished.remove(context.name());
    }

    /// Changes what is published of an application.
    fn amend(&self, context: &AppContext, change: impl FnOnce(&mut Application)) {
        self.applications.send_modify(|all| {
            let Some(before) = all.get(context.name()) else { return };
            let mut application = Application::clone(before);
            change(&mut application);
            Arc::make_mut(all).insert(context.name().clone(), Arc::new(application));
        });
    }

    /// Hands the status of the commit that Git's stack came with to the task that posts it to the forge.
    fn publish_commit_status(&self, inputs: &StatusInputs<'_>, target: Option<&TargetRevision>) {
        let desired = inputs.desired;
        if desired.is_gone() {
            self.commit_statuses.send_if_modified(|all| end_status(all, inputs.context.name()));
            return;
        }
        let newest = inputs.record.newest.as_ref();
        let changed = newest.map_or(&desired.commit().id, |newest| &newest.commit);
        let is_of_newest = |current: &&Revision| newest.is_some_and(|newest| newest.stack == current.stack);
        let held = |held: &HeldCommit| {
            let held = HeldCommit { commit: changed.clone(), hold: held.hold.clone() };
            held.sentence(inputs.context.name())
        };
        let facts = StatusFacts {
            invalid: &desired.invalid_commit().id,
            rendered: &desired.commit().id,
            changed,
            findings: &self.status.findings,
            pin: self.status.pin.as_ref(),
            is_suspended: target.is_some_and(|target| target.policy.suspended),
            health: self.status.health,
            reached: self.status.commit.as_ref(),
            revision: inputs.revisions.current().filter(is_of_newest),
            failed: inputs.record.failed.as_ref(),
            held: inputs.revisions.held().map(held),
            message: &self.status.message,
        };
        // No commit has been read yet.
        let result = commit_status(&facts).filter(|result| !result.of.is_empty());
        let Some(CommitResult { of, state, description }) = result else { return };
        let status = AppCommitStatus {
            repository: desired.rendered().repository.clone(),
            commit: of.clone(),
            is_older: *of != desired.newest_commit().id,
            state,
            description,
        };
        self.commit_statuses.send_if_modified(|all| {
            let before = all.get(inputs.context.name());
            let is_new = before.is_none_or(|before| status.is_news_after(before));
            if is_new {
                all.insert(inputs.context.name().clone(), status);
            }
            is_new
        });
    }
}

/// Writes an event when a removal begins to wait for a confirmation.
fn report_held_prune(context: &AppContext, before: &[WaitStatus], now: &[WaitStatus]) {
    let held = now.iter().find(|wait| wait.is(WaitReason::PruneHeld));
    let is_known = |held: &&WaitStatus| before.iter().any(|known| known.message == held.message);
    let Some(held) = held.filter(|held| !is_known(held)) else { return };
    tracing::warn!(reason = held.message, "the removal of workloads waits for a confirmation");
    context.event(EventKind::Warning, WaitReason::PruneHeld.as_str(), context.name().as_str(), &held.message);
}

/// Shares the published value as long as the new one is equal, so that memory holds it once.
fn keep_equal<T: PartialEq>(before: &Arc<T>, new: T) -> Arc<T> {
    if **before == new { Arc::clone(before) } else { Arc::new(new) }
}
