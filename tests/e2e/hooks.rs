//! Hooks and waves on the real engine.

use driftless_model::{Application, ConditionStatus};
use serde_json::json;

use crate::harness::{Container, Settings, Site, images};

/// A service of a version, and a hook that writes into a volume what it was run for.
fn shop(version: &str, program: &str) -> String {
    let (server, busybox) = (images::server(version), images::placeholder());
    let hook = |name: &str, phase: &str, program: &str| {
        format!(
            "  {name}:
    image: {busybox}
    entrypoint: [/bin/busybox, sh, -c, '{program}']
    volumes: ['log:/log']
    x-driftless: {{hook: {phase}}}
"
        )
    };
    let hooks = hook("dump", "PreSync", program)
        + &hook("warm", "PostSync", &format!("echo warm {version} >> /log/all"))
        + &hook("tell", "SyncFail", &format!("echo tell {version} >> /log/all"))
        + &hook("save", "PreDelete", "echo save >> /log/all");
    format!(
        "services:
  web:
    image: {server}
    restart: unless-stopped
{hooks}volumes: {{log: {{}}}}
"
    )
}

fn log(site: &Site) -> Vec<String> {
    let volume = format!("{}_log:/log", site.app);
    let image = images::placeholder();
    let cat = ["run", "--rm", "-v", &volume, "--entrypoint", "/bin/busybox", &image, "cat", "/log/all"];
    site.docker.run(&cat).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn hooks_run_once_around_commits_and_before_the_removal() {
    let site = Site::with("hooks", Settings { more: Some(json!({ "prune": false })), ..Settings::default() });
    let first = site.compose(&shop("1.0", "echo dump 1.0 >> /log/all"));
    let mut agent = site.agent().await;
    agent.settled(&first).await;
    assert_eq!(log(&site), ["dump 1.0", "warm 1.0"]);
    let jobs = agent.said("get jobs");
    assert!(jobs.contains("dump-1-1 ") && !jobs.contains("dump "), "templates are no Jobs: {jobs}");

    // The agent is killed while the hook runs, and goes on with the same run.
    let second = site.compose(&shop("2.0", "echo dump 2.0 >> /log/all; sleep 4"));
    agent.sync().await;
    let is_dump = |it: &Container| it.label("driftless.workload") == "dump-2-1" && it.state() == "running";
    site.until("the hook runs", |docker| docker.containers(&site.app).iter().any(is_dump).then_some(()))
        .await;
    assert_eq!(site.container("web").variable("VERSION").as_deref(), Some("1.0"));
    agent.kill9();
    agent.launch();
    agent.ready().await;
    agent.settled(&second).await;
    assert_eq!(site.container("web").variable("VERSION").as_deref(), Some("2.0"));
    assert_eq!(log(&site), ["dump 1.0", "warm 1.0", "dump 2.0", "warm 2.0"]);

    // A hook that fails stops the commit before anything is touched.
    let web = site.container("web").id();
    site.compose(&shop("3.0", "echo no space left; exit 3"));
    agent.sync().await;
    let is_failed = |it: &Application| {
        let mut all = it.status.conditions.iter();
        all.any(|it| it.kind == "CommitFailed" && it.status == ConditionStatus::True)
    };
    let failed = agent.until("the commit has failed", is_failed).await;
    assert!(failed.status.message.contains("dump-3-1 failed"), "{}", failed.status.message);
    agent.event("the hook for failures", |it| it.message.contains("tell-3-1")).await;
    site.until("it has run", |_| log(&site).contains(&"tell 3.0".to_owned()).then_some(())).await;
    assert_eq!(site.container("web").id(), web);

    // The next commit releases it. Then the application leaves Git, and its last hook runs before it is taken down.
    let fourth = site.compose(&shop("4.0", "echo dump 4.0 >> /log/all"));
    agent.deployed(&fourth).await;
    site.repository.remove(&[&site.path("compose.yaml")]);
    agent.sync().await;
    agent.until("it has left Git", |it| it.status.message.contains("not in Git any more")).await;
    let said = agent.said(&format!("remove {}", site.app));
    assert!(said.contains("the PreDelete hooks run first (save)"), "{said}");
    site.until("nothing is left", |docker| docker.containers(&site.app).is_empty().then_some(())).await;
    let log = log(&site);
    assert_eq!(log.iter().filter(|line| *line == "save").count(), 1, "{log:?}");
    assert_eq!(log.last().map(String::as_str), Some("save"), "{log:?}");
}

#[tokio::test]
async fn waves_of_a_commit_follow_each_other() {
    let site = Site::new("waves");
    let shop = |version: &str, path: &str| {
        format!(
            "services:
  db:
    image: {server}
    restart: unless-stopped
    healthcheck: {{test: [CMD, /server, --healthcheck, 'http://127.0.0.1:8080{path}'], interval: 1s, retries: 30}}
  web:
    image: {server}
    restart: unless-stopped
    x-driftless: {{wave: 1}}
",
            server = images::server(version)
        )
    };
    let first = site.compose(&shop("1.0", "/healthz"));
    let agent = site.agent().await;
    agent.settled(&first).await;
    let started = |service: &str| site.container(service).started();
    assert!(started("db") < started("web"));

    // The second wave keeps its version while the first one is not healthy.
    let web = site.container("web").id();
    site.compose(&shop("2.0", "/nowhere"));
    agent.sync().await;
    let waits = |it: &Application| it.status.waits.iter().any(|wait| wait.reason == "SyncWave");
    let found = agent.until("the second wave waits", waits).await;
    let wait = found.status.waits.iter().find(|wait| wait.reason == "SyncWave").unwrap();
    assert_eq!(wait.message, "web is of wave 1 and waits for db of wave 0");
    assert_eq!(site.container("web").id(), web);
    // A newer commit does not wait for it.
    let third = site.compose(&shop("3.0", "/healthz"));
    agent.deployed(&third).await;
    assert!(started("db") < started("web"));
    assert_eq!(site.container("web").variable("VERSION").as_deref(), Some("3.0"));
}
