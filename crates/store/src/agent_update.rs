//! Notes of an update of the agent's own container, and the copy of the database that the agent goes back to.
//!
//! A new version may migrate the database to a schema that the old one refuses. So the database is copied before the new
//! version starts, and put back if the old one has to go on and could not read the new schema. The helper container
//! does this while no agent runs: it holds the lock of the state directory.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use driftless_model::{ContainerId, REVISION_ELSEWHERE, Timestamp};
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};

use crate::{
    archive::{copy_database, failed},
    error::{BoxError, Error},
    salvage::copy as copy_table,
    state_dir::{BACKUP, BACKUP_JOURNAL, StateDir},
};

/// The longest note that is read, in bytes.
const LONGEST: u64 = 64 << 10;

const FOLDER: &str = "update";
const DATABASE: &str = "driftless.db";

/// The notes of an update, in a folder of the state directory.
#[derive(Clone, Debug)]
pub struct AgentUpdateNotes {
    state: PathBuf,
}

/// The end of an update of the agent's own container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedAgentUpdate {
    /// The container that was to take the place of the one before.
    pub new: ContainerId,
    pub app: String,
    /// The name of the agent's container.
    pub container: String,
    /// The hash of the specification of the new container.
    pub spec: String,
    pub image: String,
    pub at: Timestamp,
    /// Why the old container runs again; `None`: the new one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The file that names the new container, until the update has ended.
const PENDING: &str = "pending";

/// The file that keeps these bytes, until a note needs them.
const RESERVE: &str = "reserved";

/// Bytes for the note of how an update ended, on a disk that the copy of the database fills.
const RESERVED: usize = 16 << 10;

/// The longest reason of a failure in the note of how an update ended, in characters. The note must fit into [`RESERVED`], where JSON has
/// up to six bytes for one.
const LONGEST_REASON: usize = 2000;

/// The longest reason why the new agent is not ready, in characters. There is one in it for each repository.
const LONGEST_UNREADY: usize = 500;

impl AgentUpdateNotes {
    /// The notes in a state directory.
    pub fn of(state: &Path) -> Self {
        Self { state: state.to_owned() }
    }

    /// Copies the database, and notes which container has to report that it is ready. No agent may run.
    ///
    /// # Errors
    ///
    /// If an agent uses the directory, or writing fails.
    pub fn begin(&self, new: &ContainerId) -> Result<(), Error> {
        let _lock = StateDir::lock(&self.state)?;
        self.remove();
        // After a failure there is room again for the note of how the update ended: without it, the update is tried for ever.
        self.copy_state(new).inspect_err(|_| self.remove())
    }

    fn copy_state(&self, new: &ContainerId) -> Result<(), Error> {
        let folder = self.folder();
        fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
        self.write(RESERVE, &[0; RESERVED])?;
        for name in [DATABASE, BACKUP] {
            let from = self.state.join(name);
            if from.is_file() {
                copy_database(&from, &folder.join(name))?;
            }
        }
        self.write(PENDING, new.as_str().as_bytes())
    }

    /// The container that has to report that it is ready.
    pub fn pending(&self) -> Option<ContainerId> {
        self.read(PENDING).map(ContainerId)
    }

    /// Notes that the agent in this container is ready.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn report_ready(&self, own: &ContainerId) -> Result<(), Error> {
        let _ = fs::remove_file(self.folder().join(RESERVE));
        self.write("ready", own.as_str().as_bytes())
    }

    /// The container whose agent was ready.
    pub fn ready(&self) -> Option<ContainerId> {
        self.read("ready").map(ContainerId)
    }

    /// Notes why the agent in the new container is not ready.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn note_unready(&self, reason: &str) -> Result<(), Error> {
        self.write("unready", beginning(reason, LONGEST_UNREADY).as_bytes())
    }

    /// Why the agent in the new container was not ready when it last said so.
    pub fn unready(&self) -> Option<String> {
        self.read("unready")
    }

    /// Notes the end of the update, with the beginning of a long reason.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn end(&self, ended: &EndedAgentUpdate) -> Result<(), Error> {
        let folder = self.folder();
        fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
        let _ = fs::remove_file(folder.join(RESERVE));
        let failure = ended.failure.as_ref().map(|reason| beginning(reason, LONGEST_REASON));
        let ended = EndedAgentUpdate { failure, ..ended.clone() };
        let text = serde_json::to_vec(&ended).map_err(io::Error::from);
        self.write("outcome.json", &text.map_err(failed("write", &folder))?)
    }

    /// The end of the update, if it has come.
    pub fn ended(&self) -> Option<EndedAgentUpdate> {
        serde_json::from_str(&self.read("outcome.json")?).ok()
    }

    /// The end of the update, once an agent may report it and remove the notes. Until the agent before runs again, the helper needs
    /// the notes of a failure and the copy of the database, and the new agent may still run.
    pub fn carried_out(&self) -> Option<EndedAgentUpdate> {
        self.ended().filter(|ended| ended.failure.is_none() || self.pending().is_none())
    }

    /// Notes that the agent before runs again after a failure. That takes no room on a full disk.
    ///
    /// # Errors
    ///
    /// If the note cannot be changed.
    pub fn note_carried_out(&self) -> Result<(), Error> {
        remove(&self.folder().join(PENDING))
    }

    /// Puts the copy of the database back if a newer version has changed the schema since. No agent may run. Returns whether
    /// it was put back. Pins, suspensions and the numbers of revisions stay as they are; if they cannot be read, that is noted as a
    /// loss ([`crate::Store::loss`]).
    ///
    /// # Errors
    ///
    /// If an agent uses the directory, or writing fails.
    pub fn go_back(&self) -> Result<bool, Error> {
        let _lock = StateDir::lock(&self.state)?;
        let folder = self.folder();
        let (copy, database) = (folder.join(DATABASE), self.state.join(DATABASE));
        if !copy.is_file() || schema(&copy)? == schema(&database)? {
            return Ok(false);
        }
        keep_decisions(&database, &copy)?;
        // The log belongs to the database of the newer version.
        for name in ["driftless.db-wal", "driftless.db-shm", BACKUP, BACKUP_JOURNAL] {
            remove(&self.state.join(name))?;
        }
        // The next start makes another backup, with the decisions.
        remove(&folder.join(BACKUP))?;
        fs::rename(&copy, &database).map_err(failed("restore", &database))?;
        Ok(true)
    }

    /// Removes all notes and the copy.
    pub fn remove(&self) {
        let folder = self.folder();
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %folder.display(), "could not remove the notes of an update");
        }
    }

    fn folder(&self) -> PathBuf {
        self.state.join(FOLDER)
    }

    /// A reader never sees half of a note.
    fn write(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let (part, path) = (self.folder().join(format!("{name}.part")), self.folder().join(name));
        let written = fs::write(&part, text).and_then(|()| fs::File::open(&part)?.sync_all());
        written.and_then(|()| fs::rename(&part, &path)).map_err(failed("write", &path))
    }

    fn read(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        let file = fs::File::open(self.folder().join(name)).ok()?;
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

/// Decisions of users since the copy was made hold in the older version, too, and no number of a revision is used twice.
fn keep_decisions(newer: &Path, copy: &Path) -> Result<(), Error> {
    let write = |error: rusqlite::Error| Error::Write {
        what: "the pins and suspensions of the newer database",
        source: error.into(),
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut into = Connection::open_with_flags(copy, flags).map_err(write)?;
    if let Err(error) = copy_decisions(newer, &mut into) {
        tracing::warn!(%error, "could not take over the pins and suspensions of the newer database");
        let loss = format!(
            "the newer version of an update that failed has changed the database, and pins and suspensions made since the update \
             could not be read: {error}"
        );
        into.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('loss', ?1)", [loss]).map_err(write)?;
    }
    into.close().map_err(|(_, error)| write(error))
}

fn copy_decisions(newer: &Path, into: &mut Connection) -> Result<(), BoxError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from = Connection::open_with_flags(newer, flags)?;
    let transaction = into.transaction()?;
    for table in ["numbers", "pins", "suspensions"] {
        transaction.execute(&format!("DELETE FROM {table}"), [])?;
        if !copy_table(&from, &transaction, table, None)? {
            return Err(format!("the table `{table}` cannot be read as a whole").into());
        }
    }
    // The agent must not go on from the pin to the newest commit.
    let query = "SELECT count(*) FROM pins WHERE pin ->> '$.revision' <> ?1
        AND NOT EXISTS (SELECT 1 FROM revisions WHERE app = pins.app AND number = pin ->> '$.revision')";
    let elsewhere = i64::try_from(REVISION_ELSEWHERE).unwrap_or_default();
    let unknown: i64 = transaction.query_row(query, [elsewhere], |row| row.get(0))?;
    if unknown > 0 {
        let loss = "a pin names a revision that only the newer version of a failed update has";
        transaction.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('loss', ?1)", [loss])?;
    }
    Ok(transaction.commit()?)
}

/// The first characters of a text.
fn beginning(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The version of the schema of a database; `None` if there is no database.
fn schema(path: &Path) -> Result<Option<i64>, Error> {
    if !path.is_file() {
        return Ok(None);
    }
    let read =
        |error: rusqlite::Error| Error::Read { what: "the version of the schema", source: error.into() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(read)?;
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).map(Some).map_err(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use driftless_clock::Clock;

    fn ended(failure: Option<&str>) -> EndedAgentUpdate {
        EndedAgentUpdate {
            new: "new".into(),
            app: "driftless".to_owned(),
            container: "driftless-agent-1".to_owned(),
            spec: "0123".to_owned(),
            image: "driftless:2".to_owned(),
            at: Timestamp(7),
            failure: failure.map(str::to_owned),
        }
    }

    fn id(folder: &Path) -> String {
        let state = StateDir::lock(folder).unwrap();
        Store::open(&state, Clock::System).unwrap().store.agent_id().unwrap().to_string()
    }

    #[test]
    fn database_of_a_newer_schema_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let before = id(folder.path());
        let notes = AgentUpdateNotes::of(folder.path());
        notes.begin(&"new".into()).unwrap();
        assert_eq!((notes.pending(), notes.ready()), (Some("new".into()), None));
        assert!(!notes.go_back().unwrap(), "the schema is the same, so newer rows are kept");
        let change = |statement: &str| {
            let newer = Connection::open(folder.path().join(DATABASE)).unwrap();
            newer.execute(statement, []).unwrap();
            newer.pragma_update(None, "user_version", 4711).unwrap();
        };
        // A person stops an application while the newer version runs.
        change("INSERT INTO suspensions VALUES ('shop', 7)");
        let state = StateDir::lock(folder.path()).unwrap();
        assert!(matches!(Store::open(&state, Clock::System), Err(Error::Newer { .. })));
        drop(state);
        assert!(notes.go_back().unwrap());
        let found = |folder: &Path| {
            let state = StateDir::lock(folder).unwrap();
            let store = Store::open(&state, Clock::System).unwrap().store;
            (store.suspended(&"shop".into()).unwrap(), store.loss().unwrap())
        };
        assert_eq!(found(folder.path()), (true, None));
        assert_eq!(id(folder.path()), before);
        // A pin on a revision of the newer version.
        notes.begin(&"new".into()).unwrap();
        change(r#"INSERT INTO pins VALUES ('shop', '{"revision": 8}')"#);
        assert!(notes.go_back().unwrap());
        let (_, loss) = found(folder.path());
        assert!(loss.is_some_and(|it| it.contains("a pin names a revision")));
        let state = StateDir::lock(folder.path()).unwrap();
        Store::open(&state, Clock::System).unwrap().store.clear_loss().unwrap();
        drop(state);
        // A table that cannot be read may have held something.
        notes.begin(&"new".into()).unwrap();
        change("DROP TABLE suspensions");
        assert!(notes.go_back().unwrap());
        let (is_suspended, loss) = found(folder.path());
        assert!(is_suspended && loss.is_some_and(|it| it.contains("the table `suspensions` cannot be read")));
    }

    #[test]
    fn failed_copy_of_the_database_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AgentUpdateNotes::of(folder.path());
        fs::write(folder.path().join(DATABASE), "no database").unwrap();
        assert!(notes.begin(&ContainerId("new".to_owned())).is_err());
        assert!(!notes.folder().exists());
    }

    #[test]
    fn notes_of_an_update_are_read_back_until_they_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AgentUpdateNotes::of(folder.path());
        assert_eq!((notes.pending(), notes.ended()), (None, None));
        notes.begin(&"new".into()).unwrap();
        notes.report_ready(&"new".into()).unwrap();
        assert_eq!(notes.ready(), Some("new".into()));
        let ended = ended(Some("it exited"));
        notes.end(&ended).unwrap();
        assert_eq!(notes.ended(), Some(ended));
        notes.begin(&"next".into()).unwrap();
        assert_eq!((notes.ready(), notes.ended()), (None, None), "notes of an earlier update are gone");
        notes.remove();
        assert_eq!(notes.pending(), None);
    }

    #[test]
    fn long_reason_fits_into_the_reserved_room() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AgentUpdateNotes::of(folder.path());
        notes.begin(&"new".into()).unwrap();
        for letter in ["a", "\u{1b}", "\u{1f433}"] {
            let reason = letter.repeat(1 << 20);
            notes.note_unready(&reason).unwrap();
            assert_eq!(notes.unready(), Some(letter.repeat(LONGEST_UNREADY)));
            notes.end(&ended(Some(&reason))).unwrap();
            let failure = notes.ended().and_then(|ended| ended.failure);
            assert_eq!(failure, Some(letter.repeat(LONGEST_REASON)));
            let size = fs::metadata(notes.folder().join("outcome.json")).unwrap().len();
            assert!(size <= RESERVED as u64, "{size}");
        }
    }

    #[test]
    fn failure_is_reported_only_after_the_old_agent_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AgentUpdateNotes::of(folder.path());
        notes.begin(&"new".into()).unwrap();
        assert_eq!(notes.carried_out(), None);
        let failed = ended(Some("it was not ready"));
        notes.end(&failed).unwrap();
        assert_eq!(notes.carried_out(), None, "the new agent would remove the copy of the database");
        notes.note_carried_out().unwrap();
        notes.note_carried_out().unwrap();
        assert_eq!(notes.carried_out(), Some(failed));
        // The new agent reports a success, and the helper removes the old container.
        notes.begin(&"next".into()).unwrap();
        notes.end(&ended(None)).unwrap();
        assert_eq!(notes.carried_out(), Some(ended(None)));
    }
}
