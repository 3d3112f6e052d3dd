//! Commits that fail, on the simulated engine: `onFailure`, `monitor`, `progressDeadline`, and another try.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use driftless_agent::{RequestError, RequestKind, Rollback};
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{
    Application, Cause, ConditionStatus, EventKind, HealthStatus, OnFailure, Outcome, Record,
    StatusCondition, SyncStatus, Until,
};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

/// Two replicas with a health check, and a database.
fn web(image: &str) -> String {
    format!(
        "services:\n  web:\n    image: {image}\n    deploy: {{replicas: 2}}\n    healthcheck: {{test: [CMD, check]}}\n  \
         db:\n    image: db:1\n    restart: always\n"
    )
}

fn prepared(compose: &str, on_failure: OnFailure) -> Simulation {
    prepared_at(compose, on_failure, Clock::starting_at(NOON))
}

fn prepared_at(compose: &str, on_failure: OnFailure, clock: Clock) -> Simulation {
    let mut it = Simulation::prepared(compose, clock);
    it.settings.policy.on_failure = on_failure;
    it.settings.policy.progress_deadline = Some(Duration::from_mins(1));
    it
}

fn make_unhealthy(it: &Simulation, images: &[&str]) {
    let images: BTreeSet<String> = images.iter().map(|image| (*image).to_owned()).collect();
    it.docker.faults(|faults| faults.unhealthy = images);
}

fn failed(application: &Application) -> Option<&StatusCondition> {
    let conditions = application.status.conditions.iter();
    conditions.filter(|it| it.status == ConditionStatus::True).find(|it| it.kind == "CommitFailed")
}

fn is_back(application: &Application, commit: &str) -> bool {
    let is_commit = application.status.commit.as_ref().is_some_and(|it| it.id == commit);
    is_commit
        && failed(application).is_some_and(|it| it.reason == "RolledBack")
        && application.status.operation.as_ref().is_some_and(|it| it.outcome == Some(Outcome::Succeeded))
}

fn is_paused(application: &Application) -> bool {
    failed(application).is_some_and(|it| it.reason == "RolloutsPaused")
}

/// The number of times that a container of this image was created.
fn creations(it: &Simulation, image: &str) -> usize {
    let count = |observed: &driftless_model::Observed| {
        observed.containers().filter(|container| container.config.image == image).count()
    };
    it.docker.transcript().iter().filter(|entry| count(&entry.after) > count(&entry.before)).count()
}

fn events(it: &Simulation, reason: &str) -> Vec<String> {
    let all = it.store.events(0, 1000, None).unwrap();
    all.into_iter().filter(|event| event.reason == reason).map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn failed_commit_goes_back_once_and_is_skipped() {
    let it = prepared(&web("web:1"), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    let first = it.tip();
    make_unhealthy(&it, &["web:2"]);
    let bad = it.push(&web("web:2")).await;
    let back = it.until("it is back", |found| is_back(found, &first)).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"], "{}", it.story());
    assert_eq!((back.status.sync, back.status.health), (SyncStatus::OutOfSync, HealthStatus::Healthy));
    assert!(back.status.message.contains(&bad[..12]), "{}", back.status.message);
    assert!(back.status.message.contains("sync shop --retry"), "{}", back.status.message);
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!(history[0].cause, Cause::AutomaticRollback);
    assert_eq!((history[0].rollback_of, history[0].outcome.clone()), (Some(1), Outcome::Succeeded));
    assert!(matches!(history[1].outcome, Outcome::Failed { .. }), "{history:?}");
    // It is skipped from now on: by polls, requests, and another life of the agent.
    let made = creations(&it, "web:2");
    minutes(60).await;
    it.ask(RequestKind::Sync).await;
    minutes(60).await;
    assert_eq!(creations(&it, "web:2"), made, "{}", it.story());
    assert_eq!(events(&it, "RolledBack").len(), 1);
    it.check(&BTreeMap::from([("web", 2)]));
}

/// A service that is stopped before its successor starts, as both would write to its data.
fn writer(name: &str, image: &str, more: &str) -> String {
    format!("  {name}:\n    image: {image}\n    restart: always\n    volumes: ['data-{name}:/data']\n{more}")
}

/// Both halves of a file with one service that has a volume.
fn with_data(name: &str, services: &str) -> String {
    format!("services:\n{services}volumes: {{'data-{name}': {{}}}}\n")
}

fn reject(it: &Simulation, image: &str) {
    let rejected = [(image.to_owned(), "unknown log opt 'max-size'".to_owned())];
    it.docker.faults(|faults| faults.rejected = rejected.into());
}

#[tokio::test(start_paused = true)]
async fn rejected_definition_stops_no_running_container() {
    let guest = "  guest:\n    image: guest:1\n    restart: always\n    network_mode: 'service:vpn'\n";
    for (name, more) in [("db", ""), ("vpn", guest)] {
        let version = |number: u32| with_data(name, &writer(name, &format!("{name}:{number}"), more));
        let it = prepared(&version(1), OnFailure::Pause).begun();
        it.synced_with_tip().await;
        let (running, before) = (it.images(), it.docker.transcript().len());
        reject(&it, &format!("{name}:2"));
        let began = Instant::now();
        it.push(&version(2)).await;
        it.until("the commit has failed", is_paused).await;
        assert!(began.elapsed() < Duration::from_secs(30), "not after its deadline: {}", it.story());
        minutes(30).await;
        assert_eq!(it.images(), running, "{}", it.story());
        let is_down = |observed: &driftless_model::Observed| {
            observed.instances.values().any(|instance| !instance.is_running())
        };
        let transcript = it.docker.transcript();
        assert!(!transcript[before..].iter().any(|entry| is_down(&entry.after)), "{}", it.story());
        let history = it.store.revisions(&app()).unwrap();
        let Outcome::Failed { reason } = &history[0].outcome else { panic!("{history:?}") };
        assert!(reason.contains("unknown log opt 'max-size'"), "{reason}");
        assert!(reason.ends_with("the running container is kept"), "{reason}");
        let good = it.push(&version(3)).await;
        it.synced(&good).await;
    }
}

/// The container of the older service has to go first, as both would write to the data.
#[tokio::test(start_paused = true)]
async fn rejected_successor_of_another_name_stops_nothing() {
    let version = |name: &str, image: &str| {
        let service =
            format!("  {name}:\n    image: {image}\n    restart: always\n    volumes: ['data-db:/data']\n");
        with_data("db", &service)
    };
    let mut it = prepared(&version("db", "db:1"), OnFailure::Pause);
    it.settings.policy.prune = true;
    let it = it.begun();
    it.synced_with_tip().await;
    reject(&it, "db:2");
    it.push(&version("database", "db:2")).await;
    it.until("the commit has failed", is_paused).await;
    minutes(30).await;
    assert_eq!(it.images(), ["db:1"], "{}", it.story());
    assert_eq!(creations(&it, "db:2"), 0);
}

fn lack(it: &Simulation, lacking: &[(&str, &str)]) {
    let lacking = lacking.iter().map(|(image, message)| ((*image).to_owned(), (*message).to_owned()));
    it.docker.faults(|faults| faults.lacking = lacking.collect());
}

/// The socket of another service or a disk may appear a moment later.
#[tokio::test(start_paused = true)]
async fn refusal_that_the_host_ends_fails_no_commit() {
    let it = prepared(&with_data("db", &writer("db", "db:1", "")), OnFailure::Pause);
    lack(&it, &[("db:1", "bind source path does not exist: /mnt/disk")]);
    let it = it.begun();
    sleep(Duration::from_secs(3)).await;
    lack(&it, &[]);
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:1"], "{}", it.story());
    // The running container is kept meanwhile.
    lack(&it, &[("db:2", "unknown or invalid runtime name: kata")]);
    let before = it.docker.transcript().len();
    let second = it.push(&with_data("db", &writer("db", "db:2", ""))).await;
    sleep(Duration::from_secs(30)).await;
    let changes: Vec<String> =
        it.docker.transcript()[before..].iter().map(|entry| entry.what.clone()).collect();
    assert!(!changes.iter().any(|what| what.starts_with("stop")), "{changes:?}");
    lack(&it, &[]);
    it.synced(&second).await;
    assert_eq!(it.images(), ["db:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn definition_is_tried_once_in_a_rollout() {
    let replicas = "    deploy: {replicas: 3}\n";
    let version = |number: u32| with_data("web", &writer("web", &format!("web:{number}"), replicas));
    let it = prepared(&version(1), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    assert_eq!(it.docker.trials(), 0, "nothing ran that could be stopped");
    let second = it.push(&version(2)).await;
    it.synced(&second).await;
    assert_eq!(it.docker.trials(), 1, "{}", it.story());
    assert_eq!(it.images(), ["web:2"; 3]);
}

/// Nothing runs yet, so nothing is tried, and the creation itself fails.
#[tokio::test(start_paused = true)]
async fn rejected_creation_fails_its_commit_at_once() {
    let it = prepared(&with_data("db", &writer("db", "db:1", "")), OnFailure::Pause);
    reject(&it, "db:1");
    let began = Instant::now();
    let it = it.begun();
    it.until("the commit has failed", is_paused).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn failed_commit_does_not_go_back_to_a_removal() {
    let mut it = prepared(&web("web:1"), OnFailure::Rollback);
    it.settings.policy.prune = true;
    let it = it.begun();
    it.synced_with_tip().await;
    let first = it.tip();
    it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(5).await;
    assert_eq!(it.images(), [""; 0], "{}", it.story());
    make_unhealthy(&it, &["web:2"]);
    it.git.push(&web("web:2"));
    it.until("it is back", |found| is_back(found, &first)).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"], "{}", it.story());
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history[0].cause.clone(), history[0].rollback_of), (Cause::AutomaticRollback, Some(1)));
}

/// Without self-heal, differences by hand are left. Commits succeed all the same, and the last of them is the one to go back to.
#[tokio::test(start_paused = true)]
async fn commit_succeeds_while_differences_are_left() {
    let mut it = prepared(&web("web:1"), OnFailure::Rollback);
    it.settings.policy.self_heal = false;
    it = it.begun();
    it.synced_with_tip().await;
    it.hand(&UserAction::Stop { name: "shop-db-1".into() });
    minutes(1).await;
    let good = it.push(&web("web:2")).await;
    let has_succeeded = |found: &Application| {
        let outcome = found.status.operation.as_ref().and_then(|it| it.outcome.clone());
        outcome == Some(Outcome::Succeeded) && found.status.commit.as_ref().is_some_and(|it| it.id == good)
    };
    let found = it.until("the commit has succeeded", has_succeeded).await;
    assert_eq!(found.status.sync, SyncStatus::OutOfSync);
    assert_eq!(found.status.drift.len(), 1, "{:?}", found.status.drift);
    make_unhealthy(&it, &["web:3"]);
    it.push(&web("web:3")).await;
    it.until("it is back", |found| is_back(found, &good)).await;
    assert_eq!(it.images(), ["web:2", "web:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn failed_commit_is_an_obstacle_until_another_try() {
    let it = prepared(&web("web:1"), OnFailure::Pause).begun();
    let found = it.synced_with_tip().await;
    assert_eq!(found.status.obstacle, None);
    make_unhealthy(&it, &["web:2"]);
    let bad = it.push(&web("web:2")).await;
    let found = it.until("it is paused", is_paused).await;
    let obstacle = found.status.obstacle.clone().unwrap();
    assert!(obstacle.starts_with(&format!("{} failed: ", &bad[..12])), "{obstacle}");
    assert!(obstacle.ends_with("fix it in Git, or `driftless sync shop --retry`"), "{obstacle}");
    // An attempt that has begun is not the failure before.
    let (_, ticket) = it.handle().request_with_ticket(app(), RequestKind::Retry).await.unwrap();
    let found = it.until("it is tried again", |found| ticket.is_answered_by(&found.status)).await;
    assert_eq!(found.status.obstacle, None, "{found:?}");
    it.until("it is paused again", |found| is_paused(found) && found.status.obstacle.is_some()).await;
    // The older revision of a rollback has not failed.
    let rollback = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    let (_, ticket) = it.handle().request_with_ticket(app(), RequestKind::Rollback(rollback)).await.unwrap();
    let found = it.until("it is pinned", |found| ticket.is_answered_by(&found.status)).await;
    assert_eq!(found.status.obstacle, None);
    let message = failed(&found).map(|condition| condition.message.clone()).unwrap_or_default();
    assert!(!events(&it, "RolledBack")[0].contains(':'), "it has no reason: {}", it.story());
    let expected = "; the application is pinned; `driftless resume shop` tries the newest commit";
    assert!(message.ends_with(expected), "{message}");
    it.ask(RequestKind::Resume).await;
    // A commit that cannot be read is one, and the next one is not.
    it.push("services: {web: {imag: 'web:3'}}\n").await;
    let is_unread = |found: &Application| {
        let obstacle = found.status.obstacle.as_ref();
        obstacle.is_some_and(|obstacle| obstacle.contains(" is not applied: "))
    };
    it.until("it is not applied", is_unread).await;
    it.push(&web("web:3")).await;
    let found = it.synced_with_tip().await;
    assert_eq!(found.status.obstacle, None);
}

#[tokio::test(start_paused = true)]
async fn status_counts_the_errors_that_it_does_not_name() {
    let it = prepared(&web("web:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    let service = |name: &str| format!("{name}: {{imag: '{name}:1'}}");
    it.push(&format!("services: {{{}, {}, {}}}\n", service("web"), service("db"), service("mail"))).await;
    let is_rejected = |found: &Application| found.status.message.contains(" is not applied: ");
    let found = it.until("it is not applied", is_rejected).await;
    let errors = found.status.findings.iter().filter(|finding| finding.is_error()).count();
    assert!(errors >= 3, "{:?}", found.status.findings);
    let others = format!(" (and {} more errors)", errors - 1);
    assert!(found.status.message.contains(&others), "{}", found.status.message);
}

#[tokio::test(start_paused = true)]
async fn resume_that_is_cut_off_keeps_the_pin() {
    let mut it = prepared(&web("web:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    it.until("it is paused", is_paused).await;
    let rollback = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    it.ask(RequestKind::Rollback(rollback)).await;
    minutes(10).await;
    it.docker.hang();
    let handle = it.handle();
    let resuming = tokio::spawn(async move { handle.request(app(), RequestKind::Resume).await });
    sleep(Duration::from_secs(1)).await;
    it.end().await;
    assert!(resuming.await.unwrap().is_err(), "the engine has not answered");
    assert!(it.store.pin(&app()).unwrap().is_some(), "the pin is as it was");
}

#[tokio::test(start_paused = true)]
async fn rollback_runs_the_image_that_its_revision_ran() {
    let pulled = |note: &str| {
        format!(
            "services: {{web: {{image: 'web:1', pull_policy: always, environment: {{NOTE: {note}}}, \
             healthcheck: {{test: [CMD, check]}}}}}}\n"
        )
    };
    let mut it = prepared(&pulled("a"), OnFailure::Rollback);
    let digest = |letter: char| format!("sha256:{}", letter.to_string().repeat(64));
    let has = |it: &Simulation, letter| {
        it.docker.faults(|faults| _ = faults.digests.insert("web:1".to_owned(), digest(letter)));
    };
    has(&it, 'a');
    it = it.begun();
    it.synced_with_tip().await;
    let first = it.last_succeeded().unwrap();
    assert_eq!(first.images["web:1"], format!("web@{}", digest('a')));
    // The tag moves to an image that fails, twice.
    has(&it, 'b');
    for note in ["b", "c"] {
        make_unhealthy(&it, &["web:1"]);
        it.push(&pulled(note)).await;
        minutes(5).await;
        make_unhealthy(&it, &[]);
        let back = it.last_succeeded().unwrap();
        assert_eq!(back.cause, Cause::AutomaticRollback, "{}", it.story());
        assert_eq!(back.images, first.images, "{}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn rollback_with_its_own_settings_removes_the_added() {
    let services = |version: u8, more: usize| {
        let more: String = (0..more).map(|number| format!("  s{number}: {{image: 's:1'}}\n")).collect();
        format!(
            "services:\n  web:\n    image: web:{version}\n    healthcheck: {{test: [CMD, check]}}\n    \
             deploy: {{rollback_config: {{order: start-first}}}}\n{more}"
        )
    };
    let it = prepared(&services(1, 0), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    let first = it.tip();
    make_unhealthy(&it, &["web:2"]);
    it.push(&services(2, 4)).await;
    it.until("it is back", |found| is_back(found, &first)).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn kept_version_heals_without_its_registry() {
    let it = prepared(&web("web:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.registry = Some(BTreeSet::new()));
    it.push(&web("web:2")).await;
    minutes(5).await;
    it.hand(&UserAction::Remove { name: "shop-web-1".into() });
    minutes(5).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn service_that_was_ill_before_does_not_fail_a_commit() {
    let with = |image: &str| format!("{}    healthcheck: {{test: [CMD, check]}}\n", web(image));
    let it = prepared(&with("web:1"), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    make_unhealthy(&it, &["db:1"]);
    it.hand(&UserAction::Remove { name: "shop-db-1".into() });
    minutes(60).await;
    it.push(&with("web:2")).await;
    sleep(Duration::from_secs(45)).await;
    let now = it.handle().applications().get(&app()).unwrap().clone();
    assert!(failed(&now).is_none(), "{:?}\n{}", now.status.conditions, it.story());
    // It has the whole deadline to become well again, and no more.
    minutes(3).await;
    let now = it.handle().applications().get(&app()).unwrap().clone();
    assert!(failed(&now).is_some(), "{:?}\n{}", now.status.conditions, it.story());
}

#[tokio::test(start_paused = true)]
async fn failed_commit_is_skipped_after_the_record_was_lost() {
    let mut it = prepared(&web("web:1"), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    let first = it.tip();
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    it.until("it is back", |found| is_back(found, &first)).await;
    let made = creations(&it, "web:2");
    it.crash();
    it.store.save_record(&app(), &Record::default()).unwrap();
    it.begin();
    minutes(30).await;
    it.until("it is still back", |found| is_back(found, &first)).await;
    assert_eq!(creations(&it, "web:2"), made, "{}", it.story());
    // The next commit is applied.
    it.push(&web("web:3")).await;
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn failed_commit_is_remembered_after_a_kill_at_any_step() {
    for steps in (1..16).step_by(2) {
        let mut it = prepared(&web("web:1"), OnFailure::Rollback).begun();
        it.synced_with_tip().await;
        let first = it.tip();
        make_unhealthy(&it, &["web:2"]);
        it.docker.crash_after(steps);
        it.push(&web("web:2")).await;
        minutes(4).await;
        it.crash();
        it.begin();
        it.until("it is back", |found| is_back(found, &first)).await;
        minutes(30).await;
        assert_eq!(it.images(), ["db:1", "web:1", "web:1"], "after {steps} steps\n{}", it.story());
        assert_eq!(events(&it, "RolledBack").len(), 1, "after {steps} steps");
        let made = creations(&it, "web:2");
        it.crash();
        it.begin();
        minutes(30).await;
        assert_eq!(creations(&it, "web:2"), made, "after {steps} steps\n{}", it.story());
        it.check(&BTreeMap::from([("web", 2)]));
    }
}

#[tokio::test(start_paused = true)]
async fn retry_resume_and_next_commit_release_a_failed_commit() {
    let it = prepared(&web("web:1"), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    let first = it.tip();
    let refused = it.handle().request(app(), RequestKind::Retry).await;
    assert!(matches!(refused, Err(RequestError::Refused(why)) if why.contains("no failed commit")));
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    it.until("it is back", |found| is_back(found, &first)).await;
    // Another try of what is still broken goes back once more.
    it.ask(RequestKind::Retry).await;
    it.until("it is tried again", |found| failed(found).is_none()).await;
    it.until("it is back again", |found| is_back(found, &first)).await;
    assert_eq!(events(&it, "RolledBack").len(), 2);
    // A commit that changes nothing for the application is skipped as the one before.
    let writes = creations(&it, "web:2");
    it.git.push_files("Ada <a@b.c>", &[("shop/compose.yaml", &web("web:2")), ("README.md", "more")]);
    it.ask(RequestKind::Sync).await;
    minutes(10).await;
    assert_eq!(creations(&it, "web:2"), writes, "{}", it.story());
    make_unhealthy(&it, &[]);
    it.ask(RequestKind::Resume).await;
    let found = it.synced_with_tip().await;
    assert!(failed(&found).is_none());
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
    make_unhealthy(&it, &["web:3"]);
    it.push(&web("web:3")).await;
    it.until("web:3 has failed", |found| failed(found).is_some()).await;
    it.push(&web("web:4")).await;
    let found = it.synced_with_tip().await;
    assert!(failed(&found).is_none());
    assert_eq!(it.store.revisions(&app()).unwrap()[0].cause, Cause::User);
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn paused_rollout_continues_after_a_retry() {
    let it = prepared(&web("web:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    let paused = it.until("it is paused", is_paused).await;
    assert_eq!(paused.status.health, HealthStatus::Degraded);
    assert_eq!(events(&it, "CommitFailed").len(), 1);
    // The cause is gone, and still nothing is replaced until somebody says so.
    make_unhealthy(&it, &[]);
    minutes(30).await;
    assert_eq!(it.images().iter().filter(|image| *image == "web:1").count(), 2, "{}", it.story());
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
    assert_eq!(it.store.revisions(&app()).unwrap().len(), 2, "it is the same revision");
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn failure_without_consequence_goes_on() {
    let it = prepared(&web("web:1"), OnFailure::None).begun();
    it.synced_with_tip().await;
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    let has_failed = |found: &Application| {
        matches!(
            found.status.operation.as_ref().and_then(|it| it.outcome.clone()),
            Some(Outcome::Failed { .. })
        )
    };
    let found = it.until("the revision has failed", has_failed).await;
    assert!(failed(&found).is_none());
    make_unhealthy(&it, &[]);
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn last_commit_in_sync_is_known_after_a_restart() {
    let mut it = prepared(&web("web:1"), OnFailure::None).begun();
    it.synced_with_tip().await;
    // It changes nothing for the application, so it begins no revision.
    let last = it.push(&web("web:1")).await;
    it.synced(&last).await;
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    minutes(3).await;
    it.crash();
    it.begin();
    minutes(2).await;
    let found = it.handle().applications().get(&app()).unwrap().clone();
    assert_eq!(found.status.revision, Some(2), "{}", it.story());
    assert_eq!(found.status.commit.as_ref().map(|commit| commit.id.to_string()), Some(last));
    make_unhealthy(&it, &[]);
    it.synced_with_tip().await;
    minutes(2).await;
    assert_eq!(it.store.record(&app()).unwrap().in_sync, None, "the target is reached");
}

#[tokio::test(start_paused = true)]
async fn health_lost_within_monitor_is_a_failure() {
    let compose = |image: &str| format!("services:\n  web:\n    image: {image}\n    restart: always\n");
    for (on_failure, image) in [(OnFailure::Rollback, "web:1"), (OnFailure::Pause, "web:2")] {
        let it = prepared(&compose("web:1"), on_failure).begun();
        it.synced_with_tip().await;
        minutes(10).await;
        it.docker.faults(|faults| {
            faults.exits.insert("web:2".to_owned(), (Duration::from_secs(15), 3));
        });
        it.push(&compose("web:2")).await;
        let found = it.until("it has failed", |found| failed(found).is_some()).await;
        assert!(found.status.message.contains("exited with code 3"), "{}", found.status.message);
        minutes(30).await;
        it.docker.faults(|faults| faults.exits.clear());
        minutes(30).await;
        assert_eq!(it.images(), [image], "{on_failure:?}\n{}", it.story());
        let reason = if on_failure == OnFailure::Rollback { "RolledBack" } else { "CommitFailed" };
        assert_eq!(events(&it, reason).len(), 1, "{on_failure:?}: it is reported once");
    }
}

#[tokio::test(start_paused = true)]
async fn health_lost_after_monitor_is_no_failure_of_a_commit() {
    let compose = "services:\n  web:\n    image: web:1\n    restart: always\n";
    let it = prepared(compose, OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    it.docker.faults(|faults| {
        faults.exits.insert("web:1".to_owned(), (Duration::from_secs(100), 3));
    });
    minutes(60).await;
    assert!(events(&it, "CommitFailed").is_empty(), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn monitor_ends_although_the_clock_was_set_back() {
    let compose = |image: &str| format!("services:\n  web:\n    image: {image}\n    restart: always\n");
    let clock = Clock::jumping(NOON);
    let Clock::Jumping { epoch, .. } = clock else { panic!() };
    let it = prepared_at(&compose("web:1"), OnFailure::Rollback, clock).begun();
    it.synced_with_tip().await;
    it.push(&compose("web:2")).await;
    it.synced_with_tip().await;
    epoch.fetch_sub(24 * 3_600_000, Ordering::SeqCst);
    minutes(60).await;
    it.docker.faults(|faults| {
        faults.exits.insert("web:2".to_owned(), (Duration::from_secs(15), 3));
    });
    minutes(60).await;
    assert!(events(&it, "RolledBack").is_empty(), "{}", it.story());
    assert_eq!(it.store.revisions(&app()).unwrap()[0].outcome, Outcome::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn time_without_the_agent_is_no_time_of_a_rollout() {
    for sleeps in [false, true] {
        let clock = Clock::jumping(NOON);
        let Clock::Jumping { epoch, .. } = clock else { panic!() };
        let mut it = prepared_at(&web("web:1"), OnFailure::Rollback, clock).begun();
        it.synced_with_tip().await;
        make_unhealthy(&it, &["web:2"]);
        it.push(&web("web:2")).await;
        sleep(Duration::from_secs(20)).await;
        if sleeps {
            epoch.fetch_add(15 * 60_000, Ordering::SeqCst);
        } else {
            it.crash();
            minutes(15).await;
            it.begin();
        }
        sleep(Duration::from_secs(40)).await;
        assert!(events(&it, "RolledBack").is_empty(), "sleeps: {sleeps}\n{}", it.story());
        // Then the deadline runs.
        minutes(10).await;
        assert_eq!(events(&it, "RolledBack").len(), 1, "sleeps: {sleeps}\n{}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn missing_image_is_no_failure_of_a_first_commit() {
    let it = prepared(&web("web:1"), OnFailure::Pause);
    it.docker.faults(|faults| faults.registry = Some(["db:1".to_owned()].into()));
    let it = it.begun();
    minutes(60).await;
    let found = it.until("it is published", |_| true).await;
    assert!(failed(&found).is_none(), "{:#?}", found.status);
    assert!(found.status.message.contains("cannot pull"), "{}", found.status.message);
    assert_eq!(it.store.revisions(&app()).unwrap()[0].outcome, Outcome::InProgress);
    it.docker.faults(|faults| faults.registry = None);
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn failed_commit_is_that_of_its_revision() {
    let it = prepared(&web("web:1"), OnFailure::Pause);
    make_unhealthy(&it, &["web:1"]);
    let it = it.begun();
    let first = it.tip();
    sleep(Duration::from_secs(20)).await;
    it.git.push_files("Ada <a@b.c>", &[("shop/compose.yaml", &web("web:1")), ("README.md", "more")]);
    it.ask(RequestKind::Sync).await;
    let found = it.until("it has failed", |found| failed(found).is_some()).await;
    assert!(failed(&found).unwrap().message.starts_with(&first[..12]), "{:#?}", failed(&found));
}

#[tokio::test(start_paused = true)]
async fn first_commit_that_fails_has_nothing_to_go_back_to() {
    let it = prepared(&web("web:1"), OnFailure::Rollback);
    make_unhealthy(&it, &["web:1"]);
    let it = it.begun();
    let found = it.until("it has failed", |found| failed(found).is_some()).await;
    assert!(is_paused(&found));
    assert!(events(&it, "CommitFailed")[0].contains("no older revision"));
    make_unhealthy(&it, &[]);
    it.synced_with_tip().await;
}

/// The agent remembers that the commit has failed before it stores the outcome of the revision.
#[tokio::test(start_paused = true)]
async fn outcome_of_a_failed_first_commit_is_stored_later() {
    let it = prepared(&web("web:1"), OnFailure::Rollback);
    make_unhealthy(&it, &["web:1"]);
    let mut it = it.begun();
    it.until("it has failed", is_paused).await;
    it.end().await;
    let number = it.store.revisions(&app()).unwrap()[0].number;
    it.store.finish_revision(&app(), number, &Outcome::InProgress, &BTreeMap::new()).unwrap();
    it.begin();
    let is_failed = |found: &Application| matches!(outcome(found), Some(Outcome::Failed { .. }));
    it.until("its revision has failed", is_failed).await;
}

#[tokio::test(start_paused = true)]
async fn rollback_to_a_revision_that_fails_too_stays_there() {
    let it = prepared(&web("web:1"), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    minutes(10).await;
    make_unhealthy(&it, &["web:1", "web:2", "web:3"]);
    it.push(&web("web:3")).await;
    it.until("it has failed", |found| failed(found).is_some()).await;
    minutes(120).await;
    assert_eq!(events(&it, "RolledBack").len(), 1, "{}", it.story());
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!(history.iter().filter(|it| it.cause == Cause::AutomaticRollback).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn rollback_removes_additions_and_keeps_volumes() {
    let base = "services:\n  web:\n    image: web:1\n    restart: always\n";
    let mut more = base.replace("web:1", "web:2");
    more.push_str("    healthcheck: {test: [CMD, check]}\n");
    for number in 1..=6 {
        more.push_str(&format!(
            "  w{number}:\n    image: more:1\n    restart: always\n    volumes: ['data:/data']\n    networks: [extra]\n"
        ));
    }
    more.push_str("volumes: {data: {}}\nnetworks: {extra: {}}\n");
    let it = prepared(base, OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    let first = it.tip();
    make_unhealthy(&it, &["web:2"]);
    it.push(&more).await;
    it.until("it is back", |found| is_back(found, &first)).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    let observed = it.docker.observed(&app());
    assert!(observed.volumes.contains_key("shop_data"), "{:?}", observed.volumes);
    assert!(!observed.networks.contains_key("shop_extra"), "{:?}", observed.networks);
    assert!(
        events(&it, "RolledBack")[0].contains("kept: volume shop_data"),
        "{:?}",
        events(&it, "RolledBack")
    );
}

#[tokio::test(start_paused = true)]
async fn failed_job_of_a_commit_is_a_failure() {
    let manifest = |version: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  selector: {{matchLabels: {{app: \
             web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {{containers: [{{name: web, image: \
             'web:{version}'}}]}}\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: migrate}}\nspec:\n  \
             backoffLimit: 0\n  template:\n    spec: {{restartPolicy: Never, containers: [{{name: m, image: \
             'migrate:{version}'}}]}}\n"
        )
    };
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.on_failure = OnFailure::Rollback;
    let push = |it: &Simulation, version: &str| {
        it.git.push_files("Ada <a@b.c>", &[("shop/shop.yaml", &manifest(version))])
    };
    it.docker.faults(|faults| {
        for (image, code) in [("migrate:1", 0), ("migrate:2", 1)] {
            faults.exits.insert(image.to_owned(), (Duration::from_secs(2), code));
        }
    });
    push(&it, "1");
    it.begin();
    it.synced_with_tip().await;
    let first = it.tip();
    push(&it, "2");
    it.ask(RequestKind::Sync).await;
    it.until("it is back", |found| is_back(found, &first)).await;
    minutes(1).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    it.docker.faults(|faults| {
        faults.exits.insert("migrate:2".to_owned(), (Duration::from_secs(2), 0));
    });
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    minutes(1).await;
    assert_eq!(it.images(), ["web:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn paused_commit_with_a_failed_job_runs_it_again_on_retry() {
    let compose = |image: &str| {
        format!(
            "services:\n  web:\n    image: web:1\n    restart: always\n    depends_on: {{task: {{condition: \
             service_completed_successfully}}}}\n  task:\n    image: {image}\n    restart: 'no'\n"
        )
    };
    let it = prepared(&compose("task:1"), OnFailure::Pause);
    it.docker.faults(|faults| {
        faults.exits.insert("task:1".to_owned(), (Duration::from_secs(2), 0));
        faults.exits.insert("task:2".to_owned(), (Duration::from_secs(2), 1));
    });
    let it = it.begun();
    it.synced_with_tip().await;
    it.push(&compose("task:2")).await;
    let found = it.until("it has failed", |found| failed(found).is_some()).await;
    assert!(found.status.message.contains("task"), "{}", found.status.message);
    it.docker.faults(|faults| {
        faults.exits.insert("task:2".to_owned(), (Duration::from_secs(2), 0));
    });
    it.ask(RequestKind::Retry).await;
    let found = it.synced_with_tip().await;
    assert!(failed(&found).is_none());
    let warnings = it.store.events(0, 1000, None).unwrap();
    assert!(warnings.iter().any(|it| it.reason == "CommitFailed" && it.kind == EventKind::Warning));
}

#[tokio::test(start_paused = true)]
async fn failed_job_is_retried_after_a_commit_that_left_it() {
    let manifests = |web: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: migrate}}\nspec:\n  backoffLimit: 0\n  template: \
             {{spec: {{restartPolicy: Never, containers: [{{name: a, image: 'migrate:1'}}]}}}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  selector: {{matchLabels: \
             {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {{containers: [{{name: a, \
             image: '{web}'}}]}}\n"
        )
    };
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.on_failure = OnFailure::Pause;
    let ends_with = |it: &Simulation, code: i64| {
        it.docker.faults(|faults| {
            faults.exits.insert("migrate:1".to_owned(), (Duration::from_secs(2), code));
        });
    };
    ends_with(&it, 1);
    it.git.push_files("Ada <a@b.c>", &[("shop/shop.yaml", &manifests("web:1"))]);
    it.begin();
    it.until("it has failed", |found| failed(found).is_some()).await;
    it.git.push_files("Ada <a@b.c>", &[("shop/shop.yaml", &manifests("web:2"))]);
    it.ask(RequestKind::Sync).await;
    minutes(5).await;
    ends_with(&it, 0);
    minutes(30).await;
    let found = it.handle().applications().get(&app()).unwrap().clone();
    assert!(failed(&found).is_none(), "{}", it.story());
    assert_eq!(creations(&it, "migrate:1"), 1, "{}", it.story());
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    assert_eq!(creations(&it, "migrate:1"), 2, "{}", it.story());
    // The consequence of another failure is said.
    let said = events(&it, "RetryRequested");
    assert!(said.iter().any(|message| message.contains("is tried again; another failure")), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn paused_commit_with_a_job_without_retries_runs_it_again() {
    let manifest = |version: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: migrate}}\nspec:\n  backoffLimit: 0\n  template: \
             {{spec: {{restartPolicy: Never, containers: [{{name: a, image: 'migrate:{version}'}}]}}}}\n"
        )
    };
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.on_failure = OnFailure::Pause;
    let ends_with = |it: &Simulation, code: i64| {
        it.docker.faults(|faults| {
            faults.exits.insert("migrate:1".to_owned(), (Duration::from_secs(2), code));
        });
    };
    ends_with(&it, 1);
    it.git.push_files("Ada <a@b.c>", &[("shop/shop.yaml", &manifest("1"))]);
    it.begin();
    it.until("it has failed", |found| failed(found).is_some()).await;
    for (code, made) in [(1, 2), (0, 3)] {
        ends_with(&it, code);
        it.ask(RequestKind::Retry).await;
        minutes(5).await;
        assert_eq!(creations(&it, "migrate:1"), made, "{}", it.story());
    }
    let found = it.synced_with_tip().await;
    assert!(failed(&found).is_none());
}

#[tokio::test(start_paused = true)]
async fn running_version_is_named_once_after_a_failure() {
    let it = prepared(&web("web:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    it.until("rollouts are paused", is_paused).await;
    minutes(5).await;
    let found = it.until("rollouts are paused", is_paused).await;
    let shown = format!("{:?}", found.status);
    assert!(shown.contains("version 1 keeps running"), "{shown}");
    assert!(!shown.contains("keeps running; version 1 keeps running"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn no_rollback_leads_to_a_revision_against_the_policy() {
    let privileged = web("web:1").replace("    image: web:1\n", "    image: web:1\n    privileged: true\n");
    let mut it = prepared(&privileged, OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    // From now on the policy is stricter.
    it.crash();
    it.settings.admission.privileged = Some(false);
    it.begin();
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    it.until("the commit has failed", |found| failed(found).is_some()).await;
    let messages = events(&it, "CommitFailed");
    assert!(messages[0].contains("there is no older revision to go back to"), "{messages:?}");
    it.push(&web("web:3")).await;
    it.synced_with_tip().await;
    let rollback = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    let refused = it.handle().request(app(), RequestKind::Rollback(rollback)).await.unwrap_err();
    let expected = "revision 1 of shop violates the policy of today: web is privileged";
    assert!(refused.to_string().starts_with(expected), "{refused}");
    minutes(10).await;
    assert_eq!(it.images(), ["db:1", "web:3", "web:3"], "{}", it.story());
}

/// Four replicas with a rule for failures.
fn ruled(image: &str, rule: &str, more: &str) -> String {
    format!(
        "services:\n  web:\n    image: {image}\n    restart: always\n    deploy:\n      replicas: 4\n      update_config: \
         {{monitor: 5s, {rule}}}\n{more}"
    )
}

fn exits(it: &Simulation, image: &str, is_failing: bool) {
    it.docker.faults(|faults| {
        faults.exits.clear();
        if is_failing {
            faults.exits.insert(image.to_owned(), (Duration::from_secs(1), 3));
        }
    });
}

/// The images of all containers, running or not.
fn existing(it: &Simulation) -> Vec<String> {
    let observed = it.docker.observed(&app());
    let mut images: Vec<String> =
        observed.instances.values().map(|instance| instance.config.image.clone()).collect();
    images.sort();
    images
}

fn outcome(application: &Application) -> Option<Outcome> {
    application.status.operation.as_ref().and_then(|operation| operation.outcome.clone())
}

#[tokio::test(start_paused = true)]
async fn failure_action_of_a_service_decides_over_on_failure() {
    for (general, action) in [(OnFailure::None, "rollback"), (OnFailure::Pause, "rollback")] {
        let it = prepared(&ruled("web:1", &format!("failure_action: {action}"), ""), general).begun();
        it.synced_with_tip().await;
        let first = it.tip();
        exits(&it, "web:2", true);
        it.push(&ruled("web:2", &format!("failure_action: {action}"), "")).await;
        it.until("it is back", |found| is_back(found, &first)).await;
        assert_eq!(it.images(), ["web:1"; 4], "{general:?}\n{}", it.story());
        minutes(30).await;
        assert_eq!(events(&it, "RolledBack").len(), 1, "{:?}", events(&it, "RolledBack"));
        assert!(
            events(&it, "RolledBack")[0].contains("exited with code 3"),
            "{:?}",
            events(&it, "RolledBack")
        );
        it.check(&BTreeMap::from([("web", 4)]));
    }
    let it = prepared(&ruled("web:1", "failure_action: pause", ""), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    exits(&it, "web:2", true);
    it.push(&ruled("web:2", "failure_action: pause", "")).await;
    it.until("it is paused", is_paused).await;
    minutes(30).await;
    assert_eq!(it.images().iter().filter(|image| *image == "web:1").count(), 4, "{}", it.story());
    // Another try begins with new containers.
    exits(&it, "web:2", false);
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"; 4]);
    it.check(&BTreeMap::from([("web", 4)]));
}

#[tokio::test(start_paused = true)]
async fn continue_goes_past_failing_instances_and_reports() {
    let compose = |image: &str| {
        ruled(image, "failure_action: continue", "  db:\n    image: db:1\n    restart: always\n")
    };
    let it = prepared(&compose("web:1"), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    exits(&it, "web:2", true);
    it.push(&compose("web:2")).await;
    let found = it
        .until("the revision has failed", |found| matches!(outcome(found), Some(Outcome::Failed { .. })))
        .await;
    assert!(failed(&found).is_none(), "nothing is paused");
    minutes(10).await;
    assert_eq!(existing(&it), ["db:1", "web:2", "web:2", "web:2", "web:2"], "{}", it.story());
    assert!(events(&it, "RolledBack").is_empty() && events(&it, "CommitFailed").is_empty());
    exits(&it, "web:2", false);
    let found = it.synced_with_tip().await;
    assert_eq!(found.status.health, HealthStatus::Healthy);
}

#[tokio::test(start_paused = true)]
async fn tolerated_failures_let_the_revision_succeed() {
    let compose = |image: &str, ratio: &str| {
        ruled(image, &format!("failure_action: rollback, max_failure_ratio: {ratio}"), "")
    };
    let it = prepared(&compose("web:1", "1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    exits(&it, "web:2", true);
    let second = it.push(&compose("web:2", "1")).await;
    let is_done = |found: &Application| {
        let is_second = found.status.revision_commit.as_ref().is_some_and(|commit| commit.id == second);
        is_second && outcome(found) == Some(Outcome::Succeeded)
    };
    let found = it.until("it has succeeded", is_done).await;
    assert_eq!(found.status.health, HealthStatus::Degraded);
    assert!(
        found.status.waits.iter().any(|wait| wait.reason == "FailuresTolerated"),
        "{:?}",
        found.status.waits
    );
    assert_eq!(existing(&it), ["web:2"; 4], "{}", it.story());
    let is_shown = |found: &Application| found.status.commit.as_ref().is_some_and(|it| it.id == second);
    it.until("its commit is the one that runs", is_shown).await;
    minutes(30).await;
    assert_eq!(events(&it, "FailuresTolerated").len(), 1, "{:?}", events(&it, "FailuresTolerated"));
    assert!(events(&it, "RolledBack").is_empty(), "{:?}", events(&it, "RolledBack"));
    // The same failures are too many for the next commit.
    exits(&it, "web:3", true);
    it.push(&compose("web:3", "0.5")).await;
    it.until("it is back", |found| is_back(found, &second)).await;
    assert_eq!(existing(&it), ["web:2"; 4], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn update_is_judged_the_same_after_a_kill_at_any_step() {
    for steps in (1..14).step_by(3) {
        let mut it = prepared(&ruled("web:1", "failure_action: rollback", ""), OnFailure::None).begun();
        it.synced_with_tip().await;
        let first = it.tip();
        exits(&it, "web:2", true);
        it.docker.crash_after(steps);
        it.push(&ruled("web:2", "failure_action: rollback", "")).await;
        minutes(2).await;
        it.crash();
        it.begin();
        it.until("it is back", |found| is_back(found, &first)).await;
        minutes(30).await;
        assert_eq!(it.images(), ["web:1"; 4], "after {steps} steps\n{}", it.story());
        assert_eq!(events(&it, "RolledBack").len(), 1, "after {steps} steps");
        it.check(&BTreeMap::from([("web", 4)]));
    }
}

#[tokio::test(start_paused = true)]
async fn rollback_is_rolled_out_by_rollback_config() {
    let compose = |image: &str| {
        ruled(image, "parallelism: 1", "      rollback_config: {order: stop-first, parallelism: 0}\n")
    };
    let it = prepared(&compose("web:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    it.push(&compose("web:2")).await;
    it.synced_with_tip().await;
    let rollback = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    let from = it.docker.transcript().len();
    it.ask(RequestKind::Rollback(rollback)).await;
    it.until("it is back", |found| outcome(found) == Some(Outcome::Succeeded) && found.status.pin.is_some())
        .await;
    assert_eq!(it.images(), ["web:1"; 4], "{}", it.story());
    let running = |observed: &driftless_model::Observed| {
        observed.instances.values().filter(|instance| instance.is_running()).count()
    };
    let least = it.docker.transcript()[from..].iter().map(|entry| running(&entry.after)).min();
    assert_eq!(least, Some(0), "all at once, stopped first");
}

#[tokio::test(start_paused = true)]
async fn retry_replaces_instances_that_run_and_are_not_healthy() {
    let it = prepared(&web("web:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    make_unhealthy(&it, &["web:2"]);
    it.push(&web("web:2")).await;
    it.until("it is paused", is_paused).await;
    let made = creations(&it, "web:2");
    it.ask(RequestKind::Retry).await;
    minutes(3).await;
    it.until("it is paused again", is_paused).await;
    assert!(creations(&it, "web:2") > made, "{}", it.story());
    make_unhealthy(&it, &[]);
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    it.check(&BTreeMap::new());
}

/// The engine restarts. For so long, containers of this image end a second after each start, as one does without its database.
async fn restart_engine(it: &Simulation, image: &str, time: Duration) {
    exits(it, image, true);
    it.docker.restart();
    sleep(time).await;
    exits(it, image, false);
}

#[tokio::test(start_paused = true)]
async fn end_after_a_start_of_the_engine_fails_no_update() {
    let compose = |version: u32| {
        let slow = format!("  slow:\n    image: slow:{version}\n    healthcheck: {{test: [CMD, check]}}\n");
        ruled(&format!("web:{version}"), "failure_action: rollback", &slow)
    };
    for is_broken in [false, true] {
        let mut it = prepared(&compose(1), OnFailure::Pause);
        it.settings.policy.progress_deadline = None;
        let it = it.begun();
        it.synced_with_tip().await;
        it.docker.faults(|faults| faults.warm_up = Duration::from_mins(5));
        it.push(&compose(2)).await;
        minutes(1).await;
        assert_eq!(it.images().iter().filter(|image| *image == "web:2").count(), 4, "{}", it.story());
        let time = if is_broken { Duration::from_mins(10) } else { Duration::from_millis(500) };
        restart_engine(&it, "web:2", time).await;
        if !is_broken {
            it.synced_with_tip().await;
        }
        assert_eq!(events(&it, "RolledBack").len(), usize::from(is_broken), "{}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn ends_after_a_start_of_the_engine_are_no_lost_health() {
    let compose = |image: &str| format!("services:\n  web:\n    image: {image}\n    restart: always\n");
    for is_broken in [false, true] {
        let it = prepared(&compose("web:1"), OnFailure::Rollback).begun();
        it.synced_with_tip().await;
        it.push(&compose("web:2")).await;
        it.synced_with_tip().await;
        sleep(Duration::from_secs(20)).await;
        let time = if is_broken { Duration::from_mins(10) } else { Duration::from_millis(1500) };
        restart_engine(&it, "web:2", time).await;
        minutes(10).await;
        assert_eq!(events(&it, "RolledBack").len(), usize::from(is_broken), "{}", it.story());
    }
}
