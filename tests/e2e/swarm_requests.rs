//! Requests of users about an application on a Docker Swarm: the output of its tasks, what differs from Git, and a restart. `make e2e-swarm`, as root.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use serde_json::Value;

use crate::{harness::wait_until, swarm::Deployed};

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
    let later = all.agent.said(&format!("logs {app}/web --since 1s"));
    assert!(later.is_empty(), "{later}");
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
    for text in [&drift, &diff, &plan] {
        assert!(!text.contains("s3cret-by-hand"), "{text}");
    }
    all.agent.said(&format!("resume {app}"));
    let commit = all.site.repository.head();
    let is_done = |all: &Deployed| all.agent.said(&format!("plan {app}")).contains("nothing to do");
    all.until("nothing is left to do", is_done).await;
    assert!(all.names("service").contains(&term));
    all.agent.settled(&commit).await;
    assert_eq!(all.agent.asks(&format!("drift --app {app}")).0, 0);
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
