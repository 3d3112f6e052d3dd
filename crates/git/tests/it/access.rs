//! Ways to a server, with real ones at the other end: sshd with pinned keys and keys that need a passphrase, a
//! GitHub App whose requests openssl checks, proxies, certificates, tokens that are revoked and replaced.

use std::{
    fs,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::{Engine, engine::general_purpose};
use driftless_clock::Clock;
use driftless_config::{Auth, GithubApp, Proxy, Secret};
use driftless_git::{Cause, CommitSource, Credentials, Repository, RepositoryOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    fetch::{open, options, passing, rejection, with_auth},
    origin::{Origin, Server, Sshd, ca_file},
};

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// `SHA256:…` of a public key.
fn fingerprint(key: &std::path::Path) -> String {
    run("ssh-keygen", &["-l", "-f", key.to_str().unwrap()]).split_whitespace().nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn one_login_lists_the_references_and_receives_the_commit() {
    let origin = Origin::new();
    let sshd = Sshd::start(&origin).await;
    let host_keys = vec![fingerprint(&sshd.folder.join("host.pub"))];
    let auth = Auth { ssh_key: Some(sshd.folder.join("client")), host_keys, ..Auth::default() };
    let repository =
        open(RepositoryOptions { credentials: with_auth(auth), ..options(&origin, &sshd.url(&origin)) });
    let first = repository.fetch(None).await.unwrap();
    assert_eq!(sshd.logins(), 1);
    let id = origin.commit("compose.yaml", "services: {a: {}}");
    let second = repository.fetch(Some(&first.commit.id)).await.unwrap();
    assert_eq!((second.commit.id.as_str(), sshd.logins()), (id.as_str(), 2));
    repository.fetch(Some(&second.commit.id)).await.unwrap();
    assert_eq!(sshd.logins(), 3);
}

#[tokio::test]
async fn a_pinned_fingerprint_lets_its_server_in_and_no_other() {
    let origin = Origin::new();
    let sshd = Sshd::start(&origin).await;
    let place = |name: &str| sshd.folder.join(name);
    let with = |host_keys: Vec<String>, known_hosts: Option<&str>| {
        let known_hosts = known_hosts.map(place);
        let auth = Auth { ssh_key: Some(place("client")), known_hosts, host_keys, ..Auth::default() };
        open(RepositoryOptions { credentials: with_auth(auth), ..options(&origin, &sshd.url(&origin)) })
    };
    let (right, wrong) = (fingerprint(&place("host.pub")), fingerprint(&place("stranger.pub")));

    with(vec![wrong.clone(), right.clone()], None).fetch(None).await.unwrap();
    let error = rejection(with(vec![wrong.clone()], None).fetch(None).await);
    assert!(error.contains(&right) && error.contains(&wrong) && error.contains("in between"), "{error}");

    // Both fingerprints are reported for a file as well, whether the server is missing there or has another key.
    fs::write(place("empty"), "").unwrap();
    let error = rejection(with(Vec::new(), Some("empty")).fetch(None).await);
    assert!(error.contains(&right) && error.contains("no key of it is known"), "{error}");
    let stranger = fs::read_to_string(place("stranger.pub")).unwrap();
    let changed = format!("[127.0.0.1]:{} {stranger}", sshd.port);
    fs::write(place("changed"), &changed).unwrap();
    let error = rejection(with(Vec::new(), Some("changed")).fetch(None).await);
    assert!(error.contains(&right) && error.contains(&wrong), "{error}");
    assert!(!error.contains("driftless-host-key"), "{error}");
    assert_eq!(fs::read_to_string(place("changed")).unwrap(), changed, "nothing is accepted by itself");
    run("ssh-keygen", &["-q", "-H", "-f", place("changed").to_str().unwrap()]);
    let error = rejection(with(Vec::new(), Some("changed")).fetch(None).await);
    assert!(error.contains(&right) && error.contains(&wrong), "hashed names: {error}");

    // As soon as the file is right.
    fs::copy(place("known_hosts"), place("changed")).unwrap();
    with(Vec::new(), Some("changed")).fetch(None).await.unwrap();
}

#[tokio::test]
async fn host_certificate_is_accepted_and_revoked_key_rejected() {
    let origin = Origin::new();
    let sshd = Sshd::start(&origin).await;
    let place = |name: &str| sshd.folder.join(name);
    let public = |name: &str| fs::read_to_string(place(name)).unwrap();
    let known = |lines: &str| {
        fs::write(place("lines"), lines).unwrap();
        let known_hosts = Some(place("lines"));
        let auth = Auth { ssh_key: Some(place("client")), known_hosts, ..Auth::default() };
        open(RepositoryOptions { credentials: with_auth(auth), ..options(&origin, &sshd.url(&origin)) })
    };
    let (authority, stranger) = (public("authority.pub"), public("stranger.pub"));
    known(&format!("@cert-authority * {authority}")).fetch(None).await.unwrap();
    let error = rejection(known(&format!("@cert-authority * {stranger}")).fetch(None).await);
    let print = fingerprint(&place("stranger.pub"));
    assert!(error.contains(&format!("known is the authority {print}")), "{error}");
    // The key itself, then the authority that vouches for it.
    let host = format!("[127.0.0.1]:{} {}", sshd.port, public("host.pub"));
    for lines in [
        format!("{host}@revoked * {}", public("host.pub")),
        format!("@cert-authority * {authority}@revoked * {authority}"),
    ] {
        let error = rejection(known(&lines).fetch(None).await);
        assert!(error.contains("is revoked") && error.contains("Nothing was sent"), "{error}");
    }
}

#[tokio::test]
async fn key_passphrase_is_used_and_never_shown() {
    let origin = Origin::new();
    let sshd = Sshd::start(&origin).await;
    let place = |name: &str| sshd.folder.join(name);
    fs::copy(place("client"), place("locked")).unwrap();
    fs::set_permissions(place("locked"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let locked = place("locked");
    run("ssh-keygen", &["-q", "-p", "-P", "", "-N", "open sesame", "-f", locked.to_str().unwrap()]);
    let with = |passphrase: Option<Secret>| {
        let auth = Auth {
            ssh_key: Some(locked.clone()),
            ssh_passphrase: passphrase,
            known_hosts: Some(place("known_hosts")),
            ..Auth::default()
        };
        let lookup = |name: &str| (name == "PASSPHRASE").then(|| "open sesame".to_owned());
        let credentials = Credentials::new(auth, Arc::new(lookup));
        open(RepositoryOptions { credentials, ..options(&origin, &sshd.url(&origin)) })
    };
    let file = place("passphrase");
    fs::write(&file, "open sesame\n").unwrap();
    with(Some(Secret::File(file.clone()))).fetch(None).await.unwrap();
    with(Some(Secret::Environment("PASSPHRASE".into()))).fetch(None).await.unwrap();

    let error = rejection(with(None).fetch(None).await);
    assert!(error.contains("protected by a passphrase"), "{error}");
    fs::write(&file, "wrong horse\n").unwrap();
    let error = rejection(with(Some(Secret::File(file.clone()))).fetch(None).await);
    assert!(error.contains("passphrase") && !error.contains("wrong horse"), "{error}");
    fs::remove_file(&file).unwrap();
    let error = rejection(with(Some(Secret::File(file))).fetch(None).await);
    assert!(error.contains("could not read the file"), "{error}");
    let helper = fs::read_to_string(origin.dir.path().join("state/infra.ssh-helper")).unwrap();
    assert!(!helper.contains("sesame"));
}

#[tokio::test]
async fn revoked_token_is_reported_and_a_new_one_is_used() {
    let origin = Origin::new();
    let token = origin.dir.path().join("token");
    fs::write(&token, "one").unwrap();
    let basic = |token: &str| format!("Basic {}", general_purpose::STANDARD.encode(format!("git:{token}")));
    let server = Server::start_secure(&origin, &basic("one")).await;
    let auth = Auth { password: Some(Secret::File(token.clone())), ..Auth::default() };
    let repository = open(RepositoryOptions {
        credentials: with_auth(auth),
        ca_file: Some(ca_file()),
        ..options(&origin, &server.url())
    });
    let first = repository.fetch(None).await.unwrap();
    server.authorize(&basic("two"));
    let error = rejection(repository.fetch(Some(&first.commit.id)).await);
    assert!(error.contains("401") && error.contains("revoked or expired"), "{error}");
    assert!(error.contains("Without `username`, the name is `git`"), "{error}");
    assert_eq!(repository.local(&first.commit.id).await.unwrap().commit, first.commit);
    fs::write(&token, "two").unwrap();
    assert_eq!(repository.fetch(Some(&first.commit.id)).await.unwrap().commit, first.commit);
    drop(repository);

    let none = RepositoryOptions { ca_file: Some(ca_file()), ..options(&origin, &server.url()) };
    let error = rejection(open(none).fetch(None).await);
    assert!(error.contains("set `auth`"), "{error}");
}

#[tokio::test]
async fn invalid_certificate_is_explained_in_plain_words() {
    let origin = Origin::new();
    let server = Server::start_expired(&origin).await;
    let ca = ca_file().with_file_name("expired-ca.pem");
    let with = |ca| open(RepositoryOptions { ca_file: Some(ca), ..options(&origin, &server.url()) });
    let error = rejection(with(ca.clone()).fetch(None).await);
    assert!(error.contains("certificate has expired; it must be renewed"), "{error}");

    let server = Server::start_secure(&origin, "none").await;
    let error = rejection(open(options(&origin, &server.url())).fetch(None).await);
    assert!(error.contains("issued by an authority that this machine does not know"), "{error}");
    let other_name = server.url().replace("localhost", "localhost.localdomain");
    let direct = options(&origin, &other_name);
    // Resolved or not, it must not be taken for the right server.
    let error = open(RepositoryOptions { ca_file: Some(ca_file()), ..direct }).fetch(None).await.unwrap_err();
    let is_other = error.cause == Cause::CertificateRefused && error.message.contains("another name");
    assert!(is_other || error.cause == Cause::UnknownHost, "{error}");
}

#[tokio::test]
async fn replaced_ca_file_is_used_without_a_restart() {
    let origin = Origin::new();
    let server = Server::start_secure(&origin, "Basic Z2l0Omh1bnRlcjI=").await;
    let (ca, token) = (origin.dir.path().join("ca.pem"), origin.dir.path().join("token"));
    fs::write(&token, "hunter2").unwrap();
    let replace = |name: &str| fs::copy(ca_file().with_file_name(name), &ca).unwrap();
    replace("expired-ca.pem");
    let auth = Auth { password: Some(Secret::File(token)), ..Auth::default() };
    let repository = open(RepositoryOptions {
        credentials: with_auth(auth),
        ca_file: Some(ca.clone()),
        ..options(&origin, &server.url())
    });
    let refused = repository.fetch(None).await.unwrap_err();
    assert_eq!(refused.cause, Cause::CertificateRefused, "{refused}");
    replace("ca.pem");
    repository.fetch(None).await.unwrap();
    // Nothing was refused in between, and there is an idle connection.
    replace("expired-ca.pem");
    let refused = repository.fetch(None).await.unwrap_err();
    assert_eq!(refused.cause, Cause::CertificateRefused, "{refused}");
    fs::remove_file(&ca).unwrap();
    let missing = repository.fetch(None).await.unwrap_err();
    assert_eq!(missing.cause, Cause::CredentialsUnreadable, "{missing}");
    let restarted = RepositoryOptions { ca_file: Some(ca.clone()), ..options(&origin, &server.url()) };
    let missing = Repository::open(restarted).unwrap_err().to_string();
    assert!(missing.contains("`caFile`"), "{missing}");
    replace("ca.pem");
    repository.fetch(None).await.unwrap();
    fs::remove_file(origin.dir.path().join("token")).unwrap();
    let missing = repository.fetch(None).await.unwrap_err();
    assert_eq!(missing.cause, Cause::CredentialsUnreadable, "{missing}");
}

fn created(token: &str, expires: &str) -> String {
    let body = format!(r#"{{"token": "{token}", "expires_at": "{expires}"}}"#);
    format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_github_app_signs_its_requests_and_renews_its_token() {
    const TOKENS: &str = "POST /app/installations/77/access_tokens";
    let origin = Origin::new();
    let folder = origin.dir.path().to_owned();
    let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    run("openssl", &["genrsa", "-traditional", "-out", &place("app.pem"), "2048"]);
    run("openssl", &["rsa", "-in", &place("app.pem"), "-pubout", "-out", &place("app.pub")]);
    let basic = |token: &str| {
        format!("Basic {}", general_purpose::STANDARD.encode(format!("x-access-token:{token}")))
    };
    let server = Server::start_secure(&origin, &basic("ghs_one")).await;
    server.answer(TOKENS, &created("ghs_one", "2026-06-01T13:00:00Z"));
    let app = GithubApp {
        app: "4711".into(),
        installation: "77".into(),
        private_key: place("app.pem").into(),
        api: server.base(),
    };
    let auth = Auth { github_app: Some(app), ..Auth::default() };
    let clock = Clock::starting_at(driftless_model::Timestamp::parse("2026-06-01T12:00:00Z").unwrap());
    let repository = open(RepositoryOptions {
        credentials: with_auth(auth),
        ca_file: Some(ca_file()),
        clock,
        ..options(&origin, &server.url())
    });
    repository.fetch(None).await.unwrap();
    repository.fetch(None).await.unwrap();
    let heard = server.heard();
    assert_eq!(heard.len(), 1, "one token does for several fetches: {heard:?}");

    // openssl agrees that the App's key signed it.
    let jwt = heard[0].1.as_ref().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    let (signed, signature) = jwt.rsplit_once('.').unwrap();
    let decode = |text: &str| general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap();
    fs::write(place("signed"), signed).unwrap();
    fs::write(place("signature"), decode(signature)).unwrap();
    let pub_key = place("app.pub");
    let signature = place("signature");
    let said =
        run("openssl", &["dgst", "-sha256", "-verify", &pub_key, "-signature", &signature, &place("signed")]);
    assert_eq!(said.trim(), "Verified OK");
    let (head, claims) = signed.split_once('.').unwrap();
    assert_eq!(decode(head), br#"{"alg":"RS256","typ":"JWT"}"#);
    let claims: serde_json::Value = serde_json::from_slice(&decode(claims)).unwrap();
    assert_eq!(claims["iss"], "4711");
    let (iat, exp) = (claims["iat"].as_u64().unwrap(), claims["exp"].as_u64().unwrap());
    assert!(exp - iat <= 600 && iat <= clock.now().0 / 1000 && exp > clock.now().0 / 1000, "{claims}");

    // It was withdrawn before its time: told once, and then a new one is asked for.
    server.authorize(&basic("ghs_two"));
    server.answer(TOKENS, &created("ghs_two", "2026-06-01T12:04:59Z"));
    assert!(rejection(repository.fetch(None).await).contains("401"));
    repository.fetch(None).await.unwrap();
    // One that expires within five minutes is renewed before it does.
    server.answer(TOKENS, &created("ghs_three", "2026-06-01T13:00:00Z"));
    server.authorize(&basic("ghs_three"));
    repository.fetch(None).await.unwrap();
    assert_eq!(server.heard().len(), 2);

    // Other answers of the API.
    for (answer, wanted) in [
        ("401 Unauthorized", "does not accept the App's key"),
        ("404 Not Found", "no installation 77"),
        ("403 Forbidden", "suspended"),
        ("201 Created", "not that of GitHub's API"),
    ] {
        server.answer(TOKENS, &format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\n{{}}"));
        server.authorize("nobody");
        let _ = repository.fetch(None).await;
        let error = rejection(repository.fetch(None).await);
        assert!(error.contains(wanted), "{error}");
    }
    server.answer(TOKENS, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
    assert!(passing(repository.fetch(None).await).contains("502"));
    fs::write(place("app.pem"), "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\n")
        .unwrap();
    let error = rejection(repository.fetch(None).await);
    assert!(error.contains("not an RSA private key") && !error.contains("hunter2"), "{error}");
}

/// A forward proxy that counts, and that asks for a password if told to.
struct ForwardProxy {
    port: u16,
    tunnels: Arc<AtomicU64>,
    heard: Arc<Mutex<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl ForwardProxy {
    async fn start(password: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tunnels, heard) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(String::new())));
        let (count, note) = (Arc::clone(&tunnels), Arc::clone(&heard));
        let task = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let (count, note) = (Arc::clone(&count), Arc::clone(&note));
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = client.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8(head).unwrap();
                    note.lock().unwrap().push_str(&head);
                    if password.is_some_and(|it| !head.contains(it)) {
                        let refused =
                            b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
                        let _ = client.write_all(refused).await;
                        return;
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                    let target = head.split(' ').nth(1).unwrap().to_owned();
                    if head.starts_with("CONNECT") {
                        let mut server = TcpStream::connect(&target).await.unwrap();
                        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    } else {
                        let rest = target.strip_prefix("http://").unwrap();
                        let (host, path) = rest.split_once('/').unwrap();
                        let mut server = TcpStream::connect(host).await.unwrap();
                        let head = head.replacen(&target, &format!("/{path}"), 1);
                        server.write_all(head.as_bytes()).await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { port, tunnels, heard, task }
    }

    fn used(&self) -> u64 {
        self.tunnels.swap(0, Ordering::SeqCst)
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_proxy_is_used_as_the_configuration_and_the_environment_say() {
    let origin = Origin::new();
    let secure = Server::start_secure(&origin, "Basic Z2l0Om9uZQ==").await;
    let plain = Server::start(&origin).await;
    let proxy = ForwardProxy::start(Some("Basic bWU6aHVudGVyMg==")).await;
    let address = format!("http://me:hunter2@127.0.0.1:{}", proxy.port);
    let fetch = async |url: String, setting: Proxy, variables: Vec<(&'static str, String)>| {
        let lookup = move |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.clone());
        let is_https = url.starts_with("https");
        let auth = Auth { password: is_https.then(|| Secret::Plain("one".into())), ..Auth::default() };
        let repository = open(RepositoryOptions {
            credentials: Credentials::new(auth, Arc::new(lookup)),
            ca_file: is_https.then(ca_file),
            proxy: setting,
            ..options(&origin, &url)
        });
        repository.fetch(None).await.map(drop)
    };

    fetch(secure.url(), Proxy::Environment, vec![("HTTPS_PROXY", address.clone())]).await.unwrap();
    assert!(proxy.used() > 0);
    assert!(!proxy.heard.lock().unwrap().contains("Z2l0Om9uZQ=="), "the token goes through the tunnel only");
    fetch(plain.url(), Proxy::Environment, vec![("http_proxy", address.clone())]).await.unwrap();
    assert!(proxy.used() > 0);
    fetch(secure.url(), Proxy::Environment, vec![("ALL_PROXY", address.clone())]).await.unwrap();
    assert!(proxy.used() > 0);

    let except = vec![("HTTPS_PROXY", address.clone()), ("NO_PROXY", "example.com,localhost".into())];
    fetch(secure.url(), Proxy::Environment, except).await.unwrap();
    fetch(secure.url(), Proxy::Environment, vec![("HTTP_PROXY", address.clone())]).await.unwrap();
    fetch(secure.url(), Proxy::Direct, vec![("HTTPS_PROXY", address.clone())]).await.unwrap();
    assert_eq!(proxy.used(), 0);

    // Without its password the proxy refuses, and the error does not hold one.
    let configured = Proxy::Url(format!("http://127.0.0.1:{}", proxy.port));
    let error = fetch(secure.url(), configured, Vec::new()).await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("proxy"), "{error}");
    let gone = address.replace(&proxy.port.to_string(), "1");
    let error = fetch(secure.url(), Proxy::Environment, vec![("HTTPS_PROXY", gone)]).await.unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");

    let socks = [("HTTPS_PROXY", "socks5://me:hunter2@localhost:1".to_owned())];
    let auth = Auth::default();
    let lookup = move |name: &str| socks.iter().find(|it| it.0 == name).map(|it| it.1.clone());
    let refused = Repository::open(RepositoryOptions {
        credentials: Credentials::new(auth, Arc::new(lookup)),
        proxy: Proxy::Environment,
        ..options(&origin, &secure.url())
    });
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("HTTPS_PROXY") && !error.contains("hunter2"), "{error}");
}
