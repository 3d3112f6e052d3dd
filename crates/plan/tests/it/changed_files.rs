//! Files rewritten in place, whose change restarts their containers: what waits for it, and what it waits for.

use std::time::Duration;

use driftless_model::{Completion, Condition, Dependency, RestartPolicy, Stack, Strategy};

use crate::stage::{Stage, stack, with_file, workload};

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
    let mut stage = Stage::new(migration("one", "web:1", is_by_wave));
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
