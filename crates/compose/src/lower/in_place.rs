//! Mounted files that the agent rewrites in place when they change, by `x-driftless: {on-change: …}`.

use std::collections::BTreeMap;

use driftless_model::{Content, InPlace, Mount, MountSource};

use crate::{lower::context::Lowering, read::types::Change, spec::value::Placed};

impl Lowering<'_> {
    /// Turns mounted content into content that is rewritten in place, if the mount or its service has such an `on-change`.
    pub(crate) fn rewrite(
        &mut self,
        mount: &mut Mount,
        own: Option<&Placed<Change>>,
        service: Option<&Change>,
        in_place: &mut BTreeMap<String, InPlace>,
    ) {
        let (content, secret) = match &mount.source {
            MountSource::Content(id) => (id.clone(), false),
            MountSource::Secret(id) => (id.clone(), true),
            MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Empty
            | MountSource::Bind { .. }
            | MountSource::Tmpfs { .. }
            | MountSource::Image(_)
            | MountSource::InPlace { .. }
            | MountSource::AppFolder(_) => {
                if let Some(own) = own {
                    let finding = own.error("is only for files of the repository that are mounted read-only");
                    self.findings.push(match mount.source {
                        MountSource::AppFolder(_) => finding.help("add `read_only: true`"),
                        _ => finding,
                    });
                }
                return;
            }
        };
        let Some(Change::InPlace(on_change)) = own.map(|it| &it.value).or(service) else { return };
        let folder = matches!(self.files_to_mount.contents.get(&content), Some(Content::Folder(_)));
        mount.source = MountSource::InPlace { secret, folder };
        let on_change = on_change.clone();
        in_place.insert(mount.target.clone(), InPlace { content, secret, on_change });
    }
}
