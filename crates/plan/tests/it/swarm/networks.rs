//! Networks: how many addresses they get, and when services have outgrown them.

use driftless_model::SwarmUpdate;

use super::*;

/// An application whose only service is on one network.
fn on_one_network(replicas: u32) -> Cluster {
    let mut web = workload("web:1", replicas);
    let attached = [("shop_net".to_owned(), Box::default())];
    web.container.network_mode = NetworkMode::Networks(attached.into());
    let mut cluster = Cluster::new([("web", web)]);
    let network = Network { driver: Some("overlay".to_owned()), ..Network::default() };
    cluster.stack.networks.insert("shop_net".to_owned(), network);
    cluster
}

/// The number of addresses in the step that creates the network.
fn wanted_addresses(cluster: &Cluster) -> Option<u64> {
    let mut found = None;
    cluster.with_target(|target| {
        let made = plan(target, &cluster.seen(), &cluster.record, cluster.now);
        found = made.steps.iter().find_map(|step| match &step.action {
            Action::CreateNetwork { addresses, .. } => Some(*addresses),
            _ => None,
        });
    });
    found.expect("the network is created")
}

#[test]
fn network_has_addresses_for_all_that_its_services_may_start() {
    let mut cluster = on_one_network(3);
    assert_eq!(wanted_addresses(&cluster), Some(1 + 3));
    let leader = cluster.swarm.nodes["n1"].clone();
    cluster.swarm.nodes.insert("n2".to_owned(), SwarmNode { is_leader: false, ..leader });
    let parallelism = Some(2);
    let update = SwarmUpdate { order: Some("start-first".to_owned()), parallelism, ..SwarmUpdate::default() };
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().update = Some(update);
    let each = SwarmService { mode: SwarmMode::Global, ..SwarmService::default() };
    cluster.stack.swarm.insert("each".into(), each);
    let web = cluster.stack.workloads[&"web".into()].clone();
    cluster.stack.workloads.insert("each".into(), Workload { replicas: 1, ..web });
    // A service and 3 tasks, of which 2 are started before others stop; a service and a task on each node; a load balancer more.
    assert_eq!(wanted_addresses(&cluster), Some(1 + 3 + 2 + 1 + 2 + 1));
    // Without a virtual address.
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().endpoint_mode = Some("dnsrr".to_owned());
    assert_eq!(wanted_addresses(&cluster), Some(3 + 2 + 1 + 2 + 1));
    // With its own range, or none of IPv4, nothing is chosen.
    for change in [
        |network: &mut Network| network.ipam = vec![(Some("10.9.0.0/24".to_owned()), None, None)],
        |network: &mut Network| network.ipam_driver = Some("null".to_owned()),
        |network: &mut Network| network.disable_ipv4 = true,
    ] {
        let mut cluster = on_one_network(3);
        change(cluster.stack.networks.get_mut("shop_net").unwrap());
        assert_eq!(wanted_addresses(&cluster), None);
    }
}

#[test]
fn network_that_services_have_outgrown_is_reported() {
    let mut cluster = on_one_network(3);
    cluster.settle();
    cluster.observed.networks.get_mut("shop_net").unwrap().addresses = Some(4);
    assert_eq!(cluster.waits(), "");
    cluster.stack.workloads.get_mut(&"web".into()).unwrap().replicas = 4;
    let expected = "network shop_net has 4 addresses, and the services need 5: give it another `name` in Git";
    assert!(cluster.waits().contains(expected), "{}", cluster.waits());
    // One without a range yet says nothing about its size.
    cluster.observed.networks.get_mut("shop_net").unwrap().addresses = None;
    assert!(!cluster.waits().contains("addresses"), "{}", cluster.waits());
}

#[test]
fn network_without_addresses_is_made_again() {
    let mut cluster = on_one_network(3);
    cluster.settle();
    // A range that is too small is one: services have outgrown it.
    cluster.observed.networks.get_mut("shop_net").unwrap().addresses = Some(0);
    cluster.swarm.services.clear();
    let plan = cluster.round();
    let steps: Vec<String> = plan.steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(steps, ["create service shop_web from web:1"]);
    assert!(cluster.waits().contains("network shop_net has 0 addresses"), "{}", cluster.waits());
    let network = cluster.observed.networks.get_mut("shop_net").unwrap();
    (network.addresses, network.is_unallocated) = (None, true);
    let id = network.id.clone();
    // Its services wait in it, and a Swarm removes no network that is used.
    let spec = cluster.spec("shop_web");
    spec["TaskTemplate"]["Networks"] = json!([{"Target": id}]);
    let plan = cluster.round();
    assert_eq!(plan.steps.len(), 0, "{plan}");
    assert!(cluster.waits().contains("network shop_net has no addresses"), "{}", cluster.waits());
    cluster.swarm.services.clear();
    let steps = cluster.settle();
    assert_eq!(steps[..2], ["remove network shop_net", "create network shop_net"], "{steps:?}");
    assert_eq!(cluster.observed.networks["shop_net"].addresses, Some(252));
}

#[test]
fn changed_network_is_out_of_sync() {
    let mut cluster = on_one_network(1);
    cluster.settle();
    assert_eq!(cluster.assess().sync, SyncStatus::Synced);
    cluster.stack.networks.get_mut("shop_net").unwrap().options =
        [("encrypted".to_owned(), String::new())].into();
    assert!(cluster.waits().contains("network shop_net has changed in Git"), "{}", cluster.waits());
    assert_eq!(cluster.assess().sync, SyncStatus::OutOfSync);
}

#[test]
fn network_of_a_stack_that_differs_is_reported() {
    let mut cluster = on_one_network(1);
    let of_git = cluster.stack.networks["shop_net"].clone();
    // As `docker stack deploy` and the engine make it.
    let present = Network {
        labels: [("com.docker.stack.namespace".to_owned(), "shop".to_owned())].into(),
        options: [("com.docker.network.driver.overlay.vxlanid_list".to_owned(), "4097".to_owned())].into(),
        enable_ipv6: Some(false),
        ipam: vec![(Some("10.0.1.0/24".to_owned()), Some("10.0.1.1".to_owned()), None)],
        ..of_git.clone()
    };
    let found =
        ObservedNetwork { id: "theirs".to_owned(), unlabelled: Some(present), ..ObservedNetwork::default() };
    cluster.observed.networks.insert("shop_net".to_owned(), found);
    assert_eq!(cluster.settle().len(), 2, "the network is used as it is");
    assert_eq!(cluster.waits(), "");
    let changes: [(&str, fn(&mut Network)); 4] = [
        ("options.encrypted", |network| drop(network.options.insert("encrypted".to_owned(), String::new()))),
        ("internal", |network| network.internal = true),
        ("attachable", |network| network.attachable = true),
        ("ipam.subnet", |network| network.ipam = vec![(Some("10.9.0.0/24".to_owned()), None, None)]),
    ];
    for (field, change) in changes {
        let mut network = of_git.clone();
        change(&mut network);
        cluster.stack.networks.insert("shop_net".to_owned(), network);
        let waits = cluster.waits();
        assert!(waits.contains(&format!("network shop_net differs from Git ({field})")), "{waits}");
        assert_eq!(cluster.assess().sync, SyncStatus::OutOfSync, "{field}");
    }
}

#[test]
fn service_waits_for_a_network_that_it_can_use() {
    let local = ObservedNetwork { is_local: true, ..ObservedNetwork::default() };
    let of_another = ObservedNetwork { app: Some("other".into()), ..ObservedNetwork::default() };
    for (external, found, reason) in [
        (true, None, "is external and does not exist"),
        (true, Some(local.clone()), "is a network of this host alone"),
        (false, Some(local), "`docker network rm shop_net`"),
        (false, Some(of_another), "belongs to application `other`"),
    ] {
        let mut cluster = on_one_network(1);
        cluster.stack.networks.get_mut("shop_net").unwrap().external = external;
        cluster.observed.networks.extend(found.map(|found| ("shop_net".to_owned(), found)));
        for _ in 0..3 {
            cluster.round();
        }
        assert!(cluster.waits().contains(reason), "{}", cluster.waits());
        assert!(cluster.swarm.services.is_empty(), "{reason}");
        cluster.observed.networks.insert("shop_net".to_owned(), ObservedNetwork::default());
        assert_eq!(cluster.settle(), ["create service shop_web from web:1"]);
    }
    // A Swarm has some of these names as well.
    let mut cluster = on_one_network(1);
    let attached = [("host".to_owned(), Box::default())];
    let web = cluster.stack.workloads.get_mut(&"web".into()).unwrap();
    web.container.network_mode = NetworkMode::Networks(attached.into());
    let network = Network { external: true, ..Network::default() };
    cluster.stack.networks = [("host".to_owned(), network)].into();
    let host = ObservedNetwork { is_local: true, ..ObservedNetwork::default() };
    cluster.observed.networks.insert("host".to_owned(), host);
    cluster.settle();
    assert_eq!(cluster.swarm.services.len(), 1);
}

#[test]
fn unused_network_is_removed_while_a_difference_is_left() {
    let mut cluster = on_one_network(2);
    cluster.policy.self_heal = false;
    let network = cluster.stack.networks["shop_net"].clone();
    cluster.stack.networks.insert("shop_old".to_owned(), network);
    cluster.settle();
    *cluster.spec("shop_web").pointer_mut("/Mode/Replicated/Replicas").unwrap() = json!(1);
    cluster.run();
    cluster.stack.networks.remove("shop_old");
    assert_eq!(cluster.steps(), ["remove network shop_old"]);
    let last = cluster.round();
    assert!(last.is_reached() && !last.drifts.is_empty(), "{last}");
}
