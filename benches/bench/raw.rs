//! The engine's raw API, without an agent: the baseline of the measurements.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::Instant,
};

pub const SOCKET: &str = "/var/run/docker.sock";

/// The time of day.
pub fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Whether a request inspects a container. The agent asks for its own one by the name of the host, if it runs in a container.
pub fn is_inspection(request: &str) -> bool {
    let path = request.split([' ', '?']).nth(1).unwrap_or_default();
    let id = path.strip_suffix("/json").and_then(|path| path.rsplit_once("/containers/"));
    let is_id = |id: &str| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    request.starts_with("GET ") && id.is_some_and(|(_, id)| is_id(id))
}

/// One engine, by its socket.
pub struct Api(pub String);

impl Default for Api {
    fn default() -> Self {
        Self(SOCKET.to_owned())
    }
}

impl Api {
    /// One call on a connection of its own: status and body.
    pub async fn call(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let mut stream = UnixStream::connect(&self.0).await.unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        // HTTP 1.0, which has no chunks.
        let request = format!(
            "{method} /v1.41{path} HTTP/1.0\r\nHost: d\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.get(9..12).and_then(|it| it.parse().ok()).unwrap_or(0);
        (status, text.split_once("\r\n\r\n").map(|it| it.1.to_owned()).unwrap_or_default())
    }

    /// Creates and starts a container, and says how long the two took together.
    pub async fn create_and_start(&self, name: &str, request: &Value) -> Duration {
        let began = Instant::now();
        let (status, body) = self.call("POST", &format!("/containers/create?name={name}"), request).await;
        assert_eq!(status, 201, "{body}");
        let (status, body) = self.call("POST", &format!("/containers/{name}/start"), &Value::Null).await;
        assert_eq!(status, 204, "{body}");
        began.elapsed()
    }

    pub async fn remove(&self, name: &str) {
        let path = format!("/containers/{name}?force=true&v=true");
        let (status, body) = self.call("DELETE", &path, &Value::Null).await;
        assert!(matches!(status, 204 | 404 | 409), "{status}: {body}");
    }

    /// The one list that a pass needs, and nothing else.
    pub async fn list(&self) -> Duration {
        let began = Instant::now();
        let (status, _) = self.call("GET", "/containers/json?all=1", &Value::Null).await;
        assert_eq!(status, 200);
        began.elapsed()
    }

    /// Removes all containers of an application, many at a time.
    pub async fn remove_application(&self, docker: &crate::harness::Docker, app: &str) {
        let filter = format!("label=driftless.application={app}");
        let ids = docker.attempt(&["ps", "-aq", "--no-trunc", "--filter", &filter]).unwrap_or_default();
        stream::iter(ids.lines()).for_each_concurrent(8, |id| self.remove(id)).await;
    }
}

/// The request that creates a container like this one, without its name and labels.
pub fn likeness(inspected: &Value) -> Value {
    let mut request = inspected["Config"].clone();
    request["Labels"] = json!({});
    request["Hostname"] = json!("");
    request["HostConfig"] = inspected["HostConfig"].clone();
    let networks = inspected["NetworkSettings"]["Networks"].as_object().unwrap();
    let endpoints = networks.keys().map(|it| (it.clone(), json!({})));
    request["NetworkingConfig"] = json!({ "EndpointsConfig": endpoints.collect::<serde_json::Map<_, _>>() });
    request
}
