//! Plans for Docker Swarm, from the same stack, record and words as for a single host.
//!
//! A Swarm starts and replaces tasks itself. So a round creates, updates and removes services, configs, secrets and
//! networks, and waits until the Swarm has done what they say. Only the agent on the leader of the managers acts.

mod action;
mod compare;
mod dependencies;
mod explain;
mod files;
pub(crate) mod images;
mod job_tasks;
mod jobs;
mod ownership;
mod progress;
mod runs;
mod services;
mod spec;
mod tasks;

pub use action::{PresentFile, SwarmAction, SwarmResult};
pub(crate) use explain::compare_swarm;
pub use images::service_digests;
pub(crate) use job_tasks::count as count_swarm_job;
pub use ownership::adoptable_services;
pub use runs::follow_runs;
pub(crate) use spec::hash_of as swarm_hash_of;
pub(crate) use tasks::note_executed as note_swarm_executed;
pub use tasks::{with_global_tasks, with_tasks};

use std::collections::BTreeMap;

use driftless_model::{
    EngineKind, FilesystemDrift, Observed, ObservedNetwork, ObservedService, ObservedSwarm, Policy, SpecHash,
    addresses_at_least, addresses_at_most,
};
use serde_json::Value;

use crate::{
    action::Action,
    cause::Cause,
    decide::{cron, scaled, waves},
    draft::{Draft, heal::Difference},
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
        draft.wait(Wait::swarm(WaitObject::Application, WaitReason::Blocked, sentence));
        return draft.finish();
    };
    if let Some(reason) = obstacle(facts) {
        draft.wait(Wait::swarm(WaitObject::Application, WaitReason::Blocked, reason));
        return draft.finish();
    }
    let networks = provide_networks(&mut draft);
    let files = files::provide(&mut draft, swarm);
    services::provide(&mut draft, swarm, &networks, &files);
    // An application that is removed is forgotten once its services are gone.
    let is_leaving = facts.target.stack.workloads.is_empty();
    // The agent on another manager may keep the files of other revisions.
    let is_done = draft.plan.is_settled() && swarm.is_leader();
    if is_done || (is_leaving && draft.plan.waits.is_empty()) {
        files::remove_unused(&mut draft, swarm);
        remove_networks(&mut draft);
    }
    waves::remark(&mut draft);
    scaled::remark(&mut draft);
    if swarm.is_leader() {
        cron::look_ahead(&mut draft);
    }
    let (settled, waiting) = (facts.now.after(progress::LOOK_AGAIN), facts.now.after(progress::PROGRESS));
    // A note, or a decision that a person takes with a request, changes nothing in the Swarm.
    let is_open = |wait: &Wait| matches!(wait.severity(), WaitSeverity::Progress | WaitSeverity::Failure);
    draft.look_again(if draft.plan.waits.iter().any(is_open) { waiting } else { settled });
    let steps = draft.plan.steps.len();
    if let Some(sentence) = leave_to_others(facts, swarm, steps).filter(|_| steps > 0) {
        draft.plan.steps.clear();
        // The leader may be gone, and this agent has to act once its node leads.
        draft.look_again(waiting);
        draft.wait(Wait::swarm(WaitObject::Application, WaitReason::Standby, sentence));
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

/// Holds an application of this host whose services still run in a Swarm. Both at once would do the work twice.
pub(crate) fn hold_for_services(draft: &mut Draft<'_>) -> bool {
    let services = &draft.facts.observed.left_services;
    if services.is_empty() {
        return false;
    }
    let sentence = format!(
        "has services of `engine: swarm`: remove them with `docker service rm {}`, or set `engine: swarm` again",
        services.join(" ")
    );
    draft.wait(Wait::swarm(WaitObject::Application, WaitReason::Blocked, sentence));
    draft.look_again(draft.facts.now.after(progress::LOOK_AGAIN));
    true
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
    // Tasks have no image on this host.
    let containers = facts.observed.instances.values().filter(|container| !container.image_id.is_empty());
    let names: Vec<&str> = containers.map(|container| container.name.as_str()).collect();
    if !names.is_empty() {
        return Some(format!(
            "has containers of `engine: docker` on this host ({}): remove them with `docker rm -f`, or set `engine: docker` again",
            names.join(", ")
        ));
    }
    None
}

/// Creates missing networks. Returns the steps, by name.
fn provide_networks(draft: &mut Draft<'_>) -> BTreeMap<String, usize> {
    let facts = draft.facts;
    let stack = facts.target.stack;
    let nodes = facts.observed.swarm.as_ref().map_or(1, |swarm| swarm.nodes.len());
    let (at_least, at_most) =
        (addresses_at_least(stack), addresses_at_most(stack, u64::try_from(nodes).unwrap_or(u64::MAX)));
    let mut steps = BTreeMap::new();
    for (name, network) in &stack.networks {
        let object = || WaitObject::Other { kind: "network", name: name.clone() };
        let create = || {
            let addresses = at_most.get(name.as_str()).copied();
            Action::CreateNetwork { name: name.clone(), network: network.clone(), addresses }
        };
        match facts.observed.networks.get(name) {
            None if network.external => draft.wait(Wait::external_missing("network", name)),
            None => {
                let cause = if facts.is_settled() {
                    match draft.heal(Difference::missing_network(name)) {
                        Some(cause) => cause,
                        None => continue,
                    }
                } else {
                    Cause::Missing
                };
                steps.insert(name.clone(), draft.push(create(), cause, Vec::new()));
            }
            Some(_) if network.external => {}
            Some(found) if found.app.as_ref().is_some_and(|app| *app != stack.app) => {
                if let Some(app) = &found.app {
                    draft.wait(Wait::of_another_application("network", name, app));
                }
            }
            // An agent has ended before it saw that the Swarm gives this network no addresses.
            Some(found) if found.is_unallocated && !is_used(facts.observed, found) => {
                let action = Action::RemoveNetwork { name: name.clone(), id: found.id.clone() };
                let removed = draft.push(action, Cause::Missing, Vec::new());
                steps.insert(name.clone(), draft.push(create(), Cause::Missing, vec![removed]));
            }
            Some(found) if found.is_unallocated => {
                let sentence = "has no addresses, so its services wait for ever: its `ipam` overlaps with the range of another network; give it another `name` and another range in Git";
                draft.wait(Wait::swarm(object(), WaitReason::Blocked, sentence));
            }
            Some(found) if found.spec.as_ref().is_some_and(|spec| *spec != SpecHash::of(network)) => {
                let sentence = "has changed in Git, and a network of a Swarm cannot be replaced while services use it: give it another name";
                draft.wait(Wait::swarm(object(), WaitReason::Blocked, sentence));
            }
            Some(found) => {
                let needed = at_least.get(name.as_str()).copied().unwrap_or_default();
                if let Some(room) = found.addresses.filter(|room| *room < needed) {
                    let sentence = format!(
                        "has {room} addresses, and the services need {needed}: give it another `name` in Git, then a larger one takes its place"
                    );
                    draft.wait(Wait::swarm(object(), WaitReason::Blocked, sentence));
                }
            }
        }
    }
    steps
}

/// Whether a service uses a network.
fn is_used(observed: &Observed, network: &ObservedNetwork) -> bool {
    let uses = |service: &ObservedService| {
        let all = service.spec.pointer("/TaskTemplate/Networks").and_then(Value::as_array);
        let mut targets = all.into_iter().flatten().map(|it| it.get("Target").and_then(Value::as_str));
        targets.any(|target| target == Some(network.id.as_str()))
    };
    observed.swarm.as_ref().is_some_and(|swarm| swarm.services.values().any(uses))
}

/// Removes networks of the application that Git does not have any more.
fn remove_networks(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    let stack = facts.target.stack;
    let before: Vec<usize> = (0..draft.plan.steps.len()).collect();
    for (name, found) in &facts.observed.networks {
        let is_own = found.app.as_ref() == Some(&stack.app);
        if is_own && !stack.networks.contains_key(name) && found.foreign.is_empty() {
            let action = Action::RemoveNetwork { name: name.clone(), id: found.id.clone() };
            draft.push(action, Cause::NotInGit, before.clone());
        }
    }
}
