//! The addresses that the agent listens on, and which of them exclude each other.

use std::net::{IpAddr, SocketAddr};

use crate::settings::Settings;

impl Settings {
    /// The addresses of all TCP listeners, with their keys in the configuration.
    pub fn listeners(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let all = [
            ("listen", Some(self.listen)),
            ("webhooks.listen", self.webhooks.listen),
            ("metrics.listen", self.metrics.listen),
        ];
        all.into_iter().filter_map(|(key, address)| Some((key, address?)))
    }
}

/// Whether the kernel refuses a listener at one address while there is one at the other: they have the port in common, and
/// the host or "all hosts". With port 0 the kernel chooses another port for each.
pub fn addresses_overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (host, other_host) = (one.ip().to_canonical(), other.ip().to_canonical());
    let is_same_host = host == other_host && scope(one) == scope(other);
    let has_host_in_common = is_same_host || includes(host, other_host) || includes(other_host, host);
    one.port() != 0 && one.port() == other.port() && has_host_in_common
}

/// `0.0.0.0` stands for every address of IPv4, and `::` also for those of IPv6.
fn includes(host: IpAddr, other: IpAddr) -> bool {
    host.is_unspecified() && (host.is_ipv6() || other.is_ipv4())
}

/// The interface of a link-local address.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_on_a_port_with_a_host_in_common() {
        for (one, other, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "127.0.0.1:81", false),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::]:80", "[::1]:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::ffff:127.0.0.1]:80", true),
            ("[fe80::1%1]:80", "[fe80::1%1]:80", true),
            ("[fe80::1%1]:80", "[fe80::1%2]:80", false),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(addresses_overlap(one, other), expected, "{one} {other}");
            assert_eq!(addresses_overlap(other, one), expected, "{other} {one}");
        }
    }
}
