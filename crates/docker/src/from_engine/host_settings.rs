//! Host settings and security options, read back. What the engine does not store comes from the agent's label.
#![expect(clippy::disallowed_types, reason = "the engine's types contain hash maps")]

use std::collections::{BTreeMap, HashMap};

use bollard::models as api;
use driftless_model::{BlockIo, DeviceRequest, HostSettings, MountOptions, UnreportedSettings, label};

use super::{
    mounts,
    values::{filled, map, positive},
};
use crate::to_engine::ALL_PATHS;

/// The host settings of a container.
pub(super) fn host_settings(host: &api::HostConfig, asked: &UnreportedSettings) -> HostSettings {
    HostSettings {
        platform: asked.platform.clone(),
        runtime: filled(host.runtime.as_ref()),
        uts_mode: filled(host.uts_mode.as_ref()),
        userns_mode: filled(host.userns_mode.as_ref()),
        cgroup: host.cgroupns_mode.map(|it| it.to_string()).filter(|it| !it.is_empty()),
        cgroup_parent: filled(host.cgroup_parent.as_ref()),
        dns_opt: host.dns_options.clone().unwrap_or_default(),
        device_cgroup_rules: host.device_cgroup_rules.clone().unwrap_or_default(),
        device_requests: host.device_requests.iter().flatten().map(device_request).collect(),
        block_io: BlockIo {
            weight: host.blkio_weight.filter(|it| *it > 0),
            weight_device: host
                .blkio_weight_device
                .iter()
                .flatten()
                .filter_map(|it| Some((it.path.clone()?, u16::try_from(it.weight?).ok()?)))
                .collect(),
            read_bps: throttles(host.blkio_device_read_bps.as_ref()),
            write_bps: throttles(host.blkio_device_write_bps.as_ref()),
            read_iops: throttles(host.blkio_device_read_iops.as_ref()),
            write_iops: throttles(host.blkio_device_write_iops.as_ref()),
        },
        memory_swappiness: host.memory_swappiness.and_then(|it| u64::try_from(it).ok()),
        oom_kill_disable: host.oom_kill_disable.unwrap_or_default(),
        oom_score_adj: host.oom_score_adj.unwrap_or_default(),
        cpu_realtime_period: host.cpu_realtime_period.and_then(positive),
        cpu_realtime_runtime: host.cpu_realtime_runtime.and_then(positive),
        storage_opt: map(host.storage_opt.as_ref()),
        annotations: map(host.annotations.as_ref()),
        non_root: false,
        mount_options: mount_options(host),
        post_start: asked.post_start.clone(),
        pre_stop: asked.pre_stop.clone(),
    }
}

/// The content of the agent's label with what the engine does not store. An unreadable label was not written by the agent.
pub(crate) fn asked(labels: Option<&HashMap<String, String>>) -> UnreportedSettings {
    let text = labels.and_then(|it| it.get(label::ASKED));
    text.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

/// The security options of a container. The engine disables `SELinux` labels by itself for a container that shares that much
/// with the host, and shows all paths to a privileged one.
pub(super) fn security_options(host: &api::HostConfig) -> Vec<String> {
    let is_host = |mode: &Option<String>| mode.as_deref() == Some("host");
    let is_privileged = host.privileged == Some(true);
    let is_unlabelled = is_privileged || is_host(&host.pid_mode) || is_host(&host.ipc_mode);
    let given =
        host.security_opt.iter().flatten().filter(|it| !(is_unlabelled && *it == "label=disable")).cloned();
    let is_empty = |it: &Option<Vec<String>>| it.as_ref().is_some_and(Vec::is_empty);
    let shows_all = !is_privileged && is_empty(&host.masked_paths) && is_empty(&host.readonly_paths);
    given.chain(shows_all.then(|| ALL_PATHS.to_owned())).collect()
}

fn mount_options(host: &api::HostConfig) -> BTreeMap<String, MountOptions> {
    let long = host.mounts.iter().flatten().filter_map(|it| Some((it.target.clone()?, long_options(it))));
    let tmpfs = host.tmpfs.iter().flatten().map(|(target, text)| {
        // Without the defaults of the engine, as the manifest is read.
        let is_other = |it: &&str| {
            let is_default = ["", "ro", "rw", "noexec", "nosuid", "nodev"].contains(it);
            let is_size = it.strip_prefix("size=").is_some_and(|size| mounts::tmpfs_size(size).is_some());
            !is_default && !is_size && !it.starts_with("mode=")
        };
        let mut options: Vec<String> = text.split(',').filter(is_other).map(str::to_owned).collect();
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
            // Without the agent's own labels.
            .filter(|(name, _)| *name != label::EMPTY && *name != label::GROUP)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        recursive: bind.and_then(|bind| {
            let found = [
                (bind.non_recursive, "disabled"),
                (bind.read_only_non_recursive, "writable"),
                (bind.read_only_force_recursive, "readonly"),
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

fn device_request(found: &api::DeviceRequest) -> DeviceRequest {
    DeviceRequest {
        driver: found.driver.clone().unwrap_or_default(),
        count: found.count.unwrap_or_default(),
        ids: found.device_ids.clone().unwrap_or_default(),
        capabilities: found.capabilities.iter().flatten().flatten().cloned().collect(),
        options: found.options.iter().flatten().map(|(name, it)| (name.clone(), it.clone())).collect(),
    }
}

fn throttles(all: Option<&Vec<api::ThrottleDevice>>) -> BTreeMap<String, u64> {
    let one = |it: &api::ThrottleDevice| Some((it.path.clone()?, it.rate.and_then(positive)?));
    all.into_iter().flatten().filter_map(one).collect()
}
