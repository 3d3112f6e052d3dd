//! Incidents of applications that are well for moments only, or that no commit reaches.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_model::{
    Application, ApplicationSpec, ApplicationStatus, AvailableImage, CheckFailure, CommitId, ConditionStatus,
    ExitStatus, Finding, HealthStatus, ImageUpdateStatus, Incident, IncidentKind, IncidentPhase,
    InstanceStatus, Location, Operation, OperationPhase, Outcome, PartSpec, PartStatus, PinStatus, Policy,
    RepositoryStatus, Role, StatusCondition, Until, UpdateMode, Urgency, WorkloadStatus,
};
use driftless_plan::{IncidentChange, IncidentFacts, IncidentTimes, incidents};

use crate::fixture::NOON;

/// An application with one container that has crashed so many times in a row.
fn shop(health: HealthStatus, crashes: u32) -> ApplicationStatus {
    let web = InstanceStatus { crashes, ..InstanceStatus::default() };
    with_instance(health, web)
}

fn with_instance(health: HealthStatus, instance: InstanceStatus) -> ApplicationStatus {
    let web = WorkloadStatus { instances: vec![instance], ..WorkloadStatus::default() };
    ApplicationStatus {
        health,
        observed_at: Some(NOON),
        workloads: Arc::new(BTreeMap::from([("web".into(), web)])),
        ..ApplicationStatus::default()
    }
}

/// The changes so many minutes after noon. The agent has run for a day.
fn judge(open: &[Incident], status: ApplicationStatus, minute: u64) -> Vec<IncidentChange> {
    judge_after_jump(open, status, minute, Duration::ZERO)
}

/// The same after the clock has just gone on alone by so much.
fn judge_after_jump(
    open: &[Incident],
    status: ApplicationStatus,
    minute: u64,
    jump: Duration,
) -> Vec<IncidentChange> {
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
    let facts = IncidentFacts {
        applications: &BTreeMap::from([("shop".into(), Arc::new(application))]),
        repositories: &[],
        engine_error: None,
        is_ready: true,
        drift: &BTreeMap::new(),
        hosts: &BTreeMap::new(),
        is_fleet_read: true,
        expiries: &[],
        with_older: &BTreeSet::new(),
        started: NOON,
        jump,
        now: NOON.after(Duration::from_mins(24 * 60 + minute)),
    };
    let minutes = Duration::from_mins;
    let times = IncidentTimes { degraded: minutes(5), git: minutes(15), update: minutes(60) };
    incidents(open, &facts, &times).0
}

fn kept(changes: Vec<IncidentChange>) -> Vec<Incident> {
    let incident = |change| match change {
        IncidentChange::Keep(incident) | IncidentChange::Notify(_, incident) => incident,
        IncidentChange::Drop(_) => panic!("nothing is dropped"),
    };
    changes.into_iter().map(incident).collect()
}

#[test]
fn jump_of_the_clock_counts_into_no_grace_time() {
    use HealthStatus::{Degraded, Healthy};
    let jump = Duration::from_hours(3);
    let minute = |lived: u64| 180 + lived;
    let seen = kept(judge(&[], shop(Degraded, 0), 0));
    let seen = kept(judge_after_jump(&seen, shop(Degraded, 0), minute(2), jump));
    assert_eq!(seen[0].opened, None, "it is degraded for two minutes");
    assert_eq!(judge(&seen, shop(Degraded, 0), minute(4)), []);
    let opened = judge(&seen, shop(Degraded, 0), minute(5));
    assert!(matches!(opened[..], [IncidentChange::Notify(IncidentPhase::Opened, _)]), "{opened:?}");
    let open = kept(opened);
    // It keeps its time, and is not over sooner.
    let ended = kept(judge(&open, shop(Healthy, 0), minute(6)));
    let ended = kept(judge_after_jump(&ended, shop(Healthy, 0), 2 * minute(3), jump));
    assert_eq!((ended[0].since, ended[0].opened), (open[0].since, open[0].opened));
    let over = judge(&ended, shop(Healthy, 0), 2 * minute(3) + 1);
    assert!(matches!(over[..], [IncidentChange::Notify(IncidentPhase::Recovered, _)]), "{over:?}");
}

#[test]
fn container_that_runs_for_minutes_is_one_incident() {
    use HealthStatus::{Degraded, Healthy};
    let seen = kept(judge(&[], shop(Degraded, 2), 0));
    assert_eq!(judge(&seen, shop(Healthy, 2), 2), [], "it is not over");
    let opened = judge(&seen, shop(Degraded, 3), 6);
    assert!(matches!(opened[..], [IncidentChange::Notify(IncidentPhase::Opened, _)]), "{opened:?}");
    let open = kept(opened);
    for minute in [7, 9] {
        assert_eq!(judge(&open, shop(Healthy, 3), minute), [], "{minute}");
    }
    assert_eq!(judge(&open, shop(Degraded, 4), 12), []);
    // It has run for ten minutes.
    let over = kept(judge(&open, shop(Healthy, 0), 25));
    let over = judge(&over, shop(Healthy, 0), 26);
    assert!(matches!(over[..], [IncidentChange::Notify(IncidentPhase::Recovered, _)]), "{over:?}");
}

#[test]
fn only_repeated_crashes_of_running_containers_last() {
    use HealthStatus::{Degraded, Healthy};
    let seen = kept(judge(&[], shop(Degraded, 1), 0));
    let is_over =
        |status: ApplicationStatus| matches!(judge(&seen, status, 2)[..], [IncidentChange::Drop(_)]);
    assert!(is_over(shop(Healthy, 1)));
    // A Job that has succeeded at its third try.
    let exit = Some(ExitStatus { code: 0, finished: NOON, out_of_memory: false });
    let done = InstanceStatus { crashes: 2, exit, ..InstanceStatus::default() };
    assert!(is_over(with_instance(Healthy, done)));
    let container = InstanceStatus { crashes: 2, ..InstanceStatus::default() };
    let spec = PartSpec { name: "serve".to_owned(), role: Role::App, image: "serve:1".to_owned() };
    let part = PartStatus { spec, instance: Some(Box::new(container)) };
    let pod = InstanceStatus { containers: vec![part], ..InstanceStatus::default() };
    assert!(!is_over(with_instance(Healthy, pod)));
}

#[test]
fn failed_commit_is_no_news_after_a_rollback() {
    let failed = |message: &str, pin: Option<PinStatus>| {
        let condition = StatusCondition {
            kind: "CommitFailed".to_owned(),
            status: ConditionStatus::True,
            reason: "RolloutsPaused".to_owned(),
            message: message.to_owned(),
            last_transition_time: NOON,
        };
        let healthy = shop(HealthStatus::Healthy, 0);
        ApplicationStatus { conditions: vec![condition], pin, ..healthy }
    };
    let pin = PinStatus {
        revision: 1,
        commit: CommitId::from_stored("a"),
        reason: String::new(),
        at: NOON,
        until: Until::Manual,
        behind: None,
        actor: None,
    };
    let open = kept(judge(&[], failed("b failed; its rollouts are paused", None), 0));
    let pinned = failed("b failed; the application is pinned", Some(pin));
    let changes = judge(&open, pinned.clone(), 90);
    let [IncidentChange::Notify(IncidentPhase::Opened, rolled_back)] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(rolled_back.kind, IncidentKind::RolledBack);
    // The commit is not synced again either, as long as the pin lasts.
    let open = [open, kept(changes)].concat();
    assert_eq!(judge(&open, pinned, 600), []);
    // The pin ends, and another try of the commit succeeds.
    let ended = judge(&open, shop(HealthStatus::Healthy, 0), 601);
    let [IncidentChange::Keep(synced), IncidentChange::Notify(IncidentPhase::Recovered, resumed)] =
        &ended[..]
    else {
        panic!("{ended:?}")
    };
    assert_eq!((synced.kind, resumed.kind), (IncidentKind::SyncFailed, IncidentKind::RolledBack));
}

#[test]
fn failure_for_good_has_the_command_that_tries_it_again() {
    let failure = "db.1 failed with code 1 and is not started again".to_owned();
    let unwell = shop(HealthStatus::Degraded, 0);
    let failed = ApplicationStatus { lasting_failure: Some(failure), ..unwell.clone() };
    for (status, is_named) in [(failed, true), (unwell, false)] {
        let seen = kept(judge(&[], status, 0));
        let advice = seen[0].advice.as_str();
        assert_eq!(advice.contains("`driftless sync shop --retry`"), is_named, "{advice}");
    }
}

#[test]
fn removed_host_or_repository_is_not_well_again() {
    let now = NOON.after(Duration::from_mins(24 * 60));
    let incident = |kind, repository: Option<&str>, host: Option<&str>| Incident {
        number: 1,
        kind,
        urgency: Urgency::Critical,
        app: None,
        repository: repository.map(str::to_owned),
        host: host.map(str::to_owned),
        message: String::new(),
        notified_message: None,
        advice: String::new(),
        about: BTreeSet::new(),
        since: NOON,
        opened: Some(NOON),
        notified: Some(NOON),
        ended: Some(now),
        unmanaged: false,
        receivers: BTreeSet::new(),
    };
    let open = [
        incident(IncidentKind::HostLost, None, Some("web-1")),
        incident(IncidentKind::GitUnreachable, Some("infra"), None),
    ];
    let infra = RepositoryStatus {
        name: "infra".to_owned(),
        url: String::new(),
        reference: "main".to_owned(),
        commit: None,
        history_length: None,
        applications: 0,
        message: String::new(),
        reason: String::new(),
        fetched_at: Some(now),
        next_fetch: None,
        keys: Vec::new(),
        hosts: Vec::new(),
    };
    let ends =
        |hosts: &BTreeMap<String, Option<String>>, is_fleet_read, repositories: &[RepositoryStatus]| {
            let facts = IncidentFacts {
                applications: &BTreeMap::new(),
                repositories,
                engine_error: None,
                is_ready: true,
                drift: &BTreeMap::new(),
                hosts,
                is_fleet_read,
                expiries: &[],
                with_older: &BTreeSet::new(),
                started: NOON,
                jump: Duration::ZERO,
                now: now.after(Duration::from_mins(1)),
            };
            let minutes = Duration::from_mins;
            let times = IncidentTimes { degraded: minutes(5), git: minutes(15), update: minutes(60) };
            let ended = |change| match change {
                IncidentChange::Notify(phase, incident) => Some(incident.headline(phase)),
                IncidentChange::Keep(_) | IncidentChange::Drop(_) => None,
            };
            incidents(&open, &facts, &times).0.into_iter().filter_map(ended).collect::<Vec<_>>()
        };
    let heard = BTreeMap::from([("web-1".to_owned(), None)]);
    assert_eq!(ends(&heard, true, &[infra]), ["host web-1 is back", "repository infra is fetched again"]);
    let removed = ends(&BTreeMap::new(), true, &[]);
    assert_eq!(
        removed,
        ["host web-1 was removed from the fleet", "repository infra is not followed any more"]
    );
    // A host that cannot be read is neither back nor removed.
    assert_eq!(ends(&BTreeMap::new(), false, &[]), ["repository infra is not followed any more"]);
}

/// A lost state directory stops all deployments, although every application is healthy.
#[test]
fn application_that_awaits_recovery_is_one_incident() {
    let waiting = |kind: &str| StatusCondition {
        kind: kind.to_owned(),
        status: ConditionStatus::True,
        reason: "RecoverRequired".to_owned(),
        message: "no new commit is applied".to_owned(),
        last_transition_time: NOON,
    };
    for kind in ["StateLost", "OwnedByAnotherAgent"] {
        let conditions = vec![waiting(kind)];
        let status = ApplicationStatus { conditions, ..shop(HealthStatus::Healthy, 0) };
        let seen = kept(judge(&[], status.clone(), 0));
        let opened = judge(&seen, status.clone(), 5);
        let [IncidentChange::Notify(IncidentPhase::Opened, incident)] = &opened[..] else {
            panic!("{opened:?}")
        };
        assert_eq!((incident.kind, incident.urgency), (IncidentKind::RecoverRequired, Urgency::Critical));
        assert!(incident.advice.contains("`driftless recover`"), "{incident:?}");
        let open = kept(opened);
        assert_eq!(judge(&open, status, 9), [], "it is not over");
        let ended = kept(judge(&open, shop(HealthStatus::Healthy, 0), 10));
        let over = judge(&ended, shop(HealthStatus::Healthy, 0), 11);
        assert!(matches!(over[..], [IncidentChange::Notify(IncidentPhase::Recovered, _)]), "{over:?}");
    }
}

/// An application with its newest revision in this phase. A failure has the same reason each time, at this minute.
fn at_revision(number: u64, phase: OperationPhase, minute: u32) -> ApplicationStatus {
    let reason = format!("web has made no progress since 9:{minute}:00");
    let operation = Operation {
        phase,
        revision: Some(number),
        message: String::new(),
        started: NOON,
        finished: None,
        outcome: (phase == OperationPhase::Failed).then_some(Outcome::Failed { reason }),
        attempt: 0,
        next_retry_at: None,
    };
    ApplicationStatus { operation: Some(operation), ..shop(HealthStatus::Progressing, 0) }
}

#[test]
fn next_commit_that_fails_is_reported_at_once() {
    use OperationPhase::{Failed, Running};
    let open = kept(judge(&[], at_revision(12, Failed, 40), 0));
    assert_eq!(judge(&open, at_revision(12, Failed, 50), 90), [], "it is the same commit");
    assert_eq!(judge(&open, at_revision(13, Running, 0), 10), []);
    let updated = judge(&open, at_revision(13, Failed, 40), 20);
    let [IncidentChange::Notify(IncidentPhase::Updated, incident)] = &updated[..] else {
        panic!("{updated:?}")
    };
    assert!(incident.message.starts_with("revision 13: "), "{incident:?}");
    let open = kept(updated);
    assert_eq!(judge(&open, at_revision(13, Failed, 50), 90), []);
    // Its rollback is a revision of its own.
    let back = ApplicationStatus { failed_revision: Some(13), ..at_revision(14, Failed, 40) };
    assert_eq!(judge(&open, back, 100), []);
    // A file of the next commit is broken, and the one of the commit after it in another line.
    let broken = |line: u32| {
        let condition = StatusCondition {
            kind: "Rendered".to_owned(),
            status: ConditionStatus::False,
            reason: "InvalidManifest".to_owned(),
            message: format!("compose.yaml:{line}:5: error: web has no image"),
            last_transition_time: NOON,
        };
        ApplicationStatus { conditions: vec![condition], ..shop(HealthStatus::Healthy, 0) }
    };
    let mut open = open;
    for (line, minute) in [(4, 21), (7, 22)] {
        let updated = judge(&open, broken(line), minute);
        assert!(matches!(updated[..], [IncidentChange::Notify(IncidentPhase::Updated, _)]), "{updated:?}");
        open = kept(updated);
        assert_eq!(judge(&open, broken(line), minute + 90), []);
    }
}

#[test]
fn each_refused_commit_is_reported_at_once() {
    let refused = |commit: &str| {
        let condition = StatusCondition {
            kind: "Trusted".to_owned(),
            status: ConditionStatus::False,
            reason: "SignatureRefused".to_owned(),
            message: format!("the commit {commit} is refused: it is not signed"),
            last_transition_time: NOON,
        };
        ApplicationStatus { conditions: vec![condition], ..shop(HealthStatus::Healthy, 0) }
    };
    let open = kept(judge(&[], refused("1a2b3c4"), 0));
    assert_eq!(judge(&open, refused("1a2b3c4"), 90), []);
    let updated = judge(&open, refused("5d6e7f8"), 1);
    assert!(matches!(updated[..], [IncidentChange::Notify(IncidentPhase::Updated, _)]), "{updated:?}");
}

#[test]
fn source_on_the_host_that_fails_again_is_no_other_commit() {
    let unreadable = |error: &str| {
        let finding = Finding::error(Location::default(), "valuesFrom", error);
        let condition = StatusCondition {
            kind: "Rendered".to_owned(),
            status: ConditionStatus::False,
            reason: "InvalidManifest".to_owned(),
            message: finding.to_string(),
            last_transition_time: NOON,
        };
        let healthy = shop(HealthStatus::Healthy, 0);
        ApplicationStatus { conditions: vec![condition], findings: vec![finding], ..healthy }
    };
    let open = kept(judge(&[], unreadable("`op` failed at 03:40:12"), 0));
    for minute in [5, 90] {
        assert_eq!(judge(&open, unreadable("`op` failed at 03:45:12"), minute), [], "{minute}");
    }
    // Other words wait for the interval.
    let later = judge(&open, unreadable("`op` has no session"), 5);
    assert!(matches!(later[..], [IncidentChange::Keep(_)]), "{later:?}");
    let updated = judge(&kept(later), unreadable("`op` has no session"), 60);
    assert!(matches!(updated[..], [IncidentChange::Notify(IncidentPhase::Updated, _)]), "{updated:?}");
}

#[test]
fn incident_of_an_older_release_learns_its_commit_silently() {
    let failed = |number| at_revision(number, OperationPhase::Failed, 40);
    let opened = kept(judge(&[], failed(12), 0)).remove(0);
    let stored = [Incident { about: BTreeSet::new(), ..opened.clone() }];
    let changes = judge(&stored, failed(12), 1);
    let [IncidentChange::Keep(learned)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(learned, &opened);
}

#[test]
fn step_of_the_next_commit_that_fails_waits_for_the_interval() {
    let applied = StatusCondition {
        kind: "Applied".to_owned(),
        status: ConditionStatus::False,
        reason: "ActionFailed".to_owned(),
        message: "could not start web".to_owned(),
        last_transition_time: NOON,
    };
    let open = kept(judge(&[], at_revision(12, OperationPhase::Failed, 40), 0));
    let tried = at_revision(13, OperationPhase::Running, 0);
    let tried = ApplicationStatus { conditions: vec![applied], ..tried };
    let later = judge(&open, tried.clone(), 20);
    assert!(matches!(later[..], [IncidentChange::Keep(_)]), "it is tried again: {later:?}");
    let open = kept(later);
    assert_eq!(judge(&open, tried.clone(), 21), []);
    let updated = judge(&open, tried, 60);
    assert!(matches!(updated[..], [IncidentChange::Notify(IncidentPhase::Updated, _)]), "{updated:?}");
    // The commit fails then, which is the same incident.
    let failed = at_revision(13, OperationPhase::Failed, 40);
    let kept = judge(&kept(updated), failed, 70);
    assert!(matches!(kept[..], [IncidentChange::Keep(_)]), "its words are kept without a message: {kept:?}");
}

#[test]
fn open_incident_has_its_present_message() {
    let degraded = |message: &str| {
        let message = message.to_owned();
        ApplicationStatus { message, ..shop(HealthStatus::Degraded, 0) }
    };
    let seen = kept(judge(&[], degraded("web crashes"), 0));
    let open = kept(judge(&seen, degraded("web crashes"), 5));
    let notified = open[0].notified;
    let open = kept(judge(&open, degraded("db crashes"), 6));
    assert_eq!((open[0].message.as_str(), open[0].notified), ("db crashes", notified));
    assert_eq!(judge(&open, degraded("db crashes"), 7), []);
    let updated = judge(&open, degraded("db crashes"), 65);
    assert!(matches!(updated[..], [IncidentChange::Notify(IncidentPhase::Updated, _)]), "{updated:?}");
    // With the message of the last notification again, nothing is news.
    let back = kept(judge(&open, degraded("web crashes"), 8));
    assert_eq!((back[0].message.as_str(), back[0].notified), ("web crashes", notified));
    assert_eq!(judge(&back, degraded("web crashes"), 65), []);
}

#[test]
fn each_newer_image_is_reported() {
    let newer = |digest: &str, minute: u64| {
        let image = ImageUpdateStatus {
            image: "postgres:17".to_owned(),
            mode: UpdateMode::Report,
            resolved: None,
            available: Some(AvailableImage {
                image: format!("postgres:17@sha256:{}", digest.repeat(64)),
                since: NOON.after(Duration::from_mins(minute)),
            }),
            due: None,
            checked: None,
            failure: None,
            note: String::new(),
        };
        ApplicationStatus { images: Arc::new(vec![image]), ..shop(HealthStatus::Healthy, 0) }
    };
    let open = kept(judge(&[], newer("a", 0), 0));
    assert_eq!(judge(&open, newer("b", 0), 120), [], "only its index for other platforms has changed");
    let later = judge(&open, newer("b", 30), 30);
    assert!(matches!(later[..], [IncidentChange::Keep(_)]), "the interval is not over: {later:?}");
    let open = kept(later);
    assert_eq!(judge(&open, newer("b", 30), 31), []);
    let updated = judge(&open, newer("b", 30), 120);
    let [IncidentChange::Notify(IncidentPhase::Updated, incident)] = &updated[..] else {
        panic!("{updated:?}")
    };
    assert!(incident.message.contains("sha256:bbbbbbbbbbbb"), "{incident:?}");
    let open = kept(updated);
    assert_eq!(judge(&open, newer("b", 30), 240), []);
}

/// The push of an image is the deployment, and the login of its registry has expired.
#[test]
fn registry_that_refuses_for_a_day_is_one_incident() {
    const DAY: u64 = 24 * 60;
    // The first failure was at the minute 0.
    let failing = |mode: UpdateMode, reason: Option<&str>| {
        let image = ImageUpdateStatus {
            image: "shop:prod".to_owned(),
            mode,
            resolved: None,
            available: None,
            due: None,
            checked: None,
            failure: reason.map(|reason| CheckFailure {
                reason: reason.to_owned(),
                message: "the registry refuses the login".to_owned(),
                count: 30,
                since: Some(NOON.after(Duration::from_mins(DAY))),
            }),
            note: String::new(),
        };
        ApplicationStatus { images: Arc::new(vec![image]), ..shop(HealthStatus::Healthy, 0) }
    };
    let refused = || failing(UpdateMode::Apply, Some("Unauthorized"));
    assert_eq!(judge(&[], refused(), DAY - 1), [], "it may pass");
    assert_eq!(judge(&[], failing(UpdateMode::Report, Some("NotFound")), DAY), []);
    assert_eq!(judge(&[], failing(UpdateMode::Apply, None), DAY), [], "it is asked once in a week");
    for reason in ["NoPlatform", "TooManyRequests"] {
        assert_eq!(judge(&[], failing(UpdateMode::Apply, Some(reason)), 2 * DAY), [], "{reason}");
    }
    let seen = kept(judge(&[], refused(), DAY));
    assert_eq!(seen[0].opened, None);
    let opened = judge(&seen, refused(), DAY + 60);
    let [IncidentChange::Notify(IncidentPhase::Opened, incident)] = &opened[..] else { panic!("{opened:?}") };
    assert_eq!((incident.kind, incident.urgency), (IncidentKind::ImageCheckFailed, Urgency::Warning));
    assert!(incident.message.contains("shop:prod: the registry refuses the login"), "{incident:?}");
    let open = kept(opened);
    assert_eq!(judge(&open, refused(), DAY + 600), []);
    // A limit of questions in between is no answer.
    let mut limited = open.clone();
    for minute in 500..560 {
        let changes = judge(&limited, failing(UpdateMode::Apply, Some("TooManyRequests")), DAY + minute);
        assert!(changes.iter().all(|it| matches!(it, IncidentChange::Keep(_))), "{changes:?}");
        limited = if changes.is_empty() { limited } else { kept(changes) };
    }
    let ended = kept(judge(&open, shop(HealthStatus::Healthy, 0), DAY + 601));
    let over = judge(&ended, shop(HealthStatus::Healthy, 0), DAY + 602);
    assert!(matches!(over[..], [IncidentChange::Notify(IncidentPhase::Recovered, _)]), "{over:?}");
}
