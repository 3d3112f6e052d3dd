//! Kubernetes manifests of several kinds, from Git to names that answer, files that are there and work that ends.

use crate::harness::{Site, images, manifests};

fn kinds(image: &str, greeting: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{greeting: {greeting}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: login}}
stringData: {{word: correct-horse-{greeting}}}
---
apiVersion: v1
kind: Service
metadata: {{name: database}}
spec: {{clusterIP: None, selector: {{app: db}}, ports: [{{port: 8080}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: database
  selector: {{matchLabels: {{app: db}}}}
  volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{}}}}]
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: db
          image: \"{image}\"
          env:
            - {{name: MESSAGE_FILE, value: /etc/settings/greeting}}
            - {{name: POD, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
          readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
          securityContext: {{readOnlyRootFilesystem: true}}
          volumeMounts:
            - {{name: settings, mountPath: /etc/settings}}
            - {{name: data, mountPath: /data}}
            - {{name: scratch, mountPath: /tmp}}
      volumes:
        - {{name: settings, configMap: {{name: settings}}}}
        - {{name: scratch, emptyDir: {{}}}}
---
{}      terminationGracePeriodSeconds: 1
      containers:
        - name: client
          image: \"{image}\"
          env: [{{name: WORD, valueFrom: {{secretKeyRef: {{name: login, key: word}}}}}}]
          lifecycle:
            postStart: {{exec: {{command: [/server, --unhealthy]}}}}
            preStop: {{sleep: {{seconds: 1}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: migrate}}
spec:
  backoffLimit: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: migrate, image: \"{image}\", args: [--once]}}]
",
        manifests::deployment("client")
    )
}

#[tokio::test]
async fn several_kinds_run_find_each_other_and_roll_with_their_data() {
    let site = Site::new("kinds");
    let image = images::server("1.0");
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &kinds(&image, "first"))]);
    let agent = site.agent().await;
    agent.settled(&commit).await;

    let (db, client) = (site.container("db-0"), site.container("client"));
    assert_eq!(db.variable("POD").as_deref(), Some("db-0"));
    assert_eq!(client.variable("WORD").as_deref(), Some("correct-horse-first"));
    // It removes the mark that the command after the start made, and fails without.
    site.docker.run(&["exec", &client.name(), "/server", "--healthy"]);
    let job = site.container("migrate");
    assert_eq!((job.state().as_str(), job.number("/State/ExitCode")), ("exited", 0));
    let names = ["database", "database.default", "database.default.svc.cluster.local", "db-0.database"];
    for name in names {
        let answer = asked_inside_network(&site, &client.name(), &image, name);
        assert!(answer.contains(&db.address().unwrap()), "{name}: {answer}");
    }
    let volume = format!("{}_data-db-0", site.app);
    site.docker.run(&["volume", "inspect", &volume]);
    let scratch = empty_volume(&db.0["Mounts"]);
    // A mark in the scratch folder: gone with the instance.
    site.docker.run(&["exec", &db.name(), "/server", "--unhealthy"]);
    site.docker.run(&["exec", &db.name(), "/server", "--healthy"]);

    let commit = site.repository.commit(&[(&site.path("all.yaml"), &kinds(&image, "second"))]);
    agent.sync().await;
    agent.deployed(&commit).await;
    let (after, client_after) = (site.container("db-0"), site.container("client"));
    assert_ne!(after.id(), db.id(), "another content is another container");
    assert_ne!(client_after.id(), client.id(), "and so is another secret");
    assert_eq!(site.container("migrate").id(), job.id(), "what did not change is not done again");
    assert_ne!(empty_volume(&after.0["Mounts"]), scratch, "it is empty for each instance");
    assert!(site.docker.attempt(&["volume", "inspect", &scratch]).is_err(), "and gone with it");
    assert!(after.0["Mounts"].to_string().contains(&volume), "what was claimed stays");

    let shown = format!(
        "{}{:?}{}",
        serde_json::to_string(&agent.events().await).unwrap(),
        agent.history().await,
        serde_json::to_string(&agent.application().await).unwrap()
    );
    assert!(!shown.contains("correct-horse"), "no value of a Secret is shown: {shown}");
    assert!(!agent.log().contains("correct-horse"));
}

/// A base outside of the folder that the agent was told, and an overlay inside of it.
fn overlay(site: &Site, image: &str, greeting: &str) -> Vec<(String, String)> {
    let deployment = |name: &str, config: &str| {
        format!(
            "{}      terminationGracePeriodSeconds: 1
      containers:
        - name: {name}
          image: server:0
          envFrom: [{{configMapRef: {{name: {config}}}}}]
",
            manifests::deployment(name)
        )
    };
    let (name, tag) = image.rsplit_once(':').unwrap();
    let kustomization = format!(
        "resources: [../../base]
namePrefix: live-
images: [{{name: server, newName: \"{name}\", newTag: \"{tag}\"}}]
configMapGenerator:
  - {{name: words, behavior: merge, literals: [GREETING={greeting}]}}
patches:
  - target: {{kind: Deployment, name: reader}}
    patch: |-
      - op: add
        path: /spec/template/spec/containers/0/env
        value: [{{name: PATCHED, value: \"yes\"}}]
"
    );
    let base = "resources: [reader.yaml, other.yaml]
configMapGenerator:
  - {name: words, literals: [GREETING=none, KEPT=base]}
  - {name: other, literals: [GREETING=other]}
";
    vec![
        (site.path("kustomization.yaml"), kustomization),
        ("base/kustomization.yaml".to_owned(), base.to_owned()),
        ("base/reader.yaml".to_owned(), deployment("reader", "words")),
        ("base/other.yaml".to_owned(), deployment("other", "other")),
    ]
}

fn commit(site: &Site, files: &[(String, String)]) -> String {
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    site.repository.commit(&files)
}

#[tokio::test]
async fn an_overlay_runs_and_a_changed_literal_rolls_only_its_readers() {
    let site = Site::new("overlay");
    let image = images::server("1.0");
    let first = commit(&site, &overlay(&site, &image, "first"));
    let agent = site.agent().await;
    agent.settled(&first).await;

    let (reader, other) = (site.container("live-reader"), site.container("live-other"));
    assert_eq!(reader.variable("GREETING").as_deref(), Some("first"));
    assert_eq!(reader.variable("KEPT").as_deref(), Some("base"));
    assert_eq!(reader.variable("PATCHED").as_deref(), Some("yes"));
    assert_eq!(other.variable("GREETING").as_deref(), Some("other"));

    let second = commit(&site, &overlay(&site, &image, "second"));
    agent.sync().await;
    agent.deployed(&second).await;
    let (reader_after, other_after) = (site.container("live-reader"), site.container("live-other"));
    assert_eq!(reader_after.variable("GREETING").as_deref(), Some("second"));
    assert_ne!(reader_after.id(), reader.id(), "another literal is another container");
    assert_eq!(other_after.id(), other.id(), "what does not read it stays");

    // The base is not in the agent's folder, and counts all the same.
    let files = overlay(&site, &image, "second");
    let base = files[3].1.replace("server:0", "server:0\n          env: [{name: ADDED, value: a}]");
    let third = site.repository.commit(&[("base/other.yaml", &base)]);
    agent.sync().await;
    agent.deployed(&third).await;
    assert_ne!(site.container("live-other").id(), other.id(), "another base is another container");
    assert_eq!(site.container("live-reader").id(), reader_after.id());
}

/// The answer of the engine's name resolution inside a container's network. (The image has no resolver of its own.)
fn asked_inside_network(site: &Site, container: &str, image: &str, name: &str) -> String {
    let network = format!("container:{container}");
    let tool = "/bin/busybox:/busybox:ro";
    let place = ["run", "--rm", "--network", &network, "-v", tool, "--entrypoint", "/busybox", image];
    let question = ["nslookup", name, "127.0.0.11"];
    site.docker.run(&[place.as_slice(), &question].concat())
}

/// The volume without a name that is mounted at `/tmp`.
fn empty_volume(mounts: &serde_json::Value) -> String {
    let mounts = mounts.as_array().unwrap();
    let mount = mounts.iter().find(|it| it["Destination"] == "/tmp").unwrap();
    mount["Name"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn pod_has_its_full_name_and_stops_within_its_grace_period() {
    let site = Site::new("grace");
    let text = |greeting: &str| {
        format!(
            "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: db
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      terminationGracePeriodSeconds: 3
      containers:
        - name: db
          image: \"{}\"
          env: [{{name: GREETING, value: {greeting}}}]
          command: [/bin/busybox, sleep, \"10000\"]
          lifecycle: {{preStop: {{exec: {{command: [/bin/busybox, sleep, \"1000\"]}}}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: db}}
spec: {{clusterIP: None, selector: {{app: db}}, ports: [{{port: 80}}]}}
",
            images::placeholder()
        )
    };
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &text("one"))]);
    let agent = site.agent().await;
    agent.settled(&commit).await;
    let pod = site.container("db-0");
    let name = site.docker.run(&["exec", &pod.id(), "/bin/busybox", "hostname", "-f"]);
    assert_eq!(name.trim(), "db-0.db.default.svc.cluster.local");
    // The hook takes longer than anybody waits here; the pod is stopped at the end of its grace period.
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &text("two"))]);
    agent.sync().await;
    agent.settled(&commit).await;
    assert_ne!(site.container("db-0").id(), pod.id());
}

#[tokio::test]
async fn pod_for_another_architecture_is_not_started() {
    let site = Site::new("architecture");
    let other = if cfg!(target_arch = "x86_64") { "arm64" } else { "amd64" };
    let text = format!(
        "{}      nodeSelector: {{kubernetes.io/arch: {other}}}\n      containers: [{{name: web, image: \"{}\"}}]\n",
        manifests::deployment("web"),
        images::placeholder()
    );
    site.repository.commit(&[(&site.path("all.yaml"), &text)]);
    let agent = site.agent().await;
    agent
        .until("the workload to be degraded", |application| {
            application.status.workloads.values().any(|it| it.reason == "OtherArchitecture")
        })
        .await;
    assert!(site.of("web").is_empty());
}
