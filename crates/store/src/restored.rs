//! Restored databases: an application may have applied more than a restored backup knows, until it has compared its newest commit with
//! its containers.

use std::path::Path;

use driftless_model::AppName;
use rusqlite::{Connection, OpenFlags, params};

use crate::{
    error::{Durability, Error},
    store::Store,
};

/// The beginning of the keys in the table `meta`.
const KEY: &str = "restored:";

const WHAT: &str = "the restoration of a backup";

/// The id of the engine's data in a backup without one, which is of an older release. No engine has it.
const UNKNOWN_ENGINE_DATA: &str = "unknown";

/// Notes in a database that it is restored, for each application with revisions.
pub(crate) fn mark_restored(database: &Path) -> Result<(), Error> {
    let fail = |source: rusqlite::Error| Error::Write { what: WHAT, source: source.into() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(fail)?;
    let statement =
        "INSERT OR IGNORE INTO meta (key, value) SELECT ?1 || app, '1' FROM revisions GROUP BY app";
    connection.execute(statement, params![KEY]).map_err(fail)?;
    // Without an id, another engine would count as the one of before. Containers of the agent prove that it is the same.
    let statement = "INSERT OR IGNORE INTO meta (key, value)
                     SELECT 'engine_data_id', ?1 WHERE EXISTS (SELECT 1 FROM revisions)";
    connection.execute(statement, params![UNKNOWN_ENGINE_DATA]).map_err(fail)?;
    connection.close().map_err(|(_, source)| fail(source))
}

impl Store {
    /// Whether the database was restored from a backup, until [`Store::end_restoration`] for this application.
    pub fn is_restored(&self, app: &AppName) -> Result<bool, Error> {
        self.read(WHAT, |connection| {
            let query = "SELECT 1 FROM meta WHERE key = ?1 || ?2";
            Ok(connection.prepare_cached(query)?.exists(params![KEY, app.as_str()])?)
        })
    }

    /// Notes that an application has compared its newest commit with its containers.
    pub fn end_restoration(&self, app: &AppName) -> Result<(), Error> {
        self.write_twice(WHAT, Durability::Power, |transaction| {
            transaction.execute("DELETE FROM meta WHERE key = ?1 || ?2", params![KEY, app.as_str()])?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use driftless_clock::Clock;

    use super::*;
    use crate::state_dir::StateDir;

    #[test]
    fn backup_without_the_engine_has_deployed_to_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::lock(folder.path()).unwrap();
        drop(Store::open(&state, Clock::System).unwrap());
        let connection = Connection::open(state.database()).unwrap();
        let marked = || -> Option<String> {
            mark_restored(&state.database()).unwrap();
            let query = "SELECT value FROM meta WHERE key = 'engine_data_id'";
            let mut statement = connection.prepare(query).unwrap();
            let mut rows = statement.query([]).unwrap();
            rows.next().unwrap().map(|row| row.get(0).unwrap())
        };
        assert_eq!(marked(), None, "nothing was deployed");
        let revision =
            "INSERT INTO revisions (app, number, outcome, stack, revision) VALUES ('shop', 1, '', '', '')";
        connection.execute(revision, []).unwrap();
        assert_eq!(marked().as_deref(), Some(UNKNOWN_ENGINE_DATA));
        let known = "UPDATE meta SET value = 'one' WHERE key = 'engine_data_id'";
        connection.execute(known, []).unwrap();
        assert_eq!(marked().as_deref(), Some("one"));
    }
}
