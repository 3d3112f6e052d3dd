//! Mounts, read back from their specification in either form and from the actual mounts; which anonymous volumes a new
//! container inherits from the one it replaces, and which are removed with their container.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt,
    path::Path,
};

use bollard::models as api;
use driftless_model::{
    AppName, ContentId, InstanceId, Mount, MountSource, WorkloadName, in_place_path, label,
};

use super::values::{filled, positive};
use crate::mount_paths::MountPaths;

/// The anonymous volumes that a new container inherits, by target.
pub(crate) fn anonymous_volumes(found: &api::ContainerInspectResponse) -> BTreeMap<String, String> {
    let empty = empty_targets(found);
    let is_inherited = |target: &String| !empty.contains(target) && is_own_volume(found, target);
    anonymous_mounts(found).filter(|(target, _)| is_inherited(target)).collect()
}

/// False for an anonymous volume that came with `volumes_from` from another container.
fn is_own_volume(found: &api::ContainerInspectResponse, target: &String) -> bool {
    let host = found.host_config.as_ref();
    let of_image =
        || found.config.as_ref().is_some_and(|it| it.volumes.iter().flatten().any(|it| it == target));
    let long =
        || host.is_some_and(|it| it.mounts.iter().flatten().any(|it| it.target.as_ref() == Some(target)));
    !shares_volumes(found) || of_image() || long()
}

/// Whether a container has the volumes of another one (`volumes_from`).
pub(crate) fn shares_volumes(found: &api::ContainerInspectResponse) -> bool {
    let host = found.host_config.as_ref();
    host.is_some_and(|host| host.volumes_from.iter().flatten().next().is_some())
}

/// The volumes that are removed with their container, by target.
pub(crate) fn empty_volumes(found: &api::ContainerInspectResponse) -> BTreeMap<String, String> {
    let empty = empty_targets(found);
    anonymous_mounts(found).filter(|(target, _)| empty.contains(target)).collect()
}

fn anonymous_mounts(found: &api::ContainerInspectResponse) -> impl Iterator<Item = (String, String)> {
    found.mounts.iter().flatten().filter_map(|mount| {
        let name = mount.name.as_ref().filter(|name| is_anonymous_volume(name))?;
        Some((mount.destination.clone()?, name.clone()))
    })
}

fn empty_targets(found: &api::ContainerInspectResponse) -> BTreeSet<String> {
    let mounts = found.host_config.as_ref().and_then(|it| it.mounts.as_ref());
    mounts.into_iter().flatten().filter(|it| is_empty(it)).filter_map(|it| it.target.clone()).collect()
}

/// A volume whose folder must be prepared before the container's first start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnpreparedVolume {
    pub(crate) target: String,
    pub(crate) is_empty: bool,
    /// The group that it must belong to.
    pub(crate) group: Option<u32>,
}

/// The volumes to prepare before the first start.
pub(crate) fn unprepared_volumes(found: &api::ContainerInspectResponse) -> Vec<UnpreparedVolume> {
    let mounts = found.host_config.as_ref().and_then(|it| it.mounts.as_ref());
    let unprepared = |mount: &api::Mount| {
        let (is_empty, group) = (is_empty(mount), group(mount));
        // A volume in memory is created at each start, with the mode and group of its options.
        let in_memory = mount.volume_options.as_ref().is_some_and(|volume| volume.driver_config.is_some());
        let is_needed = (is_empty || group.is_some()) && !in_memory && mount.read_only != Some(true);
        Some(UnpreparedVolume { target: mount.target.clone().filter(|_| is_needed)?, is_empty, group })
    };
    mounts.into_iter().flatten().filter_map(unprepared).collect()
}

/// The group that a volume must belong to.
pub(super) fn group(mount: &api::Mount) -> Option<u32> {
    mount.volume_options.as_ref()?.labels.as_ref()?.get(label::GROUP)?.parse().ok()
}

/// Whether it is a volume of the agent that begins empty and is removed with its container.
fn is_empty(mount: &api::Mount) -> bool {
    let labels = mount.volume_options.as_ref().and_then(|it| it.labels.as_ref());
    labels.is_some_and(|it| it.contains_key(label::EMPTY))
}

/// All mounts, from three places: the specification in the long form, in the short form, and the actual mounts. Actual
/// mounts that the specification does not contain are volumes that the image declares.
pub(super) fn mounts(
    found: &api::ContainerInspectResponse,
    host: &api::HostConfig,
    config: &api::ContainerConfig,
    paths: &MountPaths,
) -> Vec<Mount> {
    let owner = Owner::of(config);
    let mut by_target: BTreeMap<String, Mount> = BTreeMap::new();
    for target in config.volumes.iter().flatten() {
        by_target.insert(target.clone(), anonymous(target));
    }
    // An actual mount that is not in the specification may also come from another container.
    let shares_volumes = host.volumes_from.iter().flatten().next().is_some();
    for point in found.mounts.iter().flatten().filter(|_| !shares_volumes) {
        if let Some(mount) = actual(point) {
            by_target.insert(mount.target.clone(), mount);
        }
    }
    for (target, options) in host.tmpfs.iter().flatten() {
        by_target.insert(target.clone(), tmpfs(target, options));
    }
    for bind in host.binds.iter().flatten() {
        if let Some(mount) = short_form(bind, &owner, paths) {
            by_target.insert(mount.target.clone(), mount);
        }
    }
    for mount in host.mounts.iter().flatten() {
        if let Some(mount) = long_form(mount, &owner, paths) {
            by_target.insert(mount.target.clone(), mount);
        }
    }
    by_target.into_values().collect()
}

fn actual(point: &api::MountPoint) -> Option<Mount> {
    let target = point.destination.clone()?;
    let source = match (point.typ.as_deref()?, point.name.as_ref()) {
        ("volume", Some(name)) if is_anonymous_volume(name) => MountSource::Anonymous,
        ("volume", Some(name)) => MountSource::Volume { name: name.clone(), no_copy: false },
        ("bind", _) => bind(point.source.clone()?),
        ("tmpfs", _) => MountSource::Tmpfs { size: None, mode: None },
        _ => return None,
    };
    Some(Mount { target, source, read_only: point.rw == Some(false) })
}

/// Parses `source:target:options`, where the source is a path or a volume.
fn short_form(text: &str, owner: &Owner, paths: &MountPaths) -> Option<Mount> {
    let mut parts = text.splitn(3, ':');
    let (source, target) = (parts.next()?, parts.next()?);
    let options: Vec<&str> = parts.next().unwrap_or_default().split(',').collect();
    let has = |it: &&str| options.contains(it);
    let source = if source.starts_with('/') {
        own_folder(source, target, owner, paths).unwrap_or_else(|| MountSource::Bind {
            path: source.to_owned(),
            create: true,
            propagation: PROPAGATIONS.iter().find(|it| has(it)).map(|it| (*it).to_owned()),
            selinux: ["z", "Z"].iter().find(|it| has(it)).map(|it| (*it).to_owned()),
        })
    } else if is_anonymous_volume(source) {
        MountSource::Anonymous
    } else {
        MountSource::Volume { name: source.to_owned(), no_copy: has(&"nocopy") }
    };
    Some(Mount { target: target.to_owned(), source, read_only: has(&"ro") })
}

const PROPAGATIONS: &[&str] = &["private", "rprivate", "shared", "rshared", "slave", "rslave"];

fn long_form(mount: &api::Mount, owner: &Owner, paths: &MountPaths) -> Option<Mount> {
    let target = mount.target.clone()?;
    let given = filled(mount.source.as_ref());
    let source = match (mount.typ.as_ref()?, given) {
        (api::MountType::VOLUME, _) if is_empty(mount) => MountSource::Empty,
        (api::MountType::VOLUME, None) => MountSource::Anonymous,
        (api::MountType::VOLUME, Some(name)) if is_anonymous_volume(&name) => MountSource::Anonymous,
        (api::MountType::VOLUME, Some(name)) => MountSource::Volume {
            name,
            no_copy: mount.volume_options.as_ref().and_then(|it| it.no_copy).unwrap_or_default(),
        },
        (api::MountType::BIND, Some(path)) => match own_folder(&path, &target, owner, paths) {
            Some(own) => own,
            None => MountSource::Bind {
                path,
                create: mount.bind_options.as_ref().and_then(|it| it.create_mountpoint).unwrap_or_default(),
                propagation: mount
                    .bind_options
                    .as_ref()
                    .and_then(|it| it.propagation)
                    .map(|it| it.to_string())
                    .filter(|it| !it.is_empty()),
                selinux: None,
            },
        },
        (api::MountType::IMAGE, Some(image)) => MountSource::Image(image),
        (api::MountType::TMPFS, _) => {
            let options = mount.tmpfs_options.as_ref();
            MountSource::Tmpfs {
                size: options.and_then(|it| it.size_bytes).and_then(positive),
                mode: options
                    .and_then(|it| it.mode)
                    .filter(|it| *it > 0)
                    .and_then(|it| u32::try_from(it).ok()),
            }
        }
        _ => return None,
    };
    Some(Mount { target, source, read_only: mount.read_only.unwrap_or_default() })
}

/// Parses `size=64m,mode=1777`, as `--tmpfs` takes it.
fn tmpfs(target: &str, options: &str) -> Mount {
    let value = |name: &str| {
        options.split(',').find_map(|it| it.strip_prefix(name).and_then(|it| it.strip_prefix('=')))
    };
    let size = value("size").and_then(tmpfs_size);
    let mode = value("mode").and_then(|it| u32::from_str_radix(it, 8).ok());
    let read_only = options.split(',').any(|it| it == "ro");
    Mount { target: target.to_owned(), source: MountSource::Tmpfs { size, mode }, read_only }
}

/// Bytes of a memory file system: `64m`. `None` for `50%`, a share of the memory that only the kernel knows.
pub(super) fn tmpfs_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The owner of a container, by its labels.
struct Owner {
    app: Option<AppName>,
    instance: Option<InstanceId>,
}

impl Owner {
    fn of(config: &api::ContainerConfig) -> Self {
        let get = |name: &str| config.labels.as_ref().and_then(|it| it.get(name)).cloned();
        let slot = get(label::SLOT).and_then(|it| it.parse().ok());
        let instance = get(label::WORKLOAD).map(WorkloadName).zip(slot);
        Self {
            app: get(label::APPLICATION).map(AppName),
            instance: instance.map(|(workload, slot)| InstanceId { workload, slot }),
        }
    }
}

/// The source of a mount below the agent's folders; `None` for any other path.
fn own_folder(path: &str, target: &str, owner: &Owner, paths: &MountPaths) -> Option<MountSource> {
    let path = Path::new(path);
    let below = |dir: &Path| {
        let rest = path.strip_prefix(dir).ok()?.to_str()?;
        (!rest.is_empty() && !rest.contains('/')).then(|| ContentId(rest.to_owned()))
    };
    if let Some(id) = below(&paths.content) {
        return Some(MountSource::Content(id));
    }
    if let Some(id) = below(&paths.secret) {
        return Some(MountSource::Secret(id));
    }
    let app = owner.app.as_ref()?;
    for (dir, secret) in [(&paths.content, false), (&paths.secret, true)] {
        for folder in [false, true] {
            let place = owner.instance.as_ref().map(|it| in_place_path(app, it, target, folder));
            if place.is_some_and(|it| path == dir.join(it)) {
                return Some(MountSource::InPlace { secret, folder });
            }
        }
    }
    let folder = paths.app.join(app.as_str());
    let rest = path.strip_prefix(&folder).ok().or_else(|| rest_of_former(path, &folder))?.to_str()?;
    Some(MountSource::AppFolder(if rest.is_empty() { ".".to_owned() } else { rest.to_owned() }))
}

/// The rest of a path below an application's folder in a former state directory, if it leads to the same place as below the present one:
/// the directory was moved, and a link or mount has its former place.
fn rest_of_former<'p>(path: &'p Path, folder: &Path) -> Option<&'p Path> {
    let rest = path.strip_prefix(former_folder(path, folder)?).ok()?;
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let found = identity(path)?;
    (identity(&folder.join(rest)) == Some(found)).then_some(rest)
}

/// The folder above a path that has the names of an application's folder in a state directory.
fn former_folder<'p>(path: &'p Path, folder: &Path) -> Option<&'p Path> {
    let names =
        |folder: &Path| Some((folder.parent()?.file_name()?.to_owned(), folder.file_name()?.to_owned()));
    let wanted = names(folder)?;
    path.ancestors().find(|former| names(former).as_ref() == Some(&wanted))
}

/// Whether a mount may be of the application's folder in a former state directory, and does not lead to the present one. The link or
/// mount that leads there may be made later, and the engine has no event for that.
pub(crate) fn may_lead_to_own_folder(
    found: &api::ContainerInspectResponse,
    mounts: &[Mount],
    paths: &MountPaths,
) -> bool {
    let app = found.config.as_ref().and_then(|config| Owner::of(config).app);
    let Some(folder) = app.map(|app| paths.app.join(app.as_str())) else { return false };
    mounts.iter().any(|mount| match &mount.source {
        MountSource::Bind { path, .. } => former_folder(Path::new(path), &folder).is_some(),
        MountSource::Volume { .. }
        | MountSource::Anonymous
        | MountSource::Empty
        | MountSource::Tmpfs { .. }
        | MountSource::Image(_)
        | MountSource::Content(_)
        | MountSource::Secret(_)
        | MountSource::AppFolder(_)
        | MountSource::InPlace { .. } => false,
    })
}

fn bind(path: String) -> MountSource {
    MountSource::Bind { path, create: false, propagation: None, selinux: None }
}

pub(super) fn anonymous(target: &str) -> Mount {
    Mount { target: target.to_owned(), source: MountSource::Anonymous, read_only: false }
}

/// The engine names an anonymous volume with 64 random digits.
pub(crate) fn is_anonymous_volume(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|it| it.is_ascii_hexdigit())
}
