//! The engine, asked with the `docker` client as a user would. It does not go through the code under test.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

/// One engine.
#[derive(Clone, Debug, Default)]
pub struct Docker {
    /// `None`: the machine's own.
    pub host: Option<String>,
}

impl Docker {
    /// Runs `docker WORDS…` and returns what it printed; fails the test if it fails.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        self.attempt(words).unwrap_or_else(|error| panic!("docker {}: {error}", words.join(" ")))
    }

    /// Runs `docker WORDS…`: what it printed, or what it complained of.
    pub fn attempt(&self, words: &[&str]) -> Result<String, String> {
        let Output { status, stdout, stderr } =
            self.command(words).stdin(Stdio::null()).output().expect("the docker client is installed");
        if status.success() {
            Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&stderr).trim().to_owned())
        }
    }

    pub fn command(&self, words: &[&str]) -> Command {
        // An engine that accepts and never answers must not hold the whole run up.
        let mut command = Command::new("timeout");
        command.args(["60", "docker"]).args(words);
        if let Some(host) = &self.host {
            command.env("DOCKER_HOST", host);
        }
        command
    }

    /// The answer of the engine to a `GET`, or its complaint. Tests look many times a second, and a start of the
    /// client takes as much of the processor as ten such requests.
    fn get(&self, path: &str) -> Result<Value, String> {
        let host = self.host.as_deref().unwrap_or("unix:///var/run/docker.sock");
        let socket = host.strip_prefix("unix://").expect("the engine listens on a socket");
        let mut answer = Vec::new();
        let mut fetch = || {
            let mut stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n").as_bytes())?;
            stream.read_to_end(&mut answer)
        };
        fetch().map_err(|error| format!("{host}: {error}"))?;
        let answer = String::from_utf8_lossy(&answer);
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.split(' ').nth(1) == Some("200") => {
                serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))
            }
            _ => Err(answer.into_owned()),
        }
    }

    /// A container by name or id.
    pub fn container(&self, name: &str) -> Option<Container> {
        self.get(&format!("/containers/{name}/json")).ok().map(Container)
    }

    /// Every container that carries our label for the application, by name.
    #[track_caller]
    pub fn containers(&self, app: &str) -> Vec<Container> {
        let filters = json!({"label": [format!("driftless.application={app}")]}).to_string();
        let listed = self
            .get(&format!("/containers/json?all=1&filters={filters}"))
            .unwrap_or_else(|error| panic!("the containers of {app}: {error}"));
        let ids = listed.as_array().expect("a list").iter().filter_map(|it| it["Id"].as_str());
        let mut found: Vec<Container> = ids.filter_map(|id| self.container(id)).collect();
        found.sort_by_key(Container::name);
        found
    }

    /// The running ones of these containers.
    #[track_caller]
    pub fn running(&self, app: &str) -> Vec<Container> {
        self.containers(app).into_iter().filter(|it| it.state() == "running").collect()
    }

    /// Removes all that belongs to an application, volumes and built images too. Never fails: it runs while tests
    /// fail.
    pub fn remove_application(&self, app: &str) {
        let label = format!("label=driftless.application={app}");
        for (list, remove) in [
            (["ps", "-aq"].as_slice(), ["rm", "-f", "-v"].as_slice()),
            (&["network", "ls", "-q"], &["network", "rm"]),
            (&["volume", "ls", "-q"], &["volume", "rm"]),
        ] {
            let found = self.attempt(&[list, &["--filter", &label]].concat()).unwrap_or_default();
            let ids: Vec<&str> = found.lines().collect();
            if !ids.is_empty() {
                let _ = self.attempt(&[remove, ids.as_slice()].concat());
            }
        }
        let built = format!("reference={app}-*");
        let list = ["images", "--filter", &built, "--format", "{{.Repository}}:{{.Tag}}"];
        for name in self.attempt(&list).unwrap_or_default().lines() {
            let _ = self.attempt(&["rmi", "-f", name]);
        }
    }
}

/// The output of `docker inspect` for a container.
#[derive(Clone, Debug)]
pub struct Container(pub Value);

impl Container {
    pub fn id(&self) -> String {
        self.text("/Id")
    }

    pub fn name(&self) -> String {
        self.text("/Name").trim_start_matches('/').to_owned()
    }

    /// `running`, `exited`, `paused`, `created`, …
    pub fn state(&self) -> String {
        self.text("/State/Status")
    }

    pub fn started(&self) -> String {
        self.text("/State/StartedAt")
    }

    /// As the container was created with it.
    pub fn image(&self) -> String {
        self.text("/Config/Image")
    }

    pub fn label(&self, name: &str) -> String {
        self.0["Config"]["Labels"][name].as_str().unwrap_or_default().to_owned()
    }

    /// The value of a variable of its environment.
    pub fn variable(&self, name: &str) -> Option<String> {
        let variables = self.0["Config"]["Env"].as_array()?;
        let prefix = format!("{name}=");
        variables.iter().filter_map(Value::as_str).find_map(|it| it.strip_prefix(&prefix)).map(str::to_owned)
    }

    pub fn networks(&self) -> Vec<String> {
        let networks = self.0["NetworkSettings"]["Networks"].as_object();
        networks.map(|it| it.keys().cloned().collect()).unwrap_or_default()
    }

    /// Its address on its first network, while it runs.
    pub fn address(&self) -> Option<String> {
        let networks = self.0["NetworkSettings"]["Networks"].as_object()?;
        let mut addresses = networks.values().filter_map(|it| it["IPAddress"].as_str());
        addresses.find(|it| !it.is_empty()).map(str::to_owned)
    }

    pub fn number(&self, pointer: &str) -> i64 {
        self.0.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    pub fn text(&self, pointer: &str) -> String {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}
