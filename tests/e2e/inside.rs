//! Files that somebody changes inside a running container are seen, named with who was in there, and reverted where
//! that is asked for. What containers write by themselves is their own business.

use driftless_model::{Application, Drift, DriftAction, SyncStatus};
use serde_json::json;

use crate::harness::{Settings, Site, images};

/// It writes outside its volumes at its start, into its volume all the time, and checks its own health.
fn compose() -> String {
    let image = images::placeholder();
    format!(
        "services:
  web:
    image: {image}
    restart: unless-stopped
    entrypoint: [/bin/busybox, sh, -c]
    command:
      - /bin/busybox mkdir -p /app /tmp /etc; echo made > /app/generated; echo a > /etc/settings;
        while :; do echo x >> /data/log; echo x > /tmp/scratch; /bin/busybox sleep 0.1; done
    stop_signal: SIGKILL
    volumes: [data:/data]
    healthcheck: {{test: [CMD, /bin/busybox, \"true\"], interval: 1s, retries: 3}}
volumes:
  data:
"
    )
}

fn files(it: &Application) -> Option<&Drift> {
    it.status.drift.iter().find(|it| it.field == "files")
}

#[tokio::test]
async fn only_manually_changed_files_are_reported_as_drift() {
    let site = Site::new("inside");
    let agent = site.running(&compose()).await;
    let web = site.container("web");
    // By now the health check has run, which is no visit.
    let ran = |docker: &crate::harness::Docker| {
        let log = docker.container(&web.name())?.0.pointer("/State/Health/Log")?.as_array()?.len();
        (log > 1).then_some(())
    };
    site.until("its health check has run", ran).await;
    site.docker.run(&["exec", &web.name(), "/bin/busybox", "touch", "/etc/evil"]);
    let application = agent.until("the file is named", |it| files(it).is_some()).await;
    let drift = files(&application).unwrap();
    assert_eq!(drift.action, DriftAction::Report);
    let (found, by) = drift.found.split_once(", by ").unwrap();
    assert_eq!(found, "/etc/evil added");
    assert!(by.starts_with("`docker exec /bin/busybox touch /etc/evil` at "), "{by}");
    assert!(!by.contains(" or "), "nobody else was there: {by}");
    assert_eq!(application.status.sync, SyncStatus::OutOfSync);
    let event = agent.event("the event", |it| it.reason == "DriftDetected").await;
    assert!(event.message.contains("/etc/evil"), "{event}");
    // Rewritten, deleted and copied files are reported as well.
    site.docker.run(&[
        "exec",
        &web.name(),
        "/bin/busybox",
        "sh",
        "-c",
        "echo b > /etc/settings; /bin/busybox rm /bin/sh",
    ]);
    let file = site.directory().join("copied");
    std::fs::write(&file, "x").unwrap();
    site.docker.run(&["cp", &file.display().to_string(), &format!("{}:/app/copied", web.name())]);
    let all = ["/app/copied added", "/bin/sh deleted", "/etc/evil added", "/etc/settings added"];
    agent
        .until("all of them are named", |application| {
            files(application).is_some_and(|it| all.iter().all(|one| it.found.contains(one)))
        })
        .await;
    let after = site.container("web");
    assert_eq!((after.id(), after.started()), (web.id(), web.started()), "it is left as it is");
}

#[tokio::test]
async fn revert_replaces_a_container_with_changed_files() {
    let more = Some(json!({"filesystemDrift": "revert"}));
    let site = Site::with("revert", Settings { more, ..Settings::default() });
    let agent = site.running(&compose()).await;
    let web = site.container("web");
    site.docker.run(&["exec", &web.name(), "/bin/busybox", "touch", "/etc/evil"]);
    let replaced = site.replaced("web", &web.id()).await;
    agent.settled(&site.repository.head()).await;
    let event = agent.event("the cause is reported", |it| it.reason == "DriftDetected").await;
    assert!(event.message.contains("/etc/evil added, by `docker exec"), "{event}");
    let there = site.docker.attempt(&["exec", &replaced.name(), "/bin/busybox", "ls", "/etc/evil"]);
    assert!(there.is_err(), "the file is gone with the old one");
    assert!(site.docker.run(&["exec", &replaced.name(), "/bin/busybox", "cat", "/data/log"]).contains('x'));
}
