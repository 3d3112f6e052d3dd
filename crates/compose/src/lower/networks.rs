//! The networks of a service: `network_mode`, `networks`, and the default network.

use std::{collections::BTreeMap, net::IpAddr};

use driftless_model::{Attachment, Finding, IpNetwork, Network, NetworkMode, Peer};

use crate::{
    lower::context::Lowering,
    read::types::{Joined, Service},
    spec::{normalise::DEFAULT_NETWORK, value::Placed},
};

impl Lowering<'_> {
    pub(crate) fn network_mode(&mut self, key: &str, service: &Service) -> NetworkMode {
        let joined = service.networks.as_deref().unwrap_or_default();
        let mode = service.network_mode.as_ref().filter(|it| !it.value.is_empty());
        let Some(mode) = mode else { return NetworkMode::Networks(self.attachments(key, joined)) };
        if !joined.is_empty() {
            self.findings.push(mode.error("`network_mode` and `networks` exclude each other"));
        }
        match mode.value.as_str() {
            "host" => NetworkMode::Host,
            "none" => NetworkMode::None,
            "bridge" | "default" => NetworkMode::Bridge,
            other if Peer::parse(other).is_some() => {
                self.peer(key, mode).map_or(NetworkMode::None, NetworkMode::Of)
            }
            other => {
                let finding = mode.error(format!("`{other}` is not a network mode"));
                self.findings.push(finding.help(format!(
                    "use `host`, `none`, `bridge`, `service:NAME` or `container:NAME`; for a network of the engine, remove `network_mode`, write \
                     `networks: [{other}]` in the service, and at the top level `networks: {{{other}: {{external: true, name: {other}}}}}`"
                )));
                NetworkMode::None
            }
        }
    }

    fn attachments(&mut self, key: &str, joined: &[Placed<Joined>]) -> BTreeMap<String, Box<Attachment>> {
        let mut attachments = BTreeMap::new();
        let mut attach = |name: String, mut attachment: Attachment| {
            attachment.aliases.push(key.to_owned());
            attachment.aliases.sort_unstable();
            attachment.aliases.dedup();
            attachments.insert(name, Box::new(attachment));
        };
        if joined.is_empty() {
            attach(self.network(DEFAULT_NETWORK), Attachment::default());
        }
        for one in joined {
            let Joined { network, attachment, addresses } = &one.value;
            if let Some(defined) = self.project.networks.get(network) {
                let refused = |address| refused_address(network, &defined.spec, address);
                self.findings.extend(addresses.iter().filter_map(refused));
            }
            if network == DEFAULT_NETWORK || self.project.networks.contains_key(network) {
                attach(self.network(network), attachment.clone());
            } else {
                let finding = one.error(format!("refers to undefined network `{network}`"));
                self.findings.push(finding.help("add it under `networks:`"));
            }
        }
        attachments
    }

    /// The name of a network in Docker. Only networks that services use are created.
    fn network(&mut self, key: &str) -> String {
        let name = self.network_name(key);
        let defined = self.project.networks.get(key).map(|defined| defined.spec.clone());
        let network = defined.unwrap_or_else(|| Network { key: key.to_owned(), ..Network::default() });
        self.networks.insert(name.clone(), network);
        name
    }

    pub(super) fn network_name(&self, key: &str) -> String {
        match self.project.networks.get(key) {
            Some(defined) => self.name_in_docker(key, defined.name.as_ref(), defined.spec.external),
            None => self.name_in_docker(key, None, false),
        }
    }
}

/// The finding about a fixed address that no container of a network can get. The engine says so only when the container starts, and by
/// then its predecessor would be gone. For a family of addresses without a subnet, the engine chooses one.
fn refused_address(key: &str, network: &Network, fixed: &Placed<IpAddr>) -> Option<Finding> {
    if network.external || network.ipam_driver.is_some() {
        return None;
    }
    let address = fixed.value;
    let subnets = network.ipam.iter().filter_map(|(subnet, ..)| IpNetwork::parse_subnet(subnet.as_deref()?));
    let subnets: Vec<IpNetwork> = subnets.filter(|subnet| subnet.is_ipv4() == address.is_ipv4()).collect();
    if !subnets.is_empty() && !subnets.iter().any(|subnet| subnet.contains(address)) {
        let listed: Vec<String> = subnets.iter().map(ToString::to_string).collect();
        let listed = listed.join(", ");
        return Some(fixed.error(format!("{address} is in no subnet of the network `{key}` ({listed})")));
    }
    let is_bridge = network.driver.as_deref().is_none_or(|driver| driver == "bridge");
    // In some of these modes the bridge has no address.
    let has_mode = network.options.keys().any(|option| option.contains("gateway_mode"));
    let gateways = network.ipam.iter().filter_map(|(_, gateway, _)| gateway.as_ref());
    let gateways = gateways.filter(|_| is_bridge && !has_mode);
    let mut kept = gateways.chain(network.aux_addresses.values().flat_map(BTreeMap::values));
    let is_kept = kept.any(|kept| kept.parse::<IpAddr>().is_ok_and(|kept| kept == address));
    is_kept.then(|| {
        fixed.error(format!("{address} is the gateway or one of the `aux_addresses` of the network `{key}`"))
    })
}
