//! The limits of a rollout: how many instances more or fewer than desired there may be.

use driftless_model::{Instance, MountSource, NetworkMode, Strategy, Subject, Workload, is_proxy_image};

use crate::facts::{Facts, standing::is_awaited};

/// The limits within which a rollout of this workload may leave the requested size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) surge: usize,
    pub(crate) unavailable: usize,
    /// All of the old are gone before a new one starts.
    pub(crate) recreate: bool,
}

/// The limits that hold for this workload now. Two copies of what is exclusive cannot stand side by side, so
/// the old one has to go first. `leaving` are the instances that are to be
/// replaced and may still serve.
pub(crate) fn limits<'a>(
    facts: &Facts<'_>,
    Subject { name, workload }: Subject<'_>,
    leaving: impl IntoIterator<Item = &'a Instance>,
) -> Limits {
    let Strategy::RollingUpdate { max_surge, max_unavailable } = workload.strategy else {
        return Limits { surge: 0, unavailable: workload.replicas as usize, recreate: true };
    };
    let mut claims = exclusive(workload).is_some();
    for it in leaving {
        // Only one successor can inherit its anonymous volumes. Two versions of a migration that has not ended would work on one database.
        claims |= !it.anonymous_volumes.is_empty() || is_awaited(facts.target.stack, name);
    }
    if claims {
        return Limits { surge: 0, unavailable: (max_unavailable as usize).max(1), recreate: false };
    }
    Limits { surge: max_surge as usize, unavailable: max_unavailable as usize, recreate: false }
}

/// The first thing a workload uses that only one container at a time can have or write to.
pub fn exclusive(workload: &Workload) -> Option<&'static str> {
    let container = &workload.container;
    // Two that listen on one port of the same network would be in each other's way. A proxy takes the port over.
    let shares_network =
        matches!(container.network_mode, NetworkMode::Of(_)) && !is_proxy_image(&container.image);
    let has_fixed_address = container.networks().values().any(|it| it.fixed_addresses().next().is_some());
    let has_fixed_port =
        container.ports.iter().any(|it| it.host.is_some_and(|host| host.len() <= workload.replicas));
    let writes_data = workload.containers().flat_map(|it| &it.mounts).any(|mount| {
        !mount.read_only
            && match mount.source {
                MountSource::Volume { .. } | MountSource::Bind { .. } | MountSource::AppFolder(_) => true,
                MountSource::Anonymous
                | MountSource::Image(_)
                | MountSource::Empty
                | MountSource::Tmpfs { .. }
                | MountSource::Content(_)
                | MountSource::Secret(_)
                | MountSource::InPlace { .. } => false,
            }
    });
    // A GPU may not have the memory for two copies of a model. Several replicas share theirs at all times.
    let has_gpu =
        workload.replicas < 2 && workload.containers().any(|it| !it.host.device_requests.is_empty());
    let has_device = has_gpu || workload.containers().any(|it| !it.devices.is_empty());
    let writes_data = writes_data || container.volumes_from.iter().any(|it| !it.read_only);
    let claims = [
        (workload.container_name.is_some(), "container_name"),
        (has_fixed_port, "a fixed host port"),
        (has_fixed_address, "a fixed address"),
        (container.network_mode == NetworkMode::Host, "the host's network"),
        (shares_network, "another's network"),
        (has_device, "a device"),
        (writes_data, "a writable volume"),
    ];
    claims.into_iter().find(|(has, _)| *has).map(|(_, what)| what)
}
