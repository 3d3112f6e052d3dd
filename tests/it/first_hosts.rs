//! Commits that wait for the first hosts (`after`), on the simulated engine.

use std::{collections::BTreeMap, time::Duration};

use driftless_agent::FleetPicture;
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_fleet::{ApplicationReport, HostReport, LastReport, RepositoryReport, view};
use driftless_model::{
    After, Application, CommitId, ConditionStatus, EventKind, HealthStatus, Otherwise, SyncStatus,
};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

fn shop(version: u8) -> String {
    format!("services: {{web: {{image: 'web:{version}', restart: always}}}}")
}

/// The place that the reports of the other hosts are read from.
const HUB: &str = "http://hub";

/// A host of the second ring that runs the first version.
async fn waiting(otherwise: Otherwise) -> Simulation {
    waiting_with(otherwise, &shop(1)).await
}

async fn waiting_with(otherwise: Otherwise, compose: &str) -> Simulation {
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.host.name = "web-1".to_owned();
    it.settings.policy.after = Some(After {
        labels: BTreeMap::from([("ring".to_owned(), "canary".to_owned())]),
        healthy_for: Duration::from_mins(10),
        otherwise,
        max_wait: Duration::from_hours(2),
    });
    it.registry_has("web:1", 'a');
    let first = it.git.push(compose);
    it.begin();
    it.handle().fleet().peers().set_places([HUB.to_owned()]);
    it.canary(&first, None, HealthStatus::Healthy);
    it.canary_for(12, &first).await;
    it.synced(&first).await;
    it
}

/// The application on the first host, as an agent without image updates reports it.
fn on_canary(commit: &str, failed: Option<&str>, health: HealthStatus) -> ApplicationReport {
    ApplicationReport {
        name: app(),
        repository: "infra".to_owned(),
        sync: SyncStatus::Synced,
        health,
        suspended: None,
        pinned: None,
        well: false,
        revision: Some(1),
        revision_commit: None,
        commit: Some(CommitId::from_stored(commit)),
        failed: failed.map(CommitId::from_stored),
        images: None,
        failed_images: None,
        message: String::new(),
        drift: 0,
    }
}

/// The first digits of a digest, as hosts report it.
fn digits(letter: char) -> Vec<String> {
    vec![letter.to_string().repeat(16)]
}

impl Simulation {
    fn canary(&self, commit: &str, failed: Option<&str>, health: HealthStatus) {
        self.canary_reports(on_canary(commit, failed, health));
    }

    /// The first host reports this for so many minutes.
    async fn canary_reports_for(&self, count: u64, application: &ApplicationReport) {
        for _ in 0..count * 3 {
            self.canary_reports(application.clone());
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
    }

    /// The report of the first host, as the collector gives it now.
    fn canary_reports(&self, application: ApplicationReport) {
        let commit = application.commit.clone();
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            commit,
            applications: 1,
            ..RepositoryReport::default()
        };
        let report = HostReport {
            host: "canary".to_owned(),
            instance: "a1".to_owned(),
            labels: BTreeMap::from([("ring".to_owned(), "canary".to_owned())]),
            repositories: vec![repository],
            applications: vec![application],
            ..HostReport::default()
        };
        let now = self.clock.now();
        let last = LastReport { report: std::sync::Arc::new(report), received: now, conflict: None };
        let hosts = view(vec![last], &[], now);
        self.peers_read(Ok(FleetPicture { hosts, ..FleetPicture::default() }));
    }

    /// The first host is healthy with this commit for so many minutes.
    async fn canary_for(&self, count: u64, commit: &str) {
        self.canary_reports_for(count, &on_canary(commit, None, HealthStatus::Healthy)).await;
    }

    fn no_answer(&self) {
        self.peers_read(Err("no collector answers".to_owned()));
    }

    fn peers_read(&self, read: Result<FleetPicture, String>) {
        let at = self.clock.now();
        self.handle().fleet().peers().note(HUB, read, &[app()], at);
    }

    fn shown(&self) -> Application {
        Application::clone(self.handle().applications().get(&app()).unwrap())
    }

    fn held_as(&self) -> String {
        let shown = self.shown();
        let held = shown.status.conditions.iter().find(|condition| condition.kind == "SyncAllowed");
        let held = held.unwrap_or_else(|| panic!("it is not held\n{}", self.story()));
        assert_eq!(held.status, ConditionStatus::False);
        assert!(shown.status.waits.iter().any(|wait| wait.reason == held.reason), "{:?}", shown.status.waits);
        held.reason.clone()
    }

    fn events_of(&self, reason: &str) -> usize {
        let events = self.store.events(0, 1000, None).unwrap();
        events.iter().filter(|event| event.reason == reason).count()
    }
}

#[tokio::test(start_paused = true)]
async fn commit_follows_the_first_hosts_after_their_time() {
    let mut it = waiting(Otherwise::Hold).await;
    let first = it.tip();
    let second = it.git.push(&shop(2));
    it.canary_for(5, &first).await;
    assert_eq!(it.held_as(), "FirstHostsNotReady");
    assert_eq!(it.shown().status.sync, SyncStatus::OutOfSync);
    it.canary_for(5, &second).await;
    assert_eq!((it.images(), it.held_as()), (vec!["web:1".to_owned()], "FirstHostsNew".to_owned()));
    // The running version is healed meanwhile, also after a crash, which does not start the time again.
    it.hand(&UserAction::Remove { name: "shop-web-1".into() });
    it.crash();
    it.begin();
    it.handle().fleet().peers().set_places([HUB.to_owned()]);
    it.canary_for(3, &second).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    it.canary_for(4, &second).await;
    it.synced(&second).await;
    assert_eq!(it.images(), ["web:2"], "{}", it.story());
    assert!(it.shown().status.conditions.iter().all(|condition| condition.kind != "SyncAllowed"));
    assert!(it.shown().status.waits.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_first_host_holds_until_a_newer_commit() {
    let it = waiting(Otherwise::Proceed).await;
    let first = it.tip();
    let second = it.git.push(&shop(2));
    for _ in 0..9 {
        it.canary(&first, Some(&second), HealthStatus::Healthy);
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(it.held_as(), "FirstHostFailed");
    let message = it.shown().status.message;
    assert!(message.contains("is held for a newer commit or image (`after`)"), "{message}");
    // Longer than maxWait, and the first host looks well again.
    it.canary_for(150, &second).await;
    assert_eq!((it.images(), it.held_as()), (vec!["web:1".to_owned()], "FirstHostFailed".to_owned()));
    let events = it.store.events(0, 1000, None).unwrap();
    assert!(events.iter().any(|it| it.reason == "FirstHostFailed" && it.kind == EventKind::Warning));
    let third = it.git.push(&shop(3));
    it.canary_for(13, &third).await;
    it.synced(&third).await;
    assert_eq!(it.images(), ["web:3"], "{}", it.story());
}

/// The first version, whose image follows its tag.
const FOLLOWING: &str =
    "services: {web: {image: 'web:1', restart: always, x-driftless: {update: {mode: apply, every: 5m}}}}";

fn resolved(letter: char) -> String {
    format!("web:1@sha256:{}", letter.to_string().repeat(64))
}

#[tokio::test(start_paused = true)]
async fn newer_image_follows_the_first_hosts() {
    let it = waiting_with(Otherwise::Hold, FOLLOWING).await;
    let commit = it.tip();
    let healthy = on_canary(&commit, None, HealthStatus::Healthy);
    it.registry_has("web:1", 'b');
    // The first host runs the same commit, and has not asked the registry yet.
    let before = ApplicationReport { images: Some(digits('a')), ..healthy.clone() };
    it.canary_reports_for(20, &before).await;
    assert_eq!((it.images(), it.held_as()), (vec!["web:1".to_owned()], "FirstHostsNotReady".to_owned()));
    it.canary_reports_for(20, &healthy).await;
    assert_eq!((it.images(), it.held_as()), (vec!["web:1".to_owned()], "FirstHostsUnknown".to_owned()));
    let after = ApplicationReport { images: Some(digits('b')), ..healthy };
    it.canary_reports_for(8, &after).await;
    assert_eq!((it.images(), it.held_as()), (vec!["web:1".to_owned()], "FirstHostsNew".to_owned()));
    it.canary_reports_for(4, &after).await;
    it.synced(&commit).await;
    assert_eq!(it.images(), [resolved('b')], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn image_after_a_failed_one_follows_the_first_hosts() {
    let it = waiting_with(Otherwise::Hold, FOLLOWING).await;
    let commit = it.tip();
    it.registry_has("web:1", 'b');
    let failed = ApplicationReport {
        sync: SyncStatus::OutOfSync,
        images: Some(digits('a')),
        failed_images: Some(digits('b')),
        ..on_canary(&commit, Some(&commit), HealthStatus::Healthy)
    };
    it.canary_reports_for(10, &failed).await;
    assert_eq!((it.images(), it.held_as()), (vec!["web:1".to_owned()], "FirstHostFailed".to_owned()));
    it.registry_has("web:1", 'c');
    it.canary_reports_for(10, &failed).await;
    assert_eq!((it.images(), it.held_as()), (vec!["web:1".to_owned()], "FirstHostsNotReady".to_owned()));
    let next =
        ApplicationReport { images: Some(digits('c')), ..on_canary(&commit, None, HealthStatus::Healthy) };
    it.canary_reports_for(12, &next).await;
    it.synced(&commit).await;
    assert_eq!(it.images(), [resolved('c')], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn silence_is_awaited_until_max_wait() {
    for (otherwise, image) in [(Otherwise::Hold, "web:1"), (Otherwise::Proceed, "web:2")] {
        let it = waiting(otherwise).await;
        it.git.push(&shop(2));
        it.no_answer();
        minutes(115).await;
        it.no_answer();
        assert_eq!((it.images(), it.held_as()), (vec!["web:1".to_owned()], "FirstHostsUnknown".to_owned()));
        for _ in 0..15 {
            it.no_answer();
            minutes(1).await;
        }
        assert_eq!(it.images(), [image], "{}", it.story());
        assert_eq!(it.events_of("FirstHostsUnknown"), 1, "{}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn first_host_does_not_wait_for_itself() {
    let mut it = Simulation::idle();
    it.settings.host.labels = BTreeMap::from([("ring".to_owned(), "canary".to_owned())]);
    it.settings.policy.after = Some(After {
        labels: it.settings.host.labels.clone(),
        healthy_for: Duration::from_mins(10),
        otherwise: Otherwise::Hold,
        max_wait: Duration::from_hours(2),
    });
    let first = it.git.push(&shop(1));
    let it = it.begun();
    it.synced(&first).await;
}
