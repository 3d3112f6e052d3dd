//! Observing: which calls it takes.

use std::{collections::BTreeSet, time::Duration};

use driftless_docker::{Docker, EngineEvent, ObserveScope};
use driftless_model::{AppName, ContainerId};
use tokio::time::{advance, sleep};

use crate::fake_engine::{APP, FakeEngine};

async fn observed(engine: &impl Docker) -> BTreeSet<ContainerId> {
    let observed = engine.observe(&AppName::from(APP), &ObserveScope::default()).await.unwrap();
    observed.instances.into_keys().collect()
}

async fn await_connected(engine: &impl Docker) {
    let mut events = engine.events();
    while events.recv().await.unwrap() != EngineEvent::Connected {}
}

#[tokio::test(start_paused = true)]
async fn host_without_changes_is_not_listed_again() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    await_connected(&engine).await;
    assert_eq!(observed(&engine).await, [id.clone()].into());
    let before = engine.calls();
    for _ in 0..100 {
        assert_eq!(observed(&engine).await, [id.clone()].into());
    }
    assert_eq!(engine.calls(), before);
    // As long as a full pass takes to come.
    advance(Duration::from_mins(5)).await;
    fake.remove(&id);
    assert!(observed(&engine).await.is_empty(), "the event was lost, and everything was listed");
}

#[tokio::test(start_paused = true)]
async fn changed_container_is_listed_alone() {
    let fake = FakeEngine::new();
    let (web, worker) = (fake.run("web", "no"), fake.run("worker", "no"));
    let engine = fake.connect();
    await_connected(&engine).await;
    assert_eq!(observed(&engine).await.len(), 2);
    fake.remove(&web);
    fake.happen(web.as_str(), "destroy");
    let database = fake.run("database", "no");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(observed(&engine).await, [worker.clone(), database.clone()].into());
    let lists = fake.calls("/containers/json");
    assert_eq!(lists.len(), 2, "{lists:?}");
    let names = |id: &ContainerId| lists[1].contains(id.as_str());
    assert!(names(&web) && names(&database) && !names(&worker), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn container_that_exits_is_listed_until_it_has_settled() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    let engine = fake.connect();
    await_connected(&engine).await;
    observed(&engine).await;
    // The engine reports the exit before its list shows it.
    fake.happen(id.as_str(), "die");
    sleep(Duration::from_millis(10)).await;
    observed(&engine).await;
    fake.end(&id, "exited", 1);
    let instance = crate::fake_engine::instance(&engine, &id).await;
    assert!(!instance.is_running(), "{:?}", instance.state);
    sleep(Duration::from_secs(10)).await;
    observed(&engine).await;
    let lists = fake.calls("/containers/json").len();
    observed(&engine).await;
    assert_eq!(fake.calls("/containers/json").len(), lists);
}
