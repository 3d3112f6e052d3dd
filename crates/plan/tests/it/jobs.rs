//! Jobs, from manifest to containers in memory: begun, tried again, and done.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_manifest::render;
use driftless_model::{
    Attempt, Format, HealthStatus, Instance, JobOutcome, Mask, Replacement, Severity, Stack, StackHashes,
    State, Timestamp,
};
use driftless_plan::{Action, Plan, Target, compare_live, leave_out_jump};

use crate::{
    fixture::{Stage, manifests},
    unstartable::UNSTARTABLE,
};

fn rendered(text: &str) -> Rendered {
    let files = MemoryFiles::new([("job.yaml", text)]);
    let spec = manifests("", &["job.yaml"]);
    render(&files, &spec)
}

pub(crate) fn manifest(image: &str, policy: &str, more: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: work}}
spec:
{more}
  template:
    spec:
      restartPolicy: {policy}
      containers: [{{name: work, image: \"{image}\", args: [run, $(JOB_COMPLETION_INDEX)]}}]
"
    )
}

pub(crate) fn stack(text: &str) -> Stack {
    let Rendered { stack, findings, .. } = rendered(text);
    stack.unwrap_or_else(|| panic!("{findings:?}"))
}

pub(crate) fn stage(text: &str) -> Stage {
    let mut stage = Stage::new(stack(text));
    for image in ["good:1", "good:2", "bad:1", "long:1"] {
        stage.world.observed.images.entry(image.to_owned()).or_default();
    }
    stage.finishing.extend(["good:1".to_owned(), "good:2".to_owned()]);
    stage.crashing.insert("bad:1".to_owned());
    stage
}

/// Instances that are created (`+work-0`), started (`>`) and removed (`-`) in one round.
fn changes(stage: &Stage, plan: &Plan) -> String {
    let named = |name: &str| {
        let found = stage.world.observed.containers().find(|it| it.name == name);
        found.map_or_else(|| name.to_owned(), |it| it.instance.workload.to_string())
    };
    let one = |action: &Action| match action {
        Action::CreateInstance(it) => Some(format!("+{}", it.instance.workload)),
        Action::StartInstance { container } => Some(format!(">{}", named(container.name()))),
        Action::RemoveInstance { .. } => Some("-".to_owned()),
        _ => None,
    };
    plan.steps.iter().filter_map(|it| one(&it.action)).collect::<Vec<_>>().join(" ")
}

/// The changes of so many rounds, each with the second in which it was made.
pub(crate) fn played(stage: &mut Stage, rounds: usize, pause: u64) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        let plan = stage.round();
        let done = changes(stage, &plan);
        if !done.is_empty() {
            all.push(format!("{}s {done}", stage.now.since(crate::fixture::NOON).as_secs()));
        }
        stage.tick(Duration::from_secs(pause));
    }
    all
}

pub(crate) fn judged(stage: &mut Stage) -> (HealthStatus, String) {
    let plan = stage.round();
    let all = stage.assess(&plan);
    let reason = all.workloads.values().max_by_key(|it| it.health).unwrap().reason.clone();
    (all.health, reason)
}

#[test]
fn indexed_job_runs_each_index_once_with_parallelism() {
    let text = manifest("good:1", "Never", "  completions: 3\n  parallelism: 2\n  completionMode: Indexed");
    let mut stage = stage(&text);
    let second = &stage.stack.workloads[&"work-1".into()];
    assert_eq!(second.container.env["JOB_COMPLETION_INDEX"].as_deref(), Some("1"));
    assert_eq!(second.container.command.as_deref().unwrap(), ["run", "1"]);
    assert_eq!(second.container.hostname.as_deref(), Some("work-1"));
    assert_eq!(second.container.labels["batch.kubernetes.io/job-name"], "work");
    assert_eq!(played(&mut stage, 10, 5), ["0s +work-0 >work-0 +work-1 >work-1", "5s +work-2 >work-2"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()));

    // Work is not repeated after its containers are removed by hand, but another template is another Job.
    stage.world.observed.instances.clear();
    assert_eq!(played(&mut stage, 5, 5), [""; 0]);
    assert!(stage.round().is_settled());
    stage.stack = stack(&text.replace("good:1", "good:2"));
    assert_eq!(played(&mut stage, 10, 5).len(), 2);
    // A pace of its own is not.
    stage.stack = stack(&text.replace("good:1", "good:2").replace("parallelism: 2", "parallelism: 3"));
    assert_eq!(played(&mut stage, 5, 5), [""; 0]);
}

/// Whether the containers that are removed in the next minute lose their anonymous volumes.
fn removals(stage: &mut Stage) -> Vec<bool> {
    let mut all = Vec::new();
    for _ in 0..30 {
        let plan = stage.round();
        all.extend(plan.steps.iter().filter_map(|step| match &step.action {
            Action::RemoveInstance { container: _, with_volumes } => Some(*with_volumes),
            _ => None,
        }));
        stage.tick(Duration::from_secs(2));
    }
    all
}

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: work}
spec:
  selector: {matchLabels: {app: work}}
  template:
    metadata: {labels: {app: work}}
    spec:
      containers: [{name: work, image: 'long:1'}]
";

#[test]
fn only_containers_of_a_job_lose_their_volumes() {
    let mut job = stage(&manifest("good:1", "Never", "  ttlSecondsAfterFinished: 10"));
    assert_eq!(removals(&mut job), [true]);
    // A Deployment that becomes a Job of the same name may have data there.
    let mut service = stage(DEPLOYMENT);
    assert_eq!(removals(&mut service), [false; 0]);
    service.stack = stack(&manifest("good:1", "Never", ""));
    assert_eq!(removals(&mut service), [false]);
}

#[test]
fn deployment_takes_over_the_volumes_of_a_job_of_its_name() {
    let mut stage = stage(&manifest("good:1", "Never", ""));
    assert_eq!(removals(&mut stage), [false; 0]);
    for container in stage.world.observed.instances.values_mut() {
        container.anonymous_volumes.insert("/data".to_owned(), "restored".to_owned());
    }
    stage.stack = stack(DEPLOYMENT);
    assert_eq!(removals(&mut stage), [false]);
    let volumes = stage.world.observed.instances.values().map(|container| &container.anonymous_volumes);
    let volumes: Vec<&str> = volumes.flat_map(BTreeMap::values).map(String::as_str).collect();
    assert_eq!(volumes, ["restored"]);
}

#[test]
fn index_of_a_job_is_a_variable_in_mounted_paths() {
    let indexed = manifest("good:1", "Never", "  completions: 2\n  completionMode: Indexed");
    let mount = "{name: out, mountPath: /out, subPathExpr: shard-$(JOB_COMPLETION_INDEX)}";
    let text = indexed
        .replace("args: [run,", &format!("volumeMounts: [{mount}], args: [$$(JOB_COMPLETION_INDEX),"))
        .replace(
            "      containers:",
            "      volumes: [{name: out, hostPath: {path: /srv/out}}]\n      containers:",
        );
    let stack = stack(&text);
    for index in ["0", "1"] {
        let container = &stack.workloads[&format!("work-{index}").as_str().into()].container;
        let mounts = format!("{:?}", container.mounts);
        assert!(mounts.contains(&format!("shard-{index}")), "{mounts}");
        assert_eq!(container.command.as_deref().unwrap(), ["$(JOB_COMPLETION_INDEX)", index]);
    }
}

#[test]
fn failures_of_a_job_are_counted_together_and_back_off() {
    let mut stage = stage(&manifest("bad:1", "Never", "  backoffLimit: 2"));
    let made = played(&mut stage, 100, 1);
    assert_eq!(made, ["0s +work >work", "11s - +work >work", "32s - +work >work"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "BackoffLimitExceeded".to_owned()));
    let waits = stage.round().to_string();
    assert!(waits.contains("work failed: it has failed too often"), "{waits}");

    // In place, and by the engine never.
    let mut stage = self::stage(&manifest("bad:1", "OnFailure", "  backoffLimit: 1"));
    assert_eq!(played(&mut stage, 50, 1), ["0s +work >work", "11s >work"]);
    let job = &stage.record.jobs[&"work".into()];
    assert_eq!((job.failures, job.ended.as_ref().unwrap().outcome), (2, JobOutcome::BackoffLimitExceeded));

    // Two at a time fail together.
    let text = manifest("bad:1", "Never", "  completions: 5\n  parallelism: 2\n  backoffLimit: 2");
    let mut stage = self::stage(&text);
    let made = played(&mut stage, 100, 1);
    assert_eq!(made, ["0s +work-0 >work-0 +work-1 >work-1", "21s - +work-0 >work-0 - +work-1 >work-1"]);
    assert_eq!(stage.record.jobs[&"work".into()].failures, 4);
}

#[test]
fn job_has_all_its_time_after_a_suspension() {
    let mut stage = stage(&manifest("good:1", "Never", "  activeDeadlineSeconds: 300"));
    stage.policy.suspended = true;
    assert_eq!(played(&mut stage, 10, 60), [""; 0]);
    assert_ne!(judged(&mut stage).0, HealthStatus::Degraded);
    stage.policy.suspended = false;
    assert_eq!(played(&mut stage, 5, 5), ["600s +work >work"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()));
}

#[test]
fn job_that_failed_at_once_is_run_again_on_request() {
    let mut stage = stage(&manifest("bad:1", "Never", "  backoffLimit: 0"));
    assert_eq!(played(&mut stage, 20, 1), ["0s +work >work"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "BackoffLimitExceeded".to_owned()));
    // As `driftless sync --retry` does.
    let again = |stage: &mut Stage| {
        let ids = stage.world.observed.instances.keys().map(|id| (id.clone(), Replacement::Delete));
        stage.record.replaced.extend(ids);
        stage.record.jobs.retain(|_, job| !job.has_failed());
    };
    again(&mut stage);
    assert_eq!(played(&mut stage, 20, 1), ["20s - +work >work"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "BackoffLimitExceeded".to_owned()));
    stage.crashing.clear();
    stage.finishing.insert("bad:1".to_owned());
    again(&mut stage);
    assert_eq!(played(&mut stage, 20, 1), ["40s - +work >work"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()));
}

#[test]
fn deadline_and_suspension_stop_a_running_job() {
    let mut stage = stage(&manifest("long:1", "OnFailure", "  activeDeadlineSeconds: 30"));
    assert_eq!(played(&mut stage, 60, 1), ["0s +work >work", "30s -"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "DeadlineExceeded".to_owned()));

    let text = manifest("long:1", "OnFailure", "  activeDeadlineSeconds: 30\n  suspend: false");
    let mut stage = self::stage(&text);
    assert_eq!(played(&mut stage, 20, 1), ["0s +work >work"]);
    stage.stack = stack(&text.replace("false", "true"));
    assert_eq!(played(&mut stage, 60, 1), ["20s -"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Suspended, "JobSuspended".to_owned()));
    let plan = stage.round();
    assert_eq!(stage.assess(&plan).message, "work: it is suspended", "the application is not");
    stage.stack = stack(&text);
    assert_eq!(played(&mut stage, 60, 1), ["80s +work >work", "110s -"], "the deadline starts again");
}

#[test]
fn jump_of_the_clock_counts_into_no_deadline_of_a_job() {
    let mut stage = stage(&manifest("long:1", "OnFailure", "  activeDeadlineSeconds: 30"));
    assert_eq!(played(&mut stage, 20, 1), ["0s +work >work"]);
    let jump = Duration::from_hours(3);
    stage.tick(jump);
    leave_out_jump(&mut stage.record, jump, stage.now);
    assert_eq!(played(&mut stage, 60, 1), ["10830s -"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "DeadlineExceeded".to_owned()));
}

#[test]
fn finished_job_is_kept_for_its_ttl_and_not_repeated() {
    let mut stage = stage(&manifest("good:1", "Never", "  ttlSecondsAfterFinished: 60"));
    assert_eq!(played(&mut stage, 100, 1), ["0s +work >work", "61s -"]);
    assert!(stage.round().is_settled());
    assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()));

    // A queue of work: nobody is begun once one says that there is no more of it.
    let mut stage = self::stage(&manifest("good:1", "Never", "  parallelism: 2"));
    assert_eq!(played(&mut stage, 10, 1), ["0s +work-0 >work-0 +work-1 >work-1"]);
    stage.world.observed.instances.clear();
    assert_eq!(played(&mut stage, 10, 1), [""; 0]);
}

#[test]
fn wherever_the_agent_ends_nothing_is_done_twice() {
    let text = manifest("good:1", "Never", "  completions: 3\n  parallelism: 2");
    for cut in 0..5 {
        let mut stage = stage(&text);
        let mut made = 0;
        for round in 0..30 {
            let before = stage.world.observed.instances.len();
            // Changes of the record that were not stored before the agent acted are lost.
            stage.round_cut_short(if round % 2 == 0 { cut } else { usize::MAX }, |_| 0);
            if round % 3 == 0 {
                stage.record.own_containers.clear();
            }
            made += stage.world.observed.instances.len().saturating_sub(before);
            stage.tick(Duration::from_secs(1));
        }
        assert_eq!((made, stage.record.jobs[&"work".into()].done.len()), (3, 3), "cut after {cut}");
    }
}

#[test]
fn unsupported_job_fields_are_reported_at_their_place() {
    let told = |text: &str, severity: Severity| -> Vec<String> {
        let findings = rendered(text).findings.into_iter().filter(|it| it.severity == severity);
        findings.map(|it| format!("{}:{} {}", it.location.line, it.path, it.message)).collect()
    };
    let errors = |more: &str| told(&manifest("a:1", "Never", more), Severity::Error);
    assert_eq!(errors("  completionMode: Indexed"), ["5:spec.completionMode `Indexed` needs `completions`"]);
    assert!(errors("  completions: 501")[0].contains("more than 500 pods"));
    let policy = errors("  podFailurePolicy: {rules: []}");
    assert!(policy[0].starts_with("5:spec.podFailurePolicy"), "{policy:?}");
    // A fault of the template is reported once, not for each Job.
    let many = manifest("a:1", "Always", "  completions: 3");
    assert_eq!(told(&many, Severity::Error).len(), 1);
}

#[test]
fn lower_parallelism_stops_the_latest_pods() {
    let with = |it: u32| manifest("long:1", "Never", &format!("  completions: 5\n  parallelism: {it}"));
    let mut stage = stage(&with(3));
    played(&mut stage, 5, 5);
    let running = |stage: &Stage| -> Vec<String> {
        stage.world.observed.instances.values().map(|it| it.instance.workload.to_string()).collect()
    };
    stage.stack = stack(&with(1));
    assert_eq!(played(&mut stage, 5, 5), ["25s - -"]);
    assert_eq!(running(&stage), ["work-0"]);
    stage.stack = stack(&with(0));
    assert_eq!(played(&mut stage, 5, 5), ["50s -"]);
    assert_eq!(running(&stage), [""; 0]);
    assert_eq!(stage.record.jobs[&"work".into()].failures, 0, "nothing failed");
    stage.stack = stack(&with(2));
    assert_eq!(played(&mut stage, 5, 5), ["75s +work-0 >work-0 +work-1 >work-1"]);
}

#[test]
fn job_without_completions_or_parallelism_runs_no_pod() {
    for (zero, one, health) in [
        ("  completions: 0", "  completions: 1", (HealthStatus::Healthy, "Completed")),
        ("  parallelism: 0", "  parallelism: 1", (HealthStatus::Suspended, "JobSuspended")),
    ] {
        let mut stage = stage(&manifest("good:1", "Never", zero));
        assert_eq!(played(&mut stage, 10, 1), [""; 0], "{zero}");
        assert_eq!(judged(&mut stage), (health.0, health.1.to_owned()), "{zero}");
        assert!(stage.round().is_settled(), "{zero}");
        stage.stack = stack(&manifest("good:1", "Never", one));
        assert_eq!(played(&mut stage, 10, 1), ["10s +work >work"], "{one}");
        assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()), "{one}");
    }
    // One that runs ends when it is switched off.
    let mut stage = stage(&manifest("long:1", "Never", "  completions: 1"));
    assert_eq!(played(&mut stage, 5, 1), ["0s +work >work"]);
    stage.stack = stack(&manifest("long:1", "Never", "  completions: 0"));
    assert_eq!(played(&mut stage, 5, 1), ["5s -"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()));
}

#[test]
fn completed_and_waiting_job_pods_are_not_missing() {
    let missing = |stage: &Stage| -> Vec<String> {
        let images = BTreeMap::new();
        let target = Target {
            stack: &stage.stack,
            hashes: &StackHashes::of(&stage.stack),
            reached: None,
            agent: &stage.agent,
            policy: &stage.policy,
            images: &images,
            mask: &Mask::new([7; 32]),
        };
        let all = compare_live(&target, &stage.world.observed, &stage.record);
        let containers = all.into_iter().filter(|it| it.kind == "container");
        containers.map(|it| format!("{} {:?}", it.name, it.change)).collect()
    };
    let text =
        manifest("good:1", "Never", "  completions: 3\n  parallelism: 1\n  ttlSecondsAfterFinished: 60");
    let mut stage = stage(&text);
    assert_eq!(missing(&stage).len(), 1, "what was never begun: {:?}", missing(&stage));
    stage.round();
    stage.round();
    assert_eq!(missing(&stage), [""; 0], "the others have no turn yet");
    played(&mut stage, 30, 5);
    assert!(stage.world.observed.instances.is_empty() && stage.round().is_settled());
    assert_eq!(missing(&stage), [""; 0]);
    stage.stack = stack(&text.replace("good:1", "good:2"));
    assert_eq!(missing(&stage).len(), 1);
}

/// A Job of several containers.
pub(crate) fn several_containers() -> String {
    let pod = "initContainers: [{name: first, image: 'good:1'}]\n      containers: [{name: a, image: 'good:1'}, \
               {name: b, image: 'good:2'}]";
    let job = manifest("good:1", "Never", "  completions: 1");
    let one = "containers: [{name: work, image: \"good:1\", args: [run, $(JOB_COMPLETION_INDEX)]}]";
    let several = job.replace(one, pod);
    assert_ne!(several, job);
    several
}

/// Work that ends, in every form, and the containers that do it.
pub(crate) fn work_that_ends() -> Vec<(&'static str, Stack)> {
    let job = manifest("good:1", "Never", "  completions: 1");
    let several = several_containers();
    let bare = "apiVersion: v1\nkind: Pod\nmetadata: {name: work}\nspec:\n  restartPolicy: Never\n  containers: [{name: \
                work, image: 'good:1'}]\n";
    let compose = |more: &str| {
        let text = format!(
            "services:\n  work: {{image: 'good:1'{more}}}\n  web:\n    image: web:1\n    restart: always\n    depends_on: \
             {{work: {{condition: service_completed_successfully}}}}\n"
        );
        let files = MemoryFiles::new([("compose.yaml", text.as_str())]);
        let spec = AppSpec { format: Format::Compose, ..manifests("", &["compose.yaml"]) };
        render(&files, &spec).stack.unwrap()
    };
    vec![
        ("a Job", stack(&job)),
        ("a Job that is tried again in place", stack(&manifest("good:1", "OnFailure", "  completions: 1"))),
        ("a Job of several containers", stack(&several)),
        ("a bare Pod", stack(bare)),
        ("a Compose service that another waits for", compose("")),
        ("the same with a restart policy", compose(", restart: on-failure")),
    ]
}

/// Ends every container that does work: not the one that only holds the network of a pod of several.
pub(crate) fn exit(stage: &mut Stage, code: i64, at: Timestamp, error: &str) {
    let parts = &stage.stack.workloads;
    let works = |it: &Instance| it.part.is_some() || parts[&it.instance.workload].parts.is_empty();
    let observed = &mut stage.world.observed;
    let all = observed.instances.values_mut().chain(observed.parts.values_mut());
    for it in all.filter(|it| it.is_running() && works(it)) {
        it.state = State::Exited { code, finished: at, out_of_memory: false, error: error.to_owned() };
    }
}

#[test]
fn work_that_ended_well_while_the_engine_was_down_is_done() {
    for (what, wanted) in work_that_ends() {
        let mut stage = Stage::new(wanted);
        for image in ["good:1", "good:2", "web:1"] {
            stage.world.observed.images.entry(image.to_owned()).or_default();
        }
        let mut made = played(&mut stage, 6, 5);
        // Each container ends well while no engine is there, and is found by the next one.
        for _ in 0..4 {
            let ended = stage.now;
            exit(&mut stage, 0, ended, "");
            stage.tick(Duration::from_secs(20));
            stage.world.observed.engine_started = Some(stage.now);
            made.extend(played(&mut stage, 6, 5));
        }
        let steps: Vec<&str> =
            made.iter().flat_map(|it| it.split(' ').skip(1)).filter(|it| !it.ends_with("web")).collect();
        let starts: BTreeSet<&&str> = steps.iter().collect();
        assert_eq!(steps.len(), starts.len(), "{what} was done twice: {made:?}");
    }
}

#[test]
fn job_gets_another_container_if_the_engine_cannot_start_it() {
    for (index, (what, wanted)) in work_that_ends().into_iter().enumerate() {
        let error = UNSTARTABLE[index % UNSTARTABLE.len()];
        let mut stage = Stage::new(wanted);
        for image in ["good:1", "good:2", "web:1"] {
            stage.world.observed.images.entry(image.to_owned()).or_default();
        }
        stage.round();
        stage.round();
        let ended = stage.now;
        exit(&mut stage, 137, ended, error);
        stage.tick(Duration::from_secs(1));
        stage.world.observed.engine_started = Some(stage.now);
        let ended = |it: &&Instance| matches!(it.state, State::Exited { .. });
        let stuck: Vec<_> = stage.world.observed.containers().filter(ended).map(|it| it.id.clone()).collect();
        assert!(!stuck.is_empty(), "{what}");
        let names: Vec<String> =
            stage.world.observed.containers().filter(ended).map(|it| it.name.clone()).collect();
        for name in names {
            let failed = Attempt { count: 1, next: stage.now, error: error.to_owned() };
            stage.record.failures.insert(name, failed);
        }
        stage.finishing.extend(["good:1".to_owned(), "good:2".to_owned()]);
        // One round acts on the failures; the agent forgets them with the steps that succeed.
        let mut made = played(&mut stage, 1, 5);
        stage.record.failures.clear();
        made.extend(played(&mut stage, 59, 5));
        let left: Vec<_> = stage
            .world
            .observed
            .containers()
            .filter(|it| stuck.contains(&it.id))
            .map(|it| &it.name)
            .collect();
        assert!(left.is_empty(), "{what}: {left:?} {made:?}");
        assert!(stage.round().is_settled(), "{what}: {made:?}");
    }
}

#[test]
fn run_with_a_lost_end_is_reported() {
    // The seconds before the start of the engine at which it ended, and its code.
    for (ago, code) in [(5, 137), (0, 255)] {
        for (what, wanted) in work_that_ends() {
            let mut stage = Stage::new(wanted);
            for image in ["good:1", "good:2", "web:1"] {
                stage.world.observed.images.entry(image.to_owned()).or_default();
            }
            played(&mut stage, 6, 5);
            stage.tick(Duration::from_secs(20));
            assert!(stage.record.unknown_ends.is_empty(), "{what}: {:?}", stage.record.unknown_ends);
            let back = stage.now.after(Duration::from_secs(ago));
            let ended = stage.now;
            exit(&mut stage, code, ended, "");
            stage.world.observed.engine_started = Some(back);
            stage.tick(Duration::from_secs(ago + 1));
            stage.finishing.extend(["good:1".to_owned(), "good:2".to_owned()]);
            played(&mut stage, 120, 5);
            let last = stage.round();
            let told: Vec<String> = last.waits.iter().map(ToString::to_string).collect();
            assert!(
                told.iter()
                    .any(|it| it.contains("may have done its work twice") && it.contains(&code.to_string())),
                "{what}: {told:?}"
            );
        }
    }
}

#[test]
fn ends_that_are_known_are_not_said_to_be_lost() {
    for (code, by_hand) in [(1, false), (137, true), (0, false)] {
        let mut stage = stage(&manifest("good:1", "Never", "  completions: 1"));
        played(&mut stage, 6, 5);
        // The engine was started long before.
        stage.world.observed.engine_started = Some(Timestamp(0));
        let ended = stage.now;
        exit(&mut stage, code, ended, "");
        if by_hand {
            stage.world.observed.instances.values_mut().for_each(|it| it.touched_by_hand = Some(ended));
        }
        stage.tick(Duration::from_secs(1));
        played(&mut stage, 60, 5);
        assert!(stage.record.unknown_ends.is_empty(), "{code}: {:?}", stage.record.unknown_ends);
    }
}

#[test]
fn start_in_which_the_engine_went_down_is_reported() {
    let mut stage = stage(&manifest("good:1", "Never", "  completions: 1"));
    stage.world.observed.images.entry("good:1".to_owned()).or_default();
    stage.round();
    for it in stage.world.observed.instances.values_mut() {
        it.state = State::Created;
    }
    stage.tick(Duration::from_secs(1));
    stage.world.observed.engine_started = Some(stage.now);
    let plan = stage.round();
    assert!(plan.to_string().contains("its work may be done twice"), "{plan}");
    // Another content is another Job.
    stage.stack = stack(&manifest("good:2", "Never", "  completions: 1"));
    played(&mut stage, 60, 5);
    assert!(stage.record.unknown_ends.is_empty());
}

#[test]
fn deadline_of_a_job_runs_from_its_turn() {
    let job = manifest("long:1", "Never", "  activeDeadlineSeconds: 30")
        .replace("{name: work}", "{name: work, annotations: {driftless.wave: '1'}}");
    let db = "---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: 'db:1'}]}
";
    let mut stage = stage(&(job + db));
    stage.sick.insert("db:1".to_owned());
    let before = played(&mut stage, 60, 1);
    assert!(!before.iter().any(|it| it.contains("work")), "{before:?}");
    assert_eq!(stage.record.jobs[&"work".into()].started, None);
    stage.sick.clear();
    assert_eq!(played(&mut stage, 60, 1), ["61s +work >work", "91s -"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "DeadlineExceeded".to_owned()));
}

/// An init container, and a proxy that runs until its work is done.
fn pod_manifest(policy: &str, backoff_limit: u32) -> String {
    manifest("bad:1", policy, &format!("  backoffLimit: {backoff_limit}")).replace(
        "containers: [",
        "initContainers: [{name: first, image: 'good:1'}]
      containers: [{name: proxy, image: 'long:1'}, ",
    )
}

#[test]
fn failed_container_of_a_job_is_retried_in_its_pod() {
    let mut stage = stage(&pod_manifest("OnFailure", 2));
    let made = played(&mut stage, 100, 1);
    assert_eq!(
        made,
        [
            "0s +work >work",
            "1s +work/first >work/first",
            "2s +work/proxy >work/proxy +work/work >work/work",
            "13s >work/work",
            "34s >work/work"
        ]
    );
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "BackoffLimitExceeded".to_owned()));
    assert_eq!(stage.record.jobs[&"work".into()].failures, 3);
    // The failed container is kept with its log.
    let states: Vec<&State> = stage.world.observed.containers().map(|it| &it.state).collect();
    assert!(states.len() == 4 && states.iter().all(|it| matches!(it, State::Exited { .. })), "{states:?}");

    let mut stage = self::stage(&pod_manifest("OnFailure", 6));
    played(&mut stage, 8, 1);
    stage.crashing.clear();
    stage.finishing.extend(["bad:1".to_owned(), "long:1".to_owned()]);
    assert_eq!(played(&mut stage, 60, 1), ["13s >work/work"], "the others are done");
    assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()));
    assert!(stage.world.observed.containers().all(|it| !it.is_running()));

    // With `Never` each try is a pod of its own.
    let text = pod_manifest("Never", 1).replace("long:1", "good:2");
    let mut stage = self::stage(&text);
    let made = played(&mut stage, 60, 1);
    assert_eq!(made.iter().filter(|it| it.contains("+work/first")).count(), 2, "{made:?}");
}

#[test]
fn failed_init_container_of_a_job_is_retried_in_its_pod() {
    let text = pod_manifest("OnFailure", 2).replace("image: 'good:1'", "image: 'bad:1'");
    let mut stage = stage(&text);
    let made = played(&mut stage, 8, 1);
    assert_eq!(made, ["0s +work >work", "1s +work/first >work/first"]);
    // The engine is restarted meanwhile.
    let now = stage.now;
    for it in stage.world.observed.instances.values_mut() {
        it.state = State::Exited { code: 0, finished: now, out_of_memory: false, error: String::new() };
    }
    stage.tick(Duration::from_secs(1));
    stage.world.observed.engine_started = Some(stage.now);
    assert_eq!(played(&mut stage, 40, 1), ["9s >work", "12s >work/first", "33s >work/first"]);
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "BackoffLimitExceeded".to_owned()));
}

/// The words of an engine about a container whose command it does not find.
const NO_COMMAND: &str = "failed to create task for container: failed to create shim task: OCI runtime create failed: \
                          runc create failed: unable to start container process: error during container init: exec: \
                          \"/bin/bakcup.sh\": stat /bin/bakcup.sh: no such file or directory: unknown";

/// One round, after which the engine has started no container of this image.
fn refused(stage: &mut Stage, image: &str, code: i64, error: &str) -> Vec<String> {
    let made = played(stage, 1, 1);
    let observed = &mut stage.world.observed;
    let all = observed.instances.values_mut().chain(observed.parts.values_mut());
    for it in all.filter(|it| it.is_running() && it.config.image == image) {
        // The engine notes no time of a start that failed.
        let finished = it.created;
        it.started = None;
        it.state = State::Exited { code, finished, out_of_memory: false, error: error.to_owned() };
    }
    made
}

#[test]
fn command_that_is_not_found_uses_up_the_tries_of_a_job() {
    for (policy, code) in [("Never", 127), ("OnFailure", 127), ("OnFailure", 126)] {
        let mut stage = stage(&manifest("long:1", policy, "  backoffLimit: 2"));
        let made: Vec<String> =
            (0..60).flat_map(|_| refused(&mut stage, "long:1", code, NO_COMMAND)).collect();
        assert_eq!(made, ["0s +work >work", "10s - +work >work", "30s - +work >work"], "{policy}");
        assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "BackoffLimitExceeded".to_owned()));
        assert_eq!(stage.record.jobs[&"work".into()].failures, 3);
        let plan = stage.round().to_string();
        assert!(plan.contains("it has failed too often: ") && plan.contains("stat /bin/bakcup.sh"), "{plan}");
    }
    // In a pod of several containers as well.
    let mut stage = stage(&pod_manifest("OnFailure", 2));
    stage.crashing.clear();
    let made: Vec<String> = (0..60).flat_map(|_| refused(&mut stage, "bad:1", 127, NO_COMMAND)).collect();
    assert_eq!(made[3..], ["12s - +work/work >work/work", "32s - +work/work >work/work"], "{made:?}");
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "BackoffLimitExceeded".to_owned()));

    let mut stage = self::stage(&pod_manifest("Never", 1).replace("long:1", "good:2"));
    stage.crashing.clear();
    let made: Vec<String> = (0..60).flat_map(|_| refused(&mut stage, "bad:1", 127, NO_COMMAND)).collect();
    assert_eq!(made.iter().filter(|it| it.contains("+work/first")).count(), 2, "{made:?}");
    assert_eq!(judged(&mut stage), (HealthStatus::Degraded, "BackoffLimitExceeded".to_owned()));
}

#[test]
fn host_faults_use_up_no_tries_of_a_job() {
    for (code, error) in [
        (
            127,
            "error gathering device information while adding custom device \"/dev/x\": no such file or directory",
        ),
        (
            127,
            "OCI runtime create failed: exec: \"nvidia-container-runtime\": executable file not found in $PATH",
        ),
        (126, "error mounting \"/mnt/nas\" to rootfs at \"/data\": permission denied"),
        (128, "driver failed programming external connectivity: port is already allocated"),
    ] {
        let mut stage = stage(&manifest("long:1", "Never", "  backoffLimit: 0"));
        for _ in 0..60 {
            refused(&mut stage, "long:1", code, error);
        }
        let job = &stage.record.jobs[&"work".into()];
        assert!(job.failures == 0 && job.ended.is_none() && job.unstarted, "{error}");
        stage.finishing.insert("long:1".to_owned());
        played(&mut stage, 3, 1);
        assert_eq!(judged(&mut stage), (HealthStatus::Healthy, "Completed".to_owned()), "{error}");
    }
}
