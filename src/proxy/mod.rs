//! The proxy of a Service, or of a Compose service's published ports: it listens on ports and forwards connections and
//! datagrams to the ready instances behind them (layer 4). It runs as `driftless proxy` in a container of its own, so it
//! goes on while the agent is stopped, upgraded or killed.
//!
//! Endpoints are the addresses that the agent reports as ready ([`Gate`]), as long as the engine's name server knows
//! them. Without reports they are the addresses that a name resolves to. An endpoint that will be stopped gets no new
//! traffic first, and keeps its connections until they end or its grace period passes. The proxy stores nothing, and its
//! memory is bounded: further connections are refused. The agent decides which Service needs a proxy, and with
//! which arguments ([`driftless_model::Forwards`]).
//!
//! | file | content |
//! |---|---|
//! | `balance` | the endpoints of a port: which one a client gets, counters |
//! | `flow` | one direction of a connection |
//! | `header` | the header of the PROXY protocol |
//! | `limits` | connections at the same time, timeouts, lines in the log |
//! | `names` | a client of the engine's name server |
//! | `messages` | messages of the agent: reports, draining |
//! | `ready` | the endpoints that may get traffic |
//! | `request` | the beginning of an HTTP request |
//! | `route` | one port and its endpoints |
//! | `tcp`, `udp` | connections and datagrams |

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use socket2::{Domain, Socket, Type};
use tokio::{
    net::{TcpListener, UdpSocket},
    runtime::Builder,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use driftless_model::{Forwards, Protocol};

mod balance;
mod flow;
mod header;
mod limits;
mod messages;
mod names;
mod ready;
mod request;
mod route;
mod tcp;
mod udp;

pub use balance::Balance;
pub use messages::{Drained, REPORT_SOCKET, ReportError, send_drain, send_report};
pub use names::{ENGINE, Names};
pub use ready::Gate;

use limits::Limits;
use route::{Route, RouteLog};

/// Connections that wait in the kernel until they are accepted, for each port and thread. The kernel has a limit of its own
/// (`net.core.somaxconn`), which is 4096 since Linux 5.4.
const BACKLOG: i32 = 4096;

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
    #[error("could not start a thread")]
    Thread(#[source] io::Error),
}

/// A socket that is bound.
enum Listening {
    /// One socket for each thread. The kernel distributes connections among them.
    Tcp(Vec<Socket>, Arc<Route>),
    Udp(Socket, Arc<Route>),
}

/// Forwards for ever on one thread: see [`serve_on`].
pub async fn serve(forwards: Forwards, names: Names, gate: Arc<Gate>) -> Result<(), Error> {
    serve_on(1, forwards, names, gate).await
}

/// Forwards for ever, to the endpoints that the gate admits. All ports are bound before anything is forwarded, and one
/// that cannot be bound is an error. Beyond the first thread, which is the caller's, each has a runtime of its own and
/// carries the connections that it has accepted.
pub async fn serve_on(
    threads: usize,
    forwards: Forwards,
    names: Names,
    gate: Arc<Gate>,
) -> Result<(), Error> {
    let Forwards { ports, affinity, ready_only: _, limits, proxy_protocol } = forwards;
    let (names, limits) = (Arc::new(names), Arc::new(Limits::new(&limits)));
    let mut all = Vec::new();
    for forward in ports {
        let (port, protocol) = (forward.port, forward.protocol);
        let route = Arc::new(Route {
            forward,
            names: Arc::clone(&names),
            gate: Arc::clone(&gate),
            balance: Balance::new(affinity),
            limits: Arc::clone(&limits),
            proxy_protocol,
            log: RouteLog::default(),
        });
        let failed = |source| Error::Listen { port, protocol: protocol.as_str(), source };
        all.push(match protocol {
            Protocol::Tcp => {
                let sockets: io::Result<Vec<Socket>> = (0..threads).map(|_| tcp_socket(port)).collect();
                Listening::Tcp(sockets.map_err(failed)?, route)
            }
            Protocol::Udp => Listening::Udp(udp_socket(port).map_err(failed)?, route),
            Protocol::Sctp => return Err(failed(io::Error::from(io::ErrorKind::Unsupported))),
        });
    }
    if all.is_empty() {
        return Err(Error::NoPorts);
    }
    forward(threads, all, &gate).await
}

async fn forward(threads: usize, all: Vec<Listening>, gate: &Arc<Gate>) -> Result<(), Error> {
    // Dropped with this future, and all of its tasks and threads with it.
    let mut tasks = JoinSet::new();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let mut routes = Vec::new();
    let mut by_thread: Vec<Vec<(Socket, Arc<Route>)>> = Vec::new();
    by_thread.resize_with(threads.max(1), Vec::new);
    for listening in all {
        match listening {
            Listening::Tcp(sockets, route) => {
                tracing::info!("forwarding {}", route.forward);
                for (socket, thread) in sockets.into_iter().zip(&mut by_thread) {
                    thread.push((socket, Arc::clone(&route)));
                }
                routes.push(route);
            }
            Listening::Udp(socket, route) => {
                tracing::info!("forwarding {}", route.forward);
                let socket = UdpSocket::from_std(socket.into()).map_err(Error::Reports)?;
                tasks.spawn(udp::receive(Arc::new(socket), Arc::clone(&route)));
                routes.push(route);
            }
        }
    }
    let mut threads = by_thread.into_iter();
    for (socket, route) in threads.next().unwrap_or_default() {
        tasks.spawn(accept(socket, route)?);
    }
    for sockets in threads.filter(|sockets| !sockets.is_empty()) {
        start_thread(sockets, stop.clone()).map_err(Error::Thread)?;
    }
    tokio::select! {
        failed = messages::listen(gate, &routes) => failed.map_err(Error::Reports),
        () = async { while tasks.join_next().await.is_some() {} } => Ok(()),
    }
}

/// Accepts connections on a thread of its own until the token is cancelled.
fn start_thread(sockets: Vec<(Socket, Arc<Route>)>, stop: CancellationToken) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let run = move || {
        runtime.block_on(async move {
            let mut tasks = JoinSet::new();
            for (socket, route) in sockets {
                match accept(socket, route) {
                    Ok(accepting) => drop(tasks.spawn(accepting)),
                    Err(error) => tracing::error!(%error, "could not accept connections"),
                }
            }
            stop.cancelled().await;
        });
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("connections".to_owned()).spawn(run).map(drop)
}

/// The future that accepts the connections of a socket in the present runtime.
fn accept(socket: Socket, route: Arc<Route>) -> Result<impl Future<Output = ()>, Error> {
    let failed =
        |source| Error::Listen { port: route.forward.port, protocol: Protocol::Tcp.as_str(), source };
    let listener = TcpListener::from_std(socket.into()).map_err(failed)?;
    Ok(tcp::accept(listener, route))
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
