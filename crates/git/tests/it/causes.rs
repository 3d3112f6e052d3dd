//! The cause of each error, with real servers: it decides when the agent tries again, and which entry of
//! `docs/troubleshooting.md` a message names.

use std::{fs, path::PathBuf, time::Duration};

use driftless_config::{Auth, Reference};
use driftless_git::{Cause, CommitSource, Credentials, Repository, RepositoryOptions};
use tokio::net::TcpSocket;

use crate::{
    fetch::{open, options, with_auth},
    origin::{Mode, Origin, Server, Sshd, known},
};

async fn cause(repository: Repository) -> Cause {
    match repository.fetch(None).await {
        Err(error) => {
            assert!(!error.message.is_empty());
            error.cause
        }
        Ok(checkout) => panic!("fetched {:?}", checkout.commit),
    }
}

#[tokio::test]
async fn server_that_cannot_be_reached_has_its_cause() {
    let origin = Origin::new();
    // Nobody listens, and no other test gets the port.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = reserved.local_addr().unwrap().port();
    for (url, expected) in [
        (format!("http://127.0.0.1:{port}/infra.git"), Cause::ConnectionRefused),
        (format!("https://127.0.0.1:{port}/infra.git"), Cause::ConnectionRefused),
        ("http://git.invalid/infra.git".to_owned(), Cause::UnknownHost),
        ("/no/such/folder".to_owned(), Cause::RepositoryNotFound),
        (origin.tree().join(".git/hooks").display().to_string(), Cause::RepositoryNotFound),
    ] {
        assert_eq!(cause(open(options(&origin, &url))).await, expected, "{url}");
    }
    let pinned = || with_auth(Auth { host_keys: vec!["SHA256:AAAA".to_owned()], ..Auth::default() });
    for (url, expected) in [
        (format!("ssh://git@127.0.0.1:{port}/infra.git"), Cause::ConnectionRefused),
        ("ssh://git@git.invalid/infra.git".to_owned(), Cause::UnknownHost),
    ] {
        let repository = open(RepositoryOptions { credentials: pinned(), ..options(&origin, &url) });
        assert_eq!(cause(repository).await, expected, "{url}");
    }
}

#[tokio::test]
async fn error_names_the_file_of_an_alias_for_ssh() {
    let origin = Origin::new();
    for (url, is_named) in [("git@invalid:me/infra.git", true), ("git@git.invalid:me/infra.git", false)] {
        let auth = Auth { host_keys: vec!["SHA256:AAAA".to_owned()], ..Auth::default() };
        let options = RepositoryOptions { credentials: with_auth(auth), ..options(&origin, url) };
        let error = open(options).fetch(None).await.unwrap_err();
        assert_eq!(error.cause, Cause::UnknownHost, "{error}");
        assert_eq!(error.message.contains("~/.ssh/config"), is_named, "{error}");
    }
}

#[tokio::test]
async fn answers_of_http_servers_have_their_cause() {
    let origin = Origin::new();
    let server = Server::start(&origin).await;
    let limited = RepositoryOptions {
        idle_timeout: Duration::from_millis(300),
        most_bytes: 100_000,
        ..options(&origin, &server.url())
    };
    let repository = open(limited);
    for (answer, expected) in [
        ("401 Unauthorized", Cause::AuthenticationFailed),
        ("403 Forbidden", Cause::AccessDenied),
        ("404 Not Found", Cause::RepositoryNotFound),
        ("400 Bad Request", Cause::ServerRefused),
        ("429 Slow Down", Cause::ServerFailed),
        ("503 Busy", Cause::ServerFailed),
        ("302 Found\r\nLocation: https://login.example.com/", Cause::Redirected),
        ("200 OK\r\nContent-Type: text/html", Cause::NotAGitServer),
    ] {
        server.set(Mode::Answer(format!("{answer}\r\nContent-Length: 0")));
        assert_eq!(cause(repository.clone()).await, expected, "{answer}");
    }
    server.set(Mode::Silent);
    assert_eq!(cause(repository.clone()).await, Cause::TimedOut);
    let second = Repository::open(options(&origin, &server.url())).unwrap_err();
    assert_eq!(second.cause, Cause::MirrorInUse);
    let noise: String = (0..80_000_u32).map(|it| format!("{:x}", it.wrapping_mul(2_654_435_761))).collect();
    origin.commit("noise", &noise);
    server.set(Mode::Normal);
    // A busy machine may need longer for the answer than the server above had.
    drop(repository);
    let patient = open(RepositoryOptions { most_bytes: 100_000, ..options(&origin, &server.url()) });
    assert_eq!(cause(patient).await, Cause::TooLarge);
    let secure = Server::start_self_signed(&origin).await;
    assert_eq!(cause(open(options(&origin, &secure.url()))).await, Cause::CertificateRefused);
}

#[tokio::test]
async fn missing_reference_has_its_cause() {
    let origin = Origin::new();
    let url = origin.path().display().to_string();
    for (reference, expected) in [
        (Reference::Branch("release".into()), Cause::BranchNotFound),
        (Reference::Tag("v2".into()), Cause::TagNotFound),
        (Reference::Commit(known(&"1".repeat(40))), Cause::CommitNotFound),
    ] {
        let repository = open(RepositoryOptions { reference, ..options(&origin, &url) });
        assert_eq!(cause(repository).await, expected);
    }
    let empty = Origin::empty();
    let url = empty.path().display().to_string();
    assert_eq!(cause(open(options(&empty, &url))).await, Cause::RepositoryEmpty);
}

#[tokio::test]
async fn refusals_of_ssh_have_their_cause() {
    let origin = Origin::new();
    let sshd = Sshd::start(&origin).await;
    let place = |name: &str| sshd.folder.join(name);
    let with = |key: PathBuf, known_hosts: PathBuf| -> Credentials {
        with_auth(Auth { ssh_key: Some(key), known_hosts: Some(known_hosts), ..Auth::default() })
    };
    fs::write(place("empty"), "").unwrap();
    let stranger = fs::read_to_string(place("stranger.pub")).unwrap();
    fs::write(place("changed"), format!("[127.0.0.1]:{} {stranger}", sshd.port)).unwrap();
    let none = with_auth(Auth { ssh_key: Some(place("client")), ..Auth::default() });
    for (credentials, expected) in [
        (none, Cause::HostKeyUnknown),
        (with(place("client"), place("empty")), Cause::HostKeyUnknown),
        (with(place("client"), place("changed")), Cause::HostKeyChanged),
        (with(place("stranger"), place("known_hosts")), Cause::AuthenticationFailed),
        (with(place("nothing"), place("known_hosts")), Cause::CredentialsUnreadable),
    ] {
        let repository = open(RepositoryOptions { credentials, ..options(&origin, &sshd.url(&origin)) });
        assert_eq!(cause(repository).await, expected);
    }
    let credentials = with(place("client"), place("known_hosts"));
    let url = format!("{}-none", sshd.url(&origin));
    let repository = open(RepositoryOptions { credentials, ..options(&origin, &url) });
    assert_eq!(cause(repository).await, Cause::RepositoryNotFound);
}
