//! Incidents: which problems the published status shows, when people are notified of them, and when they are over.
//!
//! A problem is seen in the status again and again. It becomes an incident after its grace time, and is over when it has
//! not been seen for a while. A status that says nothing, because the engine does not answer or the agent has just started,
//! neither begins nor ends an incident, and a problem that is only out of sight is not over (`recovery.rs`).

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    AppName, Application, ApplicationStatus, ConditionType, DriftAction, Expiry, HealthStatus,
    ImageUpdateStatus, Incident, IncidentKind, IncidentPhase, OperationPhase, Outcome, StatusCondition,
    SyncStatus, Timestamp, UpdateMode, Urgency,
};

use crate::{
    incident_facts::{IncidentFacts, IncidentTimes},
    recovery::{is_out_of_sight, may_crash_again},
    text::differs_in_numbers_only,
    wait::WaitReason,
};

/// A problem that is gone for this long is over. Shorter, and one that comes and goes would be reported each time.
const SETTLED_AFTER: Duration = Duration::from_mins(1);

/// The grace time of an engine that does not answer: it may be restarting.
const ENGINE_GRACE: Duration = Duration::from_mins(2);

/// A registry that has given no answer for this long has a fault that does not pass by itself, such as an expired login.
const LONG_UNANSWERED: Duration = Duration::from_hours(24);

/// The grace time then: a machine that has slept for long may need a while for its network.
const REGISTRY_GRACE: Duration = Duration::from_hours(1);

/// The longest message about several differences, in differences.
const MOST_DIFFERENCES: usize = 5;

/// One problem at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    kind: IncidentKind,
    urgency: Urgency,
    app: Option<AppName>,
    repository: Option<String>,
    host: Option<String>,
    message: String,
    advice: String,
    /// As [`Incident::about`].
    about: BTreeSet<String>,
    grace: Duration,
}

/// Why the newest commit is not applied.
struct SyncFailure {
    message: String,
    advice: String,
    /// The revision that failed, or the reason or error that keeps the commit back.
    about: String,
    grace: Duration,
}

/// A change of the open incidents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IncidentChange {
    /// The incident is new or has changed. One without a number is new.
    Keep(Incident),
    /// The incident was not reported, and its problem is gone.
    Drop(Incident),
    /// People are notified. After [`IncidentPhase::Recovered`], the incident is gone.
    Notify(IncidentPhase, Incident),
}

/// The changes of the open incidents, and when to decide again at the latest.
pub fn incidents(
    open: &[Incident],
    facts: &IncidentFacts<'_>,
    times: &IncidentTimes,
) -> (Vec<IncidentChange>, Option<Timestamp>) {
    let mut problems = problems(facts, times);
    let mut changes = Vec::new();
    let mut next: Option<Timestamp> = None;
    let mut look_at = |at: Timestamp| next = Some(next.map_or(at, |known| known.min(at)));
    for before in open {
        let is_same = |problem: &Problem| {
            problem.kind == before.kind
                && problem.app == before.app
                && problem.host == before.host
                && (before.app.is_some() || problem.repository == before.repository)
        };
        let found = problems.iter().position(is_same).map(|index| problems.remove(index));
        let known = without_future(facts.without_jump(before), facts.now);
        let change = match found {
            Some(problem) => go_on(&known, problem, facts.now, times, &mut look_at),
            // The time without a problem begins again.
            None if is_unclear(&known, facts) => {
                known.ended.map(|_| IncidentChange::Keep(Incident { ended: None, ..known.clone() }))
            }
            None => end(&known, facts, &mut look_at),
        };
        // The times that were corrected are stored, so that they go on from there.
        changes.extend(change.or_else(|| (known != *before).then_some(IncidentChange::Keep(known))));
    }
    for problem in problems {
        let Problem { kind, urgency, app, repository, host, message, advice, about, grace } = problem;
        let incident = Incident {
            number: 0,
            kind,
            urgency,
            app,
            repository,
            host,
            message,
            notified_message: None,
            advice,
            about,
            since: facts.now,
            opened: None,
            notified: None,
            ended: None,
            unmanaged: false,
            receivers: BTreeSet::new(),
        };
        changes.push(open_after(incident, grace, facts.now, &mut look_at));
    }
    (changes, next)
}

/// An incident without times in the future. The clock may have been set back, and nobody waits until it has caught up.
fn without_future(incident: Incident, now: Timestamp) -> Incident {
    let past = |at: Option<Timestamp>| at.map(|at| at.min(now));
    Incident {
        since: incident.since.min(now),
        opened: past(incident.opened),
        notified: past(incident.notified),
        ended: past(incident.ended),
        ..incident
    }
}

/// Reports an incident whose grace time is over.
fn open_after(
    mut incident: Incident,
    grace: Duration,
    now: Timestamp,
    look_at: &mut impl FnMut(Timestamp),
) -> IncidentChange {
    let due = incident.since.after(grace);
    if due > now {
        look_at(due);
        return IncidentChange::Keep(incident);
    }
    (incident.opened, incident.notified) = (Some(now), Some(now));
    IncidentChange::Notify(IncidentPhase::Opened, incident)
}

/// The change of an incident whose problem is still there.
fn go_on(
    before: &Incident,
    problem: Problem,
    now: Timestamp,
    times: &IncidentTimes,
    look_at: &mut impl FnMut(Timestamp),
) -> Option<IncidentChange> {
    let is_worse = problem.urgency > before.urgency;
    let is_other = !before.about.is_empty() && !problem.about.is_subset(&before.about);
    // The next commit fails, too: its author waits for the message.
    let is_at_once =
        is_worse || (is_other && problem.kind == IncidentKind::SyncFailed && problem.grace == Duration::ZERO);
    let is_unknown = before.about.is_empty() && !problem.about.is_empty();
    let incident = Incident {
        urgency: problem.urgency.max(before.urgency),
        message: problem.message,
        advice: problem.advice,
        about: problem.about,
        ended: None,
        ..before.clone()
    };
    if before.opened.is_none() {
        let change = open_after(incident, problem.grace, now, look_at);
        let is_news = !matches!(&change, IncidentChange::Keep(kept) if kept == before);
        return is_news.then_some(change);
    }
    // Counters and times in a sentence are no news.
    let notified = before.notified_message.as_ref().unwrap_or(&before.message);
    if is_at_once || is_other || !differs_in_numbers_only(&incident.message, notified) {
        let due = before.notified.unwrap_or(before.since).after(times.update);
        if is_at_once || due <= now {
            let incident = Incident { notified: Some(now), notified_message: None, ..incident };
            return Some(IncidentChange::Notify(IncidentPhase::Updated, incident));
        }
        look_at(due);
        // The last notification is kept as well, so that the present message is still news when its time comes.
        let (about, notified_message) = (before.about.clone(), Some(notified.clone()));
        let incident = Incident { about, notified_message, ..incident };
        let is_changed = before.ended.is_some() || incident.message != before.message;
        return is_changed.then_some(IncidentChange::Keep(incident));
    }
    // The set is that of the last notification.
    let about = if is_unknown { incident.about } else { before.about.clone() };
    let is_changed = before.ended.is_some() || is_unknown || before.notified_message.is_some();
    is_changed.then_some(IncidentChange::Keep(Incident { about, notified_message: None, ..incident }))
}

/// The change of an incident whose problem is gone.
fn end(
    before: &Incident,
    facts: &IncidentFacts<'_>,
    look_at: &mut impl FnMut(Timestamp),
) -> Option<IncidentChange> {
    let now = facts.now;
    if before.opened.is_none() {
        return Some(IncidentChange::Drop(before.clone()));
    }
    let ended = before.ended.unwrap_or(now);
    // A pin ends because somebody ended it.
    let pause = if before.kind == IncidentKind::RolledBack { Duration::ZERO } else { SETTLED_AFTER };
    let incident = Incident { ended: Some(ended), ..before.clone() };
    let due = ended.after(pause);
    if due <= now {
        // An application that is gone is not well again.
        let incident = Incident { unmanaged: !facts.has_subject(before), ..incident };
        return Some(IncidentChange::Notify(IncidentPhase::Recovered, incident));
    }
    look_at(due);
    before.ended.is_none().then_some(IncidentChange::Keep(incident))
}

/// Whether the status does not tell if the problem of an incident is gone.
fn is_unclear(incident: &Incident, facts: &IncidentFacts<'_>) -> bool {
    let has_just_started = facts.has_just_started();
    if incident.host.is_some() {
        // The hosts have not had the time to report to a collector that was down.
        return has_just_started || (!facts.is_fleet_read && !facts.has_subject(incident));
    }
    let Some(app) = &incident.app else {
        return match &incident.repository {
            Some(name) => {
                let known = facts.repositories.iter().find(|repository| repository.name == *name);
                known.map_or(has_just_started, |repository| repository.fetched_at.is_none())
            }
            None => false,
        };
    };
    match facts.applications.get(app) {
        Some(application) => {
            let status = &application.status;
            // A commit that failed since is a problem of its own, and nothing is healthy again.
            let is_unwell = matches!(status.health, HealthStatus::Degraded | HealthStatus::Missing)
                || may_crash_again(status);
            (incident.kind == IncidentKind::Degraded && is_unwell)
                || (incident.opened.is_some() && is_out_of_sight(incident.kind, application))
                || status.observed_at.is_none()
                || (status.sync == SyncStatus::Unknown && status.health == HealthStatus::Unknown)
        }
        None => !facts.is_ready || has_just_started,
    }
}

/// All problems at this moment.
fn problems(facts: &IncidentFacts<'_>, times: &IncidentTimes) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(error) = facts.engine_error {
        problems.push(Problem {
            kind: IncidentKind::EngineUnreachable,
            urgency: Urgency::Critical,
            app: None,
            repository: None,
            host: None,
            message: error.to_owned(),
            advice: "check it with `docker info` and `systemctl status docker` on the host".to_owned(),
            about: BTreeSet::new(),
            grace: ENGINE_GRACE,
        });
    }
    // Only a failed fetch has a reason: a message may also be about a fetched commit.
    for repository in facts.repositories.iter().filter(|repository| !repository.reason.is_empty()) {
        let last = repository.fetched_at.filter(|at| *at <= facts.now).unwrap_or(facts.started);
        let kept = if repository.commit.is_some() { "the last good commit is kept; " } else { "" };
        problems.push(Problem {
            kind: IncidentKind::GitUnreachable,
            urgency: Urgency::Warning,
            app: None,
            repository: Some(repository.name.clone()),
            host: None,
            // Also true where the start of the agent stands for a last fetch that is not known.
            message: format!("not fetched since {last}: {}", repository.message),
            advice: format!("{kept}`driftless status` has the error"),
            about: BTreeSet::new(),
            grace: times.git,
        });
    }
    if !facts.has_just_started() {
        let lost = facts.hosts.iter().filter_map(|(host, lost)| Some((host, lost.as_ref()?)));
        problems.extend(lost.map(|(host, message)| Problem {
            kind: IncidentKind::HostLost,
            urgency: Urgency::Critical,
            app: None,
            repository: None,
            host: Some(host.clone()),
            message: message.clone(),
            advice: format!(
                "check the host and its agent; `driftless fleet remove {host}` forgets a host that is gone for good"
            ),
            about: BTreeSet::new(),
            grace: Duration::ZERO,
        }));
    }
    problems.extend(of_expiries(facts));
    for application in facts.applications.values() {
        of_application(application, facts, times, &mut problems);
        problems.extend(image_available(application));
        problems.extend(image_check_failed(application, facts.now));
        problems.extend(recover_required(application, times));
    }
    problems
}

/// All ends that are soon are one problem.
fn of_expiries(facts: &IncidentFacts<'_>) -> Option<Problem> {
    let now = facts.now;
    let soon: Vec<&Expiry> = facts.expiries.iter().filter(|expiry| expiry.is_soon(now)).collect();
    let sentences: Vec<String> = soon.iter().map(|expiry| expiry.sentence(now)).collect();
    let is_urgent = soon.iter().any(|expiry| expiry.is_urgent(now));
    (!sentences.is_empty()).then(|| Problem {
        kind: IncidentKind::CredentialExpiring,
        urgency: if is_urgent { Urgency::Critical } else { Urgency::Warning },
        app: None,
        repository: None,
        host: None,
        message: several(&sentences),
        advice: "renew it: new certificates and keyrings are read without a restart, tokens come from \
                 `driftless token create`"
            .to_owned(),
        about: BTreeSet::new(),
        grace: Duration::ZERO,
    })
}

fn of_application(
    application: &Application,
    facts: &IncidentFacts<'_>,
    times: &IncidentTimes,
    problems: &mut Vec<Problem>,
) {
    let Application { name, spec, status, generation: _ } = application;
    let problem = |kind, urgency, message: String, advice: String, grace| Problem {
        kind,
        urgency,
        app: Some(name.clone()),
        repository: Some(spec.repository.clone()),
        host: None,
        message,
        advice,
        about: BTreeSet::new(),
        grace,
    };
    let has_older = facts.with_older.contains(name);
    let sync_failure = sync_failure(application, has_older, times);
    let has_failed = sync_failure.is_some();
    if let Some(SyncFailure { message, advice, about, grace }) = sync_failure {
        let failed = problem(IncidentKind::SyncFailed, Urgency::Critical, message, advice, grace);
        problems.push(Problem { about: BTreeSet::from([about]), ..failed });
    }
    // A failed commit is why the application is not well, unless the last good one runs again.
    if (!has_failed || runs_the_last_good(status))
        && !awaits_its_first_sync(status)
        && matches!(status.health, HealthStatus::Degraded | HealthStatus::Missing)
    {
        let message = if status.message.is_empty() { "it does not run" } else { &status.message };
        let message = message.to_owned();
        let advice = advice_for_degraded(application, has_older);
        problems.push(problem(IncidentKind::Degraded, Urgency::Critical, message, advice, times.degraded));
    }
    let of = |wanted: DriftAction| {
        let found = status.drift.iter().filter(move |drift| drift.action == wanted);
        found.map(|drift| {
            format!("{}: {} is {}, Git says {}", drift.object, drift.field, drift.found, drift.want)
        })
    };
    let fight: Vec<String> = of(DriftAction::Ineffective).collect();
    if !fight.is_empty() {
        let advice = format!("change it in Git, or find out who changes it: `driftless drift {name}`");
        let message = several(&fight);
        problems.push(problem(
            IncidentKind::DriftNotHealed,
            Urgency::Warning,
            message,
            advice,
            Duration::ZERO,
        ));
    }
    let reported: Vec<String> = of(DriftAction::Report).collect();
    if !reported.is_empty() && !spec.policy.suspended {
        let advice = format!(
            "undo it with `driftless sync {name} --heal`, or bring it to Git: `driftless drift {name}`"
        );
        let message = several(&reported);
        problems.push(problem(IncidentKind::DriftFound, Urgency::Warning, message, advice, Duration::ZERO));
    } else if let Some(message) = facts.drift.get(name).filter(|_| !spec.policy.suspended) {
        let advice =
            format!("the agent undoes it; `driftless events --app {name}` lists what was changed and when");
        problems.push(problem(
            IncidentKind::DriftFound,
            Urgency::Info,
            message.clone(),
            advice,
            Duration::ZERO,
        ));
    }
    if let Some(wait) = status.waits.iter().find(|wait| wait.is(WaitReason::PruneHeld)) {
        let advice = format!("if that is meant, confirm it with `driftless sync {name} --prune`");
        problems.push(problem(
            IncidentKind::PruneHeld,
            Urgency::Warning,
            wait.message.clone(),
            advice,
            Duration::ZERO,
        ));
    }
    if let Some(pin) = &status.pin {
        let reason = if pin.reason.is_empty() { String::new() } else { format!(": {}", pin.reason) };
        let message = format!("pinned to revision {} ({}){reason}", pin.revision, pin.commit.short());
        let advice = format!("new commits are not applied until `driftless resume {name}`");
        problems.push(problem(IncidentKind::RolledBack, Urgency::Info, message, advice, Duration::ZERO));
    }
}

/// The problem that registries have newer images, which are only reported.
fn image_available(application: &Application) -> Option<Problem> {
    let Application { name, spec, status, .. } = application;
    let reported = || status.images.iter().filter(|image| image.mode == UpdateMode::Report);
    // Not its digest, which also changes with the platforms of its index.
    let key = |image: &ImageUpdateStatus| {
        image.available.as_ref().map(|newer| format!("{}, newer since {}", image.image, newer.since))
    };
    let about: BTreeSet<String> = reported().filter_map(key).collect();
    let newer = reported().filter(|image| image.available.is_some());
    let newer: Vec<String> = newer.filter_map(ImageUpdateStatus::sentence).collect();
    (!newer.is_empty()).then(|| Problem {
        kind: IncidentKind::ImageAvailable,
        urgency: Urgency::Info,
        app: Some(name.clone()),
        repository: Some(spec.repository.clone()),
        host: None,
        message: several(&newer),
        advice: format!(
            "deploy it with `driftless sync {name} --update-images`, or always, with `imageUpdate: digest`"
        ),
        about,
        grace: Duration::ZERO,
    })
}

/// The problem that newer images are to be deployed, and their registries give no answer.
fn image_check_failed(application: &Application, now: Timestamp) -> Option<Problem> {
    let Application { name, spec, status, .. } = application;
    let is_long = |image: &&ImageUpdateStatus| {
        let failure = image.failure.as_ref().filter(|failure| !failure.may_pass());
        let since = failure.and_then(|failure| failure.since);
        image.mode == UpdateMode::Apply && since.is_some_and(|since| now.since(since) >= LONG_UNANSWERED)
    };
    let unanswered = status.images.iter().filter(is_long);
    let sentences: Vec<String> = unanswered.filter_map(ImageUpdateStatus::failure_sentence).collect();
    (!sentences.is_empty()).then(|| Problem {
        kind: IncidentKind::ImageCheckFailed,
        urgency: Urgency::Warning,
        app: Some(name.clone()),
        repository: Some(spec.repository.clone()),
        host: None,
        message: several(&sentences),
        advice: format!("check the image and the login of its registry; `driftless sync {name}` asks again"),
        about: BTreeSet::new(),
        grace: REGISTRY_GRACE,
    })
}

/// The problem that no new commit is applied until a user confirms a loss of state, or the owner of the containers. An agent that is
/// being moved has a moment for it.
fn recover_required(application: &Application, times: &IncidentTimes) -> Option<Problem> {
    let Application { name, spec, status, .. } = application;
    let kinds = [ConditionType::StateLost, ConditionType::OwnedByAnotherAgent];
    let condition = kinds.into_iter().find_map(|kind| status.problem(kind))?;
    Some(Problem {
        kind: IncidentKind::RecoverRequired,
        urgency: Urgency::Critical,
        app: Some(name.clone()),
        repository: Some(spec.repository.clone()),
        host: None,
        message: condition.message.clone(),
        advice: format!("check it with `driftless status {name}`, then run `driftless recover`"),
        about: BTreeSet::new(),
        grace: times.degraded,
    })
}

/// Advice about an application that is not well. With `has_older`, a user can go back.
fn advice_for_degraded(application: &Application, has_older: bool) -> String {
    let Application { name, status, .. } = application;
    // The commit is good then: no other one changes anything about the containers of another agent.
    let is_shared = status.message.starts_with(WaitReason::OfAnotherAgent.as_str());
    let rollback = if has_older && !is_shared {
        format!(", `driftless rollback {name}` goes back to the last good revision")
    } else {
        String::new()
    };
    // Of such a failure, nothing is tried again unasked.
    if status.lasting_failure.is_some() {
        return format!(
            "once its cause is gone, `driftless sync {name} --retry` starts it again; or correct it in Git{rollback}"
        );
    }
    format!("`driftless status {name}` names the containers{rollback}")
}

/// Why the newest commit is not applied. With `has_older`, a user can go back.
fn sync_failure(application: &Application, has_older: bool, times: &IncidentTimes) -> Option<SyncFailure> {
    let Application { name, status, .. } = application;
    if let Some(condition) = status.problem(ConditionType::Rendered) {
        let first_error = status.findings.iter().find(|finding| finding.is_error());
        let is_of_host = first_error.is_some_and(|finding| finding.path == "valuesFrom");
        return Some(SyncFailure {
            message: condition.message.clone(),
            advice: "correct it in Git; until then the last good commit is kept".to_owned(),
            // No commit changes anything about a source on the host, and its error may have the time in it.
            about: if is_of_host { condition.reason.clone() } else { condition.message.clone() },
            grace: Duration::ZERO,
        });
    }
    if let Some(condition) = status.problem(ConditionType::Trusted) {
        return Some(SyncFailure {
            message: condition.message.clone(),
            advice: format!("`driftless status {name}` says what is missing; the last good commit is kept"),
            // It names the commit.
            about: condition.message.clone(),
            grace: Duration::ZERO,
        });
    }
    // A rollback that follows a failure is a revision of its own.
    let current = status.operation.as_ref().and_then(|operation| operation.revision);
    let revision = status.failed_revision.or(current).map(|number| format!("revision {number}"));
    let operation = status.operation.as_ref().filter(|operation| operation.phase == OperationPhase::Failed);
    if let Some(operation) = operation {
        let reason = match &operation.outcome {
            Some(Outcome::Failed { reason }) => reason.clone(),
            _ => operation.message.clone(),
        };
        let number = operation.revision.map(|number| format!("revision {number}: ")).unwrap_or_default();
        let advice = if status.pin.is_some() {
            format!("`driftless resume {name}` tries the newest commit")
        } else if has_older {
            format!("correct it in Git, or go back with `driftless rollback {name}`")
        } else {
            format!("correct it in Git, or `driftless sync {name} --retry` tries it again")
        };
        let about = revision.unwrap_or_default();
        return Some(SyncFailure {
            message: format!("{number}{reason}"),
            advice,
            about,
            grace: Duration::ZERO,
        });
    }
    // A user who has rolled back knows of it: the pin is an incident of its own.
    let failed = status.problem(ConditionType::CommitFailed).filter(|_| status.pin.is_none());
    if let Some(condition) = failed {
        return Some(SyncFailure {
            message: condition.message.clone(),
            advice: format!("correct it in Git, or `driftless sync {name} --retry` tries it again"),
            about: revision.unwrap_or_else(|| condition.reason.clone()),
            grace: Duration::ZERO,
        });
    }
    // A step that failed is tried again, and often succeeds then. An application that is waited for may be added soon.
    let held = status.problem(ConditionType::SyncAllowed);
    let unknown = held.filter(|condition| condition.reason == StatusCondition::DEPENDENCY_UNKNOWN);
    let applied = status.problem(ConditionType::Applied);
    let about = revision.filter(|_| applied.is_some());
    let condition = applied.or(unknown)?;
    Some(SyncFailure {
        message: condition.message.clone(),
        advice: format!("`driftless status {name}` has the details; the agent goes on trying"),
        about: about.unwrap_or_else(|| condition.reason.clone()),
        grace: times.degraded,
    })
}

/// Whether nothing was deployed yet because the first commit waits, as for a sync window. That is no failure.
fn awaits_its_first_sync(status: &ApplicationStatus) -> bool {
    status.revision.is_none() && status.problem(ConditionType::SyncAllowed).is_some()
}

/// Whether the last good revision runs in the place of a commit that failed, or that waits without an end.
fn runs_the_last_good(status: &ApplicationStatus) -> bool {
    let reasons = [StatusCondition::ROLLED_BACK, StatusCondition::DEPENDENCY_UNKNOWN];
    status.conditions.iter().any(|condition| reasons.contains(&condition.reason.as_str()))
}

/// The first few of many sentences.
fn several(sentences: &[String]) -> String {
    let shown = sentences.iter().take(MOST_DIFFERENCES).cloned().collect::<Vec<_>>().join("; ");
    match sentences.len().saturating_sub(MOST_DIFFERENCES) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

#[cfg(test)]
mod tests;
