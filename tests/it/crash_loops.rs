//! Containers that keep exiting by themselves: the status says why, and nobody is blamed.

use std::time::Duration;

use driftless_clock::Clock;
use driftless_model::{Application, ConditionStatus, EventKind};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

const COMPOSE: &str = "
services:
  web:
    image: web:1
    restart: always
    environment: {DB_PASSWORD: geheim4711}
";

#[tokio::test(start_paused = true)]
async fn crash_loop_is_shown_with_code_output_and_next_try() {
    let it = Simulation::of(COMPOSE);
    it.docker.faults(|faults| {
        faults.exits.insert("web:1".into(), (Duration::from_secs(1), 3));
        faults.outputs.insert("web:1".into(), "starting\ncannot log in with geheim4711".into());
    });
    let is_looping = |it: &Application| it.status.waits.iter().any(|wait| wait.reason == "CrashLoopBackOff");
    let found = it.until("it is a crash loop", is_looping).await;
    for text in [&found.status.waits[0].message, &found.status.message] {
        assert!(
            text.contains("exited with code 3: last output `starting | cannot log in with ••••"),
            "{text}"
        );
    }
    assert!(found.status.waits[0].message.contains("next try"));
    // The sentence about the failed commit is kept, so it names no time.
    assert!(!found.status.message.contains("next try"), "{}", found.status.message);
    minutes(12).await;
    let found = it.until("it is a crash loop", is_looping).await;
    let is_fight = |it: &Application| {
        let conditions = it.status.conditions.iter();
        conditions.filter(|it| it.kind == "RepeatedDrift").any(|it| it.status == ConditionStatus::True)
    };
    assert!(!is_fight(&found) && found.status.drift.is_empty(), "{:#?}", found.status);
    assert!(!serde_json::to_string(&*found).unwrap().contains("geheim4711"));
}

/// The messages of the warnings with this reason.
fn warnings(it: &Simulation, reason: &str) -> Vec<String> {
    let events = it.store.events(0, 1000, Some(&app())).unwrap().into_iter();
    let found = events.filter(|event| event.kind == EventKind::Warning && event.reason == reason);
    found.map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn crash_loop_of_an_applied_commit_has_one_event() {
    let mut it = Simulation::prepared(COMPOSE, Clock::starting_at(NOON));
    let ends = |it: &Simulation, after| {
        it.docker.faults(|faults| {
            faults.exits.insert("web:1".into(), (after, 3));
            faults.outputs.insert("web:1".into(), "cannot log in with geheim4711".into());
        });
    };
    ends(&it, Duration::from_mins(20));
    it.begin();
    it.synced_with_tip().await;
    ends(&it, Duration::from_secs(1));
    minutes(22).await;
    let found = warnings(&it, "CrashLoopBackOff");
    assert_eq!(found.len(), 1, "{found:?}\n{}", it.story());
    assert!(found[0].starts_with("web.1 exited with code 3"), "{found:?}");
    assert!(found[0].contains("last output `cannot log in with ••••"), "{found:?}");
    // Not after a restart of the agent either.
    it.crash();
    it.begin();
    minutes(20).await;
    assert_eq!(warnings(&it, "CrashLoopBackOff").len(), 1, "{}", it.story());
    // One that comes after the end of this one is another one.
    ends(&it, Duration::from_mins(20));
    minutes(40).await;
    ends(&it, Duration::from_secs(1));
    minutes(20).await;
    assert_eq!(warnings(&it, "CrashLoopBackOff").len(), 2, "{}", it.story());
}

/// Also while the commit is on its way, and not once more after a restart of the agent.
#[tokio::test(start_paused = true)]
async fn failing_health_check_and_obstacle_have_one_event_each() {
    let compose = |image: &str, more: &str| {
        format!("services: {{web: {{image: '{image}', healthcheck: {{test: [CMD, check]}}{more}}}}}\n")
    };
    let mut it = Simulation::of(&compose("web:1", ""));
    it.synced_with_tip().await;
    it.docker.faults(|faults| _ = faults.unhealthy.insert("web:2".to_owned()));
    it.push(&compose("web:2", "")).await;
    minutes(5).await;
    it.crash();
    it.begin();
    minutes(5).await;
    let found = warnings(&it, "Unhealthy");
    assert_eq!(found.len(), 1, "{found:?}\n{}", it.story());
    assert!(found[0].contains(" is unhealthy: its health check fails"), "{found:?}");
    it.push(&compose("other:1", ", pull_policy: never")).await;
    minutes(5).await;
    it.crash();
    it.begin();
    minutes(5).await;
    let found = warnings(&it, "Blocked");
    assert_eq!(found.len(), 1, "{found:?}\n{}", it.story());
    assert!(found[0].starts_with("web needs other:1 on this host"), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn container_that_fails_for_good_later_has_one_event() {
    let compose = "services: {web: {image: 'web:1', restart: 'on-failure:1'}}\n";
    let it = Simulation::prepared(compose, Clock::starting_at(NOON));
    it.docker.faults(|faults| _ = faults.exits.insert("web:1".into(), (Duration::from_mins(20), 3)));
    let it = it.begun();
    it.synced_with_tip().await;
    it.docker.faults(|faults| _ = faults.exits.insert("web:1".into(), (Duration::from_secs(5), 3)));
    minutes(60).await;
    let found = warnings(&it, "Failed");
    assert_eq!(found.len(), 1, "{found:?}\n{}", it.story());
    assert!(found[0].starts_with("web.1 failed with code 3 and is not started again"), "{found:?}");
}
