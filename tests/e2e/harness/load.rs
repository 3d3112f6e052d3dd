//! Clients that send HTTP requests to a published port, and count how many fail.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{PATIENCE, wait_until};

/// A request that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Clients that connect for each request, and clients that keep their connection.
const CLIENTS: usize = 3;
/// The pause of a client between two requests: tests run side by side on few cores.
const PAUSE: Duration = Duration::from_millis(4);

/// Clients that send requests to a port until this is dropped. No client repeats a failed request.
pub struct Load {
    shared: Arc<Shared>,
    _clients: JoinSet<()>,
}

struct Shared {
    answered: AtomicU64,
    has_ended: AtomicBool,
    failures: Mutex<Vec<String>>,
    /// The answers by their first line.
    heard: Mutex<BTreeMap<String, u64>>,
    gap: Mutex<Gap>,
}

/// The longest time without an answer to any client.
struct Gap {
    answered: Instant,
    longest: Duration,
}

impl Load {
    /// Waits until the port answers, and sends requests to it from then on.
    pub async fn on(address: SocketAddr) -> Self {
        let began = Instant::now();
        while request(address, false, &mut None).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "{address} does not answer");
            sleep(PAUSE).await;
        }
        let gap = Gap { answered: Instant::now(), longest: Duration::ZERO };
        let shared = Arc::new(Shared {
            answered: AtomicU64::default(),
            has_ended: AtomicBool::default(),
            failures: Mutex::default(),
            heard: Mutex::default(),
            gap: Mutex::new(gap),
        });
        let mut clients = JoinSet::new();
        for number in 0..2 * CLIENTS {
            clients.spawn(client(address, number >= CLIENTS, Arc::clone(&shared)));
        }
        Self { shared, _clients: clients }
    }

    /// Waits for more answers, and for one that contains this text.
    pub async fn hears(&self, text: &str) {
        let before = self.shared.answered.load(Ordering::Relaxed);
        self.shared.heard.lock().unwrap().clear();
        wait_until(&format!("an answer with {text:?}"), || {
            let more = self.shared.answered.load(Ordering::Relaxed) >= before + 50;
            let heard = self.shared.heard.lock().unwrap();
            (more && heard.keys().any(|line| line.contains(text))).then_some(())
        })
        .await;
    }

    /// The failures so far, which then count no more.
    pub fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.failures.lock().unwrap())
    }

    #[track_caller]
    pub fn assert_no_failure(&self, during: &str) {
        let failures = self.shared.failures.lock().unwrap();
        let answered = self.answered();
        assert!(failures.is_empty(), "{during}: {} of {answered} failed: {failures:#?}", failures.len());
        eprintln!("{during}: {answered} requests, none failed");
    }

    /// Number of requests with an answer.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Number of requests that failed.
    #[allow(dead_code, reason = "only the benchmark counts them")]
    pub fn failed(&self) -> usize {
        self.shared.failures.lock().unwrap().len()
    }

    /// The longest time without an answer to any client.
    #[allow(dead_code, reason = "only the benchmark counts it")]
    pub fn longest_gap(&self) -> Duration {
        let gap = self.shared.gap.lock().unwrap();
        gap.longest.max(gap.answered.elapsed())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
    }
}

async fn client(address: SocketAddr, is_kept: bool, shared: Arc<Shared>) {
    let mut connection = None;
    while !shared.has_ended.load(Ordering::Relaxed) {
        let began = Instant::now();
        match timeout(TIMEOUT, request(address, is_kept, &mut connection)).await {
            Ok(Ok(answer)) => {
                shared.answered.fetch_add(1, Ordering::Relaxed);
                let line = answer.lines().next().unwrap_or_default().to_owned();
                *shared.heard.lock().unwrap().entry(line).or_default() += 1;
                let mut gap = shared.gap.lock().unwrap();
                gap.longest = gap.longest.max(gap.answered.elapsed());
                gap.answered = Instant::now();
            }
            failed => {
                let what = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "timed out".to_owned(),
                };
                let kind = if is_kept { "kept" } else { "new" };
                let text = format!("{kind} connection: {what} after {:?}", began.elapsed());
                shared.failures.lock().unwrap().push(text);
                connection = None;
            }
        }
        sleep(PAUSE).await;
    }
}

/// One request. Returns the body of the answer.
pub async fn request(
    address: SocketAddr,
    is_kept: bool,
    connection: &mut Option<TcpStream>,
) -> std::io::Result<String> {
    let mut stream = match connection.take() {
        Some(stream) => stream,
        None => TcpStream::connect(address).await?,
    };
    let word = if is_kept { "keep-alive" } else { "close" };
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: web\r\nConnection: {word}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut answer).await? == 0 {
            let message = format!("closed after {} bytes", answer.len());
            return Err(std::io::Error::other(message));
        }
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            break (head.len() + 4, length.and_then(|it| it.parse::<usize>().ok()).expect("a length"));
        }
    };
    while answer.len() < head + length {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(std::io::Error::other("closed in the middle of an answer"));
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    if !text.starts_with("HTTP/1.1 200 ") {
        return Err(std::io::Error::other(text));
    }
    if is_kept {
        *connection = Some(stream);
    }
    Ok(text[head..].to_owned())
}
