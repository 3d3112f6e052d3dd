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

    /// Those that could change something.
    pub fn writes(&self) -> Vec<String> {
        self.requests().into_iter().filter(|it| !it.starts_with("GET ") && !it.starts_with("HEAD ")).collect()
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

/// Tells heads of requests from their bodies on one connection.
#[derive(Default)]
struct Requests {
    pending: Vec<u8>,
    /// Bytes of a body still to come.
    body: usize,
    /// In a body whose end is told by its last chunk.
    is_chunked: bool,
    /// After an upgrade whatever comes is no HTTP.
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
                self.pending.drain(..end + 7);
                self.is_chunked = false;
            }
            let skipped = self.body.min(self.pending.len());
            self.pending.drain(..skipped);
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
            log.lock().unwrap().push(line.trim_end_matches(" HTTP/1.1").to_owned());
            if self.is_raw {
                return;
            }
        }
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|it| it == word)
}
