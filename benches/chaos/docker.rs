//! The campaign's own view of an engine, through its API and past the agent.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use axum::body::Bytes;
use futures_util::{StreamExt, stream::BoxStream};
use serde_json::Value;

/// A client of one engine.
#[derive(Clone)]
pub(crate) struct Docker {
    client: reqwest::Client,
    pub(crate) host: String,
}

impl Docker {
    pub(crate) fn at(socket: &Path) -> Self {
        let client = reqwest::Client::builder()
            .unix_socket(socket)
            .pool_max_idle_per_host(0)
            .timeout(Duration::from_secs(60))
            .build()
            .expect("a client of a unix socket can be made");
        Self { client, host: format!("unix://{}", socket.display()) }
    }

    pub(crate) async fn answers(&self) -> bool {
        let request = self.client.get("http://docker/_ping").timeout(Duration::from_secs(2));
        request.send().await.is_ok_and(|answer| answer.status().is_success())
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let answer = self.client.get(format!("http://docker/v1.41{path}")).send().await;
        let answer = answer.map_err(|error| format!("the engine does not answer: {error}"))?;
        let body = answer.bytes().await.map_err(|error| format!("the engine breaks off: {error}"))?;
        serde_json::from_slice(&body)
            .map_err(|error| format!("the engine's answer to {path} is no JSON: {error}"))
    }

    pub(crate) async fn version(&self) -> String {
        let version = self.get("/version").await.unwrap_or_default();
        let word = |name: &str| version[name].as_str().unwrap_or("unknown").to_owned();
        format!("{}, API {}", word("Version"), word("ApiVersion"))
    }

    /// Every container with the label of an application, inspected, by name.
    pub(crate) async fn containers(&self, app: &str) -> Result<Vec<Container>, String> {
        let list = self.get(&format!("/containers/json?all=1&filters={}", filter(app))).await?;
        let mut found = Vec::new();
        for id in list.as_array().into_iter().flatten().filter_map(|entry| entry["Id"].as_str()) {
            let container = self.get(&format!("/containers/{id}/json")).await?;
            if container["Id"].is_string() {
                found.push(Container(container));
            }
        }
        found.sort_by_key(Container::name);
        Ok(found)
    }

    /// Folders of the volumes of an application, with their names.
    pub(crate) async fn volumes(&self, app: &str) -> Result<Vec<(String, String)>, String> {
        let list = self.get(&format!("/volumes?filters={}", filter(app))).await?;
        let text = |volume: &Value, key: &str| volume[key].as_str().unwrap_or_default().to_owned();
        let volumes = list["Volumes"].as_array().into_iter().flatten();
        Ok(volumes.map(|volume| (text(volume, "Name"), text(volume, "Mountpoint"))).collect())
    }

    pub(crate) async fn remove(&self, id: &str) {
        let _ = self.client.delete(format!("http://docker/v1.41/containers/{id}?force=1")).send().await;
    }

    /// Removes containers, networks and volumes of an application.
    pub(crate) async fn remove_application(&self, app: &str) {
        for container in self.containers(app).await.unwrap_or_default() {
            self.remove(&container.id()).await;
        }
        let networks = self.get(&format!("/networks?filters={}", filter(app))).await.unwrap_or_default();
        for id in networks.as_array().into_iter().flatten().filter_map(|entry| entry["Id"].as_str()) {
            let _ = self.client.delete(format!("http://docker/v1.41/networks/{id}")).send().await;
        }
        for (name, _) in self.volumes(app).await.unwrap_or_default() {
            let _ = self.client.delete(format!("http://docker/v1.41/volumes/{name}")).send().await;
        }
    }

    /// Listens for the next creation of a container, from now on.
    pub(crate) async fn creations(&self) -> Option<Creations> {
        let filters = escaped(r#"{"type":["container"],"event":["create"]}"#);
        let request = self.client.get(format!("http://docker/v1.41/events?filters={filters}"));
        let answer = request.send().await.ok()?;
        Some(Creations(Box::pin(answer.bytes_stream())))
    }

    /// Runs the `docker` client on this engine.
    pub(crate) fn cli(&self, words: &[&str]) -> Result<String, String> {
        let output = Command::new("timeout")
            .args(["120", "docker"])
            .args(words)
            .env("DOCKER_HOST", &self.host)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("docker: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!("docker {}: {}", words.join(" "), text(&output.stderr)))
        }
    }
}

fn filter(app: &str) -> String {
    escaped(&format!("{{\"label\":[\"driftless.application={app}\"]}}"))
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// A container as the engine inspects it.
pub(crate) struct Container(pub(crate) Value);

impl Container {
    pub(crate) fn text(&self, pointer: &str) -> String {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    pub(crate) fn id(&self) -> String {
        self.text("/Id")
    }

    pub(crate) fn name(&self) -> String {
        self.text("/Name").trim_start_matches('/').to_owned()
    }

    pub(crate) fn state(&self) -> String {
        self.text("/State/Status")
    }

    pub(crate) fn started(&self) -> String {
        self.text("/State/StartedAt")
    }

    pub(crate) fn exit_code(&self) -> i64 {
        self.0.pointer("/State/ExitCode").and_then(Value::as_i64).unwrap_or(-1)
    }

    pub(crate) fn label(&self, name: &str) -> String {
        self.0["Config"]["Labels"][name].as_str().unwrap_or_default().to_owned()
    }

    /// The value of a variable of its environment.
    pub(crate) fn variable(&self, name: &str) -> String {
        let variables = self.0["Config"]["Env"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let prefix = format!("{name}=");
        variables.filter_map(|line| line.strip_prefix(&prefix)).next().unwrap_or_default().to_owned()
    }

    /// The folder or file of the machine that is mounted at a path.
    pub(crate) fn source(&self, target: &str) -> Option<String> {
        let mounts = self.0["Mounts"].as_array()?;
        let mount = mounts.iter().find(|mount| mount["Destination"] == target)?;
        mount["Source"].as_str().map(str::to_owned)
    }
}

/// A stream of the engine's events about created containers.
pub(crate) struct Creations(BoxStream<'static, reqwest::Result<Bytes>>);

impl Creations {
    /// Waits for the next one, or until the time is over. Returns whether there was one.
    pub(crate) async fn next(&mut self, limit: Duration) -> bool {
        let next = tokio::time::timeout(limit, self.0.next()).await;
        matches!(next, Ok(Some(Ok(bytes))) if !bytes.is_empty())
    }
}
