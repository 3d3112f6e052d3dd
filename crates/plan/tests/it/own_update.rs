//! The container that the agent runs in: a helper container replaces it, and a version that failed is not tried again.

use std::collections::BTreeMap;

use driftless_model::{FailedOwnUpdate, Mask, OwnUpdate, StackHashes};
use driftless_plan::{Action, Plan, Step, StepOutcome, Target, WaitReason, note_executed, plan};

use crate::fixture::{Stage, stack, workload};

/// An application of which one container is the agent's, and Git asks for another version of both containers.
fn outdated() -> Stage {
    let mut stage = Stage::new(stack([("agent", workload("agent:1", 1)), ("web", workload("web:1", 1))]));
    while !stage.round().is_settled() {
        stage.tick(std::time::Duration::from_secs(60));
    }
    let own = stage.world.observed.instances.values().find(|it| it.name == "shop-agent-1").unwrap();
    stage.world.observed.own = Some(own.id.clone());
    for (name, image) in [("agent", "agent:2"), ("web", "web:2")] {
        stage.stack.workloads.get_mut(&name.into()).unwrap().container.image = image.to_owned();
        stage.world.apply(&stage.agent.clone(), &pull(image), stage.now).unwrap();
    }
    stage
}

fn pull(image: &str) -> Action {
    Action::PullImage {
        image: image.to_owned(),
        platform: None,
        secrets: Vec::new(),
        keys: Default::default(),
    }
}

fn with_target<T>(stage: &Stage, then: impl FnOnce(&Target<'_>) -> T) -> T {
    let (mask, images) = (Mask::new([7; 32]), BTreeMap::new());
    then(&Target {
        stack: &stage.stack,
        hashes: &StackHashes::of(&stage.stack),
        reached: None,
        agent: &stage.agent,
        policy: &stage.policy,
        images: &images,
        mask: &mask,
    })
}

fn planned(stage: &Stage) -> Plan {
    with_target(stage, |target| plan(target, &stage.world.observed, &stage.record, stage.now))
}

fn replacement(plan: &Plan) -> Option<&Action> {
    plan.steps.iter().map(|step| &step.action).find(|action| matches!(action, Action::ReplaceAgent(_)))
}

/// The replacement of the agent fails, and no other step is done.
fn fail_to_replace(stage: &mut Stage, error: &str, is_final: bool) {
    let plan = planned(stage);
    let failed = |step: &Step| match &step.action {
        Action::ReplaceAgent(_) => {
            StepOutcome::Failed { error: error.to_owned(), retry_after: None, is_final }
        }
        _ => StepOutcome::Skipped,
    };
    let outcomes: Vec<StepOutcome> = plan.steps.iter().map(failed).collect();
    let mut record = stage.record.clone();
    with_target(stage, |target| note_executed(&mut record, target, &plan, &outcomes, stage.now));
    stage.record = record;
}

fn has(plan: &Plan, reason: WaitReason) -> bool {
    plan.waits.iter().any(|wait| wait.is(reason))
}

#[test]
fn outdated_container_of_the_agent_is_replaced_by_a_helper() {
    let mut stage = outdated();
    let own = stage.world.observed.own.clone().unwrap();
    let first = planned(&stage);
    let action = replacement(&first).unwrap();
    assert_eq!(action.object(), "shop-agent-1");
    let is_touched = |plan: &Plan| {
        plan.steps.iter().any(|step| {
            matches!(&step.action, Action::StopInstance { container, .. } | Action::RemoveInstance { container, .. }
                if container.reference() == own.as_str())
        })
    };
    assert!(!is_touched(&first), "{first}");
    stage.world.apply(&stage.agent.clone(), action, stage.now).unwrap();
    let after = planned(&stage);
    assert!(replacement(&after).is_none() && !has(&after, WaitReason::OwnUpdate), "{after}");
    assert_ne!(stage.world.observed.own, Some(own));
}

#[test]
fn running_helper_is_awaited_and_a_stopped_one_started_again() {
    let mut stage = outdated();
    stage.world.observed.own_update = Some(OwnUpdate { is_running: true });
    let plan = planned(&stage);
    assert!(replacement(&plan).is_none() && has(&plan, WaitReason::OwnUpdate), "{plan}");
    stage.world.observed.own_update = Some(OwnUpdate { is_running: false });
    assert!(replacement(&planned(&stage)).is_some());
}

#[test]
fn failed_version_of_the_agent_waits_for_another_one_in_git() {
    let mut stage = outdated();
    fail_to_replace(&mut stage, "it exited", true);
    assert!(
        matches!(&stage.record.failed_own_update, Some(FailedOwnUpdate { reason, .. }) if reason == "it exited")
    );
    let plan = planned(&stage);
    assert!(replacement(&plan).is_none() && has(&plan, WaitReason::OwnUpdateFailed), "{plan}");
    let next = stage.stack.workloads.get_mut(&"agent".into()).unwrap();
    next.container.env.insert("NEW".into(), Some("1".into()));
    let plan = planned(&stage);
    assert!(replacement(&plan).is_some() && !has(&plan, WaitReason::OwnUpdateFailed), "{plan}");
}

#[test]
fn passing_error_is_no_failure_of_the_new_version() {
    let mut stage = outdated();
    fail_to_replace(&mut stage, "no space left on device", false);
    let plan = planned(&stage);
    assert!(replacement(&plan).is_some() && !has(&plan, WaitReason::OwnUpdateFailed), "{plan}");
}

#[test]
fn remains_of_an_update_are_removed_and_the_agent_is_not() {
    let mut stage = outdated();
    let agent = stage.agent.clone();
    stage.world.apply(&agent, &pull("agent:1"), stage.now).unwrap();
    let before = stage.world.observed.instances[&stage.world.observed.own.clone().unwrap()].clone();
    let action = replacement(&planned(&stage)).unwrap().clone();
    stage.world.apply(&agent, &action, stage.now).unwrap();
    let mut left = before;
    left.name = "shop-agent-1-previous".to_owned();
    left.state = driftless_model::State::Exited {
        code: 0,
        finished: stage.now,
        out_of_memory: false,
        error: String::new(),
    };
    let id = left.id.clone();
    stage.world.observed.instances.insert(id.clone(), left);
    let removed = |plan: &Plan| {
        plan.steps.iter().any(|step| {
            matches!(&step.action, Action::RemoveInstance { container, .. } if container.reference() == id.as_str())
        })
    };
    assert!(removed(&planned(&stage)), "{}", planned(&stage));
    // The helper may still go back to it.
    stage.world.observed.own_update = Some(OwnUpdate { is_running: true });
    assert!(!removed(&planned(&stage)), "{}", planned(&stage));
}
