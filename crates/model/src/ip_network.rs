//! A network of addresses, as configurations name it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network in the notation of CIDR, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    /// Number of leading bits that an address has in common.
    prefix: u8,
}

impl IpNetwork {
    /// Parses `10.0.0.0/8`, `fd00::/8` or an address.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix.map_or(Some(longest), |prefix| prefix.parse().ok())?;
        if prefix > longest {
            return None;
        }
        // The form of IPv6 that an IPv4 network has.
        Some(match (address.to_canonical(), prefix.checked_sub(96)) {
            (address @ IpAddr::V4(_), Some(prefix)) if longest == 128 => Self { address, prefix },
            _ => Self { address, prefix },
        })
    }

    /// Whether a loopback address is in the network.
    pub fn has_loopback(&self) -> bool {
        let loopback = match self.address {
            IpAddr::V4(_) => Self { address: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix: 8 },
            IpAddr::V6(_) => Self { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
        };
        // Of two networks that have an address in common, one contains the other.
        loopback.contains(self.address) || self.contains(loopback.address)
    }

    /// Whether an address is in the network. An IPv4 address may be in the form of IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.prefix.min(32));
                let bits = |it: Ipv4Addr| u64::from(it.to_bits()) >> shift;
                bits(network) == bits(address)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.prefix);
                let bits = |it: Ipv6Addr| it.to_bits().checked_shr(shift).unwrap_or_default();
                bits(network) == bits(address)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses_only() {
        for (network, address, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("10.0.0.0/8", "10.200.3.4", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "2001:db8::1", true),
            ("::1", "::1", true),
            ("::ffff:10.0.0.0/104", "10.200.3.4", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
            ("::ffff:0:0/96", "192.0.2.1", true),
            ("::ffff:0:0/96", "2001:db8::1", false),
        ] {
            let parsed = IpNetwork::parse(network).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), expected, "{network} {address}");
        }
        for wrong in ["", "proxy", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "10.0.0.0/8/8"] {
            assert!(IpNetwork::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn networks_that_cover_loopback_are_known() {
        for (network, expected) in [
            ("127.0.0.1", true),
            ("127.5.5.5/16", true),
            ("127.0.0.0/8", true),
            ("64.0.0.1/2", true),
            ("0.0.0.0/0", true),
            ("::1", true),
            ("::/0", true),
            ("::/64", true),
            ("::ffff:127.0.0.1", true),
            ("::ffff:0:0/96", true),
            ("126.0.0.0/8", false),
            ("128.0.0.0/1", false),
            ("172.18.0.5", false),
            ("fd00::/8", false),
            ("::2", false),
            ("::ffff:10.0.0.0/104", false),
        ] {
            assert_eq!(IpNetwork::parse(network).unwrap().has_loopback(), expected, "{network}");
        }
    }
}
