//! [`HostSettings`] and security options in the engine's types.

use std::collections::BTreeMap;

use bollard::models as api;
use driftless_model::{BlockIo, DeviceRequest, HostSettings};

use super::values::{hash_map, non_empty, signed};

/// The security option that shows all paths of `/proc` and `/sys` to a container.
pub(crate) const ALL_PATHS: &str = "systempaths=unconfined";

/// Sets the fields of [`HostSettings`].
pub(super) fn set_host_settings(settings: &HostSettings, host: &mut api::HostConfig) {
    let HostSettings {
        // A parameter of the call.
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
        // Checked before the container is created.
        non_root: _,
        // See `mounts`.
        mount_options: _,
        // Run by the agent.
        post_start: _,
        pre_stop: _,
    } = settings;
    host.runtime.clone_from(runtime);
    host.uts_mode.clone_from(uts_mode);
    host.userns_mode.clone_from(userns_mode);
    host.cgroupns_mode = cgroup.as_deref().and_then(|it| it.parse().ok());
    host.cgroup_parent.clone_from(cgroup_parent);
    host.dns_options = non_empty(dns_opt.clone());
    host.device_cgroup_rules = non_empty(device_cgroup_rules.clone());
    host.device_requests = non_empty(device_requests.iter().map(request).collect());
    host.memory_swappiness = memory_swappiness.map(signed);
    host.oom_kill_disable = oom_kill_disable.then_some(true);
    host.oom_score_adj = (*oom_score_adj != 0).then_some(*oom_score_adj);
    host.cpu_realtime_period = cpu_realtime_period.map(signed);
    host.cpu_realtime_runtime = cpu_realtime_runtime.map(signed);
    host.storage_opt = (!storage_opt.is_empty()).then(|| hash_map(storage_opt));
    host.annotations = (!annotations.is_empty()).then(|| hash_map(annotations));
    let BlockIo { weight, weight_device, read_bps, write_bps, read_iops, write_iops } = block_io;
    host.blkio_weight = *weight;
    let weights = weight_device.iter().map(|(path, weight)| api::ResourcesBlkioWeightDevice {
        path: Some(path.clone()),
        weight: Some(usize::from(*weight)),
    });
    host.blkio_weight_device = non_empty(weights.collect());
    host.blkio_device_read_bps = throttles(read_bps);
    host.blkio_device_write_bps = throttles(write_bps);
    host.blkio_device_read_iops = throttles(read_iops);
    host.blkio_device_write_iops = throttles(write_iops);
}

/// Sets the security options. `systempaths=unconfined` is an option of Docker's CLI; the engine has two fields for it.
pub(super) fn set_security_options(options: &[String], host: &mut api::HostConfig) {
    let is_all_paths = |option: &&String| option.replacen(':', "=", 1) == ALL_PATHS;
    if options.iter().any(|option| is_all_paths(&option)) {
        host.masked_paths = Some(Vec::new());
        host.readonly_paths = Some(Vec::new());
    }
    host.security_opt = non_empty(options.iter().filter(|option| !is_all_paths(option)).cloned().collect());
}

fn request(request: &DeviceRequest) -> api::DeviceRequest {
    let DeviceRequest { driver, count, ids, capabilities, options } = request;
    api::DeviceRequest {
        driver: Some(driver.clone()),
        count: Some(*count),
        device_ids: non_empty(ids.clone()),
        capabilities: (!capabilities.is_empty()).then(|| vec![capabilities.clone()]),
        options: (!options.is_empty()).then(|| hash_map(options)),
    }
}

fn throttles(all: &BTreeMap<String, u64>) -> Option<Vec<api::ThrottleDevice>> {
    let one = |(path, rate): (&String, &u64)| api::ThrottleDevice {
        path: Some(path.clone()),
        rate: Some(signed(*rate)),
    };
    non_empty(all.iter().map(one).collect())
}
