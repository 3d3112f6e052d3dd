//! Connections: each is connected to an endpoint, and then bytes go both ways until both sides have said their last.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use driftless_model::Protocol;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::{mpsc, watch},
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};

use crate::{
    balance::Lease,
    counters::Counted,
    exchange::Exchange,
    flow::{Decision, Flow, Piece},
    handover::{Item, Parcel},
    header::header,
    limits::Permit,
    request::begins_request,
    route::Route,
    shift::Shift,
    threads::{Given, Placed, Seat, Threads},
};

/// The time for which ready endpoints that refuse a connection are tried again: one may be about to listen.
const LOOK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// The pause before connections are accepted again when descriptors have run out.
const FULL: Duration = Duration::from_millis(20);
/// Time without data after which the peer is asked whether it still exists.
const SILENCE: Duration = Duration::from_mins(1);
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// Takes connections until the end of the shift, and then hands the listening socket over.
pub(crate) async fn accept(listener: TcpListener, route: Arc<Route>, (threads, own): (Arc<Threads>, usize)) {
    let shift = Arc::clone(&route.shift);
    let mut ended = pin!(shift.ended());
    loop {
        let accepted = select! {
            biased;
            () = &mut ended => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, address)) => {
                // Beyond the limit a client gets an answer at once: in the kernel's queue it would wait without end.
                let Some(permit) = route.limits.permit() else {
                    route.counters.refuse();
                    reset(&client);
                    continue;
                };
                if let Placed::Here(client, held) = threads.place(own, (client, address), &route, permit) {
                    // Ends with the runtime. Nobody waits for it, so its memory is free as soon as it has ended.
                    tokio::spawn(forward(client, address, Vec::new(), Arc::clone(&route), held));
                }
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
    let port = route.forward.port;
    if let Ok(listener) = listener.into_std() {
        route.hand_over(Parcel::with(Item::Listener { port, protocol: Protocol::Tcp }, listener));
    }
}

/// Carries the clients that other threads give to this one, until the shift ends.
pub(crate) async fn receive(mut given: mpsc::UnboundedReceiver<Given>, shift: Arc<Shift>) {
    let carry = |Given { client, address, route, held }: Given| {
        if let Ok(client) = TcpStream::from_std(client) {
            tokio::spawn(forward(client, address, Vec::new(), route, held));
        }
    };
    loop {
        select! {
            biased;
            () = shift.ended() => break,
            next = given.recv() => match next {
                Some(next) => carry(next),
                None => return,
            },
        }
    }
    given.close();
    // Those under way are handed over at once.
    while let Some(next) = given.recv().await {
        carry(next);
    }
}

/// Whether it is over before it began.
fn is_of_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// Connects a client, whose first bytes may be known already, and forwards until one of the sides has ended.
async fn forward(
    client: TcpStream,
    address: SocketAddr,
    first: Vec<u8>,
    route: Arc<Route>,
    held: (Permit, Seat),
) {
    // In memory of its own, which is free again when the connection is established.
    let (endpoint, lease, counted) = match Box::pin(reach(address, &route, None)).await {
        Reached::Endpoint(endpoint, lease, counted) => (endpoint, lease, counted),
        Reached::Nothing => {
            route.counters.refuse();
            reset(&client);
            return;
        }
        Reached::EndOfShift => {
            route.hand_over_client(client, address, first);
            return;
        }
    };
    let mut up = route.header(&client, address).unwrap_or_default();
    let mut exchange = Exchange::new();
    if !first.is_empty() {
        exchange.note_request(Piece::Read(&first));
    }
    up.extend(first);
    let relay = Relay {
        client,
        endpoint,
        lease,
        counted,
        up: Flow::beginning_with(up),
        down: Flow::default(),
        exchange,
        idle: route.idle(),
    };
    relay.run(address, &route).await;
    drop(held);
}

/// Goes on with a connection of the proxy before. With a lease it is connected to an endpoint.
pub(crate) async fn resume(parcel: Parcel, route: Arc<Route>, lease: Option<Lease>, held: (Permit, Seat)) {
    let Item::Connection { client: address, exchange, from_client, .. } = parcel.item else { return };
    let mut streams = parcel.descriptors.into_iter().map(adopt);
    let Some(Ok(client)) = streams.next() else { return };
    let mut up = parcel.bytes;
    let down = up.split_off(from_client.min(up.len()));
    match (lease, streams.next()) {
        (Some(lease), Some(Ok(stream))) => {
            let relay = Relay {
                client,
                endpoint: stream,
                counted: route.counters.resume(route.target_of(lease.address())),
                lease,
                up: Flow::beginning_with(up),
                down: Flow::beginning_with(down),
                exchange,
                idle: route.idle(),
            };
            relay.run(address, &route).await;
            drop(held);
        }
        _ => forward(client, address, up, route, held).await,
    }
}

fn adopt(descriptor: OwnedFd) -> io::Result<TcpStream> {
    TcpStream::from_std(std::net::TcpStream::from(descriptor))
}

impl Route {
    fn idle(&self) -> Option<Idle> {
        self.limits.idle.map(|time| Idle { time, timer: Box::pin(sleep(time)) })
    }

    /// Hands a client over that is not connected to an endpoint.
    fn hand_over_client(&self, client: TcpStream, address: SocketAddr, bytes: Vec<u8>) {
        let Ok(client) = client.into_std() else { return };
        let item = Item::Connection {
            port: self.forward.port,
            client: address,
            endpoint: None,
            exchange: Exchange::default(),
            speaks_http: None,
            has_answered: false,
            from_client: bytes.len(),
        };
        self.hand_over(Parcel { item, descriptors: vec![client.into()], bytes });
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
    counted: Counted,
    up: Flow,
    down: Flow,
    exchange: Exchange,
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
    /// The endpoint is leaving, and the client has begun another HTTP request with these bytes. All earlier ones have their
    /// complete answers, so another endpoint can answer.
    Request(Vec<u8>),
    EndOfShift,
}

impl Relay {
    /// Forwards until the connection or the shift has ended.
    async fn run(mut self, address: SocketAddr, route: &Route) {
        let mut ended = pin!(route.shift.ended());
        let mut waits = false;
        loop {
            let event = poll_fn(|cx| {
                // Polled once, because the task that it wakes stays the same. The flag costs less than it would.
                if !waits {
                    waits = true;
                    let _ = ended.as_mut().poll(cx);
                }
                if route.shift.has_ended() {
                    return Poll::Ready(Event::EndOfShift);
                }
                self.poll(cx)
            });
            match event.await {
                Event::Over => return,
                Event::Broken => {
                    // One side has broken off, and so does the proxy with the other.
                    reset(&self.client);
                    reset(&self.endpoint);
                    return;
                }
                Event::Request(bytes) => {
                    let leaving = Some(self.lease.address());
                    match Box::pin(reach(address, route, leaving)).await {
                        Reached::Endpoint(endpoint, lease, counted) => {
                            let mut first = route.header(&self.client, address).unwrap_or_default();
                            first.extend(bytes);
                            (self.endpoint, self.lease, self.counted) = (endpoint, lease, counted);
                            self.up = Flow::beginning_with(first);
                            self.down = Flow::default();
                        }
                        Reached::Nothing | Reached::EndOfShift => self.up = Flow::beginning_with(bytes),
                    }
                }
                Event::EndOfShift => {
                    if let Err(error) = self.hand_over(address, route) {
                        tracing::warn!(%error, "could not hand a connection over");
                    }
                    return;
                }
            }
        }
    }

    fn hand_over(mut self, address: SocketAddr, route: &Route) -> io::Result<()> {
        let mut bytes = self.up.take_waiting()?;
        let item = Item::Connection {
            port: route.forward.port,
            client: address,
            endpoint: Some(self.lease.address()),
            exchange: self.exchange,
            speaks_http: Some(false),
            has_answered: false,
            from_client: bytes.len(),
        };
        bytes.extend(self.down.take_waiting()?);
        let descriptors = vec![self.client.into_std()?.into(), self.endpoint.into_std()?.into()];
        route.hand_over(Parcel { item, descriptors, bytes });
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let Self { client, endpoint, lease, counted, up, down, exchange, idle } = self;
        let down_polled = down.poll(cx, endpoint, client, exchange.may_skip_answer(), |piece| {
            exchange.note_answer(piece);
            Decision::Forward
        });
        let read_down = down.take_read();
        let is_movable = lease.is_leaving() && down.is_flushed() && !down.has_ended();
        let up_polled = up.poll(cx, client, endpoint, exchange.may_skip_request(), |piece| {
            let was_idle = exchange.is_idle();
            exchange.note_request(piece);
            match piece {
                Piece::Read(bytes) if is_movable && was_idle && begins_request(bytes) => Decision::Take,
                Piece::Read(_) | Piece::Moved(_) => Decision::Forward,
            }
        });
        let read_up = up.take_read();
        counted.add(read_up, read_down);
        match (down_polled, up_polled) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(Event::Broken),
            (_, Poll::Ready(Ok(Some(bytes)))) => return Poll::Ready(Event::Request(bytes)),
            // To close both says the rest.
            _ if up.is_over() && down.is_over() => return Poll::Ready(Event::Over),
            _ => {}
        }
        let shut = [up.poll_shut(cx, endpoint), down.poll_shut(cx, client)];
        if shut.iter().any(|shut| matches!(shut, Poll::Ready(Err(_)))) {
            return Poll::Ready(Event::Broken);
        }
        if let Some(idle) = idle {
            if read_up + read_down > 0 {
                idle.timer.as_mut().reset(Instant::now() + idle.time);
            }
            if idle.timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Broken);
            }
        }
        Poll::Pending
    }
}

enum Reached {
    Endpoint(TcpStream, Lease, Counted),
    Nothing,
    EndOfShift,
}

/// A connection to a ready endpoint, unless the shift ends before.
async fn reach(address: SocketAddr, route: &Route, leaving: Option<SocketAddr>) -> Reached {
    select! {
        biased;
        () = route.shift.ended() => Reached::EndOfShift,
        connected = connect(address, route, leaving) => match connected {
            Some((endpoint, lease, counted)) => Reached::Endpoint(endpoint, lease, counted),
            None => Reached::Nothing,
        },
    }
}

/// A connection to a ready endpoint: each is tried once, and then all again for a while, since one of them may be about to
/// listen. `None` at once if none is ready.
async fn connect(
    address: SocketAddr,
    route: &Route,
    leaving: Option<SocketAddr>,
) -> Option<(TcpStream, Lease, Counted)> {
    let client = address.ip().to_canonical();
    let end = Instant::now() + LOOK;
    let mut has_failed = false;
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
            if has_failed {
                route.counters.retry();
            }
            let target = route.target_of(endpoint);
            if let Some(stream) = attempt(endpoint, route).await {
                route.balance.sent(client, endpoint);
                return Some((stream, lease, route.counters.open(target)));
            }
            has_failed = true;
            route.counters.fail(target);
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
    keep_earlier_timer(route.limits.connect);
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

/// Starts a timer that is due before those of attempts, unless this thread has one. The runtime wakes itself, by writing to a
/// descriptor, for each timer that becomes its earliest. With this timer it does so twice in the time of an attempt, and not
/// once for each connection, which saves a write and a wake of each.
fn keep_earlier_timer(time: Duration) {
    thread_local! {
        static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_RUNNING.replace(true) {
        tokio::spawn(async move {
            sleep(time / 2).await;
            IS_RUNNING.set(false);
        });
    }
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
pub(crate) fn set_options(listener: &socket2::Socket) {
    let _ = listener.set_tcp_nodelay(true);
    let _ = listener.set_tcp_keepalive(&keepalive());
}

/// Closing it will tell the other side that something went wrong.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
