//! Repair of a damaged database.
//!
//! A whole database is built from what can be read of the damaged one and from its backup, in a file of its own. It takes the place of
//! the damaged one when it is complete, so that a repair that ends early has changed nothing, and the next start begins it again.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use rusqlite::{Connection, params};

use crate::{
    backup::{self, Backup},
    database::{self, Broken},
    error::{BoxError, Error},
    salvage,
};
use driftless_clock::Clock;

/// The end of the name of a database that is being built. It is not on the disk yet.
const NEW: &str = ".new";

/// The end of the name of a database that is complete and on the disk. It counts once the damaged one is moved aside.
const REPAIRED: &str = ".repaired";

/// Opens the database, and repairs it if it is damaged. Also returns a sentence about the repair.
///
/// # Errors
///
/// If the database cannot be opened or repaired, or a newer release has written it. A damaged one stays as it is then.
pub(crate) fn open(
    path: &Path,
    backup: &Backup,
    clock: Clock,
) -> Result<(Connection, Option<String>), Error> {
    let failed = |source: BoxError| Error::Directory {
        doing: "repair the damaged database",
        path: path.to_owned(),
        source: io::Error::other(source),
    };
    let finished = finish(path, clock).map_err(|error| failed(error.into()))?;
    match database::open_file(path) {
        Ok(connection) => Ok((connection, finished)),
        Err(Broken::Other(error)) => Err(error),
        Err(Broken::Damaged(why)) => {
            let sentence = repair(path, &why, backup, clock).map_err(failed)?;
            let connection = database::open_file(path).map_err(Broken::into_error)?;
            Ok((connection, Some(sentence)))
        }
    }
}

/// Finishes a repair that ended after the damaged database was moved aside, and removes the files of one that ended earlier: the
/// damaged one is still there then. Returns a sentence if a repair was finished.
fn finish(path: &Path, clock: Clock) -> io::Result<Option<String>> {
    let (new, repaired) = (database::with_suffix(path, NEW), database::with_suffix(path, REPAIRED));
    // A failure costs only the room on the disk.
    let _ = fs::remove_file(new);
    if path.symlink_metadata().is_ok() {
        let _ = fs::remove_file(repaired);
        return Ok(None);
    }
    if !repaired.is_file() {
        return Ok(None);
    }
    put_in_place(path, &database::aside(path, clock))?;
    Ok(Some(format!("the repair of the damaged database {} ended early and is finished", path.display())))
}

/// Replaces a damaged database by a whole one. Returns a sentence about the damage and what was restored.
fn repair(path: &Path, why: &str, backup: &Backup, clock: Clock) -> Result<String, BoxError> {
    let (new, aside) = (database::with_suffix(path, NEW), database::aside(path, clock));
    let moved = format!("the database was damaged ({why}) and is now {}", aside.display());
    let built = build(path, &new, &moved, backup, clock).and_then(|sentence| {
        File::open(&new)?.sync_all()?;
        Ok(sentence)
    });
    // On a full disk it would take the room that the next try needs.
    let sentence = built.inspect_err(|_| drop(fs::remove_file(&new)))?;
    fs::rename(&new, database::with_suffix(path, REPAIRED))?;
    sync_folder(path)?;
    put_in_place(path, &aside)?;
    Ok(sentence)
}

/// Moves the damaged database aside, as far as that is still to be done, and gives its name to the repaired one.
fn put_in_place(path: &Path, aside: &Path) -> io::Result<()> {
    database::move_aside(path, aside)?;
    // On the disk first: `SQLite` would replay the log of the damaged database into the repaired one.
    sync_folder(path)?;
    fs::rename(database::with_suffix(path, REPAIRED), path)?;
    sync_folder(path)
}

/// Brings the names of the files next to this one to the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Builds the whole database in a new file. Returns a sentence about what was restored. All connections are closed by then: `SQLite`
/// finds a log by the name that its database had when it was opened.
fn build(damaged: &Path, new: &Path, moved: &str, backup: &Backup, clock: Clock) -> Result<String, BoxError> {
    let connection = database::create_unsynced(new)?;
    // One that cannot be read now may have what the damaged database lacks.
    let kept = backup.generation(clock)?;
    let (sentence, loss) = restore(&connection, damaged, moved, backup, kept)?;
    let transaction = connection.unchecked_transaction()?;
    if let Some(loss) = loss {
        transaction.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('loss', ?1)", params![loss])?;
    }
    // Now it is newer than the backup, which is written again.
    backup::count_change(&transaction)?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(sentence)
}

/// Brings back what a damaged database held. A backup that has its last change is the truth about the tables of the backup,
/// because the damaged file may have rows that were deleted since. All others are read from the damaged file. Returns a sentence about
/// what happened, and one about what pins and suspensions may be lost.
fn restore(
    into: &Connection,
    damaged: &Path,
    moved: &str,
    backup: &Backup,
    kept: Option<i64>,
) -> Result<(String, Option<String>), BoxError> {
    let file = backup.path().display();
    let damaged = salvage::open(damaged);
    let newest = damaged.as_ref().and_then(|damaged| backup::generation(damaged).ok().flatten());
    if kept.is_some() && kept >= newest {
        backup.restore(into)?;
        let restored = salvage::essential_rows(into)?;
        // If it is not known which of both is newer, all that is left counts, but for access.
        let is_wanted = |table: &str| {
            !backup::TABLES.contains(&table) || (newest.is_none() && !backup::gives_access(table))
        };
        salvage::salvage(damaged.as_ref(), into, is_wanted)?;
        if salvage::essential_rows(into)? == restored {
            return Ok((format!("{moved}; revisions, pins and suspensions were restored from {file}"), None));
        }
        let loss = format!(
            "{moved}; it is not known whether {file} is older, and both have pins, suspensions or revisions"
        );
        return Ok((loss.clone(), Some(loss)));
    }
    let incomplete = salvage::salvage(damaged.as_ref(), into, |_| true)?;
    if kept.is_some() {
        backup.fill(into, &incomplete)?;
    }
    let missing: Vec<&str> = incomplete.into_iter().filter(|table| salvage::is_essential(table)).collect();
    if missing.is_empty() {
        return Ok((format!("{moved}; revisions, pins and suspensions were read from it"), None));
    }
    let older = if kept.is_some() { format!(", and {file} is older") } else { String::new() };
    let loss = format!("{moved}; not all could be read of {}{older}", missing.join(", "));
    Ok((loss.clone(), Some(loss)))
}
