//! Preparation before a container's first start: its volumes are made usable for their users. Also the check of
//! `runAsNonRoot`.
//!
//! The engine creates the folder of a volume for root alone, and has no call to change that. But a folder with its mode and
//! owner can be copied into a container, onto the volume's own folder. Files deeper inside a volume stay as they are.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bollard::{body_full, models as api, query_parameters as query};
use driftless_model::{Container, ContainerId, MountSource, State};
use futures_util::StreamExt;

use super::stand_in;
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

impl FolderMode {
    /// Whether the folder gives at least the wanted rights, to the wanted group.
    fn has(self, wanted: Self) -> bool {
        self.mode & wanted.mode == wanted.mode && self.group == wanted.group
    }
}

/// One way to change a folder by an archive.
#[derive(Debug, PartialEq, Eq)]
struct Upload {
    /// The folder that the archive is unpacked into.
    folder: String,
    /// The name of the changed folder in the archive.
    entry: String,
}

/// All ways to change a folder, in the order in which they are tried. An entry of the parent folder works on Docker 20.10
/// and 28.5, but not where the container's root is read-only. There, an entry may lead back to the folder itself, or be
/// `/`, which 28.5 ignores without an error.
fn uploads(target: &str) -> [Upload; 3] {
    let target = target.trim_end_matches('/');
    let (parent, name) = target.rsplit_once('/').unwrap_or(("", target));
    let upload = |folder: &str, entry: String| Upload { folder: folder.to_owned(), entry };
    [
        upload(if parent.is_empty() { "/" } else { parent }, format!("{name}/")),
        upload(target, format!("../{name}/")),
        upload(target, "/".to_owned()),
    ]
}

/// Whether a container mounts volumes that are made usable before its first start.
fn has_volumes(container: &Container) -> bool {
    container.mounts.iter().any(|mount| mount.source == MountSource::Empty)
        || container.host.mount_options.values().any(|options| options.group.is_some())
}

/// Prepares containers for their first start.
pub(super) struct FirstStart {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    attribution: Arc<Attribution>,
    /// Containers that were created and not started yet, and have nothing to prepare.
    prepared: Mutex<BTreeSet<ContainerId>>,
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
            prepared: Mutex::default(),
        }
    }

    /// The agent has created a container: one without volumes to prepare need not be inspected before its start.
    pub(super) fn record_created(&self, id: &ContainerId, container: &Container) {
        if !has_volumes(container) {
            self.prepared().insert(id.clone());
        }
    }

    /// A container is gone.
    pub(super) fn forget(&self, id: &ContainerId) {
        self.prepared().remove(id);
    }

    fn prepared(&self) -> MutexGuard<'_, BTreeSet<ContainerId>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares the volumes of a container that was never started. It can be repeated.
    pub(super) async fn prepare(&self, id: &ContainerId) -> Result<(), CallError> {
        if self.prepared().remove(id) {
            return Ok(());
        }
        if self.cache.container(id).is_some_and(|inspected| {
            inspected.instance.state != State::Created || !has_volumes(&inspected.instance.config)
        }) {
            return Ok(());
        }
        let found = self.connection.inspect_container(id.as_str()).await?;
        let state = found.state.as_ref().and_then(|state| state.status);
        if state != Some(api::ContainerStateStatusEnum::CREATED) {
            return Ok(());
        }
        for volume in from_engine::unprepared_volumes(&found) {
            self.prepare_volume(id, &found, &volume).await?;
        }
        Ok(())
    }

    async fn prepare_volume(
        &self,
        id: &ContainerId,
        found: &api::ContainerInspectResponse,
        volume: &UnpreparedVolume,
    ) -> Result<(), CallError> {
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
        let mut last_error = None;
        for Upload { folder, entry } in uploads(target) {
            let options = query::UploadToContainerOptionsBuilder::new().path(&folder).build();
            self.attribution.expect_copy(id);
            let archive = body_full(archive(&entry, wanted)?.into());
            let upload = self.connection.docker().upload_to_container(id.as_str(), Some(options), archive);
            if let Err(error) = self.connection.call(DEADLINE, upload).await {
                // Its event will not come.
                self.attribution.take_copy(id);
                last_error = Some(error);
            } else if self.folder_mode(id, target).await?.has(wanted) {
                return Ok(());
            }
        }
        let has_read_only_root =
            found.host_config.as_ref().and_then(|host| host.readonly_rootfs) == Some(true);
        if has_read_only_root {
            // The future is large, and that of every start would be as large with it.
            Box::pin(self.prepare_by_stand_in(found, target, wanted)).await?;
            if self.folder_mode(id, target).await?.has(wanted) {
                return Ok(());
            }
        }
        Err(last_error.unwrap_or_else(|| CallError::Status {
            code: 500,
            message: format!(
                "the engine did not set the mode {:o} and the owner {}:{} of `{target}`, but reported success",
                wanted.mode, wanted.user, wanted.group
            ),
        }))
    }

    /// Sets the mode and owner of a volume's folder through a container that is never started.
    async fn prepare_by_stand_in(
        &self,
        found: &api::ContainerInspectResponse,
        target: &str,
        wanted: FolderMode,
    ) -> Result<(), CallError> {
        let stand_in = stand_in::create(&self.connection, found, target).await?;
        let [Upload { folder, entry }, ..] = uploads(stand_in::FOLDER);
        let options = query::UploadToContainerOptionsBuilder::new().path(&folder).build();
        let archive = body_full(archive(&entry, wanted)?.into());
        let upload = self.connection.docker().upload_to_container(stand_in.as_str(), Some(options), archive);
        let uploaded = self.connection.call(DEADLINE, upload).await;
        // It would keep the volume.
        stand_in::remove(&self.connection, stand_in.as_str()).await?;
        uploaded.map(drop)
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

/// An archive of one folder. The `tar` crate refuses `..` and `/` in names, so the name is written as it is.
fn archive(name: &str, folder: FolderMode) -> Result<Vec<u8>, CallError> {
    let FolderMode { mode, user, group } = folder;
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(mode);
    header.set_uid(user);
    header.set_gid(group);
    header.set_size(0);
    header.set_mtime(0);
    let field = header.as_old_mut().name.get_mut(..name.len()).ok_or_else(|| CallError::Status {
        code: 400,
        message: format!("the folder name `{name}` is too long to change its owner and mode"),
    })?;
    field.copy_from_slice(name.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    // Two empty blocks mark the end.
    bytes.resize(3 * BLOCK, 0);
    Ok(bytes)
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
    fn folder_is_uploaded_into_its_parent_first() {
        let ways = |target: &str| uploads(target).map(|upload| (upload.folder, upload.entry));
        let way = |folder: &str, entry: &str| (folder.to_owned(), entry.to_owned());
        assert_eq!(ways("/e"), [way("/", "e/"), way("/e", "../e/"), way("/e", "/")]);
        assert_eq!(ways("/var/lib/e/")[..2], [way("/var/lib", "e/"), way("/var/lib/e", "../e/")]);
    }

    #[test]
    fn upload_without_effect_is_recognised() {
        let wanted = FolderMode { mode: 0o2770, user: 0, group: 3000 };
        assert!(FolderMode { mode: 0o2775, user: 5, group: 3000 }.has(wanted));
        assert!(!FolderMode { mode: 0o755, user: 0, group: 3000 }.has(wanted));
        assert!(!FolderMode { mode: 0o2770, user: 0, group: 0 }.has(wanted));
    }

    #[test]
    fn written_folder_mode_is_read_back() {
        let folder = FolderMode { mode: 0o2777, user: 999, group: 3000 };
        let bytes = archive("../e/", folder).unwrap();
        assert!(archive(&"e".repeat(101), folder).is_err());
        assert_eq!(first_entry(&bytes), Some(folder));
        assert_eq!(first_entry(&bytes[..BLOCK]), Some(folder), "the beginning is enough");
        assert_eq!(first_entry(&[]), None);
    }
}
