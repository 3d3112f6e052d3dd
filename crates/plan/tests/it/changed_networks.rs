//! Networks that a commit writes in another way, and networks that it changes.

use std::collections::BTreeMap;

use driftless_model::{Attachment, Mask, Network, NetworkMode, Stack, StackHashes};
use driftless_plan::{Action, Target, compare_live};

use crate::{
    fixture::{Stage, stack, workload},
    prune::settle,
};

/// A service on one network.
fn on_network(network: Network) -> Stack {
    let mut web = workload("web:1", 1);
    let attached = [("lan".to_owned(), Box::new(Attachment::default()))];
    web.container.network_mode = NetworkMode::Networks(attached.into());
    let mut stack = stack([("web", web)]);
    stack.networks.insert("lan".to_owned(), network);
    stack
}

/// The number of differences of a live network from a later commit, and whether that commit replaces it.
fn differences_and_replacement(before: &Network, after: &Network) -> (usize, bool) {
    let mut stage = Stage::new(on_network(before.clone()));
    settle(&mut stage);
    stage.stack = on_network(after.clone());
    let (mask, images) = (Mask::new([7; 32]), BTreeMap::new());
    let target = Target {
        stack: &stage.stack,
        hashes: &StackHashes::of(&stage.stack),
        reached: None,
        agent: &stage.agent,
        policy: &stage.policy,
        images: &images,
        mask: &mask,
    };
    let differences = compare_live(&target, &stage.world.observed, &stage.record).len();
    let plans = settle(&mut stage);
    let mut steps = plans.iter().flat_map(|plan| &plan.steps);
    (differences, steps.any(|step| matches!(step.action, Action::RemoveNetwork { .. })))
}

fn with_driver(driver: Option<&str>) -> Network {
    Network { key: "lan".to_owned(), driver: driver.map(str::to_owned), ..Network::default() }
}

#[test]
fn explicit_default_driver_replaces_no_network() {
    let (without, with) = (with_driver(None), with_driver(Some("bridge")));
    assert_eq!(differences_and_replacement(&without, &with), (0, false));
    assert_eq!(differences_and_replacement(&with, &without), (0, false));
    assert_eq!(differences_and_replacement(&without, &with_driver(Some("macvlan"))), (1, true));
}

#[test]
fn renamed_key_of_a_network_replaces_nothing() {
    let before = with_driver(None);
    for driver in [None, Some("bridge")] {
        let after = Network { key: "backend".to_owned(), ..with_driver(driver) };
        assert_eq!(differences_and_replacement(&before, &after), (0, false), "{driver:?}");
    }
}

#[test]
fn changed_setting_of_a_network_replaces_it() {
    let before = with_driver(None);
    for after in [
        Network { attachable: true, ..with_driver(Some("bridge")) },
        Network { key: "backend".to_owned(), internal: true, ..before.clone() },
    ] {
        assert_eq!(differences_and_replacement(&before, &after), (1, true), "{after:?}");
    }
    let with_pool = Network { ipam: vec![(Some("10.9.0.0/24".to_owned()), None, None)], ..before.clone() };
    assert_eq!(differences_and_replacement(&with_pool, &before), (1, true));
}
