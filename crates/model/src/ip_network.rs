//! A network of addresses, as configurations name it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A network in the notation of CIDR, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    /// Parses the subnet of a network of the engine, such as `172.28.0.0/16`: it has a prefix.
    pub fn parse_subnet(text: &str) -> Option<Self> {
        Self::parse(text).filter(|_| text.contains('/'))
    }

    /// The network without the bits of a host: `172.28.0.0/16` of `172.28.0.1/16`.
    #[must_use]
    pub fn without_host(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or_default();
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or_default();
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Self { address, ..self }
    }

    /// Whether its addresses are of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether all addresses of another network are in this one.
    pub fn covers(&self, other: Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Whether two networks have an address in common. One of them contains the other then.
    pub fn overlaps(&self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
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

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_compared_with_each_other() {
        let subnet = |text: &str| IpNetwork::parse_subnet(text).unwrap();
        for (one, other, overlaps, covers) in [
            ("10.0.0.0/8", "10.200.0.0/16", true, true),
            ("10.200.0.0/16", "10.0.0.0/8", true, false),
            ("10.1.0.0/16", "10.2.0.0/16", false, false),
            ("0.0.0.0/0", "10.2.0.0/16", true, true),
            ("fd00::/8", "fd12::/64", true, true),
            ("::/0", "10.2.0.0/16", false, false),
        ] {
            assert_eq!(subnet(one).overlaps(subnet(other)), overlaps, "{one} {other}");
            assert_eq!(subnet(one).covers(subnet(other)), covers, "{one} {other}");
        }
        for (text, without_host) in [
            ("172.20.0.1/16", "172.20.0.0/16"),
            ("172.20.0.0/16", "172.20.0.0/16"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("fd00::1/64", "fd00::/64"),
        ] {
            assert_eq!(subnet(text).without_host().to_string(), without_host);
        }
        assert_eq!(IpNetwork::parse_subnet("10.0.0.1"), None);
    }

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
