//! Sync windows on the simulated engine: they hold back commits, and nothing else.

use std::time::Duration;

use driftless_agent::RequestKind;
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{
    Application, ConditionStatus, HealthStatus, OnFailure, SyncStatus, SyncWindow, Timestamp, WindowKind,
};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

fn web(image: &str) -> String {
    format!("services:\n  web:\n    image: {image}\n    restart: always\n")
}

/// No commits from 12:30 to 14:30.
fn after_noon(manual_sync: bool) -> SyncWindow {
    SyncWindow {
        kind: WindowKind::Deny,
        schedule: "30 12 * * *".to_owned(),
        time_zone: None,
        duration: Duration::from_hours(2),
        manual_sync,
    }
}

fn prepared(window: SyncWindow) -> Simulation {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings.policy.sync_windows = vec![window];
    it
}

fn waits(application: &Application) -> bool {
    let conditions = application.status.conditions.iter();
    conditions
        .filter(|it| it.kind == "SyncAllowed" && it.reason == "WindowClosed")
        .any(|it| it.status == ConditionStatus::False)
}

fn events(it: &Simulation, reason: &str) -> usize {
    let all = it.store.events(0, 1000, None).unwrap();
    all.into_iter().filter(|event| event.reason == reason).count()
}

#[tokio::test(start_paused = true)]
async fn closed_window_holds_commits_back_and_drift_is_healed() {
    let mut it = prepared(after_noon(false)).begun();
    it.synced_with_tip().await;
    minutes(35).await;
    it.git.push(&web("web:2"));
    let held = it.until("it waits", waits).await;
    assert_eq!(held.status.sync, SyncStatus::OutOfSync);
    assert!(held.status.message.contains("2026-01-01T14:30"), "{}", held.status.message);
    // A sync that a user asks for fetches and heals, and applies no commit.
    it.ask(RequestKind::Sync).await;
    it.hand(&UserAction::Remove { name: "shop-web-1".into() });
    minutes(30).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    // Another life of the agent knows it from the clock.
    it.crash();
    it.begin();
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    assert!(events(&it, "SyncWindowClosed") <= 2);
    minutes(60).await;
    let found = it.synced_with_tip().await;
    assert!(!waits(&found));
    assert!(it.clock.now() >= Timestamp::parse("2026-01-01T14:30:00Z").unwrap());
    assert_eq!(it.images(), ["web:2"]);
}

#[tokio::test(start_paused = true)]
async fn manual_sync_applies_a_commit_where_the_window_allows_it() {
    let it = prepared(after_noon(true)).begun();
    it.synced_with_tip().await;
    minutes(35).await;
    it.git.push(&web("web:2"));
    let held = it.until("it waits", waits).await;
    assert!(held.status.message.contains("`driftless sync shop` applies it now"), "{}", held.status.message);
    it.ask(RequestKind::Sync).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"]);
    // It was for that commit, and for no later one.
    it.git.push(&web("web:3"));
    it.until("the next one waits", waits).await;
    minutes(20).await;
    assert_eq!(it.images(), ["web:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn sync_without_a_new_commit_opens_no_window_for_later() {
    let it = prepared(after_noon(true)).begun();
    it.synced_with_tip().await;
    minutes(35).await;
    it.ask(RequestKind::Sync).await;
    minutes(5).await;
    it.git.push(&web("web:2"));
    it.until("it waits", waits).await;
    minutes(20).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn first_commit_waits_for_an_allow_window() {
    let window = SyncWindow { kind: WindowKind::Allow, ..after_noon(false) };
    let it = prepared(window).begun();
    let held = it.until("it waits", waits).await;
    assert!(held.status.message.contains("sync window"), "{}", held.status.message);
    assert_eq!((held.status.sync, held.status.health), (SyncStatus::OutOfSync, HealthStatus::Progressing));
    assert!(it.images().is_empty());
    it.synced_with_tip().await;
    assert!(it.clock.now() >= Timestamp::parse("2026-01-01T12:30:00Z").unwrap());
}

#[tokio::test(start_paused = true)]
async fn rollout_goes_on_when_its_window_closes() {
    let compose = |image: &str| format!("{}    healthcheck: {{test: [CMD, check]}}\n", web(image));
    let mut it = Simulation::prepared(&compose("web:1"), Clock::starting_at(NOON));
    it.settings.policy.sync_windows = vec![after_noon(false)];
    it.settings.policy.on_failure = OnFailure::Rollback;
    it.settings.policy.progress_deadline = Some(Duration::from_mins(10));
    let it = it.begun();
    it.synced_with_tip().await;
    let first = it.tip();
    minutes(25).await;
    it.docker.faults(|faults| faults.unhealthy.extend(["web:2".to_owned()]));
    it.git.push(&compose("web:2"));
    minutes(7).await;
    let status = it.handle().applications().get(&app()).cloned().unwrap();
    assert!(!waits(&status), "{}", status.status.message);
    // The way back after a failure is no new commit.
    it.until("it is back", |found| {
        found.status.conditions.iter().any(|it| it.reason == "RolledBack")
            && found.status.commit.as_ref().is_some_and(|it| it.id == first)
    })
    .await;
    minutes(5).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    // A commit that would release the failed one waits, and the failed one stays skipped.
    it.git.push(&compose("web:3"));
    it.until("it waits", waits).await;
    minutes(10).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    minutes(60).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:3"]);
}
