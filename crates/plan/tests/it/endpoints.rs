//! The endpoints of proxies: which get traffic, and which lose it before their containers are stopped.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{
    Container, ContainerId, Endpoint, Observed, PROXY_IMAGE, Readiness, State, Strategy, Workload,
};
use driftless_plan::{Action, Plan, ProxyEndpoints, drains, stopped_at_once};

use crate::fixture::{Stage, stack, workload};

fn web(image: &str, replicas: u32) -> Workload {
    let container = Container {
        image: image.to_owned(),
        stop_grace_period: Some(Duration::from_secs(7)),
        ..workload(image, 1).container
    };
    Workload { container, ..workload(image, replicas) }
}

fn proxy() -> Workload {
    let command = ["proxy", "--ready-only", "80/tcp=_web:8080"].map(str::to_owned).to_vec();
    let container = Container { command: Some(command), ..workload(PROXY_IMAGE, 1).container };
    Workload { container, ..workload(PROXY_IMAGE, 1) }
}

/// Gives every running instance of `web` and `green` an address with the alias of the proxy's target.
fn connect(stage: &mut Stage) {
    for instance in stage.world.observed.instances.values_mut() {
        let name = instance.instance.workload.as_str();
        if ["web", "green"].contains(&name) {
            let version = if instance.config.image == "web:1" { 0 } else { 100 };
            let number = 10 + version + instance.instance.slot;
            let endpoint = Endpoint {
                network_id: "n".to_owned(),
                aliases: vec![format!("_{name}")],
                ip: Some(format!("10.0.0.{number}")),
                gateway: None,
            };
            instance.networks = BTreeMap::from([("shop_default".to_owned(), endpoint)]);
        }
    }
}

/// Settles, and returns each plan with the observed state that it was made for.
fn settle(stage: &mut Stage) -> Vec<(Plan, Observed)> {
    let mut all = Vec::new();
    for _ in 0..80 {
        connect(stage);
        let observed = stage.world.observed.clone();
        let plan = stage.round();
        if plan.is_settled() {
            return all;
        }
        all.push((plan, observed));
        stage.tick(Duration::from_secs(1));
    }
    panic!("it never settles");
}

fn stopped(plan: &Plan) -> Vec<ContainerId> {
    let stopped = plan.steps.iter().filter_map(|step| match &step.action {
        Action::StopInstance { container: driftless_plan::ContainerRef::Id(id, _), .. } => Some(id.clone()),
        _ => None,
    });
    stopped.collect()
}

/// The endpoints before the plan is executed.
fn endpoints(stage: &Stage, observed: &Observed, plan: &Plan) -> Vec<ProxyEndpoints> {
    driftless_plan::proxy_endpoints(&stage.stack, observed, plan, &stopped_at_once(plan))
}

#[test]
fn endpoint_is_drained_before_its_container_is_stopped() {
    let mut stage = Stage::new(stack([("web", web("web:1", 3)), ("front", proxy())]));
    settle(&mut stage);
    stage.stack = stack([("web", web("web:2", 3)), ("front", proxy())]);
    let rounds = settle(&mut stage);
    let mut drained = 0;
    for (plan, observed) in &rounds {
        let drains = drains(&stage.stack, observed, plan);
        for id in stopped(plan) {
            let drain = drains.get(&id).unwrap_or_else(|| panic!("not drained: {id:?}\n{plan}"));
            let own: Vec<String> =
                observed.instances[&id].networks.values().filter_map(|it| it.ip.clone()).collect();
            assert_eq!(drain[0].addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), own);
            assert_eq!((drain.len(), drain[0].grace), (1, Duration::from_secs(7)));
            drained += 1;
        }
        for proxy in endpoints(&stage, observed, plan) {
            let words = proxy.endpoints.words();
            assert!(words[0].len() > "_web=".len(), "some endpoint always gets traffic: {words:?}");
        }
    }
    assert_eq!(drained, 3);
}

#[test]
fn endpoint_of_another_workload_on_the_port_is_a_substitute() {
    let service = |ports: &[&str]| {
        let words = ["proxy", "--ready-only"].into_iter().chain(ports.iter().copied());
        let command = Some(words.map(str::to_owned).collect());
        let container = Container { command, ..workload(PROXY_IMAGE, 1).container };
        Workload { container, ..workload(PROXY_IMAGE, 1) }
    };
    let shared = "80/tcp=_web:8080,_green:8080";
    for (ports, is_drained) in [
        (&[shared][..], true),
        (&[shared, "81/tcp=_web:8081"], true),
        (&["80/tcp=_web:8080", "81/tcp=_green:8080"], false),
    ] {
        let colours = |blue: u32| [("web", web("web:1", blue)), ("green", web("green:1", 1))];
        let stack_of = |blue| stack(colours(blue).into_iter().chain([("front", service(ports))]));
        let mut stage = Stage::new(stack_of(1));
        settle(&mut stage);
        connect(&mut stage);
        stage.stack = stack_of(0);
        let observed = stage.world.observed.clone();
        let plan = stage.round();
        let [id] = &stopped(&plan)[..] else { panic!("{plan}") };
        let drains = drains(&stage.stack, &observed, &plan);
        assert_eq!(drains.contains_key(id), is_drained, "{ports:?}");
        for drain in drains.values().flatten() {
            assert_eq!(drain.addresses, ["10.0.0.11".parse().unwrap()].into());
        }
    }
}

#[test]
fn endpoint_without_a_ready_substitute_is_stopped_at_once() {
    let recreate = |image| Workload { strategy: Strategy::Recreate, ..web(image, 2) };
    let mut stage = Stage::new(stack([("web", recreate("web:1")), ("front", proxy())]));
    settle(&mut stage);
    stage.stack = stack([("web", recreate("web:2")), ("front", proxy())]);
    let rounds = settle(&mut stage);
    assert_eq!(rounds.iter().map(|(plan, _)| stopped(plan).len()).sum::<usize>(), 2);
    assert!(rounds.iter().all(|(plan, observed)| drains(&stage.stack, observed, plan).is_empty()));

    // The other one does not answer its probe.
    let mut stage = Stage::new(stack([("web", web("web:1", 2)), ("front", proxy())]));
    settle(&mut stage);
    connect(&mut stage);
    let sick = stage.world.observed.instances.values_mut().find(|it| it.instance.slot == 2).unwrap();
    assert!(matches!(sick.state, State::Running { .. }));
    sick.readiness = Readiness::NotReady { reason: "503".to_owned() };
    let id = sick.id.clone();
    stage.stack = stack([("web", web("web:1", 1)), ("front", proxy())]);
    let observed = stage.world.observed.clone();
    let plan = stage.round();
    assert_eq!(stopped(&plan), std::slice::from_ref(&id), "{plan}");
    assert!(!endpoints(&stage, &observed, &plan)[0].is_undecided);
    let mut unprobed = observed.clone();
    for instance in unprobed.instances.values_mut() {
        instance.readiness = Readiness::Starting { reason: "not probed yet".to_owned() };
    }
    let undecided = endpoints(&stage, &unprobed, &plan).remove(0);
    assert!(undecided.is_undecided && undecided.endpoints.words() == ["_web="]);
    assert_eq!(undecided.loses, [id.clone()].into());
    let nothing = Plan::default();
    assert!(endpoints(&stage, &observed, &nothing)[0].loses.is_empty());
    let drains = drains(&stage.stack, &observed, &plan);
    assert_eq!(drains[&id][0].grace, Duration::from_secs(1), "it may have kept connections");
}

#[test]
fn instances_that_take_no_traffic_say_why() {
    let mut stage =
        Stage::new(stack([("web", web("web:1", 3)), ("front", proxy()), ("other", web("other:1", 1))]));
    settle(&mut stage);
    connect(&mut stage);
    let shown = |stage: &mut Stage| {
        let plan = stage.round();
        let assessment = stage.assess(&plan);
        let instances = |name: &str| assessment.workloads[&name.into()].instances.clone();
        assert!(instances("other").iter().chain(&instances("front")).all(|it| it.traffic.is_none()));
        let traffic = |it: &driftless_model::InstanceStatus| it.traffic.clone().unwrap();
        instances("web").iter().map(traffic).collect::<Vec<_>>()
    };
    let all = shown(&mut stage);
    assert!(all.iter().all(|traffic| traffic.receives && traffic.ports == ["8080/tcp"]), "{all:?}");
    assert_eq!(all[0].proxies, ["front".into()]);
    let mut instances = stage.world.observed.instances.values_mut();
    let second =
        instances.find(|it| it.instance.slot == 2 && it.instance.workload.as_str() == "web").unwrap();
    second.readiness = Readiness::NotReady { reason: "503".to_owned() };
    let sentences: Vec<String> = shown(&mut stage).iter().map(|traffic| traffic.sentence()).collect();
    assert_eq!(sentences, ["takes traffic", "takes no traffic: 503", "takes traffic"]);
    // Without its proxy nobody gets any, also while nothing is healed.
    stage.policy.suspended = true;
    let front =
        stage.world.observed.instances.values_mut().find(|it| it.instance.workload.as_str() == "front");
    front.unwrap().state = State::Paused;
    let last = shown(&mut stage).remove(2);
    assert_eq!(last.sentence(), "takes no traffic: its proxy does not run");
}
