//! Canaries on the simulated engine: `x-driftless.canary`, `driftless promote`, and the way back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_agent::{Promotion, RequestError, RequestKind, Rollback};
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{Application, Cause, HealthStatus, OnFailure, Outcome, SyncStatus, Until};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

/// Five replicas that start before the old ones stop, one of them first.
fn web(image: &str, canary: &str) -> String {
    format!(
        "services:\n  web:\n    image: {image}\n    restart: always\n    healthcheck: {{test: [CMD, check]}}\n    \
         deploy: {{replicas: 5, update_config: {{order: start-first}}}}\n    x-driftless: {{canary: {canary}}}\n"
    )
}

fn prepared(compose: &str) -> Simulation {
    let mut it = Simulation::prepared(compose, Clock::starting_at(NOON));
    it.settings.policy.progress_deadline = Some(Duration::from_mins(2));
    it
}

fn promote(workload: Option<&str>, is_full: bool) -> RequestKind {
    RequestKind::Promote(Promotion { workload: workload.map(Into::into), is_full })
}

/// Whether the canary pauses at this step.
fn pauses(application: &Application, step: u32) -> bool {
    let canary = application.status.workloads.get(&"web".into()).and_then(|web| web.canary.as_ref());
    canary.is_some_and(|canary| canary.paused && canary.step == step)
        && application.status.waits.iter().any(|wait| wait.reason == "Canary")
}

/// The number of running instances of `web:2`, and of all.
fn running(it: &Simulation) -> (usize, usize) {
    let images = it.images();
    (images.iter().filter(|image| *image == "web:2").count(), images.len())
}

fn events(it: &Simulation, reason: &str) -> Vec<String> {
    let all = it.store.events(0, 1000, None).unwrap();
    all.into_iter().filter(|event| event.reason == reason).map(|event| event.message).collect()
}

async fn refusal(it: &Simulation, kind: RequestKind) -> String {
    match it.handle().request(app(), kind).await {
        Err(RequestError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn canary_waits_for_a_user_and_then_for_its_time() {
    let it = prepared(&web("web:1", "[20%, 40% for 10m]")).begun();
    it.synced_with_tip().await;
    assert!(refusal(&it, promote(None, false)).await.contains("shop has no canary at a step"));
    it.push(&web("web:2", "[20%, 40% for 10m]")).await;
    let found = it.until("it pauses", |found| pauses(found, 1)).await;
    assert_eq!((found.status.sync, found.status.health), (SyncStatus::OutOfSync, HealthStatus::Progressing));
    let wait = found.status.waits.iter().find(|wait| wait.reason == "Canary").unwrap();
    let expected = "web has a canary: 1 of 5 instances (step 1 of 2), waits for `driftless promote shop`";
    assert_eq!((wait.message.as_str(), wait.until), (expected, None));
    // However long it takes, and although the progress deadline is shorter.
    minutes(60).await;
    assert_eq!(running(&it), (1, 5), "{}", it.story());
    assert!(refusal(&it, promote(Some("api"), false)).await.contains("no workload `api`"));
    it.ask(promote(Some("web"), false)).await;
    let found = it.until("it pauses again", |found| pauses(found, 2)).await;
    let wait = found.status.waits.iter().find(|wait| wait.reason == "Canary").unwrap();
    assert!(wait.until.is_some() && wait.message.contains("goes on at"), "{wait:?}");
    minutes(5).await;
    assert_eq!(running(&it), (2, 5), "{}", it.story());
    minutes(10).await;
    it.synced_with_tip().await;
    assert_eq!(running(&it), (5, 5), "{}", it.story());
    assert_eq!((events(&it, "CanaryPaused").len(), events(&it, "Promoted").len()), (2, 1));
    assert_eq!(events(&it, "CanaryAdvanced"), ["its steps are over, and all instances are replaced"]);
    it.check(&BTreeMap::from([("web", 5)]));
}

#[tokio::test(start_paused = true)]
async fn canary_is_remembered_after_a_kill_at_any_step() {
    for steps in 1..24 {
        let mut it = prepared(&web("web:1", "[1, 2 for 5m]")).begun();
        it.synced_with_tip().await;
        it.docker.crash_after(steps);
        it.push(&web("web:2", "[1, 2 for 5m]")).await;
        minutes(4).await;
        it.crash();
        it.begin();
        it.until("it pauses", |found| pauses(found, 1)).await;
        minutes(30).await;
        assert_eq!(running(&it), (1, 5), "after {steps} steps\n{}", it.story());
        it.docker.crash_after(steps);
        it.ask(promote(None, false)).await;
        minutes(4).await;
        it.crash();
        it.begin();
        minutes(20).await;
        it.synced_with_tip().await;
        assert_eq!(running(&it), (5, 5), "after {steps} steps\n{}", it.story());
        assert_eq!(it.store.revisions(&app()).unwrap().len(), 2, "after {steps} steps");
        it.check(&BTreeMap::from([("web", 5)]));
    }
}

#[tokio::test(start_paused = true)]
async fn aborted_canary_goes_back_and_is_skipped() {
    let mut it = prepared(&web("web:1", "['1']")).begun();
    it.synced_with_tip().await;
    it.push(&web("web:2", "['1']")).await;
    it.until("it pauses", |found| pauses(found, 1)).await;
    it.ask(RequestKind::Abort).await;
    minutes(5).await;
    it.crash();
    it.begin();
    minutes(30).await;
    assert_eq!(running(&it), (0, 5), "{}", it.story());
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history[0].cause.clone(), history[0].rollback_of), (Cause::AutomaticRollback, Some(1)));
    let Outcome::Failed { reason } = &history[1].outcome else { panic!("{history:?}") };
    assert!(reason.starts_with("its canary was aborted by "), "{reason}");
    assert_eq!(events(&it, "CanaryAborted"), ["back to revision 1"]);
    assert!(refusal(&it, RequestKind::Abort).await.contains("no canary at a step"));
    // Another try begins with the first step.
    it.ask(RequestKind::Retry).await;
    it.until("it pauses", |found| pauses(found, 1)).await;
    it.ask(promote(None, true)).await;
    it.synced_with_tip().await;
    assert_eq!(running(&it), (5, 5), "{}", it.story());
    it.check(&BTreeMap::from([("web", 5)]));
}

#[tokio::test(start_paused = true)]
async fn canary_that_loses_its_health_goes_back_or_pauses() {
    for on_failure in [OnFailure::Rollback, OnFailure::Pause] {
        let mut it = prepared(&web("web:1", "['1']"));
        it.settings.policy.on_failure = on_failure;
        let it = it.begun();
        it.synced_with_tip().await;
        it.push(&web("web:2", "['1']")).await;
        it.until("it pauses", |found| pauses(found, 1)).await;
        minutes(30).await;
        it.docker.faults(|faults| faults.unhealthy = BTreeSet::from(["web:2".to_owned()]));
        // Its health check runs again.
        it.hand(&UserAction::Stop { name: "shop-web-6".into() });
        minutes(5).await;
        let new = usize::from(on_failure == OnFailure::Pause);
        assert_eq!(running(&it).0, new, "{on_failure:?}\n{}", it.story());
        let history = it.store.revisions(&app()).unwrap();
        let failed = history.iter().find(|revision| revision.number == 2).unwrap();
        assert!(matches!(failed.outcome, Outcome::Failed { .. }), "{history:?}");
        if on_failure == OnFailure::Pause {
            assert!(refusal(&it, promote(None, true)).await.contains("has failed"));
            it.ask(RequestKind::Abort).await;
            minutes(5).await;
            assert_eq!(running(&it).0, 0, "{}", it.story());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rollback_after_an_automatic_one_goes_further_back() {
    let mut it = prepared(&web("web:0", "['1']"));
    it.settings.policy.on_failure = OnFailure::Rollback;
    let it = it.begun();
    it.synced_with_tip().await;
    it.push(&web("web:1", "['1']")).await;
    it.until("it pauses", |found| pauses(found, 1)).await;
    it.ask(promote(None, true)).await;
    it.synced_with_tip().await;
    minutes(10).await;
    it.docker.faults(|faults| faults.unhealthy = BTreeSet::from(["web:2".to_owned()]));
    it.push(&web("web:2", "['1']")).await;
    minutes(60).await;
    assert_eq!(it.images(), ["web:1"; 5], "{}", it.story());
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history[0].cause.clone(), history[0].rollback_of), (Cause::AutomaticRollback, Some(2)));
    // A rollback has no canary.
    assert_ne!(history[0].stack, history[2].stack);
    let back_to = |to: Option<&str>| {
        let to = to.map(str::to_owned);
        RequestKind::Rollback(Rollback { to, reason: String::new(), until: Until::Manual })
    };
    assert!(refusal(&it, back_to(Some("2"))).await.contains("is at that state already"));
    it.ask(back_to(None)).await;
    let found = it.until("it is pinned", |found| found.status.pin.is_some()).await;
    assert_eq!(found.status.pin.as_ref().map(|pin| pin.revision), Some(1));
    minutes(30).await;
    assert_eq!(it.images(), ["web:0"; 5], "{}", it.story());
    it.check(&BTreeMap::from([("web", 5)]));
}

#[tokio::test(start_paused = true)]
async fn next_commit_pre_empts_a_canary() {
    let it = prepared(&web("web:1", "['2', '3']")).begun();
    it.synced_with_tip().await;
    it.push(&web("web:2", "['2', '3']")).await;
    it.until("it pauses", |found| pauses(found, 1)).await;
    it.ask(promote(None, false)).await;
    it.until("it pauses again", |found| pauses(found, 2)).await;
    it.push(&web("web:3", "['2', '3']")).await;
    let of = |found: &Application| found.status.revision == Some(3) && pauses(found, 1);
    it.until("the newer one pauses", of).await;
    minutes(5).await;
    let images = it.images();
    let expected = ["web:1", "web:1", "web:1", "web:3", "web:3"];
    assert_eq!(images, expected, "{}", it.story());
    // A suspended application stays as it is, and a revert needs no steps.
    it.ask(RequestKind::Suspend).await;
    assert!(refusal(&it, promote(None, false)).await.contains("is suspended"));
    it.ask(RequestKind::Resume).await;
    it.push(&web("web:1", "['2', '3']")).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:1"; 5], "{}", it.story());
    it.check(&BTreeMap::from([("web", 5)]));
}
