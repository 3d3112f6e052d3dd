//! The free space of the disk on which the engine keeps its images.

use std::path::{Path, PathBuf};

use driftless_model::DiskSpace;
use nix::sys::statvfs::statvfs;

use crate::{connection::Connection, deadline::DEADLINE, error::Error};

/// The call in the words of errors.
const DOING: &str = "find out the free space of the engine's disk";

/// The folder of images in containerd, unless its configuration names another one.
const CONTAINERD: &str = "/var/lib/containerd";

/// The driver's word for the image store of containerd in the answer to `GET /info`.
const CONTAINERD_STORE: &str = "io.containerd.snapshotter";

/// Asks the engine for its folder, and the system for its disk. The agent's own container has its root on that disk.
pub(crate) async fn disk_space(connection: &Connection) -> Result<DiskSpace, Error> {
    let info = connection.call(DEADLINE, connection.docker().info()).await;
    let info = info.map_err(|error| error.classify(DOING))?;
    let unknown = |message: String| Error::Rejected { doing: DOING.to_owned(), message };
    let folders = if connection.own_container().is_some() {
        vec![PathBuf::from("/")]
    } else if connection.transport().socket().is_some() {
        let is_in_containerd =
            info.driver_status.iter().flatten().flatten().any(|word| word.contains(CONTAINERD_STORE));
        let containerd = is_in_containerd.then(|| PathBuf::from(CONTAINERD));
        containerd
            .into_iter()
            .chain(info.docker_root_dir.map(PathBuf::from))
            .filter(|path| path.exists())
            .collect()
    } else {
        return Err(unknown("the engine is on another machine: remove `minFree`".to_owned()));
    };
    let spaces: Result<Vec<DiskSpace>, Error> = folders
        .iter()
        .map(|path| space(path).map_err(|error| unknown(format!("{}: {error}", path.display()))))
        .collect();
    let fullest = spaces?.into_iter().min_by_key(|space| space.free);
    fullest.ok_or_else(|| unknown("its folder is not visible from here: remove `minFree`".to_owned()))
}

/// The space of the file system of a folder.
fn space(path: &Path) -> nix::Result<DiskSpace> {
    let found = statvfs(path)?;
    // The types differ between platforms.
    #[allow(clippy::useless_conversion)]
    let bytes = |blocks| u64::from(blocks).saturating_mul(u64::from(found.fragment_size()));
    Ok(DiskSpace { free: bytes(found.blocks_available()), total: bytes(found.blocks()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_a_part_of_the_disk() {
        let found = space(Path::new("/")).unwrap();
        assert!(found.free <= found.total && found.total > 0, "{found:?}");
        assert!(space(Path::new("/no/such/folder")).is_err());
    }
}
