//! One workload as its reader leaves it, before Services give it names and ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    container::{FieldPlace, Pod, Subdomain},
    object::Key,
    ports::{HostPort, NamedPorts},
};
use driftless_model::{
    Attachment, DEFAULT_PROGRESS_DEADLINE, DEFAULT_REVISION_HISTORY, FailureRule, Location, ManifestNames,
    Mount, MountSource, NetworkMode, Strategy, SwarmService, Update, Workload, WorkloadKind, WorkloadName,
    is_system_path,
};

/// A workload as it was read.
pub(super) struct ReadWorkload {
    pub(super) key: Key,
    /// The object that defines the workload. It differs from `key` for the pods of a StatefulSet and of a Job.
    pub(super) object: Key,
    pub(super) name: WorkloadName,
    pub(super) kind: &'static str,
    /// The labels of the pod template, by which Services select the workload.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) named: NamedPorts,
    pub(super) workload: Workload,
    /// The ports of the host that the workload takes.
    pub(super) published: Vec<HostPort>,
    /// The pod's stable name, if it has one, and the Service that resolves it.
    pub(super) pod_name: Option<String>,
    pub(super) service: Option<String>,
    /// The place of the `hostname`, if the template has one.
    pub(super) hostname_place: Option<FieldPlace>,
    pub(super) subdomain: Option<Subdomain>,
    pub(super) service_links: bool,
    /// The settings that only a Swarm has.
    pub(super) swarm: SwarmService,
}

impl ReadWorkload {
    /// A workload with one replica and the update strategy of a Deployment.
    pub(super) fn new(
        key: Key,
        origin: Location,
        kind: &'static str,
        labels: BTreeMap<String, String>,
        pod: Pod,
    ) -> Self {
        let workload = Workload {
            origin,
            replicas: 1,
            container: pod.container,
            parts: pod.parts,
            container_name: None,
            strategy: Strategy::RollingUpdate { max_surge: 1, max_unavailable: 0 },
            min_ready: Duration::ZERO,
            progress_deadline: DEFAULT_PROGRESS_DEADLINE,
            revision_history_limit: DEFAULT_REVISION_HISTORY,
            paused: false,
            after: Vec::new(),
            probes: pod.probes,
            pull: pod.pull,
            mounted_pulls: pod.mounted_pulls,
            pull_secrets: pod.pull_secrets,
            build: None,
            in_place: BTreeMap::new(),
            secret_env: pod.secret_env,
            completion: pod.completion,
            kind: WorkloadKind::Replicas,
            update: Update::Rolling,
            architecture: pod.architecture,
            wave: 0,
            failure: FailureRule::default(),
            rollback: None,
            image_update: None,
            ignore_differences: BTreeSet::new(),
            canary: Vec::new(),
            scaled_from: None,
            manifest: ManifestNames { container: pod.container_name, ..ManifestNames::default() },
        };
        let (named, published, subdomain) = (pod.named, pod.published, pod.subdomain);
        let (service_links, hostname_place) = (pod.service_links, pod.hostname_place);
        let (name, object) = (WorkloadName(key.dotted()), key.clone());
        let (pod_name, service) = (None, None);
        Self {
            key,
            object,
            name,
            kind,
            labels,
            named,
            workload,
            published,
            pod_name,
            service,
            hostname_place,
            subdomain,
            service_links,
            swarm: SwarmService::default(),
        }
    }

    /// Whether a container writes to a volume or to a path of the host.
    pub(super) fn has_writable_mount(&self) -> bool {
        self.writes_to(|_| true)
    }

    /// Whether a container writes data that stays after it. Sockets and devices of the host are no data.
    pub(super) fn keeps_data(&self) -> bool {
        self.writes_to(|path| !is_system_path(path))
    }

    /// Whether a container writes to a volume or to a path of the host that is meant.
    fn writes_to(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        let is_written = |mount: &Mount| {
            let is_kept = match &mount.source {
                MountSource::Volume { .. } => true,
                MountSource::Bind { path, .. } => is_meant(path),
                _ => false,
            };
            is_kept && !mount.read_only
        };
        self.workload.containers().any(|container| container.mounts.iter().any(is_written))
    }

    /// Joins a network under further names. A pod on the host's network joins none.
    pub(super) fn attach(&mut self, network: &str, names: Vec<String>) {
        let NetworkMode::Networks(networks) = &mut self.workload.container.network_mode else { return };
        let attachment: &mut Attachment = networks.entry(network.to_owned()).or_default();
        for name in names {
            if let Err(at) = attachment.aliases.binary_search(&name) {
                attachment.aliases.insert(at, name);
            }
        }
    }
}
