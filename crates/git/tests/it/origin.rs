//! Real Git repositories and servers for the tests of `source`: made with the `git` program, served by
//! `git http-backend` (over TCP, with or without TLS, whole or with faults) and by a real sshd.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use driftless_model::CommitId;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The id of a commit that an origin made.
pub(crate) fn known(id: &str) -> CommitId {
    CommitId::parse(id).unwrap()
}

/// A bare repository and a work tree that pushes to it, with everything in one temporary folder.
pub(crate) struct Origin {
    pub(crate) dir: TempDir,
}

impl Origin {
    /// With one commit on `main`.
    pub(crate) fn new() -> Self {
        let origin = Self::empty();
        origin.commit("compose.yaml", "services: {}");
        origin
    }

    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let origin = Self { dir };
        origin.git(&["init", "-q", "-b", "main", "work"], origin.dir.path());
        origin.git(&["init", "-q", "--bare", "-b", "main", "infra.git"], origin.dir.path());
        origin.work(&["remote", "add", "origin", "../infra.git"]);
        origin
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("infra.git")
    }

    pub(crate) fn mirror(&self) -> PathBuf {
        self.dir.path().join("state/infra")
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Writes a file, commits and pushes. Returns the id.
    pub(crate) fn commit(&self, path: &str, text: &str) -> String {
        let place = self.tree().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
        self.commit_all(&format!("change {path}"))
    }

    pub(crate) fn commit_all(&self, message: &str) -> String {
        self.work(&["add", "-A"]);
        self.work(&["commit", "-q", "--allow-empty", "-m", message]);
        self.work(&["push", "-q", "--force", "origin", "HEAD:main"]);
        self.work(&["rev-parse", "HEAD"])
    }

    pub(crate) fn work(&self, arguments: &[&str]) -> String {
        self.git(arguments, &self.tree())
    }

    pub(crate) fn bare(&self, arguments: &[&str]) -> String {
        self.git(arguments, &self.path())
    }

    fn git(&self, arguments: &[&str], folder: &Path) -> String {
        let mut command = Command::new("git");
        let output = clean(&mut command).args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// Git without the machine's configuration, and with fixed dates.
fn clean(command: &mut Command) -> &mut Command {
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        .env("GIT_AUTHOR_DATE", "2024-01-02T03:04:05Z")
        .env("GIT_COMMITTER_DATE", "2024-01-02T03:04:05Z")
}

/// The behaviour of a server.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    Normal,
    /// An answer without Git: status line and further headers.
    Answer(String),
    /// Answers, and after so many bytes of POST answers says nothing more.
    Stall(usize),
    /// Answers everything but the request for objects.
    StallFetch,
    /// One byte at a time, without end.
    Drip,
    /// Accepts and says nothing.
    Silent,
    /// Knows only the first version of the protocol.
    Old,
    /// Redirects what is below `/old` to the root.
    Moved,
}

/// Serves all repositories of a folder over HTTP. One request per connection.
pub(crate) struct Server {
    pub(crate) port: u16,
    scheme: &'static str,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    root: PathBuf,
    mode: Mutex<Mode>,
    requests: Mutex<Vec<String>>,
    /// The value that `Authorization` must have.
    authorization: Mutex<Option<String>>,
    /// Further answers, by the begin of the request line.
    answers: Mutex<Vec<(String, String)>>,
    /// Request lines and `Authorization` headers of those.
    heard: Mutex<Vec<(String, Option<String>)>>,
    tls: Option<tokio_rustls::TlsAcceptor>,
}

impl Server {
    pub(crate) async fn start(origin: &Origin) -> Self {
        Self::start_with(origin, None, None).await
    }

    /// Over TLS with the certificate of `tests/it/tls`, for those who know the user `git` and this password.
    pub(crate) async fn start_secure(origin: &Origin, authorization: &str) -> Self {
        Self::start_with(origin, Some(authorization.to_owned()), Some(acceptor("server.pem"))).await
    }

    /// Over TLS with a certificate that expired in 2021.
    pub(crate) async fn start_expired(origin: &Origin) -> Self {
        Self::start_with(origin, None, Some(acceptor("expired.pem"))).await
    }

    /// Over TLS with a certificate that signed itself and is marked as an authority.
    pub(crate) async fn start_self_signed(origin: &Origin) -> Self {
        Self::start_with(origin, None, Some(acceptor("self-signed.pem"))).await
    }

    pub(crate) fn authorize(&self, authorization: &str) {
        *self.shared.authorization.lock().unwrap() = Some(authorization.to_owned());
    }

    /// From now on a request that begins so gets this answer (status line, headers, body).
    pub(crate) fn answer(&self, request: &str, answer: &str) {
        let mut answers = self.shared.answers.lock().unwrap();
        answers.retain(|it| it.0 != request);
        answers.push((request.to_owned(), answer.to_owned()));
    }

    /// The requests that got such answers: their first lines and `Authorization` headers.
    pub(crate) fn heard(&self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut self.shared.heard.lock().unwrap())
    }

    async fn start_with(
        origin: &Origin,
        authorization: Option<String>,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            root: origin.dir.path().to_owned(),
            mode: Mutex::new(Mode::Normal),
            requests: Mutex::default(),
            authorization: Mutex::new(authorization),
            answers: Mutex::default(),
            heard: Mutex::default(),
            tls,
        });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = Arc::clone(&serving);
                connections.spawn(async move { shared.welcome(stream).await });
            }
        });
        Self { port, scheme, shared, task }
    }

    pub(crate) fn base(&self) -> String {
        self.url().trim_end_matches("/infra.git").to_owned()
    }

    pub(crate) fn url(&self) -> String {
        let host = if self.scheme == "https" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}/infra.git", self.scheme, self.port)
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode;
    }

    /// The requests since the last call: `refs`, `ls-refs` and `fetch`.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.requests.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn welcome(&self, stream: TcpStream) {
        // A client that goes away in the middle is part of the tests.
        let _ = match &self.tls {
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => self.answer(stream).await,
                Err(error) => Err(error),
            },
            None => self.answer(stream).await,
        };
    }

    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let (line, headers) = read_head(&mut stream).await?;
        let length = headers.get("content-length").map_or(0, |it| it.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let answers = self.answers.lock().unwrap().clone();
        if let Some((_, answer)) = answers.into_iter().find(|it| line.starts_with(&it.0)) {
            let heard = (line.trim().to_owned(), headers.get("authorization").cloned());
            self.heard.lock().unwrap().push(heard);
            return write(&mut stream, answer.as_bytes()).await;
        }
        let text = String::from_utf8_lossy(&body);
        let kind = ["ls-refs", "fetch"].into_iter().find(|it| text.contains(&format!("command={it}")));
        self.requests.lock().unwrap().push(kind.unwrap_or("refs").to_owned());
        let mode = self.mode.lock().unwrap().clone();
        let wanted = self.authorization.lock().unwrap().clone();
        if wanted.is_some_and(|it| headers.get("authorization") != Some(&it)) {
            return write(&mut stream, b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await;
        }
        match mode {
            Mode::Answer(head) => write(&mut stream, format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).await,
            Mode::StallFetch if kind != Some("fetch") => {
                write(&mut stream, &self.backend(&line, &headers, &body).await).await
            }
            Mode::Silent | Mode::StallFetch => std::future::pending().await,
            Mode::Normal => write(&mut stream, &self.backend(&line, &headers, &body).await).await,
            Mode::Old => {
                let headers = headers.into_iter().filter(|(name, _)| name != "git-protocol").collect();
                write(&mut stream, &self.backend(&line, &headers, &body).await).await
            }
            Mode::Moved => match line.split(' ').nth(1).unwrap().strip_prefix("/old") {
                Some(target) => {
                    let head =
                        format!("HTTP/1.1 301 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n");
                    write(&mut stream, head.as_bytes()).await
                }
                None => write(&mut stream, &self.backend(&line, &headers, &body).await).await,
            },
            Mode::Stall(after) => {
                let answer = self.backend(&line, &headers, &body).await;
                let shown = if line.starts_with("POST") { after.min(answer.len()) } else { answer.len() };
                write_some(&mut stream, &answer[..shown]).await?;
                if line.starts_with("POST") {
                    return std::future::pending().await;
                }
                stream.shutdown().await
            }
            Mode::Drip => {
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n";
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(b"fff0").await?;
                let mut tick = tokio::time::interval(std::time::Duration::from_millis(100));
                loop {
                    tick.tick().await;
                    write_some(&mut stream, b"x").await?;
                }
            }
        }
    }

    /// Runs `git http-backend` as CGI (RFC 3875).
    async fn backend(&self, line: &str, headers: &BTreeMap<String, String>, body: &[u8]) -> Vec<u8> {
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut command = Command::new("git");
        clean(&mut command)
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REQUEST_METHOD", method)
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("CONTENT_TYPE", headers.get("content-type").map_or("", String::as_str))
            .env("GIT_PROTOCOL", headers.get("git-protocol").map_or("", String::as_str));
        let mut command = tokio::process::Command::from(command);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        child.stdin.take().unwrap().write_all(body).await.unwrap();
        let output = child.wait_with_output().await.unwrap().stdout;
        let end = output.windows(4).position(|it| it == b"\r\n\r\n").unwrap_or_default();
        let head = String::from_utf8_lossy(&output[..end]).into_owned();
        let status = head.lines().find_map(|it| it.strip_prefix("Status: ")).unwrap_or("200 OK");
        let mut answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\n").into_bytes();
        answer.extend_from_slice(&output);
        answer
    }
}

async fn read_head(
    stream: &mut (impl AsyncBufReadExt + Unpin),
) -> std::io::Result<(String, BTreeMap<String, String>)> {
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            return Ok((first, headers));
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    write_some(stream, bytes).await?;
    stream.shutdown().await
}

async fn write_some(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The certificate authority of the tests.
pub(crate) fn ca_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls/ca.pem")
}

fn acceptor(certificate: &str) -> tokio_rustls::TlsAcceptor {
    use tokio_rustls::rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls");
    let certificate = CertificateDer::from_pem_file(folder.join(certificate)).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key);
    tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// A real sshd that serves Git to one key. Ends when it is dropped.
pub(crate) struct Sshd {
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    _child: tokio::process::Child,
}

impl Sshd {
    pub(crate) async fn start(origin: &Origin) -> Self {
        let folder = origin.dir.path().join("ssh");
        fs::create_dir(&folder).unwrap();
        // sshd insists on this folder, which Debian makes when the service starts.
        fs::create_dir_all("/run/sshd").expect("the tests of ssh:// need root, or an existing /run/sshd");
        for key in ["host", "client", "stranger", "authority"] {
            let path = folder.join(key);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(&path)
                .status()
                .expect("ssh-keygen is needed: install openssh-client");
            assert!(made.success());
        }
        // The server has a certificate of its key too, for those who know the authority.
        let signed = Command::new("ssh-keygen")
            .args(["-q", "-s", "authority", "-I", "host", "-h", "-n", "127.0.0.1", "host.pub"])
            .current_dir(&folder)
            .status();
        assert!(signed.unwrap().success());
        let wrapper = folder.join("serve");
        let script = format!(
            "#!/bin/sh\nPATH='{}'\nexport PATH\necho login >>'{}'\neval exec git \"${{SSH_ORIGINAL_COMMAND#git-}}\"\n",
            std::env::var("PATH").unwrap(),
            folder.join("logins").display()
        );
        fs::write(&wrapper, script).unwrap();
        fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let public = fs::read_to_string(folder.join("client.pub")).unwrap();
        let authorized = format!("restrict,command=\"{}\" {public}", wrapper.display());
        fs::write(folder.join("authorized_keys"), authorized).unwrap();

        // Another process may take the port before sshd does; then another one is tried.
        for _ in 0..10 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if let Some(child) = listen(&folder, port).await {
                let host = fs::read_to_string(folder.join("host.pub")).unwrap();
                let known = format!("[127.0.0.1]:{port} {host}");
                fs::write(folder.join("known_hosts"), known).unwrap();
                return Self { port, folder, _child: child };
            }
        }
        panic!("sshd did not begin to listen");
    }

    /// The number of logins until now.
    pub(crate) fn logins(&self) -> usize {
        fs::read_to_string(self.folder.join("logins")).unwrap_or_default().lines().count()
    }

    pub(crate) fn url(&self, origin: &Origin) -> String {
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = String::from_utf8(user).unwrap();
        format!("ssh://{}@127.0.0.1:{}{}", user.trim(), self.port, origin.path().display())
    }
}

async fn listen(folder: &Path, port: u16) -> Option<tokio::process::Child> {
    let place = folder.display();
    let config = format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {place}/host\nHostCertificate {place}/host-cert.pub\n\
         PidFile none\n\
         AuthorizedKeysFile {place}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nAcceptEnv GIT_PROTOCOL\n"
    );
    let path = folder.join("sshd_config");
    fs::write(&path, config).unwrap();
    let mut child = tokio::process::Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(&path)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("sshd is needed: install openssh-server");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.contains("Server listening on") {
            // It keeps talking, and must not be stopped by a full or a closed pipe.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Some(child);
        }
    }
    None
}
