//! Reads what can still be read of a damaged database, table by table and row by row.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Statement, params_from_iter, types::Value};

/// All tables but those that fill again by themselves, those that users rely on first, with the column that holds JSON.
const TABLES: [(&str, Option<&str>); 25] = [
    ("pins", Some("pin")),
    ("suspensions", None),
    ("applications", Some("spec")),
    ("revisions", Some("revision")),
    ("stacks", Some("stack")),
    ("tokens", Some("token")),
    ("fleet_keys", Some("invited_by")),
    ("fleet_invites", Some("invited_by")),
    ("enrolments", None),
    ("host_requests", Some("result")),
    ("meta", None),
    ("numbers", None),
    ("stack_contents", None),
    ("records", Some("record")),
    ("commits", None),
    ("deliveries", None),
    ("missed", None),
    ("statuses", None),
    ("events", Some("event")),
    ("audit", Some("entry")),
    ("images", Some("image")),
    ("incidents", Some("incident")),
    ("notifications", Some("notification")),
    ("fleet_requests", Some("request")),
    ("fleet_history", Some("entry")),
];
/// Without all of their rows a pin or suspension may be missing.
const ESSENTIAL: usize = 5;

/// Whether a pin or suspension may be missing if rows of this table are.
pub(crate) fn is_essential(table: &str) -> bool {
    TABLES[..ESSENTIAL].iter().any(|(essential, _)| *essential == table)
}

/// The number of rows in the tables of which none may be missing.
pub(crate) fn essential_rows(database: &Connection) -> Result<i64, rusqlite::Error> {
    let counts = TABLES[..ESSENTIAL].iter().map(|(table, _)| {
        database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))
    });
    counts.sum()
}

/// Opens a damaged database. `None`: nothing of it can be read.
pub(crate) fn open(damaged: &Path) -> Option<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(damaged, flags).ok()
}

/// Copies the readable rows of a damaged database into another one, in one transaction, and keeps the rows that this one has. Returns
/// the wanted tables that could not be read as a whole.
///
/// # Errors
///
/// If the other database cannot be written.
pub(crate) fn salvage(
    damaged: Option<&Connection>,
    into: &Connection,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<&'static str>, rusqlite::Error> {
    let mut incomplete = Vec::new();
    let transaction = into.unchecked_transaction()?;
    for (table, json) in TABLES.into_iter().filter(|(table, _)| is_wanted(table)) {
        let is_whole = match damaged {
            Some(from) => copy(from, &transaction, table, json)?,
            None => false,
        };
        if !is_whole {
            incomplete.push(table);
        }
    }
    transaction.commit()?;
    Ok(incomplete)
}

/// Copies one table. False: some rows could not be read.
///
/// # Errors
///
/// If the other database cannot be written.
pub(crate) fn copy(
    from: &Connection,
    into: &Connection,
    table: &str,
    json: Option<&str>,
) -> Result<bool, rusqlite::Error> {
    let columns: Vec<String> = into
        .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let json = json.and_then(|name| columns.iter().position(|column| column == name));
    let names = columns.join(", ");
    let marks = vec!["?"; columns.len()].join(", ");
    let mut insert = into.prepare(&format!("INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"))?;
    let mut is_whole = true;
    // A scan ends at the first damaged page. One from the other end gets what lies behind it.
    for direction in ["ASC", "DESC"] {
        let first = columns.first().map_or("", String::as_str);
        let select = from.prepare(&format!("SELECT {names} FROM {table} ORDER BY {first} {direction}"));
        let mut select = match select {
            Ok(select) => select,
            Err(error) => {
                tracing::warn!(table, %error, "a table of the damaged database cannot be read");
                return Ok(false);
            }
        };
        let mut rows = select.query([])?;
        let mut is_read = true;
        loop {
            match rows.next() {
                Ok(None) => break,
                Ok(Some(row)) => match values(row, columns.len(), json) {
                    Some(values) => is_whole &= insert_row(&mut insert, values)?,
                    None => is_whole = false,
                },
                Err(_) => {
                    is_read = false;
                    break;
                }
            }
        }
        if is_read {
            return Ok(is_whole);
        }
        is_whole = false;
    }
    Ok(false)
}

/// Inserts a row. False: the table cannot hold it, because it is damaged.
fn insert_row(insert: &mut Statement<'_>, values: Vec<Value>) -> Result<bool, rusqlite::Error> {
    match insert.execute(params_from_iter(values)) {
        Ok(_) => Ok(true),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => Ok(false),
            _ => Err(error),
        },
    }
}

/// The values of a row. `None`: it is damaged.
fn values(row: &Row<'_>, count: usize, json: Option<usize>) -> Option<Vec<Value>> {
    let values: Vec<Value> = (0..count).map(|index| row.get(index).ok()).collect::<Option<_>>()?;
    let is_readable = match json.map(|index| &values[index]) {
        Some(Value::Text(text)) => serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(),
        // Encrypted. The authentication of the row tells later whether it is whole.
        None | Some(Value::Blob(_)) => true,
        Some(Value::Null | Value::Integer(_) | Value::Real(_)) => false,
    };
    is_readable.then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StateDir, Store, database};
    use driftless_clock::Clock;

    /// They fill again by themselves: what the engine and the hosts say.
    const DISPENSABLE: [&str; 4] = ["containers", "known_containers", "fleet_hosts", "fleet_reports"];

    #[test]
    fn full_disk_ends_the_salvage() {
        let (from, into) = (database::in_memory().unwrap(), database::in_memory().unwrap());
        let event = format!("\"{}\"", "x".repeat(100_000));
        from.execute("INSERT INTO events (app, event) VALUES ('shop', ?1)", [event]).unwrap();
        let pages: i64 = into.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        into.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        let error = salvage(Some(&from), &into, |_| true).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{error}");
        into.pragma_update_and_check(None, "max_page_count", pages + 100, |_| Ok(())).unwrap();
        assert!(salvage(Some(&from), &into, |_| true).unwrap().is_empty());
    }

    #[test]
    fn every_table_is_salvaged_or_dispensable() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::lock(folder.path()).unwrap();
        drop(Store::open(&state, Clock::System).unwrap());
        let database = Connection::open(folder.path().join("driftless.db")).unwrap();
        let query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'";
        let mut statement = database.prepare(query).unwrap();
        let mut found: Vec<String> =
            statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let salvaged = TABLES.iter().map(|(table, _)| *table);
        let mut expected: Vec<&str> = salvaged.chain(DISPENSABLE).collect();
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected);
        for (table, json) in TABLES.iter().filter_map(|(table, json)| Some((table, (*json)?))) {
            let has_column = database.prepare(&format!("SELECT {json} FROM {table}"));
            assert!(has_column.is_ok(), "{table}.{json}");
        }
    }
}
