//! StatefulSets, from manifest to containers in memory: in which order pods come, go and are replaced.

use std::time::Duration;

use driftless_files::{MemoryFiles, Rendered};
use driftless_manifest::render;
use driftless_model::{HealthStatus, Replacement, Severity, Stack, SyncStatus, Update};
use driftless_plan::{Action, Plan, WaitReason};

use crate::fixture::{Stage, manifests};

/// A set of three with a volume each, and what else its `spec` says.
fn manifest(image: &str, replicas: u32, more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: db}}
spec: {{clusterIP: None, selector: {{app: db}}, ports: [{{port: 5432}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: db
  replicas: {replicas}
{more}
  selector: {{matchLabels: {{app: db}}}}
  volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{accessModes: [ReadWriteOnce]}}}}]
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      containers:
        - name: db
          image: \"{image}\"
          env: [{{name: POD, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]
          volumeMounts: [{{name: data, mountPath: /data}}]
"
    )
}

fn rendered(text: &str) -> Rendered {
    let files = MemoryFiles::new([("db.yaml", text)]);
    let spec = manifests("", &["db.yaml"]);
    render(&files, &spec)
}

fn stack(text: &str) -> Stack {
    let Rendered { stack, findings, .. } = rendered(text);
    stack.unwrap_or_else(|| panic!("{findings:?}"))
}

fn told(text: &str, severity: Severity) -> Vec<String> {
    let findings = rendered(text).findings.into_iter().filter(|it| it.severity == severity);
    findings.map(|it| format!("{}:{} {}", it.location.line, it.path, it.message)).collect()
}

fn stage(text: &str) -> Stage {
    let mut stage = Stage::new(stack(text));
    for image in ["db:1", "db:2", "db:3"] {
        stage.world.observed.images.entry(image.to_owned()).or_default();
    }
    stage
}

/// Pods that are created (`+db-0`) and removed (`-db-0`), round by round, until the set is ready.
fn played(stage: &mut Stage) -> String {
    let mut all = Vec::new();
    for _ in 0..60 {
        let plan = stage.round();
        if plan.is_settled() {
            return all.join(" | ");
        }
        let done = changes(&plan);
        if !done.is_empty() {
            all.push(done);
        }
        stage.tick(Duration::from_secs(5));
    }
    panic!("it never settles: {all:?}\n{}", stage.round());
}

/// As [`played`], for a set that does not get ready: the changes of a minute.
fn minute(stage: &mut Stage) -> String {
    let mut all = Vec::new();
    for _ in 0..12 {
        all.push(changes(&stage.round()));
        stage.tick(Duration::from_secs(5));
    }
    all.retain(|done| !done.is_empty());
    all.join(" | ")
}

fn changes(plan: &Plan) -> String {
    let short = |name: &str| name.trim_start_matches("shop-").to_owned();
    let one = |action: &Action| match action {
        Action::CreateInstance(it) => Some(format!("+{}", short(&it.name))),
        Action::RemoveInstance { container, .. } => Some(format!("-{}", short(container.name()))),
        _ => None,
    };
    plan.steps.iter().filter_map(|it| one(&it.action)).collect::<Vec<_>>().join(" ")
}

fn images(stage: &Stage) -> Vec<String> {
    let mut all: Vec<_> = stage
        .world
        .observed
        .instances
        .values()
        .map(|it| format!("{} {}", it.name.trim_start_matches("shop-"), it.config.image))
        .collect();
    all.sort();
    all
}

#[test]
fn stateful_pods_keep_their_name_volume_and_dns_names() {
    let stack = stack(&manifest("db:1", 2, "  ordinals: {start: 5}"));
    assert_eq!(stack.workloads.keys().map(|it| it.as_str()).collect::<Vec<_>>(), ["db-5", "db-6"]);
    let pod = &stack.workloads[&"db-6".into()];
    assert_eq!(pod.container_name.as_deref(), Some("shop-db-6"));
    assert_eq!(pod.container.hostname.as_deref(), Some("db-6"));
    assert_eq!(pod.container.env["POD"].as_deref(), Some("db-6"));
    assert_eq!(pod.container.labels["statefulset.kubernetes.io/pod-name"], "db-6");
    assert_eq!(stack.volumes.keys().collect::<Vec<_>>(), ["shop_data-db-5", "shop_data-db-6"]);
    let names = &pod.container.networks()["shop_default"].aliases;
    for name in ["db-6", "db-6.db", "db-6.db.default", "db-6.db.default.svc.cluster.local", "db"] {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    let object = &stack.inventory.workloads[&"db-6".into()];
    assert_eq!(object.to_string(), "StatefulSet default/db");
}

#[test]
fn pods_start_one_after_the_other_and_go_the_other_way_round() {
    let mut stage = stage(&manifest("db:1", 3, ""));
    assert_eq!(played(&mut stage), "+db-0 | +db-1 | +db-2");
    stage.stack = stack(&manifest("db:1", 1, ""));
    assert_eq!(played(&mut stage), "-db-2 | -db-1");
    stage.stack = stack(&manifest("db:1", 0, ""));
    assert_eq!(played(&mut stage), "-db-0");
    stage.stack = stack(&manifest("db:1", 2, ""));
    assert_eq!(played(&mut stage), "+db-0 | +db-1");
    assert_eq!(stage.world.observed.volumes.len(), 3, "no volume goes");

    // One that is not ready keeps the next from being made.
    let mut stage = self::stage(&manifest("db:1", 3, ""));
    stage.sick.insert("db:1".to_owned());
    for _ in 0..5 {
        stage.round();
        stage.tick(Duration::from_secs(5));
    }
    let waits = stage.round().to_string();
    assert!(waits.contains("db-1 waits for db-0: it is not available"), "{waits}");
    assert_eq!(images(&stage), ["db-0 db:1"]);
}

#[test]
fn parallel_pods_wait_for_nobody_but_are_updated_one_by_one() {
    let parallel = "  podManagementPolicy: Parallel";
    let mut stage = stage(&manifest("db:1", 3, parallel));
    assert_eq!(played(&mut stage), "+db-0 +db-1 +db-2");
    stage.stack = stack(&manifest("db:2", 3, parallel));
    assert_eq!(played(&mut stage), "-db-2 +db-2 | -db-1 +db-1 | -db-0 +db-0");
    stage.stack = stack(&manifest("db:2", 1, parallel));
    assert_eq!(changes(&stage.round()).len(), "-db-1 -db-2".len(), "both at once");
}

#[test]
fn update_goes_down_from_the_highest_ordinal() {
    let mut stage = stage(&manifest("db:1", 3, "  minReadySeconds: 8"));
    assert_eq!(played(&mut stage), "+db-0 | +db-1 | +db-2");
    let two = "  updateStrategy: {rollingUpdate: {maxUnavailable: 70%}}\n  minReadySeconds: 8";
    stage.stack = stack(&manifest("db:2", 3, two));
    assert_eq!(played(&mut stage), "-db-1 +db-1 -db-2 +db-2 | -db-0 +db-0");
    stage.stack = stack(&manifest("db:3", 3, "  minReadySeconds: 8"));
    assert_eq!(played(&mut stage), "-db-2 +db-2 | -db-1 +db-1 | -db-0 +db-0");
    // A pod that ends by itself is started again without waiting for others.
    stage.named("shop-db-1").state = driftless_model::State::Exited {
        code: 1,
        finished: stage.now,
        out_of_memory: false,
        error: String::new(),
    };
    assert_eq!(played(&mut stage), "");
}

#[test]
fn unready_version_stops_at_the_first_pod_and_rolls_back() {
    let mut stage = stage(&manifest("db:1", 3, ""));
    played(&mut stage);
    stage.stack = stack(&manifest("db:2", 3, ""));
    stage.sick.insert("db:2".to_owned());
    for _ in 0..10 {
        stage.round();
        stage.tick(Duration::from_secs(5));
    }
    assert_eq!(images(&stage), ["db-0 db:1", "db-1 db:1", "db-2 db:2"]);
    stage.stack = stack(&manifest("db:3", 3, ""));
    assert_eq!(changes(&stage.round()), "-db-2 +db-2", "nobody waits for what Git has taken back");
    stage.tick(Duration::from_secs(5));
    assert_eq!(played(&mut stage), "-db-1 +db-1 | -db-0 +db-0");
}

#[test]
fn below_the_partition_nothing_changes_even_if_it_is_lost() {
    let partition = |it: u32| format!("  updateStrategy: {{rollingUpdate: {{partition: {it}}}}}");
    let mut stage = stage(&manifest("db:1", 3, &partition(2)));
    assert_eq!(played(&mut stage), "+db-0 | +db-1 | +db-2");
    stage.stack = stack(&manifest("db:2", 3, &partition(2)));
    assert_eq!(played(&mut stage), "-db-2 +db-2");
    let plan = stage.round();
    assert!(plan.is_settled(), "{plan}");
    let found = stage.assess(&plan);
    assert_eq!(
        (found.sync, found.health),
        (SyncStatus::Synced, HealthStatus::Healthy),
        "the partition is reached"
    );
    let lost = stage.named("shop-db-0").id.clone();
    stage.world.observed.instances.remove(&lost);
    assert_eq!(played(&mut stage), "+db-0");
    stage.stack = stack(&manifest("db:3", 3, &partition(1)));
    assert_eq!(played(&mut stage), "-db-2 +db-2 | -db-1 +db-1");
    assert_eq!(images(&stage), ["db-0 db:1", "db-1 db:3", "db-2 db:3"]);
    let lost = stage.named("shop-db-0").id.clone();
    stage.world.observed.instances.remove(&lost);
    // Without self-heal it is left for now.
    stage.policy.self_heal = false;
    for _ in 0..3 {
        assert_eq!(changes(&stage.round()), "");
        stage.tick(Duration::from_secs(5));
    }
    stage.policy.self_heal = true;
    assert_eq!(played(&mut stage), "+db-0");
    assert_eq!(images(&stage)[0], "db-0 db:1");
    stage.stack = stack(&manifest("db:3", 3, &partition(0)));
    assert_eq!(played(&mut stage), "-db-0 +db-0");
    assert!(stage.record.held.is_empty());
}

#[test]
fn new_pod_below_the_partition_is_not_of_a_newer_version() {
    let partition = |it: u32| format!("  updateStrategy: {{rollingUpdate: {{partition: {it}}}}}");
    // The version comes with the pods, or in a commit before them.
    for is_apart in [false, true] {
        let mut stage = stage(&manifest("db:1", 3, ""));
        played(&mut stage);
        if is_apart {
            stage.stack = stack(&manifest("db:2", 3, &partition(3)));
            assert_eq!(played(&mut stage), "");
        }
        stage.stack = stack(&manifest("db:2", 5, &partition(5)));
        assert_eq!(minute(&mut stage), "");
        let waits = stage.round().to_string();
        assert!(waits.contains("db-3 waits for db-0: the partition keeps it at an older version"), "{waits}");
        assert_eq!(images(&stage), ["db-0 db:1", "db-1 db:1", "db-2 db:1"]);
        stage.stack = stack(&manifest("db:2", 5, ""));
        played(&mut stage);
        let all = ["db-0 db:2", "db-1 db:2", "db-2 db:2", "db-3 db:2", "db-4 db:2"];
        assert_eq!(images(&stage), all);
        // One that is lost is no new one.
        stage.stack = stack(&manifest("db:2", 5, &partition(5)));
        let lost = stage.named("shop-db-4").id.clone();
        stage.world.observed.instances.remove(&lost);
        assert_eq!(played(&mut stage), "+db-4");
        assert_eq!(images(&stage), all);
    }
}

#[test]
fn new_pod_below_the_partition_fails_no_commit() {
    let mut stage = stage(&manifest("db:1", 3, ""));
    played(&mut stage);
    // The last pod is not below the partition, and waits for the one before it.
    let partition = "  updateStrategy: {rollingUpdate: {partition: 4}}";
    stage.stack = stack(&manifest("db:2", 5, partition));
    for _ in 0..25 {
        assert_eq!(minute(&mut stage), "");
    }
    let plan = stage.round();
    assert_eq!(stage.failure(&plan), None, "{plan}");
    assert!(!plan.waits.iter().any(|wait| wait.is(WaitReason::ProgressDeadlineExceeded)), "{plan}");
    assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::BelowPartition)), "{plan}");
    assert!(!plan.is_reached(), "{plan}");
    assert_eq!(stage.assess(&plan).health, HealthStatus::Progressing);
}

#[test]
fn raised_partition_takes_no_pod_back() {
    let partition = |it: u32| format!("  updateStrategy: {{rollingUpdate: {{partition: {it}}}}}");
    let mut stage = stage(&manifest("db:1", 3, ""));
    played(&mut stage);
    stage.sick.insert("db:2".to_owned());
    stage.stack = stack(&manifest("db:2", 3, ""));
    assert_eq!(minute(&mut stage), "-db-2 +db-2");
    stage.stack = stack(&manifest("db:3", 3, &partition(3)));
    assert_eq!(minute(&mut stage), "");
    assert_eq!(images(&stage), ["db-0 db:1", "db-1 db:1", "db-2 db:2"]);
    for pod in ["shop-db-0", "shop-db-2"] {
        let lost = stage.named(pod).id.clone();
        stage.world.observed.instances.remove(&lost);
    }
    minute(&mut stage);
    assert_eq!(images(&stage), ["db-0 db:1", "db-1 db:1", "db-2 db:2"]);
}

#[test]
fn on_delete_replaces_only_deleted_pods() {
    let on_delete = "  updateStrategy: {type: OnDelete}";
    let mut stage = stage(&manifest("db:1", 2, on_delete));
    assert_eq!(stage.stack.workloads[&"db-0".into()].update, Update::OnDelete);
    played(&mut stage);
    stage.stack = stack(&manifest("db:2", 2, on_delete));
    assert_eq!(played(&mut stage), "");
    let plan = stage.round().to_string();
    assert!(plan.contains("db-0 stays as it was: until somebody deletes it"), "{plan}");
    let deleted = stage.named("shop-db-0").id.clone();
    stage.record.replaced.insert(deleted, Replacement::Delete);
    assert_eq!(played(&mut stage), "-db-0 +db-0");
    assert_eq!(images(&stage), ["db-0 db:2", "db-1 db:1"]);
}

#[test]
fn unsupported_set_fields_are_reported_at_their_place() {
    let errors = |more: &str| told(&manifest("db:1", 3, more), Severity::Error);
    assert_eq!(
        errors("  podManagementPolicy: Sometimes"),
        ["12:spec.podManagementPolicy `Sometimes` is not a value of this field"]
    );
    let none = errors("  updateStrategy: {rollingUpdate: {maxUnavailable: 0}}");
    assert!(none[0].contains("must be more than 0"), "{none:?}");
    let both = errors("  updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}");
    assert!(both[0].contains("is not allowed when the type is `OnDelete`"), "{both:?}");
    let many = told(&manifest("db:1", 501, ""), Severity::Error);
    assert!(many[0].starts_with("11:spec.replicas more than 500 pods"), "{many:?}");
    let kept = "  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Retain}";
    let warnings = told(&manifest("db:1", 3, kept), Severity::Warning);
    assert_eq!(
        warnings,
        ["12:spec.persistentVolumeClaimRetentionPolicy.whenScaled has no effect: volumes are never removed"]
    );
    // A template with a fault has one fault, however many pods are made of it.
    let broken = manifest("db:1", 3, "").replace("mountPath: /data", "mountPath: /data, subPth: a");
    assert_eq!(told(&broken, Severity::Error).len(), 1);
    let other = manifest("db:1", 1, "")
        + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: db-0}\nspec: {containers: [{name: a, image: \"a:1\"}]}\n";
    let taken = "the Pod `db-0` would have containers of the same name as the StatefulSet `db`";
    assert!(told(&other, Severity::Error)[0].contains(taken));
}

#[test]
fn scaled_down_to_none_they_go_one_by_one() {
    let mut stage = stage(&manifest("db:1", 3, ""));
    played(&mut stage);
    stage.stack = stack(&manifest("db:1", 0, ""));
    assert_eq!(played(&mut stage), "-db-2 | -db-1 | -db-0");
}

#[test]
fn scaled_down_by_much_they_go_unasked() {
    let mut stage = stage(&manifest("db:1", 8, ""));
    played(&mut stage);
    stage.stack = stack(&manifest("db:1", 2, ""));
    assert_eq!(played(&mut stage), "-db-7 | -db-6 | -db-5 | -db-4 | -db-3 | -db-2");
}

#[test]
fn pods_with_on_delete_or_partition_are_no_drift() {
    for more in ["  updateStrategy: {type: OnDelete}", "  updateStrategy: {rollingUpdate: {partition: 2}}"] {
        let mut stage = stage(&manifest("db:1", 2, more));
        played(&mut stage);
        stage.stack = stack(&manifest("db:2", 2, more));
        played(&mut stage);
        for _ in 0..5 {
            let plan = stage.round();
            assert!(plan.is_settled() && plan.drifts.is_empty(), "{:?} {plan}", plan.drifts);
            let all = stage.assess(&plan);
            assert_eq!(all.health, HealthStatus::Healthy, "{}", all.message);
            stage.tick(Duration::from_secs(300));
        }
        // One that is lost is still missed.
        stage.crashing.insert("db:1".to_owned());
        stage.tick(Duration::from_secs(5));
        stage.round();
        stage.tick(Duration::from_secs(5));
        let plan = stage.round();
        let all = stage.assess(&plan);
        assert_ne!(all.health, HealthStatus::Healthy);
    }
}
