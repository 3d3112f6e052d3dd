//! The harness keeps what it promises: without that, no other test in here means anything.

use crate::harness::{Docker, Engine, GitServer, Registry, Repository, Site, SshServer, git, images, random};

#[tokio::test]
async fn git_server_serves_pushes_and_can_be_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::new(dir.path());
    let mut server = GitServer::start(&dir.path().join("repositories"));
    let commit = repository.commit(&[("sites/shop/compose.yaml", "services: {}\n")]);
    let clone = |to: &str| git(dir.path(), &["clone", "-q", &server.url(), to]);
    clone("one");
    assert_eq!(git(&dir.path().join("one"), &["rev-parse", "HEAD"]), commit);
    let requests = server.take_requests();
    assert!(requests.iter().any(|it| it.starts_with("POST /infra.git/git-upload-pack")), "{requests:?}");

    server.down();
    let listing = std::process::Command::new("git").args(["ls-remote", &server.url()]).output().unwrap();
    assert!(!listing.status.success(), "the server still answers");
    server.up();
    let listing = git(dir.path(), &["ls-remote", &server.url(), "refs/heads/main"]);
    assert!(listing.starts_with(&commit), "{listing}");
}

#[tokio::test]
async fn a_force_push_leaves_nothing_of_the_old_commit_on_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::new(dir.path());
    let old = repository.commit(&[("file", "old\n")]);
    let new = repository.rewrite(1, &[("file", "new\n")]);
    assert_ne!(old, new);
    assert_eq!(git(&repository.bare, &["rev-parse", "main"]), new);
    let gone = std::process::Command::new("git")
        .args(["cat-file", "-e", &old])
        .current_dir(&repository.bare)
        .output()
        .unwrap();
    assert!(!gone.status.success(), "{old} is still there");
}

#[tokio::test]
async fn the_test_image_runs_and_is_cleaned_up_with_its_site() {
    let image = images::server("1.0");
    assert_eq!(images::server("1.0"), image, "it is made once");
    let docker = Docker::default();
    let app = {
        let site = Site::new("ground");
        let label = format!("driftless.application={}", site.app);
        docker.run(&["network", "create", "--label", &label, &site.app]);
        docker.run(&["run", "-d", "--name", &site.name("web"), "--label", &label, &image]);
        let web = site.container("web");
        assert_eq!((web.state().as_str(), web.variable("VERSION").as_deref()), ("running", Some("1.0")));
        let address = web.address().unwrap();
        let body = reqwest::get(format!("http://{address}:8080/")).await.unwrap().text().await.unwrap();
        assert!(body.starts_with("server 1.0 on "), "{body}");
        site.app.clone()
    };
    assert!(docker.containers(&app).is_empty());
    assert_eq!(docker.run(&["network", "ls", "-q", "--filter", &format!("name={app}")]), "");
    assert_ne!(random(), random());
}

#[tokio::test]
async fn registry_serves_only_published_images() {
    let site = Site::new("registry");
    let registry = Registry::start(&site.directory()).await;
    let image = registry.publish(&site.docker, &site.app, "1.0.0");
    assert!(site.docker.attempt(&["image", "inspect", &image]).is_err(), "a copy is left on the host");
    site.docker.run(&["pull", "-q", &image]);
    site.docker.run(&["rmi", &image]);
    let error = site.docker.attempt(&["pull", "-q", &image.replace("1.0.0", "1.0.1")]).unwrap_err();
    assert!(error.contains("1.0.1"), "{error}");
}

#[tokio::test]
async fn the_ssh_server_lets_its_key_read_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::new(dir.path());
    let server = SshServer::start(dir.path()).await;
    let ssh = format!(
        "ssh -F none -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile={}",
        server.key().display(),
        server.known_hosts().display()
    );
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(words).current_dir(&repository.bare).env("GIT_SSH_COMMAND", &ssh).output().unwrap()
    };
    let listing = run(&["ls-remote", &server.url(), "refs/heads/main"]);
    let text = String::from_utf8_lossy(&listing.stdout).into_owned();
    assert!(text.starts_with(&repository.head()), "{}", String::from_utf8_lossy(&listing.stderr));
    let push = run(&["push", &server.url(), "main:refs/heads/other"]);
    assert!(!push.status.success(), "it may only read");
}

#[tokio::test]
async fn the_second_engine_can_be_killed_and_leaves_the_first_alone() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut engine) = Engine::new(directory.path()) else {
        eprintln!("not run: a second engine needs root and network namespaces");
        return;
    };
    engine.start().await;
    let (first, second) = (Docker::default(), Docker { host: Some(engine.host()) });
    let image = images::server_as(&second, "driftless-e2e/server:1.0", "1.0");
    let id = second.run(&["run", "-d", "--restart", "always", &image]);
    assert!(first.container(&id).is_none());
    engine.kill9();
    assert!(second.attempt(&["version"]).is_err());
    first.run(&["version"]);
    engine.start().await;
    crate::harness::wait_until("its container runs again", || {
        second.container(&id).filter(|it| it.state() == "running")
    })
    .await;
    second.run(&["rm", "-f", &id]);
}
