//! Publishes what an application is to be and what it is. The one place that makes an [`Application`].

use std::{sync::Arc, time::Duration};

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::{
    Application, ApplicationSpec, ApplicationStatus, ConditionStatus, EventKind, Finding, HealthStatus, Mask,
    Observed, Operation, OperationPhase, Outcome, PinStatus, StackHash, StatusCondition, SyncStatus,
    Timestamp, WaitStatus,
};
use driftless_plan::{Assessment, PRUNE_HELD, Plan, assess, canonical_yaml, resources};

use crate::{
    app::App,
    commit_status::{Known, Told, verdict},
    desired::{Orders, Presence},
    revisions::{Goal, lost_state},
};

/// Git may be away for so long before we say that we do not know any more what it asks for.
const GIT_GRACE: Duration = Duration::from_mins(4);

impl<D: Docker, S: Source> App<D, S> {
    /// After a look at Docker: everything is known.
    pub(crate) fn publish(&mut self, goal: &Goal, observed: &Observed, plan: &Plan, now: Timestamp) {
        let before = std::mem::take(&mut self.status);
        let assessment =
            assess(&goal.stack, observed, &self.record, plan, now, &before.conditions, &before.workloads);
        let Assessment { sync, health, message, mut workloads, conditions, waits, drift } = assessment;
        let mut all = self.conditions(&before.conditions, now);
        all.extend(conditions);
        all.extend(self.failure_condition(&before.conditions, now));
        for (name, workload) in &mut workloads {
            let wanted = goal.stack.workloads.get(name);
            workload.spec.template =
                wanted.map_or_else(String::new, |wanted| canonical_yaml(&wanted.container, &self.mask));
            for (name, value) in &mut workload.spec.labels {
                *value = self.mask.value(name, value);
            }
            let awaited = workload.awaited.iter_mut().map(|awaited| &mut awaited.message);
            let messages = workload.instances.iter_mut().map(|instance| &mut instance.message);
            awaited.chain(messages).for_each(|message| *message = self.mask.message(message));
        }
        let mut status = ApplicationStatus {
            observed_generation: self.generation,
            sync,
            health,
            message,
            operation: self.operation(plan, now),
            revision: self.revision.as_ref().map(|it| it.number),
            commit: self.commit_that_runs(goal, plan, before.commit),
            pin: self.pin_status(goal),
            conditions: all,
            workloads: kept(&before.workloads, workloads),
            resources: kept(&before.resources, resources(&goal.stack, &self.record)),
            findings: self.findings(),
            waits,
            drift,
            last_plan: before.last_plan,
            last_plan_at: before.last_plan_at,
            observed_at: Some(now),
            fetched_at: self.orders.fetched_at,
        };
        self.overrule(goal, &mut status);
        hide_secrets(&mut status, &self.mask);
        self.tell_held(&before.waits, &status.waits);
        self.status = status;
        self.send(Some(goal));
        self.tell_forge();
    }

    /// Something new was asked for: until a look at Docker has answered it, the status speaks of what was before.
    pub(crate) fn announce(&mut self) {
        self.generation = self.generation.saturating_add(1);
        let generation = self.generation;
        self.shared.applications.send_modify(|all| {
            let Some(before) = all.get(&self.name) else { return };
            let application = Application { generation, ..Application::clone(before) };
            Arc::make_mut(all).insert(self.name.clone(), Arc::new(application));
        });
    }

    /// Between two looks: only what we are doing has changed.
    pub(crate) fn publish_progress(&mut self) {
        let Some(text) = self.pulls.progress() else { return };
        if let Some(operation) = &mut self.status.operation {
            operation.message = text;
        }
        let status = self.status.clone();
        self.shared.applications.send_modify(|all| {
            let Some(before) = all.get(&self.name) else { return };
            let application = Application { status, ..Application::clone(before) };
            Arc::make_mut(all).insert(self.name.clone(), Arc::new(application));
        });
    }

    /// The newest commit changes nothing for this application: only what is said of Git moves on.
    pub(crate) fn publish_quietly(&mut self, before: &Orders) {
        let (old, new) = (&before.wanted.commit, &self.orders.wanted.commit);
        self.status.fetched_at = self.orders.fetched_at;
        let runs_old = self.status.commit.as_ref().is_some_and(|it| it.id == old.id);
        if runs_old {
            self.status.commit = Some(new.clone());
        }
        let (status, wanted) = (self.status.clone(), Arc::clone(&self.orders.wanted));
        self.shared.applications.send_modify(|all| {
            let Some(shown) = all.get(&self.name) else { return };
            let mut application = Application { status, ..Application::clone(shown) };
            application.spec.commit = Some(wanted.commit.clone());
            application.spec.reference.clone_from(&wanted.reference);
            Arc::make_mut(all).insert(self.name.clone(), Arc::new(application));
        });
    }

    /// Nothing was ever good enough to be applied: say why.
    pub(crate) fn publish_without_goal(&mut self) {
        let now = self.shared.clock.now();
        let findings = self.findings();
        let first = findings.iter().find(|it| it.is_error()).map(ToString::to_string);
        let refused = self.orders.refused.as_ref().map(|it| it.sentence());
        let trouble = refused.or_else(|| self.orders.trouble.clone());
        let conditions = self.conditions(&self.status.conditions, now);
        self.status = ApplicationStatus {
            observed_generation: self.generation,
            sync: SyncStatus::Unknown,
            health: HealthStatus::Missing,
            message: first.or(trouble).unwrap_or_else(|| "nothing to apply yet".into()),
            conditions,
            findings,
            fetched_at: self.orders.fetched_at,
            observed_at: Some(now),
            ..ApplicationStatus::default()
        };
        self.send(None);
        self.tell_forge();
    }

    /// We could not look: what was known is kept, and said to be uncertain.
    pub(crate) fn publish_trouble(&mut self, error: &str) {
        let now = self.shared.clock.now();
        self.status.sync = SyncStatus::Unknown;
        self.status.health = HealthStatus::Unknown;
        let error = self.mask.message(error);
        self.status.message.clone_from(&error);
        self.status.fetched_at = self.orders.fetched_at;
        self.status.findings = self.findings();
        let attempt = self.record.sync.clone();
        self.status.operation = Some(Operation {
            phase: OperationPhase::Waiting,
            revision: self.revision.as_ref().map(|it| it.number),
            message: error,
            started: now,
            finished: None,
            outcome: None,
            attempt: attempt.as_ref().map_or(self.engine_failures, |it| it.count),
            next_retry_at: attempt.map(|it| it.next),
        });
        self.send(None);
    }

    /// What the forge is to be told of the newest commit; who tells it, and when, is no concern of ours.
    fn tell_forge(&self) {
        let wanted = &self.orders.wanted;
        if self.orders.presence == Presence::Gone || wanted.commit.id.is_empty() {
            return;
        }
        let known = Known {
            wanted: &wanted.commit,
            findings: &self.status.findings,
            pin: self.status.pin.as_ref(),
            health: self.status.health,
            reached: self.status.commit.as_ref(),
            revision: self.revision.as_ref(),
            message: &self.status.message,
        };
        let Some((state, description)) = verdict(&known) else { return };
        let told = Told {
            repository: wanted.repository.clone(),
            commit: wanted.commit.id.clone(),
            state,
            description,
        };
        self.shared.verdicts.send_if_modified(|all| {
            let is_new = all.get(&self.name) != Some(&told);
            all.insert(self.name.clone(), told);
            is_new
        });
    }

    fn send(&self, goal: Option<&Goal>) {
        let wanted = &self.orders.wanted;
        let spec = ApplicationSpec {
            repository: wanted.repository.clone(),
            url: wanted.url.clone(),
            reference: wanted.reference.clone(),
            path: wanted.spec.path.clone(),
            format: goal.map(|it| it.stack.format).or(wanted.stack.as_ref().map(|it| it.format)),
            policy: goal.map_or_else(|| wanted.policy.clone(), |it| it.policy.clone()),
            commit: goal
                .map(|it| it.commit.clone())
                .or_else(|| Some(wanted.commit.clone()).filter(|it| !it.id.is_empty())),
        };
        let application = Arc::new(Application {
            name: self.name.clone(),
            spec,
            generation: self.generation,
            status: self.status.clone(),
        });
        let is_over = self.orders.presence == Presence::Gone
            && goal.is_some_and(|it| it.stack.workloads.is_empty())
            && self.status.sync == SyncStatus::Synced;
        self.shared.applications.send_modify(|all| {
            let all = Arc::make_mut(all);
            if is_over {
                all.remove(&self.name);
            } else {
                all.insert(self.name.clone(), application);
            }
        });
    }

    /// What stands above the planner's view: an application that is gone, a commit that may not be applied.
    fn overrule(&self, goal: &Goal, status: &mut ApplicationStatus) {
        if let Some(pin) = &status.pin {
            let behind = pin.behind.map(|it| format!(", {it} behind")).unwrap_or_default();
            let note = format!("pinned to revision {}{behind}: {}", pin.revision, pin.reason);
            status.message = join(&note, &status.message);
        }
        let errors: Vec<&Finding> = status.findings.iter().filter(|it| it.is_error()).collect();
        if let Some(first) = errors.first() {
            status.sync = SyncStatus::OutOfSync;
            let what = format!("{} is not applied: {first}", self.orders.wanted.commit.short());
            status.message = join(&what, &status.message);
        }
        if self.loss.is_some() {
            let newest = self.orders.wanted.stack.as_deref();
            if newest.is_some_and(|stack| StackHash::of(stack) != goal.hash) {
                status.sync = status.sync.max(SyncStatus::OutOfSync);
            }
            status.message = join(&lost_state(&self.name), &status.message);
        }
        if let Some(refusal) = &self.orders.refused {
            status.sync = SyncStatus::OutOfSync;
            let kept =
                status.commit.as_ref().map(|it| format!("; {} is kept", it.short())).unwrap_or_default();
            status.message = join(&format!("{}{kept}", refusal.sentence()), &status.message);
        }
        if self.orders.presence == Presence::Gone && !goal.policy.prune {
            status.sync = SyncStatus::OutOfSync;
            status.message = "it is not in Git any more; what runs is kept, because prune is off".into();
        }
        if let Some(trouble) = &self.orders.trouble {
            let now = self.shared.clock.now();
            let is_stale = self.orders.fetched_at.is_some_and(|it| now.since(it) > GIT_GRACE);
            if is_stale && status.pin.is_none() {
                status.sync = status.sync.max(SyncStatus::Unknown);
            }
            status.message = join(&status.message, &format!("the last good commit is kept: {trouble}"));
        }
        if let Some(trouble) = self.shared.store.trouble() {
            let saying = format!("{trouble}; what runs is enforced all the same, but a restart would forget");
            status.message = join(&status.message, &saying);
        }
        if let Some(attempt) = &self.record.sync {
            status.health = status.health.max(HealthStatus::Degraded);
            status.message = join(&attempt.error, &status.message);
            for (object, failure) in &self.record.failures {
                status.waits.push(WaitStatus {
                    reason: "BackOff".into(),
                    object: object.clone(),
                    message: failure.error.clone(),
                    attempt: Some(failure.count),
                    until: Some(failure.next),
                });
            }
        }
    }

    /// Somebody has to say a word, and may be looking at the events only.
    fn tell_held(&self, before: &[WaitStatus], now: &[WaitStatus]) {
        let held = now.iter().find(|it| it.reason == PRUNE_HELD);
        let Some(held) = held.filter(|it| !before.iter().any(|old| old.message == it.message)) else {
            return;
        };
        tracing::warn!(app = %self.name, "{}", held.message);
        self.tell(EventKind::Warning, PRUNE_HELD, self.name.as_str(), &held.message);
    }

    fn findings(&self) -> Vec<Finding> {
        self.orders.wanted.findings.iter().chain(&self.orders.objections).cloned().collect()
    }

    fn operation(&self, plan: &Plan, now: Timestamp) -> Option<Operation> {
        let revision = self.revision.as_ref()?;
        let next = self.record.sync.as_ref().map(|it| it.next).or(plan.look_again);
        let running = !plan.steps.is_empty();
        let phase = match &revision.outcome {
            Outcome::InProgress if running => OperationPhase::Running,
            Outcome::InProgress => OperationPhase::Waiting,
            Outcome::Succeeded | Outcome::Superseded => OperationPhase::Succeeded,
            Outcome::Failed { .. } => OperationPhase::Failed,
        };
        let step = plan.steps.first().map(ToString::to_string);
        let wait = plan.waits.first().map(ToString::to_string);
        let is_over = matches!(phase, OperationPhase::Succeeded);
        Some(Operation {
            phase,
            revision: Some(revision.number),
            message: self.pulls.progress().or(step).or(wait).filter(|_| !is_over).unwrap_or_default(),
            started: revision.started,
            finished: revision.finished.filter(|it| *it <= now),
            outcome: Some(revision.outcome.clone()),
            attempt: self.record.sync.as_ref().map_or(0, |it| it.count),
            next_retry_at: next.filter(|_| !is_over),
        })
    }

    /// A commit that changes nothing for this application is reached as soon as it is known.
    fn commit_that_runs(
        &self,
        goal: &Goal,
        plan: &Plan,
        before: Option<driftless_model::CommitInfo>,
    ) -> Option<driftless_model::CommitInfo> {
        let is_reached = self.record.settled.as_ref() == Some(&goal.hash) || plan.is_settled();
        if is_reached { Some(goal.commit.clone()) } else { before.or_else(|| self.commit_of_last_success()) }
    }

    fn commit_of_last_success(&self) -> Option<driftless_model::CommitInfo> {
        self.shared.store.last_succeeded(&self.name).ok().flatten().map(|it| it.commit)
    }

    fn pin_status(&self, goal: &Goal) -> Option<PinStatus> {
        let pin = goal.pin.as_ref()?;
        let key = (pin.commit.clone(), self.orders.wanted.commit.id.clone());
        let behind = self.behind.as_ref().filter(|it| it.0 == key).and_then(|it| it.1);
        Some(PinStatus {
            revision: pin.revision,
            commit: pin.commit.clone(),
            reason: pin.reason.clone(),
            at: pin.at,
            until: pin.until,
            behind,
        })
    }

    fn conditions(&self, before: &[StatusCondition], now: Timestamp) -> Vec<StatusCondition> {
        let source = match &self.orders.trouble {
            None if self.orders.rewritten => (
                ConditionStatus::True,
                "HistoryRewritten",
                "the history was rewritten; the new one is followed".into(),
            ),
            None => (ConditionStatus::True, "Fetched", String::new()),
            Some(trouble) => {
                let next = self.orders.next_fetch.map(|it| format!("; next try at {it}")).unwrap_or_default();
                (ConditionStatus::False, "FetchFailed", format!("{trouble}{next}"))
            }
        };
        let findings = self.findings();
        let rendered = match findings.iter().find(|it| it.is_error()) {
            None => (ConditionStatus::True, "Rendered", String::new()),
            Some(finding) => (ConditionStatus::False, "InvalidManifest", finding.to_string()),
        };
        let missed = self.orders.missed.as_ref().map(|missed| {
            let said = (ConditionStatus::True, "FoundByPolling", missed.to_string());
            condition("WebhookMissed", said, before, now)
        });
        let untold = self.orders.untold.as_ref().map(|untold| {
            let said = (ConditionStatus::False, "Refused", untold.clone());
            condition("CommitStatusTold", said, before, now)
        });
        let always =
            [condition("SourceReady", source, before, now), condition("Rendered", rendered, before, now)];
        let trust = self.trust().map(|it| condition("Trusted", it, before, now));
        let lost = self.loss.as_ref().map(|what| {
            let said =
                (ConditionStatus::True, "RecoverRequired", format!("{}: {what}", lost_state(&self.name)));
            condition("StateLost", said, before, now)
        });
        always.into_iter().chain(lost).chain(missed).chain(untold).chain(trust).collect()
    }

    /// Whether the newest commit may be taken up, where it may not or where a signature is asked for.
    fn trust(&self) -> Option<(ConditionStatus, &'static str, String)> {
        if let Some(refusal) = &self.orders.refused {
            return Some((ConditionStatus::False, refusal.reason, refusal.sentence()));
        }
        let signer = self.orders.wanted.signer.as_ref()?;
        Some((ConditionStatus::True, "Signed", format!("signed by {signer}")))
    }

    fn failure_condition(&self, before: &[StatusCondition], now: Timestamp) -> Option<StatusCondition> {
        let attempt = self.record.sync.as_ref()?;
        let said = (ConditionStatus::False, "ActionFailed", attempt.error.clone());
        Some(condition("Applied", said, before, now))
    }
}

/// Hides secrets in the sentences of a status: an error of the engine may quote a command.
fn hide_secrets(status: &mut ApplicationStatus, mask: &Mask) {
    let conditions = status.conditions.iter_mut().map(|condition| &mut condition.message);
    let waits = status.waits.iter_mut().map(|wait| &mut wait.message);
    let findings = status.findings.iter_mut().map(|finding| &mut finding.message);
    let operation = status.operation.iter_mut().map(|operation| &mut operation.message);
    let all = conditions.chain(waits).chain(findings).chain(operation).chain([&mut status.message]);
    all.for_each(|message| *message = mask.message(message));
}

/// A condition whose time moves only when its status does.
fn condition(
    kind: &str,
    (status, reason, message): (ConditionStatus, &str, String),
    before: &[StatusCondition],
    now: Timestamp,
) -> StatusCondition {
    let same = before.iter().find(|it| it.kind == kind && it.status == status);
    StatusCondition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
        last_transition_time: same.map_or(now, |it| it.last_transition_time),
    }
}

/// What was published before, where it is still so: two equal ones would be held in its place.
fn kept<T: PartialEq>(before: &Arc<T>, new: T) -> Arc<T> {
    if **before == new { Arc::clone(before) } else { Arc::new(new) }
}

fn join(first: &str, second: &str) -> String {
    if first.is_empty() || second.is_empty() || first == second {
        return format!("{first}{}", if first == second { "" } else { second });
    }
    format!("{first}; {second}")
}
