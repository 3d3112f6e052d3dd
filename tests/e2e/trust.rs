//! Signed commits, with the real agent, real signatures and real containers.

use std::{fs, path::Path, process::Command};

use driftless_model::{Application, ConditionStatus};
use serde_json::{Value, json};

use crate::harness::{Agent, Settings, Site, git, images};

fn web(version: &str) -> String {
    format!("services:\n  web:\n    image: {}\n    restart: unless-stopped\n", images::server(version))
}

/// Makes a key for signing and tells Git to use it. Returns its public half.
fn signing_key(folder: &Path) -> String {
    let key = folder.join("signing");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.unwrap().success());
    let work = folder.join("work");
    git(&work, &["config", "gpg.format", "ssh"]);
    git(&work, &["config", "user.signingkey", key.to_str().unwrap()]);
    fs::read_to_string(key.with_extension("pub")).unwrap().trim().to_owned()
}

fn sign(site: &Site, on: bool) {
    git(&site.directory().join("work"), &["config", "commit.gpgsign", if on { "true" } else { "false" }]);
}

fn with(more: Value) -> Settings {
    Settings { more: Some(more), ..Settings::default() }
}

fn refuses(application: &Application, commit: &str) -> bool {
    let is_it = |it: &&driftless_model::StatusCondition| {
        it.kind == "Trusted" && it.status == ConditionStatus::False && it.message.contains(&commit[..12])
    };
    application.status.conditions.iter().any(|it| is_it(&it))
}

async fn refused(agent: &Agent, commit: &str) -> Application {
    agent.sync().await;
    agent.until("the commit is refused", |it| refuses(it, commit)).await
}

async fn runs(site: &Site, version: &str) {
    site.until(&format!("version {version} runs"), |docker| {
        let found = docker.containers(&site.app);
        let [only] = found.as_slice() else { return None };
        (only.state() == "running" && only.variable("VERSION").as_deref() == Some(version)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn unsigned_commit_is_rejected_and_the_signed_one_enforced() {
    let mut site = Site::new("signed");
    let key = signing_key(&site.directory());
    site.settings =
        with(json!({ "verify": { "ssh": { "allowedSigners": [format!("ops@example.com {key}")] } } }));
    sign(&site, true);
    let good = site.compose(&web("1.0"));
    let mut agent = site.agent().await;
    let settled = agent.settled(&good).await;
    let signed =
        settled.status.conditions.iter().find(|it| it.kind == "Trusted").expect("who signed is said");
    assert!(signed.message.contains("ops@example.com (SHA256:"), "{}", signed.message);

    sign(&site, false);
    let bad = site.compose(&web("2.0"));
    let told = refused(&agent, &bad).await;
    assert!(told.status.message.contains("it is not signed"), "{}", told.status.message);
    let (_, page) = agent.get("/").await.unwrap();
    assert!(page.as_str().unwrap().contains(&bad[..12]), "the page names the commit");
    agent
        .event("the refusal is reported", |event| {
            event.reason == "CommitRefused" && event.message.contains(&bad[..12])
        })
        .await;

    // Whether it drifts from what nobody may apply is not known: that is an error, and not "no drift".
    let server = format!("http://{}", agent.address);
    let drift = agent.command(&["drift", "--server", &server]).output().unwrap();
    let told = String::from_utf8_lossy(&drift.stdout).into_owned();
    assert_eq!(drift.status.code(), Some(2), "{told}{}", String::from_utf8_lossy(&drift.stderr));
    assert!(
        told.contains(": error") && told.contains(&bad[..12]) && told.contains("it is not signed"),
        "{told}"
    );

    // Meanwhile, and after a restart, the good one is enforced.
    site.docker.run(&["kill", &site.name("web")]);
    runs(&site, "1.0").await;
    agent.restart().await;
    refused(&agent, &bad).await;
    site.docker.run(&["kill", &site.name("web")]);
    runs(&site, "1.0").await;
    // An application cannot be taken away by such a commit either.
    let gone = site.repository.remove(&["sites"]);
    refused(&agent, &gone).await;
    runs(&site, "1.0").await;

    sign(&site, true);
    let next = site.compose(&web("3.0"));
    agent.deployed(&next).await;
    runs(&site, "3.0").await;
}

#[tokio::test]
async fn rewritten_history_waits_for_consent() {
    let mut site = Site::new("rewritten");
    site.settings = with(json!({ "requireFastForward": true }));
    let agent = site.running(&web("1.0")).await;
    let new = site.repository.rewrite(1, &[(&site.path("compose.yaml"), &web("2.0"))]);
    let told = refused(&agent, &new).await;
    assert!(told.status.message.contains("--accept-rewrite"), "{}", told.status.message);
    runs(&site, "1.0").await;
    agent.ask("accept-rewrite", json!({})).await;
    agent.settled(&new).await;
    runs(&site, "2.0").await;
}
