//! The names of kustomization files.

use driftless_files::{Entry, Files, paths};

/// The names that a kustomization file may have, in order of preference. A folder has one of them.
pub const FILES: &[&str] = &["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Whether a path ends with the name of a kustomization file.
pub fn is_kustomization(path: &str) -> bool {
    FILES.contains(&path.rsplit('/').next().unwrap_or(path))
}

/// The paths of all kustomization files in a folder. More than one is an error.
pub(super) fn find(files: &dyn Files, folder: &str) -> Vec<String> {
    let path = |name: &&str| paths::join(folder, name);
    let is_file = |it: &String| matches!(files.entry(it), Ok(Some(Entry::File { .. })));
    FILES.iter().filter_map(path).filter(is_file).collect()
}
