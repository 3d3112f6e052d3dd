//! Jobs, CronJobs, hooks and waves on a Docker Swarm.

use std::{collections::BTreeSet, time::Duration};

use driftless_files::{AppSpec, MemoryFiles};
use driftless_manifest::render;
use driftless_model::{
    EngineKind, HealthStatus, HookPhase, JobRecord, Observed, Record, SharedObject, SharedState, Stack,
    StackHashes, SwarmNode, SyncStatus,
};
use driftless_plan::{
    Assessment, Plan, Round, assess, begin_attempt, follow_runs, has_post_synced, is_held_by_hooks, schedule,
    with_runs,
};

use super::{
    Cluster,
    explain::{differences, rounds},
};

/// The stack of a file for a Swarm.
fn rendered(file: &str, text: &str) -> Stack {
    let files = MemoryFiles::new([(file, text)]);
    let spec = match file {
        "compose.yaml" => AppSpec::compose("shop", &[file]),
        _ => AppSpec::kubernetes("shop", &[file]),
    };
    let rendered = render(&files, &AppSpec { engine: EngineKind::Swarm, ..spec });
    rendered.stack.unwrap_or_else(|| panic!("{:#?}", rendered.findings))
}

/// A Swarm with the manifests of a commit.
struct Jobs {
    git: Stack,
    cluster: Cluster,
}

impl Jobs {
    fn new(file: &str, text: &str) -> Self {
        Self {
            git: rendered(file, text),
            cluster: Cluster::new([("web", crate::fixture::workload("web:1", 1))]),
        }
    }

    fn kubernetes(text: &str) -> Self {
        Self::new("a.yaml", text)
    }

    fn commit(&mut self, file: &str, text: &str) {
        self.git = rendered(file, text);
    }

    /// One round of the agent: it begins runs if it leads, and takes up those of others.
    fn round(&mut self) -> Plan {
        let Cluster { record, swarm, now, .. } = &mut self.cluster;
        if record.swarm.as_ref().is_some_and(|swarm| swarm.leads) {
            schedule(record, &self.git, *now);
        }
        let mut stack = with_runs(&self.git, record).into_owned();
        let observed = Observed { swarm: Some(Box::new(swarm.clone())), ..Observed::default() };
        if follow_runs(record, &stack, &observed, *now) {
            stack = with_runs(&self.git, record).into_owned();
        }
        self.cluster.stack = stack;
        let plan = self.cluster.round();
        self.cluster.run();
        plan
    }

    /// All steps of some rounds, without those for networks.
    fn rounds(&mut self, count: usize) -> Vec<String> {
        let mut steps = Vec::new();
        for _ in 0..count {
            steps.extend(self.round().steps.iter().map(|step| step.action.to_string()));
        }
        steps.retain(|step| !step.contains("network"));
        steps
    }

    fn waits(&mut self) -> String {
        self.round().waits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn services(&self) -> Vec<&str> {
        self.cluster.swarm.services.keys().map(String::as_str).collect()
    }

    fn end(&mut self, service: &'static str, state: &'static str, code: i64) {
        self.cluster.ends.insert(service, (state, code));
    }

    /// The application as the status shows it.
    fn status(&mut self) -> Assessment {
        let plan = self.round();
        let (mut record, stack) = (self.cluster.record.clone(), self.cluster.stack.clone());
        let hashes = StackHashes::of(&stack);
        let mut observed =
            Observed { swarm: Some(Box::new(self.cluster.swarm.clone())), ..self.cluster.observed.clone() };
        self.cluster.with_target(|target| driftless_plan::with_tasks(target, &mut observed, &mut record));
        let policy = &self.cluster.policy;
        let now = self.cluster.now;
        let round = Round {
            stack: &stack,
            hashes: &hashes,
            policy,
            observed: &observed,
            record: &record,
            plan: &plan,
            now,
        };
        assess(&round, &[], &Default::default())
    }
}

fn job(image: &str, more: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: migrate}}
spec:
  backoffLimit: 1
{more}
  template: {{spec: {{restartPolicy: Never, containers: [{{name: a, image: '{image}'}}]}}}}
"
    )
}

fn cron(more: &str, image: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: CronJob
metadata: {{name: report}}
spec:
  schedule: '* * * * *'
{more}
  jobTemplate: {{spec: {{backoffLimit: 0, template: {{spec: {{restartPolicy: Never, containers: [{{name: a, image: '{image}'}}]}}}}}}}}
"
    )
}

#[test]
fn job_runs_once() {
    let mut all = Jobs::kubernetes(&job("a:1", ""));
    assert_eq!(all.rounds(5), ["find the digest of a:1", "create service shop_migrate from a:1"]);
    assert_eq!(all.status().workloads[&"migrate".into()].health, HealthStatus::Progressing);
    all.end("shop_migrate", "complete", 0);
    assert_eq!(all.rounds(20), Vec::<String>::new());
    let status = all.status();
    assert_eq!((status.sync, status.health), (SyncStatus::Synced, HealthStatus::Healthy), "{status:?}");
    assert_eq!(status.workloads[&"migrate".into()].reason, "Completed");
    // Neither after a loss of the record, nor without its service.
    all.cluster.record = Record::default();
    assert_eq!(all.rounds(5), Vec::<String>::new());
    all.cluster.swarm.services.clear();
    assert_eq!(all.rounds(5), Vec::<String>::new());
    assert_eq!(all.status().health, HealthStatus::Healthy);
    // Neither of them is left, but other agents have seen its end. This one has not yet looked.
    let completed_jobs = all.cluster.record.completed_jobs.shared();
    all.cluster.record = Record::default();
    let state = Some(SharedState { completed_jobs, ..SharedState::default() });
    all.cluster.swarm.shared = Some(SharedObject { state, ..SharedObject::default() });
    assert_eq!(all.rounds(5), Vec::<String>::new());
    assert_eq!(all.status().workloads[&"migrate".into()].reason, "Completed");
    // Nor one that it took for new before it knew of that.
    let unknown =
        JobRecord { spec: all.cluster.record.jobs[&"migrate".into()].spec.clone(), ..JobRecord::default() };
    all.cluster.record = Record { jobs: [("migrate".into(), unknown)].into(), ..Record::default() };
    assert_eq!(all.rounds(5), Vec::<String>::new());
    assert_eq!(all.status().workloads[&"migrate".into()].reason, "Completed");
}

#[test]
fn changed_job_runs_once_more() {
    let mut all = Jobs::kubernetes(&job("a:1", ""));
    all.rounds(3);
    let before = all.cluster.swarm.services["shop_migrate"].id.clone();
    // Settings that change none of its work do not stop what runs.
    all.commit("a.yaml", &job("a:1", "  activeDeadlineSeconds: 900"));
    assert_eq!(all.rounds(3), Vec::<String>::new());
    // The former run is stopped before its service is removed.
    all.commit("a.yaml", &job("a:2", ""));
    assert_eq!(
        all.rounds(8),
        [
            "find the digest of a:2",
            "stop the tasks of service shop_migrate",
            "remove service shop_migrate",
            "create service shop_migrate from a:2"
        ]
    );
    assert_ne!(all.cluster.swarm.services["shop_migrate"].id, before);
    all.end("shop_migrate", "complete", 0);
    assert_eq!(all.rounds(10), Vec::<String>::new());
    // A rollback to a content that has not completed runs it again; to one that has, it does not.
    all.commit("a.yaml", &job("a:1", ""));
    all.rounds(6);
    all.commit("a.yaml", &job("a:2", ""));
    assert_eq!(all.rounds(6), ["remove service shop_migrate"]);
    assert_eq!(all.status().health, HealthStatus::Healthy);
}

#[test]
fn failed_job_is_degraded_with_its_error() {
    let mut all = Jobs::kubernetes(&job("a:1", ""));
    all.end("shop_migrate", "failed", 3);
    all.rounds(2);
    assert_eq!(
        all.cluster.swarm.services["shop_migrate"].spec["TaskTemplate"]["RestartPolicy"]["MaxAttempts"],
        1
    );
    let waits = all.waits();
    assert!(waits.contains("migrate has 0 of 1 available: a task exited with code 3"), "{waits}");
    // The Swarm makes another try, which fails as well.
    let mut task = all.cluster.swarm.tasks.values().next().unwrap().clone();
    task.id.push_str(".2");
    all.cluster.swarm.tasks.insert(task.id.clone(), task);
    let status = all.status();
    assert_eq!(status.health, HealthStatus::Degraded, "{status:?}");
    let waits = all.waits();
    let words = "migrate failed: it has failed too often: a task exited with code 3: task: non-zero exit (3)";
    assert_eq!(waits, words);
    assert_eq!(all.rounds(10), Vec::<String>::new());
    // Other limits in Git are another try of the same Job.
    all.commit("a.yaml", &job("a:1", "").replace("backoffLimit: 1", "backoffLimit: 4"));
    all.end("shop_migrate", "complete", 0);
    assert_eq!(all.rounds(5), ["remove service shop_migrate", "create service shop_migrate from a:1"]);
    assert_eq!(all.status().health, HealthStatus::Healthy);
}

#[test]
fn job_by_hand_is_counted_again_and_left_alone() {
    let mut all = Jobs::kubernetes(&job("a:1", ""));
    all.end("shop_migrate", "complete", 0);
    all.rounds(5);
    all.cluster.ends.clear();
    let service = all.cluster.swarm.services.get_mut("shop_migrate").unwrap();
    (service.version, service.iteration) = (9, 9);
    all.cluster.run();
    assert_eq!(all.rounds(5), Vec::<String>::new());
    assert_eq!(all.status().workloads[&"migrate".into()].reason, "Running");
    all.end("shop_migrate", "complete", 0);
    all.rounds(2);
    assert_eq!(all.status().workloads[&"migrate".into()].reason, "Completed");
}

#[test]
fn limits_of_a_job_end_it() {
    // The lines in Git, the end of the task, the time that passes, the steps then, and the wait.
    let cases: [(&str, Option<&'static str>, u64, &[&str], &str); 4] = [
        (
            "  activeDeadlineSeconds: 60",
            None,
            61,
            &["stop the tasks of service shop_migrate", "remove service shop_migrate"],
            "migrate failed: it has taken longer than its deadline allows",
        ),
        ("  ttlSecondsAfterFinished: 60", Some("complete"), 61, &["remove service shop_migrate"], ""),
        ("  ttlSecondsAfterFinished: 60", Some("complete"), 10, &[], ""),
        ("  {completions: 3, parallelism: 2}", Some("complete"), 1, &[], ""),
    ];
    for (more, end, seconds, steps, wait) in cases {
        let more = more.replace(", ", "\n  ").replace(['{', '}'], "");
        let mut all = Jobs::kubernetes(&job("a:1", &more));
        all.rounds(3);
        if let Some(state) = end {
            all.end("shop_migrate", state, 0);
            all.rounds(2);
        }
        all.cluster.now = all.cluster.now.after(Duration::from_secs(seconds));
        assert_eq!(all.rounds(6), steps, "{more}");
        assert_eq!(all.waits(), wait, "{more}");
    }
}

#[test]
fn suspended_job_runs_when_it_is_resumed() {
    let mut all = Jobs::kubernetes(&job("a:1", "  suspend: true"));
    assert_eq!(all.rounds(3), Vec::<String>::new());
    assert_eq!(all.status().workloads[&"migrate".into()].reason, "JobSuspended");
    all.commit("a.yaml", &job("a:1", ""));
    assert_eq!(all.rounds(3), ["find the digest of a:1", "create service shop_migrate from a:1"]);
    all.commit("a.yaml", &job("a:1", "  suspend: true"));
    assert_eq!(all.rounds(4), ["stop the tasks of service shop_migrate", "remove service shop_migrate"]);
}

/// A service that starts once a Job has completed.
const MIGRATED: &str = "
services:
  migrate: {image: 'a:1', restart: 'no'}
  web:
    image: web:1
    depends_on: {migrate: {condition: service_completed_successfully}}
";

#[test]
fn service_waits_for_the_completion_of_a_job() {
    let mut all = Jobs::new("compose.yaml", MIGRATED);
    all.rounds(4);
    assert_eq!(all.services(), ["shop_migrate"]);
    assert!(all.waits().contains("web waits for migrate: it has not completed"));
    all.end("shop_migrate", "complete", 0);
    all.rounds(4);
    assert_eq!(all.services(), ["shop_migrate", "shop_web"]);
    // Both change: the service is updated after the Job has run again.
    all.cluster.ends.clear();
    all.commit("compose.yaml", &MIGRATED.replace(":1", ":2"));
    let steps = all.rounds(6);
    assert!(!steps.contains(&"update service shop_web".to_owned()), "{steps:?}");
    all.end("shop_migrate", "complete", 0);
    assert_eq!(all.rounds(4), ["update service shop_web"]);
}

#[test]
fn dry_run_goes_on_after_the_completion_of_a_job() {
    let mut all = Jobs::new("compose.yaml", MIGRATED);
    all.cluster.stack = all.git.clone();
    let shown = rounds(&all.cluster).concat();
    let services: Vec<&String> = shown.iter().filter(|step| step.contains("service")).collect();
    assert_eq!(
        services,
        ["create service shop_migrate from a:1 (missing)", "create service shop_web from web:1 (missing)"]
    );
    all.rounds(4);
    all.end("shop_migrate", "complete", 0);
    all.rounds(4);
    assert_eq!(rounds(&all.cluster), Vec::<Vec<String>>::new());
    // A user has removed the service of a complete Job: its work is done.
    all.cluster.swarm.services.remove("shop_migrate");
    all.cluster.swarm.tasks.retain(|_, task| !task.service.contains("migrate"));
    assert_eq!(differences(&all.cluster), Vec::<String>::new());
    // Another Job in its place runs once more.
    all.commit("compose.yaml", &MIGRATED.replace("a:1", "a:2"));
    all.cluster.stack = all.git.clone();
    assert_eq!(differences(&all.cluster), ["service shop_migrate: Missing"]);
    let shown = rounds(&all.cluster).concat();
    assert!(shown.contains(&"create service shop_migrate from a:2 (missing)".to_owned()), "{shown:?}");
}

#[test]
fn service_gets_another_mode_as_another_service() {
    let service = |mode: &str| format!("services: {{a: {{image: 'a:1', deploy: {{mode: {mode}}}}}}}");
    let mut all = Jobs::new("compose.yaml", &service("replicated"));
    all.rounds(4);
    all.end("shop_a", "complete", 0);
    for mode in ["replicated-job", "global-job", "replicated"] {
        all.commit("compose.yaml", &service(mode));
        assert_eq!(all.rounds(6), ["remove service shop_a", "create service shop_a from a:1"], "{mode}");
    }
}

#[test]
fn global_job_does_not_wait_for_a_drained_or_removed_node() {
    let text = "services:
  prepare: {image: 'prepare:1', deploy: {mode: global-job}}
  web: {image: 'web:1', depends_on: {prepare: {condition: service_completed_successfully}}}
";
    for (state, desired, is_removed) in [("shutdown", "shutdown", false), ("orphaned", "complete", true)] {
        let mut all = Jobs::new("compose.yaml", text);
        all.rounds(6);
        let swarm = &mut all.cluster.swarm;
        let mut task = swarm.tasks.values().next().unwrap().clone();
        task.id.push_str("-two");
        task.node = Some("n2".to_owned());
        (task.state, task.desired_state) = (state.to_owned(), desired.to_owned());
        swarm.tasks.insert(task.id.clone(), task);
        if !is_removed {
            let availability = "drain".to_owned();
            swarm.nodes.insert("n2".to_owned(), SwarmNode { availability, ..SwarmNode::default() });
        }
        assert_eq!(all.rounds(4), [""; 0], "{state}: the task on the other node runs");
        all.end("shop_prepare", "complete", 0);
        assert_eq!(all.rounds(6), ["create service shop_web from web:1"], "{state}");
    }
}

#[test]
fn job_of_a_stack_is_not_adopted() {
    let mut all = Jobs::kubernetes(&job("a:1", ""));
    all.end("shop_migrate", "complete", 0);
    all.rounds(4);
    let labels = &mut all.cluster.spec("shop_migrate")["Labels"];
    labels.as_object_mut().unwrap().retain(|name, _| !name.starts_with("driftless."));
    all.cluster.record = Record::default();
    assert_eq!(all.rounds(4), Vec::<String>::new());
    assert!(all.waits().contains("remove it with `docker service rm shop_migrate`"));
}

#[test]
fn application_with_a_running_job_is_removed() {
    let mut all = Jobs::kubernetes(&job("a:1", ""));
    all.rounds(3);
    all.git = all.git.emptied();
    assert_eq!(all.rounds(4), ["stop the tasks of service shop_migrate", "remove service shop_migrate"]);
    assert!(all.round().is_settled());
}

#[test]
fn cron_job_runs_each_minute_and_keeps_its_history() {
    let mut all = Jobs::kubernetes(&cron("  successfulJobsHistoryLimit: 2", "a:1"));
    all.rounds(2);
    assert_eq!(all.services(), Vec::<&str>::new());
    let mut made = BTreeSet::new();
    for _ in 0..8 {
        all.cluster.now = all.cluster.now.after(Duration::from_secs(56));
        for step in all.rounds(2) {
            if let Some(name) = step.strip_prefix("create service ") {
                let name = name.split(' ').next().unwrap().to_owned();
                all.end(name.clone().leak(), "complete", 0);
                assert!(made.insert(name), "{step}");
            }
        }
    }
    assert!(made.len() >= 7, "{made:?}");
    // Two are kept, and those of the last minute.
    let kept: BTreeSet<String> = all.services().into_iter().map(str::to_owned).collect();
    assert!((2..=4).contains(&kept.len()), "{kept:?}");
    assert!(kept.contains(made.last().unwrap()));
    all.rounds(3);
    let status = all.status();
    assert_eq!((status.sync, status.health), (SyncStatus::Synced, HealthStatus::Healthy), "{status:?}");
    // Its runs go with it.
    let former: Vec<&str> = all.services();
    assert!(former.iter().all(|name| name.starts_with("shop_report-")));
    all.commit("a.yaml", &job("a:1", ""));
    all.rounds(6);
    assert_eq!(all.services(), ["shop_migrate"]);
}

#[test]
fn run_is_never_written_again() {
    let mut all = Jobs::kubernetes(&cron("", "a:1"));
    all.rounds(2);
    all.cluster.now = all.cluster.now.after(Duration::from_mins(1));
    all.rounds(3);
    let [run] = all.services()[..] else { panic!("one run") };
    let (run, before) = (run.to_owned(), all.cluster.swarm.services[run].clone());
    // Another template, and no record.
    all.commit("a.yaml", &cron("  suspend: true", "a:2"));
    all.rounds(5);
    all.cluster.record = Record::default();
    all.rounds(5);
    assert_eq!(all.cluster.swarm.services[&run], before);
    assert_eq!(all.status().sync, SyncStatus::Synced);
}

#[test]
fn next_leader_goes_on_with_the_runs_of_the_former_one() {
    let mut all = Jobs::kubernetes(&cron("", "a:1"));
    all.rounds(2);
    all.cluster.now = all.cluster.now.after(Duration::from_mins(1));
    all.rounds(3);
    let first = all.services().join("");
    // The agent on another manager, which has just been started.
    all.cluster.record = Record::default();
    let node = all.cluster.swarm.nodes["n1"].clone();
    all.cluster.swarm.nodes.insert("n1".to_owned(), SwarmNode { is_leader: false, ..node.clone() });
    assert_eq!(all.rounds(3), Vec::<String>::new());
    all.cluster.now = all.cluster.now.after(Duration::from_mins(1));
    assert_eq!(all.rounds(3), Vec::<String>::new());
    all.cluster.swarm.nodes.insert("n1".to_owned(), node);
    let steps = all.rounds(3);
    // The run that nobody began is begun, and the other one is left alone.
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(steps[1].starts_with("create service shop_report-") && !steps[1].contains(&first), "{steps:?}");
    assert_eq!(all.services().len(), 2);
}

/// It has run at 12:10 and changes at 12:25: the time before that was never due, and the next one is.
#[test]
fn next_leader_knows_when_a_schedule_was_changed() {
    let at = |minute: u32| cron("", "a:1").replace("* * * * *", &format!("{minute} * * * *"));
    // The minutes after noon from which the other agent leads, and the number of runs that it begins.
    for (has_led_before, leads_after, begun) in [(false, 40, 0), (true, 81, 1)] {
        let mut all = Jobs::kubernetes(&at(10));
        all.rounds(2);
        let noon = all.cluster.now;
        all.cluster.now = noon.after(Duration::from_mins(11));
        all.rounds(3);
        assert_eq!(all.services().len(), 1);
        if !has_led_before {
            all.cluster.record = Record::default();
        }
        let node = all.cluster.swarm.nodes["n1"].clone();
        all.cluster.swarm.nodes.insert("n1".to_owned(), SwarmNode { is_leader: false, ..node.clone() });
        all.rounds(2);
        all.cluster.now = noon.after(Duration::from_mins(25));
        all.commit("a.yaml", &at(20));
        all.rounds(2);
        all.cluster.now = noon.after(Duration::from_mins(leads_after));
        all.cluster.swarm.nodes.insert("n1".to_owned(), node);
        all.rounds(3);
        assert_eq!(all.services().len(), 1 + begun, "after {leads_after} minutes");
    }
}

#[test]
fn run_that_is_replaced_stops_first() {
    // The steps of the next minute, by the policy.
    let cases: [(&str, &[&str]); 3] =
        [("Forbid", &[]), ("Allow", &["create"]), ("Replace", &["stop", "create", "remove"])];
    for (policy, steps) in cases {
        let mut all = Jobs::kubernetes(&cron(&format!("  concurrencyPolicy: {policy}"), "a:1"));
        all.rounds(2);
        all.cluster.now = all.cluster.now.after(Duration::from_mins(1));
        all.rounds(3);
        all.cluster.now = all.cluster.now.after(Duration::from_mins(1));
        let made = all.rounds(6);
        let words: Vec<&str> = made.iter().filter_map(|step| step.split(' ').next()).collect();
        assert_eq!(words, steps, "{policy}");
    }
}

const HOOKS: &str = "
services:
  before: {image: 'a:1', x-driftless: {hook: PreSync}}
  after: {image: 'a:1', x-driftless: {hook: PostSync}}
  web: {image: 'web:1'}
";

/// The only service whose name has this beginning.
fn only(all: &Jobs, start: &str) -> &'static str {
    let found: Vec<&str> = all.services().into_iter().filter(|name| name.starts_with(start)).collect();
    let [one] = found[..] else { panic!("{start}: {found:?}") };
    one.to_owned().leak()
}

#[test]
fn hooks_run_around_an_update_of_services() {
    let mut all = Jobs::new("compose.yaml", HOOKS);
    let mut former = Vec::new();
    for revision in [1, 2] {
        begin_attempt(&mut all.cluster.record, &all.git, revision);
        let steps = all.rounds(6);
        assert!(!steps.iter().any(|step| step.ends_with("service shop_web")), "{steps:?}");
        let waits = all.waits();
        assert!(waits.contains("web waits: the PreSync hooks have not succeeded"), "{waits}");
        let before = only(&all, "shop_before-");
        assert!(is_held_by_hooks(&all.git, &all.cluster.record));
        all.end(before, "complete", 0);
        let steps = all.rounds(6);
        assert!(steps.iter().any(|step| step.contains("service shop_web")), "{steps:?}");
        assert!(!has_post_synced(&all.cluster.record, &all.git));
        // As the agent does once all else is done.
        assert!(all.round().is_settled());
        all.cluster.record.hooks.as_mut().unwrap().begun.insert(HookPhase::PostSync);
        all.rounds(3);
        let after = only(&all, "shop_after-");
        all.end(after, "complete", 0);
        all.rounds(3);
        assert!(has_post_synced(&all.cluster.record, &all.git));
        assert_eq!(all.rounds(10), Vec::<String>::new());
        // The runs of the former attempt are gone.
        assert!(former.iter().all(|name| !all.services().contains(name)), "{former:?}");
        former = vec![before, after];
        all.commit("compose.yaml", &HOOKS.replace("web:1", "web:2"));
    }
}

#[test]
fn hook_begins_once_that_of_the_former_commit_has_stopped() {
    let mut all = Jobs::new("compose.yaml", HOOKS);
    begin_attempt(&mut all.cluster.record, &all.git, 1);
    all.rounds(4);
    let former = only(&all, "shop_before-");
    all.commit("compose.yaml", &HOOKS.replace("web:1", "web:2"));
    begin_attempt(&mut all.cluster.record, &all.git, 2);
    let steps = all.rounds(6);
    let words: Vec<&str> = steps.iter().filter_map(|step| step.split(' ').next()).collect();
    assert_eq!(words, ["find", "stop", "create", "remove"], "{steps:?}");
    assert_ne!(only(&all, "shop_before-"), former);
}

#[test]
fn failed_hook_keeps_its_services_as_they_are() {
    let mut all = Jobs::new("compose.yaml", HOOKS);
    begin_attempt(&mut all.cluster.record, &all.git, 1);
    all.rounds(4);
    let before = only(&all, "shop_before-");
    all.end(before, "failed", 7);
    all.rounds(3);
    let waits = all.waits();
    assert!(waits.contains("failed: it has failed too often: a task exited with code 7"), "{waits}");
    assert_eq!(all.services(), [before]);
}

#[test]
fn removed_service_stays_until_the_hooks_have_succeeded() {
    let mut all = Jobs::new("compose.yaml", HOOKS);
    for revision in [1, 2, 3] {
        begin_attempt(&mut all.cluster.record, &all.git, revision);
        all.rounds(4);
        let before = only(&all, "shop_before-");
        let (state, code) = if revision == 2 { ("failed", 7) } else { ("complete", 0) };
        all.end(before, state, code);
        all.rounds(6);
        let is_renamed = all.services().contains(&"shop_site");
        assert_eq!((all.services().contains(&"shop_web"), is_renamed), (revision < 3, revision == 3));
        let image = format!("web:{revision}");
        all.commit("compose.yaml", &HOOKS.replace("  web:", "  site:").replace("web:1", &image));
    }
}

#[test]
fn standby_finds_the_hooks_of_the_leader() {
    let mut all = Jobs::new("compose.yaml", HOOKS);
    begin_attempt(&mut all.cluster.record, &all.git, 1);
    all.rounds(4);
    let before = only(&all, "shop_before-");
    all.end(before, "complete", 0);
    all.rounds(4);
    // The agent on another manager has other numbers of revisions.
    all.cluster.record = Record::default();
    begin_attempt(&mut all.cluster.record, &all.git, 41);
    assert_eq!(all.rounds(4), Vec::<String>::new());
    assert!(!is_held_by_hooks(&all.git, &all.cluster.record));
}

#[test]
fn services_follow_those_of_lower_waves() {
    let text = "
services:
  a: {image: 'a:1', x-driftless: {wave: 2}}
  migrate: {image: 'a:1', x-driftless: {wave: 1}, deploy: {mode: replicated-job}}
  web: {image: 'a:1'}
";
    let mut all = Jobs::new("compose.yaml", text);
    all.rounds(6);
    assert_eq!(all.services(), ["shop_migrate", "shop_web"]);
    let waits = all.waits();
    assert!(waits.contains("a is of wave 2 and waits for migrate of wave 1"), "{waits}");
    all.end("shop_migrate", "complete", 0);
    all.rounds(4);
    assert_eq!(all.services(), ["shop_a", "shop_migrate", "shop_web"]);
    all.cluster.ends.clear();
    all.commit("compose.yaml", &text.replace("a:1", "a:2"));
    let steps = all.rounds(6);
    assert!(!steps.contains(&"update service shop_a".to_owned()), "{steps:?}");
    // A service that was removed by hand is created at once: healing waits for no wave.
    all.end("shop_migrate", "complete", 0);
    all.rounds(8);
    all.cluster.swarm.services.remove("shop_a");
    assert_eq!(all.rounds(3), ["create service shop_a from a:2"]);
}

#[test]
fn files_of_a_run_are_kept_with_it() {
    let text = |motd: &str| {
        format!(
            "
services:
  report: {{image: 'a:1', configs: [motd], x-driftless: {{schedule: '* * * * *'}}}}
  web: {{image: 'a:1'}}
configs: {{motd: {{content: {motd}}}}}
"
        )
    };
    let mut all = Jobs::new("compose.yaml", &text("one"));
    all.rounds(3);
    all.cluster.now = all.cluster.now.after(Duration::from_mins(1));
    all.rounds(4);
    let run = only(&all, "shop_report-");
    let before = all.cluster.swarm.services[run].clone();
    all.commit("compose.yaml", &text("two"));
    all.rounds(6);
    assert_eq!(all.cluster.swarm.configs.len(), 2, "{:?}", all.cluster.swarm.configs);
    assert_eq!(all.cluster.swarm.services[run], before);
    // Without a revision to go back to that has the file, the run keeps it.
    all.cluster.record.swarm.as_mut().unwrap().kept.clear();
    all.rounds(4);
    assert_eq!(all.cluster.swarm.configs.len(), 2, "{:?}", all.cluster.swarm.configs);
    // The run ends and is forgotten, and its file goes with it.
    all.end(run, "complete", 0);
    all.rounds(2);
    all.cluster.record.crons.values_mut().for_each(|cron| cron.runs.clear());
    all.rounds(6);
    assert_eq!(all.cluster.swarm.configs.len(), 1, "{:?}", all.cluster.swarm.configs);
}
