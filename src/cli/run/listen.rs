//! The TCP listeners of the agent: opened at its start, and tested before it starts again with other addresses.

use std::net::SocketAddr;

use driftless_config::{Settings, addresses_overlap};
use tokio::net::TcpListener;

use super::error::Error;

/// The open TCP listeners.
pub(super) struct TcpListeners {
    pub(super) api: TcpListener,
    pub(super) hooks: Option<TcpListener>,
    pub(super) metrics: Option<TcpListener>,
}

/// Opens all listeners of the settings.
///
/// # Errors
///
/// If one of the addresses cannot be used.
pub(super) async fn open(settings: &Settings) -> Result<TcpListeners, Error> {
    open_at(settings, |address| address).await
}

/// Tests whether all listeners of new settings can be opened once those of the current settings are closed.
///
/// If a listener of the agent itself is in the way of an address, only the host is tested, with a port that the kernel chooses.
/// Then a program that has the port on another host of this machine is noticed at the start.
///
/// # Errors
///
/// If one of the addresses cannot be used.
pub(super) async fn check(new: &Settings, current: &Settings) -> Result<(), Error> {
    let held: Vec<SocketAddr> = current.listeners().map(|(_, address)| address).collect();
    let testable = |mut address: SocketAddr| {
        if held.iter().any(|held| addresses_overlap(*held, address)) {
            address.set_port(0);
        }
        address
    };
    open_at(new, testable).await.map(drop)
}

/// Opens each listener at the place that is given for its address.
async fn open_at(
    settings: &Settings,
    place: impl Fn(SocketAddr) -> SocketAddr,
) -> Result<TcpListeners, Error> {
    let address = settings.listen;
    let api = TcpListener::bind(place(address)).await.map_err(|source| Error::Listen { address, source })?;
    let hooks = match settings.webhooks.listen {
        Some(address) => {
            let bound = TcpListener::bind(place(address)).await;
            Some(bound.map_err(|source| Error::ListenHooks { address, source })?)
        }
        None => None,
    };
    let metrics = match settings.metrics.listen {
        Some(address) => {
            let bound = TcpListener::bind(place(address)).await;
            Some(bound.map_err(|source| Error::ListenMetrics { address, source })?)
        }
        None => None,
    };
    Ok(TcpListeners { api, hooks, metrics })
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_config::Metrics;

    fn settings(listen: &str, metrics: &str) -> Settings {
        let metrics = Metrics { listen: Some(metrics.parse().unwrap()), ..Metrics::default() };
        Settings { listen: listen.parse().unwrap(), metrics, ..Settings::default() }
    }

    #[tokio::test]
    async fn own_listeners_are_not_in_the_way_of_new_addresses() {
        let own = open(&settings("127.0.0.1:0", "127.0.0.1:0")).await.unwrap();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let (api, metrics) = (port(&own.api), port(own.metrics.as_ref().unwrap()));
        let current = settings(&format!("127.0.0.1:{api}"), &format!("127.0.0.1:{metrics}"));
        let swapped = settings(&format!("127.0.0.1:{metrics}"), &format!("127.0.0.1:{api}"));
        let wider = settings(&format!("0.0.0.0:{api}"), &format!("127.0.0.1:{metrics}"));
        for new in [&current, &swapped, &wider] {
            check(new, &current).await.unwrap();
        }
        // An address of documentation, which no machine has.
        let foreign = format!("192.0.2.1:{api}");
        let everywhere = settings(&format!("0.0.0.0:{api}"), "127.0.0.1:0");
        let refused = check(&settings(&foreign, "127.0.0.1:0"), &everywhere).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("could not listen on {foreign}"));
        // Another program has the port of the metrics.
        let refused =
            check(&current, &settings(&format!("127.0.0.1:{api}"), "127.0.0.1:0")).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("could not listen for metrics on 127.0.0.1:{metrics}"));
    }
}
