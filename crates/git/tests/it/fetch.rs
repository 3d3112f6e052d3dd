//! Fetches from real Git: the `git` program, `git http-backend` and sshd.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::{Auth, Proxy, Reference, Secret};
use driftless_files::{Entry, ReadError};
use driftless_git::{
    Cause, Checkout, CommitSource, Credentials, Error, FetchPermits, Repository, RepositoryOptions, Retry,
};
use driftless_model::{CommitId, RepoUrl, Timestamp};
use tokio::time::Instant;

use crate::origin::{Mode, Origin, Server, Sshd, ca_file, known};

const LIMIT: u64 = 1 << 20;

/// Long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn options(origin: &Origin, url: &str) -> RepositoryOptions {
    RepositoryOptions {
        url: RepoUrl::parse(url).unwrap(),
        reference: Reference::Branch("main".into()),
        credentials: Credentials::none(),
        ca_file: None,
        proxy: Proxy::Direct,
        submodules: false,
        submodule_paths: Vec::new(),
        policies: Vec::new(),
        timeout: PATIENCE,
        idle_timeout: PATIENCE,
        mirror: origin.mirror(),
        most_bytes: 1 << 30,
        clone_pause: PATIENCE,
        download_pause: Duration::ZERO,
        permits: FetchPermits::default(),
        clock: Clock::System,
    }
}

pub(crate) fn open(options: RepositoryOptions) -> Repository {
    Repository::open(options).unwrap()
}

/// Without a server, through the path.
pub(crate) fn local(origin: &Origin) -> Repository {
    open(options(origin, origin.path().to_str().unwrap()))
}

fn following(origin: &Origin, reference: Reference) -> Repository {
    open(RepositoryOptions { reference, ..options(origin, origin.path().to_str().unwrap()) })
}

pub(crate) fn text(checkout: &Checkout, path: &str) -> String {
    String::from_utf8(checkout.files.read(path, LIMIT).unwrap().to_vec()).unwrap()
}

pub(crate) fn with_auth(auth: Auth) -> Credentials {
    Credentials::new(auth, Arc::new(|_| None))
}

pub(crate) fn rejection(result: Result<Checkout, Error>) -> String {
    match result {
        Err(error) if error.cause.retry() == Retry::AtPoll => error.to_string(),
        other => panic!("not rejected: {other:?}"),
    }
}

pub(crate) fn passing(result: Result<Checkout, Error>) -> String {
    match result {
        Err(error) if error.cause.retry() == Retry::Soon => error.to_string(),
        other => panic!("not transient: {other:?}"),
    }
}

pub(crate) fn packs(mirror: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(mirror.join("objects/pack")).unwrap().map(|it| it.unwrap().path());
    entries.filter(|it| it.extension().is_some_and(|it| it == extension)).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}

#[tokio::test]
async fn a_first_fetch_brings_the_commit_and_its_files() {
    let origin = Origin::empty();
    fs::create_dir_all(origin.tree().join("app/env")).unwrap();
    fs::write(origin.tree().join("app/compose.yaml"), "services: {}").unwrap();
    fs::write(origin.tree().join("app/env/.env"), "A=1").unwrap();
    fs::write(origin.tree().join("run.sh"), "#!/bin/sh").unwrap();
    fs::set_permissions(origin.tree().join("run.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let id = origin.commit_all("first line\n\nand more");

    let (bare, tree) = (origin.path().display().to_string(), origin.tree().display().to_string());
    for url in [bare.clone(), format!("file://{bare}"), tree] {
        let repository = open(RepositoryOptions { reference: Reference::Head, ..options(&origin, &url) });
        let checkout = repository.fetch(None).await.unwrap();
        assert_eq!(checkout.commit.id, id);
        assert_eq!(checkout.commit.author, "Ada <ada@example.com>");
        assert_eq!(checkout.commit.subject, "first line");
        assert_eq!(checkout.commit.time.to_string(), "2024-01-02T03:04:05.000Z");
        assert!(!checkout.rewritten);
        let files = &checkout.files;
        let root = files.list("").unwrap();
        let executable = Entry::File { size: 9, executable: true };
        assert_eq!(root, [("app".to_owned(), Entry::Folder), ("run.sh".to_owned(), executable)]);
        assert_eq!(text(&checkout, "app/env/.env"), "A=1");
        assert_eq!(files.entry("").unwrap(), Some(Entry::Folder));
        assert_eq!(files.entry("app/none").unwrap(), None);
        assert_eq!(files.similar("app/Env/.env").unwrap().as_deref(), Some("app/env"));
        assert_eq!(files.similar("RUN.sh/x").unwrap().as_deref(), Some("run.sh"));
        assert_eq!(files.list("none").unwrap(), []);
        assert_eq!(files.read("none", LIMIT), Err(ReadError::Missing("none".into())));
        assert_eq!(files.read("app", LIMIT), Err(ReadError::Folder("app".into())));
        let too_large = ReadError::TooLarge { path: "run.sh".into(), size: 9, limit: 8 };
        assert_eq!(files.read("run.sh", 8), Err(too_large));
    }
}

#[tokio::test]
async fn links_are_followed_inside_the_repository_only() {
    let origin = Origin::new();
    let tree = origin.tree();
    fs::create_dir_all(tree.join("shared/deep")).unwrap();
    fs::write(tree.join("shared/deep/a.yaml"), "a").unwrap();
    symlink("../shared/deep", tree.join("shared/again")).unwrap();
    symlink("shared/again", tree.join("dir")).unwrap();
    symlink("dir/a.yaml", tree.join("file")).unwrap();
    symlink("../outside", tree.join("up")).unwrap();
    symlink("/etc/passwd", tree.join("absolute")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    origin.commit_all("links");

    let files = local(&origin).fetch(None).await.unwrap().files;
    assert_eq!(&*files.read("file", LIMIT).unwrap(), b"a");
    assert_eq!(&*files.read("dir/a.yaml", LIMIT).unwrap(), b"a");
    assert_eq!(files.entry("dir").unwrap(), Some(Entry::Folder));
    assert_eq!(files.list("dir").unwrap().len(), 1);
    for path in ["up", "absolute", "loop", "../compose.yaml", "compose.yaml/x"] {
        assert_eq!(files.entry(path).unwrap(), None, "{path}");
    }
    for path in ["up", "absolute", "loop", "../compose.yaml"] {
        assert_eq!(files.read(path, LIMIT), Err(ReadError::Astray(path.into())));
    }
    let names: Vec<String> = files.list("").unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["compose.yaml", "dir", "file", "shared"]);
}

#[tokio::test]
async fn lfs_pointers_and_submodules_are_no_files() {
    let origin = Origin::new();
    let id = origin.work(&["rev-parse", "HEAD"]);
    origin.work(&["update-index", "--add", "--cacheinfo", &format!("160000,{id},module")]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    fs::write(origin.tree().join("big.bin"), pointer).unwrap();
    fs::write(origin.tree().join("password"), "\0GITCRYPT\0\u{1}\u{2}").unwrap();
    origin.work(&["add", "big.bin", "password"]);
    origin.work(&["commit", "-q", "-m", "x"]);
    origin.work(&["push", "-q", "origin", "main"]);

    let files = local(&origin).fetch(None).await.unwrap().files;
    assert_eq!(files.entry("module").unwrap(), Some(Entry::Submodule));
    for path in ["module", "module/x/y"] {
        let told = ReadError::Submodule { path: path.into(), module: "module".into() };
        assert_eq!(files.read(path, LIMIT), Err(told));
    }
    assert_eq!(files.entry("module/x").unwrap(), None);
    assert_eq!(files.read("big.bin", LIMIT), Err(ReadError::LfsPointer { path: "big.bin".into() }));
    assert_eq!(files.read("password", LIMIT), Err(ReadError::GitCrypt { path: "password".into() }));
}

#[tokio::test]
async fn a_second_fetch_lists_references_only() {
    let origin = Origin::new();
    let server = Server::start(&origin).await;
    let repository = open(options(&origin, &server.url()));
    let first = repository.fetch(None).await.unwrap();
    assert_eq!(server.requests().iter().filter(|it| *it == "fetch").count(), 1);

    let again = repository.fetch(Some(&first.commit.id)).await.unwrap();
    assert_eq!(again.commit, first.commit);
    assert_eq!(server.requests(), ["refs", "ls-refs"]);

    // Nor does a restart fetch again.
    drop(repository);
    let repository = open(options(&origin, &server.url()));
    assert_eq!(repository.fetch(None).await.unwrap().commit, first.commit);
    assert_eq!(server.requests(), ["refs", "ls-refs"]);

    let id = origin.commit("compose.yaml", "services: {a: {}}");
    let new = repository.fetch(Some(&first.commit.id)).await.unwrap();
    assert_eq!(server.requests(), ["refs", "ls-refs", "ls-refs", "fetch"], "the server is greeted once");
    assert_eq!((new.commit.id.as_str(), new.rewritten), (id.as_str(), false));
    assert_eq!(text(&new, "compose.yaml"), "services: {a: {}}");
    assert_eq!(text(&first, "compose.yaml"), "services: {}", "the checkout before stays readable");
    assert_eq!(repository.ahead(&first.commit.id, &known(&id)).await, Some(1));
    assert_eq!(repository.ahead(&known(&id), &first.commit.id).await, Some(0));
    assert_eq!(repository.ahead(&known(&"0".repeat(40)), &known(&id)).await, None);
    let before = repository.history_length(&first.commit.id).await.unwrap();
    assert_eq!(repository.history_length(&known(&id)).await, Some(before + 1), "from the count before");
    assert_eq!(repository.history_length(&first.commit.id).await, Some(before), "of the whole history");
    assert_eq!(repository.history_length(&known(&"0".repeat(40))).await, None);
}

#[tokio::test]
async fn forced_push_is_followed_and_reported() {
    let origin = Origin::new();
    let base = origin.work(&["rev-parse", "HEAD"]);
    let old = origin.commit("compose.yaml", "old");
    let repository = local(&origin);
    repository.fetch(None).await.unwrap();
    repository.keep(vec![known(&old)]).await.unwrap();

    origin.work(&["reset", "-q", "--hard", &base]);
    let new = origin.commit("compose.yaml", "new");
    let checkout = repository.fetch(Some(&known(&old))).await.unwrap();
    assert_eq!((checkout.commit.id.as_str(), checkout.rewritten), (new.as_str(), true));
    assert_eq!(text(&repository.local(&known(&old)).await.unwrap(), "compose.yaml"), "old");
    assert_eq!(repository.ahead(&known(&old), &known(&new)).await, Some(1));

    let settled = repository.fetch(Some(&known(&new))).await.unwrap();
    assert!(!settled.rewritten);
}

#[tokio::test]
async fn kept_commits_outlive_collections_and_others_do_not() {
    let origin = Origin::new();
    let base = origin.work(&["rev-parse", "HEAD"]);
    let repository = local(&origin);
    let kept = origin.commit("compose.yaml", "kept");
    repository.fetch(None).await.unwrap();
    repository.keep(vec![known(&kept)]).await.unwrap();
    origin.work(&["reset", "-q", "--hard", &base]);
    let read_from = origin.commit("compose.yaml", "read from");
    let open_checkout = repository.fetch(None).await.unwrap();
    origin.work(&["reset", "-q", "--hard", &base]);
    let dropped = origin.commit("compose.yaml", "dropped");
    drop(repository.fetch(None).await.unwrap());
    origin.work(&["reset", "-q", "--hard", &base]);

    let mut last = None;
    for number in 0..40 {
        let id = origin.commit("compose.yaml", &format!("number {number}"));
        let checkout = repository.fetch(last.as_ref()).await.unwrap();
        assert_eq!(checkout.commit.id, id);
        last = Some(known(&id));
    }
    assert!(packs(&origin.mirror(), "pack").len() < 20, "packs pile up");
    assert_eq!(packs(&origin.mirror(), "keep"), Vec::<PathBuf>::new());
    assert_eq!(text(&open_checkout, "compose.yaml"), "read from");
    assert_eq!(text(&repository.local(&known(&read_from)).await.unwrap(), "compose.yaml"), "read from");
    assert_eq!(text(&repository.local(&known(&kept)).await.unwrap(), "compose.yaml"), "kept");
    assert!(rejection(repository.local(&known(&dropped)).await).contains("no such commit in the mirror"));
    assert_eq!(repository.ahead(&known(&base), last.as_ref().unwrap()).await, Some(40));

    let error = repository.keep(vec![last.unwrap(), known(&dropped)]).await.unwrap_err().to_string();
    assert!(error.contains(&dropped), "{error}");
    let references = fs::read_to_string(origin.mirror().join("packed-refs")).unwrap();
    assert_eq!(references.matches("refs/driftless/keep/").count(), 1, "{references}");
    assert!(!references.contains(&format!("keep/{kept}")), "{references}");
}

#[tokio::test]
async fn new_commits_do_not_wait_until_the_mirror_is_packed() {
    let origin = Origin::new();
    let repository = local(&origin);
    let mut newest = String::new();
    for number in 0..22 {
        newest = origin.commit("compose.yaml", &format!("number {number}"));
        assert_eq!(repository.fetch(None).await.unwrap().commit.id, newest);
    }
    assert!(packs(&origin.mirror(), "pack").len() > 20, "packed while there were new commits");

    let checkout = repository.fetch(Some(&known(&newest))).await.unwrap();
    // This waits for the packing.
    repository.keep(vec![known(&newest)]).await.unwrap();
    assert_eq!(packs(&origin.mirror(), "pack").len(), 1);
    assert_eq!(text(&checkout, "compose.yaml"), "number 21");
    let next = origin.commit("compose.yaml", "next");
    assert_eq!(repository.fetch(Some(&known(&newest))).await.unwrap().commit.id, next);
}

/// Each attempt reads the whole mirror and may fill the disk.
#[tokio::test]
async fn failed_packing_is_tried_again_after_an_hour() {
    let origin = Origin::new();
    let repository = local(&origin);
    let mut newest = String::new();
    for number in 0..22 {
        newest = origin.commit("compose.yaml", &format!("number {number}"));
        repository.fetch(None).await.unwrap();
    }
    let count = || packs(&origin.mirror(), "pack").len();
    let before = count();
    let in_the_way = origin.mirror().join("objects/pack/.tmp-repack");
    fs::create_dir(&in_the_way).unwrap();
    let poll = async || {
        assert_eq!(repository.fetch(Some(&known(&newest))).await.unwrap().commit.id, newest);
        // This waits for the packing.
        repository.keep(vec![known(&newest)]).await.unwrap();
    };
    poll().await;
    assert_eq!(count(), before);

    fs::remove_dir(&in_the_way).unwrap();
    poll().await;
    assert_eq!(count(), before, "tried again at the next poll");
    tokio::time::pause();
    tokio::time::advance(Duration::from_hours(1)).await;
    tokio::time::resume();
    poll().await;
    assert_eq!(count(), 1);
}

#[tokio::test]
async fn removed_reference_is_an_error_and_stays_in_the_mirror() {
    let origin = Origin::new();
    let id = origin.work(&["rev-parse", "HEAD"]);
    let server = Server::start(&origin).await;
    let repository = open(options(&origin, &server.url()));
    repository.fetch(None).await.unwrap();

    origin.work(&["push", "-q", "origin", "HEAD:other"]);
    origin.bare(&["symbolic-ref", "HEAD", "refs/heads/other"]);
    origin.bare(&["update-ref", "-d", "refs/heads/main"]);
    let error = rejection(repository.fetch(Some(&known(&id))).await);
    assert!(error.contains("branch `main`") && error.contains("deleted"), "{error}");

    origin.bare(&["update-ref", "-d", "refs/heads/other"]);
    let error = rejection(repository.fetch(Some(&known(&id))).await);
    assert!(error.contains("emptied"), "{error}");

    fs::rename(origin.path(), origin.dir.path().join("moved.git")).unwrap();
    let error = rejection(repository.fetch(Some(&known(&id))).await);
    assert!(error.contains("no such repository"), "{error}");
    let error = rejection(following_elsewhere(&origin).fetch(Some(&known(&id))).await);
    assert!(error.contains("is not a folder"), "{error}");

    assert_eq!(text(&repository.local(&known(&id)).await.unwrap(), "compose.yaml"), "services: {}");
}

/// Another mirror of the same path.
fn following_elsewhere(origin: &Origin) -> Repository {
    let mirror = origin.dir.path().join("state/elsewhere");
    open(RepositoryOptions { mirror, ..options(origin, origin.path().to_str().unwrap()) })
}

#[tokio::test]
async fn an_empty_repository_is_refused_and_its_first_commit_deployed() {
    let origin = Origin::empty();
    let repository = following(&origin, Reference::Head);
    let error = rejection(repository.fetch(None).await);
    assert!(error.contains("is the repository empty?"), "{error}");
    let id = origin.commit("a", "b");
    assert_eq!(repository.fetch(None).await.unwrap().commit.id, id);
}

#[tokio::test]
async fn branches_tags_and_commits_are_followed() {
    let origin = Origin::new();
    let first = origin.work(&["rev-parse", "HEAD"]);
    origin.work(&["tag", "light"]);
    origin.work(&["tag", "-a", "v1", "-m", "one"]);
    origin.work(&["push", "-q", "origin", "HEAD:feature/a", "light", "v1"]);
    let second = origin.commit("compose.yaml", "second");
    let blob = origin.work(&["rev-parse", "HEAD:compose.yaml"]);
    origin.work(&["tag", "file", &blob]);
    origin.work(&["push", "-q", "origin", "file"]);

    let cases = [
        (Reference::Head, &second),
        (Reference::Branch("main".into()), &second),
        (Reference::Branch("feature/a".into()), &first),
        (Reference::Tag("light".into()), &first),
        (Reference::Tag("v1".into()), &first),
        (Reference::Commit(known(&first)), &first),
        (Reference::Commit(known(&second)), &second),
    ];
    // All with the same mirror, as when the configuration changes.
    for (reference, wanted) in cases {
        let repository = following(&origin, reference.clone());
        for _ in 0..2 {
            assert_eq!(&repository.fetch(None).await.unwrap().commit.id, wanted, "{reference:?}");
        }
    }
    let missing = [
        (Reference::Branch("mai".into()), "branch `mai` does not exist"),
        (Reference::Tag("v2".into()), "tag `v2` does not exist"),
        (Reference::Tag("file".into()), "points to a blob"),
        (Reference::Commit(known(&"1".repeat(40))), "no such commit"),
    ];
    for (reference, wanted) in missing {
        let error = rejection(following(&origin, reference).fetch(None).await);
        assert!(error.contains(wanted), "{error}");
    }
    for reference in [
        Reference::Branch("a*".into()),
        Reference::Commit(CommitId::from_stored("abc123")),
        Reference::Tag(" ".into()),
    ] {
        let options = RepositoryOptions { reference, ..options(&origin, origin.path().to_str().unwrap()) };
        assert!(Repository::open(options).is_err_and(|error| error.cause == Cause::InvalidSettings));
    }
}

#[tokio::test]
async fn a_pinned_commit_needs_no_server_once_it_is_here() {
    let origin = Origin::new();
    let id = origin.work(&["rev-parse", "HEAD"]);
    let repository = following(&origin, Reference::Commit(known(&id)));
    repository.fetch(None).await.unwrap();
    fs::rename(origin.path(), origin.dir.path().join("moved.git")).unwrap();
    assert_eq!(repository.fetch(Some(&known(&id))).await.unwrap().commit.id, id);
    drop(repository);
    assert_eq!(following(&origin, Reference::Commit(known(&id))).fetch(None).await.unwrap().commit.id, id);
}

#[tokio::test]
async fn repository_with_sha256_ids_is_read() {
    let origin = Origin::new();
    let repository = local(&origin);
    repository.fetch(None).await.unwrap();
    fs::remove_dir_all(origin.path()).unwrap();
    fs::remove_dir_all(origin.tree()).unwrap();
    for (folder, options) in [("work", None), ("infra.git", Some("--bare"))] {
        let place = origin.dir.path().join(folder);
        fs::create_dir(&place).unwrap();
        let mut arguments = vec!["-C", place.to_str().unwrap(), "init", "-q", "-b", "main"];
        arguments.extend(["--object-format=sha256"].into_iter().chain(options));
        assert!(std::process::Command::new("git").args(arguments).status().unwrap().success());
    }
    origin.work(&["remote", "add", "origin", "../infra.git"]);
    let id = origin.commit("compose.yaml", "sha256");
    assert_eq!(id.len(), 64);
    assert_eq!(text(&repository.fetch(None).await.unwrap(), "compose.yaml"), "sha256");
}

#[tokio::test]
async fn a_server_that_stalls_is_given_up_within_the_idle_limit() {
    let origin = Origin::new();
    let server = Server::start(&origin).await;
    let idle_timeout = Duration::from_millis(500);
    let repository = open(RepositoryOptions { idle_timeout, ..options(&origin, &server.url()) });
    for mode in [Mode::Silent, Mode::Stall(0), Mode::Stall(150), Mode::Stall(400)] {
        server.set(mode.clone());
        let began = Instant::now();
        let error = passing(repository.fetch(None).await);
        assert!(error.contains("sent nothing for 0.5 s"), "{mode:?}: {error}");
        assert!(began.elapsed() < Duration::from_secs(20), "{mode:?} took {:?}", began.elapsed());
    }
    drop(repository);
    server.set(Mode::Normal);
    open(options(&origin, &server.url())).fetch(None).await.unwrap();
}

#[tokio::test]
async fn a_server_that_drips_is_given_up_at_the_deadline() {
    let origin = Origin::new();
    let server = Server::start(&origin).await;
    server.set(Mode::Drip);
    let timeout = Duration::from_secs(1);
    let repository = open(RepositoryOptions { timeout, ..options(&origin, &server.url()) });
    let began = Instant::now();
    let error = passing(repository.fetch(None).await);
    assert!(error.contains("longer than 1 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_nobody_waits_for_ends() {
    let origin = Origin::new();
    let server = Server::start(&origin).await;
    server.set(Mode::Silent);
    let repository = open(options(&origin, &server.url()));
    let fetch = tokio::time::timeout(Duration::from_millis(300), repository.fetch(None)).await;
    assert!(fetch.is_err());
    server.set(Mode::Normal);
    // The idle limit is a minute: only the cancelled one gives the mirror free earlier.
    let began = Instant::now();
    repository.fetch(None).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_server_that_sends_too_much_is_refused() {
    let origin = Origin::empty();
    let noise: String = (0..40_000_u32).map(|it| format!("{:x}", it.wrapping_mul(2_654_435_761))).collect();
    origin.commit("noise", &noise);
    let server = Server::start(&origin).await;
    let repository = open(RepositoryOptions { most_bytes: 20_000, ..options(&origin, &server.url()) });
    let error = rejection(repository.fetch(None).await);
    assert!(error.contains("more than the limit of 20000 bytes"), "{error}");
    assert_eq!(fs::read_dir(origin.mirror().parent().unwrap()).unwrap().count(), 1, "only the lock is left");
}

#[tokio::test]
async fn commit_that_is_too_large_is_downloaded_after_a_pause() {
    let origin = Origin::new();
    let noise: String = (0..80_000_u32).map(|it| format!("{:x}", it.wrapping_mul(2_654_435_761))).collect();
    origin.commit("noise", &noise);
    let server = Server::start(&origin).await;
    let clock = Clock::jumping(Timestamp::parse("2026-06-01T12:00:00Z").unwrap());
    let Clock::Jumping { epoch, .. } = clock else { panic!() };
    let repository = open(RepositoryOptions {
        most_bytes: 100_000,
        download_pause: Duration::from_mins(15),
        clock,
        ..options(&origin, &server.url())
    });
    let downloads = || server.requests().iter().filter(|request| *request == "fetch").count();
    let first = rejection(repository.fetch(None).await);
    assert!(first.contains("keep large files out of Git"), "{first}");
    assert!(first.contains("not downloaded again before 2026-06-01 12:15:"), "{first}");
    assert_eq!(downloads(), 1);
    assert_eq!(rejection(repository.fetch(None).await), first);
    assert_eq!(downloads(), 0);

    epoch.fetch_add(15 * 60 * 1000, Ordering::SeqCst);
    let second = rejection(repository.fetch(None).await);
    assert!(second.contains("not downloaded again before 2026-06-01 12:45:"), "{second}");
    assert_eq!(downloads(), 1);
    repository.end_download_pause();
    assert!(rejection(repository.fetch(None).await).contains("before 2026-06-01 12:30:"));
    assert_eq!(downloads(), 1);

    origin.work(&["reset", "-q", "--hard", "HEAD^"]);
    let id = origin.commit_all("without it");
    assert_eq!(repository.fetch(None).await.unwrap().commit.id, id);
}

#[tokio::test]
async fn a_small_pack_that_unpacks_to_more_than_fits_is_refused() {
    let origin = Origin::new();
    fs::File::create(origin.tree().join("zeros")).unwrap().set_len(257 << 20).unwrap();
    origin.commit_all("a bomb");
    let repository = local(&origin);
    let error = rejection(repository.fetch(None).await);
    assert!(error.contains("256 MiB") && error.contains("6 million objects"), "{error}");

    origin.work(&["reset", "-q", "--hard", "HEAD^"]);
    let id = origin.commit_all("after it");
    assert_eq!(repository.fetch(None).await.unwrap().commit.id, id);
}

#[tokio::test]
async fn answers_of_http_servers_are_sorted_by_next_action() {
    let origin = Origin::new();
    let server = Server::start(&origin).await;
    let repository = open(options(&origin, &server.url()));
    let empty = "\r\nContent-Length: 0";
    let refused = [
        (format!("401 Unauthorized{empty}"), "set `auth`"),
        (format!("403 Forbidden{empty}"), "forbids it (403)"),
        (format!("404 Not Found{empty}"), "no such repository"),
        (
            format!("302 Found\r\nLocation: https://login.example.com/?token=hunter2{empty}"),
            "https://login.example.com",
        ),
        (format!("302 Found\r\nLocation: /login{empty}"), "not a repository"),
        (format!("200 OK\r\nContent-Type: text/html{empty}"), "not as a Git server"),
    ];
    for (answer, wanted) in refused {
        server.set(Mode::Answer(answer));
        let error = rejection(repository.fetch(None).await);
        assert!(error.contains(wanted) && !error.contains("hunter2"), "{error}");
    }
    for code in [429, 500, 502, 503] {
        server.set(Mode::Answer(format!("{code} Later\r\nRetry-After: 7{empty}")));
        match repository.fetch(None).await {
            Err(Error { cause: Cause::ServerFailed, retry_after, message, .. }) => {
                assert_eq!(retry_after, Some(Duration::from_secs(7)));
                assert!(message.contains(&code.to_string()), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
    let port = server.port;
    drop(server);
    drop(repository);
    let repository = open(options(&origin, &format!("http://127.0.0.1:{port}/infra.git")));
    let error = passing(repository.fetch(None).await);
    assert!(error.contains("connect error"), "{error}");
}

#[tokio::test]
async fn a_redirect_within_the_same_origin_is_followed() {
    let origin = Origin::new();
    let server = Server::start(&origin).await;
    let repository = open(options(&origin, &server.url().replace("infra.git", "old/infra.git")));
    server.set(Mode::Moved);
    repository.fetch(None).await.unwrap();
    server.requests();
    let target = format!("{}/info/refs?service=git-upload-pack", server.url());
    server.set(Mode::Answer(format!("301 Moved\r\nLocation: {target}\r\nContent-Length: 0")));
    let error = rejection(repository.fetch(None).await);
    assert!(error.contains("in circles"), "{error}");
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn an_old_server_is_understood() {
    let origin = Origin::new();
    origin.work(&["tag", "-a", "v1", "-m", "one"]);
    origin.work(&["push", "-q", "origin", "v1"]);
    let server = Server::start(&origin).await;
    server.set(Mode::Old);
    let first = origin.work(&["rev-parse", "HEAD"]);
    let repository = open(options(&origin, &server.url()));
    assert_eq!(repository.fetch(None).await.unwrap().commit.id, first);
    let second = origin.commit("compose.yaml", "second");
    assert_eq!(repository.fetch(Some(&known(&first))).await.unwrap().commit.id, second);
    drop(repository);
    for (reference, wanted) in [(Reference::Head, &second), (Reference::Tag("v1".into()), &first)] {
        let repository = open(RepositoryOptions { reference, ..options(&origin, &server.url()) });
        assert_eq!(&repository.fetch(None).await.unwrap().commit.id, wanted);
    }
}

#[tokio::test]
async fn stalled_servers_do_not_hold_up_others() {
    let origin = Origin::new();
    let (stalled, well) = (Server::start(&origin).await, Server::start(&origin).await);
    stalled.set(Mode::StallFetch);
    let permits = FetchPermits::default();
    let mut fetches = tokio::task::JoinSet::new();
    for number in 0..6 {
        let mirror = origin.dir.path().join(format!("state/stalled{number}"));
        let repository =
            open(RepositoryOptions { mirror, permits: permits.clone(), ..options(&origin, &stalled.url()) });
        fetches.spawn(async move { repository.fetch(None).await });
    }
    // Those four that may receive at the same time do.
    let mut asked = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while asked < 4 {
        tick.tick().await;
        asked += stalled.requests().iter().filter(|it| *it == "fetch").count();
    }
    let idle_timeout = Duration::from_secs(10);
    let repository = open(RepositoryOptions { permits, idle_timeout, ..options(&origin, &well.url()) });
    let began = Instant::now();
    repository.fetch(None).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
    assert!(fetches.try_join_next().is_none(), "the others are still stalled");
}

/// The program behind a conversation with a server must not be awaited on a thread of the runtime.
#[tokio::test]
async fn a_fetch_may_be_given_up_at_any_moment() {
    let origin = Origin::new();
    let stalled = Server::start(&origin).await;
    stalled.set(Mode::StallFetch);
    let permits = FetchPermits::default();
    let mut fetches = tokio::task::JoinSet::new();
    for number in 0..4 {
        let mirror = origin.dir.path().join(format!("state/stalled{number}"));
        let repository =
            open(RepositoryOptions { mirror, permits: permits.clone(), ..options(&origin, &stalled.url()) });
        fetches.spawn(async move { repository.fetch(None).await });
    }
    let mut asked = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while asked < 4 {
        tick.tick().await;
        asked += stalled.requests().iter().filter(|it| *it == "fetch").count();
    }
    // No permit is left, so this one lists the references and then waits.
    let path = origin.path().display().to_string();
    let repository = open(RepositoryOptions { permits, ..options(&origin, &path) });
    for moment in (0..600).step_by(40) {
        let fetching = repository.clone();
        let fetch = tokio::spawn(async move { fetching.fetch(None).await });
        tokio::time::sleep(Duration::from_millis(moment)).await;
        fetch.abort();
        assert!(fetch.await.is_err_and(|error| error.is_cancelled()), "given up after {moment} ms");
    }
    drop(fetches);
    repository.fetch(None).await.unwrap();
}

#[tokio::test]
async fn contradictory_options_are_refused() {
    let origin = Origin::new();
    let user = || Some(Secret::Plain("me".into()));
    let key = || Some(PathBuf::from("/key"));
    let password = || Some(Secret::Environment("TOKEN".into()));
    let cases = [
        ("http://h/r", Auth { password: password(), ..Auth::default() }, "only sent over https"),
        ("ssh://h/r", Auth { password: password(), ..Auth::default() }, "`auth.sshKeyFile`"),
        ("/srv/r", Auth { password: password(), ..Auth::default() }, "cannot be used over a local path"),
        ("https://h/r", Auth { username: user(), ..Auth::default() }, "without a password or token"),
        ("https://h/r", Auth { ssh_key: key(), ..Auth::default() }, "cannot be used over https"),
        ("/srv/r", Auth { known_hosts: key(), ..Auth::default() }, "cannot be used over a local path"),
    ];
    for (url, auth, wanted) in cases {
        let options = RepositoryOptions { credentials: with_auth(auth), ..options(&origin, url) };
        let error = Repository::open(options).unwrap_err().to_string();
        assert!(error.contains(wanted), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_token_is_sent_over_tls_only_and_shows_nowhere() {
    let origin = Origin::new();
    let token = origin.dir.path().join("token");
    fs::write(&token, "hunter2\n").unwrap();
    let auth = Auth { password: Some(Secret::File(token.clone())), ..Auth::default() };
    // `git:hunter2`.
    let server = Server::start_secure(&origin, "Basic Z2l0Omh1bnRlcjI=").await;
    let secure = || RepositoryOptions {
        credentials: with_auth(auth.clone()),
        ca_file: Some(ca_file()),
        ..options(&origin, &server.url())
    };
    let repository = open(secure());
    repository.fetch(None).await.unwrap();
    for path in files_below(&origin.dir.path().join("state")) {
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(7).any(|it| it == b"hunter2"), "{}", path.display());
    }
    assert!(!format!("{repository:?} {:?}", secure()).contains("hunter2"));

    fs::write(&token, "rotated-hunter3").unwrap();
    let error = rejection(repository.fetch(None).await);
    assert!(error.contains("refuses the user name or token") && !error.contains("hunter3"), "{error}");
    fs::remove_file(&token).unwrap();
    assert!(rejection(repository.fetch(None).await).contains("could not read the file"));
    drop(repository);

    let error =
        rejection(open(RepositoryOptions { credentials: Credentials::none(), ..secure() }).fetch(None).await);
    assert!(error.contains("set `auth`"), "{error}");
    fs::write(&token, "hunter2").unwrap();
    let error = rejection(open(RepositoryOptions { ca_file: None, ..secure() }).fetch(None).await);
    assert!(error.contains("certificate is not trusted"), "{error}");
    let plain = RepositoryOptions {
        ca_file: None,
        url: RepoUrl::parse(&server.url().replace("https", "http")).unwrap(),
        ..secure()
    };
    let error = Repository::open(plain).unwrap_err().to_string();
    assert!(error.contains("only sent over https"), "{error}");
}

#[tokio::test]
async fn an_unknown_authority_is_not_trusted() {
    let origin = Origin::new();
    let server = Server::start_secure(&origin, "").await;
    let error = rejection(open(options(&origin, &server.url())).fetch(None).await);
    assert!(error.contains("certificate is not trusted"), "{error}");
}

#[tokio::test]
async fn self_signed_certificate_of_the_server_is_a_ca_file() {
    let origin = Origin::new();
    let server = Server::start_self_signed(&origin).await;
    let with = |file: Option<&str>| RepositoryOptions {
        ca_file: file.map(|file| ca_file().with_file_name(file)),
        ..options(&origin, &server.url())
    };
    open(with(Some("self-signed.pem"))).fetch(None).await.unwrap();
    for other in [None, Some("ca.pem")] {
        let error = rejection(open(with(other)).fetch(None).await);
        assert!(error.contains("certificate is not trusted"), "{error}");
    }
}

#[tokio::test]
async fn ssh_fetches_with_a_key_from_a_known_host_only() {
    let origin = Origin::new();
    let sshd = Sshd::start(&origin).await;
    let with = |key: Option<&str>, known_hosts: Option<&str>| {
        let place = |name: &str| sshd.folder.join(name);
        let auth = Auth { ssh_key: key.map(place), known_hosts: known_hosts.map(place), ..Auth::default() };
        open(RepositoryOptions { credentials: with_auth(auth), ..options(&origin, &sshd.url(&origin)) })
    };
    let repository = with(Some("client"), Some("known_hosts"));
    let first = repository.fetch(None).await.unwrap();
    let id = origin.commit("compose.yaml", "over ssh");
    let second = repository.fetch(Some(&first.commit.id)).await.unwrap();
    assert_eq!(
        (second.commit.id.as_str(), text(&second, "compose.yaml").as_str()),
        (id.as_str(), "over ssh")
    );
    drop(repository);

    let error = rejection(with(Some("stranger"), Some("known_hosts")).fetch(None).await);
    assert!(error.contains("Permission denied"), "{error}");
    let error = rejection(with(Some("client"), None).fetch(None).await);
    assert!(error.contains("`auth.hostKeys`"), "{error}");
    fs::write(sshd.folder.join("nobody"), "").unwrap();
    let error = rejection(with(Some("client"), Some("nobody")).fetch(None).await);
    assert!(error.contains("no key of it is known"), "{error}");
    let error = rejection(with(Some("none"), Some("known_hosts")).fetch(None).await);
    assert!(error.contains("could not read the SSH key"), "{error}");

    fs::rename(origin.path(), origin.dir.path().join("moved.git")).unwrap();
    let error = rejection(with(Some("client"), Some("known_hosts")).fetch(None).await);
    assert!(error.contains("not appear to be a git repository"), "{error}");
}

#[tokio::test]
async fn silent_ssh_server_ends_the_fetch() {
    let origin = Origin::new();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let known = origin.dir.path().join("known_hosts");
    fs::write(&known, "").unwrap();
    let credentials = with_auth(Auth { known_hosts: Some(known), ..Auth::default() });
    let url = format!("ssh://git@127.0.0.1:{port}/infra.git");
    let idle_timeout = Duration::from_millis(700);
    let repository = open(RepositoryOptions { credentials, idle_timeout, ..options(&origin, &url) });
    let began = Instant::now();
    passing(repository.fetch(None).await);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    drop(silent);
    passing(repository.fetch(None).await);
}
