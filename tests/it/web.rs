//! The API and the page through the router, and the server's limits through real sockets.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body};
use base64::{Engine, prelude::BASE64_STANDARD};
use driftless_agent::{Answer, Readiness, RequestKind, Rollback};
use driftless_model::{
    Answered, AppName, Application, Event, HealthStatus, Removal, RepositoryStatus, Until, WorkloadStatus,
};
use driftless_web::{Access, Token, router, serve};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tower::ServiceExt;

use crate::sample::{self, agent, answer, blog, shop};

type Seen = Arc<Mutex<Vec<(AppName, RequestKind)>>>;

/// A router with an agent behind it that answers.
fn answering() -> (Router, Seen) {
    let seen = Seen::default();
    let sample::Agent { handle, store, inbox } = agent([shop(), blog()]);
    tokio::spawn(answer(inbox, seen.clone()));
    (router(handle, store, Access::loopback()), seen)
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).header("host", "localhost:8484").body(Body::empty()).unwrap()
}

fn with(path: &str, headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = get(path);
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

fn post(path: &str, body: &str) -> Request<Body> {
    Request::post(path).header("host", "127.0.0.1:8484").body(Body::from(body.to_owned())).unwrap()
}

async fn ask(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn json(response: Response<Body>) -> Value {
    serde_json::from_str(&text(response).await).unwrap()
}

/// Checks an error's status and form, and returns its code.
async fn error(response: Response<Body>, status: StatusCode) -> String {
    assert_eq!(response.status(), status);
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = json(response).await;
    assert!(!body["error"]["message"].as_str().unwrap().is_empty(), "{body}");
    body["error"]["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn applications_are_served_as_they_were_published() {
    let (router, _) = answering();
    let list = json(ask(&router, get("/api/v1/applications")).await).await;
    let list: Vec<Application> = serde_json::from_value(list).unwrap();
    assert_eq!(list, [blog(), shop()]);
    let one = json(ask(&router, get("/api/v1/applications/shop")).await).await;
    assert_eq!(one["status"]["observedGeneration"], 4);
    assert_eq!(one["status"]["conditions"][0]["type"], "Available");
    assert_eq!(serde_json::from_value::<Application>(one).unwrap(), shop());
}

#[tokio::test]
async fn summaries_have_counts_instead_of_workloads() {
    let (router, _) = answering();
    let list = json(ask(&router, get("/api/v1/applications?view=summary")).await).await;
    let shop = &list[1];
    assert_eq!(shop["name"], "shop");
    assert_eq!(shop["status"]["workloads"], serde_json::json!({}));
    assert_eq!(shop["status"]["message"], self::shop().status.message);
    let workloads = &self::shop().status.workloads;
    let count = |of: fn(&WorkloadStatus) -> u32| workloads.values().map(of).sum::<u32>();
    assert_eq!(shop["replicas"], count(|it| it.replicas));
    assert_eq!(shop["readyReplicas"], count(|it| it.ready_replicas));
    let parsed: Vec<Application> = serde_json::from_value(list).unwrap();
    assert_eq!(parsed[1], self::shop().summary());
    let wrong = ask(&router, get("/api/v1/applications?view=half")).await;
    assert_eq!(error(wrong, StatusCode::BAD_REQUEST).await, "malformed");
}

#[tokio::test]
async fn unchanged_json_is_answered_with_not_modified() {
    let (router, _) = answering();
    let path = "/api/v1/applications";
    let tag = ask(&router, get(path)).await.headers()["etag"].clone();
    let again = with(path, &[("if-none-match", tag.to_str().unwrap())]);
    let again = ask(&router, again).await;
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(again.headers()["etag"], tag);
    assert!(again.into_body().collect().await.unwrap().to_bytes().is_empty());
    let other = with("/api/v1/applications/shop", &[("if-none-match", tag.to_str().unwrap())]);
    assert_eq!(ask(&router, other).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn answers_are_compressed_for_clients_that_accept_it() {
    let (router, _) = answering();
    for path in ["/api/v1/applications", "/"] {
        let plain = ask(&router, get(path)).await;
        assert!(!plain.headers().contains_key("content-encoding"), "{path}");
        assert_eq!(plain.headers()["vary"], "accept-encoding");
        let plain = plain.into_body().collect().await.unwrap().to_bytes();
        let packed = ask(&router, with(path, &[("accept-encoding", "br, gzip")])).await;
        assert_eq!(packed.headers()["content-encoding"], "gzip", "{path}");
        let packed = packed.into_body().collect().await.unwrap().to_bytes();
        assert!(packed.len() < plain.len());
        let unpacked = std::io::read_to_string(flate2::read::GzDecoder::new(&packed[..])).unwrap();
        if path != "/" {
            assert_eq!(unpacked.as_bytes(), plain);
        }
    }
    // A stream is sent as it comes.
    let events = with("/api/v1/events", &[("accept", "text/event-stream"), ("accept-encoding", "gzip")]);
    assert!(!ask(&router, events).await.headers().contains_key("content-encoding"));
}

#[tokio::test]
async fn errors_are_json_with_a_fitting_status() {
    let (router, _) = answering();
    let unknown = ask(&router, get("/api/v1/applications/nothing")).await;
    assert_eq!(error(unknown, StatusCode::NOT_FOUND).await, "noSuchApplication");
    for below in ["/revisions", "/plan"] {
        let unknown = ask(&router, get(&format!("/api/v1/applications/nothing{below}"))).await;
        assert_eq!(error(unknown, StatusCode::NOT_FOUND).await, "noSuchApplication");
    }
    let nowhere = ask(&router, get("/api/v2")).await;
    assert_eq!(error(nowhere, StatusCode::NOT_FOUND).await, "noSuchRoute");
    let method = ask(&router, post("/api/v1/applications", "")).await;
    assert_eq!(method.headers()["allow"], "GET,HEAD");
    assert_eq!(error(method, StatusCode::METHOD_NOT_ALLOWED).await, "noSuchMethod");
    let method = ask(&router, get("/api/v1/applications/shop/sync")).await;
    assert_eq!(error(method, StatusCode::METHOD_NOT_ALLOWED).await, "noSuchMethod");
    let refused = ask(&router, post("/api/v1/applications/shop/suspend", "")).await;
    assert_eq!(error(refused, StatusCode::CONFLICT).await, "refused");
    let name = ask(&router, get("/api/v1/applications/%ff")).await;
    assert_eq!(error(name, StatusCode::BAD_REQUEST).await, "malformed");
    let query = ask(&router, get("/api/v1/events?after=soon")).await;
    assert_eq!(error(query, StatusCode::BAD_REQUEST).await, "malformed");
}

#[tokio::test]
async fn every_route_in_the_documentation_is_there() {
    let (router, _) = answering();
    let documentation = include_str!("../../docs/api.md");
    let rows = documentation.lines().filter_map(|it| it.strip_prefix("| `")?.split_once('`'));
    let routes: Vec<_> = rows.filter_map(|(row, _)| row.split_once(" /")).collect();
    assert_eq!(routes.len(), 67);
    for (method, path) in routes {
        let path = format!("/{}", path.replace("{name}", "shop"));
        let path = path
            .replace("{id}", "0a1b2c3d4e5f")
            .replace("{workload}", "web")
            .replace("{instance}", "shop-web-1");
        let request = Request::builder().method(method).uri(&path).header("host", "localhost");
        let answer = ask(&router, request.body(Body::empty()).unwrap()).await;
        let (status, answer) = (answer.status(), text(answer).await);
        let is_missing = answer.contains("noSuchRoute") || answer.contains("noSuchMethod");
        assert!(!is_missing, "{method} {path}: {status}");
    }
}

#[tokio::test]
async fn stopped_agent_answers_that_it_has_stopped() {
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    drop(inbox);
    let router = router(handle, store, Access::loopback());
    let stopping = ask(&router, post("/api/v1/applications/shop/sync", "")).await;
    assert_eq!(error(stopping, StatusCode::SERVICE_UNAVAILABLE).await, "stopping");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_answer_is_not_waited_for_for_ever() {
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    let router = router(handle, store, Access::loopback());
    let slow = ask(&router, post("/api/v1/applications/shop/sync", "")).await;
    assert_eq!(error(slow, StatusCode::GATEWAY_TIMEOUT).await, "tooSlow");
    drop(inbox);
}

#[tokio::test]
async fn request_of_the_page_reaches_the_agent() {
    let (router, seen) = answering();
    let sync = ask(&router, post("/api/v1/applications/shop/sync", "")).await;
    assert_eq!(sync.status(), StatusCode::ACCEPTED);
    assert_eq!(json(sync).await["accepted"], true);
    let accepted = ask(&router, post("/api/v1/applications/shop/accept-rewrite", "")).await;
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);
    let pruned = ask(&router, post("/api/v1/applications/shop/prune", "")).await;
    assert_eq!(pruned.status(), StatusCode::ACCEPTED);
    for path in ["heal", "remove", "remove?volumes=true"] {
        let accepted = ask(&router, post(&format!("/api/v1/applications/shop/{path}"), "")).await;
        assert_eq!(accepted.status(), StatusCode::ACCEPTED, "{path}");
    }
    let unknown = ask(&router, post("/api/v1/applications/shop/remove?volume=true", "")).await;
    assert_eq!(unknown.status(), StatusCode::BAD_REQUEST);
    let body = r#"{"to": "2", "reason": "orders fail", "until": "next-commit"}"#;
    let rollback = json(ask(&router, post("/api/v1/applications/blog/rollback", body)).await).await;
    assert_eq!(rollback["pin"]["revision"], 2);
    assert_eq!(rollback["pin"]["until"], "nextCommit");
    ask(&router, post("/api/v1/applications/blog/rollback", "")).await;
    ask(&router, post("/api/v1/applications/blog/resume", "")).await;
    let plan = json(ask(&router, get("/api/v1/applications/blog/plan")).await).await;
    assert_eq!(plan["rounds"][1].as_array().unwrap().len(), 2);
    let settings = json(ask(&router, get("/api/v1/applications/blog/settings")).await).await;
    assert_eq!(settings[0]["origin"]["line"], 3);
    let rollback = |to: Option<&str>, reason: &str, until| {
        let (to, reason) = (to.map(str::to_owned), reason.to_owned());
        RequestKind::Rollback(Rollback { to, reason, until })
    };
    assert_eq!(
        *seen.lock().unwrap(),
        [
            ("shop".into(), RequestKind::Sync),
            ("shop".into(), RequestKind::AcceptRewrite(None)),
            ("shop".into(), RequestKind::Prune),
            ("shop".into(), RequestKind::Heal),
            ("shop".into(), RequestKind::Remove(Removal::KeepVolumes)),
            ("shop".into(), RequestKind::Remove(Removal::WithVolumes)),
            ("blog".into(), rollback(Some("2"), "orders fail", Until::NextCommit)),
            ("blog".into(), rollback(None, "", Until::Manual)),
            ("blog".into(), RequestKind::Resume),
            ("blog".into(), RequestKind::Plan),
            ("blog".into(), RequestKind::Settings),
        ]
    );
}

#[tokio::test]
async fn invalid_body_is_rejected_before_it_reaches_the_agent() {
    let (router, seen) = answering();
    let path = "/api/v1/applications/shop/rollback";
    for body in ["{", "[]", r#"{"too": 1}"#, r#"{"to": 3}"#, r#"{"until": "soon"}"#, "\u{0}"] {
        let response = ask(&router, post(path, body)).await;
        assert_eq!(error(response, StatusCode::BAD_REQUEST).await, "malformed", "{body}");
    }
    let long = format!(r#"{{"reason": "{}"}}"#, "x".repeat(64 * 1024));
    let response = ask(&router, post(path, &long)).await;
    assert_eq!(error(response, StatusCode::PAYLOAD_TOO_LARGE).await, "bodyTooLarge");
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn without_a_token_only_loopback_host_names_are_served() {
    let (router, _) = answering();
    for host in ["evil.example", "localhost.evil.example:8484", "192.0.2.1:8484", ""] {
        let request = Request::get("/").header("host", host).body(Body::empty()).unwrap();
        assert_eq!(error(ask(&router, request).await, StatusCode::FORBIDDEN).await, "forbidden");
    }
    for host in ["localhost", "127.0.0.1:8484", "[::1]:8484"] {
        let request = Request::get("/").header("host", host).body(Body::empty()).unwrap();
        assert_eq!(ask(&router, request).await.status(), StatusCode::OK, "{host}");
    }
}

#[tokio::test]
async fn a_page_of_another_origin_may_not_act() {
    let (router, seen) = answering();
    for (name, value) in
        [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
    {
        let mut request = post("/api/v1/applications/shop/sync", "");
        request.headers_mut().insert(name, value.parse().unwrap());
        assert_eq!(error(ask(&router, request).await, StatusCode::FORBIDDEN).await, "forbidden");
    }
    assert!(seen.lock().unwrap().is_empty());
    let mut own = post("/api/v1/applications/shop/sync", "");
    own.headers_mut().insert("origin", "http://127.0.0.1:8484".parse().unwrap());
    assert_eq!(ask(&router, own).await.status(), StatusCode::ACCEPTED);
}

#[tokio::test]
async fn proxy_that_changes_the_host_is_named_on_a_page() {
    let (router, seen) = answering();
    let request = |path: &str, accept: &str| {
        let request = Request::post(path).header("host", "127.0.0.1:8484").header("accept", accept);
        let request = request.header("origin", "https://driftless.example.com");
        request.header("sec-fetch-site", "same-origin").body(Body::empty()).unwrap()
    };
    for path in ["/login", "/applications/shop/sync"] {
        let refused = ask(&router, request(path, "text/html,*/*;q=0.8")).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path}");
        assert!(refused.headers()["content-type"].to_str().unwrap().starts_with("text/html"), "{path}");
        let page = text(refused).await;
        for part in ["https://driftless.example.com", "127.0.0.1:8484", "proxy_set_header Host $http_host;"] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
    let refused = ask(&router, request("/api/v1/applications/shop/sync", "*/*")).await;
    assert_eq!(error(refused, StatusCode::FORBIDDEN).await, "forbidden");
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn pages_of_another_origin_may_not_read() {
    let (router, _) = answering();
    for path in ["/api/v1/applications", "/api/v1/applications/shop/plan", "/api/v1/events"] {
        for site in ["cross-site", "same-site"] {
            let followed =
                [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
            let refused = ask(&router, with(path, &followed)).await;
            assert_eq!(error(refused, StatusCode::FORBIDDEN).await, "forbidden", "{path}");
        }
        let refused = ask(&router, with(path, &[("origin", "http://evil.example")])).await;
        assert_eq!(error(refused, StatusCode::FORBIDDEN).await, "forbidden", "{path}");
    }
    let cross =
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")];
    assert_eq!(ask(&router, with("/", &cross)).await.status(), StatusCode::FORBIDDEN);
    let link =
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let page = ask(&router, with("/", &link)).await;
    assert_eq!(
        (page.status(), &page.headers()["cross-origin-resource-policy"]),
        (StatusCode::OK, &"same-origin".parse().unwrap())
    );
    let own = ask(&router, with("/api/v1/applications", &[("sec-fetch-site", "same-origin")])).await;
    assert_eq!(own.status(), StatusCode::OK);
}

/// An application in its goal state, whose status answers the requests up to these numbers.
fn answered(message: &str, by_round: u64, by_fetch: u64) -> Application {
    let mut application = shop();
    application.status.message = message.to_owned();
    application.status.answered = Answered { by_round, by_fetch };
    application
}

#[tokio::test]
async fn wait_is_answered_by_the_status_of_this_very_sync() {
    let sample::Agent { handle, store, mut inbox } = agent([answered("before", 0, 0)]);
    let router = router(handle, store, Access::loopback());
    let posted = tokio::spawn({
        let router = router.clone();
        async move { json(ask(&router, post("/api/v1/applications/shop/sync", "")).await).await }
    });
    inbox.requests.recv().await.unwrap().reply.send(Ok(Answer::Accepted)).unwrap();
    let ticket = posted.await.unwrap()["ticket"].as_str().unwrap().to_owned();
    let number: u64 = ticket.strip_prefix("sync-").unwrap().parse().unwrap();

    let path = format!("/api/v1/applications/shop/wait?ticket={ticket}");
    let timed_out = json(ask(&router, get(&format!("{path}&within=1ms"))).await).await;
    assert_eq!(timed_out["reached"], false);
    let mut waiting = Box::pin(ask(&router, get(&path)));
    for (message, by_round, by_fetch) in
        [("older fetch", number, number - 1), ("older round", number - 1, number)]
    {
        sample::publish(&inbox, [answered(message, by_round, by_fetch)]);
        let answer = tokio::select! {
            biased;
            answer = &mut waiting => Some(answer),
            () = tokio::task::yield_now() => None,
        };
        assert!(answer.is_none(), "{message}");
    }
    sample::publish(&inbox, [answered("this very sync", number, number)]);
    let waited = json(waiting.await).await;
    assert_eq!(waited["reached"], true);
    assert_eq!(waited["application"]["status"]["message"], "this very sync");

    let future = ask(&router, get(&path.replace(&number.to_string(), &(number + 1).to_string()))).await;
    assert_eq!(error(future, StatusCode::BAD_REQUEST).await, "malformed");
    for wrong in ["ticket=7", "for=done", "within=2m", "within=soon", "until=now"] {
        let wrong = ask(&router, get(&format!("/api/v1/applications/shop/wait?{wrong}"))).await;
        assert_eq!(error(wrong, StatusCode::BAD_REQUEST).await, "malformed");
    }
}

#[tokio::test]
async fn failed_commit_is_not_synced_in_a_healthy_moment() {
    let mut application = answered("failed", 0, 0);
    application.status.obstacle = Some("aaaaaaaaaaaa failed".to_owned());
    let sample::Agent { handle, store, inbox } = agent([application.clone()]);
    let router = router(handle, store, Access::loopback());
    let wait = async |more: &str| {
        let path = format!("/api/v1/applications/shop/wait?within=1ms{more}");
        json(ask(&router, get(&path)).await).await
    };
    let waited = wait("").await;
    assert_eq!(waited["reached"], false);
    assert_eq!(waited["obstacle"], "aaaaaaaaaaaa failed");
    // It keeps nobody from another state.
    let waited = wait("&for=healthy").await;
    assert_eq!(waited["reached"], true);
    assert_eq!(waited["obstacle"], Value::Null);
    // Without a state, the wait is for a change, and the caller judges it.
    let waited = wait("&for=").await;
    assert_eq!(
        (&waited["reached"], &waited["obstacle"]),
        (&Value::Bool(false), &"aaaaaaaaaaaa failed".into())
    );
    // The status is about an attempt before.
    application.generation += 1;
    sample::publish(&inbox, [application]);
    let waited = wait("").await;
    assert_eq!(waited["reached"], false);
    assert_eq!(waited["obstacle"], Value::Null);
}

#[tokio::test]
async fn stopped_job_or_rollout_is_no_reason_to_wait() {
    let suspended = |reason: &str, available: u32| {
        let mut application = answered("", 0, 0);
        application.status.health = HealthStatus::Suspended;
        let web = Arc::make_mut(&mut application.status.workloads).get_mut(&"web".into()).unwrap();
        (web.health, web.available_replicas) = (HealthStatus::Suspended, available);
        reason.clone_into(&mut web.reason);
        application
    };
    let mut left = suspended("JobSuspended", 0);
    left.spec.policy.suspended = true;
    for (application, is_reached) in [
        (suspended("JobSuspended", 0), true),
        (suspended("Paused", 2), true),
        (suspended("Paused", 1), false),
        (suspended("NotAdopted", 2), false),
        (left, false),
    ] {
        let said = format!("{application:?}");
        let sample::Agent { handle, store, inbox: _inbox } = agent([application]);
        let router = router(handle, store, Access::loopback());
        let waited = json(ask(&router, get("/api/v1/applications/shop/wait?within=1ms")).await).await;
        assert_eq!(waited["reached"], is_reached, "{said}");
    }
}

#[tokio::test]
async fn wait_is_answered_when_the_status_changes() {
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    let router = router(handle, store, Access::loopback());
    let path = "/api/v1/applications/shop/wait?for=&seen=";
    let first = json(ask(&router, get(path)).await).await;
    assert_eq!(first["reached"], false);
    let path = format!("{path}{}", first["version"].as_str().unwrap());
    let mut waiting = Box::pin(ask(&router, get(&path)));
    // Another application is no change of this one.
    sample::publish(&inbox, [shop(), blog()]);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("nothing has changed"),
        () = tokio::task::yield_now() => {}
    }
    sample::publish(&inbox, [answered("changed", 0, 0)]);
    assert_eq!(json(waiting.await).await["application"]["status"]["message"], "changed");
    let path = path.replace("shop", "nothing");
    assert_eq!(error(ask(&router, get(&path)).await, StatusCode::NOT_FOUND).await, "noSuchApplication");
}

#[tokio::test]
async fn known_application_is_awaited_while_the_agent_starts() {
    let sample::Agent { handle, store, inbox } = agent([blog()]);
    handle.unpublished().add("shop".into(), "infra".to_owned());
    store.append_event(sample::event("shop", "Started", "start container shop-web-1")).unwrap();
    let router = router(handle, store, Access::loopback());
    let path = "/api/v1/applications/shop";
    for request in [get(path), post(&format!("{path}/sync"), ""), get(&format!("{path}/wait?within=1ms"))] {
        let starting = ask(&router, request).await;
        assert_eq!(error(starting, StatusCode::SERVICE_UNAVAILABLE).await, "starting");
    }
    let page = || with("/applications/shop", &[("accept", "text/html")]);
    let starting = ask(&router, page()).await;
    assert_eq!(starting.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(starting.headers()["refresh"], "2");
    let shown = text(starting).await;
    assert!(shown.contains("has just started") && !shown.contains("is gone"), "{shown}");
    let waits = get(&format!("{path}/wait?for=healthy"));
    let mut waiting = Box::pin(ask(&router, waits));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    sample::publish(&inbox, [shop(), blog()]);
    assert_eq!(json(waiting.await).await["application"]["name"], "shop");
    assert_eq!(ask(&router, page()).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn waits_are_limited_and_free_their_seats() {
    let sample::Agent { handle, store, inbox } = agent([blog()]);
    let router = router(handle, store, Access::loopback());
    let path = "/api/v1/applications/blog/wait";
    let mut waiting: Vec<_> = (0..32).map(|_| Box::pin(ask(&router, get(path)))).collect();
    for wait in &mut waiting {
        assert!(futures_util::poll!(wait).is_pending());
    }
    let refused = ask(&router, get(path)).await;
    assert_eq!(error(refused, StatusCode::SERVICE_UNAVAILABLE).await, "busy");
    assert_eq!(ask(&router, get("/api/v1/applications/blog")).await.status(), StatusCode::OK);
    waiting.pop();
    let served = ask(&router, get(&format!("{path}?within=1ms"))).await;
    assert_eq!(served.status(), StatusCode::OK);
    drop(inbox);
    for wait in waiting {
        assert_eq!(error(wait.await, StatusCode::SERVICE_UNAVAILABLE).await, "stopping");
    }
}

#[tokio::test]
async fn streams_are_limited_and_leave_seats_for_requests() {
    let (router, _) = answering();
    let mut open = Vec::new();
    for _ in 0..64 {
        let response = ask(&router, stream("/api/v1/events", None)).await;
        assert_eq!(response.status(), StatusCode::OK);
        open.push(response);
    }
    let refused = ask(&router, stream("/api/v1/events", None)).await;
    assert_eq!(error(refused, StatusCode::SERVICE_UNAVAILABLE).await, "busy");
    assert_eq!(ask(&router, get("/api/v1/applications")).await.status(), StatusCode::OK);
    assert_eq!(ask(&router, get("/healthz")).await.status(), StatusCode::OK);
    open.pop();
    assert_eq!(ask(&router, stream("/api/v1/events", None)).await.status(), StatusCode::OK);

    // Answers that nobody reads hold no permit of a probe.
    let mut unread = Vec::new();
    let busy = loop {
        let response = ask(&router, get("/api/v1/applications")).await;
        if response.status() != StatusCode::OK {
            break response;
        }
        unread.push(response);
        assert!(unread.len() < 256, "there is no limit");
    };
    assert_eq!(error(busy, StatusCode::SERVICE_UNAVAILABLE).await, "busy");
    assert_eq!(ask(&router, get("/healthz")).await.status(), StatusCode::OK);
    drop(unread);
    assert_eq!(ask(&router, get("/api/v1/applications")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn without_the_token_only_health_is_served() {
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    let reason = "repository `secret-project` was never read".to_owned();
    inbox.readiness.send_replace(Readiness {
        docker: true,
        repositories: false,
        state: true,
        message: reason,
    });
    let token = "correct-horse-battery";
    let router = router(handle, store, Access::token(Token::new(token).unwrap()));
    for path in ["/", "/api/v1/applications", "/api/v1/events", "/nowhere"] {
        let response = ask(&router, get(path)).await;
        assert!(response.headers()["www-authenticate"].to_str().unwrap().starts_with("Basic"));
        assert_eq!(error(response, StatusCode::UNAUTHORIZED).await, "unauthorized");
    }
    assert_eq!(ask(&router, get("/healthz")).await.status(), StatusCode::OK);
    let unready = ask(&router, get("/readyz")).await;
    assert_eq!(unready.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(unready).await, "not ready\n");
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("me:{token}")));
    for value in [format!("Bearer {token}"), basic] {
        // Any name will do: it is the token that counts.
        let with = |path: &str| {
            let request = Request::get(path).header("host", "driftless.example");
            request.header("authorization", &value).body(Body::empty()).unwrap()
        };
        assert_eq!(ask(&router, with("/api/v1/applications")).await.status(), StatusCode::OK);
        assert!(text(ask(&router, with("/readyz")).await).await.contains("secret-project"));
    }
    let mut wrong = get("/");
    wrong.headers_mut().insert("authorization", "Bearer correct-horse-batterz".parse().unwrap());
    assert_eq!(ask(&router, wrong).await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn readiness_has_its_reason_and_health_needs_none() {
    let sample::Agent { handle, store, inbox } = agent([]);
    inbox.readiness.send_replace(Readiness {
        docker: false,
        state: true,
        repositories: true,
        message: "Docker does not answer".to_owned(),
    });
    let router = router(handle, store, Access::loopback());
    assert_eq!(text(ask(&router, get("/healthz")).await).await, "ok\n");
    let unready = ask(&router, get("/readyz")).await;
    assert_eq!(unready.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(unready).await, "not ready: Docker does not answer\n");
    let ready = Readiness { docker: true, repositories: true, state: true, message: String::new() };
    inbox.readiness.send_replace(ready);
    assert_eq!(ask(&router, get("/readyz")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn repository_errors_are_shown_without_applications() {
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    let repository = |name: &str, message: &str| RepositoryStatus {
        name: name.to_owned(),
        url: "https://git.example/infra.git".to_owned(),
        reference: "branch main".to_owned(),
        commit: None,
        history_length: None,
        applications: 0,
        message: message.to_owned(),
        reason: String::new(),
        fetched_at: None,
        next_fetch: None,
        keys: Vec::new(),
        hosts: Vec::new(),
    };
    let all = vec![repository("infra", ""), repository("lab", "there is no folder `sites` <here>")];
    inbox.repositories.send_replace(Arc::new(all.clone()));
    let router = router(handle, store, Access::loopback());
    let listed = json(ask(&router, get("/api/v1/repositories")).await).await;
    assert_eq!(serde_json::from_value::<Vec<RepositoryStatus>>(listed).unwrap(), all);
    let page = text(ask(&router, get("/")).await).await;
    assert!(page.contains("<b>Repository lab.</b> there is no folder `sites` &lt;here&gt;"), "{page}");
    assert!(!page.contains("<b>Repository infra"));
}

#[tokio::test]
async fn events_are_listed_in_order_by_place_and_by_application() {
    let agent = agent([shop(), blog()]);
    for number in 1..=5 {
        agent.happens(sample::event(if number % 2 == 0 { "blog" } else { "shop" }, "Started", "it runs"));
    }
    let router = router(agent.handle, agent.store, Access::loopback());
    let sequences = async |query: &str| {
        let list = json(ask(&router, get(&format!("/api/v1/events{query}"))).await).await;
        let list: Vec<Event> = serde_json::from_value(list).unwrap();
        list.into_iter().map(|it| it.sequence).collect::<Vec<_>>()
    };
    assert_eq!(sequences("").await, [1, 2, 3, 4, 5]);
    assert_eq!(sequences("?limit=2").await, [4, 5]);
    assert_eq!(sequences("?after=1&limit=2").await, [2, 3]);
    assert_eq!(sequences("?app=blog").await, [2, 4]);
    assert_eq!(sequences("?after=2&app=blog").await, [4]);
}

/// Reads a stream until it holds `wanted`.
async fn read_until(body: &mut Body, wanted: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(wanted) {
            let frame = body.frame().await.expect("the stream goes on").unwrap();
            text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("it arrives");
    text
}

fn stream(path: &str, last: Option<&str>) -> Request<Body> {
    let request = Request::get(path).header("host", "localhost").header("accept", "text/event-stream");
    let request = if let Some(last) = last { request.header("last-event-id", last) } else { request };
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_stream_begins_after_the_last_event_and_goes_on_live() {
    let agent = agent([shop(), blog()]);
    for message in ["one", "two", "three"] {
        agent.happens(sample::event("shop", "Started", message));
    }
    let router = router(agent.handle.clone(), agent.store.clone(), Access::loopback());
    let response = ask(&router, stream("/api/v1/events?after=1", Some("2"))).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let backlog = read_until(&mut body, "three").await;
    assert!(backlog.contains("id: 3\n") && !backlog.contains("two"), "{backlog}");
    agent.happens(sample::event("blog", "Started", "four"));
    assert!(read_until(&mut body, "four").await.contains("id: 4\n"));
}

#[tokio::test]
async fn event_stream_without_position_starts_now() {
    let agent = agent([shop(), blog()]);
    agent.happens(sample::event("shop", "Started", "old"));
    let router = router(agent.handle.clone(), agent.store.clone(), Access::loopback());
    let mut body = ask(&router, stream("/api/v1/events?app=shop", None)).await.into_body();
    agent.happens(sample::event("blog", "Started", "of another"));
    agent.happens(sample::event("shop", "Started", "new"));
    let seen = read_until(&mut body, "new").await;
    assert!(!seen.contains("old") && !seen.contains("of another"), "{seen}");
}

#[tokio::test]
async fn events_that_are_sent_out_of_order_arrive_in_order() {
    let agent = agent([shop()]);
    let router = router(agent.handle.clone(), agent.store.clone(), Access::loopback());
    let mut body = ask(&router, stream("/api/v1/events", None)).await.into_body();
    agent.happens(sample::event("shop", "Started", "first"));
    read_until(&mut body, "first").await;
    // Two tasks store an event each, and the second one is the first to send it.
    let store = |message| agent.store.append_event(sample::event("shop", "Started", message)).unwrap();
    let (second, third) = (store("second"), store("third"));
    agent.inbox.events.send(third).unwrap();
    agent.inbox.events.send(second).unwrap();
    let seen = read_until(&mut body, "third").await;
    assert!(seen.find("id: 2\n") < seen.find("id: 3\n") && seen.contains("second"), "{seen}");
    agent.happens(sample::event("shop", "Started", "fourth"));
    let seen = read_until(&mut body, "fourth").await;
    assert!(!seen.contains("second") && !seen.contains("third"), "each arrives once: {seen}");
}

#[tokio::test]
async fn a_client_that_falls_behind_misses_nothing() {
    let agent = agent([shop()]);
    let router = router(agent.handle.clone(), agent.store.clone(), Access::loopback());
    let mut body = ask(&router, stream("/api/v1/events", None)).await.into_body();
    // Far more than the live channel holds, while nobody reads.
    for number in 1..=700 {
        agent.happens(sample::event("shop", "Started", &format!("number {number}.")));
    }
    let seen = read_until(&mut body, "number 700.").await;
    let ids: Vec<u32> = seen.lines().filter_map(|it| it.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids, (1..=700).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_place_in_a_database_that_was_lost_is_not_waited_for() {
    let agent = agent([shop()]);
    agent.happens(sample::event("shop", "Started", "first"));
    let router = router(agent.handle.clone(), agent.store.clone(), Access::loopback());
    let mut body = ask(&router, stream("/api/v1/events", Some("9000"))).await.into_body();
    agent.happens(sample::event("shop", "Started", "second"));
    read_until(&mut body, "second").await;
}

/// A server on a free port, and how to end it.
async fn served(router: Router) -> (std::net::SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(serve(listener, router, async { drop(stopped.await) }));
    (address, stop, server)
}

#[tokio::test]
async fn an_open_stream_does_not_hold_up_the_end_of_the_server() {
    let agent = agent([shop()]);
    let (address, stop, server) = served(router(agent.handle, agent.store, Access::loopback())).await;
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; 15];
    socket.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    stop.send(()).unwrap();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "the stream is ended properly");
    server.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_client_that_never_ends_its_headers_is_dropped() {
    let agent = agent([shop()]);
    let (address, stop, server) = served(router(agent.handle, agent.store, Access::loopback())).await;
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nhost: local").await.unwrap();
    // Paused time jumps to the server's limit as soon as nobody has anything else to do.
    tokio::time::pause();
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest).await;
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
    drop(stop);
    server.await.unwrap();
}
