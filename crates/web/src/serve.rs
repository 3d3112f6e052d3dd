//! Serves a router with limits on the number of connections, on the time and size of headers, and on the time that
//! open connections may delay shutdown.
//!
//! At the limit of connections the one that has been idle longest is closed, so idle clients cannot lock others out.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router, body::Body};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::OwnedSemaphorePermit,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::{
    acting::ActingRequests,
    peer::{LocalUser, Peer, TcpPeer},
    tls::ListenerTls,
};

/// The most connections at a time; more would use up the agent's file descriptors.
const CONNECTIONS: usize = 256;

/// Limit from the first byte to the end of the headers, and between two requests of a connection.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);

/// The largest size of a request's headers, in bytes.
const HEADERS_LIMIT: usize = 64 * 1024;

/// Time for running requests to end after a request to stop the server.
const GRACE: Duration = Duration::from_secs(3);

/// Limit from the first byte of a connection to the end of the TLS handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// The first byte of a TLS connection: the type of the record `handshake`.
const TLS_HANDSHAKE: u8 = 22;

/// The answer to a request without TLS where TLS is expected. It has the form of an error of the API.
const PLAIN_REQUEST: &str =
    r#"{"error":{"code":"needsTls","message":"this address needs https instead of http"}}"#;

/// A client that has sent nothing for this long is asked by TCP whether it is still there, and again after each [`ASK_AGAIN`]. A stream
/// of logs that are quiet writes nothing, and would never notice that its client has vanished without a word.
const SILENCE: Duration = Duration::from_mins(1);

/// The time between two questions.
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// Pause after a failed accept, for example when file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Cancelled when the server stops, so that open streams end.
#[derive(Clone, Debug, Default)]
pub(super) struct Stopping(pub(super) CancellationToken);

/// A permit among the requests that are answered at the same time. A response carries it until its last byte is sent.
#[derive(Clone)]
pub(super) struct RequestPermit {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl RequestPermit {
    pub(super) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: Arc::new(permit) }
    }
}

/// The source of the connections of a server.
#[derive(Debug)]
pub enum Listener {
    /// Connections over TCP.
    Tcp(TcpListener),
    /// Connections over TCP with TLS.
    Tls(TcpListener, ListenerTls),
    /// Connections of programs of this machine over a Unix socket.
    Socket(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Listener {
    async fn accept(&self) -> std::io::Result<NewConnection> {
        let (listener, tls) = match self {
            Self::Tcp(listener) => (listener, None),
            Self::Tls(listener, tls) => (listener, Some(tls)),
            Self::Socket(listener) => {
                let (socket, _) = listener.accept().await?;
                let user = LocalUser { id: socket.peer_cred()?.uid() };
                return Ok(NewConnection::Socket(socket, user));
            }
        };
        let (socket, client) = listener.accept().await?;
        let server = socket.local_addr()?;
        // Answers are small and must not wait for more data (Nagle).
        let _ = socket.set_nodelay(true);
        // A kernel that does not know one of these serves the connection all the same.
        let _ = sockopt::set_socket_keepalive(&socket, true);
        let _ = sockopt::set_tcp_keepidle(&socket, SILENCE);
        let _ = sockopt::set_tcp_keepintvl(&socket, ASK_AGAIN);
        let peer = TcpPeer { client, server, is_encrypted: tls.is_some() };
        Ok(match tls {
            Some(tls) => NewConnection::Tls(socket, peer, tls.clone()),
            None => NewConnection::Tcp(socket, peer),
        })
    }
}

/// A connection before its first byte.
enum NewConnection {
    Tcp(TcpStream, TcpPeer),
    Tls(TcpStream, TcpPeer, ListenerTls),
    Socket(UnixStream, LocalUser),
}

/// An open connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl NewConnection {
    /// Opens the connection, with TLS if the listener has it. `None`: the client ended it or spoke something else.
    async fn open(self) -> Option<(Box<dyn Stream>, Peer)> {
        let (mut socket, peer, tls) = match self {
            Self::Tcp(socket, peer) => return Some((Box::new(socket), Peer::Tcp(peer))),
            Self::Socket(socket, user) => return Some((Box::new(socket), Peer::Socket(user))),
            Self::Tls(socket, peer, tls) => (socket, peer, tls),
        };
        let handshake = async {
            let mut first = [0];
            if socket.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
                answer_plain_request(&mut socket).await?;
                return Ok(None);
            }
            tls.acceptor().accept(socket).await.map(Some)
        };
        match timeout(HANDSHAKE_WITHIN, handshake).await {
            Ok(Ok(stream)) => stream.map(|stream| (Box::new(stream) as Box<dyn Stream>, Peer::Tcp(peer))),
            Ok(Err(error)) => {
                tracing::debug!(%error, from = %peer.client, "a TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }
}

/// Says that the address needs TLS. The request is read first: unread bytes would cut the answer off.
async fn answer_plain_request(socket: &mut TcpStream) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let _ = socket.read(&mut request).await?;
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let answer = format!("{head}content-length: {}\r\n\r\n{PLAIN_REQUEST}", PLAIN_REQUEST.len());
    socket.write_all(answer.as_bytes()).await?;
    socket.shutdown().await
}

/// Serves until `shutdown` completes. Then it accepts no connection, ends streams, and gives running requests 3 s.
pub async fn serve(listener: impl Into<Listener>, router: Router, shutdown: impl Future<Output = ()> + Send) {
    let listener = listener.into();
    let stopping = CancellationToken::new();
    let acting = ActingRequests::default();
    let router = router.layer(Extension(Stopping(stopping.clone()))).layer(Extension(acting.clone()));
    let slots = Connections::new();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        // While all connections are busy, new ones wait in the listener's queue.
        let is_full = connections.len() >= CONNECTIONS && !slots.make_room();
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept(), if !is_full => match accepted {
                Ok(accepted) => {
                    let slot = slots.take();
                    connections.spawn(connection(accepted, router.clone(), stopping.clone(), slot));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    stopping.cancel();
    let rest = async {
        while connections.join_next().await.is_some() {}
        // Those whose clients have gone.
        acting.end().await;
    };
    if timeout(GRACE, rest).await.is_err() {
        connections.shutdown().await;
        acting.abandon().await;
    }
}

async fn connection(accepted: NewConnection, router: Router, stopping: CancellationToken, slot: Arc<Slot>) {
    let opened = tokio::select! {
        opened = accepted.open() => opened,
        () = slot.state.leave.cancelled() => return,
        () = stopping.cancelled() => return,
    };
    let Some((stream, peer)) = opened else { return };
    let serving = Arc::clone(&slot);
    let service = service_fn(move |request| answer(router.clone(), request, peer, Busy::new(&serving)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADERS_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = slot.state.leave.cancelled() => return,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A client that disconnects is not an error of the server.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Answers one request. The connection is busy until the last byte is sent.
async fn answer(
    mut router: Router,
    mut request: Request<Incoming>,
    peer: Peer,
    busy: Busy,
) -> Result<Response<Body>, std::convert::Infallible> {
    request.extensions_mut().insert(peer);
    let mut response = router.call(request).await?;
    let permit = response.extensions_mut().remove::<RequestPermit>();
    Ok(response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = (&busy, &permit);
            frame
        }))
    }))
}

/// All open connections.
struct Connections {
    began: Instant,
    taken: Arc<Mutex<BTreeMap<u64, Arc<State>>>>,
    last: AtomicU64,
}

/// The state of one connection.
struct State {
    began: Instant,
    /// Since when it has been idle, in milliseconds; `BUSY` while it answers a request.
    silent_since: AtomicU64,
    leave: CancellationToken,
}

/// One connection's slot, freed when the connection ends.
struct Slot {
    number: u64,
    state: Arc<State>,
    taken: Arc<Mutex<BTreeMap<u64, Arc<State>>>>,
}

const BUSY: u64 = u64::MAX;

impl Connections {
    fn new() -> Self {
        Self { began: Instant::now(), taken: Arc::default(), last: AtomicU64::new(0) }
    }

    fn take(&self) -> Arc<Slot> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(State {
            began: self.began,
            silent_since: AtomicU64::new(0),
            leave: CancellationToken::new(),
        });
        state.silent();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(number, Arc::clone(&state));
        Arc::new(Slot { number, state, taken: Arc::clone(&self.taken) })
    }

    /// Closes the connection that has been idle longest. False when all are busy.
    fn make_room(&self) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |state: &State| state.silent_since.load(Ordering::Relaxed);
        let silent = taken.iter().filter(|it| since(it.1) != BUSY);
        let Some(number) = silent.min_by_key(|it| since(it.1)).map(|it| *it.0) else { return false };
        if let Some(state) = taken.remove(&number) {
            state.leave.cancel();
        }
        true
    }
}

impl State {
    fn silent(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(BUSY - 1);
        self.silent_since.store(since, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// Marks the connection busy until it is dropped.
struct Busy(Arc<State>);

impl Busy {
    fn new(slot: &Slot) -> Self {
        slot.state.silent_since.store(BUSY, Ordering::Relaxed);
        Self(Arc::clone(&slot.state))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.silent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn vanished_client_is_noticed_without_an_answer_to_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::from(listener);
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let NewConnection::Tcp(socket, _) = accepted.unwrap() else { panic!("it has no TLS") };
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), SILENCE);
        drop(client);
    }
}
