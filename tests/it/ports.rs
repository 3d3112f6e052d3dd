//! Ports that a test gives up and that somebody takes afterwards.
//!
//! A listener that is closed can live on for a moment: a process that another test has forked holds a copy of it until
//! its program is loaded. Until then nobody else can listen there.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpSocket},
    time::{Instant, sleep},
};

/// A TCP port that is free on every address.
///
/// Nothing has listened there, so that a copy in a forked process keeps nobody from doing so.
pub(crate) fn free_port() -> u16 {
    let socket = TcpSocket::new_v6().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("[::]:0".parse().unwrap()).unwrap();
    socket.local_addr().unwrap().port()
}

/// Listens where a listener was just closed.
pub(crate) async fn listen_again(address: SocketAddr) -> TcpListener {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < end, "{address}: {error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}
