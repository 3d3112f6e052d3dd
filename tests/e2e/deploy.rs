//! From a Git URL to running containers.

use driftless_model::{Application, HealthStatus, Outcome, SyncStatus};

use crate::harness::{Container, Settings, Site, SshServer, free_port, images};

const ORDER_API: &str = include_str!("../../examples/sites/order-api/deployment.yaml");

/// A page behind an API behind a migration, with a volume, a mounted file and a health check.
fn shop(image: &str) -> String {
    format!(
        "services:
  migrate:
    image: {image}
    command: [--once]
    restart: \"no\"
    volumes: [data:/data]
  api:
    image: {image}
    restart: unless-stopped
    environment: {{NAME: api}}
    depends_on:
      migrate: {{condition: service_completed_successfully}}
    healthcheck:
      test: [CMD, /server, --healthcheck, \"http://127.0.0.1:8080/healthz\"]
      interval: 1s
    volumes: [data:/data]
  web:
    image: {image}
    restart: unless-stopped
    environment: {{NAME: web, MESSAGE_FILE: /etc/message}}
    depends_on:
      api: {{condition: service_healthy}}
    volumes: [./message:/etc/message:ro]
volumes:
  data:
"
    )
}

/// One service of this image, with one variable.
fn web(image: &str, greeting: &str) -> String {
    format!(
        "services:
  web:
    image: {image}
    restart: unless-stopped
    environment: {{GREETING: {greeting}}}
"
    )
}

#[tokio::test]
async fn order_api_deployment_runs_with_three_ready_replicas() {
    let image = images::server_as(&Default::default(), "registry.example.com/order-api:v2.1.0", "v2.1.0");
    let site = Site::new("order");
    let commit = site.repository.commit(&[(&site.path("deployment.yaml"), ORDER_API)]);
    let agent = site.agent().await;
    let application = agent.settled(&commit).await;

    let workload = application.status.workloads.values().next().unwrap();
    assert_eq!((workload.replicas, workload.ready_replicas, workload.available_replicas), (3, 3, 3));
    assert_eq!(application.status.workloads.len(), 1);
    let running = site.docker.running(&site.app);
    assert_eq!(running.len(), 3);
    for container in running {
        assert_eq!(container.image(), image);
    }
}

#[tokio::test]
async fn compose_services_start_in_dependency_order() {
    let image = images::server("1.0");
    let site = Site::new("shop");
    let commit =
        site.repository.commit(&[(&site.path("compose.yaml"), &shop(&image)), (&site.path("message"), "hi")]);
    let agent = site.agent().await;
    agent.settled(&commit).await;

    let (migrate, api, page) = (site.container("migrate"), site.container("api"), site.container("web"));
    assert_eq!((migrate.state().as_str(), migrate.number("/State/ExitCode")), ("exited", 0));
    // RFC 3339 in UTC orders as text.
    assert!(migrate.text("/State/FinishedAt") <= api.started(), "the API did not wait for the migration");
    assert!(api.started() < page.started(), "the page did not wait for the API");
    let url = format!("http://{}:8080/", page.address().unwrap());
    let body = reqwest::get(url).await.unwrap().text().await.unwrap();
    assert!(body.contains("hi"), "the file of the repository is mounted: {body}");
    site.docker.run(&["volume", "inspect", &format!("{}_data", site.app)]);
}

#[tokio::test]
async fn changed_file_replaces_only_containers_that_mount_it() {
    let image = images::server("1.0");
    let site = Site::new("file");
    let message = site.path("message");
    let commit = site.repository.commit(&[(&site.path("compose.yaml"), &shop(&image)), (&message, "one")]);
    let agent = site.agent().await;
    agent.settled(&commit).await;
    let (api, page) = (site.container("api"), site.container("web"));

    let commit = site.repository.commit(&[(&message, "two")]);
    agent.deployed(&commit).await;
    assert_eq!(site.container("api").id(), api.id(), "the API does not mount the file");
    let replaced = site.replaced("web", &page.id()).await;
    let url = format!("http://{}:8080/", replaced.address().unwrap());
    assert!(reqwest::get(url).await.unwrap().text().await.unwrap().contains("two"));
}

/// Says what it has read at its start, and again at each SIGHUP. Its first word is how often it was told.
const READER: &str = "n=0; say() { echo \"$$n $$(cat /etc/web.conf /run/secrets/token | tr '\\n' ' ')\"; n=$$((n + 1)); }; trap say HUP; say; while :; do sleep 1000 & wait $$!; done";

#[tokio::test]
async fn a_changed_file_is_read_by_the_very_container_that_ran_before() {
    let image = images::placeholder();
    let site = Site::new("inplace");
    let compose = format!(
        "services:
  web:
    image: {image}
    entrypoint: [sh, -c, '{}']
    x-driftless: {{on-change: signal SIGHUP}}
    volumes: ['./web.conf:/etc/web.conf:ro']
    secrets: [token]
  folder:
    image: {image}
    entrypoint: [sh, -c, 'cat /conf/*; while :; do sleep 1000; done']
    volumes:
      - {{type: bind, source: ./conf, target: /conf, read_only: true, x-driftless: {{on-change: restart}}}}
secrets:
  token: {{file: ./token}}
",
        READER.replace('\'', "''")
    );
    let (conf, token, one, two) =
        (site.path("web.conf"), site.path("token"), site.path("conf/one"), site.path("conf/two"));
    let first = site.repository.commit(&[
        (&site.path("compose.yaml"), &compose),
        (&conf, "a rather long first line\n"),
        (&token, "secret1\n"),
        (&one, "1\n"),
    ]);
    let agent = site.agent().await;
    agent.settled(&first).await;
    let (web, folder) = (site.container("web"), site.container("folder"));
    site.logged(&web, "0 a rather long first line secret1 \n").await;
    site.logged(&folder, "1\n").await;

    let commit = site.repository.commit(&[(&conf, "short\n"), (&two, "2\n")]);
    agent.deployed(&commit).await;
    site.logged(&web, "0 a rather long first line secret1 \n1 short secret1 \n").await;
    site.logged(&folder, "1\n1\n2\n").await;

    let commit = site.repository.commit(&[(&token, "secret2\n")]);
    agent.deployed(&commit).await;
    let all = "0 a rather long first line secret1 \n1 short secret1 \n2 short secret2 \n";
    site.logged(&web, all).await;

    agent.ask("rollback", serde_json::json!({ "to": first, "until": "manual" })).await;
    agent.deployed(&first).await;
    site.logged(&web, &format!("{all}3 a rather long first line secret1 \n")).await;
    site.logged(&folder, "1\n1\n2\n1\n").await;
    let (web_now, folder_now) = (site.container("web"), site.container("folder"));
    assert_eq!((web_now.id(), web_now.started()), (web.id(), web.started()), "it was only told");
    assert_eq!(folder_now.id(), folder.id(), "it was restarted, and is the same");
    assert!(!agent.log().contains("secret1"));
}

#[tokio::test]
async fn mounted_files_survive_restarts_and_a_lost_mirror() {
    let image = images::placeholder();
    let mut site = Site::new("outlive");
    let beside = site.also("beside");
    let compose = format!(
        "services:
  web:
    image: {image}
    restart: unless-stopped
    volumes: ['./conf:/conf:ro', './one:/etc/one:ro']
    secrets: [token]
secrets: {{token: {{file: ./token}}}}
"
    );
    let neighbour = format!("services:\n  web: {{image: {image}, volumes: ['./conf:/conf:ro']}}\n");
    let of_neighbour = |file: &str| format!("sites/{beside}/{file}");
    site.repository.commit(&[
        (&site.path("conf/page"), "page\n"),
        (&site.path("one"), "one\n"),
        (&site.path("token"), "token\n"),
        (&of_neighbour("compose.yaml"), &neighbour),
        (&of_neighbour("conf/page"), "theirs\n"),
    ]);
    let mut agent = site.running(&compose).await;
    let first = site.container("web");
    let reads = |site: &Site| {
        let name = first.name();
        let words = ["exec", &name, "/bin/busybox", "cat", "/conf/page", "/etc/one", "/run/secrets/token"];
        assert_eq!(site.docker.run(&words), "page\none\ntoken");
        assert_eq!(site.container("web").id(), first.id());
    };
    reads(&site);
    // Commits, of others too.
    for number in ["1", "2", "3"] {
        let page = of_neighbour("conf/page");
        let commit = site.repository.commit(&[("README.md", number), (&page, number)]);
        agent.deployed(&commit).await;
    }
    reads(&site);
    site.docker.run(&["restart", "-t", "0", &first.id()]);
    agent.settled(&site.repository.head()).await;
    reads(&site);
    // All applications of a repository have one mirror of it, and no file lies in it that is mounted.
    let mirrors = agent.state_dir().join("mirrors");
    let folders = std::fs::read_dir(&mirrors).unwrap().filter(|it| it.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), 1);
    agent.kill9();
    std::fs::remove_dir_all(&mirrors).unwrap();
    reads(&site);
    agent.restart().await;
    agent.settled(&site.repository.head()).await;
    reads(&site);
    // A reboot: nothing runs, and what lay in memory is gone.
    agent.kill9();
    site.docker.run(&["kill", &first.id()]);
    std::fs::remove_dir_all(&agent.runtime).unwrap();
    agent.restart().await;
    let is_back = || (site.container("web").state() == "running").then_some(());
    crate::harness::wait_until("it runs again", is_back).await;
    agent.settled(&site.repository.head()).await;
    reads(&site);
}

#[tokio::test]
async fn push_is_deployed_and_unrelated_push_touches_nothing() {
    let site = Site::new("push");
    let agent = site.running(&web(&images::server("1.0"), "one")).await;
    let first = site.container("web");

    let commit = site.repository.commit(&[("README", "another text\n")]);
    agent.deployed(&commit).await;
    let same = site.container("web");
    assert_eq!((same.id(), same.started()), (first.id(), first.started()));

    let commit = site.compose(&web(&images::server("2.0"), "two"));
    agent.deployed(&commit).await;
    let second = site.container("web");
    assert_eq!(second.variable("GREETING").as_deref(), Some("two"));
    assert_eq!(second.variable("VERSION").as_deref(), Some("2.0"));
    assert_eq!(site.docker.containers(&site.app).len(), 1, "the old one is gone");
}

#[tokio::test]
async fn poll_finds_a_push_and_only_lists_otherwise() {
    let mut site = Site::new("poll");
    site.settings.poll = "1s";
    let agent = site.running(&web(&images::server("1.0"), "one")).await;
    site.server.take_requests();
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.extend(site.server.take_requests());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // Protocol 2 lists references with a POST of its own; a fetch would be a second POST per poll.
    let posts = seen.iter().filter(|it| it.starts_with("POST")).count();
    assert!(posts * 2 <= seen.len() + 1, "more than a listing: {seen:?}");

    let commit = site.compose(&web(&images::server("1.0"), "two"));
    agent.settled(&commit).await;
}

#[tokio::test]
async fn ssh_repository_is_deployed_and_its_key_stays_secret() {
    let mut site = Site::new("ssh");
    let server = SshServer::start(&site.directory()).await;
    site.settings.url = Some(server.url());
    site.settings.auth =
        Some(serde_json::json!({ "sshKeyFile": server.key(), "knownHosts": server.known_hosts() }));
    let agent = site.running(&web(&images::server("1.0"), "one")).await;
    let commit = site.compose(&web(&images::server("1.0"), "two"));
    agent.deployed(&commit).await;
    assert_eq!(site.container("web").variable("GREETING").as_deref(), Some("two"));

    let key = std::fs::read_to_string(server.key()).unwrap();
    let secret = key.lines().nth(2).unwrap();
    assert!(!agent.log().contains(secret));
    let (_, shown) = agent.get("/api/v1/applications").await.unwrap();
    assert!(!shown.to_string().contains(secret));
}

#[tokio::test]
async fn broken_manifest_is_reported_and_containers_stay() {
    let site = Site::new("broken");
    let good = web(&images::server("1.0"), "one");
    let agent = site.running(&good).await;
    let before = site.container("web");

    site.compose(&good.replace("restart:", "restrat:"));
    agent.sync().await;
    let path = site.path("compose.yaml");
    let application = agent
        .until("the finding is in the status", |application| {
            application.status.findings.iter().any(|it| it.is_error() && it.location.file == path)
        })
        .await;
    let finding = application.status.findings.iter().find(|it| it.is_error()).unwrap();
    assert_eq!(finding.location.line, 4, "{finding}");
    assert_ne!(application.status.sync, SyncStatus::Synced);

    // Self-healing goes on at the last good commit.
    site.docker.run(&["rm", "-f", &site.name("web")]);
    let healed = site.replaced("web", &before.id()).await;
    assert_eq!(healed.label("driftless.spec"), before.label("driftless.spec"));

    let commit = site.compose(&good);
    let application = agent.deployed(&commit).await;
    assert!(application.status.findings.iter().all(|it| !it.is_error()));
}

#[tokio::test]
async fn an_application_that_vanishes_from_git_is_reported_and_kept() {
    let site = Site::new("vanish");
    let agent = site.running(&web(&images::server("1.0"), "one")).await;
    let before = site.container("web");
    site.repository.remove(&[&format!("sites/{}", site.app)]);
    agent.sync().await;
    let application = agent.until("it is reported", |it| it.status.sync != SyncStatus::Synced).await;
    assert!(!application.status.message.is_empty());
    let after = site.container("web");
    assert_eq!((after.id(), after.started()), (before.id(), before.started()));
}

#[tokio::test]
async fn prune_removes_a_vanished_application_but_no_volumes() {
    let mut site = Site::new("prune");
    site.settings.prune = true;
    let other = site.also("kept");
    let image = images::server("1.0");
    site.repository.commit(&[
        (&site.path("message"), "hi"),
        (&format!("sites/{other}/compose.yaml"), &web(&image, "kept")),
    ]);
    let agent = site.running(&shop(&image)).await;
    let kept = format!("{other}-web-1");
    site.until("the other application runs", |docker| docker.container(&kept)).await;

    site.repository.remove(&[&format!("sites/{}", site.app)]);
    agent.sync().await;
    site.until("it is gone", |docker| docker.containers(&site.app).is_empty().then_some(())).await;
    site.docker.run(&["volume", "inspect", &format!("{}_data", site.app)]);
    assert_eq!(site.docker.container(&kept).unwrap().state(), "running");
}

#[tokio::test]
async fn a_service_removed_from_the_manifest_is_removed() {
    let site = Site::new("less");
    let image = images::server("1.0");
    let two = format!("{}  extra:\n    image: {image}\n    restart: always\n", web(&image, "one"));
    let agent = site.running(&two).await;
    assert_eq!(site.docker.running(&site.app).len(), 2);
    let commit = site.compose(&web(&image, "one"));
    agent.deployed(&commit).await;
    site.until("one container is left", |docker| (docker.containers(&site.app).len() == 1).then_some(()))
        .await;
    assert_eq!(site.container("web").state(), "running");
}

#[tokio::test]
async fn removing_most_workloads_needs_confirmation() {
    let site = Site::new("cut");
    let image = images::server("1.0");
    let services = |message: &str, more: usize| {
        let extra = |it: usize| format!("  extra{it}:\n    image: {image}\n    restart: always\n");
        format!("{}{}", web(&image, message), (0..more).map(extra).collect::<String>())
    };
    let agent = site.running(&services("one", 4)).await;
    assert_eq!(site.docker.running(&site.app).len(), 5);
    let commit = site.compose(&services("two", 0));
    agent.sync().await;
    // The workloads that Git keeps are updated all the same.
    let is_new = |it: &Container| it.variable("GREETING").as_deref() == Some("two");
    site.until("the rest is as in Git", |docker| docker.running(&site.app).iter().any(is_new).then_some(()))
        .await;
    let is_held = |it: &Application| {
        it.status.message.contains("PruneHeld") && it.status.health == HealthStatus::Healthy
    };
    let told = agent.until("it waits for a word", is_held).await;
    assert_eq!(told.status.sync, SyncStatus::OutOfSync, "{}", told.status.message);
    assert_eq!(site.docker.running(&site.app).len(), 5);
    agent.act_on_page("prune", "The removal was confirmed.").await;
    agent.settled(&commit).await;
    assert_eq!(site.docker.containers(&site.app).len(), 1);
}

#[tokio::test]
async fn a_deployment_rolls_without_ever_having_fewer_than_it_may() {
    let site = Site::new("roll");
    images::server_as(&Default::default(), "registry.example.com/order-api:v2.1.0", "v2.1.0");
    let fast = ORDER_API
        .replace("initialDelaySeconds: 5", "initialDelaySeconds: 0")
        .replace("periodSeconds: 10", "periodSeconds: 1\n            timeoutSeconds: 10");
    let manifest = site.path("deployment.yaml");
    let commit = site.repository.commit(&[(&manifest, &fast)]);
    let agent = site.agent().await;
    agent.settled(&commit).await;

    let newer = fast.replace(
        "image: registry.example.com/order-api:v2.1.0",
        &format!("image: {}", images::server("3.0")),
    );
    let commit = site.repository.commit(&[(&manifest, &newer)]);
    agent.sync().await;
    let lowest = std::sync::atomic::AtomicU32::new(u32::MAX);
    agent
        .until("the rollout is complete", |application| {
            let available = application.status.workloads.values().map(|it| it.available_replicas).sum();
            lowest.fetch_min(available, std::sync::atomic::Ordering::Relaxed);
            crate::harness::is_settled(application, &commit)
        })
        .await;
    // 25 % of three, rounded down, may be unavailable: none.
    assert_eq!(lowest.into_inner(), 3);
    let running = site.docker.running(&site.app);
    assert_eq!(running.len(), 3);
    assert!(running.iter().all(|it| it.variable("VERSION").as_deref() == Some("3.0")));
}

#[tokio::test]
async fn an_unhealthy_container_shows_in_the_status() {
    let site = Site::new("sick");
    let image = images::server("1.0");
    let agent = site
        .running(&format!(
            "services:
  web:
    image: {image}
    restart: unless-stopped
    healthcheck:
      test: [CMD, /server, --healthcheck, \"http://127.0.0.1:8080/healthz\"]
      interval: 1s
      retries: 2
"
        ))
        .await;
    site.docker.run(&["exec", &site.name("web"), "/server", "--unhealthy"]);
    agent.until("it is not healthy any more", |it| it.status.health > HealthStatus::Healthy).await;
}

#[tokio::test]
async fn validate_names_the_place_of_an_error_and_needs_no_agent() {
    let site = Site::new("validate");
    site.compose("services:\n  web:\n    imag: nginx\n");
    let agent = crate::harness::Agent::new(&site.directory(), &site.app, &site.server.url(), &site.settings);
    let folder = site.directory().join("work/sites");
    let output = agent.command(&["validate", folder.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("compose.yaml:3:5"), "{text}");

    site.compose(&web("driftless-e2e/server:1.0", "one"));
    let output = agent.command(&["validate", folder.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn old_container_runs_until_a_process_frees_the_new_port() {
    let site = Site::new("foreign-port");
    let (first, second) = (free_port(), free_port());
    let compose = |port: u16| {
        let image = images::server("1.0");
        format!("services:\n  web:\n    image: {image}\n    ports: ['{port}:8080']\n")
    };
    let agent = site.running(&compose(first)).await;
    let before = site.container("web");
    let process = std::net::TcpListener::bind(("127.0.0.1", second)).unwrap();
    let commit = site.compose(&compose(second));
    agent.sync().await;
    let application = agent
        .until("the port is reported", |application| {
            application.status.message.contains(&format!("host port {second}/tcp"))
        })
        .await;
    assert!(
        application.status.message.contains("a process of the host holds"),
        "{}",
        application.status.message
    );
    assert_eq!(application.status.sync, SyncStatus::OutOfSync, "the new commit does not run");
    let kept = site.container("web");
    assert_eq!((kept.id(), kept.started()), (before.id(), before.started()), "the old one serves");
    let revision = agent.history().await.into_iter().find(|revision| revision.commit.id == *commit);
    assert_ne!(revision.unwrap().outcome, Outcome::Succeeded);
    drop(process);
    agent.settled(&commit).await;
    assert_ne!(site.container("web").id(), before.id());
}

#[tokio::test]
async fn platform_that_the_engine_cannot_run_is_not_started() {
    let site = Site::new("platform");
    let text = |platform: &str| {
        format!(
            "services:\n  web:\n    image: \"{}\"\n    platform: {platform}\n    stop_grace_period: 1s\n",
            images::placeholder()
        )
    };
    let own = if cfg!(target_arch = "x86_64") { "linux/amd64" } else { "linux/arm64" };
    let commit = site.compose(&text(own));
    let agent = site.agent().await;
    agent.settled(&commit).await;
    let running = site.container("web").id().to_owned();
    // No emulator is installed for it anywhere.
    site.compose(&text("linux/mips64"));
    agent.sync().await;
    agent
        .until("the platform to be refused", |application| {
            application.status.waits.iter().any(|wait| {
                wait.message.contains("asks for `platform: linux/mips64`") && wait.message.contains(own)
            })
        })
        .await;
    assert_eq!(site.container("web").id(), running, "what runs stays");
}

#[tokio::test]
async fn commit_against_the_policy_changes_nothing() {
    let mut site = Site::new("policy");
    site.settings = Settings {
        whole: Some(serde_json::json!({ "policy": { "trust": "limited" } })),
        ..Settings::default()
    };
    let text = |more: &str| {
        format!(
            "services:\n  web:\n    image: \"{}\"\n    stop_grace_period: 1s\n{more}",
            images::placeholder()
        )
    };
    let commit = site.compose(&text(""));
    let agent = site.agent().await;
    agent.settled(&commit).await;
    let running = site.container("web").id().to_owned();
    for (more, message) in [
        ("    privileged: true\n", "5:5: error: services.web.privileged: is privileged"),
        ("    volumes: [\"/:/host\"]\n", "5:15: error: services.web.volumes[0]: mounts `/`"),
        ("    volumes: [\"/var/run/docker.sock:/s\"]\n", "which gives access to `/run/docker.sock`"),
    ] {
        site.compose(&text(more));
        agent.sync().await;
        agent
            .until("the violation to be reported", |application| {
                application.status.findings.iter().any(|finding| finding.to_string().contains(message))
            })
            .await;
        assert_eq!(site.container("web").id(), running, "{more}");
    }
    let commit = site.compose(&text("    init: true\n"));
    agent.sync().await;
    agent.settled(&commit).await;
}

/// Nobody waits for the next poll when the first push was not yet right.
#[tokio::test]
async fn sync_fetches_before_there_is_an_application() {
    let mut site = Site::new("first-sync");
    let (other, image) = (site.also("other"), images::server("1.0"));
    site.repository.commit(&[("README.md", "nothing yet")]);
    let agent = site.agent().await;
    assert_eq!(agent.asks("sync").0, 0, "there is nothing, and that is no error");
    let commit = site.compose(&web(&image, "hello"));
    let (code, out, error) = agent.asks("sync --wait --timeout 1m");
    assert!(code == 0 && out.contains("Synced and Healthy"), "{code} {out}{error}");
    assert!(error.contains("no applications yet: looking for them in infra"), "{error}");
    agent.settled(&commit).await;
    // Neither for an application that is new in a commit.
    site.repository.commit(&[(&format!("sites/{other}/compose.yaml"), &web(&image, "other"))]);
    let (code, out, error) = agent.asks(&format!("sync {other} --wait --timeout 1m"));
    assert!(code == 0 && out.contains("Synced and Healthy"), "{code} {out}{error}");
}
