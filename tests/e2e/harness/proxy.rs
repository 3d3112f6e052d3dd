//! Stands between the agent and the engine's socket, and counts what is asked: the only witness of what an agent
//! really sends. It changes nothing of what it passes on.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

/// Listens on a socket of its own for as long as it lives.
pub struct Counting {
    socket: PathBuf,
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Counting {
    pub fn start(directory: &Path) -> Self {
        Self::before(directory, Path::new("/var/run/docker.sock"))
    }

    /// Before any engine, by its socket.
    pub fn before(directory: &Path, engine: &Path) -> Self {
        let engine = engine.to_owned();
        let socket = directory.join("docker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (log, engine) = (Arc::clone(&log), engine.clone());
                tokio::spawn(async move {
                    if let Ok(engine) = UnixStream::connect(engine).await {
                        pass(client, engine, log).await;
                    }
                });
            }
        });
        Self { socket, seen, task }
    }

    /// For `docker:` in a configuration.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// All requests so far: method and path.
    pub fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Requests that change something, except the volume by which an agent claims its id for a moment when it starts.
    pub fn writes(&self) -> Vec<String> {
        let is_write = |line: &String| !line.starts_with("GET ") && !line.starts_with("HEAD ");
        self.requests().into_iter().filter(|line| is_write(line) && !line.contains(CLAIM)).collect()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: UnixStream, engine: UnixStream, log: Arc<Mutex<Vec<String>>>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_engine, mut to_engine) = engine.into_split();
    let asking = async {
        let mut reader = Requests::default();
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            reader.take(&buffer[..read], &log);
            if to_engine.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
        let _ = to_engine.shutdown().await;
    };
    let answering = async {
        let _ = tokio::io::copy(&mut from_engine, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::join!(asking, answering);
}

/// The beginning of the name of the volume by which an agent claims its id.
const CLAIM: &str = "driftless-claim.";

/// Tells heads of requests from their bodies on one connection.
#[derive(Default)]
struct Requests {
    pending: Vec<u8>,
    /// The place of the latest request in the log, and what came of its body.
    latest: (usize, Vec<u8>),
    /// Bytes of a body still to come.
    body: usize,
    /// In a chunked body.
    is_chunked: bool,
    /// After an upgrade the data is no HTTP.
    is_raw: bool,
}

impl Requests {
    fn take(&mut self, bytes: &[u8], log: &Mutex<Vec<String>>) {
        if self.is_raw {
            return;
        }
        self.pending.extend_from_slice(bytes);
        loop {
            if self.is_chunked {
                let Some(end) = find(&self.pending, b"\r\n0\r\n\r\n") else { return };
                self.body_part(end + 7, log);
                self.is_chunked = false;
            }
            let skipped = self.body.min(self.pending.len());
            self.body_part(skipped, log);
            self.body -= skipped;
            let Some(end) = find(&self.pending, b"\r\n\r\n").filter(|_| self.body == 0) else { return };
            let head = String::from_utf8_lossy(&self.pending[..end]).to_ascii_lowercase();
            let line =
                String::from_utf8_lossy(&self.pending[..end]).lines().next().unwrap_or_default().to_owned();
            // A chunked body may be empty: its end is looked for from the end of the head on.
            self.pending.drain(..end + 2);
            let value =
                |name: &str| head.lines().find_map(|it| it.strip_prefix(name).map(|it| it.trim().to_owned()));
            self.is_raw = value("upgrade:").is_some();
            self.is_chunked = value("transfer-encoding:").is_some_and(|it| it.contains("chunked"));
            if !self.is_chunked {
                self.pending.drain(..2);
                self.body = value("content-length:").and_then(|it| it.parse().ok()).unwrap_or_default();
            }
            let mut log = log.lock().unwrap();
            self.latest = (log.len(), Vec::new());
            log.push(line.trim_end_matches(" HTTP/1.1").to_owned());
            if self.is_raw {
                return;
            }
        }
    }

    /// Takes so many bytes of the latest request's body. The request that creates a claim is marked as one: only its
    /// body says so.
    fn body_part(&mut self, length: usize, log: &Mutex<Vec<String>>) {
        let (at, body) = &mut self.latest;
        body.extend(self.pending.drain(..length));
        if find(body, CLAIM.as_bytes()).is_some() {
            body.clear();
            log.lock().unwrap()[*at] += &format!(" ({CLAIM})");
        }
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|it| it == word)
}
