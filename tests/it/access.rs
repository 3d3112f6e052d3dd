//! Access to the API: named tokens and their scopes, the cookie of a browser, the trusted proxy, and the audit.

use std::{
    future::ready,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use driftless_agent::{Answer, Logs, Readiness, RequestKind};
use driftless_config::{Audit, Settings, TrustedProxy};
use driftless_docker::{LogOptions, LogStream};
use driftless_model::{
    Actor, ActorKind, ApiToken, AppName, AuditEntry, AuditResult, Channel, Scope, Timestamp,
};
use driftless_store::Store;
use driftless_web::{Access, Token, router, serve};
use futures_util::{FutureExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{mpsc, oneshot},
};
use tower::ServiceExt;

use crate::{
    fleet::followed,
    program::{Program, skip},
    sample::{self, agent, blog, shop},
    webhooks::{hex, hmac_of},
};

/// Containers that print nothing and do not end.
struct Silent;

impl Logs for Silent {
    fn open<'a>(
        &'a self,
        _: &'a str,
        _: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        Box::pin(ready(Ok(Box::pin(stream::pending()) as LogStream)))
    }
}

const CONFIGURED: &str = "correct-horse-battery";

/// An agent that accepts every request and lists them with their actors.
struct Fixture {
    router: Router,
    /// The routes as after a restart of the agent.
    restarted: Box<dyn Fn() -> Router + Send + Sync>,
    store: Store,
    asked: Arc<Mutex<Vec<(AppName, RequestKind, Actor)>>>,
}

fn fixture(access: Access) -> Fixture {
    let sample::Agent { handle, store, inbox } = agent([shop(), blog()]);
    inbox.repositories.send_replace(Arc::new(vec![followed()]));
    let handle = handle.with_logs(Arc::new(Silent));
    let asked = Arc::<Mutex<Vec<_>>>::default();
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        // All of it, because a stream of a page ends with the agent that publishes.
        let mut inbox = inbox;
        while let Some(request) = inbox.requests.recv().await {
            seen.lock().unwrap().push((request.app, request.kind, request.actor));
            let _ = request.reply.send(Ok(Answer::Accepted));
        }
    });
    let kept = store.clone();
    let restarted = Box::new(move || router(handle.clone(), kept.clone(), access.clone()));
    Fixture { router: restarted(), restarted, store, asked }
}

fn with_token() -> Fixture {
    fixture(Access::token(Token::new(CONFIGURED).unwrap()))
}

impl Fixture {
    async fn send(&self, method: &str, path: &str, token: &str, body: &str) -> Response<Body> {
        let request = Request::builder().method(method).uri(path).header("host", "driftless.example");
        let request = request.header("authorization", format!("Bearer {token}"));
        let request = request.body(Body::from(body.to_owned())).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn status(&self, method: &str, path: &str, token: &str) -> StatusCode {
        self.send(method, path, token, "").await.status()
    }

    /// Creates a token with the API and returns its secret.
    async fn create(&self, body: &str) -> String {
        let response = self.send("POST", "/api/v1/tokens", CONFIGURED, body).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        json(response).await["secret"].as_str().unwrap().to_owned()
    }
}

async fn json(response: Response<Body>) -> Value {
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test]
async fn scopes_of_a_token_limit_its_requests() {
    let it = with_token();
    let read = it.create(r#"{"name": "grafana", "scopes": ["read"]}"#).await;
    let act = it.create(r#"{"name": "ci", "scopes": ["act:app/shop"]}"#).await;
    let infra = it.create(r#"{"name": "infra", "scopes": ["act:repo/inf*"]}"#).await;
    let (sync_shop, sync_blog) = ("/api/v1/applications/shop/sync", "/api/v1/applications/blog/sync");
    for (token, shop, blog, audit) in [
        (&read, StatusCode::FORBIDDEN, StatusCode::FORBIDDEN, StatusCode::FORBIDDEN),
        (&act, StatusCode::ACCEPTED, StatusCode::FORBIDDEN, StatusCode::FORBIDDEN),
        (&infra, StatusCode::ACCEPTED, StatusCode::ACCEPTED, StatusCode::FORBIDDEN),
        (&CONFIGURED.to_owned(), StatusCode::ACCEPTED, StatusCode::ACCEPTED, StatusCode::OK),
    ] {
        assert_eq!(it.status("GET", "/api/v1/applications", token).await, StatusCode::OK);
        assert_eq!(it.status("POST", sync_shop, token).await, shop);
        assert_eq!(it.status("POST", sync_blog, token).await, blog);
        for path in ["/api/v1/audit", "/api/v1/tokens"] {
            assert_eq!(it.status("GET", path, token).await, audit, "{path}");
        }
        assert_eq!(it.status("GET", sync_shop, token).await, StatusCode::METHOD_NOT_ALLOWED);
        // A token for all applications of a repository may have it fetched.
        let fetch = it.status("POST", "/api/v1/repositories/infra/fetch", token).await;
        assert_eq!(fetch, if token == &act { StatusCode::FORBIDDEN } else { blog });
        // A rewritten history is that of all of them, too.
        let accepted = it.status("POST", "/api/v1/applications/shop/accept-rewrite", token).await;
        assert_eq!(accepted, if token == &act { StatusCode::FORBIDDEN } else { blog });
    }
    assert_eq!(it.status("POST", "/api/v1/repositories/web/fetch", CONFIGURED).await, StatusCode::NOT_FOUND);
    assert_eq!(it.status("POST", "/api/v1/repositories/web/fetch", &infra).await, StatusCode::FORBIDDEN);
    // A name that is written in another way is the same application.
    assert_eq!(it.status("POST", "/api/v1/applications/bl%6fg/sync", &act).await, StatusCode::FORBIDDEN);
    assert_eq!(it.status("POST", "/api/v1/applications/sh%6fp/sync", &act).await, StatusCode::ACCEPTED);
    assert_eq!(it.status("POST", "/api/v1/recover", &infra).await, StatusCode::FORBIDDEN);
    let who = json(it.send("GET", "/api/v1/whoami", &act, "").await).await;
    assert_eq!(who["actor"]["name"], "ci");
    assert_eq!(who["scopes"][0], "act:app/shop");
    let actors: Vec<String> = it.asked.lock().unwrap().iter().map(|it| it.2.to_string()).collect();
    assert_eq!(actors[0], "token ci", "the agent knows who asks");
    assert!(actors.contains(&"token tokenFile".to_owned()), "{actors:?}");
}

#[tokio::test]
async fn scope_of_a_repository_holds_while_the_agent_starts() {
    let it = with_token();
    let infra = it.create(r#"{"name": "infra", "scopes": ["act:repo/inf*"]}"#).await;
    let sample::Agent { handle, store: _, inbox: _inbox } = agent([blog()]);
    handle.unpublished().add("shop".into(), "infra".to_owned());
    let access = Access::token(Token::new(CONFIGURED).unwrap());
    let it = Fixture { router: router(handle, it.store.clone(), access), ..it };
    let starting = it.status("POST", "/api/v1/applications/shop/sync", &infra).await;
    assert_eq!(starting, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(it.status("POST", "/api/v1/applications/other/sync", &infra).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn reason_of_readiness_needs_permission_to_read() {
    let it = with_token();
    let read = it.create(r#"{"name": "grafana", "scopes": ["read"]}"#).await;
    let report = it.create(r#"{"name": "nas", "scopes": ["report:host/nas"]}"#).await;
    let sample::Agent { handle, store: _, inbox } = agent([shop()]);
    inbox.readiness.send_replace(Readiness {
        docker: true,
        repositories: false,
        state: true,
        message: "repository `secret-project` was never read".to_owned(),
    });
    let access = Access::token(Token::new(CONFIGURED).unwrap());
    let it = Fixture { router: router(handle, it.store.clone(), access), ..it };
    for (token, expected) in
        [(&read, "not ready: repository `secret-project` was never read\n"), (&report, "not ready\n")]
    {
        let response = it.send("GET", "/readyz", token, "").await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(String::from_utf8_lossy(&body), expected);
    }
}

#[tokio::test]
async fn revoked_and_expired_tokens_are_refused() {
    let it = with_token();
    let secret = it.create(r#"{"name": "ci", "scopes": ["read"], "expiresIn": "never"}"#).await;
    let again = it.send("POST", "/api/v1/tokens", CONFIGURED, r#"{"name": "ci", "scopes": ["read"]}"#).await;
    assert_eq!(again.status(), StatusCode::CONFLICT);
    assert_eq!(it.status("GET", "/api/v1/applications", &secret).await, StatusCode::OK);
    let revoke = it.status("DELETE", "/api/v1/tokens/ci", CONFIGURED).await;
    assert_eq!(revoke, StatusCode::NO_CONTENT);
    let refused = it.send("GET", "/api/v1/applications", &secret, "").await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let message = "this token is not known here: it is wrong or was revoked";
    assert_eq!(json(refused).await["error"]["message"], message);
    assert_eq!(it.status("DELETE", "/api/v1/tokens/ci", CONFIGURED).await, StatusCode::NOT_FOUND);
    for wrong in [
        r#"{"name": "", "scopes": ["read"]}"#,
        r#"{"name": "a b", "scopes": ["read"]}"#,
        r#"{"name": "tokenfile", "scopes": ["read"]}"#,
        r#"{"name": "a", "scopes": []}"#,
        r#"{"name": "a", "scopes": ["write"]}"#,
        r#"{"name": "a", "scopes": ["read"], "expiresIn": "soon"}"#,
        r#"{"name": "a", "scopes": ["read"], "expiresIn": "0s"}"#,
        "",
    ] {
        let refused = it.send("POST", "/api/v1/tokens", CONFIGURED, wrong).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{wrong}");
    }

    let expired = ApiToken {
        name: "old".to_owned(),
        scopes: vec![Scope::Admin],
        created: Timestamp(1),
        created_by: Actor::agent(),
        expires: Some(Timestamp(2)),
    };
    let secret = it.store.create_token(&expired).unwrap().unwrap();
    let sample::Agent { handle, .. } = agent([shop()]);
    let router = router(handle, it.store.clone(), Access::closed());
    let old = Fixture { router, ..it };
    let refused = old.send("GET", "/api/v1/applications", &secret, "").await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let refused = json(refused).await;
    let error = &refused["error"];
    assert_eq!(error["message"], "the token old has expired");
    assert_eq!(error["code"], "tokenExpired");
}

#[tokio::test]
async fn token_is_nowhere_in_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let state = driftless_store::StateDir::lock(folder.path()).unwrap();
    let store = Store::open(&state, driftless_clock::Clock::System).unwrap().store;
    let token = ApiToken {
        name: "ci".to_owned(),
        scopes: vec![Scope::Read],
        created: Timestamp(1),
        created_by: Actor::agent(),
        expires: None,
    };
    let secret = store.create_token(&token).unwrap().unwrap();
    assert_eq!(store.tokens().unwrap().len(), 1);
    for entry in std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok) {
        if !entry.path().is_file() {
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{}", entry.path().display());
    }
}

#[tokio::test]
async fn every_write_is_in_the_audit() {
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("audit.jsonl");
    let audit = Audit { file: Some(path.clone()), ..Audit::default() };
    let it = fixture(Access::token(Token::new(CONFIGURED).unwrap()).with_audit(audit));
    let read = it.create(r#"{"name": "grafana", "scopes": ["read"]}"#).await;
    it.send("GET", "/api/v1/applications", &read, "").await;
    it.send("POST", "/api/v1/applications/shop/sync", &read, "").await;
    let body = r#"{"to": "2", "reason": "orders fail"}"#;
    it.send("POST", "/api/v1/applications/shop/rollback", CONFIGURED, body).await;
    it.send("POST", "/api/v1/applications/shop/workloads/web/restart", CONFIGURED, "").await;
    it.send("POST", "/api/v1/applications/nothing/sync", CONFIGURED, "").await;
    let entries: Vec<AuditEntry> =
        serde_json::from_value(json(it.send("GET", "/api/v1/audit", CONFIGURED, "").await).await).unwrap();
    let lines: Vec<String> = entries
        .iter()
        .rev()
        .map(|entry| {
            let app = entry.app.as_ref().map(AppName::as_str).unwrap_or_default();
            format!("{} {} {app} {} {}", entry.actor, entry.action, entry.detail, entry.result)
        })
        .collect();
    assert_eq!(
        lines,
        [
            "token tokenFile create token  grafana: read accepted",
            "token grafana sync shop  refused",
            "token tokenFile rollback shop to 2: orders fail accepted",
            "token tokenFile restart shop web accepted",
        ]
    );
    assert_eq!(entries[2].message, "token grafana may not act on shop");
    assert!(entries.iter().all(|it| it.channel == Channel::Api && it.at > Timestamp(0)));
    let of_shop = json(it.send("GET", "/api/v1/audit?app=shop&limit=1", CONFIGURED, "").await).await;
    assert_eq!(of_shop.as_array().unwrap().len(), 1);
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written.lines().count(), 4);
    let first: AuditEntry = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!((first.sequence, first.result), (1, AuditResult::Accepted));
}

#[tokio::test]
async fn request_that_finds_no_seat_is_in_the_audit() {
    let it = with_token();
    // Bodies that do not end hold all seats. A body is read as soon as its request has one.
    let (reading, mut read) = mpsc::unbounded_channel();
    for _ in 0..160 {
        let request = Request::post("/api/v1/applications/shop/rollback").header("host", "driftless.example");
        let request = request.header("authorization", format!("Bearer {CONFIGURED}"));
        let reading = reading.clone();
        let body = Body::from_stream(stream::once(async move {
            reading.send(()).unwrap();
            std::future::pending::<Result<Vec<u8>, std::io::Error>>().await
        }));
        tokio::spawn(it.router.clone().oneshot(request.body(body).unwrap()));
    }
    for _ in 0..160 {
        read.recv().await.unwrap();
    }
    let sync = "/api/v1/applications/shop/sync";
    assert_eq!(it.status("POST", sync, CONFIGURED).await, StatusCode::SERVICE_UNAVAILABLE);
    let newest = it.store.audit(None, 1, None).unwrap().remove(0);
    assert_eq!((newest.action.as_str(), newest.result), ("sync", AuditResult::Failed));
    assert!(newest.message.contains("too many requests"), "{}", newest.message);
}

#[tokio::test]
async fn request_of_a_client_that_has_gone_is_in_the_audit() {
    let sample::Agent { handle, store, mut inbox } = agent([shop()]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let routes = router(handle, store.clone(), Access::loopback());
    let server = tokio::spawn(serve(listener, routes, async { drop(stopped.await) }));
    let mut asked = Vec::new();
    for line in ["POST suspend", "POST heal", "GET plan"] {
        let (method, action) = line.split_once(' ').unwrap();
        let mut socket = TcpStream::connect(address).await.unwrap();
        let line = format!("{method} /api/v1/applications/shop/{action} HTTP/1.1\r\nhost: localhost\r\n");
        socket.write_all(format!("{line}content-length: 0\r\n\r\n").as_bytes()).await.unwrap();
        asked.push(inbox.requests.recv().await.unwrap());
        // The client goes before there is an answer.
        drop(socket);
    }
    let mut question = asked.pop().unwrap();
    question.reply.closed().await;
    let unanswered = asked.pop().unwrap();
    asked.pop().unwrap().reply.send(Ok(Answer::Accepted)).unwrap();
    stop.send(()).unwrap();
    // Paused time jumps to the limit of the server as soon as nobody has anything else to do.
    tokio::time::pause();
    server.await.unwrap();
    assert!(unanswered.reply.is_closed());
    let entries = store.audit(None, 10, None).unwrap();
    let results: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.result)).collect();
    assert_eq!(results, [("heal", AuditResult::Failed), ("suspend", AuditResult::Accepted)]);
    assert_eq!(entries[0].message, "the agent is shutting down");
}

/// A server on loopback, for which the kernel knows the client's user.
pub(crate) async fn served(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, router, std::future::pending()));
    address
}

/// Sends a request with these headers and returns the whole answer.
pub(crate) async fn raw(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &str) -> String {
    exchange(TcpStream::connect(address).await.unwrap(), line, headers, body).await
}

async fn exchange(mut socket: TcpStream, line: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut request = format!("{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    socket.write_all(format!("{request}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn browser_exchanges_a_token_for_a_cookie() {
    let it = with_token();
    let address = served(it.router.clone()).await;
    let host = ("host", "driftless.example");
    let html = ("accept", "text/html,*/*");
    let asked = raw(address, "GET /applications/shop", &[host, html], "").await;
    assert!(asked.starts_with("HTTP/1.1 401") && !asked.contains("www-authenticate"), "{asked}");
    assert!(
        asked.contains(r#"action="../login""#) && asked.contains(r#"value="applications/shop""#),
        "{asked}"
    );
    let origin = ("origin", "https://driftless.example");
    let wrong = raw(address, "POST /login", &[host, origin], "token=wrong-wrong-wrong-wrong").await;
    assert!(wrong.starts_with("HTTP/1.1 401") && wrong.contains("This token is wrong."), "{wrong}");
    let foreign = [host, ("origin", "https://evil.example")];
    let body = format!("token={CONFIGURED}&next=applications%2Fshop");
    assert!(raw(address, "POST /login", &foreign, &body).await.starts_with("HTTP/1.1 403"));
    let welcome = raw(address, "POST /login", &[host, origin], &body).await;
    assert!(
        welcome.starts_with("HTTP/1.1 303") && welcome.contains("location: ./applications/shop\r\n"),
        "{welcome}"
    );
    let cookie = welcome.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Secure"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let cookie = ("cookie", cookie.split(';').next().unwrap());
    assert!(raw(address, "GET /", &[host, cookie], "").await.starts_with("HTTP/1.1 200"));
    let sync = "POST /api/v1/applications/shop/sync";
    assert!(
        raw(address, sync, &[host, cookie], "").await.starts_with("HTTP/1.1 403"),
        "no page says it sent this"
    );
    assert!(raw(address, sync, &[host, cookie, foreign[1]], "").await.starts_with("HTTP/1.1 403"));
    assert!(raw(address, sync, &[host, cookie, origin], "").await.starts_with("HTTP/1.1 202"));
    let forged = ("cookie", "driftless_session=dG9rZW5GaWxl.99999999999999.AAAA");
    assert!(raw(address, "GET /", &[host, forged], "").await.starts_with("HTTP/1.1 401"));
    // A browser sends no cookie with a link of another site, but with the request that follows.
    let mut link = vec![host, html, ("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document")];
    link.push(("sec-fetch-mode", "navigate"));
    let followed = raw(address, "GET /applications/shop?lines=50&to=12%3A00", &link, "").await;
    let place = "login?next=applications/shop?lines=50%26to=12%253A00";
    assert!(followed.contains(&format!("refresh: 0;url=../{place}\r\n")), "{followed}");
    let next = raw(address, &format!("GET /{place}"), &[host, html, cookie], "").await;
    assert!(next.contains("location: ./applications/shop?lines=50&to=12%3A00\r\n"), "{next}");
    for credentials in [&[host, html][..], &[host, html, forged][..]] {
        let form = raw(address, &format!("GET /{place}"), credentials, "").await;
        assert!(form.starts_with("HTTP/1.1 200") && form.contains("name=\"token\""), "{form}");
    }
    let evil = raw(address, "GET /login?next=//evil.example", &[host, html, cookie], "").await;
    assert!(evil.starts_with("HTTP/1.1 200") && !evil.contains("location:"), "{evil}");
    let bye = raw(address, "POST /logout", &[host, cookie, origin], "").await;
    assert!(bye.contains("driftless_session=;") && bye.contains("Max-Age=0"), "{bye}");
    let asked = it.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    let audit = it.store.audit(None, 10, None).unwrap();
    let actions: Vec<&str> = audit.iter().rev().map(|it| it.action.as_str()).collect();
    assert_eq!(actions, ["login", "sync", "logout"]);
    assert!(audit.iter().all(|it| it.from == "127.0.0.1"));
}

#[tokio::test]
async fn form_sent_after_the_session_leads_back_to_its_question() {
    let it = with_token();
    let address = served(it.router.clone()).await;
    let host = ("host", "driftless.example");
    let html = ("accept", "text/html,*/*");
    let origin = ("origin", "https://driftless.example");
    let restart = "POST /applications/shop/restart?workload=web";
    let ended = raw(address, restart, &[host, html, origin], "workload=web").await;
    assert!(ended.starts_with("HTTP/1.1 401") && !ended.contains("www-authenticate"), "{ended}");
    let next = "value=\"applications/shop/restart?workload=web\"";
    for part in ["Nothing was done", next, "action=\"../../login\""] {
        assert!(ended.contains(part), "{part} in {ended}");
    }
    let bye = raw(address, "POST /logout", &[host, html, origin], "").await;
    assert!(bye.contains("name=\"next\" value=\"\"") && !bye.contains("asked again"), "{bye}");
    let reloaded = raw(address, "GET /logout", &[host, html], "").await;
    assert!(reloaded.contains("name=\"next\" value=\"\""), "the address is no page: {reloaded}");
    let foreign = ("origin", "https://evil.example");
    for (line, origin) in [("POST /api/v1/applications/shop/sync", origin), (restart, foreign)] {
        let refused = raw(address, line, &[host, html, origin], "workload=web").await;
        assert!(refused.contains("www-authenticate") && refused.contains("\"unauthorized\""), "{refused}");
    }
    assert_eq!(it.asked.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn script_of_a_page_opens_no_password_dialog() {
    let it = with_token();
    let address = served(it.router.clone()).await;
    let host = ("host", "driftless.example");
    let (cookie, accept) = (("cookie", "driftless_session=ended"), ("accept", "*/*"));
    for (mode, has_challenge) in [("cors", false), ("same-origin", false), ("navigate", true)] {
        let headers = [host, cookie, accept, ("sec-fetch-mode", mode)];
        let logs = "GET /api/v1/applications/shop/instances/shop-web-1/logs";
        let refused = raw(address, logs, &headers, "").await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
        assert_eq!(refused.contains("www-authenticate"), has_challenge, "{mode}: {refused}");
    }
    let client = raw(address, "GET /api/v1/applications", &[host, accept], "").await;
    assert!(client.contains("www-authenticate"), "{client}");
}

#[tokio::test]
async fn refusals_and_unknown_addresses_are_pages_in_a_browser() {
    let it = with_token();
    let reader = it.create(r#"{"name": "reader", "scopes": ["read"]}"#).await;
    let address = served(it.router.clone()).await;
    let bearer = format!("Bearer {reader}");
    let ask = async |line: &str, accept: &str| {
        let headers = [("host", "driftless.example"), ("accept", accept), ("authorization", bearer.as_str())];
        raw(address, line, &headers, "").await
    };
    for (line, status, title) in [
        ("GET /audit", 403, "Not allowed"),
        ("POST /applications/shop/sync", 403, "Not allowed"),
        ("GET /app/x", 404, "Not found"),
        ("GET /logout", 405, "Refused"),
        ("POST /auth/login", 405, "Refused"),
    ] {
        let page = ask(line, "text/html,*/*").await;
        assert!(page.starts_with(&format!("HTTP/1.1 {status}")), "{page}");
        assert!(page.contains(&format!("<h1>{title}</h1>")) && page.contains(">All applications<"), "{page}");
        let json = ask(line, "*/*").await;
        assert!(json.starts_with(&format!("HTTP/1.1 {status}")) && json.contains("\"error\""), "{json}");
    }
    let json = ask("GET /api/v1/tokens", "text/html").await;
    assert!(json.contains("\"forbidden\"") && !json.contains("<h1>"), "{json}");
}

#[tokio::test]
async fn session_ends_with_its_token() {
    let it = with_token();
    let secret = it.create(r#"{"name": "ada", "scopes": ["read"]}"#).await;
    let address = served(it.router.clone()).await;
    let host = ("host", "driftless.example");
    let welcome = raw(address, "POST /login", &[host], &format!("token={secret}")).await;
    let cookie = welcome.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(!cookie.contains("Secure"), "the page was not opened with TLS");
    let cookie = ("cookie", cookie.split(';').next().unwrap());
    assert!(raw(address, "GET /", &[host, cookie], "").await.starts_with("HTTP/1.1 200"));
    it.send("DELETE", "/api/v1/tokens/ada", CONFIGURED, "").await;
    assert!(raw(address, "GET /", &[host, cookie], "").await.starts_with("HTTP/1.1 401"));
}

/// Streams that are open with these credentials.
async fn open_streams(router: &Router, (name, value): (&str, &str)) -> Vec<Body> {
    let mut streams = Vec::new();
    for path in ["/api/v1/events", "/?v=0", "/api/v1/applications/shop/instances/shop-web-1/logs?follow=true"]
    {
        let request = Request::get(path).header("host", "driftless.example");
        let request = request.header("accept", "text/event-stream").header(name, value);
        let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        streams.push(response.into_body());
    }
    streams
}

/// Whether a stream has ended, once all that it had to send was read.
fn has_ended(stream: &mut Body) -> bool {
    loop {
        match stream.frame().now_or_never() {
            Some(Some(_)) => {}
            Some(None) => return true,
            None => return false,
        }
    }
}

#[tokio::test]
async fn streams_end_with_their_token_and_session() {
    let it = with_token();
    let secret = it.create(r#"{"name": "ada", "scopes": ["read"]}"#).await;
    it.create(r#"{"name": "eve", "scopes": ["read"]}"#).await;
    let address = served(it.router.clone()).await;
    let welcome =
        raw(address, "POST /login", &[("host", "driftless.example")], &format!("token={secret}")).await;
    let cookie = welcome.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let bearer = format!("Bearer {secret}");
    let mut streams = open_streams(&it.router, ("authorization", &bearer)).await;
    streams.extend(open_streams(&it.router, ("cookie", cookie.split(';').next().unwrap())).await);
    let mut others = open_streams(&it.router, ("authorization", &format!("Bearer {CONFIGURED}"))).await;
    assert_eq!(it.status("DELETE", "/api/v1/tokens/eve", CONFIGURED).await, StatusCode::NO_CONTENT);
    let ended: Vec<bool> = streams.iter_mut().chain(&mut others).map(has_ended).collect();
    assert_eq!(ended, [false; 9], "another token was revoked");
    assert_eq!(it.status("DELETE", "/api/v1/tokens/ada", CONFIGURED).await, StatusCode::NO_CONTENT);
    assert!(streams.iter_mut().all(has_ended), "their token was revoked");
    assert!(!others.iter_mut().any(has_ended), "the token of the configuration is valid");
}

#[tokio::test(start_paused = true)]
async fn streams_end_when_their_token_expires() {
    let it = with_token();
    let secret = it.create(r#"{"name": "ada", "scopes": ["read"], "expiresIn": "1s"}"#).await;
    let mut streams = open_streams(&it.router, ("authorization", &format!("Bearer {secret}"))).await;
    let mut cut_off = Vec::new();
    for stream in &mut streams {
        let mut has_error = false;
        while let Some(frame) = stream.frame().await {
            has_error |= frame.is_err();
        }
        cut_off.push(has_error);
    }
    assert_eq!(cut_off, [false, false, true], "a log that was cut off does not look complete");
    assert_eq!(it.status("GET", "/api/v1/agent", &secret).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn log_out_ends_the_session_on_the_server() {
    let it = with_token();
    let address = served(it.router.clone()).await;
    let host = ("host", "driftless.example");
    let log_in = async || {
        let welcome = raw(address, "POST /login", &[host], &format!("token={CONFIGURED}")).await;
        let cookie = welcome.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().to_owned();
        cookie.split(';').next().unwrap().to_owned()
    };
    let ended = log_in().await;
    let mut other = log_in().await;
    while other == ended {
        other = log_in().await;
    }
    let mut streams = open_streams(&it.router, ("cookie", &ended)).await;
    let origin = ("origin", "http://driftless.example");
    let bye = raw(address, "POST /logout", &[host, ("cookie", &ended), origin], "").await;
    assert!(bye.starts_with("HTTP/1.1 303"), "{bye}");
    assert!(streams.iter_mut().all(has_ended));
    let restarted = served((it.restarted)()).await;
    for address in [address, restarted] {
        let get = async |cookie| raw(address, "GET /api/v1/agent", &[host, ("cookie", cookie)], "").await;
        assert!(get(&ended).await.starts_with("HTTP/1.1 401"), "the session has ended");
        assert!(get(&other).await.starts_with("HTTP/1.1 200"), "another session goes on");
    }
}

#[tokio::test]
async fn digest_in_the_database_opens_no_session() {
    let it = with_token();
    let secret = it.create(r#"{"name": "ada", "scopes": ["admin"]}"#).await;
    let address = served(it.router.clone()).await;
    let host = ("host", "driftless.example");
    let welcome = raw(address, "POST /login", &[host], &format!("token={secret}")).await;
    let cookie = welcome.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let value = cookie.split(';').next().unwrap();
    let [name, end, _] = value.splitn(3, '.').collect::<Vec<_>>()[..] else { panic!("{value}") };
    // A copy of the database contains the digest.
    let (digest, _) = it.store.tokens().unwrap().remove(0);
    let mac = hmac_of("sha256", &hex(digest.as_bytes()), format!("driftless session {end} ada").as_bytes());
    let forged = format!("{name}.{end}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac));
    assert!(raw(address, "GET /", &[host, ("cookie", value)], "").await.starts_with("HTTP/1.1 200"));
    assert!(raw(address, "GET /", &[host, ("cookie", &forged)], "").await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn wrong_tokens_are_limited_by_address() {
    let it = with_token();
    let address = served(it.router.clone()).await;
    let wrong = [("host", "a.example"), ("authorization", "Bearer wrong-wrong-wrong")];
    let mut answers = Vec::new();
    for _ in 0..14 {
        answers.push(raw(address, "GET /api/v1/applications", &wrong, "").await);
    }
    assert!(answers[0].starts_with("HTTP/1.1 401"), "{}", answers[0]);
    let last = answers.last().unwrap();
    assert!(last.starts_with("HTTP/1.1 429") && last.contains("retry-after: "), "{last}");
    let page = raw(address, "GET /", &[wrong[0], wrong[1], ("accept", "text/html")], "").await;
    assert!(page.starts_with("HTTP/1.1 429") && page.contains("<h1>Refused</h1>"), "{page}");
    assert!(page.contains("retry-after: "), "{page}");
    let form = raw(address, "POST /login", &[wrong[0]], "token=x").await;
    assert!(form.starts_with("HTTP/1.1 429"), "{form}");
    assert_eq!(it.store.audit(None, 10, None).unwrap(), [], "nobody fills the audit without a token");
}

fn proxy(text: &str) -> TrustedProxy {
    let text = format!("repositories: [{{url: https://git.example.com/a}}]\ntrustedProxy: {text}");
    Settings::parse("driftless.yaml", &text).unwrap().trusted_proxy.unwrap()
}

#[tokio::test]
async fn trusted_proxy_names_the_person() {
    let trusted = proxy(
        "{from: [127.0.0.1], groups: [{name: ops, scopes: [admin]}, {name: dev, scopes: ['act:app/shop']}]}",
    );
    let it = fixture(Access::closed().with_proxy(Some(trusted)));
    let address = served(it.router.clone()).await;
    let host = ("host", "driftless.example");
    let user = ("remote-user", "ada");
    let (sync_shop, sync_blog) =
        ("POST /api/v1/applications/shop/sync", "POST /api/v1/applications/blog/sync");
    let dev = [host, user, ("remote-groups", "guests, dev"), ("x-forwarded-for", "192.0.2.66, 203.0.113.7")];
    assert!(raw(address, sync_shop, &dev, "").await.starts_with("HTTP/1.1 202"));
    assert!(raw(address, sync_blog, &dev, "").await.starts_with("HTTP/1.1 403"));
    let none = raw(address, "GET /api/v1/applications", &[host, user, ("remote-groups", "guests")], "").await;
    assert!(none.starts_with("HTTP/1.1 403") && none.contains("trustedProxy.groups"), "{none}");
    assert!(raw(address, "GET /api/v1/applications", &[host], "").await.starts_with("HTTP/1.1 401"));
    let twice = [host, user, ("remote-user", "root"), ("remote-groups", "ops")];
    assert!(raw(address, sync_blog, &twice, "").await.starts_with("HTTP/1.1 401"), "two users are none");
    let entry = it.store.audit(None, 10, None).unwrap().pop().unwrap();
    assert_eq!(entry.actor, Actor::new(ActorKind::User, "ada"));
    assert_eq!(entry.from, "203.0.113.7", "the nearest proxy names the client");

    // The same headers of a client that is no proxy say nothing.
    let elsewhere = proxy("{from: [192.0.2.0/24], groups: [{name: '*', scopes: [admin]}]}");
    let it = fixture(Access::closed().with_proxy(Some(elsewhere)));
    let address = served(it.router.clone()).await;
    assert!(raw(address, sync_shop, &dev, "").await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn proxy_on_loopback_never_acts_as_its_own_user() {
    for network in ["127.0.0.1", "0.0.0.0/0", "::/0", "::ffff:127.0.0.1"] {
        let mut program = Program::new();
        let socket = program.path("agent.sock");
        program.configure(&format!(
            "- {{url: /srv/none/infra.git}}\nsocket: {}\ntrustedProxy: {{from: ['{network}'], groups: [{{name: ops, scopes: [admin]}}]}}\n",
            socket.display()
        ));
        let config = program.path("driftless.yaml").display().to_string();
        program.start(&["run", "--config", &config], &[]);
        assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");
        let address = SocketAddr::from(([127, 0, 0, 1], program.port));
        let (host, ada, ops) = (("host", "localhost"), ("remote-user", "ada"), ("remote-groups", "ops"));
        for headers in [
            &[host][..],
            &[host, ops],
            &[host, ("remote-user", ""), ops],
            &[host, ada, ("remote-user", "eve"), ops],
        ] {
            let answer = raw(address, "GET /api/v1/whoami", headers, "").await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{network} {headers:?}: {answer}");
        }
        // The password that the proxy has asked the person for is none of the agent's.
        let password = ("authorization", "Basic YWRhOnNlY3JldA==");
        let person = raw(address, "GET /api/v1/whoami", &[host, ada, ops, password], "").await;
        // No request over IPv4 comes from a network of IPv6.
        let is_known = network != "::/0";
        assert_eq!(person.contains(r#""name":"ada""#), is_known, "{network}: {person}");
        let (code, text) = program.client(&["status"]).await;
        assert!(code == 2 && text.contains("requires a token"), "{text}");
        let (code, text) =
            program.client(&["status", "--server", &format!("unix://{}", socket.display())]).await;
        assert_eq!(code, 0, "{text}");
        program.end().await;
    }
}

/// An address of this machine that is not on loopback. Nothing is sent to find it.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[tokio::test]
async fn request_of_the_proxy_is_never_a_local_one() {
    let Some(own) = own_address() else {
        return skip("network", "this machine has no address but that of loopback");
    };
    let trusted = proxy(&format!("{{from: ['{own}'], groups: [{{name: ops, scopes: [read]}}]}}"));
    let it = fixture(Access::loopback().with_proxy(Some(trusted)));
    let address = served(it.router.clone()).await;
    let whoami = async |from: IpAddr| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from, 0)).unwrap();
        let socket = socket.connect(address).await.unwrap();
        exchange(socket, "GET /api/v1/whoami", &[("host", "localhost")], "").await
    };
    assert!(whoami(own).await.starts_with("HTTP/1.1 401"), "the proxy names nobody");
    assert!(whoami(address.ip()).await.starts_with("HTTP/1.1 200"), "another program of this machine");
}
