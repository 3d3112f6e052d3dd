//! History, rollback and resume.

use driftless_model::{Cause, Outcome, SyncStatus};
use serde_json::json;

use crate::harness::{Agent, Settings, Site, images};

fn web(version: &str) -> String {
    format!("services:\n  web:\n    image: {}\n    restart: unless-stopped\n", images::server(version))
}

/// A site on which 1.0, 2.0 and 3.0 were deployed one after the other, and the three commits.
async fn three(test: &str) -> (Site, Agent, [String; 3]) {
    // Each commit is found by the sync that follows it, and not by a poll.
    let site = Site::with(test, Settings { poll: "1h", ..Settings::default() });
    let first = site.compose(&web("1.0"));
    let agent = site.agent().await;
    agent.settled(&first).await;
    let second = site.compose(&web("2.0"));
    agent.deployed(&second).await;
    let third = site.compose(&web("3.0"));
    agent.deployed(&third).await;
    (site, agent, [first, second, third])
}

/// Waits until this version runs, alone.
async fn runs(site: &Site, version: &str) {
    site.until(&format!("version {version} runs"), |docker| {
        let found = docker.containers(&site.app);
        let [only] = found.as_slice() else { return None };
        (only.state() == "running" && only.variable("VERSION").as_deref() == Some(version)).then_some(())
    })
    .await;
}

/// The number of the revision of a commit.
async fn number_of(agent: &Agent, commit: &str) -> u64 {
    let history = agent.history().await;
    history.iter().find(|it| it.commit.id == commit).expect("the commit is in the history").number
}

#[tokio::test]
async fn history_shows_commit_time_and_cause() {
    let (_site, agent, commits) = three("history").await;
    let mut history = agent.history().await;
    history.sort_by_key(|it| it.number);
    assert_eq!(history.iter().map(|it| it.commit.id.as_str()).collect::<Vec<_>>(), commits);
    assert!(history.windows(2).all(|it| it[0].number < it[1].number));
    for revision in &history {
        assert_eq!(revision.outcome, Outcome::Succeeded, "{revision:?}");
        assert!(revision.finished >= Some(revision.started), "{revision:?}");
        assert!(revision.commit.author.contains("Test"), "{revision:?}");
        assert!(revision.commit.subject.contains("compose.yaml"), "{revision:?}");
    }
    let causes: Vec<&Cause> = history.iter().map(|it| &it.cause).collect();
    assert_eq!(causes, [&Cause::Start, &Cause::User, &Cause::User], "the harness asks for a sync");
    assert!(history[1].changes.iter().any(|it| it.contains("2.0")), "{:?}", history[1].changes);
}

#[tokio::test]
async fn a_rollback_pins_survives_a_restart_and_ends_with_resume() {
    let (site, mut agent, [first, _, third]) = three("rollback").await;
    let number = number_of(&agent, &first).await;
    let body = json!({ "to": number.to_string(), "reason": "3.0 is broken", "until": "manual" });
    agent.ask("rollback", body).await;
    runs(&site, "1.0").await;

    // The next commit does not run either, and is counted.
    site.compose(&web("4.0"));
    agent.sync().await;
    let pinned = agent
        .until("it is pinned, three commits behind", |application| {
            application.status.pin.as_ref().is_some_and(|it| it.commit == first && it.behind == Some(3))
        })
        .await;
    assert_eq!(pinned.status.pin.unwrap().reason, "3.0 is broken");
    runs(&site, "1.0").await;

    agent.restart().await;
    agent.until("it is still pinned", |it| it.status.pin.is_some()).await;
    let before = site.container("web");
    site.docker.run(&["rm", "-f", &site.name("web")]);
    site.replaced("web", &before.id()).await;
    runs(&site, "1.0").await;

    agent.ask("resume", json!({})).await;
    runs(&site, "4.0").await;
    let application = agent.settled(&site.repository.head()).await;
    assert!(application.status.pin.is_none());
    let history = agent.history().await;
    assert!(history.iter().any(|it| it.cause == Cause::Rollback && it.rollback_of.is_some()), "{history:?}");
    assert!(history.iter().all(|it| it.commit.id != third || it.cause == Cause::User), "{history:?}");
}

#[tokio::test]
async fn a_rollback_needs_no_git_server() {
    let (mut site, mut agent, [_, second, _]) = three("offline").await;
    site.server.down();
    agent.restart().await;
    agent.ask("rollback", json!({ "to": second, "until": "manual" })).await;
    runs(&site, "2.0").await;
    agent
        .until("it is pinned and synced", |application| {
            application.status.pin.as_ref().is_some_and(|it| it.commit == second)
                && application.status.sync == SyncStatus::Synced
        })
        .await;
}

#[tokio::test]
async fn a_rollback_reaches_a_commit_that_a_force_push_threw_away() {
    let (site, agent, [_, second, _]) = three("rewritten").await;
    let compose = site.path("compose.yaml");
    let commit = site.repository.rewrite(2, &[(&compose, &web("5.0"))]);
    agent.deployed(&commit).await;
    runs(&site, "5.0").await;
    agent.ask("rollback", json!({ "to": second[..12], "until": "manual" })).await;
    runs(&site, "2.0").await;
}

#[tokio::test]
async fn a_rollback_until_the_next_commit_ends_with_it() {
    let (site, agent, _) = three("next").await;
    agent.ask("rollback", json!({ "until": "next-commit" })).await;
    runs(&site, "2.0").await;
    // The commit that was rolled back from is still the newest: that releases nothing.
    agent.sync().await;
    agent.until("it is pinned", |it| it.status.pin.is_some()).await;
    let commit = site.compose(&web("4.0"));
    agent.deployed(&commit).await;
    runs(&site, "4.0").await;
}

#[tokio::test]
async fn a_suspended_application_is_watched_and_not_touched() {
    let (site, mut agent, _) = three("suspend").await;
    agent.ask("suspend", json!({})).await;
    site.docker.run(&["stop", &site.name("web")]);
    agent.until("the drift is reported", |it| !it.status.drift.is_empty()).await;
    let commit = site.compose(&web("4.0"));
    agent.sync().await;
    agent.restart().await;
    agent.until("it still reports", |it| it.status.sync == SyncStatus::OutOfSync).await;
    let web = site.container("web");
    assert_eq!((web.state().as_str(), web.variable("VERSION").as_deref()), ("exited", Some("3.0")));
    agent.ask("resume", json!({})).await;
    agent.settled(&commit).await;
    runs(&site, "4.0").await;
}

#[tokio::test]
async fn a_revision_that_does_not_exist_is_refused() {
    let (site, agent, _) = three("refuse").await;
    let path = format!("/api/v1/applications/{}/rollback", site.app);
    let (status, answer) = agent.post(&path, &json!({ "to": "999", "until": "manual" })).await.unwrap();
    assert!((400..500).contains(&status), "{status}: {answer}");
    assert!(answer.to_string().contains("999"), "{answer}");
}
