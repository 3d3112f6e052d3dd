//! The backup of the database: a second file with the tables that users rely on, which are pins, suspensions, revisions,
//! tokens, the keys of a fleet, the images that the agent brought and the agent's id. It is written with each change of these
//! tables, and restored if the database is lost, older or damaged.
//!
//! Both files count the changes of these tables (`generation` in the table `meta`), so the newer one is known.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::{
    database::{self, Broken},
    error::{BoxError, Error},
};
use driftless_clock::Clock;

/// The tables of the backup. Those that a pin or suspension needs come first.
pub(crate) const TABLES: [&str; 14] = [
    "meta",
    "pins",
    "suspensions",
    "applications",
    "numbers",
    "revisions",
    "stacks",
    "stack_contents",
    "tokens",
    "fleet_keys",
    "fleet_invites",
    "enrolments",
    "host_requests",
    "images",
];

/// The tables of the backup that give access. A row that is missing in a newer database was revoked there.
const ACCESS: [&str; 3] = ["tokens", "fleet_keys", "fleet_invites"];

/// Whether rows of a table give access.
pub(crate) fn gives_access(table: &str) -> bool {
    ACCESS.contains(&table)
}

/// The backup of one state directory.
#[derive(Debug)]
pub(crate) struct Backup {
    path: PathBuf,
    /// The last change is in it, so the next one can be applied to it as well.
    is_current: bool,
}

impl Backup {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, is_current: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a backup that a newer release has written. It is read only: the database comes first when the schema changes.
    pub(crate) fn refuse_newer(&self) -> Result<(), Error> {
        let Ok(connection) = database::look_into_backup(&self.path) else { return Ok(()) };
        match database::refuse_newer(&connection, &self.path) {
            Err(Broken::Other(error @ Error::Newer { .. })) => Err(error),
            // Opening it says so, too.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The generation of the backup. `None`: there is none, or it was damaged and is moved aside.
    ///
    /// # Errors
    ///
    /// If it cannot be opened now, as on a full disk, or if a newer release has written it.
    pub(crate) fn generation(&self, clock: Clock) -> Result<Option<i64>, Error> {
        if !self.path.is_file() {
            return Ok(None);
        }
        match database::open_backup(&self.path) {
            Ok(connection) => Ok(generation(&connection).ok().flatten()),
            Err(Broken::Damaged(why)) => {
                tracing::error!(file = %self.path.display(), why, "the backup of the database is damaged");
                if let Err(error) = database::move_aside(&self.path, &database::aside(&self.path, clock)) {
                    tracing::warn!(%error, "could not move the damaged backup aside");
                }
                Ok(None)
            }
            Err(Broken::Other(error @ Error::Newer { .. })) => Err(error),
            Err(Broken::Other(error)) => Err(Error::Directory {
                doing: "open the backup of the database",
                path: self.path.clone(),
                source: io::Error::other(error),
            }),
        }
    }

    pub(crate) fn mark_current(&mut self) {
        self.is_current = true;
    }

    /// Applies a change that was made to the database. If that fails, because the file was removed for example, the whole
    /// backup is written, now or with the next change.
    pub(crate) fn follow<T>(
        &mut self,
        database: &Connection,
        change: impl Fn(&Transaction<'_>) -> Result<T, BoxError>,
    ) {
        let is_applied = self.is_current && self.apply(change).is_ok();
        let written = if is_applied { Ok(()) } else { self.rebuild(database) };
        self.is_current = written.is_ok();
        if let Err(error) = written {
            tracing::warn!(file = %self.path.display(), error, "could not write the backup of the database");
        }
    }

    fn apply<T>(&self, change: impl Fn(&Transaction<'_>) -> Result<T, BoxError>) -> Result<(), BoxError> {
        let mut connection = database::open_backup(&self.path).map_err(Broken::into_error)?;
        let transaction = connection.transaction()?;
        change(&transaction)?;
        count_change(&transaction)?;
        transaction.commit()?;
        Ok(())
    }

    /// Writes the whole backup: into a new file first, which then takes the place of the old one.
    pub(crate) fn rebuild(&mut self, database: &Connection) -> Result<(), BoxError> {
        let new = self.path.with_extension("new");
        remove(&new)?;
        drop(database::create_unsynced(&new)?);
        copy_tables(database, &new, Direction::IntoNew)?;
        File::open(&new)?.sync_all()?;
        // `SQLite` would play the journal of a change that did not end into the new file. Without its journal the old one may be torn, so
        // it goes first: the database is whole.
        let journal = database::with_suffix(&self.path, "-journal");
        if journal.is_file() {
            remove(&self.path)?;
        }
        remove(&journal)?;
        fs::rename(&new, &self.path)?;
        self.is_current = true;
        Ok(())
    }

    /// Replaces the tables of the database by those of the backup.
    pub(crate) fn restore(&self, database: &Connection) -> Result<(), BoxError> {
        copy_tables(database, &self.path, Direction::FromBackup)
    }

    /// Adds rows of an older backup to tables of which rows are lost. Access that was revoked since is not given again.
    pub(crate) fn fill(&self, database: &Connection, incomplete: &[&str]) -> Result<(), BoxError> {
        let is_filled = |table: &&str| incomplete.contains(table) && !gives_access(table);
        let tables = TABLES.into_iter().filter(is_filled);
        let statement = |table| format!("INSERT OR IGNORE INTO main.{table} SELECT * FROM backup.{table};");
        let statements: String = tables.map(statement).collect();
        with_attached(database, &self.path, || {
            let transaction = database.unchecked_transaction()?;
            transaction.execute_batch(&statements)?;
            transaction.commit()
        })
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The direction in which tables are copied.
#[derive(Clone, Copy)]
enum Direction {
    /// From the database into a new backup, which nobody uses yet.
    IntoNew,
    /// From the backup into the database.
    FromBackup,
}

/// Replaces all rows of the backup's tables in one of two databases by those of the other, in one transaction.
fn copy_tables(database: &Connection, file: &Path, direction: Direction) -> Result<(), BoxError> {
    with_attached(database, file, || {
        let (from, to) = match direction {
            Direction::IntoNew => {
                database::write_unsynced(database, "backup")?;
                ("main", "backup")
            }
            Direction::FromBackup => ("backup", "main"),
        };
        let transaction = database.unchecked_transaction()?;
        for table in TABLES {
            transaction.execute_batch(&format!(
                "DELETE FROM {to}.{table}; INSERT INTO {to}.{table} SELECT * FROM {from}.{table};"
            ))?;
        }
        transaction.commit()
    })
}

/// Does something while the tables of a file are those of the schema `backup`.
fn with_attached(
    database: &Connection,
    file: &Path,
    work: impl FnOnce() -> Result<(), rusqlite::Error>,
) -> Result<(), BoxError> {
    database.execute("ATTACH DATABASE ?1 AS backup", params![file.to_string_lossy()])?;
    let worked = work();
    database.execute_batch("DETACH DATABASE backup")?;
    Ok(worked?)
}

/// The number of changes of the tables of the backup. `None`: never, so the database is new.
pub(crate) fn generation(connection: &Connection) -> Result<Option<i64>, rusqlite::Error> {
    let value = |key: &str| {
        let query = "SELECT value FROM meta WHERE key = ?1";
        connection.query_row(query, params![key], |row| row.get::<_, String>(0)).optional()
    };
    Ok(match (value("generation")?, value("agent_id")?) {
        (Some(count), _) => Some(count.parse().unwrap_or(0)),
        // Stored by a release that had no backup.
        (None, Some(_)) => Some(0),
        (None, None) => None,
    })
}

/// Counts one change of the backup's tables.
pub(crate) fn count_change(transaction: &Transaction<'_>) -> Result<(), BoxError> {
    transaction.execute(
        "INSERT INTO meta (key, value) VALUES ('generation', '1')
         ON CONFLICT DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)",
        [],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_of_the_old_backup_does_not_reach_the_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("driftless-backup.db");
        let journal = database::with_suffix(&path, "-journal");
        let database = database::create_unsynced(&directory.path().join("driftless.db")).unwrap();
        let mut backup = Backup::at(path.clone());
        backup.rebuild(&database).unwrap();
        // The agent is killed in the middle of a change.
        let old = Connection::open(&path).unwrap();
        old.execute_batch("PRAGMA synchronous = OFF; BEGIN; INSERT INTO meta VALUES ('agent_id', 'old')")
            .unwrap();
        let left = fs::read(&journal).unwrap();
        assert_eq!(left[0], 0xd9, "a journal that `SQLite` plays back");
        drop(old);
        fs::write(&journal, left).unwrap();
        database.execute("INSERT INTO meta VALUES ('agent_id', 'new')", []).unwrap();
        backup.rebuild(&database).unwrap();
        let new = Connection::open(&path).unwrap();
        let query = "SELECT value FROM meta WHERE key = 'agent_id'";
        let id: String = new.query_row(query, [], |row| row.get(0)).unwrap();
        assert_eq!(id, "new");
        assert!(!journal.exists());
    }
}
