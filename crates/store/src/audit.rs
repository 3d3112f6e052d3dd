//! The audit: who asked for what, and what became of it. Entries are removed by age, and above a number.

use std::{fs::File, time::Duration};

use rusqlite::params;

use crate::{
    error::{Durability, Error},
    store::{Store, from_sql, readable, to_json, to_sql},
};
use driftless_model::{AppName, AuditEntry};

/// The number of entries that are kept: about 40 MB.
const MAX_ENTRIES: i64 = 100_000;

impl Store {
    /// Stores an entry and returns it with its number. Removes entries that are older than `keep`. The entry survives the end
    /// of the process; [`Self::sync_audit`] brings it to the disk.
    pub fn append_audit(&self, entry: AuditEntry, keep: Duration) -> Result<AuditEntry, Error> {
        let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let oldest = to_sql(self.clock.now().0.saturating_sub(keep));
        self.write("an audit entry", Durability::Process, |transaction| {
            transaction.prepare_cached("INSERT INTO audit (at, app, entry) VALUES (?1, ?2, ?3)")?.execute(
                params![to_sql(entry.at.0), entry.app.as_ref().map(AppName::as_str), to_json(&entry)?],
            )?;
            let sequence = transaction.last_insert_rowid();
            transaction
                .prepare_cached("DELETE FROM audit WHERE at < ?1 OR sequence <= ?2")?
                .execute(params![oldest, sequence.saturating_sub(MAX_ENTRIES)])?;
            Ok(AuditEntry { sequence: from_sql(sequence), ..entry })
        })
    }

    /// Brings all entries to the disk, so that they survive a power failure. Others can write meanwhile.
    pub fn sync_audit(&self) -> Result<(), Error> {
        let database = self.connection().path().map(str::to_owned).unwrap_or_default();
        if database.is_empty() {
            return Ok(());
        }
        // `SQLite` keeps its locks on the other two files: to close a handle of one of those would release them.
        let log = File::open(format!("{database}-wal")).and_then(|log| log.sync_data());
        log.map_err(|source| Error::Write { what: "the audit", source: source.into() })
    }

    /// The newest entries before number `before`, newest first.
    pub fn audit(
        &self,
        before: Option<u64>,
        limit: usize,
        app: Option<&AppName>,
    ) -> Result<Vec<AuditEntry>, Error> {
        let of_app = if app.is_some() { "app = ?3" } else { "?3 IS NULL" };
        let query = format!(
            "SELECT sequence, entry FROM audit WHERE sequence < ?1 AND {of_app} ORDER BY sequence DESC LIMIT ?2"
        );
        let (before, limit) = (before.map_or(i64::MAX, to_sql), i64::try_from(limit).unwrap_or(i64::MAX));
        self.read("the audit", |connection| {
            let mut statement = connection.prepare_cached(&query)?;
            let mut rows = statement.query(params![before, limit, app.map(AppName::as_str)])?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next()? {
                let text: String = row.get(1)?;
                if let Some(entry) = readable::<AuditEntry>("an audit entry", &text) {
                    entries.push(AuditEntry { sequence: from_sql(row.get(0)?), ..entry });
                }
            }
            Ok(entries)
        })
    }
}
