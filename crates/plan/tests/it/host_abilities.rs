//! The abilities of a host: images for other platforms, and limits that its kernel cannot apply.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    Attachment, Attempt, Format, HELPER_IMAGE, Image, IpNetwork, LimitKind, Network, NetworkMode,
    ObservedNetwork, Platform, Port, PortRange, Protocol, PullPolicy, Stack, Strategy, Workload,
};
use driftless_plan::{Action, Plan};

use crate::fixture::{Stage, stack, workload};

fn settle(stage: &mut Stage) -> Vec<String> {
    let mut steps = Vec::new();
    for _ in 0..30 {
        let plan = stage.round();
        steps.extend(plan.steps.iter().map(|step| step.action.to_string()));
        if plan.is_settled() {
            return steps;
        }
        stage.tick(Duration::from_secs(1));
    }
    panic!("not settled: {steps:#?}");
}

fn for_platform(image: &str, platform: &str) -> Workload {
    let mut one = workload(image, 1);
    one.strategy = Strategy::Recreate;
    one.container.host.platform = Some(platform.to_owned());
    one
}

fn image_for(platform: &str) -> Image {
    Image { id: "sha256:1".to_owned(), platforms: [Platform::parse(platform)].into(), ..Image::default() }
}

fn waits(plan: &Plan) -> String {
    plan.waits.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn is_running(stage: &Stage, workload: &str) -> bool {
    stage
        .world
        .observed
        .instances
        .values()
        .any(|it| it.instance.workload == workload.into() && it.is_running())
}

#[test]
fn image_of_another_platform_is_pulled_before_the_stop() {
    let mut old = workload("web:1", 1);
    old.strategy = Strategy::Recreate;
    let mut stage = Stage::new(stack([("web", old)]));
    settle(&mut stage);
    stage.world.observed.images.insert("web:2".to_owned(), image_for("linux/amd64"));
    stage.world.registry = Some(BTreeSet::new());
    stage.stack = stack([("web", for_platform("web:2", "linux/arm64"))]);
    for _ in 0..3 {
        stage.round();
        stage.tick(Duration::from_secs(1));
        assert!(is_running(&stage, "web"), "the old version runs while the image cannot be had");
    }
    stage.world.registry = None;
    stage.tick(Duration::from_secs(600));
    let steps = settle(&mut stage);
    assert_eq!(steps[0], "pull web:2 for linux/arm64");
    assert!(is_running(&stage, "web"));
    // The image is here now: nothing is pulled for another instance.
    stage.world.observed.instances.clear();
    let pulls = settle(&mut stage).into_iter().filter(|step| step.starts_with("pull")).count();
    assert_eq!(pulls, 0);
}

#[test]
fn image_of_another_platform_is_awaited_if_never_pulled() {
    let mut old = workload("web:1", 1);
    old.strategy = Strategy::Recreate;
    let mut stage = Stage::new(stack([("web", old)]));
    settle(&mut stage);
    stage.world.observed.images.insert("web:2".to_owned(), image_for("linux/amd64"));
    let mut new = for_platform("web:2", "linux/arm64");
    new.pull = PullPolicy::Never;
    stage.stack = stack([("web", new)]);
    let plan = stage.round();
    assert!(plan.steps.is_empty(), "{plan}");
    assert!(waits(&plan).contains("needs web:2 for linux/arm64 on this host"), "{plan}");
    assert!(is_running(&stage, "web"));
}

#[test]
fn two_platforms_of_one_image_are_pulled_if_both_can_be_kept() {
    let both = [("a", for_platform("web:1", "linux/amd64")), ("b", for_platform("web:1", "linux/arm64"))];
    let mut stage = Stage::new(stack(both));
    let steps = settle(&mut stage);
    assert_eq!(steps.iter().filter(|step| step.starts_with("pull")).count(), 2, "{steps:?}");
    assert!(is_running(&stage, "a") && is_running(&stage, "b"));
}

#[test]
fn second_platform_of_an_image_waits_on_a_classic_store() {
    let both = [("a", for_platform("web:1", "linux/amd64")), ("b", for_platform("web:1", "linux/arm64"))];
    let mut stage = Stage::new(stack(both));
    stage.world.observed.engine_traits.keeps_one_platform = true;
    let mut pulls = 0;
    for _ in 0..6 {
        let plan = stage.round();
        pulls += plan.steps.iter().filter(|step| matches!(step.action, Action::PullImage { .. })).count();
        let text = waits(&plan);
        assert!(
            text.contains("b needs web:1 for linux/arm64, but a needs it for another platform"),
            "{text}"
        );
        stage.tick(Duration::from_secs(1));
    }
    assert_eq!(pulls, 1);
    assert!(is_running(&stage, "a") && !is_running(&stage, "b"));
}

/// Workloads of one image: `other` for AMD64, and `own` for no named platform.
fn two_platforms(own: &'static str, other: &'static str) -> Stack {
    let mut plain = workload("web:2", 1);
    plain.strategy = Strategy::Recreate;
    stack([(own, plain), (other, for_platform("web:2", "linux/amd64"))])
}

#[test]
fn image_pulled_for_another_workload_is_not_taken() {
    for (own, other) in [("b", "a"), ("a", "b")] {
        let mut old = workload("web:1", 1);
        old.strategy = Strategy::Recreate;
        let mut stage = Stage::new(stack([(own, old)]));
        stage.world.observed.engine_architecture = Some("arm64".to_owned());
        settle(&mut stage);
        stage.world.observed.images.insert("web:2".to_owned(), image_for("linux/amd64"));
        stage.stack = two_platforms(own, other);
        let steps = settle(&mut stage);
        assert_eq!(steps[0], "pull web:2", "{steps:?}");
        assert!(is_running(&stage, "a") && is_running(&stage, "b"), "{steps:?}");

        // A classic store has room for one.
        let mut stage = Stage::new(stage.stack.clone());
        stage.world.observed.engine_architecture = Some("arm64".to_owned());
        stage.world.observed.engine_traits.keeps_one_platform = true;
        for _ in 0..6 {
            let plan = stage.round();
            let (second, first) =
                if own == "b" { ("linux/arm64", "linux/amd64") } else { ("linux/amd64", "linux/arm64") };
            let words = format!("b needs web:2 for {second}, but a needs it for another platform");
            assert!(waits(&plan).contains(&words), "{plan}");
            stage.tick(Duration::from_secs(1));
            assert!(stage.world.observed.images["web:2"].platforms == [Platform::parse(first)].into());
        }
        assert!(is_running(&stage, "a") && !is_running(&stage, "b"));
    }
}

#[test]
fn image_that_containers_were_made_of_is_not_replaced() {
    let mut stage = Stage::new(stack([("b", for_platform("web:2", "linux/amd64"))]));
    stage.world.observed.engine_architecture = Some("arm64".to_owned());
    stage.world.observed.engine_traits.keeps_one_platform = true;
    settle(&mut stage);
    // A user has removed the unused name.
    stage.world.observed.images.clear();
    stage.stack = two_platforms("a", "b");
    let plan = stage.round();
    assert!(
        waits(&plan).contains("a needs web:2 for linux/arm64, but b needs it for another platform"),
        "{plan}"
    );
    assert!(plan.steps.is_empty(), "{plan}");
}

#[test]
fn image_of_one_foreign_platform_is_taken_as_it_is() {
    // Nobody names another platform: the engine emulates it, as with Docker Compose.
    let mut stage = Stage::new(stack([("a", workload("web:2", 1)), ("b", workload("web:2", 1))]));
    stage.world.observed.engine_architecture = Some("arm64".to_owned());
    stage.world.observed.images.insert("web:2".to_owned(), image_for("linux/amd64"));
    assert!(!settle(&mut stage).iter().any(|step| step.starts_with("pull")));
}

#[test]
fn failed_pull_for_a_platform_delays_no_other() {
    let mut stage = Stage::new(two_platforms("a", "b"));
    stage.world.registry = Some(BTreeSet::new());
    stage.round();
    let mut failed: Vec<String> = stage.record.pulls.keys().map(ToString::to_string).collect();
    failed.sort();
    assert_eq!(failed, ["web:2", "web:2 for linux/amd64"]);
    // One of them is tried again.
    let image = "web:2 for linux/amd64".to_owned().into();
    stage.record.pulls.remove(&image);
    stage.world.registry = None;
    let plan = stage.round();
    let pulls: Vec<String> = plan.steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(pulls[..1], ["pull web:2 for linux/amd64"], "{plan}");
    assert!(waits(&plan).contains("a"), "{plan}");
    settle(&mut stage);
}

#[test]
fn store_of_several_platforms_finds_only_the_very_one() {
    for (here, wanted) in [("linux/386", "linux/amd64"), ("linux/arm/v6", "linux/arm/v7")] {
        for keeps_one_platform in [true, false] {
            let mut stage = Stage::new(stack([("web", for_platform("web:1", wanted))]));
            stage.world.observed.engine_traits.keeps_one_platform = keeps_one_platform;
            stage.world.observed.images.insert("web:1".to_owned(), image_for(here));
            let is_pulled = settle(&mut stage)[0] == format!("pull web:1 for {wanted}");
            assert_eq!(is_pulled, !keeps_one_platform, "{wanted} from {here}");
        }
    }
}

/// A worker of a Swarm does not list an overlay network that none of its containers uses.
#[test]
fn worker_says_how_an_external_network_becomes_known() {
    let external = Network { key: "mesh".into(), external: true, ..Network::default() };
    let mut stage = Stage::new(stack([("web", workload("web:1", 1))]));
    stage.stack.networks.insert("mesh".into(), external);
    for (is_swarm_worker, cure) in [
        (false, "does not exist: create it"),
        (true, "create it here with `docker network create mesh`; or if it is a network of the Swarm"),
        (true, "on a manager with `--attachable`, and keep a container on it here, such as `docker run -d"),
    ] {
        stage.world.observed.engine_traits.is_swarm_worker = is_swarm_worker;
        let plan = stage.round();
        assert!(waits(&plan).contains(cure), "{plan}");
    }
}

#[test]
fn limits_that_the_kernel_cannot_apply_are_only_noted() {
    let mut web = workload("web:1", 1);
    web.container.resources.memory = Some(64 << 20);
    web.container.resources.cpu_shares = Some(512);
    let mut stage = Stage::new(stack([("web", web)]));
    stage.world.observed.engine_traits.unsupported_limits = [LimitKind::Memory, LimitKind::Cpuset].into();
    settle(&mut stage);
    for _ in 0..5 {
        stage.tick(Duration::from_secs(60));
        let plan = stage.round();
        assert!(plan.is_settled() && plan.drifts.is_empty(), "{plan}");
        assert!(waits(&plan).contains("runs without the limits of Git on memory, which"), "{plan}");
    }
    // A limit that the kernel can apply is set right as before.
    for instance in stage.world.observed.instances.values_mut() {
        instance.live.resources.cpu_shares = Some(2);
    }
    let steps = settle(&mut stage);
    assert_eq!(steps.len(), 1, "{steps:?}");
    let live = &stage.world.observed.instances.values().next().unwrap().live.resources;
    assert_eq!((live.cpu_shares, live.memory), (Some(512), None));
}

fn with_cpus(image: &str, cpus: u64) -> Workload {
    let mut one = workload(image, 1);
    one.strategy = Strategy::Recreate;
    one.container.resources.nano_cpus = Some(cpus * 1_000_000_000);
    one
}

/// The engine creates no container with a limit above its CPUs, which a cluster allows.
#[test]
fn limit_above_the_cpus_takes_no_pod_away() {
    let mut stage = Stage::new(Stack { format: Format::Kubernetes, ..stack([("db", with_cpus("db:1", 2))]) });
    stage.world.observed.engine_traits.cpus = Some(4);
    settle(&mut stage);
    let limit =
        |stage: &Stage| stage.world.observed.instances.values().next().unwrap().live.resources.nano_cpus;
    for (wanted, live) in [("db:1", 8), ("db:2", 8), ("db:2", 16), ("db:2", 3)]
        .map(|(image, cpus)| (with_cpus(image, cpus), cpus.min(4)))
    {
        stage.stack = Stack { format: Format::Kubernetes, ..stack([("db", wanted)]) };
        settle(&mut stage);
        assert!(is_running(&stage, "db"));
        assert_eq!(limit(&stage), Some(live * 1_000_000_000));
        let plan = stage.round();
        assert!(plan.is_settled() && plan.drifts.is_empty() && plan.waits.is_empty(), "{plan}");
    }
}

#[test]
fn service_above_the_cpus_is_refused_before_the_stop() {
    let mut stage = Stage::new(stack([("db", with_cpus("db:1", 2))]));
    stage.world.observed.engine_traits.cpus = Some(4);
    settle(&mut stage);
    for image in ["db:1", "db:2"] {
        stage.stack = stack([("db", with_cpus(image, 8))]);
        for _ in 0..3 {
            let plan = stage.round();
            assert!(plan.steps.is_empty() && waits(&plan).contains("asks for 8 CPUs (`cpus`)"), "{plan}");
            assert!(is_running(&stage, "db"), "{image}");
            stage.tick(Duration::from_secs(1));
        }
    }
    stage.stack = stack([("db", with_cpus("db:2", 4))]);
    settle(&mut stage);
    assert!(is_running(&stage, "db"));
}

/// A service on a network with this subnet.
fn on_subnet(subnet: &str) -> Stack {
    let mut web = workload("web:1", 1);
    web.container.network_mode = NetworkMode::Networks([("shop_lan".to_owned(), Box::default())].into());
    let mut stack = stack([("web", web)]);
    let ipam = vec![(Some(subnet.to_owned()), None, None)];
    stack.networks.insert("shop_lan".to_owned(), Network { ipam, ..Network::default() });
    stack
}

#[test]
fn network_that_the_engine_would_refuse_is_not_replaced() {
    let mut stage = Stage::new(on_subnet("172.20.0.0/16"));
    stage.world.observed.engine_api = Some((1, 44));
    settle(&mut stage);
    let held =
        |network: &str, subnet: &str| (network.to_owned(), vec![IpNetwork::parse_subnet(subnet).unwrap()]);
    stage.world.observed.held_subnets =
        [held("vpn", "172.30.0.0/24"), held("shop_lan", "172.20.0.0/16")].into();
    for (subnet, why) in [
        ("172.30.0.0/16", "overlaps with that of the network vpn: give it another one"),
        ("172.20.0.1/16", "refuses the subnet 172.20.0.1/16: write 172.20.0.0/16"),
    ] {
        stage.stack = on_subnet(subnet);
        let plan = stage.round();
        assert!(plan.steps.is_empty() && waits(&plan).contains(why), "{plan}");
        assert!(stage.named("shop-web-1").networks.contains_key("shop_lan"));
    }
    // It overlaps only with itself.
    stage.stack = on_subnet("172.20.0.0/20");
    let steps = settle(&mut stage);
    assert!(steps.contains(&"create network shop_lan".to_owned()), "{steps:?}");
    // Up to Docker 24, the bits of a host were accepted.
    stage.world.observed.engine_api = Some((1, 43));
    stage.stack = on_subnet("172.20.0.1/16");
    settle(&mut stage);
}

#[test]
fn network_with_a_range_outside_of_its_subnet_is_kept() {
    let mut stage = Stage::new(on_subnet("172.20.0.0/16"));
    stage.world.observed.engine_api = Some((1, 44));
    settle(&mut stage);
    let range = Some("172.21.0.0/24".to_owned());
    stage.stack.networks.get_mut("shop_lan").unwrap().ipam[0].2 = range;
    let plan = stage.round();
    let why = "refuses the range 172.21.0.0/24, which is not in the subnet 172.20.0.0/16";
    assert!(plan.steps.is_empty() && waits(&plan).contains(why), "{plan}");
    stage.world.observed.engine_api = Some((1, 43));
    settle(&mut stage);
}

#[test]
fn service_keeps_its_address_while_its_network_stays() {
    let addressed = |subnet: &str, address: &str| {
        let mut stack = on_subnet(subnet);
        let web = stack.workloads.get_mut(&"web".into()).unwrap();
        let fixed = Attachment { ipv4: Some(address.to_owned()), ..Attachment::default() };
        let networks = [("shop_lan".to_owned(), Box::new(fixed))];
        web.container.network_mode = NetworkMode::Networks(networks.into());
        stack
    };
    let mut stage = Stage::new(addressed("172.31.0.0/24", "172.31.0.5"));
    settle(&mut stage);
    let held = vec![IpNetwork::parse_subnet("172.32.0.0/24").unwrap()];
    stage.world.observed.held_subnets = [("vpn".to_owned(), held)].into();
    stage.stack = addressed("172.32.0.0/24", "172.32.0.5");
    let plan = stage.round();
    assert!(plan.steps.is_empty() && waits(&plan).contains("overlaps with"), "{plan}");
    assert!(is_running(&stage, "web"));
    stage.world.observed.held_subnets.clear();
    let steps = settle(&mut stage);
    assert!(steps.contains(&"create network shop_lan".to_owned()), "{steps:?}");
    assert!(is_running(&stage, "web"));
}

/// A service on a network with one subnet, and another network with a subnet and a driver.
fn with_dmz(lan: &str, dmz: &str, driver: Option<&str>) -> Stack {
    let mut stack = on_subnet(lan);
    let (ipam, driver) = (vec![(Some(dmz.to_owned()), None, None)], driver.map(str::to_owned));
    stack.networks.insert("shop_dmz".to_owned(), Network { ipam, driver, ..Network::default() });
    stack
}

#[test]
fn network_that_stays_as_it_is_keeps_its_subnet() {
    let (one, two, part_of_two) = ("172.20.0.0/16", "172.21.0.0/16", "172.21.0.0/17");
    let mut stage = Stage::new(with_dmz(one, two, None));
    settle(&mut stage);
    let subnets = |subnet: &str| vec![IpNetwork::parse_subnet(subnet).unwrap()];
    stage.world.observed.held_subnets =
        [("shop_lan".to_owned(), subnets(one)), ("shop_dmz".to_owned(), subnets(two))].into();
    let why = "overlaps with that of the network shop_dmz";
    // Git only writes its driver in another way.
    stage.stack = with_dmz(part_of_two, two, Some("bridge"));
    let plan = stage.round();
    assert!(plan.steps.is_empty() && waits(&plan).contains(why), "{plan}");
    // It is changed, and a container of somebody else is on it.
    let foreign = |stage: &mut Stage, all: &[&str]| {
        let dmz = stage.world.observed.networks.get_mut("shop_dmz").unwrap();
        dmz.foreign = all.iter().map(|name| (*name).to_owned()).collect();
    };
    foreign(&mut stage, &["stranger"]);
    stage.stack = with_dmz(part_of_two, "172.22.0.0/16", None);
    let plan = stage.round();
    assert!(plan.steps.is_empty() && waits(&plan).contains(why), "{plan}");
    // It goes before the other one gets its subnet.
    foreign(&mut stage, &[]);
    let plan = stage.round();
    let steps: Vec<String> = plan.steps.iter().map(|step| step.action.to_string()).collect();
    let index = |text: &str| steps.iter().position(|step| step == text).unwrap();
    let created = &plan.steps[index("create network shop_lan")];
    assert!(created.after.contains(&index("remove network shop_dmz")), "{plan}");
}

#[test]
fn network_that_git_drops_goes_before_its_subnet_is_used() {
    let (one, two) = ("172.20.0.0/16", "172.21.0.0/16");
    let mut stage = Stage::new(with_dmz(one, two, None));
    settle(&mut stage);
    let subnets = |subnet: &str| vec![IpNetwork::parse_subnet(subnet).unwrap()];
    stage.world.observed.held_subnets = [("shop_dmz".to_owned(), subnets(two))].into();
    stage.stack = on_subnet(two);
    let plan = stage.round();
    let steps: Vec<String> = plan.steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(steps, ["remove network shop_dmz"], "{plan}");
    stage.world.observed.held_subnets.clear();
    let steps = settle(&mut stage);
    assert!(steps.contains(&"create network shop_lan".to_owned()), "{steps:?}");
}

#[test]
fn networks_can_exchange_their_subnets() {
    let both = |lan: &str, dmz: &str| with_dmz(lan, dmz, None);
    let (one, two) = ("172.20.0.0/16", "172.21.0.0/16");
    let mut stage = Stage::new(both(one, two));
    settle(&mut stage);
    let subnets = |subnet: &str| vec![IpNetwork::parse_subnet(subnet).unwrap()];
    stage.world.observed.held_subnets =
        [("shop_lan".to_owned(), subnets(one)), ("shop_dmz".to_owned(), subnets(two))].into();
    stage.stack = both(two, one);
    let steps = settle(&mut stage);
    assert!(steps.contains(&"create network shop_dmz".to_owned()), "{steps:?}");
}

/// A service on a network of this name, which has a subnet or an option.
fn on_named(name: &str, network: Network) -> Stack {
    let mut web = workload("web:1", 1);
    web.container.network_mode = NetworkMode::Networks([(name.to_owned(), Box::default())].into());
    let mut stack = stack([("web", web)]);
    stack.networks.insert(name.to_owned(), network);
    stack
}

/// Two services on a network, of which the later one has a fixed address.
fn with_fixed_address(internal: bool) -> Stack {
    let mut stack = on_subnet("172.20.0.0/16");
    stack.networks.get_mut("shop_lan").unwrap().internal = internal;
    let mut dns = workload("dns:1", 1);
    let fixed = Attachment { ipv4: Some("172.20.0.2".to_owned()), ..Attachment::default() };
    dns.container.network_mode = NetworkMode::Networks([("shop_lan".to_owned(), Box::new(fixed))].into());
    let web = stack.workloads.remove(&"web".into()).unwrap();
    stack.workloads.extend([("app".into(), web), ("dns".into(), dns)]);
    stack
}

/// Whether a plan connects `dns`, and `app` only after it.
fn is_fixed_first(plan: &Plan) -> bool {
    for (index, step) in plan.steps.iter().enumerate() {
        assert!(step.after.iter().all(|earlier| *earlier < index), "{plan}");
    }
    let connection = |name: &str| {
        let connects =
            |action: &Action| matches!(action, Action::Connect { container, .. } if container.name() == name);
        plan.steps.iter().position(|step| connects(&step.action)).unwrap_or_else(|| panic!("{plan}"))
    };
    let dns = connection("shop-dns-1");
    plan.steps[connection("shop-app-1")].after.contains(&dns)
}

#[test]
fn fixed_addresses_are_connected_first() {
    let mut stage = Stage::new(with_fixed_address(false));
    settle(&mut stage);
    // The network changes.
    let mut changed = Stage { stack: with_fixed_address(true), ..stage };
    assert!(is_fixed_first(&changed.round()));
    settle(&mut changed);
    // Somebody removes it.
    let observed = &mut changed.world.observed;
    observed.networks.clear();
    observed.held_subnets.clear();
    for instance in observed.instances.values_mut() {
        instance.networks.clear();
    }
    let (removed, record) = (observed.clone(), changed.record.clone());
    assert!(is_fixed_first(&changed.round()));
    // A container that cannot be connected holds up no other one.
    (changed.world.observed, changed.record) = (removed, record);
    let attempt = Attempt { count: 1, next: changed.now, error: "no".to_owned() };
    changed.record.failures.insert("shop-dns-1".to_owned(), attempt);
    assert!(!is_fixed_first(&changed.round()));
}

#[test]
fn taken_fixed_address_is_said_with_its_holder() {
    let mut stage = Stage::new(with_fixed_address(false));
    settle(&mut stage);
    let taken = Some("172.20.0.2".to_owned());
    stage.named("shop-app-1").networks.get_mut("shop_lan").unwrap().ip = taken;
    stage.named("shop-dns-1").networks.clear();
    let plan = stage.round();
    let why =
        "shop-app-1 still has the address 172.20.0.2 on shop_lan, which the engine chose for it: give app an";
    assert!(plan.steps.is_empty() && waits(&plan).contains(why), "{plan}");
    stage.named("shop-app-1").networks.get_mut("shop_lan").unwrap().ip = None;
    settle(&mut stage);
    assert!(stage.named("shop-dns-1").networks.contains_key("shop_lan"));
}

#[test]
fn ports_on_a_network_that_publishes_none_are_noted() {
    let mut stack = on_named("lan", Network { external: true, ..Network::default() });
    let proxy = stack.workloads.get_mut(&"web".into()).unwrap();
    proxy.container.image = HELPER_IMAGE.to_owned();
    let (protocol, host) = (Protocol::Tcp, Some(PortRange::one(8080)));
    proxy.container.ports = vec![Port { container: 80, protocol, host_ip: None, host }];
    let mut stage = Stage::new(stack);
    for publishes_no_ports in [true, false] {
        let lan = ObservedNetwork { id: "lan".to_owned(), publishes_no_ports, ..ObservedNetwork::default() };
        stage.world.observed.networks.insert("lan".to_owned(), lan);
        settle(&mut stage);
        let plan = stage.round();
        let is_noted = waits(&plan).contains("the network lan publishes no ports");
        assert!(plan.is_settled() && is_noted == publishes_no_ports, "{plan}");
    }
}
