//! Services that Git does not have any more and that stay, because the commit that drops them cannot be applied yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    Attachment, Completion, ContainerId, ContentId, HostSource, Mount, MountSource, Network, NetworkMode,
    Port, PortRange, Protocol, RestartPolicy, SharedPlace, SharingServices, Stack, State, Volume, Workload,
};
use driftless_plan::{Action, Plan, WaitReason};

use crate::{
    fixture::{Stage, stack, workload},
    prune::settle,
    shared_data::of_app,
};

/// The engine ends all that runs, as in a restart of the host, and starts nothing again.
pub(crate) fn restart_engine(stage: &mut Stage) {
    let finished = stage.now;
    for instance in stage.world.observed.instances.values_mut().filter(|it| it.is_running()) {
        let error = String::new();
        instance.state = State::Exited { code: 137, finished, out_of_memory: false, error };
    }
    stage.now = finished.after(Duration::from_secs(2));
    stage.world.observed.engine_started = Some(finished.after(Duration::from_secs(1)));
}

const GIVEN_AWAY: &str = "Git has given the volume `shop_data` to application `two`";

/// One that writes to the volume.
fn database(image: &str) -> Workload {
    let mut database = workload(image, 1);
    let source = MountSource::Volume { name: "shop_data".to_owned(), no_copy: false };
    database.container.mounts.push(Mount { target: "/data".to_owned(), source, read_only: false });
    database
}

fn shop(workloads: impl IntoIterator<Item = (&'static str, Workload)>) -> Stack {
    let mut shop = stack(workloads);
    shop.volumes.insert("shop_data".into(), Volume { key: "data".into(), ..Volume::default() });
    shop
}

/// Half a minute of rounds.
fn rounds(stage: &mut Stage) -> Vec<Plan> {
    (0..12)
        .map(|_| {
            let plan = stage.round();
            stage.tick(Duration::from_millis(2500));
            plan
        })
        .collect()
}

fn running(stage: &Stage) -> Vec<&str> {
    let instances = stage.world.observed.instances.values().filter(|it| it.is_running());
    let mut names: Vec<&str> = instances.map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// The database has another name and version in Git, and the new image of another service cannot be pulled.
fn renamed() -> Stage {
    let mut stage = Stage::new(shop([("db", database("db:16")), ("web", workload("web:1", 1))]));
    settle(&mut stage);
    stage.stack = shop([("database", database("db:17")), ("web", workload("web:2", 1))]);
    stage.world.registry = Some(["db:16", "db:17", "web:1"].map(str::to_owned).into());
    rounds(&mut stage);
    stage
}

#[test]
fn renamed_database_starts_again_while_an_image_is_missing() {
    let mut stage = renamed();
    restart_engine(&mut stage);
    let plans = rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-db-1", "shop-web-1"]);
    let names: Vec<&str> = stage.world.observed.instances.values().map(|it| it.name.as_str()).collect();
    assert!(!names.contains(&"shop-database-1"), "{}", plans.last().unwrap());
    // The commit goes on when the image is there.
    stage.world.registry = None;
    stage.record.pulls.clear();
    settle(&mut stage);
    assert_eq!(running(&stage), ["shop-database-1", "shop-web-2"]);
}

/// The new database runs, and the engine has ended the former one.
fn run_successor(stage: &mut Stage) {
    let (finished, error) = (stage.now, String::new());
    let mut made = stage.named("shop-db-1").clone();
    (made.id, made.name) = (ContainerId("f".repeat(64)), "shop-database-1".to_owned());
    made.instance.workload = "database".into();
    made.created = finished;
    stage.record.own_containers.insert(made.id.clone());
    stage.world.observed.instances.insert(made.id.clone(), made);
    stage.named("shop-db-1").state = State::Exited { code: 137, finished, out_of_memory: false, error };
    stage.world.observed.engine_started = Some(finished.after(Duration::from_secs(1)));
    stage.now = finished.after(Duration::from_secs(2));
}

/// The commit that made the new database was not reached, and the next one has it under a third name.
#[test]
fn version_before_last_does_not_join_the_last_one() {
    let mut stage = renamed();
    run_successor(&mut stage);
    stage.stack = shop([("pg", database("db:18")), ("web", workload("web:2", 1))]);
    let plans = rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-database-1", "shop-web-1"], "{}", plans.last().unwrap());
}

/// A commit that was not reached added a service on the same data, and the next one drops it again.
#[test]
fn older_version_goes_on_to_share_its_data() {
    let media =
        |version: u8| ["jellyfin", "sonarr"].map(|name| (name, database(&format!("{name}:{version}"))));
    let mut stage = Stage::new(shop(media(1)));
    settle(&mut stage);
    stage.sick.insert("bazarr:1".to_owned());
    stage.stack = shop(media(1).into_iter().chain([("bazarr", database("bazarr:1"))]));
    rounds(&mut stage);
    stage.stack = shop(media(2));
    stage.world.registry = Some(["bazarr:1", "jellyfin:1", "sonarr:1", "sonarr:2"].map(str::to_owned).into());
    rounds(&mut stage);
    let all = ["shop-bazarr-1", "shop-jellyfin-1", "shop-sonarr-1"];
    assert_eq!(running(&stage), all);
    let (finished, error) = (stage.now, String::new());
    stage.named("shop-jellyfin-1").state = State::Exited { code: 1, finished, out_of_memory: false, error };
    let plans = rounds(&mut stage);
    assert_eq!(running(&stage), all, "{}", plans.last().unwrap());
}

#[test]
fn held_service_leaves_its_data_to_a_successor_that_exists() {
    let mut stage = renamed();
    run_successor(&mut stage);
    let plans = rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-database-1", "shop-web-1"]);
    let is_said = |plan: &Plan| plan.to_string().contains("Git has given the volume `shop_data` to it");
    assert!(plans.iter().any(is_said), "{}", plans.last().unwrap());
}

/// Gives the data of `db` to another application, which starts its own service when the engine has restarted.
fn stays_down_unless_shared(stage: &mut Stage, is_shared: bool) {
    let (own, other) = (stage.stack.clone(), of_app("two", shop([("db", database("db:16"))])));
    stage.set_managed(&[], &[&own, &other]);
    if is_shared {
        let services = Some(SharingServices { own: "db".into(), other: "db".into() });
        let source = HostSource::Volume("shop_data".to_owned());
        stage.record.shared_places.insert(SharedPlace { source, with: "two".into(), services });
    }
    rounds(stage);
    assert_eq!(running(stage), ["shop-db-1", "shop-web-1"]);
    restart_engine(stage);
    let plans = rounds(stage);
    let expected = if is_shared { vec!["shop-db-1", "shop-web-1"] } else { vec!["shop-web-1"] };
    let last = plans.last().unwrap();
    assert_eq!(running(stage), expected, "{last}");
    assert_ne!(last.to_string().contains(GIVEN_AWAY), is_shared, "{last}");
}

#[test]
fn data_of_another_application_are_not_taken_back() {
    for is_shared in [false, true] {
        let mut stage = Stage::new(shop([("db", database("db:16")), ("web", workload("web:1", 1))]));
        settle(&mut stage);
        stage.stack = shop([("web", workload("web:2", 1))]);
        stage.world.registry = Some(["db:16", "web:1"].map(str::to_owned).into());
        stays_down_unless_shared(&mut stage, is_shared);
    }
}

/// The service has the same name in Git, and other data.
#[test]
fn older_version_leaves_its_data_to_another_application() {
    for is_shared in [false, true] {
        let mut stage = Stage::new(shop([("db", database("db:16")), ("web", workload("web:1", 1))]));
        settle(&mut stage);
        stage.stack = shop([("db", workload("proxy:1", 1)), ("web", workload("web:2", 1))]);
        stage.world.registry = Some(["db:16", "proxy:1", "web:1"].map(str::to_owned).into());
        stays_down_unless_shared(&mut stage, is_shared);
        // The commit goes on when the image is there.
        stage.world.registry = None;
        stage.record.pulls.clear();
        settle(&mut stage);
        let instances = stage.world.observed.instances.values().filter(|it| it.is_running());
        let images: BTreeSet<&str> = instances.map(|it| it.config.image.as_str()).collect();
        assert_eq!(images, BTreeSet::from(["proxy:1", "web:2"]));
    }
}

#[test]
fn held_service_that_lacks_its_secret_is_not_started() {
    let secret = ContentId("0".repeat(64));
    let mut worker = workload("worker:1", 1);
    let source = MountSource::Secret(secret.clone());
    worker.container.mounts.push(Mount { target: "/run/secrets/key".to_owned(), source, read_only: true });
    let mut stage = Stage::new(stack([("web", workload("web:1", 1)), ("worker", worker)]));
    settle(&mut stage);
    stage.stack = stack([("web", workload("web:2", 1))]);
    stage.world.registry = Some(["web:1", "worker:1"].map(str::to_owned).into());
    rounds(&mut stage);
    restart_engine(&mut stage);
    stage.world.observed.lacking_secrets.insert("worker".into(), secret);
    let plans = rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-web-1"]);
    let last = plans.last().unwrap();
    assert!(last.waits.iter().any(|wait| wait.is(WaitReason::SecretMissing)), "{last}");
    stage.world.observed.lacking_secrets.clear();
    rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-web-1", "shop-worker-1"]);
}

#[test]
fn services_of_a_held_removal_start_again_after_a_reboot() {
    let of = |names: &[&'static str]| stack(names.iter().map(|name| (*name, workload("app:1", 1))));
    let mut stage = Stage::new(of(&["a", "b", "c", "d", "e", "f"]));
    settle(&mut stage);
    stage.stack = of(&["a"]);
    rounds(&mut stage);
    let before = running(&stage).len();
    // One that a user removes is not made again.
    stage.world.observed.instances.retain(|_, instance| instance.name != "shop-f-1");
    restart_engine(&mut stage);
    let plans = rounds(&mut stage);
    let last = plans.last().unwrap();
    assert!(last.waits.iter().any(|wait| wait.is(WaitReason::PruneHeld)), "{last}");
    assert!(last.steps.is_empty(), "{last}");
    assert_eq!((before, running(&stage).len()), (6, 5));
}

#[test]
fn held_service_that_was_stopped_follows_self_heal() {
    for self_heal in [true, false] {
        let mut stage = renamed();
        stage.policy.self_heal = self_heal;
        let (finished, error) = (stage.now, String::new());
        let db = stage.named("shop-db-1");
        db.state = State::Exited { code: 0, finished, out_of_memory: false, error };
        db.touched_by_hand = Some(finished);
        rounds(&mut stage);
        assert_eq!(running(&stage).contains(&"shop-db-1"), self_heal);
        assert!(!running(&stage).contains(&"shop-database-1"));
    }
}

#[test]
fn host_port_of_a_held_service_stays_its_own() {
    let published = |image: &str| {
        let mut published = workload(image, 1);
        let host = Some(PortRange::one(8080));
        published.container.ports.push(Port { container: 80, protocol: Protocol::Tcp, host_ip: None, host });
        published
    };
    let mut stage = Stage::new(stack([("old", published("app:1")), ("web", workload("web:1", 1))]));
    settle(&mut stage);
    stage.stack = stack([("new", published("app:1")), ("web", workload("web:2", 1))]);
    stage.world.registry = Some(["app:1", "web:1"].map(str::to_owned).into());
    rounds(&mut stage);
    restart_engine(&mut stage);
    rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-old-1", "shop-web-1"]);
}

/// A resolver with a fixed address has another name in Git, and the new image of another service cannot be pulled.
fn renamed_resolver() -> Stage {
    let shop = |name: &'static str, image: &str| {
        let mut resolver = workload("dns:1", 1);
        let attachment = Attachment { ipv4: Some("10.2.0.2".to_owned()), ..Attachment::default() };
        let networks = BTreeMap::from([("dns".to_owned(), Box::new(attachment))]);
        resolver.container.network_mode = NetworkMode::Networks(networks);
        let mut shop = stack([(name, resolver), ("web", workload(image, 1))]);
        let network = Network { key: "dns".to_owned(), ..Network::default() };
        shop.networks.insert("dns".to_owned(), network);
        shop
    };
    let mut stage = Stage::new(shop("resolver", "web:1"));
    settle(&mut stage);
    stage.stack = shop("unbound", "web:2");
    stage.world.registry = Some(["dns:1", "web:1"].map(str::to_owned).into());
    rounds(&mut stage);
    stage
}

#[test]
fn address_of_a_held_service_stays_its_own() {
    let mut stage = renamed_resolver();
    restart_engine(&mut stage);
    rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-resolver-1", "shop-web-1"]);
    let names: Vec<&str> = stage.world.observed.instances.values().map(|it| it.name.as_str()).collect();
    assert!(!names.contains(&"shop-unbound-1"));
}

#[test]
fn held_service_leaves_its_address_to_a_successor_that_exists() {
    let mut stage = renamed_resolver();
    let mut made = stage.named("shop-resolver-1").clone();
    (made.id, made.name) = (ContainerId("f".repeat(64)), "shop-unbound-1".to_owned());
    made.instance.workload = "unbound".into();
    stage.record.own_containers.insert(made.id.clone());
    stage.world.observed.instances.insert(made.id.clone(), made);
    let (finished, error) = (stage.now, String::new());
    stage.named("shop-resolver-1").state = State::Exited { code: 137, finished, out_of_memory: false, error };
    stage.world.observed.engine_started = Some(finished.after(Duration::from_secs(1)));
    stage.now = finished.after(Duration::from_secs(2));
    let plans = rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-unbound-1", "shop-web-1"]);
    let is_said = |plan: &Plan| plan.to_string().contains("Git has given the address 10.2.0.2 on dns to it");
    assert!(plans.iter().any(is_said), "{}", plans.last().unwrap());
}

#[test]
fn failed_one_shot_that_git_drops_is_not_run_again() {
    let mut migrate = workload("migrate:1", 1);
    (migrate.completion, migrate.container.restart) = (Completion::OnSuccess, RestartPolicy::No);
    let mut stage = Stage::new(stack([("migrate", migrate), ("web", workload("web:1", 1))]));
    stage.finishing.insert("migrate:1".to_owned());
    settle(&mut stage);
    let (finished, error) = (stage.now, String::new());
    stage.named("shop-migrate-1").state = State::Exited { code: 1, finished, out_of_memory: false, error };
    stage.round();
    stage.stack = stack([("web", workload("web:2", 1))]);
    stage.world.registry = Some(BTreeSet::from(["web:1".to_owned()]));
    rounds(&mut stage);
    restart_engine(&mut stage);
    let plans = rounds(&mut stage);
    assert_eq!(running(&stage), ["shop-web-1"]);
    let starts = |plan: &Plan| {
        plan.steps.iter().any(|step| {
            matches!(&step.action, Action::StartInstance { container } if container.name() == "shop-migrate-1")
        })
    };
    assert!(!plans.iter().any(starts));
}
