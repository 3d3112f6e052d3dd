//! Connections: each is connected to an endpoint, and then bytes go both ways until both sides have said their last.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};

use super::{
    balance::Lease,
    flow::{Decision, Flow},
    header::header,
    limits::Permit,
    request::begins_request,
    route::Route,
};

/// The time for which ready endpoints that refuse a connection are tried again: one may be about to listen.
const LOOK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// The pause before connections are accepted again when descriptors have run out.
const FULL: Duration = Duration::from_millis(20);
/// Time without data after which the peer is asked whether it still exists.
const SILENCE: Duration = Duration::from_mins(1);
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// Takes connections for ever.
pub(super) async fn accept(listener: TcpListener, route: Arc<Route>) {
    loop {
        match listener.accept().await {
            Ok((client, address)) => {
                // Beyond the limit a client gets an answer at once: in the kernel's queue it would wait without end.
                let Some(permit) = route.limits.permit() else {
                    reset(&client);
                    continue;
                };
                // Ends with the runtime. Nobody waits for it, so its memory is free as soon as it has ended.
                tokio::spawn(forward(client, address, Arc::clone(&route), permit));
            }
            Err(error) if is_of_client(&error) => {}
            // Out of descriptors or memory, most likely: some will be free again.
            Err(error) => {
                let say = || tracing::warn!(%error, "could not accept connections; further ones wait");
                route.log.accept.say(say);
                sleep(FULL).await;
            }
        }
    }
}

/// Whether it is over before it began.
fn is_of_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

async fn forward(client: TcpStream, address: SocketAddr, route: Arc<Route>, permit: Permit) {
    // In memory of its own, which is free again when the connection is established.
    let Some((endpoint, lease)) = Box::pin(connect(address, &route, None)).await else {
        reset(&client);
        return;
    };
    let up = route.beginning(&client, address);
    let mut relay = Relay {
        client,
        endpoint,
        lease,
        up,
        down: Flow::default(),
        speaks_http: None,
        has_answered: false,
        idle: route.limits.idle.map(|time| Idle { time, timer: Box::pin(sleep(time)) }),
    };
    loop {
        match poll_fn(|cx| relay.poll(cx)).await {
            Event::Over => break,
            Event::Broken => {
                // One side has broken off, and so does the proxy with the other.
                reset(&relay.client);
                reset(&relay.endpoint);
                break;
            }
            Event::Request(bytes) => {
                let leaving = Some(relay.lease.address());
                match Box::pin(connect(address, &route, leaving)).await {
                    Some((endpoint, lease)) => {
                        let mut first = route.header(&relay.client, address).unwrap_or_default();
                        first.extend(bytes);
                        (relay.endpoint, relay.lease) = (endpoint, lease);
                        relay.up = Flow::beginning_with(first);
                        relay.down = Flow::default();
                    }
                    None => relay.up = Flow::beginning_with(bytes),
                }
            }
        }
    }
    drop(permit);
}

impl Route {
    fn beginning(&self, client: &TcpStream, address: SocketAddr) -> Flow {
        self.header(client, address).map_or_else(Flow::default, Flow::beginning_with)
    }

    /// The header of the PROXY protocol, if endpoints want it.
    fn header(&self, client: &TcpStream, address: SocketAddr) -> Option<Vec<u8>> {
        self.proxy_protocol.then(|| client.local_addr().ok().map(|own| header(address, own))).flatten()
    }
}

/// A connection that is established on both sides.
struct Relay {
    client: TcpStream,
    endpoint: TcpStream,
    lease: Lease,
    up: Flow,
    down: Flow,
    /// Whether the client's first bytes begin an HTTP/1.1 request. `None` before these.
    speaks_http: Option<bool>,
    /// The last bytes were the endpoint's.
    has_answered: bool,
    idle: Option<Idle>,
}

/// The end of a connection without data.
struct Idle {
    time: Duration,
    timer: Pin<Box<Sleep>>,
}

/// The reason why a relay stops.
enum Event {
    /// Both sides have said their last.
    Over,
    Broken,
    /// The endpoint is leaving, and the client has begun another HTTP request with these bytes. Nothing of the connection is
    /// on its way, so another endpoint can answer.
    Request(Vec<u8>),
}

impl Relay {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let Self { client, endpoint, lease, up, down, speaks_http, has_answered, idle } = self;
        let down_polled = down.poll(cx, endpoint, client, true, |_| Decision::Forward);
        let has_read_down = down.take_has_read();
        *has_answered |= has_read_down;
        let is_between_requests = *has_answered && down.is_flushed() && !down.has_ended();
        let up_polled = up.poll(cx, client, endpoint, !lease.is_leaving(), |bytes| {
            let is_http = *speaks_http.get_or_insert_with(|| begins_request(bytes));
            let is_movable = is_http && is_between_requests && lease.is_leaving();
            if is_movable && *has_answered && begins_request(bytes) {
                return Decision::Take;
            }
            *has_answered = false;
            Decision::Forward
        });
        let has_read_up = up.take_has_read();
        match (down_polled, up_polled) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(Event::Broken),
            (_, Poll::Ready(Ok(Some(bytes)))) => return Poll::Ready(Event::Request(bytes)),
            _ if up.is_over() && down.is_over() => return Poll::Ready(Event::Over),
            _ => {}
        }
        if let Some(idle) = idle {
            if has_read_up || has_read_down {
                idle.timer.as_mut().reset(Instant::now() + idle.time);
            }
            if idle.timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Broken);
            }
        }
        Poll::Pending
    }
}

/// A connection to a ready endpoint: each is tried once, and then all again for a while, since one of them may be about to
/// listen. `None` at once if none is ready.
async fn connect(
    address: SocketAddr,
    route: &Route,
    leaving: Option<SocketAddr>,
) -> Option<(TcpStream, Lease)> {
    let client = address.ip().to_canonical();
    let end = Instant::now() + LOOK;
    loop {
        let mut endpoints = route.endpoints().await;
        endpoints.retain(|it| Some(*it) != leaving);
        if endpoints.is_empty() {
            route.log.refused.say(|| tracing::warn!("no endpoint of {} is ready", route.forward));
            return None;
        }
        let mut tried = Vec::new();
        while let Some(lease) = route.balance.choose(client, &endpoints, &tried) {
            let endpoint = lease.address();
            if let Some(stream) = attempt(endpoint, route).await {
                route.balance.sent(client, endpoint);
                return Some((stream, lease));
            }
            lease.fail();
            tried.push(endpoint);
            if Instant::now() >= end {
                break;
            }
        }
        if Instant::now() >= end || leaving.is_some() {
            route.log.silent.say(|| tracing::warn!("no ready endpoint of {} answers", route.forward));
            return None;
        }
        let mut changes = route.gate.changes();
        let again = sleep_until(end.min(Instant::now() + PAUSE));
        select! {
            () = again => {}
            _ = changes.changed() => {}
        }
    }
}

/// One try. It ends early if the endpoint loses its traffic meanwhile.
async fn attempt(endpoint: SocketAddr, route: &Route) -> Option<TcpStream> {
    let connected = timeout(route.limits.connect, TcpStream::connect(endpoint));
    let stream = select! {
        biased;
        connected = connected => connected.ok()?.ok()?,
        () = until_refused(endpoint, route, route.gate.changes()) => return None,
    };
    // If the kernel does not know an option, the connection works all the same.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive());
    Some(stream)
}

async fn until_refused(endpoint: SocketAddr, route: &Route, mut changes: watch::Receiver<()>) {
    while route.admits(endpoint) {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A peer that has gone without a word is noticed.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(SILENCE).with_interval(ASK_AGAIN)
}

/// Sets the options that accepted connections take over from their listening socket.
pub(super) fn set_options(listener: &socket2::Socket) {
    let _ = listener.set_tcp_nodelay(true);
    let _ = listener.set_tcp_keepalive(&keepalive());
}

/// Closing it will tell the other side that something went wrong.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
