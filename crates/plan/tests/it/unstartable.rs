//! Containers that the engine cannot start any more.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{
    Attempt, Claims, Condition, ContainerId, ContentId, Dependency, HeldPort, Mount, MountSource, NameHolder,
    Network, NetworkMode, Other, Peer, Platform, Port, PortRange, Protocol, State, Workload,
};
use driftless_plan::{Action, WaitReason};

use crate::{
    fixture::{NOON, Stage, stack, workload},
    prune::settle,
};

/// Errors of engines about a container that they cannot start any more.
pub(crate) const UNSTARTABLE: [&str; 4] = [
    "task 489c586ddd7d: already exists: unknown",
    "failed to start shim: mkdir /run/docker/7bd0930ac2be: file exists: unknown",
    "id already in use",
    "failed to create shim task: OCI runtime create failed: runc create failed: container with given ID already exists",
];

#[test]
fn container_that_was_never_started_and_cannot_be_is_replaced() {
    for error in UNSTARTABLE {
        let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
        stage.round();
        stage.round();
        let instance = stage.named("shop-web-1");
        instance.state = State::Created;
        let id = instance.id.clone();
        let failed =
            |error: &str| Attempt { count: 1, next: NOON, error: format!("could not start: {error}") };
        stage.record.failures.insert("shop-web-1".to_owned(), failed("no space left on device"));
        let plan = stage.round_cut_short(0, |_| 0);
        assert!(!plan.to_string().contains("remove"), "{plan}");
        stage.record.failures.insert("shop-web-1".to_owned(), failed(error));
        let plan = stage.round();
        assert!(plan.drifts.is_empty(), "nobody made this difference: {plan}");
        let replaced = stage.named("shop-web-1");
        assert!(replaced.id != id && replaced.is_running(), "{error}: {plan}");
    }
}

#[test]
fn state_alone_replaces_no_container() {
    // A process that the engine does not know may still use its volumes. The start ends it.
    for error in UNSTARTABLE {
        let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
        stage.round();
        stage.round();
        let (id, finished) = (stage.named("shop-web-1").id.clone(), stage.now);
        stage.named("shop-web-1").state =
            State::Exited { code: 128, finished, out_of_memory: false, error: error.to_owned() };
        stage.tick(Duration::from_mins(1));
        let plan = stage.round();
        let started = stage.named("shop-web-1");
        assert!(started.id == id && started.is_running(), "{error}: {plan}");
    }
}

/// A stage with a running container on a network, off which it is when the engine comes back.
fn disconnected_after_a_restart() -> Stage {
    let mut web = workload("web:1", 1);
    web.container.network_mode = NetworkMode::Networks([("shop_net".to_owned(), Box::default())].into());
    let mut stage = Stage::new(stack([("web", web)]));
    stage.stack.networks.insert("shop_net".into(), Network::default());
    for _ in 0..5 {
        stage.round();
    }
    let connected = stage.named("shop-web-1");
    assert!(connected.networks.remove("shop_net").is_some());
    stage
}

#[test]
fn network_that_an_interrupted_start_lacks_is_no_drift() {
    let mut stage = disconnected_after_a_restart();
    let error = "could not start shop-web-1: connection closed before message completed".to_owned();
    let failed = Attempt { count: 1, next: NOON, error };
    stage.record.failures.insert("shop-web-1".to_owned(), failed);
    let plan = stage.round();
    assert!(plan.drifts.is_empty(), "nobody made this difference: {plan}");
    assert!(plan.to_string().contains("connect shop-web-1 to shop_net"), "{plan}");
    assert!(stage.named("shop-web-1").networks.contains_key("shop_net"));
}

#[test]
fn network_that_a_user_disconnected_is_drift() {
    let mut stage = disconnected_after_a_restart();
    let plan = stage.round();
    assert_eq!(plan.drifts.len(), 1, "{plan}");

    // Without self-heal it is left, also after a step that failed.
    let mut stage = disconnected_after_a_restart();
    stage.policy.self_heal = false;
    stage.record.failures.insert(
        "shop-web-1".to_owned(),
        Attempt { count: 1, next: NOON, error: "could not limit it".to_owned() },
    );
    let plan = stage.round();
    assert_eq!(plan.drifts.len(), 1, "{plan}");
    assert!(!stage.named("shop-web-1").networks.contains_key("shop_net"));
}

#[test]
fn workload_without_its_secret_waits_and_others_are_healed() {
    let secret = ContentId("0".repeat(64));
    let mut web = workload("web:1", 1);
    let source = MountSource::Secret(secret.clone());
    web.container.mounts = vec![Mount { target: "/run/secrets/db".to_owned(), source, read_only: true }];
    let mut stage = Stage::new(stack([("api", workload("api:1", 1)), ("web", web)]));
    let rounds = |stage: &mut Stage| {
        for _ in 0..8 {
            stage.round();
            stage.tick(Duration::from_mins(1));
        }
    };
    rounds(&mut stage);
    let web = stage.named("shop-web-1").id.clone();
    for name in ["shop-api-1", "shop-web-1"] {
        let finished = stage.now;
        stage.named(name).state =
            State::Exited { code: 255, finished, out_of_memory: false, error: String::new() };
    }
    stage.world.observed.lacking_secrets = BTreeMap::from([("web".into(), secret)]);
    rounds(&mut stage);
    assert!(stage.named("shop-api-1").is_running());
    assert!(!stage.named("shop-web-1").is_running() && stage.named("shop-web-1").id == web);
    let plan = stage.round();
    assert!(plan.steps.is_empty() && plan.look_again.is_some(), "{plan}");
    let wait = plan.waits.iter().find(|wait| wait.is(WaitReason::SecretMissing)).unwrap().to_string();
    assert!(
        wait.contains("the secret at /run/secrets/db") && wait.contains("driftless resume shop"),
        "{wait}"
    );
    stage.world.observed.lacking_secrets.clear();
    rounds(&mut stage);
    assert!(stage.named("shop-web-1").is_running());
    // A running container goes on.
    stage.world.observed.lacking_secrets = BTreeMap::from([("web".into(), ContentId("0".repeat(64)))]);
    let plan = stage.round();
    assert!(plan.is_settled(), "{plan}");
}

#[test]
fn workload_for_another_platform_is_neither_pulled_nor_started() {
    let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
    stage.round();
    stage.round();
    let running = stage.named("shop-web-1").id.clone();
    let mut other = workload("web:2", 1);
    other.container.host.platform = Some("linux/arm64".to_owned());
    stage.stack = stack([("web", other.clone())]);
    stage.world.observed.engine_architecture = Some("amd64".to_owned());
    let platforms = |all: &[&str]| Some(all.iter().map(|it| Platform::parse(it)).collect());
    stage.world.observed.engine_platforms = platforms(&["linux/amd64", "linux/386"]);
    let plan = stage.round();
    assert!(plan.steps.is_empty(), "{plan}");
    let wait = plan.waits.iter().find(|it| it.reason == WaitReason::OtherArchitecture).unwrap();
    let text = wait.to_string();
    assert!(text.contains("linux/arm64") && text.contains("it runs linux/386, linux/amd64"), "{text}");
    assert_eq!(stage.named("shop-web-1").id, running, "what runs stays");

    // An emulator was installed.
    stage.world.observed.engine_platforms = platforms(&["linux/amd64", "linux/arm64"]);
    stage.round();
    stage.round();
    assert!(stage.world.observed.instances.values().any(|it| it.config.image == "web:2"));

    // An engine that does not tell is tried.
    other.container.image = "web:3".to_owned();
    stage.stack = stack([("web", other)]);
    stage.world.observed.engine_platforms = None;
    assert!(!stage.round().steps.is_empty());
}

/// A stage on which a container of another application with this number runs, under the same name as before.
fn runs_for_others(stage: &mut Stage, number: u32) {
    let (id, started) = (ContainerId(format!("{number:064x}")), Some(stage.now));
    stage.world.observed.others.insert("vpn-1".to_owned(), Other { id: id.clone(), started });
    let holder = NameHolder { id, app: Some("vpn".into()), project: None };
    stage.world.observed.claims.hold_name("vpn-1", holder);
}

/// A running container on the network of a container of another application.
fn guest_of_another_application() -> Stage {
    let mut torrent = workload("torrent:1", 1);
    torrent.container.network_mode = NetworkMode::Of(Peer::Container("vpn-1".to_owned()));
    let mut stage = Stage::new(stack([("torrent", torrent)]));
    runs_for_others(&mut stage, 77);
    stage.round();
    stage.round();
    stage.tick(Duration::from_mins(1));
    stage.round();
    assert!(stage.named("shop-torrent-1").is_running());
    stage
}

fn ends(stage: &mut Stage) {
    let finished = stage.now;
    stage.named("shop-torrent-1").state =
        State::Exited { code: 137, finished, out_of_memory: false, error: String::new() };
    stage.tick(Duration::from_mins(1));
}

#[test]
fn guest_waits_for_a_container_of_others_that_does_not_run() {
    let mut stage = guest_of_another_application();
    stage.world.observed.others.get_mut("vpn-1").unwrap().started = None;
    ends(&mut stage);
    let plan = stage.round();
    assert!(plan.steps.is_empty(), "{plan}");
    let expected = "torrent waits for container vpn-1 of application vpn: it does not run";
    assert!(plan.to_string().contains(expected), "{plan}");
    runs_for_others(&mut stage, 77);
    stage.round();
    assert!(stage.named("shop-torrent-1").is_running());
}

#[test]
fn pause_for_a_container_of_others_ends_with_that_one() {
    let mut stage = guest_of_another_application();
    let host = stage.world.observed.others["vpn-1"].id.clone();
    ends(&mut stage);
    let next = stage.now.after(Duration::from_secs(75));
    let error = format!("cannot join network of a non running container: {host}");
    stage.record.failures.insert("shop-torrent-1".to_owned(), Attempt { count: 6, next, error });
    stage.round_cut_short(0, |_| 0);
    assert_eq!(stage.record.failures["shop-torrent-1"].next, next);
    runs_for_others(&mut stage, 78);
    let plan = stage.round();
    assert!(plan.to_string().contains("vpn-1 was replaced"), "{plan}");
    assert!(stage.record.failures["shop-torrent-1"].next <= stage.now, "{:?}", stage.record.failures);
}

#[test]
fn optional_dependency_that_cannot_start_blocks_nobody() {
    let port =
        HeldPort { port: 9090, protocol: Protocol::Tcp, ip: None, by: Claims::HOST_PROCESS.to_owned() };
    let failed = |count| Attempt { count, next: NOON, error: "could not create: no such device".to_owned() };
    let fail = |stage: &mut Stage, count| {
        stage.record.failures.insert("shop-metrics-1".to_owned(), failed(count));
    };
    let outside = Network { external: true, ..Network::default() };
    let obstacles: [(&str, &dyn Fn(&mut Stage)); 7] = [
        ("nothing", &|_: &mut Stage| {}),
        ("port", &|stage: &mut Stage| {
            stage.world.observed.claims.ports.insert(port.clone());
        }),
        // The next try may succeed.
        ("one failure", &|stage: &mut Stage| fail(stage, 1)),
        ("failures", &|stage: &mut Stage| fail(stage, 3)),
        ("rejection", &|stage: &mut Stage| {
            fail(stage, 1);
            stage.record.rejected.insert("shop-metrics-1".to_owned());
        }),
        ("rejection of an older stack", &|stage: &mut Stage| {
            stage.record.rejected.insert("shop-metrics-1".to_owned());
        }),
        ("network", &|stage: &mut Stage| {
            stage.stack.networks.insert("outside".to_owned(), outside.clone());
            let networks = BTreeMap::from([("outside".to_owned(), Box::default())]);
            let metrics = stage.stack.workloads.get_mut(&"metrics".into()).unwrap();
            metrics.container.network_mode = NetworkMode::Networks(networks);
        }),
    ];
    for required in [false, true] {
        for (obstacle, put) in obstacles {
            let mut stage = Stage::new(stack([("api", workload("app:1", 1))]));
            settle(&mut stage);
            let mut metrics = workload("app:1", 1);
            let host = Some(PortRange::one(9090));
            metrics.container.ports =
                vec![Port { container: 9090, protocol: Protocol::Tcp, host_ip: None, host }];
            let condition = Condition::Started;
            let after = Dependency { workload: "metrics".into(), condition, required, restart: false };
            let web = Workload { after: vec![after], ..workload("app:1", 1) };
            stage.stack = stack([("api", workload("app:1", 1)), ("metrics", metrics), ("web", web)]);
            put(&mut stage);
            let plan = stage.round_cut_short(0, |_| 0);
            let is_created = plan.steps.iter().any(|step| {
                matches!(&step.action, Action::CreateInstance(creation) if creation.instance.is_of(&"web".into()))
            });
            let is_obstructed =
                !["nothing", "one failure", "rejection of an older stack"].contains(&obstacle);
            assert_eq!(is_created, !required && is_obstructed, "{obstacle}: {plan}");
        }
    }
}
