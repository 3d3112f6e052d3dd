//! Images that are built from the commit: first, again when their content changes, and not otherwise.

use std::{collections::BTreeSet, fs};

use driftless_model::{HealthStatus, WaitStatus};
use serde_json::json;

use crate::harness::{Agent, Container, PATIENCE, Site, images, is_settled};

/// Copies everything of its context to `/site`.
fn dockerfile(more: &str) -> String {
    format!("FROM {}\nCOPY . /site/\n{more}", images::server("1.0"))
}

/// The paths below a folder of a container.
fn paths(site: &Site, container: &Container, folder: &str) -> BTreeSet<String> {
    let copy = site.directory().join(format!("copy-{:04x}", crate::harness::random() & 0xffff));
    site.docker.run(&["cp", &format!("{}:{folder}", container.id()), copy.to_str().unwrap()]);
    let mut found = BTreeSet::new();
    let mut to_do = vec![copy.clone()];
    while let Some(folder) = to_do.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            found.insert(path.strip_prefix(&copy).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() && !path.is_symlink() {
                to_do.push(path);
            }
        }
    }
    found
}

/// Waits until the agent reports this many builds. It acts first and reports then.
async fn builds(agent: &Agent, at_least: usize) -> usize {
    let began = tokio::time::Instant::now();
    loop {
        let count = agent.events().await.iter().filter(|it| it.reason == "Built").count();
        if count >= at_least || began.elapsed() > PATIENCE {
            return count;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn failure(agent: &Agent) -> WaitStatus {
    let is_it = |it: &&WaitStatus| it.reason == "BuildFailed";
    let application =
        agent.until("the build has failed", |it| it.status.waits.iter().any(|it| is_it(&it))).await;
    application.status.waits.iter().find(is_it).unwrap().clone()
}

#[tokio::test]
async fn an_image_is_built_once_for_each_content() {
    let site = Site::new("build");
    let compose = "services:
  web:
    build: {context: app, target: final, args: {GREETING: hello, BARE: }, labels: {tier: front}, tags: [\"$COMPOSE_PROJECT_NAME-other:1\"]}
    restart: unless-stopped
";
    let more = "ARG GREETING=nobody\nARG BARE\nENV GREETING=$GREETING BARE=$BARE\nFROM 0 AS unused\nRUN [\"/server\", \"--fail\"]\n";
    let stages = dockerfile(more).replacen("\nCOPY", " AS final\nCOPY", 1).replace("FROM 0", "FROM final");
    let first = site.repository.commit(&[
        (&site.path("compose.yaml"), compose),
        (&site.path(".env"), "BARE=from-env\n"),
        (&site.path("app/Dockerfile"), &stages),
        (&site.path("app/.dockerignore"), "*.md\nDockerfile\n.dockerignore\n!keep.md\n"),
        (&site.path("app/README.md"), "left out"),
        (&site.path("app/keep.md"), "kept"),
        (&site.path("app/deep/er/page"), "one"),
    ]);
    let mut agent = site.agent().await;
    agent.settled(&first).await;
    let one = site.container("web");
    assert!(one.image().starts_with(&format!("{}-web:", site.app)), "{}", one.image());
    assert_eq!(one.variable("GREETING").as_deref(), Some("hello"));
    assert_eq!(one.variable("BARE").as_deref(), Some("from-env"));
    assert_eq!(one.label("tier"), "front");
    let expected = ["deep", "deep/er", "deep/er/page", "keep.md"].map(str::to_owned);
    assert_eq!(paths(&site, &one, "/site"), BTreeSet::from(expected));
    let id_of = |name: &str| site.docker.run(&["image", "inspect", "-f", "{{.Id}}", name]);
    for name in [format!("{}-web:latest", site.app), format!("{}-other:1", site.app)] {
        assert_eq!(id_of(&name), one.text("/Image"), "{name}");
    }

    // A commit that changes nothing of it builds nothing, and a restart neither.
    let unrelated =
        site.repository.commit(&[(&site.path("app/README.md"), "still left out"), ("other", "x")]);
    agent.deployed(&unrelated).await;
    agent.restart().await;
    agent.settled(&unrelated).await;
    assert_eq!((site.container("web").id(), builds(&agent, 1).await), (one.id(), 1));

    // One that changes a file of it rolls.
    let second = site.repository.commit(&[(&site.path("app/deep/er/page"), "two")]);
    agent.deployed(&second).await;
    let two = site.container("web");
    assert_ne!(two.image(), one.image());
    assert_eq!(builds(&agent, 2).await, 2);

    // Back to the first one, whose image is still there.
    let history = agent.history().await;
    let number = history.iter().find(|it| it.commit.id == first).unwrap().number;
    agent.ask("rollback", json!({ "to": number.to_string(), "until": "manual" })).await;
    let back = site.replaced("web", &two.id()).await;
    agent.until("the rollback is done", |it| it.status.health == HealthStatus::Healthy).await;
    assert_eq!((back.image(), builds(&agent, 2).await), (one.image(), 2));

    // An image removed by hand is built again, from the commit of the rollback.
    site.docker.run(&["rmi", "-f", &one.image()]);
    site.docker.run(&["rm", "-f", &back.name()]);
    let again = site.replaced("web", &back.id()).await;
    assert_eq!((again.image(), builds(&agent, 3).await), (one.image(), 3));
}

#[tokio::test]
async fn a_failing_build_touches_nothing_that_runs() {
    let site = Site::new("broken");
    let compose = "services:
  web:
    build: {context: app, args: {DB_PASSWORD: hunter22}}
    restart: unless-stopped
  db:
    image: IMAGE
    restart: unless-stopped
    environment: {VALUE: one}
"
    .replace("IMAGE", &images::server("1.0"));
    let good = dockerfile("");
    let first = site
        .repository
        .commit(&[(&site.path("compose.yaml"), &compose), (&site.path("app/Dockerfile"), &good)]);
    let agent = site.agent().await;
    agent.settled(&first).await;
    let before = [site.container("web").id(), site.container("db").id()];

    let broken = dockerfile("ARG DB_PASSWORD\nENV VERSION=$DB_PASSWORD\nRUN [\"/server\", \"--fail\"]\n");
    let second = compose.replace("one", "two");
    site.repository.commit(&[(&site.path("compose.yaml"), &second), (&site.path("app/Dockerfile"), &broken)]);
    agent.sync().await;
    let wait = failure(&agent).await;
    assert!(wait.message.contains("fails, as asked") && wait.message.contains("••••"), "{}", wait.message);
    assert!(!wait.message.contains("hunter22") && !agent.log().contains("hunter22"), "{}", wait.message);
    assert!(wait.attempt.is_some() && wait.until.is_some(), "{wait:?}");
    let application = agent.application().await.unwrap();
    assert_eq!(
        application.status.workloads.values().find(|it| it.reason == "BuildFailed").map(|_| ()),
        Some(())
    );
    assert_eq!([site.container("web").id(), site.container("db").id()], before);

    let third = site.repository.commit(&[(&site.path("app/Dockerfile"), &good)]);
    agent.deployed(&third).await;
    assert_eq!(site.container("web").id(), before[0], "it is the first image again");
    assert_eq!(site.container("db").variable("VALUE").as_deref(), Some("two"));
}

#[tokio::test]
async fn a_build_that_is_killed_or_overtaken_leaves_nothing_behind() {
    let site = Site::new("endless");
    let compose = "services:\n  web:\n    build: .\n    restart: unless-stopped\n";
    let endless = dockerfile("RUN [\"/server\"]\n");
    site.repository.commit(&[(&site.path("compose.yaml"), compose), (&site.path("Dockerfile"), &endless)]);
    let mut agent = site.agent().await;
    let is_building = |it: &driftless_model::Application| {
        let operation = it.status.operation.as_ref();
        operation
            .is_some_and(|it| it.message.contains("building") && it.message.contains("RUN [\"/server\"]"))
    };
    agent.until("it says at which step it is", is_building).await;
    agent.restart().await;
    // A step that the engine has not given up yet goes on for the new build, and is not told of once more.
    agent
        .until("it builds again", |application| {
            application.status.operation.as_ref().is_some_and(|it| it.message.contains("building"))
        })
        .await;
    let good = site.repository.commit(&[(&site.path("Dockerfile"), &dockerfile(""))]);
    agent.deployed(&good).await;
    assert_eq!(builds(&agent, 1).await, 1);
}

#[tokio::test]
async fn secrets_reach_a_build_and_stay_in_it() {
    let site = Site::new("secret");
    let compose = "services:
  web:
    build:
      context: app
      secrets: [token]
      dockerfile_inline: |
        FROM IMAGE
        ENV MESSAGE_FILE=/run/secrets/token
        RUN --mount=type=secret,id=token,required=true [\"/server\", \"--once\"]
        RUN --mount=type=secret,id=token,required=true [\"/server\", \"--ACTION\"]
    restart: unless-stopped
secrets:
  token: {file: ./token}
"
    .replace("IMAGE", &images::server("1.0"));
    let (good, bad) = (compose.replace("ACTION", "once"), compose.replace("ACTION", "fail"));
    site.repository.commit(&[
        (&site.path("compose.yaml"), &bad),
        (&site.path("token"), "correct horse battery\n"),
        (&site.path("app/page"), "one"),
    ]);
    let agent = site.agent().await;
    let wait = failure(&agent).await;
    assert!(!wait.message.contains("horse"), "{}", wait.message);
    let commit = site.compose(&good);
    agent.deployed(&commit).await;
    assert!(!agent.log().contains("horse"), "{}", agent.log());
    let before = site.container("web");
    // Another value builds nothing: no image holds it.
    let rotated = site.repository.commit(&[(&site.path("token"), "another\n")]);
    agent.deployed(&rotated).await;
    assert_eq!((site.container("web").id(), builds(&agent, 1).await), (before.id(), 1));
}

#[tokio::test]
async fn the_classic_builder_sees_the_same_files() {
    let site = Site::new("classic");
    // BuildKit of old engines knows no `shm_size`.
    let compose = "services:
  web:
    build: {context: app, dockerfile: ../web.Dockerfile, shm_size: 64m, ulimits: {nofile: 1024}}
    restart: unless-stopped
  worker:
    image: PROJECT-web
    restart: unless-stopped
  inline:
    build: {context: app, shm_size: 64m, dockerfile_inline: \"FROM IMAGE\\nCOPY . /site/\\n\"}
    restart: unless-stopped
"
    .replace("PROJECT", &site.app)
    .replace("IMAGE", &images::server("1.0"));
    let commit = site.repository.commit(&[
        (&site.path("compose.yaml"), &compose),
        (&site.path("web.Dockerfile"), &dockerfile("")),
        (&site.path("app/a/page"), "one"),
        (&site.path("app/drop"), "x"),
        (&site.path("app/.dockerignore"), "drop\n"),
    ]);
    let agent = site.agent().await;
    agent.settled(&commit).await;
    for service in ["web", "inline"] {
        let found = paths(&site, &site.container(service), "/site");
        let expected = [".dockerignore", "a", "a/page"].map(str::to_owned);
        assert_eq!(found, BTreeSet::from(expected), "{service}");
    }
    assert_eq!(site.container("worker").image(), site.container("web").image());
    assert_eq!(builds(&agent, 2).await, 2);
    assert!(is_settled(&agent.application().await.unwrap(), &commit));
}
