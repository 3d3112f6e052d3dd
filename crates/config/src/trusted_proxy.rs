//! Access to the API: a trusted proxy that authenticates people, and the audit.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::Duration,
};

use driftless_model::Scope;

use crate::{
    keys,
    value::{Fields as _, Object, Value},
};

/// A reverse proxy that authenticates people and says in a header who they are (forward authentication).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxy {
    /// The addresses of the proxy. The headers of other clients are ignored.
    pub from: Vec<IpNetwork>,
    /// Users of this machine, by number, that a proxy over loopback may run as, besides root and the agent's own user.
    pub local_users: Vec<u32>,
    /// The header with the user's name, in lower case. Default: `remote-user`.
    pub user_header: String,
    /// The header with the user's groups, separated by commas, in lower case. Default: `remote-groups`.
    pub groups_header: String,
    /// The scopes of each group. The group `*` is every user.
    pub groups: Vec<(String, Vec<Scope>)>,
}

/// A network in the notation of CIDR, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    /// Number of leading bits that an address has in common.
    prefix: u8,
}

/// Retention and file of the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Time that entries stay in the database. Default: 365 days.
    pub keep: Duration,
    /// A file that each entry is appended to, as a line of JSON. Default: none.
    pub file: Option<PathBuf>,
}

impl Default for Audit {
    fn default() -> Self {
        Self { keep: Duration::from_hours(365 * 24), file: None }
    }
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

/// Reads the value of `trustedProxy`.
pub(super) fn trusted_proxy(value: Value<'_>) -> Option<TrustedProxy> {
    let object = value.object(&keys::TRUSTED_PROXY)?;
    object.require("from");
    object.require("groups");
    let header =
        |key: &str, default: &str| object.parsed(key, header_name).unwrap_or_else(|| default.to_owned());
    let (user_header, groups_header) =
        (header("userHeader", "remote-user"), header("groupsHeader", "remote-groups"));
    Some(TrustedProxy {
        from: object.items("from").iter().filter_map(network).collect(),
        local_users: object.items("localUsers").iter().filter_map(user_number).collect(),
        user_header,
        groups_header,
        groups: object.items("groups").into_iter().filter_map(scoped_name).collect(),
    })
}

/// Reads the value of `audit`.
pub(super) fn audit(value: Value<'_>) -> Option<Audit> {
    let object = value.object(&keys::AUDIT)?;
    let keep = object.duration("keep").unwrap_or(Audit::default().keep);
    Some(Audit { keep, file: object.absolute("file") })
}

/// A name and its scopes.
pub(super) fn scoped_name(value: Value<'_>) -> Option<(String, Vec<Scope>)> {
    let object: Object<'_> = value.object(&keys::PROXY_GROUP)?;
    object.require("name");
    object.require("scopes");
    let scopes = object.items("scopes").iter().filter_map(scope).collect();
    Some((object.owned("name")?, scopes))
}

pub(super) fn scope(value: &Value<'_>) -> Option<Scope> {
    let parsed = Scope::parse(value.string()?);
    parsed.map_err(|error| value.error(error.to_string())).ok()
}

fn network(value: &Value<'_>) -> Option<IpNetwork> {
    let network = IpNetwork::parse(value.string()?);
    if network.is_none() {
        value.error("must be an address or a network, such as `127.0.0.1` or `10.0.0.0/8`");
    }
    network
}

fn user_number(value: &Value<'_>) -> Option<u32> {
    let number = value.string()?.parse().ok();
    if number.is_none() {
        value.error("must be the number of a user, as `id -u NAME` prints it");
    }
    number
}

fn header_name(text: &str) -> Result<String, String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if text.is_empty() || text.len() > 100 || !text.chars().all(is_letter) {
        return Err("must be the name of an HTTP header, such as `Remote-User`".to_owned());
    }
    let name = text.to_ascii_lowercase();
    if ["authorization", "cookie", "host", "origin"].contains(&name.as_str()) {
        return Err(format!("`{text}` has a meaning of its own: let the proxy use another header"));
    }
    Ok(name)
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
