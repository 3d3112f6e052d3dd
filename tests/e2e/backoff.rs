//! Failed actions are retried with growing pauses, reported, and counted over restarts of the agent.

use driftless_model::{HealthStatus, WaitStatus};

use crate::harness::{Registry, Site, images};

fn web(image: &str) -> String {
    format!("services:\n  web:\n    image: {image}\n    restart: unless-stopped\n")
}

fn wait_of<'a>(waits: &'a [WaitStatus], reason: &str) -> Option<&'a WaitStatus> {
    waits.iter().find(|it| it.reason == reason)
}

#[tokio::test]
async fn late_image_is_rolled_out_without_a_new_commit() {
    let site = Site::new("pull");
    let registry = Registry::start(&site.directory()).await;
    let old = registry.publish(&site.docker, &site.app, "1.0.0");
    let agent = site.running(&web(&old)).await;
    let before = site.container("web");

    let new = old.replace("1.0.0", "1.0.1");
    let commit = site.compose(&web(&new));
    agent.sync().await;
    let application = agent
        .until("the status says that the image cannot be pulled", |application| {
            wait_of(&application.status.waits, "ImagePullBackOff").is_some()
        })
        .await;
    let wait = wait_of(&application.status.waits, "ImagePullBackOff").unwrap();
    assert!(wait.message.contains("1.0.1"), "{}", wait.message);
    assert!(wait.attempt.is_some() && wait.until.is_some(), "{wait:?}");
    let untouched = site.container("web");
    assert_eq!((untouched.id(), untouched.started()), (before.id(), before.started()));

    registry.publish(&site.docker, &site.app, "1.0.1");
    agent.settled(&commit).await;
    let after = site.container("web");
    assert_eq!(after.image(), new);
    assert_eq!(after.variable("VERSION").as_deref(), Some("1.0.1"));
    for image in [&old, &new] {
        let _ = site.docker.attempt(&["rmi", image]);
    }
}

#[tokio::test]
async fn a_crash_loop_backs_off_and_is_not_forgotten_by_a_restart() {
    let site = Site::new("crash");
    let image = images::server("1.0");
    let deployment = format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: worker}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: worker}}}}
  template:
    metadata: {{labels: {{app: worker}}}}
    spec:
      containers:
        - {{name: worker, image: \"{image}\", args: [--fail]}}
"
    );
    site.repository.commit(&[(&site.path("deployment.yaml"), &deployment)]);
    let mut agent = site.agent().await;
    let attempt_of = |waits: &[WaitStatus]| wait_of(waits, "CrashLoopBackOff").and_then(|it| it.attempt);
    let application = agent
        .until("it backs off for the second time", |application| {
            attempt_of(&application.status.waits).is_some_and(|it| it >= 2)
        })
        .await;
    let workload = application.status.workloads.values().next().unwrap();
    assert_eq!(workload.reason, "CrashLoopBackOff");
    assert_eq!(application.status.health, HealthStatus::Degraded);
    let wait = wait_of(&application.status.waits, "CrashLoopBackOff").unwrap();
    assert!(wait.message.contains('1') && wait.until.is_some(), "{wait:?}");

    let before = attempt_of(&application.status.waits);
    agent.restart().await;
    let application =
        agent.until("it still backs off", |it| wait_of(&it.status.waits, "CrashLoopBackOff").is_some()).await;
    let after = attempt_of(&application.status.waits);
    assert!(after >= before, "the count was lost: {before:?}, then {after:?}");

    // A commit that corrects it starts at once, without waiting for the pause.
    let commit =
        site.repository.commit(&[(&site.path("deployment.yaml"), &deployment.replace("[--fail]", "[]"))]);
    agent.deployed(&commit).await;
}

#[tokio::test]
async fn a_git_server_that_is_away_leaves_everything_enforced() {
    let mut site = Site::new("away");
    let agent = site.running(&web(&images::server("1.0"))).await;
    let before = site.container("web");
    site.server.down();
    agent.sync().await;
    agent
        .until("the status says that Git cannot be asked", |application| {
            application
                .status
                .conditions
                .iter()
                .any(|it| it.kind == "SourceReady" && it.status == driftless_model::ConditionStatus::False)
        })
        .await;
    site.docker.run(&["rm", "-f", &site.name("web")]);
    site.replaced("web", &before.id()).await;
    site.server.up();
    let commit = site.compose(&web(&images::server("2.0")));
    agent.deployed(&commit).await;
}
