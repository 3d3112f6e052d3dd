//! A proxy between two programs that injects faults into their connections.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

/// A fault of a connection. Counts of bytes are of one answer stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Open connections are cut, and new ones are closed at once.
    Refused,
    /// Everything that is sent disappears, in both directions, and nobody closes.
    Silent,
    /// New connections are accepted and never answered; open ones go on.
    Hanging,
    /// Each part of an answer comes late.
    Late(Duration),
    /// So many bytes a second.
    Slow(u64),
    /// The answer stops after so many bytes, and the connection stays open.
    Stalled(u64),
    /// The answer ends after so many bytes.
    Cut(u64),
    /// The answer begins with bytes that are of no protocol.
    Garbage,
    /// One bit of the answer is wrong.
    Flipped(u64),
    /// The answer of an HTTP server to every request.
    Status(&'static str),
}

impl Fault {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Refused => "cut and refused".into(),
            Self::Silent => "half-open".into(),
            Self::Hanging => "accepted and not answered".into(),
            Self::Late(_) => "late".into(),
            Self::Slow(_) => "slow".into(),
            Self::Stalled(_) => "answer stalls".into(),
            Self::Cut(_) => "answer cut short".into(),
            Self::Garbage => "garbage".into(),
            Self::Flipped(_) => "a wrong bit".into(),
            Self::Status(status) => format!("HTTP {}", status.split(' ').next().unwrap_or_default()),
        }
    }
}

/// The program behind the proxy.
#[derive(Clone)]
pub(crate) enum Upstream {
    Tcp(String),
    Unix(PathBuf),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A proxy that listens for as long as it lives.
pub(crate) struct Proxy {
    fault: watch::Sender<Option<Fault>>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn on_port(address: &str, upstream: Upstream) -> Result<Self, String> {
        let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
        let (fault, faults) = watch::channel(None);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(Box::new(client), upstream.clone(), faults.clone()));
            }
        });
        Ok(Self { fault, task })
    }

    pub(crate) fn on_socket(path: &Path, upstream: Upstream) -> Result<Self, String> {
        let listener = UnixListener::bind(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let (fault, faults) = watch::channel(None);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(Box::new(client), upstream.clone(), faults.clone()));
            }
        });
        Ok(Self { fault, task })
    }

    /// Injects a fault into all connections from now on.
    pub(crate) fn inject(&self, fault: Fault) {
        self.fault.send_replace(Some(fault));
    }

    /// Ends the fault. Connections that it silenced or stalled are cut.
    pub(crate) fn recover(&self) {
        self.fault.send_replace(None);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Faults = watch::Receiver<Option<Fault>>;

/// Waits until there is another fault, or none any more.
async fn changed(faults: &mut Faults) {
    if faults.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn serve(mut client: Box<dyn Stream>, upstream: Upstream, mut faults: Faults) {
    let fault = faults.borrow_and_update().clone();
    match fault {
        Some(Fault::Refused) => return,
        Some(Fault::Hanging | Fault::Silent) => return changed(&mut faults).await,
        Some(Fault::Status(status)) => {
            let mut request = [0; 4096];
            let _ = client.read(&mut request).await;
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = client.write_all(answer.as_bytes()).await;
            let _ = client.shutdown().await;
            return;
        }
        Some(Fault::Garbage) => {
            let mut request = [0; 4096];
            let _ = client.read(&mut request).await;
            let _ = client.write_all(&[0x16, 0xff, 0x00, 0x0a, 0x7f, 0x0d, 0x0a, 0x41].repeat(64)).await;
            let _ = client.shutdown().await;
            return;
        }
        _ => {}
    }
    let server: Box<dyn Stream> = match upstream {
        Upstream::Tcp(address) => match TcpStream::connect(address).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return,
        },
        Upstream::Unix(path) => match UnixStream::connect(path).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return,
        },
    };
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    let asking = pump(from_client, to_server, faults.clone(), false);
    let answering = pump(from_server, to_client, faults.clone(), true);
    // The end of the answers ends the connection; the end of the questions does not.
    tokio::select! {
        () = answering => {}
        () = async { asking.await; std::future::pending::<()>().await } => {}
    }
}

/// Copies one direction. Returns when it has ended or was cut.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut faults: Faults,
    is_answer: bool,
) {
    let mut buffer = vec![0; 1 << 15];
    let mut passed: u64 = 0;
    loop {
        let size = match &*faults.borrow() {
            Some(Fault::Slow(_)) => 512,
            _ => buffer.len(),
        };
        let read = tokio::select! {
            read = from.read(&mut buffer[..size]) => read,
            () = changed(&mut faults) => {
                let fault = faults.borrow().clone();
                if fault == Some(Fault::Refused) && is_answer {
                    return;
                }
                continue;
            }
        };
        let Ok(read @ 1..) = read else {
            let _ = to.shutdown().await;
            return;
        };
        let fault = faults.borrow().clone();
        let mut end = read;
        let mut is_last = false;
        match fault {
            Some(Fault::Silent) => {
                changed(&mut faults).await;
                return;
            }
            Some(Fault::Late(pause)) if is_answer => sleep(pause).await,
            Some(Fault::Slow(rate)) if is_answer => {
                sleep(Duration::from_millis(read as u64 * 1000 / rate.max(1))).await;
            }
            Some(Fault::Stalled(limit) | Fault::Cut(limit)) if is_answer && passed + read as u64 > limit => {
                end = usize::try_from(limit.saturating_sub(passed)).unwrap_or(0);
                is_last = true;
            }
            Some(Fault::Flipped(at)) if is_answer && (passed..passed + read as u64).contains(&at) => {
                buffer[usize::try_from(at - passed).unwrap_or(0)] ^= 1;
            }
            _ => {}
        }
        if to.write_all(&buffer[..end]).await.is_err() {
            return;
        }
        passed += end as u64;
        if is_last {
            if matches!(fault, Some(Fault::Stalled(_))) {
                changed(&mut faults).await;
            }
            return;
        }
    }
}
