//! kubectl-compatible commands on the real engine: lists show what runs, and requests take effect.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use crate::harness::{Site, images, wait_until};

/// A service of two, and two that never stop talking, one of them on a terminal.
fn talking(server: &str, placeholder: &str) -> String {
    let talk = r#"i=0; while :; do i=$$((i+1)); echo "line $$i"; sleep 0.2; done"#;
    format!(
        "services:
  web:
    image: {server}
    restart: unless-stopped
    stop_grace_period: 1s
    deploy: {{replicas: 2}}
    healthcheck:
      test: [CMD, /server, --healthcheck, \"http://127.0.0.1:8080/healthz\"]
      interval: 1s
  talk:
    image: {placeholder}
    restart: always
    entrypoint: [/bin/busybox, sh, -c, '{talk}']
  term:
    image: {placeholder}
    restart: always
    tty: true
    entrypoint: [/bin/busybox, sh, -c, '{talk}']
"
    )
}

#[tokio::test]
async fn a_compose_application_is_listed_read_restarted_and_undone() {
    let site = Site::new("hands");
    let (first, second) = (images::server("1.0"), images::server("2.0"));
    let placeholder = images::placeholder();
    let agent = site.running(&talking(&first, &placeholder)).await;
    let app = &site.app;

    let table = agent.said(&format!("get deploy -n {app}"));
    let rows: Vec<Vec<&str>> = table.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"], "{table}");
    assert_eq!(rows[3][..4], ["web", "2/2", "2", "2"], "{table}");
    let pods = agent.said(&format!("get po -n {app} -l driftless.workload=web -o wide"));
    for container in site.of("web") {
        let row = pods.lines().find(|it| it.contains(&container.name())).unwrap_or_else(|| panic!("{pods}"));
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[1..4], ["1/1", "Running", "0"], "{pods}");
        assert_eq!(cells[5], container.address().unwrap(), "{pods}");
    }
    let description = agent.said(&format!("describe deploy/web -n {app}"));
    assert!(
        description.contains("2 desired | 2 updated | 2 total | 2 available | 0 unavailable"),
        "{description}"
    );
    assert!(description.contains("start "), "events tell what was done: {description}");

    // Both ends of the output of a container, with and without a terminal.
    for service in ["talk", "term"] {
        let tail = wait_until(&format!("{service} has said three lines"), || {
            let text = agent.said(&format!("logs deploy/{service} -n {app} --tail 3"));
            (text.lines().count() == 3).then_some(text)
        })
        .await;
        assert!(tail.lines().all(|it| it.starts_with("line ")), "{tail:?}");
        assert!(tail.bytes().all(|it| it >= b' ' || it == b'\n' || it == b'\r'), "{tail:?}");
    }
    let stamped = agent.said(&format!("logs deploy/talk -n {app} --tail 1 --timestamps"));
    assert!(stamped.starts_with("20") && stamped.contains("Z line "), "{stamped}");
    let talk = site.container("talk");
    let follow = format!("logs -f {} --tail 1", talk.name());
    let words: Vec<&str> = follow.split(' ').collect();
    let mut child = agent
        .command(&words)
        .env("DRIFTLESS_SERVER", format!("http://{}", agent.address))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let number = |line: String| line.trim_start_matches("line ").parse::<u64>().unwrap();
    let begin = number(lines.next().unwrap().unwrap());
    assert_eq!(number(lines.next().unwrap().unwrap()), begin + 1, "it goes on without a gap");

    // The stream ends with its container, which somebody deletes; another comes.
    let out = agent.said(&format!("delete pod {}", talk.name()));
    assert_eq!(out, format!("pod \"{}\" deleted\n", talk.name()));
    lines.by_ref().for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    site.replaced("talk", &talk.id()).await;
    agent.event("why it was deleted", |it| it.reason == "Killing" && it.object == talk.name()).await;

    // A new rollout of the same, without a commit.
    let before: Vec<String> = site.of("web").iter().map(|it| it.id()).collect();
    assert_eq!(
        agent.said(&format!("rollout restart deploy/web -n {app}")),
        "deployment.apps/web restarted\n"
    );
    let status = agent.said(&format!("rollout status deploy/web -n {app} --timeout 90s"));
    assert!(status.ends_with("deployment \"web\" successfully rolled out\n"), "{status}");
    assert!(status.lines().count() > 1, "it was waited for: {status}");
    let after: Vec<String> = site.of("web").iter().map(|it| it.id()).collect();
    assert_eq!(after.len(), 2);
    assert!(after.iter().all(|it| !before.contains(it)), "{before:?} {after:?}");
    let events = agent.events().await;
    assert!(!events.iter().any(|it| it.reason == "DriftDetected"), "{events:?}");
    assert_eq!(agent.history().await.len(), 1);

    // A commit, followed to its end, and the way back.
    let commit = site.compose(&talking(&second, &placeholder));
    agent.sync().await;
    agent.settled(&commit).await;
    let status = agent.said(&format!("rollout status deploy/web -n {app}"));
    assert_eq!(status, "deployment \"web\" successfully rolled out\n");
    let history = agent.said(&format!("rollout history deploy/web -n {app}"));
    let numbers: Vec<&str> = history.lines().skip(2).filter_map(|it| it.split_whitespace().next()).collect();
    assert_eq!(numbers, ["1", "2"], "{history}");
    assert_eq!(agent.said(&format!("rollout undo deploy/web -n {app}")), "deployment.apps/web rolled back\n");
    let status = agent.said(&format!("rollout status deploy/web -n {app} --timeout 90s"));
    assert!(status.ends_with("successfully rolled out\n"), "{status}");
    let images = agent
        .said(&format!("get deploy web -n {app} -o jsonpath={{.spec.template.spec.containers[0].image}}"));
    assert_eq!(images, first);
}

#[tokio::test]
async fn kubernetes_objects_have_their_kinds_namespaces_and_states() {
    let site = Site::new("kinds-of");
    let (server, placeholder) = (images::server("1.0"), images::placeholder());
    let manifests = format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: prod}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{{name: web, image: \"{server}\"}}]
---
apiVersion: batch/v1
kind: Job
metadata: {{name: migrate, namespace: prod}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: migrate, image: \"{server}\", args: [--once]}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: login, namespace: prod}}
stringData: {{word: correct-horse}}
"
    );
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &manifests)]);
    let agent = site.agent().await;
    agent.settled(&commit).await;
    let app = &site.app;
    let form = "-o 'jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.status.phase}{\"\\n\"}{end}'";
    let all = agent.said(&format!("get deploy,job,po,secret --app {app} {form}"));
    for line in ["Deployment prod/web", "Job prod/migrate", "Secret prod/login"] {
        assert!(all.contains(line), "{all}");
    }
    assert!(all.lines().any(|it| it.starts_with("Pod prod/") && it.ends_with(" Succeeded")), "{all}");
    assert!(all.lines().any(|it| it.starts_with("Pod prod/") && it.ends_with(" Running")), "{all}");
    let jobs = agent.said(&format!("get jobs --app {app}"));
    let cells: Vec<&str> = jobs.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(cells[..3], ["migrate", "Complete", "1/1"], "{jobs}");
    let secret = agent.said(&format!("get secret login --app {app} -o yaml"));
    assert!(
        secret.contains("word:") && !secret.contains("correct") && !secret.contains("Y29ycmVjd"),
        "{secret}"
    );
    let (code, _, error) = agent.asks(&format!("rollout restart job/migrate --app {app}"));
    assert_eq!(code, 2, "{error}");

    // A container in a crash loop says so, and the output of each run is kept apart. On a slow engine, its first run could
    // count as available: the rollout would be over, and its status that of a failed commit.
    let crashing = manifests.replacen("spec:\n", "spec:\n  minReadySeconds: 60\n", 1).replace(
        &format!("[{{name: web, image: \"{server}\"}}]"),
        &format!(
            "[{{name: web, image: \"{placeholder}\", command: [/bin/busybox, sh, -c, 'echo a run; exit 3']}}]"
        ),
    );
    site.repository.commit(&[(&site.path("all.yaml"), &crashing)]);
    agent.sync().await;
    let pod = wait_until("it is held back", || {
        let table = agent.said(&format!("get po -n prod --app {app} --no-headers"));
        let row = table.lines().find(|it| it.contains("CrashLoopBackOff"))?;
        Some(row.split_whitespace().next().unwrap().to_owned())
    })
    .await;
    let previous = wait_until("it has printed in a run before", || {
        let (code, text, _) = agent.asks(&format!("logs --previous {pod}"));
        (code == 0 && !text.is_empty()).then_some(text)
    })
    .await;
    assert!(previous.lines().all(|it| it == "a run"), "{previous}");
    assert!(agent.said(&format!("logs {pod}")).lines().count() <= 1, "only the present run's");
    let (code, out, _) = agent.asks(&format!("rollout status deploy/web --app {app} --timeout 3s"));
    assert_eq!(code, 1, "{out}");
    assert!(out.starts_with("Waiting for deployment "), "{out}");
}

#[tokio::test]
async fn objects_have_the_names_and_fields_of_their_manifests() {
    let site = Site::new("objects");
    let image = images::placeholder();
    let text = format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: pass}}
stringData: {{word: correct-horse}}
---
apiVersion: v1
kind: Pod
metadata: {{name: alone, labels: {{app: alone}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: \"{image}\"
      command: [/bin/busybox, sh, -c, echo said; exec sleep 10000]
      args: [\"--word=$(WORD)\"]
      env:
        - {{name: TOKEN, value: hunter2hunter2}}
        - {{name: MODE, value: fast}}
        - {{name: WORD, valueFrom: {{secretKeyRef: {{name: pass, key: word}}}}}}
      resources: {{limits: {{memory: 64Mi}}}}
      livenessProbe: {{exec: {{command: [/bin/busybox, \"true\"]}}}}
      volumeMounts: [{{name: work, mountPath: /work}}]
  volumes: [{{name: work, emptyDir: {{}}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web, tier: front}}}}
    spec:
      terminationGracePeriodSeconds: 0
      initContainers: [{{name: first, image: \"{image}\", command: [/bin/busybox, echo, began]}}]
      containers: [{{name: server, image: \"{image}\", command: [/bin/busybox, sh, -c, echo served; exec sleep 10000]}}]
"
    );
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &text)]);
    let agent = site.agent().await;
    agent.settled(&commit).await;
    let has_said = || (agent.said("logs alone -c main").trim() == "said").then_some(());
    wait_until("its output is there", has_said).await;
    let yaml = agent.said("get pod alone -o yaml");
    for part in
        ["name: main", "mountPath: /work", "memory: 64Mi", "value: fast", "nodeName:", "livenessProbe:"]
    {
        assert!(yaml.contains(part), "{part}: {yaml}");
    }
    let described = agent.said("describe pod alone");
    for part in ["Node:", "memory: 64Mi", "MODE: fast", "/work from", "exec [/bin/busybox true] delay=0s"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    for shown in [&yaml, &described] {
        assert!(shown.contains("--word=••••") && shown.contains("WORD"), "{shown}");
    }
    for shown in [&yaml, &described, &agent.said("get pods -o json")] {
        assert!(!shown.contains("hunter2") && !shown.contains("correct-horse"), "{shown}");
    }
    let described = agent.said("describe deploy web");
    let template = described.split("\nEvents:").next().unwrap();
    for part in ["Init Containers:\n  first:\n", "Containers:\n  server:\n", "echo served; exec sleep 10000"]
    {
        assert!(template.contains(part) && !template.contains("driftless/helper"), "{part}: {template}");
    }
    let labels = agent.said("get deploy web -o jsonpath={.spec.selector.matchLabels}");
    assert_eq!(labels.trim(), "{\"app\":\"web\"}");
    let logs = || agent.said("logs deploy/web --all-containers");
    wait_until("both have spoken", || logs().lines().eq(["began", "served"]).then_some(())).await;
    let columns = agent.said("get pods -L app,tier --field-selector metadata.name=alone");
    assert!(columns.lines().next().is_some_and(|head| head.ends_with("APP     TIER")), "{columns}");
    assert!(columns.lines().count() == 2 && columns.contains("alone"), "{columns}");
    assert_eq!(agent.said("get pod nothing --ignore-not-found"), "");
}
