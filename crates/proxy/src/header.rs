//! The header of the PROXY protocol, version 2, which tells an endpoint the address of the client. Specification:
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, section 2.2.

use std::net::{IpAddr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, command PROXY.
const VERSION_AND_COMMAND: u8 = 0x21;
/// TCP over IPv4 and over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// The header of a connection from a client to an address of the proxy.
pub(crate) fn header(client: SocketAddr, own: SocketAddr) -> Vec<u8> {
    let (mut addresses, family) = match (client.ip().to_canonical(), own.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(own)) => ([client.octets(), own.octets()].concat(), TCP4),
        (client, own) => ([octets(client), octets(own)].concat(), TCP6),
    };
    addresses.extend(client.port().to_be_bytes());
    addresses.extend(own.port().to_be_bytes());
    let length = u16::try_from(addresses.len()).unwrap_or_default();
    let mut header = SIGNATURE.to_vec();
    header.extend([VERSION_AND_COMMAND, family]);
    header.extend(length.to_be_bytes());
    header.extend(addresses);
    header
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_addresses_in_network_order() {
        let found = header("10.0.0.9:4660".parse().unwrap(), "[::ffff:10.0.0.2]:80".parse().unwrap());
        assert_eq!(found[..12], *b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a");
        assert_eq!(found[12..], [0x21, 0x11, 0, 12, 10, 0, 0, 9, 10, 0, 0, 2, 0x12, 0x34, 0, 80]);
        let found = header("[2001:db8::9]:1".parse().unwrap(), "[2001:db8::1]:2".parse().unwrap());
        assert_eq!(found[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!(found.len(), 16 + 36);
        assert_eq!((found[31], found[47], &found[48..]), (9, 1, &[0, 1, 0, 2][..]));
    }
}
