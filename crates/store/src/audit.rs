//! The audit: who asked for what, and what became of it. Entries are removed by age, and above a number.

use std::{fs::File, ops::RangeInclusive, time::Duration};

use rusqlite::{Transaction, params};

use crate::{
    error::{Durability, Error},
    store::{Store, from_sql, readable, to_json, to_sql},
};
use driftless_model::{AppName, AuditEntry};

/// The number of entries that are kept: about 40 MB.
const MAX_ENTRIES: i64 = 100_000;

/// The number of old entries that a new one removes. A clock that is years ahead for a moment, as before it is set after a boot,
/// removes few with that.
const MOST_EXPIRED: usize = 10;

impl Store {
    /// Stores an entry and returns it with its number. Removes entries that are older than `keep`, oldest numbers first and a
    /// few at a time. The entry survives the end of the process; [`Self::sync_audit`] brings it to the disk.
    pub fn append_audit(&self, entry: AuditEntry, keep: Duration) -> Result<AuditEntry, Error> {
        let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let times = to_sql(entry.at.0.saturating_sub(keep))..=to_sql(entry.at.0);
        self.write("an audit entry", Durability::Process, |transaction| {
            transaction.prepare_cached("INSERT INTO audit (at, app, entry) VALUES (?1, ?2, ?3)")?.execute(
                params![to_sql(entry.at.0), entry.app.as_ref().map(AppName::as_str), to_json(&entry)?],
            )?;
            let sequence = transaction.last_insert_rowid();
            let expired = last_expired(transaction, &times)?.unwrap_or(0);
            transaction
                .prepare_cached("DELETE FROM audit WHERE sequence <= ?1")?
                .execute([expired.max(sequence.saturating_sub(MAX_ENTRIES))])?;
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

/// The last entry that may be removed: all before the first one of these times are older by some clock.
fn last_expired(
    transaction: &Transaction<'_>,
    times: &RangeInclusive<i64>,
) -> Result<Option<i64>, rusqlite::Error> {
    let mut entries = transaction.prepare_cached("SELECT sequence, at FROM audit ORDER BY sequence")?;
    let mut rows = entries.query([])?;
    let (mut last, mut count) = (None, 0);
    while let Some(row) = rows.next()?
        && count < MOST_EXPIRED
    {
        let at: i64 = row.get(1)?;
        if times.contains(&at) {
            break;
        }
        // A later one is of a clock that was ahead, or this clock is behind.
        if at < *times.start() {
            last = Some(row.get(0)?);
            count += 1;
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use driftless_clock::Clock;
    use driftless_model::{Actor, ActorKind, AuditResult, Channel, Timestamp};

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    /// Stores an entry by a clock that is so many days after 1970.
    fn append(store: &Store, day: u32, keep: Duration) {
        let entry = AuditEntry {
            sequence: 0,
            at: Timestamp::default().after(DAY * day),
            actor: Actor::new(ActorKind::User, "ada"),
            channel: Channel::Api,
            from: "192.0.2.1".to_owned(),
            action: "sync".to_owned(),
            app: None,
            detail: String::new(),
            result: AuditResult::Accepted,
            message: String::new(),
        };
        store.append_audit(entry, keep).unwrap();
    }

    fn count(store: &Store) -> usize {
        store.audit(None, 1000, None).unwrap().len()
    }

    #[test]
    fn old_entries_leave_the_audit() {
        let store = Store::in_memory(Clock::System).unwrap();
        for day in 0..50 {
            append(&store, day, DAY * 10);
        }
        assert_eq!(count(&store), 11);
        append(&store, 50, DAY);
        assert_eq!(count(&store), 2);
    }

    #[test]
    fn wrong_clock_removes_few_entries_of_the_audit() {
        let (store, year) = (Store::in_memory(Clock::System).unwrap(), DAY * 365);
        for _ in 0..100 {
            append(&store, 20_000, year);
        }
        for _ in 0..2 {
            append(&store, 46_000, year);
        }
        assert_eq!(count(&store), 82);
        append(&store, 20_001, year);
        append(&store, 0, year);
        append(&store, 20_002, year);
        assert_eq!(count(&store), 85, "also that of the clock that was behind");
        for _ in 0..20 {
            append(&store, 20_400, year);
        }
        assert_eq!(count(&store), 20, "all of the year before have left");
    }
}
