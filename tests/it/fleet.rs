//! A fleet: hosts that report to real collectors over HTTP, interruptions, wrong clocks, and two machines with one name.

use std::{collections::BTreeMap, io::Write, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use driftless_agent::{
    Enrolments, FleetTargets, Handle, Inbox, Notifications, ReportSource, start_fleet_reports,
    start_notifications,
};
use driftless_clock::Clock;
use driftless_config::{Enrolment, Fleet, FleetPlace, FleetReports, PlaceKind, Secret, Settings};
use driftless_fleet::{FleetStatus, HostReport, HostState, HostView, RepositoryReport};
use driftless_model::{
    AgentId, ApiToken, AuditResult, HealthStatus, HostIdentity, IncidentKind, RepositoryStatus, Scope,
    Timestamp, digest_hex,
};
use driftless_store::{FleetBounds, FleetChange, Store, StoredHost};
use driftless_web::{Access, Token, router, serve};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{
    ports::listen_again,
    program::Program,
    sample::{self, NOON, agent, commit, publish, shop},
    tls,
};

const CONFIGURED: &str = "0123456789abcdef0123456789abcdef";

/// An agent that accepts reports, with a server that can be stopped.
struct Collector {
    router: Router,
    store: Store,
    handle: Handle,
    url: String,
    port: u16,
    stop: CancellationToken,
    inbox: Inbox,
}

impl Collector {
    async fn start(expected: &[&str], access: Access) -> Self {
        let sample::Agent { handle, store, inbox } = agent([]);
        let expected = expected.iter().map(|name| (*name).to_owned()).collect();
        let handle = handle.with_fleet(Fleet { accept: true, expected, ..Fleet::default() });
        let router = router(handle.clone(), store.clone(), access);
        let mut collector = Self {
            router,
            store,
            handle,
            url: String::new(),
            port: 0,
            stop: CancellationToken::new(),
            inbox,
        };
        collector.serve().await;
        collector
    }

    /// Serves at the address that it had before, if it had one.
    async fn serve(&mut self) {
        let listener = listen_again(SocketAddr::from(([127, 0, 0, 1], self.port))).await;
        self.port = listener.local_addr().unwrap().port();
        self.url = format!("http://127.0.0.1:{}", self.port);
        self.stop = CancellationToken::new();
        tokio::spawn(serve(listener, self.router.clone(), self.stop.clone().cancelled_owned()));
    }

    fn hosts(&self) -> Vec<HostView> {
        driftless_agent::fleet_hosts(&self.handle, &self.store, Clock::System.now()).unwrap()
    }

    fn states(&self) -> Vec<(String, HostState)> {
        self.hosts().into_iter().map(|host| (host.name, host.state)).collect()
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn put(&self, host: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> (StatusCode, String) {
        let mut request = Request::put(format!("/api/v1/fleet/hosts/{host}")).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        self.send(Request::get(path).header("host", "localhost").body(Body::empty()).unwrap()).await
    }
}

/// An agent that reports.
struct Host {
    handle: Handle,
    inbox: Inbox,
    targets: FleetTargets,
    stop: CancellationToken,
}

impl Host {
    fn start(name: &str, instance: &str, to: &[&str], token: Option<&str>) -> Self {
        let sample::Agent { handle, store: _, inbox } = agent([shop()]);
        inbox.repositories.send_replace(Arc::new(vec![followed()]));
        let places = to.iter().map(|url| {
            let place = FleetPlace::parse(url).unwrap();
            let token = token.map(|_| Secret::Environment("TOKEN".to_owned()));
            FleetPlace { kind: PlaceKind::Collector { token }, ..place }
        });
        let settings = FleetReports { to: places.collect(), every: Duration::from_millis(200) };
        let token = token.map(str::to_owned);
        let labels = BTreeMap::from([("role".to_owned(), "web".to_owned())]);
        let source = ReportSource {
            handle: handle.clone(),
            host: HostIdentity { name: name.to_owned(), labels },
            instance: AgentId(instance.to_owned()),
            engine_version: Arc::new(|| Some("20.10.24".to_owned())),
            page: "https://nas.example.com".to_owned(),
            environment: Arc::new(move |_: &str| token.clone()),
            enrolments: Enrolments::default(),
            requests: Default::default(),
            is_released: false,
            clock: Clock::System,
        };
        let stop = CancellationToken::new();
        let targets = start_fleet_reports(&settings, &source, &stop, &TaskTracker::new());
        Self { handle, inbox, targets, stop }
    }

    fn error(&self, index: usize) -> String {
        self.targets.list()[index].error.clone()
    }
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The repository of the shop.
pub(crate) fn followed() -> RepositoryStatus {
    RepositoryStatus {
        name: "infra".to_owned(),
        url: "https://git.example.com/me/infra.git".to_owned(),
        reference: "main".to_owned(),
        commit: Some(commit('a', "First")),
        history_length: None,
        applications: 1,
        message: String::new(),
        reason: String::new(),
        fetched_at: None,
        next_fetch: None,
        keys: Vec::new(),
        hosts: Vec::new(),
    }
}

fn report(host: &str, instance: &str) -> HostReport {
    let commit = Some(commit('a', "First").id);
    let repository = RepositoryReport { name: "infra".to_owned(), commit, ..RepositoryReport::default() };
    HostReport {
        host: host.to_owned(),
        instance: instance.to_owned(),
        repositories: vec![repository],
        ..HostReport::default()
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn hosts_that_git_names_are_expected() {
    let collector = Collector::start(&["nas"], Access::loopback()).await;
    let repository = RepositoryStatus { hosts: vec!["web-1".to_owned(), "nas".to_owned()], ..followed() };
    collector.inbox.repositories.send_replace(Arc::new(vec![repository]));
    let never = |name: &str| (name.to_owned(), HostState::NeverReported);
    assert_eq!(collector.states(), [never("nas"), never("web-1")]);
    assert!(collector.hosts().iter().all(|host| host.expected));
}

#[tokio::test]
async fn hosts_report_to_every_collector_that_answers() {
    let one = Collector::start(&["nas", "new"], Access::loopback()).await;
    let two = Collector::start(&[], Access::loopback()).await;
    // Nothing listens there.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone_url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let to = [gone_url.as_str(), one.url.as_str(), two.url.as_str()];
    let hosts: Vec<Host> = ["nas", "web-1", "web-2"].map(|name| Host::start(name, name, &to, None)).into();
    until("all hosts report", || one.hosts().len() == 4 && two.hosts().len() == 3).await;
    let healthy = |name: &str| (name.to_owned(), HostState::Healthy);
    let new = ("new".to_owned(), HostState::NeverReported);
    assert_eq!(one.states(), [new, healthy("nas"), healthy("web-1"), healthy("web-2")]);
    until("the error is seen", || hosts.iter().all(|host| !host.error(0).is_empty())).await;
    assert_eq!(hosts[0].error(0), "no collector answers: Connection refused (os error 111)");
    assert_eq!((hosts[0].error(1), hosts[0].error(2)), (String::new(), String::new()));

    let seen = one.hosts().into_iter().find(|host| host.name == "web-1").unwrap();
    let report = seen.report.unwrap();
    assert_eq!(report.labels["role"], "web");
    assert_eq!(report.engine_version, "20.10.24");
    assert_eq!(report.page, "https://nas.example.com");
    let application = &report.applications[0];
    assert_eq!((application.name.as_str(), application.revision), ("shop", Some(4)));
    assert_eq!(application.commit.as_ref().unwrap().as_str(), "a".repeat(40));
    let stored = one.store.fleet_host("web-1").unwrap().unwrap().report;
    assert!(!stored.contains("registry.example.com") && !stored.contains("start shop-web-2"), "{stored}");
}

#[tokio::test]
async fn change_is_reported_before_the_next_heartbeat() {
    let collector = Collector::start(&[], Access::loopback()).await;
    let host = Host::start("nas", "a1", &[&collector.url], None);
    until("the host reports", || collector.hosts().len() == 1).await;
    let mut changed = shop();
    changed.status.health = HealthStatus::Degraded;
    changed.status.message = "web is not ready".to_owned();
    publish(&host.inbox, [changed]);
    until("the change arrives", || collector.states()[0].1 == HostState::Degraded).await;
    assert_eq!(collector.hosts()[0].reason, "shop: web is not ready");
}

#[tokio::test]
async fn heartbeat_uses_no_connection_that_was_idle() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = Host::start("nas", "a1", &[&format!("http://{}", listener.local_addr().unwrap())], None);
    // The server may close such a connection at any moment, also while the next heartbeat arrives.
    let mut open = Vec::new();
    for _ in 0..3 {
        let (mut connection, _) = timeout(Duration::from_secs(20), listener.accept()).await.unwrap().unwrap();
        let mut part = vec![0; 64 * 1024];
        assert!(connection.read(&mut part).await.unwrap() > 0);
        connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        open.push(connection);
    }
    assert_eq!(host.error(0), "");
    host.stop.cancel();
}

#[tokio::test]
async fn collector_that_comes_back_gets_the_newest_state() {
    let mut collector = Collector::start(&[], Access::loopback()).await;
    let host = Host::start("nas", "a1", &[&collector.url], None);
    until("the host reports", || collector.hosts().len() == 1).await;
    collector.stop.cancel();
    until("the host notices", || !host.error(0).is_empty()).await;
    for id in ['b', 'c', 'd'] {
        let mut changed = shop();
        changed.status.commit = Some(commit(id, "Later"));
        publish(&host.inbox, [changed]);
    }
    until("heartbeats are missed", || collector.states()[0].1 == HostState::Stale).await;
    collector.serve().await;
    until("the host is back", || collector.states()[0].1 == HostState::Healthy).await;
    let report = collector.hosts().remove(0).report.unwrap();
    assert_eq!(report.applications[0].commit.as_ref().unwrap().as_str(), "d".repeat(40));
    until("the error is gone", || host.error(0).is_empty()).await;

    // A collector that has lost its database gets the whole report again.
    assert!(collector.store.remove_fleet_host("nas").unwrap());
    until("the report is repeated", || collector.hosts().len() == 1).await;
}

#[tokio::test]
async fn second_machine_with_a_name_is_refused_while_first_is_fresh() {
    let collector = Collector::start(&[], Access::loopback()).await;
    let first = Host::start("nas", "a1", &[&collector.url], None);
    until("the first reports", || collector.hosts().len() == 1).await;
    let second = Host::start("nas", "b2", &[&collector.url], None);
    until("the second is refused", || second.error(0).contains("another machine")).await;
    assert_eq!(
        second.error(0),
        "it answered 409 Conflict: another machine (instance a1) reports as `nas`: give one of the two another name"
    );
    assert_eq!(first.error(0), "");
    sleep(Duration::from_millis(700)).await;
    let host = collector.hosts().remove(0);
    assert_eq!(host.report.unwrap().instance, "a1");
    assert_eq!(host.conflict.unwrap().instance, "b2");
    let (_, page) = collector.get("/fleet").await;
    assert!(page.contains("Another machine (b2) reports with this name"), "{page}");
    let audit = collector.store.audit(None, 100, None).unwrap();
    let entries: Vec<_> =
        audit.iter().map(|entry| (entry.action.as_str(), entry.result, entry.detail.as_str())).collect();
    let refused = "nas: refused machine b2, because a1 has this name";
    assert_eq!(
        entries,
        [
            ("report host", AuditResult::Refused, refused),
            ("report host", AuditResult::Accepted, "nas: new host")
        ],
        "one entry for each event, not for each report"
    );

    first.stop.cancel();
    let is_second = || collector.hosts()[0].report.as_ref().unwrap().instance == "b2";
    until("the second takes the name", is_second).await;
    until("its error is gone", || second.error(0).is_empty()).await;
}

#[tokio::test]
async fn heartbeat_repeats_nothing() {
    let collector = Collector::start(&[], Access::loopback()).await;
    let json = serde_json::to_vec(&report("nas", "a1")).unwrap();
    let digest = format!("\"{}\"", digest_hex(&json));
    let beat = [("if-none-match", digest.as_str()), ("driftless-instance", "a1")];
    let (status, body) = collector.put("nas", &beat, "").await;
    assert_eq!(status, StatusCode::PRECONDITION_REQUIRED);
    assert!(body.contains("reportNeeded"), "{body}");
    let (status, _) = collector.put("nas", &[("content-encoding", "gzip")], gzip(&json)).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let before = collector.store.fleet_host("nas").unwrap().unwrap();
    sleep(Duration::from_millis(5)).await;
    assert_eq!(collector.put("nas", &beat, "").await, (StatusCode::NOT_MODIFIED, String::new()));
    let after = collector.store.fleet_host("nas").unwrap().unwrap();
    assert!(after.received > before.received);
    assert_eq!(StoredHost { received: before.received, ..after }, before);
    let other = [("if-none-match", digest.as_str()), ("driftless-instance", "b2")];
    assert_eq!(collector.put("nas", &other, "").await.0, StatusCode::PRECONDITION_REQUIRED);
    // The same report twice is the same as once.
    assert_eq!(collector.put("nas", &[], json).await.0, StatusCode::NO_CONTENT);
    assert_eq!(collector.hosts().len(), 1);
}

#[tokio::test]
async fn malformed_and_large_reports_change_nothing() {
    let collector = Collector::start(&[], Access::loopback()).await;
    let gz = [("content-encoding", "gzip")];
    let bomb = gzip(&vec![b' '; 64 * 1024 * 1024]);
    assert_eq!(collector.put("nas", &gz, bomb).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let (status, answer) = collector.put("nas", &[], vec![b' '; 600 * 1024]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(answer.contains("more than 512 KiB as it is sent"), "{answer}");
    let json = serde_json::to_string(&report("nas", "a1")).unwrap();
    for (host, headers, body, reason) in [
        ("nas", &gz[..], "no gzip", "the body is no gzip"),
        ("nas", &[("content-encoding", "br")][..], json.as_str(), "must be gzip"),
        ("nas", &[][..], "[]", "the report"),
        ("nas", &[][..], "", "the report"),
        ("web", &[][..], json.as_str(), "the report is that of host `nas`"),
        ("%2e%2e", &[][..], json.as_str(), "is no name of a host"),
    ] {
        let (status, answer) = collector.put(host, headers, body.to_owned()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{host} {body}: {answer}");
        assert!(answer.contains(reason), "{answer}");
    }
    let newer = json.replace("\"schema\":1", "\"schema\":2");
    let (status, answer) = collector.put("nas", &[], newer).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer.contains("update the older one"), "{answer}");
    assert_eq!(collector.hosts(), []);
}

#[tokio::test]
async fn full_collector_refuses_and_the_host_says_so() {
    let collector = Collector::start(&[], Access::loopback()).await;
    let large = StoredHost {
        name: "large".to_owned(),
        instance: "a1".to_owned(),
        digest: String::new(),
        received: Clock::System.now(),
        report: " ".repeat(64 << 20),
        conflict: None,
    };
    let bounds = FleetBounds { hosts: 1, bytes: 1 << 30 };
    let stored = |_| (FleetChange::Report(large), Vec::new(), ());
    collector.store.change_fleet_host("large", bounds, stored).unwrap().unwrap();
    let host = Host::start("nas", "a1", &[&collector.url], None);
    until("the host is refused", || !host.error(0).is_empty()).await;
    let error = "it answered 507 Insufficient Storage: all reports at this collector together would have more than 64 MiB, with 1 KiB of this host";
    assert_eq!(host.error(0), error);
    let message = format!("could not report to {}: {error}", collector.url);
    until("the problem is seen", || !host.handle.problems().list().is_empty()).await;
    let problem = host.handle.problems().list().remove(0);
    assert_eq!((problem.subject.as_str(), problem.message), ("report", message));

    assert!(collector.store.remove_fleet_host("large").unwrap());
    until("the host reports", || host.handle.problems().list().is_empty()).await;
    assert_eq!(collector.hosts()[0].name, "nas");
}

#[tokio::test]
async fn untrusted_certificate_of_a_collector_is_a_problem() {
    let mut program = Program::new();
    let url = tls::start(&mut program).await;
    let host = Host::start("nas", "a1", &[&url], None);
    until("the certificate is refused", || host.error(0).contains("`report.caFile`")).await;
    until("the problem is seen", || !host.handle.problems().list().is_empty()).await;
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_first_reports_of_a_name_wins() {
    let collector = Collector::start(&[], Access::loopback()).await;
    let put = async |instance: &str| {
        let json = serde_json::to_string(&report("nas", instance)).unwrap();
        collector.put("nas", &[], json).await.0
    };
    let (first, second) = tokio::join!(put("a1"), put("b2"));
    let mut answers = [first, second];
    answers.sort();
    assert_eq!(answers, [StatusCode::NO_CONTENT, StatusCode::CONFLICT]);
    assert!(collector.hosts()[0].conflict.is_some());
}

#[tokio::test]
async fn agent_that_is_no_collector_accepts_nothing() {
    let sample::Agent { handle, store, inbox: _inbox } = agent([shop()]);
    let router = router(handle, store, Access::loopback());
    let request = |method, path| Request::builder().method(method).uri(path).header("host", "localhost");
    let body = serde_json::to_string(&report("nas", "a1")).unwrap();
    let put = request("PUT", "/api/v1/fleet/hosts/nas").body(Body::from(body)).unwrap();
    let answer = router.clone().oneshot(put).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("noCollector"), "{text:?}");
    let get = request("GET", "/api/v1/fleet/hosts").body(Body::empty()).unwrap();
    let answer = router.oneshot(get).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<FleetStatus>(&answer).unwrap(), FleetStatus::default());
}

#[tokio::test]
async fn token_of_a_host_reports_that_host_and_reads_nothing() {
    let access = Access::token(Token::new(CONFIGURED).unwrap());
    let collector = Collector::start(&[], access).await;
    let token = ApiToken {
        name: "nas".to_owned(),
        scopes: vec![Scope::parse("report:host/nas").unwrap()],
        created: Timestamp(1),
        created_by: driftless_model::Actor::agent(),
        expires: None,
    };
    // Created by the API, as the command does.
    let body = serde_json::json!({ "name": token.name, "scopes": token.scopes }).to_string();
    let create = Request::post("/api/v1/tokens").header("authorization", format!("Bearer {CONFIGURED}"));
    let (status, answer) = collector.send(create.body(Body::from(body)).unwrap()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let secret = serde_json::from_str::<serde_json::Value>(&answer).unwrap()["secret"].clone();
    let secret = secret.as_str().unwrap().to_owned();

    let nas = Host::start("nas", "a1", &[&collector.url], Some(&secret));
    let web = Host::start("web", "b2", &[&collector.url], Some(&secret));
    let nobody = Host::start("tv", "c3", &[&collector.url], None);
    until("the host reports", || collector.hosts().len() == 1 && nas.error(0).is_empty()).await;
    until("others are refused", || !web.error(0).is_empty() && !nobody.error(0).is_empty()).await;
    assert_eq!(web.error(0), "it answered 403 Forbidden: token nas has no scope `report:host/web`");
    assert!(nobody.error(0).contains("no key there, and sends no token"), "{}", nobody.error(0));
    assert!(
        nobody.error(0).contains(&format!("driftless fleet join {}", collector.url)),
        "{}",
        nobody.error(0)
    );
    let bearer = format!("Bearer {secret}");
    for (method, path) in [
        ("GET", "/api/v1/fleet/hosts"),
        ("GET", "/api/v1/applications"),
        ("GET", "/fleet"),
        ("GET", "/fleet/nas"),
        ("GET", "/metrics"),
        ("POST", "/api/v1/applications/shop/sync"),
        ("DELETE", "/api/v1/fleet/hosts/nas"),
    ] {
        let request = Request::builder().method(method).uri(path).header("authorization", &bearer);
        let (status, _) = collector.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}");
    }
    assert_eq!(collector.hosts().len(), 1);

    // It reads where the others are, but no messages, and only the applications that it asks for.
    nas.inbox.repositories.send_replace(Arc::new(vec![RepositoryStatus {
        message: "could not fetch https://git.example.com".to_owned(),
        ..followed()
    }]));
    until("the message is reported", || collector.hosts()[0].reason.contains("git.example.com")).await;
    for (query, applications) in [("", 1), ("?applications=shop,mail", 1), ("?applications=mail", 0)] {
        let request = Request::get(format!("/api/v1/fleet/peers{query}")).header("authorization", &bearer);
        let (status, answer) = collector.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert!(!answer.contains("git.example.com"), "{answer}");
        let seen: FleetStatus = serde_json::from_str(&answer).unwrap();
        let report = seen.hosts[0].report.as_ref().unwrap();
        assert_eq!(report.applications.len(), applications, "{query}");
        assert_eq!(
            report.unobserved(&report.repositories[0]),
            None,
            "an application that is left out is not missing"
        );
    }
}

#[tokio::test]
async fn history_of_the_fleet_has_each_revision_once() {
    let collector = Collector::start(&[], Access::loopback()).await;
    let host = Host::start("nas", "a1", &[&collector.url], None);
    until("the host reports", || collector.hosts().len() == 1).await;
    let mut next = shop();
    next.status.revision = Some(next.status.revision.unwrap_or_default() + 1);
    publish(&host.inbox, [next]);
    let store = collector.store.clone();
    until("the revision is heard", || store.fleet_history(Some("nas"), None, 10).unwrap().len() == 2).await;
    let (status, answer) = collector.get("/api/v1/fleet/history?host=nas&app=shop&limit=1").await;
    assert_eq!(status, StatusCode::OK);
    let entries: Vec<driftless_fleet::FleetHistoryEntry> = serde_json::from_str(&answer).unwrap();
    assert_eq!((entries.len(), entries[0].host.as_str()), (1, "nas"));
    assert_eq!(entries[0].event, driftless_fleet::FleetHistoryEvent::Revision);
    let (_, answer) = collector.get("/api/v1/fleet/history?host=other").await;
    assert_eq!(answer, "[]");

    // The agent is started again: at first it has read no repository, and nothing is removed.
    host.stop.cancel();
    let running = HostReport::clone(collector.hosts()[0].report.as_ref().unwrap());
    let mut started = HostReport { applications: Vec::new(), ..running.clone() };
    (started.repositories[0].commit, started.repositories[0].applications) = (None, 0);
    for report in [&started, &running, &started, &running] {
        let (status, answer) = collector.put("nas", &[], serde_json::to_string(report).unwrap()).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    }
    assert_eq!(store.fleet_history(Some("nas"), None, 10).unwrap().len(), 2);
}

#[tokio::test]
async fn removed_host_is_in_the_audit_and_gone() {
    let collector = Collector::start(&[], Access::loopback()).await;
    let json = serde_json::to_string(&report("nas", "a1")).unwrap();
    collector.put("nas", &[], json).await;
    let delete = |name| Request::delete(format!("/api/v1/fleet/hosts/{name}")).header("host", "localhost");
    let (status, _) = collector.send(delete("nas").body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (status, body) = collector.send(delete("nas").body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.contains("noSuchHost"), "{body}");
    assert_eq!(collector.hosts(), []);
    let newest = collector.store.audit(None, 1, None).unwrap().remove(0);
    assert_eq!((newest.action.as_str(), newest.detail.as_str()), ("remove host", "nas"));
}

#[tokio::test]
async fn removal_of_an_expected_host_names_the_place() {
    let collector = Collector::start(&["nas"], Access::loopback()).await;
    let repository = RepositoryStatus { hosts: vec!["web-1".to_owned()], ..followed() };
    collector.inbox.repositories.send_replace(Arc::new(vec![repository]));
    for (name, place) in
        [("nas", "`fleet.expected` of the collector"), ("web-1", "`driftless.yaml` of the repository infra")]
    {
        let request = Request::delete(format!("/api/v1/fleet/hosts/{name}")).header("host", "localhost");
        let (status, body) = collector.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::CONFLICT, "{body}");
        assert!(body.contains(place) && body.contains("remove it there"), "{body}");
    }
}

#[tokio::test]
async fn page_and_metrics_show_fresh_and_lost_hosts() {
    let collector = Collector::start(&["new"], Access::loopback()).await;
    let now = Clock::System.now();
    for (name, age) in [("nas", 0), ("old", 3600)] {
        let mut report = report(name, "a1");
        report.applications.push(driftless_fleet::ApplicationReport {
            name: "shop".into(),
            repository: "infra".to_owned(),
            sync: driftless_model::SyncStatus::Synced,
            health: HealthStatus::Healthy,
            suspended: None,
            pinned: None,
            well: false,
            revision: Some(1),
            commit: None,
            message: "<script>alert(1)</script>".to_owned(),
            failed: None,
            images: None,
            failed_images: None,
            revision_commit: None,
            drift: 2,
        });
        let host = StoredHost {
            name: name.to_owned(),
            instance: "a1".to_owned(),
            digest: "1".to_owned(),
            received: Timestamp(now.0 - age * 1000),
            report: serde_json::to_string(&report).unwrap(),
            conflict: None,
        };
        sample::keep_report(&collector.store, host);
    }
    let (status, page) = collector.get("/fleet").await;
    assert_eq!(status, StatusCode::OK);
    let places = ["old", "new", "nas"].map(|name| page.find(&format!("{name}</")).unwrap());
    assert!(places.is_sorted(), "worst first: {places:?}");
    assert!(!page.contains("<script>alert"), "{page}");
    // The last word of a lost host is not shown as if it were true.
    assert!(page.contains("was Healthy"), "{page}");
    assert_eq!(page.matches("badge good\">Healthy").count(), 2, "state and application once: {page}");
    let (_, front) = collector.get("/").await;
    assert!(front.contains("href=\"fleet\""));
    let (_, metrics) = collector.get("/metrics").await;
    for line in [
        "driftless_fleet_host_up{host=\"nas\"} 1",
        "driftless_fleet_host_up{host=\"old\"} 0",
        "driftless_fleet_host_up{host=\"new\"} 0",
        "driftless_fleet_last_report_seconds{host=\"nas\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(!metrics.contains("driftless_fleet_last_report_seconds{host=\"new\"}"));
}

#[tokio::test(start_paused = true)]
async fn lost_host_is_an_incident_until_it_is_heard() {
    let clock = Clock::starting_at(NOON);
    let sample::Agent { handle, store, inbox: _inbox } = agent([]);
    // It stays listed after its removal.
    let expected = vec!["gone".to_owned()];
    let handle = handle.with_fleet(Fleet { accept: true, expected, ..Fleet::default() });
    let text = "repositories:\n- url: https://git.example.com/me/infra.git\nnotifications:\n  receivers:\n  - name: phone\n    type: webhook\n    url: http://127.0.0.1:1\n";
    let settings = Settings::parse("driftless.yaml", text).unwrap();
    let made =
        Notifications::new(&settings.notifications, store.clone(), &(Arc::new(|_: &str| None) as _), clock);
    let notifications = made.unwrap_or_else(|(_, error)| panic!("{error}"));
    let hear = |name: &str, at: Timestamp| {
        let host = StoredHost {
            name: name.to_owned(),
            instance: "a1".to_owned(),
            digest: "1".to_owned(),
            received: at,
            report: serde_json::to_string(&report(name, "a1")).unwrap(),
            conflict: None,
        };
        sample::keep_report(&store, host);
    };
    // The collector itself was down for an hour.
    let long_ago = Timestamp(NOON.0 - 3_600_000);
    hear("nas", long_ago);
    hear("gone", long_ago);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    start_notifications(&notifications, &handle, &stop, &tasks);
    let open = || {
        let open = store.open_incidents().unwrap().into_iter().filter(|incident| incident.opened.is_some());
        open.map(|incident| (incident.kind, incident.host.unwrap_or_default())).collect::<Vec<_>>()
    };
    sleep(Duration::from_mins(2)).await;
    assert_eq!(open(), [], "hosts get the time to report to a collector that was down");
    hear("nas", clock.now());
    sleep(Duration::from_mins(4)).await;
    assert_eq!(open(), [(IncidentKind::HostLost, "gone".to_owned())]);
    // A line that is cut for an hour.
    sleep(Duration::from_mins(60)).await;
    let lost = |name: &str| (IncidentKind::HostLost, name.to_owned());
    assert_eq!(open(), [lost("gone"), lost("nas")]);
    hear("nas", clock.now());
    sleep(Duration::from_mins(2)).await;
    assert_eq!(open(), [lost("gone")]);
    assert!(store.remove_fleet_host("gone").unwrap());
    sleep(Duration::from_mins(2)).await;
    assert_eq!(open(), []);
    let waiting = store.waiting_notifications("phone").unwrap();
    let headlines: Vec<String> = waiting.iter().map(|it| it.incident.headline(it.phase)).collect();
    assert!(headlines.contains(&"host gone was removed from the fleet".to_owned()), "{headlines:?}");
    assert!(
        headlines.contains(&"host nas is lost".to_owned())
            || headlines.contains(&"host nas is back".to_owned()),
        "{headlines:?}"
    );
    stop.cancel();
}

#[test]
fn settings_of_a_fleet_are_checked() {
    let parse = |text: &str| {
        let text = format!("repositories:\n- url: https://git.example.com/me/infra.git\n{text}");
        Settings::parse("driftless.yaml", &text)
    };
    let settings = parse(
        "report:\n  to: [https://hub.example.com/, http://10.0.0.1:8484]\n  tokenFile: /etc/driftless/token\n  caFile: /etc/driftless/hub.pem\n  every: 10s\nfleet:\n  accept: true\n  expected: [nas, web-1]\n",
    )
    .unwrap();
    let urls: Vec<&str> = settings.report.to.iter().map(|place| place.url.as_str()).collect();
    assert_eq!(urls, ["https://hub.example.com", "http://10.0.0.1:8484"]);
    assert_eq!(settings.report.every, Duration::from_secs(10));
    for place in &settings.report.to {
        assert_eq!(place.ca_file, Some("/etc/driftless/hub.pem".into()));
        let token = Some(Secret::File("/etc/driftless/token".into()));
        assert_eq!(place.kind, PlaceKind::Collector { token });
    }
    let warnings: Vec<String> = settings.warnings("f").into_iter().map(|it| it.message).collect();
    let exposed = "the token or password crosses the network in clear to http://10.0.0.1:8484, unless this host has joined it";
    assert_eq!(warnings, [exposed]);
    let expected = vec!["nas".to_owned(), "web-1".to_owned()];
    assert_eq!(settings.fleet, Fleet { accept: true, expected, ..Fleet::default() });
    let asked = "fleet: {allowRequests: [sync, rollback]}\n";
    let allowed = parse(asked).unwrap();
    let kinds: Vec<&str> = allowed.fleet.allow_requests.iter().map(|kind| kind.word()).collect();
    assert_eq!(kinds, ["sync", "rollback"]);
    let warnings: Vec<String> = allowed.warnings("f").into_iter().map(|it| it.message).collect();
    assert_eq!(warnings, ["it has no effect without a collector in `report.to`"]);
    assert!(parse(&format!("{asked}report: {{to: https://hub}}\n")).unwrap().warnings("f").is_empty());
    assert_eq!(
        parse("fleet: {accept: true, enrolment: required}\n").unwrap().fleet.enrolment,
        Enrolment::Required
    );
    assert_eq!(parse("report: {to: 'http://hub:8484'}\n").unwrap().report.to[0].url, "http://hub:8484");
    for (text, message) in [
        ("report: {}\n", "to"),
        ("report: {to: hub.example.com}\n", "a place of reports"),
        ("report: {to: 'https://me:pw@hub.example.com'}\n", "without a user"),
        ("report: {to: [http://a, http://a/]}\n", "already"),
        ("report: {to: http://a, every: 1s}\n", "from `5s` to `3m`"),
        ("report: {to: http://a, every: 10m}\n", "from `5s` to `3m`"),
        ("report: {to: http://a, tokenFile: /a, tokenEnv: A}\n", "exclude each other"),
        ("fleet: {expected: [nas]}\n", "no effect"),
        ("fleet: {accept: true, expected: ['a b']}\n", "must be letters"),
        ("fleet: {accept: true, expected: [a, a]}\n", "already"),
        ("fleet: {acept: true}\n", "acept"),
        ("fleet: {enrolment: required}\n", "no effect"),
        ("fleet: {accept: true, enrolment: maybe}\n", "required"),
        ("fleet: {allowRequests: [restart]}\n", "must be `sync`"),
    ] {
        let findings = parse(text).unwrap_err();
        let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|finding| finding.contains(message)), "{text}: {all:?}");
    }
}

#[tokio::test]
async fn collector_that_git_names_is_known_without_a_report() {
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    let name_in_git = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|name| (*name).to_owned()).collect();
        inbox.repositories.send_replace(Arc::new(vec![RepositoryStatus { hosts, ..followed() }]));
    };
    let source = ReportSource {
        handle: handle.clone(),
        host: HostIdentity { name: "hub".to_owned(), labels: BTreeMap::new() },
        instance: AgentId("a1".to_owned()),
        engine_version: Arc::new(|| None),
        page: String::new(),
        environment: Arc::new(|_: &str| None),
        enrolments: Enrolments::default(),
        requests: Default::default(),
        is_released: false,
        clock: Clock::System,
    };
    let handle = handle
        .with_fleet(Fleet { accept: true, ..Fleet::default() })
        .with_place("hub".to_owned(), String::new())
        .with_own_report(source.for_itself(Duration::from_secs(30)));
    let states = || {
        let hosts = driftless_agent::fleet_hosts(&handle, &store, Clock::System.now()).unwrap();
        hosts.into_iter().map(|host| (host.name, host.state)).collect::<Vec<_>>()
    };
    name_in_git(&["hub", "nas"]);
    let (hub, nas) = ("hub".to_owned(), "nas".to_owned());
    assert_eq!(states(), [(nas.clone(), HostState::NeverReported), (hub.clone(), HostState::Healthy)]);
    // A collector that is no host of the fleet is none of its hosts.
    name_in_git(&["nas"]);
    assert_eq!(states(), [(nas.clone(), HostState::NeverReported)]);
    // One that reports to itself, or another machine with its name, is as it reported.
    name_in_git(&["hub", "nas"]);
    let reported = HostReport { host: hub.clone(), instance: "b2".to_owned(), ..HostReport::default() };
    let received = Timestamp(Clock::System.now().0 - 3_600_000);
    let stored = StoredHost {
        name: hub.clone(),
        instance: "b2".to_owned(),
        digest: "1".to_owned(),
        received,
        report: serde_json::to_string(&reported).unwrap(),
        conflict: None,
    };
    sample::keep_report(&store, stored);
    assert_eq!(states(), [(hub, HostState::Lost), (nas, HostState::NeverReported)]);
}
