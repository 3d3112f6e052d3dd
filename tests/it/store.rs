//! What is remembered across restarts, and the files that containers mount.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    time::Duration,
};

use driftless_clock::Clock;
use driftless_model::{
    Access, AppName, Attempt, Cause, CommitInfo, Container, ContainerId, Content, ContentId, Contents, Event,
    EventKind, Format, InPlace, InstanceId, Job, Location, Mount, MountSource, OnChange, Outcome, Pin,
    PullPolicy, Record, Revision, Stack, StackHash, Strategy, Timestamp, Until, Workload, WorkloadName,
    in_place_of, in_place_path,
};
use driftless_store::{ContentDir, Error, NewRevision, StateDir, Store, Suspension, Visibility};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn clock() -> Clock {
    Clock::starting_at(NOW)
}

fn shop() -> AppName {
    AppName::from("shop")
}

fn memory() -> Store {
    Store::in_memory(clock()).unwrap()
}

/// A stack that runs an image and mounts what it is given.
fn stack(image: &str, mounts: Vec<MountSource>) -> Stack {
    let mounts = mounts
        .into_iter()
        .enumerate()
        .map(|(index, source)| Mount { target: format!("/mnt/{index}"), source, read_only: true })
        .collect();
    let workload = Workload {
        origin: Location::file("compose.yaml"),
        replicas: 1,
        container: Container { image: image.to_owned(), mounts, ..Container::default() },
        parts: Vec::new(),
        container_name: None,
        strategy: Strategy::Recreate,
        min_ready: Duration::ZERO,
        progress_deadline: Duration::from_secs(600),
        revision_history_limit: 10,
        paused: false,
        after: vec![],
        probes: driftless_model::Probes::default(),
        pull: PullPolicy::IfNotPresent,
        pull_secrets: BTreeSet::new(),
        in_place: BTreeMap::new(),
        build: None,
        secret_env: BTreeSet::new(),
        completion: driftless_model::Completion::Never,
        member: None,
        update: Default::default(),
        job: None,
        cron: None,
    };
    Stack {
        app: shop(),
        format: Format::Compose,
        project: "shop".to_owned(),
        workloads: [(WorkloadName::from("web"), workload)].into(),
        networks: BTreeMap::new(),
        volumes: BTreeMap::new(),
        app_files: BTreeMap::new(),
        manifests: vec!["compose.yaml".to_owned()],
        inventory: Default::default(),
        given: None,
    }
}

fn new_revision() -> NewRevision {
    NewRevision {
        app: shop(),
        commit: CommitInfo {
            id: "c".repeat(40),
            subject: "Ship it".to_owned(),
            time: NOW,
            ..CommitInfo::default()
        },
        reference: "main".to_owned(),
        cause: Cause::Commit,
        changes: vec!["web: image".to_owned()],
        rollback_of: None,
    }
}

/// Begins and finishes a revision.
fn run(store: &Store, image: &str, outcome: Outcome) -> u64 {
    let number = store.begin_revision(&new_revision(), &stack(image, vec![])).unwrap().number;
    store.finish_revision(&shop(), number, &outcome, &BTreeMap::new()).unwrap();
    number
}

fn failed() -> Outcome {
    Outcome::Failed { reason: "it does not start".to_owned() }
}

fn numbers(revisions: &[Revision]) -> Vec<u64> {
    revisions.iter().map(|it| it.number).collect()
}

fn pin(revision: u64) -> Pin {
    Pin {
        revision,
        commit: "c".repeat(40),
        reason: "it broke".to_owned(),
        at: NOW,
        until: Until::NextCommit,
        skip: Some("d".repeat(40)),
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_was_remembered_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/state");
    let record = Record {
        ledger: [ContainerId("a".repeat(64))].into(),
        pulls: [("web:2".to_owned(), Attempt { count: 3, next: NOW, error: "not found".to_owned() })].into(),
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
        store.set_last_commit("infra", "abc").unwrap();
        let begun = store.begin_revision(&new_revision(), &stack("web:1", vec![])).unwrap();
        store.finish_revision(&shop(), begun.number, &Outcome::Succeeded, &images).unwrap();
        (store.agent_id().unwrap(), begun)
    };

    let state = StateDir::lock(&path).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    assert_eq!(store.agent_id().unwrap(), id);
    assert_eq!(store.record(&shop()).unwrap(), record);
    assert_eq!(store.pin(&shop()).unwrap(), Some(pin(1)));
    assert!(store.suspended(&shop()).unwrap());
    assert_eq!(store.last_commit("infra").unwrap().as_deref(), Some("abc"));
    assert_eq!(store.stack(&shop(), 1).unwrap(), Some(stack("web:1", vec![])));
    let known = store.known_applications().unwrap();
    assert_eq!((known.len(), &known[0].spec, known[0].repository.as_str()), (1, &spec, "infra"));
    let finished = store.current(&shop()).unwrap().unwrap();
    let expected = Revision { outcome: Outcome::Succeeded, images, finished: finished.finished, ..begun };
    assert_eq!(finished, expected);
    assert!(finished.finished.is_some());

    store.clear_pin(&shop()).unwrap();
    store.set_suspended(&shop(), Suspension::Active).unwrap();
    store.forget_application(&shop()).unwrap();
    assert_eq!(store.pin(&shop()).unwrap(), None);
    assert!(!store.suspended(&shop()).unwrap());
    assert!(store.known_applications().unwrap().is_empty());
}

#[test]
fn a_second_agent_is_refused_and_a_third_after_the_first_is_not() {
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
fn a_directory_of_others_is_not_taken_over() {
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
fn everything_in_the_state_directory_is_closed_to_others() {
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
fn what_is_on_the_disk_while_the_agent_lives_is_enough() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(&directory.path().join("killed")).unwrap();
    let store = Store::open(&state, clock()).unwrap().store;
    let id = store.agent_id().unwrap();
    let number = store.begin_revision(&new_revision(), &stack("web:1", vec![])).unwrap().number;
    store.set_pin(&shop(), &pin(number)).unwrap();

    // As after `kill -9`: the files as they are, with a log that nobody has put into the database.
    let after = StateDir::lock(&directory.path().join("after")).unwrap();
    for name in ["driftless.db", "driftless.db-wal"] {
        fs::copy(state.path().join(name), after.path().join(name)).unwrap();
    }
    let opened = Store::open(&after, clock()).unwrap();
    assert_eq!(opened.recovered, None);
    assert_eq!(opened.store.agent_id().unwrap(), id);
    assert_eq!(opened.store.pin(&shop()).unwrap(), Some(pin(number)));
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
    let ledger = [ContainerId("a".repeat(64))].into();
    store.save_record(&shop(), &Record { ledger, ..Record::default() }).unwrap();
    let other = rusqlite::Connection::open(state.database()).unwrap();
    other
        .execute_batch(
            "UPDATE revisions SET revision = '{}' WHERE number = 2; UPDATE records SET record = '[';
             UPDATE pins SET pin = '{}';",
        )
        .unwrap();
    assert_eq!(numbers(&store.revisions(&shop()).unwrap()), [1]);
    assert_eq!(store.record(&shop()).unwrap(), Record::default());
    assert!(matches!(store.pin(&shop()), Err(Error::Read { what: "a pin", .. })));
}

#[test]
fn damaged_database_is_moved_aside_and_the_agent_id_kept() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
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
fn a_database_of_a_later_release_is_left_alone() {
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

#[test]
fn plans_stored_by_older_releases_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::lock(dir.path()).unwrap();
    Store::open(&state, clock()).unwrap().store.set_pin(&shop(), &pin(3)).unwrap();
    let connection = rusqlite::Connection::open(state.database()).unwrap();
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

#[test]
fn newer_revision_supersedes_the_one_in_progress() {
    let store = memory();
    let first = store.begin_revision(&new_revision(), &stack("web:1", vec![])).unwrap();
    assert_eq!((first.number, &first.outcome), (1, &Outcome::InProgress));
    assert_eq!(first.stack, StackHash::of(&stack("web:1", vec![])));
    let second = store.begin_revision(&new_revision(), &stack("web:2", vec![])).unwrap();
    let first = store.revision(&shop(), 1).unwrap().unwrap();
    assert_eq!(first.outcome, Outcome::Superseded);
    assert!(first.finished.is_some());
    assert_eq!(numbers(&store.revisions(&shop()).unwrap()), [2, 1]);
    assert_eq!(store.current(&shop()).unwrap(), Some(second));
    assert_eq!(store.last_succeeded(&shop()).unwrap(), None);

    store.finish_revision(&shop(), 2, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    run(&store, "web:3", failed());
    assert_eq!(store.last_succeeded(&shop()).unwrap().map(|it| it.number), Some(2));
    assert_eq!(store.current(&shop()).unwrap().map(|it| it.outcome), Some(failed()));

    let other = NewRevision { app: AppName::from("other"), ..new_revision() };
    assert_eq!(
        store.begin_revision(&other, &stack("x", vec![])).unwrap().number,
        1,
        "each counts for itself"
    );
    // One that failed may still succeed; one that was superseded stays so.
    store.finish_revision(&shop(), 3, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    store.finish_revision(&shop(), 1, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    let outcomes: Vec<_> = store.revisions(&shop()).unwrap().into_iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, [Outcome::Succeeded, Outcome::Succeeded, Outcome::Superseded]);
    let missing = store.finish_revision(&shop(), 99, &Outcome::Succeeded, &BTreeMap::new()).unwrap_err();
    assert!(matches!(missing, Error::NoSuchRevision { number: 99, .. }));
}

#[test]
fn ten_good_and_ten_bad_revisions_are_kept_and_the_pinned_one() {
    let store = memory();
    let pinned = run(&store, "web:pinned", Outcome::Succeeded);
    store.set_pin(&shop(), &pin(pinned)).unwrap();
    let good = run(&store, "web:good", Outcome::Succeeded);
    for number in 0..30 {
        run(&store, &format!("web:bad-{number}"), failed());
    }
    assert_eq!(
        numbers(&store.revisions(&shop()).unwrap()),
        [32, 31, 30, 29, 28, 27, 26, 25, 24, 23, good, pinned]
    );
    for number in 0..12 {
        run(&store, &format!("web:{number}"), Outcome::Succeeded);
    }
    let kept = numbers(&store.revisions(&shop()).unwrap());
    assert_eq!(kept.len(), 21, "{kept:?}");
    assert_eq!(kept.last(), Some(&pinned));
    assert!(store.stack(&shop(), pinned).unwrap().is_some());
    assert!(store.stack(&shop(), good).unwrap().is_none());
    // A number is never used twice, even when the revision that had it is gone.
    assert_eq!(run(&store, "web:last", Outcome::Succeeded), 45);
}

#[test]
fn last_success_is_kept_across_many_failures() {
    let store = memory();
    let id = Content::file(*b"configuration").id();
    let mounted = stack("web:1", vec![MountSource::Content(id.clone())]);
    let first = store.begin_revision(&new_revision(), &mounted).unwrap().number;
    store.finish_revision(&shop(), first, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
    for _ in 0..25 {
        let number = store.begin_revision(&new_revision(), &mounted).unwrap().number;
        store.finish_revision(&shop(), number, &failed(), &BTreeMap::new()).unwrap();
    }
    assert_eq!(store.last_succeeded(&shop()).unwrap().map(|it| it.number), Some(first));
    assert_eq!(store.stack(&shop(), first).unwrap(), Some(mounted));
    assert_eq!(store.contents_in_use().unwrap(), BTreeSet::from([id]));
}

#[test]
fn contents_are_in_use_as_long_as_a_stored_stack_names_them() {
    let store = memory();
    let [public, secret, tracked] = [*b"public", *b"secret", *b"trackd"].map(|it| Content::file(it).id());
    let mut full =
        stack("web:1", vec![MountSource::Content(public.clone()), MountSource::Secret(secret.clone())]);
    full.app_files.insert("a".to_owned(), tracked.clone());
    let number = store.begin_revision(&new_revision(), &full).unwrap().number;
    store.finish_revision(&shop(), number, &failed(), &BTreeMap::new()).unwrap();
    assert_eq!(store.contents_in_use().unwrap(), BTreeSet::from([public, secret, tracked]));
    for _ in 0..11 {
        run(&store, "web:2", failed());
    }
    assert_eq!(store.contents_in_use().unwrap(), BTreeSet::new());
}

#[test]
fn events_are_numbered_and_read_on_from_where_a_reader_was() {
    let store = memory();
    let event = |app: &str, message: &str| Event {
        sequence: 77,
        at: NOW,
        app: AppName::from(app),
        kind: EventKind::Normal,
        reason: "Pulled".to_owned(),
        object: "web.1".to_owned(),
        message: message.to_owned(),
    };
    for message in ["a", "b", "c"] {
        store.append_event(event("shop", message)).unwrap();
        store.append_event(event("other", message)).unwrap();
    }
    let told = |events: Vec<Event>| -> Vec<(u64, String)> {
        events.into_iter().map(|it| (it.sequence, it.message)).collect()
    };
    let of = |pairs: &[(u64, &str)]| pairs.iter().map(|it| (it.0, it.1.to_owned())).collect::<Vec<_>>();
    assert_eq!(told(store.events(3, 2, None).unwrap()), of(&[(4, "b"), (5, "c")]));
    assert_eq!(told(store.events(1, 10, Some(&shop())).unwrap()), of(&[(3, "b"), (5, "c")]));
    assert_eq!(told(store.newest_events(2, Some(&shop())).unwrap()), of(&[(3, "b"), (5, "c")]));
    assert_eq!(told(store.events(6, 10, None).unwrap()), []);
    assert_eq!(store.events(u64::MAX, usize::MAX, None).unwrap(), []);
}

#[test]
fn the_newest_ten_thousand_events_are_kept() {
    let store = memory();
    for number in 0..10_050 {
        let event = Event {
            sequence: 0,
            at: NOW,
            app: shop(),
            kind: EventKind::Warning,
            reason: "BackOff".to_owned(),
            object: String::new(),
            message: number.to_string(),
        };
        store.append_event(event).unwrap();
    }
    let events = store.events(0, usize::MAX, None).unwrap();
    assert_eq!((events.len(), events[0].sequence, events[9999].sequence), (10_000, 51, 10_050));
}

/// A state directory with contents, and a runtime directory on a memory file system.
struct Files {
    directory: tempfile::TempDir,
    _runtime: tempfile::TempDir,
    state: StateDir,
    dir: ContentDir,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tempfile::tempdir_in("/dev/shm").unwrap();
        let state = StateDir::lock(&directory.path().join("state")).unwrap();
        let dir = ContentDir::open(&state, runtime.path(), clock()).unwrap();
        Self { directory, _runtime: runtime, state, dir }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.dir.app_folder(&shop())
    }

    /// Syncs tracked files, given as path and text.
    fn sync(&self, files: &[(&str, &str)]) -> Result<(), Error> {
        let (ids, contents) = tracked(files);
        self.dir.sync_app_files(&shop(), &ids, &contents)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.folder().join(path)).unwrap()
    }
}

fn tracked(files: &[(&str, &str)]) -> (BTreeMap<String, ContentId>, Contents) {
    let contents = files.iter().map(|it| Content::file(it.1.as_bytes()));
    let ids = files.iter().zip(contents.clone()).map(|(file, it)| (file.0.to_owned(), it.id())).collect();
    (ids, contents.map(|it| (it.id(), it)).collect())
}

fn folder_content(files: &[(&str, &str, bool)]) -> Content {
    Content::Folder(
        files.iter().map(|it| (it.0.to_owned(), (it.1.as_bytes().into(), Access::of(it.2)))).collect(),
    )
}

fn one(content: Content) -> (ContentId, Contents) {
    let id = content.id();
    (id.clone(), [(id, content)].into())
}

#[test]
fn contents_are_materialised_read_only_for_any_user() {
    let files = Files::new();
    let (file, contents) = one(Content::file(*b"hello"));
    files.dir.materialise(&contents, Visibility::Public).unwrap();
    let path = files.dir.path(&file, Visibility::Public);
    assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"hello"[..], 0o444));

    let (script, contents) = one(Content::File { bytes: (*b"#!").into(), executable: true });
    files.dir.materialise(&contents, Visibility::Public).unwrap();
    assert_eq!(mode(&files.dir.path(&script, Visibility::Public)), 0o555);

    let (folder, contents) = one(folder_content(&[("a/b/c", "deep", false), ("run", "#!", true)]));
    files.dir.materialise(&contents, Visibility::Public).unwrap();
    let path = files.dir.path(&folder, Visibility::Public);
    assert_eq!(fs::read_to_string(path.join("a/b/c")).unwrap(), "deep");
    assert_eq!((mode(&path), mode(&path.join("a/b")), mode(&path.join("run"))), (0o755, 0o755, 0o555));

    let group = fs::metadata(&path).unwrap().gid();
    let asked = Access::asked(0o600, Some(group));
    let tree = [("key".to_owned(), (b"secret".as_slice().into(), asked))];
    let (closed, contents) = one(Content::Folder(tree.into()));
    assert_ne!(closed, one(folder_content(&[("key", "secret", false)])).0, "who may read it is part of it");
    files.dir.materialise(&contents, Visibility::Public).unwrap();
    let found = fs::metadata(files.dir.path(&closed, Visibility::Public).join("key")).unwrap();
    assert_eq!((found.mode() & 0o777, found.gid()), (0o440, group), "the group may read it");

    // Once more: what is there is not written again.
    let (_, contents) = one(folder_content(&[("a/b/c", "deep", false), ("run", "#!", true)]));
    let before = fs::metadata(&path).unwrap().ino();
    files.dir.materialise(&contents, Visibility::Public).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), before);
}

#[test]
fn a_half_written_content_is_never_taken_for_a_whole_one() {
    let files = Files::new();
    let folder = files.dir.folder(Visibility::Public).to_owned();
    let (id, contents) = one(folder_content(&[("a", "whole", false)]));
    let half = folder.join(format!(".new-0-{}", id.0));
    fs::create_dir(&half).unwrap();
    fs::write(half.join("a"), "ha").unwrap();
    // The next start clears it away.
    let dir = ContentDir::open(&files.state, Path::new("/run/driftless"), clock()).unwrap();
    dir.materialise(&contents, Visibility::Public).unwrap();
    let path = dir.path(&id, Visibility::Public);
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "whole");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_copy_to_be_rewritten_is_its_instances_own_and_goes_with_it() {
    let files = Files::new();
    let (one, mut contents) = one(Content::file(*b"one, and long"));
    let other = Content::File { bytes: (*b"two").into(), executable: true };
    let two = other.id();
    contents.insert(two.clone(), other);
    files.dir.materialise(&contents, Visibility::Public).unwrap();
    files.dir.materialise(&contents, Visibility::Secret).unwrap();
    let instance = |slot| InstanceId { workload: "web".into(), slot };
    let hold = |content: &ContentId, secret| {
        let on_change = OnChange::None;
        BTreeMap::from([("/etc/a".to_owned(), InPlace { content: content.clone(), secret, on_change })])
    };
    let place = |slot, visibility| {
        files.dir.folder(visibility).join(in_place_path(&shop(), &instance(slot), "/etc/a", false))
    };
    for (visibility, secret) in [(Visibility::Public, false), (Visibility::Secret, true)] {
        let (first, second) = (place(1, visibility), place(2, visibility));
        files.dir.write_in_place(&shop(), &instance(1), &hold(&one, secret)).unwrap();
        files.dir.write_in_place(&shop(), &instance(2), &hold(&one, secret)).unwrap();
        let inode = fs::metadata(&first).unwrap().ino();
        files.dir.write_in_place(&shop(), &instance(1), &hold(&two, secret)).unwrap();
        assert_eq!(fs::read(&first).unwrap(), *b"two");
        assert_eq!((fs::metadata(&first).unwrap().ino(), mode(&first)), (inode, 0o555));
        assert_eq!(fs::read(&second).unwrap(), *b"one, and long");
        assert_eq!(mode(first.parent().unwrap()), 0o700);
    }
    // Contents are collected, copies are not: what they hold is nobody else's to need.
    assert_eq!(files.dir.collect(&BTreeSet::new(), Duration::ZERO).unwrap(), 4);
    files.dir.keep_in_place(&shop(), &BTreeSet::from([instance(2)])).unwrap();
    assert!(!place(1, Visibility::Public).exists() && !place(1, Visibility::Secret).exists());
    assert!(place(2, Visibility::Public).exists() && place(2, Visibility::Secret).exists());
    let missing = files.dir.write_in_place(&shop(), &instance(2), &hold(&one, false)).unwrap_err();
    assert!(matches!(missing, Error::NoSuchContent { .. }));
    files.dir.keep_in_place(&shop(), &BTreeSet::new()).unwrap();
    assert!(!files.dir.folder(Visibility::Public).join(in_place_of(&shop())).exists());
}

#[test]
fn many_may_ask_for_the_same_content_at_once() {
    let files = Files::new();
    for round in 0..20 {
        let text = format!("{round}");
        let (folder, mut contents) = one(folder_content(&[("a/b", &text, false), ("c", &text, false)]));
        contents.extend(one(Content::file(text.into_bytes())).1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| files.dir.materialise(&contents, Visibility::Public).unwrap());
            }
        });
        assert!(files.dir.path(&folder, Visibility::Public).join("a/b").exists());
    }
    assert_eq!(fs::read_dir(files.dir.folder(Visibility::Public)).unwrap().count(), 40);
}

#[test]
fn secrets_stay_in_memory_or_are_refused() {
    let files = Files::new();
    let (id, contents) = one(Content::file(*b"hunter2"));
    files.dir.materialise(&contents, Visibility::Secret).unwrap();
    let path = files.dir.path(&id, Visibility::Secret);
    assert!(path.starts_with("/dev/shm"));
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o444, 0o700));

    let state = StateDir::lock(&files.directory.path().join("other")).unwrap();
    let on_disk = ContentDir::open(&state, Path::new("/sys/driftless"), clock()).unwrap();
    let refused = on_disk.materialise(&contents, Visibility::Secret).unwrap_err();
    assert!(matches!(&refused, Error::NotInMemory { kind, .. } if kind == "sysfs"), "{refused}");
    assert!(!refused.to_string().contains("hunter2"));
    assert_eq!(fs::read_dir(on_disk.folder(Visibility::Public)).unwrap().count(), 0);

    // Another agent would clear away what it does not know.
    let shared = ContentDir::open(&state, path.parent().unwrap().parent().unwrap(), clock()).unwrap();
    assert!(matches!(shared.materialise(&contents, Visibility::Secret), Err(Error::RuntimeInUse { .. })));
}

#[test]
fn an_id_that_is_no_digest_is_no_path() {
    let files = Files::new();
    let contents = Contents::from([(ContentId("../../evil".to_owned()), Content::file(*b"x"))]);
    let refused = files.dir.materialise(&contents, Visibility::Public).unwrap_err();
    assert!(matches!(refused, Error::NoSuchContent { .. }));
    let (id, contents) = one(folder_content(&[("../../evil", "x", false)]));
    files.dir.materialise(&contents, Visibility::Public).unwrap_err();
    assert!(!files.dir.path(&id, Visibility::Public).exists());
    assert!(!files.directory.path().join("evil").exists());
}

#[test]
fn only_what_is_old_and_unused_is_collected() {
    let files = Files::new();
    let (used, contents) = one(Content::file(*b"used"));
    files.dir.materialise(&contents, Visibility::Public).unwrap();
    let (unused, contents) = one(folder_content(&[("a/b", "unused", false)]));
    files.dir.materialise(&contents, Visibility::Public).unwrap();
    let (secret, contents) = one(Content::file(*b"secret"));
    files.dir.materialise(&contents, Visibility::Secret).unwrap();
    let in_use = BTreeSet::from([used.clone()]);
    assert_eq!(files.dir.collect(&in_use, Duration::from_secs(3600)).unwrap(), 0, "they are young");
    assert_eq!(files.dir.collect(&in_use, Duration::ZERO).unwrap(), 2);
    assert!(files.dir.path(&used, Visibility::Public).exists());
    assert!(!files.dir.path(&unused, Visibility::Public).exists());
    assert!(!files.dir.path(&secret, Visibility::Secret).exists());
}

#[test]
fn a_stack_is_prepared_from_memory_and_later_from_the_disk() {
    let files = Files::new();
    let [(public, a), (secret, b), (page, c)] =
        [one(Content::file(*b"public")), one(Content::file(*b"secret")), one(Content::file(*b"page"))];
    let mut wanted = stack(
        "web:1",
        vec![
            MountSource::Content(public.clone()),
            MountSource::Secret(secret.clone()),
            MountSource::AppFolder("data/cache".to_owned()),
            MountSource::AppFolder("www/index.html".to_owned()),
            MountSource::AppFolder(".".to_owned()),
        ],
    );
    wanted.app_files.insert("www/index.html".to_owned(), page);
    let missing = files.dir.prepare(&wanted, &Contents::new()).unwrap_err();
    assert!(matches!(missing, Error::NoSuchContent { .. }), "{missing}");
    let all: Contents = a.into_iter().chain(b).chain(c).collect();
    files.dir.prepare(&wanted, &all).unwrap();
    assert_eq!(files.text("www/index.html"), "page");
    assert!(files.folder().join("data/cache").is_dir());
    assert!(!files.dir.path(&secret, Visibility::Public).exists());
    assert!(!files.dir.path(&public, Visibility::Secret).exists());

    fs::remove_file(files.folder().join("www/index.html")).unwrap();
    files.dir.prepare(&wanted, &Contents::new()).unwrap();
    assert_eq!(files.text("www/index.html"), "page");
}

#[test]
fn missing_secret_of_an_old_cron_run_blocks_nothing() {
    let files = Files::new();
    let [(now, contents), (before, _)] = [one(Content::file(*b"new")), one(Content::file(*b"old"))];
    let mut wanted = stack("web:1", vec![MountSource::Secret(now.clone())]);
    let mut run = stack("report:1", vec![MountSource::Secret(before)]).workloads.pop_first().unwrap().1;
    run.job = Some(Job {
        of: "report-1".into(),
        cron: Some("report".into()),
        ordinal: 0,
        completions: Some(1),
        parallelism: 1,
        indexed: false,
        backoff_limit: 0,
        active_deadline: None,
        ttl: None,
        suspended: false,
        fresh: true,
    });
    wanted.workloads.insert("report-1".into(), run.clone());
    files.dir.prepare(&wanted, &contents).unwrap();
    assert!(files.dir.path(&now, Visibility::Secret).exists());
    // What Git asks for has to be there.
    run.job = None;
    wanted.workloads.insert("report-1".into(), run);
    assert!(files.dir.prepare(&wanted, &contents).is_err());
}

#[test]
fn tracked_files_follow_git_and_untracked_ones_are_left_alone() {
    let files = Files::new();
    files.sync(&[("a.conf", "1"), ("www/index.html", "1"), ("gone", "1"), ("taken", "1")]).unwrap();
    fs::write(files.folder().join("www/upload"), "precious").unwrap();
    fs::write(files.folder().join("a.conf"), "changed by its container").unwrap();
    fs::write(files.folder().join("taken"), "changed by its container").unwrap();

    files.sync(&[("a.conf", "1"), ("www/index.html", "2")]).unwrap();
    assert_eq!(files.text("a.conf"), "changed by its container");
    assert_eq!(files.text("www/index.html"), "2");
    assert_eq!(files.text("www/upload"), "precious");
    assert_eq!(files.text("taken"), "changed by its container");
    assert!(!files.folder().join("gone").exists());

    files.sync(&[("a.conf", "3")]).unwrap();
    assert_eq!(files.text("a.conf"), "3");
    files.sync(&[]).unwrap();
    assert_eq!(files.text("www/upload"), "precious");
    let left: Vec<_> = fs::read_dir(files.folder()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(!left.contains(&"a.conf".into()), "{left:?}");
}

#[test]
fn a_folder_of_tracked_files_is_taken_apart() {
    let files = Files::new();
    let (id, contents) = one(folder_content(&[("x/y", "1", true), ("z", "2", false)]));
    files.dir.sync_app_files(&shop(), &[("site".to_owned(), id)].into(), &contents).unwrap();
    assert_eq!((files.text("site/x/y"), files.text("site/z")), ("1".to_owned(), "2".to_owned()));
    assert_eq!(
        (mode(&files.folder().join("site/x/y")), mode(&files.folder().join("site/z"))),
        (0o755, 0o644)
    );
}

#[test]
fn paths_out_of_the_folder_are_refused() {
    let files = Files::new();
    for path in ["../evil", "/etc/evil", "a/../../evil", "a//b", "", ".", "a/./b"] {
        let refused = files.sync(&[(path, "x")]).unwrap_err();
        assert!(matches!(refused, Error::Unsafe { .. }), "{path}: {refused}");
    }
    for path in ["../evil", "/etc", "a/.."] {
        let refused = files.dir.ensure_app_folder(&shop(), path).unwrap_err();
        assert!(matches!(refused, Error::Unsafe { .. }), "{path}: {refused}");
    }
}

#[test]
fn links_that_a_container_planted_lead_nowhere() {
    let files = Files::new();
    let outside = files.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("passwd"), "root").unwrap();
    files.sync(&[("www/passwd", "ours")]).unwrap();

    // In the place of a folder on the way: nothing is written or removed through it.
    fs::remove_dir_all(files.folder().join("www")).unwrap();
    for place in [outside.as_path(), Path::new("../../../outside"), Path::new("/nowhere")] {
        symlink(place, files.folder().join("www")).unwrap();
        let refused = files.sync(&[("www/passwd", "evil")]).unwrap_err();
        assert!(matches!(refused, Error::Unsafe { .. }), "{refused}");
        let refused = files.dir.ensure_app_folder(&shop(), "www/new").unwrap_err();
        assert!(matches!(refused, Error::Unsafe { .. }), "{refused}");
        let refused = files.dir.ensure_app_folder(&shop(), "www").unwrap_err();
        assert!(matches!(refused, Error::Unsafe { .. }), "{refused}");
        fs::remove_file(files.folder().join("www")).unwrap();
    }
    fs::write(outside.join("passwd"), "ours").unwrap();
    symlink(&outside, files.folder().join("www")).unwrap();
    files.sync(&[]).unwrap();
    assert_eq!(fs::read_to_string(outside.join("passwd")).unwrap(), "ours");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);

    // In the place of the file itself: the link is replaced, what it points at is not.
    fs::remove_file(files.folder().join("www")).unwrap();
    symlink(outside.join("passwd"), files.folder().join("page")).unwrap();
    files.sync(&[("page", "new")]).unwrap();
    assert_eq!(fs::read_to_string(outside.join("passwd")).unwrap(), "ours");
    assert!(files.folder().join("page").symlink_metadata().unwrap().is_file());
}

#[test]
fn a_named_pipe_in_the_place_of_a_file_holds_nobody_up() {
    let files = Files::new();
    files.sync(&[("page", "1"), ("www/page", "1")]).unwrap();
    for path in ["page", "www"] {
        let path = files.folder().join(path);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    files.sync(&[]).unwrap();
    let refused = files.sync(&[("www/page", "2")]).unwrap_err();
    assert!(refused.to_string().contains("www/page"), "{refused}");
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
        for file in ["driftless.db", "driftless.db-wal", "driftless-backup.db", "agent-id"] {
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
        store.append_event(Event { sequence: 0, at, app, kind, reason, object, message }).unwrap();
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
    store.clear_loss().unwrap();
    assert_eq!(store.loss().unwrap(), None);
}
