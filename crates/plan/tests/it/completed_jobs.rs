//! Jobs that have completed, and are not run again for other networks or values, a lost record or an older agent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{HealthStatus, Instance, NAMESPACE_FILE, Record, State};
use driftless_plan::{is_in_force, suppose_completed, with_resolved_images};

use crate::fixture::Stage;
use crate::jobs::{exit, judged, manifest, played, several_containers, stack, stage, work_that_ends};

/// The Job with a Service that has its name, and with an object in another namespace: both give it other networks or names.
fn with_neighbours(text: &str) -> String {
    format!(
        "{text}---\napiVersion: v1\nkind: Service\nmetadata: {{name: work}}\nspec:\n  selector: {{batch.kubernetes.io/job-name: \
         work}}\n  ports: [{{port: 80}}]\n---\napiVersion: v1\nkind: Service\nmetadata: {{name: other}}\nspec:\n  selector: \
         {{batch.kubernetes.io/job-name: work}}\n  ports: [{{port: 81}}]\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: \
         far}}\nspec: {{containers: [{{name: web, image: 'web:1'}}]}}\n"
    )
}

fn of_work(all: Vec<String>) -> Vec<String> {
    all.into_iter().filter(|it| it.split(' ').skip(1).any(|it| !it.ends_with("web.far"))).collect()
}

#[test]
fn completed_job_is_not_run_again_with_other_networks() {
    for (what, wanted) in work_that_ends().into_iter().take(3) {
        let text = match what {
            "a Job" => manifest("good:1", "Never", "  completions: 1"),
            "a Job that is tried again in place" => manifest("good:1", "OnFailure", "  completions: 1"),
            _ => several_containers(),
        };
        let mut stage = stage(&text);
        assert_eq!(stage.stack, wanted);
        stage.world.observed.images.entry("web:1".to_owned()).or_default();
        played(&mut stage, 20, 5);
        assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()), "{what}");
        let before: BTreeSet<_> = stage.world.observed.containers().map(|it| it.id.clone()).collect();

        stage.stack = stack(&with_neighbours(&text));
        assert_ne!(stage.stack.workloads[&"work".into()].spec(), wanted.workloads[&"work".into()].spec());
        assert_eq!(of_work(played(&mut stage, 20, 5)), [""; 0], "{what}");
        let after: BTreeSet<_> = stage.world.observed.containers().map(|it| it.id.clone()).collect();
        assert!(after.is_superset(&before), "{what}: its containers and their logs are kept");
        let plan = stage.round();
        assert!(plan.is_settled(), "{what}: {plan}");
        assert_eq!(stage.assess(&plan).sync, driftless_model::SyncStatus::Synced, "{what}");

        stage.stack = wanted;
        let made = played(&mut stage, 20, 5);
        assert!(made.iter().all(|it| !it.contains('+')), "{what}: {made:?}");
        let after: BTreeSet<_> = stage.world.observed.containers().map(|it| it.id.clone()).collect();
        assert_eq!(after, before, "{what}");
    }
}

#[test]
fn running_job_is_left_alone_with_other_networks() {
    for policy in ["Never", "OnFailure"] {
        let text = manifest("long:1", policy, "  completions: 1\n  backoffLimit: 3");
        let mut stage = stage(&text);
        stage.world.observed.images.entry("web:1".to_owned()).or_default();
        assert_eq!(played(&mut stage, 4, 5), ["0s +work >work"]);
        stage.stack = stack(&with_neighbours(&text));
        // A record that was stored before the agent acted is enough.
        stage.record.jobs.get_mut(&"work".into()).unwrap().kept.clear();
        assert_eq!(of_work(played(&mut stage, 10, 5)), [""; 0], "{policy}");
        let plan = stage.round();
        assert!(plan.steps.is_empty() && plan.drifts.is_empty(), "{policy}: {plan}");
        assert_eq!(stage.assess(&plan).sync, driftless_model::SyncStatus::Synced, "{policy}");

        // The next try has the networks that Git has now.
        let ended = stage.now;
        exit(&mut stage, 1, ended, "");
        for it in stage.world.observed.instances.values_mut().filter(|it| it.config.image == "web:1") {
            it.state = State::Running { since: ended, health: driftless_model::Health::Healthy };
        }
        stage.tick(Duration::from_secs(1));
        let made = of_work(played(&mut stage, 30, 1));
        assert_eq!(made.len(), 1, "{policy}: {made:?}");
        assert!(made[0].ends_with("- +work >work"), "{policy}: {made:?}");
        let wanted = stage.stack.workloads[&"work".into()].spec();
        let specs: Vec<_> = stage.world.observed.instances.values().map(|it| &it.spec).collect();
        assert!(specs.contains(&&wanted), "{policy}");
        assert!(stage.record.jobs[&"work".into()].kept.is_empty(), "{policy}");
    }
}

#[test]
fn expired_job_is_not_run_again_after_the_record_is_lost() {
    let web = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: 'long:1'}]}\n";
    let mut stage = stage(&(manifest("good:1", "Never", "  ttlSecondsAfterFinished: 60") + web));
    let in_force = |stage: &Stage| is_in_force(&stage.stack, &stage.world.observed, &stage.agent);
    assert!(!in_force(&stage));
    let lost = |stage: &mut Stage| {
        stage.record = Record::default();
        suppose_completed(&mut stage.record, &stage.stack, &stage.world.observed, stage.now)
    };
    played(&mut stage, 4, 5);
    assert_eq!(lost(&mut stage), BTreeSet::new(), "its container says how it has ended");
    assert!(played(&mut stage, 30, 5).iter().all(|it| !it.contains("+work")));
    let is_of_job = |it: &Instance| it.instance.workload.as_str() == "work";
    assert!(!stage.world.observed.instances.values().any(is_of_job));
    assert!(in_force(&stage));
    assert_eq!(lost(&mut stage), BTreeSet::from(["work".into()]));
    assert_eq!(played(&mut stage, 10, 5), [""; 0]);
    // Nothing says that it was ever applied.
    stage.world.observed.instances.clear();
    assert!(!in_force(&stage));
}

#[test]
fn completed_work_queue_is_not_run_again_when_it_is_lowered() {
    let with = |more: &str| stack(&manifest("good:1", "Never", more));
    let mut stage = stage(&manifest("good:1", "Never", "  parallelism: 3"));
    played(&mut stage, 10, 5);
    assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()));
    for other in ["  parallelism: 1", "  parallelism: 0", "  parallelism: 2", "  backoffLimit: 1"] {
        stage.stack = with(other);
        let made = played(&mut stage, 10, 5);
        assert!(made.iter().all(|it| !it.contains('+')), "{other}: {made:?}");
    }
    stage.stack = stack(&manifest("good:2", "Never", "  parallelism: 3"));
    assert!(!played(&mut stage, 10, 5).is_empty());
}

/// An older agent identified a Job by the hash of its containers with their networks.
#[test]
fn jobs_of_an_older_agent_are_not_run_again() {
    let text = with_neighbours(&manifest("good:1", "Never", "  completions: 1"));
    let mut stage = stage(&text);
    stage.world.observed.images.entry("web:1".to_owned()).or_default();
    played(&mut stage, 10, 5);
    let job = "work".into();
    let former = |stage: &Stage| {
        driftless_model::SpecHash::of(&Some((stage.stack.workloads[&"work".into()].spec(), Some(1), false)))
    };
    let present = stage.record.jobs[&job].spec.clone();
    let old = former(&stage);
    assert_ne!(present, old);
    let known = stage.record.jobs.get_mut(&job).unwrap();
    (known.spec, known.specs) = (old.clone(), BTreeSet::new());
    let at = known.ended.as_ref().unwrap().at;
    stage.record.completed_jobs = Default::default();
    stage.record.completed_jobs.insert(&job, &old, at);
    assert_eq!(of_work(played(&mut stage, 10, 5)), [""; 0]);
    assert_eq!(stage.record.jobs[&job].spec, present);
    assert_eq!(stage.record.completed_jobs.completed_at(&job, &present), Some(at));

    // A rollback brings it back.
    stage.record.completed_jobs = Default::default();
    stage.record.completed_jobs.insert(&job, &old, at);
    stage.record.jobs.clear();
    let made = of_work(played(&mut stage, 10, 5));
    assert!(made.iter().all(|it| !it.contains("+work")), "{made:?}");
}

/// A Job with a variable, a folder of files and an argument from objects that others change.
fn with_references(image: &str, value: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: work}}
spec:
  template:
    spec:
      restartPolicy: Never
      volumes: [{{name: files, configMap: {{name: settings}}}}]
      containers:
      - name: work
        image: \"{image}\"
        args: [\"$(PASSWORD)\"]
        env: [{{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: db, key: password}}}}}}]
        volumeMounts: [{{name: files, mountPath: /etc/app}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: db}}
stringData: {{password: \"{value}\"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{a.conf: \"{value}\"}}
"
    )
}

#[test]
fn completed_job_is_not_run_again_with_other_values() {
    let mut stage = stage(&with_references("good:1", "one"));
    assert_eq!(played(&mut stage, 10, 5).len(), 1);
    let before: BTreeSet<_> = stage.world.observed.containers().map(|it| it.id.clone()).collect();
    for value in ["two", "three"] {
        stage.stack = stack(&with_references("good:1", value));
        assert_eq!(played(&mut stage, 10, 5), [""; 0], "{value}");
        assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()));
        assert!(stage.round().is_settled());
    }
    let after: BTreeSet<_> = stage.world.observed.containers().map(|it| it.id.clone()).collect();
    assert_eq!(before, after, "its container stays");
    // Its containers and its record may be gone.
    stage.world.observed.instances.clear();
    stage.record.jobs.clear();
    stage.stack = stack(&with_references("good:1", "four"));
    assert_eq!(played(&mut stage, 10, 5), [""; 0]);
    // A defaulted field changes the manifest, and not the Job.
    stage.stack =
        stack(&with_references("good:1", "four").replace("Never", "Never\n      hostNetwork: false"));
    assert_eq!(played(&mut stage, 10, 5), [""; 0]);
    // Another template is another Job.
    stage.stack = stack(&with_references("good:2", "four"));
    assert_eq!(played(&mut stage, 10, 5).len(), 1);
}

#[test]
fn completed_job_runs_again_with_a_newer_image() {
    let mut stage = stage(&with_references("good:1", "one"));
    assert_eq!(played(&mut stage, 10, 5).len(), 1);
    // The manifest stays as it is: a registry has the newer version.
    let newer = |value: &str| {
        let resolved = BTreeMap::from([("good:1", "good:2")]);
        with_resolved_images(&stack(&with_references("good:1", value)), &resolved).unwrap()
    };
    stage.stack = newer("one");
    assert_eq!(played(&mut stage, 10, 5).len(), 1);
    for value in ["one", "two"] {
        stage.stack = newer(value);
        assert_eq!(played(&mut stage, 10, 5), [""; 0], "{value}");
    }
}

#[test]
fn job_that_has_not_completed_gets_other_values() {
    for image in ["long:1", "bad:1"] {
        let mut stage = stage(&with_references(image, "one"));
        played(&mut stage, 3, 5);
        stage.stack = stack(&with_references(image, "two"));
        let made = played(&mut stage, 3, 5);
        assert!(made.iter().any(|it| it.contains("- +work >work")), "{image}: {made:?}");
    }
}

/// An older agent recorded no hash of the manifest, and counted the ports that are not published.
#[test]
fn jobs_recorded_without_a_manifest_are_not_run_again() {
    let text = |value: &str| {
        with_references("good:1", value)
            .replace("        args:", "        ports: [{containerPort: 80}]\n        args:")
    };
    let mut stage = stage(&text("one"));
    played(&mut stage, 10, 5);
    let job = "work".into();
    let workload = &stage.stack.workloads[&job];
    let old = driftless_model::SpecHash::of(&Some((workload.work_with_exposed_ports(), Some(1), false)));
    let known = stage.record.jobs.get_mut(&job).unwrap();
    assert_ne!(known.spec, old);
    (known.spec, known.manifest) = (old.clone(), None);
    let at = known.ended.as_ref().unwrap().at;
    stage.record.completed_jobs = Default::default();
    stage.record.completed_jobs.insert(&job, &old, at);
    assert_eq!(played(&mut stage, 3, 5), [""; 0]);
    stage.stack = stack(&text("two"));
    assert_eq!(played(&mut stage, 10, 5), [""; 0]);
}

/// An older agent mounted no file with the namespace.
#[test]
fn completed_job_is_not_run_again_for_its_namespace_file() {
    let text = manifest("good:1", "Never", "  completions: 1")
        .replace("args: [run,", &format!("args: [{NAMESPACE_FILE},"));
    let mut stage = stage(&text);
    stage.stack.workloads.get_mut(&"work".into()).unwrap().container.mounts.clear();
    assert_eq!(played(&mut stage, 10, 5).len(), 1);
    let job = "work".into();
    let known = stage.record.jobs.get_mut(&job).unwrap();
    known.manifest = None;
    let (old, at) = (known.spec.clone(), known.ended.as_ref().unwrap().at);
    stage.record.completed_jobs = Default::default();
    stage.record.completed_jobs.insert(&job, &old, at);
    stage.stack = stack(&text);
    assert_eq!(played(&mut stage, 10, 5), [""; 0]);
    assert_ne!(stage.record.jobs[&job].spec, old);
}
