//! Jobs, CronJobs and hooks on a Docker Swarm: each runs as often as Git says. `make e2e-swarm`, as root.

use std::{cell::RefCell, collections::BTreeSet, fs, time::Duration};

use driftless_model::HealthStatus::Degraded;
use serde_json::json;

use crate::{harness::wait_within, swarm::Deployed};

/// Passes in which no Job may run again.
const IDLE: usize = 20;

/// The time in which a CronJob of every minute has begun two runs, and the first one is forgotten.
const RUNS: Duration = Duration::from_secs(330);

fn job(name: &str, metadata: &str, image: &str, args: &str, version: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: {name}{metadata}}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: server, image: '{image}', args: {args}, env: [{{name: VERSION, value: '{version}'}}]}}]
---
"
    )
}

/// A Job, hooks around the sync, and a Deployment. A Job with a CronJob of every minute, if there is a schedule.
fn manifests(image: &str, args: &str, version: &str, schedule: bool) -> String {
    let hook = |phase: &str| format!(", annotations: {{driftless.hook: {phase}}}");
    let cron = format!(
        "apiVersion: batch/v1
kind: CronJob
metadata: {{name: report}}
spec:
  schedule: '* * * * *'
  successfulJobsHistoryLimit: 1
  jobTemplate:
    spec:
      template:
        spec: {{restartPolicy: Never, containers: [{{name: server, image: '{image}', args: [--once]}}]}}
---
"
    );
    format!(
        "{}{}{}{}apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: '{image}', env: [{{name: VERSION, value: '{version}'}}]}}]}}
",
        job("migrate", "", image, args, version),
        job("before", &hook("PreSync"), image, "[--once]", "1"),
        job("after", &hook("PostSync"), image, "[--once]", "1"),
        if schedule { cron } else { String::new() },
    )
}

/// The ids of all tasks that a service ever had.
fn tasks(all: &Deployed, service: &str) -> Vec<String> {
    let text = all.docker(&["service", "ps", "-q", "--no-trunc", &all.service(service)]);
    text.lines().map(str::to_owned).collect()
}

/// The only service whose name has this beginning.
fn only(all: &Deployed, start: &str) -> String {
    let start = all.service(start);
    let found: Vec<String> =
        all.names("service").into_iter().filter(|name| name.starts_with(&start)).collect();
    let [one] = &found[..] else { panic!("{start}: {found:?}") };
    one.clone()
}

fn created(all: &Deployed, service: &str) -> String {
    all.docker(&["service", "inspect", "-f", "{{.CreatedAt.UnixNano}}", service]).trim().to_owned()
}

fn commit(all: &Deployed, args: &str, version: &str, schedule: bool) -> String {
    let text = manifests(&all.image, args, version, schedule);
    all.site.repository.commit(&[(&all.site.path("shop.yaml"), &text)])
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn jobs_of_a_swarm_run_as_often_as_git_says() {
    let files = |image: &str| vec![("shop.yaml", manifests(image, "[--once]", "1", false))];
    let mut all = Deployed::with_files("swarm-jobs", true, files).await;
    let first = all.site.repository.head();
    let (before, after) = (only(&all, "before"), only(&all, "after"));
    let order = [before.clone(), all.service("web"), after.clone()].map(|name| created(&all, &name));
    assert!(order.is_sorted(), "{order:?}");

    // The Job runs once.
    let (versions, ran) = (all.versions(), tasks(&all, "migrate"));
    assert_eq!(ran.len(), 1);
    all.passes(IDLE).await;
    all.agent.kill9();
    all.agent.restart().await;
    all.agent.settled(&first).await;
    all.passes(2).await;
    assert_eq!((all.versions(), tasks(&all, "migrate")), (versions, ran.clone()));

    // Its service is gone, and so is the agent that saw it complete.
    let migrate = all.service("migrate");
    all.docker(&["service", "rm", &migrate]);
    all.agent.kill9();
    fs::remove_dir_all(all.agent.state_dir()).unwrap();
    all.agent.restart().await;
    all.agent.settled(&first).await;
    all.passes(IDLE).await;
    assert!(!all.names("service").contains(&migrate), "it runs again: {:?}", all.names("service"));

    // A changed one runs once more, between its hooks.
    let second = commit(&all, "[--once]", "2", false);
    all.agent.settled(&second).await;
    let again = tasks(&all, "migrate");
    assert!(again.len() == 1 && again != ran, "{again:?}");
    assert!(only(&all, "before") != before && only(&all, "after") != after);

    // A failing one is reported in the words of the engine.
    let third = commit(&all, "[--healthcheck, 'http://127.0.0.1:1/']", "3", false);
    let failed = all
        .agent
        .until("its failure is reported", |app| {
            app.status.health == Degraded && app.status.message.contains("exited with code 1")
        })
        .await;
    assert!(failed.status.message.contains("it has failed too often"), "{failed:#?}");
    let tries = tasks(&all, "migrate");
    all.passes(5).await;
    assert_eq!(tasks(&all, "migrate"), tries);
    assert_ne!(third, second);

    cron_jobs_run_and_are_forgotten(&all).await;

    all.site.repository.remove(&[&all.site.path("shop.yaml")]);
    for kind in ["service", "config", "secret"] {
        all.until(&format!("no {kind} is left"), |all| all.names(kind).is_empty()).await;
    }
    let is_own = |name: &String| name.starts_with(&all.site.app);
    all.until("no network is left", |all| !all.names("network").iter().any(is_own)).await;
}

async fn cron_jobs_run_and_are_forgotten(all: &Deployed) {
    commit(all, "[--once]", "4", true);
    let start = all.service("report-");
    a_run_is_begun_by_request(all).await;
    let seen: RefCell<BTreeSet<String>> = RefCell::default();
    wait_within(RUNS, "the first run is forgotten after others", || {
        let now: BTreeSet<String> =
            all.names("service").into_iter().filter(|name| name.starts_with(&start)).collect();
        let mut seen = seen.borrow_mut();
        seen.extend(now.iter().cloned());
        // Names of runs have the minute, so the first one sorts first.
        let first = seen.first()?;
        (seen.len() > 1 && !now.contains(first) && !now.is_empty()).then_some(())
    })
    .await;
    // Each minute has at most one run, with one task.
    for run in all.names("service").iter().filter(|name| name.starts_with(&start)) {
        let text = all.docker(&["service", "ps", "-q", run]);
        assert_eq!(text.lines().count(), 1, "{run}");
    }
}

async fn a_run_is_begun_by_request(all: &Deployed) {
    all.agent
        .until("the CronJob is known", |app| app.status.workloads.keys().any(|it| it.as_str() == "report"))
        .await;
    let path = format!("/api/v1/applications/{}/workloads/report/jobs/report-now", all.site.app);
    let (status, answer) = all.agent.post(&path, &json!({})).await.unwrap();
    assert_eq!(status, 202, "{answer}");
    let run = all.service("report-now");
    all.until("the run is complete", |all| {
        all.names("service").contains(&run)
            && all
                .docker(&["service", "ps", "--format", "{{.CurrentState}}", &run])
                .lines()
                .all(|state| state.starts_with("Complete "))
    })
    .await;
    assert_eq!(tasks(all, "report-now").len(), 1);
}
