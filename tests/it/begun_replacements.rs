//! A replacement that has stopped its container is brought to its end before the agent stops changing anything.

use std::time::Duration;

use driftless_agent::RequestKind;
use driftless_model::HealthStatus;
use tokio::time::{sleep, timeout};

use crate::simulation::Simulation;

const COMPOSE: &str = "
services:
  web:
    image: web:1
    restart: always
    ports: ['8080:80']
";

/// An application whose container is stopped for its successor, and is not removed yet.
async fn in_the_middle() -> Simulation {
    let it = Simulation::of(COMPOSE);
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.latency = Duration::from_secs(1));
    it.push(&COMPOSE.replace("web:1", "web:2")).await;
    let is_down = async {
        while !it.images().is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_mins(2), is_down).await.unwrap();
    it
}

#[tokio::test(start_paused = true)]
async fn suspension_comes_after_a_begun_replacement() {
    let it = in_the_middle().await;
    it.ask(RequestKind::Suspend).await;
    it.until("it is suspended", |it| it.status.health == HealthStatus::Suspended).await;
    assert_eq!(it.images(), ["web:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn agent_that_ends_completes_a_begun_replacement() {
    let mut it = in_the_middle().await;
    it.end().await;
    assert_eq!(it.images(), ["web:2"], "{}", it.story());
}
