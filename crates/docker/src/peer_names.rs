//! Names of containers whose namespaces or volumes another container shares. The engine reports them by id.

use std::{collections::BTreeMap, sync::Arc};

use driftless_model::{Candidate, ContainerId, Instance, Peer, WorkloadName};

use crate::container_list::{ContainerList, ListedContainer};

/// Replaces the ids of containers in configurations by their workload, if they belong to the application, or else by
/// their name.
pub(crate) fn resolve(
    instances: &mut BTreeMap<ContainerId, Instance>,
    parts: &mut BTreeMap<ContainerId, Instance>,
    candidates: &mut BTreeMap<ContainerId, Candidate>,
    list: &ContainerList,
) {
    let of_candidates = candidates.values().map(|candidate| &candidate.instance);
    let workloads: BTreeMap<ContainerId, WorkloadName> = instances
        .values()
        .chain(of_candidates)
        .map(|found| (found.id.clone(), found.instance.workload.clone()))
        .collect();
    let rename = |peer: &mut Peer| {
        let Peer::Container(id) = peer else { return };
        let id = ContainerId(id.clone());
        match (workloads.get(&id), list.containers.get(&id)) {
            (Some(workload), _) => *peer = Peer::Workload(workload.clone()),
            (None, Some(listed)) => *peer = Peer::Container(listed.name.clone()),
            (None, None) => {}
        }
    };
    let all = instances
        .values_mut()
        .chain(parts.values_mut())
        .chain(candidates.values_mut().map(|candidate| &mut candidate.instance));
    for instance in all.filter(|found| !found.hosts.is_empty() || !found.volumes_of.is_empty()) {
        let config = Arc::make_mut(&mut instance.config);
        config.peers_mut().for_each(rename);
        // The engine reports the owner of the volumes as it was given: by id or by name.
        let id_of = |owner: ContainerId| {
            let is_owner = |(_, listed): &(&ContainerId, &Arc<ListedContainer>)| listed.name == owner.0;
            let found = list.containers.iter().find(is_owner).map(|(id, _)| id.clone());
            found.unwrap_or(owner)
        };
        instance.volumes_of = std::mem::take(&mut instance.volumes_of).into_iter().map(id_of).collect();
    }
}
