//! Volumes of a Swarm: each node creates those of its tasks, and never changes one that it has.

use driftless_model::{MountSource, ObservedSwarm, Stack, Subject, Volume, swarm_service_name};
use serde_json::{Value, json};

use crate::{
    draft::Draft,
    wait::{Wait, WaitObject, WaitReason},
};

/// The driver and the options of a volume, as a service tells them to its nodes. `None`: the default driver, without options.
pub(super) fn driver_config(volume: &Volume) -> Option<Value> {
    let is_given = volume.driver.is_some() || !volume.options.is_empty();
    is_given.then(|| json!({"Name": volume.driver, "Options": volume.options}))
}

/// Whether the volumes of a service are those that its nodes have. Says which one is not.
pub(super) fn are_as_before(draft: &mut Draft<'_>, swarm: &ObservedSwarm, subject: Subject<'_>) -> bool {
    let Some(name) = changed(draft.facts.target.stack, swarm, subject) else { return true };
    let sentence = format!(
        "needs the volume `{name}` with another driver or other options than its nodes were given, and a node never changes a volume that it has: give the volume another `name` in Git, or take the change back"
    );
    draft.wait(Wait::new(WaitObject::Workload(subject.name.clone()), WaitReason::Blocked, sentence));
    false
}

/// A volume of a service that Git describes otherwise than the services in the Swarm that have it. A volume that is external is
/// described elsewhere.
pub(super) fn changed<'s>(stack: &Stack, swarm: &ObservedSwarm, subject: Subject<'s>) -> Option<&'s str> {
    let mut names = subject.workload.container.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Volume { name, .. } => Some(name.as_str()),
        MountSource::AppFolder(_)
        | MountSource::Anonymous
        | MountSource::Bind { .. }
        | MountSource::Image(_)
        | MountSource::Empty
        | MountSource::Tmpfs { .. }
        | MountSource::Content(_)
        | MountSource::Secret(_)
        | MountSource::InPlace { .. } => None,
    });
    let is_changed = |name: &&str| {
        let Some(volume) = stack.volumes.get(*name).filter(|volume| !volume.external) else { return false };
        let config = driver_config(volume);
        let wanted = meaning(config.as_ref());
        let of_git = stack.workloads.keys().map(|it| swarm_service_name(&stack.project, it));
        let mut services = of_git.filter_map(|name| swarm.services.get(&name));
        services.any(|service| given(&service.spec, name).any(|found| meaning(found) != wanted))
    };
    names.find(is_changed)
}

/// The driver and options that a service gives to a volume, once for each mount of it.
fn given<'v>(spec: &'v Value, name: &str) -> impl Iterator<Item = Option<&'v Value>> {
    let mounts = spec.pointer("/TaskTemplate/ContainerSpec/Mounts").and_then(Value::as_array);
    let is_it = move |mount: &&Value| {
        let text = |key: &str| mount.get(key).and_then(Value::as_str);
        text("Type") == Some("volume") && text("Source") == Some(name)
    };
    let mounts = mounts.into_iter().flatten().filter(is_it);
    mounts.map(|mount| mount.pointer("/VolumeOptions/DriverConfig"))
}

/// A driver and its options. Without a driver it is `local`.
fn meaning(config: Option<&Value>) -> (&str, Vec<(&String, &Value)>) {
    let name = config.and_then(|config| config.get("Name")?.as_str()).filter(|name| !name.is_empty());
    let options = config.and_then(|config| config.get("Options")?.as_object());
    (name.unwrap_or("local"), options.into_iter().flatten().collect())
}
