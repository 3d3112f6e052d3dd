//! Encryption at rest: what the files of the state directory reveal, and what a lost key costs.

use std::{fs, path::Path};

use driftless_model::{AppName, ImageRetention, Outcome, Record, Stack, WorkloadName};
use driftless_store::{Error, StateDir, Store};

use super::*;

const PLANTED: &str = "PLANTED-in-a-variable";

fn with_secret(image: &str) -> Stack {
    let mut stack = stack(image, vec![]);
    let web = stack.workloads.get_mut(&WorkloadName::from("web")).unwrap();
    web.container.env.insert("DB_PASSWORD".to_owned(), Some(PLANTED.to_owned()));
    stack
}

fn record() -> Record {
    Record { held: with_secret("held:1").workloads, ..Record::default() }
}

fn deploy(store: &Store, image: &str) -> u64 {
    let number = store.begin_revision(&new_revision(), &with_secret(image)).unwrap().number;
    store.finish_revision(&shop(), number, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    store.save_record(&shop(), &record()).unwrap();
    number
}

/// The files of a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let has_text = |path: &std::path::PathBuf| {
        let bytes = if path.is_file() { fs::read(path).unwrap() } else { Vec::new() };
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    files.filter(has_text).map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn no_file_of_the_state_directory_holds_a_value() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    let number = deploy(&store, "web:1");
    store.set_pin(&shop(), &pin(number)).unwrap();
    assert_eq!(files_with(directory.path(), PLANTED), [""; 0]);
    // Text that is not secret can be found, so the search works.
    assert!(!files_with(directory.path(), "Ship it").is_empty());
    assert_eq!(mode(&directory.path().join("database.key")), 0o600);

    drop(store);
    let store = Store::open(&state, clock()).unwrap().store;
    assert_eq!(store.stack(&shop(), number).unwrap(), Some(with_secret("web:1")));
    assert_eq!(store.record(&shop()).unwrap(), record());
    assert_eq!(files_with(directory.path(), PLANTED), [""; 0]);
}

/// As the release before encryption wrote it.
fn store_as_text(database: &Path, stacks: &[Stack], records: &[(AppName, Record)]) {
    let connection = rusqlite::Connection::open(database).unwrap();
    for stack in stacks {
        let hash = driftless_model::StackHash::of(stack).0;
        let text = serde_json::to_string(stack).unwrap();
        connection.execute("UPDATE stacks SET stack = ?2 WHERE hash = ?1", [hash, text]).unwrap();
    }
    for (app, record) in records {
        let text = serde_json::to_string(record).unwrap();
        connection.execute("UPDATE records SET record = ?2 WHERE app = ?1", [app.as_str(), &text]).unwrap();
    }
    connection.execute("DELETE FROM meta WHERE key IN ('key_id', 'all_encrypted')", []).unwrap();
    make_older(&connection);
}

#[test]
fn rows_of_older_releases_are_encrypted_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    let number = deploy(&store, "web:1");
    drop(store);
    fs::remove_file(directory.path().join("database.key")).unwrap();
    store_as_text(&state.database(), &[with_secret("web:1")], &[(shop(), record())]);
    store_as_text(&state.backup(), &[with_secret("web:1")], &[]);
    let clear = files_with(directory.path(), PLANTED);
    assert!(clear.contains(&"driftless.db".to_owned()), "{clear:?}");
    assert!(clear.contains(&"driftless-backup.db".to_owned()), "{clear:?}");

    let opened = Store::open(&state, clock()).unwrap();
    assert_eq!(opened.recovered, None);
    assert_eq!(files_with(directory.path(), PLANTED), [""; 0]);
    assert_eq!(opened.store.stack(&shop(), number).unwrap(), Some(with_secret("web:1")));
    assert_eq!(opened.store.record(&shop()).unwrap(), record());
    assert_eq!(opened.store.loss().unwrap(), None);
}

#[test]
fn interrupted_encryption_is_finished_by_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    deploy(&store, "web:1");
    drop(store);
    // The agent was killed after the rows of the database were encrypted, and before those of the backup.
    let connection = rusqlite::Connection::open(state.database()).unwrap();
    connection.execute("DELETE FROM meta WHERE key = 'all_encrypted'", []).unwrap();
    connection
        .execute_batch(&format!("CREATE TABLE free (text TEXT); INSERT INTO free VALUES ('{PLANTED}')"))
        .unwrap();
    connection.execute_batch("DROP TABLE free").unwrap();
    drop(connection);
    let backup = rusqlite::Connection::open(state.backup()).unwrap();
    let text = serde_json::to_string(&with_secret("web:1")).unwrap();
    backup.execute("UPDATE stacks SET stack = ?1", [text]).unwrap();
    drop(backup);
    assert_eq!(files_with(directory.path(), PLANTED).len(), 2);

    drop(Store::open(&state, clock()).unwrap());
    assert_eq!(files_with(directory.path(), PLANTED), [""; 0]);
}

#[test]
fn lost_key_costs_stored_stacks_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    let number = deploy(&store, "web:1");
    let id = store.agent_id().unwrap();
    drop(store);
    fs::remove_file(directory.path().join("database.key")).unwrap();

    let opened = Store::open(&state, clock()).unwrap();
    let message = opened.recovered.unwrap();
    assert!(message.contains("database.key is not the key that the agent used before"), "{message}");
    let store = opened.store;
    assert_eq!(store.loss().unwrap(), None, "no pin is lost");
    assert_eq!(store.agent_id().unwrap(), id);
    assert_eq!(store.stack(&shop(), number).unwrap(), None);
    assert_eq!(store.record(&shop()).unwrap(), Record::default());
    assert_eq!(numbers(&store.revisions(&shop()).unwrap()), [number]);

    store.store_stack_again(&with_secret("web:1")).unwrap();
    store.save_record(&shop(), &record()).unwrap();
    assert_eq!(deploy(&store, "web:2"), number + 1);
    drop(store);
    let opened = Store::open(&state, clock()).unwrap();
    assert_eq!(opened.recovered, None, "it is reported once");
    assert_eq!(opened.store.stack(&shop(), number).unwrap(), Some(with_secret("web:1")));
    assert_eq!(opened.store.record(&shop()).unwrap(), record());
}

#[test]
fn lost_key_of_a_pinned_revision_is_a_loss_of_state() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    let number = deploy(&store, "web:1");
    store.set_pin(&shop(), &pin(number)).unwrap();
    drop(store);
    fs::write(directory.path().join("database.key"), [7; 32]).unwrap();

    let store = Store::open(&state, clock()).unwrap().store;
    let loss = store.loss().unwrap().unwrap();
    assert!(loss.contains("the pinned revisions of shop cannot be read"), "{loss}");
    assert_eq!(store.pin(&shop()).unwrap(), Some(pin(number)));
}

#[test]
fn configured_key_file_is_used_and_never_created() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(&directory.path().join("state")).unwrap();
    let key = directory.path().join("key");
    let refused = Store::open_with_key(&state, &key, clock()).unwrap_err();
    assert!(matches!(refused, Error::Directory { .. }), "{refused}");
    assert!(!key.exists());
    fs::write(&key, [7; 16]).unwrap();
    Store::open_with_key(&state, &key, clock()).unwrap_err();

    fs::write(&key, [7; 32]).unwrap();
    let number = deploy(&Store::open_with_key(&state, &key, clock()).unwrap().store, "web:1");
    let store = Store::open_with_key(&state, &key, clock()).unwrap().store;
    assert_eq!(store.stack(&shop(), number).unwrap(), Some(with_secret("web:1")));
    assert!(!state.path().join("database.key").exists());
}

#[test]
fn encrypted_rows_survive_a_damaged_database() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    let number = deploy(&store, "web:1");
    drop(store);
    fs::remove_file(state.backup()).unwrap();
    let connection = rusqlite::Connection::open(state.database()).unwrap();
    connection.execute_batch("DROP TABLE events").unwrap();
    drop(connection);

    let opened = Store::open(&state, clock()).unwrap();
    assert!(opened.recovered.is_some());
    assert_eq!(opened.store.stack(&shop(), number).unwrap(), Some(with_secret("web:1")));
    assert_eq!(opened.store.record(&shop()).unwrap(), record());
}

#[test]
fn lost_key_of_a_removed_application_keeps_no_images() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    store.remember_application(&shop(), &serde_json::json!({"path": "shop"}), "infra").unwrap();
    let number = deploy(&store, "web:1");
    drop(store);
    fs::remove_file(directory.path().join("database.key")).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    let needed = || store.revision_images(&ImageRetention::default()).unwrap();
    assert_eq!(needed(), Err((shop(), number)), "the key may come back");
    store.forget_application(&shop()).unwrap();
    assert_eq!(needed(), Ok(Vec::new()));
}
