//! The running program: its environment, its health check, its service manager, and the reload of its configuration.

use std::{
    fs,
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

/// Time limit for a state.
const LIMIT: Duration = Duration::from_mins(1);

/// A running agent without an engine, with folders of its own.
struct Program {
    folder: tempfile::TempDir,
    runtime: tempfile::TempDir,
    notified: UnixDatagram,
    port: u16,
    child: Option<Child>,
}

impl Program {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Mounted secrets need a memory file system.
        let runtime = tempfile::tempdir_in("/dev/shm").unwrap();
        let notified = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        notified.set_read_timeout(Some(LIMIT)).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { folder, runtime, notified, port, child: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration with these repositories, as one YAML text.
    fn configure(&self, repositories: &str) {
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

    fn start(&mut self, arguments: &[&str], environment: &[(&str, &str)]) {
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
    fn notified(&self) -> String {
        let mut buffer = [0; 1024];
        let length =
            self.notified.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {}", self.log()));
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().and_then(Child::id).expect("it runs");
        kill(Pid::from_raw(id.try_into().unwrap()), signal).unwrap();
    }

    async fn client(&self, arguments: &[&str]) -> (i32, String) {
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
    async fn event(&self, words: &str) -> String {
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
    async fn repository_says(&self, name: &str, words: &str) {
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
    async fn repositories(&self) -> Vec<String> {
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

    async fn end(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.child.take().unwrap().wait().await.unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }
}

#[tokio::test]
async fn broken_configuration_is_refused_and_the_old_one_stays() {
    let mut program = Program::new();
    program.configure("- {url: /srv/none/infra.git}\n");
    let config = program.path("driftless.yaml");
    let config = config.to_str().unwrap();
    program.start(&["run", "--config", config], &[]);
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repositories");
    assert_eq!(program.repositories().await, ["infra"]);
    let process = program.child.as_ref().unwrap().id();

    program.configure("- {url: /srv/none/infra.git}\n- {url: /srv/none/shop.git, pol: 60s}\n");
    program.signal(Signal::SIGHUP);
    let event = program.event("ConfigurationRefused").await;
    let place = format!("{config}:7:29: error: repositories[1].pol: unknown key `pol`");
    assert!(event.contains(&place), "{event}");
    let status = program.notified();
    assert!(status.starts_with("STATUS=the new configuration is refused, the old one stays: "), "{status}");
    assert_eq!(program.repositories().await, ["infra"]);

    // Mistakes that are in no line of the file.
    program.configure("- {url: /srv/none/infra.git}\nsops: {keyFiles: [/no/such/key]}\n");
    program.signal(Signal::SIGHUP);
    program.event("/no/such/key").await;
    program.notified();
    let text = fs::read_to_string(config).unwrap().replace("/state\n", "/other-state\n");
    fs::write(config, text).unwrap();
    program.signal(Signal::SIGHUP);
    program.event("`stateDir` cannot change while the agent runs").await;
    program.notified();
    program.configure("- {url: /srv/none/infra.git}\nstateKeyFile: /etc/driftless/other.key\n");
    program.signal(Signal::SIGHUP);
    program.event("`stateKeyFile` cannot change while the agent runs").await;
    program.notified();
    assert_eq!(program.repositories().await, ["infra"]);

    program.configure("- {url: /srv/none/infra.git}\n- {url: /srv/none/shop.git}\n");
    program.signal(Signal::SIGHUP);
    let reloading = program.notified();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 2 repositories");
    assert_eq!(program.repositories().await, ["infra", "shop"]);
    program.event("ConfigurationReloaded").await;
    assert_eq!(program.child.as_ref().unwrap().id(), process, "the process is the same");
    program.end().await;
}

#[tokio::test]
async fn repository_that_cannot_be_set_up_leaves_the_others_running() {
    let mut program = Program::new();
    let authority = program.path("ca.pem");
    let broken =
        format!("- {{url: 'https://127.0.0.1:1/shop.git', caFile: '{}', poll: 1s}}\n", authority.display());
    program.configure(&format!("- {{url: /srv/none/infra.git}}\n{broken}"));
    let config = program.path("driftless.yaml").display().to_string();
    program.start(&["run", "--config", &config], &[]);
    assert_eq!(program.repositories().await, ["infra", "shop"]);
    program.repository_says("infra", "/srv/none/infra.git").await;
    program.repository_says("shop", "ca.pem").await;
    // The file that was missing is there now: the server is asked, without a restart.
    fs::copy("crates/git/tests/it/tls/ca.pem", &authority).unwrap();
    program.repository_says("shop", "refused").await;
    program.end().await;

    // Without any repository that can be followed, the agent says so and ends.
    let program = Program::new();
    program.configure(&broken);
    let config = program.path("driftless.yaml").display().to_string();
    let run =
        Command::new(env!("CARGO_BIN_EXE_driftless")).args(["run", "--config", &config]).env_clear().output();
    let refused = run.await.unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && text.contains("ca.pem"), "{text}");
}

#[tokio::test]
async fn changed_configuration_file_is_reloaded_without_a_signal() {
    let mut program = Program::new();
    program.configure("- {url: /srv/none/infra.git}\n");
    let config = program.path("driftless.yaml");
    program.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert_eq!(program.repositories().await, ["infra"]);
    // A comment is no change of settings.
    program.configure("- {url: /srv/none/infra.git} # the only one\n");
    let end = Instant::now() + LIMIT;
    while !program.log().contains("its settings have not") {
        assert!(Instant::now() < end, "{}", program.log());
        sleep(Duration::from_millis(50)).await;
    }
    program.configure("- {url: /srv/none/shop.git}\n");
    let end = Instant::now() + LIMIT;
    while program.repositories().await != ["shop"] {
        assert!(Instant::now() < end, "{}", program.log());
    }
    program.end().await;
}

#[tokio::test]
async fn agent_runs_with_settings_from_the_environment_alone() {
    let mut program = Program::new();
    let state = program.path("state").display().to_string();
    let runtime = program.runtime.path().display().to_string();
    let listen = format!("127.0.0.1:{}", program.port);
    let engine = format!("unix://{}", program.path("no-engine.sock").display());
    let environment = [
        ("DRIFTLESS_URL", "/srv/none/infra.git"),
        ("DRIFTLESS_NAME", "site"),
        ("DRIFTLESS_BRANCH", ""),
        ("DRIFTLESS_TAG", "v1"),
        ("DRIFTLESS_PRUNE", "yes"),
        ("DRIFTLESS_STATE_DIR", &state),
        ("DRIFTLESS_RUNTIME_DIR", &runtime),
        ("DRIFTLESS_LISTEN", &listen),
        ("DRIFTLESS_DOCKER_HOST", &engine),
        ("DRIFTLESS_BRACNH", "main"),
    ];
    program.start(&["run"], &environment);
    assert_eq!(program.repositories().await, ["site"]);
    assert!(program.log().contains("tag v1"), "{}", program.log());
    assert!(program.log().contains("DRIFTLESS_BRACNH"), "{}", program.log());

    program.configure("- {url: /srv/none/infra.git}\n");
    let config = program.path("driftless.yaml").display().to_string();
    let both = [("DRIFTLESS_CONFIG", config.as_str()), ("DRIFTLESS_PATH", "sites")];
    let refused = Command::new(env!("CARGO_BIN_EXE_driftless")).arg("run").env_clear().envs(both).output();
    let refused = refused.await.unwrap();
    assert_eq!(refused.status.code(), Some(2), "a file and settings of one repository exclude each other");

    let (code, text) = program.client(&["healthcheck"]).await;
    assert_eq!((code, text.as_str()), (0, ""));
    let (code, text) = program.client(&["healthcheck", "--ready"]).await;
    assert!(code == 1 && text.contains("is not ready"), "{code}: {text}");
    // The agent's own environment names the address too.
    let healthy = |environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        command.arg("healthcheck").env_clear().envs(environment.iter().copied());
        async move { command.output().await.unwrap().status.code() }
    };
    assert_eq!(healthy(&environment).await, Some(0));
    let everywhere = format!("0.0.0.0:{}", program.port);
    assert_eq!(healthy(&[("DRIFTLESS_LISTEN", &everywhere)]).await, Some(0));
    assert_eq!(healthy(&[("DRIFTLESS_CONFIG", &config)]).await, Some(0));
    program.end().await;
    assert_eq!(healthy(&environment).await, Some(1));
}

#[test]
fn every_option_of_run_has_an_environment_variable() {
    let page = driftless::cli::reference();
    let (_, run) = page.split_once("\n## driftless run\n").unwrap();
    let (run, _) = run.split_once("\n## ").unwrap();
    let options: Vec<&str> = run
        .lines()
        .filter_map(|line| line.trim_start().split_once("--").filter(|(before, _)| before.len() <= 4))
        .filter_map(|(_, rest)| rest.split([' ', '.']).next())
        .filter(|name| *name != "help")
        .collect();
    assert!(options.len() > 20, "{options:?}");
    let variable = |name: &str| format!("[env: DRIFTLESS_{}]", name.to_uppercase().replace('-', "_"));
    let missing: Vec<&&str> = options.iter().filter(|name| !run.contains(&variable(name))).collect();
    assert_eq!(missing, [&""; 0]);
}
