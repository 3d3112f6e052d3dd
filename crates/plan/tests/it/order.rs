//! The order of a sync: hooks before and after it, waves within it, and the way back when an application is removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_model::{
    Completion, Condition, Container, Dependency, HELPER_IMAGE, HookPhase, Instance, Job, NetworkMode, Part,
    Peer, Probes, PullPolicy, Record, RestartPolicy, Role, RollbackSettings, Stack, State,
    Strategy as Rollout, SyncStatus, Workload, WorkloadKind, WorkloadName,
};
use driftless_plan::{
    Action, Plan, begin_attempt, begin_removal, has_post_synced, is_held_by_hooks, with_runs,
};
use proptest::prelude::*;

use crate::{
    fixture::{NOON, Stage, stack, with_file, workload},
    held_orphans::restart_engine,
    prune::settle,
};

fn job(name: &str, image: &str) -> Workload {
    let mut job = workload(image, 1);
    job.container.restart = RestartPolicy::No;
    job.completion = Completion::OnSuccess;
    job.strategy = Rollout::Recreate;
    Workload { kind: WorkloadKind::Job(Job::once(name.into())), ..job }
}

fn hook(name: &str, image: &str, phase: HookPhase) -> Workload {
    let kind = WorkloadKind::Hook { phase, template: Job::once(name.into()) };
    Workload { replicas: 0, kind, ..job(name, image) }
}

fn in_wave(wave: i32, workload: Workload) -> Workload {
    Workload { wave, ..workload }
}

/// A stage whose stack is what Git asks for, together with the runs of its hooks.
struct Theatre {
    git: Stack,
    stage: Stage,
    /// The names of all containers that were created, in their order.
    created: Vec<String>,
    /// The containers that were stopped or removed, by name.
    removed: Vec<String>,
}

impl Theatre {
    fn new(git: Stack) -> Self {
        let mut stage = Stage::new(git.clone());
        for image in ["web:1", "web:2", "db:1", "db:2", "good:1", "good:2", "bad:1"] {
            stage.world.observed.images.entry(image.to_owned()).or_default();
        }
        stage.finishing.extend(["good:1".to_owned(), "good:2".to_owned()]);
        stage.crashing.insert("bad:1".to_owned());
        Self { git, stage, created: Vec::new(), removed: Vec::new() }
    }

    fn round(&mut self) -> Plan {
        self.stage.stack = with_runs(&self.git, &self.stage.record).into_owned();
        let plan = self.stage.round();
        for step in &plan.steps {
            match &step.action {
                Action::CreateInstance(creation) => self.created.push(creation.instance.workload.to_string()),
                Action::RemoveInstance { container, .. } => self.removed.push(container.name().to_owned()),
                _ => {}
            }
        }
        if plan.is_settled() {
            self.stage.reached = Some(self.git.clone());
        }
        self.stage.tick(Duration::from_secs(1));
        plan
    }

    /// Rounds until nothing more happens.
    fn rounds(&mut self) -> Plan {
        let mut last = self.round();
        for _ in 0..40 {
            let next = self.round();
            let is_quiet = next.steps.is_empty() && last.steps.is_empty();
            last = next;
            if is_quiet {
                break;
            }
        }
        last
    }

    fn attempt(&mut self, revision: u64) {
        begin_attempt(&mut self.stage.record, &self.git, revision);
    }

    fn running(&self) -> Vec<String> {
        let all = self.stage.world.observed.instances.values().filter(|it| it.is_running());
        let mut all: Vec<String> =
            all.map(|it| format!("{}={}", it.instance.workload, it.config.image)).collect();
        all.sort();
        all
    }

    fn begin_phase(&mut self, phase: HookPhase) {
        self.stage.record.hooks.as_mut().unwrap().begun.insert(phase);
    }
}

/// Whether a plan creates a container of a workload, and that only after it has removed another container.
fn is_created_after_removal(plan: &Plan, workload: &str, removed: &str) -> bool {
    let is_creation = |action: &Action| matches!(action, Action::CreateInstance(creation) if creation.instance.workload.as_str() == workload);
    let is_removal = |action: &Action| matches!(action, Action::RemoveInstance { container, .. } if container.name() == removed);
    let mut next: Vec<usize> =
        (0..plan.steps.len()).filter(|step| is_creation(&plan.steps[*step].action)).collect();
    while let Some(step) = next.pop() {
        if is_removal(&plan.steps[step].action) {
            return true;
        }
        next.extend(&plan.steps[step].after);
    }
    false
}

fn shop(version: u8, dump: &str) -> Stack {
    stack([
        ("web", workload(&format!("web:{version}"), 2)),
        ("dump", hook("dump", dump, HookPhase::PreSync)),
        ("warm", hook("warm", "good:2", HookPhase::PostSync)),
    ])
}

/// A shop at version 1 that has been synced.
fn synced() -> Theatre {
    let mut shop = Theatre::new(shop(1, "good:1"));
    shop.attempt(1);
    shop.rounds();
    shop.begin_phase(HookPhase::PostSync);
    assert!(shop.rounds().is_settled());
    shop.created.clear();
    shop
}

#[test]
fn pre_sync_hook_runs_before_anything_is_touched() {
    let mut shop = synced();
    shop.git = self::shop(2, "good:1");
    let plan = shop.round();
    assert!(plan.steps.is_empty(), "{plan}");
    assert!(plan.to_string().contains("the PreSync hooks run first"), "{plan}");
    shop.attempt(2);
    let plan = shop.round();
    assert_eq!(shop.created, ["dump-2-1"], "{plan}");
    assert_eq!(shop.running(), ["web=web:1", "web=web:1"]);
    shop.rounds();
    assert_eq!(shop.running(), ["web=web:2", "web=web:2"]);
    assert!(!has_post_synced(&shop.stage.record, &shop.stage.stack));
    shop.begin_phase(HookPhase::PostSync);
    let plan = shop.round();
    assert!(!plan.is_settled(), "the revision waits for its PostSync hooks: {plan}");
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert!(has_post_synced(&shop.stage.record, &shop.stage.stack));
    let hooks: Vec<&String> = shop.created.iter().filter(|name| name.contains('-')).collect();
    assert_eq!(hooks, ["dump-2-1", "warm-2-1"], "each hook runs once");
}

#[test]
fn failed_pre_sync_hook_keeps_everything_as_it_was() {
    let mut shop = synced();
    let mut next = self::shop(2, "bad:1");
    next.workloads.insert("extra".into(), workload("db:1", 1));
    next.workloads.remove(&WorkloadName::from("warm"));
    next.networks.insert("shop_new".into(), Default::default());
    shop.git = next;
    shop.attempt(2);
    let plan = shop.rounds();
    assert_eq!(shop.running(), ["web=web:1", "web=web:1"], "{plan}");
    assert!(plan.to_string().contains("dump-2-1 failed: it has failed too often"), "{plan}");
    assert!(!shop.stage.world.observed.networks.contains_key("shop_new"));
    // A container that a user removes meanwhile comes back as it was.
    let id = shop.stage.named("shop-web-1").id.clone();
    shop.stage.world.observed.instances.remove(&id);
    shop.rounds();
    assert_eq!(shop.running(), ["web=web:1", "web=web:1"]);
    // Another attempt runs it again.
    shop.stage.world.observed.images.entry("good:2".into()).or_default();
    shop.attempt(2);
    shop.rounds();
    assert_eq!(shop.created.last().map(String::as_str), Some("dump-2-2"));
}

#[test]
fn service_of_a_failed_hook_starts_again_after_a_reboot() {
    let mut first = shop(1, "good:1");
    first.workloads.insert("worker".into(), workload("db:1", 1));
    let mut shop = Theatre::new(first);
    shop.attempt(1);
    shop.rounds();
    shop.begin_phase(HookPhase::PostSync);
    assert!(shop.rounds().is_settled());
    shop.git = self::shop(2, "bad:1");
    shop.attempt(2);
    shop.rounds();
    restart_engine(&mut shop.stage);
    let plan = shop.rounds();
    assert_eq!(shop.running(), ["web=web:1", "web=web:1", "worker=db:1"], "{plan}");
}

fn database(version: u8, dump: &str) -> Stack {
    let db = Workload { strategy: Rollout::Recreate, ..workload(&format!("db:{version}"), 1) };
    stack([("db", db), ("dump", hook("dump", dump, HookPhase::PreSync))])
}

/// A database that was synced at version 1, and that version 2 has replaced without becoming ready.
fn unready() -> Theatre {
    let mut shop = Theatre::new(database(1, "good:1"));
    shop.attempt(1);
    assert!(shop.rounds().is_settled());
    shop.stage.sick.insert("db:2".to_owned());
    shop.git = database(2, "good:1");
    shop.attempt(2);
    shop.rounds();
    assert_eq!(shop.running(), ["db=db:2"]);
    shop.created.clear();
    shop
}

#[test]
fn retry_keeps_the_newer_version_while_its_hooks_run_again() {
    let mut shop = unready();
    shop.attempt(2);
    for _ in 0..6 {
        let plan = shop.round();
        assert!(shop.running().contains(&"db=db:2".to_owned()), "{plan}");
    }
    assert_eq!(shop.created, ["dump-2-2"]);
    // It is lost while the hook runs: it comes back as it was, and not as the version before.
    shop.attempt(2);
    let id = shop.stage.named("shop-db-1").id.clone();
    shop.stage.world.observed.instances.remove(&id);
    let plan = shop.round();
    assert!(shop.running().contains(&"db=db:2".to_owned()), "{plan}");
    // It has run before, also if it cannot be started at first.
    shop.stage.named("shop-db-1").state = State::Created;
    let plan = shop.round();
    assert!(shop.running().contains(&"db=db:2".to_owned()), "{plan}");
}

#[test]
fn version_that_never_ran_is_not_kept_while_hooks_run() {
    for corrected in [2, 3] {
        let mut shop = Theatre::new(database(1, "good:1"));
        shop.attempt(1);
        assert!(shop.rounds().is_settled());
        shop.git = database(2, "good:1");
        shop.attempt(2);
        for _ in 0..20 {
            if shop.running() != ["db=db:2"] {
                shop.round();
            }
        }
        // The engine has refused to start it, and goes on to.
        shop.stage.named("shop-db-1").state = State::Created;
        let plan = shop.stage.round_cut_short(0, |_| 0);
        assert!(plan.begun.is_empty(), "{:?}", plan.begun);
        shop.git = database(corrected, "web:1");
        shop.attempt(3);
        let plan = shop.rounds();
        assert_eq!(shop.running(), ["db=db:1", "dump-3-1=web:1"], "{plan}");
    }
}

#[test]
fn correction_keeps_the_newer_version_while_its_hooks_run() {
    let mut shop = unready();
    let mut next = database(2, "web:1");
    next.workloads.insert("web".into(), workload("web:2", 1));
    shop.git = next;
    shop.attempt(3);
    let plan = shop.rounds();
    assert_eq!(shop.running(), ["db=db:2", "dump-3-1=web:1"], "{plan}");
    let id = shop.stage.named("shop-db-1").id.clone();
    shop.stage.world.observed.instances.remove(&id);
    let plan = shop.rounds();
    assert_eq!(shop.running(), ["db=db:2", "dump-3-1=web:1"], "{plan}");
}

#[test]
fn way_back_waits_for_hooks_only_while_something_serves() {
    let mut shop = unready();
    shop.stage.sick.clear();
    shop.stage.tick(Duration::from_secs(10));
    shop.git = database(1, "web:1");
    shop.attempt(3);
    let plan = shop.rounds();
    assert_eq!(shop.running(), ["db=db:2", "dump-3-1=web:1"], "{plan}");
    let mut shop = unready();
    shop.git = database(1, "web:1");
    shop.attempt(3);
    let plan = shop.rounds();
    assert_eq!(shop.running(), ["db=db:1", "dump-3-1=web:1"], "{plan}");
}

fn one_shot(content: &str) -> Workload {
    Workload { kind: WorkloadKind::default(), ..with_file(content, job("migrate", "good:2")) }
}

/// The file is a migration, and the hook saves the data first.
#[test]
fn changed_file_of_a_one_shot_waits_for_hooks() {
    let version = |content: &str, dump: &str| {
        stack([("migrate", one_shot(content)), ("dump", hook("dump", dump, HookPhase::PreSync))])
    };
    let mut shop = Theatre::new(version("one", "good:1"));
    shop.attempt(1);
    assert!(shop.rounds().is_settled());
    for (attempt, dump) in [(2, "web:1"), (3, "bad:1")] {
        shop.git = version("two", dump);
        shop.attempt(attempt);
        let plan = shop.rounds();
        assert_eq!(shop.stage.read_by("shop-migrate-1"), ("one".to_owned(), 1), "{plan}");
    }
    shop.git = version("two", "good:1");
    shop.attempt(4);
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert_eq!(shop.stage.read_by("shop-migrate-1"), ("two".to_owned(), 2));
}

#[test]
fn changed_file_waits_for_its_wave() {
    let version = |content: &str, image: &str| {
        let db = Workload { strategy: Rollout::Recreate, ..workload(image, 1) };
        let web = in_wave(1, with_file(content, workload("web:1", 1)));
        stack([("db", db), ("migrate", in_wave(1, one_shot(content))), ("web", web)])
    };
    let mut shop = Theatre::new(version("one", "db:1"));
    assert!(shop.rounds().is_settled());
    shop.stage.sick.insert("db:2".to_owned());
    shop.git = version("two", "db:2");
    let plan = shop.rounds();
    for name in ["shop-migrate-1", "shop-web-1"] {
        assert_eq!(shop.stage.read_by(name), ("one".to_owned(), 1), "{plan}");
    }
    assert_eq!(shop.stage.assess(&plan).sync, SyncStatus::OutOfSync, "{plan}");
    shop.stage.sick.clear();
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert_eq!(shop.stage.assess(&plan).sync, SyncStatus::Synced, "{plan}");
    for name in ["shop-migrate-1", "shop-web-1"] {
        assert_eq!(shop.stage.read_by(name), ("two".to_owned(), 2));
    }
}

/// One container is started again while the lower wave is not ready, and reads the secret.
#[test]
fn secret_read_at_a_start_does_not_end_the_wait_for_a_wave() {
    let version = |content: &str, image: &str| {
        let db = Workload { strategy: Rollout::Recreate, ..workload(image, 1) };
        let mut web = in_wave(1, with_file(content, workload("web:1", 2)));
        web.in_place.values_mut().for_each(|file| file.secret = true);
        stack([("db", db), ("web", web)])
    };
    let mut shop = Theatre::new(version("one", "db:1"));
    assert!(shop.rounds().is_settled());
    shop.stage.sick.insert("db:2".to_owned());
    shop.git = version("two", "db:2");
    shop.rounds();
    crash_web(&mut shop);
    let plan = shop.rounds();
    assert_eq!(shop.stage.read_by("shop-web-1"), ("two".to_owned(), 2), "{plan}");
    assert_eq!(shop.stage.read_by("shop-web-2"), ("one".to_owned(), 1), "{plan}");
    shop.stage.sick.clear();
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert_eq!(shop.stage.read_by("shop-web-2"), ("two".to_owned(), 2));
}

/// A shop whose service has a file, as it was synced at first.
fn shop_with_file() -> Theatre {
    let mut shop = Theatre::new(with_files("one", "db:1", "good:1"));
    shop.attempt(1);
    assert!(shop.rounds().is_settled());
    shop
}

fn with_files(content: &str, db: &str, dump: &str) -> Stack {
    let web = with_file(content, workload("web:1", 1));
    stack([("db", workload(db, 1)), ("web", web), ("dump", hook("dump", dump, HookPhase::PreSync))])
}

fn crash_web(shop: &mut Theatre) {
    let finished = shop.stage.now;
    shop.stage.named("shop-web-1").state =
        State::Exited { code: 1, finished, out_of_memory: false, error: String::new() };
    shop.rounds();
    assert!(shop.stage.named("shop-web-1").is_running());
}

#[test]
fn delivered_file_stays_while_hooks_of_a_newer_commit_run() {
    let mut shop = shop_with_file();
    // Its file is delivered, but the commit is not reached.
    shop.stage.sick.insert("db:2".to_owned());
    shop.git = with_files("two", "db:2", "good:1");
    shop.attempt(2);
    shop.rounds();
    assert_eq!(shop.stage.read_by("shop-web-1"), ("two".to_owned(), 2));
    for (attempt, content) in [(3, "two"), (4, "one"), (5, "three")] {
        shop.git = with_files(content, "db:1", "web:1");
        shop.attempt(attempt);
        let plan = shop.rounds();
        assert_eq!(shop.stage.read_by("shop-web-1"), ("two".to_owned(), 2), "{content}: {plan}");
    }
    // A start in between writes the same file.
    crash_web(&mut shop);
    assert_eq!(shop.stage.read_by("shop-web-1"), ("two".to_owned(), 3));
    // The hook fails, and the next commit reverts the file.
    shop.git = with_files("three", "db:1", "bad:1");
    shop.attempt(6);
    let plan = shop.rounds();
    assert_eq!(shop.stage.read_by("shop-web-1"), ("two".to_owned(), 3), "{plan}");
    shop.git = with_files("one", "db:1", "good:1");
    shop.attempt(7);
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert_eq!(shop.stage.read_by("shop-web-1"), ("one".to_owned(), 4));
}

#[test]
fn service_that_starts_while_hooks_run_keeps_its_file() {
    let mut shop = shop_with_file();
    shop.git = with_files("two", "db:1", "web:1");
    shop.attempt(2);
    let plan = shop.rounds();
    assert_eq!(shop.stage.assess(&plan).sync, SyncStatus::OutOfSync, "{plan}");
    crash_web(&mut shop);
    assert_eq!(shop.stage.read_by("shop-web-1"), ("one".to_owned(), 2));
    shop.git = with_files("two", "db:1", "bad:1");
    shop.attempt(3);
    shop.rounds();
    assert_eq!(shop.stage.read_by("shop-web-1"), ("one".to_owned(), 2));
    shop.git = with_files("two", "db:1", "good:1");
    shop.attempt(4);
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert_eq!(shop.stage.read_by("shop-web-1"), ("two".to_owned(), 3));
}

#[test]
fn newer_commit_replaces_the_hooks_of_the_one_that_waits() {
    let mut shop = synced();
    shop.git = self::shop(2, "db:1");
    shop.attempt(2);
    shop.rounds();
    assert!(shop.running().contains(&"dump-2-1=db:1".to_owned()), "it runs and runs: {:?}", shop.running());
    shop.git = self::shop(1, "good:1");
    assert!(is_held_by_hooks(&shop.git, &shop.stage.record));
    shop.attempt(3);
    shop.rounds();
    shop.begin_phase(HookPhase::PostSync);
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert_eq!(shop.running(), ["web=web:1", "web=web:1"]);
}

#[test]
fn hook_starts_once_that_of_the_commit_before_is_removed() {
    let mut shop = synced();
    shop.git = self::shop(2, "db:1");
    shop.attempt(2);
    shop.rounds();
    shop.git = self::shop(1, "good:1");
    shop.attempt(3);
    let plan = shop.round();
    assert!(is_created_after_removal(&plan, "dump-3-1", "shop-dump-2-1-1"), "{plan}");

    // The one that a person protects is waited for, and so is one that the engine removes for long.
    shop.git = self::shop(2, "db:1");
    shop.attempt(4);
    for change in [
        (|hook| Arc::make_mut(&mut hook.config).labels.extend([("driftless.prune".into(), "false".into())]))
            as fn(&mut Instance),
        |hook| hook.state = State::Removing,
    ] {
        shop.rounds();
        let old = shop.created.last().unwrap().clone();
        let former = shop.stage.named(&format!("shop-{old}-1"));
        let id = former.id.clone();
        change(former);
        let number = shop.stage.record.hooks.as_ref().unwrap().revision + 1;
        shop.attempt(number);
        let plan = shop.round();
        let words = format!("dump-{number}-1 waits for {old}: it has not ended");
        assert!(plan.to_string().contains(&words), "{plan}");
        assert_eq!(shop.created.last(), Some(&old));
        shop.stage.world.observed.instances.remove(&id);
    }
}

#[test]
fn hooks_of_one_phase_run_in_the_order_of_their_waves() {
    let mut shop = Theatre::new(stack([
        ("web", workload("web:1", 1)),
        ("a-second", in_wave(2, hook("a-second", "good:1", HookPhase::PreSync))),
        ("b-first", in_wave(-1, hook("b-first", "good:2", HookPhase::PreSync))),
    ]));
    shop.attempt(1);
    shop.rounds();
    assert_eq!(shop.created, ["b-first-1-1", "a-second-1-1", "web"]);
}

#[test]
fn deadline_of_a_hook_runs_from_its_turn() {
    let with_deadline = |name: &str, image: &str, wave: i32| {
        let mut hook = in_wave(wave, hook(name, image, HookPhase::PreSync));
        if let WorkloadKind::Hook { template, .. } = &mut hook.kind {
            template.active_deadline = Some(Duration::from_secs(30));
        }
        hook
    };
    let mut shop = Theatre::new(stack([
        ("web", workload("web:1", 1)),
        ("first", hook("first", "db:1", HookPhase::PreSync)),
        ("second", with_deadline("second", "good:1", 1)),
    ]));
    shop.attempt(1);
    shop.rounds();
    shop.stage.tick(Duration::from_secs(60));
    shop.rounds();
    assert_eq!(shop.created, ["first-1-1"]);
    shop.stage.finishing.insert("db:1".to_owned());
    let plan = shop.rounds();
    assert_eq!(shop.created, ["first-1-1", "second-1-1", "web"], "{plan}");
    assert!(plan.is_settled(), "{plan}");
}

#[test]
fn hook_of_several_containers_runs_in_its_own_pod() {
    let pod = || Peer::Workload("dump".into());
    let part = |name: &str, role: Role| {
        let network_mode = NetworkMode::Of(pod());
        let container = Container { network_mode, ..job(name, "good:1").container };
        Part {
            name: name.to_owned(),
            role,
            container,
            volumes: BTreeMap::new(),
            probes: Probes::default(),
            pull: PullPolicy::IfNotPresent,
            completion: Completion::OnSuccess,
        }
    };
    let parts = vec![part("first", Role::Init), part("dump", Role::App)];
    let dump = Workload { parts, ..hook("dump", HELPER_IMAGE, HookPhase::PreSync) };
    let mut shop = Theatre::new(stack([("web", workload("web:1", 1)), ("dump", dump)]));
    shop.attempt(1);
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert_eq!(shop.created, ["dump-1-1", "dump-1-1/first", "dump-1-1/dump", "web"]);
}

#[test]
fn hook_after_a_failure_never_decides_about_the_application() {
    let mut shop = Theatre::new(stack([
        ("web", workload("web:1", 1)),
        ("tell", hook("tell", "bad:1", HookPhase::SyncFail)),
    ]));
    shop.attempt(1);
    shop.rounds();
    shop.begin_phase(HookPhase::SyncFail);
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert!(plan.to_string().contains("tell-1-1 failed"), "{plan}");
}

#[test]
fn dependency_that_is_tried_again_has_not_failed() {
    let mut stage = Stage::new(stack([("sidecar", workload("app:1", 1))]));
    settle(&mut stage);
    stage.crashing.insert("app:1".to_owned());
    for _ in 0..6 {
        stage.tick(Duration::from_secs(5));
        stage.round();
    }
    let (workload_name, condition) = ("sidecar".into(), Condition::Healthy);
    let optional = Dependency { workload: workload_name, condition, required: false, restart: false };
    let web = Workload { after: vec![optional], ..workload("web:1", 1) };
    stage.stack.workloads.insert("web".into(), web);
    stage.crashing.clear();
    // As `driftless sync` does.
    assert!(stage.record.crashes.values().any(|crash| crash.count > 0));
    stage.record.crashes.values_mut().for_each(|crash| crash.count = 0);
    let plan = stage.round();
    let is_created = |plan: &Plan| {
        plan.steps.iter().any(|step| {
            matches!(&step.action, Action::CreateInstance(creation) if creation.instance.is_of(&"web".into()))
        })
    };
    assert!(!is_created(&plan), "{plan}");
    let plans = settle(&mut stage);
    assert!(plans.iter().any(is_created));
}

#[test]
fn optional_dependency_that_failed_for_good_blocks_nobody() {
    for (condition, required) in [
        (Condition::CompletedSuccessfully, false),
        (Condition::Healthy, false),
        (Condition::CompletedSuccessfully, true),
    ] {
        let mut migrate = workload("bad:1", 1);
        (migrate.completion, migrate.container.restart) = (Completion::OnSuccess, RestartPolicy::No);
        let mut stage = Stage::new(stack([("migrate", migrate)]));
        stage.crashing.insert("bad:1".to_owned());
        let rounds = |stage: &mut Stage| {
            (0..6)
                .map(|_| {
                    stage.tick(Duration::from_secs(5));
                    stage.round()
                })
                .collect::<Vec<Plan>>()
        };
        rounds(&mut stage);
        let dependency = Dependency { workload: "migrate".into(), condition, required, restart: false };
        let web = Workload { after: vec![dependency], ..workload("web:1", 1) };
        stage.stack.workloads.insert("web".into(), web);
        // As `driftless sync` does.
        assert!(stage.record.crashes.values().any(|crash| crash.count > 0));
        stage.record.crashes.values_mut().for_each(|crash| crash.count = 0);
        let last = rounds(&mut stage).pop().unwrap();
        let mut instances = stage.world.observed.instances.values();
        let is_created = instances.any(|instance| instance.instance.is_of(&"web".into()));
        assert_eq!(is_created, !required, "{condition:?} {last}");
        assert_eq!(last.to_string().contains("it ended with code 1"), required, "{condition:?} {last}");
    }
}

#[test]
fn removal_waits_for_its_hook_and_takes_dependants_first() {
    let dependency = |on: &str| Dependency {
        workload: on.into(),
        condition: Condition::Started,
        required: true,
        restart: false,
    };
    let web = Workload { after: vec![dependency("db")], ..workload("web:1", 2) };
    let git = stack([
        ("web", web),
        ("db", workload("db:1", 1)),
        ("late", in_wave(3, workload("web:2", 1))),
        ("dump", hook("dump", "good:1", HookPhase::PreDelete)),
    ]);
    let mut shop = Theatre::new(git.clone());
    shop.rounds();
    begin_removal(&mut shop.stage.record, &git, 1);
    let plan = shop.rounds();
    assert_eq!(shop.created.last().map(String::as_str), Some("dump-1-1"), "{plan}");
    assert_eq!(shop.running().len(), 4);
    assert!(shop.stage.record.hooks.as_ref().unwrap().deletable);
    let mut gone = git.clone();
    gone.workloads.clear();
    shop.git = gone;
    shop.stage.reached = Some(git);
    let mut order = Vec::new();
    for _ in 0..20 {
        let before = shop.removed.len();
        shop.round();
        order.extend(shop.removed[before..].iter().cloned());
        shop.stage.reached.get_or_insert_with(|| unreachable!());
        if shop.stage.world.observed.instances.is_empty() {
            break;
        }
    }
    let at =
        |name: &str| order.iter().position(|it| it == name).unwrap_or_else(|| panic!("{name}: {order:?}"));
    assert!(at("shop-late-1") < at("shop-web-1") && at("shop-web-2") < at("shop-db-1"), "{order:?}");
}

#[test]
fn removal_applies_no_commit_before_its_pre_sync_hooks() {
    let mut shop = synced();
    shop.git = self::shop(2, "bad:1");
    shop.git.workloads.insert("save".into(), hook("save", "good:1", HookPhase::PreDelete));
    shop.git.workloads.insert("extra".into(), workload("db:1", 1));
    shop.attempt(2);
    shop.rounds();
    // Also when a user asks for the removal again.
    for attempt in ["save-2-2", "save-2-3"] {
        begin_removal(&mut shop.stage.record, &shop.git, 2);
        let plan = shop.rounds();
        assert_eq!(shop.created.last().map(String::as_str), Some(attempt), "{plan}");
        assert_eq!(shop.running(), ["web=web:1", "web=web:1"], "{plan}");
        assert!(shop.stage.record.hooks.as_ref().unwrap().deletable);
        assert!(is_held_by_hooks(&shop.git, &shop.stage.record));
        assert!(!plan.to_string().contains("run first"), "{plan}");
    }
    // A commit whose hooks have succeeded goes on.
    shop.git = synced().git;
    shop.git.workloads.insert("save".into(), hook("save", "good:1", HookPhase::PreDelete));
    shop.attempt(3);
    shop.rounds();
    begin_removal(&mut shop.stage.record, &shop.git, 3);
    assert!(!is_held_by_hooks(&shop.git, &shop.stage.record));
}

#[test]
fn wave_waits_for_lower_waves_in_every_rollout() {
    let git = |version: u8| {
        stack([
            ("web", in_wave(2, workload(&format!("web:{version}"), 2))),
            ("migrate", in_wave(1, job("migrate", &format!("good:{version}")))),
            ("db", workload(&format!("db:{version}"), 1)),
        ])
    };
    let mut shop = Theatre::new(git(1));
    assert!(shop.rounds().is_settled());
    assert_eq!(shop.created, ["db", "migrate", "web", "web"]);
    shop.created.clear();
    shop.git = git(2);
    let plan = shop.round();
    assert!(plan.to_string().contains("web is of wave 2 and waits for db of wave 0"), "{plan}");
    assert!(shop.rounds().is_settled());
    assert_eq!(shop.created, ["db", "migrate", "web", "web"]);
}

#[test]
fn wave_after_one_that_never_becomes_ready_keeps_its_version() {
    let git = |version: u8| {
        stack([
            ("web", in_wave(1, workload(&format!("web:{version}"), 2))),
            ("db", workload(&format!("db:{version}"), 1)),
        ])
    };
    let mut shop = Theatre::new(git(1));
    assert!(shop.rounds().is_settled());
    shop.stage.sick.insert("db:2".into());
    shop.git = git(2);
    shop.rounds();
    assert!(shop.running().contains(&"web=web:1".to_owned()), "{:?}", shop.running());
    // A deadline counts from the turn of a wave.
    shop.stage.tick(Duration::from_secs(3600));
    shop.round();
    shop.stage.sick.clear();
    shop.stage.tick(Duration::from_secs(5));
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
}

#[test]
fn way_back_of_a_higher_wave_follows_its_rollback_settings() {
    let git = |version: u8| {
        let (strategy, min_ready) = (Rollout::Recreate, Duration::ZERO);
        let rollback = RollbackSettings { strategy, min_ready, failure: Default::default() };
        let web = in_wave(1, workload(&format!("web:{version}"), 2));
        let web = Workload { rollback: Some(Box::new(rollback)), ..web };
        stack([("web", web), ("db", workload(&format!("db:{version}"), 1))])
    };
    let mut shop = Theatre::new(git(1));
    assert!(shop.rounds().is_settled());
    shop.git = git(2);
    assert!(shop.rounds().is_settled());
    // A commit that failed after it was applied: all is as it says, and the version reached last is the one before.
    shop.stage.reached = Some(git(1));
    shop.removed.clear();
    shop.stage.sick.insert("db:1".to_owned());
    shop.git = git(1).for_rollback();
    let plan = shop.round();
    assert_eq!(shop.removed.len(), 2, "all old ones first: {plan}");
    assert!(!plan.to_string().contains("web is of wave 1"), "{plan}");
    let plan = shop.rounds();
    assert!(shop.running().starts_with(&["db=db:1".to_owned()]), "{plan}");
    assert!(shop.running().ends_with(&["web=web:1".to_owned(), "web=web:1".to_owned()]), "{plan}");
}

#[test]
fn healing_does_not_wait_for_waves() {
    let git = stack([("web", in_wave(1, workload("web:1", 1))), ("db", workload("db:1", 1))]);
    let mut shop = Theatre::new(git);
    assert!(shop.rounds().is_settled());
    shop.stage.world.observed.instances.clear();
    let plan = shop.round();
    let made = plan.steps.iter().filter(|it| matches!(it.action, Action::CreateInstance(_))).count();
    assert_eq!(made, 2, "{plan}");
}

#[test]
fn completed_job_is_not_run_again_by_a_rollback() {
    let git = |version: u8| {
        stack([
            ("web", workload(&format!("web:{version}"), 1)),
            ("migrate", job("migrate", &format!("good:{version}"))),
        ])
    };
    let mut shop = Theatre::new(git(1));
    shop.rounds();
    shop.git = git(2);
    shop.rounds();
    shop.created.clear();
    shop.git = git(1);
    let plan = shop.rounds();
    assert!(plan.is_settled(), "{plan}");
    assert!(!shop.created.contains(&"migrate".to_owned()), "{:?}", shop.created);
}

fn any_wave() -> impl Strategy<Value = Vec<(i32, u32, u8)>> {
    proptest::collection::vec((-1..3_i32, 1..3_u32, 1..3_u8), 1..5)
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn waves(all: &[(i32, u32, u8)]) -> Stack {
    let one = |(index, (wave, replicas, version)): (usize, &(i32, u32, u8))| {
        (NAMES[index], in_wave(*wave, workload(&format!("web:{version}"), *replicas)))
    };
    stack(all.iter().enumerate().map(one))
}

fn is_done(shop: &Theatre, name: &WorkloadName, wanted: &Workload) -> bool {
    let spec = wanted.spec();
    let all: Vec<_> =
        shop.stage.world.observed.instances.values().filter(|it| it.instance.workload == *name).collect();
    let good = all.iter().filter(|it| it.is_available(wanted.min_ready, shop.stage.now)).count();
    all.iter().all(|it| it.spec == spec) && good >= wanted.replicas as usize
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_wave_begins_before_the_lower_ones_are_done(
        first in any_wave(), then in any_wave(), cuts in proptest::collection::vec(0..4_usize, 30), seed in 0..97_usize,
    ) {
        let mut shop = Theatre::new(waves(&first));
        prop_assert!(shop.rounds().is_settled());
        shop.git = waves(&then);
        for cut in cuts {
            let done: BTreeMap<WorkloadName, bool> =
                shop.git.workloads.iter().map(|(name, it)| (name.clone(), is_done(&shop, name, it))).collect();
            shop.stage.stack = shop.git.clone();
            let plan = shop.stage.round_cut_short(cut, |ready| seed % ready);
            if plan.is_settled() {
                break;
            }
            for step in &plan.steps {
                let Action::CreateInstance(creation) = &step.action else { continue };
                let of = &creation.instance.workload;
                let wanted = &shop.git.workloads[of];
                if creation.spec != wanted.spec() || first.len() == then.len() && first == then {
                    continue;
                }
                for (name, lower) in shop.git.workloads.iter().filter(|(_, it)| it.wave < wanted.wave) {
                    let was_so = shop.stage.reached.as_ref().and_then(|it| it.workloads.get(of));
                    let heals = was_so.is_some_and(|it| it.is_like(wanted));
                    prop_assert!(done[name] || heals, "{of} before {name} ({}): {plan}", lower.wave);
                }
            }
            shop.stage.tick(Duration::from_secs(1));
        }
        let plan = shop.rounds();
        prop_assert!(plan.is_settled(), "{plan}");
    }
}

#[test]
fn runs_of_hooks_are_no_part_of_the_stack_of_git() {
    let mut shop = synced();
    let hash = driftless_model::StackHash::of(&shop.git);
    shop.attempt(2);
    let whole = with_runs(&shop.git, &shop.stage.record).into_owned();
    assert_eq!(driftless_model::StackHash::of(&whole), hash);
    assert!(whole.workloads.contains_key(&WorkloadName::from("dump-2-1")));
    assert!(!whole.workloads.contains_key(&WorkloadName::from("warm-2-1")), "its phase has not begun");
    let text = serde_json::to_string(&shop.stage.record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), shop.stage.record);
    let states: BTreeSet<bool> = shop
        .stage
        .world
        .observed
        .instances
        .values()
        .map(|it| matches!(it.state, State::Exited { .. }))
        .collect();
    assert_eq!(states.len(), 2, "the containers of hooks are kept for their logs");
    assert!(shop.stage.now > NOON);
}
