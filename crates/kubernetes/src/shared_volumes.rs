//! `emptyDir` volumes that more than one container of a pod mounts. The pause container holds them for all.

use std::collections::BTreeSet;

use super::reader::{Object, Value};
use driftless_model::{Container, Mount, MountOptions, MountSource};
use driftless_yaml::Node;

/// The volumes that more than one container of the pod mounts.
pub(super) fn names<'a>(pod: &Object<'a>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut shared = BTreeSet::new();
    for list in ["initContainers", "containers"] {
        for container in pod.value.node.get(list).into_iter().flat_map(Node::items) {
            let mounts = container.get("volumeMounts").into_iter().flat_map(Node::items);
            let names: BTreeSet<&str> = mounts.filter_map(|it| it.get("name")?.as_scalar()).collect();
            for name in names {
                if !seen.insert(name) {
                    shared.insert(name);
                }
            }
        }
    }
    shared
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

/// Mounts a volume of the pause container into another container, as a whole.
pub(super) fn mount(item: &Object<'_>, target: String, inside: &str, container: &mut Container) {
    if !inside.is_empty() {
        let path = item.get("subPath").or_else(|| item.get("subPathExpr"));
        path.as_ref().unwrap_or(&item.value).error_help(
            "a path inside an `emptyDir` that several containers mount cannot be mounted alone",
            "give it an `emptyDir` of its own",
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
