//! What is seen to before a container starts for the first time: that its image is not root's, where that is asked, and
//! that its volumes can be used: those that are empty by every user, and by a group where one is to have them.
//!
//! The engine makes a volume's folder for root alone, and has no call to change that. But whatever is copied into a
//! container may be a folder with its mode and owner, and that folder may be the volume's own. Deliberately not here:
//! what lies deeper in a volume, which stays as it is.

use bollard::{body_full, models as api, query_parameters as query};
use futures_util::StreamExt;

use crate::{
    Error,
    call_error::CallError,
    engine::{DEADLINE, Inner, within},
    from_engine::{self, Wanted},
};
use driftless_model::{ContainerId, MountSource, State};
use driftless_plan::Creation;

/// Everybody may do everything.
const EVERYBODY: u32 = 0o777;
/// The group may do everything, and owns what is made there.
const GROUP: u32 = 0o2770;
const BLOCK: usize = 512;
/// The head of an archive, with what extensions may come before its first entry.
const HEAD: usize = 16 * BLOCK;

/// Owner and mode of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Folder {
    mode: u32,
    user: u64,
    group: u64,
}

impl Inner {
    /// Does it all again for a container that has not been started yet, however often that is.
    pub(crate) async fn prepare(&self, id: &ContainerId, doing: &str) -> Result<(), Error> {
        if self.cache.container(id).is_some_and(|it| {
            let config = &it.instance.config;
            let is_wanted = config.mounts.iter().any(|it| it.source == MountSource::Empty)
                || config.host.mount_options.values().any(|it| it.group.is_some());
            it.instance.state != State::Created || !is_wanted
        }) {
            return Ok(());
        }
        let options = None::<query::InspectContainerOptions>;
        let inspected = self.call(DEADLINE, self.docker.inspect_container(id.as_str(), options)).await;
        let found = inspected.map_err(|it| it.sort(doing))?;
        let state = found.state.as_ref().and_then(|it| it.status);
        if state != Some(api::ContainerStateStatusEnum::CREATED) {
            return Ok(());
        }
        for wanted in from_engine::to_prepare(&found) {
            self.prepare_one(id, &wanted).await.map_err(|it| it.sort(doing))?;
        }
        Ok(())
    }

    /// Why a container must not be created of its image, if it must not.
    pub(crate) async fn runs_as_root(&self, creation: &Creation) -> Result<Option<String>, CallError> {
        let container = &creation.container;
        if !container.host.non_root {
            return Ok(None);
        }
        let name = creation.image.as_ref().unwrap_or(&container.image);
        let image = self.image(name).await?;
        let user = image.and_then(|it| it.defaults.user.clone()).unwrap_or_default();
        Ok(wrong_user(&user)
            .map(|what| format!("the image {name} {what}, and `runAsNonRoot` forbids that; set `runAsUser`")))
    }

    async fn prepare_one(&self, id: &ContainerId, wanted: &Wanted) -> Result<(), CallError> {
        let Wanted { target, is_empty, group } = wanted;
        let now = if *is_empty {
            // As it was made.
            Folder { mode: EVERYBODY, user: 0, group: 0 }
        } else {
            self.folder(id, target).await?
        };
        let then = match group {
            Some(group) => Folder { mode: now.mode | GROUP, group: u64::from(*group), ..now },
            None => now,
        };
        if then == now && !is_empty {
            return Ok(());
        }
        let options = query::UploadToContainerOptionsBuilder::new().path(target).build();
        self.cache.copying(id);
        let archive = body_full(archive(then).into());
        let sent =
            self.call(DEADLINE, self.docker.upload_to_container(id.as_str(), Some(options), archive)).await;
        if sent.is_err() {
            // Nobody will be told of it.
            self.cache.is_our_copy(id);
        }
        sent
    }

    /// How a folder is. The engine tells it with all that is in it, of which we hear no more than the beginning.
    async fn folder(&self, id: &ContainerId, path: &str) -> Result<Folder, CallError> {
        self.agree().await?;
        let options = query::DownloadFromContainerOptionsBuilder::new().path(path).build();
        let mut pieces = Box::pin(self.docker.download_from_container(id.as_str(), Some(options)));
        let heard = within(DEADLINE, async {
            let mut head = Vec::new();
            while head.len() < HEAD
                && let Some(piece) = pieces.next().await
            {
                head.extend_from_slice(&piece.map_err(CallError::from)?);
            }
            Ok(head)
        });
        first_of(&heard.await?).ok_or_else(|| CallError::Status {
            code: 500,
            message: format!("the engine's archive of `{path}` cannot be read"),
        })
    }
}

/// What is wrong with the user of an image that is not to be root.
fn wrong_user(user: &str) -> Option<String> {
    let name = user.split(':').next().unwrap_or_default();
    match name.parse::<u32>() {
        Ok(0) => Some("runs as root".to_owned()),
        Ok(_) => None,
        Err(_) if name.is_empty() || name == "root" => Some("runs as root".to_owned()),
        // It alone knows which number that is.
        Err(_) => Some(format!("runs as `{name}`, whose number is not known")),
    }
}

/// An archive of the folder that it is unpacked in. The name is the only one by which the engine changes that folder.
fn archive(folder: Folder) -> Vec<u8> {
    let Folder { mode, user, group } = folder;
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
    // Two empty blocks are the end.
    bytes.resize(3 * BLOCK, 0);
    bytes
}

/// The first entry of an archive, however much of the rest there is.
fn first_of(head: &[u8]) -> Option<Folder> {
    let mut archive = tar::Archive::new(head);
    let entry = archive.entries().ok()?.next()?.ok()?;
    let header = entry.header();
    Some(Folder { mode: header.mode().ok()? & 0o7777, user: header.uid().ok()?, group: header.gid().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_says_that_somebody_is_not_root() {
        for fine in ["1000", "65532:65532", "1:0"] {
            assert_eq!(wrong_user(fine), None, "{fine}");
        }
        for root in ["", "0", "0:1000", "root", "root:1000", ":1000"] {
            assert_eq!(wrong_user(root).as_deref(), Some("runs as root"), "{root}");
        }
        assert_eq!(wrong_user("app:app").as_deref(), Some("runs as `app`, whose number is not known"));
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let folder = Folder { mode: 0o2777, user: 999, group: 3000 };
        let bytes = archive(folder);
        assert_eq!(first_of(&bytes), Some(folder));
        assert_eq!(first_of(&bytes[..BLOCK]), Some(folder), "the beginning is enough");
        assert_eq!(first_of(&[]), None);
    }
}
