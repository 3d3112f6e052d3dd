//! Crash-only: after the death of any process at any moment, the containers are right in the end.

use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use crate::harness::{Engine, Settings, Site, free_port, images, is_settled, random};

fn compose(image: &str, version: usize) -> String {
    format!(
        "services:
  web:
    image: {image}
    restart: unless-stopped
    environment: {{GREETING: \"{version}\"}}
    deploy: {{replicas: 2}}
  worker:
    image: {image}
    restart: unless-stopped
    environment: {{GREETING: \"{version}\"}}
    depends_on: [web]
"
    )
}

#[tokio::test]
async fn fifty_kills_during_rollouts_end_in_the_right_state() {
    const KILLS: usize = 50;
    let seed = std::env::var("E2E_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or_else(random);
    println!("E2E_SEED={seed}");
    let mut state = seed;
    let image = images::server("1.0");
    let site = Site::new("kills");
    let mut agent = site.running(&compose(&image, 0)).await;
    let mut reported = agent.application().await.and_then(|it| it.status.revision).unwrap();
    for version in 1..=KILLS {
        site.compose(&compose(&image, version));
        agent.sync().await;
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Not waiting for anything: the moment of a kill is what this is about.
        tokio::time::sleep(Duration::from_millis((state >> 33) % 900)).await;
        reported = agent.application().await.and_then(|it| it.status.revision).unwrap_or(reported);
        agent.kill9();
        agent.launch();
        agent.ready().await;
        let history = agent.history().await;
        assert!(
            history.iter().any(|it| it.number == reported),
            "seed {seed}: revision {reported} was reported and is lost after kill {version}"
        );
    }
    let last = site.repository.head();
    agent.deployed(&last).await;
    let containers = site.docker.containers(&site.app);
    let names: Vec<String> = containers.iter().map(|it| it.label("com.docker.compose.service")).collect();
    assert_eq!(names, ["web", "web", "worker"], "seed {seed}: each once, and nothing left over");
    for container in containers {
        assert_eq!(container.state(), "running", "seed {seed}: {}", container.name());
        assert_eq!(container.variable("GREETING"), Some(KILLS.to_string()), "seed {seed}");
    }
    let mut numbers: Vec<u64> = agent.history().await.iter().map(|it| it.number).collect();
    let length = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), length, "seed {seed}: a revision's number was used twice");
}

#[tokio::test]
async fn a_restart_of_the_agent_restarts_no_container() {
    let site = Site::new("calm");
    let mut agent = site.running(&compose(&images::server("1.0"), 1)).await;
    let state = |site: &Site| -> Vec<(String, String)> {
        site.docker.containers(&site.app).iter().map(|it| (it.id(), it.started())).collect()
    };
    let before = state(&site);
    agent.restart().await;
    agent.settled(&site.repository.head()).await;
    assert_eq!(state(&site), before);
}

#[tokio::test]
async fn stopped_agent_exits_cleanly_and_leaves_containers() {
    let site = Site::new("stop");
    let mut agent = site.running(&compose(&images::server("1.0"), 1)).await;
    let status = agent.terminate().await;
    assert!(status.success(), "{status}");
    assert_eq!(site.docker.running(&site.app).len(), 3);
    agent.launch();
    agent.ready().await;
    agent.settled(&site.repository.head()).await;
}

#[tokio::test]
async fn a_second_agent_on_the_same_state_is_refused() {
    let site = Site::new("second");
    let agent = site.running(&compose(&images::server("1.0"), 1)).await;
    let mut command = agent.run_command();
    // A port of its own, so that it is the state directory that is in the way.
    command.args(["--listen", &format!("127.0.0.1:{}", free_port())]);
    let mut second = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = wait_until_ended(&mut second).await;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut second.stderr.take().unwrap(), &mut text).unwrap();
    assert!(!ended.success(), "{text}");
    assert!(text.contains(agent.state_dir().to_str().unwrap()), "it says which directory is taken: {text}");
    agent.settled(&site.repository.head()).await;
}

async fn wait_until_ended(child: &mut Child) -> std::process::ExitStatus {
    for _ in 0..600 {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    child.kill().unwrap();
    panic!("the second agent runs on");
}

/// Damages the database of a stopped agent and starts it again: it must arrive without restarting anything.
async fn converges_after(test: &str, damage: impl Fn(&Path)) {
    let site = Site::new(test);
    let mut agent = site.running(&compose(&images::server("1.0"), 1)).await;
    let before: Vec<_> = site.docker.containers(&site.app).iter().map(|it| (it.id(), it.started())).collect();
    assert_eq!(before.len(), 3);
    agent.kill9();
    for file in agent.database() {
        damage(&file);
    }
    agent.launch();
    agent.ready().await;
    agent.settled(&site.repository.head()).await;
    let after: Vec<_> = site.docker.containers(&site.app).iter().map(|it| (it.id(), it.started())).collect();
    assert_eq!(after, before, "nothing was restarted");

    let commit = site.compose(&compose(&images::server("1.0"), 2));
    agent.deployed(&commit).await;
    assert_eq!(site.docker.containers(&site.app).len(), 3);
}

#[tokio::test]
async fn a_lost_database_restarts_nothing() {
    converges_after("lost", |file| fs::remove_file(file).unwrap()).await;
}

#[tokio::test]
async fn a_corrupt_database_restarts_nothing() {
    converges_after("corrupt", |file| {
        let length = fs::metadata(file).unwrap().len();
        fs::write(file, vec![0x5a; usize::try_from(length.min(64 * 1024)).unwrap()]).unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_database_cut_short_restarts_nothing() {
    converges_after("cut", |file| {
        let length = fs::metadata(file).unwrap().len();
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length / 2).unwrap();
    })
    .await;
}

#[tokio::test]
async fn rollback_outlives_a_damaged_page() {
    let site = Site::new("page");
    let image = images::server("1.0");
    let mut agent = site.running(&compose(&image, 1)).await;
    let second = site.compose(&compose(&image, 2));
    agent.sync().await;
    agent.deployed(&second).await;
    agent.ask("rollback", serde_json::json!({ "until": "manual", "reason": "2 is bad" })).await;
    let is_back = |site: &Site| {
        let containers = site.docker.running(&site.app);
        containers.len() == 3 && containers.iter().all(|it| it.variable("GREETING").as_deref() == Some("1"))
    };
    agent.until("it is rolled back", |it| it.status.pin.is_some() && is_back(&site)).await;
    agent.kill9();
    for file in agent.database() {
        let mut bytes = fs::read(&file).unwrap();
        let page = bytes.len() / 4096 / 2 * 4096;
        let end = bytes.len().min(page + 4096);
        bytes[page..end].fill(0x5a);
        fs::write(&file, bytes).unwrap();
    }
    agent.launch();
    agent.ready().await;
    agent.until("it was looked at", |it| it.status.observed_at.is_some()).await;
    site.compose(&compose(&image, 3));
    agent.sync().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let application = agent.application().await.unwrap();
    assert!(application.status.pin.is_some(), "{:#?}", application.status);
    assert!(is_back(&site), "the version that was rolled back is back");
}

#[tokio::test]
async fn lost_state_applies_no_commit_until_recover() {
    let site = Site::new("recover");
    let image = images::server("1.0");
    let mut agent = site.running(&compose(&image, 1)).await;
    let before: Vec<_> = site.docker.containers(&site.app).iter().map(|it| (it.id(), it.started())).collect();
    agent.kill9();
    for file in agent.database().into_iter().chain([agent.state_dir().join("driftless-backup.db")]) {
        fs::remove_file(file).unwrap();
    }
    agent.launch();
    let is_lost =
        |it: &driftless_model::Application| it.status.conditions.iter().any(|it| it.kind == "StateLost");
    agent.until("the loss is reported", is_lost).await;
    agent.until_not_ready().await;
    let second = site.compose(&compose(&image, 2));
    agent.sync().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after: Vec<_> = site.docker.containers(&site.app).iter().map(|it| (it.id(), it.started())).collect();
    assert_eq!(after, before, "nothing was changed");
    assert!(agent.said("recover").contains("new commits are applied again"));
    agent.deployed(&second).await;
    agent.ready().await;
}

#[tokio::test]
async fn an_engine_that_dies_and_comes_back_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut engine) = Engine::new(directory.path()) else {
        eprintln!("not run: a second engine needs root and network namespaces");
        return;
    };
    engine.start().await;
    let settings = Settings { docker_host: Some(engine.host()), ..Settings::default() };
    let site = Site::with("engine", settings);
    let image = images::server_as(&site.docker, "driftless-e2e/server:1.0", "1.0");
    let agent = site.running(&compose(&image, 1)).await;

    engine.kill9();
    agent.until_not_ready().await;
    let commit = site.compose(&compose(&image, 2));
    agent.sync().await;
    engine.start().await;
    agent.settled(&commit).await;
    let containers = site.docker.running(&site.app);
    assert_eq!(containers.len(), 3);
    assert!(containers.iter().all(|it| it.variable("GREETING").as_deref() == Some("2")));
    // The new engine ended what outlived the old one, which is nobody's doing.
    let log = agent.log();
    let false_drift = log.lines().find(|line| line.contains("drift detected") && line.contains("exited ("));
    assert_eq!(false_drift, None, "an end by the engine is reported as drift");

    // A clean restart, which stops all containers on the way.
    engine.stop();
    engine.start().await;
    agent
        .until("all is well again", |it| is_settled(it, &commit) && site.docker.running(&site.app).len() == 3)
        .await;
    drop(agent);
    drop(site);
    drop(engine);
}

/// An engine is stopped and started that starts none of its containers by itself.
async fn engine_stops_and_starts(self_heal: bool) {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut engine) = Engine::new(directory.path()) else {
        eprintln!("not run: a second engine needs root and network namespaces");
        return;
    };
    engine.start().await;
    let settings = Settings { docker_host: Some(engine.host()), self_heal, ..Settings::default() };
    let site = Site::with("engine-stop", settings);
    let image = images::server_as(&site.docker, "driftless-e2e/server:1.0", "1.0");
    // The engine kills the second one at the end of its grace period, and answers open connections until then.
    let slow = "stop_signal: SIGWINCH, stop_grace_period: 5s";
    let agent = site
        .running(&format!("services:\n  web: {{image: {image}}}\n  slow: {{image: {image}, {slow}}}\n"))
        .await;
    let commit = site.repository.head();
    let steps = || agent.log().lines().filter(|line| line.contains("step done")).count();
    let before = steps();
    engine.stop();
    assert_eq!(steps(), before, "the agent changes what the engine stops");
    engine.start().await;
    agent
        .until("both run again", |it| is_settled(it, &commit) && site.docker.running(&site.app).len() == 2)
        .await;
    let log = agent.log();
    let drift = log.lines().find(|line| line.contains("drift detected"));
    assert_eq!(drift, None, "an end by the engine is reported as drift");
    drop(agent);
    drop(site);
    drop(engine);
}

#[tokio::test]
async fn engine_that_shuts_down_is_left_alone() {
    engine_stops_and_starts(true).await;
}

#[tokio::test]
async fn shutdown_of_the_engine_is_no_drift_without_self_heal() {
    engine_stops_and_starts(false).await;
}
