//! A lane: one agent with a repository, a state directory and applications of its own, and the checks of what must
//! hold for them after every fault. Several lanes share an engine.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    apps::Kind,
    docker::{Container, Docker},
    harness::{Repository, free_port},
};

/// The longest time to heal after a fault has ended. A lane that takes longer has missed.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The ways of a lane to Git and to the engine, where they are not direct.
#[derive(Clone, Default)]
pub(crate) struct Ways {
    /// The repository's URL; by its path otherwise.
    pub(crate) url: Option<String>,
    /// The engine's address for the agent alone.
    pub(crate) engine: Option<String>,
    /// Further keys of the repository in the configuration.
    pub(crate) repository: Option<Value>,
    /// The agent polls every five seconds; otherwise every minute.
    pub(crate) polls_often: bool,
}

/// Effects that the fault of a case may have.
#[derive(Clone, Copy, Default)]
pub(crate) struct Allowed {
    /// The fault stops containers, so drift may be reported.
    pub(crate) drift: bool,
    /// The fault may end a run of a Job before its end, which is then repeated.
    pub(crate) repeated_runs: bool,
}

struct App {
    name: String,
    kind: Kind,
    /// The newest version in Git, and the one that must run.
    written: u32,
    runs: u32,
    /// The commit of the version that must run, and those after it that did not touch the application.
    commits: Vec<String>,
    image: Option<String>,
    /// The revision that it is pinned to.
    pinned_to: u64,
    /// It need not be pinned or suspended: at first, and after a confirmed loss of state.
    is_free: bool,
    /// Id and start of the container that must never change.
    still: Option<(String, String)>,
    /// Lines of `starts` seen so far, by volume.
    starts: BTreeMap<String, Vec<String>>,
}

pub(crate) struct Lane {
    pub(crate) name: String,
    directory: PathBuf,
    pub(crate) repository: Repository,
    pub(crate) docker: Docker,
    apps: Vec<App>,
    agent: Option<Child>,
    address: String,
    client: reqwest::Client,
    secret: String,
    /// The part of the log that was judged already.
    judged: usize,
    /// The length of the log at the last commit.
    since: usize,
    head: String,
}

impl Lane {
    /// Makes the repository, starts the agent and waits until everything runs.
    pub(crate) async fn start(
        directory: &Path,
        name: &str,
        docker: &Docker,
        kinds: &[Kind],
        ways: impl FnOnce(&Repository) -> Ways,
    ) -> Result<Self, String> {
        let directory = directory.join(name);
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let repository = Repository::new(&directory);
        let ways = ways(&repository);
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(0)
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        let app = |kind: &Kind| App {
            name: format!("{name}-{}", kind.word()),
            kind: *kind,
            written: 0,
            runs: 0,
            commits: Vec::new(),
            image: None,
            pinned_to: 1,
            is_free: true,
            still: None,
            starts: BTreeMap::new(),
        };
        let mut lane = Self {
            name: name.to_owned(),
            apps: kinds.iter().map(app).collect(),
            repository,
            docker: docker.clone(),
            agent: None,
            address: format!("127.0.0.1:{}", free_port()),
            client,
            secret: format!("planted-{name}-k3Xq9Zt7"),
            judged: 0,
            since: 0,
            head: String::new(),
            directory,
        };
        lane.configure(&ways);
        lane.commit(kinds);
        lane.launch()?;
        lane.prepare().await?;
        Ok(lane)
    }

    fn configure(&self, ways: &Ways) {
        let bare = self.repository.bare.display().to_string();
        let mut configuration = json!({
            "stateDir": self.state(),
            "runtimeDir": self.directory.join("run"),
            "listen": self.address,
            "docker": ways.engine.clone().unwrap_or_else(|| self.docker.host.clone()),
            "repositories": [{
                "name": "infra",
                "url": ways.url.clone().unwrap_or(bare),
                "branch": "main",
                "path": "sites",
                "poll": if ways.polls_often { "5s" } else { "60s" },
            }],
        });
        for (key, value) in ways.repository.iter().filter_map(Value::as_object).flatten() {
            configuration["repositories"][0][key] = value.clone();
        }
        let text = serde_json::to_string_pretty(&configuration).expect("JSON can be written");
        fs::write(self.directory.join("driftless.yaml"), text).expect("the lane's folder can be written");
    }

    /// Brings the pinned and the suspended application into their state.
    async fn prepare(&mut self) -> Result<(), String> {
        self.settle(Allowed { drift: true, repeated_runs: false }).await?;
        self.pin().await?;
        for index in 0..self.apps.len() {
            if self.apps[index].kind == Kind::Suspended {
                self.ask(&self.apps[index].name, "suspend", &json!({})).await?;
                self.apps[index].is_free = false;
            }
        }
        self.settle(Allowed { drift: true, repeated_runs: false }).await?;
        for app in &mut self.apps {
            if app.kind == Kind::Still {
                let containers = self.docker.containers(&app.name).await?;
                app.still = containers.first().map(|container| (container.id(), container.started()));
            }
        }
        Ok(())
    }

    /// Deploys a further version of the application that is to be pinned, and rolls it back.
    pub(crate) async fn pin(&mut self) -> Result<(), String> {
        let Some(index) = self.apps.iter().position(|app| app.kind == Kind::Pinned) else { return Ok(()) };
        let name = self.apps[index].name.clone();
        let revision = self.revision(&name).await.ok_or("the application has no revision")?;
        let version = self.apps[index].runs;
        self.commit(&[Kind::Pinned]);
        let wanted = self.apps[index].written;
        self.sync().await;
        let began = Instant::now();
        loop {
            let containers = self.docker.containers(&name).await?;
            let runs = |it: &Container| it.variable("V") == wanted.to_string() && it.state() == "running";
            if containers.iter().all(runs) && self.revision(&name).await.is_some_and(|it| it != revision) {
                break;
            }
            if began.elapsed() > LIMIT {
                return Err(format!("{name}: version {wanted} does not run"));
            }
            sleep(LOOK_EVERY).await;
        }
        let body =
            json!({"to": revision.to_string(), "until": "manual", "reason": "the next version is bad"});
        self.ask(&name, "rollback", &body).await?;
        let app = &mut self.apps[index];
        (app.runs, app.pinned_to, app.is_free) = (version, revision, false);
        Ok(())
    }

    async fn revision(&self, app: &str) -> Option<u64> {
        let found = self.get(&format!("/api/v1/applications/{app}")).await?;
        (found["status"]["sync"] == "Synced").then(|| found["status"]["revision"].as_u64())?
    }

    /// The status message of an application.
    pub(crate) async fn message(&self, app: &str) -> String {
        let found = self.get(&format!("/api/v1/applications/{app}")).await.unwrap_or_default();
        found["status"]["message"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("agent.log")
    }

    fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines of the agent's log, for a miss.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(80)..].join("\n")
    }

    /// Writes and pushes a new version of the applications of these kinds.
    pub(crate) fn commit(&mut self, kinds: &[Kind]) {
        let mut files = Vec::new();
        for app in self.apps.iter_mut().filter(|app| kinds.contains(&app.kind)) {
            app.written += 1;
            let path = format!("sites/{}/{}", app.name, app.kind.file());
            files.push((path, app.kind.manifest(app.written, &self.secret, app.image.as_deref())));
        }
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let first = self.head.is_empty();
        self.head = self.repository.commit(&files);
        for app in &mut self.apps {
            if kinds.contains(&app.kind) && (app.kind.follows_git() || first) {
                app.runs = app.written;
                app.commits.clear();
            }
            app.commits.push(self.head.clone());
        }
        self.since = self.log().len();
    }

    /// The image that the service `db` has from the next commit on.
    pub(crate) fn use_image(&mut self, kind: Kind, image: &str) {
        for app in self.apps.iter_mut().filter(|app| app.kind == kind) {
            app.image = Some(image.to_owned());
        }
    }

    /// The names of the applications of a kind.
    pub(crate) fn app(&self, kind: Kind) -> Option<String> {
        self.apps.iter().find(|app| app.kind == kind).map(|app| app.name.clone())
    }

    pub(crate) fn launch(&mut self) -> Result<(), String> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = log.map_err(|error| error.to_string())?;
        let child = Command::new(self.directory.with_file_name("driftless"))
            .args(["run", "--config"])
            .arg(self.directory.join("driftless.yaml"))
            .env_remove("DOCKER_HOST")
            .env("NO_COLOR", "1")
            .env("MALLOC_ARENA_MAX", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log)
            .spawn();
        self.agent = Some(child.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// SIGKILL, at this very moment.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.agent.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The phase of the rollout in which the agent is, by its log since the last commit.
    pub(crate) fn phase(&self) -> String {
        let log = self.log();
        let new = log.get(self.since..).unwrap_or_default();
        let verb = |line: &str, mark: &str| {
            let (_, rest) = line.split_once(mark)?;
            rest.trim_start_matches('"').split_whitespace().next().map(str::to_owned)
        };
        for line in new.lines().rev() {
            if line.contains("step done") || line.contains("step failed") {
                return format!("after a {}", verb(line, "action=").unwrap_or_default());
            }
            if line.contains(" working app=") {
                return format!("in a {}", verb(line, "step=").unwrap_or_default());
            }
            if line.contains("revision synced") {
                return "rollout done".into();
            }
            if line.contains("commit fetched") || line.contains("revision begun") {
                return "commit read, no step yet".into();
            }
            if line.contains(" starting address=") {
                let is_done = new.contains("revision synced");
                return if is_done { "start of the agent, rollout done" } else { "start of the agent" }
                    .into();
            }
        }
        "commit not read yet".into()
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.client.get(format!("http://{}{path}", self.address)).send().await.ok()?;
        serde_json::from_slice(&answer.bytes().await.ok()?).ok()
    }

    pub(crate) async fn readiness(&self) -> u16 {
        let answer = self.client.get(format!("http://{}/readyz", self.address)).send().await;
        answer.map_or(0, |answer| answer.status().as_u16())
    }

    async fn ask(&self, app: &str, verb: &str, body: &Value) -> Result<(), String> {
        self.post(&format!("/api/v1/applications/{app}/{verb}"), body).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<(), String> {
        let request = self.client.post(format!("http://{}{path}", self.address));
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = request.send().await.map_err(|error| format!("{path}: {error}"))?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(format!("{path}: {} {}", answer.status(), answer.text().await.unwrap_or_default()))
    }

    /// Announces the commit. An agent that does not answer reads it at its start anyway.
    pub(crate) async fn sync(&self) {
        if let Some(app) = self.apps.first() {
            let _ = self.ask(&app.name, "sync", &json!({})).await;
        }
    }

    /// Waits until everything is as it must be, then checks what must never have happened. Returns how long it took.
    pub(crate) async fn settle(&mut self, allowed: Allowed) -> Result<Duration, String> {
        let began = Instant::now();
        let took = loop {
            self.check_alive()?;
            match self.differences().await {
                Ok(()) => break began.elapsed(),
                Err(difference) if began.elapsed() > LIMIT => {
                    return Err(format!("not healed after {} s: {difference}", LIMIT.as_secs()));
                }
                Err(_) => sleep(LOOK_EVERY).await,
            }
        };
        self.judge(allowed).await?;
        Ok(took)
    }

    /// As [`Lane::settle`], without what the programs in the containers wrote: a full disk kept them from writing.
    pub(crate) async fn settle_without_data(&mut self, allowed: Allowed) -> Result<(), String> {
        let began = Instant::now();
        while let Err(difference) = self.differences().await {
            self.check_alive()?;
            if began.elapsed() > LIMIT {
                return Err(format!("not healed after {} s: {difference}", LIMIT.as_secs()));
            }
            sleep(LOOK_EVERY).await;
        }
        self.judge_log(allowed)
    }

    pub(crate) fn check_alive(&mut self) -> Result<(), String> {
        match self.agent.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
            Some(status) => Err(format!("the agent ended by itself: {status}")),
            None => Ok(()),
        }
    }

    /// True if every application has a condition of this kind.
    pub(crate) async fn has_condition(&self, kind: &str) -> bool {
        let list = self.get("/api/v1/applications").await.unwrap_or_default();
        let has = |app: &Value| {
            let mut conditions = app["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|it| it["type"] == kind && it["status"] == "True")
        };
        list.as_array().is_some_and(|list| list.len() == self.apps.len() && list.iter().all(has))
    }

    /// Fails if a container runs the version that is newest in Git.
    pub(crate) async fn nothing_newer_runs(&self) -> Result<(), String> {
        for app in &self.apps {
            let newest = app.written.to_string();
            for container in self.docker.containers(&app.name).await? {
                if container.variable("V") == newest {
                    return Err(format!(
                        "{} runs version {newest} although state was lost",
                        container.name()
                    ));
                }
            }
        }
        Ok(())
    }

    /// The pin was lost with the state, and the loss was confirmed: the newest version must run.
    pub(crate) fn forget_pin(&mut self) {
        for app in self.apps.iter_mut().filter(|app| app.kind == Kind::Pinned) {
            app.runs = app.written;
            app.is_free = true;
        }
    }

    /// The first difference between what is and what must be.
    pub(crate) async fn differences(&self) -> Result<(), String> {
        let list = self.get("/api/v1/applications").await.ok_or("the agent does not answer")?;
        let list = list.as_array().ok_or("the agent's answer is no list")?;
        for app in &self.apps {
            let found = list.iter().find(|it| it["name"] == app.name.as_str());
            let found = found.ok_or_else(|| format!("{}: the agent does not know it", app.name))?;
            status_of(app, found).map_err(|why| format!("{}: {why}", app.name))?;
        }
        for app in &self.apps {
            let containers = self.docker.containers(&app.name).await?;
            containers_of(app, &containers).map_err(|why| format!("{}: {why}", app.name))?;
        }
        Ok(())
    }

    /// Checks at any moment: two containers of one instance never run at once.
    pub(crate) async fn no_twins(&self) -> Result<(), String> {
        for app in &self.apps {
            let containers = self.docker.containers(&app.name).await.unwrap_or_default();
            let mut seen = BTreeMap::new();
            for container in containers.iter().filter(|it| it.state() == "running") {
                let place = ["driftless.workload", "driftless.slot", "driftless.container"];
                let place = place.map(|label| container.label(label)).join("/");
                if let Some(other) = seen.insert(place.clone(), container.name()) {
                    return Err(format!("{}: {other} and {} are both {place}", app.name, container.name()));
                }
            }
        }
        Ok(())
    }

    /// Checks for what must never have happened: lost data, something done twice, a secret in a log, false drift.
    async fn judge(&mut self, allowed: Allowed) -> Result<(), String> {
        for app in &mut self.apps {
            for (name, folder) in self.docker.volumes(&app.name).await? {
                let read = |file: &str| fs::read_to_string(Path::new(&folder).join(file)).unwrap_or_default();
                let overlap = read("overlap");
                if !overlap.is_empty() {
                    // Reported once, not in every later case as well.
                    let _ = fs::remove_file(Path::new(&folder).join("overlap"));
                    return Err(format!("two containers on the volume {name}: version {}", overlap.trim()));
                }
                let lines = |text: String| -> Vec<String> { text.lines().map(str::to_owned).collect() };
                let starts = lines(read("starts"));
                let before = app.starts.insert(name.clone(), starts.clone()).unwrap_or_default();
                if !starts.starts_with(&before) {
                    return Err(format!("data of the volume {name} was lost: {before:?} became {starts:?}"));
                }
                runs_of(&lines(read("runs")), app.runs, allowed).map_err(|why| format!("{name}: {why}"))?;
            }
            let url = format!("http://{}/api/v1/applications/{}/revisions", self.address, app.name);
            let revisions = read_patiently(&self.client, &url).await?;
            let mut numbers: Vec<u64> =
                revisions.as_array().into_iter().flatten().filter_map(|it| it["number"].as_u64()).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            if numbers.len() != count {
                return Err(format!("{}: a number of a revision was used twice", app.name));
            }
        }
        self.judge_log(allowed)
    }

    fn judge_log(&mut self, allowed: Allowed) -> Result<(), String> {
        let log = self.log();
        let new = log.get(self.judged..).unwrap_or_default().to_owned();
        self.judged = log.len();
        for line in new.lines() {
            if line.contains(&self.secret) {
                return Err("a planted secret is in the agent's log".into());
            }
            if line.contains("panicked at") {
                return Err(format!("the agent panicked: {line}"));
            }
            if !allowed.drift && line.contains("drift detected") {
                return Err(format!("drift was reported that nobody made: {}", line.trim()));
            }
        }
        Ok(())
    }

    /// Removes everything of this lane from the engine.
    pub(crate) async fn end(&mut self) {
        self.kill();
        for app in &self.apps {
            self.docker.remove_application(&app.name).await;
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads JSON from the agent. A busy machine may need more than one try.
async fn read_patiently(client: &reqwest::Client, url: &str) -> Result<Value, String> {
    let mut last = String::new();
    for _ in 0..5 {
        match client.get(url).send().await {
            Ok(answer) => match answer.bytes().await {
                Ok(body) => return serde_json::from_slice(&body).map_err(|error| format!("{url}: {error}")),
                Err(error) => last = error.to_string(),
            },
            Err(error) => last = error.to_string(),
        }
        sleep(LOOK_EVERY).await;
    }
    Err(format!("{url}: {last}"))
}

fn status_of(app: &App, found: &Value) -> Result<(), String> {
    let status = &found["status"];
    let word = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    let why = format!("{} {} {:?}", word("sync"), word("health"), word("message"));
    if found["generation"] != status["observedGeneration"] {
        return Err(format!("the status is old: {why}"));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    for condition in conditions.filter(|it| it["status"] == "True") {
        let kind = condition["type"].as_str().unwrap_or_default();
        if ["RepeatedDrift", "StateLost", "OwnedByAnotherAgent"].contains(&kind) {
            return Err(format!("the condition {kind}: {}", condition["message"]));
        }
    }
    match app.kind {
        Kind::Pinned if !app.is_free && status["pin"].is_null() => {
            return Err(format!("its pin is gone: {why}"));
        }
        Kind::Suspended if !app.is_free && word("health") != "Suspended" => {
            return Err(format!("it is not suspended: {why}"));
        }
        Kind::Suspended if !app.is_free => return Ok(()),
        _ => {}
    }
    if word("sync") != "Synced" || word("health") != "Healthy" {
        return Err(why);
    }
    if status["drift"].as_array().is_some_and(|drift| !drift.is_empty()) {
        return Err(format!("drift is reported: {}", status["drift"][0]["object"]));
    }
    let commit = status["commit"]["id"].as_str().unwrap_or_default();
    if app.kind.follows_git() && !app.commits.iter().any(|it| it == commit) {
        return Err(format!("it says that it runs {commit}, and it is {}", app.commits[0]));
    }
    if app.kind == Kind::Pinned && !app.is_free && status["pin"]["revision"] != app.pinned_to {
        return Err(format!(
            "it is pinned to revision {}, not to {}",
            status["pin"]["revision"], app.pinned_to
        ));
    }
    Ok(())
}

fn containers_of(app: &App, containers: &[Container]) -> Result<(), String> {
    let version = app.runs.to_string();
    let all = app.kind.expected();
    for role in &all {
        let of_role: Vec<&Container> =
            containers.iter().filter(|it| it.variable("ROLE") == role.role).collect();
        if of_role.len() != role.count {
            let names: Vec<String> =
                of_role.iter().map(|it| format!("{} {}", it.name(), it.state())).collect();
            return Err(format!(
                "{} of {} containers of {}: {}",
                of_role.len(),
                role.count,
                role.role,
                names.join(", ")
            ));
        }
        for container in of_role {
            if container.state() != role.state || (role.state == "exited" && container.exit_code() != 0) {
                return Err(format!(
                    "{} is {} ({})",
                    container.name(),
                    container.state(),
                    container.exit_code()
                ));
            }
            if container.variable("V") != version {
                return Err(format!(
                    "{} runs version {}, not {version}",
                    container.name(),
                    container.variable("V")
                ));
            }
            if let Some(file) = container.source("/settings") {
                let text = fs::read_to_string(&file).unwrap_or_default();
                if text != format!("version {version}") {
                    return Err(format!("{} has {text:?} as its settings", container.name()));
                }
            }
        }
    }
    let count: usize = all.iter().map(|role| role.count).sum();
    if containers.len() != count {
        let names: Vec<String> =
            containers.iter().map(|it| format!("{} {}", it.name(), it.state())).collect();
        return Err(format!("{} containers instead of {count}: {}", containers.len(), names.join(", ")));
    }
    if let Some((id, started)) = &app.still {
        let is_same = containers.iter().any(|it| it.id() == *id && it.started() == *started);
        if !is_same {
            return Err("the container that no commit touched was replaced or started again".into());
        }
    }
    Ok(())
}

/// A run that ended well is not repeated, and the version that runs has ended well once.
fn runs_of(lines: &[String], version: u32, allowed: Allowed) -> Result<(), String> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut ended = Vec::new();
    let mut begun = Vec::new();
    for line in lines {
        match line.split_once(' ') {
            Some(("begin", version)) => {
                if ended.contains(&version) {
                    return Err(format!("version {version} had ended well and was run again"));
                }
                if !allowed.repeated_runs && begun.contains(&version) {
                    return Err(format!("version {version} was run twice"));
                }
                begun.push(version);
            }
            Some(("end", version)) => ended.push(version),
            _ => return Err(format!("the file of runs was damaged: {line:?}")),
        }
    }
    let version = version.to_string();
    if ended.iter().filter(|it| **it == version).count() == 1 {
        return Ok(());
    }
    Err(format!("version {version} ended well {} times", ended.iter().filter(|it| **it == version).count()))
}
