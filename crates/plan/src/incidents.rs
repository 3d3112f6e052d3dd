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
        let Problem { kind, urgency, app, repository, host, message, advice, grace } = problem;
        let incident = Incident {
            number: 0,
            kind,
            urgency,
            app,
            repository,
            host,
            message,
            advice,
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
    let incident = Incident {
        urgency: problem.urgency.max(before.urgency),
        message: problem.message,
        advice: problem.advice,
        ended: None,
        ..before.clone()
    };
    if before.opened.is_none() {
        let change = open_after(incident, problem.grace, now, look_at);
        let is_news = !matches!(&change, IncidentChange::Keep(kept) if kept == before);
        return is_news.then_some(change);
    }
    // Counters and times in a sentence are no news.
    if is_worse || !differs_in_numbers_only(&incident.message, &before.message) {
        let due = before.notified.unwrap_or(before.since).after(times.update);
        if is_worse || due <= now {
            let incident = Incident { notified: Some(now), ..incident };
            return Some(IncidentChange::Notify(IncidentPhase::Updated, incident));
        }
        look_at(due);
        // The message of the last notification stays, so that the new one is still news when its time comes.
        return before.ended.map(|_| IncidentChange::Keep(Incident { ended: None, ..before.clone() }));
    }
    before.ended.map(|_| IncidentChange::Keep(incident))
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
            grace: Duration::ZERO,
        }));
    }
    problems.extend(of_expiries(facts));
    for application in facts.applications.values() {
        of_application(application, facts, times, &mut problems);
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
        grace,
    };
    let has_older = facts.with_older.contains(name);
    let sync_failure = sync_failure(application, has_older, times);
    let has_failed = sync_failure.is_some();
    if let Some((message, advice, grace)) = sync_failure {
        problems.push(problem(IncidentKind::SyncFailed, Urgency::Critical, message, advice, grace));
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
    let reported = status.images.iter().filter(|image| image.mode == UpdateMode::Report);
    let newer = reported.filter(|image| image.available.is_some());
    let newer: Vec<String> = newer.filter_map(ImageUpdateStatus::sentence).collect();
    if !newer.is_empty() {
        let advice = format!(
            "deploy it with `driftless sync {name} --update-images`, or always, with `imageUpdate: digest`"
        );
        let message = several(&newer);
        problems.push(problem(IncidentKind::ImageAvailable, Urgency::Info, message, advice, Duration::ZERO));
    }
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

/// Why the newest commit is not applied, what to do, and the grace time. With `has_older`, a user can go back.
fn sync_failure(
    application: &Application,
    has_older: bool,
    times: &IncidentTimes,
) -> Option<(String, String, Duration)> {
    let Application { name, status, .. } = application;
    if let Some(condition) = status.problem(ConditionType::Rendered) {
        let advice = "correct it in Git; until then the last good commit is kept".to_owned();
        return Some((condition.message.clone(), advice, Duration::ZERO));
    }
    if let Some(condition) = status.problem(ConditionType::Trusted) {
        let advice = format!("`driftless status {name}` says what is missing; the last good commit is kept");
        return Some((condition.message.clone(), advice, Duration::ZERO));
    }
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
        return Some((format!("{number}{reason}"), advice, Duration::ZERO));
    }
    // A user who has rolled back knows of it: the pin is an incident of its own.
    let failed = status.problem(ConditionType::CommitFailed).filter(|_| status.pin.is_none());
    if let Some(condition) = failed {
        let advice = format!("correct it in Git, or `driftless sync {name} --retry` tries it again");
        return Some((condition.message.clone(), advice, Duration::ZERO));
    }
    // A step that failed is tried again, and often succeeds then. An application that is waited for may be added soon.
    let held = status.problem(ConditionType::SyncAllowed);
    let unknown = held.filter(|condition| condition.reason == StatusCondition::DEPENDENCY_UNKNOWN);
    let condition = status.problem(ConditionType::Applied).or(unknown)?;
    let advice = format!("`driftless status {name}` has the details; the agent goes on trying");
    Some((condition.message.clone(), advice, times.degraded))
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
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use driftless_model::{ApplicationSpec, ConditionStatus, Drift, Operation, Policy, RepositoryStatus};

    const DAY: Duration = Duration::from_hours(24);

    const TIMES: IncidentTimes =
        IncidentTimes { degraded: Duration::from_mins(5), git: DAY, update: Duration::from_hours(1) };

    fn shop(health: HealthStatus) -> BTreeMap<AppName, Arc<Application>> {
        let status = ApplicationStatus { health, observed_at: Some(Timestamp(1)), ..Default::default() };
        let spec = ApplicationSpec {
            repository: "infra".to_owned(),
            url: String::new(),
            reference: String::new(),
            path: String::new(),
            format: None,
            policy: Policy::default(),
            commit: None,
        };
        let application = Application { name: "shop".into(), spec, status, generation: 1 };
        BTreeMap::from([("shop".into(), Arc::new(application))])
    }

    /// Decides a minute after the clock was set back by a day, in the middle of the life of the agent.
    fn judge_after_setting_back(
        open: &[Incident],
        applications: &BTreeMap<AppName, Arc<Application>>,
        now: Timestamp,
    ) -> Vec<IncidentChange> {
        judge(open, (applications, &[]), (now, now), &TIMES)
    }

    /// Decides at the second of two times about applications and repositories, with an agent that started at the first.
    fn judge(
        open: &[Incident],
        (applications, repositories): (&BTreeMap<AppName, Arc<Application>>, &[RepositoryStatus]),
        (started, now): (Timestamp, Timestamp),
        times: &IncidentTimes,
    ) -> Vec<IncidentChange> {
        let facts = IncidentFacts {
            applications,
            repositories,
            engine_error: None,
            is_ready: true,
            drift: &BTreeMap::new(),
            hosts: &BTreeMap::new(),
            is_fleet_read: true,
            expiries: &[],
            with_older: &BTreeSet::new(),
            started,
            jump: Duration::ZERO,
            now,
        };
        incidents(open, &facts, times).0
    }

    /// The conditions of an application whose newest commit waits for a sync window.
    fn held() -> Vec<StatusCondition> {
        vec![StatusCondition {
            kind: "SyncAllowed".to_owned(),
            status: ConditionStatus::False,
            reason: "WindowClosed".to_owned(),
            message: String::new(),
            last_transition_time: Timestamp(1),
        }]
    }

    fn kept(changes: Vec<IncidentChange>) -> Vec<Incident> {
        let incident = |change| match change {
            IncidentChange::Keep(incident) | IncidentChange::Notify(_, incident) => incident,
            IncidentChange::Drop(_) => panic!("nothing is dropped"),
        };
        changes.into_iter().map(incident).collect()
    }

    #[test]
    fn incidents_go_on_after_the_clock_was_set_back() {
        let (unwell, well) = (shop(HealthStatus::Degraded), shop(HealthStatus::Healthy));
        let before = Timestamp(1_800_000_000_000);
        let now = Timestamp(before.0 - 86_400_000);
        let minutes = |count| now.after(Duration::from_mins(count));
        let seen = kept(judge_after_setting_back(&[], &unwell, before));
        // Its grace time begins again.
        let seen = kept(judge_after_setting_back(&seen, &unwell, now));
        let opened = judge_after_setting_back(&seen, &unwell, minutes(5));
        assert!(matches!(opened[..], [IncidentChange::Notify(IncidentPhase::Opened, _)]), "{opened:?}");
        // It seems to be over since a time that is in the future now.
        let open = kept(opened).into_iter().map(|incident| Incident { ended: Some(before), ..incident });
        let open: Vec<Incident> = open.collect();
        let over = kept(judge_after_setting_back(&open, &well, minutes(6)));
        let over = judge_after_setting_back(&over, &well, minutes(7));
        assert!(matches!(over[..], [IncidentChange::Notify(IncidentPhase::Recovered, _)]), "{over:?}");
    }

    #[test]
    fn application_is_not_healthy_again_because_a_commit_fails() {
        let now = Timestamp(1_800_000_000_000);
        let minutes = |count| now.after(Duration::from_mins(count));
        let mut unwell = shop(HealthStatus::Degraded);
        let seen = kept(judge_after_setting_back(&[], &unwell, now));
        let open = kept(judge_after_setting_back(&seen, &unwell, minutes(5)));
        let condition = |kind: &str, status, message: &str| StatusCondition {
            kind: kind.to_owned(),
            status,
            reason: String::new(),
            message: message.to_owned(),
            last_transition_time: now,
        };
        let invalid = condition("Rendered", ConditionStatus::False, "web has no image");
        Arc::make_mut(unwell.get_mut(&"shop".into()).unwrap()).status.conditions = vec![invalid];
        let changes = judge_after_setting_back(&open, &unwell, minutes(6));
        let kinds = changes.iter().map(|change| match change {
            IncidentChange::Notify(phase, incident) => (*phase, incident.kind),
            other => panic!("{other:?}"),
        });
        assert_eq!(kinds.collect::<Vec<_>>(), [(IncidentPhase::Opened, IncidentKind::SyncFailed)]);
        // It ends once it is healthy.
        let well = shop(HealthStatus::Healthy);
        let open = kept(judge_after_setting_back(&open, &well, minutes(60)));
        let over = judge_after_setting_back(&open, &well, minutes(61));
        assert!(matches!(over[..], [IncidentChange::Notify(IncidentPhase::Recovered, _)]), "{over:?}");

        // A commit that was rolled back is reported, although the application is healthy.
        let mut back = shop(HealthStatus::Healthy);
        let failed = condition("CommitFailed", ConditionStatus::True, "went back to revision 1");
        Arc::make_mut(back.get_mut(&"shop".into()).unwrap()).status.conditions = vec![failed];
        let changes = judge_after_setting_back(&[], &back, now);
        let [IncidentChange::Notify(IncidentPhase::Opened, incident)] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(incident.kind, IncidentKind::SyncFailed);
        assert!(incident.message.contains("went back to revision 1"), "{incident:?}");

        // The older revision may break down, too. A commit that keeps it from being well is one incident.
        for (reason, kinds) in [
            ("RolledBack", vec![IncidentKind::SyncFailed, IncidentKind::Degraded]),
            ("RolloutsPaused", vec![IncidentKind::SyncFailed]),
        ] {
            let mut broken = shop(HealthStatus::Degraded);
            let mut failed = condition("CommitFailed", ConditionStatus::True, "went back to revision 1");
            failed.reason = reason.to_owned();
            Arc::make_mut(broken.get_mut(&"shop".into()).unwrap()).status.conditions = vec![failed];
            let open = kept(judge_after_setting_back(&[], &broken, now));
            let all: Vec<_> = open.iter().map(|incident| incident.kind).collect();
            assert_eq!(all, kinds, "{reason}");
        }
    }

    #[test]
    fn incident_is_not_over_while_its_problem_is_out_of_sight() {
        let now = Timestamp(1_800_000_000_000);
        let minutes = |count| now.after(Duration::from_mins(count));
        let seen = kept(judge_after_setting_back(&[], &shop(HealthStatus::Degraded), now)).remove(0);
        let running = Operation {
            phase: OperationPhase::Running,
            revision: Some(2),
            message: String::new(),
            started: now,
            finished: None,
            outcome: None,
            attempt: 0,
            next_retry_at: None,
        };
        let differs = Drift {
            kind: "container".to_owned(),
            object: "shop-web-1".to_owned(),
            workload: None,
            field: "resources.memory".to_owned(),
            want: "64 MiB".to_owned(),
            found: "128 MiB".to_owned(),
            at: None,
            action: DriftAction::Report,
        };
        let healthy =
            ApplicationStatus { health: HealthStatus::Healthy, observed_at: Some(now), ..Default::default() };
        // As before an adoption that somebody has to ask for.
        let waiting = Operation { phase: OperationPhase::Waiting, ..running.clone() };
        for (kind, status) in [
            (IncidentKind::SyncFailed, ApplicationStatus { operation: Some(running), ..healthy.clone() }),
            (IncidentKind::SyncFailed, ApplicationStatus { operation: Some(waiting), ..healthy.clone() }),
            (IncidentKind::SyncFailed, ApplicationStatus { conditions: held(), ..healthy.clone() }),
            (
                IncidentKind::Degraded,
                ApplicationStatus { health: HealthStatus::Progressing, ..healthy.clone() },
            ),
            (IncidentKind::DriftFound, ApplicationStatus { drift: vec![differs], ..healthy.clone() }),
        ] {
            // The minute without the problem begins again after this.
            let ended = Some(minutes(9));
            let open = Incident { kind, opened: Some(now), notified: Some(now), ended, ..seen.clone() };
            let mut unseen = shop(HealthStatus::Healthy);
            let application = Arc::make_mut(unseen.get_mut(&"shop".into()).unwrap());
            (application.status, application.spec.policy.suspended) =
                (status, kind == IncidentKind::DriftFound);
            let open = kept(judge_after_setting_back(&[open], &unseen, minutes(10)));
            assert_eq!(open[0].ended, None, "{kind:?}");
            assert_eq!(judge_after_setting_back(&open, &unseen, minutes(60)), [], "{kind:?}");
            let well = shop(HealthStatus::Healthy);
            let open = kept(judge_after_setting_back(&open, &well, minutes(61)));
            let over = judge_after_setting_back(&open, &well, minutes(62));
            assert!(matches!(over[..], [IncidentChange::Notify(IncidentPhase::Recovered, _)]), "{over:?}");
        }
    }

    #[test]
    fn first_commit_that_waits_on_purpose_is_no_incident() {
        let mut waits = shop(HealthStatus::Missing);
        let now = Timestamp(1_800_000_000_000);
        for (revision, count) in [(None, 0), (Some(1), 1)] {
            let status = &mut Arc::make_mut(waits.get_mut(&"shop".into()).unwrap()).status;
            (status.conditions, status.revision) = (held(), revision);
            assert_eq!(judge_after_setting_back(&[], &waits, now).len(), count, "{revision:?}");
            let status = &mut Arc::make_mut(waits.get_mut(&"shop".into()).unwrap()).status;
            status.conditions[0].reason = "DependencyUnknown".to_owned();
            assert_eq!(judge_after_setting_back(&[], &waits, now).len(), count + 1, "{revision:?}");
        }
    }

    #[test]
    fn incident_of_a_removed_application_says_that_it_is_gone() {
        let now = Timestamp(1_800_000_000_000);
        let minutes = |count| now.after(Duration::from_mins(count));
        for (after, headline) in [
            (BTreeMap::new(), "shop is not managed any more"),
            (shop(HealthStatus::Healthy), "shop is healthy again"),
        ] {
            let seen = kept(judge_after_setting_back(&[], &shop(HealthStatus::Degraded), now));
            let open = kept(judge_after_setting_back(&seen, &shop(HealthStatus::Degraded), minutes(5)));
            let judge = |open: &[Incident], now| judge(open, (&after, &[]), (Timestamp(1), now), &TIMES);
            let ended = kept(judge(&open, minutes(60)));
            let over = judge(&ended, minutes(61));
            let [IncidentChange::Notify(phase, incident)] = &over[..] else { panic!("{over:?}") };
            assert_eq!(incident.headline(*phase), headline);
        }
    }

    #[test]
    fn repository_is_unreachable_only_while_its_fetches_fail() {
        let start = Timestamp(1_800_000_000_000);
        let minutes = |count| start.after(Duration::from_mins(count));
        let times = IncidentTimes { git: Duration::from_mins(15), ..TIMES };
        let judge = |open: &[Incident], reason: &str, fetched_at, now| {
            let repository = RepositoryStatus {
                name: "infra".to_owned(),
                url: String::new(),
                reference: "main".to_owned(),
                commit: None,
                history_length: None,
                applications: 1,
                message: "the commit b is refused, or not reached".to_owned(),
                reason: reason.to_owned(),
                fetched_at,
                next_fetch: None,
                keys: Vec::new(),
                hosts: Vec::new(),
            };
            judge(open, (&BTreeMap::new(), &[repository]), (start, now), &times)
        };
        // It is polled each hour, with success, and its newest commit is rejected.
        assert_eq!(judge(&[], "", Some(start), minutes(59)), []);
        // A fetch fails long after the last one: the grace time begins now.
        let seen = kept(judge(&[], "ServerFailed", Some(start), minutes(60)));
        assert_eq!(seen[0].opened, None);
        assert_eq!(judge(&seen, "ServerFailed", Some(start), minutes(74)), []);
        let gone = judge(&seen, "", Some(minutes(61)), minutes(61));
        assert!(matches!(gone[..], [IncidentChange::Drop(_)]), "{gone:?}");
        let opened = judge(&seen, "ServerFailed", Some(start), minutes(75));
        assert!(matches!(opened[..], [IncidentChange::Notify(IncidentPhase::Opened, _)]), "{opened:?}");
        // The agent has just started and does not know the time of the last fetch, which is no news.
        assert_eq!(judge(&kept(opened), "ServerFailed", None, minutes(76)), []);
        let unread = kept(judge(&[], "ServerFailed", None, minutes(60))).remove(0);
        assert!(unread.message.starts_with(&format!("not fetched since {start}: ")), "{unread:?}");
        assert_eq!(unread.advice, "`driftless status` has the error");
    }

    #[test]
    fn rollback_is_advised_only_where_there_is_an_older_revision() {
        let with_failed_sync = |application: &mut Application| {
            application.status.operation = Some(Operation {
                phase: OperationPhase::Failed,
                revision: Some(1),
                message: "failed".to_owned(),
                started: Timestamp(1),
                finished: None,
                outcome: None,
                attempt: 1,
                next_retry_at: None,
            });
        };
        let with_another_agent = |application: &mut Application| {
            application.status.message = "OfAnotherAgent: web is run by theirs of agent old".to_owned();
        };
        for (is_failed, is_shared) in [(false, false), (true, false), (false, true)] {
            let mut applications = shop(HealthStatus::Degraded);
            for application in applications.values_mut().map(Arc::make_mut) {
                if is_failed {
                    with_failed_sync(application);
                }
                if is_shared {
                    with_another_agent(application);
                }
            }
            for has_older in [false, true] {
                let with_older: BTreeSet<AppName> = has_older.then(|| "shop".into()).into_iter().collect();
                let facts = IncidentFacts {
                    applications: &applications,
                    repositories: &[],
                    engine_error: None,
                    is_ready: true,
                    drift: &BTreeMap::new(),
                    hosts: &BTreeMap::new(),
                    is_fleet_read: true,
                    expiries: &[],
                    with_older: &with_older,
                    started: Timestamp(1),
                    jump: Duration::ZERO,
                    now: Timestamp(1_800_000_000_000),
                };
                let found = problems(&facts, &TIMES);
                assert_eq!(found.len(), 1, "{found:?}");
                let is_advised = found[0].advice.contains("driftless rollback shop");
                assert_eq!(is_advised, has_older && !is_shared, "{found:?}");
            }
        }
    }

    #[test]
    fn ends_that_are_near_are_one_incident_that_gets_urgent() {
        let begins = Timestamp(1_000_000);
        let expiry = |subject: &str, days: u32| Expiry {
            subject: subject.to_owned(),
            what: "the certificate c.pem".to_owned(),
            begins,
            ends: begins.after(DAY * days),
        };
        let expiries = [expiry("tls", 90), expiry("metrics.tls", 92)];
        let times = IncidentTimes { degraded: DAY, git: DAY, update: Duration::from_hours(1) };
        let mut open: Vec<Incident> = Vec::new();
        let mut seen = Vec::new();
        let mut ends = |day: u32, expiries: &[Expiry]| {
            let facts = IncidentFacts {
                applications: &BTreeMap::new(),
                repositories: &[],
                engine_error: None,
                is_ready: true,
                drift: &BTreeMap::new(),
                with_older: &BTreeSet::new(),
                hosts: &BTreeMap::new(),
                is_fleet_read: true,
                expiries,
                started: begins,
                jump: Duration::ZERO,
                now: begins.after(DAY * day),
            };
            for change in incidents(&open, &facts, &times).0 {
                match change {
                    IncidentChange::Notify(phase, incident) => {
                        seen.push((day, phase, incident.urgency, incident.message.clone()));
                        open = (phase != IncidentPhase::Recovered).then_some(incident).into_iter().collect();
                    }
                    IncidentChange::Keep(incident) => open = vec![incident],
                    IncidentChange::Drop(_) => open.clear(),
                }
            }
        };
        for day in [10, 75, 77, 78, 80, 89] {
            ends(day, &expiries);
        }
        ends(89, &expiries[1..]);
        ends(91, &[]);
        ends(92, &[]);
        let said: Vec<_> = seen.iter().map(|(day, phase, urgency, _)| (*day, *phase, *urgency)).collect();
        assert_eq!(
            said,
            [
                (77, IncidentPhase::Opened, Urgency::Warning),
                (78, IncidentPhase::Updated, Urgency::Warning),
                (89, IncidentPhase::Updated, Urgency::Critical),
                (92, IncidentPhase::Recovered, Urgency::Critical),
            ],
            "{seen:?}"
        );
        assert!(
            seen[1].3.contains("(tls) expires in 12 days") && seen[1].3.contains("(metrics.tls)"),
            "{seen:?}"
        );
    }
}
