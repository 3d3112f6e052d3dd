//! Notifications: what each service receives, when incidents open and end, and what survives the end of the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request as AxumRequest, State},
    http::{HeaderMap, StatusCode},
    routing::any,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use driftless_agent::{Notifications, RequestKind, Rollback, start_notifications};
use driftless_clock::Clock;
use driftless_config::{NotificationReceiver, Settings, Target};
use driftless_docker::UserAction;
use driftless_model::{HealthStatus, IncidentKind, IncidentPhase, Notification, Until, Urgency, digest_hex};
use driftless_notify::{Sender, SenderHost, sample};
use driftless_store::{StateDir, Store};
use driftless_web::{Access, router};
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{
    log_lines::LogLines,
    masking::READ,
    ports::free_port,
    sample::{self as samples, NOON},
    simulation::{Simulation, minutes},
};

/// One request that a service got.
#[derive(Clone, Debug)]
struct Got {
    method: String,
    path: String,
    headers: HeaderMap,
    body: Value,
}

#[derive(Clone, Default)]
struct Service {
    got: Arc<Mutex<Vec<Got>>>,
    status: Arc<Mutex<u16>>,
    /// A larger body is refused.
    largest: Option<usize>,
}

impl Service {
    /// A server that keeps what it gets and answers with `status`.
    async fn start(status: u16) -> (Self, String) {
        Self::start_with(status, None).await
    }

    async fn start_with(status: u16, largest: Option<usize>) -> (Self, String) {
        let service = Self { got: Arc::default(), status: Arc::new(Mutex::new(status)), largest };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().fallback(any(keep)).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        (service, url)
    }

    fn take(&self) -> Vec<Got> {
        std::mem::take(&mut self.got.lock().unwrap())
    }
}

async fn keep(State(service): State<Service>, request: AxumRequest) -> (StatusCode, &'static str) {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    if service.largest.is_some_and(|largest| bytes.len() > largest) {
        return (StatusCode::BAD_REQUEST, "attachments not allowed");
    }
    let got = Got {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers,
        body: serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))),
    };
    service.got.lock().unwrap().push(got);
    let status = *service.status.lock().unwrap();
    (StatusCode::from_u16(status).unwrap(), "the service says so")
}

/// The settings of a file with these receivers.
fn settings(notifications: &str) -> Settings {
    let indented: String = notifications.lines().map(|line| format!("  {line}\n")).collect();
    let text =
        format!("repositories:\n- url: https://git.example.com/me/infra.git\nnotifications:\n{indented}");
    Settings::parse("driftless.yaml", &text).unwrap_or_else(|findings| panic!("{findings:?}\n{text}"))
}

fn environment() -> driftless_git::Lookup {
    Arc::new(|name: &str| match name {
        "TOKEN" => Some("123:secret-token".to_owned()),
        "USER_KEY" => Some("user-key".to_owned()),
        "URLS" => Some("mailto://ada:pass@example.com".to_owned()),
        name => name.strip_prefix("URL_").map(|port| format!("http://127.0.0.1:{port}/hook/secret-path")),
    })
}

fn sender(receiver: &NotificationReceiver) -> Sender {
    let environment = environment();
    let read =
        Arc::new(move |secret: &driftless_config::Secret| driftless_git::read_secret(secret, &environment));
    Sender::new(receiver.clone(), read).unwrap()
}

fn sender_host() -> SenderHost {
    SenderHost { name: "nas".to_owned(), url: Some("https://driftless.example.com".to_owned()) }
}

fn notification(kind: IncidentKind, phase: IncidentPhase) -> Notification {
    let mut incident = sample(kind, NOON);
    incident.number = 7;
    incident.message = "web: <@everyone> & \"quotes\" *stars*\nsecond line".to_owned();
    Notification { number: 1, receiver: "it".to_owned(), phase, incident, at: NOON, sent: None }
}

/// Sends one notification with these settings of a receiver, `URL` and `PORT` replaced by those of a server.
async fn sent(receiver: &str, phase: IncidentPhase) -> Got {
    let (service, url) = Service::start(200).await;
    let port = url.rsplit(':').next().unwrap().to_owned();
    let text = receiver.replace("PORT", &port).replace("URL_HERE", &url);
    let settings = settings(&format!("receivers:\n- name: it\n{text}"));
    let sender = sender(&settings.notifications.receivers[0]);
    sender.send(&[notification(IncidentKind::Degraded, phase)], &sender_host(), NOON).await.unwrap();
    let got = service.take();
    assert_eq!(got.len(), 1, "{got:?}");
    let is_form = got[0].body.is_string();
    let expected = if is_form { "application/x-www-form-urlencoded" } else { "application/json" };
    assert_eq!(got[0].headers["content-type"], expected);
    got[0].clone()
}

#[tokio::test]
async fn chats_get_the_documented_form_without_mentions() {
    use IncidentPhase::{Opened, Recovered};
    let slack = sent("  type: slack\n  urlEnv: URL_PORT\n", Opened).await;
    assert_eq!((slack.method.as_str(), slack.path.as_str()), ("POST", "/hook/secret-path"));
    let text = slack.body["text"].as_str().unwrap();
    assert!(text.starts_with("*[nas] shop is degraded*\nweb: &lt;@\u{200b}everyone&gt; &amp; "), "{text}");
    assert!(text.contains("Since 2026-01-01 11:48 UTC (12 min).\nTo do: `driftless status shop`"), "{text}");
    assert!(text.ends_with("https://driftless.example.com/applications/shop"), "{text}");

    let discord = sent("  type: discord\n  urlEnv: URL_PORT\n", Recovered).await;
    assert_eq!(discord.body["allowed_mentions"], json!({ "parse": [] }));
    let embed = &discord.body["embeds"][0];
    assert_eq!(embed["title"], "[nas] shop is healthy again");
    assert!(embed["description"].as_str().unwrap().contains("It lasted 12 min, from 2026-01-01 11:48 UTC."));
    assert_eq!(embed["url"], "https://driftless.example.com/applications/shop");

    let teams = sent("  type: teams\n  urlEnv: URL_PORT\n", Opened).await;
    let attachment = &teams.body["attachments"][0];
    assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
    assert_eq!(attachment["content"]["type"], "AdaptiveCard");
    assert_eq!(attachment["content"]["body"][0]["text"], "[nas] shop is degraded");
    assert!(attachment["content"]["body"][1]["text"].as_str().unwrap().contains("\n\nsecond line"));

    let telegram =
        sent("  type: telegram\n  url: URL_HERE\n  tokenEnv: TOKEN\n  chat: '-100'\n", Opened).await;
    assert_eq!(telegram.path, "/bot123:secret-token/sendMessage");
    assert_eq!(telegram.body["chat_id"], "-100");
    assert!(telegram.body["text"].as_str().unwrap().contains("<@everyone> & \"quotes\" *stars*"));
    assert_eq!(telegram.body.get("parse_mode"), None, "the text is plain");

    let matrix = "  type: matrix\n  url: URL_HERE\n  tokenEnv: TOKEN\n  room: '!a/b:example.com'\n";
    let matrix = sent(matrix, Opened).await;
    assert_eq!(matrix.method, "PUT");
    assert!(
        matrix.path.starts_with("/_matrix/client/v3/rooms/!a%2Fb:example.com/send/m.room.message/"),
        "{}",
        matrix.path
    );
    assert_eq!(matrix.headers["authorization"], "Bearer 123:secret-token");
    assert_eq!(matrix.body["m.mentions"], json!({}));
    let html = matrix.body["formatted_body"].as_str().unwrap();
    assert!(
        html.contains("&lt;@everyone&gt; &amp; &quot;quotes&quot;") && html.contains("<br>second line"),
        "{html}"
    );

    let zulip =
        "  type: zulip\n  url: URL_HERE\n  username: bot@example.com\n  tokenEnv: TOKEN\n  channel: ops\n";
    let zulip = sent(zulip, Opened).await;
    assert_eq!((zulip.method.as_str(), zulip.path.as_str()), ("POST", "/api/v1/messages"));
    let basic = format!("Basic {}", BASE64_STANDARD.encode("bot@example.com:123:secret-token"));
    assert_eq!(zulip.headers["authorization"], basic);
    let form = reqwest::Url::parse(&format!("http://form/?{}", zulip.body.as_str().unwrap())).unwrap();
    let form: BTreeMap<_, _> = form.query_pairs().into_owned().collect();
    assert_eq!([&form["type"], &form["to"], &form["topic"]], ["stream", "ops", "driftless"]);
    let content = &form["content"];
    assert!(content.starts_with("```text\n[nas] shop is degraded\nweb: <@everyone> & "), "{content}");
    assert!(content.ends_with("\n```\nhttps://driftless.example.com/applications/shop"), "{content}");
}

#[tokio::test]
async fn phones_get_the_documented_form_with_a_priority() {
    use IncidentPhase::{Opened, Recovered};
    let ntfy = sent("  type: ntfy\n  url: URL_HERE/topic\n  tokenEnv: TOKEN\n", Opened).await;
    assert_eq!(
        (ntfy.path.as_str(), &ntfy.body["topic"], &ntfy.body["priority"]),
        ("/", &json!("topic"), &json!(5))
    );
    assert_eq!(ntfy.headers["authorization"], "Bearer 123:secret-token");
    assert_eq!(ntfy.body["click"], "https://driftless.example.com/applications/shop");
    let ntfy =
        sent("  type: ntfy\n  url: URL_HERE/topic\n  username: ada\n  passwordEnv: TOKEN\n", Recovered).await;
    let basic = format!("Basic {}", BASE64_STANDARD.encode("ada:123:secret-token"));
    assert_eq!(
        (ntfy.headers["authorization"].to_str().unwrap(), &ntfy.body["priority"]),
        (&*basic, &json!(2))
    );

    let secret = sent("  type: ntfy\n  urlEnv: URL_PORT\n", Opened).await;
    assert_eq!((secret.path.as_str(), &secret.body["topic"]), ("/hook", &json!("secret-path")));

    let gotify = sent("  type: gotify\n  url: URL_HERE\n  tokenEnv: TOKEN\n", Opened).await;
    assert_eq!((gotify.path.as_str(), &gotify.body["priority"]), ("/message", &json!(8)));
    assert_eq!(gotify.headers["x-gotify-key"], "123:secret-token");

    let pushover =
        sent("  type: pushover\n  url: URL_HERE\n  tokenEnv: TOKEN\n  userEnv: USER_KEY\n", Opened).await;
    assert_eq!(pushover.path, "/1/messages.json");
    assert_eq!(
        (&pushover.body["token"], &pushover.body["user"]),
        (&json!("123:secret-token"), &json!("user-key"))
    );
    assert_eq!(pushover.body["priority"], 1);
}

#[tokio::test]
async fn programs_get_all_fields_and_a_signature() {
    let webhook =
        sent("  type: webhook\n  url: URL_HERE/x\n  secretEnv: TOKEN\n", IncidentPhase::Recovered).await;
    let header = |name: &str| webhook.headers[name].to_str().unwrap().to_owned();
    let (id, time) = (header("webhook-id"), header("webhook-timestamp"));
    assert_eq!(time, (NOON.0 / 1000).to_string());
    let body = webhook.body.to_string();
    let signed = openssl_hmac(b"123:secret-token", &format!("{id}.{time}.{body}"));
    assert_eq!(header("webhook-signature"), format!("v1,{signed}"));
    let one = &webhook.body["notifications"][0];
    assert_eq!(
        (&one["phase"], &one["event"], &one["incident"]),
        (&json!("recovered"), &json!("degraded"), &json!(7))
    );
    assert_eq!((&one["application"], &one["severity"]), (&json!("shop"), &json!("critical")));
    assert_eq!(
        (&one["since"], &one["ended"]),
        (&json!("2026-01-01T11:48:00.000Z"), &json!("2026-01-01T12:00:00.000Z"))
    );

    let alerts = sent("  type: alertmanager\n  url: URL_HERE\n", IncidentPhase::Opened).await;
    assert_eq!(alerts.path, "/api/v2/alerts");
    let labels = &alerts.body[0]["labels"];
    assert_eq!(labels["alertname"], "DriftlessDegraded");
    assert_eq!((&labels["application"], &labels["severity"]), (&json!("shop"), &json!("critical")));
    assert_eq!(alerts.body[0]["startsAt"], "2026-01-01T11:48:00.000Z");
    assert_eq!(alerts.body[0]["endsAt"], "2026-01-01T12:15:00.000Z", "unless it is repeated");

    let apprise = sent("  type: apprise\n  url: URL_HERE\n  urlsEnv: URLS\n", IncidentPhase::Opened).await;
    assert_eq!((apprise.path.as_str(), &apprise.body["type"]), ("/notify", &json!("failure")));
    assert_eq!(apprise.body["urls"], "mailto://ada:pass@example.com");
    assert_eq!(apprise.headers["accept"], "application/json", "its log is in the answer");
    assert_eq!(apprise.headers["x-apprise-log-level"], "INFO");
    let apprise =
        sent("  type: apprise\n  url: URL_HERE/notify/key\n  tag: phone\n", IncidentPhase::Recovered).await;
    assert_eq!((apprise.path.as_str(), &apprise.body["tag"]), ("/notify/key", &json!("phone")));
    assert_eq!(apprise.body["type"], "success");
}

#[tokio::test]
async fn first_message_that_apprise_sent_in_part_is_sent_twice() {
    let details =
        json!([["INFO", "", "Sent Discord notification."], ["WARNING", "", "Failed to send Email."]]);
    let partial = json!({ "error": "not sent", "details": details }).to_string();
    let failed =
        json!({ "error": "not sent", "details": [["WARNING", "", "Failed to send Email."]] }).to_string();
    let answer = Arc::new(Mutex::new(String::new()));
    let current = Arc::clone(&answer);
    let routes = Router::new().fallback(any(move || {
        let log = current.lock().unwrap().clone();
        async move { (StatusCode::FAILED_DEPENDENCY, log) }
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/notify/home", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let settings = settings(&format!("receivers:\n- name: it\n  type: apprise\n  url: {url}\n"));
    let sender = sender(&settings.notifications.receivers[0]);
    let numbered =
        |number| Notification { number, ..notification(IncidentKind::Degraded, IncidentPhase::Opened) };
    for (log, batch, is_sent) in [
        // The entry about Discord can be that of another client.
        (&partial, vec![numbered(1)], false),
        // A recovery replaces its incident.
        (&partial, vec![numbered(2)], true),
        (&partial, vec![numbered(3), numbered(4)], true),
        (&failed, vec![numbered(5)], false),
        (&partial, vec![numbered(5)], false),
        (&partial, vec![numbered(5)], true),
    ] {
        answer.lock().unwrap().clone_from(log);
        match sender.send(&batch, &sender_host(), NOON).await {
            Ok(refused) => assert!(is_sent && refused.len() == 1, "{batch:?}"),
            Err(error) => {
                assert!(!is_sent && error.to_string().contains("424: Failed to send Email."), "{error}");
                assert!(!error.is_temporary(), "the next try is after 10 minutes");
            }
        }
    }
}

/// The base64 of an HMAC-SHA256, by another program than ours.
fn openssl_hmac(key: &[u8], text: &str) -> String {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut child = Command::new("openssl")
        .args(["dgst", "-sha256", "-mac", "HMAC", "-macopt", &format!("hexkey:{hex}"), "-binary"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    BASE64_STANDARD.encode(child.wait_with_output().unwrap().stdout)
}

#[tokio::test]
async fn errors_name_the_host_and_no_secret() {
    let (service, url) = Service::start(403).await;
    let port = url.rsplit(':').next().unwrap();
    for (text, is_temporary) in [
        (format!("  type: slack\n  urlEnv: URL_{port}\n"), false),
        (format!("  type: telegram\n  url: {url}\n  tokenEnv: TOKEN\n  chat: x\n"), false),
        ("  type: slack\n  urlEnv: URL_1\n".to_owned(), true),
        ("  type: telegram\n  url: http://127.0.0.1:1\n  tokenEnv: TOKEN\n  chat: x\n".to_owned(), true),
    ] {
        let settings = settings(&format!("receivers:\n- name: it\n{text}"));
        let sender = sender(&settings.notifications.receivers[0]);
        let batch = [notification(IncidentKind::Degraded, IncidentPhase::Opened)];
        let error = sender.send(&batch, &sender_host(), NOON).await.unwrap_err();
        let text = driftless_model::error_chain(&error);
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("127.0.0.1"), "{text}");
        assert_eq!(error.is_temporary(), is_temporary, "{text}");
    }
    *service.status.lock().unwrap() = 429;
    let settings = settings(&format!("receivers:\n- name: it\n  type: slack\n  urlEnv: URL_{port}\n"));
    let batch = [notification(IncidentKind::Degraded, IncidentPhase::Opened)];
    let error =
        sender(&settings.notifications.receivers[0]).send(&batch, &sender_host(), NOON).await.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("429: the service says so"), "{error}");
}

#[test]
fn mistakes_in_receivers_and_routes_are_reported() {
    let parse = |notifications: &str| {
        let indented: String = notifications.lines().map(|line| format!("  {line}\n")).collect();
        let text = format!("repositories:\n- url: /srv/infra.git\nnotifications:\n{indented}");
        Settings::parse("driftless.yaml", &text)
            .map(drop)
            .map_err(|findings| findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    };
    for (text, expected) in [
        ("receivers:\n- type: slack\n  urlFile: /x", "name"),
        ("receivers:\n- name: a\n  type: pager", "must be one of `slack`"),
        (
            "receivers:\n- name: a\n  type: slack\n  url: https://hooks.slack.com/x",
            "has no `url`: it has urlEnv, urlFile",
        ),
        ("receivers:\n- name: a\n  type: slack", "needs `urlEnv` or `urlFile`"),
        ("receivers:\n- name: a\n  type: ntfy\n  url: https://ada:pw@ntfy.sh/x", "contains a credential"),
        ("receivers:\n- name: a\n  type: ntfy", "needs `url`, `urlEnv` or `urlFile`"),
        (
            "receivers:\n- name: a\n  type: ntfy\n  url: https://ntfy.sh/x\n  urlFile: /x",
            "exclude each other",
        ),
        (
            "receivers:\n- name: a\n  type: email\n  server: mail.example.com\n  from: a@example.com",
            "needs `to`",
        ),
        (
            "receivers:\n- name: a\n  type: email\n  server: mail.example.com\n  tls: none\n  username: a\n  passwordFile: /x\n  from: a@example.com\n  to: [b@example.com]",
            "cross the network in clear",
        ),
        (
            "receivers:\n- name: a\n  type: ntfy\n  url: https://ntfy.sh/x\n  quietHours: {from: '25:00', to: '7:00'}",
            "25:00",
        ),
        (
            "receivers:\n- {name: a, type: ntfy, url: 'https://ntfy.sh/x'}\n- {name: a, type: ntfy, url: 'https://ntfy.sh/y'}",
            "another receiver `a`",
        ),
        ("receivers: []\nroutes:\n- receivers: [phone]", "no receiver `phone`"),
        (
            "receivers:\n- {name: a, type: ntfy, url: 'https://ntfy.sh/x'}\nroutes:\n- {receivers: [a], events: [crashed]}",
            "`crashed` is no event",
        ),
        ("receivers:\n- {name: a, type: ntfy, url: 'https://ntfy.sh/x', rateLimit: 0}", "from 1 to 1000"),
    ] {
        let message = parse(text).unwrap_err();
        assert!(message.contains(expected), "{text}\n{message}");
        assert!(!message.contains("pw@"), "{message}");
    }
}

#[test]
fn wrong_templates_are_refused_before_anything_is_sent() {
    for (body, expected) in [
        ("{{ mesage }}", "undefined"),
        ("{% if %}", "template of `body`"),
        (
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
            "template of `body`",
        ),
    ] {
        let settings = settings(&format!(
            "receivers:\n- name: it\n  type: ntfy\n  url: https://ntfy.sh/x\n  body: \"{body}\"\n"
        ));
        let read = Arc::new(|_: &driftless_config::Secret| Ok(String::new()));
        let error =
            Sender::new(settings.notifications.receivers[0].clone(), read).err().expect("it is wrong");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let settings = settings(
        "receivers:\n- name: it\n  type: ntfy\n  url: https://ntfy.sh/x\n  title: \"{{ severity | upper }}\\n{{ headline }}\"\n",
    );
    let sender = sender(&settings.notifications.receivers[0]);
    let batch = [notification(IncidentKind::Degraded, IncidentPhase::Opened)];
    assert_eq!(sender.message(&batch, &sender_host(), NOON).unwrap().title, "CRITICAL shop is degraded");
}

#[tokio::test]
async fn text_that_a_service_refuses_holds_nothing_back() {
    let (service, url) = Service::start_with(200, Some(4800)).await;
    let receiver = |kind: &str| {
        let text = format!("receivers:\n- name: it\n  type: {kind}\n");
        sender(&settings(&text).notifications.receivers[0])
    };
    let mut long = notification(IncidentKind::Degraded, IncidentPhase::Opened);
    long.incident.message = "•".repeat(3000);
    // The limit of ntfy is one of bytes.
    receiver(&format!("ntfy\n  url: {url}/topic")).send(&[long.clone()], &sender_host(), NOON).await.unwrap();
    let got = service.take();
    let text = got[0].body["message"].as_str().unwrap();
    assert!(text.len() <= 4000 && text.ends_with("•…"), "{text}");
    // Gotify has no limit that is known.
    receiver(&format!("gotify\n  url: {url}\n  tokenEnv: TOKEN"))
        .send(&[long.clone()], &sender_host(), NOON)
        .await
        .unwrap();
    let got = service.take();
    assert_eq!(got.len(), 1, "the first one was refused");
    assert!(got[0].body["title"].as_str().unwrap().contains("shop is degraded"), "{:?}", got[0].body);
    assert!(got[0].body["message"].as_str().unwrap().contains("`driftless notify list`"));
    // A link can be refused, too.
    let host = SenderHost { url: Some(format!("https://example.com/{}", "x".repeat(5000))), ..sender_host() };
    receiver(&format!("gotify\n  url: {url}\n  tokenEnv: TOKEN"))
        .send(&[notification(IncidentKind::Degraded, IncidentPhase::Opened)], &host, NOON)
        .await
        .unwrap();
    let got = service.take();
    assert!(got.len() == 1 && got[0].body.get("extras").is_none(), "{got:?}");
    // A program gets the fields or nothing.
    let webhook = receiver(&format!("webhook\n  url: {url}"));
    let refused = webhook.send(&[long], &host, NOON).await.unwrap_err();
    assert!(refused.to_string().contains("400: attachments not allowed"), "{refused}");
    assert_eq!(service.take().len(), 0);
}

#[test]
fn several_notifications_are_one_list() {
    let settings = settings("receivers:\n- name: it\n  type: ntfy\n  url: https://ntfy.sh/x\n");
    let mut batch = vec![
        notification(IncidentKind::Degraded, IncidentPhase::Recovered),
        notification(IncidentKind::PruneHeld, IncidentPhase::Opened),
    ];
    let sender = sender(&settings.notifications.receivers[0]);
    let message = sender.message(&batch, &sender_host(), NOON).unwrap();
    assert_eq!(message.title, "[nas] 2 notifications: 1 warning, 1 over");
    let lines: Vec<&str> = message.body.lines().collect();
    assert!(lines[0].starts_with("- warning: a removal in shop waits"), "{lines:?}");
    let url = sender_host().url.unwrap();
    assert_eq!(lines[lines.len() - 2..], ["- shop is healthy again, after 12 min", url.as_str()]);
    assert_eq!(message.urgency, Urgency::Warning);
    batch.extend((0..30).map(|_| notification(IncidentKind::Degraded, IncidentPhase::Opened)));
    let message = sender.message(&batch, &sender_host(), NOON).unwrap();
    assert_eq!(message.title, "[nas] 32 notifications: 30 critical, 1 warning, 1 over");
    let items: Vec<&str> = message.body.lines().filter(|line| line.starts_with("- ")).collect();
    assert!(items[..20].iter().all(|line| line.starts_with("- critical: ")), "{items:?}");
    assert_eq!(items[20..], ["- and 12 more: `driftless notify list`"]);
}

/// The simulated agent with one receiver that cannot be reached, so that everything waits in the outbox.
struct Watched {
    it: Simulation,
    notifications: Notifications,
    stop: CancellationToken,
    tasks: TaskTracker,
}

const ROUTES: &str = "receivers:\n- name: phone\n  type: webhook\n  url: http://127.0.0.1:1\nroutes:\n- receivers: [phone]\n  severity: info\n";

impl Watched {
    fn new(it: Simulation) -> Self {
        let settings = settings(ROUTES);
        let made = Notifications::new(&settings.notifications, it.store.clone(), &environment(), it.clock);
        let notifications = made.unwrap_or_else(|(_, error)| panic!("{error}"));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        start_notifications(&notifications, &it.handle(), &stop, &tasks);
        Self { it, notifications, stop, tasks }
    }

    /// Waits until the outbox has these notifications, oldest first, each as kind and phase.
    async fn waits(&self, expected: &[(IncidentKind, IncidentPhase)]) -> Vec<Notification> {
        let end = Instant::now() + Duration::from_secs(60 * 30);
        loop {
            let waiting = self.it.store.waiting_notifications("phone").unwrap();
            let found: Vec<_> = waiting.iter().map(|one| (one.incident.kind, one.phase)).collect();
            if found == expected {
                return waiting;
            }
            assert!(Instant::now() < end, "{found:?} instead of {expected:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The receiver has accepted everything.
    fn accept_all(&self) {
        let waiting = self.it.store.waiting_notifications("phone").unwrap();
        self.it.store.mark_sent("phone", &waiting, self.it.clock.now()).unwrap();
    }
}

const WEB: &str = "services:\n  web:\n    image: web:1\n";

#[tokio::test(start_paused = true)]
async fn drift_opens_one_incident_and_ends_it_when_it_is_undone() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    let watched = Watched::new(it);
    minutes(1).await;
    watched.waits(&[]).await;
    watched.it.hand(&UserAction::Stop { name: "shop-web-1".into() });
    let found = watched.waits(&[(IncidentKind::DriftFound, IncidentPhase::Opened)]).await;
    assert_eq!(found[0].incident.urgency, Urgency::Info);
    assert!(found[0].incident.message.contains("shop-web-1"), "{}", found[0].incident.message);
    watched.accept_all();
    let ended = watched.waits(&[(IncidentKind::DriftFound, IncidentPhase::Recovered)]).await;
    assert_eq!(ended[0].incident.number, found[0].incident.number);
    assert_eq!(watched.it.store.open_incidents().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn secret_that_a_health_check_prints_is_nowhere() {
    let (log, _guard) = LogLines::of_this_thread();
    let compose = |tag: u8| {
        format!(
            "services:\n  web:\n    image: web:{tag}\n    environment: {{DB_PASSWORD: geheim4711}}\n    healthcheck: {{test: check}}\n"
        )
    };
    let it = Simulation::of(&compose(1));
    it.synced_with_tip().await;
    let watched = Watched::new(it);
    let it = &watched.it;
    it.docker.faults(|faults| {
        faults.unhealthy = BTreeSet::from(["web:2".to_owned()]);
        faults.outputs.insert("web:2".to_owned(), "connecting\nno login with geheim4711".to_owned());
    });
    it.git.push(&compose(2));
    let says = |status: &str| status.contains("its health check fails: connecting | no login with ••••");
    let found = it.until("the status says it", |shop| says(&serde_json::to_string(shop).unwrap())).await;
    assert_ne!(found.status.health, HealthStatus::Healthy);
    minutes(15).await;
    let mut all = format!("{:?}\n{:?}\n", it.store.waiting_notifications("phone").unwrap(), log.all());
    assert!(says(&all), "a notification or the log says it: {all}");
    let router = router(it.handle(), it.store.clone(), Access::loopback());
    for path in READ {
        let request = Request::builder().uri(path).header("host", "localhost").body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap().into_body().collect().await.unwrap();
        all.push_str(&format!("# {path}\n{}\n", String::from_utf8_lossy(&answer.to_bytes())));
    }
    let leaks: Vec<&str> =
        all.lines().filter(|line| line.starts_with("# ") || line.contains("geheim")).collect();
    assert_eq!(leaks.len(), READ.len(), "{leaks:#?}");
    let reads: Vec<&str> = all.split("# /").filter(|answer| says(answer)).collect();
    assert!(reads.len() > 2, "page and API say it: {all}");
}

#[tokio::test(start_paused = true)]
async fn failing_sync_is_reported_after_the_grace_time_and_once() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    let watched = Watched::new(it);
    watched.it.docker.faults(|faults| faults.failing_starts = Some((1000, "no room for it".to_owned())));
    watched.it.git.push("services:\n  web:\n    image: web:2\n");
    watched.it.until("it is degraded", |shop| shop.status.health == HealthStatus::Degraded).await;
    minutes(1).await;
    watched.waits(&[]).await;
    let waiting = watched.waits(&[(IncidentKind::SyncFailed, IncidentPhase::Opened)]).await;
    assert!(waiting[0].incident.message.contains("no room for it"), "{}", waiting[0].incident.message);
    watched.accept_all();
    // The commit fails meanwhile, which is the same incident.
    minutes(30).await;
    watched.waits(&[]).await;
    watched.it.docker.faults(|faults| faults.failing_starts = None);
    watched.it.ask(RequestKind::Retry).await;
    watched.it.synced_with_tip().await;
    watched.waits(&[(IncidentKind::SyncFailed, IncidentPhase::Recovered)]).await;
}

#[tokio::test(start_paused = true)]
async fn rollback_and_unreachable_git_are_incidents() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    it.push("services:\n  web:\n    image: web:2\n").await;
    it.synced_with_tip().await;
    let watched = Watched::new(it);
    let rollback = Rollback { to: None, reason: "orders fail".to_owned(), until: Until::Manual };
    watched.it.ask(RequestKind::Rollback(rollback)).await;
    let pinned = watched.waits(&[(IncidentKind::RolledBack, IncidentPhase::Opened)]).await;
    assert!(pinned[0].incident.message.ends_with(": orders fail"), "{}", pinned[0].incident.message);
    watched.accept_all();
    watched.it.git.down(true);
    minutes(14).await;
    watched.waits(&[]).await;
    watched.waits(&[(IncidentKind::GitUnreachable, IncidentPhase::Opened)]).await;
    watched.accept_all();
    watched.it.git.down(false);
    watched.it.ask(RequestKind::Resume).await;
    watched
        .waits(&[
            (IncidentKind::RolledBack, IncidentPhase::Recovered),
            (IncidentKind::GitUnreachable, IncidentPhase::Recovered),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn incidents_survive_the_end_of_the_process() {
    let it = Simulation::of(WEB);
    it.synced_with_tip().await;
    let mut watched = Watched::new(it);
    minutes(1).await;
    watched.it.git.push("services:\n  web:\n    imagee: web:2\n");
    let opened = watched.waits(&[(IncidentKind::SyncFailed, IncidentPhase::Opened)]).await;
    // The process is killed: nothing is stopped in order.
    watched.stop.cancel();
    watched.tasks.close();
    watched.it.crash();
    watched.it.begin();
    let watched = Watched::new(watched.it);
    let again = watched.waits(&[(IncidentKind::SyncFailed, IncidentPhase::Opened)]).await;
    assert_eq!(again, opened, "it is neither lost nor made twice");
    watched.accept_all();
    minutes(10).await;
    watched.waits(&[]).await;
    watched.it.git.push(WEB);
    let over = watched.waits(&[(IncidentKind::SyncFailed, IncidentPhase::Recovered)]).await;
    assert_eq!(over[0].incident.number, opened[0].incident.number);
    let status = watched.notifications.status().unwrap();
    assert_eq!((status.receivers[0].waiting, status.incidents.len()), (1, 0));
    assert!(status.receivers[0].error.contains("127.0.0.1 is unreachable"), "{}", status.receivers[0].error);
}

#[tokio::test]
async fn outbox_is_sent_after_a_restart_and_in_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let (service, url) = Service::start(500).await;
    let settings = settings(&format!(
        "receivers:\n- name: it\n  type: webhook\n  url: {url}\nroutes:\n- receivers: [it]\n  severity: info\n"
    ));
    let open = || {
        let state = StateDir::lock(folder.path()).unwrap();
        let store = Store::open(&state, Clock::System).unwrap().store;
        (state, store)
    };
    {
        let (_state, store) = open();
        for kind in [IncidentKind::Degraded, IncidentKind::PruneHeld] {
            let incident = driftless_model::Incident { ended: None, ..sample(kind, NOON) };
            let notifications =
                vec![(IncidentPhase::Opened, incident.clone(), BTreeSet::from(["it".to_owned()]))];
            let update =
                driftless_store::IncidentUpdate { kept: vec![incident], notifications, ..Default::default() };
            store.update_incidents(&update, Clock::System.now()).unwrap();
        }
        let samples::Agent { handle, .. } = samples::agent([samples::shop()]);
        let made = Notifications::new(&settings.notifications, store, &environment(), Clock::System);
        let notifications = made.unwrap_or_else(|(_, error)| panic!("{error}"));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        start_notifications(&notifications, &handle, &stop, &tasks);
        until(|| !service.got.lock().unwrap().is_empty()).await;
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
    assert!(!service.take().is_empty());
    *service.status.lock().unwrap() = 200;
    let (_state, store) = open();
    assert_eq!(store.waiting_notifications("it").unwrap().len(), 2, "the service has refused them");
    let samples::Agent { handle, inbox: _inbox, .. } = samples::agent([samples::shop()]);
    let made = Notifications::new(&settings.notifications, store.clone(), &environment(), Clock::System);
    let notifications = made.unwrap_or_else(|(_, error)| panic!("{error}"));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    start_notifications(&notifications, &handle, &stop, &tasks);
    until(|| store.waiting_notifications("it").unwrap().is_empty()).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    let got = service.take();
    assert_eq!(got.len(), 1, "{got:?}");
    assert_eq!(got[0].body["notifications"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn refused_text_does_not_hold_back_the_messages_of_others() {
    let (service, url) = Service::start_with(200, Some(4800)).await;
    let settings = settings(&format!("receivers:\n- name: it\n  type: webhook\n  url: {url}\n"));
    let samples::Agent { handle, store, inbox: _inbox } = samples::agent([samples::shop()]);
    let now = Clock::System.now();
    for (host, message) in [("nas", "•".repeat(3000)), ("web-1", "it is silent".to_owned())] {
        let incident = driftless_model::Incident {
            ended: None,
            host: Some(host.to_owned()),
            message,
            ..sample(IncidentKind::HostLost, now)
        };
        let notifications =
            vec![(IncidentPhase::Opened, incident.clone(), BTreeSet::from(["it".to_owned()]))];
        let update =
            driftless_store::IncidentUpdate { kept: vec![incident], notifications, ..Default::default() };
        store.update_incidents(&update, now).unwrap();
    }
    let made = Notifications::new(&settings.notifications, store.clone(), &environment(), Clock::System);
    let notifications = made.unwrap_or_else(|(_, error)| panic!("{error}"));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    start_notifications(&notifications, &handle, &stop, &tasks);
    until(|| notifications.status().unwrap().receivers[0].error.contains("400")).await;
    stop.cancel();
    let waiting = store.waiting_notifications("it").unwrap();
    let hosts: Vec<_> = waiting.iter().map(|one| one.incident.host.as_deref()).collect();
    assert_eq!(hosts, [Some("nas")]);
    let got = service.take();
    assert_eq!(got.len(), 1, "{got:?}");
    assert_eq!(got[0].body["notifications"][0]["message"], "it is silent");
}

/// Waits in real time.
async fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "not within a minute");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn test_message_is_sent_or_shown_through_the_api() {
    let (service, url) = Service::start(200).await;
    let settings = settings(&format!(
        "host: nas\nreceivers:\n- name: it\n  type: webhook\n  url: {url}\n- name: wrong\n  type: slack\n  urlEnv: NOT_SET\n"
    ));
    let samples::Agent { handle, store, inbox: _inbox } = samples::agent([samples::shop()]);
    let made = Notifications::new(&settings.notifications, store.clone(), &environment(), Clock::System);
    let handle = handle.with_notifications(made.unwrap_or_else(|(_, error)| panic!("{error}")));
    let router = router(handle, store, Access::loopback());
    let ask = |method: &'static str, path: String| {
        let router = router.clone();
        async move {
            let request = Request::builder().method(method).uri(path).header("host", "localhost");
            let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        }
    };
    let test = |rest: &str| ask("POST", format!("/api/v1/notifications/{rest}"));
    let (status, body) = test("it/test?event=pruneHeld&preview=true").await;
    assert_eq!((status, &body["title"]), (200, &json!("[nas] a removal in shop waits for a confirmation")));
    assert!(body["sent"] == json!(false) && service.take().is_empty());
    let (status, body) = test("it/test?phase=recovered").await;
    assert_eq!(
        (status, &body["title"], &body["sent"]),
        (200, &json!("[nas] shop is healthy again"), &json!(true))
    );
    assert_eq!(service.take().len(), 1);
    let (status, body) = test("wrong/test").await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("refused")));
    assert!(body["error"]["message"].as_str().unwrap().contains("NOT_SET is not set"), "{body}");
    assert_eq!(test("nobody/test").await.0, 404);
    assert_eq!(test("it/test?event=crashed").await.0, 400);
    let (status, body) = ask("GET", "/api/v1/notifications".to_owned()).await;
    assert_eq!((status, &body["receivers"][1]["type"]), (200, &json!("slack")));
    assert_eq!(body["receivers"][0]["routes"], json!(["all incidents from warning on"]));
}

/// A program that is ended with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn is_open(port: u16) -> bool {
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

async fn wait_for(port: u16, what: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_open(port).await {
        assert!(Instant::now() < end, "{what} does not listen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn real_alertmanager_shows_and_resolves_the_alert() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let config = folder.path().join("alertmanager.yml");
    std::fs::write(&config, "route: {receiver: none}\nreceivers: [{name: none}]\n").unwrap();
    let program = Command::new("prometheus-alertmanager")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--cluster.listen-address=")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus-alertmanager is missing: run scripts/test-tools.sh");
    let _program = Program(program);
    wait_for(port, "alertmanager").await;
    let settings =
        settings(&format!("receivers:\n- name: it\n  type: alertmanager\n  url: http://127.0.0.1:{port}\n"));
    let sender = sender(&settings.notifications.receivers[0]);
    let now = Clock::System.now();
    let incident = driftless_model::Incident { number: 3, ..sample(IncidentKind::Degraded, now) };
    let one = |phase| Notification {
        number: 1,
        receiver: "it".into(),
        phase,
        incident: incident.clone(),
        at: now,
        sent: None,
    };
    let shown = || async {
        let url = format!("http://127.0.0.1:{port}/api/v2/alerts?active=true");
        let output = Command::new("curl").args(["-sf", &url]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    sender.send(&[one(IncidentPhase::Opened)], &sender_host(), now).await.unwrap();
    let alerts = shown().await;
    assert_eq!(alerts.as_array().unwrap().len(), 1, "{alerts}");
    assert_eq!(alerts[0]["labels"]["application"], "shop");
    assert_eq!(alerts[0]["annotations"]["summary"], "[nas] shop is degraded");
    sender.send(&[one(IncidentPhase::Updated)], &sender_host(), now).await.unwrap();
    assert_eq!(shown().await.as_array().unwrap().len(), 1, "it stays one alert");
    sender.send(&[one(IncidentPhase::Recovered)], &sender_host(), now).await.unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while !shown().await.as_array().unwrap().is_empty() {
        assert!(Instant::now() < end, "the alert is not resolved");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Starts an SMTP server that prints the mails it gets into a file.
async fn mail_server(folder: &std::path::Path, options: &[&str]) -> (Program, u16, std::path::PathBuf) {
    let (port, printed) = (free_port(), folder.join(format!("mails-{}", options.len())));
    let output = std::fs::File::create(&printed).unwrap();
    let mut command = Command::new("aiosmtpd");
    command.env("PYTHONUNBUFFERED", "1").args(["-n", "-l", &format!("127.0.0.1:{port}")]);
    command.args(options).args(["-c", "aiosmtpd.handlers.Debugging", "stdout"]);
    let program = command.stdout(output).stderr(Stdio::null()).spawn();
    let program = program.expect("aiosmtpd is missing: run scripts/test-tools.sh");
    let program = Program(program);
    wait_for(port, "aiosmtpd").await;
    (program, port, printed)
}

#[tokio::test]
async fn real_smtp_server_gets_the_mail_with_and_without_tls() {
    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/git/tests/it/tls");
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (format!("{tls}/server.pem"), format!("{tls}/server.key"));
    let encrypted = ["--tlscert", &certificate, "--tlskey", &key];
    for (options, how) in [(&[][..], "none"), (&encrypted[..], "starttls")] {
        let (_program, port, printed) = mail_server(folder.path(), options).await;
        let settings = settings(&format!(
            "receivers:\n- name: it\n  type: email\n  server: localhost\n  port: {port}\n  tls: {how}\n  caFile: {tls}/ca.pem\n  from: Driftless <driftless@example.com>\n  to: [ada@example.com, bob@example.com]\n"
        ));
        let Target::Email(email) = &settings.notifications.receivers[0].target else { panic!("no mail") };
        assert_eq!(email.to.len(), 2);
        let sender = sender(&settings.notifications.receivers[0]);
        let batch = [notification(IncidentKind::Degraded, IncidentPhase::Opened)];
        sender.send(&batch, &sender_host(), NOON).await.unwrap_or_else(|error| panic!("{how}: {error}"));
        let read = || std::fs::read_to_string(&printed).unwrap();
        until(|| read().contains("END MESSAGE")).await;
        let mail = read();
        let thread = &digest_hex(b"nas/7")[..32];
        for line in [
            "Subject: [nas] shop is degraded",
            "From: Driftless <driftless@example.com>",
            "To: ada@example.com, bob@example.com",
            &format!("References: <incident.{thread}@example.com>"),
            "second line",
            "https://driftless.example.com/applications/shop",
        ] {
            assert!(mail.contains(line), "{how}: {line}\n{mail}");
        }
        assert!(mail.contains("Message-ID: <") && mail.contains("Date: "), "{mail}");
    }
    // A server without STARTTLS gets nothing in clear.
    let (_program, port, printed) = mail_server(folder.path(), &[]).await;
    let settings = settings(&format!(
        "receivers:\n- name: it\n  type: email\n  server: localhost\n  port: {port}\n  from: a@example.com\n  to: [b@example.com]\n"
    ));
    let batch = [notification(IncidentKind::Degraded, IncidentPhase::Opened)];
    let error =
        sender(&settings.notifications.receivers[0]).send(&batch, &sender_host(), NOON).await.unwrap_err();
    assert!(error.to_string().contains("localhost"), "{error}");
    assert_eq!(std::fs::read_to_string(&printed).unwrap(), "");
}

/// An SMTP server that refuses some recipients.
struct MailServer {
    port: u16,
    /// A part of the address, and the answer.
    refusals: Arc<Mutex<BTreeMap<&'static str, &'static str>>>,
    /// The recipients of the mails that it accepted.
    accepted: Arc<Mutex<Vec<String>>>,
}

impl MailServer {
    async fn start<const N: usize>(refusals: [(&'static str, &'static str); N]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let refusals = Arc::new(Mutex::new(BTreeMap::from(refusals)));
        let server = Self { port, refusals: Arc::clone(&refusals), accepted: Arc::default() };
        let accepted = Arc::clone(&server.accepted);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(receive_mail(stream, Arc::clone(&refusals), Arc::clone(&accepted)));
            }
        });
        server
    }

    fn accepted(&self) -> Vec<String> {
        self.accepted.lock().unwrap().clone()
    }
}

async fn receive_mail(
    mut stream: tokio::net::TcpStream,
    refusals: Arc<Mutex<BTreeMap<&'static str, &'static str>>>,
    accepted: Arc<Mutex<Vec<String>>>,
) {
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read).lines();
    let (mut recipients, mut is_text) = (Vec::new(), false);
    let mut answer = "220 here";
    while write.write_all(format!("{answer}\r\n").as_bytes()).await.is_ok() {
        let Ok(Some(mut line)) = lines.next_line().await else { return };
        while is_text && line != "." {
            let Ok(Some(next)) = lines.next_line().await else { return };
            line = next;
        }
        is_text = line == "DATA";
        let recipient = line.strip_prefix("RCPT TO:");
        let refusal = recipient.and_then(|recipient| {
            let refusals = refusals.lock().unwrap();
            refusals.iter().find(|(part, _)| recipient.contains(**part)).map(|(_, refusal)| *refusal)
        });
        answer = match (line.as_str(), refusal) {
            ("DATA", _) => "354 go on",
            ("QUIT", _) => "221 bye",
            (_, Some(refusal)) => refusal,
            (_, None) => {
                recipients.extend(recipient.map(str::to_owned));
                "250 fine"
            }
        };
        if line == "." {
            accepted.lock().unwrap().append(&mut recipients);
        }
    }
}

/// A sender of mails to these addresses.
fn mail_to(server: &MailServer, addresses: &str) -> Sender {
    let port = server.port;
    let text = format!(
        "receivers:\n- name: it\n  type: email\n  server: localhost\n  port: {port}\n  tls: none\n  from: a@example.com\n  to: [{addresses}]\n"
    );
    sender(&settings(&text).notifications.receivers[0])
}

const THREE: &str = "ada@example.com, bob@example.com, eve@example.com";

#[tokio::test]
async fn refused_recipient_does_not_hold_back_the_mail_of_others() {
    let batch = [notification(IncidentKind::Degraded, IncidentPhase::Opened)];
    let server = MailServer::start([("bob@", "550 5.1.1 user unknown")]).await;
    let refused = mail_to(&server, THREE).send(&batch, &sender_host(), NOON).await.unwrap();
    assert_eq!(server.accepted(), ["<ada@example.com>", "<eve@example.com>"]);
    assert_eq!(refused.len(), 1);
    let text = refused[0].to_string();
    assert!(text.starts_with("bob@example.com did not") && text.contains("user unknown"), "{text}");
    let both = mail_to(&server, "bob@example.com, bob@example.org");
    let error = both.send(&batch, &sender_host(), NOON).await.unwrap_err();
    assert!(error.to_string().contains("answers 550") && !error.is_temporary(), "{error}");
    // A server that refuses for the moment, such as one that greylists, is asked again for all recipients first. The mail may
    // have waited for long before its first try.
    let server = MailServer::start([("bob@", "450 4.2.0 greylisted")]).await;
    let (sender, first) = (mail_to(&server, THREE), NOON.after(Duration::from_hours(24)));
    let error = sender.send(&batch, &sender_host(), first).await.unwrap_err();
    assert!(error.is_temporary() && server.accepted().is_empty(), "{error}");
    let later = first.after(Duration::from_mins(6));
    assert_eq!(sender.send(&batch, &sender_host(), later).await.unwrap().len(), 1);
    assert_eq!(server.accepted().len(), 2);
}

#[tokio::test]
async fn mail_is_tried_again_only_for_recipients_without_it() {
    let batch = [notification(IncidentKind::Degraded, IncidentPhase::Opened)];
    let refusals = [("bob@", "550 5.1.1 user unknown"), ("eve@", "450 4.2.0 greylisted")];
    let server = MailServer::start(refusals).await;
    let sender = mail_to(&server, THREE);
    let error = sender.send(&batch, &sender_host(), NOON).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert_eq!(server.accepted(), ["<ada@example.com>"]);
    server.refusals.lock().unwrap().remove("eve@");
    let refused = sender.send(&batch, &sender_host(), NOON.after(Duration::from_mins(1))).await.unwrap();
    assert!(refused.len() == 1 && refused[0].to_string().starts_with("bob@example.com"), "{refused:?}");
    assert_eq!(server.accepted(), ["<ada@example.com>", "<eve@example.com>"]);
}

#[tokio::test]
async fn new_notifications_do_not_prolong_the_wait_for_a_recipient() {
    let batch: Vec<Notification> = (1..4)
        .map(|number| Notification { number, ..notification(IncidentKind::Degraded, IncidentPhase::Opened) })
        .collect();
    let server = MailServer::start([("eve@", "452 4.2.2 mailbox full")]).await;
    let sender = mail_to(&server, "ada@example.com, eve@example.com");
    for (count, passed) in [(1, 0), (2, 3)] {
        let now = NOON.after(Duration::from_mins(passed));
        let error = sender.send(&batch[..count], &sender_host(), now).await.unwrap_err();
        assert!(error.is_temporary() && server.accepted().is_empty(), "{error}");
    }
    let refused = sender.send(&batch, &sender_host(), NOON.after(Duration::from_mins(6))).await.unwrap();
    assert!(refused.len() == 1 && refused[0].to_string().starts_with("eve@example.com"), "{refused:?}");
    assert_eq!(server.accepted(), ["<ada@example.com>"]);
}

#[tokio::test]
async fn recipient_without_relay_does_not_hold_back_the_mail() {
    let batch = [notification(IncidentKind::Degraded, IncidentPhase::Opened)];
    let later = NOON.after(Duration::from_mins(6));
    for (status, passed) in [("454 4.7.1 relay access denied", 6), ("421 4.3.0 closing", 61)] {
        let server = MailServer::start([("bob@", "550 5.1.1 user unknown"), ("eve@", status)]).await;
        let sender = mail_to(&server, "bob@example.com, eve@example.com, ada@example.com");
        let error = sender.send(&batch, &sender_host(), NOON).await.unwrap_err();
        assert!(error.is_temporary(), "{error}");
        assert_eq!(server.accepted(), ["<ada@example.com>"], "{status}");
        let last = NOON.after(Duration::from_mins(passed));
        assert_eq!(sender.send(&batch, &sender_host(), last).await.unwrap().len(), 2, "{status}");
        assert_eq!(server.accepted(), ["<ada@example.com>"], "{status}");
    }
    let server = MailServer::start([("eve@", "454 4.7.1 relay access denied")]).await;
    let sender = mail_to(&server, "ada@example.com, eve@example.com");
    assert!(sender.send(&batch, &sender_host(), NOON).await.unwrap_err().is_temporary());
    assert_eq!(sender.send(&batch, &sender_host(), later).await.unwrap().len(), 1);
    assert_eq!(server.accepted(), ["<ada@example.com>"]);
}

#[test]
fn example_of_the_documentation_is_valid() {
    let page = include_str!("../../docs/notifications.md");
    let block = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let text = format!("repositories:\n- url: https://git.example.com/me/infra.git\n{block}");
    let settings = Settings::parse("driftless.yaml", &text).unwrap();
    assert_eq!(settings.notifications.routes.len(), 2);
    assert!(settings.notifications.receivers[0].quiet_hours.is_some());
    let table: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for (name, _) in IncidentKind::ALL {
        assert!(table.contains(&name), "docs/notifications.md lacks {name}");
    }
}
