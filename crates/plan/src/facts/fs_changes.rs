//! Files that were changed inside a running container, and who changed them.
//!
//! Almost every program writes files outside its volumes, so a changed file alone is no drift. A file counts as drift if
//! a user changed it: it was written while a user's command ran in the container, or a user copied it there. Files that
//! the container wrote itself are a note.

use std::collections::BTreeMap;

use driftless_model::{
    Author, Container, FileChangeKind, Instance, Observed, Record, digest_hex, is_unprintable, label,
    matches_star,
};

/// The field under which such drift is reported.
pub(crate) const FIELD: &str = "files";

/// Number of changed files of a container that are followed.
pub const FOLLOWED: usize = 1000;

/// Number of files that are named.
pub(crate) const NAMED: usize = 5;

/// Folders that every program may write to.
const IGNORED_FOLDERS: &[&str] = &[
    "/tmp",
    "/var/tmp",
    "/run",
    "/var/run",
    "/var/lock",
    "/var/log",
    "/var/cache",
    "/dev",
    "/proc",
    "/sys",
    "/.dockerenv",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/mtab",
    "/etc/resolv.conf",
];

/// Names of files and folders that every program may write, in any folder.
const IGNORED_NAMES: &[&str] = &[
    "*.lock",
    "*.log",
    "*.pid",
    "*.pyc",
    "*.sock",
    "*.swp",
    ".*_history",
    ".cache",
    ".lesshst",
    ".viminfo",
    "__pycache__",
    "cache",
    "logs",
    "tmp",
];

/// The differences from the image that count. Mounted files, ignored files and folders of other differences do not count:
/// the time of a folder says nothing.
pub fn watched(
    changed: &[(String, FileChangeKind)],
    container: &Container,
) -> BTreeMap<String, FileChangeKind> {
    let ignored: Vec<&str> = ignored(container).collect();
    let paths: std::collections::BTreeSet<&str> = changed.iter().map(|it| it.0.as_str()).collect();
    let has_children = |path: &str| {
        let below = format!("{}/", path.trim_end_matches('/'));
        paths.range(below.as_str()..).next().is_some_and(|it| it.starts_with(&below))
    };
    let targets = || container.mounts.iter().map(|it| it.target.trim_end_matches('/'));
    let is_mounted = |path: &str| targets().any(|it| is_below(path, it) || is_below(it, path));
    changed
        .iter()
        .filter(|(path, kind)| {
            let is_mere_folder = *kind != FileChangeKind::Deleted && has_children(path);
            !is_mere_folder && !is_mounted(path) && !ignored.iter().any(|it| matches(path, it))
        })
        .cloned()
        .collect()
}

/// The patterns of the manifest: an absolute path with all below it, or the name of a file or folder; `*` stands for
/// anything but `/`.
fn ignored(container: &Container) -> impl Iterator<Item = &str> {
    let is_ours = |key: &str| {
        key == label::IGNORE_FILES || key.strip_prefix(label::ANNOTATION) == Some(label::IGNORE_FILES)
    };
    let given =
        container.labels.iter().filter(move |it| is_ours(it.0)).flat_map(|it| it.1.split([',', '\n']));
    let given = given.map(str::trim).filter(|it| !it.is_empty());
    IGNORED_FOLDERS.iter().chain(IGNORED_NAMES).copied().chain(given)
}

fn matches(path: &str, pattern: &str) -> bool {
    if !pattern.starts_with('/') {
        return path.split('/').any(|it| matches_star(pattern.trim_end_matches('/'), it));
    }
    let mut path = path.split('/');
    pattern.trim_end_matches('/').split('/').all(|it| path.next().is_some_and(|name| matches_star(it, name)))
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|it| it.is_empty() || it.starts_with('/') || folder.ends_with('/'))
}

/// By which a path is remembered.
pub(crate) fn digest(path: &str) -> String {
    let mut digest = digest_hex(path.as_bytes());
    digest.truncate(16);
    digest
}

/// The changed files of one author.
pub(crate) fn by<'a>(
    observed: &'a Observed,
    record: &Record,
    instance: &Instance,
    author: Author,
) -> Vec<(&'a str, FileChangeKind)> {
    let Some(known) = record.inside.get(&instance.id) else { return Vec::new() };
    let files = observed.inside.get(&instance.id).and_then(|it| it.files.as_ref());
    let all = files.into_iter().flat_map(|it| &it.changed);
    let theirs = all.filter(|(path, _)| known.files.get(&digest(path)) == Some(&author));
    theirs.map(|(path, change)| (path.as_str(), change.kind)).collect()
}

/// The files that users changed, as a difference: (wanted, found).
pub(crate) fn shown_by_visitors(
    observed: &Observed,
    record: &Record,
    instance: &Instance,
) -> Option<(String, String)> {
    let all = by(observed, record, instance, Author::Visitor);
    if all.is_empty() {
        return None;
    }
    let named: Vec<String> = all
        .iter()
        .take(NAMED)
        .map(|(path, kind)| {
            let done = match kind {
                FileChangeKind::Changed => "changed",
                FileChangeKind::Added => "added",
                FileChangeKind::Deleted => "deleted",
            };
            format!("{} {done}", shown(path))
        })
        .collect();
    let visits = record.inside.get(&instance.id).map(|it| &it.visits);
    let visits: Vec<String> = visits
        .into_iter()
        .flatten()
        .map(|it| format!("`{}` at {}", it.what, it.from.time_of_day()))
        .collect();
    let by = if visits.is_empty() { String::new() } else { format!(", by {}", visits.join(" or ")) };
    Some(("as it was made".to_owned(), format!("{}{}{by}", named.join(", "), more(all.len()))))
}

fn more(all: usize) -> String {
    match all.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

/// A path may hold anything, and be as long as it likes.
pub(crate) fn shown(path: &str) -> String {
    let clean = path.chars().map(|letter| if is_unprintable(letter) { '\u{fffd}' } else { letter });
    let shown: String = clean.clone().take(150).collect();
    if clean.count() > 150 { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Mount, MountSource};

    #[test]
    fn mounts_logs_caches_and_parent_folders_are_ignored() {
        let mount = Mount { target: "/data".into(), source: MountSource::Anonymous, read_only: false };
        let labels =
            BTreeMap::from([(label::IGNORE_FILES.to_owned(), "/app/state*, *.db\n/srv/".to_owned())]);
        let container = Container { mounts: vec![mount], labels, ..Container::default() };
        let changed: Vec<(String, FileChangeKind)> = [
            "/data",
            "/data/x",
            "/etc",
            "/etc/passwd",
            "/tmp/x",
            "/var/log/a/b",
            "/app",
            "/app/x.pid",
            "/app/state.1/x",
            "/app/logs/x",
            "/lib/a.db",
            "/srv/x",
            "/srvx",
            "/root",
            "/root/.bash_history",
            "/opt",
        ]
        .map(|it| (it.to_owned(), FileChangeKind::Changed))
        .into();
        let found: Vec<String> = watched(&changed, &container).into_keys().collect();
        assert_eq!(found, ["/etc/passwd", "/opt", "/srvx"]);
    }

    #[test]
    fn star_matches_any_part_of_one_name() {
        for (path, pattern, is_match) in [
            ("/a/b.log", "*.log", true),
            ("/a/b.log/c", "*.log", true),
            ("/a/b", "/a", true),
            ("/ab", "/a", false),
            ("/a/b/c", "/a/*/c", true),
            ("/a/b/d", "/a/*/c", false),
            ("/a/xbyc", "x*y*", true),
            ("/a", "/a/b", false),
            ("/ä", "*ä*", true),
        ] {
            assert_eq!(matches(path, pattern), is_match, "{path} {pattern}");
        }
    }

    #[test]
    fn hostile_ignore_pattern_takes_no_time() {
        let pattern = format!("{}b", "*a".repeat(100));
        assert!(!matches(&format!("/{}", "a".repeat(250)), &pattern));
    }
}
