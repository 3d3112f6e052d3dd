//! Jobs and CronJobs on the real engine: each part once, also if the agent or the engine ends in between.

use driftless_model::HealthStatus;

use crate::harness::{Container, Site, images};

fn manifests(image: &str, program: &str, more: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: log}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: work}}
spec:
{more}
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers:
        - name: work
          image: \"{image}\"
          command: [/bin/busybox, sh, -c, '{program}']
          volumeMounts: [{{name: log, mountPath: /log}}]
      volumes: [{{name: log, persistentVolumeClaim: {{claimName: log}}}}]
"
    )
}

#[tokio::test]
async fn each_part_of_a_job_runs_once_and_failures_are_named() {
    let site = Site::new("job");
    let image = images::placeholder();
    let program = r#"echo "$JOB_COMPLETION_INDEX" >> /log/all; sleep 2"#;
    let indexed = "  completions: 3\n  parallelism: 2\n  completionMode: Indexed";
    let first = site.repository.commit(&[(&site.path("job.yaml"), &manifests(&image, program, indexed))]);
    let mut agent = site.agent().await;
    site.until("two parts run", |docker| (docker.running(&site.app).len() == 2).then_some(())).await;
    agent.kill9();
    // Both end while nobody looks.
    site.until("both have ended", |docker| docker.running(&site.app).is_empty().then_some(())).await;
    agent.launch();
    agent.ready().await;
    agent.settled(&first).await;
    let ended: Vec<Container> = site.docker.containers(&site.app);
    assert_eq!(ended.len(), 3, "what has ended is kept");
    let last = site.container("work-2");
    let first_end = ended.iter().map(|it| it.text("/State/FinishedAt")).min().unwrap();
    assert!(last.text("/Created") > first_end, "two at a time");
    let rows = agent.said("get jobs");
    let row: Vec<&str> = rows.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((rows.lines().count(), &row[..3]), (2, &["work", "Complete", "3/3"][..]), "{rows}");
    assert!(agent.said("get pods").lines().any(|it| it.starts_with("work-1 ")));

    // A completed Job whose container somebody removes is not run again.
    for container in &ended {
        site.docker.run(&["rm", &container.id()]);
    }
    agent.restart().await;
    agent.sync().await;
    agent.settled(&first).await;
    assert_eq!(site.docker.containers(&site.app).len(), 0);
    let volume = format!("{}_log:/log", site.app);
    let cat = ["run", "--rm", "-v", &volume, "--entrypoint", "/bin/busybox", &image, "sort", "/log/all"];
    assert_eq!(site.docker.run(&cat), "0\n1\n2");

    let failing = manifests(&image, "exit 3", "  backoffLimit: 0");
    site.repository.commit(&[(&site.path("job.yaml"), &failing)]);
    agent.sync().await;
    let failed = agent.until("the Job has failed", |application| {
        application.status.workloads.values().any(|it| it.reason == "BackoffLimitExceeded")
    });
    assert_eq!(failed.await.status.health, HealthStatus::Degraded);
    assert_eq!(site.container("work").number("/State/ExitCode"), 3);
    assert!(agent.said("get jobs").contains("Failed"));
}

/// A CronJob that is never due but by the clock of the very minute.
fn cron(image: &str, schedule: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: CronJob
metadata: {{name: report}}
spec:
  schedule: \"{schedule}\"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: 0
          containers: [{{name: report, image: \"{image}\", command: [/bin/busybox, echo, done]}}]
"
    )
}

#[tokio::test]
async fn a_cron_job_begins_its_minute_once_and_more_when_asked() {
    let site = Site::new("cron");
    let image = images::placeholder();
    let commit = site.repository.commit(&[(&site.path("cron.yaml"), &cron(&image, "* * * * *"))]);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;
    agent.said("create job now --from=cronjob/report");
    site.until("what was asked for is done", |docker| {
        docker.containers(&site.app).iter().find(|it| it.state() == "exited").map(|_| ())
    })
    .await;
    let is_run =
        |it: &Container| it.label("driftless.workload").starts_with("report-") && it.state() != "created";
    // At the turn of the minute, and not once more by an agent that comes back.
    let first = site
        .until("the minute turns", |docker| docker.containers(&site.app).into_iter().find(|it| is_run(it)))
        .await;
    agent.restart().await;
    agent.settled(&commit).await;
    let same = first.label("driftless.workload");
    let runs = site.docker.containers(&site.app);
    assert_eq!(runs.iter().filter(|it| it.label("driftless.workload") == same).count(), 1);
    assert_eq!(site.docker.container(&first.id()).unwrap().started(), first.started());
    let rows = agent.said("get cj");
    let row: Vec<&str> = rows.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["report", "*", "*"], "{rows}");
    assert!(!row.contains(&"<none>"), "it says when the last was begun: {rows}");
    let jobs = agent.said("get jobs");
    assert!(jobs.contains("now ") && jobs.contains(&same), "{jobs}");
}
