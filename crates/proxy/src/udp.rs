//! Datagrams: each client has a socket of its own towards its endpoint, so that what comes back finds it again, until
//! both have been silent for a while. What cannot be sent at once is lost, as datagrams are.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd as _,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use driftless_model::Protocol;
use socket2::SockRef;
use tokio::{
    net::UdpSocket,
    select,
    sync::watch,
    task::{Id, JoinSet},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    balance::Lease,
    counters::{Counted, Counters},
    handover::{Item, Parcel},
    route::Route,
};

/// Maximum number of clients of one port. A further client replaces the one that was silent for longest: many ask
/// once, from a port of their own, and are done.
const MOST: usize = 4096;
const LONGEST: usize = 65_535;
/// Time without packets after which a client is forgotten.
const SILENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(100);
/// Time for which an endpoint that gets no more traffic may answer the last datagrams.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// The session of a client.
struct Session {
    endpoint: Arc<UdpSocket>,
    lease: Lease,
    counted: Counted,
    /// Told of each datagram of the client. Without it, the task ends.
    heard: watch::Sender<()>,
    /// The task that sends answers back.
    task: Id,
    /// Its place in the order.
    last: u64,
}

struct Sessions {
    most: usize,
    /// For so long an endpoint that gets no more traffic may answer.
    last_answers: Duration,
    by_client: BTreeMap<SocketAddr, Session>,
    /// Clients by their last packet: the first has been silent for longest.
    order: BTreeMap<u64, SocketAddr>,
    heard: u64,
    /// Sessions with endpoints that get no more traffic, and when they end.
    leaving: VecDeque<(Instant, Session)>,
    /// The tasks of the sessions. Each returns its client.
    tasks: JoinSet<SocketAddr>,
}

/// Takes datagrams until the end of the shift, and then hands over the socket and all sessions. Begins with the sessions
/// of the proxy before.
pub(crate) async fn receive(socket: Arc<UdpSocket>, route: Arc<Route>, sessions: Vec<Parcel>) {
    receive_of(socket, route, sessions, &mut Sessions::new(MOST, LAST_ANSWERS)).await;
}

async fn receive_of(
    socket: Arc<UdpSocket>,
    route: Arc<Route>,
    parcels: Vec<Parcel>,
    sessions: &mut Sessions,
) {
    for parcel in parcels {
        sessions.resume(parcel, &socket, &route);
    }
    let mut buffer = vec![0; LONGEST];
    let mut ended = pin!(route.shift.ended());
    loop {
        // Also while datagrams come without a pause.
        sessions.remove_ended();
        let received = select! {
            biased;
            () = &mut ended => break,
            received = socket.recv_from(&mut buffer) => received,
            () = sessions.changed() => continue,
        };
        let (length, client) = match received {
            Ok(it) => it,
            // The error of an earlier answer.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => {
                tracing::warn!(%error, "could not receive a datagram");
                sleep(PAUSE).await;
                continue;
            }
        };
        let datagram = buffer.get(..length).unwrap_or_default();
        // Once more, if it only learns that its endpoint is not there any more.
        for _ in 0..2 {
            if sessions.by_client.get(&client).is_some_and(|session| !route.admits(session.lease.address())) {
                sessions.leave(client);
            }
            if !sessions.by_client.contains_key(&client) {
                let Some((endpoint, lease)) = open(client, &route).await else {
                    route.counters.refuse();
                    break;
                };
                let counted = route.counters.open(route.target_of(lease.address()));
                sessions.begin(client, endpoint, (lease, counted), &socket);
            }
            if sessions.send(client, datagram) {
                break;
            }
        }
    }
    sessions.hand_over(&socket, &route);
}

impl Sessions {
    fn new(most: usize, last_answers: Duration) -> Self {
        Self {
            most,
            last_answers,
            by_client: BTreeMap::new(),
            order: BTreeMap::new(),
            heard: 0,
            leaving: VecDeque::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Goes on with a session of the proxy before.
    fn resume(&mut self, parcel: Parcel, socket: &Arc<UdpSocket>, route: &Route) {
        let Item::Session { client, endpoint, port: _ } = parcel.item else { return };
        let Some(descriptor) = parcel.descriptors.into_iter().next() else { return };
        let Ok(found) = UdpSocket::from_std(std::net::UdpSocket::from(descriptor)) else { return };
        let counted = route.counters.resume(route.target_of(endpoint));
        self.begin(client, found, (route.balance.lease(endpoint), counted), socket);
        self.touch(client);
    }

    fn hand_over(&self, socket: &UdpSocket, route: &Route) {
        let port = route.forward.port;
        if let Ok(socket) = socket.as_fd().try_clone_to_owned() {
            route.hand_over(Parcel::with(Item::Listener { port, protocol: Protocol::Udp }, socket));
        }
        for (client, session) in &self.by_client {
            let Ok(descriptor) = session.endpoint.as_fd().try_clone_to_owned() else { continue };
            let item = Item::Session { port, client: *client, endpoint: session.lease.address() };
            route.hand_over(Parcel::with(item, descriptor));
        }
    }

    fn begin(
        &mut self,
        client: SocketAddr,
        endpoint: UdpSocket,
        (lease, counted): (Lease, Counted),
        socket: &Arc<UdpSocket>,
    ) {
        let endpoint = Arc::new(endpoint);
        let (heard, listening) = watch::channel(());
        let counters = (counted.counters(), counted.target());
        let carrier = answers(client, Arc::clone(socket), Arc::clone(&endpoint), listening, counters);
        let task = self.tasks.spawn(carrier).id();
        let session = Session { endpoint, lease, counted, heard, task, last: 0 };
        while self.by_client.len() >= self.most
            && let Some((_, silent)) = self.order.pop_first()
        {
            self.by_client.remove(&silent);
        }
        self.by_client.insert(client, session);
    }

    fn end(&mut self, client: SocketAddr) {
        if let Some(session) = self.by_client.remove(&client) {
            self.order.remove(&session.last);
        }
    }

    /// Ends a session whose endpoint gets no more traffic, after the answers to its last datagrams.
    fn leave(&mut self, client: SocketAddr) {
        if let Some(session) = self.by_client.remove(&client) {
            self.order.remove(&session.last);
            if self.leaving.len() >= self.most {
                self.leaving.pop_front();
            }
            self.leaving.push_back((Instant::now() + self.last_answers, session));
        }
    }

    /// Waits until a session is over.
    async fn changed(&mut self) {
        let end = self.leaving.front().map(|(end, _)| *end);
        let ended = select! {
            Some(ended) = self.tasks.join_next_with_id() => ended,
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => return,
            else => return std::future::pending().await,
        };
        self.note_ended(ended.ok());
    }

    /// Removes the sessions that are over.
    fn remove_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.note_ended(ended.ok());
        }
        while self.leaving.front().is_some_and(|(end, _)| *end <= Instant::now()) {
            self.leaving.pop_front();
        }
    }

    fn note_ended(&mut self, ended: Option<(Id, SocketAddr)>) {
        let Some((task, client)) = ended else { return };
        if self.by_client.get(&client).is_some_and(|it| it.task == task) {
            self.end(client);
        } else {
            self.leaving.retain(|(_, session)| session.task != task);
        }
    }

    /// Makes a client the one that was heard last.
    fn touch(&mut self, client: SocketAddr) {
        if let Some(session) = self.by_client.get_mut(&client) {
            self.order.remove(&session.last);
            self.heard = self.heard.wrapping_add(1);
            session.last = self.heard;
            self.order.insert(session.last, client);
        }
    }

    /// `false`: the endpoint of an earlier datagram is gone, and so is the session.
    fn send(&mut self, client: SocketAddr, datagram: &[u8]) -> bool {
        self.touch(client);
        let Some(session) = self.by_client.get_mut(&client) else { return false };
        session.counted.add(datagram.len() as u64, 0);
        session.heard.send_replace(());
        session.lease.note_datagram();
        // Past the runtime, which does not know yet that a new socket can be written to.
        let sent = SockRef::from(&*session.endpoint).send(datagram);
        let is_gone = sent.is_err_and(|error| {
            use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
            matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
        });
        if is_gone {
            self.end(client);
        }
        !is_gone
    }
}

/// A socket towards the endpoint whose turn it is. Nobody can say whether it will be listened to.
async fn open(client: SocketAddr, route: &Route) -> Option<(UdpSocket, Lease)> {
    let address = client.ip().to_canonical();
    let endpoints = route.endpoints().await;
    let Some(lease) = route.balance.choose(address, &endpoints, &[]) else {
        route.log.refused.say(|| tracing::warn!("no endpoint of {} is ready", route.forward));
        return None;
    };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.ok()?;
    socket.connect(lease.address()).await.ok()?;
    route.balance.sent(address, lease.address());
    Some((socket, lease))
}

/// Carries answers back, until both sides are silent or the endpoint says that nobody listens.
async fn answers(
    client: SocketAddr,
    socket: Arc<UdpSocket>,
    endpoint: Arc<UdpSocket>,
    mut heard: watch::Receiver<()>,
    (counters, target): (Arc<Counters>, usize),
) -> SocketAddr {
    let mut until = Instant::now() + SILENCE;
    loop {
        select! {
            ready = endpoint.readable() => {
                let Some(length) = ready.ok().and_then(|()| carry(&endpoint, &socket, client)) else {
                    return client;
                };
                counters.add_bytes(target, 0, length as u64);
            }
            changed = heard.changed() => {
                if changed.is_err() {
                    return client;
                }
            }
            () = sleep_until(until) => return client,
        }
        until = Instant::now() + SILENCE;
    }
}

/// One datagram, of this length. `None`: nobody listens any more. The memory for it is there for this moment only, or silent clients would hold all of it.
fn carry(from: &UdpSocket, to: &UdpSocket, client: SocketAddr) -> Option<usize> {
    let mut buffer = vec![0; LONGEST];
    match from.try_recv(&mut buffer) {
        Ok(length) => {
            let _ = SockRef::from(to).send_to(buffer.get(..length).unwrap_or_default(), &client.into());
            Some(length)
        }
        Err(error) => (error.kind() == io::ErrorKind::WouldBlock).then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn ask(client: &UdpSocket, to: SocketAddr) -> String {
        let mut buffer = [0; 64];
        client.send_to(b"who am I?", to).await.unwrap();
        let (length, _) = timeout(PATIENCE, client.recv_from(&mut buffer)).await.expect("an answer").unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[tokio::test]
    async fn of_too_many_clients_those_go_that_are_silent_for_longest() {
        let local = (Ipv4Addr::LOCALHOST, 0);
        let endpoint = UdpSocket::bind(local).await.unwrap();
        let socket = Arc::new(UdpSocket::bind(local).await.unwrap());
        let (to, port) = (socket.local_addr().unwrap(), endpoint.local_addr().unwrap().port());
        let route = Arc::new(Route::to_endpoint(&format!("1/udp=end:{port}"), Ipv4Addr::LOCALHOST));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            receive_of(socket, route, Vec::new(), &mut Sessions::new(3, LAST_ANSWERS)).await;
        });
        // It says from where it was asked, which is another port for each session.
        tasks.spawn(async move {
            loop {
                let (_, from) = endpoint.recv_from(&mut [0; 64]).await.unwrap();
                endpoint.send_to(from.to_string().as_bytes(), from).await.unwrap();
            }
        });
        let talker = UdpSocket::bind(local).await.unwrap();
        let own = ask(&talker, to).await;
        let mut clients = Vec::new();
        let mut heard = BTreeSet::new();
        for _ in 0..10 {
            let client = UdpSocket::bind(local).await.unwrap();
            heard.insert(ask(&client, to).await);
            clients.push(client);
            assert_eq!(ask(&talker, to).await, own, "who goes on talking stays");
        }
        assert!(!heard.contains(&own), "{heard:?}");
        let first = ask(&clients[0], to).await;
        assert_ne!(first, own);
        assert_eq!(ask(&clients[0], to).await, first);
        assert_eq!(ask(&talker, to).await, own);
    }

    /// A socket of the proxy, an endpoint, and the route to it.
    async fn stage() -> (Arc<UdpSocket>, UdpSocket, Arc<Route>) {
        let local = (Ipv4Addr::LOCALHOST, 0);
        let (socket, endpoint) =
            (UdpSocket::bind(local).await.unwrap(), UdpSocket::bind(local).await.unwrap());
        let forward = format!("1/udp=end:{}", endpoint.local_addr().unwrap().port());
        (Arc::new(socket), endpoint, Arc::new(Route::to_endpoint(&forward, Ipv4Addr::LOCALHOST)))
    }

    fn opened(route: &Route) -> u64 {
        route.counters.values(&route.forward).targets.iter().map(|target| target.opened).sum()
    }

    #[tokio::test]
    async fn flood_of_datagrams_keeps_no_ended_tasks() {
        let (socket, _endpoint, route) = stage().await;
        let to = socket.local_addr().unwrap();
        let mut sessions = Sessions::new(3, LAST_ANSWERS);
        let stop = tokio_util::sync::CancellationToken::new();
        let stopped = stop.clone();
        let flood = std::thread::spawn(move || {
            let clients: Vec<_> =
                (0..64).map(|_| std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
            while !stopped.is_cancelled() {
                for client in &clients {
                    let _ = client.send_to(b"a", to);
                }
            }
        });
        let (carried, ended) = (Arc::clone(&route), stop.clone());
        let received = tokio::spawn(async move {
            select! {
                () = receive_of(socket, carried, Vec::new(), &mut sessions) => {}
                () = ended.cancelled() => {}
            }
            sessions.tasks.len()
        });
        let began = Instant::now();
        while opened(&route) < 4000 {
            assert!(began.elapsed() < PATIENCE, "{}", opened(&route));
            tokio::task::yield_now().await;
        }
        stop.cancel();
        let kept = received.await.unwrap();
        flood.join().unwrap();
        assert!(kept < 2000, "{kept} tasks");
    }

    #[tokio::test]
    async fn sessions_of_a_drained_endpoint_end_after_its_last_answers() {
        let (socket, endpoint, route) = stage().await;
        let to = socket.local_addr().unwrap();
        let address = endpoint.local_addr().unwrap().ip();
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut sessions = Sessions::new(3, Duration::from_millis(300));
        let received = receive_of(socket, Arc::clone(&route), Vec::new(), &mut sessions);
        let check = async {
            let mut buffer = [0; 64];
            client.send_to(b"a", to).await.unwrap();
            let (_, from) = timeout(PATIENCE, endpoint.recv_from(&mut buffer)).await.unwrap().unwrap();
            assert_eq!(route.balance.active(|it| it == address), 1);
            route.gate.drain(&BTreeSet::from([address]));
            client.send_to(b"b", to).await.unwrap();
            // No endpoint is ready for it, and the session has moved to those that leave.
            let began = Instant::now();
            while route.counters.values(&route.forward).refused == 0 {
                assert!(began.elapsed() < PATIENCE, "the datagram is not refused");
                sleep(Duration::from_millis(1)).await;
            }
            endpoint.send_to(b"last", from).await.unwrap();
            timeout(PATIENCE, client.recv_from(&mut buffer)).await.expect("the last answer").unwrap();
            while route.balance.active(|it| it == address) > 0 {
                assert!(began.elapsed() < PATIENCE, "the session stays");
                sleep(Duration::from_millis(1)).await;
            }
        };
        select! {
            () = received => {}
            () = check => {}
        }
    }
}
