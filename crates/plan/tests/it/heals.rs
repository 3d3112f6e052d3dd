//! The pauses between heals: a fight is slowed down, and a storm that has passed is not waited for.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    Attachment, Condition, ContainerId, Dependency, Network, NetworkMode, Peer, PullPolicy, Replacement,
    State, Timestamp,
};
use driftless_plan::{Plan, WaitReason};

use crate::fixture::{Stage, stack, workload};

const SECOND: Duration = Duration::from_secs(1);

/// Removes the container of this name, as `docker rm -f` does.
fn remove(stage: &mut Stage, name: &str) {
    stage.world.observed.instances.retain(|_, it| it.name != name);
}

/// Stops the container of this name, as `docker stop` does.
fn stop(stage: &mut Stage, name: &str) {
    let now = stage.now;
    let instance = stage.named(name);
    let error = String::new();
    instance.state = State::Exited { code: 137, finished: now, out_of_memory: false, error };
    instance.touched_by_hand = Some(now);
}

/// The rounds until the stack is reached. Differences that are left are not waited for.
fn reach(stage: &mut Stage) -> Plan {
    for _ in 0..60 {
        let plan = stage.round();
        if plan.is_reached() {
            return plan;
        }
        stage.tick(SECOND);
    }
    panic!("the stack is never reached: {}", stage.round());
}

/// The rounds of a second: each change is observed.
fn rounds(stage: &mut Stage) {
    for _ in 0..3 {
        stage.round();
    }
    stage.tick(SECOND);
}

/// A request to restart a workload.
fn restart(stage: &mut Stage, name: &str) {
    let all = stage.world.observed.instances.values();
    let ids: Vec<ContainerId> =
        all.filter(|it| it.instance.workload.as_str() == name).map(|it| it.id.clone()).collect();
    assert!(!ids.is_empty(), "{name} has no container");
    stage.record.replaced.extend(ids.into_iter().map(|id| (id, Replacement::Restart)));
    stage.record.reopen([name.into()]);
}

/// The names of what differs, and is left or undone.
fn differing(plan: &Plan) -> BTreeSet<&str> {
    plan.drifts.iter().map(|drift| drift.object.as_str()).collect()
}

fn dependency(on: &str, condition: Condition) -> Dependency {
    Dependency { workload: on.into(), condition, restart: false, required: true }
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
    undone_each_time(|stage| stop(stage, "shop-web-1"));
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

/// A commit is applied without self-heal too, also if only the name of a container changes.
#[test]
fn new_container_name_is_given_without_self_heal() {
    let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
    stage.policy.self_heal = false;
    while !stage.round().is_settled() {
        stage.tick(SECOND);
    }
    let name = |stage: &Stage| stage.world.observed.instances.values().next().unwrap().name.clone();
    stage.stack.workloads.get_mut(&"web".into()).unwrap().container_name = Some("the-web".to_owned());
    for _ in 0..20 {
        rounds(&mut stage);
    }
    assert_eq!(name(&stage), "the-web");
    assert!(stage.round().is_settled());
    // The same by hand is only reported.
    stage.named("the-web").name = "another".to_owned();
    for _ in 0..5 {
        rounds(&mut stage);
    }
    assert_eq!(name(&stage), "another");
    assert_eq!(stage.round().drifts.len(), 1);
}

/// The engine cannot make the network again at once, and the next commit mends that.
#[test]
fn network_of_a_commit_is_connected_without_self_heal() {
    let mut web = workload("web:1", 1);
    let attachment = Box::new(Attachment::default());
    web.container.network_mode = NetworkMode::Networks([("shop_default".to_owned(), attachment)].into());
    let mut wanted = stack([("web", web)]);
    wanted.networks.insert("shop_default".to_owned(), Network::default());
    let mut stage = Stage::new(wanted);
    stage.policy.self_heal = false;
    while !stage.round().is_settled() {
        stage.tick(SECOND);
    }
    let connected = |stage: &Stage| {
        stage.world.observed.instances.values().all(|it| it.networks.contains_key("shop_default"))
    };
    assert!(connected(&stage));
    // As an agent that was killed after the disconnection of what was attached.
    stage.named("shop-web-1").networks.clear();
    stage.record.settled = None;
    for _ in 0..10 {
        rounds(&mut stage);
    }
    assert!(connected(&stage), "{}", stage.round());
    // The same by hand is only reported.
    stage.named("shop-web-1").networks.clear();
    for _ in 0..5 {
        rounds(&mut stage);
    }
    assert!(!connected(&stage));
}

/// A commit has succeeded once everything of it is applied. What was changed before by hand is left, and stays drift.
#[test]
fn commit_is_reached_while_differences_are_left() {
    let workloads =
        [("cron", workload("cron:1", 1)), ("db", workload("db:1", 1)), ("web", workload("web:1", 2))];
    let mut stage = Stage::new(stack(workloads));
    stage.policy.self_heal = false;
    reach(&mut stage);
    stage.named("shop-db-1").live.resources.memory = Some(1 << 30);
    stop(&mut stage, "shop-cron-1");
    stage.stack.workloads.get_mut(&"web".into()).unwrap().container.image = "web:2".to_owned();
    let plan = reach(&mut stage);
    assert_eq!(differing(&plan), BTreeSet::from(["shop-cron-1", "shop-db-1"]), "{plan}");
    assert!(!plan.is_settled());
    assert_eq!(running(&stage), 3);
    // From then on, what is removed is drift as well.
    remove(&mut stage, "shop-db-1");
    for _ in 0..5 {
        rounds(&mut stage);
    }
    assert_eq!(running(&stage), 2, "{}", stage.round());
}

/// The older instances still have to be replaced.
#[test]
fn stopped_new_instance_does_not_end_its_rollout() {
    let mut stage = Stage::new(stack([("web", workload("web:1", 2))]));
    stage.policy.self_heal = false;
    reach(&mut stage);
    stage.stack.workloads.get_mut(&"web".into()).unwrap().container.image = "web:2".to_owned();
    stage.round();
    stop(&mut stage, "shop-web-3");
    for _ in 0..5 {
        let plan = stage.round();
        assert!(!plan.is_reached() && !plan.is_applied(), "{plan}");
        stage.tick(SECOND);
    }
}

/// Without self-heal, a request is about its own workloads and what follows them. The rest stays as somebody left it.
#[test]
fn request_creates_nothing_that_was_removed_by_hand() {
    let mut guest = workload("guest:1", 1);
    guest.container.network_mode = NetworkMode::Of(Peer::Workload("web".into()));
    let workloads = [("db", workload("db:1", 1)), ("guest", guest), ("web", workload("web:1", 1))];
    let mut stage = Stage::new(stack(workloads));
    stage.policy.self_heal = false;
    reach(&mut stage);
    remove(&mut stage, "shop-db-1");
    rounds(&mut stage);
    let ids =
        |stage: &Stage| -> BTreeSet<ContainerId> { stage.world.observed.instances.keys().cloned().collect() };
    let before = ids(&stage);
    restart(&mut stage, "web");
    let plan = reach(&mut stage);
    assert_eq!(running(&stage), 2, "{plan}");
    assert!(ids(&stage).is_disjoint(&before), "the guest follows: {plan}");
    assert_eq!(differing(&plan), BTreeSet::from(["shop-db-1"]), "{plan}");
    assert!(stage.record.settled.is_some() && stage.record.reopened.is_none());
    let slots = stage.record.slots.get(&"db".into()).cloned();
    assert_eq!(slots, Some(BTreeSet::from([1])), "it has its place when it comes back");
}

/// An image that is always pulled is asked for when an instance is made of it. Each pull is followed by another round.
#[test]
fn image_of_an_instance_that_is_left_is_not_pulled() {
    let mut web = workload("web:1", 1);
    web.pull = PullPolicy::Always;
    let mut stage = Stage::new(stack([("web", web)]));
    stage.policy.self_heal = false;
    reach(&mut stage);
    remove(&mut stage, "shop-web-1");
    let plan = stage.round();
    assert!(plan.steps.is_empty() && plan.is_reached(), "{plan}");
    // Nor is it between two heals.
    stage.policy.self_heal = true;
    let plan = stage.round();
    assert!(plan.to_string().contains("pull web:1"), "{plan}");
    let is_paused = |plan: &Plan| plan.waits.iter().any(|wait| wait.is(WaitReason::HealBackOff));
    let mut again = (0..5).map(|_| {
        remove(&mut stage, "shop-web-1");
        stage.round()
    });
    let plan = again.find(is_paused).unwrap();
    assert!(plan.steps.is_empty(), "{plan}");
}

/// A database is restored, and the workload that depends on it was taken down with it.
#[test]
fn dependant_that_was_removed_too_is_left_as_well() {
    let mut web = workload("web:1", 1);
    web.after = vec![dependency("db", Condition::Started)];
    let workloads = [("api", workload("api:1", 1)), ("db", workload("db:1", 1)), ("web", web)];
    let mut stage = Stage::new(stack(workloads));
    stage.policy.self_heal = false;
    reach(&mut stage);
    remove(&mut stage, "shop-web-1");
    remove(&mut stage, "shop-db-1");
    restart(&mut stage, "api");
    let plan = reach(&mut stage);
    assert_eq!(running(&stage), 1, "{plan}");
    assert_eq!(differing(&plan), BTreeSet::from(["shop-db-1", "shop-web-1"]), "{plan}");
    assert!(stage.record.settled.is_some() && stage.record.reopened.is_none());
}

#[test]
fn request_waits_for_no_lower_wave_that_is_left_down() {
    let mut web = workload("web:1", 1);
    web.wave = 1;
    let mut stage = Stage::new(stack([("db", workload("db:1", 1)), ("web", web)]));
    stage.policy.self_heal = false;
    reach(&mut stage);
    remove(&mut stage, "shop-db-1");
    restart(&mut stage, "web");
    let before = stage.named("shop-web-1").id.clone();
    let plan = reach(&mut stage);
    assert!(!stage.world.observed.instances.contains_key(&before), "{plan}");
    assert_eq!(differing(&plan), BTreeSet::from(["shop-db-1"]), "{plan}");
}

/// It waits for a person, and has all of its time after that.
#[test]
fn dependant_of_a_stopped_workload_is_not_late() {
    let mut web = workload("web:1", 1);
    web.after = vec![dependency("db", Condition::Healthy)];
    let mut stage = Stage::new(stack([("db", workload("db:1", 1)), ("web", web)]));
    stage.policy.self_heal = false;
    reach(&mut stage);
    stop(&mut stage, "shop-db-1");
    stage.stack.workloads.get_mut(&"web".into()).unwrap().container.image = "web:2".to_owned();
    let is_late = |plan: &Plan| plan.waits.iter().any(|wait| wait.is(WaitReason::ProgressDeadlineExceeded));
    for _ in 0..40 {
        let plan = stage.round();
        assert!(!is_late(&plan) && !plan.is_reached(), "{plan}");
        stage.tick(Duration::from_mins(1));
    }
}

/// Two workloads on a network and one that does not use it, without self-heal.
fn with_network() -> Stage {
    let on_default = |image: &str| {
        let mut workload = workload(image, 1);
        let networks = [("shop_default".to_owned(), Box::new(Attachment::default()))].into();
        workload.container.network_mode = NetworkMode::Networks(networks);
        workload
    };
    let workloads = [("api", workload("api:1", 1)), ("db", on_default("db:1")), ("web", on_default("web:1"))];
    let mut wanted = stack(workloads);
    wanted.networks.insert("shop_default".to_owned(), Network::default());
    let mut stage = Stage::new(wanted);
    stage.policy.self_heal = false;
    reach(&mut stage);
    assert_eq!(connected(&stage), 2);
    stage
}

/// The number of containers on the network of [`with_network`].
fn connected(stage: &Stage) -> usize {
    let all = stage.world.observed.instances.values();
    all.filter(|it| it.networks.contains_key("shop_default")).count()
}

/// Takes all off the network and removes it, as `docker network disconnect` and `docker network rm` do.
fn remove_network(stage: &mut Stage) {
    stage.world.observed.networks.remove("shop_default");
    for name in ["shop-db-1", "shop-web-1"] {
        stage.named(name).networks.clear();
    }
}

/// A removed network is left for requests about workloads that do not use it. For one that does, it is made again, with all members.
#[test]
fn removed_network_is_made_again_for_all_or_for_none() {
    let mut stage = with_network();
    remove_network(&mut stage);
    restart(&mut stage, "api");
    let plan = reach(&mut stage);
    assert!(stage.world.observed.networks.is_empty() && differing(&plan).contains("shop_default"), "{plan}");
    restart(&mut stage, "web");
    let plan = reach(&mut stage);
    assert_eq!((connected(&stage), plan.drifts.len()), (2, 0), "{plan}");
    // A member that somebody takes off a network that is there stays off.
    stage.named("shop-db-1").networks.clear();
    restart(&mut stage, "web");
    let plan = reach(&mut stage);
    assert_eq!(connected(&stage), 1, "{plan}");
    assert_eq!(differing(&plan), BTreeSet::from(["shop-db-1"]), "{plan}");
}

/// As when the agent ends, or a step after that of the network fails.
#[test]
fn members_of_a_new_network_are_connected_in_a_later_round() {
    let mut stage = with_network();
    remove_network(&mut stage);
    restart(&mut stage, "web");
    for _ in 0..10 {
        if stage.world.observed.networks.is_empty() {
            stage.round_cut_short(1, |_| 0);
        }
    }
    assert!(stage.world.observed.networks.contains_key("shop_default"));
    assert_eq!(connected(&stage), 0);
    let plan = reach(&mut stage);
    assert_eq!((connected(&stage), plan.drifts.len()), (2, 0), "{plan}");
}
