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

/// Notes in a database that it is restored, for each application with revisions.
pub(crate) fn mark_restored(database: &Path) -> Result<(), Error> {
    let fail = |source: rusqlite::Error| Error::Write { what: WHAT, source: source.into() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(fail)?;
    let statement =
        "INSERT OR IGNORE INTO meta (key, value) SELECT ?1 || app, '1' FROM revisions GROUP BY app";
    connection.execute(statement, params![KEY]).map_err(fail)?;
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
