//! One service of a Compose file, key by key.

use driftless_model::MountOptions;
use driftless_yaml::{Entry, Kind};

use crate::{
    read::{
        build::build,
        capabilities::capabilities,
        common::{extra_hosts, file_mounts, labels, mac_address, ulimits},
        deploy::{cpus, deploy},
        extension::{Extension, extension},
        fields::{
            command, depends_on, devices, env_files, healthcheck, links, logging, namespace, networks,
            pull_policy, restart,
        },
        host::host_key,
        image_name,
        mounts::{tmpfs_options, volumes},
        ports::{Published, expose, ports},
        types::{Service, VolumeMount, VolumeSource},
    },
    spec::{
        keys::{FILE_MOUNT, SERVICE},
        scalar::Plain,
        value::{Placed, Read as _, Value},
    },
};

/// Reads a service. Errors go to the report; unsupported values stay with the service, which may not be used.
pub(crate) fn service(entry: &Entry, value: &Value<'_>) -> Service {
    // A service that is no map is reported as that, and not also as one without an image.
    let may_lack_image = !matches!(value.node.kind, Kind::Mapping(_)) || value.node.get("provider").is_some();
    // The name of a built image is checked where the build is read.
    let is_built = value.node.get("build").is_some();
    let mut service = Service { origin: entry.key_place.location(), may_lack_image, ..Service::default() };
    for (key, value) in value.fields(&SERVICE) {
        if key == "image"
            && !is_built
            && let Some(image) = value.filled()
        {
            image_name::check(&value, &image);
        }
        let is_read = container_key(&mut service, key, &value)
            || limit_key(&mut service, key, &value)
            || reference_key(&mut service, key, &value)
            || host_key(&mut service, key, &value);
        if !is_read {
            service.may_lack_image |= key == "extends";
            value.refuse("is not supported yet");
        }
    }
    service.unsupported = value.report().take_refused();
    service
}

/// Keys that become a field of the container.
fn container_key(service: &mut Service, key: &str, value: &Value<'_>) -> bool {
    let container = &mut service.container;
    match key {
        "image" => match value.owned() {
            Some(image) => container.image = image,
            None => service.may_lack_image = true,
        },
        "command" => container.command = command(value),
        "entrypoint" => container.entrypoint = command(value),
        "user" => container.user = value.owned(),
        "working_dir" => container.working_dir = value.owned(),
        "hostname" => container.hostname = value.owned(),
        "domainname" => container.domainname = value.owned(),
        "init" => container.init = value.boolean(),
        "tty" => container.tty = value.boolean().unwrap_or_default(),
        "stdin_open" => container.stdin_open = value.boolean().unwrap_or_default(),
        "stop_signal" => container.stop_signal = value.owned(),
        "stop_grace_period" => container.stop_grace_period = value.duration(),
        "labels" => container.labels = labels(value),
        "ports" => {
            let Published { ports, direct } = ports(value);
            container.ports = ports;
            service.direct_ports = direct;
        }
        "expose" => container.expose = expose(value),
        "healthcheck" => container.healthcheck = healthcheck(value),
        "restart" => container.restart = restart(value).unwrap_or_default(),
        "privileged" => container.privileged = value.boolean().unwrap_or_default(),
        "read_only" => container.read_only = value.boolean().unwrap_or_default(),
        "cap_add" => container.cap_add = capabilities(value),
        "cap_drop" => container.cap_drop = capabilities(value),
        "extra_hosts" => container.extra_hosts = extra_hosts(value),
        "dns" => container.dns = value.string_or_list(),
        "dns_search" => container.dns_search = value.string_or_list(),
        "sysctls" => container.sysctls = labels(value),
        "logging" => container.logging = logging(value),
        "devices" => {
            let (own, requested) = devices(value);
            container.devices = own;
            container.host.device_requests.extend(requested);
        }
        "group_add" => {
            container.group_add = value.sequence().iter().filter_map(Value::text_or_number).collect();
        }
        _ => return false,
    }
    true
}

/// Keys that limit the resources of the container.
fn limit_key(service: &mut Service, key: &str, value: &Value<'_>) -> bool {
    let container = &mut service.container;
    let limits = &mut container.resources;
    match key {
        "mem_limit" => limits.memory = value.bytes().filter(|bytes| *bytes > 0),
        "mem_reservation" => limits.memory_reservation = value.bytes().filter(|bytes| *bytes > 0),
        "memswap_limit" => {
            limits.memory_swap = match Plain::of(value.node) {
                Some(("-1", _)) => Some(-1),
                Some(_) | None => {
                    value.bytes().and_then(|bytes| i64::try_from(bytes).ok()).filter(|bytes| *bytes > 0)
                }
            };
        }
        "cpus" => limits.nano_cpus = cpus(value).filter(|cpus| *cpus > 0),
        "cpu_quota" => limits.cpu_quota = crate::read::host::microseconds(value),
        "cpu_period" => limits.cpu_period = crate::read::host::microseconds(value),
        "cpuset" => limits.cpuset = value.filled(),
        "cpu_shares" => limits.cpu_shares = value.whole().filter(|shares| *shares > 0),
        "pids_limit" => limits.pids = value.whole().filter(|pids| *pids != 0),
        "shm_size" => container.shm_size = value.bytes().filter(|bytes| *bytes > 0),
        "ulimits" => container.ulimits = ulimits(value),
        _ => return false,
    }
    true
}

/// Keys that refer to other services or to files, and keys of the workload as a whole.
fn reference_key(service: &mut Service, key: &str, value: &Value<'_>) -> bool {
    let string = || value.owned().map(|text| value.placed(text));
    match key {
        "container_name" => service.container_name = string(),
        "depends_on" => service.depends_on = depends_on(value),
        "deploy" => service.deploy = deploy(value),
        "scale" => service.scale = value.whole().map(|number| value.placed(number)),
        "pull_policy" => {
            service.must_build = (value.node.as_scalar() == Some("build")).then(|| value.placed(()));
            service.pull = pull_policy(value);
        }
        "build" => {
            service.build = build(value);
            service.may_lack_image = true;
        }
        "pull_refresh_after" => service.refresh_after = value.duration(),
        "label_file" => service.label_files = env_files(value),
        "links" => service.links = links(value),
        "external_links" => service.external_links = links(value),
        "mac_address" => service.mac_address = mac_address(value).map(|address| value.placed(address)),
        "security_opt" => service.security = placed_strings(value),
        "environment" => service.environment = value.assignments(),
        "env_file" => service.env_files = env_files(value),
        "network_mode" => service.network_mode = string(),
        "pid" => service.pid = namespace(value, &["host", "private"]),
        "ipc" => service.ipc = namespace(value, &["host", "private", "shareable", "none"]),
        "volumes_from" => service.volumes_from = placed_strings(value),
        "networks" => service.networks = Some(networks(value)),
        "volumes" => service.volumes = volumes(value),
        "tmpfs" => service.tmpfs = tmpfs(value),
        "configs" => service.configs = file_mounts(value, &FILE_MOUNT),
        "secrets" => service.secrets = file_mounts(value, &FILE_MOUNT),
        "x-driftless" => {
            let Extension { on_change, proxy, job, wave, update, ignore_differences, canary } =
                extension(value);
            service.canary = canary;
            service.ignore_differences = ignore_differences;
            (service.on_change, service.proxy) = (on_change, proxy);
            (service.job, service.wave, service.image_update) = (job, wave, update);
        }
        "profiles" => service.profiles = value.strings(),
        _ => return false,
    }
    true
}

/// `/run:size=64m,mode=1777`: one tmpfs for each string.
fn tmpfs(value: &Value<'_>) -> Vec<Placed<VolumeMount>> {
    if value.node.is_null() {
        value.wrong_type("a string or a list");
        return Vec::new();
    }
    let mut mounts = Vec::new();
    for text in value.string_or_list() {
        let (target, options) = text.split_once(':').unwrap_or((&text, ""));
        match tmpfs_options(options) {
            Ok(options) => {
                let mount = VolumeMount {
                    target: target.to_owned(),
                    read_only: options.read_only,
                    source: VolumeSource::Tmpfs { size: options.size, mode: options.mode },
                    options: MountOptions { tmpfs: options.others, ..MountOptions::default() },
                    on_change: None,
                };
                mounts.push(value.placed(mount));
            }
            Err(message) => value.error(message),
        }
    }
    mounts
}

fn placed_strings(value: &Value<'_>) -> Vec<Placed<String>> {
    value.sequence().iter().filter_map(|item| item.owned().map(|text| item.placed(text))).collect()
}
