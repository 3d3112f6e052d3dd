//! The agent in a container of the engine it works on: the files it hands to containers are found on the host, what
//! the host cannot see is refused with the mount to add, and it does not saw off the branch it sits on.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use driftless_model::SyncStatus;

use crate::harness::{Agent, Compose, Leftovers, Settings, Site, images};

/// The program and the libraries it is linked with, as an image.
fn image(site: &Site) -> String {
    static MADE: Mutex<bool> = Mutex::new(false);
    let mut is_made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = "driftless-e2e/agent:1.0";
    if !*is_made {
        let root = site.directory().join("root");
        let program = env!("CARGO_BIN_EXE_driftless");
        fs::create_dir_all(root.join("tmp")).unwrap();
        let stripped = Command::new("strip").args(["-o"]).arg(root.join("driftless")).arg(program).status();
        if !stripped.is_ok_and(|it| it.success()) {
            fs::copy(program, root.join("driftless")).unwrap();
        }
        let linked = Command::new("ldd").arg(program).output().unwrap();
        for library in
            String::from_utf8_lossy(&linked.stdout).split_whitespace().filter(|it| it.starts_with('/'))
        {
            let target = root.join(library.trim_start_matches('/'));
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(library, target).unwrap();
        }
        let dockerfile = "FROM scratch\nCOPY . /\nENTRYPOINT [\"/driftless\"]\nSTOPSIGNAL SIGKILL\n";
        fs::write(root.join("Dockerfile"), dockerfile).unwrap();
        site.docker.run(&["build", "-q", "-t", image, &root.display().to_string()]);
        *is_made = true;
    }
    image.to_owned()
}

/// An agent in a container, by the name of it.
struct Contained {
    agent: Agent,
    name: String,
    /// Folders of the host. Inside the container they have other names.
    state: PathBuf,
    runtime: PathBuf,
}

impl Contained {
    async fn start(site: &mut Site, with_state: bool) -> Self {
        Self::start_on(site, with_state, "host").await
    }

    async fn start_on(site: &mut Site, with_state: bool, network: &str) -> Self {
        let image = image(site);
        let directory = site.directory();
        let agent = Agent::new(&directory, &site.app, &site.server.url(), &site.settings);
        let name = site.foreign("agent");
        let (state, runtime) =
            (directory.join("on-host"), Path::new("/dev/shm").join(format!("{name}-host")));
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(&runtime).unwrap();
        let configuration = directory.join("driftless.yaml").display().to_string();
        let mut words: Vec<String> =
            ["run", "-d", "--name", &name, "--network", network].map(str::to_owned).to_vec();
        let mut mount = |what: String| words.extend(["-v".to_owned(), what]);
        mount("/var/run/docker.sock:/var/run/docker.sock".to_owned());
        mount(format!("{configuration}:{configuration}:ro"));
        mount(format!("{}:/dev/shm/{}", runtime.display(), site.app));
        if with_state {
            mount(format!("{}:{}", state.display(), agent.state_dir().display()));
        }
        words.extend([image, "run".to_owned(), "--config".to_owned(), configuration]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        site.docker.run(&words);
        let mut contained = Self { agent, name, state, runtime };
        contained.agent.ready().await;
        contained
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let log = Command::new("docker").args(["logs", "--tail", "60", &self.name]).output();
        if let (true, Ok(log)) = (std::thread::panicking(), log) {
            eprintln!("{}{}", String::from_utf8_lossy(&log.stdout), String::from_utf8_lossy(&log.stderr));
        }
        let _ = Command::new("docker").args(["rm", "-f", &self.name]).output();
        let _ = fs::remove_dir_all(&self.runtime);
    }
}

fn project(image: &str) -> String {
    format!(
        "services:
  web:
    image: {image}
    volumes: ['./page.html:/page.html:ro', './data:/data']
    secrets: [token]
    stop_grace_period: 1s
secrets:
  token: {{file: ./token}}
"
    )
}

fn commit(site: &Site) -> String {
    let text = project(&images::placeholder());
    let files = [("compose.yaml", text.as_str()), ("page.html", "hello\n"), ("token", "s3cr3t\n")];
    let files: Vec<(String, &str)> = files.iter().map(|(name, text)| (site.path(name), *text)).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    site.repository.commit(&files)
}

#[tokio::test]
async fn files_of_an_agent_in_a_container_exist_on_the_host() {
    let mut site = Site::new("contained");
    let commit = commit(&site);
    let contained = Contained::start(&mut site, true).await;
    contained.agent.settled(&commit).await;
    let web = site.container("web");
    let sources: Vec<String> = web.0["Mounts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["Type"] == "bind")
        .map(|it| it["Source"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sources.len(), 3, "{sources:?}");
    let below = |folder: &Path| sources.iter().filter(|it| Path::new(it).starts_with(folder)).count();
    assert_eq!((below(&contained.state), below(&contained.runtime)), (2, 1), "{sources:?}");
    let read = |path: &str| site.docker.run(&["exec", &web.id(), "/bin/busybox", "cat", path]);
    assert_eq!((read("/page.html"), read("/run/secrets/token")), ("hello".to_owned(), "s3cr3t".to_owned()));
    // The agent reads back what it asked for: nothing is recreated.
    contained.agent.sync().await;
    contained.agent.settled(&commit).await;
    assert_eq!(site.container("web").started(), web.started());
}

#[tokio::test]
async fn agent_in_a_shared_network_finds_its_own_container() {
    let mut site = Site::new("guest");
    let commit = commit(&site);
    let host = site.foreign("network");
    site.docker.run(&["run", "-d", "--name", &host, "--network", "host", &images::placeholder()]);
    let contained = Contained::start_on(&mut site, true, &format!("container:{host}")).await;
    contained.agent.settled(&commit).await;
    let web = site.container("web");
    let read = |path: &str| site.docker.run(&["exec", &web.id(), "/bin/busybox", "cat", path]);
    assert_eq!((read("/page.html"), read("/run/secrets/token")), ("hello".to_owned(), "s3cr3t".to_owned()));
}

#[tokio::test]
async fn path_unknown_to_the_host_is_refused_with_the_mount() {
    let mut site = Site::new("hidden");
    commit(&site);
    let contained = Contained::start(&mut site, false).await;
    let configured = contained.agent.state_dir().display().to_string();
    contained
        .agent
        .until("it names the mount", |application| {
            application.status.message.contains("on none of its mounts")
                && application.status.message.contains(&format!("`-v {configured}:{configured}`"))
        })
        .await;
    assert!(site.of("web").is_empty(), "nothing was made");
    assert!(!contained.agent.state_dir().exists(), "and no empty folder on the host");
}

#[tokio::test]
async fn an_agent_does_not_replace_the_container_it_runs_in() {
    let compose = Compose::v2();
    let site = Site::with("self", Settings { adopt: "auto", ..Settings::default() });
    let image = image(&site);
    let mut agent = Agent::new(&site.directory(), &site.app, &site.server.url(), &site.settings);
    let directory = site.directory().display().to_string();
    let text = format!(
        "services:
  agent:
    image: {image}
    network_mode: host
    command: [run, --config, {directory}/driftless.yaml]
    environment: {{GENERATION: '1'}}
    volumes: ['/var/run/docker.sock:/var/run/docker.sock', '{directory}:{directory}', '/dev/shm:/dev/shm']
  other:
    image: {}
    environment: {{GENERATION: '1'}}
    stop_grace_period: 1s
",
        images::placeholder()
    );
    let folder = site.directory().join("by-hand");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("compose.yaml"), &text).unwrap();
    let commit = site.compose(&text);
    let _leftovers = Leftovers { docker: site.docker.clone(), project: site.app.clone() };
    compose.run(&folder, &site.app, &["up", "-d"]);
    let own = site.docker.container(&site.name_of("agent", 1)).unwrap();
    agent.ready().await;
    agent.settled(&commit).await;
    site.compose(&text.replace("GENERATION: '1'", "GENERATION: '2'"));
    agent.sync().await;
    agent
        .until("it says that it does not do that to itself", |application| {
            application.status.sync == SyncStatus::OutOfSync
                && application
                    .status
                    .waits
                    .iter()
                    .any(|it| it.reason == "Own" && it.message.contains("own container"))
        })
        .await;
    site.until("the other one is replaced", |docker| {
        let other = docker.container(&site.name("other"))?;
        (other.variable("GENERATION").as_deref() == Some("2") && other.state() == "running").then_some(())
    })
    .await;
    let still = site.docker.container(&own.id()).unwrap();
    assert_eq!((still.state(), still.started()), ("running".to_owned(), own.started()));
}
