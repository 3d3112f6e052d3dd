//! An engine that hangs: it keeps its connections open and answers nothing. And one that shuts down: it answers open
//! connections and takes no new ones.

use std::time::Duration;

use driftless_agent::{Handle, RequestKind, Rollback};
use driftless_docker::UserAction;
use driftless_model::{Application, Instance, SyncStatus, Until};
use tokio::time::{sleep, timeout};

use crate::simulation::{Simulation, app};

const COMPOSE: &str = "
services:
  web:
    image: web:1
    restart: always
";

fn is_unknown(it: &Application) -> bool {
    it.status.sync == SyncStatus::Unknown
}

/// Waits until the agent says that the engine does not answer.
async fn until_not_ready(handle: &Handle) {
    while handle.readiness().docker {
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_engine_at_rest_makes_applications_unknown() {
    let mut it = Simulation::of(COMPOSE);
    it.synced_with_tip().await;
    it.docker.hang();
    let found = timeout(Duration::from_secs(3), it.until("it is unknown", is_unknown)).await.unwrap();
    assert!(found.status.message.contains("no answer"), "{}", found.status.message);
    until_not_ready(&it.handle()).await;
    timeout(Duration::from_secs(1), it.end()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pin_and_suspension_are_shown_while_the_engine_hangs() {
    let it = Simulation::of(COMPOSE);
    let first = it.synced_with_tip().await;
    it.push(&COMPOSE.replace("web:1", "web:2")).await;
    it.synced_with_tip().await;
    let back = Rollback { to: None, reason: String::new(), until: Until::Manual };
    it.ask(RequestKind::Rollback(back)).await;
    it.ask(RequestKind::Suspend).await;
    let is_held = |it: &Application| it.status.pin.is_some() && it.spec.policy.suspended;
    let before = it.until("it is pinned and suspended", is_held).await;
    let id = |application: &Application| application.spec.commit.as_ref().map(|commit| commit.id.clone());
    assert_eq!(id(&before), id(&first));
    it.docker.hang();
    let found = it.until("it is unknown", is_unknown).await;
    assert_eq!(found.spec, before.spec);
}

#[tokio::test(start_paused = true)]
async fn hanging_engine_during_steps_makes_applications_unknown() {
    let it = Simulation::of(COMPOSE);
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.latency = Duration::from_secs(5));
    it.push(&COMPOSE.replace("web:1", "web:2")).await;
    // Long enough for a step to be under way.
    sleep(Duration::from_secs(12)).await;
    it.docker.hang();
    let found = timeout(Duration::from_secs(3), it.until("it is unknown", is_unknown)).await.unwrap();
    assert!(found.status.message.contains("no answer"), "{}", found.status.message);
}

/// The container has to go first, as both would write to the data, so the successor is tried before.
#[tokio::test(start_paused = true)]
async fn agent_ends_though_a_trial_of_a_definition_hangs() {
    let version = |image: &str| {
        format!(
            "services:\n  db:\n    image: {image}\n    restart: always\n    volumes: ['data:/data']\nvolumes: {{data: {{}}}}\n"
        )
    };
    let mut it = Simulation::of(&version("db:1"));
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.trial = Duration::from_hours(1));
    it.push(&version("db:2")).await;
    sleep(Duration::from_secs(10)).await;
    assert!(it.docker.trials() > 0, "{}", it.story());
    timeout(Duration::from_secs(1), it.end()).await.unwrap();
    assert_eq!(it.images(), ["db:1"], "{}", it.story());
    it.docker.faults(|faults| faults.trial = Duration::ZERO);
    it.begin();
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn applications_are_listed_though_the_engine_hangs_at_the_start() {
    let mut it = Simulation::of(COMPOSE);
    it.synced_with_tip().await;
    it.end().await;
    it.docker.hang();
    it.begin();
    let found = timeout(Duration::from_secs(3), it.until("it is listed", is_unknown)).await.unwrap();
    assert!(found.status.message.contains("has not answered yet"), "{}", found.status.message);
    timeout(Duration::from_secs(1), it.end()).await.unwrap();
    it.docker.reconnect();
    it.begin();
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_started_on_an_engine_that_shuts_down() {
    let it = Simulation::of(COMPOSE);
    it.synced_with_tip().await;
    it.docker.refuse_connections();
    until_not_ready(&it.handle()).await;
    let runs = || it.docker.observed(&app()).instances.values().any(Instance::is_running);
    it.docker.user_action(&app(), &UserAction::Stop { name: "shop-web-1".to_owned() }).unwrap();
    let found = timeout(Duration::from_secs(5), it.until("it is unknown", is_unknown)).await.unwrap();
    assert!(found.status.message.contains("connection refused"), "{}", found.status.message);
    sleep(Duration::from_mins(1)).await;
    assert!(!runs(), "{}", it.story());
    it.docker.reconnect();
    it.synced_with_tip().await;
    assert!(runs(), "{}", it.story());
}
