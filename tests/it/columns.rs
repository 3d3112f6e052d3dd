//! The width of the commands' output: no line is longer than the terminal, and in a pipe no line is broken.

use std::{collections::BTreeMap, net::SocketAddr, process::Stdio, sync::Arc};

use driftless_agent::{Images, Notifications};
use driftless_clock::Clock;
use driftless_config::{Fleet, Settings};
use driftless_fleet::{ApplicationReport, HostReport, RepositoryReport};
use driftless_model::{
    Actor, ActorKind, ApiToken, AppName, Application, AuditEntry, AuditResult, Cause, Channel, CommitId,
    FreeSpace, HealthStatus, ImageCleanup, ImageRetention, ImageUse, KeepReason, Outcome, Scope, SyncStatus,
};
use driftless_store::{FleetInvite, JoinOutcome, JoiningHost, NewRevision, Store};
use driftless_web::{Access, router, serve};
use tokio::{net::TcpListener, process::Command};

use crate::sample::{Agent, agent, answer, before, blog, commit, event, shop};

/// The name of an application and of a host.
const LONG_APP: &str = "shop-with-a-long-name-of-the-second-branch";
const LONG_HOST: &str = "nas-in-the-cellar-of-the-old-house";

/// Commands that print text for people, with words of their output that no line may lose. The name of a list may be cut.
const COMMANDS: [(&str, &[&str]); 19] = [
    ("status", &["blog", "shop-with-a-"]),
    ("status blog", &["registry.example.com/blog:2.0.0", "out of memory", "being healed"]),
    ("status LONG_APP", &["127.0.0.1:8081→8080/tcp", "registry.example.com/shop/web:1.4.2", "web.2"]),
    ("events", &["refused", "password"]),
    ("audit", &["orders of the winter", "refused"]),
    ("history LONG_APP", &["Serve the winter", "ProgressDeadlineExceeded", "token continuous-deployment"]),
    ("plan blog", &["create blog-web-1"]),
    ("drift blog", &["blog-web-1"]),
    ("token list", &["act:repo/infrastructure-*", "continuous-deployment"]),
    ("config effective blog", &["selfHeal"]),
    ("notify list", &["phone", "no open incident"]),
    ("fleet status", &["nas-in-the-", "Degraded"]),
    ("fleet status --only LONG_HOST", &["shop-with-", "Degraded"]),
    ("fleet drift", &["nas-in-the-", "OutOfSync"]),
    ("fleet history", &["nas-in-the-", "revision"]),
    ("fleet requests", &["no requests"]),
    ("fleet keys", &["joined-from-", "open invite for any host"]),
    ("images", &["registry.internal", "container shop-", "removes 1 image"]),
    (
        "doctor /srv/git/infrastructure-of-the-second-branch.git --docker-host unix:///nowhere/docker.sock \
         --state-dir /nowhere/driftless --listen 127.0.0.1:0",
        &["fail", "help:", "explained in"],
    ),
];

/// An engine with an image that a container uses, and one that nothing needs.
struct LongImages;

impl Images for LongImages {
    fn uses<'a>(&'a self, _: &'a ImageRetention) -> Answering<'a, Vec<ImageUse>> {
        let image = |tag: &str, kept_for: Vec<KeepReason>| ImageUse {
            id: format!("sha256:{}", "0".repeat(64)),
            names: [format!("registry.internal.example.com:5000/infrastructure/shop/web:{tag}")].into(),
            bytes: 1_450_000_000,
            brought_at: Some(before(60)),
            kept_for,
        };
        let container = KeepReason::Container { name: format!("{LONG_APP}-web-1") };
        let uses = vec![image("1.4.2", Vec::new()), image("1.4.3", vec![container, KeepReason::New])];
        Box::pin(std::future::ready(Ok(uses)))
    }

    fn clean_up<'a>(&'a self, _: &'a ImageRetention, _: Option<FreeSpace>) -> Answering<'a, ImageCleanup> {
        Box::pin(std::future::ready(Err("nothing is removed here".to_owned())))
    }

    fn prune_build_cache(&self, _: u64) -> Answering<'_, u64> {
        Box::pin(std::future::ready(Ok(0)))
    }
}

type Answering<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Enrols a host, and makes an invite for another one.
fn enrol(store: &Store) {
    let (now, invited_by) = (Clock::System.now(), Actor::new(ActorKind::User, "ada.lovelace@example.com"));
    for key in ["a", "b"] {
        let (host, expires) = (None, now.after(std::time::Duration::from_hours(1)));
        let invite = FleetInvite { key: key.repeat(64), host, invited_by: invited_by.clone(), expires };
        assert!(store.create_fleet_invite(&invite, 10, now).unwrap());
    }
    let joining = JoiningHost {
        host: "joined-from-the-cellar-of-the-new-house".to_owned(),
        key: "c".repeat(64),
        instance: "a1".to_owned(),
        invite: "a".repeat(64),
    };
    assert!(matches!(store.join_fleet(&joining, 10, now).unwrap(), JoinOutcome::Enrolled(_)));
}

fn long_shop() -> Application {
    let mut application = shop();
    application.name = LONG_APP.into();
    application.status.health = HealthStatus::Degraded;
    application.status.message =
        "web.2 is not ready: GET http://127.0.0.1:8082/healthz answers 503 Service Unavailable, 12 s of 600 s"
            .to_owned();
    application.status.drift = blog().status.drift;
    application
}

fn revisions(store: &Store) {
    let compose = format!(r#"{{"app":"{LONG_APP}","format":"compose","project":"shop","workloads":{{}}}}"#);
    let stack: driftless_model::Stack = serde_json::from_str(&compose).unwrap();
    let token = Actor::new(ActorKind::Token, "continuous-deployment");
    for (cause, actor) in [(Cause::Commit, None), (Cause::Rollback, Some(token))] {
        let new = NewRevision {
            app: LONG_APP.into(),
            commit: commit('c', "Serve the winter catalogue with the prices of the new season"),
            reference: "main".to_owned(),
            cause,
            changes: Vec::new(),
            rollback_of: None,
            actor,
        };
        let number = store.begin_revision(&new, &stack).unwrap().number;
        let reason = "ProgressDeadlineExceeded: web made no progress in 600 s".to_owned();
        store
            .finish_revision(&LONG_APP.into(), number, &Outcome::Failed { reason }, &BTreeMap::new())
            .unwrap();
    }
}

pub(crate) fn audit_entry() -> AuditEntry {
    AuditEntry {
        sequence: 0,
        at: before(60),
        actor: Actor::new(ActorKind::Token, "continuous-deployment"),
        channel: Channel::Api,
        from: "2001:db8:85a3::8a2e:370:7334".to_owned(),
        action: "rollback".to_owned(),
        app: Some(LONG_APP.into()),
        detail: "to 3: orders of the winter catalogue fail".to_owned(),
        result: AuditResult::Refused,
        message: format!("token continuous-deployment may not act on {LONG_APP}"),
    }
}

pub(crate) fn host_report() -> HostReport {
    let application = ApplicationReport {
        name: AppName::from(LONG_APP),
        repository: "infra".to_owned(),
        sync: SyncStatus::OutOfSync,
        health: HealthStatus::Degraded,
        suspended: None,
        pinned: None,
        well: false,
        revision: Some(4),
        revision_commit: Some(CommitId::from_stored("a".repeat(40))),
        commit: Some(CommitId::from_stored("a".repeat(40))),
        failed: None,
        images: None,
        failed_images: None,
        message: long_shop().status.message,
        drift: 2,
    };
    HostReport {
        host: LONG_HOST.to_owned(),
        instance: "a1".to_owned(),
        every: 30,
        repositories: vec![RepositoryReport {
            name: "infra".to_owned(),
            commit: Some(CommitId::from_stored("a".repeat(40))),
            ..RepositoryReport::default()
        }],
        applications: vec![application],
        ..HostReport::default()
    }
}

/// An agent that is a collector too, with long names and sentences everywhere.
async fn served() -> SocketAddr {
    let agent = agent([blog(), long_shop()]);
    let message = "exited with code 3: connection to db.internal.example.com:5432 refused, password authentication failed";
    agent.happens(event(LONG_APP, "BackOff", message));
    let Agent { handle, store, inbox } = agent;
    revisions(&store);
    let text = "repositories:\n- url: https://git.example.com/me/infra.git\nnotifications:\n  receivers:\n  - name: phone\n    type: webhook\n    url: http://127.0.0.1:1\n";
    let settings = Settings::parse("driftless.yaml", text).unwrap();
    let environment = Arc::new(|_: &str| None) as _;
    let notifications =
        Notifications::new(&settings.notifications, store.clone(), &environment, Clock::System);
    let notifications = notifications.unwrap_or_else(|(_, error)| panic!("{error}"));
    let handle =
        handle.with_fleet(Fleet { accept: true, ..Fleet::default() }).with_notifications(notifications);
    let handle = handle.with_images(Arc::new(LongImages));
    enrol(&store);
    let token = ApiToken {
        name: "continuous-deployment".to_owned(),
        scopes: ["act:repo/infrastructure-*", "act:app/shop-with-a-long-name-*", "report:host/nas-*"]
            .map(|scope| Scope::parse(scope).unwrap())
            .to_vec(),
        created: before(86_400),
        created_by: Actor::new(ActorKind::User, "ada.lovelace@example.com"),
        expires: None,
    };
    store.create_token(&token).unwrap();
    store.append_audit(audit_entry(), std::time::Duration::from_hours(24)).unwrap();
    tokio::spawn(answer(inbox, Arc::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, router(handle, store, Access::loopback()), std::future::pending()));
    let report = reqwest::Client::builder().no_proxy().build().unwrap();
    let report = report.put(format!("http://{address}/api/v1/fleet/hosts/{LONG_HOST}"));
    let answer = report.body(serde_json::to_vec(&host_report()).unwrap()).send().await.unwrap();
    assert_eq!(answer.status(), 204);
    address
}

async fn output(server: SocketAddr, words: &str, width: Option<&str>) -> String {
    let words = words.replace("LONG_APP", LONG_APP).replace("LONG_HOST", LONG_HOST);
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    command.args(words.split(' ')).env_clear().env("DRIFTLESS_SERVER", format!("http://{server}"));
    command.envs(width.map(|width| ("COLUMNS", width))).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn no_line_of_a_command_is_longer_than_the_terminal() {
    let server = served().await;
    for width in [60, 80, 120] {
        for (words, shown) in COMMANDS {
            let text = output(server, words, Some(&width.to_string())).await;
            if std::env::var_os("DRIFTLESS_SHOW").is_some() {
                println!("\n===== {words} ({width})\n{text}");
            }
            // Addresses stay whole, so that they can be copied.
            for line in text.lines().filter(|line| !line.trim_start().starts_with("explained in docs/")) {
                assert!(line.chars().count() <= width, "{words}, {width} columns: {line}\n{text}");
            }
            for word in shown {
                let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(joined.contains(word), "{words}, {width} columns: {word} is missing\n{text}");
            }
        }
    }
}

#[tokio::test]
async fn lines_stay_whole_in_a_pipe() {
    let server = served().await;
    for (words, lines) in [("events", 1), ("audit", 2), ("history LONG_APP", 3), ("token list", 2)] {
        let text = output(server, words, None).await;
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(text.lines().any(|line| line.chars().count() > 120), "{text}");
    }
}

#[tokio::test]
async fn error_is_folded_to_the_columns_of_the_environment() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    command.args(["config", "check", "/not/here/driftless.yaml"]).env_clear().env("COLUMNS", "40");
    let shown = String::from_utf8(command.output().await.unwrap().stderr).unwrap();
    assert!(shown.starts_with("error: ") && shown.lines().count() > 2, "{shown}");
    for line in shown.lines().filter(|line| !line.starts_with("explained in ")) {
        assert!(line.chars().count() <= 40, "{shown}");
    }
}

/// `script`, which each Debian has, is the terminal.
#[tokio::test]
async fn error_is_folded_on_a_terminal_and_whole_in_a_pipe() {
    let program = env!("CARGO_BIN_EXE_driftless");
    let words = "config check /not/here/driftless.yaml";
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("stty cols 40 rows 20; {program} {words}"), "/dev/null"])
        .stdin(Stdio::null());
    let shown = String::from_utf8(command.output().await.unwrap().stdout).unwrap();
    let output = Command::new(program).args(words.split(' ')).output().await.unwrap();
    let whole = String::from_utf8(output.stderr).unwrap();
    let colours = ["\x1b[31m", "\x1b[36m", "\x1b[2m", "\x1b[0m"];
    let plain = colours.iter().fold(shown, |text, colour| text.replace(colour, ""));
    // Addresses stay whole, so that they can be copied.
    let longest = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("explained in "));
        lines.map(|line| line.trim_end().chars().count()).max().unwrap_or_default()
    };
    assert!(longest(&whole) > 60 && longest(&plain) <= 40, "{whole}{plain}");
    let words = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(words(&plain), words(&whole));
}
