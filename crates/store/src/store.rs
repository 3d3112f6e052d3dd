//! The database of the agent: how it is opened, restored, read and written. The other modules add what each table holds.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::error::Category;

use driftless_clock::Clock;
use driftless_model::{Actor, AppName, Cause, CommitInfo, HostIdentity};

use crate::{
    backup::{self, Backup},
    database,
    error::{BoxError, Durability, Error},
    fleet_key_file::FleetKeyFile,
    open_paths::OpenPaths,
    repair,
    sealed::{self, Seal},
    state_dir::StateDir,
};

/// The agent's database. Clones share one connection.
#[derive(Clone)]
pub struct Store {
    connection: Arc<Mutex<Connection>>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) clock: Clock,
    /// `None` for a database in memory.
    pub(crate) agent_id_file: Option<PathBuf>,
    pub(crate) fleet_key_file: Arc<FleetKeyFile>,
    /// `None` for a database in memory.
    backup: Option<Arc<Mutex<Backup>>>,
    /// `None` for a database in memory.
    pub(crate) paths: Option<Arc<OpenPaths>>,
    last_write_error: Arc<Mutex<Option<String>>>,
}

/// An opened database.
#[derive(Debug)]
pub struct Opened {
    /// The database.
    pub store: Store,
    /// If the database was damaged: one sentence about the damage and what was restored. [`Store::loss`] says what could not
    /// be restored.
    pub recovered: Option<String>,
}

/// A revision that begins. The store adds its number, its time and the hash of its stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRevision {
    /// The application.
    pub app: AppName,
    /// The commit that is applied.
    pub commit: CommitInfo,
    /// The followed branch, tag or commit.
    pub reference: String,
    /// Why the revision begins.
    pub cause: Cause,
    /// The changes against the revision before, with secrets masked.
    pub changes: Vec<String>,
    /// The number of the revision that a rollback goes back to.
    pub rollback_of: Option<u64>,
    /// The actor that asked for it, if there is one.
    pub actor: Option<Actor>,
}

/// Another agent whose objects were found on the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherAgent {
    /// It no longer lives, and its objects belong to this agent now.
    Former,
    /// It lived at the same time as this agent when it was last asked.
    Living,
}

/// Whether a user has suspended an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// The agent observes and reports, and changes nothing.
    Suspended,
    /// The agent follows Git.
    Active,
}

/// An application that was deployed before, so that the agent notices when it leaves Git.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownApplication {
    /// The application's name.
    pub app: AppName,
    /// The repository's name in the configuration.
    pub repository: String,
    /// As given to [`Store::remember_application`].
    pub spec: serde_json::Value,
}

impl KnownApplication {
    /// The folder of the application in the repository.
    pub fn path(&self) -> &str {
        self.spec.get("path").and_then(serde_json::Value::as_str).unwrap_or_default()
    }

    /// The host's name and labels when the application was applied last. `None`: an older release stored the application.
    pub fn host(&self) -> Option<HostIdentity> {
        serde_json::from_value(self.spec.get("host")?.clone()).ok()
    }
}

impl Store {
    /// Opens the database in a locked state directory, or creates one, with the key file `database.key` in the directory,
    /// which is created if it is missing. A damaged database is moved aside and replaced by a new one.
    ///
    /// # Errors
    ///
    /// If the database or the key cannot be opened, or a newer release has written the database.
    pub fn open(state: &StateDir, clock: Clock) -> Result<Opened, Error> {
        let seal = Seal::load_or_create(&state.key_file())?;
        Self::open_sealed(state, seal, &state.key_file(), clock)
    }

    /// As [`Store::open`], with a key file of 32 to 4096 bytes in another place, which must exist.
    ///
    /// # Errors
    ///
    /// As [`Store::open`], and if the key file is missing.
    pub fn open_with_key(state: &StateDir, key_file: &Path, clock: Clock) -> Result<Opened, Error> {
        Self::open_sealed(state, Seal::load(key_file)?, key_file, clock)
    }

    fn open_sealed(state: &StateDir, seal: Seal, key_file: &Path, clock: Clock) -> Result<Opened, Error> {
        let mut backup = Backup::at(state.backup());
        // Before anything of a damaged database is moved.
        backup.refuse_newer()?;
        let (connection, repaired) = repair::open(&state.database(), &backup, clock)?;
        let paths = OpenPaths::of(state).map_err(|source| Error::Directory {
            doing: "look at the database in",
            path: state.path().to_owned(),
            source,
        })?;
        let restored = restore_lost(&connection, &mut backup, clock)?;
        let store = Self {
            connection: Arc::new(Mutex::new(connection)),
            seal: Arc::new(seal),
            clock,
            agent_id_file: Some(state.path().join("agent-id")),
            fleet_key_file: Arc::new(FleetKeyFile::at(Some(state.fleet_key_file()))),
            backup: Some(Arc::new(Mutex::new(backup))),
            paths: Some(Arc::new(paths)),
            last_write_error: Arc::default(),
        };
        let other_key = store.use_key(key_file)?;
        // On a full disk they stay as they are until the next start.
        if let Err(error) = store.name_removals().map_err(BoxError::from) {
            tracing::warn!(
                error,
                "could not name the removals that an older release stored; the next start tries again"
            );
        }
        let sentences: Vec<String> = [repaired, restored, other_key].into_iter().flatten().collect();
        let recovered = (!sentences.is_empty()).then(|| sentences.join("; "));
        Ok(Opened { store, recovered })
    }

    /// Notes the key, and encrypts the rows of releases that did not encrypt. Returns a sentence if another key has sealed
    /// the database.
    fn use_key(&self, key_file: &Path) -> Result<Option<String>, Error> {
        const WHAT: &str = "the encrypted rows";
        let (is_known, is_other, unreadable) = self.read(WHAT, |connection| {
            let is_other = sealed::has_other_key(connection, &self.seal)?;
            let unreadable =
                if is_other { sealed::pins_without_stack(connection, &self.seal)? } else { Vec::new() };
            Ok((sealed::has_key_id(connection, &self.seal)?, is_other, unreadable))
        })?;
        if !unreadable.is_empty() {
            let apps: Vec<&str> = unreadable.iter().map(AppName::as_str).collect();
            self.note_loss(&format!(
                "{} is not the key that the agent used before; the pinned revisions of {} cannot be read",
                key_file.display(),
                apps.join(", ")
            ))?;
        }
        if !is_known {
            let is_empty = self.read(WHAT, sealed::is_empty)?;
            let put = |transaction: &Transaction<'_>| {
                // No file of an empty database holds a text. Otherwise a first start would write all files again.
                if is_empty {
                    sealed::put_clean(transaction)?;
                }
                sealed::put_key_id(transaction, &self.seal)
            };
            if is_empty {
                // The backup of an empty database would be written again a moment later, with the agent's id.
                self.write(WHAT, Durability::Power, put)?;
            } else {
                self.write_twice(WHAT, Durability::Power, put)?;
            }
        }
        // On a full disk the rows stay as they are until the next start.
        if let Err(error) = self.seal_text_rows() {
            tracing::warn!(
                error,
                "could not encrypt the rows that an older release stored; the next start tries again"
            );
        }
        Ok(is_other.then(|| {
            format!(
                "{} is not the key that the agent used before; revisions that the other key encrypted cannot be read",
                key_file.display()
            )
        }))
    }

    /// Encrypts what releases that did not encrypt have stored, and removes it from the free pages and the backup. A start
    /// that ends in between does it again.
    fn seal_text_rows(&self) -> Result<(), BoxError> {
        let seal = |transaction: &Transaction<'_>| sealed::seal_text_rows(transaction, &self.seal);
        let has_sealed = database::write(&mut self.connection(), Durability::Power, seal)?;
        if !has_sealed && sealed::is_clean(&self.connection())? {
            return Ok(());
        }
        database::rewrite(&self.connection())?;
        if let Some(backup) = &self.backup {
            backup.lock().unwrap_or_else(PoisonError::into_inner).rebuild(&self.connection())?;
        }
        self.write_twice("the encrypted rows", Durability::Power, sealed::put_clean)?;
        Ok(())
    }

    /// A database in memory that ends with its last clone: for tests, and for what cannot be written.
    ///
    /// # Errors
    ///
    /// If `SQLite` fails.
    pub fn in_memory(clock: Clock) -> Result<Self, Error> {
        let connection = database::in_memory()?;
        let connection = Arc::new(Mutex::new(connection));
        let seal = Seal::in_memory().map_err(|source| Error::Write { what: "a new key", source })?;
        let seal = Arc::new(seal);
        Ok(Self {
            connection,
            seal,
            clock,
            agent_id_file: None,
            fleet_key_file: Arc::new(FleetKeyFile::at(None)),
            backup: None,
            paths: None,
            last_write_error: Arc::default(),
        })
    }

    /// Why the last write failed, if it failed. The agent goes on without the database, and its status says so.
    pub fn last_write_error(&self) -> Option<String> {
        self.last_write_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The free space of the disk of the state directory in bytes. `None` for a database in memory, or if the system does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(self.paths.as_ref()?.directory()).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Why nothing can be stored: somebody has removed or replaced the state directory, or the database in it. The process still has
    /// the old files open, so that reads go on.
    pub fn replaced(&self) -> Option<String> {
        self.paths.as_ref()?.change()
    }

    /// Reads under the lock.
    pub(crate) fn read<T>(
        &self,
        what: &'static str,
        query: impl FnOnce(&Connection) -> Result<T, BoxError>,
    ) -> Result<T, Error> {
        query(&self.connection()).map_err(|source| Error::Read { what, source })
    }

    /// Writes in one transaction.
    pub(crate) fn write<T>(
        &self,
        what: &'static str,
        durability: Durability,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, BoxError>,
    ) -> Result<T, Error> {
        let mut connection = self.connection();
        let written = match self.replaced() {
            Some(why) => Err(BoxError::from(why)),
            None => database::write(&mut connection, durability, change),
        };
        let error =
            written.as_ref().err().map(|source| format!("could not write {what} to the database: {source}"));
        *self.last_write_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        written.map_err(|source| Error::Write { what, source })
    }

    /// Writes to a table that is also in the backup.
    pub(crate) fn write_twice<T>(
        &self,
        what: &'static str,
        durability: Durability,
        change: impl Fn(&Transaction<'_>) -> Result<T, BoxError>,
    ) -> Result<T, Error> {
        // Locked until both files have the change, so that they get all changes in one order.
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

    /// A sentence about the loss of the database, until a user has confirmed the loss with [`Store::clear_loss`].
    pub fn loss(&self) -> Result<Option<String>, Error> {
        self.read("the loss of state", |connection| {
            let query = "SELECT value FROM meta WHERE key = 'loss'";
            Ok(connection.prepare_cached(query)?.query_row([], |row| row.get(0)).optional()?)
        })
    }

    /// Stores that pins or suspensions may be lost. The first loss counts until it is confirmed.
    pub fn note_loss(&self, what: &str) -> Result<(), Error> {
        self.write_twice("the loss of state", Durability::Power, |transaction| {
            transaction
                .execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('loss', ?1)", params![what])?;
            Ok(())
        })
    }

    /// Removes the loss: a user has confirmed it.
    pub fn clear_loss(&self) -> Result<(), Error> {
        self.write_twice("the loss of state", Durability::Power, |transaction| {
            transaction.execute("DELETE FROM meta WHERE key = 'loss'", [])?;
            transaction
                .execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('loss_confirmed', '1')", [])?;
            Ok(())
        })
    }

    /// Whether a user has confirmed that what this database and its backup lack is lost.
    pub fn is_loss_confirmed(&self) -> Result<bool, Error> {
        self.read("the confirmed loss of state", |connection| {
            let query = "SELECT 1 FROM meta WHERE key = 'loss_confirmed'";
            Ok(connection.prepare_cached(query)?.exists([])?)
        })
    }

    /// The id of the engine's data that the agent has deployed to. `None`: it has observed none yet.
    pub fn engine_data_id(&self) -> Result<Option<String>, Error> {
        self.read("the id of the engine's data", |connection| {
            let query = "SELECT value FROM meta WHERE key = 'engine_data_id'";
            Ok(connection.prepare_cached(query)?.query_row([], |row| row.get(0)).optional()?)
        })
    }

    /// Stores the id of the engine's data that the agent deploys to.
    pub fn set_engine_data_id(&self, id: &str) -> Result<(), Error> {
        self.write_twice("the id of the engine's data", Durability::Power, |transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO meta (key, value) VALUES ('engine_data_id', ?1)",
                params![id],
            )?;
            Ok(())
        })
    }

    /// A panic under the lock has rolled its transaction back.
    pub(crate) fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Brings back what a lost or older database held, and writes an older backup again. Returns a sentence about what was restored.
fn restore_lost(connection: &Connection, backup: &mut Backup, clock: Clock) -> Result<Option<String>, Error> {
    let read = |source: rusqlite::Error| Error::Read { what: "the generation", source: source.into() };
    let own = backup::generation(connection).map_err(read)?;
    let kept = match backup.generation(clock) {
        Ok(kept) => kept,
        Err(error @ Error::Newer { .. }) => return Err(error),
        // It has all that is left.
        Err(error) if own.is_none() => return Err(error),
        Err(error) => {
            let error = BoxError::from(error);
            tracing::warn!(file = %backup.path().display(), error, "could not read the backup of the database; it is written again");
            None
        }
    };
    if kept > own {
        backup
            .restore(connection)
            .map_err(|source| Error::Write { what: "what the backup holds", source })?;
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
        return Ok(Some(sentence));
    }
    if kept == own && own.is_some() {
        backup.mark_current();
    } else if own.is_some()
        && let Err(error) = backup.rebuild(connection)
    {
        tracing::warn!(file = %backup.path().display(), error, "could not write the backup of the database");
    }
    Ok(None)
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("agent_id_file", &self.agent_id_file).finish_non_exhaustive()
    }
}

pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String, BoxError> {
    Ok(serde_json::to_string(value)?)
}

pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, BoxError> {
    Ok(serde_json::from_str(text)?)
}

/// For rows that are dispensable: another release may have written a row that this one cannot read, and the other rows
/// must stay readable.
pub(crate) fn readable<T: DeserializeOwned>(what: &'static str, text: &str) -> Option<T> {
    serde_json::from_str(text)
        .inspect_err(|error| {
            let error = without_values(error);
            tracing::warn!(what, error, "a row of the database is unreadable and is ignored");
        })
        .ok()
}

/// The place at which a row is unreadable. The text of the error itself may quote a value of the row, such as a secret.
fn without_values(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        Category::Io => "cannot be read",
        Category::Syntax => "is no JSON",
        Category::Data => "has another form",
        Category::Eof => "is cut off",
    };
    format!("it {kind} at column {}", error.column())
}

/// The integers of `SQLite` are signed. The store's own numbers count from 1 and fit.
pub(crate) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{CommitId, Event, EventKind, Pin, Record, Timestamp, Until};

    fn event(message: String) -> Event {
        let (at, app) = (Timestamp(1), AppName::from("shop"));
        let (reason, object) = ("Pulled".to_owned(), "web.1".to_owned());
        Event { sequence: 0, at, app, kind: EventKind::Normal, reason, object, message, actor: None }
    }

    #[test]
    fn full_disk_fails_writes_and_not_reads() {
        let store = Store::in_memory(Clock::System).unwrap();
        let app = AppName::from("shop");
        store.append_event(event("before".to_owned())).unwrap();
        // From here on SQLite behaves as on a full disk.
        let pages: i64 = store.connection().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        store.connection().pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();

        let refused = store.append_event(event("x".repeat(100_000))).unwrap_err();
        assert!(matches!(refused, Error::Write { what: "an event", .. }), "{refused:?}");
        let record =
            Record { settled: Some(driftless_model::StackHash("x".repeat(100_000))), ..Record::default() };
        assert!(matches!(store.save_record(&app, &record), Err(Error::Write { .. })));

        let error = store.last_write_error().unwrap();
        assert!(error.contains("a record") && error.contains("full"), "{error}");

        let events = store.events(0, 10, None).unwrap();
        let messages: Vec<_> = events.iter().map(|event| event.message.as_str()).collect();
        assert_eq!(messages, ["before"]);
        assert_eq!(store.record(&app).unwrap(), Record::default());

        // With room again, writes succeed.
        store.connection().pragma_update_and_check(None, "max_page_count", pages + 1000, |_| Ok(())).unwrap();
        store.save_record(&app, &record).unwrap();
        assert_eq!(store.last_write_error(), None);
    }

    #[test]
    fn read_only_disk_fails_writes_and_not_reads() {
        let store = Store::in_memory(Clock::System).unwrap();
        let app = AppName::from("shop");
        store.connection().pragma_update(None, "query_only", true).unwrap();
        let pin = Pin {
            revision: 1,
            commit: CommitId::default(),
            reason: String::new(),
            at: Timestamp(1),
            until: Until::Manual,
            skip: None,
            skip_stack: None,
            actor: None,
        };
        assert!(matches!(store.set_pin(&app, &pin), Err(Error::Write { what: "a pin", .. })));
        assert!(matches!(store.set_suspended(&app, Suspension::Suspended), Err(Error::Write { .. })));
        assert_eq!(store.pin(&app).unwrap(), None);
        assert!(!store.suspended(&app).unwrap());
    }

    #[test]
    fn log_of_an_unreadable_row_has_no_value_of_it() {
        let error = |text: &str| serde_json::from_str::<u32>(text).unwrap_err();
        assert!(error("\"hunter2\"").to_string().contains("hunter2"));
        assert_eq!(without_values(&error("\"hunter2\"")), "it has another form at column 9");
        assert_eq!(without_values(&error("[")), "it has another form at column 0");
        assert_eq!(without_values(&error("")), "it is cut off at column 0");
    }
}
