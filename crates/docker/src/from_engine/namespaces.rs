//! The containers whose namespaces and volumes a container shares.

use std::collections::BTreeSet;

use bollard::models as api;
use driftless_model::{ContainerId, Peer, VolumesFrom};

/// The containers whose network, process or IPC namespace it shares, by id.
pub(crate) fn namespace_owners(found: &api::ContainerInspectResponse) -> BTreeSet<ContainerId> {
    let Some(host) = &found.host_config else { return BTreeSet::new() };
    let modes = [&host.network_mode, &host.pid_mode, &host.ipc_mode].into_iter().flatten();
    modes.filter_map(|mode| id_of(Peer::parse(mode)?)).collect()
}

/// The containers whose volumes it mounts, by id.
pub(crate) fn volume_owners(found: &api::ContainerInspectResponse) -> BTreeSet<ContainerId> {
    let all = found.host_config.as_ref().map(volumes_from).unwrap_or_default();
    all.into_iter().filter_map(|from| id_of(from.peer)).collect()
}

fn id_of(peer: Peer) -> Option<ContainerId> {
    match peer {
        Peer::Container(id) => Some(ContainerId(id)),
        Peer::Workload(_) => None,
    }
}

/// Parses `<container>` and `<container>:ro`.
pub(crate) fn volumes_from(host: &api::HostConfig) -> Vec<VolumesFrom> {
    let parse = |text: &String| {
        let (name, mode) = text.split_once(':').unwrap_or((text, ""));
        VolumesFrom {
            peer: Peer::Container(name.to_owned()),
            read_only: mode.split(',').any(|it| it == "ro"),
        }
    };
    host.volumes_from.iter().flatten().map(parse).collect()
}
