//! Rolling updates under load, compared with Docker Swarm, Docker Compose and a swap by hand: failed requests, and the time until
//! all instances are new.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    harness::{Agent, Compose, Docker, Engine, Leftovers, Load, Site, free_port, images, random},
    raw::Api,
    report::{Report, Samples, time},
};

/// Updates of three instances, and of one. There is one update of ten.
const UPDATES: usize = 3;
const SIZES: [u32; 2] = [3, 10];
const CHECK: [&str; 4] = ["CMD", "/server", "--healthcheck", "http://localhost:8080/healthz"];

/// The updates of one program.
struct Row {
    program: &'static str,
    instances: u32,
    times: Samples,
    requests: Option<Requests>,
}

/// The requests during the updates.
struct Requests {
    answered: u64,
    failed: usize,
    longest_gap: Duration,
}

impl Requests {
    fn of(load: &Load) -> Self {
        Self { answered: load.answered(), failed: load.failed(), longest_gap: load.longest_gap() }
    }
}

/// The two versions of the image on an engine. Updates take them in turn.
struct Versions([String; 2]);

impl Versions {
    fn on(docker: &Docker) -> Self {
        Self(
            ["1.0", "2.0"].map(|version| {
                images::server_as(docker, &format!("driftless-e2e/server:{version}"), version)
            }),
        )
    }

    fn of(&self, update: usize) -> &str {
        &self.0[update % 2]
    }
}

/// The containers of one program on an engine, by a label.
struct Instances {
    api: Api,
    label: String,
    count: u32,
}

impl Instances {
    /// Waits until as many as wanted run this image, and none another one.
    async fn until_all_run(&self, image: &str) {
        let filters = json!({ "label": [self.label] }).to_string().replace('"', "%22");
        let path = format!("/containers/json?filters={filters}");
        let began = Instant::now();
        loop {
            let (status, body) = self.api.call("GET", &path, &Value::Null).await;
            assert_eq!(status, 200, "{body}");
            let found: Vec<Value> = serde_json::from_str(&body).expect("a list");
            let new = found.iter().filter(|container| container["Image"] == image).count();
            // The containers of the proxy have another image.
            let is_server = |container: &&Value| {
                container["Image"].as_str().is_some_and(|image| image.contains("driftless-e2e/server"))
            };
            if new == self.count as usize && found.iter().filter(is_server).count() == new {
                return;
            }
            assert!(began.elapsed() < Duration::from_mins(2), "{}: not all run {image}: {body}", self.label);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

pub async fn rollout(report: &mut Report) {
    let docker = Docker::default();
    let versions = Versions::on(&docker);
    let mut rows = Vec::new();
    for count in SIZES {
        rows.push(ours("driftless, Compose file", count, &versions, compose).await);
        rows.push(ours("driftless, Deployment and Service", count, &versions, kubernetes).await);
    }
    rows.extend(swarm().await);
    rows.push(docker_compose(1, &versions).await);
    rows.push(docker_compose(3, &versions).await);
    rows.push(swap(&docker, &versions).await);
    report.section("Rolling updates under load");
    report.text(
        "Three clients that connect for each request and three that keep their connection send requests to a published \
         port, each 4 ms after the answer before, while the image changes. A request fails if it is refused, is cut \
         off or takes 3 s; no client repeats one. The time runs from the push (for the others: from the start of the \
         command) until all instances run the new image and no old one runs. All have the same image and the same \
         health check, every second; instances are replaced one by one, but for the Deployment, whose default allows a quarter more.",
    );
    report.text(
        "Where there are no requests, the program cannot publish a fixed port for so many instances here. The routing \
         mesh of Swarm needs IPVS, which this kernel does not have, so its ports are published in host mode, which \
         one instance on a host can have, and only stop-first: a second one would not get the port. Its updates of more \
         instances are measured without a port. Docker Compose gives a fixed port to one instance as well. The swap by \
         hand is that of a script with `docker create`, `stop` and `start`; Kamal puts a proxy of its own before it, \
         which cannot be had here. Swarm runs on a second engine of the same version, because it changes its engine.",
    );
    report.table(&[
        "program",
        "instances",
        "requests",
        "failed",
        "longest time without an answer",
        "push to all new",
    ]);
    for Row { program, instances, times, requests } in &rows {
        let requests = requests.as_ref().map(|requests| {
            (
                requests.answered + requests.failed as u64,
                requests.failed.to_string(),
                time(requests.longest_gap),
            )
        });
        let (all, failed, gap) = requests.map_or_else(
            || ("–".to_owned(), "–".to_owned(), "–".to_owned()),
            |(all, failed, gap)| (all.to_string(), failed, gap),
        );
        report.row(&[(*program).to_owned(), instances.to_string(), all, failed, gap, time(times.median())]);
    }
    report.line("");
    goals(report, &rows);
}

fn goals(report: &mut Report, rows: &[Row]) {
    let is_ours = |row: &&Row| row.program.starts_with("driftless");
    let failed = |row: &Row| row.requests.as_ref().map(|requests| requests.failed);
    let lost: usize = rows.iter().filter(is_ours).filter_map(failed).sum();
    report.goal("no failed request in our updates", &format!("{lost} failed"), lost == 0);
    let others = rows.iter().filter(|row| !is_ours(row)).filter(|row| failed(row) == Some(0)).count();
    report.goal("the only ones without", &format!("{others} others without"), lost == 0 && others == 0);
    for row in rows.iter().filter(is_ours) {
        let swarm =
            rows.iter().find(|other| other.program == SWARM_START_FIRST && other.instances == row.instances);
        let Some(swarm) = swarm else { continue };
        let (ours, theirs) = (row.times.median(), swarm.times.median());
        let goal = format!("{}, {} instances: no slower than Swarm start-first", row.program, row.instances);
        report.goal(&goal, &format!("{} and {}", time(ours), time(theirs)), ours <= theirs);
    }
}

fn compose(image: &str, count: u32, port: u16) -> (&'static str, String) {
    let text = format!(
        "services:
  web:
    image: {image}
    stop_grace_period: 1s
    environment: {{KEEP_ALIVE: \"1\"}}
    ports: [\"{port}:8080\"]
    healthcheck: {{test: {}, interval: 1s}}
    deploy: {{replicas: {count}, update_config: {{order: start-first}}}}
",
        json!(CHECK)
    );
    ("compose.yaml", text)
}

fn kubernetes(image: &str, count: u32, port: u16) -> (&'static str, String) {
    let text = format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {count}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          image: {image}
          env: [{{name: KEEP_ALIVE, value: \"1\"}}]
          ports: [{{name: http, containerPort: 8080}}]
          readinessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: front}}
spec: {{type: NodePort, selector: {{app: web}}, ports: [{{port: 80, targetPort: http, nodePort: {port}}}]}}
"
    );
    ("all.yaml", text)
}

/// Updates by an agent, in one of the formats.
async fn ours(
    program: &'static str,
    count: u32,
    versions: &Versions,
    write: fn(&str, u32, u16) -> (&'static str, String),
) -> Row {
    let site = Site::new("bench-rollout");
    // Within the range of node ports.
    let port = 30_000 + u16::try_from(random() % 2000).unwrap();
    let push = |update: usize| {
        let (file, text) = write(versions.of(update), count, port);
        site.repository.commit(&[(&site.path(file), &text)])
    };
    let first = push(0);
    let agent: Agent = site.agent().await;
    agent.settled(&first).await;
    let label = format!("driftless.application={}", site.app);
    let instances = Instances { api: Api::default(), label, count };
    let load = Load::on(([127, 0, 0, 1], port).into()).await;
    let mut times = Vec::new();
    for update in 1..=updates(count) {
        let commit = push(update);
        let began = Instant::now();
        agent.sync().await;
        instances.until_all_run(versions.of(update)).await;
        times.push(began.elapsed());
        agent.settled(&commit).await;
    }
    sleep(Duration::from_millis(500)).await;
    Row { program, instances: count, times: Samples::new(times), requests: Some(Requests::of(&load)) }
}

fn updates(count: u32) -> usize {
    if count > 3 { 1 } else { UPDATES }
}

const SWARM_START_FIRST: &str = "Swarm, start-first";
const SWARM_STOP_FIRST: &str = "Swarm, stop-first";

/// Updates by Docker Swarm, on an engine of its own. Empty where there is no root for it.
async fn swarm() -> Vec<Row> {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut engine) = Engine::new(directory.path()) else { return Vec::new() };
    let address = engine.connect();
    engine.start().await;
    let docker = Docker { host: Some(engine.host()) };
    let versions = Versions::on(&docker);
    docker.run(&["swarm", "init", "--advertise-addr", &address.to_string()]);
    let socket = engine.host().trim_start_matches("unix://").to_owned();
    let mut rows = Vec::new();
    for (program, order) in [(SWARM_START_FIRST, "start-first"), (SWARM_STOP_FIRST, "stop-first")] {
        for count in SIZES {
            let service = Service { order, count, port: None };
            rows.push(service.updates(program, Api(socket.clone()), address.into(), &versions).await);
        }
    }
    let service = Service { order: "stop-first", count: 1, port: Some(8080) };
    rows.push(service.updates(SWARM_STOP_FIRST, Api(socket), address.into(), &versions).await);
    engine.stop();
    rows
}

/// A service of Docker Swarm.
struct Service {
    order: &'static str,
    count: u32,
    /// Published in host mode.
    port: Option<u16>,
}

impl Service {
    fn specification(&self, image: &str) -> Value {
        let second = 1_000_000_000_u64;
        let ports: Vec<Value> = self
            .port
            .iter()
            .map(|port| {
                json!({ "Protocol": "tcp", "TargetPort": 8080, "PublishedPort": port, "PublishMode": "host" })
            })
            .collect();
        json!({
            "Name": "web",
            "TaskTemplate": {
                "ContainerSpec": {
                    "Image": image,
                    "Env": ["KEEP_ALIVE=1"],
                    "StopGracePeriod": second,
                    "Healthcheck": { "Test": CHECK, "Interval": second },
                },
                "RestartPolicy": { "Delay": 0 },
            },
            "Mode": { "Replicated": { "Replicas": self.count } },
            "UpdateConfig": { "Parallelism": 1, "Order": self.order },
            "EndpointSpec": { "Mode": "dnsrr", "Ports": ports },
        })
    }

    async fn updates(
        &self,
        program: &'static str,
        api: Api,
        address: std::net::IpAddr,
        versions: &Versions,
    ) -> Row {
        let (status, body) = api.call("POST", "/services/create", &self.specification(versions.of(0))).await;
        assert_eq!(status, 201, "{body}");
        let label = "com.docker.swarm.service.name=web".to_owned();
        let instances = Instances { api, label, count: self.count };
        instances.until_all_run(versions.of(0)).await;
        let load = match self.port {
            Some(port) => Some(Load::on(SocketAddr::new(address, port)).await),
            None => None,
        };
        let mut times = Vec::new();
        for update in 1..=updates(self.count) {
            let (_, body) = instances.api.call("GET", "/services/web", &Value::Null).await;
            let found: Value = serde_json::from_str(&body).unwrap();
            let path = format!("/services/web/update?version={}", found["Version"]["Index"]);
            let began = Instant::now();
            let (status, body) =
                instances.api.call("POST", &path, &self.specification(versions.of(update))).await;
            assert_eq!(status, 200, "{body}");
            instances.until_all_run(versions.of(update)).await;
            times.push(began.elapsed());
            // Its first failures are those of the next update.
            sleep(Duration::from_secs(1)).await;
        }
        let requests = load.as_ref().map(Requests::of);
        drop(load);
        let (status, body) = instances.api.call("DELETE", "/services/web", &Value::Null).await;
        assert_eq!(status, 200, "{body}");
        Row { program, instances: self.count, times: Samples::new(times), requests }
    }
}

/// Updates by `up -d` of Docker Compose 2.
async fn docker_compose(count: u32, versions: &Versions) -> Row {
    let (program, folder) = (Compose::v2(), tempfile::tempdir().unwrap());
    let project = format!("e2e-bench-rollout-{:08x}", random() & 0xffff_ffff);
    let _leftovers = Leftovers { docker: Docker::default(), project: project.clone() };
    // One instance gets a fixed port, several get one each from the engine.
    let port = (count == 1).then(free_port);
    let ports = port.map_or_else(|| "8080".to_owned(), |port| format!("{port}:8080"));
    let up = |update: usize| {
        let text = format!(
            "services:
  web:
    image: {}
    stop_grace_period: 1s
    environment: {{KEEP_ALIVE: \"1\"}}
    ports: [\"{ports}\"]
    healthcheck: {{test: {}, interval: 1s}}
    scale: {count}
",
            versions.of(update),
            json!(CHECK)
        );
        std::fs::write(folder.path().join("compose.yaml"), text).unwrap();
        let mut command = program.command(folder.path(), &project, &["up", "-d"]);
        async move {
            let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    };
    up(0).await;
    let label = format!("com.docker.compose.project={project}");
    let instances = Instances { api: Api::default(), label, count };
    let load = match port {
        Some(port) => Some(Load::on(([127, 0, 0, 1], port).into()).await),
        None => None,
    };
    let mut times = Vec::new();
    for update in 1..=updates(count) {
        let began = Instant::now();
        up(update).await;
        instances.until_all_run(versions.of(update)).await;
        times.push(began.elapsed());
        sleep(Duration::from_secs(1)).await;
    }
    let requests = load.as_ref().map(Requests::of);
    Row { program: "`docker compose up -d`", instances: count, times: Samples::new(times), requests }
}

/// Updates as a script makes them: the new container is created, the old one stopped, the new one started.
async fn swap(docker: &Docker, versions: &Versions) -> Row {
    let name = format!("e2e-bench-rollout-{:08x}", random() & 0xffff_ffff);
    let port = free_port();
    let label = format!("bench={name}");
    let publish = format!("{port}:8080");
    let create = |update: usize| {
        let container = format!("{name}-{update}");
        let words = ["create", "--name", &container, "--label", &label, "-e", "KEEP_ALIVE=1", "-p", &publish];
        docker.run(&[&words, [versions.of(update)].as_slice()].concat());
        container
    };
    let mut running = create(0);
    docker.run(&["start", &running]);
    let instances = Instances { api: Api::default(), label: label.clone(), count: 1 };
    let load = Load::on(([127, 0, 0, 1], port).into()).await;
    let mut times = Vec::new();
    for update in 1..=UPDATES {
        let began = Instant::now();
        let next = create(update);
        docker.run(&["stop", "-t", "1", &running]);
        docker.run(&["start", &next]);
        docker.run(&["rm", &running]);
        instances.until_all_run(versions.of(update)).await;
        times.push(began.elapsed());
        running = next;
        sleep(Duration::from_secs(1)).await;
    }
    let requests = Some(Requests::of(&load));
    drop(load);
    docker.run(&["rm", "-f", &running]);
    Row { program: "swap by `docker` commands", instances: 1, times: Samples::new(times), requests }
}
