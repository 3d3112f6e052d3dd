//! Probes: the kubelet's thresholds and delays under paused time, and HTTP and TCP on real sockets.

#![allow(clippy::unwrap_used, clippy::pedantic)]

use std::{
    collections::BTreeMap,
    future::Future,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use driftless_agent::probe::{Exec, ExecError, ProbedContainer, Prober};
use driftless_clock::Clock;
use driftless_model::{AppName, ContainerId, Healthcheck, Probe, ProbeAction, Probes, Readiness, Timestamp};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::{advance, sleep},
};

/// Commands whose exit code a test sets by the command's first word; it notes when each was run.
#[derive(Default)]
struct Commands {
    codes: Mutex<BTreeMap<String, i64>>,
    runs: Mutex<Vec<(String, Timestamp)>>,
    clock: Mutex<Option<Clock>>,
    /// The engine does not answer.
    is_away: AtomicBool,
}

impl Exec for Commands {
    fn exec<'a>(
        &'a self,
        _: &'a ContainerId,
        command: &'a [String],
        _: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<i64, ExecError>> + Send + 'a>> {
        Box::pin(async move {
            let now = self.clock.lock().unwrap().unwrap().now();
            self.runs.lock().unwrap().push((command[0].clone(), now));
            if command[0] == "hang" {
                std::future::pending::<()>().await;
            }
            if self.is_away.load(Ordering::SeqCst) {
                return Err(ExecError::Unanswered);
            }
            Ok(self.codes.lock().unwrap().get(&command[0]).copied().unwrap_or(0))
        })
    }

    fn is_answering(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async { !self.is_away.load(Ordering::SeqCst) })
    }

    fn check_health<'a>(
        &'a self,
        container: &'a ContainerId,
        check: &'a Healthcheck,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async { self.exec(container, &check.test[1..], Duration::ZERO).await == Ok(0) })
    }
}

struct Bench {
    prober: Prober,
    commands: Arc<Commands>,
    clock: Clock,
    wakes: Arc<AtomicUsize>,
    woken: Arc<Notify>,
    app: AppName,
}

const EPOCH: Timestamp = Timestamp(1_800_000_000_000);

impl Bench {
    fn new() -> Self {
        let clock = Clock::starting_at(EPOCH);
        let commands = Arc::new(Commands::default());
        *commands.clock.lock().unwrap() = Some(clock);
        let (wakes, woken) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counter, notify) = (wakes.clone(), woken.clone());
        let changed = Arc::new(move |_: &AppName| {
            counter.fetch_add(1, Ordering::SeqCst);
            notify.notify_one();
        });
        let prober = Prober::new(clock, commands.clone(), changed);
        Self { prober, commands, clock, wakes, woken, app: AppName::from("shop") }
    }

    fn want(&self, started: Timestamp, probes: Probes) {
        self.prober.set_containers(&self.app, vec![target(started, probes)], &BTreeMap::new());
    }

    fn code(&self, command: &str, code: i64) {
        self.commands.codes.lock().unwrap().insert(command.to_owned(), code);
    }

    fn set_away(&self, is_away: bool) {
        self.commands.is_away.store(is_away, Ordering::SeqCst);
    }

    fn readiness(&self, started: Timestamp) -> Option<Readiness> {
        self.prober.readiness(&container(), started)
    }

    /// The second since the test began from which on it is ready.
    fn ready_since(&self) -> Option<u64> {
        match self.readiness(EPOCH)? {
            Readiness::Ready { since } => Some(since.since(EPOCH).as_secs()),
            Readiness::Starting { .. } | Readiness::NotReady { .. } | Readiness::Dead { .. } => None,
        }
    }

    /// Seconds since the test began at which a command was run.
    fn runs(&self, command: &str) -> Vec<u64> {
        let runs = self.commands.runs.lock().unwrap();
        runs.iter().filter(|it| it.0 == command).map(|it| it.1.since(EPOCH).as_secs()).collect()
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

fn container() -> ContainerId {
    ContainerId("80".repeat(32))
}

fn target(started: Timestamp, probes: Probes) -> ProbedContainer {
    ProbedContainer {
        container: container(),
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        started,
        probes,
        health_check: None,
    }
}

fn probe(action: ProbeAction) -> Probe {
    Probe {
        action,
        initial_delay: Duration::ZERO,
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
        success_threshold: 1,
        failure_threshold: 3,
    }
}

fn exec(command: &str) -> Probe {
    probe(ProbeAction::Exec { command: vec![command.to_owned()] })
}

fn readiness(probe: Probe) -> Probes {
    Probes { readiness: Some(probe), ..Probes::default() }
}

/// Moves the time and lets everything due by then happen.
async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
    advance(Duration::from_millis(1)).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn first_probe_waits_for_the_initial_delay() {
    let bench = Bench::new();
    bench.want(EPOCH, readiness(Probe { initial_delay: Duration::from_secs(5), ..exec("ready") }));
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Starting { .. })));
    pass(4).await;
    assert_eq!(bench.runs("ready"), [0_u64; 0]);
    pass(1).await;
    assert_eq!(bench.ready_since(), Some(5));
    assert_eq!(bench.wakes(), 1);
    pass(25).await;
    assert_eq!(bench.runs("ready"), [5, 15, 25]);
    assert_eq!(bench.wakes(), 1, "no news, no wake");
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_does_not_repeat_the_initial_delay() {
    let bench = Bench::new();
    let long_ago = Timestamp(EPOCH.0 - 3_600_000);
    bench.want(long_ago, readiness(Probe { initial_delay: Duration::from_secs(600), ..exec("ready") }));
    pass(2).await;
    assert!(matches!(bench.readiness(long_ago), Some(Readiness::Ready { .. })));
}

#[tokio::test(start_paused = true)]
async fn readiness_changes_at_its_thresholds() {
    let bench = Bench::new();
    bench.want(EPOCH, readiness(Probe { success_threshold: 2, ..exec("ready") }));
    pass(0).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Starting { .. })), "one success of two");
    pass(10).await;
    assert_eq!(bench.ready_since(), Some(0), "since the first of the two");

    bench.code("ready", 7);
    pass(20).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Ready { .. })), "two failures of three");
    pass(10).await;
    let reason = "readiness probe: the command ended with code 7".to_owned();
    assert_eq!(bench.readiness(EPOCH), Some(Readiness::NotReady { reason }));

    bench.code("ready", 0);
    pass(20).await;
    assert_eq!(bench.ready_since(), Some(50));
    assert_eq!(bench.wakes(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_success_between_failures_resets_the_count() {
    let bench = Bench::new();
    bench.want(EPOCH, Probes { liveness: Some(exec("alive")), ..Probes::default() });
    bench.code("alive", 1);
    pass(10).await;
    bench.code("alive", 0);
    pass(10).await;
    bench.code("alive", 1);
    pass(20).await;
    assert_eq!(bench.ready_since(), Some(0), "two and two are not three");
    pass(10).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Dead { .. })));
}

#[tokio::test(start_paused = true)]
async fn dead_container_is_not_probed_until_its_restart() {
    let bench = Bench::new();
    let probes =
        Probes { liveness: Some(exec("alive")), readiness: Some(exec("ready")), ..Probes::default() };
    bench.want(EPOCH, probes.clone());
    bench.code("alive", 1);
    pass(20).await;
    let reason = "liveness probe: the command ended with code 1".to_owned();
    assert_eq!(bench.readiness(EPOCH), Some(Readiness::Dead { reason }));
    pass(60).await;
    // Of two probes that are due at the same moment either may come first.
    assert!(bench.runs("alive").len() == 3 && bench.runs("ready").len() <= 3);

    bench.code("alive", 0);
    let restarted = bench.clock.now();
    assert!(matches!(bench.readiness(restarted), Some(Readiness::Starting { .. })), "of another process");
    bench.want(restarted, probes);
    pass(0).await;
    assert!(matches!(bench.readiness(restarted), Some(Readiness::Ready { .. })));
}

#[tokio::test(start_paused = true)]
async fn other_probes_wait_for_the_startup_probe() {
    let bench = Bench::new();
    let startup = Some(Probe { failure_threshold: 5, ..exec("started") });
    bench.code("started", 1);
    bench.want(EPOCH, Probes { startup, liveness: Some(exec("alive")), readiness: Some(exec("ready")) });
    pass(30).await;
    let reason = "startup probe: the command ended with code 1".to_owned();
    assert_eq!(bench.readiness(EPOCH), Some(Readiness::Starting { reason }));
    assert_eq!((bench.runs("alive").len(), bench.runs("ready").len()), (0, 0));

    bench.code("started", 0);
    pass(10).await;
    assert_eq!(bench.ready_since(), Some(40));
    pass(30).await;
    assert_eq!(bench.runs("started").len(), 5, "it is made no more");
    assert_eq!(bench.runs("alive"), [40, 50, 60, 70]);
}

#[tokio::test(start_paused = true)]
async fn failed_startup_probe_makes_the_container_dead() {
    let bench = Bench::new();
    bench.code("started", 1);
    bench.want(
        EPOCH,
        Probes { startup: Some(exec("started")), readiness: Some(exec("ready")), ..Probes::default() },
    );
    pass(20).await;
    let reason = "startup probe: the command ended with code 1".to_owned();
    assert_eq!(bench.readiness(EPOCH), Some(Readiness::Dead { reason }));
    assert_eq!(bench.runs("ready").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn hanging_probe_fails_after_its_timeout() {
    let bench = Bench::new();
    bench.want(EPOCH, readiness(Probe { failure_threshold: 1, ..exec("hang") }));
    pass(1).await;
    let reason = "readiness probe: no answer within 1s".to_owned();
    assert_eq!(bench.readiness(EPOCH), Some(Readiness::NotReady { reason }));
}

#[tokio::test(start_paused = true)]
async fn probes_without_an_answer_of_the_engine_do_not_count() {
    let bench = Bench::new();
    let probes =
        Probes { liveness: Some(exec("alive")), readiness: Some(exec("ready")), ..Probes::default() };
    bench.want(EPOCH, probes);
    pass(0).await;
    bench.code("alive", 1);
    pass(20).await;
    bench.set_away(true);
    pass(100).await;
    assert_eq!((bench.ready_since(), bench.wakes()), (Some(0), 1));
    bench.set_away(false);
    pass(10).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Dead { .. })), "the two failures before count");
}

#[tokio::test(start_paused = true)]
async fn startup_probe_waits_for_the_engine() {
    let bench = Bench::new();
    bench.set_away(true);
    bench.want(EPOCH, Probes { startup: Some(exec("started")), ..Probes::default() });
    pass(100).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Starting { .. })));
    bench.set_away(false);
    pass(10).await;
    assert_eq!(bench.ready_since(), Some(110));
}

#[tokio::test(start_paused = true)]
async fn probe_that_hangs_with_the_engine_does_not_count() {
    let bench = Bench::new();
    bench.set_away(true);
    bench.want(EPOCH, Probes { liveness: Some(exec("hang")), ..Probes::default() });
    pass(100).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Ready { .. })));
    bench.set_away(false);
    pass(40).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Dead { .. })));
}

#[tokio::test(start_paused = true)]
async fn container_that_is_not_named_is_not_probed() {
    let bench = Bench::new();
    bench.want(EPOCH, Probes::default());
    assert_eq!(bench.readiness(EPOCH), None, "it has no probes");
    bench.want(EPOCH, readiness(exec("ready")));
    pass(0).await;
    bench.prober.set_containers(&AppName::from("other"), vec![], &BTreeMap::new());
    assert!(bench.readiness(EPOCH).is_some(), "another application's wishes do not matter");
    bench.prober.set_containers(&bench.app, vec![], &BTreeMap::new());
    assert_eq!(bench.readiness(EPOCH), None);
    pass(30).await;
    assert_eq!(bench.runs("ready"), [0]);
}

#[tokio::test(start_paused = true)]
async fn probe_change_keeps_a_ready_instance_ready() {
    let bench = Bench::new();
    for _ in 0..5 {
        bench.want(EPOCH, readiness(exec("ready")));
        pass(1).await;
    }
    assert_eq!(bench.runs("ready"), [0]);
    bench.want(EPOCH, readiness(Probe { failure_threshold: 1, ..exec("other") }));
    assert_eq!(bench.ready_since(), Some(0));
    bench.code("other", 1);
    pass(10).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::NotReady { .. })));
}

#[tokio::test(start_paused = true)]
async fn changed_probe_is_unanswered_until_its_first_result() {
    let bench = Bench::new();
    let is_unanswered = || bench.prober.is_unanswered(&container(), EPOCH);
    bench.want(EPOCH, readiness(exec("ready")));
    assert!(!is_unanswered(), "there is no former probe");
    pass(1).await;
    let changed = || Probes { liveness: Some(exec("alive")), ..readiness(exec("other")) };
    bench.code("other", 1);
    bench.want(EPOCH, changed());
    assert!(is_unanswered());
    pass(1).await;
    // Something else changes meanwhile: the result is still missing.
    bench.want(EPOCH, Probes { startup: Some(exec("start")), ..changed() });
    pass(10).await;
    assert!(is_unanswered() && bench.ready_since() == Some(0), "one failure is no result");
    pass(20).await;
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::NotReady { .. })));
    assert!(!is_unanswered());
    bench.code("other", 0);
    pass(10).await;
    let wakes = bench.wakes();
    bench.want(EPOCH, readiness(exec("ready")));
    assert!(is_unanswered() && bench.ready_since().is_some());
    pass(3).await;
    assert!(!is_unanswered());
    assert_eq!(bench.wakes(), wakes + 1, "the round waits for it");
    // The same probes again, as in each round.
    bench.want(EPOCH, readiness(exec("ready")));
    assert!(!is_unanswered());
}

fn health_check(bench: &Bench, command: &str) {
    let check = Healthcheck {
        test: vec!["CMD".to_owned(), command.to_owned()],
        interval: Some(Duration::from_secs(30)),
        timeout: None,
        retries: None,
        start_period: None,
        start_interval: None,
    };
    let target = ProbedContainer { health_check: Some(check), ..target(EPOCH, Probes::default()) };
    bench.prober.set_containers(&bench.app, vec![target], &BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn health_check_is_run_until_it_succeeds_once() {
    let bench = Bench::new();
    bench.code("check", 1);
    health_check(&bench, "check");
    pass(20).await;
    assert_eq!(bench.runs("check"), [0, 0, 0, 0, 1, 3, 6, 11, 16], "the pause doubles up to 5 s");
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Starting { .. })));
    assert_eq!(bench.wakes(), 0);
    bench.code("check", 0);
    pass(60).await;
    assert_eq!(bench.ready_since(), Some(21));
    assert_eq!((bench.runs("check").len(), bench.wakes()), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn hanging_health_check_is_left_to_the_engine() {
    let bench = Bench::new();
    health_check(&bench, "hang");
    pass(600).await;
    assert_eq!(bench.runs("hang"), [0]);
    assert!(matches!(bench.readiness(EPOCH), Some(Readiness::Starting { .. })));
}

/// Serves each connection one answer, chosen by the request's path, and notes the requests.
async fn serve(listener: TcpListener, requests: Arc<Mutex<Vec<String>>>) {
    while let Ok((mut socket, _)) = listener.accept().await {
        let requests = requests.clone();
        tokio::spawn(async move {
            let request = read_request(&mut socket).await;
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            requests.lock().unwrap().push(request);
            let answer = match path.as_str() {
                "/ok" | "/ok?a=b%20c" => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned(),
                "/away" => "HTTP/1.1 302 Found\r\nlocation: http://192.0.2.1/\r\ncontent-length: 0\r\n\r\n"
                    .to_owned(),
                "/moved" => "HTTP/1.1 301 Moved\r\nlocation: /broken\r\ncontent-length: 0\r\n\r\n".to_owned(),
                "/round" => "HTTP/1.1 302 Found\r\nlocation: /round\r\ncontent-length: 0\r\n\r\n".to_owned(),
                "/huge" => {
                    format!("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n{}", "x".repeat(20_000))
                }
                "/cut" => "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nno".to_owned(),
                _ => "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_owned(),
            };
            let _ = socket.write_all(answer.as_bytes()).await;
            if path == "/huge" {
                // It never ends by itself: only a reader that stops early gets an answer in time.
                let _ = socket.read(&mut [0; 16]).await;
            }
        });
    }
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0; 1];
        if socket.read(&mut byte).await.unwrap_or(0) == 0 {
            break;
        }
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

/// Makes one real probe and returns what it found, with the requests that the server saw.
async fn found(action: ProbeAction) -> (Readiness, Vec<String>) {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let server = tokio::spawn(serve(listener, requests.clone()));
    let action = match action {
        ProbeAction::HttpGet { path, https, host, headers, .. } => {
            ProbeAction::HttpGet { path, port, https, host, headers }
        }
        ProbeAction::TcpSocket { host, .. } => ProbeAction::TcpSocket { port, host },
        other @ (ProbeAction::Exec { .. } | ProbeAction::Grpc { .. }) => other,
    };
    let patient = Probe { failure_threshold: 1, timeout: Duration::from_secs(20), ..probe(action) };
    bench.want(EPOCH, readiness(patient));
    bench.woken.notified().await;
    server.abort();
    (
        bench.readiness(EPOCH).unwrap(),
        Arc::into_inner(requests).map_or_else(Vec::new, |it| it.into_inner().unwrap()),
    )
}

fn get(path: &str) -> ProbeAction {
    ProbeAction::HttpGet { path: path.to_owned(), port: 0, https: false, host: None, headers: vec![] }
}

fn is_ready(readiness: &Readiness) -> bool {
    matches!(readiness, Readiness::Ready { .. })
}

#[tokio::test]
async fn http_status_below_400_is_a_success() {
    for path in ["/ok", "ok", "/ok?a=b%20c", "/away", "/huge"] {
        let (readiness, _) = found(get(path)).await;
        assert!(is_ready(&readiness), "{path}: {readiness:?}");
    }
}

#[tokio::test]
async fn http_errors_and_truncated_answers_are_failures() {
    for (path, reason) in
        [("/", "status 503"), ("/moved", "status 503"), ("/round", "too many redirects"), ("/cut", "")]
    {
        let (readiness, _) = found(get(path)).await;
        let Readiness::NotReady { reason: told } = &readiness else { panic!("{path}: {readiness:?}") };
        assert!(told.starts_with("readiness probe: ") && told.contains(reason), "{told}");
    }
}

#[tokio::test]
async fn http_request_has_the_headers_of_the_manifest() {
    let headers =
        vec![("Host".to_owned(), "shop.example.com".to_owned()), ("X-Probe".to_owned(), "1".to_owned())];
    let action = ProbeAction::HttpGet { path: "/ok".to_owned(), port: 0, https: false, host: None, headers };
    let (readiness, _) = found(action.clone()).await;
    assert!(is_ready(&readiness));

    // Once more by hand, to look at the request without a race for the list.
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let ProbeAction::HttpGet { headers, .. } = action else { unreachable!() };
    let action = ProbeAction::HttpGet { path: "/x".to_owned(), port, https: false, host: None, headers };
    bench.want(EPOCH, readiness_of(action));
    let (mut socket, _) = listener.accept().await.unwrap();
    let request = read_request(&mut socket).await.to_lowercase();
    for line in [
        "get /x http/1.1",
        "host: shop.example.com",
        "x-probe: 1",
        "user-agent: driftless-probe",
        "connection: close",
    ] {
        assert!(request.lines().any(|it| it == line), "{line}\n{request}");
    }
    assert_eq!(request.matches("host:").count(), 1);
}

fn readiness_of(action: ProbeAction) -> Probes {
    readiness(probe(action))
}

#[tokio::test]
async fn tcp_probe_succeeds_on_an_open_port() {
    assert!(is_ready(&found(ProbeAction::TcpSocket { port: 0, host: None }).await.0));

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for action in [
        ProbeAction::TcpSocket { port: closed, host: None },
        ProbeAction::HttpGet {
            path: "/".to_owned(),
            port: closed,
            https: false,
            host: None,
            headers: vec![],
        },
        ProbeAction::HttpGet { path: "/".to_owned(), port: closed, https: true, host: None, headers: vec![] },
    ] {
        let bench = Bench::new();
        bench.want(EPOCH, readiness(Probe { failure_threshold: 1, ..probe(action) }));
        bench.woken.notified().await;
        let Some(Readiness::NotReady { reason }) = bench.readiness(EPOCH) else { panic!("it is closed") };
        assert!(reason.to_lowercase().contains("connection refused"), "{reason}");
    }
}

/// A gRPC server that says for each service what its name begins with: a code of gRPC, or a status.
async fn health(listener: TcpListener) {
    use http_body_util::{BodyExt, Full};
    let answer = |request: http::Request<hyper::body::Incoming>| async move {
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        assert_eq!(request.headers()["content-type"], "application/grpc");
        let asked = request.into_body().collect().await.unwrap().to_bytes();
        let service = asked.get(7..).map_or(String::new(), |it| String::from_utf8(it.to_vec()).unwrap());
        let mut trailers = http::HeaderMap::new();
        let status = match service.as_str() {
            "" | "orders" => 1,
            "orders.paused" => 2,
            _ => {
                trailers.insert("grpc-status", http::HeaderValue::from_static("5"));
                trailers.insert("grpc-message", http::HeaderValue::from_static("unknown service"));
                0
            }
        };
        trailers.entry("grpc-status").or_insert(http::HeaderValue::from_static("0"));
        let body = Full::new(hyper::body::Bytes::from(vec![0, 0, 0, 0, 2, 8, status]));
        let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    };
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let connection = hyper::server::conn::http2::Builder::new(executor);
        tokio::spawn(connection.serve_connection(io, hyper::service::service_fn(answer)));
    }
}

#[tokio::test]
async fn grpc_probe_succeeds_if_the_service_is_serving() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(health(listener));
    let grpc = |service: &str| ProbeAction::Grpc { port, service: service.to_owned() };
    assert!(is_ready(&found(grpc("")).await.0));
    assert!(is_ready(&found(grpc("orders")).await.0));
    for (service, said) in
        [("orders.paused", "the service said NOT_SERVING"), ("stock", "ended with status 5: unknown service")]
    {
        let Readiness::NotReady { reason } = found(grpc(service)).await.0 else { panic!("{service}") };
        assert!(reason.contains(said), "{reason}");
    }
    server.abort();
    // An HTTP server that knows nothing of all this.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(serve(listener, Arc::default()));
    let (readiness, _) = found(ProbeAction::Grpc { port, service: String::new() }).await;
    let Readiness::NotReady { reason } = readiness else { panic!("it speaks no gRPC") };
    assert!(reason.contains("the gRPC call failed"), "{reason}");
    server.abort();
}

#[tokio::test]
async fn container_without_address_supports_exec_and_named_hosts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = listener.local_addr().unwrap().port();
    for (action, expected) in [
        (get("/"), false),
        (ProbeAction::TcpSocket { port: 1, host: None }, false),
        (ProbeAction::TcpSocket { port: open, host: Some("localhost".to_owned()) }, true),
        (ProbeAction::Grpc { port: 1, service: String::new() }, false),
        (exec("ok").action, true),
    ] {
        let bench = Bench::new();
        let probes = readiness(Probe { failure_threshold: 1, ..probe(action) });
        bench.prober.set_containers(
            &bench.app,
            vec![ProbedContainer { address: None, ..target(EPOCH, probes) }],
            &BTreeMap::new(),
        );
        bench.woken.notified().await;
        assert_eq!(bench.readiness(EPOCH).is_some_and(|it| is_ready(&it)), expected);
    }
}
