//! The last report of each host of the fleet, on a collector. Every host repeats its report, so a lost table is complete
//! again after a few seconds, and it is in no backup.

use rusqlite::{OptionalExtension, Row, params};

use driftless_model::Timestamp;

use crate::{
    error::{Durability, Error},
    store::{Store, from_sql, to_sql},
};

const WHAT: &str = "the hosts of the fleet";

/// The columns of [`stored_host`], in its order.
const COLUMNS: &str =
    "name, instance, digest, received, report, conflict_instance, conflict_from, conflict_at";

/// The last report of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHost {
    /// The name of the host.
    pub name: String,
    /// The id of the machine.
    pub instance: String,
    /// Identifies the report, so that a heartbeat need not repeat it.
    pub digest: String,
    /// When the host was last heard.
    pub received: Timestamp,
    /// The report, in JSON.
    pub report: String,
    /// The machine that was refused last because it has the same name.
    pub conflict: Option<StoredConflict>,
}

/// A machine that was refused because another one has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredConflict {
    /// The id of the machine.
    pub instance: String,
    /// Its address.
    pub from: String,
    /// When it was last refused.
    pub at: Timestamp,
}

impl Store {
    /// All hosts by name.
    pub fn fleet_hosts(&self) -> Result<Vec<StoredHost>, Error> {
        self.read(WHAT, |connection| {
            let query = format!("SELECT {COLUMNS} FROM fleet_hosts ORDER BY name");
            let mut statement = connection.prepare_cached(&query)?;
            Ok(statement.query_map([], stored_host)?.collect::<Result<_, _>>()?)
        })
    }

    /// One host.
    pub fn fleet_host(&self, name: &str) -> Result<Option<StoredHost>, Error> {
        self.read(WHAT, |connection| {
            let query = format!("SELECT {COLUMNS} FROM fleet_hosts WHERE name = ?1");
            Ok(connection.prepare_cached(&query)?.query_row(params![name], stored_host).optional()?)
        })
    }

    /// Stores the report of a host. False: it would be more than `most` hosts.
    pub fn set_fleet_host(&self, host: &StoredHost, most: usize) -> Result<bool, Error> {
        let StoredHost { name, instance, digest, received, report, conflict } = host;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.write(WHAT, Durability::Process, |transaction| {
            let others: i64 = transaction
                .prepare_cached("SELECT COUNT(*) FROM fleet_hosts WHERE name <> ?1")?
                .query_row(params![name], |row| row.get(0))?;
            if others >= most {
                return Ok(false);
            }
            let conflict = conflict.as_ref();
            transaction
                .prepare_cached(&format!(
                    "INSERT OR REPLACE INTO fleet_hosts ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
                ))?
                .execute(params![
                    name,
                    instance,
                    digest,
                    to_sql(received.0),
                    report,
                    conflict.map(|conflict| &conflict.instance),
                    conflict.map(|conflict| &conflict.from),
                    conflict.map(|conflict| to_sql(conflict.at.0)),
                ])?;
            Ok(true)
        })
    }

    /// Stores that a machine was heard and has nothing new. False: its last report is not this one.
    pub fn hear_fleet_host(
        &self,
        name: &str,
        instance: &str,
        digest: &str,
        at: Timestamp,
    ) -> Result<bool, Error> {
        self.write(WHAT, Durability::Process, |transaction| {
            let heard = transaction
                .prepare_cached(
                    "UPDATE fleet_hosts SET received = ?4 WHERE name = ?1 AND instance = ?2 AND digest = ?3",
                )?
                .execute(params![name, instance, digest, to_sql(at.0)])?;
            Ok(heard > 0)
        })
    }

    /// Stores that a machine was refused because another one has its name.
    pub fn set_fleet_conflict(&self, name: &str, conflict: &StoredConflict) -> Result<(), Error> {
        let StoredConflict { instance, from, at } = conflict;
        self.write(WHAT, Durability::Process, |transaction| {
            transaction
                .prepare_cached(
                    "UPDATE fleet_hosts SET conflict_instance = ?2, conflict_from = ?3, conflict_at = ?4 \
                     WHERE name = ?1",
                )?
                .execute(params![name, instance, from, to_sql(at.0)])?;
            Ok(())
        })
    }

    /// Removes a host. False: there is none of this name.
    pub fn remove_fleet_host(&self, name: &str) -> Result<bool, Error> {
        self.write(WHAT, Durability::Power, |transaction| {
            Ok(transaction.execute("DELETE FROM fleet_hosts WHERE name = ?1", params![name])? > 0)
        })
    }
}

fn stored_host(row: &Row<'_>) -> Result<StoredHost, rusqlite::Error> {
    let instance: Option<String> = row.get(5)?;
    let (from, at): (Option<String>, Option<i64>) = (row.get(6)?, row.get(7)?);
    let conflict = instance.map(|instance| StoredConflict {
        instance,
        from: from.unwrap_or_default(),
        at: Timestamp(from_sql(at.unwrap_or_default())),
    });
    Ok(StoredHost {
        name: row.get(0)?,
        instance: row.get(1)?,
        digest: row.get(2)?,
        received: Timestamp(from_sql(row.get(3)?)),
        report: row.get(4)?,
        conflict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_clock::Clock;

    fn host(name: &str, instance: &str, digest: &str) -> StoredHost {
        StoredHost {
            name: name.to_owned(),
            instance: instance.to_owned(),
            digest: digest.to_owned(),
            received: Timestamp(1),
            report: "{}".to_owned(),
            conflict: None,
        }
    }

    #[test]
    fn last_report_of_each_host_is_kept() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(store.set_fleet_host(&host("web", "a", "1"), 2).unwrap());
        assert!(store.set_fleet_host(&host("nas", "b", "1"), 2).unwrap());
        assert!(!store.set_fleet_host(&host("third", "c", "1"), 2).unwrap(), "the number is bounded");
        assert!(store.set_fleet_host(&host("web", "a", "2"), 2).unwrap());
        assert_eq!(store.fleet_hosts().unwrap(), [host("nas", "b", "1"), host("web", "a", "2")]);
        assert!(store.remove_fleet_host("web").unwrap());
        assert!(!store.remove_fleet_host("web").unwrap());
        assert_eq!(store.fleet_host("web").unwrap(), None);
    }

    #[test]
    fn heartbeat_counts_only_for_the_stored_report() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(!store.hear_fleet_host("web", "a", "1", Timestamp(5)).unwrap());
        store.set_fleet_host(&host("web", "a", "1"), 9).unwrap();
        assert!(!store.hear_fleet_host("web", "b", "1", Timestamp(5)).unwrap(), "another machine");
        assert!(!store.hear_fleet_host("web", "a", "2", Timestamp(5)).unwrap(), "another report");
        assert!(store.hear_fleet_host("web", "a", "1", Timestamp(5)).unwrap());
        let conflict = StoredConflict { instance: "b".to_owned(), from: "::1".to_owned(), at: Timestamp(6) };
        store.set_fleet_conflict("web", &conflict).unwrap();
        let expected =
            StoredHost { received: Timestamp(5), conflict: Some(conflict), ..host("web", "a", "1") };
        assert_eq!(store.fleet_host("web").unwrap(), Some(expected));
    }
}
