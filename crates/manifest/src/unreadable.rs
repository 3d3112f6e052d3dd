//! Files with the names of manifests that cannot be read, and the applications that they may hide.

use driftless_files::{Entry, Files, LARGEST_MANIFEST, broken_link, paths};
use driftless_kubernetes::kustomize::is_kustomization;
use driftless_model::{Finding, Location};
use driftless_yaml::{self as yaml, Limits};

use crate::folder_findings::{Missed, error};

/// The largest file that is searched for the keys of a manifest, in bytes.
const LARGEST_SEARCHED: u64 = 8 << 20;

/// The probable content of a file that cannot be read as YAML.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreadContent {
    /// It has the keys of a Kubernetes manifest.
    Manifest,
    /// A larger file than a manifest may be, without these keys, such as a lock file of packages.
    Other,
    Unknown,
}

/// The probable content of a file that cannot be read as YAML. It is unknown if the file may have lost the keys of a manifest.
pub(crate) fn unread_content(files: &dyn Files, path: &str) -> UnreadContent {
    let Ok(bytes) = files.read(path, LARGEST_SEARCHED) else { return UnreadContent::Unknown };
    let Ok(text) = std::str::from_utf8(&bytes) else { return UnreadContent::Unknown };
    let is_before_key = |letter: char| "\u{feff} \t-{\"'".contains(letter);
    let mut lines = text.lines();
    let has_version = lines.any(|line| line.trim_start_matches(is_before_key).starts_with("apiVersion"));
    if has_version && text.contains("kind") {
        UnreadContent::Manifest
    } else if bytes.len() as u64 > LARGEST_MANIFEST {
        UnreadContent::Other
    } else {
        UnreadContent::Unknown
    }
}

/// The reason why a file cannot be read as YAML.
pub(crate) fn read_error(files: &dyn Files, path: &str) -> Finding {
    let unread = |message: String| Finding::error(Location::file(path), "", message);
    match files.read(path, LARGEST_MANIFEST) {
        Ok(bytes) => match yaml::parse(path, &bytes, &Limits::default()) {
            Ok(_) => unread("could not be read at first".to_owned()),
            Err(finding) => finding,
        },
        Err(error) => broken_link(files, path).ok().flatten().unwrap_or_else(|| unread(error.to_string())),
    }
}

/// The error about a path that is or passes a link which cannot be followed, or a submodule.
pub(crate) fn unread_at_or_above(files: &dyn Files, path: &str) -> Option<Finding> {
    let link = paths::at_and_above(path).find_map(|path| broken_link(files, path).ok().flatten());
    link.or_else(|| submodule_at_or_above(files, path))
}

/// The error about a path that is or passes a submodule.
pub(crate) fn submodule_at_or_above(files: &dyn Files, path: &str) -> Option<Finding> {
    let mut all = paths::at_and_above(path);
    all.find(|path| matches!(files.entry(path), Ok(Some(Entry::Submodule)))).map(unread_submodule)
}

/// The error about a submodule that is not fetched.
pub(crate) fn unread_submodule(path: &str) -> Finding {
    error(path, Missed::Submodule.message()).help(Missed::Submodule.advice())
}

/// Whether an application that was found in a folder may be missing because a path cannot be read: it was the folder, or above it, or
/// one of its manifests, or its file of variables, which may name its Compose files.
pub fn may_hide(unread: &str, folder: &str) -> bool {
    let is_above = folder.strip_prefix(unread).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let inside = if folder.is_empty() { Some(unread) } else { unread.strip_prefix(&format!("{folder}/")) };
    is_above || inside.is_some_and(|name| !name.contains('/') && is_like_manifest(name))
}

/// Whether a file has the name of a manifest, or of a file of variables, which may name Compose files.
fn is_like_manifest(name: &str) -> bool {
    let is_data = [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end));
    is_data || name.starts_with(".env") || is_kustomization(name)
}
