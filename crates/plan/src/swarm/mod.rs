//! Plans for Docker Swarm, from the same stack, record and words as for a single host.
//!
//! A Swarm starts and replaces tasks itself. So a round creates, updates and removes services, configs, secrets and
//! networks, and waits until the Swarm has done what they say. Only the agent on the leader of the managers acts.

mod action;
mod compare;
mod dependencies;
mod engine_change;
mod explain;
mod files;
pub(crate) mod images;
mod job_tasks;
mod jobs;
mod leaving;
mod networks;
mod other_services;
mod ownership;
mod ports;
mod progress;
mod runs;
mod services;
mod spec;
mod stopping;
mod tasks;
mod volumes;
mod writers;

pub use action::{PresentFile, SwarmAction, SwarmResult};
pub(crate) use engine_change::hold_for_swarm;
pub use engine_change::left_on_host;
pub(crate) use explain::{changed_fields, compare_swarm};
pub use images::service_digests;
pub(crate) use job_tasks::count as count_swarm_job;
pub use ownership::{adoptable_services, is_of_application};
pub use runs::follow_runs;
pub(crate) use spec::hash_of as swarm_hash_of;
pub(crate) use tasks::note_executed as note_swarm_executed;
pub use tasks::{with_global_tasks, with_tasks};

use driftless_model::{EngineKind, FilesystemDrift, ObservedSwarm, Policy};

use crate::{
    decide::{cron, scaled, waves},
    draft::Draft,
    facts::Facts,
    steps::Plan,
    wait::{Wait, WaitObject, WaitReason, WaitSeverity},
};

/// Whether a target is for a Swarm.
pub(crate) fn is_for(facts: &Facts<'_>) -> bool {
    facts.target.policy.engine == EngineKind::Swarm
}

/// Plans the next round of an application of a Swarm.
pub(crate) fn plan<'a>(facts: &'a Facts<'a>) -> Plan {
    let mut draft = Draft::new(facts);
    let Some(swarm) = facts.observed.swarm.as_deref() else {
        let sentence = "is not observed: the engine is not a manager of a Swarm";
        draft.wait(Wait::new(WaitObject::Application, WaitReason::Blocked, sentence));
        return draft.finish();
    };
    if let Some(reason) = obstacle(facts) {
        draft.wait(Wait::new(WaitObject::Application, WaitReason::Blocked, reason));
        return draft.finish();
    }
    let networks = networks::provide(&mut draft, swarm);
    let files = files::provide(&mut draft, swarm);
    services::provide(&mut draft, swarm, &networks, &files);
    // An application that is removed is forgotten once its services are gone.
    let is_leaving = facts.target.stack.workloads.is_empty();
    // The agent on another manager may keep the files of other revisions.
    let is_done = draft.plan.is_reached() && swarm.is_leader();
    if is_done || (is_leaving && draft.plan.waits.is_empty()) {
        let services: Vec<usize> = (0..draft.plan.steps.len()).collect();
        files::remove_unused(&mut draft, swarm, &services);
        networks::remove_unused(&mut draft, swarm, &services);
    }
    engine_change::remark(&mut draft);
    waves::remark(&mut draft);
    scaled::remark(&mut draft);
    let (settled, waiting) = (facts.now.after(progress::LOOK_AGAIN), facts.now.after(progress::PROGRESS));
    // A note, or a decision that a person takes with a request, changes nothing in the Swarm.
    let is_open = |wait: &Wait| matches!(wait.severity(), WaitSeverity::Progress | WaitSeverity::Failure);
    draft.look_again(if draft.plan.waits.iter().any(is_open) { waiting } else { settled });
    let steps = draft.plan.steps.len();
    let others = leave_to_others(facts, swarm, steps);
    if others.is_none() {
        cron::look_ahead(&mut draft);
    }
    if let Some(sentence) = others.filter(|_| steps > 0) {
        draft.plan.steps.clear();
        draft.plan.removed_from.clear();
        // The leader may be gone, and this agent has to act once its node leads.
        draft.look_again(waiting);
        draft.wait(Wait::new(WaitObject::Application, WaitReason::Standby, sentence));
    }
    draft.finish()
}

/// Why this agent writes nothing, if another one leads or knows a newer commit.
fn leave_to_others(facts: &Facts<'_>, swarm: &ObservedSwarm, steps: usize) -> Option<String> {
    if !swarm.is_leader() {
        let leader =
            swarm.leader().map_or_else(|| "no node leads".to_owned(), |name| format!("{name} leads"));
        return Some(format!(
            "is left to the agent on the leader of the Swarm ({leader}): {steps} steps to do"
        ));
    }
    let commit = facts.record.swarm.as_ref()?.unfetched.as_ref()?;
    Some(format!(
        "waits for Git: the agent on another manager applied {}, and this one has not fetched since: {steps} steps to do",
        commit.short()
    ))
}

/// A setting that a Swarm does not have yet, with advice.
fn unsupported_setting(policy: &Policy) -> Option<&'static str> {
    if !policy.ignore_differences.is_empty() {
        return Some("has `ignoreDifferences`, which `engine: swarm` does not have yet: remove the key");
    }
    if policy.filesystem_drift == FilesystemDrift::Revert {
        return Some(
            "has `filesystemDrift: revert`, and files inside the containers of a Swarm are not compared: set `filesystemDrift: off`",
        );
    }
    None
}

/// Why nothing can be done at all.
fn obstacle(facts: &Facts<'_>) -> Option<String> {
    if let Some(sentence) = unsupported_setting(facts.target.policy) {
        return Some(sentence.to_owned());
    }
    if let Some(rule) = facts.target.policy.verify_images.first() {
        let images = &rule.images;
        return Some(format!(
            "has a rule for signatures ({images}), and images of a Swarm are not verified: remove the rule, or use `engine: docker`"
        ));
    }
    engine_change::obstacle(facts)
}
