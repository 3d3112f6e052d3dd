//! Claims of agent ids by two processes on one engine.

use std::time::Duration;

use driftless_docker::{Claim, Docker, Engine, EngineEvent};
use driftless_model::AgentId;
use tokio::{
    sync::broadcast::Receiver,
    time::{sleep, timeout},
};

use crate::fake_engine::{AGENT, FakeEngine};

const PATIENCE: Duration = Duration::from_secs(1);

async fn claim(engine: &Engine) -> Claim {
    engine.claim(&AgentId::from(AGENT), PATIENCE).await.unwrap()
}

/// A client of the engine, once its event stream is open.
async fn connected(fake: &FakeEngine) -> (Engine, Receiver<EngineEvent>) {
    let engine = fake.connect();
    let mut events = engine.events();
    while events.recv().await.unwrap() != EngineEvent::Connected {}
    (engine, events)
}

/// Whether the client has to claim its id again.
async fn loses_its_claim(events: &mut Receiver<EngineEvent>) -> bool {
    let lost = async { while events.recv().await.unwrap() != EngineEvent::ClaimLost {} };
    timeout(Duration::from_mins(10), lost).await.is_ok()
}

/// Two processes that hold the same id, because the first one got no events when the second one claimed it.
async fn twins(fake: &FakeEngine) -> [(Engine, Receiver<EngineEvent>); 2] {
    let (first, first_events) = connected(fake).await;
    assert_eq!(claim(&first).await, Claim::Granted);
    sleep(Duration::from_secs(10)).await;
    fake.mute();
    let (second, second_events) = connected(fake).await;
    assert_eq!(claim(&second).await, Claim::Granted);
    [(first, first_events), (second, second_events)]
}

#[tokio::test(start_paused = true)]
async fn first_process_keeps_an_id_that_two_hold() {
    let fake = FakeEngine::new();
    let [(first, mut of_first), (second, mut of_second)] = twins(&fake).await;
    assert!(loses_its_claim(&mut of_first).await);
    let answers = tokio::join!(claim(&first), loses_its_claim(&mut of_second));
    assert_eq!(answers, (Claim::Granted, true));
    assert_eq!(claim(&second).await, Claim::Refused);
    // The first one holds it from now on.
    assert_eq!(claim(&second).await, Claim::Refused);
}

#[tokio::test(start_paused = true)]
async fn one_of_two_that_claim_again_at_once_keeps_the_id() {
    let fake = FakeEngine::new();
    let [(first, mut of_first), (second, _events)] = twins(&fake).await;
    assert!(loses_its_claim(&mut of_first).await);
    let answers = tokio::join!(claim(&first), claim(&second));
    assert_eq!(answers, (Claim::Granted, Claim::Refused));
}

#[tokio::test(start_paused = true)]
async fn claim_is_refused_while_the_engine_is_asked_for_a_shutdown() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let (first, _of_first) = connected(&fake).await;
    assert_eq!(claim(&first).await, Claim::Granted);
    let (second, _of_second) = connected(&fake).await;
    // The answer to a new connection takes 5 seconds.
    fake.hold_back_connections(true);
    fake.happen(id.as_str(), "die");
    sleep(Duration::from_millis(100)).await;
    assert_eq!(claim(&second).await, Claim::Refused);
}

#[tokio::test(start_paused = true)]
async fn id_is_claimed_once_while_the_engine_answers() {
    let fake = FakeEngine::new();
    let (engine, mut events) = connected(&fake).await;
    assert_eq!(claim(&engine).await, Claim::Granted);
    let (other, _events) = connected(&fake).await;
    assert_eq!(claim(&other).await, Claim::Refused);
    assert!(!loses_its_claim(&mut events).await, "it has refused the other one");
}
