//! A push that a forge announces is deployed without waiting for a poll; what was taken survives the agent; and
//! floods keep nothing from going on.

use std::{
    fs,
    process::{Command, Output},
    time::Duration,
};

use driftless_model::{ConditionStatus, DeliveryResult, WebhookStatus};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::harness::{Agent, PATIENCE, Settings, Site, images};

const SECRET: &str = "a-secret-of-this-test-0123456789-0123456789";

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

fn with_webhook(provider: &'static str, secret: &str, poll: &'static str) -> Settings {
    Settings { webhook: Some((provider, secret.to_owned())), poll, ..Settings::default() }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// `driftless webhook …` for the agent's one repository.
fn cli(agent: &Agent, verb: &str) -> Output {
    let server = format!("http://{}", agent.address());
    agent.command(&["webhook", verb, "infra", "--server", &server]).output().unwrap()
}

/// Rings as a forge would: with the command that the program prints.
fn ring(agent: &Agent) -> String {
    ring_of(agent, driftless_forge::webhook::NO_COMMIT)
}

/// Likewise, and speaks of this commit.
fn ring_of(agent: &Agent, commit: &str) -> String {
    let printed = cli(agent, "url");
    assert!(printed.status.success(), "{}", text(&printed));
    let printed = text(&printed);
    let script = printed.split("from the agent's machine:\n\n").nth(1).expect("a script is printed");
    let script = script.replace(driftless_forge::webhook::NO_COMMIT, commit);
    text(&Command::new("sh").arg("-c").arg(script).output().unwrap())
}

/// Waits until the webhook is as it should be.
async fn until(agent: &Agent, what: &str, is_so: impl Fn(&WebhookStatus) -> bool) -> WebhookStatus {
    let began = tokio::time::Instant::now();
    loop {
        let hook = agent.webhook().await;
        if is_so(&hook) {
            return hook;
        }
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}\n{hook:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn webhook_deploys_a_push_long_before_the_next_poll() {
    let image = images::server("1.0");
    for (provider, secret) in [
        ("auto", SECRET.to_owned()),
        ("gitlab", SECRET.to_owned()),
        ("standard-webhooks", format!("whsec_{}", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=")),
    ] {
        let site = Site::with("hook", with_webhook(provider, &secret, "1h"));
        let agent = site.running(&web(&image, "one")).await;
        let before = site.container("web").id();

        let commit = site.compose(&web(&image, "two"));
        let answer = ring(&agent);
        assert!(answer.contains("\"result\":\"accepted\""), "{provider}: {answer}");
        agent.settled(&commit).await;
        let container = site.container("web");
        assert_ne!(container.id(), before);
        assert_eq!(container.variable("GREETING").as_deref(), Some("two"));
        let hook = until(&agent, "its fetch is over", |it| it.pending == 0).await;
        let last = hook.last.unwrap();
        assert_eq!(
            (last.result, last.reference.as_deref()),
            (DeliveryResult::Accepted, Some("refs/heads/main"))
        );
        let outcome = last.outcome.unwrap().message;
        assert!(outcome.starts_with(&format!("fetched {}", &commit[..12])), "{outcome}");

        // And once more, with the program itself.
        let commit = site.compose(&web(&image, "three"));
        let tested = cli(&agent, "test");
        assert!(tested.status.success(), "{provider}: {}", text(&tested));
        assert!(text(&tested).contains(&format!("accepted; fetched {}", &commit[..12])), "{}", text(&tested));
        agent.settled(&commit).await;
        assert!(!agent.log().contains(&secret), "the log holds no secret");
        let status = agent
            .command(&["status", &site.app, "--server", &format!("http://{}", agent.address())])
            .output();
        let status = text(&status.unwrap());
        assert!(status.contains("webhook infra") && status.contains(&commit[..12]), "{status}");
    }
}

#[tokio::test]
async fn commit_not_yet_visible_is_fetched_again_soon() {
    let image = images::server("1.0");
    let site = Site::with("hook-early", with_webhook("forgejo", SECRET, "1h"));
    let agent = site.running(&web(&image, "one")).await;
    let before = site.repository.head();
    let commit = site.compose(&web(&image, "two"));
    let shows = |commit: &str| {
        let bare = &site.repository.bare;
        let set =
            Command::new("git").arg("-C").arg(bare).args(["update-ref", "refs/heads/main", commit]).status();
        assert!(set.unwrap().success());
    };
    shows(&before);
    let answer = ring_of(&agent, &commit);
    assert!(answer.contains("\"result\":\"accepted\""), "{answer}");
    let is_early = |it: &WebhookStatus| {
        let outcome = it.last.as_ref().and_then(|it| it.outcome.as_ref());
        outcome.is_some_and(|it| it.message.contains("not visible yet"))
    };
    until(&agent, "it looked in vain", is_early).await;
    shows(&commit);
    agent.settled(&commit).await;
    let hook = until(&agent, "its fetch is over", |it| it.pending == 0).await;
    assert!(hook.last.unwrap().outcome.unwrap().message.starts_with("fetched"));
}

#[tokio::test]
async fn accepted_delivery_is_handled_after_a_kill() {
    let image = images::server("1.0");
    let mut site = Site::with("hook-kill", with_webhook("gitea", SECRET, "1h"));
    let mut agent = site.running(&web(&image, "one")).await;
    let commit = site.compose(&web(&image, "two"));
    // Nothing can be fetched between the answer and the kill.
    site.server.down();
    let answer = ring(&agent);
    agent.kill9();
    assert!(answer.contains("\"result\":\"accepted\""), "{answer}");

    agent.launch();
    agent.ready().await;
    let hook =
        until(&agent, "it was tried", |it| it.last.as_ref().is_some_and(|it| it.outcome.is_some())).await;
    assert_eq!(hook.pending, 1, "it is written down, and not done: {hook:?}");
    let outcome = hook.last.unwrap().outcome.unwrap().message;
    assert!(outcome.contains("could not fetch yet"), "{outcome}");
    assert_eq!(site.container("web").variable("GREETING").as_deref(), Some("one"));

    site.server.up();
    agent.settled(&commit).await;
    let hook = until(&agent, "it is done", |it| it.pending == 0).await;
    assert!(hook.last.unwrap().outcome.unwrap().message.starts_with("fetched"));
}

#[tokio::test]
async fn missed_webhook_is_reported_until_the_next_one() {
    let image = images::server("1.0");
    let site = Site::with("hook-missed", with_webhook("github", SECRET, "1s"));
    let agent = site.running(&web(&image, "one")).await;
    let commit = site.compose(&web(&image, "unheard"));
    agent.settled(&commit).await;
    assert!(ring(&agent).contains("accepted"));
    until(&agent, "it was heard once", |it| it.pending == 0 && it.last.is_some()).await;

    let commit = site.compose(&web(&image, "missed"));
    agent.settled(&commit).await;
    let is_missed = |it: &driftless_model::Application| {
        it.status.conditions.iter().any(|it| it.kind == "WebhookMissed" && it.status == ConditionStatus::True)
    };
    agent.until("the condition says so", is_missed).await;
    assert_eq!(agent.webhook().await.missed.unwrap().commit, commit);
    let (_, events) = agent.get("/api/v1/events?app=repository/infra").await.unwrap();
    assert!(events.to_string().contains("WebhookMissed"), "{events}");

    assert!(ring(&agent).contains("accepted"));
    agent.until("the condition is gone", |it| !is_missed(it)).await;
    assert_eq!(agent.webhook().await.missed, None);
}

/// The resident memory of a process, in KiB.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends the same request so often over one connection after another, and counts the answers by status.
async fn flood(address: String, request: Vec<u8>, count: usize) -> (usize, usize) {
    let (mut taken, mut refused) = (0, 0);
    let mut left = count;
    while left > 0 {
        let Ok(mut socket) = TcpStream::connect(&address).await else { continue };
        let mut buffer = vec![0; 16 * 1024];
        while left > 0 {
            // A few at once, so that the network is not what limits it.
            let batch = left.min(20);
            if socket.write_all(&request.repeat(batch)).await.is_err() {
                break;
            }
            let mut seen = String::new();
            while seen.matches("HTTP/1.1 ").count() < batch || !seen.ends_with('}') {
                match socket.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(length) => seen.push_str(&String::from_utf8_lossy(&buffer[..length])),
                }
            }
            taken += seen.matches("HTTP/1.1 20").count();
            refused += seen.matches("HTTP/1.1 429").count();
            left -= batch;
        }
    }
    (taken, refused)
}

#[tokio::test]
async fn a_hundred_thousand_hooks_hold_nothing_up_and_take_no_memory() {
    const HOOKS: usize = 100_000;
    const CONNECTIONS: usize = 8;
    let image = images::server("1.0");
    let site = Site::with("hook-flood", with_webhook("hmac-sha256", SECRET, "1s"));
    let agent = site.running(&web(&image, "one")).await;
    let body = json!({ "ref": "refs/heads/main" }).to_string();
    let signature = {
        use std::{io::Write, process::Stdio};
        let mut openssl = Command::new("openssl")
            .args(["dgst", "-sha256", "-hmac", SECRET, "-r"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        openssl.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        let output = openssl.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
    };
    let path = agent.webhook().await.local_url.split_once("/hook/").unwrap().1.to_owned();
    let request = format!(
        "POST /hook/{path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nx-signature: sha256={signature}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let before = memory(agent.process());
    let began = tokio::time::Instant::now();
    let floods: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (address, request) = (agent.address().to_owned(), request.clone().into_bytes());
            tokio::spawn(flood(address, request, HOOKS / CONNECTIONS))
        })
        .collect();
    // In the midst of it: a push is found, something killed by hand is replaced, the API answers.
    let commit = site.compose(&web(&image, "two"));
    agent.settled(&commit).await;
    let killed = site.container("web").id();
    assert!(Command::new("docker").args(["rm", "-f", &killed]).output().unwrap().status.success());
    agent.until("it is replaced", |_| site.of("web").iter().any(|it| it.id() != killed)).await;
    let (mut taken, mut refused) = (0, 0);
    for flood in floods {
        let (good, bad) = flood.await.unwrap();
        taken += good;
        refused += bad;
    }
    let took = began.elapsed();
    let after = memory(agent.process());
    println!(
        "{HOOKS} hooks in {took:?}: {taken} taken, {refused} refused; memory {before} KiB, then {after} KiB"
    );
    assert!(taken + refused > HOOKS * 99 / 100, "{taken} + {refused}");
    assert!(taken as u64 <= 60 + 5 * (took.as_secs() + 1), "{taken} were taken in {took:?}");
    assert!(after < before + 48 * 1024, "{before} KiB became {after} KiB");
    assert!(agent.webhook().await.pending <= 500);
    agent.settled(&commit).await;
}
