//! Hands everything that a proxy carries to the next proxy in the same network namespace: listening sockets, open
//! connections, sessions of UDP clients. The proxy that started last takes over.
//!
//! ```text
//! next proxy                    present proxy
//!   connect ──────────────────▶ stops its tasks
//!           ◀────────────────── parcels, each with its descriptors (SCM_RIGHTS), then `end`
//!   "got"   ──────────────────▶
//!           ◀────────────────── "yours"
//!   serves                      waits, and serves again with sockets of its own if the next proxy ends
//! ```
//!
//! The present proxy keeps its own descriptors until it has sent `yours`, so nothing is lost if the next proxy fails
//! before. The next proxy touches nothing before it has read `yours`, so no two proxies forward one connection.
//!
//! The socket that the next proxies connect to is handed over as well, so that its name belongs to some proxy at any time. A proxy
//! that starts alone takes the name before it serves.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr as InternetAddress},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::Arc,
    time::Duration,
};

use driftless_model::{PortCounters, Protocol};
use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
    process::geteuid,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Mutex, MutexGuard},
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::exchange::Exchange;

/// The abstract name of the socket at which the present proxy of a network namespace can be asked to hand over.
pub const HANDOVER_SOCKET: &str = "driftless-proxy-handover";
/// The deadline of one step of the protocol.
const STEP: Duration = Duration::from_secs(5);
/// Time in which a proxy tries to take over from one that does not hand over.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// The time for which an older proxy may have given its name up, because it fails to hand over.
const RETURN: Duration = Duration::from_secs(2);
/// The longest description of a parcel, and the most bytes of a connection in it.
const MAX_ITEM: usize = 1024 * 1024;
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The most parcels of one handover. A proxy has at most some ten thousand connections.
const MOST_PARCELS: usize = 1 << 20;
/// Most descriptors of one parcel.
const MAX_DESCRIPTORS: usize = 2;
const GOT: [u8; 5] = *b"got__";
const YOURS: [u8; 5] = *b"yours";
/// Clients with a remembered endpoint in one parcel.
pub(crate) const CLIENTS_AT_ONCE: usize = 4096;

/// A part of what a proxy carries. Fields may be added with a default: older and newer programs read each other's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Item {
    /// A listening socket, or the socket of a UDP port.
    Listener { port: u16, protocol: Protocol },
    /// A client's connection, and the one to its endpoint if it is established. The parcel's bytes were read and are not
    /// yet written: first those of the client.
    Connection {
        port: u16,
        client: InternetAddress,
        endpoint: Option<InternetAddress>,
        /// An older program says nothing of it, so its connections stay with their endpoints.
        #[serde(default)]
        exchange: Exchange,
        /// For older programs, which need them: they move no connection with these values.
        speaks_http: Option<bool>,
        has_answered: bool,
        from_client: usize,
    },
    /// The socket by which a UDP client's datagrams go to its endpoint.
    Session { port: u16, client: InternetAddress, endpoint: InternetAddress },
    /// Clients that come back to the same endpoint, and the milliseconds since they were there.
    Clients { port: u16, protocol: Protocol, clients: Vec<(IpAddr, InternetAddress, u64)> },
    /// The counters of a port.
    Counters { port: u16, protocol: Protocol, values: PortCounters },
    /// The last report of the agent, and the endpoints that are drained.
    Report { words: Vec<String>, leaving: Vec<IpAddr> },
    /// The socket that the next proxies connect to. An older program makes one of its own.
    Handover,
    /// There are no more.
    End,
    /// Of a newer program.
    #[serde(other)]
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) item: Item,
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) bytes: Vec<u8>,
}

impl Parcel {
    pub(crate) fn of(item: Item) -> Self {
        Self { item, descriptors: Vec::new(), bytes: Vec::new() }
    }

    pub(crate) fn with(item: Item, descriptor: impl Into<OwnedFd>) -> Self {
        Self { item, descriptors: vec![descriptor.into()], bytes: Vec::new() }
    }
}

/// The place where the proxies of one network namespace hand over to each other.
#[derive(Debug)]
pub struct Handover {
    socket: String,
    /// Held while parcels are on their way.
    busy: Mutex<()>,
    /// The socket that the next proxies connect to, until one of them has it.
    listener: Mutex<Option<UnixListener>>,
}

/// A connection from the next proxy.
pub(crate) struct Successor(UnixStream);

impl Handover {
    /// Proxies that name the same abstract socket, in one network namespace, hand over to each other.
    pub fn at(socket: &str) -> Arc<Self> {
        Arc::new(Self { socket: socket.to_owned(), busy: Mutex::default(), listener: Mutex::default() })
    }

    /// Waits until no parcels are on their way.
    pub async fn idle(&self) {
        drop(self.busy.lock().await);
    }

    pub(crate) async fn begin(&self) -> MutexGuard<'_, ()> {
        self.busy.lock().await
    }

    fn address(&self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(&self.socket)
    }

    /// Everything that the present proxy carries, and the connection to it. Nothing if there is none. The present proxy serves
    /// again when the connection ends, so the next proxy keeps it as long as it runs.
    pub(crate) async fn take(&self) -> io::Result<(Vec<Parcel>, Option<UnixStream>)> {
        let end = Instant::now() + PATIENCE;
        // It is gone if nobody has had the name for a while.
        let mut is_gone_at = Instant::now();
        loop {
            let address = self.address()?;
            let error = match UnixStream::connect_addr(&address) {
                Ok(stream) => {
                    let taken = spawn_blocking(move || receive_all(stream)).await;
                    is_gone_at = Instant::now() + RETURN;
                    match taken.map_err(io::Error::other)? {
                        Ok((mut parcels, before)) => {
                            self.keep_listener(&mut parcels).await;
                            return Ok((parcels, Some(before)));
                        }
                        Err(error) => error,
                    }
                }
                // An older program gives its name up for the time in which it fails to hand over.
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() >= is_gone_at =>
                {
                    match self.claim().await {
                        Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
                        Ok(()) | Err(_) => return Ok((Vec::new(), None)),
                    }
                }
                Err(error) => error,
            };
            if Instant::now() >= end {
                return Err(error);
            }
            tracing::warn!(%error, "could not take over from the present proxy; trying again");
            sleep(PAUSE).await;
        }
    }

    /// Waits for the next proxy. No failure ends the present one.
    pub(crate) async fn successor(&self) -> Successor {
        let mut has_failed = false;
        let listener = loop {
            match self.listener().await {
                Ok(listener) => break listener,
                // The proxy that handed over is about to close it.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) if !has_failed => {
                    has_failed = true;
                    tracing::warn!(%error, "could not wait for the next proxy; trying again");
                }
                Err(_) => {}
            }
            sleep(PAUSE).await;
        };
        loop {
            match next(&listener).await {
                Ok(successor) => return successor,
                Err(error) => tracing::warn!(%error, "could not hand over"),
            }
            sleep(PAUSE).await;
        }
    }

    /// The socket that the next proxies connect to. It stays bound when the value is dropped.
    async fn listener(&self) -> io::Result<tokio::net::UnixListener> {
        let mut bound = self.listener.lock().await;
        let listener = match &*bound {
            Some(listener) => listener.try_clone()?,
            None => bound.insert(UnixListener::bind_addr(&self.address()?)?).try_clone()?,
        };
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener)
    }

    /// Takes the name before anything is served, so that other proxies which start meanwhile wait for this one.
    pub(crate) async fn claim(&self) -> io::Result<()> {
        self.listener().await.map(drop)
    }

    /// The socket that the next proxies connect to, for the next proxy.
    pub(crate) async fn parcel(&self) -> Option<Parcel> {
        let listener = self.listener.lock().await.as_ref()?.try_clone().ok()?;
        Some(Parcel::with(Item::Handover, listener))
    }

    /// Keeps the socket that the proxy before listened at.
    async fn keep_listener(&self, parcels: &mut Vec<Parcel>) {
        let all = parcels.extract_if(.., |parcel| parcel.item == Item::Handover);
        let descriptor = all.flat_map(|parcel| parcel.descriptors).next();
        *self.listener.lock().await = descriptor.map(UnixListener::from);
    }

    /// Gives the socket up, which the next proxy has now.
    pub(crate) async fn release(&self) {
        self.listener.lock().await.take();
    }
}

async fn next(listener: &tokio::net::UnixListener) -> io::Result<Successor> {
    let (stream, _) = listener.accept().await?;
    let user = stream.peer_cred()?.uid();
    if user != geteuid().as_raw() {
        return Err(io::Error::other(format!("a process of the user {user} asked")));
    }
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(Successor(stream))
}

impl Successor {
    /// Hands everything over. Returns it if the next proxy did not take it.
    pub(crate) async fn give(self, parcels: Vec<Parcel>) -> Result<Self, (Vec<Parcel>, io::Error)> {
        let give = move || match send_all(&self.0, &parcels) {
            Ok(()) => Ok(self),
            Err(error) => Err((parcels, error)),
        };
        match spawn_blocking(give).await {
            Ok(given) => given,
            Err(error) => Err((Vec::new(), io::Error::other(error))),
        }
    }

    /// Waits until the process of the next proxy has ended.
    pub(crate) async fn gone(self) {
        let Ok(stream) = self.0.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(self.0))
        else {
            return;
        };
        let mut buffer = [0; 64];
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut buffer) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => {}
            }
        }
    }
}

fn send_all(stream: &UnixStream, parcels: &[Parcel]) -> io::Result<()> {
    stream.set_write_timeout(Some(STEP))?;
    stream.set_read_timeout(Some(STEP))?;
    for parcel in parcels {
        send(stream, parcel)?;
    }
    send(stream, &Parcel::of(Item::End))?;
    expect(stream, GOT)?;
    { stream }.write_all(&YOURS)
}

fn receive_all(stream: UnixStream) -> io::Result<(Vec<Parcel>, UnixStream)> {
    stream.set_write_timeout(Some(STEP))?;
    stream.set_read_timeout(Some(STEP))?;
    let mut parcels = Vec::new();
    loop {
        let parcel = receive(&stream)?;
        if parcel.item == Item::End {
            break;
        }
        if parcels.len() >= MOST_PARCELS {
            return Err(invalid("there are too many parcels"));
        }
        parcels.push(parcel);
    }
    { &stream }.write_all(&GOT)?;
    expect(&stream, YOURS)?;
    Ok((parcels, stream))
}

fn expect(mut stream: &UnixStream, word: [u8; 5]) -> io::Result<()> {
    let mut found = [0; 5];
    stream.read_exact(&mut found)?;
    if found == word { Ok(()) } else { Err(invalid("another word was expected")) }
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Two lengths with the descriptors, the item, and the bytes.
fn send(mut stream: &UnixStream, parcel: &Parcel) -> io::Result<()> {
    let item = serde_json::to_vec(&parcel.item)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| invalid("a parcel is too long"));
    let mut head = [0; 8];
    head[..4].copy_from_slice(&length(&item)?.to_be_bytes());
    head[4..].copy_from_slice(&length(&parcel.bytes)?.to_be_bytes());
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = parcel.descriptors.iter().map(|it| it.as_fd()).collect();
    if !descriptors.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(invalid("a parcel has too many descriptors"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(&head)], &mut rights, SendFlags::empty())?;
    if sent != head.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    stream.write_all(&item)?;
    stream.write_all(&parcel.bytes)
}

fn receive(mut stream: &UnixStream) -> io::Result<Parcel> {
    let mut head = [0; 8];
    let mut descriptors = Vec::new();
    let length = {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut head)];
        let received = recvmsg(stream, &mut slices, &mut rights, RecvFlags::CMSG_CLOEXEC)?;
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = message {
                descriptors.extend(all);
            }
        }
        received.bytes
    };
    match length {
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        length => stream.read_exact(&mut head[length..])?,
    }
    let lengths = u64::from_be_bytes(head);
    let mut read = |length: u64, most: usize| {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > most {
            return Err(invalid("a parcel is too long"));
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let item = read(lengths >> 32, MAX_ITEM)?;
    let bytes = read(lengths & u64::from(u32::MAX), MAX_BYTES)?;
    Ok(Parcel { item: serde_json::from_slice(&item)?, descriptors, bytes })
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    fn place(test: &str) -> Arc<Handover> {
        Handover::at(&format!("driftless-test-{test}-{}", std::process::id()))
    }

    fn connected(place: &Handover) -> UnixStream {
        UnixStream::connect_addr(&place.address().unwrap()).expect("some proxy has the name")
    }

    async fn successor(place: &Handover) -> Successor {
        timeout(PATIENCE, place.successor()).await.expect("the next proxy has connected")
    }

    fn parcel(port: u16) -> Vec<Parcel> {
        vec![Parcel::of(Item::Clients { port, protocol: Protocol::Tcp, clients: Vec::new() })]
    }

    fn items(parcels: &[Parcel]) -> Vec<&Item> {
        parcels.iter().map(|parcel| &parcel.item).collect()
    }

    #[tokio::test]
    async fn without_a_proxy_nothing_is_taken_over() {
        let alone = place("alone");
        let (parcels, before) = alone.take().await.unwrap();
        assert!(parcels.is_empty() && before.is_none());
        // Another one that starts waits for it.
        drop(connected(&alone));
    }

    #[tokio::test]
    async fn proxy_that_was_reached_before_is_not_taken_for_gone() {
        let (next, present) = (place("again"), place("again"));
        let older = async {
            // It accepts, gives the name up, fails, and waits for the next proxy once more.
            for is_last in [false, true] {
                let listener = UnixListener::bind_addr(&present.address().unwrap()).unwrap();
                listener.set_nonblocking(true).unwrap();
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                let successor = super::next(&listener).await.unwrap();
                drop(listener);
                if is_last {
                    return successor.give(parcel(1)).await.map_err(|(_, error)| error);
                }
                drop(successor);
                sleep(PAUSE * 3).await;
            }
            unreachable!("the last one returns")
        };
        let take = async {
            sleep(PAUSE / 2).await;
            next.take().await
        };
        let (given, taken) = tokio::join!(older, take);
        let (parcels, before) = taken.unwrap();
        assert_eq!((items(&parcels), before.is_some()), (items(&parcel(1)), true));
        drop(given.unwrap());
    }

    #[tokio::test]
    async fn name_of_the_socket_always_belongs_to_a_proxy() {
        let (present, next) = (place("name"), place("name"));
        drop(present.listener().await.unwrap());
        // One that fails, while another one comes.
        drop(connected(&present));
        let failing = successor(&present).await;
        let waiting = connected(&present);
        let mut parcels = parcel(1);
        parcels.extend(present.parcel().await);
        let Err((_, _)) = failing.give(parcels).await else { panic!("nobody takes it") };
        drop((successor(&present).await, waiting));

        let give = async {
            let taker = successor(&present).await;
            let mut parcels = parcel(2);
            parcels.extend(present.parcel().await);
            let taker = taker.give(parcels).await.map_err(|(_, error)| error).unwrap();
            present.release().await;
            taker
        };
        let (_successor, taken) = tokio::join!(give, next.take());
        let (parcels, _before) = taken.unwrap();
        assert_eq!(items(&parcels), items(&parcel(2)), "the socket is no part of the rest");
        // The next proxy does not wait for others yet, and is reached all the same.
        let reached = connected(&present);
        let give = successor(&next).await.give(parcel(3));
        let take = spawn_blocking(move || receive_all(reached));
        let (given, taken) = tokio::join!(give, take);
        assert!(given.is_ok());
        assert_eq!(items(&taken.unwrap().unwrap().0), items(&parcel(3)));
    }

    #[test]
    fn older_program_ignores_the_socket() {
        let item = serde_json::to_string(&Item::Handover).unwrap();
        assert_eq!(item, r#"{"kind":"handover"}"#);
        assert_eq!(serde_json::from_str::<Item>(r#"{"kind":"newer"}"#).unwrap(), Item::Unknown);
    }
}
