//! Datagrams: each client has a socket of its own towards its endpoint, so that what comes back finds it again, until
//! both have been silent for a while. What cannot be sent at once is lost, as datagrams are.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    net::UdpSocket,
    select,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::Route;

/// So many clients of one port at once; what others send is lost until some have gone.
const MOST: usize = 4096;
const LONGEST: usize = 65_535;
/// Who is silent for so long is forgotten.
const SILENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(100);

/// What a client has on this side.
struct Session {
    endpoint: Arc<UdpSocket>,
    /// Told of each datagram of the client.
    heard: watch::Sender<()>,
}

/// Takes datagrams for ever.
pub(super) async fn receive(socket: Arc<UdpSocket>, route: Arc<Route>) {
    let mut sessions: BTreeMap<SocketAddr, Session> = BTreeMap::new();
    let mut tasks: JoinSet<SocketAddr> = JoinSet::new();
    let mut buffer = vec![0; LONGEST];
    loop {
        let received = select! {
            received = socket.recv_from(&mut buffer) => received,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                if let Ok(client) = ended {
                    sessions.remove(&client);
                }
                continue;
            }
        };
        let (length, client) = match received {
            Ok(it) => it,
            // What an earlier answer met on its way.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => {
                tracing::warn!(%error, "could not receive a datagram");
                sleep(PAUSE).await;
                continue;
            }
        };
        if !sessions.contains_key(&client) && sessions.len() < MOST {
            let Some(endpoint) = open(client, &route).await else { continue };
            let endpoint = Arc::new(endpoint);
            let (heard, listening) = watch::channel(());
            tasks.spawn(answers(client, Arc::clone(&socket), Arc::clone(&endpoint), listening));
            sessions.insert(client, Session { endpoint, heard });
        }
        if let Some(session) = sessions.get(&client) {
            // Past the runtime, which does not know yet that a new socket can be written to.
            let _ = SockRef::from(&*session.endpoint).send(buffer.get(..length).unwrap_or_default());
            session.heard.send_replace(());
        }
    }
}

/// A socket towards the endpoint whose turn it is. Nobody can say whether it will be listened to.
async fn open(client: SocketAddr, route: &Route) -> Option<UdpSocket> {
    let address = client.ip().to_canonical();
    let endpoint = route.endpoints(address).await.into_iter().next()?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.ok()?;
    socket.connect(endpoint).await.ok()?;
    route.balance.sent(address, endpoint);
    Some(socket)
}

/// Carries answers back, until both sides are silent or the endpoint says that nobody listens.
async fn answers(
    client: SocketAddr,
    socket: Arc<UdpSocket>,
    endpoint: Arc<UdpSocket>,
    mut heard: watch::Receiver<()>,
) -> SocketAddr {
    let mut until = Instant::now() + SILENCE;
    loop {
        select! {
            ready = endpoint.readable() => {
                if ready.is_err() || !carry(&endpoint, &socket, client) {
                    return client;
                }
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

/// One datagram. The memory for it is there for this moment only, or silent clients would hold all of it.
fn carry(from: &UdpSocket, to: &UdpSocket, client: SocketAddr) -> bool {
    let mut buffer = vec![0; LONGEST];
    match from.try_recv(&mut buffer) {
        Ok(length) => {
            let _ = SockRef::from(to).send_to(buffer.get(..length).unwrap_or_default(), &client.into());
            true
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
