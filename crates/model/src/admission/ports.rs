//! Ports of the host that may be published.

use std::{fmt, net::IpAddr, str::FromStr};

use crate::{Port, PortRange};

/// Ports that may be published: `127.0.0.1:8000-8999`, `8080`, `[::1]:*`, `0.0.0.0:443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRule {
    /// The address of the host; `None` is every one.
    address: Option<IpAddr>,
    /// `None` is every port.
    ports: Option<PortRange>,
}

/// A text that is no [`PortRule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a port rule; write `8080`, `8000-8999`, `127.0.0.1:*` or `127.0.0.1:8080`")]
pub struct InvalidPortRule(String);

impl PortRule {
    /// Whether the rule allows a published port. A port that the engine chooses needs a rule for every port.
    pub(super) fn allows(&self, port: &Port) -> bool {
        let is_address = match (self.address, port.host_ip) {
            (None, _) => true,
            (Some(address), Some(given)) => address == given,
            (Some(address), None) => address.is_unspecified(),
        };
        let is_port = match (self.ports, port.host) {
            (None, _) => true,
            (Some(allowed), Some(given)) => given.first >= allowed.first && given.last <= allowed.last,
            (Some(_), None) => false,
        };
        is_address && is_port
    }
}

impl FromStr for PortRule {
    type Err = InvalidPortRule;

    fn from_str(text: &str) -> Result<Self, InvalidPortRule> {
        let invalid = || InvalidPortRule(text.to_owned());
        let (address, ports) = match text.rsplit_once(':') {
            Some((address, ports)) => {
                let address =
                    address.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(address);
                (Some(address.parse().map_err(|_| invalid())?), ports)
            }
            None => (None, text),
        };
        let number = |text: &str| text.parse::<u16>().ok().filter(|it| *it > 0).ok_or_else(invalid);
        let ports = match ports.split_once('-') {
            _ if ports == "*" => None,
            Some((first, last)) => Some(PortRange { first: number(first)?, last: number(last)? }),
            None => Some(PortRange::one(number(ports)?)),
        };
        if ports.is_some_and(|range| range.first > range.last) {
            return Err(invalid());
        }
        Ok(Self { address, ports })
    }
}

/// A published port as Compose writes it.
pub(super) struct Published<'a>(pub(super) &'a Port);

impl fmt::Display for Published<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Port { container, protocol, host_ip, host } = self.0;
        match host {
            Some(range) if range.first == range.last => {
                write!(f, "port {}/{}", range.first, protocol.as_str())?;
            }
            Some(range) => write!(f, "ports {}-{}/{}", range.first, range.last, protocol.as_str())?,
            None => write!(f, "a free port of the host for {container}/{}", protocol.as_str())?,
        }
        match host_ip {
            Some(address) => write!(f, " on {address}"),
            None => f.write_str(" on every address"),
        }
    }
}
