//! A hundred applications at their first start and at a restart of the agent, compared with one application of as many
//! containers.

use std::{path::Path, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    harness::{Agent, Counting, Docker, Engine, Settings, Site, images},
    process::{self, Memory},
    raw,
    report::{Report, Samples, megabytes, time},
};

const APPLICATIONS: usize = 100;
const SERVICES: usize = 10;
const PATIENCE: Duration = Duration::from_mins(6);

/// The calls and the time of one start.
struct Start {
    wall: Duration,
    cpu: Duration,
    /// Whole lists of containers, networks and volumes.
    lists: usize,
    /// Lists of single objects.
    filtered: usize,
    inspects: usize,
    /// When everything is done.
    memory: Memory,
    /// Answers of the API after a restart.
    answers: Vec<(&'static str, Samples)>,
}

/// The requests of the page, the command line and Prometheus.
const QUESTIONS: [&str; 4] = ["/api/v1/applications", "/api/v1/applications?view=summary", "/", "/metrics"];

pub async fn applications(report: &mut Report) {
    let directory = tempfile::Builder::new().prefix("driftless-bench-").tempdir().unwrap();
    let mut engine = Engine::new(directory.path());
    if let Some(engine) = &mut engine {
        engine.start().await;
    }
    let docker = Docker { host: engine.as_ref().map(Engine::host) };
    let socket = docker.host.as_deref().map_or(raw::SOCKET, |host| host.trim_start_matches("unix://"));
    let image = images::server_as(&docker, "driftless-e2e/server:1.0", "1.0");
    let mut found = Vec::new();
    for (applications, services) in [(APPLICATIONS, SERVICES), (1, APPLICATIONS * SERVICES)] {
        let own = directory.path().join(applications.to_string());
        std::fs::create_dir_all(&own).unwrap();
        let starts = measure(applications, services, &docker, Path::new(socket), &own, &image).await;
        found.push((applications, starts));
    }

    report.section("Many applications");
    report.text(&format!(
        "{APPLICATIONS} applications with {SERVICES} one-shot services and a network each, and one application with \
         as many services. At the first start the agent creates and starts all containers; the time ends when all \
         applications are synced and healthy. Then it is killed and started again, and the time ends when all are \
         known to be synced. A proxy between agent and engine counts the calls. Lists are whole lists of containers, \
         networks or volumes; others name the objects that they ask for.",
    ));
    report.table(&[
        "applications",
        "start",
        "time",
        "CPU",
        "whole lists",
        "lists of some",
        "inspects",
        "private memory",
    ]);
    for (applications, starts) in &found {
        for (name, start) in ["first", "again"].into_iter().zip(starts) {
            let Start { wall, cpu, lists, filtered, inspects, memory, answers: _ } = start;
            report.row(&[
                applications.to_string(),
                name.to_owned(),
                time(*wall),
                time(*cpu),
                lists.to_string(),
                filtered.to_string(),
                inspects.to_string(),
                megabytes(memory.private),
            ]);
        }
    }
    report.line("");
    let [first, again] = &found[0].1;
    report.text(&format!("Answers about the {APPLICATIONS} applications, until their last byte:"));
    report.table(&["question", "median", "p95", "n"]);
    for (question, times) in &again.answers {
        let (median, p95) = (time(times.median()), time(times.percentile(95)));
        report.row(&[format!("`{question}`"), median, p95, times.len().to_string()]);
    }
    report.line("");
    let lists = format!("{} lists", first.lists);
    report.goal("≤ 5 whole lists at the first start of 100 applications", &lists, first.lists <= 5);
    let p95 = again.answers.iter().map(|(_, times)| times.percentile(95)).max().unwrap_or_default();
    report.goal("p95 of the API ≤ 30 ms at 1,000 containers", &time(p95), p95 <= Duration::from_millis(30));
    let private = first.memory.private.max(again.memory.private);
    report.goal("≤ 30 MB private at 1,000 containers", &megabytes(private), private <= 30_000_000);
    let lists = format!("{} lists", again.lists);
    report.goal("≤ 5 lists at a restart with 100 applications", &lists, again.lists <= 5);
    let wall = again.wall <= Duration::from_secs(1);
    report.goal("≤ 1 s until 100 applications are verified", &time(again.wall), wall);
    let inspects = again.inspects as f64 / (APPLICATIONS * SERVICES) as f64;
    report.goal("≤ 0.1 inspects a container at a restart", &format!("{inspects:.2}"), inspects <= 0.1);
    let inspects = found[0].1[0].inspects as f64 / (APPLICATIONS * SERVICES) as f64;
    report.goal("≤ 1.0 inspects a container at the first start", &format!("{inspects:.2}"), inspects <= 1.0);
}

async fn measure(
    applications: usize,
    services: usize,
    docker: &Docker,
    socket: &Path,
    directory: &Path,
    image: &str,
) -> [Start; 2] {
    let proxy = Counting::before(directory, socket);
    let settings = Settings { docker_host: Some(proxy.host()), ..Settings::default() };
    let mut site = Site::with("bench-applications", settings);
    site.docker = docker.clone();
    let mut files = Vec::new();
    for application in 0..applications {
        let mut text = "services:\n".to_owned();
        for service in 0..services {
            text.push_str(&format!(
                "  job{service}:\n    image: {image}\n    command: [--once]\n    restart: \"no\"\n"
            ));
        }
        // The engine's own address pools end after about thirty networks.
        let subnet =
            if applications == 1 { "10.199.0.0/20".to_owned() } else { format!("10.200.{application}.0/24") };
        text.push_str(&format!("networks:\n  default:\n    ipam:\n      config: [{{subnet: {subnet}}}]\n"));
        files.push((format!("sites/{}-{application}/compose.yaml", site.app), text));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    site.repository.commit(&files);
    let began = Instant::now();
    let mut agent = site.agent().await;
    let mut first = start(&agent, &proxy, applications, 0, began).await;
    sleep(Duration::from_secs(10)).await;
    first.memory = process::memory(agent.process());
    let before = proxy.requests().len();
    agent.kill9();
    let began = Instant::now();
    agent.launch();
    let mut again = start(&agent, &proxy, applications, before, began).await;
    sleep(Duration::from_secs(5)).await;
    again.memory = process::memory(agent.process());
    // A connection of its own for each question. The answer is not parsed: that would be the time of the benchmark.
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).no_proxy().build().unwrap();
    for question in QUESTIONS {
        let mut times = Vec::new();
        for _ in 0..40 {
            let began = Instant::now();
            let url = format!("http://{}{question}", agent.address());
            let response = client.get(url).send().await.expect("the agent answers");
            assert_eq!(response.status(), 200, "{question}");
            response.bytes().await.expect("the whole answer arrives");
            times.push(began.elapsed());
        }
        again.answers.push((question, Samples::new(times)));
    }
    drop(agent);
    let api = raw::Api(socket.display().to_string());
    for application in 0..applications {
        api.remove_application(docker, &format!("{}-{application}", site.app)).await;
    }
    [first, again]
}

/// Waits until the agent says of all applications that they are synced and healthy.
async fn start(agent: &Agent, proxy: &Counting, applications: usize, before: usize, began: Instant) -> Start {
    loop {
        let metrics = agent.get("/metrics").await.map(|(_, body)| body);
        let metrics = metrics.as_ref().and_then(Value::as_str).unwrap_or_default();
        let is_done = |line: &&str| {
            line.contains("sync_status=\"Synced\"") && line.contains("health_status=\"Healthy\"")
        };
        if metrics.lines().filter(is_done).count() == applications {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "not settled within {PATIENCE:?}");
        // Each question costs the agent time, too.
        let pause = if began.elapsed() < Duration::from_secs(3) { 50 } else { 1000 };
        sleep(Duration::from_millis(pause)).await;
    }
    let wall = began.elapsed();
    let cpu = process::cpu(agent.process());
    let requests = proxy.requests().split_off(before);
    let is_list = |request: &&String| {
        let path = request.split(['?', ' ']).nth(1).unwrap_or_default();
        request.starts_with("GET")
            && ["/containers/json", "/networks", "/volumes"].iter().any(|end| path.ends_with(end))
    };
    // An empty filter, `{}`, asks for everything.
    let is_filtered = |request: &&String| request.contains("filters=") && !request.contains("filters=%7B%7D");
    let (filtered, whole): (Vec<_>, Vec<_>) = requests.iter().filter(is_list).partition(is_filtered);
    Start {
        wall,
        cpu,
        lists: whole.len(),
        filtered: filtered.len(),
        inspects: requests.iter().filter(|it| raw::is_inspection(it)).count(),
        memory: process::memory(agent.process()),
        answers: Vec::new(),
    }
}
