//! `ports` and `expose` of a service, in the short and the long syntax.

use std::{collections::BTreeSet, net::IpAddr};

use driftless_model::{Port, PortRange, Protocol};
use driftless_yaml::{Dialect as _, Kind};

use crate::spec::{
    keys::PORT,
    scalar::Compose,
    short,
    value::{Read as _, Value},
};

/// The number of ports that a service may publish, and all services may expose: more than there are is a mistake.
const MOST_PORTS: usize = 65_536;

/// A port in the long syntax.
#[derive(Debug, Default)]
struct LongPort {
    target: Option<PortRange>,
    published: Option<PortRange>,
    host_ip: Option<IpAddr>,
    protocol: Protocol,
}

/// The published ports of a service.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// All of them, sorted, each once.
    pub(crate) ports: Vec<Port>,
    /// Those in `mode: host`.
    pub(crate) direct: BTreeSet<Port>,
}

pub(crate) fn ports(value: &Value<'_>) -> Published {
    let (mut ports, mut direct) = (Vec::new(), BTreeSet::new());
    for item in value.sequence() {
        let read = match &item.node.kind {
            Kind::Mapping(_) => {
                let read = long_port(&item);
                if item.node.get("mode").and_then(|mode| mode.as_scalar()) == Some("host") {
                    direct.extend(read.iter().flatten().flatten().cloned());
                }
                read
            }
            Kind::Scalar { .. } | Kind::Sequence(_) => item.text_or_number().map(|text| short::ports(&text)),
        };
        match read {
            Some(Ok(more)) => ports.extend(more),
            Some(Err(message)) => item.error(message),
            None => {}
        }
        if ports.len() > MOST_PORTS {
            item.error("the service has more ports than there are port numbers");
            return Published::default();
        }
    }
    ports.sort_unstable();
    ports.dedup();
    Published { ports, direct }
}

/// `None`: a mistake was reported.
fn long_port(item: &Value<'_>) -> Option<Result<Vec<Port>, String>> {
    let mut port = LongPort::default();
    for (key, value) in item.fields(&PORT) {
        match key {
            "target" => port.target = part(&value, short::range),
            "published" => port.published = part(&value, short::range),
            "host_ip" => port.host_ip = part(&value, short::host_ip),
            "protocol" => port.protocol = part(&value, short::protocol).unwrap_or_default(),
            // Both modes publish on the host. In `host` each instance does so itself, as in Swarm.
            "mode" => match value.owned().as_deref() {
                Some("host" | "ingress" | "") | None => {}
                Some(other) => value.error(format!("`{other}` is not a mode; remove the key")),
            },
            _ => value.refuse("is not supported yet"),
        }
    }
    let LongPort { target, published, host_ip, protocol } = port;
    match target {
        Some(target) => Some(
            short::pair(target, published, host_ip, protocol)
                .ok_or_else(|| "`target` and `published` are ranges of different lengths".to_owned()),
        ),
        None if is_given(item, "target") => None,
        None => Some(Err("needs a `target`".to_owned())),
    }
}

fn is_given(item: &Value<'_>, key: &str) -> bool {
    item.node.get(key).is_some_and(|node| Compose::text(node).is_none_or(|text| !text.is_empty()))
}

/// A string or number, parsed by `parse`. The empty string counts as not given.
fn part<T>(value: &Value<'_>, parse: fn(&str) -> Result<T, String>) -> Option<T> {
    let text = value.text_or_number().filter(|text| !text.is_empty())?;
    match parse(&text) {
        Ok(part) => Some(part),
        Err(message) => {
            value.error(message);
            None
        }
    }
}

/// Whether the services expose no more ports together than there are. What is too much is an error.
pub(crate) fn check_exposed(services: &Value<'_>) -> bool {
    let mut exposed = 0;
    for service in services.mapping() {
        let inner = services.key(&service.key, &service.value);
        let Some(list) = service.value.get("expose") else { continue };
        for item in inner.key("expose", list).sequence() {
            let text = item.node.as_scalar().unwrap_or_default();
            let numbers = text.split_once('/').map_or(text, |(numbers, _)| numbers);
            let Ok(range) = short::range(numbers) else { continue };
            exposed += usize::from(range.last - range.first) + 1;
            if exposed > MOST_PORTS {
                item.error(format!("the services expose more than {MOST_PORTS} ports together"));
                return false;
            }
        }
    }
    true
}

/// The ports of `expose`, sorted, each once.
pub(crate) fn expose(value: &Value<'_>) -> Vec<(u16, Protocol)> {
    let mut ports = Vec::new();
    for item in value.sequence() {
        let Some(text) = item.text_or_number() else { continue };
        let (numbers, protocol) = text.split_once('/').unwrap_or((&text, "tcp"));
        let read = short::range(numbers).and_then(|range| Ok((range, short::protocol(protocol)?)));
        match read {
            Ok((range, protocol)) => ports.extend((range.first..=range.last).map(|port| (port, protocol))),
            Err(message) => item.error(message),
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}
