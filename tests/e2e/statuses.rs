//! Commit statuses, checked against the requests that the forges document; and that
//! a forge that is away holds nothing up.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{Agent, PATIENCE, Settings, Site, images};

const TOKEN: &str = "token-of-this-test-0123456789";

/// A forge that takes statuses, and lists them.
#[derive(Clone, Default)]
struct Forge {
    said: Arc<Mutex<Vec<Said>>>,
    is_away: Arc<AtomicBool>,
    /// The token may not write.
    refuses: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
struct Said {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Value,
}

impl Said {
    fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_default()
    }

    fn is(&self, commit: &str, state: &str) -> bool {
        self.path.ends_with(&format!("/statuses/{commit}")) && self.text("state") == state
    }
}

async fn take(
    State(forge): State<Forge>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    if forge.is_away.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "away".to_owned());
    }
    if forge.refuses.load(Ordering::Relaxed) {
        return (StatusCode::NOT_FOUND, "{\"message\": \"Not Found\"}".to_owned());
    }
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    forge.said.lock().unwrap().push(Said { method, path: uri.path().to_owned(), headers, body });
    (StatusCode::CREATED, "{}".to_owned())
}

impl Forge {
    async fn start() -> (Self, String) {
        let forge = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(take).with_state(forge.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (forge, format!("http://{address}"))
    }

    fn all(&self) -> Vec<Said> {
        self.said.lock().unwrap().clone()
    }

    async fn hears(&self, commit: &str, state: &str) -> Said {
        let began = tokio::time::Instant::now();
        loop {
            if let Some(said) = self.all().into_iter().find(|it| it.is(commit, state)) {
                return said;
            }
            assert!(began.elapsed() < PATIENCE, "{state} of {commit} is not told: {:#?}", self.all());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn web(image: &str, greeting: &str) -> String {
    format!(
        "services:
  web:
    image: {image}
    restart: unless-stopped
    environment: {{GREETING: {greeting}}}
"
    )
}

/// A site whose agent tells `forge`.
fn site(test: &str, provider: &str, api: &str) -> (Site, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let status = json!({ "provider": provider, "tokenFile": token, "url": api, "project": "me/infra" });
    (Site::with(test, Settings { status: Some(status), ..Settings::default() }), directory)
}

#[tokio::test]
async fn commit_status_reaches_each_forge_in_its_form() {
    for (provider, prefix, header, value, name) in [
        ("github", "/repos/me/infra", "authorization", format!("Bearer {TOKEN}"), "context"),
        ("gitlab", "/projects/me%2Finfra", "private-token", TOKEN.to_owned(), "name"),
        ("forgejo", "/repos/me/infra", "authorization", format!("token {TOKEN}"), "context"),
    ] {
        let (forge, api) = Forge::start().await;
        let (site, _directory) = site("told", provider, &api);
        let agent = site.running(&web(&images::server("1.0"), "one")).await;
        let commit = site.repository.head();
        let said = forge.hears(&commit, "success").await;
        assert_eq!(
            (said.method.as_str(), said.path.as_str()),
            ("POST", format!("{prefix}/statuses/{commit}").as_str())
        );
        assert_eq!(said.headers[header], value.as_str(), "{provider}");
        assert_eq!(said.headers["content-type"], "application/json");
        assert_eq!(said.text(name), format!("driftless/{}", site.app), "{provider}");
        assert!(said.text("description").starts_with("runs as revision"), "{said:?}");
        let states: Vec<String> = forge.all().iter().map(|it| it.text("state").to_owned()).collect();
        assert!(states == ["pending", "success"] || states == ["success"], "{provider}: {states:?}");
        assert!(!agent.log().contains(TOKEN));
    }
}

/// Waits until the agent has noted that all statuses were sent.
async fn nothing_waits(agent: &Agent) {
    let empty = "driftless_queue_length{queue=\"commit_statuses\"} 0";
    let began = tokio::time::Instant::now();
    loop {
        let (_, metrics) = agent.get("/metrics").await.expect("the agent answers");
        let metrics = metrics.as_str().expect("a text");
        if metrics.lines().any(|line| line == empty) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "statuses wait: {metrics}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn invalid_commit_gets_one_failure_status_with_location() {
    let (forge, api) = Forge::start().await;
    let (site, _directory) = site("told-bad", "gitea", &api);
    let image = images::server("1.0");
    let mut agent = site.running(&web(&image, "one")).await;
    forge.hears(&site.repository.head(), "success").await;
    let bad = site.compose("services:\n  web:\n    imag: nothing\n");
    agent.sync().await;
    let said = forge.hears(&bad, "failure").await;
    assert!(said.text("description").contains("compose.yaml"), "{said:?}");
    let before = forge.all().len();
    // A kill between the answer of the forge and the note of it sends the status once more.
    nothing_waits(&agent).await;
    agent.restart().await;
    agent.until("it is looked at again", |it| it.status.observed_at.is_some()).await;
    let good = site.compose(&web(&image, "two"));
    agent.deployed(&good).await;
    forge.hears(&good, "success").await;
    let after = forge.all().split_off(before);
    assert!(after.iter().all(|it| it.path.ends_with(&good)), "{after:#?}");
}

#[tokio::test]
async fn a_forge_that_is_away_holds_nothing_up_and_hears_of_it_later() {
    let (forge, api) = Forge::start().await;
    let (site, _directory) = site("told-late", "github", &api);
    let image = images::server("1.0");
    let mut agent: Agent = site.running(&web(&image, "one")).await;
    forge.hears(&site.repository.head(), "success").await;
    forge.is_away.store(true, Ordering::Relaxed);
    let commit = site.compose(&web(&image, "two"));
    agent.deployed(&commit).await;
    assert!(!forge.all().iter().any(|it| it.path.ends_with(&commit)));
    // It is written down, so that a kill does not make it forgotten either.
    agent.kill9();
    forge.is_away.store(false, Ordering::Relaxed);
    agent.launch();
    agent.ready().await;
    forge.hears(&commit, "success").await;
}

#[tokio::test]
async fn permanent_refusal_is_in_the_status_until_solved() {
    let (forge, api) = Forge::start().await;
    let (site, _directory) = site("told-refused", "github", &api);
    let image = images::server("1.0");
    forge.refuses.store(true, Ordering::Relaxed);
    let mut agent = site.running(&web(&image, "one")).await;
    let is_refused = |it: &driftless_model::Application| {
        it.status.conditions.iter().any(|it| it.kind == "CommitStatusPosted" && it.message.contains("404"))
    };
    let told = agent.until("the refusal is in the status", is_refused).await;
    let condition = told.status.conditions.iter().find(|it| it.kind == "CommitStatusPosted").unwrap();
    assert_eq!(
        (condition.reason.as_str(), condition.message.contains(TOKEN)),
        ("Refused", false),
        "{condition:?}"
    );
    // A token that was given its right is used at once, without waiting for the next try.
    forge.refuses.store(false, Ordering::Relaxed);
    agent.restart().await;
    forge.hears(&site.repository.head(), "success").await;
    agent.until("nothing is refused any more", |it| it.status.observed_at.is_some() && !is_refused(it)).await;
}
