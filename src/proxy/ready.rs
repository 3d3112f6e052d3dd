//! The ready endpoints of a proxy, as the agent reports them. The agent runs `driftless proxy-ready` in the proxy's
//! container, which sends them to the proxy over a socket that only this container can reach.

use std::{
    io::{self, Read as _, Write as _},
    net::Ipv4Addr,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout},
};

use driftless_model::{InvalidEndpoints, ReadyEndpoints};

/// The abstract name of a proxy's socket. Abstract names belong to a network namespace, and each proxy has its own.
pub const REPORT_SOCKET: &str = "driftless-proxy";
/// Time that a new proxy waits for the first report. Without an agent it then forwards to every pod.
const FIRST_REPORT: Duration = Duration::from_secs(3);
/// The longest report in bytes: about 4000 addresses.
const MAX_REPORT: u64 = 128 * 1024;
/// The deadline for one report.
const DEADLINE: Duration = Duration::from_secs(2);
/// The answer to a report.
const ACCEPTED: &[u8] = b"ok";

/// The endpoints that a proxy may forward to.
#[derive(Debug)]
pub struct Gate {
    /// `None`: every endpoint is ready.
    reported: Option<Reported>,
}

#[derive(Debug)]
struct Reported {
    /// The abstract name of the socket.
    socket: String,
    since: Instant,
    endpoints: Mutex<Option<ReadyEndpoints>>,
}

impl Gate {
    /// A gate that admits every endpoint.
    pub fn open() -> Self {
        Self { reported: None }
    }

    /// A gate that admits what the reports to this socket name. Without a report it admits nothing at first, and
    /// everything after three seconds: no agent runs then.
    pub fn by_report(socket: &str) -> Self {
        let (socket, since) = (socket.to_owned(), Instant::now());
        Self { reported: Some(Reported { socket, since, endpoints: Mutex::default() }) }
    }

    /// Replaces the ready endpoints.
    pub fn report(&self, endpoints: ReadyEndpoints) {
        if let Some(reported) = &self.reported {
            *reported.endpoints.lock().unwrap_or_else(PoisonError::into_inner) = Some(endpoints);
        }
    }

    /// Whether an address of a target may get traffic.
    pub(super) fn admits(&self, name: &str, address: Ipv4Addr) -> bool {
        let Some(reported) = &self.reported else { return true };
        match &*reported.endpoints.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(endpoints) => endpoints.contains(name, address),
            None => reported.since.elapsed() >= FIRST_REPORT,
        }
    }

    /// Receives reports of the agent for ever, unless the gate is open.
    pub(super) async fn listen(&self) -> io::Result<()> {
        let Some(reported) = &self.reported else { return std::future::pending().await };
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&reported.socket)?)?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        loop {
            let received = match listener.accept().await {
                Ok((stream, _)) => timeout(DEADLINE, self.receive(stream)).await,
                Err(error) => {
                    sleep(Duration::from_millis(100)).await;
                    Ok(Err(error))
                }
            };
            match received {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "could not receive the ready endpoints"),
                Err(_) => tracing::warn!("the report of the ready endpoints did not end in time"),
            }
        }
    }

    async fn receive(&self, mut stream: tokio::net::UnixStream) -> io::Result<()> {
        let mut text = String::new();
        (&mut stream).take(MAX_REPORT + 1).read_to_string(&mut text).await?;
        if text.len() as u64 > MAX_REPORT {
            return Err(io::Error::other(format!("the report is longer than {MAX_REPORT} bytes")));
        }
        self.report(ReadyEndpoints::parse(text.lines()).map_err(io::Error::other)?);
        stream.write_all(ACCEPTED).await
    }
}

/// Why a report could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Invalid(#[from] InvalidEndpoints),
    #[error("the proxy does not take the ready endpoints")]
    Socket(#[from] io::Error),
    #[error("the proxy refused the ready endpoints; its log says why")]
    Refused,
}

/// Sends the ready endpoints to the proxy of this container. Call it outside of a runtime: it blocks, for at most two
/// seconds for each step.
pub fn send_report<'a>(socket: &str, words: impl IntoIterator<Item = &'a str>) -> Result<(), ReportError> {
    let endpoints = ReadyEndpoints::parse(words)?;
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(socket)?)?;
    stream.set_write_timeout(Some(DEADLINE))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(endpoints.words().join("\n").as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(ACCEPTED.len() as u64).read_to_end(&mut answer)?;
    if answer == ACCEPTED { Ok(()) } else { Err(ReportError::Refused) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn endpoints_are_admitted_as_reported() {
        let address = Ipv4Addr::new(10, 0, 0, 2);
        assert!(Gate::open().admits("_web", address));
        let gate = Gate::by_report(REPORT_SOCKET);
        assert!(!gate.admits("_web", address), "the agent has a moment to report");
        gate.report(ReadyEndpoints::parse(["_web=10.0.0.2"]).unwrap());
        assert!(gate.admits("_web", address));
        assert!(!gate.admits("_web", Ipv4Addr::new(10, 0, 0, 3)) && !gate.admits("_other", address));
        gate.report(ReadyEndpoints::default());
        assert!(!gate.admits("_web", address), "no endpoint is ready");
        tokio::time::advance(FIRST_REPORT).await;
        assert!(!gate.admits("_web", address), "a report stays valid");

        let alone = Gate::by_report(REPORT_SOCKET);
        tokio::time::advance(FIRST_REPORT).await;
        assert!(alone.admits("_web", address), "without an agent every pod gets traffic");
    }
}
