//! One service of a Compose file, read key by key. What no reader takes is judged by `support`: of no effect, refused,
//! or unknown.

use super::{
    build::build,
    deploy::deploy,
    fields::{
        capabilities, command, container_port, depends_on, devices, env_files, extra_hosts, file_mounts,
        healthcheck, labels, logging, namespace, networks, pull_policy, restart, ulimits,
    },
    host::{host_key, links, mac_address, microseconds, tmpfs_options},
    on_change::on_change,
    ports::{ports, volumes},
    reader::{Path, Placed, Reader},
    schema::{Service, VolumeMount, VolumeSource},
};
use driftless_model::MountOptions;
use driftless_yaml::{Entry, Kind, Node};

/// Reads a service. What is wrong with it goes to the reader; what it asks for in vain stays with the service.
pub(super) fn service(reader: &mut Reader, service: &Entry, path: &Path<'_>) -> Service {
    let node = &service.value;
    let origin = service.key_place.location();
    // What is no mapping is told as that, and not also as a service without an image.
    let lacks_image_knowingly = !matches!(node.kind, Kind::Mapping(_));
    let mut service = Service { origin, lacks_image_knowingly, ..Service::default() };
    for entry in reader.mapping(node, path) {
        let at = path.key(&entry.key);
        let is_read = container_key(reader, &mut service, entry, &at)
            || limit_key(reader, &mut service, entry, &at)
            || reference_key(reader, &mut service, entry, &at)
            || host_key(reader, &mut service, entry, &at);
        if !is_read {
            service.lacks_image_knowingly |= matches!(entry.key.as_str(), "build" | "extends" | "provider");
            reader.other(entry, path, "services");
        }
    }
    service.unsupported = std::mem::take(&mut reader.unsupported);
    service
}

/// Keys that end in the container as they stand.
fn container_key(reader: &mut Reader, service: &mut Service, entry: &Entry, at: &Path<'_>) -> bool {
    let container = &mut service.container;
    let node = &entry.value;
    match entry.key.as_str() {
        "image" => match reader.string(node, at) {
            Some(image) => container.image = image,
            None => service.lacks_image_knowingly = true,
        },
        "command" => container.command = command(reader, node, at),
        "entrypoint" => container.entrypoint = command(reader, node, at),
        "user" => container.user = reader.string(node, at),
        "working_dir" => container.working_dir = reader.string(node, at),
        "hostname" => container.hostname = reader.string(node, at),
        "domainname" => container.domainname = reader.string(node, at),
        "init" => container.init = reader.boolean(node, at),
        "tty" => container.tty = reader.boolean(node, at).unwrap_or_default(),
        "stdin_open" => container.stdin_open = reader.boolean(node, at).unwrap_or_default(),
        "stop_signal" => container.stop_signal = reader.string(node, at),
        "stop_grace_period" => container.stop_grace_period = reader.duration(node, at),
        "labels" => container.labels = labels(reader, node, at),
        "ports" => container.ports = ports(reader, node, at),
        "expose" => container.expose = container_port(reader, node, at),
        "healthcheck" => container.healthcheck = healthcheck(reader, node, at),
        "restart" => container.restart = restart(reader, node, at).unwrap_or_default(),
        "privileged" => container.privileged = reader.boolean(node, at).unwrap_or_default(),
        "read_only" => container.read_only = reader.boolean(node, at).unwrap_or_default(),
        "cap_add" => container.cap_add = capabilities(reader, node, at),
        "cap_drop" => container.cap_drop = capabilities(reader, node, at),
        "extra_hosts" => container.extra_hosts = extra_hosts(reader, node, at),
        "dns" => container.dns = reader.string_or_list(node, at),
        "dns_search" => container.dns_search = reader.string_or_list(node, at),
        "sysctls" => {
            let pairs = reader.pairs(node, at);
            container.sysctls = pairs.into_iter().map(|it| (it.name, it.value.unwrap_or_default())).collect();
        }
        "logging" => container.logging = logging(reader, node, at),
        "devices" => {
            let (own, requested) = devices(reader, node, at);
            container.devices = own;
            container.host.device_requests.extend(requested);
        }
        "group_add" => {
            let items = reader.sequence(node, at).iter().enumerate();
            let groups = items.filter_map(|(index, item)| reader.text_or_number(item, &at.index(index)));
            container.group_add = groups.collect();
        }
        _ => return false,
    }
    true
}

/// Keys that limit what the container may use.
fn limit_key(reader: &mut Reader, service: &mut Service, entry: &Entry, at: &Path<'_>) -> bool {
    let container = &mut service.container;
    let limits = &mut container.resources;
    let node = &entry.value;
    match entry.key.as_str() {
        "mem_limit" => limits.memory = reader.bytes(node, at).filter(|it| *it > 0),
        "mem_reservation" => limits.memory_reservation = reader.bytes(node, at).filter(|it| *it > 0),
        "memswap_limit" => {
            limits.memory_swap = match super::scalar::Plain::of(node) {
                Some(("-1", _)) => Some(-1),
                Some(_) | None => {
                    reader.bytes(node, at).and_then(|it| i64::try_from(it).ok()).filter(|it| *it > 0)
                }
            };
        }
        "cpus" => limits.nano_cpus = super::deploy::cpus(reader, node, at).filter(|it| *it > 0),
        "cpu_quota" => limits.cpu_quota = microseconds(reader, node, at),
        "cpu_period" => limits.cpu_period = microseconds(reader, node, at),
        "cpuset" => limits.cpuset = reader.string(node, at).filter(|it| !it.is_empty()),
        "cpu_shares" => limits.cpu_shares = reader.integer(node, at).filter(|it| *it > 0),
        "pids_limit" => limits.pids = reader.integer(node, at).filter(|it| *it != 0),
        "shm_size" => container.shm_size = reader.bytes(node, at).filter(|it| *it > 0),
        "ulimits" => container.ulimits = ulimits(reader, node, at),
        _ => return false,
    }
    true
}

/// Keys that speak of other services, of files, or of the workload as a whole.
fn reference_key(reader: &mut Reader, service: &mut Service, entry: &Entry, at: &Path<'_>) -> bool {
    let node = &entry.value;
    match entry.key.as_str() {
        "container_name" => {
            service.container_name = reader.string(node, at).map(|it| Reader::placed(node, at, it));
        }
        "depends_on" => service.depends_on = depends_on(reader, node, at),
        "deploy" => service.deploy = deploy(reader, node, at),
        "scale" => service.scale = reader.integer(node, at).map(|it| Reader::placed(node, at, it)),
        "pull_policy" => {
            service.must_build = (node.as_scalar() == Some("build")).then(|| Reader::placed(node, at, ()));
            service.pull = pull_policy(reader, node, at);
        }
        "build" => {
            service.build = build(reader, node, at);
            service.lacks_image_knowingly = true;
        }
        "pull_refresh_after" => service.refresh_after = reader.duration(node, at),
        "label_file" => service.label_files = env_files(reader, node, at),
        "links" => service.links = links(reader, node, at),
        "external_links" => service.external_links = links(reader, node, at),
        "mac_address" => {
            service.mac_address = mac_address(reader, node, at).map(|it| Reader::placed(node, at, it));
        }
        "security_opt" => service.security = placed_strings(reader, node, at),
        "environment" => service.environment = reader.pairs(node, at),
        "env_file" => service.env_files = env_files(reader, node, at),
        "network_mode" => {
            service.network_mode = reader.string(node, at).map(|it| Reader::placed(node, at, it));
        }
        "pid" => service.pid = namespace(reader, node, at, &["host", "private"]),
        "ipc" => service.ipc = namespace(reader, node, at, &["host", "private", "shareable", "none"]),
        "volumes_from" => {
            let items = reader.sequence(node, at).iter().enumerate();
            let all = items.filter_map(|(index, item)| {
                let at = at.index(index);
                reader.string(item, &at).map(|it| Reader::placed(item, &at, it))
            });
            service.volumes_from = all.collect();
        }
        "networks" => service.networks = Some(networks(reader, node, at)),
        "volumes" => service.volumes = volumes(reader, node, at),
        "tmpfs" => service.tmpfs = tmpfs(reader, node, at),
        "configs" => service.configs = file_mounts(reader, node, at),
        "secrets" => service.secrets = file_mounts(reader, node, at),
        "x-driftless" => service.on_change = on_change(reader, node, at).map(|it| it.value),
        "profiles" => service.profiles = reader.strings(node, at),
        _ => return false,
    }
    true
}

/// `/run:size=64m,mode=1777`: a memory file system for each.
fn tmpfs(reader: &mut Reader, node: &Node, at: &Path<'_>) -> Vec<Placed<VolumeMount>> {
    if node.is_null() {
        reader.wrong_type(node, at, "text or a list");
        return Vec::new();
    }
    let mut mounts = Vec::new();
    for text in reader.string_or_list(node, at) {
        let (target, options) = text.split_once(':').unwrap_or((&text, ""));
        match tmpfs_options(options) {
            Ok((size, mode, read_only, rest)) => {
                let options = MountOptions { tmpfs: rest, ..MountOptions::default() };
                let source = VolumeSource::Tmpfs { size, mode };
                let target = target.to_owned();
                let mount = VolumeMount { target, read_only, source, options, on_change: None };
                mounts.push(Reader::placed(node, at, mount));
            }
            Err(message) => reader.error(&node.place, at, message),
        }
    }
    mounts
}

fn placed_strings(reader: &mut Reader, node: &Node, at: &Path<'_>) -> Vec<Placed<String>> {
    let items = reader.sequence(node, at).iter().enumerate();
    let read = items.filter_map(|(index, item)| {
        let at = at.index(index);
        Some(Reader::placed(item, &at, reader.string(item, &at)?))
    });
    read.collect()
}
