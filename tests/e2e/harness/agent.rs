//! The agent, as users run it: the real program, in a process of its own that can be killed at any moment.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use driftless_model::{Application, Event, HealthStatus, Revision, SyncStatus, WebhookStatus};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Pause between two looks while a state is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Everything that a test may want otherwise than usual.
#[derive(Clone, Debug)]
pub struct Settings {
    pub self_heal: bool,
    pub prune: bool,
    /// Tests say `sync` rather than wait for a poll, unless they are about polling.
    pub poll: &'static str,
    pub docker_host: Option<String>,
    /// The `adopt` setting: whether containers of Docker Compose are taken over.
    pub adopt: &'static str,
    /// `None`: the site's HTTP server.
    pub url: Option<String>,
    /// The repository's `auth` in the configuration.
    pub auth: Option<Value>,
    /// The repository's `webhook`; the secret is put into the agent's folder.
    pub webhook: Option<(&'static str, String)>,
    /// Further keys of the repository in the configuration.
    pub more: Option<Value>,
    /// The repository's `status`.
    pub status: Option<Value>,
    /// Further keys of the configuration itself.
    pub whole: Option<Value>,
    /// The filter of the log.
    pub log: Option<&'static str>,
    /// Further variables of its environment.
    pub environment: Vec<(&'static str, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            self_heal: true,
            prune: false,
            poll: "60s",
            docker_host: None,
            adopt: "ask",
            url: None,
            auth: None,
            webhook: None,
            more: None,
            status: None,
            whole: None,
            log: None,
            environment: Vec::new(),
        }
    }
}

/// One agent. Killed when it is dropped.
pub struct Agent {
    pub app: String,
    pub address: String,
    directory: PathBuf,
    pub runtime: PathBuf,
    configuration: PathBuf,
    child: Option<Child>,
    client: reqwest::Client,
    docker_host: Option<String>,
    log: Option<&'static str>,
    environment: Vec<(&'static str, String)>,
}

impl Agent {
    /// Starts one that follows `url` and asks after the application `app` by default. It keeps its state and its
    /// log under `directory`.
    pub async fn start(directory: &Path, app: &str, url: &str, settings: &Settings) -> Self {
        let mut agent = Self::new(directory, app, url, settings);
        agent.launch();
        agent.ready().await;
        agent
    }

    /// One that is not running yet.
    pub fn new(directory: &Path, app: &str, url: &str, settings: &Settings) -> Self {
        // On a memory file system, as secrets want it.
        let memory = Path::new("/dev/shm");
        let runtime = if memory.is_dir() { memory.join(app) } else { directory.join("run") };
        let agent = Self {
            app: app.to_owned(),
            address: format!("127.0.0.1:{}", super::free_port()),
            directory: directory.to_owned(),
            runtime,
            configuration: directory.join("driftless.yaml"),
            child: None,
            // A connection of its own for each request, as the CLI's: one that was kept may be closed by the agent
            // in the very moment in which it is used again.
            client: reqwest::Client::builder()
                .timeout(Duration::from_secs(30))
                .pool_max_idle_per_host(0)
                .no_proxy()
                .build()
                .unwrap(),
            docker_host: settings.docker_host.clone(),
            environment: settings.environment.clone(),
            log: settings.log,
        };
        fs::write(&agent.configuration, agent.configuration_text(url, settings)).unwrap();
        agent
    }

    fn configuration_text(&self, url: &str, settings: &Settings) -> String {
        let mut text = json!({
            "stateDir": self.state_dir(),
            "runtimeDir": self.runtime,
            "listen": self.address,
            "repositories": [{
                "name": "infra",
                "url": url,
                "branch": "main",
                "path": "sites",
                "poll": settings.poll,
                "selfHeal": settings.self_heal,
                "prune": settings.prune,
                "adopt": settings.adopt,
            }],
        });
        if let Some(auth) = &settings.auth {
            text["repositories"][0]["auth"] = auth.clone();
        }
        if let Some(status) = &settings.status {
            text["repositories"][0]["status"] = status.clone();
        }
        if let Some((provider, secret)) = &settings.webhook {
            let file = self.directory.join("hook-secret");
            fs::write(&file, secret).unwrap();
            text["repositories"][0]["webhook"] = json!({ "provider": provider, "secretFile": file });
        }
        for (key, value) in settings.more.iter().filter_map(Value::as_object).flatten() {
            text["repositories"][0][key] = value.clone();
        }
        for (key, value) in settings.whole.iter().filter_map(Value::as_object).flatten() {
            text[key] = value.clone();
        }
        if let Some(host) = &settings.docker_host {
            text["docker"] = json!(host);
        }
        // JSON is YAML.
        serde_json::to_string_pretty(&text).unwrap()
    }

    pub fn state_dir(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// The files of the database, without its backup.
    pub fn database(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.state_dir()).unwrap().map(|it| it.unwrap().path());
        let is_database = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name == "driftless.db" || name == "driftless.db-wal" || name == "driftless.db-shm"
        };
        let found: Vec<PathBuf> = files.filter(|it| it.is_file()).filter(is_database).collect();
        assert!(!found.is_empty(), "there is a database in {}", self.state_dir().display());
        found
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("agent.log")
    }

    /// The program with the agent's own configuration, for `run` or anything else.
    pub fn command(&self, words: &[&str]) -> Command {
        // An agent that does not end must not block the whole run.
        let mut command = Command::new("timeout");
        command.args(["180", env!("CARGO_BIN_EXE_driftless")]).args(words);
        self.surround(command)
    }

    /// Standard output, standard error and exit code of a client command.
    pub fn asks(&self, line: &str) -> (i32, String, String) {
        let words = shell_words::split(line).unwrap();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.command(&words);
        command.env("DRIFTLESS_SERVER", format!("http://{}", self.address)).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// Standard output of a client command, which must succeed.
    #[track_caller]
    pub fn said(&self, line: &str) -> String {
        let (code, out, error) = self.asks(line);
        assert_eq!(code, 0, "driftless {line}: {out}{error}");
        out
    }

    fn surround(&self, mut command: Command) -> Command {
        // As what `deploy/` has starts it.
        command.env("MALLOC_ARENA_MAX", "1");
        command.env_remove("DOCKER_HOST").env("NO_COLOR", "1");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(host) = &self.docker_host {
            command.env("DOCKER_HOST", host);
        }
        if let Some(filter) = self.log {
            command.env("RUST_LOG", filter);
        }
        command
    }

    /// `driftless run` on this agent's state, to be waited for by the caller.
    pub fn run_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        command.args(["run", "--config"]).arg(&self.configuration).stdin(Stdio::null());
        self.surround(command)
    }

    /// Starts the process and waits for nothing.
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "the agent runs already");
        let log = OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        let mut command = self.run_command();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().expect("the agent's program can be started"));
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&mut self) {
        let began = Instant::now();
        loop {
            if let Some(child) = &mut self.child
                && let Ok(Some(status)) = child.try_wait()
            {
                panic!("the agent ended with {status}");
            }
            if self.get("/readyz").await.is_some_and(|(status, _)| status == 200) {
                return;
            }
            assert!(began.elapsed() < super::PATIENCE, "the agent does not become ready");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until it says that it cannot do its work.
    pub async fn until_not_ready(&self) {
        let began = Instant::now();
        while self.get("/readyz").await.is_none_or(|(status, _)| status == 200) {
            assert!(began.elapsed() < super::PATIENCE, "the agent goes on to say that it is ready");
            sleep(LOOK_EVERY).await;
        }
    }

    /// SIGKILL, at this very moment.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub async fn restart(&mut self) {
        self.kill9();
        self.launch();
        self.ready().await;
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.as_ref().expect("the agent runs").id()
    }

    /// SIGTERM, as an init system sends it; waits until the process has ended and returns how.
    pub async fn terminate(&mut self) -> ExitStatus {
        let id = self.process().to_string();
        assert!(Command::new("kill").arg(&id).status().unwrap().success());
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.as_mut().and_then(|it| it.try_wait().unwrap()) {
                self.child = None;
                return status;
            }
            assert!(began.elapsed() < super::PATIENCE, "the agent does not end when asked to");
            sleep(LOOK_EVERY).await;
        }
    }

    /// The status and body of an answer; `None` when nobody answers.
    pub async fn get(&self, path: &str) -> Option<(u16, Value)> {
        let url = format!("http://{}{path}", self.address);
        read(self.client.get(url)).await
    }

    /// As [`Agent::get`], with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let url = format!("http://{}{path}", self.address);
        let request = self.client.post(url).header("content-type", "application/json");
        read(request.body(body.to_string())).await
    }

    /// The address of the agent's API.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The state of its one webhook.
    pub async fn webhook(&self) -> WebhookStatus {
        self.list("/api/v1/webhooks").await.remove(0)
    }

    /// Asks something of the application, and insists that it is accepted.
    #[track_caller]
    pub fn ask(&self, verb: &str, body: Value) -> impl Future<Output = Value> {
        let path = format!("/api/v1/applications/{}/{verb}", self.app);
        async move {
            self.until("the application is known", |_| true).await;
            let (status, answer) = self.post(&path, &body).await.expect("the agent answers");
            assert!((200..300).contains(&status), "{path} was answered {status}: {answer}");
            answer
        }
    }

    /// Performs an action on the page, as a browser does: the page of the application offers it, a page of its own says what
    /// will happen, and the form on that page is sent.
    pub async fn act_on_page(&self, action: &str, done: &str) {
        let own = format!("/applications/{}", self.app);
        let page = async |path: &str| {
            let (status, page) = self.get(path).await.expect("the agent answers");
            assert_eq!(status, 200, "{path}: {page}");
            page.as_str().expect("a page is no JSON").to_owned()
        };
        let offered = page(&own).await;
        assert!(
            offered.contains(&format!("href=\"{}/{action}\"", self.app)),
            "{action} is not offered: {offered}"
        );
        let asked = page(&format!("{own}/{action}")).await;
        let form = format!("<form class=\"confirm\" method=\"post\" action=\"{action}\">");
        assert!(asked.contains(&form), "{action} cannot be confirmed: {asked}");
        let request = self.client.post(format!("http://{}{own}/{action}", self.address));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        // The answer leads back to the page of the application.
        let sent = read(request.header("origin", format!("http://{}", self.address)).body("")).await;
        let (status, answer) = sent.expect("the agent answers");
        assert!(
            status == 200 && answer.as_str().is_some_and(|page| page.contains(done)),
            "{status}: {answer}"
        );
    }

    /// Fetch and look now. Before the agent's first look there is no application to ask for, and no need; one that it knows from
    /// before is waited for.
    pub async fn sync(&self) {
        let path = format!("/api/v1/applications/{}/sync", self.app);
        let (status, answer) = self.post(&path, &json!({})).await.expect("the agent answers");
        let is_starting = answer.pointer("/error/code").is_some_and(|code| code == "starting");
        assert!(status < 300 || status == 404 || is_starting, "sync was answered {status}: {answer}");
    }

    pub async fn application(&self) -> Option<Application> {
        self.application_named(&self.app).await
    }

    pub async fn application_named(&self, name: &str) -> Option<Application> {
        let (status, body) = self.get(&format!("/api/v1/applications/{name}")).await?;
        (status == 200).then(|| serde_json::from_value(body).expect("an application as the model has it"))
    }

    pub async fn history(&self) -> Vec<Revision> {
        self.list(&format!("/api/v1/applications/{}/revisions", self.app)).await
    }

    /// The events of the application, as the event log has them.
    pub async fn events(&self) -> Vec<Event> {
        let events: Vec<Event> = self.list(&format!("/api/v1/events?app={}", self.app)).await;
        events.into_iter().filter(|it| it.app.as_str() == self.app).collect()
    }

    async fn list<T: serde::de::DeserializeOwned>(&self, path: &str) -> Vec<T> {
        let (status, body) = self.get(path).await.expect("the agent answers");
        assert_eq!(status, 200, "{path}: {body}");
        let items = if body.is_array() { body } else { body["items"].clone() };
        serde_json::from_value(items).expect("a list of what the model has")
    }

    /// Waits until the application is as it should be. Fails with its last status and what was expected.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Application) -> bool) -> Application {
        self.until_named(&self.app, what, is_so).await
    }

    /// Like [`Self::until`], for another application of the agent.
    pub async fn until_named(
        &self,
        app: &str,
        what: &str,
        is_so: impl Fn(&Application) -> bool,
    ) -> Application {
        let began = Instant::now();
        loop {
            let last = self.application_named(app).await;
            match last {
                Some(application) if is_so(&application) => return application,
                Some(_) | None if began.elapsed() < super::PATIENCE => {
                    sleep(super::pause_after(began.elapsed())).await;
                }
                Some(last) => panic!("not within {:?}: {what}\n{last:#?}", super::PATIENCE),
                None => panic!("not within {:?}: {what}; there is no such application", super::PATIENCE),
            }
        }
    }

    /// Waits until this commit runs, in full and well.
    pub async fn settled(&self, commit: &str) -> Application {
        self.until(&format!("commit {commit} runs and is healthy"), |it| is_settled(it, commit)).await
    }

    /// Tells the agent of a push and waits until it is done.
    pub async fn deployed(&self, commit: &str) -> Application {
        self.sync().await;
        self.settled(commit).await
    }

    /// Waits until the event log holds such an event.
    pub async fn event(&self, what: &str, is_it: impl Fn(&Event) -> bool) -> Event {
        let began = Instant::now();
        loop {
            let events = self.events().await;
            if let Some(found) = events.iter().find(|it| is_it(it)) {
                return found.clone();
            }
            if began.elapsed() > super::PATIENCE {
                let all: Vec<String> = events.iter().map(ToString::to_string).collect();
                panic!("no event within {:?}: {what}; there are\n{}", super::PATIENCE, all.join("\n"));
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(80)..).unwrap_or_default();
            eprintln!("the end of the log of {}'s agent:\n{}", self.app, tail.join("\n"));
        }
        let _ = fs::remove_dir_all(&self.runtime);
    }
}

/// Whether an application is at a commit, `Synced` and `Healthy`.
pub fn is_settled(application: &Application, commit: &str) -> bool {
    let status = &application.status;
    status.observed_generation == application.generation
        && status.sync == SyncStatus::Synced
        && status.health == HealthStatus::Healthy
        && status.commit.as_ref().is_some_and(|it| it.id == commit)
}

async fn read(request: reqwest::RequestBuilder) -> Option<(u16, Value)> {
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    let body = response.bytes().await.ok()?;
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    Some((status, serde_json::from_slice(&body).unwrap_or_else(|_| text())))
}
