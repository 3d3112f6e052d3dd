//! A pod template: one container, or several that share the pod's namespaces and volumes.
//!
//! A pod with several containers gets a pause container that holds what they share: network, names, shared memory and
//! `emptyDir` volumes. A single container holds these itself.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    container::{self, FieldPlace, Owner, Pod, Restarts, Template},
    env::{self, About},
    fields, node,
    object::Key,
    ports::{HostPort, NamedPorts, Taker},
    pull,
    reader::{Object, Value},
    security, shared_volumes, volumes,
};
use driftless_model::{
    Completion, Container, HELPER_IMAGE, Namespace, NetworkMode, Part, Peer, Probes, PullPolicy,
    RestartPolicy, Role, WorkloadName, label,
};
use driftless_yaml::edit;

/// Reads the pod of a workload. `None` if it has no readable container.
pub(super) fn read(template: &Template<'_>, owner: &Owner<'_>, key: &Key) -> Option<Pod> {
    let Template { spec, labels, annotations } = template;
    let report = |message, help| spec.value.error_help(message, help);
    if !owner.catalogue.room.take(text_size(template), report) {
        return None;
    }
    let annotated =
        annotations.iter().map(|(key, text)| (format!("{}{key}", label::ANNOTATION), text.clone()));
    let labels_of_container = labels.clone().into_iter().chain(annotated).collect();
    let (restart, completion) = container::restarts(spec, owner);
    let mut own = Container { labels: labels_of_container, restart, ..Container::default() };
    // Its networks come from its Services, which are read later.
    if spec.boolean("hostNetwork").unwrap_or(false) {
        own.network_mode = NetworkMode::Host;
    }
    container::read_pod(spec, &mut own);
    // On the host's network a pod has the host's name.
    if own.network_mode == NetworkMode::Host {
        if own.hostname.take().is_some()
            && let Some(value) = spec.get("hostname")
        {
            value.warning("has no effect with `hostNetwork`: the pod has the name of the host");
        }
    } else if own.hostname.is_none() || owner.has_fixed_names() {
        if let Some(value) = spec.get("hostname").filter(|_| own.hostname.is_some()) {
            value.warning("has no effect: the pods have names of their own");
        }
        own.hostname = owner.pod_name.filter(|it| it.len() <= 63).map(str::to_owned);
    }
    let shares_processes = spec.boolean("shareProcessNamespace").unwrap_or(false);
    let containers = spec.require("containers")?;
    let items = containers.items();
    if items.is_empty() {
        containers.error("a pod needs a container");
    }
    let about = About {
        catalogue: owner.catalogue,
        namespace: &owner.key.namespace,
        pod_name: owner.pod_name,
        job_index: owner.job_index,
        service_account: spec
            .string("serviceAccountName")
            .or_else(|| spec.string("serviceAccount"))
            .unwrap_or("default"),
        labels,
        annotations,
        pod: spec.value.node,
        is_on_host: own.network_mode == NetworkMode::Host,
        is_cron_job: owner.kind == "CronJob",
    };
    let initial = spec.items("initContainers");
    let wants_address = env::wants_address(items.iter().map(|it| it.node)) && !about.is_on_host;
    let several = items.len() + initial.len() > 1 || wants_address;
    let volumes = volumes::read(spec, &owner.key.dotted(), &about, &owner.claims);
    if let Some(value) = spec.get("shareProcessNamespace").filter(|_| shares_processes && !several) {
        value.warning("has no effect: the pod has one container");
    }
    let mut pod = if several {
        let pod = Peer::Workload(WorkloadName(key.dotted()));
        let frame =
            Frame { pod, spec, owner, about: &about, volumes: &volumes, own, completion, shares_processes };
        frame.read(initial, items)
    } else {
        let object = items.into_iter().next()?.object(fields::CONTAINER)?;
        check_restart(&object, owner);
        let mut pod = container::read_container(&object, own, &about, &volumes, owner).pod;
        pod.completion = completion;
        pod.container_name = object.string("name").map(str::to_owned);
        security::read(spec, &object, &mut pod.container);
        pod
    };
    pod.mounted_pulls = volumes.image_pulls();
    pod.pull_secrets = pull::secrets(spec, &about);
    let place = |it: Value<'_>| FieldPlace { location: it.place().location(), path: it.path };
    pod.hostname_place = spec.filled("hostname").map(place);
    pod.subdomain = container::subdomain(spec, owner);
    pod.service_links = spec.boolean("enableServiceLinks").unwrap_or(false);
    pod.architecture = node::architecture(spec);
    Some(pod)
}

/// The bytes of text that a pod copies from its template. Each container has the labels and annotations of the pod.
fn text_size(template: &Template<'_>) -> usize {
    let Template { spec, labels, annotations } = template;
    let lists = ["initContainers", "containers"].into_iter().filter_map(|key| spec.value.node.get(key));
    let containers = lists.map(|list| list.items().len()).sum::<usize>();
    let labels = labels.iter().chain(annotations).map(|(key, value)| key.len() + value.len()).sum::<usize>();
    edit::length(spec.value.node) + labels * (containers + 1)
}

fn check_restart(object: &Object<'_>, owner: &Owner<'_>) {
    if let Some(value) = object.get("restartPolicy")
        && (owner.restarts != Restarts::Always || value.string() != Some("Always"))
    {
        value.error_help("of one container is not supported", "set `restartPolicy` of the pod");
    }
}

/// Inputs for reading each container of a pod.
struct Frame<'a> {
    /// The pod whose namespaces its containers share.
    pod: Peer,
    spec: &'a Object<'a>,
    owner: &'a Owner<'a>,
    about: &'a About<'a>,
    volumes: &'a volumes::PodVolumes<'a>,
    /// The pod's first container.
    own: Container,
    completion: Completion,
    shares_processes: bool,
}

impl Frame<'_> {
    fn read(mut self, initial: Vec<Value<'_>>, apps: Vec<Value<'_>>) -> Pod {
        HELPER_IMAGE.clone_into(&mut self.own.image);
        let is_own_memory = self.own.ipc_mode.is_none();
        if is_own_memory {
            self.own.ipc_mode = Some("shareable".into());
        }
        let mut parts = Parts::default();
        for (value, is_initial) in
            initial.into_iter().map(|it| (it, true)).chain(apps.into_iter().map(|it| (it, false)))
        {
            let Some(object) = value.object(fields::CONTAINER) else { continue };
            let role = if is_initial { role(&object) } else { Role::App };
            if role == Role::App {
                check_restart(&object, self.owner);
            }
            self.read_part(&object, role, is_own_memory, &mut parts);
        }
        let Parts { all, named, named_by_sidecars, published, secret_env, mut shared, .. } = parts;
        let named = named_by_sidecars.into_iter().chain(named).collect();
        self.own.ports.sort();
        self.own.expose.sort_unstable();
        self.own.expose.dedup();
        // A port that two containers publish is reported where host ports are checked.
        self.own.ports.dedup();
        shared.sort();
        shared.dedup();
        for name in shared {
            shared_volumes::provide(&name, self.volumes.empty(&name), &mut self.own);
        }
        self.own.mounts.sort();
        Pod {
            container: self.own,
            parts: all,
            probes: Probes::default(),
            pull: PullPolicy::IfNotPresent,
            mounted_pulls: BTreeMap::new(),
            pull_secrets: BTreeSet::new(),
            completion: self.completion,
            named,
            published,
            secret_env,
            hostname_place: None,
            subdomain: None,
            service_links: false,
            architecture: None,
            container_name: None,
        }
    }

    fn read_part(&mut self, object: &Object<'_>, role: Role, is_own_memory: bool, parts: &mut Parts) {
        let pod = self.pod.clone();
        let (restart, completion) = match role {
            Role::App => (self.own.restart, self.completion),
            Role::Sidecar => (RestartPolicy::UnlessStopped, Completion::Never),
            Role::Init => (retried(self.own.restart), Completion::OnSuccess),
        };
        let base = Container {
            labels: self.own.labels.clone(),
            restart,
            network_mode: match self.own.network_mode {
                // Kept for the check of host ports; the container shares the pod's network, which is the host's.
                NetworkMode::Host => NetworkMode::Host,
                _ => NetworkMode::default(),
            },
            stop_grace_period: self.own.stop_grace_period,
            ..Container::default()
        };
        let container::ReadContainer { pod: read, shared } =
            container::read_container(object, base, self.about, self.volumes, self.owner);
        let mut container = read.container;
        container.network_mode = NetworkMode::Of(pod.clone());
        container.ipc_mode =
            if is_own_memory { Some(Namespace::Of(pod.clone())) } else { self.own.ipc_mode.clone() };
        container.pid_mode = match &self.own.pid_mode {
            Some(host) => Some(host.clone()),
            None if self.shares_processes => Some(Namespace::Of(pod)),
            None => None,
        };
        self.own.ports.append(&mut container.ports);
        self.own.expose.append(&mut container.expose);
        security::read(self.spec, object, &mut container);
        self.own.sysctls.append(&mut container.sysctls);
        if let Some(value) = object.get("name")
            && let Some(name) = value.text()
        {
            if !parts.names.insert(name.to_owned()) {
                value.error(format!("another container of the pod is already named `{name}`"));
            }
            let mut volumes = BTreeMap::new();
            for (target, volume) in shared {
                volumes.insert(target, shared_volumes::place_in_pod(&volume));
                parts.shared.push(volume);
            }
            parts.all.push(Part {
                name: name.to_owned(),
                role,
                container,
                volumes,
                probes: read.probes,
                pull: read.pull,
                completion,
            });
        }
        // As a cluster looks for the port of a Service: in containers first, then in sidecars, and in nothing that has ended.
        let named = match role {
            Role::App => &mut parts.named,
            Role::Sidecar => &mut parts.named_by_sidecars,
            Role::Init => &mut BTreeMap::new(),
        };
        for (name, port) in read.named {
            named.entry(name).or_insert(port);
        }
        // An init container has ended when the others begin.
        let lasts = |port: &HostPort| role != Role::Init || port.taken_by != Taker::HostNetwork;
        parts.published.extend(read.published.into_iter().filter(lasts));
        parts.secret_env.extend(read.secret_env);
    }
}

#[derive(Default)]
struct Parts {
    all: Vec<Part>,
    names: BTreeSet<String>,
    named: NamedPorts,
    named_by_sidecars: NamedPorts,
    published: Vec<HostPort>,
    secret_env: BTreeSet<String>,
    /// The volumes that the pause container holds for them.
    shared: Vec<String>,
}

/// The restart policy of an init container: until it succeeds, unless the pod's policy is `Never`.
fn retried(restart: RestartPolicy) -> RestartPolicy {
    match restart {
        RestartPolicy::No | RestartPolicy::OnFailure { .. } => restart,
        RestartPolicy::Always | RestartPolicy::UnlessStopped => {
            RestartPolicy::OnFailure { max_retries: None }
        }
    }
}

/// Whether an init container ends, or keeps running as a sidecar.
fn role(object: &Object<'_>) -> Role {
    let words = [("Always", true), ("OnFailure", false), ("Never", false)];
    match object.get("restartPolicy").map(|it| (it.one_of(&words), it)) {
        Some((Some(true), _)) => return Role::Sidecar,
        Some((Some(false), value)) => {
            value.error_help("must be `Always` in an init container", "remove it");
        }
        Some((None, _)) | None => {}
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
        if let Some(value) = object.get(field) {
            let help = "remove it, or set `restartPolicy: Always` if the container is a sidecar";
            value.error_help("is not allowed in an init container, which completes", help);
        }
    }
    Role::Init
}
