//! One port and its endpoints.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use driftless_model::{Forward, Protocol};
use tokio::sync::mpsc;

use crate::{
    balance::Balance,
    counters::Counters,
    handover::Parcel,
    limits::{Limits, Seldom},
    names::Names,
    ready::{Gate, Ready},
    shift::Shift,
};

/// One port and its endpoints.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) forward: Forward,
    pub(crate) names: Arc<Names>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) balance: Balance,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) proxy_protocol: bool,
    pub(crate) log: RouteLog,
    pub(crate) shift: Arc<Shift>,
    /// Takes the parcels of the tasks at the end of the shift. All tasks have ended when nobody holds a route any more.
    pub(crate) parcels: mpsc::UnboundedSender<Parcel>,
}

/// Lines in the log that many connections would repeat.
#[derive(Debug, Default)]
pub(crate) struct RouteLog {
    pub(crate) accept: Seldom,
    pub(crate) refused: Seldom,
    pub(crate) silent: Seldom,
}

impl Route {
    /// Hands something over to the next proxy.
    pub(crate) fn hand_over(&self, parcel: Parcel) {
        // Without a receiver the proxy ends.
        let _ = self.parcels.send(parcel);
    }

    /// The endpoints that may get traffic now.
    pub(crate) async fn endpoints(&self) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        for (index, (name, port)) in self.forward.targets.iter().enumerate() {
            if !self.counts(index) {
                continue;
            }
            let mut ready = self.gate.ready(name);
            if matches!(ready, Ready::Unknown) {
                self.gate.first_report().await;
                ready = self.gate.ready(name);
            }
            match ready {
                Ready::Unknown => {}
                Ready::All => {
                    let addresses = self.names.addresses(name).await.into_iter();
                    all.extend(addresses.map(|address| SocketAddr::new(IpAddr::V4(address), *port)));
                }
                Ready::These(since, addresses) => {
                    // An address that the name does not resolve to any more may belong to another container by now.
                    let kept = addresses.into_iter().filter(|it| !self.names.has_lost(name, *it, since));
                    all.extend(kept.map(|address| SocketAddr::new(IpAddr::V4(address), *port)));
                }
            }
        }
        all.retain(|endpoint| !self.gate.is_leaving(endpoint.ip()));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether a target counts now. A former name does only as the agent reports it, because the name server may have instances
    /// of another project under it.
    fn counts(&self, index: usize) -> bool {
        !self.forward.is_former(index) || self.gate.has_report()
    }

    /// Whether an endpoint that was chosen earlier may still get traffic.
    pub(crate) fn admits(&self, endpoint: SocketAddr) -> bool {
        let IpAddr::V4(address) = endpoint.ip() else { return true };
        let mut targets = self.forward.targets.iter().enumerate();
        targets.any(|(index, (name, port))| {
            *port == endpoint.port() && self.counts(index) && self.gate.admits(name, address)
        })
    }

    /// The number of the target that an endpoint belongs to.
    pub(crate) fn target_of(&self, endpoint: SocketAddr) -> usize {
        let IpAddr::V4(address) = endpoint.ip() else { return 0 };
        // Most ports have one target, and then nothing is asked.
        let mut others = self.forward.targets.iter().enumerate().skip(1);
        let found = others.find(|(index, (name, port))| {
            *port == endpoint.port() && self.counts(*index) && self.gate.admits(name, address)
        });
        found.map_or(0, |(index, _)| index)
    }

    /// Whether an endpoint with one of these addresses has connections, or may still answer a datagram.
    pub(crate) fn is_used(&self, is_one: impl Fn(IpAddr) -> bool, last_answer: Duration) -> bool {
        match self.forward.protocol {
            Protocol::Tcp | Protocol::Sctp => self.balance.active(is_one) > 0,
            Protocol::Udp => self.balance.has_sent_within(last_answer, is_one),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use driftless_model::{ForwardLimits, ReadyEndpoints};
    use tokio::time::advance;

    use super::*;

    impl Route {
        /// A route whose only target is this address.
        pub(crate) fn to_endpoint(forward: &str, address: Ipv4Addr) -> Self {
            let forward: Forward = forward.parse().unwrap();
            let name = forward.targets[0].0.clone();
            Self {
                counters: Counters::of(&forward),
                forward,
                names: Arc::new(Names::fixed_to(&name, address)),
                gate: Arc::new(Gate::open()),
                balance: Balance::new(None),
                limits: Arc::new(Limits::new(&ForwardLimits::default())),
                proxy_protocol: false,
                log: RouteLog::default(),
                shift: Arc::default(),
                parcels: mpsc::unbounded_channel().0,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn former_name_counts_only_as_the_agent_reports_it() {
        let address = Ipv4Addr::new(10, 0, 0, 2);
        let forward = "8080/tcp=_web.shop._proxy:8080,_web._proxy:8080";
        // The name server has an instance of another project under the former name.
        let route = Route {
            names: Arc::new(Names::fixed_to("_web._proxy", address)),
            gate: Arc::new(Gate::by_report("test")),
            ..Route::to_endpoint(forward, address)
        };
        let endpoint = SocketAddr::new(address.into(), 8080);
        advance(Duration::from_secs(3)).await;
        assert_eq!((route.endpoints().await, route.target_of(endpoint)), (vec![], 0), "no agent runs");
        let report = ["_web.shop._proxy=", "_web._proxy=10.0.0.2"];
        route.gate.report(ReadyEndpoints::parse(report).unwrap());
        assert_eq!((route.endpoints().await, route.target_of(endpoint)), (vec![endpoint], 1));
        assert!(route.admits(endpoint));
    }
}
