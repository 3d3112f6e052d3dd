//! Sync windows on a real engine.

use driftless_model::{Application, SyncStatus};
use serde_json::json;

use crate::harness::{Settings, Site, images};

fn web(version: &str) -> String {
    format!("services:\n  web:\n    image: {}\n    restart: unless-stopped\n", images::server(version))
}

#[tokio::test]
async fn closed_window_holds_a_commit_back_until_a_manual_sync() {
    // It is open at every minute, so commits are never applied by themselves.
    let always = json!([{ "kind": "deny", "schedule": "* * * * *", "duration": "1h", "manualSync": true }]);
    let more = json!({ "syncWindows": always });
    let site = Site::with("window", Settings { poll: "1s", more: Some(more), ..Settings::default() });
    let first = site.compose(&web("1.0"));
    let mut agent = site.agent().await;
    let waits = |it: &Application| it.status.conditions.iter().any(|it| it.reason == "WindowClosed");
    agent.until("the first commit waits", waits).await;
    agent.sync().await;
    agent.settled(&first).await;
    let second = site.compose(&web("2.0"));
    let held = agent.until("the second one waits", waits).await;
    assert_eq!(held.status.sync, SyncStatus::OutOfSync);
    assert!(held.status.message.contains(&second[..12]), "{}", held.status.message);

    // Drift is undone all the same, also by an agent that was killed.
    agent.kill9();
    let before = site.container("web").id();
    site.docker.run(&["rm", "-f", &site.name("web")]);
    agent.launch();
    agent.ready().await;
    site.replaced("web", &before).await;
    assert_eq!(site.container("web").variable("VERSION").as_deref(), Some("1.0"));
    let shown = agent.said(&format!("status {}", site.app));
    assert!(shown.contains("sync window"), "{shown}");

    agent.said(&format!("sync {}", site.app));
    agent.settled(&second).await;
    assert_eq!(site.container("web").variable("VERSION").as_deref(), Some("2.0"));
}
