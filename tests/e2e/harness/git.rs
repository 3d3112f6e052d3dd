//! A real Git repository and a real Git server: `git http-backend` behind a small HTTP server, which can be
//! switched off and on again.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, Response, Uri},
};
use tokio::{io::AsyncWriteExt, net::TcpListener, runtime::Runtime};

/// A bare repository, and a clone to work in.
pub struct Repository {
    pub bare: PathBuf,
    work: PathBuf,
}

impl Repository {
    /// `DIR/repositories/infra.git`, with a first, empty commit on `main`.
    pub fn new(dir: &Path) -> Self {
        let bare = dir.join("repositories/infra.git");
        let work = dir.join("work");
        fs::create_dir_all(&bare).unwrap();
        git(&bare, &["init", "-q", "--bare", "-b", "main", "."]);
        fs::create_dir_all(&work).unwrap();
        git(&work, &["init", "-q", "-b", "main", "."]);
        git(&work, &["remote", "add", "origin", bare.to_str().unwrap()]);
        let repository = Self { bare, work };
        repository.commit(&[("README", "what runs here\n")]);
        repository
    }

    /// Writes the files, commits and pushes them. Returns the commit's id.
    pub fn commit(&self, files: &[(&str, &str)]) -> String {
        for (path, text) in files {
            let path = self.work.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let names: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
        self.commit_all(&format!("Change {}", names.join(", ")))
    }

    /// Removes the files or folders, commits and pushes.
    pub fn remove(&self, paths: &[&str]) -> String {
        git(&self.work, &[&["rm", "-rq"], paths].concat());
        self.commit_all(&format!("Remove {}", paths.join(", ")))
    }

    /// Throws the newest `count` commits away, commits the files instead and pushes with force.
    pub fn rewrite(&self, count: usize, files: &[(&str, &str)]) -> String {
        git(&self.work, &["reset", "-q", "--hard", &format!("HEAD~{count}")]);
        let id = self.commit(files);
        // The commits that were thrown away are really gone from the server.
        git(&self.bare, &["reflog", "expire", "--expire=now", "--all"]);
        git(&self.bare, &["gc", "-q", "--prune=now"]);
        id
    }

    pub fn head(&self) -> String {
        git(&self.work, &["rev-parse", "HEAD"])
    }

    fn commit_all(&self, subject: &str) -> String {
        git(&self.work, &["add", "-A"]);
        git(&self.work, &["commit", "-q", "--allow-empty", "-m", subject]);
        git(&self.work, &["push", "-q", "--force", "origin", "main"]);
        self.head()
    }
}

/// Runs Git without the machine's own configuration, and returns what it printed.
#[track_caller]
pub fn git(dir: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(words)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Test")
        .env("GIT_AUTHOR_EMAIL", "test@example.com")
        .env("GIT_COMMITTER_NAME", "Test")
        .env("GIT_COMMITTER_EMAIL", "test@example.com")
        .stdin(Stdio::null())
        .output()
        .expect("git is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {}: {stderr}", words.join(" "));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Serves every repository in a folder over HTTP, read-only.
pub struct GitServer {
    root: PathBuf,
    address: SocketAddr,
    /// Of its own, so that switching the server off also cuts the connections that are open.
    runtime: Option<Runtime>,
    requests: Requests,
}

type Requests = Arc<Mutex<Vec<String>>>;

impl GitServer {
    pub fn start(root: &Path) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], super::free_port()));
        let mut server =
            Self { root: root.to_owned(), address, runtime: None, requests: Requests::default() };
        server.up();
        server
    }

    pub fn url(&self) -> String {
        format!("http://{}/infra.git", self.address)
    }

    /// The requests since the last call, as `GET /infra.git/info/refs?service=git-upload-pack`.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    /// Nobody listens any more.
    pub fn down(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Listens again, on the same address.
    pub fn up(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (address, root, requests) = (self.address, self.root.clone(), Arc::clone(&self.requests));
        let (started, listens) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let listener = bind(address).await;
            started.send(()).unwrap();
            let router = axum::Router::new().fallback(backend).with_state((root, requests));
            axum::serve(listener, router).await.unwrap();
        });
        listens.recv().expect("the Git server listens");
        self.runtime = Some(runtime);
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.down();
    }
}

/// The socket of a server that was just switched off may take a moment to be given back.
async fn bind(address: SocketAddr) -> TcpListener {
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    TcpListener::bind(address).await.unwrap()
}

/// Hands one request to `git http-backend`, as CGI says.
async fn backend(
    State((root, requests)): State<(PathBuf, Requests)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    requests.lock().unwrap().push(format!("{method} {uri}"));
    let header =
        |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("REQUEST_METHOD", method.as_str())
        .env("PATH_INFO", uri.path())
        .env("QUERY_STRING", uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("HTTP_GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feed = async move {
        // A client error makes Git close its input early; its answer says why.
        let _ = stdin.write_all(&body).await;
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    answer_of(&output.unwrap().stdout)
}

fn answer_of(output: &[u8]) -> Response<Body> {
    let end = output.windows(4).position(|it| it == b"\r\n\r\n").expect("CGI has a header");
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(": ").expect("CGI header lines have a colon");
        response = match name {
            "Status" => response.status(value[..3].parse::<u16>().unwrap()),
            _ => response.header(name, value),
        };
    }
    response.body(Body::from(output[end + 4..].to_vec())).unwrap()
}
