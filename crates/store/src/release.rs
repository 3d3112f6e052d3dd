//! The release of everything: the agent manages nothing until a user asks it to manage again.

use rusqlite::{OptionalExtension, params};

use crate::{
    error::{Durability, Error},
    store::{Store, from_sql, to_sql},
};
use driftless_model::Timestamp;

/// Tables with what an agent manages, and how.
const MANAGED: [&str; 4] = ["applications", "records", "pins", "suspensions"];

impl Store {
    /// When a user released everything, until [`Store::end_release`].
    pub fn released(&self) -> Result<Option<Timestamp>, Error> {
        self.read("the release", |connection| {
            let query = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'released'";
            let at = connection.prepare_cached(query)?.query_row([], |row| row.get(0)).optional()?;
            Ok(at.map(|at| Timestamp(from_sql(at))))
        })
    }

    /// Notes that the agent shall manage nothing. The first release counts until it ends.
    pub fn note_release(&self) -> Result<(), Error> {
        let now = to_sql(self.clock.now().0).to_string();
        self.write_twice("the release", Durability::Power, |transaction| {
            transaction
                .execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('released', ?1)", params![now])?;
            Ok(())
        })
    }

    /// Forgets every application, with its record, pin and suspension. Revisions and events stay.
    pub fn forget_everything(&self) -> Result<(), Error> {
        self.write_twice("the release", Durability::Power, |transaction| {
            for table in MANAGED {
                transaction.execute(&format!("DELETE FROM {table}"), [])?;
            }
            Ok(())
        })
    }

    /// Ends the release: the agent manages again what Git says.
    pub fn end_release(&self) -> Result<(), Error> {
        self.write_twice("the release", Durability::Power, |transaction| {
            transaction.execute("DELETE FROM meta WHERE key = 'released'", [])?;
            Ok(())
        })
    }
}
