//! Incidents of applications that are well for moments only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_model::{
    Application, ApplicationSpec, ApplicationStatus, ExitStatus, HealthStatus, Incident, IncidentPhase,
    InstanceStatus, PartSpec, PartStatus, Policy, Role, WorkloadStatus,
};
use driftless_plan::{IncidentChange, IncidentFacts, IncidentTimes, incidents};

use crate::stage::NOON;

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
        lost_hosts: &BTreeMap::new(),
        expiries: &[],
        with_older: &BTreeSet::new(),
        started: NOON,
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
