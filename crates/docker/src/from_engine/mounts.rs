//! What is mounted, read back: from what was asked for in either form, and from what there is. Which volumes without
//! a name a successor inherits, and which go with their container.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models as api;

use super::container::{filled, positive};
use crate::to_engine::MountPaths;
use driftless_model::{
    AppName, ContentId, InstanceId, Mount, MountSource, WorkloadName, in_place_path, label,
};

/// The volumes that have no name of their own and that a successor inherits, by target.
pub(crate) fn anonymous_volumes(found: &api::ContainerInspectResponse) -> BTreeMap<String, String> {
    let empty = empty_targets(found);
    let is_inherited = |target: &String| !empty.contains(target) && is_own_volume(found, target);
    unnamed(found).filter(|(target, _)| is_inherited(target)).collect()
}

/// With another container's volumes come those of it that have no name; they are not its own.
fn is_own_volume(found: &api::ContainerInspectResponse, target: &String) -> bool {
    let host = found.host_config.as_ref();
    let shares_volumes = host.is_some_and(|it| it.volumes_from.iter().flatten().next().is_some());
    let of_image =
        || found.config.as_ref().is_some_and(|it| it.volumes.iter().flatten().any(|it| it == target));
    let long =
        || host.is_some_and(|it| it.mounts.iter().flatten().any(|it| it.target.as_ref() == Some(target)));
    !shares_volumes || of_image() || long()
}

/// The volumes that are removed with their container, by target.
pub(crate) fn empty_volumes(found: &api::ContainerInspectResponse) -> BTreeMap<String, String> {
    let empty = empty_targets(found);
    unnamed(found).filter(|(target, _)| empty.contains(target)).collect()
}

fn unnamed(found: &api::ContainerInspectResponse) -> impl Iterator<Item = (String, String)> {
    found.mounts.iter().flatten().filter_map(|it| {
        let name = it.name.as_ref().filter(|it| is_anonymous(it))?;
        Some((it.destination.clone()?, name.clone()))
    })
}

fn empty_targets(found: &api::ContainerInspectResponse) -> BTreeSet<String> {
    let mounts = found.host_config.as_ref().and_then(|it| it.mounts.as_ref());
    mounts.into_iter().flatten().filter(|it| is_empty(it)).filter_map(|it| it.target.clone()).collect()
}

/// A volume whose folder is to be made ready before its container starts for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) target: String,
    pub(crate) is_empty: bool,
    /// Whose it is to be.
    pub(crate) group: Option<u32>,
}

pub(crate) fn to_prepare(found: &api::ContainerInspectResponse) -> Vec<Wanted> {
    let mounts = found.host_config.as_ref().and_then(|it| it.mounts.as_ref());
    let wanted = |it: &api::Mount| {
        let (is_empty, group) = (is_empty(it), group(it));
        // What is kept in memory is made anew with each start, with the mode and the group of its options.
        let in_memory = it.volume_options.as_ref().is_some_and(|it| it.driver_config.is_some());
        let is_needed = (is_empty || group.is_some()) && !in_memory && it.read_only != Some(true);
        Some(Wanted { target: it.target.clone().filter(|_| is_needed)?, is_empty, group })
    };
    mounts.into_iter().flatten().filter_map(wanted).collect()
}

/// The group that a volume is to belong to, if one was asked for.
pub(crate) fn group(mount: &api::Mount) -> Option<u32> {
    mount.volume_options.as_ref()?.labels.as_ref()?.get(label::GROUP)?.parse().ok()
}

/// A volume that we made to be empty and to go with its container.
fn is_empty(mount: &api::Mount) -> bool {
    let labels = mount.volume_options.as_ref().and_then(|it| it.labels.as_ref());
    labels.is_some_and(|it| it.contains_key(label::EMPTY))
}

/// Three places tell of mounts: what was asked for in the long form, in the short form, and what there is.
/// What there is and nobody asked for are volumes that the image declares.
pub(crate) fn all(
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
    // What there is and nobody asked for may also come from another container: then nothing tells them apart.
    let shares_volumes = host.volumes_from.iter().flatten().next().is_some();
    for point in found.mounts.iter().flatten().filter(|_| !shares_volumes) {
        if let Some(mount) = effective(point) {
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

fn effective(point: &api::MountPoint) -> Option<Mount> {
    let target = point.destination.clone()?;
    let source = match (point.typ.as_deref()?, point.name.as_ref()) {
        ("volume", Some(name)) if is_anonymous(name) => MountSource::Anonymous,
        ("volume", Some(name)) => MountSource::Volume { name: name.clone(), no_copy: false },
        ("bind", _) => bind(point.source.clone()?),
        ("tmpfs", _) => MountSource::Tmpfs { size: None, mode: None },
        _ => return None,
    };
    Some(Mount { target, source, read_only: point.rw == Some(false) })
}

/// `source:target:options`, where the source is a path or a volume.
fn short_form(text: &str, owner: &Owner, paths: &MountPaths) -> Option<Mount> {
    let mut parts = text.splitn(3, ':');
    let (source, target) = (parts.next()?, parts.next()?);
    let options: Vec<&str> = parts.next().unwrap_or_default().split(',').collect();
    let has = |it: &&str| options.contains(it);
    let source = if source.starts_with('/') {
        own(source, target, owner, paths).unwrap_or_else(|| MountSource::Bind {
            path: source.to_owned(),
            create: true,
            propagation: PROPAGATIONS.iter().find(|it| has(it)).map(|it| (*it).to_owned()),
            selinux: ["z", "Z"].iter().find(|it| has(it)).map(|it| (*it).to_owned()),
        })
    } else if is_anonymous(source) {
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
        (api::MountType::VOLUME, Some(name)) if is_anonymous(&name) => MountSource::Anonymous,
        (api::MountType::VOLUME, Some(name)) => MountSource::Volume {
            name,
            no_copy: mount.volume_options.as_ref().and_then(|it| it.no_copy).unwrap_or_default(),
        },
        (api::MountType::BIND, Some(path)) => match own(&path, &target, owner, paths) {
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

/// `size=64m,mode=1777`, as `--tmpfs` takes it.
fn tmpfs(target: &str, options: &str) -> Mount {
    let value = |name: &str| {
        options.split(',').find_map(|it| it.strip_prefix(name).and_then(|it| it.strip_prefix('=')))
    };
    let size = value("size").and_then(|it| {
        let digits = it.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = match it.get(digits.len()..)?.to_ascii_lowercase().as_str() {
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            _ => 1,
        };
        digits.parse::<u64>().ok()?.checked_mul(unit)
    });
    let mode = value("mode").and_then(|it| u32::from_str_radix(it, 8).ok());
    let read_only = options.split(',').any(|it| it == "ro");
    Mount { target: target.to_owned(), source: MountSource::Tmpfs { size, mode }, read_only }
}

/// Whose container it is, as its labels say.
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

/// Whether the path is one of those where we put what comes from the repository.
fn own(path: &str, target: &str, owner: &Owner, paths: &MountPaths) -> Option<MountSource> {
    let path = std::path::Path::new(path);
    let below = |dir: &std::path::Path| {
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
    let rest = path.strip_prefix(paths.app.join(app.as_str())).ok()?.to_str()?;
    Some(MountSource::AppFolder(if rest.is_empty() { ".".to_owned() } else { rest.to_owned() }))
}

fn bind(path: String) -> MountSource {
    MountSource::Bind { path, create: false, propagation: None, selinux: None }
}

pub(crate) fn anonymous(target: &str) -> Mount {
    Mount { target: target.to_owned(), source: MountSource::Anonymous, read_only: false }
}

/// The engine calls a volume without a name by 64 random digits.
fn is_anonymous(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|it| it.is_ascii_hexdigit())
}
