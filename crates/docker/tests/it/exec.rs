//! Commands in containers while the engine does not answer: that says nothing about the container.

use std::time::Duration;

use driftless_docker::{Docker, Engine, EngineEvent, Error};
use driftless_model::ContainerId;
use tokio::time::{sleep, timeout};

use crate::fake_engine::FakeEngine;

/// The limit of a probe that takes longer than the engine has to agree on a version.
const LIMIT: Duration = Duration::from_secs(30);

/// A client of an engine with a container, once its event stream is open.
async fn connected() -> (FakeEngine, Engine, ContainerId) {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    let mut events = engine.events();
    while events.recv().await.unwrap() != EngineEvent::Connected {}
    (fake, engine, id)
}

async fn failure(engine: &Engine, id: &ContainerId) -> Error {
    engine.exec(id, &["true".to_owned()], LIMIT).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn hanging_engine_has_no_result_of_a_command() {
    let (fake, engine, id) = connected().await;
    assert!(!failure(&engine, &id).await.is_unanswered(), "the engine has answered that it cannot do that");
    fake.hang();
    let error = failure(&engine, &id).await;
    assert!(error.is_unanswered(), "{error:?}");
    // The version of the API was forgotten meanwhile, and to agree on one takes at most 10 seconds.
    let error = failure(&engine, &id).await;
    assert!(error.is_unanswered(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn engine_behind_a_proxy_has_no_result_while_it_is_away() {
    let (fake, engine, id) = connected().await;
    fake.leave();
    let error = failure(&engine, &id).await;
    assert!(error.is_unanswered(), "{error:?}");
    sleep(Duration::from_mins(1)).await;
    let error = failure(&engine, &id).await;
    assert!(error.is_unanswered(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn hanging_command_of_a_probe_is_run_three_times_at_most() {
    let (fake, engine, id) = connected().await;
    fake.hang_commands();
    let command = ["stat".to_owned()];
    // The time limit of a probe ends its call.
    let second = Duration::from_secs(1);
    for _ in 0..3 {
        timeout(second, engine.probe(&id, &command, LIMIT)).await.unwrap_err();
    }
    for _ in 0..3 {
        let error = engine.probe(&id, &command, LIMIT).await.unwrap_err();
        assert!(!error.is_unanswered() && error.to_string().contains("have not ended"), "{error:?}");
    }
    assert_eq!(fake.calls("/start").len(), 3);
    // Another command, and the same one after its end.
    let other = ["other".to_owned()];
    engine.probe(&id, &other, second).await.unwrap_err();
    fake.end_commands();
    engine.probe(&id, &command, LIMIT).await.unwrap_err();
    assert_eq!(fake.calls("/start").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn probe_is_run_despite_hanging_runs_with_a_shorter_limit() {
    let (fake, engine, id) = connected().await;
    fake.hang_commands();
    let command = ["pg_isready".to_owned()];
    for _ in 0..4 {
        engine.probe(&id, &command, Duration::from_secs(1)).await.unwrap_err();
    }
    let before = fake.calls("/start").len();
    engine.probe(&id, &command, LIMIT).await.unwrap_err();
    assert_eq!(fake.calls("/start").len(), before + 1);
}
