//! The running program with folders of its own, as tests start it.

use std::{
    fs,
    io::Write as _,
    os::unix::net::UnixDatagram,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::ports::free_port;

/// Time limit for a state.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// Ends a test that this machine cannot run, with a line in the output. It fails if `DRIFTLESS_NO_SKIP`, a list, names what the
/// machine needs for it.
#[track_caller]
pub(crate) fn skip(need: &str, why: &str) {
    let promised = std::env::var("DRIFTLESS_NO_SKIP").unwrap_or_default();
    assert!(!promised.split(',').any(|name| name == need), "DRIFTLESS_NO_SKIP names {need}, but {why}");
    // Without the capture of the output, which hides that of a test that passes.
    std::io::stderr().write_all(format!("skipped, {why}\n").as_bytes()).unwrap();
}

/// A running agent without an engine, with folders of its own.
pub(crate) struct Program {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) runtime: tempfile::TempDir,
    notified: UnixDatagram,
    pub(crate) port: u16,
    pub(crate) child: Option<Child>,
}

impl Program {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Mounted secrets need a memory file system.
        let runtime = tempfile::tempdir_in("/dev/shm").unwrap();
        let notified = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        notified.set_read_timeout(Some(LIMIT)).unwrap();
        let port = free_port();
        Self { folder, runtime, notified, port, child: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration with these repositories, as one YAML text.
    pub(crate) fn configure(&self, repositories: &str) {
        let text = format!(
            "stateDir: {}\nruntimeDir: {}\nlisten: 127.0.0.1:{}\ndocker: unix://{}\nrepositories:\n{repositories}",
            self.path("state").display(),
            self.runtime.path().display(),
            self.port,
            self.path("no-engine.sock").display(),
        );
        // As an editor does it.
        fs::write(self.path("next"), text).unwrap();
        fs::rename(self.path("next"), self.path("driftless.yaml")).unwrap();
    }

    pub(crate) fn start(&mut self, arguments: &[&str], environment: &[(&str, &str)]) {
        let log = fs::File::create(self.path("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_driftless"))
            .args(arguments)
            .env_clear()
            .envs(environment.iter().copied())
            .env("NOTIFY_SOCKET", self.path("notify"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// The next message to the service manager.
    pub(crate) fn notified(&self) -> String {
        let mut buffer = [0; 1024];
        let length =
            self.notified.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {}", self.log()));
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().and_then(Child::id).expect("it runs");
        kill(Pid::from_raw(id.try_into().unwrap()), signal).unwrap();
    }

    pub(crate) async fn client(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        let command = command.args(arguments).env_clear();
        let Output { status, stdout, stderr } = command
            .env("DRIFTLESS_SERVER", format!("127.0.0.1:{}", self.port))
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    /// Waits for an event that contains these words.
    pub(crate) async fn event(&self, words: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let (_, events) = self.client(&["events"]).await;
            if let Some(event) = events.lines().find(|line| line.contains(words)) {
                return event.to_owned();
            }
            assert!(Instant::now() < end, "no `{words}` in {events}\n{}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the status of a repository has these words.
    pub(crate) async fn repository_says(&self, name: &str, words: &str) {
        let url = format!("http://127.0.0.1:{}/api/v1/repositories", self.port);
        let end = Instant::now() + LIMIT;
        loop {
            let answer = reqwest::get(&url).await.unwrap().text().await.unwrap();
            let items: Vec<serde_json::Value> = serde_json::from_str(&answer).unwrap();
            let item = items.iter().find(|item| item["name"] == name);
            if item.is_some_and(|item| item.to_string().contains(words)) {
                return;
            }
            assert!(Instant::now() < end, "{name} does not say `{words}`: {answer}\n{}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The names of the repositories that the agent follows.
    pub(crate) async fn repositories(&self) -> Vec<String> {
        let url = format!("http://127.0.0.1:{}/api/v1/repositories", self.port);
        let end = Instant::now() + LIMIT;
        loop {
            if let Ok(answer) = reqwest::get(&url).await {
                let answer: serde_json::Value =
                    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
                let items = answer.as_array().cloned().unwrap_or_default();
                let names: Vec<String> =
                    items.iter().filter_map(|item| item["name"].as_str().map(str::to_owned)).collect();
                // The supervisor publishes them in its first turn.
                if !names.is_empty() {
                    return names;
                }
            }
            assert!(Instant::now() < end, "no answer: {}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.child.take().unwrap().wait().await.unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }
}
