//! Another engine for an application: the objects of the former one that it waits for.

use driftless_model::{AdoptedNetwork, Candidate, LeftInSwarm, SharedState};

use super::*;

#[test]
fn containers_are_not_started_while_services_are_left() {
    let mut cluster = shop();
    cluster.policy.engine = EngineKind::Docker;
    cluster.observed.left_in_swarm.services = vec!["shop_db".to_owned(), "shop_web".to_owned()];
    cluster.observed.left_in_swarm.networks = vec!["shop_default".to_owned()];
    let waits = cluster.waits();
    let command = "`docker service rm shop_db shop_web && docker network rm shop_default`";
    assert!(waits.contains(command), "{waits}");
    assert!(cluster.round().steps.is_empty());
    // A network is in the way of that of the host, and a file would stay for ever.
    for (left, command) in [
        (LeftInSwarm { networks: vec!["n".to_owned()], ..LeftInSwarm::default() }, "`docker network rm n`"),
        (LeftInSwarm { configs: vec!["c".to_owned()], ..LeftInSwarm::default() }, "`docker config rm c`"),
        (LeftInSwarm { secrets: vec!["s".to_owned()], ..LeftInSwarm::default() }, "`docker secret rm s`"),
    ] {
        cluster.observed.left_in_swarm = left;
        let waits = cluster.waits();
        assert!(waits.contains(command), "{waits}");
        assert!(cluster.round().steps.is_empty());
        assert_eq!(cluster.assess().sync, SyncStatus::OutOfSync);
    }
}

#[test]
fn containers_are_not_started_while_the_swarm_is_locked() {
    let mut cluster = shop();
    cluster.policy.engine = EngineKind::Docker;
    let unknown = Some("its state is locked: run `docker swarm unlock`".to_owned());
    cluster.observed.left_in_swarm = LeftInSwarm { unknown, ..LeftInSwarm::default() };
    let waits = cluster.waits();
    assert!(waits.contains("run `docker swarm unlock`"), "{waits}");
    assert!(cluster.round().steps.is_empty());
    assert_eq!(cluster.assess().sync, SyncStatus::OutOfSync);
}

#[test]
fn services_are_not_created_while_containers_are_left() {
    let mut stage = crate::fixture::Stage::new(stack([("web", workload("web:1", 1))]));
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(1));
    }
    let mut cluster = shop();
    cluster.observed.instances = stage.world.observed.instances.clone();
    for instance in cluster.observed.instances.values_mut() {
        instance.image_id = "sha256:1".to_owned();
        instance.config = Arc::new(Container::default());
    }
    let waits = cluster.waits();
    assert!(waits.contains("`docker rm -f shop-web-1`"), "{waits}");
    assert!(cluster.swarm.services.is_empty());
    assert_eq!(cluster.assess().sync, SyncStatus::OutOfSync);
    // The network of the containers has the name of that of the services.
    cluster.observed.instances.clear();
    let network = ObservedNetwork {
        agent: Some(AgentId("agent".to_owned())),
        app: Some("shop".into()),
        is_local: true,
        ..ObservedNetwork::default()
    };
    cluster.observed.networks.insert("shop_default".to_owned(), network);
    let waits = cluster.waits();
    assert!(waits.contains("`docker network rm shop_default`"), "{waits}");
    assert!(!waits.contains("has changed in Git"), "{waits}");
    assert!(cluster.swarm.services.is_empty());
    cluster.observed.networks.clear();
    assert_ne!(cluster.settle(), [""; 0]);
}

#[test]
fn services_wait_for_containers_of_docker_compose() {
    let mut stage = crate::fixture::Stage::new(stack([("web", workload("web:1", 1))]));
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(1));
    }
    let mut cluster = shop();
    let instances = std::mem::take(&mut stage.world.observed.instances);
    for (id, instance) in instances {
        let candidate = Candidate { instance, by_name: false, defaults: Arc::default() };
        cluster.observed.candidates.insert(id, candidate);
    }
    // Adopted or not: the service would write to the volumes of the container.
    let waits = cluster.waits();
    assert!(waits.contains("`docker rm -f shop-web-1`"), "{waits}");
    assert!(cluster.swarm.services.is_empty());
    let candidates = std::mem::take(&mut cluster.observed.candidates);
    // An adopted network has the name of that of the services, and no label of the agent.
    let network = ObservedNetwork { id: "n1".to_owned(), is_local: true, ..ObservedNetwork::default() };
    cluster.observed.networks.insert("shop_default".to_owned(), network);
    let adopted = AdoptedNetwork { id: "n1".to_owned(), spec: SpecHash("1".to_owned()) };
    cluster.record.adopted.networks.insert("shop_default".to_owned(), adopted);
    let waits = cluster.waits();
    assert!(waits.contains("`docker network rm shop_default`"), "{waits}");
    cluster.observed.networks.clear();
    assert_ne!(cluster.settle(), [""; 0]);
    // Services that are there already are healed and removed although such containers run.
    cluster.observed.candidates = candidates;
    cluster.swarm.services.remove("shop_web");
    assert_eq!(cluster.settle(), ["create service shop_web from web:1"]);
    let waits = cluster.waits();
    assert!(waits.contains("once more: remove them there with `docker rm -f shop-web-1`"), "{waits}");
    cluster.stack.workloads.clear();
    cluster.stack.swarm.clear();
    cluster.settle();
    assert!(cluster.swarm.services.is_empty());
}

#[test]
fn services_wait_for_containers_on_another_manager() {
    let mut cluster = shop();
    let two = SwarmNode {
        name: "two".to_owned(),
        state: "ready".to_owned(),
        is_manager: true,
        ..SwarmNode::default()
    };
    cluster.swarm.nodes.insert("n2".to_owned(), two);
    let left = |node: &str| {
        let left = BTreeMap::from([(node.to_owned(), "docker rm -f shop-web-1".to_owned())]);
        let state = Some(SharedState { left, ..SharedState::default() });
        Some(SharedObject { state, ..SharedObject::default() })
    };
    cluster.swarm.shared = left("n2");
    let waits = cluster.waits();
    assert!(
        waits.contains("on two, as the agent there says: remove them there with `docker rm -f"),
        "{waits}"
    );
    assert!(cluster.steps().is_empty() && cluster.swarm.services.is_empty());
    cluster.swarm.nodes.get_mut("n2").unwrap().state = "down".to_owned();
    let waits = cluster.waits();
    assert!(
        waits.contains("the node is down: if it does not come back, run `docker node demote two`"),
        "{waits}"
    );
    // It has joined again, and its agent sees nothing.
    let again = SwarmNode { state: "ready".to_owned(), ..cluster.swarm.nodes["n2"].clone() };
    cluster.swarm.nodes.insert("n4".to_owned(), again);
    let waits = cluster.waits();
    assert!(!waits.contains("docker rm"), "{waits}");
    cluster.swarm.nodes.remove("n4");
    cluster.swarm.nodes.get_mut("n2").unwrap().state = "ready".to_owned();
    // Of its own host the agent knows better, and nobody speaks for a node that is no manager any more.
    for node in ["n1", "n3"] {
        cluster.swarm.shared = left(node);
        let waits = cluster.waits();
        assert!(!waits.contains("docker rm"), "{node}: {waits}");
    }
    cluster.settle();
    assert_eq!(cluster.swarm.services.len(), 2);
    // Services that are there already go on.
    cluster.swarm.shared = left("n2");
    cluster.swarm.services.remove("shop_web");
    assert_eq!(cluster.steps(), ["create service shop_web from web:1"]);
    let waits = cluster.waits();
    assert!(
        waits.contains("also has containers on two, which do the work of its services once more"),
        "{waits}"
    );
}
