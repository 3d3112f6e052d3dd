//! Published ports under load: no request fails while instances are replaced, added, removed or killed by a probe, nor
//! while the agent is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::harness::{Agent, Container, Site, free_port, images, wait_until};

/// A request that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Clients that connect for each request, and clients that keep their connection.
const CLIENTS: usize = 3;
/// The pause of a client between two requests: tests run side by side on few cores.
const PAUSE: Duration = Duration::from_millis(4);

/// Clients that send requests to a port until this is dropped. No client repeats a failed request.
pub(crate) struct Load {
    shared: Arc<Shared>,
    _clients: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    answered: AtomicU64,
    has_ended: AtomicBool,
    failures: Mutex<Vec<String>>,
    /// The answers by their first line.
    heard: Mutex<BTreeMap<String, u64>>,
}

impl Load {
    async fn on(port: u16) -> Self {
        Self::to(([127, 0, 0, 1], port).into()).await
    }

    /// Begins when the first request is answered: the process of the proxy may still be starting.
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let began = Instant::now();
        while request(address, false, &mut None).await.is_err() {
            assert!(began.elapsed() < TIMEOUT * 10, "the proxy does not answer");
            sleep(PAUSE).await;
        }
        let shared = Arc::new(Shared::default());
        let mut clients = JoinSet::new();
        for number in 0..2 * CLIENTS {
            clients.spawn(client(address, number >= CLIENTS, Arc::clone(&shared)));
        }
        Self { shared, _clients: clients }
    }

    /// Waits for more answers, and for one that contains this text.
    pub(crate) async fn hears(&self, text: &str) {
        let before = self.shared.answered.load(Ordering::Relaxed);
        self.shared.heard.lock().unwrap().clear();
        wait_until(&format!("an answer with {text:?}"), || {
            let more = self.shared.answered.load(Ordering::Relaxed) >= before + 50;
            let heard = self.shared.heard.lock().unwrap();
            (more && heard.keys().any(|line| line.contains(text))).then_some(())
        })
        .await;
    }

    /// The failures so far, which then count no more.
    pub(crate) fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.failures.lock().unwrap())
    }

    #[track_caller]
    pub(crate) fn assert_no_failure(&self, during: &str) {
        let failures = self.shared.failures.lock().unwrap();
        let answered = self.shared.answered.load(Ordering::Relaxed);
        assert!(failures.is_empty(), "{during}: {} of {answered} failed: {failures:#?}", failures.len());
        eprintln!("{during}: {answered} requests, none failed");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
    }
}

async fn client(address: SocketAddr, is_kept: bool, shared: Arc<Shared>) {
    let mut connection = None;
    while !shared.has_ended.load(Ordering::Relaxed) {
        let began = Instant::now();
        match timeout(TIMEOUT, request(address, is_kept, &mut connection)).await {
            Ok(Ok(answer)) => {
                shared.answered.fetch_add(1, Ordering::Relaxed);
                let line = answer.lines().next().unwrap_or_default().to_owned();
                *shared.heard.lock().unwrap().entry(line).or_default() += 1;
            }
            failed => {
                let what = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "timed out".to_owned(),
                };
                let kind = if is_kept { "kept" } else { "new" };
                let text = format!("{kind} connection: {what} after {:?}", began.elapsed());
                shared.failures.lock().unwrap().push(text);
                connection = None;
            }
        }
        sleep(PAUSE).await;
    }
}

/// One request. Returns the body of the answer.
async fn request(
    address: SocketAddr,
    is_kept: bool,
    connection: &mut Option<TcpStream>,
) -> std::io::Result<String> {
    let mut stream = match connection.take() {
        Some(stream) => stream,
        None => TcpStream::connect(address).await?,
    };
    let word = if is_kept { "keep-alive" } else { "close" };
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: web\r\nConnection: {word}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut answer).await? == 0 {
            let message = format!("closed after {} bytes", answer.len());
            return Err(std::io::Error::other(message));
        }
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            break (head.len() + 4, length.and_then(|it| it.parse::<usize>().ok()).expect("a length"));
        }
    };
    while answer.len() < head + length {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(std::io::Error::other("closed in the middle of an answer"));
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    if !text.starts_with("HTTP/1.1 200 ") {
        return Err(std::io::Error::other(text));
    }
    if is_kept {
        *connection = Some(stream);
    }
    Ok(text[head..].to_owned())
}

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
    let site = Site::new(test);
    let first = (manifest.write)("zero", 3);
    let commit = site.repository.commit(&[(&site.path(manifest.file), &first)]);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;
    let load = Load::on(port).await;
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
    agent.terminate().await;
    load.hears("last").await;
    load.assert_no_failure("the agent is stopped");
}

fn kubernetes(image: String, port: u16) -> Manifest {
    let write = move |name: &str, replicas: u32| {
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
          env: [{{name: NAME, value: \"{name}\"}}, {{name: KEEP_ALIVE, value: \"1\"}}]
          ports: [{{name: http, containerPort: 8080}}]
          readinessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 1, failureThreshold: 1}}
          livenessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 1, failureThreshold: 3}}
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
        format!(
            "services:
  web:
    image: \"{image}\"
    environment: {{NAME: \"{name}\", KEEP_ALIVE: \"1\"}}
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
    let site = Site::new("traffic-takeover");
    let (image, port) = (images::server("1.0"), free_port());
    let write = |connections: u32| {
        let web = compose(image.clone(), port);
        let text = (web.write)("zero", 2);
        format!("{text}    x-driftless: {{proxy: {{max-connections: {connections}}}}}\n")
    };
    let mut agent = site.running(&write(1000)).await;
    let load = Load::on(port).await;
    load.hears("zero").await;
    let owner = site.container("web_proxy").id();
    let mut workers = vec![site.container("web_proxy_worker").id()];
    // One in two answers comes by a connection of its own.
    let counted_before = load.shared.answered.load(Ordering::Relaxed) as f64 / 4.0;
    for connections in [1001, 1002] {
        let commit = site.compose(&write(connections));
        agent.sync().await;
        if connections == 1002 {
            // Killed while both run.
            site.until("the next worker to run", |_| {
                let running = site.of("web_proxy_worker").iter().filter(|it| it.state() == "running").count();
                (running == 2).then_some(())
            })
            .await;
            agent.kill9();
            load.hears("zero").await;
            agent.restart().await;
        }
        agent.settled(&commit).await;
        load.hears("zero").await;
        load.assert_no_failure(&format!("take-over {connections}"));
        let worker = site.container("web_proxy_worker").id();
        assert!(!workers.contains(&worker), "there is a newer worker");
        workers.push(worker);
    }
    assert_eq!(site.container("web_proxy").id(), owner, "the container with the port stays");
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
        if matches!(timeout(PAUSE * 50, first.recv(&mut [0; 8])).await, Ok(Ok(5))) {
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
