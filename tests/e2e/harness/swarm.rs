//! A Swarm of one node on an engine of its own, with a registry in the same network namespace.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;

use super::{Docker, Engine, images, registry, wait_until};

/// The address of the registry, in the network namespace of the engine. Engines speak plain HTTP to it.
const REGISTRY: &str = "127.0.0.1:5000";

/// An engine that is the only manager of a Swarm.
pub struct Swarm {
    pub engine: Engine,
    pub docker: Docker,
    /// The first part of the names of images that its registry has.
    pub address: String,
    registry: Child,
    /// The configuration of a client that may push.
    client: Option<PathBuf>,
}

impl Swarm {
    /// Needs root and network namespaces.
    pub async fn start(directory: &Path) -> Self {
        let engine = Engine::new(directory).expect("root and network namespaces");
        Self::begin(directory, engine, REGISTRY.to_owned(), "").await
    }

    /// One whose registry the machine of the tests reaches as well, and which asks for a user and a password.
    pub async fn with_closed_registry(directory: &Path) -> Self {
        let mut engine = Engine::new(directory).expect("root and network namespaces");
        let address = format!("{}:5000", engine.link_to_host());
        engine.configuration = json!({ "insecure-registries": [address] });
        let mut swarm = Self::begin(directory, engine, address, &registry::closed_to_others(directory)).await;
        swarm.client = Some(registry::client(directory, &[&swarm.address]));
        swarm
    }

    async fn begin(directory: &Path, mut engine: Engine, address: String, auth: &str) -> Self {
        engine.start().await;
        let docker = Docker { host: Some(engine.host()) };
        docker.run(&["swarm", "init", "--advertise-addr", "127.0.0.1"]);
        let registry = start_registry(directory, engine.namespace(), &address, auth);
        Self { engine, docker, address, registry, client: None }
    }

    /// Publishes the test server in the registry of the Swarm.
    pub async fn publish(&self, name: &str, version: &str) -> String {
        publish(&self.docker, &self.address, name, version).await
    }

    /// Publishes a version of the test server under a tag that may have another one, and leaves no copy on the node.
    pub async fn publish_as(&self, name: &str, tag: &str, version: &str) -> String {
        let image = format!("{}/{name}:{tag}", self.address);
        images::server_as(&self.docker, &image, version);
        let client = self.client.as_ref().map(|it| it.display().to_string());
        let login: Vec<&str> = client.iter().flat_map(|it| ["--config", it.as_str()]).collect();
        let push = [&login[..], &["push", "-q", &image]].concat();
        wait_until("the image is pushed", || self.docker.attempt(&push).ok()).await;
        // By force, because a task may have been made from the same image.
        self.docker.run(&["rmi", "-f", &image]);
        image
    }

    /// The version of a service: each write increases it.
    pub fn version(&self, service: &str) -> u64 {
        let text = self.docker.run(&["service", "inspect", "-f", "{{.Version.Index}}", service]);
        text.trim().parse().unwrap()
    }
}

/// Publishes the test server in a registry.
pub(super) async fn publish(docker: &Docker, registry: &str, name: &str, version: &str) -> String {
    let image = format!("{registry}/{name}:{version}");
    images::server_as(docker, &image, version);
    wait_until("the image is pushed", || docker.attempt(&["push", "-q", &image]).ok()).await;
    image
}

/// Starts a registry in a network namespace.
pub(super) fn start_registry(directory: &Path, namespace: &str, address: &str, auth: &str) -> Child {
    let data = directory.join("swarm-registry");
    fs::create_dir_all(&data).unwrap();
    let configuration = directory.join("swarm-registry.yaml");
    let text = format!(
        "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n{auth}",
        data.display()
    );
    fs::write(&configuration, text).unwrap();
    Command::new("nsenter")
        .arg(format!("--net=/run/netns/{namespace}"))
        .args(["docker-registry", "serve"])
        .arg(&configuration)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .spawn()
        .expect("docker-registry is installed; see scripts/test-tools.sh")
}

impl Drop for Swarm {
    fn drop(&mut self) {
        // Its services first, so that their containers end with them.
        let services = self.docker.attempt(&["service", "ls", "-q"]).unwrap_or_default();
        for service in services.lines() {
            let _ = self.docker.attempt(&["service", "rm", service]);
        }
        let _ = self.docker.attempt(&["swarm", "leave", "--force"]);
        let _ = self.registry.kill();
        let _ = self.registry.wait();
    }
}
