//! `emptyDir` volumes that more than one container of a pod mounts. The pause container holds them for all.

use std::collections::{BTreeMap, BTreeSet};

use super::reader::{Object, Value};
use driftless_model::{Container, Mount, MountOptions, MountSource};
use driftless_yaml::Node;

/// The volumes that more than one container of a pod mounts.
#[derive(Default)]
pub(super) struct SharedVolumes<'a> {
    /// Those that are mounted as a whole, or of which one mount lies inside of another.
    whole: BTreeSet<&'a str>,
    /// Of those that are only mounted in paths apart from each other: the paths that more than one container mounts.
    paths: BTreeSet<(&'a str, String)>,
}

impl<'a> SharedVolumes<'a> {
    pub(super) fn of(pod: &Object<'a>) -> Self {
        let mut mounts: BTreeMap<&str, Vec<(usize, Option<String>)>> = BTreeMap::new();
        let lists = ["initContainers", "containers"];
        let containers =
            lists.iter().flat_map(|list| pod.value.node.get(list).into_iter().flat_map(Node::items));
        for (index, container) in containers.enumerate() {
            for mount in container.get("volumeMounts").into_iter().flat_map(Node::items) {
                let Some(name) = mount.get("name").and_then(Node::as_scalar) else { continue };
                mounts.entry(name).or_default().push((index, plain_path(mount)));
            }
        }
        let mut shared = Self::default();
        for (name, mounts) in mounts {
            let containers: BTreeSet<usize> = mounts.iter().map(|(index, _)| *index).collect();
            if containers.len() < 2 {
                continue;
            }
            let Some(paths) = paths_apart(&mounts) else {
                shared.whole.insert(name);
                continue;
            };
            for (path, users) in paths {
                if users.len() > 1 {
                    shared.paths.insert((name, path.to_owned()));
                }
            }
        }
        shared
    }

    /// The name under which the pause container holds a mounted path of a volume, if it holds it.
    pub(super) fn held(&self, name: &str, inside: &str) -> Option<String> {
        if self.whole.contains(name) {
            return Some(name.to_owned());
        }
        let is_held = self.paths.iter().any(|(volume, path)| *volume == name && path == inside);
        is_held.then(|| format!("{name}/{inside}"))
    }
}

/// The volume of a name under which the pause container holds it or a path of it.
pub(super) fn volume_of(held: &str) -> &str {
    held.split_once('/').map_or(held, |(volume, _)| volume)
}

/// The path inside the volume. `None`: it depends on variables, or cannot be part of a mount path.
fn plain_path(mount: &Node) -> Option<String> {
    if mount.get("subPathExpr").is_some() {
        return None;
    }
    let path = mount.get("subPath").and_then(Node::as_scalar).unwrap_or_default();
    Some(path_inside(path)).filter(|path| !path.contains(':'))
}

/// A path inside a volume, without doubled, leading and trailing slashes.
pub(super) fn path_inside(text: &str) -> String {
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    parts.join("/")
}

/// The containers that mount each path. `None`: a path is the whole volume, is not known yet, or lies inside of another.
fn paths_apart(mounts: &[(usize, Option<String>)]) -> Option<BTreeMap<&str, BTreeSet<usize>>> {
    let mut paths: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (container, path) in mounts {
        let path = path.as_deref().filter(|path| !path.is_empty())?;
        paths.entry(path).or_default().insert(*container);
    }
    let is_inside = |path: &str| {
        path.match_indices('/').any(|(end, _)| paths.contains_key(path.get(..end).unwrap_or_default()))
    };
    let is_apart = !paths.keys().any(|path| is_inside(path));
    is_apart.then_some(paths)
}

/// The mount path at which the pause container holds a volume for the others.
pub(super) fn place_in_pod(name: &str) -> String {
    format!("/volumes/{name}")
}

/// Mounts a volume into the pause container. `options` are its medium and group.
pub(super) fn provide(name: &str, options: MountOptions, own: &mut Container) {
    let target = place_in_pod(name);
    if options != MountOptions::default() {
        own.host.mount_options.insert(target.clone(), options);
    }
    own.mounts.push(Mount { target, source: MountSource::Empty, read_only: false });
}

/// An `emptyDir` in memory is a Docker volume on tmpfs, not a tmpfs mount of the container: when the container is
/// started again, runc before 1.1.6 resets the mode of a tmpfs mount, so that only root can write; it is also mounted
/// `noexec`.
pub(super) fn in_memory(size: Option<u64>, group: Option<u32>) -> MountOptions {
    let mode = if group.is_some() { "mode=3777" } else { "mode=1777" };
    let group = group.map(|it| format!("gid={it}"));
    let size = size.map(|it| format!("size={it}"));
    let all = group.into_iter().chain([mode.to_owned()]).chain(size);
    MountOptions { tmpfs: all.collect(), ..MountOptions::default() }
}

/// Mounts a volume of the pause container, or the path of a volume that it holds, into another container.
pub(super) fn mount(
    item: &Object<'_>,
    target: String,
    (held, inside): (&str, &str),
    container: &mut Container,
) {
    let is_whole = volume_of(held) == held;
    if is_whole && !inside.is_empty() {
        let path = item.get("subPath").or_else(|| item.get("subPathExpr"));
        path.as_ref().unwrap_or(&item.value).error_help(
            "a path inside an `emptyDir` that several containers mount cannot be mounted alone",
            "give it an `emptyDir` of its own, or mount only paths of it (`subPath`) of which none lies inside of another",
        );
    }
    let read_only = item.get("readOnly").as_ref().and_then(Value::boolean).unwrap_or(false);
    container.mounts.push(Mount { target, source: MountSource::Anonymous, read_only });
}

/// Each mount of an `emptyDir` or of a path inside it is a volume of its own. Mounts that would have to share files are
/// refused.
pub(super) fn apart(item: &Object<'_>, name: &str, inside: &str, seen: &mut Vec<(String, String, u32)>) {
    let overlaps = |other: &str| {
        let is_below = |a: &str, b: &str| b.is_empty() || a == b || a.starts_with(&format!("{b}/"));
        is_below(inside, other) || is_below(other, inside)
    };
    if let Some((_, _, line)) = seen.iter().find(|(of, other, _)| of == name && overlaps(other)) {
        let message =
            format!("`{name}` is also mounted in line {line}, and its files would be missing there");
        item.value.error_help(
            message,
            "mount it once, or different paths of it, or give each an `emptyDir` of its own",
        );
    }
    seen.push((name.to_owned(), inside.to_owned(), item.value.place().line));
}
