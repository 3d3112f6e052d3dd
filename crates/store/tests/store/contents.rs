//! Mounted files, and the applications' own folders.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    fs::Permissions,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
    time::Duration,
};

use driftless_model::{
    Access, Content, ContentId, Contents, InPlace, InstanceId, Job, MountSource, OnChange, WorkloadKind,
    in_place_of, in_place_path,
};
use driftless_store::{AppFileChange, ContentDir, Error, LackingSecrets, StateDir, Visibility};

use super::*;

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
        self.sync_mounted(files, &[])
    }

    /// Syncs tracked files, some of which are themselves mounted.
    fn sync_mounted(&self, files: &[(&str, &str)], mounted: &[&str]) -> Result<(), Error> {
        self.sync_in_use(files, mounted, &[])
    }

    /// Syncs tracked files while containers mount these paths.
    fn sync_in_use(&self, files: &[(&str, &str)], mounted: &[&str], in_use: &[&str]) -> Result<(), Error> {
        self.changes(files, mounted, in_use).map(drop)
    }

    /// The same, with the files that users may look for.
    fn changes(
        &self,
        files: &[(&str, &str)],
        mounted: &[&str],
        in_use: &[&str],
    ) -> Result<Vec<AppFileChange>, Error> {
        let (ids, contents) = tracked(files);
        let in_use = in_use.iter().map(|path| (*path).to_owned()).collect();
        self.dir.sync_app_files(&shop(), &ids, &mounted.iter().copied().collect(), &in_use, &contents)
    }

    fn exists(&self, path: &str) -> bool {
        self.folder().join(path).exists()
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
fn contents_are_readable_for_any_user() {
    let files = Files::new();
    let (file, contents) = one(Content::file(*b"hello"));
    files.dir.write(&contents, Visibility::Public).unwrap();
    let path = files.dir.path(&file, Visibility::Public);
    assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"hello"[..], 0o444));

    let (script, contents) = one(Content::File { bytes: (*b"#!").into(), executable: true });
    files.dir.write(&contents, Visibility::Public).unwrap();
    assert_eq!(mode(&files.dir.path(&script, Visibility::Public)), 0o555);

    let (folder, contents) = one(folder_content(&[("a/b/c", "deep", false), ("run", "#!", true)]));
    files.dir.write(&contents, Visibility::Public).unwrap();
    let path = files.dir.path(&folder, Visibility::Public);
    assert_eq!(fs::read_to_string(path.join("a/b/c")).unwrap(), "deep");
    assert_eq!((mode(&path), mode(&path.join("a/b")), mode(&path.join("run"))), (0o755, 0o755, 0o555));

    let group = fs::metadata(&path).unwrap().gid();
    let asked = Access::asked(0o600, Some(group));
    let tree = [("key".to_owned(), (b"secret".as_slice().into(), asked))];
    let (closed, contents) = one(Content::Folder(tree.into()));
    assert_ne!(closed, one(folder_content(&[("key", "secret", false)])).0, "who may read it is part of it");
    files.dir.write(&contents, Visibility::Public).unwrap();
    let found = fs::metadata(files.dir.path(&closed, Visibility::Public).join("key")).unwrap();
    assert_eq!((found.mode() & 0o777, found.gid()), (0o440, group), "the group may read it");

    // Once more: what is there is not written again.
    let (_, contents) = one(folder_content(&[("a/b/c", "deep", false), ("run", "#!", true)]));
    let before = fs::metadata(&path).unwrap().ino();
    files.dir.write(&contents, Visibility::Public).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), before);
}

/// The packaged unit has this umask.
#[test]
fn strict_umask_closes_no_folder_to_containers() {
    let files = [
        "contents::contents_are_readable_for_any_user",
        "contents::folders_of_the_application_are_open_to_any_user",
    ];
    let command = "umask 077 && exec \"$0\" --exact \"$@\"";
    let ran = Command::new("sh").arg("-c").arg(command).arg(env::current_exe().unwrap()).args(files).output();
    let ran = ran.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said.contains("2 passed"), "{said}");
}

#[test]
fn folders_of_the_application_are_open_to_any_user() {
    let files = Files::new();
    files.sync(&[("site/deep/index.html", "hello")]).unwrap();
    files.dir.ensure_app_folder(&shop(), "data/deep").unwrap();
    let folder = files.folder();
    for path in ["", "site", "site/deep", "data", "data/deep"] {
        assert_eq!(mode(&folder.join(path)), 0o755, "{path}");
    }
    assert_eq!(mode(&folder.join("site/deep/index.html")), 0o644);
}

#[test]
fn missing_folders_of_containers_are_found() {
    let files = Files::new();
    let ids = ["app.conf", "conf/a"].map(|path| (path.to_owned(), ContentId(path.to_owned())));
    let ids = BTreeMap::from(ids);
    let missing = |mounted: &[&'static str]| {
        files.dir.missing_app_folder(&shop(), &ids, &mounted.iter().copied().collect())
    };
    assert_eq!(missing(&["conf"]), Some("conf"), "the disk of the whole folder is not mounted");
    assert_eq!(missing(&[]), None);
    files.dir.ensure_app_folder(&shop(), "data/deep").unwrap();
    assert_eq!(
        missing(&["app.conf", "conf", "conf/a", "data", "data/deep"]),
        None,
        "Git has it, and can copy it again"
    );
    assert_eq!(missing(&["conf", "data", "media"]), Some("media"));
    // An empty mount point.
    fs::remove_dir_all(files.folder().join("data")).unwrap();
    assert_eq!(missing(&["data"]), Some("data"));
    assert_eq!(missing(&["conf"]), Some("conf"));
    assert_eq!(missing(&["app.conf"]), Some("app.conf"), "the container may have written to its copy");
}

#[test]
fn folder_that_an_earlier_agent_has_closed_is_opened() {
    let files = Files::new();
    let (id, contents) = one(folder_content(&[("a/b", "deep", false)]));
    files.dir.write(&contents, Visibility::Public).unwrap();
    let path = files.dir.path(&id, Visibility::Public);
    for folder in [path.join("a"), path.clone()] {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
    }
    files.dir.write(&contents, Visibility::Public).unwrap();
    assert_eq!((mode(&path), mode(&path.join("a"))), (0o755, 0o755));
}

#[test]
fn half_written_content_is_written_again() {
    let files = Files::new();
    let folder = files.dir.folder(Visibility::Public).to_owned();
    let (id, contents) = one(folder_content(&[("a", "whole", false)]));
    let half = folder.join(format!(".new-0-{}", id.0));
    fs::create_dir(&half).unwrap();
    fs::write(half.join("a"), "ha").unwrap();
    // The next start clears it away.
    let dir = ContentDir::open(&files.state, Path::new("/run/driftless"), clock()).unwrap();
    dir.write(&contents, Visibility::Public).unwrap();
    let path = dir.path(&id, Visibility::Public);
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "whole");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn rewritten_files_are_copies_of_one_instance() {
    let files = Files::new();
    let (one, mut contents) = one(Content::file(*b"one, and long"));
    let other = Content::File { bytes: (*b"two").into(), executable: true };
    let two = other.id();
    contents.insert(two.clone(), other);
    files.dir.write(&contents, Visibility::Public).unwrap();
    files.dir.write(&contents, Visibility::Secret).unwrap();
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
    assert_eq!(files.dir.remove_unused(&BTreeSet::new(), Duration::ZERO).unwrap(), 4);
    files.dir.retain_in_place(&shop(), &BTreeSet::from([instance(2)])).unwrap();
    assert!(!place(1, Visibility::Public).exists() && !place(1, Visibility::Secret).exists());
    assert!(place(2, Visibility::Public).exists() && place(2, Visibility::Secret).exists());
    let missing = files.dir.write_in_place(&shop(), &instance(2), &hold(&one, false)).unwrap_err();
    assert!(matches!(missing, Error::NoSuchContent { .. }));
    files.dir.retain_in_place(&shop(), &BTreeSet::new()).unwrap();
    assert!(!files.dir.folder(Visibility::Public).join(in_place_of(&shop())).exists());
}

#[test]
fn same_content_is_written_by_several_threads() {
    let files = Files::new();
    for round in 0..20 {
        let text = format!("{round}");
        let (folder, mut contents) = one(folder_content(&[("a/b", &text, false), ("c", &text, false)]));
        contents.extend(one(Content::file(text.into_bytes())).1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| files.dir.write(&contents, Visibility::Public).unwrap());
            }
        });
        assert!(files.dir.path(&folder, Visibility::Public).join("a/b").exists());
    }
    assert_eq!(fs::read_dir(files.dir.folder(Visibility::Public)).unwrap().count(), 40);
}

#[test]
fn secrets_are_refused_on_a_disk() {
    let files = Files::new();
    let (id, contents) = one(Content::file(*b"hunter2"));
    files.dir.write(&contents, Visibility::Secret).unwrap();
    let path = files.dir.path(&id, Visibility::Secret);
    assert!(path.starts_with("/dev/shm"));
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o444, 0o700));

    let state = StateDir::lock(&files.directory.path().join("other")).unwrap();
    let on_disk = ContentDir::open(&state, Path::new("/sys/driftless"), clock()).unwrap();
    let refused = on_disk.write(&contents, Visibility::Secret).unwrap_err();
    assert!(matches!(&refused, Error::NotInMemory { kind, .. } if kind == "sysfs"), "{refused}");
    assert!(!refused.to_string().contains("hunter2"));
    assert_eq!(fs::read_dir(on_disk.folder(Visibility::Public)).unwrap().count(), 0);

    // Another agent would clear away what it does not know.
    let shared = ContentDir::open(&state, path.parent().unwrap().parent().unwrap(), clock()).unwrap();
    assert!(matches!(shared.write(&contents, Visibility::Secret), Err(Error::RuntimeInUse { .. })));
}

#[test]
fn content_id_that_is_no_digest_is_refused() {
    let files = Files::new();
    let contents = Contents::from([(ContentId("../../evil".to_owned()), Content::file(*b"x"))]);
    let refused = files.dir.write(&contents, Visibility::Public).unwrap_err();
    assert!(matches!(refused, Error::NoSuchContent { .. }));
    let (id, contents) = one(folder_content(&[("../../evil", "x", false)]));
    files.dir.write(&contents, Visibility::Public).unwrap_err();
    assert!(!files.dir.path(&id, Visibility::Public).exists());
    assert!(!files.directory.path().join("evil").exists());
}

#[test]
fn old_unused_contents_are_removed() {
    let files = Files::new();
    let (used, contents) = one(Content::file(*b"used"));
    files.dir.write(&contents, Visibility::Public).unwrap();
    let (unused, contents) = one(folder_content(&[("a/b", "unused", false)]));
    files.dir.write(&contents, Visibility::Public).unwrap();
    let (secret, contents) = one(Content::file(*b"secret"));
    files.dir.write(&contents, Visibility::Secret).unwrap();
    let in_use = BTreeSet::from([used.clone()]);
    assert_eq!(files.dir.remove_unused(&in_use, Duration::from_secs(3600)).unwrap(), 0, "they are young");
    assert_eq!(files.dir.remove_unused(&in_use, Duration::ZERO).unwrap(), 2);
    assert!(files.dir.path(&used, Visibility::Public).exists());
    assert!(!files.dir.path(&unused, Visibility::Public).exists());
    assert!(!files.dir.path(&secret, Visibility::Secret).exists());
}

#[test]
fn stack_is_prepared_from_memory_and_later_from_disk() {
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
    let missing = files.dir.prepare(&wanted, &Contents::new(), &BTreeSet::new()).unwrap_err();
    assert!(matches!(missing, Error::NoSuchContent { .. }), "{missing}");
    let all: Contents = a.into_iter().chain(b).chain(c).collect();
    files.dir.prepare(&wanted, &all, &BTreeSet::new()).unwrap();
    assert_eq!(files.text("www/index.html"), "page");
    assert!(files.folder().join("data/cache").is_dir());
    assert!(!files.dir.path(&secret, Visibility::Public).exists());
    assert!(!files.dir.path(&public, Visibility::Secret).exists());

    fs::remove_file(files.folder().join("www/index.html")).unwrap();
    files.dir.prepare(&wanted, &Contents::new(), &BTreeSet::new()).unwrap();
    assert_eq!(files.text("www/index.html"), "page");
}

#[test]
fn missing_secret_of_an_old_cron_run_blocks_nothing() {
    let files = Files::new();
    let [(now, contents), (before, _)] = [one(Content::file(*b"new")), one(Content::file(*b"old"))];
    let mut wanted = stack("web:1", vec![MountSource::Secret(now.clone())]);
    let of_run = vec![MountSource::Secret(before.clone())];
    let mut run = stack("report:1", of_run).workloads.pop_first().unwrap().1;
    run.kind =
        WorkloadKind::Job(Job { cron: Some("report".into()), fresh: true, ..Job::once("report-1".into()) });
    wanted.workloads.insert("report-1".into(), run.clone());
    assert!(files.dir.prepare(&wanted, &contents, &BTreeSet::new()).unwrap().lacking.is_empty());
    assert!(files.dir.path(&now, Visibility::Secret).exists());
    // Another workload of an older revision waits, and the rest does not.
    run.kind = WorkloadKind::Replicas;
    wanted.workloads.insert("a-report".into(), run);
    fs::remove_dir_all(files.dir.folder(Visibility::Secret)).unwrap();
    let lacking = files.dir.prepare(&wanted, &contents, &BTreeSet::new()).unwrap().lacking;
    let mounted = BTreeMap::from([("a-report".into(), before)]);
    assert_eq!(lacking, LackingSecrets { mounted, ..LackingSecrets::default() });
    assert!(files.dir.path(&now, Visibility::Secret).exists());
}

#[test]
fn mounted_secrets_of_one_line_are_found() {
    let files = Files::new();
    let folder = folder_content(&[("login/password", "in-a-folder\n", false), ("key", "two\nlines", false)]);
    let [(line, a), (tree, b), (public, c)] =
        [one(Content::file(*b"in-a-file\n")), one(folder), one(Content::file(*b"public"))];
    let outside = ContentId("../../etc/hostname".to_owned());
    let secrets = [line, tree, outside].map(MountSource::Secret);
    let sources = secrets.into_iter().chain([MountSource::Content(public)]).collect();
    let wanted = stack("web:1", sources);
    assert!(files.dir.secret_lines([&wanted]).is_empty(), "the host does not have them");
    files.dir.write(&a.into_iter().chain(b).collect(), Visibility::Secret).unwrap();
    files.dir.write(&c, Visibility::Public).unwrap();
    let lines = files.dir.secret_lines([&wanted]);
    assert_eq!(lines, BTreeSet::from(["in-a-file".to_owned(), "in-a-folder".to_owned()]));
}

#[test]
fn missing_login_of_a_registry_leaves_mounted_secrets_written() {
    let files = Files::new();
    let [(mounted, contents), (login, _)] = [one(Content::file(*b"new")), one(Content::file(*b"old"))];
    let mut wanted = stack("web:1", vec![MountSource::Secret(mounted.clone())]);
    for workload in wanted.workloads.values_mut() {
        workload.pull_secrets.insert(login.clone());
    }
    let lacking = files.dir.prepare(&wanted, &contents, &BTreeSet::new()).unwrap().lacking;
    let logins = BTreeSet::from([login]);
    assert_eq!(lacking, LackingSecrets { logins, ..LackingSecrets::default() });
    assert!(files.dir.path(&mounted, Visibility::Secret).exists());
}

#[test]
fn tracked_files_follow_git_and_others_stay() {
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
fn mounted_file_of_the_application_keeps_its_inode() {
    let files = Files::new();
    let inode = |path: &str| fs::metadata(files.folder().join(path)).unwrap().ino();
    let both = |text: &str| files.sync_mounted(&[("a.conf", text), ("www/a.html", text)], &["a.conf", "www"]);
    both("a long first text").unwrap();
    fs::set_permissions(files.folder().join("a.conf"), Permissions::from_mode(0o600)).unwrap();
    let before = (inode("a.conf"), inode("www/a.html"));
    both("short").unwrap();
    assert_eq!((files.text("a.conf").as_str(), files.text("www/a.html").as_str()), ("short", "short"));
    assert_eq!(inode("a.conf"), before.0, "its mount is bound to the inode");
    assert_ne!(inode("www/a.html"), before.1, "a mounted folder shows the file that took its place");
    assert_eq!(mode(&files.folder().join("a.conf")), 0o644);

    // A container has given the file another name, or put a link in its place: only the name is replaced.
    fs::hard_link(files.folder().join("a.conf"), files.folder().join("other")).unwrap();
    both("third").unwrap();
    assert_eq!((files.text("a.conf").as_str(), files.text("other").as_str()), ("third", "short"));
    fs::remove_file(files.folder().join("a.conf")).unwrap();
    symlink("other", files.folder().join("a.conf")).unwrap();
    both("fourth").unwrap();
    assert_eq!((files.text("a.conf").as_str(), files.text("other").as_str()), ("fourth", "short"));
}

/// A folder with a file of its own stands where a tracked file belongs.
fn block(files: &Files, path: &str) {
    let _ = fs::remove_file(files.folder().join(path));
    fs::create_dir(files.folder().join(path)).unwrap();
    fs::write(files.folder().join(path).join("own"), "precious").unwrap();
}

#[test]
fn files_of_an_interrupted_copy_are_copied_again() {
    let files = Files::new();
    let first = [("a.conf", "1"), ("b.conf", "1"), ("kept.conf", "1")];
    files.sync(&first).unwrap();
    fs::write(files.folder().join("kept.conf"), "changed by its container").unwrap();
    block(&files, "b.conf");
    files.sync(&[("a.conf", "2"), ("b.conf", "2"), ("kept.conf", "1")]).unwrap_err();
    assert_eq!(files.text("a.conf"), "2");
    fs::remove_dir_all(files.folder().join("b.conf")).unwrap();
    files.sync(&first).unwrap();
    assert_eq!((files.text("a.conf"), files.text("b.conf")), ("1".to_owned(), "1".to_owned()));
    assert_eq!(files.text("kept.conf"), "changed by its container");

    // One that leaves Git afterwards is removed, with either content.
    for text in ["1", "2"] {
        files.sync(&first).unwrap();
        block(&files, "b.conf");
        files.sync(&[("a.conf", "2"), ("b.conf", "2")]).unwrap_err();
        fs::remove_dir_all(files.folder().join("b.conf")).unwrap();
        fs::write(files.folder().join("a.conf"), text).unwrap();
        files.sync(&[]).unwrap();
        assert!(!files.folder().join("a.conf").exists(), "{text}");
    }
}

#[test]
fn commit_replaces_a_copy_of_the_one_before_without_the_list() {
    let files = Files::new();
    let first = [("a.conf", "1"), ("b.conf", "1")];
    files.dir.write(&tracked(&first).1, Visibility::Public).unwrap();
    files.sync(&first).unwrap();
    fs::write(files.folder().join("b.conf"), "changed by its container").unwrap();
    fs::write(files.folder().with_file_name("shop.files.json"), "{").unwrap();
    files.sync(&[("a.conf", "2"), ("b.conf", "1")]).unwrap();
    assert_eq!(files.text("a.conf"), "2");
    assert_eq!(files.text("b.conf"), "changed by its container");
}

#[test]
fn list_of_an_earlier_release_is_read() {
    let files = Files::new();
    let (ids, _) = tracked(&[("a.conf", "1"), ("gone", "1")]);
    files.sync(&[("a.conf", "1"), ("gone", "1")]).unwrap();
    let list = files.folder().with_file_name("shop.files.json");
    let before: BTreeMap<String, ContentId> = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
    assert_eq!(before, ids, "it has the form of earlier releases");
    fs::write(files.folder().join("a.conf"), "changed by its container").unwrap();
    files.sync(&[("a.conf", "1")]).unwrap();
    assert_eq!(files.text("a.conf"), "changed by its container");
    assert!(!files.folder().join("gone").exists());
}

#[test]
fn changed_file_is_kept_if_the_list_is_unreadable() {
    let files = Files::new();
    let tracked = [("a.conf", "1"), ("b.conf", "1")];
    files.sync(&tracked).unwrap();
    fs::write(files.folder().join("a.conf"), "changed by its container").unwrap();
    let list = files.folder().with_file_name("shop.files.json");
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    let error = files.sync(&tracked).unwrap_err().to_string();
    assert!(error.contains("read the list of copied files"), "{error}");
    assert_eq!(files.text("a.conf"), "changed by its container");

    fs::remove_dir(&list).unwrap();
    fs::write(&list, "{").unwrap();
    fs::remove_file(files.folder().join("b.conf")).unwrap();
    files.sync(&tracked).unwrap();
    assert_eq!(
        (files.text("a.conf"), files.text("b.conf")),
        ("changed by its container".to_owned(), "1".to_owned())
    );
    assert!(serde_json::from_slice::<BTreeMap<String, ContentId>>(&fs::read(&list).unwrap()).is_ok());
    files.sync(&[("a.conf", "2"), ("b.conf", "1")]).unwrap();
    assert_eq!(files.text("a.conf"), "2");
}

#[test]
fn tracked_path_turns_from_file_to_folder_and_back() {
    let files = Files::new();
    for _ in 0..2 {
        files.sync(&[("conf", "1"), ("other", "1")]).unwrap();
        assert_eq!(files.text("conf"), "1");
        files.sync(&[("conf/deep/er/a", "2"), ("conf/b", "2"), ("other", "1")]).unwrap();
        assert_eq!((files.text("conf/deep/er/a"), files.text("conf/b")), ("2".to_owned(), "2".to_owned()));
    }
    // A folder that nothing needs the place of stays.
    files.sync(&[("conf/b", "2")]).unwrap();
    assert!(files.folder().join("conf/deep/er").is_dir());
}

#[test]
fn untracked_file_in_the_way_is_named_and_stays() {
    let files = Files::new();
    files.sync(&[("file", "1"), ("folder/a", "1")]).unwrap();
    fs::write(files.folder().join("file"), "precious").unwrap();
    fs::write(files.folder().join("folder/own"), "precious").unwrap();
    for (wanted, at) in [("file/a", "file"), ("folder", "folder")] {
        let refused = files.sync(&[(wanted, "2")]).unwrap_err().to_string();
        let at = files.folder().join(at).display().to_string();
        assert!(refused.contains(&format!("{at} is in the way")) && refused.contains("move it"), "{refused}");
    }
    assert_eq!(
        (files.text("file"), files.text("folder/own")),
        ("precious".to_owned(), "precious".to_owned())
    );
    fs::rename(files.folder().join("file"), files.folder().join("moved")).unwrap();
    fs::rename(files.folder().join("folder/own"), files.folder().join("moved")).unwrap();
    files.sync(&[("file/a", "2"), ("folder", "2")]).unwrap();
    assert_eq!((files.text("file/a"), files.text("folder")), ("2".to_owned(), "2".to_owned()));
}

#[test]
fn copies_that_only_older_containers_mount_stay() {
    let files = Files::new();
    let all = [("site/a", "1"), ("site/b/c", "1"), ("conf", "1"), ("sites/d", "1"), ("e", "1")];
    files.sync(&all).unwrap();
    // Of `conf`, the next version needs the place.
    files.sync_in_use(&[("conf/x", "2")], &[], &["site", "conf"]).unwrap();
    assert_eq!(files.text("conf/x"), "2");
    let exist = |paths: &[&str]| paths.iter().map(|path| files.exists(path)).collect::<Vec<bool>>();
    assert_eq!(exist(&["site/a", "site/b/c", "sites/d", "e"]), [true, true, false, false]);
    // One that comes back is followed, and one that the next version mounts without having it in Git goes at once.
    files.sync_in_use(&[("site/a", "2")], &["site/b"], &["site"]).unwrap();
    assert_eq!((files.text("site/a"), files.exists("site/b/c")), ("2".to_owned(), false));
    files.sync_in_use(&[], &[], &["site"]).unwrap();
    assert!(files.exists("site/a"));
    files.sync_in_use(&[], &[], &["."]).unwrap();
    assert!(files.exists("site/a"));
    files.sync(&[]).unwrap();
    assert!(!files.exists("site/a"), "no container mounts it any more");
}

/// The engine would mount a folder in its place, and a new file would have another inode.
#[test]
fn mounted_file_that_leaves_git_stays() {
    let files = Files::new();
    files.sync_mounted(&[("a.conf", "1"), ("site/b", "1")], &["a.conf", "site"]).unwrap();
    let inode = || fs::metadata(files.folder().join("a.conf")).unwrap().ino();
    let before = inode();
    let left = [AppFileChange::LeftGit { path: "a.conf".to_owned() }];
    for _ in 0..2 {
        assert_eq!(files.changes(&[], &["a.conf", "site"], &[]).unwrap(), left);
        assert_eq!((files.text("a.conf"), inode(), files.exists("site/b")), ("1".to_owned(), before, false));
    }
    assert_eq!(files.changes(&[("a.conf", "2")], &["a.conf"], &[]).unwrap(), []);
    assert_eq!((files.text("a.conf"), inode()), ("2".to_owned(), before), "it is followed again");
    files.sync(&[]).unwrap();
    assert!(!files.exists("a.conf"), "nothing mounts it any more");
}

#[test]
fn version_that_a_container_has_changed_is_kept_once() {
    for mounted in [&[][..], &["conf/a"]] {
        let files = Files::new();
        let text = |path: &str| files.text(path);
        let sync = |version: &str| files.changes(&[("conf/a", version)], mounted, &[]).unwrap();
        let kept = |at: &str| [AppFileChange::Kept { path: "conf/a".to_owned(), at: at.to_owned() }];
        assert_eq!((sync("1"), sync("2")), (Vec::new(), Vec::new()), "nobody has changed it");
        assert_eq!(fs::read_dir(files.folder().join("conf")).unwrap().count(), 1);
        fs::write(files.folder().join("conf/a"), "edited").unwrap();
        assert_eq!((sync("2"), text("conf/a").as_str()), (Vec::new(), "edited"), "Git has not changed it");
        assert_eq!(sync("3"), kept("conf/a.driftless-kept"));
        assert_eq!((text("conf/a"), text("conf/a.driftless-kept")), ("3".to_owned(), "edited".to_owned()));
        // The same change again is there already, and another one has a name of its own.
        fs::write(files.folder().join("conf/a"), "edited").unwrap();
        assert_eq!(sync("4"), kept("conf/a.driftless-kept"));
        for (number, version) in (5..20).enumerate() {
            fs::write(files.folder().join("conf/a"), format!("edited {version}")).unwrap();
            let at = format!("conf/a.driftless-kept-{}", (number + 2).min(9));
            assert_eq!(
                (sync(&version.to_string()), text(&at)),
                (kept(&at).into(), format!("edited {version}"))
            );
        }
        // A container may have made before what a commit adds.
        fs::write(files.folder().join("conf/new"), "of a container").unwrap();
        files.sync(&[("conf/a", "19"), ("conf/new", "of Git")]).unwrap();
        assert_eq!(text("conf/new.driftless-kept"), "of a container");
    }
}

#[test]
fn commit_of_a_file_too_large_to_be_kept_can_be_taken_back() {
    let files = Files::new();
    files.sync_mounted(&[("db", "1")], &["db"]).unwrap();
    let path = files.folder().join("db");
    // Another mode is no change.
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(files.changes(&[("db", "2")], &["db"], &[]).unwrap(), []);
    fs::File::options().write(true).open(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    let error = files.sync_mounted(&[("db", "3")], &["db"]).unwrap_err();
    assert!(format!("{error:?}").contains("undo the change in Git"), "{error:?}");
    files.sync_mounted(&[("db", "2")], &["db"]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), (64 << 20) + 1);
    assert_eq!(fs::read_dir(files.folder()).unwrap().count(), 1);
}

#[test]
fn copies_stay_for_the_run_of_an_older_commit() {
    let files = Files::new();
    let (page, contents) = one(Content::file(*b"page"));
    let before = {
        let mut before = stack("report:1", vec![MountSource::AppFolder("site".to_owned())]);
        before.app_files.insert("site/index.html".to_owned(), page);
        before
    };
    files.dir.prepare(&before, &contents, &BTreeSet::new()).unwrap();
    let mut run = before.workloads.into_values().next().unwrap();
    run.kind =
        WorkloadKind::Job(Job { cron: Some("report".into()), fresh: true, ..Job::once("report-1".into()) });
    let mut wanted = stack("web:1", Vec::new());
    wanted.workloads.insert("report-1".into(), run);
    files.dir.prepare(&wanted, &contents, &["site".to_owned()].into()).unwrap();
    assert!(files.exists("site/index.html"));
    files.dir.prepare(&wanted, &contents, &BTreeSet::new()).unwrap();
    assert!(!files.exists("site/index.html"), "its container is gone");
}

#[test]
fn kept_copy_that_a_container_has_changed_is_not_removed() {
    let files = Files::new();
    files.sync(&[("site/a", "1")]).unwrap();
    files.sync_in_use(&[], &[], &["site"]).unwrap();
    fs::write(files.folder().join("site/a"), "changed").unwrap();
    files.sync(&[]).unwrap();
    assert_eq!(files.text("site/a"), "changed");
}

#[test]
fn links_to_folders_of_applications_are_not_followed() {
    let files = Files::new();
    files.sync(&[("site/a", "1")]).unwrap();
    // Its disk is not mounted, and one that hangs would not answer either.
    symlink("/no/such/disk", files.folder().with_file_name("blog")).unwrap();
    assert_eq!(files.dir.owners_of_app_folders().unwrap(), [AppName::from("blog"), shop()]);
}

#[test]
fn folder_of_an_application_is_renamed_with_its_list() {
    let files = Files::new();
    files.sync(&[("site/a", "1"), ("site/b", "1"), ("site/c", "1")]).unwrap();
    fs::write(files.folder().join("site/a"), "changed").unwrap();
    fs::write(files.folder().join("site/b"), "changed").unwrap();
    fs::write(files.folder().join("site/upload"), "precious").unwrap();
    // It is removed, and another one goes on with its folder.
    files.sync(&[]).unwrap();
    assert!(!files.exists("site/c"));
    let store = AppName::from("store");
    assert_eq!(files.dir.owners_of_app_folders().unwrap(), [shop()]);
    let list = files.folder().with_file_name("shop.files.json");
    // The agent ended after the first rename.
    fs::rename(&list, list.with_file_name("store.files.json")).unwrap();
    files.dir.rename_app_folder(&shop(), &store).unwrap();
    assert_eq!(files.dir.owners_of_app_folders().unwrap(), vec![store.clone()]);
    assert!(files.dir.has_app_folder(&store) && !files.dir.has_app_folder(&shop()) && !list.exists());
    let (ids, contents) = tracked(&[("site/a", "1"), ("site/b", "2"), ("site/c", "1")]);
    let (mounted, none) = (BTreeSet::from(["site"]), BTreeSet::new());
    files.dir.sync_app_files(&store, &ids, &mounted, &none, &contents).unwrap();
    let text = |name: &str| fs::read_to_string(files.dir.app_folder(&store).join("site").join(name)).unwrap();
    let found = ["a", "b", "c", "upload"].map(text);
    assert_eq!(found, ["changed", "2", "1", "precious"], "only what has changed in Git is replaced");
}

#[test]
fn folder_of_tracked_files_is_copied_file_by_file() {
    let files = Files::new();
    let (id, contents) = one(folder_content(&[("x/y", "1", true), ("z", "2", false)]));
    let site = [("site".to_owned(), id)].into();
    files.dir.sync_app_files(&shop(), &site, &BTreeSet::new(), &BTreeSet::new(), &contents).unwrap();
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
        files.sync(&[("a.conf", "1")]).unwrap();
    }
    for path in ["../evil", "/etc", "a/.."] {
        let refused = files.dir.ensure_app_folder(&shop(), path).unwrap_err();
        assert!(matches!(refused, Error::Unsafe { .. }), "{path}: {refused}");
    }
}

#[test]
fn links_made_by_a_container_are_not_followed() {
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
fn named_pipe_in_place_of_a_file_does_not_block() {
    let files = Files::new();
    files.sync(&[("page", "1"), ("www/page", "1")]).unwrap();
    for path in ["page", "www"] {
        let path = files.folder().join(path);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    files.sync(&[]).unwrap();
    let refused = files.sync(&[("www/page", "2")]).unwrap_err();
    assert!(refused.to_string().contains("www/page"), "{refused}");
}
