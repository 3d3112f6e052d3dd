//! Prune protection: containers, networks and volumes with the label `driftless.prune`.

use std::{sync::Arc, time::Duration};

use driftless_files::MemoryFiles;
use driftless_manifest::render;
use driftless_model::{ManagedApplications, Network, Removal, Stack, Volume, Workload};
use driftless_plan::{Action, Plan, WaitReason};

use crate::fixture::{Stage, manifests, stack, workload};

fn labelled(key: &str) -> Workload {
    let mut labelled = workload("db:1", 1);
    labelled.container.labels.insert(key.to_owned(), "false".to_owned());
    labelled
}

/// A stage that has reached this stack.
fn settled(stack: Stack) -> Stage {
    let mut stage = Stage::new(stack);
    settle(&mut stage);
    stage
}

/// Makes rounds until nothing is left to do. Returns all plans.
pub(crate) fn settle(stage: &mut Stage) -> Vec<Plan> {
    let mut plans = Vec::new();
    for _ in 0..40 {
        plans.push(stage.round());
        if plans.last().is_some_and(Plan::is_settled) {
            return plans;
        }
        stage.tick(Duration::from_secs(5));
    }
    panic!("the stage never settles: {}", plans.pop().unwrap());
}

fn count(stage: &Stage, workload: &str) -> usize {
    let instances = stage.world.observed.instances.values();
    instances.filter(|instance| instance.instance.workload.as_str() == workload).count()
}

#[test]
fn protected_container_is_kept_with_a_reason() {
    for key in ["driftless.prune", "annotation.driftless.prune"] {
        let mut stage = settled(stack([("web", workload("web:1", 1)), ("db", labelled(key))]));
        stage.stack = stack([("web", workload("web:2", 1))]);
        settle(&mut stage);
        // Once more, when the removed workload would be drift.
        let plan = stage.round();
        assert!(plan.is_settled() && plan.drifts.is_empty(), "{plan}");
        let wait = plan.waits.iter().find(|wait| wait.is(WaitReason::PruneProtected)).unwrap();
        assert_eq!(
            wait.to_string(),
            "shop-db-1 is not in Git any more and is kept, because its label `driftless.prune` is `false`: remove it with `docker rm -f shop-db-1`"
        );
        assert_eq!(count(&stage, "db"), 1);
    }
}

#[test]
fn only_false_protects() {
    let mut web = workload("db:1", 1);
    web.container.labels.insert("driftless.prune".to_owned(), "true".to_owned());
    let mut stage = settled(stack([("web", workload("web:1", 1)), ("db", web)]));
    stage.stack = stack([("web", workload("web:1", 1))]);
    settle(&mut stage);
    assert_eq!(count(&stage, "db"), 0);
}

#[test]
fn protected_objects_stay_when_the_application_is_removed() {
    let mut first = stack([("web", workload("web:1", 1))]);
    let labels = [("driftless.prune".to_owned(), "false".to_owned())].into();
    first.volumes.insert("shop_kept".into(), Volume { key: "kept".into(), labels, ..Volume::default() });
    first.volumes.insert("shop_data".into(), Volume { key: "data".into(), ..Volume::default() });
    let mut stage = settled(first);
    stage.record.removal = Some(Removal::WithVolumes);
    stage.stack = stack([]);
    let plans = settle(&mut stage);
    let steps = plans.iter().flat_map(|plan| &plan.steps);
    let removed: Vec<&str> = steps
        .filter(|step| matches!(step.action, Action::RemoveVolume { .. }))
        .map(|step| step.action.object())
        .collect();
    let last = plans.last().unwrap();
    assert!(last.waits.iter().any(|wait| wait.is(WaitReason::PruneProtected)), "{last}");
    assert_eq!(removed, ["shop_data"]);
    assert!(stage.world.observed.volumes.contains_key("shop_kept"));
}

#[test]
fn label_added_to_an_existing_volume_protects_it() {
    let mut first = stack([("web", workload("web:1", 1))]);
    first.volumes.insert("shop_kept".into(), Volume { key: "kept".into(), ..Volume::default() });
    first.volumes.insert("shop_data".into(), Volume { key: "data".into(), ..Volume::default() });
    let mut stage = settled(first);
    // The engine keeps the labels with which a volume was created.
    let kept = stage.stack.volumes.get_mut("shop_kept").unwrap();
    kept.labels.insert("driftless.prune".to_owned(), "false".to_owned());
    settle(&mut stage);
    let labels = &stage.world.observed.volumes["shop_kept"].compose.as_ref().unwrap().labels;
    assert!(labels.is_empty(), "{labels:?}");
    stage.stack.volumes.clear();
    settle(&mut stage);
    stage.record.removal = Some(Removal::WithVolumes);
    stage.stack = stack([]);
    let plan = settle(&mut stage).pop().unwrap();
    assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::PruneProtected)), "{plan}");
    let left: Vec<&String> = stage.world.observed.volumes.keys().collect();
    assert_eq!(left, ["shop_kept"]);
}

/// Git has the application as this stack, or not any more.
fn set_in_git(stage: &mut Stage, stack: Option<&Stack>) {
    let stacks = stack.map(|stack| (stack.app.clone(), Arc::new(stack.clone())));
    let managed = ManagedApplications {
        is_complete: true,
        names: [stage.stack.app.clone()].into(),
        stacks: stacks.into_iter().collect(),
        ..ManagedApplications::default()
    };
    let claims = &mut stage.world.observed.claims;
    claims.applications = Some(Arc::new(managed));
    claims.deployed_volumes = Some(Default::default());
}

#[test]
fn protection_of_a_volume_in_git_outlives_a_rollback() {
    for ends in [false, true] {
        let mut first = stack([("web", workload("web:1", 1))]);
        first.volumes.insert("shop_kept".into(), Volume { key: "kept".into(), ..Volume::default() });
        let mut newest = first.clone();
        let kept = newest.volumes.get_mut("shop_kept").unwrap();
        kept.labels.insert("driftless.prune".to_owned(), "false".to_owned());
        let mut stage = settled(first.clone());
        stage.stack = newest.clone();
        set_in_git(&mut stage, Some(&newest));
        settle(&mut stage);
        stage.stack = first.clone();
        settle(&mut stage);
        if ends {
            set_in_git(&mut stage, Some(&first));
            settle(&mut stage);
        }
        set_in_git(&mut stage, None);
        settle(&mut stage);
        stage.record.removal = Some(Removal::WithVolumes);
        stage.stack = stack([]);
        let plan = settle(&mut stage).pop().unwrap();
        assert_eq!(plan.waits.iter().any(|wait| wait.is(WaitReason::PruneProtected)), !ends, "{plan}");
        assert_eq!(stage.world.observed.volumes.contains_key("shop_kept"), !ends);
    }
}

#[test]
fn protected_network_is_kept_and_the_wait_says_why() {
    let network = |key: &str, value: &str| Network {
        key: key.to_owned(),
        labels: [("driftless.prune".to_owned(), value.to_owned())].into(),
        ..Network::default()
    };
    let mut first = stack([("web", workload("web:1", 1))]);
    first.networks.insert("shop_kept".into(), network("kept", "false"));
    first.networks.insert("shop_unused".into(), network("unused", "true"));
    let mut stage = settled(first);
    stage.stack = stack([("web", workload("web:1", 1))]);
    let plans = settle(&mut stage);
    let names: Vec<&String> = stage.world.observed.networks.keys().collect();
    assert_eq!(names, ["shop_kept"]);
    let waits: Vec<String> = plans.last().unwrap().waits.iter().map(ToString::to_string).collect();
    assert_eq!(
        waits,
        [
            "network shop_kept is not in Git any more and is kept, because its label `driftless.prune` is `false`: remove it with `docker network rm shop_kept`"
        ]
    );
}

#[test]
fn volumes_of_annotated_claims_outlive_the_application() {
    let manifest = "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept, annotations: {driftless.prune: 'false', other: 'x'}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: unkept}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
        - name: db
          image: 'db:1'
          volumeMounts: [{name: kept, mountPath: /a}, {name: unkept, mountPath: /b}, {name: own, mountPath: /c}]
      volumes:
        - {name: kept, persistentVolumeClaim: {claimName: kept}}
        - {name: unkept, persistentVolumeClaim: {claimName: unkept}}
  volumeClaimTemplates:
    - metadata: {name: own, annotations: {driftless.prune: 'false'}}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    let files = MemoryFiles::new([("db.yaml", manifest)]);
    let rendered = render(&files, &manifests("", &["db.yaml"]));
    let mut stage = settled(rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings)));
    let named = |stage: &Stage| -> Vec<String> { stage.world.observed.volumes.keys().cloned().collect() };
    assert_eq!(named(&stage).len(), 3);
    stage.record.removal = Some(Removal::WithVolumes);
    stage.stack.workloads.clear();
    stage.stack.volumes.clear();
    stage.stack.networks.clear();
    settle(&mut stage);
    let left = named(&stage);
    assert!(left.len() == 2 && left.iter().all(|name| !name.ends_with("unkept")), "{left:?}");
}
