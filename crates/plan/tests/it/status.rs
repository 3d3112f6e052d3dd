//! The status of an application: sync, health, conditions and the summary.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use driftless_model::{
    AgentId, Attempt, Completion, ConditionStatus, Container, ContainerId, Crash, Drift, DriftAction, Format,
    Heal, Health, HealthStatus, Instance, InstanceId, LiveSettings, Location, Network, Observed, Policy,
    Progress, Readiness, Record, Stack, StackHashes, State, StatusCondition, Strategy, SyncStatus, Timestamp,
    Workload, WorkloadName, WorkloadStatus,
};
use driftless_plan::{Action, Assessment, Cause, ContainerRef, Plan, Round, Step, Wait, WaitObject, assess};

/// 2026-01-01T04:12:00Z
const NOW: Timestamp = Timestamp(1_767_240_720_000);

fn container(image: &str) -> Container {
    Container { image: image.to_owned(), ..Container::default() }
}

fn workload(replicas: u32) -> Workload {
    Workload {
        replicas,
        strategy: Strategy::RollingUpdate { max_surge: 1, max_unavailable: 1 },
        ..Workload::new(Location::new("compose.yaml", 12, 0), container("web:1.0.1"))
    }
}

fn running() -> State {
    State::Running { since: Timestamp(1), health: Health::Healthy }
}

fn exited(code: i64) -> State {
    State::Exited { code, finished: NOW, out_of_memory: false, error: String::new() }
}

/// Everything that is judged, with changes to be made by each test.
struct Case {
    stack: Stack,
    observed: Observed,
    record: Record,
    plan: Plan,
}

impl Case {
    /// `replicas` are wanted, and none is there.
    fn new(replicas: u32) -> Self {
        let workloads = BTreeMap::from([("web".into(), workload(replicas))]);
        let stack = Stack { workloads, ..Stack::new("shop".into(), Format::Compose, "shop") };
        Self { stack, observed: Observed::default(), record: Record::default(), plan: Plan::default() }
    }

    fn web(&mut self) -> &mut Workload {
        self.stack.workloads.get_mut(&"web".into()).unwrap()
    }

    fn has(&mut self, slot: u32, image: &str, state: State) -> &mut Instance {
        let config = container(image);
        let id = ContainerId(format!("c{slot}"));
        let instance = Instance {
            id: id.clone(),
            name: format!("shop-web-{slot}"),
            instance: InstanceId { workload: "web".into(), slot },
            agent: AgentId("us".to_owned()),
            spec: config.spec(),
            created: Timestamp(1),
            state,
            readiness: Readiness::Ready { since: Timestamp(1) },
            restarts: 0,
            networks: BTreeMap::new(),
            live: LiveSettings::default(),
            config: Arc::new(config),
            image_id: String::new(),
            anonymous_volumes: BTreeMap::new(),
            empty_volumes: BTreeMap::new(),
            part: None,
            hosts: Default::default(),
            volumes_of: Default::default(),
            started: None,
            bound_ports: Vec::new(),
            touched_by_hand: None,
            last_output: String::new(),
            check_output: String::new(),
            healthy_before: false,
        };
        self.observed.instances.insert(id.clone(), instance);
        self.observed.instances.get_mut(&id).unwrap()
    }

    fn new_one(&mut self, slot: u32, state: State) -> &mut Instance {
        self.has(slot, "web:1.0.1", state)
    }

    fn crashed(&mut self, slot: u32, count: u32) {
        let crash = Crash {
            spec: container("web:1.0.1").spec(),
            count,
            finished: NOW,
            dead_run: None,
            container: ContainerId(format!("c{slot}")),
            code: 3,
            out_of_memory: false,
            error: String::new(),
        };
        self.record.crashes.insert(InstanceId { workload: "web".into(), slot }, crash);
    }

    fn step(&mut self, action: Action) {
        self.plan.steps.push(Step { action, cause: Cause::Missing, after: Vec::new() });
    }

    fn start(&mut self, name: &str) {
        self.step(Action::StartInstance { container: ContainerRef::Name(name.to_owned()) });
    }

    fn assess(&self) -> Assessment {
        self.assess_at(NOW, &[], &BTreeMap::new())
    }

    /// The status at a time, after another one.
    fn assess_at(
        &self,
        now: Timestamp,
        before: &[StatusCondition],
        before_workloads: &BTreeMap<WorkloadName, WorkloadStatus>,
    ) -> Assessment {
        let Self { stack, observed, record, plan } = self;
        let (hashes, policy) = (&StackHashes::of(stack), &Policy::default());
        let round = Round { stack, hashes, policy, observed, record, plan, now };
        assess(&round, before, before_workloads)
    }

    /// Of the only workload: health and reason.
    fn health(&self) -> (HealthStatus, String) {
        let web = &self.assess().workloads[&"web".into()];
        (web.health, web.reason.clone())
    }

    fn condition(&self, kind: &str) -> Option<(ConditionStatus, String)> {
        let web = &self.assess().workloads[&"web".into()];
        web.conditions.iter().find(|it| it.kind == kind).map(|it| (it.status, it.reason.clone()))
    }
}

fn is(health: HealthStatus, reason: &str) -> (HealthStatus, String) {
    (health, reason.to_owned())
}

#[test]
fn current_ready_replicas_are_synced_and_healthy() {
    let mut case = Case::new(2);
    case.new_one(1, running());
    case.new_one(2, running());
    let it = case.assess();
    assert_eq!((it.sync, it.health, it.message.as_str()), (SyncStatus::Synced, HealthStatus::Healthy, ""));
    let web = &it.workloads[&"web".into()];
    assert_eq!((web.updated_replicas, web.ready_replicas, web.available_replicas), (2, 2, 2));
    assert_eq!((web.origin.as_str(), web.reason.as_str()), ("compose.yaml:12", ""));
    assert_eq!(case.condition("Available"), Some((ConditionStatus::True, "MinimumReplicasAvailable".into())));
    assert_eq!(case.condition("Progressing"), Some((ConditionStatus::True, "NewReplicaSetAvailable".into())));
    assert_eq!(case.condition("ReplicaFailure"), None);
}

#[test]
fn anything_old_missing_extra_or_planned_is_out_of_sync() {
    let settled = || {
        let mut case = Case::new(1);
        case.new_one(1, running());
        case
    };
    assert_eq!(settled().assess().sync, SyncStatus::Synced);
    let cases: [(&str, fn(&mut Case)); 7] = [
        ("an old one next to it", |case| {
            case.has(2, "web:1.0.0", running());
        }),
        ("one too many", |case| {
            case.new_one(2, running());
        }),
        ("one too few", |it| it.observed.instances.clear()),
        ("a stranger", |it| it.new_one(2, running()).instance.workload = "worker".into()),
        ("a network is missing", |case| {
            case.stack.networks.insert("shop_default".to_owned(), Network::default());
        }),
        ("a step", |it| it.start("shop-web-1")),
        ("drift", |it| it.plan.drifts.push(drift())),
    ];
    for (what, change) in cases {
        let mut case = settled();
        change(&mut case);
        let it = case.assess();
        assert_eq!(it.sync, SyncStatus::OutOfSync, "{what}");
        assert!(!it.message.is_empty(), "{what}");
    }
}

#[test]
fn drift_is_reported_with_object_field_and_values() {
    let mut case = Case::new(1);
    case.new_one(1, running());
    case.plan.drifts.push(drift());
    assert_eq!(case.assess().message, "shop-web-1: resources.memory is 64 MiB, not 128 MiB");
    assert_eq!(case.assess().drift, [drift()]);
    case.new_one(1, exited(0));
    case.start("shop-web-1");
    assert_eq!(case.assess().health, HealthStatus::Progressing);
    assert!(case.assess().message.starts_with("shop-web-1: resources.memory is"), "its cause comes first");
}

#[test]
fn missing_image_is_degraded_and_names_the_next_try() {
    let mut case = Case::new(1);
    case.has(1, "web:1.0.0", running());
    let until = NOW.after(Duration::from_secs(30));
    let wait = Wait::image_pull_back_off(&"web".into(), "web:1.0.1", "web:1.0.1 not found", 3, until);
    case.plan.waits.push(wait);
    let it = case.assess();
    let sentence = "web: ImagePullBackOff: cannot pull its image: web:1.0.1 not found, attempt 3, next try 04:12:30 UTC; version 1.0.0 keeps running";
    assert_eq!(it.message, sentence);
    assert_eq!((it.sync, it.health), (SyncStatus::OutOfSync, HealthStatus::Degraded));
    assert_eq!((it.waits[0].attempt, it.waits[0].until), (Some(3), Some(until)));
    assert_eq!(case.condition("ReplicaFailure"), Some((ConditionStatus::True, "ImagePullBackOff".into())));
    assert_eq!(case.condition("Available"), Some((ConditionStatus::True, "MinimumReplicasAvailable".into())));
    assert_eq!(case.condition("Progressing"), Some((ConditionStatus::True, "NewReplicaSetCreated".into())));

    // The memory alone tells the same, as after a restart of the agent.
    case.plan.waits.clear();
    let attempt = Attempt { count: 3, next: until, error: "web:1.0.1 not found".to_owned() };
    case.record.pulls.insert("web:1.0.1".to_owned().into(), attempt);
    assert_eq!(case.assess().message, sentence);
}

#[test]
fn instance_that_cannot_be_created_is_listed() {
    let mut case = Case::new(1);
    let attempt = Attempt { count: 1, next: NOW, error: "the image web:1.0.1 runs as root".to_owned() };
    case.record.failures.insert("shop-web-1".to_owned(), attempt);
    let listed = |case: &Case| {
        let assessed = case.assess();
        let web = &assessed.workloads[&"web".into()];
        let awaited = web.awaited.iter().map(|it| (it.name.clone(), it.reason.clone(), it.message.clone()));
        awaited.collect::<Vec<_>>()
    };
    let message = "the image web:1.0.1 runs as root";
    let row = |reason: &str| vec![("shop-web-1".to_owned(), reason.to_owned(), message.to_owned())];
    assert_eq!(listed(&case), row("CreateContainerError"));
    case.record.rejected.insert("shop-web-1".to_owned());
    assert_eq!(listed(&case), row("CreateContainerConfigError"));
    case.new_one(1, running());
    assert_eq!(listed(&case).len(), 0);
}

#[test]
fn the_first_crash_is_progress_and_the_second_a_crash_loop() {
    let mut case = Case::new(1);
    case.new_one(1, exited(3));
    case.crashed(1, 1);
    case.start("shop-web-1");
    assert_eq!(case.health(), is(HealthStatus::Progressing, "Starting"));
    case.crashed(1, 2);
    assert_eq!(case.health(), is(HealthStatus::Degraded, "CrashLoopBackOff"));
    let it = case.assess();
    assert_eq!(it.message, "CrashLoopBackOff: web.1 exited with code 3, attempt 2");
    assert_eq!(it.workloads[&"web".into()].instances[0].state, "CrashLoopBackOff");
    // It is believed again when it has run for a while, and another spec starts without a count.
    case.new_one(1, State::Running { since: NOW, health: Health::Healthy });
    assert_eq!(case.health().0, HealthStatus::Degraded);
    case.plan.steps.clear();
    case.new_one(1, running());
    assert_eq!(case.health(), is(HealthStatus::Healthy, ""));
}

#[test]
fn one_shots_complete_or_fail_for_good() {
    let mut case = Case::new(1);
    case.web().completion = Completion::OnSuccess;
    case.new_one(1, exited(0));
    assert_eq!(case.health(), is(HealthStatus::Healthy, "Completed"));
    let it = case.assess();
    assert_eq!((it.sync, it.message.as_str()), (SyncStatus::Synced, ""));
    assert_eq!(it.workloads[&"web".into()].instances[0].state, "Completed");
    case.new_one(1, exited(1));
    assert_eq!(case.health(), is(HealthStatus::Degraded, "Failed"));
    assert_eq!(case.assess().workloads[&"web".into()].instances[0].state, "Exited (1)");
    case.web().completion = Completion::Never;
    case.new_one(1, exited(0));
    assert_ne!(case.health().0, HealthStatus::Healthy, "it was to run for ever");
}

#[test]
fn rollout_is_degraded_only_after_its_progress_deadline() {
    let mut case = Case::new(2);
    case.has(1, "web:1.0.0", running());
    case.new_one(2, running()).readiness = Readiness::NotReady { reason: "HTTP 503".to_owned() };
    let progress = |ago| Progress {
        spec: container("web:1.0.1").spec(),
        updated: 1,
        old: 1,
        available: 1,
        best: None,
        at: Timestamp(NOW.0 - ago),
        excused: false,
    };
    case.record.progress.insert("web".into(), progress(600_000));
    assert_eq!(case.health(), is(HealthStatus::Progressing, "RollingUpdate"));
    assert_eq!(case.condition("Progressing"), Some((ConditionStatus::True, "ReplicaSetUpdated".into())));
    case.record.progress.insert("web".into(), progress(600_001));
    assert_eq!(case.health(), is(HealthStatus::Degraded, "ProgressDeadlineExceeded"));
    case.record.resumed = Some(Timestamp(NOW.0 - 1));
    assert_eq!(case.health(), is(HealthStatus::Progressing, "RollingUpdate"), "the agent was down");
    case.record.resumed = None;
    let exceeded = Some((ConditionStatus::False, "ProgressDeadlineExceeded".into()));
    assert_eq!(case.condition("Progressing"), exceeded);
    assert!(case.assess().message.ends_with("; version 1.0.0 keeps running"), "{}", case.assess().message);
}

#[test]
fn missed_progress_deadline_does_not_hide_its_cause() {
    let mut case = Case::new(2);
    case.new_one(1, running());
    case.plan.waits.push(Wait::progress_deadline_exceeded(&"web".into(), NOW));
    case.plan.waits.push(Wait::readiness(&"web".into(), 1, 2, "HTTP 503"));
    assert_eq!(case.health(), is(HealthStatus::Degraded, "ProgressDeadlineExceeded"));
    let message = case.assess().message;
    assert!(message.contains("made no progress since"), "{message}");
    assert!(message.contains("; it has 1 of 2 available: HTTP 503"), "{message}");
    let attempt = Attempt { count: 3, next: NOW, error: "no such image".to_owned() };
    case.observed.images.clear();
    case.record.pulls.insert("web:1.0.1".to_owned().into(), attempt);
    assert_eq!(case.health(), is(HealthStatus::Degraded, "ImagePullBackOff"));
    assert!(case.assess().message.contains("no such image"), "{}", case.assess().message);
}

#[test]
fn unhealthy_instance_does_not_hide_a_missed_deadline() {
    let mut case = Case::new(1);
    case.new_one(1, running()).readiness = Readiness::Dead { reason: "HTTP 503".to_owned() };
    assert_eq!(case.condition("Progressing"), Some((ConditionStatus::True, "ReplicaSetUpdated".into())));
    case.plan.waits.push(Wait::progress_deadline_exceeded(&"web".into(), NOW));
    assert_eq!(case.health(), is(HealthStatus::Degraded, "Unhealthy"));
    let exceeded = Some((ConditionStatus::False, "ProgressDeadlineExceeded".into()));
    assert_eq!(case.condition("Progressing"), exceeded);
}

#[test]
fn fewer_than_the_minimum_are_not_available() {
    let mut case = Case::new(3);
    case.new_one(1, running());
    for slot in [2, 3] {
        case.new_one(slot, running()).readiness = Readiness::Starting { reason: "not probed yet".to_owned() };
    }
    assert_eq!(
        case.condition("Available"),
        Some((ConditionStatus::False, "MinimumReplicasUnavailable".into()))
    );
    case.new_one(2, running());
    assert_eq!(case.condition("Available"), Some((ConditionStatus::True, "MinimumReplicasAvailable".into())));
    case.web().strategy = Strategy::Recreate;
    assert_eq!(
        case.condition("Available"),
        Some((ConditionStatus::False, "MinimumReplicasUnavailable".into()))
    );
}

#[test]
fn waiting_is_progressing_with_a_reason() {
    let mut case = Case::new(1);
    case.plan.waits.push(Wait::dependency(&"web".into(), &"db".into(), "not healthy yet"));
    assert_eq!(case.health(), is(HealthStatus::Progressing, "Dependency"));
    assert_eq!(case.assess().message, "Dependency: web waits for db: not healthy yet");
}

#[test]
fn removed_workload_that_nobody_starts_is_missing() {
    let mut case = Case::new(1);
    case.plan.waits.push(Wait::self_heal_off(1));
    case.plan.drifts.push(down("missing"));
    assert_eq!(case.health(), is(HealthStatus::Missing, "Missing"));
    case.plan.waits.push(Wait::readiness(&"web".into(), 0, 1, ""));
    assert_eq!(case.health(), is(HealthStatus::Missing, "Missing"), "nothing will make it ready");
    case.plan.waits.pop();
    case.start("shop-web-1");
    case.new_one(1, State::Created);
    assert_eq!(case.health(), is(HealthStatus::Progressing, "Starting"));
}

#[test]
fn half_of_it_gone_and_left_so_is_degraded() {
    let mut case = Case::new(2);
    case.new_one(1, running());
    case.plan.waits.push(Wait::self_heal_off(1));
    assert_eq!(case.health(), is(HealthStatus::Degraded, "MinimumReplicasUnavailable"));
    case.plan.drifts.push(Drift { object: "shop-web-2".to_owned(), ..down("exited (0)") });
    case.new_one(2, exited(0));
    case.plan.waits.push(Wait::readiness(&"web".into(), 1, 2, ""));
    assert_eq!(case.health(), is(HealthStatus::Degraded, "MinimumReplicasUnavailable"));
}

/// A container that does not run, and that nobody starts.
fn down(found: &str) -> Drift {
    Drift {
        field: "state".to_owned(),
        want: "running".to_owned(),
        found: found.to_owned(),
        action: DriftAction::Report,
        ..drift()
    }
}

#[test]
fn stopped_container_says_more_than_another_difference() {
    let mut case = Case::new(1);
    case.new_one(1, exited(0));
    let limit = Drift { action: DriftAction::Report, ..drift() };
    case.plan.drifts = vec![limit.clone(), down("exited (0)")];
    case.plan.waits = vec![Wait::readiness(&"web".into(), 0, 1, ""), Wait::self_heal_off(2)];
    let it = case.assess();
    assert_eq!(it.message, "shop-web-1: state is exited (0), not running, and 1 more");
    assert_eq!(it.drift, [down("exited (0)"), limit]);
    assert_eq!(case.health(), is(HealthStatus::Missing, "Missing"), "nothing is on its way");
    let progress = Progress {
        spec: container("web:1.0.1").spec(),
        updated: 1,
        old: 0,
        available: 0,
        best: None,
        at: Timestamp(NOW.0 - 3_600_000),
        excused: false,
    };
    case.record.progress.insert("web".into(), progress);
    assert_eq!(case.health(), is(HealthStatus::Missing, "Missing"), "no deadline runs");
    // A suspended application is left as it is on purpose.
    case.plan.waits.push(Wait::suspended());
    assert_eq!(case.health().0, HealthStatus::Suspended);
}

#[test]
fn an_unhealthy_instance_and_a_blocked_name_degrade() {
    let mut case = Case::new(1);
    case.new_one(1, State::Running { since: Timestamp(1), health: Health::Unhealthy });
    assert_eq!(case.health(), is(HealthStatus::Degraded, "Unhealthy"));
    let mut case = Case::new(1);
    let object = WaitObject::Container { name: "shop-web-1".to_owned(), workload: Some("web".into()) };
    case.plan.waits.push(Wait::blocked(object, "host port 80/tcp", "nginx", None, None));
    assert_eq!(case.health(), is(HealthStatus::Degraded, "Blocked"));
    assert_eq!(case.condition("ReplicaFailure"), Some((ConditionStatus::True, "FailedCreate".into())));
    assert_eq!(
        case.assess().message,
        "web: Blocked: shop-web-1 needs host port 80/tcp, which nginx holds and this agent does not own"
    );
}

#[test]
fn paused_and_suspended_are_suspended() {
    let mut case = Case::new(1);
    case.new_one(1, running());
    case.plan.waits.push(Wait::suspended());
    let it = case.assess();
    assert_eq!((it.sync, it.health), (SyncStatus::Synced, HealthStatus::Suspended));
    assert!(it.message.starts_with("suspended"), "{}", it.message);
    let mut case = Case::new(1);
    case.web().paused = true;
    case.has(1, "web:1.0.0", running());
    assert_eq!(case.health(), is(HealthStatus::Suspended, "Paused"));
    assert_eq!(case.condition("Progressing"), Some((ConditionStatus::Unknown, "DeploymentPaused".into())));
    assert_eq!(case.assess().message, "web is paused");
}

#[test]
fn the_whole_is_as_healthy_as_its_worst_part() {
    let mut case = Case::new(1);
    case.new_one(1, running());
    case.stack.workloads.insert("api".into(), workload(1));
    let it = case.assess();
    assert_eq!(it.health, HealthStatus::Missing);
    assert_eq!(it.message, "api: Missing: no instance runs");
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let mut case = Case::new(1);
    case.new_one(1, running());
    let first = case.assess();
    let later = NOW.after(Duration::from_secs(60));
    let again =
        |case: &Case, before: &Assessment| case.assess_at(later, &before.conditions, &before.workloads);
    let times = |it: &Assessment| -> Vec<_> {
        it.workloads[&"web".into()].conditions.iter().map(|it| it.last_transition_time).collect()
    };
    assert_eq!(times(&first), [NOW, NOW]);
    assert_eq!(times(&again(&case, &first)), [NOW, NOW]);
    case.web().strategy = Strategy::Recreate;
    case.new_one(1, exited(1));
    assert_eq!(times(&again(&case, &first)), [later, NOW], "Available turned, Progressing did not");
}

#[test]
fn three_heals_in_ten_minutes_are_a_fight_and_it_ends() {
    let mut case = Case::new(1);
    case.new_one(1, running());
    let ago = |seconds: u64| Timestamp(NOW.0 - seconds * 1000);
    let mut heal = Heal {
        count: 3,
        ended: NOW,
        seen: NOW,
        again: None,
        recent: vec![ago(500), ago(200), NOW],
        ineffective: 0,
        difference: "exited -> running".to_owned(),
        had_effect: true,
        revision: driftless_model::StackHash(String::new()),
    };
    case.record.heals.insert("web.1 state".to_owned(), heal.clone());
    let first = case.assess();
    assert_eq!(first.conditions.len(), 1);
    assert_eq!(
        (first.conditions[0].kind.as_str(), first.conditions[0].status),
        ("RepeatedDrift", ConditionStatus::True)
    );
    assert!(first.conditions[0].message.contains("web.1 state"), "{}", first.conditions[0].message);
    heal.recent[0] = ago(600);
    case.record.heals.insert("web.1 state".to_owned(), heal);
    assert_eq!(case.assess().conditions, []);
    let after = case.assess_at(NOW, &first.conditions, &BTreeMap::new());
    assert_eq!(after.conditions[0].status, ConditionStatus::False);
}

#[test]
fn states_are_shown_in_words() {
    let mut case = Case::new(4);
    case.new_one(1, running());
    case.new_one(2, State::Created);
    case.new_one(3, State::Paused);
    case.new_one(4, State::Restarting { code: 1, finished: NOW });
    let it = case.assess();
    let states: Vec<_> = it.workloads[&"web".into()].instances.iter().map(|it| it.state.as_str()).collect();
    assert_eq!(states, ["Running", "Created", "Paused", "Restarting"]);
}

#[test]
fn plans_read_as_sentences_without_variable_values() {
    let drift = |field: &str| Cause::Drift {
        field: field.to_owned(),
        found: "hunter2".to_owned(),
        want: "hunter1".to_owned(),
    };
    let step = |cause| Step {
        action: Action::RemoveInstance {
            container: ContainerRef::Name("shop-web-1".to_owned()),
            with_volumes: false,
        },
        cause,
        after: vec![0],
    };
    let plan = Plan {
        steps: vec![step(Cause::SpecChanged), step(drift("env.DSN")), step(drift("state"))],
        waits: vec![Wait::readiness(&"web".into(), 1, 3, "readiness probe:\nHTTP 503")],
        ..Plan::default()
    };
    assert_eq!(
        plan.to_string(),
        "0: remove shop-web-1 (spec changed) after [0]\n\
         1: remove shop-web-1 (drift: env.DSN was changed) after [0]\n\
         2: remove shop-web-1 (drift: state is hunter2, not hunter1) after [0]\n\
         wait: web has 1 of 3 available: readiness probe: HTTP 503\n"
    );
}

fn drift() -> Drift {
    Drift {
        kind: "container".to_owned(),
        object: "shop-web-1".to_owned(),
        workload: Some("web".into()),
        field: "resources.memory".to_owned(),
        want: "128 MiB".to_owned(),
        found: "64 MiB".to_owned(),
        at: None,
        action: DriftAction::Heal,
    }
}

#[test]
fn restarts_are_ends_after_which_the_container_runs_again() {
    let mut case = Case::new(1);
    let restarts = |case: &Case| case.assess().workloads[&"web".into()].instances[0].restarts;
    case.new_one(1, exited(3));
    case.crashed(1, 1);
    case.record.ends.insert(ContainerId("c1".to_owned()), 1);
    assert_eq!(restarts(&case), 0, "it ran once, and failed");
    case.new_one(1, running());
    assert_eq!(restarts(&case), 1);
    case.record.crashes.clear();
    assert_eq!(restarts(&case), 1, "the count outlives the backoff");
    // A container that failed its liveness probe runs until it is stopped.
    case.crashed(1, 2);
    case.record.ends.insert(ContainerId("c1".to_owned()), 2);
    case.record.crashes.values_mut().for_each(|crash| crash.dead_run = Some(Timestamp(1)));
    assert_eq!(restarts(&case), 1);
    case.new_one(1, State::Running { since: NOW, health: Health::Healthy });
    assert_eq!(restarts(&case), 2);
    // The engine's own restarts count as well.
    case.new_one(1, running()).restarts = 5;
    assert_eq!(restarts(&case), 5);
}
