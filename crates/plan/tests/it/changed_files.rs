//! Files rewritten in place, whose change restarts their containers: what waits for it, and what it waits for.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    Attachment, Completion, Concurrency, Condition, Cron, Dependency, Job, Network, NetworkMode,
    RestartPolicy, Stack, State, Strategy, Workload, WorkloadKind,
};
use driftless_plan::{schedule, with_runs};

use crate::fixture::{Stage, stack, with_file, workload};

/// A migration that a changed file runs again, and a service that waits until it has completed, or for its wave.
fn migration(content: &str, web: &str, is_by_wave: bool) -> Stack {
    let mut migrate = with_file(content, workload("migrate:1", 1));
    (migrate.strategy, migrate.completion) = (Strategy::Recreate, Completion::OnSuccess);
    migrate.container.restart = RestartPolicy::No;
    let mut web = workload(web, 1);
    if is_by_wave {
        web.wave = 1;
    } else {
        let condition = Condition::CompletedSuccessfully;
        web.after =
            vec![Dependency { workload: "migrate".into(), condition, restart: false, required: true }];
    }
    stack([("migrate", migrate), ("web", web)])
}

/// The migration has run with its first file.
fn migrated(is_by_wave: bool) -> Stage {
    migrated_to(migration("one", "web:1", is_by_wave))
}

/// The migration of a stack has run.
fn migrated_to(stack: Stack) -> Stage {
    let mut stage = Stage::new(stack);
    for image in ["web:1", "web:2", "migrate:1"] {
        stage.world.observed.images.entry(image.to_owned()).or_default();
    }
    stage.finishing.insert("migrate:1".to_owned());
    rounds(&mut stage);
    stage
}

/// Rounds until all is as Git says.
fn rounds(stage: &mut Stage) {
    for _ in 0..60 {
        if stage.round().is_settled() {
            return;
        }
        stage.tick(Duration::from_secs(10));
    }
    panic!("{}", stage.round());
}

fn is_made_of(stage: &Stage, image: &str) -> bool {
    stage.world.observed.instances.values().any(|instance| instance.config.image == image)
}

#[test]
fn dependants_wait_until_a_migration_has_run_with_its_file() {
    for is_by_wave in [false, true] {
        let mut stage = migrated(is_by_wave);
        stage.finishing.clear();
        stage.stack = migration("two", "web:2", is_by_wave);
        // A higher wave does not wait for its end.
        let waiting = if is_by_wave { 1 } else { 4 };
        for _ in 0..waiting {
            let plan = stage.round();
            assert!(!is_made_of(&stage, "web:2"), "{plan}");
            stage.tick(Duration::from_secs(10));
        }
        assert_eq!(stage.read_by("shop-migrate-1"), ("two".to_owned(), 2));
        stage.finishing.insert("migrate:1".to_owned());
        rounds(&mut stage);
        assert!(is_made_of(&stage, "web:2") && !is_made_of(&stage, "web:1"));
        assert_eq!(stage.read_by("shop-migrate-1"), ("two".to_owned(), 2));
    }
}

/// Nothing runs on its network, so `docker network prune` removes it, and the agent creates it again.
#[test]
fn migration_without_its_network_runs_with_its_file() {
    let version = |content: &str, web: &str| {
        let mut version = migration(content, web, false);
        let networks = [("shop_setup".to_owned(), Box::new(Attachment::default()))].into();
        version.networks.insert("shop_setup".to_owned(), Network::default());
        let migrate = version.workloads.get_mut(&"migrate".into()).unwrap();
        migrate.container.network_mode = NetworkMode::Networks(networks);
        version
    };
    let mut stage = migrated_to(version("one", "web:1"));
    stage.world.observed.networks.get_mut("shop_setup").unwrap().id = "another".to_owned();
    let id = stage.named("shop-migrate-1").id.clone();
    stage.round();
    assert_eq!(stage.named("shop-migrate-1").id, id, "it has done its work");
    stage.stack = version("two", "web:2");
    rounds(&mut stage);
    assert!(is_made_of(&stage, "web:2") && !is_made_of(&stage, "web:1"));
    assert_ne!(stage.named("shop-migrate-1").id, id);
    assert_eq!(stage.read_by("shop-migrate-1"), ("two".to_owned(), 1));
}

/// The commit leaves it as it is, and its container is lost before the migration runs again.
#[test]
fn unchanged_dependant_comes_back_before_a_changed_migration() {
    let mut stage = migrated(false);
    let id = stage.named("shop-web-1").id.clone();
    stage.world.observed.instances.remove(&id);
    stage.finishing.clear();
    stage.stack = migration("two", "web:1", false);
    let plan = stage.round();
    assert!(stage.named("shop-web-1").is_running(), "{plan}");
}

/// The commit has an image that the registry lacks.
#[test]
fn changed_migration_waits_for_the_images_of_its_commit() {
    let mut stage = migrated(false);
    stage.world.observed.images.remove("web:2");
    stage.world.registry = Some(BTreeSet::from(["web:1".to_owned()]));
    stage.stack = migration("two", "web:2", false);
    for _ in 0..10 {
        let plan = stage.round();
        assert_eq!(stage.read_by("shop-migrate-1"), ("one".to_owned(), 1), "{plan}");
        stage.tick(Duration::from_mins(1));
    }
    stage.world.registry = None;
    rounds(&mut stage);
    assert_eq!(stage.read_by("shop-migrate-1"), ("two".to_owned(), 2));
}

/// The same with a backup each minute, which needs the migration.
fn with_backup(content: &str, web: &str) -> Stack {
    let mut all = migration(content, web, false);
    let schedule = Cron {
        schedule: "* * * * *".to_owned(),
        zone: None,
        concurrency: Concurrency::Allow,
        starting_deadline: None,
        suspended: false,
        keep_successful: 3,
        keep_failed: 1,
    };
    let mut backup = workload("dump:1", 0);
    backup.after.clone_from(&all.workloads[&"web".into()].after);
    (backup.strategy, backup.completion) = (Strategy::Recreate, Completion::OnSuccess);
    backup.container.restart = RestartPolicy::No;
    let kind = WorkloadKind::CronJob { schedule, template: Job::once("backup".into()) };
    all.workloads.insert("backup".into(), Workload { kind, ..backup });
    all
}

/// It belongs to no commit, and one whose image is missing may wait for days.
#[test]
fn scheduled_run_does_not_wait_for_a_commit_that_is_held() {
    let mut stage = migrated_to(with_backup("one", "web:1"));
    stage.world.observed.images.entry("dump:1".to_owned()).or_default();
    stage.finishing.insert("dump:1".to_owned());
    stage.world.observed.images.remove("web:2");
    stage.world.registry = Some(BTreeSet::from(["web:1".to_owned()]));
    let git = with_backup("two", "web:2");
    // Five minutes.
    for _ in 0..30 {
        let now = stage.now;
        schedule(&mut stage.record, &git, now);
        stage.stack = with_runs(&git, &stage.record).into_owned();
        let plan = stage.round();
        assert_eq!(stage.read_by("shop-migrate-1"), ("one".to_owned(), 1), "{plan}");
        stage.tick(Duration::from_secs(10));
    }
    assert!(is_made_of(&stage, "dump:1"), "{}", stage.round());
}

/// The image that is missing may come through the service that crashes.
#[test]
fn crashing_service_gets_its_file_without_the_other_image() {
    let version = |content: &str, app: &str| {
        stack([("app", workload(app, 1)), ("web", with_file(content, workload("web:1", 1)))])
    };
    let mut stage = Stage::new(version("one", "app:1"));
    rounds(&mut stage);
    stage.world.registry = Some(BTreeSet::new());
    stage.stack = version("two", "app:2");
    // One crash moves nothing.
    stage.round();
    end_web(&mut stage);
    stage.round();
    stage.tick(Duration::from_secs(1));
    stage.round();
    assert_eq!(stage.read_by("shop-web-1"), ("one".to_owned(), 2));
    stage.crashing.insert("web:1".to_owned());
    for _ in 0..4 {
        stage.tick(Duration::from_mins(1));
        stage.round();
    }
    stage.crashing.clear();
    let (content, times) = stage.read_by("shop-web-1");
    assert_eq!(content, "two");
    for _ in 0..10 {
        stage.tick(Duration::from_mins(1));
        let plan = stage.round();
        let (content, again) = stage.read_by("shop-web-1");
        assert_eq!(content, "two", "{plan}");
        assert!(again <= times + 1, "{plan}");
    }
    assert!(stage.named("shop-web-1").is_running() && !is_made_of(&stage, "app:2"));
}

/// The service ends by itself.
fn end_web(stage: &mut Stage) {
    let finished = stage.now;
    stage.named("shop-web-1").state =
        State::Exited { code: 1, finished, out_of_memory: false, error: String::new() };
}
