//! The last report of each host of the fleet, on a collector. Every host repeats its report, so a lost table is complete
//! again after a few seconds, and it is in no backup.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, Transaction, params};

use driftless_model::Timestamp;

use crate::{
    error::{Durability, Error},
    store::{Store, from_sql, to_sql},
};

/// The most entries of the history; the oldest are removed.
const HISTORY_MOST: u64 = 50_000;

const WHAT: &str = "the hosts of the fleet";

/// The columns of [`fleet_row`], in its order.
const COLUMNS: &str =
    "name, instance, digest, received, conflict_instance, conflict_from, conflict_at, conflict_reason";

/// One host with its report, as [`stored_host`] reads it.
const WITH_REPORT: &str =
    "SELECT name, instance, digest, received, conflict_instance, conflict_from, conflict_at, conflict_reason, report
    FROM fleet_hosts JOIN fleet_reports USING (name)";

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

/// A host without its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRow {
    /// The name of the host.
    pub name: String,
    /// The id of the machine.
    pub instance: String,
    /// Identifies the report.
    pub digest: String,
    /// When the host was last heard.
    pub received: Timestamp,
    /// The machine that was refused last because it has the same name.
    pub conflict: Option<StoredConflict>,
}

/// A machine that was refused because another one has its name, or because of the way in which it uses the key of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredConflict {
    /// The id of the machine.
    pub instance: String,
    /// Its address.
    pub from: String,
    /// A sentence for the admin of the collector, if it has the key of the host. Empty: it has not.
    pub reason: String,
    /// When it was last refused.
    pub at: Timestamp,
}

/// An entry of the history of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFleetEntry {
    /// The name of the host.
    pub host: String,
    /// The name of the application.
    pub app: String,
    /// The entry, in JSON.
    pub entry: String,
}

/// The bounds of all reports together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetBounds {
    /// The most hosts.
    pub hosts: u64,
    /// The most bytes of JSON of all reports together.
    pub bytes: u64,
}

/// A report that does not fit the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetFull {
    /// There are this many hosts already.
    Hosts(u64),
    /// All reports together would have more than this number of bytes.
    Bytes(u64),
}

/// The decision about a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetChange {
    /// It becomes the row of the host.
    Report(StoredHost),
    /// It is refused: another machine has the name.
    Refusal(StoredConflict),
}

impl Store {
    /// All hosts by name.
    pub fn fleet_hosts(&self) -> Result<Vec<StoredHost>, Error> {
        self.read(WHAT, |connection| {
            let mut statement = connection.prepare_cached(&format!("{WITH_REPORT} ORDER BY name"))?;
            Ok(statement.query_map([], stored_host)?.collect::<Result<_, _>>()?)
        })
    }

    /// All hosts by name, without their reports, which are most of the data.
    pub fn fleet_rows(&self) -> Result<Vec<FleetRow>, Error> {
        self.read(WHAT, |connection| {
            let query = format!("SELECT {COLUMNS} FROM fleet_hosts ORDER BY name");
            let mut statement = connection.prepare_cached(&query)?;
            Ok(statement.query_map([], fleet_row)?.collect::<Result<_, _>>()?)
        })
    }

    /// One host.
    pub fn fleet_host(&self, name: &str) -> Result<Option<StoredHost>, Error> {
        self.read(WHAT, |connection| {
            let query = format!("{WITH_REPORT} WHERE name = ?1");
            Ok(connection.prepare_cached(&query)?.query_row(params![name], stored_host).optional()?)
        })
    }

    /// Decides about a report of the host `name` from its row, and stores the decision in the same transaction, so that
    /// of two machines that report at the same time one is first. Nothing is stored that exceeds the bounds.
    pub fn change_fleet_host<T>(
        &self,
        name: &str,
        bounds: FleetBounds,
        decide: impl FnOnce(Option<StoredHost>) -> (FleetChange, Vec<StoredFleetEntry>, T),
    ) -> Result<Result<T, FleetFull>, Error> {
        self.write(WHAT, Durability::Process, |transaction| {
            let query = format!("{WITH_REPORT} WHERE name = ?1");
            let known =
                transaction.prepare_cached(&query)?.query_row(params![name], stored_host).optional()?;
            let (change, news, answer) = decide(known);
            let full = match change {
                FleetChange::Report(host) => {
                    set_report(transaction, &StoredHost { name: name.to_owned(), ..host }, bounds)?
                }
                FleetChange::Refusal(conflict) => {
                    set_conflict(transaction, name, &conflict)?;
                    None
                }
            };
            if full.is_none() {
                append_history(transaction, &news)?;
            }
            Ok(full.map_or(Ok(answer), Err))
        })
    }

    /// The history, newest first: each entry in JSON.
    pub fn fleet_history(
        &self,
        host: Option<&str>,
        app: Option<&str>,
        limit: u64,
    ) -> Result<Vec<String>, Error> {
        self.read(WHAT, |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT entry FROM fleet_history WHERE (?1 IS NULL OR host = ?1) AND (?2 IS NULL OR app = ?2)
                 ORDER BY sequence DESC LIMIT ?3",
            )?;
            let rows = statement.query_map(params![host, app, to_sql(limit)], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
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

    /// Stores that a machine was refused because another one has the name. The refusal before, if there was one. `None`: the host
    /// has not reported yet. One with a reason is kept for this time if one without comes.
    pub fn note_fleet_conflict(
        &self,
        name: &str,
        conflict: &StoredConflict,
        kept_for: Duration,
    ) -> Result<Option<Option<StoredConflict>>, Error> {
        self.write(WHAT, Durability::Process, |transaction| {
            let query = format!("SELECT {COLUMNS} FROM fleet_hosts WHERE name = ?1");
            let known = transaction.prepare_cached(&query)?.query_row(params![name], fleet_row).optional()?;
            let before = known.as_ref().and_then(|row| row.conflict.as_ref());
            let has_reason = before.is_some_and(|before| {
                !before.reason.is_empty() && before.at.is_recent(kept_for, conflict.at)
            });
            if !conflict.reason.is_empty() || !has_reason {
                set_conflict(transaction, name, conflict)?;
            }
            Ok(known.map(|row| row.conflict))
        })
    }

    /// Removes a host. False: there is none of this name.
    pub fn remove_fleet_host(&self, name: &str) -> Result<bool, Error> {
        self.write(WHAT, Durability::Power, |transaction| Ok(remove_host(transaction, name)?))
    }
}

/// Removes the last report of a host. False: there is none.
pub(crate) fn remove_host(transaction: &Transaction<'_>, name: &str) -> Result<bool, rusqlite::Error> {
    transaction.execute("DELETE FROM fleet_reports WHERE name = ?1", params![name])?;
    Ok(transaction.execute("DELETE FROM fleet_hosts WHERE name = ?1", params![name])? > 0)
}

/// Appends an entry, unless it says the same as the last one. An agent that was started again reports its applications again.
/// A revision that runs is no news after a failed commit either.
const APPEND: &str = "
    INSERT INTO fleet_history (host, app, entry) SELECT ?1, ?2, ?3 WHERE json_remove(?3, '$.at') IS NOT (
        SELECT json_remove(entry, '$.at') FROM fleet_history WHERE host = ?1 AND app = ?2
        AND (json_extract(entry, '$.event') IS NOT 'failed' OR json_extract(?3, '$.event') IS 'failed')
        ORDER BY sequence DESC LIMIT 1)";

/// Appends entries, and removes the oldest beyond the bound.
fn append_history(transaction: &Transaction<'_>, news: &[StoredFleetEntry]) -> Result<(), rusqlite::Error> {
    if news.is_empty() {
        return Ok(());
    }
    let mut insert = transaction.prepare_cached(APPEND)?;
    for StoredFleetEntry { host, app, entry } in news {
        insert.execute(params![host, app, entry])?;
    }
    transaction
        .prepare_cached(
            "DELETE FROM fleet_history WHERE sequence <= (SELECT MAX(sequence) FROM fleet_history) - ?1",
        )?
        .execute(params![to_sql(HISTORY_MOST)])?;
    Ok(())
}

/// Stores a report unless that exceeds the bounds.
fn set_report(
    transaction: &Transaction<'_>,
    host: &StoredHost,
    bounds: FleetBounds,
) -> Result<Option<FleetFull>, rusqlite::Error> {
    let StoredHost { name, instance, digest, received, report, conflict } = host;
    let others =
        "SELECT COUNT(*), COALESCE(SUM(octet_length(report)), 0) FROM fleet_reports WHERE name <> ?1";
    let (hosts, bytes): (i64, i64) =
        transaction.prepare_cached(others)?.query_row(params![name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if from_sql(hosts) >= bounds.hosts {
        return Ok(Some(FleetFull::Hosts(bounds.hosts)));
    }
    if from_sql(bytes).saturating_add(report.len() as u64) > bounds.bytes {
        return Ok(Some(FleetFull::Bytes(bounds.bytes)));
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
            conflict.map(|conflict| &conflict.instance),
            conflict.map(|conflict| &conflict.from),
            conflict.map(|conflict| to_sql(conflict.at.0)),
            conflict.map(|conflict| &conflict.reason),
        ])?;
    transaction
        .prepare_cached("INSERT OR REPLACE INTO fleet_reports (name, report) VALUES (?1, ?2)")?
        .execute(params![name, report])?;
    Ok(None)
}

/// Stores that a machine was refused because another one has its name.
fn set_conflict(
    transaction: &Transaction<'_>,
    name: &str,
    conflict: &StoredConflict,
) -> Result<(), rusqlite::Error> {
    let StoredConflict { instance, from, reason, at } = conflict;
    transaction
        .prepare_cached(
            "UPDATE fleet_hosts
             SET conflict_instance = ?2, conflict_from = ?3, conflict_at = ?4, conflict_reason = ?5
             WHERE name = ?1",
        )?
        .execute(params![name, instance, from, to_sql(at.0), reason])?;
    Ok(())
}

fn stored_host(row: &Row<'_>) -> Result<StoredHost, rusqlite::Error> {
    let FleetRow { name, instance, digest, received, conflict } = fleet_row(row)?;
    Ok(StoredHost { name, instance, digest, received, report: row.get(8)?, conflict })
}

fn fleet_row(row: &Row<'_>) -> Result<FleetRow, rusqlite::Error> {
    let instance: Option<String> = row.get(4)?;
    let (from, at): (Option<String>, Option<i64>) = (row.get(5)?, row.get(6)?);
    let reason: Option<String> = row.get(7)?;
    let conflict = instance.map(|instance| StoredConflict {
        instance,
        from: from.unwrap_or_default(),
        reason: reason.unwrap_or_default(),
        at: Timestamp(from_sql(at.unwrap_or_default())),
    });
    Ok(FleetRow {
        name: row.get(0)?,
        instance: row.get(1)?,
        digest: row.get(2)?,
        received: Timestamp(from_sql(row.get(3)?)),
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

    fn set(store: &Store, host: StoredHost, bounds: FleetBounds) -> Result<(), FleetFull> {
        store
            .change_fleet_host(&host.name.clone(), bounds, |_| (FleetChange::Report(host), Vec::new(), ()))
            .unwrap()
    }

    const TWO: FleetBounds = FleetBounds { hosts: 2, bytes: 1000 };

    #[test]
    fn last_report_of_each_host_is_kept() {
        let store = Store::in_memory(Clock::System).unwrap();
        set(&store, host("web", "a", "1"), TWO).unwrap();
        set(&store, host("nas", "b", "1"), TWO).unwrap();
        assert_eq!(set(&store, host("third", "c", "1"), TWO), Err(FleetFull::Hosts(2)));
        set(&store, host("web", "a", "2"), TWO).unwrap();
        assert_eq!(store.fleet_hosts().unwrap(), [host("nas", "b", "1"), host("web", "a", "2")]);
        let rows = store.fleet_rows().unwrap();
        let rows: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.digest.as_str())).collect();
        assert_eq!(rows, [("nas", "1"), ("web", "2")]);
        assert!(store.remove_fleet_host("web").unwrap());
        assert!(!store.remove_fleet_host("web").unwrap());
        assert_eq!(store.fleet_host("web").unwrap(), None);
    }

    #[test]
    fn size_of_all_reports_together_is_bounded() {
        let store = Store::in_memory(Clock::System).unwrap();
        let bounds = FleetBounds { hosts: 9, bytes: 10 };
        let sized =
            |name: &str, size: usize| StoredHost { report: "é".repeat(size / 2), ..host(name, "a", "1") };
        set(&store, sized("web", 6), bounds).unwrap();
        set(&store, sized("nas", 4), bounds).unwrap();
        assert_eq!(set(&store, sized("tv", 2), bounds), Err(FleetFull::Bytes(10)));
        // A report that has grown is refused, and the last one stays.
        assert_eq!(set(&store, sized("nas", 6), bounds), Err(FleetFull::Bytes(10)));
        assert_eq!(store.fleet_host("nas").unwrap(), Some(sized("nas", 4)));
        set(&store, sized("web", 4), bounds).unwrap();
        set(&store, sized("tv", 2), bounds).unwrap();
    }

    #[test]
    fn decision_and_its_row_are_one_transaction() {
        let store = Store::in_memory(Clock::System).unwrap();
        let firsts: usize = std::thread::scope(|scope| {
            let racing = ["a", "b", "c", "d"].map(|instance| {
                let store = &store;
                scope.spawn(move || {
                    let decide = |known: Option<StoredHost>| {
                        let conflict = StoredConflict {
                            instance: instance.to_owned(),
                            from: String::new(),
                            reason: String::new(),
                            at: Timestamp(2),
                        };
                        if known.is_some() {
                            (FleetChange::Refusal(conflict), Vec::new(), 0)
                        } else {
                            (FleetChange::Report(host("nas", instance, "1")), Vec::new(), 1)
                        }
                    };
                    store.change_fleet_host("nas", TWO, decide).unwrap().unwrap()
                })
            });
            racing.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(firsts, 1);
    }

    #[test]
    fn heartbeat_counts_only_for_the_stored_report() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(!store.hear_fleet_host("web", "a", "1", Timestamp(5)).unwrap());
        set(&store, host("web", "a", "1"), TWO).unwrap();
        assert!(!store.hear_fleet_host("web", "b", "1", Timestamp(5)).unwrap(), "another machine");
        assert!(!store.hear_fleet_host("web", "a", "2", Timestamp(5)).unwrap(), "another report");
        assert!(store.hear_fleet_host("web", "a", "1", Timestamp(5)).unwrap());
        let [instance, from, reason] = ["b", "::1", "copied"].map(str::to_owned);
        let conflict = StoredConflict { instance, from, reason, at: Timestamp(6) };
        let refusal = FleetChange::Refusal(conflict.clone());
        store.change_fleet_host("web", TWO, |_| (refusal, Vec::new(), ())).unwrap().unwrap();
        let expected =
            StoredHost { received: Timestamp(5), conflict: Some(conflict), ..host("web", "a", "1") };
        assert_eq!(store.fleet_host("web").unwrap(), Some(expected));
    }

    #[test]
    fn history_is_kept_per_host_and_bounded() {
        let store = Store::in_memory(Clock::System).unwrap();
        let entry = |number: u64| StoredFleetEntry {
            host: format!("host-{}", number % 2),
            app: "shop".to_owned(),
            entry: number.to_string(),
        };
        let add = |news: Vec<StoredFleetEntry>| {
            let report = FleetChange::Report(host("nas", "a1", "1"));
            store.change_fleet_host("nas", TWO, |_| (report, news, ())).unwrap().unwrap();
        };
        add((0..HISTORY_MOST).map(entry).collect());
        add(vec![entry(HISTORY_MOST), entry(HISTORY_MOST + 1)]);
        let newest = store.fleet_history(Some("host-1"), Some("shop"), 2).unwrap();
        assert_eq!(newest, [(HISTORY_MOST + 1).to_string(), (HISTORY_MOST - 1).to_string()]);
        assert_eq!(store.fleet_history(None, None, u64::from(u32::MAX)).unwrap().len() as u64, HISTORY_MOST);
        assert!(store.fleet_history(None, Some("mail"), 10).unwrap().is_empty());
    }

    #[test]
    fn entry_that_is_no_news_is_not_stored_again() {
        let store = Store::in_memory(Clock::System).unwrap();
        let add = |at: u64, event: &str, commit: &str| {
            let (report, app) = (FleetChange::Report(host("nas", "a1", "1")), "shop".to_owned());
            let entry = format!(r#"{{"at":{at},"event":"{event}","commit":"{commit}"}}"#);
            let news = vec![StoredFleetEntry { host: "nas".to_owned(), app, entry }];
            store.change_fleet_host("nas", TWO, |_| (report, news, ())).unwrap().unwrap();
        };
        // The agent is started again after each of the first three events.
        for (at, event, commit) in [
            (1, "revision", "a"),
            (2, "revision", "a"),
            (3, "failed", "b"),
            (4, "revision", "a"),
            (5, "failed", "b"),
            (6, "revision", "c"),
            (7, "revision", "c"),
            (8, "failed", "b"),
            (9, "removed", "c"),
            (10, "revision", "c"),
        ] {
            add(at, event, commit);
        }
        let entries = store.fleet_history(Some("nas"), Some("shop"), 20).unwrap();
        let times = entries.iter().map(|entry| serde_json::from_str::<serde_json::Value>(entry).unwrap());
        let times: Vec<u64> = times.map(|entry| entry["at"].as_u64().unwrap()).collect();
        assert_eq!(times, [10, 9, 8, 6, 3, 1]);
    }
}
