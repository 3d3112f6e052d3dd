//! The whole agent on a simulated Docker and a simulated Git, under paused time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::Future,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use driftless_agent::{
    Against, Answer, Handle, InstanceName, Parts, RequestError, RequestKind, Rollback, Supposed, launch,
};
use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::Verify;
use driftless_docker::{ChangedBy, Docker, EventDelivery, SimulatedEngine, UserAction};
use driftless_files::{Files, MemoryFiles};
use driftless_git::{self as git, Checkout, CommitSource, Error};
use driftless_model::{
    Actor, ActorKind, Adopt, AgentId, AppName, Application, Cause, CommitId, CommitInfo, ConditionStatus,
    ContainerId, DriftAction, FilesystemDrift, HealthStatus, Instance, Observed, OnFailure, Outcome, Policy,
    RepoUrl, Revision, SyncStatus, Timestamp, Until, digest_hex,
};
use driftless_store::{ContentDir, StateDir, Store, Visibility};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::sample::NOON;

/// Git in memory: commits in order, of which one is the tip.
#[derive(Clone, Default)]
pub(crate) struct Git(Arc<Mutex<Repository>>);

#[derive(Default)]
struct Repository {
    commits: Vec<(CommitInfo, Arc<dyn Files>)>,
    is_down: bool,
    rewritten: bool,
    panicking_fetches: u32,
}

impl Git {
    pub(crate) fn push(&self, compose: &str) -> String {
        self.push_files("Ada <a@b.c>", &[("shop/compose.yaml", compose)])
    }

    pub(crate) fn push_files(&self, author: &str, files: &[(&str, &str)]) -> String {
        let content = format!("{files:?}");
        self.push_tree(author, &content, Arc::new(MemoryFiles::new(files.iter().copied())))
    }

    /// `content` makes the id of the commit.
    pub(crate) fn push_tree(&self, author: &str, content: &str, files: Arc<dyn Files>) -> String {
        let mut it = self.0.lock().unwrap();
        let number = it.commits.len();
        let id = digest_hex(format!("{number} {content}").as_bytes())[..40].to_owned();
        let time = NOON;
        let commit = CommitInfo {
            id: CommitId::from_stored(id.clone()),
            author: author.into(),
            subject: format!("push {number}"),
            time,
        };
        it.commits.push((commit, files));
        id
    }

    fn force_push(&self, compose: &str) -> String {
        self.0.lock().unwrap().rewritten = true;
        self.push(compose)
    }

    /// The branch is at an older commit again, by a force-push if that does not build on the newest one.
    fn set_back(&self, id: &str, rewritten: bool) {
        let mut it = self.0.lock().unwrap();
        let index = it.commits.iter().position(|(commit, _)| commit.id == *id).unwrap();
        let commit = it.commits.remove(index);
        it.commits.push(commit);
        it.rewritten = rewritten;
    }

    pub(crate) fn down(&self, is_down: bool) {
        self.0.lock().unwrap().is_down = is_down;
    }

    /// Whether this fetch panics, as a defect of the agent would.
    fn is_defective(&self) -> bool {
        let mut it = self.0.lock().unwrap();
        let left = it.panicking_fetches;
        it.panicking_fetches = left.saturating_sub(1);
        left > 0
    }

    fn checkout(&self, commit: Option<&CommitId>) -> Result<Checkout, Error> {
        let it = self.0.lock().unwrap();
        let found = match commit {
            None => it.commits.last(),
            Some(id) => it.commits.iter().find(|(commit, _)| commit.id == *id),
        };
        let missing = || failed(git::Cause::CommitNotFound, "read", "no such commit".to_owned());
        let (commit, files) = found.ok_or_else(missing)?;
        let rewritten = it.rewritten;
        Ok(Checkout { commit: commit.clone(), files: Arc::clone(files), rewritten, tag: None })
    }
}

fn failed(cause: git::Cause, doing: &str, message: String) -> Error {
    Error { cause, doing: doing.to_owned(), message, retry_after: None }
}

impl CommitSource for Git {
    async fn fetch(&self, _known: Option<&CommitId>) -> Result<Checkout, Error> {
        sleep(Duration::from_millis(20)).await;
        if self.0.lock().unwrap().is_down {
            let message = "connection refused".into();
            return Err(failed(git::Cause::ServerFailed, "fetch", message));
        }
        assert!(!self.is_defective(), "a defect");
        self.checkout(None)
    }

    fn end_download_pause(&self) {}

    async fn local(&self, commit: &CommitId) -> Result<Checkout, Error> {
        self.checkout(Some(commit))
    }

    async fn ahead(&self, base: &CommitId, tip: &CommitId) -> Option<u64> {
        let it = self.0.lock().unwrap();
        let at = |id: &CommitId| it.commits.iter().position(|(commit, _)| commit.id == *id);
        at(tip)?.checked_sub(at(base)?).map(|it| it as u64)
    }

    async fn history_length(&self, commit: &CommitId) -> Option<u64> {
        let it = self.0.lock().unwrap();
        it.commits.iter().position(|(known, _)| known.id == *commit).map(|at| at as u64 + 1)
    }

    async fn verify(&self, commit: &CommitId, policy: &Verify) -> Result<Result<String, String>, Error> {
        let (commit, _) = self.checkout(Some(commit)).map(|it| (it.commit, ()))?;
        let mut signers = policy.allowed_signers.clone();
        if let Some(path) = &policy.allowed_signers_file {
            let Ok(text) = fs::read_to_string(path) else { return Ok(Err("could not read the keys".into())) };
            signers.extend(text.lines().map(str::to_owned));
        }
        Ok(if signers.contains(&commit.author) { Ok(commit.author) } else { Err("it is not signed".into()) })
    }

    async fn keep(&self, _commits: Vec<CommitId>) -> Result<(), Error> {
        Ok(())
    }
}

/// The world that outlives the agent, and the agent while it runs.
pub(crate) struct Simulation {
    pub(crate) git: Git,
    pub(crate) docker: SimulatedEngine,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) settings: config::Repository,
    /// Further repositories, after that of `settings`.
    pub(crate) other_repositories: Vec<(config::Repository, Git)>,
    pub(crate) environment: driftless_git::Lookup,
    agent: AgentId,
    pub(crate) has_new_id: bool,
    pub(crate) contents: ContentDir,
    handle: Option<Handle>,
    stop: CancellationToken,
    tasks: TaskTracker,
    state: StateDir,
    _dir: tempfile::TempDir,
}

pub(crate) fn app() -> AppName {
    "shop".into()
}

pub(crate) fn agent_id() -> AgentId {
    AgentId("ours".to_owned())
}

impl Simulation {
    /// A running agent on an empty host, for this first commit.
    pub(crate) fn of(compose: &str) -> Self {
        let it = Self::prepared(compose, Clock::starting_at(NOON));
        it.begun()
    }

    pub(crate) fn prepared(compose: &str, clock: Clock) -> Self {
        let it = Self::idle_at(clock);
        it.git.push(compose);
        it
    }

    /// An agent that does not run yet, in real time, without a commit.
    pub(crate) fn idle() -> Self {
        Self::idle_at(Clock::System)
    }

    pub(crate) fn app(&self) -> AppName {
        app()
    }

    pub(crate) fn idle_at(clock: Clock) -> Self {
        Self::idle_as(agent_id(), clock)
    }

    pub(crate) fn idle_as(agent: AgentId, clock: Clock) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::lock(&dir.path().join("state")).unwrap();
        Self {
            git: Git::default(),
            docker: SimulatedEngine::new(agent.clone(), clock),
            store: Store::in_memory(clock).unwrap(),
            contents: ContentDir::open(&state, &dir.path().join("run"), clock).unwrap(),
            clock,
            settings: config::Repository::new(
                RepoUrl::parse("https://git.example/infra.git").unwrap(),
                "",
                config::Reference::Head,
            ),
            other_repositories: Vec::new(),
            environment: Arc::new(|_| None),
            agent,
            has_new_id: false,
            handle: None,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            state,
            _dir: dir,
        }
    }

    pub(crate) fn begun(mut self) -> Self {
        self.begin();
        self
    }

    /// Another life of the agent, on a connection of its own.
    pub(crate) fn begin(&mut self) {
        self.docker = self.docker.connect();
        self.stop = CancellationToken::new();
        let mut sources = vec![(self.settings.clone(), self.git.clone())];
        sources.extend(self.other_repositories.iter().cloned());
        let parts = Parts {
            docker: self.docker.clone(),
            sources,
            store: self.store.clone(),
            contents: self.contents.clone(),
            clock: self.clock,
            agent: self.agent.clone(),
            has_new_id: self.has_new_id,
            build_timeout: Duration::from_hours(1),
            environment: self.environment.clone(),
        };
        self.handle = Some(launch(parts, &self.stop, &self.tasks));
    }

    /// The agent dies. Nothing that it had under way is heard of again.
    pub(crate) fn crash(&mut self) {
        self.docker.crash_after(0);
        self.stop.cancel();
        self.handle = None;
    }

    /// Asks the agent to end, and waits until it has.
    pub(crate) async fn end(&mut self) {
        self.stop.cancel();
        self.handle = None;
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone().unwrap()
    }

    fn status(&self) -> Option<Arc<Application>> {
        self.handle().applications().get(&app()).cloned()
    }

    /// Waits for a state of the application, for at most an hour of simulated time.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Application) -> bool) -> Arc<Application> {
        let mut handle = self.handle();
        let waiting = async {
            loop {
                if let Some(it) = self.status().filter(|it| is_so(it)) {
                    return it;
                }
                assert!(handle.changed().await, "the agent stopped");
            }
        };
        let found = timeout(Duration::from_secs(3600), waiting).await;
        found.unwrap_or_else(|_| panic!("never: {what}\n{}\n{:#?}", self.story(), self.status()))
    }

    /// Waits until everything is as this commit says.
    pub(crate) async fn synced(&self, commit: &str) -> Arc<Application> {
        let is_so = |it: &Application| {
            it.status.sync == SyncStatus::Synced
                && it.status.health == HealthStatus::Healthy
                && it.status.commit.as_ref().is_some_and(|it| it.id == commit)
        };
        self.until(&format!("{commit} is synced and healthy"), is_so).await
    }

    /// The newest revision that succeeded.
    pub(crate) fn last_succeeded(&self) -> Option<Revision> {
        self.store
            .revisions(&app())
            .unwrap()
            .into_iter()
            .find(|revision| revision.outcome == Outcome::Succeeded)
    }

    pub(crate) fn tip(&self) -> String {
        self.git.0.lock().unwrap().commits.last().unwrap().0.id.to_string()
    }

    pub(crate) async fn synced_with_tip(&self) -> Arc<Application> {
        self.synced(&self.tip()).await
    }

    /// The next life of the agent has its database in the state directory.
    pub(crate) fn keep_on_disk(&mut self) {
        self.store = Store::open(&self.state, self.clock).unwrap().store;
    }

    /// The database in the state directory, as another program opens it.
    pub(crate) fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.state.database()).unwrap()
    }

    /// The next life of the agent knows nothing of the containers, which are those of Docker Compose, and waits for the adoption.
    pub(crate) async fn give_to_compose(&mut self) {
        self.crash();
        self.store = Store::in_memory(self.clock).unwrap();
        self.docker.give_to_compose(&app());
        self.begin();
        self.until("it waits to be adopted", |shown| shown.status.obstacle.is_some()).await;
    }

    /// Somebody removes the state directory.
    pub(crate) fn remove_state_directory(&self) {
        fs::remove_dir_all(self.state.path()).unwrap();
    }

    /// From now on no mounted file can be written, as on a full disk.
    pub(crate) fn break_contents(&self) {
        let contents = self.state.contents();
        fs::remove_dir_all(&contents).unwrap();
        fs::write(&contents, "").unwrap();
    }

    pub(crate) async fn ask(&self, kind: RequestKind) {
        self.handle().request(app(), kind).await.unwrap();
    }

    /// Why a request is refused.
    pub(crate) async fn refusal(&self, kind: RequestKind) -> String {
        match self.handle().request(app(), kind).await {
            Err(RequestError::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Pushes and tells the agent at once, as a webhook would.
    pub(crate) async fn push(&self, compose: &str) -> String {
        let id = self.git.push(compose);
        self.ask(RequestKind::Sync).await;
        id
    }

    pub(crate) fn images(&self) -> Vec<String> {
        let all = self.docker.observed(&app());
        let mut images: Vec<String> =
            all.instances.values().filter(|it| it.is_running()).map(|it| it.config.image.clone()).collect();
        images.sort();
        images
    }

    /// Waits until containers of exactly these images run, for at most this simulated time.
    async fn runs_within(&self, limit: Duration, images: &[&str]) {
        let mut events = self.docker.events();
        let waiting = async {
            while self.images() != images {
                events.recv().await.unwrap();
            }
        };
        let found = timeout(limit, waiting).await;
        found.unwrap_or_else(|_| panic!("{:?} run and not {images:?}\n{}", self.images(), self.story()));
    }

    pub(crate) fn hand(&self, hand: &UserAction) {
        self.docker.user_action(&app(), hand).unwrap();
    }

    pub(crate) fn story(&self) -> String {
        let all = self.docker.transcript();
        all.iter().map(|it| format!("{} {:?} {}\n", it.at, it.by, it.what)).collect()
    }

    pub(crate) fn writes(&self) -> usize {
        self.docker.transcript().iter().filter(|it| it.by == ChangedBy::Agent).count()
    }

    /// Invariants of every history: no failure that a plan should have foreseen, and never fewer of a workload
    /// available by what the agent does than there have to be.
    pub(crate) fn check(&self, floors: &BTreeMap<&str, usize>) {
        assert!(self.docker.mistakes().is_empty(), "{:#?}\n{}", self.docker.mistakes(), self.story());
        for it in self.docker.transcript().iter().filter(|it| it.by == ChangedBy::Agent) {
            for (workload, floor) in floors {
                let (before, after) =
                    (available(&it.before, workload, it.at), available(&it.after, workload, it.at));
                assert!(
                    after >= before.min(*floor),
                    "{} {}: {workload} dips from {before} to {after}\n{}",
                    it.at,
                    it.what,
                    self.story()
                );
            }
        }
    }
}

fn available(observed: &Observed, workload: &str, now: Timestamp) -> usize {
    let is_it = |it: &&Instance| it.instance.workload.as_str() == workload;
    let slots: BTreeSet<u32> = observed
        .instances
        .values()
        .filter(is_it)
        .filter(|it| it.is_available(Duration::ZERO, now))
        .map(|it| it.instance.slot)
        .collect();
    slots.len()
}

/// Two replicas of one image, with a health check.
fn web(version: &str) -> String {
    web_and(version, "db:1")
}

fn web_and(version: &str, db: &str) -> String {
    format!(
        "services:\n  web:\n    image: {version}\n    deploy:\n      replicas: 2\n    healthcheck:\n      test: [CMD, \
         check]\n  db:\n    image: {db}\n    restart: always\n"
    )
}

fn floors() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([("web", 2)])
}

pub(crate) async fn minutes(count: u64) {
    sleep(Duration::from_secs(60 * count)).await;
}

/// The simulated time that something takes.
async fn took<T>(what: impl Future<Output = T>) -> Duration {
    let before = Instant::now();
    what.await;
    before.elapsed()
}

#[tokio::test(start_paused = true)]
async fn push_is_rolled_out_without_downtime_and_then_idle() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    it.git.push(&web("web:2"));
    let taken = took(it.synced_with_tip()).await;
    assert!(taken < Duration::from_secs(90), "a poll and a rollout take {taken:?}");
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
    let writes = it.writes();
    minutes(60).await;
    assert_eq!(it.writes(), writes, "{}", it.story());
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn defect_interrupts_an_application_for_a_minute() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.docker.faults(|faults| (faults.panicking_steps, faults.latency) = (2, Duration::from_secs(1)));
    it.push(&web("web:2")).await;
    let is_interrupted = |app: &Application| app.status.message.starts_with("a defect of the agent");
    let found = it.until("it is interrupted", is_interrupted).await;
    assert_eq!((found.status.health, &found.status.operation), (HealthStatus::Unknown, &None));
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    let refused = it.handle().request(app(), RequestKind::Suspend).await;
    assert_eq!(refused, Err(RequestError::Interrupted(app())));
    // It comes twice, and each time there is a pause.
    let taken = took(async {
        let refused = async {
            loop {
                match it.handle().request(app(), RequestKind::Settings).await {
                    Ok(_) | Err(RequestError::Interrupted(_)) => sleep(Duration::from_millis(100)).await,
                    Err(other) => break other,
                }
            }
        };
        tokio::select! {
            error = refused => panic!("{error}"),
            _ = it.synced_with_tip() => {}
        }
    })
    .await;
    assert!(
        (Duration::from_secs(115)..Duration::from_secs(200)).contains(&taken),
        "{taken:?}\n{}",
        it.story()
    );
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
    it.ask(RequestKind::Suspend).await;
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn defect_interrupts_a_repository_for_a_minute() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.git.0.lock().unwrap().panicking_fetches = 2;
    it.git.push(&web("web:2"));
    let is_interrupted = |app: &Application| {
        let source = app.status.conditions.iter().find(|it| it.kind == "SourceReady");
        source.is_some_and(|it| it.reason == "Interrupted" && it.message.starts_with("a defect of the agent"))
    };
    it.until("it is interrupted", is_interrupted).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    // It comes twice, and each time there is a pause.
    let taken = took(it.synced_with_tip()).await;
    assert!(
        (Duration::from_secs(115)..Duration::from_secs(200)).contains(&taken),
        "{taken:?}\n{}",
        it.story()
    );
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn agent_without_events_of_the_engine_ends() {
    let mut it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.docker.end_events();
    let mut handle = it.handle();
    let ended = timeout(Duration::from_secs(10), async { while handle.published().await {} }).await;
    assert!(ended.is_ok(), "a deaf agent lives on\n{}", it.story());
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    // As its supervisor would start it again.
    it.end().await;
    it.begin();
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn end_of_the_engine_is_noticed_among_more_events_than_fit() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    let is_ready = || it.handle().readiness().docker;
    assert!(is_ready());
    it.docker.disconnect();
    // None of them is read before the last.
    for _ in 0..150 {
        let name = || "shop-web-1".to_owned();
        it.docker.user_action(&app(), &UserAction::Stop { name: name() }).unwrap();
        it.docker.user_action(&app(), &UserAction::Start { name: name() }).unwrap();
    }
    sleep(Duration::from_secs(3)).await;
    assert!(!is_ready(), "{:?}", it.handle().readiness());
    it.docker.reconnect();
    sleep(Duration::from_secs(3)).await;
    assert!(is_ready(), "{:?}", it.handle().readiness());
}

#[tokio::test(start_paused = true)]
async fn rollout_does_not_wait_for_the_engines_first_check() {
    // A database is left to the engine.
    let db = "services: {db: {image: 'db:1', restart: always, volumes: ['data:/data'], healthcheck: {test: [CMD, \
              check]}}}\nvolumes: {data: {}}";
    let it = Simulation::prepared(db, Clock::starting_at(NOON));
    it.docker.faults(|faults| faults.first_health_check = Duration::from_secs(50));
    let it = it.begun();
    let taken = took(it.synced_with_tip()).await;
    assert!(taken > Duration::from_secs(45), "{taken:?}");
    it.push(&web("web:1")).await;
    it.synced_with_tip().await;
    it.push(&web("web:2")).await;
    let taken = took(it.synced_with_tip()).await;
    assert!(taken < Duration::from_secs(10), "{taken:?}\n{}", it.story());
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
    // The engine's own result comes later, and wins.
    it.docker.faults(|faults| faults.unhealthy.extend(["web:2".to_owned()]));
    it.until("the engine finds it unhealthy", |found| found.status.health != HealthStatus::Healthy).await;
}

#[tokio::test(start_paused = true)]
async fn monitor_counts_from_the_first_success() {
    let compose = |image: &str| {
        format!(
            "services:\n  web:\n    image: {image}\n    restart: always\n    healthcheck: {{test: [CMD, check], interval: \
             5s, retries: 5, start_period: 90s}}\n    deploy: {{replicas: 3, update_config: {{order: start-first, monitor: \
             60s}}}}\n"
        )
    };
    for is_restarted in [false, true] {
        let it = Simulation::prepared(&compose("web:1"), Clock::starting_at(NOON));
        it.docker.faults(|faults| faults.check_interval = Some(Duration::from_secs(5)));
        let mut it = it.begun();
        it.synced_with_tip().await;
        minutes(5).await;
        it.docker.faults(|faults| faults.warm_up = Duration::from_mins(1));
        it.push(&compose("web:2")).await;
        sleep(Duration::from_secs(90)).await;
        if is_restarted {
            it.crash();
            it.begin();
        }
        // The first of the new ones is healthy for less than a minute.
        sleep(Duration::from_secs(25)).await;
        let images = it.images();
        assert_eq!(images, ["web:1", "web:1", "web:1", "web:2"], "restarted: {is_restarted}\n{}", it.story());
        it.synced_with_tip().await;
        assert_eq!(it.images(), ["web:2"; 3], "restarted: {is_restarted}\n{}", it.story());
        it.check(&BTreeMap::from([("web", 3)]));
    }
}

#[tokio::test(start_paused = true)]
async fn push_during_a_docker_outage_is_rolled_out_later() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.docker.disconnect();
    it.push(&web("web:2")).await;
    minutes(10).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    it.docker.reconnect();
    let taken = took(it.synced_with_tip()).await;
    assert!(taken < Duration::from_secs(10), "{taken:?}");
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn rollout_continues_after_a_kill_at_any_step() {
    for keeps_store in [true, false] {
        for steps in 1..14 {
            let mut it = Simulation::of(&web("web:1"));
            it.synced_with_tip().await;
            it.docker.crash_after(steps);
            it.push(&web("web:2")).await;
            minutes(2).await;
            it.crash();
            if !keeps_store {
                it.store = Store::in_memory(it.clock).unwrap();
            }
            it.begin();
            if !keeps_store {
                // Pins may be lost, so somebody has to confirm that the newest commit is wanted.
                minutes(1).await;
                it.handle().recover().await.unwrap();
            }
            it.synced_with_tip().await;
            assert_eq!(it.images(), ["db:1", "web:2", "web:2"], "after {steps} steps\n{}", it.story());
            assert_eq!(it.docker.observed(&app()).instances.len(), 3, "after {steps} steps\n{}", it.story());
            it.check(&floors());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn late_image_is_rolled_out_without_a_commit() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.docker.faults(|it| it.registry = Some(BTreeSet::from(["web:1".into(), "db:1".into()])));
    it.push(&web("web:2")).await;
    let waits = |it: &Application| it.status.waits.iter().any(|it| it.reason == "ImagePullBackOff");
    it.until("it backs off", waits).await;
    minutes(10).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    it.docker.faults(|it| it.registry = None);
    let taken = took(it.synced_with_tip()).await;
    assert!(taken < Duration::from_secs(400), "{taken:?}");
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn unhealthy_version_never_replaces_the_healthy_one() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.docker.faults(|faults| {
        let _ = faults.unhealthy.insert("web:2".into());
    });
    it.push(&web("web:2")).await;
    minutes(60).await;
    let good = it.images().iter().filter(|it| *it == "web:1").count();
    assert_eq!(good, 2, "{}", it.story());
    assert_eq!(it.status().unwrap().status.health, HealthStatus::Degraded);
    it.push(&web("web:3")).await;
    it.synced_with_tip().await;
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn stopped_container_is_started_at_once() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    minutes(5).await;
    for hand in
        [UserAction::Stop { name: "shop-db-1".into() }, UserAction::Remove { name: "shop-db-1".into() }]
    {
        it.hand(&hand);
        it.runs_within(Duration::from_millis(500), &["db:1", "web:1", "web:1"]).await;
        minutes(20).await;
    }
    it.synced_with_tip().await;
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn drift_is_undone_even_without_an_event() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    let name = || "shop-web-1".to_owned();
    let hands = [
        UserAction::Stop { name: name() },
        UserAction::Kill { name: name() },
        UserAction::Pause { name: name() },
        UserAction::Remove { name: name() },
        UserAction::Rename { name: name(), to: "mine".into() },
        UserAction::Disconnect { name: name(), network: "shop_default".into() },
        UserAction::RemoveNetwork { name: "shop_default".into() },
    ];
    it.docker.faults(|it| it.events = EventDelivery::Lost);
    for hand in hands {
        it.hand(&hand);
        minutes(12).await;
        let healed = it.docker.observed(&app());
        let is_whole = |it: &Instance| it.is_running() && it.networks.contains_key("shop_default");
        assert!(healed.instances.values().all(is_whole), "{hand:?}\n{}", it.story());
        let names: BTreeSet<String> = healed.instances.values().map(|it| it.name.clone()).collect();
        let wanted = ["shop-db-1", "shop-web-1", "shop-web-2"].map(str::to_owned);
        assert_eq!(names, BTreeSet::from(wanted), "{hand:?}\n{}", it.story());
    }
    it.synced_with_tip().await;
    it.check(&BTreeMap::from([("web", 1)]));
}

#[tokio::test(start_paused = true)]
async fn the_clock_may_jump() {
    for hours in [-30_i64, -1, 1, 30] {
        let clock = Clock::jumping(NOON);
        let Clock::Jumping { epoch, .. } = clock else { panic!() };
        let it = Simulation::prepared(&web("web:1"), clock).begun();
        it.synced_with_tip().await;
        let writes = it.writes();
        epoch.store(NOON.0.saturating_add_signed(hours * 3_600_000), Ordering::SeqCst);
        minutes(20).await;
        assert_eq!(it.writes(), writes, "{hours} hours\n{}", it.story());
        it.push(&web("web:2")).await;
        let taken = took(it.synced_with_tip()).await;
        assert!(taken < Duration::from_secs(60), "{hours} hours: {taken:?}");
        it.hand(&UserAction::Stop { name: "shop-db-1".into() });
        it.runs_within(Duration::from_secs(1), &["db:1", "web:2", "web:2"]).await;
        it.check(&floors());
    }
}

#[tokio::test(start_paused = true)]
async fn unused_files_are_removed_after_the_clock_was_set_back() {
    let clock = Clock::jumping(NOON.after(Duration::from_hours(365 * 24)));
    let Clock::Jumping { epoch, .. } = clock else { panic!() };
    let it = Simulation::prepared(&web("web:1"), clock).begun();
    it.synced_with_tip().await;
    epoch.store(NOON.0, Ordering::SeqCst);
    let unused = it.contents.folder(Visibility::Public).join("0".repeat(64));
    fs::write(&unused, "").unwrap();
    let two_days_ago = std::time::UNIX_EPOCH + Duration::from_millis(NOON.0 - 2 * 86_400_000);
    fs::File::options().write(true).open(&unused).unwrap().set_modified(two_days_ago).unwrap();
    minutes(7 * 60).await;
    assert!(!unused.exists());
}

#[tokio::test(start_paused = true)]
async fn a_slow_pull_holds_up_neither_healing_nor_a_newer_commit() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.docker.faults(|faults| {
        let _ = faults.pulls.insert("web:2".into(), Duration::from_secs(3000));
    });
    it.push(&web("web:2")).await;
    minutes(1).await;
    it.hand(&UserAction::Stop { name: "shop-db-1".into() });
    it.runs_within(Duration::from_secs(1), &["db:1", "web:1", "web:1"]).await;
    it.push(&web("web:3")).await;
    let taken = took(it.synced_with_tip()).await;
    assert!(taken < Duration::from_secs(30), "{taken:?}");
    assert!(!it.story().contains("web:2"), "{}", it.story());
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn a_sync_is_answered_at_once_while_the_engine_takes_its_time() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.docker.faults(|it| it.latency = Duration::from_secs(90));
    it.push(&web("web:2")).await;
    minutes(1).await;
    it.git.push(&web("web:3"));
    let taken = took(it.ask(RequestKind::Sync)).await;
    assert!(taken < Duration::from_secs(1), "{taken:?}");
    it.docker.faults(|it| it.latency = Duration::from_millis(5));
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:1", "web:3", "web:3"], "{}", it.story());
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn question_during_a_rollout_waits_for_one_round() {
    let shop = |version: u8| {
        format!(
            "services:\n  web:\n    image: 'web:{version}'\n    restart: always\n    deploy:\n      replicas: 8\n      \
             update_config: {{parallelism: 1, order: start-first}}\n"
        )
    };
    let it = Simulation::of(&shop(1));
    it.synced_with_tip().await;
    it.docker.faults(|faults| faults.latency = Duration::from_secs(2));
    it.push(&shop(2)).await;
    it.until("the rollout has begun", |_| it.images().contains(&"web:2".to_owned())).await;
    let taken = took(it.handle().request(app(), RequestKind::Plan)).await;
    assert!(taken < Duration::from_secs(30), "{taken:?}\n{}", it.story());
    assert!(it.images().contains(&"web:1".to_owned()), "the rollout goes on: {}", it.story());
    it.docker.faults(|faults| faults.latency = Duration::from_millis(5));
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"; 8], "{}", it.story());
}

impl Simulation {
    /// Asks for something, and waits for the status that answers this request.
    async fn answered(&self, kind: RequestKind) -> Arc<Application> {
        let (_, ticket) = self.handle().request_with_ticket(app(), kind).await.unwrap();
        self.until(&format!("{ticket} is answered"), |it| ticket.is_answered_by(&it.status)).await
    }
}

#[tokio::test(start_paused = true)]
async fn ticket_of_a_sync_is_answered_after_its_fetch_and_its_round() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    let asked = it.clock.now();
    let nothing_new = it.answered(RequestKind::Sync).await;
    assert!(nothing_new.status.observed_at >= Some(asked) && nothing_new.status.fetched_at >= Some(asked));
    assert!(it.clock.now().since(asked) < Duration::from_secs(1), "it waits for nothing else");

    let commit = it.git.push(&web("web:2"));
    let status = it.answered(RequestKind::Sync).await;
    assert_eq!(status.spec.commit.as_ref().map(|commit| commit.id.to_string()), Some(commit));

    // The answer is about this sync, also while another one of an unreachable server waits.
    it.synced_with_tip().await;
    it.git.0.lock().unwrap().is_down = true;
    it.ask(RequestKind::Sync).await;
    let rollback = Rollback { to: None, reason: "web:2 is slow".into(), until: Until::Manual };
    let status = it.answered(RequestKind::Rollback(rollback)).await;
    assert!(status.status.pin.is_some(), "{:#?}", status.status);
}

/// Git answers in the middle of a look at Docker, as it does where there are many containers.
async fn settled_on_a_slow_engine() -> Simulation {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.answered(RequestKind::Sync).await;
    it.docker.faults(|it| it.latency = Duration::from_millis(200));
    it
}

#[tokio::test(start_paused = true)]
async fn idle_sync_observes_once() {
    let it = settled_on_a_slow_engine().await;
    let (calls, before) = (it.docker.calls(), it.status().unwrap());
    let after = it.answered(RequestKind::Sync).await;
    assert_eq!(it.docker.calls(), calls + 1);
    minutes(1).await;
    assert_eq!(it.docker.calls(), calls + 1, "nothing follows");
    assert!(after.status.fetched_at > before.status.fetched_at, "the state of Git is published all the same");
    assert!(Arc::ptr_eq(&after.status.workloads, &before.status.workloads), "what is as before is held once");
}

#[tokio::test(start_paused = true)]
async fn events_during_a_list_cause_another_list() {
    let it = settled_on_a_slow_engine().await;
    let calls = it.docker.calls();
    it.ask(RequestKind::Sync).await;
    // In the middle of the list, which takes 200 ms.
    sleep(Duration::from_millis(100)).await;
    it.answered(RequestKind::Sync).await;
    assert_eq!(it.docker.calls(), calls + 2, "a later request may know more than the running observation");
    it.ask(RequestKind::Sync).await;
    sleep(Duration::from_millis(100)).await;
    it.hand(&UserAction::Stop { name: "shop-db-1".into() });
    it.runs_within(Duration::from_secs(2), &["db:1", "web:1", "web:1"]).await;
    let commit = it.git.push(&web("web:2"));
    it.ask(RequestKind::Sync).await;
    it.synced(&commit).await;
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn last_commit_is_enforced_while_git_is_down_at_the_start() {
    let mut it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.crash();
    it.git.down(true);
    it.hand(&UserAction::Stop { name: "shop-db-1".into() });
    it.begin();
    it.runs_within(Duration::from_secs(2), &["db:1", "web:1", "web:1"]).await;
    it.git.push(&web("web:2"));
    minutes(10).await;
    let shown = it.handle().applications().get(&app()).unwrap().status.clone();
    assert_eq!(shown.sync, SyncStatus::Unknown, "{shown:#?}");
    it.git.down(false);
    let taken = took(it.synced_with_tip()).await;
    assert!(taken < Duration::from_secs(180), "{taken:?}");
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn commit_after_an_empty_sync_has_no_actor() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.ask(RequestKind::Sync).await;
    minutes(2).await;
    it.git.push(&web("web:2"));
    it.synced_with_tip().await;
    it.push(&web("web:3")).await;
    it.synced_with_tip().await;
    let causes: Vec<Cause> = it.store.revisions(&app()).unwrap().into_iter().map(|it| it.cause).collect();
    assert_eq!(causes, [Cause::User, Cause::Commit, Cause::Start]);
}

#[tokio::test(start_paused = true)]
async fn silent_repository_is_reported_with_the_reason() {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings = config::Repository::new(
        RepoUrl::parse("https://git.example/infra.git").unwrap(),
        "sites",
        config::Reference::Head,
    );
    it.begin();
    minutes(2).await;
    let repositories = it.handle().repositories();
    let [repository] = repositories.as_slice() else { panic!("{repositories:#?}") };
    assert!(repository.message.contains("sites"), "{repository:#?}");
    assert_eq!(repository.commit.as_ref().map(|commit| commit.id.to_string()), Some(it.tip()));
    let events =
        it.store.newest_events(10, Some(&AppName(format!("repository/{}", repository.name)))).unwrap();
    let [event] = events.as_slice() else { panic!("{events:#?}") };
    assert_eq!(event.reason, "InvalidRepository");
    assert!(event.message.contains("sites"), "{event:?}");
    assert!(it.status().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_force_push_is_followed() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    it.git.force_push(&web("web:1"));
    it.ask(RequestKind::Sync).await;
    let found = it.synced_with_tip().await;
    assert!(found.status.conditions.iter().any(|it| it.reason == "HistoryRewritten"), "{found:#?}");
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn suspended_application_is_left_alone_until_resumed() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.ask(RequestKind::Suspend).await;
    it.until("it is suspended", |it| it.status.health == HealthStatus::Suspended).await;
    let writes = it.writes();
    it.hand(&UserAction::Stop { name: "shop-db-1".into() });
    it.push(&web("web:2")).await;
    minutes(30).await;
    assert_eq!(it.writes(), writes, "{}", it.story());
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
        panic!("no plan")
    };
    assert!(plan.suspended, "{plan:?}");
    let steps: Vec<&String> = plan.rounds.iter().flatten().collect();
    assert!(steps.iter().any(|step| step.contains("web:2")), "the commit that waits is shown: {steps:?}");
    let unique: BTreeSet<&String> = plan.waits.iter().collect();
    assert_eq!(unique.len(), plan.waits.len(), "each wait once: {:?}", plan.waits);
    it.ask(RequestKind::Resume).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_a_rollback_changes_nothing() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    let supposed = || RequestKind::PlanAfter(Supposed::Rollback(None));
    let none = it.handle().request(app(), supposed()).await.unwrap_err().to_string();
    assert!(none.contains("has no older revision that succeeded"), "{none}");
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    let writes = it.writes();
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), supposed()).await else { panic!("no plan") };
    let steps: Vec<&String> = plan.rounds.iter().flatten().collect();
    assert!(steps.iter().any(|step| step.contains("web:1")), "{steps:?}");
    let prune = RequestKind::PlanAfter(Supposed::Prune);
    assert!(it.handle().request(app(), prune).await.is_err(), "no removal waits");
    minutes(10).await;
    assert_eq!(it.writes(), writes, "{}", it.story());
    let found = it.synced_with_tip().await;
    assert!(found.status.pin.is_none());
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_a_resume_shows_its_steps() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    let supposed = || RequestKind::PlanAfter(Supposed::Resume);
    let none = it.handle().request(app(), supposed()).await.unwrap_err().to_string();
    assert!(none.contains("neither pinned nor suspended"), "{none}");
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    let back = Rollback { to: None, reason: String::new(), until: Until::Manual };
    let is_held: [(RequestKind, fn(&Application) -> bool); 2] = [
        (RequestKind::Rollback(back), |it| it.status.pin.is_some() && it.status.sync == SyncStatus::Synced),
        (RequestKind::Suspend, |it| it.status.health == HealthStatus::Suspended),
    ];
    for (hold, is_held) in is_held {
        it.ask(hold).await;
        it.until("it is held", is_held).await;
        if it.images().contains(&"web:2".to_owned()) {
            it.push(&web("web:3")).await;
            minutes(1).await;
        }
        let writes = it.writes();
        let newest = if it.status().unwrap().status.pin.is_some() { "web:2" } else { "web:3" };
        let Ok(Answer::Plan(plan)) = it.handle().request(app(), supposed()).await else { panic!("no plan") };
        let steps: Vec<&String> = plan.rounds.iter().flatten().collect();
        assert!(!plan.suspended && steps.iter().any(|step| step.contains(newest)), "{plan:?}");
        assert!(!plan.waits.iter().any(|wait| wait.contains("pinned")), "{plan:?}");
        minutes(10).await;
        assert_eq!(it.writes(), writes, "{}", it.story());
        it.ask(RequestKind::Resume).await;
        it.synced_with_tip().await;
        assert_eq!(it.images(), ["db:1", newest, newest]);
    }
}

#[tokio::test(start_paused = true)]
async fn sync_without_news_fetches_and_observes_at_once() {
    let it = Simulation::of(&web("web:1"));
    let mut before = it.synced_with_tip().await;
    for _ in 0..3 {
        sleep(Duration::from_secs(7)).await;
        it.ask(RequestKind::Sync).await;
        let is_newer = |it: &Application| {
            let (now, before) = (&it.status, &before.status);
            now.fetched_at > before.fetched_at && now.observed_at > before.observed_at
        };
        let looking = it.until("the agent fetched and observed", is_newer);
        before = timeout(Duration::from_secs(5), looking).await.expect("`sync --wait` returns at once");
    }
}

#[tokio::test(start_paused = true)]
async fn application_settings_apply_however_it_is_named() {
    let policy = "suspend: true, selfHeal: false, prune: true, maxPrunePercent: 7, adopt: never, \
                  filesystemDrift: revert, onFailure: rollback, monitor: 90s, progressDeadline: 2m";
    for (at_repository, of_application, folder) in [
        ("", "path: apps/shop", "apps/shop"),
        ("", "path: apps/x, name: shop", "apps/x"),
        ("path: apps, ", "path: shop", "apps/shop"),
        ("path: apps, ", "path: x, name: shop", "apps/x"),
        ("path: ./apps//, ", "path: ./shop/", "apps/shop"),
        ("path: apps/shop, ", "path: .", "apps/shop"),
        ("", "path: ., name: shop", ""),
    ] {
        let case = format!("{{url: /srv/a, {at_repository}applications: [{{{of_application}, {policy}}}]}}");
        let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
        let settings = config::Settings::parse("driftless.yaml", &format!("repositories: [{case}]\n"));
        it.settings = settings.unwrap_or_else(|wrong| panic!("{case}: {wrong:#?}")).repositories.remove(0);
        let file = format!("{folder}/compose.yaml");
        it.git.push_files("Ada <a@b.c>", &[(file.trim_start_matches('/'), &web("web:1"))]);
        it.begin();
        minutes(5).await;
        let found = it.status().unwrap_or_else(|| panic!("{case}: {:#?}", it.handle().repositories()));
        let policy = Policy {
            engine: driftless_model::EngineKind::Docker,
            suspended: true,
            self_heal: false,
            prune: true,
            max_prune_percent: 7,
            adopt: Adopt::Never,
            filesystem_drift: FilesystemDrift::Revert,
            on_failure: OnFailure::Rollback,
            monitor: Duration::from_secs(90),
            progress_deadline: Some(Duration::from_mins(2)),
            sync_windows: Vec::new(),
            depends_on: Vec::new(),
            after: None,
            image_update: driftless_model::ImageUpdate::default(),
            verify_images: Vec::new(),
            objects_of_others: driftless_model::ObjectsOfOthers::Allowed,
            ignore_differences: Vec::new(),
        };
        assert_eq!(found.spec.policy, policy, "{case}");
        assert_eq!(it.writes(), 0, "{case}: {}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_holds_until_the_next_commit() {
    let it = Simulation::of(&web("web:1"));
    let first = it.tip();
    it.synced(&first).await;
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    let back = Rollback { to: None, reason: "broken".into(), until: Until::NextCommit };
    let ada = Actor::new(ActorKind::User, "ada");
    it.handle().acting_for(&ada).request(app(), RequestKind::Rollback(back)).await.unwrap();
    let pinned = it.synced(&first).await;
    assert_eq!(pinned.status.pin.as_ref().and_then(|pin| pin.actor.clone()), Some(ada.clone()));
    let revision = it.store.current(&app()).unwrap().unwrap();
    assert_eq!(revision.actor, Some(ada.clone()), "history says who rolled back");
    let events = it.store.newest_events(100, Some(&app())).unwrap();
    let event = events.iter().find(|event| event.reason == "RolledBack").unwrap();
    assert_eq!(event.actor, Some(ada));
    minutes(30).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"], "{}", it.story());
    it.push(&web("web:3")).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:1", "web:3", "web:3"]);
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn rollback_of_a_suspended_application_says_so() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    let note = async || {
        let back = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
        match it.handle().request(app(), RequestKind::Rollback(back)).await {
            Ok(Answer::Pinned { note, .. }) => note,
            other => panic!("{other:?}"),
        }
    };
    it.ask(RequestKind::Suspend).await;
    let suspended = note().await;
    assert!(suspended.is_some_and(|note| note.contains("ends that and the pin")), "it changes nothing");
    it.ask(RequestKind::Resume).await;
    assert_eq!(note().await, None);
}

#[tokio::test(start_paused = true)]
async fn plan_of_a_suspended_pin_is_that_of_a_resume() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    it.ask(RequestKind::Suspend).await;
    let back = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    it.ask(RequestKind::Rollback(back)).await;
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
        panic!("no plan")
    };
    assert!(plan.suspended && plan.rounds.is_empty(), "the pin ends with the suspension: {plan:?}");
    it.ask(RequestKind::Resume).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
}

/// It deploys the failed commit again.
#[tokio::test(start_paused = true)]
async fn plan_of_a_suspended_failure_is_that_of_a_resume() {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings.policy.on_failure = OnFailure::Rollback;
    it.settings.policy.progress_deadline = Some(Duration::from_mins(1));
    let it = it.begun();
    it.synced_with_tip().await;
    it.docker.faults(|faults| {
        faults.exits.insert("web:2".into(), (Duration::from_secs(1), 1));
    });
    let bad = it.push(&web("web:2")).await;
    let is_back = |it: &Application| {
        it.status.conditions.iter().any(|it| it.kind == "CommitFailed" && it.reason == "RolledBack")
    };
    it.until("it is back", is_back).await;
    it.until("it runs", |it| it.status.health == HealthStatus::Healthy).await;
    let Ok(Answer::Noted(note)) = it.handle().request(app(), RequestKind::Suspend).await else {
        panic!("no note")
    };
    assert!(note.contains(&format!("also ends the failure of commit {}", &bad[..12])), "{note}");
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
        panic!("no plan")
    };
    let steps = plan.rounds.concat().join("; ");
    assert!(plan.suspended && steps.contains("from web:2"), "{plan:?}");
    // A rollback for as long as it is suspended does not outlast the resume.
    let supposed = RequestKind::PlanAfter(Supposed::Rollback(Some("2".to_owned())));
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), supposed).await else { panic!("no plan") };
    assert!(plan.suspended && plan.way_out.is_some_and(|it| it.contains("roll back again")));
}

#[tokio::test(start_paused = true)]
async fn resume_of_one_suspended_twice_ends_its_pin() {
    let mut it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    it.end().await;
    it.settings.policy.suspended = true;
    it.begin();
    it.until("its settings suspend it", |it| it.status.health == HealthStatus::Suspended).await;
    let back = || Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    let note = async || match it.handle().request(app(), RequestKind::Rollback(back())).await {
        Ok(Answer::Pinned { note, .. }) => note.unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(note().await.contains("suspend: false"));
    it.ask(RequestKind::Suspend).await;
    assert!(note().await.contains("ends that and the pin"));
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
        panic!("no plan")
    };
    assert!(plan.suspended && plan.rounds.is_empty(), "a resume ends the pin: {plan:?}");
    let Ok(Answer::Noted(note)) = it.handle().request(app(), RequestKind::Resume).await else {
        panic!("no note")
    };
    assert!(
        note.contains("also ends the pin to revision 1") && note.contains("set `suspend: false` there"),
        "{note}"
    );
    let has_ended = |it: &Application| it.status.pin.is_none() && it.status.health == HealthStatus::Suspended;
    it.until("the pin has ended", has_ended).await;
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"]);
}

#[tokio::test(start_paused = true)]
async fn status_before_a_pin_or_suspension_is_outdated_at_once() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    let back = Rollback { to: None, reason: String::new(), until: Until::Manual };
    for kind in [RequestKind::Rollback(back), RequestKind::Resume, RequestKind::Suspend, RequestKind::Resume]
    {
        it.ask(kind.clone()).await;
        let shown = it.status().unwrap();
        assert!(shown.status.observed_generation < shown.generation, "{kind:?}");
        it.until("the next round", |shown| shown.status.observed_generation == shown.generation).await;
    }
}

/// Otherwise `driftless adopt shop && driftless wait shop` ends at once with the advice to adopt it.
#[tokio::test(start_paused = true)]
async fn status_before_an_adoption_is_outdated_at_once() {
    let mut it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.give_to_compose().await;
    it.ask(RequestKind::Adopt).await;
    let shown = it.status().unwrap();
    assert!(shown.status.observed_generation < shown.generation, "{:#?}", shown.status);
    it.until("it is adopted", |shown| {
        shown.status.obstacle.is_none() && shown.status.observed_generation == shown.generation
    })
    .await;
}

/// After that, the agent neither heals nor deploys it, and nothing else says since when.
#[tokio::test(start_paused = true)]
async fn application_that_compose_takes_back_has_one_event() {
    let mut it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    let events = |it: &Simulation| {
        let events = it.store.events(0, 1000, Some(&app())).unwrap().into_iter();
        let events = events.filter(|event| event.reason == "NotAdopted" && event.object == "web");
        events.map(|event| event.message).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        it.crash();
        it.docker.give_to_compose(&app());
        it.begin();
        it.until("it waits to be adopted", |shown| shown.status.obstacle.is_some()).await;
        let found = events(&it);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("web was started by docker compose (shop-web-1"), "{found:?}");
    }
    it.give_to_compose().await;
    assert!(events(&it).is_empty(), "it was never managed: {}", it.story());
}

#[tokio::test(start_paused = true)]
async fn containers_that_are_not_adopted_are_not_missing() {
    let mut it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.give_to_compose().await;
    let Ok(Answer::Drift(found)) = it.handle().request(app(), RequestKind::Drift(Against::Head)).await else {
        panic!("no comparison")
    };
    let note = found.app.note.as_deref().unwrap_or_default();
    assert!(note.contains("shop-web-1") && note.contains("`driftless adopt shop`"), "{:#?}", found.app);
    let missing = found.app.items.iter().filter(|item| item.change == driftless_report::Type::Missing);
    assert_eq!(missing.count(), 0, "{:#?}", found.app.items);

    // The dry run says once what an adoption changes.
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
        panic!("no plan")
    };
    assert!(!plan.adoption.is_empty() && plan.adoption_obstacles.is_empty(), "{plan:#?}");
    assert!(!plan.waits.iter().any(|wait| wait.contains("driftless adopt")), "{plan:#?}");
}

#[tokio::test(start_paused = true)]
async fn operation_without_a_failure_has_no_next_try() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    it.push(&web("web:2")).await;
    let is_seen = Mutex::new(false);
    it.until("it is updated", |shown| {
        let operation = shown.status.operation.as_ref().unwrap();
        assert_eq!((operation.attempt, operation.next_retry_at), (0, None), "{operation:#?}");
        *is_seen.lock().unwrap() |= operation.finished.is_none();
        shown.status.sync == SyncStatus::Synced && *is_seen.lock().unwrap() && operation.finished.is_some()
    })
    .await;
}

/// Somebody runs a command in a container that writes a file there.
fn visit(name: &str, file: &str) -> UserAction {
    let command = "sh -c 'touch it'".to_owned();
    UserAction::Exec { name: name.into(), command, files: vec![file.to_owned()] }
}

fn write(name: &str, file: &str) -> UserAction {
    UserAction::Write { name: name.into(), file: file.into() }
}

fn has_changed_files(it: &Application) -> bool {
    it.status.drift.iter().any(|it| it.field == "files")
}

fn of_policy(policy: FilesystemDrift) -> Simulation {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings.policy.filesystem_drift = policy;
    it.begun()
}

#[tokio::test(start_paused = true)]
async fn changed_file_is_reported_with_the_command_and_left() {
    let mut it = of_policy(FilesystemDrift::Report);
    it.synced_with_tip().await;
    it.hand(&write("shop-web-1", "/app/written-at-start"));
    minutes(6).await;
    let writes = it.writes();
    it.hand(&visit("shop-web-1", "/etc/evil"));
    let taken = took(it.until("the file is named", has_changed_files)).await;
    assert!(taken < Duration::from_secs(10), "{taken:?}");
    for _ in 0..2 {
        let found = it.until("the file is named", has_changed_files).await;
        let drift = found.status.drift.iter().find(|it| it.field == "files").unwrap();
        assert_eq!((drift.object.as_str(), drift.action), ("shop-web-1", DriftAction::Report), "{drift:#?}");
        assert!(
            drift.found.starts_with("/etc/evil added, by `docker exec sh -c 'touch it'` at 12:06:0"),
            "{drift:#?}"
        );
        assert_eq!(found.status.sync, SyncStatus::OutOfSync);
        assert_eq!(found.status.health, HealthStatus::Healthy, "{found:#?}");
        // The findings outlive the agent.
        it.crash();
        it.begin();
    }
    it.until("the file is named", has_changed_files).await;
    assert_eq!(it.writes(), writes, "{}", it.story());
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn revert_replaces_a_container_that_a_user_changed() {
    let it = of_policy(FilesystemDrift::Revert);
    it.synced_with_tip().await;
    minutes(6).await;
    let ids = |it: &Simulation| -> BTreeMap<String, ContainerId> {
        it.docker.observed(&app()).instances.into_values().map(|it| (it.name, it.id)).collect()
    };
    let before = ids(&it);
    it.hand(&visit("shop-web-1", "/etc/evil"));
    it.until("the file is named", has_changed_files).await;
    it.synced_with_tip().await;
    let after = ids(&it);
    let replaced: Vec<&String> =
        before.iter().filter(|(_, id)| !after.values().any(|it| it == *id)).map(|it| it.0).collect();
    assert_eq!(replaced, ["shop-web-1"], "{}", it.story());
    minutes(30).await;
    assert_eq!(ids(&it), after, "{}", it.story());
    // A client that changes the same thing again and again does not cause a restart each time.
    let writes = it.writes();
    for _ in 0..40 {
        let name = it
            .docker
            .observed(&app())
            .instances
            .into_values()
            .find(|it| it.instance.workload.as_str() == "db");
        it.hand(&visit(&name.unwrap().name, "/etc/evil"));
        sleep(Duration::from_secs(15)).await;
    }
    let fought = it
        .until("the fight is named", |it| it.status.conditions.iter().any(|it| it.kind == "RepeatedDrift"))
        .await;
    assert!(fought.status.conditions.iter().any(|it| it.message.contains("files")), "{fought:#?}");
    let made = it.writes() - writes;
    assert!(made < 40, "{made} writes\n{}", it.story());
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn files_written_by_the_container_itself_are_only_reported() {
    let it = of_policy(FilesystemDrift::Revert);
    it.synced_with_tip().await;
    it.hand(&write("shop-web-1", "/app/written-at-start"));
    minutes(12).await;
    assert!(it.status().unwrap().status.waits.is_empty(), "{:#?}", it.status());
    let writes = it.writes();
    it.hand(&write("shop-web-1", "/app/upload"));
    let is_told = |it: &Application| it.status.waits.iter().any(|it| it.reason == "WritesInside");
    let found = it.until("the commits that are not kept are named", is_told).await;
    let text = &found.status.waits[0].message;
    assert!(text.contains("/app/upload") && !text.contains("at-start"), "{text}");
    assert_eq!((found.status.sync, found.status.health), (SyncStatus::Synced, HealthStatus::Healthy));
    // An `exec` that only reads is not blamed for what the container writes before and after it.
    it.hand(&write("shop-web-1", "/app/before"));
    sleep(Duration::from_secs(3)).await;
    it.hand(&UserAction::Exec { name: "shop-web-1".into(), command: "ls".into(), files: Vec::new() });
    sleep(Duration::from_secs(3)).await;
    it.hand(&write("shop-web-1", "/app/after"));
    minutes(12).await;
    assert!(!has_changed_files(&it.status().unwrap()), "{:#?}", it.status());
    assert_eq!(it.writes(), writes, "{}", it.story());
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn files_in_containers_are_not_read_when_switched_off() {
    let it = of_policy(FilesystemDrift::Off);
    it.synced_with_tip().await;
    it.hand(&visit("shop-web-1", "/etc/evil"));
    minutes(30).await;
    assert_eq!(it.docker.file_scans(), 0);
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn containers_are_looked_into_seldom() {
    let it = of_policy(FilesystemDrift::Report);
    it.synced_with_tip().await;
    minutes(60).await;
    let passes = it.docker.file_scans();
    assert!((3 * 10..=3 * 13).contains(&passes), "{passes} looks into 3 containers in an hour");
    // A command every second does not make it a look every second.
    for _ in 0..300 {
        it.hand(&UserAction::Exec { name: "shop-db-1".into(), command: "check".into(), files: Vec::new() });
        sleep(Duration::from_secs(1)).await;
    }
    let looks = it.docker.file_scans() - passes;
    assert!(looks < 25, "{looks} looks in five minutes");
}

/// A generator of numbers that is the same for the same seed everywhere.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let it = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (it ^ (it >> 31)) % sides
    }
}

/// One thing that goes wrong, or a push.
async fn mishap(it: &mut Simulation, dice: &mut Dice) {
    let name = ["shop-web-1", "shop-web-2", "shop-db-1"][dice.roll(3) as usize].to_owned();
    let version = format!("web:{}", dice.roll(5));
    let db = format!("db:{}", dice.roll(2));
    match dice.roll(14) {
        0..=3 => drop(it.git.push(&web_and(&version, &db))),
        4 => it.docker.disconnect(),
        5 => it.docker.reconnect(),
        6 => it.docker.faults(|it| it.failing_calls = 2),
        7 => it.docker.faults(|it| it.lost_answers = 2),
        8 => it.docker.faults(|faults| {
            let _ = faults.unhealthy.insert(version);
        }),
        9 => it.docker.faults(|faults| {
            let _ = faults.exits.insert(db, (Duration::from_secs(3), 1));
        }),
        10 => it.docker.faults(|faults| {
            let _ = faults.pulls.insert(version, Duration::from_secs(70));
        }),
        11 => {
            it.docker.crash_after(1 + dice.roll(4) as u32);
            sleep(Duration::from_secs(dice.roll(90))).await;
            it.crash();
            if dice.roll(3) == 0 {
                it.store = Store::in_memory(it.clock).unwrap();
            }
            it.begin();
        }
        12 => it.git.down(dice.roll(2) == 0),
        _ => {
            let hand = match dice.roll(6) {
                0 => UserAction::Stop { name },
                1 => UserAction::Remove { name },
                2 => UserAction::Pause { name },
                3 => UserAction::Kill { name },
                4 => UserAction::Disconnect { name, network: "shop_default".into() },
                _ => UserAction::Rename { to: format!("{name}-mine"), name },
            };
            // It may not be there at this moment.
            let _ = it.docker.user_action(&app(), &hand);
        }
    }
}

async fn survive(seed: u64) {
    eprintln!("seed {seed}; to run it alone: SEED={seed}");
    let mut dice = Dice(seed);
    let mut it = Simulation::of(&web("web:0"));
    for _ in 0..25 {
        mishap(&mut it, &mut dice).await;
        sleep(Duration::from_millis(dice.roll(40_000))).await;
    }
    it.docker.reconnect();
    it.docker.faults(|it| *it = Default::default());
    it.git.down(false);
    // A lost store may have held a pin.
    minutes(6).await;
    it.handle().recover().await.unwrap();
    it.synced_with_tip().await;
    let writes = it.writes();
    minutes(30).await;
    assert_eq!(it.writes(), writes, "seed {seed}\n{}", it.story());
    assert_eq!(it.images().len(), 3, "seed {seed}\n{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn faults_in_any_order_end_in_the_wanted_state() {
    if let Ok(seed) = std::env::var("SEED") {
        return survive(seed.parse().unwrap()).await;
    }
    for seed in 0..30 {
        survive(seed).await;
    }
}

/// The version is part of the content.
fn built(version: u32) -> String {
    format!(
        "services:
  web:
    build: {{dockerfile_inline: \"FROM scratch\\nENV VERSION={version}\"}}
    restart: unless-stopped
    deploy: {{replicas: 2}}
  db: {{image: db:1, restart: unless-stopped}}
"
    )
}

#[tokio::test(start_paused = true)]
async fn a_build_holds_up_neither_healing_nor_a_newer_commit() {
    let it = Simulation::of(&built(1));
    it.synced_with_tip().await;
    let [first, db] = [it.images()[1].clone(), it.images()[0].clone()];
    assert!(first.starts_with("shop-web:"), "{first}");
    it.docker.faults(|faults| {
        let _ = faults.builds.insert("shop-web".into(), Duration::from_secs(3000));
    });
    it.push(&built(2)).await;
    let says = |it: &Application| it.status.workloads.values().any(|it| it.reason == "Building");
    it.until("it says what it does", says).await;
    minutes(1).await;
    it.hand(&UserAction::Stop { name: "shop-db-1".into() });
    it.runs_within(Duration::from_secs(1), &[&db, &first, &first]).await;
    it.docker.faults(|it| it.builds.clear());
    it.push(&built(3)).await;
    let taken = took(it.synced_with_tip()).await;
    assert!(taken < Duration::from_secs(30), "{taken:?}");
    let builds = || it.docker.transcript().iter().filter(|it| it.what.starts_with("build ")).count();
    assert_eq!(builds(), 2, "{}", it.story());
    // The image of the first commit is still here.
    it.push(&built(1)).await;
    it.synced_with_tip().await;
    assert_eq!((it.images(), builds()), (vec![db, first.clone(), first], 2), "{}", it.story());
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn a_build_that_fails_is_tried_again_ever_more_slowly() {
    let it = Simulation::of(&built(1));
    it.synced_with_tip().await;
    let before = it.images();
    it.docker.faults(|faults| {
        let _ = faults.unbuildable.insert("shop-web".into());
    });
    it.push(&built(2)).await;
    let waits = |it: &Application| it.status.waits.iter().any(|it| it.reason == "BuildFailed");
    let found = it.until("the build has failed", waits).await;
    let wait = &found.status.waits[0];
    assert!(wait.message.contains("returned a non-zero code") && wait.attempt == Some(1), "{wait:?}");
    minutes(20).await;
    let found = it.until("it waits", waits).await;
    let attempts = found.status.waits[0].attempt.unwrap();
    assert!((6..=10).contains(&attempts), "10 s, 20 s, … up to 5 min: {attempts}");
    assert_eq!(it.images(), before);
    it.docker.faults(|it| it.unbuildable.clear());
    it.synced_with_tip().await;
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn a_build_that_takes_too_long_is_given_up() {
    let it = Simulation::of(&built(1));
    it.docker.faults(|faults| {
        let _ = faults.builds.insert("shop-web".into(), Duration::from_hours(2));
    });
    minutes(30).await;
    let says =
        |it: &Application| it.status.workloads.values().any(|it| it.message.contains("not done within"));
    it.until("it is given up", says).await;
    it.docker.faults(|it| it.builds.clear());
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_while_it_builds_builds_again() {
    let mut it = Simulation::of(&built(1));
    it.docker.faults(|faults| {
        let _ = faults.builds.insert("shop-web".into(), Duration::from_mins(5));
    });
    minutes(3).await;
    it.crash();
    it.begin();
    minutes(3).await;
    assert!(!it.story().contains("build"), "{}", it.story());
    it.synced_with_tip().await;
    assert_eq!(it.images().len(), 3);
}

/// Signatures by Ada are valid, all others are not.
fn trusting_ada() -> Option<Verify> {
    Some(Verify { allowed_signers: vec!["Ada <a@b.c>".into()], ..Verify::default() })
}

pub(crate) fn is_refused(it: &Application) -> bool {
    it.status.conditions.iter().any(|it| it.kind == "Trusted" && it.status == ConditionStatus::False)
}

#[tokio::test(start_paused = true)]
async fn commit_without_a_trusted_signature_is_not_applied() {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings.verify = trusting_ada();
    it.begin();
    let good = it.tip();
    it.synced(&good).await;

    let bad = it.git.push_files("Eve <e@b.c>", &[("shop/compose.yaml", &web("evil:1"))]);
    let told = it.until("it is refused", is_refused).await;
    assert!(told.status.message.contains(&bad[..12]), "{}", told.status.message);
    assert!(told.status.message.contains("it is not signed"), "{}", told.status.message);
    assert_eq!(told.status.commit.as_ref().map(|commit| commit.id.to_string()), Some(good.clone()));
    // The last good one is enforced all the same, and an application cannot be taken away either.
    it.hand(&UserAction::Remove { name: "shop-web-1".into() });
    it.git.push_files("Eve <e@b.c>", &[("other/compose.yaml", &web("evil:1"))]);
    minutes(10).await;
    it.until("healed", |it| it.status.health == HealthStatus::Healthy).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    assert!(is_refused(&it.status().unwrap()));

    // Nor after a restart.
    it.crash();
    minutes(1).await;
    it.begin();
    it.until("refused again", is_refused).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    let events = it.store.newest_events(500, None).unwrap();
    assert!(events.iter().any(|it| it.reason == "CommitRefused" && it.message.contains(&bad[..12])));

    it.git.push(&web("web:2"));
    let synced = it.synced_with_tip().await;
    assert!(!is_refused(&synced) && synced.status.message.is_empty(), "{}", synced.status.message);
    it.check(&floors());
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_without_a_trusted_commit_and_status_shows_it() {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings.verify = Some(Verify { allowed_signers: vec!["Bob".into()], ..Verify::default() });
    it.begin();
    minutes(5).await;
    assert_eq!(it.images(), Vec::<String>::new());
    let said = it.handle().readiness().message;
    assert!(said.contains("is refused: it is not signed"), "{said}");
    assert!(it.status().is_none());
}

#[tokio::test(start_paused = true)]
async fn one_application_may_ask_for_more_than_its_repository() {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings.applications = vec![config::ApplicationSettings {
        path: "shop".into(),
        verify: trusting_ada(),
        ..config::ApplicationSettings::default()
    }];
    it.begin();
    let good = it.tip();
    it.synced(&good).await;
    for files in [&[("shop/compose.yaml", "services: {}")][..], &[("x", "")]] {
        it.git.push_files("Eve <e@b.c>", files);
        it.until("it is refused", is_refused).await;
        minutes(5).await;
        assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    }
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn rewritten_history_is_refused_until_accepted() {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings.require_fast_forward = true;
    it.begin();
    let good = it.tip();
    it.synced(&good).await;
    assert!(it.handle().request(app(), RequestKind::AcceptRewrite(None)).await.is_err(), "there is none");
    it.git.force_push(&web("web:4"));
    let told = it.until("it is refused", is_refused).await;
    assert!(told.status.message.contains("--accept-rewrite"), "{}", told.status.message);
    minutes(10).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    let sentence = |it: &Application| {
        let mut conditions = it.status.conditions.iter();
        conditions.find(|condition| condition.kind == "Trusted").map(|condition| condition.message.clone())
    };
    let seen = sentence(&told);
    let new = it.git.force_push(&web("web:2"));
    let told = it.until("another one is refused", |it| is_refused(it) && sentence(it) != seen).await;
    let outdated = it.handle().request(app(), RequestKind::AcceptRewrite(seen)).await;
    assert!(format!("{outdated:?}").contains("rewritten again since you looked"), "{outdated:?}");
    minutes(10).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"]);
    it.ask(RequestKind::AcceptRewrite(sentence(&told))).await;
    it.synced(&new).await;
    // Once: the branch goes on, and somebody sets it back to what was accepted.
    let next = it.git.push(&web("web:3"));
    it.git.set_back(&next, false);
    it.synced(&next).await;
    it.git.set_back(&new, true);
    it.until("it is refused again", is_refused).await;
    minutes(10).await;
    assert_eq!(it.images(), ["db:1", "web:3", "web:3"]);
}

#[tokio::test(start_paused = true)]
async fn commit_that_drops_most_workloads_waits_for_confirmation() {
    let services = |count: usize| {
        let of = |it: usize| format!("  s{it}: {{image: 'web:1'}}\n");
        format!("services:\n{}", (0..count).map(of).collect::<String>())
    };
    let mut it = Simulation::of(&services(6));
    it.synced_with_tip().await;
    assert!(it.handle().request(app(), RequestKind::Prune).await.is_err(), "nothing waits for it");
    it.push(&services(1)).await;
    let held = |it: &Application| it.status.waits.iter().any(|it| it.reason == "PruneHeld");
    let told = it.until("it waits", held).await;
    assert_eq!((told.status.sync, told.status.health), (SyncStatus::OutOfSync, HealthStatus::Healthy));
    assert!(told.status.message.contains("driftless sync shop --prune"), "{}", told.status.message);
    minutes(10).await;
    assert_eq!(it.images().len(), 6);
    let events = it.store.events(0, usize::MAX, None).unwrap();
    assert_eq!(events.iter().filter(|it| it.reason == "PruneHeld").count(), 1, "it is reported once");
    // A word means what was seen when it was said, not what somebody asked for in the meantime.
    let back =
        RequestKind::Rollback(Rollback { to: Some("1".into()), reason: String::new(), until: Until::Manual });
    let handle = it.handle();
    let ask = |kind| handle.request(app(), kind);
    let (_, back, prune) = tokio::join!(ask(RequestKind::Sync), ask(back), ask(RequestKind::Prune));
    back.unwrap();
    let refused = prune.unwrap_err().to_string();
    assert!(refused.contains("has changed since you looked"), "{refused}");
    it.ask(RequestKind::Resume).await;
    it.until("it waits", held).await;
    // Not by a new agent, and not by a word about another commit.
    it.crash();
    it.begin();
    it.until("it waits", held).await;
    it.push(&services(2)).await;
    it.until("the commit is another", |it| it.status.message.contains("removes 4 of 6")).await;
    let supposed = RequestKind::PlanAfter(Supposed::Prune);
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), supposed).await else { panic!("no plan") };
    let steps: Vec<&String> = plan.rounds.iter().flatten().collect();
    assert!(steps.iter().any(|step| step.contains("remove") && step.contains("s5")), "{steps:?}");
    assert_eq!(it.images().len(), 6);
    it.ask(RequestKind::Prune).await;
    it.synced_with_tip().await;
    assert_eq!(it.images().len(), 2);
    // The word was for that once.
    it.push(&services(8)).await;
    it.synced_with_tip().await;
    it.push(&services(2)).await;
    it.until("it waits again", held).await;
    assert_eq!(it.images().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn unrelated_commit_creates_no_revision_and_no_call() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    minutes(1).await;
    let (calls, revisions) = (it.docker.calls(), it.store.revisions(&app()).unwrap());
    // Within the five minutes between two full passes.
    for text in ["one", "two"] {
        let files = [("shop/compose.yaml", web("web:1")), ("README.md", text.to_owned())];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let id = it.git.push_files("Ada <a@b.c>", &files);
        let shown = it.synced(&id).await;
        assert_eq!(shown.spec.commit.as_ref().map(|commit| commit.id.as_str()), Some(id.as_str()));
    }
    assert_eq!(it.docker.calls(), calls);
    assert_eq!(it.store.revisions(&app()).unwrap(), revisions);
    it.push(&web("web:2")).await;
    it.synced_with_tip().await;
    assert_eq!(it.store.revisions(&app()).unwrap().len(), revisions.len() + 1);
}

fn ids(it: &Simulation, workload: &str) -> BTreeSet<String> {
    let all = it.docker.observed(&app());
    let mine = all.instances.values().filter(|it| it.instance.workload.as_str() == workload);
    mine.map(|it| it.id.to_string()).collect()
}

fn reasons(it: &Simulation) -> Vec<String> {
    it.store.newest_events(1000, Some(&app())).unwrap().into_iter().map(|it| it.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_a_workload_outlives_the_agent_and_is_no_drift() {
    let mut it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    let (web, db) = (ids(&it, "web"), ids(&it, "db"));
    it.ask(RequestKind::Restart("web".into())).await;
    let asked = it.status().unwrap();
    assert!(asked.status.observed_generation < asked.generation, "what is shown is not yet of the restart");
    it.crash();
    it.begin();
    let is_done = |now: &Application| {
        now.status.sync == SyncStatus::Synced && now.status.health == HealthStatus::Healthy
    };
    it.until("all of it is replaced", |now| is_done(now) && ids(&it, "web").is_disjoint(&web)).await;
    assert_eq!((ids(&it, "web").len(), ids(&it, "db")), (2, db), "what nobody asked for stays");
    let reasons = reasons(&it);
    assert!(reasons.contains(&"RestartRequested".to_owned()), "{reasons:?}");
    assert!(!reasons.contains(&"DriftDetected".to_owned()), "{reasons:?}");
    assert_eq!(it.store.revisions(&app()).unwrap().len(), 1, "it is no new revision");
    it.check(&floors());
    // It is over: nothing more is replaced.
    let (after, writes) = (ids(&it, "web"), it.writes());
    minutes(30).await;
    assert_eq!((ids(&it, "web"), it.writes()), (after, writes));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_instance_comes_back_and_a_held_rollout_waits() {
    let it = Simulation::of(&web("web:1"));
    it.synced_with_tip().await;
    let before = ids(&it, "web");
    it.ask(RequestKind::DeleteInstance(named("shop-web-1"))).await;
    it.until("another is there", |now| {
        now.status.sync == SyncStatus::Synced
            && now.status.health == HealthStatus::Healthy
            && ids(&it, "web") != before
    })
    .await;
    assert_eq!(ids(&it, "web").intersection(&before).count(), 1, "only the one");
    let told = reasons(&it);
    assert!(told.contains(&"Killing".to_owned()) && !told.contains(&"DriftDetected".to_owned()), "{told:?}");

    it.ask(RequestKind::Pause("web".into())).await;
    let held = ids(&it, "web");
    let commit = it.push(&web_and("web:2", "db:2")).await;
    it.until("the other workload is at the new commit", |_| it.images() == ["db:2", "web:1", "web:1"]).await;
    minutes(10).await;
    assert_eq!(ids(&it, "web"), held);
    let refused = it.handle().request(app(), RequestKind::Restart("web".into())).await.unwrap_err();
    assert_eq!(refused.to_string(), "can't restart paused deployment \"web\" (run rollout resume first)");
    it.ask(RequestKind::Unpause("web".into())).await;
    it.synced(&commit).await;
    assert_eq!(it.images(), ["db:2", "web:2", "web:2"]);
    for (kind, why) in [
        (RequestKind::Restart("nothing".into()), "shop has no workload `nothing`"),
        (RequestKind::Unpause("web".into()), "deployment.apps \"web\" is not paused"),
        (RequestKind::DeleteInstance(named("pihole")), "shop has no instance `pihole` of its own"),
    ] {
        assert_eq!(it.handle().request(app(), kind).await.unwrap_err().to_string(), why);
    }
    it.ask(RequestKind::Suspend).await;
    let refused = it.handle().request(app(), RequestKind::Restart("web".into())).await.unwrap_err();
    assert!(refused.to_string().starts_with("shop is suspended"), "{refused}");
}

fn named(name: &str) -> InstanceName {
    InstanceName { name: name.to_owned(), namespace: None }
}

#[tokio::test(start_paused = true)]
async fn delete_pod_uses_the_given_namespace() {
    let set = |namespace: &str| {
        format!(
            "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db, namespace: {namespace}}}
spec:
  serviceName: db
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec: {{containers: [{{name: db, image: \"db:1\"}}]}}
"
        )
    };
    let it = Simulation::prepared("services: {}\n", Clock::starting_at(NOON));
    it.git.push_files("Ada <a@b.c>", &[("shop/db.yaml", &format!("{}---\n{}", set("one"), set("two")))]);
    let it = it.begun();
    it.synced_with_tip().await;
    let (one, two) = (ids(&it, "db-0.one"), ids(&it, "db-0.two"));
    assert_eq!((one.len(), two.len()), (1, 1));
    let request = RequestKind::DeleteInstance(named("db-0"));
    let refused = it.handle().request(app(), request).await.unwrap_err().to_string();
    assert!(refused.starts_with("there are several pods `db-0`, of db-0."), "{refused}");
    let namespace = Some("two".to_owned());
    it.ask(RequestKind::DeleteInstance(InstanceName { namespace, ..named("db-0") })).await;
    it.until("another is there", |now| {
        now.status.health == HealthStatus::Healthy
            && !ids(&it, "db-0.two").is_empty()
            && ids(&it, "db-0.two") != two
    })
    .await;
    assert_eq!(ids(&it, "db-0.one"), one);
}
