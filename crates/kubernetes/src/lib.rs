//! Reads Kubernetes workload manifests and kustomizations into a stack of containers, networks and volumes for one host.
//!
//! [`render`] reads all files of an application. Every Deployment, StatefulSet, DaemonSet, ReplicaSet,
//! `ReplicationController`, Job, `CronJob` and Pod in them is a workload, alone or inside a `List`. ConfigMaps, Secrets,
//! claims and Services are the objects that they refer to, in any file and order. A workload is named after its object,
//! and after its namespace too if that is not `default`: `web` in the namespace `shop` is `web.shop`, the DNS name of its
//! Service in a cluster. [`documents`] returns the objects as JSON, and [`kustomize`] builds kustomizations.
//!
//! Files come through [`Files`], so nothing outside of the given tree is read. Every mistake is a [`Finding`] with file,
//! line, column, path and help. A field without which the application would run wrongly is an error.
//!
//! ```
//! use driftless_files::{AppSpec, MemoryFiles};
//! use driftless_kubernetes::render;
//!
//! let files = MemoryFiles::new([
//!     ("shop/kustomization.yaml", "resources: [web.yaml]\nimages: [{name: nginx, newTag: '1.29'}]\n"),
//!     ("shop/web.yaml", "
//! apiVersion: apps/v1
//! kind: Deployment
//! metadata: {name: web}
//! spec:
//!   replicas: 2
//!   selector: {matchLabels: {app: web}}
//!   template:
//!     metadata: {labels: {app: web}}
//!     spec: {containers: [{name: nginx, image: nginx}]}
//! "),
//! ]);
//! let app = AppSpec::kubernetes("shop", &["shop/kustomization.yaml"]);
//!
//! let stack = render(&files, &app).stack.unwrap();
//! let web = stack.workloads.values().next().unwrap();
//! assert_eq!((web.replicas, web.container.image.as_str()), (2, "nginx:1.29"));
//! ```

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_files::{AppSpec, Files, ReadError, Rendered};
use driftless_model::{
    EngineKind, Finding, Format, Location, Mask, Network, PortPlace, Protocol, Stack, WorkloadName,
    addresses_overlap,
};
use driftless_yaml as yaml;
use driftless_yaml::{Kind, Limits, Node, with_excerpt};

mod catalogue;
mod container;
mod controller_fields;
mod cron_job;
mod daemon_set;
mod deployment;
mod encrypted;
mod env;
mod expand;
mod fields;
mod file_volumes;
mod helm_hooks;
mod inventory;
mod job;
mod kinds;
pub mod kustomize;
mod label_selector;
mod lifecycle;
mod masked_documents;
mod names;
mod networks;
mod node;
mod node_ports;
mod object;
mod pod;
mod ports;
mod probe;
mod proxy;
mod pull;
mod quantity;
mod quoting;
mod reader;
mod resources;
mod security;
mod service;
mod service_account;
mod service_links;
mod service_routes;
mod shared_volumes;
mod single_pod;
mod stateful_set;
mod storage;
mod storage_source;
mod swarm;
mod sync_annotations;
mod sync_order;
mod table;
mod volumes;
mod workload;

use catalogue::{Catalogue, DataKind};
use kinds::{KindSupport, Owned};
use networks::AppNetworks;
use ports::{HostPort, Taker};
use reader::{Report, Value};
use workload::ReadWorkload;

/// Every kind and field as Markdown tables for `docs/kubernetes.md`.
pub fn fields_page() -> String {
    table::page()
}

/// Whether any of the documents is a Kubernetes object.
pub fn is_kubernetes(documents: &[Node]) -> bool {
    documents.iter().any(has_kind)
}

/// Whether the documents look like Kubernetes objects, but have only kinds of other tools, such as the `catalog-info.yaml` of
/// Backstage. An unknown kind may be one of an operator.
pub fn is_of_other_tool(documents: &[Node]) -> bool {
    let is_foreign = |document: &Node| {
        let text = |key: &str| document.get(key).and_then(Node::as_scalar);
        text("apiVersion").zip(text("kind")).is_some_and(|(version, kind)| kinds::is_of_tool(version, kind))
    };
    is_kubernetes(documents) && documents.iter().filter(|it| has_kind(it)).all(is_foreign)
}

fn has_kind(document: &Node) -> bool {
    document.get("apiVersion").is_some() && document.get("kind").is_some()
}

/// Renders all manifest files of an application. Any error leaves the result without a stack.
pub fn render(files: &dyn Files, spec: &AppSpec) -> Rendered {
    let report = Report::default();
    let Manifests { sources, parsed, unread } = manifests(files, spec, &report);
    check_encrypted(files, &parsed, &report);
    let ReadObjects { objects, accounts } = objects(&parsed, &report);
    let mut catalogue = Catalogue::new(spec.name.as_str(), unread);
    for (account, logins) in accounts.into_iter().filter_map(|it| service_account::read(&it)) {
        catalogue.add_logins(account, logins);
    }
    for (kind, value) in &objects {
        match kind {
            Owned::ConfigMap => catalogue.read_data(value.clone(), DataKind::ConfigMap),
            Owned::Secret => catalogue.read_data(value.clone(), DataKind::Secret),
            Owned::PersistentVolumeClaim => catalogue.read_claim(value.clone()),
            Owned::PersistentVolume => catalogue.read_persistent(value.clone()),
            _ => {}
        }
    }
    catalogue.bind(&report);
    let mut workloads = workloads(&objects, &catalogue, spec, &report);
    catalogue.check_mounts(&report);
    let services: Vec<_> = objects.iter().filter(|(kind, _)| *kind == Owned::Service).collect();
    let mut services: Vec<_> = services.into_iter().filter_map(|(_, it)| service::read(it.clone())).collect();
    service::check_names(&services, &report);
    node_ports::assign(spec.name.as_str(), &mut services, &workloads);
    let namespaces: BTreeSet<&str> = workloads.iter().map(|it| it.key.namespace.as_str()).collect();
    let networks = AppNetworks::new(spec.name.as_str(), &namespaces);
    service_links::add(&services, &mut workloads, &catalogue.room, &report);
    let is_swarm = spec.engine == EngineKind::Swarm;
    if is_swarm {
        swarm::services::refuse_fields(&objects);
    }
    let proxies = service_routes::connect(&services, &mut workloads, &networks, spec.engine, &report);
    workloads.extend(proxies);
    if is_swarm {
        swarm::services::check_headless(&workloads, &report);
    }
    check_host_ports(&workloads, spec.engine, &report);
    let inventory = inventory::take(spec.name.as_str(), &workloads, &objects, &catalogue, &services);
    drop((services, objects));

    if workloads.is_empty() && !report.has_errors() {
        // The root of the repository has no folder name.
        let folder = if spec.path.is_empty() { "." } else { &spec.path };
        let finding = Finding::error(Location::file(folder), "", "the manifests hold no workload");
        report.say(finding.help("add a Deployment, or remove the application"));
    }
    let mut findings = presented(report, &sources);
    if is_swarm {
        swarm::drop_host_warnings(&mut findings);
    }
    if findings.iter().any(Finding::is_error) {
        return Rendered { findings, ..Rendered::default() };
    }
    let (contents, volumes) = catalogue.into_parts();
    let network = |(name, key): (String, String)| match spec.engine {
        EngineKind::Docker => (name, Network { key, ..Network::default() }),
        EngineKind::Swarm => (name, swarm::services::network(key)),
    };
    let port_places = port_places(&workloads);
    let services = workloads.iter().map(|it| (it.name.clone(), it.swarm.clone()));
    let swarm = if is_swarm { services.collect() } else { BTreeMap::new() };
    let stack = Stack {
        app: spec.name.clone(),
        format: Format::Kubernetes,
        project: spec.name.as_str().to_owned(),
        workloads: workloads.into_iter().map(|it| (it.name, it.workload)).collect(),
        networks: networks.all().map(network).collect(),
        volumes,
        app_files: BTreeMap::new(),
        manifests: spec
            .files
            .iter()
            .chain(sources.keys().filter(|it| !spec.files.contains(it)))
            .cloned()
            .collect(),
        inventory,
        secret_values: BTreeSet::new(),
        encrypted: encrypted::texts_of(&parsed, files),
        swarm,
        given: None,
        port_places,
        project_place: None,
    };
    Rendered { stack: Some(stack), findings, contents, ..Rendered::default() }
}

/// The documents of an application as kubectl would apply them.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    /// `None` if any finding is an error.
    pub documents: Option<Vec<serde_json::Value>>,
    pub findings: Vec<Finding>,
}

/// The documents of an application: its manifests, or the output of its kustomization, without checking what is
/// supported. `mask` hides values that may be secret.
pub fn documents(files: &dyn Files, spec: &AppSpec, mask: Option<&Mask>) -> Documents {
    let report = Report::default();
    let Manifests { sources, parsed, unread: _ } = manifests(files, spec, &report);
    check_encrypted(files, &parsed, &report);
    let findings = presented(report, &sources);
    if findings.iter().any(Finding::is_error) {
        return Documents { documents: None, findings };
    }
    let mut documents: Vec<_> =
        parsed.iter().flat_map(|(_, it)| it).filter(|it| !it.is_null()).map(yaml::edit::json).collect();
    if let Some(mask) = mask {
        masked_documents::hide(&mut documents, &mask.with_encrypted(&encrypted::texts_of(&parsed, files)));
    }
    Documents { documents: Some(documents), findings }
}

/// Findings sorted by place, each with its source line.
fn presented(report: Report, sources: &BTreeMap<String, Arc<[u8]>>) -> Vec<Finding> {
    let excerpted = report.into_findings().into_iter().map(|it| match sources.get(&it.location.file) {
        Some(source) => with_excerpt(it, source),
        None => it,
    });
    let mut findings: Vec<_> = excerpted.collect();
    findings.sort_by(|a, b| a.location.cmp(&b.location));
    // A field of a kustomization or pod template is reported once, however many objects it applies to.
    let mut said = BTreeSet::new();
    findings.retain(|it| said.insert((it.location.clone(), it.path.clone(), it.message.clone())));
    findings
}

/// Reports ConfigMaps with data from encrypted files: they are mounted from the disk, where nothing is in clear.
fn check_encrypted(files: &dyn Files, parsed: &[(String, Vec<Node>)], report: &Report) {
    let documents = parsed.iter().flat_map(|(_, documents)| documents);
    for document in documents.filter(|it| it.get("kind").and_then(Node::as_scalar) == Some("ConfigMap")) {
        let data = ["data", "binaryData"].into_iter().filter_map(|key| document.get(key));
        let entries = data
            .filter_map(|data| if let Kind::Mapping(entries) = &data.kind { Some(entries) } else { None });
        let encrypted = entries.flatten().find(|entry| files.is_encrypted(&entry.value.place.file));
        if let Some(entry) = encrypted {
            let message =
                format!("`{}` comes from an encrypted file, and a ConfigMap is stored in clear", entry.key);
            let finding = Finding::error(entry.value.place.location(), "data", message);
            report.say(finding.help("make it a Secret, or use `secretGenerator`"));
        }
    }
}

/// The input of an application.
struct Manifests {
    /// File texts by path, for quoting lines.
    sources: BTreeMap<String, Arc<[u8]>>,
    /// The documents, by the file that contains or generated them.
    parsed: Vec<(String, Vec<Node>)>,
    /// The first file that could not be read. Objects of it may be missing.
    unread: Option<String>,
}

/// Reads the manifests, or builds the kustomization.
fn manifests(files: &dyn Files, spec: &AppSpec, report: &Report) -> Manifests {
    if let [path] = spec.files.as_slice()
        && kustomize::is_kustomization(path)
    {
        let kustomize::Built { documents, sources } = kustomize::build(files, path, report);
        // Partial output would only cause follow-up findings.
        let is_whole = !report.has_errors() && !documents.is_empty();
        return Manifests {
            sources,
            parsed: is_whole.then(|| (path.clone(), documents)).into_iter().collect(),
            unread: None,
        };
    }
    let mut found = Manifests { sources: BTreeMap::new(), parsed: Vec::new(), unread: None };
    let limits = Limits::default();
    for path in &spec.files {
        let parsed = match files.read(path, limits.bytes as u64) {
            Ok(bytes) => {
                found.sources.insert(path.clone(), quoting::quotable(files, path, &bytes));
                yaml::parse(path, &bytes, &limits)
            }
            Err(error) => Err(unreadable(path, &error)),
        };
        match parsed {
            Ok(documents) => found.parsed.push((path.clone(), documents)),
            Err(finding) => {
                found.unread.get_or_insert_with(|| path.clone());
                report.say(finding);
            }
        }
    }
    found
}

fn unreadable(path: &str, error: &ReadError) -> Finding {
    let finding = Finding::error(Location::file(path), "", error.to_string());
    if matches!(error, ReadError::TooLarge { .. }) {
        return finding.help("split it into several files");
    }
    finding
}

/// The objects that are read.
#[derive(Default)]
struct ReadObjects<'a> {
    objects: Vec<(Owned, Value<'a>)>,
    /// `ServiceAccount`s with logins.
    accounts: Vec<Value<'a>>,
}

/// All objects that are read, also those in Lists. Others are reported.
fn objects<'a>(parsed: &'a [(String, Vec<Node>)], report: &'a Report) -> ReadObjects<'a> {
    let mut found = ReadObjects::default();
    for (file, documents) in parsed {
        let is_object = |it: &Node| it.get("apiVersion").is_some() || it.get("kind").is_some();
        if !documents.iter().any(is_object) {
            // For example settings of another tool in the same folder.
            let message = "left out: the file holds no Kubernetes object";
            report.say(Finding::warning(Location::file(file), "", message));
            continue;
        }
        // A `---` at the end leaves an empty document.
        for document in documents.iter().filter(|it| !it.is_null()) {
            refuse_tags(document, "", report);
            collect(&Value::new(document, "", report), &mut found);
        }
    }
    found
}

fn collect<'a>(value: &Value<'a>, found: &mut ReadObjects<'a>) {
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        value.error(format!("must be a Kubernetes object, but it is a {}", value.node.kind_name()));
        return;
    }
    let Some((version, kind)) = kinds::identify(value) else { return };
    if sync_order::is_left_out(value, kind) {
        return;
    }
    match kinds::judge(version, kind) {
        KindSupport::Owned(kind) => found.objects.push((kind, value.clone())),
        KindSupport::List => {
            let Some(list) = value.clone().object(fields::LIST) else { return };
            for item in list.items("items") {
                collect(&item, found);
            }
        }
        KindSupport::NoEffect(_) if service_account::has_logins(kind, value) => {
            found.accounts.push(value.clone());
        }
        KindSupport::NoEffect(message) => {
            let node = value.node.get("kind").unwrap_or(value.node);
            value.report().say(node.warning(yaml::join(&value.path, "kind"), message));
        }
        KindSupport::Refused { field, message, help } => {
            let node = value.node.get(field).unwrap_or(value.node);
            let finding = node.finding(yaml::join(&value.path, field), message);
            value.report().say(match help {
                Some(help) => finding.help(help),
                None => finding,
            });
        }
    }
}

/// Reads the workloads. The second object of a name is an error, because their instances would have the same names.
fn workloads(
    objects: &[(Owned, Value<'_>)],
    catalogue: &Catalogue,
    spec: &AppSpec,
    report: &Report,
) -> Vec<ReadWorkload> {
    let mut found: BTreeMap<WorkloadName, ReadWorkload> = BTreeMap::new();
    for (kind, value) in objects {
        let (object, value) = (value, value.clone());
        let one = |it: Option<ReadWorkload>| it.into_iter().collect();
        let read: Vec<ReadWorkload> = match kind {
            Owned::Deployment => one(deployment::read(value, "Deployment", catalogue)),
            Owned::ReplicaSet => one(deployment::read(value, "ReplicaSet", catalogue)),
            Owned::ReplicationController => one(deployment::read(value, "ReplicationController", catalogue)),
            Owned::StatefulSet => stateful_set::read(value, catalogue),
            Owned::DaemonSet => one(daemon_set::read(value, catalogue)),
            Owned::Pod => one(single_pod::read(value, catalogue)),
            Owned::Job => job::read(value, catalogue),
            Owned::CronJob => one(cron_job::read(value, catalogue)),
            Owned::ConfigMap
            | Owned::Secret
            | Owned::Service
            | Owned::PersistentVolume
            | Owned::PersistentVolumeClaim => {
                sync_order::refuse(object);
                Vec::new()
            }
        };
        let mut read = sync_order::apply(object, read);
        if spec.engine == EngineKind::Swarm {
            read = swarm::fit((*kind, object), &spec.name, catalogue, read);
        }
        for read in read {
            if let Some(first) = found.get(&read.name) {
                let (name, place) = (first.object.dotted(), &first.workload.origin);
                let (kind, other) = (read.kind, first.kind);
                // Kubernetes tells them by their kinds. Here the name is that of the containers.
                let message = if kind == other {
                    format!("the {kind} `{name}` is already defined at {place}")
                } else {
                    let own = read.object.dotted();
                    format!(
                        "the {kind} `{own}` would have containers of the same name as the {other} `{name}` at {place}"
                    )
                };
                let finding = Finding::error(read.workload.origin.clone(), "metadata.name", message);
                report.say(finding.help("rename one of the two, or remove it"));
                continue;
            }
            found.insert(read.name.clone(), read);
        }
    }
    found.into_values().collect()
}

/// Reports tags other than YAML's own: Kubernetes does not read them.
fn refuse_tags(node: &Node, path: &str, report: &Report) {
    if let Some(tag) = node.tag.as_deref().filter(|it| !it.starts_with("!!")) {
        report.say(
            node.finding(path, format!("the tag `{tag}` has no meaning in Kubernetes")).help("remove it"),
        );
    }
    for (index, item) in node.items().iter().enumerate() {
        refuse_tags(item, &yaml::join(path, &format!("[{index}]")), report);
    }
    for entry in node.entries() {
        refuse_tags(&entry.value, &yaml::join(path, &entry.key), report);
    }
}

/// The places of all host ports.
fn port_places(workloads: &[ReadWorkload]) -> BTreeMap<(WorkloadName, u16, Protocol), PortPlace> {
    let mut places = BTreeMap::new();
    for ReadWorkload { name, published, .. } in workloads {
        let on_networks = published.iter().filter(|port| port.taken_by != Taker::HostNetwork);
        for HostPort { location, path, host, protocol, .. } in on_networks {
            let place = PortPlace { location: location.clone(), path: path.clone() };
            places.insert((name.clone(), *host, *protocol), place);
        }
    }
    places
}

/// Reports host ports that two containers take.
fn check_host_ports(workloads: &[ReadWorkload], engine: EngineKind, report: &Report) {
    let mut taken: BTreeMap<(u16, Protocol), Vec<(&HostPort, &ReadWorkload)>> = BTreeMap::new();
    for read in workloads {
        let ReadWorkload { name, workload, published, .. } = read;
        // A Job has its port for a while only, and nothing says when.
        let lasts = workload.replicas > 0 && workload.job_or_template().is_none();
        for port in published.iter().filter(|port| lasts || port.taken_by != Taker::HostNetwork) {
            let error = |message| Finding::error(port.location.clone(), &*port.path, message);
            let host = port.host;
            // The tasks of a Swarm run on several nodes, or share a port of all nodes.
            let is_published = port.taken_by != Taker::HostNetwork;
            if workload.replicas > 1 && engine == EngineKind::Docker && is_published {
                let wanted = workload.replicas;
                let message = format!(
                    "one instance can hold port {host} of the host, but `{name}` wants {wanted} replicas"
                );
                report.say(error(message).help("remove `hostPort`, or set `replicas` to 1"));
            }
            let others = taken.entry((host, port.protocol)).or_default();
            if let Some((first, owner)) = others.iter().find(|other| collide(**other, (port, read))) {
                let (place, owner) = (&first.location, &owner.name);
                let owner = match first.taken_by {
                    Taker::Container | Taker::HostNetwork => format!("`{owner}`"),
                    Taker::Service => {
                        format!("the Service of `{}`", owner.as_str().trim_end_matches("_proxy"))
                    }
                };
                let message = format!("port {host} of the host is already taken by {owner} at {place}");
                let help = match port.taken_by {
                    Taker::Container => "choose another `hostPort`",
                    Taker::HostNetwork => "let one of them listen on another port, or remove `hostNetwork`",
                    Taker::Service => {
                        "give one of them another `port` (LoadBalancer) or `nodePort` (NodePort), or set `type: ClusterIP`"
                    }
                };
                report.say(error(message).help(help));
            }
            others.push((port, read));
        }
    }
}

/// Whether two containers cannot both have these ports of the host. A program on the host's network may listen on one of its addresses
/// only, so its port collides with one of the same addresses. The pods of one template share the place of the port.
fn collide((one, owner): (&HostPort, &ReadWorkload), (other, taker): (&HostPort, &ReadWorkload)) -> bool {
    // The host has one architecture, so at most one of two that need different ones runs.
    if let Some(architecture) = &owner.workload.architecture
        && taker.workload.architecture.as_ref().is_some_and(|needed| needed != architecture)
    {
        return false;
    }
    if [one, other].iter().all(|port| port.taken_by != Taker::HostNetwork) {
        return addresses_overlap(one.host_ip, other.host_ip);
    }
    owner.name != taker.name && one.location != other.location && one.host_ip == other.host_ip
}
