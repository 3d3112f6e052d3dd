//! The volumes and folders that services of a Swarm are to write to.

use super::{MountSource, Workload, is_system_path};

/// The data that a workload may write to in a Swarm, in the words of [`super::written_data`].
pub fn wanted_data(workload: &Workload) -> impl Iterator<Item = &str> {
    let written = workload.container.mounts.iter().filter(|mount| !mount.read_only);
    written.filter_map(|mount| match &mount.source {
        MountSource::Volume { name, .. } => Some(name.as_str()),
        MountSource::Bind { path, .. } => Some(path.as_str()).filter(|path| !is_system_path(path)),
        MountSource::AppFolder(_)
        | MountSource::Anonymous
        | MountSource::Image(_)
        | MountSource::Empty
        | MountSource::Tmpfs { .. }
        | MountSource::Content(_)
        | MountSource::Secret(_)
        | MountSource::InPlace { .. } => None,
    })
}
