//! Convergence: from any state, after any failure and any interruption, the planner reaches the target safely.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_model::{
    AgentId, Attachment, Condition, ContainerId, ContentId, Dependency, Endpoint, Health, Image, InPlace,
    Instance, InstanceId, LiveSettings, Mount, MountSource, Namespace, Network, NetworkMode, ObservedNetwork,
    OnChange, Peer, Port, PortRange, Protocol, Readiness, Replacement, SpecHash, State, Strategy as Rollout,
    Timestamp, VolumesFrom, Workload, digest_hex,
};
use proptest::prelude::*;

use crate::fixture::{NOON, Stage, listing, stack, workload};

const LONG_AGO: Timestamp = Timestamp(NOON.0 - 3_600_000);

fn any_state() -> impl Strategy<Value = State> {
    let exited = (prop_oneof![Just(0), Just(1), Just(137)], any::<bool>()).prop_map(|(code, is_recent)| {
        let finished = if is_recent { Timestamp(NOON.0 - 1000) } else { LONG_AGO };
        State::Exited { code, finished, out_of_memory: false, error: String::new() }
    });
    let running = prop_oneof![Just(Health::Healthy), Just(Health::Starting), Just(Health::Unhealthy)]
        .prop_map(|health| State::Running { since: LONG_AGO, health });
    prop_oneof![
        1 => Just(State::Created),
        1 => Just(State::Paused),
        1 => Just(State::Dead),
        1 => Just(State::Restarting { code: 1, finished: Timestamp(NOON.0 - 500) }),
        2 => exited,
        6 => running,
    ]
}

/// A workload on the network, as the manifest may ask for it.
fn any_workload(name: &'static str) -> impl Strategy<Value = Workload> {
    let size = (0..4_u32, 0..3_u32, 0..3_u32, 1..3_u32, 0..8_u8);
    let flags = (any::<bool>(), any::<bool>(), 0..8_u8);
    (size, flags, prop_oneof![Just(0_u64), Just(5)]).prop_map(
        move |((replicas, surge, unavailable, version, shared), (on_network, chained, special), ready)| {
            let mut it = workload(&format!("{name}:{version}"), replicas);
            let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
            it.strategy = Rollout::RollingUpdate { max_surge: surge, max_unavailable: unavailable };
            it.min_ready = Duration::from_secs(ready);
            if on_network {
                let attachment =
                    Box::new(Attachment { aliases: vec![name.to_owned()], ..Attachment::default() });
                it.container.network_mode =
                    NetworkMode::Networks(BTreeMap::from([("shop_net".to_owned(), attachment)]));
            }
            match special {
                0 => it.strategy = Rollout::Recreate,
                1 => {
                    it.replicas = it.replicas.min(1);
                    it.container_name = Some(format!("the-{name}"));
                }
                2 => {
                    it.replicas = it.replicas.min(1);
                    let host = PortRange::one(if name == "a" { 80 } else { 81 });
                    let (container, protocol) = (80, Protocol::Tcp);
                    it.container.ports = vec![Port { container, protocol, host_ip: None, host: Some(host) }];
                }
                3 => it.container.resources.memory = Some(64 << 20),
                _ => {}
            }
            if chained && name != "a" {
                it.after = vec![Dependency {
                    workload: "a".into(),
                    condition: if special % 2 == 0 { Condition::Started } else { Condition::Healthy },
                    required: true,
                    restart: special == 4,
                }];
            }
            if name != "a" {
                share(&mut it, shared);
            }
            it
        },
    )
}

/// Lets a workload share something with `a`.
fn share(it: &mut Workload, what: u8) {
    let peer = || Peer::Workload("a".into());
    match what {
        0 => it.container.network_mode = NetworkMode::Of(peer()),
        1 => it.container.pid_mode = Some(Namespace::Of(peer())),
        2 => it.container.ipc_mode = Some(Namespace::Of(peer())),
        3 => it.container.volumes_from = vec![VolumesFrom { peer: peer(), read_only: true }],
        4 => it.container.volumes_from = vec![VolumesFrom { peer: peer(), read_only: false }],
        _ => return,
    }
    if it.after.is_empty() {
        let (workload, condition) = ("a".into(), Condition::Started);
        it.after.push(Dependency { workload, condition, required: true, restart: false });
    }
}

/// The container in one slot.
#[derive(Clone, Debug)]
struct Found {
    workload: &'static str,
    slot: u32,
    is_current: bool,
    state: State,
    is_known: bool,
    /// Further deviations.
    oddity: u8,
}

fn any_found() -> impl Strategy<Value = Found> {
    let place = (prop_oneof![Just("a"), Just("b"), Just("c")], 1..5_u32);
    (place, any::<bool>(), any_state(), any::<bool>(), 0..16_u8).prop_map(
        |((workload, slot), is_current, state, is_known, oddity)| Found {
            workload,
            slot,
            is_current,
            state,
            is_known,
            oddity,
        },
    )
}

/// Puts what was found on the stage.
fn place(stage: &mut Stage, all: Vec<Found>, has_network: bool) {
    stage.stack.networks.insert("shop_net".into(), Network { key: "net".into(), ..Network::default() });
    let network = &stage.stack.networks["shop_net"];
    if has_network {
        let spec = Some(SpecHash::of(network));
        let observed = ObservedNetwork {
            id: "n0".into(),
            agent: Some(stage.agent.clone()),
            spec,
            ..ObservedNetwork::default()
        };
        stage.world.observed.networks.insert("shop_net".into(), observed);
    }
    for it in stage.stack.workloads.values() {
        let image = &it.container.image;
        let id = format!("sha256:{}", digest_hex(image.as_bytes()));
        if image.ends_with('1') {
            stage.world.observed.images.insert(image.clone(), Image { id, ..Image::default() });
        }
    }
    for (index, found) in all.into_iter().enumerate() {
        let wanted = stage.stack.workloads.get(&found.workload.into()).cloned();
        let mut made = wanted.clone().unwrap_or_else(|| workload("c:1", 1));
        if !found.is_current {
            made.container.env.insert("OLD".into(), Some("yes".into()));
        }
        let mut name = format!("shop-{}-{}", found.workload, found.slot);
        if let Some(fixed) = wanted.and_then(|it| it.container_name) {
            name = if index == 0 { fixed } else { format!("{fixed}-{index}") };
        }
        let id = ContainerId(format!("{:064x}", 0xf000 + index));
        let is_up = matches!(found.state, State::Running { .. } | State::Paused);
        let mut networks = BTreeMap::new();
        for (network, attachment) in made.container.networks() {
            // A network that has gone took no running container with it.
            if has_network || !is_up {
                let aliases = attachment.aliases.clone();
                networks.insert(
                    network.clone(),
                    Endpoint { network_id: "n0".into(), aliases, ..Endpoint::default() },
                );
            }
        }
        let container = &made.container;
        // One that is there, or one that is gone.
        let mut hosts = stage.world.observed.instances.values();
        let host = hosts.rfind(|it| it.instance.workload == "a".into() && it.agent == stage.agent);
        let host = host.filter(|_| found.slot != 3).map_or(ContainerId("9".repeat(64)), |it| it.id.clone());
        let shared = BTreeSet::from([host]);
        let mut instance = Instance {
            id: id.clone(),
            name,
            instance: InstanceId { workload: found.workload.into(), slot: found.slot },
            agent: stage.agent.clone(),
            spec: container.spec(),
            created: LONG_AGO,
            state: found.state,
            readiness: Readiness::Ready { since: LONG_AGO },
            restarts: 0,
            networks,
            live: LiveSettings { resources: container.resources.clone(), restart: container.restart },
            image_id: format!("sha256:{}", digest_hex(container.image.as_bytes())),
            config: Arc::new(container.effective(&Default::default())),
            anonymous_volumes: BTreeMap::new(),
            empty_volumes: BTreeMap::new(),
            part: None,
            hosts: if container.hosts().next().is_some() { shared.clone() } else { BTreeSet::new() },
            volumes_of: if container.volumes_from.is_empty() { BTreeSet::new() } else { shared },
            started: is_up.then_some(if found.oddity == 10 { Timestamp(NOON.0 - 400) } else { LONG_AGO }),
            bound_ports: Vec::new(),
            touched_by_hand: None,
            last_output: String::new(),
            check_output: String::new(),
            healthy_before: false,
        };
        match found.oddity {
            0 => instance.name = format!("renamed-{index}"),
            1 => instance.networks.clear(),
            2 => instance.live.resources.cpu_shares = Some(2),
            3 => instance.live.restart = driftless_model::RestartPolicy::No,
            4 => {
                let mut config = container.clone();
                config.env.insert("EVIL".into(), Some("1".into()));
                instance.config = Arc::new(config.effective(&Default::default()));
            }
            5 => instance.agent = AgentId("another".into()),
            6 => instance.readiness = Readiness::Dead { reason: "it hangs".into() },
            7 => instance.readiness = Readiness::NotReady { reason: "not yet".into() },
            8 => instance.touched_by_hand = Some(Timestamp(NOON.0 - 2000)),
            9 => instance.anonymous_volumes = BTreeMap::from([("/data".into(), format!("anon{index}"))]),
            _ => {}
        }
        let holds_port = |it: &Instance| it.config.ports.first().map(|it| it.host);
        let clash = stage.world.observed.instances.values().any(|other| {
            other.name == instance.name
                || other.instance == instance.instance
                || holds_port(other).is_some() && holds_port(other) == holds_port(&instance)
        });
        let is_foreign_on_exclusive = instance.agent != stage.agent
            && (made.container_name.is_some() || !made.container.ports.is_empty() || has_network);
        // Foreign ones would block names for good, which is right, but never arrives.
        let blocks = instance.agent != stage.agent && found.slot < 4;
        if clash || is_foreign_on_exclusive || blocks {
            continue;
        }
        if found.is_known {
            stage.record.own_containers.insert(id.clone());
        }
        let asked = match found.oddity {
            11 => Some(Replacement::Restart),
            12 => Some(Replacement::Delete),
            _ => None,
        };
        stage.record.replaced.extend(asked.filter(|_| found.is_known).map(|it| (id.clone(), it)));
        stage.world.observed.instances.insert(id, instance);
    }
}

/// Number of cases, unless `PROPTEST_CASES` sets it, as `make soak` does.
pub(crate) fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn we_arrive_although_each_round_may_be_cut_short(
        a in any_workload("a"),
        b in any_workload("b"),
        found in prop::collection::vec(any_found(), 0..9),
        has_network in any::<bool>(),
        cuts in prop::collection::vec((0..8_usize, any::<usize>()), 20),
    ) {
        let mut a = a;
        if b.container.peers().next().is_some() {
            a.replicas = a.replicas.max(1);
        }
        let mut stage = Stage::new(stack([("a", a), ("b", b)]));
        place(&mut stage, found, has_network);
        let mut cuts = cuts.into_iter();
        let mut last = stage.round_cut_short(0, |_| 0);
        for _ in 0..120 {
            let (cut, seed) = cuts.next().unwrap_or((usize::MAX, 0));
            last = stage.round_cut_short(cut, |count| seed % count);
            if last.is_settled() {
                break;
            }
            stage.tick(Duration::from_secs(20));
        }
        prop_assert!(last.is_settled(), "stuck:\n{}\n{}", last, listing(&stage.world.observed));
        for (name, wanted) in &stage.stack.workloads {
            prop_assert_eq!(stage.available(name), wanted.replicas as usize);
        }
        for guest in stage.world.observed.instances.values().filter(|it| it.agent == stage.agent) {
            for id in guest.hosts.iter().chain(&guest.volumes_of) {
                let host = stage.world.observed.instances.get(id);
                prop_assert!(host.is_some_and(|it| it.is_running()), "{} shares with nobody", guest.name);
            }
            for id in &guest.hosts {
                let since = stage.world.observed.instances[id].started;
                prop_assert!(guest.started >= since, "{} was left behind", guest.name);
            }
        }
        stage.tick(Duration::from_secs(600));
        let after = stage.round();
        prop_assert!(after.is_settled() && after.steps.is_empty() && after.drifts.is_empty(), "{}", after);
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(250), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_old_keep_serving_as_long_as_the_new_never_do(
        wanted in any_workload("a"),
        cuts in prop::collection::vec((0..8_usize, any::<usize>()), 15),
        crashes in any::<bool>(),
    ) {
        let mut wanted = wanted;
        wanted.container_name = None;
        wanted.container.ports.clear();
        let Rollout::RollingUpdate { max_unavailable, .. } = wanted.strategy else { return Ok(()) };
        wanted.container.image = "a:1".into();
        let mut stage = Stage::new(stack([("a", wanted.clone())]));
        stage.stack.networks.insert("shop_net".into(), Network::default());
        while !stage.round().is_settled() {
            stage.tick(Duration::from_secs(10));
        }
        stage.stack.workloads.get_mut(&"a".into()).unwrap().container.image = "a:2".into();
        if crashes { stage.crashing.insert("a:2".into()); } else { stage.sick.insert("a:2".into()); }
        for (cut, seed) in cuts {
            stage.round_cut_short(cut, |count| seed % count);
            stage.tick(Duration::from_secs(40));
            let floor = wanted.replicas.saturating_sub(max_unavailable) as usize;
            prop_assert!(stage.available(&"a".into()) >= floor);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(250), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn containers_have_the_newest_files_after_any_interruption(
        wanted in any_workload("a"),
        asked in prop::collection::vec(0..3_u8, 1..4),
        changes in prop::collection::vec((0..4_usize, any::<bool>(), 0..4_usize, any::<usize>()), 1..8),
    ) {
        let mut wanted = wanted;
        for (index, asked) in asked.iter().enumerate() {
            let target = format!("/etc/{index}");
            let source = MountSource::InPlace { secret: false, folder: false };
            wanted.container.mounts.push(Mount { target: target.clone(), source, read_only: false });
            let on_change = match asked {
                0 => OnChange::Signal("SIGHUP".into()),
                1 => OnChange::Signal("SIGUSR1".into()),
                _ => OnChange::Restart,
            };
            wanted.in_place.insert(target, InPlace { content: ContentId("0".into()), secret: false, on_change });
        }
        let mut stage = Stage::new(stack([("a", wanted)]));
        stage.stack.networks.insert("shop_net".into(), Network::default());
        for (version, (file, replaces, cut, seed)) in changes.into_iter().enumerate() {
            let it = stage.stack.workloads.get_mut(&"a".into()).unwrap();
            if let Some(file) = it.in_place.get_mut(&format!("/etc/{file}")) {
                file.content = ContentId(version.to_string());
            }
            if replaces {
                it.container.image = format!("a:{version}");
            }
            stage.round_cut_short(cut, |count| seed % count);
            stage.tick(Duration::from_secs(20));
        }
        let mut last = stage.round();
        for _ in 0..60 {
            if last.is_settled() {
                break;
            }
            stage.tick(Duration::from_secs(20));
            last = stage.round();
        }
        prop_assert!(last.is_settled(), "stuck:\n{}\n{}", last, listing(&stage.world.observed));
        let wanted = &stage.stack.workloads[&"a".into()];
        for it in stage.world.observed.instances.values() {
            prop_assert_eq!(&stage.told[&it.id].0, &wanted.in_place, "{}", it.name);
        }
    }
}

#[test]
fn interrupted_step_is_no_try_without_effect() {
    let mut stage = Stage::new(stack([("a", workload("a:1", 1))]));
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(1));
    }
    // Another container in its place, with its labels.
    let impostor = stage.named("shop-a-1");
    impostor.id = ContainerId("f".repeat(64));
    impostor.state = State::Paused;
    Arc::make_mut(&mut impostor.config).env.insert("EVIL".into(), Some("yes".into()));
    let impostor = impostor.clone();
    stage.world.observed.instances = BTreeMap::from([(impostor.id.clone(), impostor)]);
    for _ in 0..2 {
        let plan = stage.round_cut_short(1, |_| 0);
        assert!(!plan.steps.is_empty(), "{plan}");
        stage.tick(Duration::from_secs(60));
    }
    for _ in 0..20 {
        stage.round();
        stage.tick(Duration::from_secs(60));
    }
    let plan = stage.round();
    assert!(plan.is_settled() && plan.drifts.is_empty(), "{plan}{}", listing(&stage.world.observed));
}
