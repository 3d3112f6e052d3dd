//! Networks and volumes of Docker Compose.

use std::collections::BTreeMap;

use bollard::models as api;
use driftless_model::{IpNetwork, Network, Volume, addresses_of_subnet, label};

use super::values::{filled, map, user_labels};

/// A network, without the labels of Docker Compose.
pub(crate) fn network(found: &api::Network, labels: &BTreeMap<String, String>) -> Network {
    let ranges = found.ipam.as_ref().and_then(|it| it.config.as_ref());
    let ipam = ranges
        .into_iter()
        .flatten()
        .map(|it| (filled(it.subnet.as_ref()), filled(it.gateway.as_ref()), filled(it.ip_range.as_ref())))
        .collect();
    Network {
        key: labels.get(label::compose::NETWORK).cloned().unwrap_or_default(),
        driver: filled(found.driver.as_ref()),
        options: map(found.options.as_ref()),
        internal: found.internal.unwrap_or_default(),
        attachable: found.attachable.unwrap_or_default(),
        enable_ipv6: Some(found.enable_ipv6 == Some(true)),
        disable_ipv4: found.enable_ipv4 == Some(false),
        ipam,
        ipam_driver: filled(found.ipam.as_ref().and_then(|it| it.driver.as_ref()))
            .filter(|it| it != "default"),
        ipam_options: map(found.ipam.as_ref().and_then(|it| it.options.as_ref())),
        aux_addresses: ranges
            .into_iter()
            .flatten()
            .filter_map(|it| Some((filled(it.subnet.as_ref())?, map(Some(it.auxiliary_addresses.as_ref()?)))))
            .collect(),
        labels: user_labels(labels.iter()),
        ..Network::default()
    }
}

/// The addresses for services and tasks on a network that has its ranges.
pub(crate) fn addresses(ipam: Option<&api::Ipam>) -> Option<u64> {
    let ranges = ipam?.config.as_ref().filter(|ranges| !ranges.is_empty())?;
    Some(ranges.iter().filter_map(|range| addresses_of_subnet(range.subnet.as_deref()?)).sum())
}

/// The subnets of a bridge of this host. Two bridges cannot have an address in common.
pub(crate) fn bridge_subnets(found: &api::Network) -> Vec<IpNetwork> {
    let is_bridge = found.driver.as_deref() == Some("bridge");
    let ranges = found.ipam.as_ref().filter(|_| is_bridge).and_then(|ipam| ipam.config.as_ref());
    let subnets = ranges.into_iter().flatten().filter_map(|range| range.subnet.as_deref());
    subnets.filter_map(IpNetwork::parse_subnet).collect()
}

/// Whether no port of a container on the network alone is published on the host.
pub(crate) fn publishes_no_ports(found: &api::Network) -> bool {
    found.internal == Some(true) || matches!(found.driver.as_deref(), Some("macvlan" | "ipvlan"))
}

/// A volume, without the labels of Docker Compose.
pub(crate) fn volume(found: &api::Volume, labels: &BTreeMap<String, String>) -> Volume {
    Volume {
        key: labels.get(label::compose::VOLUME).cloned().unwrap_or_default(),
        driver: filled(Some(&found.driver)),
        options: map(Some(&found.options)),
        labels: user_labels(labels.iter()),
        ..Volume::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_without_a_way_to_the_host_publish_no_ports() {
        let network = |driver: &str, internal| api::Network {
            driver: Some(driver.to_owned()),
            internal: Some(internal),
            ..api::Network::default()
        };
        for (driver, internal, expected) in [
            ("bridge", false, false),
            ("bridge", true, true),
            ("macvlan", false, true),
            ("ipvlan", false, true),
        ] {
            assert_eq!(publishes_no_ports(&network(driver, internal)), expected, "{driver}");
        }
    }
}
