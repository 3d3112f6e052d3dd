//! Backups of the state directory and their restoration.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use driftless_clock::Clock;
use driftless_store::{Error, RestoreOptions, StateDir, Store, back_up, restore};

const REPLACE: RestoreOptions = RestoreOptions { replace: true, force: false };

#[test]
fn restored_directory_has_the_id_and_the_files_of_applications() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new, file) =
        (folder.path().join("old"), folder.path().join("new"), folder.path().join("backup.tar"));
    let state = StateDir::lock(&old).unwrap();
    let store = Store::open(&state, Clock::System).unwrap().store;
    let id = store.agent_id().unwrap();
    let data = old.join("applications/shop/data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("orders"), "one").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", data.join("link")).unwrap();
    // The agent and the containers run on: a socket is no file, and a log grows while it is read.
    let _socket = std::os::unix::net::UnixListener::bind(data.join("socket")).unwrap();
    fs::write(data.join("log"), "line\n".repeat(1 << 20)).unwrap();
    // Its holes take no room in the archive.
    let disk = fs::File::create(data.join("disk")).unwrap();
    disk.set_len(1 << 30).unwrap();
    disk.write_all_at(b"end", (1 << 30) - 3).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (stop, log) = (Arc::clone(&stop), data.join("log"));
        move || {
            while !stop.load(Ordering::Relaxed) {
                let mut log = fs::OpenOptions::new().append(true).open(&log).unwrap();
                log.write_all(&[b'x'; 700]).unwrap();
            }
        }
    });
    let left_out = back_up(&old, &file).unwrap();
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(left_out, [Path::new("applications/shop/data/socket")]);
    let key = fs::read(old.join("database.key")).unwrap();
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.len() < 100 << 20, "{}", bytes.len());
    assert!(!bytes.windows(key.len()).any(|window| window == key), "the key stays out");
    assert!(back_up(&old, &file).is_err(), "a backup is never replaced");
    assert_eq!(fs::read(&file).unwrap(), bytes);
    drop(store);

    restore(&file, &new, RestoreOptions::default()).unwrap();
    assert_eq!(fs::read_to_string(new.join("applications/shop/data/orders")).unwrap(), "one");
    assert_eq!(fs::read_link(new.join("applications/shop/data/link")).unwrap().to_str(), Some("/etc/passwd"));
    let disk = fs::File::open(new.join("applications/shop/data/disk")).unwrap();
    let mut end = [0; 3];
    disk.read_exact_at(&mut end, (1 << 30) - 3).unwrap();
    assert_eq!((disk.metadata().unwrap().len(), &end), (1 << 30, b"end"));
    fs::write(new.join("database.key"), &key).unwrap();
    let restored = StateDir::lock(&new).unwrap();
    assert!(restore(&file, &new, REPLACE).is_err(), "an agent uses it");
    let opened = Store::open(&restored, Clock::System).unwrap();
    assert_eq!((opened.store.agent_id().unwrap(), opened.recovered), (id, None));
    drop((opened.store, restored));
    assert!(
        restore(&file, &new, RestoreOptions::default()).is_err(),
        "a database is replaced only on request"
    );
    // All that was there before is kept, each time.
    fs::write(new.join("applications/shop/data/orders"), "two").unwrap();
    restore(&file, &new, REPLACE).unwrap();
    restore(&file, &new, REPLACE).unwrap();
    assert!(!new.join("restore.new").exists());
    let orders =
        |folder: &str| fs::read_to_string(new.join(folder).join("applications/shop/data/orders")).unwrap();
    assert_eq!([orders("."), orders("before-restore"), orders("before-restore-2")], ["one", "two", "one"]);
    assert!(new.join("before-restore/driftless.db").is_file());
    assert!(!new.join("driftless.db-wal").exists());
}

/// A process with a bind mount in a mount namespace of its own, as a container has it.
struct Mounting(Child);

impl Mounting {
    /// `None`: only root may mount.
    fn of(source: &Path, target: &Path) -> Option<Self> {
        fs::create_dir_all(target).unwrap();
        let script = r#"mount --bind "$0" "$1" && echo mounted && exec cat"#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).args([source, target]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut()?).read_line(&mut line).unwrap();
        let this = Self(child);
        (line == "mounted\n").then_some(this)
    }
}

impl Drop for Mounting {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn folders_of_running_containers_are_not_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (old, file) = (folder.path().join("old"), folder.path().join("backup.tar"));
    let state = StateDir::lock(&old).unwrap();
    Store::open(&state, Clock::System).unwrap().store.agent_id().unwrap();
    for name in ["shop/data", "mail/data"] {
        fs::create_dir_all(old.join("applications").join(name)).unwrap();
    }
    back_up(&old, &file).unwrap();
    drop(state);
    let Some(container) = Mounting::of(&old.join("applications/shop/data"), &folder.path().join("mnt"))
    else {
        eprintln!("left out: this user may not mount");
        return;
    };
    match restore(&file, &old, REPLACE).unwrap_err() {
        Error::FoldersInUse { directory, applications } => {
            assert_eq!((directory, applications.as_str()), (old.join("applications"), "shop"));
        }
        error => panic!("{error:?}"),
    }
    assert!(old.join("driftless.db").is_file() && !old.join("before-restore").exists());
    assert!(!old.join("restore.new").exists());
    let forced = RestoreOptions { force: true, ..REPLACE };
    assert_eq!(restore(&file, &old, forced).unwrap(), ["shop"]);
    drop(container);
    assert!(restore(&file, &old, REPLACE).unwrap().is_empty());
}

#[test]
fn broken_backup_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (old, file) = (folder.path().join("old"), folder.path().join("backup.tar"));
    let state = StateDir::lock(&old).unwrap();
    let store = Store::open(&state, Clock::System).unwrap().store;
    let id = store.agent_id().unwrap();
    back_up(&old, &file).unwrap();
    drop((store, state));
    let whole = fs::read(&file).unwrap();
    for broken in [&whole[..whole.len() / 2], b"no archive", b""] {
        fs::write(&file, broken).unwrap();
        assert!(restore(&file, &old, REPLACE).is_err());
    }
    // A file that is none of a state directory.
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    archive.append_data(&mut header, "database.key", &b"x"[..]).unwrap();
    fs::write(&file, archive.into_inner().unwrap()).unwrap();
    let error = restore(&file, &old, REPLACE).unwrap_err();
    assert!(format!("{error:?}").contains("no backup of a state directory"), "{error:?}");
    let state = StateDir::lock(&old).unwrap();
    let opened = Store::open(&state, Clock::System).unwrap();
    assert_eq!((opened.store.agent_id().unwrap(), opened.recovered), (id, None));
}
