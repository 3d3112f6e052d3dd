//! Namespaces and volumes that a service shares with other services or containers: `network_mode`, `pid`, `ipc`,
//! `volumes_from`; and the keys that the engine refuses in combination with them.

use driftless_model::{
    Condition, Container, Dependency, Finding, Namespace, NetworkMode, Peer, VolumesFrom, WorkloadName,
};

use crate::{lower::context::Lowering, read::types::Service, spec::value::Placed};

impl Lowering<'_> {
    /// Lowers `pid`, `ipc` and `volumes_from`.
    pub(crate) fn share(&mut self, key: &str, service: &Service, container: &mut Container) {
        container.pid_mode = service.pid.as_ref().and_then(|it| self.namespace(key, it));
        container.ipc_mode = service.ipc.as_ref().and_then(|it| self.namespace(key, it));
        for source in &service.volumes_from {
            container.volumes_from.extend(self.volumes_from(key, source));
        }
        if matches!(container.network_mode, NetworkMode::Of(_)) {
            self.refuse_with_shared_network(service, container);
        }
    }

    /// The service or container that owns the namespace. `None`: there is none, which was reported.
    pub(crate) fn peer(&mut self, key: &str, text: &Placed<String>) -> Option<Peer> {
        let peer = match Peer::parse(&text.value)? {
            // A container name that a service of this file sets means that service.
            Peer::Container(name) => match self.service_called(&name) {
                Some(service) => Peer::Workload(service),
                None => Peer::Container(name),
            },
            peer @ Peer::Workload(_) => peer,
        };
        match &peer {
            Peer::Container(_) => Some(peer),
            Peer::Workload(name) => self.service_to_share(key, name.as_str(), text).then_some(peer),
        }
    }

    /// Adds dependencies on the services whose namespaces are shared: they start first.
    pub(crate) fn depend_on_peers(container: &Container, after: &mut Vec<Dependency>) {
        for peer in container.peers() {
            let Peer::Workload(workload) = peer else { continue };
            if after.iter().all(|it| it.workload != *workload) {
                let (workload, condition) = (workload.clone(), Condition::Started);
                after.push(Dependency { workload, condition, required: true, restart: false });
            }
        }
    }

    fn namespace(&mut self, key: &str, mode: &Placed<String>) -> Option<Namespace> {
        match Namespace::from(mode.value.as_str()) {
            Namespace::Of(_) => self.peer(key, mode).map(Namespace::Of),
            mode @ Namespace::Mode(_) => Some(mode),
        }
    }

    /// `db`, `db:ro`, `container:legacy`, `container:legacy:ro`.
    fn volumes_from(&mut self, key: &str, source: &Placed<String>) -> Option<VolumesFrom> {
        let text = source.value.as_str();
        let (rest, read_only) = match (text.strip_suffix(":ro"), text.strip_suffix(":rw")) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => (text, false),
        };
        let whole = if rest.starts_with("container:") { rest.to_owned() } else { format!("service:{rest}") };
        if rest.is_empty() || rest.trim_start_matches("container:").contains(':') {
            let finding = source.error(format!("`{text}` is not a service or container"));
            self.findings
                .push(finding.help("write `SERVICE`, `SERVICE:ro`, `container:NAME` or `container:NAME:ro`"));
            return None;
        }
        let peer = self.peer(key, &source.with(whole))?;
        Some(VolumesFrom { peer, read_only })
    }

    fn service_called(&self, container: &str) -> Option<WorkloadName> {
        let has_name = |service: &Service| {
            self.is_active(service)
                && service.container_name.as_ref().is_some_and(|name| name.value == container)
        };
        let (key, _) = self.project.services.iter().find(|(_, service)| has_name(service))?;
        Some(WorkloadName(key.clone()))
    }

    fn service_to_share(&mut self, key: &str, other: &str, at: &Placed<String>) -> bool {
        let finding = match self.project.services.get(other) {
            _ if other == key => at.error("a service cannot share something with itself"),
            Some(found) if self.is_active(found) => return true,
            Some(found) => {
                let help = format!("activate one of: {}", found.profiles.join(", "));
                at.error(format!("shares with `{other}`, whose profiles are not active")).help(help)
            }
            None => at.error(format!("shares with undefined service `{other}`")),
        };
        self.findings.push(finding);
        false
    }

    /// Reports keys that the engine refuses together with the network of another container.
    fn refuse_with_shared_network(&mut self, service: &Service, container: &mut Container) {
        let Some(mode) = &service.network_mode else { return };
        let set = [
            ("ports", !container.ports.is_empty()),
            ("hostname", container.hostname.is_some()),
            ("dns", !container.dns.is_empty()),
            ("extra_hosts", !container.extra_hosts.is_empty()),
        ];
        for (field, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            let message = format!("`{field}` cannot be set with `network_mode: {}`", mode.value);
            let finding: Finding = mode.error(message);
            self.findings.push(finding.help("set it on the service that owns the network"));
        }
        if !container.expose.is_empty() {
            container.expose.clear();
            self.findings.push(mode.warning("`expose` is ignored without a network of its own"));
        }
    }
}
