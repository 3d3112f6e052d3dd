//! An engine that is killed, stopped or out of space at the worst moment: a second engine, with a containerd that
//! outlives it as under systemd. These tests need root: `make e2e-faults`, and `make e2e` as root.

use std::{cell::RefCell, collections::BTreeSet, process::Stdio, time::Duration};

use driftless_model::{ConditionStatus, SyncStatus};
use serde_json::json;

use crate::harness::{Container, Engine, Load, Settings, Site, free_port, images, wait_until};

/// A site on an engine of its own, and the name of an image on it.
async fn site(test: &str) -> (Engine, Site, String, tempfile::TempDir) {
    site_on(test, |_| {}).await
}

/// The same with other settings of the engine.
async fn site_on(test: &str, set: impl Fn(&mut Engine)) -> (Engine, Site, String, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = Engine::new(directory.path()).expect("root and network namespaces");
    set(&mut engine);
    engine.start_with_containerd().await;
    let settings = Settings { docker_host: Some(engine.host()), poll: "1s", ..Settings::default() };
    let site = Site::with(test, settings);
    let image = images::server_as(&site.docker, "driftless-e2e/server:1.0", "1.0");
    (engine, site, image, directory)
}

fn job(image: &str, version: usize, seconds: u64) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: work}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: work
          image: \"{image}\"
          args: [--wait]
          env: [{{name: GREETING, value: \"version {version}\"}}, {{name: RUN_FOR, value: \"{seconds}\"}}]
"
    )
}

/// Number of starts of a container's program.
fn greetings(site: &Site, container: &Container) -> usize {
    let output = site.docker.command(&["logs", &container.id()]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count()
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn job_is_done_after_the_engine_died_during_its_start() {
    let (mut engine, site, image, directory) = site("starting").await;
    let agent = site.agent().await;
    for (version, moment) in ["/tasks/create", "/tasks/start", "/tasks/create"].into_iter().enumerate() {
        let mut events = engine.task_events().await;
        let commit = site.repository.commit(&[(&site.path("job.yaml"), &job(&image, version, 1))]);
        agent.sync().await;
        events.next(moment).await;
        engine.kill9_alone();
        engine.start_again().await;
        agent.settled(&commit).await;
    }
    let log = agent.log();
    // Whether the engine keeps the task of the dead start depends on the load of the machine. A planner test has the words of
    // its refusal; here the Job is done in either case.
    let refusals = log.matches("(the engine cannot start it again)").count();
    eprintln!("the engine refused {refusals} of 3 starts");
    assert!(!log.contains("drift detected"), "nobody made that: {log}");
    drop((agent, site, engine, directory));
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn containers_run_again_after_a_kill_of_dockerd_and_containerd() {
    let (mut engine, site, image, directory) = site("both").await;
    let agent = site.agent().await;
    for (version, moment) in ["/containers/create", "/tasks/create", "/tasks/start"].into_iter().enumerate() {
        let mut events = engine.task_events().await;
        let web = format!(
            "services: {{web: {{image: '{image}', environment: {{GREETING: 'version {version}'}}}}}}\n"
        );
        let commit = site.compose(&web);
        agent.sync().await;
        events.next(moment).await;
        engine.kill9_with_containerd();
        engine.start_again().await;
        agent.settled(&commit).await;
        let running: Vec<Container> = site.docker.running(&site.app);
        assert_eq!(running.len(), 1, "{version}");
    }
    let log = agent.log();
    assert!(!log.contains("drift detected"), "nobody made that: {log}");
    drop((agent, site, engine, directory));
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn job_that_ends_well_while_the_engine_is_dead_is_not_run_again() {
    let (mut engine, site, image, directory) = site("ending").await;
    let commit = site.repository.commit(&[(&site.path("job.yaml"), &job(&image, 1, 8))]);
    let agent = site.agent().await;
    let running = site.until("it runs", |docker| docker.running(&site.app).pop()).await;
    site.until("it has begun", |_| (greetings(&site, &running) == 1).then_some(())).await;
    engine.kill9_alone();
    wait_until("the program ends", || (engine.programs() == 0).then_some(())).await;
    engine.start_again().await;
    agent.settled(&commit).await;
    let ended = site.container("work");
    assert_eq!((ended.id(), ended.started()), (running.id(), running.started()));
    assert_eq!(greetings(&site, &ended), 1);
    drop((agent, site, engine, directory));
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn one_shots_that_end_while_the_engine_is_dead() {
    let (mut engine, site, image, directory) = site("one-shots").await;
    let compose = format!(
        "services:
  web:
    image: {image}
    depends_on: {{migrate: {{condition: service_completed_successfully}}}}
  migrate:
    image: {image}
    command: [--wait]
    environment: {{GREETING: migrated, RUN_FOR: 8}}
  alone:
    image: {image}
    command: [--wait]
    environment: {{GREETING: alone, RUN_FOR: 8}}
"
    );
    let commit = site.compose(&compose);
    let agent = site.agent().await;
    site.until("both run", |docker| (docker.running(&site.app).len() == 2).then_some(())).await;
    let [migrate, alone] = ["migrate", "alone"].map(|name| site.container(name));
    engine.kill9_alone();
    wait_until("both end", || (engine.programs() == 0).then_some(())).await;
    engine.start_again().await;
    agent.settled(&commit).await;
    assert_eq!(site.container("migrate").started(), migrate.started(), "another service waits for it");
    // The engine may have stopped it: that looks the same for a service.
    assert!(site.container("alone").started() > alone.started());
    let told = agent.events().await;
    let told = told.iter().find(|event| event.reason == "StartedAgain").expect("it is said loudly");
    assert!(told.message.contains("service_completed_successfully"), "{}", told.message);
    drop((agent, site, engine, directory));
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn process_that_the_engine_lost_ends_before_another_runs() {
    let (engine, site, image, directory) = site("stray").await;
    let compose = format!(
        "services: {{db: {{image: '{image}', volumes: ['data:/data'], stop_grace_period: 2s}}}}\nvolumes: {{data: }}\n"
    );
    let commit = site.compose(&compose);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;
    let db = site.container("db");
    agent.kill9();
    site.docker.run(&["stop", &db.id()]);
    let mut stray = engine.leave_behind(&db.id());
    agent.restart().await;
    // The helper ends the process and removes itself; since the folder stays, another container takes the place of this one.
    let replaced = || site.docker.running(&site.app).into_iter().find(|it| it.id() != db.id());
    wait_until("another container runs", replaced).await;
    let ended = stray.try_wait().unwrap().expect("the process has ended before the other container runs");
    assert_eq!(ended.code(), None, "by a signal");
    agent.settled(&commit).await;
    assert!(site.docker.container(&format!("{}-end-processes", db.name())).is_none());
    let log = agent.log();
    assert!(log.contains("the engine does not know the processes of an earlier start"), "{log}");
    drop((agent, site, engine, directory));
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn engine_on_an_empty_disk_gets_no_containers() {
    let (mut engine, site, image, directory) = site("empty").await;
    let web =
        format!("services: {{web: {{image: '{image}', volumes: ['data:/data']}}}}\nvolumes: {{data: }}\n");
    let agent = site.running(&web).await;
    let before = site.container("web").id();
    // The id of the data stays the same.
    engine.stop();
    engine.start_again().await;
    agent.settled(&site.repository.head()).await;
    assert!(!agent.log().contains("another id than before"), "{}", agent.log());

    engine.stop();
    engine.swap_disks();
    engine.start_again().await;
    let is_held = |it: &driftless_model::Application| {
        it.status
            .conditions
            .iter()
            .any(|condition| condition.kind == "StateLost" && condition.status == ConditionStatus::True)
    };
    agent.until("nothing is changed", is_held).await;
    agent.until_not_ready().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(site.docker.containers(&site.app).is_empty());

    engine.stop();
    engine.swap_disks();
    engine.start_again().await;
    agent.settled(&site.repository.head()).await;
    assert_eq!(site.container("web").id(), before);
    drop((agent, site, engine, directory));
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn hanging_engine_is_reported_and_the_agent_ends() {
    let (engine, site, image, directory) = site("hanging").await;
    let mut agent = site.running(&format!("services:\n  web:\n    image: {image}\n")).await;
    engine.pause();
    agent.until_not_ready().await;
    agent.until("it is unknown", |it| it.status.sync == SyncStatus::Unknown).await;
    assert!(agent.terminate().await.success());
    agent.launch();
    agent.until("it is listed", |it| it.status.sync == SyncStatus::Unknown).await;
    engine.resume();
    agent.ready().await;
    agent.settled(&site.repository.head()).await;
    drop((agent, site, engine, directory));
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn container_starts_although_the_engine_kept_its_endpoint() {
    let (engine, site, image, directory) = site("endpoint").await;
    let compose = format!("services:\n  web:\n    image: {image}\n    container_name: {}-fixed\n", site.app);
    let agent = site.running(&compose).await;
    let fixed = format!("{}-fixed", site.app);
    let before = site.docker.container(&fixed).unwrap();
    // The engine cannot delete the endpoint from its database while its files may not grow.
    engine.limit_file_size(Some(100));
    let _ = site.docker.attempt(&["rm", "-f", &fixed]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    engine.limit_file_size(None);
    let again = site
        .until("it runs again", |docker| {
            docker.container(&fixed).filter(|it| it.id() != before.id() && it.state() == "running")
        })
        .await;
    agent.settled(&site.repository.head()).await;
    assert_eq!(again.name(), fixed);
    let log = agent.log();
    assert!(log.contains("under another name"), "the fault did not occur: {log}");
    drop((agent, site, engine, directory));
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn network_without_a_free_range_is_explained_and_made_later() {
    // Room for one network.
    let pools = json!({ "default-address-pools": [{ "base": "10.98.7.0/24", "size": 24 }] });
    let (engine, site, image, directory) =
        site_on("ranges", |engine| engine.configuration = pools.clone()).await;
    site.docker.run(&["network", "create", "taken"]);
    let commit = site.compose(&format!("services:\n  web:\n    image: {image}\n"));
    let agent = site.agent().await;
    agent.until("it says what to do", |it| it.status.message.contains("default-address-pools")).await;
    site.docker.run(&["network", "rm", "taken"]);
    agent.sync().await;
    agent.settled(&commit).await;
    drop((agent, site, engine, directory));
}

/// Docker removes all of its rules of iptables when it starts, and makes those of published ports again. Meanwhile it refuses new
/// connections to a published port, also to one that it publishes without a proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn kept_connections_survive_a_restart_with_live_restore() {
    let (mut engine, site, image, directory) = site_on("live", |engine| engine.live_restore = true).await;
    let address = engine.link_to_host();
    let [by_proxy, by_engine] = [free_port(), free_port()];
    let agent = site
        .running(&format!(
            "services:
  web:
    image: '{image}'
    environment: {{KEEP_ALIVE: '1'}}
    ports: ['{by_proxy}:8080']
    deploy: {{replicas: 2}}
  direct:
    image: '{image}'
    environment: {{KEEP_ALIVE: '1'}}
    ports: ['{by_engine}:8080']
"
        ))
        .await;
    let load = Load::on((address, by_proxy).into()).await;
    let direct = Load::on((address, by_engine).into()).await;
    load.hears("server 1.0").await;
    let ids = || site.docker.running(&site.app).iter().map(Container::id).collect::<Vec<String>>();
    let before = ids();
    for _ in 0..2 {
        engine.stop();
        load.hears("server 1.0").await;
        load.assert_no_failure("the engine is stopped");
        engine.start_again().await;
        agent.settled(&site.repository.head()).await;
        let (refused, directly) = (load.take_failures(), direct.take_failures());
        eprintln!("{} requests by the proxy and {} without were refused", refused.len(), directly.len());
        let is_refused = |failure: &String| failure.starts_with("new connection: Connection refused");
        assert!(refused.iter().all(is_refused), "{refused:#?}");
        load.hears("server 1.0").await;
        load.assert_no_failure("the engine has started");
    }
    assert_eq!(before, ids(), "no container was replaced");
    drop((load, direct, agent, site, engine, directory));
}

/// The name, the instance and the id of each container of the application.
fn listed(site: &Site) -> Vec<(String, String, String)> {
    let filter = format!("label=driftless.application={}", site.app);
    let format = r#"{{.Names}} {{.Label "driftless.workload"}}.{{.Label "driftless.slot"}} {{.ID}}"#;
    let lines = site.docker.run(&["ps", "--filter", &filter, "--format", format]);
    let words = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap(), words.next().unwrap())
    };
    lines.lines().map(words).collect()
}

/// All containers of a host, removed by hand as fast as the engine does it, while the agent brings them back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root for an engine of its own; `make e2e-faults`"]
async fn three_hundred_containers_removed_at_once_come_back() {
    const SERVICES: usize = 10;
    let (engine, site, image, directory) = site("storm").await;
    let services = |replicas: usize| {
        let one = |number: usize| {
            format!(
                "  s{number}: {{image: '{image}', network_mode: none, stop_grace_period: 0s, deploy: {{replicas: {replicas}}}}}\n"
            )
        };
        format!("services:\n{}", (0..SERVICES).map(one).collect::<String>())
    };
    let agent = site.running(&services(5)).await;
    // The harness waits for a limited time for each of them.
    for replicas in [10, 15, 20, 25, 30] {
        agent.deployed(&site.compose(&services(replicas))).await;
    }
    let before = listed(&site);
    assert_eq!(before.len(), 30 * SERVICES);
    let removals: Vec<_> = before
        .chunks(30)
        .map(|part| {
            let ids: Vec<&str> = part.iter().map(|(_, _, id)| id.as_str()).collect();
            site.docker.command(&[&["rm", "-f"][..], &ids].concat()).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut removal in removals {
        assert!(removal.wait().unwrap().success());
    }
    let peace = tokio::time::Instant::now();
    site.until("half of them are back", |_| (listed(&site).len() > 15 * SERVICES).then_some(())).await;
    site.until("all are back", |_| (listed(&site).len() >= 30 * SERVICES).then_some(())).await;
    eprintln!("all are back {:.1} s after the last removal", peace.elapsed().as_secs_f32());
    let status = agent.settled(&site.repository.head()).await.status;
    let after = listed(&site);
    let set = |part: fn(&(String, String, String)) -> &String, all: &[(String, String, String)]| {
        all.iter().map(|it| part(it).clone()).collect::<BTreeSet<String>>()
    };
    assert_eq!(after.len(), 30 * SERVICES, "none is there twice");
    assert_eq!(set(|it| &it.0, &after), set(|it| &it.0, &before), "each has its name again");
    assert_eq!(set(|it| &it.1, &after), set(|it| &it.1, &before), "each is there once");
    assert!(set(|it| &it.2, &after).is_disjoint(&set(|it| &it.2, &before)), "each was removed");
    let wrong = |name: &str| {
        let found = status.conditions.iter().find(|it| it.kind == name);
        found.filter(|it| it.status == ConditionStatus::True).map(|it| it.message.clone())
    };
    assert_eq!(wrong("RepeatedDrift"), None, "each was removed once");
    assert_eq!(wrong("HealIneffective"), None);
    let events = agent.events().await;
    let failed: Vec<String> =
        events.iter().filter(|it| it.reason == "Failed").map(ToString::to_string).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    // The storm counts as one change of each container: the next one of the same container has the first, short pause.
    site.docker.run(&["rm", "-f", &after[0].2]);
    let attempts = RefCell::new(BTreeSet::new());
    agent
        .until("it is back", |found| {
            attempts.borrow_mut().extend(
                found.status.waits.iter().filter(|it| it.until.is_some()).filter_map(|it| it.attempt),
            );
            listed(&site).iter().any(|(name, _, id)| *name == after[0].0 && *id != after[0].2)
        })
        .await;
    assert!(attempts.borrow().iter().all(|attempt| *attempt == 1), "{attempts:?}");
    drop((agent, site, engine, directory));
}
