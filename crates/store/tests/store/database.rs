//! The database: restarts, damage, backup, migration.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use driftless_model::{
    Actor, ActorKind, AgentId, ApiToken, AppName, Attempt, AuditEntry, AuditResult, Channel, CommitId,
    ContainerId, Event, EventKind, Outcome, Record, Revision,
};
use driftless_store::{ContentDir, Error, Opened, OtherAgent, StateDir, Store, Suspension, former_agents};

use super::*;

#[test]
fn stored_values_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/state");
    let record = Record {
        own_containers: [ContainerId("a".repeat(64))].into(),
        pulls: [("web:2".to_owned().into(), Attempt { count: 3, next: NOW, error: "not found".to_owned() })]
            .into(),
        ..Record::default()
    };
    let images = BTreeMap::from([("web:1".to_owned(), "web@sha256:1".to_owned())]);
    let spec = serde_json::json!({"path": "sites/shop"});
    let (id, begun) = {
        let state = StateDir::lock(&path).unwrap();
        let opened = Store::open(&state, clock()).unwrap();
        assert_eq!(opened.recovered, None);
        let store = opened.store;
        assert_eq!(store.record(&shop()).unwrap(), Record::default());
        store.save_record(&shop(), &record).unwrap();
        store.set_pin(&shop(), &pin(1)).unwrap();
        store.set_suspended(&shop(), Suspension::Suspended).unwrap();
        store.remember_application(&shop(), &spec, "infra").unwrap();
        store.set_last_commit("infra", &CommitId::from_stored("abc")).unwrap();
        let begun = store.begin_revision(&new_revision(), &stack("web:1", vec![])).unwrap();
        store.finish_revision(&shop(), begun.number, &Outcome::Succeeded, &images).unwrap();
        store.set_own_id_refused(true).unwrap();
        (store.agent_id().unwrap(), begun)
    };

    let state = StateDir::lock(&path).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    assert_eq!(store.agent_id().unwrap(), id);
    assert!(store.is_own_id_refused().unwrap());
    store.set_own_id_refused(false).unwrap();
    assert!(!store.is_own_id_refused().unwrap());
    assert_eq!(store.record(&shop()).unwrap(), record);
    assert_eq!(store.pin(&shop()).unwrap(), Some(pin(1)));
    assert!(store.suspended(&shop()).unwrap());
    assert_eq!(store.last_commit("infra").unwrap(), Some(CommitId::from_stored("abc")));
    assert_eq!(store.stack(&shop(), 1).unwrap(), Some(stack("web:1", vec![])));
    let known = store.known_applications().unwrap();
    assert_eq!((known.len(), &known[0].spec, known[0].repository.as_str()), (1, &spec, "infra"));
    let finished = store.current(&shop()).unwrap().unwrap();
    let expected = Revision { outcome: Outcome::Succeeded, images, finished: finished.finished, ..begun };
    assert_eq!(finished, expected);
    assert!(finished.finished.is_some());

    store.clear_pin(&shop()).unwrap();
    store.set_suspended(&shop(), Suspension::Active).unwrap();
    assert!(store.forget_application(&shop()).unwrap());
    assert_eq!(store.pin(&shop()).unwrap(), None);
    assert!(!store.suspended(&shop()).unwrap());
    assert!(store.known_applications().unwrap().is_empty());
}

#[test]
fn forgotten_application_is_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.set_suspended(&shop(), Suspension::Suspended).unwrap();
    assert!(store.forget_application(&shop()).unwrap());
    let backup = std::fs::read(state.backup()).unwrap();
    assert!(!store.forget_application(&shop()).unwrap());
    assert_eq!(std::fs::read(state.backup()).unwrap(), backup);
    store.set_pin(&shop(), &pin(1)).unwrap();
    assert!(store.forget_application(&shop()).unwrap(), "a row in any table counts");
}

#[test]
fn start_that_ends_early_leaves_a_state_that_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let database = {
        let state = StateDir::lock(directory.path()).unwrap();
        drop(Store::open(&state, clock()).unwrap());
        assert!(!state.backup().exists(), "an empty database has nothing to restore");
        state.database()
    };
    let id = {
        let state = StateDir::lock(directory.path()).unwrap();
        let Opened { store, recovered } = Store::open(&state, clock()).unwrap();
        assert_eq!((recovered, store.loss().unwrap()), (None, None));
        store.agent_id().unwrap()
    };
    fs::remove_file(&database).unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let Opened { store, recovered } = Store::open(&state, clock()).unwrap();
    assert!(recovered.unwrap().contains("restored"));
    assert_eq!((store.agent_id().unwrap(), store.loss().unwrap()), (id, None));
}

#[test]
fn second_agent_is_refused_until_the_first_ends() {
    let directory = tempfile::tempdir().unwrap();
    let first = StateDir::lock(directory.path()).unwrap();
    let refused = StateDir::lock(directory.path()).unwrap_err();
    let told = refused.to_string();
    assert!(matches!(refused, Error::InUse { .. }));
    assert!(told.contains(&std::process::id().to_string()), "{told}");
    assert!(told.contains(directory.path().to_str().unwrap()), "{told}");
    drop(first);
    StateDir::lock(directory.path()).unwrap();
}

#[test]
fn open_directory_with_other_files_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(directory.path());
    fs::write(directory.path().join("letter"), "mine").unwrap();
    let refused = StateDir::lock(directory.path()).unwrap_err();
    assert!(matches!(refused, Error::NotOurs { .. }), "{refused}");
    assert_eq!(mode(directory.path()), 0o755);

    // An empty one, such as a volume's, is; and our own, opened by somebody, is closed again.
    fs::remove_file(directory.path().join("letter")).unwrap();
    for _ in 0..2 {
        let state = StateDir::lock(directory.path()).unwrap();
        Store::open(&state, clock()).unwrap().store.agent_id().unwrap();
        assert_eq!(mode(directory.path()), 0o700);
        open(directory.path());
    }
}

#[test]
fn directory_that_holds_only_keys_is_closed_and_used() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // As somebody prepares a new machine for `driftless restore`.
    for key in ["database.key", "fleet.key"] {
        fs::write(directory.path().join(key), [7; 32]).unwrap();
    }
    StateDir::lock(directory.path()).unwrap();
    assert_eq!(mode(directory.path()), 0o700);
}

#[test]
fn state_directory_is_closed_to_other_users() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let state = StateDir::lock(&path).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    ContentDir::open(&state, Path::new("/run/driftless"), clock()).unwrap();
    assert_eq!(mode(&path), 0o700);
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        let expected = if entry.metadata().unwrap().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&entry.path()), expected, "{:?}", entry.path());
        seen.insert(entry.file_name().into_string().unwrap());
    }
    for name in ["agent-id", "contents", "driftless.db", "driftless.db-wal", "lock"] {
        assert!(seen.contains(name), "{name} in {seen:?}");
    }
}

#[test]
fn copied_files_of_a_running_agent_are_complete() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(&directory.path().join("killed")).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    let id = store.agent_id().unwrap();
    let number = store.begin_revision(&new_revision(), &stack("web:1", vec![])).unwrap().number;
    store.set_pin(&shop(), &pin(number)).unwrap();
    let actor = Actor::new(ActorKind::User, "ada");
    let entry = AuditEntry {
        sequence: 0,
        at: NOW,
        actor,
        channel: Channel::Api,
        from: "192.0.2.1".to_owned(),
        action: "sync".to_owned(),
        app: Some(shop()),
        detail: String::new(),
        result: AuditResult::Accepted,
        message: String::new(),
    };
    let entry = store.append_audit(entry, Duration::from_hours(1)).unwrap();
    store.sync_audit().unwrap();

    // As after `kill -9`: the files as they are, with a log that nobody has put into the database.
    let after = StateDir::lock(&directory.path().join("after")).unwrap();
    for name in ["driftless.db", "driftless.db-wal", "database.key"] {
        fs::copy(state.path().join(name), after.path().join(name)).unwrap();
    }
    let opened = Store::open(&after, clock()).unwrap();
    assert_eq!(opened.recovered, None);
    assert_eq!(opened.store.agent_id().unwrap(), id);
    assert_eq!(opened.store.pin(&shop()).unwrap(), Some(pin(number)));
    assert_eq!(opened.store.audit(None, 10, None).unwrap(), [entry]);
    let found = opened.store.current(&shop()).unwrap().unwrap();
    assert_eq!((found.number, found.outcome), (number, Outcome::InProgress));
    assert_eq!(
        opened.store.begin_revision(&new_revision(), &stack("web:1", vec![])).unwrap().number,
        number + 1
    );
}

#[test]
fn unreadable_row_loses_no_other_row_and_no_pin() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    for image in ["web:1", "web:2"] {
        run(&store, image, Outcome::Succeeded);
    }
    store.set_pin(&shop(), &pin(1)).unwrap();
    let own_containers = [ContainerId("a".repeat(64))].into();
    store.save_record(&shop(), &Record { own_containers, ..Record::default() }).unwrap();
    let other = rusqlite::Connection::open(state.database()).unwrap();
    other
        .execute_batch(
            "UPDATE revisions SET revision = '{}' WHERE number = 2; UPDATE records SET record = '[';
             UPDATE pins SET pin = '{}';",
        )
        .unwrap();
    assert_eq!(numbers(&store.revisions(&shop()).unwrap()), [1]);
    other.execute_batch("UPDATE revisions SET revision = CAST(x'ff' AS TEXT) WHERE number = 2").unwrap();
    assert_eq!(numbers(&store.revisions(&shop()).unwrap()), [1], "a damaged page");
    assert_eq!(store.record(&shop()).unwrap(), Record::default());
    assert!(matches!(store.pin(&shop()), Err(Error::Read { what: "a pin", .. })));
}

#[test]
fn unreadable_stack_loses_no_other_stack() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    for image in ["web:1", "web:2"] {
        run(&store, image, Outcome::Succeeded);
    }
    let other = rusqlite::Connection::open(state.database()).unwrap();
    other
        .execute_batch(
            "UPDATE stacks SET stack = '[' WHERE hash = (SELECT stack FROM revisions WHERE number = 2);",
        )
        .unwrap();
    assert_eq!(store.stacks(&shop()).unwrap(), [stack("web:1", vec![])]);
    assert!(matches!(store.stack(&shop(), 2), Err(Error::Read { what: "a stack", .. })));
}

#[test]
fn damaged_database_is_moved_aside_and_the_agent_id_kept() {
    type Damage = fn(&Path);
    fn without(path: &Path, table: &str) {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    let damages: [(&str, Damage); 7] = [
        ("without `meta`", |path| without(path, "meta")),
        ("without `pins`", |path| without(path, "pins")),
        ("without `records`", |path| without(path, "records")),
        ("no database", |path| fs::write(path, "hello, this is certainly no database ".repeat(40)).unwrap()),
        ("overwritten in the midst", |path| {
            let mut bytes = fs::read(path).unwrap();
            let (from, to) = (bytes.len() / 4, bytes.len() * 3 / 4);
            bytes[from..to].fill(0xa5);
            fs::write(path, bytes).unwrap();
        }),
        ("cut off", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 3]).unwrap();
        }),
        ("a folder", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::lock(directory.path()).unwrap();
        let store = Store::open(&state, clock()).unwrap().store;
        let id = store.agent_id().unwrap();
        for number in 0..20 {
            run(&store, &format!("web:{number}"), Outcome::Succeeded);
        }
        store.set_pin(&shop(), &pin(20)).unwrap();
        drop(store);
        damage(&state.database());

        let opened = Store::open(&state, clock()).unwrap();
        let told = opened.recovered.unwrap_or_else(|| panic!("{name}: it is not told"));
        assert!(told.contains("driftless.db.corrupt-"), "{name}: {told}");
        let kept = fs::read_dir(directory.path())
            .unwrap()
            .any(|it| it.unwrap().file_name().to_string_lossy().starts_with("driftless.db.corrupt-"));
        assert!(kept, "{name}");
        assert_eq!(opened.store.agent_id().unwrap(), id, "{name}");
        assert_eq!(opened.store.pin(&shop()).unwrap(), Some(pin(20)), "{name}");
        assert_eq!(opened.store.loss().unwrap(), None, "{name}");
        assert_eq!(run(&opened.store, "web:1", Outcome::Succeeded), 21, "{name}");
        drop(opened.store);
        assert_eq!(Store::open(&state, clock()).unwrap().recovered, None, "{name}");
    }
}

#[test]
fn empty_database_file_is_valid_and_id_file_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    fs::write(state.database(), "").unwrap();
    let opened = Store::open(&state, clock()).unwrap();
    assert_eq!(opened.recovered, None);
    let id = opened.store.agent_id().unwrap();
    assert_eq!(id.0.len(), 32);
    let file = directory.path().join("agent-id");
    for damage in ["", "not an id\n"] {
        fs::write(&file, damage).unwrap();
        assert_eq!(opened.store.agent_id().unwrap(), id);
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), id.0);
    }
    assert_ne!(memory().agent_id().unwrap(), id, "each has its own");
}

#[test]
fn database_of_a_newer_release_is_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    drop(Store::open(&state, clock()).unwrap());
    let connection = rusqlite::Connection::open(state.database()).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let before = fs::read(state.database()).unwrap();
    let refused = Store::open(&state, clock()).unwrap_err();
    assert!(matches!(refused, Error::Newer { found: 99, .. }), "{refused}");
    assert_eq!(fs::read(state.database()).unwrap(), before);
}

/// A state directory with a pin, which nobody has open.
fn closed_with_pin(directory: &Path) -> StateDir {
    let state = StateDir::lock(directory).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    store.set_pin(&shop(), &pin(1)).unwrap();
    state
}

#[test]
fn backup_of_a_newer_release_is_not_changed() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 3] = [
        ("as it was", |_| {}),
        ("damaged", |path| fs::write(path, "this is certainly no database ".repeat(40)).unwrap()),
        ("lost", |path| fs::remove_file(path).unwrap()),
    ];
    for (name, change) in changes {
        let directory = tempfile::tempdir().unwrap();
        let state = closed_with_pin(directory.path());
        let mark = |schema: i64| {
            let newer = rusqlite::Connection::open(state.backup()).unwrap();
            let before: i64 = newer.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
            newer.pragma_update(None, "user_version", schema).unwrap();
            before
        };
        let known = mark(99);
        change(&state.database());
        let before = (fs::read(state.backup()).unwrap(), fs::read(state.database()).ok());
        let refused = Store::open(&state, clock()).unwrap_err();
        assert!(matches!(refused, Error::Newer { found: 99, .. }), "{name}: {refused}");
        let after = (fs::read(state.backup()).unwrap(), fs::read(state.database()).ok());
        assert!(after == before, "{name}: a file was changed");
        // The newer release is installed again.
        mark(known);
        let store = Store::open(&state, clock()).unwrap().store;
        assert_eq!(store.pin(&shop()).unwrap(), Some(pin(1)), "{name}");
    }
}

#[test]
fn unreadable_backup_is_not_taken_for_a_damaged_one() {
    let directory = tempfile::tempdir().unwrap();
    let state = closed_with_pin(directory.path());
    let names = || {
        let entries = fs::read_dir(directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let before = names();
    // `SQLite` finds the journal of a change, and cannot read it.
    let journal = state.path().join("driftless-backup.db-journal");
    fs::create_dir(&journal).unwrap();
    let opened = Store::open(&state, clock()).unwrap();
    assert_eq!((opened.recovered, opened.store.pin(&shop()).unwrap()), (None, Some(pin(1))));
    drop(opened.store);
    // It may have all that a lost database had.
    let [database, kept] = [state.database(), directory.path().join("kept.db")];
    fs::rename(&database, &kept).unwrap();
    let refused = Store::open(&state, clock()).unwrap_err();
    assert!(
        matches!(refused, Error::Directory { doing: "open the backup of the database", .. }),
        "{refused}"
    );
    fs::remove_dir(&journal).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    assert_eq!(store.pin(&shop()).unwrap(), Some(pin(1)));
    drop(store);
    fs::remove_file(&kept).unwrap();
    // The new backup could not take the place of the old one.
    fs::remove_file(directory.path().join("driftless-backup.new")).unwrap();
    assert_eq!(names(), before);
}

#[test]
fn plans_stored_by_older_releases_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::lock(dir.path()).unwrap();
    Store::open(&state, clock()).unwrap().store.set_pin(&shop(), &pin(3)).unwrap();
    let connection = rusqlite::Connection::open(state.database()).unwrap();
    make_older(&connection);
    connection
        .execute_batch(
            "CREATE TABLE plans (id INTEGER PRIMARY KEY); CREATE TABLE steps (plan INTEGER); \
             PRAGMA user_version = 3;",
        )
        .unwrap();
    drop(connection);

    let opened = Store::open(&state, clock()).unwrap();
    assert_eq!(opened.recovered, None);
    assert_eq!(opened.store.pin(&shop()).unwrap(), Some(pin(3)));
    let connection = rusqlite::Connection::open(state.database()).unwrap();
    let tables: i64 = connection
        .query_row("SELECT COUNT(*) FROM sqlite_schema WHERE name IN ('plans', 'steps')", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(tables, 0);
}

/// A store with a pin and a suspension, closed as by `kill -9`: what is written stays in the log.
fn killed_with_pin(directory: &Path) -> StateDir {
    let state = StateDir::lock(directory).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    run(&store, "web:1", Outcome::Succeeded);
    run(&store, "web:2", Outcome::Succeeded);
    store.set_pin(&shop(), &pin(1)).unwrap();
    store.set_suspended(&AppName::from("frozen"), Suspension::Suspended).unwrap();
    std::mem::forget(store);
    state
}

fn assert_kept(state: &StateDir, name: &str) {
    let opened = Store::open(state, clock()).unwrap();
    assert!(opened.recovered.is_some(), "{name}: it is not told");
    assert_eq!(opened.store.loss().unwrap(), None, "{name}");
    assert_eq!(opened.store.pin(&shop()).unwrap(), Some(pin(1)), "{name}");
    assert!(opened.store.suspended(&AppName::from("frozen")).unwrap(), "{name}");
    assert_eq!(numbers(&opened.store.revisions(&shop()).unwrap()), [2, 1], "{name}");
    assert!(opened.store.stack(&shop(), 1).unwrap().is_some(), "{name}");
}

#[test]
fn pins_outlive_a_lost_database_or_log() {
    let with = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::path::PathBuf::from(name)
    };
    type Lose<'a> = &'a dyn Fn(&Path);
    let losses: [(&str, Lose<'_>); 3] = [
        ("deleted", &|path| {
            for suffix in ["", "-wal", "-shm"] {
                drop(fs::remove_file(with(path, suffix)));
            }
        }),
        ("empty", &|path| {
            fs::write(path, "").unwrap();
            drop(fs::remove_file(with(path, "-wal")));
        }),
        ("without its log", &|path| fs::remove_file(with(path, "-wal")).unwrap()),
    ];
    for (name, lose) in losses {
        let directory = tempfile::tempdir().unwrap();
        let copy = tempfile::tempdir().unwrap();
        let state = killed_with_pin(directory.path());
        // Files as they are after the death of the process, which still holds the old ones here.
        let after = StateDir::lock(copy.path()).unwrap();
        for file in ["driftless.db", "driftless.db-wal", "driftless-backup.db", "agent-id", "database.key"] {
            fs::copy(state.path().join(file), after.path().join(file)).unwrap();
        }
        lose(&after.database());
        assert_kept(&after, name);
    }
}

#[test]
fn rows_of_a_damaged_database_are_read_without_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    for number in 0..40 {
        run(&store, &format!("web:{number}"), Outcome::Succeeded);
        let (object, reason, message) = ("web.1".to_owned(), "Pulled".to_owned(), "x".repeat(3000));
        let (at, app, kind) = (NOW, shop(), EventKind::Normal);
        store
            .append_event(Event { sequence: 0, at, app, kind, reason, object, message, actor: None })
            .unwrap();
    }
    store.set_pin(&shop(), &pin(40)).unwrap();
    drop(store);
    let pages = fs::metadata(state.database()).unwrap().len() / 4096;
    let mut lost = 0;
    for page in 1..pages {
        let copy = tempfile::tempdir().unwrap();
        let after = StateDir::lock(copy.path()).unwrap();
        let mut bytes = fs::read(state.database()).unwrap();
        let from = usize::try_from(page).unwrap() * 4096;
        bytes[from..from + 4096].fill(0xa5);
        fs::write(after.database(), bytes).unwrap();
        fs::copy(state.path().join("database.key"), after.path().join("database.key")).unwrap();
        let opened = Store::open(&after, clock()).unwrap();
        let has_pin = opened.store.pin(&shop()).unwrap() == Some(pin(40));
        let is_whole = has_pin && opened.store.stack(&shop(), 40).unwrap().is_some();
        assert!(is_whole || opened.store.loss().unwrap().is_some(), "page {page}: a pin is lost in silence");
        lost += u64::from(!is_whole);
    }
    assert!(lost * 2 < pages, "{lost} of {pages} damaged pages lose the pin");
}

#[test]
fn loss_is_kept_until_it_is_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    store.note_loss("the first").unwrap();
    store.note_loss("the second").unwrap();
    drop(store);
    let store = Store::open(&state, clock()).unwrap().store;
    assert_eq!(store.loss().unwrap().as_deref(), Some("the first"));
    assert!(!store.is_loss_confirmed().unwrap());
    store.clear_loss().unwrap();
    assert_eq!(store.loss().unwrap(), None);
    drop(store);
    // Also in the backup, so that a lost database does not ask again.
    fs::remove_file(state.database()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    assert!(store.is_loss_confirmed().unwrap());
}

#[test]
fn removed_backup_is_written_again_by_the_next_change() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    store.set_suspended(&shop(), Suspension::Suspended).unwrap();
    let database = state.database();
    for file in [database.clone(), database.with_extension("db-wal"), database.with_extension("db-shm")] {
        let _ = fs::remove_file(file);
    }
    fs::remove_file(state.path().join("driftless-backup.db")).unwrap();
    // The process still has the files open that were removed.
    store.set_pin(&shop(), &pin(1)).unwrap();
    drop(store);
    let store = Store::open(&state, clock()).unwrap().store;
    assert_eq!(store.pin(&shop()).unwrap(), Some(pin(1)));
    assert!(store.suspended(&shop()).unwrap());
    assert_eq!(store.loss().unwrap(), None);
}

#[test]
fn agents_that_were_taken_over_are_read_without_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let names = || -> BTreeSet<_> {
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert!(former_agents(directory.path()).is_empty() && names().is_empty());
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    let (former, living) = (AgentId::from("former"), AgentId::from("living"));
    store.set_other_agent(&former, OtherAgent::Former).unwrap();
    store.set_other_agent(&living, OtherAgent::Living).unwrap();
    let before = names();
    assert_eq!(former_agents(directory.path()), BTreeSet::from([former]));
    assert_eq!(names(), before);
}

#[test]
fn free_space_is_that_of_the_state_directory() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(&directory.path().join("state")).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    assert!(store.free_bytes().is_some_and(|free| free > 0));
    assert_eq!(Store::in_memory(clock()).unwrap().free_bytes(), None);
}

#[test]
fn nothing_is_stored_without_the_state_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (path, aside) = (directory.path().join("state"), directory.path().join("aside"));
    let state = StateDir::lock(&path).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    assert_eq!(store.replaced(), None);
    let refused = |what: &str| {
        let why = store.replaced().unwrap_or_default();
        assert!(why.contains(what) && why.contains("driftless recover"), "{what}: {why}");
        let pinned = store.set_pin(&shop(), &pin(1));
        assert!(matches!(pinned, Err(Error::Write { what: "a pin", .. })), "{what}: {pinned:?}");
        assert!(store.set_suspended(&shop(), Suspension::Suspended).is_err(), "{what}");
        assert!(store.last_write_error().is_some_and(|error| error.contains(what)), "{what}");
        assert_eq!(store.pin(&shop()).unwrap(), None, "{what}");
    };
    fs::rename(&path, &aside).unwrap();
    refused("the state directory");
    fs::create_dir(&path).unwrap();
    refused("was replaced");
    fs::remove_dir(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    store.set_pin(&shop(), &pin(1)).unwrap();
    assert_eq!((store.replaced(), store.last_write_error()), (None, None));
    store.clear_pin(&shop()).unwrap();

    let database = state.database();
    fs::copy(&database, directory.path().join("copy")).unwrap();
    fs::rename(directory.path().join("copy"), &database).unwrap();
    refused("the database");
    fs::remove_dir_all(&path).unwrap();
    refused("was removed");
    assert!(!path.exists(), "no backup is written there");
}

#[test]
fn database_that_lacks_a_table_is_restored() {
    for table in ["meta", "pins", "events"] {
        let directory = tempfile::tempdir().unwrap();
        let state = closed_with_pin(directory.path());
        let database = rusqlite::Connection::open(state.database()).unwrap();
        database.execute_batch(&format!("DROP TABLE {table}")).unwrap();
        drop(database);
        let opened = Store::open(&state, clock()).unwrap();
        assert!(opened.recovered.is_some(), "{table}");
        assert_eq!(opened.store.pin(&shop()).unwrap(), Some(pin(1)), "{table}");
        assert_eq!(opened.store.loss().unwrap(), None, "{table}");
    }
}

/// Damages a database, so that all of its other tables can be read.
fn drop_images(database: &Path) {
    let connection = rusqlite::Connection::open(database).unwrap();
    connection.execute_batch("DROP TABLE images").unwrap();
}

fn create_token(store: &Store, name: &str) {
    let created_by = Actor::new(ActorKind::User, "ada");
    let token = ApiToken { name: name.to_owned(), scopes: vec![], created: NOW, created_by, expires: None };
    store.create_token(&token).unwrap().unwrap();
}

fn token_names(store: &Store) -> Vec<String> {
    store.tokens().unwrap().into_iter().map(|(_, token)| token.name).collect()
}

/// A store with two tokens, a pin, a suspension and an event, of which one token, the pin and the suspension are removed.
/// Returns the files of the database and of its backup as they were before the removal.
fn revoked_state(state: &StateDir) -> [Vec<u8>; 2] {
    let store = Store::open(state, clock()).unwrap().store;
    store.agent_id().unwrap();
    run(&store, "web:1", Outcome::Succeeded);
    create_token(&store, "kept");
    create_token(&store, "revoked");
    store.set_pin(&shop(), &pin(1)).unwrap();
    store.set_suspended(&AppName::from("frozen"), Suspension::Suspended).unwrap();
    let (object, reason, message) = ("web.1".to_owned(), "Pulled".to_owned(), "ready".to_owned());
    let (at, app, kind) = (NOW, shop(), EventKind::Normal);
    store.append_event(Event { sequence: 0, at, app, kind, reason, object, message, actor: None }).unwrap();
    drop(store);
    let before = [state.database(), state.backup()].map(|file| fs::read(file).unwrap());
    let store = Store::open(state, clock()).unwrap().store;
    assert_eq!(store.revoke_token("revoked").unwrap(), Some(0));
    store.clear_pin(&shop()).unwrap();
    store.set_suspended(&AppName::from("frozen"), Suspension::Active).unwrap();
    before
}

fn assert_revoked(store: &Store) {
    assert_eq!(token_names(store), ["kept"]);
    assert_eq!(store.pin(&shop()).unwrap(), None);
    assert!(!store.suspended(&AppName::from("frozen")).unwrap());
    assert_eq!(store.loss().unwrap(), None);
    assert_eq!(numbers(&store.revisions(&shop()).unwrap()), [1]);
}

#[test]
fn deleted_rows_of_a_damaged_database_do_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let [older, _] = revoked_state(&state);
    fs::write(state.database(), older).unwrap();
    drop_images(&state.database());
    let opened = Store::open(&state, clock()).unwrap();
    assert!(opened.recovered.unwrap().contains("restored from"));
    assert_revoked(&opened.store);
    assert_eq!(opened.store.events(0, 10, None).unwrap().len(), 1, "the backup has no events");
}

#[test]
fn damaged_database_counts_more_than_an_older_backup() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let [_, older] = revoked_state(&state);
    fs::write(state.backup(), older).unwrap();
    drop_images(&state.database());
    let opened = Store::open(&state, clock()).unwrap();
    assert!(opened.recovered.unwrap().contains("were read from it"));
    assert_revoked(&opened.store);
    drop(opened.store);
    assert_eq!(Store::open(&state, clock()).unwrap().recovered, None);
}

#[test]
fn older_backup_fills_the_gaps_of_a_damaged_database() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let [_, older] = revoked_state(&state);
    fs::write(state.backup(), older).unwrap();
    let connection = rusqlite::Connection::open(state.database()).unwrap();
    connection.execute_batch("DROP TABLE pins; DROP TABLE tokens").unwrap();
    drop(connection);
    let store = Store::open(&state, clock()).unwrap().store;
    assert_eq!(store.pin(&shop()).unwrap(), Some(pin(1)));
    let loss = store.loss().unwrap().unwrap();
    assert!(loss.contains("not all could be read of pins, and ") && loss.ends_with("is older"), "{loss}");
    assert!(!store.suspended(&AppName::from("frozen")).unwrap());
    assert!(token_names(&store).is_empty(), "one of them was revoked");
}

#[test]
fn backup_of_unknown_age_drops_no_suspension() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let [_, older] = revoked_state(&state);
    let store = Store::open(&state, clock()).unwrap().store;
    store.set_suspended(&shop(), Suspension::Suspended).unwrap();
    drop(store);
    fs::write(state.backup(), older).unwrap();
    // It has the number of the last change.
    let connection = rusqlite::Connection::open(state.database()).unwrap();
    connection.execute_batch("DROP TABLE meta").unwrap();
    drop(connection);
    let store = Store::open(&state, clock()).unwrap().store;
    assert!(store.suspended(&shop()).unwrap(), "only the damaged file has it");
    assert_eq!(store.pin(&shop()).unwrap(), Some(pin(1)), "only the backup has it");
    let loss = store.loss().unwrap().unwrap();
    assert!(loss.contains("it is not known whether"), "{loss}");
}

/// A state directory whose backup is older than its database, which has lost two tables. Returns the log of the database.
fn damaged_state(state: &StateDir) -> Vec<u8> {
    let store = Store::open(state, clock()).unwrap().store;
    store.agent_id().unwrap();
    run(&store, "web:1", Outcome::Succeeded);
    let older = fs::read(state.backup()).unwrap();
    store.set_pin(&shop(), &pin(1)).unwrap();
    let own_containers = [ContainerId("a".repeat(64))].into();
    store.save_record(&shop(), &Record { own_containers, ..Record::default() }).unwrap();
    for number in 0..20 {
        let (object, reason, message) = ("web.1".to_owned(), "Pulled".to_owned(), format!("event {number}"));
        let (at, app, kind) = (NOW, shop(), EventKind::Normal);
        store
            .append_event(Event { sequence: 0, at, app, kind, reason, object, message, actor: None })
            .unwrap();
    }
    let log = fs::read(state.path().join("driftless.db-wal")).unwrap();
    drop(store);
    fs::write(state.backup(), older).unwrap();
    let connection = rusqlite::Connection::open(state.database()).unwrap();
    connection.execute_batch("DROP TABLE suspensions; DROP TABLE images").unwrap();
    log
}

fn copy_state(from: &StateDir, to: &Path) -> StateDir {
    let copy = StateDir::lock(to).unwrap();
    for name in ["driftless.db", "driftless-backup.db", "database.key", "agent-id"] {
        fs::copy(from.path().join(name), to.join(name)).unwrap();
    }
    copy
}

/// The rows that a repair of [`damaged_state`] brings back.
fn assert_repaired(state: &StateDir, name: &str) {
    let Opened { store, recovered } = Store::open(state, clock()).unwrap();
    assert!(recovered.is_some() || name == "complete", "{name}");
    assert_eq!(store.pin(&shop()).unwrap(), Some(pin(1)), "{name}");
    assert_eq!(numbers(&store.revisions(&shop()).unwrap()), [1], "{name}");
    assert_eq!(store.record(&shop()).unwrap().own_containers.len(), 1, "{name}");
    assert_eq!(store.events(0, 100, None).unwrap().len(), 20, "{name}");
    let loss = store.loss().unwrap().unwrap_or_default();
    assert!(loss.contains("not all could be read of suspensions, and "), "{name}: {loss}");
    drop(store);
    let names = fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    let is_left = |file: &String| file.ends_with(".new") || file.ends_with(".repaired");
    assert!(!names.iter().any(is_left), "{name}: {names:?}");
    assert!(names.iter().any(|file| file.starts_with("driftless.db.corrupt-")), "{name}: {names:?}");
    assert_eq!(Store::open(state, clock()).unwrap().recovered, None, "{name}");
}

#[test]
fn interrupted_repair_is_finished_by_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = StateDir::lock(&folder.path().join("damaged")).unwrap();
    let log = damaged_state(&damaged);
    let undisturbed = copy_state(&damaged, &folder.path().join("undisturbed"));
    assert_repaired(&undisturbed, "undisturbed");
    let repaired = fs::read(undisturbed.database()).unwrap();

    let write =
        |state: &StateDir, name: &str, bytes: &[u8]| fs::write(state.path().join(name), bytes).unwrap();
    let move_aside = |state: &StateDir| {
        fs::rename(state.database(), state.path().join("driftless.db.corrupt-1")).unwrap();
    };
    type Interrupt<'a> = &'a dyn Fn(&StateDir);
    let stages: [(&str, Interrupt<'_>); 5] = [
        ("half built", &|state| write(state, "driftless.db.new", &repaired[..repaired.len() / 2])),
        ("built", &|state| write(state, "driftless.db.repaired", &repaired)),
        ("moved aside without the log", &|state| {
            write(state, "driftless.db.repaired", &repaired);
            write(state, "driftless.db-wal", &log);
            move_aside(state);
        }),
        ("moved aside", &|state| {
            write(state, "driftless.db.repaired", &repaired);
            move_aside(state);
        }),
        ("complete", &|state| {
            move_aside(state);
            write(state, "driftless.db", &repaired);
        }),
    ];
    for (number, (name, interrupt)) in stages.into_iter().enumerate() {
        let state = copy_state(&damaged, &folder.path().join(number.to_string()));
        interrupt(&state);
        assert_repaired(&state, name);
    }
}

#[test]
fn repair_that_fails_leaves_the_damaged_database() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    damaged_state(&state);
    let before = fs::read(state.database()).unwrap();
    // As on a full disk: no database can be built.
    let blocked = state.path().join("driftless.db.new");
    fs::create_dir(&blocked).unwrap();
    let refused = Store::open(&state, clock()).unwrap_err();
    assert!(refused.to_string().starts_with("could not repair the damaged database "), "{refused}");
    assert_eq!(fs::read(state.database()).unwrap(), before);
    fs::remove_dir(&blocked).unwrap();
    assert_repaired(&state, "repaired later");
}

#[test]
fn database_next_to_a_repaired_one_counts() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.agent_id().unwrap();
    let repaired = fs::read(state.backup()).unwrap();
    store.set_pin(&shop(), &pin(1)).unwrap();
    drop(store);
    // Somebody has put a database back after a repair that ended early.
    fs::write(state.path().join("driftless.db.repaired"), repaired).unwrap();
    let Opened { store, recovered } = Store::open(&state, clock()).unwrap();
    assert_eq!((recovered, store.pin(&shop()).unwrap()), (None, Some(pin(1))));
    assert!(!state.path().join("driftless.db.repaired").exists());
}
