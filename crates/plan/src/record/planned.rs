//! After planning and before performing: what can no longer be seen once a step is done.

use std::collections::BTreeMap;

use driftless_model::{Drift, Progress, Record, Timestamp};

use crate::{
    action::{Action, ContainerRef},
    cause::Cause,
    facts::heals::{heal_key, was_undone},
    steps::Plan,
    wait::{WaitObject, WaitReason},
};

/// After planning and before acting: a difference that is not there any more was healed with effect; and what can
/// be seen nowhere once a step is done is written down.
pub fn note_planned(record: &mut Record, plan: &Plan, now: Timestamp) {
    let key = |it: &Drift| heal_key(&it.object, it.workload.as_ref(), &it.field);
    let standing: BTreeMap<String, &Drift> = plan.drifts.iter().map(|drift| (key(drift), drift)).collect();
    for (key, heal) in &mut record.heals {
        if let Some(drift) = standing.get(key) {
            heal.again.get_or_insert(now);
            heal.had_effect |= was_undone(heal, drift.at);
        } else {
            heal.had_effect = true;
            heal.again = None;
        }
    }
    note_turns(record, plan, now);
    // The time that a person takes to decide, to end a pause or to lower a partition is not that of the rollout, nor is that of the images of others.
    let excused = plan.excused();
    for (_, progress) in record.progress.iter_mut().filter(|(name, _)| excused.contains(name)) {
        excuse(progress, now);
    }
    record.unadopted = plan.unadopted;
    record.volumes_to_inherit.extend(plan.left_volumes.clone());
    record.spared_volumes.extend(plan.spared_volumes.iter().cloned());
    record.rollouts.extend(plan.rollouts.clone());
    record.rollouts.retain(|_, sizes| sizes.before > 0);
    record.begun.extend(plan.begun.clone());
    if let Some(reopened) = &mut record.reopened {
        // Their successors are no drift.
        reopened.workloads.extend(plan.removed_from.iter().cloned());
    }
    for (index, step) in plan.steps.iter().enumerate() {
        match &step.action {
            Action::StopInstance { container: ContainerRef::Id(id, _), .. } => {
                let is_end = plan.steps.iter().skip(index).any(|later| {
                    matches!(&later.action, Action::RemoveInstance { container, .. } if container.reference() == id.as_str())
                });
                // A pod whose work is done has ended as it should.
                if step.cause != Cause::Over {
                    let stopped = if is_end { &mut record.leaving } else { &mut record.stopped };
                    stopped.insert(id.clone());
                }
            }
            // The volumes that a pod's containers share belong to the pod.
            Action::CreateInstance(creation) if !creation.inherit.is_empty() && creation.part.is_none() => {
                record.volumes_to_inherit.insert(creation.instance.to_string(), creation.inherit.clone());
            }
            Action::RunHooks { instance, .. } => {
                record.pending_post_start.insert(instance.to_string());
            }
            // Its members may be connected in a later round only.
            Action::CreateNetwork { name, .. } => {
                if let Some(reopened) = &mut record.reopened {
                    reopened.networks.insert(name.clone());
                }
            }
            Action::CreateInstance(_)
            | Action::StopInstance { .. }
            | Action::PullImage { .. }
            | Action::VerifyImage { .. }
            | Action::BuildImage { .. }
            | Action::ImportImage { .. }
            | Action::RemoveNetwork { .. }
            | Action::CreateVolume { .. }
            | Action::RemoveVolume { .. }
            | Action::WriteFiles { .. }
            | Action::SignalInstance { .. }
            | Action::StartInstance { .. }
            | Action::RemoveInstance { .. }
            | Action::UnpauseInstance { .. }
            | Action::RenameInstance { .. }
            | Action::UpdateInstance { .. }
            | Action::Connect { .. }
            | Action::Disconnect { .. }
            | Action::ReplaceAgent(_)
            | Action::Swarm(_) => {}
        }
    }
}

/// The deadlines of a workload begin when its turn comes: after the hooks before the sync, after lower waves, after the pause
/// of a canary, after a suspension, and once this agent acts.
fn note_turns(record: &mut Record, plan: &Plan, now: Timestamp) {
    let is_turn = |reason| matches!(reason, WaitReason::Hook | WaitReason::SyncWave | WaitReason::Canary);
    for wait in plan.waits.iter().filter(|wait| is_turn(wait.reason)) {
        let WaitObject::Workload(name) = &wait.object else { continue };
        if let Some(progress) = record.progress.get_mut(name) {
            excuse(progress, now);
        }
        if let Some(job) = record.jobs.get_mut(name).filter(|job| !job.begun) {
            job.started = None;
        }
    }
    if plan.is_suspended() || plan.waits.iter().any(|wait| wait.is(WaitReason::Standby)) {
        for progress in record.progress.values_mut() {
            excuse(progress, now);
        }
    }
}

fn excuse(progress: &mut Progress, now: Timestamp) {
    progress.at = now;
    progress.excused = true;
}
