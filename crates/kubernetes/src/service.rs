//! Reads Services: names by which the containers of an application reach each other, and host ports for access from
//! outside. [`super::service_routes`] connects them with workloads.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use super::{
    fields, names,
    object::{Identity, Key, identity},
    ports::{HostPort, Taker, port_number},
    reader::{Object, Report, Value},
    sync_annotations::PROXY,
    workload::ReadWorkload,
};
use driftless_model::{Finding, Location, Port, PortRange, Protocol};
use driftless_yaml::Scalar;

/// The access to a Service from outside the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Only inside the application.
    Inside,
    /// On `nodePort` of the host.
    NodePort,
    /// On its own port of the host.
    LoadBalancer,
}

/// A Service as it was read.
pub(super) struct Service<'a> {
    pub(super) key: Key,
    pub(super) origin: Location,
    pub(super) answer: Answer<'a>,
    is_headless: bool,
    pub(super) ports: Vec<ServicePort<'a>>,
    /// The duration of session affinity.
    pub(super) affinity: Option<Duration>,
    /// Pods that are not ready get traffic too (`publishNotReadyAddresses`).
    pub(super) publishes_not_ready: bool,
    /// The annotation `driftless.proxy` asks for a proxy.
    pub(super) asks_for_proxy: bool,
}

/// One of the `ports` of a Service.
pub(super) struct ServicePort<'a> {
    pub(super) value: Value<'a>,
    pub(super) port: u16,
    target: TargetPort<'a>,
    pub(super) protocol: Protocol,
    /// The `nodePort`, which a NodePort has and a LoadBalancer may have.
    pub(super) node: NodePort,
    /// Its host ports, each with an address of the host unless it is on all.
    pub(super) published: Vec<(Option<IpAddr>, u16)>,
}

/// The `nodePort` of a Service's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodePort {
    None,
    /// It needs a `nodePort` and the manifest names none.
    Any,
    Number(u16),
}

impl NodePort {
    pub(super) fn number(self) -> Option<u16> {
        match self {
            Self::Number(number) => Some(number),
            Self::None | Self::Any => None,
        }
    }
}

/// The targets of the traffic.
enum TargetPort<'a> {
    Number(u16),
    Name(&'a str),
}

/// The target of the Service's names.
pub(super) enum Answer<'a> {
    /// The pods that have these labels.
    Pods(BTreeMap<String, String>, Value<'a>),
    /// An external DNS name.
    Outside(&'a str),
}

/// Reads a Service.
pub(super) fn read<'a>(value: Value<'a>) -> Option<Service<'a>> {
    let object = value.object(fields::OBJECT)?;
    let metadata = object.require("metadata").and_then(|it| it.object(fields::METADATA))?;
    let Identity { key, origin } = identity(&metadata, &[PROXY])?;
    names::service(&metadata.get("name")?)?;
    let spec = object.require("spec").and_then(|it| it.object(fields::SERVICE))?;
    let words = [
        ("ClusterIP", Some(Reach::Inside)),
        ("NodePort", Some(Reach::NodePort)),
        ("LoadBalancer", Some(Reach::LoadBalancer)),
        ("ExternalName", None),
    ];
    let reach = spec.filled("type").map_or(Some(Some(Reach::Inside)), |it| it.one_of(&words))?;
    let (reach, answer) = match reach {
        Some(reach) => (reach, pods(&spec)?),
        None => (Reach::Inside, outside(&spec)?),
    };
    let is_headless = spec.get("clusterIP").and_then(|it| it.node.as_scalar()) == Some("None");
    if let Some(address) = spec.filled("clusterIP") {
        if !is_headless {
            address.warning(
                "has no effect: the name of the Service is answered with the addresses of the containers",
            );
        } else if reach != Reach::Inside {
            address.error_help(
                "a Service without an address of its own cannot be published on the host",
                "remove it, or set `type: ClusterIP`",
            );
        }
    }
    check_ports(&spec, is_headless);
    check_source_ranges(&spec);
    let external = external_addresses(&spec);
    let affinity = affinity(&spec);
    let read = |it: Value<'a>| {
        let port = read_port(it, reach, &external)?;
        // A published headless Service is already reported.
        Some(if is_headless { ServicePort { published: Vec::new(), ..port } } else { port })
    };
    let ports: Vec<ServicePort<'a>> = spec.items("ports").into_iter().filter_map(read).collect();
    let publishes_not_ready = spec.boolean("publishNotReadyAddresses").unwrap_or(false);
    let asks_for_proxy = asks_for_proxy(&metadata, &answer, is_headless, &ports);
    Some(Service { key, origin, answer, is_headless, ports, affinity, publishes_not_ready, asks_for_proxy })
}

/// Whether an annotation asks for a proxy. A headless Service cannot have one, nor a port of SCTP.
fn asks_for_proxy(
    metadata: &Object<'_>,
    answer: &Answer<'_>,
    is_headless: bool,
    ports: &[ServicePort<'_>],
) -> bool {
    let Some(annotations) = metadata.get("annotations") else { return false };
    let Some(node) = annotations.node.get(PROXY) else { return false };
    let asked = annotations.key(PROXY, node);
    if asked.one_of(&[("true", ())]).is_none() {
        return false;
    }
    let has_sctp = ports.iter().any(|port| port.protocol == Protocol::Sctp);
    if is_headless {
        asked.error_help("a headless Service has no proxy", "remove it, or `clusterIP: None`");
    } else if has_sctp {
        asked.error_help("a proxy does not forward SCTP", "remove it, or give SCTP a Service of its own");
    } else if matches!(answer, Answer::Outside(_)) {
        asked.warning("has no effect: an ExternalName has a proxy in any case");
    }
    !is_headless && !has_sctp
}

/// The target of a Service that selects pods.
fn pods<'a>(spec: &Object<'a>) -> Option<Answer<'a>> {
    if let Some(name) = spec.filled("externalName") {
        name.error_help("must not be set unless `type` is `ExternalName`", "remove it, or set that");
    }
    let Some(selector) = spec.get("selector").filter(|it| !it.node.entries().is_empty()) else {
        spec.value.warning(
            "has no effect: a Service without a selector needs hand-written endpoints, which are not supported",
        );
        return None;
    };
    Some(Answer::Pods(names::labels(&selector), selector))
}

/// The target of an `ExternalName`. The engine has no CNAMEs, so a proxy is used, which needs ports to listen on.
fn outside<'a>(spec: &Object<'a>) -> Option<Answer<'a>> {
    let name = spec.require("externalName")?;
    let text = names::subdomain(&name)?;
    if text.parse::<IpAddr>().is_ok() {
        name.error_help("must be a name, but it is an address", "use `hostAliases` of the pods that need it");
        return None;
    }
    if spec.get("ports").is_none_or(|it| it.node.items().is_empty()) {
        name.error_help(
            "an ExternalName needs its `ports` here: names are answered with addresses of containers, and the one that \
             forwards must know what to listen on",
            "list the ports that clients use, or let them use the external name itself",
        );
        return None;
    }
    Some(Answer::Outside(text))
}

/// Addresses of the host on which the Service's ports are published.
fn external_addresses(spec: &Object<'_>) -> Vec<IpAddr> {
    let address = |value: Value<'_>| {
        let text = value.text()?;
        let found = text.parse::<IpAddr>().ok().filter(|it| !it.is_unspecified() && !it.is_loopback());
        if found.is_none() {
            value.error(format!("`{text}` is not an IP address by which others could reach this host"));
        }
        found
    };
    spec.items("externalIPs").into_iter().filter_map(address).collect()
}

/// Reports the addresses of clients that a load balancer admits. A published port admits all.
fn check_source_ranges(spec: &Object<'_>) {
    let Some(ranges) = spec.get("loadBalancerSourceRanges") else { return };
    let texts = ranges.strings();
    if texts.iter().any(|range| range.trim() == "0.0.0.0/0") {
        ranges.warning("has no effect: a published port admits all clients, as these ranges do");
    } else if !texts.is_empty() {
        ranges.error_help(
            "is not supported yet, and without it the port would be open for all clients",
            "restrict the port in the firewall of the host, and remove it",
        );
    }
}

/// The timeout of session affinity; default three hours.
fn affinity(spec: &Object<'_>) -> Option<Duration> {
    const DEFAULT: i64 = 10_800;
    let words = [("None", false), ("ClientIP", true)];
    let is_sticky = spec.filled("sessionAffinity").and_then(|it| it.one_of(&words)).unwrap_or(false);
    let config = spec.object("sessionAffinityConfig", fields::AFFINITY);
    if let Some(config) = config.as_ref().filter(|_| !is_sticky) {
        config.value.error_help("must not be set when `sessionAffinity` is `None`", "set that to `ClientIP`");
    }
    let client = config.and_then(|it| it.object("clientIP", fields::CLIENT_IP));
    let seconds = client.and_then(|it| it.integer("timeoutSeconds", 1..=86_400)).unwrap_or(DEFAULT);
    is_sticky.then(|| Duration::from_secs(seconds.unsigned_abs()))
}

/// Reports duplicate names and numbers among a Service's ports.
fn check_ports(spec: &Object<'_>, is_headless: bool) {
    let ports = spec.get("ports").map(|it| it.node.items()).unwrap_or_default();
    if ports.is_empty() && !is_headless {
        let help = "name a port that clients use, or set `clusterIP: None`";
        spec.value.error_help("a Service needs a port, unless it is headless", help);
    }
    let mut seen: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
    for (index, port) in ports.iter().enumerate() {
        let text = |field: &str| port.get(field).and_then(|it| it.as_scalar()).unwrap_or_default();
        let protocol = Some(text("protocol")).filter(|it| !it.is_empty()).unwrap_or("TCP");
        let place = |field: &str| {
            let path = format!("{}.ports[{index}].{field}", spec.value.path);
            Value::new(port.get(field).unwrap_or(port), path, spec.value.report())
        };
        if ports.len() > 1 && text("name").is_empty() {
            place("name").error_help("`name` is missing: of several ports each needs one", "name it");
        }
        for (field, protocol) in [("name", ""), ("port", protocol), ("nodePort", protocol)] {
            let value = text(field);
            if value.is_empty() || value == "0" {
                continue;
            }
            if let Some(line) = seen.insert((field, value, protocol), port.place.line) {
                place(field)
                    .error(format!("`{value}` is already the {field} of another port, in line {line}"));
            }
        }
    }
}

fn read_port<'a>(item: Value<'a>, reach: Reach, external: &[IpAddr]) -> Option<ServicePort<'a>> {
    let object = item.clone().object(fields::SERVICE_PORT)?;
    let port = object.require("port").and_then(|it| port_number(&it))?;
    if let Some(name) = object.filled("name") {
        names::label(&name);
    }
    let protocols = [("TCP", Protocol::Tcp), ("UDP", Protocol::Udp), ("SCTP", Protocol::Sctp)];
    let protocol = object.filled("protocol").and_then(|it| it.one_of(&protocols)).unwrap_or_default();
    let target = match object.filled("targetPort") {
        None => TargetPort::Number(port),
        Some(value) => match value.node.resolved() {
            Some(Scalar::Text(_)) => TargetPort::Name(names::port(&value)?),
            _ => match value.integer(0..=65535)? {
                0 => TargetPort::Number(port),
                number => TargetPort::Number(u16::try_from(number).ok()?),
            },
        },
    };
    let node_port = object.get("nodePort").filter(|it| it.node.as_i64() != Some(0));
    if let Some(value) = node_port.as_ref().filter(|_| reach == Reach::Inside) {
        value.error_help("must not be set when `type` is `ClusterIP`", "remove it, or set `type: NodePort`");
    }
    let node = match node_port {
        Some(value) => NodePort::Number(u16::try_from(value.integer(NODE_PORTS)?).ok()?),
        None if reach == Reach::NodePort => NodePort::Any,
        None => NodePort::None,
    };
    let own = (reach == Reach::LoadBalancer).then_some(port);
    let everywhere = own.into_iter().chain(node.number()).map(|it| (None, it));
    // A port on all addresses includes this one.
    let external = external.iter().filter(|_| own.is_none()).map(|it| (Some(*it), port));
    let published = everywhere.chain(external).collect();
    Some(ServicePort { value: item, port, target, protocol, node, published })
}

/// The default range of the API server.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

impl Service<'_> {
    /// Whether the Service's name resolves to the addresses of its pods.
    pub(super) fn is_headless(&self) -> bool {
        self.is_headless
    }
}

/// Checks the ports that a Service names. As in a cluster, a pod without a port of this name gets no traffic of it, and one
/// without any of the names is not behind the Service. A name that no pod has is an error.
pub(super) fn check_targets(service: &Service<'_>, selected: &mut Vec<&mut ReadWorkload>, report: &Report) {
    let mut is_wrong = false;
    for port in &service.ports {
        let TargetPort::Name(name) = port.target else { continue };
        let place = port.value.node.get("targetPort").unwrap_or(port.value.node);
        let path = format!("{}.targetPort", port.value.path);
        let without = selected.iter().filter(|found| port.target_in(found).is_none());
        let without: Vec<&ReadWorkload> = without.map(|found| &**found).collect();
        let has_nobody = without.len() == selected.len();
        is_wrong |= has_nobody;
        for found in without {
            let message = format!("`{}` has no port named `{name}`", found.name);
            if has_nobody {
                report.say(place.finding(&*path, message).help("name the port in the container's `ports`"));
            } else if found.workload.job_or_template().is_none() {
                let warning = place.warning(&*path, format!("{message}, and gets no traffic of this one"));
                report.say(warning.help("name the port in its container too, or select it by no label"));
            }
        }
    }
    if !is_wrong && !service.ports.is_empty() {
        selected.retain(|found| service.ports.iter().any(|port| port.target_in(found).is_some()));
    }
}

impl ServicePort<'_> {
    /// The target port as a number, if it is not a name.
    pub(super) fn target_number(&self) -> u16 {
        match self.target {
            TargetPort::Number(number) => number,
            TargetPort::Name(_) => self.port,
        }
    }

    /// Sets the `nodePort` that was chosen for it.
    pub(super) fn assign(&mut self, number: u16) {
        self.node = NodePort::Number(number);
        self.published.insert(0, (None, number));
    }

    /// The port of the container that the target names. `None`: it has no port of this name.
    pub(super) fn target_in(&self, found: &ReadWorkload) -> Option<u16> {
        match self.target {
            TargetPort::Number(number) => Some(number),
            TargetPort::Name(name) => found.named.get(name).copied(),
        }
    }
}

/// Publishes a container port on a host port.
pub(super) fn publish(
    port: &ServicePort<'_>,
    target: u16,
    (host_ip, host): (Option<IpAddr>, u16),
    found: &mut ReadWorkload,
) {
    let wanted =
        Port { container: target, protocol: port.protocol, host_ip, host: Some(PortRange::one(host)) };
    let container = &mut found.workload.container;
    container.expose.retain(|it| *it != (target, port.protocol));
    if !container.ports.contains(&wanted) {
        container.ports.push(wanted);
        container.ports.sort();
        found.published.push(HostPort {
            location: port.value.place().location(),
            path: port.value.path.clone(),
            host,
            protocol: port.protocol,
            host_ip,
            taken_by: Taker::Service,
        });
    }
}

/// Reports two Services of one name in one namespace.
pub(super) fn check_names(services: &[Service<'_>], report: &Report) {
    let mut known: BTreeMap<&Key, &Location> = BTreeMap::new();
    for service in services {
        if let Some(first) = known.insert(&service.key, &service.origin) {
            let message = format!("the Service `{}` is already defined at {first}", service.key.dotted());
            let finding = Finding::error(service.origin.clone(), "metadata.name", message);
            report.say(finding.help("rename one of the two, or remove it"));
        }
    }
}
