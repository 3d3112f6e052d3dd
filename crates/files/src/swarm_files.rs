//! The files that a container mounts, as configs and secrets of a Swarm.

use driftless_model::{
    Access, Container, Content, Contents, LARGEST_SWARM_FILE, MountSource, SwarmFile, digest_hex,
};

/// A file that no config or secret of a Swarm can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitFile {
    /// The target of the mount that it belongs to.
    pub mount: String,
    /// The reason.
    pub message: String,
    /// The advice.
    pub help: &'static str,
}

/// The files of a container, and those that a Swarm would refuse. `project` is part of their names.
pub fn swarm_files(
    project: &str,
    container: &Container,
    contents: &Contents,
) -> (Vec<SwarmFile>, Vec<UnfitFile>) {
    let (mut files, mut unfit) = (Vec::new(), Vec::new());
    for mount in &container.mounts {
        let (id, secret) = match &mount.source {
            MountSource::Content(id) => (id, false),
            MountSource::Secret(id) => (id, true),
            MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Empty
            | MountSource::Bind { .. }
            | MountSource::Tmpfs { .. }
            | MountSource::Image(_)
            | MountSource::InPlace { .. }
            | MountSource::AppFolder(_) => continue,
        };
        let mut add = |path: &str, bytes: &[u8], (mode, uid, gid): (u32, u32, u32)| {
            let target = if path.is_empty() {
                mount.target.clone()
            } else {
                format!("{}/{path}", mount.target.trim_end_matches('/'))
            };
            if let Some((message, help)) = misfit(&target, bytes) {
                unfit.push(UnfitFile { mount: mount.target.clone(), message, help });
            }
            let (name, path, content) =
                (object_name(project, &target, bytes), path.to_owned(), Some(id.clone()));
            let (external, template) = (false, None);
            files.push(SwarmFile { target, content, path, name, secret, external, template, mode, uid, gid });
        };
        match contents.get(id) {
            Some(Content::File { bytes, executable }) => {
                add("", bytes, (Access::of(*executable).mode(), 0, 0));
            }
            Some(Content::Owned { bytes, mode, uid, gid }) => add("", bytes, (*mode, *uid, *gid)),
            Some(Content::Folder(tree)) => {
                for (path, (bytes, access)) in tree {
                    add(path, bytes, (access.mode(), 0, access.group().unwrap_or_default()));
                }
            }
            None => {}
        }
    }
    (files, unfit)
}

/// The warning about a mounted folder: on one host, it takes the place of the image's folder.
pub fn folder_hides_nothing(target: &str) -> String {
    format!(
        "files that the image has in {target} stay there: a Swarm mounts each file of the folder, and not the folder; remove them in the image if they matter"
    )
}

/// Why a Swarm would refuse a file, and advice.
fn misfit(target: &str, bytes: &[u8]) -> Option<(String, &'static str)> {
    match bytes.len() {
        0 => Some((
            format!("{target} is empty; a config or secret of a Swarm has at least one byte"),
            "write a line into the file, or put it into the image",
        )),
        size if size > LARGEST_SWARM_FILE => Some((
            format!(
                "{target} has {size} bytes; a config or secret of a Swarm has at most {LARGEST_SWARM_FILE}"
            ),
            "put the file into the image or a volume",
        )),
        _ => None,
    }
}

/// The most letters of a project in the name of a config or secret.
const PROJECT: usize = 24;

/// The name of a config or secret: the project, the file, and the digest of its content. A Swarm allows 64 letters.
fn object_name(project: &str, target: &str, bytes: &[u8]) -> String {
    let plain = |text: &str, most: usize| -> String {
        let kept = text
            .chars()
            .map(|it| if it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_') { it } else { '-' });
        kept.take(most).collect()
    };
    // The whole name counts: another application may have the same start.
    let project = if project.chars().count() > PROJECT {
        let digest = digest_hex(project.as_bytes());
        format!("{}-{}", plain(project, PROJECT - 7), digest.get(..6).unwrap_or(&digest))
    } else {
        plain(project, PROJECT)
    };
    let file = target.rsplit('/').next().unwrap_or_default();
    let digest = digest_hex(bytes);
    format!("{project}_{}_{}", plain(file, 24), digest.get(..12).unwrap_or(&digest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use driftless_model::{ContentTree, Mount};

    use super::*;

    fn mounted(content: Content) -> (Vec<SwarmFile>, Vec<UnfitFile>) {
        let id = content.id();
        let mount = Mount {
            target: "/etc/web".to_owned(),
            source: MountSource::Content(id.clone()),
            read_only: true,
        };
        let container = Container { mounts: vec![mount], ..Container::default() };
        swarm_files("shop", &container, &[(id, content)].into())
    }

    #[test]
    fn projects_with_the_same_start_have_names_of_their_own() {
        let name = |project: &str| object_name(project, "/etc/web/site.conf", b"a");
        let digest = digest_hex(b"a");
        let (short, long) = ("s".repeat(24), "s".repeat(25));
        assert_eq!(name(&short), format!("{short}_site.conf_{}", &digest[..12]));
        let others = [name(&long), name(&format!("{long}t")), name(&format!("{long}u")), name(&short)];
        assert_eq!(std::collections::BTreeSet::from(others.clone()).len(), 4, "{others:?}");
        assert!(others.iter().all(|other| other.len() == name(&short).len()), "{others:?}");
    }

    #[test]
    fn files_of_a_folder_keep_their_modes_and_groups() {
        let file = |text: &str, access| (Arc::from(text.as_bytes()), access);
        let tree = ContentTree::from([
            ("a".to_owned(), file("1", Access::asked(0o400, Some(70)))),
            ("b/c".to_owned(), file("2", Access::Run)),
        ]);
        let (files, unfit) = mounted(Content::Folder(tree));
        let all: Vec<_> = files.iter().map(|it| (it.target.as_str(), it.mode, it.uid, it.gid)).collect();
        assert_eq!(all, [("/etc/web/a", 0o440, 0, 70), ("/etc/web/b/c", 0o555, 0, 0)]);
        assert_eq!(unfit, []);
    }

    #[test]
    fn empty_and_large_files_are_unfit() {
        let reason = |bytes: Vec<u8>| mounted(Content::file(bytes)).1.pop().map(|it| it.message);
        assert!(reason(Vec::new()).unwrap().starts_with("/etc/web is empty"));
        assert!(reason(vec![b'x'; LARGEST_SWARM_FILE + 1]).unwrap().contains("at most 500000"));
        assert_eq!(reason(vec![b'x'; LARGEST_SWARM_FILE]), None);
        assert_eq!(reason(b"x".to_vec()), None);
    }
}
