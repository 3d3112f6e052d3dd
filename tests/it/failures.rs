//! Failures that last: the agent pauses between its tries, and finds another way where there is one.

use std::{collections::BTreeSet, fs, time::Duration};

use driftless_agent::{Answer, RequestKind};
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{Application, Cause, OnFailure, Outcome};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

const WEB: &str = "services:\n  web: {image: 'web:1', restart: always}\n";

fn attempt(application: &Application) -> u32 {
    application.status.operation.as_ref().map_or(0, |operation| operation.attempt)
}

/// Otherwise it would seem that no version was reached, and nothing would be kept of it or protect its data.
#[tokio::test(start_paused = true)]
async fn round_fails_while_the_reached_version_is_unreadable() {
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.keep_on_disk();
    let database = it.database();
    it.git.push(WEB);
    let it = it.begun();
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.registry = Some(BTreeSet::from(["web:1".to_owned()])));
    it.push(&WEB.replace("web:1", "web:2")).await;
    minutes(1).await;
    assert_eq!(it.images(), ["web:1"], "it runs on while the image is missing\n{}", it.story());

    database.execute_batch("ALTER TABLE stacks RENAME TO away").unwrap();
    let is_unread = |it: &Application| it.status.message.contains("could not read a stack");
    it.until("the round fails", is_unread).await;
    minutes(1).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());

    database.execute_batch("ALTER TABLE away RENAME TO stacks").unwrap();
    it.docker.faults(|faults| faults.registry = None);
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn events_do_not_shorten_the_pause_after_a_failed_round() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    it.break_contents();
    let mounting = WEB.replace("restart", "volumes: ['./a.conf:/a.conf'], restart");
    it.git.push_files("Ada", &[("shop/compose.yaml", &mounting), ("shop/a.conf", "a")]);
    it.ask(RequestKind::Sync).await;
    it.until("the round fails", |application| attempt(application) == 1).await;
    // A container that somebody starts and stops all the time.
    for _ in 0..300 {
        it.hand(&UserAction::Stop { name: "shop-web-1".into() });
        tokio::time::sleep(Duration::from_secs(1)).await;
        it.hand(&UserAction::Start { name: "shop-web-1".into() });
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let tries = it.until("it fails", |_| true).await;
    // After 5, 15, 35, 75, 155, 315 and 495 s.
    assert_eq!(attempt(&tries), 8, "{:#?}", tries.status);

    // A request is tried at once, and another commit as well.
    it.ask(RequestKind::Sync).await;
    it.until("the request is tried", |application| attempt(application) == 9).await;
    it.push(WEB).await;
    it.synced_with_tip().await;
}

fn ids(it: &Simulation) -> BTreeSet<String> {
    it.docker.observed(&app()).instances.keys().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn container_that_the_engine_cannot_start_is_recreated() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    let before = ids(&it);
    it.docker.faults(|faults| faults.failing_starts = Some((1, "id already in use".to_owned())));
    it.hand(&UserAction::Stop { name: "shop-web-1".into() });
    it.until("another container runs", |_| !it.images().is_empty()).await;
    assert!(ids(&it).is_disjoint(&before), "{}", it.story());
    it.synced_with_tip().await;
    let events = it.store.newest_events(20, Some(&app())).unwrap();
    let removed = events.iter().find(|event| event.message.starts_with("remove shop-web-1")).unwrap();
    assert!(removed.message.ends_with("(the engine cannot start it again)"), "nobody made that: {removed:?}");
}

#[tokio::test(start_paused = true)]
async fn containers_that_never_start_are_recreated_after_pauses() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.failing_starts = Some((u32::MAX, "id already in use".to_owned())));
    it.hand(&UserAction::Stop { name: "shop-web-1".into() });
    minutes(10).await;
    let created =
        it.docker.transcript().iter().filter(|entry| entry.what.starts_with("create shop-web")).count();
    assert!((5..15).contains(&created), "{created}\n{}", it.story());
    it.docker.faults(|faults| faults.failing_starts = None);
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn commit_with_containers_that_never_start_is_taken_back() {
    // One that has its successor next to it, and one that makes way for it.
    for more in ["", ", volumes: ['data:/data']"] {
        let compose = |image: &str| {
            let volumes = if more.is_empty() { "" } else { "volumes: {data: {}}\n" };
            format!("services:\n  web: {{image: '{image}', restart: always{more}}}\n{volumes}")
        };
        let mut it = Simulation::prepared(&compose("web:1"), Clock::starting_at(NOON));
        it.settings.policy.on_failure = OnFailure::Rollback;
        it.settings.policy.progress_deadline = Some(Duration::from_mins(1));
        let it = it.begun();
        it.synced_with_tip().await;
        it.docker.faults(|faults| faults.failing_starts = Some((u32::MAX, "no such command".to_owned())));
        it.push(&compose("web:2")).await;
        let is_failed = |_: &Application| {
            let history = it.store.revisions(&app()).unwrap();
            history.iter().any(|revision| matches!(revision.outcome, Outcome::Failed { .. }))
        };
        it.until("it has failed", is_failed).await;
        let history = it.store.revisions(&app()).unwrap();
        let reason = history.iter().find_map(|revision| match &revision.outcome {
            Outcome::Failed { reason } => Some(reason.clone()),
            _ => None,
        });
        assert!(reason.is_some_and(|reason| reason.contains("no such command")), "{history:?}");
        it.docker.faults(|faults| faults.failing_starts = None);
        minutes(10).await;
        assert_eq!(it.images(), ["web:1"], "{}", it.story());
        let history = it.store.revisions(&app()).unwrap();
        assert_eq!(history[0].cause, Cause::AutomaticRollback, "{history:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn plan_shows_the_pause_of_its_steps() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.failing_starts = Some((u32::MAX, "no room for it".to_owned())));
    it.hand(&UserAction::Stop { name: "shop-web-1".into() });
    minutes(10).await;
    let plan = async || {
        let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
            panic!("no plan")
        };
        plan
    };
    let paused = plan().await;
    let pause = paused.waits.iter().find(|wait| wait.starts_with("BackOff shop-web-1: ")).unwrap();
    assert!(!paused.rounds.is_empty() && pause.contains("no room for it, attempt "), "{paused:?}");
    assert!(pause.ends_with(" (`driftless sync shop` ends the pause)"), "{pause}");
    it.docker.faults(|faults| faults.failing_starts = None);
    it.ask(RequestKind::Sync).await;
    it.synced_with_tip().await;
    minutes(1).await;
    assert!(plan().await.waits.is_empty(), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn pause_is_shown_only_of_objects_that_are_tried_again() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.failing_starts = Some((u32::MAX, "no room for it".to_owned())));
    it.hand(&UserAction::Stop { name: "shop-web-1".into() });
    let pauses = |application: &Application| {
        application.status.waits.iter().any(|wait| wait.reason == "BackOff" && wait.object == "shop-web-1")
    };
    it.until("it is tried again", pauses).await;
    it.ask(RequestKind::Suspend).await;
    minutes(10).await;
    let found = it.until("it is published", |_| true).await;
    assert!(!pauses(&found), "{:#?}", found.status);
}

#[tokio::test(start_paused = true)]
async fn reverted_files_are_copied_after_a_failed_copy() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    let compose = WEB.replace("restart", "volumes: ['./conf:/conf'], restart");
    let push = |text: &str| {
        let files = [("shop/compose.yaml", &*compose), ("shop/conf/a", text), ("shop/conf/b", text)];
        it.git.push_files("Ada", &files);
    };
    push("1");
    it.synced_with_tip().await;
    let folder = it.contents.app_folder(&app()).join("conf");
    fs::remove_file(folder.join("b")).unwrap();
    fs::create_dir_all(folder.join("b/own")).unwrap();
    push("2");
    let failed = it.until("a file cannot be copied", |application| attempt(application) == 1).await;
    let message = format!("{:?}", failed.status);
    assert!(message.contains("conf/b is in the way") && message.contains("move it"), "{message}");
    assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "2");
    fs::remove_dir_all(folder.join("b")).unwrap();
    push("1");
    it.synced_with_tip().await;
    for name in ["a", "b"] {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "1", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn step_has_its_event_before_the_round_ends() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.latency = Duration::from_secs(20));
    it.hand(&UserAction::Remove { name: "shop-web-1".into() });
    let created = || {
        let events = it.store.events(0, 1000, Some(&app())).unwrap().into_iter();
        events.filter(|event| event.reason == "Created" && event.object == "shop-web-1").count()
    };
    let created_again = async {
        while created() < 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(30), created_again).await.expect("it has an event");
    // The start, which follows in the same round, takes its time.
    assert!(it.images().is_empty(), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn unreachable_repository_has_an_event_at_begin_and_end() {
    let mut it = Simulation::of(WEB);
    it.synced_with_tip().await;
    it.git.down(true);
    minutes(10).await;
    // Not once more after a restart.
    it.crash();
    it.begin();
    minutes(10).await;
    it.git.down(false);
    minutes(10).await;
    let events = it.store.events(0, 1000, Some(&"repository/infra".into())).unwrap();
    let reasons: Vec<&str> = events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["FetchFailed", "Fetched"], "{events:?}");
    assert!(events[0].message.contains("connection refused"), "{events:?}");
    assert!(events[0].message.contains(" (since "), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn short_failures_of_a_repository_have_no_events() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    for _ in 0..5 {
        it.git.down(true);
        // Until a poll has failed.
        let failed = async {
            while it.handle().repositories().iter().all(|repository| repository.reason.is_empty()) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(10), failed).await.expect("a fetch fails");
        tokio::time::sleep(Duration::from_secs(5)).await;
        it.git.down(false);
        minutes(10).await;
    }
    let events = it.store.events(0, 1000, Some(&"repository/infra".into())).unwrap();
    assert!(events.is_empty(), "{events:?}");
}
