//! Configs and secrets of a Swarm. They never change: another content has another name.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    ObservedService, ObservedSwarm, Stack, SwarmFile, SwarmFileKind, SwarmObject, WorkloadName,
    swarm_service_name,
};
use serde_json::Value;

use super::{
    action::{PresentFile, SwarmAction},
    ownership::{objection, staying},
};
use crate::{
    action::Action,
    cause::Cause,
    draft::Draft,
    wait::{Wait, WaitObject, WaitReason},
};

/// The part of a service's specification that lists its configs and secrets.
const CONTAINER: &str = "/TaskTemplate/ContainerSpec";

/// The steps that provide the files of services.
#[derive(Default)]
pub(super) struct FileSteps {
    /// By [`SwarmFile::name`].
    steps: BTreeMap<String, usize>,
    /// Those that may adopt a file of `docker stack deploy`.
    adopted: BTreeSet<String>,
}

impl FileSteps {
    /// The steps that a service waits for.
    pub(super) fn of(&self, files: &[SwarmFile]) -> impl Iterator<Item = usize> {
        files.iter().filter_map(|file| self.steps.get(&file.name)).copied()
    }

    /// Whether the names of the files are known only after this round.
    pub(super) fn adopts_one_of(&self, files: &[SwarmFile]) -> bool {
        files.iter().any(|file| self.adopted.contains(&file.name))
    }
}

/// Creates missing configs and secrets, or adopts those that services of `docker stack deploy` have.
pub(super) fn provide(draft: &mut Draft<'_>, swarm: &ObservedSwarm) -> FileSteps {
    let facts = draft.facts;
    let stack = facts.target.stack;
    let mut provided = FileSteps::default();
    for (workload, service) in &stack.swarm {
        let found = swarm.services.get(&swarm_service_name(&stack.project, workload));
        if found.is_some_and(|found| objection(facts, workload, found).is_some()) {
            continue;
        }
        for file in service.files.iter().filter(|file| !file.external) {
            let all = swarm.files_of(file.kind());
            if all.contains_key(&file.name) || provided.steps.contains_key(&file.name) {
                continue;
            }
            let differs = |present: &PresentFile| {
                let mut own = all.iter().filter(|(_, object)| object.name == present.name);
                own.any(|(name, _)| digest_in(name) != digest_in(&file.name))
            };
            let present = found.and_then(|found| file_at(found, file)).filter(|it| !differs(it));
            if present.is_some() {
                provided.adopted.insert(file.name.clone());
            }
            let action =
                SwarmAction::CreateFile { project: stack.project.clone(), file: file.clone(), present };
            let step = draft.push(Action::Swarm(Box::new(action)), Cause::Missing, Vec::new());
            provided.steps.insert(file.name.clone(), step);
        }
    }
    provided
}

/// The digest of the content at the end of a [`SwarmFile::name`].
fn digest_in(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or(name)
}

/// The config or secret that a service has at the path of another one.
fn file_at(service: &ObservedService, file: &SwarmFile) -> Option<PresentFile> {
    let kind = file.kind();
    let all = service.spec.pointer(CONTAINER)?.get(kind.list())?.as_array()?;
    let is_there = |it: &&Value| {
        let target = it.pointer("/File/Name").and_then(Value::as_str);
        target.is_some_and(|target| absolute(target, kind) == file.target)
    };
    let found = all.iter().find(is_there)?;
    let text = |key: &str| Some(found.get(key)?.as_str()?.to_owned());
    Some(PresentFile { name: text(kind.name_key())?, id: text(kind.id_key())? })
}

/// The path of a config or secret in a container. Engines take a relative one as a path in these folders.
pub(super) fn absolute(target: &str, kind: SwarmFileKind) -> String {
    if target.starts_with('/') { target.to_owned() } else { format!("{}{target}", kind.folder()) }
}

/// Names the files of a specification as the Swarm does: adopted ones keep their names.
pub(super) fn name_as_present(spec: &mut Value, swarm: &ObservedSwarm) {
    for kind in SwarmFileKind::ALL {
        let container = spec.pointer_mut(CONTAINER);
        let files = container.and_then(|container| container.get_mut(kind.list())?.as_array_mut());
        for known in files.into_iter().flatten().filter_map(|file| file.get_mut(kind.name_key())) {
            if let Some(object) = known.as_str().and_then(|name| swarm.files_of(kind).get(name)) {
                *known = object.name.as_str().into();
            }
        }
    }
}

/// Whether all external configs and secrets of a service exist, and belong to no other application. Says which do not.
pub(super) fn has_external_files(
    draft: &mut Draft<'_>,
    swarm: &ObservedSwarm,
    workload: &WorkloadName,
) -> bool {
    let missing: Vec<Wait> = missing_files(draft.facts.target.stack, swarm, workload).collect();
    let has_all = missing.is_empty();
    for wait in missing {
        draft.wait(wait);
    }
    has_all
}

/// Why a service cannot have its external configs and secrets, one reason for each.
pub(super) fn missing_files<'a>(
    stack: &'a Stack,
    swarm: &'a ObservedSwarm,
    workload: &'a WorkloadName,
) -> impl Iterator<Item = Wait> + use<'a> {
    let files = stack.swarm.get(workload).into_iter().flat_map(|service| &service.files);
    files.filter(|file| file.external).filter_map(move |file| {
        let (kind, name) = (file.kind().word(), &file.name);
        let (reason, sentence) = match swarm.external_files_of(file.kind()).get(name) {
            Some(None) => return None,
            // It would be removed with the next content.
            Some(Some(owner)) => (
                WaitReason::OfAnotherApplication,
                format!(
                    "needs the external {kind} `{name}`, which the application `{owner}` has for itself alone: create one for both with `docker {kind} create`, and name that"
                ),
            ),
            None => (
                WaitReason::ExternalMissing,
                format!(
                    "needs the external {kind} `{name}`, which does not exist: create it with `docker {kind} create {name} FILE`"
                ),
            ),
        };
        Some(Wait::new(WaitObject::Workload(workload.clone()), reason, sentence))
    })
}

/// Removes configs and secrets that neither a service of Git nor one of the last revisions has, to which a rollback may lead, and that no
/// service outside of the application has. Called when everything else is done: a service that Swarm rolls back needs those of its former
/// specification. `services` are the steps that remove services.
pub(super) fn remove_unused(draft: &mut Draft<'_>, swarm: &ObservedSwarm, services: &[usize]) {
    let stack = draft.facts.target.stack;
    let is_leaving = stack.workloads.is_empty();
    let wanted: BTreeSet<(&str, SwarmFileKind)> = stack
        .swarm
        .values()
        .flat_map(|service| &service.files)
        .map(|file: &SwarmFile| (file.name.as_str(), file.kind()))
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
        let secret = SwarmFileKind::Config.is_secret();
        let action = SwarmAction::RemoveFile { name, id, secret };
        draft.push(Action::Swarm(Box::new(action)), Cause::NotInGit, services.to_vec());
    }
    for kind in SwarmFileKind::ALL {
        let all = swarm.files_of(kind);
        // The run of a CronJob keeps the files with which it was begun, and so does a service that is protected from removal.
        let used: BTreeSet<&str> = staying(draft, swarm).flat_map(|service| service.files(kind)).collect();
        let is_needed = |name: &String, object: &SwarmObject| {
            used.contains(object.name.as_str())
                || swarm.file_users.contains_key(&object.id)
                || kept.contains(name)
                || wanted.contains(&(name.as_str(), kind))
        };
        // An adopted one may have several names.
        let needed: BTreeSet<&str> = all
            .iter()
            .filter(|(name, object)| is_needed(name, object))
            .map(|(_, object)| object.id.as_str())
            .collect();
        let objects: BTreeMap<&str, &SwarmObject> =
            all.values().map(|object| (object.id.as_str(), object)).collect();
        for object in objects.values().filter(|object| !needed.contains(object.id.as_str())) {
            let SwarmObject { id, name } = (*object).clone();
            let action = SwarmAction::RemoveFile { name, id, secret: kind.is_secret() };
            draft.push(Action::Swarm(Box::new(action)), Cause::NotInGit, services.to_vec());
        }
    }
}
