//! Connections: each is connected to an endpoint, and then bytes go both ways until both have said their last.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream},
    select,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::route::Route;

/// So many connections of one port at once; further ones wait in the kernel, and in the end at the client.
const MOST: usize = 8192;
/// In each direction. A side that is not read from is not read for.
const BUFFER: usize = 8 * 1024;
/// An endpoint that does not answer for so long is passed over.
const CONNECT: Duration = Duration::from_secs(1);
/// For so long endpoints are looked for, since one may be about to take the place of another.
const LOOK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
/// Time without data after which the peer is asked whether it still exists.
const SILENCE: Duration = Duration::from_mins(1);
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// Takes connections for ever.
pub(super) async fn accept(listener: TcpListener, route: Arc<Route>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MOST {
            connections.join_next().await;
        }
        select! {
            accepted = listener.accept() => match accepted {
                Ok((client, address)) => {
                    connections.spawn(forward(client, address, Arc::clone(&route)));
                }
                Err(error) if is_of_client(&error) => {}
                // Out of descriptors, most likely: some will be free again.
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Whether it is over before it began.
fn is_of_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

async fn forward(mut client: TcpStream, address: SocketAddr, route: Arc<Route>) {
    let Some(mut endpoint) = connect(address, &route).await else {
        tracing::warn!("no endpoint of {} answers", route.forward);
        reset(&client);
        return;
    };
    attend(&client);
    attend(&endpoint);
    if copy_bidirectional_with_sizes(&mut client, &mut endpoint, BUFFER, BUFFER).await.is_err() {
        // One side has broken off, and so do we with the other.
        reset(&client);
        reset(&endpoint);
    }
}

/// The first endpoint that answers. Each is tried, and all again, for a while.
async fn connect(address: SocketAddr, route: &Route) -> Option<TcpStream> {
    let client = address.ip().to_canonical();
    let began = Instant::now();
    loop {
        for endpoint in route.endpoints(client).await {
            if let Ok(Ok(stream)) = timeout(CONNECT, TcpStream::connect(endpoint)).await {
                route.balance.sent(client, endpoint);
                return Some(stream);
            }
            if began.elapsed() >= LOOK {
                return None;
            }
        }
        if began.elapsed() >= LOOK {
            return None;
        }
        sleep(PAUSE).await;
    }
}

/// Small pieces go at once, and who has gone without a word is noticed. Where the kernel does not know an option, it
/// works all the same.
fn attend(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(ASK_AGAIN);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Closing it will tell the other side that something went wrong.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
