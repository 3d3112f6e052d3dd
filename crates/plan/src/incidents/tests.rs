//! Tests of the incidents: their grace time, their end, and what their notifications say.

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
        (IncidentKind::Degraded, ApplicationStatus { health: HealthStatus::Progressing, ..healthy.clone() }),
        (IncidentKind::DriftFound, ApplicationStatus { drift: vec![differs], ..healthy.clone() }),
    ] {
        // The minute without the problem begins again after this.
        let ended = Some(minutes(9));
        let open = Incident { kind, opened: Some(now), notified: Some(now), ended, ..seen.clone() };
        let mut unseen = shop(HealthStatus::Healthy);
        let application = Arc::make_mut(unseen.get_mut(&"shop".into()).unwrap());
        (application.status, application.spec.policy.suspended) = (status, kind == IncidentKind::DriftFound);
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
