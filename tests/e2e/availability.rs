//! Published ports under load: no request fails while instances are replaced, added, removed or killed by a probe, nor
//! while the agent is killed.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use driftless_model::Outcome;
use serde_json::json;
use tokio::{
    net::UdpSocket,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::harness::{Agent, Container, Load, Settings, Site, free_port, images, wait_until};

/// A datagram without an answer after this time is lost.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time for an answer while the proxy starts.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);
/// Clients that send datagrams.
const CLIENTS: usize = 3;

/// The application in one of the formats.
struct Manifest {
    file: &'static str,
    write: Box<Write>,
}

/// The manifest with this name of the server and number of replicas.
type Write = dyn Fn(&str, u32) -> String;

impl Manifest {
    async fn deploy(&self, site: &Site, agent: &Agent, name: &str, replicas: u32) {
        let commit = site.repository.commit(&[(&site.path(self.file), &(self.write)(name, replicas))]);
        agent.sync().await;
        agent.settled(&commit).await;
    }
}

/// Everything that happens to a published port while clients use it.
async fn live_through_everything(test: &str, port: u16, manifest: Manifest) {
    let more = json!({ "onFailure": "rollback", "progressDeadline": "25s" });
    let site = Site::with(test, Settings { more: Some(more), ..Settings::default() });
    let first = (manifest.write)("zero", 3);
    let commit = site.repository.commit(&[(&site.path(manifest.file), &first)]);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;
    let load = Load::on(([127, 0, 0, 1], port).into()).await;
    load.hears("zero").await;
    load.assert_no_failure("before all");
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    for name in names {
        manifest.deploy(&site, &agent, name, 3).await;
        load.hears(name).await;
        load.assert_no_failure(&format!("rolling update {name}"));
    }
    for replicas in [5, 2] {
        manifest.deploy(&site, &agent, "ten", replicas).await;
        load.assert_no_failure(&format!("{replicas} replicas"));
    }

    let sick = site.of("web").remove(0);
    site.docker.run(&["exec", &sick.id(), "/server", "--unhealthy"]);
    site.until("the unhealthy instance to lose its traffic", |docker| {
        let now = docker.container(&sick.id());
        now.is_none_or(|now| {
            now.text("/State/Health/Status") == "unhealthy" || now.started() != sick.started()
        })
        .then_some(())
    })
    .await;
    load.assert_no_failure("an unhealthy instance");
    // It may have been replaced meanwhile.
    let _ = site.docker.attempt(&["exec", &sick.id(), "/server", "--healthy"]);

    agent.kill9();
    load.hears("ten").await;
    load.assert_no_failure("the agent is killed");
    agent.restart().await;
    manifest.deploy(&site, &agent, "killed", 3).await;
    load.hears("killed").await;
    load.assert_no_failure("another rolling update");
    // Killed in the middle of one.
    let commit = site.repository.commit(&[(&site.path(manifest.file), &(manifest.write)("last", 3))]);
    agent.sync().await;
    let is_new = |container: &Container| container.variable("NAME").as_deref() == Some("last");
    site.until("the rolling update to begin", |_| site.of("web").iter().any(is_new).then_some(())).await;
    agent.kill9();
    agent.restart().await;
    agent.settled(&commit).await;
    load.hears("last").await;
    load.assert_no_failure("the agent is killed in a rolling update");

    let broken = (manifest.write)(BROKEN, 3);
    let broken = site.repository.commit(&[(&site.path(manifest.file), &broken)]);
    agent.sync().await;
    agent.event("the rollback", |event| event.reason == "RolledBack").await;
    agent
        .until("it is back", |found| {
            let operation = found.status.operation.as_ref();
            operation.is_some_and(|operation| operation.outcome == Some(Outcome::Succeeded))
                && found.status.message.contains(&broken[..12])
        })
        .await;
    load.hears("last").await;
    load.assert_no_failure("an automatic rollback");

    // An upgrade: another process over the same containers.
    agent.terminate().await;
    load.hears("last").await;
    load.assert_no_failure("the agent is stopped");
    agent.restart().await;
    manifest.deploy(&site, &agent, "upgraded", 3).await;
    load.hears("upgraded").await;
    load.assert_no_failure("the agent is upgraded");
}

/// The name of a server that never becomes ready.
const BROKEN: &str = "broken";

/// The seconds after which the server with this name becomes ready.
fn ready_after(name: &str) -> u32 {
    if name == BROKEN { 100_000 } else { 0 }
}

fn kubernetes(image: String, port: u16) -> Manifest {
    let write = move |name: &str, replicas: u32| {
        let after = ready_after(name);
        format!(
            "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
        - name: web
          image: \"{image}\"
          env: [{{name: NAME, value: \"{name}\"}}, {{name: KEEP_ALIVE, value: \"1\"}}, {{name: READY_AFTER, value: \"{after}\"}}]
          ports: [{{name: http, containerPort: 8080}}]
          readinessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 1}}
          livenessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 3}}
---
apiVersion: v1
kind: Service
metadata: {{name: front}}
spec: {{type: NodePort, selector: {{app: web}}, ports: [{{port: 80, targetPort: http, nodePort: {port}}}]}}
"
        )
    };
    Manifest { file: "all.yaml", write: Box::new(write) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_to_a_service_fails() {
    let port = crate::services::node_port();
    live_through_everything("traffic-k8s", port, kubernetes(images::server("1.0"), port)).await;
}

fn compose(image: String, port: u16) -> Manifest {
    let write = move |name: &str, replicas: u32| {
        let after = ready_after(name);
        format!(
            "services:
  web:
    image: \"{image}\"
    environment: {{NAME: \"{name}\", KEEP_ALIVE: \"1\", READY_AFTER: \"{after}\"}}
    ports: [\"127.0.0.1:{port}:8080\"]
    healthcheck:
      test: [CMD, /server, --healthcheck, \"http://localhost:8080/healthz\"]
      interval: 1s
      retries: 1
    deploy: {{replicas: {replicas}}}
"
        )
    };
    Manifest { file: "compose.yaml", write: Box::new(write) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_to_a_compose_service_fails() {
    let port = free_port();
    live_through_everything("traffic-compose", port, compose(images::server("1.0"), port)).await;
}

#[tokio::test]
async fn proxy_takes_over_the_port_of_a_service_that_is_scaled() {
    let site = Site::new("traffic-scale");
    let (image, port) = (images::server("1.0"), free_port());
    let text = |more: &str| {
        format!(
            "services: {{web: {{image: \"{image}\", stop_grace_period: 0s, ports: [\"{port}:8080\"]{more}}}}}"
        )
    };
    let agent = site.running(&text("")).await;
    let ports = |service: &str| site.container(service).text("/HostConfig/PortBindings/8080~1tcp/0/HostPort");
    assert_eq!(ports("web"), port.to_string(), "Docker publishes the port of one instance");
    assert!(site.of("web_proxy").is_empty());
    for (more, by_proxy) in
        [(", scale: 2", true), ("", false), (", x-driftless: {proxy: true}", true), (", scale: 1", false)]
    {
        let commit = site.compose(&text(more));
        agent.sync().await;
        agent.settled(&commit).await;
        assert_eq!(site.of("web_proxy").len(), usize::from(by_proxy), "{more}");
        if by_proxy {
            assert_eq!(ports("web_proxy"), port.to_string());
            assert!(site.of("web").iter().all(|it| it.text("/HostConfig/PortBindings/8080~1tcp").is_empty()));
        } else {
            assert_eq!(ports("web"), port.to_string());
        }
        wait_until("the port to answer", || {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
            std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").ok()?;
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut stream, &mut answer).ok()?;
            answer.contains("server 1.0 on ").then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_a_newer_proxy_takes_over() {
    let (image, port) = (images::server("1.0"), free_port());
    let write = |connections: u32| {
        let text = (compose(image.clone(), port).write)("zero", 2);
        format!("{text}    x-driftless: {{proxy: {{max-connections: {connections}}}}}\n")
    };
    take_over("traffic-takeover", port, "web", |limit| ("compose.yaml", write(limit))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_the_proxy_of_a_service_changes() {
    let (image, port) = (images::server("1.0"), crate::services::node_port());
    let write = |seconds: u32| {
        let text = (kubernetes(image.clone(), port).write)("zero", 2);
        let affinity = format!("{{clientIP: {{timeoutSeconds: {seconds}}}}}");
        text.replace(
            "type: NodePort,",
            &format!("type: NodePort, sessionAffinity: ClientIP, sessionAffinityConfig: {affinity},"),
        )
    };
    take_over("traffic-takeover-k8s", port, "front", |seconds| ("all.yaml", write(seconds))).await;
}

/// Changes a setting of the proxy twice under load. The manifest has the setting; `front` is the service that the proxy serves.
async fn take_over(test: &str, port: u16, front: &str, manifest: impl Fn(u32) -> (&'static str, String)) {
    let site = Site::new(test);
    let (proxy, worker) = (format!("{front}_proxy"), format!("{front}_proxy_worker"));
    let commit = |setting: u32| {
        let (file, text) = manifest(setting);
        site.repository.commit(&[(&site.path(file), &text)])
    };
    let first = commit(1000);
    let mut agent = site.agent().await;
    agent.settled(&first).await;
    let load = Load::on(([127, 0, 0, 1], port).into()).await;
    load.hears("zero").await;
    let owner = site.container(&proxy).id();
    let mut workers = vec![site.container(&worker).id()];
    // One in two answers comes by a connection of its own.
    let counted_before = load.answered() as f64 / 4.0;
    for setting in [1001, 1002] {
        let commit = commit(setting);
        agent.sync().await;
        if setting == 1002 {
            // Killed while both run. The log remembers the start, also where the look at it comes late.
            let start = format!("action=\"start {}-{worker}-", site.app);
            let has_started = || (agent.log().matches(&start).count() == 3).then_some(());
            wait_until("the third worker to run", has_started).await;
            agent.kill9();
            load.hears("zero").await;
            agent.restart().await;
        }
        agent.settled(&commit).await;
        load.hears("zero").await;
        load.assert_no_failure(&format!("take-over {setting}"));
        let newest = site.container(&worker).id();
        assert!(!workers.contains(&newest), "there is a newer worker");
        workers.push(newest);
    }
    assert_eq!(site.container(&proxy).id(), owner, "the container with the port stays");
    // The newest worker goes on counting.
    let (_, metrics) = agent.get("/metrics").await.expect("the agent answers");
    let metrics = metrics.as_str().expect("a text");
    let value = |name: &str| -> f64 {
        let start = format!("driftless_proxy_{name}{{");
        let lines = metrics.lines().filter(|line| line.starts_with(&start) && line.contains(&site.app));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    };
    assert!(value("connections_total") >= counted_before, "{metrics}");
    assert!(
        value("open_connections") >= 1.0 && value("bytes_total") > value("connections_total"),
        "{metrics}"
    );
    assert_eq!((value("refused_total"), value("connect_failures_total")), (0.0, 0.0), "{metrics}");
}

/// Clients that send numbered datagrams to a port and count those that come back.
struct Datagrams {
    has_ended: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: JoinSet<Vec<u64>>,
}

/// The pause of a client between two datagrams.
const DATAGRAM_PAUSE: Duration = Duration::from_millis(20);

impl Datagrams {
    fn to(port: u16) -> Self {
        let (has_ended, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(datagram_client(port, Arc::clone(&has_ended), Arc::clone(&answered)));
        }
        Self { has_ended, answered, clients }
    }

    /// Waits for more answers.
    async fn go_on(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        wait_until("datagrams to come back", || {
            (self.answered.load(Ordering::Relaxed) >= before + 50).then_some(())
        })
        .await;
    }

    /// The numbers of the datagrams that did not come back, of all clients.
    async fn lost(self) -> Vec<u64> {
        self.has_ended.store(true, Ordering::Relaxed);
        self.clients.join_all().await.concat()
    }
}

/// Returns the numbers of the datagrams that did not come back.
async fn datagram_client(port: u16, has_ended: Arc<AtomicBool>, answered: Arc<AtomicU64>) -> Vec<u64> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    socket.connect(("127.0.0.1", port)).await.unwrap();
    let (mut next, mut missing, mut end) = (0u64, BTreeSet::new(), None);
    let mut buffer = [0; 8];
    loop {
        if end.is_none() {
            missing.insert(next);
            socket.send(&next.to_be_bytes()).await.unwrap();
            next += 1;
        }
        let pause = Instant::now() + DATAGRAM_PAUSE;
        while let Ok(received) = timeout_at(pause, socket.recv(&mut buffer)).await {
            assert_eq!(received.unwrap(), buffer.len());
            assert!(missing.remove(&u64::from_be_bytes(buffer)), "each comes back once");
            answered.fetch_add(1, Ordering::Relaxed);
        }
        if end.is_none() && has_ended.load(Ordering::Relaxed) {
            end = Some(Instant::now() + TIMEOUT);
        }
        if end.is_some_and(|end| missing.is_empty() || Instant::now() >= end) {
            return missing.into_iter().collect();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_datagram_is_lost_while_proxy_and_agent_are_replaced() {
    let site = Site::new("traffic-datagrams");
    let (image, port) = (images::server("1.0"), free_port());
    let write = |connections: u32| {
        format!(
            "services:
  web:
    image: \"{image}\"
    ports: [\"127.0.0.1:{port}:8080/udp\"]
    deploy: {{replicas: 2}}
    x-driftless: {{proxy: {{max-connections: {connections}}}}}
"
        )
    };
    let mut agent = site.running(&write(1000)).await;
    let first = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    first.connect(("127.0.0.1", port)).await.unwrap();
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < TIMEOUT * 10, "the proxy does not answer");
        // A refused datagram is an error of the next call.
        let _ = first.send(b"first").await;
        if matches!(timeout(ANSWER_WITHIN, first.recv(&mut [0; 8])).await, Ok(Ok(5))) {
            break;
        }
    }
    let datagrams = Datagrams::to(port);
    datagrams.go_on().await;
    let mut workers = BTreeSet::from([site.container("web_proxy_worker").id()]);
    for connections in [1001, 1002] {
        let commit = site.compose(&write(connections));
        agent.sync().await;
        agent.settled(&commit).await;
        datagrams.go_on().await;
        assert!(workers.insert(site.container("web_proxy_worker").id()), "there is a newer worker");
    }
    agent.kill9();
    datagrams.go_on().await;
    agent.restart().await;
    agent.settled(&site.repository.head()).await;
    datagrams.go_on().await;
    let sent = datagrams.answered.load(Ordering::Relaxed);
    assert_eq!(datagrams.lost().await, [0u64; 0], "of {sent}");
    eprintln!("{sent} datagrams, none lost");
}
