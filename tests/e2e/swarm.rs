//! Applications of a Docker Swarm: deployed, changed by hand, updated, failed and removed. `make e2e-swarm`, as root.

use driftless_model::{
    Application,
    HealthStatus::{Degraded, Healthy},
    SyncStatus,
};
use serde_json::{Value, json};

use crate::harness::{Agent, Compose, PATIENCE, Settings, Site, Swarm};

/// Passes in which nothing may be written.
const IDLE: usize = 100;

fn shop(image: &str, greeting: &str) -> String {
    format!(
        "name: shop
services:
  db: {{image: '{image}'}}
  web:
    image: '{image}'
    environment: {{GREETING: {greeting}}}
    depends_on: [db]
    configs: [motd, rules]
    secrets: [token]
    deploy: {{replicas: 2, update_config: {{monitor: 3s, failure_action: rollback}}}}
configs: {{motd: {{content: '{greeting}'}}, rules: {{content: all}}}}
secrets: {{token: {{file: ./token.txt}}}}
"
    )
}

/// An application that an agent has deployed to a Swarm.
pub struct Deployed {
    pub agent: Agent,
    pub site: Site,
    pub swarm: Swarm,
    pub image: String,
    /// The first part of the names of its services.
    project: String,
    _directory: tempfile::TempDir,
}

impl Deployed {
    /// An agent and a Swarm of one node. `compose` makes the Compose file of an image.
    async fn new(test: &str, prune: bool, compose: impl Fn(&str) -> String) -> Self {
        let files = |image: &str| vec![("compose.yaml", compose(image)), ("token.txt", "s3cret".to_owned())];
        Self { project: "shop".to_owned(), ..Self::with_files(test, prune, files).await }
    }

    /// The same of Kubernetes manifests, or any other files.
    pub async fn with_files(
        test: &str,
        prune: bool,
        files: impl Fn(&str) -> Vec<(&'static str, String)>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let swarm = Swarm::start(directory.path()).await;
        let image = swarm.publish("server", "1.0").await;
        Self::on(test, prune, (directory, swarm, image), files).await
    }

    /// The same on a Swarm that has this image.
    pub async fn on(
        test: &str,
        prune: bool,
        (directory, swarm, image): (tempfile::TempDir, Swarm, String),
        files: impl Fn(&str) -> Vec<(&'static str, String)>,
    ) -> Self {
        let settings = Settings {
            docker_host: Some(swarm.engine.host()),
            poll: "1s",
            prune,
            more: Some(json!({ "engine": "swarm" })),
            ..Settings::default()
        };
        let site = Site::with(test, settings);
        let files: Vec<(String, String)> =
            files(&image).into_iter().map(|(file, text)| (site.path(file), text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (&**file, &**text)).collect();
        let commit = site.repository.commit(&files);
        let agent = site.agent().await;
        agent.settled(&commit).await;
        let project = site.app.clone();
        Self { agent, site, swarm, image, project, _directory: directory }
    }

    pub fn service(&self, name: &str) -> String {
        format!("{}_{name}", self.project)
    }

    pub fn docker(&self, words: &[&str]) -> String {
        self.swarm.docker.run(words)
    }

    pub fn inspect(&self, name: &str) -> Value {
        let found: Value =
            serde_json::from_str(&self.docker(&["service", "inspect", &self.service(name)])).unwrap();
        found[0].clone()
    }

    /// The config with the state that agents of several managers share.
    fn shared(&self) -> String {
        format!("driftless.{}", self.site.app)
    }

    /// The names of all objects of a kind: `service`, `config`, `secret`, `network` or `volume`.
    pub fn names(&self, kind: &str) -> Vec<String> {
        let text = self.docker(&[kind, "ls", "--format", "{{.Name}}"]);
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        names
    }

    /// The configs with files. Another has the state that agents of several managers share.
    pub fn files(&self) -> Vec<String> {
        self.names("config").into_iter().filter(|name| !name.starts_with("driftless.")).collect()
    }

    /// The version of each service: each write increases it.
    pub fn versions(&self) -> Vec<(String, u64)> {
        self.names("service").into_iter().map(|name| (name.clone(), self.swarm.version(&name))).collect()
    }

    /// Makes the agent look at everything again and again.
    pub async fn passes(&self, number: usize) {
        for _ in 0..number {
            let before = self.agent.application().await.expect("the application is known").status.observed_at;
            self.agent.sync().await;
            self.agent.until("it has looked again", |app| app.status.observed_at > before).await;
        }
    }

    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        self.site.until(what, |_| is_so(self).then_some(())).await;
    }
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn swarm_services_follow_git() {
    let mut all = Deployed::new("swarm", true, |image| shop(image, "one")).await;
    let mut commit = all.site.repository.head();
    created_in_order(&all);
    idle_passes_write_nothing(&mut all, &commit).await;
    changes_by_hand_are_undone(&all, &commit).await;

    // A new commit: another config, and the former one is kept for a rollback. The agent is killed meanwhile.
    commit = all.site.compose(&shop(&all.image, "two"));
    all.until("the new config is there", |all| all.names("config").len() == 3).await;
    all.agent.kill9();
    all.agent.restart().await;
    all.agent.settled(&commit).await;
    all.passes(5).await;
    assert_eq!(all.names("config").len(), 3);
    assert_eq!(all.inspect("web")["Spec"]["TaskTemplate"]["ContainerSpec"]["Env"], json!(["GREETING=two"]));

    broken_commits_are_not_tried_again(&all).await;
    removed_from_git(&all).await;
}

fn created_in_order(all: &Deployed) {
    let (db, web) = (all.inspect("db"), all.inspect("web"));
    let image = web["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"].as_str().unwrap();
    assert!(image.contains("@sha256:"), "{image}");
    // Services of depends_on exist first.
    assert!(db["Version"]["Index"].as_u64() < web["Version"]["Index"].as_u64(), "{db} {web}");
    assert_eq!((all.names("config").len(), all.names("secret").len()), (2, 1));
}

async fn idle_passes_write_nothing(all: &mut Deployed, commit: &str) {
    let before = all.versions();
    all.passes(IDLE).await;
    all.agent.kill9();
    all.agent.restart().await;
    all.agent.settled(commit).await;
    all.passes(5).await;
    assert_eq!(all.versions(), before);
}

async fn changes_by_hand_are_undone(all: &Deployed, commit: &str) {
    let service = all.service("web");
    let spec = |all: &Deployed| all.inspect("web")["Spec"].clone();
    let before = spec(all);
    for words in [
        vec!["service", "scale", "-d"],
        vec!["service", "update", "-d", "--env-add", "A=1"],
        vec!["service", "update", "-d", "--env-rm", "GREETING"],
        vec!["service", "update", "-d", "--limit-memory", "64m"],
        vec!["service", "update", "-d", "--publish-add", "8099:80"],
        vec!["service", "update", "-d", "--label-add", "com.example.owner=ops"],
    ] {
        let scaled = format!("{service}=5");
        let last = if words[1] == "scale" { &scaled } else { &service };
        let version = all.swarm.version(&service);
        all.docker(&[&*words, &[last]].concat());
        assert!(all.swarm.version(&service) > version, "{words:?} writes nothing");
        all.until(&format!("{words:?} is undone"), |all| spec(all) == before).await;
        all.agent.settled(commit).await;
    }
    all.docker(&["service", "rm", &service]);
    all.until("the service is there again", |all| all.names("service").contains(&service)).await;
    all.agent.settled(commit).await;
    assert_eq!(spec(all), before);
}

/// A commit whose tasks do not start fails once, as its `failure_action` says.
async fn broken_commits_are_not_tried_again(all: &Deployed) {
    let broken = |greeting| {
        shop(&all.image, greeting).replace("    secrets:", "    entrypoint: [/none]\n    secrets:")
    };
    // Rolled back by the Swarm: what ran before goes on.
    all.site.compose(&broken("three"));
    let is_back = |app: &Application| {
        app.status.message.contains("rollback_") && app.status.message.contains("back at revision")
    };
    let found = all.agent.until("the update is rolled back", is_back).await;
    assert_eq!(found.status.sync, SyncStatus::OutOfSync);
    // Until then, the Swarm itself writes the service.
    let ends = |all: &Deployed| all.inspect("web")["UpdateStatus"]["State"] == "rollback_completed";
    all.until("the Swarm has rolled back", ends).await;
    let found = all.agent.until("the former revision runs", |app| app.status.health == Healthy).await;
    assert!(is_back(&found), "{}", found.status.message);
    let before = all.versions();
    all.passes(20).await;
    assert_eq!(all.versions(), before);
    all.until("the config of the failed commit is removed", |all| all.files().len() == 3).await;
    // The agent on another manager would know of the failure.
    let shared = all.docker(&["config", "inspect", "-f", "{{json .Spec.Labels}}", &all.shared()]);
    assert!(shared.contains("rollback_"), "{shared}");
    assert_eq!(all.inspect("web")["Spec"]["TaskTemplate"]["ContainerSpec"]["Env"], json!(["GREETING=two"]));

    // Paused by the Swarm.
    all.site.compose(&broken("four").replace("failure_action: rollback", "failure_action: pause"));
    let is_paused = |app: &Application| {
        app.status.message.contains("paused: update paused") && app.status.health == Degraded
    };
    all.agent.until("the update is paused", is_paused).await;
    let before = all.versions();
    all.passes(20).await;
    assert_eq!(all.versions(), before);
    all.agent.until("it is still degraded", is_paused).await;
}

/// Nothing of the application stays, and everything of others does.
async fn removed_from_git(all: &Deployed) {
    all.docker(&["service", "create", "-d", "--name", "theirs", &all.image]);
    all.docker(&["network", "create", "-d", "overlay", "theirs"]);
    all.docker(&["volume", "create", "theirs"]);
    let file = all.site.directory().join("theirs");
    std::fs::write(&file, "theirs").unwrap();
    for kind in ["config", "secret"] {
        all.docker(&[kind, "create", "theirs", file.to_str().unwrap()]);
    }
    all.site.repository.remove(&[&all.site.path("compose.yaml"), &all.site.path("token.txt")]);
    for kind in ["service", "config", "secret"] {
        all.until(&format!("no {kind} of it is left"), |all| all.names(kind) == ["theirs"]).await;
    }
    all.until("its network is removed", |all| !all.names("network").contains(&all.service("default"))).await;
    assert!(all.names("network").contains(&"theirs".to_owned()));
    assert!(all.names("volume").contains(&"theirs".to_owned()));
    let api = format!("/api/v1/applications/{}", all.site.app);
    let forgotten = async {
        while all.agent.get(&api).await.is_none_or(|(status, _)| status != 404) {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, forgotten).await.expect("the application is forgotten");
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn external_secret_is_waited_for_and_left_alone() {
    let plain =
        |image: &str| format!("name: shop\nservices:\n  web:\n    image: '{image}'\n    secrets: [token]\n");
    let own = "secrets: {token: {file: ./token.txt}}\n";
    let mut all = Deployed::new("external", true, |image| plain(image) + own).await;
    let secrets =
        |all: &Deployed| all.inspect("web")["Spec"]["TaskTemplate"]["ContainerSpec"]["Secrets"].clone();
    let before = secrets(&all);
    let external = "secrets: {token: {external: true, name: token_v2}}\n";
    let commit = all.site.compose(&(plain(&all.image) + external));
    let waits = |app: &Application| {
        app.status
            .message
            .contains("web: ExternalMissing: needs the external secret `token_v2`, which does not exist")
    };
    all.agent.until("it waits for the secret", waits).await;
    assert_eq!(secrets(&all), before, "it runs on with what it has");
    let file = all.site.directory().join("token_v2");
    std::fs::write(&file, "s3cret").unwrap();
    all.docker(&["secret", "create", "token_v2", file.to_str().unwrap()]);
    all.agent.settled(&commit).await;
    assert_eq!(secrets(&all)[0]["SecretName"], "token_v2");
    assert_eq!(secrets(&all)[0]["File"]["Name"], "/run/secrets/token");
    idle_passes_write_nothing(&mut all, &commit).await;
    // The secret of somebody else stays.
    all.site.repository.remove(&[&all.site.path("compose.yaml"), &all.site.path("token.txt")]);
    all.until("the service is removed", |all| all.names("service").is_empty()).await;
    all.until("its own secret is removed", |all| all.names("secret") == ["token_v2"]).await;
}

/// The subnet of a network. Empty: it has none.
fn subnet(all: &Deployed, network: &str) -> String {
    all.docker(&["network", "inspect", "-f", "{{range .IPAM.Config}}{{.Subnet}}{{end}}", network])
}

/// Whether the task of `web` runs with an address of a /22. Tasks that wait for a node have theirs already.
fn runs_in_wide_range(all: &Deployed) -> bool {
    let web = all.service("web");
    let ids = all.docker(&["service", "ps", "-q", "-f", "desired-state=running", &web]);
    let format = "{{.Status.State}} {{range .NetworksAttachments}}{{.Addresses}}{{end}}";
    let shown = |id: &str| all.docker(&["inspect", "-f", format, id]);
    ids.lines().map(shown).any(|it| it.starts_with("running ") && it.contains("/22]"))
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn overlay_networks_are_large_enough_for_their_services() {
    let compose = |image: &str, networks: &str, rest: &str| {
        format!(
            "name: shop\nservices:\n  web: {{image: '{image}', networks: [{networks}]}}\n{rest}\n\
             networks:\n  small: {{}}\n"
        )
    };
    let mut all = Deployed::new("addresses", true, |image| compose(image, "small", "")).await;
    let image = all.image.clone();
    assert_eq!(subnet(&all, "shop_small"), "10.0.1.0/24", "the Swarm's own choice is large enough");

    // Many tasks, which no node may run. That of `web` runs in the same network.
    let many = |network: &str| {
        format!(
            "  many: {{image: '{image}', networks: [{network}], deploy: {{replicas: 300, placement: {{constraints: [node.labels.a == b]}}}}}}"
        )
    };
    all.site.compose(&(compose(&image, "small, wide", &many("wide")) + "  wide: {}\n"));
    all.until("it has a task in the wide network", runs_in_wide_range).await;
    assert_eq!(subnet(&all, "shop_wide"), "10.0.4.0/22");

    // A network cannot grow. Another name makes another one.
    all.site.compose(&compose(&image, "small", &many("small")));
    let is_full = |app: &Application| {
        app.status.message.contains("network shop_small has 252 addresses, and the services need 303")
    };
    all.agent.until("it says that the network is too small", is_full).await;
    let renamed =
        |rest: &str| compose(&image, "small", rest).replace("small: {}", "small: {name: shop_large}");
    all.site.compose(&renamed(&many("small")));
    all.until("the larger network is there", |all| all.names("network").contains(&"shop_large".to_owned()))
        .await;
    all.until("the larger one takes its place", runs_in_wide_range).await;
    assert_eq!(subnet(&all, "shop_large"), "10.0.8.0/22");

    // A range that another network has: the Swarm would create the network, and its tasks would wait for ever.
    let fixed = |range: &str| {
        renamed("").replace("shop_large}", &format!("shop_fixed, ipam: {{config: [{{subnet: {range}}}]}}}}"))
    };
    // An agent that is killed before it sees that leaves the network.
    all.agent.kill9();
    let application = format!("driftless.application={}", all.site.app);
    let labels = ["--label", "driftless.agent=swarm", "--label", &application];
    let create = ["network", "create", "-d", "overlay", "--subnet", "10.0.9.0/24"];
    all.docker(&[&create[..], &labels[..], &["shop_fixed"]].concat());
    all.site.compose(&fixed("10.0.9.0/24"));
    all.agent.restart().await;
    let overlaps = |app: &Application| app.status.message.contains("the Swarm gives it no addresses");
    let found = all.agent.until("it says why there is no network", overlaps).await;
    assert_eq!(found.status.health, Degraded, "{}", found.status.message);
    assert!(!all.names("network").contains(&"shop_fixed".to_owned()), "{:?}", all.names("network"));
    let commit = all.site.compose(&fixed("10.77.0.0/24"));
    all.agent.settled(&commit).await;
    assert_eq!(subnet(&all, "shop_fixed"), "10.77.0.0/24");
    all.until("the others are removed", |all| {
        let names = all.names("network");
        !names.iter().any(|name| ["shop_small", "shop_wide", "shop_large"].contains(&name.as_str()))
    })
    .await;
    let before = all.versions();
    all.passes(5).await;
    assert_eq!(all.versions(), before);
}

/// Every key that a Swarm has, so that a field that the engine writes in another form than the agent shows as drift.
const EVERYTHING: &str = include_str!("../../crates/plan/tests/it/swarm/everything.yaml");

/// The service `all` as the engine has it, and the ids of its networks, as the planner's tests read them.
fn record(all: &Deployed, path: &str) {
    let id =
        |name: &str| (name.to_owned(), all.docker(&["network", "inspect", "-f", "{{.Id}}", name]).into());
    let networks: serde_json::Map<String, Value> = ["shop_front", "shop_back"].map(id).into_iter().collect();
    let recorded = json!({ "networks": networks, "spec": all.inspect("all")["Spec"] });
    let text = serde_json::to_string_pretty(&recorded).unwrap();
    std::fs::write(path, text.replace(&all.site.app, "shop") + "\n").unwrap();
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn every_key_reads_back_as_written() {
    let mut all = Deployed::new("keys", false, |_| EVERYTHING.to_owned()).await;
    let commit = all.site.repository.head();
    if let Ok(path) = std::env::var("RECORD_SWARM_SERVICE") {
        record(&all, &path);
    }
    idle_passes_write_nothing(&mut all, &commit).await;
    // Each service is written by hand to what it is already, so the agent compares it field by field.
    for name in ["all", "plain"] {
        all.docker(&["service", "update", "-d", "--force", &all.service(name)]);
    }
    let before = all.versions();
    all.passes(20).await;
    assert_eq!(all.versions(), before);

    // Without `prune`, services stay when Git does not have them any more, also those without a task.
    all.site.repository.remove(&[&all.site.path("compose.yaml"), &all.site.path("token.txt")]);
    all.agent.until("it has left Git", |app| app.status.message.contains("not in Git any more")).await;
    all.passes(5).await;
    assert_eq!(all.versions(), before);
    assert_eq!((all.names("config").len(), all.names("secret").len()), (1, 1));
}

/// Both would write to the same data.
#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn services_wait_for_the_containers_of_an_adopted_project() {
    let directory = tempfile::tempdir().unwrap();
    let swarm = Swarm::start(directory.path()).await;
    let image = swarm.publish("server", "1.0").await;
    let host = swarm.engine.host();
    let settings =
        Settings { docker_host: Some(host.clone()), poll: "1s", adopt: "auto", ..Settings::default() };
    let mut site = Site::with("adopted-swarm", settings);
    let text =
        format!("services:\n  web:\n    image: '{image}'\n    volumes: [data:/data]\nvolumes: {{data: }}\n");
    let folder = site.directory().join("compose");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("compose.yaml"), &text).unwrap();
    let compose = |words: &[&str]| {
        let out =
            Compose::v2().command(&folder, &site.app, words).env("DOCKER_HOST", &host).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    compose(&["up", "-d"]);
    let ids = |all: &[&str]| swarm.docker.run(&[&["ps", "-q", "--no-trunc"][..], all].concat());
    let old = ids(&[]);
    let commit = site.compose(&text);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;
    assert_eq!(ids(&[]), old, "it is adopted");
    assert!(agent.terminate().await.success());
    drop(agent);

    site.settings.more = Some(json!({ "engine": "swarm" }));
    let agent = site.agent().await;
    let advice = format!("remove them with `docker rm -f {}-web-1", site.app);
    agent.until("it waits for the container", |app| app.status.message.contains(&advice)).await;
    assert_eq!((ids(&[]), swarm.docker.run(&["service", "ls", "-q"])), (old, String::new()));
    compose(&["down"]);
    agent.settled(&commit).await;
    assert_ne!(swarm.docker.run(&["service", "ls", "-q"]), "");
}
