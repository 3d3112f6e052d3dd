//! Preparation before a container's first start: its volumes are made usable for their users. Also the check of
//! `runAsNonRoot`.
//!
//! The engine creates the folder of a volume for root alone, and has no call to change that. But a folder with its mode and
//! owner can be copied into a container, onto the volume's own folder. Files deeper inside a volume stay as they are.

use std::sync::Arc;

use bollard::{body_full, models as api, query_parameters as query};
use driftless_model::{ContainerId, MountSource, State};
use futures_util::StreamExt;

use crate::{
    attribution::Attribution,
    cache::Cache,
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    from_engine::{self, UnpreparedVolume},
};

/// The mode bits with which every user can do everything.
const EVERYBODY: u32 = 0o777;
/// The mode bits with which the group can do everything and owns new files.
const GROUP: u32 = 0o2770;
const BLOCK: usize = 512;
/// Bytes of an archive up to its first entry, with the extensions that may come before.
const HEAD: usize = 16 * BLOCK;

/// Owner and mode of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FolderMode {
    mode: u32,
    user: u64,
    group: u64,
}

/// Prepares containers for their first start.
pub(super) struct FirstStart {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    attribution: Arc<Attribution>,
}

impl FirstStart {
    pub(super) fn new(
        connection: &Arc<Connection>,
        cache: &Arc<Cache>,
        attribution: &Arc<Attribution>,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            cache: Arc::clone(cache),
            attribution: Arc::clone(attribution),
        }
    }

    /// Prepares the volumes of a container that was never started. It can be repeated.
    pub(super) async fn prepare(&self, id: &ContainerId) -> Result<(), CallError> {
        if self.cache.container(id).is_some_and(|inspected| {
            let config = &inspected.instance.config;
            let has_volumes = config.mounts.iter().any(|mount| mount.source == MountSource::Empty)
                || config.host.mount_options.values().any(|options| options.group.is_some());
            inspected.instance.state != State::Created || !has_volumes
        }) {
            return Ok(());
        }
        let found = self.connection.inspect_container(id.as_str()).await?;
        let state = found.state.as_ref().and_then(|state| state.status);
        if state != Some(api::ContainerStateStatusEnum::CREATED) {
            return Ok(());
        }
        for volume in from_engine::unprepared_volumes(&found) {
            self.prepare_volume(id, &volume).await?;
        }
        Ok(())
    }

    async fn prepare_volume(&self, id: &ContainerId, volume: &UnpreparedVolume) -> Result<(), CallError> {
        let UnpreparedVolume { target, is_empty, group } = volume;
        let current = if *is_empty {
            FolderMode { mode: EVERYBODY, user: 0, group: 0 }
        } else {
            self.folder_mode(id, target).await?
        };
        let wanted = match group {
            Some(group) => FolderMode { mode: current.mode | GROUP, group: u64::from(*group), ..current },
            None => current,
        };
        if wanted == current && !is_empty {
            return Ok(());
        }
        let options = query::UploadToContainerOptionsBuilder::new().path(target).build();
        self.attribution.expect_copy(id);
        let archive = body_full(archive(wanted).into());
        let upload = self.connection.docker().upload_to_container(id.as_str(), Some(options), archive);
        let sent = self.connection.call(DEADLINE, upload).await;
        if sent.is_err() {
            // Its event will not come.
            self.attribution.take_copy(id);
        }
        sent
    }

    /// The mode of a folder. The engine sends the folder with its content; only the beginning is read.
    async fn folder_mode(&self, id: &ContainerId, path: &str) -> Result<FolderMode, CallError> {
        self.connection.api_version().await?;
        let options = query::DownloadFromContainerOptionsBuilder::new().path(path).build();
        let download = self.connection.docker().download_from_container(id.as_str(), Some(options));
        let mut chunks = Box::pin(download);
        let head = within(DEADLINE, async {
            let mut head = Vec::new();
            while head.len() < HEAD
                && let Some(chunk) = chunks.next().await
            {
                head.extend_from_slice(&chunk.map_err(CallError::from)?);
            }
            Ok(head)
        });
        first_entry(&head.await?).ok_or_else(|| CallError::Status {
            code: 500,
            message: format!("could not read the engine's archive of `{path}`"),
        })
    }
}

/// Why an image must not be used with `runAsNonRoot`, if it must not. `user` is the image's default.
pub(super) fn root_user(image: &str, user: &str) -> Option<String> {
    let problem = user_problem(user)?;
    Some(format!("the image {image} {problem}, and `runAsNonRoot` forbids that; set `runAsUser`"))
}

fn user_problem(user: &str) -> Option<String> {
    let name = user.split(':').next().unwrap_or_default();
    match name.parse::<u32>() {
        Ok(0) => Some("runs as root".to_owned()),
        Ok(_) => None,
        Err(_) if name.is_empty() || name == "root" => Some("runs as root".to_owned()),
        // Only the image knows the number.
        Err(_) => Some(format!("runs as `{name}`, whose number is not known")),
    }
}

/// An archive with one entry: the folder into which it is unpacked. Only under this name does the engine change that folder.
fn archive(folder: FolderMode) -> Vec<u8> {
    let FolderMode { mode, user, group } = folder;
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(mode);
    header.set_uid(user);
    header.set_gid(group);
    header.set_size(0);
    header.set_mtime(0);
    if let Some(first) = header.as_old_mut().name.first_mut() {
        *first = b'/';
    }
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    // Two empty blocks mark the end.
    bytes.resize(3 * BLOCK, 0);
    bytes
}

/// The first entry of an archive, which may be incomplete after it.
fn first_entry(head: &[u8]) -> Option<FolderMode> {
    let mut archive = tar::Archive::new(head);
    let entry = archive.entries().ok()?.next()?.ok()?;
    let header = entry.header();
    Some(FolderMode {
        mode: header.mode().ok()? & 0o7777,
        user: header.uid().ok()?,
        group: header.gid().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_proves_a_user_is_not_root() {
        for fine in ["1000", "65532:65532", "1:0"] {
            assert_eq!(user_problem(fine), None, "{fine}");
        }
        for root in ["", "0", "0:1000", "root", "root:1000", ":1000"] {
            assert_eq!(user_problem(root).as_deref(), Some("runs as root"), "{root}");
        }
        assert_eq!(user_problem("app:app").as_deref(), Some("runs as `app`, whose number is not known"));
    }

    #[test]
    fn written_folder_mode_is_read_back() {
        let folder = FolderMode { mode: 0o2777, user: 999, group: 3000 };
        let bytes = archive(folder);
        assert_eq!(first_entry(&bytes), Some(folder));
        assert_eq!(first_entry(&bytes[..BLOCK]), Some(folder), "the beginning is enough");
        assert_eq!(first_entry(&[]), None);
    }
}
