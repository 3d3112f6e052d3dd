//! Mirrors that nothing uses any more: those of repositories that left the configuration, and of submodules that left Git.
//!
//! Next to each mirror of the agent lies its lock file, which stays as long as the mirror. Other files and folders are left alone.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::mirror::{Mirror, modules_folder};

/// The ends of the names of files and folders next to a mirror.
const ENDS: [&str; 6] = [".lock", ".new", ".old", ".modules", ".ssh-helper", ".ssh-helper.new"];

/// Removes the mirrors in a folder of which no repository has the name, with those of their submodules.
pub fn remove_unused_mirrors(folder: &Path, repositories: &BTreeSet<&str>) {
    for mirror in mirrors_in(folder) {
        let name = mirror.file_name().unwrap_or_default().to_string_lossy();
        if !repositories.iter().any(|used| is_next_to(&name, used) || is_next_to(used, &name)) {
            remove_submodule_mirrors(&mirror);
            remove(&mirror);
        }
    }
}

/// Removes the mirrors of the submodules of a repository that follows none any more. `mirror` is its own.
pub fn remove_submodule_mirrors(mirror: &Path) {
    let folder = modules_folder(mirror);
    for module in mirrors_in(&folder) {
        remove(&module);
    }
    // It stays if something else is in it.
    let _ = fs::remove_dir(folder);
}

/// The mirrors in a folder, by their lock files.
pub(super) fn mirrors_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let files = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| Some(folder.join(name.strip_suffix(".lock")?))).collect()
}

/// Removes a mirror that nothing uses any more.
pub(super) fn remove(mirror: &Path) {
    let path = mirror.display();
    match Mirror::remove(mirror) {
        Ok(true) => tracing::info!(mirror = %path, "removed a mirror that nothing uses any more"),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(mirror = %path, %error, "could not remove a mirror that nothing uses any more");
        }
    }
}

/// Whether a name is that of a mirror, or of a file or folder next to it.
fn is_next_to(name: &str, mirror: &str) -> bool {
    name.strip_prefix(mirror).is_some_and(|end| end.is_empty() || ENDS.contains(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bare repository with the lock file of the agent.
    fn create(path: PathBuf) {
        let (mirror, _lock) = Mirror::open(path).unwrap();
        mirror.create_replacement(gix::hash::Kind::Sha1).unwrap();
        mirror.swap().unwrap();
    }

    #[test]
    fn only_own_mirrors_without_a_repository_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["infra", "infra.modules/one", "former", "former.modules/two", "next.old", "busy"] {
            create(path(name));
        }
        // A user has put these there.
        create(path("copy.git"));
        fs::remove_file(path("copy.git.lock")).unwrap();
        fs::create_dir(path("notes")).unwrap();
        fs::write(path("notes.lock"), "").unwrap();
        let (_mirror, _lock) = Mirror::open(path("busy")).unwrap();

        remove_unused_mirrors(folder.path(), &BTreeSet::from(["infra", "next"]));
        for name in ["infra", "infra.lock", "infra.modules/one", "next.old", "busy", "copy.git", "notes"] {
            assert!(path(name).exists(), "{name}");
        }
        for name in ["former", "former.lock", "former.modules"] {
            assert!(!path(name).exists(), "{name}");
        }
        remove_submodule_mirrors(&path("infra"));
        assert!(path("infra").exists() && !path("infra.modules").exists());
    }
}
