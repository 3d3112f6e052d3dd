//! The parts of an application's status, from its desired state, its revisions and its record.

use std::time::Duration;

use driftless_model::{
    AppName, ApplicationSpec, ApplicationStatus, CommitInfo, ConditionStatus, ConditionType, FailedCommit,
    Finding, HealthStatus, ImageDigests, ImageUpdateStatus, Mask, Operation, OperationPhase, Outcome,
    PinStatus, Record, Statement, StatusCondition, SyncStatus, Timestamp, WaitStatus, last_reached,
};
use driftless_plan::{Plan, Wait, WaitReason, followed_images, image_update_status, running_digests};

use crate::{
    context::AppContext,
    desired::{Desired, FetchFailure},
    error::chain,
    revisions::{Revisions, stored::policy_now, target::TargetRevision},
    state_loss::Loss,
};

/// For this long after a fetch, or after the first failure since the agent started, the desired state counts as known, although
/// fetches fail.
const FETCH_GRACE: Duration = Duration::from_mins(4);

/// The facts that a status is derived from, besides the target and the observed state.
#[derive(Clone, Copy)]
pub(crate) struct StatusInputs<'a> {
    pub(crate) context: &'a AppContext,
    pub(crate) desired: &'a Desired,
    pub(crate) revisions: &'a Revisions,
    /// Why the containers may belong to another agent.
    pub(crate) other_owner: Option<&'a str>,
    pub(crate) record: &'a Record,
    /// The progress of pulls and builds.
    pub(crate) progress: Option<&'a str>,
    pub(crate) now: Timestamp,
}

impl StatusInputs<'_> {
    /// The desired state as the status shows it.
    pub(crate) fn spec(&self, target: Option<&TargetRevision>) -> ApplicationSpec {
        let rendered = self.desired.rendered();
        let mut policy = match target {
            Some(target) => target.policy.clone(),
            None => policy_now(self.context, self.desired).unwrap_or_else(|_| rendered.policy.clone()),
        };
        // A target that was not compared with the live state does not say so.
        policy.suspended |= self.other_owner.is_some();
        let mut spec = rendered.shown(policy);
        if let Some(target) = target {
            spec.format = Some(target.stack.format);
            spec.commit = Some(target.commit.clone());
        }
        spec
    }

    /// The images whose registries are asked for newer ones.
    pub(crate) fn images(&self, target: &TargetRevision) -> Vec<ImageUpdateStatus> {
        let Some(stack) = self.desired.applicable_stack() else { return Vec::new() };
        let mut images = image_update_status(self.record, &followed_images(stack, &target.policy), self.now);
        // A failure says nothing about a registry that is not asked.
        if target.policy.suspended || self.other_owner.is_some() {
            for image in &mut images {
                image.failure = None;
            }
        }
        images
    }

    /// The images that run, and those of the failed commit.
    pub(crate) fn digests(&self, target: &TargetRevision) -> ImageDigests {
        let running = running_digests(self.record, &target.stack).into_iter().collect();
        ImageDigests { running, failed: self.record.failed.as_ref().and_then(|failed| failed.images.clone()) }
    }

    /// The conditions about Git, manifests, webhooks, commit statuses and signatures.
    pub(crate) fn conditions(&self, before: &[StatusCondition]) -> Vec<StatusCondition> {
        let (desired, repository) = (self.desired, self.desired.repository());
        let missed = repository.missed.as_ref();
        let missed =
            missed.map(|missed| Statement::new(ConditionStatus::True, "FoundByPolling", missed.to_string()));
        let refused = desired
            .status_error()
            .map(|error| Statement::new(ConditionStatus::False, error.reason, error.message.clone()));
        let lost = self
            .loss_message()
            .map(|message| Statement::new(ConditionStatus::True, "RecoverRequired", message));
        let other_owner =
            self.other_owner.map(|why| Statement::new(ConditionStatus::True, "RecoverRequired", why));
        let statements = [
            (ConditionType::SourceReady, Some(self.fetched())),
            (ConditionType::Rendered, Some(self.rendered())),
            (ConditionType::OwnedByAnotherAgent, other_owner),
            (ConditionType::InGit, self.in_git()),
            (ConditionType::StateLost, lost),
            (ConditionType::WebhookMissed, missed),
            (ConditionType::CommitStatusPosted, refused),
            (ConditionType::Trusted, self.trusted()),
            (ConditionType::CommitFailed, self.failed_commit()),
            (ConditionType::SyncAllowed, self.window()),
        ];
        let conditions = statements
            .into_iter()
            .map(|(kind, statement)| statement.map(|statement| statement.condition(kind, before, self.now)));
        conditions.flatten().collect()
    }

    fn fetched(&self) -> Statement {
        let repository = self.desired.repository();
        match &repository.error {
            None if repository.rewritten => Statement::new(
                ConditionStatus::True,
                "HistoryRewritten",
                "the history was rewritten; the new one is followed",
            ),
            None => Statement::new(ConditionStatus::True, "Fetched", ""),
            Some(FetchFailure { reason, message, since: _ }) => {
                let next = repository.next_fetch.map(|at| format!("; next try at {at}")).unwrap_or_default();
                Statement::new(ConditionStatus::False, reason, format!("{message}{next}"))
            }
        }
    }

    fn rendered(&self) -> Statement {
        match self.desired.findings().find(|finding| finding.is_error()) {
            None => Statement::new(ConditionStatus::True, "Rendered", ""),
            Some(error) => Statement::new(ConditionStatus::False, "InvalidManifest", error.to_string()),
        }
    }

    /// Whether Git has the application. Only if it does not.
    fn in_git(&self) -> Option<Statement> {
        let message = if self.desired.was_gone() {
            "Git or the configuration did not have the application when the repository was last read"
        } else {
            "Git or the configuration does not have the application any more"
        };
        let is_gone = self.desired.is_gone();
        is_gone.then(|| Statement::new(ConditionStatus::False, "NotInGit", message))
    }

    /// Whether the newest commit is accepted. Only for rejected commits, and where a signature is required.
    fn trusted(&self) -> Option<Statement> {
        if let Some(rejected) = self.desired.rejected() {
            return Some(Statement::new(ConditionStatus::False, rejected.reason, rejected.sentence()));
        }
        let signer = self.desired.rendered().signer.as_ref()?;
        Some(Statement::new(ConditionStatus::True, "Signed", format!("signed by {signer}")))
    }

    /// The commit that failed, and what follows.
    fn failed_commit(&self) -> Option<Statement> {
        let failed = self.record.failed.as_ref()?;
        let is_back = failed.back_to.is_some();
        let reason = if is_back { StatusCondition::ROLLED_BACK } else { "RolloutsPaused" };
        Some(Statement::new(ConditionStatus::True, reason, self.failure_note(failed)))
    }

    /// Whether the newest commit waits for a sync window, another application or the first hosts. Only while it does.
    fn window(&self) -> Option<Statement> {
        let held = self.revisions.held()?;
        let sentence = held.sentence(self.context.name());
        Some(Statement::new(ConditionStatus::False, held.reason(), sentence))
    }

    /// The next step after a loss of state.
    pub(crate) fn loss_advice(&self) -> Option<String> {
        self.loss_text(Loss::advice)
    }

    /// The same with the loss itself.
    pub(crate) fn loss_message(&self) -> Option<String> {
        self.loss_text(Loss::message)
    }

    fn loss_text(&self, text: fn(&Loss, &AppName, bool) -> String) -> Option<String> {
        let has_revisions = self.revisions.current().is_some();
        self.revisions.lost().map(|loss| text(loss, self.context.name(), has_revisions))
    }

    /// Why an application that has left Git keeps running, and what ends that.
    fn note_of_gone(&self, target: &TargetRevision, is_pinned: bool) -> String {
        let name = self.context.name();
        let remove = match self.desired.findings().find(|finding| !finding.is_error()) {
            Some(elsewhere) => format!("remove it with `driftless remove {name}`; {}", elsewhere.message),
            None => format!(
                "remove it with `driftless remove {name}`, let it run without the agent with `driftless forget {name}`, or restore it \
                 in Git"
            ),
        };
        let keeps = "the application is not in Git any more; it keeps running, because";
        if let Some(advice) = self.loss_advice() {
            return format!("{keeps} state was lost; {advice}");
        }
        if let Some(doubt) = self.desired.doubt().filter(|_| !is_pinned) {
            return format!(
                "the application was not in Git when its repository was last read, and is left alone until that can be read again: {doubt}"
            );
        }
        let why = if is_pinned {
            "it is pinned"
        } else if target.policy.prune {
            "it is suspended"
        } else {
            "`prune` is off"
        };
        format!("{keeps} {why}: {remove}")
    }

    fn failure_note(&self, failed: &FailedCommit) -> String {
        let name = self.context.name();
        let is_pinned = self.context.store().pin(name).is_ok_and(|pin| pin.is_some());
        let consequence = match failed.back_to {
            _ if is_pinned => "the application is pinned".to_owned(),
            Some(number) => format!("back at revision {number}"),
            None => "its rollouts are paused".to_owned(),
        };
        let advice = if is_pinned {
            format!("`driftless resume {name}` tries the newest commit")
        } else {
            format!("fix it in Git, or `driftless sync {name} --retry`")
        };
        format!("{} failed: {}; {consequence}; {advice}", failed.commit.short(), failed.reason)
    }

    /// Why the newest commit is not reached until somebody acts. A pin leaves nothing to reach, and a newer commit that is not
    /// fetched yet, or is held, may be another one.
    pub(crate) fn obstacle(&self, target: &TargetRevision, plan: &Plan) -> Option<String> {
        let is_followed = target.pin.is_none() && !target.is_leaving && !self.desired.may_be_removed();
        let is_newest = self.desired.newest_commit().id == self.desired.commit().id;
        if !is_followed || !is_newest || self.desired.repository().error.is_some() {
            return None;
        }
        if let Some(error) = self.desired.lasting_error() {
            return Some(format!("{} is not applied: {error}", self.desired.commit().short()));
        }
        if self.revisions.held().is_some() {
            return None;
        }
        let failure = self.record.failed.as_ref().map(|failed| self.failure_note(failed));
        // Containers of another agent are in the way as soon as this one has done its part.
        let is_done = plan.is_settled();
        let awaits_somebody = |wait: &&Wait| {
            wait.is(WaitReason::NotAdopted) || (is_done && wait.is(WaitReason::OfAnotherAgent))
        };
        failure.or_else(|| plan.waits.iter().find(awaits_somebody).map(ToString::to_string))
    }

    /// A failure for good of something that the succeeded revision left as it was. It stays until somebody acts.
    pub(crate) fn lasting_failure(&self, target: &TargetRevision, plan: &Plan) -> Option<String> {
        let is_newest = self.desired.newest_commit().id == self.desired.commit().id;
        // A commit that is held may repair it.
        let is_held = self.revisions.held().is_some();
        if target.is_leaving || !is_newest || is_held || self.desired.repository().error.is_some() {
            return None;
        }
        let is_final = |wait: &&Wait| matches!(wait.reason, WaitReason::Failed | WaitReason::JobFailed);
        let failed = plan.waits.iter().find(is_final).filter(|_| self.has_succeeded(target))?;
        Some(format!("{failed}; `driftless sync {} --retry` tries it again", self.context.name()))
    }

    /// Whether the revision of this target has succeeded.
    pub(crate) fn has_succeeded(&self, target: &TargetRevision) -> bool {
        let current = self.revisions.current().filter(|current| current.stack == target.hash);
        current.is_some_and(|current| current.outcome == Outcome::Succeeded)
    }

    /// The condition about a step that failed.
    pub(crate) fn failure_condition(&self, before: &[StatusCondition]) -> Option<StatusCondition> {
        let attempt = self.record.sync.as_ref()?;
        let statement = Statement::new(ConditionStatus::False, "ActionFailed", attempt.error.clone());
        Some(statement.condition(ConditionType::Applied, before, self.now))
    }

    /// The progress of the newest revision.
    pub(crate) fn operation(&self, plan: &Plan) -> Option<Operation> {
        let revision = self.revisions.current()?;
        let attempt = self.record.sync.as_ref();
        let phase = match &revision.outcome {
            Outcome::InProgress if plan.steps.is_empty() => OperationPhase::Waiting,
            Outcome::InProgress => OperationPhase::Running,
            Outcome::Succeeded | Outcome::Superseded => OperationPhase::Succeeded,
            Outcome::Failed { .. } => OperationPhase::Failed,
        };
        let has_ended = matches!(phase, OperationPhase::Succeeded);
        let message = || {
            let step = || plan.steps.first().map(ToString::to_string);
            let wait = || plan.waits.first().map(ToString::to_string);
            self.progress.map(str::to_owned).or_else(step).or_else(wait).unwrap_or_default()
        };
        // Only a failure has another try. A deadline, at which the plan is looked at again, is none.
        let next = attempt.map(|attempt| attempt.next);
        Some(Operation {
            phase,
            revision: Some(revision.number),
            message: if has_ended { String::new() } else { message() },
            started: revision.started,
            finished: revision.finished.filter(|finished| *finished <= self.now),
            outcome: Some(revision.outcome.clone()),
            attempt: attempt.map_or(0, |attempt| attempt.count),
            next_retry_at: next.filter(|_| !has_ended),
        })
    }

    /// The commit that runs. A commit that changes nothing for this application runs as soon as it is fetched.
    pub(crate) fn running_commit(
        &self,
        target: &TargetRevision,
        plan: &Plan,
        before: Option<CommitInfo>,
    ) -> Option<CommitInfo> {
        let is_settled = self.record.settled.as_ref() == Some(&target.hash);
        let is_reached = is_settled || plan.is_applied() || self.has_succeeded(target);
        if is_reached {
            return Some(target.commit.clone());
        }
        let (store, name) = (self.context.store(), self.context.name());
        // After a restart, the record has it.
        before.or_else(|| self.record.in_sync.clone()).or_else(|| {
            let last = store.revisions(name).and_then(|history| {
                let Some(revision) = last_reached(&history) else { return Ok(None) };
                // After a removal it is in sync with nothing.
                let was_removal = store.stack(name, revision.number)?.is_some_and(|stack| stack.is_empty());
                Ok((!was_removal).then(|| revision.commit.clone()))
            });
            last.unwrap_or_else(|error| {
                tracing::warn!(app = %name, error = chain(&error), "could not read which commit was in sync last");
                None
            })
        })
    }

    /// Adds to the planner's view what it does not know: a pin, a rejected or invalid commit, an application that has
    /// left Git, a failed fetch, a failing database, failed steps.
    pub(crate) fn overrule(&self, target: &TargetRevision, plan: &Plan, status: &mut ApplicationStatus) {
        if status.lasting_failure.is_some() {
            let advice = format!("`driftless sync {} --retry` tries it again", self.context.name());
            status.message = join(&status.message, &advice);
        }
        // The removal of an application does not depend on Git.
        if !self.desired.may_be_removed() || !target.stack.is_empty() {
            self.overrule_by_git(target, status);
        }
        if let Some(error) = self.context.store().last_write_error() {
            let note = format!(
                "{error}; the application is kept as Git says, but a restart of the agent forgets what could not be stored"
            );
            status.message = join(&status.message, &note);
        }
        if let Some(attempt) = &self.record.sync {
            status.health = status.health.max(HealthStatus::Degraded);
            status.message = join(&attempt.error, &status.message);
            // An object that no step acts on any more is not tried again, such as a Job that has failed for good.
            let is_tried_again = |object: &str| plan.steps.iter().any(|step| step.action.object() == object);
            let failures = self.record.failures.iter().filter(|(object, _)| is_tried_again(object));
            let waits = failures.map(|(object, failure)| WaitStatus {
                reason: "BackOff".into(),
                object: object.clone(),
                message: failure.error.clone(),
                attempt: Some(failure.count),
                until: Some(failure.next),
            });
            status.waits.extend(waits);
        }
    }

    /// Adds to the planner's view what it does not know of Git and of the database.
    fn overrule_by_git(&self, target: &TargetRevision, status: &mut ApplicationStatus) {
        let in_git = self.desired.rendered().stack.as_ref();
        if target.stack.is_empty() && in_git.is_some_and(|stack| !stack.is_empty()) {
            // Nothing of it runs, such as while it is pinned to a removal by an older release.
            status.health = status.health.max(HealthStatus::Missing);
        }
        if let Some(pin) = &status.pin {
            status.message = join(&pin_note(pin), &status.message);
        }
        let is_followed = status.pin.is_none() && !target.is_leaving;
        if let Some(failed) = self.record.failed.as_ref().filter(|_| is_followed) {
            if target.back_to.is_some() {
                status.sync = SyncStatus::OutOfSync;
            }
            status.message = self.failure_note(failed);
            if let Some(number) = target.back_to.filter(|_| target.hash == failed.stack) {
                let note = format!(
                    "nothing is changed meanwhile, because the stored revision {number} cannot be read"
                );
                status.message = join(&status.message, &note);
            }
        }
        if let Some(held) = self.revisions.held() {
            status.sync = status.sync.max(SyncStatus::OutOfSync);
            status.message = join(&held.sentence(self.context.name()), &status.message);
            status.waits.extend(held.wait(self.context.name()));
        }
        let mut errors = status.findings.iter().filter(|finding| finding.is_error());
        if let Some(error) = errors.next() {
            let others = match errors.count() {
                0 => String::new(),
                1 => " (and 1 more error)".to_owned(),
                count => format!(" (and {count} more errors)"),
            };
            status.sync = SyncStatus::OutOfSync;
            let note = format!("{} is not applied: {error}{others}", self.desired.invalid_commit().short());
            status.message = join(&note, &status.message);
        }
        if let Some(why) = self.other_owner {
            status.sync = SyncStatus::Unknown;
            status.message = join(why, &status.message);
        }
        if target.policy.suspended && self.revisions.awaits_fetch(self.desired) {
            status.sync = SyncStatus::Unknown;
            let why = "a backup was restored, and nothing is changed until the repository is read; if that needs this application, \
                       `driftless rollback` starts what the backup has";
            status.message = join(why, &status.message);
        }
        if let Some(advice) = self.loss_advice() {
            let newest = self.desired.rendered().hashes.as_deref();
            if newest.is_some_and(|hashes| hashes.stack != target.hash) {
                status.sync = status.sync.max(SyncStatus::OutOfSync);
            }
            status.message = join(&advice, &status.message);
        }
        if let Some(rejected) = self.desired.rejected() {
            status.sync = SyncStatus::OutOfSync;
            let kept = status.commit.as_ref();
            let kept = kept.map(|commit| format!("; {} is kept", commit.short())).unwrap_or_default();
            status.message = join(&format!("{}{kept}", rejected.sentence()), &status.message);
        }
        if target.is_leaving {
            status.sync = SyncStatus::OutOfSync;
            let note = "the application is removed once its PreDelete hooks have succeeded";
            status.message = join(note, &status.message);
        } else if self.desired.is_gone() && !target.stack.is_empty() {
            status.sync = SyncStatus::OutOfSync;
            status.message = self.note_of_gone(target, status.pin.is_some());
        }
        if let Some(error) = &self.desired.repository().error {
            // Without a fetch since the agent started, the age of the commit is not known.
            let known_at = self.desired.repository().fetched_at.unwrap_or(error.since);
            let is_stale = !known_at.is_recent(FETCH_GRACE, self.now);
            if is_stale && status.pin.is_none() {
                status.sync = status.sync.max(SyncStatus::Unknown);
            }
            status.message =
                join(&status.message, &format!("the last good commit is kept: {}", error.message));
        }
    }
}

/// Why an application is kept at something else than the newest commit, as its status says.
pub(crate) fn why_not_newest(status: &ApplicationStatus) -> Vec<String> {
    status.pin.as_ref().map(pin_note).into_iter().chain(kept_back(status, &[])).collect()
}

/// The same once the application is resumed: a pin and a failure end then, and sync windows count again.
pub(crate) fn why_not_newest_after_resume(status: &ApplicationStatus) -> Vec<String> {
    kept_back(status, &[ConditionType::CommitFailed, ConditionType::SyncAllowed]).collect()
}

/// The sentences of the conditions that keep the newest commit back, without some kinds.
fn kept_back<'a>(
    status: &'a ApplicationStatus,
    without: &'a [ConditionType],
) -> impl Iterator<Item = String> + 'a {
    let keeps_back = move |condition: &&StatusCondition| {
        let mut kinds = ConditionType::ALL.iter().filter(|kind| kind.keeps_commit_back());
        let keeps = kinds.any(|kind| condition.is_of(*kind) && !without.contains(kind));
        keeps && condition.is_problem()
    };
    status.conditions.iter().filter(keeps_back).map(|it| it.message.clone())
}

fn pin_note(pin: &PinStatus) -> String {
    let PinStatus { revision, behind, reason, .. } = pin;
    let behind = behind.map(|commits| format!(", {commits} behind")).unwrap_or_default();
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("pinned to revision {revision}{behind}{reason}")
}

/// Hides secrets in the sentences of a status: an error of the engine may quote a command.
pub(crate) fn hide_secrets(status: &mut ApplicationStatus, mask: &Mask) {
    let conditions = status.conditions.iter_mut().map(|condition| &mut condition.message);
    let waits = status.waits.iter_mut().map(|wait| &mut wait.message);
    let findings = status.findings.iter_mut().map(|finding: &mut Finding| &mut finding.message);
    let operation = status.operation.iter_mut().map(|operation| &mut operation.message);
    let sentences =
        status.obstacle.iter_mut().chain(&mut status.lasting_failure).chain([&mut status.message]);
    let all = conditions.chain(waits).chain(findings).chain(operation).chain(sentences);
    all.for_each(|message| *message = mask.message(message));
}

/// Two notes in one line; an empty or equal one is left out.
fn join(first: &str, second: &str) -> String {
    match (first, second) {
        (first, "") => first.to_owned(),
        ("", second) => second.to_owned(),
        (first, second) if first == second => first.to_owned(),
        (first, second) => format!("{first}; {second}"),
    }
}
