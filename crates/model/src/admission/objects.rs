//! The rules about networks, volumes, and configs and secrets of a Swarm.

use std::collections::BTreeMap;

use crate::{AppName, Stack, SwarmFile, SwarmFileKind, WorkloadName, matches_star};

use super::{
    paths,
    policy::AdmissionPolicy,
    violation::{ViolatingObject, Violation},
};

/// An object of another application that a stack uses as an external one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignObject {
    /// The application that uses it.
    pub app: AppName,
    /// The application that has it.
    pub owner: AppName,
    /// The violation of its policy.
    pub violation: Violation,
}

pub(super) fn check(policy: &AdmissionPolicy, stack: &Stack, found: &mut Vec<Violation>) {
    for (name, network) in stack.networks.iter().filter(|(_, network)| network.external) {
        if let Some(allowed) = &policy.external_networks
            && !allowed.iter().any(|pattern| matches_star(pattern, name))
        {
            found.push(Violation {
                rule: "externalNetworks",
                object: ViolatingObject::Network(network.key.clone()),
                keys: &["external"],
                value: None,
                message: format!("uses the external network `{name}`, which the policy does not allow"),
            });
        }
    }
    for (workload, file) in files(stack).filter(|(_, file)| file.external) {
        let (rule, rules) = match file.kind() {
            SwarmFileKind::Config => ("externalConfigs", policy.external_configs.as_ref()),
            SwarmFileKind::Secret => ("externalSecrets", policy.external_secrets.as_ref()),
        };
        if let Some(allowed) = policy.list(rules)
            && !allowed.iter().any(|pattern| matches_star(pattern, &file.name))
        {
            let (kind, name) = (file.kind().word(), &file.name);
            let message = format!("uses the external {kind} `{name}`, which the policy does not allow");
            found.push(Violation { rule, message, ..violation_of(workload, file) });
        }
    }
    for (name, volume) in &stack.volumes {
        let object = || ViolatingObject::Volume(volume.key.clone());
        if let Some(allowed) = policy.external_volumes.as_ref().filter(|_| volume.external)
            && !allowed.iter().any(|pattern| matches_star(pattern, name))
        {
            found.push(Violation {
                rule: "externalVolumes",
                object: object(),
                keys: &["external"],
                value: None,
                message: format!("uses the external volume `{name}`, which the policy does not allow"),
            });
        }
        // A volume of the driver `local` can be a folder or a device of the host in disguise.
        if volume.external || !matches!(volume.driver.as_deref(), None | Some("local")) {
            continue;
        }
        for (path, is_bind) in paths::of_volume_options(&volume.options) {
            let keys: &[&str] = &["device", "o", "path", "driver_opts"];
            if is_bind && let Some(message) = paths::objection(policy, &path, false) {
                let value = Some(path.clone());
                found.push(Violation { rule: "bindMounts", object: object(), keys, value, message });
            }
            let Some(allowed) = policy.list(policy.devices.as_ref()).filter(|_| !is_bind) else { continue };
            if !allowed.iter().any(|pattern| matches_star(pattern, &path)) {
                let message =
                    format!("mounts the device `{path}` of the host, which the policy does not allow");
                found.push(Violation { rule: "devices", object: object(), keys, value: Some(path), message });
            }
        }
    }
}

/// The configs and secrets of a stack for a Swarm, with the service that mounts each.
fn files(stack: &Stack) -> impl Iterator<Item = (&WorkloadName, &SwarmFile)> {
    stack.swarm.iter().flat_map(|(name, service)| service.files.iter().map(move |file| (name, file)))
}

/// A violation by a config or secret that a service mounts, which lacks its rule and message.
fn violation_of(workload: &WorkloadName, file: &SwarmFile) -> Violation {
    Violation {
        rule: "",
        object: ViolatingObject::Workload(workload.clone(), None),
        keys: match file.kind() {
            SwarmFileKind::Config => &["configs"],
            SwarmFileKind::Secret => &["secrets"],
        },
        value: None,
        message: String::new(),
    }
}

/// External objects that belong to another application, in stacks whose policy forbids that. `others` are the last stacks of applications
/// that have none now and are still on the host.
pub fn foreign_objects(stacks: &[(&Stack, &AdmissionPolicy)], others: &[&Stack]) -> Vec<ForeignObject> {
    let mut networks: BTreeMap<&str, &AppName> = BTreeMap::new();
    let mut volumes: BTreeMap<&str, &AppName> = BTreeMap::new();
    let mut of_swarm: BTreeMap<(&str, SwarmFileKind), &AppName> = BTreeMap::new();
    for stack in others.iter().chain(stacks.iter().map(|(stack, _)| stack)) {
        let own_networks = stack.networks.iter().filter(|(_, network)| !network.external);
        networks.extend(own_networks.map(|(name, _)| (name.as_str(), &stack.app)));
        let own_volumes = stack.volumes.iter().filter(|(_, volume)| !volume.external);
        volumes.extend(own_volumes.map(|(name, _)| (name.as_str(), &stack.app)));
        let own_files = files(stack).filter(|(_, file)| !file.external);
        of_swarm.extend(own_files.map(|(_, file)| ((file.name.as_str(), file.kind()), &stack.app)));
    }
    let mut found = Vec::new();
    for (stack, _) in stacks.iter().filter(|(_, policy)| !policy.allows_other_applications()) {
        let of_others =
            |owner: Option<&&AppName>| owner.filter(|owner| ***owner != stack.app).copied().cloned();
        let external_networks = stack.networks.iter().filter(|(_, network)| network.external);
        let used_networks = external_networks.filter_map(|(name, network)| {
            let owner = of_others(networks.get(name.as_str()))?;
            Some(("network", name, ViolatingObject::Network(network.key.clone()), owner))
        });
        let external_volumes = stack.volumes.iter().filter(|(_, volume)| volume.external);
        let used_volumes = external_volumes.filter_map(|(name, volume)| {
            let owner = of_others(volumes.get(name.as_str()))?;
            Some(("volume", name, ViolatingObject::Volume(volume.key.clone()), owner))
        });
        let rule = "otherApplications";
        let message = |kind: &str, name: &str, owner: &AppName| {
            format!("uses the {kind} `{name}` of the application `{owner}`, which the policy does not allow")
        };
        for (kind, name, object, owner) in used_networks.chain(used_volumes) {
            let message = message(kind, name, &owner);
            let violation = Violation { rule, object, keys: &["external"], value: None, message };
            found.push(ForeignObject { app: stack.app.clone(), owner, violation });
        }
        for (workload, file) in files(stack).filter(|(_, file)| file.external) {
            let Some(owner) = of_others(of_swarm.get(&(file.name.as_str(), file.kind()))) else { continue };
            let message = message(file.kind().word(), &file.name, &owner);
            let violation = Violation { rule, message, ..violation_of(workload, file) };
            found.push(ForeignObject { app: stack.app.clone(), owner, violation });
        }
    }
    found
}
