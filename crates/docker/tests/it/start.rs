//! Starts that the engine refuses, and starts that are not asked for while it shuts down.

use std::time::Duration;

use driftless_docker::{Docker, Engine, EngineEvent, Error};
use driftless_model::{AppName, ContainerId};
use driftless_plan::{Action, ContainerRef};
use futures_util::future::join_all;
use tokio::{sync::broadcast::Receiver, time::timeout};

use crate::fake_engine::{APP, FakeEngine, instance};

async fn await_connected(events: &mut Receiver<EngineEvent>) {
    while events.recv().await.unwrap() != EngineEvent::Connected {}
}

async fn start(engine: &Engine, id: &ContainerId) -> Result<(), Error> {
    let start = Action::StartInstance { container: ContainerRef::Id(id.clone(), "web".to_owned()) };
    engine.perform(&AppName::from(APP), &start, &|_| {}).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn container_with_a_leaked_endpoint_starts_and_keeps_its_name() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    fake.end(&id, "exited", 128);
    fake.fail_start("web", "endpoint with name web already exists in network shop_default");
    let engine = fake.connect();
    await_connected(&mut engine.events()).await;
    start(&engine, &id).await.unwrap();
    fake.happen(id.as_str(), "start");
    assert!(instance(&engine, &id).await.is_running());
    assert_eq!(fake.name(&id), "/web");
}

#[tokio::test(start_paused = true)]
async fn engine_without_new_connections_starts_nothing() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    fake.end(&id, "exited", 143);
    let engine = fake.connect();
    let mut events = engine.events();
    await_connected(&mut events).await;
    fake.hold_back_connections(true);
    let error = start(&engine, &id).await.unwrap_err();
    let Error::Transient { source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("takes no new connections"), "{source}");
    assert!(fake.calls("/start").is_empty());
    // Sooner than by the next connection that the event stream asks for.
    let reported =
        async { while !matches!(events.recv().await.unwrap(), EngineEvent::Disconnected { .. }) {} };
    timeout(Duration::from_secs(7), reported).await.unwrap();
    fake.hold_back_connections(false);
    await_connected(&mut events).await;
    start(&engine, &id).await.unwrap();
    assert_eq!(fake.calls("/start").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn starts_at_the_same_time_share_one_new_connection() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    fake.end(&id, "exited", 143);
    let engine = fake.connect();
    await_connected(&mut engine.events()).await;
    let before = fake.calls("/_ping").len();
    for started in join_all((0..20).map(|_| start(&engine, &id))).await {
        started.unwrap();
    }
    assert_eq!(fake.calls("/start").len(), 20);
    assert_eq!(fake.calls("/_ping").len(), before + 1);
}
