//! Hashes that are kept in labels of containers and in databases of running agents. They must stay as they are: another
//! hash would replace every container at an upgrade of the agent.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use driftless_files::{AppSpec, MemoryFiles};
use driftless_manifest::render;
use driftless_model::{Facts, Format, SpecHash, Stack, StackHash};

const EVERY_KIND: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  updateStrategy: {rollingUpdate: {partition: 1}}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: db, image: 'db:1', ports: [{containerPort: 5432}]}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs}
spec:
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec:
      containers: [{name: logs, image: 'logs:1'}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: import}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  activeDeadlineSeconds: 60
  ttlSecondsAfterFinished: 30
  template:
    spec:
      restartPolicy: OnFailure
      containers: [{name: import, image: 'import:1'}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec:
  schedule: '*/5 * * * *'
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: report, image: 'report:1'}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers:
        - {name: init, image: 'init:1'}
        - {name: proxy, image: 'proxy:1', restartPolicy: Always}
      containers:
        - {name: web, image: 'web:1', readinessProbe: {httpGet: {path: /, port: 80}}}
        - {name: side, image: 'side:1'}
";

const COMPOSE: &str = "crates/compose/tests/it/compose";

fn collect(folder: &Path, prefix: &str, files: &mut MemoryFiles) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}/{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            collect(&path, &name, files);
        } else {
            files.0.insert(name, fs::read(&path).unwrap().into());
        }
    }
}

fn manifests(files: &MemoryFiles, format: Format, name: &str, file: &str) -> Option<Stack> {
    let listed = AppSpec::compose("shop", &[file]);
    let spec = AppSpec { path: name.to_owned(), format, has_listed_files: false, ..listed };
    render(files, &spec).stack
}

fn stack_hashes(out: &mut String, name: &str, stack: &Stack) {
    let stored = serde_json::to_string(stack).unwrap();
    let read = serde_json::from_str::<Stack>(&stored).unwrap();
    let without_places = Stack { port_places: BTreeMap::new(), project_place: None, ..stack.clone() };
    assert_eq!(read, without_places, "{name} is read back as it was stored");
    writeln!(out, "{name}: stack {}", StackHash::of(stack).0).unwrap();
    for (workload, it) in &stack.workloads {
        writeln!(out, "  {workload}: container {}, workload {}", it.spec().0, SpecHash::of(it).0).unwrap();
    }
}

#[test]
fn hashes_of_sample_stacks_stay_the_same() {
    let mut out = String::new();
    let mut files = MemoryFiles::default();
    collect(Path::new(COMPOSE), "sites", &mut files);
    let folders = fs::read_dir(COMPOSE).unwrap();
    let mut names: Vec<String> = folders.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for name in names {
        if let Some(stack) = manifests(&files, Format::Compose, &format!("sites/{name}"), "compose.yaml") {
            stack_hashes(&mut out, &name, &stack);
        }
    }
    let texts = [
        ("kinds", EVERY_KIND),
        ("order-api", include_str!("kubernetes/order-api.yaml")),
        ("everything", include_str!("kubernetes/everything.yaml")),
    ];
    for (name, text) in texts {
        let files = MemoryFiles::new([("a.yaml", text)]);
        let stack = manifests(&files, Format::Kubernetes, "", "a.yaml").unwrap_or_else(|| panic!("{name}"));
        stack_hashes(&mut out, name, &stack);
    }
    insta::assert_snapshot!(out);
}

#[test]
fn external_addresses_of_a_service_are_in_no_hash() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}], externalIPs: \
                [192.0.2.1]}\n";
    let files = MemoryFiles::new([("a.yaml", &*format!("{EVERY_KIND}---\n{text}"))]);
    let stack = manifests(&files, Format::Kubernetes, "", "a.yaml").unwrap();
    let mut without = stack.clone();
    for resource in &mut without.inventory.resources {
        if let Facts::Service { external_addresses, .. } = &mut resource.facts {
            external_addresses.clear();
        }
    }
    assert_ne!(without, stack);
    assert_eq!(StackHash::of(&without), StackHash::of(&stack));
}
