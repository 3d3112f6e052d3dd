//! Nothing to do over running services: a pass of the agent against `up -d` of Docker Compose on the same project.

use std::{fs, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    few,
    harness::{Agent, Compose, Docker, Leftovers, Settings, Site, images},
    idle::{pass, patiently},
    process, raw,
    report::{Report, Row, Samples, megabytes, ratio_text},
    samples,
};

const SIZES: [usize; 3] = [10, 50, 200];

pub async fn noop(report: &mut Report) {
    let peers = [("docker compose 2", Compose::v2())];
    let mut found = Vec::new();
    for size in SIZES {
        found.push((size, measure(size, &peers).await));
    }
    report.section("Idle pass compared with Docker Compose");
    report.text(
        "The same project of n running services is deployed once by the agent and once by Docker Compose. The \
         samples alternate and measure how long each needs to find that there is nothing to do. `sync` requests the \
         agent's pass. The agent follows a commit id, so neither program asks a Git server. The pass is a plan \
         without steps, and the status; it asks the engine for what its events named. For Docker Compose it is a whole `up -d`, from the \
         start of its process to its end.",
    );
    let rows: Vec<(String, &Samples, f64)> = found
        .iter()
        .flat_map(|(size, it)| {
            let ours = (format!("{size} services: a pass of the agent"), &it.ours, 1.0);
            let theirs = it.theirs.iter().map(move |(name, samples, _)| {
                (format!("{size} services: `up -d` of {name}"), samples, samples.against(&it.ours))
            });
            std::iter::once(ours).chain(theirs)
        })
        .collect();
    let rows: Vec<Row<'_>> =
        rows.iter().map(|(what, samples, ratio)| Row { what, samples, ratio: Some(*ratio) }).collect();
    report.times(&rows);
    report.table(&["services", "who", "memory"]);
    for (size, it) in &found {
        report.row(&[size.to_string(), "the agent, resident".to_owned(), megabytes(it.memory)]);
        for (name, _, peak) in &it.theirs {
            report.row(&[size.to_string(), format!("{name}, at its peak"), megabytes(*peak)]);
        }
    }
    report.line("");
    for (size, it) in &found {
        for (name, theirs, _) in &it.theirs {
            let ratio = theirs.against(&it.ours);
            let goal = format!("≥ 100 × faster than {name}, {size} services");
            report.goal(&goal, &format!("{} ×", ratio_text(ratio)), ratio >= 100.0);
        }
    }
}

struct Found {
    ours: Samples,
    memory: u64,
    /// With the most memory that it took.
    theirs: Vec<(&'static str, Samples, u64)>,
}

async fn measure(size: usize, peers: &[(&'static str, Compose)]) -> Found {
    let image = images::server("1.0");
    let mut text = "services:\n".to_owned();
    for service in 0..size {
        text.push_str(&format!("  web{service}:\n    image: {image}\n    restart: unless-stopped\n"));
    }
    let mut site = Site::new("bench-noop");
    let commit = site.compose(&text);
    // By its id: then no server is asked.
    site.settings =
        Settings { more: Some(json!({ "branch": null, "commit": commit })), ..Settings::default() };
    let agent = site.agent().await;
    patiently(&agent, &commit, Duration::from_secs(60 + size as u64)).await;
    sleep(Duration::from_secs(1)).await;

    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for (name, compose) in peers {
        let project = format!("{}-peer", site.app);
        let _leftovers = Leftovers { docker: Docker::default(), project: project.clone() };
        let folder = site.directory().join("peer");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("docker-compose.yaml"), &text).unwrap();
        compose.run(&folder, &project, &["up", "-d"]);
        let mut times = Vec::new();
        for _ in 0..few() {
            ours.extend(passes(&agent).await);
            let began = Instant::now();
            compose.run(&folder, &project, &["up", "-d"]);
            times.push(began.elapsed());
        }
        let peak = process::peak_of(&mut compose.command(&folder, &project, &["up", "-d"]));
        theirs.push((*name, Samples::new(times), peak));
        remove(&Docker::default(), &raw::Api::default(), &project).await;
    }
    if ours.is_empty() {
        ours = passes(&agent).await;
    }
    let memory = process::memory(agent.process()).resident;
    drop(agent);
    raw::Api::default().remove_application(&site.docker, &site.app).await;
    Found { ours: Samples::new(ours), memory, theirs }
}

async fn passes(agent: &Agent) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..samples().div_ceil(3) {
        times.push(pass(agent).await);
        sleep(Duration::from_millis(100)).await;
    }
    times
}

/// Faster than Docker Compose itself would.
pub async fn remove(docker: &Docker, api: &raw::Api, project: &str) {
    let filter = format!("label=com.docker.compose.project={project}");
    let ids = docker.run(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
    for id in ids.lines() {
        api.remove(id).await;
    }
}
