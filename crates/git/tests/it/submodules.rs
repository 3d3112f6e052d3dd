//! Submodules of real repositories: followed where they should be, refused where not.

use std::{fs, path::PathBuf, process::Command};

use driftless_config::{Auth, Secret};
use driftless_files::{Entry, ReadError};
use driftless_git::{Cause, Checkout, CommitSource, Repository, RepositoryOptions};

use crate::{
    fetch::{open, options, rejection, text, with_auth},
    origin::{Origin, Server, ca_file, known},
};

/// Another repository next to the origin's: a work tree and a bare one that is pushed to.
struct Other {
    work: PathBuf,
}

impl Other {
    fn new(origin: &Origin, name: &str) -> Self {
        let folder = origin.dir.path();
        let work = folder.join(format!("work-{name}"));
        git(folder, &["init", "-q", "-b", "main", work.to_str().unwrap()]);
        git(folder, &["init", "-q", "--bare", "-b", "main", &format!("{name}.git")]);
        git(&work, &["remote", "add", "origin", &format!("../{name}.git")]);
        Self { work }
    }

    fn commit(&self, path: &str, text: &str) -> String {
        fs::write(self.work.join(path), text).unwrap();
        self.push()
    }

    /// Pins a commit of another repository at a path.
    fn pin(&self, path: &str, url: &str, commit: &str) -> String {
        pin(&self.work, path, url, commit);
        self.push()
    }

    fn push(&self) -> String {
        git(&self.work, &["add", "-A", "--", "."]);
        git(&self.work, &["commit", "-q", "--allow-empty", "-m", "x"]);
        git(&self.work, &["push", "-q", "--force", "origin", "HEAD:main"]);
        git(&self.work, &["rev-parse", "HEAD"])
    }
}

fn git(folder: &std::path::Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Writes the same as `git submodule add`, without a checkout. The folder is there, or `git add` would drop the link.
fn pin(work: &std::path::Path, path: &str, url: &str, commit: &str) {
    let list = work.join(".gitmodules");
    let list = list.to_str().unwrap();
    git(work, &["config", "-f", list, &format!("submodule.{path}.path"), path]);
    git(work, &["config", "-f", list, &format!("submodule.{path}.url"), url]);
    fs::create_dir_all(work.join(path)).unwrap();
    git(work, &["update-index", "--add", "--cacheinfo", &format!("160000,{commit},{path}")]);
}

/// Pins in the origin itself, and pushes.
fn pin_in(origin: &Origin, path: &str, url: &str, commit: &str) -> String {
    pin(&origin.tree(), path, url, commit);
    origin.commit_all("pin")
}

fn with_modules(origin: &Origin, url: &str) -> Repository {
    let submodule_paths = vec![origin.dir.path().to_owned()];
    open(RepositoryOptions { submodules: true, submodule_paths, ..options(origin, url) })
}

fn local(origin: &Origin) -> Repository {
    with_modules(origin, origin.path().to_str().unwrap())
}

fn names(checkout: &Checkout, folder: &str) -> Vec<String> {
    checkout.files.list(folder).unwrap().into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn submodules_are_read_at_their_pinned_commits() {
    let origin = Origin::new();
    let (lib, deep) = (Other::new(&origin, "lib"), Other::new(&origin, "deep"));
    let bottom = deep.commit("z.yaml", "deep");
    lib.commit("a.yaml", "one");
    let one = lib.pin("deep", "../deep.git", &bottom);
    pin_in(&origin, "vendor/lib", "../lib.git", &one);
    lib.commit("a.yaml", "two, which is not pinned");

    let server = Server::start_secure(&origin, "Basic Z2l0Om9uZQ==").await;
    let auth = Auth { password: Some(Secret::Plain("one".into())), ..Auth::default() };
    let repository = open(RepositoryOptions {
        credentials: with_auth(auth),
        ca_file: Some(ca_file()),
        submodules: true,
        ..options(&origin, &server.url())
    });
    let first = repository.fetch(None).await.unwrap();
    assert_eq!(text(&first, "vendor/lib/a.yaml"), "one");
    assert_eq!(text(&first, "vendor/lib/deep/z.yaml"), "deep");
    assert_eq!(names(&first, "vendor/lib"), [".gitmodules", "a.yaml", "deep"]);
    assert_eq!(first.files.list("vendor").unwrap(), [("lib".to_owned(), Entry::Folder)]);
    assert_eq!(first.files.entry("vendor/lib").unwrap(), Some(Entry::Folder));
    assert_eq!(first.files.entry("vendor/libx").unwrap(), None);

    // Nothing more than a listing when nothing changed.
    server.requests();
    repository.fetch(Some(&first.commit.id)).await.unwrap();
    assert_eq!(server.requests(), ["refs", "ls-refs"]);

    // The pin moves; what was there before can still be gone back to, and is forgotten in the end.
    let two = lib.commit("a.yaml", "two");
    pin_in(&origin, "vendor/lib", "../lib.git", &two);
    let second = repository.fetch(Some(&first.commit.id)).await.unwrap();
    assert_eq!(text(&second, "vendor/lib/a.yaml"), "two");
    repository.keep(vec![first.commit.id.clone()]).await.unwrap();
    let back = repository.local(&first.commit.id).await.unwrap();
    assert_eq!(text(&back, "vendor/lib/a.yaml"), "one");
    assert_ne!(first.files.id("vendor/lib/a.yaml"), second.files.id("vendor/lib/a.yaml"));
    assert_eq!(first.files.id("vendor/lib/deep/z.yaml"), second.files.id("vendor/lib/deep/z.yaml"));

    // A restart without the server.
    drop((repository, first, second, back));
    drop(server);
    let repository = local(&origin);
    assert!(repository.fetch(None).await.is_ok(), "from another place, which is a local path");
}

#[tokio::test]
async fn mirror_of_a_submodule_that_left_git_is_removed() {
    let origin = Origin::new();
    let (lib, other) = (Other::new(&origin, "lib"), Other::new(&origin, "other"));
    let (one, two) = (lib.commit("a.yaml", "one"), other.commit("a.yaml", "two"));
    pin_in(&origin, "vendor/lib", "../lib.git", &one);
    let repository = local(&origin);
    let first = repository.fetch(None).await.unwrap().commit.id;
    pin_in(&origin, "vendor/lib", "../other.git", &two);
    let second = repository.fetch(Some(&first)).await.unwrap().commit.id;
    let mirrors = || {
        let entries = fs::read_dir(origin.mirror().with_file_name("infra.modules")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    drop(repository);

    let repository = local(&origin);
    repository.keep(vec![first.clone()]).await.unwrap();
    assert_eq!(mirrors(), 2, "the commit of a rollback needs it");
    drop(repository);
    let repository = local(&origin);
    repository.keep(vec![second.clone()]).await.unwrap();
    assert_eq!(mirrors(), 1);
    assert_eq!(text(&repository.local(&second).await.unwrap(), "vendor/lib/a.yaml"), "two");
}

#[tokio::test]
async fn damaged_mirror_of_a_submodule_is_not_cloned_at_each_fetch() {
    let origin = Origin::new();
    let lib = Other::new(&origin, "lib");
    let one = lib.commit("a.yaml", "one");
    pin_in(&origin, "vendor/lib", "../lib.git", &one);
    let repository = local(&origin);
    let id = repository.fetch(None).await.unwrap().commit.id;
    let modules = fs::read_dir(origin.mirror().with_file_name("infra.modules")).unwrap();
    let mut mirrors = modules.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let config = mirrors.next().unwrap().join("config");
    fs::write(&config, "[[[").unwrap();
    let again = repository.fetch(Some(&id)).await.unwrap();
    assert_eq!(text(&again, "vendor/lib/a.yaml"), "one", "it was cloned again");
    fs::write(&config, "[[[").unwrap();
    let error = repository.fetch(Some(&id)).await.unwrap_err();
    assert!(error.cause == Cause::RepositoryDamaged && error.message.contains("check the disk"), "{error:?}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "[[[");
}

#[tokio::test]
async fn newest_commit_is_read_with_its_submodules() {
    let origin = Origin::new();
    let lib = Other::new(&origin, "lib");
    lib.commit("a.yaml", "one");
    let two = lib.commit("a.yaml", "two");
    pin_in(&origin, "vendor/lib", "../lib.git", &two);
    let server = Server::start(&origin).await;
    let options = RepositoryOptions { submodules: true, ..options(&origin, &server.url()) };
    let newest = Repository::peek(options).await.unwrap();
    assert_eq!(text(&newest, "vendor/lib/a.yaml"), "two");
    let modules = origin.mirror().with_file_name("infra.modules");
    let mirrors = fs::read_dir(modules).unwrap().map(|entry| entry.unwrap().path());
    let mirrors: Vec<PathBuf> = mirrors.filter(|path| path.is_dir()).collect();
    assert_eq!(mirrors.len(), 1, "{mirrors:?}");
    assert_eq!(git(&mirrors[0], &["rev-list", "--all"]), two, "it has no history");
}

#[tokio::test]
async fn invalid_submodules_are_rejected_and_old_commit_stays() {
    let origin = Origin::new();
    let lib = Other::new(&origin, "lib");
    let one = lib.commit("a.yaml", "one");
    let good = pin_in(&origin, "lib", "../lib.git", &one);
    let server = Server::start(&origin).await;
    let repository = with_modules(&origin, &server.url());
    repository.fetch(None).await.unwrap();

    let head = git(&origin.tree(), &["rev-parse", "HEAD"]);
    let circle = lib.pin("up", "../infra.git", &head);
    let elsewhere = "https://git.example.com/x.git";
    for (path, url, commit, wanted) in [
        ("lib", "../lib.git", circle.as_str(), "leads back to"),
        ("lib", "../infra.git", one.as_str(), "leads back to"),
        ("lib", elsewhere, one.as_str(), "another server"),
        ("lib", "git@127.0.0.1:lib.git", one.as_str(), "another server"),
        ("lib", "/etc", one.as_str(), "another server"),
        ("lib", "../../../x", one.as_str(), "above the server's root"),
        ("lib", "../lib.git", "1234567890123456789012345678901234567890", "no such commit"),
        ("lib", "../nothing.git", one.as_str(), "no such repository"),
    ] {
        pin_in(&origin, path, url, commit);
        let error = rejection(repository.fetch(Some(&known(&good))).await);
        assert!(error.contains("the submodule `lib") && error.contains(wanted), "{url}: {error}");
        let kept = repository.local(&known(&good)).await.unwrap();
        assert_eq!(text(&kept, "lib/a.yaml"), "one");
    }
    fs::write(
        origin.tree().join(".gitmodules"),
        "[submodule \"x\"]\n\tpath = ../../etc\n\turl = ../lib.git\n",
    )
    .unwrap();
    origin.commit_all("a path that leaves");
    assert!(rejection(repository.fetch(Some(&known(&good))).await).contains("leaves the repository"));
    fs::write(origin.tree().join(".gitmodules"), "[[[").unwrap();
    origin.commit_all("no list");
    assert!(rejection(repository.fetch(Some(&known(&good))).await).contains("not in Git's format"));

    // With submodules off, none is asked for, and a file in one is an error.
    drop(repository);
    let off = open(options(&origin, &server.url()));
    let checkout = off.fetch(None).await.unwrap();
    let told = checkout.files.read("lib/a.yaml", 9).unwrap_err();
    assert!(matches!(told, ReadError::Submodule { .. }) && told.to_string().contains("`submodules: true`"));
}

#[tokio::test]
async fn local_submodules_are_refused_outside_the_allowed_folders() {
    let origin = Origin::new();
    let lib = Other::new(&origin, "lib");
    let one = lib.commit("a.yaml", "one");
    let url = origin.path().to_str().unwrap().to_owned();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(origin.dir.path().join("lib.git"), outside.path().join("link.git")).unwrap();
    let link = outside.path().join("link.git");
    let absolute = origin.dir.path().join("lib.git");
    for path in ["../lib.git", absolute.to_str().unwrap(), link.to_str().unwrap(), "../other/../lib.git"] {
        pin_in(&origin, "lib", path, &one);
        for submodule_paths in [Vec::new(), vec![outside.path().to_owned()]] {
            let allowed = RepositoryOptions { submodules: true, submodule_paths, ..options(&origin, &url) };
            let error = rejection(open(allowed).fetch(None).await);
            assert!(
                error.contains("the submodule `lib`") && error.contains("`submodulePaths`"),
                "{path}: {error}"
            );
        }
    }
    // The mirror of a repository, of which this one may be told to read the folder.
    pin_in(&origin, "lib", absolute.to_str().unwrap(), &one);
    let mirror = origin.dir.path().join("mirror");
    let allowed = RepositoryOptions {
        submodules: true,
        submodule_paths: vec![origin.dir.path().to_owned()],
        mirror,
        ..options(&origin, &url)
    };
    assert!(rejection(open(allowed).fetch(None).await).contains("`submodulePaths`"));
}
