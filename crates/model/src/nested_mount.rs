//! Mounts in an application's own folder, of which one lies in another.
//!
//! The engine follows a symbolic link at the source of a mount, at each start of the container. A container that writes to a folder
//! above the source can put a link there that leads anywhere on the host.

use std::{collections::BTreeSet, fmt};

use super::Container;
use crate::admission::paths::is_below;

/// A mounted path in an application's own folder, and a folder above it that a container mounts for writing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NestedMount {
    /// As in [`crate::MountSource::AppFolder`].
    pub path: String,
    /// As in [`crate::MountSource::AppFolder`].
    pub folder: String,
}

impl NestedMount {
    /// Those of containers of one application.
    pub fn all<'c>(containers: impl IntoIterator<Item = &'c Container>) -> BTreeSet<Self> {
        let (mut mounted, mut written) = (BTreeSet::new(), BTreeSet::new());
        for mount in containers.into_iter().flat_map(|container| &container.mounts) {
            let Some(path) = mount.app_folder() else { continue };
            mounted.insert(path);
            if !mount.read_only {
                written.insert(path);
            }
        }
        let mut all = BTreeSet::new();
        for folder in written {
            let inside = mounted.iter().filter(|path| is_inside(path, folder));
            all.extend(inside.map(|path| Self { path: (*path).to_owned(), folder: folder.to_owned() }));
        }
        all
    }
}

impl fmt::Display for NestedMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, folder } = self;
        let start = if folder == "." { "" } else { "./" };
        write!(f, "`./{path}` inside of `{start}{folder}`, which a container writes to")
    }
}

/// Whether a path lies in a folder and is not the folder itself.
fn is_inside(path: &str, folder: &str) -> bool {
    if folder == "." { path != "." } else { is_below(path, folder) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mount, MountSource};

    #[test]
    fn only_mounts_below_a_writable_one_are_nested() {
        let nested = |mounts: &[(&str, bool)]| {
            let container = |(path, read_only): &(&str, bool)| {
                let source = MountSource::AppFolder((*path).to_owned());
                let mount = Mount { target: "/a".to_owned(), source, read_only: *read_only };
                Container { mounts: vec![mount], ..Container::default() }
            };
            let containers: Vec<Container> = mounts.iter().map(container).collect();
            let all = NestedMount::all(&containers);
            all.into_iter().map(|nested| (nested.path, nested.folder)).collect::<Vec<_>>()
        };
        let pair = |path: &str, folder: &str| (path.to_owned(), folder.to_owned());
        assert_eq!(nested(&[("data", false), ("data/x", true)]), [pair("data/x", "data")]);
        assert_eq!(nested(&[("x", false), (".", false)]), [pair("x", ".")]);
        for apart in [
            [("data", true), ("data/x", false)],
            [("data", false), ("data", true)],
            [("data", false), ("database", true)],
            [(".", true), ("x", false)],
        ] {
            assert!(nested(&apart).is_empty(), "{apart:?}");
        }
    }
}
