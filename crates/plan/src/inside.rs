//! Files that were changed inside a running container, and by whom.
//!
//! Nearly every program writes beside its volumes, so a changed file alone is nobody's fault. What tells drift from
//! daily work is that somebody was in there: a file written while a command of somebody ran in the container, or
//! copied into it, is his; everything else the container wrote itself, and that is a remark.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Cause, Target, Wait,
    round::{Difference, Round},
    text,
};
use driftless_model::{
    Author, ChangedFiles, Container, FileChange, FileChangeKind, FilesystemDrift, Inside, Instance,
    KnownInside, Mask, Observed, Record, Timestamp, Visit, WorkloadName, digest_hex, label, matches_star,
};

/// The field under which such drift is told.
pub(super) const FIELD: &str = "files";
/// How many changed files of a container are followed.
pub const FOLLOWED: usize = 1000;
/// What a container writes so soon after its start belongs to the start.
const START: Duration = Duration::from_mins(1);
/// The clocks of the engine's events and of its files are read at different moments.
const SLACK: Duration = Duration::from_secs(1);
/// How many files are named.
const NAMED: usize = 5;
/// How many visits are remembered, and how many are named.
const VISITS: usize = 8;

/// What any program may write: everything below these folders.
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

/// Likewise files and folders of these names, wherever they are.
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

/// What is watched of all that differs from the image: not what is mounted, nor what is ignored, nor a folder of what
/// differs in it: its time says nothing.
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
        key == label::IGNORE_FILES || key.strip_prefix("annotation.") == Some(label::IGNORE_FILES)
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

/// Takes into memory who changed what, as far as it can be told.
pub(super) fn learn(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let is_off = target.policy.filesystem_drift == FilesystemDrift::Off;
    record.inside.retain(|it, _| !is_off && observed.container(it).is_some());
    if is_off {
        return;
    }
    for (id, inside) in &observed.inside {
        let (Some(instance), Some(files)) = (observed.container(id), &inside.files) else { continue };
        if !record.ledger.contains(id) {
            continue;
        }
        let before = record.inside.get(id);
        if let Some(known) = learned(before, instance, inside, files, target.mask) {
            record.inside.insert(id.clone(), known);
        }
    }
}

/// What is known after this look, if it is more than before.
fn learned(
    before: Option<&KnownInside>,
    instance: &Instance,
    inside: &Inside,
    files: &ChangedFiles,
    mask: &Mask,
) -> Option<KnownInside> {
    let started = instance.started.unwrap_or(instance.created);
    let since = before.map_or(started, |it| it.looked);
    let is_concerned = |it: &&Visit| it.from <= files.at && it.to.is_none_or(|to| to.after(SLACK) >= since);
    let visits: Vec<&Visit> = inside.visits.iter().filter(is_concerned).collect();
    let is_start = before.is_none() || files.at.since(started) < START;
    let own = if is_start { Author::Start } else { Author::Itself };
    let mut known =
        before.cloned().unwrap_or_else(|| KnownInside { looked: files.at, ..KnownInside::default() });
    // What was put back as it was is nobody's any more.
    let now: BTreeMap<String, FileChange> =
        files.changed.iter().map(|(path, it)| (digest(path), *it)).collect();
    if !files.is_cut {
        known.files.retain(|it, _| now.contains_key(it));
    }
    let mut is_left = false;
    for (digest, change) in now {
        let was_visited = visits.iter().any(|it| is_of(it, change, files.at));
        let author = match known.files.get(&digest) {
            Some(Author::Start | Author::Itself) | None if was_visited => Author::Visitor,
            Some(_) => continue,
            None if visits.is_empty() || before.is_none() => own,
            None => match by_its_time(change, since, &visits) {
                Some(Author::Visitor) => Author::Visitor,
                Some(Author::Start | Author::Itself) => own,
                // The next look knows when it was written.
                None => continue,
            },
        };
        is_left |= author == Author::Visitor;
        if known.files.len() < FOLLOWED || author == Author::Visitor {
            known.files.insert(digest, author);
        }
    }
    if is_left {
        known.visits.extend(visits.iter().map(|it| Visit { what: mask.command(&it.what), ..(*it).clone() }));
        while known.visits.len() > VISITS {
            known.visits.pop_first();
        }
    }
    if !visits.is_empty() || before.is_none_or(|it| it.files != known.files) {
        known.looked = files.at;
    }
    (before != Some(&known)).then_some(known)
}

/// Whose a new change is that was not written while somebody was there, although somebody was there since the last
/// look.
fn by_its_time(change: FileChange, since: Timestamp, visits: &[&Visit]) -> Option<Author> {
    match (change.kind, change.written) {
        // It was not there at the last look, and yet is older: it was copied or unpacked with its time.
        (_, Some(written)) if written <= since => Some(Author::Visitor),
        (_, Some(_)) if visits.iter().any(|it| it.copies) => Some(Author::Visitor),
        (_, Some(_)) => Some(Author::Itself),
        // When it was deleted nobody knows.
        (FileChangeKind::Deleted, None) => Some(Author::Visitor),
        (FileChangeKind::Added | FileChangeKind::Changed, None) => None,
    }
}

/// Whether a file was written while this visitor was there.
fn is_of(visit: &Visit, change: FileChange, looked: Timestamp) -> bool {
    let Some(written) = change.written else { return false };
    written.after(SLACK) >= visit.from && written <= visit.to.unwrap_or(looked).after(SLACK)
}

/// By which a path is remembered.
fn digest(path: &str) -> String {
    let mut digest = digest_hex(path.as_bytes());
    digest.truncate(16);
    digest
}

/// What of the changed files is whose.
fn by<'a>(
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

/// What is told of files that somebody changed: (wanted, found).
pub(super) fn found(observed: &Observed, record: &Record, instance: &Instance) -> Option<(String, String)> {
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
        .map(|it| format!("`{}` at {}", it.what, text::time_of_day(it.from)))
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
fn shown(path: &str) -> String {
    let clean = path.chars().map(|it| if it.is_control() { '\u{fffd}' } else { it });
    let shown: String = clean.clone().take(150).collect();
    if clean.count() > 150 { format!("{shown}…") } else { shown }
}

/// Tells of what somebody changed in an instance. `Some(cause)`: it is to be replaced for that.
pub(super) fn revert(round: &mut Round<'_>, name: &WorkloadName, instance: &Instance) -> Option<Cause> {
    let (want, found) = found(round.observed, round.record, instance)?;
    let visits = round.record.inside.get(&instance.id).map(|it| &it.visits);
    let difference = Difference {
        kind: "container",
        object: &instance.name,
        workload: Some(name),
        field: FIELD.into(),
        want,
        found,
        at: visits.and_then(|it| it.first()).map(|it| it.from),
    };
    match round.target.policy.filesystem_drift {
        FilesystemDrift::Off => None,
        FilesystemDrift::Report => {
            round.report(difference);
            None
        }
        FilesystemDrift::Revert => round.heal(difference),
    }
}

/// Says what an instance writes into itself, which is lost when it is replaced.
pub(super) fn remark(round: &mut Round<'_>, instance: &Instance) {
    let own = by(round.observed, round.record, instance, Author::Itself);
    let files = round.observed.inside.get(&instance.id).and_then(|it| it.files.as_ref());
    let is_cut = files.is_some_and(|it| it.is_cut);
    if round.target.policy.filesystem_drift == FilesystemDrift::Off || (own.is_empty() && !is_cut) {
        return;
    }
    let container = instance.name.clone();
    let named = own.iter().take(NAMED).map(|it| shown(it.0)).collect();
    round.wait(Wait::WritesInside { container, files: named, more: own.len().saturating_sub(NAMED), is_cut });
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
    fn a_star_stands_for_any_part_of_one_name() {
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
