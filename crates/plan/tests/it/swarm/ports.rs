//! Published ports that pass from one service to another: no service is written with a port that another one still has.

use driftless_model::{Port, PortRange, Protocol, SwarmPort};
use driftless_plan::WaitReason;

use super::*;

/// A Swarm refuses a service with a port of another one.
pub(super) fn check(swarm: &ObservedSwarm, name: &str, spec: &Value) {
    let written = ObservedService { spec: spec.clone(), ..ObservedService::default() }.ports();
    for (other, service) in swarm.services.iter().filter(|(other, _)| *other != name) {
        let taken = service.ports();
        let is_taken = |port: &&SwarmPort| taken.iter().any(|taken| taken.collides(port));
        assert_eq!(written.iter().find(is_taken), None, "{name} needs the port that {other} has");
    }
}

/// A workload that publishes this port.
fn with_port(number: u16) -> Workload {
    let mut workload = workload("web:1", 1);
    let host = Some(PortRange::one(number));
    workload.container.ports = vec![Port { container: 80, protocol: Protocol::Tcp, host_ip: None, host }];
    workload
}

/// The services `blue` with port 8080 and `green` with port 80.
fn two() -> Cluster {
    let mut cluster = Cluster::new([("blue", with_port(8080)), ("green", with_port(80))]);
    cluster.settle();
    cluster
}

#[test]
fn renamed_service_gets_the_port_after_the_removal() {
    let mut cluster = two();
    cluster.drop("green");
    cluster.want("apple", with_port(80));
    let waits = cluster.waits();
    assert!(waits.contains("apple waits for green: it still publishes the port 80/tcp"), "{waits}");
    assert!(!cluster.swarm.services.contains_key("shop_green"));
    assert_eq!(cluster.settle(), ["create service shop_apple from web:1"]);
}

#[test]
fn service_gets_the_port_that_another_one_gives_up() {
    let mut cluster = two();
    cluster.want("green", with_port(9090));
    cluster.want("blue", with_port(80));
    cluster.want("apple", with_port(8080));
    let steps = cluster.settle();
    assert_eq!(
        steps,
        ["update service shop_green", "update service shop_blue", "create service shop_apple from web:1"]
    );
}

#[test]
fn port_is_free_once_the_swarm_has_taken_it_back() {
    let mut cluster = two();
    let given = cluster.swarm.services["shop_green"].ports();
    cluster.want("green", with_port(9090));
    cluster.want("blue", with_port(80));
    cluster.swarm.services.get_mut("shop_green").unwrap().given_ports = given;
    assert_eq!(cluster.steps(), ["update service shop_green"]);
    assert!(cluster.waits().contains("blue waits for green"), "{}", cluster.waits());
    cluster.swarm.services.get_mut("shop_green").unwrap().given_ports.clear();
    assert_eq!(cluster.settle(), ["update service shop_blue"]);
}

#[test]
fn services_that_swap_ports_say_how_to_go_on() {
    let mut cluster = two();
    cluster.want("blue", with_port(80));
    cluster.want("green", with_port(8080));
    assert_eq!(cluster.steps(), [""; 0]);
    let made = cluster.round();
    assert!(made.waits.iter().all(|wait| wait.reason == WaitReason::Blocked), "{made}");
    let waits = cluster.waits();
    for text in [
        "blue needs the port 80/tcp, and green, which has it, waits for blue itself: move one of the two to a free port in a first commit",
        "green needs the port 8080/tcp, and blue, which has it, waits for green itself",
    ] {
        assert!(waits.contains(text), "{waits}");
    }
    cluster.want("blue", with_port(9090));
    assert_eq!(cluster.settle(), ["update service shop_blue", "update service shop_green"]);
    cluster.want("blue", with_port(80));
    assert_eq!(cluster.settle(), ["update service shop_blue"]);
}

#[test]
fn service_that_waits_for_the_taker_of_its_port_is_reported() {
    let mut cluster = two();
    let mut green = with_port(9090);
    green.after.push(Dependency {
        workload: "apple".into(),
        condition: Condition::Started,
        restart: false,
        required: true,
    });
    cluster.want("green", green);
    cluster.want("apple", with_port(80));
    assert_eq!(cluster.steps(), [""; 0]);
    let waits = cluster.waits();
    assert!(waits.contains("and green, which has it, waits for apple itself"), "{waits}");
}

#[test]
fn port_of_a_service_of_others_is_not_taken() {
    let mut cluster = Cluster::new([("web", with_port(80))]);
    let port = SwarmPort { number: 80, protocol: "tcp".to_owned(), is_of_nodes: false };
    cluster.swarm.port_users.insert(port, "traefik".to_owned());
    assert_eq!(cluster.steps(), ["find the digest of web:1"]);
    let waits = cluster.waits();
    assert!(waits.contains("web needs the port 80/tcp, which the service `traefik` has"), "{waits}");
    cluster.swarm.port_users.clear();
    assert_eq!(cluster.settle(), ["create service shop_web from web:1"]);
}

#[test]
fn port_of_a_protected_service_is_not_taken() {
    let mut cluster = two();
    cluster.spec("shop_green")["Labels"]["driftless.prune"] = json!("false");
    cluster.drop("green");
    cluster.want("apple", with_port(80));
    assert_eq!(cluster.steps(), [""; 0]);
    let waits = cluster.waits();
    assert!(waits.contains("apple needs the port 80/tcp, which the service `shop_green` has"), "{waits}");
}
