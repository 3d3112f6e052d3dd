//! Rollouts on a real engine: a canary, an application that waits for another one, and a Compose service with a schedule.

use driftless_model::{Application, SyncStatus};
use serde_json::json;

use crate::harness::{Container, Settings, Site, images, wait_until};

fn web(version: &str) -> String {
    format!(
        "services:
  web:
    image: {}
    restart: unless-stopped
    stop_grace_period: 0s
    deploy: {{replicas: 3, update_config: {{order: start-first}}}}
    x-driftless: {{canary: [1, 2 for 1s]}}
",
        images::server(version)
    )
}

fn versions(site: &Site) -> Vec<String> {
    let running = site.of("web").into_iter().filter(|container| container.state() == "running");
    let mut versions: Vec<String> = running.filter_map(|container| container.variable("VERSION")).collect();
    versions.sort();
    versions
}

fn pauses(application: &Application) -> bool {
    application.status.waits.iter().any(|wait| wait.reason == "Canary")
}

#[tokio::test]
async fn canary_waits_for_promote_and_abort_goes_back() {
    let site = Site::new("canary");
    let mut agent = site.running(&web("1.0")).await;
    let second = site.compose(&web("2.0"));
    agent.sync().await;
    agent.until("the canary pauses", pauses).await;
    let canary = || (versions(&site) == ["1.0", "1.0", "2.0"]).then_some(());
    wait_until("one of three is new", canary).await;
    let shown = agent.said(&format!("status {}", site.app));
    assert!(shown.contains("has a canary: 1 of 3 instances (step 1 of 2)"), "{shown}");
    // It is remembered, and what is removed comes back as what it was.
    agent.kill9();
    let old = site.of("web").into_iter().find(|it| it.variable("VERSION").as_deref() == Some("1.0")).unwrap();
    site.docker.run(&["rm", "-f", &old.id()]);
    agent.launch();
    agent.ready().await;
    wait_until("the old one is back", canary).await;

    agent.said(&format!("promote {} --abort", site.app));
    wait_until("all are old", || (versions(&site) == ["1.0"; 3]).then_some(())).await;
    agent.event("the abort", |it| it.reason == "CanaryAborted").await;
    agent.said(&format!("sync {} --retry", site.app));
    agent.until("the canary pauses again", pauses).await;
    agent.act_on_page("promote", "The canary was promoted.").await;
    agent.settled(&second).await;
    assert_eq!(versions(&site), ["2.0"; 3]);
}

#[tokio::test]
async fn commit_waits_for_another_application() {
    let mut site = Site::new("waits");
    let db = site.also("db");
    let depends = json!([{ "app": db, "condition": "ready" }]);
    site.settings =
        Settings { poll: "1s", more: Some(json!({ "dependsOn": depends })), ..Settings::default() };
    let service = |version: &str, more: &str| {
        let image = images::server(version);
        format!(
            "services:\n  web:\n    image: {image}\n    restart: unless-stopped\n    stop_grace_period: 0s\n{more}"
        )
    };
    // Nothing of the shop starts before there is a database.
    let (shop, database) = (site.path("compose.yaml"), format!("sites/{db}/compose.yaml"));
    site.repository.commit(&[(&shop, &service("1.0", ""))]);
    let agent = site.agent().await;
    let waits = |it: &Application, why: &str| it.status.conditions.iter().any(|it| it.reason == why);
    agent.until("the shop waits", |it: &Application| waits(it, "DependencyUnknown")).await;
    assert!(site.of("web").is_empty());
    let first = site.repository.commit(&[(&database, &service("1.0", ""))]);
    agent.settled(&first).await;
    // Both in one commit: the database cannot be applied, so the shop stays.
    let missing = "    networks: [gone]\nnetworks: {gone: {external: true}}\n";
    let second =
        site.repository.commit(&[(&shop, &service("2.0", "")), (&database, &service("2.0", missing))]);
    let waits_for_it = |it: &Application| {
        waits(it, "DependencyNotMet")
            && it.status.sync == SyncStatus::OutOfSync
            && it.status.message.contains(&second[..12])
    };
    agent.until("the shop waits again", waits_for_it).await;
    assert_eq!(site.container("web").variable("VERSION").as_deref(), Some("1.0"));
    let third = site.repository.commit(&[(&database, &service("2.0", ""))]);
    agent.settled(&third).await;
    assert_eq!(site.container("web").variable("VERSION").as_deref(), Some("2.0"));
}

#[tokio::test]
async fn service_with_a_schedule_runs_at_its_time() {
    let site = Site::new("schedule");
    let compose = format!(
        "services:
  report:
    image: {}
    entrypoint: [/bin/busybox, echo, done]
    restart: 'no'
    x-driftless: {{schedule: {{cron: '* * * * *', concurrency: Forbid}}}}
",
        images::placeholder()
    );
    let commit = site.compose(&compose);
    let agent = site.agent().await;
    agent.settled(&commit).await;
    let is_run = |it: &Container| it.label("driftless.workload").starts_with("report-");
    let run = site
        .until("the minute turns", |docker| {
            docker.containers(&site.app).into_iter().find(|it| is_run(it) && it.state() == "exited")
        })
        .await;
    assert_eq!(run.number("/State/ExitCode"), 0);
    site.logged(&run, "done\n").await;
    let rows = agent.said("get cj");
    assert!(rows.contains("report") && rows.contains("* * * * *"), "{rows}");
}
