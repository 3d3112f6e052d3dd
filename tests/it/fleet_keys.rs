//! Enrolment in a fleet: invites, hosts that sign their reports with a key, requests that are repeated or changed, machines with
//! the name of another one, requests to hosts, and restarts of both sides. Hosts report over HTTP.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, response::IntoResponse};
use driftless_agent::{
    Answer, Enrolments, FleetTargets, Handle, Inbox, JoinError, ReportSource, Request as AgentRequest,
    RequestError, RequestSettings, fleet_hosts, join_fleet, leave_fleet, start_fleet_reports,
};
use driftless_clock::Clock;
use driftless_config::{Enrolment, Fleet, FleetPlace, FleetReports, PlaceKind, Secret};
use driftless_fleet::{
    AgentKey, HostReport, HostSignature, HostState, HostView, InviteToken, JoinRequest, SIGNATURE_HEADER,
    SignedParts, TargetStatus,
};
use driftless_git::Lookup;
use driftless_model::{Actor, AgentId, AuditResult, HostIdentity, HostRequestKind, Timestamp, digest_hex};
use driftless_store::{FleetInvite, JoinOutcome, JoiningHost, StateDir, Store};
use driftless_web::{Access, CreatedInvite, FleetKeys, Token, router, serve};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{
    fleet::{followed, until},
    ports::listen_again,
    sample::{publish, shop},
};

const CONFIGURED: &str = "0123456789abcdef0123456789abcdef";
/// The time between two heartbeats.
const EVERY: Duration = Duration::from_millis(200);
const NAS: &str = "/api/v1/fleet/hosts/nas";

/// A state directory that is locked, with its database.
struct State {
    _lock: StateDir,
    store: Store,
}

impl State {
    fn open(folder: &Path) -> Self {
        let lock = StateDir::lock(folder).unwrap();
        let store = Store::open(&lock, Clock::System).unwrap().store;
        Self { _lock: lock, store }
    }
}

/// A collector with a state directory, at an address where clients need a token.
struct Collector {
    router: Router,
    store: Store,
    handle: Handle,
    url: String,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<()>,
    _state: State,
    _inbox: Inbox,
}

impl Collector {
    async fn start(folder: &Path, enrolment: Enrolment) -> Self {
        Self::at(folder, enrolment, 0).await
    }

    async fn at(folder: &Path, enrolment: Enrolment, port: u16) -> Self {
        let state = State::open(folder);
        let (handle, inbox) = Handle::new();
        let handle = handle.with_fleet(Fleet { accept: true, enrolment, ..Fleet::default() });
        let access = Access::token(Token::new(CONFIGURED).unwrap());
        let router = router(handle.clone(), state.store.clone(), access);
        let listener = listen_again(SocketAddr::from(([127, 0, 0, 1], port))).await;
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, router.clone(), stop.clone().cancelled_owned()));
        let store = state.store.clone();
        Self { router, store, handle, url, stop, server, _state: state, _inbox: inbox }
    }

    /// Ends it, and starts it again with the same state directory and address.
    async fn restart(self, folder: &Path) -> Self {
        let port = self.url.rsplit(':').next().unwrap().parse().unwrap();
        let enrolment = self.handle.fleet().settings().enrolment;
        self.stop.cancel();
        let Self { router, store, handle, server, _state, _inbox, .. } = self;
        server.await.unwrap();
        drop((router, store, handle, _state, _inbox));
        Self::at(folder, enrolment, port).await
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// A request with the token of the configuration.
    async fn ask(&self, method: Method, path: &str, body: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("authorization", format!("Bearer {CONFIGURED}"));
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    async fn invite(&self, body: serde_json::Value) -> String {
        let (status, answer) = self.ask(Method::POST, "/api/v1/fleet/invites", &body.to_string()).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        serde_json::from_str::<CreatedInvite>(&answer).unwrap().token
    }

    async fn keys(&self) -> FleetKeys {
        let (status, answer) = self.ask(Method::GET, "/api/v1/fleet/keys", "").await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        serde_json::from_str(&answer).unwrap()
    }

    fn key(&self) -> AgentKey {
        AgentKey::from_seed(&self.store.fleet_key_seed().unwrap()).unwrap()
    }

    fn hosts(&self) -> Vec<HostView> {
        fleet_hosts(&self.handle, &self.store, Clock::System.now()).unwrap()
    }

    /// The audit, oldest first: action, actor, result and detail.
    fn audit(&self) -> Vec<(String, String, AuditResult, String)> {
        let mut entries = self.store.audit(None, 100, None).unwrap();
        entries.reverse();
        entries.into_iter().map(|it| (it.action, it.actor.to_string(), it.result, it.detail)).collect()
    }

    async fn join(&self, request: &JoinRequest) -> (StatusCode, String) {
        let body = Body::from(serde_json::to_string(request).unwrap());
        self.send(Request::post("/api/v1/fleet/join").body(body).unwrap()).await
    }

    /// Sends a report or a heartbeat with this signature.
    async fn put(&self, path: &str, signature: &str, body: &str) -> (StatusCode, String) {
        let request = Request::put(path).header(SIGNATURE_HEADER, signature);
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }
}

/// An agent that reports to one collector.
struct Host {
    enrolments: Enrolments,
    targets: FleetTargets,
    stop: CancellationToken,
    tasks: TaskTracker,
    _state: State,
    _inbox: Inbox,
}

impl Host {
    fn start(folder: &Path, name: &str, url: &str) -> Self {
        Self::with_requests(folder, name, url, &[]).0
    }

    fn at(folder: &Path, name: &str, url: &str, clock: Clock) -> Self {
        Self::open(folder, name, url, &[], (clock, EVERY)).0
    }

    /// With the requests that its agent gets.
    fn with_requests(
        folder: &Path,
        name: &str,
        url: &str,
        allowed: &[HostRequestKind],
    ) -> (Self, mpsc::Receiver<AgentRequest>) {
        Self::open(folder, name, url, allowed, (Clock::System, EVERY))
    }

    fn open(
        folder: &Path,
        name: &str,
        url: &str,
        allowed: &[HostRequestKind],
        (clock, every): (Clock, Duration),
    ) -> (Self, mpsc::Receiver<AgentRequest>) {
        let place = FleetPlace::parse(url).unwrap();
        Self::to(folder, name, place, Arc::new(|_: &str| None), allowed, (clock, every))
    }

    fn to(
        folder: &Path,
        name: &str,
        place: FleetPlace,
        environment: Lookup,
        allowed: &[HostRequestKind],
        (clock, every): (Clock, Duration),
    ) -> (Self, mpsc::Receiver<AgentRequest>) {
        let state = State::open(folder);
        let instance = state.store.agent_id().unwrap();
        let (handle, mut inbox) = Handle::new();
        publish(&inbox, [shop()]);
        inbox.repositories.send_replace(Arc::new(vec![followed()]));
        let settings = FleetReports { to: vec![place], every };
        let of = (name, instance.0.as_str());
        let enrolments = Enrolments::load(&state.store, &settings, of, &environment, clock);
        let source = ReportSource {
            handle,
            host: HostIdentity { name: name.to_owned(), labels: Default::default() },
            instance: AgentId(instance.0.clone()),
            engine_version: Arc::new(|| None),
            page: String::new(),
            environment,
            enrolments: enrolments.clone(),
            requests: RequestSettings {
                allowed: allowed.iter().copied().collect(),
                ..RequestSettings::default()
            },
            is_released: false,
            clock,
        };
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let targets = start_fleet_reports(&settings, &source, &stop, &tasks);
        let requests = std::mem::replace(&mut inbox.requests, mpsc::channel(1).1);
        (Self { enrolments, targets, stop, tasks, _state: state, _inbox: inbox }, requests)
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn target(&self) -> TargetStatus {
        self.targets.list()[0].clone()
    }

    async fn reports(&self) {
        let is_well = || self.target().signed && self.target().error.is_empty();
        until("its signed reports are taken", is_well).await;
    }

    async fn is_refused(&self, why: &str) {
        until(why, || self.target().blocked && self.target().error.contains(why)).await;
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn host_that_has_joined_reports_without_a_token() {
    let (hub, one, two) = (folder(), folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let nas = Host::start(one.path(), "nas", &collector.url);
    until("it is refused before", || nas.target().error.contains("401")).await;
    assert!(!nas.target().signed);
    let token = collector.invite(json!({ "host": "nas" })).await;
    let joined = join_fleet(&nas.enrolments, &collector.url, &token).await.unwrap();
    nas.reports().await;
    assert_eq!(collector.hosts()[0].state, HostState::Healthy);
    let keys = collector.keys().await;
    assert_eq!((keys.hosts.len(), keys.invites.len()), (1, 0));
    assert_eq!((&keys.hosts[0].fingerprint, &keys.own), (&joined.key, &joined.collector));
    assert_eq!(keys.hosts[0].invited_by.to_string(), "token tokenFile");
    assert!(keys.hosts[0].heard.is_some());
    assert!(joined.host == "nas" && joined.key != joined.collector);
    let (_, page) = collector.ask(Method::GET, "/fleet/nas", "").await;
    assert!(page.contains(&joined.key), "{page}");

    // Another machine with the name, with an invite for any host.
    let token = collector.invite(json!({})).await;
    let other = Host::start(two.path(), "nas", &collector.url);
    let error = join_fleet(&other.enrolments, &collector.url, &token).await.unwrap_err();
    let JoinError::Collector { source, .. } = &error else { panic!("{error}") };
    let text = source.to_string();
    assert!(text.contains("another machine is enrolled as `nas`"), "{text}");
    assert!(text.contains("driftless fleet revoke nas"), "{text}");
    assert_eq!(collector.keys().await.invites.len(), 1, "the invite is not used up");
    let conflict = collector.hosts().remove(0).conflict.unwrap();
    assert_eq!(conflict.instance, other._state.store.agent_id().unwrap().0);
    let (_, page) = collector.ask(Method::GET, "/fleet", "").await;
    assert!(page.contains("reports with this name from 127.0.0.1"), "{page}");
    let audit = collector.audit();
    let short: Vec<_> = audit.iter().map(|it| (it.0.as_str(), it.1.as_str(), it.2)).collect();
    assert_eq!(
        short,
        [
            ("invite host", "token tokenFile", AuditResult::Accepted),
            ("join fleet", "host nas", AuditResult::Accepted),
            ("report host", "host nas", AuditResult::Accepted),
            ("invite host", "token tokenFile", AuditResult::Accepted),
            ("join fleet", "host nas", AuditResult::Refused),
        ]
    );
    let detail = format!("nas: key {}, invited by token tokenFile", joined.key);
    assert_eq!(audit[1].3, detail);
    assert!(!audit.iter().any(|it| it.3.contains("driftless_join_")), "{audit:?}");
}

#[tokio::test]
async fn token_counts_once_in_time_for_its_host_and_collector() {
    let (hub, other_hub) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let other = Collector::start(other_hub.path(), Enrolment::Optional).await;
    let key = |number| AgentKey::from_seed(&[number; 32]).unwrap();
    let ask = |host: &str, number, token: &str| {
        JoinRequest::new(host, "a1", &key(number), &token.parse().unwrap()).unwrap()
    };
    let named = collector.invite(json!({ "host": "nas", "expiresIn": "10m" })).await;
    let (status, answer) = collector.join(&ask("web", 1, &named)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(answer.contains("the token is for the host `nas`"), "{answer}");
    let (status, answer) = other.join(&ask("nas", 1, &named)).await;
    assert!(status == StatusCode::FORBIDDEN && answer.contains("not one of this collector"), "{answer}");
    assert_eq!(collector.join(&ask("nas", 1, &named)).await.0, StatusCode::OK);
    assert_eq!(collector.join(&ask("nas", 1, &named)).await.0, StatusCode::OK, "the answer was lost");
    let (status, answer) = collector.join(&ask("nas", 2, &named)).await;
    assert!(status == StatusCode::FORBIDDEN && answer.contains("was used"), "{answer}");

    let expired = InviteToken::new(&collector.key().public().unwrap()).unwrap();
    let invite = FleetInvite {
        key: expired.key().unwrap().public().unwrap().to_string(),
        host: None,
        invited_by: Actor::agent(),
        expires: Timestamp(Clock::System.now().0 - 1),
    };
    assert!(collector.store.create_fleet_invite(&invite, 10, Timestamp(1)).unwrap());
    let (status, answer) = collector.join(&ask("web", 3, &expired.to_string())).await;
    assert!(status == StatusCode::FORBIDDEN && answer.contains("has expired"), "{answer}");

    // Somebody who has seen the request cannot use the invite for another key or name.
    let seen = ask("web", 4, &collector.invite(json!({})).await);
    for changed in [
        JoinRequest { key: key(5).public().unwrap(), ..seen.clone() },
        JoinRequest { host: "tv".to_owned(), ..seen.clone() },
        JoinRequest { signature: seen.invite_signature.clone(), ..seen.clone() },
    ] {
        assert_eq!(collector.join(&changed).await.0, StatusCode::FORBIDDEN);
    }
    assert_eq!(collector.join(&seen).await.0, StatusCode::OK);
    for (body, why) in [
        (json!({ "host": "a b" }), "is no name of a host"),
        (json!({ "expiresIn": "0s" }), "longer than 0s"),
        (json!({ "expiresIn": "31d" }), "at most 30 days"),
        (json!({ "expires": "1h" }), "unknown field"),
    ] {
        let (status, answer) = collector.ask(Method::POST, "/api/v1/fleet/invites", &body.to_string()).await;
        assert!(status == StatusCode::BAD_REQUEST && answer.contains(why), "{answer}");
    }
    let (status, answer) = collector.ask(Method::POST, "/api/v1/fleet/invites", r#"{"host":"nas"}"#).await;
    assert!(status == StatusCode::CONFLICT && answer.contains("is enrolled as `nas`"), "{answer}");
    assert!(answer.contains("`driftless fleet invite` without --name"), "{answer}");
    let nobody = Request::post("/api/v1/fleet/invites").body(Body::empty()).unwrap();
    assert_eq!(collector.send(nobody).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn attempts_to_join_are_limited_by_address() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let token = InviteToken::new(&collector.key().public().unwrap()).unwrap();
    let key = AgentKey::from_seed(&[1; 32]).unwrap();
    let body = serde_json::to_string(&JoinRequest::new("nas", "a1", &key, &token).unwrap()).unwrap();
    let client = reqwest::Client::new();
    let mut answers = Vec::new();
    for _ in 0..12 {
        let request = client.post(format!("{}/api/v1/fleet/join", collector.url)).body(body.clone());
        answers.push(request.send().await.unwrap().status());
    }
    assert_eq!(answers[..10], [StatusCode::FORBIDDEN; 10]);
    assert_eq!(answers[11], StatusCode::TOO_MANY_REQUESTS);
}

/// Enrols a host with this key, and returns its signer.
fn enrol(collector: &Collector, host: &str, key: &AgentKey) {
    let now = Clock::System.now();
    let invite = FleetInvite {
        key: format!("invite of {host}"),
        host: None,
        invited_by: Actor::agent(),
        expires: now.after(Duration::from_mins(1)),
    };
    assert!(collector.store.create_fleet_invite(&invite, 10, now).unwrap());
    let key = key.public().unwrap().to_string();
    let joining = JoiningHost { host: host.to_owned(), key, instance: "a1".to_owned(), invite: invite.key };
    let outcome = collector.store.join_fleet(&joining, 10, now).unwrap();
    assert!(matches!(outcome, JoinOutcome::Enrolled(_)), "{outcome:?}");
}

#[tokio::test]
async fn repeated_or_changed_requests_are_refused() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let (nas, web) = (AgentKey::from_seed(&[1; 32]).unwrap(), AgentKey::from_seed(&[2; 32]).unwrap());
    enrol(&collector, "nas", &nas);
    enrol(&collector, "web", &web);
    let own = collector.key().public().unwrap();
    let sign = |key: &AgentKey, host: &str, counter, method: &str, path: &str, body: &str| {
        let parts = SignedParts { collector: &own, method, path, report: "", instance: "" };
        HostSignature::new(key, host, counter, body.as_bytes(), &parts).unwrap().to_string()
    };
    let report = |host: &str| {
        let report = HostReport { host: host.to_owned(), instance: "a1".to_owned(), ..HostReport::default() };
        serde_json::to_string(&report).unwrap()
    };
    let body = report("nas");
    let first = sign(&nas, "nas", 5, "PUT", NAS, &body);
    assert_eq!(collector.put(NAS, &first, &body).await.0, StatusCode::NO_CONTENT);
    for older in [first.clone(), sign(&nas, "nas", 4, "PUT", NAS, &body)] {
        let (status, answer) = collector.put(NAS, &older, &body).await;
        assert!(status == StatusCode::CONFLICT && answer.contains("replayed"), "{answer}");
    }
    // Each of these is signed by somebody, and is not the request that was signed.
    let other = AgentKey::from_seed(&[3; 32]).unwrap().public().unwrap();
    let parts = SignedParts { collector: &other, method: "PUT", path: NAS, report: "", instance: "" };
    let elsewhere = HostSignature::new(&nas, "nas", 9, body.as_bytes(), &parts).unwrap().to_string();
    for (signature, path, body, expected, why) in [
        (sign(&nas, "nas", 6, "PUT", NAS, "other"), NAS, &body, 403, "not the one that was signed"),
        (sign(&nas, "nas", 7, "DELETE", NAS, &body), NAS, &body, 403, "signature is not right"),
        (elsewhere, NAS, &body, 403, "signature is not right"),
        (sign(&web, "nas", 8, "PUT", NAS, &body), NAS, &body, 409, "another machine is enrolled as `nas`"),
        (sign(&web, "web", 9, "PUT", NAS, &body), NAS, &body, 403, "no scope `report:host/nas`"),
        (
            sign(&web, "tv", 9, "PUT", "/api/v1/fleet/hosts/tv", &body),
            "/api/v1/fleet/hosts/tv",
            &body,
            403,
            "enrolled as `web`",
        ),
        ("v1 nas 9".to_owned(), NAS, &body, 400, "driftless-signature"),
    ] {
        let (status, answer) = collector.put(path, &signature, body).await;
        assert_eq!(status.as_u16(), expected, "{answer}");
        assert!(answer.contains(why), "{why}: {answer}");
    }
    // The name is closed for tokens, also for those that may do everything.
    let (status, answer) = collector.ask(Method::PUT, NAS, &body).await;
    assert!(status == StatusCode::FORBIDDEN && answer.contains("is not signed with its key"), "{answer}");
    assert_eq!(collector.hosts().len(), 1);
    // A host that is not enrolled may still use a token here.
    assert_eq!(
        collector.ask(Method::PUT, "/api/v1/fleet/hosts/tv", &report("tv")).await.0,
        StatusCode::NO_CONTENT
    );

    // A key reads what hosts may know of each other, and nothing else.
    let get = |path: &str, counter| {
        let signature = sign(&nas, "nas", counter, "GET", path, "");
        Request::get(path).header(SIGNATURE_HEADER, signature).body(Body::empty()).unwrap()
    };
    let (status, answer) = collector.send(get("/api/v1/fleet/peers?applications=shop", 20)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    for (counter, path) in [(21, "/api/v1/fleet/hosts"), (22, "/api/v1/applications"), (23, "/fleet")] {
        assert_eq!(collector.send(get(path, counter)).await.0, StatusCode::FORBIDDEN, "{path}");
    }
    // The highest counter would be the last one.
    let last = sign(&nas, "nas", u64::MAX, "PUT", NAS, &body);
    assert_eq!(collector.put(NAS, &last, &body).await.0, StatusCode::CONFLICT);
}

#[tokio::test]
async fn signed_report_is_no_heartbeat_with_more_headers() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let nas = AgentKey::from_seed(&[1; 32]).unwrap();
    enrol(&collector, "nas", &nas);
    let own = collector.key().public().unwrap();
    let signed = |counter, body: &str| {
        let parts = SignedParts { collector: &own, method: "PUT", path: NAS, report: "", instance: "" };
        HostSignature::new(&nas, "nas", counter, body.as_bytes(), &parts).unwrap().to_string()
    };
    let report = |version: &str| {
        let (host, instance, agent_version) = ("nas".to_owned(), "a1".to_owned(), version.to_owned());
        serde_json::to_string(&HostReport { host, instance, agent_version, ..HostReport::default() }).unwrap()
    };
    let (old, new) = (report("1"), report("2"));
    assert_eq!(collector.put(NAS, &signed(1, &old), &old).await.0, StatusCode::NO_CONTENT);
    let before = collector.store.fleet_host("nas").unwrap().unwrap();
    let digest = format!("\"{}\"", digest_hex(old.as_bytes()));
    let (beat, machine) = (("if-none-match", digest.as_bytes()), ("driftless-instance", "a1".as_bytes()));
    let foreign = ("if-none-match", "\u{fc}".as_bytes());
    // Somebody on the way adds headers to the new report, so that it counts as a heartbeat of the old one.
    let signature = signed(2, &new);
    for (headers, status, why) in [
        (vec![beat, beat, machine, machine], 400, "more than one header `if-none-match`"),
        (vec![foreign, beat], 400, "more than one header `if-none-match`"),
        (vec![machine, machine], 400, "more than one header `driftless-instance`"),
        (vec![foreign], 400, "no ASCII text"),
        (vec![beat, machine], 403, "signature is not right"),
    ] {
        let mut request = Request::put(NAS).header(SIGNATURE_HEADER, &signature);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = collector.send(request.body(Body::from(new.clone())).unwrap()).await;
        assert!(answer.0.as_u16() == status && answer.1.contains(why), "{why}: {answer:?}");
    }
    assert_eq!(collector.store.fleet_host("nas").unwrap().unwrap(), before);
    assert_eq!(collector.put(NAS, &signature, &new).await.0, StatusCode::NO_CONTENT, "it was not used up");
    // A token is read in the same way.
    let request =
        Request::put("/api/v1/fleet/hosts/tv").header("authorization", format!("Bearer {CONFIGURED}"));
    let request = request.header("if-none-match", &digest).header("if-none-match", &digest);
    assert_eq!(collector.send(request.body(Body::empty()).unwrap()).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn collector_that_is_joined_gets_no_token() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let kind = PlaceKind::Collector { token: Some(Secret::Environment("TOKEN".to_owned())) };
    let place = FleetPlace { kind, ..FleetPlace::parse(&collector.url).unwrap() };
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let environment: Lookup = Arc::new(move |_: &str| {
        counted.fetch_add(1, Ordering::Relaxed);
        None
    });
    let (nas, _requests) = Host::to(one.path(), "nas", place, environment, &[], (Clock::System, EVERY));
    nas.is_refused("TOKEN is not set").await;
    let token = collector.invite(json!({})).await;
    join_fleet(&nas.enrolments, &collector.url, &token).await.unwrap();
    nas.reports().await;
    let before = reads.load(Ordering::Relaxed);
    let counter = || collector.store.fleet_key("nas").unwrap().unwrap().counter;
    let first = counter();
    until("it goes on reporting", || counter() > first + 2).await;
    assert_eq!((nas.target().error.as_str(), reads.load(Ordering::Relaxed)), ("", before));
    leave_fleet(&nas.enrolments, &collector.url, false).await.unwrap();
    nas.is_refused("TOKEN is not set").await;
}

#[tokio::test]
async fn keys_and_counters_survive_restarts_of_both_sides() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let nas = Host::start(one.path(), "nas", &collector.url);
    let token = collector.invite(json!({})).await;
    join_fleet(&nas.enrolments, &collector.url, &token).await.unwrap();
    nas.reports().await;
    let before = collector.keys().await;
    let counter = |collector: &Collector| collector.store.fleet_key("nas").unwrap().unwrap().counter;
    let first = counter(&collector);
    let collector = collector.restart(hub.path()).await;
    assert!(counter(&collector) >= first, "the last counter is kept");
    until("it is heard again", || counter(&collector) > first + 1).await;
    nas.reports().await;
    nas.end().await;
    let second = counter(&collector);
    let nas = Host::start(one.path(), "nas", &collector.url);
    until("it goes on with higher counters", || counter(&collector) > second).await;
    nas.reports().await;
    let after = collector.keys().await;
    assert_eq!((after.own, &after.hosts[0].fingerprint), (before.own, &before.hosts[0].fingerprint));
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path.join("fleet.key")).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(hub.path()), mode(one.path())), (0o600, 0o600));
}

#[tokio::test]
async fn damaged_key_is_named_and_nothing_is_sent_without_it() {
    let (hub, own) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let nas = Host::start(own.path(), "nas", &collector.url);
    let token = collector.invite(json!({ "host": "nas" })).await;
    join_fleet(&nas.enrolments, &collector.url, &token).await.unwrap();
    nas.reports().await;
    nas.end().await;
    let key = own.path().join("fleet.key");
    let good = std::fs::read(&key).unwrap();
    std::fs::write(&key, "short\n").unwrap();
    let refused = collector.audit().len();
    let nas = Host::start(own.path(), "nas", &collector.url);
    nas.is_refused("fleet.key").await;
    let error = nas.target().error;
    assert!(error.contains("it has 6 bytes") && error.contains("remove it and join again"), "{error}");
    assert!(nas.target().signed, "it is enrolled");
    assert_eq!(collector.audit().len(), refused, "the collector is not asked");
    let token = collector.invite(json!({})).await;
    let joined = join_fleet(&nas.enrolments, &collector.url, &token).await.unwrap_err();
    assert!(matches!(joined, JoinError::Key(_)), "{joined:?}");
    nas.end().await;
    std::fs::write(&key, good).unwrap();
    let nas = Host::start(own.path(), "nas", &collector.url);
    nas.reports().await;
    nas.end().await;
}

#[tokio::test]
async fn revoked_host_is_refused_until_it_joins_again() {
    let (hub, one, two) = (folder(), folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let first = Host::start(one.path(), "nas", &collector.url);
    let token = collector.invite(json!({})).await;
    join_fleet(&first.enrolments, &collector.url, &token).await.unwrap();
    first.reports().await;
    let delete = |path| collector.ask(Method::DELETE, path, "");
    assert_eq!(delete("/api/v1/fleet/keys/nas").await.0, StatusCode::NO_CONTENT);
    assert_eq!(delete("/api/v1/fleet/keys/nas").await.0, StatusCode::NOT_FOUND);
    first.is_refused("no key of `nas` is enrolled here: run `driftless fleet invite").await;

    // The machine is replaced. The first one is refused, and both sides say so.
    let second = Host::start(two.path(), "nas", &collector.url);
    let token = collector.invite(json!({ "host": "nas" })).await;
    join_fleet(&second.enrolments, &collector.url, &token).await.unwrap();
    second.reports().await;
    until("both sides say so", || collector.hosts()[0].conflict.is_some() && first.target().blocked).await;
    let machine = second._state.store.agent_id().unwrap().0;
    assert_eq!(collector.hosts()[0].report.as_ref().unwrap().instance, machine);
    let revoked = collector.audit().into_iter().find(|it| it.0 == "revoke key").unwrap();
    assert_eq!((revoked.2, revoked.3.as_str()), (AuditResult::Accepted, "nas"));

    // A third machine, which has only the name.
    let three = folder();
    let third = Host::start(three.path(), "nas", &collector.url);
    until("it is refused", || third.target().error.contains("401")).await;
}

#[tokio::test]
async fn collector_says_why_a_machine_with_a_key_is_refused() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let nas = AgentKey::from_seed(&[1; 32]).unwrap();
    enrol(&collector, "nas", &nas);
    let own = collector.key().public().unwrap();
    let signed = |host: &str, counter| {
        let path = format!("/api/v1/fleet/hosts/{host}");
        let report = HostReport { host: host.to_owned(), instance: "a1".to_owned(), ..HostReport::default() };
        let body = serde_json::to_string(&report).unwrap();
        let parts = SignedParts { collector: &own, method: "PUT", path: &path, report: "", instance: "" };
        let signature = HostSignature::new(&nas, host, counter, body.as_bytes(), &parts).unwrap();
        (path, signature.to_string(), body)
    };
    let reason = || collector.hosts().remove(0).conflict.unwrap().reason;
    let (path, signature, body) = signed("nas", 5);
    assert_eq!(collector.put(&path, &signature, &body).await.0, StatusCode::NO_CONTENT);
    // A machine that has only the name hides no reason.
    let other = AgentKey::from_seed(&[2; 32]).unwrap();
    let token = collector.invite(json!({})).await;
    let join = JoinRequest::new("nas", "b1", &other, &token.parse().unwrap()).unwrap();
    assert_eq!(collector.join(&join).await.0, StatusCode::CONFLICT);
    assert_eq!(reason(), "");
    let (path, signature, body) = signed("nas", 4);
    assert_eq!(collector.put(&path, &signature, &body).await.0, StatusCode::CONFLICT);
    assert!(reason().contains("its disk was copied"), "{}", reason());
    assert!(collector.audit().iter().any(|it| it.3.contains("refused machine")), "{:?}", collector.audit());
    assert_eq!(collector.join(&join).await.0, StatusCode::CONFLICT);
    // It may also have been sent again on the way.
    let (path, signature, body) = signed("nas", 5);
    assert_eq!(collector.put(&path, &signature, &body).await.0, StatusCode::CONFLICT);
    assert!(reason().contains("or the request was repeated on the way"), "{}", reason());
    assert_eq!(collector.join(&join).await.0, StatusCode::CONFLICT);
    assert!(reason().contains("its disk was copied"), "{}", reason());
    let (path, signature, body) = signed("attic", 6);
    assert_eq!(collector.put(&path, &signature, &body).await.0, StatusCode::FORBIDDEN);
    assert!(reason().contains("its machine reports as `attic` now"), "{}", reason());
    let (_, page) = collector.ask(Method::GET, "/fleet", "").await;
    assert!(page.contains("reports as `attic` now"), "{page}");
}

#[tokio::test]
async fn revocation_of_an_invited_host_is_in_the_audit() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    collector.invite(json!({ "host": "tv" })).await;
    let revoke = async || collector.ask(Method::DELETE, "/api/v1/fleet/keys/tv", "").await.0;
    assert_eq!(revoke().await, StatusCode::NO_CONTENT);
    assert_eq!(revoke().await, StatusCode::NOT_FOUND);
    let (action, _, result, detail) = collector.audit().pop().unwrap();
    assert_eq!((action.as_str(), result), ("revoke key", AuditResult::Accepted));
    assert_eq!(detail, "tv; an open invite for it is dropped");
}

#[tokio::test]
async fn open_invites_are_withdrawn_or_end_with_their_token() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let token = collector.invite(json!({ "expiresIn": "30d" })).await;
    let id = collector.keys().await.invites.remove(0).id;
    let withdraw = format!("/api/v1/fleet/invites/{id}");
    assert_eq!(collector.ask(Method::DELETE, &withdraw, "").await.0, StatusCode::NO_CONTENT);
    let (status, answer) = collector.ask(Method::DELETE, &withdraw, "").await;
    assert!(status == StatusCode::NOT_FOUND && answer.contains("noSuchInvite"), "{answer}");
    let key = AgentKey::from_seed(&[7; 32]).unwrap();
    let join = JoinRequest::new("web", "a1", &key, &token.parse().unwrap()).unwrap();
    assert_eq!(collector.join(&join).await.0, StatusCode::FORBIDDEN);

    // On the page.
    collector.invite(json!({ "host": "tv" })).await;
    let id = collector.keys().await.invites.remove(0).id;
    let (_, page) = collector.ask(Method::GET, "/fleet", "").await;
    let path = format!("/fleet-invites/{id}");
    assert!(page.contains(&path[1..]), "{page}");
    let (status, page) = collector.ask(Method::GET, &path, "").await;
    assert!(status == StatusCode::OK && page.contains("Withdraw the invite"), "{page}");
    let (status, answer) = collector.form(&path, "", Some("http://hub")).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{answer}");
    assert_eq!(collector.keys().await.invites, []);
    assert_eq!(collector.ask(Method::GET, &path, "").await.0, StatusCode::NOT_FOUND);

    // The invite of a named token ends with it.
    let body = json!({ "name": "boss", "scopes": ["admin"], "expiresIn": "2d" });
    let (_, answer) = collector.ask(Method::POST, "/api/v1/tokens", &body.to_string()).await;
    let created: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let bearer = format!("Bearer {}", created["secret"].as_str().unwrap());
    let request = Request::post("/api/v1/fleet/invites").header("authorization", bearer);
    let body = Body::from(json!({ "expiresIn": "30d" }).to_string());
    let (status, answer) = collector.send(request.body(body).unwrap()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let made: CreatedInvite = serde_json::from_str(&answer).unwrap();
    assert!(made.expires <= Clock::System.now().after(Duration::from_hours(48)), "{answer}");
    let revoked = collector.ask(Method::DELETE, "/api/v1/tokens/boss", "").await;
    assert_eq!(revoked.0, StatusCode::NO_CONTENT);
    assert_eq!(collector.keys().await.invites, []);
    let audit = collector.audit();
    let details = |action: &str| -> Vec<&str> {
        audit.iter().filter(|it| it.0 == action).map(|it| it.3.as_str()).collect()
    };
    assert_eq!(details("revoke token"), ["boss; an invite that it made is withdrawn"]);
    let withdrawn = details("withdraw invite");
    assert_eq!(withdrawn.len(), 2, "{withdrawn:?}");
    assert_eq!(withdrawn[1], format!("{id} for tv, by token tokenFile"));
}

#[tokio::test]
async fn agent_joins_only_collectors_of_its_configuration() {
    let (hub, other_hub, one) = (folder(), folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let other = Collector::start(other_hub.path(), Enrolment::Optional).await;
    let nas = Host::start(one.path(), "nas", &collector.url);
    let token = collector.invite(json!({})).await;
    let join = |url: String, token: String| {
        let enrolments = nas.enrolments.clone();
        async move { join_fleet(&enrolments, &url, &token).await.map_err(|error| error.to_string()) }
    };
    let unknown = join(other.url.clone(), token.clone()).await.unwrap_err();
    assert!(unknown.contains("add it to `report.to`"), "{unknown}");
    let bad = join(collector.url.clone(), "driftless_0123".to_owned()).await.unwrap_err();
    assert!(bad.contains("driftless fleet invite"), "{bad}");
    let foreign = other.invite(json!({})).await;
    assert!(join(collector.url.clone(), foreign).await.is_err(), "a token of another collector");
    assert!(!nas.enrolments.has(&collector.url));
    assert!(join(format!("{}/", collector.url), token).await.is_ok());
    nas.reports().await;
}

/// A host whose agent answers requests about the shop, and which allows some of them.
struct AskedHost {
    host: Host,
    /// The requests that the agent was asked for, with their actors.
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl AskedHost {
    async fn start(folder: &Path, collector: &Collector, allowed: &[HostRequestKind]) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (host, mut requests) = Host::with_requests(folder, "nas", &collector.url, allowed);
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Some(AgentRequest { app, kind, actor, reply, .. }) = requests.recv().await {
                let answer = if app.as_str() == "shop" {
                    seen.lock().unwrap().push((format!("{kind:?}"), actor.to_string()));
                    Ok(Answer::Accepted)
                } else {
                    Err(RequestError::NoSuchApplication(app))
                };
                let _ = reply.send(answer);
            }
        });
        Self { host, asked }
    }

    fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

impl Collector {
    async fn request(&self, host: &str, body: serde_json::Value) -> (StatusCode, String) {
        let path = format!("/api/v1/fleet/hosts/{host}/requests");
        self.ask(Method::POST, &path, &body.to_string()).await
    }

    /// The states of all requests, oldest first.
    fn states(&self) -> Vec<String> {
        let mut all = self.store.fleet_requests(None, 100).unwrap();
        all.reverse();
        all.into_iter()
            .map(|it| match it.result {
                Some(result) => format!("{:?} {}", result.outcome, result.message),
                None => format!("waiting, sent {}", it.sent.is_some()),
            })
            .collect()
    }
}

#[tokio::test]
async fn allowed_requests_are_done_and_results_reported() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let sync = json!({ "kind": "sync", "application": "shop" });
    let (status, answer) = collector.request("nas", sync.clone()).await;
    assert!(status == StatusCode::CONFLICT && answer.contains("is not enrolled"), "{answer}");
    let nas = AskedHost::start(one.path(), &collector, &[HostRequestKind::Sync]).await;
    let token = collector.invite(json!({})).await;
    join_fleet(&nas.host.enrolments, &collector.url, &token).await.unwrap();
    nas.host.reports().await;
    for body in [
        sync.clone(),
        json!({ "kind": "rollback", "application": "shop", "to": "3" }),
        json!({ "kind": "sync", "application": "mail" }),
    ] {
        let (status, answer) = collector.request("nas", body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    until("all results are reported", || !collector.states().iter().any(|it| it.starts_with("waiting")))
        .await;
    let states = collector.states();
    assert_eq!(states[0], "Accepted ");
    assert!(states[1].starts_with("Refused this host does not allow rollback"), "{states:?}");
    assert_eq!(states[2], "Refused there is no application `mail`");
    let actor = format!("collector {} for token tokenFile", collector.url);
    assert_eq!(nas.asked(), [("Sync".to_owned(), actor.clone())]);
    until("the report is taken", || nas.host.target().error.is_empty()).await;

    let of_host = nas.host._state.store.audit(None, 10, None).unwrap();
    let of_host: Vec<_> = of_host.iter().map(|it| (it.action.as_str(), it.result)).collect();
    let refused = AuditResult::Refused;
    assert_eq!(of_host, [("sync", refused), ("rollback", refused), ("sync", AuditResult::Accepted)]);
    let is_reported = |it: &(String, String, AuditResult, String)| it.3.contains("accepted");
    until("the result is in the audit", || collector.audit().iter().any(is_reported)).await;
    let audit = collector.audit();
    assert!(audit.iter().any(|it| it.0 == "request host" && it.3.starts_with("nas: rollback shop to 3")));
    assert!(audit.iter().filter(|it| is_reported(it)).all(|it| it.1 == "host nas"), "{audit:?}");
    let (_, page) = collector.ask(Method::GET, "/fleet/nas", "").await;
    assert!(page.contains("rollback to 3") && page.contains("does not allow rollback"), "{page}");
    for (body, why) in [
        (json!({ "kind": "restart", "application": "shop" }), "unknown variant"),
        (json!({ "kind": "sync", "application": "shop", "to": "3" }), "of a rollback"),
        (json!({ "kind": "sync", "application": "../x" }), "x"),
        (json!({ "kind": "sync", "application": "shop", "expiresIn": "8d" }), "at most 7 days"),
    ] {
        let (status, answer) = collector.request("nas", body).await;
        assert!(status == StatusCode::BAD_REQUEST && answer.contains(why), "{answer}");
    }
}

#[tokio::test]
async fn waiting_request_can_be_cancelled() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    enrol(&collector, "nas", &AgentKey::from_seed(&[1; 32]).unwrap());
    let (status, answer) = collector.request("nas", json!({ "kind": "sync", "application": "shop" })).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let made: driftless_web::FleetRequest = serde_json::from_str(&answer).unwrap();
    let cancel = async |digits: usize| {
        let path = format!("/api/v1/fleet/requests/{}", &made.request.id[..digits]);
        collector.ask(Method::DELETE, &path, "").await.0
    };
    assert_eq!(cancel(7).await, StatusCode::NOT_FOUND, "too few digits");
    assert_eq!(cancel(12).await, StatusCode::NO_CONTENT);
    assert_eq!(cancel(12).await, StatusCode::NOT_FOUND);
    assert_eq!(collector.states(), ["Refused it was cancelled before it was sent"]);
    let (action, _, result, detail) = collector.audit().pop().unwrap();
    assert_eq!((action.as_str(), result), ("cancel request", AuditResult::Accepted));
    assert_eq!(detail, format!("nas: sync shop (request {})", made.request.id));

    // On the page.
    let (_, answer) = collector.request("nas", json!({ "kind": "sync", "application": "shop" })).await;
    let made: driftless_web::FleetRequest = serde_json::from_str(&answer).unwrap();
    let path = format!("/fleet-requests/{}", made.request.id);
    let (status, page) = collector.ask(Method::GET, &path, "").await;
    assert!(status == StatusCode::OK && page.contains("Cancel sync shop on nas?"), "{page}");
    let (status, answer) = collector.form(&path, "", Some("http://hub")).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{answer}");
    assert_eq!(collector.ask(Method::GET, &path, "").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn request_is_done_at_most_once_over_restarts_of_both() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let nas = AskedHost::start(one.path(), &collector, &[HostRequestKind::Suspend]).await;
    let token = collector.invite(json!({})).await;
    join_fleet(&nas.host.enrolments, &collector.url, &token).await.unwrap();
    nas.host.reports().await;
    nas.host.end().await;
    let suspend = json!({ "kind": "suspend", "application": "shop" });
    for body in [suspend.clone(), json!({ "kind": "suspend", "application": "shop", "expiresIn": "1ms" })] {
        assert_eq!(collector.request("nas", body).await.0, StatusCode::CREATED);
    }
    // The request waits over a restart of the collector. The host had begun it when it ended.
    let collector = collector.restart(hub.path()).await;
    let id = collector.store.fleet_requests(None, 10).unwrap()[1].request.id.clone();
    {
        let state = State::open(one.path());
        assert!(state.store.begin_host_request(&collector.url, &id, Timestamp(1)).unwrap());
    }
    let nas = AskedHost::start(one.path(), &collector, &[HostRequestKind::Suspend]).await;
    until("the result is unknown", || collector.states()[0].starts_with("Unknown")).await;
    assert_eq!(nas.asked(), [], "it is not done again");
    assert_eq!(collector.states()[1], "waiting, sent false", "an expired request is not sent");
    assert_eq!(collector.request("nas", suspend).await.0, StatusCode::CREATED);
    until("the next one is done", || collector.states()[2].starts_with("Accepted")).await;
    nas.host.end().await;
    let nas = AskedHost::start(one.path(), &collector, &[HostRequestKind::Suspend]).await;
    nas.host.reports().await;
    assert_eq!(nas.asked(), [], "it is not done again after a restart");
}

#[tokio::test]
async fn requests_that_the_collector_did_not_sign_are_ignored() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    // Somebody on the way who adds a request to each answer.
    let request = json!({ "requests": [{
        "id": "0a", "kind": "sync", "application": "shop", "actor": { "kind": "agent" },
        "expires": "2099-01-01T00:00:00Z",
    }] });
    let router = collector.router.clone();
    let forged = Router::new().fallback(move |request_in: Request<Body>| {
        let (router, body) = (router.clone(), request.to_string());
        async move {
            let is_report = request_in.method() == Method::PUT;
            let response = router.oneshot(request_in).await.unwrap();
            if is_report && response.status().is_success() {
                (StatusCode::OK, [(SIGNATURE_HEADER, "AAAA")], body).into_response()
            } else {
                response
            }
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, forged).into_future());
    let asked = Arc::new(Mutex::new(0));
    let (nas, mut requests) = Host::with_requests(one.path(), "nas", &url, &[HostRequestKind::Sync]);
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while requests.recv().await.is_some() {
            *count.lock().unwrap() += 1;
        }
    });
    let token = collector.invite(json!({})).await;
    join_fleet(&nas.enrolments, &url, &token).await.unwrap();
    nas.is_refused("requests that the collector has not signed").await;
    assert_eq!(*asked.lock().unwrap(), 0);
    assert_eq!(collector.hosts().len(), 1, "the report itself is taken");
}

#[tokio::test]
async fn requests_to_a_revoked_host_reach_no_other_machine() {
    let (hub, one, two) = (folder(), folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let sync = json!({ "kind": "sync", "application": "shop" });
    let first = AskedHost::start(one.path(), &collector, &[HostRequestKind::Sync]).await;
    let token = collector.invite(json!({})).await;
    join_fleet(&first.host.enrolments, &collector.url, &token).await.unwrap();
    first.host.reports().await;
    first.host.end().await;
    for _ in 0..2 {
        assert_eq!(collector.request("nas", sync.clone()).await.0, StatusCode::CREATED);
    }
    assert_eq!(collector.ask(Method::DELETE, "/api/v1/fleet/keys/nas", "").await.0, StatusCode::NO_CONTENT);
    let revoked = collector.audit().pop().unwrap();
    let detail = "nas; 2 requests that waited for it are dropped";
    assert_eq!((revoked.0.as_str(), revoked.3.as_str()), ("revoke key", detail));
    let second = AskedHost::start(two.path(), &collector, &[HostRequestKind::Sync]).await;
    let token = collector.invite(json!({ "host": "nas" })).await;
    join_fleet(&second.host.enrolments, &collector.url, &token).await.unwrap();
    assert_eq!(collector.request("nas", sync).await.0, StatusCode::CREATED);
    until("its own request is done", || collector.states()[2].starts_with("Accepted")).await;
    assert_eq!(second.asked().len(), 1);
    let dropped = "Refused the key of the host was revoked before it was sent";
    assert_eq!(collector.states()[..2], [dropped, dropped]);
}

impl Collector {
    /// The form of a page, as a browser sends it after a log-in with the token of the configuration.
    async fn form(&self, path: &str, body: &str, origin: Option<&str>) -> (StatusCode, String) {
        let login = Request::post("/login").header("content-type", "application/x-www-form-urlencoded");
        let login = login.header("host", "hub").header("sec-fetch-site", "same-origin");
        let login = login.body(Body::from(format!("token={CONFIGURED}"))).unwrap();
        let response = self.router.clone().oneshot(login).await.unwrap();
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let mut request = Request::post(path).header("cookie", cookie).header("host", "hub");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }
}

#[tokio::test]
async fn page_of_a_host_asks_before_a_request() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let allowed = [HostRequestKind::Sync, HostRequestKind::Rollback];
    let nas = AskedHost::start(one.path(), &collector, &allowed).await;
    let token = collector.invite(json!({})).await;
    join_fleet(&nas.host.enrolments, &collector.url, &token).await.unwrap();
    nas.host.reports().await;
    until("it is heard", || collector.hosts()[0].report.is_some()).await;
    let (_, page) = collector.ask(Method::GET, "/fleet/nas", "").await;
    assert!(page.contains("href=\"nas/sync?app=shop\"") && page.contains("nas/rollback?app"), "{page}");
    assert!(!page.contains("nas/suspend"), "{page}");
    let (status, page) = collector.ask(Method::GET, "/fleet/nas/rollback?app=shop", "").await;
    assert_eq!(status, StatusCode::OK, "{page}");
    assert!(
        page.contains("Roll back shop on nas?") && page.contains("action=\"rollback?app=shop\""),
        "{page}"
    );
    assert!(collector.states().is_empty(), "a page that asks makes no request");
    for (path, expected) in [
        ("/fleet/nas/suspend?app=shop", StatusCode::CONFLICT),
        ("/fleet/nas/sync?app=mail", StatusCode::NOT_FOUND),
        ("/fleet/tv/sync?app=shop", StatusCode::NOT_FOUND),
        ("/fleet/nas/destroy?app=shop", StatusCode::NOT_FOUND),
    ] {
        let (status, page) = collector.ask(Method::GET, path, "").await;
        assert_eq!(status, expected, "{path}: {page}");
    }

    // Another page cannot send the form of somebody who is logged in.
    for origin in [Some("http://elsewhere"), None] {
        let (status, answer) = collector.form("/fleet/nas/sync", "app=shop", origin).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    }
    let (status, answer) = collector.form("/fleet/nas/suspend", "app=shop", Some("http://hub")).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    assert!(collector.states().is_empty());
    for (path, body) in [("/fleet/nas/sync", "app=shop&to="), ("/fleet/nas/rollback", "app=shop&to=3")] {
        let (status, answer) = collector.form(path, body, Some("http://hub")).await;
        assert_eq!(status, StatusCode::SEE_OTHER, "{answer}");
    }
    until("both are done", || collector.states() == ["Accepted ", "Accepted "]).await;
    assert!(nas.asked()[1].0.contains("Some(\"3\")"), "{:?}", nas.asked());
    let audit = collector.audit();
    let asked: Vec<_> = audit.iter().filter(|it| it.0 == "request host").collect();
    let results: Vec<AuditResult> = asked.iter().map(|it| it.2).collect();
    assert_eq!(results, [AuditResult::Refused, AuditResult::Accepted, AuditResult::Accepted], "{audit:?}");
    assert!(asked[2].3.starts_with("nas: rollback shop to 3 (request "), "{audit:?}");

    // Those who may only read get no links, and no page that asks.
    let body = json!({ "name": "reader", "scopes": ["read"] }).to_string();
    let (_, answer) = collector.ask(Method::POST, "/api/v1/tokens", &body).await;
    let created: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let get = |path: &str| {
        let request = Request::get(path)
            .header("authorization", format!("Bearer {}", created["secret"].as_str().unwrap()));
        collector.send(request.body(Body::empty()).unwrap())
    };
    assert!(!get("/fleet/nas").await.1.contains("nas/sync"));
    assert_eq!(get("/fleet/nas/sync?app=shop").await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn join_during_a_report_counts_at_once() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    // The first report is on its way until the host has joined.
    let (arrived, joined) = (CancellationToken::new(), CancellationToken::new());
    let (router, seen, released) = (collector.router.clone(), arrived.clone(), joined.clone());
    let slow = Router::new().fallback(move |request: Request<Body>| {
        let (router, seen, released) = (router.clone(), seen.clone(), released.clone());
        async move {
            if request.method() == Method::PUT {
                seen.cancel();
                released.cancelled().await;
            }
            router.oneshot(request).await.unwrap()
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, slow).into_future());
    let slowest = (Clock::System, Duration::from_mins(3));
    let (nas, _requests) = Host::open(one.path(), "nas", &url, &[], slowest);
    arrived.cancelled().await;
    let token = collector.invite(json!({})).await;
    join_fleet(&nas.enrolments, &url, &token).await.unwrap();
    joined.cancel();
    nas.reports().await;
    assert_eq!(collector.hosts()[0].state, HostState::Healthy);
}

#[tokio::test]
async fn right_token_passes_behind_a_client_with_wrong_ones() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Optional).await;
    let body = json!({ "name": "nas", "scopes": ["report:host/nas"] }).to_string();
    let (status, answer) = collector.ask(Method::POST, "/api/v1/tokens", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let created: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let right = created["secret"].as_str().unwrap().to_owned();
    let client = reqwest::Client::new();
    let put = |token: String| {
        let report =
            HostReport { host: "nas".to_owned(), instance: "a1".to_owned(), ..HostReport::default() };
        let request = client.put(format!("{}{NAS}", collector.url)).bearer_auth(token);
        let body = serde_json::to_string(&report).unwrap();
        async move { request.body(body).send().await.unwrap().status() }
    };
    // All come from one address. A token that was replaced is no guess, and locks nobody out.
    let replaced = format!("driftless_{}", "0".repeat(64));
    let mut answers = Vec::new();
    for _ in 0..12 {
        answers.push(put(replaced.clone()).await);
    }
    assert_eq!((answers[0], answers[11]), (StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(put(right.clone()).await, StatusCode::NO_CONTENT);
    assert_eq!(put(CONFIGURED.to_owned()).await, StatusCode::NO_CONTENT);
    // These may be guesses of the token that somebody has chosen.
    for _ in 0..12 {
        put("password".to_owned()).await;
    }
    assert_eq!(put(CONFIGURED.to_owned()).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(put(right).await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn host_that_leaves_is_forgotten_on_both_sides() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let url = collector.url.clone();
    let nas = Host::start(one.path(), "nas", &url);
    let leave = |url: &str, is_forced| {
        let (enrolments, url) = (nas.enrolments.clone(), url.to_owned());
        async move { leave_fleet(&enrolments, &url, is_forced).await.map_err(|error| error.to_string()) }
    };
    let not_joined = leave(&url, true).await.unwrap_err();
    assert!(not_joined.contains("has not joined"), "{not_joined}");
    let token = collector.invite(json!({})).await;
    let first = join_fleet(&nas.enrolments, &url, &token).await.unwrap();
    nas.reports().await;
    let sync = json!({ "kind": "sync", "application": "shop" });
    assert_eq!(collector.request("nas", sync).await.0, StatusCode::CREATED);

    // Another host with a key of its own cannot make it leave.
    let web = AgentKey::from_seed(&[2; 32]).unwrap();
    enrol(&collector, "web", &web);
    let (own, path) = (collector.key().public().unwrap(), "/api/v1/fleet/keys/nas");
    let parts = SignedParts { collector: &own, method: "DELETE", path, report: "", instance: "" };
    let signature = HostSignature::new(&web, "web", 1, b"", &parts).unwrap().to_string();
    let request = Request::delete(path).header(SIGNATURE_HEADER, signature).body(Body::empty()).unwrap();
    assert_eq!(collector.send(request).await.0, StatusCode::FORBIDDEN);

    let left = leave(&format!("{url}/"), false).await.unwrap();
    assert!(left.removed && left.host == "nas" && left.message.is_empty(), "{left:?}");
    assert!(!nas.enrolments.has(&url));
    let names: Vec<String> = collector.keys().await.hosts.into_iter().map(|host| host.host).collect();
    assert_eq!((names, collector.hosts()), (vec!["web".to_owned()], vec![]));
    let audit = collector.audit();
    let is_by_host = |it: &&(String, String, AuditResult, String)| it.0 == "revoke key" && it.1 == "host nas";
    let entry = audit.iter().find(is_by_host).unwrap();
    assert_eq!(entry.2, AuditResult::Accepted);
    until("its reports are not signed", || nas.target().error.contains("401")).await;

    // It joins again with its key, also after a restart. Then the collector has forgotten it by itself.
    let token = collector.invite(json!({ "host": "nas" })).await;
    let second = join_fleet(&nas.enrolments, &url, &token).await.unwrap();
    assert_eq!(first, second);
    nas.reports().await;
    collector.store.revoke_fleet_key("nas", Clock::System.now()).unwrap();
    let refused = leave(&url, false).await.unwrap_err();
    assert!(refused.contains("could not leave") && nas.enrolments.has(&url), "{refused}");
    let left = leave(&url, true).await.unwrap();
    assert!(!left.removed && left.message.contains("no key of `nas` is enrolled"), "{left:?}");
    nas.end().await;
    let nas = Host::start(one.path(), "nas", &url);
    assert!(!nas.enrolments.has(&url), "also after a restart");
    let (status, answer) = collector.ask(Method::DELETE, "/api/v1/fleet/enrolments?url=http://x", "").await;
    assert!(status == StatusCode::CONFLICT && answer.contains("has not joined http://x"), "{answer}");
}

#[tokio::test]
async fn host_leaves_the_old_url_of_a_collector_alone() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let (new, old) = (collector.url.clone(), collector.url.replace("127.0.0.1", "localhost"));
    let nas = Host::start(one.path(), "nas", &old);
    join_fleet(&nas.enrolments, &old, &collector.invite(json!({})).await).await.unwrap();
    nas.reports().await;
    nas.end().await;
    let nas = Host::start(one.path(), "nas", &new);
    join_fleet(&nas.enrolments, &new, &collector.invite(json!({})).await).await.unwrap();
    nas.reports().await;
    let left = leave_fleet(&nas.enrolments, &old, false).await.unwrap();
    assert!(!left.removed && left.same_as == new && left.message.contains(&new), "{left:?}");
    assert!(!nas.enrolments.has(&old) && nas.enrolments.has(&new));
    let names: Vec<String> = collector.keys().await.hosts.into_iter().map(|host| host.host).collect();
    assert_eq!(names, ["nas"]);
    // Without another URL, the collector removes the key.
    let left = leave_fleet(&nas.enrolments, &new, false).await.unwrap();
    assert!(left.removed && left.same_as.is_empty(), "{left:?}");
    assert!(collector.keys().await.hosts.is_empty());
}

#[tokio::test]
async fn host_leaves_a_collector_in_spite_of_its_old_url() {
    let (hub, one) = (folder(), folder());
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let (new, old) = (collector.url.clone(), collector.url.replace("127.0.0.1", "localhost"));
    let nas = Host::start(one.path(), "nas", &old);
    join_fleet(&nas.enrolments, &old, &collector.invite(json!({})).await).await.unwrap();
    nas.reports().await;
    nas.end().await;
    let nas = Host::start(one.path(), "nas", &new);
    join_fleet(&nas.enrolments, &new, &collector.invite(json!({})).await).await.unwrap();
    nas.reports().await;
    let left = leave_fleet(&nas.enrolments, &new, false).await.unwrap();
    assert!(left.removed && left.same_as.is_empty() && left.message.is_empty(), "{left:?}");
    assert!(!nas.enrolments.has(&new) && !nas.enrolments.has(&old));
    assert!(collector.keys().await.hosts.is_empty() && collector.hosts().is_empty());
}

/// Twelve agents, some with wrong clocks, two copies of one disk, a second machine with a name, a collector that is gone for a
/// while and then lost.
#[tokio::test]
async fn fleet_survives_wrong_clocks_and_loss_of_its_collector() {
    let hub = folder();
    let collector = Collector::start(hub.path(), Enrolment::Required).await;
    let folders: Vec<tempfile::TempDir> = (0..12).map(|_| folder()).collect();
    let (past, future) = (Timestamp(1_000), Timestamp(4_000_000_000_000));
    let mut hosts = Vec::new();
    for (number, folder) in folders.iter().enumerate() {
        let clock = match number % 6 {
            0 => Clock::starting_at(past),
            1 => Clock::starting_at(future),
            _ => Clock::System,
        };
        let name = format!("host-{number}");
        let host = Host::at(folder.path(), &name, &collector.url, clock);
        let token = collector.invite(json!({ "host": name })).await;
        join_fleet(&host.enrolments, &collector.url, &token).await.unwrap();
        hosts.push(host);
    }
    let healthy = |collector: &Collector| {
        collector.hosts().iter().filter(|host| host.state == HostState::Healthy).count()
    };
    until("all are healthy with any clock", || healthy(&collector) == 12).await;

    // The collector is gone for a while: its hosts go on, and come back by themselves.
    let before = collector.store.fleet_keys().unwrap();
    let collector = collector.restart(hub.path()).await;
    let is_later = |collector: &Collector| {
        let after = collector.store.fleet_keys().unwrap();
        after.iter().zip(&before).all(|(after, before)| after.counter > before.counter)
    };
    until("all are heard again with higher counters", || is_later(&collector)).await;
    until("all are healthy again", || healthy(&collector) == 12).await;

    // The clocks are put right. One host becomes two copies of one disk.
    for host in hosts {
        host.end().await;
    }
    let copy = folder();
    for entry in std::fs::read_dir(folders[2].path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() && entry.file_name() != "lock" {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    let start =
        |number: usize| Host::start(folders[number].path(), &format!("host-{number}"), &collector.url);
    let hosts: Vec<Host> = (0..12).map(start).collect();
    for host in &hosts {
        host.reports().await;
    }
    // An hour later, so its counters are higher: within a second of the last reservation both would begin with the same.
    let later = Clock::starting_at(Clock::System.now().after(Duration::from_hours(1)));
    let copied = Host::at(copy.path(), "host-2", &collector.url, later);
    copied.reports().await;
    let replayed = |host: &Host| host.target().error.contains("copies of one disk");
    until("the first copy is refused", || replayed(&hosts[2])).await;
    let conflict = |name: &str| {
        let all = collector.hosts();
        all.iter().find(|host| host.name == name).unwrap().conflict.is_some()
    };
    assert!(conflict("host-2") && !conflict("host-3"));
    copied.end().await;
    let folder_of_second = folder();
    let second = Host::start(folder_of_second.path(), "host-3", &collector.url);
    let token = collector.invite(json!({})).await;
    assert!(join_fleet(&second.enrolments, &collector.url, &token).await.is_err());
    assert!(conflict("host-3"));

    // The collector is lost with its keys: no host reports to the new one by itself.
    let port = collector.url.rsplit(':').next().unwrap().parse().unwrap();
    collector.stop.cancel();
    collector.server.await.unwrap();
    let new = folder();
    let collector = Collector::at(new.path(), Enrolment::Required, port).await;
    until("each host says so", || {
        let says = |host: &Host| {
            let error = host.target().error;
            error.contains("join it again") || error.contains("too many")
        };
        hosts.iter().all(says)
    })
    .await;
    assert_eq!(collector.hosts().len(), 0);
    let token = collector.invite(json!({})).await;
    join_fleet(&hosts[5].enrolments, &collector.url, &token).await.unwrap();
    until("one that joins again is healthy", || healthy(&collector) == 1).await;
}
