//! Pods of several containers as services, for the conversion to Compose: one service for each container.
//!
//! The first app container becomes the service with the name of the workload, and has its network, ports and names. The
//! other ones share its network. Init containers complete before it starts. A volume that several containers share becomes
//! a named volume.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    Condition, Container, Dependency, MountSource, Namespace, NetworkMode, Part, Role, Stack, Subject,
    Volume, Workload, WorkloadName,
};

use super::output::Lost;

/// The folder in which the pod's own container holds the volumes that its containers share.
const VOLUMES: &str = "/volumes/";

/// The same stack without pods of several containers.
pub(super) fn flatten(stack: &Stack, lost: &mut Lost) -> Stack {
    let mut flat = Stack { workloads: BTreeMap::new(), ..stack.clone() };
    for (name, workload) in &stack.workloads {
        if workload.parts.is_empty() {
            flat.workloads.insert(name.clone(), workload.clone());
            continue;
        }
        report(lost, Subject { name, workload });
        let Pod { services, volumes } = Pod::of(stack, name, workload);
        flat.workloads.extend(services);
        flat.volumes.extend(volumes);
    }
    flat
}

/// Reports the differences between a pod and services.
fn report(lost: &mut Lost, at: Subject<'_>) {
    let workload = at.workload;
    let has = |role: Role| workload.parts.iter().any(|part| part.role == role);
    for (field, is_given, why) in [
        ("replicas", workload.replicas > 1, "several pods: services that share a network run once"),
        ("parts", has(Role::Init), "the pod's address, which an init container has as well"),
        ("parts", has(Role::Sidecar), "the start of a sidecar before the containers that it serves"),
        (
            "parts",
            workload.parts.iter().any(|part| !part.volumes.is_empty()),
            "an `emptyDir` that ends with its pod: the volume stays",
        ),
        (
            "parts",
            workload.parts.iter().any(|part| part.container.ipc_mode.as_ref().is_some_and(is_of_peer)),
            "the memory that the containers of a pod share",
        ),
    ] {
        if is_given {
            lost.field(at, field, why);
        }
    }
}

fn is_of_peer(namespace: &Namespace) -> bool {
    namespace.peer().is_some()
}

/// The services and volumes of one pod.
struct Pod {
    services: BTreeMap<WorkloadName, Workload>,
    volumes: BTreeMap<String, Volume>,
}

impl Pod {
    fn of(stack: &Stack, name: &WorkloadName, workload: &Workload) -> Self {
        let mut pod = Self { services: BTreeMap::new(), volumes: BTreeMap::new() };
        let keys = volume_keys(name, workload);
        let first = workload.parts.iter().position(|part| part.role == Role::App);
        let initial: Vec<Dependency> = workload
            .parts
            .iter()
            .filter(|part| part.role == Role::Init)
            .map(|part| after(service_name(name, part), Condition::CompletedSuccessfully))
            .collect();
        let mut started = 0;
        for (index, part) in workload.parts.iter().enumerate() {
            let mut service = workload.of_part(part);
            service.replicas = workload.replicas.min(1);
            service.container.ipc_mode = service.container.ipc_mode.filter(|it| !is_of_peer(it));
            pod.share_volumes(stack, &keys, workload, part, &mut service.container);
            let is_first = Some(index) == first;
            match part.role {
                // The dependencies of the pod hold its first container up.
                Role::Init => {
                    service.after.extend(initial.get(..started).unwrap_or_default().last().cloned());
                    started += 1;
                    service.container.pid_mode = service.container.pid_mode.filter(|it| !is_of_peer(it));
                    join_as_guest(&workload.container, &mut service.container);
                }
                Role::App if is_first => {
                    service.after.clone_from(&workload.after);
                    service.after.extend(initial.iter().cloned());
                    service.container.pid_mode = service.container.pid_mode.filter(|it| !is_of_peer(it));
                    join_as_pod(&workload.container, &mut service.container);
                }
                // They share the network of the first one, which starts before them.
                Role::App | Role::Sidecar => {}
            }
            let key = if is_first { name.clone() } else { service_name(name, part) };
            pod.services.insert(key, service);
        }
        pod
    }

    /// Replaces the volumes of the pod's own container by named ones.
    fn share_volumes(
        &mut self,
        stack: &Stack,
        keys: &BTreeMap<&str, String>,
        workload: &Workload,
        part: &Part,
        container: &mut Container,
    ) {
        for mount in &mut container.mounts {
            let Some(place) = part.volumes.get(&mount.target) else { continue };
            let Some(key) = keys.get(place.as_str()).cloned() else { continue };
            let volume = format!("{}_{key}", stack.project);
            let tmpfs = workload.container.host.mount_options.get(place).map(|it| it.tmpfs.join(","));
            let mut options = BTreeMap::new();
            if let Some(tmpfs) = tmpfs.filter(|it| !it.is_empty()) {
                options.extend([("type", "tmpfs".to_owned()), ("device", "tmpfs".to_owned()), ("o", tmpfs)]);
            }
            let options = options.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            self.volumes.insert(volume.clone(), Volume { key, options, ..Volume::default() });
            mount.source = MountSource::Volume { name: volume, no_copy: true };
        }
    }
}

/// The key of the named volume for each place at which the pod's own container holds a volume, or a path of one. Compose takes
/// fewer letters in keys than paths have, so a number tells two places apart that would have one key.
fn volume_keys<'w>(name: &WorkloadName, workload: &'w Workload) -> BTreeMap<&'w str, String> {
    let is_of_key = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let places: BTreeSet<&str> =
        workload.parts.iter().flat_map(|part| part.volumes.values()).map(String::as_str).collect();
    let (mut keys, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for place in places {
        let own = place.strip_prefix(VOLUMES).unwrap_or(place);
        let plain = format!("{name}_{}", own.replace(|letter: char| !is_of_key(letter), "_"));
        let (mut key, mut number) = (plain.clone(), 1);
        while !taken.insert(key.clone()) {
            number += 1;
            key = format!("{plain}_{number}");
        }
        keys.insert(place, key);
    }
    keys
}

/// The service of a container that is not the first one. No name in Kubernetes has an underscore, so it is unique.
fn service_name(pod: &WorkloadName, part: &Part) -> WorkloadName {
    WorkloadName(format!("{pod}_{}", part.name))
}

fn after(workload: WorkloadName, condition: Condition) -> Dependency {
    Dependency { workload, condition, required: true, restart: false }
}

/// Gives a container the network, the ports and the names of the pod.
fn join_as_pod(pod: &Container, container: &mut Container) {
    join_as_guest(pod, container);
    container.network_mode = pod.network_mode.clone();
    container.ports.clone_from(&pod.ports);
    container.expose.clone_from(&pod.expose);
    container.hostname.clone_from(&pod.hostname);
    container.domainname.clone_from(&pod.domainname);
}

/// Joins the networks of the pod without its names and addresses.
fn join_as_guest(pod: &Container, container: &mut Container) {
    container.network_mode = match &pod.network_mode {
        NetworkMode::Networks(networks) => {
            let keys = networks.keys().cloned();
            NetworkMode::Networks(keys.map(|network| (network, Box::default())).collect())
        }
        other => other.clone(),
    };
    container.extra_hosts.clone_from(&pod.extra_hosts);
    container.dns.clone_from(&pod.dns);
    container.dns_search.clone_from(&pod.dns_search);
    container.host.dns_opt.clone_from(&pod.host.dns_opt);
    container.sysctls.clone_from(&pod.sysctls);
}
