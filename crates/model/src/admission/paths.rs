//! Paths of the host that may be mounted.

use std::collections::BTreeSet;

use super::policy::{AdmissionPolicy, Trust};

/// Why a mount of a path is not allowed, if it is not.
pub(super) fn objection(policy: &AdmissionPolicy, path: &str, read_only: bool) -> Option<String> {
    let path = normal(path);
    let own = policy.bind_mounts.as_ref();
    if policy.trust == Trust::Limited {
        let is_named = |protected: &str| own.is_some_and(|all| all.iter().any(|it| entry(it).0 == protected));
        let protected = policy.protected.iter().map(|it| normal(it));
        let sensitive =
            protected.into_iter().find(|it| overlaps(it, &path) && !(path == *it && is_named(it)));
        if let Some(sensitive) = sensitive {
            return Some(format!("mounts `{path}`, which gives access to `{sensitive}` of the host"));
        }
    }
    let allowed = policy.list(own)?;
    let covering: Vec<bool> = allowed.iter().filter(|it| covers(it, &path)).map(|it| entry(it).2).collect();
    if covering.is_empty() {
        return Some(format!("mounts `{path}` of the host, which is not among the allowed paths"));
    }
    let is_read_only_everywhere = covering.iter().all(|only| *only);
    (is_read_only_everywhere && !read_only)
        .then(|| format!("mounts `{path}` of the host for writing, and the policy allows it read-only"))
}

/// The path of an entry, whether it includes everything below, and whether it is read-only.
fn entry(text: &str) -> (String, bool, bool) {
    let (text, read_only) = match text.strip_suffix(":ro") {
        Some(path) => (path, true),
        None => (text, false),
    };
    match text.strip_suffix("/**") {
        Some(folder) => (normal(folder), true, read_only),
        None => (normal(text), false, read_only),
    }
}

fn covers(text: &str, path: &str) -> bool {
    let (folder, is_deep, _) = entry(text);
    path == folder || (is_deep && is_below(path, &folder))
}

fn overlaps(one: &str, other: &str) -> bool {
    one == other || is_below(one, other) || is_below(other, one)
}

/// Whether a path lies in a folder and is not the folder itself.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    folder == "/" || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// A path without `.`, `..` and empty parts. `/var/run` is `/run` on every Linux of today.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    if parts.starts_with(&["var", "run"]) {
        parts.remove(0);
    }
    format!("/{}", parts.join("/"))
}

/// The devices and folders of the host that the options of a local volume name: `(path, is a bind mount)`.
pub(super) fn of_volume_options(options: &std::collections::BTreeMap<String, String>) -> Vec<(String, bool)> {
    let kind = options.get("type").map(String::as_str).unwrap_or_default();
    let flags: BTreeSet<&str> = options.get("o").map(|o| o.split(',').collect()).unwrap_or_default();
    let is_bind = flags.contains("bind") || flags.contains("rbind");
    let is_remote = matches!(kind, "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "tmpfs");
    if is_remote && !is_bind {
        return Vec::new();
    }
    let device = options.get("device").map(|device| (device.clone(), is_bind));
    // `overlay` reads its folders from the options.
    let is_overlay = kind == "overlay";
    let folders = flags.iter().flat_map(|flag| folders_of_overlay(flag, is_overlay)).map(|path| (path, true));
    device.into_iter().filter(|(path, _)| !is_overlay && !path.is_empty()).chain(folders).collect()
}

/// The folders that one option of an overlay names. Since Linux 6.8 `lowerdir+` and `datadir+` add one more. The root stands for
/// folders that cannot be told: the kernel removes backslashes from paths, and a later one may read folders from other options.
fn folders_of_overlay(option: &str, is_overlay: bool) -> Vec<String> {
    let Some((name, value)) = option.split_once('=') else { return Vec::new() };
    let is_folder = matches!(name.trim_end_matches('+'), "lowerdir" | "upperdir" | "workdir" | "datadir");
    let is_unknown = if is_folder { value.contains('\\') } else { is_overlay && value.contains(['\\', '/']) };
    if is_unknown {
        vec!["/".to_owned()]
    } else if is_folder {
        value.split(':').map(str::to_owned).collect()
    } else {
        Vec::new()
    }
}
