//! Published ports that a proxy serves. Docker gives a port of the host to one container, so two instances cannot have it
//! at the same time. A proxy has it instead, and forwards to the ready instances (`crates/proxy`).

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use driftless_model::{
    Container, Dependency, Finding, Forward, ForwardLimits, Forwards, HANDOVER_TIME, Network, NetworkMode,
    Port, Protocol, Workload, WorkloadName, proxy_containers, worker_of,
};

use crate::{
    lower::context::Lowering,
    read::types::{Order, ProxySetting, Service},
};

impl Lowering<'_> {
    /// Moves the published ports of each service that needs it to a proxy.
    pub(crate) fn publish_by_proxies(&mut self, workloads: &mut BTreeMap<WorkloadName, Workload>) {
        let mut proxies = Vec::new();
        for (name, workload) in workloads.iter_mut() {
            let Some(service) = self.project.services.get(name.as_str()) else { continue };
            let ports = match &service.proxy {
                None if !is_needed(service, workload) => continue,
                None => movable(service, workload),
                Some(setting) => match &setting.value {
                    ProxySetting::Off => continue,
                    ProxySetting::On { .. } => {
                        if let Some(reason) = reason_against(service, workload) {
                            self.findings.push(setting.error(reason));
                            continue;
                        }
                        movable(service, workload)
                    }
                },
            };
            if ports.is_empty() {
                continue;
            }
            let Some(network) = self.network_of(workload) else {
                if self.lacks_only_ipv4(workload) {
                    self.findings.push(without_ipv4(name, workload, service));
                    continue;
                }
                self.findings.push(unpublished(name, workload, service));
                workload.container.ports.retain(|port| !ports.contains(port));
                continue;
            };
            let reach = self.reach(name, network);
            proxies.push((name.clone(), proxy(name, workload, service, &reach, ports)));
        }
        for (of, [proxy, worker]) in proxies {
            let name = proxy_name(&of);
            let names = [WorkloadName(worker_of(name.as_str())), name];
            if let Some(taken) = names.iter().find(|name| workloads.contains_key(*name)) {
                let message = format!("is the name of the proxy for the published ports of `{of}`");
                let finding = Finding::error(proxy.origin, format!("services.{taken}"), message);
                let help = format!("rename the service, or set `x-driftless: {{ proxy: false }}` for `{of}`");
                self.findings.push(finding.help(help));
                continue;
            }
            workloads.extend(names.into_iter().zip([worker, proxy]));
        }
    }

    /// The network by which the proxy publishes the ports and reaches the instances: a bridge of the project, or else a
    /// network of another driver, or else an external one, whose driver is not known. `None`: all are without a way to the
    /// host, or without IPv4 addresses.
    fn network_of(&self, workload: &Workload) -> Option<String> {
        let names = workload.container.networks().keys();
        let open = names.filter_map(|name| {
            let network = self.networks.get(name).filter(|network| !network.disable_ipv4)?;
            Some((publishing(name, network)?, name))
        });
        open.min().map(|(_, name)| name.clone())
    }

    /// Whether a network of the workload could publish ports, and has no IPv4 addresses.
    fn lacks_only_ipv4(&self, workload: &Workload) -> bool {
        workload.container.networks().keys().any(|name| {
            let network = self.networks.get(name).filter(|network| network.disable_ipv4);
            network.is_some_and(|network| publishing(name, network).is_some())
        })
    }

    fn reach(&self, service: &WorkloadName, network: String) -> Reach {
        let alone = format!("_{service}._proxy");
        if self.networks.get(&network).is_some_and(|network| network.external) {
            // Other projects may have a service of this name there.
            Reach { network, alias: format!("_{service}.{}._proxy", self.app), former: Some(alone) }
        } else {
            Reach { network, alias: alone, former: None }
        }
    }
}

/// The way by which a proxy reaches the instances of a service.
struct Reach {
    network: String,
    /// The name that only these instances answer to in the network. No name in a manifest begins so.
    alias: String,
    /// The name of instances that an earlier release has created. They serve until they are replaced, if the agent reports them.
    former: Option<String>,
}

/// The networks that may publish ports, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Publishing {
    Bridge,
    OtherDriver,
    External,
}

/// Whether a network can publish the ports of a proxy, as far as it is known. The engine's own networks know no aliases, by
/// which the proxy finds the instances.
fn publishing(name: &str, network: &Network) -> Option<Publishing> {
    if network.external {
        return (!matches!(name, "bridge" | "host" | "none")).then_some(Publishing::External);
    }
    match network.driver.as_deref() {
        _ if network.internal => None,
        Some("macvlan" | "ipvlan" | "host" | "none") => None,
        None | Some("bridge") => Some(Publishing::Bridge),
        Some(_) => Some(Publishing::OtherDriver),
    }
}

/// The finding about ports that no network of the service can publish: an error if the proxy was asked for.
fn unpublished(name: &WorkloadName, workload: &Workload, service: &Service) -> Finding {
    const WHY: &str = "the service has no network that can publish ports: each is internal, or of a driver without published ports \
                       such as `macvlan`";
    let ignored = || {
        let path = format!("services.{name}.ports");
        Finding::warning(workload.origin.clone(), path, format!("are ignored: {WHY}"))
    };
    let finding = service.proxy.as_ref().map_or_else(ignored, |setting| setting.error(WHY));
    finding.help("add a network of the driver `bridge` to the `networks` of the service, or remove `ports`")
}

/// The finding about ports that Docker could publish for one instance, and a proxy cannot: it reaches instances by IPv4.
fn without_ipv4(name: &WorkloadName, workload: &Workload, service: &Service) -> Finding {
    const WHY: &str = "the proxy reaches instances by IPv4, and no network that can publish ports has it (`enable_ipv4: false`)";
    let of_ports =
        || Finding::error(workload.origin.clone(), format!("services.{name}.ports"), WHY.to_owned());
    let finding = service.proxy.as_ref().map_or_else(of_ports, |setting| setting.error(WHY));
    finding.help(
        "add a network with IPv4 to the `networks` of the service, or run one instance without `start-first`",
    )
}

/// Whether instances of the service can run at the same time, so that Docker could publish the ports of one only.
fn is_needed(service: &Service, workload: &Workload) -> bool {
    let order = service.deploy.update.as_ref().and_then(|update| update.order);
    workload.replicas > 1 || order == Some(Order::StartFirst)
}

/// The ports that a proxy can take over: each on one port of the host, and not in `mode: host`. Of a range for one port
/// of the container, and of a port that the engine chooses, each instance has its own.
fn movable(service: &Service, workload: &Workload) -> Vec<Port> {
    if !matches!(workload.container.network_mode, NetworkMode::Networks(_)) {
        return Vec::new();
    }
    let is_single = |port: &&Port| port.host.is_some_and(|host| host.len() == 1);
    let ports = workload.container.ports.iter().filter(is_single);
    ports
        .filter(|port| port.protocol != Protocol::Sctp && !service.direct_ports.contains(port))
        .cloned()
        .collect()
}

/// Why the proxy that was asked for cannot serve the ports, if it cannot.
fn reason_against(service: &Service, workload: &Workload) -> Option<String> {
    if !matches!(workload.container.network_mode, NetworkMode::Networks(_)) {
        return Some(
            "a proxy needs a network of the project to reach the service; remove `network_mode`".to_owned(),
        );
    }
    let is_in_vain = movable(service, workload).is_empty();
    is_in_vain.then(|| {
        "there is no port that a proxy could serve: publish a TCP or UDP port on one port of the host, without `mode: host`"
            .to_owned()
    })
}

fn proxy_name(of: &WorkloadName) -> WorkloadName {
    WorkloadName(format!("{of}_proxy"))
}

/// Takes the ports from a workload, gives it the alias by which its proxy finds it, and returns the proxy: the container that
/// has the ports and stays, and the worker in its network, which a newer one takes over from.
fn proxy(
    name: &WorkloadName,
    workload: &mut Workload,
    service: &Service,
    Reach { network, alias, former }: &Reach,
    ports: Vec<Port>,
) -> [Workload; 2] {
    let container = &mut workload.container;
    container.ports.retain(|port| !ports.contains(port));
    if let NetworkMode::Networks(networks) = &mut container.network_mode
        && let Some(attachment) = networks.get_mut(network)
    {
        attachment.aliases.push(alias.clone());
        attachment.aliases.sort_unstable();
    }
    let (limits, proxy_protocol) = match service.proxy.as_ref().map(|setting| &setting.value) {
        Some(ProxySetting::On { limits, proxy_protocol }) => (limits.clone(), *proxy_protocol),
        Some(ProxySetting::Off) | None => (ForwardLimits::default(), false),
    };
    let numbers: BTreeSet<(u16, Protocol)> =
        ports.iter().map(|port| (port.container, port.protocol)).collect();
    let targets = |port| iter::once(alias).chain(former).map(|name| (name.clone(), port)).collect();
    let forward = |(port, protocol)| Forward { port, protocol, targets: targets(port) };
    let forwards = Forwards {
        ports: numbers.into_iter().map(forward).collect(),
        affinity: None,
        ready_only: true,
        limits,
        proxy_protocol,
        hand_over: true,
    };
    let [owner, worker] = proxy_containers(&forwards, &proxy_name(name));
    let owner = Container {
        network_mode: NetworkMode::Networks([(network.clone(), Box::default())].into()),
        ports,
        ..owner
    };
    let owner = Workload::new(workload.origin.clone(), owner);
    let worker = Workload {
        min_ready: HANDOVER_TIME,
        after: vec![Dependency::of_worker(proxy_name(name).as_str())],
        ..Workload::new(workload.origin.clone(), worker)
    };
    [owner, worker]
}
