//! The last lines of containers that exited by themselves.

use driftless_docker::{Docker, EngineEvent};

use crate::fake_engine::{FakeEngine, instance};

#[tokio::test(start_paused = true)]
async fn last_lines_of_a_crashed_container_are_read_once() {
    let fake = FakeEngine::new();
    let id = fake.run("web", "always");
    let engine = fake.connect();
    let mut events = engine.events();
    while events.recv().await.unwrap() != EngineEvent::Connected {}
    assert_eq!(instance(&engine, &id).await.last_output, "");
    fake.print(&id, "starting\nno such table\n");
    fake.end(&id, "restarting", 3);
    fake.happen(id.as_str(), "die");
    while !matches!(events.recv().await.unwrap(), EngineEvent::ObjectChanged { .. }) {}
    assert_eq!(instance(&engine, &id).await.last_output, "starting\nno such table");
    // Another event of the same run changes nothing.
    fake.happen(id.as_str(), "rename");
    assert_eq!(instance(&engine, &id).await.last_output, "starting\nno such table");
    assert_eq!(fake.calls("/logs").len(), 1, "{:?}", fake.calls("/logs"));
}
