//! Slots of instances, and the names that follow from them.

use std::time::Duration;

use driftless_model::{Port, PortRange, Protocol, State, Workload};

use crate::fixture::{Stage, stack, workload};

#[test]
fn removed_container_returns_with_its_name_during_removal() {
    let mut stage = settled(workload("web:1", 2));
    stage.named("shop-web-1").state = State::Removing;
    let plan = stage.round();
    assert_eq!(names(&stage), ["shop-web-1", "shop-web-2"], "nobody takes another place meanwhile: {plan}");
    assert!(plan.steps.is_empty() && plan.look_again.is_some(), "{plan}");

    stage.world.observed.instances.retain(|_, it| it.state != State::Removing);
    settle(&mut stage);
    assert_eq!(names(&stage), ["shop-web-1", "shop-web-2"]);
}

#[test]
fn an_update_that_starts_first_takes_the_next_number() {
    let mut stage = settled(workload("web:1", 1));
    assert_eq!(names(&stage), ["shop-web-1"]);
    update(&mut stage);
    assert_eq!(names(&stage), ["shop-web-2"]);
    update(&mut stage);
    assert_eq!(names(&stage), ["shop-web-1"]);
}

#[test]
fn an_update_that_stops_first_keeps_the_number() {
    let mut web = workload("web:1", 1);
    web.container.ports.push(Port {
        container: 80,
        protocol: Protocol::Tcp,
        host_ip: None,
        host: Some(PortRange::one(8080)),
    });
    let mut stage = settled(web);
    update(&mut stage);
    assert_eq!(names(&stage), ["shop-web-1"]);
}

fn settled(web: Workload) -> Stage {
    let mut stage = Stage::new(stack([("web", web)]));
    settle(&mut stage);
    stage
}

fn update(stage: &mut Stage) {
    let web = stage.stack.workloads.get_mut(&"web".into()).unwrap();
    web.container.image.push('0');
    settle(stage);
}

fn settle(stage: &mut Stage) {
    for _ in 0..20 {
        if stage.round().is_settled() {
            return;
        }
        stage.tick(Duration::from_secs(10));
    }
    panic!("it does not settle");
}

fn names(stage: &Stage) -> Vec<String> {
    let mut names: Vec<_> = stage.world.observed.instances.values().map(|it| it.name.clone()).collect();
    names.sort();
    names
}
