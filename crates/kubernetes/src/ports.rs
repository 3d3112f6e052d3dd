//! The ports of a container: exposed, published on the host, and named.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    fields, names,
    reader::{Object, Value},
};
use driftless_model::{Container, Location, NetworkMode, Port, PortRange, Protocol};

/// The ports of a container by name, to which probes, hooks and Services refer.
pub(super) type NamedPorts = BTreeMap<String, u16>;

/// A host port that the pod takes, with its place in the manifest.
pub(super) struct HostPort {
    pub(super) location: Location,
    pub(super) path: String,
    pub(super) host: u16,
    pub(super) protocol: Protocol,
    /// `None`: every address of the host.
    pub(super) host_ip: Option<IpAddr>,
    pub(super) taken_by: Taker,
}

/// The object whose manifest asks for a host port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// A container, with `hostPort`.
    Container,
    /// A pod on the host's network: each port of its containers is one of the host.
    HostNetwork,
    Service,
}

/// Reads `ports` into the container. Returns its named ports, and the ports of the host that it takes.
pub(super) fn read(object: &Object<'_>, container: &mut Container) -> (NamedPorts, Vec<HostPort>) {
    let mut named = NamedPorts::new();
    let mut published = Vec::new();
    let protocols = [("TCP", Protocol::Tcp), ("UDP", Protocol::Udp), ("SCTP", Protocol::Sctp)];
    for item in object.items("ports") {
        let Some(port) = item.object(fields::PORT) else { continue };
        let number = port.require("containerPort").and_then(|it| port_number(&it));
        let protocol = port.filled("protocol").and_then(|it| it.one_of(&protocols)).unwrap_or_default();
        let host = port.get("hostPort").filter(|it| it.node.as_i64() != Some(0));
        let host = host.and_then(|it| Some((port_number(&it)?, it)));
        let host_ip = port.filled("hostIP").and_then(|it| address(&it));
        let Some(number) = number else { continue };
        if let Some(value) = port.filled("name")
            && let Some(name) = names::port(&value)
            && named.insert(name.to_owned(), number).is_some()
        {
            value.error(format!("another port is already named `{name}`"));
        }
        let is_on_host = container.network_mode == NetworkMode::Host;
        if let Some((host, value)) = &host
            && is_on_host
            && *host != number
        {
            let help = format!("set it to {number}, or remove it");
            value.error_help("must be the same as `containerPort` with `hostNetwork`", help);
        }
        if let Some((host, value)) = host.filter(|_| !is_on_host) {
            published.push(HostPort {
                location: value.place().location(),
                path: value.path,
                host,
                protocol,
                host_ip,
                taken_by: Taker::Container,
            });
            container.ports.push(Port {
                container: number,
                protocol,
                host_ip,
                host: Some(PortRange::one(host)),
            });
            continue;
        }
        if is_on_host && let Some(value) = port.get("containerPort") {
            published.push(HostPort {
                location: value.place().location(),
                path: value.path,
                host: number,
                protocol,
                host_ip,
                taken_by: Taker::HostNetwork,
            });
        }
        container.expose.push((number, protocol));
    }
    container.ports.sort();
    container.expose.sort_unstable();
    container.expose.dedup();
    (named, published)
}

/// A number from 1 to 65535.
pub(super) fn port_number(value: &Value<'_>) -> Option<u16> {
    value.integer(1..=65535).and_then(|it| u16::try_from(it).ok())
}

/// An IP address.
pub(super) fn address(value: &Value<'_>) -> Option<IpAddr> {
    let text = value.text()?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        value.error(format!("`{text}` is not an IP address"));
    }
    parsed
}
