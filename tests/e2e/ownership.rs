//! Agents whose state was lost, and several agents on one engine: nothing is started twice.

use std::{fs, time::Duration};

use driftless_model::Application;

use crate::harness::{Agent, Settings, Site, images};

fn compose(image: &str, version: usize) -> String {
    format!(
        "services:
  web:
    image: {image}
    environment: {{GREETING: \"{version}\"}}
    deploy: {{replicas: 2}}
  db:
    image: {image}
    environment: {{GREETING: \"{version}\"}}
    volumes: ['data:/data']
volumes: {{data: }}
"
    )
}

/// Each container with its start.
fn running(site: &Site) -> Vec<(String, String)> {
    let containers = site.docker.containers(&site.app);
    containers.iter().map(|it| (it.id(), it.started())).collect()
}

fn has(kind: &'static str) -> impl Fn(&Application) -> bool {
    move |it| it.status.conditions.iter().any(|condition| condition.kind == kind)
}

#[tokio::test]
async fn lost_state_directory_starts_no_second_copy() {
    let site = Site::new("taken");
    let image = images::server("1.0");
    let mut agent = site.running(&compose(&image, 1)).await;
    let before = running(&site);
    assert_eq!(before.len(), 3);
    agent.kill9();
    fs::remove_dir_all(agent.state_dir()).unwrap();
    agent.launch();
    agent.until("the containers are taken over", has("StateLost")).await;
    assert_eq!(running(&site), before, "nothing was restarted, nothing runs twice");

    let removed = site.name("db");
    site.docker.run(&["rm", "-f", &removed]);
    agent.until("it is repaired", |_| site.docker.running(&site.app).len() == 3).await;
    let commit = site.compose(&compose(&image, 2));
    agent.sync().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(site.of("web").iter().all(|it| it.variable("GREETING").as_deref() == Some("1")));
    assert!(agent.said("recover").contains("new commits are applied again"));
    agent.deployed(&commit).await;
    assert_eq!(site.docker.containers(&site.app).len(), 3);
    // The former id is known in the next life, too.
    agent.restart().await;
    agent.settled(&commit).await;
    assert_eq!(site.docker.containers(&site.app).len(), 3);
}

#[tokio::test]
async fn second_agent_on_one_engine_is_refused() {
    let site = Site::new("second");
    let image = images::server("1.0");
    let mut first = site.running(&compose(&image, 1)).await;
    let before = running(&site);
    let directory = tempfile::tempdir().unwrap();
    let mut second = Agent::new(
        directory.path(),
        &format!("{}-second", site.app),
        &site.server.url(),
        &Settings::default(),
    );
    second.app.clone_from(&site.app);
    second.launch();
    let is_refused = |it: &Application| {
        let conditions = &it.status.conditions;
        conditions
            .iter()
            .any(|it| it.kind == "OwnedByAnotherAgent" && it.message.contains("lives on this engine"))
    };
    second.until("it is refused", is_refused).await;
    assert_eq!(running(&site), before);
    let (code, _, error) = second.asks("recover");
    assert!(code != 0 && error.contains("stop it"), "{error}");
    assert_eq!(running(&site), before);

    // The first agent was killed for good, and a user hands its containers over.
    first.kill9();
    assert!(second.said("recover").contains("taken over"));
    let commit = site.compose(&compose(&image, 2));
    second.sync().await;
    second.deployed(&commit).await;
    assert_eq!(site.docker.containers(&site.app).len(), 3, "nothing runs twice");

    // The first agent comes back, and changes nothing.
    let after = running(&site);
    first.launch();
    first.until("it is refused", has("OwnedByAnotherAgent")).await;
    site.compose(&compose(&image, 1));
    first.sync().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(second);
    assert_eq!(running(&site).len(), after.len());
}
