//! Whom a container shares its namespaces and volumes with, as the engine tells it: by id. It judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bollard::models as api;

use crate::container_list::{ContainerList, ListedContainer};
use driftless_model::{
    Candidate, ContainerId, Instance, Namespace, NetworkMode, Peer, VolumesFrom, WorkloadName,
};

/// The containers whose network, processes or memory it shares, by id.
pub(crate) fn hosts(found: &api::ContainerInspectResponse) -> BTreeSet<ContainerId> {
    let Some(host) = &found.host_config else { return BTreeSet::new() };
    let modes = [&host.network_mode, &host.pid_mode, &host.ipc_mode].into_iter().flatten();
    modes.filter_map(|it| id_of(Peer::parse(it)?)).collect()
}

/// The containers whose volumes it was given, by id.
pub(crate) fn volumes_of(found: &api::ContainerInspectResponse) -> BTreeSet<ContainerId> {
    let all = found.host_config.as_ref().map(volumes_from).unwrap_or_default();
    all.into_iter().filter_map(|it| id_of(it.peer)).collect()
}

fn id_of(peer: Peer) -> Option<ContainerId> {
    match peer {
        Peer::Container(id) => Some(ContainerId(id)),
        Peer::Workload(_) => None,
    }
}

/// `<container>`, `<container>:ro`.
pub(crate) fn volumes_from(host: &api::HostConfig) -> Vec<VolumesFrom> {
    let one = |text: &String| {
        let (name, mode) = text.split_once(':').unwrap_or((text, ""));
        VolumesFrom {
            peer: Peer::Container(name.to_owned()),
            read_only: mode.split(',').any(|it| it == "ro"),
        }
    };
    host.volumes_from.iter().flatten().map(one).collect()
}

/// The engine tells of what is shared with whom by id. What is one of ours, or has a name, is told by that.
pub(crate) fn name(
    instances: &mut BTreeMap<ContainerId, Instance>,
    parts: &mut BTreeMap<ContainerId, Instance>,
    candidates: &mut BTreeMap<ContainerId, Candidate>,
    listing: &ContainerList,
) {
    let of_candidates = candidates.values().map(|it| &it.instance);
    let workloads: BTreeMap<ContainerId, WorkloadName> = instances
        .values()
        .chain(of_candidates)
        .map(|it| (it.id.clone(), it.instance.workload.clone()))
        .collect();
    let call = |peer: &mut Peer| {
        let Peer::Container(id) = peer else { return };
        let id = ContainerId(id.clone());
        match (workloads.get(&id), listing.containers.get(&id)) {
            (Some(workload), _) => *peer = Peer::Workload(workload.clone()),
            (None, Some(listed)) => *peer = Peer::Container(listed.name.clone()),
            (None, None) => {}
        }
    };
    let all = instances
        .values_mut()
        .chain(parts.values_mut())
        .chain(candidates.values_mut().map(|it| &mut it.instance));
    for instance in all.filter(|it| !it.hosts.is_empty() || !it.volumes_of.is_empty()) {
        let config = Arc::make_mut(&mut instance.config);
        if let NetworkMode::Of(peer) = &mut config.network_mode {
            call(peer);
        }
        for mode in [&mut config.pid_mode, &mut config.ipc_mode] {
            if let Some(Namespace::Of(peer)) = mode {
                call(peer);
            }
        }
        config.volumes_from.iter_mut().for_each(|it| call(&mut it.peer));
        // Whose volumes they are the engine tells as it was told itself: by id or by name.
        let id_of = |it: ContainerId| {
            let is_named = |(_, listed): &(&ContainerId, &Arc<ListedContainer>)| listed.name == it.0;
            let found = listing.containers.iter().find(is_named).map(|(id, _)| id.clone());
            found.unwrap_or(it)
        };
        instance.volumes_of = std::mem::take(&mut instance.volumes_of).into_iter().map(id_of).collect();
    }
}
