//! The networks of an application, and the names that its workloads have in them.

use std::collections::{BTreeMap, BTreeSet};

use super::{object::Key, reader::Report, workload::ReadWorkload};
use driftless_model::{Completion, Finding, WorkloadKind, WorkloadName};

/// The networks of an application: one for all, with names that include the namespace; and with several namespaces, one
/// for each, with short names.
pub(super) struct AppNetworks {
    all: String,
    by_namespace: BTreeMap<String, String>,
}

impl AppNetworks {
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
    pub(super) fn join(&self, found: &mut ReadWorkload, services: &BTreeSet<&str>) {
        let near = self.near(&found.key.namespace).to_owned();
        let is_free = !services.contains(found.key.name.as_str());
        let aliases: Vec<String> = is_free.then(|| found.name.as_str().to_owned()).into_iter().collect();
        found.attach(&self.all, aliases);
        if near != self.all {
            found.attach(&near, is_free.then(|| found.key.name.clone()).into_iter().collect());
        }
    }

    /// Gives a workload the names of a Service.
    pub(super) fn name(&self, found: &mut ReadWorkload, Key { name, namespace }: &Key) {
        let far = ["", ".svc", ".svc.cluster.local"].map(|it| format!("{name}.{namespace}{it}"));
        found.attach(&self.all, far.into());
        found.attach(self.near(namespace), vec![name.clone()]);
    }

    /// Gives a StatefulSet's pod its own name, if this is its governing Service.
    pub(super) fn name_pod(&self, found: &mut ReadWorkload, Key { name, namespace }: &Key) {
        let Some(pod) = found.pod_name.clone().filter(|_| found.service.as_ref() == Some(name)) else {
            return;
        };
        let far = ["", ".svc", ".svc.cluster.local"].map(|it| format!("{pod}.{name}.{namespace}{it}"));
        found.attach(&self.all, far.into());
        found.attach(self.near(namespace), vec![format!("{pod}.{name}")]);
    }

    /// Gives a pod its `hostname` in this Service, if it is the pod's `subdomain`.
    pub(super) fn name_host(&self, found: &mut ReadWorkload, Key { name, namespace }: &Key) {
        let Some(host) = found.subdomain.as_ref().filter(|it| it.service == *name) else { return };
        let host = host.hostname.clone();
        let far = ["", ".svc", ".svc.cluster.local"].map(|it| format!("{host}.{name}.{namespace}{it}"));
        found.attach(&self.all, far.into());
        found.attach(self.near(namespace), vec![format!("{host}.{name}")]);
    }

    /// Gives a workload the alias that only this Service's proxy resolves; another Service may select other pods of the same
    /// object. No manifest can use this alias.
    pub(super) fn name_endpoints(&self, found: &mut ReadWorkload, service: &Key) -> String {
        let name = format!("_{}._{}", service.dotted(), found.object.dotted());
        found.attach(&self.all, vec![name.clone()]);
        name
    }

    /// Drops host names that are names of other workloads, such as the proxy of a Service. The engine makes a host name a DNS
    /// name of its container in all networks, so the name of the Service would lead past the proxy, and a short name to a pod
    /// of another namespace. The engine then makes up a host name, as for the pods of a Deployment.
    ///
    /// The pods of a StatefulSet need theirs. Work that ends keeps its own too: with another specification, it would run again. So
    /// does a pod that writes to a volume: programs such as `RabbitMQ` find their data under their host name.
    pub(super) fn drop_taken_host_names(
        &self,
        workloads: &mut [ReadWorkload],
        proxies: &[ReadWorkload],
        report: &Report,
    ) {
        let hosts: BTreeSet<&String> =
            workloads.iter().filter_map(|it| it.workload.container.hostname.as_ref()).collect();
        let mut owners: BTreeMap<String, BTreeSet<WorkloadName>> = BTreeMap::new();
        for found in workloads.iter().chain(proxies) {
            let attachments = found.workload.container.networks().values();
            for alias in attachments.flat_map(|it| &it.aliases).filter(|it| hosts.contains(it)) {
                owners.entry(alias.clone()).or_default().insert(found.name.clone());
            }
        }
        for found in workloads {
            let keeps_data = found.keeps_data();
            let workload = &mut found.workload;
            if workload.kind != WorkloadKind::Replicas || workload.completion != Completion::Never {
                continue;
            }
            let container = &mut workload.container;
            let Some(host) = &container.hostname else { continue };
            let is_taken = owners.get(host).is_some_and(|all| all.iter().any(|it| *it != found.name));
            // All pods ask this network first.
            let is_own = container.networks().get(&self.all).is_some_and(|it| it.aliases.contains(host));
            if is_own || !is_taken {
                continue;
            }
            let place = match &found.hostname_place {
                Some(place) => Some((place.location.clone(), place.path.as_str())),
                // A Pod has its own name as host name. Nobody asked for it, so it is dropped without a finding.
                None => keeps_data.then(|| (workload.origin.clone(), "metadata.name")),
            };
            if let Some((location, path)) = place {
                let (message, help) = if keeps_data {
                    (
                        format!(
                            "a Service or another workload has the name `{host}`, too, which the engine also resolves to this pod"
                        ),
                        "give the Service or workload another name; the host name stays, because the pod's data may depend on it",
                    )
                } else {
                    (
                        format!(
                            "has no effect: the engine would make `{host}` a name of the pod, too, and a Service or another workload has this name"
                        ),
                        "remove it, or choose another host name",
                    )
                };
                report.say(Finding::warning(location, path, message).help(help));
            }
            if !keeps_data {
                container.hostname = None;
            }
        }
    }
}
