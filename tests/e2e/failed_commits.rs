//! Commits that fail: the way back by itself, and another try.

use driftless_model::{Application, Cause, ConditionStatus, Outcome, SyncStatus};
use serde_json::json;

use crate::harness::{Settings, Site, images};

/// A health check on this path decides whether a version is good.
fn web(version: &str, path: &str) -> String {
    format!(
        "services:
  web:
    image: {}
    restart: unless-stopped
    volumes: ['data-{version}:/data']
    healthcheck:
      test: [CMD, /server, --healthcheck, 'http://127.0.0.1:8080{path}']
      interval: 1s
      retries: 2
volumes: {{'data-{version}': {{}}}}
",
        images::server(version)
    )
}

fn site(test: &str, on_failure: &str) -> Site {
    let more = json!({ "onFailure": on_failure, "progressDeadline": "30s" });
    Site::with(test, Settings { more: Some(more), ..Settings::default() })
}

fn failed(application: &Application, reason: &str) -> bool {
    let mut conditions = application.status.conditions.iter();
    let is_it = |kind: &str, status, found: &str| {
        kind == "CommitFailed" && status == ConditionStatus::True && found == reason
    };
    conditions.any(|it| is_it(&it.kind, it.status, &it.reason))
}

#[tokio::test]
async fn failed_commit_is_rolled_back_once_and_survives_a_kill() {
    let site = site("undone", "rollback");
    let first = site.compose(&web("1.0", "/healthz"));
    let mut agent = site.agent().await;
    agent.settled(&first).await;
    let bad = site.compose(&web("2.0", "/nowhere"));
    agent.sync().await;
    let is_back = |it: &Application| {
        let outcome = it.status.operation.as_ref().and_then(|operation| operation.outcome.clone());
        failed(it, "RolledBack") && outcome == Some(Outcome::Succeeded)
    };
    let back = agent.until("it is back", is_back).await;
    assert_eq!(back.status.sync, SyncStatus::OutOfSync);
    assert!(back.status.message.contains(&bad[..12]), "{}", back.status.message);
    let event = agent.event("the rollback", |it| it.reason == "RolledBack").await;
    assert!(event.message.contains("kept: volume"), "{}", event.message);
    let web_1 = site.container("web");
    assert_eq!(web_1.variable("VERSION").as_deref(), Some("1.0"));
    let volumes = site.docker.run(&["volume", "ls", "--format", "{{.Name}}"]);
    assert!(volumes.contains(&format!("{}_data-2.0", site.app)), "{volumes}");

    // The agent remembers it: nothing is tried again by a poll, a sync or another life.
    agent.kill9();
    agent.launch();
    agent.ready().await;
    agent.sync().await;
    agent.until("it is still back", is_back).await;
    assert_eq!(site.container("web").id(), web_1.id());
    let history = agent.history().await;
    assert_eq!(history.iter().filter(|it| it.cause == Cause::AutomaticRollback).count(), 1, "{history:?}");
    let listed = agent.said(&format!("history {}", site.app));
    assert!(listed.contains("automatic rollback to #1"), "{listed}");

    // Another try ends in the same way, and a commit that mends it is applied.
    let said = agent.said(&format!("sync {} --retry", site.app));
    assert!(said.contains("sync asked for"), "{said}");
    agent.event("it is tried again", |it| it.reason == "RetryRequested").await;
    agent.until("it is back again", is_back).await;
    let good = site.compose(&web("3.0", "/healthz"));
    let found = agent.deployed(&good).await;
    assert!(!failed(&found, "RolledBack"));
    assert_eq!(site.container("web").variable("VERSION").as_deref(), Some("3.0"));
    let (code, _, error) = agent.asks(&format!("sync {} --retry", site.app));
    assert!(code != 0 && error.contains("no failed commit"), "{code}: {error}");
}

/// The engine refuses some settings only when it creates a container.
#[tokio::test]
async fn definition_that_the_engine_refuses_stops_nothing() {
    let site = site("refused", "pause");
    let good = web("1.0", "/healthz");
    let first = site.compose(&good);
    let agent = site.agent().await;
    agent.settled(&first).await;
    let web = site.container("web");
    let running = web.id();
    let logging = "    logging: {driver: json-file, options: {max-colour: red}}\n    healthcheck:\n";
    site.compose(&good.replace("    healthcheck:\n", logging));
    agent.sync().await;
    let found = agent.until("the commit has failed", |it| failed(it, "RolloutsPaused")).await;
    assert_eq!(site.container("web").id(), running, "{}", found.status.message);
    // Agents of other tests make such containers on this engine, too.
    let ours = web.label("driftless.agent");
    assert_ne!(ours, "");
    let trials = format!("label=driftless.trial={ours}");
    let left = site.docker.run(&["ps", "--all", "--quiet", "--filter", &trials]);
    assert_eq!(left.trim(), "");
}

#[tokio::test]
async fn health_lost_soon_after_a_commit_rolls_it_back() {
    let site = site("lost-health", "rollback");
    let first = site.compose(&web("1.0", "/healthz"));
    let agent = site.agent().await;
    agent.settled(&first).await;
    let second = site.compose(&web("2.0", "/healthz"));
    agent.deployed(&second).await;
    site.docker.run(&["exec", &site.name("web"), "/server", "--unhealthy"]);
    agent.until("it is back", |it| failed(it, "RolledBack")).await;
    site.until("version 1.0 runs alone", |docker| {
        let found = docker.containers(&site.app);
        let [only] = found.as_slice() else { return None };
        (only.variable("VERSION").as_deref() == Some("1.0")).then_some(())
    })
    .await;
}
