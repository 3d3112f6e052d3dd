//! Connections: each is connected to an endpoint, and then bytes go both ways until both sides have said their last.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    pin::pin,
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
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    balance::Lease,
    counters::Counted,
    exchange::Exchange,
    flow::{Decision, Flow, Piece},
    handover::{Item, Parcel},
    header::header,
    idle::Idle,
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
        self.limits.idle.map(Idle::after)
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

/// The reason why a relay stops.
enum Event {
    /// Both sides have said their last, or the endpoint has and will answer no other request.
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
                Event::Request(bytes) => self.move_to_another(bytes, address, route).await,
                Event::EndOfShift => {
                    if let Err(error) = self.hand_over(address, route) {
                        tracing::warn!(%error, "could not hand a connection over");
                    }
                    return;
                }
            }
        }
    }

    /// Gives a request to another endpoint. If there is none, it goes to the present one after all.
    async fn move_to_another(&mut self, bytes: Vec<u8>, address: SocketAddr, route: &Route) {
        match Box::pin(reach(address, route, Some(self.lease.address()))).await {
            Reached::Endpoint(endpoint, lease, counted) => {
                let mut first = route.header(&self.client, address).unwrap_or_default();
                first.extend(bytes);
                (self.endpoint, self.lease, self.counted) = (endpoint, lease, counted);
                self.up = Flow::beginning_with(first);
                self.down = Flow::default();
            }
            Reached::Nothing | Reached::EndOfShift => self.up = Flow::beginning_with(bytes),
        }
        // The attempts may have taken some time.
        if let Some(idle) = &mut self.idle {
            idle.restart();
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
        let has_flushed = up.take_flushed() | down.take_flushed();
        if (has_flushed || read_up + read_down > 0)
            && let Some(idle) = idle
        {
            idle.restart();
        }
        match (down_polled, up_polled) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(Event::Broken),
            (_, Poll::Ready(Ok(Some(bytes)))) => return Poll::Ready(Event::Request(bytes)),
            // To close both says the rest. A client that keeps the connection for another request may notice the end much later.
            _ if down.is_over() && (up.is_over() || up.is_flushed() && exchange.has_answered_all()) => {
                return Poll::Ready(Event::Over);
            }
            _ => {}
        }
        let shut = [up.poll_shut(cx, endpoint), down.poll_shut(cx, client)];
        if shut.iter().any(|shut| matches!(shut, Poll::Ready(Err(_)))) {
            return Poll::Ready(Event::Broken);
        }
        match idle.as_mut().map(|idle| idle.poll(cx, [client, endpoint])) {
            Some(Poll::Ready(())) => Poll::Ready(Event::Broken),
            Some(Poll::Pending) | None => Poll::Pending,
        }
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use driftless_model::ForwardLimits;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpSocket,
        task::JoinHandle,
    };

    use super::*;
    use crate::limits::Limits;

    const PATIENCE: Duration = Duration::from_secs(20);
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

    /// A relay, the far sides of its connections, and where its endpoint is.
    struct Ends {
        relay: Relay,
        client: TcpStream,
        endpoint: TcpStream,
        address: SocketAddr,
    }

    /// A connection, for the first side of which the kernel keeps few bytes.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let near = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    impl Ends {
        async fn of(route: &Route) -> Self {
            let ((near, endpoint), (client, accepted)) = (pair().await, pair().await);
            let address = near.peer_addr().unwrap();
            let relay = Relay {
                client: accepted,
                endpoint: near,
                lease: route.balance.lease(address),
                counted: route.counters.open(0),
                up: Flow::default(),
                down: Flow::default(),
                exchange: Exchange::new(),
                idle: route.idle(),
            };
            Self { relay, client, endpoint, address }
        }

        fn run(self, route: &Arc<Route>) -> (TcpStream, TcpStream, JoinHandle<()>) {
            let Self { relay, client, endpoint, .. } = self;
            let (route, address) = (Arc::clone(route), client.local_addr().unwrap());
            (client, endpoint, tokio::spawn(async move { relay.run(address, &route).await }))
        }
    }

    fn route(port: u16, idle: Option<Duration>) -> Arc<Route> {
        let route = Route::to_endpoint(&format!("1/tcp=end:{port}"), Ipv4Addr::LOCALHOST);
        let limits = Arc::new(Limits::new(&ForwardLimits { idle, ..ForwardLimits::default() }));
        Arc::new(Route { limits, ..route })
    }

    async fn heard(stream: &mut TcpStream, text: &[u8]) {
        let mut found = vec![0; text.len()];
        timeout(PATIENCE, stream.read_exact(&mut found)).await.expect("bytes in time").unwrap();
        assert_eq!(found, text);
    }

    async fn has_ended(stream: &mut TcpStream) {
        assert_eq!(timeout(PATIENCE, stream.read(&mut [0])).await.expect("an end in time").unwrap(), 0);
    }

    #[tokio::test]
    async fn connection_ends_when_its_endpoint_ends_after_answers() {
        let route = route(80, None);
        let (mut client, mut endpoint, relay) = Ends::of(&route).await.run(&route);
        for _ in 0..2 {
            client.write_all(GET).await.unwrap();
            heard(&mut endpoint, GET).await;
            endpoint.write_all(OK).await.unwrap();
            heard(&mut client, OK).await;
        }
        assert_eq!(route.balance.active(|_| true), 1);
        drop(endpoint);
        // The client has not noticed it yet.
        timeout(PATIENCE, relay).await.expect("the connection is open for the client only").unwrap();
        assert_eq!(route.balance.active(|_| true), 0);
        has_ended(&mut client).await;
    }

    #[tokio::test]
    async fn endpoint_that_ends_its_side_alone_still_hears_the_client() {
        let route = route(80, None);
        for before in [&b""[..], b"220 mail\r\n"] {
            let (mut client, mut endpoint, relay) = Ends::of(&route).await.run(&route);
            endpoint.write_all(before).await.unwrap();
            endpoint.shutdown().await.unwrap();
            heard(&mut client, before).await;
            has_ended(&mut client).await;
            client.write_all(GET).await.unwrap();
            heard(&mut endpoint, GET).await;
            drop(client);
            has_ended(&mut endpoint).await;
            timeout(PATIENCE, relay).await.expect("both sides have ended").unwrap();
        }
    }

    #[tokio::test]
    async fn slow_client_gets_all_despite_the_idle_timeout() {
        let idle = Duration::from_millis(500);
        let route = route(80, Some(idle));
        let ends = Ends::of(&route).await;
        // The kernel of the proxy takes all of the answer, since that of the client does not.
        SockRef::from(&ends.relay.client).set_send_buffer_size(512 * 1024).unwrap();
        let (mut client, mut endpoint, relay) = ends.run(&route);
        client.write_all(b"a").await.unwrap();
        heard(&mut endpoint, b"a").await;
        let answer: Vec<u8> = (0..192 * 1024_u32).map(|it| (it % 251) as u8).collect();
        endpoint.write_all(&answer).await.unwrap();
        let (began, mut received) = (Instant::now(), Vec::new());
        let mut buffer = vec![0; 16 * 1024];
        while received.len() < answer.len() {
            sleep(idle / 3).await;
            let count =
                timeout(PATIENCE, client.read(&mut buffer)).await.expect("in time").expect("the rest");
            received.extend_from_slice(&buffer[..count]);
        }
        assert!(received == answer && began.elapsed() > 2 * idle);
        // Then there is nothing to wait for.
        timeout(PATIENCE, relay).await.expect("an end without data").unwrap();
        assert!(client.read(&mut buffer).await.is_err());
    }

    #[tokio::test]
    async fn moved_request_restarts_the_idle_timeout() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let to = other.local_addr().unwrap();
        let route = route(to.port(), Some(Duration::from_hours(1)));
        for has_another in [true, false] {
            let Ends { mut relay, mut client, endpoint: _open, address } = Ends::of(&route).await;
            if !has_another {
                relay.lease = route.balance.lease(to);
            }
            route.balance.mark_leaving(|endpoint| endpoint == address || !has_another);
            let deadline = |relay: &Relay| relay.idle.as_ref().unwrap().deadline();
            let began = deadline(&relay);
            client.write_all(GET).await.unwrap();
            let event = timeout(PATIENCE, poll_fn(|cx| relay.poll(cx))).await.expect("a request");
            let Event::Request(bytes) = event else { panic!("the request stays with its endpoint") };
            let read = deadline(&relay);
            assert!(read > began);
            relay.move_to_another(bytes, client.local_addr().unwrap(), &route).await;
            assert!(deadline(&relay) > read);
            assert_eq!(relay.lease.address(), to);
            assert_eq!(relay.endpoint.peer_addr().unwrap() == to, has_another);
        }
    }
}
