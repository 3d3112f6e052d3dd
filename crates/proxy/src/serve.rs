//! Serves the ports of a proxy: begins a shift, and ends it when the next proxy takes over.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use socket2::{Domain, Socket, Type};
use tokio::{
    net::{TcpListener, UdpSocket},
    runtime::Builder,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use driftless_model::{Forwards, Protocol, ReadyEndpoints};

use crate::{
    balance::{Balance, Lease},
    counters::Counters,
    handover::{CLIENTS_AT_ONCE, Handover, Item, Parcel},
    limits::{Limits, Permit},
    messages::{self, Routes},
    names::Names,
    ready::Gate,
    route::{Route, RouteLog},
    shift::Shift,
    tcp,
    threads::{Given, Threads},
    udp,
};

/// Connections that wait in the kernel until they are accepted, for each port and thread. The kernel has a limit of its own
/// (`net.core.somaxconn`), which is 4096 since Linux 5.4.
const BACKLOG: i32 = 4096;
/// Time in which the tasks of a shift end.
const END_OF_SHIFT: Duration = Duration::from_secs(3);

/// Why the proxy ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not listen on {port}/{protocol}")]
    Listen {
        port: u16,
        protocol: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("there is no port to forward")]
    NoPorts,
    #[error("could not listen for the ready endpoints")]
    Reports(#[source] io::Error),
    #[error("could not take over from the proxy before")]
    Handover(#[source] io::Error),
    #[error("could not start a thread")]
    Thread(#[source] io::Error),
}

/// Forwards for ever on one thread: see [`serve_on`].
pub async fn serve(forwards: Forwards, names: Names, gate: Arc<Gate>) -> Result<(), Error> {
    serve_on(1, forwards, names, gate, None).await
}

/// Forwards for ever, to the endpoints that the gate admits. All ports are bound before anything is forwarded, and one
/// that cannot be bound is an error. Beyond the first thread, which is the caller's, each has a runtime of its own.
///
/// With a handover it begins with what the present proxy carries, and goes on until the next proxy takes over. Then it
/// waits, and begins again if the next proxy ends.
pub async fn serve_on(
    threads: usize,
    forwards: Forwards,
    names: Names,
    gate: Arc<Gate>,
    handover: Option<&Handover>,
) -> Result<(), Error> {
    if forwards.ports.is_empty() {
        return Err(Error::NoPorts);
    }
    let routes = Arc::new(Routes::default());
    let limits = Arc::new(Limits::new(&forwards.limits));
    let names = Arc::new(names);
    let counters = forwards.ports.iter().map(Counters::of).collect();
    let proxy = Proxy {
        threads: threads.max(1),
        forwards,
        names,
        gate: Arc::clone(&gate),
        limits,
        counters,
        routes: Arc::clone(&routes),
    };
    tokio::select! {
        biased;
        ended = proxy.serve(handover) => ended,
        failed = messages::listen(&gate, &routes) => failed.map_err(Error::Reports),
    }
}

/// The settings of a proxy, which stay the same in all of its shifts.
struct Proxy {
    threads: usize,
    forwards: Forwards,
    names: Arc<Names>,
    gate: Arc<Gate>,
    limits: Arc<Limits>,
    /// Of each port.
    counters: Vec<Arc<Counters>>,
    routes: Arc<Routes>,
}

/// A shift that has begun. All of its tasks and threads end when this is dropped.
struct Running {
    shift: Arc<Shift>,
    tasks: JoinSet<()>,
    routes: Vec<Arc<Route>>,
    parcels: mpsc::UnboundedReceiver<Parcel>,
    _stop: DropGuard,
}

/// The sockets and connections that one thread begins with.
#[derive(Default)]
struct Work {
    sockets: Vec<(Socket, Arc<Route>)>,
    connections: Vec<Resumed>,
}

/// A connection of the proxy before. Its lease counts it at its endpoint before it is carried on, so that a drain waits for it.
struct Resumed {
    parcel: Parcel,
    route: Arc<Route>,
    lease: Option<Lease>,
    permit: Permit,
}

impl Resumed {
    fn of(parcel: Parcel, route: &Arc<Route>, permit: Permit) -> Self {
        let lease = match &parcel.item {
            Item::Connection { endpoint: Some(endpoint), .. } => Some(route.balance.lease(*endpoint)),
            _ => None,
        };
        Self { parcel, route: Arc::clone(route), lease, permit }
    }
}

/// One of the threads, with what others give to it.
struct Carrier {
    number: usize,
    threads: Arc<Threads>,
    shift: Arc<Shift>,
    receiver: mpsc::UnboundedReceiver<Given>,
}

/// The parcels of the proxy before for one port.
#[derive(Default)]
struct Taken {
    sockets: Vec<Socket>,
    sessions: Vec<Parcel>,
    connections: Vec<Parcel>,
}

impl Proxy {
    async fn serve(&self, handover: Option<&Handover>) -> Result<(), Error> {
        // The proxy before notices by the end of this connection that this one has ended.
        let (mut parcels, mut _before) = match handover {
            Some(handover) => handover.take().await.map_err(Error::Handover)?,
            None => (Vec::new(), None),
        };
        let mut is_own = false;
        loop {
            let running = self.begin(parcels, is_own)?;
            is_own = true;
            let Some(handover) = handover else { return std::future::pending().await };
            let successor = handover.successor().await;
            let busy = handover.begin().await;
            let mut all = self.end(running).await;
            let count = all.len();
            all.extend(handover.parcel().await);
            match successor.give(all).await {
                Ok(successor) => {
                    self.routes.set(&[]);
                    handover.release().await;
                    drop(busy);
                    tracing::info!("the next proxy has taken over {count} sockets and connections");
                    successor.gone().await;
                    tracing::info!("the next proxy has ended; forwarding again");
                    parcels = Vec::new();
                    // Another failure is tried again when the shift has begun.
                    let claimed = handover.claim().await;
                    if claimed.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
                        (parcels, _before) = handover.take().await.map_err(Error::Handover)?;
                        is_own = false;
                    }
                }
                Err((back, error)) => {
                    tracing::warn!(%error, "the next proxy did not take over; forwarding goes on");
                    parcels = back;
                }
            }
        }
    }

    /// Begins a shift with the parcels of the one before, which was this proxy's own or another one's.
    fn begin(&self, parcels: Vec<Parcel>, is_own: bool) -> Result<Running, Error> {
        let (shift, (sender, receiver)) = (Arc::new(Shift::default()), mpsc::unbounded_channel());
        let mut routes = Vec::new();
        for (forward, counters) in self.forwards.ports.iter().zip(&self.counters) {
            routes.push(Arc::new(Route {
                forward: forward.clone(),
                names: Arc::clone(&self.names),
                gate: Arc::clone(&self.gate),
                balance: Balance::new(self.forwards.affinity),
                counters: Arc::clone(counters),
                limits: Arc::clone(&self.limits),
                proxy_protocol: self.forwards.proxy_protocol,
                log: RouteLog::default(),
                shift: Arc::clone(&shift),
                parcels: sender.clone(),
            }));
        }
        let mut taken = self.sort(parcels, &routes, is_own);
        let mut work: Vec<Work> = Vec::new();
        work.resize_with(self.threads, Work::default);
        let mut datagrams = Vec::new();
        for (route, taken) in routes.iter().zip(&mut taken) {
            let (port, protocol) = (route.forward.port, route.forward.protocol);
            let failed = |source| Error::Listen { port, protocol: protocol.as_str(), source };
            match protocol {
                Protocol::Tcp => {
                    let mut sockets = std::mem::take(&mut taken.sockets);
                    if sockets.is_empty() {
                        let new: io::Result<_> = (0..self.threads).map(|_| tcp_socket(port)).collect();
                        sockets = new.map_err(failed)?;
                    }
                    // One socket for each thread: the kernel distributes connections among them.
                    for (index, socket) in sockets.into_iter().enumerate() {
                        if let Some(thread) = work.get_mut(index % self.threads) {
                            thread.sockets.push((socket, Arc::clone(route)));
                        }
                    }
                }
                Protocol::Udp => {
                    let socket = match taken.sockets.pop() {
                        Some(socket) => socket,
                        None => udp_socket(port).map_err(failed)?,
                    };
                    let socket = UdpSocket::from_std(socket.into()).map_err(failed)?;
                    datagrams.push((socket, Arc::clone(route), std::mem::take(&mut taken.sessions)));
                }
                Protocol::Sctp => return Err(failed(io::Error::from(io::ErrorKind::Unsupported))),
            }
        }
        for (route, taken) in routes.iter().zip(taken) {
            for (index, parcel) in taken.connections.into_iter().enumerate() {
                if let Some(thread) = work.get_mut(index % self.threads) {
                    thread.connections.push(Resumed::of(parcel, route, self.limits.permit_accepted()));
                }
            }
            tracing::info!("forwarding {}", route.forward);
        }
        messages::mark_leaving(&routes);
        self.routes.set(&routes);
        let mut tasks = JoinSet::new();
        let stop = CancellationToken::new();
        for (socket, route, sessions) in datagrams {
            tasks.spawn(udp::receive(Arc::new(socket), route, sessions));
        }
        let (threads, receivers) = Threads::new(self.threads);
        let has_connections =
            work.iter().any(|work| !work.sockets.is_empty() || !work.connections.is_empty());
        for (number, (work, receiver)) in work.into_iter().zip(receivers).enumerate() {
            let thread =
                Carrier { number, threads: Arc::clone(&threads), shift: Arc::clone(&shift), receiver };
            match number {
                0 => work.begin(&mut tasks, thread)?,
                _ if has_connections => start_thread(work, thread, stop.clone()).map_err(Error::Thread)?,
                _ => {}
            }
        }
        Ok(Running { shift, tasks, routes, parcels: receiver, _stop: stop.drop_guard() })
    }

    /// Sorts the parcels of the proxy before by the routes that they are for. What belongs to no port any more ends here.
    fn sort(&self, parcels: Vec<Parcel>, routes: &[Arc<Route>], is_own: bool) -> Vec<Taken> {
        let mut all: Vec<Taken> = Vec::new();
        all.resize_with(routes.len(), Taken::default);
        for mut parcel in parcels {
            let (port, protocol) = match &parcel.item {
                Item::Listener { port, protocol }
                | Item::Clients { port, protocol, .. }
                | Item::Counters { port, protocol, .. } => (*port, *protocol),
                Item::Connection { port, .. } => (*port, Protocol::Tcp),
                Item::Session { port, .. } => (*port, Protocol::Udp),
                Item::Report { words, leaving } => {
                    if let Ok(endpoints) = ReadyEndpoints::parse(words.iter().map(String::as_str)) {
                        self.gate.take_over(endpoints, leaving.iter().copied(), &self.forwards.ports);
                    }
                    continue;
                }
                Item::Handover | Item::End | Item::Unknown => continue,
            };
            let is_of = |route: &Arc<Route>| (route.forward.port, route.forward.protocol) == (port, protocol);
            let Some(index) = routes.iter().position(is_of) else { continue };
            let (Some(route), Some(taken)) = (routes.get(index), all.get_mut(index)) else { continue };
            match parcel.item {
                Item::Listener { .. } => {
                    taken.sockets.extend(parcel.descriptors.pop().map(Socket::from));
                }
                Item::Clients { clients, .. } => {
                    for (client, endpoint, ago) in clients {
                        route.balance.restore(client, endpoint, Duration::from_millis(ago));
                    }
                }
                // Own counters that the next proxy did not take are counted already.
                Item::Counters { values, .. } if !is_own => route.counters.go_on(&route.forward, &values),
                Item::Counters { .. } => {}
                Item::Session { endpoint, .. } => {
                    // Its last datagram may have been sent just now.
                    route.balance.lease(endpoint).note_datagram();
                    taken.sessions.push(parcel);
                }
                _ => taken.connections.push(parcel),
            }
        }
        all
    }

    /// Ends a shift. Returns everything that it carried.
    async fn end(&self, running: Running) -> Vec<Parcel> {
        let Running { shift, tasks, routes, mut parcels, _stop } = running;
        shift.end();
        let mut all = Vec::new();
        if let Some((endpoints, leaving)) = self.gate.last() {
            all.push(Parcel::of(Item::Report { words: endpoints.words(), leaving }));
        }
        let mut counters = Vec::new();
        for route in routes {
            let (port, protocol) = (route.forward.port, route.forward.protocol);
            for clients in route.balance.clients().chunks(CLIENTS_AT_ONCE) {
                let ago = |it: &Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
                let clients =
                    clients.iter().map(|(client, endpoint, at)| (*client, *endpoint, ago(at))).collect();
                all.push(Parcel::of(Item::Clients { port, protocol, clients }));
            }
            counters.push((port, protocol, route.forward.clone(), Arc::clone(&route.counters)));
        }
        let collect = async {
            while let Some(parcel) = parcels.recv().await {
                all.push(parcel);
            }
        };
        if timeout(END_OF_SHIFT, collect).await.is_err() {
            tracing::warn!("some connections could not be handed over in time; they end");
        }
        drop(tasks);
        // The connections that were handed over have counted all of their bytes now.
        for (port, protocol, forward, counters) in counters {
            let values = counters.values(&forward);
            all.push(Parcel::of(Item::Counters { port, protocol, values }));
        }
        all
    }
}

impl Work {
    /// Spawns the tasks in the present runtime.
    fn begin(self, tasks: &mut JoinSet<()>, thread: Carrier) -> Result<(), Error> {
        let Carrier { number, threads, shift, receiver } = thread;
        tasks.spawn(tcp::receive(receiver, shift));
        for (socket, route) in self.sockets {
            tasks.spawn(accept(socket, route, (Arc::clone(&threads), number))?);
        }
        for Resumed { parcel, route, lease, permit } in self.connections {
            tokio::spawn(tcp::resume(parcel, route, lease, (permit, threads.seat(number))));
        }
        Ok(())
    }
}

/// Carries connections on a thread of its own until the token is cancelled.
fn start_thread(work: Work, thread: Carrier, stop: CancellationToken) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let run = move || {
        runtime.block_on(async move {
            let mut tasks = JoinSet::new();
            if let Err(error) = work.begin(&mut tasks, thread) {
                tracing::error!(%error, "could not accept connections");
            }
            stop.cancelled().await;
        });
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("connections".to_owned()).spawn(run).map(drop)
}

/// The future that accepts the connections of a socket in the present runtime.
fn accept(
    socket: Socket,
    route: Arc<Route>,
    thread: (Arc<Threads>, usize),
) -> Result<impl Future<Output = ()>, Error> {
    let failed =
        |source| Error::Listen { port: route.forward.port, protocol: Protocol::Tcp.as_str(), source };
    let listener = TcpListener::from_std(socket.into()).map_err(failed)?;
    Ok(tcp::accept(listener, route, thread))
}

/// A listening socket on all addresses, of both families if the kernel has both.
fn tcp_socket(port: u16) -> io::Result<Socket> {
    let socket = bound(port, Type::STREAM)?;
    tcp::set_options(&socket);
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn udp_socket(port: u16) -> io::Result<Socket> {
    bound(port, Type::DGRAM)
}

fn bound(port: u16, kind: Type) -> io::Result<Socket> {
    match bound_to((Ipv6Addr::UNSPECIFIED, port).into(), kind) {
        Err(error) if has_no_address(&error) => bound_to((Ipv4Addr::UNSPECIFIED, port).into(), kind),
        bound => bound,
    }
}

fn bound_to(address: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
        // The other threads have sockets of the same port.
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Whether binding failed because the kernel has no IPv6.
fn has_no_address(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}
