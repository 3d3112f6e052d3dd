//! What cannot be observed, kept across restarts: revisions, records, plans, pins and events in one `SQLite`
//! file, and the files that containers mount beside it. The only module that knows rusqlite.
//!
//! [`Store`] is cheap to clone and synchronous: each call is one short transaction. What people rely on once
//! it was reported (revisions, pins, suspensions) survives a power failure; the rest survives the death of the
//! process, which saves a wait for the disk in every round.
//!
//! It decides nothing and forgets nothing on its own but what is over its limits. If it is lost, the agent
//! still arrives from Git and Docker. No secret file is stored here, only its digest; but the values of
//! environment variables are part of a stored stack, so the folder is closed to others (mode 0700) and so is
//! the database (0600).

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::{Serialize, de::DeserializeOwned};

use driftless_clock::Clock;
use driftless_model::{AppName, Cause, CommitInfo, ContentId};

mod agent_id;
mod app_files;
mod applications;
mod backup;
mod commit_statuses;
mod commits;
mod contents;
mod database;
mod deliveries;
mod events;
mod in_place;
mod revisions;
mod safe_path;
mod salvage;
mod state_dir;

use backup::Backup;
use database::Damage;

pub use commit_statuses::StatusNote;
pub use contents::{ContentDir, Visibility};
pub use state_dir::StateDir;

/// The agent's memory. Clones share one connection.
#[derive(Clone)]
pub struct Store {
    connection: Arc<Mutex<Connection>>,
    clock: Clock,
    /// `None` in memory.
    agent_id_file: Option<PathBuf>,
    /// `None` in memory.
    backup: Option<Arc<Mutex<Backup>>>,
    trouble: Arc<Mutex<Option<String>>>,
}

/// A store, and whether something of it was lost.
#[derive(Debug)]
pub struct Opened {
    pub store: Store,
    /// One sentence for the log: what was wrong with the database and what was restored. See [`Store::loss`] for
    /// what could not be restored.
    pub recovered: Option<String>,
}

/// A revision as the caller knows it; the store adds number, time and the stack's hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRevision {
    pub app: AppName,
    pub commit: CommitInfo,
    /// The branch, tag or commit that is followed.
    pub reference: String,
    pub cause: Cause,
    /// What changes against the revision before. Masked by the caller.
    pub changes: Vec<String>,
    pub rollback_of: Option<u64>,
}

/// Whether the user froze an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Observe and report, never write.
    Suspended,
    Active,
}

/// An application that was managed once, so that its disappearance can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownApplication {
    pub app: AppName,
    /// The repository's name in the configuration.
    pub repository: String,
    /// As it was given to [`Store::remember_application`].
    pub spec: serde_json::Value,
}

/// Each variant says what we were doing. Reading goes on where writing has failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "another agent (process {pid}) uses the state directory {directory}: stop it, or give this one a state directory of its own"
    )]
    InUse { directory: PathBuf, pid: String },
    #[error(
        "the state directory {directory} is open to others and holds what is not ours: give the agent a directory of its own"
    )]
    NotOurs { directory: PathBuf },
    #[error("could not {doing} {path}")]
    Directory {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The disk is full, read-only or gone. Nothing was changed.
    #[error("could not write {what} to the database")]
    Write {
        what: &'static str,
        #[source]
        source: Source,
    },
    #[error("could not read {what} from the database")]
    Read {
        what: &'static str,
        #[source]
        source: Source,
    },
    /// A later release wrote the database.
    #[error(
        "the database {path} has schema {found}, and this release knows {known}: install the newer release again, or move the file away to begin anew"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("there is no revision {number} of `{app}`")]
    NoSuchRevision { app: AppName, number: u64 },
    /// A mounted file that was not rendered just now and is not on the disk either.
    #[error("the content {} of a mount is not at hand: it has to be rendered from Git again", id.0.get(..12).unwrap_or(&id.0))]
    NoSuchContent { id: ContentId },
    /// Secrets are never written to a disk.
    #[error(
        "secrets are kept in memory only, and {path} is on a file system of type {kind}: set `runtimeDir` to a folder on a tmpfs, such as /run/driftless or /dev/shm/driftless"
    )]
    NotInMemory { path: PathBuf, kind: String },
    #[error("another agent keeps its secrets in {directory}: give this one a `runtimeDir` of its own")]
    RuntimeInUse { directory: PathBuf },
    /// A path from the repository, or a link that a container planted, leads out of the application's folder.
    #[error("{path} is not touched: {why}")]
    Unsafe { path: PathBuf, why: String },
}

/// What the database or the encoding said.
type Source = Box<dyn std::error::Error + Send + Sync>;

/// How much of a failure a write outlives.
#[derive(Clone, Copy, Debug)]
enum Durability {
    /// The death of the process, not a power failure.
    Process,
    /// A power failure too: it is on the disk before the call returns.
    Power,
}

impl Store {
    /// Opens the database in a state directory that is locked, and makes it when there is none. One that is
    /// damaged is moved aside, and a new one begun.
    pub fn open(state: &StateDir, clock: Clock) -> Result<Opened, Error> {
        let (connection, damage) = database::open(&state.database(), clock)?;
        let mut backup = Backup::at(state.backup());
        let (recovered, loss) = recover(&connection, damage, &mut backup, clock)?;
        let store = Self {
            connection: Arc::new(Mutex::new(connection)),
            clock,
            agent_id_file: Some(state.path().join("agent-id")),
            backup: Some(Arc::new(Mutex::new(backup))),
            trouble: Arc::default(),
        };
        if let Some(loss) = loss {
            store.note_loss(&loss)?;
        }
        Ok(Opened { store, recovered })
    }

    /// A store that is gone with its last clone, for previews and tests.
    pub fn in_memory(clock: Clock) -> Result<Self, Error> {
        let connection = database::in_memory()?;
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { connection, clock, agent_id_file: None, backup: None, trouble: Arc::default() })
    }

    /// Why the last write failed; `None` when it did not. A full disk is a thing to show, not to stop for.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads under the lock.
    fn read<T>(
        &self,
        what: &'static str,
        query: impl FnOnce(&Connection) -> Result<T, Source>,
    ) -> Result<T, Error> {
        query(&self.connection()).map_err(|source| Error::Read { what, source })
    }

    /// Writes in one transaction: all of it or nothing.
    fn write<T>(
        &self,
        what: &'static str,
        durability: Durability,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, Source>,
    ) -> Result<T, Error> {
        let mut connection = self.connection();
        let written = database::write(&mut connection, durability, change);
        let trouble =
            written.as_ref().err().map(|source| format!("could not write {what} to the database: {source}"));
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        written.map_err(|source| Error::Write { what, source })
    }

    /// Writes to a table that the backup holds too.
    fn write_twice<T>(
        &self,
        what: &'static str,
        durability: Durability,
        change: impl Fn(&Transaction<'_>) -> Result<T, Source>,
    ) -> Result<T, Error> {
        // Held until both files have the change, so that they get all changes in one order.
        let mut backup =
            self.backup.as_ref().map(|backup| backup.lock().unwrap_or_else(PoisonError::into_inner));
        let result = self.write(what, durability, |transaction| {
            let result = change(transaction)?;
            backup::count_change(transaction)?;
            Ok(result)
        })?;
        if let Some(backup) = &mut backup {
            backup.follow(&self.connection(), change);
        }
        Ok(result)
    }

    /// What was lost when the database was lost or damaged, until somebody has confirmed it with
    /// [`Store::clear_loss`].
    pub fn loss(&self) -> Result<Option<String>, Error> {
        self.read("whether anything was lost", |connection| {
            let query = "SELECT value FROM meta WHERE key = 'loss'";
            Ok(connection.prepare_cached(query)?.query_row([], |row| row.get(0)).optional()?)
        })
    }

    /// Stores that pins or suspensions may be lost. The first loss counts until it is confirmed.
    pub fn note_loss(&self, what: &str) -> Result<(), Error> {
        self.write_twice("that something was lost", Durability::Power, |transaction| {
            transaction
                .execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('loss', ?1)", params![what])?;
            Ok(())
        })
    }

    /// Somebody knows what was lost and has set it again.
    pub fn clear_loss(&self) -> Result<(), Error> {
        self.write_twice("that a loss is known", Durability::Power, |transaction| {
            transaction.execute("DELETE FROM meta WHERE key = 'loss'", [])?;
            Ok(())
        })
    }

    /// A panic under the lock rolls its transaction back, so what the next one finds is whole.
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Brings back what a lost or damaged database held. Returns a sentence about what happened, and one about what
/// pins and suspensions may be lost.
fn recover(
    connection: &Connection,
    damage: Option<Damage>,
    backup: &mut Backup,
    clock: Clock,
) -> Result<(Option<String>, Option<String>), Error> {
    let read = |source: rusqlite::Error| Error::Read { what: "the generation", source: source.into() };
    let restored = |source| Error::Write { what: "what the backup holds", source };
    let own = backup::generation(connection).map_err(read)?;
    let kept = backup.generation(clock);
    if let Some(Damage { aside, why }) = damage {
        let moved = format!("the database was damaged ({why}) and is now {}", aside.display());
        if kept.is_some() {
            backup.restore(connection).map_err(restored)?;
            backup.mark_current();
            salvage::salvage(&aside, connection);
            let file = backup.path().display();
            let sentence = format!("{moved}; revisions, pins and suspensions were restored from {file}");
            return Ok((Some(sentence), None));
        }
        let incomplete = salvage::salvage(&aside, connection);
        if incomplete.is_empty() {
            let sentence = format!("{moved}; revisions, pins and suspensions were read from it");
            return Ok((Some(sentence), None));
        }
        let loss = format!("{moved}; not all could be read of {}", incomplete.join(", "));
        return Ok((Some(loss.clone()), Some(loss)));
    }
    if kept > own {
        backup.restore(connection).map_err(restored)?;
        backup.mark_current();
        let file = backup.path().display();
        let sentence = match own {
            None => format!(
                "the database was missing or empty; revisions, pins and suspensions were restored from {file}, and events are lost"
            ),
            Some(_) => format!(
                "the database was older than its backup; revisions, pins and suspensions were restored from {file}"
            ),
        };
        return Ok((Some(sentence), None));
    }
    if kept == own && own.is_some() {
        backup.mark_current();
    } else if own.is_some()
        && let Err(error) = backup.rebuild(connection)
    {
        tracing::warn!(file = %backup.path().display(), error, "could not write the backup of the database");
    }
    Ok((None, None))
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("agent_id_file", &self.agent_id_file).finish_non_exhaustive()
    }
}

fn to_json<T: Serialize>(value: &T) -> Result<String, Source> {
    Ok(serde_json::to_string(value)?)
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, Source> {
    Ok(serde_json::from_str(text)?)
}

/// For rows that can be done without: another release may have written what this one cannot read, and one such
/// row must not take the others with it.
fn readable<T: DeserializeOwned>(what: &'static str, text: &str) -> Option<T> {
    serde_json::from_str(text)
        .inspect_err(
            |error| tracing::warn!(what, %error, "a row of the database cannot be read and is left out"),
        )
        .ok()
}

/// Numbers of ours count up from 1 and fit; `SQLite`'s are signed.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Event, EventKind, Pin, Record, Timestamp, Until};

    fn event(message: String) -> Event {
        let (at, app) = (Timestamp(1), AppName::from("shop"));
        let (reason, object) = ("Pulled".to_owned(), "web.1".to_owned());
        Event { sequence: 0, at, app, kind: EventKind::Normal, reason, object, message }
    }

    #[test]
    fn on_a_full_disk_writing_fails_and_reading_goes_on() {
        let store = Store::in_memory(Clock::System).unwrap();
        let app = AppName::from("shop");
        store.append_event(event("before".to_owned())).unwrap();
        // From here on SQLite answers as it does when the disk is full.
        let pages: i64 = store.connection().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        store.connection().pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();

        let refused = store.append_event(event("x".repeat(100_000))).unwrap_err();
        assert!(matches!(refused, Error::Write { what: "an event", .. }), "{refused:?}");
        let record =
            Record { settled: Some(driftless_model::StackHash("x".repeat(100_000))), ..Record::default() };
        assert!(matches!(store.save_record(&app, &record), Err(Error::Write { .. })));

        let trouble = store.trouble().unwrap();
        assert!(trouble.contains("a record") && trouble.contains("full"), "{trouble}");

        let events = store.events(0, 10, None).unwrap();
        assert_eq!(events.iter().map(|it| it.message.as_str()).collect::<Vec<_>>(), ["before"]);
        assert_eq!(store.record(&app).unwrap(), Record::default());

        // Somebody made room.
        store.connection().pragma_update_and_check(None, "max_page_count", pages + 1000, |_| Ok(())).unwrap();
        store.save_record(&app, &record).unwrap();
        assert_eq!(store.trouble(), None);
    }

    #[test]
    fn on_a_read_only_disk_writing_fails_and_reading_goes_on() {
        let store = Store::in_memory(Clock::System).unwrap();
        let app = AppName::from("shop");
        store.connection().pragma_update(None, "query_only", true).unwrap();
        let pin = Pin {
            revision: 1,
            commit: String::new(),
            reason: String::new(),
            at: Timestamp(1),
            until: Until::Manual,
            skip: None,
        };
        assert!(matches!(store.set_pin(&app, &pin), Err(Error::Write { what: "a pin", .. })));
        assert!(matches!(store.set_suspended(&app, Suspension::Suspended), Err(Error::Write { .. })));
        assert_eq!(store.pin(&app).unwrap(), None);
        assert!(!store.suspended(&app).unwrap());
    }
}
