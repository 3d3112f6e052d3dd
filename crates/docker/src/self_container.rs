//! Where we are: whether this agent runs in a container of the engine it speaks to, which one, and where on the
//! host the folders lie that it hands to containers. The engine takes the source of a bind mount for a path of its
//! host, so a path of ours is of use to it only where one of our own mounts leads to it.
//!
//! Nothing is guessed: what is on no mount is refused when it is needed, and never created as an empty folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bollard::models as api;

use crate::to_engine::MountPaths;
use driftless_model::ContainerId;

/// The container we run in, as the engine tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelfContainer {
    pub id: Option<ContainerId>,
    /// Ours, as the host calls them.
    pub paths: Option<MountPaths>,
    /// Folders that the host cannot see, and what to do about it.
    pub hidden: Vec<UnreachableFolder>,
}

/// One of our folders that lies on no mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreachableFolder {
    pub path: PathBuf,
    pub advice: String,
}

impl SelfContainer {
    /// What we can know of ourselves from what the engine says of our container.
    pub(crate) fn of(found: &api::ContainerInspectResponse, paths: &MountPaths) -> Self {
        let mut hidden = Vec::new();
        let mut host = |path: &Path| {
            on_host(found, path).unwrap_or_else(|| {
                hidden.push(UnreachableFolder { path: path.to_owned(), advice: advice(path) });
                path.to_owned()
            })
        };
        let MountPaths { content, secret, app } = paths;
        let translated = MountPaths { content: host(content), secret: host(secret), app: host(app) };
        Self { id: found.id.clone().map(ContainerId), paths: Some(translated), hidden }
    }

    /// Why a folder of ours cannot be mounted into a container, if it cannot.
    pub(crate) fn objection(&self, folder: &Path) -> Option<String> {
        let hidden = self.hidden.iter().find(|it| it.path == folder)?;
        Some(format!(
            "{} is inside this agent's own container and on none of its mounts, so the engine cannot reach it; {}",
            hidden.path.display(),
            hidden.advice
        ))
    }
}

/// The ids that may be that of the container we run in, the surest first; none outside of a container.
pub(crate) fn suspects() -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let is_contained = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
    let mut all =
        ids_in(&own_files(&read("/proc/self/mountinfo")), &["/containers/", "/overlay-containers/"]);
    all.extend(ids_in(&read("/proc/self/cgroup"), &["/docker/", "/docker-", "/libpod-"]));
    if is_contained {
        let name = read("/proc/sys/kernel/hostname").trim().to_owned();
        all.extend((!name.is_empty()).then_some(name));
    } else {
        // The mounts of other containers are seen by every process of the host.
        all.clear();
    }
    all.dedup();
    all
}

/// The sources of the files that an engine mounts into each container of its own. Where an engine runs beside us, in
/// a container as we do, what it mounts for its containers is in our list too, but never there.
fn own_files(mountinfo: &str) -> String {
    let sources = mountinfo.lines().filter_map(|line| {
        // proc(5): an id, the parent's, a device, the root within the file system, the mount point.
        let mut fields = line.split(' ').skip(3);
        let (root, target) = (fields.next()?, fields.next()?);
        ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"].contains(&target).then_some(root)
    });
    sources.collect::<Vec<_>>().join("\n")
}

/// The folder of the host in which the changes to our own file system lie, by the end of its path. Every container has
/// one to itself, while a container that shares another's network has that one's files to tell its name by.
pub(crate) fn layer() -> Option<String> {
    layer_in(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

fn layer_in(mountinfo: &str) -> Option<String> {
    let root = mountinfo.lines().find(|line| line.split(' ').nth(4) == Some("/"))?;
    let (_, options) = root.split_once(" - overlay ")?;
    options.split([' ', ',']).find_map(|it| it.strip_prefix("upperdir=")).and_then(end_of)
}

/// Whether a container has these changes; `None`: the engine does not say.
pub(crate) fn has_layer(found: &api::ContainerInspectResponse, layer: &str) -> Option<bool> {
    let its_own = found.graph_driver.as_ref()?.data.get("UpperDir")?;
    Some(end_of(its_own)? == layer)
}

/// The last two parts of a path: engines may mount it by a relative one.
fn end_of(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/').filter(|it| !it.is_empty());
    let (last, before) = (parts.next()?, parts.next()?);
    Some(format!("{before}/{last}"))
}

/// 64 hexadecimal digits after one of these words, in order, each once.
fn ids_in(text: &str, after: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in after {
        for (at, _) in text.match_indices(word) {
            let id = text.get(at + word.len()..).and_then(|it| it.get(..64)).unwrap_or_default();
            if id.len() == 64 && id.bytes().all(|it| it.is_ascii_hexdigit()) && all.iter().all(|it| it != id)
            {
                all.push(id.to_owned());
            }
        }
    }
    all
}

/// What the host calls a path of this container.
fn on_host(found: &api::ContainerInspectResponse, path: &Path) -> Option<PathBuf> {
    let mounts = found.mounts.iter().flatten().filter_map(|it| {
        let target = PathBuf::from(it.destination.as_ref()?);
        let is_memory = it.typ.as_deref() == Some("tmpfs");
        let source = it.source.as_ref().filter(|it| !is_memory && !it.is_empty()).map(PathBuf::from);
        Some((target, source))
    });
    let memory = found.host_config.iter().flat_map(|it| it.tmpfs.iter().flatten());
    let all = mounts.chain(memory.map(|(target, _)| (PathBuf::from(target), None)));
    // The innermost is the one that counts: what it hides is not what we see.
    let (target, source) = all
        .filter(|(target, _)| path.starts_with(target))
        .max_by_key(|(target, _)| target.components().count())?;
    let rest = path.strip_prefix(&target).ok()?;
    let source = source?;
    Some(if rest.as_os_str().is_empty() { source } else { source.join(rest) })
}

fn advice(path: &Path) -> String {
    // `secrets`, `contents` and `applications` lie below what is configured.
    let configured = path.parent().unwrap_or(path).display();
    format!("run the agent with `-v {configured}:{configured}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(typ: &str, source: &str, target: &str) -> api::MountPoint {
        api::MountPoint {
            typ: Some(typ.to_owned()),
            source: Some(source.to_owned()),
            destination: Some(target.to_owned()),
            ..api::MountPoint::default()
        }
    }

    fn container(mounts: Vec<api::MountPoint>) -> api::ContainerInspectResponse {
        api::ContainerInspectResponse {
            id: Some("a".repeat(64)),
            mounts: Some(mounts),
            ..api::ContainerInspectResponse::default()
        }
    }

    fn paths() -> MountPaths {
        let at = |path: &str| PathBuf::from(path);
        MountPaths {
            content: at("/var/lib/driftless/contents"),
            secret: at("/run/driftless/secrets"),
            app: at("/var/lib/driftless/applications"),
        }
    }

    #[test]
    fn our_folders_are_named_as_the_host_knows_them() {
        let found = container(vec![
            mount("bind", "/srv/agent", "/var/lib/driftless"),
            mount("volume", "/var/lib/docker/volumes/run/_data", "/run/driftless"),
        ]);
        let home = SelfContainer::of(&found, &paths());
        let host = home.paths.clone().unwrap();
        assert_eq!(host.content, Path::new("/srv/agent/contents"));
        assert_eq!(host.app, Path::new("/srv/agent/applications"));
        assert_eq!(host.secret, Path::new("/var/lib/docker/volumes/run/_data/secrets"));
        assert_eq!(home.objection(&paths().content), None);
    }

    #[test]
    fn unmounted_path_is_rejected_with_the_mount_to_add() {
        let found = container(vec![
            mount("bind", "/srv", "/var/lib"),
            mount("tmpfs", "", "/var/lib/driftless/applications"),
        ]);
        let home = SelfContainer::of(&found, &paths());
        assert_eq!(home.paths.as_ref().unwrap().content, Path::new("/srv/driftless/contents"));
        let said = home.objection(&paths().secret).unwrap();
        assert!(said.contains("`-v /run/driftless:/run/driftless`"), "{said}");
        assert!(home.objection(&paths().app).is_some(), "a mount inside the mount hides it");
    }

    #[test]
    fn whose_files_we_see_is_told_by_where_their_changes_lie() {
        let root = |upper: &str| {
            format!(
                "400 1 0:5 / /proc rw - proc proc rw\n452 340 0:120 / / rw,relatime master:11 - overlay overlay \
                 rw,lowerdir=/d/overlay2/l/A:/d/overlay2/l/B,upperdir={upper},workdir=/d/overlay2/7b/work,xino=off\n"
            )
        };
        let has = |layer: Option<String>, upper: &str| {
            let data = [("UpperDir".to_owned(), upper.to_owned())].into();
            let graph_driver = Some(api::DriverData { name: "overlay2".to_owned(), data });
            has_layer(
                &api::ContainerInspectResponse { graph_driver, ..container(Vec::new()) },
                &layer.unwrap(),
            )
        };
        let own = "/var/lib/docker/overlay2/7b/diff";
        assert_eq!(has(layer_in(&root(own)), own), Some(true));
        assert_eq!(has(layer_in(&root("7b/diff")), own), Some(true), "by a relative path");
        assert_eq!(has(layer_in(&root(own)), "/var/lib/docker/overlay2/8c/diff"), Some(false));
        assert_eq!(has_layer(&container(Vec::new()), "7b/diff"), None);
        assert_eq!(layer_in("452 340 8:1 / / rw - ext4 /dev/vda rw\n"), None);
    }

    #[test]
    fn ids_are_found_where_engines_put_them() {
        let id = "0123456789abcdef".repeat(4);
        let other = "f".repeat(64);
        let mountinfo = format!(
            "611 598 0:52 / /var/lib/docker/containers/{other}/mounts/shm rw - tmpfs shm rw\n\
             612 598 254:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw\n"
        );
        assert_eq!(ids_in(&own_files(&mountinfo), &["/containers/"]), std::slice::from_ref(&id));
        let cgroup = format!("0::/system.slice/docker-{id}.scope\n1:cpu:/docker/{id}\n");
        assert_eq!(ids_in(&cgroup, &["/docker/", "/docker-"]), [id]);
        assert_eq!(ids_in("/containers/short/x", &["/containers/"]), [""; 0]);
    }
}
