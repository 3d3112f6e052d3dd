//! Requests of users about an application on a Docker Swarm: the output of its tasks, what differs from Git, and a restart. `make e2e-swarm`, as root.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    process::Stdio,
};

use driftless_model::{Application, STACK_NAMESPACE};
use serde_json::Value;

use crate::{
    harness::{git, wait_until},
    swarm::Deployed,
};

/// Passes in which nothing may be written.
const IDLE: usize = 5;

fn shop(image: &str) -> String {
    format!(
        "services:
  web: {{image: '{image}', environment: {{SERVICE: web}}, deploy: {{replicas: 2}}}}
  term: {{image: '{image}', tty: true}}
  once: {{image: '{image}', command: [--once], deploy: {{mode: replicated-job}}}}
"
    )
}

/// The ids of the tasks that run.
fn tasks(all: &Deployed, service: &str) -> Vec<String> {
    let running = "desired-state=running";
    let text = all.docker(&["service", "ps", "-q", "--no-trunc", "--filter", running, &all.service(service)]);
    let mut tasks: Vec<String> = text.lines().map(str::to_owned).collect();
    tasks.sort();
    tasks
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn tasks_of_a_swarm_are_read_and_restarted() {
    let mut all = Deployed::with_files("swarm-ask", true, |image| vec![("compose.yaml", shop(image))]).await;
    output_is_read(&all).await;
    differences_are_explained(&all).await;
    restarts_once(&mut all).await;
    lost_labels_are_written_again(&all).await;
    service_is_adopted_by_request(&all).await;
}

/// `docker stack deploy` by hand leaves a service without the labels of the agent.
async fn lost_labels_are_written_again(all: &Deployed) {
    let (app, web) = (&all.site.app, all.service("web"));
    let before = tasks(all, "web");
    let labels = ["agent", "application", "workload", "spec"].map(|name| format!("driftless.{name}"));
    let removals = labels.iter().flat_map(|label| ["--label-rm", label]);
    let words: Vec<&str> = ["service", "update", "-d"].into_iter().chain(removals).chain([&*web]).collect();
    all.docker(&words);
    wait_until("the labels are there again", || {
        (all.inspect("web")["Spec"]["Labels"]["driftless.agent"] == "swarm").then_some(())
    })
    .await;
    all.agent.settled(&all.site.repository.head()).await;
    assert_eq!(tasks(all, "web"), before, "no task was replaced");
    assert!(all.agent.said(&format!("adopt {app}")).contains("nothing of it was started"));
}

/// Another service under the name of one that is gone, as by `docker stack deploy`.
async fn service_is_adopted_by_request(all: &Deployed) {
    let (app, term) = (&all.site.app, all.service("term"));
    let spec = all.inspect("term")["Spec"].clone();
    let image = spec["TaskTemplate"]["ContainerSpec"]["Image"].as_str().unwrap();
    let stack = spec["Labels"][STACK_NAMESPACE].as_str().unwrap();
    let label = format!("{STACK_NAMESPACE}={stack}");
    all.agent.said(&format!("suspend {app}"));
    all.docker(&["service", "rm", &term]);
    all.docker(&["service", "create", "-d", "--name", &term, "--label", &label, image]);
    all.agent.said(&format!("resume {app}"));
    let advice = format!("driftless adopt {app}");
    let is_found = |found: &Application| found.status.waits.iter().any(|wait| wait.message.contains(&advice));
    all.agent.until("it says how to adopt the service", is_found).await;
    assert!(all.agent.said(&format!("adopt {app} --dry-run")).contains(&format!("service {term}")));
    assert_eq!(all.agent.said(&format!("adopt {app}")), format!("{app}: taken over\n  service {term}\n"));
    all.agent.settled(&all.site.repository.head()).await;
    assert_eq!(all.inspect("term")["Spec"]["Labels"]["driftless.agent"], "swarm");
}

async fn output_is_read(all: &Deployed) {
    let app = &all.site.app;
    for service in ["web", "term"] {
        wait_until(&format!("{service} has said that it listens"), || {
            let (_, text, _) = all.agent.asks(&format!("logs {app}/{service} --tail 5"));
            (text.lines().count() == 1 && text.contains("listens on port")).then_some(())
        })
        .await;
    }
    let stamped = all.agent.said(&format!("logs {app}/web --tail 1 --timestamps"));
    assert!(stamped.starts_with("20") && stamped.contains("Z "), "{stamped}");
    // Each line of several tasks says which of them it is from.
    let both = all.agent.said(&format!("logs -n {app} -l driftless.workload=web --prefix"));
    assert!(both.contains("web.1") && both.contains("web.2"), "{both}");
    let once = all.agent.said(&format!("logs {app}/once"));
    assert!(!once.is_empty(), "the output of a task that has ended is kept");
    wait_until("the line is older than a second", || {
        all.agent.said(&format!("logs {app}/web --since 1s")).is_empty().then_some(())
    })
    .await;
    assert!(!all.agent.said(&format!("logs {app}/web --since 1h")).is_empty());
}

async fn differences_are_explained(all: &Deployed) {
    let app = &all.site.app;
    assert!(all.agent.said(&format!("plan {app}")).contains("nothing to do"));
    assert_eq!(all.agent.asks(&format!("drift --app {app}")).0, 0);
    // Changes by hand, which stay as long as the application is suspended.
    all.agent.said(&format!("suspend {app}"));
    let (web, term) = (all.service("web"), all.service("term"));
    all.docker(&["service", "update", "-d", "--env-add", "PASSWORD=s3cret-by-hand", &web]);
    all.docker(&["service", "rm", &term]);
    let (code, drift, error) = all.agent.asks(&format!("drift --app {app}"));
    assert_eq!(code, 1, "{drift}{error}");
    assert!(drift.contains(&web) && drift.contains(&term) && drift.contains("PASSWORD"), "{drift}");
    let (code, diff, _) = all.agent.asks(&format!("diff {app}"));
    assert_eq!(code, 1, "{diff}");
    let plan = all.agent.said(&format!("plan {app}"));
    assert!(plan.contains(&format!("create service {term}")), "{plan}");
    assert!(plan.contains(&format!("update service {web}")), "{plan}");
    let alone = compared_without_agent(all);
    assert_eq!(alone.each_ref().map(|(code, _)| *code), [0, 1, 1], "{alone:?}");
    let steps = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| line.contains(" service "));
        // Each mask has a key of its own, and only an agent knows since when a service is missing.
        lines
            .map(|line| line.split([' ', '(']).take(3).collect::<Vec<&str>>().join(" "))
            .collect::<BTreeSet<String>>()
    };
    assert_eq!(steps(&alone[0].1), steps(&plan));
    for text in [&alone[1].1, &alone[2].1] {
        assert!(text.contains(&web) && text.contains(&term) && text.contains("PASSWORD"), "{text}");
    }
    for text in [&drift, &diff, &plan].into_iter().chain(alone.iter().map(|(_, text)| text)) {
        assert!(!text.contains("s3cret-by-hand"), "{text}");
    }
    all.agent.said(&format!("resume {app}"));
    let commit = all.site.repository.head();
    let is_done = |all: &Deployed| all.agent.said(&format!("plan {app}")).contains("nothing to do");
    all.until("nothing is left to do", is_done).await;
    assert!(all.names("service").contains(&term));
    all.agent.settled(&commit).await;
    assert_eq!(all.agent.asks(&format!("drift --app {app}")).0, 0);
    let alone = compared_without_agent(all);
    assert!(alone[0].1.contains("nothing to do"), "{alone:?}");
    assert_eq!(alone.each_ref().map(|(code, _)| *code), [0, 0, 0], "{alone:?}");
}

/// Exit code and output of `plan` and `diff` of a folder, and of `drift` of a repository, which ask the manager.
fn compared_without_agent(all: &Deployed) -> [(i32, String); 3] {
    let (host, bare) = (all.swarm.engine.host(), all.site.repository.bare.display().to_string());
    let clone = tempfile::tempdir().unwrap();
    git(clone.path(), &["clone", "-q", &bare, "."]);
    let folder = clone.path().display().to_string();
    let run = |words: &[&str]| {
        let output = all.agent.command(words).args(["--engine", "swarm"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap() + &error)
    };
    [
        run(&["plan", "--dir", &folder, "--docker-host", &host]),
        run(&["diff", "--dir", &folder, "--docker-host", &host]),
        run(&["drift", "--docker", &host, "--repo", &bare, "--path", "sites"]),
    ]
}

async fn restarts_once(all: &mut Deployed) {
    let app = all.site.app.clone();
    // A reader that follows sees the end of its task.
    let line = format!("logs -f {app}/term");
    let words: Vec<&str> = line.split(' ').collect();
    let mut follower = all
        .agent
        .command(&words)
        .env("DRIFTLESS_SERVER", format!("http://{}", all.agent.address()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("listens on port"));

    for service in ["web", "term"] {
        let before = tasks(all, service);
        let said = all.agent.said(&format!("rollout restart deploy/{service} -n {app}"));
        assert!(said.contains("restarted"), "{said}");
        all.agent.kill9();
        all.agent.restart().await;
        all.until(&format!("all tasks of {service} are others"), |all| {
            let now = tasks(all, service);
            now.len() == before.len() && now.iter().all(|task| !before.contains(task))
        })
        .await;
    }
    lines.by_ref().for_each(drop);
    assert!(follower.wait().unwrap().code().is_some(), "the stream ends with its task or the agent");

    let commit = all.site.repository.head();
    all.agent.settled(&commit).await;
    // The Swarm itself writes the end of an update into its service.
    let is_updated = |name: &str| all.inspect(name)["UpdateStatus"]["State"] == "completed";
    all.until("the updates have ended", |_| is_updated("web") && is_updated("term")).await;
    let versions = all.versions();
    all.passes(IDLE).await;
    assert_eq!(all.versions(), versions);
    let forced = |name: &str| all.inspect(name)["Spec"]["TaskTemplate"]["ForceUpdate"].clone();
    assert_eq!((forced("web"), forced("term")), (Value::from(1), Value::from(1)));
    assert!(all.agent.application().await.unwrap().status.drift.is_empty());

    let once = tasks(all, "once");
    let (code, _, error) = all.agent.asks(&format!("rollout restart job/once -n {app}"));
    assert!(code != 0 && error.contains("jobs.batch have no rollouts"), "{error}");
    assert_eq!(tasks(all, "once"), once);
}
