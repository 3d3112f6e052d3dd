//! [`HostSettings`] in the engine's nouns, and back. Both directions stand side by side, since they must agree: what
//! [`lower`] writes, [`raise`] finds again. What the engine does not tell comes from our label.
#![expect(clippy::disallowed_types, reason = "the engine's own types are made of hash maps")]

use std::collections::{BTreeMap, HashMap};

use bollard::models as api;

use super::mounts;
use crate::to_engine::{hash, signed};
use driftless_model::{Asked, BlockIo, DeviceRequest, HostSettings, MountOptions, label};

/// Takes away the engine's own list of hidden paths, where others write it into `security_opt`.
const ALL_PATHS: &str = "systempaths=unconfined";

/// Writes the settings into a container's.
pub(crate) fn lower(settings: &HostSettings, host: &mut api::HostConfig) {
    let HostSettings {
        // Of the call, and not of its body.
        platform: _,
        runtime,
        uts_mode,
        userns_mode,
        cgroup,
        cgroup_parent,
        dns_opt,
        device_cgroup_rules,
        device_requests,
        block_io,
        memory_swappiness,
        oom_kill_disable,
        oom_score_adj,
        cpu_realtime_period,
        cpu_realtime_runtime,
        storage_opt,
        annotations,
        // Looked at before it is created.
        non_root: _,
        // Of the mounts.
        mount_options: _,
        // Ours to run.
        post_start: _,
        pre_stop: _,
    } = settings;
    host.runtime.clone_from(runtime);
    host.uts_mode.clone_from(uts_mode);
    host.userns_mode.clone_from(userns_mode);
    host.cgroupns_mode = cgroup.as_deref().and_then(|it| it.parse().ok());
    host.cgroup_parent.clone_from(cgroup_parent);
    host.dns_options = some(dns_opt.clone());
    host.device_cgroup_rules = some(device_cgroup_rules.clone());
    host.device_requests = some(device_requests.iter().map(request).collect());
    host.memory_swappiness = memory_swappiness.map(signed);
    host.oom_kill_disable = oom_kill_disable.then_some(true);
    host.oom_score_adj = (*oom_score_adj != 0).then_some(*oom_score_adj);
    host.cpu_realtime_period = cpu_realtime_period.map(signed);
    host.cpu_realtime_runtime = cpu_realtime_runtime.map(signed);
    host.storage_opt = (!storage_opt.is_empty()).then(|| hash(storage_opt));
    host.annotations = (!annotations.is_empty()).then(|| hash(annotations));
    let BlockIo { weight, weight_device, read_bps, write_bps, read_iops, write_iops } = block_io;
    host.blkio_weight = *weight;
    let weights = weight_device.iter().map(|(path, weight)| api::ResourcesBlkioWeightDevice {
        path: Some(path.clone()),
        weight: Some(usize::from(*weight)),
    });
    host.blkio_weight_device = some(weights.collect());
    host.blkio_device_read_bps = throttles(read_bps);
    host.blkio_device_write_bps = throttles(write_bps);
    host.blkio_device_read_iops = throttles(read_iops);
    host.blkio_device_write_iops = throttles(write_iops);
}

/// Reads them back.
pub(crate) fn raise(host: &api::HostConfig, asked: &Asked) -> HostSettings {
    let text = |it: &Option<String>| it.clone().filter(|it| !it.is_empty());
    let map = |it: &Option<HashMap<String, String>>| {
        it.iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    HostSettings {
        platform: asked.platform.clone(),
        runtime: text(&host.runtime),
        uts_mode: text(&host.uts_mode),
        userns_mode: text(&host.userns_mode),
        cgroup: host.cgroupns_mode.map(|it| it.to_string()).filter(|it| !it.is_empty()),
        cgroup_parent: text(&host.cgroup_parent),
        dns_opt: host.dns_options.clone().unwrap_or_default(),
        device_cgroup_rules: host.device_cgroup_rules.clone().unwrap_or_default(),
        device_requests: host.device_requests.iter().flatten().map(raise_request).collect(),
        block_io: BlockIo {
            weight: host.blkio_weight.filter(|it| *it > 0),
            weight_device: host
                .blkio_weight_device
                .iter()
                .flatten()
                .filter_map(|it| Some((it.path.clone()?, u16::try_from(it.weight?).ok()?)))
                .collect(),
            read_bps: raise_throttles(host.blkio_device_read_bps.as_ref()),
            write_bps: raise_throttles(host.blkio_device_write_bps.as_ref()),
            read_iops: raise_throttles(host.blkio_device_read_iops.as_ref()),
            write_iops: raise_throttles(host.blkio_device_write_iops.as_ref()),
        },
        memory_swappiness: host.memory_swappiness.and_then(|it| u64::try_from(it).ok()),
        oom_kill_disable: host.oom_kill_disable.unwrap_or_default(),
        oom_score_adj: host.oom_score_adj.unwrap_or_default(),
        cpu_realtime_period: positive(host.cpu_realtime_period),
        cpu_realtime_runtime: positive(host.cpu_realtime_runtime),
        storage_opt: map(&host.storage_opt),
        annotations: map(&host.annotations),
        non_root: false,
        mount_options: mount_options(host),
        post_start: asked.post_start.clone(),
        pre_stop: asked.pre_stop.clone(),
    }
}

/// What stands on our label. Nobody else's business, and whatever cannot be read was not written by us.
pub(crate) fn asked(labels: Option<&HashMap<String, String>>) -> Asked {
    let text = labels.and_then(|it| it.get(label::ASKED));
    text.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

/// Others write as a security option what the engine has two fields for.
pub(crate) fn lower_security(options: &[String], host: &mut api::HostConfig) {
    let is_paths = |it: &&String| it.replacen(':', "=", 1) == ALL_PATHS;
    if options.iter().any(|it| is_paths(&it)) {
        host.masked_paths = Some(Vec::new());
        host.readonly_paths = Some(Vec::new());
    }
    host.security_opt = some(options.iter().filter(|it| !is_paths(it)).cloned().collect());
}

/// The engine switches `SELinux` labels off by itself for who shares so much with the host, and shows all paths to
/// who is privileged.
pub(crate) fn raise_security(host: &api::HostConfig) -> Vec<String> {
    let is_host = |it: &Option<String>| it.as_deref() == Some("host");
    let is_privileged = host.privileged == Some(true);
    let close = is_privileged || is_host(&host.pid_mode) || is_host(&host.ipc_mode);
    let given = host.security_opt.iter().flatten().filter(|it| !(close && *it == "label=disable")).cloned();
    let is_empty = |it: &Option<Vec<String>>| it.as_ref().is_some_and(Vec::is_empty);
    let shows_all = !is_privileged && is_empty(&host.masked_paths) && is_empty(&host.readonly_paths);
    given.chain(shows_all.then(|| ALL_PATHS.to_owned())).collect()
}

/// As `--tmpfs` takes it: `size=64m,mode=1777,noexec`.
pub(crate) fn tmpfs(size: Option<u64>, mode: Option<u32>, read_only: bool, options: &MountOptions) -> String {
    let size = size.map(|it| format!("size={it}"));
    let mode = mode.map(|it| format!("mode={it:o}"));
    let read_only = read_only.then(|| "ro".to_owned());
    let all: Vec<String> =
        [size, mode, read_only].into_iter().flatten().chain(options.tmpfs.iter().cloned()).collect();
    all.join(",")
}

fn mount_options(host: &api::HostConfig) -> BTreeMap<String, MountOptions> {
    let long = host.mounts.iter().flatten().filter_map(|it| Some((it.target.clone()?, long_options(it))));
    let tmpfs = host.tmpfs.iter().flatten().map(|(target, text)| {
        let is_own =
            |it: &&str| !it.is_empty() && *it != "ro" && !it.starts_with("size=") && !it.starts_with("mode=");
        let mut options: Vec<String> = text.split(',').filter(is_own).map(str::to_owned).collect();
        options.sort_unstable();
        (target.clone(), MountOptions { tmpfs: options, ..MountOptions::default() })
    });
    long.chain(tmpfs).filter(|(_, it)| *it != MountOptions::default()).collect()
}

fn long_options(mount: &api::Mount) -> MountOptions {
    let volume = mount.volume_options.as_ref();
    let image = mount.image_options.as_ref().and_then(|it| it.subpath.clone());
    let bind = mount.bind_options.as_ref();
    let is = |it: Option<bool>| it == Some(true);
    MountOptions {
        subpath: volume.and_then(|it| it.subpath.clone()).or(image).filter(|it| !it.is_empty()),
        labels: volume
            .and_then(|it| it.labels.as_ref())
            .into_iter()
            .flatten()
            // Those are ours.
            .filter(|(name, _)| *name != label::EMPTY && *name != label::GROUP)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        recursive: bind.and_then(|it| {
            let found = [
                (it.non_recursive, "disabled"),
                (it.read_only_non_recursive, "writable"),
                (it.read_only_force_recursive, "readonly"),
            ];
            found.into_iter().find(|(set, _)| is(*set)).map(|(_, word)| word.to_owned())
        }),
        tmpfs: volume
            .and_then(|it| it.driver_config.as_ref()?.options.as_ref()?.get("o"))
            .map(|it| it.split(',').map(str::to_owned).collect())
            .unwrap_or_default(),
        group: mounts::group(mount),
    }
}

fn request(request: &DeviceRequest) -> api::DeviceRequest {
    let DeviceRequest { driver, count, ids, capabilities, options } = request;
    api::DeviceRequest {
        driver: Some(driver.clone()),
        count: Some(*count),
        device_ids: some(ids.clone()),
        capabilities: (!capabilities.is_empty()).then(|| vec![capabilities.clone()]),
        options: (!options.is_empty()).then(|| hash(options)),
    }
}

fn raise_request(found: &api::DeviceRequest) -> DeviceRequest {
    DeviceRequest {
        driver: found.driver.clone().unwrap_or_default(),
        count: found.count.unwrap_or_default(),
        ids: found.device_ids.clone().unwrap_or_default(),
        capabilities: found.capabilities.iter().flatten().flatten().cloned().collect(),
        options: found.options.iter().flatten().map(|(name, it)| (name.clone(), it.clone())).collect(),
    }
}

fn throttles(all: &BTreeMap<String, u64>) -> Option<Vec<api::ThrottleDevice>> {
    let one = |(path, rate): (&String, &u64)| api::ThrottleDevice {
        path: Some(path.clone()),
        rate: Some(signed(*rate)),
    };
    some(all.iter().map(one).collect())
}

fn raise_throttles(all: Option<&Vec<api::ThrottleDevice>>) -> BTreeMap<String, u64> {
    let one = |it: &api::ThrottleDevice| Some((it.path.clone()?, positive(it.rate)?));
    all.into_iter().flatten().filter_map(one).collect()
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn positive(number: Option<i64>) -> Option<u64> {
    number.and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0)
}
