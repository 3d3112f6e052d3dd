//! Mirrors that are damaged, half made, locked or killed in the middle: each is found and made again.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::{Proxy, Reference};
use driftless_git::{Cause, CommitSource, Credentials, FetchPermits, Repository, RepositoryOptions};
use driftless_model::RepoUrl;

use crate::{
    fetch::{PATIENCE, local, open, options, packs, passing, text},
    origin::{Mode, Origin, Server, known},
};

/// Every kind of damage that a full disk, a crash or a person can do.
#[tokio::test]
async fn damaged_mirror_is_cloned_again() {
    type Break = fn(&Path);
    let damages: [(&str, Break); 12] = [
        ("pack cut in half", |mirror| {
            let pack = &packs(mirror, "pack")[0];
            let bytes = fs::read(pack).unwrap();
            replace(pack, &bytes[..bytes.len() / 2]);
        }),
        ("pack with flipped bytes", |mirror| {
            let pack = &packs(mirror, "pack")[0];
            let mut bytes = fs::read(pack).unwrap();
            let end = bytes.len() - 20;
            bytes[12..end].iter_mut().for_each(|it| *it ^= 0xff);
            replace(pack, &bytes);
        }),
        ("pack empty", |mirror| replace(&packs(mirror, "pack")[0], b"")),
        ("pack missing", |mirror| fs::remove_file(&packs(mirror, "pack")[0]).unwrap()),
        ("index cut in half", |mirror| {
            let index = &packs(mirror, "idx")[0];
            let bytes = fs::read(index).unwrap();
            replace(index, &bytes[..bytes.len() / 2]);
        }),
        ("index missing", |mirror| fs::remove_file(&packs(mirror, "idx")[0]).unwrap()),
        ("references garbage", |mirror| replace(&mirror.join("packed-refs"), b"\0garbage\n")),
        ("reference without length", |mirror| {
            fs::create_dir_all(mirror.join("refs/driftless")).unwrap();
            fs::write(mirror.join("refs/driftless/tip"), "").unwrap();
        }),
        ("references missing", |mirror| fs::remove_file(mirror.join("packed-refs")).unwrap()),
        ("configuration garbage", |mirror| replace(&mirror.join("config"), b"[[[")),
        ("HEAD missing", |mirror| fs::remove_file(mirror.join("HEAD")).unwrap()),
        ("everything missing", |mirror| {
            fs::remove_dir_all(mirror).unwrap();
            fs::create_dir(mirror).unwrap();
        }),
    ];
    for (name, damage) in damages {
        for moved in [false, true] {
            let origin = Origin::new();
            let repository = local(&origin);
            let first = repository.fetch(None).await.unwrap().commit.id;
            drop(repository);
            damage(&origin.mirror());
            let wanted =
                if moved { known(&origin.commit("compose.yaml", "services: {} # new")) } else { first };

            let repository = local(&origin);
            let checkout = repository.fetch(None).await.unwrap_or_else(|it| panic!("{name}, {moved}: {it}"));
            assert_eq!(checkout.commit.id, wanted, "{name}");
            assert!(text(&checkout, "compose.yaml").starts_with("services: {}"), "{name}");
            let leftovers = ["new", "old"].map(|it| origin.mirror().with_extension(it).exists());
            assert_eq!(leftovers, [false, false], "{name}");
            let settled = repository.fetch(Some(&wanted)).await.unwrap();
            assert_eq!(settled.commit.id, wanted, "{name}");
        }
    }
}

/// Packs are mapped into memory: they may be replaced, but not cut short in place.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn damage_is_detected_and_repaired_by_the_next_fetch() {
    let origin = Origin::new();
    let kept = origin.work(&["rev-parse", "HEAD"]);
    let repository = local(&origin);
    repository.fetch(None).await.unwrap();
    repository.keep(vec![known(&kept)]).await.unwrap();
    let id = origin.commit("compose.yaml", "two");
    repository.fetch(None).await.unwrap();

    // The pack of the newest commit.
    let newest = packs(&origin.mirror(), "pack")
        .into_iter()
        .max_by_key(|it| fs::metadata(it).unwrap().modified().unwrap());
    fs::remove_file(newest.unwrap()).unwrap();
    assert!(repository.local(&known(&id)).await.is_err());
    assert_eq!(text(&repository.fetch(Some(&known(&id))).await.unwrap(), "compose.yaml"), "two");
    assert_eq!(text(&repository.local(&known(&kept)).await.unwrap(), "compose.yaml"), "services: {}");
    let references = fs::read_to_string(origin.mirror().join("packed-refs")).unwrap();
    assert!(references.contains(&format!("refs/driftless/keep/{kept}")), "{references}");
}

#[tokio::test]
async fn a_kept_commit_is_carried_over_to_a_new_mirror() {
    let origin = Origin::new();
    let base = origin.work(&["rev-parse", "HEAD"]);
    let kept = origin.commit("compose.yaml", "kept");
    let repository = local(&origin);
    repository.fetch(None).await.unwrap();
    repository.keep(vec![known(&kept)]).await.unwrap();
    origin.work(&["reset", "-q", "--hard", &base]);
    let new = origin.commit("compose.yaml", "new");
    repository.fetch(None).await.unwrap();
    drop(repository);
    assert_eq!(packs(&origin.mirror(), "pack").len(), 2);
    // Only the second pack is lost; the server does not have the kept commit any more.
    let newest = packs(&origin.mirror(), "pack")
        .into_iter()
        .max_by_key(|it| fs::metadata(it).unwrap().modified().unwrap());
    fs::remove_file(newest.unwrap()).unwrap();
    origin.bare(&["reflog", "expire", "--expire=now", "--all"]);
    origin.bare(&["gc", "-q", "--prune=now"]);

    let repository = local(&origin);
    assert_eq!(repository.fetch(None).await.unwrap().commit.id, new);
    assert_eq!(text(&repository.local(&known(&kept)).await.unwrap(), "compose.yaml"), "kept");
}

#[tokio::test]
async fn damaged_mirror_stays_if_it_cannot_be_cloned_again() {
    let origin = Origin::new();
    let server = Server::start(&origin).await;
    let repository = open(options(&origin, &server.url()));
    let id = repository.fetch(None).await.unwrap().commit.id;
    let spoil = || fs::remove_file(&packs(&origin.mirror(), "idx")[0]).unwrap();
    spoil();
    assert_eq!(repository.local(&id).await.unwrap_err().cause, Cause::RepositoryDamaged);
    server.set(Mode::Answer("503 Busy\r\nContent-Length: 0".into()));
    passing(repository.fetch(Some(&id)).await);
    assert_eq!(packs(&origin.mirror(), "pack").len(), 1, "the old mirror stays");

    drop(repository);
    server.set(Mode::Normal);
    let repository = open(options(&origin, &server.url()));
    repository.fetch(Some(&id)).await.unwrap();
    spoil();
    assert!(repository.local(&id).await.is_err());
    let next = origin.commit("compose.yaml", "next");
    let error = repository.fetch(Some(&id)).await.unwrap_err();
    assert!(error.cause == Cause::RepositoryDamaged && error.message.contains("disk"), "{error:?}");

    let patient = RepositoryOptions { clone_pause: Duration::ZERO, ..options(&origin, &server.url()) };
    drop(repository);
    assert_eq!(open(patient).fetch(Some(&id)).await.unwrap().commit.id, next);
}

#[tokio::test]
async fn leftovers_of_a_killed_agent_are_removed() {
    let origin = Origin::new();
    let repository = local(&origin);
    repository.fetch(None).await.unwrap();
    drop(repository);
    let mirror = origin.mirror();
    fs::create_dir_all(mirror.join("refs/driftless")).unwrap();
    let stale = [
        "packed-refs.lock",
        "HEAD.lock",
        "config.lock",
        "shallow.lock",
        "refs/driftless/tip.lock",
        "objects/pack/.tmpAbc123",
        "objects/pack/pack-1234.keep",
    ];
    for name in stale {
        fs::write(mirror.join(name), "").unwrap();
    }
    fs::create_dir_all(mirror.with_extension("new").join("objects")).unwrap();
    let id = origin.commit("compose.yaml", "new");

    let repository = local(&origin);
    assert_eq!(repository.fetch(None).await.unwrap().commit.id, id);
    for name in stale {
        assert!(!mirror.join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn a_half_made_mirror_is_made_again() {
    let origin = Origin::new();
    fs::create_dir_all(origin.mirror().join("objects/pack")).unwrap();
    fs::write(origin.mirror().join("HEAD"), "ref: refs/heads/main\n").unwrap();
    local(&origin).fetch(None).await.unwrap();
}

#[tokio::test]
async fn a_second_agent_is_refused_the_mirror() {
    let origin = Origin::new();
    let _first = local(&origin);
    let error = Repository::open(options(&origin, origin.path().to_str().unwrap())).unwrap_err().to_string();
    assert!(error.contains("in use by another process"), "{error}");
}

/// Child of the next test: clones for ever, until it is killed.
#[tokio::test]
#[ignore = "run by `a_fetch_that_is_killed_at_any_moment_is_done_again`"]
async fn clones_until_killed() {
    let Ok(folder) = std::env::var("DRIFTLESS_TEST_ORIGIN") else { return };
    let folder = PathBuf::from(folder);
    let mirror = folder.join("state/infra");
    loop {
        let origin = folder.join("infra.git");
        let options = RepositoryOptions {
            url: RepoUrl::Local(origin.clone()),
            reference: Reference::Head,
            credentials: Credentials::none(),
            ca_file: None,
            proxy: Proxy::Direct,
            submodules: false,
            submodule_paths: Vec::new(),
            policies: Vec::new(),
            timeout: PATIENCE,
            idle_timeout: PATIENCE,
            mirror: mirror.clone(),
            most_bytes: u64::MAX,
            clone_pause: PATIENCE,
            download_pause: Duration::ZERO,
            permits: FetchPermits::default(),
            clock: Clock::System,
        };
        let repository = open(options);
        let id = repository.fetch(None).await.unwrap().commit.id;
        println!("{id}");
        drop(repository);
        let _ = fs::remove_dir_all(&mirror);
    }
}

#[tokio::test]
async fn a_fetch_that_is_killed_at_any_moment_is_done_again() {
    let origin = Origin::new();
    for number in 0..50 {
        fs::write(origin.tree().join(format!("f{number}")), format!("{number}").repeat(5000)).unwrap();
    }
    let id = origin.commit_all("many");
    let mut pause = tokio::time::interval(Duration::from_millis(7));
    for round in 0..12 {
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "damage::clones_until_killed", "--nocapture"])
            .env("DRIFTLESS_TEST_ORIGIN", origin.dir.path())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // It has cloned once, and is somewhere in the next clone when it is killed.
        let output = child.stdout.take().unwrap();
        let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(output));
        while lines.next_line().await.unwrap().is_some_and(|it| !it.contains(&id)) {}
        for _ in 0..round {
            pause.tick().await;
        }
        child.kill().await.unwrap();

        let repository = local(&origin);
        let checkout = repository.fetch(None).await.unwrap();
        assert_eq!(checkout.commit.id, id);
        assert_eq!(text(&checkout, "f49").len(), 10_000);
    }
}
