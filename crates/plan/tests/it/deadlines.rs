//! Deadlines and counts where the time did not go on as it should, or where nothing could go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    Attempt, Claims, Completion, Condition, Dependency, Health, HealthStatus, Healthcheck, HeldPort, Mask,
    Port, PortRange, Probe, ProbeAction, Protocol, Readiness, RestartPolicy, Stack, StackHashes, State,
    Strategy, Timestamp, Workload,
};
use driftless_plan::{
    Action, Cause, CommitSpan, ContainerRef, Plan, Round, Step, StepOutcome, Target, WaitReason,
    leave_out_jump, note_executed, note_planned, recall_health,
};

use crate::{
    fixture::{NOON, Stage, stack, with_file, workload},
    held_orphans::restart_engine,
};

fn reached(mut stage: Stage) -> Stage {
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(10));
    }
    stage
}

/// The container ends by itself. Returns how often that was counted.
fn end(stage: &mut Stage) -> u32 {
    let finished = stage.now;
    stage.named("shop-web-1").state =
        State::Exited { code: 1, finished, out_of_memory: false, error: String::new() };
    stage.round();
    stage.record.crashes.values().map(|crash| crash.count).sum()
}

fn is_late(plan: &Plan) -> bool {
    plan.waits.iter().any(|wait| wait.is(WaitReason::ProgressDeadlineExceeded))
}

#[test]
fn ends_are_counted_after_the_clock_was_set_back() {
    let mut stage = reached(Stage::new(stack([("web", workload("web:1", 1))])));
    assert_eq!(end(&mut stage), 1);
    stage.now = Timestamp(NOON.0 - 3_600_000);
    // The same end is seen again, and counts once.
    stage.round();
    assert_eq!(end(&mut stage), 2);
    assert!(!stage.named("shop-web-1").is_running(), "the backoff applies");
    stage.tick(Duration::from_secs(11));
    stage.round();
    assert!(stage.named("shop-web-1").is_running());
    assert_eq!(end(&mut stage), 3);
}

#[test]
fn running_service_stays_available_after_the_clock_was_set_back() {
    let ready_for = Workload { min_ready: Duration::from_secs(10), ..workload("web:1", 1) };
    let mut stage = reached(Stage::new(stack([("web", ready_for), ("api", workload("api:1", 1))])));
    stage.now = Timestamp(stage.now.0 - 3_600_000);
    assert!(stage.round().is_settled());
    // One that is new is waited for.
    stage.stack = stack([
        ("web", Workload { min_ready: Duration::from_secs(10), ..workload("web:2", 1) }),
        ("api", workload("api:1", 1)),
    ]);
    let mut rounds = 0;
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(1));
        rounds += 1;
        assert!(rounds < 60);
    }
    assert!(rounds >= 10, "{rounds}");
}

#[test]
fn end_of_a_crash_loop_is_seen_when_it_is_over() {
    let mut stage = reached(Stage::new(stack([("web", workload("web:1", 1))])));
    assert_eq!(end(&mut stage), 1);
    stage.tick(Duration::from_secs(1));
    assert_eq!(end(&mut stage), 2);
    stage.tick(Duration::from_secs(11));
    stage.round();
    stage.tick(Duration::from_secs(1));
    let plan = stage.round();
    assert_eq!(stage.assess(&plan).health, HealthStatus::Degraded, "it has not run for long enough: {plan}");
    let again = plan.look_again.unwrap();
    assert_eq!(again, stage.now.after(Duration::from_secs(9)));
    stage.tick(again.since(stage.now));
    let plan = stage.round();
    assert_eq!(stage.assess(&plan).health, HealthStatus::Healthy, "{plan}");
}

#[test]
fn deadline_begins_again_after_the_agent_was_down() {
    let mut stage = reached(Stage::new(stack([("web", workload("web:1", 1))])));
    stage.sick.insert("web:2".to_owned());
    stage.stack = stack([("web", workload("web:2", 1))]);
    stage.round();
    stage.tick(Duration::from_secs(10));
    stage.round();
    stage.tick(Duration::from_hours(1));
    let mut without = stage.round();
    assert!(is_late(&without), "{without}");
    stage.record.resumed = Some(stage.now);
    without = stage.round();
    assert!(!is_late(&without), "{without}");
    stage.tick(Duration::from_mins(11));
    let late = stage.round();
    assert!(is_late(&late), "{late}");
}

#[test]
fn jump_of_the_clock_counts_into_no_deadline() {
    let mut stage = reached(Stage::new(stack([("web", workload("web:1", 1))])));
    stage.sick.insert("web:2".to_owned());
    stage.stack = stack([("web", workload("web:2", 1))]);
    stage.round();
    stage.tick(Duration::from_secs(10));
    stage.round();
    let jump = Duration::from_hours(3);
    stage.tick(jump);
    leave_out_jump(&mut stage.record, jump, stage.now);
    let after = stage.round();
    assert!(!is_late(&after), "{after}");
    stage.tick(Duration::from_mins(11));
    let late = stage.round();
    assert!(is_late(&late), "{late}");
    // One that was late before is late after another jump, too.
    stage.tick(jump);
    leave_out_jump(&mut stage.record, jump, stage.now);
    let late = stage.round();
    assert!(is_late(&late), "{late}");
}

/// The minutes after which the rollout of a version that never becomes ready is late. It is not `Degraded` before.
fn minutes_until_late(policy: Option<Duration>, change: impl Fn(&mut Workload)) -> u32 {
    let version = |image: &str| {
        let mut web = workload(image, 1);
        change(&mut web);
        stack([("web", web)])
    };
    let mut stage = reached(Stage::new(version("web:1")));
    stage.policy.progress_deadline = policy;
    stage.sick.insert("web:2".to_owned());
    stage.stack = version("web:2");
    for minute in 0..120 {
        let plan = stage.round();
        if is_late(&plan) {
            return minute;
        }
        assert_ne!(stage.assess(&plan).health, HealthStatus::Degraded, "minute {minute}: {plan}");
        stage.tick(Duration::from_mins(1));
    }
    panic!("it is never late");
}

#[test]
fn policy_shortens_and_lengthens_the_default_deadline() {
    let of = |minutes| minutes_until_late(Some(Duration::from_mins(minutes)), |_| {});
    let default = minutes_until_late(None, |_| {});
    assert!((10..=12).contains(&default), "{default}");
    assert_eq!((of(4), of(45)), (default - 6, default + 35));
    let own = |minutes| {
        let policy = Some(Duration::from_mins(minutes));
        minutes_until_late(policy, |web| web.progress_deadline = Duration::from_mins(20))
    };
    assert_eq!((own(4), own(45)), (default - 6, default + 10), "one in the manifest bounds it");
}

#[test]
fn slow_start_has_the_time_that_its_manifest_gives_it() {
    let default = minutes_until_late(None, |_| {});
    let probed = |web: &mut Workload| {
        web.probes.startup = Some(Probe {
            action: ProbeAction::Exec { command: vec!["ready".to_owned()] },
            initial_delay: Duration::from_mins(1),
            period: Duration::from_secs(30),
            timeout: Duration::from_secs(1),
            success_threshold: 1,
            failure_threshold: 58,
        });
    };
    assert_eq!(minutes_until_late(None, probed), default + 20);
    assert_eq!(minutes_until_late(Some(Duration::from_mins(5)), probed), default + 20);
    let checked = |web: &mut Workload| {
        let check = Healthcheck { test: Vec::new(), ..Healthcheck::disabled() };
        let (start_period, interval) = (Some(Duration::from_mins(20)), Some(Duration::from_mins(1)));
        web.container.healthcheck = Some(Healthcheck { start_period, interval, retries: Some(5), ..check });
    };
    assert_eq!(minutes_until_late(None, checked), default + 15);
}

#[test]
fn no_deadline_runs_while_an_image_is_missing() {
    let mut web = workload("web:1", 1);
    let condition = Condition::Healthy;
    web.after = vec![Dependency { workload: "db".into(), condition, restart: false, required: true }];
    let mut stage = Stage::new(stack([("web", web), ("db", workload("db:1", 1))]));
    stage.world.registry = Some(["web:1".to_owned()].into());
    for _ in 0..40 {
        let plan = stage.round();
        assert!(!is_late(&plan), "{plan}");
        stage.tick(Duration::from_mins(1));
    }
    // From then on it runs.
    stage.world.registry = None;
    stage.sick.insert("db:1".to_owned());
    let late = (0..40).any(|_| {
        stage.tick(Duration::from_mins(1));
        is_late(&stage.round())
    });
    assert!(late);
}

/// The services that wait for it are changed by the same commit, and serve in their older version meanwhile.
#[test]
fn failed_migration_fails_a_commit_at_once() {
    let after = |workload: &str, condition| {
        vec![Dependency { workload: workload.into(), condition, restart: false, required: true }]
    };
    let version = |tag: &str| {
        let mut migrate = workload(&format!("migrate:{tag}"), 1);
        (migrate.strategy, migrate.completion) = (Strategy::Recreate, Completion::OnSuccess);
        migrate.container.restart = RestartPolicy::No;
        let mut web = workload(&format!("web:{tag}"), 1);
        web.after = after("migrate", Condition::CompletedSuccessfully);
        let mut proxy = workload(&format!("proxy:{tag}"), 1);
        proxy.after = after("web", Condition::Healthy);
        stack([("db", workload("db:1", 1)), ("migrate", migrate), ("proxy", proxy), ("web", web)])
    };
    let mut stage = Stage::new(version("1"));
    stage.finishing.insert("migrate:1".to_owned());
    let mut stage = reached(stage);
    stage.crashing.insert("migrate:2".to_owned());
    stage.stack = version("2");
    let failure = (0..10).find_map(|_| {
        stage.tick(Duration::from_secs(5));
        let plan = stage.round();
        stage.failure(&plan)
    });
    assert!(failure.as_ref().is_some_and(|why| why.starts_with("migrate")), "{failure:?}");
}

#[test]
fn failure_by_lateness_names_its_cause() {
    let with_port = |port: u16| {
        let (host, protocol) = (Some(PortRange::one(port)), Protocol::Tcp);
        let mut web = workload("web:1", 1);
        web.container.ports = vec![Port { container: 8080, protocol, host_ip: None, host }];
        stack([("web", web)])
    };
    let mut stage = reached(Stage::new(with_port(80)));
    let by = Claims::HOST_PROCESS.to_owned();
    let held = HeldPort { port: 81, protocol: Protocol::Tcp, ip: None, by };
    stage.world.observed.claims.ports.insert(held);
    stage.stack = with_port(81);
    let failure = (0..20).find_map(|_| {
        stage.tick(Duration::from_mins(1));
        let plan = stage.round();
        stage.failure(&plan)
    });
    let why = failure.unwrap();
    assert!(why.starts_with("web has made no progress since "), "{why}");
    assert!(why.contains("UTC; it needs host port 81/tcp, which a process of the host"), "{why}");
}

#[test]
fn rejected_definition_fails_a_commit_at_once() {
    let version = |image: &str| {
        let mut web = workload(image, 1);
        web.strategy = Strategy::Recreate;
        stack([("web", web)])
    };
    let mut stage = reached(Stage::new(version("web:1")));
    stage.stack = version("web:2");
    // The image is pulled, and nothing is stopped.
    let plan = stage.round_cut_short(1, |_| 0);
    assert!(matches!(plan.steps[0].action, Action::PullImage { .. }), "{plan}");
    stage.tick(Duration::from_secs(1));
    let plan = stage.round_cut_short(0, |_| 0);
    assert!(matches!(plan.steps[0].action, Action::StopInstance { .. }), "{plan}");
    let attempt = |next| Attempt { count: 1, next, error: "unknown log opt".to_owned() };
    let next = stage.now.after(Duration::from_secs(5));
    stage.record.failures.insert("shop-web-1".to_owned(), attempt(next));
    assert_eq!(stage.failure(&plan), None, "another try may succeed");
    stage.record.rejected.insert("shop-web-1".to_owned());
    assert_eq!(stage.failure(&plan).as_deref(), Some("unknown log opt"));
    // The last try was one for the commit before.
    stage.record.failures.insert("shop-web-1".to_owned(), attempt(NOON));
    assert_eq!(stage.failure(&plan), None);
}

#[test]
fn rejected_stop_is_not_remembered_as_begun() {
    let version = |number: &str| {
        let mut web = workload("web:1", 1);
        web.strategy = Strategy::Recreate;
        web.container.env.insert("VERSION".to_owned(), Some(number.to_owned()));
        stack([("web", web)])
    };
    let mut stage = reached(Stage::new(version("1")));
    stage.stack = version("2");
    let plan = stage.round_cut_short(0, |_| 0);
    note_planned(&mut stage.record, &plan, stage.now);
    assert!(!stage.record.leaving.is_empty(), "{plan}");
    let outcome = |step: &Step| match &step.action {
        Action::StopInstance { .. } => {
            StepOutcome::Failed { error: "no".to_owned(), retry_after: None, is_final: true }
        }
        _ => StepOutcome::Skipped,
    };
    let outcomes: Vec<StepOutcome> = plan.steps.iter().map(outcome).collect();
    let (hashes, images, mask) = (StackHashes::of(&stage.stack), BTreeMap::new(), Mask::new([7; 32]));
    let target = Target {
        stack: &stage.stack,
        hashes: &hashes,
        reached: stage.reached.as_ref(),
        agent: &stage.agent,
        policy: &stage.policy,
        images: &images,
        mask: &mask,
    };
    note_executed(&mut stage.record, &target, &plan, &outcomes, stage.now);
    assert_eq!(stage.record.leaving, BTreeSet::new());
}

#[test]
fn start_that_is_refused_each_time_fails_a_commit() {
    for strategy in [Strategy::RollingUpdate { max_surge: 1, max_unavailable: 0 }, Strategy::Recreate] {
        let version = |image: &str| {
            let mut web = workload(image, 1);
            web.strategy = strategy;
            stack([("web", web)])
        };
        let mut stage = reached(Stage::new(version("web:1")));
        stage.stack = version("web:2");
        let failed = (0..20).find_map(|minute| {
            stage.tick(Duration::from_mins(1));
            let plan = stage.round();
            if let Some(why) = stage.failure(&plan) {
                return Some((minute, plan, why));
            }
            // The engine starts no container of it, and the agent tries again.
            let observed = &mut stage.world.observed;
            for new in observed.instances.values_mut().filter(|it| it.config.image == "web:2") {
                (new.state, new.started) = (State::Created, None);
                let attempt = Attempt { count: 5, next: stage.now, error: "no such command".to_owned() };
                stage.record.failures.insert(new.name.clone(), attempt);
            }
            None
        });
        let (minute, mut plan, why) = failed.unwrap();
        assert!(minute >= 9 && !plan.steps.is_empty(), "after {minute}: {plan}");
        // The last try was before the deadline, and the next one may succeed.
        let attempts = stage.record.failures.clone();
        for attempt in stage.record.failures.values_mut() {
            attempt.next = Timestamp(attempt.next.0.saturating_sub(4 * 60_000));
        }
        assert_eq!(stage.failure(&plan), None, "{plan}");
        stage.record.failures = attempts;
        // One that follows it is not tried, so its last try stays old.
        let container = ContainerRef::Name("old".to_owned());
        let action = Action::StartInstance { container };
        plan.steps.push(Step { action, cause: Cause::SpecChanged, after: vec![0] });
        let old = Attempt { count: 1, next: Timestamp(0), error: "a fault long ago".to_owned() };
        stage.record.failures.insert("old".to_owned(), old);
        assert!(stage.failure(&plan).is_some(), "{plan}");
        plan.steps.pop();
        stage.record.failures.remove("old");
        assert!(why.contains("has made no progress since") && why.ends_with("; no such command"), "{why}");
        // An image that cannot be had for now is no fault of the commit.
        let image = "web:2".to_owned();
        let attempt = Attempt { count: 5, next: stage.now, error: "no registry".to_owned() };
        stage.record.failures.insert(image.clone(), attempt);
        let action =
            Action::PullImage { image, platform: None, secrets: Vec::new(), keys: Default::default() };
        plan.steps.push(Step { action, cause: Cause::SpecChanged, after: Vec::new() });
        assert_eq!(stage.failure(&plan), None, "{plan}");
        plan.steps.pop();
        // Nor is it while something else still gets on.
        stage.record.failures.clear();
        assert_eq!(stage.failure(&plan), None, "{plan}");
    }
}

#[test]
fn commit_waits_for_the_result_of_a_changed_probe() {
    let mut stage = reached(Stage::new(stack([("web", workload("web:1", 1))])));
    let id = stage.named("shop-web-1").id.clone();
    stage.world.observed.unanswered_probes.insert(id);
    stage.now = stage.now.after(Duration::from_hours(1));
    let plan = stage.round();
    assert!(plan.steps.is_empty() && !plan.is_reached() && !plan.is_applied() && !is_late(&plan), "{plan}");
    assert_eq!(stage.failure(&plan), None, "{plan}");
    stage.tick(Duration::from_secs(1));
    let plan = stage.round();
    assert!(plan.is_settled(), "{plan}");
    // From a bad result on, the deadline counts.
    stage.named("shop-web-1").readiness = Readiness::NotReady { reason: "status 404".to_owned() };
    let plan = stage.round();
    assert!(!plan.is_reached() && !is_late(&plan), "{plan}");
    stage.now = stage.now.after(Duration::from_mins(11));
    let plan = stage.round();
    assert!(stage.failure(&plan).is_some_and(|why| why.contains("status 404")), "{plan}");
}

#[test]
fn no_deadline_runs_while_a_rollout_is_paused() {
    let condition = Condition::Healthy;
    let dependency = Dependency { workload: "db".into(), condition, restart: false, required: true };
    let versions = |web: &str, db: &str| {
        let mut web = workload(web, 1);
        web.after = vec![dependency.clone()];
        stack([("web", web), ("db", workload(db, 1))])
    };
    let mut stage = reached(Stage::new(versions("web:1", "db:1")));
    stage.record.paused.insert("db".into());
    stage.stack = versions("web:2", "db:2");
    for _ in 0..40 {
        let plan = stage.round();
        assert!(!plan.is_reached() && !plan.is_applied() && !is_late(&plan), "{plan}");
        stage.tick(Duration::from_mins(1));
    }
    // Its end is the beginning of the deadline.
    stage.record.paused.clear();
    stage.sick.insert("db:2".to_owned());
    let late_after = (0..40).position(|_| {
        stage.tick(Duration::from_mins(1));
        is_late(&stage.round())
    });
    assert!(late_after.is_some_and(|minutes| minutes >= 9), "{late_after:?}");
}

#[test]
fn no_deadline_runs_while_the_application_is_suspended() {
    let mut stage = reached(Stage::new(stack([("web", workload("web:1", 1))])));
    stage.policy.suspended = true;
    stage.stack = stack([("web", workload("web:2", 1))]);
    for pause in [1, 5, 20, 60] {
        let plan = stage.round();
        assert!(!is_late(&plan), "{plan}");
        assert_ne!(stage.assess(&plan).health, HealthStatus::Degraded, "{plan}");
        stage.tick(Duration::from_mins(pause));
    }
    // After it, the rollout has all of its time.
    stage.policy.suspended = false;
    stage.sick.insert("web:2".to_owned());
    stage.round();
    stage.tick(Duration::from_secs(10));
    stage.round();
    stage.tick(Duration::from_mins(9));
    let plan = stage.round();
    assert!(!is_late(&plan), "{plan}");
    stage.tick(Duration::from_mins(2));
    let plan = stage.round();
    assert!(is_late(&plan), "{plan}");
}

/// A request such as a sync sets the counts to zero. The engine, which was restarted since, says nothing about the end.
#[test]
fn failed_one_shot_is_not_run_again_for_a_sync_after_a_reboot() {
    let mut migrate = workload("migrate:1", 1);
    (migrate.completion, migrate.container.restart) = (Completion::OnSuccess, RestartPolicy::No);
    let mut stage = Stage::new(stack([("migrate", migrate)]));
    stage.crashing.insert("migrate:1".to_owned());
    for _ in 0..4 {
        stage.round();
        stage.tick(Duration::from_secs(2));
    }
    assert_eq!(stage.record.crashes.len(), 1);
    restart_engine(&mut stage);
    stage.record.crashes.values_mut().for_each(|crash| crash.count = 0);
    for _ in 0..3 {
        let plan = stage.round();
        assert!(plan.steps.is_empty(), "{plan}");
        assert!(!plan.waits.iter().any(|wait| wait.is(WaitReason::MayHaveRunTwice)), "{plan}");
        assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::Failed)), "{plan}");
        stage.tick(Duration::from_mins(1));
    }
}

/// A migration, and a service that waits until it has completed.
fn with_migration(tag: &str, web: &str) -> Stack {
    let mut migrate = workload(&format!("migrate:{tag}"), 1);
    (migrate.strategy, migrate.completion) = (Strategy::Recreate, Completion::OnSuccess);
    migrate.container.restart = RestartPolicy::No;
    let condition = Condition::CompletedSuccessfully;
    let mut web = workload(web, 1);
    web.after = vec![Dependency { workload: "migrate".into(), condition, restart: false, required: true }];
    stack([("migrate", migrate), ("web", web)])
}

/// The same, with a migration that a changed file runs again.
fn with_migration_file(content: &str) -> Stack {
    let mut stack = with_migration("1", "web:1");
    let migrate = stack.workloads.remove(&"migrate".into()).unwrap();
    stack.workloads.insert("migrate".into(), with_file(content, migrate));
    stack
}

fn migrated() -> Stage {
    migrated_with(with_migration("1", "web:1"))
}

fn migrated_with(stack: Stack) -> Stage {
    let mut stage = Stage::new(stack);
    stage.finishing.insert("migrate:1".to_owned());
    reached(stage)
}

/// The commit leaves the service that waits for the migration as it is, so that nothing else of it is under way.
#[test]
fn awaited_migration_keeps_the_commit_open_until_it_ends() {
    let mut stage = migrated();
    stage.stack = with_migration("2", "web:1");
    for _ in 0..6 {
        let plan = stage.round();
        assert!(!plan.is_reached() && !plan.is_applied() && !is_late(&plan), "{plan}");
        assert_eq!(stage.assess(&plan).health, HealthStatus::Progressing, "{plan}");
        stage.tick(Duration::from_secs(10));
    }
    stage.finishing.insert("migrate:2".to_owned());
    reached(stage);
}

#[test]
fn awaited_migration_that_fails_late_fails_the_commit() {
    let mut stage = migrated();
    stage.stack = with_migration("2", "web:1");
    for _ in 0..18 {
        let plan = stage.round();
        assert!(!plan.is_reached() && stage.failure(&plan).is_none(), "{plan}");
        stage.tick(Duration::from_secs(10));
    }
    stage.crashing.insert("migrate:2".to_owned());
    stage.tick(Duration::from_secs(10));
    let plan = stage.round();
    let failure = stage.failure(&plan);
    assert!(failure.as_ref().is_some_and(|why| why.starts_with("migrate.1 failed")), "{failure:?} {plan}");
}

/// As if a service that waits for it were part of the commit.
#[test]
fn awaited_migration_has_the_time_of_every_rollout() {
    let mut stage = migrated();
    stage.stack = with_migration("2", "web:1");
    let late_after = (0..40).position(|_| {
        stage.tick(Duration::from_mins(1));
        is_late(&stage.round())
    });
    assert!(late_after.is_some_and(|minutes| minutes >= 9), "{late_after:?}");
    stage.finishing.insert("migrate:2".to_owned());
    reached(stage);
}

#[test]
fn migration_that_runs_again_holds_up_nothing_at_rest() {
    let mut stage = migrated();
    let now = stage.now;
    stage.finishing.clear();
    let container = stage.named("shop-migrate-1");
    container.state = State::Running { since: now, health: Health::Healthy };
    container.readiness = Readiness::Ready { since: now };
    container.started = Some(now);
    for _ in 0..20 {
        let plan = stage.round();
        assert!(plan.is_settled(), "{plan}");
        assert_eq!(stage.assess(&plan).health, HealthStatus::Healthy, "{plan}");
        stage.tick(Duration::from_mins(1));
    }
}

/// The one-shot of a commit before failed. A service that waits for it cannot be applied, and any other one can.
#[test]
fn earlier_failure_counts_only_for_its_dependants() {
    let mut stage = Stage::new(with_migration("1", "web:1"));
    stage.crashing.insert("migrate:1".to_owned());
    for _ in 0..4 {
        stage.round();
        stage.tick(Duration::from_secs(10));
    }
    let since = stage.now;
    let judge = |stage: &mut Stage, span: CommitSpan| {
        let plan = (0..6).fold(stage.round(), |_, _| {
            stage.tick(Duration::from_secs(10));
            stage.round()
        });
        let Stage { stack, policy, record, now, world, .. } = &*stage;
        let (hashes, observed) = (&StackHashes::of(stack), &world.observed);
        let round = Round { stack, hashes, policy, observed, record, plan: &plan, now: *now };
        let failure = round.rollout_failure(span).map(|failure| failure.reason);
        (round.is_applied(span), failure, round.lost_health(since).is_some())
    };
    let (is_applied, failure, _) = judge(&mut stage, CommitSpan::of(since));
    assert!(!is_applied);
    assert!(failure.as_ref().is_some_and(|why| why.starts_with("migrate.1 failed")), "{failure:?}");
    stage.stack.workloads.get_mut(&"web".into()).unwrap().after.clear();
    assert_eq!(judge(&mut stage, CommitSpan::of(since)), (true, None, false));
    // It failed in a commit that this one has overtaken before it was judged.
    let (is_applied, failure, _) = judge(&mut stage, CommitSpan { started: since, open_since: NOON });
    assert!(!is_applied);
    assert!(failure.as_ref().is_some_and(|why| why.starts_with("migrate.1 failed")), "{failure:?}");
    // The overtaken commit began after the container was made, and left it as it was.
    let overtaken = Timestamp(NOON.0 + 1);
    assert_eq!(judge(&mut stage, CommitSpan { started: since, open_since: overtaken }), (true, None, false));
}

/// The overtaken commit has changed its file, and so it ran again in its old container.
#[test]
fn failure_with_a_changed_file_is_one_of_its_commit() {
    let mut stage = migrated_with(with_migration_file("one"));
    stage.tick(Duration::from_hours(1));
    let open_since = stage.now;
    stage.crashing.insert("migrate:1".to_owned());
    stage.stack = with_migration_file("two");
    for _ in 0..2 {
        stage.round();
        stage.tick(Duration::from_secs(10));
    }
    let started = stage.now;
    let plan = stage.round();
    let Stage { stack, policy, record, now, world, .. } = &stage;
    let (hashes, observed) = (&StackHashes::of(stack), &world.observed);
    let round = Round { stack, hashes, policy, observed, record, plan: &plan, now: *now };
    let span = CommitSpan { started, open_since };
    assert!(!round.is_applied(span), "{plan}");
    let failure = round.rollout_failure(span).map(|failure| failure.reason);
    assert!(failure.as_ref().is_some_and(|why| why.starts_with("migrate.1 failed")), "{failure:?} {plan}");
}

/// Its process answers SIGTERM with code 0, as the engine or somebody stops it.
#[test]
fn run_with_a_changed_file_that_is_cut_off_begins_again() {
    for is_by_hand in [false, true] {
        let with_seed = |content: &str| {
            let mut stack = with_migration_file(content);
            stack.workloads.remove(&"web".into());
            stack
        };
        let mut stage = migrated_with(with_seed("one"));
        stage.finishing.clear();
        stage.stack = with_seed("two");
        stage.round();
        stage.tick(Duration::from_mins(1));
        stage.round();
        let finished = stage.now;
        let container = stage.named("shop-migrate-1");
        assert!(container.is_running());
        container.state = State::Exited { code: 0, finished, out_of_memory: false, error: String::new() };
        container.touched_by_hand = is_by_hand.then_some(finished);
        stage.tick(Duration::from_secs(10));
        stage.world.observed.engine_started = (!is_by_hand).then_some(stage.now);
        let plan = stage.round();
        assert!(stage.named("shop-migrate-1").is_running(), "{plan}");
    }
}

/// It mounts a file of the repository, whose change runs it again: in the same container, with the time of every rollout.
#[test]
fn migration_that_runs_again_has_all_its_time() {
    let mut stage = migrated();
    stage.tick(Duration::from_hours(24));
    stage.round();
    stage.finishing.clear();
    let now = stage.now;
    let container = stage.named("shop-migrate-1");
    container.state = State::Running { since: now, health: Health::Healthy };
    container.started = Some(now);
    stage.stack.workloads.get_mut(&"web".into()).unwrap().min_ready = Duration::from_secs(1);
    let late_after = (0..40).position(|_| {
        let is_late = is_late(&stage.round());
        stage.tick(Duration::from_mins(1));
        is_late
    });
    assert!(late_after.is_some_and(|minutes| minutes >= 9), "{late_after:?}");
}

/// It failed with the file of the day before.
#[test]
fn run_with_a_corrected_file_has_all_its_time() {
    let mut stage = migrated_with(with_migration_file("one"));
    stage.finishing.clear();
    stage.crashing.insert("migrate:1".to_owned());
    stage.stack = with_migration_file("wrong");
    for pause in [Duration::from_secs(1), Duration::from_hours(24)] {
        stage.round();
        stage.tick(pause);
        stage.round();
    }
    assert!(!stage.record.ends.is_empty());
    stage.crashing.clear();
    stage.stack = with_migration_file("right");
    stage.round();
    let late_after = (0..40).position(|_| {
        stage.tick(Duration::from_mins(1));
        is_late(&stage.round())
    });
    assert!(late_after.is_some_and(|minutes| minutes >= 8), "{late_after:?}");
}

/// The rounds miss each end, after which the engine starts it again at once.
#[test]
fn runs_that_the_engine_restarts_are_no_progress() {
    let mut stage = migrated();
    stage.stack = with_migration("2", "web:1");
    let migrate = stage.stack.workloads.get_mut(&"migrate".into()).unwrap();
    migrate.container.restart = RestartPolicy::OnFailure { max_retries: None };
    for _ in 0..3 {
        stage.round();
        stage.tick(Duration::from_secs(10));
    }
    let late_after = (0..40).position(|_| {
        let now = stage.now;
        let container = stage.named("shop-migrate-1");
        container.state = State::Running { since: now, health: Health::Healthy };
        (container.started, container.restarts) = (Some(now), container.restarts + 1);
        let is_late = is_late(&stage.round());
        stage.tick(Duration::from_mins(1));
        is_late
    });
    assert!(late_after.is_some(), "{:?}", stage.record.progress);
}

/// Each run is started again, for ever, and none of them is progress.
#[test]
fn awaited_migration_that_keeps_failing_fails_the_commit() {
    let mut stage = migrated();
    stage.stack = with_migration("2", "web:1");
    let migrate = stage.stack.workloads.get_mut(&"migrate".into()).unwrap();
    migrate.container.restart = RestartPolicy::OnFailure { max_retries: None };
    let failed_after = (0..60).position(|_| {
        for _ in 0..3 {
            stage.round();
            stage.tick(Duration::from_secs(10));
        }
        stage.crashing.insert("migrate:2".to_owned());
        stage.tick(Duration::from_secs(1));
        stage.crashing.clear();
        let plan = stage.round();
        stage.failure(&plan).is_some()
    });
    assert!(failed_after.is_some_and(|tries| tries >= 15), "{failed_after:?}");
}

/// A Job of the first wave failed before, and the services of the second are all there.
#[test]
fn earlier_failure_does_not_count_for_a_wave_that_is_there() {
    let mut first = workload("setup:1", 1);
    (first.strategy, first.completion) = (Strategy::Recreate, Completion::OnSuccess);
    first.container.restart = RestartPolicy::No;
    let of_wave = |tag: &str| Workload { wave: 1, ..workload(tag, 1) };
    let mut stage = Stage::new(stack([("setup", first.clone()), ("web", workload("web:1", 1))]));
    stage.crashing.insert("setup:1".to_owned());
    for _ in 0..6 {
        stage.round();
        stage.tick(Duration::from_secs(10));
    }
    let since = stage.now;
    stage.stack = stack([("setup", first), ("web", of_wave("web:1")), ("cache", workload("cache:1", 1))]);
    for _ in 0..6 {
        stage.round();
        stage.tick(Duration::from_secs(10));
    }
    let plan = stage.round();
    let Stage { stack, policy, record, now, world, .. } = &stage;
    let (hashes, observed) = (&StackHashes::of(stack), &world.observed);
    let round = Round { stack, hashes, policy, observed, record, plan: &plan, now: *now };
    assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::SyncWave)), "{plan}");
    assert_eq!(round.rollout_failure(CommitSpan::of(since)), None, "{plan}");
    assert!(round.is_applied(CommitSpan::of(since)), "{plan}");
}

/// The time for which the container counts as healthy, in seconds, where the engine has results of the last 20 s alone.
fn healthy_for(stage: &mut Stage) -> u64 {
    let since = stage.now.before(Duration::from_secs(20));
    let web = stage.named("shop-web-1");
    web.readiness = Readiness::Ready { since };
    web.healthy_before = true;
    recall_health(&stage.record, &mut stage.world.observed);
    let Readiness::Ready { since } = stage.named("shop-web-1").readiness.clone() else { panic!() };
    stage.now.since(since).as_secs()
}

#[test]
fn time_of_health_is_kept_longer_than_by_the_engine() {
    let mut web = workload("web:1", 1);
    web.container.healthcheck = Some(Healthcheck { test: Vec::new(), ..Healthcheck::disabled() });
    let mut stage = reached(Stage::new(stack([("web", web)])));
    stage.now = stage.now.after(Duration::from_mins(10));
    let started = stage.named("shop-web-1").started.unwrap();
    let age = stage.now.since(started).as_secs();
    // As in the record of an older agent.
    stage.record.health.clear();
    assert_eq!(healthy_for(&mut stage), age);
    stage.round();
    stage.now = stage.now.after(Duration::from_mins(1));
    assert_eq!(healthy_for(&mut stage), age + 60);
    // The agent has missed a restart.
    let now = stage.now;
    stage.named("shop-web-1").started = Some(now.before(Duration::from_secs(40)));
    assert_eq!(healthy_for(&mut stage), 20);
    stage.round();
    stage.now = stage.now.after(Duration::from_mins(1));
    assert_eq!(healthy_for(&mut stage), 80);
    stage.named("shop-web-1").state = State::Running { since: now, health: Health::Unhealthy };
    stage.round();
    stage.named("shop-web-1").state = State::Running { since: now, health: Health::Healthy };
    assert_eq!(healthy_for(&mut stage), 20, "it has recovered since");
}

/// Three containers of a version that becomes healthy and falls again, so that never all three are healthy.
#[test]
fn recoveries_that_do_not_last_are_no_progress() {
    let version =
        |image: &str| stack([("web", Workload { strategy: Strategy::Recreate, ..workload(image, 3) })]);
    let mut stage = reached(Stage::new(version("web:1")));
    stage.sick.insert("web:2".to_owned());
    stage.stack = version("web:2");
    for _ in 0..5 {
        stage.round();
        stage.tick(Duration::from_secs(1));
    }
    assert_eq!(stage.record.progress[&"web".into()].updated, 3);
    let late_after = (0..60_usize).position(|minute| {
        let now = stage.now;
        let healthy = 1 + minute % 2;
        for (index, web) in stage.world.observed.instances.values_mut().enumerate() {
            let is_healthy = (index + minute) % 3 < healthy;
            (web.state, web.readiness) = if is_healthy {
                (State::Running { since: now, health: Health::Healthy }, Readiness::Ready { since: now })
            } else {
                let readiness = Readiness::NotReady { reason: "its health check fails".to_owned() };
                (State::Running { since: now, health: Health::Unhealthy }, readiness)
            };
        }
        let is_late = is_late(&stage.round());
        stage.tick(Duration::from_mins(1));
        is_late
    });
    assert!(late_after.is_some_and(|minutes| minutes >= 10), "{late_after:?}");
}
