//! Ten updates of a service under load, on three machines of a Swarm. The clients ask another machine where one does not answer, as a load
//! balancer does. The same without an agent, as a measure. `make swarm-proof`, as root.

use std::{
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::harness::{Managers, Settings, Site, request, skip, wait_until};

const UPDATES: usize = 10;
const CLIENTS: usize = 4;
/// A machine that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(10);
/// The services with an agent, and the same without.
const OURS: &str = "shop";
const BARE: &str = "bare";

/// The way in which a service is published.
#[derive(Clone, Copy)]
enum Publication {
    /// On each machine by its own task.
    Host,
    /// On all machines by the routing mesh.
    Ingress,
}

impl Publication {
    fn compose(self, image: &str, port: u16, version: usize) -> String {
        let update = "parallelism: 1, monitor: 1s";
        let (mode, deploy) = match self {
            Self::Host => ("host", format!("mode: global, update_config: {{{update}, order: stop-first}}")),
            Self::Ingress => {
                ("ingress", format!("replicas: 3, update_config: {{{update}, order: start-first}}"))
            }
        };
        format!(
            "services:
  web:
    image: '{image}'
    stop_grace_period: 1s
    environment: {{VERSION_OF_GIT: '{version}'}}
    ports: [{{target: 8080, published: {port}, mode: {mode}}}]
    deploy: {{{deploy}}}
"
        )
    }
}

/// The answers to clients so far.
#[derive(Default)]
struct Heard {
    has_ended: AtomicBool,
    answered: AtomicU64,
    /// Requests that one machine did not answer, and another did.
    by_another: AtomicU64,
    /// Requests that no machine answered.
    failed: Mutex<Vec<String>>,
}

/// Clients of the machines, until this is dropped.
struct Clients {
    heard: Arc<Heard>,
    _tasks: JoinSet<()>,
}

impl Clients {
    async fn of(addresses: &[SocketAddr]) -> Self {
        for address in addresses {
            let mut tries = 0;
            while request(*address, false, &mut None).await.is_err() {
                tries += 1;
                assert!(tries < 300, "{address} does not answer");
                sleep(Duration::from_millis(100)).await;
            }
        }
        let heard = Arc::<Heard>::default();
        let mut tasks = JoinSet::new();
        for first in 0..CLIENTS {
            tasks.spawn(client(addresses.to_vec(), first, Arc::clone(&heard)));
        }
        Self { heard, _tasks: tasks }
    }

    /// A row of the table. Fails if a request had no answer and none may be lost.
    fn row(&self, who: &str, may_lose: bool) -> String {
        let failed = self.heard.failed.lock().unwrap();
        assert!(may_lose || failed.is_empty(), "{who}: {failed:#?}");
        let number = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let (answered, by_another) = (number(&self.heard.answered), number(&self.heard.by_another));
        assert!(answered > 100, "{who}: only {answered} requests were answered");
        format!("| {who} | {answered} | {by_another} | {} |", failed.len())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.heard.has_ended.store(true, Ordering::Relaxed);
    }
}

async fn client(addresses: Vec<SocketAddr>, first: usize, heard: Arc<Heard>) {
    let mut number = first;
    while !heard.has_ended.load(Ordering::Relaxed) {
        let mut errors = Vec::new();
        for offset in 0..addresses.len() {
            let address = addresses[(number + offset) % addresses.len()];
            match timeout(PATIENCE, request(address, false, &mut None)).await {
                Ok(Ok(_)) => {
                    let count = if errors.is_empty() { &heard.answered } else { &heard.by_another };
                    count.fetch_add(1, Ordering::Relaxed);
                    errors.clear();
                    break;
                }
                Ok(Err(error)) => errors.push(format!("{address}: {error}")),
                Err(_) => errors.push(format!("{address}: timed out")),
            }
        }
        if !errors.is_empty() {
            heard.failed.lock().unwrap().push(errors.join("; "));
        }
        number += 1;
        sleep(PAUSE).await;
    }
}

async fn under_load(test: &str, publication: Publication) {
    let directory = tempfile::tempdir().unwrap();
    let managers = Managers::start(directory.path(), 3).await;
    let image = managers.publish("server", "1.0").await;
    let addresses = |port: u16| {
        let address = |node: &crate::harness::Node| SocketAddr::from((node.engine.link_to_host(), port));
        managers.nodes.iter().map(address).collect::<Vec<SocketAddr>>()
    };
    let settings = Settings {
        docker_host: Some(managers.nodes[0].engine.host()),
        poll: "1s",
        more: Some(json!({ "engine": "swarm" })),
        ..Settings::default()
    };
    let site = Site::with(test, settings);
    let push =
        |version| site.compose(&format!("name: {OURS}\n{}", publication.compose(&image, 8080, version)));
    let first = push(0);
    let agent = site.agent().await;
    agent.settled(&first).await;
    let clients = Clients::of(&addresses(8080)).await;
    for version in 1..=UPDATES {
        let commit = push(version);
        agent.settled(&commit).await;
    }
    let ours = clients.row("driftless", false);
    drop(clients);

    let docker = &managers.nodes[0].docker;
    let deploy = |version| {
        let file = directory.path().join("stack.yaml");
        let text = format!("version: '3.8'\n{}", publication.compose(&image, 8081, version));
        std::fs::write(&file, text).unwrap();
        docker.run(&["stack", "deploy", "-c", file.to_str().unwrap(), BARE]);
    };
    deploy(0);
    let clients = Clients::of(&addresses(8081)).await;
    for version in 1..=UPDATES {
        deploy(version);
        let words = ["service", "inspect", &format!("{BARE}_web"), "--format"];
        let words = |what| [&words[..], &[what]].concat();
        wait_until("the Swarm has updated the service", || {
            let env = docker.run(&words("{{json .Spec.TaskTemplate.ContainerSpec.Env}}"));
            let state = docker.run(&words("{{.UpdateStatus.State}}"));
            (env.contains(&format!("VERSION_OF_GIT={version}\"")) && state == "completed").then_some(())
        })
        .await;
    }
    println!("| {UPDATES} updates | answered | by another machine | not answered |\n|---|---|---|---|");
    println!("{ours}\n{}", clients.row("docker stack deploy", true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root for three engines; `make swarm-proof`"]
async fn host_mode_ports_answer_during_ten_updates() {
    under_load("swarm-load", Publication::Host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root for three engines; `make swarm-proof`"]
async fn routing_mesh_answers_during_ten_updates() {
    let _ = Command::new("modprobe").arg("ip_vs").output();
    if !Path::new("/proc/net/ip_vs").exists() {
        return skip("ipvs", "this kernel has no IPVS, so the routing mesh answers nobody");
    }
    under_load("swarm-mesh", Publication::Ingress).await;
}
