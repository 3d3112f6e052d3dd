//! Learning who changed the files inside a container.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{
    Author, ChangedFiles, FileChange, FileChangeKind, FilesystemDrift, Inside, Instance, KnownInside, Mask,
    Observed, Record, Timestamp, Visit,
};

use crate::{
    facts::fs_changes::{FOLLOWED, digest},
    target::Target,
};

/// Files that a container writes this soon after its start belong to the start.
const START: Duration = Duration::from_mins(1);

/// The clocks of the engine's events and of its files are read at different moments.
const SLACK: Duration = Duration::from_secs(1);

/// Number of visits that are kept, and number that are named.
const VISITS: usize = 8;

/// Takes into memory who changed what, as far as it can be told.
pub(crate) fn learn(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let is_off = target.policy.filesystem_drift == FilesystemDrift::Off;
    record.inside.retain(|it, _| !is_off && observed.container(it).is_some());
    if is_off {
        return;
    }
    for (id, inside) in &observed.inside {
        let (Some(instance), Some(files)) = (observed.container(id), &inside.files) else { continue };
        if !record.own_containers.contains(id) {
            continue;
        }
        let before = record.inside.get(id);
        if let Some(known) = learned(before, instance, inside, files, target.mask) {
            record.inside.insert(id.clone(), known);
        }
    }
}

/// The updated knowledge about one container, if it has changed.
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
    // A file that equals the image again has no author.
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

/// The author of a new change that was not written during a visit, although there was a visit since the last
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
