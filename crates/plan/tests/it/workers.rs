//! Workers of proxies: the newest one of a network has the connections, and is never removed while an older one runs.

use std::time::Duration;

use driftless_model::{Forwards, HANDOVER_TIME, Instance, Stack, State, Workload, proxy_containers};
use driftless_plan::{Action, ContainerRef};

use crate::fixture::{Stage, stack, workload};

/// A proxy with a limit of connections, which is a setting of the worker.
fn proxied(limit: u32) -> Stack {
    let limit = format!("--max-connections={limit}");
    let forwards = Forwards::parse(["--ready-only", "--hand-over", &limit, "80/tcp=_web:8080"]).unwrap();
    let [owner, worker] = proxy_containers(&forwards, &"front".into());
    let with = |container| Workload { container, ..workload("", 1) };
    let worker = Workload { min_ready: HANDOVER_TIME, ..with(worker) };
    stack([("front", with(owner)), ("front_worker", worker)])
}

/// The running workers, those that were started first in front.
fn workers(stage: &Stage) -> Vec<Instance> {
    let all = stage.world.observed.instances.values();
    let is_worker = |it: &&Instance| it.is_running() && it.instance.workload.as_str() == "front_worker";
    let mut all: Vec<Instance> = all.filter(is_worker).cloned().collect();
    all.sort_by_key(|it| it.started);
    all
}

/// Settles, and checks each plan.
fn settle(stage: &mut Stage) {
    for _ in 0..80 {
        let before = workers(stage);
        let plan = stage.round();
        if plan.is_settled() {
            return;
        }
        if let [.., _, newest] = &before[..] {
            let ends = plan.steps.iter().any(|step| match &step.action {
                Action::StopInstance { container: ContainerRef::Id(id, _), .. }
                | Action::RemoveInstance { container: ContainerRef::Id(id, _), .. } => *id == newest.id,
                _ => false,
            });
            assert!(!ends, "the connections end\n{plan}");
        }
        stage.tick(plan.look_again.map_or(Duration::from_millis(700), |at| at.since(stage.now)));
    }
    panic!("it never settles");
}

#[test]
fn newest_worker_stays_while_git_goes_back_and_forth() {
    for (pause, next) in [(0, 1), (1, 1), (5, 1), (0, 3), (1, 3), (5, 3)] {
        let mut stage = Stage::new(proxied(1));
        settle(&mut stage);
        stage.tick(Duration::from_secs(60));
        stage.stack = proxied(2);
        while workers(&stage).len() < 2 {
            stage.round();
            stage.tick(Duration::from_millis(100));
        }
        stage.tick(Duration::from_secs(pause));
        stage.stack = proxied(next);
        settle(&mut stage);
        let left = workers(&stage);
        assert_eq!(left.len(), 1, "{pause} {next}");
        let wanted = &stage.stack.workloads[&"front_worker".into()].container.command;
        assert_eq!(left[0].config.command, *wanted, "{pause} {next}");
    }
}

#[test]
fn worker_that_cannot_take_over_is_replaced_by_the_former_one() {
    let mut stage = Stage::new(proxied(1));
    settle(&mut stage);
    let former = workers(&stage).remove(0).id;
    stage.tick(Duration::from_secs(60));
    stage.stack = proxied(2);
    while workers(&stage).len() < 2 {
        stage.round();
    }
    let failed = workers(&stage).remove(1).name;
    let finished = stage.now;
    stage.named(&failed).state =
        State::Exited { code: 1, finished, out_of_memory: false, error: String::new() };
    stage.stack = proxied(1);
    settle(&mut stage);
    assert_eq!(workers(&stage).iter().map(|it| &it.id).collect::<Vec<_>>(), [&former]);
}
