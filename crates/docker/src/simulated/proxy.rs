//! A simulated proxy: which addresses it may forward to, after the messages of the agent.

use std::{collections::BTreeSet, net::IpAddr};

use driftless_model::{ReadyAddresses, ReadyEndpoints};

/// One process of a proxy.
#[derive(Debug, Default)]
pub(super) struct SimulatedProxy {
    ready: BTreeSet<IpAddr>,
    leaving: BTreeSet<IpAddr>,
    history: Vec<BTreeSet<IpAddr>>,
}

impl SimulatedProxy {
    /// Takes a message as the real one does.
    pub(super) fn take(&mut self, command: &[String]) {
        let mut words = command.iter().map(String::as_str).skip_while(|word| !word.starts_with("proxy-"));
        match words.next() {
            Some("proxy-ready") => {
                let Ok(endpoints) = ReadyEndpoints::parse(words) else { return };
                let addresses = endpoints.0.into_values().flat_map(|ready| match ready {
                    ReadyAddresses::These(addresses) => addresses,
                    ReadyAddresses::All => BTreeSet::new(),
                });
                self.ready = addresses.map(IpAddr::from).collect();
                self.leaving.retain(|address| !self.ready.contains(address));
            }
            Some("proxy-drain") => {
                self.leaving.extend(words.skip(1).filter_map(|word| word.parse::<IpAddr>().ok()));
            }
            _ => return,
        }
        self.history.push(self.ready.difference(&self.leaving).copied().collect());
    }

    /// The addresses that it may forward to after each message.
    pub(super) fn history(&self) -> &[BTreeSet<IpAddr>] {
        &self.history
    }
}
