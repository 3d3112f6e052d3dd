//! The base of every end-to-end test: a real Git server, a real Docker Engine and the real agent, all under
//! names of its own, so that tests run side by side.
//!
//! Tests await states and never assert on time; [`PATIENCE`] only says when to give up. On failure the agent's
//! log is printed and the test's folder is kept.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io::Write as _,
    net::TcpListener,
    path::PathBuf,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

mod agent;
mod compose;
mod docker;
mod engine;
mod git;
pub mod images;
mod load;
mod managers;
pub mod manifests;
mod podman;
mod proxy;
pub mod registry;
mod ssh;
mod swarm;

pub use agent::{Agent, Settings, is_settled};
pub use compose::{Compose, Leftovers};
pub use docker::{Container, Docker};
pub use engine::Engine;
pub use git::{GitServer, Repository, git};
pub use load::{Load, request};
pub use managers::{Managers, Node};
pub use podman::Podman;
pub use proxy::Counting;
pub use registry::Registry;
pub use ssh::SshServer;
pub use swarm::Swarm;

/// The longest wait for a state before the test fails. Only a broken agent, or a very slow machine, reaches it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Ends a test that this machine cannot run, with a line in the output. It fails if `DRIFTLESS_NO_SKIP`, a list, names what the
/// machine needs for it: then the caller has promised that it is there.
#[track_caller]
pub fn skip(need: &str, why: &str) {
    let promised = std::env::var("DRIFTLESS_NO_SKIP").unwrap_or_default();
    assert!(!promised.split(',').any(|name| name == need), "DRIFTLESS_NO_SKIP names {need}, but {why}");
    // Without the capture of the output, which hides that of a test that passes.
    std::io::stderr().write_all(format!("skipped, {why}\n").as_bytes()).unwrap();
}

/// One repository with one application in it, and the containers of the application.
pub struct Site {
    /// Unique: `e2e-TEST-RANDOM`.
    pub app: String,
    pub repository: Repository,
    pub server: GitServer,
    pub docker: Docker,
    pub settings: Settings,
    /// Names of further applications, and of foreign containers and networks, to be removed in the end.
    applications: Vec<String>,
    foreign: Vec<String>,
    directory: tempfile::TempDir,
}

impl Site {
    pub fn new(test: &str) -> Self {
        Self::with(test, Settings::default())
    }

    pub fn with(test: &str, settings: Settings) -> Self {
        let directory = tempfile::Builder::new().prefix("driftless-e2e-").tempdir().unwrap();
        let repository = Repository::new(directory.path());
        let server = GitServer::start(&directory.path().join("repositories"));
        let docker = Docker { host: settings.docker_host.clone() };
        let app = unique(test);
        let applications = vec![app.clone()];
        Self { app, repository, server, docker, settings, applications, foreign: Vec::new(), directory }
    }

    /// Starts an agent on the repository.
    pub async fn agent(&self) -> Agent {
        let url = self.settings.url.clone().unwrap_or_else(|| self.server.url());
        Agent::start(self.directory.path(), &self.app, &url, &self.settings).await
    }

    /// Commits this as the application's Compose file.
    pub fn compose(&self, text: &str) -> String {
        self.repository.commit(&[(&self.path("compose.yaml"), text)])
    }

    /// Commits a Compose file, starts an agent and waits until all is well.
    pub async fn running(&self, compose: &str) -> Agent {
        let commit = self.compose(compose);
        let agent = self.agent().await;
        agent.settled(&commit).await;
        agent
    }

    /// A file's path in the repository, inside the application's folder.
    pub fn path(&self, file: &str) -> String {
        format!("sites/{}/{file}", self.app)
    }

    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// The name of the one container of a Compose service: a start-first update puts it in another slot.
    pub fn name(&self, service: &str) -> String {
        self.of(service).first().map_or_else(|| self.name_of(service, 1), Container::name)
    }

    /// All containers of a Compose service.
    pub fn of(&self, service: &str) -> Vec<Container> {
        let mut found = self.docker.containers(&self.app);
        found.retain(|it| it.label(driftless_model::label::WORKLOAD) == service);
        found
    }

    /// The name that Compose gives to a replica.
    pub fn name_of(&self, service: &str, number: u32) -> String {
        format!("{}-{service}-{number}", self.app)
    }

    /// `docker inspect` of the one container of a Compose service.
    #[track_caller]
    pub fn container(&self, service: &str) -> Container {
        let name = self.name(service);
        self.docker.container(&name).unwrap_or_else(|| panic!("there is no container {name}"))
    }

    /// A name for a container or network that is not the agent's; removed in the end.
    pub fn foreign(&mut self, purpose: &str) -> String {
        let name = format!("{}-foreign-{purpose}", self.app);
        self.foreign.push(name.clone());
        name
    }

    /// A container or network of any name that is not the agent's, by its id; removed in the end.
    pub fn remove_too(&mut self, id: &str) {
        self.foreign.push(id.to_owned());
    }

    /// A further application of this site, to be removed in the end.
    pub fn also(&mut self, purpose: &str) -> String {
        let name = unique(purpose);
        self.applications.push(name.clone());
        name
    }

    /// Waits until a container has said exactly this.
    pub async fn logged(&self, container: &Container, text: &str) {
        let says = |docker: &Docker| {
            let output = docker.command(&["logs", &container.id()]).output().expect("docker can be run");
            (output.stdout == text.as_bytes()).then_some(())
        };
        self.until(&format!("{} to say {text:?}", container.name()), says).await;
    }

    /// Waits until the engine shows what is expected.
    pub async fn until<T>(&self, what: &str, look: impl Fn(&Docker) -> Option<T>) -> T {
        wait_until(what, || look(&self.docker)).await
    }

    /// Waits until the one container of a service runs, and is not the one of this id.
    pub async fn replaced(&self, service: &str, old: &str) -> Container {
        self.until(&format!("{service} was replaced and runs"), |_| {
            let found = self.of(service);
            let [only] = found.as_slice() else { return None };
            (only.id() != old && only.state() == "running").then(|| only.clone())
        })
        .await
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for app in &self.applications {
            if std::thread::panicking() {
                let filter = format!("label=driftless.application={app}");
                eprintln!("{}", self.docker.attempt(&["ps", "-a", "--filter", &filter]).unwrap_or_default());
            }
            self.docker.remove_application(app);
        }
        for name in &self.foreign {
            let _ = self.docker.attempt(&["rm", "-f", "-v", name]);
            let _ = self.docker.attempt(&["network", "rm", name]);
        }
        if std::thread::panicking() {
            self.directory.disable_cleanup(true);
            eprintln!("the files of the test are kept in {}", self.directory.path().display());
        }
    }
}

/// Waits until there is something to see. Polls the state; never asserts on time.
pub async fn wait_until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    wait_within(PATIENCE, what, look).await
}

/// Waits until there is something to see, and gives up after this time.
pub async fn wait_within<T>(patience: Duration, what: &str, look: impl Fn() -> Option<T>) -> T {
    let began = tokio::time::Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < patience, "not within {patience:?}: {what}");
        tokio::time::sleep(pause_after(began.elapsed())).await;
    }
}

/// The pause before another look at something that is awaited for this long. Looks take much of the machine's time: the longer
/// the wait, the fewer.
fn pause_after(waited: Duration) -> Duration {
    (waited / 10).clamp(Duration::from_millis(50), Duration::from_millis(200))
}

/// A port of the loopback device that nobody holds, below those that the kernel hands out by itself.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = u16::try_from(std::process::id() % 80).expect("less than 80") * 100;
    loop {
        let port = 20_000 + offset + NEXT.fetch_add(1, Ordering::Relaxed) % 4_000;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// `e2e-PURPOSE-1f3a`: what everything of one test is named after.
fn unique(purpose: &str) -> String {
    format!("e2e-{purpose}-{:04x}", random() & 0xffff)
}

/// Different in each call and each run.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
