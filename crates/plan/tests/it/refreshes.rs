//! Pulls of images that are here: `pull_policy` of `always`, or with an age.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{Attempt, NetworkMode, Peer, PullPolicy, Readiness, Replacement, Strategy};
use driftless_plan::{Action, Plan, WaitReason};

use crate::fixture::{Stage, stack, workload};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The images that a plan pulls.
fn pulls(plan: &Plan) -> Vec<String> {
    let pulled = |action: &Action| match action {
        Action::PullImage { image, .. } => Some(image.clone()),
        _ => None,
    };
    plan.steps.iter().filter_map(|step| pulled(&step.action)).collect()
}

/// So many rounds, one each second, and the images that they pull.
fn rounds(stage: &mut Stage, count: u32) -> Vec<String> {
    let mut pulled = Vec::new();
    for _ in 0..count {
        pulled.extend(pulls(&stage.round()));
        stage.tick(SECOND);
    }
    pulled
}

/// A stage where `web` runs, and the registry does not answer any more.
fn without_registry(policy: PullPolicy) -> Stage {
    let mut web = workload("web:1", 1);
    web.pull = policy;
    let mut stage = Stage::new(stack([("web", web)]));
    assert_eq!(rounds(&mut stage, 5), ["web:1"]);
    assert!(stage.record.settled.is_some());
    stage.world.registry = Some(BTreeSet::new());
    stage
}

#[test]
fn old_image_is_used_when_its_pull_fails() {
    let mut stage = without_registry(PullPolicy::Every(DAY));
    stage.stack.workloads.get_mut(&"web".into()).unwrap().container.user = Some("1000".to_owned());
    assert_eq!(rounds(&mut stage, 300), ["web:1"]);
    let plan = stage.round();
    assert!(plan.is_settled(), "{plan}");
    stage.world.observed.instances.clear();
    assert_eq!(rounds(&mut stage, 300), ["web:1"], "the next creation asks again");
    assert!(stage.world.observed.instances.values().any(|instance| instance.is_running()));
}

/// The pull is not repeated before the next creation, which never comes.
#[test]
fn rollout_with_an_old_image_is_late_in_time() {
    let mut stage = without_registry(PullPolicy::Every(DAY));
    stage.stack.workloads.get_mut(&"web".into()).unwrap().replicas = 2;
    rounds(&mut stage, 60);
    assert!(stage.named("shop-web-2").is_running() && stage.record.settled.is_some());
    stage.stack.workloads.get_mut(&"web".into()).unwrap().container.user = Some("1000".to_owned());
    let mut is_late = false;
    for _ in 0..700 {
        let plan = stage.round();
        is_late |= plan.waits.iter().any(|wait| wait.is(WaitReason::ProgressDeadlineExceeded));
        stage.tick(SECOND);
        for instance in stage.world.observed.instances.values_mut() {
            if instance.config.user.is_some() {
                instance.readiness = Readiness::NotReady { reason: "status 500".to_owned() };
            }
        }
    }
    let instances = stage.world.observed.instances.values();
    assert_eq!(instances.filter(|instance| instance.config.user.is_some()).count(), 1);
    assert!(is_late && !stage.record.pulls.is_empty());
}

#[test]
fn always_pulled_image_waits_with_growing_pauses() {
    let mut stage = without_registry(PullPolicy::Always);
    stage.world.observed.instances.clear();
    let asked = rounds(&mut stage, 300).len();
    assert!((3..9).contains(&asked), "{asked} pulls");
    let plan = stage.round();
    assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::ImagePullBackOff)), "{plan}");
    assert!(plan.look_again.is_some() && stage.world.observed.instances.is_empty(), "{plan}");
    stage.world.registry = None;
    rounds(&mut stage, 600);
    assert!(stage.named("shop-web-1").is_running());
}

/// The version before is kept while an image of the commit is missing.
#[test]
fn always_pulled_image_of_a_kept_version_waits_too() {
    let mut stage = without_registry(PullPolicy::Always);
    stage.stack.workloads.get_mut(&"web".into()).unwrap().container.image = "web:2".to_owned();
    assert!(!rounds(&mut stage, 2).is_empty());
    stage.world.observed.instances.clear();
    let asked = rounds(&mut stage, 300).iter().filter(|image| *image == "web:1").count();
    assert!((1..9).contains(&asked), "{asked} pulls");
}

/// A workload of a later wave has lost its container, and its older image.
#[test]
fn image_of_a_kept_version_holds_back_no_commit() {
    let versions = |web: &str, zed: &str| {
        let mut web = workload(web, 1);
        (web.pull, web.wave) = (PullPolicy::Always, 1);
        stack([("web", web), ("zed", workload(zed, 1))])
    };
    let mut stage = Stage::new(versions("web:1", "zed:1"));
    rounds(&mut stage, 10);
    assert!(stage.record.settled.is_some());
    stage.world.registry = Some(["web:2", "zed:2"].map(str::to_owned).into());
    stage.stack = versions("web:2", "zed:2");
    stage.world.observed.instances.retain(|_, instance| instance.name != "shop-web-1");
    rounds(&mut stage, 300);
    let instances = stage.world.observed.instances.values();
    let images: Vec<&str> = instances.map(|instance| instance.config.image.as_str()).collect();
    assert!(images.len() == 2 && images.contains(&"web:2") && images.contains(&"zed:2"), "{images:?}");
}

#[test]
fn creation_that_is_held_back_pulls_nothing() {
    for policy in [PullPolicy::Always, PullPolicy::Every(DAY)] {
        let mut stage = without_registry(policy);
        stage.world.observed.instances.clear();
        let (next, error) = (stage.now.after(SECOND), "unknown or invalid runtime name: nvidia".to_owned());
        stage.record.failures.insert("shop-web-1".to_owned(), Attempt { count: 1, next, error });
        let plan = stage.round_cut_short(0, |_| 0);
        assert!(plan.to_string().contains("create shop-web-1") && pulls(&plan).is_empty(), "{plan}");
        stage.tick(SECOND);
        assert_eq!(pulls(&stage.round_cut_short(0, |_| 0)), ["web:1"]);
    }
}

/// A stage with a program in the network of a VPN, which is replaced stop-first.
fn behind_vpn(policy: PullPolicy) -> Stage {
    let mut vpn = workload("vpn:1", 1);
    vpn.strategy = Strategy::Recreate;
    let mut guest = workload("guest:1", 1);
    guest.container.network_mode = NetworkMode::Of(Peer::Workload("vpn".into()));
    guest.pull = policy;
    let mut stage = Stage::new(stack([("guest", guest), ("vpn", vpn)]));
    rounds(&mut stage, 10);
    assert!(stage.named("shop-guest-1").is_running() && stage.record.settled.is_some());
    stage
}

#[test]
fn guest_of_a_replaced_container_needs_no_registry() {
    for policy in [PullPolicy::Always, PullPolicy::Every(DAY)] {
        let mut stage = behind_vpn(policy);
        stage.world.registry = Some(["vpn:2".to_owned()].into());
        stage.stack.workloads.get_mut(&"vpn".into()).unwrap().container.image = "vpn:2".to_owned();
        assert_eq!(rounds(&mut stage, 10), ["vpn:2"]);
        let vpn = stage.named("shop-vpn-1").id.clone();
        let guest = stage.named("shop-guest-1");
        assert!(guest.is_running() && guest.hosts.contains(&vpn));
    }
}

#[test]
fn guest_with_a_requested_restart_is_pulled_if_possible() {
    for registry in [None, Some(BTreeSet::new())] {
        let mut stage = behind_vpn(PullPolicy::Always);
        stage.world.registry = registry;
        let ids: Vec<_> = stage.world.observed.instances.keys().cloned().collect();
        stage.record.replaced.extend(ids.iter().cloned().map(|id| (id, Replacement::Restart)));
        stage.record.reopen(["guest".into(), "vpn".into()]);
        assert_eq!(rounds(&mut stage, 10), ["guest:1"]);
        let guest = stage.named("shop-guest-1");
        assert!(guest.is_running() && !ids.contains(&guest.id));
    }
}
