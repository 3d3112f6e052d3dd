//! A real image registry, for what has to be pulled.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{Docker, free_port, images, wait_until};

/// A real registry on a loopback port, which the engine speaks plain HTTP to.
pub struct Registry {
    pub address: String,
    /// The configuration of a client that may push.
    client: Option<PathBuf>,
    child: Child,
}

/// The user of a closed registry.
pub const USER: &str = "robot";
pub const PASSWORD: &str = "open-sesame-42";
/// Of that password.
const BCRYPT: &str = "$2b$05$I1cSExSAKUrOAo/UXxsCIObjJKo0y3gsJ1zG2RbzVG7BnFm.0H4q.";

/// The file that `docker login` writes for these registries.
pub fn logins(addresses: &[&str]) -> String {
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let all = addresses.iter().map(|it| ((*it).to_owned(), json!({ "auth": auth })));
    json!({ "auths": all.collect::<serde_json::Map<_, _>>() }).to_string()
}

/// The part of a registry's configuration by which it asks for a user and a password.
pub(super) fn closed_to_others(directory: &Path) -> String {
    let users = directory.join("htpasswd");
    fs::write(&users, format!("{USER}:{BCRYPT}\n")).unwrap();
    format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", users.display())
}

/// The configuration of a client that may push to these registries.
pub(super) fn client(directory: &Path, addresses: &[&str]) -> PathBuf {
    let client = directory.join("pusher");
    fs::create_dir_all(&client).unwrap();
    fs::write(client.join("config.json"), logins(addresses)).unwrap();
    client
}

impl Registry {
    pub async fn start(directory: &Path) -> Self {
        Self::begin(directory, "").await
    }

    /// One that asks for a user and a password.
    pub async fn closed(directory: &Path) -> Self {
        let mut registry = Self::begin(directory, &closed_to_others(directory)).await;
        // The same registry goes by two names, see below.
        let other = registry.address.replace("127.0.0.1", "localhost");
        registry.client = Some(client(directory, &[&registry.address, &other]));
        registry
    }

    async fn begin(directory: &Path, auth: &str) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let data = directory.join("registry");
        fs::create_dir_all(&data).unwrap();
        let configuration = directory.join("registry.yaml");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: {address}}}\n{auth}",
            data.display()
        );
        fs::write(&configuration, text).unwrap();
        let log = fs::File::create(directory.join("registry.log")).unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&configuration)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("docker-registry is installed; see scripts/test-tools.sh");
        wait_until("the registry listens", || std::net::TcpStream::connect(&address).ok()).await;
        Self { address, client: None, child }
    }

    /// Publishes the test server under a name of this registry, and leaves no copy on the host.
    pub fn publish(&self, docker: &Docker, name: &str, version: &str) -> String {
        self.publish_as(docker, name, version, version)
    }

    /// The same under a tag that may already have another version.
    pub fn publish_as(&self, docker: &Docker, name: &str, tag: &str, version: &str) -> String {
        // Pushed under another name of the same registry: an agent that waits for the image takes it as soon as
        // it is on this host, before it could be untagged.
        let aside = format!("{}/{name}:{tag}", self.address.replace("127.0.0.1", "localhost"));
        images::server_as(docker, &aside, version);
        let client = self.client.as_ref().map(|it| it.display().to_string());
        let login: Vec<&str> = client.iter().flat_map(|it| ["--config", it.as_str()]).collect();
        docker.run(&[&login[..], &["push", "-q", &aside]].concat());
        docker.run(&["rmi", &aside]);
        format!("{}/{name}:{tag}", self.address)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
