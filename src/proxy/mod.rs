//! The proxy of a Service: it listens on the Service's ports and forwards what comes to the pods behind them, on
//! layer 4. It runs as `driftless proxy` in a container of its own, where name resolution alone cannot do it.
//!
//! Endpoints are what a name is answered with, asked anew at most every second; so nobody has to tell it of a pod that
//! comes or goes. It keeps nothing, and its memory is bounded: connections beyond a number wait to be accepted.
//! Deliberately not here: which Service needs one, and what it is told ([`driftless_model::Forwards`]).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use tokio::{
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};

use driftless_model::{Forward, Forwards, Protocol};

mod balance;
mod names;
mod tcp;
mod udp;

pub use balance::Balance;
pub use names::{ENGINE, Names};

/// Why the proxy cannot do its work.
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
}

/// One port and its endpoints.
#[derive(Debug)]
struct Route {
    forward: Forward,
    names: Arc<Names>,
    balance: Balance,
}

impl Route {
    /// The endpoints for a client, in the order in which they are to be tried.
    async fn endpoints(&self, client: IpAddr) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        for (name, port) in &self.forward.targets {
            let addresses = self.names.addresses(name).await;
            all.extend(addresses.into_iter().map(|it| SocketAddr::new(IpAddr::V4(it), *port)));
        }
        all.sort_unstable();
        all.dedup();
        self.balance.order(client, &all)
    }
}

/// A socket that is bound.
enum Listening {
    Tcp(TcpListener, Arc<Route>),
    Udp(Arc<UdpSocket>, Arc<Route>),
}

/// Forwards for ever. All ports are bound before anything is forwarded, and one that cannot be bound is an error.
pub async fn serve(forwards: Forwards, names: Names) -> Result<(), Error> {
    let Forwards { ports, affinity } = forwards;
    let names = Arc::new(names);
    let mut all = Vec::new();
    for forward in ports {
        let (port, protocol) = (forward.port, forward.protocol);
        let route = Arc::new(Route { forward, names: Arc::clone(&names), balance: Balance::new(affinity) });
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
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// On all addresses, of both families where the kernel has both.
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

/// Whether it failed for want of the other family.
fn has_no_address(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}
