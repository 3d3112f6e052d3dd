//! Services: names by which the containers of an application reach each other, and host ports for access from outside.
//!
//! The engine's name resolution answers with the addresses of all selected instances. A proxy is used where that is not
//! enough: another port than the container's, one host port for several instances, or session affinity. See
//! [`super::proxy`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use super::{
    Found,
    catalogue::{Identity, Key, identity},
    container::{HostPort, port_number},
    fields, names, proxy,
    reader::{Object, Report, Value},
};
use driftless_model::{Finding, Location, Port, PortRange, Protocol};
use driftless_yaml::Scalar;

/// How a Service is reached from outside the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Only inside the application.
    Inside,
    /// On `nodePort` of the host.
    NodePort,
    /// On its own port of the host.
    LoadBalancer,
}

pub(super) struct Service<'a> {
    pub(super) key: Key,
    pub(super) origin: Location,
    answer: Answer<'a>,
    is_headless: bool,
    pub(super) ports: Vec<ServicePort<'a>>,
    /// The duration of session affinity.
    pub(super) affinity: Option<Duration>,
}

pub(super) struct ServicePort<'a> {
    pub(super) value: Value<'a>,
    pub(super) port: u16,
    target: Target<'a>,
    pub(super) protocol: Protocol,
    /// The `nodePort`, which a NodePort has and a LoadBalancer may have.
    pub(super) node: NodePort,
    /// Its host ports, each with an address of the host unless it is on all.
    pub(super) published: Vec<(Option<IpAddr>, u16)>,
}

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

/// Where the traffic goes.
enum Target<'a> {
    Number(u16),
    Name(&'a str),
}

/// The target of the Service's names.
enum Answer<'a> {
    /// The pods that have these labels.
    Pods(BTreeMap<String, String>, Value<'a>),
    /// An external DNS name.
    Outside(&'a str),
}

/// Reads a Service.
pub(super) fn read<'a>(value: Value<'a>) -> Option<Service<'a>> {
    let object = value.object(fields::OBJECT)?;
    let metadata = object.require("metadata").and_then(|it| it.object(fields::METADATA))?;
    let Identity { key, origin } = identity(&metadata)?;
    names::service(&metadata.get("name")?)?;
    let spec = object.require("spec").and_then(|it| it.object(fields::SERVICE))?;
    let words = [
        ("ClusterIP", Some(Reach::Inside)),
        ("NodePort", Some(Reach::NodePort)),
        ("LoadBalancer", Some(Reach::LoadBalancer)),
        ("ExternalName", None),
    ];
    let reach = spec.get("type").map_or(Some(Some(Reach::Inside)), |it| it.one_of(&words))?;
    let (reach, answer) = match reach {
        Some(reach) => (reach, pods(&spec)?),
        None => (Reach::Inside, outside(&spec)?),
    };
    let is_headless = spec.get("clusterIP").and_then(|it| it.node.as_scalar()) == Some("None");
    if let Some(address) = spec.get("clusterIP").filter(|it| it.node.as_scalar() != Some("")) {
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
    let external = external_addresses(&spec);
    let affinity = affinity(&spec);
    let read = |it: Value<'a>| {
        let port = read_port(it, reach, &external)?;
        // A published headless Service is already reported.
        Some(if is_headless { ServicePort { published: Vec::new(), ..port } } else { port })
    };
    let ports = spec.items("ports").into_iter().filter_map(read).collect();
    Some(Service { key, origin, answer, is_headless, ports, affinity })
}

/// The target of a Service that selects pods.
fn pods<'a>(spec: &Object<'a>) -> Option<Answer<'a>> {
    if let Some(name) = spec.get("externalName").filter(|it| it.node.as_scalar() != Some("")) {
        name.error_help("must not be set unless `type` is `ExternalName`", "remove it, or set that");
    }
    let Some(selector) = spec.get("selector").filter(|it| !it.node.entries().is_empty()) else {
        spec.value.warning(
            "has no effect: a Service without a selector has the endpoints that somebody writes, and nobody does here",
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

/// The timeout of session affinity; default three hours.
fn affinity(spec: &Object<'_>) -> Option<Duration> {
    const DEFAULT: i64 = 10_800;
    let words = [("None", false), ("ClientIP", true)];
    let is_sticky = spec.get("sessionAffinity").and_then(|it| it.one_of(&words)).unwrap_or(false);
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
    if let Some(name) = object.get("name") {
        names::label(&name);
    }
    let protocols = [("TCP", Protocol::Tcp), ("UDP", Protocol::Udp), ("SCTP", Protocol::Sctp)];
    let protocol = object.get("protocol").and_then(|it| it.one_of(&protocols)).unwrap_or_default();
    let target = match object.get("targetPort") {
        None => Target::Number(port),
        Some(value) => match value.node.resolved() {
            Some(Scalar::Text(_)) => Target::Name(names::port(&value)?),
            _ => match value.integer(0..=65535)? {
                0 => Target::Number(port),
                number => Target::Number(u16::try_from(number).ok()?),
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

/// Gives each Service's names and ports to the workloads it selects, or to a proxy, which is a workload as well.
pub(super) fn connect(
    services: &[Service<'_>],
    workloads: &mut [Found],
    nets: &Nets,
    report: &Report,
) -> Vec<Found> {
    let names: BTreeSet<&str> = services.iter().map(|it| it.key.name.as_str()).collect();
    for found in workloads.iter_mut() {
        nets.join(found, &names);
        check_subdomain(found, services, report);
    }
    let mut proxies = Vec::new();
    for service in services {
        let (selector, place) = match &service.answer {
            Answer::Outside(name) => {
                proxies.extend(proxy::to(service, name, nets));
                continue;
            }
            Answer::Pods(selector, place) => (selector, place),
        };
        let selects =
            |it: &&mut Found| it.key.namespace == service.key.namespace && is_selected(selector, it);
        let mut selected: Vec<&mut Found> = workloads.iter_mut().filter(selects).collect();
        if selected.is_empty() {
            let message = format!(
                "`{}` selects no workload of this application, so nobody answers to its name",
                service.key.dotted()
            );
            let nearest = nearest(&service.key, selector, workloads);
            let finding = place.node.warning(&*place.path, message);
            report.say(match nearest {
                Some(help) => finding.help(help),
                None => finding,
            });
            continue;
        }
        // Pods of a StatefulSet have their own names, also if a proxy has the Service's.
        for found in &mut selected {
            nets.name_pod(found, service);
            if service.is_headless {
                nets.name_host(found, &service.key);
            }
        }
        if proxy::is_needed(service, &selected) {
            proxies.extend(proxy::before(service, &mut selected, nets, report));
            continue;
        }
        for found in selected {
            if proxy::is_on_host(found) {
                place.warning(format!(
                    "`{}` uses the network of the host, and so is no answer to the name of a headless Service",
                    found.name
                ));
            }
            nets.name(found, &service.key);
            for port in &service.ports {
                let Some(target) = target(port, found, report) else { continue };
                for (address, host) in &port.published {
                    publish(port, target, (*address, *host), found);
                }
            }
        }
    }
    proxies
}

/// A pod has its DNS name only in a headless Service that selects it.
fn check_subdomain(found: &Found, services: &[Service<'_>], report: &Report) {
    let Some(wanted) = &found.subdomain else { return };
    let knows_it = |it: &Service<'_>| {
        let selects = matches!(&it.answer, Answer::Pods(selector, _) if is_selected(selector, found));
        selects && it.is_headless && it.key == Key::new(&found.key.namespace, &wanted.service)
    };
    if !services.iter().any(knows_it) {
        let message = format!("has no effect: no headless Service `{}` selects the pod", wanted.service);
        report.say(Finding::warning(wanted.location.clone(), &*wanted.path, message));
    }
}

fn is_selected(selector: &BTreeMap<String, String>, found: &Found) -> bool {
    selector.iter().all(|(key, value)| found.labels.get(key) == Some(value))
}

/// Explains a selector that matches a workload only partly.
fn nearest(service: &Key, selector: &BTreeMap<String, String>, workloads: &[Found]) -> Option<String> {
    workloads.iter().filter(|it| it.key.namespace == service.namespace).find_map(|it| {
        let (key, value) =
            selector.iter().find(|(key, value)| it.labels.get(*key).is_some_and(|found| found != *value))?;
        let found = it.labels.get(key)?;
        Some(format!("`{}` has `{key}: {found}`, the Service wants `{key}: {value}`", it.name))
    })
}

impl Service<'_> {
    /// Whether the Service's name resolves to the addresses of its pods.
    pub(super) fn is_headless(&self) -> bool {
        self.is_headless
    }
}

/// The container port behind a Service's port.
pub(super) fn target(port: &ServicePort<'_>, found: &Found, report: &Report) -> Option<u16> {
    let number = port.target_in(found);
    if number.is_none()
        && let Target::Name(name) = port.target
    {
        let message = format!("`{}` has no port named `{name}`", found.name);
        let place = port.value.node.get("targetPort").unwrap_or(port.value.node);
        let path = format!("{}.targetPort", port.value.path);
        report.say(place.finding(path, message).help("name the port in the container's `ports`"));
    }
    number
}

impl ServicePort<'_> {
    /// The target port as a number, if it is not a name.
    pub(super) fn target_number(&self) -> u16 {
        match self.target {
            Target::Number(number) => number,
            Target::Name(_) => self.port,
        }
    }

    /// Sets the `nodePort` that was chosen for it.
    pub(super) fn assign(&mut self, number: u16) {
        self.node = NodePort::Number(number);
        self.published.insert(0, (None, number));
    }

    pub(super) fn target_in(&self, found: &Found) -> Option<u16> {
        match self.target {
            Target::Number(number) => Some(number),
            Target::Name(name) => found.named.get(name).copied(),
        }
    }
}

/// Publishes a container port on a host port.
pub(super) fn publish(
    port: &ServicePort<'_>,
    target: u16,
    (host_ip, host): (Option<IpAddr>, u16),
    found: &mut Found,
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
        });
    }
}

/// The networks of an application: one for all, with names that include the namespace; and with several namespaces, one
/// for each, with short names.
pub(super) struct Nets {
    all: String,
    by_namespace: BTreeMap<String, String>,
}

impl Nets {
    pub(super) fn new(app: &str, namespaces: &BTreeSet<&str>) -> Self {
        let several = namespaces.len() > 1;
        let own = namespaces.iter().filter(|_| several);
        Self {
            all: format!("{app}_default"),
            by_namespace: own.map(|it| ((*it).to_owned(), format!("{app}_namespace-{it}"))).collect(),
        }
    }

    /// Network names in Docker, by key.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, String)> {
        let own = self.by_namespace.iter().map(|(key, name)| (name.clone(), format!("namespace-{key}")));
        std::iter::once((self.all.clone(), "default".to_owned())).chain(own)
    }

    /// The network of short names.
    fn near(&self, namespace: &str) -> &str {
        self.by_namespace.get(namespace).unwrap_or(&self.all)
    }

    /// Joins a workload to its networks, under its own name unless a Service has it.
    fn join(&self, found: &mut Found, services: &BTreeSet<&str>) {
        let near = self.near(&found.key.namespace).to_owned();
        let is_free = !services.contains(found.key.name.as_str());
        let aliases: Vec<String> = is_free.then(|| found.name.as_str().to_owned()).into_iter().collect();
        found.attach(&self.all, aliases);
        if near != self.all {
            found.attach(&near, is_free.then(|| found.key.name.clone()).into_iter().collect());
        }
    }

    /// Gives a workload the names of a Service.
    pub(super) fn name(&self, found: &mut Found, Key { name, namespace }: &Key) {
        let far = ["", ".svc", ".svc.cluster.local"].map(|it| format!("{name}.{namespace}{it}"));
        found.attach(&self.all, far.into());
        found.attach(self.near(namespace), vec![name.clone()]);
    }

    /// Gives a StatefulSet's pod its own name, if this is its governing Service.
    fn name_pod(&self, found: &mut Found, service: &Service<'_>) {
        let Key { name, namespace } = &service.key;
        let Some(pod) = found.pod_name.clone().filter(|_| found.service.as_ref() == Some(name)) else {
            return;
        };
        let far = ["", ".svc", ".svc.cluster.local"].map(|it| format!("{pod}.{name}.{namespace}{it}"));
        found.attach(&self.all, far.into());
        found.attach(self.near(namespace), vec![format!("{pod}.{name}")]);
    }

    /// Gives a pod its `hostname` in this Service, if it is the pod's `subdomain`.
    fn name_host(&self, found: &mut Found, Key { name, namespace }: &Key) {
        let Some(host) = found.subdomain.as_ref().filter(|it| it.service == *name) else { return };
        let host = host.hostname.clone();
        let far = ["", ".svc", ".svc.cluster.local"].map(|it| format!("{host}.{name}.{namespace}{it}"));
        found.attach(&self.all, far.into());
        found.attach(self.near(namespace), vec![format!("{host}.{name}")]);
    }

    /// Gives a workload the alias that only this Service's proxy resolves; another Service may select other pods of the same
    /// object. No manifest can use this alias.
    pub(super) fn name_endpoints(&self, found: &mut Found, service: &Key) -> String {
        let name = format!("_{}._{}", service.dotted(), found.object.dotted());
        found.attach(&self.all, vec![name.clone()]);
        name
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

/// The container's own view of a Service's target, for [`Object`]s that name one.
pub(super) fn service_name<'a>(spec: &Object<'a>) -> Option<&'a str> {
    spec.get("serviceName").and_then(|it| names::label(&it))
}
