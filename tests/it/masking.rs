//! Secret values: in no answer of the agent and in no output of its commands, wherever a manifest puts them.

use std::{process::Stdio, time::Duration};

use driftless_agent::RequestKind;
use driftless_docker::UserAction;
use driftless_model::{Application, HealthStatus};
use driftless_web::{Access, router, serve};
use tokio::{net::TcpListener, process::Command, time::timeout};

use crate::simulation::Simulation;

const ENV: &str = "[{name: ORDINARY, valueFrom: {secretKeyRef: {name: login, key: ordinary}}},\
  {name: PIN, valueFrom: {secretKeyRef: {name: login, key: pin}}},\
  {name: JDBC, value: 'jdbc:x://db?user=a&password=$(ORDINARY)'},\
  {name: DERIVED, value: '{\"key\": \"$(JDBC)\"}'}]";

/// Values of a Secret that end up in variables, arguments and URLs, under names that do not tell.
fn kubernetes(mark: &str, second: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Secret
metadata: {{name: login}}
stringData: {{ordinary: PLANTED-{mark}-ordinary, pin: QX7{mark}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: all}}
stringData: {{MODE: PLANTED-{mark}-mode, other: PLANTED-{mark}-other}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {second}}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: {second}}}}}
  template:
    metadata: {{labels: {{app: {second}}}}}
    spec:
      containers:
      - name: main
        image: planted:1
        command: [sh, -c, 'exec app $(ORDINARY) "$(DERIVED)"']
        args: ['--pw=$(ORDINARY)', '$(MODE)', 'http://$(PIN)@host/$(other)']
        envFrom: [{{secretRef: {{name: all}}}}]
        env: {ENV}
      - {{name: beside, image: 'beside:1', args: ['$(PIN)'], env: {ENV}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {{name: tidy}}
spec:
  schedule: '0 3 * * *'
  jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [
    {{name: tidy, image: 'tidy:1', args: ['$(ORDINARY)'], env: {ENV}}}]}}}}}}}}
"#
    )
}

/// Values in every place of a Compose file that the rule of `docs/masking.md` names.
fn compose(mark: &str, second: &str) -> String {
    format!(
        "services:\n  {second}:\n    image: planted:1\n    command: [app, 'a=PLANTED-{mark}-variable', --requirepass, \
         PLANTED-{mark}-option, -pPLANTED-{mark}-glued]\n    \
         environment: {{DB_PASSWORD: PLANTED-{mark}-variable, URL: 'x://u:PLANTED-{mark}-url/x@h/', \
         JSON: '{{\"password\": \"PLANTED-{mark}-json\"}}', JDBC: 'jdbc:x://h/?a=b&password=PLANTED-{mark}-jdbc'}}\n    \
         healthcheck: {{test: 'redis-cli -a PLANTED-{mark}-check ping'}}\n    \
         labels: {{x.basicauth.users: 'a:PLANTED-{mark}-label', url: 'https://u:PLANTED-{mark}-url2@h/'}}\n"
    )
}

/// Every path whose answer somebody can read.
pub(crate) const READ: [&str; 20] = [
    "/",
    "/applications/shop",
    "/applications/shop/plan",
    "/applications/shop/diff",
    "/applications/shop/revisions/1",
    "/applications/shop/sync",
    "/audit",
    "/api/v1/applications",
    "/api/v1/applications/shop",
    "/api/v1/applications/shop/revisions",
    "/api/v1/applications/shop/plan",
    "/api/v1/applications/shop/drift",
    "/api/v1/applications/shop/drift?against=head",
    "/api/v1/objects",
    "/api/v1/objects?kind=pods,deploy,rs,jobs,cj,cm,secrets,svc,pvc,ns",
    "/api/v1/events?limit=1000",
    "/api/v1/repositories",
    "/api/v1/webhooks",
    "/readyz",
    "/healthz",
];

const COMMANDS: [&str; 12] = [
    "status",
    "status -o json",
    "status shop",
    "get all,cm,secrets -A -o yaml",
    "get all,cm,secrets -A -o json",
    "get po -A -o wide --show-labels",
    "describe pods",
    "describe deploy",
    "events",
    "history shop",
    "plan shop",
    "diff shop",
];

/// Everything that somebody can read of the agent, each with its source before it.
async fn everything(it: &Simulation) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let router = router(it.handle(), it.store.clone(), Access::loopback());
    let serving = tokio::spawn(serve(listener, router, std::future::pending()));
    let mut all = String::new();
    for path in READ {
        let answer = reqwest::get(format!("{server}{path}")).await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        all.push_str(&format!("\n# GET {path}\n{text}\n"));
    }
    for line in COMMANDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        command.args(line.split(' ')).env_clear().env("DRIFTLESS_SERVER", &server).stdin(Stdio::null());
        let output = command.output().await.unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {printed}");
        all.push_str(&format!("\n# {line}\n{printed}\n"));
    }
    serving.abort();
    all
}

fn assert_hidden(all: &str, of: &str) {
    let leaks: Vec<&str> = all
        .lines()
        .filter(|line| line.starts_with("# ") || line.contains("PLANTED") || line.contains("QX7"))
        .collect();
    let has_leak = leaks.iter().any(|line| !line.starts_with("# "));
    assert!(!has_leak, "{of}: {leaks:#?}");
    assert!(all.contains("••••") && all.contains("planted:1"), "{of}: nothing is shown at all");
}

/// Waits in real time, for a minute at most.
async fn until(it: &Simulation, what: &str, is_so: impl Fn(&Application) -> bool) {
    let waiting = timeout(Duration::from_secs(60), it.until(what, is_so)).await;
    let status = it.handle().applications();
    let repositories = it.handle().repositories();
    assert!(waiting.is_ok(), "never: {what}\n{status:#?}\n{repositories:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_secrets_are_in_no_answer() {
    for (format, file, manifest) in [
        ("kubernetes", "shop/all.yaml", kubernetes as fn(&str, &str) -> String),
        ("compose", "shop/compose.yaml", compose),
    ] {
        let push = |it: &Simulation, text: &str| drop(it.git.push_files("Ada <a@b.c>", &[(file, text)]));
        let it = Simulation::idle();
        push(&it, &manifest("one", "web"));
        let it = it.begun();
        until(&it, "it runs", |it| it.status.health == HealthStatus::Healthy).await;
        assert_hidden(&everything(&it).await, &format!("{format}, as in Git"));

        // A value is rotated.
        push(&it, &manifest("two", "web"));
        it.ask(RequestKind::Sync).await;
        let tip = it.tip();
        let is_new = |it: &Application| it.status.commit.as_ref().is_some_and(|it| it.id == tip);
        until(&it, "the new value runs", |it| is_new(it) && it.status.health == HealthStatus::Healthy).await;
        assert_hidden(&everything(&it).await, &format!("{format}, rotated"));

        // Another commit waits, which names no container that runs, and somebody has changed one.
        it.ask(RequestKind::Suspend).await;
        until(&it, "it is suspended", |it| it.status.health == HealthStatus::Suspended).await;
        push(&it, &manifest("three", "other"));
        it.ask(RequestKind::Sync).await;
        let tip = it.tip();
        until(&it, "the commit is known", |it| it.spec.commit.as_ref().is_some_and(|it| it.id == tip)).await;
        for container in it.docker.observed(&it.app()).instances.values() {
            it.hand(&UserAction::Stop { name: container.name.clone() });
        }
        let found = everything(&it).await;
        assert!(found.contains("/dev/null"), "the plan shows what goes: {found}");
        assert_hidden(&found, &format!("{format}, suspended"));
    }
}
