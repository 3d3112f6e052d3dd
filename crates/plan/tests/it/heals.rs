//! The pauses between heals: a fight is slowed down, and a storm that has passed is not waited for.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{State, Timestamp};

use crate::stage::{Stage, stack, workload};

const SECOND: Duration = Duration::from_secs(1);

/// Removes the container of this name, as `docker rm -f` does.
fn remove(stage: &mut Stage, name: &str) {
    stage.world.observed.instances.retain(|_, it| it.name != name);
}

/// The rounds of a second: each change is observed.
fn rounds(stage: &mut Stage) {
    for _ in 0..3 {
        stage.round();
    }
    stage.tick(SECOND);
}

fn running(stage: &Stage) -> usize {
    stage.world.observed.instances.values().filter(|it| it.is_running()).count()
}

#[test]
fn pauses_end_when_a_storm_of_removals_has_passed() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut stage = Stage::new(stack(names.map(|name| (name, workload("web:1", 1)))));
    while !stage.round().is_settled() {
        stage.tick(SECOND);
    }
    // Each container is removed about eight times in two minutes.
    for second in 0..120 {
        for step in 0..2 {
            let victim = names[(second * 5 + step * 3 + second / 7) % names.len()];
            remove(&mut stage, &format!("shop-{victim}-1"));
        }
        rounds(&mut stage);
    }
    assert!(running(&stage) < names.len(), "the pauses are longer than the storm");
    let peace = stage.now;
    while running(&stage) < names.len() {
        rounds(&mut stage);
        assert!(stage.now.since(peace) < Duration::from_mins(10), "{:#?}", stage.record.heals);
    }
    let taken = stage.now.since(peace);
    assert!(
        taken < Duration::from_secs(45),
        "all are back after {taken:?} of peace: {:#?}",
        stage.record.heals
    );
}

/// A change that is made again before each round is undone each time, after pauses.
fn undone_each_time(change: impl Fn(&mut Stage)) {
    let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
    while !stage.round().is_settled() {
        stage.tick(SECOND);
    }
    for _ in 0..5 {
        stage.tick(Duration::from_mins(1));
        change(&mut stage);
        let plan = stage.round();
        assert_eq!(running(&stage), 1, "{plan}");
    }
    stage.tick(SECOND);
    assert!(stage.round().is_settled());
}

#[test]
fn container_removed_before_each_round_is_created_each_time() {
    undone_each_time(|stage| remove(stage, "shop-web-1"));
}

#[test]
fn container_stopped_before_each_round_is_started_each_time() {
    undone_each_time(|stage| {
        let now = stage.now;
        let instance = stage.named("shop-web-1");
        let error = String::new();
        instance.state = State::Exited { code: 137, finished: now, out_of_memory: false, error };
        instance.touched_by_hand = Some(now);
    });
}

#[test]
fn fight_over_one_container_is_slowed_down() {
    let mut stage = Stage::new(stack([("web", workload("web:1", 1)), ("db", workload("db:1", 1))]));
    while !stage.round().is_settled() {
        stage.tick(SECOND);
    }
    let mut heals: BTreeMap<Timestamp, ()> = BTreeMap::new();
    for _ in 0..1200 {
        if stage.world.observed.instances.values().any(|it| it.name == "shop-web-1" && it.is_running()) {
            remove(&mut stage, "shop-web-1");
            heals.insert(stage.now, ());
        }
        rounds(&mut stage);
    }
    let at: Vec<u64> = heals.keys().map(|at| at.since(*heals.keys().next().unwrap()).as_secs()).collect();
    let pauses: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [1, 2, 6, 18, 54, 162, 300, 300, 300]);
}
