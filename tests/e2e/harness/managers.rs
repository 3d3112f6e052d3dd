//! Several engines on one switch, as machines on a network of their own: all are managers of one Swarm.

use std::{
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use serde_json::json;

use super::{
    Docker, Engine, random,
    swarm::{publish, start_registry},
    wait_within,
};

/// The time for managers to reach each other again. gRPC, over which they talk, waits for up to 120 s and a fifth of it between
/// two tries to connect, and the nodes then wait for each other.
const RECONNECTION: Duration = Duration::from_secs(300);

/// Machines that manage one Swarm, and a registry that all of them reach.
pub struct Managers {
    pub nodes: Vec<Node>,
    switch: Switch,
    /// `address:port` of the registry.
    registry: String,
    server: Child,
}

/// One machine: an engine with its own network address and host name.
pub struct Node {
    /// `node1`, …
    pub name: String,
    pub engine: Engine,
    pub docker: Docker,
    address: Ipv4Addr,
    /// Its port at the switch.
    port: String,
    pub has_power: bool,
}

/// A network namespace with a bridge. Removing it removes all links.
struct Switch {
    namespace: String,
    /// The third number of all addresses.
    subnet: u8,
}

impl Managers {
    /// Needs root and network namespaces.
    pub async fn start(directory: &Path, number: u8) -> Self {
        let switch = Switch::new();
        let registry = format!("{}:5000", switch.address(254));
        let server = start_registry(directory, &switch.namespace, &registry, "");
        let mut managers = Self { nodes: Vec::new(), switch, registry, server };
        for index in 1..=number {
            let node = managers.node(directory, index).await;
            managers.nodes.push(node);
            let [first, .., last] = managers.nodes.as_slice() else {
                managers.nodes[0].init();
                continue;
            };
            last.join(first);
        }
        managers
    }

    async fn node(&self, directory: &Path, index: u8) -> Node {
        let name = format!("node{index}");
        let mut engine = Engine::new(&directory.join(&name)).expect("root and network namespaces");
        engine.host_name = Some(name.clone());
        engine.configuration = json!({ "insecure-registries": [self.registry] });
        let (address, port) = self.switch.plug(engine.namespace(), index);
        engine.start().await;
        let docker = Docker { host: Some(engine.host()) };
        Node { name, engine, docker, address, port, has_power: true }
    }

    /// Publishes the test server in the registry of these machines.
    pub async fn publish(&self, name: &str, version: &str) -> String {
        publish(&self.nodes[0].docker, &self.registry, name, version).await
    }

    /// The index of the leader, as the machines with these indexes say. `None`: they know of none.
    pub fn leader(&self, among: &[usize]) -> Option<usize> {
        let words = ["node", "ls", "--format", "{{.Hostname}} {{.ManagerStatus}} {{.Status}}"];
        among.iter().find_map(|index| {
            let text = self.nodes[*index].docker.attempt(&words).ok()?;
            let line = text.lines().find(|line| line.contains(" Leader"))?;
            self.nodes.iter().position(|node| line.starts_with(&format!("{} ", node.name)))
        })
    }

    /// Takes the machine off the network. It goes on otherwise.
    pub fn cut_link(&self, index: usize) {
        self.switch.set(&self.nodes[index].port, "down");
    }

    pub fn mend_link(&self, index: usize) {
        self.switch.set(&self.nodes[index].port, "up");
    }

    /// Nothing of the machine runs on, and nobody gets a word from it any more.
    pub fn cut_power(&mut self, index: usize) {
        self.cut_link(index);
        let node = &mut self.nodes[index];
        node.engine.cut_power();
        node.has_power = false;
    }

    /// Starts the machine again, and waits until all managers reach each other.
    pub async fn restore_power(&mut self, index: usize) {
        self.mend_link(index);
        self.nodes[index].engine.start().await;
        self.nodes[index].has_power = true;
        self.all_ready().await;
    }

    /// Waits until each manager knows a leader, and all nodes are ready.
    pub async fn all_ready(&self) {
        let words = ["node", "ls", "--format", "{{.Status}} {{.ManagerStatus}}"];
        for node in &self.nodes {
            wait_within(RECONNECTION, "all managers are ready", || {
                let text = node.docker.attempt(&words).ok()?;
                let is_ready = |line: &str| matches!(line, "Ready Leader" | "Ready Reachable");
                text.lines().all(is_ready).then_some(())
            })
            .await;
        }
    }
}

impl Node {
    fn init(&self) {
        self.docker.run(&["swarm", "init", "--advertise-addr", &self.address.to_string()]);
    }

    fn join(&self, first: &Self) {
        let token = first.docker.run(&["swarm", "join-token", "-q", "manager"]);
        let (own, leader) = (self.address.to_string(), format!("{}:2377", first.address));
        self.docker.run(&["swarm", "join", "--token", &token, "--advertise-addr", &own, &leader]);
    }

    /// The id of the node in the Swarm.
    pub fn id(&self) -> String {
        self.docker.run(&["info", "--format", "{{.Swarm.NodeID}}"])
    }
}

impl Switch {
    fn new() -> Self {
        let number = random();
        let switch = Self {
            namespace: format!("driftless-e2e-sw{:04x}", number & 0xffff),
            subnet: (number >> 16) as u8,
        };
        ip(&["netns", "add", &switch.namespace]);
        let address = format!("{}/24", switch.address(254));
        switch.ip(&["link", "set", "lo", "up"]);
        switch.ip(&["link", "add", "switch", "type", "bridge"]);
        switch.ip(&["addr", "add", &address, "dev", "switch"]);
        switch.ip(&["link", "set", "switch", "up"]);
        switch
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 219, self.subnet, last)
    }

    /// Connects a machine. Returns its address and its port.
    fn plug(&self, namespace: &str, index: u8) -> (Ipv4Addr, String) {
        let (address, port) = (self.address(index), format!("port{index}"));
        self.ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", namespace]);
        self.ip(&["link", "set", &port, "master", "switch"]);
        self.set(&port, "up");
        ip(&["-n", namespace, "addr", "add", &format!("{address}/24"), "dev", "eth0"]);
        ip(&["-n", namespace, "link", "set", "eth0", "up"]);
        (address, port)
    }

    fn set(&self, port: &str, state: &str) {
        self.ip(&["link", "set", port, state]);
    }

    fn ip(&self, words: &[&str]) {
        ip(&[&["-n", &self.namespace], words].concat());
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip can be started");
    assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

impl Drop for Managers {
    fn drop(&mut self) {
        // Without a power cut, each engine would first wait for the others.
        for node in &mut self.nodes {
            node.engine.cut_power();
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
