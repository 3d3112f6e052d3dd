//! The agent in a container of the engine it works on: the files it hands to containers are found on the host, what
//! the host cannot see is refused with the mount to add, and it updates its own container.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

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

/// The image of the agent with other lines at the end of its Dockerfile.
fn variant(site: &Site, tag: &str, lines: &str) -> String {
    let base = image(site);
    let folder = site.directory().join(tag);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("Dockerfile"), format!("FROM {base}\n{lines}\n")).unwrap();
    let image = format!("driftless-e2e/agent:{tag}");
    site.docker.run(&["build", "-q", "-t", &image, &folder.display().to_string()]);
    image
}

/// An agent that `docker compose` started and that manages itself from Git.
struct SelfManaged {
    site: Site,
    agent: Agent,
    /// The Compose file in Git, with `IMAGE` for the image of the agent.
    text: String,
    _leftovers: Leftovers,
}

impl SelfManaged {
    async fn start(test: &str) -> Self {
        let compose = Compose::v2();
        let policy = serde_json::json!({ "progressDeadline": "20s" });
        let site = Site::with(test, Settings { adopt: "auto", more: Some(policy), ..Settings::default() });
        let mut agent = Agent::new(&site.directory(), &site.app, &site.server.url(), &site.settings);
        let directory = site.directory().display().to_string();
        let text = format!(
            "services:
  agent:
    image: IMAGE
    network_mode: host
    restart: unless-stopped
    command: [run, --config, {directory}/driftless.yaml]
    volumes: ['/var/run/docker.sock:/var/run/docker.sock', '{directory}:{directory}', '/dev/shm:/dev/shm']
"
        );
        let first = text.replace("IMAGE", &image(&site));
        let folder = site.directory().join("by-hand");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("compose.yaml"), &first).unwrap();
        let commit = site.compose(&first);
        let leftovers = Leftovers { docker: site.docker.clone(), project: site.app.clone() };
        compose.run(&folder, &site.app, &["up", "-d"]);
        agent.ready().await;
        agent.settled(&commit).await;
        Self { site, agent, text, _leftovers: leftovers }
    }

    fn name(&self) -> String {
        self.site.name_of("agent", 1)
    }

    fn running(&self) -> crate::harness::Container {
        self.site.docker.container(&self.name()).unwrap()
    }

    /// Commits another image of the agent, and asks for a sync.
    async fn update_to(&self, image: &str) -> String {
        let commit = self.site.compose(&self.text.replace("IMAGE", image));
        self.agent.sync().await;
        commit
    }

    /// Waits until the agent runs this image, and no container of the update is left.
    async fn runs(&self, image: &str) {
        let name = self.name();
        self.site
            .until("one container is left", |docker| {
                let is_left = |suffix: &str| docker.container(&format!("{name}-{suffix}")).is_some();
                let found = docker.container(&name)?;
                let is_alone = !["next", "previous", "update"].into_iter().any(is_left);
                (is_alone && found.state() == "running" && found.text("/Config/Image") == image).then_some(())
            })
            .await;
    }
}

#[tokio::test]
async fn agent_in_a_container_updates_itself_from_git() {
    let mut managed = SelfManaged::start("self-update").await;
    let before = managed.running();
    let next = variant(&managed.site, "2.0", "LABEL generation=2");
    let commit = managed.update_to(&next).await;
    managed.runs(&next).await;
    assert_ne!(managed.running().id(), before.id());
    managed.agent.ready().await;
    managed.agent.settled(&commit).await;
    managed.agent.event("the update is reported", |event| event.reason == "AgentUpdated").await;
    let started = managed.running().started();
    managed.agent.sync().await;
    managed.agent.settled(&commit).await;
    assert_eq!(managed.running().started(), started, "it is not replaced again");
}

#[tokio::test]
async fn agent_goes_back_from_an_image_that_never_gets_ready() {
    let mut managed = SelfManaged::start("self-back").await;
    let before = managed.running();
    let broken = variant(&managed.site, "broken", "ENV DRIFTLESS_DOCKER_HOST=unix:///nowhere.sock");
    managed.update_to(&broken).await;
    let previous = format!("{}-previous", managed.name());
    managed.site.until("the new version is tried", |docker| docker.container(&previous)).await;
    managed.runs(&image(&managed.site)).await;
    assert_eq!(managed.running().id(), before.id());
    managed.agent.ready().await;
    let is_failed = |application: &driftless_model::Application| {
        application
            .status
            .waits
            .iter()
            .any(|it| it.reason == "OwnUpdateFailed" && it.message.contains("not ready within 20 s"))
    };
    managed.agent.until("it says why", is_failed).await;
    managed.agent.event("going back is reported", |event| event.reason == "AgentUpdateFailed").await;
    let started = managed.running().started();
    managed.agent.sync().await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    managed.agent.until("it still says why", is_failed).await;
    assert_eq!(managed.running().started(), started, "it is not tried again");
    // Another image is.
    let next = variant(&managed.site, "2.0", "LABEL generation=2");
    let commit = managed.update_to(&next).await;
    managed.runs(&next).await;
    managed.agent.ready().await;
    managed.agent.settled(&commit).await;
}

#[tokio::test]
async fn update_of_the_agent_survives_a_killed_helper() {
    let mut managed = SelfManaged::start("self-kill").await;
    let next = variant(&managed.site, "2.0", "LABEL generation=2");
    let commit = managed.site.compose(&managed.text.replace("IMAGE", &next));
    let before = managed.running().id();
    managed.agent.sync().await;
    let (helper, docker) = (format!("{}-update", managed.name()), managed.site.docker.clone());
    let mut kills = 0;
    // At several moments of the update.
    while docker.container(&before).is_some() && kills < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let process = |docker: &crate::harness::Docker| {
            docker.container(&helper).map(|it| it.number("/State/Pid")).filter(|it| *it > 0)
        };
        let Some(found) = process(&docker) else { continue };
        tokio::time::sleep(std::time::Duration::from_millis(500 * kills)).await;
        let killed = Command::new("kill").args(["-9", &found.to_string()]).status().unwrap();
        kills += u64::from(killed.success());
    }
    assert!(kills > 0);
    managed.runs(&next).await;
    managed.agent.ready().await;
    managed.agent.settled(&commit).await;
}
