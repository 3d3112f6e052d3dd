//! Networks and volumes that an application has, or that must exist for it.

use std::collections::BTreeMap;

use crate::{defaults::is_default, ip_network::IpNetwork};

use serde::{Deserialize, Serialize};

/// A network of the application's own, or one that must exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "the manifests' own switches")]
pub struct Network {
    /// The key in the manifest.
    pub key: String,
    /// Somebody else's: never created, changed or removed.
    #[serde(skip_serializing_if = "is_default")]
    pub external: bool,
    /// `None` is `bridge`.
    #[serde(skip_serializing_if = "is_default")]
    pub driver: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub options: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_default")]
    pub internal: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub attachable: bool,
    /// `None` leaves it to the engine (`default-network-opts`). The JSON omits `false` as well, so that networks of both
    /// kinds keep the spec hashes that they have had since before there was a difference.
    #[serde(skip_serializing_if = "is_not_true")]
    pub enable_ipv6: Option<bool>,
    #[serde(skip_serializing_if = "is_default")]
    pub disable_ipv4: bool,
    /// (subnet, gateway, IP range)
    #[serde(skip_serializing_if = "is_default")]
    pub ipam: Vec<(Option<String>, Option<String>, Option<String>)>,
    /// The IPAM driver; `None` is `default`.
    #[serde(skip_serializing_if = "is_default")]
    pub ipam_driver: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub ipam_options: BTreeMap<String, String>,
    /// Addresses that are kept free, by the subnet they are in: name to address.
    #[serde(skip_serializing_if = "is_default")]
    pub aux_addresses: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
}

impl Network {
    /// The subnets that it asks for on the bridges of a host. Two of those cannot have an address in common.
    pub fn bridge_subnets(&self) -> impl Iterator<Item = IpNetwork> {
        let is_bridge = !self.external && self.driver.as_deref().is_none_or(|driver| driver == "bridge");
        let ranges = self.ipam.iter().filter(move |_| is_bridge);
        ranges.filter_map(|(subnet, ..)| IpNetwork::parse_subnet(subnet.as_deref()?))
    }

    /// Its ranges of addresses that are not in their subnets, each with its subnet. Docker 25 and later refuse them.
    pub fn ranges_outside(&self) -> impl Iterator<Item = (IpNetwork, IpNetwork)> {
        let is_checked = !self.external && self.ipam_driver.is_none();
        self.ipam.iter().filter(move |_| is_checked).filter_map(|(subnet, _, range)| {
            let subnet = IpNetwork::parse_subnet(subnet.as_deref()?)?;
            let range = IpNetwork::parse_subnet(range.as_deref()?)?;
            (!subnet.covers(range)).then_some((range, subnet))
        })
    }
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_not_true(value: &Option<bool>) -> bool {
    *value != Some(true)
}

/// A named volume. It is created when missing, and never changed or removed by us.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub key: String,
    #[serde(skip_serializing_if = "is_default")]
    pub external: bool,
    /// `None` is `local`.
    #[serde(skip_serializing_if = "is_default")]
    pub driver: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub options: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpecHash;

    #[test]
    fn networks_without_ipv6_keep_their_hash() {
        let network = |enable_ipv6| Network { key: "lan".to_owned(), enable_ipv6, ..Network::default() };
        let text = |enable_ipv6| serde_json::to_string(&network(enable_ipv6)).unwrap();
        assert_eq!(text(None), r#"{"key":"lan"}"#);
        assert_eq!(text(Some(false)), text(None));
        assert_eq!(text(Some(true)), r#"{"key":"lan","enableIpv6":true}"#);
        assert_eq!(SpecHash::of(&network(Some(false))), SpecHash::of(&network(None)));
    }
}
