//! The server's own limits: how many connections there may be, how long a client may take to send its headers,
//! and how long open connections may hold up the end. When there are too many connections, the one that has been
//! silent for longest makes room, so that those who only hold places keep nobody out. It knows nothing about
//! what is served.

use std::{
    collections::BTreeMap,
    future::Future,
    net::{IpAddr, SocketAddr},
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
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::events::Stopping;

/// More would starve the agent of file descriptors.
const CONNECTIONS: usize = 256;

/// From the first byte to the end of the headers, and between two requests of one connection.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);

/// The most that the headers of a request may have.
const HEADERS_LIMIT: usize = 64 * 1024;

/// What requests that are under way have left when the server stops.
const GRACE: Duration = Duration::from_secs(3);

/// Accepting fails for a while when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Who sent a request, as far as the connection tells; behind a proxy, that is the proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// Serves until `shutdown` is over; then accepts nothing more, ends streams, and lets what is under way finish
/// for 3 s at most.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()> + Send) {
    let stopping = CancellationToken::new();
    let router = router.layer(Extension(Stopping(stopping.clone())));
    let seats = Seats::new();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        // Those who come while all are busy wait in the listener's queue.
        let is_full = connections.len() >= CONNECTIONS && !seats.make_room();
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((socket, address)) => {
                    let seat = seats.take();
                    connections.spawn(connection(socket, address, router.clone(), stopping.clone(), seat));
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
    let rest = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, rest).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(
    socket: TcpStream,
    address: SocketAddr,
    router: Router,
    stopping: CancellationToken,
    seat: Arc<Seat>,
) {
    // Answers are small, and should not wait for more to come.
    let _ = socket.set_nodelay(true);
    let serving = Arc::clone(&seat);
    let service = service_fn(move |request| answer(router.clone(), request, address, Busy::new(&serving)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADERS_LIMIT)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = seat.state.leave.cancelled() => return,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A client that goes away is no trouble of ours.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// One answer. The connection is busy until the last byte of it is gone.
async fn answer(
    mut router: Router,
    mut request: Request<Incoming>,
    address: SocketAddr,
    busy: Busy,
) -> Result<Response<Body>, std::convert::Infallible> {
    request.extensions_mut().insert(Peer(address.ip()));
    let response = router.call(request).await?;
    Ok(response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _busy = &busy;
            frame
        }))
    }))
}

/// All connections.
struct Seats {
    began: Instant,
    taken: Arc<Mutex<BTreeMap<u64, Arc<State>>>>,
    last: AtomicU64,
}

/// What is known of one connection.
struct State {
    began: Instant,
    /// Since when it waits for a request, in milliseconds; `BUSY` while it answers one.
    silent_since: AtomicU64,
    leave: CancellationToken,
}

/// The place of one connection, given back with the connection's end.
struct Seat {
    number: u64,
    state: Arc<State>,
    taken: Arc<Mutex<BTreeMap<u64, Arc<State>>>>,
}

const BUSY: u64 = u64::MAX;

impl Seats {
    fn new() -> Self {
        Self { began: Instant::now(), taken: Arc::default(), last: AtomicU64::new(0) }
    }

    fn take(&self) -> Arc<Seat> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(State {
            began: self.began,
            silent_since: AtomicU64::new(0),
            leave: CancellationToken::new(),
        });
        state.silent();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(number, Arc::clone(&state));
        Arc::new(Seat { number, state, taken: Arc::clone(&self.taken) })
    }

    /// Sends away the one that has been silent for longest. False when all are busy.
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

impl Drop for Seat {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// While this lives, the connection is not silent.
struct Busy(Arc<State>);

impl Busy {
    fn new(seat: &Seat) -> Self {
        seat.state.silent_since.store(BUSY, Ordering::Relaxed);
        Self(Arc::clone(&seat.state))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.silent();
    }
}
