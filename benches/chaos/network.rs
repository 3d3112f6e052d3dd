//! Faults of the network: to Git over HTTP and SSH, to the engine, and to the registry.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    Context,
    apps::Kind,
    disk::remove_one,
    docker::Docker,
    engine::{Engine, IMAGE},
    harness::{GitServer, Registry, Repository, SshServer, free_port},
    lane::{Allowed, Lane, Ways},
    proxy::{Fault, Proxy, Upstream},
    random::Random,
    table::Row,
};

const KINDS: [Kind; 2] = [Kind::Small, Kind::Pinned];

/// One stretch of a bad network, from the commit on.
struct Series<'a> {
    context: &'a Context,
    row: Row,
    proxy: &'a Proxy,
    random: Random,
    faults: fn(&mut Random) -> Vec<Fault>,
}

fn http_faults(random: &mut Random) -> Vec<Fault> {
    vec![
        Fault::Refused,
        Fault::Silent,
        Fault::Hanging,
        Fault::Late(Duration::from_millis(700)),
        Fault::Slow(3000),
        Fault::Stalled(random.below(700)),
        Fault::Cut(random.below(700)),
        Fault::Garbage,
        Fault::Flipped(random.below(900)),
        Fault::Status("503 Service Unavailable"),
    ]
}

fn ssh_faults(random: &mut Random) -> Vec<Fault> {
    vec![
        Fault::Refused,
        Fault::Silent,
        Fault::Hanging,
        Fault::Late(Duration::from_millis(300)),
        Fault::Slow(3000),
        Fault::Stalled(random.below(3000)),
        Fault::Cut(random.below(3000)),
        Fault::Garbage,
        Fault::Flipped(random.below(3000)),
    ]
}

fn engine_faults(random: &mut Random) -> Vec<Fault> {
    vec![
        Fault::Refused,
        Fault::Silent,
        Fault::Hanging,
        Fault::Late(Duration::from_millis(500)),
        Fault::Slow(8000),
        Fault::Stalled(random.below(2000)),
        Fault::Cut(random.below(2000)),
        Fault::Garbage,
        Fault::Flipped(random.below(1500)),
        Fault::Status("500 Internal Server Error"),
    ]
}

fn registry_faults(random: &mut Random) -> Vec<Fault> {
    vec![
        Fault::Status("429 Too Many Requests"),
        Fault::Status("500 Internal Server Error"),
        Fault::Cut(random.between(1000, 90_000)),
        Fault::Stalled(random.between(1000, 90_000)),
        Fault::Hanging,
        Fault::Refused,
        Fault::Garbage,
        Fault::Slow(20_000),
        Fault::Flipped(random.between(2000, 90_000)),
    ]
}

pub(crate) async fn git_http(context: &Context, docker: &Docker, cases: usize) -> Result<(), String> {
    let folder = context.directory.join("g1");
    fs::create_dir_all(folder.join("repositories")).map_err(|error| error.to_string())?;
    let server = GitServer::start(&folder.join("repositories"));
    let port = free_port();
    let upstream =
        server.url().trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
    let proxy = Proxy::on_port(&format!("127.0.0.1:{port}"), Upstream::Tcp(upstream)).await?;
    let ways = Ways {
        url: Some(format!("http://127.0.0.1:{port}/infra.git")),
        repository: Some(json!({"idleTimeout": "4s", "timeout": "30s"})),
        polls_often: true,
        ..Ways::default()
    };
    let mut lane = Lane::start(&context.directory, "g1", docker, &KINDS, |_: &Repository| ways).await?;
    let random = Random::of(context.seed, "git http");
    let mut series = Series { context, row: Row::GitHttp, proxy: &proxy, random, faults: http_faults };
    series.run(&mut lane, cases, false).await
}

pub(crate) async fn git_ssh(context: &Context, docker: &Docker, cases: usize) -> Result<(), String> {
    let folder = context.directory.join("g2");
    fs::create_dir_all(folder.join("repositories")).map_err(|error| error.to_string())?;
    let server = SshServer::start(&folder).await;
    let port = free_port();
    // `ssh://USER@127.0.0.1:PORT/PATH`
    let url = server.url();
    let (head, rest) = url.split_once("127.0.0.1:").ok_or("no address")?;
    let (own, path) = rest.split_once('/').ok_or("no path")?;
    let proxy =
        Proxy::on_port(&format!("127.0.0.1:{port}"), Upstream::Tcp(format!("127.0.0.1:{own}"))).await?;
    let known = fs::read_to_string(server.known_hosts()).map_err(|error| error.to_string())?;
    let file: PathBuf = folder.join("known_hosts_of_the_proxy");
    fs::write(&file, known.replace(&format!(":{own} "), &format!(":{port} ")))
        .map_err(|error| error.to_string())?;
    let ways = Ways {
        url: Some(format!("{head}127.0.0.1:{port}/{path}")),
        repository: Some(json!({
            "idleTimeout": "4s", "timeout": "30s",
            "auth": {"sshKeyFile": server.key(), "knownHosts": file},
        })),
        polls_often: true,
        ..Ways::default()
    };
    let mut lane = Lane::start(&context.directory, "g2", docker, &KINDS, |_: &Repository| ways).await?;
    let random = Random::of(context.seed, "git ssh");
    let mut series = Series { context, row: Row::GitSsh, proxy: &proxy, random, faults: ssh_faults };
    series.run(&mut lane, cases, false).await
}

pub(crate) async fn engine(context: &Context, engine: &Engine, cases: usize) -> Result<(), String> {
    let socket = context.directory.join("engine-proxy.sock");
    let proxy = Proxy::on_socket(&socket, Upstream::Unix(engine.socket()))?;
    let ways = Ways { engine: Some(format!("unix://{}", socket.display())), ..Ways::default() };
    let mut lane =
        Lane::start(&context.directory, "n1", &engine.docker, &KINDS, |_: &Repository| ways).await?;
    let random = Random::of(context.seed, "engine network");
    let mut series =
        Series { context, row: Row::EngineNetwork, proxy: &proxy, random, faults: engine_faults };
    series.run(&mut lane, cases, true).await
}

pub(crate) async fn registry(context: &Context, engine: &Engine, cases: usize) -> Result<(), String> {
    let folder = context.directory.join("r1");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let registry = Registry::start(&folder).await;
    let (direct, faulty) = (free_port(), free_port());
    let at = |port: u16| format!("{}:{port}", engine.gateway());
    let upstream = Upstream::Tcp(registry.address.clone());
    let _direct = Proxy::on_port(&at(direct), upstream.clone()).await?;
    let proxy = Proxy::on_port(&at(faulty), upstream).await?;
    let mut lane =
        Lane::start(&context.directory, "r1", &engine.docker, &KINDS, |_: &Repository| Ways::default())
            .await?;
    let mut random = Random::of(context.seed, "registry");
    for case in 0..cases {
        if context.is_over() {
            break;
        }
        let faults = registry_faults(&mut random);
        let fault = faults[case % faults.len()].clone();
        // A layer of its own, so that its bytes are really fetched.
        let build = folder.join("build");
        fs::create_dir_all(&build).map_err(|error| error.to_string())?;
        fs::write(build.join("layer"), random.bytes(100_000)).map_err(|error| error.to_string())?;
        fs::write(build.join("Dockerfile"), format!("FROM {IMAGE}\nCOPY layer /layer\n"))
            .map_err(|error| error.to_string())?;
        let pushed = format!("{}/work:{case}", at(direct));
        let docker = &engine.docker;
        docker.cli(&["build", "-q", "--no-cache", "-t", &pushed, &build.display().to_string()])?;
        docker.cli(&["push", "-q", &pushed])?;
        docker.cli(&["rmi", "-f", &pushed])?;
        lane.use_image(Kind::Small, &format!("{}/work:{case}", at(faulty)));
        proxy.inject(fault.clone());
        lane.commit(&KINDS);
        lane.sync().await;
        sleep(Duration::from_millis(random.between(2000, 6000))).await;
        proxy.recover();
        let began = Instant::now();
        let result = lane.settle(Allowed::default()).await.map(|_| began.elapsed());
        let kind = fault.name();
        context.table.record(Row::Registry, &kind, 1, &result);
        if let Err(error) = result {
            context.table.miss(
                Some(Row::Registry),
                &format!("registry: {kind} (case {case}): {error}"),
                &lane.log_tail(),
            );
            lane.end().await;
            let name = format!("r{}", case + 2);
            lane = Lane::start(&context.directory, &name, docker, &KINDS, |_: &Repository| Ways::default())
                .await?;
        }
    }
    lane.end().await;
    Ok(())
}

impl Series<'_> {
    async fn run(&mut self, lane: &mut Lane, cases: usize, is_engine: bool) -> Result<(), String> {
        for case in 0..cases {
            if self.context.is_over() {
                break;
            }
            let faults = (self.faults)(&mut self.random);
            let fault = faults[case % faults.len()].clone();
            let result = self.case(lane, &fault, is_engine).await;
            let kind = fault.name();
            self.context.table.record(self.row, &kind, 1, &result);
            if let Err(error) = result {
                let row = self.row;
                self.context.table.miss(
                    Some(row),
                    &format!("{row:?}: {kind} (case {case}): {error}"),
                    &lane.log_tail(),
                );
                // The agent starts again, so that one miss does not affect the cases after it.
                lane.kill();
                lane.launch()?;
                lane.settle(Allowed { drift: true, repeated_runs: true })
                    .await
                    .map_err(|error| format!("{row:?}: not even a restart of the agent helps: {error}"))?;
            }
        }
        lane.end().await;
        Ok(())
    }

    async fn case(&mut self, lane: &mut Lane, fault: &Fault, is_engine: bool) -> Result<Duration, String> {
        self.proxy.inject(fault.clone());
        lane.commit(&KINDS);
        lane.sync().await;
        if is_engine {
            remove_one(lane).await?;
        }
        let hold = Duration::from_millis(self.random.between(2000, 7000));
        let result = if is_engine && matches!(fault, Fault::Silent | Fault::Hanging | Fault::Refused) {
            until_reported(lane).await
        } else {
            sleep(hold).await;
            Ok(())
        };
        self.proxy.recover();
        result?;
        let began = Instant::now();
        // The campaign removed a container, which is drift.
        lane.settle(Allowed { drift: is_engine, repeated_runs: false }).await?;
        Ok(began.elapsed())
    }
}

/// An engine that does not answer must be reported.
async fn until_reported(lane: &Lane) -> Result<(), String> {
    let began = Instant::now();
    while lane.readiness().await == 200 {
        if began.elapsed() > Duration::from_secs(30) {
            return Err(
                "the agent says that it is ready although the engine has not answered for 30 s".into()
            );
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
