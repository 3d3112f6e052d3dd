//! A full pass over many managed containers that are as they should be, and a minute in which nothing happens.

use std::{path::Path, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    harness::{self, Agent, Counting, Docker, Engine, Settings, Site, images},
    process::{self, Memory},
    raw::{self, Api},
    report::{Report, Row, Samples, megabytes, time},
    samples, setting,
};

/// The number of containers that the goals for memory and CPU are about.
const CONTAINERS_OF_THE_GOALS: usize = 1000;

/// The result for one number of containers.
struct Found {
    size: usize,
    walls: Samples,
    lists: Samples,
    cpu: Duration,
    lists_per_request: f64,
    others: Vec<String>,
    writes: usize,
    memory: Memory,
    /// Over the minute, in percent of one core.
    at_rest: Option<f64>,
}

pub async fn idle(report: &mut Report) {
    let directory = tempfile::Builder::new().prefix("driftless-bench-").tempdir().unwrap();
    // On the machine's own engine others may start containers, whose events are a reason to look.
    let mut engine = Engine::new(directory.path());
    if let Some(engine) = &mut engine {
        engine.start().await;
    }
    let docker = Docker { host: engine.as_ref().map(Engine::host) };
    let socket = docker.host.as_deref().map_or(raw::SOCKET, |it| it.trim_start_matches("unix://"));
    let image = images::server_as(&docker, "driftless-e2e/server:1.0", "1.0");
    let sizes: Vec<usize> = setting("BENCH_SIZES", "10,100,1000")
        .split(',')
        .map(|it| it.trim().parse().expect("BENCH_SIZES are numbers"))
        .collect();
    let mut all = Vec::new();
    for size in sizes {
        let own = directory.path().join(size.to_string());
        std::fs::create_dir_all(&own).unwrap();
        all.push(
            pass_over(size, size == CONTAINERS_OF_THE_GOALS, &docker, Path::new(socket), &own, &image).await,
        );
    }

    report.section("Idle agent");
    let engine = if engine.is_some() { "an engine of its own" } else { "the machine's engine, shared" };
    report.text(&format!(
        "One application of n one-shot services that have completed, so that n managed containers exist and none has \
         to run, on {engine}. `sync` requests a pass: one observation, which asks the engine for what its events named, a plan \
         without steps, the status, and one listing of references. A proxy between agent and engine counts the calls. \
         The baseline is one list call through the raw API. CPU is the agent's, including the requests that \
         start a pass and wait for its end. The agent runs with `MALLOC_ARENA_MAX=1`, as in `deploy/`. Memory is \
         read from `smaps_rollup`. RSS also counts the touched pages of the program file, which the kernel can drop and \
         read again; private and written memory is the cost of the agent.",
    ));
    let rows: Vec<(String, String)> = all
        .iter()
        .map(|it| (format!("{} containers: raw list call", it.size), format!("{} containers: pass", it.size)))
        .collect();
    let mut times = Vec::new();
    for (it, (list, pass)) in all.iter().zip(&rows) {
        times.push(Row { what: list, samples: &it.lists, ratio: Some(1.0) });
        times.push(Row { what: pass, samples: &it.walls, ratio: Some(it.walls.against(&it.lists)) });
    }
    report.times(&times);
    report.table(&[
        "containers",
        "CPU per request",
        "lists per request",
        "other calls in all",
        "writes",
        "RSS",
        "PSS",
        "private",
        "private, written",
    ]);
    for it in &all {
        report.row(&[
            it.size.to_string(),
            time(it.cpu),
            format!("{:.2}", it.lists_per_request),
            it.others.len().to_string(),
            it.writes.to_string(),
            megabytes(it.memory.resident),
            megabytes(it.memory.proportional),
            megabytes(it.memory.private),
            megabytes(it.memory.dirty),
        ]);
    }
    report.line("");
    let mut others: Vec<&str> = all.iter().flat_map(|it| &it.others).map(String::as_str).collect();
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        report.text(&format!("The other calls, which only read: `{}`.", others.join("`, `")));
    }
    let one = all.iter().all(|it| it.lists_per_request <= 1.01 && it.writes == 0);
    let most = all.iter().map(|it| it.lists_per_request).fold(0.0, f64::max);
    let writes: usize = all.iter().map(|it| it.writes).sum();
    let found = format!("{most:.2} lists per request, {} other calls, {writes} writes", others.len());
    report.goal("one list call and no write in a pass", &found, one);
    let found = all.iter().find(|it| it.size == CONTAINERS_OF_THE_GOALS);
    let memory = found.map(|it| it.memory.resident);
    report.goal(
        "RSS ≤ 30 MB at 1,000 containers",
        &memory.map_or_else(not_measured, megabytes),
        memory.is_some_and(|it| it <= 30_000_000),
    );
    let at_rest = found.and_then(|it| it.at_rest);
    report.goal(
        "≤ 0.2 % CPU over a minute at 1,000 containers",
        &at_rest.map_or_else(not_measured, |it| format!("{it:.2} %")),
        at_rest.is_some_and(|it| it <= 0.2),
    );
}

fn not_measured() -> String {
    "not measured, see `BENCH_SIZES`".to_owned()
}

async fn pass_over(
    size: usize,
    rests: bool,
    docker: &Docker,
    socket: &Path,
    directory: &Path,
    image: &str,
) -> Found {
    let proxy = Counting::before(directory, socket);
    let mut site =
        Site::with("bench-idle", Settings { docker_host: Some(proxy.host()), ..Settings::default() });
    site.docker = docker.clone();
    let mut compose = "services:\n".to_owned();
    for service in 0..size {
        compose.push_str(&format!(
            "  job{service}:\n    image: {image}\n    command: [--once]\n    restart: \"no\"\n    network_mode: none\n"
        ));
    }
    let commit = site.compose(&compose);
    let agent = site.agent().await;
    patiently(&agent, &commit, Duration::from_secs(60 + size as u64)).await;
    // The work that follows the last starts is not measured.
    sleep(Duration::from_secs(3)).await;

    let before = proxy.requests().len();
    let cpu = process::cpu(agent.process());
    let api = Api(socket.display().to_string());
    let (mut walls, mut lists) = (Vec::new(), Vec::new());
    for _ in 0..samples().max(15) {
        walls.push(pass(&agent).await);
        sleep(Duration::from_millis(200)).await;
        lists.push(api.list().await);
    }
    let asked = 2 * walls.len() as u32;
    let cpu = (process::cpu(agent.process()) - cpu) / asked;
    let requests = proxy.requests().split_off(before);
    let is_list = |it: &&String| it.starts_with("GET") && it.contains("/containers/json");
    let lists_seen = requests.iter().filter(is_list).count();
    let others: Vec<String> = requests.iter().filter(|it| !is_list(it)).cloned().collect();
    let writes = others.iter().filter(|it| !it.starts_with("GET ") && !it.starts_with("HEAD ")).count();
    let memory = process::memory(agent.process());
    let at_rest = if rests {
        let before = process::cpu(agent.process());
        sleep(Duration::from_secs(60)).await;
        Some((process::cpu(agent.process()) - before).as_secs_f64() / 60.0 * 100.0)
    } else {
        None
    };
    drop(agent);
    api.remove_application(docker, &site.app).await;
    Found {
        size,
        walls: Samples::new(walls),
        lists: Samples::new(lists),
        cpu,
        lists_per_request: lists_seen as f64 / f64::from(asked),
        others,
        writes,
        memory,
        at_rest,
    }
}

/// Duration of the pass of a `sync`. The request is answered at once; a refusal is answered between two passes,
/// and has one of its own after it.
pub async fn pass(agent: &Agent) -> Duration {
    let began = Instant::now();
    agent.sync().await;
    let path = format!("/api/v1/applications/{}/accept-rewrite", agent.app);
    let (status, answer) = agent.post(&path, &json!({})).await.expect("the agent answers");
    assert!((400..500).contains(&status), "there is no rewritten history: {status} {answer}");
    began.elapsed()
}

/// Waits for as long as a thousand containers take.
pub async fn patiently(agent: &Agent, commit: &str, patience: Duration) {
    let began = Instant::now();
    while !agent.application().await.is_some_and(|it| harness::is_settled(&it, commit)) {
        assert!(began.elapsed() < patience, "not settled within {patience:?}");
        sleep(Duration::from_secs(1)).await;
    }
}
