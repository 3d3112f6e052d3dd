//! One port of the proxy and the endpoints behind it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{Balance, Gate, Names};
use driftless_model::Forward;

/// One port and its endpoints.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) forward: Forward,
    pub(super) names: Arc<Names>,
    pub(super) gate: Arc<Gate>,
    pub(super) balance: Balance,
}

impl Route {
    /// The endpoints for a client, in the order in which they are to be tried.
    pub(super) async fn endpoints(&self, client: IpAddr) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        for (name, port) in &self.forward.targets {
            let addresses = self.names.addresses(name).await.into_iter();
            let ready = addresses.filter(|address| self.gate.admits(name, *address));
            all.extend(ready.map(|address| SocketAddr::new(IpAddr::V4(address), *port)));
        }
        all.sort_unstable();
        all.dedup();
        self.balance.order(client, &all)
    }

    /// Whether an endpoint that was chosen earlier may still get traffic.
    pub(super) fn admits(&self, endpoint: SocketAddr) -> bool {
        let IpAddr::V4(address) = endpoint.ip() else { return true };
        let is_of =
            |(name, port): &(String, u16)| *port == endpoint.port() && self.gate.admits(name, address);
        self.forward.targets.iter().any(is_of)
    }
}
