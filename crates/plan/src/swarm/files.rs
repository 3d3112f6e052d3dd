//! Configs and secrets of a Swarm. They never change: another content has another name.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{ObservedSwarm, SwarmFile};

use super::action::SwarmAction;
use crate::{action::Action, cause::Cause, draft::Draft};

/// Creates missing configs and secrets. Returns the steps, by name.
pub(super) fn provide(draft: &mut Draft<'_>, swarm: &ObservedSwarm) -> BTreeMap<String, usize> {
    let stack = draft.facts.target.stack;
    let mut steps = BTreeMap::new();
    for file in stack.swarm.values().flat_map(|service| &service.files) {
        let present = if file.secret { &swarm.secrets } else { &swarm.configs };
        if present.contains_key(&file.name) || steps.contains_key(&file.name) {
            continue;
        }
        let action = SwarmAction::CreateFile { project: stack.project.clone(), file: file.clone() };
        let step = draft.push(Action::Swarm(Box::new(action)), Cause::Missing, Vec::new());
        steps.insert(file.name.clone(), step);
    }
    steps
}

/// Removes configs and secrets that neither a service of Git nor one of the last revisions has, to which a rollback may lead.
/// Called when everything else is done: a service that Swarm rolls back needs those of its former specification.
pub(super) fn remove_unused(draft: &mut Draft<'_>, swarm: &ObservedSwarm) {
    let stack = draft.facts.target.stack;
    let services: Vec<usize> = (0..draft.plan.steps.len()).collect();
    let is_leaving = stack.workloads.is_empty();
    let wanted: BTreeSet<(&str, bool)> = stack
        .swarm
        .values()
        .flat_map(|service| &service.files)
        .map(|file: &SwarmFile| (file.name.as_str(), file.secret))
        .collect();
    let kept: BTreeSet<&String> = draft
        .facts
        .record
        .swarm
        .iter()
        .filter(|_| !is_leaving)
        .flat_map(|record| record.kept.iter().flatten())
        .collect();
    if let Some(shared) = swarm.shared.as_ref().filter(|_| is_leaving) {
        let (name, id) = (shared.name.clone(), shared.id.clone());
        let action = SwarmAction::RemoveFile { name, id, secret: false };
        draft.push(Action::Swarm(Box::new(action)), Cause::NotInGit, services.clone());
    }
    for (all, secret) in [(&swarm.configs, false), (&swarm.secrets, true)] {
        // The run of a CronJob keeps the files with which it was begun.
        let used: BTreeSet<&str> =
            swarm.services.values().flat_map(|service| service.files(secret)).collect();
        let is_unused = |name: &String| {
            let is_needed = used.contains(name.as_str()) || kept.contains(name);
            !wanted.contains(&(name.as_str(), secret)) && (is_leaving || !is_needed)
        };
        for (name, object) in all.iter().filter(|(name, _)| is_unused(name)) {
            let action = SwarmAction::RemoveFile { name: name.clone(), id: object.id.clone(), secret };
            draft.push(Action::Swarm(Box::new(action)), Cause::NotInGit, services.clone());
        }
    }
}
