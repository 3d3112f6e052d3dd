//! The proxy of a Service: it listens on the Service's ports and forwards connections and datagrams to the pods behind
//! them (layer 4). It runs as `driftless proxy` in a container of its own, for Services that name resolution alone cannot
//! serve.
//!
//! Endpoints are the addresses that a name resolves to, looked up again at most every second, so pods may come and go
//! without a message to the proxy. If it forwards to ready pods only, the agent reports which ones are ready ([`Gate`]).
//! It stores nothing, and its memory is bounded: further connections wait to be accepted. The agent decides which Service
//! needs a proxy, and with which arguments ([`driftless_model::Forwards`]).

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use tokio::{
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};

use driftless_model::{Forwards, Protocol};

mod balance;
mod names;
mod ready;
mod route;
mod tcp;
mod udp;

pub use balance::Balance;
pub use names::{ENGINE, Names};
pub use ready::{Gate, REPORT_SOCKET, ReportError, send_report};

use route::Route;

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
}

/// A socket that is bound.
enum Listening {
    Tcp(TcpListener, Arc<Route>),
    Udp(Arc<UdpSocket>, Arc<Route>),
}

/// Forwards for ever, to the endpoints that the gate admits. All ports are bound before anything is forwarded, and one
/// that cannot be bound is an error.
pub async fn serve(forwards: Forwards, names: Names, gate: Arc<Gate>) -> Result<(), Error> {
    let Forwards { ports, affinity, ready_only: _ } = forwards;
    let names = Arc::new(names);
    let mut all = Vec::new();
    for forward in ports {
        let (port, protocol) = (forward.port, forward.protocol);
        let route = Arc::new(Route {
            forward,
            names: Arc::clone(&names),
            gate: Arc::clone(&gate),
            balance: Balance::new(affinity),
        });
        let failed = |source| Error::Listen { port, protocol: protocol.as_str(), source };
        all.push(match protocol {
            Protocol::Tcp => Listening::Tcp(tcp_socket(port).await.map_err(failed)?, route),
            Protocol::Udp => Listening::Udp(Arc::new(udp_socket(port).await.map_err(failed)?), route),
            Protocol::Sctp => return Err(failed(io::Error::from(io::ErrorKind::Unsupported))),
        });
    }
    if all.is_empty() {
        return Err(Error::NoPorts);
    }
    // Dropped with this future, and all of its tasks with it.
    let mut tasks = JoinSet::new();
    for listening in all {
        match listening {
            Listening::Tcp(listener, route) => {
                tracing::info!("forwarding {}", route.forward);
                tasks.spawn(tcp::accept(listener, route))
            }
            Listening::Udp(socket, route) => {
                tracing::info!("forwarding {}", route.forward);
                tasks.spawn(udp::receive(socket, route))
            }
        };
    }
    tokio::select! {
        failed = gate.listen() => failed.map_err(Error::Reports),
        () = async { while tasks.join_next().await.is_some() {} } => Ok(()),
    }
}

/// Binds a port on all addresses, of both families if the kernel has both.
async fn tcp_socket(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if has_no_address(&error) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
        bound => bound,
    }
}

async fn udp_socket(port: u16) -> io::Result<UdpSocket> {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if has_no_address(&error) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).await,
        bound => bound,
    }
}

/// Whether binding failed because the kernel has no IPv6.
fn has_no_address(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}
