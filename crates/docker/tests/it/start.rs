//! Starts that the engine refuses.

use driftless_docker::{Docker, EngineEvent};
use driftless_model::AppName;
use driftless_plan::{Action, ContainerRef};

use crate::fake_engine::{APP, FakeEngine, instance};

#[tokio::test(start_paused = true)]
async fn container_with_a_leaked_endpoint_starts_and_keeps_its_name() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "no");
    fake.end(&id, "exited", 128);
    fake.fail_start("web", "endpoint with name web already exists in network shop_default");
    let engine = fake.connect();
    let mut events = engine.events();
    while events.recv().await.unwrap() != EngineEvent::Connected {}
    let start = Action::StartInstance { container: ContainerRef::Id(id.clone(), "web".to_owned()) };
    engine.perform(&AppName::from(APP), &start, &|_| {}).await.unwrap();
    fake.happen(id.as_str(), "start");
    assert!(instance(&engine, &id).await.is_running());
    assert_eq!(fake.name(&id), "/web");
}
