//! A fleet of 25 real agents with keys of their own: the collector is killed, the line to it is cut, and commits reach all hosts
//! meanwhile. Three of them have engines of their own in network namespaces. `make fleet-proof` runs it and prints what it measured.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::harness::{Agent, Docker, Engine, Settings, Site, images};

/// The hosts with engines of their own, and all.
const OWN_ENGINES: usize = 3;
const HOSTS: usize = 25;

/// The time between two heartbeats.
const EVERY: &str = "5s";

/// A line between the hosts and the collector that can be cut. Nothing passes while it is: connections that are open break, and new
/// ones get no answer, now or later.
struct Line {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
}

impl Line {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_cut, seen) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server.clone(), seen.clone()));
            }
        });
        Self { address, is_cut }
    }
}

async fn pass(mut client: TcpStream, server: String, mut is_cut: watch::Receiver<bool>) {
    if *is_cut.borrow() {
        // As long as a client waits for an answer. One that reached the server after the cut would be hours old.
        let _ = timeout(Duration::from_secs(60), is_cut.wait_for(|is_cut| !is_cut)).await;
        return;
    }
    // The collector may have been killed.
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = is_cut.wait_for(|is_cut| *is_cut) => {}
    }
}

/// The number of a variable of the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The 1-minute load of the machine.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn compose(image: &str, version: u32) -> String {
    format!(
        "services:\n  web:\n    image: {image}\n    network_mode: none\n    stop_grace_period: 0s\n    environment: {{ROUND: '{version}'}}\n"
    )
}

struct Fleet {
    site: Site,
    /// The name of each host with its application.
    names: Vec<(String, String)>,
    image: String,
}

impl Fleet {
    /// Commits another version for all hosts.
    fn push(&self, version: u32) -> String {
        let text = compose(&self.image, version);
        let paths: Vec<String> =
            self.names.iter().map(|(host, app)| format!("hosts/{host}/{app}/compose.yaml")).collect();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), text.as_str())).collect();
        self.site.repository.commit(&files)
    }

    /// Waits until each host runs a commit and is healthy, as it says itself. Returns the time.
    async fn deployed(&self, hosts: &[Agent], commit: &str) -> Duration {
        let began = Instant::now();
        for host in hosts {
            host.settled(commit).await;
        }
        began.elapsed()
    }
}

/// The number of hosts in each of these states, as the collector sees them.
async fn count(hub: &Agent, states: &[&str]) -> usize {
    let Some((200, status)) = hub.get("/api/v1/fleet/hosts").await else { return 0 };
    let hosts = status["hosts"].as_array().unwrap();
    hosts.iter().filter(|host| states.contains(&host["state"].as_str().unwrap())).count()
}

/// Waits until the collector sees all hosts in one of these states. Returns the time.
async fn all_are(hub: &Agent, states: &[&str], within: Duration) -> Duration {
    let began = Instant::now();
    while count(hub, states).await < HOSTS {
        assert!(began.elapsed() < within, "{}", hub.said("fleet status"));
        sleep(Duration::from_millis(200)).await;
    }
    began.elapsed()
}

fn said(what: &str, time: Duration) {
    println!("| {what} | {:.1} s | {} |", time.as_secs_f64(), load());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes: make fleet-proof"]
async fn fleet_of_25_agents_survives_its_collector() {
    let cut = Duration::from_secs(number("FLEET_CUT", 60));
    let image = images::server("1.0");
    let whole = json!({ "host": { "name": "hub" }, "fleet": { "accept": true, "enrolment": "required" } });
    let hub_site = Site::with("proof-hub", Settings { whole: Some(whole), ..Settings::default() });
    let mut hub = hub_site.running(&compose(&image, 0)).await;
    let line = Line::to(hub.address().to_owned()).await;

    let mut site = Site::new("proof");
    let names =
        (0..HOSTS).map(|at| (format!("host-{at:02}"), site.also(&format!("proof-{at:02}")))).collect();
    let fleet = Fleet { site, names, image };
    let first = fleet.push(1);
    let mut engines = Vec::new();
    for at in 0..OWN_ENGINES {
        let folder = fleet.site.directory().join(format!("engine-{at}"));
        std::fs::create_dir_all(&folder).unwrap();
        let mut engine = Engine::new(&folder).expect("root and network namespaces");
        engine.start().await;
        images::server_as(&Docker { host: Some(engine.host()) }, &fleet.image, "1.0");
        engines.push(engine);
    }
    let began = Instant::now();
    let mut hosts = Vec::new();
    for (at, (name, app)) in fleet.names.iter().enumerate() {
        let folder = fleet.site.directory().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let settings = Settings {
            poll: "5s",
            docker_host: engines.get(at).map(Engine::host),
            more: Some(json!({ "path": "hosts/${host}" })),
            whole: Some(json!({
                "host": { "name": name },
                "report": { "to": format!("http://{}", line.address), "every": EVERY },
            })),
            ..Settings::default()
        };
        hosts.push(Agent::start(&folder, app, &fleet.site.server.url(), &settings).await);
    }
    println!("| | time | load |\n|---|---|---|");
    said(&format!("{HOSTS} agents are started"), began.elapsed());
    let began = Instant::now();
    for ((name, _), host) in fleet.names.iter().zip(&hosts) {
        let token = hub.said(&format!("fleet invite --name {name}"));
        let token = token.split_whitespace().find(|word| word.starts_with("driftless_join_")).unwrap();
        host.said(&format!("fleet join http://{} --token {token}", line.address));
    }
    said("all have joined", began.elapsed());
    let waiting = format!("fleet wait --commit {first} --for healthy --timeout 5m");
    let began = Instant::now();
    let (code, _, error) = hub.asks(&waiting);
    assert_eq!(code, 0, "{error}");
    said("`fleet wait` sees all healthy", began.elapsed());

    // A second machine with a name.
    let folder = fleet.site.directory().join("second");
    std::fs::create_dir_all(&folder).unwrap();
    let whole = json!({
        "host": { "name": "host-00" },
        "report": { "to": format!("http://{}", line.address), "every": EVERY },
    });
    let more = Some(json!({ "path": "hosts/second" }));
    let settings = Settings { whole: Some(whole), more, ..Settings::default() };
    let mut second = Agent::new(&folder, "second", &fleet.site.server.url(), &settings);
    second.launch();
    while second.get("/healthz").await.is_none() {
        sleep(Duration::from_millis(100)).await;
    }
    let token = hub.said("fleet invite");
    let token = token.split_whitespace().find(|word| word.starts_with("driftless_join_")).unwrap();
    let (code, _, error) = second.asks(&format!("fleet join http://{} --token {token}", line.address));
    assert!(code == 2 && error.contains("another machine is enrolled as `host-00`"), "{error}");
    drop(second);

    // The collector is killed; a commit reaches all hosts without it.
    hub.kill9();
    let commit = fleet.push(2);
    said("a commit runs on all hosts, without a collector", fleet.deployed(&hosts, &commit).await);
    hub.restart().await;
    let began = Instant::now();
    let (code, _, error) = hub.asks(&format!("fleet wait --commit {commit} --for healthy --timeout 5m"));
    assert_eq!(code, 0, "{error}");
    said("the collector is back and sees all healthy with it", began.elapsed());

    // The line is cut; the collector never shows a silent host as healthy.
    line.is_cut.send_replace(true);
    let began = Instant::now();
    said(
        "the line is cut: no host is shown as healthy",
        all_are(&hub, &["Stale", "Lost"], cut.max(Duration::from_mins(2))).await,
    );
    let commit = fleet.push(3);
    said("a commit runs on all hosts during the cut", fleet.deployed(&hosts, &commit).await);
    while began.elapsed() < cut {
        assert_eq!(count(&hub, &["Stale", "Lost"]).await, HOSTS);
        sleep(Duration::from_secs(1)).await;
    }
    if cut >= Duration::from_mins(11) {
        assert_eq!(count(&hub, &["Lost"]).await, HOSTS);
    }
    let lasted = began.elapsed();
    line.is_cut.send_replace(false);
    let began = Instant::now();
    let (code, _, error) = hub.asks(&format!("fleet wait --commit {commit} --for healthy --timeout 5m"));
    assert_eq!(code, 0, "{error}");
    said(
        &format!("after a cut of {:.0} s the collector sees all healthy", lasted.as_secs_f64()),
        began.elapsed(),
    );

    // One host leaves.
    hosts[HOSTS - 1].said(&format!("fleet leave http://{}", line.address));
    let keys: Value = serde_json::from_str(&hub.said("fleet keys -o json")).unwrap();
    assert_eq!(keys["hosts"].as_array().unwrap().len(), HOSTS - 1);
    let resident = |agent: &Agent| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", agent.process())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024
    };
    println!(
        "\nresident memory: {} MiB of the collector, {} MiB of a host",
        resident(&hub),
        resident(&hosts[5])
    );
    for ((_, app), engine) in fleet.names.iter().zip(&mut engines) {
        Docker { host: Some(engine.host()) }.remove_application(app);
    }
    drop(hosts);
    engines.iter_mut().for_each(Engine::stop);
}
