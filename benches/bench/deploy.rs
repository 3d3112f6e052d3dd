//! The first deployment of running services: the agent against `up -d` of Docker Compose, and what the engine does side by
//! side.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    few,
    harness::{Compose, Counting, Docker, Engine, Leftovers, Settings, Site, images, is_settled},
    noop, raw,
    report::{Report, Row, Samples},
};

/// The numbers of services.
const SIZES: [usize; 2] = [10, 50];
/// The containers of one measurement of the engine, and how many are created and started at the same time.
const CONTAINERS: usize = 24;
const AT_ONCE: [usize; 5] = [1, 2, 4, 8, 16];

struct Found {
    size: usize,
    ours: Samples,
    theirs: Samples,
    inspects: f64,
}

pub async fn deploy(report: &mut Report) {
    let directory = tempfile::Builder::new().prefix("driftless-bench-").tempdir().unwrap();
    let mut engine = Engine::new(directory.path());
    if let Some(engine) = &mut engine {
        engine.start().await;
    }
    let docker = Docker { host: engine.as_ref().map(Engine::host) };
    let socket = docker.host.as_deref().map_or(raw::SOCKET, |host| host.trim_start_matches("unix://"));
    let image = images::server_as(&docker, "driftless-e2e/server:1.0", "1.0");
    let mut found = Vec::new();
    for size in SIZES {
        let own = directory.path().join(size.to_string());
        fs::create_dir_all(&own).unwrap();
        found.push(measure(size, &docker, Path::new(socket), &own, &image).await);
    }
    let curve = curve(socket, &image).await;

    report.section("First deployment");
    report.text(
        "n services that keep running, with one network. Ours is the time from the start of the agent, without anything \
         on the engine and with an empty state directory, until its status says that all is synced and healthy; it \
         contains the clone. For Docker Compose it is `up -d`, from the start of its process to its end. The samples \
         alternate. A proxy between agent and engine counts the inspections.",
    );
    let rows: Vec<(String, &Samples, f64)> = found
        .iter()
        .flat_map(|found| {
            [
                (format!("{} services: docker compose 2", found.size), &found.theirs, 1.0),
                (
                    format!("{} services: the agent", found.size),
                    &found.ours,
                    found.ours.against(&found.theirs),
                ),
            ]
        })
        .collect();
    let rows: Vec<_> =
        rows.iter().map(|(what, samples, ratio)| Row { what, samples, ratio: Some(*ratio) }).collect();
    report.times(&rows);
    report.text(&format!(
        "What the engine does faster together than alone: {CONTAINERS} containers are created and started through the raw \
         API, so many at the same time. The ratio is that of the times for all of them."
    ));
    let rows: Vec<_> =
        curve.iter().map(|(at_once, times)| (format!("{at_once} at the same time"), times)).collect();
    let rows: Vec<_> = rows
        .iter()
        .map(|(what, samples)| Row { what, samples, ratio: Some(samples.against(&curve[0].1)) })
        .collect();
    report.times(&rows);
    for it in &found {
        let ratio = it.ours.against(&it.theirs);
        let goal = format!("≤ 0.9 × the time of docker compose 2, {} services", it.size);
        report.goal(&goal, &format!("{ratio:.2} ×"), ratio <= 0.9);
    }
    let inspects = found.iter().map(|it| it.inspects).fold(0.0, f64::max);
    report.goal("≤ 1.0 inspections a container", &format!("{inspects:.2}"), inspects <= 1.05);
}

async fn measure(size: usize, docker: &Docker, socket: &Path, directory: &Path, image: &str) -> Found {
    let compose = Compose::v2();
    let mut text = "services:\n".to_owned();
    for service in 0..size {
        let _ = writeln!(text, "  web{service}:\n    image: {image}\n    restart: unless-stopped");
    }
    let (mut ours, mut theirs, mut inspects) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..few().min(5) {
        let proxy = Counting::before(directory, socket);
        let settings = Settings { docker_host: Some(proxy.host()), ..Settings::default() };
        let mut site = Site::with("bench-deploy", settings);
        site.docker = docker.clone();
        let commit = site.compose(&text);
        let began = Instant::now();
        let agent = site.agent().await;
        while !agent.application().await.is_some_and(|found| is_settled(&found, &commit)) {
            assert!(began.elapsed() < Duration::from_secs(60 + size as u64), "not settled");
            sleep(Duration::from_millis(20)).await;
        }
        ours.push(began.elapsed());
        sleep(Duration::from_secs(2)).await;
        let requests = proxy.requests();
        inspects.push(requests.iter().filter(|it| raw::is_inspection(it)).count() as f64 / size as f64);
        drop(agent);
        let api = raw::Api(socket.display().to_string());
        api.remove_application(docker, &site.app).await;
        drop(proxy);
        let _ = fs::remove_file(directory.join("docker.sock"));

        let project = format!("{}-peer", site.app);
        let _leftovers = Leftovers { docker: docker.clone(), project: project.clone() };
        let folder = site.directory().join("peer");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("compose.yaml"), &text).unwrap();
        let mut command = compose.command(&folder, &project, &["up", "-d"]);
        command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
        let (time, output) = crate::process::timed(&mut command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        theirs.push(time);
        noop::remove(docker, &api, &project).await;
    }
    let inspects = inspects.iter().sum::<f64>() / inspects.len() as f64;
    Found { size, ours: Samples::new(ours), theirs: Samples::new(theirs), inspects }
}

/// The times for all containers, by how many are created and started at the same time.
async fn curve(socket: &str, image: &str) -> Vec<(usize, Samples)> {
    let mut times: Vec<(usize, Vec<Duration>)> = AT_ONCE.map(|at_once| (at_once, Vec::new())).into();
    for round in 0..few().min(3) {
        for (at_once, times) in &mut times {
            let names: Vec<String> = (0..CONTAINERS)
                .map(|number| format!("e2e-bench-deploy-{round}-{at_once}-{number}"))
                .collect();
            let began = Instant::now();
            let each = stream::iter(&names).for_each_concurrent(*at_once, |name| async move {
                raw::Api(socket.to_owned()).create_and_start(name, &json!({ "Image": image })).await;
            });
            each.await;
            times.push(began.elapsed());
            let api = raw::Api(socket.to_owned());
            for name in &names {
                api.remove(name).await;
            }
        }
    }
    times.into_iter().map(|(at_once, times)| (at_once, Samples::new(times))).collect()
}
