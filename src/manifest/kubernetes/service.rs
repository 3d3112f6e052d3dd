//! Services: the names under which the containers of an application find each other, and the ports of the host
//! under which others find them.
//!
//! A Service answers through the engine's own name resolution, with the addresses of all instances it selects;
//! there is no proxy. So where a proxy would be needed to be right (another port than the container's, one host
//! port for several instances), it is refused or said.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Found,
    catalogue::{Identity, Key, identity},
    container::{HostPort, port_number},
    fields, names,
    reader::{Object, Report, Value},
};
use crate::manifest::yaml::Scalar;
use crate::model::{Finding, Location, Port, PortRange, Protocol};

/// How a Service is reached from outside of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Not at all.
    Inside,
    /// On `nodePort` of the host.
    NodePort,
    /// On its own port of the host.
    LoadBalancer,
}

pub(super) struct Service<'a> {
    pub(super) key: Key,
    origin: Location,
    selector: BTreeMap<String, String>,
    selector_place: Value<'a>,
    is_headless: bool,
    reach: Reach,
    ports: Vec<ServicePort<'a>>,
    affinity: Option<Value<'a>>,
}

struct ServicePort<'a> {
    value: Value<'a>,
    port: u16,
    target: Target<'a>,
    protocol: Protocol,
    node_port: Option<u16>,
}

/// Where the traffic goes.
enum Target<'a> {
    Number(u16),
    Name(&'a str),
}

/// Reads a Service.
pub(super) fn read(value: Value<'_>) -> Option<Service<'_>> {
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
    let reach = match spec.get("type") {
        None => Reach::Inside,
        Some(value) => {
            let Some(reach) = value.one_of(&words)? else {
                let help = "use the external name itself, or `hostAliases` of the pods";
                value.error_help(
                    "an ExternalName is not supported: the engine answers for containers only",
                    help,
                );
                return None;
            };
            reach
        }
    };
    let Some(selector_place) = spec.get("selector").filter(|it| !it.node.entries().is_empty()) else {
        let message = "a Service without a selector is not supported: there is nobody to write its endpoints";
        spec.value.error_help(message, "give it the labels of the pods it stands for");
        return None;
    };
    let is_headless = spec.get("clusterIP").and_then(|it| it.node.as_scalar()) == Some("None");
    if let Some(address) = spec.get("clusterIP").filter(|it| !is_headless && it.node.as_scalar() != Some(""))
    {
        address.warning(
            "has no effect: the name of the Service is answered with the addresses of the containers",
        );
    }
    check_ports(&spec, is_headless);
    let ports = spec.items("ports").into_iter().filter_map(|it| read_port(it, reach)).collect();
    let words = [("None", false), ("ClientIP", true)];
    let affinity = spec.get("sessionAffinity").filter(|it| it.one_of(&words) == Some(true));
    let selector = names::labels(&selector_place);
    Some(Service { key, origin, selector, selector_place, is_headless, reach, ports, affinity })
}

/// What the ports of one Service must not have in common.
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

fn read_port(item: Value<'_>, reach: Reach) -> Option<ServicePort<'_>> {
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
    let node_port = node_port.and_then(|it| port_number(&it));
    if reach == Reach::NodePort && node_port.is_none() {
        let message =
            "a NodePort needs its `nodePort` here: nobody would know a port that was chosen at random";
        object.value.error_help(message, "add `nodePort`, any free port of the host");
        return None;
    }
    Some(ServicePort { value: item, port, target, protocol, node_port })
}

/// Gives each Service's names and ports to the workloads it selects.
pub(super) fn connect(services: &[Service<'_>], workloads: &mut [Found], nets: &Nets, report: &Report) {
    let names: BTreeSet<&str> = services.iter().map(|it| it.key.name.as_str()).collect();
    for found in workloads.iter_mut() {
        nets.join(found, &names);
    }
    for service in services {
        let selects = |it: &Found| {
            it.key.namespace == service.key.namespace
                && service.selector.iter().all(|(key, value)| it.labels.get(key) == Some(value))
        };
        let count = workloads.iter().filter(|it| selects(it)).count();
        if count == 0 {
            let message = format!(
                "`{}` selects no workload of this application, so nobody answers to its name",
                service.key.dotted()
            );
            let place = &service.selector_place;
            let nearest = nearest(service, workloads);
            let finding = place.node.warning(&*place.path, message);
            report.say(match nearest {
                Some(help) => finding.help(help),
                None => finding,
            });
        }
        for found in workloads.iter_mut().filter(|it| selects(it)) {
            nets.name(found, service);
            for port in &service.ports {
                open(service, port, found, count, report);
            }
            if let Some(value) =
                service.affinity.as_ref().filter(|_| found.workload.replicas > 1 || count > 1)
            {
                value.error_help(
                    "needs a proxy, which there is none of: clients would reach any of the instances",
                    "set it to None, or `replicas` to 1",
                );
            }
        }
    }
}

/// What is wrong with a selector, if some workload matches it in part.
fn nearest(service: &Service<'_>, workloads: &[Found]) -> Option<String> {
    workloads.iter().filter(|it| it.key.namespace == service.key.namespace).find_map(|it| {
        let (key, value) = service
            .selector
            .iter()
            .find(|(key, value)| it.labels.get(*key).is_some_and(|found| found != *value))?;
        let found = it.labels.get(key)?;
        Some(format!("`{}` has `{key}: {found}`, the Service wants `{key}: {value}`", it.name))
    })
}

/// One port of a Service on one workload.
fn open(service: &Service<'_>, port: &ServicePort<'_>, found: &mut Found, selected: usize, report: &Report) {
    let target = match port.target {
        Target::Number(number) => number,
        Target::Name(name) => {
            let Some(number) = found.named.get(name) else {
                let message = format!("`{}` has no port named `{name}`", found.name);
                let place = port.value.node.get("targetPort").unwrap_or(port.value.node);
                let path = format!("{}.targetPort", port.value.path);
                report.say(place.finding(path, message).help("name the port in the container's `ports`"));
                return;
            };
            *number
        }
    };
    let host = match service.reach {
        Reach::Inside => None,
        Reach::NodePort => port.node_port,
        Reach::LoadBalancer => Some(port.port),
    };
    if target != port.port && !service.is_headless {
        let ServicePort { port: own, .. } = port;
        let name = &service.key.name;
        let message = format!(
            "`{name}:{own}` is answered on port {target} inside the application: there is no proxy between them"
        );
        let finding = match host {
            // Who comes from outside is served right.
            Some(_) => port.value.node.warning(&*port.value.path, message),
            None => port.value.node.finding(&*port.value.path, message),
        };
        report.say(finding.help(format!("let clients use port {target}, and set `port: {target}`")));
    }
    let Some(host) = host else { return };
    let wanted = found.workload.replicas;
    if wanted > 1 || selected > 1 {
        let message = format!(
            "port {host} of the host can be held by one instance, but `{}` selects {}",
            service.key.dotted(),
            if selected > 1 { format!("{selected} workloads") } else { format!("{wanted} replicas") },
        );
        let help = "set `replicas` to 1, or put a reverse proxy of one instance before them";
        report.say(port.value.node.finding(&*port.value.path, message).help(help));
        return;
    }
    publish(port, target, host, found);
}

fn publish(port: &ServicePort<'_>, target: u16, host: u16, found: &mut Found) {
    let wanted =
        Port { container: target, protocol: port.protocol, host_ip: None, host: Some(PortRange::one(host)) };
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
            host_ip: None,
        });
    }
}

/// The networks of an application: one for all, on which everybody has a name with the namespace; and where there
/// are several namespaces, one for each, on which names need none.
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

    /// The networks' names in Docker, with their keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, String)> {
        let own = self.by_namespace.iter().map(|(key, name)| (name.clone(), format!("namespace-{key}")));
        std::iter::once((self.all.clone(), "default".to_owned())).chain(own)
    }

    /// Where names without a namespace are known.
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
    fn name(&self, found: &mut Found, service: &Service<'_>) {
        let Key { name, namespace } = &service.key;
        let near = self.near(namespace).to_owned();
        let long = [format!("{name}.{namespace}"), format!("{name}.{namespace}.svc")];
        let whole = format!("{name}.{namespace}.svc.cluster.local");
        let pod = found.pod_name.clone().filter(|_| found.service.as_deref() == Some(name));
        let pods = pod.iter().flat_map(|pod| {
            let prefixes = [format!("{pod}.{name}.{namespace}"), format!("{pod}.{name}.{namespace}.svc")];
            prefixes.into_iter().chain([format!("{pod}.{whole}")])
        });
        let far: Vec<String> = long.into_iter().chain([whole.clone()]).chain(pods).collect();
        found.attach(&self.all, far);
        let short = pod.iter().map(|pod| format!("{pod}.{name}")).chain([name.clone()]);
        let short: Vec<String> = short.collect();
        found.attach(&near, short);
    }
}

/// Two Services of one name in one namespace.
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
