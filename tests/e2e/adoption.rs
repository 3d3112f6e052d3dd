//! Projects that the real Docker Compose has started: nothing of them is touched before somebody says so, then
//! what is as Git says keeps running, and all of it is looked after from there on. And the other way round: Docker
//! Compose works on what we have started.

use std::{fs, path::PathBuf};

use driftless_model::{Application, HealthStatus, SyncStatus};
use serde_json::json;

use crate::harness::{
    Agent, Compose, Container, Counting, Leftovers, Settings, Site, images, is_settled, skip,
};

/// Three services, a volume and a network, with what differs between the two generations of Compose in labels,
/// names and network settings.
fn shop(image: &str) -> String {
    format!(
        "services:
  web:
    image: {image}
    environment: {{GREETING: hello, PORT: \"8080\"}}
    depends_on: [db]
    networks: [front, default]
    restart: unless-stopped
    stop_grace_period: 1s
  db:
    image: {image}
    command: [postgres, -c, max_connections=10]
    volumes: ['data:/var/lib/data', '/tmp:/host:ro']
    mem_limit: 64m
    labels: {{team: shop}}
    stop_grace_period: 1s
  worker:
    image: {image}
    deploy: {{replicas: 2}}
    cap_drop: [NET_RAW]
    init: true
    stop_grace_period: 1s
networks:
  front: {{}}
volumes:
  data: {{}}
"
    )
}

struct Scene {
    site: Site,
    compose: Compose,
    folder: PathBuf,
    text: String,
    _leftovers: Leftovers,
}

impl Scene {
    /// Starts the project with Docker Compose; Git has the same file.
    fn start(test: &str, compose: Compose, adopt: &'static str) -> Self {
        let site = Site::with(test, Settings { adopt, ..Settings::default() });
        let text = shop(&images::placeholder());
        let folder = site.directory().join(&site.app);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("docker-compose.yml"), format!("version: '2.4'\n{text}")).unwrap();
        let leftovers = Leftovers { docker: site.docker.clone(), project: site.app.clone() };
        compose.run(&folder, &site.app, &["up", "-d", "--scale", "worker=2"]);
        site.compose(&text);
        Self { site, compose, folder, text, _leftovers: leftovers }
    }

    /// Everything of the project, by id.
    fn all(&self) -> Vec<Container> {
        let filter = format!("label=com.docker.compose.project={}", self.site.app);
        let ids = self.site.docker.run(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
        let mut all: Vec<Container> = ids.lines().filter_map(|it| self.site.docker.container(it)).collect();
        all.sort_by_key(Container::id);
        all
    }

    fn ids(&self) -> Vec<(String, String)> {
        self.all().iter().map(|it| (it.id(), it.started())).collect()
    }

    async fn waits_for_a_word(&self, agent: &Agent) {
        agent
            .until("it asks before it touches anything", |application| {
                application.status.sync == SyncStatus::OutOfSync
                    && application.status.health == HealthStatus::Suspended
                    && application.status.message.contains(&format!("driftless adopt {}", self.site.app))
            })
            .await;
    }

    async fn adopted(&self, agent: &Agent) -> Vec<String> {
        let answer = agent.ask("adopt", json!({})).await;
        serde_json::from_value(answer["adopted"].clone()).unwrap_or_default()
    }
}

#[tokio::test]
async fn compose_2_project_is_adopted_on_request_without_restart() {
    let compose = Compose::v2();
    taken_over("adopt2", compose).await;
}

#[tokio::test]
async fn compose_1_project_is_adopted_on_request_without_restart() {
    let Some(compose) = Compose::v1() else {
        return skip("compose-1", "there is no Docker Compose 1 here: scripts/test-compose.sh");
    };
    taken_over("adopt1", compose).await;
}

async fn taken_over(test: &str, compose: Compose) {
    let scene = Scene::start(test, compose, "ask");
    let before = scene.ids();
    assert_eq!(before.len(), 4);
    let mut agent = scene.site.agent().await;
    scene.waits_for_a_word(&agent).await;
    let (status, preview) =
        agent.get(&format!("/api/v1/applications/{}/plan", scene.site.app)).await.expect("the agent answers");
    assert_eq!(status, 200, "{preview}");
    let adoption = preview["adoption"].to_string();
    assert!(adoption.contains("keeps running") && !adoption.contains("replaced"), "{preview:#}");
    assert_eq!(scene.ids(), before, "looking touches nothing");
    let events = agent.events().await;
    assert!(events.iter().all(|event| event.reason != "SyncStarted"), "{events:#?}");
    let log = agent.log();
    assert!(!log.contains("revision begun") && !log.contains("applying"), "{log}");

    let said = scene.adopted(&agent).await;
    assert!(said.len() >= 6, "{said:#?}");
    let commit = scene.site.repository.head();
    agent.settled(&commit).await;
    assert_eq!(scene.ids(), before, "{said:#?}");
    let names: Vec<String> = scene.all().iter().map(Container::name).collect();
    let expected = |it: &str| names.contains(&format!("{}-{it}", scene.site.app));
    assert!(["web-1", "db-1", "worker-1", "worker-2"].into_iter().all(expected), "{names:?}");
    assert!(scene.adopted(&agent).await.is_empty(), "the second time there is nothing to take over");

    // Only the agent's record tells that they are ours. Who looks without it compares them all the same, and says so.
    let (repo, state) =
        (scene.site.repository.bare.display().to_string(), agent.state_dir().display().to_string());
    let runtime = agent.runtime.display().to_string();
    let docker =
        scene.site.settings.docker_host.clone().unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
    let mut words = vec!["drift", "--docker", &docker, "--repo", &repo, "--path", "sites"];
    words.extend(["--state-dir", &state, "--runtime-dir", &runtime]);
    let looked = agent.command(&words).output().unwrap();
    let told = String::from_utf8_lossy(&looked.stdout);
    assert_eq!(looked.status.code(), Some(0), "{told}{}", String::from_utf8_lossy(&looked.stderr));
    assert!(told.contains("created by Docker Compose: ") && told.contains("Ask the agent"), "{told}");

    // It is remembered, and looked after.
    agent.restart().await;
    agent.settled(&commit).await;
    let web = scene.site.docker.container(&scene.site.name_of("web", 1)).unwrap();
    scene.site.docker.run(&["stop", "-t", "0", &web.id()]);
    scene
        .site
        .until("the adopted container runs again", |application| {
            application
                .container(&web.id())
                .filter(|it| it.state() == "running" && it.started() != web.started())
        })
        .await;

    // A commit rolls exactly what it changes.
    let changed = scene.site.compose(&scene.text.replace("hello", "good morning"));
    agent.deployed(&changed).await;
    let replaced = scene.all();
    assert!(replaced.iter().all(|it| it.id() != web.id()), "the old one is gone");
    let kept = before.iter().filter(|(id, _)| replaced.iter().any(|it| it.id() == *id)).count();
    assert_eq!(kept, 3);
    let web = scene.site.container("web");
    assert_eq!(web.variable("GREETING").as_deref(), Some("good morning"));

    // Workloads that Git drops are removed; containers that Git never had stay.
    let smaller = scene.site.compose(&scene.text.replace("replicas: 2", "replicas: 1"));
    agent.deployed(&smaller).await;
    assert_eq!(scene.all().len(), 3);
    drop(scene.compose);
}

#[tokio::test]
async fn files_changed_in_adopted_containers_are_reported() {
    let compose = Compose::v2();
    let scene = Scene::start("adopt-files", compose, "ask");
    let mut agent = scene.site.agent().await;
    scene.waits_for_a_word(&agent).await;
    agent.act_on_page("adopt", "The objects that it found running were adopted.").await;
    agent.settled(&scene.site.repository.head()).await;
    let before = scene.ids();
    let files = |application: &Application| {
        let files = application.status.drift.iter().find(|drift| drift.field == "files");
        files.map(|drift| (drift.object.clone(), drift.found.clone()))
    };
    let change = |service: &str, file: &str| {
        let name = scene.site.name_of(service, 1);
        scene.site.docker.run(&["exec", &name, "/bin/busybox", "touch", file]);
        name
    };
    let web = change("web", "/changed");
    let application = agent.until("the file is named", |application| files(application).is_some()).await;
    let (object, found) = files(&application).unwrap();
    assert_eq!(object, web);
    assert!(found.starts_with("/changed added, by `docker exec /bin/busybox touch /changed` at "), "{found}");
    assert_eq!(application.status.sync, SyncStatus::OutOfSync);

    // In another life of the agent as well, in another container.
    agent.restart().await;
    let db = change("db", "/another");
    let is_named = |application: &Application| {
        let mut drifts = application.status.drift.iter();
        drifts.any(|drift| drift.object == db && drift.found.contains("/another added"))
    };
    agent.until("the second file is named", is_named).await;
    assert_eq!(scene.ids(), before, "they are left as they are");
}

#[tokio::test]
async fn adoption_lists_differences_and_replaces_only_these() {
    let compose = Compose::v2();
    let scene = Scene::start("adoptdiff", compose, "ask");
    let before = scene.ids();
    let other = scene.text.replace("max_connections=10", "max_connections=20").replace("64m", "96m");
    let commit =
        scene.site.compose(&other.replace("GREETING: hello, ", "GREETING: hello, TOKEN: s3cr3t-value, "));
    let agent = scene.site.agent().await;
    scene.waits_for_a_word(&agent).await;
    let (_, preview) =
        agent.get(&format!("/api/v1/applications/{}/plan", scene.site.app)).await.expect("the agent answers");
    let adoption = preview["adoption"].to_string();
    assert!(adoption.contains("command is") && adoption.contains("max_connections=20"), "{preview:#}");
    assert!(adoption.contains("env.TOKEN differs") && !adoption.contains("s3cr3t"), "{preview:#}");
    assert_eq!(scene.ids(), before);
    scene.adopted(&agent).await;
    agent.settled(&commit).await;
    let after = scene.ids();
    let kept = before.iter().filter(|it| after.contains(it)).count();
    assert_eq!((kept, after.len()), (2, 4), "web and db are replaced, the workers are not");
}

#[tokio::test]
async fn auto_adopts_at_once_and_again_after_database_loss() {
    let compose = Compose::v2();
    let scene = Scene::start("adoptauto", compose, "auto");
    let before = scene.ids();
    let commit = scene.site.repository.head();
    let mut agent = scene.site.agent().await;
    agent.settled(&commit).await;
    assert_eq!(scene.ids(), before);
    agent.kill9();
    for file in agent.database() {
        fs::remove_file(file).unwrap();
    }
    agent.launch();
    agent.ready().await;
    agent.settled(&commit).await;
    assert_eq!(scene.ids(), before);
}

#[tokio::test]
async fn adopted_project_that_leaves_git_keeps_running() {
    let scene = Scene::start("adoptleaves", Compose::v2(), "auto");
    let before = scene.ids();
    let agent = scene.site.agent().await;
    agent.settled(&scene.site.repository.head()).await;
    scene.site.repository.remove(&[&format!("sites/{}", scene.site.app)]);
    agent.sync().await;
    let gone = agent.until("it is reported", |it| it.status.health == HealthStatus::Suspended).await;
    assert!(gone.status.message.contains("not in Git any more"), "{}", gone.status.message);
    // The round of another wake does not take it for gone either.
    scene.site.docker.run(&["kill", &format!("{}-worker-2", scene.site.app)]);
    agent.until("a container is missing", |it| it.status.sync == SyncStatus::OutOfSync).await;
    let running = |all: &[(String, String)]| all.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(running(&scene.ids()), running(&before));
    assert!(agent.application().await.is_some());
}

#[tokio::test]
async fn a_suspended_project_is_adopted_and_outlives_a_restart() {
    let scene = Scene::start("adoptsuspended", Compose::v2(), "ask");
    let before = scene.ids();
    let mut agent = scene.site.agent().await;
    let path = |what: &str| format!("/api/v1/applications/{}/{what}", scene.site.app);
    agent.until("it is observed", |it| it.status.sync == SyncStatus::OutOfSync).await;
    for what in ["suspend", "adopt"] {
        let (status, answer) = agent.post(&path(what), &json!({})).await.unwrap();
        assert!((200..300).contains(&status), "{what}: {answer}");
    }
    agent.until("it is suspended", |it| it.status.health == HealthStatus::Suspended).await;
    agent.kill9();
    agent.launch();
    agent.ready().await;
    let after = agent.until("it is suspended", |it| it.status.health == HealthStatus::Suspended).await;
    let conditions = &after.status.conditions;
    assert!(conditions.iter().all(|condition| condition.kind != "StateLost"), "{conditions:#?}");
    assert_eq!(scene.ids(), before);
}

#[tokio::test]
async fn adopt_never_leaves_a_project_and_names_the_reason() {
    let compose = Compose::v2();
    let scene = Scene::start("adoptnever", compose, "never");
    let before = scene.ids();
    let agent = scene.site.agent().await;
    agent
        .until("it says why", |application| {
            application.status.sync == SyncStatus::OutOfSync
                && application.status.message.contains("`adopt` is `never`")
        })
        .await;
    let path = format!("/api/v1/applications/{}/adopt", scene.site.app);
    let (status, answer) = agent.post(&path, &json!({})).await.unwrap();
    assert_eq!(status, 409, "{answer}");
    assert_eq!(scene.ids(), before);
    // Once Compose has taken its own down, what Git asks for is started.
    scene.compose.run(&scene.folder, &scene.site.app, &["down", "-t", "0"]);
    agent.settled(&scene.site.repository.head()).await;
}

#[tokio::test]
async fn data_of_a_relative_path_are_never_left_behind() {
    let compose = Compose::v2();
    let site = Site::with("adoptdata", Settings { adopt: "auto", ..Settings::default() });
    let image = images::placeholder();
    let text = format!("services:\n  db:\n    image: {image}\n    volumes: ['./data:/data']\n");
    let folder = site.directory().join(&site.app);
    fs::create_dir_all(folder.join("data")).unwrap();
    fs::write(folder.join("compose.yaml"), &text).unwrap();
    let _leftovers = Leftovers { docker: site.docker.clone(), project: site.app.clone() };
    compose.run(&folder, &site.app, &["up", "-d"]);
    let db = site.docker.container(&site.name_of("db", 1)).unwrap();
    site.compose(&text);
    let agent = site.agent().await;
    agent
        .until("it says where the data lie", |application| {
            application.status.message.contains(&format!("{}", folder.join("data").display()))
        })
        .await;
    let path = format!("/api/v1/applications/{}/adopt", site.app);
    assert_eq!(agent.post(&path, &json!({})).await.unwrap().0, 409);
    assert_eq!(site.docker.container(&db.id()).unwrap().started(), db.started());
    // With the path in Git it is the same container.
    let absolute = text.replace("./data", &folder.join("data").display().to_string());
    let commit = site.compose(&absolute);
    agent.deployed(&commit).await;
    assert_eq!(site.docker.container(&db.id()).unwrap().started(), db.started());
}

#[tokio::test]
async fn other_projects_and_one_off_containers_are_not_touched() {
    let compose = Compose::v2();
    let scene = Scene::start("adoptothers", compose, "auto");
    let other = format!("{}x", scene.site.app);
    let _leftovers = Leftovers { docker: scene.site.docker.clone(), project: other.clone() };
    scene.compose.run(&scene.folder, &other, &["up", "-d", "db"]);
    let one_off = scene.compose.run(
        &scene.folder,
        &scene.site.app,
        &["run", "-d", "--no-deps", "--name", &format!("{}-oneoff", scene.site.app), "web"],
    );
    let agent = scene.site.agent().await;
    let commit = scene.site.repository.head();
    agent.settled(&commit).await;
    // Everything of the application goes, and only that.
    let empty = scene.site.compose(&format!("services:\n  late:\n    image: {}\n", images::placeholder()));
    agent.deployed(&empty).await;
    let names: Vec<String> = scene.all().iter().map(Container::name).collect();
    assert_eq!(names.len(), 2, "{names:?} {one_off}");
    assert!(names.contains(&format!("{}-oneoff", scene.site.app)), "{names:?}");
    assert!(scene.site.docker.container(&format!("{other}-db-1")).is_some());
}

#[tokio::test]
async fn compose_2_works_on_containers_of_the_agent() {
    let compose = Compose::v2();
    let site = Site::new("interop");
    let agent = site.running(&shop(&images::placeholder())).await;
    let (folder, app) = (site.directory(), site.app.clone());
    let run = |words: &[&str]| compose.run(&folder, &app, words);
    let listed = run(&["ls", "--all", "--filter", &format!("name={app}")]);
    assert!(listed.contains(&app) && listed.contains("running(4)"), "{listed}");
    assert!(listed.contains("compose.yaml"), "{listed}");
    let services = run(&["ps", "--services"]);
    assert!(["web", "db", "worker"].iter().all(|it| services.contains(it)), "{services}");
    assert_eq!(run(&["ps", "-q"]).lines().count(), 4);
    assert!(run(&["logs", "web"]).contains("started"), "{}", run(&["logs", "web"]));
    run(&["exec", "-T", "web", "/bin/busybox", "true"]);
    let image = run(&["images"]);
    assert!(image.contains("driftless-e2e/placeholder"), "{image}");
    let web = site.container("web");
    run(&["stop", "-t", "0", "web"]);
    agent.event("it was seen to be stopped", |it| it.reason == "DriftDetected").await;
    site.until("it is started again", |it| it.container(&web.id()).filter(|it| it.state() == "running"))
        .await;
    agent.until("all is well", |it| is_settled(it, &site.repository.head())).await;
    drop(agent);
    run(&["down", "-t", "0", "--volumes"]);
    assert!(site.docker.containers(&app).is_empty());
    let label = format!("label=com.docker.compose.project={app}");
    assert_eq!(site.docker.run(&["network", "ls", "-q", "--filter", &label]), "");
    assert_eq!(site.docker.run(&["volume", "ls", "-q", "--filter", &label]), "");
}

#[tokio::test]
async fn adopted_project_needs_no_write_calls() {
    let compose = Compose::v2();
    let mut scene = Scene::start("adoptcalm", compose, "auto");
    let proxy = Counting::start(&scene.site.directory());
    scene.site.settings.docker_host = Some(proxy.host());
    let mut agent = scene.site.agent().await;
    agent.settled(&scene.site.repository.head()).await;
    assert_eq!(proxy.writes(), [""; 0], "it was equal in every field");
    calm(&scene.site, &mut agent, &scene.text).await;
    assert_eq!(proxy.writes(), [""; 0]);
    assert!(proxy.requests().len() > 10, "the witness saw the agent at work");
}

/// All that must not make an agent do anything: a further sync, a restart, a commit elsewhere, and the same file in
/// another order.
async fn calm(site: &Site, agent: &mut Agent, text: &str) {
    let commit = site.repository.commit(&[("README.md", "nothing of the application\n")]);
    agent.deployed(&commit).await;
    agent.restart().await;
    agent.settled(&commit).await;
    let reordered = reordered(text);
    assert_ne!(reordered, text);
    let commit = site.compose(&reordered);
    agent.deployed(&commit).await;
    agent.sync().await;
    agent.settled(&commit).await;
}

/// The same mapping with its keys the other way round, on every level.
pub fn reordered(text: &str) -> String {
    fn turn(value: serde_yaml::Value) -> serde_yaml::Value {
        match value {
            serde_yaml::Value::Mapping(map) => {
                let mut all: Vec<_> = map.into_iter().map(|(key, value)| (key, turn(value))).collect();
                all.reverse();
                serde_yaml::Value::Mapping(all.into_iter().collect())
            }
            other => other,
        }
    }
    serde_yaml::to_string(&turn(serde_yaml::from_str(text).unwrap())).unwrap()
}
