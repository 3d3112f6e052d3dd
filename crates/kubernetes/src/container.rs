//! One container of a pod, and the pod's own fields.
//!
//! `command` replaces the image's entry point and `args` its command, as in Kubernetes. Only `hostPort` publishes
//! a port. Resources, security and probes have files of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    catalogue::Catalogue,
    env::{self, About},
    fields, file_volumes, lifecycle, names,
    object::Key,
    ports::{self, HostPort, NamedPorts, address},
    probe, pull,
    reader::{Object, Value},
    resources,
    storage::Claim,
    volumes,
};
use driftless_model::{
    Completion, Container, ContentId, ImageRef, Location, NetworkMode, Part, Probes, PullPolicy,
    RestartPolicy,
};

/// A pod template as it was read.
pub(super) struct Pod {
    pub(super) container: Container,
    pub(super) parts: Vec<Part>,
    pub(super) probes: Probes,
    pub(super) pull: PullPolicy,
    /// When images are pulled that the pod mounts.
    pub(super) mounted_pulls: BTreeMap<String, PullPolicy>,
    pub(super) pull_secrets: BTreeSet<ContentId>,
    pub(super) completion: Completion,
    pub(super) named: NamedPorts,
    pub(super) published: Vec<HostPort>,
    /// Variables whose values come from a Secret.
    pub(super) secret_env: BTreeSet<String>,
    /// The place of the `hostname`, if the template has one.
    pub(super) hostname_place: Option<FieldPlace>,
    pub(super) subdomain: Option<Subdomain>,
    /// Services set variables in its containers (`enableServiceLinks: true`).
    pub(super) service_links: bool,
    /// The architecture of the nodes that it may run on.
    pub(super) architecture: Option<String>,
    /// The name of its only container.
    pub(super) container_name: Option<String>,
}

/// The place of a field, for findings that depend on other objects.
pub(super) struct FieldPlace {
    pub(super) location: Location,
    pub(super) path: String,
}

/// The DNS name of a pod under a headless Service.
pub(super) struct Subdomain {
    pub(super) hostname: String,
    pub(super) service: String,
    pub(super) location: Location,
    pub(super) path: String,
}

/// A pod template as its owner contains it.
pub(super) struct Template<'a> {
    pub(super) spec: Object<'a>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The owner of a pod, and what depends on it.
pub(super) struct Owner<'a> {
    pub(super) kind: &'static str,
    pub(super) key: &'a Key,
    /// The pod's stable name, if it has one.
    pub(super) pod_name: Option<&'a str>,
    /// The index of a pod of an Indexed Job.
    pub(super) job_index: Option<u32>,
    pub(super) restarts: Restarts,
    /// The volumes of a StatefulSet's claims, by the name of the template.
    pub(super) claims: BTreeMap<&'a str, Claim>,
    pub(super) catalogue: &'a Catalogue,
}

impl Owner<'_> {
    /// Whether each of its pods has a host name of its own, also if the template has one.
    pub(super) fn has_fixed_names(&self) -> bool {
        self.pod_name.is_some() && self.kind != "Pod"
    }
}

/// The restart policies that an owner allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restarts {
    /// Only `Always`.
    Always,
    /// A Pod without a controller: any policy.
    Any,
    /// A Job with this many retries: `OnFailure` or `Never`.
    Ending { retries: u32 },
}

impl<'a> Template<'a> {
    /// Reads `template` of an owner.
    pub(super) fn read(owner: &Object<'a>) -> Option<Self> {
        let template = owner.require("template")?.object(fields::TEMPLATE)?;
        let metadata = template.object("metadata", fields::TEMPLATE_METADATA);
        let labels = metadata.as_ref().and_then(|it| it.get("labels")).map(|it| names::labels(&it));
        let annotations = metadata.as_ref().and_then(|it| it.get("annotations"));
        Some(Self {
            labels: labels.unwrap_or_default(),
            annotations: annotations.map(|it| names::annotations(&it)).unwrap_or_default(),
            spec: template.require("spec")?.object(fields::POD)?,
        })
    }
}

/// The fields of the pod as a whole.
pub(super) fn read_pod(spec: &Object<'_>, container: &mut Container) {
    // At least one second, as in the kubelet. Docker 20.10 unmounts the files of a container with a grace period of 0 when
    // it is restarted: the container runs, but nothing can be executed in it.
    let grace = spec.integer("terminationGracePeriodSeconds", 0..=0x7FFF_FFFF).unwrap_or(30).max(1);
    container.stop_grace_period = Some(Duration::from_secs(u64::try_from(grace).unwrap_or(30)));
    container.hostname = spec.filled("hostname").and_then(|it| names::label(&it)).map(str::to_owned);
    if let Some(value) = spec.get("hostUsers")
        && value.boolean() == Some(false)
    {
        value.error("a user namespace for one pod is not supported, and ignoring it would change how the application works");
    }
    if let Some(value) = spec.filled("dnsPolicy") {
        let words =
            [("ClusterFirst", true), ("ClusterFirstWithHostNet", true), ("Default", true), ("None", false)];
        let is_on_host = container.network_mode == NetworkMode::Host;
        match value.one_of(&words) {
            Some(true) if is_on_host && value.node.as_scalar() == Some("ClusterFirstWithHostNet") => {
                let warning = value.node.warning(
                    &*value.path,
                    "has no effect: with `hostNetwork` the host resolves names, and it does not know those of Services",
                );
                value.report().say(
                    warning
                        .help("use the published port of the Service at 127.0.0.1, or remove `hostNetwork`"),
                );
            }
            // The host resolves names, as this asks for.
            Some(true) if is_on_host => {}
            Some(false) if spec.get("dnsConfig").is_none() => {
                value.error("`None` needs a `dnsConfig` that names the servers");
            }
            Some(true) if value.node.as_scalar() != Some("ClusterFirst") => {
                value.warning(
                    "has no effect: names are always resolved by the engine, which asks the host's servers",
                );
            }
            Some(_) | None => {}
        }
    }
    if let Some(config) = spec.object("dnsConfig", fields::DNS_CONFIG) {
        container.dns = config.get("nameservers").map(|it| it.strings()).unwrap_or_default();
        container.dns_search = config.get("searches").map(|it| it.strings()).unwrap_or_default();
        container.host.dns_opt = config.items("options").into_iter().filter_map(dns_option).collect();
    }
    for alias in spec.items("hostAliases") {
        let Some(alias) = alias.object(fields::HOST_ALIAS) else { continue };
        let address = alias.require("ip").and_then(|it| address(&it));
        for name in alias.items("hostnames") {
            if let (Some(address), Some(name)) = (address, names::subdomain(&name)) {
                container.extra_hosts.push(format!("{name}:{address}"));
            }
        }
    }
    container.extra_hosts.sort();
    container.extra_hosts.dedup();
    let host = || Some("host".into());
    container.pid_mode = spec.boolean("hostPID").unwrap_or(false).then(host).flatten();
    container.ipc_mode = spec.boolean("hostIPC").unwrap_or(false).then(host).flatten();
}

/// The `hostname` and `subdomain` of a pod.
pub(super) fn subdomain(spec: &Object<'_>, owner: &Owner<'_>) -> Option<Subdomain> {
    let value = spec.filled("subdomain")?;
    let service = names::label(&value)?;
    if owner.kind == "StatefulSet" {
        value.warning("has no effect: the pods have names of their own");
        return None;
    }
    // That of the template has no effect in an Indexed Job.
    let fixed = owner.pod_name.filter(|_| owner.has_fixed_names());
    let Some(hostname) = fixed.or_else(|| spec.filled("hostname")?.string()) else {
        value.warning("has no effect: a pod without a `hostname` has no DNS name in the subdomain");
        return None;
    };
    let (hostname, service) = (hostname.to_owned(), service.to_owned());
    Some(Subdomain { hostname, service, location: value.place().location(), path: value.path })
}

/// A resolver option: `ndots:2`, or `edns0` without a value.
fn dns_option(item: Value<'_>) -> Option<String> {
    let option = item.object(fields::DNS_OPTION)?;
    let name = option.require("name")?.text()?;
    Some(option.string("value").map_or_else(|| name.to_owned(), |value| format!("{name}:{value}")))
}

/// The restart policy of the container.
pub(super) fn restarts(spec: &Object<'_>, owner: &Owner<'_>) -> (RestartPolicy, Completion) {
    let words = [("Always", "Always"), ("OnFailure", "OnFailure"), ("Never", "Never")];
    let given = spec.filled("restartPolicy");
    let policy = given.as_ref().map_or(Some("Always"), |it| it.one_of(&words)).unwrap_or("Always");
    let kind = owner.kind;
    match (owner.restarts, policy, given) {
        (Restarts::Always | Restarts::Any, "Always", _) => (RestartPolicy::UnlessStopped, Completion::Never),
        (Restarts::Always, _, Some(value)) => {
            let help = "remove it, or use a Job for work that ends";
            value.error_help(format!("must be `Always` in a {kind}"), help);
            (RestartPolicy::UnlessStopped, Completion::Never)
        }
        (Restarts::Ending { .. }, "Always", given) => {
            let message = format!("a {kind} needs `restartPolicy: OnFailure` or `Never`");
            match given {
                Some(value) => value.error(message),
                None => spec.value.error(message),
            }
            (RestartPolicy::No, Completion::OnSuccess)
        }
        // The engine reads 0 as no limit.
        (Restarts::Ending { retries: 0 }, _, _) => (RestartPolicy::No, Completion::OnSuccess),
        (Restarts::Ending { retries }, _, _) => {
            (RestartPolicy::OnFailure { max_retries: Some(retries) }, Completion::OnSuccess)
        }
        (_, "OnFailure", _) => (RestartPolicy::OnFailure { max_retries: None }, Completion::OnSuccess),
        _ => (RestartPolicy::No, Completion::OnSuccess),
    }
}

/// One container, and the volumes that the pause container holds for it, by mount path.
pub(super) struct ReadContainer {
    pub(super) pod: Pod,
    pub(super) shared: BTreeMap<String, String>,
}

pub(super) fn read_container(
    object: &Object<'_>,
    mut container: Container,
    about: &About<'_>,
    mounted: &volumes::PodVolumes<'_>,
    owner: &Owner<'_>,
) -> ReadContainer {
    if let Some(name) = object.require("name") {
        names::label(&name);
    }
    let pull = read_image(object, &mut container);
    let env::Variables { values: variables, secret } = env::read(object, about);
    let shared = volumes::mount(object, mounted, &variables, owner.catalogue, &mut container);
    file_volumes::mount_namespace(object, about, &mut container);
    let words = |key| {
        let value = object.get(key)?;
        let list = value.strings();
        let room = &owner.catalogue.room;
        (!list.is_empty()).then(|| list.iter().map(|it| room.expand(&value, it, &variables)).collect())
    };
    container.entrypoint = words("command");
    container.command = words("args");
    container.env = variables.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    container.working_dir = object.filled("workingDir").and_then(|it| it.text()).map(str::to_owned);
    container.stdin_open = object.boolean("stdin").unwrap_or(false);
    container.tty = object.boolean("tty").unwrap_or(false);
    let (named, published) = ports::read(object, &mut container);
    lifecycle::read(object, &named, &mut container);
    if let Some(resources) = object.object("resources", fields::RESOURCES) {
        let given = resources::read(&resources);
        container.resources = given.resources;
        container.host.device_requests = given.devices;
    }
    let completion = Completion::Never;
    let pod = Pod {
        probes: probe::read(object, &named, &owner.catalogue.room),
        pull,
        mounted_pulls: BTreeMap::new(),
        pull_secrets: BTreeSet::new(),
        container,
        parts: Vec::new(),
        completion,
        named,
        published,
        secret_env: secret,
        hostname_place: None,
        subdomain: None,
        service_links: false,
        architecture: None,
        container_name: None,
    };
    ReadContainer { pod, shared }
}

/// The image, and when it is pulled: always if its tag is `latest` or missing and no digest pins it.
fn read_image(object: &Object<'_>, container: &mut Container) -> PullPolicy {
    let image = object.require("image").and_then(|value| {
        let text = value.text()?;
        if let Err(error) = ImageRef::check(text) {
            value.error_help(error.to_string(), error.help());
        }
        Some(text)
    });
    container.image = image.map(str::to_owned).unwrap_or_default();
    pull::policy(object, "imagePullPolicy", &container.image)
}
