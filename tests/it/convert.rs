//! Either format as the other: what is written reads back as the same stack, but for names and for what is listed as
//! lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_manifest::{
    convert::Converted, convert::SecretValues, convert::to_compose, convert::to_kubernetes, render,
};
use driftless_model::{Finding, Format, MountOptions, MountSource, RestartPolicy, Stack, Workload};
use serde_json::{Value, json};

fn rendered(format: Format, text: &str, variables: &[(&str, &str)]) -> Rendered {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let spec = AppSpec { format, variables, ..AppSpec::compose("shop", &["app.yaml"]) };
    render(&MemoryFiles::new([("app.yaml", text)]), &spec)
}

fn told(findings: &[Finding]) -> String {
    findings.iter().map(|it| format!("{it}\n")).collect()
}

/// JSON is YAML.
fn text(documents: &[Value]) -> String {
    documents.iter().map(|it| format!("---\n{it}\n")).collect()
}

/// The lost fields, by name of the workload.
fn lost(converted: &Converted) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for finding in &converted.lost {
        // Names may have dots, fields of the model have none but `host.` and `probes.`.
        let path = finding.path.replace(".host.", ".host/").replace(".probes.", ".probes/");
        let (name, field) = path.rsplit_once('.').unwrap();
        all.entry(name.to_owned()).or_default().insert(field.to_owned());
    }
    all
}

/// A workload by its fields, without what is only a name or another word for the same.
fn fields(workload: &Workload) -> BTreeMap<String, Value> {
    let mut workload = workload.clone();
    let retries = workload.job_or_template().map(|job| job.backoff_limit);
    let is_plain = workload.job_or_template().is_some_and(|job| job.is_plain(&job.of));
    let container = &mut workload.container;
    container.labels.remove("app");
    container.group_add.sort();
    container.stop_grace_period.get_or_insert(std::time::Duration::from_secs(10));
    if container.restart == RestartPolicy::Always {
        container.restart = RestartPolicy::UnlessStopped;
    }
    // The agent restarts in one format what the engine restarts in the other.
    if let Some(retries) = retries {
        container.restart = match retries {
            0 => RestartPolicy::No,
            retries => RestartPolicy::OnFailure { max_retries: Some(retries) },
        };
    }
    container.labels.retain(|key, _| !key.ends_with("job-name"));
    container.resources = container.resources.normal();
    // A missing request is taken from the limit, as a cluster does.
    if container.resources.nano_cpus.is_some() {
        container.resources.cpu_shares = None;
    }
    // The engine asks in one format what the kubelet asks in the other.
    container.healthcheck = None;
    container.shm_size = None;
    container.host.mount_options.remove("/dev/shm");
    container.mounts.retain(|it| it.target != "/dev/shm");
    for mount in &mut container.mounts {
        // Memory is a file system of the container in one format, and a volume of it in the other.
        let options = container.host.mount_options.get_mut(&mount.target);
        if mount.source == MountSource::Empty
            && let Some(options) = options.filter(|it| !it.tmpfs.is_empty())
        {
            let mode = options.tmpfs_option("mode").map(|it| u32::from_str_radix(it, 8).unwrap());
            let size = options.tmpfs_option("size").map(|it| it.parse().unwrap());
            mount.source = MountSource::Tmpfs { size, mode };
            options.tmpfs.retain(|it| !it.starts_with("mode=") && !it.starts_with("size="));
        }
        match &mut mount.source {
            MountSource::Volume { name, no_copy } => {
                name.clear();
                *no_copy = true;
            }
            MountSource::Tmpfs { mode, .. } => drop(mode.get_or_insert(0o1777)),
            MountSource::Bind { propagation, .. } => drop(propagation.take_if(|it| it == "rprivate")),
            _ => {}
        }
    }
    container.host.mount_options.retain(|_, it| *it != MountOptions::default());
    let mut whole = serde_json::to_value(&workload).unwrap();
    let whole = whole.as_object_mut().unwrap();
    let mut all = BTreeMap::new();
    let mut container = whole.remove("container").unwrap();
    for (part, value) in
        [("host", container.as_object_mut().unwrap().remove("host")), ("probes", whole.remove("probes"))]
    {
        for (key, value) in value.iter().filter_map(Value::as_object).flatten() {
            all.insert(format!("{part}/{key}"), value.clone());
        }
    }
    all.remove("probes/readiness");
    for (key, value) in whole.iter().chain(container.as_object().unwrap()) {
        all.insert(key.clone(), value.clone());
    }
    all.remove("origin");
    if is_plain {
        all.remove("job");
    }
    // The names of networks may differ.
    if all.get("networkMode").is_some_and(|it| it.get("networks").is_some()) {
        all.remove("networkMode");
    }
    all
}

/// The differences between two stacks that are not listed as lost.
fn silent(
    before: &Stack,
    after: &Stack,
    converted: &Converted,
    name_of: impl Fn(&str) -> String,
) -> Vec<String> {
    let lost = lost(converted);
    let none = BTreeSet::new();
    let mut wrong = Vec::new();
    // A pod of several containers becomes several services, which a test of their own compares.
    for (name, workload) in before.workloads.iter().filter(|(_, it)| it.parts.is_empty()) {
        let listed = lost.get(name.as_str()).unwrap_or(&none);
        let Some(other) = after.workloads.get(&name_of(name.as_str()).as_str().into()) else {
            wrong.push(format!("{name} is gone"));
            continue;
        };
        let (one, other) = (fields(workload), fields(other));
        for key in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
            let is_listed = listed.contains(key)
                || (key.starts_with("host/") && listed.contains("host"))
                || (key == "networkMode" && listed.contains("networks"))
                // A port that is not published is still one that the container names.
                || (key == "expose" && listed.contains("ports"));
            if one.get(key) != other.get(key) && !is_listed {
                wrong.push(format!("{name}.{key}: {:?} is {:?}", one.get(key), other.get(key)));
            }
        }
    }
    wrong
}

/// The name in Kubernetes of a workload that has none such.
fn renamed(converted: &Converted) -> BTreeMap<String, String> {
    let renamed = converted.lost.iter().filter_map(|lost| {
        let name = lost.path.strip_suffix(".name")?;
        Some((name.to_owned(), lost.message.split('`').nth(1)?.to_owned()))
    });
    renamed.collect()
}

/// A Compose file to manifests and back to a stack: nothing is lost in silence.
#[track_caller]
fn through_kubernetes(name: &str, text_of_it: &str) -> Option<Converted> {
    let first = rendered(Format::Compose, text_of_it, &[]);
    let stack = first.stack?;
    let converted = to_kubernetes(&stack, &first.contents, SecretValues::Shown);
    let second = rendered(Format::Kubernetes, &text(&converted.documents), &[]);
    let manifests = text(&converted.documents);
    let Some(after) = second.stack else { panic!("{name}\n{manifests}\n{}", told(&second.findings)) };
    let names = renamed(&converted);
    let wrong =
        silent(&stack, &after, &converted, |it| names.get(it).cloned().unwrap_or_else(|| it.to_owned()));
    assert!(wrong.is_empty(), "{name}:\n{}\n{manifests}\n{}", wrong.join("\n"), told(&converted.lost));
    assert_eq!(to_kubernetes(&stack, &first.contents, SecretValues::Shown), converted, "each time the same");
    Some(converted)
}

#[test]
fn compose_projects_convert_to_equal_manifests() {
    let mut count = 0;
    for entry in fs::read_dir("tests/e2e/projects").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "yaml") {
            let text = fs::read_to_string(&path).unwrap();
            count += usize::from(through_kubernetes(&path.display().to_string(), &text).is_some());
        }
    }
    assert!(count >= 50, "{count} files were converted");
}

/// The wrong type of a path keeps a pod from starting, and what is at a path is known on the host alone.
#[test]
fn converted_host_path_has_only_known_types() {
    let bind = |volume: &str| {
        let text = format!("services: {{web: {{image: web:1, restart: always, volumes: [{volume}]}}}}");
        let converted = through_kubernetes(volume, &text).unwrap();
        (text_of_paths(&converted), told(&converted.lost))
    };
    let (paths, lost) = bind("/var/run/docker.sock:/var/run/docker.sock");
    assert_eq!(paths, [r#"{"path":"/var/run/docker.sock"}"#]);
    assert!(!lost.contains("docker.sock"), "{lost}");
    let (paths, lost) =
        bind("{type: bind, source: /etc/localtime, target: /etc/localtime, bind: {create_host_path: false}}");
    assert_eq!(paths, [r#"{"path":"/etc/localtime"}"#]);
    assert!(lost.contains("whether /etc/localtime exists"), "{lost}");
    let (paths, lost) =
        bind("{type: bind, source: /run/app.sock, target: /run/app.sock, bind: {create_host_path: false}}");
    assert_eq!(paths, [r#"{"path":"/run/app.sock","type":"Socket"}"#]);
    assert!(!lost.contains("app.sock"), "{lost}");
}

fn text_of_paths(converted: &Converted) -> Vec<String> {
    let volumes = |it: &Value| it.pointer("/spec/template/spec/volumes")?.as_array().cloned();
    let all = converted.documents.iter().filter_map(volumes).flatten();
    all.filter_map(|it| Some(it.get("hostPath")?.to_string())).collect()
}

const COMPOSE: &str = r#"
services:
  web:
    image: example.com/web:1
    restart: unless-stopped
    command: [serve, "--price=$$5", "$$(HOST)"]
    environment: { GREETING: "a $$(b) c" }
    ports: ["8080:80"]
    user: "1000:1000"
    read_only: true
    stop_grace_period: 20s
    depends_on: { db: { condition: service_healthy } }
    configs: [{ source: app, target: /etc/app.conf }]
    deploy: { replicas: 1, resources: { limits: { cpus: "0.5", memory: 64M }, reservations: { memory: 32M } } }
  db:
    image: example.com/db:16
    restart: always
    hostname: db
    healthcheck: { test: [CMD, check, "$$(id)"], interval: 5s, timeout: 2s, retries: 4 }
    expose: ["5432"]
    volumes: ["data:/data", "/srv/backup:/backup:ro"]
    tmpfs: [/run]
configs: { app: { content: "listen = 80\n" } }
volumes: { data: {} }
"#;

const KUBERNETES: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: { name: settings }
data: { app.conf: "listen = 80\n" }
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: data }
spec: { accessModes: [ReadWriteOnce] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  strategy: { rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } }
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 20
      containers:
        - name: web
          image: example.com/web:1
          args: [serve, "--price=$5", "$$(HOST)"]
          env: [{ name: GREETING, value: "a $$(b) c" }]
          ports: [{ containerPort: 80, hostPort: 8080 }]
          securityContext: { runAsUser: 1000, runAsGroup: 1000, readOnlyRootFilesystem: true }
          resources: { limits: { cpu: 500m, memory: 64Mi }, requests: { memory: 32Mi } }
          volumeMounts: [{ name: settings, mountPath: /etc/app.conf, subPath: app.conf }]
      volumes: [{ name: settings, configMap: { name: settings } }]
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: db }
spec:
  strategy: { rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } }
  selector: { matchLabels: { app: db } }
  template:
    metadata: { labels: { app: db } }
    spec:
      terminationGracePeriodSeconds: 10
      hostname: db
      containers:
        - name: db
          image: example.com/db:16
          ports: [{ containerPort: 5432 }]
          readinessProbe: { exec: { command: [check, "$$(id)"] }, periodSeconds: 5, timeoutSeconds: 2, failureThreshold: 4 }
          volumeMounts:
            - { name: data, mountPath: /data }
            - { name: backup, mountPath: /backup, readOnly: true }
            - { name: run, mountPath: /run }
      volumes:
        - { name: data, persistentVolumeClaim: { claimName: data } }
        - { name: backup, hostPath: { path: /srv/backup } }
        - { name: run, emptyDir: { medium: Memory } }
---
apiVersion: v1
kind: Service
metadata: { name: db }
spec: { selector: { app: db }, ports: [{ port: 5432 }] }
"#;

#[test]
fn both_formats_render_to_the_same_stack_except_names() {
    let (one, other) =
        (rendered(Format::Compose, COMPOSE, &[]), rendered(Format::Kubernetes, KUBERNETES, &[]));
    let (one, other) =
        (one.stack.unwrap(), other.stack.unwrap_or_else(|| panic!("{}", told(&other.findings))));
    assert_eq!(one.workloads.keys().collect::<Vec<_>>(), other.workloads.keys().collect::<Vec<_>>());
    // Only Compose waits for others.
    let waits = Finding::warning(driftless_model::Location::default(), "web.after", "");
    let listed = Converted { documents: Vec::new(), lost: vec![waits] };
    assert_eq!(silent(&one, &other, &listed, str::to_owned), [""; 0]);
}

#[test]
fn converted_files_equal_the_ones_written_by_hand() {
    let first = rendered(Format::Compose, COMPOSE, &[]);
    let converted = through_kubernetes("the sample", COMPOSE).unwrap();
    let kinds: Vec<String> = converted
        .documents
        .iter()
        .map(|it| format!("{} {}", it["kind"].as_str().unwrap(), it["metadata"]["name"].as_str().unwrap()))
        .collect();
    let id = first.stack.unwrap().workloads[&"web".into()].container.mounts[0].source.clone();
    let MountSource::Content(id) = id else { panic!("a config is content") };
    let map = format!("ConfigMap web-{}", &id.0[..8]);
    assert_eq!(
        kinds,
        [
            map.as_str(),
            "PersistentVolumeClaim data",
            "Deployment db",
            "Service db",
            "Deployment web",
            "Service web"
        ]
    );
    let lost: Vec<String> = converted.lost.iter().map(|it| format!("{} {}", it.location, it.path)).collect();
    assert_eq!(lost, ["app.yaml:3:3 web.after", "app.yaml:15:3 db.mounts"]);
}

const POD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: shop }
spec:
  replicas: 1
  selector: { matchLabels: { app: shop } }
  template:
    metadata: { labels: { app: shop } }
    spec:
      initContainers:
        - { name: fetch, image: "fetch:1", volumeMounts: [{ name: files, mountPath: /out }] }
        - { name: migrate, image: "migrate:1" }
        - { name: mesh, image: "mesh:1", restartPolicy: Always }
      containers:
        - name: web
          image: "web:1"
          ports: [{ containerPort: 80, hostPort: 8080 }]
          volumeMounts: [{ name: files, mountPath: /srv, readOnly: true }, { name: cache, mountPath: /cache }]
        - { name: log, image: "log:1", volumeMounts: [{ name: cache, mountPath: /read }] }
      volumes:
        - { name: files, emptyDir: {} }
        - { name: cache, emptyDir: { medium: Memory, sizeLimit: 64Mi } }
"#;

#[test]
fn pod_of_several_containers_becomes_a_service_for_each() {
    let first = rendered(Format::Kubernetes, POD, &[]);
    let stack = first.stack.unwrap_or_else(|| panic!("{}", told(&first.findings)));
    let converted = to_compose(&stack, &first.contents, SecretValues::Shown);
    let document = &converted.documents[0];
    let services = document["services"].as_object().unwrap();
    let images: BTreeMap<&str, &str> =
        services.iter().map(|(name, it)| (name.as_str(), it["image"].as_str().unwrap())).collect();
    let expected = [
        ("shop", "web:1"),
        ("shop_fetch", "fetch:1"),
        ("shop_log", "log:1"),
        ("shop_mesh", "mesh:1"),
        ("shop_migrate", "migrate:1"),
    ];
    assert_eq!(images, expected.into());
    for other in ["shop_log", "shop_mesh"] {
        assert_eq!(services[other]["network_mode"], "service:shop");
    }
    assert_eq!(services["shop"]["ports"][0]["published"], "8080", "{document:#}");
    // Kubernetes ignores the health check of an image, and Compose does not.
    for service in services.values() {
        assert_eq!(service["healthcheck"], json!({ "disable": true }), "{document:#}");
    }
    let waits = |name: &str| services[name]["depends_on"].clone();
    assert_eq!(waits("shop")["shop_fetch"]["condition"], "service_completed_successfully");
    assert_eq!(waits("shop")["shop_migrate"]["condition"], "service_completed_successfully");
    assert_eq!(waits("shop_migrate")["shop_fetch"]["condition"], "service_completed_successfully");
    assert_eq!(services["shop_fetch"]["volumes"][0]["source"], "shop_files");
    assert_eq!(services["shop"]["volumes"].as_array().unwrap().len(), 2);
    assert_eq!(services["shop_log"]["volumes"][0]["source"], "shop_cache");
    assert_eq!(document["volumes"]["shop_cache"]["driver_opts"]["type"], "tmpfs");
    let lost = told(&converted.lost);
    assert!(lost.contains("shop.parts: ") && !lost.contains("helper image"), "{lost}");
    let second = rendered(Format::Compose, &text(&converted.documents), &[]);
    let after = second.stack.unwrap_or_else(|| panic!("{}", told(&second.findings)));
    assert_eq!(after.workloads.len(), 5);
}

#[test]
fn shared_paths_of_one_name_become_volumes_of_their_own() {
    let manifest = "
apiVersion: v1
kind: Pod
metadata: { name: web }
spec:
  containers:
    - name: nginx
      image: nginx:1
      volumeMounts: &mounts
        - { name: work, subPath: nginx/tmp, mountPath: /a }
        - { name: work, subPath: php/tmp, mountPath: /b }
        - { name: work, subPath: php tmp, mountPath: /c }
        - { name: tmp, mountPath: /d }
    - { name: php, image: 'php:1', volumeMounts: *mounts }
  volumes:
    - { name: work, emptyDir: {} }
    - { name: tmp, emptyDir: { medium: Memory } }
";
    let first = rendered(Format::Kubernetes, manifest, &[]);
    let stack = first.stack.unwrap_or_else(|| panic!("{}", told(&first.findings)));
    let converted = to_compose(&stack, &first.contents, SecretValues::Shown);
    let document = &converted.documents[0];
    for service in ["web", "web_php"] {
        let mounts = document["services"][service]["volumes"].as_array().unwrap();
        let sources: BTreeMap<&str, &str> = mounts
            .iter()
            .map(|mount| (mount["target"].as_str().unwrap(), mount["source"].as_str().unwrap()))
            .collect();
        let expected = [
            ("/a", "web_work_nginx_tmp"),
            ("/b", "web_work_php_tmp_2"),
            ("/c", "web_work_php_tmp"),
            ("/d", "web_tmp"),
        ];
        assert_eq!(sources, expected.into(), "{document:#}");
    }
    let is_in_memory = |volume: &str| document["volumes"][volume]["driver_opts"]["type"] == "tmpfs";
    assert!(is_in_memory("web_tmp") && !is_in_memory("web_work_php_tmp"), "{document:#}");
    let second = rendered(Format::Compose, &text(&converted.documents), &[]);
    assert!(second.stack.is_some(), "{}", told(&second.findings));
}

#[test]
fn manifests_convert_to_an_equal_compose_file() {
    let page = include_str!("../../docs/kubernetes.md");
    let block = page.split("\n## Supported\n").nth(1).unwrap().split("```yaml\n").nth(1).unwrap();
    let supported = block.split("```").next().unwrap();
    let samples = [
        ("docs/kubernetes.md", supported),
        ("order-api.yaml", include_str!("kubernetes/order-api.yaml")),
        ("everything.yaml", include_str!("kubernetes/everything.yaml")),
        ("the sample", KUBERNETES),
    ];
    for (name, manifests) in samples {
        let first = rendered(Format::Kubernetes, manifests, &[]);
        let stack = first.stack.unwrap_or_else(|| panic!("{name}: {}", told(&first.findings)));
        let converted = to_compose(&stack, &first.contents, SecretValues::Shown);
        let file = converted.documents[0].to_string();
        // Secrets are read from variables that somebody sets.
        let secrets = converted.documents[0]["secrets"].as_object().cloned().unwrap_or_default();
        let variables: Vec<(&str, &str)> =
            secrets.values().map(|it| (it["environment"].as_str().unwrap(), "set")).collect();
        let second = rendered(Format::Compose, &file, &variables);
        let after = second.stack.unwrap_or_else(|| panic!("{name}\n{file}\n{}", told(&second.findings)));
        let wrong = silent(&stack, &after, &converted, str::to_owned);
        assert!(wrong.is_empty(), "{name}:\n{}\n{file}\n{}", wrong.join("\n"), told(&converted.lost));
    }
    assert!(Path::new("tests/it/kubernetes/order-api.yaml").exists());
}

#[test]
fn the_values_of_secrets_are_only_written_when_asked_for() {
    let manifests = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {pw: hunter2}\n---\napiVersion: v1\nkind: Pod\n\
                     metadata: {name: web}\nspec:\n  containers:\n  - name: web\n    image: a:1\n    env: [{name: PW, valueFrom: \
                     {secretKeyRef: {name: login, key: pw}}}]\n    volumeMounts: [{name: s, mountPath: /s}]\n  volumes: [{name: s, \
                     secret: {secretName: login}}]\n";
    let first = rendered(Format::Kubernetes, manifests, &[]);
    let stack = first.stack.unwrap();
    for (secrets, is_there) in [(SecretValues::Hidden, false), (SecretValues::Shown, true)] {
        let (compose, kubernetes) =
            (to_compose(&stack, &first.contents, secrets), to_kubernetes(&stack, &first.contents, secrets));
        assert_eq!(text(&compose.documents).contains("hunter2"), is_there);
        assert_eq!(text(&kubernetes.documents).contains("hunter2"), is_there);
        for converted in [compose, kubernetes] {
            assert!(!told(&converted.lost).contains("hunter2"));
            assert_eq!(told(&converted.lost).contains("--show-secrets"), !is_there);
        }
    }
    assert_eq!(json!(stack.workloads[&"web".into()].secret_env), json!(["PW"]));
}

/// A command, a probe or a file may contain the value of a variable; a name that is the same word is no secret.
#[test]
fn values_of_secrets_are_written_in_no_field() {
    let manifests = "apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {pw: hunter2}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {team: hunter2}}
spec:
  initContainers:
  - name: first
    image: hunter2/first:1
    env: [{name: PW, valueFrom: {secretKeyRef: {name: login, key: pw}}}]
    command: [first, $(PW)]
  containers:
  - name: web
    image: hunter2/web:1
    env:
    - {name: PW, valueFrom: {secretKeyRef: {name: login, key: pw}}}
    - {name: DSN, value: 'postgres://app:$(PW)@db/shop'}
    command: [app, $(PW)]
    args: [--dsn, 'postgres://app:$(PW)@db/shop']
    lifecycle: {preStop: {exec: {command: [stop, hunter2]}}}
    readinessProbe: {httpGet: {path: '/health?key=hunter2', port: 80, httpHeaders: [{name: Key, value: hunter2}]}}
    livenessProbe: {exec: {command: [check, hunter2]}}
";
    let first = rendered(Format::Kubernetes, manifests, &[]);
    let stack = first.stack.unwrap_or_else(|| panic!("{}", told(&first.findings)));
    let shown = text(&to_compose(&stack, &first.contents, SecretValues::Shown).documents);
    assert!(shown.matches("hunter2").count() > 6, "{shown}");
    let hidden = to_compose(&stack, &first.contents, SecretValues::Hidden);
    let compose = text(&hidden.documents).replace("hunter2/web", "").replace("hunter2/first", "");
    assert!(!compose.contains("hunter2") && compose.contains("CHANGE-ME"), "{compose}");
    for field in ["entrypoint", "command", "env"] {
        let line = format!("web.{field}: the value of a secret is not written");
        assert!(told(&hidden.lost).contains(&line), "{field}: {}", told(&hidden.lost));
    }
    let files = "services: {web: {image: a:1, environment: {PLAIN: word}, configs: [app]}}
configs: {app: {content: 'pw=hunter2 word'}}";
    let second = rendered(Format::Compose, files, &[]);
    let mut stack = second.stack.unwrap();
    // As from an encrypted file.
    stack.secret_values.insert("hunter2".to_owned());
    let converted = text(&to_kubernetes(&stack, &second.contents, SecretValues::Hidden).documents);
    assert!(converted.contains("pw=CHANGE-ME word") && converted.contains("PLAIN"), "{converted}");
}

#[test]
fn the_program_writes_manifests_that_it_takes_itself() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |command: &str, path: &Path| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_driftless"));
        let ended = program.arg(command).arg(path).env("NO_COLOR", "1").output().unwrap();
        let text = |it: &[u8]| String::from_utf8(it.to_vec()).unwrap();
        assert!(ended.status.success(), "{command}: {}", text(&ended.stderr));
        (text(&ended.stdout), text(&ended.stderr))
    };
    fs::create_dir_all(at("shop")).unwrap();
    fs::write(at("shop/compose.yaml"), COMPOSE).unwrap();
    let (manifests, told) = run("convert", &at("shop/compose.yaml"));
    assert!(
        manifests.starts_with("apiVersion: v1\ndata:\n  app.conf: \"listen = 80\\n\"\nkind: ConfigMap\n"),
        "{manifests}"
    );
    let expected = "not carried over:\n  compose.yaml:3:3: web.after: waits until `db` is healthy: pods start in no order";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(run("convert", &at("shop")).0, manifests, "a folder is its one application");
    fs::create_dir_all(at("all")).unwrap();
    fs::write(at("all/all.yaml"), &manifests).unwrap();
    let (_, told) = run("validate", &at("all"));
    assert!(told.contains("1 application"), "{told}");
    let (compose, _) = run("convert", &at("all/all.yaml"));
    assert!(compose.contains("services:\n  db:\n"), "{compose}");
}

#[test]
fn order_of_a_sync_is_converted_both_ways() {
    let compose = "services:
  web:
    image: web:2
    restart: always
    deploy: {replicas: 5, update_config: {order: start-first}}
    x-driftless: {wave: 2, canary: [20% for 10m, 3], ignore-differences: [restart]}
  dump:
    image: dump:1
    restart: on-failure:2
    x-driftless: {hook: {phase: PreSync, deadline: 10m}, wave: -1}
  report:
    image: report:1
    restart: 'no'
    x-driftless: {schedule: {cron: '0 2 * * *', time-zone: Europe/Berlin, concurrency: Forbid, deadline: 2h, failed-history: 2}}
";
    let first = rendered(Format::Compose, compose, &[]);
    let first_stack = first.stack.as_ref().unwrap_or_else(|| panic!("{}", told(&first.findings)));
    let manifests = to_kubernetes(first_stack, &first.contents, SecretValues::Shown);
    let found = text(&manifests.documents);
    let second = rendered(Format::Kubernetes, &found, &[]);
    let second_stack = second.stack.as_ref().unwrap_or_else(|| panic!("{}{found}", told(&second.findings)));
    let again = to_compose(second_stack, &second.contents, SecretValues::Shown);
    let third = rendered(Format::Compose, &text(&again.documents), &[]);
    let third_stack =
        third.stack.as_ref().unwrap_or_else(|| panic!("{}{}", told(&third.findings), text(&again.documents)));
    for name in ["web", "dump", "report"] {
        let workload = |stack: &Stack| {
            stack
                .workloads
                .iter()
                .find(|(own, _)| own.as_str().split('.').next() == Some(name))
                .unwrap()
                .1
                .clone()
        };
        let first = workload(first_stack);
        for other in [workload(second_stack), workload(third_stack)] {
            assert_eq!((other.wave, &other.canary), (first.wave, &first.canary), "{name}");
            assert_eq!(other.ignore_differences, first.ignore_differences, "{name}");
            assert_eq!((other.hook(), other.schedule()), (first.hook(), first.schedule()), "{name}");
            let limits =
                |it: &Workload| it.job_or_template().map(|job| (job.backoff_limit, job.active_deadline));
            assert_eq!(limits(&other), limits(&first), "{name}");
        }
    }
    let lost =
        [lost(&manifests), lost(&again)].map(|all| all.into_values().flatten().collect::<BTreeSet<_>>());
    for field in ["hook", "cron", "job", "wave", "canary", "ignoreDifferences"] {
        assert!(lost.iter().all(|lost| !lost.contains(field)), "{field}: {lost:?}");
    }
}
