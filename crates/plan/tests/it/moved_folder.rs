//! Containers that write to the folder of their application in another state directory than the present one.

use std::{sync::Arc, time::Duration};

use driftless_model::{Mount, MountSource, State, Workload};
use driftless_plan::{Plan, WaitReason};

use crate::{
    fixture::{Stage, stack, workload},
    prune::settle,
};

const FORMER: &str = "/var/lib/driftless/applications/shop/data";

/// A database that writes to this source.
fn db(image: &str, source: MountSource) -> Workload {
    let mut db = workload(image, 1);
    db.container.mounts.push(Mount { target: "/data".to_owned(), source, read_only: false });
    db
}

fn in_folder(image: &str) -> Workload {
    db(image, MountSource::AppFolder("data".to_owned()))
}

fn bind() -> MountSource {
    MountSource::Bind { path: FORMER.to_owned(), create: false, propagation: None, selinux: None }
}

/// The database runs, and then another state directory is used.
fn moved() -> Stage {
    let mut stage = Stage::new(stack([("db", in_folder("db:1"))]));
    settle(&mut stage);
    stage.policy.max_prune_percent = 100;
    let config = Arc::make_mut(&mut stage.named("shop-db-1").config);
    for mount in config.mounts.iter_mut().filter(|mount| mount.app_folder().is_some()) {
        mount.source = bind();
    }
    stage
}

/// Many rounds, in which the only container stays as it is.
fn assert_held(stage: &mut Stage) -> Plan {
    let before = stage.named("shop-db-1").clone();
    let mut plan = stage.round();
    for _ in 0..20 {
        let wait = plan.waits.iter().find(|wait| wait.is(WaitReason::DataInUse)).unwrap();
        assert!(wait.to_string().contains(&format!("shop-db-1 writes to {FORMER}")), "{wait}");
        stage.tick(Duration::from_secs(5));
        plan = stage.round();
    }
    let present: Vec<_> = stage.world.observed.instances.values().collect();
    assert_eq!(present, [&before], "{plan}");
    plan
}

fn images(stage: &Stage) -> Vec<&str> {
    stage.world.observed.instances.values().map(|found| found.config.image.as_str()).collect()
}

#[test]
fn container_in_the_former_folder_is_not_replaced() {
    let mut stage = moved();
    assert!(!assert_held(&mut stage).is_settled());
    stage.stack = stack([("db", in_folder("db:2"))]);
    assert_held(&mut stage);
    // A person stops it, to copy its files.
    let finished = stage.now;
    stage.named("shop-db-1").state =
        State::Exited { code: 0, finished, out_of_memory: false, error: String::new() };
    assert_held(&mut stage);
    stage.world.observed.instances.clear();
    settle(&mut stage);
    assert_eq!(images(&stage), ["db:2"]);
}

/// The restored record is older than the container, or the commit gives the service another name.
#[test]
fn unknown_container_in_the_former_folder_stays() {
    let mut stage = moved();
    stage.record.own_containers.clear();
    assert_held(&mut stage);
    let mut stage = moved();
    stage.stack = stack([("postgres", in_folder("db:2"))]);
    assert_held(&mut stage);
}

#[test]
fn path_that_a_manifest_names_is_no_former_folder() {
    let mut stage = Stage::new(stack([("db", db("db:1", bind()))]));
    settle(&mut stage);
    stage.stack = stack([("db", in_folder("db:2"))]);
    settle(&mut stage);
    assert_eq!(images(&stage), ["db:2"]);
}

#[test]
fn service_that_does_not_need_the_former_folder_is_removed() {
    let mut stage = moved();
    stage.stack = stack([("web", workload("web:1", 1))]);
    settle(&mut stage);
    assert_eq!(images(&stage), ["web:1"]);
}
