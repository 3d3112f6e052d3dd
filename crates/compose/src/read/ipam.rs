//! The ranges of addresses of a network (`ipam`).

use std::{collections::BTreeMap, net::IpAddr};

use driftless_model::{IpNetwork, Network};

use crate::{
    read::common::options,
    spec::{
        keys::{IPAM, POOL},
        value::{Read as _, Value},
    },
};

/// One range, for findings about it.
pub(crate) struct Pool<'a> {
    item: Value<'a>,
    subnet: Given<'a>,
    gateway: Given<'a>,
    range: Given<'a>,
}

/// A text that is not empty, and its place.
type Given<'a> = Option<(String, Value<'a>)>;

/// Reads the ranges of a network.
pub(crate) fn ipam<'a>(network: &mut Network, value: &Value<'a>) -> Vec<Pool<'a>> {
    let mut pools = Vec::new();
    for (key, value) in value.fields(&IPAM) {
        match key {
            "driver" => network.ipam_driver = value.filled().filter(|driver| driver != "default"),
            "options" => network.ipam_options = options(&value),
            "config" => pools.extend(value.sequence().into_iter().map(|item| pool(network, item))),
            _ => value.refuse("is not supported yet"),
        }
    }
    pools
}

fn pool<'a>(network: &mut Network, item: Value<'a>) -> Pool<'a> {
    let (mut subnet, mut gateway, mut range, mut aux_addresses) = (None, None, None, BTreeMap::new());
    for (key, value) in item.fields(&POOL) {
        match key {
            "subnet" => subnet = value.owned().map(|text| (text, value)),
            "gateway" => gateway = value.owned().map(|text| (text, value)),
            "ip_range" => range = value.owned().map(|text| (text, value)),
            "aux_addresses" => aux_addresses = options(&value),
            _ => value.refuse("is not supported yet"),
        }
    }
    let text = |given: &Given<'_>| given.as_ref().map(|(text, _)| text.clone());
    match text(&subnet) {
        Some(subnet) if !aux_addresses.is_empty() => {
            network.aux_addresses.insert(subnet, aux_addresses);
        }
        None if !aux_addresses.is_empty() => item.error("`aux_addresses` need their `subnet`"),
        Some(_) | None => {}
    }
    network.ipam.push((text(&subnet), text(&gateway), text(&range)));
    let filled = |given: Given<'a>| given.filter(|(text, _)| !text.is_empty());
    Pool { item, subnet: filled(subnet), gateway: filled(gateway), range: filled(range) }
}

/// Reports addresses that an engine refuses. The engine says so only when the network is created, and by then a network that it
/// replaces would be gone.
pub(crate) fn check(pool: &Pool<'_>) {
    let Pool { item, subnet, gateway, range } = pool;
    let Some((text, value)) = subnet else {
        if gateway.is_some() || range.is_some() {
            let help = "write them in one item of the list, with one `-`";
            item.error_help("`gateway` and `ip_range` need their `subnet`", help);
        }
        return;
    };
    let Some(subnet) = read_subnet(text, value) else { return };
    if let Some((text, value)) = gateway {
        match text.parse::<IpAddr>() {
            Ok(address) if subnet.contains(address) => {}
            Ok(_) => value.error(format!("the gateway {text} is not in the subnet {subnet}")),
            Err(_) => value.error(format!("`{text}` is no IP address")),
        }
    }
    if let Some((text, value)) = range
        && let Some(range) = read_subnet(text, value)
        && !subnet.covers(range)
    {
        value.warning(format!(
            "the range {text} is not in the subnet {subnet}, which Docker 25 and later refuse"
        ));
    }
}

fn read_subnet(text: &str, value: &Value<'_>) -> Option<IpNetwork> {
    let Some(subnet) = IpNetwork::parse_subnet(text) else {
        let help = "write an address and a prefix, such as `172.28.0.0/16`";
        value.error_help(format!("`{text}` is no subnet"), help);
        return None;
    };
    if subnet != subnet.without_host() {
        let right = subnet.without_host();
        value.warning(format!(
            "`{text}` has bits of a host, which Docker 25 and later refuse: write `{right}`"
        ));
    }
    Some(subnet)
}
