//! The `SQLite` file: opened, checked, migrated to the newest schema, and moved aside if it is damaged.

use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::error::{BoxError, Durability, Error};
use driftless_clock::Clock;

/// Each entry migrates the schema to the next version. Entries are only added.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    -- The last used number, which outlives its revision.
    CREATE TABLE numbers (app TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE revisions (
        app TEXT NOT NULL, number INTEGER NOT NULL, outcome TEXT NOT NULL, stack TEXT NOT NULL,
        revision TEXT NOT NULL, PRIMARY KEY (app, number)
    ) WITHOUT ROWID;
    CREATE INDEX revisions_by_stack ON revisions (stack);
    CREATE TABLE stacks (hash TEXT PRIMARY KEY, stack TEXT NOT NULL);
    CREATE TABLE stack_contents (
        hash TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (hash, content)
    ) WITHOUT ROWID;

    CREATE TABLE records (app TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE pins (app TEXT PRIMARY KEY, pin TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE suspensions (app TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE applications (
        app TEXT PRIMARY KEY, repository TEXT NOT NULL, spec TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE commits (repository TEXT PRIMARY KEY, commit_id TEXT NOT NULL) WITHOUT ROWID;

    CREATE TABLE plans (
        id INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL, revision INTEGER, at INTEGER NOT NULL,
        closed INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX plans_by_app ON plans (app, id);
    -- `result` is NULL while unknown, empty when done, else the error.
    CREATE TABLE steps (
        plan INTEGER NOT NULL, position INTEGER NOT NULL, step TEXT NOT NULL, result TEXT,
        PRIMARY KEY (plan, position)
    ) WITHOUT ROWID;

    CREATE TABLE events (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL, event TEXT NOT NULL
    );
    CREATE INDEX events_by_app ON events (app, sequence);
",
    "
    CREATE TABLE deliveries (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, repository TEXT NOT NULL, id TEXT NOT NULL,
        open INTEGER NOT NULL, delivery TEXT NOT NULL, UNIQUE (repository, id)
    );
    CREATE INDEX deliveries_by_repository ON deliveries (repository, sequence);
    CREATE TABLE missed (repository TEXT PRIMARY KEY, missed TEXT NOT NULL) WITHOUT ROWID;
",
    "
    -- `told`: a status of this commit in this context was posted before.
    CREATE TABLE statuses (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, repository TEXT NOT NULL, context TEXT NOT NULL,
        commit_id TEXT NOT NULL, state TEXT NOT NULL, description TEXT NOT NULL, sent INTEGER NOT NULL,
        told INTEGER NOT NULL, UNIQUE (repository, context, commit_id)
    );
    CREATE INDEX statuses_unsent ON statuses (repository, sent, sequence);
",
    // Until schema 4 every plan was stored before its steps were performed, and nothing read it.
    "
    DROP TABLE steps;
    DROP TABLE plans;
",
    // Since schema 5 the columns `stacks.stack` and `records.record` are encrypted: see `sealed.rs`. A release that does not
    // know this refuses the database.
    "",
    "
    -- `digest`: SHA-256 of the token, in hexadecimal digits.
    CREATE TABLE tokens (name TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, token TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE audit (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, app TEXT, entry TEXT NOT NULL
    );
    CREATE INDEX audit_by_app ON audit (app, sequence);
    CREATE INDEX audit_by_time ON audit (at);
",
    "
    CREATE TABLE incidents (
        key TEXT PRIMARY KEY, number INTEGER NOT NULL, incident TEXT NOT NULL
    ) WITHOUT ROWID;
    -- The outbox: `sent` is NULL while a notification waits.
    CREATE TABLE notifications (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, receiver TEXT NOT NULL, incident INTEGER NOT NULL,
        at INTEGER NOT NULL, sent INTEGER, notification TEXT NOT NULL
    );
    CREATE INDEX notifications_by_receiver ON notifications (receiver, sent, sequence);
",
    "
    CREATE TABLE fleet_hosts (
        name TEXT PRIMARY KEY, instance TEXT NOT NULL, digest TEXT NOT NULL, received INTEGER NOT NULL,
        report TEXT NOT NULL, conflict_instance TEXT, conflict_from TEXT, conflict_at INTEGER
    ) WITHOUT ROWID;
",
    "
    -- Images that the agent pulled or built.
    CREATE TABLE images (id TEXT PRIMARY KEY, image TEXT NOT NULL) WITHOUT ROWID;
",
    // Encrypted like `records.record`.
    "
    -- Inspected containers. `known` has one row: since which event, and with which program and engine.
    CREATE TABLE containers (id TEXT PRIMARY KEY, container BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE known_containers (context TEXT NOT NULL, last_event INTEGER NOT NULL);
",
    "
    CREATE TABLE fleet_history (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL, app TEXT NOT NULL, entry TEXT NOT NULL
    );
    CREATE INDEX fleet_history_by_host ON fleet_history (host, sequence);
    CREATE INDEX fleet_history_by_app ON fleet_history (app, sequence);
",
    "
    -- Reports are large and seldom change, and a heartbeat writes only the row of its host.
    CREATE TABLE fleet_reports (name TEXT PRIMARY KEY, report TEXT NOT NULL);
    INSERT INTO fleet_reports SELECT name, report FROM fleet_hosts;
    ALTER TABLE fleet_hosts DROP COLUMN report;
",
    "
    -- Keys are public halves. `counter` of a host: its last signed request; of a collector: the last reserved one.
    CREATE TABLE fleet_keys (
        host TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, instance TEXT NOT NULL, enrolled INTEGER NOT NULL,
        invited_by TEXT NOT NULL, counter INTEGER NOT NULL, heard INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE fleet_invites (
        key TEXT PRIMARY KEY, host TEXT, invited_by TEXT NOT NULL, expires INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE enrolments (
        url TEXT PRIMARY KEY, collector TEXT NOT NULL, host TEXT NOT NULL, joined INTEGER NOT NULL,
        counter INTEGER NOT NULL
    ) WITHOUT ROWID;
",
    "
    -- Requests of a collector to hosts, and on a host those that it has begun.
    CREATE TABLE fleet_requests (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, host TEXT NOT NULL,
        created INTEGER NOT NULL, expires INTEGER NOT NULL, request TEXT NOT NULL, sent INTEGER, ended INTEGER,
        result TEXT
    );
    CREATE INDEX fleet_requests_by_host ON fleet_requests (host, sequence);
    CREATE TABLE host_requests (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, url TEXT NOT NULL, at INTEGER NOT NULL,
        result TEXT NOT NULL
    );
    CREATE INDEX host_requests_by_url ON host_requests (url, sequence);
",
    "
    -- A sentence for the admin of the collector, if the refused machine has the key of the host.
    ALTER TABLE fleet_hosts ADD COLUMN conflict_reason TEXT;
",
];

/// The time to wait for another process that has locked the file, such as a backup.
const BUSY: Duration = Duration::from_secs(5);

/// The page cache in KiB, as a negative number, as `SQLite` requires. The kernel caches the file as well.
const CACHE: i32 = -256;

/// Why a database cannot be used.
pub(super) enum Broken {
    /// Some of its pages cannot be read.
    Damaged(String),
    Other(Error),
}

impl Broken {
    /// The error of a file that is not moved aside.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Other(error) => error,
            Self::Damaged(why) => Error::Write { what: "a new schema", source: why.into() },
        }
    }
}

/// Creates a database, or a backup, which has the same schema. Nothing of it has to be on the disk before the caller syncs the file.
pub(super) fn create_unsynced(path: &Path) -> Result<Connection, BoxError> {
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    drop(options);
    let mut connection = connect_backup(path)?;
    write_unsynced(&connection, "main")?;
    migrate(&mut connection)?;
    Ok(connection)
}

/// From now on, changes of a file that nobody uses yet need neither a log nor the disk: who makes it syncs it at the end.
/// In an open transaction this has no effect.
pub(super) fn write_unsynced(connection: &Connection, schema: &str) -> Result<(), rusqlite::Error> {
    connection.pragma_update(Some(schema), "journal_mode", "MEMORY")?;
    connection.pragma_update(Some(schema), "synchronous", "OFF")
}

/// Opens a backup that is there. It has no log of its own: each change is in the one file when it is done.
pub(super) fn open_backup(path: &Path) -> Result<Connection, Broken> {
    let mut connection = connect_backup(path).map_err(sort)?;
    refuse_newer(&connection, path)?;
    check(&connection)?;
    migrate(&mut connection).map_err(sort)?;
    Ok(connection)
}

/// Opens a backup that another process may write to, without a change of it.
pub(super) fn look_into_backup(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

fn connect_backup(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    Ok(connection)
}

pub(super) fn in_memory() -> Result<Connection, Error> {
    let write = |source: rusqlite::Error| Error::Write { what: "a new schema", source: source.into() };
    let mut connection = Connection::open_in_memory().map_err(write)?;
    migrate(&mut connection).map_err(write)?;
    Ok(connection)
}

/// Writes in one transaction that locks the database at its start, so that it fails before it has changed anything.
pub(super) fn write<T>(
    connection: &mut Connection,
    durability: Durability,
    change: impl FnOnce(&Transaction<'_>) -> Result<T, BoxError>,
) -> Result<T, BoxError> {
    let synchronous = match durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let result = change(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

/// Opens the database, or creates an empty one.
pub(super) fn open_file(path: &Path) -> Result<Connection, Broken> {
    prepare(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sort)?;
    connection.busy_timeout(BUSY).map_err(sort)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Before the check, which reads every page.
    connection.pragma_update(None, "cache_size", CACHE).map_err(sort)?;
    // The packaged unit may have no other folder to write to than that of the database.
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(sort)?;
    refuse_newer(&connection, path)?;
    check(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(sort)?;
    migrate(&mut connection).map_err(sort)?;
    match missing_table(&connection)? {
        Some(table) => Err(Broken::Damaged(format!("the table `{table}` is missing"))),
        None => Ok(connection),
    }
}

/// Refuses the file of a newer release, which is never changed.
pub(super) fn refuse_newer(connection: &Connection, path: &Path) -> Result<(), Broken> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sort)?;
    let known = schema_version();
    if found > known {
        return Err(Broken::Other(Error::Newer { path: path.to_owned(), found, known }));
    }
    Ok(())
}

/// Reads every page.
fn check(connection: &Connection) -> Result<(), Broken> {
    let answer: String =
        connection.pragma_query_value(None, "quick_check", |row| row.get(0)).map_err(sort)?;
    if answer == "ok" {
        return Ok(());
    }
    Err(Broken::Damaged(answer.lines().last().unwrap_or("quick_check failed").to_owned()))
}

/// A table of the schema that the database lacks.
fn missing_table(connection: &Connection) -> Result<Option<String>, Broken> {
    let complete = in_memory().map_err(Broken::Other)?;
    let expected = table_names(&complete).map_err(sort)?;
    let found = table_names(connection).map_err(sort)?;
    Ok(expected.into_iter().find(|table| !found.contains(table)))
}

fn table_names(connection: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut names =
        connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")?;
    names.query_map([], |row| row.get(0))?.collect()
}

/// Creates an empty file with mode 0600 before `SQLite` creates one with the umask of the process. `SQLite` gives its
/// `-wal` and `-shm` files the mode of the database.
fn prepare(path: &Path) -> Result<(), Broken> {
    let fail = |source| {
        Broken::Other(Error::Directory { doing: "open the database", path: path.to_owned(), source })
    };
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => {
            fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(fail)
        }
        Ok(_) => Err(Broken::Damaged("it is not a regular file".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            options.map(drop).map_err(fail)
        }
        Err(error) => Err(fail(error)),
    }
}

fn sort(error: rusqlite::Error) -> Broken {
    match error.sqlite_error_code() {
        // `Unknown` is, for example, a table that a migration creates and that exists: another schema.
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => {
            Broken::Damaged(error.to_string())
        }
        _ => Broken::Other(Error::Write { what: "the schema", source: error.into() }),
    }
}

/// The schema of this release.
pub(super) fn schema_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).expect("there are few migrations")
}

fn migrate(connection: &mut Connection) -> Result<(), rusqlite::Error> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == schema_version() {
        // No write without a migration: the disk may be full.
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = usize::try_from(found).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", schema_version())?;
    transaction.commit()
}

/// Writes the whole file again and empties its log, so that neither holds what rows held before.
pub(super) fn rewrite(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch("VACUUM")?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// The name for a damaged database that is moved aside.
pub(super) fn aside(path: &Path, clock: Clock) -> PathBuf {
    with_suffix(path, &format!(".corrupt-{}", clock.now().0))
}

/// Renames a damaged database together with its log, which `SQLite` would replay into the new one. Files that are gone already are
/// no error.
pub(super) fn move_aside(path: &Path, aside: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        match fs::rename(with_suffix(path, suffix), with_suffix(aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The path with something appended to its name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The beginning of the SHA-256 digest of each migration. A migration that a release has must not change, because
    /// databases that have passed it would not get the change. Add a new one, and its digest.
    const DIGESTS: &[&str] = &[
        "cfbdeaaa8a436453",
        "4cd02cdfc45a65a5",
        "2dc783a525026f80",
        "9638258d4b25b209",
        "e3b0c44298fc1c14",
        "663bd4ff76692b79",
        "265a0da83d99e6d6",
        "a1fa48d63f9609a1",
        "2c16016577d3e4b4",
        "d92d1a5c43a4c2f5",
        "e216abc6bcba86ca",
        "73206d121299de07",
        "0f4255a7b0fdd8d3",
        "69a0c8e68ff9f829",
        "225295b2faad75b7",
    ];

    #[test]
    fn released_migrations_do_not_change() {
        let digest = |text: &&str| driftless_model::digest_hex(text.as_bytes())[..16].to_owned();
        assert_eq!(MIGRATIONS.iter().map(digest).collect::<Vec<_>>(), DIGESTS);
    }

    /// The definitions of all tables and indexes.
    fn schema(connection: &Connection) -> BTreeMap<String, Option<String>> {
        let mut all = connection.prepare("SELECT name, sql FROM sqlite_master").unwrap();
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn databases_of_every_release_are_upgraded_and_keep_their_rows() {
        let newest = schema(&in_memory().ok().unwrap());
        let folder = tempfile::tempdir().unwrap();
        for version in 1..=MIGRATIONS.len() {
            let path = folder.path().join(format!("{version}.db"));
            let older = Connection::open(&path).unwrap();
            for migration in &MIGRATIONS[..version] {
                older.execute_batch(migration).unwrap();
            }
            let rows = "INSERT INTO applications VALUES ('shop', 'infra', 'spec');
                INSERT INTO revisions VALUES ('shop', 7, 'succeeded', 'hash', 'revision');
                INSERT INTO pins VALUES ('shop', 'pin');
                INSERT INTO events (app, event) VALUES ('shop', 'event');";
            older.execute_batch(rows).unwrap();
            older.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
            drop(older);
            let upgraded = open_file(&path).ok().unwrap();
            assert_eq!(schema(&upgraded), newest, "from version {version}");
            let kept = "SELECT applications.spec, revisions.number, pins.pin, events.event
                FROM applications JOIN revisions USING (app) JOIN pins USING (app) JOIN events USING (app)";
            let kept: (String, i64, String, String) = upgraded
                .query_row(kept, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
                .unwrap();
            assert_eq!(kept, ("spec".into(), 7, "pin".into(), "event".into()), "from version {version}");
        }
    }
}
